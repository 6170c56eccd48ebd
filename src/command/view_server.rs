// Tangled from book/src/view-server-command.md: edit there, or here and run cargo tangle stitch.
//! The command `view --serve`: a page whose large arrays are read in pieces.

// Imports of the served view
use super::summary::{Outcome, align, count};
use super::view::{ViewArgs, open_page};
use super::watch::{complain, is_interrupted};
use crate::error::{Error, escaped, in_bytes};
use crate::view::{Page, Pieces, Server};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

// Serve files until an interrupt
/// Serves the files that the arguments name, until Ctrl-C.
pub(super) fn serve(args: &ViewArgs) -> Result<Outcome, Error> {
    let files = args.files.iter().map(|path| Pieces::open(path));
    let files = files.collect::<Result<Vec<_>, Error>>()?;
    if args.report.plan {
        return Ok(args.report.summary(|| json(&files, None), || lines(&files, None)).into());
    }
    files.iter().flat_map(Pieces::notes).for_each(|note| complain("note", &escaped(note)));
    let page = Page::served(&files)?.to_html().into_bytes();
    let server = Server::new(args.port, page, files)?;
    let (address, files) = (server.address(), server.files());
    let (as_json, as_lines) = (|| json(files, Some(&address)), || lines(files, Some(&address)));
    let text = args.report.summary(as_json, as_lines);
    let mut output = std::io::stdout();
    // The server runs even if its output is closed.
    let text = if text.is_empty() { format!("{address}\n") } else { text };
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    let opened = if args.open { open_page(Path::new(&address)) } else { Ok(()) };
    if let Err(error) = opened {
        complain("warning", &error);
    }
    let stopper = server.stopper();
    // The thread ends with the process.
    std::thread::spawn(move || {
        while !is_interrupted() {
            std::thread::sleep(Duration::from_millis(50));
        }
        stopper.stop();
    });
    server.run()?;
    Err(Error::Cancelled)
}

// Report what is served
/// Total bytes of the large arrays of files, and their number.
fn served(files: &[Pieces]) -> (u64, usize) {
    let each = files.iter().flat_map(Pieces::served_bytes);
    each.fold((0, 0), |(bytes, count), one| (bytes + one, count + 1))
}

fn lines(files: &[Pieces], address: Option<&str>) -> String {
    let (bytes, arrays) = served(files);
    let large = format!("{}, {}: read in pieces", count(arrays, "large array"), in_bytes(bytes));
    let mut lines = vec![("files", count(files.len(), "file")), ("served", large)];
    if let Some(address) = address {
        lines.push(("address", address.to_string()));
        lines.push(("end", "Ctrl-C".into()));
    }
    align(&lines)
}

fn json(files: &[Pieces], address: Option<&str>) -> Value {
    let (bytes, arrays) = served(files);
    let names: Vec<_> = files.iter().map(Pieces::name).collect();
    let notes: Vec<_> = files.iter().flat_map(Pieces::notes).collect();
    json!({ "files": names, "served_arrays": arrays, "served_bytes": bytes, "notes": notes, "address": address })
}

// Tests of the served view
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSet;
    use crate::files::Format;
    use ndarray::Array3;

    #[test]
    fn a_report_has_the_address_and_what_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let mut data = DataSet::default();
        data.add("stack", Array3::<f64>::zeros((2, 300, 300)));
        data.add("few", Array3::<f64>::zeros((2, 3, 3)));
        data.save(&folder.path().join("a.npz"), Format::Npz, None).unwrap();
        let files = [Pieces::open(&folder.path().join("a.npz")).unwrap()];
        let said = lines(&files, Some("http://127.0.0.1:80/x/"));
        assert!(said.contains("served      1 large array, 1.4 MiB: read in pieces\n"), "{said}");
        assert!(said.contains("address     http://127.0.0.1:80/x/\n"), "{said}");
        assert!(!lines(&files, None).contains("address"));
        let said = json(&files, None);
        assert_eq!((&said["files"][0], &said["address"]), (&json!("a.npz"), &Value::Null));
        assert_eq!((&said["served_arrays"], &said["served_bytes"]), (&json!(1), &json!(1_440_000)));
    }
}
