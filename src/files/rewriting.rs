// Tangled from book/src/learn-command.md: edit there, or here and run cargo tangle stitch.
//! TOML in which single values are replaced, and all else stays as it is.

use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

// Replace values in a text
/// A text in which values will be replaced.
#[derive(Debug)]
pub struct Rewriting<'t> {
    text: &'t str,
    entries: DeTable<'t>,
    /// What is put where, in the order asked for.
    changes: Vec<(Range<usize>, String)>,
}

impl<'t> Rewriting<'t> {
    /// Begins with a text, of which the part is understood that is TOML.
    pub fn new(text: &'t str) -> Self {
        let (root, _) = DeTable::parse_recoverable(text);
        Self { text, entries: root.into_inner(), changes: Vec::new() }
    }

    /// Whether there is a value of this name, such as `atmosphere.layers[1].altitude`.
    pub fn has(&self, name: &str) -> bool {
        find(&self.entries, name).is_some()
    }

    /// Gives a value, written as TOML, to a name; nothing happens where there is no table that it could belong to.
    pub fn set(&mut self, name: &str, value: String) {
        if let Some(old) = find(&self.entries, name) {
            self.changes.push((old.span(), value));
            return;
        }
        let Some((table, key)) = name.rsplit_once('.') else { return };
        let Some(start) = find(&self.entries, table).map(|table| table.span().start) else {
            return;
        };
        let rest = &self.text[start..];
        if let Some(inside) = rest.strip_prefix('{') {
            let alone = inside.trim_start().starts_with('}');
            let comma = if alone { " " } else { "," };
            self.changes.push((start + 1..start + 1, format!(" {key} = {value}{comma}")));
        } else if rest.starts_with('[') {
            let end = start + rest.find('\n').unwrap_or(rest.len());
            self.changes.push((end..end, format!("\n{key} = {value}")));
        }
    }

    // Replace a key with its value
    /// Gives another key of the same table, with this value, in place of the key `name`; nothing happens where there is none.
    pub fn rename(&mut self, name: &str, key: &str, value: String) {
        let (table, old) = name.rsplit_once('.').unwrap_or(("", name));
        let table = match table {
            "" => Some(&self.entries),
            table => find(&self.entries, table).and_then(|table| table.get_ref().as_table()),
        };
        let mut entries = table.into_iter().flat_map(|table| table.iter());
        let Some((old, given)) = entries.find(|(known, _)| known.get_ref().as_ref() == old) else {
            return;
        };
        let (start, end) = (old.span().start, given.span().end);
        let rest = self.text[end..].split(['\n', '\r']).next().unwrap_or_default();
        let comment = if rest.trim_start().starts_with('#') { rest.len() } else { 0 };
        self.changes.push((start..end + comment, format!("{key} = {value}")));
    }

    /// The text with all changes.
    pub fn text(mut self) -> String {
        self.changes.sort_by_key(|(place, _)| place.start);
        let (mut text, mut done) = (String::new(), 0);
        for (place, value) in &self.changes {
            text += &self.text[done..place.start];
            text += value;
            done = place.end;
        }
        text + &self.text[done..]
    }
}

// Find a value by its name
/// The value of a name: keys of tables separated by points, places in lists in brackets.
fn find<'d>(entries: &'d DeTable<'d>, name: &str) -> Option<&'d Spanned<DeValue<'d>>> {
    let mut steps = name.split(['.', '[']);
    let first = entries.get(steps.next()?);
    steps.try_fold(first?, |value, step| match step.strip_suffix(']') {
        Some(place) => value.get_ref().get(place.parse::<usize>().ok()?),
        None => value.get_ref().get(step),
    })
}

// Tests of rewriting
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_change_and_all_else_stays() {
        let text = "# first\n[air]\nr0 = 0.15  # m\nlayers = [\n  { h = 0.0, f = 1 }, # low\n  {},\n]\n\n[[star]] # one\nnoise = 1e-14\n[[star]]\nzenith = 3";
        let mut file = Rewriting::new(text);
        file.set("air.r0", "0.2".into());
        file.set("air.layers[0].h", "5.0".into());
        file.set("air.layers[0].scale", "7.0".into());
        file.set("air.layers[1].f", "0.5".into());
        file.set("star[0].shift", "[1.0, 2.0]".into());
        file.set("star[0].noise", "2e-14".into());
        file.set("star[1].noise", "3e-14".into());
        file.set("star[2].noise", "nowhere".into());
        assert!(file.has("star[1].zenith") && !file.has("star[2].zenith") && !file.has("air.h"));
        let wanted = "# first\n[air]\nr0 = 0.2  # m\nlayers = [\n  { scale = 7.0, h = 5.0, f = 1 }, # low\n  { f = 0.5 },\n]\n\n[[star]] # one\nshift = [1.0, 2.0]\nnoise = 2e-14\n[[star]]\nnoise = 3e-14\nzenith = 3";
        assert_eq!(file.text(), wanted);
    }

    #[test]
    fn keys_change_with_their_values() {
        for (text, wanted) in [
            ("[air] # a\n  width = 0.7  # arcsec\nb = 1", "[air] # a\n  r0 = 0.2\nb = 1"),
            ("air = { width = 0.7, b = 1 } # c", "air = { r0 = 0.2, b = 1 } # c"),
            ("air.width = 0.7\r\nair.b = '#'", "air.r0 = 0.2\r\nair.b = '#'"),
            ("[air]\nb = 1", "[air]\nb = 1"),
        ] {
            let mut file = Rewriting::new(text);
            file.rename("air.width", "r0", "0.2".into());
            assert_eq!(file.text(), wanted);
        }
        let mut file = Rewriting::new("width = 1 # m");
        file.rename("width", "height", "2".into());
        assert_eq!(file.text(), "height = 2");
    }
}
