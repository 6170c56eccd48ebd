// Tangled from book/src/potential-waves.md: edit there, or here and run cargo tangle stitch.
//! Potentials of slices as sums of waves.

// Imports of potentials by waves
use super::sites::Site;
use crate::device::lock;
use crate::electrons::wave_grid::WaveGrid;
use crate::numerics::fft::FftPlans;
use crate::numerics::radial_table::fit_polynomial;
use crate::specimen::{ScatteringFactor, Slicing, VOLTS};
use ndarray::{Array2, ArrayViewMut1, Axis, linalg::general_mat_mul};
use num_complex::Complex;
use rayon::prelude::*;
use realfft::ComplexToReal;
use rustfft::Fft;
use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::sync::{Arc, Mutex, OnceLock};

// Cosines and sines of a place
/// Adds the cosines of 2π k x/L and then the sines, for k from 0 up, times `weight`; x is `place` \[Å\] along `axis`.
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
/// Sums over atoms of products of cosines and sines, x by y, Eq. [structure products](https://lenslet.github.io/lenslet/potential-waves.html#eq-structure-products): cosines of k from 0 to `highest` and then sines, 2 (`highest_x` + 1) by 2 (`highest_y` + 1).
struct StructureFactor {
    /// How many frequencies there are along x and y.
    frequencies: [usize; 2],
    sums: Array2<f64>,
}

impl StructureFactor {
    fn new(grid: &WaveGrid, sites: &[Site], highest: [usize; 2]) -> Self {
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
        Self { frequencies: highest.map(|highest| highest + 1), sums: x.t().dot(&y) }
    }
}

// Atoms with equal coordinates
/// Atoms with the same coordinate along `axis`: that coordinate, as bits, and the other coordinate and the weight of each.
fn lines(sites: &[Site], axis: usize) -> BTreeMap<u64, Vec<(f64, f64)>> {
    let mut lines = BTreeMap::<u64, Vec<(f64, f64)>>::new();
    for site in sites {
        let line = lines.entry(site.place[axis].to_bits()).or_default();
        line.push((site.place[1 - axis], site.weight));
    }
    lines
}

// Spectrum of a potential
/// The grid of potentials, and plans of its transforms.
struct PotentialTransforms {
    grid: WaveGrid,
    along_y: Arc<dyn Fft<f64>>,
    along_x: Arc<dyn ComplexToReal<f64>>,
}

/// Coefficients of waves, (k_x, k_y): k_x from 0 to N_x/2 and all k_y.
type PotentialSpectrum = Array2<Complex<f64>>;

impl PotentialTransforms {
    // Plans and an empty spectrum
    fn new(grid: WaveGrid) -> Self {
        let [x, y] = grid.points();
        let along_y = f64::plan_complex_inverse(y);
        let along_x = f64::plan_real_inverse(x);
        Self { grid, along_y, along_x }
    }

    /// A spectrum without waves.
    fn nothing(&self) -> PotentialSpectrum {
        let [x, y] = self.grid.points();
        Array2::zeros((x / 2 + 1, y))
    }

    // Add atoms to a spectrum
    /// Adds atoms by their structure. `form` fills a row with what each frequency is multiplied by, for an index along x, from index 0 along y, and says how much of it: the rest is zero. None is negative.
    fn add(
        &self,
        spectrum: &mut PotentialSpectrum,
        atoms: &StructureFactor,
        mut form: impl FnMut(usize, &mut [f64]) -> usize,
    ) {
        let [x, y] = atoms.frequencies;
        let mut forms = vec![0.0; y];
        let rows = spectrum.as_slice_mut().unwrap_or_default().chunks_mut(self.grid.points()[1]);
        let sums = atoms.sums.as_slice().unwrap_or_default();
        let (cosines, sines) = sums.split_at(sums.len() / 2);
        for (kx, row) in rows.take(x).enumerate() {
            let filled = form(kx, &mut forms);
            let both = [cosines, sines].map(|sums| &sums[2 * y * kx..2 * y * (kx + 1)]);
            add_row(row, both, &forms[..filled]);
        }
    }

    // Turn a spectrum into a potential
    /// The potential of a spectrum, (y, x).
    fn potential(&self, mut spectrum: PotentialSpectrum) -> Array2<f64> {
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

// Add a row of waves
/// Adds waves of both signs along y to a row of a spectrum, from products with the cosine and with the sine along x, cosines along y and then sines, times `forms`.
fn add_row(row: &mut [Complex<f64>], products: [&[f64]; 2], forms: &[f64]) {
    let [(cc, cs), (sc, ss)] = products.map(|products| products.split_at(products.len() / 2));
    // Frequencies along y that have a negative one beside them.
    let both = forms.len().min(row.len() / 2).saturating_sub(1);
    let quarter = forms.iter().zip(cc.iter().zip(cs).zip(sc.iter().zip(ss)));
    for (wave, (form, ((cc, cs), (sc, ss)))) in row.iter_mut().zip(quarter.clone()) {
        *wave += Complex::new(form * (cc - ss), -form * (cs + sc));
    }
    let negative = row.iter_mut().rev().zip(quarter.skip(1).take(both));
    for (wave, (form, ((cc, cs), (sc, ss)))) in negative {
        *wave += Complex::new(form * (cc + ss), form * (cs - sc));
    }
}

// Factors of frequencies and flat atoms
/// C/(L_x L_y).
fn volts(grid: &WaveGrid) -> f64 {
    VOLTS / grid.lengths().iter().product::<f64>()
}

/// C fₑ/(L_x L_y) of a factor fₑ(q) at the frequencies that are not negative, (k_x, k_y).
fn form(grid: &WaveGrid, factor: impl Fn(f64) -> f64) -> Array2<f64> {
    let scale = volts(grid);
    on_quarter(grid, |q| scale * factor(q))
}

// A function on a quarter of the frequencies
/// A function of q at the frequencies that are not negative, (k_x, k_y).
fn on_quarter<T>(grid: &WaveGrid, f: impl Fn(f64) -> T) -> Array2<T> {
    let ([x, y], [width, height]) = (grid.points(), grid.lengths());
    let at = |(kx, ky)| f(f64::hypot(kx as f64 / width, ky as f64 / height));
    Array2::from_shape_fn((x / 2 + 1, y / 2 + 1), at)
}

// Add flat atoms to a spectrum
/// Adds flat atoms to a spectrum, element by element; Eq. [potential waves](https://lenslet.github.io/lenslet/potential-waves.html#eq-potential-waves).
fn add_flat(
    waves: &PotentialTransforms,
    forms: &[Array2<f64>],
    sites: &[Site],
    spectrum: &mut PotentialSpectrum,
) {
    let highest = waves.grid.points().map(|points| points / 2);
    for (kind, form) in forms.iter().enumerate() {
        let alike: Vec<Site> = sites.iter().filter(|site| site.kind == kind).copied().collect();
        if !alike.is_empty() {
            let atoms = StructureFactor::new(&waves.grid, &alike, highest);
            waves.add(spectrum, &atoms, |kx, row| {
                row.iter_mut().zip(form.row(kx)).for_each(|(row, form)| *row = *form);
                row.len()
            });
        }
    }
}

// Flat atoms between pixels
/// Potentials of flat atoms at their exact positions.
pub(super) struct Projected {
    waves: PotentialTransforms,
    forms: Vec<Array2<f64>>,
    slices: Vec<Vec<Site>>,
}

impl Projected {
    pub(super) fn new(grid: WaveGrid, kinds: &[&ScatteringFactor], slices: Vec<Vec<Site>>) -> Self {
        let forms = kinds.par_iter().map(|factor| form(&grid, |q| factor.at(q))).collect();
        Self { waves: PotentialTransforms::new(grid), forms, slices }
    }

    /// The potential of a slice \[V Å\], (y, x).
    pub(super) fn slice(&self, k: usize) -> Array2<f64> {
        let mut spectrum = self.waves.nothing();
        add_flat(&self.waves, &self.forms, &self.slices[k], &mut spectrum);
        self.waves.potential(spectrum)
    }
}

// Places of frequencies on an axis
/// Coefficients of a polynomial on a piece of the axis of Eq. [radial places](https://lenslet.github.io/lenslet/deep-atoms.html#eq-radial-places), and the width of a piece.
const COEFFICIENTS: usize = 8;
const PIECE: f64 = 0.12;

/// Polynomials of a function of q, piece by piece.
type PiecewisePolynomials = Vec<[f64; COEFFICIENTS]>;

/// The frequencies of a grid on that axis.
struct Radii {
    /// q₀ \[1/Å\].
    unit: f64,
    /// The piece of each frequency that is not negative, and how far from its middle it is, in pieces: (k_x, k_y).
    places: Array2<(usize, f64)>,
}

// Frequencies by pieces of an axis
impl Radii {
    fn new(grid: &WaveGrid, kinds: &[&ScatteringFactor]) -> Self {
        let betas = kinds.iter().flat_map(|factor| &factor.poles).map(|pole| pole.beta);
        let unit = 0.7 * betas.fold(1.0, f64::min).sqrt();
        let place = |q: f64| {
            let u = (q / unit).asinh() / PIECE;
            (u as usize, u.fract() - 0.5)
        };
        Self { unit, places: on_quarter(grid, place) }
    }

    // Tabulate and look up a radial function
    /// Polynomials of a function of q, piece by piece, up to the frequency `highest`.
    fn table(&self, highest: f64, f: impl Fn(f64) -> f64) -> PiecewisePolynomials {
        let (last, _) = self.places.last().copied().unwrap_or_default();
        let pieces = last.min(((highest / self.unit).asinh() / PIECE) as usize) + 1;
        let at = |u: f64| f(self.unit * (PIECE * u).sinh());
        let piece = |k: usize| fit_polynomial(k as f64, (k + 1) as f64, at);
        (0..pieces).map(piece).collect()
    }

    /// Fills a row for an index along x, from index 0 along y, and returns how many; the rest is beyond the table.
    fn fill(&self, table: &[[f64; COEFFICIENTS]], kx: usize, row: &mut [f64]) -> usize {
        let mut filled = 0;
        for (value, (piece, u)) in row.iter_mut().zip(self.places.row(kx)) {
            let Some([a, b, c, d, e, f, g, h]) = table.get(*piece) else { break };
            let u2 = u * u;
            *value = (a + b * u) + u2 * (c + d * u) + u2 * u2 * ((e + f * u) + u2 * (g + h * u));
            filled += 1;
        }
        filled
    }
}

// Deep atoms across slices
// State of deep atoms
/// Potentials of atoms that extend along the beam.
pub(super) struct Sliced {
    waves: PotentialTransforms,
    kinds: Vec<&'static ScatteringFactor>,
    forms: Vec<Array2<f64>>,
    radii: Radii,
    /// From high to low; those of the same height are grouped by element.
    sites: Vec<Site>,
    /// Heights of the cuts between slices \[Å\], and how many atoms lie above each.
    cuts: Vec<(f64, usize)>,
    /// Flows through cuts that one of their two slices has requested.
    known: Mutex<BTreeMap<usize, Arc<OnceLock<PotentialSpectrum>>>>,
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
        let radii = Radii::new(&grid, &kinds);
        sites.sort_by(|a, b| b.place[2].total_cmp(&a.place[2]).then(a.kind.cmp(&b.kind)));
        let upper_face = |k: usize| slicing.bounds(k)[1];
        let above = |cut: f64| sites.partition_point(|site| site.place[2] > cut);
        let cuts = (1..slicing.count()).map(upper_face).map(|cut| (cut, above(cut))).collect();
        let (waves, known) = (PotentialTransforms::new(grid), Mutex::default());
        Self { waves, kinds, forms, radii, sites, cuts, known }
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
        if let Some(cut) = lower {
            spectrum -= self.shared(cut).get_or_init(|| self.flow(cut));
        }
        if let Some(cut) = upper {
            spectrum += self.shared(cut).get_or_init(|| self.flow(cut));
        }
        self.waves.potential(spectrum)
    }

    // Places of flows
    /// The entry of the flow through a cut: the one that the slice on its other side has created, or a new one.
    fn shared(&self, cut: usize) -> Arc<OnceLock<PotentialSpectrum>> {
        let mut known = lock(&self.known);
        known.remove(&cut).unwrap_or_else(|| {
            let flow = Arc::new(OnceLock::new());
            if known.len() < 4 * rayon::current_num_threads() {
                known.insert(cut, Arc::clone(&flow));
            }
            flow
        })
    }

    // Flow through a cut
    /// The flow down through a cut, Eq. [flow through cut](https://lenslet.github.io/lenslet/deep-atoms.html#eq-flow-through-cut).
    fn flow(&self, cut: usize) -> PotentialSpectrum {
        let (cut, above) = self.cuts[cut];
        let mut flow = self.waves.nothing();
        let (upper, lower) = self.sites.split_at(above);
        for (sites, sign) in [(upper, 1.0), (lower, -1.0)] {
            let mut scattered = Vec::new();
            let alike = |a: &Site, b: &Site| (a.place[2], a.kind) == (b.place[2], b.kind);
            // Flow from planes of atoms
            for plane in sites.chunk_by(alike) {
                let (kind, z) = (plane[0].kind, (plane[0].place[2] - cut).abs());
                let Some(highest) = self.highest(kind, z) else { continue };
                if plane.len() < PLANE {
                    scattered.extend(plane.iter().map(|site| (z, *site)));
                    continue;
                }
                let (atoms, table) = (
                    StructureFactor::new(&self.waves.grid, plane, highest),
                    self.table(kind, z, sign),
                );
                self.waves.add(&mut flow, &atoms, |kx, row| self.radii.fill(&table, kx, row));
            }
            for octave in octaves(&mut scattered) {
                self.add_octave(&mut flow, octave, sign);
            }
        }
        flow
    }

    // What arrives from a distance
    /// The highest frequencies along x and y at which anything of an element arrives `z` \[Å\] away from it; `None` if nothing does.
    fn highest(&self, kind: usize, z: f64) -> Option<[usize; 2]> {
        let (reach, grid) = (self.kinds[kind].highest_beyond(z)?, &self.waves.grid);
        let highest =
            |axis: usize| ((reach * grid.lengths()[axis]) as usize).min(grid.points()[axis] / 2);
        Some([0, 1].map(highest))
    }

    /// C W(q, z)/(L_x L_y) of an element, with a sign.
    fn table(&self, kind: usize, z: f64, sign: f64) -> PiecewisePolynomials {
        let (factor, scale) = (self.kinds[kind], sign * volts(&self.waves.grid));
        let beyond = factor.beyond(z);
        let table = |reach| self.radii.table(reach, |q| scale * beyond(q));
        factor.highest_beyond(z).map_or_else(PiecewisePolynomials::new, table)
    }

    // Flow from an octave
    /// Adds the flow from an octave of atoms.
    fn add_octave(&self, flow: &mut PotentialSpectrum, octave: &Octave, sign: f64) {
        let kind = octave[0].1.kind;
        let (distances, shares) = stand_ins(octave);
        let Some(highest) = self.highest(kind, distances[0]) else { return };
        let tables: Vec<PiecewisePolynomials> =
            distances.iter().map(|z| self.table(kind, *z, sign)).collect();
        // Waves of scattered atoms
        let [x, y] = [highest[0] + 1, (highest[1] + 1).next_multiple_of(LANES)];
        let waves = |axis: usize, frequencies: usize| {
            let mut waves = Array2::zeros((octave.len(), 2 * frequencies));
            for ((_, site), row) in octave.iter().zip(waves.rows_mut()) {
                add_waves(&self.waves.grid, axis, site.place[axis], [1.0, site.weight][axis], row);
            }
            waves
        };
        let (along, across, blocks) = (waves(0, x), waves(1, y), y / LANES);
        let mut forms = Array2::zeros((distances.len(), y));
        let mut mixed = Array2::zeros((octave.len(), y));
        let (mut products, ones) = (vec![[0.0; LANES]; 4 * blocks], vec![1.0; y]);
        for (kx, mut row) in flow.rows_mut().into_iter().take(x).enumerate() {
            forms.fill(0.0);
            let mut filled = 0;
            for (table, mut form) in tables.iter().zip(forms.rows_mut()) {
                let form = form.as_slice_mut().unwrap_or_default();
                filled = filled.max(self.radii.fill(table, kx, form));
            }
            general_mat_mul(1.0, &shares, &forms, 0.0, &mut mixed);
            // Sum the products of scattered atoms
            let turned = along.rows().into_iter().map(|along| [along[kx], along[x + kx]]);
            let turned: Vec<[f64; 2]> = turned.collect();
            for block in 0..blocks {
                let mut sums = [[0.0; LANES]; 4];
                let rows = in_blocks(&across).chunks_exact(2 * blocks);
                let rows = rows.zip(in_blocks(&mixed).chunks_exact(blocks));
                for ([cos_x, sin_x], (across, mixed)) in turned.iter().zip(rows) {
                    let [form, cos, sin] = [mixed[block], across[block], across[blocks + block]];
                    for lane in 0..LANES {
                        let [cos, sin] =
                            [cos, sin].map(|wave: [f64; LANES]| form[lane] * wave[lane]);
                        sums[0][lane] += cos_x * cos;
                        sums[1][lane] += cos_x * sin;
                        sums[2][lane] += sin_x * cos;
                        sums[3][lane] += sin_x * sin;
                    }
                }
                (0..4).for_each(|part| products[part * blocks + block] = sums[part]);
            }
            let (cosines, sines) = products.as_flattened().split_at(2 * y);
            add_row(row.as_slice_mut().unwrap_or_default(), [cosines, sines], &ones[..filled]);
        }
    }
}

// Octaves of scattered atoms
/// Planes of fewer atoms are not summed as planes.
const PLANE: usize = 4;

/// Atoms of one element whose distances from a cut \[Å\] lie within an octave, the nearest first.
type Octave = [(f64, Site)];

/// Sorts atoms by element and octave, at most 128 atoms together, so that their intermediate results stay in the caches.
fn octaves(atoms: &mut [(f64, Site)]) -> Vec<&Octave> {
    atoms.sort_by(|(a, one), (b, other)| one.kind.cmp(&other.kind).then(a.total_cmp(b)));
    let (mut octaves, mut rest) = (Vec::new(), &*atoms);
    while let Some((nearest, first)) = rest.first() {
        let within = |(z, site): &&(f64, Site)| site.kind == first.kind && *z <= 2.0 * nearest;
        let count = rest.iter().take(128).take_while(within).count();
        let (octave, beyond) = rest.split_at(count);
        octaves.push(octave);
        rest = beyond;
    }
    octaves
}

// Distances that stand for others
/// The distances of Eq. [stand ins](https://lenslet.github.io/lenslet/deep-atoms.html#eq-stand-ins), and the shares of an octave's atoms, (atom, distance).
fn stand_ins(octave: &Octave) -> (Vec<f64>, Array2<f64>) {
    let mut distances: Vec<f64> = octave.iter().map(|(z, _)| *z).collect();
    distances.dedup();
    let [near, far] = [distances[0], distances[distances.len() - 1]];
    let (centre, half) = (0.5 * (near + far), 0.5 * (far - near));
    // Of Eq. [eq:touching-ellipse]
    let rho = (centre + (near * far).sqrt()) / half;
    let enough = (1e13_f64.ln() / rho.ln()).ceil().max(1.0);
    if enough < distances.len() as f64 {
        let angle = |m: usize| (m as f64 + 0.5) * PI / enough;
        distances = (0..enough as usize).map(|m| centre - half * angle(m).cos()).collect();
    }
    // Shares of distances in atoms
    let weight = |m: usize| {
        let others = distances.iter().enumerate().filter(|(j, _)| *j != m);
        others.map(|(_, other)| half / (distances[m] - other)).product()
    };
    let weights: Vec<f64> = (0..distances.len()).map(weight).collect();
    let mut shares = Array2::zeros((octave.len(), distances.len()));
    for ((z, _), mut shares) in octave.iter().zip(shares.rows_mut()) {
        if let Some(m) = distances.iter().position(|distance| distance == z) {
            shares[m] = 1.0;
            continue;
        }
        let terms =
            weights.iter().zip(&distances).map(|(weight, distance)| weight / (z - distance));
        shares.iter_mut().zip(terms).for_each(|(share, term)| *share = term);
        shares /= shares.sum();
    }
    (distances, shares)
}

// Blocks of frequencies
/// Frequencies that are summed at a time.
const LANES: usize = 4;

/// Rows in blocks of frequencies.
fn in_blocks(rows: &Array2<f64>) -> &[[f64; LANES]] {
    rows.as_slice().unwrap_or_default().as_chunks().0
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

    // Scattered atoms are the sum of each alone
    #[test]
    fn scattered_atoms_are_the_sum_of_each_alone() {
        let (grid, slicing) =
            (WaveGrid::new([40, 36], [3.1, 2.3]).unwrap(), Slicing::new(6.0, 2.0).unwrap());
        let kinds = vec![factor("O"), factor("Au")];
        let site = |k: usize| {
            let part = |step: f64| (step * k as f64).fract();
            let place = [3.1 * part(0.618), 2.3 * part(0.414), 2.4 + 1.5 * part(0.236)];
            Site { kind: k % 2, place, weight: 0.5 + part(0.732) }
        };
        let mut sites: Vec<Site> = (0..90).map(site).collect();
        // Planes, one of them on a cut.
        sites[20..26].iter_mut().for_each(|site| site.place[2] = 3.3);
        sites[30..40].iter_mut().for_each(|site| site.place[2] = 4.0);
        let slices = |sites: &[Site]| {
            let deep = Sliced::new(grid, kinds.clone(), &slicing, sites.to_vec());
            [0, 1, 2].map(|k| deep.slice(k))
        };
        let (together, each) = (slices(&sites), sites.iter().map(|site| slices(&[*site])));
        let sum = each.reduce(|sum, one| [0, 1, 2].map(|k| &sum[k] + &one[k])).unwrap();
        for (together, sum) in together.iter().zip(&sum) {
            let off = largest(&(together - sum)) / largest(sum);
            assert!(off < 1e-12, "{off:e}");
        }
        let mut atoms: Vec<_> = sites.iter().map(|site| (site.place[2] - 2.0, *site)).collect();
        let octaves = octaves(&mut atoms);
        let stand_ins: Vec<_> = octaves.iter().map(|octave| stand_ins(octave).1.dim()).collect();
        assert!(stand_ins.iter().any(|(atoms, distances)| distances < atoms), "{stand_ins:?}");
    }
}
