//! `cargo book --pdf`: the chapters and indices in one file for paper, printed by Chromium. The appendices
//! are left out unless they are asked for.
//!
//! Chromium numbers the pages, but a page of HTML cannot say on which of them a chapter starts. So it prints twice: first with
//! a table of contents without numbers, whose links show where they lead, then with them. Where the numbers have moved a
//! line to another page, it prints again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build::lay_out;
use super::error::BookError;
use super::finish::chapter_start_anchor;
use super::indices;
use super::progress::Progress;
use super::render::Layout;
use crate::chapter::Chapter;
use crate::error::Error;
use crate::pages::escape;
use crate::volume::Book;

/// Names that Chromium goes by.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The book is printed until no page number changes, but not more often than this.
const MOST_PRINTS: usize = 4;

/// A blank as high as a digit in the place of a page that is not known yet, so that lines keep their height.
const UNKNOWN: &str = "\u{2007}";

/// What the table of contents says where appendices are left out.
const LEFT_OUT: &str = "<p class=\"left-out\">The appendices are left out here: chunks and equations without a page are \
                        in them.</p>\n";

/// Prints the book of the repository at `root` into a PDF, with or without the appendices; with `draw`, the figures
/// first. Returns how many pages it has.
///
/// # Errors
///
/// Those of [`build`](super::build()), [`BookError::NoBrowser`] and [`BookError::Printing`].
pub fn print(root: &Path, draw: bool, appendices: bool, file: &Path) -> Result<usize, BookError> {
    let browser = browser()?;
    let progress = Progress::start();
    let sheet = Sheet::new(root, draw, appendices, &progress)?;
    let mut known = Destinations::default();
    for _ in 0..MOST_PRINTS {
        let all = if known.count == 0 {
            ", to find the pages of chapters, chunks and equations"
        } else {
            ""
        };
        progress.step(&format!("printing{all}"));
        sheet.print(browser, &known.pages, file)?;
        let found = destinations(&fs::read(file).map_err(Error::read(file))?);
        let same = found == known;
        known = found;
        if same {
            break;
        }
    }
    Ok(known.count)
}

/// The first browser that is installed.
fn browser() -> Result<&'static str, BookError> {
    let runs = |name: &&&str| {
        let probe = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        probe.is_ok_and(|status| status.success())
    };
    BROWSERS.iter().find(runs).copied().ok_or_else(|| BookError::NoBrowser(BROWSERS.join(", ")))
}

/// Chapters and indices on one page, with a place for the table of contents.
pub struct Sheet {
    path: PathBuf,
    before: String,
    after: String,
    contents: Vec<Entry>,
    /// Whether the book has appendices that the page leaves out.
    left_out: bool,
}

/// A line of the table of contents.
struct Entry {
    /// The number of the chapter in the whole book, from 0; the indices follow.
    index: usize,
    part: Option<String>,
    number: Option<String>,
    title: String,
}

impl Sheet {
    /// Renders the chapters of the repository at `root`, with or without the appendices; with `draw`, the
    /// figures first.
    ///
    /// # Errors
    ///
    /// Those of [`build`](super::build()).
    pub fn new(
        root: &Path,
        draw: bool,
        appendices: bool,
        progress: &Progress,
    ) -> Result<Self, BookError> {
        progress.step("reading the chapters");
        let book = Book::load(root)?;
        let contents = contents(&book, appendices);
        let left_out = !appendices && book.chapters.iter().any(Chapter::in_appendix);
        let report = lay_out(root, draw, book, Layout::Sheet { appendices }, progress)?;
        let path = report.folder.join("print.html");
        let page = fs::read_to_string(&path).map_err(Error::read(&path))?;
        let page = without_lost_links(&for_paper(&page));
        let (before, after) = page.split_once("<main>").unwrap_or((&page, ""));
        let (before, after) = (format!("{before}<main>"), after.to_string());
        Ok(Self { path, before, after, contents, left_out })
    }

    /// The page, with the numbers of the pages on which chapters start, and chunks and equations that it refers to stand.
    pub fn html(&self, pages: &HashMap<String, usize>) -> String {
        let references = with_pages(&self.after, pages);
        [&self.before, &self.contents(pages), &references].map(String::as_str).concat()
    }

    fn contents(&self, pages: &HashMap<String, usize>) -> String {
        let mut contents = String::from("<nav class=\"contents\"><h1>Contents</h1>\n");
        let mut part = &None;
        for entry in &self.contents {
            if entry.part != *part {
                if let Some(title) = &entry.part {
                    contents.push_str(&format!("<p class=\"part\">{}</p>\n", escape(title)));
                }
                part = &entry.part;
            }
            let anchor = chapter_start_anchor(entry.index);
            let page = pages.get(&anchor).map_or(String::new(), usize::to_string);
            let number = entry.number.as_ref().map_or(String::new(), |number| format!("{number} "));
            contents.push_str(&format!(
                "<p><a href=\"#{anchor}\">{number}{}</a><span>{page}</span></p>\n",
                escape(&entry.title)
            ));
        }
        if self.left_out {
            contents.push_str(LEFT_OUT);
        }
        contents + "</nav>\n"
    }

    /// Lets the browser print the page.
    fn print(
        &self,
        browser: &str,
        pages: &HashMap<String, usize>,
        file: &Path,
    ) -> Result<(), BookError> {
        fs::write(&self.path, self.html(pages)).map_err(Error::write(&self.path))?;
        let page = self.path.canonicalize().map_err(Error::read(&self.path))?;
        let profile = self.path.with_file_name("browser");
        let value = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let output = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
            ])
            .args([
                "--no-pdf-header-footer",
                "--generate-pdf-document-outline",
                &value("user-data-dir", &profile),
                &value("print-to-pdf", file),
            ])
            .arg(format!("file://{}", page.display()))
            .output()
            .map_err(Error::run(browser))?;
        if output.status.success() && file.is_file() {
            return Ok(());
        }
        Err(BookError::Printing {
            browser: browser.to_string(),
            status: output.status.to_string(),
            message: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// The lines of the table of contents: chapters, bibliography and indices.
fn contents(book: &Book, appendices: bool) -> Vec<Entry> {
    let chapters = book.chapters.iter().enumerate();
    let chapters = chapters.filter(|(_, chapter)| appendices || !chapter.in_appendix());
    let chapters = chapters.map(|(index, chapter)| Entry {
        index,
        part: chapter.part.clone(),
        number: chapter.number.clone(),
        title: chapter.title.clone(),
    });
    let unnumbered = |index, title: &str| {
        let title = title.to_string();
        Entry { index, part: None, number: None, title }
    };
    let works = (!book.bibliography.works.is_empty())
        .then(|| unnumbered(indices::bibliography_place(book), "Bibliography"));
    let indices = indices::PAGES.iter().enumerate();
    let indices = indices.map(|(at, (title, _))| unnumbered(indices::place(book, at), title));
    chapters.chain(works).chain(indices).collect()
}

/// A page whose links lead to a place on it or have a scheme: others lose their address.
fn without_lost_links(page: &str) -> String {
    let attributes = page.split(" id=\"").skip(1);
    let ids: HashSet<&str> = attributes.filter_map(|rest| rest.split('"').next()).collect();
    let mut result = String::with_capacity(page.len());
    let mut pieces = page.split("<a ");
    result.push_str(pieces.next().unwrap_or(""));
    for piece in pieces {
        let (tag, after) = piece.split_once('>').unwrap_or((piece, ""));
        let address = tag.split_once("href=\"").and_then(|(before, rest)| {
            let (address, after) = rest.split_once('"')?;
            Some((before, address, after))
        });
        let tag = match address {
            Some((before, address, after)) if !leads_on(address, &ids) => {
                format!("<a {}{}", before.trim_end(), after)
            }
            _ => format!("<a {tag}"),
        };
        result.push_str(&[tag.trim_end(), ">", after].concat());
    }
    result
}

/// Whether an address is one of these anchors or has a scheme.
fn leads_on(address: &str, ids: &HashSet<&str>) -> bool {
    match address.strip_prefix('#') {
        Some(anchor) => ids.contains(anchor),
        None => address.split(['/', '#']).next().is_some_and(|start| start.contains(':')),
    }
}

/// The page without what paper does not show: scripts, the sidebar, formulas for those who listen, and folded code.
fn for_paper(page: &str) -> String {
    let page = without(page, "<script", "</script>");
    let page = without(&page, "<nav id=\"mdbook-sidebar\"", "</nav>");
    let page = without(&page, "<span class=\"katex-mathml\">", "</math></span>");
    let mut result = String::with_capacity(page.len());
    let mut pieces = page.split("<details class=\"chunk");
    result.push_str(pieces.next().unwrap_or(""));
    for piece in pieces {
        result.push_str("<details class=\"chunk");
        let (summary, rest) = piece.split_once("</summary>").unwrap_or((piece, ""));
        let (_, after) = rest.split_once("</details>").unwrap_or(("", rest));
        result.push_str(&[summary, "</summary></details>", after].concat());
    }
    result
}

/// The chapters with a page number, or a place for it, after each link to a chunk, an equation or a work, and in the indices.
fn with_pages(chapters: &str, pages: &HashMap<String, usize>) -> String {
    let mut result = String::with_capacity(chapters.len());
    let mut pieces = chapters.split("<a class=\"");
    result.push_str(pieces.next().unwrap_or(""));
    for piece in pieces {
        result.push_str("<a class=\"");
        let classes = ["chunk-reference\"", "equation-link\"", "citation\"", "index-link\""];
        let is_reference = classes.iter().any(|class| piece.starts_with(class));
        let link = piece.split_once("</a>").filter(|_| is_reference).and_then(|(link, after)| {
            let (_, address) = link.split_once("href=\"#")?;
            Some((link, address.split('"').next()?, after))
        });
        let Some((link, anchor, after)) = link else {
            result.push_str(piece);
            continue;
        };
        let page = pages.get(anchor).map_or(UNKNOWN.to_string(), usize::to_string);
        result.push_str(&format!("{link}</a><span class=\"on-page\">{page}</span>{after}"));
    }
    result
}

/// A text without what stands between two marks, and without them.
fn without(text: &str, start: &str, end: &str) -> String {
    let mut pieces = text.split(start);
    let mut result = pieces.next().unwrap_or("").to_string();
    for piece in pieces {
        result.push_str(piece.split_once(end).map_or("", |(_, after)| after));
    }
    result
}

/// Where the links of a PDF lead.
#[derive(Debug, Default, PartialEq)]
struct Destinations {
    /// The page of each name, from 1.
    pages: HashMap<String, usize>,
    /// How many pages there are.
    count: usize,
}

/// Reads the destinations in a PDF as Chromium writes it: objects stand openly in it, pages in their order.
fn destinations(pdf: &[u8]) -> Destinations {
    let text = String::from_utf8_lossy(pdf);
    let mut found = Destinations::default();
    let mut numbers = HashMap::new();
    for (at, _) in text.match_indices(" 0 obj\n<</Type /Page\n") {
        let number = text[..at].rsplit('\n').next().unwrap_or("");
        found.count += 1;
        numbers.insert(number, found.count);
    }
    let object = text.split("\n/Dests ").nth(1).and_then(|rest| rest.split(' ').next());
    let list = object.and_then(|number| text.split(&format!("\n{number} 0 obj\n<<")).nth(1));
    let list = list.and_then(|rest| rest.split(">>").next()).unwrap_or("");
    for entry in list.split('/') {
        let Some((name, place)) = entry.split_once(" [") else { continue };
        if let Some(&page) = place.split(' ').next().and_then(|number| numbers.get(number)) {
            found.pages.insert(name.to_string(), page);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{destinations, for_paper, with_pages, without_lost_links};

    #[test]
    fn references_name_their_pages() {
        let link = |class: &str, anchor: &str, page: &str| {
            format!("<a class=\"{class}\" href=\"#{anchor}\">x</a>{page}")
        };
        let chunk = |page| link("chunk-reference\" data-parts=\"a b", "a", page);
        let equation = |page| link("equation-link", "eq-x", page);
        let header = link("header", "a", "");
        let lost = "<a class=\"chunk-reference\">x</a>";
        let page = format!("1{}2{}3{header}4{lost}5", chunk(""), equation(""));
        let expected = format!(
            "1{}2{}3{header}4{lost}5",
            chunk("<span class=\"on-page\">7</span>"),
            equation("<span class=\"on-page\">\u{2007}</span>")
        );
        assert_eq!(with_pages(&page, &[("a".to_string(), 7)].into()), expected);
    }

    #[test]
    fn links_that_lead_off_the_page_lose_their_address() {
        let page = "<p id=\"x\"><a href=\"#x\">1</a><a class=\"c\" href=\"#y\" title=\"t\">2</a><a href=\"https://h/i\">3</a>\
                    <a href=\"b.html#x\">4</a><a href=\"figures/f.svg\"><img src=\"figures/f.svg\"></a><a id=\"z\"></a>";
        let expected = page.replace(" href=\"#y\"", "").replace(" href=\"b.html#x\"", "");
        let expected = expected.replace(" href=\"figures/f.svg\"", "");
        assert_eq!(without_lost_links(page), expected);
    }

    #[test]
    fn pages_of_links_are_read() {
        let pdf = b"%PDF-1.4\n2 0 obj\n<</Type /Page\n/Parent 9 0 R>>\nendobj\n7 0 obj\n<</Type /Page\n>>\nendobj\n\
                    9 0 obj\n<</Type /Pages\n/Count 2>>\nendobj\n\
                    10 0 obj\n<</chapter-0 [2 0 R /XYZ 11.25 591 0]\n/chapter-1 [7 0 R /XYZ 11.25 1 0]\n/lost [8 0 R /XYZ 1 1 0]>>\nendobj\n\
                    11 0 obj\n<</Type /Catalog\n/Dests 10 0 R\n>>\n\xff";
        let found = destinations(pdf);
        assert_eq!((found.count, found.pages.len()), (2, 2));
        assert_eq!((found.pages["chapter-0"], found.pages["chapter-1"]), (1, 2));
        assert_eq!(destinations(b"%PDF-1.4\n"), super::Destinations::default());
    }

    #[test]
    fn paper_gets_what_it_shows() {
        let page = "<script>a</script><nav id=\"mdbook-sidebar\">b</nav><p>c<span class=\"katex-mathml\"><math>d</math></span>e</p>\
                    <details class=\"chunk folded\"><summary>f</summary><pre>g</pre></details><details><pre>h</pre></details>";
        let paper = "<p>ce</p><details class=\"chunk folded\"><summary>f</summary></details><details><pre>h</pre></details>";
        assert_eq!(for_paper(page), paper);
    }
}
