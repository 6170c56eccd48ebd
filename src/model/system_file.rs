// Tangled from book/src/system-file.md: edit there, or here and run cargo tangle stitch.
//! The system file: parsed once, and read table by table.

mod builder;
pub use builder::SystemFileBuilder;

// Imports of reading a system
use crate::{
    error::{BadLine, Error, Invalid, accept, length_or_infinity, positive},
    files::spanned_toml::{Document, Table, read_text},
    model::atmosphere::{Atmosphere, Layer, check_wavelength, fried_parameter_of},
    model::lenslet_array::{LensletArray, Pupil, Validity},
    model::light::{Brightness, LaserSpot, Light, WINDOW},
    model::noise::{GuideStar, Noise},
    model::removed_modes::{Focus, TipTilt, VARIANCE},
    model::sensor::Sensor,
    model::source::{ConeGradient, Source},
    model::system::{SlopeModel, System},
    model::system_keys::SYSTEM_KEYS,
    model::wavefront_grid::PhaseGrid,
    plausible::{DIAMETER, NOISE, PITCH, Plausible, RATE, WIND_SPEED},
    units::{ARCSEC, DEGREE},
};
use std::{path::Path, sync::Arc};

// A system file that is parsed once
/// A system file: its text and its values, parsed once. Each module reads its own tables from it: [`system`](Self::system) those of a
/// [`System`], and `from_system_file` of an options type those of these options.
///
/// ```
/// use lenslet::correction::CorrectionOptions;
/// use lenslet::model::SystemFile;
/// let file = SystemFile::from_file("book/systems/small-moao.toml")?;
/// let mirrors = CorrectionOptions::from_system_file(&file)?.map(|correction| correction.mirrors.len());
/// assert_eq!((file.system()?.guide_stars().len(), mirrors), (3, Some(1)));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SystemFile {
    document: Arc<Document>,
}

// Methods of a system file
impl SystemFile {
    // Open a system file
    /// Reads and parses a system file.
    ///
    /// # Errors
    /// [`Error::Read`] for a file that cannot be read, and as [`from_toml`](Self::from_toml).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::from_toml(&read_text(path, 16 << 20, "a system file")?, &path.display().to_string())
    }

    /// Parses the text of a system file; errors contain `name` as the name of the file, and other files are relative to its folder.
    ///
    /// # Errors
    /// [`Error::SystemFile`] with the first line that is not TOML.
    pub fn from_toml(text: &str, name: &str) -> Result<Self, Error> {
        Ok(Document::parse(name, text)?.into())
    }

    // System file of a dictionary
    /// The system file of a dictionary with its tables; other files are relative to the working directory. Errors name the key.
    ///
    /// ```
    /// use lenslet::{model::SystemFile, toml};
    /// let mut values: toml::Table = toml::from_str(&std::fs::read_to_string("book/systems/small.toml")?)?;
    /// let variance = SystemFile::from_value(values.clone())?.system()?.guide_stars()[0].noise.mean();
    /// assert_eq!(variance, 0.0);
    /// values["atmosphere"]["r0"] = (-0.15).into();
    /// let wrong = SystemFile::from_value(values)?.system().unwrap_err();
    /// assert_eq!(wrong.to_string(), "atmosphere.r0 = -0.15: expected a length in metres greater than 0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SystemFile`], without a line, where more than 64 tables and lists are nested.
    pub fn from_value(values: toml::Table) -> Result<Self, Error> {
        Ok(Document::from_table(values)?.into())
    }

    // Parts of a system file
    /// The text of the file; for a dictionary, its TOML.
    pub fn text(&self) -> &str {
        self.document.text()
    }

    /// The name of the file; empty for a dictionary.
    pub fn name(&self) -> &str {
        self.document.name()
    }

    /// The folder of the file, to which names of other files are relative.
    pub fn folder(&self) -> &Path {
        self.document.folder()
    }

    /// Whether there is a value at a path, such as `atmosphere.layers[1].altitude`.
    pub fn has(&self, path: &str) -> bool {
        self.document.has(path)
    }

    /// These values as a file of another name, to whose folder other files are relative.
    pub fn named(&self, name: &str) -> Self {
        Document::clone(&self.document).named(name).into()
    }

    // Open the table of all tables
    /// The table of all tables. Its unknown keys are rejected.
    pub(crate) fn root(&self) -> Result<Table<'_>, BadLine> {
        self.document.root(SYSTEM_KEYS)
    }

    // Require the wind of all layers
    /// Rejects a layer that does not give its wind, for an `expected` value of it.
    pub(crate) fn require_winds(&self, expected: &str) -> Result<(), BadLine> {
        let air = self.root()?.required_table("atmosphere")?;
        let layers = air.tables("layers")?;
        match layers.iter().find(|layer| !layer.has("wind_speed")) {
            Some(layer) => Err(layer.missing("wind_speed", expected)),
            None => Ok(()),
        }
    }
}

// System file of a document
impl From<Document> for SystemFile {
    fn from(document: Document) -> Self {
        Self { document: Arc::new(document) }
    }
}

// Read the system of a file
impl SystemFile {
    /// The system that the file describes.
    ///
    /// # Errors
    /// [`Error::SystemFile`] with the first invalid line.
    pub fn system(&self) -> Result<System, Error> {
        let root = self.root()?;
        let (atmosphere, cone_gradient) = read_atmosphere(&root)?;
        let pupil = read_pupil(&root)?;
        let (lenslet_array, validity) = read_lenslet_array(&root, pupil.as_ref())?;
        let shared =
            Shared { atmosphere: &atmosphere, pupil: pupil.as_ref(), lenslet_array, validity };
        // Build the system from its tables
        let slope_model = read_slope_model(&root)?;
        let stars = read_guide_stars(&root, &shared)?;
        let builder = System::builder(atmosphere.clone(), lenslet_array)
            .cone_gradient(cone_gradient)
            .slope_model(slope_model)
            .pupil(pupil)
            .validity(validity)
            .guide_stars(stars)
            .targets(read_targets(&root)?)
            .optimisation(read_optimisation(&root)?)
            .truth_sensor(read_truth_sensor(&root, &lenslet_array)?)
            .phase(read_phase(&root)?);
        Ok(root.check(builder.build())?)
    }
}

// Data shared by guide stars
/// Data that all guide stars of a system share.
struct Shared<'a> {
    atmosphere: &'a Atmosphere,
    pupil: Option<&'a Pupil>,
    lenslet_array: LensletArray,
    validity: Validity,
}

// Systems of texts and files
impl System {
    // The documentation of reading a text
    /// Reads the text of a system file; errors contain `name` as the name of the file.
    ///
    /// ```
    /// use lenslet::model::System;
    /// let text = std::fs::read_to_string("book/systems/keck-lgs.toml")?;
    /// let keck = System::from_toml(&text, "keck-lgs.toml")?;
    /// assert_eq!((keck.guide_stars().len(), keck.atmosphere().layers().len()), (4, 7));
    ///
    /// let wrong = System::from_toml(&text.replace("r0 = 0.18", "r0 = -1"), "keck-lgs.toml");
    /// let message = "keck-lgs.toml:6: atmosphere.r0 = -1: expected a length in metres greater than 0";
    /// assert_eq!(wrong.unwrap_err().to_string(), message);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`SystemFile::from_toml`] and [`SystemFile::system`].
    pub fn from_toml(text: &str, name: &str) -> Result<Self, Error> {
        SystemFile::from_toml(text, name)?.system()
    }

    /// Reads a system file.
    ///
    /// # Errors
    /// As [`SystemFile::from_file`] and [`SystemFile::system`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        SystemFile::from_file(path)?.system()
    }
}

// Read the tables of a system
// Read the table of the atmosphere
fn read_atmosphere(root: &Table) -> Result<(Atmosphere, ConeGradient), BadLine> {
    let air = root.required_table("atmosphere")?;
    let wavelength = air.optional("wavelength", "a length in metres")?.unwrap_or(500e-9);
    let r0 = read_fried_parameter(&air, wavelength)?;
    let outer_scale = air.optional("outer_scale", "a length in metres, or inf")?;
    if let Some(outer_scale) = outer_scale {
        air.check(length_or_infinity("outer_scale", outer_scale))?;
    }
    let words = [("pupil", ConeGradient::Pupil), ("layer", ConeGradient::Layer)];
    let cone_gradient = air.choice("cone_gradient", &words)?.unwrap_or_default();
    let layers = read_layers(&air, outer_scale)?;
    let atmosphere = air.check(Atmosphere::new(r0, wavelength, layers))?;
    Ok((atmosphere, cone_gradient))
}
fn read_fried_parameter(air: &Table, wavelength: f64) -> Result<f64, BadLine> {
    let r0 = air.optional("r0", "a length in metres")?;
    let seeing: Option<f64> = air.optional("seeing", SEEING)?;
    match (r0, seeing) {
        (Some(r0), None) => Ok(r0),
        (None, Some(seeing)) => {
            air.check(accept((0.05..=10.0).contains(&seeing), "seeing", seeing, SEEING))?;
            air.check(check_wavelength(wavelength))?;
            Ok(fried_parameter_of(seeing * ARCSEC, wavelength))
        }
        (Some(_), Some(seeing)) => {
            let expected = "either r0 or seeing, not both: remove one of them";
            Err(air.refuse(Invalid::new("seeing", seeing, expected)))
        }
        (None, None) => Err(air.missing("r0", "a length in metres, or a seeing in arcsec")),
    }
}

/// Expected seeing, for messages.
const SEEING: &str = "a full width at half maximum from 0.05 to 10 arcsec";

// Read the layers of the atmosphere
fn read_layers(air: &Table, outer_scale: Option<f64>) -> Result<Vec<Layer>, BadLine> {
    let tables = air.tables("layers")?;
    if tables.is_empty() {
        return Err(air.missing("layers", "a list of at least one layer"));
    }
    let read = |layer: &Table| {
        let scale = layer.optional("outer_scale", "a length in metres, or inf")?.or(outer_scale);
        let without = "a length in metres, or inf, here or as atmosphere.outer_scale";
        let wind_speed: f64 = layer.optional("wind_speed", "a speed in m/s")?.unwrap_or(0.0);
        if wind_speed > 0.0 && wind_speed.is_finite() {
            layer.check(WIND_SPEED.check("wind_speed", wind_speed))?;
        }
        Ok(Layer {
            altitude: layer.required("altitude", "an altitude in metres")?,
            fraction: layer.required("fraction", "a share of r0^(-5/3), from 0 to 1")?,
            outer_scale: scale.ok_or_else(|| layer.missing("outer_scale", without))?,
            wind_speed,
            wind_direction: DEGREE
                * layer.optional("wind_direction", "an angle in degrees")?.unwrap_or(0.0),
        })
    };
    tables.iter().map(read).collect()
}

// Read the pupil and the lenslets
fn read_pupil(root: &Table) -> Result<Option<Pupil>, BadLine> {
    let Some(telescope) = root.table("telescope")? else { return Ok(None) };
    let diameter = telescope.required("diameter", "a length in metres")?;
    let obstruction = telescope.optional("obstruction", "a ratio of diameters")?.unwrap_or(0.0);
    let pupil = telescope.check(Pupil::new(diameter, obstruction))?;
    telescope.check(DIAMETER.check("diameter", diameter)).map(|_| Some(pupil))
}
/// Rejects a given pitch that is probably in another unit.
fn check_pitch(table: &Table) -> Result<(), BadLine> {
    let pitch: Option<f64> = table.optional("pitch", "a length in metres")?;
    table.check(pitch.map_or(Ok(()), |pitch| PITCH.check("pitch", pitch).map(drop)))
}
const LENSLETS: &str = "a whole number from 1 to 10000";

fn read_lenslet_array(
    root: &Table,
    pupil: Option<&Pupil>,
) -> Result<(LensletArray, Validity), BadLine> {
    let table = root.required_table("lenslet_array")?;
    let lenslets: usize = table.required("lenslets", LENSLETS)?;
    let from_diameter = pupil.map(|pupil| pupil.diameter() / lenslets as f64);
    let pitch = table.optional("pitch", "a length in metres")?.or(from_diameter);
    let pitch =
        pitch.ok_or_else(|| table.missing("pitch", "a length in metres, or a [telescope]"))?;
    let array = table.check(LensletArray::new(lenslets, pitch))?;
    check_pitch(&table)?;
    Ok((array, read_validity(&table)?))
}

// Read the rule of validity
fn read_validity(table: &Table) -> Result<Validity, BadLine> {
    let threshold = table.optional("valid_threshold", "a fraction from 0 to 1")?;
    match (table.choice("valid", &[("centre", Validity::Centre)])?, threshold) {
        (Some(_), Some(threshold)) => {
            let expected = "either valid or valid_threshold, not both";
            Err(table.refuse(Invalid::new("valid_threshold", threshold, expected)))
        }
        (Some(centre), None) => Ok(centre),
        (None, threshold) => table.check(Validity::lit_fraction(threshold.unwrap_or(0.5))),
    }
}

// Read directions and guide stars
fn read_source(table: &Table, height: f64) -> Result<Source, BadLine> {
    let zenith: f64 = table.optional("zenith", "an angle in arcsec")?.unwrap_or(0.0);
    let azimuth: f64 = table.optional("azimuth", "an angle in degrees")?.unwrap_or(0.0);
    table.check(Source::new(zenith * ARCSEC, azimuth * DEGREE, height))
}

// Read the guide stars of a file
fn read_guide_stars(root: &Table, shared: &Shared) -> Result<Vec<GuideStar>, BadLine> {
    let tables = root.tables("guide_star")?;
    if tables.is_empty() {
        return Err(root.missing("guide_star", "at least one table [[guide_star]]"));
    }
    let read = |table| {
        let sensor = read_sensor(table, &shared.lenslet_array)?;
        let of_light = read_light(table, &sensor, shared)?;
        let width = shared.atmosphere.wavelength() / sensor.side();
        let noise = of_light.map_or_else(|| read_noise(table, width), Ok)?;
        let tip_tilt = read_tip_tilt(table)?;
        let words = [Focus::Measured, Focus::Removed].map(|focus| (focus.name(), focus));
        let focus = table.choice("focus", &words)?.unwrap_or_default();
        Ok(GuideStar { sensor, noise, tip_tilt, focus })
    };
    tables.iter().map(read).collect()
}

// Read the sensor of a guide star
fn read_sensor(table: &Table, shared: &LensletArray) -> Result<Sensor, BadLine> {
    let height = table.optional("height", "a length in metres, or inf")?.unwrap_or(f64::INFINITY);
    let source = read_source(table, height)?;
    let lenslets = table.optional("lenslets", LENSLETS)?.unwrap_or(shared.lenslets());
    let same_width = shared.pitch() * (shared.lenslets() as f64 / lenslets as f64);
    let pitch = table.optional("pitch", "a length in metres")?.unwrap_or(same_width);
    let array = table.check(LensletArray::new(lenslets, pitch))?;
    check_pitch(table)?;
    let rotation: f64 = table.optional("rotation", "an angle in degrees")?.unwrap_or(0.0);
    Ok(Sensor {
        source,
        array,
        rotation: rotation * DEGREE,
        shift: table.optional("shift", "two lengths in metres, [x, y]")?.unwrap_or([0.0; 2]),
        magnification: table.optional("magnification", "a factor")?.unwrap_or(1.0),
    })
}

// Read the noise of a guide star
/// The noise of slopes behind lenslets whose diffraction has this `width` \[rad\].
fn read_noise(table: &Table, width: f64) -> Result<Noise, BadLine> {
    let expected = "a variance in rad², or the name of a file of noise";
    let most = NOISE.accepted[1].max(width * width);
    let plausible = Plausible { accepted: [0.0, most], ..NOISE };
    if let Ok(Some(name)) = table.optional::<&str>("noise", expected) {
        let of_file = |error: Error| {
            let expected = format!("the name of a file of noise, and {error}");
            table.refuse(Invalid::new("noise", name, expected))
        };
        let noise = Noise::read(&table.folder().join(name)).map_err(of_file)?;
        let largest = noise.largest();
        let refuse = |bad: Invalid| {
            let expected = format!("a file without a variance of {}: {}", bad.value, bad.expected);
            table.refuse(Invalid { expected, ..bad })
        };
        return plausible.check("noise", largest).map(|_| noise).map_err(refuse);
    }
    let variance = table.optional("noise", expected)?.unwrap_or(0.0);
    let noise = table.check(Noise::uniform(variance))?;
    table.check(plausible.check("noise", variance)).map(|_| noise)
}

// Read tip and tilt of a guide star
fn read_tip_tilt(table: &Table) -> Result<TipTilt, BadLine> {
    let given = table.optional("tip_tilt_variance", VARIANCE)?;
    let unknown = TipTilt::Unknown { variance: given.unwrap_or(0.0) };
    let words = [TipTilt::Measured, TipTilt::Removed, unknown].map(|word| (word.name(), word));
    let tip_tilt = table.choice("tip_tilt", &words)?.unwrap_or_default();
    let is_unknown = matches!(tip_tilt, TipTilt::Unknown { .. });
    match given {
        Some(_) if is_unknown => table.check(tip_tilt.check())?,
        Some(variance) => {
            let expected = "no variance, unless tip_tilt = \"unknown\"";
            return Err(table.refuse(Invalid::new("tip_tilt_variance", variance, expected)));
        }
        None if is_unknown => {
            let expected = format!("{VARIANCE}, for tip_tilt = \"unknown\"");
            return Err(table.missing("tip_tilt_variance", &expected));
        }
        None => {}
    }
    Ok(tip_tilt)
}

// Read the light on a sensor
// Read light in place of noise
fn read_light(star: &Table, sensor: &Sensor, shared: &Shared) -> Result<Option<Noise>, BadLine> {
    let Some(table) = star.table("sensor")? else { return Ok(None) };
    if star.has("noise") {
        let expected = "either noise or a table [guide_star.sensor], not both";
        return Err(star.refuse(Invalid::new("noise", "", expected)));
    }
    star.check(sensor.check())?;
    let photons = read_photons(&table, sensor)?;
    table.optional("rate", "frames in a second")?.map_or(Ok(0.0), |rate| {
        table.check(positive("rate", rate).and_then(|rate| RATE.check("rate", rate)))
    })?;
    let pixel: f64 = table.required("pixel", "an angle in arcsec")?;
    let wavelength = table.required("wavelength", "a wavelength in metres")?;
    let light = Light::new(photons, wavelength, pixel * ARCSEC);
    let light = read_detector(&table, light)?;
    let light = Light { spot: read_spot(&table, sensor)?, ..light };
    let noise = light.noise(sensor, shared.pupil, shared.validity, shared.atmosphere);
    table.check(noise).map(Some)
}

// Read the photons of a lenslet
fn read_photons(table: &Table, sensor: &Sensor) -> Result<f64, BadLine> {
    let magnitude = table.optional("magnitude", "a magnitude")?;
    let photons = table.optional("photons", "a number of photons")?;
    let of_star = ["magnitude", "zero_point", "throughput", "frame_rate"];
    if let (Some(_), Some(key)) = (photons, of_star.into_iter().find(|key| table.has(key))) {
        let expected = "either photons, or magnitude with zero_point, throughput, frame_rate";
        return Err(table.refuse(Invalid::new(key, "", expected)));
    }
    let missing = || table.missing("photons", "a number of photons, or a magnitude");
    let Some(magnitude) = magnitude else { return photons.ok_or_else(missing) };
    let star = Brightness {
        magnitude,
        zero_point: table.required("zero_point", "photons of magnitude 0, in 1/s/m²")?,
        throughput: table.optional("throughput", "a share from 0 to 1")?.unwrap_or(1.0),
        frame_rate: table.required("frame_rate", "frames in a second")?,
    };
    table.check(star.photons(sensor.side()))
}

// Read a detector and its window
fn read_detector(table: &Table, light: Light) -> Result<Light, BadLine> {
    let fwhm: Option<f64> = table.optional("fwhm", "an angle in arcsec")?;
    let number = |key: &str, expected: &str, default: f64| {
        table.optional(key, expected).map(|number| number.unwrap_or(default))
    };
    Ok(Light {
        fwhm: fwhm.map(|fwhm| fwhm * ARCSEC),
        read_noise: number("read_noise", "a number of electrons", light.read_noise)?,
        excess_noise: number("excess_noise", "a factor", light.excess_noise)?,
        background: number("background", "a number of photons", light.background)?,
        window: table.optional("window", WINDOW)?,
        ..light
    })
}

// Read where a laser is launched
fn read_spot(table: &Table, sensor: &Sensor) -> Result<Option<LaserSpot>, BadLine> {
    let Some(spot) = table.table("spot")? else { return Ok(None) };
    let altitude = "a length in metres";
    let height = Some(sensor.source.height()).filter(|height| height.is_finite());
    let given = spot.optional("altitude", altitude)?.or(height);
    let without = "the altitude of the sodium in metres, here or as the height of the star";
    Ok(Some(LaserSpot {
        launch: spot.required("launch", "two lengths in metres, [x, y]")?,
        altitude: given.ok_or_else(|| spot.missing("altitude", without))?,
        thickness: spot.required("thickness", "a length in metres")?,
    }))
}

// Read targets and the wavefront grid
fn read_targets(root: &Table) -> Result<Vec<Source>, BadLine> {
    let tables = root.tables("target")?;
    let height = |table: &Table| table.optional("height", "inf, as a target is a direction");
    let read = |table| read_source(table, height(table)?.unwrap_or(f64::INFINITY));
    tables.iter().map(read).collect()
}

/// Directions over which mirrors are optimised, with their weights.
fn read_optimisation(root: &Table) -> Result<Vec<(Source, f64)>, BadLine> {
    let tables = root.tables("optimisation")?;
    let read = |table: &Table| {
        let weight = table.optional("weight", "a number greater than 0")?.unwrap_or(1.0);
        Ok((read_source(table, f64::INFINITY)?, weight))
    };
    tables.iter().map(read).collect()
}

fn read_phase(root: &Table) -> Result<Option<PhaseGrid>, BadLine> {
    let Some(table) = root.table("phase")? else { return Ok(None) };
    let points = table.required("points", "a whole number from 1 to 100000")?;
    let oversampling =
        table.optional("oversampling", "a whole number from 1 to 1000")?.unwrap_or(1);
    let radius: f64 = table.optional("disc_radius", "an angle in arcsec")?.unwrap_or(0.0);
    table.check(PhaseGrid::new(points, oversampling, radius * ARCSEC)).map(Some)
}

// Read the truth sensor
fn read_truth_sensor(root: &Table, shared: &LensletArray) -> Result<Option<LensletArray>, BadLine> {
    let Some(table) = root.table("truth_sensor")? else { return Ok(None) };
    let lenslets = table.required("lenslets", LENSLETS)?;
    let same_width = shared.pitch() * (shared.lenslets() as f64 / lenslets as f64);
    let pitch = table.optional("pitch", "a length in metres")?.unwrap_or(same_width);
    let array = table.check(LensletArray::new(lenslets, pitch))?;
    check_pitch(&table).map(|()| Some(array))
}

// Read how slopes are modelled
fn read_slope_model(root: &Table) -> Result<SlopeModel, BadLine> {
    let Some(table) = root.table("covariance")? else { return Ok(SlopeModel::default()) };
    let words = [SlopeModel::Average, SlopeModel::EdgeMidpoint].map(|model| (model.name(), model));
    Ok(table.choice("slope_model", &words)?.unwrap_or_default())
}

// Warn of values of a file
impl SystemFile {
    /// Warnings about values that are probably unintended: altitudes in kilometres, angles in radians, and frame rates of sensors that differ
    /// from that of the loop. The list is empty if the system cannot be read.
    ///
    /// ```
    /// use lenslet::model::SystemFile;
    /// let file = SystemFile::from_file("book/systems/keck-lgs.toml")?;
    /// assert!(file.warnings().is_empty());
    /// let low = (0..7).fold(file.to_builder(), |file, k| file.set(&format!("atmosphere.layers[{k}].altitude"), k));
    /// let warnings = low.build()?.warnings();
    /// assert!(warnings[0].contains("layers[6].altitude = 6: no layer is higher than 6 m above the telescope"));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn warnings(&self) -> Vec<String> {
        let Ok(root) = self.root() else { return Vec::new() };
        let kinds = [suspect_units, rates_apart].map(|warn| warn(&root).unwrap_or_default());
        kinds.concat()
    }
}

// Sensors at rates of their own
/// Warnings about sensors whose frame rate is not that of the loop, or, without a loop, that of the first sensor with a rate. All sensors are
/// treated as read at one rate.
fn rates_apart(root: &Table) -> Result<Vec<String>, BadLine> {
    let control = root.table("loop")?;
    let rate = control.map(|table| table.optional::<f64>("rate", "frames in a second"));
    let mut common = rate.transpose()?.flatten().map(|rate| ("loop.rate".to_string(), rate));
    let mut apart: Vec<(f64, String, Vec<String>)> = Vec::new();
    // Sort sensors by their rates
    for star in root.tables("guide_star")? {
        let Some(sensor) = star.table("sensor")? else { continue };
        for key in ["rate", "frame_rate"] {
            let Some(rate) = sensor.optional::<f64>(key, "frames in a second")? else { continue };
            let refused = sensor.refuse(Invalid::new(key, rate, ""));
            let (_, common) = common.get_or_insert((refused.key.clone(), rate));
            if (rate / *common - 1.0).abs() < 1e-6 {
                continue;
            }
            match apart.iter_mut().find(|(known, ..)| *known == rate) {
                Some((.., keys)) => keys.push(refused.key),
                None => apart.push((rate, refused.location(), vec![refused.key])),
            }
        }
    }
    let Some((reference, common)) = common else { return Ok(Vec::new()) };
    // Text of a warning of rates
    let warning = |(rate, location, keys): (f64, String, Vec<String>)| {
        let keys = keys.join(", ");
        format!(
            "{location}{keys} = {rate}: {reference} is {common} Hz, and all sensors are taken to be in one loop at that rate. The delay and \
             the servo-lag error of what these sensors measure, and the noise that the loop passes on, are not those of {rate} Hz"
        )
    };
    Ok(apart.into_iter().map(warning).collect())
}

// Values that suggest another unit
/// Limits for the highest layer \[m\] and the largest angle \[arcsec\] below which a file is suspect.
const SUSPECT: [f64; 2] = [30.0, 3e-3];

/// Warnings about altitudes that are probably in kilometres, and about angles that are probably in radians.
fn suspect_units(root: &Table) -> Result<Vec<String>, BadLine> {
    let mut warnings = Vec::new();
    let air = root.required_table("atmosphere")?;
    let [altitudes, angles] = [
        (air.tables("layers")?, "altitude"),
        ([root.tables("guide_star")?, root.tables("target")?].concat(), "zenith"),
    ]
    .map(|(tables, key)| largest(tables, key));
    let [(low, table), (close, star)] = [altitudes?, angles?];
    if let Some(table) = table.filter(|_| low > 0.0 && low < SUSPECT[0]) {
        let meant = crate::plausible::readable(1e3 * low);
        warnings.push((table.refuse(Invalid::new("altitude", low, "")), format!(
            "no layer is higher than {low} m above the telescope; altitudes are in metres: did you mean {meant}? That is {low} km"
        )));
    }
    if let Some(star) = star.filter(|_| close > 1e-9 && close < SUSPECT[1]) {
        let meant = crate::plausible::readable((100.0 * close / ARCSEC).round() / 100.0);
        warnings.push((star.refuse(Invalid::new("zenith", close, "")), format!(
            "no direction is farther than {close} arcsec from the axis; these angles are in arcsec: did you mean {meant}? That is {close} rad"
        )));
    }
    let located = |(line, text): (BadLine, String)| {
        let value = line.value.as_deref().unwrap_or_default();
        format!("{}{} = {value}: {text}", line.location(), line.key)
    };
    Ok(warnings.into_iter().map(located).collect())
}

/// The largest number that tables have under a key, and its table.
fn largest<'d>(tables: Vec<Table<'d>>, key: &str) -> Result<(f64, Option<Table<'d>>), BadLine> {
    let mut most = (0.0, None);
    for table in tables {
        let number = table.optional(key, "a number")?.unwrap_or(0.0);
        if number > most.0 {
            most = (number, Some(table));
        }
    }
    Ok(most)
}

// Check the system as read
#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        atmosphere = { r0 = 0.2, outer_scale = inf, layers = [{ altitude = 0, fraction = 1 }] }\n\
        lenslet_array = { lenslets = 10 }\n\
        telescope = { diameter = 8 }\n\
        guide_star = [{ zenith = 3600, azimuth = 30 }, { lenslets = 5, height = 90e3 }]\n\
        phase = { points = 11, disc_radius = 10 }\n";

    #[test]
    fn units_and_defaults() {
        let system = System::from_toml(TEXT, "x.toml").unwrap();
        let [x, y] = system.guide_stars()[0].sensor.source.direction();
        assert!((x / DEGREE - 0.866_025_4).abs() < 1e-7 && (y / DEGREE - 0.5).abs() < 1e-12);
        assert_eq!(system.lenslet_array().pitch(), 0.8);
        assert_eq!(system.guide_stars()[1].sensor.array, LensletArray::new(5, 1.6).unwrap());
        assert_eq!(system.atmosphere().wavelength(), 500e-9);
        assert_eq!(system.validity(), Validity::LitFraction(0.5));
        let phase = system.phase().unwrap();
        assert!((phase.disc_radius - 4.848_137e-5).abs() < 1e-11 && phase.oversampling == 1);
    }
}
