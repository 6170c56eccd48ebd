// Tangled from book/src/drafts.md: edit there, or here and run cargo tangle stitch.
//! Files that appear whole or not at all.

use crate::device::temporary::{self, ListedFile};
use crate::error::{Error, Invalid};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

// Draft of a file
/// A file in the making, which is removed unless it is published.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    target: PathBuf,
    name: PathBuf,
    /// Dropped after the file.
    listed: ListedFile,
}

impl Draft {
    // Start a draft beside its target
    /// Starts a draft of the file `name`, in the folder where that file shall be.
    ///
    /// # Errors
    /// `Write` where the folder does not exist or cannot be written, `name` is not that of a file, or the file is read-only.
    pub fn new(name: &Path) -> Result<Self, Error> {
        let refuse = |source| Error::Write { path: name.into(), source };
        let target = target_of(name).map_err(refuse)?;
        let permissions = permissions_of(&target).map_err(refuse)?;
        let start = || start_file(folder_of(&target), permissions);
        let (file, listed) = temporary::listed(start, NamedTempFile::path).map_err(refuse)?;
        Ok(Self { file, target, name: name.into(), listed })
    }

    // Hold bytes in a draft
    /// A draft that holds these bytes.
    ///
    /// # Errors
    /// `Write` as in [`new`](Self::new) and [`fill`](Self::fill).
    pub fn holding(name: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let mut draft = Self::new(name)?;
        draft.fill(|file| file.write_all(bytes))?;
        Ok(draft)
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
        let Self { file, target, name, listed } = self;
        let refuse = |source| Error::Write { path: name.clone(), source };
        let length = file.as_file().metadata().map_err(refuse)?.len();
        file.persist(target).map_err(|error| refuse(error.error))?;
        drop(listed);
        Ok(length)
    }
}

// Follow a name to its target
/// The file that a name stands for: links followed, even where nothing is at their end, and its folder spelt out in full.
fn target_of(name: &Path) -> io::Result<PathBuf> {
    let mut target = name.to_path_buf();
    for _ in 0..40 {
        let folder = folder_of(&target);
        if !folder.is_dir() {
            let reason = format!("there is no folder {}", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        let folder = folder.canonicalize()?;
        // Refuse devices and what is open
        let refuse = |reason| Err(io::Error::other(reason));
        let Some(file) = target.file_name() else {
            return refuse("this is not the name of a file");
        };
        if folder == Path::new("/dev")
            || ["/proc", "/dev/fd"].iter().any(|at| folder.starts_with(at))
        {
            let reason =
                "it stands for a device or for something that is open: give the name of a file";
            return refuse(reason);
        }
        target = folder.join(file);
        match target.read_link() {
            Ok(link) => target = folder.join(link),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("the name is a chain of links without an end"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

// Permissions of the file that is replaced
/// The permissions of the file that is there already, if there is one and it may be replaced.
fn permissions_of(target: &Path) -> io::Result<Option<Permissions>> {
    let Ok(found) = target.metadata() else { return Ok(None) };
    if !found.is_file() {
        return Err(io::Error::other("the name is taken by something that is not a file"));
    }
    let permissions = found.permissions();
    #[cfg(unix)]
    let protected = std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o200 == 0;
    #[cfg(not(unix))]
    let protected = permissions.readonly();
    if protected {
        let reason = "the file is read-only: make it writable, or give another name";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    OpenOptions::new().write(true).open(target)?;
    Ok(Some(permissions))
}

// Start a file with its permissions
fn start_file(folder: &Path, permissions: Option<Permissions>) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lenslet-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder).map_err(|error| io::Error::from(error.kind()))?;
    permissions.map_or(Ok(()), |permissions| file.as_file().set_permissions(permissions))?;
    Ok(file)
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
    let place = |name: &Path| target_of(name).or_else(|_| name.canonicalize());
    match (place(name), place(other)) {
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

    // Refuse what somebody has open
    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_open_is_no_file_to_write() -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir()?;
        let (log, link) = (folder.path().join("log.npz"), folder.path().join("link.npz"));
        let open = File::create(&log)?;
        let [by_device, by_process] =
            ["/dev", "/proc/self"].map(|at| PathBuf::from(format!("{at}/fd/{}", open.as_raw_fd())));
        std::os::unix::fs::symlink(&by_device, &link)?;
        let devices =
            ["/dev/stdout", "/dev/full", "/dev/cov.npz", "/proc/cov.npz"].map(PathBuf::from);
        for name in devices.iter().chain([&by_device, &by_process, &link]) {
            let refused = Draft::new(name).map_err(|error| error.to_string());
            let expected = "a device or for something that is open: give the name of a file";
            assert!(refused.is_err_and(|said| said.ends_with(expected)), "{}", name.display());
        }
        assert!(check_distinct(("output", &log), ("slopes", &by_device)).is_err());
        let shared = tempfile::Builder::new().tempdir_in("/dev/shm")?;
        assert!(Draft::new(&shared.path().join("x.npz")).is_ok());
        Ok(())
    }

    // Keep the permissions of a file
    #[cfg(unix)]
    #[test]
    fn permissions_are_kept_and_protected_files_stay() -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let name = folder.path().join("result.npz");
        for mode in [0o600, 0o640, 0o755] {
            std::fs::write(&name, "old")?;
            std::fs::set_permissions(&name, Permissions::from_mode(mode))?;
            let modes = Draft::new(&name).map(|draft| {
                let before = draft.file.as_file().metadata().map(|file| file.permissions().mode());
                draft.publish().map(|_| before)
            });
            let Ok(Ok(Ok(before))) = modes else { panic!("{modes:?}") };
            let after = name.metadata()?.permissions().mode();
            assert_eq!([before & 0o7777, after & 0o7777], [mode; 2]);
        }
        std::fs::set_permissions(&name, Permissions::from_mode(0o444))?;
        let refused = Draft::new(&name).map_err(|error| error.to_string());
        assert!(
            refused.is_err_and(|said| said.contains("the file is read-only: make it writable"))
        );
        Ok(())
    }
}
