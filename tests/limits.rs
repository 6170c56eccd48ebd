//! What the command does with inputs that never end, that no memory holds, or that are meant for the terminal.

use crate::cli::Run;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

type Checked = Result<(), Box<dyn std::error::Error>>;

/// The small instrument of the book with a grid of wavefront points, as `s.toml`.
fn write_system(run: &Run) -> Checked {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/book/systems/small-moao.toml");
    let text = fs::read_to_string(book)?.replace("lenslets = 8", "lenslets = 4");
    Ok(fs::write(run.path("s.toml"), format!("{text}\n[phase]\npoints = 5\n"))?)
}

/// A header of NumPy's for numbers of double precision in a shape.
fn npy_header(shape: &str) -> Vec<u8> {
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
    [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:<117}\n").as_bytes()].concat()
}

/// Every command that reads a file ends in time after a signal, also while it waits for a pipe that sends nothing, or that sends
/// without end; the older output stays, and nothing is left behind.
#[cfg(target_os = "linux")]
#[test]
fn signals_end_commands_that_read_without_end() -> Checked {
    use crate::cli::with_all_signals;
    use std::process::{Command, Stdio};
    let run = Run::new()?;
    write_system(&run)?;
    fs::write(run.path("old.npz"), "old")?;
    assert!(Command::new("mkfifo").arg(run.path("pipe")).status()?.success());
    for (signal, args, bytes) in [
        ("-INT", "estimate s.toml --slopes pipe -o old.npz", Some(npy_header("(99999999, 99)"))),
        ("-TERM", "estimate s.toml --slopes pipe -o old.npz", Some(Vec::new())),
        ("-TERM", "learn s.toml --slopes pipe -o old.toml", None),
        ("-INT", "covariance pipe -o old.npz", None),
        ("-TERM", "reconstruct pipe -o old.npz --plan", Some(Vec::new())),
        ("-INT", "psf pipe -o old.npz --plan", None),
        ("-TERM", "stem pipe -o old.npz", None),
        ("-INT", "import pipe -o old.toml", None),
    ] {
        let mut process = with_all_signals();
        process.args(args.split_whitespace()).current_dir(run.path(""));
        let mut process = process.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let writer = bytes.map(|bytes| -> io::Result<File> {
            let mut pipe = File::options().write(true).open(run.path("pipe"))?;
            pipe.write_all(&bytes)?;
            Ok(pipe)
        });
        let writer = writer.transpose()?;
        std::thread::sleep(Duration::from_millis(400));
        let early = process.try_wait()?;
        let start = Instant::now();
        Command::new("kill").args([signal, &process.id().to_string()]).status()?;
        let output = process.wait_with_output()?;
        assert_eq!(early, None, "{args} does not wait: {output:?}");
        assert_eq!(output.status.code(), Some(130), "{args}: {output:?}");
        assert!(start.elapsed() < Duration::from_secs(2), "{args}: {:?}", start.elapsed());
        assert!(output.stderr.is_empty(), "{args}: {output:?}");
        drop(writer);
        assert_eq!(fs::read_to_string(run.path("old.npz"))?, "old", "{args}");
        assert_eq!(
            run.names()?,
            ["old.npz", "pipe", "s.toml"].map(|name| run.path(name)),
            "{args}"
        );
    }
    Ok(())
}

/// A sparse image of 67 GB and an archive that unfolds to 17 GB are compared with the memory; no process is aborted.
#[cfg(target_os = "linux")]
#[test]
fn arrays_that_no_memory_holds_are_refused() -> Checked {
    let run = Run::new()?;
    write_system(&run)?;
    let cards = [
        "SIMPLE  =                    T",
        "BITPIX  =                  -64",
        "NAXIS   =                    2",
        "NAXIS1  =             33554432",
        "NAXIS2  =                  256",
        "END",
    ];
    let header: String = cards.map(|card| format!("{card:<80}")).concat();
    fs::write(run.path("s.fits"), format!("{header:<2880}"))?;
    File::options().write(true).open(run.path("s.fits"))?.set_len(2880 + (1 << 36))?;
    let mut archive = zip::ZipWriter::new(File::create(run.path("s.npz"))?);
    archive.start_file("slopes.npy", zip::write::SimpleFileOptions::default())?;
    archive.write_all(&npy_header("(2147483648, 16)"))?;
    io::copy(&mut io::repeat(0).take(48 << 20), &mut archive)?;
    archive.finish()?;
    for (file, needed) in [("s.fits", "64.0 GiB"), ("s.npz", "256.0 GiB")] {
        let start = Instant::now();
        let args = format!("estimate s.toml --slopes {file} -o e.npz");
        run.refuses(&args, &[file, "an array of shape", needed, "are available"])?;
        assert!(start.elapsed() < Duration::from_secs(20), "{file}: {:?}", start.elapsed());
    }
    Ok(())
}

/// With a limit on the address space, so many threads are started as leave memory for the work.
#[cfg(target_os = "linux")]
#[test]
fn three_thousand_threads_under_a_limit_are_fewer() -> Checked {
    let run = Run::new()?;
    write_system(&run)?;
    for limit in ["4000000", "1500000", "700000"] {
        let script = format!(
            "ulimit -v {limit}; RAYON_NUM_THREADS=3000 exec {} simulate s.toml --frames 20 -o out.npy --json",
            env!("CARGO_BIN_EXE_lenslet")
        );
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", &script]).current_dir(run.path("")).output()?;
        assert!(output.status.success(), "{limit}: {output:?}");
        let threads =
            serde_json::from_slice::<serde_json::Value>(&output.stdout)?["threads"].as_u64();
        assert!(threads.is_some_and(|threads| threads < 64), "{limit}: {threads:?}");
    }
    Ok(())
}

/// Control characters of any input come out as their codes.
#[test]
fn messages_have_no_control_characters_of_inputs() -> Checked {
    let run = Run::new()?;
    write_system(&run)?;
    let bad = "a\u{1b}[31mb\u{7}\u{9b}2J\u{202e}c";
    let system = fs::read_to_string(run.path("s.toml"))?;
    fs::write(run.path("value.toml"), system.replace("\"auto\"", &format!("'{bad}'")))?;
    fs::write(
        run.path("key.toml"),
        format!("{system}\n\"{}\" = 1\n", bad.replace('\u{1b}', "\\u001b")),
    )?;
    fs::write(run.path("broken.toml"), format!("{system}\n{bad}\n"))?;
    let mut arrays = zip::ZipWriter::new(File::create(run.path("names.npz"))?);
    for name in [format!("{bad}.npy"), format!("{bad}2.npy")] {
        arrays.start_file(name, zip::write::SimpleFileOptions::default())?;
        arrays.write_all(&npy_header("(2,)"))?;
    }
    arrays.finish()?;
    let card = |text: &str| format!("{text}{}", " ".repeat(80 - text.chars().count()));
    let cards = [
        "SIMPLE  =                    T",
        "BITPIX  =                  -64",
        "NAXIS   = 1",
        "NAXIS1  = 2",
    ];
    let unit = card("BUNIT   = 'a\u{1b}[31mb\u{7}'");
    let header = cards.map(card).concat() + &unit + &card("END");
    fs::write(run.path("unit.fits"), format!("{header:<2880}{}", "\0".repeat(2880)))?;
    for args in [
        vec!["reconstruct", "value.toml", "-o", "r.npz"],
        vec!["reconstruct", "key.toml", "-o", "r.npz"],
        vec!["info", "broken.toml"],
        vec!["info", bad],
        vec!["estimate", "s.toml", "--slopes", "names.npz", "-o", "e.npz"],
        vec!["estimate", "s.toml", "--slopes", "unit.fits", "-o", "e.npz"],
        vec!["estimate", "s.toml", "--slopes", "unit.fits", "-o", bad],
        vec!["import", bad, "-o", "i.toml"],
        vec!["view", bad],
        vec!["view", "names.npz", "-o", bad],
        vec!["stem", "--prismatic", "-i \u{1b}[31mbad.xyz", "-o", "s.npz"],
        vec!["psf", "s.toml", "--device", bad, "-o", "p.npz"],
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lenslet"));
        let output = command.args(&args).current_dir(run.path("")).env_remove("HOME").output()?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed)?;
        assert_eq!(output.status.code(), Some(2), "{args:?}: {printed:?}");
        let controls = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!printed.contains(controls), "{args:?}: {printed:?}");
    }
    Ok(())
}
