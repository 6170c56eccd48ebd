// Tangled from book/src/atmosphere.md: edit there, or here and run cargo tangle stitch.
//! The atmosphere: thin layers of von Kármán turbulence, and one Fried parameter with its wavelength.

use crate::error::{Invalid, finite, length, length_or_infinity, not_negative};
use crate::plausible::{self, FRIED_PARAMETER, Plausible};

// A thin turbulent layer
/// A thin turbulent layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// Altitude above the telescope \[m\].
    pub altitude: f64,
    /// Share of the layer in the `r0^(-5/3)` of the atmosphere, [fractions](https://lenslet.github.io/lenslet/atmosphere.html#eq-fractions).
    pub fraction: f64,
    /// Outer scale \[m\]; infinity is Kolmogorov's limit.
    pub outer_scale: f64,
    /// Speed of the wind \[m/s\].
    pub wind_speed: f64,
    /// Direction towards which the wind blows, from the x axis towards the y axis \[rad\].
    pub wind_direction: f64,
}

impl Layer {
    /// A layer without wind; [`Atmosphere::new`] checks its values.
    pub fn new(altitude: f64, fraction: f64, outer_scale: f64) -> Self {
        Self { altitude, fraction, outer_scale, wind_speed: 0.0, wind_direction: 0.0 }
    }

    // Velocity of the wind
    /// The velocity of the wind along x and y \[m/s\].
    pub fn velocity(&self) -> [f64; 2] {
        let (sin, cos) = self.wind_direction.sin_cos();
        [self.wind_speed * cos, self.wind_speed * sin]
    }
}

// An atmosphere of layers
/// The turbulence above a telescope: a Fried parameter with its wavelength, and layers.
///
/// ```
/// use lenslet::model::{Atmosphere, Layer};
/// use lenslet::units::ARCSEC;
/// let layers = vec![Layer::new(0.0, 0.7, 25.0), Layer::new(10e3, 0.3, 25.0)];
/// let air = Atmosphere::new(0.16, 500e-9, layers)?;
/// assert!((air.mean_altitude() - 4856.0).abs() < 0.5);
/// for (wavelength, r0, seeing, angle) in [(500e-9, 0.16, 0.629, 2.136), (1.65e-6, 0.670, 0.495, 8.949)] {
///     assert!((air.fried_parameter_at(wavelength) - r0).abs() < 5e-4);
///     assert!((air.seeing_at(wavelength) / ARCSEC - seeing).abs() < 5e-4);
///     assert!((air.isoplanatic_angle_at(wavelength) / ARCSEC - angle).abs() < 5e-4);
/// }
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Atmosphere {
    fried_parameter: f64,
    wavelength: f64,
    layers: Vec<Layer>,
}

// Methods of an atmosphere
impl Atmosphere {
    /// An atmosphere whose Fried parameter is `r0` \[m\] at `wavelength` \[m\].
    ///
    /// The layers may be in any order. Rejected are an `r0`, wavelength, altitude, outer scale or wind
    /// outside of their ranges, negative fractions, and fractions that do not sum to 1 within 1e-6.
    pub fn new(r0: f64, wavelength: f64, layers: Vec<Layer>) -> Result<Self, Invalid> {
        let fried_parameter = length("r0", r0)?;
        let wavelength = check_wavelength(wavelength)?;
        check_fried_parameter(fried_parameter, wavelength)?;
        check_layers(&layers)?;
        check_fractions(&layers)?;
        Ok(Self { fried_parameter, wavelength, layers })
    }

    // Parameters of an atmosphere
    /// The Fried parameter at [`wavelength`](Self::wavelength) \[m\].
    pub fn fried_parameter(&self) -> f64 {
        self.fried_parameter
    }

    /// The wavelength to which the Fried parameter belongs \[m\].
    pub fn wavelength(&self) -> f64 {
        self.wavelength
    }

    /// The layers, in the order in which they were given.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The Fried parameter at another wavelength \[m\], [fried wavelength](https://lenslet.github.io/lenslet/atmosphere.html#eq-fried-wavelength).
    pub fn fried_parameter_at(&self, wavelength: f64) -> f64 {
        self.fried_parameter * (wavelength / self.wavelength).powf(6.0 / 5.0)
    }

    // Seeing at any wavelength
    /// The seeing at a wavelength, for an infinite outer scale \[rad\], [seeing](https://lenslet.github.io/lenslet/atmosphere.html#eq-seeing).
    ///
    /// ```
    /// use lenslet::model::{Atmosphere, Layer};
    /// use lenslet::units::ARCSEC;
    /// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 30.0)])?;
    /// assert!((air.seeing_at(500e-9) / ARCSEC - 0.67095).abs() < 1e-5);
    /// assert!((air.fried_parameter_at(2.2e-6) - 0.88764).abs() < 1e-5);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn seeing_at(&self, wavelength: f64) -> f64 {
        SEEING * wavelength / self.fried_parameter_at(wavelength)
    }

    // Mean altitude of the turbulence
    /// The mean altitude of the turbulence, weighted by `h^(5/3)` \[m\], [mean altitude](https://lenslet.github.io/lenslet/atmosphere.html#eq-mean-altitude).
    pub fn mean_altitude(&self) -> f64 {
        let moment = |layer: &Layer| layer.fraction * layer.altitude.powf(5.0 / 3.0);
        self.layers.iter().map(moment).sum::<f64>().powf(3.0 / 5.0)
    }

    /// The angle at which the phases of two stars differ by 1 rad rms \[rad\]; infinite at the ground.
    pub fn isoplanatic_angle_at(&self, wavelength: f64) -> f64 {
        0.314268 * self.fried_parameter_at(wavelength) / self.mean_altitude()
    }
}

// Fried parameter of a seeing
/// The seeing in units of the wavelength over the Fried parameter, for an infinite outer scale.
const SEEING: f64 = 0.975_863;

/// The Fried parameter \[m\] at a `wavelength` \[m\] at which the `seeing` \[rad\] is given.
#[cfg(feature = "files")]
pub(crate) fn fried_parameter_of(seeing: f64, wavelength: f64) -> f64 {
    SEEING * wavelength / seeing
}

// Check the values of layers
/// `wavelength`, if it is one of light in metres.
pub(crate) fn check_wavelength(wavelength: f64) -> Result<f64, Invalid> {
    plausible::WAVELENGTH.check("wavelength", wavelength)
}

/// Rejects a Fried parameter outside of the range of turbulence at its wavelength, such as one in centimetres.
fn check_fried_parameter(r0: f64, wavelength: f64) -> Result<(), Invalid> {
    let scale = (wavelength / 500e-9).powf(6.0 / 5.0);
    let [accepted, usual] =
        [FRIED_PARAMETER.accepted, FRIED_PARAMETER.usual].map(|ends| ends.map(|r0| r0 * scale));
    let here = Plausible { accepted, usual, ..FRIED_PARAMETER };
    if r0 >= NO_TURBULENCE { Ok(()) } else { here.check("r0", r0).map(drop) }
}

/// From this value on a Fried parameter means no turbulence \[m\].
const NO_TURBULENCE: f64 = 1e4;

fn check_layers(layers: &[Layer]) -> Result<(), Invalid> {
    for (l, layer) in layers.iter().enumerate() {
        check_layer(layer)
            .map_err(|bad| Invalid { quantity: format!("layers[{l}].{}", bad.quantity), ..bad })?;
    }
    Ok(())
}

fn check_layer(layer: &Layer) -> Result<(), Invalid> {
    plausible::ALTITUDE.check("altitude", layer.altitude)?;
    not_negative("fraction", layer.fraction)?;
    length_or_infinity("outer_scale", layer.outer_scale)?;
    not_negative("wind_speed", layer.wind_speed)?;
    finite("wind_direction", layer.wind_direction)?;
    Ok(())
}
// Check the sum of fractions
fn check_fractions(layers: &[Layer]) -> Result<(), Invalid> {
    if layers.is_empty() {
        return Err(Invalid::new("layers", "[]", "at least one layer"));
    }
    let sum: f64 = layers.iter().map(|layer| layer.fraction).sum();
    if (sum - 1.0).abs() <= 1e-6 {
        return Ok(());
    }
    let sum = format!("fractions with the sum {:?}", (sum * 1e9).round() / 1e9);
    Err(Invalid::new("layers", sum, "fractions that sum to 1 within 1e-6"))
}

// Check additivity and refusals
#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Vec<Layer> {
        vec![Layer::new(10e3, 0.3, f64::INFINITY), Layer::new(0.0, 0.7, 25.0)]
    }

    #[test]
    fn layers_add_by_the_power_minus_five_thirds() {
        let whole = Atmosphere::new(0.16, 500e-9, layers()).unwrap();
        let own = |layer: &Layer| 0.16 * layer.fraction.powf(-0.6);
        let sum: f64 = whole.layers().iter().map(|layer| own(layer).powf(-5.0 / 3.0)).sum();
        assert!((sum.powf(-0.6) / 0.16 - 1.0).abs() < 1e-12);
        assert!((whole.mean_altitude() / 1e4 - 0.3f64.powf(0.6)).abs() < 1e-12);
        assert!((whole.fried_parameter_at(1.65e-6) / 0.16 - 4.190_026).abs() < 1e-5);
        let angle = 6.883_877
            * (whole.isoplanatic_angle_at(500e-9) * whole.mean_altitude() / 0.16).powf(5.0 / 3.0);
        assert!((angle - 1.0).abs() < 1e-5);
    }

    // Break each value of a layer in turn
    #[test]
    fn bad_values_are_refused_by_name() {
        let refused = |spoil: fn(&mut Layer)| {
            let mut layers = layers();
            spoil(&mut layers[1]);
            Atmosphere::new(0.16, 500e-9, layers).unwrap_err().quantity
        };
        assert_eq!(refused(|layer| layer.altitude = -1.0), "layers[1].altitude");
        assert_eq!(refused(|layer| layer.fraction = f64::NAN), "layers[1].fraction");
        assert_eq!(refused(|layer| layer.outer_scale = 0.0), "layers[1].outer_scale");
        assert_eq!(refused(|layer| layer.wind_speed = f64::INFINITY), "layers[1].wind_speed");
        assert_eq!(refused(|layer| layer.wind_direction = f64::NAN), "layers[1].wind_direction");
        assert_eq!(refused(|layer| layer.fraction = 0.70001), "layers");
        assert_eq!(Atmosphere::new(0.16, 500e-9, vec![]).unwrap_err().quantity, "layers");
        assert_eq!(Atmosphere::new(0.0, 500e-9, layers()).unwrap_err().quantity, "r0");
        assert_eq!(Atmosphere::new(0.16, f64::NAN, layers()).unwrap_err().quantity, "wavelength");
        assert_eq!(Atmosphere::new(0.16, 500.0, layers()).unwrap_err().quantity, "wavelength");
        let mut nearly = layers();
        nearly[1].fraction += 0.9e-6;
        assert!(Atmosphere::new(0.16, 500e-9, nearly).is_ok());
    }
}
