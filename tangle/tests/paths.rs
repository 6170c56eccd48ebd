//! A book writes inside its repository and nowhere else, and never half a file.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::{HEADER, Repository, expanded};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Instant;

fn root_at(path: &str) -> String {
    format!("```rust file={path}\nevil\n```\n")
}

#[test]
fn paths_that_leave_the_repository_are_refused() {
    for (path, what) in [
        ("../x.rs", "../x.rs leaves the repository"),
        ("src/../../x.rs", "src/../../x.rs leaves the repository"),
        ("/tmp/x.rs", "/tmp/x.rs is not a path inside the repository"),
        ("C:\\x.rs", "C:\\x.rs is not a path inside the repository"),
        ("src\\..\\..\\x.rs", "src\\..\\..\\x.rs is not a path inside the repository"),
        ("./src/x.rs", "./src/x.rs is not a plain path"),
        ("src//x.rs", "src//x.rs is not a plain path"),
        ("src/", "src/ is not a plain path"),
        (".git/config", ".git/config lies in git's own folder"),
        ("", "a file without a path"),
    ] {
        let (files, findings) = expanded(&[&root_at(path)]);
        assert!(files.is_empty(), "{path}");
        assert_eq!(findings, [format!("book/src/one.md:1:1: {what}")]);
    }
}

#[cfg(unix)]
#[test]
fn links_are_refused_and_what_they_point_to_is_untouched() {
    use std::os::unix::fs::symlink;
    let outside = tempfile::tempdir().expect("a folder");
    let target = outside.path().join("x.rs");
    std::fs::write(&target, HEADER).expect("a file");

    let repository = Repository::new(&[("one.md", &root_at("src/x.rs"))]);
    symlink(outside.path(), repository.path("src")).expect("a link");
    let answer = repository.run(&[]);
    assert_eq!((answer.code, answer.out.as_str()), (1, ""));
    assert_eq!(answer.err, "book/src/one.md:1:1: src/x.rs is refused: src is a link\n");
    assert_eq!(std::fs::read_to_string(&target).expect("a file"), HEADER);

    let repository = Repository::new(&[("one.md", &root_at("src/x.rs"))]);
    repository.write("src/other.rs", "");
    symlink(&target, repository.path("src/x.rs")).expect("a link");
    let answer = repository.run(&[]);
    assert_eq!(answer.err, "book/src/one.md:1:1: src/x.rs is refused: src/x.rs is a link\n");
    assert_eq!(std::fs::read_to_string(&target).expect("a file"), HEADER);
    assert!(repository.path("src/x.rs").is_symlink());

    // Neither is anything removed through a link.
    repository.write("book/src/one.md", "");
    symlink(outside.path(), repository.path("kernels")).expect("a link");
    assert_eq!(repository.run(&[]).out, "");
    assert!(target.exists());
}

#[test]
fn a_file_that_is_not_ours_is_not_overwritten() {
    let repository = Repository::new(&[("one.md", &root_at("src/x.rs"))]);
    repository.write("src/x.rs", "mine\n");
    let answer = repository.run(&[]);
    let what = "book/src/one.md:1:1: src/x.rs is refused: a file without our header line is there";
    assert_eq!((answer.code, answer.err), (1, format!("{what}\n")));
    assert_eq!(repository.read("src/x.rs"), "mine\n");
    assert_eq!(repository.check(), [what]);
}

#[test]
fn a_folder_in_the_place_of_a_file_is_refused() {
    let repository = Repository::new(&[("one.md", &root_at("src/x.rs"))]);
    repository.write("src/x.rs/y", "");
    let answer = repository.run(&[]);
    assert_eq!(answer.err, "book/src/one.md:1:1: src/x.rs is refused: src/x.rs is no file\n");

    let repository = Repository::new(&[("one.md", &root_at("src/x/y.rs"))]);
    repository.write("src/x", "");
    let answer = repository.run(&[]);
    assert_eq!(answer.err, "book/src/one.md:1:1: src/x/y.rs is refused: src/x is no file\n");
}

/// Kills the program at many moments, and reads all the time; every file is an old one or a new
/// one, whole.
#[test]
fn an_interruption_leaves_old_files_or_new_ones() {
    const FILES: usize = 6;
    const ROUNDS: usize = 16;
    let code = |word: &str| format!("{}\n", word.repeat(250)).repeat(1000);
    let chapter = |word: &str| -> String {
        (0..FILES).map(|i| format!("```rust file=src/f{i}.rs\n{}```\n", code(word))).collect()
    };
    let words = ["old", "new"];
    let contents = words.map(|word| format!("{HEADER}{}", code(word)));
    let repository = Repository::new(&[("one.md", &chapter(words[0]))]);
    let start = Instant::now();
    repository.tangle();
    let whole = start.elapsed();
    let which = |file: usize| {
        let text = repository.read(&format!("src/f{file}.rs"));
        contents.iter().position(|content| *content == text).expect("neither old nor new")
    };
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = [false; 2];
            while !done.load(Ordering::Relaxed) {
                (0..FILES).for_each(|file| seen[which(file)] = true);
            }
            seen
        });
        for round in 0..ROUNDS {
            repository.write("book/src/one.md", chapter(words[(round / 4 + 1) % 2]));
            let mut child = Command::new(env!("CARGO_BIN_EXE_tangle"))
                .current_dir(repository.root())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the program runs");
            sleep(whole.mul_f64(1.5 * (round + 1) as f64 / ROUNDS as f64));
            // On a busy machine the program may not get far; each fourth one gets to its end.
            if round % 4 != 3 {
                let _ = child.kill();
            }
            child.wait().expect("an end");
            (0..FILES).for_each(|file| _ = which(file));
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("only whole files")
    });
    assert_eq!(seen, [true; 2], "old files and new ones have been read");
    // What an interrupted run leaves behind is no file of the program, and goes away.
    repository.run(&[]);
    let leftover = repository.files().keys().filter(|path| path.contains(".tangling")).count();
    assert_eq!(leftover, 0);
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("x.rs");
    std::fs::create_dir(&place).expect("a folder in the way");
    let why = tangle::tree::write(&place, "new").expect_err("a folder cannot be replaced");
    assert!(why.to_string().starts_with("cannot write "), "{why}");
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(names, ["x.rs"]);
}
