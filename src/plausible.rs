// Tangled from book/src/plausible-values.md: edit there, or here and run cargo tangle stitch.
//! Intervals of plausible values, and the values that were probably meant where a unit was mistaken.

use crate::error::Invalid;
use crate::units::ARCSEC;

// Plausible values of a quantity
/// The values that a quantity can have in an instrument, and the units in which it is written by mistake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plausible {
    /// What is expected, with `{low}` and `{high}` for the ends of the accepted interval.
    pub expected: &'static str,
    /// The unit of a file in that of the library.
    pub unit: f64,
    /// Ends of the interval of accepted values, in the unit of a file.
    pub accepted: [f64; 2],
    /// Ends of the interval of usual values, in the unit of a file.
    pub usual: [f64; 2],
    /// Whether 0 is accepted, too.
    pub zero: bool,
    /// Whether values have a sign.
    pub signed: bool,
    /// Names of other units, and their values in the unit of a file; the most frequent slip is the first.
    pub others: &'static [(&'static str, f64)],
}
// Check that a value is plausible
/// The part of the lower end of an interval below which a number counts as zero.
const NEGLIGIBLE: f64 = 1e-10;

impl Plausible {
    /// Whether a value, in the unit of a file, is accepted.
    fn accepts(&self, x: f64) -> bool {
        let [low, high] = self.accepted;
        let (size, slack) = (x.abs(), 1e-9);
        let inside = low * (1.0 - slack) <= size && size <= high * (1.0 + slack);
        let fits = inside || self.zero && size <= NEGLIGIBLE * low;
        fits && (self.signed || x >= 0.0)
    }

    // Reject values that are not plausible
    /// `x` in the unit of the library, if it is plausible.
    ///
    /// # Errors
    /// `Invalid`, in the unit of a file, with what was expected and the value that was probably meant.
    pub fn check(&self, quantity: &str, x: f64) -> Result<f64, Invalid> {
        let written = rounded(x / self.unit, DIGITS);
        if self.accepts(written) {
            return Ok(x);
        }
        Err(Invalid::new(quantity, readable(written), self.complaint(x)))
    }

    /// `x`, if it is `good`; else it is rejected, with what was expected and the value that was probably meant.
    ///
    /// # Errors
    /// `Invalid`, in the unit of the library.
    pub fn accept(&self, good: bool, quantity: &str, x: f64) -> Result<f64, Invalid> {
        if good { Ok(x) } else { Err(Invalid::new(quantity, format!("{x:?}"), self.complaint(x))) }
    }
}
// Suggest the value that was meant
/// Digits of numbers in messages, and of those that a factor changed other than one of ten.
const DIGITS: usize = 12;
const FEW_DIGITS: usize = 3;

impl Plausible {
    /// The usual value that was probably meant by `x`, in the unit of the library, and the unit in which it was written.
    fn suggestion(&self, x: f64) -> Option<(f64, &'static str)> {
        let [low, high] = self.usual;
        let value = |(name, factor): &(&'static str, f64)| {
            let exponent = factor.log10();
            let of_ten = (exponent - exponent.round()).abs() < 1e-9;
            let digits = if of_ten { DIGITS } else { FEW_DIGITS };
            (rounded(x / self.unit * factor, digits), *name)
        };
        let is_usual = |(value, _): &(f64, &str)| (low..=high).contains(&value.abs());
        self.others.iter().map(value).find(is_usual).filter(|(value, _)| self.accepts(*value))
    }

    // Complaint about a value
    /// The value that was probably meant by `x`, in the unit of the library, in words; empty if there is none.
    pub fn remark(&self, x: f64) -> String {
        let written = readable(rounded(x / self.unit, DIGITS));
        let remark =
            |(value, unit)| format!("; did you mean {}? That is {written} {unit}", readable(value));
        self.suggestion(x).map_or_else(String::new, remark)
    }

    /// What is expected in place of `x`, in the unit of the library, and what was probably meant.
    pub fn complaint(&self, x: f64) -> String {
        let [low, high] = self.accepted.map(|end| readable(rounded(end, FEW_DIGITS)));
        self.expected.replace("{low}", &low).replace("{high}", &high) + &self.remark(x)
    }
}
// Check two numbers together
impl Plausible {
    /// Two numbers in the unit of a file, if the larger one is plausible.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn check_pair(&self, quantity: &str, pair: [f64; 2]) -> Result<[f64; 2], Invalid> {
        let largest = pair[0].max(pair[1]);
        if self.accepts(largest) {
            return Ok(pair);
        }
        let [low, high] = self.accepted.map(|end| readable(rounded(end, FEW_DIGITS)));
        let mut expected = self.expected.replace("{low}", &low).replace("{high}", &high);
        if let Some((value, unit)) = self.suggestion(largest * self.unit) {
            let [a, b] = pair.map(|x| readable(rounded(x / largest * value, DIGITS)));
            let written = pair.map(readable).join(", ");
            expected += &format!("; did you mean [{a}, {b}]? That is [{written}] {unit}");
        }
        Err(Invalid::new(quantity, format!("{pair:?}"), expected))
    }
}
// Print a number for people
/// A number rounded to so many digits.
fn rounded(x: f64, digits: usize) -> f64 {
    format!("{x:.*e}", digits - 1).parse().unwrap_or(x)
}

/// A number with an exponent that is a multiple of three, or without one where that is shorter.
pub(crate) fn readable(x: f64) -> String {
    let (plain, scientific) = (format!("{x}"), format!("{x:e}"));
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return plain };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => ("-", digits.replace('.', "")),
        None => ("", mantissa.replace('.', "")),
    };
    let before = 1 + exponent.rem_euclid(3) as usize;
    let digits = format!("{digits:0<before$}");
    let (whole, fraction) = digits.split_at(before);
    let point = if fraction.is_empty() { "" } else { "." };
    let engineering = format!("{sign}{whole}{point}{fraction}e{}", exponent.div_euclid(3) * 3);
    if engineering.chars().count() < plain.chars().count() { engineering } else { plain }
}
// Lengths of a system file
/// Units of a length in metres.
const LENGTHS: &[(&str, f64)] = &[("mm", 1e-3), ("cm", 1e-2), ("µm", 1e-6)];

/// A wavelength of light.
pub(crate) const WAVELENGTH: Plausible = Plausible {
    expected: "a wavelength in metres, between {low} and {high}",
    unit: 1.0,
    accepted: [1e-9, 1e-3],
    usual: [2e-7, 2e-5],
    zero: false,
    signed: false,
    others: &[("µm", 1e-6), ("nm", 1e-9), ("Å", 1e-10), ("mm", 1e-3)],
};
/// The Fried parameter at 500 nm.
pub(crate) const FRIED_PARAMETER: Plausible = Plausible {
    expected: "a length in metres from {low} to {high} at this wavelength, or 1e4 and more for no turbulence",
    unit: 1.0,
    accepted: [1e-5, 3.0],
    usual: [0.02, 1.0],
    zero: false,
    signed: false,
    others: &[("cm", 1e-2), ("mm", 1e-3)],
};
/// An altitude.
pub(crate) const ALTITUDE: Plausible = Plausible {
    expected: "an altitude in metres, from 0 to {high}",
    unit: 1.0,
    accepted: [0.0, 1e6],
    usual: [10.0, 1e5],
    zero: true,
    signed: false,
    others: &[("mm", 1e-3), ("cm", 1e-2)],
};
/// The height of a source that is no star.
pub(crate) const HEIGHT: Plausible = Plausible {
    expected: "a height in metres, from {low} up, or inf",
    unit: 1.0,
    accepted: [200.0, f64::INFINITY],
    usual: [5e3, 1e6],
    zero: false,
    signed: false,
    others: &[("km", 1e3)],
};
/// A diameter of a pupil.
pub(crate) const DIAMETER: Plausible = Plausible {
    expected: "a diameter in metres, from {low} to {high}",
    unit: 1.0,
    accepted: [1e-4, 200.0],
    usual: [0.05, 50.0],
    zero: false,
    signed: false,
    others: LENGTHS,
};
// Lengths on the pupil and above
/// The side of a lenslet, or a distance of actuators on the pupil.
pub(crate) const PITCH: Plausible = Plausible {
    expected: "a length in metres, from {low} to {high}",
    unit: 1.0,
    accepted: [1e-6, 100.0],
    usual: [1e-3, 2.0],
    zero: false,
    signed: false,
    others: LENGTHS,
};
/// A shift of a sensor.
pub(crate) const SHIFT: Plausible = Plausible {
    expected: "a shift from -1000 to 1000 m",
    unit: 1.0,
    accepted: [0.0, 1e3],
    usual: [1e-3, 10.0],
    zero: true,
    signed: true,
    others: LENGTHS,
};
/// Where a laser is launched.
pub(crate) const LAUNCH: Plausible =
    Plausible { expected: "a place from -1000 to 1000 m", usual: [0.1, 30.0], ..SHIFT };
/// The altitude of the light of a laser.
pub(crate) const SPOT_ALTITUDE: Plausible = Plausible {
    expected: "an altitude in metres, from {low} to {high}",
    unit: 1.0,
    accepted: [1e3, 1e9],
    usual: [5e3, 2e5],
    zero: false,
    signed: false,
    others: &[("km", 1e3)],
};
/// The depth of the light of a laser.
pub(crate) const SPOT_THICKNESS: Plausible = Plausible {
    expected: "a length in metres, from {low} to less than the altitude",
    accepted: [30.0, f64::INFINITY],
    usual: [100.0, 5e4],
    ..SPOT_ALTITUDE
};
// Angles of a system file
/// Square arcseconds, in rad².
const ARCSEC2: f64 = ARCSEC * ARCSEC;

/// Units of a variance of angles in rad².
const VARIANCES: &[(&str, f64)] =
    &[("arcsec²", ARCSEC2), ("mas²", 1e-6 * ARCSEC2), ("µrad²", 1e-12), ("nrad²", 1e-18)];

/// Units of an angle in arcseconds, and in milliarcseconds.
const IN_ARCSEC: &[(&str, f64)] =
    &[("mas", 1e-3), ("rad", 1.0 / ARCSEC), ("mrad", 1e-3 / ARCSEC), ("µrad", 1e-6 / ARCSEC)];
const IN_MAS: &[(&str, f64)] = &[("arcsec", 1e3), ("rad", 1e3 / ARCSEC), ("µas", 1e-3)];

/// The angle of a source from the axis, or of a disc of directions.
pub(crate) const ZENITH: Plausible = Plausible {
    expected: "an angle from 0 to 0.1 rad (20626 arcsec)",
    unit: ARCSEC,
    accepted: [0.0, 0.1 / ARCSEC],
    usual: [1.0, 3600.0],
    zero: true,
    signed: false,
    others: IN_ARCSEC,
};
/// The variance of the noise of a slope.
pub(crate) const NOISE: Plausible = Plausible {
    expected: "a variance of a slope in rad², from 0 to {high}",
    unit: 1.0,
    accepted: [0.0, 100.0 * ARCSEC2],
    usual: [1e-19, 100.0 * ARCSEC2],
    zero: true,
    signed: false,
    others: VARIANCES,
};
/// The variance of an unknown tilt.
pub(crate) const TILT_VARIANCE: Plausible = Plausible {
    expected: "a variance in rad², greater than 0 and at most 1e-5",
    unit: 1.0,
    accepted: [0.0, 1e-5],
    usual: [1e-17, 1e-8],
    zero: false,
    signed: false,
    others: VARIANCES,
};
// Pixels and boxes of a system file
/// A pixel of a sensor, or of slopes.
pub(crate) const SENSOR_PIXEL: Plausible = Plausible {
    expected: "an angle in arcsec, from {low} to {high}",
    unit: ARCSEC,
    accepted: [6e-5, 60.0],
    usual: [0.02, 20.0],
    zero: false,
    signed: false,
    others: IN_ARCSEC,
};
/// A pixel of an image.
pub(crate) const IMAGE_PIXEL: Plausible = Plausible {
    expected: "an angle in mas of at least {low} and at most {high}",
    unit: 1e-3 * ARCSEC,
    accepted: [0.02, 3.6e6],
    usual: [0.1, 2e3],
    zero: false,
    signed: false,
    others: IN_MAS,
};
/// The side of a box of ensquared energy.
pub(crate) const ENSQUARED: Plausible = Plausible { usual: [1.0, 5e3], ..IMAGE_PIXEL };

/// The rms of an image's motion.
pub(crate) const JITTER: Plausible = Plausible {
    expected: "an angle in mas rms, 0 or from {low} to {high}",
    accepted: [0.01, 1e6],
    usual: [0.1, 1e3],
    zero: true,
    signed: false,
    ..IMAGE_PIXEL
};
/// The side or the step of a field.
pub(crate) const FIELD: Plausible =
    Plausible { unit: 1.0, accepted: [0.01, 0.2 / ARCSEC], usual: [1.0, 3600.0], ..SENSOR_PIXEL };
// Rates and errors of a system file
/// The speed of wind.
pub(crate) const WIND_SPEED: Plausible = Plausible {
    expected: "a speed in m/s, from 0 to {high}",
    unit: 1.0,
    accepted: [0.0, 2e3],
    usual: [1.0, 200.0],
    zero: true,
    signed: false,
    others: &[("mm/s", 1e-3), ("cm/s", 1e-2)],
};
/// Frames in a second.
pub(crate) const RATE: Plausible = Plausible {
    expected: "a number of frames in a second of at least {low} and at most {high} Hz",
    unit: 1.0,
    accepted: [1e-2, 1e6],
    usual: [0.1, 1e5],
    zero: false,
    signed: false,
    others: &[("kHz", 1e3), ("mHz", 1e-3)],
};
/// A delay of a reconstruction.
pub(crate) const DELAY: Plausible = Plausible {
    expected: "a time in seconds, from 0 to {high}",
    unit: 1.0,
    accepted: [0.0, 1.0],
    usual: [1e-4, 0.5],
    zero: true,
    signed: false,
    others: &[("ms", 1e-3), ("µs", 1e-6)],
};
/// Photons of a star of magnitude 0.
pub(crate) const ZERO_POINT: Plausible = Plausible {
    expected: "a number of photons in 1/s/m², from {low} to {high}",
    unit: 1.0,
    accepted: [1e4, 1e14],
    usual: [1e6, 1e13],
    zero: false,
    signed: false,
    others: &[("1/s/cm²", 1e4)],
};
/// The rms of an error of the wavefront.
pub(crate) const EXTRA: Plausible = Plausible {
    expected: "a length in nm rms, 0 or from {low} to {high}",
    unit: 1e-9,
    accepted: [1e-3, 1e6],
    usual: [1.0, 5e3],
    zero: true,
    signed: false,
    others: &[("m", 1e9), ("µm", 1e3), ("pm", 1e-3)],
};
// Lengths of a sample file
/// Units of a length in ångström.
const IN_ANGSTROM: &[(&str, f64)] = &[("nm", 10.0), ("pm", 1e-2), ("m", 1e10)];

/// The side of a cell.
pub(crate) const CELL: Plausible = Plausible {
    expected: "lengths in Å, from {low} to {high}",
    unit: 1.0,
    accepted: [1.5, 1e6],
    usual: [2.0, 500.0],
    zero: false,
    signed: false,
    others: IN_ANGSTROM,
};
/// A pixel of a wave.
pub(crate) const WAVE_PIXEL: Plausible = Plausible {
    expected: "a length in Å, from {low} to {high}",
    accepted: [0.005, 4.0],
    usual: [0.01, 0.5],
    ..CELL
};
/// The thickness of a slice.
pub(crate) const SLICE: Plausible =
    Plausible { accepted: [0.05, 1e3], usual: [0.5, 20.0], ..WAVE_PIXEL };
/// How far the potential of an atom reaches.
pub(crate) const BOUND: Plausible =
    Plausible { accepted: [0.5, 30.0], usual: [1.0, 10.0], ..WAVE_PIXEL };
/// The rms displacement of an atom.
pub(crate) const DISPLACEMENT: Plausible = Plausible {
    expected: "a one-dimensional rms displacement from 0 to 2 Å, and of at least {low} Å unless it is 0",
    accepted: [0.01, 2.0],
    usual: [0.02, 0.5],
    zero: true,
    signed: false,
    ..CELL
};
// Distances of a scan and lens
/// The step of a scan.
pub(crate) const SCAN_STEP: Plausible =
    Plausible { accepted: [0.005, 1e3], usual: [0.01, 20.0], ..WAVE_PIXEL };
/// The radius of the image of a source.
pub(crate) const SOURCE_SIZE: Plausible = Plausible {
    expected: "a length in Å, 0 to 1000, and of at least {low} unless it is 0",
    accepted: [0.01, 1e3],
    usual: [0.02, 5.0],
    zero: true,
    signed: false,
    ..CELL
};
/// A defocus, or a distance behind the specimen.
pub(crate) const DEFOCUS: Plausible = Plausible {
    expected: "a length in Å up to {high} either way, and of at least {low} unless it is 0",
    accepted: [1e-3, 1e7],
    usual: [1.0, 1e5],
    zero: true,
    signed: true,
    others: &[("m", 1e10), ("pm", 1e-2)],
    ..CELL
};
/// The depth of a plane in the specimen.
pub(crate) const DEPTH: Plausible = Plausible {
    accepted: [0.1, 1e7],
    usual: [1.0, 1e5],
    others: &[("m", 1e10), ("pm", 1e-2)],
    ..WAVE_PIXEL
};
/// The spread of the focus.
pub(crate) const FOCAL_SPREAD: Plausible = Plausible {
    expected: "a length in Å, 0 to 1e6, and of at least {low} unless it is 0",
    accepted: [0.1, 1e6],
    usual: [5.0, 1e3],
    signed: false,
    ..DEFOCUS
};
/// Spherical aberration of third order.
pub(crate) const C3: Plausible = Plausible {
    expected: "a length in Å, 0 or of at least {low} in magnitude",
    unit: 1.0,
    accepted: [1e2, f64::INFINITY],
    usual: [1e5, 1e9],
    zero: true,
    signed: true,
    others: &[("mm", 1e7), ("m", 1e10), ("µm", 1e4)],
};
/// Spherical aberration of fifth order.
pub(crate) const C5: Plausible =
    Plausible { accepted: [1e4, f64::INFINITY], usual: [1e6, 1e10], ..C3 };
// Angles and energies of a sample file
/// Units of an angle in milliradians.
const IN_MRAD: &[(&str, f64)] = &[("rad", 1e3), ("µrad", 1e-3)];

/// The energy of an electron.
pub(crate) const ENERGY: Plausible = Plausible {
    expected: "an energy between {low} and 10000 keV",
    unit: 1.0,
    accepted: [1.0, 1e4],
    usual: [10.0, 3e3],
    zero: false,
    signed: false,
    others: &[("V", 1e-3), ("MV", 1e3)],
};
/// The semi-angle of a probe.
pub(crate) const SEMI_ANGLE: Plausible = Plausible {
    expected: "an angle from 0 to 500 mrad, and of at least {low} mrad unless it is 0",
    unit: 1.0,
    accepted: [0.1, 500.0],
    usual: [1.0, 150.0],
    zero: true,
    signed: false,
    others: IN_MRAD,
};
/// The outer angle of a detector.
pub(crate) const DETECTOR_ANGLE: Plausible = Plausible {
    expected: "angles in mrad whose larger one is from {low} to {high}",
    accepted: [0.5, 2e3],
    usual: [2.0, 500.0],
    zero: false,
    signed: false,
    ..SEMI_ANGLE
};
/// The angle to which patterns are cut.
pub(crate) const CROP: Plausible =
    Plausible { expected: "an angle in mrad, from {low} to {high}", ..DETECTOR_ANGLE };
/// The width of an annular bin.
pub(crate) const BIN: Plausible =
    Plausible { accepted: [0.005, 500.0], usual: [0.1, 20.0], ..CROP };
/// The semi-angle of an objective aperture.
pub(crate) const APERTURE: Plausible =
    Plausible { accepted: [0.1, 500.0], usual: [1.0, 100.0], ..CROP };
/// The rms angle of an illumination.
pub(crate) const CONVERGENCE: Plausible =
    Plausible { accepted: [1e-3, 500.0], usual: [0.01, 10.0], ..SEMI_ANGLE };
/// How far beams of PRISM reach beyond the semi-angle.
pub(crate) const MARGIN: Plausible =
    Plausible { accepted: [0.01, 500.0], usual: [0.5, 50.0], ..SEMI_ANGLE };
// Tests of plausible values
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // All plausible intervals by name
    const ALL: [(&str, Plausible); 40] = [
        ("wavelength", WAVELENGTH),
        ("r0", FRIED_PARAMETER),
        ("altitude", ALTITUDE),
        ("height", HEIGHT),
        ("diameter", DIAMETER),
        ("pitch", PITCH),
        ("shift", SHIFT),
        ("launch", LAUNCH),
        ("spot altitude", SPOT_ALTITUDE),
        ("spot thickness", SPOT_THICKNESS),
        ("zenith", ZENITH),
        ("noise", NOISE),
        ("tip_tilt_variance", TILT_VARIANCE),
        ("sensor pixel", SENSOR_PIXEL),
        ("image pixel", IMAGE_PIXEL),
        ("ensquared", ENSQUARED),
        ("jitter", JITTER),
        ("wind_speed", WIND_SPEED),
        ("rate", RATE),
        ("delay", DELAY),
        ("zero_point", ZERO_POINT),
        ("extra", EXTRA),
        ("cell", CELL),
        ("pixel", WAVE_PIXEL),
        ("slice_thickness", SLICE),
        ("bound", BOUND),
        ("rms", DISPLACEMENT),
        ("step", SCAN_STEP),
        ("source_size", SOURCE_SIZE),
        ("defocus", DEFOCUS),
        ("thicknesses", DEPTH),
        ("focal_spread", FOCAL_SPREAD),
        ("c3", C3),
        ("c5", C5),
        ("energy_kev", ENERGY),
        ("semi_angle", SEMI_ANGLE),
        ("annuli", DETECTOR_ANGLE),
        ("bin", BIN),
        ("aperture", APERTURE),
        ("convergence", CONVERGENCE),
    ];
    // Usual values are accepted ones
    #[test]
    fn usual_values_are_accepted_ones() {
        for (name, plausible) in ALL {
            assert!(plausible.usual[0] < plausible.usual[1], "{name}");
            assert!(plausible.usual.iter().all(|x| plausible.accepts(*x)), "{name}");
            assert!(plausible.check(name, f64::NAN).is_err(), "{name}");
            for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert_eq!(plausible.suggestion(x), None, "{name}");
            }
        }
    }

    #[test]
    fn numbers_are_printed_as_people_write_them() {
        for (x, text) in [
            (0.15, "0.15"),
            (20.0, "20"),
            (90e3, "90e3"),
            (2.2e-6, "2.2e-6"),
            (5e-7, "500e-9"),
            (-500.0, "-500"),
            (1.25e-5, "12.5e-6"),
            (-3e7, "-30e6"),
            (0.0, "0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(readable(x), text);
            assert_eq!(text.parse::<f64>().unwrap(), x);
        }
    }

    // Slips of units are recognised
    #[test]
    fn slips_of_units_are_recognised() {
        for (plausible, written, meant) in [
            (WAVELENGTH, 2.2, "2.2e-6? That is 2.2 µm"),
            (WAVELENGTH, 500.0, "500e-9? That is 500 nm"),
            (WAVELENGTH, 22_000.0, "2.2e-6? That is 22e3 Å"),
            (FRIED_PARAMETER, 15.0, "0.15? That is 15 cm"),
            (HEIGHT, 90.0, "90e3? That is 90 km"),
            (DIAMETER, 8200.0, "8.2? That is 8200 mm"),
            (NOISE, 0.1, "2.35e-12? That is 0.1 arcsec²"),
            (IMAGE_PIXEL, 0.01, "10? That is 0.01 arcsec"),
            (JITTER, 0.003, "3? That is 3e-3 arcsec"),
            (EXTRA, 30e-9, "30? That is 30e-9 m"),
            (SENSOR_PIXEL, 200.0, "0.2? That is 200 mas"),
            (SEMI_ANGLE, 0.02, "20? That is 0.02 rad"),
            (ENERGY, 200_000.0, "200? That is 200e3 V"),
            (C3, 1.2, "12e6? That is 1.2 mm"),
            (C3, -1e-3, "-10e6? That is -1e-3 m"),
            (DEFOCUS, -5e-8, "-500? That is -50e-9 m"),
            (CELL, 0.543, "5.43? That is 0.543 nm"),
            (DISPLACEMENT, 7.6, "0.076? That is 7.6 pm"),
            (CONVERGENCE, 2e-4, "0.2? That is 0.0002 rad"),
        ] {
            let refused = plausible.check("x", plausible.unit * written).unwrap_err();
            assert!(refused.expected.contains(&format!("; did you mean {meant}")), "{refused}");
        }
        let pair = DETECTOR_ANGLE.check_pair("annuli[0]", [0.06, 0.1]).unwrap_err();
        assert!(
            pair.expected.ends_with("did you mean [60, 100]? That is [0.06, 0.1] rad"),
            "{pair}"
        );
        let none = WAVELENGTH.check("x", 1e12).unwrap_err();
        assert_eq!(none.expected, "a wavelength in metres, between 1e-9 and 1e-3");
    }
    // Suggestions are accepted
    proptest! {
        #[test]
        fn suggestions_are_accepted(
            k in 0..ALL.len(), mantissa in 1.0f64..10.0, exponent in -30..30, negative in any::<bool>(),
        ) {
            let (name, plausible) = ALL[k];
            let size: f64 = mantissa * 10f64.powi(exponent);
            let x = plausible.unit * if negative { -size } else { size };
            if let Err(refused) = plausible.check(name, x) {
                if let Some((_, meant)) = refused.expected.split_once("did you mean ") {
                    let meant = meant.split('?').next().unwrap().parse::<f64>().unwrap();
                    prop_assert!(plausible.check(name, plausible.unit * meant).is_ok(), "{refused}");
                    prop_assert!((meant < 0.0) == negative);
                }
            } else {
                prop_assert!(plausible.accepts(rounded(x / plausible.unit, DIGITS)));
            }
        }
    }
}
