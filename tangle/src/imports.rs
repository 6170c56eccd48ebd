//! The imports of the modules of a crate, as its sources name them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::expand::{File, Tangled};
use crate::rust::{self, Named};
use crate::text::setting;
use crate::volume::Book;

/// A tangled module of the crate.
pub(crate) struct Module<'a> {
    /// `covariance::slope`; empty for `lib.rs`.
    pub name: String,
    /// Its file.
    pub file: &'a File,
    /// Imported modules, and the first line (from 0) that names each.
    pub imports: BTreeMap<String, usize>,
    /// Whether it is compiled for tests only.
    pub test: bool,
}

/// The modules of the crate in the order of the book, and its rooms in the order of `lib.rs`.
pub(crate) struct Crate<'a> {
    pub modules: Vec<Module<'a>>,
    pub rooms: Vec<String>,
}

/// The name of the crate, as `main.rs` and the tests call it.
fn crate_name(book: &Book) -> String {
    let manifest = std::fs::read_to_string(book.root.join("Cargo.toml")).unwrap_or_default();
    let package = manifest.split("[package]").nth(1).unwrap_or("");
    setting(package, "name").unwrap_or("lenslet").replace('-', "_")
}

/// The path of a module from that of its file.
fn module_name(path: &str) -> Option<String> {
    let stem = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    Some(if stem == "lib" { String::new() } else { stem.replace('/', "::") })
}

/// Whether `inner` stands below `outer`.
pub(crate) fn is_below(inner: &str, outer: &str) -> bool {
    match inner.strip_prefix(outer) {
        Some(rest) => rest.starts_with("::") || (outer.is_empty() && !rest.is_empty()),
        None => false,
    }
}

/// The modules that a file names and declares.
struct Source {
    name: String,
    /// The path of the file.
    file: String,
    paths: Vec<Named>,
    declared: Vec<(String, bool)>,
}

impl Source {
    /// Nothing if the file is no module of the crate `package`.
    fn new(file: &str, content: &str, package: &str) -> Option<Source> {
        let name = module_name(file)?;
        let paths = rust::paths(content, package, &name);
        Some(Source { name, file: file.to_string(), paths, declared: rust::declared(content) })
    }
}

impl<'a> Crate<'a> {
    pub fn new(book: &Book, tangled: &'a Tangled) -> Crate<'a> {
        let package = crate_name(book);
        let read = |file: &File| Source::new(&file.path, &file.content(), &package);
        let sources: Vec<Source> = tangled.files.values().filter_map(read).collect();
        let names = Names::new(&sources);
        let mut modules: Vec<Module> = sources
            .iter()
            .map(|source| Module {
                name: source.name.clone(),
                file: &tangled.files[&source.file],
                imports: names.imports(source),
                test: names.is_test(&source.name),
            })
            .collect();
        modules.sort_by_key(|module| (module.file.root, module.name.clone()));
        Crate { rooms: rooms(&sources), modules }
    }

    /// The index of the room of a module.
    pub fn room(&self, module: &str) -> Option<usize> {
        let first = module.split("::").next()?;
        self.rooms.iter().position(|room| room == first)
    }
}

/// The folders of `src/`, in the order in which `lib.rs` declares them; others come last.
fn rooms(sources: &[Source]) -> Vec<String> {
    let folder = |source: &Source| {
        let (room, _) = source.file.strip_prefix("src/")?.split_once('/')?;
        Some(room.to_string())
    };
    let folders: BTreeSet<String> = sources.iter().filter_map(folder).collect();
    let lib = sources.iter().find(|source| source.name.is_empty());
    let declared = lib.map_or(&[][..], |lib| lib.declared.as_slice());
    let place = |room: &String| declared.iter().position(|(name, _)| name == room);
    let mut rooms: Vec<String> = folders.into_iter().collect();
    rooms.sort_by_key(|room| place(room).unwrap_or(usize::MAX));
    rooms
}

/// The modules by name, and what they give further names to.
struct Names<'a> {
    known: BTreeSet<&'a str>,
    /// `a::D` of `pub use b::C as D` in `a`, and what it stands for: `b::C`.
    shown: BTreeMap<String, &'a str>,
    tests: BTreeSet<String>,
}

impl<'a> Names<'a> {
    fn new(sources: &'a [Source]) -> Names<'a> {
        let known = sources.iter().map(|source| source.name.as_str()).collect();
        let (mut shown, mut tests) = (BTreeMap::new(), BTreeSet::new());
        for source in sources {
            let below = |name: &str| match source.name.as_str() {
                "" => name.to_string(),
                outer => format!("{outer}::{name}"),
            };
            for named in &source.paths {
                if let Some(name) = &named.shown {
                    shown.insert(below(name), named.path.as_str());
                }
            }
            let tested = source.declared.iter().filter(|(_, test)| *test);
            tests.extend(tested.map(|(name, _)| below(name)));
        }
        Names { known, shown, tests }
    }

    fn is_test(&self, module: &str) -> bool {
        self.tests.iter().any(|test| test == module || is_below(module, test))
    }

    /// The module in which what a path names is defined, as far as re-exports tell.
    fn home(&self, path: &str) -> String {
        let mut path = path.to_string();
        // A re-export may be re-exported; a circle of them is rustc's to refuse.
        for _ in 0..8 {
            let parts: Vec<&str> = path.split("::").collect();
            let stands = |length: usize| self.shown.get(&parts[..length].join("::"));
            let Some((length, target)) =
                (1..=parts.len()).find_map(|length| stands(length).map(|target| (length, *target)))
            else {
                break;
            };
            let onward = [&[target], &parts[length..]].concat().join("::");
            if onward == path {
                break;
            }
            path = onward;
        }
        let mut parts: Vec<&str> = path.split("::").collect();
        while !parts.is_empty() && !self.known.contains(parts.join("::").as_str()) {
            parts.pop();
        }
        parts.join("::")
    }

    /// What a module imports. That `lib.rs` and the prelude show what others define, or a module
    /// what its children define, is no import.
    fn imports(&self, source: &Source) -> BTreeMap<String, usize> {
        let mut imports = BTreeMap::new();
        let name = source.name.as_str();
        for named in &source.paths {
            let found = self.home(&named.path);
            let front = matches!(name, "" | "prelude") || is_below(&found, name);
            if found.is_empty()
                || found == name
                || found == "main"
                || front && named.shown.is_some()
            {
                continue;
            }
            imports.entry(found).or_insert(named.line);
        }
        imports
    }
}

/// A shortest circle through the first node of each group of nodes that reach each other.
pub(crate) fn rounds(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut done = BTreeSet::new();
    for start in 0..edges.len() {
        if done.contains(&start) {
            continue;
        }
        let came = reached(edges, start);
        let closing = came.keys().filter(|&&node| edges[node].contains(&start));
        let Some(&last) = closing.min_by_key(|&&node| way(&came, start, node).len()) else {
            continue;
        };
        let group = came.keys().filter(|&&node| reached(edges, node).contains_key(&start));
        done.extend(group.copied());
        rounds.push(way(&came, start, last));
    }
    rounds
}

/// The nodes that a node reaches, itself included, and from where each was first reached.
fn reached(edges: &[BTreeSet<usize>], start: usize) -> BTreeMap<usize, usize> {
    let mut came = BTreeMap::from([(start, start)]);
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &next in &edges[node] {
            came.entry(next).or_insert_with(|| {
                queue.push_back(next);
                node
            });
        }
    }
    came
}

/// The nodes from `start` to `end`, by how each was reached.
fn way(came: &BTreeMap<usize, usize>, start: usize, end: usize) -> Vec<usize> {
    let mut way = vec![end];
    while let Some(&before) = way.last().filter(|&&node| node != start).and_then(|n| came.get(n)) {
        way.push(before);
    }
    way.reverse();
    way
}

/// Which chapters each chapter imports from, by their indices.
pub fn flow(book: &Book, tangled: &Tangled) -> BTreeMap<usize, BTreeSet<usize>> {
    let house = Crate::new(book, tangled);
    let mut flow: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for module in house.modules.iter().filter(|module| !module.name.is_empty() && !module.test) {
        let ours = module.file.root.chapter;
        let theirs = house.modules.iter().filter(|other| module.imports.contains_key(&other.name));
        let theirs = theirs.map(|other| other.file.root.chapter).filter(|&other| other != ours);
        flow.entry(ours).or_default().extend(theirs);
    }
    flow
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::{Names, Source, rounds};
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    /// The modules of a crate's files that import each other in a circle; by `name`, a folder may
    /// count as one module.
    fn circles(files: &[(String, String)], name: fn(&str) -> &str) -> Vec<Vec<String>> {
        let read = |(path, content): &(String, String)| Source::new(path, content, "tangle");
        let sources: Vec<Source> = files.iter().filter_map(read).collect();
        let names = Names::new(&sources);
        let modules: BTreeSet<&str> = sources.iter().map(|source| name(&source.name)).collect();
        let modules: Vec<&str> = modules.into_iter().filter(|module| !module.is_empty()).collect();
        let mut edges = vec![BTreeSet::new(); modules.len()];
        for source in &sources {
            let at = |module: &str| modules.iter().position(|other| *other == name(module));
            let imports = names.imports(source);
            let imported = imports.keys().filter_map(|import| at(import));
            if let Some(from) = at(&source.name) {
                edges[from].extend(imported.filter(|to| *to != from));
            }
        }
        let named = |at: usize| modules[at].to_string();
        rounds(&edges).into_iter().map(|circle| circle.into_iter().map(named).collect()).collect()
    }

    /// The name of a file's module.
    fn own(module: &str) -> &str {
        module
    }

    /// The name of the folder of a file's module.
    fn folder(module: &str) -> &str {
        module.split("::").next().unwrap_or(module)
    }

    /// All files of a folder and of those in it.
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn the_modules_of_this_tool_import_each_other_in_no_circle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut sources: Vec<(String, String)> = files(&root.join("src"))
            .iter()
            .map(|path| {
                let name = path.strip_prefix(root).expect("a path inside");
                let content = std::fs::read_to_string(path).expect("a source");
                (name.to_string_lossy().replace('\\', "/"), content)
            })
            .collect();
        sources.sort();
        assert!(sources.len() > 40, "{} files", sources.len());
        for name in [own, folder] {
            assert_eq!(circles(&sources, name), Vec::<Vec<String>>::new());
        }

        // One import backwards closes a circle.
        let text = sources.iter_mut().find(|(path, _)| path == "src/text.rs").expect("text.rs");
        text.1.push_str("use crate::math::Math;");
        assert_eq!(circles(&sources, own), [["math", "text"]]);
    }
}
