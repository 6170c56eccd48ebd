//! The search index, made smaller, and with what the book [names](super::names) in front.
//!
//! mdbook writes the index of elasticlunr as one script, which its pages load when the search box is opened. Code is not in it, since [chunks](super::chunks)
//! are put into the pages afterwards. Our own script follows in the same file: there it has run before mdbook's reads the index.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::error::BookError;
use super::names::{self, Named};
use crate::error::Error;

/// The script around the index.
const BEFORE: &str = "window.search = Object.assign(window.search, JSON.parse('";
const AFTER: &str = "'));";
/// Looks up names before the full-text search.
const NAMED_RESULTS: &str = include_str!("named_results.js");

/// Writes the index of the book in `folder` with the frequencies of words to two decimals, which is enough to rank results, and with what the
/// book names.
///
/// # Errors
///
/// [`BookError::Index`] for an index that is not as mdbook writes it; [`Error::Read`] and [`Error::Write`].
pub fn compact(folder: &Path, named: &[Named]) -> Result<(), BookError> {
    let path = folder.join("searchindex.js");
    if !path.is_file() {
        return Ok(());
    }
    let script = fs::read_to_string(&path).map_err(Error::read(&path))?;
    let mut index = parse(&script).ok_or_else(|| BookError::Index {
        found: "a script of another form".into(),
        expected: "the form of mdbook 0.5".into(),
    })?;
    round(&mut index["index"]["index"]);
    index["named"] = names::table(named);
    let text = index.to_string().replace('\\', "\\\\").replace('\'', "\\'");
    let script = [BEFORE, &text, AFTER, "\n", NAMED_RESULTS].concat();
    fs::write(&path, script).map_err(Error::write(&path))?;
    Ok(())
}

/// The index in a script of mdbook's, whose first line it is.
pub fn parse(script: &str) -> Option<Value> {
    let text = script.trim().lines().next()?.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    let mut json = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        json.push(if letter == '\\' { letters.next()? } else { letter });
    }
    serde_json::from_str(&json).ok()
}

/// Rounds all frequencies of words.
fn round(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        match value.as_f64() {
            Some(frequency) if name == "tf" => {
                let hundredths = (100.0 * frequency).round();
                *value = match hundredths % 100.0 == 0.0 {
                    true => Value::from((hundredths / 100.0) as u64),
                    false => Value::from(hundredths / 100.0),
                };
            }
            _ => round(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AFTER, BEFORE, parse, round};

    #[test]
    fn indices_are_read_and_rounded() {
        let script = format!(
            "{BEFORE}{{\"a\":\"it\\'s \\\\\"n\\\\\"\",\"tf\":1.4142135,\"b\":{{\"tf\":2.0,\"df\":3}}}}{AFTER}"
        );
        let mut index = parse(&script).unwrap_or_default();
        assert_eq!(index["a"], "it's \"n\"");
        round(&mut index);
        assert_eq!(
            (index["tf"].to_string(), index["b"].to_string()),
            ("1.41".into(), "{\"df\":3,\"tf\":2}".into())
        );
        assert!(parse("window.search = 1;").is_none());
    }
}
