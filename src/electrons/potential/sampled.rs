// Tangled from book/src/potential-planes.md: edit there, or here and run cargo tangle stitch.
//! Potentials of slices from samples of each element's potential on planes.

// Imports of sampled potentials
use super::lookup::add_around;
use super::sites::Site;
use crate::electrons::wave_grid::WaveGrid;
use crate::error::{Invalid, accept};
use crate::specimen::{ScatteringFactor, Slicing};
use ndarray::{Array2, Array3, Axis};
use rayon::prelude::*;
use std::f64::consts::PI;

/// Samples of all boxes, at most: 1 GiB.
const MOST: f64 = (1u64 << 27) as f64;

// Box of an atom
/// Bohr's radius of this model, as a share of that of the other models.
const BOHR: f64 = 0.529 / 0.5292;

/// The box of an atom, the same for all elements.
#[derive(Debug, Clone, Copy)]
struct AtomBox {
    /// Sides of a pixel \[Å\].
    pixel: [f64; 2],
    /// Pixels from the nucleus to the side of the box, x and y.
    half: [usize; 2],
    /// Distance of two planes \[Å\].
    spacing: f64,
    /// Planes above the nucleus, and as many below it.
    planes: usize,
}

impl AtomBox {
    // A box within bounds
    /// The box for a grid, a bound \[Å\] and a distance of planes \[Å\]; `kinds` elements have one each.
    fn new(grid: &WaveGrid, bound: f64, spacing: f64, kinds: usize) -> Result<Self, Invalid> {
        let pixel = grid.pixel();
        let steps = |step: f64| (bound / step - 1e-9).ceil().max(1.0);
        let [x, y, z] = [steps(pixel[0]), steps(pixel[1]), steps(spacing)];
        let samples = kinds as f64 * (x + 1.0) * (y + 1.0) * (z + 1.0);
        let expected = format!(
            "fewer samples than {MOST:e} in the boxes of all elements: pixels of {pixel:?} Å and planes {spacing} Å apart make {samples:e}"
        );
        accept(x.max(y) <= 4096.0 && samples <= MOST, "bound", bound, &expected)?;
        Ok(Self { pixel, half: [x as usize, y as usize], spacing, planes: z as usize })
    }

    // Sample the planes of an atom
    /// Plane `j` above the nucleus, Eq. [sampled plane](https://lenslet.github.io/lenslet/potential-planes.html#eq-sampled-plane), from the nucleus outwards: (`half_y` + 1, `half_x` + 1).
    fn plane(&self, factor: &ScatteringFactor, j: usize) -> Array2<f64> {
        let ([x, y], height) = (self.half, (j as f64 + 0.5) * self.spacing);
        let [end_x, end_y] = [0, 1].map(|axis| self.half[axis] as f64 * self.pixel[axis]);
        let cutoff = end_x.min(end_y).min((self.planes as f64 - 0.5) * self.spacing);
        let at_cutoff = factor.potential(cutoff);
        Array2::from_shape_fn((y + 1, x + 1), |(j, i)| {
            let (across, along) = (i as f64 * self.pixel[0], j as f64 * self.pixel[1]);
            let distance = (across * across + along * along + height * height).sqrt();
            BOHR * self.spacing * (factor.potential(distance) - at_cutoff).max(0.0)
        })
    }

    // Sums of the spectra of planes
    /// Sums of the spectra of the planes from the nucleus up to the first `m`, (m, k_y, k_x) for m from 0 to `planes`.
    fn spectra(&self, factor: &ScatteringFactor) -> Array3<f64> {
        let ([x, y], band) = (self.half, band(self.half));
        let (along_x, along_y) = (cosines(x), cosines(y));
        let mut sums = Array3::zeros((self.planes + 1, y + 1, x + 1));
        for j in 0..self.planes {
            let spectrum = along_y.dot(&self.plane(factor, j)).dot(&along_x.t()) * &band;
            let sum = &sums.index_axis(Axis(0), j) + &spectrum;
            sums.index_axis_mut(Axis(0), j + 1).assign(&sum);
        }
        sums
    }
}

// Cosines of a box
/// w_x cos(2π k x/(2 `half` + 1)), (k, x), of Eq. [sampled spectrum](https://lenslet.github.io/lenslet/potential-planes.html#eq-sampled-spectrum).
fn cosines(half: usize) -> Array2<f64> {
    let turn = 2.0 * PI / (2 * half + 1) as f64;
    Array2::from_shape_fn((half + 1, half + 1), |(k, x)| {
        twice(x) * ((k * x % (2 * half + 1)) as f64 * turn).cos()
    })
}

/// 1 for index 0, and 2 for the others, which stand for their negatives as well.
fn twice(index: usize) -> f64 {
    if index == 0 { 1.0 } else { 2.0 }
}

/// The limit of the band, Eq. [sampled band](https://lenslet.github.io/lenslet/potential-planes.html#eq-sampled-band), (`half_y` + 1, `half_x` + 1).
fn band([x, y]: [usize; 2]) -> Array2<f64> {
    Array2::from_shape_fn((y + 1, x + 1), |(j, i)| {
        let q = f64::hypot(i as f64 / (2 * x) as f64, j as f64 / (2 * y) as f64);
        let share = ((0.95 - 2.0 * q) / 0.2).clamp(0.0, 1.0);
        (0.5 * PI * share).sin().powi(2)
    })
}
/// Cosines that make the values of a box, moved by `offset` pixels, out of a spectrum, (x, k), divided by the number of samples.
fn moved_cosines(half: usize, offset: f64) -> Array2<f64> {
    let samples = (2 * half + 1) as f64;
    Array2::from_shape_fn((2 * half + 1, half + 1), |(x, k)| {
        let turns = (x as f64 - half as f64) / samples - offset / (2 * half) as f64;
        twice(k) / samples * (2.0 * PI * k as f64 * turns).cos()
    })
}

// Planes of an atom in a slice
/// Consecutive planes of an atom in a slice.
#[derive(Debug, Clone, Copy)]
struct PlaneShare {
    kind: usize,
    /// The first plane and the one behind the last, counted from the nucleus downwards; negative above it.
    planes: [i64; 2],
    /// The nearest pixel of the atom.
    pixel: [i64; 2],
    /// Distance of the atom from it \[pixels\].
    offset: [f64; 2],
    weight: f64,
}

// Compare shares of atoms
impl PlaneShare {
    /// What makes its values, but for the weight and the pixel.
    fn shape(&self) -> (usize, [i64; 2], [u64; 2]) {
        (self.kind, self.planes, self.offset.map(f64::to_bits))
    }

    /// All of it in numbers that can be compared.
    fn bits(&self) -> [u64; 8] {
        let [first, end] = self.planes.map(i64::cast_unsigned);
        let [[x, y], [dx, dy]] =
            [self.pixel.map(i64::cast_unsigned), self.offset.map(f64::to_bits)];
        [self.kind as u64, first, end, x, y, dx, dy, self.weight.to_bits()]
    }
}

// Prepare sampled potentials
/// Potentials of slices from atoms that are sampled on planes.
pub(super) struct Sampled {
    grid: WaveGrid,
    half: [usize; 2],
    /// Of each element, see [`AtomBox::spectra`].
    spectra: Vec<Array3<f64>>,
    slices: Vec<Vec<PlaneShare>>,
}

impl Sampled {
    // Sampled potentials of a specimen
    /// Potentials on a grid, with a bound \[Å\] and so many planes in a slice.
    pub(super) fn new(
        grid: WaveGrid,
        kinds: &[&ScatteringFactor],
        slicing: &Slicing,
        sites: &[Site],
        [bound, per_slice]: [f64; 2],
    ) -> Result<Self, Invalid> {
        accept((1.0..=1e4).contains(&per_slice), "planes", per_slice, "a number from 1 to 10000")?;
        let boxed = AtomBox::new(&grid, bound, slicing.thickness() / per_slice, kinds.len())?;
        let spectra = kinds.par_iter().map(|factor| boxed.spectra(factor)).collect();
        let mut slices = vec![Vec::new(); slicing.count()];
        for site in sites {
            boxed.share_out(slicing, site, &mut slices);
        }
        for slice in &mut slices {
            slice.sort_by_key(PlaneShare::bits);
        }
        Ok(Self { grid, half: boxed.half, spectra, slices })
    }

    /// The contents of each slice.
    pub(super) fn contents(&self) -> impl Iterator<Item = Vec<[u64; 8]>> {
        self.slices.iter().map(|shares| shares.iter().map(PlaneShare::bits).collect())
    }

    // Values of consecutive planes
    /// The values \[V Å\] of a share, (2 `half_y` + 1, 2 `half_x` + 1).
    fn values(&self, share: &PlaneShare) -> Array2<f64> {
        let sum = |m: i64| self.spectra[share.kind].index_axis(Axis(0), m.unsigned_abs() as usize);
        let [first, end] = share.planes;
        let spectrum = match (first >= 0, end <= 0) {
            (true, _) => &sum(end) - &sum(first),
            (_, true) => &sum(first) - &sum(end),
            _ => &sum(first) + &sum(end),
        };
        let [x, y] = [0, 1].map(|axis| moved_cosines(self.half[axis], share.offset[axis]));
        let mut values = y.dot(&spectrum).dot(&x.t());
        let [half_x, half_y] = self.half.map(|half| half as f64);
        for ((j, i), value) in values.indexed_iter_mut() {
            let across = (i as f64 - half_x) / (half_x + 0.5);
            let along = (j as f64 - half_y) / (half_y + 0.5);
            if across * across + along * along > 1.0 {
                *value = 0.0;
            }
        }
        values
    }

    // Put shares down on a slice
    /// The potential of a slice \[V Å\], (y, x).
    pub(super) fn slice(&self, k: usize) -> Array2<f64> {
        let [nx, ny] = self.grid.points();
        let mut potential = Array2::zeros((ny, nx));
        for shares in self.slices[k].chunk_by(|a, b| a.shape() == b.shape()) {
            let values = self.values(&shares[0]);
            for share in shares {
                let corner = |axis: usize, points: usize| {
                    let start = share.pixel[axis] - self.half[axis] as i64;
                    start.rem_euclid(points as i64) as usize
                };
                let (left, top) = (corner(0, nx), corner(1, ny));
                for (j, line) in values.rows().into_iter().enumerate() {
                    add_around(&mut potential.row_mut((top + j) % ny), left, line, share.weight);
                }
            }
        }
        potential
    }
}

impl AtomBox {
    // Share an atom out among slices
    /// Adds the planes of an atom to the slices to which they belong.
    fn share_out(&self, slicing: &Slicing, site: &Site, slices: &mut [Vec<PlaneShare>]) {
        let places = [0, 1].map(|axis| site.place[axis] / self.pixel[axis]);
        let fine = |x: f64| (x * 2f64.powi(40)).round() / 2f64.powi(40);
        let (pixel, offset) = (
            places.map(|place| place.round() as i64),
            places.map(|place| fine(place - place.round())),
        );
        let slice_of = |j: i64| slicing.slice_of(site.place[2] - (j as f64 + 0.5) * self.spacing);
        let end = self.planes as i64;
        let mut first = -end;
        while first < end {
            let slice = slice_of(first);
            let (mut low, mut high) = (first + 1, end);
            while low < high {
                let middle = low + (high - low) / 2;
                if slice_of(middle) == slice { low = middle + 1 } else { high = middle }
            }
            let (kind, weight) = (site.kind, site.weight);
            slices[slice].push(PlaneShare { kind, planes: [first, low], pixel, offset, weight });
            first = low;
        }
    }
}

// Tests of sampled potentials
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::{Element, Factors};
    use num_complex::Complex64;

    // The rule of sampled potentials to the letter
    const SILICON: [f64; 12] = [
        1.065439, 1.041185, 0.1201437, 68.71134, 0.1809153, 0.08875339, 1.120656, 3.700626,
        0.03054528, 0.2140979, 1.599635, 9.990966,
    ];

    fn potential(r: f64) -> f64 {
        let (p, a0, e) = (SILICON, 0.529, 14.4);
        let yukawa = |k: usize| p[k] * f64::exp(-2.0 * PI * r * p[k + 1].sqrt()) / r;
        let gauss = |k: usize| p[k] * p[k + 1].powf(-1.5) * f64::exp(-PI * PI * r * r / p[k + 1]);
        2.0 * PI * PI * a0 * e * (yukawa(0) + yukawa(2) + yukawa(4))
            + 2.0 * PI.powf(2.5) * a0 * e * (gauss(6) + gauss(8) + gauss(10))
    }

    /// All values of plane z of a box, shifted, limited and cut.
    fn plane(z: f64, n: [i32; 2], pixel: [f64; 2], offset: [f64; 2], shift: f64) -> Vec<Vec<f64>> {
        let sides = n.map(|n| 2 * n + 1);
        let at = |y: i32, x: i32| {
            let (x, y) = (f64::from(x - n[0]) * pixel[0], f64::from(y - n[1]) * pixel[1]);
            (potential((x * x + y * y + z * z).sqrt()) - shift).max(0.0)
        };
        let signed = |k: i32, n: i32| if k > n { k - 2 * n - 1 } else { k };
        let turn = |k: i32, x: i32, side: i32| 2.0 * PI * f64::from(k * x) / f64::from(side);
        let all = || (0..sides[1]).flat_map(|y| (0..sides[0]).map(move |x| (y, x)));
        let spectrum: Vec<Complex64> = all()
            .map(|(l, k)| {
                let wave = |(y, x)| {
                    at(y, x) * Complex64::cis(-turn(k, x, sides[0]) - turn(l, y, sides[1]))
                };
                let [qx, qy] = [signed(k, n[0]), signed(l, n[1])];
                let [qx, qy] =
                    [f64::from(qx) / f64::from(2 * n[0]), f64::from(qy) / f64::from(2 * n[1])];
                let share = ((0.95 - 2.0 * qx.hypot(qy)) / (0.95 - 0.75)).clamp(0.0, 1.0);
                let moved = Complex64::cis(-2.0 * PI * (qx * offset[0] + qy * offset[1]));
                all().map(wave).sum::<Complex64>() * (PI / 2.0 * share).sin().powi(2) * moved
            })
            .collect();
        let value = |y: i32, x: i32| {
            let waves = all()
                .zip(&spectrum)
                .map(|((l, k), a)| a * Complex64::cis(turn(k, x, sides[0]) + turn(l, y, sides[1])));
            let ellipse = (f64::from(x - n[0]) / (f64::from(n[0]) + 0.5)).powi(2)
                + (f64::from(y - n[1]) / (f64::from(n[1]) + 0.5)).powi(2);
            let inside = if ellipse <= 1.0 { 1.0 } else { 0.0 };
            inside * waves.sum::<Complex64>().re / f64::from(sides[0] * sides[1])
        };
        (0..sides[1]).map(|y| (0..sides[0]).map(|x| value(y, x)).collect()).collect()
    }

    // Sampled potentials follow the rule
    #[test]
    fn sampled_potentials_follow_the_rule_to_the_letter() {
        let kinds = [Factors::KirklandRounded.of(Element::new(14).unwrap()).unwrap()];
        let (grid, cut) =
            (WaveGrid::new([20, 8], [6.0, 3.2]).unwrap(), Slicing::new(5.0, 1.2).unwrap());
        let site = |place, weight| Site { kind: 0, place, weight };
        let sites = [
            site([5.87, 0.11, 0.0], 1.0),
            site([2.43, 1.57, 4.61], 0.5),
            site([0.04, 3.12, 2.33], 1.0),
        ];
        let sampled = Sampled::new(grid, &kinds, &cut, &sites, [2.0, 3.0]).unwrap();
        // Boxes of 7 and 5 pixels and 5 planes of 0.4 Å to either side
        let (pixel, n) = ([0.3, 0.4], [7, 5]);
        let shift = potential(f64::min(2.1, f64::min(2.0, 1.8)));
        let mut expected = vec![Array2::<f64>::zeros((8, 20)); 5];
        for Site { place, weight, .. } in sites {
            let places = [place[0] / pixel[0], place[1] / pixel[1]];
            let [i, j] = places.map(f64::round);
            for step in -5..5 {
                let z = (f64::from(step) + 0.5) * 0.4;
                let slice = ((5.0 - place[2] + z) / 1.2 + 0.5).round() - 1.0;
                let slice = slice.clamp(0.0, 4.0) as usize;
                let values = plane(z, n, pixel, [places[0] - i, places[1] - j], shift);
                for (y, row) in (-n[1]..).zip(values) {
                    for (x, value) in (-n[0]..).zip(row) {
                        let at = |place: f64, by: i32, points: i32| {
                            (place as i32 + by).rem_euclid(points) as usize
                        };
                        expected[slice][[at(j, y, 8), at(i, x, 20)]] += weight * 0.4 * value;
                    }
                }
            }
        }
        for (k, expected) in expected.iter().enumerate() {
            let found = sampled.slice(k);
            let gap = (&found - expected).fold(0.0, |most: f64, gap| most.max(gap.abs()));
            assert!(gap < 1e-10 && expected.sum() > 1.0, "{k}: {gap:e}");
        }
    }

    // More planes make a larger peak
    #[test]
    fn more_planes_make_a_larger_peak() {
        let kinds = [Factors::Kirkland.of(Element::new(14).unwrap()).unwrap()];
        let grid = WaveGrid::new([64, 64], [6.4, 6.4]).unwrap();
        let cut = Slicing::new(4.8, 1.2).unwrap();
        let site = Site { kind: 0, place: [3.2, 3.2, 2.4], weight: 1.0 };
        let peak = |planes: f64| {
            let sampled = Sampled::new(grid, &kinds, &cut, &[site], [2.4, planes]).unwrap();
            (0..4).map(|k| sampled.slice(k)[[32, 32]]).sum::<f64>()
        };
        let [coarse, equal, fine] = [6.0, 12.0, 24.0].map(peak);
        assert!(coarse < 0.95 * equal && equal < 0.95 * fine, "{coarse} {equal} {fine}");
    }

    // Boxes beyond bounds are refused
    #[test]
    fn boxes_beyond_bounds_are_refused() {
        let kinds = [Factors::Kirkland.of(Element::new(14).unwrap()).unwrap()];
        let grid = WaveGrid::new([20, 8], [6.0, 3.2]).unwrap();
        let cut = Slicing::new(5.0, 1.2).unwrap();
        let refused = |bound, planes| {
            let made = Sampled::new(grid, &kinds, &cut, &[], [bound, planes]);
            made.err().map(|error| error.quantity)
        };
        assert_eq!(refused(2.0, 16.0), None);
        assert_eq!(refused(0.1, 1.0), None);
        for planes in [0.0, 20_000.0, f64::NAN] {
            assert_eq!(refused(2.0, planes).as_deref(), Some("planes"));
        }
        for (bound, planes) in [(1e9, 16.0), (600.0, 1000.0)] {
            assert_eq!(refused(bound, planes).as_deref(), Some("bound"));
        }
    }
}
