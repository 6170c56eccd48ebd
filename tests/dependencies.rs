//! Every package that the workspace builds with has a licence that deny.toml allows, and builds with the Rust that Cargo.toml promises.

use std::collections::BTreeSet;
use std::process::Command;

/// All packages of the workspace, on every platform and with all features.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--all-features", "--locked"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array_mut().unwrap();
    std::mem::take(packages)
}

fn text<'a>(package: &'a serde_json::Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or("none")
}

/// Whether an SPDX expression can be satisfied with the allowed licences; `/` is crates.io's old way to write OR.
fn satisfied(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    // Without nesting deeper than (A OR B) AND C, which is all that occurs, AND binds its neighbours' alternatives.
    expression
        .split(" AND ")
        .all(|clause| clause.split(" OR ").map(str::trim).any(|licence| allowed.contains(&licence)))
}

#[test]
fn licences_of_all_dependencies_are_allowed() {
    let deny: toml::Table = std::fs::read_to_string("deny.toml").unwrap().parse().unwrap();
    let allowed = deny["licenses"]["allow"].as_array().unwrap();
    let allowed: Vec<&str> = allowed.iter().map(|licence| licence.as_str().unwrap()).collect();
    let refused: Vec<String> = packages()
        .iter()
        .filter(|package| !satisfied(text(package, "license"), &allowed))
        .map(|package| format!("{}: {}", text(package, "name"), text(package, "license")))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn every_locked_package_is_checked() {
    let lock: toml::Table = std::fs::read_to_string("Cargo.lock").unwrap().parse().unwrap();
    let locked: BTreeSet<(String, String)> = lock["package"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            (package["name"].as_str().unwrap().into(), package["version"].as_str().unwrap().into())
        })
        .collect();
    let checked: BTreeSet<(String, String)> = packages()
        .iter()
        .map(|package| (text(package, "name").into(), text(package, "version").into()))
        .collect();
    assert_eq!(checked, locked);
}

#[test]
fn an_expression_needs_every_clause() {
    let allowed = ["MIT", "Zlib"];
    for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(MIT OR GPL-3.0) AND Zlib"] {
        assert!(satisfied(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "none", "MIT AND GPL-3.0", "(MIT OR Zlib) AND GPL-3.0"] {
        assert!(!satisfied(bad, &allowed), "{bad}");
    }
}

/// `1.95` or `1.95.0` as numbers.
fn version(text: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = text.split('.').map(|number| number.parse().unwrap()).collect();
    numbers.resize(3, 0);
    numbers
}

#[test]
fn no_dependency_needs_a_newer_rust_than_is_promised() {
    let packages = packages();
    let own = packages.iter().find(|package| package["name"] == "lenslet").unwrap();
    let promised = text(own, "rust_version");
    let newer: Vec<String> = packages
        .iter()
        .filter_map(|package| Some((text(package, "name"), package["rust_version"].as_str()?)))
        .filter(|(_, needed)| version(needed) > version(promised))
        .map(|(name, needed)| format!("{name} needs Rust {needed}; Cargo.toml promises {promised}"))
        .collect();
    assert!(newer.is_empty(), "{newer:#?}");
}
