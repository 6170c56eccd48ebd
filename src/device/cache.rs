// Tangled from book/src/compiling-kernels.md: edit there, or here and run cargo tangle stitch.
//! Files that this crate keeps for itself in the user's cache.

use super::temporary;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

// The folder of the cache
/// Where this crate keeps files, if the user has a cache.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let caches = folder("XDG_CACHE_HOME").map(PathBuf::from);
    let at_home = || folder("HOME").map(|home| PathBuf::from(home).join(".cache"));
    caches.or_else(at_home).map(|folder| folder.join("lenslet"))
}

// Keep a whole file
/// Writes a file of some parts, in a folder that is made where there is none, whole or not at all.
pub(crate) fn keep(file: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let start = || tempfile::NamedTempFile::new_in(folder);
    let (mut draft, _listed) = temporary::listed(start, tempfile::NamedTempFile::path)?;
    parts.iter().try_for_each(|part| draft.write_all(part))?;
    draft.persist(file).map(drop).map_err(io::Error::from)
}
