// Tangled from book/src/inversion-choice.md: edit there, or here and run cargo tangle stitch.
//! How systems with the covariance of measurements are solved: by a factor of the matrix, or by iterations.

// Imports of the choice
use crate::device::{CostKind, Speed, threads};
#[cfg(feature = "factorise")]
use crate::error::Error;
use crate::error::{Invalid, count};
#[cfg(feature = "factorise")]
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::GuideStar;
use crate::model::system::System;

// Ways to invert the measurements
/// How C_mm, the covariance of measurements with their noise, is inverted, or how systems with it are solved.
///
/// ```
/// use lenslet::{estimation::{EstimateOptions, EstimatePlan, Inversion}, model::System, turbulence::Form};
/// let keck = System::from_file("book/systems/keck-lgs.toml")?;
/// let options = EstimateOptions::default().form(Form::Toeplitz);
/// let method = |frames| Ok::<_, lenslet::Error>(EstimatePlan::new(&keck, options.frames(frames))?.method());
/// assert_eq!(EstimatePlan::new(&keck, options)?.slopes(), 2400);
/// assert_eq!(method(9)?, Inversion::Iterative);
/// # #[cfg(feature = "factorise")]
/// assert_eq!(method(10)?, Inversion::Cholesky);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Inversion {
    /// Chosen by the plan, which reports it. A dense matrix is inverted by its Cholesky factor if all guide stars have noise and
    /// nothing is filtered, otherwise by eigenvectors.
    #[default]
    Auto,
    /// By Cholesky's factor, Eq. [half solved](https://lenslet.github.io/lenslet/dense-reconstructor.html#eq-half-solved).
    Cholesky,
    /// By eigenvectors, the smallest filtered, Eq. [filtered](https://lenslet.github.io/lenslet/dense-reconstructor.html#eq-filtered).
    Eigen,
    /// By iterations with products, Eq. [normal](https://lenslet.github.io/lenslet/estimate.html#eq-normal); the matrix is never formed.
    Iterative,
}

// Names and rules of the ways
impl Inversion {
    /// All of them by the names that a system file has for them.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("cholesky", Self::Cholesky),
        ("eigen", Self::Eigen),
        ("iterative", Self::Iterative),
    ];

    /// Its name in a system file.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, inversion)| *inversion == self)
            .map_or("auto", |(name, _)| name)
    }

    /// The inversion of a dense matrix, and why.
    pub(crate) fn dense(filter: f64, stars: &[GuideStar]) -> (Self, &'static str) {
        match filter > 0.0 {
            true => (Self::Eigen, "a filter is asked for"),
            false if least_noise(stars) == 0.0 => (Self::Eigen, "a guide star has no noise"),
            false => (Self::Cholesky, "all guide stars have noise"),
        }
    }

    // Refuse a filter of nothing
    /// Refuses a filter that is no ratio, or that this way has no use for.
    pub(crate) fn check_filter(self, filter: f64) -> Result<(), Invalid> {
        #[cfg(feature = "factorise")]
        crate::linear::Eigen::check_filter(filter)?;
        if filter != 0.0 && matches!(self, Self::Cholesky | Self::Iterative) {
            let name = self.name();
            let expected =
                format!("0 with method = \"{name}\", which has no eigenvalues to filter");
            return Err(Invalid::new("filter", filter, expected));
        }
        Ok(())
    }
}

/// The least mean noise of a guide star, rad².
pub(crate) fn least_noise(stars: &[GuideStar]) -> f64 {
    stars.iter().map(|star| star.noise.mean()).fold(f64::INFINITY, f64::min)
}

// What a solution will cost
/// Cost of the solutions for some frames; times are seconds of one thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Slopes of a frame.
    pub(crate) slopes: usize,
    /// Frames that will be solved.
    pub(crate) frames: usize,
    /// Time of a product with the operator.
    pub(crate) product: f64,
    /// Iterations for a frame.
    pub(crate) iterations: f64,
}

/// Iterations where noise has the variance of the slopes.
const ITERATIONS: f64 = 15.0;

// Iterations for a right-hand side
/// Iterations for a right-hand side of a system, where `most` are allowed. Stars with few lenslets do not count: the preconditioner
/// eliminates them.
pub(crate) fn iterations(system: &System, most: usize) -> f64 {
    let air = system.atmosphere();
    let strength = 0.1622 * air.wavelength().powi(2) / air.fried_parameter().powf(5.0 / 3.0);
    let lenslets = |star: &&GuideStar| star.sensor.array.lenslets();
    let widest = system.guide_stars().iter().map(|star| lenslets(&star)).max().unwrap_or(0);
    let many = system.guide_stars().iter().filter(|star| 2 * lenslets(star) > widest);
    let signal = many.map(|star| strength / star.sensor.array.pitch().cbrt() / star.noise.mean());
    (ITERATIONS * signal.fold(1.0, f64::max).sqrt()).min(most as f64)
}

// Right-hand sides that fit a device
/// Numbers of the half spectra of a right-hand side on a device, of stars that share a lattice: in the operator and its preconditioner.
#[cfg(feature = "factorise")]
pub(crate) fn half_spectra(stars: usize, lenslets: usize) -> usize {
    8 * stars * (2 * lenslets).next_multiple_of(32) * lenslets
}

/// Number of right-hand sides that are solved together, at most `most`: halved until they fit.
#[cfg(feature = "factorise")]
pub(crate) fn side_by_side(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let mut count = most.max(1);
    while count > 1 && !fits(count) {
        count = count.div_ceil(2);
    }
    count
}

// Time of a toeplitz product
/// Time of a Toeplitz product for a number of stars, of tables with a number of lags along an axis.
pub(crate) fn toeplitz_product(stars: usize, lags: usize) -> f64 {
    let (stars, lags) = (stars as f64, lags as f64);
    4.0 * stars * lags.powi(2) * 2.0 * lags.log2() * 0.7e-9
}

// Rates of matrices
/// Rates of matrices of any order: that of the largest, the order at which it is half as fast, and the power of the order by which it
/// gets there.
type Rate = [f64; 3];

/// How fast one thread, or one device, computes with matrices.
pub(crate) struct MatrixRates {
    /// Multiplications with their additions in a second, in products and in Cholesky's factor.
    products: Rate,
    factors: Rate,
    /// n³ in a second, for all eigenvectors.
    eigenvectors: Rate,
}
// Time of products and factors
impl MatrixRates {
    pub(crate) const fn new(products: Rate, factors: Rate, eigenvectors: Rate) -> Self {
        Self { products, factors, eigenvectors }
    }

    /// Those of a thread, one of all that share the work.
    pub(crate) fn of_threads() -> Self {
        let threads = threads() as f64;
        let [products, eigenvectors] = [200.0, 250.0].map(|half| half * threads);
        Self::new([20e9, products, 1.0], [20e9, 1500.0, 1.0], [2.5e9, eigenvectors, 1.0])
    }

    /// Time of so much work with a matrix of some order.
    fn time([rate, half, power]: Rate, work: f64, order: f64) -> f64 {
        work / rate * (1.0 + (half / order).powf(power))
    }

    /// Time of so many multiplications, in products with a matrix of some order.
    #[cfg_attr(not(feature = "factorise"), allow(dead_code))]
    pub(crate) fn products(&self, multiplications: f64, order: f64) -> (CostKind, f64) {
        (CostKind::Products, Self::time(self.products, multiplications, order))
    }

    // Time to decompose a matrix
    /// Time to decompose a matrix of some order.
    pub(crate) fn factor(&self, inversion: Inversion, n: f64) -> (CostKind, f64) {
        match inversion {
            Inversion::Eigen => {
                (CostKind::Eigenvectors, Self::time(self.eigenvectors, n.powi(3), n))
            }
            _ => (CostKind::Factors, Self::time(self.factors, n.powi(3) / 6.0, n)),
        }
    }
}

// Choose by the cost
/// Bytes of the largest matrix that `auto` factorises.
pub(crate) const LARGEST: u64 = 2 << 30;

/// Time of one number of a dense matrix: to gather it, and to use it for one frame.
const GATHER: f64 = 6e-9;
const USE: f64 = 1.6e-9;

impl Cost {
    // Cost of preparation and of frames
    /// Work of one thread to prepare an inversion, and to solve all frames with it.
    pub(crate) fn of(&self, inversion: Inversion) -> [Vec<(CostKind, f64)>; 2] {
        let (n, frames) = (self.slopes as f64, self.frames as f64);
        if inversion == Inversion::Iterative {
            return [
                Vec::new(),
                vec![(CostKind::Transforms, 2.0 * frames * self.iterations * self.product)],
            ];
        }
        let prepare = vec![
            (CostKind::Memory, GATHER * n * n),
            MatrixRates::of_threads().factor(inversion, n),
        ];
        [prepare, vec![(CostKind::Memory, frames * USE * n * n)]]
    }

    // Choose and say why
    /// The requested method, or else the faster one on a machine of some speed, and the reason.
    ///
    /// # Errors
    /// `Invalid` where this build lacks the requested method, or a filter makes no sense.
    pub(crate) fn choose(
        &self,
        given: Inversion,
        filter: f64,
        stars: &[GuideStar],
        speed: &Speed,
    ) -> Result<(Inversion, String), Invalid> {
        given.check_filter(filter)?;
        if !cfg!(feature = "factorise") && !matches!(given, Inversion::Auto | Inversion::Iterative)
        {
            let expected = "auto or iterative, as this build is without the feature factorise";
            return Err(Invalid::new("method", given.name(), expected));
        }
        if given != Inversion::Auto {
            return Ok((given, "it was asked for".into()));
        }
        let (dense, why) = Inversion::dense(filter, stars);
        // Choose between dense and iterative
        let bytes = 8 * (self.slopes as u64).saturating_pow(2);
        let total =
            |inversion| self.of(inversion).iter().map(|work| speed.seconds(work)).sum::<f64>();
        let [direct, iterated] = [dense, Inversion::Iterative].map(total);
        let frames = if self.frames == 1 { "a frame".into() } else { count(self.frames, "frame") };
        let of_frames =
            format!("some {:.0} iterations for {frames}", self.frames as f64 * self.iterations);
        Ok(match () {
            () if !cfg!(feature = "factorise") => {
                (Inversion::Iterative, "this build is without the feature factorise".into())
            }
            () if filter > 0.0 => (dense, why.into()),
            () if bytes > LARGEST => {
                (Inversion::Iterative, format!("the matrix would take {} GiB", bytes >> 30))
            }
            () if direct < iterated => {
                (dense, format!("{why}, and it takes less time than {of_frames}"))
            }
            () => {
                (Inversion::Iterative, format!("{of_frames} take less time than {}", dense.name()))
            }
        })
    }
}

// Name the slope of a pivot
/// The error for a covariance matrix of all slopes of a system that is not positive definite.
#[cfg(feature = "factorise")]
pub(crate) fn not_definite(system: &System, pivot: usize) -> Error {
    let order = SlopeOrder::new(&system.valid_lenslets());
    let stars = system.guide_stars().len();
    let last = |q: &usize| order.index(*q, 1, order.lenslets(*q).len() - 1);
    let star = (0..stars).find(|q| pivot <= last(q)).unwrap_or(stars - 1);
    let (within, lenslets) = (pivot - order.index(star, 0, 0), order.lenslets(star));
    let (axis, [j, i]) = (["x", "y"][within / lenslets.len()], lenslets[within % lenslets.len()]);
    Error::Failed {
        what: format!("the factorisation of the covariance of {} slopes", order.len()),
        reason: format!(
            "it is not positive definite: slopes before number {pivot}, the {axis} slope of lenslet [{j}, {i}] of \
             guide_star[{star}], leave nothing of its variance. Give guide_star[{star}] the noise that it has, or take \
             method = \"eigen\" in [reconstructor], which drops what rounding has spoilt"
        ),
    }
}
