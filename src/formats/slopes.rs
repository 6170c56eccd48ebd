// Tangled from book/src/slope-files.md: edit there, or here and run cargo tangle stitch.
//! Slopes from files of other programs: their shape, their unit and their order.

// Imports of slopes in files
use crate::error::{Error, Invalid, accept, count};
use crate::files::reading::{ListedArray, Unit, list_arrays, read_array, split_choice};
use crate::formats::aot::is_telemetry;
use crate::formats::aot::system::read_slopes;
use crate::model::lenslet_array::{SlopeArrangement, SlopeOrder};
use crate::model::system::System;
use crate::plausible::SENSOR_PIXEL;
use crate::units::ARCSEC;
use ndarray::{Array2, ArrayD, Axis, Ix2, Ix3, concatenate};
use std::path::{Path, PathBuf};

// Unit and order of stored slopes
/// The unit of stored slopes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum SlopeUnit {
    /// An angle of so many radians.
    Angle(f64),
    /// A pixel of so many radians.
    Pixel(f64),
    /// So many metres of wavefront across a lenslet.
    Length(f64),
}

/// How slopes are stored in a file that does not state it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SlopeFormat {
    /// The unit; unless given that of the file, and rad if it states none.
    pub unit: Option<SlopeUnit>,
    /// The order of the slopes of each sensor; unless given, all x before all y, row by row.
    pub arrangement: Option<SlopeArrangement>,
}

// Convert a unit of slopes
impl SlopeUnit {
    /// A pixel of so many arcseconds.
    ///
    /// # Errors
    /// `Invalid` for a size that is not from 6e-5 to 60 arcsec.
    pub fn pixel(arcsec: f64) -> Result<Self, Invalid> {
        SENSOR_PIXEL.check("pixel-scale", arcsec * ARCSEC).map(Self::Pixel)
    }

    /// The radians of a number, for lenslets of this side in metres.
    fn radians(self, side: f64) -> f64 {
        match self {
            Self::Angle(radians) | Self::Pixel(radians) => radians,
            Self::Length(metres) => metres / side,
        }
    }

    // Compare units by their names
    /// Whether a file means this unit by a name.
    fn is_called(self, name: &str) -> bool {
        match self {
            Self::Angle(radians) => Unit::Radian.factor(name) == Some(radians),
            Self::Length(metres) => Unit::Metre.factor(name) == Some(metres),
            Self::Pixel(_) => is_pixel(name),
        }
    }
}

// Names of a pixel
/// Whether the name of a unit is that of a pixel.
fn is_pixel(name: &str) -> bool {
    ["pixel", "pixels", "pix", "px"].contains(&name.trim().to_ascii_lowercase().as_str())
}

// Read slopes of any shape
// Slopes and what was stated
/// Slopes from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadSlopes {
    /// Slopes (frames, n), rad, in the order of [`SlopeOrder`].
    pub slopes: Array2<f64>,
    /// Whether the file or the user has stated the unit.
    pub has_unit: bool,
    /// Whether the file or the user has stated the order.
    pub has_order: bool,
}

impl ReadSlopes {
    /// Reads the slopes of a system's sensors from telemetry, FITS, `.npy` or `.npz`, in any of the shapes of this chapter.
    ///
    /// # Errors
    /// `Read` where the file cannot be read; `Invalid`, with the name of the file, for a shape that the system's sensors do not have, a unit other than the one that is given, or a number that is not finite.
    pub fn from_file(path: &Path, system: &System, format: &SlopeFormat) -> Result<Self, Error> {
        // Read the slopes of telemetry's sensors
        if is_telemetry(path) {
            let given = format.unit.is_some() || format.arrangement.is_some();
            let file = format!("{}: unit or order", path.display());
            accept(!given, &file, "given", "neither, as telemetry states both")?;
            let slopes = read_slopes(path, system)?;
            return Ok(Self { slopes, has_unit: true, has_order: true });
        }
        let order = SlopeOrder::new(&system.valid_lenslets());
        let source = SlopeSource::find(path, system.guide_stars().len());
        let has_unit = format.unit.is_some() || source.unit.is_some();
        let unit = source.unit_of_numbers(format)?;
        let stored = source.read(&order, unit)?;
        let slopes = in_our_order(stored, system, &order, format);
        Ok(Self { slopes, has_unit, has_order: format.arrangement.is_some() })
    }
}

// Convert slopes to our order
/// The slopes of a file in our order, and in rad.
fn in_our_order(
    stored: Array2<f64>,
    system: &System,
    order: &SlopeOrder,
    format: &SlopeFormat,
) -> Array2<f64> {
    let arrangement = format.arrangement.unwrap_or_default();
    if stored.ncols() != order.len() {
        return stored;
    }
    let places: Vec<usize> = (0..system.guide_stars().len())
        .flat_map(|star| {
            let first = order.index(star, 0, 0);
            arrangement.places(order.lenslets(star)).into_iter().map(move |place| first + place)
        })
        .collect();
    let mut slopes = stored.select(Axis(1), &places).as_standard_layout().into_owned();
    // Multiply slopes by their unit
    for (star, sensor) in system.sensors().iter().enumerate() {
        let factor = format.unit.map_or(1.0, |unit| unit.radians(sensor.side()));
        let first = order.index(star, 0, 0);
        let own = first..first + 2 * order.lenslets(star).len();
        slopes.slice_mut(ndarray::s![.., own]).mapv_inplace(|slope| factor * slope);
    }
    slopes
}

// Arrays that hold the slopes
// Where slopes are stored
/// Where the slopes are.
struct SlopeSource<'a> {
    path: &'a Path,
    /// Axes of a single array, if that is known.
    axes: Option<usize>,
    /// The array of each sensor; empty where a single array holds all slopes.
    sensors: Vec<ListedArray>,
    stars: usize,
    /// The unit that the file states.
    unit: Option<String>,
}

impl<'a> SlopeSource<'a> {
    fn find(path: &'a Path, stars: usize) -> Self {
        let (file, choice) = split_choice(path);
        let listed = if file.is_file() { list_arrays(file).unwrap_or_default() } else { vec![] };
        let chosen = match choice {
            Some(choice) => listed.iter().find(|one| one.is_called(choice)),
            None if listed.len() == 1 => listed.first(),
            None => listed.iter().find(|one| one.number.is_none() && one.name == "slopes"),
        };
        let stated = |one: &ListedArray| Some(one.unit.clone()).filter(|unit| !unit.is_empty());
        let axes = chosen.map(|one| one.shape.len());
        let unit = chosen.and_then(stated);
        // Take an array for each sensor
        let mut sensors = Vec::new();
        if choice.is_none() && chosen.is_none() {
            sensors = listed.into_iter().filter(|one| one.shape.len() == 2).collect();
            sort_by_number(&mut sensors);
        }
        let fits = sensors.len() == stars && stars > 1;
        let unit = unit.or_else(|| sensors.first().and_then(stated).filter(|_| fits));
        let sensors = if fits { sensors } else { Vec::new() };
        Self { path, axes, sensors, stars, unit }
    }

    // Unit of the numbers in a file
    /// The unit in which the numbers are read: as they are stored where the user gives one.
    fn unit_of_numbers(&self, format: &SlopeFormat) -> Result<Unit, Error> {
        let refuse = |expected: &str| {
            let name = format!("{}: BUNIT", self.path.display());
            let value = self.unit.clone().unwrap_or_default();
            Error::from(Invalid::new(name, format!("'{value}'"), expected))
        };
        match (format.unit, &self.unit) {
            (None, Some(unit)) if is_pixel(unit) => {
                Err(refuse("an angle, or the size of a pixel in arcsec: --pixel-scale"))
            }
            (None, _) => Ok(Unit::Radian),
            (Some(given), Some(stated)) if !given.is_called(stated) => {
                Err(refuse("the unit that is given by --unit or --pixel-scale, or leave that out"))
            }
            (Some(_), _) => Ok(Unit::Stored),
        }
    }

    // Read the arrays of slopes
    /// Reads the slopes as they are stored, (frames, n).
    fn read(&self, order: &SlopeOrder, unit: Unit) -> Result<Array2<f64>, Error> {
        if !self.sensors.is_empty() {
            return self.read_sensors(order, unit);
        }
        let axes = if self.axes == Some(3) { [2, 3] } else { [1, 2] };
        let array = read_array(self.path, axes, unit).map_err(|error| self.explain(error))?;
        match array.ndim() {
            1 => self.rows(array.insert_axis(Axis(0))),
            2 => self.rows(array),
            _ => self.join_cube(&array, order),
        }
    }

    /// An error about several arrays, with what else they might be.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Invalid(Invalid { quantity, value, expected })
                if quantity.ends_with("images") || quantity.ends_with("arrays") =>
            {
                let each = format!(
                    "one of two axes, (frames, slopes), for each of {}",
                    count(self.stars, "guide star")
                );
                Invalid::new(quantity, value, format!("{expected}; or {each}")).into()
            }
            other => other,
        }
    }

    fn rows(&self, array: ArrayD<f64>) -> Result<Array2<f64>, Error> {
        let shape = format!("{:?}", array.shape());
        array
            .into_dimensionality::<Ix2>()
            .map_err(|_| self.refuse("shape", &shape, "(frames, slopes)".into()))
    }

    fn refuse(&self, what: &str, value: &str, expected: String) -> Error {
        Invalid::new(format!("{}: {what}", self.path.display()), value, expected).into()
    }
}

// Sort arrays by their numbers
/// Sorts arrays by the numbers at the end of their names, if they differ in nothing else.
fn sort_by_number(arrays: &mut [ListedArray]) {
    let parts = |array: &ListedArray| {
        let stem = array.name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
        array.name[stem.len()..].parse::<u64>().ok().map(|number| (stem, number))
    };
    let all: Option<Vec<_>> = arrays.iter().map(parts).collect();
    if all.is_some_and(|all| all.windows(2).all(|pair| pair[0].0 == pair[1].0)) {
        arrays.sort_by_key(|array| parts(array).map(|(_, number)| number));
    }
}

// Join the slopes of sensors
impl SlopeSource<'_> {
    /// Joins a cube (frames, sensors, slopes).
    fn join_cube(&self, array: &ArrayD<f64>, order: &SlopeOrder) -> Result<Array2<f64>, Error> {
        let slopes = slopes_of_sensors(order, self.stars);
        let shape = array.shape().to_vec();
        let equal = slopes.iter().all(|n| *n == slopes[0]);
        let expected = [shape[0], self.stars, slopes[0]];
        // Refuse cubes of another shape
        if !equal || shape != expected {
            let expected = if !equal {
                format!("an array for each guide star, as their sensors have {slopes:?} slopes")
            } else if shape[..2] == [self.stars, shape[1]] && shape[2] == slopes[0] {
                format!("(frames, sensors, slopes): {expected:?}; exchange the first two axes")
            } else {
                format!("(frames, sensors, slopes): (frames, {}, {})", self.stars, slopes[0])
            };
            return Err(self.refuse("shape", &format!("{shape:?}"), expected));
        }
        let cube = array.view().into_dimensionality::<Ix3>();
        let cube = cube.map_err(|_| self.refuse("shape", &format!("{shape:?}"), String::new()))?;
        let sensors: Vec<_> = cube.axis_iter(Axis(1)).collect();
        concatenate(Axis(1), &sensors)
            .map_err(|error| self.refuse("shape", &error.to_string(), String::new()))
    }

    // Join an array for each sensor
    /// Joins an array for each sensor.
    fn read_sensors(&self, order: &SlopeOrder, unit: Unit) -> Result<Array2<f64>, Error> {
        let (slopes, frames) = (slopes_of_sensors(order, self.stars), self.sensors[0].shape[0]);
        // Refuse arrays of another length
        for (star, (sensor, n)) in self.sensors.iter().zip(&slopes).enumerate() {
            let expected = [frames, *n];
            if sensor.shape != expected {
                let what = format!("shape of {}", sensor.choice());
                let value = format!("{:?}", sensor.shape);
                let expected =
                    format!("{expected:?}, the slopes of guide_star[{star}] in all frames");
                return Err(self.refuse(&what, &value, expected));
            }
        }
        let read = |sensor: &ListedArray| {
            let path = PathBuf::from(format!("{}[{}]", self.path.display(), sensor.choice()));
            self.rows(read_array(&path, [2, 2], unit)?)
        };
        let all = self.sensors.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        let views: Vec<_> = all.iter().map(|sensor| sensor.view()).collect();
        concatenate(Axis(1), &views)
            .map_err(|error| self.refuse("shape", &error.to_string(), String::new()))
    }
}

// Count the slopes of sensors
/// The number of slopes of each sensor.
fn slopes_of_sensors(order: &SlopeOrder, stars: usize) -> Vec<usize> {
    (0..stars).map(|star| 2 * order.lenslets(star).len()).collect()
}

// Tests of slopes in files
#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Precision;
    use crate::{data::DataSet, files::Format};
    use ndarray::{Array3, s};
    use std::fs::File;

    type Checked = Result<(), Box<dyn std::error::Error>>;

    const SYSTEM: &str = "
        [atmosphere]\nr0 = 0.15\nouter_scale = 25.0\nlayers = [{ altitude = 0.0, fraction = 1.0 }]
        [telescope]\ndiameter = 1.5
        [lenslet_array]\nlenslets = 3\nvalid_threshold = 0.1
        [[guide_star]]\nzenith = 0.0\nnoise = 1e-14\n[[guide_star]]\nzenith = 30.0\nnoise = 1e-14\n";

    /// Writes arrays of these names into a file.
    fn write(path: &Path, format: Format, arrays: &[(&str, ArrayD<f64>)]) {
        let mut all = DataSet::default();
        for (name, array) in arrays {
            all.add(name, array.view());
        }
        all.write(File::create(path).unwrap(), format, Precision::F64).unwrap();
    }

    // Cubes and arrays are joined
    #[test]
    fn cubes_and_arrays_of_sensors_are_joined() -> Checked {
        let (system, folder) = (System::from_toml(SYSTEM, "s.toml")?, tempfile::tempdir()?);
        let order = SlopeOrder::new(&system.valid_lenslets());
        let n = order.len() / 2;
        let slopes = Array2::from_shape_fn((4, 2 * n), |(t, k)| 1e-7 * (100 * t + k) as f64);
        let cube = Array3::from_shape_fn((4, 2, n), |(t, q, k)| slopes[[t, q * n + k]]);
        let parts = [0, 1].map(|q| slopes.slice(s![.., q * n..(q + 1) * n]).to_owned().into_dyn());
        for (name, format) in [("a.fits", Format::Fits), ("a.npz", Format::Npz)] {
            let path = folder.path().join(name);
            let read = |format: &SlopeFormat| ReadSlopes::from_file(&path, &system, format);
            write(&path, format, &[("cube", cube.clone().into_dyn())]);
            let found = read(&SlopeFormat::default())?.slopes;
            assert!(found.is_standard_layout() && found == slopes);
            // The second sensor stands first, and is named by its number.
            let [one, two] = parts.clone();
            write(&path, format, &[("wfs10", two.clone()), ("wfs2", one.clone())]);
            assert_eq!(read(&SlopeFormat::default())?.slopes, slopes);
            write(&path, format, &[("b", one.clone()), ("a", two)]);
            assert_eq!(read(&SlopeFormat::default())?.slopes, slopes);
            // Wrong shapes are named
            let refused = |arrays: &[(&str, ArrayD<f64>)]| {
                write(&path, format, arrays);
                read(&SlopeFormat::default()).unwrap_err().to_string()
            };
            let turned = cube.clone().permuted_axes([1, 0, 2]).as_standard_layout().into_owned();
            let said = refused(&[("cube", turned.into_dyn())]);
            assert!(
                said.contains("shape = [2, 4, ") && said.contains("exchange the first two"),
                "{said}"
            );
            let said = refused(&[("cube", cube.slice(s![.., .., 1..]).to_owned().into_dyn())]);
            assert!(said.contains("expected (frames, sensors, slopes): (frames, 2, "), "{said}");
            let short = parts[1].slice_axis(Axis(0), (0..3).into()).to_owned();
            let said = refused(&[("a", one.clone()), ("b", short)]);
            assert!(said.contains("guide_star[1] in all frames"), "{said}");
            let said = refused(&[("a", one.clone()), ("b", one.clone()), ("c", one)]);
            assert!(said.contains("for each of 2 guide stars"), "{said}");
        }
        Ok(())
    }

    // Units and orders are converted
    #[test]
    fn units_and_orders_are_converted() -> Checked {
        let (system, folder) = (System::from_toml(SYSTEM, "s.toml")?, tempfile::tempdir()?);
        let order = SlopeOrder::new(&system.valid_lenslets());
        let slopes = Array2::from_shape_fn((2, order.len()), |(t, k)| 1e-7 * (100 * t + k) as f64);
        let path = folder.path().join("slopes.fits");
        let read = |stored: &Array2<f64>, bunit: &str, unit: Option<SlopeUnit>, arrangement| {
            let mut arrays = DataSet::default();
            arrays.add("slopes", stored.view()).unit(bunit);
            arrays.write(File::create(&path).unwrap(), Format::Fits, Precision::F64).unwrap();
            ReadSlopes::from_file(&path, &system, &SlopeFormat { unit, arrangement })
        };
        let pixel = SlopeUnit::pixel(0.3)?;
        for (of_one, bunit, unit) in [
            (0.3 * ARCSEC, "", Some(pixel)),
            (0.3 * ARCSEC, "pixels", Some(pixel)),
            (ARCSEC, "", Some(SlopeUnit::Angle(ARCSEC))),
            (ARCSEC, "arcsec", None),
            (2.0, "", Some(SlopeUnit::Length(1.0))),
        ] {
            let found = read(&(&slopes / of_one), bunit, unit, None)?;
            assert!(found.has_unit);
            assert!((found.slopes - &slopes).iter().all(|gap| gap.abs() < 1e-18), "{bunit}");
        }
        assert!(!read(&slopes, "", None, None)?.has_unit);
        let said = read(&slopes, "pixel", None, None).unwrap_err().to_string();
        assert!(said.contains("BUNIT = 'pixel'") && said.contains("--pixel-scale"), "{said}");
        let said = read(&slopes, "arcsec", Some(pixel), None).unwrap_err().to_string();
        assert!(said.contains("BUNIT = 'arcsec'"), "{said}");
        assert!(SlopeUnit::pixel(f64::NAN).is_err() && SlopeUnit::pixel(0.0).is_err());
        // Lenslet [0, 1] is the second of nine, and the fourth column by column.
        for (arrangement, [x, y]) in [
            (SlopeArrangement::Rows, [1, 10]),
            (SlopeArrangement::Columns, [3, 12]),
            (SlopeArrangement::Interleaved, [2, 3]),
            (SlopeArrangement::InterleavedColumns, [6, 7]),
        ] {
            let found = read(&slopes, "", None, Some(arrangement))?.slopes;
            let of = |axis| found[[1, order.index(1, axis, 1)]];
            let first = order.index(1, 0, 0);
            assert_eq!([of(0), of(1)], [slopes[[1, first + x]], slopes[[1, first + y]]]);
        }
        Ok(())
    }
}
