//! `cargo book --serve`: the book on 127.0.0.1, rendered anew when something changes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use super::build::{Options, build, summary};
use super::error::{BookError, explain};
use super::figures;
use crate::error::Error;

/// What the book is made of, relative to the repository.
const WATCHED: [&str; 7] = [
    "book/src",
    "book/theme",
    "book/katex",
    "book/examples",
    "book/book.toml",
    "book/references.toml",
    "src",
];
/// Where a page asks for the number of the rendering.
const VERSION: &str = "/.version";
/// The longest request line and header that is read.
const LONGEST: u64 = 16 * 1024;

/// Renders the book, serves it until the process is ended, and renders again after each change. A
/// rendering that fails is reported; the last good pages stay.
///
/// # Errors
///
/// [`BookError::Serve`] if no port can be had, and those of the first rendering.
pub fn serve(root: &Path, options: &Options) -> Result<(), BookError> {
    let report = build(root, !options.keep_figures)?;
    println!("{}", summary(&report));
    let listener = listen(options.port).map_err(BookError::Serve)?;
    let address = format!("http://{}/", listener.local_addr().map_err(BookError::Serve)?);
    println!("serving on {address} (end with Ctrl-C)");
    if options.open {
        open_browser(&address)?;
    }
    let site = Site { folder: report.folder, pages: RwLock::new(()), version: AtomicUsize::new(1) };
    thread::scope(|scope| {
        scope.spawn(|| watch(root, options, &site));
        for stream in listener.incoming().flatten() {
            scope.spawn(|| site.answer(stream));
        }
    });
    Ok(())
}

/// Opens an address or a file in the system's browser.
pub fn open_browser(address: &str) -> Result<(), BookError> {
    open::that_detached(address).map_err(Error::run("the browser"))?;
    Ok(())
}

fn listen(port: Option<u16>) -> io::Result<TcpListener> {
    let host = Ipv4Addr::LOCALHOST;
    match port {
        Some(port) => TcpListener::bind((host, port)),
        None => (3000..3010)
            .find_map(|port| TcpListener::bind((host, port)).ok())
            .map_or_else(|| TcpListener::bind((host, 0)), Ok),
    }
}

/// Looks at the sources twice a second, and renders when one has changed.
fn watch(root: &Path, options: &Options, site: &Site) {
    let mut before = times(root);
    loop {
        thread::sleep(Duration::from_millis(500));
        let now = times(root);
        if now == before {
            continue;
        }
        let draw = !options.keep_figures && program(root, &now).ne(program(root, &before));
        before = now;
        let outcome = match site.pages.write() {
            Ok(_guard) => build(root, draw),
            Err(_) => return,
        };
        match outcome {
            Ok(report) => {
                println!("{}", summary(&report));
                site.version.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => eprintln!("{}", explain(&error)),
        }
    }
}

type Times = BTreeMap<PathBuf, SystemTime>;

/// Those of the sources that the figures depend on.
fn program<'a>(
    root: &Path,
    times: &'a Times,
) -> impl Iterator<Item = (&'a PathBuf, &'a SystemTime)> {
    let folders = [root.join("book/examples"), root.join("src")];
    times.iter().filter(move |(path, _)| folders.iter().any(|folder| path.starts_with(folder)))
}

/// When each source was last written. Figures are left out: rendering writes them.
fn times(root: &Path) -> Times {
    let mut times = BTreeMap::new();
    let mut places: Vec<PathBuf> = WATCHED.iter().map(|place| root.join(place)).collect();
    let figures = root.join(figures::FOLDER);
    while let Some(place) = places.pop() {
        let Ok(metadata) = fs::symlink_metadata(&place) else { continue };
        if metadata.is_dir() && place != figures {
            let entries = fs::read_dir(&place).into_iter().flatten().flatten();
            places.extend(entries.map(|entry| entry.path()));
        } else if let (true, Ok(time)) = (metadata.is_file(), metadata.modified()) {
            times.insert(place, time);
        }
    }
    times
}

/// The rendered book as it is served.
pub struct Site {
    /// The folder of the pages.
    pub folder: PathBuf,
    /// Held while pages are written.
    pub pages: RwLock<()>,
    /// Counts the renderings, so that pages know when to load again.
    pub version: AtomicUsize,
}

/// What a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status line after the protocol.
    pub status: &'static str,
    /// Content type.
    pub kind: &'static str,
    /// Content.
    pub body: Vec<u8>,
}

impl Site {
    fn answer(&self, mut stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = stream.set_write_timeout(Some(Duration::from_secs(30)));
        let Ok((method, target)) = request(&stream) else { return };
        let answer = self.respond(&method, &target);
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            answer.status,
            answer.kind,
            answer.body.len()
        );
        let body = if method == "HEAD" { &[][..] } else { &answer.body };
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    }

    /// The answer to a request: only `GET` and `HEAD`, only files below the folder.
    pub fn respond(&self, method: &str, target: &str) -> Answer {
        if method != "GET" && method != "HEAD" {
            return plain("405 Method Not Allowed", "only GET and HEAD");
        }
        let path = target.split(['?', '#']).next().unwrap_or("");
        if path == VERSION {
            return plain("200 OK", &self.version.load(Ordering::Relaxed).to_string());
        }
        let Some(file) = self.file(path) else { return plain("404 Not Found", "no such page") };
        let Ok(_guard) = self.pages.read() else { return plain("500 Internal Server Error", "") };
        let Ok(mut body) = fs::read(&file) else { return plain("404 Not Found", "no such page") };
        let kind = kind_of(&file);
        if kind.starts_with("text/html") {
            body.extend_from_slice(RELOAD.as_bytes());
        }
        Answer { status: "200 OK", kind, body }
    }

    /// The file for a path of a request, if it is a plain one that stays below the folder.
    fn file(&self, path: &str) -> Option<PathBuf> {
        let decoded = decode(path.strip_prefix('/')?)?;
        let relative = Path::new(&decoded);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || decoded.contains(['\\', ':', '\0']) {
            return None;
        }
        let mut file = self.folder.join(relative);
        if file.is_dir() {
            file.push("index.html");
        }
        let (file, folder) = (file.canonicalize().ok()?, self.folder.canonicalize().ok()?);
        file.starts_with(folder).then_some(file)
    }
}

/// Loads a page again when the book has been rendered anew.
const RELOAD: &str = "<script>(() => { let seen; setInterval(async () => { try { \
    const now = await (await fetch('/.version')).text(); \
    if (seen && seen !== now) location.reload(); seen = now; } catch (e) {} }, 1000); })();\
    </script>";

fn plain(status: &'static str, text: &str) -> Answer {
    Answer { status, kind: "text/plain; charset=utf-8", body: text.as_bytes().to_vec() }
}

/// Method and target of a request; its headers are read and dropped.
fn request(stream: &TcpStream) -> io::Result<(String, String)> {
    let mut reader = BufReader::new(io::Read::take(stream, LONGEST));
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
        line.clear();
    }
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    Ok((method.to_string(), target.to_string()))
}

/// Undoes `%20`; `None` for what is not UTF-8 afterwards.
fn decode(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

fn kind_of(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()).unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "txt" | "toml" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
