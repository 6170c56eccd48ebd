// Tangled from book/src/covariance.md: edit there, or here and run cargo tangle stitch.
//! Slope and wavefront–slope covariance of a system by either method.

// What computing a covariance stands on
use crate::device::{self, Watch, engine::Engine, gpu::Gpu, refuse_beyond_memory};
use crate::error::Error;
use crate::model::lenslet_array::{LensletArray, SlopeOrder};
use crate::model::system::System;
use crate::numerics::real::{Precision, Real};
use crate::turbulence::slope::{PairCovariance, SlopeCovariance, SlopeProblem};
use crate::turbulence::spectral::slope::SpectralSampling;
use crate::turbulence::wavefront::{WavefrontProblem, WavefrontSlope};
use crate::turbulence::{dense, direct, spectral};
use ndarray::{Array2, Array4};

// Methods of slope covariance
/// How to compute a covariance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Method {
    /// In real space: exact to 1e-10 of the variance, and fast.
    #[default]
    Direct,
    /// Through the power spectrum, as the original program does, with this sampling.
    Spectral(SpectralSampling),
}

// Slope problem of a system
/// The problem of a system's slope covariance.
///
/// # Errors
/// `NotToeplitz` where the sensors share no lattice; `Invalid` as in [`SlopeProblem::of_sensors`].
pub fn slope_problem(system: &System) -> Result<SlopeProblem, Error> {
    SlopeProblem::of_sensors(system.atmosphere(), &system.sensors(), system.cone_gradient())
}

// Wavefront problem of a system
/// The problem of a system's wavefront–slope covariance.
///
/// # Errors
/// `Invalid` where the system has no target or no grid of wavefront points, and as in [`WavefrontProblem::of_sensors`];
/// `NotToeplitz` as there.
pub fn wavefront_problem(system: &System) -> Result<WavefrontProblem, Error> {
    let (grid, sensors) = (system.wavefront_grid()?, system.sensors());
    let sources = (system.targets(), sensors.as_slice());
    WavefrontProblem::of_sensors(system.atmosphere(), sources, grid, system.cone_gradient())
}

// Compute the slope covariance
/// The slope covariance of all pairs of guide stars, (S, S, 2, 2, 2N − 1, 2N − 1), rad².
///
/// # Errors
/// `Memory` where the result does not fit; `Invalid` where the spectral sampling does not suit the problem.
///
/// ```
/// use lenslet::{turbulence::plan::*, device::silent, model::system::System};
/// let system = System::from_file("book/systems/small.toml")?;
/// let covariance = slope_covariance(&slope_problem(&system)?, &Method::Direct, &silent)?;
/// // 0.1622428 λ² d^(−1/3) r0^(−5/3) without the outer scale; L0 = 30 m takes 24 % of it away.
/// let kolmogorov = 0.1622428 * 500e-9f64.powi(2) * 0.1f64.powf(-1.0 / 3.0) * 0.15f64.powf(-5.0 / 3.0);
/// assert!((covariance.variance() / kolmogorov - 0.761653).abs() < 1e-6);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn slope_covariance(
    problem: &SlopeProblem,
    method: &Method,
    watch: &dyn Watch,
) -> Result<SlopeCovariance, Error> {
    check_memory(problem)?;
    // Run the method and spread its pairs
    let pairs = match method {
        Method::Direct => direct::slope::pair_covariances(problem, watch)?,
        Method::Spectral(sampling) => spectral::slope::pair_covariances(problem, sampling, watch)?,
    };
    Ok(SlopeCovariance::from_pairs(problem, &pairs))
}

// Compute the wavefront slope covariance
/// The wavefront–slope covariance of all targets and guide stars, lattice by lattice, m rad.
///
/// # Errors
/// `Memory` where the result does not fit; `Invalid` where the spectral sampling does not suit the problem.
pub fn wavefront_slope_covariance(
    problem: &WavefrontProblem,
    method: &Method,
    watch: &dyn Watch,
) -> Result<WavefrontSlope, Error> {
    check_wavefront_memory(problem)?;
    match method {
        Method::Direct => direct::wavefront::covariance(problem, watch),
        Method::Spectral(sampling) => spectral::wavefront::covariance(problem, sampling, watch),
    }
}

// Compute the covariances on an engine
/// [`slope_covariance`] on an engine.
///
/// # Errors
/// Those, and `Device` and `Cuda` where a graphics processor fails; `Memory` names it where it has too little.
pub fn slope_covariance_on(
    engine: &Engine,
    problem: &SlopeProblem,
    method: &Method,
    watch: &dyn Watch,
) -> Result<SlopeCovariance, Error> {
    let gpus = engine.devices();
    if gpus.is_empty() {
        return slope_covariance(problem, method, watch);
    }
    check_memory(problem)?;
    let pairs = match engine.precision() {
        Precision::F64 => slope_pairs::<f64>(problem, method, gpus, watch)?,
        Precision::F32 => slope_pairs::<f32>(problem, method, gpus, watch)?,
    };
    Ok(SlopeCovariance::from_pairs(problem, &pairs))
}

// Compute the wavefront covariance on an engine
/// [`wavefront_slope_covariance`] on an engine.
///
/// # Errors
/// As for the slopes.
pub fn wavefront_slope_covariance_on(
    engine: &Engine,
    problem: &WavefrontProblem,
    method: &Method,
    watch: &dyn Watch,
) -> Result<WavefrontSlope, Error> {
    let gpus = engine.devices();
    if gpus.is_empty() {
        return wavefront_slope_covariance(problem, method, watch);
    }
    check_wavefront_memory(problem)?;
    match engine.precision() {
        Precision::F64 => wavefront_slopes::<f64>(problem, method, gpus, watch),
        Precision::F32 => wavefront_slopes::<f32>(problem, method, gpus, watch),
    }
}

// Run a method on graphics processors
fn slope_pairs<T: Real>(
    problem: &SlopeProblem,
    method: &Method,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Vec<PairCovariance>, Error> {
    match method {
        Method::Direct => direct::slope::gpu::pair_covariances::<T>(problem, gpus, watch),
        Method::Spectral(sampling) => {
            spectral::gpu::slope_pairs::<T>(problem, sampling, gpus, watch)
        }
    }
}

fn wavefront_slopes<T: Real>(
    problem: &WavefrontProblem,
    method: &Method,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<WavefrontSlope, Error> {
    match method {
        Method::Direct => direct::wavefront::gpu::covariance::<T>(problem, gpus, watch),
        Method::Spectral(sampling) => spectral::gpu::wavefront::<T>(problem, sampling, gpus, watch),
    }
}

// All covariances of a system
/// The form of a covariance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Form {
    /// Toeplitz where the geometry allows it, else dense.
    #[default]
    Auto,
    /// Toeplitz-compressed; refused where there is no such form.
    Toeplitz,
    /// Dense: each pair of valid lenslets, each point, exact also where the cones differ.
    Dense,
}

/// All covariances that a system asks for.
#[derive(Debug, Clone)]
pub struct Covariances {
    /// Of the slopes with themselves.
    pub slope_slope: SlopeSlope,
    /// Of the wavefronts with the slopes, where there are targets and a grid.
    pub wavefront_slope: Option<WavefrontSlopes>,
    /// Of the wavefronts with themselves, (T, T, 2M − 1, 2M − 1), m²; none where an outer scale is infinite.
    pub wavefront_wavefront: Option<Array4<f64>>,
}
impl Form {
    /// Whether the form is the dense one for this system.
    pub fn is_dense(self, system: &System) -> bool {
        match self {
            Self::Toeplitz => false,
            Self::Dense => true,
            Self::Auto => matches!(check_toeplitz(system), Err(Error::NotToeplitz { .. })),
        }
    }
}
/// A slope covariance in either form.
#[derive(Debug, Clone)]
pub enum SlopeSlope {
    /// Compressed.
    Toeplitz(SlopeCovariance),
    /// (n, n) in the order of [`SlopeOrder`], rad².
    Dense(Array2<f64>),
}
/// A wavefront–slope covariance in either form.
#[derive(Debug, Clone)]
pub enum WavefrontSlopes {
    /// Compressed, lattice by lattice.
    Toeplitz(WavefrontProblem, WavefrontSlope),
    /// (T, M, M, n): points of each target's grid, and slopes in the order of
    /// [`SlopeOrder`], m rad.
    Dense(Array4<f64>),
}

impl SlopeSlope {
    /// Variance of the x slope of the first valid lenslet of the first star, rad².
    pub fn variance(&self) -> f64 {
        match self {
            Self::Toeplitz(covariance) => covariance.variance(),
            Self::Dense(matrix) => matrix[[0, 0]],
        }
    }
}
/// Whether a system has the Toeplitz form, for its slopes and, if it has targets and a grid, for its wavefront.
///
/// # Errors
/// `NotToeplitz` with the reason where it has none; those of [`slope_problem`] and [`wavefront_problem`].
pub fn check_toeplitz(system: &System) -> Result<(), Error> {
    slope_problem(system)?;
    if system.wants_wavefront() {
        wavefront_problem(system)?;
    }
    Ok(())
}

/// Computes all that a system asks for; dense forms by the direct method.
///
/// # Errors
/// As for its parts: [`slope_covariance`], [`wavefront_slope_covariance`], [`dense::slope_covariance`].
pub fn covariances(
    system: &System,
    form: Form,
    [of_slopes, of_wavefront]: [&Method; 2],
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Covariances, Error> {
    let (dense, wanted) = (form.is_dense(system), system.wants_wavefront());
    if dense {
        engine.require_cpu("the dense form of a covariance")?;
        check_dense_memory(system, 1)?;
    }
    let wavefront_wavefront = wanted.then(|| wavefront_wavefront(system)).transpose()?.flatten();
    if dense {
        let slope_slope = SlopeSlope::Dense(dense_slopes(system, watch)?);
        let wavefront_slope = wanted.then(|| dense_wavefront(system, watch)).transpose()?;
        return Ok(Covariances { slope_slope, wavefront_slope, wavefront_wavefront });
    }
    // Compute both in Toeplitz form
    let slopes = slope_covariance_on(engine, &slope_problem(system)?, of_slopes, watch)?;
    let wavefront = || {
        let problem = wavefront_problem(system)?;
        let covariance = wavefront_slope_covariance_on(engine, &problem, of_wavefront, watch)?;
        Ok::<_, Error>(WavefrontSlopes::Toeplitz(problem, covariance))
    };
    Ok(Covariances {
        slope_slope: SlopeSlope::Toeplitz(slopes),
        wavefront_slope: wanted.then(wavefront).transpose()?,
        wavefront_wavefront,
    })
}
/// The slope covariance matrix of a system, whatever its stars, (n, n), rad².
///
/// # Errors
/// Those of [`dense::slope_covariance`].
pub fn dense_slopes(system: &System, watch: &dyn Watch) -> Result<Array2<f64>, Error> {
    let (atmosphere, stars) = (system.atmosphere(), system.sensors());
    let valid = system.valid_lenslets();
    dense::slope_covariance(atmosphere, &stars, &valid, system.cone_gradient(), watch)
}

fn dense_wavefront(system: &System, watch: &dyn Watch) -> Result<WavefrontSlopes, Error> {
    let matrix = dense_wavefront_slope(system, watch)?;
    let (grid, slopes) = (system.wavefront_grid()?, matrix.ncols());
    let shape = (system.targets().len(), grid.points, grid.points, slopes);
    let values = matrix.into_shape_with_order(shape);
    Ok(WavefrontSlopes::Dense(values.unwrap_or_else(|_| unreachable!("same length"))))
}
/// The wavefront–slope covariance matrix of a system, whatever its stars, (T M², n), m rad.
///
/// # Errors
/// Those of [`dense::wavefront_slope`], and `Invalid` where the system has no target or no grid.
pub fn dense_wavefront_slope(system: &System, watch: &dyn Watch) -> Result<Array2<f64>, Error> {
    let wanted = (system.targets(), system.wavefront_grid()?, system.wavefront_pitch());
    let (atmosphere, stars) = (system.atmosphere(), system.sensors());
    let valid = system.valid_lenslets();
    dense::wavefront_slope(atmosphere, wanted, &stars, &valid, system.cone_gradient(), watch)
}
/// Covariance of the targets' wavefronts, (T, T, 2M − 1, 2M − 1), m²; none where an outer scale is infinite.
///
/// # Errors
/// `Invalid` where the system has no target or no grid; `Memory` where the result does not fit.
pub fn wavefront_wavefront(system: &System) -> Result<Option<Array4<f64>>, Error> {
    let array = LensletArray::new(system.lenslet_array().lenslets(), system.wavefront_pitch())?;
    let targets = (system.targets(), system.targets());
    let grid = system.wavefront_grid()?;
    let gradient = system.cone_gradient();
    let problem = WavefrontProblem::new(system.atmosphere(), &array, targets, grid, gradient)?;
    if problem.layers().iter().any(|layer| layer.outer_scale.is_infinite()) {
        return Ok(None);
    }
    check_wavefront_memory(&problem)?;
    direct::wavefront::wavefront_covariance(&problem).map(Some)
}

// Check that the covariance fits into memory
/// Refuses a problem whose result and working memory exceed the memory that is available now.
///
/// # Errors
/// `Memory`, with the bytes needed and available. Where the system does not tell what is available, nothing is refused.
pub fn check_memory(problem: &SlopeProblem) -> Result<(), Error> {
    refuse_beyond_memory(memory_needed(problem), || {
        let (sources, lenslets) = (problem.sources(), problem.lenslets());
        format!("the covariance of {sources} guide stars on {lenslets} × {lenslets} lenslets")
    })
}

/// Bytes of the result, of the pairs that it is spread from, of six fields a thread, and of 64 MiB for the rest.
fn memory_needed(problem: &SlopeProblem) -> u64 {
    let (sources, lags) = (problem.sources() as u64, problem.lags() as u64);
    let threads = device::threads() as u64;
    let pairs = 1 + sources.saturating_sub(1).saturating_mul(sources) / 2;
    let fields =
        sources.saturating_mul(sources).saturating_mul(4).saturating_add(3 * pairs + 6 * threads);
    fields.saturating_mul(lags.saturating_mul(lags)).saturating_mul(8).saturating_add(64 << 20)
}
/// Refuses a wavefront problem whose results and working memory exceed the memory that is available now.
///
/// # Errors
/// `Memory`, with the bytes needed and available. Where the system does not tell what is available, nothing is refused.
pub fn check_wavefront_memory(problem: &WavefrontProblem) -> Result<(), Error> {
    let (targets, points) = (problem.targets(), problem.grid().points);
    let lags = problem.layers().iter().map(|layer| problem.lags(layer)).max().unwrap_or(0) as u64;
    let fields = lags.saturating_mul(lags).saturating_mul(8 * device::threads() as u64);
    let wavefronts = (targets as u64 * 2 * points as u64).saturating_pow(2);
    let numbers = fields.saturating_add(wavefronts).saturating_add(2 * problem.len() as u64);
    refuse_beyond_memory(numbers.saturating_mul(8).saturating_add(64 << 20), || {
        format!("the covariance of {targets} targets on {points} × {points} points with the slopes")
    })
}
/// Refuses a system whose dense covariances, `copies` times, exceed the memory that is available now.
///
/// # Errors
/// `Memory`, with the bytes needed and available.
pub fn check_dense_memory(system: &System, copies: u64) -> Result<(), Error> {
    let [slopes, wavefront] = dense_bytes(system);
    let needed = slopes.saturating_add(wavefront).saturating_mul(copies).saturating_add(64 << 20);
    refuse_beyond_memory(needed, || "the dense form of the covariances".into())
}

/// Bytes of the dense matrices of slopes, (n, n), and of wavefront and slopes, (T M², n).
pub fn dense_bytes(system: &System) -> [u64; 2] {
    let slopes = SlopeOrder::new(&system.valid_lenslets()).len() as u64;
    let points =
        system.phase().map_or(0, |grid| grid.points.pow(2) * system.targets().len()) as u64;
    [slopes, points].map(|rows| rows.saturating_mul(slopes).saturating_mul(8))
}

// Tests of the common interface
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::silent;

    // Refuse lenslet arrays that differ
    #[test]
    fn lenslet_arrays_of_unequal_pitch_are_refused() {
        let system = System::from_file("book/systems/keck-lgs.toml").unwrap();
        assert!(slope_problem(&system).is_ok());
        let pitch = system.lenslet_array().pitch();
        let mut stars = system.guide_stars().to_vec();
        stars[1].sensor.array = LensletArray::new(10, 2.0 * pitch).unwrap();
        let system = system.to_builder().guide_stars(stars).build().unwrap();
        let error = slope_problem(&system).unwrap_err().to_string();
        assert!(
            error.contains("20 lenslets of 0.5 m and guide_star[1] has 10 lenslets of 1 m"),
            "{error}"
        );
    }

    // Refuse what does not fit
    #[test]
    fn what_does_not_fit_is_refused_before_it_starts() {
        let system = System::from_file("book/systems/small.toml").unwrap();
        let mut star = system.guide_stars()[0].clone();
        star.sensor.array = LensletArray::new(10_000, 2e-4).unwrap();
        let system = system.to_builder().guide_stars(vec![star; 300]).build().unwrap();
        let problem = slope_problem(&system).unwrap();
        let error = slope_covariance(&problem, &Method::Direct, &silent).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }) && error.exit_code() == 2, "{error}");
    }
}
