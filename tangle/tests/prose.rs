//! `check --prose`: what only new prose can correct, and how long the parts are.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::Repository;

const SUMMARY: &str = "# Book\n\n[Before](before.md)\n\n# I Air\n\n- [One](one.md)\n- [Two](two.md)\n\n\
                       # II Light\n\n- [Three](three.md)\n\n# Appendix A Tools\n\n- [Four](four.md)\n\n\
                       # Appendix B\n\n- [Five](five.md)\n";

const DRAWING: &str = "![a wave](wave.svg)\n\n";

/// What `check --prose` prints of a book with these chapters; the appendices have early equations.
fn prose(one: &str, two: &str, three: &str) -> String {
    let repository = Repository::new(&[
        ("before.md", "# Before\n\n$$ a $$\n"),
        ("one.md", one),
        ("two.md", two),
        ("three.md", three),
        ("four.md", "# Four\n\n$$ a $$\n"),
        ("five.md", "# Five\n\n$$ a $$\n"),
        ("wave.svg", ""),
    ]);
    repository.write("book/src/SUMMARY.md", SUMMARY);
    let before = repository.files();
    let answer = repository.run(&["check", "--prose"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    assert_eq!(repository.files(), before, "check --prose writes nothing");
    answer.out
}

/// A chunk of some lines.
fn chunk(info: &str, lines: usize) -> String {
    format!("```{info}\n{}```\n\n", "x\n".repeat(lines))
}

#[test]
fn a_book_that_follows_the_rules_is_only_measured() {
    let one = format!(
        "# One\n\nThree words here.\n\n{DRAWING}$$ a = b $$\n\n{}Words.\n\n{}{}\nAs in the \
         [next chapter](two.md):\n\n{}",
        chunk("rust #a first thing", 30),
        chunk("cuda #a second thing fold", 3),
        // Neither is open code of the program.
        chunk("rust #a folded thing fold", 40) + &chunk("rust", 40),
        chunk("rust #a third thing", 4),
    );
    assert_eq!(
        prose(&one, "# Two\n\nWords - $x$ and more.\n", "# Three\n"),
        "open chunks without prose since the previous chunk: 0\n\
         \n\
         narrative chapters with an equation before any drawing: 0\n\
         \n\
         links to the next, previous, last or first chapter that is another: 0\n\
         \n\
         part                 chapters  words  open  folded  median  largest  at\n\
         (outside the parts)         1      0     0       0       -        -\n\
         I Air                       2     15    34      43      17       30  book/src/one.md:9\n\
         II Light                    1      0     0       0       -        -\n\
         Appendix A Tools            1      0     0       0       -        -\n\
         Appendix B                  1      0     0       0       -        -\n\
         whole book                  6     15    34      43      17       30  book/src/one.md:9\n"
    );
}

#[test]
fn lines_of_comments_that_the_page_hides_are_folded() {
    let comment = "/// One.\n/// Two.\n///\n/// Four.\n";
    let one = format!(
        "# One\n\nWords.\n\n```rust #a first thing\n{comment}{}```\n\n\
         Words.\n\n```rust #a second thing\n{}\nx\n```\n",
        "x\n".repeat(29),
        comment.trim_start_matches("/// One.\n"),
    );
    let answer = prose(&one, "# Two\n", "# Three\n");
    let line =
        "I Air                       2      2    35       3    17.5       30  book/src/one.md:5\n";
    assert!(answer.contains(line), "{line}{answer}");
}

#[test]
fn what_only_new_prose_corrects_is_counted_most_first() {
    let one = format!("# One\n\n$$ a $$\n\n{DRAWING}{}", chunk("rust #a first thing", 2));
    let two = format!(
        "# Two\n\nWords.\n\n{}## A heading\n\n$$ a = b $$\n\n<!-- a comment -->\n\n{}{}",
        chunk("toml #a first table", 40),
        chunk("cuda #a second thing", 31),
        chunk("rust #a third thing", 33),
    );
    let three = format!("# Three\n\nThe [first chapter](two.md).\n\n{}", {
        chunk("rust #a fourth thing", 1)
            + &chunk("rust #a fifth thing", 1)
            + &chunk("rust #a sixth thing", 1)
            + &chunk("rust #the last thing", 1)
    });
    assert_eq!(
        prose(&one, &two, &three),
        "open chunks without prose since the previous chunk: 5\n  \
           3 II Light\n    \
             3 book/src/three.md: 9, 13, 17\n  \
           2 I Air\n    \
             2 book/src/two.md: 54, 88\n\
         \n\
         narrative chapters with an equation before any drawing: 2\n  \
           2 I Air\n    \
             1 book/src/one.md: 3\n    \
             1 book/src/two.md: 50\n\
         \n\
         links to the next, previous, last or first chapter that is another: 1\n  \
           1 II Light\n    \
             1 book/src/three.md: 3\n\
         \n\
         part                 chapters  words  open  folded  median  largest  at\n\
         (outside the parts)         1      0     0       0       -        -\n\
         I Air                       2      3    66       0      31       33  book/src/two.md:88\n\
         II Light                    1      3     4       0       1        1  book/src/three.md:5\n\
         Appendix A Tools            1      0     0       0       -        -\n\
         Appendix B                  1      0     0       0       -        -\n\
         whole book                  6      6    70       0       1       33  book/src/two.md:88\n"
    );
}
