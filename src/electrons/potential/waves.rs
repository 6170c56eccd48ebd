// Tangled from book/src/potential-waves.md: edit there, or here and run cargo tangle stitch.
//! Potentials of slices as sums of waves.

// What potentials by waves stand on
use super::sites::Site;
use crate::electrons::wave_grid::WaveGrid;
use crate::numerics::erfc;
use crate::specimen::scattering::{Gaussian, NEGLIGIBLE, Pole};
use crate::specimen::{ScatteringFactor, Slicing, VOLTS};
use ndarray::{Array2, ArrayViewMut1, Axis, linalg::general_mat_mul};
use num_complex::Complex;
use rayon::prelude::*;
use realfft::{ComplexToReal, RealFftPlanner};
use rustfft::{Fft, FftPlanner};
use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::sync::{Arc, Mutex, PoisonError};

// Cosines and sines of a place
/// Adds the cosines of 2π k x/L and then the sines, for k from 0 up, `weight` times; x is `place` \[Å\] along `axis`.
///
/// The sine of the highest frequency that the grid has is left out: there it holds only half of a wave, see Eq. [highest wave](https://lenslet.github.io/lenslet/potential-waves.html#eq-highest-wave).
fn add_waves(grid: &WaveGrid, axis: usize, place: f64, weight: f64, mut row: ArrayViewMut1<f64>) {
    let (points, turns) = (grid.points()[axis], place / grid.lengths()[axis]);
    let phase = |k: usize| {
        let turn = k as f64 * turns;
        Complex::cis(2.0 * PI * (turn - turn.round()))
    };
    let first: [Complex<f64>; 16] = std::array::from_fn(phase);
    let half = row.len() / 2;
    let (mut cosines, mut sines) = row.view_mut().split_at(Axis(0), half);
    let all = cosines.iter_mut().zip(&mut sines).enumerate();
    let mut block = Complex::default();
    for (k, (cosine, sine)) in all {
        if k % 16 == 0 {
            block = weight * phase(k);
        }
        let wave = block * first[k % 16];
        *cosine += wave.re;
        *sine += if 2 * k < points { wave.im } else { 0.0 };
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
    let (x, y) = if axis == 0 { (along, across) } else { (across, along) };
    let mut sums = Array2::zeros((x.ncols(), y.ncols()));
    general_mat_mul(1.0, &x.t(), &y, 0.0, &mut sums);
    sums
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
    /// Adds atoms by their sums of cosines and sines. `form` fills a row with what each frequency is multiplied by: for an index along x, from index 0 along y; none is negative.
    fn add(
        &self,
        spectrum: &mut Spectrum,
        sums: &Array2<f64>,
        mut form: impl FnMut(usize, &mut [f64]),
    ) {
        let (x, y) = (sums.nrows() / 2, sums.ncols() / 2);
        let points = self.grid.points()[1];
        // Frequencies along y that have a negative one beside them.
        let both = y.min(points / 2) - 1;
        let mut forms = vec![0.0; y];
        for (kx, row) in
            spectrum.as_slice_mut().unwrap_or_default().chunks_mut(points).take(x).enumerate()
        {
            form(kx, &mut forms);
            let [cos, sin] = [kx, x + kx].map(|row| sums.row(row));
            let [cos, sin] = [&cos, &sin].map(|row| row.to_slice().unwrap_or_default().split_at(y));
            let quarter = |ky: usize| (forms[ky], cos.0[ky], cos.1[ky], sin.0[ky], sin.1[ky]);
            // Add waves of both signs along y
            let positive = |(form, cc, cs, sc, ss): (f64, f64, f64, f64, f64)| {
                Complex::new(form * (cc - ss), -form * (cs + sc))
            };
            for (ky, wave) in row[..y].iter_mut().enumerate() {
                *wave += positive(quarter(ky));
            }
            for (ky, wave) in (1..=both).zip(row.iter_mut().rev()) {
                let (form, cc, cs, sc, ss) = quarter(ky);
                *wave += Complex::new(form * (cc + ss), form * (cs - sc));
            }
        }
    }

    // Turn a spectrum into a potential
    /// The potential of a spectrum, (y, x).
    fn potential(&self, mut spectrum: Spectrum) -> Array2<f64> {
        let ([x, y], half) = (self.grid.points(), spectrum.nrows());
        let mut potential = vec![0.0; x * y];
        let columns = spectrum.as_slice_mut().unwrap_or_default();
        self.along_y.process(columns);
        let (mut lines, mut scratch) =
            (vec![Complex::default(); 8 * half], self.along_x.make_scratch_vec());
        for (block, rows) in potential.chunks_mut(8 * x).enumerate() {
            // Turn eight rows of a spectrum
            for (kx, column) in columns.chunks(y).enumerate() {
                for (line, wave) in column[8 * block..].iter().take(rows.len() / x).enumerate() {
                    lines[line * half + kx] = *wave;
                }
            }
            for (line, row) in lines.chunks_mut(half).zip(rows.chunks_mut(x)) {
                (line[0].im, line[half - 1].im) = (0.0, 0.0);
                let done = self.along_x.process_with_scratch(line, row, &mut scratch);
                debug_assert!(done.is_ok());
            }
        }
        Array2::from_shape_vec((y, x), potential).unwrap_or_default()
    }
}

// Factors of frequencies and flat atoms
/// C f/(L_x L_y) of a factor f(q) at the frequencies that are not negative, (k_x, k_y).
fn form(grid: &WaveGrid, factor: impl Fn(f64) -> f64) -> Array2<f64> {
    let scale = VOLTS / grid.lengths().iter().product::<f64>();
    on_quarter(grid, |q| scale * factor(q))
}

/// A function of q at the frequencies that are not negative, (k_x, k_y).
fn on_quarter(grid: &WaveGrid, f: impl Fn(f64) -> f64) -> Array2<f64> {
    let ([x, y], [width, height]) = (grid.points(), grid.lengths());
    let at = |(kx, ky)| f(f64::hypot(kx as f64 / width, ky as f64 / height));
    Array2::from_shape_fn((x / 2 + 1, y / 2 + 1), at)
}

/// Adds flat atoms to a spectrum, element by element; Eq. [potential waves](https://lenslet.github.io/lenslet/potential-waves.html#eq-potential-waves).
fn add_flat(waves: &Waves, forms: &[Array2<f64>], sites: &[Site], spectrum: &mut Spectrum) {
    let highest = waves.grid.points().map(|points| points / 2);
    for (kind, form) in forms.iter().enumerate() {
        let alike: Vec<Site> = sites.iter().filter(|site| site.kind == kind).copied().collect();
        if !alike.is_empty() {
            let sums = structure(&waves.grid, &alike, highest);
            waves.add(spectrum, &sums, |kx, row| {
                row.iter_mut().zip(form.row(kx)).for_each(|(row, form)| *row = *form);
            });
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

// Factors of deep atoms by frequency
/// What of a factor does not depend on the height, at the frequencies that are not negative, (k_x, k_y).
struct Depths {
    poles: Vec<PoleDepths>,
    /// The steepness d, and G exp(−d q²)/2 times C/(L_x L_y).
    gaussians: Vec<(f64, Array2<f64>)>,
}

/// Of a pole: β; 2π s; and, times C/(2 L_x L_y), A/s² + D/s⁴ and, where D is not zero, π D/s³.
struct PoleDepths {
    beta: f64,
    fall: Array2<f64>,
    constant: Array2<f64>,
    linear: Option<Array2<f64>>,
}

// Factors of deep atoms from their terms
impl Depths {
    fn new(grid: &WaveGrid, factor: &ScatteringFactor) -> Self {
        let pole = |pole: &Pole| {
            let (simple, double, beta) = (pole.simple, pole.double, pole.beta);
            let linear = |q: f64| 0.5 * PI * double * (q * q + beta).powf(-1.5);
            let constant = |q: f64| {
                let square = q * q + beta;
                0.5 * (simple + double / square) / square
            };
            PoleDepths {
                beta,
                fall: on_quarter(grid, |q| 2.0 * PI * (q * q + beta).sqrt()),
                constant: form(grid, constant),
                linear: (double != 0.0).then(|| form(grid, linear)),
            }
        };
        let gaussian = |term: &Gaussian| {
            let (height, d) = (term.height, term.steepness);
            (d, form(grid, |q| 0.5 * height * f64::exp(-d * q * q)))
        };
        Self {
            poles: factor.poles.iter().map(pole).collect(),
            gaussians: factor.gaussians.iter().map(gaussian).collect(),
        }
    }
}

// Factors of deep atoms beyond a height
impl Depths {
    /// Fills a row with `sign` times C U(q, z)/(L_x L_y), for an index along x and all along y from 0: Eq. [scattering beyond](https://lenslet.github.io/lenslet/scattering.html#eq-scattering-beyond).
    fn beyond(&self, z: f64) -> impl Fn(f64, usize, &mut [f64]) {
        let reaches = move |pole: &&PoleDepths| 2.0 * PI * pole.beta.sqrt() * z < NEGLIGIBLE;
        let share = move |d: f64| erfc(PI * z / d.sqrt());
        let gaussians = self.gaussians.iter().map(move |(d, height)| (share(*d), height));
        let gaussians: Vec<_> = gaussians.filter(|(share, _)| *share > 1e-18).collect();
        move |sign, kx, row| {
            row.fill(0.0);
            for pole in self.poles.iter().filter(reaches) {
                add_pole(pole, sign, z, kx, row);
            }
            for (share, height) in &gaussians {
                let heights = row.iter_mut().zip(height.row(kx));
                heights.for_each(|(row, height)| *row += sign * share * height);
            }
        }
    }
}

/// Adds the part of a pole to a row.
fn add_pole(pole: &PoleDepths, sign: f64, z: f64, kx: usize, row: &mut [f64]) {
    let (falls, constants) = (pole.fall.row(kx), pole.constant.row(kx));
    let terms = falls.iter().zip(&constants);
    if let Some(linear) = &pole.linear {
        for ((row, (fall, constant)), linear) in row.iter_mut().zip(terms).zip(linear.row(kx)) {
            *row += sign * (constant + linear * z) * f64::exp(-fall * z);
        }
    } else {
        let rows = row.iter_mut().zip(terms);
        rows.for_each(|(row, (fall, constant))| *row += sign * constant * f64::exp(-fall * z));
    }
}

// Deep atoms across slices
/// Potentials of atoms as deep as they are.
pub(super) struct Sliced {
    waves: Waves,
    kinds: Vec<&'static ScatteringFactor>,
    forms: Vec<Array2<f64>>,
    depths: Vec<Depths>,
    /// From high to low; those of the same height stand together by their elements.
    sites: Vec<Site>,
    /// Heights of the cuts between slices \[Å\], and how many atoms lie above each.
    cuts: Vec<(f64, usize)>,
    /// Flows through cuts that one of their two slices has asked for.
    known: Mutex<BTreeMap<usize, Spectrum>>,
}

// Prepare deep atoms
impl Sliced {
    pub(super) fn new(
        grid: WaveGrid,
        kinds: Vec<&'static ScatteringFactor>,
        slicing: &Slicing,
        mut sites: Vec<Site>,
    ) -> Self {
        let forms = kinds.par_iter().map(|factor| form(&grid, |q| factor.at(q))).collect();
        let depths = kinds.par_iter().map(|factor| Depths::new(&grid, factor)).collect();
        sites.sort_by(|a, b| b.place[2].total_cmp(&a.place[2]).then(a.kind.cmp(&b.kind)));
        let upper_face = |k: usize| slicing.bounds(k)[1];
        let above = |cut: f64| sites.partition_point(|site| site.place[2] > cut);
        let cuts = (1..slicing.count()).map(upper_face).map(|cut| (cut, above(cut))).collect();
        let (waves, known) = (Waves::new(grid), Mutex::default());
        Self { waves, kinds, forms, depths, sites, cuts, known }
    }
}

impl Sliced {
    // A slice of deep atoms
    /// The potential of a slice \[V Å\], (y, x).
    pub(super) fn slice(&self, k: usize) -> Array2<f64> {
        let mut spectrum = self.waves.nothing();
        let above = |cut: Option<usize>, all: usize| cut.map_or(all, |cut| self.cuts[cut].1);
        let (upper, lower) = (k.checked_sub(1), (k < self.cuts.len()).then_some(k));
        let own = above(upper, 0)..above(lower, self.sites.len());
        add_flat(&self.waves, &self.forms, &self.sites[own], &mut spectrum);
        if let Some(cut) = upper {
            spectrum += &self.flow(cut);
        }
        if let Some(cut) = lower {
            spectrum -= &self.flow(cut);
        }
        self.waves.potential(spectrum)
    }

    // Flow through a cut, made once
    /// The flow down through a cut: the one that the slice on its other side has made, or a new one.
    fn flow(&self, cut: usize) -> Spectrum {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().remove(&cut);
        found.unwrap_or_else(|| {
            let flow = self.new_flow(self.cuts[cut]);
            let mut known = known();
            if known.len() < 4 * rayon::current_num_threads() {
                known.insert(cut, flow.clone());
            }
            flow
        })
    }

    // Flow through a cut
    /// The flow down through a cut, Eq. [flow through cut](https://lenslet.github.io/lenslet/potential-waves.html#eq-flow-through-cut).
    fn new_flow(&self, (cut, above): (f64, usize)) -> Spectrum {
        let (grid, mut flow) = (&self.waves.grid, self.waves.nothing());
        let (upper, lower) = self.sites.split_at(above);
        for (sites, sign) in [(upper, 1.0), (lower, -1.0)] {
            let alike = |a: &Site, b: &Site| (a.place[2], a.kind) == (b.place[2], b.kind);
            for plane in sites.chunk_by(alike) {
                let (kind, z) = (plane[0].kind, (plane[0].place[2] - cut).abs());
                let Some(reach) = self.kinds[kind].highest_beyond(z) else { continue };
                let highest = [0, 1].map(|axis| {
                    let highest = (reach * grid.lengths()[axis]) as usize;
                    highest.min(grid.points()[axis] / 2)
                });
                let (sums, beyond) = (structure(grid, plane, highest), self.depths[kind].beyond(z));
                self.waves.add(&mut flow, &sums, |kx, row| beyond(sign, kx, row));
            }
        }
        flow
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
                        for (a, b) in (-7..=7).flat_map(|a| (-9..=9).map(move |b| (a, b))) {
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
