// Tangled from book/src/spectral-method.md: edit there, or here and run cargo tangle stitch.
//! Slope covariance from the power spectrum, folded before its Fourier transform; and the error of doing so.

use crate::device::{Progress, available_memory, dispatch};
use crate::error::{Error, Invalid};
use crate::phase::{VonKarman, spectrum_constant};
use crate::quadrature::{Rule, gauss_legendre};
use crate::radial_table::RadialTable;
use crate::slope::{PairCovariance, ProjectedLayer, SlopeProblem};
use ndarray::{Array2, Array3};
use num_complex::Complex64;
use rayon::prelude::*;
use rustfft::{Fft, FftPlanner};
use std::{f64::consts::PI, fmt, sync::Arc};

// Sampling of the power spectrum
/// How the power spectrum is sampled: N_F samples along an axis, κ samples of the covariance per pitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpectralSampling {
    samples: usize,
    oversampling: usize,
}

impl SpectralSampling {
    // Check and read the sampling
    /// A sampling of `samples` N_F, even and a multiple of the `oversampling` κ ≥ 1.
    ///
    /// # Errors
    /// Names what is wrong with the numbers.
    pub fn new(samples: usize, oversampling: usize) -> Result<Self, Invalid> {
        if oversampling == 0 {
            return Err(Invalid::new("oversampling", oversampling, "an integer from 1 on"));
        }
        if samples < 2 || !samples.is_multiple_of(2) || !samples.is_multiple_of(oversampling) {
            let expected = format!("an even number that the oversampling, {oversampling}, divides");
            return Err(Invalid::new("samples", samples, expected));
        }
        Ok(Self { samples, oversampling })
    }

    // Read what follows from the sampling
    /// The original's fixed choice, 4096 samples and κ = 4.
    pub fn original() -> Self {
        Self { samples: 4096, oversampling: 4 }
    }

    /// Samples of the spectrum along an axis, N_F.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Samples of the covariance per pitch, κ.
    pub fn oversampling(&self) -> usize {
        self.oversampling
    }

    /// Length of the folded transform, M = N_F/κ; the covariance has the period M d in the pupil.
    pub fn folded(&self) -> usize {
        self.samples / self.oversampling
    }

    // Refuse transforms that are too short
    fn check(&self, problem: &SlopeProblem) -> Result<(), Invalid> {
        if self.folded() >= problem.lags() {
            return Ok(());
        }
        let least = problem.lags() * self.oversampling;
        let expected = format!(
            "at least {}: {} lenslets have {} lags along an axis, and each takes {} samples",
            least + least % 2,
            problem.lenslets(),
            problem.lags(),
            self.oversampling
        );
        Err(Invalid::new("samples", self.samples, expected))
    }

    // Count the memory of a sampling
    /// Working memory in bytes of [`pair_covariances`]: rows (24 M (2N − 1) a pair), waves (16 N_F a layer and pair), and the
    /// result with its copy by columns (48 (2N − 1)² a pair).
    pub fn memory(&self, problem: &SlopeProblem) -> u64 {
        let (lags, folded) = (problem.lags() as f64, self.folded() as f64);
        let waves = 16.0 * self.samples as f64 * problem.layers().len() as f64;
        let bytes =
            problem.pairs().len() as f64 * (24.0 * folded * lags + 48.0 * lags * lags + waves);
        bytes as u64 // saturates
    }

    // Choose the sampling by its error
    /// Chooses the sampling whose error stays below [`TOLERANCE`] for every entry, or the best that fits 1 GiB and a bounded
    /// time; says which.
    pub fn choose(problem: &SlopeProblem) -> Chosen {
        let lengths = fast_lengths(problem.lags().max(4), 1 << 18);
        let (periodisation, variance) = (Periodisation::new(problem), variance(problem));
        let copies = |folded: usize| periodisation.largest(folded) / variance;
        let truncation = |oversampling: usize| truncation_of_all(problem, oversampling) / variance;
        // Find the least even oversampling
        let even: Vec<usize> = (2..=2048).step_by(2).collect();
        let enough = even.partition_point(|k| truncation(*k) > 0.7 * TOLERANCE);
        let oversampling = even[enough.min(even.len() - 1)];
        let goal = TOLERANCE - truncation(oversampling);
        let index = lengths.partition_point(|folded| copies(*folded) > goal);
        let of = |oversampling: usize, folded: usize| {
            let sampling = Self { samples: oversampling * folded, oversampling };
            (truncation(oversampling) + copies(folded), sampling)
        };
        if let Some(folded) = lengths.get(index) {
            let (error_estimate, sampling) = of(oversampling, *folded);
            if sampling.fits(problem, CHOSEN_WORK) {
                return Chosen { sampling, error_estimate, limited: false };
            }
        }
        // Take the best that fits
        let fits = |oversampling: usize, folded: usize| {
            Self { samples: oversampling * folded, oversampling }.fits(problem, HOPELESS_WORK)
        };
        let longest = fast_lengths(1, oversampling / 2).into_iter().filter_map(|half| {
            let fit = lengths.partition_point(|folded| fits(2 * half, *folded));
            Some(of(2 * half, *lengths.get(fit.checked_sub(1)?)?))
        });
        let best = longest.min_by(|one, other| one.0.total_cmp(&other.0));
        let (error_estimate, sampling) = best.unwrap_or_else(|| of(2, lengths[0]));
        Chosen { sampling, error_estimate, limited: error_estimate > TOLERANCE }
    }

    // Judge whether a sampling fits
    fn fits(&self, problem: &SlopeProblem, most_work: f64) -> bool {
        let (quarter, pairs) = ((self.samples as f64).powi(2) / 4.0, problem.pairs().len() as f64);
        let weights_and_folds = quarter * problem.layers().len() as f64 * (pairs + 4.0);
        let transforms = 12.0 * (self.folded() as f64).powi(2) * pairs;
        weights_and_folds + transforms <= most_work && self.memory(problem) <= CHOSEN_MEMORY
    }

    // Estimate the error of the sampling
    /// Estimates the largest error of any entry, in units of the slope variance: truncation plus periodisation.
    pub fn error_estimate(&self, problem: &SlopeProblem) -> f64 {
        let periodisation = Periodisation::new(problem).largest(self.folded());
        (truncation_of_all(problem, self.oversampling) + periodisation) / variance(problem)
    }
}

// Covariance of all pairs from the spectrum
/// Slope covariance of the pairs of [`SlopeProblem::pairs`], in their order, Eq. `[eq:folding]`; rad².
///
/// Equals the real part of the original's transform, [`original_component`], to rounding. `progress` counts rows, then columns.
///
/// # Errors
/// `Invalid` where the transform has fewer than 2N − 1 lags; `Memory` where the working memory is not there.
pub fn pair_covariances(
    problem: &SlopeProblem,
    sampling: &SpectralSampling,
    progress: Progress,
) -> Result<Vec<PairCovariance>, Error> {
    sampling.check(problem)?;
    // Refuse a sampling beyond the memory
    let needed = sampling.memory(problem);
    if let Some(available) = available_memory().filter(|available| needed > *available) {
        let what = format!("the spectral method with {} samples", sampling.samples);
        return Err(Error::Memory { what, needed, available });
    }
    let spectrum = Spectrum::new(problem, sampling);
    let rows: Vec<usize> = (0..=spectrum.folded / 2).collect();
    let columns: Vec<usize> = (0..spectrum.lags).collect();
    let total = rows.len() + columns.len();
    let rows = dispatch(&rows, &|done, _| progress(done, total), |&j| spectrum.row(j));
    let before = rows.len();
    let after = |done: usize, _: usize| progress(before + done, total);
    let columns = dispatch(&columns, &after, |&i| spectrum.column(&rows, i));
    // Gather columns into pair covariances
    let lags = spectrum.lags;
    let pair = |pair: usize| {
        let value = |(c, j, i): (usize, usize, usize)| columns[i][(3 * pair + c) * lags + j];
        Array3::from_shape_fn((3, lags, lags), value)
    };
    Ok((0..spectrum.pairs).map(pair).collect())
}

// Rows and columns of folded spectra
// Spectrum prepared for its rows
/// The tables from which a row of the folded spectrum is made.
struct Spectrum {
    /// M.
    folded: usize,
    /// N_F/2.
    half: usize,
    /// 2N − 1.
    lags: usize,
    pairs: usize,
    /// sinc²(κ n/N_F) for n = 0 … N_F/2.
    lenslet: Vec<f64>,
    /// t^(−11/6).
    power: RadialTable,
    layers: Vec<LayerSpectrum>,
    fft: Arc<dyn Fft<f64>>,
}

// Spectrum of a single layer
struct LayerSpectrum {
    /// Step of the frequency Δ, m⁻¹.
    step: f64,
    /// 1/L0², m⁻².
    cut: f64,
    /// 4π² c_W σ Δ².
    scale: f64,
    /// For each pair, the waves along x and y.
    waves: Vec<[Wave; 2]>,
}

impl LayerSpectrum {
    // Prepare one layer and its waves
    fn new(layer: &ProjectedLayer, problem: &SlopeProblem, sampling: &SpectralSampling) -> Self {
        let step = 1.0 / (layer.side * sampling.folded() as f64);
        let waves = |(p, q): (usize, usize)| {
            let offset = problem.offset(layer, p, q);
            offset.map(|offset| Wave::new(step * offset, sampling.samples / 2))
        };
        Self {
            step,
            cut: layer.outer_scale.powi(-2),
            scale: 4.0 * PI * PI * spectrum_constant() * layer.strength * step * step,
            waves: problem.pairs().into_iter().map(waves).collect(),
        }
    }
}

// Wave of an offset along frequencies
/// exp(2πi n c), n = 0, 1, …: cosines and sines.
struct Wave {
    re: Vec<f64>,
    im: Vec<f64>,
}

impl Wave {
    /// A wave of `cycles` c a sample, from n = 0 up to `last`.
    fn new(cycles: f64, last: usize) -> Self {
        let angle = |n: usize| 2.0 * PI * (n as f64 * cycles).fract();
        let (im, re) = (0..=last).map(|n| angle(n).sin_cos()).unzip();
        Self { re, im }
    }

    /// The wave at ±n.
    fn at(&self, n: isize) -> Complex64 {
        let value = Complex64::new(self.re[n.unsigned_abs()], self.im[n.unsigned_abs()]);
        if n < 0 { value.conj() } else { value }
    }
}

impl Spectrum {
    // Prepare the tables of the spectrum
    fn new(problem: &SlopeProblem, sampling: &SpectralSampling) -> Self {
        let half = sampling.samples / 2;
        let prepare = |layer| LayerSpectrum::new(layer, problem, sampling);
        let layers: Vec<LayerSpectrum> = problem.layers().par_iter().map(prepare).collect();
        let lowest = |layer: &LayerSpectrum| layer.step.powi(2).min(layer.step.powi(2) + layer.cut);
        let highest = |layer: &LayerSpectrum| 2.0 * (half as f64 * layer.step).powi(2) + layer.cut;
        let low = layers.iter().map(lowest).fold(f64::INFINITY, f64::min);
        let high = layers.iter().map(highest).fold(0.0, f64::max);
        let argument = |n: usize| n as f64 / sampling.folded() as f64;
        Self {
            folded: sampling.folded(),
            half,
            lags: problem.lags(),
            pairs: problem.pairs().len(),
            lenslet: (0..=half).map(|n| sinc(argument(n)).powi(2)).collect(),
            power: RadialTable::new(low, high, |t| t.powf(-11.0 / 6.0)),
            layers,
            fft: FftPlanner::new().plan_fft_inverse(sampling.folded()),
        }
    }

    // Number the transform's lags from zero
    /// Where the transform keeps the lag of index `i`, i − (N − 1) pitches.
    fn place(&self, i: usize) -> usize {
        (i + self.folded - self.lags / 2) % self.folded
    }
}

// One row of the folded spectrum
impl Spectrum {
    /// Row `j` of the fields xx, xy, yy of each pair, transformed along x; (3 pairs, 2N − 1).
    fn row(&self, j: usize) -> Vec<Complex64> {
        let mut fields = vec![Complex64::ZERO; 3 * self.pairs * self.folded];
        let mut weights = [(); 3].map(|()| vec![0.0; self.half + 1]);
        let mut folded = Wave { re: vec![0.0; self.folded], im: vec![0.0; self.folded] };
        let first = ((j + self.half) % self.folded) as isize - self.half as isize;
        for layer in &self.layers {
            for m in (first..=self.half as isize).step_by(self.folded) {
                self.weigh(layer, m.unsigned_abs(), &mut weights);
                for (waves, fields) in layer.waves.iter().zip(fields.chunks_mut(3 * self.folded)) {
                    add_row(&weights, waves, (m, layer.step), &mut folded, fields);
                }
            }
        }
        self.stand_the_corner_alone(j, &mut fields);
        // Transform the row and keep its lags
        self.fft.process(&mut fields);
        let kept =
            |field: &[Complex64]| (0..self.lags).map(|i| field[self.place(i)]).collect::<Vec<_>>();
        fields.chunks(self.folded).flat_map(kept).collect()
    }

    // Weigh the frequencies of one row
    /// Weights of the frequencies (n, m), n = 0 … N_F/2, times f_x to the power 0, 1, 2.
    fn weigh(&self, layer: &LayerSpectrum, m: usize, weights: &mut [Vec<f64>; 3]) {
        let f_y = m as f64 * layer.step;
        let constant = f_y * f_y + layer.cut;
        let scale = layer.scale * self.lenslet[m] * if m == self.half { 0.5 } else { 1.0 };
        let [plain, first, second] = weights;
        for n in usize::from(m == 0)..=self.half {
            let f_x = n as f64 * layer.step;
            let (power, _) = self.power.value_and_slope(f_x * f_x + constant);
            plain[n] = scale * self.lenslet[n] * power;
            first[n] = plain[n] * f_x;
            second[n] = first[n] * f_x;
        }
        for weights in weights {
            weights[0] *= if m == 0 { 0.0 } else { 0.5 };
            weights[self.half] *= 0.5;
        }
    }

    // Let the corner stand alone
    /// Replaces the mean over four corners by that over two, in the bin where they fold to.
    fn stand_the_corner_alone(&self, j: usize, fields: &mut [Complex64]) {
        let bin = self.half % self.folded;
        if j != bin {
            return;
        }
        for layer in &self.layers {
            let square = (self.half as f64 * layer.step).powi(2);
            let (power, _) = self.power.value_and_slope(2.0 * square + layer.cut);
            let corner = layer.scale * square * self.lenslet[self.half].powi(2) * power;
            for (waves, fields) in layer.waves.iter().zip(fields.chunks_mut(3 * self.folded)) {
                let [x, y] = [0, 1].map(|axis| waves[axis].at(self.half as isize));
                let differences = [-x.im * y.im, x.re * y.re, -x.im * y.im];
                for (field, difference) in fields.chunks_mut(self.folded).zip(differences) {
                    field[bin] += corner * difference;
                }
            }
        }
    }
}

// Fold a row of one pair
/// Adds the row m of a layer of frequency step `step` to the three fields of a pair.
fn add_row(
    weights: &[Vec<f64>; 3],
    waves: &[Wave; 2],
    (m, step): (isize, f64),
    folded: &mut Wave,
    fields: &mut [Complex64],
) {
    let (length, f_y) = (folded.re.len(), m as f64 * step);
    let mut factor = waves[1].at(m);
    for (component, field) in fields.chunks_mut(length).enumerate() {
        let weights = &weights[2 - component];
        fold(weights, &waves[0].re, &mut folded.re);
        fold(weights, &waves[0].im, &mut folded.im);
        let mirrored = if component == 1 { -factor } else { factor };
        // Add the fold and its mirror image
        let value = |k: usize| Complex64::new(folded.re[k], folded.im[k]);
        for (k, sum) in field.iter_mut().enumerate() {
            let opposite = if k == 0 { 0 } else { length - k };
            *sum += factor * value(k) + mirrored * value(opposite).conj();
        }
        factor *= f_y;
    }
}

// Fold a product of two tables
/// Sums weight × wave over frequencies that are `folded.len()` apart.
fn fold(weights: &[f64], wave: &[f64], folded: &mut [f64]) {
    folded.fill(0.0);
    let length = folded.len();
    for (weights, wave) in weights.chunks(length).zip(wave.chunks(length)) {
        for ((sum, weight), wave) in folded.iter_mut().zip(weights).zip(wave) {
            *sum += weight * wave;
        }
    }
}

// Columns of lags from the rows
impl Spectrum {
    /// Lags along y of the column of index `i`, for each field; (3 pairs, 2N − 1).
    fn column(&self, rows: &[Vec<Complex64>], i: usize) -> Vec<f64> {
        let fields = 3 * self.pairs;
        let mut lags = vec![0.0; fields * self.lags];
        let mut packed = vec![Complex64::ZERO; self.folded];
        for (couple, lags) in lags.chunks_mut(2 * self.lags).enumerate() {
            let second = (2 * couple + 1 < fields).then_some(2 * couple + 1);
            for (j, row) in rows.iter().enumerate() {
                let first = row[2 * couple * self.lags + i];
                let second = second.map_or(Complex64::ZERO, |field| row[field * self.lags + i]);
                packed[(self.folded - j) % self.folded] =
                    first.conj() + Complex64::I * second.conj();
                packed[j] = first + Complex64::I * second;
            }
            self.fft.process(&mut packed);
            for (k, value) in lags.iter_mut().enumerate() {
                let place = packed[self.place(k % self.lags)];
                *value = if k < self.lags { place.re } else { place.im };
            }
        }
        lags
    }
}

// Original algorithm as it stands
// Covariance by the original algorithm
/// One component of one pair by the original's algorithm, unfolded, Eq. `[eq:discrete-covariance]`; (2N − 1, 2N − 1), rad².
///
/// Takes 32 N_F² bytes of memory. Lags beyond N_F/2κ are read periodically.
pub fn original_component(
    problem: &SlopeProblem,
    p: usize,
    q: usize,
    a: usize,
    b: usize,
    sampling: &SpectralSampling,
) -> Array2<f64> {
    let (samples, kappa) = (sampling.samples, sampling.oversampling);
    let signed = |n: usize| if n < samples / 2 { n as f64 } else { n as f64 - samples as f64 };
    let prepare = |layer| PlaneLayer::new(problem, layer, p, q, sampling.folded());
    let layers: Vec<PlaneLayer> = problem.layers().iter().map(prepare).collect();
    let mut plane = vec![Complex64::ZERO; samples * samples];
    plane.par_chunks_mut(samples).enumerate().for_each(|(m, row)| {
        for (n, value) in row.iter_mut().enumerate().skip(usize::from(m == 0)) {
            let sample = |layer: &PlaneLayer| layer.sample(a, b, [n, m].map(signed));
            *value = layers.iter().map(sample).sum();
        }
    });
    // Transform the plane and take lags
    let fft = FftPlanner::new().plan_fft_inverse(samples);
    for _ in 0..2 {
        plane.par_chunks_mut(samples).for_each(|row| fft.process(row));
        plane = transpose(&plane, samples);
    }
    let place =
        |i: usize| (samples * problem.lags() + kappa * i - kappa * (problem.lags() / 2)) % samples;
    let value = |(j, i)| plane[place(j) * samples + place(i)].re;
    Array2::from_shape_fn((problem.lags(), problem.lags()), value)
}

// Layer of the original's plane
/// What a layer contributes to each sample of the plane.
struct PlaneLayer {
    /// Step of the frequency, m⁻¹.
    step: f64,
    side: f64,
    /// 1/L0², m⁻².
    cut: f64,
    /// 4π² c_W σ Δ².
    scale: f64,
    offset: [f64; 2],
}

impl PlaneLayer {
    // Prepare a layer of the plane
    fn new(
        problem: &SlopeProblem,
        layer: &ProjectedLayer,
        p: usize,
        q: usize,
        folded: usize,
    ) -> Self {
        let step = 1.0 / (layer.side * folded as f64);
        Self {
            step,
            side: layer.side,
            cut: layer.outer_scale.powi(-2),
            scale: 4.0 * PI * PI * spectrum_constant() * layer.strength * step * step,
            offset: problem.offset(layer, p, q),
        }
    }

    // Sample the spectrum of one layer
    /// X of Eq. `[eq:discrete-covariance]` for the axes `a`, `b` and the signed sample (n, m).
    fn sample(&self, a: usize, b: usize, sample: [f64; 2]) -> Complex64 {
        let f = sample.map(|n| n * self.step);
        let power = (f[0] * f[0] + f[1] * f[1] + self.cut).powf(-11.0 / 6.0);
        let lenslet = sinc(self.side * f[0]) * sinc(self.side * f[1]);
        let phase = 2.0 * PI * (f[0] * self.offset[0] + f[1] * self.offset[1]);
        self.scale * f[a] * f[b] * power * lenslet * lenslet * Complex64::cis(phase)
    }
}

// Sine over its argument
/// sin(πx)/(πx).
fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

// Transpose a square in parallel
fn transpose(square: &[Complex64], side: usize) -> Vec<Complex64> {
    const BAND: usize = 16; // rows that share the cache lines of the columns they are made of
    let mut turned = vec![Complex64::ZERO; square.len()];
    turned.par_chunks_mut(BAND * side).enumerate().for_each(|(band, rows)| {
        for k in 0..side {
            for (j, row) in rows.chunks_mut(side).enumerate() {
                row[k] = square[k * side + band * BAND + j];
            }
        }
    });
    turned
}

// Error and choice of a sampling
// Error of a spectral sampling
/// Variance of the slopes of one layer, from edge means: 4/D² ∫ (1 − v) [S(D√(1 + v²)) − S(D v)] dv over 0 … 1, times σ.
fn layer_variance(layer: &ProjectedLayer) -> f64 {
    let phase = VonKarman::new(layer.outer_scale);
    let fall = |v: f64| phase.fall_and_half_mean(layer.side * v).0;
    let integrand = |v: f64| (1.0 - v) * (fall(v.hypot(1.0)) - fall(v));
    4.0 * layer.strength / layer.side.powi(2) * integrate_cubed(integrand)
}

/// ∫ f(v) dv over 0 … 1 with v = s³, which makes fractional powers of v smooth.
fn integrate_cubed(f: impl Fn(f64) -> f64) -> f64 {
    let Rule { nodes, weights } = gauss_legendre(20);
    let halves = nodes.iter().map(|x| 0.5 * (x + 1.0)).zip(weights);
    halves.map(|(s, weight)| 0.5 * weight * 3.0 * s * s * f(s.powi(3))).sum()
}

// Variance beyond the last frequency
/// What the frequencies beyond κ/2D would add to the variance of one layer, Eq. `[eq:truncation]`.
fn truncation(layer: &ProjectedLayer, oversampling: usize) -> f64 {
    let edge = 0.5 * oversampling as f64;
    let cut = layer.side / layer.outer_scale / edge;
    let tail = |v: f64| v.powf(5.0 / 3.0) * (1.0 + (cut * v).powi(2)).powf(-11.0 / 6.0);
    let tau = edge.powf(-8.0 / 3.0) / PI.powi(2) * integrate_cubed(tail);
    4.0 * PI * PI * spectrum_constant() * layer.strength * layer.side.powf(-1.0 / 3.0) * tau
}

// Gradients far from each other
/// Second derivatives of the fall S away from the origin, from a table of p(t), t = r².
struct FarGradients {
    near: f64,
    far: f64,
    table: RadialTable,
}

impl FarGradients {
    fn new(outer_scale: f64, side: f64) -> Self {
        let phase = VonKarman::new(outer_scale);
        let near = 0.25 * side * side;
        let far = (8.0 * outer_scale).min(1e9 * side).powi(2).max(2.0 * near);
        Self { near, far, table: RadialTable::new(near, far, |t| phase.slope_over_distance(t)) }
    }

    // Look up the far Hessian
    /// p(t) and dp/dt.
    fn slope(&self, t: f64) -> (f64, f64) {
        if t < self.far { self.table.value_and_slope(t.max(self.near)) } else { (0.0, 0.0) }
    }

    /// The Hessian of S: xx, xy, yy.
    fn hessian(&self, [x, y]: [f64; 2]) -> [f64; 3] {
        let (p, slope) = self.slope(x * x + y * y);
        [p + 2.0 * slope * x * x, 2.0 * slope * x * y, p + 2.0 * slope * y * y]
    }
}

// Sum over the copies of covariance
/// E of Eq. `[eq:far-flux]` for unit strength at the displacement `r`: xx, xy, yy.
fn copies(far: &FarGradients, period: f64, r: [f64; 2], rule: &Rule) -> [f64; 3] {
    const COPIES: i32 = 2;
    let mut sum = [0.0; 3];
    let copy = |n: i32, m: i32| [r[0] + f64::from(n) * period, r[1] + f64::from(m) * period];
    for (n, m) in (-COPIES..=COPIES).flat_map(|n| (-COPIES..=COPIES).map(move |m| (n, m))) {
        if (n, m) != (0, 0) {
            let hessian = far.hessian(copy(n, m));
            (0..3).for_each(|c| sum[c] += hessian[c]);
        }
    }
    let reach = f64::from(COPIES) + 0.5;
    for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
        for sign in [-1.0, 1.0] {
            let density = sign * weight * reach / period;
            // Take away the flux through sides
            let (out, along) = (sign * reach * period, node * reach * period);
            let [x, y] = [r[0] + out, r[1] + along];
            let (p, _) = far.slope(x * x + y * y);
            sum[0] -= density * p * x;
            sum[1] -= density * p * y;
            let [x, y] = [r[0] + along, r[1] + out];
            let (p, _) = far.slope(x * x + y * y);
            sum[2] -= density * p * y;
        }
    }
    sum
}

// Largest sum over copies
/// What an estimate of the periodisation needs: the table of each layer's outer scale.
struct Periodisation<'a> {
    problem: &'a SlopeProblem,
    tables: Vec<Arc<FarGradients>>,
}

impl<'a> Periodisation<'a> {
    // Share tables between equal outer scales
    fn new(problem: &'a SlopeProblem) -> Self {
        let side = problem.layers().iter().map(|layer| layer.side).fold(f64::INFINITY, f64::min);
        let mut known: Vec<(f64, Arc<FarGradients>)> = Vec::new();
        let table = |layer: &ProjectedLayer| {
            let same = known.iter().find(|(outer_scale, _)| *outer_scale == layer.outer_scale);
            let table = same.map(|(_, table)| Arc::clone(table));
            table.unwrap_or_else(|| {
                let table = Arc::new(FarGradients::new(layer.outer_scale, side));
                known.push((layer.outer_scale, Arc::clone(&table)));
                table
            })
        };
        Self { problem, tables: problem.layers().iter().map(table).collect() }
    }

    /// The largest |E| of all pairs, components and lags for the folded length M, rad².
    fn largest(&self, folded: usize) -> f64 {
        let rule = gauss_legendre(12);
        let pairs = self.problem.pairs();
        let lags = (0..9).map(|k| [f64::from(k % 3 - 1), f64::from(k / 3 - 1)]);
        let lags: Vec<[f64; 2]> = lags.collect();
        let of_pair = |&(p, q): &(usize, usize)| {
            let at = |lag: &[f64; 2]| self.at((p, q), *lag, folded, &rule);
            lags.iter().map(at).fold(0.0, f64::max)
        };
        pairs.par_iter().map(of_pair).reduce(|| 0.0, f64::max)
    }

    // Add the copies of all layers
    /// The largest component of |E| at a lag given in units of N − 1 pitches.
    fn at(&self, (p, q): (usize, usize), lag: [f64; 2], folded: usize, rule: &Rule) -> f64 {
        let extent = (self.problem.lenslets() - 1) as f64;
        let mut sum = [0.0; 3];
        for (layer, far) in self.problem.layers().iter().zip(&self.tables) {
            let offset = self.problem.offset(layer, p, q);
            let r = [0, 1].map(|axis| lag[axis] * extent * layer.side + offset[axis]);
            let error = copies(far, layer.side * folded as f64, r, rule);
            (0..3).for_each(|c| sum[c] += layer.strength * error[c]);
        }
        sum.iter().fold(0.0, |largest, value| value.abs().max(largest))
    }
}

// Sampling chosen for the problem
// Limits of a chosen sampling
/// Largest error of an entry that the chosen sampling aims at, in units of the slope variance.
pub const TOLERANCE: f64 = 1e-4;

/// Working memory that a chosen sampling may take, bytes.
const CHOSEN_MEMORY: u64 = 1 << 30;

/// Work that a chosen sampling may take, in units of some nanoseconds of one core.
const CHOSEN_WORK: f64 = 1e11;

/// Work that it may take where the aim is out of reach.
const HOPELESS_WORK: f64 = 2e9;

/// A sampling with the estimate of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chosen {
    /// The sampling.
    pub sampling: SpectralSampling,
    /// Estimate of the largest error of any entry, in units of the slope variance.
    pub error_estimate: f64,
    /// Whether the aim of [`TOLERANCE`] is missed because a finer sampling would take too much memory or time.
    pub limited: bool,
}

// Say what was chosen and why
impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpectralSampling { samples, oversampling } = self.sampling;
        let error = self.error_estimate;
        write!(
            f,
            "{samples} samples, oversampling {oversampling}, error about {error:.1e} of the variance"
        )?;
        if self.limited {
            write!(f, " (finer sampling, for {TOLERANCE:e}, takes too much memory or time)")?;
        }
        Ok(())
    }
}

// Variance and truncation of all layers
/// Variance of a slope, all layers, rad².
fn variance(problem: &SlopeProblem) -> f64 {
    problem.layers().iter().map(layer_variance).sum()
}

/// What truncation takes from the variance, all layers, rad².
fn truncation_of_all(problem: &SlopeProblem, oversampling: usize) -> f64 {
    problem.layers().iter().map(|layer| truncation(layer, oversampling)).sum()
}

// Lengths that transform fast
/// Numbers 2^a 3^b 5^c from `least` on, ascending, up to the first at `most` or beyond, one at least.
fn fast_lengths(least: usize, most: usize) -> Vec<usize> {
    let most = most.max(least).next_power_of_two();
    let powers = |prime: usize, from: usize| {
        std::iter::successors(Some(from), move |n| Some(n * prime)).take_while(move |n| *n <= most)
    };
    let twos = powers(2, 1);
    let lengths = twos.flat_map(|n| powers(3, n)).flat_map(|n| powers(5, n));
    let mut lengths: Vec<usize> = lengths.filter(|n| *n >= least).collect();
    lengths.sort_unstable();
    lengths
}

// Tests of the spectral method
#[cfg(test)]
mod tests {
    use super::*;
    use crate::atmosphere::{Atmosphere, Layer};
    use crate::device::silent;
    use crate::lenslet_array::LensletArray;
    use crate::source::{ConeGradient, Source};

    // Pose a lopsided problem for spectra
    fn problem(lenslets: usize, pitch: f64, outer_scales: [f64; 2], stars: usize) -> SlopeProblem {
        let layer = |altitude: f64, fraction: f64, outer_scale: f64| {
            let (wind_speed, wind_direction) = (0.0, 0.0);
            Layer { altitude, fraction, outer_scale, wind_speed, wind_direction }
        };
        let layers = vec![layer(0.0, 0.7, outer_scales[0]), layer(9000.0, 0.3, outer_scales[1])];
        let atmosphere = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let array = LensletArray::new(lenslets, pitch).unwrap();
        let places = [(1e-4, 0.3), (2e-4, 2.0), (1.5e-4, 4.4)];
        let star = |&(zenith, azimuth): &(f64, f64)| Source::new(zenith, azimuth, 90e3).unwrap();
        let stars: Vec<Source> = places[..stars].iter().map(star).collect();
        SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil).unwrap()
    }

    // Compare the folded with the original
    #[test]
    fn folding_changes_no_digit() {
        let problem = problem(4, 0.4, [20.0, 11.0], 3);
        for (samples, oversampling) in
            [(64, 4), (60, 4), (84, 3), (120, 5), (30, 2), (14, 1), (40, 1)]
        {
            let sampling = SpectralSampling::new(samples, oversampling).unwrap();
            let folded = pair_covariances(&problem, &sampling, &silent).unwrap();
            let variance = folded[0][[0, 3, 3]];
            for (pair, (p, q)) in folded.iter().zip(problem.pairs()) {
                for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let original = original_component(&problem, p, q, a, b, &sampling);
                    let differences = &pair.slice(ndarray::s![a + b, .., ..]) - &original;
                    let worst = differences.iter().fold(0.0, |worst: f64, x| worst.max(x.abs()));
                    assert!(worst < 1e-14 * variance, "{samples}, {oversampling}: {worst:e}");
                }
            }
        }
    }

    // Meet the known numbers of errors
    #[test]
    fn errors_are_of_the_known_size() {
        let kolmogorov = problem(2, 0.5, [f64::INFINITY; 2], 1);
        let known =
            0.1622428 * 500e-9f64.powi(2) * 0.15f64.powf(-5.0 / 3.0) * 0.5f64.powf(-1.0 / 3.0);
        // The upper layer has γ² from the gradient and γ^(−1/3) from the footprint.
        let known = known * (0.7 + 0.3 * 0.9f64.powf(5.0 / 3.0));
        assert!((variance(&kolmogorov) / known - 1.0).abs() < 1e-6);
        let problem = problem(3, 0.1, [3.0, 2.0], 2);
        let fine = SpectralSampling::new(240 * 32, 32).unwrap();
        let fine = pair_covariances(&problem, &fine, &silent).unwrap();
        for oversampling in [2, 4, 6, 8] {
            let coarse = SpectralSampling::new(240 * oversampling, oversampling).unwrap();
            let estimate = coarse.error_estimate(&problem);
            let coarse = pair_covariances(&problem, &coarse, &silent).unwrap();
            let errors = coarse.iter().zip(&fine).flat_map(|(c, f)| (c - f).into_iter());
            let error = errors.fold(0.0, |worst: f64, x| worst.max(x.abs())) / variance(&problem);
            assert!(error < 1.1 * estimate && estimate < 1.5 * error, "{error:e} {estimate:e}");
        }
    }

    // Sum the copies for ever
    #[test]
    fn copies_are_summed_to_infinity() {
        let rule = gauss_legendre(12);
        let (zeta, beta) = (-5.4350532, 0.7510335); // ζ(5/6) and β(5/6)
        let period: f64 = 40.0;
        let epstein = 8.0 * PI * PI * spectrum_constant() * zeta * beta * period.powf(-1.0 / 3.0);
        let [xx, xy, yy] = copies(&FarGradients::new(f64::INFINITY, 0.1), period, [0.0; 2], &rule);
        assert!(
            (xx / epstein - 1.0).abs() < 5e-2 && (yy / xx - 1.0).abs() < 1e-12,
            "{xx} {epstein}"
        );
        assert!(xy.abs() < 1e-12);
        let (far, r) = (FarGradients::new(300.0, 0.1), [7.0, -3.0]);
        let mut plain = [0.0; 3];
        for (n, m) in (-60..=60).flat_map(|n| (-60..=60).map(move |m| (n, m))) {
            if (n, m) != (0, 0) {
                let copy =
                    far.hessian([r[0] + f64::from(n) * period, r[1] + f64::from(m) * period]);
                (0..3).for_each(|c| plain[c] += copy[c]);
            }
        }
        let smart = copies(&far, period, r, &rule);
        (0..3).for_each(|c| assert!((smart[c] - plain[c]).abs() < 5e-2 * plain[0].abs(), "{c}"));
    }

    // Refuse samplings that make no sense
    #[test]
    fn impossible_samplings_are_refused() {
        assert!(SpectralSampling::new(64, 0).is_err());
        assert!(SpectralSampling::new(65, 5).is_err());
        assert!(SpectralSampling::new(64, 3).is_err());
        assert!(SpectralSampling::new(0, 1).is_err());
        let sampling = SpectralSampling::new(60, 4).unwrap();
        let refusal =
            pair_covariances(&problem(9, 0.2, [10.0; 2], 2), &sampling, &silent).unwrap_err();
        assert_eq!(refusal.exit_code(), 2);
        assert!(refusal.to_string().contains("at least 68"), "{refusal}");
    }
}
