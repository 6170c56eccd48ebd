// Tangled from book/src/view-server.md: edit there, or here and run cargo tangle stitch.
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
/// A server of a page and of pieces of files, for browsers on this machine only.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    site: Arc<Site>,
}

/// State that all connections share.
#[derive(Debug)]
struct Site {
    guard: Guard,
    page: Vec<u8>,
    files: Vec<Pieces>,
    connections: AtomicUsize,
    /// Cache of computed sums, the most recently used last.
    sums: Mutex<VecDeque<(Asked, Arc<Vec<u8>>)>>,
    /// Held while sums are computed, because one computation uses all processors.
    computing: Mutex<()>,
    stop: AtomicBool,
}

// Limits of the server
/// Most connections at a time.
const MOST_CONNECTIONS: usize = 256;
/// Time limits for a request, for reading an answer, and until the next request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
const ANSWER_TIME: Duration = Duration::from_secs(30);
const IDLE_TIME: Duration = Duration::from_secs(60);
/// Elements that are sent at a time.
const PIECE: usize = 1 << 18;
/// Most bytes of sums in the cache.
const KEPT: usize = 256 << 20;

// Start and end of a server
// Begin to listen
impl Server {
    /// Listens on a port of 127.0.0.1; with 0, the operating system chooses one.
    ///
    /// # Errors
    /// `Failed` if the port is in use, or the operating system supplies no random numbers.
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

    /// Address of the page, with the secret.
    pub fn address(&self) -> String {
        let Guard { port, token } = &self.site.guard;
        format!("http://127.0.0.1:{port}/{token}/")
    }

    /// The files that are served.
    pub fn files(&self) -> &[Pieces] {
        &self.site.files
    }

    /// Handle with which another thread can stop the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.site))
    }
}

// End a server from outside
/// Handle that stops a server from another thread.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Site>);

impl Stopper {
    /// Stops the server: no further connection is accepted, and computations end.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        // The server is blocked until a connection arrives, so this makes one.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.0.guard.port));
        drop(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
    }
}

// Connections of a server
// Accept connections on a port
impl Server {
    /// Answers requests until the server is [stopped](Stopper::stop), with one thread per connection.
    ///
    /// # Errors
    /// `Failed` if 1000 successive attempts to accept a connection fail.
    pub fn run(self) -> Result<(), Error> {
        let mut failures = 0;
        while !self.site.stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    failures = 0;
                    self.serve(stream);
                }
                // The client has disconnected, or too many files are open.
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

    // Give a connection its thread
    /// Answers the requests of a connection in its own thread, unless there are too many connections.
    fn serve(&self, stream: TcpStream) {
        let site = Arc::clone(&self.site);
        let open = Open::new(site);
        if open.0.connections.load(Ordering::Relaxed) > MOST_CONNECTIONS {
            let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
            let _ = answer_text(&stream, "503 Service Unavailable", "Too many connections.", false);
            return;
        }
        let thread = std::thread::Builder::new().name("viewer".into()).stack_size(1 << 19);
        // If no thread can be started, the connection is closed.
        let _ = thread.spawn(move || {
            let _ = open.0.converse(&stream);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

// Count open connections
/// An open connection, counted until this value is dropped.
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

    // Wait for the next request
    /// Next request; `None` if the client has disconnected or takes too long.
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

// End a refused connection
/// Reads a client's remaining bytes for a moment, so that it receives the answer before the connection is closed.
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

// Answers of a server
// Heads of answers
/// Content security policy of a served page: it runs its own scripts and connects to this server only.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; \
     connect-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Head of an answer of `length` bytes.
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

// Answer with a sentence
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
    fn answer(&self, stream: &TcpStream, request: &Request) -> io::Result<()> {
        match &request.asked {
            Asked::Page => self.whole(stream, request, HTML, &self.page),
            Asked::Data { file, variable } => self.data(stream, request, (*file, *variable)),
            Asked::Rings { .. } | Asked::Mean { .. } => match self.sums(stream, &request.asked) {
                Ok(sums) => self.whole(stream, request, BYTES, &sums),
                Err(Unanswered::Refused(refusal)) => refuse(stream, request, refusal),
                Err(Unanswered::Failed(error)) => answer_error(stream, &error),
            },
        }
    }

    // Answer with bytes in memory
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

/// Sends a refusal, and keeps the connection open if the client requested that.
fn refuse(mut stream: &TcpStream, request: &Request, refusal: Refusal) -> io::Result<()> {
    let (status, sentence) = refusal.status();
    match request.head_only {
        true => stream.write_all(&head(status, (BYTES, 0), &[], request.keeps_alive)),
        false => answer_text(stream, status, sentence, request.keeps_alive),
    }
}

/// Reports that a file cannot be read, and closes the connection.
fn answer_error(stream: &TcpStream, error: &io::Error) -> io::Result<()> {
    let sentence = format!("The file cannot be read: {error}.");
    answer_text(stream, "500 Internal Server Error", &sentence, false)?;
    Err(ErrorKind::Other.into())
}

// Send elements of an array
impl Site {
    /// Sends the requested bytes of a variable, piece by piece.
    fn data(
        &self,
        mut stream: &TcpStream,
        request: &Request,
        (file, variable): (usize, usize),
    ) -> io::Result<()> {
        let keeps = request.keeps_alive;
        let found = self.files.get(file).and_then(|file| Some((file, file.bytes(variable)?)));
        let Some((file, (each, all))) = found else {
            return refuse(stream, request, Refusal::NotFound);
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

// Sums that a server computes
// Sums that cannot be sent
/// Reason why sums are not sent.
enum Unanswered {
    Refused(Refusal),
    Failed(io::Error),
}

/// Contents of a lock, even after another thread panicked while it held the lock: the data remain valid.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

// Compute while the client is there
impl Site {
    /// Requested sums, from the cache or computed now; the computation stops when the client disconnects.
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

// Notice that a client left
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

    /// Adds sums to the cache, and discards the least recently used ones.
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

// Tests of the server
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Coordinate, DataSet, Variable};
    use crate::files::Format;
    use crate::view::Page;
    use ndarray::{Array1, Array4};
    use std::path::Path;

    // A server of patterns
    /// Shape of the patterns; `value` gives each element.
    const SHAPE: (usize, usize, usize, usize) = (7, 9, 64, 66);

    fn value((i, j, k, l): (usize, usize, usize, usize)) -> f32 {
        (1000 * i + 100 * j) as f32 + k as f32 / 8.0 + l as f32 / 1024.0
    }

    fn save(path: &Path) {
        let q = |name, step| Coordinate::signal(name, "1/Å", -1.0, step).unwrap();
        let at = |name| Coordinate::navigation(name, "Å", 0.0, 0.5).unwrap();
        let axes = vec![at("x"), at("y"), q("qx", 0.25), q("qy", 0.5)];
        let mut data = DataSet::default();
        data.insert(Variable::new("four_d", Array4::from_shape_fn(SHAPE, value), axes).unwrap())
            .unwrap();
        data.add("small", Array1::from(vec![1.0, 2.0]));
        data.add_text("system", "</script><script>alert(1)</script>");
        data.save(path, Format::Npz, None).unwrap();
    }

    // A server in a thread
    /// A server in a thread, which is stopped when this value is dropped.
    struct Running {
        port: u16,
        path: String,
        stopper: Stopper,
        thread: Option<std::thread::JoinHandle<Result<(), Error>>>,
        folder: tempfile::TempDir,
    }

    impl Running {
        fn start() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.npz");
            save(&path);
            let files = vec![Pieces::open(&path).unwrap()];
            let page = Page::served(&files).unwrap().to_html().into_bytes();
            let server = Server::new(0, page, files).unwrap();
            let (address, stopper) = (server.address(), server.stopper());
            let rest = address.strip_prefix("http://127.0.0.1:").unwrap();
            let (port, path) = rest.split_once('/').unwrap();
            let (port, path) = (port.parse().unwrap(), format!("/{path}"));
            let thread = Some(std::thread::spawn(move || server.run()));
            Self { port, path, stopper, thread, folder }
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream
        }

        // Ask the server
        /// Head and body of the answer to a request.
        fn ask(&self, text: &str) -> (String, Vec<u8>) {
            let mut stream = self.connect();
            stream.write_all(text.as_bytes()).unwrap();
            answer(&mut stream)
        }

        fn get(&self, target: &str, lines: &str) -> (String, Vec<u8>) {
            let (path, port) = (&self.path, self.port);
            self.ask(&format!(
                "GET {path}{target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{lines}\r\n"
            ))
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.stopper.stop();
            let ended = self.thread.take().map(std::thread::JoinHandle::join);
            assert!(matches!(ended, Some(Ok(Ok(())))));
        }
    }

    // Read an answer with its body
    /// Reads one answer with a body.
    fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
        let (mut bytes, mut more) = (Vec::new(), [0; 4096]);
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            let read = stream.read(&mut more).unwrap();
            assert!(read > 0, "the answer ends in its head: {:?}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&more[..read]);
        };
        let mut body = bytes.split_off(end);
        let head = String::from_utf8(bytes).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.unwrap().parse().unwrap();
        while body.len() < length {
            let read = stream.read(&mut more).unwrap();
            assert!(read > 0, "the body ends after {} of {length} bytes", body.len());
            body.extend_from_slice(&more[..read]);
        }
        (head, body)
    }

    fn singles(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    // The page and pieces of it
    #[test]
    fn the_page_and_pieces_are_served() {
        let server = Running::start();
        let (head, page) = server.get("", "");
        let page = String::from_utf8(page).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"));
        for line in [
            "Cache-Control: no-store",
            "Referrer-Policy: no-referrer",
            "X-Content-Type-Options: nosniff",
            "Connection: keep-alive",
        ] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
        }
        assert!(head.contains("connect-src 'self'") && head.contains("frame-ancestors 'none'"));
        assert!(!head.to_ascii_lowercase().contains("access-control"));
        assert!(page.contains(r#""server":"""#) && page.contains(r#""served":"0/0""#), "{page}");
        assert!(page.contains("connect-src 'self'") && !page.contains("<script>alert"));
        let (head, row) = server.get("data/0/0", "Range: bytes=264-527\r\n");
        let all = 4 * 7 * 9 * 64 * 66;
        assert!(head.starts_with("HTTP/1.1 206 Partial Content\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Range: bytes 264-527/{all}\r\n")), "{head}");
        assert_eq!(singles(&row), (0..66).map(|l| value((0, 0, 1, l))).collect::<Vec<_>>());
        // Pieces that begin within an element
        let (_, odd) = server.get("data/0/0", "Range: bytes=265-270\r\n");
        assert_eq!(odd, row[1..7]);
        let (head, last) = server.get("data/0/0", "Range: bytes=-4\r\n");
        assert!(head.contains(&format!("bytes {}-{}/{all}", all - 4, all - 1)));
        assert_eq!(singles(&last), [value((6, 8, 63, 65))]);
        let (head, whole) = server.get("data/0/0", "");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && whole.len() == all);
        assert_eq!(singles(&whole)[4 * 64 * 66 + 70], value((0, 4, 1, 4)));
        for range in ["bytes=5-2", "bytes=0-1,4-5", &format!("bytes={all}-")] {
            let (head, body) = server.get("data/0/0", &format!("Range: {range}\r\n"));
            assert!(head.starts_with("HTTP/1.1 416 ") && body.is_empty(), "{head}");
            assert!(head.contains(&format!("\r\nContent-Range: bytes */{all}\r\n")), "{head}");
        }
        let (head, _) =
            server.get("data/0/0", "Range: bytes=0-99999999999999\r\nConnection: close\r\n");
        assert!(
            head.contains(&format!("bytes 0-{}/{all}", all - 1))
                && head.contains("Connection: close")
        );
    }

    // Sums of patterns that are served
    #[test]
    fn rings_and_means_are_sums_over_patterns() {
        let server = Running::start();
        let (head, rings) = server.get("rings/0/0?cx=4&cy=2.5&prefix=", "");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let ring = |k: usize, l: usize| {
            let [x, y] = [(k as f64 - 4.0) * 0.25, (l as f64 - 2.5) * 0.5];
            ((x * x + y * y).sqrt() / 0.5 + 1e-9) as usize
        };
        let count = 1 + (0..64).flat_map(|k| (0..66).map(move |l| ring(k, l))).max().unwrap();
        let rings = singles(&rings);
        assert_eq!(rings.len(), 7 * 9 * count);
        for (i, j) in [(0, 0), (3, 8), (6, 1)] {
            let mut sums = vec![0.0; count];
            for (k, l) in (0..64).flat_map(|k| (0..66).map(move |l| (k, l))) {
                sums[ring(k, l)] += f64::from(value((i, j, k, l)));
            }
            let sums: Vec<f32> = sums.iter().map(|sum| *sum as f32).collect();
            assert_eq!(rings[(9 * i + j) * count..(9 * i + j + 1) * count], sums);
        }
        // Means over probes 3 and 4 and 9
        let (_, mean) = server.get("mean/0/0?prefix=&probes=GAI", "");
        let of = |k, l| [(0, 3), (0, 4), (1, 0)].map(|(i, j)| f64::from(value((i, j, k, l))));
        let expected = |k, l| (of(k, l).iter().sum::<f64>() / 3.0) as f32;
        let places = (0..64).flat_map(|k| (0..66).map(move |l| (k, l)));
        assert_eq!(singles(&mean), places.map(|(k, l)| expected(k, l)).collect::<Vec<_>>());
        let (again, same) = server.get("mean/0/0?prefix=&probes=GAI", "");
        assert!(again.starts_with("HTTP/1.1 200") && same == mean);
        for bad in [
            "mean/0/0?probes=AA",
            "mean/0/0?probes=GAI&prefix=0",
            "rings/0/0?cx=1e9&cy=0",
            "rings/0/0?cx=1&cy=1&prefix=1.1",
        ] {
            assert!(server.get(bad, "").0.starts_with("HTTP/1.1 400 "), "{bad}");
        }
        for nowhere in ["rings/0/1?cx=1&cy=1", "mean/1/0?probes=GAI", "data/0/1", "data/9/0"] {
            assert!(server.get(nowhere, "").0.starts_with("HTTP/1.1 404 "), "{nowhere}");
        }
    }

    // Clients that are hostile or slow
    #[test]
    fn hostile_requests_are_refused_and_the_server_goes_on() {
        let server = Running::start();
        let (port, path) = (server.port, server.path.clone());
        let own = format!("Host: 127.0.0.1:{port}\r\n");
        let get = format!("GET {path} HTTP/1.1\r\n");
        for (text, status) in [
            (format!("GET / HTTP/1.1\r\n{own}\r\n"), "404"),
            (format!("GET /0123456789abcdef0123456789abcdef/ HTTP/1.1\r\n{own}\r\n"), "404"),
            (format!("GET {path}../../etc/passwd HTTP/1.1\r\n{own}\r\n"), "404"),
            (format!("{get}\r\n"), "400"),
            (format!("{get}Host: evil.example:{port}\r\n\r\n"), "403"),
            (format!("POST {path} HTTP/1.1\r\n{own}Content-Length: 3\r\n\r\nabc"), "405"),
            (format!("{get}{own}A: {}\r\n\r\n", "b".repeat(40_000)), "431"),
            ("\u{16}\u{3}\u{1}\u{2}\0\r\n\r\n".into(), "400"),
            (format!("GET {path} HTTP/3.0\r\n{own}\r\n"), "505"),
        ] {
            let (head, body) = server.ask(&text);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{text:.80}: {head}");
            assert!(head.contains("\r\nConnection: close\r\n") && body.ends_with(b".\n"));
            assert!(!String::from_utf8_lossy(&body).contains(&path));
        }
        // Requests in pieces and without an end
        let mut slow = server.connect();
        let text = format!(
            "HEAD {path} HTTP/1.1\r\n{own}\r\nGET {path}data/0/0 HTTP/1.1\r\n{own}Range: bytes=0-3\r\n\r\n"
        );
        for part in text.as_bytes().chunks(7) {
            slow.write_all(part).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut both = Vec::new();
        while both.windows(4).filter(|four| four == b"\r\n\r\n").count() < 2 {
            let mut byte = [0];
            assert_eq!(slow.read(&mut byte).unwrap(), 1);
            both.extend(byte);
        }
        let mut number = [1; 4];
        slow.read_exact(&mut number).unwrap();
        let heads = String::from_utf8(both).unwrap();
        assert!(
            heads.starts_with("HTTP/1.1 200 OK\r\n") && heads.contains("\r\n\r\nHTTP/1.1 206 "),
            "{heads}"
        );
        assert_eq!(number, value((0, 0, 0, 0)).to_le_bytes());
        let mut half = server.connect();
        half.write_all(get.as_bytes()).unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        assert_eq!(half.read(&mut [0; 9]).unwrap(), 0);
        // Two hundred clients at a time
        let all: Vec<_> = (0..200).map(|_| server.connect()).collect();
        std::thread::scope(|scope| {
            for mut stream in all {
                let text =
                    format!("GET {path}data/0/0 HTTP/1.1\r\n{own}Range: bytes=264-267\r\n\r\n");
                scope.spawn(move || {
                    stream.write_all(text.as_bytes()).unwrap();
                    let (head, body) = answer(&mut stream);
                    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
                    assert_eq!(singles(&body), [value((0, 0, 1, 0))]);
                });
            }
        });
        assert!(server.get("", "").0.starts_with("HTTP/1.1 200 "));
    }

    // Files that change while they are served
    #[test]
    fn files_that_change_are_reported_to_the_client() {
        let server = Running::start();
        assert!(server.get("rings/0/0?cx=0&cy=0", "").0.starts_with("HTTP/1.1 200 "));
        let path = server.folder.path().join("a.npz");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(3000).unwrap();
        for target in ["data/0/0", "rings/0/0?cx=1&cy=0", "mean/0/0?probes=GAI"] {
            let (head, body) = server.get(target, "Range: bytes=0-3\r\n");
            assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
            assert!(
                String::from_utf8_lossy(&body).contains("the file was changed after it was opened")
            );
        }
        assert!(server.get("", "").0.starts_with("HTTP/1.1 200 "));
    }

    // Locks of a thread that panicked
    #[test]
    fn a_poisoned_lock_does_not_end_the_server() {
        let server = Running::start();
        let site = Arc::clone(&server.stopper.0);
        let poisoned = std::thread::spawn(move || {
            let _held = (site.sums.lock(), site.computing.lock());
            panic!("while it holds the locks");
        });
        assert!(poisoned.join().is_err() && server.stopper.0.sums.is_poisoned());
        assert!(server.get("rings/0/0?cx=0&cy=0", "").0.starts_with("HTTP/1.1 200 "));
    }

    // A client that leaves
    #[test]
    fn a_client_that_leaves_is_noticed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert!(!has_left(&stream));
        drop(client);
        let until = Instant::now() + Duration::from_secs(10);
        while !has_left(&stream) {
            assert!(Instant::now() < until);
        }
        let file_is_open = |stop: bool| {
            let folder = tempfile::tempdir().unwrap();
            save(&folder.path().join("a.npz"));
            let file = Pieces::open(&folder.path().join("a.npz")).unwrap();
            let patterns = Patterns::of(&file, 0, &[]).unwrap();
            patterns.ring_sums([0.0, 0.0], &AtomicBool::new(stop)).map(|sums| sums.is_some())
        };
        assert!(file_is_open(false).unwrap());
        assert_eq!(file_is_open(true).unwrap_err().kind(), ErrorKind::Interrupted);
    }

    // Sums that are kept
    #[test]
    fn the_oldest_sums_are_forgotten() {
        let server = Running::start();
        let site = &server.stopper.0;
        let asked = |file| Asked::Data { file, variable: 0 };
        for file in 0..5 {
            site.keep(&asked(file), &Arc::new(vec![0; KEPT / 4]));
            assert!(site.kept(&asked(0)).is_some());
        }
        assert!(site.kept(&asked(1)).is_none() && site.kept(&asked(4)).is_some());
        site.keep(&asked(9), &Arc::new(vec![0; KEPT + 1]));
        assert!(site.kept(&asked(9)).is_none());
    }
}
