// Tangled from book/src/authentication.md: edit there, or here and run cargo tangle stitch.
//! The secret that the ranks of a rendezvous share, the codes that prove it, and lines of text with deadlines.

// What authentication depends on
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;
use std::{fmt, fs};

// Secret and its codes
/// A secret, as bytes; it is never printed.
#[derive(Clone)]
pub(super) struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The secret of a text, without space around it; none where nothing remains.
    pub(super) fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.as_bytes().to_vec()))
    }

    // Keyed hash of some parts
    /// The hash of some parts under this secret.
    fn hash(&self, parts: &[&str]) -> io::Result<Hmac<Sha256>> {
        let hash = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut hash = hash.map_err(|error| io::Error::other(error.to_string()))?;
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Ok(hash)
    }

    /// The code that proves this secret for some parts, as hexadecimal digits.
    pub(super) fn code(&self, parts: &[&str]) -> io::Result<String> {
        Ok(hexadecimal(&self.hash(parts)?.finalize().into_bytes()))
    }

    /// Whether a code is that of some parts; compared in constant time.
    pub(super) fn verify(&self, parts: &[&str], code: &str) -> bool {
        let digits =
            |k: usize| code.get(k..k + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..code.len()).step_by(2).map(digits).collect();
        let hash = self.hash(parts).ok().zip(bytes);
        hash.is_some_and(|(hash, bytes)| hash.verify_slice(&bytes).is_ok())
    }
}

// Random texts of the system
/// 256 random bits of the operating system, as hexadecimal digits: a challenge, or a new secret.
pub(super) fn random_text() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hexadecimal(&bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// Files that only their user reads
/// The text of a file that only its user can read; of at most 4 KiB.
pub(super) fn read_private_file(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let file = fs::File::open(path)?;
    // Refuse files of others
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o777;
            let reason = format!("others can read it, its mode is {mode:o}: make it 600 by chmod");
            return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
        }
        let own = fs::metadata("/proc/self").map_or(metadata.uid(), |own| own.uid());
        if metadata.uid() != own {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user"));
        }
    }
    let mut text = String::new();
    file.take(LONGEST_LINE as u64).read_to_string(&mut text)?;
    Ok(text)
}

// Write a private file
/// Writes a text to a file that only its user can read, in place of another one if it `replaces`.
pub(super) fn write_private_file(path: &Path, text: &str, replaces: bool) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut draft = tempfile::Builder::new().prefix(".lenslet-").tempfile_in(folder)?;
    draft.write_all(text.as_bytes())?;
    let written = match replaces {
        true => draft.persist(path),
        false => draft.persist_noclobber(path),
    };
    written.map(drop).map_err(io::Error::from)
}

// Lines with a length and a deadline
/// Bytes of a line at most, with the line break.
pub(super) const LONGEST_LINE: usize = 4096;

/// Lines of text from a connection.
#[derive(Debug)]
pub(super) struct LineReader {
    stream: TcpStream,
    /// Received, and not yet taken as a line.
    bytes: Vec<u8>,
}

impl LineReader {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// The connection.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    // Take or receive part of a line
    /// The next line of what was received, if that has a whole one.
    fn take(&mut self) -> io::Result<Option<String>> {
        match self.bytes.iter().position(|&byte| byte == b'\n') {
            Some(end) if end < LONGEST_LINE => {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                Ok(Some(String::from_utf8_lossy(&line).trim_end().to_string()))
            }
            None if self.bytes.len() < LONGEST_LINE => Ok(None),
            _ => Err(io::Error::new(ErrorKind::InvalidData, "it sent more than 4 KiB in a line")),
        }
    }

    // Receive once from a connection
    /// Receives once; false where nothing comes now.
    fn receive(&mut self) -> io::Result<bool> {
        let mut part = [0; 1024];
        match self.stream.read(&mut part) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "its connection ended")),
            Ok(received) => {
                self.bytes.extend_from_slice(&part[..received]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    // Wait for a line or poll it
    /// The next line, which must be whole before a time.
    pub(super) fn next(&mut self, until: Instant) -> io::Result<String> {
        let start = Instant::now();
        loop {
            if let Some(line) = self.take()? {
                return Ok(line);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited = start.elapsed().as_secs_f64();
                let reason = format!("it sent no line for {waited:.0} s");
                return Err(io::Error::new(ErrorKind::TimedOut, reason));
            }
            self.stream.set_read_timeout(Some(left))?;
            self.receive()?;
        }
    }

    // Poll a connection for a line
    /// The next line of a connection that does not wait, if a whole one has come.
    pub(super) fn poll(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(line) = self.take()? {
                return Ok(Some(line));
            }
            if !self.receive()? {
                return Ok(None);
            }
        }
    }
}

// Tests of secrets and lines
#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    // Codes depend on every part
    #[test]
    fn codes_depend_on_secret_and_parts() {
        let [one, other] = ["one", "other"].map(|text| Secret::of(text).unwrap());
        assert!(Secret::of(" \n").is_none());
        let code = one.code(&["a", "bc"]).unwrap();
        assert_eq!(code.len(), 64);
        assert!(
            one.verify(&["a", "bc"], &code)
                && Secret::of("one\n").unwrap().verify(&["a", "bc"], &code)
        );
        assert!(!other.verify(&["a", "bc"], &code) && !one.verify(&["ab", "c"], &code));
        for wrong in
            ["", "é", "0", &code[..62], &format!("{code}00"), &code.replace(&code[..1], "z")]
        {
            assert!(!one.verify(&["a", "bc"], wrong), "{wrong}");
        }
        assert_ne!(random_text().unwrap(), random_text().unwrap());
        assert_eq!(format!("{one:?}"), "Secret");
    }

    // Private files are private
    #[cfg(unix)]
    #[test]
    fn files_of_secrets_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        write_private_file(&file, "first", false).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(write_private_file(&file, "second", false).is_err());
        assert_eq!(read_private_file(&file).unwrap(), "first");
        write_private_file(&file, &"x".repeat(9000), true).unwrap();
        assert_eq!(read_private_file(&file).unwrap().len(), LONGEST_LINE);
        for mode in [0o640, 0o604, 0o666] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let error = read_private_file(&file).unwrap_err().to_string();
            assert!(error.contains(&format!("mode is {mode:o}")), "{error}");
        }
        assert!(
            read_private_file(folder.path()).is_err()
                && folder.path().read_dir().unwrap().count() == 1
        );
    }

    // Lines end in time and length
    #[test]
    fn lines_are_bounded_in_length_and_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut lines = LineReader::new(listener.accept().unwrap().0);
        let soon = || Instant::now() + Duration::from_millis(300);
        far.write_all(b"one\r\ntwo\nth").unwrap();
        assert_eq!([lines.next(soon()).unwrap(), lines.next(soon()).unwrap()], ["one", "two"]);
        let (dripping, start) = (far.try_clone().unwrap(), Instant::now());
        let drip = std::thread::spawn(move || {
            let each = |_: &u8| {
                std::thread::sleep(Duration::from_millis(50));
                (&dripping).write_all(b"x").is_ok()
            };
            (0..40).take_while(each).count()
        });
        let error = lines.next(soon()).unwrap_err();
        assert!(error.kind() == ErrorKind::TimedOut && start.elapsed() < Duration::from_secs(1));
        drip.join().unwrap();
        far.write_all(&[b'x'; 2 * LONGEST_LINE]).unwrap();
        let error = lines.next(soon()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(lines.bytes.capacity() < 3 * LONGEST_LINE);
    }
}
