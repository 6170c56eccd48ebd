// Tangled from book/src/error-budget.md: edit there, or here and run cargo tangle stitch.
//! Errors in nanometres: from structure functions, and given ones as structure functions.

// Imports of a budget
use crate::error::{Invalid, finite, not_negative};
use crate::psf::optical_transfer::TelescopeTransfer;
use crate::psf::transforms::Plane;
use ndarray::{Array2, Zip};
use std::{f64::consts::PI, fmt};

// Variance of a structure function
impl TelescopeTransfer {
    /// The variance \[m²\] over the pupil, without piston, of a wavefront with a structure function \[m²\], Eq. [variance of structure](https://lenslet.github.io/lenslet/error-budget.html#eq-variance-of-structure).
    // Example of a variance over the pupil
    ///
    /// # Errors
    /// `Invalid` where the structure function has another shape or is not finite.
    ///
    /// ```
    /// use lenslet::{psf::Aperture, model::Pupil};
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.0)?, &[], 64)?.transfer(128)?;
    /// let kolmogorov = telescope.on_grid(|[x, y]| 6.88388 * x.hypot(y).powf(5.0 / 3.0));
    /// let exact = 1.03242 * 8f64.powf(5.0 / 3.0);
    /// assert!((telescope.variance(&kolmogorov)? / exact - 1.0).abs() < 1e-3);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn variance(&self, structure: &Array2<f64>) -> Result<f64, Invalid> {
        self.check_structure(structure)?;
        let mut sum = 0.0;
        Zip::from(self.values()).and(structure).for_each(|share, value| sum += share * value);
        Ok(0.5 * sum * self.step().powi(2) / self.area())
    }
}

// Errors that are given
impl TelescopeTransfer {
    // Structure function of a jitter
    /// The structure function \[m²\] of a jitter of the image, rms along each axis \[rad\]; Eq. [given errors](https://lenslet.github.io/lenslet/error-budget.html#eq-given-errors).
    ///
    /// # Errors
    /// `Invalid` where it is negative or not finite.
    pub fn jitter(&self, jitter: f64) -> Result<Array2<f64>, Invalid> {
        let variance = not_negative("jitter", jitter)?.powi(2);
        Ok(self.on_grid(|[x, y]| variance * (x * x + y * y)))
    }

    /// The structure function \[m²\] of an error of this `rms` \[m\] with a power-law spectrum of this `exponent`; Eq. [given errors](https://lenslet.github.io/lenslet/error-budget.html#eq-given-errors).
    ///
    /// # Errors
    /// `Invalid` where the rms is negative or not finite, or the exponent is not finite.
    pub fn extra(&self, rms: f64, exponent: f64) -> Result<Array2<f64>, Invalid> {
        let (variance, power) =
            (not_negative("extra", rms)?.powi(2), finite("exponent", exponent)?);
        let across = (self.reach + 1) as f64;
        // Power law on a plane
        let plane = Plane::around(4 * (self.reach + 1));
        let n = plane.points();
        let mut spectrum = Array2::zeros((n / 2 + 1, n));
        Zip::indexed(&mut spectrum).par_for_each(|(k, l), value| {
            let frequency = (k as f64).hypot(l.min(n - l) as f64) / n as f64;
            if frequency * across >= 1.0 - 1e-9 && frequency <= 0.5 {
                *value = frequency.powf(power);
            }
        });
        let covariance = plane.correlation(&spectrum, self.reach, self.points());
        let middle = self.points() / 2;
        let whole = covariance[[middle, middle]];
        let mut structure = covariance;
        structure.par_mapv_inplace(|value| {
            if whole > 0.0 { 2.0 * variance * (1.0 - value / whole).max(0.0) } else { 0.0 }
        });
        Ok(structure)
    }
}

// Term of a budget
/// One term of a budget.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BudgetTerm {
    /// What causes the error.
    pub name: String,
    /// Its variance over the pupil, without piston, m²; of the term `covariance`, twice the covariance of others, which may be negative.
    pub variance: f64,
}

impl BudgetTerm {
    /// The root of its variance, m, with its sign.
    pub fn rms(&self) -> f64 {
        self.variance.signum() * self.variance.abs().sqrt()
    }
}

// Terms that add up
/// An error budget: terms whose variances add, with the covariance of those that are not independent as a signed term.
// Example of a budget
///
/// ```
/// use lenslet::psf::Budget;
/// let budget = Budget::default().with("fitting", 9e-16)?.with("noise", 16e-16)?;
/// assert_eq!(budget.to_string(), "fitting 30.0 nm, noise 40.0 nm, total 50.0 nm");
/// # Ok::<(), lenslet::Invalid>(())
/// ```
// Error budget of a worked case
///
/// The worked case of the chapter on error budgets:
///
/// ```
/// use lenslet::{model::Pupil, psf::{Aperture, Budget}, units::ARCSEC};
/// let telescope = Aperture::across(&Pupil::new(8.0, 0.0)?, &[], 128)?.transfer(256)?;
/// let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 2e-3, "{found} {expected}");
/// let angle = 3e-3 * ARCSEC;
/// near(angle, 14.54e-9);
/// let jitter = telescope.variance(&telescope.jitter(angle)?)?;
/// near(1e9 * jitter.sqrt(), 41.1);
/// let budget = |fitting: f64, jitter: f64| {
///     Budget::default().with("fitting", fitting * fitting)?.with("extra", 2.5e-15)?.with("jitter", jitter)
/// };
/// for (fitting, jitter, total, strehl) in
///     [(104.4, jitter, 122.8, 0.804), (104.4, 0.0, 115.8, 0.823), (104.4 / 1.782, jitter, 87.3, 0.895)]
/// {
///     let found = budget(1e-9 * fitting, jitter)?;
///     near(1e9 * found.total(), total);
///     near(found.marechal(1.65e-6), strehl);
/// }
/// near(104.4f64.powi(2), 10_900.0);
/// near(1e18 * jitter, 1690.0);
/// near(122.8f64.powi(2), 15_090.0);
/// near(104.4 / 1.782, 58.6);
/// near(2.0 * (2.0 * 2f64.ln()).sqrt(), 2.355); // full width of a Gaussian over its rms
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Budget(Vec<BudgetTerm>);

// A budget as text
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Budget {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let terms = Vec::<BudgetTerm>::deserialize(deserializer)?;
        let add = |budget: Self, term: BudgetTerm| budget.with_signed(&term.name, term.variance);
        terms.into_iter().try_fold(Self::default(), add).map_err(serde::de::Error::custom)
    }
}

impl Budget {
    /// Adds a term by its variance \[m²\].
    ///
    /// # Errors
    /// `Invalid` where the variance is negative or not finite.
    pub fn with(mut self, name: &str, variance: f64) -> Result<Self, Invalid> {
        let variance = not_negative(name, variance)?;
        self.0.push(BudgetTerm { name: name.into(), variance });
        Ok(self)
    }

    // Signed term of a budget
    /// Adds a term by its signed variance \[m²\], which is negative for a covariance of other terms that reduces their sum.
    ///
    /// # Errors
    /// `Invalid` where the variance is not finite.
    pub fn with_signed(mut self, name: &str, variance: f64) -> Result<Self, Invalid> {
        let variance = finite(name, variance)?;
        self.0.push(BudgetTerm { name: name.into(), variance });
        Ok(self)
    }

    // Budget of structure functions
    /// The budget of named structure functions \[m²\] over the pupil of a telescope.
    ///
    /// # Errors
    /// `Invalid` as for [`TelescopeTransfer::variance`].
    pub fn of(
        telescope: &TelescopeTransfer,
        structures: &[(&str, &Array2<f64>)],
    ) -> Result<Self, Invalid> {
        structures.iter().try_fold(Self::default(), |budget, (name, structure)| {
            budget.with(name, telescope.variance(structure)?)
        })
    }

    // Terms and total of a budget
    /// The terms, in the order in which they were added.
    pub fn terms(&self) -> &[BudgetTerm] {
        &self.0
    }

    /// The root of the sum of all variances, m.
    pub fn total(&self) -> f64 {
        self.0.iter().map(|term| term.variance).sum::<f64>().max(0.0).sqrt()
    }
}

// Write a budget in nanometres
impl Budget {
    /// Maréchal's estimate of the Strehl ratio at a `wavelength` \[m\].
    pub fn marechal(&self, wavelength: f64) -> f64 {
        (-(2.0 * PI * self.total() / wavelength).powi(2)).exp()
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for term in &self.0 {
            write!(f, "{} {:.1} nm, ", term.name, 1e9 * term.rms())?;
        }
        write!(f, "total {:.1} nm", 1e9 * self.total())
    }
}

// Tests of the budget
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pupil;
    use crate::psf::{Aperture, Vane};

    fn telescope(obstruction: f64) -> TelescopeTransfer {
        let pupil = Pupil::new(8.0, obstruction).unwrap();
        Aperture::across(&pupil, &[], 48).unwrap().transfer(97).unwrap()
    }

    #[test]
    fn given_errors_have_their_variance() {
        let clear = telescope(0.0);
        let jitter = clear.jitter(1e-8).unwrap();
        assert!((clear.variance(&jitter).unwrap() / (1e-16 * 8.0) - 1.0).abs() < 2e-3);
        let transfer = clear.through(&jitter, &[1e-6]).unwrap().remove(0);
        let gauss = clear
            .alone(1e-6)
            .unwrap()
            .times(|[x, y]| (-2.0 * (PI * 1e-8 / 1e-6).powi(2) * (x * x + y * y)).exp());
        assert!((transfer.strehl() - gauss.strehl()).abs() < 1e-13 && transfer.strehl() < 0.97);
        for exponent in [-2.0, -3.5, 0.0] {
            let extra = clear.extra(40e-9, exponent).unwrap();
            let rms = clear.variance(&extra).unwrap().sqrt();
            let middle = clear.points() / 2;
            assert!(rms < 40.4e-9 && rms > 36e-9, "{exponent}: {rms:e}");
            assert!(extra[[middle, middle]] == 0.0 && extra.iter().all(|value| *value >= 0.0));
            // Steeper spectra are smoother.
            let near = extra[[middle, middle + 1]] / 3.2e-15;
            assert!(if exponent == 0.0 { near > 0.6 } else { near < 0.3 }, "{exponent} {near}");
            let symmetric =
                (extra[[middle + 3, middle - 7]] - extra[[middle - 3, middle - 7]]).abs();
            assert!(symmetric < 1e-20);
        }
    }

    // Pairs of a lopsided pupil
    #[test]
    fn variances_are_means_over_pairs() {
        let vane = Vane { width: 0.4, angle: 0.7, offset: 0.0 };
        let aperture = Aperture::across(&Pupil::new(2.0, 0.3).unwrap(), &[vane], 9).unwrap();
        let telescope = aperture.transfer(18).unwrap();
        let of = |[x, y]: [f64; 2]| 1e-15 * (x * x + 0.3 * x * y + 2.0 * y * y).sqrt();
        let (mut sum, mut weight) = (0.0, 0.0);
        for ((j, i), a) in aperture.light().indexed_iter() {
            for ((v, u), b) in aperture.light().indexed_iter() {
                let rho = [u as f64 - i as f64, v as f64 - j as f64].map(|k| k * aperture.step());
                sum += a * b * of(rho);
                weight += a * b;
            }
        }
        let found = telescope.variance(&telescope.on_grid(of)).unwrap();
        assert!((found / (0.5 * sum / weight) - 1.0).abs() < 1e-12, "{found:e}");
    }

    // Add up a budget
    #[test]
    fn budgets_add_in_quadrature() {
        let telescope = telescope(0.2);
        let (jitter, extra) =
            (telescope.jitter(5e-9).unwrap(), telescope.extra(3e-8, -2.0).unwrap());
        let terms = [("jitter", &jitter), ("extra", &extra)];
        let budget = Budget::of(&telescope, &terms).unwrap();
        let whole = telescope.variance(&(&jitter + &extra)).unwrap();
        assert!((budget.total().powi(2) / whole - 1.0).abs() < 1e-12);
        let squares: f64 = budget.terms().iter().map(|term| term.rms().powi(2)).sum();
        assert!((budget.total() - squares.sqrt()).abs() < 1e-18);
        let transfer = telescope.through(&(&jitter + &extra), &[2e-6]).unwrap().remove(0);
        assert!((transfer.strehl() - budget.marechal(2e-6)).abs() < 1e-3);
        assert_eq!((Budget::default().total(), Budget::default().marechal(1e-6)), (0.0, 1.0));
        assert_eq!(budget.terms()[1].name, "extra");
        // What cannot be is refused.
        assert_eq!(Budget::default().with("noise", -1.0).unwrap_err().quantity, "noise");
        assert_eq!(telescope.jitter(f64::NAN).unwrap_err().quantity, "jitter");
        assert_eq!(telescope.extra(-1e-9, -2.0).unwrap_err().quantity, "extra");
        assert_eq!(telescope.extra(1e-9, f64::INFINITY).unwrap_err().quantity, "exponent");
        assert!(telescope.variance(&Array2::zeros((3, 3))).is_err());
    }
}
