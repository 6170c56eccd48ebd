// Tangled from book/src/system-file.md: edit there, or here and run cargo tangle stitch.
//! A whole adaptive-optics system, and the file that describes it.

use crate::{
    error::{BadLine, Error, Invalid, accept, length_or_infinity},
    files::located::{Document, Keys, Table},
    model::atmosphere::{Atmosphere, Layer},
    model::lenslet_array::{LensletArray, Pupil, Validity},
    model::noise::{GuideStar, Noise},
    model::sensor::{Groups, Sensor},
    model::source::{ConeGradient, Source},
    model::wavefront_grid::PhaseGrid,
    units::{ARCSEC, DEGREE},
};
use ndarray::Array2;
use std::{fs::File, io::Read, path::Path};

// A whole adaptive optics system
/// An adaptive-optics system, as a system file describes it. Made by [`System::builder`] or read from a file, it has been
/// checked as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    atmosphere: Atmosphere,
    cone_gradient: ConeGradient,
    pupil: Option<Pupil>,
    lenslet_array: LensletArray,
    validity: Validity,
    guide_stars: Vec<GuideStar>,
    targets: Vec<Source>,
    phase: Option<PhaseGrid>,
}

impl System {
    // Parts of a system
    /// The turbulence.
    pub fn atmosphere(&self) -> &Atmosphere {
        &self.atmosphere
    }

    /// The coordinate along which slopes are derivatives.
    pub fn cone_gradient(&self) -> ConeGradient {
        self.cone_gradient
    }

    /// The pupil of the telescope; without one, all lenslets are valid.
    pub fn pupil(&self) -> Option<&Pupil> {
        self.pupil.as_ref()
    }

    /// The lenslets that all guide stars share unless they override them.
    pub fn lenslet_array(&self) -> &LensletArray {
        &self.lenslet_array
    }

    /// The rule by which a lenslet is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    // Stars targets and grid of a system
    /// The guide stars, at least one, all of them above the highest layer.
    pub fn guide_stars(&self) -> &[GuideStar] {
        &self.guide_stars
    }

    /// The sensors of the guide stars.
    pub fn sensors(&self) -> Vec<Sensor> {
        self.guide_stars.iter().map(|star| star.sensor).collect()
    }

    /// The directions in which the wavefront is wanted; may be empty.
    pub fn targets(&self) -> &[Source] {
        &self.targets
    }

    /// The grid of points at which the wavefront is wanted.
    pub fn phase(&self) -> Option<PhaseGrid> {
        self.phase
    }

    // Find the valid lenslets of each star
    /// The lenslets of the first guide star, which in most systems are those of all.
    pub fn first_array(&self) -> &LensletArray {
        self.guide_stars.first().map_or(&self.lenslet_array, |star| &star.sensor.array)
    }

    /// The valid lenslets of each guide star, (N, N) each, axis 0 along y.
    pub fn valid_lenslets(&self) -> Vec<Array2<bool>> {
        let valid = |star: &GuideStar| star.sensor.array.valid(self.pupil(), self.validity);
        self.guide_stars.iter().map(valid).collect()
    }

    // Rules about arrays and grids
    /// The lenslet array that all guide stars share, if they do.
    pub fn common_array(&self) -> Option<&LensletArray> {
        let first = self.first_array();
        self.guide_stars.iter().all(|star| star.sensor.array == *first).then_some(first)
    }

    /// The pitch that the grid of wavefront points is measured in, metres: that of the guide stars' common array, or else of the
    /// system's.
    pub fn wavefront_pitch(&self) -> f64 {
        self.common_array().unwrap_or(&self.lenslet_array).pitch()
    }

    /// The grid of wavefront points of a system that has targets, too.
    ///
    /// # Errors
    /// `Invalid` where either is missing.
    pub fn wavefront_grid(&self) -> Result<PhaseGrid, Invalid> {
        let expected = "at least one [[target]], for a wavefront";
        let targets = self.targets.first().ok_or_else(|| Invalid::new("target", 0, expected));
        let expected = "a table [phase] with the points of the wavefront";
        targets.and(self.phase.ok_or_else(|| Invalid::new("phase", "none", expected)))
    }

    // Tell whether a wavefront is wanted
    /// Whether a system has targets and a grid of wavefront points.
    pub fn wants_wavefront(&self) -> bool {
        self.wavefront_grid().is_ok()
    }

    // Group guide stars by their lattices
    /// The guide stars by the lattices that their sensors share.
    pub fn groups(&self) -> Groups {
        Groups::new(&self.sensors())
    }
}

// System that is built in steps
// Build a system that can be
/// Puts a system together; [`build`](Self::build) checks it as a whole.
///
/// ```
/// use lenslet::model::{lenslet_array::LensletArray, noise::GuideStar, source::Source, system::System};
/// use lenslet::model::atmosphere::{Atmosphere, Layer};
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(9e3, 1.0, 25.0)])?;
/// let array = LensletArray::new(8, 0.5)?;
/// let star = |height| GuideStar::at_rest(Source::new(0.0, 0.0, height)?, array, 1e-14);
/// let system = System::builder(air, array).guide_stars([star(90e3)?]).build()?;
/// let low = system.to_builder().guide_stars([star(8e3)?]).build();
/// assert_eq!(low.unwrap_err().quantity, "guide_star[0].height");
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct SystemBuilder(System);

// Builder of a system
impl System {
    /// Begins a system with its turbulence and the lenslets of its stars; all else is what it is in a file that leaves it out.
    pub fn builder(atmosphere: Atmosphere, lenslet_array: LensletArray) -> SystemBuilder {
        SystemBuilder(Self {
            atmosphere,
            cone_gradient: ConeGradient::default(),
            pupil: None,
            lenslet_array,
            validity: Validity::default(),
            guide_stars: Vec::new(),
            targets: Vec::new(),
            phase: None,
        })
    }

    /// A builder that begins with this system.
    pub fn to_builder(&self) -> SystemBuilder {
        SystemBuilder(self.clone())
    }
}

// Steps of the builder of a system
impl SystemBuilder {
    // Take the parts of a system
    /// Other lenslets that stars share unless they override them.
    pub fn lenslet_array(self, lenslet_array: LensletArray) -> Self {
        Self(System { lenslet_array, ..self.0 })
    }

    /// The coordinate along which slopes are derivatives.
    pub fn cone_gradient(self, cone_gradient: ConeGradient) -> Self {
        Self(System { cone_gradient, ..self.0 })
    }

    /// The pupil, or none: then all lenslets are valid.
    pub fn pupil(self, pupil: Option<Pupil>) -> Self {
        Self(System { pupil, ..self.0 })
    }

    /// The rule by which a lenslet is valid.
    pub fn validity(self, validity: Validity) -> Self {
        Self(System { validity, ..self.0 })
    }

    // Take stars targets and grid
    /// All guide stars, in place of those that there were.
    pub fn guide_stars(self, stars: impl IntoIterator<Item = GuideStar>) -> Self {
        Self(System { guide_stars: stars.into_iter().collect(), ..self.0 })
    }

    /// All targets, in place of those that there were.
    pub fn targets(self, targets: impl IntoIterator<Item = Source>) -> Self {
        Self(System { targets: targets.into_iter().collect(), ..self.0 })
    }

    /// The grid of wavefront points, or none.
    pub fn phase(self, phase: Option<PhaseGrid>) -> Self {
        Self(System { phase, ..self.0 })
    }

    // Check a system as a whole
    /// The system, if it can be.
    ///
    /// # Errors
    /// `Invalid`, by the name that a system file has for it, where there is no guide star; a star or target stands in the
    /// atmosphere or a sensor makes no sense; the pupil leaves an array no valid lenslet; or noise is that of another number of
    /// valid lenslets.
    pub fn build(self) -> Result<System, Invalid> {
        let Self(system) = self;
        let shared = "a pupil and a rule that leave at least one lenslet valid";
        system.check_array(&system.lenslet_array, "lenslet_array.lenslets", shared)?;
        accept(!system.guide_stars.is_empty(), "guide_star", 0, "at least one")?;
        for (k, star) in system.guide_stars.iter().enumerate() {
            within(&format!("guide_star[{k}]"), system.check_star(k, star))?;
        }
        for (k, target) in system.targets.iter().enumerate() {
            within(&format!("target[{k}]"), target.check_above(&system.atmosphere))?;
        }
        if let Some(PhaseGrid { points, oversampling, disc_radius }) = system.phase {
            within("phase", PhaseGrid::new(points, oversampling, disc_radius).map(drop))?;
        }
        Ok(system)
    }
}

// Check a star as part of a system
/// A complaint, if there is one, with the name of the table that it is from.
fn within(table: &str, result: Result<(), Invalid>) -> Result<(), Invalid> {
    result.map_err(|invalid| {
        let quantity = format!("{table}.{}", invalid.quantity);
        Invalid { quantity, ..invalid }
    })
}

impl System {
    fn check_array(&self, array: &LensletArray, name: &str, expected: &str) -> Result<(), Invalid> {
        let lit = array.any_valid(self.pupil(), self.validity);
        accept(lit, name, array.lenslets(), expected).map(drop)
    }

    fn check_star(&self, k: usize, star: &GuideStar) -> Result<(), Invalid> {
        let array = &star.sensor.array;
        star.sensor.source.check_above(&self.atmosphere)?;
        star.sensor.check()?;
        let before = self.guide_stars[..k].iter().map(|star| &star.sensor.array);
        if !before.chain([&self.lenslet_array]).any(|known| known == array) {
            let expected = "lenslets of which the pupil and the rule leave at least one valid";
            self.check_array(array, "lenslets", expected)?;
        }
        star.noise.check_lenslets(|| array.count_valid(self.pupil(), self.validity))
    }
}

// Read a system from a file
impl System {
    // The documentation of reading a text
    /// Reads the text of a system file; `name` stands for the file in errors.
    ///
    /// ```
    /// use lenslet::model::system::System;
    /// let text = std::fs::read_to_string("book/systems/keck-lgs.toml")?;
    /// let keck = System::from_toml(&text, "keck-lgs.toml")?;
    /// assert_eq!((keck.guide_stars().len(), keck.atmosphere().layers().len()), (4, 7));
    ///
    /// let wrong = System::from_toml(&text.replace("r0 = 0.18", "r0 = -1"), "keck-lgs.toml");
    /// let message = "keck-lgs.toml:6: atmosphere.r0 = -1: expected a length in metres greater than 0";
    /// assert_eq!(wrong.unwrap_err().to_string(), message);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_toml(text: &str, name: &str) -> Result<Self, Error> {
        Ok(Self::from_document(&Document::parse(name, text)?)?)
    }

    // Read the tables of a document
    /// Reads the tables that describe a system. Others, of the names in [`TABLES`], are left to those who know them:
    /// `document.root(TABLES)?.table(name, keys)`.
    ///
    /// # Errors
    /// The first line that makes no sense.
    pub fn from_document(document: &Document) -> Result<Self, BadLine> {
        let root = document.root(TABLES)?;
        let (atmosphere, cone_gradient) = read_atmosphere(&root)?;
        let pupil = read_pupil(&root)?;
        let (lenslet_array, validity) = read_lenslet_array(&root, pupil.as_ref())?;
        let folder = Path::new(document.name()).parent().unwrap_or(Path::new(""));
        let builder = System::builder(atmosphere, lenslet_array)
            .cone_gradient(cone_gradient)
            .pupil(pupil)
            .validity(validity)
            .guide_stars(read_guide_stars(&root, &lenslet_array, folder)?)
            .targets(read_targets(&root)?)
            .phase(read_phase(&root)?);
        root.check(builder.build())
    }

    // Read the bytes of a file
    /// Reads a system file.
    ///
    /// The errors are [`Error::Read`] for a file that cannot be read and [`Error::SystemFile`] for a line
    /// that makes no sense.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        const LIMIT: u64 = 16 << 20;
        let path = path.as_ref();
        let failed = |source| Error::Read { path: path.into(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LIMIT {
            return Err(failed(std::io::Error::other(
                "it is larger than 16 MiB, too large for a system file",
            )));
        }
        let name = path.display().to_string();
        Self::from_toml(Document::text(&name, &bytes)?, &name)
    }
}
/// The names of all tables that a system file may have, whichever room reads them.
pub const TABLES: Keys = &[
    // Names of all tables
    "atmosphere",
    "telescope",
    "lenslet_array",
    "guide_star",
    "target",
    "phase",
];

// Read the tables of a system
// Read the table of the atmosphere
const ATMOSPHERE_KEYS: &[&str] = &["r0", "wavelength", "outer_scale", "cone_gradient", "layers"];

fn read_atmosphere(root: &Table) -> Result<(Atmosphere, ConeGradient), BadLine> {
    let air = root.required_table("atmosphere", ATMOSPHERE_KEYS)?;
    let r0 = air.required("r0", "a length in metres")?;
    let wavelength = air.optional("wavelength", "a length in metres")?.unwrap_or(500e-9);
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

// Read the layers of the atmosphere
const LAYER_KEYS: &[&str] =
    &["altitude", "fraction", "outer_scale", "wind_speed", "wind_direction"];

fn read_layers(air: &Table, outer_scale: Option<f64>) -> Result<Vec<Layer>, BadLine> {
    let tables = air.tables("layers", LAYER_KEYS)?;
    if tables.is_empty() {
        return Err(air.missing("layers", "a list of at least one layer"));
    }
    let read = |layer: &Table| {
        let scale = layer.optional("outer_scale", "a length in metres, or inf")?.or(outer_scale);
        let without = "a length in metres, or inf, here or as atmosphere.outer_scale";
        Ok(Layer {
            altitude: layer.required("altitude", "an altitude in metres")?,
            fraction: layer.required("fraction", "a share of r0^(-5/3), from 0 to 1")?,
            outer_scale: scale.ok_or_else(|| layer.missing("outer_scale", without))?,
            wind_speed: layer.optional("wind_speed", "a speed in m/s")?.unwrap_or(0.0),
            wind_direction: DEGREE
                * layer.optional("wind_direction", "an angle in degrees")?.unwrap_or(0.0),
        })
    };
    tables.iter().map(read).collect()
}

// Read the pupil and the lenslets
fn read_pupil(root: &Table) -> Result<Option<Pupil>, BadLine> {
    let Some(telescope) = root.table("telescope", &["diameter", "obstruction"])? else {
        return Ok(None);
    };
    let diameter = telescope.required("diameter", "a length in metres")?;
    let obstruction = telescope.optional("obstruction", "a ratio of diameters")?.unwrap_or(0.0);
    telescope.check(Pupil::new(diameter, obstruction)).map(Some)
}
const ARRAY_KEYS: &[&str] = &["lenslets", "pitch", "valid_threshold", "valid"];
const LENSLETS: &str = "a whole number from 1 to 10000";

fn read_lenslet_array(
    root: &Table,
    pupil: Option<&Pupil>,
) -> Result<(LensletArray, Validity), BadLine> {
    let table = root.required_table("lenslet_array", ARRAY_KEYS)?;
    let lenslets: usize = table.required("lenslets", LENSLETS)?;
    let from_diameter = pupil.map(|pupil| pupil.diameter() / lenslets as f64);
    let pitch = table.optional("pitch", "a length in metres")?.or(from_diameter);
    let pitch =
        pitch.ok_or_else(|| table.missing("pitch", "a length in metres, or a [telescope]"))?;
    let array = table.check(LensletArray::new(lenslets, pitch))?;
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
const STAR_KEYS: &[&str] = &[
    "zenith",
    "azimuth",
    "height",
    "noise",
    "lenslets",
    "pitch",
    "rotation",
    "shift",
    "magnification",
];

fn read_guide_stars(
    root: &Table,
    shared: &LensletArray,
    folder: &Path,
) -> Result<Vec<GuideStar>, BadLine> {
    let tables = root.tables("guide_star", STAR_KEYS)?;
    if tables.is_empty() {
        return Err(root.missing("guide_star", "at least one table [[guide_star]]"));
    }
    let read = |table| {
        let (sensor, noise) = (read_sensor(table, shared)?, read_noise(table, folder)?);
        Ok(GuideStar { sensor, noise })
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
fn read_noise(table: &Table, folder: &Path) -> Result<Noise, BadLine> {
    let expected = "a variance in rad², or the name of a file of noise";
    if let Ok(Some(name)) = table.optional::<&str>("noise", expected) {
        let of_file = |error: Error| {
            let expected = format!("the name of a file of noise, and {error}");
            table.refuse(Invalid::new("noise", name, expected))
        };
        return Noise::read(&folder.join(name)).map_err(of_file);
    }
    table.check(Noise::uniform(table.optional("noise", expected)?.unwrap_or(0.0)))
}

// Read targets and the wavefront grid
fn read_targets(root: &Table) -> Result<Vec<Source>, BadLine> {
    let tables = root.tables("target", &["zenith", "azimuth"])?;
    tables.iter().map(|table| read_source(table, f64::INFINITY)).collect()
}

fn read_phase(root: &Table) -> Result<Option<PhaseGrid>, BadLine> {
    let keys = &["points", "oversampling", "disc_radius"];
    let Some(table) = root.table("phase", keys)? else { return Ok(None) };
    let points = table.required("points", "a whole number from 1 to 100000")?;
    let oversampling =
        table.optional("oversampling", "a whole number from 1 to 1000")?.unwrap_or(1);
    let radius: f64 = table.optional("disc_radius", "an angle in arcsec")?.unwrap_or(0.0);
    table.check(PhaseGrid::new(points, oversampling, radius * ARCSEC)).map(Some)
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
        let [x, y] = system.guide_stars[0].sensor.source.direction();
        assert!((x / DEGREE - 0.866_025_4).abs() < 1e-7 && (y / DEGREE - 0.5).abs() < 1e-12);
        assert_eq!(system.lenslet_array.pitch(), 0.8);
        assert_eq!(system.guide_stars[1].sensor.array, LensletArray::new(5, 1.6).unwrap());
        assert_eq!(system.atmosphere.wavelength(), 500e-9);
        assert_eq!(system.validity, Validity::LitFraction(0.5));
        let phase = system.phase.unwrap();
        assert!((phase.disc_radius - 4.848_137e-5).abs() < 1e-11 && phase.oversampling == 1);
    }
}
