// Tangled from book/src/cif.md: edit there, or here and run cargo tangle stitch.
//! Crystals in CIF files.

// Imports of the reader of CIF
use crate::error::BadLine;
use crate::files::spanned_toml::one_line;
use crate::formats::crystal_files::{CrystalText, Listed};
use crate::specimen::atoms::{Atom, Element};
use crate::specimen::crystal::{Crystal, Matrix3, minus, norm, sides, times};
use crate::specimen::space_groups::{
    Setting, SymmetryOperation, hall_operations, is_group, nearest_symbols, preserve,
    same_operations, settings as all_settings, settings_of_number, settings_of_operations,
    settings_of_symbol,
};
use crate::units::DEGREE;
use std::{
    collections::{BTreeMap, HashMap},
    f64::consts::PI,
    ops::RangeInclusive,
};

// A word of a CIF
/// A word of a CIF, the line on which it begins, and whether it is a value that was quoted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CifWord<'t> {
    text: &'t str,
    line: usize,
    quoted: bool,
}

// Words of a CIF
impl<'t> CrystalText<'t> {
    /// The words of a CIF, remarks left out.
    fn words(&self) -> Result<Vec<CifWord<'t>>, BadLine> {
        let mut words = Vec::new();
        let mut number = 0;
        while number < self.lines.len() {
            let line = self.lines[number];
            number += 1;
            // Keep the first line of a text
            if let Some(first) = line.strip_prefix(';') {
                let end = self.lines[number..].iter().position(|line| line.starts_with(';'));
                let end = end.ok_or_else(|| {
                    self.bad(
                        number,
                        "text",
                        Some(line),
                        "a line with ; after a text that begins with ;",
                    )
                })?;
                words.push(CifWord { text: first.trim(), line: number, quoted: true });
                number += end + 1;
                continue;
            }
            self.words_of_line(number, line, &mut words)?;
        }
        Ok(words)
    }

    // Words on a line of a CIF
    /// Appends the words on line `number`.
    fn words_of_line(
        &self,
        number: usize,
        line: &'t str,
        words: &mut Vec<CifWord<'t>>,
    ) -> Result<(), BadLine> {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
            // Separate the next word from a line
            let (text, after) = match quote {
                Some(mark) => {
                    let closes = |&(at, _): &(usize, &str)| {
                        at > 0 && rest[at + 1..].chars().next().is_none_or(char::is_whitespace)
                    };
                    let end = rest.match_indices(mark).find(closes);
                    let (end, _) = end.ok_or_else(|| {
                        self.bad(
                            number,
                            "quotation",
                            Some(rest),
                            "a closing mark before the end of the line",
                        )
                    })?;
                    (&rest[1..end], &rest[end + 1..])
                }
                None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
            };
            words.push(CifWord { text, line: number, quoted: quote.is_some() });
            rest = after.trim_start();
        }
        Ok(())
    }
}

// Columns of a block
/// A `data_` block: the line where it begins, and columns of values by their names.
#[derive(Debug, Default)]
struct CifBlock<'t> {
    line: usize,
    columns: HashMap<String, Vec<CifWord<'t>>>,
}

// Columns and values of a block
impl<'t> CifBlock<'t> {
    fn column(&self, name: &str) -> Option<&[CifWord<'t>]> {
        self.columns.get(name).map(Vec::as_slice)
    }

    /// The first value of the first of `names` that has one: neither ? nor a period.
    fn value(&self, names: &[&str]) -> Option<CifWord<'t>> {
        names
            .iter()
            .find_map(|name| self.column(name)?.first().copied().filter(|word| word.given()))
    }
}

// Kinds of words of a CIF
impl CifWord<'_> {
    /// Whether it says anything: ? and a period stand for values that are unknown or do not apply.
    fn given(&self) -> bool {
        self.quoted || !matches!(self.text, "?" | ".")
    }

    /// Whether it is one of the language's own words, `data_…`, `loop_`, `save_…`, or a name.
    fn is(&self, start: &str) -> bool {
        !self.quoted
            && self.text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    }
}

// Gather words into blocks
impl<'t> CrystalText<'t> {
    /// The block with atoms, of which there must be one.
    fn block(&self) -> Result<CifBlock<'t>, BadLine> {
        let words = self.words()?;
        let mut blocks = vec![CifBlock { line: 1, ..CifBlock::default() }];
        let mut at = 0;
        while at < words.len() {
            let word = words[at];
            if word.is("data_") {
                blocks.push(CifBlock { line: word.line, ..CifBlock::default() });
                at += 1;
                continue;
            }
            let Some(block) = blocks.last_mut() else { break };
            at = self.gather(&words, at, block)?;
        }
        // Choose the block with atoms
        blocks.retain(|block| block.column("_atom_site_fract_x").is_some());
        let second = blocks.get(1).map(|block| block.line);
        match (second, blocks.into_iter().next()) {
            (Some(line), _) => Err(self.bad(
                line,
                "data_",
                Some("a second structure"),
                "one data_ block with atoms in the file",
            )),
            (None, Some(block)) => Ok(block),
            (None, None) => Err(self.bad(
                self.lines.len().max(1),
                "_atom_site_fract_x",
                None,
                "a list of atoms with their places in units of the sides",
            )),
        }
    }

    // Gather a value or a loop
    /// Puts the value or the loop at word `at` into a block, and returns the place of the word after it.
    fn gather(
        &self,
        words: &[CifWord<'t>],
        at: usize,
        block: &mut CifBlock<'t>,
    ) -> Result<usize, BadLine> {
        let word = words[at];
        let own =
            |word: &CifWord| ["_", "loop_", "data_", "save_"].iter().any(|start| word.is(start));
        let run = |from: usize, holds: &dyn Fn(&CifWord) -> bool| {
            from + words[from..].iter().take_while(|word| holds(word)).count()
        };
        // Find names and values of a loop
        let start = if word.is("loop_") { at + 1 } else { at };
        let names = if word.is("loop_") { run(start, &|word| word.is("_")) } else { at + 1 };
        let end = if word.is("loop_") {
            run(names, &|word| !own(word))
        } else {
            (at + 2).min(words.len())
        };
        let (width, count) = (names - start, end - names);
        let named =
            width > 0 && words[start].is("_") && words[names..end].iter().all(|word| !own(word));
        if !named || count == 0 || count % width != 0 {
            let expected = "a name and its value, or a loop_ with names and full rows of values";
            return Err(self.bad(word.line, "CIF", Some(word.text), expected));
        }
        for (k, name) in words[start..names].iter().enumerate() {
            let column = words[names..end].iter().skip(k).step_by(width).copied().collect();
            block.columns.insert(name.text.to_ascii_lowercase().replace('.', "_"), column);
        }
        Ok(end)
    }
}

// Numbers with uncertainties
impl CrystalText<'_> {
    /// The number that a word holds, less its uncertainty, if it lies in `range`.
    fn measured(
        &self,
        name: &str,
        word: CifWord,
        range: RangeInclusive<f64>,
        expected: &str,
    ) -> Result<f64, BadLine> {
        let (number, uncertainty) = match word.text.split_once('(') {
            Some((number, rest)) => (number, rest.strip_suffix(')')),
            None => (word.text, Some("0")),
        };
        let plain = uncertainty.is_some_and(|text| {
            !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit() || c == b'.')
        });
        self.number(word.line, name, plain.then_some(number), range, expected)
            .map_err(|bad| BadLine { value: Some(one_line(word.text)), ..bad })
    }
}

// Operations of a block
impl CrystalText<'_> {
    /// The operations of symmetry that a block lists, with the line of the first.
    fn listed_operations(
        &self,
        block: &CifBlock,
    ) -> Result<Option<(Vec<SymmetryOperation>, usize)>, BadLine> {
        const LISTS: [&str; 2] = ["_space_group_symop_operation_xyz", "_symmetry_equiv_pos_as_xyz"];
        let list = LISTS.iter().find_map(|name| Some((name, block.column(name)?)));
        let Some((name, words)) = list else { return Ok(None) };
        let expected = "an operation of symmetry such as -y, x-y, z+1/3";
        let read = |word: &CifWord| {
            SymmetryOperation::read(word.text)
                .ok_or_else(|| self.bad(word.line, name, Some(word.text), expected))
        };
        let line = words.first().map_or(block.line, |word| word.line);
        Ok(Some((words.iter().map(read).collect::<Result<_, _>>()?, line)))
    }
}

// Names of a space group
/// The symbol, the Hall symbol, the number and the code of the setting that a block gives.
#[derive(Debug, Clone, Copy, Default)]
struct GroupNames<'t> {
    symbol: Option<(&'static str, CifWord<'t>)>,
    hall: Option<(&'static str, CifWord<'t>)>,
    number: Option<(&'static str, CifWord<'t>)>,
    code: Option<(&'static str, CifWord<'t>)>,
}

impl<'t> GroupNames<'t> {
    /// The names that a block gives, without blanks only.
    fn of(block: &CifBlock<'t>) -> Self {
        let given = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let word = block.value(&[name])?;
                (!word.text.trim().is_empty() && !word.text.trim().starts_with('?'))
                    .then_some((*name, word))
            })
        };
        Self {
            symbol: given(&[
                "_space_group_name_h-m_alt",
                "_symmetry_space_group_name_h-m",
                "_space_group_name_h-m_full",
                "_space_group_name_h-m",
            ]),
            hall: given(&["_space_group_name_hall", "_symmetry_space_group_name_hall"]),
            number: given(&["_space_group_it_number", "_symmetry_int_tables_number"]),
            code: given(&["_space_group_it_coordinate_system_code"]),
        }
    }
}

// Operations by the names of a group
impl CrystalText<'_> {
    /// The operations of the group that a block names, and a note where the names left a choice.
    fn named_operations(
        &self,
        block: &CifBlock,
        lattice: &Matrix3,
        sites: &[CifSite],
    ) -> Result<(Vec<SymmetryOperation>, Option<String>), BadLine> {
        let names = GroupNames::of(block);
        let candidates = self.candidates(&names)?;
        // Operations of the most definite name
        if let Some((key, word)) = names.hall {
            let operations = self.hall_operations(key, word, &names, &candidates)?;
            self.check_cell(key, word, &operations, lattice)?;
            return Ok((operations, None));
        }
        let Some((key, word)) = names.symbol.or(names.number) else {
            return Ok((vec![SymmetryOperation::IDENTITY], None));
        };
        // Choose among settings that fit the cell
        let mut fitting = candidates.clone();
        fitting.retain(|one| preserve(&one.operations(), lattice));
        if let (Some(first), true) = (candidates.first(), fitting.is_empty()) {
            self.check_cell(key, word, &first.operations(), lattice)?;
        }
        let (setting, note) = choose(&fitting, block, lattice, sites);
        let operations = setting.map_or(vec![SymmetryOperation::IDENTITY], |one| one.operations());
        let (name, line) = (self.name, word.line);
        Ok((
            operations,
            note.map(|note| format!("{name}:{line}: {key} = {}: {note}", one_line(word.text))),
        ))
    }

    // Candidates for a setting
    /// The settings that symbol, number and code allow; none without symbol and number.
    fn candidates(&self, names: &GroupNames) -> Result<Vec<Setting>, BadLine> {
        // The number of a space group
        let number = names.number.map(|(key, word)| {
            let number =
                word.text.trim().parse::<u8>().ok().filter(|number| (1..=230).contains(number));
            let expected = "the number of a space group, from 1 to 230";
            number.ok_or_else(|| self.bad(word.line, key, Some(word.text), expected))
        });
        let number = number.transpose()?;
        let coded = names.code.is_some();
        let mut settings = match (names.symbol, number) {
            (Some((key, word)), _) => self.settings_of_word(key, word, names.hall.is_some())?,
            (None, Some(number)) if coded => {
                all_settings().filter(|one| one.number == number).collect()
            }
            (None, Some(number)) => settings_of_number(number),
            (None, None) => Vec::new(),
        };
        // Exclude settings of another number
        if let (Some((key, word)), Some(number), Some(first)) =
            (names.number, number, settings.first())
        {
            let expected =
                format!("{}, the number of {}, or another symbol", first.number, first.symbol());
            settings.retain(|one| one.number == number);
            if settings.is_empty() {
                return Err(self.bad(word.line, key, Some(word.text), &expected));
            }
        }
        // Exclude settings with another code
        if let (Some((key, word)), Some(first)) = (names.code, settings.first()) {
            let expected = format!(
                "the code of a setting of {}, such as {}",
                first.symbol(),
                codes(&settings)
            );
            settings.retain(|one| one.has_code(word.text.trim()));
            if settings.is_empty() {
                return Err(self.bad(word.line, key, Some(word.text), &expected));
            }
        }
        Ok(settings)
    }

    // Settings of a word
    /// The settings of a symbol; none for one that is unknown if the operations are `known` without it.
    fn settings_of_word(
        &self,
        key: &str,
        word: CifWord,
        known: bool,
    ) -> Result<Vec<Setting>, BadLine> {
        let settings = settings_of_symbol(word.text);
        if !settings.is_empty() || known {
            return Ok(settings);
        }
        let stem = word.text.split(':').next().unwrap_or_default();
        let expected = match settings_of_symbol(stem) {
            settings if settings.is_empty() || stem == word.text => format!(
                "the Hermann-Mauguin symbol of a space group, the nearest are {}, or its operations in a loop_ with _space_group_symop_operation_xyz",
                nearest_symbols(word.text).join(", ")
            ),
            settings => format!("the symbol with one of {}, or none", codes(&settings)),
        };
        Err(self.bad(word.line, key, Some(word.text), &expected))
    }

    // Operations of a block's Hall symbol
    /// The operations of a Hall symbol, if they are those of the group that the other names mean.
    fn hall_operations(
        &self,
        key: &str,
        word: CifWord,
        names: &GroupNames,
        candidates: &[Setting],
    ) -> Result<Vec<SymmetryOperation>, BadLine> {
        let expected = "a Hall symbol such as -P 2ybc, or the operations in a loop_ with _space_group_symop_operation_xyz";
        let operations = hall_operations(word.text)
            .ok_or_else(|| self.bad(word.line, key, Some(word.text), expected))?;
        let group =
            settings_of_operations(&operations).first().map(|one| (one.number, one.symbol()));
        // Reject a Hall symbol of another group
        if let (Some((number, symbol)), Some(other)) = (group, candidates.first())
            && candidates.iter().all(|one| one.number != number)
        {
            let line = names.symbol.or(names.number).map_or(word.line, |(_, word)| word.line);
            let expected = format!(
                "a Hall symbol of {}, group {}, which line {line} names; this one is of {symbol}, group {number}",
                other.symbol(),
                other.number
            );
            return Err(self.bad(word.line, key, Some(word.text), &expected));
        }
        Ok(operations)
    }

    // Refuse a cell of another group
    /// Refuses a cell whose lengths and angles the operations do not preserve.
    fn check_cell(
        &self,
        key: &str,
        word: CifWord,
        operations: &[SymmetryOperation],
        lattice: &Matrix3,
    ) -> Result<(), BadLine> {
        let expected = "a space group whose operations preserve the lengths and angles of the cell, or another cell";
        preserve(operations, lattice)
            .then_some(())
            .ok_or_else(|| self.bad(word.line, key, Some(word.text), expected))
    }
}

// Codes of settings
/// The codes that distinguish settings, for messages.
fn codes(settings: &[Setting]) -> String {
    let mut codes: Vec<&str> = settings.iter().map(Setting::code).collect();
    codes.dedup();
    codes.iter().take(6).map(|code| format!(":{code}")).collect::<Vec<_>>().join(", ")
}

// Choose between settings
/// The setting of all that fit, and a note if there was a choice.
fn choose(
    fitting: &[Setting],
    block: &CifBlock,
    lattice: &Matrix3,
    sites: &[CifSite],
) -> (Option<Setting>, Option<String>) {
    let Some(first) = fitting.first() else { return (None, None) };
    let rivals: Vec<&Setting> = fitting
        .iter()
        .filter(|one| one.axes() == first.axes() && one.number == first.number)
        .collect();
    // A note on the orientation of axes
    if rivals.len() == 1 {
        let alike =
            fitting.iter().all(|one| same_operations(&one.operations(), &first.operations()));
        let note = format!(
            "the cell does not determine the orientation of the axes; setting {} is taken, of {}",
            first.code(),
            codes(fitting).replace(':', "")
        );
        return (Some(*first), (!alike).then_some(note));
    }
    let counts: Vec<Composition> =
        rivals.iter().map(|one| Composition::of(sites, &one.operations(), lattice)).collect();
    // Decide by the formula and the number of atoms
    let formula = Formula::of(block);
    let agrees: Vec<bool> = counts
        .iter()
        .map(|count| formula.as_ref().is_some_and(|formula| count.is_of(formula)))
        .collect();
    let decided = agrees.contains(&true) && agrees.contains(&false);
    let possible = || (0..rivals.len()).filter(|&k| !decided || agrees[k]);
    let fewest = possible().map(|k| counts[k].atoms()).fold(f64::INFINITY, f64::min);
    let chosen = possible().find(|&k| counts[k].atoms() <= fewest * (1.0 + 1e-9)).unwrap_or(0);
    let equal = counts.iter().all(|count| (count.atoms() - fewest).abs() < 1e-9 * fewest);
    let reason = match (decided, equal) {
        (true, _) => "as its atoms are those of the formula",
        (false, false) => "as its atoms are the fewest",
        (false, true) => "as nothing in the file decides",
    };
    // A note on the chosen origin
    let each: Vec<String> = rivals
        .iter()
        .zip(&counts)
        .map(|(one, count)| {
            format!("{} atoms with :{}", count.atoms(), one.origin().unwrap_or_default())
        })
        .collect();
    let (symbol, origin) = (rivals[chosen].symbol(), rivals[chosen].origin().unwrap_or_default());
    let note = format!(
        "the symbol has {} origins; {symbol} is taken, {reason} ({}); write :{origin} behind the symbol to confirm",
        rivals.len(),
        each.join(", ")
    );
    (Some(*rivals[chosen]), Some(note))
}

// Composition of a cell
/// Atoms of each element, by their occupancies.
#[derive(Debug, Default)]
struct Composition(BTreeMap<Element, f64>);

impl Composition {
    /// That of a cell whose operations apply to `sites`.
    fn of(sites: &[CifSite], operations: &[SymmetryOperation], lattice: &Matrix3) -> Self {
        let mut composition = Self::default();
        for site in sites {
            let count = images(site.place, operations, lattice).len() as f64;
            *composition.0.entry(site.atom.element).or_default() += site.atom.occupancy * count;
        }
        composition
    }

    // Compare two compositions
    /// How many atoms there are.
    fn atoms(&self) -> f64 {
        self.0.values().sum()
    }

    /// Whether it is that of a formula, to two per cent, and of as many formula units as are in a cell.
    fn is_of(&self, formula: &Formula) -> bool {
        if !self.0.keys().eq(formula.one.0.keys()) {
            return false;
        }
        let units = formula.units.unwrap_or(self.atoms() / formula.one.atoms());
        let pairs = self.0.values().zip(formula.one.0.values());
        pairs.into_iter().all(|(count, one)| (count / (one * units) - 1.0).abs() < 0.02)
    }
}

// Chemical formula of a block
/// The composition by `_chemical_formula_sum`, such as `Al2 Mg O4`, and how many formula units a cell holds.
#[derive(Debug)]
struct Formula {
    one: Composition,
    units: Option<f64>,
}

impl Formula {
    /// That of a block, if it gives one that can be read.
    fn of(block: &CifBlock) -> Option<Self> {
        let mut one = Composition::default();
        for part in block.value(&["_chemical_formula_sum"])?.text.split_whitespace() {
            let split = part.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(part.len());
            let element = known_element(&part[..split])?;
            let count =
                if split == part.len() { 1.0 } else { part[split..].parse::<f64>().ok()? };
            *one.0.entry(element).or_default() +=
                (count > 0.0 && count.is_finite()).then_some(count)?;
        }
        let units = block.value(&["_cell_formula_units_z"]);
        let units = units.and_then(|word| word.text.parse::<f64>().ok());
        let units = units.filter(|units| *units > 0.0 && units.is_finite());
        Some(Self { one, units })
    }
}

// Element of a symbol in a CIF
/// The element of a symbol; isotopes of hydrogen are hydrogen.
fn known_element(symbol: &str) -> Option<Element> {
    let symbol = if matches!(symbol, "D" | "T" | "d" | "t") { "H" } else { symbol };
    Element::of_symbol(symbol).ok()
}

// Compare listed operations with names
impl CrystalText<'_> {
    /// A note if a list of operations is not of the group that a block names.
    fn disagreement(
        &self,
        block: &CifBlock,
        operations: &[SymmetryOperation],
        line: usize,
    ) -> Option<String> {
        // Settings that the names mean
        let names = GroupNames::of(block);
        let (key, word) = names.symbol.or(names.number).or(names.hall)?;
        let named = match self.candidates(&GroupNames { hall: None, code: None, ..names }) {
            Ok(settings) => settings,
            Err(bad) => {
                let known = |(_, word): (_, CifWord)| !settings_of_symbol(word.text).is_empty();
                let contradiction = format!("{bad}; the operations that are listed are used");
                return names.symbol.is_some_and(known).then_some(contradiction);
            }
        };
        let named = match names.hall.and_then(|(_, word)| hall_operations(word.text)) {
            Some(hall) if named.is_empty() => settings_of_operations(&hall),
            _ => named,
        };
        if named.is_empty()
            || named.iter().any(|one| same_operations(&one.operations(), operations))
        {
            return None;
        }
        // Describe the listed operations
        let settings = settings_of_operations(operations);
        let what = match settings.first() {
            Some(first) if named.iter().any(|one| one.number == first.number) => return None,
            Some(first) => format!("are those of {}, group {}", first.symbol(), first.number),
            None if is_group(operations) => return None,
            None => "are not a group: products of some of them are missing".into(),
        };
        let (name, text) = (self.name, one_line(word.text));
        let count = operations.len();
        Some(format!(
            "{name}:{}: {key} = {text}: the {count} operations listed from line {line} {what}; the list is used",
            word.line
        ))
    }
}

// A listed atom of a CIF
/// An atom of the list: its position in units of the sides, and its line.
#[derive(Debug, Clone, Copy)]
struct CifSite {
    place: [f64; 3],
    atom: Atom,
    line: usize,
}

// Thirds and sixths
/// `place`, or the third or sixth that it is with four digits or more, rounded or cut off.
fn exact(place: f64, text: &str) -> f64 {
    let sixth = (6.0 * place).round() / 6.0;
    let text = text.split('(').next().unwrap_or_default();
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    let rounded = digits >= 4 && (place - sixth).abs() < 0.7 * 10f64.powi(-(digits.min(12) as i32));
    if rounded { sixth } else { place }
}

// Images of an atom
/// The places, all from 0 to 1, to which operations take `place`; those nearer than 0.05 Å to another in the cell of `lattice` are left out.
fn images(place: [f64; 3], operations: &[SymmetryOperation], lattice: &Matrix3) -> Vec<[f64; 3]> {
    let near = |a: [f64; 3], b: [f64; 3]| {
        let apart = minus(a, b).map(|x| x - x.round());
        norm(times(apart, lattice)) < 0.05
    };
    let mut places: Vec<[f64; 3]> = Vec::new();
    for operation in operations {
        let image = operation.of(place).map(home);
        if !places.iter().any(|&other| near(image, other)) {
            places.push(image);
        }
    }
    places
}

/// A place brought between 0 and 1; what rounding leaves just below 1 is 0.
fn home(place: f64) -> f64 {
    let home = place.rem_euclid(1.0);
    if home > 1.0 - 1e-9 { 0.0 } else { home }
}

// Read a CIF
impl CrystalText<'_> {
    /// Reads a CIF: the cell, its symmetry, and its atoms.
    pub(crate) fn cif(&self) -> Result<Listed, BadLine> {
        let block = self.block()?;
        let lattice = self.cif_cell(&block)?;
        let rows = block.column("_atom_site_fract_x").map_or(0, <[CifWord]>::len);
        let sites = (0..rows).filter_map(|row| self.site(&block, row).transpose());
        let sites: Vec<CifSite> = sites.collect::<Result<_, _>>()?;
        let (operations, note) = match self.listed_operations(&block)? {
            Some((operations, line)) => {
                let note = self.disagreement(&block, &operations, line);
                (operations, note)
            }
            None => self.named_operations(&block, &lattice, &sites)?,
        };
        // Images of all listed atoms
        let (mut atoms, mut lines) = (Vec::new(), Vec::new());
        for site in sites {
            let of_image = |image| Atom { position: times(image, &lattice), ..site.atom };
            atoms.extend(images(site.place, &operations, &lattice).into_iter().map(of_image));
            lines.resize(atoms.len(), site.line);
        }
        let crystal = self.check(block.line, Crystal::new(lattice, atoms))?;
        Ok(Listed { notes: note.into_iter().collect(), ..Listed::periodic(crystal, lines) })
    }

    // The cell of a CIF
    /// The sides of the cell.
    fn cif_cell(&self, block: &CifBlock) -> Result<Matrix3, BadLine> {
        let read = |name: &str, expected: &str, range: RangeInclusive<f64>| {
            let word =
                block.value(&[name]).ok_or_else(|| self.bad(block.line, name, None, expected))?;
            Ok((self.measured(name, word, range, expected)?, word.line))
        };
        let (mut lengths, mut angles, mut line) = ([0.0; 3], [0.0; 3], 0);
        for (k, name) in
            ["_cell_length_a", "_cell_length_b", "_cell_length_c"].into_iter().enumerate()
        {
            (lengths[k], _) = read(name, "a length in Å", 1e-3..=1e7)?;
        }
        for (k, name) in
            ["_cell_angle_alpha", "_cell_angle_beta", "_cell_angle_gamma"].into_iter().enumerate()
        {
            (angles[k], line) = read(name, "an angle in degrees", 1.0..=179.0)?;
        }
        self.check(line, sides(lengths, angles.map(|angle| angle * DEGREE)))
    }

    // One atom of a CIF
    /// The atom on row `row` of the list of atoms, unless it is a dummy.
    fn site(&self, block: &CifBlock, row: usize) -> Result<Option<CifSite>, BadLine> {
        let cell = |name: &str| block.column(name).and_then(|column| column.get(row)).copied();
        let given = |name: &str| cell(name).filter(CifWord::given);
        if given("_atom_site_calc_flag").is_some_and(|word| word.text.eq_ignore_ascii_case("dum")) {
            return Ok(None);
        }
        // Fractional coordinates of a listed atom
        let line = cell("_atom_site_fract_x").map_or(block.line, |word| word.line);
        let mut place = [0.0; 3];
        for (k, name) in ["_atom_site_fract_x", "_atom_site_fract_y", "_atom_site_fract_z"]
            .into_iter()
            .enumerate()
        {
            let expected = "a place in units of the side";
            let word = cell(name).ok_or_else(|| self.bad(line, name, None, expected))?;
            place[k] = exact(self.measured(name, word, -1e6..=1e6, expected)?, word.text);
        }
        // Element and occupancy of a listed atom
        let element =
            self.cif_element(line, given("_atom_site_type_symbol"), given("_atom_site_label"))?;
        let occupancy = match given("_atom_site_occupancy") {
            Some(word) => {
                self.measured("_atom_site_occupancy", word, 0.0..=1.0, "a number from 0 to 1")?
            }
            None => 1.0,
        };
        // The displacement of an atom of a CIF
        let names =
            [("_atom_site_u_iso_or_equiv", 1.0), ("_atom_site_b_iso_or_equiv", 8.0 * PI * PI)];
        let tag = names.into_iter().find_map(|(name, factor)| Some((name, factor, given(name)?)));
        let displacement = match tag {
            Some((name, factor, word)) => {
                (self.measured(name, word, 0.0..=1e4, "a mean square in Å², not negative")?
                    / factor)
                    .sqrt()
            }
            None => 0.0,
        };
        let atom = Atom { element, position: [0.0; 3], occupancy, displacement };
        Ok(Some(CifSite { place, atom, line }))
    }

    // The element of an atom of a CIF
    /// The element that the type of an atom names, or else its label.
    fn cif_element(
        &self,
        line: usize,
        kind: Option<CifWord>,
        label: Option<CifWord>,
    ) -> Result<Element, BadLine> {
        let letters = |word: CifWord| {
            word.text.chars().take_while(char::is_ascii_alphabetic).collect::<String>()
        };
        let known = known_element;
        if let Some(kind) = kind {
            let expected = "the symbol of an element, with a charge or without";
            return known(&letters(kind)).ok_or_else(|| {
                self.bad(kind.line, "_atom_site_type_symbol", Some(kind.text), expected)
            });
        }
        let expected =
            "a label that begins with the symbol of one element, or _atom_site_type_symbol";
        let label = label.ok_or_else(|| self.bad(line, "_atom_site_label", None, expected))?;
        let symbol = letters(label);
        let [one, two] = [1, 2].map(|count| symbol.get(..count).and_then(known));
        let small = symbol.chars().nth(1).is_some_and(|c| c.is_ascii_lowercase());
        let element = match (one, two) {
            (_, Some(element)) if small => Some(element),
            (Some(_), Some(_)) => None,
            (one, two) => one.filter(|_| !small).or(two),
        };
        element.ok_or_else(|| self.bad(label.line, "_atom_site_label", Some(label.text), expected))
    }
}

// Tests of CIF
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::crystal::plus;

    fn read(text: &str) -> Result<Crystal, crate::Error> {
        Crystal::from_text(text, "c.cif", None)
    }

    const RUTILE: &str = "#\\#CIF_1.1\ndata_rutile\n_cell_length_a 4.5941(2)\n_cell_length_b 4.5941\n_cell_length_c 2.9589(3)\n\
        _cell_angle_alpha 90\n_cell_angle_beta 90.0\n_cell_angle_gamma 90\n_symmetry_space_group_name_H-M 'P 42/m n m'\n\
        _journal_title\n;\nloop_ of 'all' _things\n;\n\
        loop_\n_symmetry_equiv_pos_as_xyz\nx,y,z\n-x,-y,z\n-y+1/2,x+1/2,z+1/2\n'y+1/2, -x+1/2, 1/2+z'\n-x+1/2,y+1/2,-z+.5\nx+1/2,-y+1/2,-z+1/2\ny,x,-z\n-Y,-X,-Z\n\
        loop_\n_atom_site_label\n_atom_site_type_symbol\n_atom_site_fract_x\n_atom_site_fract_y\n_atom_site_fract_z\n_atom_site_occupancy\n_atom_site_B_iso_or_equiv\n\
        Ti Ti4+ 0 0 0 1 0.5 # at rest\nO1 O2- 0.3053(1) 0.3053(1) 0.0 0.97(1) .\n";

    // Rutile and graphite are read
    #[test]
    fn rutile_has_six_atoms() {
        let rutile = read(RUTILE).unwrap();
        let count = |symbol: &str| {
            rutile.atoms().iter().filter(|atom| atom.element.symbol() == symbol).count()
        };
        assert_eq!((count("Ti"), count("O")), (2, 4));
        assert!((rutile.volume() - 4.5941 * 4.5941 * 2.9589).abs() < 1e-9);
        let titanium = rutile.atoms()[0];
        assert!((titanium.displacement - (0.5f64 / 78.956_835_208_714_9).sqrt()).abs() < 1e-12);
        assert_eq!((rutile.atoms()[2].occupancy, rutile.atoms()[2].displacement), (0.97, 0.0));
        // Each titanium has two oxygens at 1.9836 Å and four at 1.9459 Å.
        let lattice = rutile.lattice();
        let mut distances = Vec::new();
        for oxygen in rutile.atoms().iter().filter(|atom| atom.element.symbol() == "O") {
            for k in 0..27 {
                let shift = times([k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1].map(f64::from), &lattice);
                distances.push(norm(minus(plus(oxygen.position, shift), titanium.position)));
            }
        }
        distances.retain(|distance| *distance < 2.3);
        distances.sort_by(f64::total_cmp);
        assert_eq!(distances.len(), 6);
        assert!(
            (distances[3] - 1.9459).abs() < 1e-3 && (distances[5] - 1.9836).abs() < 1e-3,
            "{distances:?}"
        );
        let by_u = RUTILE
            .replace("_atom_site_B_iso", "_atom_site.U_iso")
            .replace("1 0.5 #", "1 0.006332573977646 #");
        assert!(
            (read(&by_u).unwrap().atoms()[0].displacement - titanium.displacement).abs() < 1e-12
        );
    }

    #[test]
    fn graphite_has_thirds_and_shared_sites_have_two() {
        let text = "data_g _cell_length_a 2.46 _cell_length_b 2.46 _cell_length_c 6.71 _cell_angle_alpha 90 _cell_angle_beta 90 _cell_angle_gamma 120\n\
            loop_ _space_group_symop.operation_xyz x,y,z -y,x-y,z -x+y,-x,z -x,-y,z+1/2 y,-x+y,z+1/2 x-y,x,z+1/2\n\
            loop_ _atom_site.label _atom_site.fract_x _atom_site.fract_y _atom_site.fract_z _atom_site.occupancy C1 0 0 0.25 1 C2 0.3333 0.66667 0.25 0.5 Si2 0.3333 0.6667 0.25 0.5\n";
        let graphite = read(text).unwrap();
        let carbon: Vec<[f64; 3]> = graphite
            .atoms()
            .iter()
            .filter(|atom| atom.element.number() == 6)
            .map(|atom| graphite.fractional(atom.position))
            .collect();
        let expected = [
            [0.0, 0.0, 0.25],
            [0.0, 0.0, 0.75],
            [1.0 / 3.0, 2.0 / 3.0, 0.25],
            [2.0 / 3.0, 1.0 / 3.0, 0.75],
        ];
        assert_eq!((carbon.len(), graphite.atoms().len()), (4, 6));
        for (found, expected) in carbon.iter().zip(expected) {
            assert!(norm(minus(*found, expected)) < 1e-12, "{found:?}");
        }
        let twice = text.replace("Si2 0.3333 0.6667 0.25 0.5", "Si2 0.3333 0.6667 0.25 0.7");
        assert!(read(&twice).unwrap_err().to_string().contains("occupancies that sum to 1.2"));
    }

    // Thirds and sixths are exact
    #[test]
    fn thirds_and_sixths_are_exact() {
        assert_eq!(
            (exact(0.3333, "0.3333(2)"), exact(0.333, "0.333"), exact(0.1667, ".1667")),
            (1.0 / 3.0, 0.333, 1.0 / 6.0)
        );
        assert_eq!(
            (exact(0.4999, "0.4999"), exact(-0.66666, "-0.66666"), exact(0.25, "0.2500")),
            (0.4999, -2.0 / 3.0, 0.25)
        );
    }

    // Crystals of named groups
    /// A CIF with these names, cell and atoms.
    fn named(names: &str, cell: &[&str], atoms: &str) -> String {
        let keys = ["length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma"];
        let cell: Vec<String> =
            keys.iter().zip(cell).map(|(key, x)| format!("_cell_{key} {x}\n")).collect();
        let columns = "_atom_site_label _atom_site_fract_x _atom_site_fract_y _atom_site_fract_z";
        format!("data_x\n{names}\n{}loop_ {columns}\n{atoms}\n", cell.concat())
    }

    #[test]
    fn named_groups_make_the_crystals_of_ase() {
        let table = include_str!("../../tests/oracle/space_group_crystals.csv");
        let rows: Vec<Vec<&str>> =
            table.lines().skip(1).map(|row| row.split(',').collect()).collect();
        assert_eq!(rows.len(), 25);
        let atoms = "Si 0.1234 0.2718 0.3391\nAu 0 0 0\nO 0 0 0.2000";
        for row in &rows[1..] {
            let by_name = format!("_symmetry_space_group_name_H-M '{}'", row[1]);
            let crystal = read(&named(&by_name, &row[2..8], atoms)).unwrap();
            for (symbol, count) in ["Si", "Au", "O"].iter().zip(&row[8..11]) {
                let found =
                    crystal.atoms().iter().filter(|atom| atom.element.symbol() == *symbol).count();
                assert_eq!(found.to_string(), *count, "{symbol} in {row:?}");
            }
            for (name, values) in rows[0][11..].iter().step_by(2).zip(row[11..].chunks(2)) {
                let hkl: Vec<f64> = name[3..].split('_').map(|h| h.parse().unwrap()).collect();
                let mut sum = [0.0; 2];
                for atom in crystal.atoms() {
                    let weight = f64::from(match atom.element.symbol() {
                        "Si" => 2,
                        "Au" => 3,
                        _ => 1,
                    });
                    let place = crystal.fractional(atom.position);
                    let phase: f64 = 2.0 * PI * (0..3).map(|k| hkl[k] * place[k]).sum::<f64>();
                    sum = [sum[0] + weight * phase.cos(), sum[1] + weight * phase.sin()];
                }
                let expected = [0, 1].map(|k| values[k].parse::<f64>().unwrap());
                assert!(
                    (sum[0] - expected[0]).abs() < 1e-5 && (sum[1] - expected[1]).abs() < 1e-5,
                    "{row:?} {name} {sum:?}"
                );
            }
            // The number alone means the first setting that fits the cell, or the other with its code
            let origin = row[1].split(':').nth(1);
            let code = origin.map_or(String::new(), |origin| {
                format!("\n_space_group_IT_coordinate_system_code {origin}")
            });
            let by_number = format!("_space_group_IT_number {}{code}", row[0]);
            let again = read(&named(&by_number, &row[2..8], atoms)).unwrap();
            assert_eq!(again, crystal, "{row:?}");
        }
    }

    // Origins of named groups
    /// The crystal of a text, and its notes.
    fn noted(text: &str) -> (Crystal, Vec<String>) {
        let file = crate::formats::CrystalFile::parse(text, "c.cif", None).unwrap();
        let notes = file.notes().to_vec();
        (file.crystal, notes)
    }

    #[test]
    fn origins_are_chosen_and_reported() {
        let cube = ["5.43", "5.43", "5.43", "90", "90", "90"];
        let silicon = |symbol: &str, more: &str, atoms: &str| {
            let names = format!("{more}\n_symmetry_space_group_name_H-M '{symbol}'");
            let (crystal, notes) = noted(&named(&names, &cube, atoms));
            (crystal.atoms().len(), notes.concat())
        };
        let (count, note) = silicon("F d -3 m", "", "Si 0 0 0");
        assert_eq!(count, 8);
        assert_eq!(
            note,
            "c.cif:3: _symmetry_space_group_name_h-m = F d -3 m: the symbol has 2 origins; F d -3 m:1 is taken, as its atoms are the fewest \
             (8 atoms with :1, 16 atoms with :2); write :1 behind the symbol to confirm"
        );
        assert_eq!(silicon("Fd-3m", "", "Si 0.125 0.125 0.125").0, 8);
        for (symbol, count) in
            [("Fd-3m:1", 8), ("F d -3 m :2", 16), ("F_d_-3_m_S", 8), ("F d -3 m Z", 16)]
        {
            assert_eq!(silicon(symbol, "", "Si 0 0 0"), (count, String::new()), "{symbol}");
        }
        // Spinel has 56 atoms with either origin; the formula decides
        let spinel = "Mg 0.125 0.125 0.125\nAl 0.5 0.5 0.5\nO 0.2624 0.2624 0.2624";
        for formula in [
            "_chemical_formula_sum 'Al2 Mg O4'",
            "_chemical_formula_sum 'Al2 Mg O4'\n_cell_formula_units_Z 8",
        ] {
            let (count, note) = silicon("F d -3 m", formula, spinel);
            assert!(
                count == 56
                    && note.contains("F d -3 m:2 is taken, as its atoms are those of the formula"),
                "{note}"
            );
        }
        let (count, note) = silicon("F d -3 m", "_chemical_formula_sum 'Al Mg2 O4'", spinel);
        assert!(
            count == 56 && note.contains("F d -3 m:1 is taken, as its atoms are those"),
            "{note}"
        );
        let (count, note) = silicon("F d -3 m", "", "Si 0.11 0.22 0.34");
        assert!(
            count == 192 && note.contains("F d -3 m:1 is taken, as nothing in the file decides"),
            "{note}"
        );
        // A monoclinic cell of right angles has no unique axis
        let names = "_symmetry_space_group_name_H-M 'P 2/m'";
        let (_, notes) = noted(&named(names, &["4", "5", "6", "90", "90", "90"], "Si 0.1 0.2 0.3"));
        assert!(notes[0].contains("setting b is taken, of b, c, a"), "{notes:?}");
        let (_, notes) = noted(&named(names, &["4", "5", "6", "90", "90", "99"], "Si 0.1 0.2 0.3"));
        assert!(notes.is_empty(), "{notes:?}");
    }

    // Contradictions of names and operations
    #[test]
    fn contradictions_of_names_are_refused() {
        let cube = ["5.43", "5.43", "5.43", "90", "90", "90"];
        let refused = |names: &str, cell: &[&str]| {
            read(&named(names, cell, "Si 0 0 0")).unwrap_err().to_string()
        };
        for (names, expected) in [
            (
                "_symmetry_space_group_name_H-M 'P 21/q'",
                "2: _symmetry_space_group_name_h-m = P 21/q: expected the Hermann-Mauguin symbol of a space group, the nearest are P 21/m, ",
            ),
            (
                "_space_group_name_H-M_alt 'F d -3 m :3'",
                "2: _space_group_name_h-m_alt = F d -3 m :3: expected the symbol with one of :1, :2, or none",
            ),
            (
                "_space_group_IT_number 231",
                "2: _space_group_it_number = 231: expected the number of a space group, from 1 to 230",
            ),
            ("_space_group_IT_number 0", "2: _space_group_it_number = 0: expected"),
            (
                "_symmetry_space_group_name_H-M 'F d -3 m'\n_symmetry_Int_Tables_number 225",
                "3: _symmetry_int_tables_number = 225: expected 227, the number of F d -3 m:1, or",
            ),
            (
                "_symmetry_space_group_name_H-M 'F d -3 m'\n_symmetry_space_group_name_Hall '-F 4 2 3'",
                "3: _symmetry_space_group_name_hall = -F 4 2 3: expected a Hall symbol of F d -3 m:1, group 227, which line 2 names; this one is of F m -3 m, group 225",
            ),
            (
                "_space_group_name_Hall '-F 7 2 3'",
                "2: _space_group_name_hall = -F 7 2 3: expected a Hall symbol such as -P 2ybc",
            ),
            (
                "_space_group_name_H-M_alt 'F d -3 m'\n_space_group_IT_coordinate_system_code b1",
                "3: _space_group_it_coordinate_system_code = b1: expected the code of a setting of F d -3 m:1, such as :1, :2",
            ),
        ] {
            let found = refused(names, &cube);
            assert!(found.starts_with(&format!("c.cif:{expected}")), "{found}");
        }
        let cell = refused(
            "_symmetry_space_group_name_H-M 'F m -3 m'",
            &["5", "6", "7", "90", "90", "90"],
        );
        assert!(
            cell.contains(
                "expected a space group whose operations preserve the lengths and angles"
            ),
            "{cell}"
        );
        let hall = "_space_group_name_Hall '-F 4vw 2vw 3'\n_space_group_name_H-M_alt 'F d -3 m'";
        assert_eq!(noted(&named(hall, &cube, "Si 0 0 0")).0.atoms().len(), 16);
        let lone = named("_space_group_name_Hall 'P 4n 2n -1n'", &cube, "Si 0.1 0.2 0.3");
        assert_eq!(noted(&lone).0.atoms().len(), 16);
    }

    // Names next to listed operations
    #[test]
    fn names_beside_operations_are_compared() {
        // RUTILE lists half of its group's operations, which are another group
        let (crystal, notes) = noted(RUTILE);
        assert_eq!(crystal.atoms().len(), 6);
        assert_eq!(
            notes,
            [
                "c.cif:9: _symmetry_space_group_name_h-m = P 42/m n m: the 8 operations listed from line 16 are those of P 42 21 2, group 94; the list is used"
            ]
        );
        let (_, notes) = noted(&RUTILE.replace("P 42/m n m", "P 42 21 2"));
        assert_eq!(notes, [""; 0]);
        let (_, notes) = noted(&RUTILE.replace("y,x,-z\n", ""));
        assert!(notes.concat().contains("are not a group"), "{notes:?}");
        let numbered =
            RUTILE.replace("_journal_title", "_symmetry_Int_Tables_number 135\n_journal_title");
        let (_, notes) = noted(&numbered);
        assert!(
            notes[0].contains("number = 135: expected 136, the number of P 42/m n m, or"),
            "{notes:?}"
        );
        // The same crystal by the name alone
        let (again, notes) = noted(&RUTILE.replace("_symmetry_equiv_pos", "_symmetry_ops"));
        assert_eq!((again, notes.len()), (crystal, 0));
    }

    // Bad CIF are refused
    #[test]
    fn bad_lines_are_refused() {
        let cases = [
            (
                "_cell_length_c",
                "_cell_length_d",
                "2: _cell_length_c is missing: expected a length in Å",
            ),
            ("4.5941(2)", "4.5941(2", "3: _cell_length_a = 4.5941(2: expected a length in Å"),
            ("90.0", "?", "2: _cell_angle_beta is missing: expected an angle in degrees"),
            ("-x,-y,z", "-x,-y", "17: _symmetry_equiv_pos_as_xyz = -x,-y: expected an operation"),
            ("0.3053(1)", "?", "33: _atom_site_fract_x = ?: expected a place in units of the side"),
            ("0.97(1)", "1.2", "33: _atom_site_occupancy = 1.2: expected a number from 0 to 1"),
            (
                "Ti4+",
                "Tx4+",
                "32: _atom_site_type_symbol = Tx4+: expected the symbol of an element",
            ),
            ("1 0.5 #", "1 #", "24: CIF = loop_: expected a name and its value"),
            (
                "'y+1/2, -x",
                "'y+1/2 -x",
                "19: _symmetry_equiv_pos_as_xyz = y+1/2 -x+1/2, 1/2+z: exp",
            ),
            ("1/2+z'", "1/2+z", "19: quotation = 'y+1/2, -x+1/2, 1/2+z: expected a closing mark"),
            ("things\n;", "things\n", "11: text = ;: expected a line with ;"),
        ];
        for (from, to, expected) in cases {
            let refused = read(&RUTILE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("c.cif:{expected}")), "{refused}");
        }
    }
    #[test]
    fn bad_files_are_refused() {
        let refused = |text: &str| read(text).unwrap_err().to_string();
        let twice = refused(&format!("{RUTILE}{RUTILE}"));
        assert!(twice.starts_with("c.cif:35: data_ = a second structure: expected one"), "{twice}");
        let oxygen = "O1 O2- 0.3053(1) 0.3053(1) 0.0 0.97(1) .";
        let listed = refused(&RUTILE.replace(oxygen, "Ti2 Ti 0.5 0.5 0.5 1 ."));
        assert!(
            listed.starts_with("c.cif:33: atom = 0.0000 Å from the atom on line 32"),
            "{listed}"
        );
        for text in ["", "data_", "loop_", "_a", "data_x\nloop_\n_a\n_b\n1", "'", ";", "loop_ 1 2"]
        {
            assert!(read(text).is_err(), "{text:?}");
        }
        for text in ["_a _b", "\u{e9}'x'\u{e9}", "_a '\u{e9}'\u{e9}", "_\u{e9} \u{e9}"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    // Labels and groups of a CIF
    #[test]
    fn labels_and_groups_may_do() {
        let labels = RUTILE.replace("_atom_site_type_symbol", "_atom_site_note");
        assert_eq!(read(&labels).unwrap().atoms().len(), 6);
        let refused = read(&labels.replace("O1", "CO1")).unwrap_err().to_string();
        assert!(refused.contains("_atom_site_label = CO1: expected a label"), "{refused}");
        assert_eq!(read(&RUTILE.replace("O2-", "D")).unwrap().atoms()[2].element.number(), 1);
        let none = RUTILE.replace("_symmetry_equiv_pos", "_symmetry_ops");
        assert_eq!(read(&none.replace("'P 42/m n m'", "'P 1'")).unwrap().atoms().len(), 2);
        assert_eq!(read(&none.replace("'P 42/m n m'", "?")).unwrap().atoms().len(), 2);
    }
}
