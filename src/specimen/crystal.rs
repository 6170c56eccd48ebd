// Tangled from book/src/crystals.md: edit there, or here and run cargo tangle stitch.
//! Crystals: cells with any angles, rotated, repeated and stretched.

// Imports of crystals
use crate::device::refuse_beyond_memory;
use crate::error::{Error, Invalid, accept};
use crate::specimen::atoms::{Atom, Element, Specimen};
use crate::units::DEGREE;
use std::collections::{BTreeMap, HashMap};
use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::OnceLock;

// A crystal with its lattice
/// A crystal: a cell with any angles that repeats in all directions, and the atoms in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Crystal {
    lattice: Matrix3,
    inverse: Matrix3,
    atoms: Vec<Atom>,
}

impl Crystal {
    // The constructor of crystals
    /// The crystal of these atoms, at Cartesian positions \[Å\], in a cell whose sides are the rows of `lattice` \[Å\].
    ///
    /// # Errors
    /// `Invalid` where a side is not a length, where the three lie almost in a plane, or where there is no atom.
    pub fn new(lattice: [[f64; 3]; 3], atoms: Vec<Atom>) -> Result<Self, Invalid> {
        let lengths = lattice.map(norm);
        for side in lengths {
            accept((1e-3..=1e7).contains(&side), "cell", side, "a length between 1e-3 and 1e7 Å")?;
        }
        let flatness = determinant(&lattice).abs() / lengths.iter().product::<f64>();
        accept(flatness > 1e-4, "cell", lattice, "three sides that do not lie in a plane")?;
        accept(!atoms.is_empty(), "atoms", 0, "at least one atom")?;
        Ok(Self { lattice, inverse: inverse(&lattice), atoms })
    }

    // Read what a crystal is made of
    /// The sides of the cell \[Å\], one a row.
    pub fn lattice(&self) -> [[f64; 3]; 3] {
        self.lattice
    }

    /// The atoms, in the order in which they were given.
    pub fn atoms(&self) -> &[Atom] {
        &self.atoms
    }

    /// The volume of the cell \[Å³\].
    pub fn volume(&self) -> f64 {
        determinant(&self.lattice).abs()
    }

    /// A position \[Å\] in units of the sides.
    pub fn fractional(&self, position: [f64; 3]) -> [f64; 3] {
        times(position, &self.inverse)
    }

    /// The position \[Å\] that is `fractional` in units of the sides.
    pub fn position(&self, fractional: [f64; 3]) -> [f64; 3] {
        times(fractional, &self.lattice)
    }
}

// Sides with given lengths and angles
/// The rows of a cell with sides of `lengths` \[Å\] and `angles` α, β, γ \[rad\] between them, [triclinic](https://lenslet.github.io/lenslet/crystals.html#eq-triclinic).
///
/// # Errors
/// `Invalid` where no three sides have such angles.
///
/// ```
/// use lenslet::{specimen::sides, units::DEGREE};
/// let graphite = sides([2.46, 2.46, 6.71], [90.0, 90.0, 120.0].map(|angle: f64| angle * DEGREE))?;
/// assert!((graphite[1][0] + 1.23).abs() < 1e-14);
/// assert!((graphite[1][1] - 2.130).abs() < 1e-3);
/// let volume = graphite[0][0] * graphite[1][1] * graphite[2][2];
/// assert!((volume - 35.17).abs() < 0.01); // Å³
/// # Ok::<(), lenslet::Invalid>(())
/// ```
pub fn sides(lengths: [f64; 3], angles: [f64; 3]) -> Result<[[f64; 3]; 3], Invalid> {
    let right = |angle: f64| (angle - FRAC_PI_2).abs() < 1e-12;
    let [alpha, beta, gamma] = angles.map(|angle| if right(angle) { 0.0 } else { angle.cos() });
    let squares = alpha * alpha + beta * beta + gamma * gamma;
    let volume = 1.0 - squares + 2.0 * alpha * beta * gamma;
    let good = volume > 1e-8 && angles.iter().all(|angle| (0.0..PI).contains(angle));
    let degrees = angles.map(|angle| angle / DEGREE);
    accept(good, "angles", degrees, "three angles in degrees that sides in space can have")?;
    let [a, b, c] = lengths;
    let sine = (1.0 - gamma * gamma).sqrt();
    let last = [beta, (alpha - beta * gamma) / sine, volume.sqrt() / sine];
    Ok([[a, 0.0, 0.0], [b * gamma, b * sine, 0.0], last.map(|x| c * x)])
}

// A crystal with other lengths
impl Crystal {
    /// The crystal stretched until its sides have these lengths \[Å\]; angles and the atoms' positions in units of the sides are kept.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_lengths(&self, lengths: [f64; 3]) -> Result<Self, Invalid> {
        let mut lattice = self.lattice;
        for (side, length) in lattice.iter_mut().zip(lengths) {
            let factor = length / norm(*side);
            *side = side.map(|x| factor * x);
        }
        let moved = |atom: &Atom| Atom {
            position: times(self.fractional(atom.position), &lattice),
            ..*atom
        };
        Self::new(lattice, self.atoms.iter().map(moved).collect())
    }
}

// Directions of the beam by name
/// Direction of the electron beam, along an axis of the crystal's cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BeamDirection {
    /// Along +x.
    PlusX,
    /// Along −x.
    MinusX,
    /// Along +y.
    PlusY,
    /// Along −y.
    MinusY,
    /// Along +z.
    PlusZ,
    /// Along −z: the beam enters at high z.
    #[default]
    MinusZ,
}

impl BeamDirection {
    /// All directions, by their names in a sample file.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("+x", Self::PlusX),
        ("-x", Self::MinusX),
        ("+y", Self::PlusY),
        ("-y", Self::MinusY),
        ("+z", Self::PlusZ),
        ("-z", Self::MinusZ),
    ];

    /// The axis that becomes the third, and whether the beam points towards its positive end.
    fn axis(self) -> (usize, bool) {
        match self {
            Self::PlusX => (0, true),
            Self::MinusX => (0, false),
            Self::PlusY => (1, true),
            Self::MinusY => (1, false),
            Self::PlusZ => (2, true),
            Self::MinusZ => (2, false),
        }
    }
}

// A specimen that is tiled on demand
/// A rotated cell that is repeated along its sides when its atoms are needed.
#[derive(Debug, Clone)]
pub struct TiledSpecimen {
    cell: [f64; 3],
    tile: [usize; 3],
    /// Atoms of one cell.
    atoms: Vec<Atom>,
    whole: OnceLock<Specimen>,
}

// A specimen from a crystal
impl Crystal {
    /// The specimen of `tile` cells along its x, y and z, for a beam along `beam` of the crystal's cell, with all its atoms.
    ///
    /// # Errors
    /// As [`tiled`](Self::tiled), and `Invalid` for more atoms than the available memory holds.
    pub fn specimen(&self, beam: BeamDirection, tile: [usize; 3]) -> Result<Specimen, Invalid> {
        let tiled = self.tiled(beam, tile)?;
        let refused = |error: Error| {
            Invalid::new("tile", format!("{tile:?}"), format!("a smaller specimen: {error}"))
        };
        refuse_beyond_memory(tiled.bytes(), || "the specimen".into()).map_err(refused)?;
        Ok(tiled.with_all_atoms())
    }

    // A specimen that repeats later
    /// The specimen of `tile` cells along its x, y and z, for electrons along `beam`; its atoms are made when they are needed.
    ///
    /// # Errors
    /// `Invalid` where the cell has no right angles (then [`cut`](Self::cut) finds one that has), for a tile of 0, for more than 2³¹ atoms, and as [`Specimen::new`].
    pub fn tiled(&self, beam: BeamDirection, tile: [usize; 3]) -> Result<TiledSpecimen, Invalid> {
        // Reject cells and tiles of a specimen
        let expected =
            "sides at right angles to each other, or a zone_axis to cut such a cell along";
        accept(skewness(&self.lattice) < 1e-6, "cell", self.lattice, expected)?;
        for copies in tile {
            let expected = "a number from 1 to a million";
            accept((1..=1_000_000).contains(&copies), "tile", copies, expected)?;
        }
        let count =
            tile.iter().fold(self.atoms.len() as f64, |count, &copies| count * copies as f64);
        accept(count < 2f64.powi(31), "tile", tile, "at most 2³¹ atoms in all")?;
        let (cell, atoms) = self.turned(beam);
        Specimen::new(cell, atoms.clone())?;
        for (side, copies) in cell.into_iter().zip(tile) {
            let expected = "a specimen whose sides are at most 1e7 Å";
            accept(side * copies as f64 <= 1e7, "tile", copies, expected)?;
        }
        Ok(TiledSpecimen { cell, tile, atoms, whole: OnceLock::new() })
    }

    // Turn the cell to the direction of the beam
    /// The sides of the rotated cell \[Å\], and its atoms.
    fn turned(&self, beam: BeamDirection) -> ([f64; 3], Vec<Atom>) {
        let lengths = self.lattice.map(norm);
        let (third, towards_positive) = beam.axis();
        let order = [third + 1, third + 2, third].map(|axis| axis % 3);
        let upright = (0..3).all(|k| self.lattice[k][k] == lengths[k]);
        let left = determinant(&self.lattice) < 0.0;
        let turn = |atom: &Atom| {
            let fractional = self.fractional(atom.position);
            let mut place = [0, 1, 2].map(|k| fractional[k] * lengths[k]);
            place = if upright { atom.position } else { place };
            place[2] = if left { lengths[2] - place[2] } else { place[2] };
            let flip = |k: usize| towards_positive && k > 0;
            let turned = |k: usize| {
                if flip(k) { lengths[order[k]] - place[order[k]] } else { place[order[k]] }
            };
            Atom { position: [0, 1, 2].map(turned), ..*atom }
        };
        (order.map(|axis| lengths[axis]), self.atoms.iter().map(turn).collect())
    }
}

// Make the atoms of a tiled specimen
impl TiledSpecimen {
    /// The specimen with all its atoms, made at the first call.
    pub fn specimen(&self) -> &Specimen {
        self.whole.get_or_init(|| self.with_all_atoms())
    }

    /// Makes the specimen with all its atoms.
    fn with_all_atoms(&self) -> Specimen {
        let (cell, tile) = (self.cell, self.tile);
        let mut copies = Vec::with_capacity(self.count());
        for z in 0..tile[2] {
            for y in 0..tile[1] {
                for x in 0..tile[0] {
                    let shift = [x as f64 * cell[0], y as f64 * cell[1], z as f64 * cell[2]];
                    let moved = |a: &Atom| Atom { position: plus(a.position, shift), ..*a };
                    copies.extend(self.atoms.iter().map(moved));
                }
            }
        }
        Specimen::checked(self.cell(), copies)
    }

    // Numbers of a tiled specimen
    /// Whether the atoms have been made.
    pub fn is_made(&self) -> bool {
        self.whole.get().is_some()
    }

    /// Sides of the whole \[Å\]: x, y, z.
    pub fn cell(&self) -> [f64; 3] {
        [0, 1, 2].map(|axis| self.cell[axis] * self.tile[axis] as f64)
    }

    /// The atoms of one cell.
    pub fn atoms_of_cell(&self) -> &[Atom] {
        &self.atoms
    }

    /// The number of atoms.
    pub fn count(&self) -> usize {
        self.atoms.len() * self.tile.iter().product::<usize>()
    }

    /// Bytes that all atoms occupy.
    pub fn bytes(&self) -> u64 {
        (self.count() as u64).saturating_mul(size_of::<Atom>() as u64)
    }

    /// The atoms of each element, each counted by its occupancy.
    pub fn composition(&self) -> BTreeMap<Element, f64> {
        let (cells, mut counts) = (self.tile.iter().product::<usize>() as f64, BTreeMap::new());
        for atom in &self.atoms {
            *counts.entry(atom.element).or_insert(0.0) += cells * atom.occupancy;
        }
        counts
    }
}

// A specimen as a tiled one
impl From<Specimen> for TiledSpecimen {
    /// The specimen as one cell.
    fn from(specimen: Specimen) -> Self {
        let (cell, atoms) = (specimen.cell(), specimen.atoms().to_vec());
        Self { cell, tile: [1; 3], atoms, whole: specimen.into() }
    }
}

// Columns of atoms along the beam
/// Atoms of one element behind each other along the beam.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtomColumn {
    /// Their element.
    pub element: Element,
    /// Their position across the beam \[Å\].
    pub place: [f64; 2],
    /// How many they are, each counted by its occupancy.
    pub atoms: f64,
}

// Gather atoms into columns
impl Specimen {
    /// The columns of atoms along the beam, sorted by element and place; atoms within 1e-3 Å of each other across the beam make a column.
    pub fn columns(&self) -> Vec<AtomColumn> {
        let mut columns: BTreeMap<(Element, [i64; 2]), AtomColumn> = BTreeMap::new();
        for atom in self.atoms() {
            let [x, y, _] = atom.position;
            let cell = [0, 1].map(|axis| (self.cell()[axis] * 1e3).round().max(1.0) as i64);
            let key = [(x, cell[0]), (y, cell[1])]
                .map(|(at, side)| ((at * 1e3).round() as i64).rem_euclid(side));
            let new = AtomColumn { element: atom.element, place: [x, y], atoms: 0.0 };
            columns.entry((atom.element, key)).or_insert(new).atoms += atom.occupancy;
        }
        columns.into_values().collect()
    }
}

// Two atoms that are close
/// Two atoms of a crystal, by their numbers, the smaller first, and the distance of their nearest images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClosePair {
    /// Numbers of the atoms, from 0.
    pub atoms: [usize; 2],
    /// Their distance \[Å\].
    pub distance: f64,
}

// Bins of a cell
/// Atoms of a crystal sorted into bins, for a search of pairs closer than `limit` \[Å\].
struct CellBins<'a> {
    crystal: &'a Crystal,
    periodic: [bool; 3],
    limit: f64,
    /// Bins along each side, and the share of a bin that the limit is.
    counts: [f64; 3],
    reach: [f64; 3],
    /// Positions in units of the sides, and the atoms of each bin.
    places: Vec<[f64; 3]>,
    bins: HashMap<[i64; 3], Vec<usize>>,
}

impl<'a> CellBins<'a> {
    // Sort atoms into bins
    fn new(crystal: &'a Crystal, periodic: [bool; 3], limit: f64) -> Self {
        let dual = crystal.inverse;
        let heights = [0, 1, 2].map(|k| 1.0 / norm([dual[0][k], dual[1][k], dual[2][k]]));
        let counts = heights.map(|height| (height / (5.0 * limit)).floor().max(1.0));
        let reach = [0, 1, 2].map(|k| (limit * counts[k] / heights[k]).min(1.0));
        let home = |atom: &Atom| {
            let place = crystal.fractional(atom.position);
            let inside = |k: usize| place[k] - if periodic[k] { place[k].floor() } else { 0.0 };
            [0, 1, 2].map(inside)
        };
        let places = crystal.atoms.iter().map(home).collect();
        let bins = HashMap::new();
        let mut sorted = Self { crystal, periodic, limit, counts, reach, places, bins };
        for (k, atom) in crystal.atoms.iter().enumerate() {
            if atom.occupancy > 0.0 {
                sorted.bins.entry(sorted.bin(k)).or_default().push(k);
            }
        }
        sorted
    }

    // The bin of an atom
    /// The bin of atom `k`.
    fn bin(&self, k: usize) -> [i64; 3] {
        [0, 1, 2].map(|axis| {
            let bin = (self.places[k][axis] * self.counts[axis]).floor();
            (if self.periodic[axis] { bin.min(self.counts[axis] - 1.0) } else { bin }) as i64
        })
    }

    // Pairs of an atom in bins
    /// Calls `pair` for each atom from `k` on that is closer to it than the limit, with the distance \[Å\].
    fn pairs_of(&self, k: usize, pair: &mut dyn FnMut(usize, f64)) {
        let (bin, place) = (self.bin(k), self.places[k]);
        let steps = |axis: usize| {
            let within = place[axis] * self.counts[axis] - bin[axis] as f64;
            let (down, up) = (within <= self.reach[axis], within >= 1.0 - self.reach[axis]);
            -i64::from(down)..=i64::from(up)
        };
        for x in steps(0) {
            for y in steps(1) {
                for z in steps(2) {
                    let (mut there, mut shift) = (bin, [0.0; 3]);
                    for (axis, step) in [x, y, z].into_iter().enumerate() {
                        let (to, count) = (bin[axis] + step, self.counts[axis] as i64);
                        let around = if self.periodic[axis] { to.div_euclid(count) } else { 0 };
                        there[axis] = to - around * count;
                        shift[axis] = around as f64;
                    }
                    // Measure pairs with one bin
                    for &j in self.bins.get(&there).map_or(&[][..], Vec::as_slice) {
                        let apart = plus(minus(self.places[j], place), shift);
                        let distance = norm(self.crystal.position(apart));
                        let itself = j == k && (x, y, z) <= (0, 0, 0);
                        if j >= k && !itself && distance < self.limit {
                            pair(j, distance);
                        }
                    }
                }
            }
        }
    }
}

// How close atoms may be
/// Atoms closer than this share a position \[Å\].
pub(crate) const SHARED: f64 = 0.05;
/// Atoms closer than this are suspect \[Å\].
pub const SUSPECT: f64 = 0.3;
/// Atoms in a bin of five limits, and suspect pairs, beyond which the search ends.
const CROWD: usize = 2000;

impl Crystal {
    /// The first atom whose position is shared by occupancies that sum to more than 1.02, the last that shares it, and the sum; images along
    /// `periodic` sides included.
    pub fn overfull(&self, periodic: [bool; 3]) -> Option<(ClosePair, f64)> {
        let bins = CellBins::new(self, periodic, SHARED);
        let mut sums: Vec<f64> = self.atoms.iter().map(|atom| atom.occupancy).collect();
        let mut last: Vec<Option<ClosePair>> = vec![None; sums.len()];
        // Reject a crowd of atoms
        let crowd = bins.bins.values().find(|bin| bin.len() > CROWD);
        if let Some(&[first, second, ..]) = crowd.map(Vec::as_slice) {
            let distance = norm(minus(self.atoms[second].position, self.atoms[first].position));
            return Some((ClosePair { atoms: [first, second], distance }, f64::INFINITY));
        }
        // Sum occupancies at shared positions
        for k in 0..sums.len() {
            if self.atoms[k].occupancy == 0.0 {
                continue;
            }
            bins.pairs_of(k, &mut |j, distance| {
                let pair = Some(ClosePair { atoms: [k, j], distance });
                sums[k] += self.atoms[j].occupancy;
                last[k] = pair;
                if j != k {
                    sums[j] += self.atoms[k].occupancy;
                    last[j] = last[j].or(pair);
                }
            });
            if let (true, Some(pair)) = (sums[k] > 1.02, last[k]) {
                return Some((pair, sums[k]));
            }
        }
        None
    }

    // Suspect pairs of a crystal
    /// The closest of all pairs closer than 0.3 Å that do not share a position, and how many there are, counted up to a few thousand;
    /// images along `periodic` sides included.
    pub fn suspect_pairs(&self, periodic: [bool; 3]) -> Option<(ClosePair, usize)> {
        let bins = CellBins::new(self, periodic, SUSPECT);
        let (mut closest, mut count): (Option<ClosePair>, usize) = (None, 0);
        for k in 0..self.atoms.len() {
            if self.atoms[k].occupancy == 0.0 {
                continue;
            }
            bins.pairs_of(k, &mut |j, distance| {
                let shared = self.atoms[j].occupancy + self.atoms[k].occupancy <= 1.02;
                if distance < SHARED && shared {
                    return;
                }
                count += 1;
                if closest.is_none_or(|pair| distance < pair.distance) {
                    closest = Some(ClosePair { atoms: [k, j], distance });
                }
            });
            if count > CROWD {
                break;
            }
        }
        closest.map(|pair| (pair, count))
    }
}

// Rows and their products
/// Three rows.
pub(crate) type Matrix3 = [[f64; 3]; 3];

/// The sum of two rows.
pub(crate) fn plus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// The difference of two rows.
pub(crate) fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// The inner product of two rows.
pub(crate) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The length of a row.
pub(crate) fn norm(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

/// The row at right angles to two others, with the area between them as its length.
pub(crate) fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// A row times a matrix.
pub(crate) fn times(row: [f64; 3], matrix: &Matrix3) -> [f64; 3] {
    [0, 1, 2].map(|k| row[0] * matrix[0][k] + row[1] * matrix[1][k] + row[2] * matrix[2][k])
}

/// The volume between three rows, negative where they are left-handed.
pub(crate) fn determinant(rows: &Matrix3) -> f64 {
    dot(rows[0], cross(rows[1], rows[2]))
}

/// The matrix that undoes another.
pub(crate) fn inverse(rows: &Matrix3) -> Matrix3 {
    let volume = determinant(rows);
    let columns = [cross(rows[1], rows[2]), cross(rows[2], rows[0]), cross(rows[0], rows[1])];
    [0, 1, 2].map(|k| [columns[0][k] / volume, columns[1][k] / volume, columns[2][k] / volume])
}

/// The largest cosine between two of three rows: 0 where all angles are right.
pub(crate) fn skewness(rows: &Matrix3) -> f64 {
    let cosine = |j: usize, k: usize| (dot(rows[j], rows[k]) / norm(rows[j]) / norm(rows[k])).abs();
    cosine(0, 1).max(cosine(1, 2)).max(cosine(2, 0))
}

// Tests of crystals
#[cfg(test)]
mod tests {
    use super::*;

    fn atom(number: usize, position: [f64; 3]) -> Atom {
        Atom { element: Element::new(number).unwrap(), position, occupancy: 1.0, displacement: 0.0 }
    }

    /// A carbon with a hydrogen, a lithium and a beryllium on the three axes about it.
    fn lopsided() -> Vec<Atom> {
        let places = [[1.0, 2.0, 3.0], [1.5, 2.0, 3.0], [1.0, 2.7, 3.0], [1.0, 2.0, 3.9]];
        [6, 1, 3, 4].into_iter().zip(places).map(|(number, place)| atom(number, place)).collect()
    }

    fn hand(atoms: &[Atom]) -> f64 {
        let [a, b, c] = [1, 2, 3].map(|k| minus(atoms[k].position, atoms[0].position));
        determinant(&[a, b, c])
    }

    // Turned cells keep their hand
    #[test]
    fn turned_cells_keep_their_hand() {
        let lattice = [[4.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 6.0]];
        let right = Crystal::new(lattice, lopsided()).unwrap();
        let left_sides = [lattice[0], lattice[1], [0.0, 0.0, -6.0]];
        let below: Vec<Atom> = lopsided()
            .iter()
            .map(|atom| Atom { position: minus(atom.position, [0.0, 0.0, 6.0]), ..*atom })
            .collect();
        let left = Crystal::new(left_sides, below).unwrap();
        for crystal in [right, left] {
            for (name, beam) in BeamDirection::NAMES {
                let specimen = crystal.specimen(beam, [1, 1, 1]).unwrap();
                let found = hand(specimen.atoms());
                assert!((found - 0.5 * 0.7 * 0.9).abs() < 1e-12, "{name}: {found}");
                let length = |k: usize| {
                    norm(minus(specimen.atoms()[k].position, specimen.atoms()[0].position))
                };
                let lengths = [1, 2, 3].map(length);
                assert!((0..3).all(|k| (lengths[k] - [0.5, 0.7, 0.9][k]).abs() < 1e-12));
            }
        }
    }

    // The axes of turned cells
    #[test]
    fn electrons_meet_first_what_they_should() {
        let lattice = [[4.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 6.0]];
        let crystal = Crystal::new(lattice, lopsided()).unwrap();
        // Along the beam: the outlying atom of this axis is met before (+) or after (−) the carbon by so much.
        let cases = [
            (1, 0.5, BeamDirection::MinusX),
            (2, 0.7, BeamDirection::MinusY),
            (3, 0.9, BeamDirection::MinusZ),
        ];
        for (k, lead, beam) in cases {
            let atoms = crystal.specimen(beam, [1; 3]).unwrap().atoms().to_vec();
            assert!((atoms[k].position[2] - atoms[0].position[2] - lead).abs() < 1e-12);
        }
        for (k, lead, beam) in [
            (1, 0.5, BeamDirection::PlusX),
            (2, 0.7, BeamDirection::PlusY),
            (3, 0.9, BeamDirection::PlusZ),
        ] {
            let atoms = crystal.specimen(beam, [1; 3]).unwrap().atoms().to_vec();
            assert!((atoms[k].position[2] - atoms[0].position[2] + lead).abs() < 1e-12);
        }
        let turned = crystal.specimen(BeamDirection::PlusX, [1; 3]).unwrap();
        assert_eq!(turned.cell(), [5.0, 6.0, 4.0]);
        assert_eq!(turned.atoms()[0].position, [2.0, 3.0, 3.0]);
    }

    // Cells with any angles
    #[test]
    fn sides_have_the_angles_that_were_asked_for() {
        let (lengths, angles) =
            ([3.0, 4.0, 5.0], [80.0, 95.0, 110.0].map(|angle: f64| angle * DEGREE));
        let cell = sides(lengths, angles).unwrap();
        let found = [(1, 2), (2, 0), (0, 1)]
            .map(|(j, k)| (dot(cell[j], cell[k]) / lengths[j] / lengths[k]).acos());
        for k in 0..3 {
            assert!(
                (found[k] - angles[k]).abs() < 1e-14 && (norm(cell[k]) - lengths[k]).abs() < 1e-14
            );
        }
        assert!(determinant(&cell) > 0.0);
        for bad in
            [[10.0, 10.0, 100.0], [0.0, 90.0, 90.0], [90.0, 90.0, 180.0], [f64::NAN, 90.0, 90.0]]
        {
            assert!(sides(lengths, bad.map(|angle| angle * DEGREE)).is_err(), "{bad:?}");
        }
        let crystal = Crystal::new(cell, lopsided()).unwrap();
        let back = crystal.position(crystal.fractional([0.3, -2.0, 7.0]));
        assert!(norm(minus(back, [0.3, -2.0, 7.0])) < 1e-14);
        let refused = crystal.specimen(BeamDirection::MinusZ, [1; 3]).unwrap_err();
        assert!(refused.expected.contains("zone_axis"), "{refused}");
        let flat = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1e-6]];
        assert!(Crystal::new(flat, lopsided()).is_err());
        assert!(Crystal::new([[f64::NAN; 3]; 3], lopsided()).is_err());
    }

    // Cells that repeat and stretch
    #[test]
    fn cells_repeat_and_stretch() {
        let lattice = [[4.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 6.0]];
        let crystal = Crystal::new(lattice, lopsided()).unwrap();
        let specimen = crystal.specimen(BeamDirection::MinusZ, [2, 3, 4]).unwrap();
        assert_eq!(specimen.cell(), [8.0, 15.0, 24.0]);
        assert_eq!(specimen.atoms().len(), 4 * 24);
        assert_eq!(specimen.atoms()[4 * (1 + 2 * (2 + 3 * 3))].position, [5.0, 12.0, 21.0]);
        let columns = specimen.columns();
        assert_eq!(
            (columns.len(), columns.iter().map(|column| column.atoms).sum::<f64>()),
            (24, 96.0)
        );
        let stretched = crystal.with_lengths([8.0, 5.0, 3.0]).unwrap();
        assert_eq!(stretched.atoms()[0].position, [2.0, 2.0, 1.5]);
        assert!(crystal.with_lengths([0.0, 5.0, 3.0]).is_err());
        assert!(
            crystal
                .specimen(BeamDirection::MinusZ, [1, 0, 1])
                .unwrap_err()
                .to_string()
                .starts_with("tile = 0")
        );
        assert!(crystal.specimen(BeamDirection::MinusZ, [1_000_000; 3]).is_err());
        assert!(Crystal::new(lattice, vec![]).is_err());
        // Numbers of a tiled specimen are those of its atoms, which are made on demand
        let tiled = crystal.tiled(BeamDirection::PlusX, [2, 3, 4]).unwrap();
        let carbon = tiled.composition()[&Element::new(6).unwrap()];
        assert_eq!((tiled.cell(), tiled.count(), carbon), ([10.0, 18.0, 16.0], 96, 24.0));
        assert!(!tiled.is_made());
        assert_eq!(*tiled.specimen(), crystal.specimen(BeamDirection::PlusX, [2, 3, 4]).unwrap());
        // 10⁹ atoms are counted without being made, and refused where they are not to be had
        assert_eq!(
            crystal.tiled(BeamDirection::MinusZ, [500, 500, 1000]).unwrap().count(),
            1_000_000_000
        );
        assert!(crystal.tiled(BeamDirection::MinusZ, [1, 1, 1_000_000]).is_ok());
        assert!(crystal.tiled(BeamDirection::MinusZ, [1_000_000; 3]).is_err());
    }

    // Pairs of atoms that are close
    /// All pairs of a crystal closer than a limit, found by comparing all images of all atoms.
    fn all_pairs(crystal: &Crystal, limit: f64, periodic: [bool; 3]) -> Vec<(usize, usize, i64)> {
        let (mut found, atoms) = (Vec::new(), crystal.atoms());
        let steps = |axis: usize| if periodic[axis] { -2..=2 } else { 0..=0 };
        for k in 0..atoms.len() {
            for j in k..atoms.len() {
                for x in steps(0) {
                    for (y, z) in steps(1).flat_map(|y| steps(2).map(move |z| (y, z))) {
                        let image =
                            plus(atoms[j].position, crystal.position([x, y, z].map(f64::from)));
                        let distance = norm(minus(image, atoms[k].position));
                        if distance < limit && (j > k || (x, y, z) > (0, 0, 0)) {
                            found.push((k, j, (distance * 1e9).round() as i64));
                        }
                    }
                }
            }
        }
        found.sort_unstable();
        found
    }

    // Compare bins with all images
    #[test]
    fn bins_find_all_close_pairs_and_their_images() {
        use rand::{RngExt, SeedableRng, rngs::StdRng};
        let mut random = StdRng::seed_from_u64(4);
        let angles = [70.0, 100.0, 115.0].map(|angle: f64| angle * DEGREE);
        for (lengths, count) in
            [([3.0, 2.2, 4.1], 60), ([0.9, 7.0, 0.6], 20), ([9.0, 9.0, 0.7], 150)]
        {
            let lattice = sides(lengths, angles).unwrap();
            let atoms: Vec<Atom> = (0..count)
                .map(|_| {
                    let place = [(); 3].map(|()| 1.6 * random.random::<f64>() - 0.3);
                    atom(6, times(place, &lattice))
                })
                .collect();
            let crystal = Crystal::new(lattice, atoms.clone()).unwrap();
            for periodic in [[true; 3], [true, false, true]] {
                let bins = CellBins::new(&crystal, periodic, 0.3);
                let mut found = Vec::new();
                for k in 0..count {
                    bins.pairs_of(k, &mut |j, apart| {
                        found.push((k, j, (apart * 1e9).round() as i64))
                    });
                }
                found.sort_unstable();
                // Places beyond a face are brought home first
                let home = |atom: &Atom| {
                    let place = crystal.fractional(atom.position);
                    let home =
                        |k: usize| place[k] - if periodic[k] { place[k].floor() } else { 0.0 };
                    Atom { position: crystal.position([0, 1, 2].map(home)), ..*atom }
                };
                let home = Crystal::new(lattice, atoms.iter().map(home).collect()).unwrap();
                let expected = all_pairs(&home, 0.3, periodic);
                assert!(expected.len() > 3 && found == expected, "{found:?} {expected:?}");
            }
        }
    }

    // Time the search of close pairs
    #[test]
    fn many_atoms_in_a_plane_are_searched_in_time() {
        let count = 300;
        let place = |k: usize| [(k % count) as f64, (k / count) as f64, 0.0];
        let plane: Vec<Atom> = (0..count * count).map(|k| atom(6, place(k))).collect();
        let side = count as f64;
        let lattice = [[side, 0.0, 0.0], [0.0, side, 0.0], [0.0, 0.0, 5.0]];
        let begun = std::time::Instant::now();
        let crystal = Crystal::new(lattice, plane).unwrap();
        assert_eq!(crystal.overfull([true; 3]), None);
        assert_eq!(crystal.suspect_pairs([true; 3]), None);
        // Zero occupancy is no atom, and a crowd of traces is refused at once
        let trace =
            |share| (0..90_000).map(move |_| Atom { occupancy: share, ..atom(6, [1.0; 3]) });
        let nothing = Crystal::new(lattice, trace(0.0).collect()).unwrap();
        assert_eq!((nothing.overfull([true; 3]), nothing.suspect_pairs([true; 3])), (None, None));
        let crowd = Crystal::new(lattice, trace(1e-9).collect()).unwrap();
        assert!(crowd.overfull([true; 3]).is_some());
        assert!(begun.elapsed().as_secs_f64() < 25.0, "{:?}", begun.elapsed());
    }
}
