//! The tangled files on disc: what is there, what must change, and how it is written.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::expand::{Tangled, at_fence, header_chapter};
use crate::finding::Finding;
use crate::volume::Book;

/// The folders in which a file that no chapter roots any more is looked for.
const FOLDERS: [&str; 2] = ["src", "kernels"];

/// What tangling would change.
#[derive(Debug, Default)]
pub struct Plan {
    /// Files to write, with their new content.
    pub write: Vec<(String, String)>,
    /// Files to remove: ours by their header, rooted by no chapter.
    pub remove: Vec<String>,
    /// Temporary files of an interrupted run.
    pub leftovers: Vec<String>,
    /// Files that must not be written.
    pub refused: BTreeSet<String>,
    /// Why they must not.
    pub findings: Vec<Finding>,
}

/// Compares the tangled book with the tree.
///
/// # Errors
///
/// [`Error::Read`] if a file cannot be read.
pub fn plan(book: &Book, tangled: &Tangled) -> Result<Plan> {
    let mut plan = Plan::default();
    for (path, file) in &tangled.files {
        let content = file.content();
        let refused = match occupant(&book.root, path)? {
            Occupant::Link(link) => format!("{path} is refused: {link} is a link"),
            Occupant::Folder(folder) => format!("{path} is refused: {folder} is no file"),
            Occupant::Nothing => {
                plan.write.push((path.clone(), content));
                continue;
            }
            Occupant::File(old) if old == content.as_bytes() => continue,
            Occupant::File(old) if is_ours(&old) => {
                plan.write.push((path.clone(), content));
                continue;
            }
            Occupant::File(_) => {
                format!("{path} is refused: a file without our header line is there")
            }
        };
        plan.findings.push(at_fence(book, file.root, refused));
        plan.refused.insert(path.clone());
    }
    stale(book, &mut plan)?;
    Ok(plan)
}

/// What stands at a path.
pub enum Occupant {
    /// Nothing.
    Nothing,
    /// A file with this content.
    File(Vec<u8>),
    /// A link: the path itself or a folder above it.
    Link(String),
    /// A folder where a file should be, or a file where a folder should be.
    Folder(String),
}

/// Looks at `path` (relative to the repository) without following links.
///
/// # Errors
///
/// [`Error::Read`] if it cannot be looked at.
pub fn occupant(root: &Path, path: &str) -> Result<Occupant> {
    let parts: Vec<&str> = path.split('/').collect();
    let mut place = root.to_path_buf();
    for (index, part) in parts.iter().enumerate() {
        place.push(part);
        let shown = || parts[..=index].join("/");
        let metadata = match fs::symlink_metadata(&place) {
            Ok(metadata) => metadata,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nothing),
            Err(why) => return Err(Error::read(&place)(why)),
        };
        if metadata.is_symlink() {
            return Ok(Occupant::Link(shown()));
        }
        let last = index + 1 == parts.len();
        if last != metadata.is_file() {
            return Ok(Occupant::Folder(shown()));
        }
    }
    fs::read(&place).map(Occupant::File).map_err(Error::read(&place))
}

/// Whether the first line is our header.
pub fn is_ours(content: &[u8]) -> bool {
    chapter_of(content).is_some()
}

fn chapter_of(content: &[u8]) -> Option<&str> {
    let first = content.split(|&byte| byte == b'\n').next().unwrap_or(content);
    std::str::from_utf8(first).ok().and_then(header_chapter)
}

/// Notes tangled files that no chapter roots any more (those of a chapter that could not be read
/// stay), and what an interrupted run has left behind.
fn stale(book: &Book, plan: &mut Plan) -> Result<()> {
    for folder in FOLDERS {
        for path in files_below(&book.root, folder)? {
            if book.roots.contains_key(&path) {
                continue;
            }
            if is_leftover(&book.root, &path) {
                plan.leftovers.push(path);
                continue;
            }
            let place = book.root.join(&path);
            let mut start = Vec::new();
            let file = fs::File::open(&place).map_err(Error::read(&place))?;
            file.take(1024).read_to_end(&mut start).map_err(Error::read(&place))?;
            if chapter_of(&start).is_some_and(|chapter| !book.missing.contains(chapter)) {
                plan.remove.push(path);
            }
        }
    }
    Ok(())
}

/// The ending of our temporary files.
const TEMPORARY: &str = ".tangling";

/// Whether this is a temporary file of ours whose process has ended.
fn is_leftover(root: &Path, path: &str) -> bool {
    let Some(stem) = path.strip_suffix(TEMPORARY) else { return false };
    let process = stem.rsplit('.').next().and_then(|id| id.parse::<u32>().ok());
    let hidden = stem.rsplit('/').next().is_some_and(|name| name.starts_with('.'));
    let Some(process) = process.filter(|&id| hidden && id != std::process::id()) else {
        return false;
    };
    match Path::new("/proc/self").exists() {
        true => !Path::new(&format!("/proc/{process}")).exists(),
        // Where we cannot ask, a minute is long enough.
        false => fs::metadata(root.join(path))
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() > 60)),
    }
}

/// All files below a folder of the repository, without following links, in order.
fn files_below(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_string()];
    while let Some(folder) = folders.pop() {
        let place = root.join(&folder);
        if !fs::symlink_metadata(&place).is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        for entry in fs::read_dir(&place).map_err(Error::read(&place))? {
            let entry = entry.map_err(Error::read(&place))?;
            let kind = entry.file_type().map_err(Error::read(&entry.path()))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{folder}/{name}");
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Carries out a plan.
///
/// # Errors
///
/// [`Error::Write`] for the first file that cannot be written; those before it are done.
pub fn apply(root: &Path, plan: &Plan) -> Result<()> {
    for (path, content) in &plan.write {
        write(&root.join(path), content)?;
    }
    for path in plan.remove.iter().chain(&plan.leftovers) {
        let place = root.join(path);
        fs::remove_file(&place).map_err(Error::write(&place))?;
    }
    Ok(())
}

/// Writes a file through a temporary one beside it and a rename, so that an interruption leaves
/// either the old file or the new one.
///
/// # Errors
///
/// [`Error::Write`]; the old file, if any, is then still there.
pub fn write(path: &Path, content: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::write(folder))?;
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let temporary = path.with_file_name(format!(".{name}.{}{TEMPORARY}", std::process::id()));
    let written = fill(&temporary, path, content)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(Error::write(path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn fill(temporary: &Path, path: &Path, content: &str) -> io::Result<()> {
    let mut file = fs::File::create(temporary)?;
    file.write_all(content.as_bytes())?;
    if let Ok(metadata) = fs::metadata(path) {
        file.set_permissions(metadata.permissions())?;
    }
    Ok(())
}
