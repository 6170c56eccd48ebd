//! Who imports whom: a module stands on its own chapter and on earlier ones, on its own room and on
//! earlier ones, and never on itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use crate::chapter::Chapter;
use crate::expand::{File, Tangled};
use crate::finding::Finding;
use crate::rust::{self, Named};
use crate::text::setting;
use crate::volume::Book;

/// The columns that the graph keeps to.
const WIDTH: usize = 100;

/// A tangled module of the crate.
struct Module<'a> {
    /// `covariance::slope`; empty for `lib.rs`.
    name: String,
    file: &'a File,
    /// Imported modules, and the first line (from 0) that names each.
    imports: BTreeMap<String, usize>,
    /// Whether it is compiled for tests only.
    test: bool,
}

/// The modules of the crate in the order of the book, and its rooms in the order of `lib.rs`.
struct Crate<'a> {
    modules: Vec<Module<'a>>,
    rooms: Vec<String>,
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
fn is_below(inner: &str, outer: &str) -> bool {
    match inner.strip_prefix(outer) {
        Some(rest) => rest.starts_with("::") || (outer.is_empty() && !rest.is_empty()),
        None => false,
    }
}

/// What a file says about modules.
struct Source<'a> {
    name: String,
    file: &'a File,
    paths: Vec<Named>,
    declared: Vec<(String, bool)>,
}

impl<'a> Crate<'a> {
    fn new(book: &Book, tangled: &'a Tangled) -> Crate<'a> {
        let package = crate_name(book);
        let read = |file: &'a File| {
            let (name, content) = (module_name(&file.path)?, file.content());
            let paths = rust::paths(&content, &package, &name);
            Some(Source { name, file, paths, declared: rust::declared(&content) })
        };
        let sources: Vec<Source> = tangled.files.values().filter_map(read).collect();
        let names = Names::new(&sources);
        let mut modules: Vec<Module> = sources
            .iter()
            .map(|source| Module {
                name: source.name.clone(),
                file: source.file,
                imports: names.imports(source),
                test: names.is_test(&source.name),
            })
            .collect();
        modules.sort_by_key(|module| (module.file.root, module.name.clone()));
        Crate { rooms: rooms(&sources), modules }
    }

    /// The index of the room that a module stands in.
    fn room(&self, module: &str) -> Option<usize> {
        let first = module.split("::").next()?;
        self.rooms.iter().position(|room| room == first)
    }
}

/// The folders of `src/`, in the order in which `lib.rs` declares them; others come last.
fn rooms(sources: &[Source]) -> Vec<String> {
    let folder = |source: &Source| {
        let (room, _) = source.file.path.strip_prefix("src/")?.split_once('/')?;
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

/// Imports from a later chapter or from a later room, and circles.
pub fn check(book: &Book, tangled: &Tangled) -> Vec<Finding> {
    let house = Crate::new(book, tangled);
    let mut findings = Vec::new();
    // The imports that both orders allow, by the places of the modules.
    let mut sound: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); house.modules.len()];
    for (from, module) in house.modules.iter().enumerate().filter(|(_, module)| !module.test) {
        for (import, &line) in &module.imports {
            let Some(to) = house.modules.iter().position(|other| other.name == *import) else {
                continue;
            };
            let before = findings.len();
            let (path, theirs) = (&module.file.path, house.modules[to].file.root.chapter);
            if theirs > own_chapter(module, import, line) {
                let title = &book.chapters[theirs].title;
                let what =
                    format!("{path} imports {import}, which a later chapter defines: {title}");
                findings.extend(at_import(book, module, line, what));
            }
            if let (Some(ours), Some(theirs)) = (house.room(&module.name), house.room(import))
                && theirs > ours
            {
                let (ours, theirs) = (&house.rooms[ours], &house.rooms[theirs]);
                let what = format!("{path} imports {import}: the room {theirs} comes after {ours}");
                findings.extend(at_import(book, module, line, what));
            }
            if findings.len() == before && !module.name.is_empty() {
                sound[from].insert(to);
            }
        }
    }
    // Rooms cannot stand in a circle without a later one, but modules of one chapter can.
    for circle in rounds(&sound) {
        let names: Vec<&str> = circle.iter().map(|&at| house.modules[at].name.as_str()).collect();
        let (first, next) = (&house.modules[circle[0]], names[1 % names.len()]);
        let line = first.imports.get(next).copied().unwrap_or(0);
        let what = format!("modules in a circle: {} → {}", names.join(" → "), names[0]);
        findings.extend(at_import(book, first, line, what));
    }
    findings
}

/// The chapter by which an import is judged. `lib.rs`, and the list of modules of a room, hold what
/// all chapters give them: there it is the chapter of the line.
fn own_chapter(module: &Module, import: &str, line: usize) -> usize {
    match module.file.lines.get(line) {
        Some(line) if is_below(import, &module.name) => line.block.chapter,
        _ => module.file.root.chapter,
    }
}

/// A finding at the line of the chapter that makes an import.
fn at_import(book: &Book, module: &Module, line: usize, what: String) -> Option<Finding> {
    let line = module.file.lines.get(line)?;
    Some(Finding::error(&book.chapters[line.block.chapter].path, (line.line, 1), what))
}

/// A shortest circle through the first node of each group of nodes that reach each other.
fn rounds(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
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

/// The module graph of `src/`: the rooms, each with its modules and the rooms it stands on, then each
/// chapter with its modules, each module with what it imports.
pub fn graph(book: &Book, tangled: &Tangled) -> String {
    let house = Crate::new(book, tangled);
    let mut text = String::new();
    if !house.rooms.is_empty() {
        let _ = writeln!(text, "rooms, each on the rooms above it");
    }
    let wide = house.rooms.iter().map(|room| room.chars().count()).max().unwrap_or(0);
    for (index, room) in house.rooms.iter().enumerate() {
        let inside: Vec<&Module> =
            house.modules.iter().filter(|module| house.room(&module.name) == Some(index)).collect();
        let below = inside.iter().filter_map(|module| module.name.strip_prefix(room.as_str()));
        let names: Vec<&str> = below.filter_map(|name| name.strip_prefix("::")).collect();
        let _ = writeln!(text, "    {}", list(&format!("{room:<wide$}  "), &names));
        let on: BTreeSet<usize> = inside
            .iter()
            .filter(|module| !module.test)
            .flat_map(|module| module.imports.keys())
            .filter_map(|import| house.room(import).filter(|&other| other != index))
            .collect();
        if !on.is_empty() {
            let on: Vec<&str> = on.iter().map(|&other| house.rooms[other].as_str()).collect();
            let _ = writeln!(text, "    {}", list(&format!("{:wide$}  ▶ ", ""), &on));
        }
    }
    if !house.rooms.is_empty() {
        let _ = writeln!(text, "modules, by chapter");
    }
    let width = house.modules.iter().map(|module| shown(module).chars().count()).max().unwrap_or(0);
    for (index, chapter) in book.chapters.iter().enumerate() {
        let here: Vec<&Module> =
            house.modules.iter().filter(|module| module.file.root.chapter == index).collect();
        if here.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}", title(chapter));
        for (position, module) in here.iter().enumerate() {
            let last = position + 1 == here.len();
            let (branch, trunk) = if last { ("└─", "  ") } else { ("├─", "│ ") };
            let imports: Vec<&str> = ordered(&house.modules, module);
            let name = shown(module);
            if imports.is_empty() || module.name.is_empty() {
                let _ = writeln!(text, "    {branch} {name}");
            } else {
                let gap = "─".repeat(width - name.chars().count() + 1);
                let lines = list(&format!("{branch} {name} {gap}▶ "), &imports);
                let _ =
                    writeln!(text, "    {}", lines.replace("\n      ", &format!("\n    {trunk}")));
            }
        }
    }
    text
}

/// Names after a `start`, in lines that stand below each other at a margin of four.
fn list(start: &str, names: &[&str]) -> String {
    let margin = start.chars().count();
    let mut text = start.to_string();
    let mut column = margin + 4;
    for (index, name) in names.iter().enumerate() {
        let comma = if index + 1 < names.len() { "," } else { "" };
        let length = name.chars().count() + comma.len();
        if index > 0 && column + 1 + length > WIDTH {
            let _ = write!(text, "\n    {}", " ".repeat(margin));
            column = margin + 4;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        let _ = write!(text, "{name}{comma}");
        column += length;
    }
    text.trim_end().to_string()
}

/// What a module imports, in the order of the book.
fn ordered<'a>(modules: &'a [Module], module: &Module) -> Vec<&'a str> {
    let imported = modules.iter().filter(|other| module.imports.contains_key(&other.name));
    imported.map(|other| other.name.as_str()).collect()
}

fn shown(module: &Module) -> String {
    if module.name.is_empty() { "lib (all modules)".to_string() } else { module.name.clone() }
}

fn title(chapter: &Chapter) -> String {
    match &chapter.number {
        Some(number) => format!("{number:>3} {}", chapter.title),
        None => format!("    {}", chapter.title),
    }
}
