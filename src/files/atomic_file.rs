// Tangled from book/src/drafts.md: edit there, or here and run cargo tangle stitch.
//! Files that appear whole or not at all.

use crate::device::temporary::{self, ListedFile};
use crate::error::{Error, Invalid};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

// File that is published atomically
/// A file that appears whole or not at all: it has a temporary name, and is removed unless it is published.
#[derive(Debug)]
pub struct AtomicFile {
    file: NamedTempFile,
    target: PathBuf,
    name: PathBuf,
    /// Dropped after the file.
    listed: ListedFile,
}

impl AtomicFile {
    // Start an atomic file next to its target
    /// Creates a temporary file in the folder of the file `name`, whose place it takes when it is published.
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

    // Hold bytes in an atomic file
    /// An atomic file with these bytes as its contents, not yet published.
    ///
    /// # Errors
    /// `Write` as in [`new`](Self::new) and [`fill`](Self::fill).
    pub fn holding(name: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let mut draft = Self::new(name)?;
        draft.fill(|file| file.write_all(bytes))?;
        Ok(draft)
    }

    // Fill and publish an atomic file
    /// Writes the contents by a function that is given the temporary file; nothing is visible under the target's name yet.
    ///
    /// # Errors
    /// `Write` with what `fill` says, or where the disk is full.
    pub fn fill(&mut self, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
        let file = self.file.as_file_mut();
        let filled = fill(file).and_then(|()| file.sync_all());
        filled.map_err(|source| Error::Write { path: self.name.clone(), source })
    }

    /// Renames the temporary file to its target, in place of an older file; returns its length in bytes.
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

// Folder that is published atomically
/// Whether an older folder may be replaced.
type Accept = fn(&Path) -> io::Result<()>;

/// A folder that appears whole or not at all: it has a temporary name, and is removed unless it is published.
#[derive(Debug)]
pub struct AtomicFolder {
    folder: TempDir,
    target: PathBuf,
    name: PathBuf,
    accept: Accept,
}
impl AtomicFolder {
    /// Creates a temporary folder beside the folder `name`; an older one of that name must be `accept`ed.
    ///
    /// # Errors
    /// `Write` as in [`AtomicFile::new`], and with what `accept` says.
    pub fn new(name: &Path, accept: Accept) -> Result<Self, Error> {
        let refuse = |source| Error::Write { path: name.into(), source };
        let target = target_of(name).map_err(refuse)?;
        let older = replaceable(&target, accept).map_err(refuse)?;
        let folder = start_folder(folder_of(&target), older.flatten()).map_err(refuse)?;
        Ok(Self { folder, target, name: name.into(), accept })
    }

    /// Writes the contents by a function that is given the temporary path; nothing is visible under the target's name yet.
    ///
    /// # Errors
    /// `Write` with what `fill` says.
    pub fn fill<T>(&mut self, fill: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, Error> {
        let filled = fill(self.folder.path());
        filled.map_err(|source| Error::Write { path: self.name.clone(), source })
    }

    // Publish an atomic folder
    /// Renames the temporary folder to its target, in place of an older folder or file.
    ///
    /// # Errors
    /// `Write` where that fails or the older folder is not accepted any more; it is then still there.
    pub fn publish(self) -> Result<(), Error> {
        let Self { folder, target, name, accept } = self;
        let refuse = |source| Error::Write { path: name.clone(), source };
        if replaceable(&target, accept).map_err(refuse)?.is_none() {
            std::fs::rename(folder.path(), target).map_err(refuse)?;
            drop(folder.keep());
            return Ok(());
        }
        exchange(folder.path(), &target).map_err(refuse)?;
        if folder.path().is_dir() {
            return folder.close().map_err(refuse);
        }
        std::fs::remove_file(folder.keep()).map_err(refuse)
    }
}

// Check what a folder replaces
/// What is there and may be replaced, if anything is: the permissions of a folder, or none of a file.
fn replaceable(target: &Path, accept: Accept) -> io::Result<Option<Option<Permissions>>> {
    if !target.is_dir() {
        return Ok(permissions_of(target)?.map(|_| None));
    }
    let permissions = target.metadata()?.permissions();
    if is_protected(&permissions) {
        return Err(protected("folder"));
    }
    accept(target)?;
    Ok(Some(Some(permissions)))
}

fn start_folder(folder: &Path, permissions: Option<Permissions>) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lenslet-").suffix(".part");
    #[cfg(unix)]
    if let Some(permissions) = permissions {
        builder.permissions(permissions);
    }
    builder.tempdir_in(folder).map_err(|error| io::Error::from(error.kind()))
}

// Names, permissions and refusals of files
// Exchange two names
/// Exchanges the names of two files or folders, in one step where the system can.
fn exchange(draft: &Path, target: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, draft, CWD, target, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return done.map_err(io::Error::from),
        }
    }
    exchange_in_steps(draft, target)
}

// Exchange two names in steps
/// Exchanges the names of two files or folders in three steps; if the second step fails, the first is undone.
fn exchange_in_steps(draft: &Path, target: &Path) -> io::Result<()> {
    let mut third = draft.as_os_str().to_owned();
    third.push(".old");
    let third = Path::new(&third);
    std::fs::rename(target, third)?;
    std::fs::rename(draft, target).or_else(|error| {
        std::fs::rename(third, target)?;
        Err(error)
    })?;
    std::fs::rename(third, draft)
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
    let metadata = match target.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !metadata.is_file() {
        return Err(io::Error::other("the name is taken by something that is not a file"));
    }
    let permissions = metadata.permissions();
    if is_protected(&permissions) {
        return Err(protected("file"));
    }
    OpenOptions::new().write(true).open(target)?;
    Ok(Some(permissions))
}

// Whether a file is read-only
/// Whether the owner may not write.
fn is_protected(permissions: &Permissions) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::PermissionsExt::mode(permissions) & 0o200 == 0;
    #[cfg(not(unix))]
    return permissions.readonly();
}

fn protected(what: &str) -> io::Error {
    let reason = format!("the {what} is read-only: make it writable, or give another name");
    io::Error::new(ErrorKind::PermissionDenied, reason)
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

// Refuse files in a folder that is replaced
/// Refuses another name of a run that stands for a file in the folder of a `role`.
///
/// # Errors
/// `Invalid`, naming both roles.
pub fn check_outside(
    (role, folder): (&str, &Path),
    (other_role, other): (&str, &Path),
) -> Result<(), Invalid> {
    match (target_of(folder), target_of(other)) {
        (Ok(folder), Ok(file)) if file != folder && file.starts_with(&folder) => {
            let expected = format!("a file outside of the folder of the {role}");
            Err(Invalid::new(other_role, other.display(), expected))
        }
        _ => Ok(()),
    }
}

// Refuse names that are too long
/// Refuses the name of a `role`, such as `output`, that is too long for its file system, or becomes so with this `ending` behind it.
///
/// # Errors
/// `Invalid`, with the greatest length that is possible.
pub fn check_length((role, name): (&str, &Path), ending: &str) -> Result<(), Invalid> {
    let mut whole = name.file_name().unwrap_or_default().to_owned();
    whole.push(ending);
    let whole = name.with_file_name(whole);
    let too_long = |path: &Path| {
        path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::InvalidFilename)
    };
    if !too_long(&whole) {
        return Ok(());
    }
    let length = name.file_name().unwrap_or_default().len();
    let (mut least, mut most) = (0, length + ending.len());
    while least + 1 < most {
        let middle = least.midpoint(most);
        let longer = too_long(&folder_of(name).join("x".repeat(middle)));
        *(if longer { &mut most } else { &mut least }) = middle;
    }
    let written = match ending {
        "" => String::new(),
        _ => format!(", because {ending} is put behind the name for a second file"),
    };
    let limit = least.saturating_sub(ending.len());
    let expected = format!("a file name of at most {limit} bytes, not {length}{written}");
    Err(Invalid::new(role, name.display(), expected))
}

// Refuse files that are named twice
/// Refuses outputs that stand for the file of an input or of each other, or whose names are too long; each is a role and a name.
///
/// # Errors
/// `Invalid`, naming the roles.
pub fn check_names(inputs: &[(&str, &Path)], outputs: &[(&str, &Path)]) -> Result<(), Invalid> {
    for (k, &output) in outputs.iter().enumerate() {
        check_length(output, "")?;
        for &other in outputs[..k].iter().chain(inputs) {
            check_distinct(output, other)?;
        }
    }
    Ok(())
}

/// Refuses outputs as [`check_names`], and those that cannot be written.
///
/// # Errors
/// `Invalid`, naming the roles; `Write` as in [`AtomicFile::new`].
pub fn check_files(inputs: &[(&str, &Path)], outputs: &[(&str, &Path)]) -> Result<(), Error> {
    check_names(inputs, outputs)?;
    outputs.iter().try_for_each(|output| AtomicFile::new(output.1).map(drop))
}

// Tests of atomic files
#[cfg(test)]
mod tests {
    use super::*;

    // Fail while an atomic file is written
    #[test]
    fn a_draft_that_fails_leaves_the_old_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let name = folder.path().join("result.npz");
        std::fs::write(&name, "old")?;
        let full = |file: &mut File| {
            file.write_all(b"half of the n")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        let failed = AtomicFile::new(&name).and_then(|mut draft| draft.fill(full));
        assert!(matches!(failed, Err(Error::Write { path, .. }) if path == name));
        assert_eq!(std::fs::read_to_string(&name)?, "old");
        assert_eq!(folder.path().read_dir()?.count(), 1);
        let published = AtomicFile::new(&name).and_then(|mut draft| {
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
            let refused = AtomicFile::new(name);
            assert!(matches!(refused, Err(Error::Write { .. })), "{}", name.display());
        }
        let (one, same) = (folder.path().join("a.npz"), folder.path().join("./a.npz"));
        assert!(check_distinct(("plot", &one), ("output", &same)).is_err());
        assert!(check_distinct(("plot", &one), ("output", &absent)).is_ok());
        Ok(())
    }

    // Refuse names of too many bytes
    #[cfg(target_os = "linux")]
    #[test]
    fn names_that_are_too_long_are_refused_beforehand() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let name = |length: usize| folder.path().join("n".repeat(length - 4) + ".npz");
        let longest = (10..1000).rev().find(|&length| File::create(name(length)).is_ok());
        let longest = longest.unwrap_or_default();
        std::fs::remove_file(name(longest))?;
        assert!(check_length(("output", &name(longest)), "").is_ok());
        assert!(check_length(("output", &name(longest - 11)), ".checkpoint").is_ok());
        let said = |length, ending| {
            let refused =
                check_length(("output", &name(length)), ending).map_err(|e| e.to_string());
            refused.err().unwrap_or_default()
        };
        let short = said(longest - 10, ".checkpoint");
        let limit = format!("a file name of at most {} bytes, not {}", longest - 11, longest - 10);
        assert!(short.starts_with("output = ") && short.contains(&limit), "{short}");
        assert!(said(longest + 1, "").ends_with(&format!("{longest} bytes, not {}", longest + 1)));
        let long = name(longest + 1);
        assert!(
            check_files(&[], &[("plot", &long)]).is_err_and(|e| e.to_string().starts_with("plot"))
        );
        assert!(AtomicFile::new(&long).is_err(), "before anything is written");
        assert_eq!(folder.path().read_dir()?.count(), 0);
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
        let published = AtomicFile::new(&name("first")).and_then(|mut draft| {
            draft.fill(|file| file.write_all(b"new"))?;
            draft.publish()
        });
        assert!(published.is_ok() && name("first").is_symlink() && name("second").is_symlink());
        assert_eq!(std::fs::read_to_string(name("file.npz"))?, "new");
        assert!(check_distinct(("plot", &name("second")), ("output", &name("file.npz"))).is_err());
        assert!(AtomicFile::new(&name("circle")).is_err());
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
            let refused = AtomicFile::new(name).map_err(|error| error.to_string());
            let expected = "a device or for something that is open: give the name of a file";
            assert!(refused.is_err_and(|said| said.ends_with(expected)), "{}", name.display());
        }
        assert!(check_distinct(("output", &log), ("slopes", &by_device)).is_err());
        let shared = tempfile::Builder::new().tempdir_in("/dev/shm")?;
        assert!(AtomicFile::new(&shared.path().join("x.npz")).is_ok());
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
            let modes = AtomicFile::new(&name).map(|draft| {
                let before = draft.file.as_file().metadata().map(|file| file.permissions().mode());
                draft.publish().map(|_| before)
            });
            let Ok(Ok(Ok(before))) = modes else { panic!("{modes:?}") };
            let after = name.metadata()?.permissions().mode();
            assert_eq!([before & 0o7777, after & 0o7777], [mode; 2]);
        }
        std::fs::set_permissions(&name, Permissions::from_mode(0o444))?;
        let refused = AtomicFile::new(&name).map_err(|error| error.to_string());
        assert!(
            refused.is_err_and(|said| said.contains("the file is read-only: make it writable"))
        );
        Ok(())
    }

    // Folders appear whole
    #[test]
    fn folders_appear_whole_or_not_at_all() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let name = folder.path().join("s.zarr");
        let accept = |found: &Path| match found.join("notes").exists() {
            true => Err(io::Error::other("it has notes")),
            false => Ok(()),
        };
        let write = |text: &'static str| {
            move |draft: &Path| std::fs::write(draft.join("data"), text).map(|()| text.len())
        };
        let read = || std::fs::read_to_string(name.join("data"));
        let mut draft = AtomicFolder::new(&name, accept)?;
        assert_eq!(draft.fill(write("one"))?, 3);
        assert!(!name.exists());
        draft.publish()?;
        assert_eq!(read()?, "one");
        let full = |_: &Path| Err::<(), _>(io::Error::from(ErrorKind::StorageFull));
        assert!(AtomicFolder::new(&name, accept)?.fill(full).is_err());
        let mut draft = AtomicFolder::new(&name, accept)?;
        draft.fill(write("two"))?;
        std::fs::write(name.join("notes"), "mine")?;
        let refused = draft.publish().map_err(|error| error.to_string());
        assert!(refused.is_err_and(|said| said.ends_with("it has notes")));
        assert!(AtomicFolder::new(&name, accept).is_err() && read()? == "one");
        std::fs::remove_file(name.join("notes"))?;
        let mut draft = AtomicFolder::new(&name, accept)?;
        draft.fill(write("three"))?;
        draft.publish()?;
        assert_eq!((read()?.as_str(), folder.path().read_dir()?.count()), ("three", 1));
        let other = folder.path().join("other");
        std::fs::create_dir(&other)?;
        exchange_in_steps(&other, &name)?;
        assert!(other.join("data").exists() && name.read_dir()?.next().is_none());
        assert!(exchange_in_steps(&folder.path().join("none"), &other).is_err());
        assert!(other.join("data").exists() && folder.path().read_dir()?.count() == 2);
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn folders_keep_their_permissions() -> Result<(), Box<dyn std::error::Error>> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let (name, link) = (folder.path().join("s.zarr"), folder.path().join("link.zarr"));
        std::fs::create_dir(&name)?;
        std::os::unix::fs::symlink("s.zarr", &link)?;
        let set = |mode| std::fs::set_permissions(&name, Permissions::from_mode(mode));
        let mode = || name.metadata().map(|found| found.permissions().mode() & 0o777);
        for mode_of in [0o700, 0o750] {
            set(mode_of)?;
            AtomicFolder::new(&link, |_| Ok(()))?.publish()?;
            assert_eq!((mode()?, link.is_symlink()), (mode_of, true));
        }
        set(0o500)?;
        assert!(AtomicFolder::new(&name, |_| Ok(())).is_err());
        set(0o700)?;
        Ok(())
    }
}
