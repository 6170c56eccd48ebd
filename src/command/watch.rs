// Tangled from book/src/interrupts.md: edit there, or here and run cargo tangle stitch.
//! How a user stops a command, and how a command warns the user.

// Imports of interrupts
use crate::device::temporary;
use crate::error::escaped_lines;
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{consts, flag};
#[cfg(unix)]
use std::io::Read;
use std::io::{self, Write};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(unix)]
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

// Stop at an interrupt
// Flags of an interrupt
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether the process ends now, so that one more signal need not wait for it.
static ENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether the user wants the computation to stop.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// From now on an interrupt, or a request to end, cancels the computation; the process ends with the code 130 within two seconds, or at
/// the second one.
pub fn catch_signals() {
    #[cfg(unix)]
    let requests = [consts::SIGINT, consts::SIGTERM, consts::SIGHUP];
    #[cfg(not(unix))]
    let requests = [consts::SIGINT, consts::SIGTERM];
    let requests: Vec<i32> = requests.into_iter().filter(|&signal| !is_ignored(signal)).collect();
    let last = if end_in_time(&requests).is_ok() { &ENDING } else { &INTERRUPTED };
    for signal in requests {
        // These fail only where the system does not know the signal.
        let _ = flag::register_conditional_shutdown(signal, 130, Arc::clone(last));
        let _ = flag::register(signal, Arc::clone(&INTERRUPTED));
    }
    #[cfg(unix)]
    let _ = flag::register(consts::SIGXFSZ, Arc::default());
}

// End in time after a signal
/// How long a computation may take to end by itself.
const GRACE: Duration = Duration::from_millis(1200);

/// Starts the thread that ends the process in time after one of these signals.
#[cfg(unix)]
fn end_in_time(signals: &[i32]) -> io::Result<()> {
    let (received, sent) = UnixStream::pair()?;
    let thread = std::thread::Builder::new().name("signals".into()).stack_size(1 << 18);
    thread.spawn(move || end_after_signal(received))?;
    signals.iter().try_for_each(|&signal| {
        signal_hook::low_level::pipe::register(signal, sent.try_clone()?).map(drop)
    })
}

#[cfg(not(unix))]
fn end_in_time(_signals: &[i32]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Waits for a signal, and then for another one or the end of the time; ends the process.
#[cfg(unix)]
fn end_after_signal(mut received: UnixStream) {
    let mut byte = [0];
    if received.read_exact(&mut byte).is_err() {
        return;
    }
    let until = Instant::now() + GRACE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || received.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match received.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    ENDING.store(true, Ordering::Relaxed);
    temporary::remove_all();
    signal_hook::low_level::exit(130);
}

// Signals that are ignored
/// Whether a signal is ignored by this process.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.map_or_else(|| survives(signal), |mask| (mask >> (signal - 1)) & 1 == 1)
}

#[cfg(not(unix))]
fn is_ignored(_signal: i32) -> bool {
    false
}
/// Whether a program that inherits what is ignored survives a signal: `cat`, which ends with its input.
#[cfg(unix)]
fn survives(signal: i32) -> bool {
    let cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let Ok(mut cat) = cat else { return false };
    let signal = Signal::from_named_raw(signal);
    let sent = signal.is_some_and(|signal| kill_process(Pid::from_child(&cat), signal).is_ok());
    // This closes its input.
    let ended = cat.wait();
    sent && ended.is_ok_and(|status| status.success())
}

// Complain on the standard error
/// Says on the standard error what is wrong; where even that cannot be written, the exit code has to do.
pub fn complain(how: &str, what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{how}: {}", escaped_lines(what));
}
// Tests of what is watched
#[cfg(test)]
mod tests {
    use super::*;

    // Tests of ignored signals
    #[cfg(target_os = "linux")]
    #[test]
    fn ignored_signals_are_known() {
        const CHILD: &str = "LENSLET_IGNORED_SIGNALS";
        if std::env::var_os(CHILD).is_some() {
            for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
                let ignored = signal == consts::SIGHUP;
                assert_eq!((is_ignored(signal), survives(signal)), (ignored, ignored), "{signal}");
            }
            return;
        }
        let mut child = Command::new("env");
        child.args(["--default-signal=INT,TERM", "--ignore-signal=HUP"]);
        child.arg(std::env::current_exe().unwrap());
        child.args(["--exact", "command::watch::tests::ignored_signals_are_known"]);
        assert!(child.env(CHILD, "").status().unwrap().success());
    }

    // Tests of an end in time
    #[cfg(target_os = "linux")]
    #[test]
    fn a_signal_ends_a_process_that_never_looks() {
        use crate::files::atomic_file::AtomicFile;
        const CHILD: &str = "LENSLET_NEVER_LOOKS";
        if let Ok(name) = std::env::var(CHILD) {
            catch_signals();
            let _draft = AtomicFile::holding(name.as_ref(), b"new").unwrap();
            std::fs::write(format!("{name}.ready"), "").unwrap();
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let test = "command::watch::tests::a_signal_ends_a_process_that_never_looks";
        for (signals, longest) in [(1, 2.0), (2, 0.9)] {
            let folder = tempfile::tempdir().unwrap();
            let [name, ready] = ["old.npz", "old.npz.ready"].map(|name| folder.path().join(name));
            std::fs::write(&name, "old").unwrap();
            let mut child = Command::new("env");
            child.arg("--default-signal=INT,TERM,HUP").arg(std::env::current_exe().unwrap());
            let mut child = child.args(["--exact", test]).env(CHILD, &name).spawn().unwrap();
            while !ready.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(folder.path().read_dir().unwrap().count(), 3, "the draft is there");
            let start = Instant::now();
            for _ in 0..signals {
                kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(child.wait().unwrap().code(), Some(130));
            assert!(start.elapsed().as_secs_f64() < longest, "{:?}", start.elapsed());
            assert_eq!(std::fs::read_to_string(&name).unwrap(), "old");
            assert_eq!(folder.path().read_dir().unwrap().count(), 2, "the draft is removed");
        }
    }
}
