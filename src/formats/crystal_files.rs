// Tangled from book/src/crystal-files.md: edit there, or here and run cargo tangle stitch.
//! Crystals in XYZ files, and what their readers share.

// Imports of readers of crystals
use crate::error::{BadLine, Error, Invalid, count as counted};
use crate::files::spanned_toml::{one_line, read_text};
use crate::specimen::atoms::{Atom, Element};
use crate::specimen::crystal::{ClosePair, Crystal, Matrix3, SUSPECT, plus};
use std::{ops::RangeInclusive, path::Path};

// A crystal from a file
impl Crystal {
    /// Reads a crystal from a CIF or XYZ file, of Kirkland's or the extended kind; `cell` gives other lengths to its sides \[Å\], or
    /// lengths at all where an XYZ file has none.
    ///
    /// # Errors
    /// [`Error::Read`] for a file that cannot be read, [`Error::SystemFile`] for a line that makes no sense.
    ///
    /// ```
    /// use lenslet::specimen::{BeamDirection, Crystal};
    /// let silicon = Crystal::from_file("book/systems/SI100.XYZ", None)?;
    /// let specimen = silicon.specimen(BeamDirection::MinusZ, [4, 4, 10])?;
    /// assert_eq!((specimen.atoms().len(), specimen.cell()[0]), (1280, 21.72));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn from_file(path: impl AsRef<Path>, cell: Option<[f64; 3]>) -> Result<Self, Error> {
        let path = path.as_ref();
        Ok(CrystalFile::read(path, cell)?.crystal)
    }

    /// Reads a crystal from the text of the file `name`, whose ending tells CIF from XYZ; see [`from_file`](Self::from_file).
    ///
    /// # Errors
    /// [`Error::SystemFile`] with the first line that makes no sense.
    pub fn from_text(text: &str, name: &str, cell: Option<[f64; 3]>) -> Result<Self, Error> {
        Ok(CrystalFile::parse(text, name, cell)?.crystal)
    }
}

// A crystal with the lines of its atoms
/// A crystal as it was read from a file, with the line of each atom.
#[derive(Debug, Clone)]
pub struct CrystalFile {
    /// The crystal.
    pub crystal: Crystal,
    name: String,
    /// Lines of the atoms, from 1.
    lines: Vec<usize>,
    /// Along which sides the crystal repeats.
    periodic: [bool; 3],
    /// Choices of the reader that the file left open.
    notes: Vec<String>,
}

/// Atoms in a cell, their lines, the sides along which the cell repeats, and choices of the reader.
pub(crate) struct Listed {
    pub(crate) crystal: Crystal,
    pub(crate) lines: Vec<usize>,
    pub(crate) periodic: [bool; 3],
    pub(crate) notes: Vec<String>,
}

impl Listed {
    /// Atoms in a cell that repeats along all sides.
    pub(crate) fn periodic(crystal: Crystal, lines: Vec<usize>) -> Self {
        Self { crystal, lines, periodic: [true; 3], notes: Vec::new() }
    }
}

impl CrystalFile {
    /// Reads the file at `path`, as [`Crystal::from_file`].
    ///
    /// # Errors
    /// As there.
    pub fn read(path: impl AsRef<Path>, cell: Option<[f64; 3]>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = read_text(path, 1 << 30, "a crystal")?;
        Self::parse(&text, &path.display().to_string(), cell)
    }

    /// What the reader chose where the file left a choice, such as the origin of a space group, and contradictions in it, with their lines.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    // A crystal from a text
    /// Reads the text of the file `name`, as [`Crystal::from_text`].
    ///
    /// # Errors
    /// As there.
    pub fn parse(text: &str, name: &str, cell: Option<[f64; 3]>) -> Result<Self, Error> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let is_cif = Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("cif"));
        Self::parse_lines(text, (name, 0), is_cif, cell)
    }

    /// Reads a text that the file `name` has inside, behind some lines.
    ///
    /// # Errors
    /// As [`Crystal::from_text`], with lines of the whole file.
    pub(crate) fn parse_inside(
        text: &str,
        name: &str,
        before: usize,
        cell: Option<[f64; 3]>,
    ) -> Result<Self, Error> {
        let is_cif = text.lines().any(|line| line.to_ascii_lowercase().starts_with("data_"));
        Self::parse_lines(text, (name, before), is_cif, cell)
    }

    // Parse the lines of a crystal
    /// Reads a text that is behind some lines of a file.
    fn parse_lines(
        text: &str,
        (name, before): (&str, usize),
        is_cif: bool,
        cell: Option<[f64; 3]>,
    ) -> Result<Self, Error> {
        let file = CrystalText { name, before, lines: text.lines().collect() };
        let count = file.lines.first().and_then(|line| line.trim().parse::<usize>().ok());
        let Listed { crystal, lines, periodic, notes } = match count {
            _ if is_cif => file.cif()?,
            Some(count) if !file.lines.iter().any(|line| line.trim() == "-1") => {
                file.extended_xyz(count, cell)?
            }
            _ => file.kirkland_xyz()?,
        };
        let crystal = match cell {
            Some(lengths) => crystal.with_lengths(lengths)?,
            None => crystal,
        };
        let lines = lines.into_iter().map(|line| before + line).collect();
        let read = Self { crystal, name: name.into(), lines, periodic, notes };
        read.refuse_overfull()?;
        Ok(read)
    }

    // Complain about atoms of a file
    /// The complaint about atom `k`.
    pub(crate) fn bad_atom(&self, k: usize, key: &str, value: String, expected: &str) -> BadLine {
        let line = self.lines.get(k).copied().unwrap_or(1);
        let (file, key, value) = (self.name.clone(), key.into(), Some(value));
        BadLine { file, line, key, value, expected: expected.into() }
    }

    // Reject positions of several atoms
    /// Refuses positions that are shared by more than one atom.
    ///
    /// # Errors
    /// [`BadLine`] with the lines of two such atoms.
    pub(crate) fn refuse_overfull(&self) -> Result<(), BadLine> {
        let Some((pair, sum)) = self.crystal.overfull(self.periodic) else { return Ok(()) };
        let [first, second] = self.in_order(pair);
        let sum =
            if sum.is_finite() { format!("{:.4}", sum) } else { "the traces of a crowd".into() };
        let sum = sum.trim_end_matches('0').trim_end_matches('.');
        let positions = format!(
            "{:.4} Å from the atom on line {}, periodic images included, occupancies that sum to {sum}",
            pair.distance, self.lines[first]
        );
        let expected = format!(
            "one atom at a position, or occupancies that sum to at most 1; leave out line {} or line {}",
            self.lines[first], self.lines[second]
        );
        Err(self.bad_atom(second, "atom", positions, &expected))
    }

    // Warn of atoms of a file
    /// The atoms of a pair, that of the earlier line first.
    fn in_order(&self, pair: ClosePair) -> [usize; 2] {
        let [j, k] = pair.atoms;
        if self.lines[j] <= self.lines[k] { [j, k] } else { [k, j] }
    }

    /// A warning of the closest pair of atoms that is closer than 0.3 Å, if there is one.
    pub fn warning(&self) -> Option<String> {
        let (pair, count) = self.crystal.suspect_pairs(self.periodic)?;
        let [first, second] = self.in_order(pair);
        let more = if count > 1 { format!("; {count} or more such pairs") } else { String::new() };
        Some(format!(
            "{}:{}: atom is {:.4} Å from the atom on line {}, periodic images included, closer than {SUSPECT} Å{more}",
            self.name, self.lines[second], pair.distance, self.lines[first]
        ))
    }
}

// Lines of a crystal's file
/// The lines of a file that describes a crystal.
pub(crate) struct CrystalText<'t> {
    pub(crate) name: &'t str,
    /// Lines of the file before these.
    pub(crate) before: usize,
    pub(crate) lines: Vec<&'t str>,
}

// Errors with lines of a crystal
impl CrystalText<'_> {
    /// The complaint about `value` for `key` on line `line`, counted from 1.
    pub(crate) fn bad(
        &self,
        line: usize,
        key: &str,
        value: Option<&str>,
        expected: &str,
    ) -> BadLine {
        let (line, value) = (self.before + line, value.map(one_line));
        BadLine { file: self.name.into(), line, key: key.into(), value, expected: expected.into() }
    }

    /// What a constructor returns, its complaint put on line `line`.
    pub(crate) fn check<T>(&self, line: usize, result: Result<T, Invalid>) -> Result<T, BadLine> {
        result.map_err(|invalid| {
            self.bad(line, &invalid.quantity, Some(&invalid.value), &invalid.expected)
        })
    }

    // Numbers on a line of a crystal's file
    /// The number that `field` of line `line` holds, if it lies in `range`.
    pub(crate) fn number(
        &self,
        line: usize,
        key: &str,
        field: Option<&str>,
        range: RangeInclusive<f64>,
        expected: &str,
    ) -> Result<f64, BadLine> {
        let number = field.and_then(|field| field.parse::<f64>().ok());
        let good = number.filter(|number| range.contains(number));
        good.ok_or_else(|| self.bad(line, key, field, expected))
    }

    /// The place, occupancy and displacement that `fields` of line `line` hold.
    fn atom(
        &self,
        line: usize,
        element: Element,
        fields: [Option<&str>; 5],
    ) -> Result<Atom, BadLine> {
        let mut position = [0.0; 3];
        for (axis, key) in ["x", "y", "z"].into_iter().enumerate() {
            position[axis] = self.number(line, key, fields[axis], -1e9..=1e9, "a place in Å")?;
        }
        let share = fields[3].or(Some("1"));
        let occupancy = self.number(line, "occupancy", share, 0.0..=1.0, "a number from 0 to 1")?;
        let (length, expected) = (fields[4].or(Some("0")), "a length in Å, not negative");
        let displacement = self.number(line, "displacement", length, 0.0..=1e3, expected)?;
        Ok(Atom { element, position, occupancy, displacement })
    }
}

// Largest distance of an atom from its cell
/// How far an atom may be beside its cell \[Å\].
const BESIDE: f64 = 0.5;

// Read the XYZ of Kirkland
impl CrystalText<'_> {
    /// Reads Kirkland's XYZ: a comment, the sides of the cell, atoms, −1.
    fn kirkland_xyz(&self) -> Result<Listed, BadLine> {
        // Sides of a Kirkland cell
        let sides: Vec<&str> = fields(self.lines.get(1).copied().unwrap_or_default()).collect();
        let expected = "the three sides of the cell in Å";
        if sides.len() != 3 {
            return Err(self.bad(2, "cell", Some(&sides.join(" ")), expected));
        }
        let (mut lattice, mut lengths) = ([[0.0; 3]; 3], [0.0; 3]);
        for axis in 0..3 {
            lengths[axis] = self.number(2, "cell", Some(sides[axis]), 1e-3..=1e7, expected)?;
            lattice[axis][axis] = lengths[axis];
        }
        let (mut atoms, mut lines) = (Vec::new(), Vec::new());
        for (k, line) in
            self.lines.iter().enumerate().skip(2).filter(|(_, line)| !line.trim().is_empty())
        {
            if line.trim() == "-1" {
                return Ok(Listed::periodic(self.check(2, Crystal::new(lattice, atoms))?, lines));
            }
            atoms.push(self.kirkland_atom(k + 1, line, lengths)?);
            lines.push(k + 1);
        }
        Err(self.bad(self.lines.len(), "end", None, "a line with -1 after the last atom"))
    }

    // An atom on a line of Kirkland's
    /// The atom on line `number`, in a cell of these sides \[Å\].
    fn kirkland_atom(&self, number: usize, line: &str, sides: [f64; 3]) -> Result<Atom, BadLine> {
        let words: Vec<&str> = fields(line).collect();
        if !(4..=6).contains(&words.len()) {
            return Err(self.bad(
                number,
                "atom",
                Some(line),
                "an atomic number, x, y and z in Å, occupancy and displacement",
            ));
        }
        let element = self.element(number, words[0])?;
        let field = |k: usize| words.get(k).copied();
        let atom =
            self.atom(number, element, [field(1), field(2), field(3), field(4), field(5)])?;
        let slack = [BESIDE, BESIDE, 1e-6 * sides[2]];
        let outside = |axis: &usize| {
            !(-slack[*axis]..=sides[*axis] + slack[*axis]).contains(&atom.position[*axis])
        };
        let Some(axis) = (0..3).find(outside) else { return Ok(atom) };
        let side = sides[axis];
        let expected = match axis {
            2 => format!("a height in the cell, 0 to {side} Å"),
            _ => format!("a place in the cell, 0 to {side} Å, or {BESIDE} Å beside it"),
        };
        Err(self.bad(number, ["x", "y", "z"][axis], field(axis + 1), &expected))
    }
}

// Fields of a line and its element
/// The fields of a line, parted by blanks or commas.
fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || c == ',').filter(|field| !field.is_empty())
}

impl CrystalText<'_> {
    /// The element that `field` of line `line` names by its number or symbol.
    fn element(&self, line: usize, field: &str) -> Result<Element, BadLine> {
        let by_number = field.parse().ok().and_then(|number| Element::new(number).ok());
        let element = by_number.or_else(|| Element::of_symbol(field).ok());
        element.ok_or_else(|| {
            self.bad(
                line,
                "element",
                Some(field),
                "an atomic number from 1 to 103 or the symbol of an element",
            )
        })
    }
}

// Read an extended XYZ
impl CrystalText<'_> {
    /// Reads an extended or plain XYZ of `count` atoms; `cell` stands for a lattice that is missing.
    fn extended_xyz(&self, count: usize, cell: Option<[f64; 3]>) -> Result<Listed, BadLine> {
        let comment = self.lines.get(1).copied().unwrap_or_default();
        let pairs = pairs(comment);
        let value = |key: &str| {
            pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| *value)
        };
        let lattice = self.lattice(value("Lattice"), cell)?;
        let columns = self.columns(value("Properties").unwrap_or("species:S:1:pos:R:3"))?;
        // Atoms of an extended XYZ
        let mut atoms = Vec::new();
        for number in 3..=count.saturating_add(2) {
            let expected = format!("{}, as the first line says", counted(count, "atom"));
            let line = self.lines.get(number - 1).filter(|line| !line.trim().is_empty());
            let line = line.ok_or_else(|| {
                self.bad(
                    number.min(self.lines.len()),
                    "atom",
                    Some(&format!("number {}", number - 2)),
                    &expected,
                )
            })?;
            atoms.push(self.extended_atom(number, line, &columns)?);
        }
        // Refuse lines after the last atom
        let after =
            self.lines.iter().enumerate().skip(count + 2).find(|(_, line)| !line.trim().is_empty());
        if let Some((k, line)) = after {
            let expected = format!(
                "nothing after the {} that the first line announces (a trajectory must be split)",
                counted(count, "atom")
            );
            return Err(self.bad(k + 1, "line", Some(line), &expected));
        }
        let crystal = self.check(2, Crystal::new(lattice, atoms))?;
        // Bring atoms home along periodic sides
        let periodic = value("pbc").map_or([true; 3], |text| {
            let mut words = text.split_whitespace().map(|word| word.starts_with(['T', 't', '1']));
            [(); 3].map(|()| words.next().unwrap_or(true))
        });
        let lines = (3..3 + crystal.atoms().len()).collect();
        if value("Lattice").is_none() {
            return Ok(Listed { periodic, ..Listed::periodic(crystal, lines) });
        }
        let home = |atom: &Atom| {
            let place = crystal.fractional(atom.position);
            let outside = |k: usize| periodic[k] && !(-1e-6..=1.0 + 1e-6).contains(&place[k]);
            let steps = [0, 1, 2].map(|k| if outside(k) { -place[k].floor() } else { 0.0 });
            Atom { position: plus(atom.position, crystal.position(steps)), ..*atom }
        };
        let atoms = crystal.atoms().iter().map(home).collect();
        Ok(Listed {
            periodic,
            ..Listed::periodic(self.check(2, Crystal::new(lattice, atoms))?, lines)
        })
    }

    // The lattice of an extended XYZ
    /// The lattice that the comment gives, or else a cell of the sides `cell`.
    fn lattice(&self, text: Option<&str>, cell: Option<[f64; 3]>) -> Result<Matrix3, BadLine> {
        let expected = "Lattice=\"…\" with nine numbers, the sides of the cell in Å one after the other, or a cell given beside the file";
        let text = match (text, cell) {
            (Some(text), _) => text,
            (None, Some([x, y, z])) => return Ok([[x, 0.0, 0.0], [0.0, y, 0.0], [0.0, 0.0, z]]),
            (None, None) => return Err(self.bad(2, "Lattice", None, expected)),
        };
        let words: Vec<&str> = fields(text).collect();
        if words.len() != 9 {
            return Err(self.bad(2, "Lattice", Some(text), expected));
        }
        let mut lattice = [[0.0; 3]; 3];
        for (k, field) in words.into_iter().enumerate() {
            lattice[k / 3][k % 3] = self.number(2, "Lattice", Some(field), -1e7..=1e7, expected)?;
        }
        Ok(lattice)
    }

    // The columns of an extended XYZ
    /// Where element, x, occupancy and displacement stand on a line, counted from 0.
    fn columns(&self, properties: &str) -> Result<[Option<usize>; 4], BadLine> {
        const NAMES: [&[&str]; 4] = [
            &["species", "z"],
            &["pos"],
            &["occupancy", "occupancies", "occ"],
            &["displacement", "displacements", "sigma"],
        ];
        let bad = |expected: &str| self.bad(2, "Properties", Some(properties), expected);
        let parts: Vec<&str> = properties.split(':').collect();
        let mut columns = [None; 4];
        let mut next = 0usize;
        for part in parts.chunks(3) {
            let width = part
                .get(2)
                .and_then(|width| width.parse::<usize>().ok())
                .filter(|width| (1..=1000).contains(width));
            let width = width.ok_or_else(|| bad("name:type:columns, repeated"))?;
            if let Some(k) =
                NAMES.iter().position(|names| names.contains(&&*part[0].to_ascii_lowercase()))
            {
                if width != [1, 3, 1, 1][k] {
                    return Err(bad(
                        "one column for each of species, occupancy and displacement, and three for pos",
                    ));
                }
                columns[k] = columns[k].or(Some(next));
            }
            next += width;
        }
        if columns[0].is_none() || columns[1].is_none() {
            return Err(bad("species:S:1 and pos:R:3 among the columns"));
        }
        Ok(columns)
    }

    /// The atom on line `number`, whose element, place, occupancy and displacement stand in `columns`.
    fn extended_atom(
        &self,
        number: usize,
        line: &str,
        columns: &[Option<usize>; 4],
    ) -> Result<Atom, BadLine> {
        let words: Vec<&str> = fields(line).collect();
        let field =
            |column: Option<usize>, k: usize| column.map(|column| words.get(column + k).copied());
        let missing = |key: &str| {
            self.bad(number, key, None, "a column for it, as Properties in line 2 says")
        };
        let element = field(columns[0], 0).flatten().ok_or_else(|| missing("element"))?;
        let element = self.element(number, element)?;
        let place = [0, 1, 2].map(|k| field(columns[1], k).flatten());
        let [occupancy, displacement] = [2, 3].map(|k| field(columns[k], 0));
        let occupancy =
            occupancy.map(|word| word.ok_or_else(|| missing("occupancy"))).transpose()?;
        let displacement =
            displacement.map(|word| word.ok_or_else(|| missing("displacement"))).transpose()?;
        self.atom(number, element, [place[0], place[1], place[2], occupancy, displacement])
    }
}

// Pairs of a comment
/// The pairs of keys and values in a comment; a key without a value has an empty one.
fn pairs(comment: &str) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    let mut rest = comment.trim_start();
    while let Some(end) = rest
        .find(|c: char| c.is_whitespace() || c == '=')
        .or((!rest.is_empty()).then_some(rest.len()))
    {
        let (key, after) = rest.split_at(end);
        let Some(value) = after.strip_prefix('=') else {
            pairs.push((key, ""));
            rest = after.trim_start();
            continue;
        };
        let closing = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => Some(quote),
            Some('{') => Some('}'),
            Some('[') => Some(']'),
            _ => None,
        };
        let inner = if closing.is_some() { &value[1..] } else { value };
        let end = inner
            .find(|c: char| closing.map_or(c.is_whitespace(), |closing| c == closing))
            .unwrap_or(inner.len());
        pairs.push((key, &inner[..end]));
        rest = inner[end..].trim_start_matches(|c| Some(c) == closing).trim_start();
    }
    pairs
}

// Tests of crystals in files
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::crystal::BeamDirection;

    const SILICON: &str = include_str!("../../book/systems/SI100.XYZ");

    fn complaint(text: &str, name: &str) -> String {
        Crystal::from_text(text, name, None).unwrap_err().to_string()
    }

    // The silicon cell is read
    #[test]
    fn the_silicon_cell_is_read() {
        let silicon = Crystal::from_text(SILICON, "SI100.XYZ", None).unwrap();
        assert_eq!(silicon.lattice(), [[5.43, 0.0, 0.0], [0.0, 5.43, 0.0], [0.0, 0.0, 5.43]]);
        assert_eq!(silicon.atoms().len(), 8);
        let third = silicon.atoms()[2];
        assert_eq!((third.element.symbol(), third.position), ("Si", [1.3575, 4.0725, 1.3575]));
        assert!(
            silicon.atoms().iter().all(|atom| atom.occupancy == 1.0 && atom.displacement == 0.076)
        );
        let strained = Crystal::from_text(SILICON, "SI100.XYZ", Some([5.43, 5.43, 10.86])).unwrap();
        assert_eq!(
            strained.specimen(BeamDirection::MinusZ, [1; 3]).unwrap().atoms()[2].position[2],
            2.715
        );
        let numbered =
            SILICON.replace("one unit cell of 100 silicon", "100").replace("-1", "-1\nend");
        assert_eq!(Crystal::from_text(&numbered, "SI100.XYZ", None).unwrap(), silicon);
    }

    // Spoiled cells are refused
    #[test]
    fn spoiled_cells_are_refused_by_line() {
        let sides = "expected the three sides of the cell in Å";
        let cases = [
            ("14", "104", "3: element = 104: expected an atomic number from 1 to 103"),
            (
                "4.0725  1.3575  1.0",
                "4.0725 1.3575 -1",
                "5: occupancy = -1: expected a number from 0 to 1",
            ),
            (
                "4.0725  4.0725  4.0725",
                "4 4 5.44",
                "10: z = 5.44: expected a height in the cell, 0 to 5.43 Å",
            ),
            (
                "2.7150  2.7150  0.0",
                "2.7150 5.94 0.0",
                "4: y = 5.94: expected a place in the cell, 0 to 5.43 Å, or 0.5 Å beside it",
            ),
            (
                "2.7150  2.7150  0.0",
                "-0.51 2.7150 0.0",
                "4: x = -0.51: expected a place in the cell",
            ),
            ("2.7150  2.7150  0.0", "2.7150 2.7l50 0.0", "4: y = 2.7l50: expected a place in Å"),
            ("0.076", "nan", "3: displacement = nan: expected a length in Å, not negative"),
            ("  -1", "", "11: end is missing: expected a line with -1 after the last atom"),
            ("5.43    5.43    5.43", "5.43 5.43", &format!("2: cell = 5.43 5.43: {sides}")),
            ("5.43    5.43", "5.43 -5.43", &format!("2: cell = -5.43: {sides}")),
            (
                "14  0.0000  0.0000  0.0000",
                "14",
                "3: atom = 14 1.0 0.076: expected an atomic number",
            ),
        ];
        for (from, to, expected) in cases {
            let refused = complaint(&SILICON.replacen(from, to, 1), "SI.xyz");
            assert!(refused.starts_with(&format!("SI.xyz:{expected}")), "{refused}");
        }
        let shifted = SILICON.replacen("2.7150  2.7150  0.0", "5.92 -0.48 0.0", 1);
        let crystal = Crystal::from_text(&shifted, "SI.xyz", None).unwrap();
        let [x, y, _] =
            crystal.specimen(BeamDirection::MinusZ, [1; 3]).unwrap().atoms()[1].position;
        assert!((x - 0.49).abs() < 1e-12 && (y - 4.95).abs() < 1e-12);
        let none = "f:2: atoms = 0: expected at least one atom";
        assert_eq!(complaint("silicon\n1 1 1\n-1\n", "f"), none);
        for empty in ["", "\n", "1", "a\nb\nc", "-1", "\0\0"] {
            assert!(Crystal::from_text(empty, "f.xyz", None).is_err(), "{empty:?}");
        }
    }

    // Extended files are read and refused
    #[test]
    fn extended_files_are_read_and_refused() {
        let text = "2\nLattice=\"4 0 0 0 5 0 1 0 6\" Properties=id:I:1:species:S:1:pos:R:3:occ:R:1:sigma:R:1 note='x y' pbc=\"T T F\"\n\
                    1 Ga 0.5 1 2 0.5 0.08\n2 as 5.5 -1 3 1 0.07\n";
        let crystal = Crystal::from_text(text, "a.xyz", None).unwrap();
        assert_eq!(crystal.lattice()[2], [1.0, 0.0, 6.0]);
        let [gallium, arsenic] = [0, 1].map(|k| crystal.atoms()[k]);
        assert_eq!(
            (gallium.element.number(), gallium.occupancy, gallium.displacement),
            (31, 0.5, 0.08)
        );
        assert_eq!((arsenic.element.number(), arsenic.position), (33, [1.5, 4.0, 3.0]));
        let refused = |from: &str, to: &str| complaint(&text.replacen(from, to, 1), "a.xyz");
        assert_eq!(
            refused("Ga", "Gx"),
            "a.xyz:3: element = Gx: expected an atomic number from 1 to 103 or the symbol of an element"
        );
        assert!(refused("2\n", "3\n").starts_with("a.xyz:4: atom = number 3: expected 3 atoms"));
        assert!(refused("2\n", "1\n").starts_with("a.xyz:4: line = 2 as"));
        assert!(refused("Lattice", "Lettuce").starts_with("a.xyz:2: Lattice is missing"));
        assert!(
            refused("1 0 6", "1 0").starts_with("a.xyz:2: Lattice = 4 0 0 0 5 0 1 0: expected")
        );
        assert!(refused("pos:R:3", "pos:R:2").starts_with("a.xyz:2: Properties = "));
        assert!(refused("pos:R:3", "pos:R:three").starts_with("a.xyz:2: Properties = "));
        assert!(refused("1 0.07", "1").starts_with("a.xyz:4: displacement is missing"));
        assert!(refused("2\n", "99999999999\n").contains("99999999999 atoms"));

        let plain = "1\nan atom, or so\nAu 0 1 2 0.1 0.1\n";
        let gold = Crystal::from_text(plain, "au.xyz", Some([4.0, 5.0, 6.0])).unwrap();
        assert_eq!((gold.atoms()[0].position, gold.volume()), ([0.0, 1.0, 2.0], 120.0));
        assert!(complaint(plain, "au.xyz").starts_with("au.xyz:2: Lattice is missing"));
        assert_eq!(
            pairs("a=1 b c='x y' d={1 2}e = f \"g"),
            [
                ("a", "1"),
                ("b", ""),
                ("c", "x y"),
                ("d", "1 2"),
                ("e", ""),
                ("", ""),
                ("f", ""),
                ("\"g", "")
            ]
        );
    }

    // Atoms on each other are refused in all formats
    /// A crystal in three file formats, with two atoms at `a` and `b`, in units of the sides, whose occupancies are `shares`.
    fn formats(
        a: [f64; 3],
        b: [f64; 3],
        shares: [f64; 2],
    ) -> [(&'static str, String, [usize; 2]); 3] {
        let side = 5.43;
        let row =
            |place: [f64; 3], times: f64| place.map(|x| format!("{:.6}", times * x)).join(" ");
        let [p, q] = [a, b].map(|place| row(place, side));
        let [s, t] = shares;
        let kirkland =
            format!("two\n5.43 5.43 5.43\n14 {p} {s} 0.1\n14 1 2 3 1 0.1\n14 {q} {t} 0.1\n-1\n");
        let extended = format!(
            "3\nLattice=\"5.43 0 0 0 5.43 0 0 0 5.43\" Properties=species:S:1:pos:R:3:occ:R:1\nSi {p} {s}\nSi 1 2 3 1\nSi {q} {t}\n"
        );
        let [p, q] = [a, b].map(|place| row(place, 1.0));
        let lengths = "_cell_length_a 5.43 _cell_length_b 5.43 _cell_length_c 5.43";
        let angles = "_cell_angle_alpha 90 _cell_angle_beta 90 _cell_angle_gamma 90";
        let names = "_atom_site_label _atom_site_fract_x _atom_site_fract_y _atom_site_fract_z _atom_site_occupancy";
        let cif = format!(
            "data_x {lengths} {angles}\nloop_ {names}\nSi1 {p} {s}\nSi2 0.3 0.4 0.6 1\nSi3 {q} {t}\n"
        );
        [("a.xyz", kirkland, [3, 5]), ("b.xyz", extended, [3, 5]), ("c.cif", cif, [3, 5])]
    }

    // Check atoms on each other in all formats
    #[test]
    fn atoms_on_each_other_are_refused_in_all_formats() {
        let (zero, far, near) = ([0.0; 3], [1.0; 3], [0.999, 0.0, 1.0]);
        for other in [zero, far, near] {
            for (name, text, [first, second]) in formats(zero, other, [1.0, 1.0]) {
                let refused = complaint(&text, name);
                let start = format!("{name}:{second}: atom = 0.00");
                assert!(refused.starts_with(&start), "{refused}");
                assert!(refused.contains(&format!("the atom on line {first}, ")), "{refused}");
                assert!(refused.contains("occupancies that sum to 2: expected one"), "{refused}");
            }
            for (name, text, _) in formats(zero, other, [0.4, 0.6]) {
                let file = CrystalFile::parse(&text, name, None).unwrap();
                assert_eq!((file.crystal.atoms().len(), file.warning()), (3, None), "{name}");
            }
            for (name, text, _) in formats(zero, other, [0.4, 0.7]) {
                assert!(complaint(&text, name).contains("sum to 1.1: expected"), "{name}");
            }
        }
        // Through a face, 0.2 Å apart: a warning, and none at 0.31 Å
        for (apart, warned) in [(0.2, true), (0.31, false)] {
            let second = [0.5, 1.0 - 0.5 * apart / 5.43, 0.5];
            for (name, text, _) in formats([0.5, 0.5 * apart / 5.43, 0.5], second, [1.0; 2]) {
                let warning = CrystalFile::parse(&text, name, None).unwrap().warning();
                assert_eq!(warning.is_some(), warned, "{name}: {warning:?}");
                let start = format!("{name}:5: atom is 0.2000 Å from the atom on line 3, ");
                assert!(warning.is_none_or(|text| text.starts_with(&start)));
            }
        }
        // Sides that do not repeat have no images
        let [_, (name, extended, _), _] = formats(zero, [0.0, 0.0, 1.0], [1.0; 2]);
        let slab = extended.replace("Properties", "pbc=\"T T F\" Properties");
        assert!(Crystal::from_text(&slab, name, None).is_ok());
        assert!(Crystal::from_text(&extended, name, None).is_err());
    }
}
