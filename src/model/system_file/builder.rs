// Tangled from book/src/system-file-builder.md: edit there, or here and run cargo tangle stitch.
//! Building and editing of system files.

// Imports of building a system file
use super::SystemFile;
use crate::error::{BadLine, Error};
use crate::files::spanned_toml::{Document, one_line, value_text, without_depth};
use toml_edit::{
    ArrayOfTables, DocumentMut, InlineTable, Item, Key, RawString, Table, TableLike, TomlError,
    Value,
};

// System file built in steps
/// A system file whose values are set one by one. Begun by [`SystemFile::builder`], it is empty; begun by [`SystemFile::to_builder`], it is that file,
/// whose comments and layout stay as they are.
///
/// ```
/// use lenslet::model::SystemFile;
/// let file = SystemFile::builder()
///     .set("atmosphere.r0", 0.15)
///     .set("atmosphere.outer_scale", 25.0)
///     .set("atmosphere.layers[0].altitude", 0.0)
///     .set("atmosphere.layers[0].fraction", 1.0)
///     .set("telescope.diameter", 8.0)
///     .set("lenslet_array.lenslets", 16)
///     .set("guide_star[0].zenith", 30.0);
/// assert_eq!(file.clone().build()?.system()?.lenslet_array().pitch(), 0.5);
/// let wrong = file.set("guide_star[0].height", -90e3).build().unwrap_err();
/// assert!(wrong.to_string().starts_with("guide_star[0].height = -90000.0: expected"));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SystemFileBuilder {
    document: DocumentMut,
    /// The file that it began with, or nothing.
    start: Option<SystemFile>,
    /// The first change that was not possible.
    problem: Option<BadLine>,
}

// Methods of a system file's builder
impl SystemFile {
    // Begin to build or to edit
    /// A builder of a system file without values.
    pub fn builder() -> SystemFileBuilder {
        SystemFileBuilder { document: DocumentMut::new(), start: None, problem: None }
    }

    /// A builder that begins with this file, its comments included.
    ///
    /// ```
    /// use lenslet::model::SystemFile;
    /// let text = std::fs::read_to_string("book/systems/keck-lgs.toml")?;
    /// let file = SystemFile::from_toml(&text, "keck-lgs.toml")?;
    /// let stronger = file.to_builder().set("atmosphere.r0", 0.12).build()?;
    /// assert_eq!(stronger.text(), text.replace("r0 = 0.18", "r0 = 0.12"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_builder(&self) -> SystemFileBuilder {
        let parsed = self.text().parse::<DocumentMut>();
        let unread = |error: TomlError| {
            let (file, expected) = (self.name().into(), format!("TOML: {}", error.message()));
            BadLine { file, line: 0, key: String::new(), value: None, expected }
        };
        let (document, problem) = match parsed {
            Ok(document) => (document, None),
            Err(error) => (DocumentMut::new(), Some(unread(error))),
        };
        SystemFileBuilder { document, start: Some(self.clone()), problem }
    }
}

impl SystemFileBuilder {
    // Set a value of a system file
    /// Sets the value at a path: keys after points, numbers of list entries in brackets, as in `guide_star[1].sensor.pixel`. Tables, and the next
    /// entry of a list, are made where they are missing.
    pub fn set(self, path: &str, value: impl Into<toml::Value>) -> Self {
        match without_depth(value.into()) {
            Some(value) => self.set_toml(path, &value_text(&value)),
            None => self.refused(path, "at most 64 tables and lists inside of one another"),
        }
    }

    /// Sets the value at a path to one that is written in TOML.
    pub(crate) fn set_toml(mut self, path: &str, value: &str) -> Self {
        let slot = Slot::find(self.document.as_table_mut(), path, true);
        let set = slot.zip(value.parse().ok()).and_then(|(slot, value)| slot.set(value));
        match set {
            Some(()) => self,
            None => self.refused(path, "a path of keys and numbers, such as guide_star[1].noise"),
        }
    }

    fn refused(mut self, path: &str, expected: &str) -> Self {
        let (file, key, value) = (String::new(), one_line(path), Some(String::new()));
        let problem = BadLine { file, line: 0, key, value, expected: expected.into() };
        self.problem.get_or_insert(problem);
        self
    }

    // Replace or remove a value
    /// Gives another key of the same table, with this value in TOML, in place of the key at the end of a path. A comment behind the old value
    /// goes with it.
    #[cfg_attr(not(feature = "command"), allow(dead_code))] // the command `learn` gives r0 in place of a seeing
    pub(crate) fn replace(mut self, path: &str, key: &str, value: &str) -> Self {
        let slot = Slot::find(self.document.as_table_mut(), path, false);
        if let Some((slot, value)) = slot.zip(value.parse().ok()) {
            slot.replace(key, value);
        }
        self
    }

    /// Removes the value, table or entry of a list at a path, if there is one.
    pub fn remove(mut self, path: &str) -> Self {
        if let Some(slot) = Slot::find(self.document.as_table_mut(), path, false) {
            slot.remove();
        }
        self
    }

    /// The text, if all changes were possible.
    #[cfg(feature = "python")]
    pub(crate) fn checked_text(&self) -> Result<String, Error> {
        match &self.problem {
            Some(problem) => Err(problem.clone().into()),
            None => Ok(self.text()),
        }
    }

    // Finish a system file
    /// The text as it is now.
    pub fn text(&self) -> String {
        let (mut text, start) = (self.document.to_string(), self.start.as_ref());
        let start = start.map_or("", SystemFile::text);
        if !start.is_empty() && !start.ends_with('\n') {
            text.truncate(text.trim_end_matches('\n').len());
        }
        let breaks = start.matches('\n').count();
        let of_windows = breaks > 0 && start.matches("\r\n").count() == breaks;
        if of_windows { text.replace('\n', "\r\n") } else { text }
    }

    /// The system file.
    ///
    /// # Errors
    /// [`Error::SystemFile`] for a change that was not possible, an unknown key of any table, and a value with which the system cannot be. Lines are
    /// those of the [text](Self::text), if the builder began with a file that has some.
    pub fn build(self) -> Result<SystemFile, Error> {
        let document =
            Document::parse(self.start.as_ref().map_or("", SystemFile::name), &self.text())?;
        let has_lines = self.start.is_some_and(|start| start.document.has_lines());
        if let Some(problem) = self.problem {
            return Err(problem.into());
        }
        let document = if has_lines { document } else { document.without_lines() };
        let file = SystemFile::from(document);
        file.root()?.check_keys()?;
        file.system().map(|_| file)
    }
}

// Follow the path of a value
/// Longer paths lead to nothing.
const MOST_STEPS: usize = 64;

/// Where a value is or will be: at a key of a table, or at an entry of the list under that key.
struct Slot<'t> {
    table: AnyTable<'t>,
    key: &'t str,
    index: Option<usize>,
}

impl<'t> Slot<'t> {
    // Find the slot of a path
    /// The slot at the end of a path. If `make`, tables on the path are made where they are missing.
    fn find(table: &'t mut Table, path: &'t str, make: bool) -> Option<Self> {
        if path.split('.').count() > MOST_STEPS {
            return None;
        }
        let (mut table, mut steps) = (AnyTable::Headed(table), path.split('.').peekable());
        loop {
            let step = steps.next()?;
            let (key, index) = match step.split_once('[') {
                Some((key, index)) => (key, Some(index.strip_suffix(']')?.parse().ok()?)),
                None => (step, None),
            };
            let slot = Self { table, key, index };
            if key.is_empty() {
                return None;
            }
            if steps.peek().is_none() {
                return Some(slot);
            }
            table = slot.open(make)?;
        }
    }
    // Open the table in a slot
    /// The table in this slot.
    fn open(self, make: bool) -> Option<AnyTable<'t>> {
        let (table, key, index) = (self.table.into_like(), self.key, self.index);
        if make && !table.contains_key(key) {
            table.insert(
                key,
                match index {
                    Some(_) => Item::ArrayOfTables(ArrayOfTables::new()),
                    None => Item::Table(Table::new()),
                },
            );
        }
        let item = table.get_mut(key)?;
        match (item, index) {
            (Item::Table(table), None) => Some(AnyTable::Headed(table)),
            (Item::Value(Value::InlineTable(table)), None) => Some(AnyTable::Inline(table)),
            (Item::ArrayOfTables(tables), Some(index)) => {
                if make && index == tables.len() {
                    tables.push(Table::new());
                }
                tables.get_mut(index).map(AnyTable::Headed)
            }
            (Item::Value(Value::Array(list)), Some(index)) => {
                if make && index == list.len() {
                    list.push(InlineTable::new());
                }
                list.get_mut(index)?.as_inline_table_mut().map(AnyTable::Inline)
            }
            _ => None,
        }
    }

    // Change the value in a slot
    /// Sets the value, which takes the comments of an old one.
    fn set(self, value: Value) -> Option<()> {
        let Self { mut table, key, index } = self;
        if !table.like().contains_key(key) {
            let value = match index {
                Some(0) => Value::Array([value].into_iter().collect()),
                Some(_) => return None,
                None => value,
            };
            // Insert behind keys set before
            let mut entries = table.take_entries();
            let set_before = entries.iter().take_while(|(key, _)| key.as_repr().is_none()).count();
            entries.insert(set_before, (Key::new(key), Item::Value(value)));
            table.add_entries(entries);
            return Some(());
        }
        match (table.like().get_mut(key)?, index) {
            (Item::Value(old), None) => in_place_of(old, value),
            (item, None) => *item = Item::Value(value),
            (Item::Value(Value::Array(list)), Some(index)) if index == list.len() => {
                list.push(value)
            }
            (Item::Value(Value::Array(list)), Some(index)) => {
                in_place_of(list.get_mut(index)?, value)
            }
            _ => return None,
        }
        Some(())
    }

    // Replace the key of a slot
    #[cfg_attr(not(feature = "command"), allow(dead_code))]
    fn replace(mut self, new_key: &str, value: Value) {
        let entries = self.table.take_entries().into_iter().map(|(key, item)| {
            if key.get() != self.key {
                return (key, item);
            }
            let (decor, dotted) = (key.leaf_decor().clone(), key.dotted_decor().clone());
            let key = Key::new(new_key).with_leaf_decor(decor).with_dotted_decor(dotted);
            let mut value = value.clone();
            if let Item::Value(mut old) = item {
                let suffix = old.decor().suffix().and_then(RawString::as_str).unwrap_or_default();
                if suffix.contains('#') {
                    old.decor_mut().set_suffix("");
                }
                *value.decor_mut() = old.decor().clone();
            }
            (key, Item::Value(value))
        });
        let entries = entries.collect();
        self.table.add_entries(entries);
    }

    // Remove the value of a slot
    fn remove(self) {
        let table = self.table.into_like();
        match (table.get_mut(self.key), self.index) {
            (Some(Item::ArrayOfTables(tables)), Some(index)) if index < tables.len() => {
                tables.remove(index);
            }
            (Some(Item::Value(Value::Array(list))), Some(index)) if index < list.len() => {
                list.remove(index);
            }
            (Some(_), None) => drop(table.remove(self.key)),
            _ => {}
        }
    }
}

// Replace a value in its layout
fn in_place_of(old: &mut Value, mut value: Value) {
    *value.decor_mut() = old.decor().clone();
    *old = value;
}

// Take a table apart
/// A table under a heading, or one in braces.
enum AnyTable<'t> {
    Headed(&'t mut Table),
    Inline(&'t mut InlineTable),
}

impl<'t> AnyTable<'t> {
    // Tables of either kind
    fn like(&mut self) -> &mut dyn TableLike {
        match self {
            Self::Headed(table) => *table,
            Self::Inline(table) => *table,
        }
    }

    fn into_like(self) -> &'t mut dyn TableLike {
        match self {
            Self::Headed(table) => table,
            Self::Inline(table) => table,
        }
    }

    /// All entries of the table, which is empty afterwards.
    fn take_entries(&mut self) -> Vec<(Key, Item)> {
        let table = self.like();
        let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
        let take = |key: String| {
            let key = table.key(&key)?.clone();
            table.remove(key.get()).map(|item| (key, item))
        };
        keys.into_iter().filter_map(take).collect()
    }

    // Add entries with their keys
    /// Adds entries whose keys are written as they were.
    fn add_entries(&mut self, entries: Vec<(Key, Item)>) {
        for (key, item) in entries {
            match self {
                Self::Headed(table) => drop(table.insert_formatted(&key, item)),
                Self::Inline(table) => {
                    item.into_value().ok().and_then(|value| table.insert_formatted(&key, value));
                }
            }
        }
    }
}

// Check building and editing of system files
#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, edit: impl Fn(SystemFileBuilder) -> SystemFileBuilder) -> String {
        edit(SystemFile::from_toml(text, "x.toml").unwrap().to_builder()).text()
    }

    #[test]
    fn values_change_and_all_else_stays() {
        let text = "# first\n[air]\nr0 = 0.15  # m\nlayers = [\n  { h = 0.0, f = 1 }, # low\n  {},\n]\n\n[[star]] # one\nnoise = 1e-14\n[[star]]\nzenith = 3";
        let found = edited(text, |file| {
            file.set_toml("air.r0", "0.2")
                .set_toml("air.layers[0].h", "5.0")
                .set_toml("air.layers[0].scale", "7.0")
                .set_toml("air.layers[0].wind", "8.0")
                .set_toml("air.layers[1].f", "0.5")
                .set("star[0].shift", vec![1.0, 2.0])
                .set("star[0].rotation", 3)
                .set("star[0].noise", 2e-14)
                .set_toml("star[1].noise", "3e-14")
        });
        let expected = "# first\n[air]\nr0 = 0.2  # m\nlayers = [\n  { scale = 7.0, wind = 8.0, h = 5.0, f = 1 }, # low\n  { f = 0.5 },\n]\n\n[[star]] # one\nshift = [1.0, 2.0]\nrotation = 3\nnoise = 2e-14\n[[star]]\nnoise = 3e-14\nzenith = 3";
        assert_eq!(found, expected);
    }

    #[test]
    fn keys_change_with_their_values() {
        for (text, expected) in [
            ("[air] # a\n  width = 0.7  # arcsec\nb = 1", "[air] # a\n  r0 = 0.2\nb = 1"),
            ("air = { width = 0.7, b = 1 } # c", "air = { r0 = 0.2, b = 1 } # c"),
            ("air.width = 0.7\r\nair.b = '#'", "air.r0 = 0.2\r\nair.b = '#'"),
            ("[air]\nb = 1", "[air]\nb = 1"),
        ] {
            assert_eq!(edited(text, |file| file.replace("air.width", "r0", "0.2")), expected);
        }
        assert_eq!(
            edited("width = 1 # m", |file| file.replace("width", "height", "2")),
            "height = 2"
        );
    }

    // Tables are made and removed
    #[test]
    fn tables_and_entries_are_made_and_removed() {
        let built = SystemFile::builder()
            .set("a.b[0].c", 1)
            .set("a.b[1].c", true)
            .set("a.d", "e")
            .set("f[0]", 1.5)
            .set("f[1]", 2.5)
            .set("g.h.i", f64::INFINITY);
        assert_eq!(built.problem, None);
        let text = "f = [1.5, 2.5]\n\n[a]\nd = \"e\"\n\n[[a.b]]\nc = 1\n\n[[a.b]]\nc = true\n\n[g]\n\n[g.h]\ni = inf\n";
        assert_eq!(built.text(), text);
        let fewer = built.remove("a.b[0]").remove("f[1]").remove("g").remove("none.such[3]");
        assert_eq!(fewer.text(), "f = [1.5]\n\n[a]\nd = \"e\"\n\n[[a.b]]\nc = true\n");
        for path in
            ["", ".", "a.", "a[", "a[x]", "a[0", "f[9]", "f.x", "f[0].x", "a.b[7].c", "a.b[0][0]"]
        {
            let refused = fewer.clone().set(path, 1).build().unwrap_err().to_string();
            assert!(
                refused.ends_with("a path of keys and numbers, such as guide_star[1].noise"),
                "{path}: {refused}"
            );
        }
    }
}
