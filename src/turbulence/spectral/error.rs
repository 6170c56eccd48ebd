// Tangled from book/src/spectral-error.md: edit there, or here and run cargo tangle stitch.
//! The error of the spectral method, and the choice of its sampling.

// Imports of the spectral error
use crate::numerics::fft::fast_lengths;
use crate::numerics::quadrature::{Rule, gauss_legendre};
use crate::numerics::radial_table::RadialTable;
use crate::turbulence::edges::gradient_covariances;
use crate::turbulence::phase::{VonKarman, hessian, spectrum_constant};
use crate::turbulence::slope::{ProjectedLayer, SlopeProblem};
use crate::turbulence::spectral::slope::SpectralSampling;
use rayon::prelude::*;
use std::{f64::consts::PI, fmt, sync::Arc};

impl SpectralSampling {
    // Estimate the error of the sampling
    /// Estimates the largest error of any entry, in units of the slope variance: truncation plus periodisation.
    pub fn error_estimate(&self, problem: &SlopeProblem) -> f64 {
        let periodisation = Periodisation::new(problem).largest(self.folded());
        let error = truncation_of_all(problem, self.oversampling()) + periodisation;
        share_of(error, variance(problem))
    }

    // Choose the sampling by its error
    /// Chooses the sampling whose error stays below [`TOLERANCE`] for every entry, or the best that fits 1 GiB and a bounded
    /// time; says which.
    pub fn choose(problem: &SlopeProblem) -> Chosen {
        let (periodisation, variance) = (Periodisation::new(problem), variance(problem));
        let trial = Trial {
            lags: problem.lags(),
            truncation: &|oversampling| {
                share_of(truncation_of_all(problem, oversampling), variance)
            },
            copies: &|folded| share_of(periodisation.largest(folded), variance),
            cost: &|sampling| (sampling.work(problem), sampling.memory(problem)),
            unit: "variance",
        };
        trial.choose()
    }

    // Count the work of a sampling
    /// Work of a sampling in units of some nanoseconds of one core.
    pub(crate) fn work(&self, problem: &SlopeProblem) -> f64 {
        let (quarter, pairs) =
            ((self.samples() as f64).powi(2) / 4.0, problem.pairs().len() as f64);
        let weights_and_folds = quarter * problem.layers().len() as f64 * (pairs + 4.0);
        weights_and_folds + 12.0 * (self.folded() as f64).powi(2) * pairs
    }
}

// Error of a spectral sampling
/// ∫ f(v) dv over 0 … 1 with v = s³, which makes fractional powers of v smooth.
fn integrate_cubed(f: impl Fn(f64) -> f64) -> f64 {
    let Rule { nodes, weights } = gauss_legendre(20);
    let halves = nodes.iter().map(|x| 0.5 * (x + 1.0)).zip(weights);
    halves.map(|(s, weight)| 0.5 * weight * 3.0 * s * s * f(s.powi(3))).sum()
}

// Variance beyond the last frequency
/// ∫ (u² + cut²)^(−11/6) du from u = `edge` to infinity.
pub(crate) fn spectrum_beyond(edge: f64, cut: f64) -> f64 {
    let cut = cut / edge;
    let tail = |v: f64| v.powf(5.0 / 3.0) * (1.0 + (cut * v).powi(2)).powf(-11.0 / 6.0);
    edge.powf(-8.0 / 3.0) * integrate_cubed(tail)
}

/// What the frequencies beyond κ/2D would add to the variance of one layer, Eq. [truncation](https://lenslet.github.io/lenslet/spectral-error.html#eq-truncation).
fn truncation(layer: &ProjectedLayer, oversampling: usize) -> f64 {
    let cut = layer.side / layer.outer_scale;
    let tau = spectrum_beyond(0.5 * oversampling as f64, cut) / PI.powi(2);
    4.0 * PI * PI * spectrum_constant() * layer.strength * layer.side.powf(-1.0 / 3.0) * tau
}

// Gradients far from each other
// Far distance and range of sides
/// The distance in metres beyond which copies are not looked up, for footprints of at most `side` metres.
pub(crate) fn farthest(outer_scale: f64, side: f64) -> f64 {
    (8.0 * outer_scale).min(1e9 * side.max(1.0))
}

/// The least and the largest of some sides, metres.
pub(crate) fn range_of(sides: impl Iterator<Item = f64>) -> [f64; 2] {
    sides.fold([f64::INFINITY, 0.0], |[least, most], side| [least.min(side), most.max(side)])
}

/// Second derivatives of S, half the structure function, away from the origin, from a table of S₁(t), t = r².
struct FarGradients {
    near: f64,
    far: f64,
    table: RadialTable,
}

impl FarGradients {
    /// Gradients for footprints of sides between two, metres.
    fn new(outer_scale: f64, [least, most]: [f64; 2]) -> Self {
        let phase = VonKarman::new(outer_scale);
        let near = 0.25 * least * least;
        let far = farthest(outer_scale, most).powi(2).max(2.0 * near);
        Self { near, far, table: RadialTable::new(near, far, |t| phase.slope_over_distance(t)) }
    }

    // Look up the far Hessian
    /// S₁(t) and dS₁/dt.
    fn slope(&self, t: f64) -> (f64, f64) {
        if t < self.far { self.table.value_and_slope(t.max(self.near)) } else { (0.0, 0.0) }
    }

    /// The Hessian of S: xx, xy, yy.
    fn hessian(&self, [x, y]: [f64; 2]) -> [f64; 3] {
        let (p, slope) = self.slope(x * x + y * y);
        hessian(p, slope, [x, y])
    }
}

// Sum over the copies of covariance
/// E of Eq. [far flux](https://lenslet.github.io/lenslet/spectral-error.html#eq-far-flux) for unit strength at the displacement `r`: xx, xy, yy.
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
        let sides = range_of(problem.layers().iter().map(|layer| layer.side));
        let tables =
            problem.for_each_outer_scale(|outer_scale| FarGradients::new(outer_scale, sides));
        Self { problem, tables }
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
/// An error as a share of the largest entry; infinite where there is none to compare with.
pub(crate) fn share_of(error: f64, largest: f64) -> f64 {
    let share = error / largest;
    if share.is_finite() { share } else { f64::INFINITY }
}

// Sampling chosen for the problem
// Limits of a chosen sampling
/// Largest error of an entry that the chosen sampling aims at, in units of the largest entry: of the variance for slopes.
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
    /// Estimate of the largest error of any entry, in units of the largest entry: of the variance for slopes. Infinite where
    /// all entries vanish.
    pub error_estimate: f64,
    /// Whether the aim of [`TOLERANCE`] is missed because a finer sampling would take too much memory or time.
    pub limited: bool,
    /// What the error is measured by: `variance`, or `largest entry`.
    pub unit: &'static str,
}

// Say what was chosen and why
impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, oversampling) = (self.sampling.samples(), self.sampling.oversampling());
        let (error, unit) = (self.error_estimate, self.unit);
        write!(f, "{samples} samples, oversampling {oversampling}, ")?;
        if !error.is_finite() {
            return write!(f, "error unknown, as no entry is there to measure it by");
        }
        write!(f, "error about {error:.1e} of the {unit}")?;
        if self.limited {
            write!(f, " (finer sampling, for {TOLERANCE:e}, takes too much memory or time)")?;
        }
        Ok(())
    }
}

// Variance and truncation of all layers
/// Variance of a slope, all layers, rad².
fn variance(problem: &SlopeProblem) -> f64 {
    let of_layer = |layer: &ProjectedLayer| {
        let phase = VonKarman::new(layer.outer_scale);
        layer.strength * gradient_covariances(&phase, layer.side, [0.0; 2], (1, 1))[[0, 0, 0]]
    };
    problem.layers().iter().map(of_layer).sum()
}

/// What truncation takes from the variance, all layers, rad².
fn truncation_of_all(problem: &SlopeProblem, oversampling: usize) -> f64 {
    problem.layers().iter().map(|layer| truncation(layer, oversampling)).sum()
}

// Try samplings for a problem
/// What a search for the sampling must know of a problem.
pub(crate) struct Trial<'a> {
    /// Lags along an axis, the shortest folded length.
    pub lags: usize,
    /// Relative error by truncation for an oversampling.
    pub truncation: &'a dyn Fn(usize) -> f64,
    /// Relative error by periodisation for a folded length.
    pub copies: &'a dyn Fn(usize) -> f64,
    /// Work, in units of some nanoseconds of one core, and memory in bytes.
    pub cost: &'a dyn Fn(&SpectralSampling) -> (f64, u64),
    /// What the errors are relative to.
    pub unit: &'static str,
}

impl Trial<'_> {
    // Search for the sampling
    /// The sampling that keeps [`TOLERANCE`], or the best that fits.
    pub(crate) fn choose(&self) -> Chosen {
        let lengths = fast_lengths(self.lags.max(4), 1 << 18);
        // Find the least even oversampling
        let even: Vec<usize> = (2..=2048).step_by(2).collect();
        let enough = even.partition_point(|k| (self.truncation)(*k) > 0.7 * TOLERANCE);
        let oversampling = even[enough.min(even.len() - 1)];
        let goal = TOLERANCE - (self.truncation)(oversampling);
        let index = lengths.partition_point(|folded| (self.copies)(*folded) > goal);
        if let Some(folded) = lengths.get(index) {
            let chosen = self.judge(oversampling, *folded);
            if self.fits(&chosen.sampling, CHOSEN_WORK) {
                return chosen;
            }
        }
        // Take the best that fits
        let fits = |oversampling: usize, folded: usize| {
            self.fits(&SpectralSampling::of_folded(folded, oversampling), HOPELESS_WORK)
        };
        let longest = fast_lengths(1, oversampling / 2).into_iter().filter_map(|half| {
            let fit = lengths.partition_point(|folded| fits(2 * half, *folded));
            Some(self.judge(2 * half, *lengths.get(fit.checked_sub(1)?)?))
        });
        let best = longest.min_by(|one, other| one.error_estimate.total_cmp(&other.error_estimate));
        best.unwrap_or_else(|| self.judge(2, lengths[0]))
    }

    // Judge whether a sampling fits
    /// A sampling with its error.
    fn judge(&self, oversampling: usize, folded: usize) -> Chosen {
        let sampling = SpectralSampling::of_folded(folded, oversampling);
        let error_estimate = (self.truncation)(oversampling) + (self.copies)(folded);
        Chosen { sampling, error_estimate, limited: error_estimate > TOLERANCE, unit: self.unit }
    }

    fn fits(&self, sampling: &SpectralSampling, most_work: f64) -> bool {
        let (work, memory) = (self.cost)(sampling);
        work <= most_work && memory <= CHOSEN_MEMORY
    }
}

// Tests of the spectral error
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::turbulence::spectral::slope::pair_covariances;
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

    // Compare estimates with errors by hand
    #[test]
    fn estimates_agree_with_the_worked_case() {
        let (altitude, fraction, wind_speed, wind_direction) = (0.0, 1.0, 0.0, 0.0);
        let problem = |lenslets: usize, outer_scale: f64| {
            let layer = Layer { altitude, fraction, outer_scale, wind_speed, wind_direction };
            let atmosphere = Atmosphere::new(0.15, 500e-9, vec![layer]).unwrap();
            let array = LensletArray::new(lenslets, 0.1).unwrap();
            let star = Source::star(0.0, 0.0).unwrap();
            SlopeProblem::new(&atmosphere, &array, &[star], ConeGradient::Pupil).unwrap()
        };
        let (finite, infinite) = (problem(3, 30.0), problem(3, f64::INFINITY));
        let known = [(&finite, 4, 1.109e-3), (&finite, 8, 1.746e-4), (&infinite, 4, 0.1106)];
        for (problem, oversampling, known) in known {
            let sampling = SpectralSampling::new(1024 * oversampling, oversampling).unwrap();
            let estimate = sampling.error_estimate(problem);
            assert!((estimate / known - 1.0).abs() < 1e-3, "{oversampling}: {estimate:e}");
        }
        let chosen = SpectralSampling::choose(&problem(20, 30.0)).sampling;
        assert_eq!((chosen.samples(), chosen.oversampling()), (5760, 12));
    }

    // Compare errors with known numbers
    #[test]
    fn errors_are_of_the_known_size() {
        let problem = problem(3, 0.1, [3.0, 2.0], 2);
        let fine = SpectralSampling::new(160 * 32, 32).unwrap();
        let fine = pair_covariances(&problem, &fine, &unwatched).unwrap();
        for oversampling in [2, 4, 6, 8] {
            let coarse = SpectralSampling::new(160 * oversampling, oversampling).unwrap();
            let estimate = coarse.error_estimate(&problem);
            let coarse = pair_covariances(&problem, &coarse, &unwatched).unwrap();
            let errors = coarse.iter().zip(&fine).flat_map(|(c, f)| (c - f).into_iter());
            let error = errors.fold(0.0, |worst: f64, x| worst.max(x.abs())) / variance(&problem);
            assert!(error < 1.1 * estimate && estimate < 1.5 * error, "{error:e} {estimate:e}");
        }
    }

    // Compare copies with lattice sums
    #[test]
    fn copies_are_summed_to_infinity() {
        let rule = gauss_legendre(12);
        let (zeta, beta) = (-5.4350532, 0.7510335); // ζ(5/6) and β(5/6)
        let period: f64 = 40.0;
        let epstein = 8.0 * PI * PI * spectrum_constant() * zeta * beta * period.powf(-1.0 / 3.0);
        let [xx, xy, yy] =
            copies(&FarGradients::new(f64::INFINITY, [0.1; 2]), period, [0.0; 2], &rule);
        assert!(
            (xx / epstein - 1.0).abs() < 5e-2 && (yy / xx - 1.0).abs() < 1e-12,
            "{xx} {epstein}"
        );
        assert!(xy.abs() < 1e-12);
        let (far, r) = (FarGradients::new(300.0, [0.1; 2]), [7.0, -3.0]);
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
}
