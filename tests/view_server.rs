//! `lenslet view --serve` as a user runs it: a server in a process of its own, until Ctrl-C.

use lenslet::data::DataSet;
use lenslet::files::Format;
use lenslet::ndarray::Array;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer to a request of an address, with lines of its head.
fn get(address: &str, target: &str, lines: &str) -> String {
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "GET /{path}{target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[cfg(unix)]
#[test]
fn a_file_is_served_until_an_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stack.npy");
    let mut data = DataSet::default();
    data.add("stack", Array::from_shape_fn((3, 300, 200), |(i, j, k)| (i + j + k) as f64));
    data.save(&path, Format::Npy, None).unwrap();
    let mut command = crate::cli::with_all_signals();
    command.arg("view").arg(&path).args(["--serve", "--quiet"]).stdout(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut address = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim();
    let page = get(address, "", "");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains(r#""served":"0/0""#));
    let row = get(address, "data/0/0", "Range: bytes=8-15\r\n");
    assert!(row.starts_with("HTTP/1.1 206 Partial Content\r\n"), "{row}");
    assert!(get(address, "../", "").starts_with("HTTP/1.1 404 "));
    // Ctrl-C
    let id = running.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    assert!(!folder.path().join("stack.html").exists());
}

#[test]
fn what_cannot_be_served_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lenslet"))
            .arg("view")
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["absent.npz", "--serve"]).contains("absent.npz"));
    assert!(refused(&["Cargo.toml", "--serve"]).contains("Cargo.toml"));
    assert!(refused(&["a.npz", "--serve", "-o", "a.html"]).contains("--output"));
    assert!(refused(&["a.npz", "--port", "80"]).contains("--serve"));
    assert!(refused(&["a.npz", "--serve", "--port", "70000"]).contains("70000"));
}
