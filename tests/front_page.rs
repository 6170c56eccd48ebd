//! The first page of the library's documentation.

const LIBRARY: &str = include_str!("../src/lib.rs");

/// The lines of the crate's documentation.
fn page() -> Vec<&'static str> {
    LIBRARY.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim).collect()
}

#[test]
fn the_front_page_names_all_modules() {
    let rows: Vec<&str> = page().into_iter().filter(|line| line.starts_with("| [`")).collect();
    let modules: Vec<&str> = LIBRARY
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod "))
        .filter_map(|rest| rest.strip_suffix(';'))
        .collect();
    assert!(modules.len() > 10, "{modules:?}");
    for module in modules {
        let link = format!("[`{module}`]");
        assert!(rows.iter().any(|row| row.contains(&link)), "{module} is not in the table");
    }
}

#[test]
fn the_front_page_has_five_examples_with_numbers() {
    let text = page().join("\n");
    let blocks: Vec<&str> = text.split("```").skip(1).step_by(2).collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        assert!(block.starts_with('\n') && block.contains("assert"), "{block}");
    }
    assert!(!text.contains("!["), "a picture would need a file beside the page");
}

#[test]
fn the_examples_of_the_readme_are_compiled_with_the_library() {
    let gate = "#[cfg(doctest)]\n#[doc = include_str!(\"../README.md\")]\n";
    assert_eq!(LIBRARY.matches("README.md").count(), 1);
    assert!(LIBRARY.contains(gate));
}
