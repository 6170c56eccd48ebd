// Tangled from book/src/noise.md: edit there, or here and run cargo tangle stitch.
//! Noise of slopes, and guide stars: sensors with their noise.

use crate::{
    error::{Invalid, accept, not_negative},
    model::lenslet_array::{LensletArray, SlopeOrder},
    model::removed_modes::{Focus, TipTilt},
    model::sensor::Sensor,
    model::source::Source,
};
use ndarray::{Array2, s};
use std::ops::Range;

// Noise of the slopes of a sensor
/// Covariance of the noise of a sensor's slopes, [noise block](https://lenslet.github.io/lenslet/noise.html#eq-noise-block): independent between lenslets.
///
/// ```
/// use lenslet::model::Noise;
/// let even = Noise::uniform(1e-14)?;
/// let streak = Noise::blocks(&[[[4e-14, 1e-14], [1e-14, 1e-14]], [[2e-14, 0.0], [0.0, 2e-14]]])?;
/// assert_eq!((even.block(7), streak.block(0)), ([1e-14, 0.0, 1e-14], [4e-14, 1e-14, 1e-14]));
/// assert!((streak.mean() - 2.25e-14).abs() < 1e-28);
/// assert!(Noise::blocks(&[[[1.0, 2.0], [2.0, 1.0]]]).is_err()); // no covariance of anything
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Noise(NoiseForm);

#[derive(Debug, Clone, PartialEq)]
enum NoiseForm {
    /// The variance of every slope, rad².
    Uniform(f64),
    /// Common variance of most valid lenslets, and the variances of the others with their indices, rad².
    Most { lenslets: usize, variance: f64, others: Vec<(usize, f64)> },
    /// The variance of both slopes of each valid lenslet, rad².
    Lenslets(Vec<f64>),
    /// Elements xx, xy and yy of the block of each valid lenslet, rad².
    Blocks(Vec<[f64; 3]>),
}

// Construct noise from valid input
impl Noise {
    /// Equal `variance` \[rad²\] for every slope.
    ///
    /// # Errors
    /// `Invalid` where it is negative, infinite or NaN.
    pub fn uniform(variance: f64) -> Result<Self, Invalid> {
        not_negative("noise", variance).map(|variance| Self(NoiseForm::Uniform(variance)))
    }

    // Variances given lenslet by lenslet
    /// A variance \[rad²\] for both slopes of each valid lenslet.
    ///
    /// # Errors
    /// `Invalid`, with the number of the lenslet, as for [`uniform`](Self::uniform).
    pub fn lenslets(variances: Vec<f64>) -> Result<Self, Invalid> {
        for (k, &variance) in variances.iter().enumerate() {
            not_negative(&format!("noise of lenslet {k}"), variance)?;
        }
        Ok(Self(NoiseForm::Lenslets(variances)))
    }

    // Noise of mostly equal lenslets
    /// Equal `variance` \[rad²\] for the slopes of most of `lenslets` valid lenslets, and the variances of the `others`, in their order.
    ///
    /// # Errors
    /// As for [`uniform`](Self::uniform).
    pub(crate) fn most(
        lenslets: usize,
        variance: f64,
        others: Vec<(usize, f64)>,
    ) -> Result<Self, Invalid> {
        not_negative("noise", variance)?;
        for (k, other) in &others {
            not_negative(&format!("noise of lenslet {k}"), *other)?;
        }
        Ok(Self(NoiseForm::Most { lenslets, variance, others }))
    }

    // Accept blocks that are covariances
    /// A covariance \[rad²\] of the x and the y slope of each valid lenslet: symmetric, and positive semidefinite.
    ///
    /// # Errors
    /// `Invalid`, with the number of the lenslet and its block, where it is neither, or has a number that is not finite.
    pub fn blocks(blocks: &[[[f64; 2]; 2]]) -> Result<Self, Invalid> {
        const TOLERANCE: f64 = 1e-6;
        let take = |(k, &block): (usize, &[[f64; 2]; 2])| {
            let [[xx, xy], [yx, yy]] = block;
            let scale = xx.sqrt() * yy.sqrt(); // NaN for a negative variance
            let symmetric = (xy - yx).abs() <= TOLERANCE * scale;
            let positive = xx >= 0.0 && yy >= 0.0 && xy.abs() <= (1.0 + TOLERANCE) * scale;
            let finite = block.as_flattened().iter().all(|element| element.is_finite());
            let expected = "a symmetric and positive semidefinite matrix of finite numbers";
            let good = finite && symmetric && positive;
            accept(good, &format!("noise of lenslet {k}"), block, expected)?;
            Ok([xx, 0.5 * (xy + yx), yy])
        };
        let blocks = blocks.iter().enumerate().map(take);
        Ok(Self(NoiseForm::Blocks(blocks.collect::<Result<_, Invalid>>()?)))
    }

    // Read noise from a file
    /// Reads noise from a NumPy or FITS file: variances (n), or blocks (n, 2, 2), for n valid lenslets in their order; in
    /// rad², unless a FITS file has another [unit](crate::files::Unit).
    ///
    /// # Errors
    /// Those of [`read_array`](crate::files::reading::read_array) and of the constructors, with the name of the file.
    #[cfg(feature = "files")]
    pub fn read(path: &std::path::Path) -> Result<Self, crate::error::Error> {
        use crate::files::reading::{Unit, read_array};
        let array = read_array(path, [1, 3], Unit::SquareRadian)?;
        let shape = array.shape().to_vec();
        let numbers = array.into_raw_vec_and_offset().0;
        let noise = match shape[..] {
            [_] => Self::lenslets(numbers),
            [_, 2, 2] => {
                let block = |block: &[f64]| [[block[0], block[1]], [block[2], block[3]]];
                Self::blocks(&numbers.chunks_exact(4).map(block).collect::<Vec<_>>())
            }
            _ => Err(Invalid::new("shape", format!("{shape:?}"), "(n) or (n, 2, 2)")),
        };
        noise.map_err(|invalid| {
            let quantity = format!("{}: {}", path.display(), invalid.quantity);
            Invalid { quantity, ..invalid }.into()
        })
    }

    // Check the number of lenslets
    /// Rejects noise that is given lenslet by lenslet for another number of lenslets than the `valid` ones of a sensor, which are
    /// counted only if they are needed.
    pub fn check_lenslets(&self, valid: impl FnOnce() -> usize) -> Result<(), Invalid> {
        let given = match &self.0 {
            NoiseForm::Uniform(_) => return Ok(()),
            NoiseForm::Most { lenslets, .. } => *lenslets,
            NoiseForm::Lenslets(variances) => variances.len(),
            NoiseForm::Blocks(blocks) => blocks.len(),
        };
        let valid = valid();
        let value = format!("noise of {given} lenslets");
        let expected = format!("noise of {valid} lenslets, the valid ones of the sensor");
        if given == valid { Ok(()) } else { Err(Invalid::new("noise", value, expected)) }
    }

    // Return the block of a lenslet
    /// Elements xx, xy and yy of the block of valid lenslet `k` \[rad²\]; panics beyond the last.
    pub fn block(&self, k: usize) -> [f64; 3] {
        match &self.0 {
            NoiseForm::Uniform(variance) => [*variance, 0.0, *variance],
            NoiseForm::Most { lenslets, variance, others } => {
                assert!(k < *lenslets, "lenslet {k} of {lenslets}");
                let place = others.binary_search_by_key(&k, |(other, _)| *other);
                let variance = place.map_or(*variance, |place| others[place].1);
                [variance, 0.0, variance]
            }
            NoiseForm::Lenslets(variances) => [variances[k], 0.0, variances[k]],
            NoiseForm::Blocks(blocks) => blocks[k],
        }
    }

    /// Whether the noise of the two slopes of some lenslet is correlated.
    pub fn is_correlated(&self) -> bool {
        matches!(&self.0, NoiseForm::Blocks(blocks) if blocks.iter().any(|[_, xy, _]| *xy != 0.0))
    }

    // Largest variance of noise
    /// The largest variance of a slope \[rad²\].
    #[cfg(feature = "files")]
    pub(crate) fn largest(&self) -> f64 {
        match &self.0 {
            NoiseForm::Uniform(variance) => *variance,
            NoiseForm::Most { variance, others, .. } => {
                others.iter().fold(*variance, |most, (_, other)| most.max(*other))
            }
            NoiseForm::Lenslets(variances) => variances.iter().copied().fold(0.0, f64::max),
            NoiseForm::Blocks(blocks) => {
                blocks.iter().fold(0.0, |most, [xx, _, yy]| most.max(*xx).max(*yy))
            }
        }
    }

    // Mean and factors of noise
    // Whether noise is uniform
    /// Whether it is given as one variance for all slopes.
    pub fn is_uniform(&self) -> bool {
        matches!(&self.0, NoiseForm::Uniform(_))
    }

    /// Mean variance of a slope \[rad²\], [mean noise](https://lenslet.github.io/lenslet/noise.html#eq-mean-noise).
    pub fn mean(&self) -> f64 {
        let mean = |sum: f64, lenslets: usize| sum / lenslets.max(1) as f64;
        match &self.0 {
            NoiseForm::Uniform(variance) => *variance,
            NoiseForm::Most { lenslets, variance, others } => {
                let whole = variance * (lenslets - others.len()) as f64;
                mean(whole + others.iter().map(|(_, other)| other).sum::<f64>(), *lenslets)
            }
            NoiseForm::Lenslets(variances) => mean(variances.iter().sum(), variances.len()),
            NoiseForm::Blocks(blocks) => {
                mean(blocks.iter().map(|[xx, _, yy]| 0.5 * (xx + yy)).sum(), blocks.len())
            }
        }
    }

    // Factor of one lenslet's noise
    /// Elements a, b and c of the Cholesky factor of the block of valid lenslet `k` \[rad\], [noise factor](https://lenslet.github.io/lenslet/noise.html#eq-noise-factor).
    ///
    /// ```
    /// // A streak at 30 degrees from x, with the variances 4 along and 1 across in units of 1e-14 rad².
    /// let [cos, sin] = [0.75f64.sqrt(), 0.5];
    /// let block = [[1.0 + 3.0 * cos * cos, 3.0 * cos * sin], [3.0 * cos * sin, 1.0 + 3.0 * sin * sin]];
    /// let noise = lenslet::model::Noise::blocks(&[block.map(|row| row.map(|element| 1e-14 * element))])?;
    /// let near = |x: f64, expected: f64| (x / expected - 1.0).abs() < 4e-4;
    /// let [xx, xy, yy] = noise.block(0);
    /// assert!(near(xx, 3.25e-14) && near(xy, 1.299e-14) && near(yy, 1.75e-14));
    /// assert!(near(noise.mean(), 2.5e-14) && near(xx * yy - xy * xy, 4e-28));
    /// let [a, b, c] = noise.factor(0);
    /// assert!(near(a, 1.803e-7) && near(b, 0.7206e-7) && near(c, 1.109e-7) && near(a * c, 2e-14));
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn factor(&self, k: usize) -> [f64; 3] {
        let [xx, xy, yy] = self.block(k);
        let a = xx.sqrt();
        let b = if xy == 0.0 { 0.0 } else { xy / a };
        [a, b, (yy - b * b).max(0.0).sqrt()]
    }
}

// A guide star with its noise
/// A guide star: its sensor, the noise of its slopes, and the treatment of unmeasured modes.
#[derive(Debug, Clone, PartialEq)]
pub struct GuideStar {
    /// Sensor, with the direction and height of the star.
    pub sensor: Sensor,
    /// Covariance of the noise of its slopes.
    pub noise: Noise,
    /// Treatment of tip and tilt in its slopes.
    pub tip_tilt: TipTilt,
    /// Treatment of focus in its slopes.
    pub focus: Focus,
}

impl GuideStar {
    /// A guide star that measures tip, tilt and focus.
    pub fn new(sensor: Sensor, noise: Noise) -> Self {
        Self { sensor, noise, tip_tilt: TipTilt::default(), focus: Focus::default() }
    }

    /// A guide star whose sensor is at rest, and all of whose slopes have noise of the variance `noise` \[rad²\].
    ///
    /// # Errors
    /// `Invalid` as for [`Noise::uniform`].
    pub fn at_rest(source: Source, array: LensletArray, noise: f64) -> Result<Self, Invalid> {
        Ok(Self::new(Sensor::at_rest(source, array), Noise::uniform(noise)?))
    }
}

// Noise of all slopes
/// Covariance of the noise of all slopes in the order of [`SlopeOrder`]: in each row an element on the diagonal, one for the
/// other slope of the same lenslet, and errors that slopes share.
#[derive(Debug, Clone, PartialEq)]
pub struct SlopeNoise {
    /// Variance of the noise of each slope, rad².
    pub variances: Vec<f64>,
    /// Index of the other slope of the same lenslet.
    pub partners: Vec<usize>,
    /// Covariance of the noise of both, rad².
    pub covariances: Vec<f64>,
    /// Ranges of slopes that share an error, and its variance, rad²: Eq. [unknown tilt](https://lenslet.github.io/lenslet/noise.html#eq-unknown-tilt).
    pub common: Vec<(Range<usize>, f64)>,
}

// Gather the noise of all slopes
impl SlopeNoise {
    /// The noise of the slopes of `stars`, whose valid lenslets are those of `order`.
    pub fn new(stars: &[GuideStar], order: &SlopeOrder) -> Self {
        let mut variances = vec![0.0; order.len()];
        let (mut partners, mut covariances) = (vec![0; order.len()], variances.clone());
        let mut common = Vec::new();
        for (q, star) in stars.iter().enumerate() {
            let lenslets = order.lenslets(q).len();
            if let TipTilt::Unknown { variance } = star.tip_tilt {
                let slopes = |axis| order.index(q, axis, 0)..order.index(q, axis, lenslets);
                common.extend([0, 1].map(|axis| (slopes(axis), variance)));
            }
            for k in 0..lenslets {
                let [x, y] = [0, 1].map(|axis| order.index(q, axis, k));
                let [xx, xy, yy] = star.noise.block(k);
                (variances[x], variances[y]) = (xx, yy);
                (partners[x], partners[y]) = (y, x);
                (covariances[x], covariances[y]) = (xy, xy);
            }
        }
        Self { variances, partners, covariances, common }
    }

    // Use the noise of all slopes
    /// Whether the noise of the two slopes of some lenslet is correlated.
    pub fn is_correlated(&self) -> bool {
        self.covariances.iter().any(|covariance| *covariance != 0.0)
    }

    /// Adds the noise to a covariance matrix of all slopes, (n, n), rad².
    pub fn add_to(&self, matrix: &mut Array2<f64>) {
        for (k, &variance) in self.variances.iter().enumerate() {
            matrix[[k, k]] += variance;
            matrix[[k, self.partners[k]]] += self.covariances[k];
        }
        for (slopes, variance) in &self.common {
            let mut block = matrix.slice_mut(s![slopes.clone(), slopes.clone()]);
            block += *variance;
        }
    }
}

// Check noise and its refusals
#[cfg(test)]
mod tests {
    use super::*;

    const STREAK: [[f64; 2]; 2] = [[4.0, -1.2], [-1.2, 1.0]];

    // Check that impossible blocks are refused
    #[test]
    fn blocks_that_cannot_be_are_refused() {
        let nan = f64::NAN;
        for block in [
            [[1.0, 0.5], [0.4, 1.0]],
            [[1.0, 1.01], [1.01, 1.0]],
            [[-1.0, 0.0], [0.0, 1.0]],
            [[-1.0, 0.0], [0.0, -1.0]],
            [[0.0, 1e-9], [1e-9, 1.0]],
            [[1.0, nan], [nan, 1.0]],
            [[f64::INFINITY, 0.0], [0.0, 1.0]],
        ] {
            let refused = Noise::blocks(&[STREAK, block]).unwrap_err();
            assert_eq!(refused.quantity, "noise of lenslet 1", "{block:?}");
        }
        let line = [[4.0, 2.000_000_1], [2.0, 1.0]];
        assert!(Noise::blocks(&[line, [[0.0; 2]; 2]]).is_ok());
        assert_eq!(Noise::lenslets(vec![1.0, -1.0]).unwrap_err().quantity, "noise of lenslet 1");
        assert_eq!(Noise::uniform(-1e-20).unwrap_err().quantity, "noise");
    }

    // Check forms of noise against each other
    #[test]
    fn factors_give_their_blocks_back() {
        let unit = [[2.0, 0.0], [0.0, 2.0]];
        let noise = Noise::blocks(&[STREAK, unit, [[0.0, 0.0], [0.0, 9.0]]]).unwrap();
        for k in 0..3 {
            let ([a, b, c], [xx, xy, yy]) = (noise.factor(k), noise.block(k));
            for (found, expected) in [(a * a, xx), (a * b, xy), (b * b + c * c, yy)] {
                assert!((found - expected).abs() < 1e-15, "{k}: {found} and {expected}");
            }
        }
        assert_eq!(noise.mean(), (2.5 + 2.0 + 4.5) / 3.0);
        let alike = [Noise::uniform(2.0), Noise::lenslets(vec![2.0; 3]), Noise::blocks(&[unit; 3])];
        for noise in alike.map(Result::unwrap) {
            assert_eq!((noise.block(2), noise.mean()), ([2.0, 0.0, 2.0], 2.0));
            assert_eq!(
                (noise.factor(2), noise.is_correlated()),
                ([2f64.sqrt(), 0.0, 2f64.sqrt()], false)
            );
        }
        assert!(noise.is_correlated() && noise.check_lenslets(|| 3).is_ok());
        assert_eq!(noise.check_lenslets(|| 4).unwrap_err().value, "noise of 3 lenslets");
    }

    // Check the partners of all noise
    #[test]
    fn the_matrix_of_all_noise_has_partners() {
        let valid = [ndarray::arr2(&[[true]]), ndarray::arr2(&[[true, false], [true, true]])];
        let star = |noise: Result<Noise, Invalid>| {
            let array = LensletArray::new(1, 0.5).unwrap();
            let sensor = Sensor::at_rest(Source::star(0.0, 0.0).unwrap(), array);
            GuideStar::new(sensor, noise.unwrap())
        };
        let blocks = Noise::blocks(&[[[1.0, 0.0], [0.0, 1.0]], STREAK, [[1.0, 0.0], [0.0, 2.0]]]);
        let mut stars = [star(Noise::uniform(7.0)), star(blocks)];
        let noise = SlopeNoise::new(&stars, &SlopeOrder::new(&valid));
        let mut matrix = Array2::zeros((8, 8));
        noise.add_to(&mut matrix);
        assert_eq!(matrix.diag().to_vec(), [7.0, 7.0, 1.0, 4.0, 1.0, 1.0, 1.0, 2.0]);
        assert_eq!([matrix[[3, 6]], matrix[[6, 3]], matrix.sum()], [-1.2, -1.2, 24.0 - 2.4]);
        assert!(noise.is_correlated());
        // An unknown tilt is common to the slopes of one star along one axis.
        stars[1].tip_tilt = TipTilt::Unknown { variance: 0.5 };
        let mut with = Array2::zeros((8, 8));
        SlopeNoise::new(&stars, &SlopeOrder::new(&valid)).add_to(&mut with);
        let block = |k: usize| if k < 2 { 0 } else { 1 + (k - 2) / 3 };
        let common = |(k, l)| if block(k) == block(l) && k >= 2 { 0.5 } else { 0.0 };
        assert_eq!(with - matrix, Array2::from_shape_fn((8, 8), common));
    }

    // Check noise from files
    #[test]
    fn files_hold_variances_or_blocks() -> Result<(), Box<dyn std::error::Error>> {
        use crate::{data::DataSet, files::Format};
        use crate::{numerics::Precision, units::ARCSEC};
        use ndarray::{Array1, Array3};
        use ndarray_npy::WriteNpyExt;
        let file = tempfile::NamedTempFile::new()?;
        let expected = Noise::blocks(&[STREAK, [[1.0, 0.5], [0.5, 2.0]]])?;
        let numbers = [STREAK.as_flattened(), &[1.0, 0.5, 0.5, 2.0]].concat();
        Array3::from_shape_vec((2, 2, 2), numbers)?.write_npy(file.reopen()?)?;
        assert_eq!(Noise::read(file.path())?, expected);
        Array1::from(vec![1.0, 3.0]).write_npy(file.reopen()?)?;
        assert_eq!(Noise::read(file.path())?, Noise::lenslets(vec![1.0, 3.0])?);
        // Read noise in squared arcseconds
        let mut arrays = DataSet::default();
        arrays.add("noise", Array1::from(vec![0.5])).unit("arcsec2");
        arrays.write(file.reopen()?, Format::Fits, Precision::F64)?;
        let [variance, ..] = Noise::read(file.path())?.block(0);
        assert!((variance - 0.5 * ARCSEC * ARCSEC).abs() < 1e-15 * variance);
        // Refuse other shapes and bad numbers
        let refused = || Noise::read(file.path()).unwrap_err().to_string();
        Array1::from(vec![1.0, -3.0]).write_npy(file.reopen()?)?;
        let message = refused();
        assert!(
            message.contains(".tmp") && message.contains(": noise of lenslet 1 = -3.0"),
            "{message}"
        );
        Array3::<f64>::zeros((2, 3, 2)).write_npy(file.reopen()?)?;
        assert!(refused().contains("shape = [2, 3, 2]: expected (n) or (n, 2, 2)"));
        Array2::<f64>::zeros((2, 2)).write_npy(file.reopen()?)?;
        assert!(refused().contains("expected one or three axes"));
        Ok(())
    }
}
