//! The keys of system and sample files, from the tables of the chapters that list them.
//!
//! Such a table follows a comment that names the table of the file that its keys belong to, `<!-- keys of atmosphere.layers -->`.

use std::ops::Range;

use crate::chapter::Chapter;
use crate::symbols::cells;
use crate::volume::Book;

/// A key, or a table of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Index of the chapter.
    pub chapter: usize,
    /// Line of the chapter: the row of a key, the heading of a table.
    pub line: usize,
    /// Its path in the file: `atmosphere.layers.altitude`.
    pub path: String,
    /// What the row says of a key; `None` for a table.
    pub row: Option<KeyRow>,
}

/// The row of a key: the heading and the place of each cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// The cell that names the key.
    pub name: Range<usize>,
    /// The other cells, with the headings of their columns.
    pub cells: Vec<(String, Range<usize>)>,
}

/// All keys of all chapters, and the tables that hold them, in the order of the book.
pub fn keys(book: &Book) -> Vec<Key> {
    let chapters = book.chapters.iter().enumerate();
    chapters.flat_map(|(index, chapter)| keys_of(index, chapter)).collect()
}

fn keys_of(index: usize, chapter: &Chapter) -> Vec<Key> {
    let text = &chapter.text;
    let words = |cell: &Range<usize>| text.as_str()[cell.clone()].trim();
    let mut keys = Vec::new();
    let mut line = 0;
    while line < text.line_count() {
        line += 1;
        let Some(table) = table(text.line(line)).filter(|_| chapter.block_at(line).is_none())
        else {
            continue;
        };
        if let Some(heading) = chapter.headings.iter().rfind(|heading| heading.line < line) {
            let (line, path) = (heading.line, table.to_string());
            keys.push(Key { chapter: index, line, path, row: None });
        }
        let is_row = |line: &usize| text.line(*line).starts_with('|');
        let Some(head) = (line + 1..=text.line_count().min(line + 2)).find(is_row) else {
            continue;
        };
        let heads: Vec<String> = cells(text.line(head), text.start_of(head))
            .iter()
            .map(|cell| words(cell).to_string())
            .collect();
        line = head + 1;
        while line < text.line_count() && is_row(&(line + 1)) {
            line += 1;
            let mut row = cells(text.line(line), text.start_of(line)).into_iter();
            let Some(name) = row.next() else { continue };
            let path = format!("{table}.{}", words(&name).trim_matches('`'));
            let cells = heads.iter().skip(1).cloned().zip(row).collect();
            keys.push(Key { chapter: index, line, path, row: Some(KeyRow { name, cells }) });
        }
    }
    keys
}

/// The table that a comment announces the keys of.
fn table(line: &str) -> Option<&str> {
    line.trim().strip_prefix("<!-- keys of ")?.strip_suffix(" -->")
}

#[cfg(test)]
mod tests {
    use super::keys;
    use crate::volume::Book;

    #[test]
    fn tables_of_keys_are_read_with_the_path_of_their_table() {
        let text = "# Keys\n\n## Layers\n\n<!-- keys of air.layers -->\n\n| key | unit | meaning |\n|---|---|---|\n\
                    | `height` | m | up \\| down |\n| `wind` | m/s | |\n\n<!-- end of keys -->\n\n| key | x |\n|---|---|\n| `no` | |\n\n\
                    ```text\n<!-- keys of code -->\n\n| `no` |\n|---|\n| `no` | |\n```\n\n<!-- keys of rest -->\n";
        let book = Book::from_sources("- [A](a.md)\n", |_| Ok(text.to_string()));
        let keys = keys(&book);
        let found: Vec<_> = keys.iter().map(|key| (key.path.as_str(), key.line)).collect();
        let expected =
            [("air.layers", 3), ("air.layers.height", 9), ("air.layers.wind", 10), ("rest", 3)];
        assert_eq!(found, expected);
        let cells = &keys[1].row.as_ref().unwrap().cells;
        let text = &book.chapters[0].text.as_str();
        let cells: Vec<_> =
            cells.iter().map(|(head, cell)| (head.as_str(), text[cell.clone()].trim())).collect();
        assert_eq!(cells, [("unit", "m"), ("meaning", "up \\| down")]);
    }
}
