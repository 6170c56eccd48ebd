// Tangled from book/src/cif.md: edit there, or here and run cargo tangle stitch.
//! Crystals in CIF files.

// What the reader of CIF stands on
use crate::error::BadLine;
use crate::files::located::one_line;
use crate::specimen::atoms::{Atom, Element};
use crate::specimen::crystal::{
    Crystal, Matrix, determinant, dot, minus, norm, plus, sides, times,
};
use crate::specimen::crystal_files::{CrystalText, Listed};
use crate::units::DEGREE;
use std::{collections::HashMap, f64::consts::PI, ops::RangeInclusive};

// A word of a CIF
/// A word of a CIF, the line on which it begins, and whether it is a value that was quoted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Word<'t> {
    text: &'t str,
    line: usize,
    quoted: bool,
}

// Words of a CIF
impl<'t> CrystalText<'t> {
    /// The words of a CIF, remarks left out.
    fn words(&self) -> Result<Vec<Word<'t>>, BadLine> {
        let mut words = Vec::new();
        let mut number = 0;
        while number < self.lines.len() {
            let line = self.lines[number];
            number += 1;
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
                words.push(Word { text: first.trim(), line: number, quoted: true });
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
        words: &mut Vec<Word<'t>>,
    ) -> Result<(), BadLine> {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
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
            words.push(Word { text, line: number, quoted: quote.is_some() });
            rest = after.trim_start();
        }
        Ok(())
    }
}

// Columns of a block
/// A `data_` block: the line where it begins, and columns of values by their names.
#[derive(Debug, Default)]
struct Block<'t> {
    line: usize,
    columns: HashMap<String, Vec<Word<'t>>>,
}

impl<'t> Block<'t> {
    fn column(&self, name: &str) -> Option<&[Word<'t>]> {
        self.columns.get(name).map(Vec::as_slice)
    }

    /// The first value of the first of `names` that has one: neither ? nor a period.
    fn value(&self, names: &[&str]) -> Option<Word<'t>> {
        names
            .iter()
            .find_map(|name| self.column(name)?.first().copied().filter(|word| word.given()))
    }
}

impl Word<'_> {
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
    fn block(&self) -> Result<Block<'t>, BadLine> {
        let words = self.words()?;
        let mut blocks = vec![Block { line: 1, ..Block::default() }];
        let mut at = 0;
        while at < words.len() {
            let word = words[at];
            if word.is("data_") {
                blocks.push(Block { line: word.line, ..Block::default() });
                at += 1;
                continue;
            }
            let Some(block) = blocks.last_mut() else { break };
            at = self.gather(&words, at, block)?;
        }
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
        words: &[Word<'t>],
        at: usize,
        block: &mut Block<'t>,
    ) -> Result<usize, BadLine> {
        let word = words[at];
        let own = |word: &Word| ["_", "loop_", "data_", "save_"].iter().any(|start| word.is(start));
        let run = |from: usize, holds: &dyn Fn(&Word) -> bool| {
            from + words[from..].iter().take_while(|word| holds(word)).count()
        };
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
        word: Word,
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

// An operation of symmetry
/// An operation of symmetry, [symmetry operation](https://lenslet.github.io/lenslet/cif.html#eq-symmetry-operation).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Operation {
    turn: Matrix,
    shift: [f64; 3],
}

impl Operation {
    const IDENTITY: Self =
        Self { turn: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], shift: [0.0; 3] };

    /// Reads an operation such as `-y, x-y, z+1/3`, if it is one and keeps volumes.
    fn read(text: &str) -> Option<Self> {
        let mut operation = Self { turn: [[0.0; 3]; 3], shift: [0.0; 3] };
        let clean: String =
            text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
        let sums: Vec<&str> = clean.split(',').collect();
        let sums: [&str; 3] = sums.try_into().ok()?;
        for (row, sum) in sums.into_iter().enumerate() {
            (operation.turn[row], operation.shift[row]) = read_sum(sum)?;
        }
        ((determinant(&operation.turn).abs() - 1.0).abs() < 1e-9).then_some(operation)
    }

    /// Where it takes a place.
    fn of(&self, place: [f64; 3]) -> [f64; 3] {
        plus(self.turn.map(|row| dot(row, place)), self.shift)
    }
}

// A sum of letters and numbers
/// The factors of x, y and z and the number in a sum such as `x-y+1/3`.
fn read_sum(sum: &str) -> Option<([f64; 3], f64)> {
    let (mut factors, mut shift) = ([0.0; 3], 0.0);
    let mut rest = sum;
    while !rest.is_empty() {
        let sign = if rest.starts_with('-') { -1.0 } else { 1.0 };
        let signed = rest.starts_with(['-', '+']);
        let term = if signed { &rest[1..] } else { rest };
        let end = term.find(['-', '+']).unwrap_or(term.len());
        let (term, after) = term.split_at(end);
        if rest.len() < sum.len() && !signed || term.is_empty() {
            return None;
        }
        match term.strip_suffix(['x', 'y', 'z']) {
            Some(factor) => {
                let letter = usize::from(term.as_bytes()[term.len() - 1] - b'x');
                let factor = factor.strip_suffix('*').unwrap_or(factor);
                factors[letter] +=
                    sign * if factor.is_empty() { 1.0 } else { read_fraction(factor)? };
            }
            None => shift += sign * read_fraction(term)?,
        }
        rest = after;
    }
    (!sum.is_empty()).then_some((factors, shift))
}

/// A number such as `0.25` or `1/4`.
fn read_fraction(text: &str) -> Option<f64> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
    match text.split_once('/') {
        Some((above, below)) => Some(number(above)? / number(below).filter(|x| *x != 0.0)?),
        None => number(text),
    }
}

// Operations of a block
impl CrystalText<'_> {
    /// The operations of symmetry that a block lists.
    fn operations(&self, block: &Block) -> Result<Vec<Operation>, BadLine> {
        const LISTS: [&str; 2] = ["_space_group_symop_operation_xyz", "_symmetry_equiv_pos_as_xyz"];
        if let Some((name, words)) = LISTS.iter().find_map(|name| Some((name, block.column(name)?)))
        {
            let expected = "an operation of symmetry such as -y, x-y, z+1/3";
            let read = |word: &Word| {
                Operation::read(word.text)
                    .ok_or_else(|| self.bad(word.line, name, Some(word.text), expected))
            };
            return words.iter().map(read).collect();
        }
        const GROUPS: [&str; 8] = [
            "_space_group_name_h-m_alt",
            "_symmetry_space_group_name_h-m",
            "_space_group_name_hall",
            "_symmetry_space_group_name_hall",
            "_space_group_it_number",
            "_symmetry_int_tables_number",
            "_space_group_name_h-m_full",
            "_space_group_name_h-m_ref",
        ];
        let group = block.value(&GROUPS);
        match group {
            Some(word)
                if !matches!(&*word.text.replace(' ', "").to_ascii_lowercase(), "p1" | "1") =>
            {
                let expected = "its operations in a loop_ with _space_group_symop_operation_xyz beside the name of the space group";
                Err(self.bad(word.line, "space group", Some(word.text), expected))
            }
            _ => Ok(vec![Operation::IDENTITY]),
        }
    }
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
fn images(place: [f64; 3], operations: &[Operation], lattice: &Matrix) -> Vec<[f64; 3]> {
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
        let operations = self.operations(&block)?;
        let rows = block.column("_atom_site_fract_x").map_or(0, <[Word]>::len);
        let (mut atoms, mut lines) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let Some((place, atom)) = self.site(&block, row)? else { continue };
            let of_image = |image| Atom { position: times(image, &lattice), ..atom };
            atoms.extend(images(place, &operations, &lattice).into_iter().map(of_image));
            let word = block.column("_atom_site_fract_x").and_then(|column| column.get(row));
            lines.resize(atoms.len(), word.map_or(block.line, |word| word.line));
        }
        Ok((self.check(block.line, Crystal::new(lattice, atoms))?, lines, [true; 3]))
    }

    // The cell of a CIF
    /// The sides of the cell.
    fn cif_cell(&self, block: &Block) -> Result<Matrix, BadLine> {
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
    /// The place and the atom on row `row` of the list of atoms, unless it is a dummy.
    fn site(&self, block: &Block, row: usize) -> Result<Option<([f64; 3], Atom)>, BadLine> {
        let cell = |name: &str| block.column(name).and_then(|column| column.get(row)).copied();
        let given = |name: &str| cell(name).filter(Word::given);
        if given("_atom_site_calc_flag").is_some_and(|word| word.text.eq_ignore_ascii_case("dum")) {
            return Ok(None);
        }
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
        let found = names.into_iter().find_map(|(name, factor)| Some((name, factor, given(name)?)));
        let displacement = match found {
            Some((name, factor, word)) => {
                (self.measured(name, word, 0.0..=1e4, "a mean square in Å², not negative")?
                    / factor)
                    .sqrt()
            }
            None => 0.0,
        };
        Ok(Some((place, Atom { element, position: [0.0; 3], occupancy, displacement })))
    }

    // The element of an atom of a CIF
    /// The element that the type of an atom names, or else its label.
    fn cif_element(
        &self,
        line: usize,
        kind: Option<Word>,
        label: Option<Word>,
    ) -> Result<Element, BadLine> {
        let letters = |word: Word| {
            word.text.chars().take_while(char::is_ascii_alphabetic).collect::<String>()
        };
        let known = |symbol: &str| match symbol {
            "D" | "T" | "d" | "t" => Element::of_symbol("H").ok(),
            symbol => Element::of_symbol(symbol).ok(),
        };
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

    // Operations of symmetry are read
    #[test]
    fn operations_are_read_or_refused() {
        let read = |text: &str| Operation::read(text);
        let operation = read("-y, x-y , z+1/3").unwrap();
        assert_eq!(operation.of([0.1, 0.25, 0.5]), [-0.25, 0.1 - 0.25, 0.5 + 1.0 / 3.0]);
        assert_eq!(read("1/2-X,0.5+Y,-.5+z").unwrap().of([0.5; 3]), [0.0, 1.0, 0.0]);
        assert_eq!(read("x,y,1*z"), Some(Operation::IDENTITY));
        for bad in [
            "",
            "x,y",
            "x,y,z,x",
            "x,y,w",
            "x,y,z+1/0",
            "x,x,z",
            "x,y,2z",
            "x,y,z+",
            "x,y,zz",
            "x,y,z1/2",
            "x,,z",
            "x,y,z+nan",
            "x,y,é",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(
            (exact(0.3333, "0.3333(2)"), exact(0.333, "0.333"), exact(0.1667, ".1667")),
            (1.0 / 3.0, 0.333, 1.0 / 6.0)
        );
        assert_eq!(
            (exact(0.4999, "0.4999"), exact(-0.66666, "-0.66666"), exact(0.25, "0.2500")),
            (0.4999, -2.0 / 3.0, 0.25)
        );
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
            (
                "_symmetry_equiv_pos",
                "_symmetry_ops",
                "9: space group = P 42/m n m: expected its op",
            ),
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
