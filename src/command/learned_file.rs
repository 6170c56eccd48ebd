// Tangled from book/src/learned-file.md: edit there, or here and run cargo tangle stitch.
//! The system file of a fitted profile.

// Imports of learned system files
use super::summary::count;
use crate::error::Error;
use crate::model::system::System;
use crate::model::system_file::{SystemFile, SystemFileBuilder};
use crate::profiling::fit::{Learned, Parameter, ParameterGroup};
use crate::units::DEGREE;

// What a learned system file is made of
/// What the system file of a fitted profile is made of.
pub(crate) struct LearnedFile<'a> {
    pub(crate) learned: &'a Learned,
    /// The system that the fit started from.
    pub(crate) start: &'a System,
    /// The groups of parameters that were fitted.
    pub(crate) groups: &'a [ParameterGroup],
    /// Where the slopes are from, and what fitted them, for the comment at the top.
    pub(crate) slopes: &'a str,
    pub(crate) origin: &'a str,
}

impl LearnedFile<'_> {
    fn fits(&self, group: ParameterGroup) -> bool {
        self.groups.contains(&group)
    }
}

// Write the learned system file
impl LearnedFile<'_> {
    /// The text of the fitted system, from the file that the fit started from; errors name it after the `output`.
    pub(crate) fn text(&self, start: &SystemFile, output: &str) -> Result<String, Error> {
        let mut file = start.to_builder();
        let (air, old) = (self.learned.system.atmosphere(), self.start.atmosphere());
        if self.fits(ParameterGroup::Strengths) {
            let r0 = digits(air.fried_parameter());
            file = match start.has("atmosphere.seeing") {
                true => file.replace("atmosphere.seeing", "r0", &r0),
                false => file.set_toml("atmosphere.r0", &r0),
            };
        }
        for (l, layer) in air.layers().iter().enumerate() {
            let key = |name: &str| format!("atmosphere.layers[{l}].{name}");
            if self.fits(ParameterGroup::Strengths) {
                file = file.set_toml(&key("fraction"), &digits(layer.fraction));
            }
            if self.fits(ParameterGroup::Altitudes) && layer.altitude != old.layers()[l].altitude {
                file = file.set_toml(&key("altitude"), &digits(layer.altitude));
            }
            if self.fits(ParameterGroup::OuterScale) && start.has(&key("outer_scale")) {
                file = file.set_toml(&key("outer_scale"), &digits(layer.outer_scale));
            }
        }
        if self.fits(ParameterGroup::OuterScale) {
            let outer_scale = digits(air.layers()[0].outer_scale);
            file = file.set_toml("atmosphere.outer_scale", &outer_scale);
        }
        let edited = self.set_stars(start, file).text();
        let text = self.header() + without_header(&edited);
        self.check_file(text, output)
    }

    // Set the sensors of stars
    fn set_stars(&self, start: &SystemFile, mut file: SystemFileBuilder) -> SystemFileBuilder {
        for (q, star) in self.learned.system.guide_stars().iter().enumerate() {
            let (key, sensor) = (|name: &str| format!("guide_star[{q}].{name}"), &star.sensor);
            if self.fits(ParameterGroup::Shifts) && q > 0 {
                let [x, y] = sensor.shift.map(digits);
                file = file.set_toml(&key("shift"), &format!("[{x}, {y}]"));
            }
            if self.fits(ParameterGroup::Rotations) {
                file = file.set_toml(&key("rotation"), &digits(sensor.rotation / DEGREE));
            }
            if self.fits(ParameterGroup::Magnifications) {
                file = file.set_toml(&key("magnification"), &digits(sensor.magnification));
            }
            if star.noise.is_uniform() && !start.has(&key("sensor")) {
                file = file.set_toml(&key("noise"), &digits(star.noise.mean()));
            }
        }
        file
    }

    // Read the learned file once more
    fn check_file(&self, text: String, output: &str) -> Result<String, Error> {
        let failed =
            |reason: String| Error::Failed { what: "writing what was learned".into(), reason };
        let read = System::from_toml(&text, output);
        let read = read.map_err(|error| failed(error.to_string()))?;
        let (air, known) = (read.atmosphere(), self.learned.system.atmosphere());
        let near = |one: f64, other: f64| one == other || (one - other).abs() <= 1e-7 * other.abs();
        let layers = air.layers().iter().zip(known.layers()).all(|(one, other)| {
            near(one.altitude, other.altitude)
                && (one.fraction - other.fraction).abs() < 1e-7
                && near(one.outer_scale, other.outer_scale)
        });
        let stars = read.guide_stars().iter().zip(self.learned.system.guide_stars());
        let sensors = stars.map(|(one, other)| (one.sensor, other.sensor)).all(|(one, other)| {
            [0, 1].into_iter().all(|k| (one.shift[k] - other.shift[k]).abs() < 1e-6)
                && (one.rotation - other.rotation).abs() < 1e-7
                && near(one.magnification, other.magnification)
        });
        if layers && sensors && near(air.fried_parameter(), known.fried_parameter()) {
            return Ok(text);
        }
        Err(failed("the tables of the file are written in a way that cannot be changed".into()))
    }

    // Write values and warnings at the top
    fn header(&self) -> String {
        let maps = &self.learned.maps;
        let mut lines = vec![
            format!("{HEADER} from {} with {}", self.slopes, env!("CARGO_PKG_VERSION")),
            format!("  {}", self.origin),
            format!(
                "{}, as good as {}",
                count(maps.frames, "frame"),
                count(maps.independent.round() as usize, "independent one")
            ),
        ];
        lines.extend(self.values().into_iter().map(|(name, value)| format!("  {name}: {value}")));
        if let Some(misfit) = self.learned.misfit {
            lines.push(format!("misfit {misfit:.2}, where 1 is expected"));
        }
        let warnings = &self.learned.warnings;
        if !warnings.is_empty() {
            lines.push("not told:".into());
            lines.extend(warnings.iter().map(|warning| format!("  {warning}")));
        }
        lines.push(END.into());
        lines.iter().map(|line| format!("# {}\n", line.replace(['\n', '\r'], " "))).collect()
    }

    /// All values with their errors.
    pub(crate) fn values(&self) -> Vec<(String, String)> {
        let (learned, mut values) = (&self.learned, Vec::new());
        if self.fits(ParameterGroup::Strengths) {
            let (r0, error) = learned.fried_parameter;
            values.push(("r0".into(), with_error(r0, error, "m")));
            for (l, (fraction, error)) in learned.fractions.iter().enumerate() {
                values.push((format!("fraction of layer {l}"), with_error(*fraction, *error, "")));
            }
        }
        for value in &learned.values {
            let (scale, unit) = match value.parameter {
                Parameter::Strength(_) | Parameter::Noise(..) => continue,
                Parameter::Rotation(_) => (DEGREE, "degrees"),
                Parameter::Magnification(_) => (1.0, ""),
                _ => (1.0, "m"),
            };
            let error = value.error.map(|error| error / scale);
            values
                .push((value.parameter.to_string(), with_error(value.value / scale, error, unit)));
        }
        for (q, (noise, error)) in learned.noise.iter().enumerate() {
            values.push((format!("noise of star {q}"), with_error(*noise, *error, "rad²")));
        }
        values
    }
}

// Write numbers with their errors
/// The first and the last line of the block of comments at the top of a learned system file.
const HEADER: &str = "Learned by lenslet";
const END: &str = "End of what was learned.";

/// A text without the block of comments of an earlier run at its top.
fn without_header(text: &str) -> &str {
    let (begin, end) = (format!("# {HEADER}"), format!("# {END}\n"));
    match text.find(&end) {
        Some(at) if text.starts_with(&begin) => &text[at + end.len()..],
        _ => text,
    }
}

/// A number with nine digits.
fn digits(number: f64) -> String {
    let rounded = format!("{number:.8e}").parse::<f64>().unwrap_or(number);
    format!("{rounded:?}")
}

/// A value with its error, both as far as the error's second digit; without one with four digits.
fn with_error(value: f64, error: Option<f64>, unit: &str) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let Some(error) = error.filter(|error| *error > 0.0) else {
        return format!("{}{unit}", format!("{value:.3e}").parse::<f64>().unwrap_or(value));
    };
    let place = error.log10().floor() as i32 - 1;
    if (-9..3).contains(&place) {
        let places = (-place).max(0) as usize;
        return format!("{value:.places$} ± {error:.places$}{unit}");
    }
    let power = value.abs().max(error).log10().floor() as i32;
    let (scale, places) = (10f64.powi(power), (power - place).clamp(1, 9) as usize);
    format!("({:.places$} ± {:.places$})e{power}{unit}", value / scale, error / scale)
}

// Tests of learned system files
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_as_far_as_their_errors() {
        let written = |value, error| with_error(value, error, "m");
        assert_eq!(written(0.151_234, Some(0.001_23)), "0.1512 ± 0.0012 m");
        assert_eq!(written(4512.3, Some(31.2)), "4512 ± 31 m");
        assert_eq!(written(1.0123e-14, Some(2.2e-16)), "(1.012 ± 0.022)e-14 m");
        assert_eq!(written(25.0, None), "25 m");
        assert_eq!(with_error(0.5, Some(0.0), ""), "0.5");
        assert_eq!([digits(0.1 + 0.2), digits(1e-14), digits(4500.0)], ["0.3", "1e-14", "4500.0"]);
        let header = format!("# {HEADER} x\n# more\n# {END}\n");
        assert_eq!(without_header(&(header + "r0 = 1\n")), "r0 = 1\n");
        assert_eq!(without_header("# mine\nr0 = 1\n"), "# mine\nr0 = 1\n");
    }
}
