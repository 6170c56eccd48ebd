// Tangled from book/src/potentials.md: edit there, or here and run cargo tangle stitch.
//! Potentials of slices from a patch of pixels for each element.

// Imports of patches
use super::sites::Site;
use crate::electrons::wave_grid::WaveGrid;
use crate::error::{Invalid, accept};
use crate::numerics::RadialTable;
use crate::specimen::ScatteringFactor;
use ndarray::{Array2, ArrayView1, ArrayViewMut1, Axis, s};
use rayon::prelude::*;

// Patch of an element
/// The potential \[V Å\] of one atom on the pixels that it reaches, `half` on either side of its own, (2 `half_y` + 1, 2 `half_x` + 1): Eq. [lookup patch](https://lenslet.github.io/lenslet/potentials.html#eq-lookup-patch), lowered
/// by the larger value at the rim and not below zero.
fn patch(factor: &ScatteringFactor, pixel: [f64; 2], half: [usize; 2]) -> Array2<f64> {
    let [x, y] = half;
    let quarter = quarter_patch(factor, pixel, half);
    let rim = f64::max(quarter[[0, x - 1]], quarter[[y - 1, 0]]);
    Array2::from_shape_fn((2 * y + 1, 2 * x + 1), |(j, i)| {
        (quarter[[j.abs_diff(y), i.abs_diff(x)]] - rim).max(0.0)
    })
}

// A quarter of a patch
/// Means over pixels, (`half_y` + 1, `half_x` + 1), from the nucleus outwards.
fn quarter_patch(factor: &ScatteringFactor, pixel: [f64; 2], half: [usize; 2]) -> Array2<f64> {
    // Squares of the distances of points along each side, 8 a pixel.
    let squares = [0, 1].map(|axis| -> Vec<f64> {
        let place = |k: usize| (k as f64 / 8.0 - 7.0 / 16.0) * pixel[axis];
        (0..8 * (half[axis] + 1)).map(|k| place(k).powi(2)).collect()
    });
    let largest = squares.iter().filter_map(|along| along.last()).sum::<f64>();
    let smallest = (pixel[0].powi(2) + pixel[1].powi(2)) / 256.0;
    let table = RadialTable::new(0.99 * smallest, 1.01 * largest, |t| factor.projected(t.sqrt()));
    Array2::from_shape_fn((half[1] + 1, half[0] + 1), |(j, i)| {
        let (ys, xs) = (&squares[1][8 * j..8 * j + 8], &squares[0][8 * i..8 * i + 8]);
        let row = |y: &f64| xs.iter().map(|x| table.value_and_slope(x + y).0).sum::<f64>();
        ys.iter().map(row).sum::<f64>() / 64.0
    })
}

// Atoms on pixels
/// Patches of elements and the pixels to which they are added.
pub(super) struct Lookup {
    patches: Vec<Array2<f64>>,
    slices: Vec<Vec<Stamp>>,
}

// Reach of an atom in pixels
/// Pixels along either side of an atom's own, x and y, that a potential up to `bound` \[Å\] reaches.
pub(super) fn half_patch(grid: &WaveGrid, bound: f64) -> Result<[usize; 2], Invalid> {
    let pixel = grid.pixel();
    let half = pixel.map(|pixel| (bound / pixel).ceil() as usize);
    let good = half.iter().all(|half| (2..=4096).contains(half));
    let expected = format!("for lookup, more than a pixel and at most 4096: {pixel:?} Å");
    accept(good, "bound", bound, &expected).map(|_| half)
}

// A patch on its pixel
/// A patch to be added: its number, the pixel of its middle, and its weight.
struct Stamp {
    kind: usize,
    pixel: [usize; 2],
    weight: f64,
}

// Patches of all atoms
impl Lookup {
    pub(super) fn new(
        grid: &WaveGrid,
        kinds: &[&ScatteringFactor],
        slices: Vec<Vec<Site>>,
        bound: f64,
    ) -> Result<Self, Invalid> {
        let (pixel, half) = (grid.pixel(), half_patch(grid, bound)?);
        let patches = kinds.par_iter().map(|factor| patch(factor, pixel, half)).collect();
        let on_pixel = |site: &Site| Stamp {
            kind: site.kind,
            pixel: [0, 1].map(|axis| (site.place[axis] / pixel[axis]).round() as usize),
            weight: site.weight,
        };
        let stamps = |sites: Vec<Site>| sites.iter().map(on_pixel).collect();
        Ok(Self { patches, slices: slices.into_iter().map(stamps).collect() })
    }

    // Put patches down on a slice
    /// The potential of a slice \[V Å\], (y, x).
    pub(super) fn slice(&self, grid: &WaveGrid, k: usize) -> Array2<f64> {
        let [x, y] = grid.points();
        let mut potential = Array2::zeros((y, x));
        for stamp in &self.slices[k] {
            let patch = &self.patches[stamp.kind];
            let corner = |points: usize, place: usize, width: usize| {
                (place + points * (width / points + 1) - width / 2) % points
            };
            let (top, left) = (
                corner(y, stamp.pixel[1], patch.nrows()),
                corner(x, stamp.pixel[0], patch.ncols()),
            );
            for (j, values) in patch.rows().into_iter().enumerate() {
                let mut row = potential.row_mut((top + j) % y);
                add_around(&mut row, left, values, stamp.weight);
            }
        }
        potential
    }
}

// Add a row that goes around
/// Adds `values` to a periodic row, from the index `start` on.
pub(super) fn add_around(
    row: &mut ArrayViewMut1<f64>,
    mut start: usize,
    mut values: ArrayView1<f64>,
    weight: f64,
) {
    while !values.is_empty() {
        let (here, rest) = values.split_at(Axis(0), values.len().min(row.len() - start));
        row.slice_mut(s![start..start + here.len()]).scaled_add(weight, &here);
        (values, start) = (rest, 0);
    }
}

// Tests of patches
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::{Element, Factors};
    use std::f64::consts::PI;

    // The rule of Prismatic to the letter
    /// K₀(x), the integral of exp(−x cosh t) by the rectangle rule.
    fn k0(x: f64) -> f64 {
        (0..170).map(|k| 0.05 * (f64::from(k) + 0.5)).map(|t| 0.05 * f64::exp(-x * t.cosh())).sum()
    }

    /// The table of an atom, (2 n_y + 1) × (2 n_x + 1), from the parameters a₁ b₁ … c₃ d₃.
    fn literal(p: [f64; 12], bound: f64, [px, py]: [f64; 2]) -> Vec<Vec<f64>> {
        let (nx, ny) = ((bound / px).ceil() as i32, (bound / py).ceil() as i32);
        let v = |r: f64| {
            let lorentz = |i: usize| p[i] * k0(2.0 * PI * p[i + 1].sqrt() * r);
            let gauss = |i: usize| p[i] / p[i + 1] * f64::exp(-PI * PI * r * r / p[i + 1]);
            let scale = PI * PI * 0.5292 * 14.4;
            let lorentzians = lorentz(0) + lorentz(2) + lorentz(4);
            4.0 * scale * lorentzians + 2.0 * scale * (gauss(6) + gauss(8) + gauss(10))
        };
        let offset = |s: i32| -0.4375 + f64::from(s) / 8.0;
        let pixel = |j: i32, i: i32| {
            let points = (0..8).flat_map(|sy| (0..8).map(move |sx| (sy, sx)));
            let at = |(sy, sx)| {
                v(f64::hypot((f64::from(i) + offset(sx)) * px, (f64::from(j) + offset(sy)) * py))
            };
            points.map(at).sum::<f64>() / 64.0
        };
        let row = |j: i32| (-nx..=nx).map(|i| pixel(j, i)).collect::<Vec<f64>>();
        let mut table: Vec<Vec<f64>> = (-ny..=ny).map(row).collect();
        let (nx, ny) = (nx as usize, ny as usize);
        let lowest = table[ny][2 * nx - 1].max(table[2 * ny - 1][nx]);
        table.iter_mut().flatten().for_each(|value| *value = (*value - lowest).max(0.0));
        table
    }

    // An atom at an awkward place
    #[test]
    fn lookup_follows_the_rule_to_the_letter() {
        let silicon = [
            1.06543892,
            1.04118455,
            0.120143691,
            68.7113368,
            0.180915263,
            0.0887533926,
            1.12065620,
            3.70062619,
            0.0305452816,
            0.214097897,
            1.59963502,
            9.99096638,
        ];
        let kinds = [Factors::Kirkland.of(Element::new(14).unwrap()).unwrap()];
        // The patch of 2 · 6 + 1 by 2 · 9 + 1 pixels is wider than the cell of 12 × 8 along one side.
        let grid = WaveGrid::new([12, 8], [6.6, 2.8]).unwrap();
        let site = Site { kind: 0, place: [6.4, 0.175 + 1e-9, 0.0], weight: 0.75 };
        let lookup = Lookup::new(&grid, &kinds, vec![vec![site]], 3.0).unwrap();
        let table = literal(silicon, 3.0, grid.pixel());
        let mut expected = Array2::<f64>::zeros((8, 12));
        for (j, row) in (-9i32..).zip(&table) {
            for (i, value) in (-6i32..).zip(row) {
                let (y, x) = ((j + 1).rem_euclid(8), (i + 12).rem_euclid(12)); // 0.175 / 0.35 is a half
                expected[[y as usize, x as usize]] += 0.75 * value;
            }
        }
        assert_eq!((table.len(), table[0].len()), (19, 13));
        let found = lookup.slice(&grid, 0);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-12 * 500.0, "{found} is not {expected}");
        }
        for bad in [0.3, 5000.0] {
            assert!(Lookup::new(&grid, &kinds, vec![], bad).is_err_and(|e| e.quantity == "bound"));
        }
    }
}
