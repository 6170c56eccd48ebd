// Tangled from book/src/telemetry.md: edit there, or here and run cargo tangle stitch.
//! Systems in telemetry: what tables of the format AOT say of a system, and the other way.

// Imports of systems in telemetry
use crate::error::{Error, Invalid};
use crate::files::{Unit, read_array2};
use crate::formats::aot::{RowOf, Telemetry, TelemetryFile, is_telemetry};
use crate::model::atmosphere::Atmosphere;
use crate::model::lenslet_array::{LensletArray, Pupil, SlopeOrder, Validity};
use crate::model::noise::{GuideStar, Noise};
use crate::model::removed_modes::{Focus, TipTilt};
use crate::model::source::Source;
use crate::model::system::System;
use crate::units::{ARCSEC, DEGREE};
use ndarray::{Array1, Array2, Array3, ArrayView2, ArrayView3, Axis, ShapeBuilder, arr2};
use std::path::Path;

// Begin telemetry with a system
// Height of sodium and pixels of images
/// Above this height, m, a laser star is one of sodium.
const SODIUM: f64 = 60e3;

/// Pixels across the image of the pupil.
const PIXELS: usize = 256;

impl<'a> Telemetry<'a> {
    /// Telemetry of a system: its air, its telescope, its stars and targets, and its sensors with their valid lenslets.
    pub fn of(system: &System) -> Self {
        let alone = system.guide_stars().len() == 1 && system.targets().len() < 2;
        let mut telemetry = Self::empty(if alone { "SCAO" } else { "MOAO" });
        telemetry.add_air(system.atmosphere());
        telemetry.add_telescope(system.pupil());
        for (q, star) in system.guide_stars().iter().enumerate() {
            telemetry.add_source(&star_name(q), &star.sensor.source, "Natural Guide Star");
        }
        for (t, target) in system.targets().iter().enumerate() {
            telemetry.add_source(&format!("TARGET {t}"), target, "Science Star");
        }
        for (q, star) in system.guide_stars().iter().enumerate() {
            // Add a sensor with its lenslets
            telemetry.add_sensor(
                q,
                star,
                &star.sensor.array.valid(system.pupil(), system.validity()),
            );
        }
        telemetry
    }
}

// Names of stars and sensors
/// The name of the source of a guide star.
fn star_name(q: usize) -> String {
    format!("STAR {q}")
}

/// The name of the sensor of a guide star.
pub(crate) fn sensor_name(q: usize) -> String {
    format!("WFS {q}")
}

// Add the air to telemetry
/// The length, m, that stands for an infinite one.
const INFINITE: f64 = 1e15;

/// The other one of a direction from x to y and a bearing, degrees.
fn bearing(degrees: f64) -> f64 {
    (90.0 - degrees).rem_euclid(360.0)
}

// Images of layers and their units
/// The images of layers: their column, their name and their unit.
const LAYERS: [(&str, &str, &str); 5] = [
    ("LAYERS_REL_WEIGHT", "LAYERS WEIGHT", ""),
    ("LAYERS_HEIGHT", "LAYERS HEIGHT", "m"),
    ("LAYERS_LO", "LAYERS OUTER SCALE", "m"),
    ("LAYERS_WIND_SPEED", "LAYERS WIND SPEED", "m s^-1"),
    ("LAYERS_WIND_DIRECTION", "LAYERS WIND DIRECTION", "deg"),
];

impl Telemetry<'_> {
    fn add_air(&mut self, air: &Atmosphere) {
        let row = self.row("AOT_ATMOSPHERIC_PARAMETERS", "AIR");
        row.number("WAVELENGTH", air.wavelength()).list("R0", vec![air.fried_parameter()]);
        for (column, name, _) in LAYERS {
            row.image(column, name);
        }
        // Add the values of layers
        for (k, (_, name, unit)) in LAYERS.into_iter().enumerate() {
            let layers = air.layers().iter().map(|layer| match k {
                0 => layer.fraction,
                1 => layer.altitude,
                2 => layer.outer_scale.min(INFINITE),
                3 => layer.wind_speed,
                _ => bearing(layer.wind_direction / DEGREE),
            });
            let values = Array1::from_iter(layers).insert_axis(Axis(0));
            self.images.add(name, values).unit(unit).dimensions("instant, layer");
        }
    }

    // Add the telescope to telemetry
    fn add_telescope(&mut self, pupil: Option<&Pupil>) {
        let row = self.row("AOT_TELESCOPES", "TELESCOPE");
        row.text("TYPE", "Main Telescope").text("SEGMENT_TYPE", "Monolithic");
        let Some(pupil) = pupil else { return };
        let (diameter, name) = (pupil.diameter(), "PUPIL");
        row.number("ENCLOSING_D", diameter).number("INSCRIBED_D", diameter);
        row.number("OBSTRUCTION_D", diameter * pupil.obstruction()).image("PUPIL_MASK", name);
        let at = |k: usize| ((k as f64 + 0.5) / PIXELS as f64 - 0.5) * diameter;
        let lit = Array2::from_shape_fn((PIXELS, PIXELS), |(j, i)| pupil.contains([at(i), at(j)]));
        self.images
            .add(name, lit)
            .dimensions("y, x")
            .long_name("the square around the enclosing circle");
    }
}

// Add sources to telemetry
impl Telemetry<'_> {
    /// Adds a source, of this kind if it is at infinity.
    fn add_source(&mut self, name: &str, source: &Source, kind: &str) {
        let height = source.height();
        let kind = match height {
            f64::INFINITY => kind,
            _ if height > SODIUM => "Sodium Laser Guide Star",
            _ => "Rayleigh Laser Guide Star",
        };
        let [x, y] = source.direction().map(|along| along / DEGREE);
        let row = self.row("AOT_SOURCES", name);
        row.text("TYPE", kind).number("AZIMUTH_OFFSET", x).number("ELEVATION_OFFSET", y);
        if height > SODIUM && height.is_finite() {
            self.row("AOT_SOURCES_SODIUM_LGS", name).number("HEIGHT", height);
        } else if height.is_finite() {
            self.row("AOT_SOURCES_RAYLEIGH_LGS", name).number("DISTANCE", height);
        }
    }
}

// Add sensors to telemetry
impl Telemetry<'_> {
    fn add_sensor(&mut self, q: usize, star: &GuideStar, valid: &Array2<bool>) {
        let (name, mask) = (sensor_name(q), format!("WFS {q} MASK"));
        // Number the valid lenslets
        let mut count = 0;
        let numbers = valid.map(|valid| {
            count += i64::from(*valid);
            if *valid { count - 1 } else { -1 }
        });
        let row = self.row("AOT_WAVEFRONT_SENSORS", &name);
        row.text("TYPE", "Shack-Hartmann")
            .row("SOURCE_UID", &star_name(q))
            .number("DIMENSIONS", 2.0);
        row.number("N_VALID_SUBAPERTURES", count as f64).image("SUBAPERTURE_MASK", &mask);
        let sensor = &star.sensor;
        // Add the transformation of a sensor
        let turned = format!("WFS {q} TRANSFORMATION");
        if !sensor.is_at_rest() {
            row.image("TRANSFORMATION_MATRIX", &turned);
            let (m, (sin, cos)) = (sensor.magnification, sensor.rotation.sin_cos());
            let [x, y] = sensor.shift;
            let matrix = arr2(&[[m * cos, -m * sin, x], [m * sin, m * cos, y], [0.0, 0.0, 1.0]]);
            self.images
                .add(&turned, matrix.insert_axis(Axis(2)))
                .dimensions("row, column, instant");
        }
        self.row("AOT_WAVEFRONT_SENSORS_SHACK_HARTMANN", &name);
        let entry = self.images.add(&mask, numbers).dimensions("y, x");
        entry.long_name("number of each valid lenslet, and -1 elsewhere");
        entry.attribute("PITCH", sensor.array.pitch());
        // Cards that are ours alone
        let even = (0..count as usize)
            .all(|k| star.noise.block(k) == [star.noise.mean(), 0.0, star.noise.mean()]);
        if even {
            entry.attribute("NOISE", star.noise.mean());
        } else {
            entry.attribute("NOISE", noise_name(q));
        }
        if let TipTilt::Unknown { variance } = star.tip_tilt {
            entry.attribute("TTVAR", variance);
        }
        entry.attribute("TIPTILT", star.tip_tilt.name()).attribute("FOCUS", star.focus.name());
        if !even {
            self.add_noise(q, &star.noise, count as usize);
        }
    }

    // Add noise to telemetry
    fn add_noise(&mut self, q: usize, noise: &Noise, count: usize) {
        let blocks = Array3::from_shape_fn((count, 2, 2), |(k, a, b)| noise.block(k)[a + b]);
        let about = "covariance of the noise of both slopes of a lenslet";
        self.images
            .add(&noise_name(q), blocks)
            .unit("rad2")
            .dimensions("lenslet, slope, slope")
            .long_name(about);
    }
}

// Add slopes to telemetry
// Slopes of one star in a matrix
/// The name of the image of a sensor's noise.
fn noise_name(q: usize) -> String {
    format!("WFS {q} NOISE")
}

/// A part of a matrix with rows of slopes: from some column on, those of some lenslets along x, then along y; not copied.
pub(crate) fn slopes_of_star<'a>(
    matrix: &ArrayView2<'a, f64>,
    start: usize,
    lenslets: usize,
) -> ArrayView3<'a, f64> {
    let (rows, n) = matrix.dim();
    let shape = (rows, 2, lenslets).strides((n, lenslets, 1));
    let part = matrix.to_slice().and_then(|all| ArrayView3::from_shape(shape, &all[start..]).ok());
    part.unwrap_or_else(|| unreachable!("whole rows of slopes"))
}

impl<'a> Telemetry<'a> {
    /// Adds slopes of a system, (frames, n), rad, to telemetry [of it](Self::of), without copying them.
    ///
    /// # Errors
    /// `Invalid` where they are not those of all valid lenslets, or not stored row by row.
    pub fn add_slopes(
        &mut self,
        system: &System,
        slopes: ArrayView2<'a, f64>,
    ) -> Result<(), Invalid> {
        let order = SlopeOrder::new(&system.valid_lenslets());
        if slopes.ncols() != order.len() || !slopes.is_standard_layout() {
            let expected = format!("(frames, {}), stored row by row", order.len());
            return Err(Invalid::new("slopes", format!("{:?}", slopes.dim()), expected));
        }
        for q in 0..system.guide_stars().len() {
            let name = format!("WFS {q} SLOPES");
            let part = slopes_of_star(&slopes, order.index(q, 0, 0), order.lenslets(q).len());
            self.images.add(&name, part).unit("rad").dimensions("frame, component, lenslet");
            self.change("AOT_WAVEFRONT_SENSORS", q).image("MEASUREMENTS", &name);
        }
        Ok(())
    }
}

// System that telemetry tells
// System file from telemetry
/// The text of a system file that was made of other files, and what there is to say of it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TelemetrySystem {
    /// The text.
    pub text: String,
    /// What was assumed, and what was not used.
    pub notes: Vec<String>,
}

impl TelemetrySystem {
    /// The system that telemetry tells: its air, its telescope, its guide stars and its targets.
    ///
    /// # Errors
    /// `Invalid`, with file, table and column, where something is missing without which there is no system, or makes no sense.
    pub fn of(file: &TelemetryFile) -> Result<Self, Error> {
        let mut notes = Vec::new();
        let telescope = main_telescope(file)?;
        let sky = Sky::of(&telescope)?;
        let mut text = air(file, &sky, &mut notes)?;
        text += &sensors(file, &telescope, &sky, &mut notes)?;
        // Add targets of telemetry
        for star in file.table("AOT_SOURCES") {
            if star.text("TYPE")? == Some("Science Star") {
                let [x, y] = sky.direction(file, &star)?.unwrap_or_default();
                text += &format!("\n[[target]]  # {}\n{}", remark(star.uid()), towards([x, y]));
            }
        }
        // Note tables that are not used
        for table in
            ["AOT_ABERRATIONS", "AOT_DETECTORS", "AOT_SCORING_CAMERAS", "AOT_LOOPS_OFFLOAD"]
        {
            if file.rows(table) > 0 {
                notes.push(format!("not used: {table}, with rows {}", file.rows(table)));
            }
        }
        Ok(Self { text, notes })
    }

    // Put notes before the text
    /// The text with the notes before it, as remarks.
    pub fn with_notes(&self, file: &Path) -> String {
        let head = format!(
            "# Read from {} by lenslet {}.\n",
            remark(&file.display().to_string()),
            env!("CARGO_PKG_VERSION")
        );
        let notes = self.notes.iter().map(|note| format!("# {}\n", remark(note)));
        head + &notes.collect::<String>() + &self.text
    }
}

// Keys and remarks of a text
/// A text that can stand behind a `#`.
fn remark(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// An angle, in arcseconds or degrees, without what rounding has left behind its tenth digit.
fn tidy(angle: f64) -> f64 {
    (angle * 1e10).round() / 1e10
}

/// The keys of a direction \[rad\].
fn towards([x, y]: [f64; 2]) -> String {
    let (zenith, azimuth) = (tidy(f64::hypot(x, y) / ARCSEC), tidy(f64::atan2(y, x) / DEGREE));
    format!("zenith = {zenith:?}\nazimuth = {azimuth:?}\n")
}

// Read parts of telemetry
// Point a telescope at its elevation
/// Where a telescope looks.
struct Sky {
    /// Air mass, Eq. [airmass](https://lenslet.github.io/lenslet/telemetry-to-system.html#eq-airmass).
    airmass: f64,
    /// What an offset in azimuth is multiplied by.
    of_azimuth: f64,
}

impl Sky {
    fn of(telescope: &RowOf) -> Result<Self, Error> {
        let Some(elevation) = telescope.number("ELEVATION")? else {
            return Ok(Self { airmass: 1.0, of_azimuth: 1.0 });
        };
        // Refuse a low elevation
        if !(5.0..=90.0).contains(&elevation) {
            return Err(telescope.refuse(
                "ELEVATION",
                elevation,
                "an elevation from 5 to 90 degrees, or none",
            ));
        }
        let (sin, cos) = (elevation * DEGREE).sin_cos();
        Ok(Self { airmass: 1.0 / sin, of_azimuth: cos })
    }
}

// Main telescope of telemetry
/// The row of the telescope that is no launcher of lasers.
fn main_telescope(file: &TelemetryFile) -> Result<RowOf<'_>, Error> {
    for row in file.table("AOT_TELESCOPES") {
        if row.text("TYPE")? == Some("Main Telescope") {
            return Ok(row);
        }
    }
    Err(file.refuse("AOT_TELESCOPES", "no main telescope", "a row of the TYPE Main Telescope"))
}

// Read the air of telemetry
/// The table of the atmosphere.
fn air(file: &TelemetryFile, sky: &Sky, notes: &mut Vec<String>) -> Result<String, Error> {
    let Some(row) = file.table("AOT_ATMOSPHERIC_PARAMETERS").next() else {
        return Err(file.refuse(
            "AOT_ATMOSPHERIC_PARAMETERS",
            "no row",
            "at least one row, with R0 or SEEING",
        ));
    };
    let mut assume = |what: &str| notes.push(format!("not told, and assumed: {what}"));
    let wavelength = row.number("WAVELENGTH")?.unwrap_or_else(|| {
        assume("atmosphere.wavelength");
        500e-9
    });
    let r0 = fried_parameter(&row, wavelength)? * sky.airmass.powf(-0.6);
    let mut text =
        format!("\n[atmosphere]\nr0 = {r0:?}\nwavelength = {wavelength:?}\nlayers = [\n");
    // Heights and weights of layers
    let heights = instants(&row, "LAYERS_HEIGHT", Some(Unit::Metre))?;
    let weights = instants(&row, "LAYERS_REL_WEIGHT", None)?;
    let (heights, weights) = match (heights, weights) {
        (Some(heights), Some(weights)) => (mean(&heights), mean(&weights)),
        _ => {
            assume("all turbulence is at the ground");
            (vec![0.0], vec![1.0])
        }
    };
    let sum: f64 = weights.iter().sum();
    if (sum - 1.0).abs() > 1e-3 || weights.len() != heights.len() {
        let value = format!("{} weights with the sum {sum:?}", weights.len());
        return Err(row.refuse(
            "LAYERS_REL_WEIGHT",
            value,
            &format!("{} weights that sum to 1", heights.len()),
        ));
    }
    // Outer scales and winds of layers
    let lengths = |column: &str, values: &Array2<f64>| match values.ncols() == heights.len() {
        true => Ok(()),
        false => Err(row.refuse(
            column,
            values.ncols(),
            &format!("as many layers as heights, {}", heights.len()),
        )),
    };
    let named = if row.text("LAYERS_LO")?.is_some() { "LAYERS_LO" } else { "LAYERS_L0" };
    let scales = match instants(&row, named, Some(Unit::Metre))? {
        Some(scales) => {
            lengths(named, &scales)?;
            mean(&scales)
                .into_iter()
                .map(|l0| if l0 >= INFINITE { f64::INFINITY } else { l0 })
                .collect()
        }
        None => {
            assume("an outer scale of 25 m");
            vec![25.0; heights.len()]
        }
    };
    let speeds = instants(&row, "LAYERS_WIND_SPEED", None)?;
    let directions = instants(&row, "LAYERS_WIND_DIRECTION", None)?;
    let winds = match (speeds, directions) {
        (Some(speeds), Some(directions)) if speeds.dim() == directions.dim() => {
            lengths("LAYERS_WIND_SPEED", &speeds)?;
            mean_winds(&speeds, &directions)
        }
        (Some(speeds), Some(directions)) => {
            return Err(row.refuse(
                "LAYERS_WIND_DIRECTION",
                format!("{:?}", directions.dim()),
                &format!("as many as speeds, {:?}", speeds.dim()),
            ));
        }
        _ => {
            assume("no wind");
            vec![[0.0; 2]; heights.len()]
        }
    };
    // Write the layers of telemetry
    for (l, height) in heights.iter().enumerate() {
        let (altitude, fraction, scale, [speed, direction]) =
            (height * sky.airmass, weights[l] / sum, scales[l], winds[l]);
        text += &format!(
            "    {{ altitude = {altitude:?}, fraction = {fraction:?}, outer_scale = {scale:?}, wind_speed = {speed:?}, \
             wind_direction = {direction:?} }},\n"
        );
    }
    Ok(text + "]\n")
}

// Means over instants
/// r0 over all instants \[m\], from R0 or else from the seeing.
fn fried_parameter(row: &RowOf, wavelength: f64) -> Result<f64, Error> {
    let given = row.list("R0")?;
    let by_seeing = || -> Result<Vec<f64>, Error> {
        let seeing = row.list("SEEING")?;
        Ok(seeing.iter().map(|width| 0.975_863 * wavelength / (width * ARCSEC)).collect())
    };
    let all = if given.is_empty() { by_seeing()? } else { given };
    if all.is_empty() || !all.iter().all(|r0| *r0 > 0.0 && r0.is_finite()) {
        return Err(row.refuse(
            "R0",
            format!("{all:?}"),
            "at least one length in metres greater than 0, or SEEING in arcsec",
        ));
    }
    let strength: f64 = all.iter().map(|r0| r0.powf(-5.0 / 3.0)).sum();
    Ok((strength / all.len() as f64).powf(-0.6))
}

// Values of layers over instants
/// What a column names, (instants, layers).
fn instants(row: &RowOf, column: &str, unit: Option<Unit>) -> Result<Option<Array2<f64>>, Error> {
    let Some(values) = row.array(column, [1, 2], unit)? else { return Ok(None) };
    let values = if values.ndim() == 1 { values.insert_axis(Axis(0)) } else { values };
    Ok(values.into_dimensionality().ok())
}

fn mean(values: &Array2<f64>) -> Vec<f64> {
    values.columns().into_iter().map(|layer| layer.sum() / layer.len() as f64).collect()
}

// Mean velocity of each layer
/// Speed \[m/s\] and direction \[degrees, from x to y\] of the mean velocity of each layer.
fn mean_winds(speeds: &Array2<f64>, bearings: &Array2<f64>) -> Vec<[f64; 2]> {
    let of_layer = |l: usize| {
        let all = speeds.column(l).into_iter().zip(bearings.column(l));
        let velocity = all.fold([0.0, 0.0], |[x, y], (speed, towards)| {
            let (sin, cos) = (bearing(*towards) * DEGREE).sin_cos();
            [x + speed * cos, y + speed * sin]
        });
        let [x, y] = velocity.map(|part| part / speeds.nrows() as f64);
        if speeds.nrows() == 1 {
            return [speeds[[0, l]], tidy(bearing(bearings[[0, l]]))];
        }
        [f64::hypot(x, y), tidy(f64::atan2(y, x) / DEGREE)]
    };
    (0..speeds.ncols()).map(of_layer).collect()
}

// Read directions of sources
impl Sky {
    /// Direction of a source \[rad\], if the file has it.
    fn direction(&self, file: &TelemetryFile, star: &RowOf) -> Result<Option<[f64; 2]>, Error> {
        let offsets = [star.number("AZIMUTH_OFFSET")?, star.number("ELEVATION_OFFSET")?];
        let direction = match (offsets, equatorial(star)?) {
            ([None, None], None) => return Ok(None),
            ([None, None], Some([ra, dec])) => {
                let Some([ra0, dec0]) = centre(file)? else { return Ok(None) };
                let along = (ra - ra0 + 180.0).rem_euclid(360.0) - 180.0;
                [along * (dec0 * DEGREE).cos(), dec - dec0]
            }
            ([x, y], _) => [self.of_azimuth * x.unwrap_or(0.0), y.unwrap_or(0.0)],
        };
        let direction = direction.map(|degrees| degrees * DEGREE);
        // Refuse a source far from the axis
        match f64::hypot(direction[0], direction[1]) {
            off if off <= 0.1 => Ok(Some(direction)),
            off => Err(star.refuse(
                "AZIMUTH_OFFSET",
                format!("{off:?} rad from the axis"),
                "at most 0.1 rad",
            )),
        }
    }
}

// Coordinates of stars and targets
/// Right ascension and declination of a source \[degrees\], if both are given.
fn equatorial(star: &RowOf) -> Result<Option<[f64; 2]>, Error> {
    let both = star.number("RIGHT_ASCENSION")?.zip(star.number("DECLINATION")?);
    Ok(both.map(|(ra, dec)| [ra, dec]))
}

/// Right ascension and declination of the first target \[degrees\], if both are given.
fn centre(file: &TelemetryFile) -> Result<Option<[f64; 2]>, Error> {
    for star in file.table("AOT_SOURCES") {
        if star.text("TYPE")? == Some("Science Star") {
            return equatorial(&star);
        }
    }
    Ok(None)
}

// Read sensors of telemetry
/// The tables of the telescope, the lenslet array and the guide stars.
fn sensors(
    file: &TelemetryFile,
    telescope: &RowOf,
    sky: &Sky,
    notes: &mut Vec<String>,
) -> Result<String, Error> {
    let all: Vec<RowOf> = file.table("AOT_WAVEFRONT_SENSORS").collect();
    // Require at least one sensor
    if all.is_empty() {
        return Err(file.refuse("AOT_WAVEFRONT_SENSORS", "no row", "at least one sensor"));
    }
    let masks = all.iter().map(mask_of).collect::<Result<Vec<_>, Error>>()?;
    let pupil = pupil(telescope)?;
    // Sides and pitches of masks
    let pitches =
        all.iter().zip(&masks).map(|(row, mask)| pitch(row, mask, pupil.as_ref(), telescope));
    let arrays = pitches
        .zip(&masks)
        .map(|(pitch, mask)| Ok((mask.nrows(), pitch?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let mut text = String::new();
    // Write telescope and lenslet array
    if let Some(pupil) = &pupil {
        let (diameter, obstruction) = (pupil.diameter(), pupil.obstruction());
        text += &format!("\n[telescope]\ndiameter = {diameter:?}\nobstruction = {obstruction:?}\n");
    }
    let (lenslets, pitch) = arrays[0];
    text += &format!("\n[lenslet_array]\nlenslets = {lenslets}\npitch = {pitch:?}\n");
    text += &rule(&all, &masks, &arrays, pupil.as_ref())?;
    // Write each guide star
    for (k, row) in all.iter().enumerate() {
        text += &format!("\n[[guide_star]]  # {}\n", remark(row.uid()));
        text += &star(file, row, sky, all.len() == 1, notes)?;
        if arrays[k] != arrays[0] {
            text += &format!("lenslets = {}\npitch = {:?}\n", arrays[k].0, arrays[k].1);
        }
        text += &turned(row)?;
        text += &noise(file, row, notes)?;
    }
    Ok(text)
}

// Read a mask and a pitch
/// The mask of a sensor: the number of each valid lenslet, and nothing elsewhere.
fn mask_of(row: &RowOf) -> Result<Array2<Option<usize>>, Error> {
    // Read the mask of a sensor
    match row.text("TYPE")? {
        Some("Shack-Hartmann") => {}
        other => {
            return Err(row.refuse(
                "TYPE",
                other.unwrap_or("nothing"),
                "Shack-Hartmann, whose slopes are known here",
            ));
        }
    }
    let Some(mask) = row.array("SUBAPERTURE_MASK", [2; 2], None)? else {
        return Err(row.refuse(
            "SUBAPERTURE_MASK",
            "nothing",
            "an image that numbers the valid lenslets",
        ));
    };
    let mask = mask.into_dimensionality().unwrap_or_else(|_| Array2::zeros((0, 1)));
    let valid = mask.iter().filter(|number| **number >= 0.0).count();
    let mut used = vec![false; valid];
    for number in mask.iter().filter(|number| **number >= 0.0) {
        let place = used.get_mut(*number as usize).filter(|used| !**used && number.fract() == 0.0);
        let expected = format!("each number from 0 to {} once, and -1", valid.saturating_sub(1));
        *place.ok_or_else(|| row.refuse("SUBAPERTURE_MASK", number, &expected))? = true;
    }
    // Refuse masks without lenslets
    let (rows, columns) = mask.dim();
    if rows != columns || valid == 0 {
        let expected = "a square image in which some lenslet is valid";
        return Err(row.refuse(
            "SUBAPERTURE_MASK",
            format!("{rows} × {columns}, {valid} valid"),
            expected,
        ));
    }
    match row.number("N_VALID_SUBAPERTURES")? {
        Some(count) if count != valid as f64 => {
            Err(row.refuse("N_VALID_SUBAPERTURES", count, &format!("{valid}, as in its mask")))
        }
        _ => Ok(mask.map(|number| (*number >= 0.0).then_some(*number as usize))),
    }
}

// Pitch and pupil of telemetry
/// The pitch of a sensor's lenslets \[m\]: that of its card, or else the diameter over their number.
fn pitch(
    row: &RowOf,
    mask: &Array2<Option<usize>>,
    pupil: Option<&Pupil>,
    telescope: &RowOf,
) -> Result<f64, Error> {
    if let Some(text) = row.card("SUBAPERTURE_MASK", "PITCH")? {
        let pitch = text.parse().ok().filter(|pitch: &f64| *pitch > 0.0 && pitch.is_finite());
        return pitch.ok_or_else(|| {
            row.refuse("SUBAPERTURE_MASK", format!("PITCH = {text}"), "a length in metres")
        });
    }
    let pupil = pupil
        .ok_or_else(|| telescope.refuse("ENCLOSING_D", "nothing", "the diameter in metres"))?;
    Ok(pupil.diameter() / mask.nrows() as f64)
}

// Pupil of a telescope in telemetry
/// The pupil, if the file has its diameter.
fn pupil(telescope: &RowOf) -> Result<Option<Pupil>, Error> {
    let diameter = telescope.number("ENCLOSING_D")?.or(telescope.number("INSCRIBED_D")?);
    let Some(diameter) = diameter else { return Ok(None) };
    let obstruction = telescope.number("OBSTRUCTION_D")?.unwrap_or(0.0) / diameter;
    let pupil = Pupil::new(diameter, obstruction);
    pupil.map(Some).map_err(|bad| {
        let column = if bad.quantity == "diameter" { "ENCLOSING_D" } else { "OBSTRUCTION_D" };
        telescope.refuse(column, bad.value, &bad.expected)
    })
}

// Read the source of a sensor
/// The keys of the direction and the height of a guide star.
fn star(
    file: &TelemetryFile,
    row: &RowOf,
    sky: &Sky,
    alone: bool,
    notes: &mut Vec<String>,
) -> Result<String, Error> {
    let Some(source) = row.row("SOURCE_UID", "AOT_SOURCES")? else {
        return Err(row.refuse("SOURCE_UID", "nothing", "a ROWREF<…> to a row of AOT_SOURCES"));
    };
    let uid = source.uid();
    let direction = match sky.direction(file, &source)? {
        Some(direction) => direction,
        None if alone => {
            notes.push(format!("not told, and assumed: {uid} is on the axis"));
            [0.0; 2]
        }
        None => {
            let expected =
                "an offset, or right ascension and declination beside those of a Science Star";
            return Err(source.refuse("ELEVATION_OFFSET", "nothing", expected));
        }
    };
    let height = match source.text("TYPE")? {
        Some("Natural Guide Star" | "Science Star") => f64::INFINITY,
        Some("Sodium Laser Guide Star") => {
            let more = source.more("AOT_SOURCES_SODIUM_LGS");
            let height = more.map(|row| row.number("HEIGHT")).transpose()?.flatten();
            sky.airmass
                * height.unwrap_or_else(|| {
                    notes.push(format!("not told, and assumed: {uid} is 90 km high"));
                    90e3
                })
        }
        Some("Rayleigh Laser Guide Star") => {
            let more = source.more("AOT_SOURCES_RAYLEIGH_LGS");
            let distance = more.map(|row| row.number("DISTANCE")).transpose()?.flatten();
            distance.ok_or_else(|| {
                source.refuse(
                    "DISTANCE",
                    "nothing",
                    "a distance in metres, in AOT_SOURCES_RAYLEIGH_LGS",
                )
            })?
        }
        other => return Err(source.refuse("TYPE", other.unwrap_or("nothing"), "a guide star")),
    };
    Ok(format!("{}height = {height:?}\n", towards(direction)))
}

// Read how a sensor is turned
/// The keys of rotation, shift and magnification, where there is a matrix.
fn turned(row: &RowOf) -> Result<String, Error> {
    let column = "TRANSFORMATION_MATRIX";
    let Some(matrix) = row.array(column, [2, 3], None)? else { return Ok(String::new()) };
    let matrix = if matrix.ndim() == 3 { matrix.index_axis_move(Axis(2), 0) } else { matrix };
    let expected =
        "a 3 × 3 matrix that turns, shifts and magnifies, and neither shears nor reflects";
    if matrix.shape() != [3, 3] {
        return Err(row.refuse(column, format!("{:?}", matrix.shape()), expected));
    }
    let at = |j: usize, i: usize| matrix[[j, i]];
    let magnification = f64::hypot(at(0, 0), at(1, 0));
    let gaps = [at(0, 0) - at(1, 1), at(0, 1) + at(1, 0), at(2, 0), at(2, 1), at(2, 2) - 1.0];
    if gaps.iter().any(|gap| gap.abs() > 1e-6 * magnification) || magnification == 0.0 {
        return Err(row.refuse(column, matrix.to_string().replace('\n', ""), expected));
    }
    let rotation = tidy(f64::atan2(at(1, 0), at(0, 0)) / DEGREE);
    let (x, y) = (at(0, 2), at(1, 2));
    Ok(format!(
        "rotation = {rotation:?}\nshift = [{x:?}, {y:?}]\nmagnification = {magnification:?}\n"
    ))
}

// Read noise and what is unmeasured
/// The keys of noise, tip and tilt, and focus, where the mask has cards of ours.
fn noise(file: &TelemetryFile, row: &RowOf, notes: &mut Vec<String>) -> Result<String, Error> {
    let card = |key: &str| row.card("SUBAPERTURE_MASK", key);
    let number = |key: &str, text: &str| {
        let number = text.parse().ok().filter(|x: &f64| *x >= 0.0 && x.is_finite());
        number.ok_or_else(|| {
            row.refuse("SUBAPERTURE_MASK", format!("{key} = {text}"), "a variance in rad²")
        })
    };
    let mut text = match card("NOISE")? {
        None => {
            notes.push(format!("not told, and assumed: {} has no noise", row.uid()));
            String::new()
        }
        Some(name) if name.starts_with("WFS ") => {
            let path = file.path().canonicalize().unwrap_or(file.path().into());
            let named = format!("{}[{name}]", path.display());
            format!("noise = {:?}\n", named)
        }
        Some(value) => format!("noise = {:?}\n", number("NOISE", &value)?),
    };
    match (card("TIPTILT")?.as_deref(), card("TTVAR")?) {
        (Some("unknown"), Some(variance)) => {
            let variance = number("TTVAR", &variance)?;
            text += &format!("tip_tilt = \"unknown\"\ntip_tilt_variance = {variance:?}\n");
        }
        (Some("removed"), _) => text += "tip_tilt = \"removed\"\n",
        _ => {}
    }
    if card("FOCUS")?.as_deref() == Some(Focus::Removed.name()) {
        text += "focus = \"removed\"\n";
    }
    Ok(text)
}

// Find the rule of a mask
/// The key of the rule by which the lenslets of all masks are valid.
fn rule(
    rows: &[RowOf],
    masks: &[Array2<Option<usize>>],
    arrays: &[(usize, f64)],
    pupil: Option<&Pupil>,
) -> Result<String, Error> {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    let mut odd = None; // the darkest valid lenslet
    // Find the darkest valid lenslet
    for (k, (mask, (n, pitch))) in masks.iter().zip(arrays).enumerate() {
        let array = LensletArray::new(*n, *pitch);
        let array =
            array.map_err(|bad| rows[k].refuse("SUBAPERTURE_MASK", bad.value, &bad.expected))?;
        for ((j, i), number) in mask.indexed_iter() {
            let centre = [array.centre(i), array.centre(j)];
            let lit = pupil.map_or(1.0, |pupil| pupil.lit_fraction(centre, *pitch));
            if number.is_none() {
                most = most.max(lit);
            } else if lit < least {
                (least, odd) = (lit, Some((k, j, i)));
            }
        }
    }
    // Choose a threshold between both
    let gap = 1e-9;
    if most + gap < least || most == 0.0 {
        let half = most < 0.5 && least >= 0.5;
        return Ok(if half {
            String::new()
        } else {
            format!("valid_threshold = {:?}\n", 0.5 * (most + least))
        });
    }
    let by_centre = |k: usize| {
        let array = LensletArray::new(arrays[k].0, arrays[k].1);
        let valid = array.map(|array| array.valid(pupil, Validity::Centre));
        let same = |(valid, number): (&bool, &Option<usize>)| *valid == number.is_some();
        valid.is_ok_and(|valid| valid.iter().zip(&masks[k]).all(same))
    };
    if (0..masks.len()).all(by_centre) {
        return Ok("valid = \"centre\"\n".into());
    }
    // Refuse a mask without a rule
    let (k, j, i) = odd.unwrap_or_default();
    let value = format!(
        "valid in row {j}, column {i}, of which {least:.3} is lit, and invalid where {most:.3} is"
    );
    Err(rows[k].refuse(
        "SUBAPERTURE_MASK",
        value,
        "the lenslets above some threshold of light, or those whose centre is lit",
    ))
}

// Read slopes of telemetry
/// Reads the slopes of a system's sensors, (frames, n), rad: from telemetry, or from [another file](crate::files::read_array2).
///
/// # Errors
/// Of telemetry, `Invalid` with file, table and column where it has other sensors than the system, another mask or another number of slopes; a number that is not finite.
pub fn read_slopes(path: &Path, system: &System) -> Result<Array2<f64>, Error> {
    if !is_telemetry(path) {
        return read_array2(path, Unit::Radian);
    }
    let file = TelemetryFile::open(path)?;
    let rows: Vec<RowOf> = file.table("AOT_WAVEFRONT_SENSORS").collect();
    let valid = system.valid_lenslets();
    if rows.len() != valid.len() {
        let expected = format!("{}, one for each guide star of the system", valid.len());
        return Err(file.refuse("rows of AOT_WAVEFRONT_SENSORS", rows.len(), &expected));
    }
    let order = SlopeOrder::new(&valid);
    let mut slopes = Array2::zeros((0, 0));
    for (q, row) in rows.iter().enumerate() {
        let mask = mask_of(row)?;
        // Refuse masks of other sensors
        if !mask.iter().map(Option::is_some).eq(valid[q].iter().copied())
            || mask.dim() != valid[q].dim()
        {
            let count = mask.iter().flatten().count();
            let value = format!("{count} of {} lenslets", mask.len());
            let expected = format!(
                "the valid lenslets of guide_star[{q}], {} of {}",
                order.lenslets(q).len(),
                valid[q].len()
            );
            return Err(row.refuse("SUBAPERTURE_MASK", value, &expected));
        }
        // Take the slopes of a sensor
        let lenslets = order.lenslets(q);
        let Some(measured) = row.array("MEASUREMENTS", [3; 2], Some(Unit::Radian))? else {
            return Err(row.refuse(
                "MEASUREMENTS",
                "nothing",
                "an image of slopes, (frames, 2, lenslets)",
            ));
        };
        // Refuse slopes of another shape
        let frames = if q == 0 { measured.shape()[0] } else { slopes.nrows() };
        let expected = [frames, 2, lenslets.len()];
        if measured.shape() != expected {
            let value = format!("{:?}", measured.shape());
            return Err(row.refuse(
                "MEASUREMENTS",
                value,
                &format!("{expected:?}, all frames of all valid lenslets"),
            ));
        }
        if q == 0 {
            slopes = Array2::zeros((frames, order.len()));
        }
        for (k, lenslet) in lenslets.iter().enumerate() {
            let number = mask[*lenslet].unwrap_or_default();
            for axis in [0, 1] {
                let mut column = slopes.column_mut(order.index(q, axis, k));
                (0..frames).for_each(|t| column[t] = measured[[t, axis, number]]);
            }
        }
    }
    Ok(slopes)
}

// Tests of systems in telemetry
#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::aot::AotRow;
    use crate::numerics::Precision;
    use std::fs::File;

    type Checked = Result<(), Box<dyn std::error::Error>>;

    /// Writes telemetry into a folder and opens it.
    fn open(telemetry: &Telemetry, folder: &Path) -> Result<TelemetryFile, Error> {
        let path = folder.join("t.aot.fits");
        telemetry.write(File::create(&path).unwrap(), Precision::F64).unwrap();
        TelemetryFile::open(&path)
    }

    // Lopsided system of the tests
    const SYSTEM: &str = "
        [atmosphere]
        r0 = 0.13
        wavelength = 550e-9
        layers = [
            { altitude = 0, fraction = 0.6, outer_scale = inf, wind_speed = 7, wind_direction = 350 },
            { altitude = 7000, fraction = 0.4, outer_scale = 33, wind_speed = 21, wind_direction = 100 } ]
        [telescope]
        diameter = 4.2
        obstruction = 0.2
        [lenslet_array]
        lenslets = 7
        valid_threshold = 0.8
        [[guide_star]]
        zenith = 20
        azimuth = 33
        height = 80e3
        tip_tilt = 'unknown'
        tip_tilt_variance = 1e-10
        focus = 'removed'
        sensor = { photons = 200, wavelength = 589e-9, pixel = 0.8, spot = { launch = [3, 1], thickness = 9e3 } }
        [[guide_star]]
        zenith = 50
        azimuth = 250
        noise = 3e-14
        rotation = 12
        shift = [0.1, -0.05]
        magnification = 1.02
        [[guide_star]]
        lenslets = 4
        height = 20e3
        noise = 1e-14
        tip_tilt = 'removed'
        [[target]]
        zenith = 9
        azimuth = 120
        ";

    fn system() -> System {
        System::from_toml(SYSTEM, "s.toml").unwrap()
    }

    /// Whether two numbers are equal but for rounding.
    fn close(a: f64, b: f64) -> bool {
        a == b || (a - b).abs() <= 1e-11 * a.abs().max(1e-6)
    }

    // Bring a system back from telemetry
    #[test]
    fn systems_come_back_from_telemetry() -> Checked {
        let (system, folder) = (system(), tempfile::tempdir()?);
        let file = open(&Telemetry::of(&system), folder.path())?;
        let found = TelemetrySystem::of(&file)?;
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let again = System::from_toml(&found.with_notes(file.path()), "again.toml")?;
        let [before, after] = [&system, &again].map(System::atmosphere);
        assert_eq!(
            [before.fried_parameter(), before.wavelength()],
            [after.fried_parameter(), after.wavelength()]
        );
        for (a, b) in before.layers().iter().zip(after.layers()) {
            assert_eq!(
                (a.altitude, a.fraction, a.outer_scale, a.wind_speed),
                (b.altitude, b.fraction, b.outer_scale, b.wind_speed)
            );
            assert!((0..2).all(|k| close(a.velocity()[k], b.velocity()[k])), "{a:?} {b:?}");
        }
        assert_eq!(
            (system.pupil(), system.valid_lenslets()),
            (again.pupil(), again.valid_lenslets())
        );
        let sources = |system: &System| {
            system
                .sensors()
                .iter()
                .map(|sensor| sensor.source)
                .chain(system.targets().to_vec())
                .collect::<Vec<_>>()
        };
        for (a, b) in sources(&system).iter().zip(&sources(&again)) {
            assert!(
                a.height() == b.height()
                    && (0..2).all(|k| (a.direction()[k] - b.direction()[k]).abs() < 1e-15)
            );
        }
        for (a, b) in system.guide_stars().iter().zip(again.guide_stars()) {
            let (s, t) = (&a.sensor, &b.sensor);
            assert!(
                close(s.rotation, t.rotation)
                    && close(s.magnification, t.magnification)
                    && s.shift == t.shift
            );
            assert_eq!(
                (s.array.lenslets(), a.tip_tilt, a.focus),
                (t.array.lenslets(), b.tip_tilt, b.focus)
            );
            assert!(close(s.array.pitch(), t.array.pitch()));
            assert!((0..2).all(|k| a.noise.block(k) == b.noise.block(k)));
        }
        assert_eq!(again.targets().len(), 1);
        Ok(())
    }

    // Look down through more air
    #[test]
    fn a_telescope_that_looks_down_sees_more_air() -> Checked {
        let folder = tempfile::tempdir()?;
        let mut telemetry = Telemetry::of(&system());
        telemetry.change("AOT_TELESCOPES", 0).number("ELEVATION", 30.0);
        let air = telemetry.change("AOT_ATMOSPHERIC_PARAMETERS", 0);
        air.list("R0", vec![0.1, 0.2])
            .image("LAYERS_WIND_SPEED", "speed")
            .image("LAYERS_WIND_DIRECTION", "way");
        telemetry.images.add("speed", arr2(&[[5.0, 4.0], [5.0, 4.0]]));
        telemetry.images.add("way", arr2(&[[350.0, 20.0], [10.0, 200.0]]));
        let found = TelemetrySystem::of(&open(&telemetry, folder.path())?)?;
        let again = System::from_toml(&found.text, "again.toml")?;
        let mean = ((0.1f64.powf(-5.0 / 3.0) + 0.2f64.powf(-5.0 / 3.0)) / 2.0).powf(-0.6);
        assert!(
            (again.atmosphere().fried_parameter() / (mean * 2f64.powf(-0.6)) - 1.0).abs() < 1e-12
        );
        let layers = again.atmosphere().layers();
        assert!((layers[1].altitude - 14e3).abs() < 1e-9 && layers[1].wind_speed < 1e-12);
        // Two winds of 5 m/s to both sides of the north, which is along y.
        let [x, y] = layers[0].velocity();
        assert!(x.abs() < 1e-10 && (y - 5.0 * (10.0 * DEGREE).cos()).abs() < 1e-10);
        let [before, after] =
            [&system(), &again].map(|system| system.guide_stars()[0].sensor.source);
        assert!((after.height() - 160e3).abs() < 1e-6);
        let [x, y] = [0, 1].map(|k| after.direction()[k] / before.direction()[k]);
        assert!((x - 0.75f64.sqrt()).abs() < 1e-10 && (y - 1.0).abs() < 1e-10);
        assert_eq!(
            again.guide_stars()[2].sensor.source.height(),
            20e3,
            "a range is told along the line of sight"
        );
        Ok(())
    }

    // Bring slopes back in another order
    #[test]
    fn slopes_come_back_in_our_order() -> Checked {
        let (system, folder) = (system(), tempfile::tempdir()?);
        let order = SlopeOrder::new(&system.valid_lenslets());
        let slopes = Array2::from_shape_fn((3, order.len()), |(t, k)| (1000 * t + k) as f64);
        let mut telemetry = Telemetry::of(&system);
        telemetry.add_slopes(&system, slopes.view())?;
        let file = open(&telemetry, folder.path())?;
        assert_eq!(read_slopes(file.path(), &system)?, slopes);
        // Count down the columns
        let valid = &system.valid_lenslets()[1];
        let mut counted = Array2::from_elem(valid.dim(), -1_i64);
        let mut columns = Vec::new();
        for i in 0..7 {
            for j in (0..7).filter(|j| valid[[*j, i]]) {
                counted[[j, i]] = columns.len() as i64;
                columns.push([j, i]);
            }
        }
        let place = |lenslet: &[usize; 2]| {
            order.lenslets(1).iter().position(|other| other == lenslet).unwrap()
        };
        let turned = Array3::from_shape_fn((3, 2, columns.len()), |(t, a, k)| {
            slopes[[t, order.index(1, a, place(&columns[k]))]]
        });
        telemetry.images.add("counted", counted);
        telemetry.images.add("down", turned * 1e3).unit("mrad");
        telemetry
            .change("AOT_WAVEFRONT_SENSORS", 1)
            .image("SUBAPERTURE_MASK", "counted")
            .image("MEASUREMENTS", "down");
        let found = read_slopes(open(&telemetry, folder.path())?.path(), &system)?;
        assert!((found - &slopes).iter().all(|gap| gap.abs() < 1e-9));
        let other = Array2::zeros((3, 5));
        assert_eq!(telemetry.add_slopes(&system, other.view()).unwrap_err().quantity, "slopes");
        Ok(())
    }

    // Refuse telemetry of no system
    #[test]
    fn telemetry_of_no_system_is_refused() -> Checked {
        let (system, folder) = (system(), tempfile::tempdir()?);
        type Change = fn(&mut AotRow) -> &mut AotRow;
        let cases: [(&str, usize, Change, &str); 10] = [
            // Telemetry that makes no sense
            ("AOT_TELESCOPES", 0, |row| row.number("ELEVATION", 0.0), "[0].ELEVATION = 0"),
            ("AOT_TELESCOPES", 0, |row| row.text("TYPE", "Other"), " = no main telescope"),
            ("AOT_TELESCOPES", 0, |row| row.number("OBSTRUCTION_D", 5.0), "[0].OBSTRUCTION_D = "),
            ("AOT_ATMOSPHERIC_PARAMETERS", 0, |row| row.list("R0", vec![]), "[0].R0 = []"),
            ("AOT_ATMOSPHERIC_PARAMETERS", 0, |row| row.list("R0", vec![-0.1]), "[0].R0 = [-0.1]"),
            (
                "AOT_ATMOSPHERIC_PARAMETERS",
                0,
                |row| row.image("LAYERS_REL_WEIGHT", "LAYERS HEIGHT"),
                "[0].LAYERS_REL_WEIGHT = 2 weights with the sum 7000",
            ),
            ("AOT_SOURCES", 0, |row| row.number("AZIMUTH_OFFSET", 6.0), "[0].AZIMUTH_OFFSET = "),
            (
                "AOT_SOURCES",
                1,
                |row| row.number("AZIMUTH_OFFSET", f64::NAN).number("ELEVATION_OFFSET", f64::NAN),
                "[1].ELEVATION_OFFSET = nothing",
            ),
            ("AOT_WAVEFRONT_SENSORS", 2, |row| row.text("TYPE", "Pyramid"), "[2].TYPE = Pyramid"),
            (
                "AOT_WAVEFRONT_SENSORS",
                1,
                |row| row.number("N_VALID_SUBAPERTURES", 3.0),
                "[1].N_VALID_SUBAPERTURES = 3",
            ),
        ];
        for (table, row, change, words) in cases {
            let mut telemetry = Telemetry::of(&system);
            change(telemetry.change(table, row));
            let said = TelemetrySystem::of(&open(&telemetry, folder.path())?).unwrap_err();
            let words = format!("t.aot.fits: {table}{words}");
            assert!(said.to_string().contains(&words), "{said}");
        }
        // Refuse matrices and masks of no sensor
        let refused = |name: &str, image: Array2<f64>, column: &'static str, valid: f64| {
            let mut telemetry = Telemetry::of(&system);
            telemetry.images.add(name, image);
            let row = telemetry.change("AOT_WAVEFRONT_SENSORS", 0);
            row.image(column, name).number("N_VALID_SUBAPERTURES", valid);
            let file = open(&telemetry, folder.path()).unwrap();
            TelemetrySystem::of(&file).unwrap_err().to_string()
        };
        let sheared = arr2(&[[1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
        let valid = SlopeOrder::new(&system.valid_lenslets()).lenslets(0).len() as f64;
        let said = refused("sheared", sheared, "TRANSFORMATION_MATRIX", valid);
        assert!(said.contains("AOT_WAVEFRONT_SENSORS[0].TRANSFORMATION_MATRIX = "), "{said}");
        let mut number = -1.0;
        let dead = Array2::from_shape_fn((7, 7), |place| {
            if place == (3, 1) {
                return -1.0;
            }
            number += 1.0;
            number
        });
        let said = refused("dead", dead.clone(), "SUBAPERTURE_MASK", 48.0);
        let words = "AOT_WAVEFRONT_SENSORS[0].SUBAPERTURE_MASK = valid in row 0, column 0";
        assert!(said.contains(words), "{said}");
        let twice = dead.mapv(|number: f64| number.min(40.0));
        let said = refused("twice", twice, "SUBAPERTURE_MASK", 48.0);
        assert!(
            said.contains("SUBAPERTURE_MASK = 40: expected each number from 0 to 47"),
            "{said}"
        );
        // Refuse slopes of another system
        let order = SlopeOrder::new(&system.valid_lenslets());
        let slopes = Array2::from_elem((2, order.len()), 1e-7);
        let mut telemetry = Telemetry::of(&system);
        telemetry.add_slopes(&system, slopes.view())?;
        let path = open(&telemetry, folder.path())?.path().to_path_buf();
        let fewer = system.to_builder().guide_stars(system.guide_stars()[1..].to_vec()).build()?;
        let said = read_slopes(&path, &fewer).unwrap_err().to_string();
        assert!(said.contains("rows of AOT_WAVEFRONT_SENSORS = 3: expected 2"), "{said}");
        let other =
            system.to_builder().guide_stars(system.guide_stars().iter().rev().cloned()).build()?;
        let said = read_slopes(&path, &other).unwrap_err().to_string();
        assert!(
            said.contains("AOT_WAVEFRONT_SENSORS[0].SUBAPERTURE_MASK = ")
                && said.contains("guide_star[0]"),
            "{said}"
        );
        telemetry.images.add("few", Array3::<f64>::zeros((2, 2, 3)));
        telemetry.change("AOT_WAVEFRONT_SENSORS", 1).image("MEASUREMENTS", "few");
        let path = open(&telemetry, folder.path())?.path().to_path_buf();
        let said = read_slopes(&path, &system).unwrap_err().to_string();
        assert!(
            said.contains("AOT_WAVEFRONT_SENSORS[1].MEASUREMENTS = [2, 2, 3]: expected [2, 2, "),
            "{said}"
        );
        let nothing = open(&Telemetry::of(&system), folder.path())?.path().to_path_buf();
        let said = read_slopes(&nothing, &system).unwrap_err().to_string();
        assert!(said.contains("AOT_WAVEFRONT_SENSORS[0].MEASUREMENTS = nothing"), "{said}");
        Ok(())
    }
}
