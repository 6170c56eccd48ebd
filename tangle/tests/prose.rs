//! `check --prose`: what only new prose can correct; and `check --lengths`: how long the parts are.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::Repository;

const SUMMARY: &str = "# Book\n\n[Before](before.md)\n\n# I Air\n\n- [One](one.md)\n- [Two](two.md)\n\n\
                       # II Light\n\n- [Three](three.md)\n\n# Appendix A Tools\n\n- [Four](four.md)\n\n\
                       # Appendix B\n\n- [Five](five.md)\n";

const DRAWING: &str = "![a wave](wave.svg)\n\n";

/// What `check` with an option prints of a book with these chapters; the appendices have early equations.
fn printed(option: &str, one: &str, two: &str, three: &str) -> String {
    let repository = Repository::new(&[
        ("before.md", "# Before\n\n$$ a $$\n"),
        ("one.md", one),
        ("two.md", two),
        ("three.md", three),
        ("four.md", "# Four\n\n$$ a $$\n"),
        ("five.md", "# Five\n\n$$ a $$\n"),
        ("wave.svg", ""),
        ("numbers.txt", "It is 4.3301.\n"),
    ]);
    repository.write("book/src/SUMMARY.md", SUMMARY);
    let before = repository.files();
    let answer = repository.run(&["check", option]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    assert_eq!(repository.files(), before, "{option} writes nothing");
    answer.out
}

/// A chunk of some lines.
fn chunk(info: &str, lines: usize) -> String {
    format!("```{info}\n{}```\n\n", "x\n".repeat(lines))
}

/// The paragraphs that `check --prose` prints of a book with these chapters.
fn prose(one: &str, two: &str, three: &str) -> Vec<String> {
    let text = printed("--prose", one, two, three);
    text.trim_end().split("\n\n").map(str::to_string).collect()
}

/// A chapter of the narrative that follows all rules, without its title.
fn sound() -> String {
    let open = format!("Why so, in five words or more.\n\n{}", chunk("rust #a sound thing", 1));
    let question = format!("> How large is it?\n\n{DRAWING}$$ a = b $$\n\n{open}");
    let headings = "## Worked case\n\nIt is 4.32 m.\n\n```rust\nassert_eq!(x, 4.3211);\n```\n\n## What can go wrong\n\n\
                    ## Check\n\nAs in [@noll-1976].\n\n## Exercises\n\n1. *5 min.* A.\n2. *30 min.* B.\n3. *2 h.* C.\n\n\
                    ## Further reading\n\n[@noll-1976].\n";
    format!("{question}{headings}")
}

#[test]
fn nothing_is_printed_of_a_book_that_follows_the_rules() {
    let one = format!("# One\n\n{}", sound());
    let other = sound().replace("a sound thing", "another sound thing");
    let opening = "# Three\n\n> What is light?\n\n![The sky](wave.svg)\n\n{{#part-map}}\n";
    assert_eq!(printed("--prose", &one, &format!("# Two\n\n{other}"), opening), "");
}

#[test]
fn each_rule_that_a_chapter_does_not_follow_is_printed() {
    let whole = format!("# One\n\n{}", sound());
    let two = format!("# Two\n\n{}", sound().replace("a sound thing", "another sound thing"));
    let opening = "# Three\n\n> What is light?\n\n![The sky](wave.svg)\n\n{{#part-map}}\n";
    let cases = [
        (
            "> How large is it?\n\n",
            "",
            "narrative chapters that do not begin with their question: 1\n  1 I Air\n    1 book/src/one.md: 1",
        ),
        (
            "](wave.svg)",
            "](figures/wave.svg)",
            "captions of figures without a number: 1\n  1 I Air\n    1 book/src/one.md: 5",
        ),
        (
            "1. *5 min.* A",
            "1. *Easy.* A",
            "exercises that are not rated by time: 1\n  1 I Air\n    1 book/src/one.md: 31",
        ),
        (
            "As in",
            "Beside what is in",
            "phrases that plain ones should replace: 1\n  1 I Air\n    1 book/src/one.md: 27",
        ),
        (
            "4.32 m",
            "4.33 m",
            "numbers of three or more digits without a source: 1\n  1 I Air\n    1 book/src/one.md: 17",
        ),
        (
            "## Worked case",
            "## Numbers",
            "main chapters without a worked case: 1\n  1 I Air\n    1 book/src/one.md: 1",
        ),
        (
            "## What can go wrong",
            "## Faults",
            "main chapters without what can go wrong: 1\n  1 I Air\n    1 book/src/one.md: 1",
        ),
        (
            "## Check",
            "## Trial",
            "main chapters without a check: 1\n  1 I Air\n    1 book/src/one.md: 1",
        ),
        (
            "3. *2 h.* C.\n",
            "",
            "main chapters with fewer than three exercises: 1\n  1 I Air\n    1 book/src/one.md: 1",
        ),
        (
            "## Further reading",
            "## Sources",
            "main chapters without further reading: 1\n  1 I Air\n    1 book/src/one.md: 1",
        ),
        (
            "[@noll-1976]",
            "Noll",
            "main chapters without a citation: 1\n  1 I Air\n    1 book/src/one.md: 1",
        ),
        (
            "Why so, in five words or more.",
            "As",
            "narrative parts with fewer than five words for each open line of code: 1\n  3.3 I Air",
        ),
    ];
    for (from, to, expected) in cases {
        let one = match to {
            // Few words for many lines of code.
            "As" => whole.replace(from, to).replace("x\n```", &("x\n".repeat(17) + "```")),
            _ => whole.replace(from, to),
        };
        assert_ne!(one, whole, "{from}");
        let found = prose(&one, &two, opening);
        assert_eq!(found, [expected], "{from}");
    }
    let bare = "# Three\n\n> What is light?\n\n{{#part-map}}\n";
    let expected = "parts that open without a picture: 1\n  1 II Light\n    1 book/src/three.md: 1";
    assert_eq!(prose(&whole, &two, bare), [expected]);
    let named = "4.33 m, as `book/src/numbers.txt` has";
    assert_eq!(printed("--prose", &whole.replace("4.32 m", named), &two, opening), "");
    let undrawn = whole.replace(DRAWING, "");
    let found = prose(&undrawn, &two, opening);
    assert!(
        found.contains(
            &"main chapters without a picture: 1\n  1 I Air\n    1 book/src/one.md: 1".to_string()
        ),
        "{found:?}"
    );
}

#[test]
fn a_book_is_measured() {
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
        printed("--lengths", &one, "# Two\n\nWords - $x$ and more.\n", "# Three\n"),
        "part                 chapters  words  open  folded  median  largest  at\n\
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
    let answer = printed("--lengths", &one, "# Two\n", "# Three\n");
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
    let expected = [
        "open chunks without prose since the previous chunk: 5\n  3 II Light\n    3 book/src/three.md: 9, 13, 17\n  \
         2 I Air\n    2 book/src/two.md: 54, 88",
        "links to the next, previous, last or first chapter that is another: 1\n  1 II Light\n    1 book/src/three.md: 3",
        "narrative chapters with an equation before any drawing: 2\n  2 I Air\n    1 book/src/one.md: 3\n    \
         1 book/src/two.md: 50",
    ];
    assert_eq!(prose(&one, &two, &three)[..3], expected);
}
