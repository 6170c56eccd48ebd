// Tangled from book/src/fitting.md: edit there, or here and run cargo tangle stitch.
//! The fitting error: turbulence that is finer than the actuators of a mirror.

// Imports of fitting
use crate::correction::correctable_band::{Band, mirrored};
use crate::error::{Invalid, length};
use crate::model::atmosphere::Atmosphere;
use crate::numerics::quadrature::gauss_legendre;
use crate::turbulence::phase::VonKarman;
use ndarray::Array2;
use std::f64::consts::{FRAC_PI_8, PI};

// Turbulence finer than a mirror
/// Fitting error: turbulence with frequencies outside of the square that a mirror corrects.
// Example of a fitting error
///
/// ```
/// use lenslet::{correction::Fitting, model::{Atmosphere, Layer}};
/// let air = Atmosphere::new(0.2, 500e-9, vec![Layer::new(0.0, 1.0, f64::INFINITY)])?;
/// let radian = 500e-9 / (2.0 * std::f64::consts::PI);
/// let variance = Fitting::new(&air, 0.2)?.variance() / (radian * radian);
/// assert!((variance - 0.23126).abs() < 1e-5);
/// # Ok::<(), lenslet::Invalid>(())
/// ```
// Fitting error of a worked case
///
/// The worked case of the chapter:
///
/// ```
/// use lenslet::{correction::Fitting, model::{Atmosphere, Layer}};
/// let rms = |pitch: f64, outer_scale: f64| -> Result<f64, lenslet::Invalid> {
///     let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, outer_scale)])?;
///     Ok(1e9 * Fitting::new(&air, pitch)?.variance().sqrt())
/// };
/// for (pitch, outer_scale, expected) in
///     [(0.5, f64::INFINITY, 104.4), (0.5, 25.0, 104.3), (0.5, 5.0, 102.9), (1.0, f64::INFINITY, 186.0)]
/// {
///     assert!((rms(pitch, outer_scale)? - expected).abs() < 0.06);
/// }
/// let (ratio, power) = (0.5 / 0.15, f64::powf(0.5 / 0.15, 5.0 / 3.0));
/// assert!(f64::abs(ratio - 3.333) < 1e-3 && f64::abs(power - 7.438) < 1e-3);
/// let radian = 500.0 / (2.0 * std::f64::consts::PI);
/// assert!(f64::abs(radian - 79.58) < 5e-3);
/// assert!(((rms(0.5, f64::INFINITY)? / radian).powi(2) - 1.720).abs() < 1e-3);
/// assert!((rms(1.0, f64::INFINITY)? / rms(0.5, f64::INFINITY)? - 1.782).abs() < 1e-3);
/// let strehl = |rms: f64| (-(2.0 * std::f64::consts::PI * rms / 1650.0).powi(2)).exp();
/// assert!((strehl(rms(0.5, f64::INFINITY)?) - 0.854).abs() < 1e-3 && (strehl(104.4) - f64::exp(-0.158)).abs() < 1e-3);
/// assert!((strehl(rms(1.0, f64::INFINITY)?) - 0.606).abs() < 1e-3);
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct Fitting {
    air: WavefrontSpectrum,
    pitch: f64,
}

impl Fitting {
    /// The fitting error of a mirror with a square lattice of actuators of this `pitch` \[m\].
    ///
    /// # Errors
    /// `Invalid` if the pitch is not a length.
    pub fn new(air: &Atmosphere, pitch: f64) -> Result<Self, Invalid> {
        Ok(Self { air: WavefrontSpectrum::of(air), pitch: length("pitch", pitch)? })
    }

    // Variance outside of a square
    /// The variance \[m²\], Eq. [fitting variance](https://lenslet.github.io/lenslet/fitting.html#eq-fitting-variance).
    pub fn variance(&self) -> f64 {
        let (rule, limit) = (gauss_legendre(20), self.limit());
        let octant = |outer_scale: f64| -> f64 {
            let ray = |node: &f64| {
                let edge = limit / (FRAC_PI_8 * (1.0 + node)).cos();
                (edge * edge + outer_scale.powi(-2)).powf(-5.0 / 6.0)
            };
            rule.nodes.iter().zip(&rule.weights).map(|(node, weight)| weight * ray(node)).sum()
        };
        let of_layer = |(strength, phase): &(f64, VonKarman)| {
            // W without an outer scale is c_W at f = 1.
            let constant = VonKarman::new(f64::INFINITY).power_spectrum(1.0);
            strength * 4.8 * constant * FRAC_PI_8 * octant(phase.outer_scale())
        };
        self.air.layers.iter().map(of_layer).sum()
    }

    // Spectrum and limit of the fitting error
    /// The power spectrum \[m⁴\] at a spatial frequency \[1/m\]: none inside of the square.
    pub fn spectrum(&self, [x, y]: [f64; 2]) -> f64 {
        let inside = x.abs().max(y.abs()) < self.limit();
        if inside { 0.0 } else { self.air.at(x * x + y * y) }
    }

    fn limit(&self) -> f64 {
        0.5 / self.pitch
    }

    // Structure function outside of a square
    /// The structure function \[m²\] on n × n displacements of this `step` \[m\], Eq. [fitting structure](https://lenslet.github.io/lenslet/fitting.html#eq-fitting-structure): element [j, i] is that of ((i − ⌊n/2⌋) s, (j − ⌊n/2⌋) s).
    /// It tends to twice the variance.
    ///
    /// # Errors
    /// `Invalid` if n is zero, the step is not a length, or n steps are too many pitches.
    pub fn structure_function(&self, n: usize, step: f64) -> Result<Array2<f64>, Invalid> {
        let scales = self.air.layers.iter().map(|(_, phase)| phase.outer_scale());
        let band = Band::new(self.pitch, scales.fold(0.0, f64::max), [n as f64 * 0.5 * step, 0.0])?;
        let mut inside =
            band.structure_function(n, step, |[x, y]| [self.air.at(x * x + y * y); 2])?;
        let whole = mirrored(n, |[x, y]| self.air.structure_function(step * f64::hypot(x, y)));
        inside.zip_mut_with(&whole, |inside, whole| *inside = (whole - *inside).max(0.0));
        Ok(inside)
    }
}

// Spectrum of a wavefront in metres
/// The spectrum of the wavefront of a whole atmosphere, Eq. [wavefront spectrum](https://lenslet.github.io/lenslet/fitting.html#eq-wavefront-spectrum).
#[derive(Debug, Clone)]
pub(crate) struct WavefrontSpectrum {
    /// Strengths \[m²\], and statistics for a Fried parameter of a metre, by outer scales.
    layers: Vec<(f64, VonKarman)>,
}

/// The factor \[m²\] between a phase in rad² for a Fried parameter of a metre, and the wavefront of an atmosphere.
pub(crate) fn square_metres(air: &Atmosphere) -> f64 {
    (air.wavelength() / (2.0 * PI)).powi(2) * air.fried_parameter().powf(-5.0 / 3.0)
}

impl WavefrontSpectrum {
    // Add layers of one outer scale
    pub(crate) fn of(air: &Atmosphere) -> Self {
        let mut layers: Vec<(f64, VonKarman)> = Vec::new();
        for layer in air.layers().iter().filter(|layer| layer.fraction > 0.0) {
            let strength = square_metres(air) * layer.fraction;
            match layers.iter_mut().find(|(_, phase)| phase.outer_scale() == layer.outer_scale) {
                Some((sum, _)) => *sum += strength,
                None => layers.push((strength, VonKarman::new(layer.outer_scale))),
            }
        }
        Self { layers }
    }

    fn at(&self, f_squared: f64) -> f64 {
        self.layers.iter().map(|(share, phase)| share * phase.power_spectrum(f_squared)).sum()
    }

    /// The structure function \[m²\] at a distance \[m\].
    pub(crate) fn structure_function(&self, distance: f64) -> f64 {
        self.layers.iter().map(|(share, phase)| share * phase.structure_function(distance)).sum()
    }
}

// Tests of fitting
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::Layer;

    /// An atmosphere whose phase at 2π m is the wavefront, r0 being a metre.
    pub(crate) fn air(layers: Vec<Layer>) -> Atmosphere {
        let air = Atmosphere::new(1.0, 1e-6, layers).unwrap();
        assert!((square_metres(&air) * (2e6 * PI).powi(2) - 1.0).abs() < 1e-12);
        air
    }

    const SQUARE: f64 = (2e6 * PI) * (2e6 * PI);

    // Variances in closed form
    #[test]
    fn variances_are_known() {
        let kolmogorov = air(vec![Layer::new(0.0, 1.0, f64::INFINITY)]);
        let variance =
            |air: &Atmosphere, pitch| Fitting::new(air, pitch).unwrap().variance() * SQUARE;
        // ∫ cos^(5/3) from 0 to π/4 is 0.66282
        let step = PI / 4.0 / 2e4;
        let cosines: f64 =
            (0..20_000).map(|k| ((f64::from(k) + 0.5) * step).cos().powf(5.0 / 3.0)).sum();
        let exact = 4.8 * 0.022_895_587_108_555 * 2f64.powf(5.0 / 3.0) * cosines * step;
        assert!((variance(&kolmogorov, 1.0) - exact).abs() < 1e-9, "{exact}");
        assert!((variance(&kolmogorov, 1.0) - 0.2313).abs() < 5e-5);
        assert!((variance(&kolmogorov, 0.3) / exact / 0.3f64.powf(5.0 / 3.0) - 1.0).abs() < 1e-9);
        // Layers of different outer scales add up, and a short one leaves less.
        let mixed = air(vec![Layer::new(0.0, 0.6, 2.0), Layer::new(4e3, 0.4, 30.0)]);
        let [short, long] = [2.0, 30.0].map(|l| variance(&air(vec![Layer::new(0.0, 1.0, l)]), 0.7));
        assert!((variance(&mixed, 0.7) - 0.6 * short - 0.4 * long).abs() < 1e-12 && short < long);
        assert_eq!(Fitting::new(&mixed, -1.0).unwrap_err().quantity, "pitch");
    }

    // Structure functions by plain sums
    #[test]
    fn structure_functions_are_plain_sums() {
        let layers = vec![Layer::new(0.0, 0.6, 5.0), Layer::new(4e3, 0.4, 30.0)];
        let fitting = Fitting::new(&air(layers), 0.5).unwrap();
        let found = fitting.structure_function(9, 0.17).unwrap() * SQUARE;
        // Midpoints of squares of frequencies in a half plane, outside of |f| = 1.
        let (step, far) = (0.04, 400i32);
        for (i, j) in [(7usize, 4usize), (2, 6)] {
            let [x, y] = [i, j].map(|k| 0.17 * (k as f64 - 4.0));
            let mut sum = 0.0;
            for k in 0..far {
                for l in -far..far {
                    let f = [k, l].map(|k| step * (f64::from(k) + 0.5));
                    let wave = (2.0 * PI * (f[0] * x + f[1] * y)).cos();
                    sum += fitting.spectrum(f) * (1.0 - wave);
                }
            }
            // Beyond, the waves are gone: 4 ∫ w over what is outside of a larger square, twice.
            let rest =
                Fitting { pitch: 0.5 / (step * f64::from(far)), ..fitting.clone() }.variance();
            let expected = (4.0 * sum * step * step + 2.0 * rest) * SQUARE;
            assert!((found[[j, i]] / expected - 1.0).abs() < 1e-3, "{} {expected}", found[[j, i]]);
        }
    }

    // Grids and limits of structure functions
    #[test]
    fn structure_functions_have_limits() {
        for outer_scale in [25.0, f64::INFINITY] {
            let air = air(vec![Layer::new(0.0, 1.0, outer_scale)]);
            let fitting = Fitting::new(&air, 0.5).unwrap();
            let far = fitting.structure_function(8, 11.3).unwrap();
            assert_eq!((far.dim(), far[[4, 4]]), ((8, 8), 0.0));
            let limit = 2.0 * fitting.variance();
            assert!(
                far.indexed_iter().all(|(at, d)| at == (4, 4) || (d / limit - 1.0).abs() < 0.03)
            );
            assert!((far[[1, 2]] / limit - 1.0).abs() < 2e-3);
            // Near zero, fine ripples are nearly all.
            let near = fitting.structure_function(3, 1e-5).unwrap();
            let whole = VonKarman::new(outer_scale).structure_function(1e-5) / SQUARE;
            assert!(near[[1, 2]] < whole && near[[1, 2]] > 0.9 * whole);
            assert!((near[[1, 2]] / near[[0, 1]] - 1.0).abs() < 1e-12);
        }
    }

    // Finer grids have the same values
    #[test]
    fn finer_grids_have_the_same_values() {
        let air = air(vec![Layer::new(0.0, 1.0, 25.0)]);
        let fitting = Fitting::new(&air, 0.5).unwrap();
        // A finer grid has the same values.
        let [coarse, fine] =
            [(4, 0.6), (8, 0.3)].map(|(n, s)| fitting.structure_function(n, s).unwrap());
        let gap = |(j, i): (usize, usize)| (coarse[[j, i]] / fine[[2 * j, 2 * i]] - 1.0).abs();
        assert!(gap((0, 3)) < 1e-7 && gap((1, 0)) < 1e-7, "{} {}", gap((0, 3)), gap((1, 0)));
        assert_eq!(fitting.structure_function(0, 1.0).unwrap_err().quantity, "displacements");
        assert_eq!(fitting.structure_function(8, 1e4).unwrap_err().quantity, "step");
        assert_eq!(fitting.structure_function(8, f64::NAN).unwrap_err().quantity, "step");
    }
}
