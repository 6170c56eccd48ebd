// Tangled from book/src/device.md: edit there, or here and run cargo tangle stitch.
//! The temporary files of this process, so that they can be removed where it ends early.

use super::dispatch::lock;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

// List of temporary files
static FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Keeps a temporary file in the list, until this is dropped.
#[derive(Debug)]
pub(crate) struct ListedFile(PathBuf);

/// Starts a temporary file and lists it under its path.
///
/// # Errors
/// Those of `start`.
pub(crate) fn listed<T, E>(
    start: impl FnOnce() -> Result<T, E>,
    path: impl FnOnce(&T) -> &Path,
) -> Result<(T, ListedFile), E> {
    let mut files = lock(&FILES);
    let file = start()?;
    let path = path(&file).to_path_buf();
    files.insert(path.clone());
    Ok((file, ListedFile(path)))
}

impl Drop for ListedFile {
    fn drop(&mut self) {
        lock(&FILES).remove(&self.0);
    }
}

// Remove all temporary files
/// Removes all temporary files, and lets no other one start: for a process that ends now.
#[cfg(feature = "command")]
pub(crate) fn remove_all() {
    for _ in 0..20 {
        let files = match FILES.try_lock() {
            Ok(files) => files,
            Err(std::sync::TryLockError::Poisoned(files)) => files.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
                continue;
            }
        };
        for file in &*files {
            let _ = std::fs::remove_file(file); // it may have been renamed
        }
        return std::mem::forget(files);
    }
}
