// Tangled from book/src/potential-waves.md: edit there, or here and run cargo tangle stitch.
//! Potentials of slices as sums of waves.

// What potentials by waves stand on
use super::sites::Site;
use crate::electrons::wave_grid::WaveGrid;
use crate::specimen::{ScatteringFactor, Slicing, VOLTS};
use ndarray::{Array2, ArrayViewMut1};
use num_complex::Complex;
use rayon::prelude::*;
use realfft::{ComplexToReal, RealFftPlanner};
use rustfft::{Fft, FftPlanner};
use std::{collections::BTreeMap, f64::consts::PI, sync::Arc};

// Cosines and sines of a place
/// Adds the cosines of 2π k x/L and then the sines, for k from 0 up, `weight` times; x is `place` \[Å\] along `axis`.
///
/// The sine of the highest frequency that the grid has is left out: there it holds only half of a wave, see Eq. [highest wave](https://lenslet.github.io/lenslet/potential-waves.html#eq-highest-wave).
fn add_waves(grid: &WaveGrid, axis: usize, place: f64, weight: f64, mut row: ArrayViewMut1<f64>) {
    let (count, turns) = (row.len() / 2, place / grid.lengths()[axis]);
    for k in 0..count {
        let turn = k as f64 * turns;
        let (sin, cos) = (2.0 * PI * (turn - turn.round())).sin_cos();
        row[k] += weight * cos;
        if 2 * k < grid.points()[axis] {
            row[count + k] += weight * sin;
        }
    }
}

// Structure factor of atoms
/// Sums over atoms of products of cosines and sines, x by y, Eq. [structure products](https://lenslet.github.io/lenslet/potential-waves.html#eq-structure-products): cosines of k from 0 to `highest` and then sines, (2 (`highest_x` + 1), 2 (`highest_y` + 1)).
fn structure(grid: &WaveGrid, sites: &[Site], highest: [usize; 2]) -> Array2<f64> {
    let [by_x, by_y] = [0, 1].map(|axis| lines(sites, axis));
    let (axis, lines) = if by_x.len() <= by_y.len() { (0, by_x) } else { (1, by_y) };
    let waves = |axis: usize| Array2::zeros((lines.len(), 2 * (highest[axis] + 1)));
    let (mut along, mut across) = (waves(axis), waves(1 - axis));
    for (row, (place, atoms)) in lines.into_iter().enumerate() {
        add_waves(grid, axis, f64::from_bits(place), 1.0, along.row_mut(row));
        for (place, weight) in atoms {
            add_waves(grid, 1 - axis, place, weight, across.row_mut(row));
        }
    }
    if axis == 0 { along.t().dot(&across) } else { across.t().dot(&along) }
}

/// Atoms with the same place along `axis`: that place, as bits, and the other place and the weight of each.
fn lines(sites: &[Site], axis: usize) -> BTreeMap<u64, Vec<(f64, f64)>> {
    let mut lines = BTreeMap::<u64, Vec<(f64, f64)>>::new();
    for site in sites {
        let line = lines.entry(site.place[axis].to_bits()).or_default();
        line.push((site.place[1 - axis], site.weight));
    }
    lines
}

// Spectrum of a potential
/// What potentials become waves by: the grid, and plans of its transforms.
struct Waves {
    grid: WaveGrid,
    along_y: Arc<dyn Fft<f64>>,
    along_x: Arc<dyn ComplexToReal<f64>>,
}

/// Coefficients of waves, (k_x, k_y): k_x from 0 to N_x/2 and all k_y.
type Spectrum = Array2<Complex<f64>>;

impl Waves {
    fn new(grid: WaveGrid) -> Self {
        let [x, y] = grid.points();
        let along_y = FftPlanner::new().plan_fft_inverse(y);
        let along_x = RealFftPlanner::new().plan_fft_inverse(x);
        Self { grid, along_y, along_x }
    }

    /// A spectrum without waves.
    fn nothing(&self) -> Spectrum {
        let [x, y] = self.grid.points();
        Array2::zeros((x / 2 + 1, y))
    }

    // Add atoms to a spectrum
    /// Adds atoms by their sums of cosines and sines, each frequency multiplied by `form` of its indices along x and y, neither negative.
    fn add(&self, spectrum: &mut Spectrum, sums: &Array2<f64>, form: impl Fn(usize, usize) -> f64) {
        let (x, y) = (sums.nrows() / 2, sums.ncols() / 2);
        let points = self.grid.points()[1];
        for kx in 0..x {
            let (cos, sin, mut row) = (sums.row(kx), sums.row(x + kx), spectrum.row_mut(kx));
            for ky in 0..y {
                let form = form(kx, ky);
                let (cc, cs, sc, ss) = (cos[ky], cos[y + ky], sin[ky], sin[y + ky]);
                row[ky] += Complex::new(form * (cc - ss), -form * (cs + sc));
                if ky > 0 && 2 * ky < points {
                    row[points - ky] += Complex::new(form * (cc + ss), form * (cs - sc));
                }
            }
        }
    }

    // Turn a spectrum into a potential
    /// The potential of a spectrum, (y, x).
    fn potential(&self, mut spectrum: Spectrum) -> Array2<f64> {
        let [x, y] = self.grid.points();
        if let Some(columns) = spectrum.as_slice_mut() {
            self.along_y.process(columns);
        }
        let (mut potential, mut scratch) = (Array2::zeros((y, x)), self.along_x.make_scratch_vec());
        let mut line = vec![Complex::default(); x / 2 + 1];
        for (waves, mut row) in spectrum.columns().into_iter().zip(potential.rows_mut()) {
            line.iter_mut().zip(&waves).for_each(|(line, wave)| *line = *wave);
            (line[0].im, line[x / 2].im) = (0.0, 0.0);
            if let Some(row) = row.as_slice_mut() {
                let done = self.along_x.process_with_scratch(&mut line, row, &mut scratch);
                debug_assert!(done.is_ok());
            }
        }
        potential
    }
}

// Factors of frequencies and flat atoms
/// C f/(L_x L_y) of a factor f(q) at the frequencies that are not negative, (k_x, k_y).
fn form(grid: &WaveGrid, factor: impl Fn(f64) -> f64) -> Array2<f64> {
    let ([x, y], [width, height]) = (grid.points(), grid.lengths());
    let scale = VOLTS / (width * height);
    Array2::from_shape_fn((x / 2 + 1, y / 2 + 1), |(kx, ky)| {
        scale * factor(f64::hypot(kx as f64 / width, ky as f64 / height))
    })
}

/// Adds flat atoms to a spectrum, element by element; Eq. [potential waves](https://lenslet.github.io/lenslet/potential-waves.html#eq-potential-waves).
fn add_flat(waves: &Waves, forms: &[Array2<f64>], sites: &[Site], spectrum: &mut Spectrum) {
    let highest = waves.grid.points().map(|points| points / 2);
    for (kind, form) in forms.iter().enumerate() {
        let alike: Vec<Site> = sites.iter().filter(|site| site.kind == kind).copied().collect();
        if !alike.is_empty() {
            let sums = structure(&waves.grid, &alike, highest);
            waves.add(spectrum, &sums, |kx, ky| form[[kx, ky]]);
        }
    }
}

// Flat atoms between pixels
/// Potentials of atoms that are flat and lie where they are.
pub(super) struct Projected {
    waves: Waves,
    forms: Vec<Array2<f64>>,
    slices: Vec<Vec<Site>>,
}

impl Projected {
    pub(super) fn new(grid: WaveGrid, kinds: &[&ScatteringFactor], slices: Vec<Vec<Site>>) -> Self {
        let forms = kinds.par_iter().map(|factor| form(&grid, |q| factor.at(q))).collect();
        Self { waves: Waves::new(grid), forms, slices }
    }

    /// The potential of a slice \[V Å\], (y, x).
    pub(super) fn slice(&self, k: usize) -> Array2<f64> {
        let mut spectrum = self.waves.nothing();
        add_flat(&self.waves, &self.forms, &self.slices[k], &mut spectrum);
        self.waves.potential(spectrum)
    }
}

// Deep atoms across slices
/// Potentials of atoms as deep as they are.
pub(super) struct Sliced {
    waves: Waves,
    kinds: Vec<&'static ScatteringFactor>,
    forms: Vec<Array2<f64>>,
    /// From high to low; those of the same height stand together by their elements.
    sites: Vec<Site>,
    /// Heights of the cuts between slices \[Å\], and how many atoms lie above each.
    cuts: Vec<(f64, usize)>,
}

impl Sliced {
    pub(super) fn new(
        grid: WaveGrid,
        kinds: Vec<&'static ScatteringFactor>,
        slicing: &Slicing,
        mut sites: Vec<Site>,
    ) -> Self {
        let forms = kinds.par_iter().map(|factor| form(&grid, |q| factor.at(q))).collect();
        sites.sort_by(|a, b| b.place[2].total_cmp(&a.place[2]).then(a.kind.cmp(&b.kind)));
        let upper_face = |k: usize| slicing.bounds(k)[1];
        let above = |cut: f64| sites.partition_point(|site| site.place[2] > cut);
        let cuts = (1..slicing.count()).map(upper_face).map(|cut| (cut, above(cut))).collect();
        Self { waves: Waves::new(grid), kinds, forms, sites, cuts }
    }

    // A slice of deep atoms
    /// The potential of a slice \[V Å\], (y, x).
    pub(super) fn slice(&self, k: usize) -> Array2<f64> {
        let mut spectrum = self.waves.nothing();
        let upper = k.checked_sub(1).and_then(|above| self.cuts.get(above));
        let lower = self.cuts.get(k);
        let first = upper.map_or(0, |cut| cut.1);
        let end = lower.map_or(self.sites.len(), |cut| cut.1);
        add_flat(&self.waves, &self.forms, &self.sites[first..end], &mut spectrum);
        for (cut, sign) in [(upper, 1.0), (lower, -1.0)] {
            if let Some(&cut) = cut {
                self.add_flow(&mut spectrum, cut, sign);
            }
        }
        self.waves.potential(spectrum)
    }

    // Flow through a cut
    /// Adds `sign` times what flows down through a cut, Eq. [flow through cut](https://lenslet.github.io/lenslet/potential-waves.html#eq-flow-through-cut).
    fn add_flow(&self, spectrum: &mut Spectrum, (cut, above): (f64, usize), sign: f64) {
        let (grid, [width, height]) = (&self.waves.grid, self.waves.grid.lengths());
        let scale = VOLTS / (width * height);
        let (upper, lower) = self.sites.split_at(above);
        for (sites, sign) in [(upper, sign), (lower, -sign)] {
            let alike = |a: &Site, b: &Site| (a.place[2], a.kind) == (b.place[2], b.kind);
            for plane in sites.chunk_by(alike) {
                let (factor, z) = (self.kinds[plane[0].kind], (plane[0].place[2] - cut).abs());
                let Some(reach) = factor.highest_beyond(z) else { continue };
                let highest = [0, 1].map(|axis| {
                    let highest = (reach * grid.lengths()[axis]) as usize;
                    highest.min(grid.points()[axis] / 2)
                });
                let (sums, beyond) = (structure(grid, plane, highest), factor.beyond(z));
                self.waves.add(spectrum, &sums, |kx, ky| {
                    sign * scale * beyond(f64::hypot(kx as f64 / width, ky as f64 / height))
                });
            }
        }
    }
}

// Tests of potentials by waves
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::{Element, Factors};

    fn factor(symbol: &str) -> &'static ScatteringFactor {
        Factors::Kirkland.of(Element::of_symbol(symbol).unwrap()).unwrap()
    }

    fn largest(values: &Array2<f64>) -> f64 {
        values.iter().fold(0.0, |most: f64, value| most.max(value.abs()))
    }

    // Flat atoms agree with waves one by one
    #[test]
    fn flat_atoms_agree_with_waves_one_by_one() {
        let grid = WaveGrid::new([12, 8], [3.1, 2.9]).unwrap();
        let kinds = [factor("O"), factor("Ti")];
        let place = [[0.3, 1.7], [2.2, 0.1], [0.3, 2.85]];
        let site = |k: usize, [x, y]: [f64; 2]| Site {
            kind: k % 2,
            place: [x, y, 0.0],
            weight: 0.5 + k as f64,
        };
        let sites: Vec<Site> =
            place.into_iter().enumerate().map(|(k, place)| site(k, place)).collect();
        let found = Projected::new(grid, &kinds, vec![sites.clone()]).slice(0);
        // Both ends of the frequencies along an axis, the highest with a half each.
        let waves = |points: i32| {
            (-points / 2..=points / 2)
                .map(move |k| (k, if 2 * k.abs() == points { 0.5 } else { 1.0 }))
        };
        let at = |x: f64, y: f64| -> f64 {
            let wave = |((kx, wx), (ky, wy)): ((i32, f64), (i32, f64))| {
                let q = [f64::from(kx) / 3.1, f64::from(ky) / 2.9];
                let turn = |site: &Site| q[0] * (x - site.place[0]) + q[1] * (y - site.place[1]);
                let term = |s: &Site| {
                    s.weight * kinds[s.kind].at(f64::hypot(q[0], q[1])) * (2.0 * PI * turn(s)).cos()
                };
                wx * wy * sites.iter().map(term).sum::<f64>()
            };
            let all = waves(12).flat_map(|kx| waves(8).map(move |ky| (kx, ky)));
            VOLTS / (3.1 * 2.9) * all.map(wave).sum::<f64>()
        };
        let expected = Array2::from_shape_fn((8, 12), |(j, i)| {
            at(i as f64 * 3.1 / 12.0, j as f64 * 2.9 / 8.0)
        });
        assert!(largest(&(&found - &expected)) < 1e-13 * largest(&expected));
    }

    // Deep atoms agree with integrals along lines
    #[test]
    fn deep_atoms_agree_with_integrals_along_lines() {
        let (grid, slicing) =
            (WaveGrid::new([48, 40], [4.0, 3.0]).unwrap(), Slicing::new(8.0, 2.0).unwrap());
        for symbol in ["Si", "Au"] {
            let site = |place| Site { kind: 0, place, weight: 0.8 };
            let sites = vec![site([0.9, 2.3, 3.1]), site([2.0, 1.0, 2.9])];
            let deep = Sliced::new(grid, vec![factor(symbol)], &slicing, sites.clone());
            for (k, bounds) in
                [(0, [6.0, f64::INFINITY]), (1, [4.0, 6.0]), (3, [f64::NEG_INFINITY, 2.0])]
            {
                let slice = deep.slice(k);
                for (j, i) in [(0, 0), (31, 11), (13, 24), (7, 40)] {
                    let (x, y) = (i as f64 / 12.0, j as f64 * 3.0 / 40.0);
                    let mut sum = 0.0;
                    for site in &sites {
                        let z = bounds.map(|bound| bound - site.place[2]);
                        for (a, b) in (-9..=9).flat_map(|a| (-12..=12).map(move |b| (a, b))) {
                            let (dx, dy) = (
                                f64::from(a) * 4.0 - site.place[0],
                                f64::from(b) * 3.0 - site.place[1],
                            );
                            sum +=
                                site.weight * factor(symbol).between(f64::hypot(x + dx, y + dy), z);
                        }
                    }
                    assert!(
                        (slice[[j, i]] - sum).abs() < 1e-11 * largest(&slice),
                        "{symbol}, slice {k}"
                    );
                }
            }
        }
    }
}
