// Tangled from book/src/phase.md: edit there, or here and run cargo tangle stitch.
//! Second-order statistics of von Kármán phase, for a Fried parameter of 1 m.

pub(crate) mod gpu;

use crate::numerics::special::{bessel_k, gamma};
use std::f64::consts::PI;

// Constants of the turbulent phase
/// Kolmogorov's constant [24/5 Γ(6/5)]^(5/6) = 3.441939: S(r), half the structure function, for r0 = 1 m, L0 = ∞ is this times r^(5/3).
///
/// ```
/// let structure_function_at_r0 = 2.0 * lenslet::turbulence::kolmogorov_constant();
/// assert!((structure_function_at_r0 - 6.883877).abs() < 1e-6);
/// ```
pub fn kolmogorov_constant() -> f64 {
    (24.0 / 5.0 * gamma(6.0 / 5.0)).powf(5.0 / 6.0)
}

/// The constant c_W = 0.0228956 of the power spectrum, Eq. [power spectrum](https://lenslet.github.io/lenslet/phase.html#eq-power-spectrum).
pub fn spectrum_constant() -> f64 {
    gamma(11.0 / 6.0).powi(2) / (2.0 * PI.powf(11.0 / 3.0)) * kolmogorov_constant()
}

/// The order of the Bessel function in the phase covariance.
const ORDER: f64 = 5.0 / 6.0;

/// Below this x = 2πr/L0 half the structure function is summed as a series.
const SERIES_END: f64 = 2.0;

/// Terms of the series; the last is below 1e-20 of the first at `SERIES_END`.
const TERMS: usize = 14;

// Von Karman phase statistics
/// Phase statistics of one outer scale, for r0 = 1 m: multiply by r0^(−5/3).
///
/// The outer scale may be infinite (Kolmogorov); spectrum, structure function and `slope_over_distance` keep their
/// limits, the covariance becomes infinite.
#[derive(Debug, Clone)]
pub struct VonKarman {
    outer_scale: f64,
    /// c_B L0^(5/3), or Kolmogorov's constant where L0 is infinite; rad².
    scale: f64,
    /// Coefficients of x^(5/3 + 2k) in half the structure function.
    odd: [f64; TERMS],
    /// Coefficients of x^(2 + 2k) in half the structure function.
    even: [f64; TERMS],
}

impl VonKarman {
    // Prepare the series for short distances
    /// Statistics for an outer scale in metres, positive or infinite.
    pub fn new(outer_scale: f64) -> Self {
        debug_assert!(outer_scale > 0.0);
        let scale = if outer_scale.is_finite() {
            gamma(11.0 / 6.0) / (2f64.powf(ORDER) * PI.powf(8.0 / 3.0))
                * kolmogorov_constant()
                * outer_scale.powf(5.0 / 3.0)
        } else {
            kolmogorov_constant()
        };
        // Fill the series of the structure function
        let reflection = PI / (2.0 * f64::sin(PI * ORDER));
        let mut above = reflection * 2f64.powf(-ORDER) / gamma(1.0 + ORDER);
        let mut below = -reflection * 2f64.powf(ORDER) / gamma(1.0 - ORDER);
        let (mut odd, mut even) = ([0.0; TERMS], [0.0; TERMS]);
        for k in 0..TERMS {
            odd[k] = above;
            let n = (k + 1) as f64;
            above *= 0.25 / (n * (n + ORDER));
            below *= 0.25 / (n * (n - ORDER));
            even[k] = below;
        }
        Self { outer_scale, scale, odd, even }
    }

    /// The outer scale in metres, possibly infinite.
    pub fn outer_scale(&self) -> f64 {
        self.outer_scale
    }

    // Evaluate spectrum and covariance of the phase
    /// Power spectrum W(f) in rad² m² at the squared spatial frequency `f_squared` in m⁻²; Eq. [power spectrum](https://lenslet.github.io/lenslet/phase.html#eq-power-spectrum).
    pub fn power_spectrum(&self, f_squared: f64) -> f64 {
        spectrum_constant() * (f_squared + self.outer_scale.powi(-2)).powf(-11.0 / 6.0)
    }

    /// Covariance B(r) in rad² at the distance `r` in metres; Eq. [phase covariance](https://lenslet.github.io/lenslet/phase.html#eq-phase-covariance). Infinite where L0 is.
    ///
    /// ```
    /// let phase = lenslet::turbulence::VonKarman::new(1.0);
    /// assert!((phase.covariance(0.0) - 0.0863143299).abs() < 1e-10);
    /// ```
    pub fn covariance(&self, r: f64) -> f64 {
        if self.outer_scale.is_infinite() {
            return f64::INFINITY;
        }
        let x = 2.0 * PI * r / self.outer_scale;
        let shape = if x == 0.0 { self.zero_lag() } else { x.powf(ORDER) * bessel_k(ORDER, x) };
        self.scale * shape
    }

    // Evaluate the structure function
    /// 2^(−1/6) Γ(5/6), the limit of x^(5/6) K_5/6(x) at zero.
    fn zero_lag(&self) -> f64 {
        2f64.powf(ORDER - 1.0) * gamma(ORDER)
    }

    // Documentation of the structure function
    /// Structure function D(r) = 2 S(r) in rad² at the distance `r` in metres.
    ///
    /// ```
    /// let phase = lenslet::turbulence::VonKarman::new(25.0);
    /// let strength = 0.15f64.powf(-5.0 / 3.0); // for r0 = 0.15 m
    /// assert!((phase.structure_function(1.0) - 3.4235).abs() < 1e-4);
    /// assert!((strength - 23.6146).abs() < 1e-4);
    /// let square = strength * phase.structure_function(0.5);
    /// assert!((square - 30.639).abs() < 1e-3 && (square.sqrt() - 5.535).abs() < 1e-3);
    /// ```
    pub fn structure_function(&self, r: f64) -> f64 {
        2.0 * self.half_structure_and_half_mean(r).0
    }

    // Evaluate half the structure function and its mean
    /// S(r), half the structure function, = B(0) − B(r) and half its mean over the disc, M(r), in rad²; Eq. [von karman functions](https://lenslet.github.io/lenslet/phase.html#eq-von-karman-functions).
    pub fn half_structure_and_half_mean(&self, r: f64) -> (f64, f64) {
        if r == 0.0 {
            return (0.0, 0.0);
        }
        if self.outer_scale.is_infinite() {
            let half_structure = self.scale * r.powf(5.0 / 3.0);
            return (half_structure, half_structure * 3.0 / 11.0);
        }
        let x = 2.0 * PI * r / self.outer_scale;
        let (half_structure, half_mean) =
            if x < SERIES_END { self.near_half_structure(x) } else { self.far_half_structure(x) };
        (self.scale * half_structure, self.scale * half_mean)
    }

    // Sum the series of the structure function
    /// S and M in units of `scale`, by the series of Eq. [half structure series](https://lenslet.github.io/lenslet/phase.html#eq-half-structure-series).
    fn near_half_structure(&self, x: f64) -> (f64, f64) {
        let square = x * x;
        let (mut odd, mut even, mut odd_mean, mut even_mean) = (0.0, 0.0, 0.0, 0.0);
        for k in (0..TERMS).rev() {
            let power = 2.0 * k as f64;
            odd = odd * square + self.odd[k];
            even = even * square + self.even[k];
            odd_mean = odd_mean * square + self.odd[k] / (power + 11.0 / 3.0);
            even_mean = even_mean * square + self.even[k] / (power + 4.0);
        }
        let leading = x * x.cbrt().powi(2);
        (leading * odd + square * even, leading * odd_mean + square * even_mean)
    }

    // Take the structure function from Bessel functions
    /// S and M in units of `scale`, by Eq. [von karman functions](https://lenslet.github.io/lenslet/phase.html#eq-von-karman-functions); K_11/6 comes from its two lower neighbours.
    fn far_half_structure(&self, x: f64) -> (f64, f64) {
        let k_5_6 = bessel_k(ORDER, x);
        let k_11_6 = bessel_k(ORDER - 1.0, x) + 2.0 * ORDER / x * k_5_6;
        let power = x.powf(ORDER);
        let whole = 2f64.powf(ORDER) * gamma(ORDER + 1.0);
        let half_structure = self.zero_lag() - power * k_5_6;
        (half_structure, 0.5 * self.zero_lag() - (whole - x * power * k_11_6) / (x * x))
    }

    // Evaluate the slope over distance
    /// S₁(t) = S'(r)/r in rad² m⁻² at t = r² > 0 in m²; Eq. [hessian](https://lenslet.github.io/lenslet/phase.html#eq-hessian) makes the covariance of phase gradients from it.
    pub fn slope_over_distance(&self, t: f64) -> f64 {
        if self.outer_scale.is_infinite() {
            return 5.0 / 3.0 * self.scale * t.powf(-1.0 / 6.0);
        }
        let wavenumber = 2.0 * PI / self.outer_scale;
        let x = wavenumber * t.sqrt();
        let shape = if x < 0.5 * SERIES_END {
            self.near_slope(x)
        } else {
            x.powf(-1.0 / 6.0) * bessel_k(1.0 / 6.0, x)
        };
        self.scale * wavenumber.powi(2) * shape
    }

    // Sum the series of the slope
    /// x^(−1/6) K_1/6(x), from the series of half the structure function.
    fn near_slope(&self, x: f64) -> f64 {
        let square = x * x;
        let (mut odd, mut even) = (0.0, 0.0);
        for k in (0..TERMS).rev() {
            let power = 2.0 * k as f64;
            odd = odd * square + self.odd[k] * (power + 5.0 / 3.0);
            even = even * square + self.even[k] * (power + 2.0);
        }
        odd / x.cbrt() + even
    }
}

// Hessian of half the structure function
/// ∂²S/∂x², ∂²S/∂x∂y and ∂²S/∂y² at the displacement (x, y) in metres, from S₁ and dS₁/dt at t = x² + y²; Eq. [hessian](https://lenslet.github.io/lenslet/phase.html#eq-hessian).
///
/// This is the covariance of two phase gradients for r0 = 1 m, rad² m⁻².
#[inline(always)]
pub fn hessian(p: f64, slope: f64, [x, y]: [f64; 2]) -> [f64; 3] {
    let q = 2.0 * slope;
    [p + q * x * x, q * x * y, p + q * y * y]
}

// Tests of the phase statistics
#[cfg(test)]
mod tests {
    use super::*;

    // Check the known constants of turbulence
    #[test]
    fn known_constants_are_met() {
        assert!((spectrum_constant() - 0.022895587108555).abs() < 1e-15);
        let kolmogorov = VonKarman::new(f64::INFINITY);
        assert!(
            (kolmogorov.structure_function(2.0) - 6.883877 * 2f64.powf(5.0 / 3.0)).abs() < 1e-5
        );
        // A vast outer scale comes near Kolmogorov, from below, by the first correction of the series.
        let vast =
            VonKarman::new(1e12).structure_function(2.0) / kolmogorov.structure_function(2.0);
        assert!((1e-4..2e-4).contains(&(1.0 - vast)), "{vast}");
        assert_eq!(kolmogorov.covariance(1.0), f64::INFINITY);
    }

    // Compare the series with the Bessel branch
    #[test]
    fn series_and_bessel_branch_agree() {
        let phase = VonKarman::new(2.0 * PI); // so that x = r
        for x in [1.5, SERIES_END, 2.5] {
            let ((near, near_mean), (far, far_mean)) =
                (phase.near_half_structure(x), phase.far_half_structure(x));
            assert!((near / far - 1.0).abs() < 1e-14, "S at {x}: {near:e} {far:e}");
            assert!((near_mean / far_mean - 1.0).abs() < 1e-13, "M at {x}");
        }
        for x in [1e-3, 0.5 * SERIES_END, 1.5] {
            let slope = x.powf(-1.0 / 6.0) * bessel_k(1.0 / 6.0, x);
            assert!((phase.near_slope(x) / slope - 1.0).abs() < 1e-14, "p at {x}");
        }
        let outside = phase.covariance(0.0) - phase.covariance(3.0);
        assert!((outside / phase.half_structure_and_half_mean(3.0).0 - 1.0).abs() < 1e-13);
    }

    // Assert the numbers of the worked case
    #[test]
    fn the_series_has_the_numbers_of_the_worked_case() {
        let (phase, x) = (VonKarman::new(25.0), 2.0 * PI * 0.5 / 25.0);
        for (found, expected) in
            [(x, 0.1257), (phase.odd[0], 1.874), (phase.even[0], -1.508), (phase.scale, 18.35)]
        {
            assert!((found / expected - 1.0).abs() < 5e-4, "{found} {expected}");
        }
        assert!((phase.odd[0] * x.powf(5.0 / 3.0) - 0.05909).abs() < 1e-5);
        assert!((phase.even[0] * x.powi(2) + 0.02382).abs() < 1e-5);
    }

    // Differentiate the structure function numerically
    #[test]
    fn slope_and_half_mean_belong_to_half_structure() {
        for outer_scale in [3.0, 25.0, f64::INFINITY] {
            let phase = VonKarman::new(outer_scale);
            for r in [0.02, 0.7, 4.0] {
                let step = 2e-5 * r;
                let central = |f: &dyn Fn(f64) -> f64| (f(r + step) - f(r - step)) / (2.0 * step);
                let slope = central(&|r| phase.half_structure_and_half_mean(r).0) / r;
                assert!((slope / phase.slope_over_distance(r * r) - 1.0).abs() < 1e-6);
                let half_structure =
                    central(&|r| r * r * phase.half_structure_and_half_mean(r).1) / r;
                assert!(
                    (half_structure / phase.half_structure_and_half_mean(r).0 - 1.0).abs() < 1e-7
                );
            }
        }
    }

    // Transform the spectrum into the covariance
    #[test]
    fn covariance_is_the_transform_of_the_spectrum() {
        let (phase, r) = (VonKarman::new(10.0), 2.3);
        let step = 1e-4;
        let transform: f64 = (0..60_000)
            .map(|k| (f64::from(k) + 0.5) * step)
            .map(|f| 2.0 * PI * f * step * phase.power_spectrum(f * f) * libm::j0(2.0 * PI * f * r))
            .sum();
        let error = (transform - phase.covariance(r)) / phase.covariance(0.0);
        assert!(error.abs() < 1e-5, "{error:e}");
    }
}
