// Tangled from book/src/slices.md: edit there, or here and run cargo tangle stitch.
//! Slices across the beam, and the slice of each atom.

// Imports of slices
use crate::error::{Invalid, accept, positive};
use crate::specimen::atoms::Specimen;

// Cut a specimen into slices
/// Largest distance of a depth from a whole number of slices to which it is rounded \[slices\].
const SLACK: f64 = 1e-6;

/// A specimen cut across the beam into slices of one thickness; slice 0 is met first, at high z.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Slicing {
    height: f64,
    thickness: f64,
    #[cfg_attr(feature = "serde", serde(skip))]
    count: usize,
}

// Read back a division into slices
#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Slicing::new(height: f64, thickness: f64)?);

// Assign a height to a slice
impl Slicing {
    // The constructor of slices
    /// Slices of `thickness` \[Å\] of a cell that is `height` \[Å\] high.
    ///
    /// # Errors
    /// `Invalid` where the height is not a length, where the thickness is not one or exceeds the height, and for more than a million slices.
    ///
    /// ```
    /// use lenslet::specimen::Slicing;
    /// let slices = Slicing::new(5.43, 2.0)?;
    /// assert_eq!((slices.count(), slices.slice_of(5.43), slices.slice_of(3.43)), (3, 0, 1));
    /// assert!(Slicing::new(5.43, 6.0).is_err());
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(height: f64, thickness: f64) -> Result<Self, Invalid> {
        let height = positive("height", height)?;
        let thickness = positive("slice_thickness", thickness)?;
        let expected = || format!("a length in Å up to the height of the cell, {height}");
        let slices = height / thickness;
        // Reject slices of impossible thickness
        accept(slices >= 1.0 - SLACK, "slice_thickness", thickness, &expected())?;
        accept(
            slices <= 1e6,
            "slice_thickness",
            thickness,
            "at most a million slices in the cell",
        )?;
        let count = ((slices - SLACK).ceil() as usize).max(1);
        Ok(Self { height, thickness, count })
    }

    /// The slice of an atom at height `z` \[Å\], [slice of atom](https://lenslet.github.io/lenslet/slices.html#eq-slice-of-atom); an atom above the cell lies in the first slice, and one below it in the last.
    pub fn slice_of(&self, z: f64) -> usize {
        let depth = ((self.height - z) / self.thickness + SLACK).floor();
        (depth.max(0.0) as usize).min(self.count - 1)
    }

    // What is asked of slices
    /// The number of slices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The thickness of each slice \[Å\].
    pub fn thickness(&self) -> f64 {
        self.thickness
    }

    /// The height of the cell \[Å\].
    pub fn height(&self) -> f64 {
        self.height
    }

    /// The lower and the upper face of slice `k` \[Å\], thickness apart; the last slice may reach below z = 0.
    pub fn bounds(&self, k: usize) -> [f64; 2] {
        [(k + 1) as f64, k as f64].map(|depth| self.height - depth * self.thickness)
    }

    /// Accepts numbers of slices behind which a wave is recorded.
    ///
    /// # Errors
    /// `Invalid` where there are none, they do not rise, or lie behind the last slice.
    pub fn accept_ends(&self, ends: &[usize]) -> Result<(), Invalid> {
        let rising = !ends.is_empty() && ends.is_sorted_by(|a, b| a < b);
        let inside = ends.iter().all(|end| (1..=self.count).contains(end));
        let expected = format!("numbers of slices from 1 to {} that rise", self.count);
        accept(rising && inside, "ends", ends, &expected).map(|_| ())
    }

    /// The atoms of each slice, by their indices in the specimen's list and in its order; each atom is in exactly one slice.
    pub fn atoms(&self, specimen: &Specimen) -> Vec<Vec<usize>> {
        let mut slices = vec![Vec::new(); self.count];
        for (k, atom) in specimen.atoms().iter().enumerate() {
            slices[self.slice_of(atom.position[2])].push(k);
        }
        slices
    }
}

// Tests of slices
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::atoms::{Atom, Element};
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    fn specimen(cell: [f64; 3], heights: &[f64]) -> Specimen {
        let element = Element::new(14).unwrap();
        let atom =
            |&z| Atom { element, position: [0.0, 0.0, z], occupancy: 1.0, displacement: 0.0 };
        Specimen::new(cell, heights.iter().map(atom).collect()).unwrap()
    }

    // Slices keep counts and moments
    #[test]
    fn every_atom_lands_in_one_slice() {
        let mut random = StdRng::seed_from_u64(1);
        for (height, thickness) in
            [(54.3, 1.3575), (54.3, 2.0), (10.0, 3.0), (1.0, 1.0), (7.0, 0.1)]
        {
            let slices = Slicing::new(height, thickness).unwrap();
            let on_cuts = (0..=slices.count()).map(|k| (height - k as f64 * thickness).max(0.0));
            let mut heights: Vec<f64> = on_cuts.collect();
            heights.extend([0.0, height]);
            heights.extend((0..500).map(|_| height * random.random::<f64>()));
            let found = slices.atoms(&specimen([1.0, 1.0, height], &heights));
            let mut all: Vec<usize> = found.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..heights.len()).collect::<Vec<_>>());
            let centre = |k: usize| slices.bounds(k).iter().sum::<f64>() / 2.0;
            let mut moment = 0.0;
            for (k, atoms) in found.iter().enumerate() {
                for &atom in atoms {
                    let off = heights[atom] - centre(k);
                    assert!(
                        off.abs() <= thickness / 2.0 + 1e-6 * thickness,
                        "{off} of {thickness}"
                    );
                    moment += off / thickness;
                }
            }
            // A standard deviation of 1/√12 each; those on cuts lie on upper faces.
            let expected = 0.5 * (slices.count() as f64 + 1.0);
            assert!((moment - expected).abs() < 4.0 * (500.0_f64 / 12.0).sqrt() + 2.0);
        }
        let slices = Slicing::new(10.0, 3.0).unwrap();
        assert_eq!(
            (slices.slice_of(10.3), slices.slice_of(-0.3), slices.slice_of(10.0)),
            (0, 3, 0)
        );
        assert_eq!((slices.bounds(0), slices.bounds(3)), ([7.0, 10.0], [-2.0, 1.0]));
    }

    // Planes on cuts have slices of their own
    #[test]
    fn planes_on_cuts_have_slices_of_their_own() {
        let (cell, tiles) = (5.43, 40);
        let height = cell * f64::from(tiles);
        let slices = Slicing::new(height, cell / 4.0).unwrap();
        let plane = |tile: i32, k: i32| (f64::from(tile), f64::from(k) / 4.0);
        let height_formulas: [fn(f64, f64, f64) -> f64; 3] = [
            |tile, plane, _| 5.43 * tile + 5.43 * plane,
            |tile, plane, height| (plane + tile) / 40.0 * height,
            |tile, plane, height| height - 1.3575 * (160.0 - 4.0 * (tile + plane)),
        ];
        for height_of in height_formulas {
            let places = (0..tiles).flat_map(|tile| (1..=4).map(move |k| plane(tile, k)));
            let heights: Vec<f64> =
                places.map(|(tile, k)| height_of(tile, k, height).min(height)).collect();
            let found = slices.atoms(&specimen([1.0, 1.0, height], &heights));
            assert!(found.iter().all(|atoms| atoms.len() == 1), "{:?}", found);
        }
    }

    #[test]
    fn the_lowest_plane_belongs_to_the_last_slice() {
        let planes = [0.0, 0.0, 1.3575, 1.3575, 2.715, 2.715, 4.0725, 4.0725];
        let found = Slicing::new(5.43, 1.3575).unwrap().atoms(&specimen([5.43; 3], &planes));
        assert_eq!(found, [vec![], vec![6, 7], vec![4, 5], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn away_from_cuts_the_formula_holds() {
        let slices = Slicing::new(54.3, 2.0).unwrap();
        let mut random = StdRng::seed_from_u64(5);
        for _ in 0..1000 {
            let z = 54.3 * random.random::<f64>();
            let formula = ((54.3 - z) / 2.0 + 0.5).round() - 1.0;
            assert_eq!(slices.slice_of(z) as f64, formula);
        }
    }

    #[test]
    fn slices_that_make_no_sense_are_refused() {
        let refused = |height, thickness| Slicing::new(height, thickness).unwrap_err().to_string();
        let thick = refused(5.43, 5.44);
        assert_eq!(
            thick,
            "slice_thickness = 5.44: expected a length in Å up to the height of the cell, 5.43"
        );
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            assert!(refused(5.43, bad).starts_with("slice_thickness"), "{bad}");
        }
        assert!(refused(f64::NAN, 1.0).starts_with("height"));
        assert_eq!(Slicing::new(5.43, 5.43).unwrap().count(), 1);
        assert_eq!(Slicing::new(5.43, 5.43 / 3.0).unwrap().count(), 3);
        assert_eq!(Slicing::new(5.43, 2.7149).unwrap().count(), 3);
    }
}
