// Tangled from book/src/special-functions.md: edit there, or here and run cargo tangle stitch.
//! The special functions of von Kármán turbulence: Γ and K_ν at fractional order.

/// Γ(x), the gamma function (from the `libm` crate).
pub use libm::tgamma as gamma;

// Error function of a library
/// erf(x), the error function (from the `libm` crate).
pub use libm::erf;

// Accuracy of the trapezoidal sum
/// Step of the trapezoidal rule; its error is e^(−π²/STEP).
const STEP: f64 = 0.125;

/// The sum ends where the exponential has fallen to e^(−NEGLIGIBLE).
const NEGLIGIBLE: f64 = 40.0;

// Modified Bessel function of fractional order
/// The modified Bessel function of the second kind, K_ν(x), for x > 0 and |ν| ≤ 2.
///
/// Sums the integral of Eq. [k integral](https://lenslet.github.io/lenslet/special-functions.html#eq-k-integral) by the trapezoidal rule; the relative error is below 1e-14 for x ≤ 30, and
/// the absolute error below 1e-28 beyond.
///
/// ```
/// let exact = |x: f64| (std::f64::consts::PI / (2.0 * x)).sqrt() * (-x).exp(); // K_1/2
/// assert!((lenslet::numerics::bessel_k(0.5, 3.0) / exact(3.0) - 1.0).abs() < 1e-14);
/// ```
pub fn bessel_k(order: f64, x: f64) -> f64 {
    debug_assert!(x > 0.0);
    let mut cosh = HyperbolicCosines::new(STEP);
    let mut weight = HyperbolicCosines::new(order * STEP);
    let mut sum = 0.5;
    loop {
        let fall = x * (cosh.next() - 1.0);
        if fall > NEGLIGIBLE {
            break STEP * f64::exp(-x) * sum;
        }
        sum += weight.next() * f64::exp(-fall);
    }
}

// Hyperbolic cosines of equal steps
/// cosh(η), cosh(2η), … by the increments of Eq. [cosh recurrence](https://lenslet.github.io/lenslet/special-functions.html#eq-cosh-recurrence).
struct HyperbolicCosines {
    bend: f64,
    increment: f64,
    value: f64,
}

impl HyperbolicCosines {
    fn new(step: f64) -> Self {
        let bend = 4.0 * (0.5 * step).sinh().powi(2);
        Self { bend, increment: -0.5 * bend, value: 1.0 }
    }

    fn next(&mut self) -> f64 {
        self.increment += self.bend * self.value;
        self.value += self.increment;
        self.value
    }
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
}
