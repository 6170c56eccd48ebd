// Tangled from book/src/special-functions.md: edit there, or here and run cargo tangle stitch.
//! The special functions of von Kármán turbulence: Γ and K_ν at fractional order; the sinc function.

use std::f64::consts::PI;

/// Γ(x), the gamma function (from the `libm` crate).
pub use libm::tgamma as gamma;

// Error function of a library
/// erf(x), the error function (from the `libm` crate).
pub use libm::erf;

// Complement of the error function
/// 1 − erf(x), without cancellation where x is large (from the `libm` crate).
pub use libm::erfc;

// Accuracy of the trapezoidal sum
/// Step of the trapezoidal rule; its error is e^(−π²/STEP).
const STEP: f64 = 0.125;

/// From this argument on the step shrinks, Eq. [trapezoid step](https://lenslet.github.io/lenslet/special-functions.html#eq-trapezoid-step).
const NARROW: f64 = 30.0;

/// The sum ends where the exponential has fallen to e^(−NEGLIGIBLE).
const NEGLIGIBLE: f64 = 40.0;

// Modified Bessel function of fractional order
/// The modified Bessel function of the second kind, K_ν(x), for x > 0 and |ν| ≤ 2.
///
/// Sums the integral of Eq. [k integral](https://lenslet.github.io/lenslet/special-functions.html#eq-k-integral) by the trapezoidal rule; the relative error is below 1e-14 wherever K_ν does not underflow.
///
/// ```
/// let exact = |x: f64| (std::f64::consts::PI / (2.0 * x)).sqrt() * (-x).exp(); // K_1/2
/// assert!((lenslet::numerics::bessel_k(0.5, 3.0) / exact(3.0) - 1.0).abs() < 1e-14);
/// ```
pub fn bessel_k(order: f64, x: f64) -> f64 {
    debug_assert!(x > 0.0);
    let step = STEP * (NARROW / x).sqrt().min(1.0);
    let mut cosh = HyperbolicCosines::new(step);
    let mut weight = HyperbolicCosines::new(order * step);
    let mut sum = 0.5;
    loop {
        let fall = x * cosh.next_rise();
        if fall > NEGLIGIBLE {
            break step * f64::exp(-x) * sum;
        }
        sum += (1.0 + weight.next_rise()) * f64::exp(-fall);
    }
}

// Hyperbolic cosines of equal steps
/// How far cosh(η), cosh(2η), … rise above 1, by the increments of Eq. [cosh recurrence](https://lenslet.github.io/lenslet/special-functions.html#eq-cosh-recurrence).
struct HyperbolicCosines {
    bend: f64,
    increment: f64,
    rise: f64,
}

impl HyperbolicCosines {
    fn new(step: f64) -> Self {
        let bend = 4.0 * (0.5 * step).sinh().powi(2);
        Self { bend, increment: -0.5 * bend, rise: 0.0 }
    }

    fn next_rise(&mut self) -> f64 {
        self.increment += self.bend * (1.0 + self.rise);
        self.rise += self.increment;
        self.rise
    }
}

// Normalised sinc function
/// sin(πu)/(πu), and 1 at u = 0.
pub(crate) fn sinc(u: f64) -> f64 {
    if u == 0.0 { 1.0 } else { (PI * u).sin() / (PI * u) }
}

// Tests of the special functions
#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance * b.abs(), "{a:e} is not {b:e}");
    }

    // Compare with closed forms and series
    #[test]
    fn bessel_k_takes_its_known_values() {
        for x in [1e-3, 0.1, 1.0, 5.0, 20.0, 30.0] {
            let half = (std::f64::consts::PI / (2.0 * x)).sqrt() * f64::exp(-x);
            close(bessel_k(0.5, x), half, 1e-14);
            close(bessel_k(1.5, x), half * (1.0 + 1.0 / x), 1e-14);
        }
        // mpmath, 30 digits: besselk(1/6, 1), besselk(5/6, 1/100), besselk(5/6, 30).
        close(bessel_k(1.0 / 6.0, 1.0), 0.425_318_539_500_544_65, 1e-14);
        close(bessel_k(5.0 / 6.0, 0.01), 46.644_056_616_170_09, 1e-14);
        close(bessel_k(5.0 / 6.0, 30.0), 2.156_899_037_904_766e-14, 1e-14);
    }

    // Repeat the sums of the worked case
    #[test]
    fn coarse_steps_have_the_errors_of_the_worked_case() {
        let sum = |step: f64, terms: i32| {
            let term = |k: i32| {
                let t = step * f64::from(k);
                f64::exp(1.0 - t.cosh()) * (t / 6.0).cosh()
            };
            0.5 + (1..terms).map(term).sum::<f64>()
        };
        let (coarse, exact) = (sum(1.0, 5), bessel_k(1.0 / 6.0, 1.0));
        assert!((coarse - 1.155_87).abs() < 1e-5 && (exact - 0.425_319).abs() < 1e-6);
        assert!((coarse * f64::exp(-1.0) - 0.425_22).abs() < 1e-5);
        assert!((coarse * f64::exp(-1.0) / exact - 1.0 + 2.3e-4).abs() < 1e-5);
        assert!((0.5 * sum(0.5, 9) * f64::exp(-1.0) / exact - 1.0).abs() < 1e-8);
        let [first, second] = [1, 2].map(|k| f64::from(k).cosh() - 1.0);
        assert!((first - 0.543).abs() < 1e-3 && (second - 2.762).abs() < 1e-3);
        let term = |rise: f64, k: f64| f64::exp(-rise) * (k / 6.0).cosh();
        assert!((term(first, 1.0) - 0.589).abs() < 1e-3);
        assert!((term(second, 2.0) - 0.0667).abs() < 1e-4);
    }

    // Hold the recurrence between neighbouring orders
    #[test]
    fn bessel_k_obeys_its_recurrence() {
        for x in [0.003, 0.2, 1.7, 9.0, 28.0] {
            for order in [1.0 / 6.0, 5.0 / 6.0] {
                let above = bessel_k(order - 1.0, x) + 2.0 * order / x * bessel_k(order, x);
                close(bessel_k(order + 1.0, x), above, 1e-13);
            }
        }
    }

    // Integrate whole orders by another rule
    #[test]
    fn whole_orders_agree_with_another_rule() {
        let rule = crate::numerics::gauss_legendre(16);
        for x in [1e-7, 0.003, 0.4, 1.0, 2.5, 9.0, 29.0, 31.0, 77.0, 400.0, 700.0] {
            let end = f64::acosh(1.0 + 45.0 / x);
            let pieces = 12 + (3.0 * end) as usize;
            let width = end / pieces as f64;
            for order in [0.0, 1.0] {
                let term = |t: f64| {
                    let fall = 2.0 * x * (0.5 * t).sinh().powi(2); // x (cosh t − 1), not cancelled
                    f64::exp(-fall) * (order * t).cosh()
                };
                let piece = |k: usize| {
                    let at = |node: f64| term((k as f64 + 0.5 + 0.5 * node) * width);
                    rule.nodes
                        .iter()
                        .zip(&rule.weights)
                        .map(|(&t, w)| 0.5 * width * w * at(t))
                        .sum::<f64>()
                };
                let integral: f64 = (0..pieces).map(piece).sum();
                close(bessel_k(order, x), integral * f64::exp(-x), 1e-14);
            }
        }
        // −(ln(x/2) + γ), to order x² ln x
        close(bessel_k(0.0, 1e-9), 20.839_197_352_604_824, 1e-14);
    }
}
