//! Who imports whom: a module may import only from its own chapter and from earlier ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::chapter::Chapter;
use crate::expand::{File, Tangled};
use crate::finding::Finding;
use crate::rust;
use crate::text::setting;
use crate::volume::Book;

/// A tangled module of the crate.
struct Module<'a> {
    /// `covariance::slope`; empty for `lib.rs`.
    name: String,
    file: &'a File,
    /// Imported modules, and the first line (from 0) that names each.
    imports: BTreeMap<String, usize>,
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

fn modules<'a>(book: &Book, tangled: &'a Tangled) -> Vec<Module<'a>> {
    let named: Vec<(String, &File)> = tangled
        .files
        .values()
        .filter_map(|file| module_name(&file.path).map(|name| (name, file)))
        .collect();
    let known: BTreeSet<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    let package = crate_name(book);
    let imports = |name: &str, file: &File| {
        let mut imports = BTreeMap::new();
        for (line, path) in rust::paths(&file.content(), &package, name) {
            // The deepest module that the path goes through.
            let mut parts: Vec<&str> = path.split("::").collect();
            while !parts.is_empty() && !known.contains(parts.join("::").as_str()) {
                parts.pop();
            }
            let found = parts.join("::");
            if !found.is_empty() && found != name && found != "main" {
                imports.entry(found).or_insert(line);
            }
        }
        imports
    };
    let mut modules: Vec<Module> = named
        .iter()
        .map(|(name, file)| Module { name: name.clone(), file, imports: imports(name, file) })
        .collect();
    modules.sort_by_key(|module| (module.file.root, module.name.clone()));
    modules
}

/// Imports from a later chapter. `lib.rs` holds what all chapters give it, so that there the
/// chapter of the line counts.
pub fn check(book: &Book, tangled: &Tangled) -> Vec<Finding> {
    let modules = modules(book, tangled);
    let home: BTreeMap<&str, usize> =
        modules.iter().map(|module| (module.name.as_str(), module.file.root.chapter)).collect();
    let mut findings = Vec::new();
    for module in &modules {
        for (import, &line) in &module.imports {
            let Some(line) = module.file.lines.get(line) else { continue };
            let Some(&theirs) = home.get(import.as_str()) else { continue };
            let ours = match module.name.as_str() {
                "" => line.block.chapter,
                _ => module.file.root.chapter,
            };
            if theirs > ours {
                let what = format!(
                    "{} imports {import}, which a later chapter defines: {}",
                    module.file.path, book.chapters[theirs].title
                );
                let path = &book.chapters[line.block.chapter].path;
                findings.push(Finding::error(path, (line.line, 1), what));
            }
        }
    }
    findings
}

/// The module graph of `src/`: each chapter with its modules, each module with what it imports.
pub fn graph(book: &Book, tangled: &Tangled) -> String {
    let modules = modules(book, tangled);
    let mut text = String::new();
    let width = modules.iter().map(|module| shown(module).chars().count()).max().unwrap_or(0);
    for (index, chapter) in book.chapters.iter().enumerate() {
        let here: Vec<&Module> =
            modules.iter().filter(|module| module.file.root.chapter == index).collect();
        if here.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}", title(chapter));
        for (position, module) in here.iter().enumerate() {
            let branch = if position + 1 == here.len() { "└─" } else { "├─" };
            let imports: Vec<&str> = ordered(&modules, module);
            let name = shown(module);
            if imports.is_empty() || module.name.is_empty() {
                let _ = writeln!(text, "    {branch} {name}");
            } else {
                let gap = "─".repeat(width - name.chars().count() + 1);
                let _ = writeln!(text, "    {branch} {name} {gap}▶ {}", imports.join(", "));
            }
        }
    }
    text
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
