//! A small repository with a book, written by the test itself.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tangle::{Book, expand};

/// The header of a file that `one.md` roots.
pub const HEADER: &str =
    "// Tangled from book/src/one.md: edit there, or here and run cargo tangle stitch.\n";

/// A repository in a temporary folder.
pub struct Repository {
    folder: tempfile::TempDir,
}

/// What a command printed, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Repository {
    /// Chapters by file name, listed in this order.
    pub fn new(chapters: &[(&str, &str)]) -> Repository {
        let repository = Repository { folder: tempfile::tempdir().expect("a temporary folder") };
        let list: String =
            chapters.iter().map(|(file, _)| format!("- [Chapter {file}]({file})\n")).collect();
        repository.write("book/src/SUMMARY.md", &list);
        for (file, text) in chapters {
            repository.write(&format!("book/src/{file}"), text);
        }
        repository
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let place = self.path(path);
        fs::create_dir_all(place.parent().expect("a folder")).expect("a new folder");
        fs::write(place, text).expect("a new file");
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Replaces a text that a file holds exactly once.
    pub fn edit(&self, path: &str, old: &str, new: &str) {
        let text = self.read(path);
        assert_eq!(text.matches(old).count(), 1, "{old:?} in {path}");
        self.write(path, text.replace(old, new));
    }

    /// Runs the program itself.
    pub fn run(&self, arguments: &[&str]) -> Answer {
        let output = Command::new(env!("CARGO_BIN_EXE_tangle"))
            .args(arguments)
            .current_dir(self.root())
            .output()
            .expect("the program runs");
        Answer {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Tangles without any finding.
    pub fn tangle(&self) {
        let answer = self.run(&[]);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{}", answer.out);
    }

    /// The findings of `check`, one line each.
    pub fn check(&self) -> Vec<String> {
        let answer = self.run(&["check"]);
        assert!(answer.code == 0 || answer.code == 1, "{answer:?}");
        let lines: Vec<String> = answer.out.lines().map(str::to_string).collect();
        let errors = lines.iter().any(|line| !line.contains(": warning: "));
        assert_eq!(answer.code, i32::from(errors), "{lines:?}");
        lines
    }

    /// Every file with its bytes, but for the tool's own record.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.root().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let name = path.strip_prefix(self.root()).expect("a path inside");
                let name = name.to_string_lossy().into_owned();
                if name == "target" {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(name, fs::read(&path).expect("a file"));
                }
            }
        }
        files
    }
}

/// What chapters tangle to, without any disc: path and content, then the findings.
pub fn expanded(chapters: &[&str]) -> (BTreeMap<String, String>, Vec<String>) {
    let names = ["one.md", "two.md", "three.md"];
    let list: String = names.iter().take(chapters.len()).map(|n| format!("- [C]({n})\n")).collect();
    let book = Book::from_sources(&list, |path| {
        let index = names.iter().position(|name| path == format!("book/src/{name}"));
        Ok(chapters[index.expect("a listed chapter")].to_string())
    });
    let tangled = expand::tangle(&book);
    let files = tangled.files.iter().map(|(path, file)| (path.clone(), file.content())).collect();
    let findings = book.findings.iter().chain(&tangled.findings).map(|f| f.to_string()).collect();
    (files, findings)
}
