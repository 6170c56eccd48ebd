//! Every package that the workspace builds with has a licence that deny.toml allows.

use std::process::Command;

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
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--all-features", "--locked"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "the whole graph is looked at");
    let refused: Vec<String> = packages
        .iter()
        .map(|package| (&package["name"], package["license"].as_str().unwrap_or("none")))
        .filter(|(_, licence)| !satisfied(licence, &allowed))
        .map(|(name, licence)| format!("{name}: {licence}"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
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
