// Tangled from book/src/whole-system.md: edit there, or here and run cargo tangle stitch.
//! A whole adaptive-optics system.

use crate::{
    error::{Invalid, accept},
    model::atmosphere::Atmosphere,
    model::lenslet_array::{LensletArray, Pupil, SlopeOrder, Validity},
    model::noise::GuideStar,
    model::removed_modes::{RemovedModes, TipTilt},
    model::sensor::{Groups, Sensor},
    model::source::{ConeGradient, Source},
    model::wavefront_grid::PhaseGrid,
    plausible::HEIGHT,
};
use ndarray::Array2;

/// Largest number of slopes that are listed individually.
const MOST_SLOPES: usize = 1 << 24;

// A whole adaptive optics system
/// An adaptive-optics system, as described by a system file. It is made by [`System::builder`] or read from a file, and has been
/// checked as a whole.
///
/// ```
/// use lenslet::model::{Atmosphere, GuideStar, Layer, LensletArray, PhaseGrid, Pupil, SlopeOrder, Source, System, TipTilt};
/// use lenslet::units::{ARCSEC, DEGREE};
/// let layers = vec![Layer::new(0.0, 0.7, 25.0), Layer::new(9e3, 0.3, 25.0)];
/// let (fine, coarse) = (LensletArray::new(8, 0.5)?, LensletArray::new(4, 1.0)?);
/// let laser = |azimuth: f64| -> Result<_, lenslet::Invalid> {
///     let source = Source::new(30.0 * ARCSEC, azimuth * DEGREE, 90e3)?;
///     Ok(GuideStar { tip_tilt: TipTilt::Removed, ..GuideStar::at_rest(source, fine, 1e-14)? })
/// };
/// let natural = GuideStar::at_rest(Source::star(40.0 * ARCSEC, 90.0 * DEGREE)?, coarse, 1e-14)?;
/// let system = System::builder(Atmosphere::new(0.15, 500e-9, layers)?, fine)
///     .pupil(Some(Pupil::new(4.0, 0.25)?))
///     .guide_stars([laser(0.0)?, laser(180.0)?, natural])
///     .targets([Source::star(0.0, 0.0)?])
///     .phase(Some(PhaseGrid::new(9, 1, 0.0)?))
///     .build()?;
/// let valid = system.valid_lenslets();
/// let counts = [0, 1, 2].map(|star: usize| valid[star].iter().filter(|valid| **valid).count());
/// assert_eq!((counts, system.count_slopes()), ([48, 48, 12], 216));
/// assert_eq!(SlopeOrder::new(&valid).index(2, 1, 0), 204);
/// assert_eq!((system.groups().len(), system.removed_modes().len()), (2, 4));
/// let [shift, _] = system.sensors()[1].offset_to(&system.sensors()[0], 9e3);
/// assert!((shift - 2.62).abs() < 5e-3);
/// let (grid, pitch) = (system.wavefront_grid()?, system.wavefront_pitch());
/// assert_eq!([0, 8].map(|m| grid.coordinate(m, pitch)), [-2.0, 2.0]);
/// // Valid lenslets and the lit area of the pupil, in squares of the pitch
/// let area = |n: f64, o: f64| std::f64::consts::FRAC_PI_4 * n * n * (1.0 - o * o);
/// assert!((area(8.0, 0.25) - 47.1).abs() < 0.05 && (area(4.0, 0.25) - 11.8).abs() < 0.05);
/// assert!((area(20.0, 0.24) - 296.06).abs() < 0.005); // 300 in keck-lgs.toml
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    atmosphere: Atmosphere,
    cone_gradient: ConeGradient,
    slope_model: SlopeModel,
    pupil: Option<Pupil>,
    lenslet_array: LensletArray,
    validity: Validity,
    guide_stars: Vec<GuideStar>,
    targets: Vec<Source>,
    optimisation: Vec<(Source, f64)>,
    truth_sensor: Option<LensletArray>,
    phase: Option<PhaseGrid>,
}

// Methods of a system
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

    /// Model of the slopes.
    pub fn slope_model(&self) -> SlopeModel {
        self.slope_model
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

    /// Directions in which the wavefront is estimated; may be empty.
    pub fn targets(&self) -> &[Source] {
        &self.targets
    }

    /// Directions over which mirrors are optimised in addition to the targets, with their weights; they have no images.
    pub fn optimisation(&self) -> &[(Source, f64)] {
        &self.optimisation
    }

    /// Lenslets of the truth sensor, whose slopes measure the error; by default those that all guide stars share.
    pub fn truth_sensor(&self) -> &LensletArray {
        self.truth_sensor.as_ref().unwrap_or(&self.lenslet_array)
    }

    /// Grid of points at which the wavefront is estimated.
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

    // Count the slopes of a system
    /// Number of slopes of all guide stars.
    pub fn count_slopes(&self) -> usize {
        let lenslets =
            |star: &GuideStar| star.sensor.array.count_valid(self.pupil(), self.validity);
        self.guide_stars.iter().map(|star| 2 * lenslets(star)).sum()
    }

    /// Rejects more slopes than a plan lists individually.
    pub(crate) fn expect_slopes(&self) -> Result<(), Invalid> {
        let (count, stars) = (self.count_slopes(), self.guide_stars.len());
        let expected = format!(
            "sensors with at most {MOST_SLOPES} slopes together: fewer lenslets, or fewer stars"
        );
        let value = format!("{stars} with {}", crate::error::count(count, "slope"));
        if count <= MOST_SLOPES { Ok(()) } else { Err(Invalid::new("guide_star", value, expected)) }
    }

    // Modes removed from a system
    /// The modes that are projected out of the slopes of the guide stars, in the order of [`SlopeOrder`].
    pub fn removed_modes(&self) -> RemovedModes {
        let order = SlopeOrder::new(&self.valid_lenslets());
        let mut modes = RemovedModes::default();
        for (q, star) in self.guide_stars.iter().enumerate() {
            let axes = match self.slope_model {
                SlopeModel::Average => star.sensor.axes(),
                SlopeModel::EdgeMidpoint => [[1.0, 0.0], [0.0, 1.0]],
            };
            let along = |&lenslet: &[usize; 2]| {
                let [x, y] = star.sensor.centre(lenslet);
                axes.map(|axis| axis[0] * x + axis[1] * y)
            };
            let centres: Vec<_> = order.lenslets(q).iter().map(along).collect();
            modes.add_star(order.index(q, 0, 0), &centres, star.tip_tilt, star.focus);
        }
        modes
    }

    // Rules about arrays and grids
    /// The lenslet array that all guide stars share, if they do.
    pub fn common_array(&self) -> Option<&LensletArray> {
        let first = self.first_array();
        self.guide_stars.iter().all(|star| star.sensor.array == *first).then_some(first)
    }

    /// The pitch to which the grid of wavefront points refers \[m\]: that of the common array of the guide stars, or else that of the
    /// system.
    pub fn wavefront_pitch(&self) -> f64 {
        self.common_array().unwrap_or(&self.lenslet_array).pitch()
    }

    /// The grid of wavefront points of a system that also has targets.
    ///
    /// # Errors
    /// `Invalid` where either is missing.
    pub fn wavefront_grid(&self) -> Result<PhaseGrid, Invalid> {
        let expected = "at least one [[target]], for a wavefront";
        let targets = self.targets.first().ok_or_else(|| Invalid::new("target", 0, expected));
        let expected = "a table [phase] with the points of the wavefront";
        targets.and(self.phase.ok_or_else(|| Invalid::new("phase", "none", expected)))
    }

    // Test whether a wavefront is required
    /// Whether a system has targets and a grid of wavefront points.
    pub fn wants_wavefront(&self) -> bool {
        self.wavefront_grid().is_ok()
    }

    // Group guide stars by their lattices
    /// The guide stars by the lattices that their sensors share.
    pub fn groups(&self) -> Groups {
        Groups::new(&self.sensors())
    }

    // Require mean gradients as slopes
    /// Rejects other models of slopes than the average, for a `reason` that follows "as".
    pub(crate) fn expect_average(&self, reason: &str) -> Result<(), Invalid> {
        let (name, expected) = (self.slope_model.name(), format!("average, as {reason}"));
        match self.slope_model {
            SlopeModel::Average => Ok(()),
            SlopeModel::EdgeMidpoint => Err(Invalid::new("covariance.slope_model", name, expected)),
        }
    }

    // Require that modes are measured
    /// Rejects guide stars whose tilt or focus is not measured, for a `reason` that follows "as".
    pub(crate) fn expect_measured(&self, reason: &str) -> Result<(), Invalid> {
        let expected = format!("measured, as {reason}");
        for (k, star) in self.guide_stars.iter().enumerate() {
            let answers = [("tip_tilt", star.tip_tilt.name()), ("focus", star.focus.name())];
            for (key, name) in answers {
                let good = name == TipTilt::Measured.name();
                accept(good, &format!("guide_star[{k}].{key}"), name, &expected)?;
            }
        }
        Ok(())
    }
}

// Models of a slope
/// Model of the slope of a lenslet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlopeModel {
    /// The mean gradient over the lenslet: exact.
    #[default]
    Average,
    /// The difference of the phase between the midpoints of two edges; for comparison with programs that use it.
    EdgeMidpoint,
}

impl SlopeModel {
    /// Its name in a system file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::EdgeMidpoint => "edge-midpoint",
        }
    }
}

// System that is built in steps
// Builder type of a system
/// Builder of a system; [`build`](Self::build) checks it as a whole.
///
/// ```
/// use lenslet::model::{GuideStar, LensletArray, Source, System};
/// use lenslet::model::{Atmosphere, Layer};
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
    /// Builder with the turbulence and the lenslets of the stars; all other parts have the defaults of a system file.
    pub fn builder(atmosphere: Atmosphere, lenslet_array: LensletArray) -> SystemBuilder {
        SystemBuilder(Self {
            atmosphere,
            cone_gradient: ConeGradient::default(),
            slope_model: SlopeModel::default(),
            pupil: None,
            lenslet_array,
            validity: Validity::default(),
            guide_stars: Vec::new(),
            targets: Vec::new(),
            optimisation: Vec::new(),
            truth_sensor: None,
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
    // Set the parts of a system
    /// Another atmosphere.
    pub fn atmosphere(self, atmosphere: Atmosphere) -> Self {
        Self(System { atmosphere, ..self.0 })
    }

    /// Other lenslets that stars share unless they override them.
    pub fn lenslet_array(self, lenslet_array: LensletArray) -> Self {
        Self(System { lenslet_array, ..self.0 })
    }

    /// The coordinate along which slopes are derivatives.
    pub fn cone_gradient(self, cone_gradient: ConeGradient) -> Self {
        Self(System { cone_gradient, ..self.0 })
    }

    /// Model of the slopes.
    pub fn slope_model(self, slope_model: SlopeModel) -> Self {
        Self(System { slope_model, ..self.0 })
    }

    /// The pupil, or none: then all lenslets are valid.
    pub fn pupil(self, pupil: Option<Pupil>) -> Self {
        Self(System { pupil, ..self.0 })
    }

    /// The rule by which a lenslet is valid.
    pub fn validity(self, validity: Validity) -> Self {
        Self(System { validity, ..self.0 })
    }

    // Set stars targets and grid
    /// All guide stars, replacing the previous ones.
    pub fn guide_stars(self, stars: impl IntoIterator<Item = GuideStar>) -> Self {
        Self(System { guide_stars: stars.into_iter().collect(), ..self.0 })
    }

    /// All targets, replacing the previous ones.
    pub fn targets(self, targets: impl IntoIterator<Item = Source>) -> Self {
        Self(System { targets: targets.into_iter().collect(), ..self.0 })
    }

    /// All directions over which mirrors are optimised in addition to the targets, with their weights.
    pub fn optimisation(self, directions: impl IntoIterator<Item = (Source, f64)>) -> Self {
        Self(System { optimisation: directions.into_iter().collect(), ..self.0 })
    }

    /// The lenslets of the truth sensor, or those of the system.
    pub fn truth_sensor(self, truth_sensor: Option<LensletArray>) -> Self {
        Self(System { truth_sensor, ..self.0 })
    }

    /// The grid of wavefront points, or none.
    pub fn phase(self, phase: Option<PhaseGrid>) -> Self {
        Self(System { phase, ..self.0 })
    }

    // Check a system as a whole
    /// The finished system, checked as a whole.
    ///
    /// # Errors
    /// `Invalid`, with the name of the key in a system file, if there is no guide star; a star is inside the atmosphere, or a
    /// target at a finite height; a sensor or the variance of an unknown tilt is out of its range; the pupil leaves an array no valid
    /// lenslet; noise is given for another number of valid lenslets; or slopes are differences between points and derivatives along a layer.
    pub fn build(self) -> Result<System, Invalid> {
        let Self(system) = self;
        let shared = "a pupil and a rule that leave at least one lenslet valid";
        system.check_array(&system.lenslet_array, "lenslet_array.lenslets", shared)?;
        system.check_array(system.truth_sensor(), "truth_sensor.lenslets", shared)?;
        accept(!system.guide_stars.is_empty(), "guide_star", 0, "at least one")?;
        for (k, star) in system.guide_stars.iter().enumerate() {
            within(&format!("guide_star[{k}]"), system.check_star(k, star))?;
        }
        // Check targets and optimisation directions
        for (k, target) in system.targets.iter().enumerate() {
            let (name, expected) =
                (format!("target[{k}].height"), "inf, as a target is a direction");
            accept(target.height().is_infinite(), &name, target.height(), expected)?;
        }
        for (k, (direction, weight)) in system.optimisation.iter().enumerate() {
            let (height, name) = (direction.height(), format!("optimisation[{k}]"));
            let expected = "inf, as an optimisation is over directions";
            accept(height.is_infinite(), &format!("{name}.height"), height, expected)?;
            let expected = "a finite number greater than 0, or no such table";
            let good = *weight > 0.0 && weight.is_finite();
            accept(good, &format!("{name}.weight"), *weight, expected)?;
        }
        if let Some(PhaseGrid { points, oversampling, disc_radius }) = system.phase {
            within("phase", PhaseGrid::new(points, oversampling, disc_radius).map(drop))?;
        }
        if system.cone_gradient == ConeGradient::Layer {
            system
                .expect_average("atmosphere.cone_gradient is layer, and edges are on the pupil")?;
        }
        Ok(system)
    }
}

// Check a star as part of a system
/// Adds the name of a table to an error, if there is one.
fn within(table: &str, result: Result<(), Invalid>) -> Result<(), Invalid> {
    result.map_err(|invalid| {
        let quantity = format!("{table}.{}", invalid.quantity);
        Invalid { quantity, ..invalid }
    })
}

/// Below this width of a lenslet array \[m\] a source may be on the same bench.
const WIDEST_BENCH: f64 = 0.1;

impl System {
    // Check the array and the star
    fn check_array(&self, array: &LensletArray, name: &str, expected: &str) -> Result<(), Invalid> {
        let lit = array.any_valid(self.pupil(), self.validity);
        accept(lit, name, array.lenslets(), expected).map(drop)
    }

    fn check_star(&self, k: usize, star: &GuideStar) -> Result<(), Invalid> {
        let array = &star.sensor.array;
        star.sensor.source.check_above(&self.atmosphere)?;
        let (height, width) =
            (star.sensor.source.height(), array.lenslets() as f64 * array.pitch());
        if width >= WIDEST_BENCH {
            HEIGHT.check("height", height)?;
        }
        star.sensor.check()?;
        star.tip_tilt.check()?;
        let before = self.guide_stars[..k].iter().map(|star| &star.sensor.array);
        if !before.chain([&self.lenslet_array]).any(|known| known == array) {
            let expected = "lenslets of which the pupil and the rule leave at least one valid";
            self.check_array(array, "lenslets", expected)?;
        }
        star.noise.check_lenslets(|| array.count_valid(self.pupil(), self.validity))
    }
}
