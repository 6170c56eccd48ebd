// Tangled from book/src/system-images.md: edit there, or here and run cargo tangle stitch.
//! Plan of the point-spread functions of a system's targets.

// Imports of the PSF plan
use crate::correction::in_band_covariance::{LOW, low_bytes, low_covariances, low_seconds};
use crate::correction::loop_covariances::LOOP;
use crate::correction::shared_mirrors::{CAUSES, SharedOptions};
use crate::correction::{
    Correction, CorrectionMode, CorrectionOptions, Fitting, Projector, ServoLag,
};
use crate::data::{Coordinate, DataSet, Positions, Table};
use crate::device::{CostKind, Engine, available_memory};
use crate::error::{Error, Invalid, accept, count};
use crate::estimation::Inversion;
#[cfg(feature = "files")]
use crate::model::SystemFile;
use crate::model::control::ControlLoop;
use crate::model::source::Source;
use crate::model::system::{SlopeModel, System};
use crate::plan::{Description, Plan, Stage};
use crate::psf::budget::Budget;
use crate::psf::exposures::{Exposures, StrokeCovariance};
use crate::psf::field::Field;
use crate::psf::files::Images;
use crate::psf::optical_transfer::{Aperture, MOST, TelescopeTransfer};
use crate::psf::options::{CameraOptions, EXPONENT, ErrorTerm, Exposure, StructureFunctionModel};
use crate::psf::point_spread::PointSpread;
use crate::psf::residual::{ResidualOptions, ResidualWavefronts};
use crate::psf::structure_function::Actuators;
use crate::tomography::ErrorSplit;
use crate::tomography::reconstructor::{
    ReconstructedQuantity, ReconstructorOptions, ReconstructorPlan,
};
use crate::units::ARCSEC;
use crate::watch::{CancelOnly, Watch, check};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};
use std::borrow::Cow;

// PSF options of a system file
/// Options of the point-spread functions of a system: reconstructor, mirrors, control loop, camera and field.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct PsfOptions {
    /// The table `[reconstructor]`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reconstructor: ReconstructorOptions,
    /// The tables `[correction]` and `[[mirror]]`.
    pub correction: CorrectionOptions,
    /// The table `[loop]`; without it there is no servo-lag error.
    pub control: Option<ControlLoop>,
    /// The table `[image]`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub image: CameraOptions,
    /// The table `[field]`, if a field is to be mapped.
    pub field: Option<Field>,
}

// PSF options one by one
impl PsfOptions {
    /// Options of images behind mirrors that a reconstructor controls, without a control loop and a field.
    pub fn new(
        reconstructor: ReconstructorOptions,
        correction: CorrectionOptions,
        image: CameraOptions,
    ) -> Self {
        Self { reconstructor, correction, control: None, image, field: None }
    }

    /// Sets the reconstructor.
    pub fn reconstructor(self, reconstructor: ReconstructorOptions) -> Self {
        Self { reconstructor, ..self }
    }

    /// Sets the mirrors and the mode of correction.
    pub fn correction(self, correction: CorrectionOptions) -> Self {
        Self { correction, ..self }
    }

    /// Sets the control loop, and with it a servo-lag error.
    pub fn control(self, control: ControlLoop) -> Self {
        Self { control: Some(control), ..self }
    }

    /// Sets the camera.
    pub fn image(self, image: CameraOptions) -> Self {
        Self { image, ..self }
    }

    /// Sets a field to be mapped.
    pub fn field(self, field: Field) -> Self {
        Self { field: Some(field), ..self }
    }
}

// Read PSF options from a system file
#[cfg(feature = "files")]
impl PsfOptions {
    /// Reads the tables of the options from a system file.
    ///
    /// # Errors
    /// The first invalid line of the tables, or a missing `[[mirror]]`.
    pub fn from_system_file(file: &SystemFile) -> Result<Self, Error> {
        let expected = "at least one [[mirror]], by which light is corrected";
        let Some(correction) = CorrectionOptions::from_system_file(file)? else {
            return Err(file.root()?.missing("mirror", expected).into());
        };
        Ok(Self {
            reconstructor: ReconstructorOptions::from_system_file(file)?,
            correction,
            control: ControlLoop::from_system_file(file)?,
            image: CameraOptions::from_system_file(file)?,
            field: Field::from_system_file(file)?,
        })
    }
}

// Plan of the point-spread functions
/// Plan of the point-spread functions towards a system's targets.
#[derive(Debug, Clone)]
pub struct PsfPlan {
    // Fields of the PSF plan
    options: PsfOptions,
    correction: Correction,
    reconstruction: ReconstructorPlan,
    aperture: Aperture,
    diameter: f64,
    /// Targets of the system itself, before the directions of the field.
    targets: usize,
    /// Whether images of the field are kept.
    whole_field: bool,
    /// Options of mirrors that targets share, if they do.
    shared: Option<SharedOptions>,
    /// The terms of the error.
    terms: Vec<ErrorTerm>,
    /// Reason for adding them as independent variances, if they are added.
    independent: Option<String>,
    /// The number of targets for which mirrors are optimised, if each has its own.
    mirrors: usize,
}

// Choose the grid of the pupil
/// Smallest numbers of squares between two actuators and across the pupil.
const PER_PITCH: f64 = 6.0;
const ACROSS: f64 = 128.0;

/// Squares across the pupil.
fn samples(diameter: f64, pitch: f64, image: &CameraOptions) -> usize {
    let shortest = image.wavelengths.iter().copied().fold(f64::INFINITY, f64::min);
    let field = image.pixels as f64 * image.pixel_at(shortest, diameter);
    let boxes = image.ensquared.iter().copied().fold(field, f64::max);
    let most = (diameter / ACROSS).min(pitch / PER_PITCH).min(shortest / boxes);
    (diameter / most * (1.0 - 1e-12)).ceil() as usize
}

// Refuse fields of too many squares
/// Rejects a field or a box that would need more squares across the pupil than allowed, with the key at fault.
fn check_field(
    across: usize,
    diameter: f64,
    pitch: f64,
    image: &CameraOptions,
) -> Result<(), Invalid> {
    if across <= MOST {
        return Ok(());
    }
    let mas = |angle: f64| format!("{:.6}", 1e3 * angle / ARCSEC).parse().unwrap_or(angle);
    let shortest = image.wavelengths.iter().copied().fold(f64::INFINITY, f64::min);
    let (widest, pixel) = (MOST as f64 * shortest / diameter, image.pixel_at(shortest, diameter));
    let field = image.pixels as f64 * pixel;
    let boxes = image.ensquared.iter().copied().enumerate().filter(|(_, side)| *side > field);
    let reason = format!("a field of at most {} mas, {MOST} λ/D at {shortest} m", mas(widest));
    let (name, value, expected) = match boxes.max_by(|a, b| a.1.total_cmp(&b.1)) {
        _ if pitch / PER_PITCH < diameter / MOST as f64 => {
            let least = PER_PITCH * diameter / MOST as f64;
            ("mirror[0].pitch".to_string(), pitch, format!("at least {least} m for images"))
        }
        Some((k, side)) => (format!("image.ensquared[{k}]"), mas(side), reason),
        None if image.pixel.is_some() => {
            let most = mas(widest / image.pixels as f64);
            let pixels = image.pixels;
            let remedy =
                format!("{reason}: at most {most} mas with {pixels} pixels, or fewer pixels");
            ("image.pixel".into(), mas(pixel), remedy)
        }
        None => ("image.pixels".into(), image.pixels as f64, reason),
    };
    Err(Invalid::new(name, value, expected))
}

// Append the directions of a field
/// The system with the directions of a field appended to its targets.
fn with_field(system: &System, options: &mut PsfOptions) -> Result<System, Invalid> {
    let Some(field) = options.field else { return Ok(system.clone()) };
    field.check()?;
    let (targets, directions) = (system.targets(), field.directions()?);
    let weights = &mut options.correction.weights;
    let alone = system.optimisation().is_empty();
    if weights.is_empty() {
        weights.resize(targets.len(), f64::from(u8::from(alone)));
    }
    let own = if targets.is_empty() && alone { 1.0 } else { 0.0 };
    weights.resize(targets.len() + directions.len(), own);
    system.to_builder().targets(targets.iter().copied().chain(directions)).build()
}

// Choose between one covariance and independent terms
/// The error terms, and the reason for adding them as independent variances, if they are added.
fn choose_terms(options: &PsfOptions, correction: &Correction) -> (Vec<ErrorTerm>, Option<String>) {
    use ErrorTerm::{Aliasing, Anisoplanatism, Fitting, ServoLag, Tomography};
    let few = vec![Tomography, Fitting, ServoLag];
    let mut all = vec![Tomography, Aliasing, Fitting, ServoLag];
    if !matches!(correction.mode(), CorrectionMode::Glao | CorrectionMode::Mcao) {
        all.push(Anisoplanatism);
    }
    let asked = options.image.terms.as_ref();
    let missing = "aliasing and the covariances of terms are not included";
    if options.reconstructor.method == Inversion::Iterative {
        let why = format!("reconstructor.method = \"iterative\" has no command matrix: {missing}");
        return (asked.cloned().unwrap_or(few), Some(why));
    }
    let terms = asked.cloned().unwrap_or(all);
    if let Some(why) = why_independent(&terms, options, correction) {
        return (terms, Some(format!("{why}: the covariances of terms are not included")));
    }
    match beyond_memory(correction) {
        Some(why) => (asked.cloned().unwrap_or(few), Some(format!("{why}: {missing}"))),
        None => (terms, None),
    }
}

// Decide whether terms are independent
/// The option that makes terms independent, if there is one.
fn why_independent(
    terms: &[ErrorTerm],
    options: &PsfOptions,
    correction: &Correction,
) -> Option<String> {
    use ErrorTerm::{Aliasing, Fitting, ServoLag, Tomography};
    let mut needed = vec![Tomography, Aliasing, Fitting];
    needed.extend(options.control.map(|_| ServoLag));
    if let Some(missing) = needed.iter().find(|term| !terms.contains(term)) {
        return Some(format!("image.terms does not contain \"{}\"", missing.name()));
    }
    if options.image.structure != StructureFunctionModel::Exact {
        return Some("image.structure = \"stationary\"".into());
    }
    let average = correction.system().slope_model() == SlopeModel::Average;
    (!average).then(|| "covariance.slope_model = \"edge-midpoint\"".into())
}

// Compare one covariance with the memory
/// Reason for independent terms if one covariance of all terms does not fit into memory.
fn beyond_memory(correction: &Correction) -> Option<String> {
    let (needed, available) = (ResidualWavefronts::bytes(correction), available_memory()?);
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let (needed_gib, available_gib) = (gib(needed), gib(available));
    (needed > available).then(|| {
        format!(
            "one covariance takes {needed_gib:.1} GiB of memory, and {available_gib:.1} are free"
        )
    })
}

// Gain of a system's loop for noise
/// Noise gain of the loop, 1 without a loop.
fn noise_gain(options: &PsfOptions) -> f64 {
    options.control.as_ref().map_or(1.0, ControlLoop::noise_gain)
}

impl PsfPlan {
    // Plan the images of a system
    // Documentation of the PSF plan
    /// The plan for the images of all targets of a `system`.
    ///
    /// # Errors
    /// `Invalid`, with the name of the key, if there is no telescope or no target, if mirrors are invalid or do not suit the mode, if the loop or the
    /// image is invalid, or if the reconstructor has its own delay or no truth sensor. As for the plan of the reconstructor.
    // Grids of a worked case
    ///
    /// Squares across the pupil for a camera of more pixels and for a mirror of more actuators:
    ///
    /// ```
    /// use lenslet::{model::{SystemFile, Spacing}, psf::{PsfOptions, PsfPlan}, units::ARCSEC};
    /// let file = SystemFile::from_file("book/systems/small-moao.toml")?;
    /// let (system, options) = (file.system()?, PsfOptions::from_system_file(&file)?);
    /// for (pixels, actuators, across) in
    ///     [(128, 9, 128), (512, 9, 128), (1024, 9, 181), (128, 41, 240)]
    /// {
    ///     let mut options = options.clone();
    ///     options.image.pixels = pixels;
    ///     options.correction.mirrors[0].spacing = Spacing::Actuators(actuators);
    ///     let plan = PsfPlan::new(&system, options)?;
    ///     assert_eq!(plan.aperture().light().nrows(), across);
    /// }
    /// let (wavelength, field) = (1.65e-6, 1024.0 * 15e-3);
    /// assert!((wavelength / (4.0 / 128.0) / ARCSEC - 10.9f64).abs() < 0.05);
    /// assert!((field - 15.36f64).abs() < 1e-9 && (field / 8.0 - 1.92f64).abs() < 1e-9);
    /// assert!((wavelength / (field * ARCSEC) - 0.0222f64).abs() < 5e-5 && (0.1 / 6.0 - 0.0167f64).abs() < 5e-5);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn new(system: &System, options: PsfOptions) -> Result<Self, Error> {
        let mut options = options;
        let expected = "a [telescope], whose images are wanted";
        let pupil = system.pupil().ok_or_else(|| Invalid::new("telescope", "none", expected))?;
        // Refuse what has no image
        options.image.check()?;
        options.control.as_ref().map_or(Ok(()), ControlLoop::check)?;
        let (to, expected) =
            (options.reconstructor.to, "slopes or actuators, as strokes are made from slopes");
        let good = to != ReconstructedQuantity::Wavefront;
        accept(good, "reconstructor.to", to.name(), expected)?;
        options.reconstructor = options.reconstructor.to(ReconstructedQuantity::Slopes);
        let expected = "0, as [loop] says what comes too late";
        accept(
            options.reconstructor.delay == 0.0,
            "reconstructor.delay",
            options.reconstructor.delay,
            expected,
        )?;
        let asked = options.image.terms.as_deref().unwrap_or_default();
        let split = asked.contains(&ErrorTerm::Aliasing);
        let good = !split || options.reconstructor.method != Inversion::Iterative;
        let expected =
            "another method with \"aliasing\" among image.terms, which is told from matrices";
        accept(good, "reconstructor.method", options.reconstructor.method.name(), expected)?;
        let diameter = pupil.diameter();
        // Choose one pixel for all wavelengths
        options.image.check_diffraction(diameter)?;
        if options.image.wavelengths.len() > 1 {
            let shortest = options.image.wavelengths.iter().copied().fold(f64::INFINITY, f64::min);
            options.image.pixel = Some(options.image.pixel_at(shortest, diameter));
        }
        // Plan the reconstruction for the images
        let (system, targets) = (&with_field(system, &mut options)?, system.targets().len());
        let correction = Correction::new(system, &options.correction)?;
        let (terms, independent) = choose_terms(&options, &correction);
        let alone = Self::is_plain(&options.correction, correction.system().targets().len());
        let mirrors = if targets == 0 { system.targets().len() } else { targets };
        let split = independent.is_some() && terms.contains(&ErrorTerm::Aliasing);
        let whole = split || noise_gain(&options) != 1.0;
        // Ask for mirrors that targets share
        let elsewhere = terms.contains(&ErrorTerm::Anisoplanatism);
        let own_mirrors =
            options.correction.mode == CorrectionMode::Moao && options.field.is_none();
        let apart = elsewhere && (independent.is_none() || !own_mirrors);
        let iterated = options.reconstructor.method == Inversion::Iterative;
        let together =
            options.correction.mode != CorrectionMode::Moao && (!alone || (whole && !iterated));
        let shared = (independent.is_none() || apart || together).then(|| {
            let shared = SharedOptions::default().noise_gain(noise_gain(&options));
            shared.by_cause(split).own(apart).mirrors(mirrors)
        });
        let expected =
            "another method where targets share mirrors, as strokes are made of matrices";
        accept(shared.is_none() || !iterated, "reconstructor.method", "iterative", expected)?;
        let needed = shared.is_none() && (!alone || split);
        let reconstructor =
            options.reconstructor.errors_only(alone && !whole && !apart).keep(needed);
        let reconstruction = ReconstructorPlan::new(correction.system(), reconstructor)?;
        // Fit the grid to the camera
        let pitch = correction.pupil_mirror().fitting_pitch();
        options
            .control
            .map_or(Ok(()), |control| control.check_winds(system.atmosphere(), pitch))?;
        let across = samples(diameter, pitch, &options.image);
        check_field(across, diameter, pitch, &options.image)?;
        let aperture = options.image.aperture(pupil, across, diameter / across as f64)?;
        let whole_field = false;
        Ok(Self {
            terms,
            independent,
            mirrors,
            options,
            correction,
            reconstruction,
            aperture,
            diameter,
            targets,
            whole_field,
            shared,
        })
    }

    // Decide whether errors of slopes suffice
    /// Whether the errors of slopes suffice for this number of targets.
    fn is_plain(options: &CorrectionOptions, targets: usize) -> bool {
        let alone = options.mode == CorrectionMode::Ltao && targets == 1;
        let own = options.mode == CorrectionMode::Moao || alone;
        own && options.mirrors.iter().all(|m| m.altitude == 0.0)
    }

    // Questions about the error terms
    /// Whether this term enters.
    fn has(&self, term: ErrorTerm) -> bool {
        self.terms.contains(&term)
    }

    /// Reason for adding the error terms as independent variances; `None` if one covariance contains all of them.
    pub fn independent(&self) -> Option<&str> {
        self.independent.as_deref()
    }

    // Getters of the PSF plan
    /// The correction.
    pub fn correction(&self) -> &Correction {
        &self.correction
    }

    /// Plan of the reconstruction.
    pub fn reconstruction(&self) -> &ReconstructorPlan {
        &self.reconstruction
    }

    /// The options of the images.
    pub fn options(&self) -> &PsfOptions {
        &self.options
    }

    /// Sets whether whole images of the directions of a field are kept, in addition to their Strehl ratios, widths and budgets.
    pub fn whole_field(self, whole_field: bool) -> Self {
        Self { whole_field, ..self }
    }

    /// The pupil on the grid of the images.
    pub fn aperture(&self) -> &Aperture {
        &self.aperture
    }

    /// The diameter of the telescope, m.
    pub fn diameter(&self) -> f64 {
        self.diameter
    }
}

// Describe the PSF plan
// Rates and stages of the images
/// Names of the stages for the shapes of the mirror and for the images.
const MIRROR: &str = "mirror";
const IMAGES: &str = "images";

/// Seconds that a thread takes for the singular values of a mirror, over the slopes and the square of its actuators, and a device for its
/// eigenvectors, over the cube of the actuators; by the built-in rates.
const SINGULAR_VALUES_ON_CPU: f64 = 1.6e-9;
const EIGENVECTORS_ON_DEVICE: f64 = 1e-11;

/// Seconds that a thread takes for a point of a transform of one mode, on a grid whose side is one, by the built-in rates.
const MODE: f64 = 3.5e-9;

impl PsfPlan {
    // Description of the images of a plan
    /// Description of the plan: arrays, memory, stages and run time.
    fn description(&self, engine: &Engine) -> Description {
        let mut plan = self.reconstruction.description(engine);
        if !self.has(ErrorTerm::Tomography) && self.independent.is_some() {
            plan.stages.clear(); // nothing is reconstructed
        }
        // List the arrays of images
        let (targets, image) = (self.correction.targets(), &self.options.image);
        plan.what = format!("images of {}, and {}", count(targets, "target"), plan.what);
        let waves = image.wavelengths.len();
        plan.arrays = vec![("psf".into(), vec![waves, self.targets, image.pixels, image.pixels])];
        if let Some(across) = self.options.field.as_ref().map(Field::across) {
            plan.arrays.push(("field_strehl".into(), vec![waves, across, across]));
        }
        // Memory of reconstruction and mirrors
        if self.reconstruction.errors_only() {
            plan.memory = self.reconstruction.memory_of_each(engine);
        }
        if let Some(options) = self.shared {
            self.correction.describe_shared(&self.reconstruction, (options, engine), &mut plan);
        }
        plan.memory.host = plan.memory.host.saturating_add(self.bytes());
        // Describe one covariance
        if self.independent.is_none() {
            let residuals = ResidualWavefronts::bytes(&self.correction);
            plan.memory.host = plan.memory.host.max(residuals).saturating_add(self.bytes());
            let seconds =
                ResidualWavefronts::seconds(&self.correction, self.options.control.as_ref());
            let work = [(CostKind::Integrals, seconds)];
            plan.stages.push(Stage::shared(LOOP, &work, &Engine::default()));
        }
        plan.memory.devices.iter_mut().take(1).for_each(|bytes| *bytes += self.bytes_on_device());
        // Describe covariances of low turbulence
        if self.has(ErrorTerm::Aliasing) && self.independent.is_some() {
            let (system, pitch) = self.square();
            let work = [(CostKind::Integrals, low_seconds(system, pitch))];
            let low = if self.shared.is_some() { 0 } else { low_bytes(system, pitch) };
            plan.memory.host = plan.memory.host.saturating_add(low);
            plan.stages.push(Stage::shared(LOW, &work, &Engine::default()));
        }
        let at = plan.stages.iter().take_while(|stage| stage.name == "start").count();
        plan.stages.insert(at, self.stage_of_mirror(engine));
        plan.stages.push(self.stage(engine));
        plan
    }

    // Stage of a mirror's shapes
    /// The stage of the mirror: singular values on cores, or eigenvectors on a device.
    fn stage_of_mirror(&self, engine: &Engine) -> Stage {
        let a = self.correction.pupil_mirror().positions().len() as f64;
        let m = self.reconstruction.truth_slopes() as f64;
        let wanted = if self.has(ErrorTerm::Tomography) { 1.0 } else { 0.0 };
        match engine.devices().is_empty() {
            true => Stage::shared(
                MIRROR,
                &[(CostKind::Eigenvectors, wanted * SINGULAR_VALUES_ON_CPU * m * a * a)],
                engine,
            ),
            false => Stage::alone(
                MIRROR,
                &[(CostKind::Eigenvectors, wanted * EIGENVECTORS_ON_DEVICE * a.powi(3))],
                engine,
            ),
        }
    }

    // Stage of the images
    /// The stage of the images: on cores, or their remaining part if a device computes the images.
    fn stage(&self, engine: &Engine) -> Stage {
        let points = self.points() as f64;
        let modes = match (self.has(ErrorTerm::Tomography), self.options.image.structure) {
            (true, StructureFunctionModel::Exact) => {
                self.correction.pupil_mirror().positions().len() as f64 + 20.0
            }
            _ if engine.devices().is_empty() => 28.0,
            _ => 4.0,
        };
        let causes = if self.has(ErrorTerm::Aliasing) { 3 } else { 1 };
        let targets = (causes * self.correction.targets()) as f64;
        let work = targets * modes * points * points * points.log2() * MODE;
        let (cores, work) = (Engine::default(), [(CostKind::Transforms, work)]);
        Stage::shared(IMAGES, &work, if engine.devices().is_empty() { engine } else { &cores })
    }

    // Memory of the images
    /// Bytes of the grids of displacements and of modes on the pupil.
    fn bytes(&self) -> u64 {
        let (points, actuators) =
            (self.points() as u64, self.correction.pupil_mirror().positions().len() as u64);
        let directions = if self.whole_field { self.correction.targets() } else { 0 };
        let images =
            self.options.image.pixels.pow(2) * self.options.image.wavelengths.len() * directions;
        8 * (40 * points * points + 3 * actuators * actuators + 2 * images as u64)
    }

    /// Bytes on a device: of a camera, and of a batch of modes or of strokes with a list of their pairs.
    fn bytes_on_device(&self) -> u64 {
        let (actuators, image) =
            (self.correction.pupil_mirror().positions().len(), &self.options.image);
        let (side, count) = (self.points() as u64 / 2, image.pixels as u64 / 2 + 1);
        let each = 2 * (side * side + side * count + count * count);
        let camera = 8 * (8 * side * side + side * count + image.wavelengths.len() as u64 * each);
        let (pairs, area) = ((actuators as u64).pow(2), (self.points() as u64).pow(2));
        let strokes = match image.structure {
            StructureFunctionModel::Exact => (16 * actuators as u64 * area).min(2 << 30),
            StructureFunctionModel::Stationary => 20 * pairs + 80 * area,
        };
        camera + if self.has(ErrorTerm::Tomography) { strokes } else { 0 }
    }

    // Width of the grid of displacements
    /// Displacements along an axis.
    fn points(&self) -> usize {
        2 * self.aperture.light().nrows()
    }
}

// Results of the PSF plan
// Image and budget of a target
/// The images of a target, with its error budget.
// Budget with covariances of a worked case
///
/// The error budgets of `small-moao.toml` in nm, with the signed root of their covariances and the total:
///
/// ```
/// use lenslet::{device::Engine, model::SystemFile, plan::Plan};
/// use lenslet::{psf::{PsfOptions, PsfPlan}, watch::unwatched};
/// let file = SystemFile::from_file("book/systems/small-moao.toml")?;
/// let (system, options) = (file.system()?, PsfOptions::from_system_file(&file)?);
/// let targets = PsfPlan::new(&system, options)?.run(&Engine::default(), &unwatched)?.targets;
/// let expected = [
///     // tomography, anisoplanatism, noise, aliasing, servo lag, fitting, covariance, total
///     [90.1, 0.0, 53.8, 49.9, 50.3, 116.2, -34.7, 168.3],
///     [149.7, 0.0, 64.5, 53.4, 48.8, 116.2, -40.0, 209.0],
/// ];
/// for (target, expected) in targets.iter().zip(expected) {
///     let terms = target.budget.terms().iter().map(|term| 1e9 * term.rms());
///     let found: Vec<f64> = terms.chain([1e9 * target.budget.total()]).collect();
///     assert!(found.iter().zip(expected).all(|(a, b): (&f64, f64)| (a - b).abs() < 0.06), "{found:?}");
/// }
/// let variances = [8121.0, 2894.0, 2489.0, 2533.0, 13_498.0];
/// let sum: f64 = variances.iter().sum();
/// assert!(sum == 29_535.0 && (sum.sqrt() - 171.9).abs() < 0.05);
/// let covariance: f64 = -1204.0;
/// assert!((sum + covariance - 28_331.0).abs() < 1.0 && (28_331f64.sqrt() - 168.3).abs() < 0.05);
/// let phase = (2.0 * std::f64::consts::PI * 168.3 / 1650.0f64).powi(2);
/// assert!((phase - 0.411).abs() < 5e-4 && ((-phase).exp() - 0.663).abs() < 5e-4);
/// assert!((targets[0].exposures[0].image.strehl - 0.664).abs() < 5e-4);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TargetImage {
    /// The image at each wavelength, with its width and ensquared energies.
    pub exposures: Vec<Exposure>,
    /// The wavefront errors by causes.
    pub budget: Budget,
}

impl PsfResult {
    // Map a value over a field
    /// Map of a value over the directions of a field, (n, n), axis 0 along y.
    ///
    /// # Panics
    /// If the field has another number of directions.
    pub fn map(&self, field: &Field, value: impl Fn(&TargetImage) -> f64) -> Array2<f64> {
        let n = field.across();
        assert_eq!(self.field.len(), n * n, "directions of the field");
        Array2::from_shape_fn((n, n), |(j, i)| value(&self.field[j * n + i]))
    }

    // Images of a system as a data set
    /// The images as a data set with the layout of TIPTOP's files, and maps of a field if the plan has one.
    ///
    /// # Errors
    /// `Invalid` where images differ in their pixels.
    pub fn to_data_set(&self, plan: &PsfPlan) -> Result<DataSet<'static>, Error> {
        let mut data = DataSet::default();
        let errors: Vec<f64> = self.targets.iter().map(|target| target.budget.total()).collect();
        let exposures: Vec<_> = self.targets.iter().map(|one| one.exposures.clone()).collect();
        let images = Images {
            targets: &plan.correction.system().targets()[..self.targets.len()],
            exposures: &exposures,
            errors: &errors,
            uncorrected: &self.uncorrected,
            ensquared: &plan.options.image.ensquared,
        };
        if !self.targets.is_empty() {
            images.add_to(&mut data)?;
        }
        if let Some(field) = &plan.options.field {
            self.add_field(&mut data, field, &plan.options.image);
        }
        self.add_budgets(&mut data);
        add_directions(&mut data, plan.correction.system(), self.targets.len());
        Ok(data)
    }

    // Maps of a field in a data set
    /// Adds maps of Strehl ratio, width, ensquared energy and error over a field.
    fn add_field(&self, data: &mut DataSet, field: &Field, image: &CameraOptions) {
        let maps = |value: &dyn Fn(&Exposure) -> f64| {
            let map = |w: usize| self.map(field, |image| value(&image.exposures[w]));
            stacked(&(0..image.wavelengths.len()).map(map).collect::<Vec<_>>())
        };
        // Axes of the maps of a field
        let offsets: Vec<f64> = field.offsets().iter().map(|x| x / ARCSEC).collect();
        let across = || ["y", "x"].map(|name| Coordinate::listed(name, "arcsec", offsets.clone()));
        let by = |first: Coordinate| std::iter::once(first).chain(across()).collect::<Vec<_>>();
        let by_wavelength = || by(Coordinate::listed("wavelength", "m", image.wavelengths.clone()));
        let mas = |angle: f64| 1e3 * angle / ARCSEC;
        let strehl = maps(&|exposure| exposure.image.strehl);
        data.add("field_strehl", strehl).along(by_wavelength()).long_name("Strehl ratio");
        let width =
            |exposure: &Exposure| exposure.width.map_or(f64::NAN, |width| mas(width.mean()));
        let widths = data.add("field_fwhm", maps(&width)).along(by_wavelength());
        widths.unit("mas").long_name("full width at half maximum");
        for (k, side) in image.ensquared.iter().enumerate() {
            let side = (1e6 * side / ARCSEC).round() / 1e3;
            let shares = maps(&|exposure| exposure.ensquared[k]);
            let shares = data.add(&format!("field_ensquared_{k}"), shares);
            let about = format!("share of the light in {side} mas");
            shares.along(by_wavelength()).long_name(&about);
        }
        // Maps of the terms of a field
        let terms = self.field[0].budget.terms();
        let term = |k: usize| self.map(field, |image| image.budget.terms()[k].rms());
        let mut errors: Vec<Array2<f64>> = (0..terms.len()).map(term).collect();
        errors.push(self.map(field, |image| image.budget.total()));
        let names: Vec<&str> = terms.iter().map(|term| term.name.as_str()).collect();
        let labels: Vec<String> = names.iter().chain(&["total"]).map(ToString::to_string).collect();
        let term = Coordinate { positions: Positions::Labels(labels), ..Coordinate::index("term") };
        let error = data.add("field_error", stacked(&errors)).unit("m").along(by(term));
        error.long_name(&format!("{}, total", names.join(", ")));
        let offsets = data.add("field_offsets", Array1::from(offsets));
        offsets.unit("arcsec").long_name("arcsec along either axis");
    }

    // Budgets of targets as a table
    /// Adds the budgets of the targets: a table `budget` with the columns target, term, rms \[nm\] and variance \[nm²\].
    fn add_budgets(&self, data: &mut DataSet) {
        let nanometres = |variance: f64| 1e18 * variance;
        let of_target = |(t, target): (usize, &TargetImage)| {
            let terms = target.budget.terms().iter();
            let terms = terms.map(move |term| {
                (t, term.name.clone(), 1e9 * term.rms(), nanometres(term.variance))
            });
            let total = target.budget.total();
            let total = (t, "total".to_string(), 1e9 * total, nanometres(total * total));
            terms.chain([total]).collect::<Vec<_>>()
        };
        let rows: Vec<_> = self.targets.iter().enumerate().flat_map(of_target).collect();
        if rows.is_empty() {
            return;
        }
        let table = Table::of(&rows).integer("target", |row| row.0 as i32);
        let table = table.text("term", |row| row.1.clone()).number("rms", "nm", |row| row.2);
        data.add_table("budget", table.number("variance", "nm2", |row| row.3).table());
    }
}

// Stack maps behind each other
// Directions of guide stars and targets
/// Adds the directions of guide stars and of so many targets \[rad\], and the heights of the guide stars \[m\].
fn add_directions(data: &mut DataSet, system: &System, targets: usize) {
    let stars: Vec<&Source> = system.guide_stars().iter().map(|star| &star.sensor.source).collect();
    let targets: Vec<&Source> = system.targets().iter().take(targets).collect();
    for (name, first, all) in [("guide_star", "star", &stars), ("target", "target", &targets)] {
        if all.is_empty() {
            continue;
        }
        let labels = ["x", "y"].map(String::from).to_vec();
        let component =
            Coordinate { positions: Positions::Labels(labels), ..Coordinate::index("component") };
        let along = |(k, axis): (usize, usize)| all[k].direction()[axis];
        let directions = Array2::from_shape_fn((all.len(), 2), along);
        let directions = data.add(&format!("{name}_directions"), directions);
        directions.along(vec![Coordinate::index(first), component]).unit("rad");
    }
    let heights: Vec<f64> = stars.iter().map(|star| star.height()).collect();
    let heights = data.add("guide_star_heights", Array1::from(heights));
    heights
        .dimensions("star")
        .unit("m")
        .long_name("height of the guide stars, infinite for natural stars");
}

/// Maps stacked along a first axis.
fn stacked(maps: &[Array2<f64>]) -> Array3<f64> {
    let (rows, columns) = maps.first().map_or((0, 0), Array2::dim);
    Array3::from_shape_fn((maps.len(), rows, columns), |(k, j, i)| maps[k][[j, i]])
}

/// Point-spread functions and error budgets of all targets.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PsfResult {
    /// Images and budgets of all targets.
    pub targets: Vec<TargetImage>,
    /// Images and budgets of the directions of a field, by rows. Only the central pixel of an image is kept unless the plan keeps the [whole field](PsfPlan::whole_field).
    pub field: Vec<TargetImage>,
    /// The image without correction at the first wavelength.
    pub uncorrected: PointSpread,
}

// Expose all targets
// What targets have of their own
/// The stroke errors of a target, with their names in a budget.
type OwnErrors = Vec<(&'static str, StrokeCovariance<'static>)>;

/// The errors of a target. If anisoplanatism is a separate term, with the number of the mirrors' shape and C_vv of the tomographic error in the
/// direction for which that shape is optimised.
struct TargetErrors<'a> {
    own: OwnErrors,
    reference: Option<(usize, &'a Array2<f64>)>,
}

impl Plan for PsfPlan {
    type Output = PsfResult;

    // Check and describe the images
    /// Rejects single precision on the CPU.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        Ok(engine.require_double_on_cpu("point-spread functions")?)
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        Ok(self.description(engine))
    }

    fn subject(&self) -> String {
        "the images of the targets".into()
    }

    /// Computes the images.
    ///
    /// # Errors
    /// As for the plan of the reconstructor; `Invalid` where pixels or the wind do not fit the grid; `Failed` where eigenvectors or singular
    /// values do not converge; `Cancelled` if the watcher stops the run.
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<PsfResult, Error> {
        self.check(engine)?;
        watch.stage(MIRROR, "");
        let telescope = self.aperture.transfer(self.points())?;
        let mut targets = match self.independent {
            None => self.targets_of_residuals(&telescope, engine, watch)?,
            Some(_) => self.targets_of_terms(&telescope, engine, watch)?,
        };
        let uncorrected = self.without_correction(&telescope)?;
        let field = targets.split_off(self.targets);
        Ok(PsfResult { targets, field, uncorrected })
    }
}

// Report the targets of a run
impl PsfPlan {
    /// Reports that the images of target `t` begin.
    fn begin_target(&self, t: usize, watch: &dyn Watch) {
        watch.stage(IMAGES, "");
        watch.part("target", t, self.correction.targets());
    }

    // Targets from one covariance
    /// All targets by the [residual wavefront](crate::psf) towards each of them.
    fn targets_of_residuals(
        &self,
        telescope: &TelescopeTransfer,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Vec<TargetImage>, Error> {
        // Prepare the residuals of all targets
        let control = self.options.control.as_ref();
        let apart = self.has(ErrorTerm::Anisoplanatism);
        let options =
            ResidualOptions { image: &self.options.image, control, mirrors: self.mirrors, apart };
        let to = (engine, watch);
        let residuals =
            ResidualWavefronts::new(&self.correction, &self.reconstruction, &options, to)?;
        let (common, known) = summed(&self.given(telescope)?, telescope)?;
        let mut made = self.exposures(None, (telescope, &common), engine)?;
        let (mut targets, count) = (Vec::new(), self.correction.targets());
        for t in 0..count {
            check(watch)?;
            self.begin_target(t, watch);
            // Expose the residual of one target
            let residual = residuals.of(t, telescope, &CancelOnly(watch))?;
            let whole = t < self.targets || self.whole_field;
            let mut exposures = made.of_structure(&residual.structure, whole)?;
            let mut budget = residual.budget()?;
            for term in known.terms() {
                budget = budget.with(&term.name, term.variance)?;
            }
            let of_field = t >= self.targets;
            // Forget perfect images of a field
            if of_field {
                let perfect = exposures.iter_mut().map(|exposure| &mut exposure.perfect);
                perfect.for_each(|perfect| perfect.values = Array2::ones((1, 1)));
            }
            targets.push(TargetImage { exposures, budget });
        }
        Ok(targets)
    }

    // Targets from independent terms
    /// All targets by a sum of terms, as if they were independent.
    fn targets_of_terms(
        &self,
        telescope: &TelescopeTransfer,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Vec<TargetImage>, Error> {
        let (common, known) = self.common(telescope)?;
        if self.has(ErrorTerm::Tomography) {
            self.correction.pupil(engine)?;
        }
        let (mut targets, count) = (Vec::new(), self.correction.targets());
        // Prepare exposures of the mirror
        let mirror = self.correction.pupil_mirror();
        let influence = |offset: [f64; 2]| mirror.influence(offset);
        let (positions, pitch) = (mirror.positions(), mirror.pitch());
        let actuators = Actuators { positions, pitch, influence: &influence };
        let actuators = self.has(ErrorTerm::Tomography).then_some(actuators);
        let mut made = self.exposures(actuators, (telescope, &common), engine)?;
        let mut there = None;
        // Expose the terms of one target
        let mut expose = |errors: TargetErrors| {
            check(watch)?;
            self.begin_target(targets.len(), watch);
            let of_field = targets.len() >= self.targets;
            let whole = !of_field || self.whole_field;
            // Find the error where the mirrors are for
            if let Some((shape, strokes)) = errors.reference
                && there.is_none_or(|(known, _)| known != shape)
            {
                let strokes = StrokeCovariance::OnHost(Cow::Borrowed(strokes));
                let (own, _) = made.by_cause(&[("tomography", strokes)], false)?;
                there = Some((shape, own.total().powi(2)));
            }
            let (mut budget, mut exposures) = made.by_cause(&errors.own, whole)?;
            if let Some((_, reference)) = there.filter(|_| errors.reference.is_some()) {
                budget = tell_apart(&budget, reference)?;
            }
            for term in known.terms() {
                budget = budget.with(&term.name, term.variance)?;
            }
            // Forget perfect images of a field
            if of_field {
                let perfect = exposures.iter_mut().map(|exposure| &mut exposure.perfect);
                perfect.for_each(|perfect| perfect.values = Array2::ones((1, 1)));
            }
            targets.push(TargetImage { exposures, budget });
            Ok(())
        };
        match self.has(ErrorTerm::Tomography) {
            true => self.each_stroke_error(engine, watch, &mut expose)?,
            false => {
                let nothing = || TargetErrors { own: Vec::new(), reference: None };
                (0..count).try_for_each(|_| expose(nothing()))?
            }
        }
        Ok(targets)
    }

    // Errors of strokes of all targets
    /// Passes C_vv of one target after the other, (a, a), m², to `sink`: of the tomographic error, or of its causes.
    fn each_stroke_error(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
        sink: &mut dyn FnMut(TargetErrors) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (correction, gain) = (&self.correction, noise_gain(&self.options));
        if let Some(options) = self.shared {
            return self.each_behind_shared(options, (engine, watch), sink);
        }
        let mut alone = |own: OwnErrors| sink(TargetErrors { own, reference: None });
        if self.has(ErrorTerm::Aliasing) {
            return self.each_by_cause((engine, watch), &mut alone);
        }
        // Project errors of slopes onto the mirror
        if self.reconstruction.errors_only() {
            let projector = correction.pupil(engine)?;
            let mut projected = |_: usize, errors: ArrayView2<f64>| {
                alone(vec![("tomography", self.strokes_of(projector, &errors, engine)?)])
            };
            return self.reconstruction.each_error(engine, watch, &mut projected);
        }
        let reconstruction = self.reconstruction.run(engine, watch)?;
        let mut whole = |strokes: Array2<f64>| {
            alone(vec![("tomography", StrokeCovariance::OnHost(Cow::Owned(strokes)))])
        };
        // Add the gain to the noise
        if !Self::is_plain(&self.options.correction, correction.system().targets().len()) {
            let left = correction.of(&reconstruction, engine)?;
            let parts = left.stroke_errors.outer_iter().zip(left.noise_errors.outer_iter());
            return parts.map(|(all, noise)| &all + (gain - 1.0) * &noise).try_for_each(whole);
        }
        // Change the noise of one target after the other
        let rows = reconstruction.reconstructor.iter().flat_map(|rows| rows.outer_iter());
        for (errors, rows) in reconstruction.error_covariance.outer_iter().zip(rows) {
            let mut strokes = correction.pupil(engine)?.stroke_errors(&errors, engine)?;
            strokes.scaled_add(gain - 1.0, &correction.noise(&rows.to_owned(), engine)?);
            whole(strokes)?;
        }
        Ok(())
    }

    // Errors of strokes behind shared mirrors
    /// The same behind mirrors that targets share.
    fn each_behind_shared(
        &self,
        options: SharedOptions,
        to: (&Engine, &dyn Watch),
        sink: &mut dyn FnMut(TargetErrors) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mirrors = self.correction.shared(&self.reconstruction, options, to)?;
        let within = CancelOnly(to.1);
        for t in 0..self.correction.targets() {
            self.begin_target(t, to.1);
            let left = mirrors.left(t, (to.0, &within))?;
            let reference = mirrors.own_error(left.shape).map(|own| (left.shape, own));
            let here = |(name, part)| (name, StrokeCovariance::OnHost(Cow::Owned(part)));
            sink(TargetErrors { own: left.parts.into_iter().map(here).collect(), reference })?;
        }
        Ok(())
    }

    // Errors of strokes by their causes
    /// The same by their causes, Eq. [three causes](https://lenslet.github.io/lenslet/aliasing.html#eq-three-causes).
    fn each_by_cause(
        &self,
        (engine, watch): (&Engine, &dyn Watch),
        sink: &mut dyn FnMut(OwnErrors) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Take the matrices of a reconstruction
        let reconstruction = self.reconstruction.run(engine, watch)?;
        let (Some(rows), Some(kept)) = (reconstruction.reconstructor, reconstruction.covariances)
        else {
            let expected = "a reconstruction with its matrices";
            return Err(Invalid::new("reconstruction", "without a matrix", expected).into());
        };
        // Commands if mirrors are shared
        let correction = &self.correction;
        let commands =
            match Self::is_plain(&self.options.correction, correction.system().targets().len()) {
                true => Vec::new(),
                false => correction.commands(&rows, engine)?,
            };
        let ((system, pitch), projector) = (self.square(), correction.pupil(engine)?);
        let low = low_covariances(system, pitch, watch)?;
        let split = ErrorSplit::new(system, kept.measurements, low)?;
        let scales = [1.0, noise_gain(&self.options), 1.0];
        for t in 0..correction.targets() {
            self.begin_target(t, watch);
            let made = match commands.is_empty() {
                true => rows.index_axis(Axis(0), t).to_owned(),
                false => correction.made(&commands, t),
            };
            let parts = split.of(&made, t)?;
            // Strokes of each cause
            let parts = [parts.tomography, parts.noise, parts.aliasing].into_iter().zip(scales);
            let strokes = CAUSES.into_iter().zip(parts).map(|(cause, (part, scale))| {
                let strokes = scale * projector.stroke_errors(&part.view(), engine)?;
                Ok((cause, StrokeCovariance::OnHost(Cow::Owned(strokes))))
            });
            sink(strokes.collect::<Result<_, Error>>()?)?;
        }
        Ok(())
    }

    // System and pitch of low turbulence
    /// The system that is reconstructed, and the pitch of the square of frequencies that its mirrors correct, m.
    fn square(&self) -> (&System, f64) {
        (self.correction.system(), self.correction.pupil_mirror().fitting_pitch())
    }

    // Strokes of the errors of slopes
    /// C_vv from C_ee, in the memory where it is used next.
    fn strokes_of(
        &self,
        projector: &Projector,
        errors: &ArrayView2<f64>,
        engine: &Engine,
    ) -> Result<StrokeCovariance<'static>, Error> {
        if let (StructureFunctionModel::Stationary, Some(gpu)) =
            (self.options.image.structure, engine.devices().first())
        {
            return Ok(StrokeCovariance::OnDevice(projector.errors_kept(gpu, errors)?));
        }
        Ok(StrokeCovariance::OnHost(Cow::Owned(projector.stroke_errors(errors, engine)?)))
    }

    // Structure functions of all terms
    /// The terms that are the same for all targets: the sum of their structure functions, m², and their budget.
    fn common(&self, telescope: &TelescopeTransfer) -> Result<(Array2<f64>, Budget), Error> {
        let (air, pitch) =
            (self.correction.system().atmosphere(), self.correction.pupil_mirror().fitting_pitch());
        let (points, step) = (self.points(), telescope.step());
        let mut structures = Vec::new();
        if self.has(ErrorTerm::Fitting) {
            structures
                .push(("fitting", Fitting::new(air, pitch)?.structure_function(points, step)?));
        }
        if let (true, Some(control)) = (self.has(ErrorTerm::ServoLag), &self.options.control) {
            let late = ServoLag::new(air, control, pitch)?;
            structures.push(("bandwidth", late.structure_function(points, step)?));
        }
        structures.extend(self.given(telescope)?);
        summed(&structures, telescope)
    }

    // Structure functions of given errors
    /// Structure functions of the given errors, m².
    fn given(
        &self,
        telescope: &TelescopeTransfer,
    ) -> Result<Vec<(&'static str, Array2<f64>)>, Error> {
        let (image, mut structures) = (&self.options.image, Vec::new());
        if image.extra > 0.0 {
            structures.push(("extra", telescope.extra(image.extra, EXPONENT)?));
        }
        if image.jitter > 0.0 {
            structures.push(("jitter", telescope.jitter(image.jitter)?));
        }
        Ok(structures)
    }

    // Exposures with a common structure function
    /// Exposures of structure functions that are added to the common one of all targets.
    fn exposures<'a>(
        &'a self,
        actuators: Option<Actuators<'a>>,
        (telescope, common): (&TelescopeTransfer, &Array2<f64>),
        engine: &Engine,
    ) -> Result<Exposures<'a>, Error> {
        let posed = (&self.aperture, telescope.clone());
        let image = CameraOptions { extra: 0.0, jitter: 0.0, ..self.options.image.clone() };
        Exposures::with(actuators, posed, common, (&image, self.diameter), engine)
    }

    // See a star without correction
    /// The image of a star without correction, at the first wavelength.
    fn without_correction(&self, telescope: &TelescopeTransfer) -> Result<PointSpread, Error> {
        let image = &self.options.image;
        let whole = telescope.turbulence(self.correction.system().atmosphere());
        let pixel = image.pixel_at(image.wavelengths[0], self.diameter);
        let transfer = telescope.through(&whole, &image.wavelengths[..1])?.remove(0);
        Ok(transfer.point_spread(pixel, image.pixels)?)
    }
}

// Sum structure functions for a budget
/// The sum of structure functions \[m²\], and a budget of them.
fn summed(
    structures: &[(&'static str, Array2<f64>)],
    telescope: &TelescopeTransfer,
) -> Result<(Array2<f64>, Budget), Error> {
    let named: Vec<_> = structures.iter().map(|(name, structure)| (*name, structure)).collect();
    let budget = Budget::of(telescope, &named)?;
    let nothing = Array2::zeros(telescope.values().dim());
    Ok((structures.iter().fold(nothing, |sum, (_, structure)| sum + structure), budget))
}

// Separate the error of another direction
/// Splits the tomographic error of a budget by Eq. [own and elsewhere](https://lenslet.github.io/lenslet/anisoplanatism.html#eq-own-and-elsewhere), with the variance \[m²\] of the same error where the mirrors are for.
fn tell_apart(budget: &Budget, reference: f64) -> Result<Budget, Invalid> {
    let mut split = Budget::default();
    for term in budget.terms() {
        let own = if term.name == CAUSES[0] { term.variance.min(reference) } else { term.variance };
        split = split.with(&term.name, own)?;
        if term.name == CAUSES[0] {
            split = split.with(ErrorTerm::Anisoplanatism.name(), term.variance - own)?;
        }
    }
    Ok(split)
}

// Tests of the PSF plan
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Format;
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::system::SystemBuilder;
    use crate::model::{Atmosphere, GuideStar, Layer, LensletArray, LoopKind, Pupil, Source};
    use crate::numerics::Precision;
    use crate::units::ARCSEC;
    use crate::watch::unwatched;

    // Plan images in a test
    fn small() -> System {
        System::from_file("book/systems/small-moao.toml").unwrap()
    }

    fn options(structure: StructureFunctionModel) -> PsfOptions {
        let terms = [ErrorTerm::Tomography, ErrorTerm::Fitting, ErrorTerm::ServoLag];
        let image = CameraOptions::default().wavelengths(vec![2.2e-6, 4.8e-6]).pixels(64);
        let image = image.structure(structure).ensquared(vec![0.2 * ARCSEC]).terms(terms);
        let design = MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(9)) };
        let correction = CorrectionOptions::new(CorrectionMode::Moao, vec![design]);
        let control = ControlLoop { kind: LoopKind::Open, rate: 500.0, gain: 0.5, delay: 2.0 };
        PsfOptions::new(ReconstructorOptions::default(), correction, image).control(control)
    }

    fn run(system: &System, options: PsfOptions) -> PsfResult {
        PsfPlan::new(system, options).unwrap().run(&Engine::default(), &unwatched).unwrap()
    }

    // Add up the budget of a small system
    #[test]
    fn budgets_of_a_small_system_add_up_and_tell_its_images() {
        let system = small();
        let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default()).unwrap();
        let errors =
            plan.run(&Engine::default(), &unwatched).unwrap().wavefront_errors(&system).unwrap();
        let [exact, stationary] =
            [StructureFunctionModel::Exact, StructureFunctionModel::Stationary]
                .map(|structure| run(&system, options(structure)));
        for (t, error) in errors.iter().enumerate() {
            let (budget, exposures) = (&exact.targets[t].budget, &exact.targets[t].exposures);
            let names: Vec<&str> = budget.terms().iter().map(|term| term.name.as_str()).collect();
            assert_eq!(names, ["tomography", "fitting", "bandwidth"]);
            // The error at corners of lenslets is larger than that between them, where a mirror is smooth.
            let share = budget.terms()[0].rms() / error.rms;
            assert!((0.65..0.95).contains(&share), "target {t}: {share}");
            let fitting = Fitting::new(system.atmosphere(), 0.5).unwrap().variance();
            assert!((budget.terms()[1].variance / fitting - 1.0).abs() < 0.03, "target {t}");
            let sum: f64 = budget.terms().iter().map(|term| term.variance).sum();
            assert!((budget.total().powi(2) / sum - 1.0).abs() < 1e-12);
            let [short, long] = [0, 1].map(|k| &exposures[k]);
            assert!((long.image.strehl / budget.marechal(4.8e-6) - 1.0).abs() < 0.03, "target {t}");
            assert!(short.image.strehl < long.image.strehl && short.ensquared[0] > 0.1);
            assert!(short.image.values.iter().all(|&value| value > -1e-9));
            let other = &stationary.targets[t];
            assert!((other.exposures[0].image.strehl / short.image.strehl - 1.0).abs() < 0.1);
        }
        let strehl = |target: &TargetImage| target.exposures[0].image.strehl;
        assert!(strehl(&exact.targets[0]) > strehl(&exact.targets[1]));
        assert!(exact.uncorrected.strehl < 0.2 * strehl(&exact.targets[1]));
    }

    // Separate a budget by its causes
    /// Variance of a cause in a budget, m².
    fn of(budget: &Budget, name: &str) -> f64 {
        budget.terms().iter().find(|term| term.name == name).map_or(f64::NAN, |term| term.variance)
    }

    fn by_cause(actuators: usize, mode: CorrectionMode) -> PsfOptions {
        let mut wanted = options(StructureFunctionModel::Stationary);
        wanted.image.terms =
            Some(vec![ErrorTerm::Tomography, ErrorTerm::Fitting, ErrorTerm::Aliasing]);
        (wanted.image.wavelengths, wanted.image.pixels) = (vec![4.8e-6], 16);
        wanted.correction.mirrors[0].spacing = Spacing::Actuators(actuators);
        wanted.correction.mode = mode;
        wanted
    }

    #[test]
    fn a_budget_by_its_causes_adds_up() {
        let stars = small().guide_stars().to_vec();
        let two = small().to_builder().guide_stars([stars[0].clone(), stars[2].clone()]);
        let system = two.build().unwrap();
        let mut whole = by_cause(9, CorrectionMode::Moao);
        whole.image.terms.as_mut().unwrap().pop();
        let whole = run(&system, whole).targets;
        let [own, shared] = [CorrectionMode::Moao, CorrectionMode::Glao]
            .map(|mode| run(&system, by_cause(9, mode)).targets);
        let mut sums = Vec::new();
        for ((own, shared), whole) in own.iter().zip(&shared).zip(&whole) {
            for image in [own, shared] {
                let names: Vec<_> =
                    image.budget.terms().iter().map(|term| &term.name[..]).collect();
                assert_eq!(names, ["tomography", "noise", "aliasing", "fitting"]);
                let strehl = image.exposures[0].image.strehl;
                assert!((strehl / image.budget.marechal(4.8e-6) - 1.0).abs() < 0.05);
            }
            let [own, noise, folded] = CAUSES.map(|cause| of(&own.budget, cause));
            sums.push((own + noise + folded) / of(&whole.budget, "tomography"));
            assert!(
                own > noise && noise > 0.0 && folded > 0.01 * own,
                "{own:e} {noise:e} {folded:e}"
            );
            // One mirror for both is no better for either.
            assert!(of(&shared.budget, "tomography") > own);
        }
        // The whole error has what the truth sensor folds as well, a few per cent.
        assert!(sums.iter().all(|sum| (0.965..1.0).contains(sum)), "{sums:?}");
        let mut wanted = by_cause(9, CorrectionMode::Moao);
        wanted.reconstructor.method = Inversion::Iterative;
        let refused = PsfPlan::new(&small(), wanted).unwrap_err().to_string();
        assert!(
            refused.starts_with("reconstructor.method = \"iterative\": expected another"),
            "{refused}"
        );
        let mut wanted = by_cause(9, CorrectionMode::Glao);
        (wanted.reconstructor.method, wanted.image.terms) =
            (Inversion::Iterative, Some(vec![ErrorTerm::Tomography]));
        let refused = PsfPlan::new(&small(), wanted).unwrap_err().to_string();
        assert!(refused.contains("targets share mirrors"), "{refused}");
    }

    // Fold ripples of a star at the target
    #[test]
    fn a_star_at_the_target_leaves_noise_and_what_it_folds() {
        let axis = Source::star(0.0, 0.0).unwrap();
        let budget = |lenslets: usize, noise: f64| {
            let layers = vec![Layer::new(0.0, 0.6, 25.0), Layer::new(8e3, 0.4, 25.0)];
            let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
            let array = LensletArray::new(lenslets, 4.0 / lenslets as f64).unwrap();
            let star = GuideStar::at_rest(axis, array, noise).unwrap();
            let builder = System::builder(air, array).guide_stars([star]).targets([axis]);
            let system = builder.pupil(Some(Pupil::new(4.0, 0.0).unwrap())).build().unwrap();
            run(&system, by_cause(lenslets + 1, CorrectionMode::Moao)).targets.remove(0).budget
        };
        let radian = 500e-9 / (2.0 * std::f64::consts::PI);
        for lenslets in [6, 10] {
            let (noiseless, noisy) = (budget(lenslets, 0.0), budget(lenslets, 1e-15));
            let pitches = 4.0 / lenslets as f64 / 0.15;
            let share = of(&noiseless, "aliasing") / (radian.powi(2) * pitches.powf(5.0 / 3.0));
            assert!((0.06..0.11).contains(&share), "{lenslets}: {share}");
            assert_eq!(of(&noiseless, "noise"), 0.0);
            assert!(of(&noiseless, "tomography") < 1e-6 * of(&noiseless, "aliasing"));
            assert!(
                of(&noisy, "noise") > 0.0 && of(&noisy, "noise") < 0.5 * of(&noisy, "aliasing")
            );
            assert!((of(&noisy, "aliasing") / of(&noiseless, "aliasing") - 1.0).abs() < 0.2);
        }
    }

    // Leave nothing without turbulence
    #[test]
    fn without_turbulence_an_image_is_perfect() {
        let air = small().atmosphere().clone();
        let still = Atmosphere::new(1e4, air.wavelength(), air.layers().to_vec()).unwrap();
        let quiet = |builder: SystemBuilder| builder.atmosphere(still.clone()).build().unwrap();
        let mut wanted = options(StructureFunctionModel::Exact);
        wanted.image.terms = Some(vec![ErrorTerm::Fitting, ErrorTerm::ServoLag]);
        let seen = run(&quiet(small().to_builder()), wanted.clone());
        assert!(
            seen.targets.iter().all(|target| (target.exposures[0].image.strehl - 1.0).abs() < 1e-4)
        );
        // A mirror at a layer, for both targets, goes another way to strokes; it cannot be better than one for each.
        let each = run(&small(), options(StructureFunctionModel::Stationary));
        let mut shared = options(StructureFunctionModel::Stationary);
        shared.correction.mode = CorrectionMode::Glao;
        let shared = run(&small(), shared);
        let rms = |imaged: &PsfResult, t: usize| imaged.targets[t].budget.terms()[0].rms();
        assert!((0..2).all(|t| rms(&shared, t) > rms(&each, t)));
    }

    // One target of one mirror
    #[test]
    fn one_target_has_the_same_budget_either_way() {
        let system = small();
        let alone = system.to_builder().targets([system.targets()[1]]).build().unwrap();
        let budget = |mode| {
            let mut wanted = options(StructureFunctionModel::Stationary);
            (wanted.correction.mode, wanted.image.wavelengths) = (mode, vec![4.8e-6]);
            let plan = PsfPlan::new(&alone, wanted).unwrap();
            let errors_only = plan.reconstruction().errors_only();
            let seen = plan.run(&Engine::default(), &unwatched).unwrap();
            (errors_only, seen.targets[0].budget.terms()[0].rms())
        };
        let [(plain, ltao), (matrices, glao)] =
            [CorrectionMode::Ltao, CorrectionMode::Glao].map(budget);
        assert!(plain && !matrices && (ltao / glao - 1.0).abs() < 1e-6, "{ltao:e} {glao:e}");
    }

    // Map a field around a target
    #[test]
    fn a_field_has_what_its_directions_have_as_targets() {
        let mut wanted = options(StructureFunctionModel::Stationary);
        wanted.field = Some(Field { size: 60.0 * ARCSEC, step: 30.0 * ARCSEC });
        (wanted.image.terms, wanted.image.pixels) = (Some(vec![ErrorTerm::Tomography]), 32);
        wanted.image.wavelengths.truncate(1);
        let found = run(&small(), wanted.clone());
        let field = wanted.field.unwrap();
        let strehl = found.map(&field, |target| target.exposures[0].image.strehl);
        assert_eq!((strehl.dim(), found.targets.len()), ((3, 3), 2));
        // The targets of the file are on the axis and to the left of it.
        for (t, place) in [[1, 1], [1, 0]].into_iter().enumerate() {
            let target = &found.targets[t].exposures[0];
            assert!((strehl[place] / target.image.strehl - 1.0).abs() < 1e-9, "target {t}");
            let image = &found.field[3 * place[0] + place[1]];
            assert_eq!(image.exposures[0].image.pixels(), 1);
            assert!((image.budget.total() / found.targets[t].budget.total() - 1.0).abs() < 1e-9);
        }
        assert!(strehl[[0, 2]] != strehl[[2, 0]] && strehl[[1, 1]] > strehl[[2, 2]]);
        check_arrays(&found, &wanted);
        // A mirror for the targets of the file is none for the field.
        wanted.correction.mode = CorrectionMode::Glao;
        let shared = run(&small(), wanted.clone());
        wanted.field = None;
        let alone = run(&small(), wanted);
        let rms = |imaged: &PsfResult| imaged.targets[1].budget.total();
        assert!((rms(&shared) / rms(&alone) - 1.0).abs() < 1e-9);
        assert!(shared.field[4].budget.total() > found.field[4].budget.total());
    }

    // Check the arrays of a field
    fn check_arrays(found: &PsfResult, wanted: &PsfOptions) {
        let system = small();
        let plan = PsfPlan::new(&system, wanted.clone()).unwrap();
        let data = found.to_data_set(&plan).unwrap();
        let names: Vec<&str> = data.names().collect();
        assert_eq!(names[..4], ["psf", "open_loop", "diffraction", "profiles"]);
        let file = tempfile::tempdir().unwrap();
        for name in ["f.fits", "f.npz"] {
            let path = file.path().join(name);
            let format = Format::of(("file", &path), &Format::ALL, None).unwrap();
            let written = std::fs::File::create(&path).unwrap();
            data.write(written, format, Precision::F64).unwrap();
            let read = DataSet::read(&path).unwrap();
            // Each target's terms and their total, which is the root of the sum of the variances
            let budget = read.table("budget").unwrap();
            let (terms, variances) =
                (budget.texts("term").unwrap(), budget.numbers("variance").unwrap());
            assert_eq!(terms, ["tomography", "total", "tomography", "total"].map(String::from));
            assert_eq!(budget.integers("target"), Some(&[0, 0, 1, 1][..]));
            for (t, target) in found.targets.iter().enumerate() {
                let rms = budget.numbers("rms").unwrap()[2 * t + 1];
                assert!((1e-9 * rms / target.budget.total() - 1.0).abs() < 1e-12);
                assert!((rms * rms / variances[2 * t + 1] - 1.0).abs() < 1e-12);
            }
            let stars = read.array::<f64, ndarray::Ix2>("guide_star_directions").unwrap();
            let heights = read.array::<f64, ndarray::Ix1>("guide_star_heights").unwrap();
            let targets = read.array::<f64, ndarray::Ix2>("target_directions").unwrap();
            assert_eq!((stars.nrows(), targets.nrows()), (system.guide_stars().len(), 2));
            for (k, star) in system.guide_stars().iter().enumerate() {
                let source = &star.sensor.source;
                assert_eq!(
                    (stars.row(k).to_vec(), heights[k]),
                    (source.direction().to_vec(), source.height())
                );
            }
            assert!((targets[[1, 0]] / (-30.0 * ARCSEC) - 1.0).abs() < 1e-9);
        }
        let error = data.get("field_error").unwrap().coordinates();
        assert_eq!(error[0].labels(), ["tomography", "total"]);
        assert_eq!((error[1].samples(3), error[2].unit()), (vec![-30.0, 0.0, 30.0], "arcsec"));
        let wavelength = &data.get("field_strehl").unwrap().coordinates()[0];
        assert_eq!(
            (wavelength.samples(1), wavelength.unit()),
            (wanted.image.wavelengths.clone(), "m")
        );
    }

    // Anisoplanatism by an independent quadrature
    // Isoplanatic angles of a worked case
    #[test]
    fn isoplanatic_angles_are_those_of_the_worked_case() {
        let layers = vec![Layer::new(3e3, 0.7, 30.0), Layer::new(9e3, 0.3, 20.0)];
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let mean = 0.7 * 3e3f64.powf(5.0 / 3.0) + 0.3 * 9e3f64.powf(5.0 / 3.0);
        let closed = 6.884f64.powf(-0.6) * 0.15 / mean.powf(0.6);
        assert!((1e-6 * mean - 1.605).abs() < 1e-3 && (mean.powf(0.6) - 5288.0).abs() < 1.0);
        let visible = air.isoplanatic_angle_at(500e-9);
        assert!((closed / visible - 1.0).abs() < 1e-4);
        assert!((1e6 * visible - 8.91).abs() < 0.01 && (visible / ARCSEC - 1.84).abs() < 0.005);
        assert!((air.isoplanatic_angle_at(2.2e-6) / ARCSEC - 10.9).abs() < 0.05);
        let radian = 500.0 / (2.0 * std::f64::consts::PI); // 79.58 nm
        for (angle, variance, rms) in [(4.0, 3.65, 152.0), (25.0, 77.5, 700.0)] {
            let found = (angle * ARCSEC / visible).powf(5.0 / 3.0);
            assert!((found - variance).abs() < 0.06 && (found.sqrt() * radian - rms).abs() < 0.6);
        }
    }

    // Errors along the cut of the figure
    #[test]
    fn errors_along_a_cut_are_those_of_the_figure() {
        let place = |x: f64| {
            let azimuth = if x < 0.0 { std::f64::consts::PI } else { 0.0 };
            Source::star(x.abs() * ARCSEC, azimuth).unwrap()
        };
        let along = [0.0, 5.0, -5.0, 10.0, 60.0, -60.0].map(place);
        let system = small().to_builder().targets(along).build().unwrap();
        let found = |mode: CorrectionMode, terms: Vec<ErrorTerm>| {
            let mut wanted = options(StructureFunctionModel::Stationary);
            (wanted.image.terms, wanted.image.pixels) = (Some(terms), 16);
            wanted.correction.mode = mode;
            run(&system, wanted).targets
        };
        let own = found(CorrectionMode::Moao, vec![ErrorTerm::Tomography]);
        let both = vec![ErrorTerm::Tomography, ErrorTerm::Anisoplanatism];
        let shared = found(CorrectionMode::Ltao, both);
        let close = |metres: f64, nm: f64| (1e9 * metres - nm).abs() < 0.006 * nm + 0.5;
        for (k, total) in [125.0, 127.0, 164.0].into_iter().enumerate() {
            assert!(close(shared[k].budget.total(), total));
        }
        for (k, aside) in [(1, 21.0), (2, 106.0)] {
            assert!(close(term(&shared[k], "anisoplanatism").sqrt(), aside));
        }
        assert!(close(shared[4].budget.total(), 560.0));
        for (k, total) in [(0, 125.0), (3, 92.0), (4, 390.0), (5, 290.0)] {
            assert!((1e9 * own[k].budget.total() - total).abs() < 3.5);
        }
    }

    /// What a budget says of a term, m².
    fn term(target: &TargetImage, name: &str) -> f64 {
        of(&target.budget, name)
    }

    /// Eq. [anisoplanatic spectrum](https://lenslet.github.io/lenslet/anisoplanatism.html#eq-anisoplanatic-spectrum) over the square of a mirror's pitch, without the piston of a disc, m².
    fn quadrature(air: &Atmosphere, [x, y]: [f64; 2], pitch: f64, diameter: f64) -> f64 {
        let (edge, count) = (0.5 / pitch, 240);
        let step = 2.0 * edge / count as f64;
        let at = |k: usize| (k as f64 + 0.5) * step - edge;
        let layer = |layer: &Layer| {
            let mut sum = 0.0;
            for (u, v) in (0..count * count).map(|k| (at(k % count), at(k / count))) {
                let (f, shift) = (u.hypot(v), layer.altitude * (u * x + v * y));
                let low = layer.outer_scale.powi(-2);
                let power = 0.022_895_6 * (f * f + low).powf(-11.0 / 6.0);
                // The transform of a disc, by its series.
                let disc = std::f64::consts::PI * diameter * f;
                let mut term = 1.0;
                let mut airy = 1.0;
                for k in 1..60 {
                    term *= -0.25 * disc * disc / (k as f64 * (k as f64 + 1.0));
                    airy += term;
                }
                let piston = if disc < 20.0 { airy * airy } else { 0.0 };
                let swing = 2.0 - 2.0 * (2.0 * std::f64::consts::PI * shift).cos();
                sum += power * swing * (1.0 - piston) * step * step;
            }
            layer.fraction * sum
        };
        let radian = air.wavelength() / (2.0 * std::f64::consts::PI);
        let sum: f64 = air.layers().iter().map(layer).sum();
        radian.powi(2) * air.fried_parameter().powf(-5.0 / 3.0) * sum
    }

    // Mirrors that are perfect on the axis
    #[test]
    fn anisoplanatism_of_a_perfect_mirror_is_its_integral() {
        let axis = Source::star(0.0, 0.0).unwrap();
        let layers = vec![Layer::new(3e3, 0.7, 30.0), Layer::new(9e3, 0.3, 20.0)];
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let array = LensletArray::new(10, 0.4).unwrap();
        let star = GuideStar::at_rest(axis, array, 0.0).unwrap();
        let places = [(4.0, 0.3), (25.0, 4.0)];
        let aside = places.map(|(zenith, azimuth)| Source::star(zenith * ARCSEC, azimuth).unwrap());
        let builder = System::builder(air.clone(), array).guide_stars([star]);
        let builder = builder.targets([axis].into_iter().chain(aside));
        let system = builder.pupil(Some(Pupil::new(4.0, 0.0).unwrap())).build().unwrap();
        let mut wanted = by_cause(11, CorrectionMode::Ltao);
        wanted.image.terms.as_mut().unwrap().push(ErrorTerm::Anisoplanatism);
        wanted.correction.mirrors[0].filter = 0.01;
        let seen = run(&system, wanted).targets;
        assert!(term(&seen[0], "anisoplanatism") < 1e-3 * term(&seen[0], "aliasing"));
        for (target, place) in seen[1..].iter().zip(&aside) {
            let names: Vec<_> = target.budget.terms().iter().map(|term| &term.name[..]).collect();
            assert_eq!(names, ["tomography", "anisoplanatism", "noise", "aliasing", "fitting"]);
            let expected = quadrature(&air, place.direction(), 0.4, 4.0);
            let ratio = term(target, "anisoplanatism") / expected;
            println!("{ratio} of the integral {expected:e} m²");
            assert!((0.9..1.1).contains(&ratio), "{ratio} of {expected:e}");
            let [x, y] = place.direction();
            let classical = (x.hypot(y) / air.isoplanatic_angle_at(500e-9)).powf(5.0 / 3.0);
            let radian = 500e-9 / (2.0 * std::f64::consts::PI);
            let share = term(target, "anisoplanatism") / (radian.powi(2) * classical);
            assert!((0.2..0.95).contains(&share), "{share}");
        }
    }

    // Anisoplanatism between arms and of bad directions
    #[test]
    fn points_between_arms_look_at_the_nearest_mirror() {
        let mut wanted = options(StructureFunctionModel::Stationary);
        wanted.field = Some(Field { size: 60.0 * ARCSEC, step: 30.0 * ARCSEC });
        wanted.image.terms = Some(vec![ErrorTerm::Anisoplanatism, ErrorTerm::Tomography]);
        (wanted.image.pixels, wanted.image.wavelengths) = (32, vec![2.2e-6]);
        let found = run(&small(), wanted.clone());
        // The targets of the file are on the axis and to the left of it.
        let (own, arm) = (&found.field[4], &found.field[3]);
        for (seen, target) in [(own, 0), (arm, 1)] {
            let same = of(&found.targets[target].budget, "tomography");
            assert!((term(seen, "tomography") / same - 1.0).abs() < 1e-9);
            assert!(term(seen, "anisoplanatism") < 1e-6 * same);
        }
        for (k, nearest) in [(5, 0), (0, 1)] {
            let between = &found.field[k];
            let same = term(&found.targets[nearest], "tomography");
            assert!((term(between, "tomography") / same - 1.0).abs() < 1e-9);
            assert!(term(between, "anisoplanatism") > 0.1 * term(between, "tomography"), "{k}");
        }
        wanted.image.terms.as_mut().unwrap().remove(0);
        (wanted.field, wanted.image.pixels) = (None, 16);
        let total = |seen: &TargetImage| seen.budget.total();
        let each = run(&small(), wanted.clone()).targets;
        assert!((total(&each[1]) / total(&found.targets[1]) - 1.0).abs() < 1e-9);
        // A mirror for a direction without stars leaves less where stars are.
        let far = Source::star(120.0 * ARCSEC, 0.5).unwrap();
        let [axis, left] = [0, 1].map(|t| small().targets()[t]);
        let system = small().to_builder().targets([far, axis, left]).build().unwrap();
        wanted.correction.mode = CorrectionMode::Ltao;
        wanted.image.terms.as_mut().unwrap().push(ErrorTerm::Anisoplanatism);
        let seen = run(&system, wanted).targets;
        assert!(seen.iter().all(|seen| total(seen).is_finite() && total(seen) > 0.0));
        assert_eq!(term(&seen[1], "anisoplanatism"), 0.0);
        assert!(term(&seen[1], "tomography") < 0.9 * term(&seen[0], "tomography"));
    }

    // Plan a field of a large telescope
    #[test]
    fn matrices_of_a_large_telescope_have_the_sizes_of_the_worked_case() {
        let system = System::from_file("book/systems/harmoni-ltao.toml").unwrap();
        let valid = system.valid_lenslets();
        let lenslets: Vec<usize> =
            valid.iter().map(|valid| valid.iter().filter(|valid| **valid).count()).collect();
        assert_eq!((lenslets[0], lenslets[6]), (3972, 4));
        let n = 2 * lenslets.iter().sum::<usize>();
        let design = crate::model::MirrorDesign::new(Spacing::Actuators(75));
        let mirror = crate::correction::Mirror::new(&design, &system).unwrap();
        let (m, a) = mirror.interaction(&system, &system.targets()[0]).dim();
        assert_eq!((n, m, a), (47_672, 7944, 4176));
        let gigabytes = |rows: usize, columns: usize| 8e-9 * rows as f64 * columns as f64;
        let close =
            |found: f64, expected: f64| (found - expected).abs() < 0.006 * expected.max(1.0);
        assert!(close(gigabytes(n, n), 18.2) && close(gigabytes(n, n) / 1.073_741_824, 16.9));
        assert!(close(gigabytes(m, n), 3.03) && close(gigabytes(m, m), 0.50));
        assert!(close(2.0 * (gigabytes(m, n) + gigabytes(m, m)), 7.07));
        assert!(close(gigabytes(a, n), 1.59) && close(gigabytes(a, a), 0.14));
    }
    #[test]
    fn fields_of_large_telescopes_take_the_memory_of_one_direction() {
        let system = System::from_file("book/systems/harmoni-ltao.toml").unwrap();
        let host = |step: f64, terms: Vec<ErrorTerm>| {
            let mut wanted = options(StructureFunctionModel::Stationary);
            wanted.correction.mode = CorrectionMode::Ltao;
            wanted.correction.mirrors[0].spacing = Spacing::Actuators(75);
            wanted.image.terms = Some(terms);
            wanted.field = Some(Field { size: 30.0 * ARCSEC, step: step * ARCSEC });
            let plan = PsfPlan::new(&system, wanted).unwrap();
            plan.describe(&Engine::default()).unwrap().memory.host as f64 / f64::from(1 << 30)
        };
        let terms = || vec![ErrorTerm::Tomography, ErrorTerm::Fitting];
        let [few, many] = [15.0, 3.0].map(|step| host(step, terms()));
        assert!(few < 32.0 && many / few < 1.02, "{few} and {many} GiB");
        let split = terms().into_iter().chain([ErrorTerm::Anisoplanatism]).collect();
        assert!(host(3.0, split) < 1.2 * many);
    }

    // Make images on any number of threads
    #[test]
    fn images_do_not_depend_on_the_number_of_threads() {
        let mut wanted = options(StructureFunctionModel::Exact);
        wanted.image.wavelengths.truncate(1);
        for structure in [StructureFunctionModel::Exact, StructureFunctionModel::Stationary] {
            wanted.image.structure = structure;
            let images = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let result = pool.install(|| run(&small(), wanted.clone()));
                result
                    .targets
                    .into_iter()
                    .map(|target| {
                        let numbers =
                            target.budget.terms().iter().map(|term| term.variance).collect();
                        (
                            target.exposures[0].image.values.clone(),
                            target.exposures[0].ensquared.clone(),
                            numbers,
                        )
                    })
                    .collect::<Vec<(_, _, Vec<f64>)>>()
            };
            let one = images(1);
            assert!(!one.is_empty() && [2, 5].iter().all(|threads| images(*threads) == one));
        }
    }

    // Make images on devices
    #[test]
    fn devices_make_the_images_of_cores() {
        // The emulated device is slow: few lenslets, one target and its neighbour.
        let all = small();
        let array = crate::model::LensletArray::new(4, 1.0).unwrap();
        let star = |k: usize| {
            let mut star = all.guide_stars()[k].clone();
            star.sensor.array = array;
            star
        };
        let few = all.to_builder().lenslet_array(array).guide_stars([star(0), star(2)]);
        let system = few.build().unwrap();
        let mut wanted = options(StructureFunctionModel::Exact);
        (wanted.correction.mirrors[0].spacing, wanted.image.pixels) = (Spacing::Actuators(5), 16);
        wanted.image.wavelengths.truncate(1);
        for structure in [StructureFunctionModel::Exact, StructureFunctionModel::Stationary] {
            wanted.image.structure = structure;
            let here = run(&system, wanted.clone());
            for gpu in crate::device::gpu::test_backends() {
                let engine = Engine::gpus(vec![gpu], crate::numerics::Precision::F64).unwrap();
                let plan = PsfPlan::new(&system, wanted.clone()).unwrap();
                assert!(plan.describe(&engine).unwrap().memory.devices[0] > 0);
                let there = plan.run(&engine, &unwatched).unwrap();
                // Hold images of a device to those of cores
                for (there, here) in there.targets.iter().zip(&here.targets) {
                    let [a, b] = [there, here].map(|target| &target.exposures[0]);
                    let gap = (&a.image.values - &b.image.values)
                        .fold(0.0, |m: f64, gap| m.max(gap.abs()));
                    assert!(gap < 1e-9 && b.image.strehl > 0.01, "{}: {gap:e}", engine.name());
                    assert!((a.width.unwrap().major / b.width.unwrap().major - 1.0).abs() < 1e-7);
                    assert!((a.ensquared[0] - b.ensquared[0]).abs() < 1e-9);
                    for (a, b) in there.budget.terms().iter().zip(here.budget.terms()) {
                        assert!((a.variance / b.variance - 1.0).abs() < 1e-6 && a.name == b.name);
                    }
                }
            }
        }
    }

    // Fitting errors of two instruments
    #[test]
    fn fitting_errors_of_muse_and_harmoni_follow_from_closed_forms() {
        let square = |r0: f64, outer_scale: f64, pitch: f64| {
            let air = Atmosphere::new(r0, 500e-9, vec![Layer::new(0.0, 1.0, outer_scale)]).unwrap();
            1e9 * Fitting::new(&air, pitch).unwrap().variance().sqrt()
        };
        // Pitch, Fried parameter and outer scale, where the image ends, and the errors in nm.
        let muse = ([0.222, 0.1423, 27.44, 10.9], [60.3, 55.4, 14.9, 58.5]);
        let harmoni = ([0.37, 0.14205, 25.0, 2.82], [92.5, 85.0, 46.0, 80.2]);
        for ([pitch, r0, outer_scale, end], expected) in [muse, harmoni] {
            let ratio = f64::powf(pitch / r0, 5.0 / 3.0);
            let circle = 500.0 / (2.0 * std::f64::consts::PI) * (0.274 * ratio).sqrt();
            let beyond = square(r0, outer_scale, 0.5 / end);
            let inside = (circle.powi(2) - beyond.powi(2)).sqrt();
            let found = [circle, square(r0, outer_scale, pitch), beyond, inside];
            let close = found.iter().zip(expected).all(|(a, b): (&f64, f64)| (a - b).abs() < 0.06);
            assert!(close, "{found:?}");
        }
        let ratio = f64::powf(0.222 / 0.1423, 5.0 / 3.0);
        assert!((ratio - 2.098).abs() < 6e-4);
        assert!((0.274 * ratio - 0.575).abs() < 5e-4 && (0.231 * ratio - 0.485).abs() < 5e-4);
        assert!(
            (1.125 * ARCSEC / 500e-9 - 10.9).abs() < 0.05 && (0.5 / 10.9f64 - 0.0459).abs() < 5e-5
        );
    }

    // Refuse images that no system has
    #[test]
    fn images_that_cannot_be_are_refused() {
        let refused = |change: &dyn Fn(&mut PsfOptions)| {
            let mut options = options(StructureFunctionModel::Exact);
            change(&mut options);
            PsfPlan::new(&small(), options).unwrap_err().to_string()
        };
        let late = refused(&|options| options.reconstructor.delay = 2e-3);
        assert!(late.starts_with("reconstructor.delay = 0.002: expected 0, as [loop]"), "{late}");
        let to = refused(&|options| options.reconstructor.to = ReconstructedQuantity::Wavefront);
        assert!(to.starts_with("reconstructor.to = \"wavefront\": expected slopes"), "{to}");
        assert!(refused(&|options| options.image.pixels = 0).contains("pixels"));
        assert!(refused(&|options| options.correction.mirrors.clear()).contains("mirror"));
        let wide = refused(&|options| options.image.pixel = Some(30.0 * ARCSEC));
        assert!(wide.starts_with("image.pixel = 30000: expected a field of at most"), "{wide}");
        let open = small().to_builder().pupil(None).build().unwrap();
        let error =
            PsfPlan::new(&open, options(StructureFunctionModel::Exact)).unwrap_err().to_string();
        assert!(error.starts_with("telescope = none"), "{error}");
    }
}
