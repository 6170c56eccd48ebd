// Tangled from book/src/potential-slices.md: edit there, or here and run cargo tangle stitch.
//! Potentials of slices on the samples of a wave.

// Imports of potentials
use self::lookup::Lookup;
use self::sampled::Sampled;
use self::sites::{Site, by_slice, sites};
use self::waves::{Projected, Sliced};
use crate::electrons::wave_grid::WaveGrid;
use crate::error::{Invalid, accept, positive};
use crate::specimen::{Element, Factors, Phonons, Slicing, Specimen, TiledSpecimen};
use ndarray::{Array2, Array3, Axis};
use rayon::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

mod lookup;
mod sampled;
mod sites;
mod waves;

// Models of a slice's potential
/// Model by which the potential of a slice is computed from its atoms.
///
/// ```
/// use lenslet::electrons::{Potential, PotentialModel, PotentialOptions, WaveGrid};
/// use lenslet::specimen::{BeamDirection, Crystal, Slicing};
/// # let silicon = "silicon\n5.43 5.43 5.43\n14 0 0 0 1 0\n14 2.715 2.715 0 1 0\n14 2.715 0 2.715 1 0\n14 0 2.715 2.715 1 0\n14 1.3575 1.3575 1.3575 1 0\n14 4.0725 4.0725 1.3575 1 0\n14 4.0725 1.3575 4.0725 1 0\n14 1.3575 4.0725 4.0725 1 0\n-1\n";
/// let cell = Crystal::from_text(silicon, "silicon.xyz", None)?.specimen(BeamDirection::MinusZ, [1; 3])?;
/// let (grid, slices) = (WaveGrid::new([64; 2], [5.43; 2])?, Slicing::new(5.43, 1.3575)?);
/// let mean = |model| -> Result<f64, lenslet::Invalid> {
///     let options = PotentialOptions::default().model(model);
///     Ok(Potential::new(&cell, grid, slices, options)?.slices().sum() / (64.0 * 64.0 * 5.43))
/// };
/// assert!((mean(PotentialModel::Projected)? - 13.91).abs() < 0.01); // V
/// assert!((mean(PotentialModel::Lookup)? - 13.69).abs() < 0.01);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PotentialModel {
    /// A patch of pixels for each element, added at the pixel nearest to each atom.
    Lookup,
    /// Each atom at its exact position, and all of it in its slice.
    #[default]
    Projected,
    /// Each atom at its exact position; each slice contains the part of it between its faces.
    Sliced,
    /// Samples of each element's potential on planes between bounds, shifted to each atom, as in Prismatic's three-dimensional potential.
    Sampled,
}

// A potential that is made by the slice
/// The potential of a specimen on the samples of a wave, computed slice by slice on request.
pub struct Potential {
    grid: WaveGrid,
    slicing: Slicing,
    form: PotentialForm,
    /// For each slice, the first with the same atoms.
    alike: Vec<usize>,
}

/// What each model prepares.
enum PotentialForm {
    Lookup(Lookup),
    Projected(Projected),
    Sliced(Sliced),
    Sampled(Sampled),
}

// How potentials are made
/// How potentials are made.
///
/// By default each atom is at its exact position, entirely in one slice, and scatters with Kirkland's factors.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct PotentialOptions {
    /// How the potential of a slice is made out of atoms.
    pub model: PotentialModel,
    /// Whose scattering factors are taken.
    pub factors: Factors,
    /// How far an atom reaches in the lookup and the sampled model \[Å\]; the others have no such end.
    pub bound: f64,
    /// Planes in a slice on which the sampled model samples an atom.
    pub planes: usize,
}

impl Default for PotentialOptions {
    fn default() -> Self {
        let (model, factors) = (PotentialModel::default(), Factors::default());
        Self { model, factors, bound: 3.0, planes: 16 }
    }
}

// Options of a potential one by one
impl PotentialOptions {
    /// Sets how the potential of a slice is made out of atoms.
    pub fn model(self, model: PotentialModel) -> Self {
        Self { model, ..self }
    }

    /// Sets whose scattering factors are taken.
    pub fn factors(self, factors: Factors) -> Self {
        Self { factors, ..self }
    }

    /// Sets how far an atom reaches in the lookup and the sampled model \[Å\].
    pub fn bound(self, bound: f64) -> Self {
        Self { bound, ..self }
    }

    /// Sets the planes in a slice on which the sampled model samples an atom.
    pub fn planes(self, planes: usize) -> Self {
        Self { planes, ..self }
    }
}

// Prepare the potential of a specimen
impl Potential {
    /// The potential of `specimen` on `grid`, cut by `slicing`.
    ///
    /// # Errors
    /// `Invalid` where the grid's sides are not those of the specimen's cell or the slices not as high as it, where the table lacks an element, and for a bound that is not positive or, for
    /// lookup, not more than a pixel and at most 4096 of them; for the sampled model for no planes, or so many samples that they exceed 1 GiB.
    ///
    /// ```
    /// use lenslet::electrons::{Potential, PotentialOptions, WaveGrid};
    /// use lenslet::specimen::{Atom, Element, Factors, Slicing, Specimen, VOLTS};
    /// let gold = Atom { element: Element::new(79)?, position: [1.0, 2.0, 3.0], occupancy: 1.0, displacement: 0.0 };
    /// let specimen = Specimen::new([4.0, 5.0, 6.0], vec![gold])?;
    /// let (grid, slices) = (WaveGrid::new([32, 40], [4.0, 5.0])?, Slicing::new(6.0, 2.0)?);
    /// let potential = Potential::new(&specimen, grid, slices, PotentialOptions::default())?;
    /// let mean = potential.slice(1).sum() / (32.0 * 40.0); // V Å
    /// assert!((mean * 4.0 * 5.0 / VOLTS - Factors::Kirkland.of(gold.element)?.at(0.0)).abs() < 1e-9);
    /// assert_eq!(potential.slice(0).sum(), 0.0);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(
        specimen: &Specimen,
        grid: WaveGrid,
        slicing: Slicing,
        options: PotentialOptions,
    ) -> Result<Self, Invalid> {
        // Elements and sites of a specimen
        let PotentialOptions { model, factors, bound, planes } = options;
        let bound = positive("bound", bound)?;
        check_sides(specimen.cell(), &grid, &slicing)?;
        let elements: BTreeSet<Element> = specimen.atoms().iter().map(|a| a.element).collect();
        let elements: Vec<Element> = elements.into_iter().collect();
        let kinds = elements.iter().map(|&e| factors.of(e)).collect::<Result<Vec<_>, _>>()?;
        let sites = sites(specimen, &elements);
        // Prepare the model of a potential
        if model == PotentialModel::Sliced {
            let form = PotentialForm::Sliced(Sliced::new(grid, kinds, &slicing, sites));
            return Ok(Self { grid, slicing, form, alike: (0..slicing.count()).collect() });
        }
        if model == PotentialModel::Sampled {
            let sampled = Sampled::new(grid, &kinds, &slicing, &sites, [bound, planes as f64])?;
            let alike = first_alike(sampled.contents());
            return Ok(Self { grid, slicing, form: PotentialForm::Sampled(sampled), alike });
        }
        let slices = by_slice(&slicing, sites);
        let alike = first_alike(slices.iter().map(|sites| atoms_of_slice(sites)));
        let form = match model {
            PotentialModel::Lookup => {
                PotentialForm::Lookup(Lookup::new(&grid, &kinds, slices, bound)?)
            }
            _ => PotentialForm::Projected(Projected::new(grid, &kinds, slices)),
        };
        Ok(Self { grid, slicing, form, alike })
    }
}

// Check the sides of a potential
/// Refuses a grid or slices that are not those of the specimen's cell.
fn check_sides([x, y, z]: [f64; 3], grid: &WaveGrid, slicing: &Slicing) -> Result<(), Invalid> {
    let [along_x, along_y] = grid.lengths();
    let sides = [("grid", along_x, x), ("grid", along_y, y), ("slices", slicing.height(), z)];
    for (quantity, side, cell) in sides {
        let good = (side - cell).abs() <= 1e-9 * cell;
        accept(good, quantity, side, &format!("the side of the specimen's cell, {cell} Å"))?;
    }
    Ok(())
}

// Slices that are alike
/// For each slice, the first with the same contents.
fn first_alike<C: Hash + Eq>(contents: impl Iterator<Item = C>) -> Vec<usize> {
    let mut first_of = HashMap::new();
    contents.enumerate().map(|(k, content)| *first_of.entry(content).or_insert(k)).collect()
}

/// The atoms of a slice: element, place across the beam and weight of each, in bits.
fn atoms_of_slice(sites: &[Site]) -> Vec<[u64; 4]> {
    let bits = |site: &Site| {
        let [x, y, _] = site.place.map(f64::to_bits);
        [site.kind as u64, x, y, site.weight.to_bits()]
    };
    sites.iter().map(bits).collect()
}

// Check a potential that is to be made
impl Potential {
    /// Refuses what [`new`](Self::new) refuses, without the atoms of the specimen.
    pub(super) fn check(
        specimen: &TiledSpecimen,
        grid: &WaveGrid,
        slicing: &Slicing,
        options: PotentialOptions,
    ) -> Result<(), Invalid> {
        let bound = positive("bound", options.bound)?;
        check_sides(specimen.cell(), grid, slicing)?;
        for element in specimen.composition().into_keys() {
            options.factors.of(element)?;
        }
        match options.model {
            PotentialModel::Lookup => lookup::half_patch(grid, bound).map(|_| ()),
            _ => Ok(()),
        }
    }
}

// Count the slices that differ
impl PotentialModel {
    /// How many of the slices up to `last` differ.
    pub(super) fn distinct_slices(
        self,
        specimen: &Specimen,
        slicing: &Slicing,
        last: usize,
    ) -> usize {
        if self == Self::Sliced {
            return last;
        }
        let elements: BTreeSet<Element> = specimen.atoms().iter().map(|a| a.element).collect();
        let elements: Vec<Element> = elements.into_iter().collect();
        let slices = by_slice(slicing, sites(specimen, &elements));
        let alike = first_alike(slices.iter().map(|sites| atoms_of_slice(sites)));
        (0..last).filter(|&k| alike[k] == k).count()
    }
}

// How long slices take
impl PotentialModel {
    /// About how many waves propagate through a slice in the time in which it is computed, by one thread in single precision.
    pub(super) fn passes(self, atoms: usize, slicing: &Slicing, phonons: &Phonons) -> f64 {
        let atoms = atoms as f64 / slicing.count() as f64;
        let deep = match self {
            Self::Sliced | Self::Sampled if phonons.configurations > 0 => 16.0 + 0.5 * atoms,
            Self::Sliced | Self::Sampled => 16.0,
            _ => 0.0,
        };
        4.0 + deep
    }
}

// Slices of a potential
impl Potential {
    // Sizes of a potential
    /// The number of slices.
    pub fn count(&self) -> usize {
        self.slicing.count()
    }

    /// The thickness of a slice \[Å\].
    pub fn thickness(&self) -> f64 {
        self.slicing.thickness()
    }

    /// The grid on which it is sampled.
    pub fn grid(&self) -> WaveGrid {
        self.grid
    }

    /// The potential of slice `k` \[V Å\], (y, x); slice 0 is met first.
    ///
    /// # Panics
    /// Where there is no slice `k`.
    pub fn slice(&self, k: usize) -> Array2<f64> {
        match &self.form {
            PotentialForm::Lookup(form) => form.slice(&self.grid, k),
            PotentialForm::Projected(form) => form.slice(k),
            PotentialForm::Sliced(form) => form.slice(k),
            PotentialForm::Sampled(form) => form.slice(k),
        }
    }

    /// The first slice that has the same potential as slice `k` because it has the same atoms.
    ///
    /// # Panics
    /// Where there is no slice `k`.
    pub fn first_alike(&self, k: usize) -> usize {
        self.alike[k]
    }

    // All slices in parallel
    /// The potential of all slices \[V Å\], (slice, y, x), computed by all threads.
    pub fn slices(&self) -> Array3<f64> {
        let [x, y] = self.grid.points();
        let mut all = Array3::zeros((self.count(), y, x));
        let slices = all.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
        slices.for_each(|(k, mut slice)| slice.assign(&self.slice(k)));
        all
    }
}

// Tests of potentials
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::{Atom, VOLTS};
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    const MODELS: [PotentialModel; 4] = [
        PotentialModel::Lookup,
        PotentialModel::Projected,
        PotentialModel::Sliced,
        PotentialModel::Sampled,
    ];

    fn atom(number: usize, position: [f64; 3], occupancy: f64) -> Atom {
        Atom { element: Element::new(number).unwrap(), position, occupancy, displacement: 0.0 }
    }

    /// Atoms of three elements anywhere in a cell.
    fn anywhere(cell: [f64; 3], count: usize) -> Vec<Atom> {
        let mut random = StdRng::seed_from_u64(11);
        let mut place = || cell.map(|side| side * random.random::<f64>());
        (0..count).map(|k| atom([14, 8, 79][k % 3], place(), [1.0, 0.4][k % 2])).collect()
    }

    /// All slices of atoms in a cell of 6 × 5 × 7 Å and its tiles along x and y.
    fn slices(model: PotentialModel, atoms: Vec<Atom>, [x, y]: [usize; 2]) -> Array3<f64> {
        let cell = [6.0 * x as f64, 5.0 * y as f64, 7.0];
        let specimen = Specimen::new(cell, atoms).unwrap();
        let grid = WaveGrid::new([24 * x, 28 * y], [cell[0], cell[1]]).unwrap();
        let cut = Slicing::new(7.0, 1.5).unwrap();
        let options = PotentialOptions { model, factors: Factors::Lobato, bound: 2.0, planes: 5 };
        Potential::new(&specimen, grid, cut, options).unwrap().slices()
    }

    fn assert_close(a: &Array3<f64>, b: &Array3<f64>, tolerance: f64) {
        let off = (a - b).iter().fold(0.0, |most: f64, off| most.max(off.abs()));
        assert!(off <= tolerance * b.iter().fold(0.0, |most: f64, v| most.max(v.abs())), "{off:e}");
    }

    // Moved atoms have moved potentials
    #[test]
    fn moved_atoms_have_moved_potentials() {
        let atoms = anywhere([6.0, 5.0, 7.0], 7);
        let moved = |atom: &Atom| {
            let [x, y, z] = atom.position;
            Atom { position: [x + 3.0 * 0.25, y - 2.0 * 5.0 / 28.0, z], ..*atom }
        };
        for model in MODELS {
            let there = slices(model, atoms.clone(), [1, 1]);
            let away = slices(model, atoms.iter().map(moved).collect(), [1, 1]);
            let back = |(k, j, i): (usize, usize, usize)| away[[k, (j + 26) % 28, (i + 3) % 24]];
            assert_close(&Array3::from_shape_fn(there.dim(), back), &there, 1e-12);
        }
    }

    // Tiles and parts of atoms add up
    #[test]
    fn tiles_and_parts_of_atoms_add_up() {
        let atoms = anywhere([6.0, 5.0, 7.0], 7);
        let tile = |x: f64, y: f64| {
            atoms.iter().map(move |atom| {
                let place = [atom.position[0] + x, atom.position[1] + y, atom.position[2]];
                Atom { position: place, ..*atom }
            })
        };
        let parts = atoms
            .iter()
            .flat_map(|a| [0.3, 0.7].map(|share| Atom { occupancy: share * a.occupancy, ..*a }));
        for model in MODELS {
            let one = slices(model, atoms.clone(), [1, 1]);
            let six = [0.0, 6.0].into_iter().flat_map(|x| [0.0, 5.0, 10.0].map(|y| tile(x, y)));
            let tiled = slices(model, six.flatten().collect(), [2, 3]);
            let again = Array3::from_shape_fn(tiled.dim(), |(k, j, i)| one[[k, j % 28, i % 24]]);
            assert_close(&tiled, &again, 1e-12);
            assert_close(&slices(model, parts.clone().collect(), [1, 1]), &one, 1e-13);
        }
    }

    // Slices of any model add up to the projection
    #[test]
    fn slices_add_up_to_the_projection() {
        let mut atoms = anywhere([6.0, 5.0, 7.0], 9);
        for (atom, z) in atoms.iter_mut().zip([7.0, 5.5, 4.0, 0.0]) {
            atom.position[2] = z; // on faces
        }
        let total =
            |model| slices(model, atoms.clone(), [1, 1]).sum_axis(Axis(0)).insert_axis(Axis(0));
        let flat = total(PotentialModel::Projected);
        assert_close(&total(PotentialModel::Sliced), &flat, 1e-13);
        let whole =
            |atom: &Atom| atom.occupancy * Factors::Lobato.of(atom.element).unwrap().at(0.0);
        let expected = VOLTS * atoms.iter().map(whole).sum::<f64>() / (6.0 * 5.0);
        assert!((flat.sum() / (24.0 * 28.0) / expected - 1.0).abs() < 1e-13);
        // Deep atoms differ from flat ones, and empty slices do not stay empty.
        let one = vec![atom(14, [1.0, 2.0, 3.4], 1.0)];
        let deep = slices(PotentialModel::Sliced, one.clone(), [1, 1]);
        let sums: Vec<f64> = deep.outer_iter().map(|slice| slice.sum()).collect();
        assert!(sums[2] > 2.0 * sums[1] && sums[1] > 1.1 * sums[3] && sums[4] > 0.0, "{sums:?}");
        let flat = slices(PotentialModel::Projected, one, [1, 1]);
        assert!(flat.outer_iter().enumerate().all(|(k, slice)| (k == 2) != (slice.sum() == 0.0)));
    }

    // Silicon keeps its symmetry
    #[test]
    fn silicon_keeps_its_symmetry() {
        let sites = [
            [0.0, 0.0, 0.0],
            [0.5, 0.5, 0.0],
            [0.25, 0.25, 0.25],
            [0.75, 0.75, 0.25],
            [0.5, 0.0, 0.5],
            [0.0, 0.5, 0.5],
            [0.75, 0.25, 0.75],
            [0.25, 0.75, 0.75],
        ];
        let side = 5.43;
        let cell =
            sites.map(|[x, y, z]| atom(14, [x, y, z + 0.125].map(|place| side * place), 1.0));
        let specimen = Specimen::new([side; 3], cell.to_vec()).unwrap();
        let grid = WaveGrid::new([40, 40], [side, side]).unwrap();
        for model in MODELS {
            let cut = Slicing::new(side, side / 4.0).unwrap();
            let options = PotentialOptions::default().model(model);
            let potential = Potential::new(&specimen, grid, cut, options).unwrap();
            assert_eq!((potential.count(), potential.thickness()), (4, side / 4.0));
            let slices = potential.slices();
            let total = slices.sum_axis(Axis(0)).insert_axis(Axis(0));
            let turned = |f: fn(usize, usize) -> (usize, usize)| {
                Array3::from_shape_fn(total.dim(), |(_, j, i)| {
                    let (j, i) = f(j, i);
                    total[[0, j % 40, i % 40]]
                })
            };
            assert_close(&turned(|j, i| (i, j)), &total, 1e-12);
            assert_close(&turned(|j, i| (j, 40 - i)), &total, 1e-12);
            assert_close(&turned(|j, i| (j + 10, i + 10)), &total, 1e-12);
            // A quarter turn about a screw axis goes from one plane to the next; flow ends at the outermost faces.
            let off = |k: usize| {
                let turned = Array2::from_shape_fn((40, 40), |(j, i)| {
                    slices[[k, (10 + i) % 40, (50 - j) % 40]] - slices[[k + 1, j, i]]
                });
                turned.iter().fold(0.0, |most: f64, off| most.max(off.abs()))
            };
            let flows = matches!(model, PotentialModel::Sliced | PotentialModel::Sampled);
            assert!(flows || (0..3).all(|k| off(k) < 1e-9), "{model:?}");
        }
    }

    // Alike slices have one potential
    #[test]
    fn alike_slices_have_one_potential() {
        let layer = |z: f64| vec![atom(14, [1.0, 2.0, z], 1.0), atom(79, [4.0, 0.5, z], 0.5)];
        let moved = vec![atom(14, [1.0, 2.0, 4.5], 1.0), atom(79, [4.0, 0.6, 4.5], 0.5)];
        let fuller = vec![atom(14, [1.0, 2.0, 3.5], 1.0), atom(79, [4.0, 0.5, 3.5], 1.0)];
        let atoms = [layer(5.5), moved, fuller, layer(2.5), vec![], layer(0.5)].concat();
        let specimen = Specimen::new([6.0, 5.0, 6.0], atoms).unwrap();
        let grid = WaveGrid::new([24, 28], [6.0, 5.0]).unwrap();
        let cut = Slicing::new(6.0, 1.0).unwrap();
        let flat = [0, 1, 2, 0, 4, 0];
        let deep = [0, 1, 2, 3, 4, 5];
        for (model, expected) in MODELS.into_iter().zip([flat, flat, deep, deep]) {
            let options =
                PotentialOptions { model, factors: Factors::Lobato, bound: 2.0, planes: 5 };
            let potential = Potential::new(&specimen, grid, cut, options).unwrap();
            let first: Vec<usize> = (0..6).map(|k| potential.first_alike(k)).collect();
            assert_eq!(first, expected, "{model:?}");
            assert_eq!(potential.slice(3), potential.slice(first[3]));
        }
    }

    // Potentials that make no sense are refused
    #[test]
    fn potentials_that_make_no_sense_are_refused() {
        let specimen =
            |number| Specimen::new([6.0, 5.0, 7.0], vec![atom(number, [1.0; 3], 1.0)]).unwrap();
        let grid = |x, y| WaveGrid::new([24, 28], [x, y]).unwrap();
        let refused = |number, grid, height, bound| {
            let cut = Slicing::new(height, 1.0).unwrap();
            let model = PotentialModel::Lookup;
            let options = PotentialOptions::default().model(model).bound(bound);
            let made = Potential::new(&specimen(number), grid, cut, options);
            made.err().map(|error| error.quantity)
        };
        assert_eq!(refused(14, grid(6.0, 5.0), 7.0, 3.0), None);
        for bad in [0.0, -3.0, f64::NAN, f64::INFINITY, 0.2, 1e4] {
            assert_eq!(refused(14, grid(6.0, 5.0), 7.0, bad).as_deref(), Some("bound"));
        }
        assert_eq!(refused(99, grid(6.0, 5.0), 7.0, 3.0).as_deref(), Some("element"));
        assert_eq!(refused(14, grid(5.0, 6.0), 7.0, 3.0).as_deref(), Some("grid"));
        assert_eq!(refused(14, grid(6.0, 5.0), 7.1, 3.0).as_deref(), Some("slices"));
    }
}
