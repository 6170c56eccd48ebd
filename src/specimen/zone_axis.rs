// Tangled from book/src/zone-axis.md: edit there, or here and run cargo tangle stitch.
//! Cells with right angles along any zone axis of a crystal.

// Imports of zone axes
use crate::error::{Invalid, accept};
use crate::specimen::atoms::Atom;
use crate::specimen::crystal::{
    Crystal, Matrix3, cross, determinant, dot, inverse, minus, norm, plus, skewness, times,
};
use std::collections::HashMap;

// Translations that map a crystal onto itself
impl Crystal {
    /// The translations within a cell, in units of the sides, that map the crystal onto itself, beginning with zero; and how many atoms they
    /// take to positions that are only nearly those of others.
    fn translations(&self) -> (Vec<[f64; 3]>, usize) {
        let places: Vec<[f64; 3]> =
            self.atoms().iter().map(|atom| self.fractional(atom.position)).collect();
        let alike = |j: usize, k: usize| {
            let of = |k: usize| Atom { position: [0.0; 3], ..self.atoms()[k] };
            of(j) == of(k)
        };
        let company = |k: &usize| (0..places.len()).filter(|&j| alike(j, *k)).count();
        let bins = Bins::new(&places);
        let lattice = self.lattice();
        let rarest = (0..places.len().min(32)).min_by_key(company).unwrap_or(0);
        // Distance to the nearest atom of its kind
        let off = |t: &[f64; 3], k: usize| {
            let place = plus(places[k], *t);
            let near = bins.near(place).filter(|&j| alike(j, k));
            near.map(|j| apart(places[j], place, &lattice)).fold(f64::INFINITY, f64::min)
        };
        let candidates = (0..places.len())
            .filter(|&k| alike(k, rarest))
            .map(|k| minus(places[k], places[rarest]));
        let maps = |t: &[f64; 3]| (0..places.len()).all(|k| off(t, k) < TOLERANCE);
        let mut translations = vec![[0.0; 3]];
        translations
            .extend(candidates.filter(|t| apart(*t, [0.0; 3], &lattice) > TOLERANCE).filter(maps));
        // Make translations exact and count merged atoms
        let count = translations.len() as f64;
        for t in &mut translations {
            *t = t.map(|x| (count * x).round() / count);
        }
        let mut merged = 0;
        for k in 0..places.len() {
            let worst = translations.iter().map(|t| off(t, k)).fold(0.0, f64::max);
            if worst >= TOLERANCE {
                return (vec![[0.0; 3]], 0);
            }
            merged += usize::from(worst > EQUAL);
        }
        (translations, merged)
    }
}

// Places sorted into bins
/// Largest distance of positions that are treated as one \[Å\].
const TOLERANCE: f64 = 1e-4;
/// Largest distance of positions that are equal but for rounding in double precision \[Å\].
const EQUAL: f64 = 1e-8;

/// The distance \[Å\] between two positions in units of the sides of `lattice`, modulo those sides.
fn apart(a: [f64; 3], b: [f64; 3], lattice: &Matrix3) -> f64 {
    norm(times(minus(a, b).map(|x| x - x.round()), lattice))
}

// Positions sorted into bins
/// Positions in units of the sides, sorted into bins.
struct Bins {
    side: i64,
    bins: HashMap<[i64; 3], Vec<usize>>,
}

impl Bins {
    fn new(places: &[[f64; 3]]) -> Self {
        let side = (places.len() as f64).cbrt().floor().clamp(1.0, 40.0) as i64;
        let mut bins = Self { side, bins: HashMap::new() };
        for (k, place) in places.iter().enumerate() {
            bins.bins.entry(bins.bin(*place)).or_default().push(k);
        }
        bins
    }

    fn bin(&self, place: [f64; 3]) -> [i64; 3] {
        place.map(|x| ((x - x.floor()) * self.side as f64).floor() as i64 % self.side)
    }

    // Positions in neighbouring bins
    /// The positions in the bin of `place` and in those around it.
    fn near(&self, place: [f64; 3]) -> impl Iterator<Item = usize> + '_ {
        let bin = self.bin(place);
        let about = if self.side < 3 { 0..self.side } else { -1..2 };
        let first = if self.side < 3 { [0; 3] } else { bin };
        let line = move |axis: usize| {
            about.clone().map(move |step| (first[axis] + step).rem_euclid(self.side))
        };
        let (xs, ys, zs) = (line(0), line(1), line(2));
        let bins = xs.flat_map(move |x| ys.clone().map(move |y| [x, y, 0]));
        let bins = bins.flat_map(move |[x, y, _]| zs.clone().map(move |z| [x, y, z]));
        bins.filter_map(|bin| self.bins.get(&bin)).flatten().copied()
    }
}

// A basis of all lattice vectors
impl Crystal {
    /// The sides of a primitive cell, in units of the sides of the file's, and how many atoms are merged by it.
    fn primitive(&self) -> (Matrix3, usize) {
        let (translations, merged) = self.translations();
        let count = translations.len() as f64;
        let sides = [[count, 0.0, 0.0], [0.0, count, 0.0], [0.0, 0.0, count]];
        let multiples = translations.iter().map(|t| t.map(|x| (count * x).round()));
        let mut rows: Vec<[f64; 3]> = multiples.chain(sides).collect();
        for column in 0..3 {
            // Leave one row with a number in the column
            loop {
                let filled = |row: &usize| rows[*row][column] != 0.0;
                let smallest = |j: &usize, k: &usize| {
                    rows[*j][column].abs().total_cmp(&rows[*k][column].abs())
                };
                let Some(pivot) = (column..rows.len()).filter(filled).min_by(smallest) else {
                    break;
                };
                rows.swap(column, pivot);
                let first = rows[column];
                for row in rows.iter_mut().skip(column + 1) {
                    let times = (row[column] / first[column]).round();
                    *row = minus(*row, first.map(|x| times * x));
                }
                if rows[column + 1..].iter().all(|row| row[column] == 0.0) {
                    break;
                }
            }
        }
        ([0, 1, 2].map(|k| rows[k].map(|x| x / count)), merged)
    }
}

// Lattice vectors across an axis
/// Lattice vectors no longer than `radius` \[Å\] whose cosine with `axis` is at most `strain`, one of each with its opposite, the shortest first.
fn across(basis: &Matrix3, axis: [f64; 3], radius: f64, strain: f64) -> Vec<[f64; 3]> {
    let dual = inverse(basis);
    let bound = |k: usize| (radius * norm([dual[0][k], dual[1][k], dual[2][k]])) as i64;
    let range = |k: usize| -bound(k)..=bound(k);
    let mut vectors = Vec::new();
    for i in 0..=bound(0) {
        for j in range(1).filter(|j| i > 0 || *j >= 0) {
            for k in range(2).filter(|k| i > 0 || j > 0 || *k > 0) {
                let vector = times([i, j, k].map(|n| n as f64), basis);
                let length = norm(vector);
                if length <= radius && dot(vector, axis).abs() <= strain * length * norm(axis) {
                    vectors.push(vector);
                }
            }
        }
    }
    vectors.sort_by(|a, b| norm(*a).total_cmp(&norm(*b)));
    vectors
}

// The smallest right-angled pair
/// The pair of these vectors with the smallest area whose cosine is at most `strain`, the shorter first.
fn smallest_pair(
    vectors: &[[f64; 3]],
    strain: f64,
    order: &dyn Fn([f64; 3]) -> [f64; 3],
) -> Option<[[f64; 3]; 2]> {
    let mut best: Option<([f64; 2], [[f64; 3]; 2])> = None;
    for (k, &a) in vectors.iter().enumerate() {
        for &b in &vectors[k + 1..] {
            let key = [norm(a) * norm(b), norm(a) + norm(b)];
            let is_larger = |than: &[f64; 2]| key[0] > than[0] * (1.0 + 1e-6);
            if best.as_ref().is_some_and(|(than, _)| is_larger(than)) {
                break;
            }
            if dot(a, b).abs() > strain * key[0] {
                continue;
            }
            // Keep the better of two pairs
            let equal = norm(b) - norm(a) < 1e-6 * norm(a);
            let pair = if equal && order(b) > order(a) { [b, a] } else { [a, b] };
            let better = best.as_ref().is_none_or(|(than, other)| {
                let places = |pair: &[[f64; 3]; 2]| pair.map(order);
                let tie = |k: usize| (key[k] - than[k]).abs() <= 1e-6 * than[k];
                match (tie(0), tie(1)) {
                    (false, _) => key[0] < than[0],
                    (true, false) => key[1] < than[1],
                    (true, true) => places(&pair) > places(other),
                }
            });
            if better {
                best = Some((key, pair));
            }
        }
    }
    best.map(|(_, pair)| pair)
}

// Search wider until nothing smaller can come
/// The right-angled pair of lattice vectors across `axis` with the smallest area, no longer than [`widest`] allows.
fn pair_across(
    basis: &Matrix3,
    axis: [f64; 3],
    strain: f64,
    order: &dyn Fn([f64; 3]) -> [f64; 3],
) -> Option<[[f64; 3]; 2]> {
    let widest = widest(basis);
    let mut radius = widest.min(25.0);
    loop {
        let vectors = across(basis, axis, radius, strain);
        let pair = smallest_pair(&vectors, strain, order);
        let enough = match (pair, vectors.first()) {
            (Some([a, b]), Some(&shortest)) => norm(a) * norm(b) / norm(shortest) * 1.001,
            _ => 2.0 * radius,
        };
        if enough <= radius || radius >= widest {
            return pair;
        }
        radius = enough.min(widest);
    }
}

// Limit of the search for vectors
/// The radius at which the search ends \[Å\].
fn widest(basis: &Matrix3) -> f64 {
    let dual = inverse(basis);
    let density: f64 = (0..3).map(|k| norm([dual[0][k], dual[1][k], dual[2][k]])).product();
    let longest = basis.map(norm).into_iter().fold(0.0, f64::max);
    (4.0 * longest).max(200.0).min((1e7 / density).cbrt())
}

// A right-angled cell along a zone axis
/// A cell with right angles that was cut from a crystal.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The cell, upright: its third side is along the zone axis.
    pub crystal: Crystal,
    /// Its three sides in units of the sides of the crystal that it was cut from.
    pub sides: [[f64; 3]; 3],
    /// The largest cosine between two of these sides; the crystal was sheared by as much.
    pub strain: f64,
    /// How many atoms of that crystal were merged with others, from which they differ by less than 1e-4 Å after a translation.
    pub merged: usize,
}

impl Cut {
    /// The strain that is rounding alone.
    pub const EXACT: f64 = 1e-6;
}

// Cut a crystal along a zone axis
impl Crystal {
    /// The smallest cell with right angles whose third side is along the lattice vector `zone` in units of the file's sides, for a beam along −z,
    /// antiparallel to the zone axis. Two of its sides may have a cosine of up to `strain`, and the crystal is sheared until they have none.
    ///
    /// # Errors
    /// `Invalid` for a zone of zeros or a strain that is not between 0 and 0.1, and where there are no such sides within 200 Å or four sides of a large cell.
    pub fn cut(&self, zone: [i64; 3], strain: f64) -> Result<Cut, Invalid> {
        // Check a zone axis and its strain
        let good = zone != [0; 3] && zone.iter().all(|index| index.abs() <= 1000);
        accept(good, "zone_axis", zone, "three indices up to 1000 that are not all zero")?;
        accept((0.0..=0.1).contains(&strain), "strain", strain, "a cosine from 0 to 0.1")?;
        let strain = strain.max(Cut::EXACT);
        let (primitive, merged) = self.primitive();
        let basis = primitive.map(|row| times(row, &self.lattice()));
        let axis = along(&primitive, &basis, zone);
        let order = |vector: [f64; 3]| self.fractional(vector).map(|x| (x * 1e6).round());
        let pair = pair_across(&basis, axis, strain, &|vector| upward(order(vector)));
        let pair = pair.ok_or_else(|| no_pair(&basis, axis, zone))?;
        // Orient the sides of a cut
        let mut rows = [pair[0], pair[1], axis].map(|row| row.map(|x| x + 0.0));
        for row in rows.iter_mut().take(2) {
            let ordered = order(*row);
            *row = if upward(ordered) == ordered { *row } else { row.map(|x| -x) };
        }
        if determinant(&rows) < 0.0 {
            rows[1] = rows[1].map(|x| -x);
        }
        let sides = rows.map(|row| self.fractional(row));
        Ok(Cut { crystal: self.filled(&rows, zone)?, sides, strain: skewness(&rows), merged })
    }

    // Fill the cell that was cut
    /// The cell of the sides `rows` \[Å\], filled with this crystal's atoms and rotated to the axes x, y and z.
    fn filled(&self, rows: &Matrix3, zone: [i64; 3]) -> Result<Crystal, Invalid> {
        let (back, lengths) = (inverse(rows), rows.map(norm));
        let upright = [[lengths[0], 0.0, 0.0], [0.0, lengths[1], 0.0], [0.0, 0.0, lengths[2]]];
        let mut atoms: Vec<Atom> = Vec::new();
        for cell in self.cells_about(rows) {
            let shift = self.position(cell);
            for atom in self.atoms() {
                let place = times(plus(atom.position, shift), &back);
                let slack = lengths.map(|length| TOLERANCE / length);
                if (0..3).all(|k| (-slack[k]..=1.0 + slack[k]).contains(&place[k])) {
                    atoms.push(Atom { position: place.map(home), ..*atom });
                }
            }
        }
        // Leave one of the atoms in one place
        let places: Vec<[f64; 3]> = atoms.iter().map(|atom| atom.position).collect();
        let bins = Bins::new(&places);
        let kind = |k: usize| Atom { position: [0.0; 3], ..atoms[k] };
        let again = |k: usize| {
            let same = |j: usize| {
                j < k && kind(j) == kind(k) && apart(places[j], places[k], &upright) < TOLERANCE
            };
            bins.near(places[k]).any(same)
        };
        let kept: Vec<Atom> = (0..atoms.len()).filter(|&k| !again(k)).map(|k| atoms[k]).collect();
        let expected = determinant(rows).abs() / self.volume() * self.atoms().len() as f64;
        let good = (kept.len() as f64 - expected).abs() < 0.5;
        accept(good, "zone_axis", zone, "a crystal whose copies fall on each other to 1e-4 Å")?;
        let positioned =
            kept.iter().map(|atom| Atom { position: times(atom.position, &upright), ..*atom });
        Crystal::new(upright, positioned.collect())
    }

    // Cells about the cell that is cut
    /// The cells of this crystal, by their places in units of the sides, that a cell of the sides `rows` may touch.
    fn cells_about(&self, rows: &Matrix3) -> Vec<[f64; 3]> {
        let corners: Vec<[f64; 3]> = (0..8)
            .map(|k| [k & 1, k >> 1 & 1, k >> 2 & 1].map(f64::from))
            .map(|corner| self.fractional(times(corner, rows)))
            .collect();
        let places: Vec<[f64; 3]> =
            self.atoms().iter().map(|atom| self.fractional(atom.position)).collect();
        let range = |axis: usize| {
            let least = |values: &[[f64; 3]]| {
                values.iter().map(|place| place[axis]).fold(f64::INFINITY, f64::min)
            };
            let most = |values: &[[f64; 3]]| {
                values.iter().map(|place| place[axis]).fold(-f64::INFINITY, f64::max)
            };
            let first = (least(&corners) - most(&places) - 0.1).floor() as i64;
            first..=(most(&corners) - least(&places) + 0.1).ceil() as i64
        };
        let mut cells = Vec::new();
        for i in range(0) {
            for j in range(1) {
                cells.extend(range(2).map(|k| [i, j, k].map(|n| n as f64)));
            }
        }
        cells
    }
}

// The shortest vector along an axis
/// The shortest lattice vector \[Å\] along `zone`.
fn along(primitive: &Matrix3, basis: &Matrix3, zone: [i64; 3]) -> [f64; 3] {
    let whole =
        times(zone.map(|index| index as f64), &inverse(primitive)).map(|x| x.round() as i64);
    let factor = whole.into_iter().fold(0, gcd);
    times(whole.map(|index| (index / factor) as f64), basis)
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// The vector or its opposite, whichever has its first coordinate that is not 0 positive.
fn upward(vector: [f64; 3]) -> [f64; 3] {
    let first = vector.into_iter().find(|x| *x != 0.0).unwrap_or(0.0);
    if first < 0.0 { vector.map(|x| 0.0 - x) } else { vector }
}

// Say which strain would do
/// Says that there are no right angles across an axis, and which strain finds some within 40 Å.
fn no_pair(basis: &Matrix3, axis: [f64; 3], zone: [i64; 3]) -> Invalid {
    let vectors = across(basis, axis, widest(basis).min(40.0), 0.1);
    let mut least = f64::INFINITY;
    for (k, &a) in vectors.iter().enumerate() {
        for &b in &vectors[k + 1..] {
            if norm(cross(a, b)) > 0.9 * norm(a) * norm(b) {
                least = least.min(skewness(&[a, b, axis]));
            }
        }
    }
    let hint = if least <= 0.1 {
        format!("; a strain of {:.1e} finds some", 1.01 * least)
    } else {
        String::new()
    };
    let expected = format!(
        "an axis with lattice vectors at right angles across it, up to {:.0} Å long{hint}",
        widest(basis)
    );
    Invalid::new("zone_axis", format!("{zone:?}"), expected)
}

// A place brought into the cell
/// A coordinate brought between 0 and 1; one within rounding of 0 or 1 becomes 0.
fn home(place: f64) -> f64 {
    let home = place.rem_euclid(1.0);
    if (1e-9..1.0 - 1e-9).contains(&home) { home } else { 0.0 }
}

// Three indices for four
/// The three indices of the axis that has the four indices \[uvtw\] in a hexagonal crystal.
///
/// # Errors
/// `Invalid` where u + v + t is not 0.
///
/// ```
/// use lenslet::specimen::zone_of_four;
/// assert_eq!(zone_of_four([1, 1, -2, 0])?, [3, 3, 0]); // along [110]
/// # Ok::<(), lenslet::Invalid>(())
/// ```
pub fn zone_of_four(indices: [i64; 4]) -> Result<[i64; 3], Invalid> {
    let [u, v, t, w] = indices;
    let small = indices.iter().all(|index| index.abs() <= 1000);
    accept(
        small && u + v + t == 0,
        "zone_axis",
        indices,
        "four indices up to 1000, the first three of which sum to 0",
    )?;
    Ok([u - t, v - t, w])
}

// Tests of zone axes
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::atoms::Element;
    use crate::specimen::crystal::{BeamDirection, sides};
    use crate::units::DEGREE;

    /// A crystal of one element with atoms at these places in units of the sides.
    fn crystal(lengths: [f64; 3], angles: [f64; 3], places: &[[f64; 3]]) -> Crystal {
        let lattice = sides(lengths, angles.map(|angle| angle * DEGREE)).unwrap();
        let element = Element::new(14).unwrap();
        let atom = |place: &[f64; 3]| Atom {
            element,
            position: times(*place, &lattice),
            occupancy: 1.0,
            displacement: 0.1,
        };
        Crystal::new(lattice, places.iter().map(atom).collect()).unwrap()
    }

    fn silicon() -> Crystal {
        let face = [[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]];
        let places: Vec<[f64; 3]> =
            face.into_iter().chain(face.map(|place| plus(place, [0.25; 3]))).collect();
        crystal([5.43; 3], [90.0; 3], &places)
    }

    // Known cells along zone axes
    #[test]
    fn known_cells_are_found() {
        let iron = crystal([2.87; 3], [90.0; 3], &[[0.0; 3], [0.5; 3]]);
        let hexagonal = [90.0, 90.0, 120.0];
        let (third, two) = (1.0 / 3.0, 2.0 / 3.0);
        let graphite = crystal(
            [2.46, 2.46, 6.71],
            hexagonal,
            &[[0.0, 0.0, 0.25], [0.0, 0.0, 0.75], [third, two, 0.25], [two, third, 0.75]],
        );
        let magnesium = crystal(
            [3.209, 3.209, 5.21],
            hexagonal,
            &[[0.3333, 0.6667, 0.25], [0.6667, 0.3333, 0.75]],
        );
        let rounded = crystal(
            [5.43; 3],
            [90.0; 3],
            &silicon()
                .atoms()
                .iter()
                .map(|atom| atom.position.map(|x| (x / 5.43 * 1e3 + 0.3).floor() / 1e3))
                .collect::<Vec<_>>(),
        );
        let (half, root) = (0.5f64.sqrt(), 3f64.sqrt());
        let cases = [
            (silicon(), [0, 0, 1], [5.43 * half, 5.43 * half, 5.43], 4),
            (silicon(), [-3, 0, 0], [5.43 * half, 5.43 * half, 5.43], 4),
            (silicon(), [1, 1, 0], [5.43 * half, 5.43, 5.43 * half], 4),
            (rounded, [2, -2, 0], [5.43 * half, 5.43, 5.43 * half], 4),
            (silicon(), [1, 1, 1], [5.43 * half, 5.43 * 1.5f64.sqrt(), 5.43 * root], 12),
            (silicon(), [1, 1, 2], [5.43 * half, 5.43 * root, 5.43 * 1.5f64.sqrt()], 12),
            (iron, [1, 1, 1], [2.87 / half, 2.87 * 6f64.sqrt(), 2.87 * root / 2.0], 6),
            (graphite, [0, 0, 1], [2.46, 2.46 * root, 6.71], 8),
            (
                magnesium.clone(),
                zone_of_four([0, 0, 0, 1]).unwrap(),
                [3.209, 3.209 * root, 5.21],
                4,
            ),
            (magnesium, zone_of_four([1, 1, -2, 0]).unwrap(), [5.21, 3.209 * root, 3.209], 4),
        ];
        cases.into_iter().for_each(check);
    }

    // A cut as it is known
    /// Cuts a crystal along an axis and looks at the sides and the number of atoms.
    fn check((crystal, zone, expected, atoms): (Crystal, [i64; 3], [f64; 3], usize)) {
        let cut = crystal.cut(zone, Cut::EXACT).unwrap();
        let found = cut.crystal.lattice();
        for k in 0..3 {
            assert!((found[k][k] - expected[k]).abs() < 1e-9, "{zone:?}: {found:?}");
        }
        assert_eq!(cut.crystal.atoms().len(), atoms, "{zone:?}");
        assert!(
            cut.strain < 1e-9 && cut.crystal.specimen(BeamDirection::MinusZ, [2, 1, 3]).is_ok()
        );
        let along = cross(cut.sides[2], zone.map(|index| index as f64));
        assert!(norm(along) < 1e-9 && dot(cut.sides[2], zone.map(|index| index as f64)) > 0.0);
    }

    #[test]
    fn sides_of_cuts_have_signs() {
        assert_eq!(
            silicon().cut([1, 1, 0], 0.0).unwrap().sides,
            [[0.5, -0.5, 0.0], [0.0, 0.0, -1.0], [0.5, 0.5, 0.0]]
        );
        assert!(
            silicon().cut([0, 0, 0], 0.0).is_err() && silicon().cut([1, 0, 0], f64::NAN).is_err()
        );
        assert!(zone_of_four([1, 1, 1, 0]).is_err());
    }

    // Cut crystals keep neighbours and hands
    /// Distances up to 4 Å from atom `k` to all others of a kind, sorted.
    fn neighbours(crystal: &Crystal, k: usize) -> Vec<(usize, i64)> {
        let lattice = crystal.lattice();
        let mut found = Vec::new();
        for atom in crystal.atoms() {
            for n in 0..343 {
                let cell = [n % 7 - 3, n / 7 % 7 - 3, n / 49 - 3].map(f64::from);
                let distance = norm(minus(
                    plus(atom.position, times(cell, &lattice)),
                    crystal.atoms()[k].position,
                ));
                if distance < 4.0 {
                    found.push((atom.element.number(), (distance * 1e6).round() as i64));
                }
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn cut_crystals_keep_neighbours_and_hands() {
        let silicon = silicon();
        for zone in [[1, 1, 0], [1, 2, 3], [0, 1, 3]] {
            let cut = silicon.cut(zone, 0.0).unwrap().crystal;
            for k in 0..cut.atoms().len().min(4) {
                assert_eq!(neighbours(&cut, k), neighbours(&silicon, 0), "{zone:?}");
            }
        }
        // A carbon with three unlike neighbours on three axes has a hand, and so has the cell with left-handed sides.
        let places = [[0.9, 0.1, 0.05], [1.0, 0.1, 0.05], [0.9, 0.25, 0.05], [0.9, 0.1, 0.25]];
        let mut chiral = crystal([6.0; 3], [90.0; 3], &places);
        for left in [false, true] {
            let mut atoms = chiral.atoms().to_vec();
            for (atom, number) in atoms.iter_mut().zip([6, 1, 3, 4]) {
                atom.element = Element::new(number).unwrap();
            }
            let mut lattice = chiral.lattice();
            lattice[1] = lattice[1].map(|x| if left { -x } else { x });
            chiral = Crystal::new(lattice, atoms).unwrap();
            let cut = chiral.cut([1, 2, 1], 0.0).unwrap().crystal;
            let inside = |atom: &&Atom| atom.element.number() == 6;
            let carbon = cut.atoms().iter().find(inside).unwrap();
            let to = |number: usize, length: f64| {
                let offsets =
                    cut.atoms().iter().filter(|atom| atom.element.number() == number).map(|atom| {
                        let apart =
                            minus(cut.fractional(atom.position), cut.fractional(carbon.position));
                        cut.position(apart.map(|x| x - x.round()))
                    });
                offsets
                    .min_by(|a, b| (norm(*a) - length).abs().total_cmp(&(norm(*b) - length).abs()))
                    .unwrap()
            };
            let hand = determinant(&[to(1, 0.6), to(3, 0.9), to(4, 1.2)]);
            assert!((hand - 0.6 * 0.9 * 1.2).abs() < 1e-9, "{hand}");
        }
    }

    // Oblique crystals are strained or refused
    #[test]
    fn oblique_crystals_are_strained_or_refused() {
        let oblique =
            crystal([4.0, 5.0, 6.0], [90.3, 90.2, 90.4], &[[0.1, 0.2, 0.3], [0.6, 0.3, 0.8]]);
        let refused = oblique.cut([0, 0, 1], Cut::EXACT).unwrap_err().to_string();
        assert!(refused.starts_with("zone_axis = [0, 0, 1]: expected an axis with"), "{refused}");
        let strain: f64 =
            refused.split("strain of ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(strain < 0.008, "{strain}");
        let cut = oblique.cut([0, 0, 1], 0.008).unwrap();
        assert!((cut.strain - (90.4 * DEGREE).cos().abs()).abs() < 1e-12);
        assert_eq!(cut.sides, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
        assert_eq!(cut.crystal.atoms().len(), 2);
        for (k, length) in [4.0, 5.0, 6.0].into_iter().enumerate() {
            assert!((cut.crystal.lattice()[k][k] - length).abs() < 1e-12);
        }
    }

    // Superlattices stay and rounding is merged
    #[test]
    fn superlattices_stay_and_rounding_is_merged() {
        // Two cells along x, whose atoms are moved by u and by −u
        let cut = |u: f64| {
            let half = |atom: &Atom, cell: f64| {
                let [x, y, z] = atom.position.map(|x| x / 5.43);
                [0.5 * (x + cell) + u * (1.0 - 2.0 * cell) / 10.86, y, z]
            };
            let silicon = silicon();
            let both =
                silicon.atoms().iter().flat_map(|atom| [0.0, 1.0].map(|cell| half(atom, cell)));
            let doubled = crystal([10.86, 5.43, 5.43], [90.0; 3], &both.collect::<Vec<_>>());
            doubled.cut([0, 0, 1], Cut::EXACT).unwrap()
        };
        let atoms = |cut: &Cut| cut.crystal.atoms().len();
        let (plain, modulated, rounded) = (cut(0.0), cut(0.0095), cut(2e-5));
        assert_eq!((atoms(&plain), plain.merged), (4, 0));
        assert_eq!((atoms(&modulated), modulated.merged), (16, 0));
        assert_eq!((atoms(&rounded), rounded.merged), (4, 16));
        assert_eq!(cut(1e-4).merged, 0);
    }
}
