// Tangled from book/src/wavefront-spectral.md: edit there, or here and run cargo tangle stitch.
//! Wavefront–slope covariance from the power spectrum, folded before its Fourier transform.

// Imports of the spectral wavefront method
use crate::device::{Workers, gather};
use crate::error::{Error, Invalid};
use crate::numerics::fft::FftPlans;
use crate::numerics::quadrature::{Rule, gauss_legendre};
use crate::numerics::radial_table::RadialTable;
use crate::turbulence::phase::{VonKarman, spectrum_constant};
use crate::turbulence::slope::share_equals;
use crate::turbulence::spectral::error::{
    Chosen, Trial, farthest, range_of, share_of, spectrum_beyond,
};
use crate::turbulence::spectral::slope::{
    SpectralSampling, Wave, add_with_mirror_image, fold, sincs,
};
use crate::turbulence::wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
use crate::watch::{Part, Watch};
use ndarray::Array5;
use num_complex::Complex64;
use rayon::prelude::*;
use rustfft::Fft;
use std::{f64::consts::PI, sync::Arc};

// Wavefront slope covariance, spectrally
/// Wavefront–slope covariance from its power spectrum, Eq. [folded cross spectrum](https://lenslet.github.io/lenslet/wavefront-spectral.html#eq-folded-cross-spectrum); m rad.
///
/// `sampling` has κ samples of the covariance per step of the lattice, not per lenslet. `watch` counts rows and columns of
/// all lattices.
///
/// # Errors
/// `Invalid` where the folded transform is shorter than the lags of a lattice; `Cancelled` if `watch` requests a stop.
pub fn covariance(
    problem: &WavefrontProblem,
    sampling: &SpectralSampling,
    watch: &dyn Watch,
) -> Result<WavefrontSlope, Error> {
    check(problem, sampling)?;
    // Transform one lattice after another
    let rows = sampling.folded() / 2 + 1;
    let steps = |layers: &[WavefrontLayer]| rows + problem.lags(&layers[0]);
    let total: usize = problem.lattices().map(steps).sum();
    let (mut lattices, mut before) = (Vec::new(), 0);
    for layers in problem.lattices() {
        let spectrum = CrossSpectrum::new(problem, layers, sampling);
        lattices.push(spectrum.transform(&Part { whole: watch, before, total })?);
        before += steps(layers);
    }
    Ok(WavefrontSlope::of_lattices(lattices))
}

// Refuse transforms shorter than lags
/// Refuses a folded transform that is shorter than the lags of a lattice.
pub(crate) fn check(
    problem: &WavefrontProblem,
    sampling: &SpectralSampling,
) -> Result<(), Invalid> {
    let (lenslets, points) = (problem.lenslets(), widest(problem).points);
    let grids = format_args!("{lenslets} lenslets and {points} points");
    sampling.check(grids, problem.lags(widest(problem)))
}

// Count the memory of a cross spectrum
/// A layer whose lattice has the most lags.
pub(crate) fn widest(problem: &WavefrontProblem) -> &WavefrontLayer {
    let layers = problem.layers();
    layers.iter().fold(&layers[0], |one, other| if other.points > one.points { other } else { one })
}

/// Working memory in bytes of [`covariance`]: the result; and of a lattice, rows (16 F K a pair), columns (16 K² a pair), and
/// waves (16 N_F a layer and pair).
pub fn memory(problem: &WavefrontProblem, sampling: &SpectralSampling) -> u64 {
    let pairs = (problem.targets() * problem.stars()) as f64;
    let (lags, folded) = (problem.lags(widest(problem)) as f64, sampling.folded() as f64);
    let layers = if problem.is_layered() { 1 } else { problem.layers().len() };
    let waves = sampling.samples() as f64 * layers as f64;
    let lattice = 16.0 * pairs * (folded * lags + lags * lags + waves);
    (8.0 * problem.len() as f64 + lattice) as u64 // saturates
}

// Folded cross spectrum of a lattice
/// The tables from which a row of the folded spectrum of a lattice is made.
struct CrossSpectrum {
    /// F.
    folded: usize,
    /// N_F/2.
    half: usize,
    /// K.
    lags: usize,
    targets: usize,
    stars: usize,
    /// sinc(o n/F) for n = 0 … N_F/2.
    lenslet: Vec<f64>,
    /// t^(−11/6).
    power: RadialTable,
    layers: Vec<WavefrontLayerSpectrum>,
    fft: Arc<dyn Fft<f64>>,
}

// Cross spectrum of a single layer
struct WavefrontLayerSpectrum {
    /// Step of the frequency Δ, m⁻¹.
    step: f64,
    /// 1/L0², m⁻².
    cut: f64,
    /// 2π c_W σ' Δ².
    scale: f64,
    /// R, m.
    disc: f64,
    /// For each target and guide star, the waves along x and y.
    waves: Vec<[Wave; 2]>,
}

// Prepare a layer's cross spectrum
impl WavefrontLayerSpectrum {
    fn new(
        problem: &WavefrontProblem,
        layer: &WavefrontLayer,
        sampling: &SpectralSampling,
    ) -> Self {
        let (step, scale) = step_and_scale(layer, sampling.folded());
        let stars = problem.stars();
        let wave = |pair: usize| {
            let first = problem.first_lag(layer, pair / stars, pair % stars);
            first.map(|first| Wave::new(step * first, sampling.samples() / 2))
        };
        Self {
            step,
            cut: layer.outer_scale.powi(-2),
            scale,
            disc: layer.disc,
            waves: (0..problem.targets() * stars).map(wave).collect(),
        }
    }
}

// Step and scale of wavefronts
/// Step of the frequency Δ \[m⁻¹\] at a layer for the folded length F, and 2π c_W σ' Δ².
pub(crate) fn step_and_scale(layer: &WavefrontLayer, folded: usize) -> (f64, f64) {
    let step = 1.0 / (layer.step * folded as f64);
    (step, 2.0 * PI * spectrum_constant() * layer.slope_strength * step * step)
}

// Rows and columns of a cross spectrum
impl CrossSpectrum {
    // Prepare the tables of the cross spectrum
    fn new(
        problem: &WavefrontProblem,
        layers: &[WavefrontLayer],
        sampling: &SpectralSampling,
    ) -> Self {
        let (folded, half) = (sampling.folded(), sampling.samples() / 2);
        let lags = problem.lags(&layers[0]);
        let prepare = |layer| WavefrontLayerSpectrum::new(problem, layer, sampling);
        let layers: Vec<WavefrontLayerSpectrum> = layers.par_iter().map(prepare).collect();
        // Bound the sums in the power
        let lowest = |layer: &WavefrontLayerSpectrum| layer.step.powi(2) + layer.cut;
        let highest =
            |layer: &WavefrontLayerSpectrum| 2.0 * (half as f64 * layer.step).powi(2) + layer.cut;
        let low = layers.iter().map(lowest).fold(f64::INFINITY, f64::min);
        let high = layers.iter().map(highest).fold(0.0, f64::max);
        Self {
            folded,
            half,
            lags,
            targets: problem.targets(),
            stars: problem.stars(),
            lenslet: sincs(sampling, problem.grid().oversampling),
            power: RadialTable::new(low, high, |t| t.powf(-11.0 / 6.0)),
            layers,
            fft: f64::plan_complex_inverse(folded),
        }
    }

    // Transform rows and columns of a lattice
    /// The lattice (T, S, 2, K, K), m rad.
    fn transform(&self, watch: &dyn Watch) -> Result<Array5<f64>, Error> {
        let rows = self.folded / 2 + 1;
        let part = |before| Part { whole: watch, before, total: rows + self.lags };
        let row = |spectrum: &Self, j| Ok(spectrum.row(j));
        let rows = gather(Workers::cores(self), 0..rows, &part(0), row)?;
        let column = |spectrum: &Self, i| Ok(spectrum.column(&rows, i));
        let columns = gather(Workers::cores(self), 0..self.lags, &part(rows.len()), column)?;
        let shape = (self.targets, self.stars, 2, self.lags, self.lags);
        Ok(Array5::from_shape_fn(shape, |(t, q, a, j, i)| {
            columns[i][(2 * (t * self.stars + q) + a) * self.lags + j]
        }))
    }

    // One row of the cross spectrum
    /// Row `j` of both components of each pair, transformed along x; (2 pairs, K).
    fn row(&self, j: usize) -> Vec<Complex64> {
        let pairs = self.targets * self.stars;
        let mut fields = vec![Complex64::ZERO; 2 * pairs * self.folded];
        let mut weights = [(); 2].map(|()| vec![0.0; self.half + 1]);
        let mut folded = Wave { re: vec![0.0; self.folded], im: vec![0.0; self.folded] };
        let first = ((j + self.half) % self.folded) as isize - self.half as isize;
        for layer in &self.layers {
            for m in (first..=self.half as isize).step_by(self.folded) {
                self.weigh(layer, m.unsigned_abs(), &mut weights);
                for (waves, fields) in layer.waves.iter().zip(fields.chunks_mut(2 * self.folded)) {
                    // Fold the row of a pair
                    let (wave, f_y) = (Complex64::I * waves[1].at(m), m as f64 * layer.step);
                    for (a, field) in fields.chunks_mut(self.folded).enumerate() {
                        fold(&weights[a], &waves[0].re, &mut folded.re);
                        fold(&weights[a], &waves[0].im, &mut folded.im);
                        let factors = if a == 0 { [wave, -wave] } else { [wave * f_y; 2] };
                        add_with_mirror_image(&folded, factors, field);
                    }
                }
            }
        }
        self.set_the_corner_right(j, &mut fields);
        self.fft.process(&mut fields);
        fields.chunks(self.folded).flat_map(|field| &field[..self.lags]).copied().collect()
    }

    // Weigh the frequencies of the cross spectrum
    /// Weights of the frequencies (n, m), n = 0 … N_F/2, times f_x and plain.
    fn weigh(&self, layer: &WavefrontLayerSpectrum, m: usize, weights: &mut [Vec<f64>; 2]) {
        let f_y = m as f64 * layer.step;
        let scale = layer.scale * self.lenslet[m] * if m == self.half { 0.5 } else { 1.0 };
        let [first, plain] = weights;
        for n in usize::from(m == 0)..=self.half {
            let f_x = n as f64 * layer.step;
            let square = f_x * f_x + f_y * f_y;
            let (power, _) = self.power.value_and_slope(square + layer.cut);
            plain[n] = scale * self.lenslet[n] * power * disc_transfer(layer.disc * square.sqrt());
            first[n] = plain[n] * f_x;
        }
        for weights in [first, plain] {
            weights[0] *= if m == 0 { 0.0 } else { 0.5 };
            weights[self.half] *= 0.5;
        }
    }

    // Correct Nyquist's corner of wavefronts
    /// Replaces the mean over four corners by that over two, in the bin where they fold to.
    fn set_the_corner_right(&self, j: usize, fields: &mut [Complex64]) {
        let bin = self.half % self.folded;
        if j != bin {
            return;
        }
        for layer in &self.layers {
            let f = self.half as f64 * layer.step;
            let (power, _) = self.power.value_and_slope(2.0 * f * f + layer.cut);
            let disc = disc_transfer(layer.disc * f * 2f64.sqrt());
            let corner = layer.scale * f * self.lenslet[self.half].powi(2) * power * disc;
            for (waves, fields) in layer.waves.iter().zip(fields.chunks_mut(2 * self.folded)) {
                let [x, y] = [0, 1].map(|axis| waves[axis].at(self.half as isize));
                let differences = [-x.re * y.im, -x.im * y.re];
                for (field, difference) in fields.chunks_mut(self.folded).zip(differences) {
                    field[bin] += corner * difference;
                }
            }
        }
    }

    // Columns of the wavefront's lags
    /// Lags along y of the column of index `i`, for each field; (2 pairs, K).
    fn column(&self, rows: &[Vec<Complex64>], i: usize) -> Vec<f64> {
        let mut lags = vec![0.0; 2 * self.targets * self.stars * self.lags];
        let mut packed = vec![Complex64::ZERO; self.folded];
        for (pair, lags) in lags.chunks_mut(2 * self.lags).enumerate() {
            for (j, row) in rows.iter().enumerate() {
                let [x, y] = [0, 1].map(|a| row[(2 * pair + a) * self.lags + i]);
                packed[(self.folded - j) % self.folded] = x.conj() + Complex64::I * y.conj();
                packed[j] = x + Complex64::I * y;
            }
            self.fft.process(&mut packed);
            let (along_x, along_y) = lags.split_at_mut(self.lags);
            for ((x, y), value) in along_x.iter_mut().zip(along_y).zip(&packed) {
                (*x, *y) = (value.re, value.im);
            }
        }
        lags
    }
}

// Mean of waves over a disc
/// A of Eq. [cross spectrum](https://lenslet.github.io/lenslet/wavefront-spectral.html#eq-cross-spectrum) for `cycles` = R f: the transform of a disc of unit weight.
fn disc_transfer(cycles: f64) -> f64 {
    let z = 2.0 * PI * cycles;
    if z == 0.0 { 1.0 } else { 2.0 * libm::j1(z) / z }
}

// Error of the wavefront's sampling
// What truncation takes from the wavefront
/// The largest error that the end of the spectrum makes in one layer, Eq. [largest wavefront truncation](https://lenslet.github.io/lenslet/wavefront-spectral-error.html#eq-largest-wavefront-truncation); m rad.
fn truncation(layer: &WavefrontLayer, samples_per_side: usize) -> f64 {
    let edge = 0.5 * samples_per_side as f64;
    let z = 2.0 * PI * layer.disc * edge / layer.side;
    let disc = ((2.0 / PI).sqrt() * z.powf(-1.5)).min(1.0);
    let tail = spectrum_beyond(edge, layer.side / layer.outer_scale);
    let other_axis = 1.1;
    2.0 * other_axis
        * layer.slope_strength
        * spectrum_constant()
        * layer.side.powf(2.0 / 3.0)
        * tail
        * disc
}

// Half structure of the phase from a table
/// S, half the structure function, and its slope over distance S₁, from a table over t = r².
struct Falls {
    near: f64,
    far: f64,
    table: RadialTable,
}

impl Falls {
    /// Half the structure function for footprints of sides between two, metres.
    fn new(outer_scale: f64, [least, most]: [f64; 2]) -> Self {
        let phase = VonKarman::new(outer_scale);
        let near = (least / 32.0).powi(2);
        let far = farthest(outer_scale, most).powi(2).max(2.0 * near);
        let table = RadialTable::new(near, far, |t| phase.half_structure_and_half_mean(t.sqrt()).0);
        Self { near, far, table }
    }

    // Look up half structure and slope
    /// S in rad² and S₁ in rad² m⁻² at the displacement \[x, y\] in metres.
    fn at(&self, [x, y]: [f64; 2]) -> (f64, f64) {
        let t = x * x + y * y;
        if t < self.near {
            let half_structure =
                self.table.value_and_slope(self.near).0 * (t / self.near).powf(5.0 / 6.0);
            return (half_structure, 5.0 / 3.0 * half_structure / t.max(f64::MIN_POSITIVE));
        }
        let (half_structure, slope) = self.table.value_and_slope(t.min(self.far));
        (half_structure, if t < self.far { 2.0 * slope } else { 0.0 })
    }

    // Integrate half the structure function along a square
    /// ∮ S n_a ds around the square of half side `half` centred at `r`, by Gauss's `rule`; rad² m.
    fn around(&self, r: [f64; 2], half: f64, rule: &Rule) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
            for sign in [-1.0, 1.0] {
                let (out, along) = (sign * half, node * half);
                sum[0] += sign * weight * half * self.at([r[0] + out, r[1] + along]).0;
                sum[1] += sign * weight * half * self.at([r[0] + along, r[1] + out]).0;
            }
        }
        sum
    }

    // Sum the copies for the wavefront
    /// E of Eq. [wavefront copies](https://lenslet.github.io/lenslet/wavefront-spectral-error.html#eq-wavefront-copies) for unit strength at the displacement `r`, rad² m⁻¹.
    fn copies(&self, period: f64, r: [f64; 2], rule: &Rule) -> [f64; 2] {
        const COPIES: i32 = 2;
        let flux = self.around(r, (f64::from(COPIES) + 0.5) * period, rule);
        let mut sum = flux.map(|flux| flux / (period * period));
        for (n, m) in (-COPIES..=COPIES).flat_map(|n| (-COPIES..=COPIES).map(move |m| (n, m))) {
            if (n, m) != (0, 0) {
                let copy = [r[0] + f64::from(n) * period, r[1] + f64::from(m) * period];
                let (_, p) = self.at(copy);
                (0..2).for_each(|a| sum[a] -= p * copy[a]);
            }
        }
        sum
    }
}

// Errors that a sampling of the wavefront makes
/// What the estimates need of a problem: the table of each layer's outer scale.
struct Estimate<'a> {
    problem: &'a WavefrontProblem,
    half_structures: Vec<Arc<Falls>>,
}

impl<'a> Estimate<'a> {
    fn new(problem: &'a WavefrontProblem) -> Self {
        let layers = problem.layers();
        let sides = range_of(layers.iter().map(|layer| layer.side));
        let scales = layers.iter().map(|layer| layer.outer_scale);
        let half_structures = share_equals(scales, |outer_scale| Falls::new(outer_scale, sides));
        Self { problem, half_structures }
    }

    // Take the worst of all lattices
    /// The largest of what `of` gives for a lattice (its layers with their tables), a target and a guide star.
    fn worst(&self, of: impl Fn(&[(WavefrontLayer, &Falls)], usize, usize) -> f64 + Sync) -> f64 {
        let layers = self.problem.layers().iter().zip(&self.half_structures);
        let layers: Vec<_> =
            layers.map(|(layer, half_structures)| (*layer, half_structures.as_ref())).collect();
        let length = if self.problem.is_layered() { 1 } else { layers.len() };
        let of_lattice = |lattice: &[(WavefrontLayer, &Falls)]| {
            let stars = self.problem.stars();
            let pairs = (0..self.problem.targets() * stars).map(|k| (k / stars, k % stars));
            pairs.map(|(t, q)| of(lattice, t, q)).fold(0.0, f64::max)
        };
        layers.par_chunks(length).map(of_lattice).reduce(|| 0.0, f64::max)
    }
    /// The largest error by truncation of any lattice, m rad.
    fn truncation(&self, oversampling: usize) -> f64 {
        let samples_per_side = oversampling * self.problem.grid().oversampling;
        self.worst(|layers, t, q| {
            let share = |(layer, _): &(WavefrontLayer, &Falls)| {
                self.share_at_edges(layer, t, q) * truncation(layer, samples_per_side)
            };
            layers.iter().map(share).sum()
        })
    }

    // See whether the edges are met at corners only
    /// One half where a lattice meets the edges of a lenslet at its corners only, else 1.
    fn share_at_edges(&self, layer: &WavefrontLayer, t: usize, q: usize) -> f64 {
        let from_axis = |first: f64| {
            let place = first / layer.step;
            (place - place.round()).abs() * layer.step / layer.side
        };
        let [x, y] = self.problem.first_lag(layer, t, q).map(from_axis);
        if x.min(y) > 0.5 - 1e-6 { 0.5 } else { 1.0 }
    }

    // Estimate the wavefront's periodisation
    /// The largest |E| of all lattices, pairs, components and lags for the folded length F, m rad.
    fn periodisation(&self, folded: usize) -> f64 {
        let rule = gauss_legendre(12);
        let places = (0..9).map(|k| [f64::from(k % 3) / 2.0, f64::from(k / 3) / 2.0]);
        let places: Vec<[f64; 2]> = places.collect();
        self.worst(|layers, t, q| {
            let at = |place: &[f64; 2]| {
                let last = (self.problem.lags(&layers[0].0) - 1) as f64;
                let share = |(layer, half_structures): &(WavefrontLayer, &Falls)| {
                    let first = self.problem.first_lag(layer, t, q);
                    let r = [0, 1].map(|a| first[a] + place[a] * last * layer.step);
                    let copies = half_structures.copies(layer.step * folded as f64, r, &rule);
                    copies.map(|error| layer.slope_strength * error)
                };
                let [x, y] = layers.iter().map(share).fold([0.0; 2], add);
                x.abs().max(y.abs())
            };
            places.iter().map(at).fold(0.0, f64::max)
        })
    }

    // Estimate the largest entry
    /// The largest entry of all lattices, m rad, to a few per cent.
    fn largest(&self) -> f64 {
        let rule = gauss_legendre(6);
        self.worst(|layers, t, q| {
            // Find the cross through zero displacement
            let strength = |layer: &WavefrontLayer| layer.slope_strength;
            let strongest = layers.iter().map(|(layer, _)| layer);
            let Some(strongest) = strongest.max_by(|a, b| strength(a).total_cmp(&strength(b)))
            else {
                return 0.0;
            };
            let last = (self.problem.lags(strongest) - 1) as f64;
            let first = self.problem.first_lag(strongest, t, q);
            let nearest = first.map(|first| (-first / strongest.step).round().clamp(0.0, last));
            let last = self.problem.lags(&layers[0].0);
            let along = |axis: usize, k: usize| {
                let share = |(layer, half_structures): &(WavefrontLayer, &Falls)| {
                    let mut r = self.problem.first_lag(layer, t, q);
                    r[axis] += k as f64 * layer.step;
                    r[1 - axis] += nearest[1 - axis] * layer.step;
                    layer.slope_strength * disc_mean(half_structures, layer, r, &rule)[axis]
                };
                layers.iter().map(share).sum::<f64>().abs()
            };
            let lags = (0..2).flat_map(|axis| (0..last).map(move |k| (axis, k)));
            lags.map(|(axis, k)| along(axis, k)).fold(0.0, f64::max)
        })
    }
}

// Add two pairs of numbers
fn add(one: [f64; 2], other: [f64; 2]) -> [f64; 2] {
    [one[0] + other[0], one[1] + other[1]]
}

// Average the copies over a disc
/// c for unit strength at the displacement `r`, averaged over the layer's disc, rad² m⁻¹; |c| to a few per cent.
fn disc_mean(
    half_structures: &Falls,
    layer: &WavefrontLayer,
    r: [f64; 2],
    rule: &Rule,
) -> [f64; 2] {
    const RINGS: usize = 3;
    const DIRECTIONS: usize = 8;
    let (rings, directions) = if layer.disc > 0.0 { (RINGS, DIRECTIONS) } else { (1, 1) };
    let mut sum = [0.0; 2];
    for (ring, direction) in (0..rings).flat_map(|k| (0..directions).map(move |l| (k, l))) {
        let radius = layer.disc * ((ring as f64 + 0.5) / rings as f64).sqrt();
        let (sin, cos) = (2.0 * PI * (direction as f64 + 0.5) / directions as f64).sin_cos();
        let r = [r[0] + radius * cos, r[1] + radius * sin];
        sum = add(sum, half_structures.around(r, 0.5 * layer.side, rule));
    }
    sum.map(|sum| -sum / (layer.side.powi(2) * (rings * directions) as f64))
}

// Estimate the wavefront's sampling error
/// Estimates the largest error of any entry that a sampling makes, in units of the largest entry.
pub fn error_estimate(problem: &WavefrontProblem, sampling: &SpectralSampling) -> f64 {
    let estimate = Estimate::new(problem);
    let truncation = estimate.truncation(sampling.oversampling());
    share_of(truncation + estimate.periodisation(sampling.folded()), estimate.largest())
}

// Choose the sampling for the wavefront
/// Chooses the sampling whose error stays below [`crate::turbulence::spectral::error::TOLERANCE`] of the largest entry, or the best that
/// fits 1 GiB and a bounded time; says which.
///
/// ```
/// # use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
/// # use lenslet::model::PhaseGrid;
/// # use lenslet::turbulence::{WavefrontProblem, spectral};
/// let atmosphere = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 30.0)])?;
/// let (array, grid) = (LensletArray::new(20, 0.1)?, PhaseGrid::new(21, 1, 0.0)?);
/// let sources = (&[Source::star(0.0, 0.0)?][..], &[Source::star(0.0, 0.0)?][..]);
/// let problem = WavefrontProblem::new(&atmosphere, &array, sources, grid, ConeGradient::Pupil)?;
/// let chosen = spectral::wavefront::choose(&problem);
/// assert_eq!((chosen.sampling.samples(), chosen.sampling.oversampling()), (3240, 6));
/// // The larger systems of the table below.
/// for (name, samples, oversampling) in [("keck-lgs", 1620, 6), ("elt", 1536, 8)] {
///     let path = format!("book/systems/{name}.toml");
///     let system = lenslet::model::System::from_toml(&std::fs::read_to_string(&path).unwrap(), &path)?;
///     let chosen = spectral::wavefront::choose(&lenslet::turbulence::wavefront_problem(&system)?);
///     assert_eq!((chosen.sampling.samples(), chosen.sampling.oversampling()), (samples, oversampling));
/// }
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn choose(problem: &WavefrontProblem) -> Chosen {
    let estimate = Estimate::new(problem);
    let largest = estimate.largest();
    // Try samplings for the wavefront
    let trial = Trial {
        lags: problem.lags(widest(problem)),
        truncation: &|oversampling| share_of(estimate.truncation(oversampling), largest),
        copies: &|folded| share_of(estimate.periodisation(folded), largest),
        cost: &|sampling| (work(problem, sampling), memory(problem, sampling)),
        unit: "largest entry",
    };
    trial.choose()
}

// Count the work of a cross spectrum
/// Work of a sampling in units of some nanoseconds of one core.
pub(crate) fn work(problem: &WavefrontProblem, sampling: &SpectralSampling) -> f64 {
    let pairs = (problem.targets() * problem.stars()) as f64;
    let weight = |layer: &WavefrontLayer| if layer.disc > 0.0 { 12.0 } else { 4.0 };
    let sample: f64 = problem.layers().iter().map(|layer| weight(layer) + 0.7 * pairs).sum();
    let transforms = 8.0 * pairs * problem.lattices().len() as f64;
    0.25 * (sampling.samples() as f64).powi(2) * sample
        + (sampling.folded() as f64).powi(2) * transforms
}

// Tests of the spectral wavefront method
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::numerics::special::sinc;
    use crate::watch::unwatched;
    use ndarray::s;

    // Pose a lopsided problem for cross spectra
    fn problem(
        lenslets: usize,
        grid: (usize, usize, f64),
        height: f64,
        targets: &[Source],
        outer_scale: f64,
    ) -> WavefrontProblem {
        let layers = vec![Layer::new(9000.0, 0.3, 11.0), Layer::new(200.0, 0.7, outer_scale)];
        let atmosphere = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let star = |zenith, azimuth| Source::new(zenith, azimuth, height).unwrap();
        let stars = [star(1.5e-4, 4.4), star(5e-5, 1.0)];
        let array = LensletArray::new(lenslets, 0.4).unwrap();
        let grid = PhaseGrid::new(grid.0, grid.1, grid.2).unwrap();
        let sources = (targets, &stars[..]);
        WavefrontProblem::new(&atmosphere, &array, sources, grid, ConeGradient::Pupil).unwrap()
    }

    // Add all samples one by one
    /// The real part of the unfolded sum for one lattice, target, star, component and lag.
    fn plain_sum(
        problem: &WavefrontProblem,
        sampling: &SpectralSampling,
        layers: &[WavefrontLayer],
        [t, q, a, j, i]: [usize; 5],
    ) -> f64 {
        let (half, mut sum) = (sampling.samples() as isize / 2, 0.0);
        for layer in layers {
            let phase = VonKarman::new(layer.outer_scale);
            let first = problem.first_lag(layer, t, q);
            let r = [first[0] + i as f64 * layer.step, first[1] + j as f64 * layer.step];
            let step = 1.0 / (layer.step * sampling.folded() as f64);
            let plane = (-half..half).flat_map(|m| (-half..half).map(move |n| [n, m]));
            for f in plane.filter(|sample| *sample != [0, 0]).map(|s| s.map(|n| n as f64 * step)) {
                let square = f[0] * f[0] + f[1] * f[1];
                let lenslet = sinc(layer.side * f[0]) * sinc(layer.side * f[1]);
                let disc = disc_transfer(layer.disc * square.sqrt());
                let wave = f64::sin(2.0 * PI * (f[0] * r[0] + f[1] * r[1]));
                let weight = layer.slope_strength * step * step * phase.power_spectrum(square);
                sum -= weight * 2.0 * PI * f[a] * lenslet * disc * wave;
            }
        }
        sum
    }

    // Compare two lenslets and two points
    #[test]
    fn two_lenslets_and_two_points_agree_with_a_sum_by_hand() {
        let atmosphere = Atmosphere::new(1.0, 2e-6 * PI, vec![Layer::new(0.0, 1.0, 1.0)]).unwrap();
        let (array, grid) =
            (LensletArray::new(2, 1.0).unwrap(), PhaseGrid::new(2, 1, 0.0).unwrap());
        let star = [Source::star(0.0, 0.0).unwrap()];
        let sources: (&[Source], &[Source]) = (&star, &star);
        let problem =
            WavefrontProblem::new(&atmosphere, &array, sources, grid, ConeGradient::Pupil).unwrap();
        for (samples, oversampling, known) in [(6, 2, 0.00637), (12, 4, 0.00479), (30, 10, 0.00500)]
        {
            let sampling = SpectralSampling::new(samples, oversampling).unwrap();
            let lags = covariance(&problem, &sampling, &unwatched).unwrap();
            let left = lags.lattices()[0][[0, 0, 0, 1, 0]] * 1e12; // σ' = 1e-12
            assert!((left - known).abs() < 1e-5, "{oversampling}: {left}");
        }
        let table = [[0.227, 0.158, 0.051, 0.644], [0.140, 0.101, 0.036, 0.414]];
        for (n, row) in [1.0 / 3.0, 2.0 / 3.0].into_iter().zip(table) {
            let of = |m: f64| {
                let power = (n * n + m * m + 1.0).powf(-11.0 / 6.0);
                n * power * sinc(n) * sinc(m)
            };
            let [zero, one, two] = [0.0, 1.0 / 3.0, 2.0 / 3.0].map(of);
            for (value, known) in [zero, one, two, zero + 2.0 * (one + two)].into_iter().zip(row) {
                assert!((value - known).abs() < 6e-4, "{value} {known}");
            }
        }
    }

    // Compare folding with plain sums
    #[test]
    fn folding_changes_no_digit() {
        let targets = [Source::star(1e-4, 0.3).unwrap(), Source::star(0.0, 0.0).unwrap()];
        let cases = [
            ((5, 1, 0.0), (64, 4)),
            ((4, 1, 2e-5), (45 * 2, 5)),
            ((8, 2, 0.0), (64, 2)),
            ((9, 2, 3e-5), (30 * 3, 3)),
            ((11, 3, 0.0), (26, 1)),
            ((6, 1, 1e-5), (16, 1)),
        ];
        let heights = [f64::INFINITY, 90e3].into_iter().cycle();
        for ((grid, sampling), height) in cases.into_iter().zip(heights) {
            let problem = problem(4, grid, height, &targets, 20.0);
            let sampling = SpectralSampling::new(sampling.0, sampling.1).unwrap();
            let folded = covariance(&problem, &sampling, &unwatched).unwrap();
            for (layers, lattice) in problem.lattices().zip(folded.lattices()) {
                // Compare some lags with plain sums
                let last = problem.lags(&layers[0]) - 1;
                for [j, i] in [[0, 0], [1, last], [last / 2, 2], [last, last / 2 + 1]] {
                    for (t, q, a) in [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)] {
                        let sum = plain_sum(&problem, &sampling, layers, [t, q, a, j, i]);
                        let error = (sum - lattice[[t, q, a, j, i]]) / folded.largest();
                        assert!(error.abs() < 3e-14, "{grid:?} {sampling:?}: {error:e}");
                    }
                }
            }
        }
    }

    // Average over many targets
    #[test]
    fn a_disc_is_an_average_over_targets() {
        let (radius, centre) = (2e-5, [6e-5, -2e-5]);
        let (rule, directions) = (gauss_legendre(9), 32);
        let target = |[x, y]: [f64; 2]| Source::star(x.hypot(y), y.atan2(x)).unwrap();
        let (mut targets, mut weights) = (Vec::new(), Vec::new());
        // Fill the disc with targets
        for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
            for direction in 0..directions {
                let distance = radius * (0.5 * (1.0 + node)).sqrt();
                let (sin, cos) =
                    (2.0 * PI * f64::from(direction) / f64::from(directions)).sin_cos();
                targets.push(target([centre[0] + distance * cos, centre[1] + distance * sin]));
                weights.push(0.5 * weight / f64::from(directions));
            }
        }
        let sampling = SpectralSampling::new(96, 2).unwrap();
        for height in [f64::INFINITY, 90e3] {
            let disc = problem(4, (7, 2, radius), height, &[target(centre)], f64::INFINITY);
            let points = problem(4, (7, 2, 0.0), height, &targets, f64::INFINITY);
            let plain = problem(4, (7, 2, 0.0), height, &[target(centre)], f64::INFINITY);
            let [disc, points, plain] =
                [disc, points, plain].map(|p| covariance(&p, &sampling, &unwatched).unwrap());
            for (one, many) in disc.lattices().iter().zip(points.lattices()) {
                for ((_, q, a, j, i), value) in one.indexed_iter() {
                    let values = weights.iter().zip(many.slice(s![.., q, a, j, i]));
                    let mean: f64 = values.map(|(weight, value)| weight * value).sum();
                    assert!((mean - value).abs() < 1e-12 * disc.largest(), "{mean} {value}");
                }
            }
            let mut change = (&disc.lattices()[0] - &plain.lattices()[0]).into_iter();
            assert!(change.any(|x| x.abs() > 1e-3 * disc.largest()), "the disc does nothing");
        }
    }

    // Compare the wavefront's copies with lattice sums
    #[test]
    fn copies_of_the_wavefront_are_summed_to_infinity() {
        let (rule, period) = (gauss_legendre(12), 40.0);
        let epstein = 7.38 * f64::powf(period, -1.0 / 3.0);
        let kolmogorov = Falls::new(f64::INFINITY, [0.1; 2]);
        for r in [[0.5, 0.0], [0.2, -0.4]] {
            let [x, y] = kolmogorov.copies(period, r, &rule);
            let error = (x - epstein * r[0]).abs().max((y - epstein * r[1]).abs());
            assert!(error < 5e-2 * epstein * 0.5, "{x} {y} {epstein}");
        }
        let (half_structures, r) = (Falls::new(300.0, [0.1; 2]), [7.0, -3.0]);
        let mut plain = [0.0; 2];
        for (n, m) in (-60..=60).flat_map(|n| (-60..=60).map(move |m| (n, m))) {
            if (n, m) != (0, 0) {
                let copy = [r[0] + f64::from(n) * period, r[1] + f64::from(m) * period];
                let p = half_structures.at(copy).1;
                plain = add(plain, copy.map(|x| -p * x));
            }
        }
        let smart = half_structures.copies(period, r, &rule);
        (0..2).for_each(|a| {
            assert!((smart[a] - plain[a]).abs() < 5e-2 * plain[0].abs(), "{smart:?}")
        });
    }

    // Refuse transforms shorter than lattices
    #[test]
    fn short_transforms_are_refused() {
        let target = [Source::star(0.0, 0.0).unwrap()];
        let layered = problem(9, (19, 2, 0.0), 90e3, &target, 20.0); // 19 + 2 points at 9 km
        let sampling = SpectralSampling::new(2 * 36, 2).unwrap();
        let refusal = covariance(&layered, &sampling, &unwatched).unwrap_err();
        assert_eq!(refusal.exit_code(), 2);
        assert!(
            refusal.to_string().contains("at least 74: 9 lenslets and 21 points have 37 lags"),
            "{refusal}"
        );
        let common = problem(9, (19, 2, 0.0), f64::INFINITY, &target, 20.0);
        assert!(covariance(&common, &sampling, &unwatched).is_ok());
    }
}
