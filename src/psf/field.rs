// Tangled from book/src/field-maps.md: edit there, or here and run cargo tangle stitch.
//! A square of directions around the axis.

// Imports of a field
#[cfg(feature = "files")]
use crate::error::Error;
use crate::error::{Invalid, accept, positive};
#[cfg(feature = "files")]
use crate::model::SystemFile;
use crate::model::source::Source;
#[cfg(feature = "files")]
use crate::plausible::FIELD;
#[cfg(feature = "files")]
use crate::units::ARCSEC;

// Square of directions
/// A square of directions around the axis: the table `[field]` of a system file.
// Example of a field
///
/// ```
/// use lenslet::{psf::Field, units::ARCSEC};
/// let field = Field { size: 60.0 * ARCSEC, step: 20.0 * ARCSEC };
/// assert_eq!((field.across(), field.directions()?.len()), (4, 16));
/// let arcsec = |angles: Vec<f64>| angles.iter().map(|angle| angle / ARCSEC).collect::<Vec<_>>();
/// let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
/// assert!(close(&arcsec(field.offsets()), &[-30.0, -10.0, 10.0, 30.0]));
/// let [x, y] = field.directions()?[2].direction().map(|angle| angle / ARCSEC);
/// assert!(close(&[x, y], &[10.0, -30.0]) && (x.hypot(y) - 31.6).abs() < 0.05);
/// let wide = Field { size: 96.0 * ARCSEC, step: 8.0 * ARCSEC };
/// assert!(wide.directions()?.len() == 169 && close(&arcsec(wide.offsets())[..1], &[-48.0]));
/// let margin = Field { size: 50.0 * ARCSEC, step: 20.0 * ARCSEC };
/// assert!(close(&arcsec(margin.offsets()), &[-20.0, 0.0, 20.0]) && margin.across() == 3);
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Field {
    /// Length of a side \[rad\].
    pub size: f64,
    /// Step between neighbouring directions \[rad\].
    pub step: f64,
}

/// Largest number of directions along a side.
const MOST: f64 = 200.0;

impl Field {
    // Refuse fields without directions
    /// Rejects a side or a step that is not positive, a step beyond the side, and more than 200 directions along a side.
    ///
    /// # Errors
    /// `Invalid`, with the name of the key.
    pub fn check(&self) -> Result<(), Invalid> {
        positive("size", self.size)?;
        positive("step", self.step)?;
        let expected = "at most the size of the field, and not less than a 200th of it";
        let good = self.step <= self.size && self.size < MOST * self.step;
        accept(good, "step", self.step, expected).map(drop)
    }

    // Angles along a side of the field
    /// Directions along a side.
    pub fn across(&self) -> usize {
        (self.size / self.step * (1.0 + 1e-9)) as usize + 1
    }

    /// Their angles along either axis, ascending, rad.
    pub fn offsets(&self) -> Vec<f64> {
        let middle = 0.5 * (self.across() as f64 - 1.0);
        (0..self.across()).map(|k| (k as f64 - middle) * self.step).collect()
    }

    // Directions of a field by rows
    /// All directions by rows, x fastest.
    ///
    /// # Errors
    /// `Invalid` if a direction is too far from the axis for a source.
    pub fn directions(&self) -> Result<Vec<Source>, Invalid> {
        let offsets = self.offsets();
        let all = offsets.iter().flat_map(|y| offsets.iter().map(move |x| (x, y)));
        all.map(|(x, y)| Source::star(x.hypot(*y), y.atan2(*x))).collect()
    }
}

// Read a field from a file
#[cfg(feature = "files")]
impl Field {
    /// Reads the table `[field]` of a system file, if there is one.
    ///
    /// # Errors
    /// The first invalid line of the table.
    pub fn from_system_file(file: &SystemFile) -> Result<Option<Self>, Error> {
        let Some(table) = file.root()?.table("field")? else { return Ok(None) };
        let angle = |key: &str| table.required(key, "an angle in arcseconds greater than 0");
        let (size, step): (f64, f64) = (angle("size")?, angle("step")?);
        // What is said is checked as it is said.
        table.check(FIELD.check("size", size).and(FIELD.check("step", step)))?;
        table.check(Self { size, step }.check())?;
        Ok(Some(Self { size: size * ARCSEC, step: step * ARCSEC }))
    }
}

// Tests of fields
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_symmetric_and_checked() {
        let field = Field { size: 1e-4, step: 3e-5 };
        let offsets = field.offsets();
        assert_eq!(offsets.len(), 4);
        assert!(offsets.iter().zip(offsets.iter().rev()).all(|(a, b)| (a + b).abs() < 1e-18));
        let directions = field.directions().unwrap();
        let [x, y] = directions[6].direction(); // second row, third of it
        assert!((x - offsets[2]).abs() < 1e-15 && (y - offsets[1]).abs() < 1e-15);
        for (size, step, key) in
            [(0.0, 1.0, "size"), (1.0, -1.0, "step"), (1.0, 2.0, "step"), (1.0, 1e-3, "step")]
        {
            assert_eq!(Field { size, step }.check().unwrap_err().quantity, key);
        }
        assert!(Field { size: 1.0, step: 1.0 }.check().is_ok());
    }

    #[cfg(feature = "files")]
    #[test]
    fn fields_of_files_are_read_and_refused() {
        let air = "atmosphere = { r0 = 0.2, layers = [{ altitude = 0, fraction = 1 }] }\n";
        let read = |table: &str| {
            Field::from_system_file(&SystemFile::from_toml(&format!("{air}{table}"), "s.toml")?)
        };
        let field = read("[field]\nsize = 60\nstep = 15.0").unwrap().unwrap();
        assert_eq!(field.across(), 5);
        assert_eq!(read("").unwrap(), None);
        let wrong = read("[field]\nsize = 60\nstep = 90.0").unwrap_err().to_string();
        assert!(wrong.starts_with("s.toml:4: field.step = 90.0: expected at most"), "{wrong}");
        assert!(read("[field]\nsize = 60").unwrap_err().to_string().contains("field.step"));
    }
}
