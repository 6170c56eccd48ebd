// Tangled from book/src/spectral-method.md: edit there, or here and run cargo tangle stitch.
//! Slope covariance from the power spectrum, folded before its Fourier transform.

// Imports of the spectral method
use crate::device::{Workers, gather};
use crate::error::{Error, Invalid};
use crate::numerics::fft::FftPlans;
use crate::numerics::radial_table::RadialTable;
use crate::numerics::special::sinc;
use crate::turbulence::phase::spectrum_constant;
use crate::turbulence::slope::{PairCovariance, ProjectedLayer, SlopeProblem};
use crate::watch::{Part, Watch};
use ndarray::{Array2, Array3};
use num_complex::Complex64;
use rayon::prelude::*;
use rustfft::Fft;
use std::{f64::consts::PI, fmt::Display, sync::Arc};

// Sampling of the power spectrum
/// How the power spectrum is sampled: N_F samples along an axis, κ samples of the covariance per pitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SpectralSampling {
    samples: usize,
    oversampling: usize,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(SpectralSampling::new(samples: usize, oversampling: usize)?);

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

    /// The sampling of a folded length M and an oversampling whose product is even.
    pub(crate) fn of_folded(folded: usize, oversampling: usize) -> Self {
        debug_assert!((folded * oversampling).is_multiple_of(2) && oversampling > 0);
        Self { samples: folded * oversampling, oversampling }
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
    /// Refuses a folded transform that is shorter than the `lags` along an axis; `grids` says what has so many.
    pub(crate) fn check(&self, grids: impl Display, lags: usize) -> Result<(), Invalid> {
        if self.folded() >= lags {
            return Ok(());
        }
        let least = lags * self.oversampling;
        let expected = format!(
            "at least {}: {grids} have {lags} lags along an axis, and each takes {} samples",
            least + least % 2,
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
}

// Covariance of all pairs from the spectrum
/// Slope covariance of the pairs of [`SlopeProblem::pairs`], in their order, Eq. [folding](https://lenslet.github.io/lenslet/spectral-method.html#eq-folding); rad².
///
/// Equals the real part of the original's transform, [`original_component`], to rounding. `watch` counts rows, then columns.
///
/// # Errors
/// `Invalid` where the transform has fewer than 2N − 1 lags; `Cancelled` if `watch` requests a stop.
pub fn pair_covariances(
    problem: &SlopeProblem,
    sampling: &SpectralSampling,
    watch: &dyn Watch,
) -> Result<Vec<PairCovariance>, Error> {
    sampling.check(format_args!("{} lenslets", problem.lenslets()), problem.lags())?;
    let spectrum = SpectrumTables::new(problem, sampling);
    let (rows, columns) = (spectrum.folded / 2 + 1, spectrum.lags);
    let part = |before| Part { whole: watch, before, total: rows + columns };
    let row = |spectrum: &SpectrumTables, j| Ok(spectrum.row(j));
    let rows = gather(Workers::cores(&spectrum), 0..rows, &part(0), row)?;
    let column = |spectrum: &SpectrumTables, i| Ok(spectrum.column(&rows, i));
    let columns = gather(Workers::cores(&spectrum), 0..columns, &part(rows.len()), column)?;
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
struct SpectrumTables {
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
        let (step, scale) = step_and_scale(layer, sampling.folded());
        let waves = |(p, q): (usize, usize)| {
            let offset = problem.offset(layer, p, q);
            offset.map(|offset| Wave::new(step * offset, sampling.samples / 2))
        };
        Self {
            step,
            cut: layer.outer_scale.powi(-2),
            scale,
            waves: problem.pairs().into_iter().map(waves).collect(),
        }
    }
}

// Step and scale of a layer
/// Step of the frequency Δ \[m⁻¹\] at a layer for the folded length M, and 4π² c_W σ Δ².
pub(crate) fn step_and_scale(layer: &ProjectedLayer, folded: usize) -> (f64, f64) {
    let step = 1.0 / (layer.side * folded as f64);
    (step, 4.0 * PI * PI * spectrum_constant() * layer.strength * step * step)
}

// Wave of an offset along frequencies
/// exp(2πi n c), n = 0, 1, …: cosines and sines.
pub(crate) struct Wave {
    pub(crate) re: Vec<f64>,
    pub(crate) im: Vec<f64>,
}

impl Wave {
    /// A wave of `cycles` c a sample, from n = 0 up to `last`.
    pub(crate) fn new(cycles: f64, last: usize) -> Self {
        let angle = |n: usize| 2.0 * PI * (n as f64 * cycles).fract();
        let (im, re) = (0..=last).map(|n| angle(n).sin_cos()).unzip();
        Self { re, im }
    }

    /// The wave at ±n.
    pub(crate) fn at(&self, n: isize) -> Complex64 {
        let value = Complex64::new(self.re[n.unsigned_abs()], self.im[n.unsigned_abs()]);
        if n < 0 { value.conj() } else { value }
    }
}

impl SpectrumTables {
    // Prepare the tables of the spectrum
    fn new(problem: &SlopeProblem, sampling: &SpectralSampling) -> Self {
        let half = sampling.samples / 2;
        let prepare = |layer| LayerSpectrum::new(layer, problem, sampling);
        let layers: Vec<LayerSpectrum> = problem.layers().par_iter().map(prepare).collect();
        let lowest = |layer: &LayerSpectrum| layer.step.powi(2).min(layer.step.powi(2) + layer.cut);
        let highest = |layer: &LayerSpectrum| 2.0 * (half as f64 * layer.step).powi(2) + layer.cut;
        let low = layers.iter().map(lowest).fold(f64::INFINITY, f64::min);
        let high = layers.iter().map(highest).fold(0.0, f64::max);
        Self {
            folded: sampling.folded(),
            half,
            lags: problem.lags(),
            pairs: problem.pairs().len(),
            lenslet: sincs(sampling, 1).iter().map(|sinc| sinc.powi(2)).collect(),
            power: RadialTable::new(low, high, |t| t.powf(-11.0 / 6.0)),
            layers,
            fft: f64::plan_complex_inverse(sampling.folded()),
        }
    }

    // Number the transform's lags from zero
    /// Where the transform keeps the lag of index `i`, i − (N − 1) pitches.
    fn place(&self, i: usize) -> usize {
        (i + self.folded - self.lags / 2) % self.folded
    }
}

// One row of the folded spectrum
impl SpectrumTables {
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

    // Correct the corner sample
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
        add_with_mirror_image(folded, [factor, mirrored], field);
        factor *= f_y;
    }
}

// Fold a product of two tables
/// Sums weight × wave over frequencies that are `folded.len()` apart.
pub(crate) fn fold(weights: &[f64], wave: &[f64], folded: &mut [f64]) {
    folded.fill(0.0);
    let length = folded.len();
    for (weights, wave) in weights.chunks(length).zip(wave.chunks(length)) {
        for ((sum, weight), wave) in folded.iter_mut().zip(weights).zip(wave) {
            *sum += weight * wave;
        }
    }
}

// Add the fold and its mirror image
/// Adds factor h_k + mirrored conj(h_−k) to the field.
pub(crate) fn add_with_mirror_image(
    folded: &Wave,
    [factor, mirrored]: [Complex64; 2],
    field: &mut [Complex64],
) {
    let length = field.len();
    let value = |k: usize| Complex64::new(folded.re[k], folded.im[k]);
    for (k, sum) in field.iter_mut().enumerate() {
        let opposite = if k == 0 { 0 } else { length - k };
        *sum += factor * value(k) + mirrored * value(opposite).conj();
    }
}

// Columns of lags from the rows
impl SpectrumTables {
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

// Original algorithm without folding
// Covariance by the original algorithm
/// One component of one pair by the original's algorithm, unfolded, Eq. [discrete covariance](https://lenslet.github.io/lenslet/spectral-method.html#eq-discrete-covariance); (2N − 1, 2N − 1), rad².
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
    let fft = f64::plan_complex_inverse(samples);
    let transform = |plane: &mut Vec<Complex64>| {
        plane.par_chunks_mut(samples).for_each(|row| fft.process(row));
    };
    transform(&mut plane);
    plane = transpose(&plane, samples);
    transform(&mut plane);
    let place =
        |i: usize| (samples * problem.lags() + kappa * i - kappa * (problem.lags() / 2)) % samples;
    // The plane lies transposed now.
    let value = |(j, i)| plane[place(i) * samples + place(j)].re;
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
        let (step, scale) = step_and_scale(layer, folded);
        Self {
            step,
            side: layer.side,
            cut: layer.outer_scale.powi(-2),
            scale,
            offset: problem.offset(layer, p, q),
        }
    }

    // Sample the spectrum of one layer
    /// X of Eq. [discrete covariance](https://lenslet.github.io/lenslet/spectral-method.html#eq-discrete-covariance) for the axes `a`, `b` and the signed sample (n, m).
    fn sample(&self, a: usize, b: usize, sample: [f64; 2]) -> Complex64 {
        let f = sample.map(|n| n * self.step);
        let power = (f[0] * f[0] + f[1] * f[1] + self.cut).powf(-11.0 / 6.0);
        let lenslet = sinc(self.side * f[0]) * sinc(self.side * f[1]);
        let phase = 2.0 * PI * (f[0] * self.offset[0] + f[1] * self.offset[1]);
        self.scale * f[a] * f[b] * power * lenslet * lenslet * Complex64::cis(phase)
    }
}

// Sinc of the samples of a lattice
/// sinc(o n/M) for n = 0 … N_F/2, where the lattice has `per_side` o steps to a side of the lenslet.
pub(crate) fn sincs(sampling: &SpectralSampling, per_side: usize) -> Vec<f64> {
    let argument = |n: usize| (per_side * n) as f64 / sampling.folded() as f64;
    (0..=sampling.samples / 2).map(|n| sinc(argument(n))).collect()
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

// Tests of the spectral method
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::watch::unwatched;

    // Pose an asymmetric problem for spectra
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

    // Compare two lenslets with a pencil
    #[test]
    fn two_lenslets_agree_with_a_sum_by_hand() {
        let (altitude, fraction, wind_speed, wind_direction) = (0.0, 1.0, 0.0, 0.0);
        let layer = Layer { altitude, fraction, outer_scale: 1.0, wind_speed, wind_direction };
        let atmosphere = Atmosphere::new(1.0, 2e-6 * PI, vec![layer]).unwrap(); // σ = 1e-12 rad²
        let (array, star) = (LensletArray::new(2, 1.0).unwrap(), Source::star(0.0, 0.0).unwrap());
        let problem = SlopeProblem::new(&atmosphere, &array, &[star], ConeGradient::Pupil).unwrap();
        for (samples, oversampling, variance) in [(6, 2, 0.04805), (30, 10, 0.06154)] {
            let sampling = SpectralSampling::new(samples, oversampling).unwrap();
            let lags = &pair_covariances(&problem, &sampling, &unwatched).unwrap()[0] * 1e12;
            assert!((lags[[0, 1, 1]] - variance).abs() < 1e-5, "{}", lags[[0, 1, 1]]);
            assert!((lags[[0, 1, 2]] + 0.5 * lags[[0, 1, 1]]).abs() < 1e-15, "{}", lags[[0, 1, 2]]);
        }
        let exact =
            &crate::turbulence::direct::slope::pair_covariances(&problem, &unwatched).unwrap();
        assert!((exact[0][[0, 1, 1]] * 1e12 - 0.06198).abs() < 1e-5, "{}", exact[0][[0, 1, 1]]);
        // Add the samples of the table
        let sample = |n: usize, m: usize| {
            let [x, y] = [n, m].map(|n| n as f64 / 3.0);
            x * x * (x * x + y * y + 1.0).powf(-11.0 / 6.0) * (sinc(x) * sinc(y)).powi(2)
        };
        let table = [[0.0626, 0.0360, 0.0058], [0.0387, 0.0231, 0.0040]];
        let mut sum = 0.0;
        for (n, m) in (0..2).flat_map(|n| (0..3).map(move |m| (n, m))) {
            assert!((sample(n + 1, m) - table[n][m]).abs() < 6e-5, "{n} {m}: {}", sample(n + 1, m));
            sum += if m == 0 { 2.0 } else { 4.0 } * sample(n + 1, m);
        }
        let constant = 4.0 * PI * PI * spectrum_constant() / 9.0;
        assert!((sum - 0.478).abs() < 1e-3 && (constant - 0.1004).abs() < 1e-4, "{sum} {constant}");
        assert!(
            (sum * constant - 0.0480).abs() < 1e-4 && (0.5 * sum * constant - 0.0240).abs() < 1e-4
        );
    }

    // Compare the folded with the original
    #[test]
    fn folding_changes_no_digit() {
        let problem = problem(4, 0.4, [20.0, 11.0], 3);
        for (samples, oversampling) in
            [(64, 4), (60, 4), (84, 3), (120, 5), (30, 2), (14, 1), (40, 1)]
        {
            let sampling = SpectralSampling::new(samples, oversampling).unwrap();
            let folded = pair_covariances(&problem, &sampling, &unwatched).unwrap();
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

    // Refuse samplings that make no sense
    #[test]
    fn impossible_samplings_are_refused() {
        assert!(SpectralSampling::new(64, 0).is_err());
        assert!(SpectralSampling::new(65, 5).is_err());
        assert!(SpectralSampling::new(64, 3).is_err());
        assert!(SpectralSampling::new(0, 1).is_err());
        let sampling = SpectralSampling::new(60, 4).unwrap();
        let refusal =
            pair_covariances(&problem(9, 0.2, [10.0; 2], 2), &sampling, &unwatched).unwrap_err();
        assert_eq!(refusal.exit_code(), 2);
        assert!(refusal.to_string().contains("at least 68"), "{refusal}");
    }
}
