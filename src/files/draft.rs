// Tangled from book/src/drafts.md: edit there, or here and run cargo tangle stitch.
//! Files that appear whole or not at all.

use crate::error::{Error, Invalid};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

// Draft of a file
/// A file in the making, which is removed unless it is published.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    target: PathBuf,
    name: PathBuf,
}

impl Draft {
    // Start a draft beside its target
    /// Starts a draft of the file `name`, in the folder where that file shall be.
    ///
    /// # Errors
    /// `Write` where the folder does not exist or cannot be written, or `name` is not that of a file.
    pub fn new(name: &Path) -> Result<Self, Error> {
        let refuse = |source| Error::Write { path: name.into(), source };
        let target = target_of(name).map_err(refuse)?;
        if target.exists() && !target.is_file() {
            let reason = "the name is taken by something that is not a file";
            return Err(refuse(io::Error::other(reason)));
        }
        let file = start_file(folder_of(&target)).map_err(refuse)?;
        Ok(Self { file, target, name: name.into() })
    }

    // Fill and publish the draft
    /// Fills the draft; nothing is visible yet.
    ///
    /// # Errors
    /// `Write` with what `fill` says, or where the disk is full.
    pub fn fill(&mut self, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
        let file = self.file.as_file_mut();
        let filled = fill(file).and_then(|()| file.sync_all());
        filled.map_err(|source| Error::Write { path: self.name.clone(), source })
    }

    /// Gives the draft its name, in place of an older file; returns its length in bytes.
    ///
    /// # Errors
    /// `Write` where the rename fails; an older file is then still there.
    pub fn publish(self) -> Result<u64, Error> {
        let Self { file, target, name } = self;
        let refuse = |source| Error::Write { path: name.clone(), source };
        let length = file.as_file().metadata().map_err(refuse)?.len();
        file.persist(target).map_err(|error| refuse(error.error))?;
        Ok(length)
    }
}

// Follow a name to its target
/// The file that a name stands for: links followed, even where nothing is at their end, and its folder spelt out in full.
fn target_of(name: &Path) -> io::Result<PathBuf> {
    let mut target = name.to_path_buf();
    for _ in 0..40 {
        let folder = folder_of(&target);
        if let Ok(link) = std::fs::read_link(&target) {
            target = folder.join(link);
        } else if !folder.is_dir() {
            let reason = format!("there is no folder {}", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        } else {
            let file = target.file_name().filter(|_| !target.starts_with("/proc"));
            let file = file.ok_or_else(|| io::Error::other("this is not the name of a file"))?;
            return Ok(folder.canonicalize()?.join(file));
        }
    }
    Err(io::Error::other("the name is a chain of links without an end"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

// Start a file with ordinary permissions
fn start_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lenslet-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(|error| io::Error::from(error.kind()))
}

// Refuse two names for one file
/// Refuses the name of a `role`, such as `output`, that stands for the same file as the name of another.
///
/// # Errors
/// `Invalid`, naming both roles.
pub fn check_distinct(
    (role, name): (&str, &Path),
    (other_role, other): (&str, &Path),
) -> Result<(), Invalid> {
    match (target_of(name), target_of(other)) {
        (Ok(one), Ok(two)) if one == two => {
            let expected = format!("another file than the {other_role}");
            Err(Invalid::new(role, name.display(), expected))
        }
        _ => Ok(()),
    }
}

// Refuse files that are named twice
/// Refuses outputs that stand for the file of an input or of each other, or that cannot be written; each is a role and a name.
///
/// # Errors
/// `Invalid`, naming both roles; `Write` as in [`Draft::new`].
pub fn check_files(inputs: &[(&str, &Path)], outputs: &[(&str, &Path)]) -> Result<(), Error> {
    for (k, &output) in outputs.iter().enumerate() {
        for &other in outputs[..k].iter().chain(inputs) {
            check_distinct(output, other)?;
        }
        drop(Draft::new(output.1)?);
    }
    Ok(())
}

// Tests of drafts
#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    // Fail in the middle of a draft
    #[test]
    fn a_draft_that_fails_leaves_the_old_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let name = folder.path().join("result.npz");
        std::fs::write(&name, "old")?;
        let full = |file: &mut File| {
            file.write_all(b"half of the n")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        let failed = Draft::new(&name).and_then(|mut draft| draft.fill(full));
        assert!(matches!(failed, Err(Error::Write { path, .. }) if path == name));
        assert_eq!(std::fs::read_to_string(&name)?, "old");
        assert_eq!(folder.path().read_dir()?.count(), 1);
        let published = Draft::new(&name).and_then(|mut draft| {
            draft.fill(|file| file.write_all(b"new"))?;
            draft.publish()
        });
        assert!(matches!(published, Ok(3)));
        assert_eq!(std::fs::read_to_string(&name)?, "new");
        Ok(())
    }

    // Refuse names that are no files
    #[test]
    fn names_of_other_things_are_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let absent = folder.path().join("absent/result.npz");
        for name in [folder.path(), &absent, Path::new(""), Path::new(".."), Path::new("/")] {
            let refused = Draft::new(name);
            assert!(matches!(refused, Err(Error::Write { .. })), "{}", name.display());
        }
        let (one, same) = (folder.path().join("a.npz"), folder.path().join("./a.npz"));
        assert!(check_distinct(("plot", &one), ("output", &same)).is_err());
        assert!(check_distinct(("plot", &one), ("output", &absent)).is_ok());
        Ok(())
    }

    // Follow links without an end
    #[cfg(unix)]
    #[test]
    fn links_lead_to_their_files() -> io::Result<()> {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir()?;
        let name = |name: &str| folder.path().join(name);
        symlink("second", name("first"))?;
        symlink(name("file.npz"), name("second"))?;
        symlink("circle", name("circle"))?;
        let published = Draft::new(&name("first")).and_then(|mut draft| {
            draft.fill(|file| file.write_all(b"new"))?;
            draft.publish()
        });
        assert!(published.is_ok() && name("first").is_symlink() && name("second").is_symlink());
        assert_eq!(std::fs::read_to_string(name("file.npz"))?, "new");
        assert!(check_distinct(("plot", &name("second")), ("output", &name("file.npz"))).is_err());
        assert!(Draft::new(&name("circle")).is_err());
        Ok(())
    }
}
