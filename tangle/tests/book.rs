//! A small book, written here, rendered, and looked at.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests
#![cfg(feature = "book")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::RwLock;
use std::sync::atomic::AtomicUsize;

use tangle::book::pdf::Sheet;
use tangle::book::progress::Progress;
use tangle::book::{
    BookError, build, finish, keys, math_findings, names, options, search, serve::Site,
};
use tangle::{Book, live};
use tempfile::TempDir;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const SUMMARY: &str =
    "# Contents\n\n[Before](before.md)\n\n- [Optics](optics.md)\n- [Waves](waves.md)\n";
const BEFORE: &str = "# Before\n\nSee $\\eqref{eq:wave}$ and $\\eqref{eq:lens}$.\n";
const OPTICS: &str = "# Optics

$f$ begins a paragraph, with $x_1 * y_1 * z$ in *it*.

$$
\\frac1f = \\frac1a + \\frac1b \\label{eq:lens}
$$

```rust file=src/optics.rs
//! Lenses, Eq. `[eq:lens]` and [eq:wave].

// <<focus for a lens>>

/// Never hidden.
const TEXT: &str = \"
# a line that starts like a hidden one {{#include optics.md}}
\";
```

```rust #focus for a lens
/// Focal length, `a << 1 > 0 && \"x\"`.
pub fn focus(a: f64, b: f64) -> f64 {
    a * b / (a + b)
}
```

![The *lens* with $f = [1]$ m](figures/lens.svg)
";
const WAVES: &str = "# Waves

## The size of $\\lambda$

Between two displays.

$$
c = \\lambda \\nu
\\label{eq:speed}
$$

$$
\\psi'' = -k^2 \\psi
\\label{eq:wave}
$$

Not in vain: $$ \\alpha = \\eqref{eq:lens} $$ and on.

```rust #focus for a lens
impl Wave<'_> {
    /// Colour of the wave.
    pub fn colour(&self) -> f64 {
        // <<look up the colour>>
    }
}
```

```rust #look up the colour
1.0
```

```cuda file=kernels/waves.cu
extern \"C\" __global__ void waves(double *psi) { psi[0] = 1 << 2; }
```
";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A repository with these chapters, dressed as the real one.
fn book(chapters: &[(&str, &str)]) -> Outcome<TempDir> {
    let folder = TempDir::new()?;
    let (book, real) = (folder.path().join("book"), repository().join("book"));
    for part in ["theme", "katex", "src/katex", "src/theme"] {
        copy(&real.join(part), &book.join(part))?;
    }
    fs::copy(real.join("book.toml"), book.join("book.toml"))?;
    fs::create_dir_all(book.join("src/figures"))?;
    fs::write(book.join("src/figures/lens.svg"), "<svg xmlns=\"http://www.w3.org/2000/svg\"/>")?;
    for (file, text) in chapters {
        fs::write(book.join("src").join(file), text)?;
    }
    Ok(folder)
}

fn whole() -> Outcome<TempDir> {
    let chapters = [("before.md", BEFORE), ("optics.md", OPTICS), ("waves.md", WAVES)];
    let folder = book(&chapters)?;
    fs::write(folder.path().join("book/src/SUMMARY.md"), SUMMARY)?;
    Ok(folder)
}

/// A book of one chapter, `bad.md`.
fn single(text: &str) -> Outcome<TempDir> {
    book(&[("SUMMARY.md", "- [Bad](bad.md)\n"), ("bad.md", text)])
}

fn page(folder: &TempDir, name: &str) -> Outcome<String> {
    let page = fs::read_to_string(folder.path().join("book/build").join(name))?;
    let start = page.find("<main>").ok_or("no main part")?;
    let end = page.find("</main>").ok_or("no main part")?;
    Ok(page[start..end].to_string())
}

/// The page of all chapters, as it is printed, with these page numbers in its table of contents.
fn sheet(folder: &TempDir, pages: &[(&str, usize)]) -> Outcome<String> {
    let sheet = Sheet::new(folder.path(), false, true, &Progress::start())?;
    let pages = pages.iter().map(|&(anchor, page)| (anchor.to_string(), page)).collect();
    Ok(sheet.html(&pages))
}

fn contains(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
}

/// What the findings of a failed rendering say.
fn faults(folder: &TempDir) -> Vec<String> {
    match build(folder.path(), true) {
        Err(BookError::Findings(findings)) => findings.iter().map(ToString::to_string).collect(),
        other => vec![format!("{other:?}")],
    }
}

#[test]
fn chunks_are_named_and_linked() -> Outcome {
    let folder = whole()?;
    let report = build(folder.path(), true)?;
    assert_eq!((report.chapters, report.drawn), (3, 0));
    let optics = page(&folder, "optics.html")?;
    contains(
        &optics,
        &[
            "<div class=\"chunk root\" id=\"file-src-optics-rs\">",
            "⟨<code>src/optics.rs</code>⟩ ≡",
            "href=\"#chunk-focus-for-a-lens\" title=\"defined in Optics\">⟨focus for a lens⟩</a>",
            "⟨<a href=\"#chunk-focus-for-a-lens\">focus for a lens</a>⟩ ≡",
            "continued <a href=\"waves.html#chunk-focus-for-a-lens.2\">in <cite>Waves</cite></a>",
            "Used in ⟨<a href=\"#file-src-optics-rs\"><code>src/optics.rs</code></a>⟩",
            "a &lt;&lt; 1 &gt; 0 &amp;&amp; \"x\"",
            "\n# a line that starts like a hidden one {{#include optics.md}}\n",
        ],
    );
    let waves = page(&folder, "waves.html")?;
    contains(
        &waves,
        &[
            "⟨<a href=\"optics.html#chunk-focus-for-a-lens\">focus for a lens</a>⟩ +≡",
            "continued from <a href=\"optics.html#chunk-focus-for-a-lens\"><cite>Optics</cite></a>",
            "        <span class=\"slashes\">// </span><a class=\"chunk-reference\" \
             href=\"#chunk-look-up-the-colour\"",
            "Used in ⟨<a href=\"#chunk-focus-for-a-lens.2\">focus for a lens</a>⟩",
            "<code class=\"language-cpp\">extern",
        ],
    );
    Ok(())
}

#[test]
fn folded_chunks_are_closed_lines_with_all_their_links() -> Outcome {
    let folder = single(
        "# Bad\n\n```rust file=src/x.rs\n// <<tests of the lens>>\n```\n\n\
         ```rust #tests of the lens fold\n/// Costs `$a` & more.\npub fn aard_vark() {}\n\n\
         pub fn next() {}\n```\n\n```rust #tests of the lens\nlast();\n```\n",
    )?;
    build(folder.path(), true)?;
    let bad = page(&folder, "bad.html")?;
    contains(
        &bad,
        &[
            "<details class=\"chunk folded\" id=\"chunk-tests-of-the-lens\">\
             <summary class=\"chunk-name\"><span>⟨tests of the lens⟩ ≡</span>",
            "continued <a href=\"#chunk-tests-of-the-lens.2\">below</a>",
            "folded: <code>src/x.rs</code>, lines 3 to 6</span></summary>",
            "/// Costs `$a` &amp; more.\npub fn aard_vark() {}\n\npub fn next() {}\n</code></pre>",
            "Used in ⟨<a href=\"#file-src-x-rs\"><code>src/x.rs</code></a>⟩</div>",
            "<div class=\"chunk\" id=\"chunk-tests-of-the-lens.2\">",
            "href=\"#chunk-tests-of-the-lens\" title=\"defined in Bad\">",
        ],
    );
    assert_eq!(bad.matches("<details").count(), 1);
    contains(
        &page(&folder, "identifier-index.html")?,
        &["<code>aard_vark</code>", "href=\"bad.html#chunk-tests-of-the-lens\""],
    );
    contains(&page(&folder, "chunk-index.html")?, &["\"bad.html#chunk-tests-of-the-lens\""]);
    // The search finds public items by their names; all code would make its index several times as large.
    let index = fs::read_to_string(folder.path().join("book/build/searchindex.js"))?;
    assert!(index.contains("bad.html#bad") && !index.contains("Costs"));
    let index = search::parse(&index).ok_or("an index")?;
    let place = &index["named"]["names"]["aard_vark"][0];
    let place = &index["named"]["places"][usize::try_from(place.as_u64().ok_or("no place")?)?];
    assert_eq!(place[0], "bad.html#chunk-tests-of-the-lens");
    let whole = fs::read_to_string(folder.path().join("book/build/bad.html"))?;
    // Folds are opened by the switch first, then by the address and by words that are sought.
    let scripts: Vec<&str> = whole.split("<script src=\"theme/").skip(1).collect();
    let names: Vec<&str> = scripts.iter().filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(names, ["comments.js", "expansions.js", "code-switch.js", "folds.js", "sidebar.js"]);
    for name in names {
        assert!(folder.path().join("book/build/theme").join(name).is_file(), "{name}");
    }
    Ok(())
}

#[test]
fn long_comments_of_open_code_show_their_first_sentence() -> Outcome {
    let folder = single(
        "# Bad\n\n```rust file=src/x.rs\n// <<a lens of glass>>\n```\n\n\
         ```rust #a lens of glass\nimpl Lens {\n    /// Focal length.\n    ///\n    /// Rest & more.\n    /// Last.\n    \
         pub fn focus() {}\n}\n```\n\n\
         ```rust #a lens of glass fold\n/// One.\n/// Two.\n/// Three.\n/// Four.\npub fn next() {}\n```\n",
    )?;
    build(folder.path(), true)?;
    let bad = page(&folder, "bad.html")?;
    contains(
        &bad,
        &[
            "impl Lens {\n    /// Focal length.<button type=\"button\" class=\"comment-more\" aria-expanded=\"false\" \
             aria-label=\"the rest of this comment\"></button>\n\
             <span class=\"comment-rest\" hidden=\"until-found\">    ///\n    /// Rest &amp; more.\n    /// Last.\n</span>    \
             pub fn focus() {}\n}\n</code>",
            "/// One.\n/// Two.\n/// Three.\n/// Four.\npub fn next() {}\n</code>",
        ],
    );
    assert_eq!(bad.matches("comment-rest").count(), 1);
    // On paper the whole text is shown.
    contains(&sheet(&folder, &[])?, &["    /// Rest &amp; more.\n    /// Last.\n</span>"]);
    let style = fs::read_to_string(repository().join("book/theme/lenslet.css"))?;
    let print = style.split("@media print").nth(1).ok_or("no rules for paper")?;
    contains(
        print,
        &[".comment-rest { content-visibility: visible !important; }", ".comment-more"],
    );
    Ok(())
}

#[test]
fn a_page_holds_the_code_that_its_references_expand_to() -> Outcome {
    let folder = whole()?;
    build(folder.path(), true)?;
    let (optics, waves) = (page(&folder, "optics.html")?, page(&folder, "waves.html")?);
    // The second part of "focus for a lens", and what that refers to, are in the other chapter.
    contains(
        &optics,
        &[
            "<a class=\"chunk-reference\" data-parts=\"chunk-focus-for-a-lens chunk-focus-for-a-lens.2\" href=\"#",
            "<template data-chunk=\"chunk-focus-for-a-lens.2\"><code class=\"language-rs\">impl Wave",
            "href=\"waves.html#chunk-look-up-the-colour\" title=\"defined in Waves\">",
            "<template data-chunk=\"chunk-look-up-the-colour\"><code class=\"language-rs\">1.0\n</code></template>",
        ],
    );
    assert_eq!(optics.matches("<template").count(), 2);
    // The other page has all of its own, and a chunk in one part needs no list.
    assert!(!waves.contains("<template") && !waves.contains("data-parts"));
    assert!(!page(&folder, "before.html")?.contains("<template"));
    let printed = sheet(&folder, &[])?;
    assert!(!printed.contains("<template data-chunk") && !printed.contains("<!--e:"));
    for name in ["optics.html", "waves.html", "symbol-index.html"] {
        assert!(!page(&folder, name)?.contains("<!--"), "{name}");
    }
    Ok(())
}

#[test]
fn parts_are_drawn_and_nested_chapters_numbered() -> Outcome {
    let folder = whole()?;
    let summary = "# Contents\n\n[Before](before.md)\n\n# Light\n\n- [Light itself](light.md)\n\
                   - [Optics](optics.md)\n  - [Waves](waves.md)\n";
    fs::write(folder.path().join("book/src/SUMMARY.md"), summary)?;
    fs::write(
        folder.path().join("book/src/light.md"),
        "# Light\n\nIts map:\n\n{{#part-map}}\n\nDone.\n",
    )?;
    build(folder.path(), true)?;
    let light = page(&folder, "light.html")?;
    contains(
        &light,
        &[
            "<p>Its map:</p>\n<figure class=\"part-map\">",
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewbox=\"",
            "<a href=\"optics.html#optics\"><text",
            "<a href=\"waves.html#waves\" class=\"nested\"><text",
            "<p>Done.</p>",
        ],
    );
    contains(&page(&folder, "before.html")?, &["(2.1.2)</a>", "(2.1)</a>"]);
    contains(&sheet(&folder, &[])?, &["<a href=\"#optics\"><text"]);
    Ok(())
}

#[test]
fn notebooks_are_pages_with_their_pictures() -> Outcome {
    let folder = single("# Bad\n\n{{#notebook python/notebooks/stars.ipynb}}\n\nThe end.\n")?;
    let notebook = r###"{"nbformat": 4, "cells": [
        {"cell_type": "markdown", "source": ["# Bad\n", "## Stars\n", "\n", "Of $\\lambda$ and `a$b`."]},
        {"cell_type": "code", "source": "plot(1 < 2)", "metadata": {"caption": "A *star* of $r_0$."}, "outputs": [
            {"output_type": "stream", "name": "stdout", "text": "0.5 < 1\n"},
            {"output_type": "display_data", "data": {"image/svg+xml": "<svg/>", "text/html": "<b>never</b>"}}]}]}"###;
    fs::create_dir_all(folder.path().join("python/notebooks"))?;
    fs::write(folder.path().join("python/notebooks/stars.ipynb"), notebook)?;
    build(folder.path(), true)?;
    let page = page(&folder, "bad.html")?;
    contains(
        &page,
        &[
            "<a href=\"figures/stars.ipynb\"><code>python/notebooks/stars.ipynb</code></a>",
            "<h2 id=\"stars\">",
            "<span class=\"katex\">",
            "<code>a$b</code>",
            "<code class=\"language-python\">plot(1 &lt; 2)\n</code>",
            "<code class=\"language-text\">0.5 &lt; 1\n</code>",
            "<img src=\"figures/notebook-stars-1.svg\" alt=\"A star of r_0.\">",
            "<span class=\"figure-number\">Figure 1.1</span>",
            "<p>The end.</p>",
        ],
    );
    assert!(!page.contains("never") && page.matches("<h1").count() == 1, "{page}");
    let figures = folder.path().join("book/build/figures");
    assert_eq!(fs::read_to_string(figures.join("notebook-stars-1.svg"))?, "<svg/>");
    assert_eq!(fs::read_to_string(figures.join("stars.ipynb"))?, notebook);
    // A second rendering leaves the files as they are, and a fault names the cell.
    build(folder.path(), false)?;
    fs::write(
        folder.path().join("python/notebooks/stars.ipynb"),
        notebook.replace("\\\\lambda", "\\\\frac{1"),
    )?;
    let faults = faults(&folder);
    assert!(
        faults[0]
            .starts_with("book/src/bad.md:3:1: python/notebooks/stars.ipynb, cell 1, line 4: "),
        "{faults:?}"
    );
    Ok(())
}

#[test]
fn the_sidebar_has_parts_that_open() -> Outcome {
    let folder = whole()?;
    let list = |part: &str| {
        format!(
            "# Contents\n\n[Before](before.md)\n\n{part}- [Optics](optics.md)\n  - [Waves](waves.md)\n"
        )
    };
    let sidebar = |part: &str| -> Outcome<String> {
        fs::write(folder.path().join("book/src/SUMMARY.md"), list(part))?;
        build(folder.path(), true)?;
        Ok(fs::read_to_string(folder.path().join("book/build/toc.js"))?)
    };
    let script = sidebar("# Light\n\n")?;
    let start = script.find("Before</a></span></li>").ok_or("no first chapter")?;
    let end = script.find("Index of symbols").ok_or("no index")?;
    contains(
        &script[start..end],
        &[
            "</li><li class=\"chapter-item part\"><span class=\"chapter-link-wrapper\"><button type=\"button\" \
             class=\"chapter-fold-toggle part-title\" aria-expanded=\"false\">Light</button></span><ol class=\"section\">\
             <li class=\"chapter-item expanded \"><span class=\"chapter-link-wrapper\"><a href=\"optics.html\">",
            "</li></ol></ol></li><li class=\"chapter-item expanded \"><li class=\"spacer\">",
        ],
    );
    // What mdbook's own script does with these classes.
    contains(
        &script,
        &[
            "if (parent.tagName === 'LI' && parent.classList.contains('chapter-item')) {",
            "document.querySelectorAll('.chapter-fold-toggle')",
            "ev.currentTarget.parentElement.parentElement.classList.toggle('expanded');",
        ],
    );
    assert!(!sidebar("")?.contains("part-title"));
    Ok(())
}

#[test]
fn a_pdf_needs_a_browser() -> Outcome {
    let folder = whole()?;
    let output = Command::new(env!("CARGO_BIN_EXE_tangle"))
        .args(["--root", &folder.path().to_string_lossy(), "book", "--pdf", "x.pdf"])
        .env("PATH", folder.path())
        .current_dir(folder.path())
        .output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    contains(
        &said,
        &["error: a PDF is printed by Chromium, and none of chromium, chromium-browser"],
    );
    assert!(!folder.path().join("x.pdf").exists());
    assert!(!folder.path().join("target").exists(), "it is said before the book is rendered");
    Ok(())
}

#[test]
fn equations_are_numbered_and_linked_across_chapters() -> Outcome {
    let folder = whole()?;
    build(folder.path(), true)?;
    let before = page(&folder, "before.html")?;
    contains(
        &before,
        &["href=\"waves.html#eq-wave\">(2.2)</a>", "href=\"optics.html#eq-lens\">(1.1)</a>"],
    );
    let optics = page(&folder, "optics.html")?;
    contains(
        &optics,
        &[
            "<div class=\"equation\" id=\"eq-lens\">",
            "Eq. <a class=\"equation-link\" href=\"#eq-lens\">(1.1)</a> and \
             <a class=\"equation-link\" href=\"waves.html#eq-wave\">(2.2)</a>.",
            "<p><span class=\"math\"><span class=\"katex\">",
            "in <em>it</em>",
            "<figure id=\"figure-lens\">",
            "alt=\"The lens with f = [1] m\"",
            "Figure 1.1",
        ],
    );
    let waves = page(&folder, "waves.html")?;
    contains(&waves, &["id=\"eq-speed\"", "id=\"eq-wave\"", "href=\"optics.html#eq-lens\""]);
    contains(&waves, &["<h2 id=\"the-size-of-lambda\">"]);
    let printed = sheet(&folder, &[])?;
    contains(&printed, &["href=\"#eq-wave\">(2.2)</a>", "href=\"#chunk-focus-for-a-lens.2\""]);
    for name in ["before.html", "optics.html", "waves.html"] {
        let page = page(&folder, name)?;
        assert!(!page.contains("<!--m:") && !page.contains("$$"), "{name} holds raw formulas");
    }
    Ok(())
}

#[test]
fn every_link_inside_the_book_leads_somewhere() -> Outcome {
    let folder = whole()?;
    build(folder.path(), true)?;
    for name in ["before", "optics", "waves", "symbol-index", "identifier-index", "chunk-index"] {
        let text = page(&folder, &format!("{name}.html"))?;
        for link in text.split(" href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { format!("{name}.html") } else { file.to_string() };
            if file.ends_with(".svg") {
                continue;
            }
            let target = page(&folder, &file)?;
            let found = anchor.is_empty() || target.contains(&format!("id=\"{anchor}\""));
            assert!(found, "{name}: {link}");
        }
    }
    let printed = sheet(&folder, &[])?;
    for anchor in printed.split(" href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(printed.contains(&format!("id=\"{anchor}\"")), "on paper: {anchor}");
    }
    Ok(())
}

#[test]
fn the_page_to_be_printed_has_contents_and_nothing_that_paper_does_not_show() -> Outcome {
    let folder = single(
        "# Bad\n\nFine $x$.\n\n```rust file=src/x.rs\n// <<tests of the lens>>\n```\n\n\
         ```rust #tests of the lens fold\nfn hidden_on_paper() {}\n```\n",
    )?;
    fs::write(folder.path().join("book/src/other.md"), "# Other\n\nText.\n")?;
    let summary = "[Bad](bad.md)\n\n# Part & more\n\n- [Other](other.md)\n";
    fs::write(folder.path().join("book/src/SUMMARY.md"), summary)?;
    let printed = sheet(&folder, &[("chapter-1", 12)])?;
    contains(
        &printed,
        &[
            "<main><nav class=\"contents\"><h1>Contents</h1>\n<p><a href=\"#chapter-0\">Bad</a><span></span></p>\n\
             <p class=\"part\">Part &amp; more</p>\n<p><a href=\"#chapter-1\">1 Other</a><span>12</span></p>\n\
             <p><a href=\"#chapter-3\">Index of symbols</a><span></span></p>\n",
            "<p><a href=\"#chapter-5\">Index of chunks</a><span></span></p>\n</nav>",
            "<a id=\"chapter-0\"></a>",
            "<a id=\"chapter-1\"></a>",
            "⟨tests of the lens⟩ ≡",
            "folded: <code>src/x.rs</code>, line",
            "<span class=\"katex-html\"",
        ],
    );
    for part in ["<script", "hidden_on_paper", "katex-mathml", "<mdbook-sidebar"] {
        assert!(!printed.contains(part), "{part}");
    }
    // The book to be read has no such page.
    build(folder.path(), true)?;
    assert!(!folder.path().join("book/build/print.html").exists());
    let whole = fs::read_to_string(folder.path().join("book/build/bad.html"))?;
    assert!(whole.contains("hidden_on_paper") && !whole.contains("print.html"));
    Ok(())
}

#[test]
fn the_pdf_has_indices_and_appendices_where_they_are_asked_for() -> Outcome {
    let folder = book(&[
        (
            "one.md",
            "# One\n\n| symbol | meaning | unit |\n|---|---|---|\n| $a$ | first | m |\n\n\
                    See [Two](two.md) and $\\eqref{eq:two}$.\n\n\
                    ```rust file=src/one.rs\n// <<a thing of two>>\n// <<a thing of one>>\n```\n\n\
                    ```rust #a thing of one\npub fn first() {}\n```\n",
        ),
        (
            "two.md",
            "# Two\n\n| symbol | meaning | unit |\n|---|---|---|\n| $b$ | second | m |\n\n\
                    $$ b \\label{eq:two} $$\n\n\
                    ```rust #a thing of two\npub fn second() {}\n```\n",
        ),
        (
            "SUMMARY.md",
            "# Book\n\n# I One\n\n- [One](one.md)\n\n# Appendix A Two\n\n- [Two](two.md)\n\n[End](end.md)\n",
        ),
        ("end.md", "# End\n\nText.\n"),
    ])?;
    let sheet = |appendices: bool| -> Outcome<String> {
        let sheet = Sheet::new(folder.path(), false, appendices, &Progress::start())?;
        Ok(sheet.html(&[("chunk-a-thing-of-one".to_string(), 7)].into()))
    };
    let both = [
        "<p><a href=\"#chapter-0\">1 One</a><span></span></p>\n",
        "<p><a href=\"#chapter-2\">End</a><span></span></p>\n\
         <p><a href=\"#chapter-4\">Index of symbols</a><span></span></p>\n\
         <p><a href=\"#chapter-5\">Index of identifiers</a><span></span></p>\n\
         <p><a href=\"#chapter-6\">Index of chunks</a><span></span></p>\n",
        "<a id=\"chapter-4\"></a>",
        "<code>first</code> <span class=\"kind\">fn</span> ⟨<a class=\"index-link\" href=\"#chunk-a-thing-of-one\">\
         a thing of one</a><span class=\"on-page\">7</span>⟩",
        ">first</td>",
    ];
    let appendix = [
        "<p class=\"part\">Appendix A Two</p>\n<p><a href=\"#chapter-1\">2 Two</a>",
        "<code>second</code>",
        "href=\"#chunk-a-thing-of-two\"",
        "href=\"#eq-two\"",
        ">second</td>",
    ];
    let (without, with) = (sheet(false)?, sheet(true)?);
    contains(&without, &both);
    contains(&with, &[&both[..], &appendix[..]].concat());
    for part in appendix {
        assert!(!without.contains(part), "{part}");
    }
    let note = "The appendices are left out";
    assert!(without.contains(note) && !with.contains(note));
    contains(&without, &["See <a>Two</a>", "<a class=\"equation-link\">(2.1)</a>"]);
    contains(
        &without,
        &["<a class=\"chunk-reference\" title=\"defined in Two\">⟨a thing of two⟩</a>"],
    );
    assert!(!without.contains("Appendix A"));
    Ok(())
}

#[test]
fn line_endings_make_no_difference() -> Outcome {
    let (unix, dos) = (whole()?, whole()?);
    for (file, text) in [("optics.md", OPTICS), ("waves.md", WAVES)] {
        fs::write(dos.path().join("book/src").join(file), text.replace('\n', "\r\n"))?;
    }
    build(unix.path(), true)?;
    build(dos.path(), true)?;
    for name in ["optics.html", "waves.html"] {
        let same = |folder| page(folder, name).map(|page| page.replace('\r', ""));
        assert_eq!(same(&unix)?, same(&dos)?);
    }
    Ok(())
}

#[test]
fn indices_list_items_and_chunks() -> Outcome {
    let folder = whole()?;
    build(folder.path(), true)?;
    let items = page(&folder, "identifier-index.html")?;
    contains(
        &items,
        &[
            "<code>focus</code> <span class=\"kind\">fn</span> \
             ⟨<a class=\"index-link\" href=\"optics.html#chunk-focus-for-a-lens\">focus for a lens</a>⟩",
            "<code>Wave::colour</code> <span class=\"kind\">method</span>",
            "<code>waves</code> <span class=\"kind\">kernel</span>",
        ],
    );
    let chunks = page(&folder, "chunk-index.html")?;
    contains(
        &chunks,
        &["<code>src/optics.rs</code>", "look up the colour", "<cite>2 Waves</cite>"],
    );
    Ok(())
}

#[test]
fn symbols_are_gathered_with_their_formulas() -> Outcome {
    let folder = whole()?;
    let table = "\n| symbol | meaning | unit | in the code |\n|---|---|---|---|\n\
                 | $\\lambda$ | wavelength, $\\eqref{eq:wave}$ | m | |\n\
                 | $A_0, b$ | [amplitude](#waves) and phase | m, rad | `amplitude` |\n\
                 | $A_1$ | a letter between | | |\n| $x, y$ | a position | m | |\n\
                 | stand | where `it` stands | | `Stand` |\n";
    fs::write(folder.path().join("book/src/waves.md"), format!("{WAVES}{table}"))?;
    build(folder.path(), true)?;
    let symbols = page(&folder, "symbol-index.html")?;
    contains(
        &symbols,
        &[
            "<h2 id=\"latin-letters\">",
            "<a href=\"waves.html#waves\">amplitude</a> and phase</td><td data-label=\"unit\">m, rad</td>\
             <td data-label=\"shape\"></td><td data-label=\"in the code\"><code>amplitude</code></td>\
             <td data-label=\"chapter\"><a class=\"index-link\" href=\"waves.html#symbol-a-0-b\">Waves</a></td>",
            "<h2 id=\"greek-letters\">",
            "href=\"waves.html#eq-wave\">(2.2)</a>",
            "<table class=\"stacked\">",
            ">stand</td><td data-label=\"meaning\">where <code>it</code> stands</td>",
        ],
    );
    let waves = page(&folder, "waves.html")?;
    contains(
        &waves,
        &[
            "<tr><td data-label=\"symbol\"><span id=\"symbol-lambda\"></span>",
            "<span id=\"symbol-stand\">",
        ],
    );
    // A row of two letters stands at both, unless they follow each other.
    assert_eq!(symbols.matches("<span class=\"katex\">").count(), 5);
    assert_eq!(symbols.matches("a position").count(), 1);
    assert!(symbols.find("latin-letters") < symbols.find("greek-letters"));
    Ok(())
}

#[test]
fn bad_mathematics_is_found_at_its_place() -> Outcome {
    let folder = single(
        "# Bad\n\nFine $x$, then λ $a + \\nonsense{b}$.\n\n$$\nc = \\frac{1}{\n\\label{eq:c}\n$$\n\n\
         $$\n\\label{eq:d}\nλ = \\wrong\n$$\n\nSee $\\eqref{eq:nowhere}$ and `$\\code$`.\n",
    )?;
    let loaded = Book::load(folder.path())?;
    let found: Vec<String> = math_findings(&loaded).iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 3, "{found:#?}");
    assert_eq!(found[0], "book/src/bad.md:3:23: Undefined control sequence: \\nonsense");
    assert!(found[1].starts_with("book/src/bad.md:"), "{found:#?}");
    assert!(found[1].contains("expected '}'"), "{found:#?}");
    assert_eq!(found[2], "book/src/bad.md:12:5: Undefined control sequence: \\wrong");
    let all = faults(&folder);
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all[3].ends_with("bad.md:15:6: no equation has the label eq:nowhere"), "{all:#?}");
    assert!(!folder.path().join("book/build").exists());
    Ok(())
}

#[test]
fn dollars_and_backticks_elsewhere_leave_formulas_alone() -> Outcome {
    let folder = single(
        "# Bad\n\nA `$` here, $x_1$, &#36;5, \\$6 and \\`, a lone ` there, $x_2$.\n\n\
         ~~~text\n$HOME `$a$\n~~~\n\n    $ indented `\n\n```rust file=src/x.rs\n\
         /// A `$` and ``` here.\nconst TICK: char = '`'; // $$\n```\n\nAnd $x_3$.\n\n\
         > quoted\n>\n> $$ x_4 $$\n\n- item\n\n  $$\n  x_5\n  $$\n",
    )?;
    build(folder.path(), true)?;
    let page = page(&folder, "bad.html")?;
    contains(
        &page,
        &[
            "A <code>$</code> here, <span class=\"math\"><span class=\"katex\">",
            "a lone ` there, <span class=\"math\"><span class=\"katex\">",
            ", $5, $6 and `, a lone ` there, ",
            "$HOME `$a$\n",
            "$ indented `\n",
            "/// A `$` and ``` here.\nconst TICK: char = '`'; // $$\n",
        ],
    );
    assert_eq!(page.matches("<span class=\"katex\">").count(), 5, "{page}");
    assert!(!page.contains(|c| ('\u{FDD0}'..='\u{FDEF}').contains(&c)), "{page}");
    Ok(())
}

#[test]
fn settings_of_katex_are_read_strictly() -> Outcome {
    let folder = single("# Bad\n\nThe $\\slope$.\n")?;
    let file = folder.path().join("book/book.toml");
    let real = fs::read_to_string(&file)?;
    let with = |line: &str| -> Outcome<String> {
        fs::write(&file, real.replace("no-css = true", line))?;
        let outcome = build(folder.path(), true);
        Ok(outcome.map_or_else(|error| tangle::book::error::explain(&error), |_| String::new()))
    };
    contains(&with("no-css = 1")?, &["[preprocessor.katex] in book/book.toml: ", "bool"]);
    contains(&with("no_css = true")?, &["no setting is called no_css"]);
    contains(&with("no-css = true")?, &["bad.md:3:6: Undefined control sequence: \\slope"]);
    let macros = "no-css = true\nmacros = \"macros.txt\"";
    contains(&with(macros)?, &["cannot read", "macros.txt"]);
    fs::write(folder.path().join("book/macros.txt"), "\\slope")?;
    contains(&with(macros)?, &["no colon in the macro \\slope"]);
    fs::write(folder.path().join("book/macros.txt"), "\\slope:s_x\n")?;
    assert_eq!(with(macros)?, "");
    fs::write(folder.path().join("book/src/bad.md"), "# Bad\n\nThe $s$.\n")?;
    contains(&with("")?, &["fetches https://cdn."]);
    contains(&with("no-css = true\npre-render = false")?, &["mdbook-katex left $s$"]);
    Ok(())
}

#[test]
fn missing_figures_and_chunks_fail_the_build() -> Outcome {
    let folder =
        single("# Bad\n\nText ![no](figures/none.svg)\n\n![far](https://example.org/x.png)\n")?;
    let found = faults(&folder);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("book/src/bad.md:3:6: no figure figures/none.svg"), "{found:#?}");
    assert!(found[1].starts_with("book/src/bad.md:5:1: https://example.org/x.png lies elsewhere"));
    let folder = single("# Bad\n\n```rust file=src/x.rs\n// <<nobody wrote this>>\n```\n")?;
    let found = faults(&folder);
    assert_eq!(found, ["book/src/bad.md:4:1: chunk <<nobody wrote this>> is not defined"]);
    Ok(())
}

#[test]
fn nothing_is_fetched_from_elsewhere() -> Outcome {
    let folder = whole()?;
    build(folder.path(), true)?;
    let mut folders = vec![folder.path().join("book/build")];
    let mut pages = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.to_string_lossy().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".html") {
                pages += 1;
                assert_eq!(finish::page_fetches(&fs::read_to_string(&path)?), [""; 0], "{name}");
            } else if name.ends_with(".css") {
                let style = fs::read_to_string(&path)?;
                assert_eq!(finish::style_fetches(&style), [""; 0], "{name}");
                for font in style.split("url(").skip(1).filter_map(|rest| rest.split(')').next()) {
                    let font = font.trim_matches(['"', '\'']);
                    let place = path.parent().ok_or("no folder")?.join(font);
                    assert!(font.starts_with("data:") || place.exists(), "{name}: {font}");
                }
            }
        }
    }
    assert!(pages >= 7);
    let folder = single("# Out\n\n<script src=\"https://example.org/x.js\"></script>\n")?;
    let refused = build(folder.path(), true);
    assert!(matches!(refused, Err(BookError::Outside { .. })), "{refused:?}");
    Ok(())
}

#[test]
fn the_search_index_holds_words_and_no_debris() -> Outcome {
    let folder = whole()?;
    build(folder.path(), true)?;
    let index = fs::read_to_string(folder.path().join("book/build/searchindex.js"))?;
    contains(&index, &["begins a paragraph", "waves.html#the-size-of-lambda"]);
    for debris in ["katex", "mathrm", "frac", "psi''", "vlist", "mrow", "m:1.", "annotation"] {
        assert!(!index.contains(debris), "{debris} is in the search index");
    }
    Ok(())
}

#[test]
fn live_figures_have_their_script_and_their_results() -> Outcome {
    let text = "# Bad\n\n![A $x$](figures/lens.svg)\n\n{{#live bent-rays}}\n\nText.\n\n![B](figures/lens.svg)\n";
    let still = "# Still\n\n![C](figures/lens.svg)\n\n`{{#live bent-rays}}`\n\n```text\n{{#live bent-rays}}\n```\n";
    let folder = book(&[
        ("SUMMARY.md", "- [Bad](bad.md)\n- [Still](still.md)\n"),
        ("bad.md", text),
        ("still.md", still),
    ])?;
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("viewer/src/live"))?;
    fs::create_dir_all(at("viewer/dist"))?;
    let list = "{\"bent-rays\": {\"results\": [\"live-rays.json\"], \"image\": true}}";
    fs::write(at("viewer/src/live/figures.json"), list)?;
    for (file, content) in
        [("live.js", "run()"), ("live-image.js", "show()"), ("live.css", "p{}"), ("viewer.js", "")]
    {
        fs::write(at("viewer/dist").join(file), content)?;
    }
    fs::write(at("book/src/figures/live-rays.json"), "{ \"word\": \"</script> $quasar\" }")?;
    build(folder.path(), false)?;
    let whole = fs::read_to_string(at("book/build/bad.html"))?;
    contains(
        &whole,
        &[
            "<figure id=\"figure-lens\" class=\"live\" data-live=\"bent-rays\" data-image=\"\">",
            "data-file=\"live-rays.json\">{\"word\":\"\\u003c/script> $quasar\"}</script>",
            "<link rel=\"stylesheet\" href=\"live.css\">\n</head>",
            "<script src=\"live-image.js\"></script>\n<script src=\"live.js\"></script>\n</body>",
        ],
    );
    assert!(!whole.contains("{{#live") && !whole.contains("<!--l:"));
    assert_eq!(whole.matches("data-live=").count(), 1, "the second figure is still");
    let other = fs::read_to_string(at("book/build/still.html"))?;
    assert!(!other.contains("live.js") && other.contains("<code>{{#live bent-rays}}</code>"));
    for file in ["live.js", "live-image.js", "live.css"] {
        let [made, given] = ["book/build", "viewer/dist"].map(|folder| at(folder).join(file));
        assert_eq!(fs::read(made)?, fs::read(given)?);
    }
    assert!(!fs::read_to_string(at("book/build/searchindex.js"))?.contains("quasar"));
    let printed = sheet(&folder, &[])?;
    assert!(!printed.contains("live.js") && !printed.contains("live-results"));
    // Too much for one page, and no JSON.
    for (content, expected) in [
        (format!("[\"{}\"]", "x".repeat(60_001)), "bytes of computed results"),
        ("{".into(), "is no JSON"),
    ] {
        fs::write(at("book/src/figures/live-rays.json"), content)?;
        let error = build(folder.path(), false).expect_err("results that do not fit");
        assert!(
            matches!(error, BookError::Live(_)) && error.to_string().contains(expected),
            "{error}"
        );
    }
    Ok(())
}

/// A copy of this repository's book, with empty figures, rendered.
fn this_book() -> Outcome<TempDir> {
    let folder = TempDir::new()?;
    for part in ["src", "theme", "katex", "fonts", "measured", "systems", "data"] {
        copy(&repository().join("book").join(part), &folder.path().join("book").join(part))?;
    }
    copy(&repository().join("python/notebooks"), &folder.path().join("python/notebooks"))?;
    for file in ["book/book.toml", "book/references.toml"] {
        fs::copy(repository().join(file), folder.path().join(file))?;
    }
    let figures = folder.path().join("book/src/figures");
    fs::create_dir_all(&figures)?;
    for chapter in Book::load(folder.path())?.chapters {
        for link in chapter.links.iter().filter(|link| link.image) {
            if let Some(name) = link.target.strip_prefix("figures/") {
                fs::write(figures.join(name), "<svg xmlns=\"http://www.w3.org/2000/svg\"/>")?;
            }
        }
    }
    let list = "viewer/src/live/figures.json";
    fs::create_dir_all(folder.path().join("viewer/src/live"))?;
    fs::copy(repository().join(list), folder.path().join(list))?;
    copy(&repository().join("viewer/dist"), &folder.path().join("viewer/dist"))?;
    for needs in live::list(folder.path())?.values() {
        for file in &needs.results {
            fs::write(figures.join(file), "{}")?;
        }
    }
    build(folder.path(), false)?;
    Ok(folder)
}

/// Looks up names of symbols, keys and options as the page does, in the part of the index that is theirs.
fn names_lead_to_their_places(folder: &TempDir, named: &serde_json::Value) -> Outcome {
    let places = named["places"].as_array().ok_or("no places")?;
    let addresses = |name: &str| -> Vec<&str> {
        let spellings = [name, &name.to_lowercase(), &names::folded(name)];
        let found = spellings.map(|name| &named["names"][name]);
        let found = found.into_iter().flat_map(|found| found.as_array().into_iter().flatten());
        found.filter_map(|place| places[place.as_u64()? as usize][0].as_str()).collect()
    };
    for (name, address) in [
        ("outer scale", "atmosphere.html#symbol-l-0"),
        ("Outer scale", "atmosphere.html#symbol-l-0"),
        ("L0", "atmosphere.html#symbol-l-0"),
        ("l_0", "atmosphere.html#symbol-l-0"),
        ("r0", "atmosphere.html#symbol-r-0"),
        ("Fried parameter", "atmosphere.html#symbol-r-0"),
        ("D_phi", "phase.html#symbol-d-phi"),
        ("outer_scale", "system-keys.html#key-atmosphere.outer_scale"),
        ("layers.outer_scale", "system-keys.html#key-atmosphere.layers.outer_scale"),
        ("guide_star", "system-keys.html#"),
        ("fried_parameter", "atmosphere.html#symbol-r-0"),
        ("Atmosphere", "atmosphere.html#chunk-"),
        ("4d stem", "glossary.html#term-4d-stem"),
        ("System.psf", "python-api-system.html#System.psf"),
        ("reconstructor_plan", "python-api-system.html#System.reconstructor_plan"),
    ] {
        let found = addresses(name);
        assert!(found.first().is_some_and(|first| first.starts_with(address)), "{name}: {found:?}");
    }
    let book = Book::load(folder.path())?;
    let keys = keys::keys(&book);
    assert!(keys.len() > 150, "{} keys", keys.len());
    for key in keys {
        let page = book.chapters[key.chapter].file.replace(".md", ".html");
        let address = match key.row {
            Some(_) => format!("{page}#key-{}", key.path),
            None => continue,
        };
        assert_eq!(addresses(&key.path).first(), Some(&address.as_str()), "{}", key.path);
        let last = key.path.rsplit('.').next().unwrap_or_default();
        assert!(addresses(last).iter().any(|found| found.contains("#key-")), "{last}");
    }
    let words = options::command_words(&tangle::expand::tangle(&book));
    assert!(words.iter().any(|word| word.name == "--errors-only"));
    for word in words.iter().filter(|word| word.command.is_some()) {
        let name = format!("{} {}", word.command.as_deref().unwrap_or_default(), word.name);
        assert!(
            addresses(&name)[0].contains("-command.html#chunk-")
                || addresses(&name)[0].starts_with("commands.html#chunk-"),
            "{name}"
        );
    }
    // Every place is there.
    let mut pages = std::collections::BTreeMap::new();
    for place in places {
        let address = place[0].as_str().unwrap_or_default();
        let (file, anchor) = address.split_once('#').ok_or("no anchor")?;
        if !pages.contains_key(file) {
            pages.insert(file, page(folder, file)?);
        }
        assert!(pages[file].contains(&format!("id=\"{anchor}\"")), "{address}");
    }
    Ok(())
}

#[test]
fn the_search_finds_terms_of_the_field() -> Outcome {
    let folder = this_book()?;
    let script = fs::read_to_string(folder.path().join("book/build/searchindex.js"))?;
    assert!(script.len() <= 8_500_000, "{} bytes", script.len());
    let index = search::parse(&script).ok_or("an index")?;
    let docs = index["index"]["documentStore"]["docs"].as_object().ok_or("documents")?;
    for (term, page) in [
        ("haadf", "electron-detectors.html"),
        ("bright field", "electron-detectors.html"),
        ("4d-stem", "electron-detectors.html"),
        ("seeing", "atmosphere.html"),
        ("ensquared energy", "image-options.html"),
        ("strehl ratios", "python-api-results.html"),
    ] {
        let found = docs.iter().any(|(id, doc)| {
            let address = id.parse().ok().and_then(|id: usize| index["doc_urls"][id].as_str());
            let body = doc["body"].as_str().unwrap_or_default().to_lowercase();
            let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
            address.is_some_and(|address| address.starts_with(page)) && body.contains(term)
        });
        assert!(found, "{term} in {page}");
    }
    assert!(!script.contains("pub(crate) fn"), "code is in the index");
    names_lead_to_their_places(&folder, &index["named"])?;
    // The pages load the index with the search box, not by themselves.
    let page = fs::read_to_string(folder.path().join("book/build/atmosphere.html"))?;
    assert!(!page.contains("src=\"searchindex.js\""));
    Ok(())
}

/// The contrast of two colours, `#rgb` or `#rrggbb`, by WCAG 2: 1 to 21.
fn contrast(one: &str, two: &str) -> f64 {
    let luminance = |colour: &str| {
        let digits = colour.trim_start_matches('#');
        let width = digits.len() / 3;
        let channel = |index: usize| {
            let digits = digits[index * width..(index + 1) * width].repeat(2 / width);
            let value = f64::from(u8::from_str_radix(&digits, 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2) + 0.05
    };
    let (one, two) = (luminance(one), luminance(two));
    one.max(two) / one.min(two)
}

#[test]
fn both_themes_are_legible() -> Outcome {
    assert!((contrast("#fff", "#000000") - 21.0).abs() < 1e-9 && contrast("#777", "#fff") < 4.5);
    let style = fs::read_to_string(repository().join("book/theme/lenslet.css"))?;
    // Words in code that has been expanded three times, on paper that each time takes a twentieth of the accent.
    for (words, paper) in [
        ("#006400", "#ede2d5"),
        ("#b8001f", "#ede2d5"),
        ("#e88f8f", "#37322f"),
        ("#abaaa5", "#37322f"),
    ] {
        assert!(style.contains(&format!("color: {words}; }}")));
        assert!(contrast(words, paper) >= 4.5, "{words}: {:.2}", contrast(words, paper));
    }
    // In the code of a sentence mdbook's own background stands.
    for (theme, plain) in [(".light, html:not(.js) {", "#f6f7f6"), (".navy {", "#1d1f21")] {
        let colours = style.split(theme).nth(1).and_then(|rest| rest.split('}').next());
        let colours = colours.ok_or("no colours")?;
        let colour = |name: &str| {
            let value = colours.split(&format!("{name}: ")).nth(1)?.split(';').next()?;
            Some(value.to_string())
        };
        for (ink, paper) in [
            ("--fg", "--bg"),
            ("--links", "--bg"),
            ("--faint", "--bg"),
            ("--fg", "--code-bg"),
            ("--code-fg", "--code-bg"),
            ("--code-links", "--code-bg"),
            ("--faint", "--code-bg"),
            ("--fg", "--table-header-bg"),
            ("--sidebar-fg", "--sidebar-bg"),
            ("--sidebar-active", "--sidebar-bg"),
            ("--faint", "--sidebar-bg"),
            ("--inline-code-color", plain),
        ] {
            let ink_colour = colour(ink).ok_or("no ink")?;
            let paper_colour = if paper.starts_with('#') {
                plain.into()
            } else {
                colour(paper).ok_or("no paper")?
            };
            let found = contrast(&ink_colour, &paper_colour);
            assert!(found >= 4.5, "{theme} {ink} on {paper}: {found:.2}");
        }
    }
    Ok(())
}

#[test]
fn the_mathematics_of_this_repository_is_sound() -> Outcome {
    assert_eq!(math_findings(&Book::load(&repository())?), []);
    Ok(())
}

#[test]
fn only_files_of_the_book_are_served() -> Outcome {
    let folder = TempDir::new()?;
    let pages = folder.path().join("pages");
    fs::create_dir_all(pages.join("sub"))?;
    fs::write(folder.path().join("secret.txt"), "secret")?;
    fs::write(pages.join("index.html"), "<p>hello</p>")?;
    fs::write(pages.join("sub/a b.css"), "p {}")?;
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path().join("secret.txt"), pages.join("link.txt"))?;
    let site = Site { folder: pages, pages: RwLock::new(()), version: AtomicUsize::new(3) };
    let index = site.respond("GET", "/");
    assert_eq!((index.status, index.kind), ("200 OK", "text/html; charset=utf-8"));
    assert!(index.body.starts_with(b"<p>hello</p><script>"));
    assert_eq!(site.respond("GET", "/sub/a%20b.css?x=1").body, b"p {}");
    assert_eq!(site.respond("GET", "/.version").body, b"3");
    assert_eq!(site.respond("POST", "/").status, "405 Method Not Allowed");
    let refused = [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/sub/..%2f../secret.txt",
        "//etc/passwd",
        "/link.txt",
        "/%",
        "/%zz",
        "/%ff",
        "",
        "secret.txt",
        "/sub\\..\\index.html",
        "/nothing",
        "/index.html%00",
    ];
    for target in refused {
        assert_eq!(site.respond("GET", target).status, "404 Not Found", "{target}");
    }
    Ok(())
}

/// A crate whose example draws, or fails.
fn with_example(source: &str) -> Outcome<TempDir> {
    let folder = single("# One\n\n![drawn](figures/drawn.svg)\n")?;
    let examples = folder.path().join("book/examples");
    let manifest = "[package]\nname = \"drawn-book\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n\
                    [workspace]\n\n[[bin]]\nname = \"one\"\npath = \"one.rs\"\n";
    fs::create_dir_all(&examples)?;
    fs::write(examples.join("Cargo.toml"), manifest)?;
    fs::write(examples.join("one.rs"), source)?;
    Ok(folder)
}

/// Renders in a process of its own, whose target folder lies in the book's repository: whether it
/// succeeded, and what it said.
fn drawn(folder: &TempDir) -> Outcome<(bool, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_tangle"))
        .args(["--root", &folder.path().to_string_lossy(), "book"])
        .env("CARGO_TARGET_DIR", folder.path().join("target"))
        .current_dir(folder.path())
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn figures_are_drawn_once_by_the_examples() -> Outcome {
    let folder = with_example(
        "fn main() {\n    let folder = std::env::args().nth(1).unwrap();\n    \
         std::fs::write(format!(\"{folder}/drawn.svg\"), \"<svg/>\").unwrap();\n}\n",
    )?;
    let (done, said) = drawn(&folder)?;
    assert!(done && said.contains("examples run: 1"), "{said}");
    assert!(folder.path().join("book/build/figures/drawn.svg").is_file());
    let (done, said) = drawn(&folder)?;
    assert!(done && said.contains("examples run: 0"), "{said}");
    fs::remove_file(folder.path().join("book/src/figures/drawn.svg"))?;
    let (done, said) = drawn(&folder)?;
    assert!(done && said.contains("examples run: 1"), "{said}");
    Ok(())
}

#[test]
fn what_an_example_prints_is_a_figure_that_pages_include() -> Outcome {
    let folder = with_example(
        "fn main() {\n    let folder = std::env::args().nth(1).unwrap();\n    \
         std::fs::write(format!(\"{folder}/drawn.svg\"), \"<svg/>\").unwrap();\n    \
         println!(\"D(0.5 m) = 69.3\");\n}\n",
    )?;
    let chapter = folder.path().join("book/src/bad.md");
    let text = fs::read_to_string(&chapter)?;
    fs::write(&chapter, text + "\n```text\n{{#include figures/one.txt}}\n```\n")?;
    let (done, said) = drawn(&folder)?;
    assert!(done, "{said}");
    let page = fs::read_to_string(folder.path().join("book/build/bad.html"))?;
    contains(&page, &["D(0.5 m) = 69.3"]);
    Ok(())
}

#[test]
fn a_failing_example_fails_the_build_with_its_message() -> Outcome {
    let folder = with_example(
        "fn main() {\n    eprintln!(\"the pen is dry\");\n    std::process::exit(3);\n}\n",
    )?;
    let (done, said) = drawn(&folder)?;
    assert!(!done, "{said}");
    contains(&said, &["book/examples/one.rs failed", "the pen is dry"]);
    Ok(())
}

#[test]
fn works_and_terms_are_linked_where_they_are_named() -> Outcome {
    let chapter =
        "# Bad\n\nThe first lens is by [@roe-2001; @doe-1999]. The lens (see [@roe-2001]) again.\n";
    let glossary = "# Glossary\n\n- **lens**: glass that \"bends\" light. See [Bad](bad.md).\n";
    let summary = "- [Bad](bad.md)\n\n[Glossary](glossary.md)\n";
    let folder = book(&[("SUMMARY.md", summary), ("bad.md", chapter), ("glossary.md", glossary)])?;
    let works = "[roe-2001]\ntype = \"article\"\nauthors = [\"Roe, A.\", \"Poe, B.\"]\ntitle = \"A & b\"\n\
                 journal = \"J. Opt.\"\nvolume = \"3\"\nyear = 2001\ndoi = \"10.1/x\"\n\n\
                 [doe-1999]\ntype = \"book\"\nauthors = [\"Doe, C.\"]\ntitle = \"Book\"\npublisher = \"P\"\nyear = 1999\n";
    let references = folder.path().join("book/references.toml");
    fs::write(&references, works)?;
    build(folder.path(), true)?;
    let text = page(&folder, "bad.html")?;
    contains(
        &text,
        &[
            "The first <a class=\"term\" href=\"glossary.html#term-lens\" \
             title=\"glass that &quot;bends&quot; light.\">lens</a> is by",
            "<a class=\"citation\" id=\"cited-bad-roe-2001\" href=\"bibliography.html#work-roe-2001\" \
             title=\"Roe, A.; Poe, B. (2001). A &amp; b. J. Opt. 3. doi:10.1/x\"",
            ">Roe and Poe (2001)</a> and <a class=\"citation\" id=\"cited-bad-doe-1999\"",
            ">Doe (1999)</a>. The lens (see <a class=\"citation\" href=",
            ">Roe and Poe 2001</a>) again",
        ],
    );
    assert_eq!(text.matches("class=\"term\"").count(), 1);
    contains(&page(&folder, "glossary.html")?, &["<dfn id=\"term-lens\">lens</dfn>: glass"]);
    let list = page(&folder, "bibliography.html")?;
    contains(
        &list,
        &[
            "<li id=\"work-roe-2001\">Roe, A.; Poe, B. (2001). A &amp; b. <em>J. Opt.</em> 3. \
             <a class=\"doi\" href=\"https://doi.org/10.1/x\">doi:10.1/x</a>",
            "<em>Book</em>, P.",
            "<a href=\"bad.html#cited-bad-roe-2001\"><cite>Bad</cite></a>",
        ],
    );
    assert!(list.find("work-doe-1999") < list.find("work-roe-2001"));
    let printed = sheet(&folder, &[("chapter-2", 7)])?;
    contains(
        &printed,
        &[
            "<p><a href=\"#chapter-2\">Bibliography</a><span>7</span></p>",
            "<a id=\"chapter-2\"></a>",
        ],
    );
    for anchor in printed.split(" href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(printed.contains(&format!("id=\"{anchor}\"")), "on paper: {anchor}");
    }
    fs::write(&references, works.replace("roe-2001", "roe-2001-b"))?;
    assert_eq!(
        faults(&folder),
        [
            "book/src/bad.md:3:22: book/references.toml holds no work roe-2001: did you mean roe-2001-b?",
            "book/src/bad.md:3:60: book/references.toml holds no work roe-2001: did you mean roe-2001-b?",
        ]
    );
    Ok(())
}
