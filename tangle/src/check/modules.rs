//! The order of imports, by chapters and by rooms.
//!
//! A module of a numbered part imports from its own chapter and from earlier ones. It may also import from
//! an appendix, if what it imports there imports nothing from the parts, directly or through others. A
//! module of an appendix may import from any chapter. Every module imports from its own room and from
//! earlier ones, and no module imports itself through others.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::chapter::Chapter;
use crate::expand::Tangled;
use crate::finding::Finding;
use crate::imports::{Crate, Module, is_below, rounds};
use crate::volume::Book;

/// The columns that the graph keeps to.
const WIDTH: usize = 100;

/// Imports that the order of chapters or that of rooms forbids, and circles.
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
            let path = &module.file.path;
            if let Some(why) = misplaced(book, &house, own_chapter(module, import, line), to) {
                let what = format!("{path} imports {import}, which {why}");
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
        let what = format!("modules import each other: {} → {}", names.join(" → "), names[0]);
        findings.extend(at_import(book, first, line, what));
    }
    findings
}

/// Why a chapter must not import the module at `to`, if the order of the book forbids it.
fn misplaced(book: &Book, house: &Crate, ours: usize, to: usize) -> Option<String> {
    let theirs = house.modules[to].file.root.chapter;
    let title = &book.chapters[theirs].title;
    if book.chapters[ours].in_appendix() {
        None
    } else if book.chapters[theirs].in_appendix() {
        let (name, part) = needed_part(book, house, to)?;
        Some(format!(
            "an appendix defines ({title}) and which imports {name} of the part {part}: what a part \
             imports from an appendix imports nothing from the parts"
        ))
    } else {
        (theirs > ours).then(|| format!("a later chapter defines: {title}"))
    }
}

/// A module of a part that the module at `from` imports, directly or through others of appendices, and
/// the title of that part.
fn needed_part<'a>(book: &'a Book, house: &'a Crate, from: usize) -> Option<(&'a str, &'a str)> {
    let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(at) = open.pop() {
        for name in house.modules[at].imports.keys() {
            let Some(next) = house.modules.iter().position(|other| other.name == *name) else {
                continue;
            };
            let chapter = &book.chapters[house.modules[next].file.root.chapter];
            if !chapter.in_appendix() {
                return Some((name, chapter.part.as_deref().unwrap_or(&chapter.title)));
            }
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    None
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
