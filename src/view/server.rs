//! The server of the viewer: pieces of files for a browser on the same machine.

// Imports of the server
use super::pattern_sums::Patterns;
use super::pieces::Pieces;
use super::request::{Asked, Guard, RangeAsked, Refusal, Request};
use crate::error::Error;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

// A server on this machine
/// A server of a page and of the pieces of files, for browsers on this machine alone.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    site: Arc<Site>,
}

/// What all connections share.
#[derive(Debug)]
struct Site {
    guard: Guard,
    page: Vec<u8>,
    files: Vec<Pieces>,
    connections: AtomicUsize,
    /// Sums that were computed, the latest last.
    sums: Mutex<VecDeque<(Asked, Arc<Vec<u8>>)>>,
    /// Held while sums are computed: they need all processors.
    computing: Mutex<()>,
    stop: AtomicBool,
}

// Limits of the server
/// Connections at a time, at most.
const MOST_CONNECTIONS: usize = 256;
/// How long a client may take for a request, for reading an answer, and until another request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(30);
const IDLE_TIME: Duration = Duration::from_secs(60);
/// Elements that are sent at a time.
const PIECE: usize = 1 << 18;
/// Bytes of sums that are kept.
const KEPT: usize = 256 << 20;

// Begin to listen
impl Server {
    /// Listens on a port of 127.0.0.1, which the system chooses where it is 0.
    ///
    /// # Errors
    /// `Failed` where the port is taken, or the system has no random numbers.
    pub fn new(port: u16, page: Vec<u8>, files: Vec<Pieces>) -> Result<Self, Error> {
        let failed = |reason: String| Error::Failed { what: "starting the server".into(), reason };
        let taken = |error| failed(format!("port {port} of 127.0.0.1 cannot be used: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(taken)?;
        let port = listener.local_addr().map_err(taken)?.port();
        let mut secret = [0_u8; 16];
        getrandom::fill(&mut secret).map_err(|error| failed(error.to_string()))?;
        let token = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let site = Site {
            guard: Guard { port, token },
            page,
            files,
            connections: AtomicUsize::new(0),
            sums: Mutex::default(),
            computing: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        Ok(Self { listener, site: Arc::new(site) })
    }

    /// The address of the page, with the secret.
    pub fn address(&self) -> String {
        let Guard { port, token } = &self.site.guard;
        format!("http://127.0.0.1:{port}/{token}/")
    }

    /// The files that are served.
    pub fn files(&self) -> &[Pieces] {
        &self.site.files
    }

    /// Ends the server at another thread's request.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.site))
    }
}

/// Ends a server.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Site>);

impl Stopper {
    /// Ends the server: no other connection is accepted, and computations stop.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        // The server waits for a connection.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.0.guard.port));
        drop(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
    }
}

// Accept connections
impl Server {
    /// Answers until it is [stopped](Stopper::stop); each connection has a thread.
    ///
    /// # Errors
    /// `Failed` where the system accepts no more connections.
    pub fn run(self) -> Result<(), Error> {
        let mut failures = 0;
        while !self.site.stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    failures = 0;
                    self.serve(stream);
                }
                // A client that has left, or no more open files for a while.
                Err(_) if failures < 1000 => {
                    failures += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => {
                    let what = "accepting connections".into();
                    return Err(Error::Failed { what, reason: error.to_string() });
                }
            }
        }
        Ok(())
    }

    /// Answers on a connection in a thread of its own, unless there are too many.
    fn serve(&self, stream: TcpStream) {
        let site = Arc::clone(&self.site);
        let open = Open::new(site);
        if open.0.connections.load(Ordering::Relaxed) > MOST_CONNECTIONS {
            let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
            let _ = answer_text(&stream, "503 Service Unavailable", "Too many connections.", false);
            return;
        }
        let thread = std::thread::Builder::new().name("viewer".into()).stack_size(1 << 19);
        // Where the system has no more threads, the connection is closed.
        let _ = thread.spawn(move || {
            let _ = open.0.converse(&stream);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

/// A connection that is counted as long as this lives.
struct Open(Arc<Site>);

impl Open {
    fn new(site: Arc<Site>) -> Self {
        site.connections.fetch_add(1, Ordering::Relaxed);
        Self(site)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

// Answer the requests of a connection
impl Site {
    /// Answers one request after another.
    fn converse(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER_TIME))?;
        let mut bytes = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            match self.next(stream, &mut bytes) {
                Ok(Some(request)) => {
                    self.answer(stream, &request)?;
                    if !request.keeps_alive {
                        break;
                    }
                }
                Ok(None) => break,
                Err(refusal) => {
                    let (status, sentence) = refusal.status();
                    answer_text(stream, status, sentence, false)?;
                    linger(stream);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The next request; `None` where the client has left, or takes too long.
    fn next(
        &self,
        mut stream: &TcpStream,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Request>, Refusal> {
        let mut until = Instant::now() + if bytes.is_empty() { IDLE_TIME } else { REQUEST_TIME };
        loop {
            if let Some((request, length)) = self.guard.parse(bytes)? {
                bytes.drain(..length);
                return Ok(Some(request));
            }
            let left = until.saturating_duration_since(Instant::now());
            let mut more = [0; 4096];
            if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
                return Ok(None);
            }
            match stream.read(&mut more) {
                Ok(0) => return Ok(None),
                Ok(read) => {
                    if bytes.is_empty() {
                        until = Instant::now() + REQUEST_TIME;
                    }
                    bytes.extend_from_slice(&more[..read]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Reads what a client still sends for a moment, so that it sees the answer before the end of the connection.
fn linger(mut stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let mut rest = [0; 4096];
    for _ in 0..64 {
        if !matches!(stream.read(&mut rest), Ok(1..)) {
            break;
        }
    }
}

// Heads of answers
/// What a page of the server may do: run what is inside it, and ask this server.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; \
     connect-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The head of an answer of so many bytes.
fn head(
    status: &str,
    (kind, length): (&str, u64),
    others: &[(&str, String)],
    keeps: bool,
) -> Vec<u8> {
    let policy = if kind.starts_with("text/html") { PAGE_POLICY } else { "default-src 'none'" };
    let connection = if keeps { "keep-alive" } else { "close" };
    let mut head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: {policy}\r\n"
    );
    for (name, value) in others {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    head.into_bytes()
}

/// Answers with a sentence.
fn answer_text(
    mut stream: &TcpStream,
    status: &str,
    sentence: &str,
    keeps: bool,
) -> io::Result<()> {
    let allowed = [("Allow", "GET, HEAD".to_string())];
    let others = if status.starts_with("405") { &allowed[..] } else { &[] };
    let text = format!("{sentence}\n");
    let mut bytes = head(status, ("text/plain; charset=utf-8", text.len() as u64), others, keeps);
    bytes.extend(text.into_bytes());
    stream.write_all(&bytes)
}

const HTML: &str = "text/html; charset=utf-8";
const BYTES: &str = "application/octet-stream";

// Answer one request
impl Site {
    fn answer(&self, mut stream: &TcpStream, request: &Request) -> io::Result<()> {
        let keeps = request.keeps_alive;
        match &request.asked {
            Asked::Page => self.whole(stream, request, HTML, &self.page),
            Asked::Data { file, variable } => self.data(stream, request, (*file, *variable)),
            Asked::Rings { .. } | Asked::Mean { .. } => match self.sums(stream, &request.asked) {
                Ok(sums) => self.whole(stream, request, BYTES, &sums),
                Err(Unanswered::Refused(refusal)) if request.head_only => {
                    stream.write_all(&head(refusal.status().0, (BYTES, 0), &[], keeps))
                }
                Err(Unanswered::Refused(refusal)) => {
                    let (status, sentence) = refusal.status();
                    answer_text(stream, status, sentence, keeps)
                }
                Err(Unanswered::Failed(error)) => answer_error(stream, &error),
            },
        }
    }

    /// Answers with bytes that are in memory.
    fn whole(
        &self,
        mut stream: &TcpStream,
        request: &Request,
        kind: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        stream.write_all(&head("200 OK", (kind, bytes.len() as u64), &[], request.keeps_alive))?;
        if request.head_only { Ok(()) } else { stream.write_all(bytes) }
    }
}

/// Answers that a file cannot be read, and ends the connection.
fn answer_error(stream: &TcpStream, error: &io::Error) -> io::Result<()> {
    let sentence = format!("The file cannot be read: {error}.");
    answer_text(stream, "500 Internal Server Error", &sentence, false)?;
    Err(ErrorKind::Other.into())
}

// Send elements of an array
impl Site {
    /// Sends the bytes of a variable that are asked for, piece by piece.
    fn data(
        &self,
        mut stream: &TcpStream,
        request: &Request,
        (file, variable): (usize, usize),
    ) -> io::Result<()> {
        let keeps = request.keeps_alive;
        let found = self.files.get(file).and_then(|file| Some((file, file.bytes(variable)?)));
        let Some((file, (each, all))) = found else {
            let (status, sentence) = Refusal::NotFound.status();
            return answer_text(
                stream,
                status,
                if request.head_only { "" } else { sentence },
                false,
            );
        };
        let accepts = ("Accept-Ranges", "bytes".to_string());
        let Some((first, count)) = request.range.within(all).or((all == 0).then_some((0, 0)))
        else {
            let ranges = [accepts, ("Content-Range", format!("bytes */{all}"))];
            return stream.write_all(&head(
                "416 Range Not Satisfiable",
                (BYTES, 0),
                &ranges,
                keeps,
            ));
        };
        let (status, mut others) = ("200 OK", vec![accepts]);
        let status = if request.range == RangeAsked::All { status } else { "206 Partial Content" };
        if request.range != RangeAsked::All {
            let last = (first + count).saturating_sub(1);
            others.push(("Content-Range", format!("bytes {first}-{last}/{all}")));
        }
        let head = head(status, (BYTES, count), &others, keeps);
        if request.head_only {
            return stream.write_all(&head);
        }
        // Send one piece after another
        let (mut at, end, mut unsent) = (first, first + count, Some(head));
        while at < end && !self.stop.load(Ordering::Relaxed) {
            let from = (at / each as u64) as usize;
            let to = (end.div_ceil(each as u64) as usize).min(from + PIECE);
            let piece = match (file.read(variable, from..to), unsent.is_some()) {
                (Ok(piece), _) => piece,
                (Err(error), true) => return answer_error(stream, &error),
                (Err(error), false) => return Err(error),
            };
            let skipped = (at - from as u64 * each as u64) as usize;
            let length = piece.len().saturating_sub(skipped).min((end - at) as usize);
            if let Some(head) = unsent.take() {
                stream.write_all(&head)?;
            }
            stream.write_all(&piece[skipped..skipped + length])?;
            at += length as u64;
        }
        Ok(())
    }
}

// Compute sums while the client waits
/// Why sums are not sent.
enum Unanswered {
    Refused(Refusal),
    Failed(io::Error),
}

/// The content of a lock; after a panic elsewhere it is as good as before.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Site {
    /// The sums that are asked for, kept from before or computed now; the computation stops when the client leaves.
    fn sums(&self, stream: &TcpStream, asked: &Asked) -> Result<Arc<Vec<u8>>, Unanswered> {
        if let Some(kept) = self.kept(asked) {
            return Ok(kept);
        }
        let gone = AtomicBool::new(false);
        let (sender, receiver) = channel();
        let computed = std::thread::scope(|scope| {
            let gone = &gone;
            scope.spawn(move || {
                let _one_at_a_time = locked(&self.computing);
                let sums =
                    self.kept(asked).map_or_else(|| self.compute(asked, gone).map(Arc::new), Ok);
                let _ = sender.send(sums);
            });
            loop {
                match receiver.recv_timeout(Duration::from_millis(100)) {
                    Ok(sums) => return sums,
                    Err(RecvTimeoutError::Timeout) => {
                        let left = has_left(stream) || self.stop.load(Ordering::Relaxed);
                        gone.fetch_or(left, Ordering::Relaxed);
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Unanswered::Failed(ErrorKind::Interrupted.into()));
                    }
                }
            }
        })?;
        self.keep(asked, &computed);
        Ok(computed)
    }

    // Compute sums over patterns
    fn compute(&self, asked: &Asked, stop: &AtomicBool) -> Result<Vec<u8>, Unanswered> {
        let refuse = |refusal| move || Unanswered::Refused(refusal);
        let patterns = |file: usize, variable, before: &[usize]| {
            let file = self.files.get(file).filter(|file| file.bytes(variable).is_some());
            let file = file.ok_or_else(refuse(Refusal::NotFound))?;
            Patterns::of(file, variable, before).ok_or_else(refuse(Refusal::BadRequest))
        };
        let sums = match asked {
            Asked::Rings { file, variable, before, centre } => {
                patterns(*file, *variable, before)?.ring_sums(*centre, stop)
            }
            Asked::Mean { file, variable, before, probes } => {
                patterns(*file, *variable, before)?.mean(probes, stop)
            }
            Asked::Page | Asked::Data { .. } => Ok(None),
        };
        sums.map_err(Unanswered::Failed)?.ok_or_else(refuse(Refusal::BadRequest))
    }
}

/// Whether a client has closed the connection.
fn has_left(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let left = match stream.peek(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).is_err() || left
}

// Keep sums that were computed
impl Site {
    fn kept(&self, asked: &Asked) -> Option<Arc<Vec<u8>>> {
        let mut kept = locked(&self.sums);
        let place = kept.iter().position(|(other, _)| other == asked)?;
        let found = kept.remove(place)?;
        let sums = Arc::clone(&found.1);
        kept.push_back(found);
        Some(sums)
    }

    /// Keeps sums, and forgets those that were not asked for for the longest time.
    fn keep(&self, asked: &Asked, sums: &Arc<Vec<u8>>) {
        if sums.len() > KEPT {
            return;
        }
        let mut kept = locked(&self.sums);
        kept.retain(|(other, _)| other != asked);
        kept.push_back((asked.clone(), Arc::clone(sums)));
        while kept.iter().map(|(_, sums)| sums.len()).sum::<usize>() > KEPT {
            kept.pop_front();
        }
    }
}
