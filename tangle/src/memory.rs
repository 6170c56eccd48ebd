//! What the last tangling wrote, so that an edit of a file can be distinguished from one of its chapter.
//!
//! The record lies in `target/tangle` and may be deleted at any time: without it, a file that
//! differs from the book is taken to have been edited.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::tree;

/// Checksums of tangled files, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    sums: BTreeMap<String, u64>,
}

/// What is known about a file that differs from what the book tangles to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The file is as it was tangled: its chapter has changed since.
    Outdated,
    /// The chapter is as it was tangled, or nothing is known: the file has been edited.
    Edited,
    /// Both have changed since.
    Both,
}

impl Memory {
    fn place(root: &Path) -> PathBuf {
        root.join("target/tangle/written")
    }

    /// Reads the record; empty where there is none.
    pub fn load(root: &Path) -> Memory {
        let text = fs::read_to_string(Memory::place(root)).unwrap_or_default();
        let sums = text.lines().filter_map(|line| {
            let (sum, path) = line.split_once(' ')?;
            Some((path.to_string(), u64::from_str_radix(sum, 16).ok()?))
        });
        Memory { sums: sums.collect() }
    }

    /// Notes that a file now holds `content`.
    pub fn note(&mut self, path: &str, content: &str) {
        self.sums.insert(path.to_string(), checksum(content.as_bytes()));
    }

    /// Writes the record if it has changed. Where that fails we merely know less next time.
    pub fn save(&self, root: &Path) {
        if *self != Memory::load(root) {
            let lines = self.sums.iter().map(|(path, sum)| format!("{sum:016x} {path}\n"));
            let _ = tree::write(&Memory::place(root), &lines.collect::<String>());
        }
    }

    /// Whether anything is known about a file.
    pub fn knows(&self, path: &str) -> bool {
        self.sums.contains_key(path)
    }

    /// Compares what is on disc with what the book gives now.
    pub fn state(&self, path: &str, disc: &[u8], pristine: &str) -> State {
        let Some(&sum) = self.sums.get(path) else { return State::Edited };
        if sum == checksum(disc) {
            State::Outdated
        } else if sum == checksum(pristine.as_bytes()) {
            State::Edited
        } else {
            State::Both
        }
    }

    /// Keeps a copy of a file that is about to be overwritten, in `target/tangle/overwritten`.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if it cannot be written.
    pub fn keep(root: &Path, path: &str, disc: &[u8]) -> Result<String> {
        let copy = format!("target/tangle/overwritten/{path}");
        let place = root.join(&copy);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(Error::write(folder))?;
        }
        fs::write(&place, disc).map_err(Error::write(&place))?;
        Ok(copy)
    }
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
