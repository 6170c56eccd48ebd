//! Waiting for a chapter to be saved.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// How often we look.
const PAUSE: Duration = Duration::from_millis(150);

/// What tells one version of a file from the next.
type Stamp = (SystemTime, u64);

/// The chapters as they were when we last looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    folder: PathBuf,
    seen: BTreeMap<PathBuf, Stamp>,
}

impl Watch {
    /// Starts to watch the Markdown files below a folder.
    pub fn new(folder: &Path) -> Watch {
        Watch { folder: folder.to_path_buf(), seen: stamps(folder) }
    }

    /// Returns once something has changed and then stayed as it is for a moment, since editors
    /// write a file in several steps.
    pub fn wait(&mut self) {
        let mut last = self.seen.clone();
        loop {
            sleep(PAUSE);
            let now = stamps(&self.folder);
            if now != self.seen && now == last {
                self.seen = now;
                return;
            }
            last = now;
        }
    }
}

fn stamps(folder: &Path) -> BTreeMap<PathBuf, Stamp> {
    let mut stamps = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            if metadata.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let time = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                stamps.insert(path, (time, metadata.len()));
            }
        }
    }
    stamps
}
