// Tangled from book/src/tiptop-import.md: edit there, or here and run cargo tangle stitch.
//! Systems of TIPTOP's parameter files as system files.

// Imports of systems of TIPTOP
pub(crate) mod parameter_file;

use crate::error::{BadLine, Error, accept, length, not_negative, positive};
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::control::{ControlLoop, LoopKind};
use crate::model::lenslet_array::{LensletArray, Pupil};
use crate::model::light::FWHM;
use crate::model::mirror::{MirrorDesign, Spacing};
use crate::model::system::System;
use crate::units::{ARCSEC, DEGREE};
use parameter_file::{Comment, FromLiteral, Literal, ParameterEntry, ParameterFile, Section};
use std::f64::consts::PI;

// What is imported
/// A system of TIPTOP's as a system file, with the status of each key.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Imported {
    /// The text of the system file, with comments; those at its end name the keys that are not used.
    pub toml: String,
    /// Status of each key of the parameter file, in the file's order.
    pub keys: Vec<ImportedKey>,
    /// What the system file describes otherwise than the parameter file, in words, and how much that matters.
    pub warnings: Vec<String>,
}

/// A key of a parameter file, with its status.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImportedKey {
    /// Its section and its name: `atmosphere.Seeing`.
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
    /// Its value as it was written.
    pub value: String,
    /// Its status.
    pub status: KeyStatus,
}

// Status of an imported key
/// Status of an imported key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyStatus {
    /// Converted to these keys of the system file.
    Converted(String),
    /// Not used, for this reason.
    NotUsed(String),
    /// Not documented by TIPTOP, so that its meaning is unknown.
    Unknown,
}

// Import a file of TIPTOP
impl Imported {
    // Example of an import
    /// Imports the text of a parameter file of TIPTOP; `name` stands for the file in errors and comments.
    ///
    /// # Errors
    /// The first line that is broken, a section or a key that is missing, and values that no system has, each with file, line, section, key and what was expected.
    ///
    /// ```
    /// use lenslet::formats::Imported;
    /// use lenslet::model::System;
    /// let text = std::fs::read_to_string("book/systems/tiptop/MUSE_LTAO.ini")?;
    /// let imported = Imported::from_tiptop(&text, "MUSE_LTAO.ini")?;
    /// let system = System::from_toml(&imported.toml, "MUSE_LTAO.toml")?;
    /// assert_eq!((system.guide_stars().len(), system.lenslet_array().lenslets()), (5, 40));
    /// let wrong = Imported::from_tiptop(&text.replace("Seeing = 0.67", "Seeing = -1"), "x.ini").unwrap_err();
    /// assert_eq!(wrong.to_string(), "x.ini:19: atmosphere.Seeing = -1: expected a finite number greater than 0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_tiptop(text: &str, name: &str) -> Result<Self, Error> {
        let file = ParameterFile::parse(name, text)?;
        let mut notes = Notes::default();
        let view = TelescopeSection::read(&file)?;
        let stars = TiptopStars::read(&file, &view, &mut notes)?;
        let aims = Aims::read(&file, stars.of_high_orders, &mut notes)?;
        let rest = LoopAndImage::read(&file, &mut notes)?;
        note(&file, &mut notes);
        note_static(file.required("telescope")?, &mut notes)?;
        let keys = notes.statuses(&file);
        let mut page = written(name, (&view, &stars, &aims, &rest), &keys);
        page.comments(&file);
        let toml = page.0;
        System::from_toml(&toml, &format!("{name}, as it was converted"))?;
        Ok(Self { toml, keys, warnings: notes.warnings })
    }
}

// Sections of a file of TIPTOP
// Telescope and air of TIPTOP
// Telescope and air that are imported
/// The telescope and the air that it looks through.
struct TelescopeSection {
    pupil: Pupil,
    zenith_angle: f64,
    air: Atmosphere,
    /// The seeing or Fried parameter at the zenith from which that of the air is computed, in words.
    origin: String,
    outer_scale: f64,
}

impl TelescopeSection {
    fn read(file: &ParameterFile) -> Result<Self, BadLine> {
        let section = file.required("telescope")?;
        let diameter: f64 = section.required("TelescopeDiameter", METRES)?;
        section.check("TelescopeDiameter", length("", diameter))?;
        let obstruction = section.optional("ObscurationRatio", "a ratio of diameters")?;
        let pupil = Pupil::new(diameter, obstruction.unwrap_or(0.0));
        let pupil = section.check("ObscurationRatio", pupil)?;
        let expected = "an angle in degrees, from 0 to less than 90";
        let zenith_angle = section.optional("ZenithAngle", expected)?.unwrap_or(0.0);
        let good = (0.0..90.0).contains(&zenith_angle);
        section.check("ZenithAngle", accept(good, "", zenith_angle, expected))?;
        let (air, origin) = read_air(file.required("atmosphere")?, airmass(zenith_angle))?;
        let outer_scale = air.layers()[0].outer_scale;
        Ok(Self { pupil, zenith_angle, air, origin, outer_scale })
    }
}

// Airmass and layers
/// Ratio of the path through the air to that at the zenith.
fn airmass(zenith_angle: f64) -> f64 {
    1.0 / (zenith_angle * DEGREE).cos()
}

// Air of a section
/// The air along the line of sight, and in words the value at the zenith from which its Fried parameter is computed; Eq. [oblique air](https://lenslet.github.io/lenslet/tiptop-import.html#eq-oblique-air).
fn read_air(section: &Section, airmass: f64) -> Result<(Atmosphere, String), BadLine> {
    let wavelength = section.optional("Wavelength", METRES)?.unwrap_or(500e-9);
    let seeing: Option<f64> = section.optional("Seeing", "an angle in arcsec")?;
    let (r0, origin) = match seeing {
        Some(seeing) => {
            section.check("Seeing", positive("", seeing))?;
            let r0 = 0.976 * wavelength / (seeing * ARCSEC);
            (r0, format!("a seeing of {seeing} arcsec at the zenith"))
        }
        None => {
            let key = if section.entry("r0_Value").is_some() { "r0_Value" } else { "r0_value" };
            let missing = || section.missing("Seeing", "an angle in arcsec, or r0_value in metres");
            let r0: f64 = section.optional(key, METRES)?.ok_or_else(missing)?;
            section.check(key, length("", r0))?;
            (r0, format!("{r0} m at the zenith"))
        }
    };
    let outer_scale: f64 = section.optional("L0", METRES)?.unwrap_or(25.0);
    section.check("L0", length("", outer_scale))?;
    let layers = read_layers(section, airmass, outer_scale)?;
    let air = Atmosphere::new(r0 * airmass.powf(-0.6), wavelength, layers);
    Ok((section.check("Wavelength", air)?, origin))
}

// Layers of a section
fn read_layers(section: &Section, airmass: f64, outer_scale: f64) -> Result<Vec<Layer>, BadLine> {
    let weights = section.optional("Cn2Weights", "shares of the turbulence")?;
    let weights: Vec<f64> = weights.unwrap_or_else(|| vec![1.0]);
    let sum: f64 = weights.iter().sum();
    let good = weights.iter().all(|weight| *weight >= 0.0) && (sum - 1.0).abs() <= 1e-3;
    let expected = "shares that are not negative and sum to 1 within 1e-3";
    section.check("Cn2Weights", accept(good, "", sum, expected))?;
    let (n, alike) = (weights.len(), "Cn2Weights");
    let altitudes = as_long(section, "Cn2Heights", (n, alike), 0.0, "altitudes in metres")?;
    let speeds = as_long(section, "WindSpeed", (n, alike), 10.0, "speeds in m/s")?;
    let still = vec![0.0; n];
    let directions = match section.entry("WindDirection") {
        Some(_) => as_long(section, "WindDirection", (n, alike), 0.0, "angles in degrees")?,
        None => still,
    };
    let mut layers = Vec::new();
    // Layer of each weight
    for (l, weight) in weights.iter().enumerate() {
        let good = (0.0..=1e5).contains(&altitudes[l]);
        let expected = "altitudes in metres, from 0 to 1e5";
        section.check("Cn2Heights", accept(good, "", altitudes[l], expected))?;
        section.check("WindSpeed", not_negative("", speeds[l]))?;
        let layer = Layer::new(altitudes[l] * airmass, weight / sum, outer_scale);
        let wind_direction = directions[l] * DEGREE;
        layers.push(Layer { wind_speed: speeds[l], wind_direction, ..layer });
    }
    Ok(layers)
}

// One list as long as another
/// A list of `n` numbers, as many as another key has, or one number by default where the other key has one.
fn as_long(
    section: &Section,
    key: &str,
    (n, other): (usize, &str),
    default: f64,
    what: &str,
) -> Result<Vec<f64>, BadLine> {
    let expected = format!("{what}, as many as in {other}, {n}");
    let numbers: Vec<f64> = match section.optional(key, &expected)? {
        Some(numbers) => numbers,
        None if n == 1 => vec![default],
        None => return Err(section.missing(key, &expected)),
    };
    if numbers.len() == n { Ok(numbers) } else { Err(section.refuse(key, &expected)) }
}

/// A list of `n` items, or one that is meant for all of them.
fn for_each<T: FromLiteral + Clone>(
    section: &Section,
    key: &str,
    (n, of): (usize, &str),
    what: &str,
) -> Result<Option<Vec<T>>, BadLine> {
    let expected = format!("{what}, or a list of {n}, one for each {of}");
    let Some(items) = section.optional::<Vec<T>>(key, &expected)? else { return Ok(None) };
    match items.len() {
        1 => Ok(Some(vec![items[0].clone(); n])),
        length if length == n => Ok(Some(items)),
        _ => Err(section.refuse(key, &expected)),
    }
}

// Guide stars of TIPTOP
/// A guide star as a system file describes it.
struct Star {
    zenith: f64,
    azimuth: f64,
    height: Option<f64>,
    lenslets: usize,
    /// Side of its lenslets, where they are not as wide as the telescope together, m.
    pitch: Option<f64>,
    about: String,
    blind_to: [bool; 2],
    light: TiptopLight,
}

/// The noise of a star, or the light that it follows from.
enum TiptopLight {
    Noise(f64),
    Detected(Detected),
}

// Light that a sensor of TIPTOP detects
/// Detection of a sensor: the keys of `[guide_star.sensor]`.
struct Detected {
    photons: f64,
    /// Frames in a second, where the loop has another rate.
    rate: Option<f64>,
    wavelength: f64,
    pixel: f64,
    fwhm: Option<f64>,
    window: Option<usize>,
    read_noise: f64,
    excess_noise: f64,
    background: f64,
}

// All stars of TIPTOP
/// All stars.
struct TiptopStars {
    all: Vec<Star>,
    /// How many of them are for high orders; the first ones.
    of_high_orders: usize,
    /// Lenslets across the first of them.
    lenslets: usize,
}

impl TiptopStars {
    // Read all stars
    fn read(
        file: &ParameterFile,
        view: &TelescopeSection,
        notes: &mut Notes,
    ) -> Result<Self, BadLine> {
        let [of_high, of_low] = ["HO", "LO"].map(|order| Order { file, view, order });
        let sources = file.required("sources_HO")?;
        let height: Option<f64> =
            sources.optional("Height", METRES)?.filter(|height| *height != 0.0);
        height.map_or(Ok(0.0), |height| sources.check("Height", length("", height)))?;
        let lasers = height.map(|height| height * airmass(view.zenith_angle));
        // Refuse lasers below a layer
        let highest = view.air.layers().iter().map(|layer| layer.altitude).fold(0.0, f64::max);
        let good = lasers.is_none_or(|laser| laser > highest);
        let limit = highest / airmass(view.zenith_angle);
        let expected = format!("a height above the highest layer, which is at {limit:.1} m");
        sources.check("Height", accept(good, "", height, &expected))?;
        let low = file.section("sensor_LO").is_some();
        let focus = file.required("telescope")?.optional("glFocusOnNGS", "True or False")?;
        let blind_to = [low, low && focus.unwrap_or(false)];
        let mut all = of_high.read("sources_HO", "sensor_HO", (lasers, blind_to), notes)?;
        let (of_high_orders, lenslets) = (all.len(), all[0].lenslets);
        if low {
            all.extend(of_low.read("sources_LO", "sensor_LO", (None, [false; 2]), notes)?);
        }
        // Read sensors for focus
        match file.section("sensor_Focus") {
            Some(_) if blind_to[1] => {
                let of_focus = Order { order: "Focus", ..of_low };
                all.extend(of_focus.read(
                    "sources_LO",
                    "sensor_Focus",
                    (None, [false; 2]),
                    notes,
                )?);
            }
            Some(sensor) => notes.unused_section(sensor, "glFocusOnNGS is not True"),
            None => {}
        }
        Ok(Self { all, of_high_orders, lenslets })
    }
}

// Read the stars of a section
// Pair of sections about stars
/// A pair of sections about stars, and what else their light depends on.
#[derive(Clone, Copy)]
struct Order<'a> {
    file: &'a ParameterFile,
    view: &'a TelescopeSection,
    order: &'static str,
}

impl Order<'_> {
    fn read(
        self,
        sources: &str,
        sensor: &str,
        (height, blind_to): (Option<f64>, [bool; 2]),
        notes: &mut Notes,
    ) -> Result<Vec<Star>, BadLine> {
        let (section, sensor) = (self.file.required(sources)?, self.file.required(sensor)?);
        self.own_rate(notes)?;
        let directions = directions(section, ["Zenith", "Azimuth"])?;
        let each = (directions.len(), "star");
        let lenslets = for_each(sensor, "NumberLenslets", each, "a whole number")?;
        // Lenslets of each sensor
        let default = if self.order == "HO" { 20 } else { 1 };
        let lenslets: Vec<usize> = lenslets.unwrap_or_else(|| vec![default; each.0]);
        let lights = self.lights(sensor, &lenslets, notes)?;
        // Compare lenslets with the telescope
        let diameter = self.view.pupil.diameter();
        if let Some(sizes) = for_each::<f64>(sensor, "SizeLenslets", each, "a length in metres")? {
            let (across, size) = (lenslets[0], sizes[0]);
            if (size * across as f64 / diameter - 1.0).abs() > 0.01 {
                let width = size * across as f64;
                let reason = format!(
                    "a width of {across} × {size} m is {width:.1} m, and not {diameter} m; lenslets are as wide as the telescope"
                );
                notes.unused(sensor, &["SizeLenslets"], &reason);
            }
        }
        let mut stars = Vec::new();
        // Describe each star of a section
        for (k, (light, [zenith, azimuth])) in lights.into_iter().zip(directions).enumerate() {
            let kind = if height.is_some() { "laser" } else { "star" };
            let about = format!("{kind} {k} of [{}], [{}]", section.name, sensor.name);
            let lenslets = lenslets[k];
            let pitch = self.is_coarse(lenslets).then(|| self.side(lenslets));
            stars.push(Star { zenith, azimuth, height, lenslets, pitch, about, blind_to, light });
        }
        Ok(stars)
    }

    // Light of each sensor
    /// The light of each star on sensors with so many lenslets across.
    fn lights(
        self,
        sensor: &Section,
        lenslets: &[usize],
        notes: &mut Notes,
    ) -> Result<Vec<TiptopLight>, BadLine> {
        // Refuse sensors that are not ours
        let kind = sensor.optional::<String>("WfsType", "a name in quotes")?;
        if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("Shack-Hartmann")) {
            return Err(
                sensor.refuse("WfsType", "'Shack-Hartmann', as there is no other sensor here")
            );
        }
        for &across in lenslets {
            sensor.check("NumberLenslets", LensletArray::new(across, 1.0))?;
        }
        let each = (lenslets.len(), "star");
        let wavelength = self.wavelength()?;
        // Photons and variances of each star
        let photons: Option<Vec<f64>> =
            for_each(sensor, "NumberPhotons", each, "photons in a frame")?;
        let noiseless = sensor.optional("noNoise", "True or False")?.unwrap_or(false);
        let given = for_each::<Option<f64>>(sensor, "NoiseVariance", each, "a variance in rad²")?;
        let given = given.unwrap_or_else(|| vec![None; each.0]);
        // Note which keys of light are used
        let noisy = self.order == "HO" && given.iter().any(Option::is_some);
        match (noisy, noiseless) {
            (true, _) => notes.unused(sensor, &LIGHT, "NoiseVariance says how noisy slopes are"),
            (_, true) => notes.unused(sensor, &LIGHT, "noNoise is True"),
            (_, false) => notes.unused(sensor, &["noNoise"], "noise is that of the light"),
        }
        if self.order != "HO" {
            notes.unused(sensor, &["NoiseVariance"], "noise is that of the light, in TIPTOP, too");
        }
        let mut lights = Vec::new();
        for (k, &across) in lenslets.iter().enumerate() {
            let side = self.side(across);
            // Noise or light of one star
            lights.push(match (&photons, given[k]) {
                (_, Some(variance)) if self.order == "HO" => {
                    sensor.check("NoiseVariance", not_negative("", variance))?;
                    let shortest = self.shortest()?;
                    TiptopLight::Noise(variance * (shortest / (2.0 * PI * side)).powi(2))
                }
                (Some(photons), _) if !noiseless => {
                    let lit = self.most_lit(across);
                    let detected = self.detected(sensor, (wavelength, side), (k, each), notes)?;
                    sensor.check("NumberPhotons", positive("", photons[k]))?;
                    TiptopLight::Detected(Detected { photons: photons[k] / lit, ..detected })
                }
                _ => TiptopLight::Noise(0.0),
            });
        }
        Ok(lights)
    }

    // Wavelengths of sections
    /// The wavelength of the stars.
    fn wavelength(self) -> Result<f64, BadLine> {
        let section = self.file.required(&format!("sources_{}", self.order))?;
        let expected = "one wavelength in metres, between 1e-9 and 1e-3";
        let waves: Vec<f64> = section.required("Wavelength", expected)?;
        let good = waves.len() == 1 && (1e-9..=1e-3).contains(&waves[0]);
        section
            .check("Wavelength", accept(good, "", waves.first().copied().unwrap_or(0.0), expected))
    }

    /// The shortest wavelength of the images.
    fn shortest(self) -> Result<f64, BadLine> {
        let waves = wavelengths(self.file.required("sources_science")?)?;
        Ok(waves.into_iter().fold(f64::INFINITY, f64::min))
    }
}

// Read what a sensor detects
impl Order<'_> {
    /// What a sensor detects of star `k`, but for its photons; lenslets have this `side` \[m\].
    fn detected(
        self,
        sensor: &Section,
        (wavelength, side): (f64, f64),
        (k, each): (usize, (usize, &str)),
        notes: &mut Notes,
    ) -> Result<Detected, BadLine> {
        // Numbers that are not negative
        let number = |key: &str, what: &str| -> Result<Option<f64>, BadLine> {
            let number = sensor.optional::<f64>(key, what)?;
            number.map_or(Ok(0.0), |number| sensor.check(key, not_negative("", number)))?;
            Ok(number)
        };
        // Read the size of a pixel
        let pixel = for_each::<f64>(sensor, "PixelScale", each, "an angle in mas")?;
        let pixel = pixel.ok_or_else(|| sensor.missing("PixelScale", "an angle in mas"))?[k];
        sensor.check("PixelScale", positive("", pixel))?;
        // Excess noise and background
        let excess = number("ExcessNoiseFactor", "a factor of the variance")?.unwrap_or(1.0);
        let dark = number("Dark", "electrons in a second")?.unwrap_or(0.0);
        let sky = number("SkyBackground", "electrons in a second")?.unwrap_or(0.0);
        let background = if dark + sky > 0.0 { (dark + sky) / self.rate()? } else { 0.0 };
        if background == 0.0 {
            notes.unused(sensor, &["Dark", "SkyBackground"], "they are zero");
        }
        Ok(Detected {
            // Values of a detector
            photons: 0.0,
            rate: self.noted_rate(notes)?,
            wavelength,
            pixel: 1e-3 * pixel,
            fwhm: self.width(sensor, (wavelength, side), notes)?,
            window: window(sensor, notes)?,
            read_noise: number("SigmaRON", "electrons rms")?.unwrap_or(0.0),
            excess_noise: excess.sqrt(),
            background,
        })
    }

    // Frames in a second
    /// Frames in a second of these sensors.
    fn rate(self) -> Result<f64, BadLine> {
        let (key, expected) = (format!("SensorFrameRate_{}", self.order), "frames in a second");
        let section = match self.file.section("RTC") {
            None if self.order == "HO" => return Ok(500.0),
            _ => self.file.required("RTC")?,
        };
        let rate = match self.order {
            "HO" => section.optional(&key, expected)?.unwrap_or(500.0),
            _ => section.required(&key, expected)?,
        };
        section.check(&key, positive("", rate))
    }

    /// Frames in a second of these sensors, where the loop has another rate; the notes then name their key of the system file.
    fn noted_rate(self, notes: &mut Notes) -> Result<Option<f64>, BadLine> {
        let rate = self.own_rate(notes)?;
        if let (Some(section), Some(_)) = (self.file.section("RTC"), rate) {
            let key = format!("SensorFrameRate_{}", self.order);
            notes.converted(section, &key, "guide_star.sensor.rate");
        }
        Ok(rate)
    }

    /// Frames in a second of these sensors, where the file gives them and the loop, that of high orders, has another rate.
    fn own_rate(self, notes: &mut Notes) -> Result<Option<f64>, BadLine> {
        let key = format!("SensorFrameRate_{}", self.order);
        let given = self.file.section("RTC").filter(|section| section.entry(&key).is_some());
        let Some(section) = given.filter(|_| self.order != "HO") else { return Ok(None) };
        let (rate, common) = (self.rate()?, Self { order: "HO", ..self }.rate()?);
        if rate == common {
            notes.converted(section, &key, "loop.rate");
            return Ok(None);
        }
        let reason = format!(
            "the other sensors have {common} Hz, and all are taken to be in one loop at that rate. The delay and the servo-lag error of what \
             these sensors measure, and the noise that the loop passes on, are not those of {rate} Hz"
        );
        notes.warn(section, &key, &reason);
        Ok(Some(rate))
    }
}

// Width of a spot and its window
impl Order<'_> {
    /// The width of the spots, arcsec, where it is not the default.
    fn width(
        self,
        sensor: &Section,
        (wavelength, side): (f64, f64),
        notes: &mut Notes,
    ) -> Result<Option<f64>, BadLine> {
        let expected = "a list of widths in mas, such as [[0.0, 0.0, 0.0]]";
        let given: Option<Vec<Vec<f64>>> = sensor.optional("SpotFWHM", expected)?;
        let widths = given.into_iter().flatten().flat_map(|widths| widths.into_iter().take(2));
        let widest = 1e-3 * widths.fold(0.0, f64::max);
        sensor.check("SpotFWHM", not_negative("", widest))?;
        if widest == 0.0 {
            notes.unused(sensor, &["SpotFWHM"], "it is zero");
        }
        let diffraction = 0.886 * wavelength / side / ARCSEC;
        let seeing = self.view.air.seeing_at(wavelength) / ARCSEC;
        Ok(match self.order {
            "HO" if widest == 0.0 => None,
            "HO" => Some(widest.hypot(diffraction).hypot(seeing)),
            _ => Some(widest.hypot(diffraction)),
        })
    }
}

// Window under a spot
/// Pixels across the window of a centre of gravity, if the file says so.
fn window(sensor: &Section, notes: &mut Notes) -> Result<Option<usize>, BadLine> {
    let algorithm = sensor.optional::<String>("Algorithm", "a name in quotes")?;
    let (key, whole) = match algorithm.as_deref().unwrap_or("wcog") {
        "cog" => ("FieldOfView", "a whole number of pixels"),
        "wcog" => ("WindowRadiusWCoG", "pixels, or 'optimize'"),
        _ => return Ok(None),
    };
    if sensor.entry(key).is_some_and(|entry| entry.value == Literal::Text("optimize".into())) {
        return Ok(None);
    }
    let Some(pixels) = sensor.optional::<f64>(key, whole)? else { return Ok(None) };
    sensor.check(key, positive("", pixels))?;
    notes.converted(sensor, key, "guide_star.sensor.window");
    Ok(Some((pixels.round() as usize).max(2)))
}

// Light of the best lenslet
impl Order<'_> {
    /// Whether lenslets would reach far beyond the rim if they were as wide as the telescope.
    fn is_coarse(self, across: usize) -> bool {
        self.order != "HO" && across <= 2
    }

    /// The side of lenslets of which so many are across \[m\], Eq. [inscribed lenslets](https://lenslet.github.io/lenslet/tiptop-stars.html#eq-inscribed-lenslets).
    fn side(self, across: usize) -> f64 {
        let share = if self.is_coarse(across) { 0.5f64.sqrt() } else { 1.0 };
        let width = self.view.pupil.diameter() * share;
        width / across as f64
    }

    // Lit share of the best lenslet
    /// The lit share of that lenslet of an array over the pupil that has most light.
    fn most_lit(self, across: usize) -> f64 {
        let pupil = &self.view.pupil;
        let Ok(array) = LensletArray::new(across, self.side(across)) else {
            return 1.0;
        };
        let lit = |j: usize, i: usize| {
            pupil.lit_fraction([array.centre(i), array.centre(j)], array.pitch())
        };
        let mut most = 0.0;
        for (j, i) in (0..across).flat_map(|j| (0..across).map(move |i| (j, i))) {
            most = f64::max(most, lit(j, i));
            if most == 1.0 {
                break;
            }
        }
        if most > 0.0 { most } else { 1.0 }
    }
}

// Directions and mirrors of TIPTOP
/// Directions for images and mirrors, the mode, and the mirrors.
struct Aims {
    mode: &'static str,
    /// Zenith distance, azimuth and, where the mode has them, weight.
    targets: Targets,
    /// Directions that mirrors are for and that have no images, with their weights.
    optimisation: Targets,
    mirrors: Vec<[f64; 3]>,
}

impl Aims {
    // Read where mirrors are aimed at
    fn read(file: &ParameterFile, stars: usize, notes: &mut Notes) -> Result<Self, BadLine> {
        let (section, science) = (file.required("DM")?, file.required("sources_science")?);
        let mirrors = read_mirrors(section)?;
        let aims = directions(section, ["OptimizationZenith", "OptimizationAzimuth"])?;
        let each = (aims.len(), "direction");
        let weights = for_each(section, "OptimizationWeight", each, "a weight")?;
        let weights: Vec<f64> = weights.unwrap_or_else(|| vec![1.0; aims.len()]);
        for weight in &weights {
            section.check("OptimizationWeight", not_negative("", *weight))?;
        }
        let layers = section.optional::<usize>("NumberReconstructedLayers", "a whole number")?;
        // Choose the mode of an import
        let mode = match (mirrors.len(), stars, aims.len(), layers) {
            (1, 1, ..) => "scao",
            (1, _, 1, Some(2..) | None) => "ltao",
            (1, ..) => "glao",
            _ => "mcao",
        };
        let of_science = directions(science, ["Zenith", "Azimuth"])?;
        let alone =
            |all: Vec<[f64; 2]>| all.into_iter().map(|one| (one, None)).collect::<Targets>();
        let (targets, optimisation) = match mode {
            "ltao" if !same(aims[0], of_science[0]) => (alone(of_science), alone(aims.clone())),
            "scao" | "ltao" => (alone(of_science), Vec::new()),
            _ => with_weights(of_science, &aims, &weights),
        };
        // Note directions that a mode ignores
        match mode {
            "scao" => notes.unused(section, &AIMS, "the mirror is for the one guide star"),
            "ltao" => notes.unused(section, &AIMS[2..], "a single direction needs no weight"),
            _ => {}
        }
        if mode == "glao" && layers == Some(1) {
            notes.converted(section, "NumberReconstructedLayers", "correction.mode");
        }
        Ok(Self { mode, targets, optimisation, mirrors })
    }
}

// Read the mirrors of TIPTOP
/// Pitch, altitude and coupling of each mirror.
fn read_mirrors(section: &Section) -> Result<Vec<[f64; 3]>, BadLine> {
    let pitches: Vec<f64> = section.required("DmPitchs", "a length in metres for each mirror")?;
    let each = (pitches.len(), "DmPitchs");
    let altitudes = as_long(section, "DmHeights", (each.0, each.1), 0.0, "altitudes in metres")?;
    let couplings = for_each(section, "InfCoupling", (each.0, "mirror"), "a share from 0 to 1")?;
    let couplings: Vec<f64> = couplings.unwrap_or_else(|| vec![0.2; each.0]);
    let mut mirrors = Vec::new();
    for k in 0..each.0 {
        let design = MirrorDesign {
            altitude: altitudes[k],
            coupling: couplings[k],
            ..MirrorDesign::new(Spacing::Pitch(pitches[k]))
        };
        // Name the key of a wrong mirror
        design.check().map_err(|invalid| {
            let key = match invalid.quantity.as_str() {
                "altitude" => "DmHeights",
                "coupling" => "InfCoupling",
                _ => "DmPitchs",
            };
            section.refuse(key, &invalid.expected)
        })?;
        mirrors.push([pitches[k], altitudes[k], couplings[k]]);
    }
    section.check("DmPitchs", accept(!mirrors.is_empty(), "", 0, "at least one mirror"))?;
    Ok(mirrors)
}

// Read directions of a section
/// Zenith distances \[arcsec\] and azimuths \[degrees\]; one direction on the axis where there are none.
fn directions(section: &Section, keys: [&str; 2]) -> Result<Vec<[f64; 2]>, BadLine> {
    let expected = "angles in arcsec";
    let zeniths: Vec<f64> = section.optional(keys[0], expected)?.unwrap_or_else(|| vec![0.0]);
    let azimuths = as_long(section, keys[1], (zeniths.len(), keys[0]), 0.0, "angles in degrees")?;
    let expected = "angles from 0 to 20626 arcsec, at least one";
    let good = zeniths.iter().all(|zenith| (0.0..=20626.0).contains(zenith)) && !zeniths.is_empty();
    section.check(keys[0], accept(good, "", 0, expected))?;
    Ok(zeniths.into_iter().zip(azimuths).map(|(zenith, azimuth)| [zenith, azimuth]).collect())
}

/// The wavelengths of the images, m.
fn wavelengths(section: &Section) -> Result<Vec<f64>, BadLine> {
    let expected = "wavelengths in metres, between 1e-9 and 1e-3";
    let waves: Vec<f64> = section.required("Wavelength", expected)?;
    let good = !waves.is_empty() && waves.iter().all(|wave| (1e-9..=1e-3).contains(wave));
    section.check("Wavelength", accept(good, "", 0, expected))?;
    Ok(waves)
}

// Put directions of mirrors among targets
fn same([zenith, azimuth]: [f64; 2], other: [f64; 2]) -> bool {
    let place = |[zenith, azimuth]: [f64; 2]| {
        let (sin, cos) = (azimuth * DEGREE).sin_cos();
        [zenith * cos, zenith * sin]
    };
    let (a, b) = (place([zenith, azimuth]), place(other));
    f64::hypot(a[0] - b[0], a[1] - b[1]) < 1e-6
}

// Targets in their order
type Targets = Vec<([f64; 2], Option<f64>)>;

/// Directions of science, with the weights of those that mirrors are for as well, and the other directions that they are for.
fn with_weights(science: Vec<[f64; 2]>, aims: &[[f64; 2]], weights: &[f64]) -> (Targets, Targets) {
    let mut targets: Targets =
        science.into_iter().map(|direction| (direction, Some(0.0))).collect();
    let mut others = Targets::new();
    for (&aim, &weight) in aims.iter().zip(weights) {
        let known = targets.iter_mut().chain(&mut others).find(|(known, _)| same(*known, aim));
        match known {
            Some((_, sum)) => *sum = Some(sum.unwrap_or(0.0) + weight),
            None if weight > 0.0 => others.push((aim, Some(weight))),
            None => {}
        }
    }
    (targets, others)
}

// Loop and image of TIPTOP
// Values of loop and image
/// Loop and image.
struct LoopAndImage {
    /// Rate, gain and delay.
    control: [f64; 3],
    wavelengths: Vec<f64>,
    pixel: f64,
    pixels: Option<usize>,
    extra: f64,
    jitter: f64,
}

impl LoopAndImage {
    fn read(file: &ParameterFile, notes: &mut Notes) -> Result<Self, BadLine> {
        let control = read_control(file)?;
        let wavelengths = wavelengths(file.required("sources_science")?)?;
        let (camera, telescope) = (file.required("sensor_science")?, file.required("telescope")?);
        let pixel: f64 = camera.required("PixelScale", "an angle in mas")?;
        camera.check("PixelScale", positive("", pixel))?;
        // Pixels of the camera
        let expected = "a whole number of pixels from 1 to 16384, or -1 where TIPTOP shall choose";
        let pixels: f64 = camera.required("FieldOfView", expected)?;
        let good = pixels == -1.0 || (1.0..=16384.0).contains(&pixels) && pixels.fract() == 0.0;
        camera.check("FieldOfView", accept(good, "", pixels, expected))?;
        let pixels = (pixels > 0.0).then_some(pixels as usize);
        let extra = telescope.optional("extraErrorNm", "nanometres rms")?.unwrap_or(0.0);
        telescope.check("extraErrorNm", not_negative("", extra))?;
        let exponent = telescope.optional("extraErrorExp", "a number")?.unwrap_or(-2.0);
        if exponent == -2.0 {
            notes.converted(telescope, "extraErrorExp", "image.extra");
        }
        let jitter = read_jitter(telescope)?;
        Ok(Self { control, wavelengths, pixel, pixels, extra, jitter })
    }
}

// Read the loop and the jitter
/// Rate, gain and delay of the loop of high orders.
fn read_control(file: &ParameterFile) -> Result<[f64; 3], BadLine> {
    let defaults = [500.0, 0.5, 2.0];
    let keys = ["SensorFrameRate_HO", "LoopGain_HO", "LoopDelaySteps_HO"];
    let Some(section) = file.section("RTC") else { return Ok(defaults) };
    let mut values = defaults;
    for (value, key) in values.iter_mut().zip(keys) {
        *value = section.optional(key, "a number")?.unwrap_or(*value);
    }
    let [rate, gain, delay] = values;
    let control = ControlLoop { kind: LoopKind::Closed, rate, gain, delay };
    control.check().map_err(|invalid| {
        let key = match invalid.quantity.as_str() {
            "rate" => keys[0],
            "gain" => keys[1],
            _ => keys[2],
        };
        section.refuse(key, &invalid.expected)
    })?;
    Ok(values)
}

// Read the jitter of images
/// Jitter along each axis, mas rms.
fn read_jitter(telescope: &Section) -> Result<f64, BadLine> {
    let expected = "a width in mas, or two widths and an angle";
    let widths: Option<Option<Vec<f64>>> = telescope.optional("jitter_FWHM", expected)?;
    let square = match widths.flatten().as_deref() {
        None => 0.0,
        Some([width]) => width * width,
        Some([long, short, _]) => 0.5 * (long * long + short * short),
        Some(_) => return Err(telescope.refuse("jitter_FWHM", expected)),
    };
    Ok(square.sqrt() / FWHM)
}

// Write an imported system
/// The text of a system file, line by line.
#[derive(Default)]
struct Page(String);

impl Page {
    /// A line with a key, its value and a comment.
    fn key(&mut self, key: &str, value: impl std::fmt::Display, comment: &str) {
        let said = format!("{key} = {value}");
        let line = if comment.is_empty() { said } else { format!("{said:<25} # {comment}") };
        self.line(&line);
    }

    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }
}

// Tables in their order
type TiptopParts<'a> = (&'a TelescopeSection, &'a TiptopStars, &'a Aims, &'a LoopAndImage);

/// The system file of what was read from the parameter file of this name.
fn written(name: &str, (view, stars, aims, rest): TiptopParts, keys: &[ImportedKey]) -> Page {
    let mut page = Page::default();
    // Write where it is from
    let file =
        std::path::Path::new(name).file_name().map_or(name.into(), |file| file.to_string_lossy());
    let file: String = file.chars().filter(|c| !c.is_control()).collect();
    page.line(&format!("# From {file}, a parameter file of TIPTOP, by `lenslet import`."));
    if view.zenith_angle > 0.0 {
        let (angle, airmass) = (view.zenith_angle, airmass(view.zenith_angle));
        page.line(&format!("# It is observed {angle} degrees from the zenith: altitudes of layers, and heights of lasers, are {airmass:.4} times"));
        page.line("# those above the telescope.");
    }
    page.air(view);
    page.telescope(view, stars, aims);
    for (k, star) in stars.all.iter().enumerate() {
        page.star(star, (k == 0 || k == stars.of_high_orders, stars.lenslets));
    }
    page.targets(aims);
    page.mirrors(aims);
    page.control_and_image(rest);
    page.unused(keys);
    page
}

// Write each table
// Write telescope and air
impl Page {
    fn air(&mut self, view: &TelescopeSection) {
        self.line("\n[atmosphere]");
        let origin = format!("m, at `wavelength`; from {}", view.origin);
        self.key("r0", rounded(view.air.fried_parameter()), &origin);
        self.key("wavelength", nanometres(view.air.wavelength()), "m");
        self.key("outer_scale", rounded(view.outer_scale), "m");
        self.key("layers", "[", "m along the line of sight, share of r0^(-5/3), m/s, degrees");
        for layer in view.air.layers() {
            let altitude = rounded(layer.altitude);
            let (fraction, speed) = (rounded(layer.fraction), rounded(layer.wind_speed));
            let direction = rounded(layer.wind_direction / DEGREE);
            self.line(&format!(
                "    {{ altitude = {altitude}, fraction = {fraction}, wind_speed = {speed}, wind_direction = {direction} }},"
            ));
        }
        self.line("]");
    }

    fn telescope(&mut self, view: &TelescopeSection, stars: &TiptopStars, aims: &Aims) {
        self.line("\n[telescope]");
        self.key("diameter", rounded(view.pupil.diameter()), "m");
        self.key("obstruction", rounded(view.pupil.obstruction()), "ratio of diameters");
        self.line("\n[lenslet_array]");
        self.key("lenslets", stars.lenslets, "across the diameter");
        let finest = aims.mirrors.iter().map(|mirror| mirror[0]).fold(f64::INFINITY, f64::min);
        let across = (view.pupil.diameter() / finest - 1e-9).ceil() as usize;
        if across > stars.lenslets {
            self.line("\n[truth_sensor]");
            self.key("lenslets", across, "no lenslet wider than the pitch of a mirror");
        }
    }
}

// Write a guide star
impl Page {
    fn star(&mut self, star: &Star, (first, lenslets): (bool, usize)) {
        let with = |comment: &'static str| if first { comment } else { "" };
        self.line("");
        self.key_alone("[[guide_star]]", &star.about);
        self.key("zenith", rounded(star.zenith), with("arcsec"));
        self.key("azimuth", rounded(star.azimuth), with("degrees"));
        if let Some(height) = star.height {
            self.key("height", rounded(height), with("m"));
        }
        if star.lenslets != lenslets || star.pitch.is_some() {
            self.key("lenslets", star.lenslets, with("across"));
        }
        if let Some(pitch) = star.pitch {
            self.key("pitch", rounded(pitch), with("m: all within the pupil"));
        }
        for (key, _) in ["tip_tilt", "focus"].iter().zip(star.blind_to).filter(|(_, blind)| *blind)
        {
            self.key(key, "\"removed\"", with("natural stars measure it"));
        }
        match &star.light {
            TiptopLight::Noise(variance) => self.key("noise", rounded(*variance), with("rad²")),
            TiptopLight::Detected(light) => self.light(light, with),
        }
    }

    fn light(&mut self, light: &Detected, with: impl Fn(&'static str) -> &'static str) {
        self.line("[guide_star.sensor]");
        self.key(
            "photons",
            rounded(light.photons),
            with("of a lenslet that is wholly lit, in a frame"),
        );
        self.key("wavelength", nanometres(light.wavelength), with("m"));
        self.key("pixel", rounded(light.pixel), with("arcsec"));
        if let Some(fwhm) = light.fwhm {
            self.key("fwhm", rounded(fwhm), with("arcsec"));
        }
        if let Some(window) = light.window {
            self.key("window", window, with("pixels across"));
        }
        self.key("read_noise", rounded(light.read_noise), with("electrons rms"));
        self.key("excess_noise", rounded(light.excess_noise), with("of the rms"));
        if let Some(rate) = light.rate {
            self.key(
                "rate",
                rounded(rate),
                with("Hz, of this sensor; [loop] has that of the others"),
            );
        }
        if light.background > 0.0 {
            self.key("background", rounded(light.background), with("of a pixel, in a frame"));
        }
    }

    fn key_alone(&mut self, head: &str, comment: &str) {
        self.line(&format!("{head:<25} # {comment}"));
    }
}

// Write targets and mirrors
impl Page {
    fn targets(&mut self, aims: &Aims) {
        for (t, ([zenith, azimuth], weight)) in aims.targets.iter().enumerate() {
            let with = |comment: &'static str| if t == 0 { comment } else { "" };
            self.line("");
            let about = match (aims.mode, t) {
                ("ltao", 0) if aims.optimisation.is_empty() => "what the mirror is for",
                _ => "",
            };
            if about.is_empty() {
                self.line("[[target]]")
            } else {
                self.key_alone("[[target]]", about)
            }
            self.key("zenith", rounded(*zenith), with("arcsec"));
            self.key("azimuth", rounded(*azimuth), with("degrees"));
            if let Some(weight) = weight {
                self.key("weight", rounded(*weight), with("in the compromise of the mirrors"));
            }
        }
        for (k, ([zenith, azimuth], weight)) in aims.optimisation.iter().enumerate() {
            self.line("");
            match k {
                0 => self.key_alone("[[optimisation]]", "what the mirrors are for; without images"),
                _ => self.line("[[optimisation]]"),
            }
            self.key("zenith", rounded(*zenith), "");
            self.key("azimuth", rounded(*azimuth), "");
            if let Some(weight) = weight {
                self.key("weight", rounded(*weight), "");
            }
        }
    }

    fn mirrors(&mut self, aims: &Aims) {
        self.line("\n[correction]");
        self.key("mode", format!("{:?}", aims.mode), "");
        for [pitch, altitude, coupling] in &aims.mirrors {
            self.line("\n[[mirror]]");
            self.key("pitch", rounded(*pitch), "m");
            self.key("altitude", rounded(*altitude), "m, that it is conjugate to");
            self.key("coupling", rounded(*coupling), "of a Gaussian at the next actuator");
        }
    }
}

// Write loop and image
impl Page {
    fn control_and_image(&mut self, rest: &LoopAndImage) {
        let [rate, gain, delay] = rest.control;
        self.line("\n[loop]");
        self.key("kind", "\"closed\"", "");
        self.key("rate", rounded(rate), "Hz");
        self.key("gain", rounded(gain), "");
        self.key("delay", rounded(delay), "frames");
        self.line("\n[image]");
        let waves: Vec<String> = rest.wavelengths.iter().copied().map(nanometres).collect();
        self.key("wavelengths", format!("[{}]", waves.join(", ")), "m");
        self.key("pixel", rounded(rest.pixel), "mas");
        if let Some(pixels) = rest.pixels {
            self.key("pixels", pixels, "across");
        }
        if rest.extra > 0.0 {
            self.key("extra", rounded(rest.extra), "nm rms, of what is not modelled");
        }
        if rest.jitter > 0.0 {
            self.key("jitter", rounded(rest.jitter), "mas rms along each axis");
        }
    }

    fn unused(&mut self, keys: &[ImportedKey]) {
        let line_of = |key: &ImportedKey| match &key.status {
            KeyStatus::Converted(_) => None,
            KeyStatus::NotUsed(reason) => Some(format!("# {} = {}: {reason}", key.key, key.value)),
            KeyStatus::Unknown => Some(format!("# {} = {}: unknown", key.key, key.value)),
        };
        let lines: Vec<String> = keys.iter().filter_map(line_of).collect();
        if !lines.is_empty() {
            self.line("\n# Not used:");
            lines.iter().for_each(|line| self.line(line));
        }
    }

    /// The comments of a parameter file, each with its line and the key that it is about: the next one.
    fn comments(&mut self, file: &ParameterFile) {
        if !file.comments.is_empty() {
            self.line("\n# Comments of the parameter file, each with its line and the next key:");
        }
        let entries = file.sections.iter().flat_map(|section| {
            section.entries.iter().map(move |entry| (entry.line, &section.name, &entry.key))
        });
        let entries: Vec<_> = entries.collect();
        for Comment { line, text } in &file.comments {
            let next = entries.iter().find(|(at, ..)| at >= line);
            let about = next.map_or("end".into(), |(_, section, key)| format!("{section}.{key}"));
            let text: String = text.chars().filter(|c| !c.is_control()).collect();
            self.line(&format!("# {line}, {about}: {text}"));
        }
    }
}

// Numbers for a person
/// A number with seven digits, as TOML writes it.
fn rounded(x: f64) -> String {
    let short: f64 = format!("{x:.6e}").parse().unwrap_or(x);
    format!("{short:?}")
}

/// A wavelength in metres.
fn nanometres(x: f64) -> String {
    let nano: f64 = format!("{:.6e}", 1e9 * x).parse().unwrap_or(1e9 * x);
    format!("{nano}e-9")
}

// Keys of TIPTOP and their status
/// Keys, with those to which they are converted, or after a minus the reason why they are not used.
type KeyStatuses = &'static [(&'static [&'static str], &'static str)];

// Tables of documented keys
// Status of keys about the telescope
const TELESCOPE: KeyStatuses = &[
    (&["TelescopeDiameter"], "telescope.diameter"),
    (&["ObscurationRatio"], "telescope.obstruction"),
    (&["ZenithAngle"], "atmosphere.r0, atmosphere.layers.altitude, guide_star.height"),
    (&["extraErrorNm"], "image.extra"),
    (&["extraErrorExp"], "-the spectrum of image.extra has the exponent -2"),
    (
        &["extraErrorMin", "extraErrorMax"],
        "-image.extra is from one period in the pupil to the finest",
    ),
    (&["jitter_FWHM"], "image.jitter"),
    (&["glFocusOnNGS"], "guide_star.focus"),
    (&["Resolution"], "-the grid of the pupil follows from pixels and actuators"),
    (&["PathPupil"], "-the pupil is the ring of telescope.diameter and obstruction, not a mask"),
    (&["PupilAngle"], "-a ring is the same at all angles"),
    (&["PathStaticOn", "PathStaticOff", "PathStaticPos", "PathStatModes", "zCoefStaticOn"], STATIC),
    (&["PathApodizer"], "-pupils are transparent or dark"),
    (
        &["windPsdFile"],
        "-no spectrum of vibrations is read; their rms can be added to image.jitter",
    ),
    (&["extraErrorLoNm", "extraErrorLoExp", "extraErrorLoMin", "extraErrorLoMax"], NATURAL),
    (&["TechnicalFoV"], "-mirrors are as wide as the beams of all targets"),
];

// Status of keys about air and sources
const ATMOSPHERE: KeyStatuses = &[
    (&["Seeing", "r0_value", "r0_Value"], "atmosphere.r0"),
    (&["Wavelength"], "atmosphere.wavelength"),
    (&["L0"], "atmosphere.outer_scale"),
    (&["Cn2Weights"], "atmosphere.layers.fraction"),
    (&["Cn2Heights"], "atmosphere.layers.altitude"),
    (&["WindSpeed"], "atmosphere.layers.wind_speed"),
    (&["WindDirection"], "atmosphere.layers.wind_direction"),
    (&["testWindspeed", "oneWindSpeed"], "-each layer has a wind of its own"),
];

// Status of keys about sources
const SOURCES_SCIENCE: KeyStatuses = &[
    (&["Wavelength"], "image.wavelengths"),
    (&["Zenith"], "target.zenith"),
    (&["Azimuth"], "target.azimuth"),
];

const SOURCES_HO: KeyStatuses = &[
    (&["Wavelength"], "guide_star.sensor.wavelength"),
    (&["Zenith"], "guide_star.zenith"),
    (&["Azimuth"], "guide_star.azimuth"),
    (&["Height"], "guide_star.height"),
];

const SOURCES_LO: KeyStatuses = &[
    (&["Wavelength"], "guide_star.sensor.wavelength"),
    (&["Zenith"], "guide_star.zenith"),
    (&["Azimuth"], "guide_star.azimuth"),
    (&["Height"], "-natural stars are at infinity"),
];

// Status of keys about sensors
const SENSOR: KeyStatuses = &[
    (&["WfsType"], "guide_star, whose sensors are Shack–Hartmann's"),
    (&["NumberLenslets"], "lenslet_array.lenslets, guide_star.lenslets"),
    (&["SizeLenslets"], "lenslet_array.lenslets"),
    (&["NumberPhotons"], "guide_star.sensor.photons"),
    (&["PixelScale"], "guide_star.sensor.pixel"),
    (&["SpotFWHM"], "guide_star.sensor.fwhm"),
    (&["SigmaRON"], "guide_star.sensor.read_noise"),
    (&["ExcessNoiseFactor"], "guide_star.sensor.excess_noise"),
    (&["Dark", "SkyBackground"], "guide_star.sensor.background"),
    (&["Algorithm"], "guide_star.sensor.window"),
    (&["NoiseVariance", "noNoise"], "guide_star.noise"),
    (&["FieldOfView"], "-only with Algorithm = 'cog' it is the window"),
    (&["WindowRadiusWCoG"], "-only as a number and with Algorithm = 'wcog' it is the window"),
    (&["ThresholdWCoG", "NewValueThrPix"], "-slopes are centres of gravity without a threshold"),
    (&["Binning", "Modulation"], "-of pyramids, which are not here"),
    (&["SpectralBandwidth", "Transmittance", "Dispersion"], "-sensors have one wavelength"),
    (&["Gain"], "-noise is in electrons before they are multiplied"),
    (&["addMcaoWFsensConeError"], "-the cone of each laser is exact in all covariances"),
    (&["filtZernikeCov"], "-tilt is reconstructed together with all else"),
    (&["addAliasError"], "-what a sensor takes for tilt is in the covariances"),
];

// Status of keys about cameras
const CAMERA: KeyStatuses = &[
    (&["PixelScale"], "image.pixel"),
    (&["FieldOfView"], "image.pixels"),
    (&["Zenith", "Azimuth"], "-directions are those of [sources_science]"),
    (&["Super_Sampling", "Name", "Wavelength"], PERFECT),
    (&["Binning", "SpotFWHM", "Saturation", "NumberPhotons", "SigmaRON", "Gain"], PERFECT),
    (&["SkyBackground", "Dark", "ExcessNoiseFactor", "SpectralBandwidth"], PERFECT),
    (&["Transmittance", "Dispersion"], PERFECT),
];

// Status of keys about mirrors and loops
const MIRRORS: KeyStatuses = &[
    (&["DmPitchs"], "mirror.pitch"),
    (&["DmHeights"], "mirror.altitude"),
    (&["InfCoupling"], "mirror.coupling"),
    (&["InfModel"], "-influence functions are Gaussians"),
    (&["OptimizationZenith", "OptimizationAzimuth"], "target, optimisation"),
    (&["OptimizationWeight"], "target.weight, optimisation.weight"),
    (&["NumberActuators"], "-pitches say where actuators are, in TIPTOP, too"),
    (&["OptimizationConditioning"], "-mirror.filter is of another matrix"),
    (&["NumberReconstructedLayers"], "-all layers are reconstructed"),
    (&["AoArea"], "-a mirror corrects a square of frequencies"),
];

// Status of keys about loops
const LOOPS: KeyStatuses = &[
    (&["LoopGain_HO"], "loop.gain"),
    (&["SensorFrameRate_HO"], "loop.rate"),
    (&["LoopDelaySteps_HO"], "loop.delay"),
    (&["LoopGain_LO", "SensorFrameRate_LO", "LoopDelaySteps_LO", "MMSE_Rec_LO"], ONE_LOOP),
    (&["LoopGain_Focus", "SensorFrameRate_Focus", "LoopDelaySteps_Focus"], ONE_LOOP),
    (&["ResidualError"], "-errors are computed"),
];

const COMPUTATION: KeyStatuses = &[(
    &["platform", "precision", "integralDiscretization1", "integralDiscretization2"],
    "-it is about TIPTOP's own computation",
)];

// Reasons for keys without a place
const STATIC: &str = "-static aberrations are not modelled; their rms can be added to image.extra";
const NATURAL: &str = "-spots of natural stars are as sharp as their lenslets allow";
const PERFECT: &str = "-images are of one wavelength each, and without noise";
const ONE_LOOP: &str = "-there is one loop for all sensors, that of high orders";
const METRES: &str = "a length in metres";

/// Keys about light, where noise is given.
const LIGHT: [&str; 8] = [
    "NumberPhotons",
    "PixelScale",
    "SpotFWHM",
    "SigmaRON",
    "ExcessNoiseFactor",
    "Dark",
    "SkyBackground",
    "Algorithm",
];

/// Keys about directions that a mirror is for.
const AIMS: [&str; 3] = ["OptimizationZenith", "OptimizationAzimuth", "OptimizationWeight"];

// Sections and their keys
/// Status of the documented keys of a section.
fn statuses_of(section: &str) -> KeyStatuses {
    match section {
        "telescope" => TELESCOPE,
        "atmosphere" => ATMOSPHERE,
        "sources_science" => SOURCES_SCIENCE,
        "sources_HO" => SOURCES_HO,
        "sources_LO" | "sources_Focus" => SOURCES_LO,
        "sensor_HO" | "sensor_LO" | "sensor_Focus" => SENSOR,
        "sensor_science" => CAMERA,
        "DM" => MIRRORS,
        "RTC" => LOOPS,
        "COMPUTATION" | "Computation" => COMPUTATION,
        _ => &[],
    }
}

/// Notes on keys, and warnings, that are collected while a file is read.
#[derive(Default)]
struct Notes {
    statuses: Vec<(String, KeyStatus)>,
    warnings: Vec<String>,
}

impl Notes {
    // Take notes of keys
    /// Notes that a key of a section is converted to the key `to`.
    fn converted(&mut self, section: &Section, key: &str, to: &str) {
        self.statuses.push((format!("{}.{key}", section.name), KeyStatus::Converted(to.into())));
    }

    /// Notes that keys of a section are not used.
    fn unused(&mut self, section: &Section, keys: &[&str], reason: &str) {
        for key in keys {
            self.statuses
                .push((format!("{}.{key}", section.name), KeyStatus::NotUsed(reason.into())));
        }
    }
    /// Warns of what is described otherwise than by a key of a section.
    fn warn(&mut self, section: &Section, key: &str, reason: &str) {
        let Some(ParameterEntry { line, written, .. }) = section.entry(key) else { return };
        let warning = format!("line {line}: {}.{key} = {written}: {reason}", section.name);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
    /// Notes that no key of a section is used.
    fn unused_section(&mut self, section: &Section, reason: &str) {
        let keys: Vec<&str> = section.entries.iter().map(|entry| entry.key.as_str()).collect();
        self.unused(section, &keys, reason);
    }

    // List the status of all keys
    /// Status of each key of a file.
    fn statuses(&self, file: &ParameterFile) -> Vec<ImportedKey> {
        let status_of = |section: &Section, entry: &ParameterEntry| {
            let key = format!("{}.{}", section.name, entry.key);
            let noted = self.statuses.iter().rev().find(|(noted, _)| *noted == key);
            let status = noted
                .map_or_else(|| documented(&section.name, entry), |(_, status)| status.clone());
            ImportedKey { key, line: entry.line, value: entry.written.clone(), status }
        };
        let of = |section: &Section| {
            section.entries.iter().map(|entry| status_of(section, entry)).collect::<Vec<_>>()
        };
        file.sections.iter().flat_map(of).collect()
    }
}

// Documented status of a key
/// Status of a key that does not depend on other keys of the file.
fn documented(section: &str, entry: &ParameterEntry) -> KeyStatus {
    let known = statuses_of(section).iter().find(|(keys, _)| keys.contains(&entry.key.as_str()));
    let Some((_, place)) = known else { return KeyStatus::Unknown };
    let is_none = |value: &Literal| *value == Literal::None;
    let nothing = match &entry.value {
        Literal::List(items) => items.iter().all(is_none),
        Literal::Text(text) => text.is_empty(),
        value => is_none(value),
    };
    match place.strip_prefix('-') {
        Some(reason) => KeyStatus::NotUsed(reason.into()),
        None if nothing => KeyStatus::NotUsed("it says nothing".into()),
        None => KeyStatus::Converted((*place).into()),
    }
}

// Note what depends on several keys
/// Notes that depend on several keys.
fn note(file: &ParameterFile, notes: &mut Notes) {
    if let Some(section) = file.section("atmosphere").filter(|air| air.entry("Seeing").is_some()) {
        notes.unused(
            section,
            &["r0_value", "r0_Value"],
            "Seeing says how strong the turbulence is",
        );
    }
    let without = [
        ("sources_LO", file.section("sensor_LO").is_none(), "there is no [sensor_LO]"),
        ("sources_Focus", file.section("sensor_Focus").is_none(), "there is no [sensor_Focus]"),
    ];
    for (name, missing, reason) in without {
        if let Some(section) = file.section(name).filter(|_| missing) {
            notes.unused_section(section, reason);
        }
    }
}

// Static aberrations in nanometres
// Names of Zernike modes
/// Names of the first Zernike modes from tip on, in Noll's order.
const MODES: [&str; 10] = [
    "tip",
    "tilt",
    "focus",
    "astigmatism",
    "astigmatism",
    "coma",
    "coma",
    "trefoil",
    "trefoil",
    "spherical",
];

/// Notes the static aberrations that are not modelled, in nanometres rms; amplitudes are of Zernike modes of unit variance, from tip on.
fn note_static(telescope: &Section, notes: &mut Notes) -> Result<(), BadLine> {
    let key = "zCoefStaticOn";
    let expected = "a list of the amplitudes of Zernike modes in nm rms, from tip on";
    let amplitudes = telescope.optional::<Vec<f64>>(key, expected)?.unwrap_or_default();
    let rms = amplitudes.iter().map(|amplitude| amplitude * amplitude).sum::<f64>().sqrt();
    if rms > 0.0 {
        // List the static aberrations
        let of_mode = |(k, amplitude): (usize, &f64)| {
            let name =
                MODES.get(k).map_or_else(|| format!("mode {}", k + 2), |name| (*name).into());
            (*amplitude != 0.0).then(|| format!("{name} {amplitude} nm"))
        };
        let parts: Vec<String> = amplitudes.iter().enumerate().filter_map(of_mode).collect();
        let short: f64 = format!("{rms:.4e}").parse().unwrap_or(rms);
        let reason = format!(
            "a static aberration of {short} nm rms ({}) is not modelled; its rms can be added to image.extra",
            parts.join(", ")
        );
        notes.unused(telescope, &[key], &reason);
        notes.warn(telescope, key, &reason);
    }
    // Note files of static aberrations
    for key in ["PathStaticOn", "PathStaticOff"] {
        let path = telescope.optional::<String>(key, "the name of a file, in quotes")?;
        if path.is_some_and(|path| !path.is_empty()) {
            let reason = "the static aberration of this file is not modelled; its rms in nm can be added to image.extra";
            notes.unused(telescope, &[key], reason);
            notes.warn(telescope, key, reason);
        }
    }
    Ok(())
}

// Tests of systems of TIPTOP
#[cfg(test)]
mod tests {
    use super::*;

    const MUSE: &str = include_str!("../../book/systems/tiptop/MUSE_LTAO.ini");

    fn imported(text: &str) -> (Imported, System) {
        let imported = Imported::from_tiptop(text, "x.ini").unwrap();
        let system = System::from_toml(&imported.toml, "x.toml").unwrap();
        (imported, system)
    }

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} and {expected}");
    }

    // Numbers that follow by hand
    #[test]
    fn the_air_is_seen_obliquely() {
        let (_, system) = imported(MUSE);
        let (air, airmass) = (system.atmosphere(), 1.094_636_28);
        near(air.fried_parameter(), 0.142_301_1);
        near(air.layers()[9].altitude, 14e3 * airmass);
        near(system.guide_stars()[2].sensor.source.height(), 90e3 * airmass);
        assert_eq!(air.layers()[7].wind_speed, 30.2);
        near(air.layers()[7].wind_direction, 0.5 * PI);
        assert_eq!(system.guide_stars()[4].sensor.source.height(), f64::INFINITY);
        // A Fried parameter in place of the seeing, and shares that do not quite sum to 1.
        let text = MUSE.replace("Seeing = 0.67", "r0_value = 0.16").replace("[0.59,", "[0.5895,");
        let (_, system) = imported(&text);
        near(system.atmosphere().fried_parameter(), 0.16 * airmass.powf(-0.6));
        near(system.atmosphere().layers()[0].fraction, 0.5895 / 0.9995);
        // Defaults: one layer on the ground, at the zenith.
        let profile = ["Cn2Weights", "Cn2Heights", "WindSpeed", "WindDirection", "ZenithAngle"];
        let keeps = |line: &&str| !profile.iter().any(|key| line.starts_with(key));
        let text: Vec<&str> = MUSE.lines().filter(keeps).collect();
        let (_, system) = imported(&text.join("\n"));
        let layers = system.atmosphere().layers();
        assert_eq!((layers.len(), layers[0].altitude, layers[0].wind_speed), (1, 0.0, 10.0));
        near(system.atmosphere().fried_parameter(), 0.150_234_7);
    }

    // Light of sensors by hand
    #[test]
    fn light_is_that_of_the_file() {
        let number = |toml: &str, star: usize, key: &str| -> f64 {
            let table = toml.split("[[guide_star]]").nth(star + 1).unwrap();
            let line = table.lines().find(|line| line.starts_with(&format!("{key} ="))).unwrap();
            line.split(['=', '#']).nth(1).unwrap().trim().parse().unwrap()
        };
        let (first, system) = imported(MUSE);
        near(number(&first.toml, 4, "photons"), 200.0 / (1.0 - 0.246_301 / 8.0));
        near(system.guide_stars()[4].sensor.array.pitch(), 2.828_427);
        near(number(&first.toml, 0, "excess_noise"), 2f64.sqrt());
        assert_eq!(
            [number(&first.toml, 0, "photons"), number(&first.toml, 0, "window")],
            [200.0, 6.0]
        );
        // 1.5″ of the file, the seeing at 589 nm and 0.886 λ/d.
        let seeing: f64 = 0.975_863 * 589e-9 / (0.142_301_1 * 1.178f64.powf(1.2)) / ARCSEC;
        let diffraction: f64 = 0.886 * 589e-9 / 0.2 / ARCSEC;
        let width = (1.5f64.powi(2) + seeing * seeing + diffraction * diffraction).sqrt();
        near(number(&first.toml, 0, "fwhm"), width);
        let text = MUSE.replace("NumberLenslets = [2]", "NumberLenslets = [1]");
        let sky = "NumberPhotons = [200]\nSkyBackground = 35.0\nDark = 30";
        let dull = text.replace("NumberPhotons = [200]", sky).replacen("\nDark = 0.0", "", 2);
        let dull = dull.replace("\nSkyBackground = 0.0", "");
        let (single, _) = imported(&dull);
        near(number(&single.toml, 4, "photons"), 200.0 / (1.0 - 4.0 * 0.246_301 / 32.0));
        near(number(&single.toml, 4, "background"), 65.0 / 200.0);
        // A variance that is given, in rad² at 500 nm and across 0.2 m.
        let given = MUSE.replace("addMcaoWFsensConeError = True", "NoiseVariance = [0.3]");
        let (given, _) = imported(&given);
        near(number(&given.toml, 1, "noise"), 0.3 * (500e-9 / (2.0 * PI * 0.2)).powi(2));
        near(number(&first.toml, 4, "pixel"), 0.078);
        assert!(first.toml.contains("jitter = 10.61652") && first.toml.contains("extra = 120.0"));
    }

    // Modes and their targets
    #[test]
    fn mirrors_are_aimed_where_the_file_says() {
        let aimed = |text: &str| {
            let (imported, system) = imported(text);
            let mode = imported.toml.split("mode = \"").nth(1).unwrap()[..4].to_string();
            let weights: Vec<String> = imported
                .toml
                .lines()
                .filter_map(|line| line.strip_prefix("weight = "))
                .map(|weight| weight.split('#').next().unwrap().trim().into())
                .collect();
            (mode, system.targets().len(), weights.join(" "))
        };
        assert_eq!(aimed(MUSE), ("ltao".into(), 1, String::new()));
        // A target of science away from what the mirror is for, which comes first.
        let aside = MUSE.replacen(
            "Zenith  = [0]\nAzimuth = [0]",
            "Zenith = [5.0, 0]\nAzimuth = [30, 70]",
            1,
        );
        assert_eq!(aimed(&aside), ("ltao".into(), 2, String::new()));
        let (_, system) = imported(&aside);
        near(system.targets()[0].direction()[1], 2.5 * ARCSEC);
        assert_eq!(system.optimisation()[0].0.direction(), [0.0, 0.0]);
        let several = aside
            .replace("OptimizationZenith = [0]", "OptimizationZenith = [0, 9]")
            .replace("OptimizationAzimuth = [0]", "OptimizationAzimuth = [0, 10]")
            .replace("OptimizationWeight = [1]", "OptimizationWeight = [1, 2]");
        assert_eq!(aimed(&several), ("glao".into(), 2, "0.0 1.0 2.0".into()));
        let series = several
            .replace("DmPitchs = [0.222]", "DmPitchs = [0.222, 0.3]")
            .replace("DmHeights = [0.0]", "DmHeights = [0.0, 6000]");
        assert_eq!(aimed(&series), ("mcao".into(), 2, "0.0 1.0 2.0".into()));
        let ground =
            MUSE.replace("NumberReconstructedLayers = 10", "NumberReconstructedLayers = 1");
        assert_eq!(aimed(&ground), ("glao".into(), 1, "1.0".into()));
        let eris = include_str!("../../book/systems/tiptop/ERIS_LGS.ini");
        assert_eq!(aimed(eris), ("scao".into(), 1, String::new()));
    }

    // Each key has a status
    #[test]
    fn each_key_is_converted_or_named() {
        for text in [
            MUSE,
            include_str!("../../book/systems/tiptop/ERIS_LGS.ini"),
            include_str!("../../book/systems/tiptop/HarmoniLTAO_1.ini"),
            include_str!("../../book/systems/tiptop/MAVIS.ini"),
            include_str!("../../book/systems/tiptop/MORFEO.ini"),
        ] {
            let (imported, _) = imported(text);
            let lines: Vec<&str> = text.lines().collect();
            for key in &imported.keys {
                assert_ne!(key.status, KeyStatus::Unknown, "{key:?}");
                let name = key.key.split('.').nth(1).unwrap();
                assert!(lines[key.line - 1].starts_with(name), "{key:?}");
                let named = imported.toml.contains(&format!("# {} = {}: ", key.key, key.value));
                assert_eq!(named, matches!(key.status, KeyStatus::NotUsed(_)), "{key:?}");
                // What a key becomes is in the file that is written.
                if let KeyStatus::Converted(to) = &key.status {
                    let last = to.split([',', ' ']).next().unwrap().rsplit('.').next().unwrap();
                    assert!(imported.toml.contains(last), "{key:?}");
                }
            }
            let keys =
                lines.iter().filter(|line| line.contains('=') && !line.starts_with([';', '#']));
            assert_eq!(imported.keys.len(), keys.count());
        }
        let (strange, _) = imported(
            &MUSE.replace("PupilAngle", "PupilAngel").replace("[DM]", "[Spare]\nx = 1\n[DM]"),
        );
        let unknown: Vec<&str> = (strange.keys.iter())
            .filter(|key| key.status == KeyStatus::Unknown)
            .map(|key| key.key.as_str())
            .collect();
        assert_eq!(unknown, ["telescope.PupilAngel", "Spare.x"]);
    }

    // Refuse systems one by one
    /// Makes one mistake after the other, a line each: what is written, what in its place, and how the complaint begins.
    fn refuse(mistakes: &str) {
        for mistake in mistakes.trim().lines() {
            let parts: Vec<&str> = mistake.split(" | ").map(str::trim).collect();
            let [from, to, expected] = parts[..] else { panic!("{mistake}") };
            assert!(MUSE.contains(from), "{from}");
            let refused = Imported::from_tiptop(&MUSE.replacen(from, to, 1), "x.ini");
            let refused = refused.unwrap_err().to_string();
            assert!(refused.starts_with(&format!("x.ini:{expected}")), "{mistake}:\n{refused}");
        }
    }

    // Mistakes about telescope and air
    #[test]
    fn mistakes_about_the_air_are_told_by_line_section_and_key() {
        refuse(
            "
    TelescopeDiameter = 8.0 |  | 1: telescope.TelescopeDiameter is missing: expected a length
    TelescopeDiameter = 8.0 | TelescopeDiameter = '8 m' | 2: telescope.TelescopeDiameter = '8 m': expected a length in metres
    TelescopeDiameter = 8.0 | TelescopeDiameter = -8 | 2: telescope.TelescopeDiameter = -8: expected a length
    ZenithAngle = 24 | ZenithAngle = 90 | 3: telescope.ZenithAngle = 90: expected an angle in degrees
    ObscurationRatio = 0.14 | ObscurationRatio = 1.4 | 4: telescope.ObscurationRatio = 1.4: expected a ratio
    Seeing = 0.67 | Seeing 0.67 | 19: expected a key and its value, with = between them, in `Seeing 0.67`
    Seeing = 0.67 | Seeing = [0.67 | 19: atmosphere.Seeing = [0.67: expected a literal
    Seeing = 0.67 |  | 17: atmosphere.Seeing is missing: expected an angle in arcsec, or r0_value
    L0 = 27.44 | L0 = 0 | 20: atmosphere.L0 = 0: expected a length
    [0.59, | [0.69, | 21: atmosphere.Cn2Weights = [0.69, 0.02, 0.04, 0.06, 0.01, 0.05, 0.09, 0.04, 0.05, 0.05]: expected shares
    [30, 140, | [140, | 22: atmosphere.Cn2Heights = [140, 281, 562, 1125, 2250, 4500, 7750, 11000, 14000]: expected altitudes in metres, as many as in Cn2Weights, 10
    [6.6, 5.9, | [6.6, | 23: atmosphere.WindSpeed = [6.6, 5.1, 4.5, 5.1, 8.3, 16.3, 30.2, 34.3, 17.5]: expected speeds
    [0., 0., 0., 0., 90. | [0., 0., 0., 90. | 24: atmosphere.WindDirection =
    ",
        );
    }

    // Mistakes about stars and mirrors
    #[test]
    fn mistakes_about_stars_and_mirrors_are_told_likewise() {
        refuse(
            "
    [sources_HO] | [sources_NGS] | 1: sources_HO is missing: expected a section [sources_HO]
    Azimuth = [0 , 90, 180, 270] | Azimuth = [0 , 90] | 34: sources_HO.Azimuth = [0 , 90]: expected angles in degrees, as many as in Zenith, 4
    Height = 90e3 | Height = 9e3 | 35: sources_HO.Height = 9e3: expected a height above the highest layer, which is at 14000.0 m
    'Shack-Hartmann' | 'Pyramid' | 51: sensor_HO.WfsType = 'Pyramid': expected 'Shack-Hartmann'
    [200, 200, 200, 200] | [200, 200, 200] | 55: sensor_HO.NumberPhotons = [200, 200, 200]: expected photons in a frame, or a list of 4, one for each star
    [40,40,40,40] | [40,40,40,4.5] | 62: sensor_HO.NumberLenslets = [40,40,40,4.5]: expected a whole number
    DmPitchs = [0.222] | DmPitch = [0.222] | 89: DM.DmPitchs is missing
    DmHeights = [0.0] | DmHeights = [0.0, 1] | 94: DM.DmHeights = [0.0, 1]: expected altitudes in metres, as many as in DmPitchs, 1
    InfCoupling = [0.4] | InfCoupling = [1.4] | 93: DM.InfCoupling = [1.4]: expected a share
    LoopGain_HO = 0.5 | LoopGain_HO = 1.5 | 103: RTC.LoopGain_HO = 1.5: expected a gain for which the loop is stable
    LoopDelaySteps_HO = 2 | LoopDelaySteps_HO = 0 | 105: RTC.LoopDelaySteps_HO = 0: expected a number of frames
    FieldOfView = 450 | FieldOfView = 450.5 | 46: sensor_science.FieldOfView = 450.5: expected a whole number
    jitter_FWHM = 25.0 | jitter_FWHM = [25.0, 1] | 13: telescope.jitter_FWHM = [25.0, 1]: expected a width in mas
    Wavelength = 589e-9 | Wavelength = 589 | 32: sources_HO.Wavelength = 589: expected one wavelength
    ",
        );
    }
}
