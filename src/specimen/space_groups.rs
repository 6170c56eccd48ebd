// Tangled from book/src/space-groups.md: edit there, or here and run cargo tangle stitch.
//! Symmetry operations, and space groups by their symbols.

// Imports of space groups
use crate::files::spanned_toml::edits;
use crate::specimen::crystal::{Matrix3, determinant, dot, inverse, minus, norm, plus, times};

// An operation of symmetry
/// An operation of symmetry, [symmetry operation](https://lenslet.github.io/lenslet/space-groups.html#eq-symmetry-operation).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SymmetryOperation {
    pub(crate) turn: Matrix3,
    pub(crate) shift: [f64; 3],
}

impl SymmetryOperation {
    pub(crate) const IDENTITY: Self =
        Self { turn: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], shift: [0.0; 3] };

    // Read an operation of symmetry
    /// Reads an operation such as `-y, x-y, z+1/3`, if it is one and preserves volumes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        Self::read_sums(text).filter(|one| (determinant(&one.turn).abs() - 1.0).abs() < 1e-9)
    }

    /// Reads three sums, if their matrix has an inverse.
    fn read_sums(text: &str) -> Option<Self> {
        let mut operation = Self { turn: [[0.0; 3]; 3], shift: [0.0; 3] };
        let clean: String =
            text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
        let sums: Vec<&str> = clean.split(',').collect();
        let sums: [&str; 3] = sums.try_into().ok()?;
        for (row, sum) in sums.into_iter().enumerate() {
            (operation.turn[row], operation.shift[row]) = read_sum(sum)?;
        }
        (determinant(&operation.turn).abs() > 1e-3).then_some(operation)
    }

    /// Its image of a position.
    pub(crate) fn of(&self, place: [f64; 3]) -> [f64; 3] {
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
        // Add a term to a sum
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

// Read a number or a fraction
/// A number such as `0.25` or `1/4`.
fn read_fraction(text: &str) -> Option<f64> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
    match text.split_once('/') {
        Some((above, below)) => Some(number(above)? / number(below).filter(|x| *x != 0.0)?),
        None => number(text),
    }
}

// Compose operations of symmetry
/// Shifts are multiples of the inverse of this number.
const PARTS: f64 = 144.0;

impl SymmetryOperation {
    /// The operation that applies `first` and then this one, its shift from 0 to 1.
    fn after(&self, first: &Self) -> Self {
        let columns = [0, 1, 2].map(|k| first.turn.map(|row| row[k]));
        let turn = self.turn.map(|row| columns.map(|column| dot(row, column)));
        Self { turn, shift: self.of(first.shift) }.reduced()
    }

    /// The operation with its shift from 0 to 1.
    fn reduced(mut self) -> Self {
        self.shift = self.shift.map(|x| ((PARTS * x).round() / PARTS).rem_euclid(1.0));
        self
    }

    // Compare two operations of symmetry
    /// Whether the two differ by whole sides only, up to the digits of a file.
    fn is_like(&self, other: &Self) -> bool {
        let whole = |x: f64| (x - x.round()).abs() < 2e-3;
        let apart = minus(self.shift, other.shift);
        let near = |(a, b): (&[f64; 3], &[f64; 3])| norm(minus(*a, *b)) < 1e-6;
        self.turn.iter().zip(&other.turn).all(near) && apart.into_iter().all(whole)
    }
}

// Compare lists of operations
/// Whether two lists hold the same operations.
pub(crate) fn same_operations(a: &[SymmetryOperation], b: &[SymmetryOperation]) -> bool {
    let within = |a: &[SymmetryOperation], b: &[SymmetryOperation]| {
        a.iter().all(|one| b.iter().any(|other| one.is_like(other)))
    };
    a.len() == b.len() && within(a, b) && within(b, a)
}

/// Whether the products of operations are among them, the identity too.
pub(crate) fn is_group(operations: &[SymmetryOperation]) -> bool {
    generated(operations).is_some_and(|group| same_operations(&group, operations))
}

// Generate a group of operations
/// The most operations of a space group in one cell.
const MOST: usize = 192;
/// The largest element of a matrix that is accepted.
const LARGEST: f64 = 12.0;

/// All products of `generators`, the identity first, if they are a space group.
fn generated(generators: &[SymmetryOperation]) -> Option<Vec<SymmetryOperation>> {
    let mut group = vec![SymmetryOperation::IDENTITY];
    let mut next = 0;
    while next < group.len() {
        for generator in generators {
            let product = generator.after(&group[next]);
            let fits = product.turn.iter().flatten().all(|x| x.abs() <= LARGEST);
            if !fits || group.len() > MOST {
                return None;
            }
            if !group.iter().any(|one| one.is_like(&product)) {
                group.push(product);
            }
        }
        next += 1;
    }
    (group.len() <= MOST).then_some(group)
}

// Operations of a Hall symbol
/// The operations of a group by its Hall symbol, the identity first, if it is one.
pub(crate) fn hall_operations(symbol: &str) -> Option<Vec<SymmetryOperation>> {
    let symbol = symbol.replace('_', " ");
    let (words, change) = match symbol.split_once('(') {
        Some((words, change)) => (words, Some(change.trim_end().strip_suffix(')')?)),
        None => (symbol.as_str(), None),
    };
    let mut words = words.split_whitespace();
    let mut generators = centring(words.next()?)?;
    let mut before: Option<HallRotation> = None;
    for word in words {
        let read = HallRotation::read(word, before)?;
        generators.push(read.operation()?);
        before = Some(read);
    }
    if let Some(change) = change {
        generators = rebased(&generators, &change_of_basis(change)?)?;
    }
    generated(&generators)
}

// Centring of a cell
/// The inversion and the shifts by which the first word of a Hall symbol centres the cell.
fn centring(word: &str) -> Option<Vec<SymmetryOperation>> {
    const HALF: f64 = 0.5;
    const T: f64 = 1.0 / 3.0;
    const U: f64 = 2.0 / 3.0;
    let (inverted, letter) = match word.strip_prefix('-') {
        Some(letter) => (true, letter),
        None => (false, word),
    };
    // Shifts of a centred cell
    let shifts: &[[f64; 3]] = match letter.to_ascii_uppercase().as_str() {
        "P" => &[],
        "A" => &[[0.0, HALF, HALF]],
        "B" => &[[HALF, 0.0, HALF]],
        "C" => &[[HALF, HALF, 0.0]],
        "I" => &[[HALF; 3]],
        "F" => &[[0.0, HALF, HALF], [HALF, 0.0, HALF]],
        "R" => &[[U, T, T]],
        "H" => &[[U, T, 0.0]],
        "S" => &[[T, T, U]],
        "T" => &[[T, U, T]],
        _ => return None,
    };
    let shifted =
        shifts.iter().map(|&shift| SymmetryOperation { shift, ..SymmetryOperation::IDENTITY });
    Some(inverted.then_some(INVERSION).into_iter().chain(shifted).collect())
}

/// The inversion at the origin.
const INVERSION: SymmetryOperation = SymmetryOperation {
    turn: [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]],
    shift: [0.0; 3],
};

// A rotation in a Hall symbol
/// A rotation in a Hall symbol.
#[derive(Debug, Clone, Copy)]
struct HallRotation {
    /// N of a rotation by 360°/N.
    fold: usize,
    inverted: bool,
    /// x, y, z, ', " or *; a space for the identity and the inversion.
    axis: char,
    /// The axis x, y or z, from 0, across which diagonals lie: its own, or that of the word before.
    side: usize,
    shift: [f64; 3],
}

// Read a rotation of a Hall symbol
impl HallRotation {
    /// Reads a word after the word `before`.
    fn read(text: &str, before: Option<Self>) -> Option<Self> {
        let (inverted, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (fold, rest) = (text.get(..1)?.parse().ok()?, &text[1..]);
        let fold = Some(fold).filter(|fold| matches!(fold, 1 | 2 | 3 | 4 | 6))?;
        // The axis of a Hall rotation
        let given = rest.chars().find(|c| matches!(c, 'x' | 'y' | 'z' | '\'' | '"' | '*'));
        let axis = given.unwrap_or(match (fold, before.map(|word| word.fold)) {
            (1, _) => ' ',
            (2, Some(2 | 4)) => 'x',
            (2, Some(3 | 6)) => '\'',
            (3, Some(_)) => '*',
            _ => 'z',
        });
        let side = match axis {
            'x' | 'y' | 'z' => usize::from(axis as u8 - b'x'),
            _ => before.map_or(2, |word| word.side),
        };
        let mut word = Self { fold, inverted, axis, side, shift: [0.0; 3] };
        let mut letters = rest.chars().filter(|c| Some(*c) != given);
        letters.try_for_each(|letter| word.add(letter))?;
        Some(word)
    }

    // Add a shift of a Hall symbol
    /// Adds the shift that a letter or a digit means, if it is one.
    fn add(&mut self, letter: char) -> Option<()> {
        let [a, b, c] = SymmetryOperation::IDENTITY.turn;
        let (part, direction) = match letter {
            'a' => (0.5, a),
            'b' => (0.5, b),
            'c' => (0.5, c),
            'n' => (0.5, [1.0; 3]),
            'u' => (0.25, a),
            'v' => (0.25, b),
            'w' => (0.25, c),
            'd' => (0.25, [1.0; 3]),
            '1'..='5' if matches!(self.axis, 'x' | 'y' | 'z') => {
                let screw = f64::from(letter as u8 - b'0');
                (screw / self.fold as f64, [a, b, c][self.side])
            }
            _ => return None,
        };
        self.shift = plus(self.shift, direction.map(|x| part * x));
        Some(())
    }

    // Matrix of a rotation of a Hall symbol
    /// The operation that the word means, if its axis suits its N.
    fn operation(&self) -> Option<SymmetryOperation> {
        let z = [0.0, 0.0, 1.0];
        let about_c = match (self.fold, self.axis) {
            (1, _) => SymmetryOperation::IDENTITY.turn,
            (2, 'x' | 'y' | 'z') => [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], z],
            (3, 'x' | 'y' | 'z') => [[0.0, -1.0, 0.0], [1.0, -1.0, 0.0], z],
            (4, 'x' | 'y' | 'z') => [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], z],
            (6, 'x' | 'y' | 'z') => [[1.0, -1.0, 0.0], [1.0, 0.0, 0.0], z],
            (2, '\'') => [[0.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]],
            (2, '"') => [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]],
            (3, '*') => [z, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
            _ => return None,
        };
        let back = |k: usize| (k + 2 - self.side) % 3;
        let sign = if self.inverted { -1.0 } else { 1.0 };
        let turn = [0, 1, 2].map(|i| [0, 1, 2].map(|j| sign * about_c[back(i)][back(j)]));
        Some(SymmetryOperation { turn, shift: self.shift })
    }
}

// Change the basis of operations
// Read a change of basis
/// Reads a change of basis: a shift of the origin in twelfths, or an operation in letters.
fn change_of_basis(text: &str) -> Option<SymmetryOperation> {
    if text.contains(',') {
        return SymmetryOperation::read_sums(text);
    }
    let numbers: Vec<i8> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let whole = numbers.len() == text.split_whitespace().count();
    let numbers: [i8; 3] = numbers.try_into().ok().filter(|_| whole)?;
    Some(SymmetryOperation {
        shift: numbers.map(|x| f64::from(x) / 12.0),
        ..SymmetryOperation::IDENTITY
    })
}

/// Generators in another basis, with the sides of the old cell, if all of them map the new lattice to itself.
fn rebased(
    generators: &[SymmetryOperation],
    change: &SymmetryOperation,
) -> Option<Vec<SymmetryOperation>> {
    let turn = inverse(&change.turn);
    let back = SymmetryOperation { turn, shift: turn.map(|row| -dot(row, change.shift)) };
    let sides = SymmetryOperation::IDENTITY
        .turn
        .map(|shift| SymmetryOperation { shift, ..SymmetryOperation::IDENTITY });
    // Move an operation to another basis
    // Whole sides are shifts here: composition would reduce them to none.
    let moved = |one: &SymmetryOperation| SymmetryOperation {
        turn: product(&product(&change.turn, &one.turn), &turn),
        shift: change.of(one.of(back.shift)),
    };
    let all = generators.iter().chain(&sides).map(|one| {
        let mut moved = moved(one);
        let whole = moved.turn.iter().flatten().all(|x| (x - x.round()).abs() < 1e-6);
        moved.turn = moved.turn.map(|row| row.map(f64::round));
        whole.then(|| moved.reduced())
    });
    all.collect()
}

// Product of two rotation matrices
/// The product of two rotation matrices.
fn product(a: &Matrix3, b: &Matrix3) -> Matrix3 {
    a.map(|row| times(row, b))
}

// A setting of a space group
/// A choice of axes and origin of a space group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Setting {
    /// The number of the group in the *International Tables*.
    pub(crate) number: u8,
    /// The origin, 1 or 2, or H for hexagonal and R for rhombohedral axes, and then the orientation of the axes, `1ba-c`; or empty.
    code: &'static str,
    hall: &'static str,
    names: &'static str,
}

/// All settings, in the order of the *International Tables*.
pub(crate) fn settings() -> impl Iterator<Item = Setting> {
    let lines = include_str!("../../book/data/space_groups.csv").lines().skip(2);
    lines.filter_map(|line| {
        let mut fields = line.split(',');
        let number = fields.next()?.parse().ok()?;
        let [code, hall, names] = [fields.next()?, fields.next()?, fields.next()?];
        Some(Setting { number, code, hall, names })
    })
}

// Parts of a setting
impl Setting {
    /// The choice of the origin and the orientation of the axes, `1ba-c`.
    pub(crate) fn code(&self) -> &'static str {
        if self.code.is_empty() { "abc" } else { self.code }
    }

    /// The operations of the group in this setting.
    pub(crate) fn operations(&self) -> Vec<SymmetryOperation> {
        hall_operations(self.hall).unwrap_or_default()
    }

    /// The choice of the origin, or of hexagonal or rhombohedral axes, if there is one.
    pub(crate) fn origin(&self) -> Option<&'static str> {
        self.code.get(..1).filter(|first| matches!(*first, "1" | "2" | "H" | "R"))
    }

    /// The orientation of the axes.
    pub(crate) fn axes(&self) -> &'static str {
        self.origin().map_or(self.code, |_| &self.code[1..])
    }

    /// The Hermann–Mauguin symbol, with the choice of the origin if there is one.
    pub(crate) fn symbol(&self) -> String {
        let name = self.names.split('=').next().unwrap_or_default();
        self.origin().map_or(name.into(), |origin| format!("{name}:{origin}"))
    }

    /// Whether `code` means this setting.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.code().eq_ignore_ascii_case(code)
            || self.origin().is_some_and(|origin| origin.eq_ignore_ascii_case(code))
    }

    /// Whether a number without a symbol means this setting: its axes are those of the Tables' first page of the group, or another unique axis.
    fn is_usual(&self) -> bool {
        matches!(self.axes(), "" | "a" | "a1" | "b" | "b1" | "c" | "c1")
    }
}

/// The settings that have these operations.
pub(crate) fn settings_of_operations(operations: &[SymmetryOperation]) -> Vec<Setting> {
    settings().filter(|one| same_operations(&one.operations(), operations)).collect()
}

/// The settings that the number of a group may mean.
pub(crate) fn settings_of_number(number: u8) -> Vec<Setting> {
    settings().filter(|one| one.number == number && one.is_usual()).collect()
}

// Settings by their symbol
/// The settings that a Hermann–Mauguin symbol may mean; none if it is unknown.
pub(crate) fn settings_of_symbol(symbol: &str) -> Vec<Setting> {
    let named = |name: &str| -> Vec<Setting> {
        settings().filter(|one| one.names.split('=').any(|own| compact(own) == name)).collect()
    };
    let name = compact(symbol);
    let (mut stem, mut code) = match name.split_once(':') {
        Some((stem, code)) => (stem.to_string(), Some(code.to_string())),
        None => (name, None),
    };
    if let Some(rest) = stem.strip_prefix('h') {
        (stem, code) = (format!("r{rest}"), Some("h".into()));
    }
    let mut settings = named(&stem);
    if settings.is_empty() && code.is_none() && stem.ends_with(['h', 'r', 's', 'z']) {
        code = stem.pop().map(|letter| match letter {
            's' => "1".into(),
            'z' => "2".into(),
            axes => axes.to_string(),
        });
        settings = named(&stem);
    }
    settings.retain(|one| code.as_ref().is_none_or(|code| one.has_code(code)));
    settings
}

// Spell a symbol without blanks
/// A symbol in small letters, without blanks, underscores and parentheses, and with hyphens for minus signs and bars.
fn compact(symbol: &str) -> String {
    let mut compact = String::new();
    for letter in symbol.chars() {
        match letter {
            '_' | '(' | ')' | '\'' | '"' => {}
            '\u{304}' | '\u{305}' => {
                let last = compact.pop();
                compact.push('-');
                compact.extend(last);
            }
            '−' | '–' | '‐' => compact.push('-'),
            letter if letter.is_whitespace() => {}
            letter => compact.extend(letter.to_lowercase()),
        }
    }
    compact
}

// The nearest known symbols
/// The three known symbols that are most like one that is unknown.
pub(crate) fn nearest_symbols(symbol: &str) -> Vec<&'static str> {
    let typed: String = compact(symbol).chars().take(20).collect();
    let typed = typed.split(':').next().unwrap_or_default();
    let mut all: Vec<(usize, &str)> = settings()
        .flat_map(|one| one.names.split('='))
        .map(|name| (edits(typed, &compact(name)), name))
        .collect();
    all.sort_by_key(|(distance, _)| *distance);
    let mut nearest: Vec<&str> = Vec::new();
    for (_, name) in all {
        if nearest.len() < 3 && !nearest.contains(&name) {
            nearest.push(name);
        }
    }
    nearest
}

// Check that operations preserve a cell
/// Whether operations preserve the lengths and angles of a cell.
pub(crate) fn preserve(operations: &[SymmetryOperation], lattice: &Matrix3) -> bool {
    let metric = lattice.map(|a| lattice.map(|b| dot(a, b)));
    let columns = |turn: &Matrix3| [0, 1, 2].map(|k| turn.map(|row| row[k]));
    operations.iter().all(|operation| {
        let image = columns(&operation.turn);
        let turned = image.map(|a| image.map(|b| dot(times(a, &metric), b)));
        (0..9).all(|k| {
            let (i, j) = (k / 3, k % 3);
            let scale = (metric[i][i] * metric[j][j]).sqrt();
            (turned[i][j] - metric[i][j]).abs() <= 0.01 * scale
        })
    })
}

// Tests of space groups
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::crystal::sides;
    use std::collections::HashMap;
    use std::f64::consts::TAU;

    // Operations of symmetry are read
    #[test]
    fn operations_are_read_or_refused() {
        let read = |text: &str| SymmetryOperation::read(text);
        let operation = read("-y, x-y , z+1/3").unwrap();
        assert_eq!(operation.of([0.1, 0.25, 0.5]), [-0.25, 0.1 - 0.25, 0.5 + 1.0 / 3.0]);
        assert_eq!(read("1/2-X,0.5+Y,-.5+z").unwrap().of([0.5; 3]), [0.0, 1.0, 0.0]);
        assert_eq!(read("x,y,1*z"), Some(SymmetryOperation::IDENTITY));
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
    }

    // All settings have the operations of spglib
    #[test]
    fn all_settings_have_the_operations_of_spglib() {
        let place = [0.1234, 0.2718, 0.3391];
        let table = include_str!("../../tests/oracle/space_groups.csv");
        let rows: Vec<Vec<&str>> =
            table.lines().skip(1).map(|row| row.split(',').collect()).collect();
        let reflections: Vec<[f64; 3]> = rows[0][3..]
            .iter()
            .step_by(2)
            .map(|name| {
                let parts: Vec<f64> = name[3..].split('_').map(|h| h.parse().unwrap()).collect();
                parts.try_into().unwrap()
            })
            .collect();
        assert_eq!((rows.len(), reflections.len(), settings().count()), (531, 5, 540));
        for (row, setting) in rows[1..].iter().zip(settings()) {
            let operations = setting.operations();
            assert_eq!(row[0], setting.number.to_string());
            assert_eq!(row[2], operations.len().to_string(), "{setting:?}");
            for (hkl, values) in reflections.iter().zip(row[3..].chunks(2)) {
                let phases = operations.iter().map(|one| TAU * dot(*hkl, one.of(place)));
                let [re, im] = phases.fold([0.0, 0.0], |[re, im], x| [re + x.cos(), im + x.sin()]);
                let [a, b] = [0, 1].map(|k| values[k].parse::<f64>().unwrap());
                assert!((re - a).abs() < 2e-6 && (im - b).abs() < 2e-6, "{setting:?} {hkl:?}");
            }
        }
    }

    // Symbols in all spellings
    #[test]
    fn symbols_are_known_in_all_spellings() {
        let mut numbers: HashMap<String, u8> = HashMap::new();
        for setting in settings() {
            assert!(!setting.operations().is_empty(), "{setting:?}");
            for name in setting.names.split('=') {
                let number = *numbers.entry(compact(name)).or_insert(setting.number);
                assert_eq!(number, setting.number, "{name}");
            }
        }
        let codes = |symbol: &str| -> Vec<(u8, &str)> {
            settings_of_symbol(symbol).iter().map(|one| (one.number, one.code)).collect()
        };
        for (symbol, expected) in [
            ("P m -3 m", &[(221, "")][..]),
            ("Pm-3m", &[(221, "")]),
            ("P_m_-3_m", &[(221, "")]),
            ("P m 3 m", &[(221, "")]),
            ("Pm\u{2212}3m", &[(221, "")]),
            ("Pm3\u{305}m", &[(221, "")]),
            ("P2(1)/c", &[(14, "b1"), (14, "a3")]),
            ("P 1 21/c 1", &[(14, "b1")]),
            ("P 1 1 2_1/b", &[(14, "c3")]),
            ("C m c a", &[(64, "")]),
            ("Cmce", &[(64, "")]),
            ("F d -3 m", &[(227, "1"), (227, "2")]),
            ("F d -3 m :1", &[(227, "1")]),
            ("Fd-3mZ", &[(227, "2")]),
            ("F d -3 m S", &[(227, "1")]),
            ("R -3 m", &[(166, "H"), (166, "R")]),
            ("R-3m:h", &[(166, "H")]),
            ("R -3 m R", &[(166, "R")]),
            ("H 3 2", &[(155, "H")]),
            ("C -1", &[(2, "C")]),
            ("P 21/c :b1", &[(14, "b1")]),
            ("P 41 2 2", &[(91, "")]),
            ("P 43 1 2", &[]),
            ("F d -3 m :3", &[]),
            ("", &[]),
            (":", &[]),
            ("h", &[]),
        ] {
            assert_eq!(codes(symbol), expected, "{symbol}");
        }
        assert_eq!(nearest_symbols("P 21/q")[0], "P 21/m");
        assert_eq!(nearest_symbols(&"é".repeat(100_000)).len(), 3);
    }

    // Hall symbols beyond the table
    #[test]
    fn hall_symbols_may_change_the_basis() {
        let group = |symbol: &str| hall_operations(symbol);
        let same = |a: &str, b: &str| same_operations(&group(a).unwrap(), &group(b).unwrap());
        assert!(same("-P 2ac 2ab", "-P_2ac_2ab"));
        assert!(same("F 4d 2 3 -1d", "-F 4vw 2vw 3 (x+1/8,y+1/8,z+1/8)"));
        assert!(!same("F 4d 2 3 -1d", "-F 4vw 2vw 3"));
        assert!(same("P 32 2 (0 0 2)", "P 32 2 (x,y,z+1/6)"));
        // A primitive cell of a centred lattice, and back
        assert_eq!(group("C 2y (x-y,x+y,z)").unwrap().len(), 2);
        assert_eq!(group("P 2 (1/2x,y,z)").unwrap().len(), 4);
        assert_eq!(group("P 1").unwrap(), [SymmetryOperation::IDENTITY]);
        for bad in [
            "",
            "-",
            "Q 2",
            "P 5",
            "P 2q",
            "P 21*",
            "P 4'",
            "P 6*",
            "P 2 (0 0",
            "P 2 (0 0 1 2)",
            "P 2 (0 0 x)",
            "P 2 (x,x,z)",
            "P 3 (2x,y,z)",
            "P é",
            "P 4z 4x 3",
            "P 2 6x",
            "P 3 4x",
            "P 2 (x/1000,y,z)",
            "P 2 (nan 0 0)",
        ] {
            assert!(group(bad).is_none_or(|group| group.len() <= MOST), "{bad}");
        }
        for bad in
            ["", "-", "Q 2", "P 5", "P 2q", "P 21*", "P 4'", "P 2 (0 0", "P 2 (x,x,z)", "P é"]
        {
            assert_eq!(group(bad), None, "{bad}");
        }
    }

    // Rutile has sixteen operations
    #[test]
    fn rutile_has_sixteen_operations() {
        let operations = hall_operations("-P 4n 2n").unwrap();
        assert_eq!(operations.len(), 16);
        let images = |place: [f64; 3]| {
            let mut images: Vec<[f64; 3]> = Vec::new();
            for image in operations.iter().map(|one| one.of(place)) {
                let same =
                    |other: &[f64; 3]| norm(minus(image, *other).map(|x| x - x.round())) < 1e-9;
                if !images.iter().any(same) {
                    images.push(image.map(|x| x.rem_euclid(1.0)));
                }
            }
            images
        };
        assert_eq!(images([0.12, 0.23, 0.34]).len(), 16);
        assert_eq!(images([0.0; 3]).len(), 2);
        let oxygen = images([0.305, 0.305, 0.0]);
        assert_eq!(oxygen.len(), 4);
        for expected in [[0.695, 0.695, 0.0], [0.195, 0.805, 0.5], [0.805, 0.195, 0.5]] {
            let near =
                |image: &[f64; 3]| norm(minus(*image, expected).map(|x| x - x.round())) < 1e-9;
            assert!(oxygen.iter().any(near), "{oxygen:?}");
        }
    }

    // Cells that operations preserve
    #[test]
    fn cells_are_preserved_or_not() {
        let kept = |symbol: &str, lengths: [f64; 3], angles: [f64; 3]| -> Vec<&str> {
            let lattice = sides(lengths, angles.map(f64::to_radians)).unwrap();
            settings_of_symbol(symbol)
                .iter()
                .filter(|one| preserve(&one.operations(), &lattice))
                .map(|one| one.code)
                .collect()
        };
        assert_eq!(kept("R -3 m", [4.1, 4.1, 13.0], [90.0, 90.0, 120.0]), ["H"]);
        assert_eq!(kept("R -3 m", [4.1; 3], [57.0; 3]), ["R"]);
        assert_eq!(kept("P 21/c", [4.1, 5.2, 6.3], [90.0, 97.0, 90.0]), ["b1"]);
        assert_eq!(kept("P 21/n", [4.1, 5.2, 6.3], [90.0, 90.0, 97.0]), ["c2"]);
        assert_eq!(kept("P 4/n", [4.1, 4.2, 6.3], [90.0; 3]), [""; 0]);
        assert_eq!(kept("P 4/n", [4.1, 4.105, 6.3], [90.0; 3]), ["1", "2"]);
    }
}
