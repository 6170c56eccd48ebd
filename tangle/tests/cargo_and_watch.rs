//! Compiler messages at the chapters' lines, and tangling on save.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::{HEADER, Repository};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A crate whose only fault stands in a chunk, far down in its chapter.
fn faulty() -> Repository {
    let prose = "Words.\n".repeat(1200);
    let one = format!(
        "```rust file=src/lib.rs\n/// Adds one.\npub fn f(x: u32) -> u32 {{\n    \
         // <<add one to it>>\n}}\n```\n\n{prose}\n```rust #add one to it\nlet y: u32 = \"one\";\n\
         x + y\n```\n"
    );
    let repository = Repository::new(&[("one.md", &one)]);
    repository
        .write("Cargo.toml", "[package]\nname = \"small\"\nedition = \"2024\"\n[workspace]\n");
    repository
}

/// Where the chunk's first line is in the chapter.
const LINE: usize = 1210;

#[test]
fn rustc_speaks_of_the_chapter() {
    let repository = faulty();
    let answer = repository.run(&["cargo", "check", "--offline", "--color", "never"]);
    assert_eq!(answer.code, 101, "{answer:?}");
    assert_eq!(repository.read("src/lib.rs").lines().next(), Some(HEADER.trim_end()));
    let start = answer.err.find("error[E0308]").expect("the error");
    let expected = format!(
        "error[E0308]: mismatched types
    --> book/src/one.md:{LINE}:14
     |
{LINE} |     let y: u32 = \"one\";
     |            ---   ^^^^^ expected `u32`, found `&str`
     |            |
     |            expected due to this

"
    );
    let shown = &answer.err[start..];
    assert!(shown.starts_with(&expected), "{shown}");
    assert_eq!(answer.out, "");
}

#[test]
fn colours_are_kept() {
    let repository = faulty();
    let answer = repository.run(&["cargo", "check", "--offline", "--color=always"]);
    assert_eq!(answer.code, 101);
    assert!(answer.err.contains("\u{1b}["), "{}", answer.err);
    assert!(answer.err.contains(&format!("book/src/one.md:{LINE}:14")), "{}", answer.err);
    let mut plain = String::new();
    let mut rest = answer.err.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let line =
        format!("{LINE} |     let y: u32 = \"one\";\n     |            ---   ^^^^^ expected");
    assert!(plain.contains(&line), "{plain}");
}

#[test]
fn other_commands_arguments_and_exit_codes_pass_through() {
    let one = "\n\n```rust file=src/main.rs\nfn main() {\n    // <<say it all>>\n}\n```\n\
               ```rust #say it all\nprintln!(\"{:?}\", std::env::args().nth(1));\n\
               println!(\"see src/main.rs:4:1\");\nstd::process::exit(7);\n```\n";
    let repository = Repository::new(&[("one.md", one)]);
    repository
        .write("Cargo.toml", "[package]\nname = \"small\"\nedition = \"2024\"\n[workspace]\n");
    let answer = repository.run(&["cargo", "run", "--offline", "--quiet", "--", "--color=x"]);
    assert_eq!(answer.code, 7, "{answer:?}");
    assert_eq!(answer.out, "Some(\"--color=x\")\nsee book/src/one.md:9:1\n");
    let answer = repository.run(&["cargo", "--version"]);
    assert_eq!(answer.code, 0);
    assert!(answer.out.starts_with("cargo 1."), "{answer:?}");
    assert_eq!(repository.run(&["cargo", "no-such-command"]).code, 101);
}

#[test]
fn a_saved_chapter_is_tangled() {
    let repository = Repository::new(&[("one.md", "```rust file=src/lib.rs\na\n```\n")]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_tangle"))
        .arg("watch")
        .current_dir(repository.root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let wait_for = |letter: &str| {
        let start = Instant::now();
        let content = format!("{HEADER}{letter}\n");
        while start.elapsed() < Duration::from_secs(20) {
            if std::fs::read_to_string(repository.path("src/lib.rs")).is_ok_and(|t| t == content) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    };
    let mut seen = Vec::new();
    for letter in ["a", "bb", "ccc"] {
        repository.write("book/src/one.md", format!("```rust file=src/lib.rs\n{letter}\n```\n"));
        seen.push(wait_for(letter));
    }
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(seen, [true; 3]);
}
