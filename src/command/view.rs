// Tangled from book/src/view-command.md: edit there, or here and run cargo tangle stitch.
//! The command `view`: an HTML page that shows the data sets of files.

// Imports of the command view
use super::examples::{self, examples};
use super::summary::{Outcome, align, count};
use super::value_parsers::ReportArgs;
use crate::data::DataSet;
use crate::error::{Error, Invalid, in_bytes};
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::view::{Page, PageArray, PageOptions};
use clap::Args;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

// Arguments of view
#[derive(Debug, Args)]
#[command(after_help = examples(examples::VIEW))]
pub struct ViewArgs {
    /// Files to show in one page: .npz, .npy, .fits, .h5, .emd, .hspy, .zspy, .zarr, .zarr.zip or .mrc.
    #[arg(required = true)]
    pub(super) files: Vec<PathBuf>,
    /// Page to write (.html); by default it has the name of the first file and is written next to it.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Open the page in the browser.
    #[arg(long)]
    pub(super) open: bool,
    /// Serve the page, and large arrays in pieces, to browsers on this machine until Ctrl-C, and write no file.
    #[arg(long, conflicts_with_all = ["output", "limit"])]
    pub(super) serve: bool,
    /// Port of 127.0.0.1 to serve on; with 0, the operating system chooses a free one.
    #[arg(long, requires = "serve", default_value_t = 0)]
    pub(super) port: u16,
    /// Megabytes of arrays before compression above which numbers are rounded or averaged; the summary prints the error.
    #[arg(long, value_name = "MB", default_value_t = 32.0)]
    limit: f64,
    #[command(flatten)]
    pub(super) report: ReportArgs,
}

// Make a page of files
/// Writes the page of the files that the arguments name; returns the text to print.
pub fn view(args: &ViewArgs) -> Result<Outcome, Error> {
    let output = page_name(args)?;
    let inputs: Vec<_> = args.files.iter().map(|path| ("file", path.as_path())).collect();
    let outputs = [("output", output.as_path())];
    check_files(&inputs, if args.report.plan { &[] } else { &outputs })?;
    let options = PageOptions { limit: limit(args.limit)?, title: None };
    let read: Result<Vec<_>, Error> = args.files.iter().map(|path| read(path)).collect();
    let read = read?;
    let files: Vec<_> = read.iter().map(|(name, data)| (name.as_str(), data)).collect();
    if args.report.plan {
        let arrays = Page::plan(&files, &options)?;
        return Ok(Report { args, arrays: &arrays, output: &output, bytes: None }.text().into());
    }
    let page = Page::new(&files, &options)?;
    let bytes = Some(write(&page, &output)?);
    let text = Report { args, arrays: page.arrays(), output: &output, bytes }.text();
    let unopened = args.open.then(|| open_page(&output)).and_then(Result::err);
    Ok(Outcome { shortfall: unopened.map(|error| error.to_string()), ..Outcome::from(text) })
}

// Read the files and write the page
/// Writes a page, which replaces an older file; returns its length in bytes.
fn write(page: &Page, output: &Path) -> Result<u64, Error> {
    let mut draft = AtomicFile::new(output)?;
    draft.fill(|file| {
        let mut file = BufWriter::new(file);
        page.write(&mut file)?;
        file.flush()
    })?;
    draft.publish()
}

/// The name and the data set of a file.
fn read(path: &Path) -> Result<(String, DataSet<'static>), Error> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((name, DataSet::read(path)?))
}

/// Limit in bytes, from a number of megabytes.
fn limit(megabytes: f64) -> Result<u64, Invalid> {
    let expected = "a number of megabytes from 1 to 4000";
    crate::error::accept((1.0..=4000.0).contains(&megabytes), "--limit", megabytes, expected)?;
    Ok((megabytes * 1e6) as u64)
}

// Name the page
/// File to which the page is written.
fn page_name(args: &ViewArgs) -> Result<PathBuf, Error> {
    if let Some(output) = &args.output {
        let named = output.extension().is_some_and(|ending| {
            ending.eq_ignore_ascii_case("html") || ending.eq_ignore_ascii_case("htm")
        });
        crate::error::accept(
            named,
            "output",
            output.display().to_string(),
            "a file name that ends in .html",
        )?;
        return Ok(output.clone());
    }
    let mut output = args.files[0].with_extension("html");
    if args.files[0].with_extension("").extension().is_some_and(|ending| ending == "zarr") {
        output = args.files[0].with_extension("").with_extension("html"); // .zarr.zip
    }
    if output.exists() && !is_page(&output) {
        let expected = "a name with -o: this file exists and is not a page of the viewer";
        return Err(Invalid::new("output", output.display(), expected).into());
    }
    Ok(output)
}

/// Whether a file is a page that this program wrote.
fn is_page(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(1024).read_to_end(&mut start));
    read.is_ok()
        && String::from_utf8_lossy(&start).contains("<meta name=\"generator\" content=\"lenslet\">")
}

// Report a page
/// Report of a page that was written or is planned.
struct Report<'a> {
    args: &'a ViewArgs,
    arrays: &'a [PageArray],
    output: &'a Path,
    /// Length of the page; `None` before it is written.
    bytes: Option<u64>,
}

impl Report<'_> {
    fn text(&self) -> String {
        self.args.report.summary(|| self.json(), || self.lines())
    }

    /// Bytes of the arrays before compression.
    fn stored(&self) -> u64 {
        self.arrays.iter().map(|array| array.bytes).sum()
    }

    fn lines(&self) -> String {
        let (files, arrays) =
            (count(self.args.files.len(), "file"), count(self.arrays.len(), "array"));
        let content =
            format!("{arrays} of {files}, {} before compression", in_bytes(self.stored()));
        let mut lines = vec![("arrays", content)];
        let mut key = "reduced";
        for array in self.arrays.iter().filter(|array| !array.reduced.is_empty()) {
            lines.push((
                std::mem::take(&mut key),
                format!("{}: {}", self.name(array), array.reduced),
            ));
        }
        let size = self.bytes.map_or(String::new(), |bytes| format!(": {}", in_bytes(bytes)));
        lines.push(("output", format!("{}{size}", self.output.display())));
        align(&lines)
    }

    /// Name of an array, with the name of its file if there are several files.
    fn name(&self, array: &PageArray) -> String {
        match self.args.files.get(array.file) {
            Some(file) if self.args.files.len() > 1 => {
                format!("{}[{}]", file.display(), array.variable)
            }
            _ => array.variable.clone(),
        }
    }

    // Report a page in json
    fn json(&self) -> Value {
        let arrays = self.arrays.iter().map(|array| {
            json!({
                "file": array.file, "variable": array.variable, "shape": array.shape, "stored_shape": array.stored_shape,
                "bytes": array.bytes, "reduced": array.reduced,
            })
        });
        let files: Vec<_> = self.args.files.iter().map(|path| path.display().to_string()).collect();
        json!({
            "files": files,
            "arrays": arrays.collect::<Vec<_>>(),
            "array_bytes": self.stored(),
            "output": self.output.display().to_string(),
            "bytes": self.bytes,
        })
    }
}

// Open a page in the browser
/// Opens a page, given as a file or an address, in the user's browser.
pub(super) fn open_page(path: &Path) -> Result<(), Error> {
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    open_with(program, path)
}

/// Opens a page with a program.
fn open_with(program: &str, path: &Path) -> Result<(), Error> {
    let path = path.canonicalize().unwrap_or(path.to_path_buf());
    let failed =
        |reason: String| Error::Failed { what: format!("opening {}", path.display()), reason };
    let mut command = Command::new(program);
    command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() || program == "explorer" => Ok(()), // explorer always exits with 1
        Ok(status) => Err(failed(format!("{program} ended with {status}: open the file by hand"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(failed(format!("the program {program} was not found: open the file by hand")))
        }
        Err(error) => Err(failed(format!("{program} cannot be run: {error}"))),
    }
}

// Tests of the command view
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Format;
    use clap::Parser;
    use ndarray::{Array2, array};

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        args: ViewArgs,
    }

    /// Runs the command in a folder; names without a leading dash are files of the folder.
    fn run(folder: &Path, arguments: &str) -> Result<Outcome, Error> {
        let inside = |word: &str| match word.starts_with('-') || word.parse::<f64>().is_ok() {
            true => word.into(),
            false => folder.join(word),
        };
        let words = std::iter::once("view".into()).chain(arguments.split_whitespace().map(inside));
        view(&Parsed::try_parse_from(words).unwrap().args)
    }

    fn save(path: &Path, format: Format) {
        let mut data = DataSet::default();
        data.add("psf", array![[0.0, 0.25], [0.25, 0.5]]).dimensions("y, x");
        data.add("large", Array2::from_shape_fn((1000, 400), |(j, k)| (j * k) as f64 + 0.5));
        let format = data.save(path, format, None);
        assert!(format.is_ok(), "{format:?}");
    }

    #[test]
    fn pages_are_written_next_to_the_first_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        save(&at("a.npz"), Format::Npz);
        save(&at("b.fits"), Format::Fits);
        let said = run(folder.path(), "a.npz b.fits").unwrap().text;
        let page = std::fs::read_to_string(at("a.html")).unwrap();
        assert!(page.contains("<title>a.npz, b.fits</title>"));
        let output = format!("output      {}: ", at("a.html").display());
        assert!(
            said.starts_with("arrays      4 arrays of 2 files, 6.1 MiB") && said.contains(&output),
            "{said}"
        );
        // Replace a page of the viewer alone
        run(folder.path(), "a.npz").unwrap();
        assert!(std::fs::read_to_string(at("a.html")).unwrap().contains("<title>a.npz</title>"));
        std::fs::write(at("b.html"), "<p>mine</p>").unwrap();
        let refused = run(folder.path(), "b.fits").err().unwrap();
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("expected a name with -o"), "{refused}");
        assert_eq!(std::fs::read_to_string(at("b.html")).unwrap(), "<p>mine</p>");
        assert!(run(folder.path(), "b.fits -o b.html").is_ok());
        let zipped = Parsed::try_parse_from(["view", "x/scan.zarr.zip"]).unwrap().args;
        assert_eq!(page_name(&zipped).unwrap(), Path::new("x/scan.html"));
    }

    // Reports of reductions
    #[test]
    fn a_report_prints_reductions_and_errors() {
        let folder = tempfile::tempdir().unwrap();
        save(&folder.path().join("a.npz"), Format::Npz);
        let planned = run(folder.path(), "a.npz --limit 2 --plan").unwrap().text;
        assert!(planned.contains("reduced     large: rounded to single precision\n"), "{planned}");
        assert!(!folder.path().join("a.html").exists());
        let said = run(folder.path(), "a.npz --limit 2").unwrap().text;
        assert!(said.contains("large: rounded to single precision (error at most "), "{said}");
        let json: Value =
            serde_json::from_str(&run(folder.path(), "a.npz --limit 1 --json").unwrap().text)
                .unwrap();
        assert_eq!(json["arrays"][1]["bytes"], 800_000);
        assert_eq!(json["bytes"], folder.path().join("a.html").metadata().unwrap().len());
        assert!(run(folder.path(), "a.npz --quiet").unwrap().text.is_empty());
    }

    // Inputs without a page
    #[test]
    fn files_that_cannot_be_shown_leave_an_older_page() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        save(&at("good.fits"), Format::Fits);
        run(folder.path(), "good.fits -o page.html").unwrap();
        let before = std::fs::read(at("page.html")).unwrap();
        let fits = std::fs::read(at("good.fits")).unwrap();
        std::fs::write(at("short.fits"), &fits[..5000]).unwrap();
        std::fs::write(at("other.fits"), b"not at all").unwrap();
        std::fs::write(at("bad.npz"), b"PK\x03\x04 and then nothing").unwrap();
        std::fs::write(at("empty.h5"), b"").unwrap();
        std::fs::write(at("notes.txt"), "text").unwrap();
        for name in ["short.fits", "other.fits", "bad.npz", "empty.h5", "notes.txt", "absent.npz"] {
            let refused =
                run(folder.path(), &format!("good.fits {name} -o page.html")).err().unwrap();
            assert_eq!(refused.exit_code(), 2, "{refused}");
            assert!(refused.to_string().contains(name), "{refused}");
        }
        assert_eq!(std::fs::read(at("page.html")).unwrap(), before);
        // Names and limits that are rejected
        for (arguments, word) in [
            ("good.fits -o good.fits", "ends in .html"),
            ("good.fits -o page.html --limit 0.5", "--limit = 0.5: expected a number of megabytes"),
            ("good.fits -o page.html --limit=-1", "--limit = -1"),
            ("good.fits -o absent/page.html", "there is no folder"),
        ] {
            let refused = run(folder.path(), arguments).err().unwrap().to_string();
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn a_page_that_no_browser_opens_is_reported() {
        let said = open_with("lenslet-has-no-such-program", Path::new("page.html")).unwrap_err();
        assert_eq!(said.exit_code(), 1);
        assert!(
            said.to_string().ends_with(
                "the program lenslet-has-no-such-program was not found: open the file by hand"
            ),
            "{said}"
        );
        #[cfg(unix)]
        assert!(
            open_with("false", Path::new("page.html"))
                .unwrap_err()
                .to_string()
                .contains("false ended with")
        );
    }
}
