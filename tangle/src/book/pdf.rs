//! `cargo book --pdf`: all chapters in one file for paper, printed by Chromium.
//!
//! Chromium numbers the pages, but a page of HTML cannot say on which of them a chapter starts. So it prints twice: first with
//! a table of contents without numbers, whose links tell where they lead, then with them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build::lay_out;
use super::error::BookError;
use super::finish::chapter_start_anchor;
use super::progress::Progress;
use super::render::Layout;
use crate::error::Error;
use crate::pages::escape;
use crate::volume::Book;

/// Names that Chromium goes by.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Prints the book of the repository at `root` into a PDF; with `draw`, the figures first. Returns how many pages it has.
///
/// # Errors
///
/// Those of [`build`](super::build()), [`BookError::NoBrowser`] and [`BookError::Printing`].
pub fn print(root: &Path, draw: bool, file: &Path) -> Result<usize, BookError> {
    let browser = browser()?;
    let progress = Progress::start();
    let sheet = Sheet::new(root, draw, &progress)?;
    progress.step("printing, to find the pages of the chapters");
    sheet.print(browser, &HashMap::new(), file)?;
    let found = destinations(&fs::read(file).map_err(Error::read(file))?);
    progress.step("printing");
    sheet.print(browser, &found.pages, file)?;
    Ok(found.count)
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

/// All chapters on one page, with a place for the table of contents.
pub struct Sheet {
    path: PathBuf,
    before: String,
    after: String,
    chapters: Vec<Entry>,
}

/// A line of the table of contents.
struct Entry {
    part: Option<String>,
    number: Option<String>,
    title: String,
}

impl Sheet {
    /// Renders the chapters of the repository at `root`; with `draw`, the figures first.
    ///
    /// # Errors
    ///
    /// Those of [`build`](super::build()).
    pub fn new(root: &Path, draw: bool, progress: &Progress) -> Result<Self, BookError> {
        progress.step("reading the chapters");
        let book = Book::load(root)?;
        let chapters = book.chapters.iter().map(|chapter| Entry {
            part: chapter.part.clone(),
            number: chapter.number.clone(),
            title: chapter.title.clone(),
        });
        let mut chapters: Vec<Entry> = chapters.collect();
        if !book.bibliography.works.is_empty() {
            chapters.push(Entry { part: None, number: None, title: "Bibliography".to_string() });
        }
        let report = lay_out(root, draw, book, Layout::Sheet, progress)?;
        let path = report.folder.join("print.html");
        let page = fs::read_to_string(&path).map_err(Error::read(&path))?;
        let page = for_paper(&page);
        let (before, after) = page.split_once("<main>").unwrap_or((&page, ""));
        let (before, after) = (format!("{before}<main>"), after.to_string());
        Ok(Self { path, before, after, chapters })
    }

    /// The page, with the numbers of the pages on which chapters start, and chunks and equations that it refers to stand.
    pub fn html(&self, pages: &HashMap<String, usize>) -> String {
        let references = with_pages(&self.after, pages);
        [&self.before, &self.contents(pages), &references].map(String::as_str).concat()
    }

    fn contents(&self, pages: &HashMap<String, usize>) -> String {
        let mut contents = String::from("<nav class=\"contents\"><h1>Contents</h1>\n");
        let mut part = &None;
        for (index, entry) in self.chapters.iter().enumerate() {
            if entry.part != *part {
                if let Some(title) = &entry.part {
                    contents.push_str(&format!("<p class=\"part\">{}</p>\n", escape(title)));
                }
                part = &entry.part;
            }
            let anchor = chapter_start_anchor(index);
            let page = pages.get(&anchor).map_or(String::new(), usize::to_string);
            let number = entry.number.as_ref().map_or(String::new(), |number| format!("{number} "));
            contents.push_str(&format!(
                "<p><a href=\"#{anchor}\">{number}{}</a><span>{page}</span></p>\n",
                escape(&entry.title)
            ));
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

/// The chapters with a page number, or a place for it, after each link to a chunk or an equation.
fn with_pages(chapters: &str, pages: &HashMap<String, usize>) -> String {
    let mut result = String::with_capacity(chapters.len());
    let mut pieces = chapters.split("<a class=\"");
    result.push_str(pieces.next().unwrap_or(""));
    for piece in pieces {
        result.push_str("<a class=\"");
        let is_reference =
            ["chunk-reference\"", "equation-link\""].iter().any(|class| piece.starts_with(class));
        let Some((link, after)) = piece.split_once("</a>").filter(|_| is_reference) else {
            result.push_str(piece);
            continue;
        };
        let anchor = link.split("href=\"#").nth(1).and_then(|rest| rest.split('"').next());
        let page =
            anchor.and_then(|anchor| pages.get(anchor)).map_or(String::new(), usize::to_string);
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
    use super::{destinations, for_paper, with_pages};

    #[test]
    fn references_name_their_pages() {
        let link = |class: &str, anchor: &str, page: &str| {
            format!("<a class=\"{class}\" href=\"#{anchor}\">x</a>{page}")
        };
        let chunk = |page| link("chunk-reference\" data-parts=\"a b", "a", page);
        let equation = |page| link("equation-link", "eq-x", page);
        let header = link("header", "a", "");
        let page = format!("1{}2{}3{header}4", chunk(""), equation(""));
        let expected = format!(
            "1{}2{}3{header}4",
            chunk("<span class=\"on-page\">7</span>"),
            equation("<span class=\"on-page\"></span>")
        );
        assert_eq!(with_pages(&page, &[("a".to_string(), 7)].into()), expected);
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
