// Tangled from book/src/meetings.md: edit there, or here and run cargo tangle stitch.
//! Rendezvous of the ranks of several processes: they connect to rank 0, share the identifier, and detect the loss of a rank.

// Imports of a rendezvous
use super::authentication::{
    LONGEST_LINE, LineReader, Secret, random_text, read_private_file, write_private_file,
};
use super::dispatch::lock;
use super::rank_info::{Peers, RankInfo};
use crate::error::{Error, escaped};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

// Timeouts of a rendezvous
/// Timeouts: for all ranks to connect, for a rank that sends nothing before it is lost, and for a connection to authenticate itself.
const PATIENCE: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(20);
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Connections that may be open without authentication; the oldest is closed for one more.
const CANDIDATES: usize = 128;

// Processes with open connections
/// A rendezvous of several processes, each with an open connection to rank 0.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    rank_info: RankInfo,
    news: Arc<PeerStatus>,
}

/// Status of the other ranks, as received by a process.
#[derive(Debug, Default)]
struct PeerStatus {
    announced: Mutex<Announced>,
    changed: Condvar,
    /// Connections: those to all other ranks on rank 0, that to rank 0 on the others.
    lines: Mutex<Vec<TcpStream>>,
    /// Whether the computation has ended.
    is_over: AtomicBool,
}

/// Bytes that rank 0 shares with all ranks, and the loss of a rank with its reason.
#[derive(Debug, Default)]
struct Announced {
    shared: Option<Vec<u8>>,
    lost: Option<String>,
}

// Options of a rendezvous
/// Deadlines of a rendezvous, and the source of its secret.
#[derive(Clone)]
pub(crate) struct RendezvousOptions {
    /// Timeout for all ranks to connect.
    patience: Duration,
    /// Timeout for the authentication of a connection.
    handshake: Duration,
    /// The secret, where the user sets one.
    secret: Option<String>,
    /// The file of the secret otherwise.
    file: Option<PathBuf>,
}

impl RendezvousOptions {
    /// The default deadlines, with the secret of the environment or of the user's file.
    fn from_environment() -> Self {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from);
        let at_home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
        let file = folder.or_else(at_home).map(|folder| folder.join("lenslet/meet-secret"));
        let secret = variable(SECRET_VARIABLE).map(|secret| secret.to_string_lossy().into_owned());
        Self { patience: PATIENCE, handshake: HANDSHAKE, secret, file }
    }
}

/// The variable of the environment that holds the secret.
const SECRET_VARIABLE: &str = "LENSLET_MEET_SECRET";

// Connect and keep the connections
impl Rendezvous {
    /// Connects the ranks: rank 0 waits for the others, and they connect to it.
    ///
    /// # Errors
    /// `Failed` where ranks are missing after a minute, with their numbers, or where their numbers of ranks differ.
    pub(crate) fn new(rank_info: RankInfo) -> Result<Self, Error> {
        Self::with(rank_info, &RendezvousOptions::from_environment())
    }

    /// Connects the ranks, with these options.
    pub(crate) fn with(rank_info: RankInfo, options: &RendezvousOptions) -> Result<Self, Error> {
        let news = Arc::new(PeerStatus::default());
        let met = match rank_info.rank {
            0 => wait_for_all(&rank_info, options)?,
            _ => look_for_first(&rank_info, options)?,
        };
        for (name, line) in met {
            let failed = |error| failed(&rank_info, error);
            line.stream().set_write_timeout(Some(SILENCE)).map_err(failed)?;
            lock(&news.lines).push(line.stream().try_clone().map_err(failed)?);
            let news = Arc::clone(&news);
            start("listen", move || news.listen(&name, line)).map_err(failed)?;
        }
        // Send a heartbeat each second
        let beating = Arc::downgrade(&news);
        let beat = move || {
            while let Some(news) = beating.upgrade() {
                news.say("alive");
                drop(news);
                thread::sleep(Duration::from_secs(1));
            }
        };
        start("beat", beat).map_err(|error| failed(&rank_info, error))?;
        Ok(Self { rank_info, news })
    }
}

// Serve a rank group
impl Peers for Rendezvous {
    fn rank_info(&self) -> &RankInfo {
        &self.rank_info
    }

    // Share bytes of rank 0
    fn share(&self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
        if let Some(bytes) = bytes {
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let line = format!("share {text}");
            if line.len() >= LONGEST_LINE {
                let reason = format!("{} bytes do not fit into a line", bytes.len());
                return Err(failed(&self.rank_info, reason));
            }
            self.news.say(&line);
            return Ok(bytes);
        }
        // Wait for the bytes of rank 0
        let until = Instant::now() + PATIENCE;
        let mut announced = lock(&self.news.announced);
        loop {
            if let Some(shared) = announced.shared.take() {
                return Ok(shared);
            }
            let left = until.saturating_duration_since(Instant::now());
            if let Some(reason) = &announced.lost {
                return Err(failed(&self.rank_info, reason));
            } else if left.is_zero() {
                return Err(failed(&self.rank_info, "rank 0 said nothing for a minute"));
            }
            let waited = self.news.changed.wait_timeout(announced, left);
            announced = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    // Report and notice lost ranks
    fn lost(&self) -> Option<Error> {
        lock(&self.news.announced).lost.as_ref().map(|reason| failed(&self.rank_info, reason))
    }

    fn give_up(&self, reason: &str) {
        let reason = reason.replace('\n', " ");
        self.news.say(&format!("lost {} ended: {}", name(&self.rank_info), escaped(&reason)));
    }

    fn set_over(&self, is_over: bool) {
        self.news.is_over.store(is_over, Ordering::Release);
    }
}

// Leave a rendezvous
impl Drop for Rendezvous {
    fn drop(&mut self) {
        if self.news.is_over.load(Ordering::Acquire) {
            self.news.say("bye");
        }
        for line in lock(&self.news.lines).drain(..) {
            let _ = line.shutdown(Shutdown::Write); // a broken connection need not be closed
        }
    }
}
/// The name of this process among the ranks.
fn name(rank_info: &RankInfo) -> String {
    format!("rank {} ({}, process {})", rank_info.rank, host(), process::id())
}

/// The name of this machine.
fn host() -> String {
    sysinfo::System::host_name().unwrap_or_else(|_| "localhost".into())
}

/// The error of a rendezvous that fails, or of a lost rank.
fn failed(rank_info: &RankInfo, reason: impl std::fmt::Display) -> Error {
    let what = format!("the rendezvous of {} ranks at {}", rank_info.ranks, rank_info.meet);
    Error::Failed { what, reason: reason.to_string() }
}

/// Starts a thread.
fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

// Listen to one connection
impl PeerStatus {
    // Send a line on all connections
    /// Sends a line on all connections; the listening threads detect those that are broken.
    fn say(&self, text: &str) {
        let longest = LONGEST_LINE - 1;
        let end = (0..=longest.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        for line in lock(&self.lines).iter_mut() {
            let _ = writeln!(line, "{}", &text[..end.unwrap_or(0)]);
        }
    }

    /// Receives the lines of another rank, until it leaves or is lost.
    fn listen(&self, name: &str, mut line: LineReader) {
        loop {
            let text = match line.next(Instant::now() + SILENCE) {
                Ok(text) => text,
                Err(error) => return self.lose(format!("{name} was lost: {error}")),
            };
            match text.split_once(' ') {
                Some(("share", bytes)) => {
                    lock(&self.announced).shared = Some(read_bytes(bytes));
                    self.changed.notify_all();
                }
                Some(("lost", reason)) => return self.lose(escaped(reason).to_string()),
                _ if text == "bye" => return,
                _ => {}
            }
        }
    }

    // Store the loss of a rank
    /// Stores the loss of a rank, unless it is not the first, and notifies all.
    fn lose(&self, reason: String) {
        if !self.is_over.load(Ordering::Acquire) {
            lock(&self.announced).lost.get_or_insert_with(|| reason.clone());
            self.changed.notify_all();
            self.say(&format!("lost {reason}"));
        }
    }
}

// Read bytes from their text
/// Bytes from hexadecimal digits.
fn read_bytes(text: &str) -> Vec<u8> {
    let digit = |k: usize| text.get(k..k + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).filter_map(digit).collect()
}

// Rank 0 of a rendezvous
// Wait for all ranks
/// Listens as rank 0, and returns the connections to all other ranks when they are complete.
fn wait_for_all(
    rank_info: &RankInfo,
    options: &RendezvousOptions,
) -> Result<Vec<(String, LineReader)>, Error> {
    let refuse = |error: io::Error| failed(rank_info, error);
    let until = Instant::now() + options.patience;
    let (listeners, secret) = listen(rank_info, options)?;
    let mut candidates = VecDeque::new();
    let mut met: Vec<Option<AdmittedRank>> = (1..rank_info.ranks).map(|_| None).collect();
    while met.iter().any(Option::is_none) {
        serve(rank_info, (&secret, options.handshake), &mut candidates, &mut met)?;
        accept(&listeners, options.handshake, &mut candidates);
        if Instant::now() >= until {
            // Report the ranks that are missing
            let missing = (1..rank_info.ranks).filter(|rank| met[rank - 1].is_none());
            let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
            let at = listeners.iter().filter_map(|listener| listener.local_addr().ok());
            let at: Vec<String> = at.map(|address| address.to_string()).collect();
            let (missing, at) = (missing.join(", "), at.join(" and "));
            let waited = options.patience.as_secs();
            let reason = format!(
                "rank {missing} did not come within {waited} s to {at}, or has not the same secret: see {SECRET_VARIABLE}"
            );
            return Err(failed(rank_info, reason));
        }
        thread::sleep(Duration::from_millis(5));
    }
    // Welcome all ranks
    if addresses_of(&rank_info.meet).is_none() {
        let _ = fs::remove_file(&rank_info.meet); // all have read it
    }
    let welcome = |rank: AdmittedRank| {
        rank.answer(&secret, "welcome")?;
        Ok((rank.name, rank.line))
    };
    met.into_iter().flatten().map(welcome).collect::<io::Result<_>>().map_err(refuse)
}

// Connections without authentication
/// A connection that has not yet answered its challenge.
struct Candidate {
    line: LineReader,
    challenge: String,
    /// When it is closed.
    until: Instant,
}

/// An authenticated rank: its name, and the random numbers of both ends.
struct AdmittedRank {
    name: String,
    line: LineReader,
    numbers: [String; 2],
}
/// The first word of rank 0.
const GREETING: &str = concat!("lenslet-", env!("CARGO_PKG_VERSION"));

/// Accepts new connections, and sends each a challenge. Beyond `CANDIDATES` connections the oldest is closed.
fn accept(listeners: &[TcpListener], time: Duration, candidates: &mut VecDeque<Candidate>) {
    let come = listeners
        .iter()
        .flat_map(|listener| std::iter::from_fn(|| listener.accept().ok()).take(CANDIDATES));
    for (stream, _) in come {
        let greet = || -> io::Result<Candidate> {
            stream.set_nonblocking(true)?;
            let challenge = random_text()?;
            (&stream).write_all(format!("{GREETING} {challenge}\n").as_bytes())?;
            let (line, until) = (LineReader::new(stream), Instant::now() + time);
            Ok(Candidate { line, challenge, until })
        };
        candidates.extend(greet().ok()); // one that is gone already
        candidates.drain(..candidates.len().saturating_sub(CANDIDATES));
    }
}

// Serve connections in turn
/// Polls each connection once: admits ranks, closes strangers, and keeps those that may still answer.
fn serve(
    rank_info: &RankInfo,
    (secret, time): (&Secret, Duration),
    candidates: &mut VecDeque<Candidate>,
    met: &mut [Option<AdmittedRank>],
) -> Result<(), Error> {
    for _ in 0..candidates.len() {
        let Some(mut candidate) = candidates.pop_front() else { break };
        match candidate.line.poll() {
            Ok(Some(text)) => {
                let admitted = admit(rank_info, secret, candidate, &text, met)?;
                // Keep an admitted rank
                if let Some((rank, admitted)) = admitted {
                    admitted
                        .line
                        .stream()
                        .set_write_timeout(Some(time))
                        .map_err(|e| failed(rank_info, e))?;
                    met[rank - 1] = Some(admitted);
                }
            }
            Ok(None) if Instant::now() < candidate.until => candidates.push_back(candidate),
            Ok(None) | Err(_) => {}
        }
    }
    Ok(())
}

// Admit a rank or drop a stranger
/// The rank that a line authenticates, with its number; none where it does not.
fn admit(
    rank_info: &RankInfo,
    secret: &Secret,
    candidate: Candidate,
    text: &str,
    met: &[Option<AdmittedRank>],
) -> Result<Option<(usize, AdmittedRank)>, Error> {
    let mut words = text.splitn(6, ' ');
    let mut word = || words.next().unwrap_or("");
    let [join, rank, ranks, number, code, name] = [(); 6].map(|()| word());
    let proved = [GREETING, join, &candidate.challenge, number, rank, ranks, name];
    if join != "join" || !secret.verify(&proved, code) {
        return Ok(None);
    }
    let (known, count) = (rank.parse::<usize>().unwrap_or(0), ranks.parse::<usize>());
    let free = known >= 1 && met.get(known - 1).is_some_and(Option::is_none);
    let (name, numbers) = (escaped(name).to_string(), [candidate.challenge, number.to_string()]);
    let admitted = AdmittedRank { name, line: candidate.line, numbers };
    if count == Ok(rank_info.ranks) && free {
        let accepted = admitted.answer(secret, "accepted");
        return Ok(accepted.ok().map(|()| (known, admitted))); // a rank whose connection broke may connect again
    }
    // Reject a rank that does not fit
    let reason = format!(
        "{} came as rank {} of {}, where {} are to meet, each once",
        admitted.name,
        escaped(rank),
        escaped(ranks),
        rank_info.ranks
    );
    let _ = admitted.answer(secret, &format!("refused {reason}")); // it may have gone
    Err(failed(rank_info, reason))
}
impl AdmittedRank {
    /// Sends an answer with its code.
    fn answer(&self, secret: &Secret, text: &str) -> io::Result<()> {
        let [challenge, number] = &self.numbers;
        let code = secret.code(&["answer", challenge, number, text])?;
        self.line.stream().set_nonblocking(false)?;
        writeln!(self.line.stream(), "{code} {text}")
    }
}

// Listen at the given address only
/// Sockets that listen at the addresses of a rendezvous, and its secret.
fn listen(
    rank_info: &RankInfo,
    options: &RendezvousOptions,
) -> Result<(Vec<TcpListener>, Secret), Error> {
    let given =
        options.secret.as_deref().map(secret_of).transpose().map_err(|e| failed(rank_info, e))?;
    // Listen at each address of a host
    let bind = |addresses: &[SocketAddr]| -> io::Result<Vec<TcpListener>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let mut listeners = Vec::new();
        for address in addresses {
            match TcpListener::bind(address).and_then(|it| it.set_nonblocking(true).map(|()| it)) {
                Ok(listener) => listeners.push(listener),
                Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
        if listeners.is_empty() { Err(last) } else { Ok(listeners) }
    };
    let open = || -> io::Result<(Vec<TcpListener>, Secret)> {
        if let Some(addresses) = addresses_of(&rank_info.meet) {
            let secret = given.map_or_else(|| usual_secret(options.file.as_deref(), true), Ok)?;
            return Ok((bind(&addresses?)?, secret));
        }
        let listeners = bind(&addresses_of_host(rank_info.one_machine))?;
        let secret = write_rendezvous(Path::new(&rank_info.meet), &listeners, given)?;
        Ok((listeners, secret))
    };
    open().map_err(|error| failed(rank_info, format!("rank 0 cannot listen: {error}")))
}

// Addresses and the usual secret
/// The addresses of `HOST:PORT`; none for a file.
fn addresses_of(meet: &str) -> Option<io::Result<Vec<SocketAddr>>> {
    host_and_port(meet).map(|_| Ok(meet.to_socket_addrs()?.collect()))
}

/// The two parts of `HOST:PORT`; none for a file.
fn host_and_port(meet: &str) -> Option<(&str, u16)> {
    let (host, port) = meet.rsplit_once(':')?;
    Some((host, port.parse().ok()?)).filter(|_| !host.is_empty() && !host.contains('/'))
}
/// The secret from a text of the user.
fn secret_of(text: &str) -> io::Result<Secret> {
    let empty = || io::Error::other(format!("{SECRET_VARIABLE} is empty: give it a secret text"));
    Secret::of(text).ok_or_else(empty)
}

/// The secret of the user's file, which is created if it is `required` and there is none.
fn usual_secret(file: Option<&Path>, required: bool) -> io::Result<Secret> {
    let none = || io::Error::other(format!("there is no home folder: set {SECRET_VARIABLE}"));
    let file = file.ok_or_else(none)?;
    let named = |error: io::Error| {
        let how = format!("set {SECRET_VARIABLE} to the secret of rank 0, or copy its file");
        io::Error::new(error.kind(), format!("the secret in {}: {error}: {how}", file.display()))
    };
    if required && !file.exists() {
        // Make the file of the usual secret
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        match write_private_file(file, &format!("{}\n", random_text()?), false) {
            Ok(()) => {
                let shown = file.display().to_string();
                let _ = writeln!(
                    io::stderr(),
                    "note: made {}, the secret of rendezvous: ranks on machines without it need a copy (mode 600), or {SECRET_VARIABLE}",
                    escaped(&shown)
                ); // a note that cannot be written is no reason to fail
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(named(error)),
        }
    }
    let text = read_private_file(file).map_err(named)?;
    Secret::of(&text).ok_or_else(|| named(io::Error::other("the file is empty")))
}

// Write the file of a rendezvous
/// The loopback address, and the addresses of the host name unless all ranks are on this machine; the system chooses the ports.
fn addresses_of_host(one_machine: bool) -> Vec<SocketAddr> {
    let named = (host(), 0).to_socket_addrs().into_iter().flatten();
    let named = named.filter(|address| !one_machine && !address.ip().is_loopback());
    let mut addresses: Vec<SocketAddr> = named.collect();
    addresses.push((IpAddr::V4(Ipv4Addr::LOCALHOST), 0).into());
    addresses.dedup();
    addresses
}

/// Writes the file of a rendezvous, with a new secret and the addresses; returns the given secret, or else the new one.
fn write_rendezvous(
    file: &Path,
    listeners: &[TcpListener],
    given: Option<Secret>,
) -> io::Result<Secret> {
    let text = random_text()?;
    let addresses: Vec<String> = listeners
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.to_string()))
        .collect::<io::Result<_>>()?;
    write_private_file(file, &format!("{text}\n{}\n", addresses.join("\n")), true)?;
    given.map_or_else(|| secret_of(&text), Ok)
}

// Other ranks of a rendezvous
// Connect to rank 0
/// The connection to rank 0, when all ranks have connected.
fn look_for_first(
    rank_info: &RankInfo,
    options: &RendezvousOptions,
) -> Result<Vec<(String, LineReader)>, Error> {
    let until = Instant::now() + options.patience;
    let mut reason = io::Error::other("no address is known");
    while Instant::now() < until {
        match call_first(rank_info, options, until) {
            Ok(Answer::Welcome(line)) => return Ok(vec![("rank 0".into(), line)]),
            Ok(Answer::Refused(reason)) => {
                return Err(failed(rank_info, format!("refused {}", escaped(&reason))));
            }
            Err(error) => reason = error,
        }
        thread::sleep(Duration::from_millis(50));
    }
    let waited = options.patience.as_secs();
    Err(failed(rank_info, format!("rank 0 was not found within {waited} s: {reason}")))
}

// Final answer of rank 0
/// The final answer of rank 0.
enum Answer {
    Welcome(LineReader),
    Refused(String),
}

// Call one address of rank 0
/// Tries the addresses of rank 0 in turn, until one of them answers with its code.
fn call_first(
    rank_info: &RankInfo,
    options: &RendezvousOptions,
    until: Instant,
) -> io::Result<Answer> {
    // Find the secret and the addresses
    let given = options.secret.as_deref().map(secret_of).transpose()?;
    let (secret, addresses) = match addresses_of(&rank_info.meet) {
        Some(addresses) => {
            let usual = || usual_secret(options.file.as_deref(), false);
            (given.map_or_else(usual, Ok)?, addresses?)
        }
        None => {
            let text = read_private_file(Path::new(&rank_info.meet))?;
            let mut lines = text.lines();
            let first = lines.next().unwrap_or_default();
            let secret = given.map_or_else(|| secret_of(first), Ok)?;
            let addresses = lines.flat_map(|line| line.to_socket_addrs().into_iter().flatten());
            (secret, addresses.collect())
        }
    };
    let mut last_error = io::Error::other("no address is known");
    for address in addresses {
        match join(rank_info, &secret, address, (options.handshake, until)) {
            Ok(answer) => return Ok(answer),
            Err(error) => last_error = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last_error)
}

// Authenticate both ends of a connection
/// Authenticates this rank at an address, and waits until all ranks have connected.
fn join(
    rank_info: &RankInfo,
    secret: &Secret,
    address: SocketAddr,
    (time, until): (Duration, Instant),
) -> io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&address, time)?;
    stream.set_write_timeout(Some(time))?;
    let mut line = LineReader::new(stream);
    let soon = Instant::now() + time;
    // Read the challenge of rank 0
    let stranger = || io::Error::other("what answers there is no rank 0 of this version");
    let greeting = line.next(soon)?;
    let challenge = greeting.split_once(' ').filter(|(first, _)| *first == GREETING);
    let (_, challenge) = challenge.ok_or_else(stranger)?;
    // Send the code of this rank
    let (number, name) = (random_text()?, name(rank_info));
    let [rank, ranks] = [rank_info.rank, rank_info.ranks].map(|number| number.to_string());
    let code = secret.code(&[GREETING, "join", challenge, &number, &rank, &ranks, &name])?;
    writeln!(line.stream(), "join {rank} {ranks} {number} {code} {name}")?;
    // Verify an answer of rank 0
    let answer = |text: String| {
        let (code, text) = text.split_once(' ').ok_or_else(stranger)?;
        match secret.verify(&["answer", challenge, &number, text], code) {
            true => Ok(text.to_string()),
            false => Err(io::Error::other("what answers there does not know the secret")),
        }
    };
    let mut text = answer(line.next(soon).map_err(|error| no_answer(&error))?)?;
    if text == "accepted" {
        text = answer(line.next(until)?)?;
    }
    match text.strip_prefix("refused ") {
        Some(reason) => Ok(Answer::Refused(reason.to_string())),
        None if text == "welcome" => Ok(Answer::Welcome(line)),
        None => Err(stranger()),
    }
}
/// The error of a rank 0 that closes the connection after the code.
fn no_answer(error: &io::Error) -> io::Error {
    let reason = format!("{error}, as when the secrets differ: see {SECRET_VARIABLE}");
    io::Error::new(error.kind(), reason)
}

// Tests of a rendezvous
#[cfg(test)]
mod tests {
    use super::*;

    // Options of a rendezvous of tests
    /// The default deadlines with a secret.
    fn options(secret: &str) -> RendezvousOptions {
        let (patience, handshake, secret) = (PATIENCE, HANDSHAKE, Some(secret.to_string()));
        RendezvousOptions { patience, handshake, secret, file: None }
    }

    /// A loopback address at which no process listens.
    fn free_address() -> String {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    #[test]
    fn addresses_differ_from_files() {
        assert_eq!(host_and_port("node:47"), Some(("node", 47)));
        assert!(host_and_port("/tmp/a:1").is_none() && host_and_port("meet").is_none());
    }

    // Rendezvous between threads
    /// The rendezvous of several ranks, each in a thread of its own.
    fn meet(ranks: usize, place: &str) -> Vec<Result<Rendezvous, Error>> {
        let meet = |rank: usize| {
            Rendezvous::with(RankInfo::of_test([rank, ranks], place), &options("of a test"))
        };
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..ranks).rev().map(|rank| scope.spawn(move || meet(rank))).collect();
            threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn wait_for(lost: impl Fn() -> Option<Error>) -> String {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if let Some(error) = lost() {
                return error.to_string();
            }
            thread::sleep(Duration::from_millis(5));
        }
        "nobody was lost".into()
    }

    #[test]
    fn ranks_meet_share_and_are_lost_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("meet").display().to_string();
        fs::write(&file, "of another time\n127.0.0.1:9\n").unwrap();
        for place in [file.clone(), free_address()] {
            let met: Vec<Rendezvous> = meet(3, &place).into_iter().map(Result::unwrap).collect();
            let bytes: Vec<u8> = (0..=255).collect();
            assert_eq!(met[0].share(Some(bytes.clone())).unwrap(), bytes);
            for other in &met[1..] {
                assert_eq!(other.share(None).unwrap(), bytes);
            }
            // A rank that leaves after the end is not lost; one that leaves earlier is.
            let [first, second, third] = <[Rendezvous; 3]>::try_from(met).unwrap();
            second.set_over(true);
            drop(second);
            thread::sleep(Duration::from_millis(50));
            assert!(first.lost().is_none() && third.lost().is_none());
            third.give_up("out of\nmemory");
            let said = wait_for(|| first.lost());
            assert!(said.contains("rank 2 (") && said.ends_with("ended: out of memory"), "{said}");
            assert!(said.contains(&format!("the rendezvous of 3 ranks at {place}")), "{said}");
        }
        assert!(!Path::new(&file).exists());
    }

    // Lose a rank of another process
    #[test]
    fn a_process_that_dies_is_told_by_its_name() {
        const CHILD: &str = "LENSLET_RANK_TO_DIE";
        if let Ok(place) = env::var(CHILD) {
            let _met = Rendezvous::new(RankInfo::of_test([1, 3], &place)).unwrap();
            thread::sleep(Duration::from_secs(60));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("meet").display().to_string();
        let name = format!(
            "{}::a_process_that_dies_is_told_by_its_name",
            module_path!().split_once("::").unwrap().1
        );
        let mut child = process::Command::new(env::current_exe().unwrap());
        child.args(["--exact", &name]).env(CHILD, &place).stdout(process::Stdio::null());
        let mut child = child.spawn().unwrap();
        let rank_infos = [0, 2].map(|rank| RankInfo::of_test([rank, 3], &place));
        let [first, third] = thread::scope(|scope| {
            rank_infos
                .map(|rank_info| scope.spawn(|| Rendezvous::new(rank_info).unwrap()))
                .map(|it| it.join().unwrap())
        });
        assert!(first.lost().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        for rendezvous in [&first, &third] {
            let said = wait_for(|| rendezvous.lost());
            assert!(said.contains(&format!("process {}) was lost", child.id())), "{said}");
            assert!(said.contains("rank 1 ("), "{said}");
            assert!(rendezvous.share(None).is_err());
        }
    }

    // Refuse ranks that do not fit
    #[test]
    fn ranks_that_do_not_agree_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("meet").display().to_string();
        let of = |rank, ranks| RankInfo::of_test([rank, ranks], &place);
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| Rendezvous::new(of(0, 2)).map(drop));
            let second = scope.spawn(|| Rendezvous::new(of(1, 3)).map(drop));
            (first.join().unwrap(), second.join().unwrap())
        });
        let [first, second] = [first, second].map(|met| met.unwrap_err().to_string());
        assert!(first.contains("as rank 1 of 3, where 2 are to meet"), "{first}");
        assert!(second.contains("refused rank 1 ("), "{second}");
    }

    // Strangers that connect to a rendezvous
    #[test]
    fn strangers_are_dropped_and_the_rendezvous_goes_on() {
        let address = free_address();
        let place = address.clone();
        let first = thread::spawn(move || {
            Rendezvous::with(RankInfo::of_test([0, 2], &place), &options("a"))
        });
        let connect = || {
            let tries = (0..500).find_map(|_| {
                thread::sleep(Duration::from_millis(5));
                TcpStream::connect(&address).ok()
            });
            tries.unwrap()
        };
        let silent: Vec<TcpStream> = (0..300).map(|_| connect()).collect();
        #[cfg(target_os = "linux")]
        assert!(TcpStream::connect(address.replace("127.0.0.1", "127.0.0.2")).is_err());
        let endless = vec![b'x'; 1 << 20];
        let code = "0".repeat(64);
        let join = format!("join 1 2 0 {code} rank 1 (\u{1b}[31m, process 1)\n");
        let old = format!("{GREETING} open 1 2 rank 1 (node, process 1)\n");
        for bytes in [&endless[..], join.as_bytes(), old.as_bytes(), b"\xff\x1b]0;x\x07\n", b"\n"] {
            let _ = connect().write_all(bytes); // rank 0 may close it at once
        }
        let hasty = RendezvousOptions { patience: Duration::from_secs(1), ..options("b") };
        let error =
            Rendezvous::with(RankInfo::of_test([1, 2], &address), &hasty).unwrap_err().to_string();
        assert!(error.contains("secret") && error.contains(SECRET_VARIABLE), "{error}");
        let start = Instant::now();
        let second = Rendezvous::with(RankInfo::of_test([1, 2], &address), &options("a")).unwrap();
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        let first = first.join().unwrap().unwrap();
        first.share(Some(vec![1, 2])).unwrap();
        assert_eq!(second.share(None).unwrap(), [1, 2]);
        drop(silent);
    }

    // Deadlines of both ends
    #[test]
    fn silent_and_slow_connections_hold_neither_end() {
        let second = Duration::from_secs(1);
        let hasty = RendezvousOptions { patience: second, handshake: second / 4, ..options("a") };
        let place = free_address();
        let (start, rank_info, limits) =
            (Instant::now(), RankInfo::of_test([0, 2], &place), hasty.clone());
        let first = thread::spawn(move || Rendezvous::with(rank_info, &limits).map(drop));
        thread::sleep(second / 10);
        let (silent, slow) =
            (TcpStream::connect(&place).unwrap(), TcpStream::connect(&place).unwrap());
        while !first.is_finished() && start.elapsed() < 5 * second {
            let _ = (&slow).write_all(b"x"); // closed after its time
            thread::sleep(second / 20);
        }
        let error = first.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 1 did not come within 1 s to 127.0.0.1:"), "{error}");
        assert!(start.elapsed() < 2 * second);
        drop(silent);
        // False ranks 0
        let welcome = format!("{GREETING} 12\n{} welcome\n", "0".repeat(64));
        let refusal = format!("{GREETING} 12\nrefused \u{1b}[31mno\n");
        for (sent, expected) in [("", "no line"), (&welcome, "secret"), (&refusal, "secret")] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let place = listener.local_addr().unwrap().to_string();
            let sent = sent.to_string();
            thread::spawn(move || {
                let taken = listener.incoming().take(30).filter_map(Result::ok);
                let held = taken.inspect(|stream| drop((&*stream).write_all(sent.as_bytes())));
                held.collect::<Vec<_>>()
            });
            let start = Instant::now();
            let error = Rendezvous::with(RankInfo::of_test([1, 2], &place), &hasty)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("rank 0 was not found within 1 s") && error.contains(expected),
                "{error}"
            );
            assert!(!error.contains('\u{1b}') && start.elapsed() < 3 * second, "{error}");
        }
    }

    // What an admitted rank may send
    #[test]
    fn lines_of_an_admitted_rank_are_bounded_and_printable() {
        for (bytes, expected) in [
            (vec![b'x'; 1 << 20], "more than 4 KiB"),
            (b"lost a \x1b[31mred\x07 rank\n".to_vec(), r"a \u001b[31mred\u0007 rank"),
        ] {
            let place = free_address();
            let rank_info = RankInfo::of_test([0, 2], &place);
            let first = thread::spawn(move || Rendezvous::with(rank_info, &options("a")));
            let second = look_for_first(&RankInfo::of_test([1, 2], &place), &options("a")).unwrap();
            let first = first.join().unwrap().unwrap();
            let _ = second[0].1.stream().write_all(&bytes); // rank 0 closes it
            let said = wait_for(|| first.lost());
            assert!(said.contains(expected) && !said.contains('\u{1b}'), "{said}");
            assert!(first.share(Some(vec![0; 1 << 12])).is_err());
        }
    }

    // Secrets of a rendezvous
    #[test]
    fn the_usual_secret_is_made_once_and_shared() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config/lenslet/meet-secret");
        let usual = RendezvousOptions { secret: None, file: Some(file.clone()), ..options("") };
        for _ in 0..2 {
            let before = fs::read_to_string(&file).ok();
            let place = free_address();
            let (first, second) = thread::scope(|scope| {
                let of = |rank| (RankInfo::of_test([rank, 2], &place), usual.clone());
                let [first, second] = [of(0), of(1)].map(|(rank_info, options)| {
                    scope.spawn(move || Rendezvous::with(rank_info, &options).map(drop))
                });
                (first.join().unwrap(), second.join().unwrap())
            });
            first.and(second).unwrap();
            let made = read_private_file(&file).unwrap();
            assert!(made.trim().len() == 64 && before.is_none_or(|before| before == made));
        }
        // Secrets that cannot be used
        let hasty = |secret: Option<&str>, file: Option<&Path>| RendezvousOptions {
            patience: Duration::from_millis(200),
            handshake: Duration::from_millis(100),
            secret: secret.map(str::to_string),
            file: file.map(Path::to_path_buf),
        };
        let refused = |rank: usize, options: RendezvousOptions| {
            let place = free_address();
            Rendezvous::with(RankInfo::of_test([rank, 2], &place), &options)
                .unwrap_err()
                .to_string()
        };
        for rank in [0, 1] {
            assert!(refused(rank, hasty(Some(" "), None)).contains("LENSLET_MEET_SECRET is empty"));
            assert!(
                refused(rank, hasty(None, None))
                    .contains("no home folder: set LENSLET_MEET_SECRET")
            );
        }
        let absent = folder.path().join("absent");
        assert!(refused(1, hasty(None, Some(&absent))).contains("or copy its file"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            assert!(refused(0, hasty(None, Some(&file))).contains("its mode is 644"));
        }
    }
}
