// Tangled from book/src/correction-modes.md: edit there, or here and run cargo tangle stitch.
//! Modes of correction: which mirrors correct which targets, and the command matrices and residuals that follow.

// Imports of modes of correction
use crate::correction::mirror::Mirror;
use crate::correction::projector::Projector;
use crate::device::Engine;
use crate::error::{Error, Invalid, accept, not_negative};
use crate::linear::times_transpose;
#[cfg(feature = "files")]
use crate::model::SystemFile;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::mirror::MirrorDesign;
use crate::model::noise::SlopeNoise;
use crate::model::source::Source;
use crate::model::system::System;
use crate::tomography::reconstructor::{Reconstruction, error_covariance};
use ndarray::{Array2, Array3, ArrayView2, Axis, concatenate, s};
use std::sync::OnceLock;

// Choices of mirrors and targets
/// Mode of correction: which mirrors correct which targets.
// Modes of a worked case
///
/// The worked case of the chapter, in nm:
///
/// ```
/// use lenslet::{correction::*, device::Engine, model::*, plan::Plan, psf::*};
/// use lenslet::{tomography::ReconstructorOptions, watch::unwatched};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let errors = |mode: CorrectionMode, weights: &[f64]| -> Result<Vec<f64>, lenslet::Error> {
///     let image = CameraOptions::default().pixels(16).terms([ErrorTerm::Tomography]);
///     let mirror = MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(9)) };
///     let correction = CorrectionOptions::new(mode, vec![mirror]).weights(weights.to_vec());
///     let options = PsfOptions::new(ReconstructorOptions::default(), correction, image);
///     let found = PsfPlan::new(&system, options)?.run(&Engine::default(), &unwatched)?;
///     Ok(found.targets.iter().map(|target| 1e9 * target.budget.total()).collect())
/// };
/// let (own, first) = (errors(CorrectionMode::Moao, &[])?, errors(CorrectionMode::Ltao, &[])?);
/// assert!((own[0] - 118.1).abs() < 0.1 && (own[1] - 174.3).abs() < 0.1);
/// let difference = (first[1].powi(2) - own[1].powi(2)).sqrt();
/// assert!((first[1] - 384.0).abs() < 0.1 && (difference - 342.2).abs() < 0.1);
/// for (weights, expected) in [([1.0, 1.0], [207.9, 244.2]), ([3.0, 1.0], [145.8, 310.2])] {
///     let found = errors(CorrectionMode::Glao, &weights)?;
///     for t in 0..2 {
///         let off = difference * weights[1 - t] / (weights[0] + weights[1]); // 171.1, 85.5, 256.6
///         assert!((found[t] - own[t].hypot(off)).abs() < 0.1);
///         assert!((found[t] - expected[t]).abs() < 0.1);
///     }
/// }
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum CorrectionMode {
    /// A separate mirror for each target.
    #[default]
    Moao,
    /// One mirror, optimised for the first target.
    Ltao,
    /// All mirrors in series, optimised for all targets.
    Mcao,
    /// One mirror, optimised for all targets.
    Glao,
    /// One mirror, optimised for the first guide star.
    Scao,
}

// Names of modes of correction
impl CorrectionMode {
    /// All of them by the names that a system file has for them.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("moao", Self::Moao),
        ("ltao", Self::Ltao),
        ("mcao", Self::Mcao),
        ("glao", Self::Glao),
        ("scao", Self::Scao),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

// Options of a correction
/// Mirrors and the targets that they correct: the tables `[correction]` and `[[mirror]]` of a system file, and the weights of its targets.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CorrectionOptions {
    /// Which mirrors correct which targets.
    pub mode: CorrectionMode,
    /// All mirrors: exactly one, unless the mode is `Mcao`.
    pub mirrors: Vec<MirrorDesign>,
    /// Weights of the targets in a compromise; if there are none, all are equal.
    pub weights: Vec<f64>,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(CorrectionOptions::new(mode: CorrectionMode, mirrors: Vec<MirrorDesign>) { weights: Vec<f64> });

// Options of a correction one by one
impl CorrectionOptions {
    /// A correction of all targets with equal weights.
    pub fn new(mode: CorrectionMode, mirrors: Vec<MirrorDesign>) -> Self {
        Self { mode, mirrors, weights: Vec::new() }
    }

    /// Sets the mode of correction.
    pub fn mode(self, mode: CorrectionMode) -> Self {
        Self { mode, ..self }
    }

    /// Sets the mirrors.
    pub fn mirrors(self, mirrors: Vec<MirrorDesign>) -> Self {
        Self { mirrors, ..self }
    }

    /// Sets the weights of the targets in a compromise.
    pub fn weights(self, weights: Vec<f64>) -> Self {
        Self { weights, ..self }
    }
}

// Correction of a system
/// The mirrors of a system, and the projection of slopes onto their strokes.
#[derive(Debug, Clone)]
pub struct Correction {
    system: System,
    mode: CorrectionMode,
    mirrors: Vec<Mirror>,
    /// Number of targets for which errors are reported; added directions come after them.
    targets: usize,
    weights: Vec<f64>,
    /// A mirror in the pupil of the first design, and the projector onto it, computed at its first use.
    pupil_mirror: Mirror,
    pupil: OnceLock<Projector>,
}

impl Correction {
    // Construct a correction of a system
    /// The correction of a system's targets.
    ///
    /// # Errors
    /// `Invalid`, by the name of the key, for a system without targets, invalid mirrors, more or fewer of them than the mode requires, weights that are
    /// negative, none greater than 0, or not one for each target.
    pub fn new(system: &System, options: &CorrectionOptions) -> Result<Self, Error> {
        let CorrectionOptions { mode, mirrors: designs, .. } = options;
        let good =
            if *mode == CorrectionMode::Mcao { !designs.is_empty() } else { designs.len() == 1 };
        let expected = "one [[mirror]], or with mode = \"mcao\" at least one";
        accept(good, "mirror", designs.len(), expected)?;
        let weights = options.checked_weights(system)?;
        let targets = system.targets().len();
        let system = match mode {
            CorrectionMode::Scao => with_the_guide_star(system)?,
            _ => with_optimisation(system)?,
        };
        let mirrors = designs.iter().map(|design| Mirror::new(design, &system));
        let mirrors = mirrors.collect::<Result<Vec<_>, Invalid>>()?;
        let design = MirrorDesign { altitude: 0.0, ..designs[0].clone() };
        let pupil_mirror = Mirror::new(&design, &system)?;
        let pupil = OnceLock::new();
        Ok(Self { system, mode: *mode, mirrors, targets, weights, pupil_mirror, pupil })
    }

    // Parts of a correction one by one
    /// The system to be reconstructed: all targets, followed by the other directions for which mirrors are optimised.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Number of targets that are evaluated.
    pub fn targets(&self) -> usize {
        self.targets
    }

    /// Which mirrors correct which targets.
    pub fn mode(&self) -> CorrectionMode {
        self.mode
    }

    /// Weights of all directions of the system that is reconstructed, in a compromise.
    pub(crate) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The mirrors.
    pub fn mirrors(&self) -> &[Mirror] {
        &self.mirrors
    }

    /// A mirror of the first design in the pupil, in whose strokes errors are expressed.
    pub fn pupil_mirror(&self) -> &Mirror {
        &self.pupil_mirror
    }

    // Project onto the mirror in the pupil
    /// The projector onto the mirror in the pupil, computed by the engine at the first call.
    ///
    /// # Errors
    /// As for [`Projector::new`].
    pub fn pupil(&self, engine: &Engine) -> Result<&Projector, Error> {
        if let Some(known) = self.pupil.get() {
            return Ok(known);
        }
        let star = &self.system.targets()[0];
        let made = Projector::new(&self.pupil_mirror, &self.system, star, engine)?;
        Ok(self.pupil.get_or_init(|| made))
    }
}

// Weights of the compromise
fn with_the_guide_star(system: &System) -> Result<System, Invalid> {
    let [x, y] = system.guide_stars()[0].sensor.source.direction();
    let star = Source::star(f64::hypot(x, y), f64::atan2(y, x))?;
    let targets = system.targets().iter().copied().chain([star]);
    system.to_builder().targets(targets).build()
}

// Directions that mirrors are optimised for
/// Whether two directions are the same.
fn is_same(one: &Source, other: &Source) -> bool {
    let gap = [0, 1].map(|axis| one.direction()[axis] - other.direction()[axis]);
    f64::hypot(gap[0], gap[1]) < 1e-12
}

/// The system with the directions of its optimisation added after its targets, unless they coincide with a target.
fn with_optimisation(system: &System) -> Result<System, Invalid> {
    let targets = system.targets();
    let others = system.optimisation().iter().map(|(direction, _)| *direction);
    let others = others.filter(|other| !targets.iter().any(|target| is_same(target, other)));
    let all = targets.iter().copied().chain(others);
    system.to_builder().targets(all).optimisation([]).build()
}

impl CorrectionOptions {
    /// Weights of targets by themselves, where nothing else is said: none where mirrors are optimised for directions of their own.
    fn usual_weight(system: &System) -> f64 {
        if system.optimisation().is_empty() { 1.0 } else { 0.0 }
    }

    /// The weights of all directions that strokes may be for.
    fn checked_weights(&self, system: &System) -> Result<Vec<f64>, Invalid> {
        let targets = system.targets().len();
        accept(targets > 0, "target", 0, "at least one [[target]], which is to be corrected")?;
        for (t, &weight) in self.weights.iter().enumerate() {
            not_negative(&format!("target[{t}].weight"), weight)?;
        }
        let good = self.weights.is_empty() || self.weights.len() == targets;
        let expected = format!("{targets} weights, one for each target");
        accept(good, "weights", self.weights.len(), &expected)?;
        let alone = |chosen: usize, of: usize| {
            (0..of).map(|t| if t == chosen { 1.0 } else { 0.0 }).collect::<Vec<f64>>()
        };
        self.check_optimisation(system)?;
        let mut weights = match self.mode {
            CorrectionMode::Scao => return Ok(alone(targets, targets + 1)),
            CorrectionMode::Ltao if system.optimisation().is_empty() => alone(0, targets),
            CorrectionMode::Ltao => vec![0.0; targets],
            _ if self.weights.is_empty() => vec![Self::usual_weight(system); targets],
            _ => self.weights.clone(),
        };
        for (direction, weight) in system.optimisation() {
            match system.targets().iter().position(|target| is_same(target, direction)) {
                Some(t) => weights[t] += weight,
                None => weights.push(*weight),
            }
        }
        let most = weights.iter().copied().fold(0.0, f64::max);
        let expected = "at least one weight greater than 0";
        accept(most > 0.0, "target[0].weight", weights[0], expected)?;
        Ok(weights)
    }

    // Refuse directions without a mirror
    /// Rejects directions of an optimisation in modes that have none.
    fn check_optimisation(&self, system: &System) -> Result<(), Invalid> {
        let count = system.optimisation().len();
        let (good, expected) = match self.mode {
            CorrectionMode::Mcao | CorrectionMode::Glao => return Ok(()),
            CorrectionMode::Ltao => (count < 2, "one, which the mirror of mode \"ltao\" is for"),
            CorrectionMode::Moao => {
                (count == 0, "none with mode \"moao\", a mirror for each target")
            }
            CorrectionMode::Scao => {
                (count == 0, "none with mode \"scao\", whose mirror is for the first guide star")
            }
        };
        accept(good, "optimisation", count, expected).map(drop)
    }
}

// Stack interaction matrices of targets
impl Correction {
    /// J_t of all mirrors for a target, (m, a), 1/m.
    pub(crate) fn interaction(&self, target: &Source) -> Array2<f64> {
        let blocks: Vec<_> =
            self.mirrors.iter().map(|mirror| mirror.interaction(&self.system, target)).collect();
        let views: Vec<_> = blocks.iter().map(|block| block.view()).collect();
        concatenate(Axis(1), &views).unwrap_or_else(|_| unreachable!("all are of one truth sensor"))
    }

    /// P_t of Eq. [commands](https://lenslet.github.io/lenslet/correction-modes.html#eq-commands) for some directions with their weights, (a, m) each, m.
    pub(crate) fn projectors(
        &self,
        chosen: &[(Source, f64)],
        engine: &Engine,
    ) -> Result<Vec<Array2<f64>>, Error> {
        // Stack the directions by their weights
        let blocks: Vec<_> = chosen
            .iter()
            .map(|(target, weight)| self.interaction(target) * weight.sqrt())
            .collect();
        let views: Vec<_> = blocks.iter().map(|block| block.view()).collect();
        let stack = concatenate(Axis(0), &views);
        let stack = stack.unwrap_or_else(|_| unreachable!("all see the same actuators"));
        let filter = self.mirrors.iter().map(Mirror::filter).fold(0.0, f64::max);
        let inverse = Projector::of(stack, filter, engine)?;
        let m = inverse.inverse().ncols() / chosen.len();
        let part = |(t, (_, weight)): (usize, &(Source, f64))| {
            inverse.inverse().slice(s![.., t * m..(t + 1) * m]).to_owned() * weight.sqrt()
        };
        Ok(chosen.iter().enumerate().map(part).collect())
    }
}

// Compute commands and residual errors
// Commands with their residual errors
/// Command matrices of mirrors, and the residual errors behind them.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Corrected {
    /// K, (a, n), m/rad: strokes for measurements. There is one matrix for each target if each has a separate mirror, otherwise one for all; the strokes of several mirrors follow one another.
    pub commands: Vec<Array2<f64>>,
    /// Covariance of the residual slopes towards each target, (T, m, m), rad², Eq. [left by mirrors](https://lenslet.github.io/lenslet/shared-commands.html#eq-left-by-mirrors).
    pub slope_errors: Array3<f64>,
    /// C_vv: the same in strokes of a mirror in the pupil, (T, a, a), m².
    pub stroke_errors: Array3<f64>,
    /// The part of `stroke_errors` that is due to noise, (T, a, a), m².
    pub noise_errors: Array3<f64>,
}

impl Correction {
    /// Commands and residual errors for a reconstruction of [`system`](Self::system) that has kept its covariances.
    ///
    /// # Errors
    /// `Invalid` if the reconstruction has no reconstructor or no covariances, or belongs to another system; `Failed` if singular values do not converge.
    pub fn of(&self, reconstruction: &Reconstruction, engine: &Engine) -> Result<Corrected, Error> {
        // Take a reconstructor with its covariances
        let (Some(reconstructor), Some(covariances)) =
            (&reconstruction.reconstructor, &reconstruction.covariances)
        else {
            let expected = "a reconstruction with its reconstructor and its covariances: keep(true), errors_only(false)";
            return Err(Invalid::new("reconstruction", "without a matrix", expected).into());
        };
        let pupil = self.pupil(engine)?;
        let (slopes, all) = (pupil.interaction().nrows(), self.system.targets());
        // Refuse reconstructions of another system
        let good = reconstructor.dim().0 == all.len() && reconstructor.dim().1 == slopes;
        let expected =
            format!("that of ({}, {slopes}) slopes, of the system of this correction", all.len());
        accept(good, "reconstruction", reconstructor.dim(), &expected)?;
        let commands = self.commands(reconstructor, engine)?;
        // Compute the residual errors of each target
        let actuators = pupil.inverse().nrows();
        let mut slope_errors = Array3::zeros((self.targets, slopes, slopes));
        let mut stroke_errors = Array3::zeros((self.targets, actuators, actuators));
        let mut noise_errors = stroke_errors.clone();
        for t in 0..self.targets {
            let made = self.made(&commands, t);
            let rows = s![t * slopes..(t + 1) * slopes, ..];
            let with_truth = covariances.truth_measurements.slice(rows).to_owned();
            let left =
                error_covariance(&made, &covariances.truth, &with_truth, &covariances.measurements);
            stroke_errors
                .index_axis_mut(Axis(0), t)
                .assign(&pupil.stroke_errors(&left.view(), engine)?);
            slope_errors.index_axis_mut(Axis(0), t).assign(&left);
            noise_errors.index_axis_mut(Axis(0), t).assign(&self.noise(&made, engine)?);
        }
        Ok(Corrected { commands, slope_errors, stroke_errors, noise_errors })
    }

    // Strokes for measurements
    /// K of Eq. [commands](https://lenslet.github.io/lenslet/correction-modes.html#eq-commands), (a, n), m/rad, one for each target or one for all, for a reconstructor (T, m, n) of [`system`](Self::system). With
    /// `Scao`, that of the original system is sufficient if it has a target in the direction of the first guide star.
    ///
    /// # Errors
    /// `Invalid` if the reconstructor belongs to another system; `Failed` if singular values do not converge; errors of a device.
    pub fn commands(
        &self,
        reconstructor: &Array3<f64>,
        engine: &Engine,
    ) -> Result<Vec<Array2<f64>>, Error> {
        let rows = self.rows_of(reconstructor, engine)?;
        let all = self.system.targets().iter().zip(rows);
        // Command a mirror for each target
        if self.mode == CorrectionMode::Moao {
            let own = |(target, rows): (&Source, ArrayView2<f64>)| {
                Ok(times_transpose(&self.projectors(&[(*target, 1.0)], engine)?[0], &rows.t()))
            };
            return all.map(own).collect();
        }
        let weighted = all.zip(&self.weights).filter(|(_, weight)| **weight > 0.0);
        let (chosen, rows): (Vec<_>, Vec<_>) =
            weighted.map(|((target, rows), weight)| ((*target, *weight), rows)).unzip();
        let projectors = self.projectors(&chosen, engine)?;
        let parts =
            projectors.iter().zip(&rows).map(|(part, rows)| times_transpose(part, &rows.t()));
        let sum = parts.reduce(|sum, part| sum + part);
        Ok(sum.into_iter().collect())
    }

    // Slopes formed by commanded mirrors
    /// Q_t, (m, n): from measurements to the slopes of all mirrors towards target `t`, with these commands.
    pub(crate) fn made(&self, commands: &[Array2<f64>], t: usize) -> Array2<f64> {
        let command = commands.get(t).unwrap_or(&commands[0]);
        times_transpose(&self.interaction(&self.system.targets()[t]), &command.t())
    }

    // Find the rows of each direction
    /// Which rows of a reconstructor for the `given` first targets are those of each direction of the system.
    pub(crate) fn rows_for(&self, given: usize) -> Result<Vec<usize>, Invalid> {
        let all = self.system.targets();
        let near = |k: usize, t: usize| is_same(&all[k], &all[t]);
        let expected = match self.mode {
            CorrectionMode::Scao => {
                "a [[target]] towards the first guide star, which the mirror of mode \"scao\" is for"
            }
            _ => "a [[target]] in each direction of an [[optimisation]], which mirrors are for",
        };
        let place = |k: usize| if k < given { Some(k) } else { (0..given).find(|t| near(k, *t)) };
        let row = |k: usize| place(k).ok_or_else(|| Invalid::new("target", given, expected));
        (0..all.len()).map(row).collect()
    }

    /// The rows of a reconstructor for each direction of the system.
    fn rows_of<'r>(
        &self,
        reconstructor: &'r Array3<f64>,
        engine: &Engine,
    ) -> Result<Vec<ArrayView2<'r, f64>>, Error> {
        let slopes = self.pupil(engine)?.interaction().nrows();
        let (all, (given, m, _)) = (self.system.targets().len(), reconstructor.dim());
        let good = m == slopes && (given == all || given == self.targets);
        let expected = format!("one for ({}, {slopes}) slopes", self.targets);
        accept(good, "reconstructor", reconstructor.dim(), &expected)?;
        let rows = self.rows_for(given)?;
        Ok(rows.into_iter().map(|t| reconstructor.index_axis(Axis(0), t)).collect())
    }

    // Noise of strokes in the pupil
    /// Covariance of the noise in strokes of the mirror in the pupil, (a, a), m², for slopes formed by the matrix `made`, (m, n).
    pub(crate) fn noise(&self, made: &Array2<f64>, engine: &Engine) -> Result<Array2<f64>, Error> {
        let system = &self.system;
        let noise =
            SlopeNoise::new(system.guide_stars(), &SlopeOrder::new(&system.valid_lenslets()));
        let strokes = times_transpose(self.pupil(engine)?.inverse(), &made.t());
        let mut weighed = Array2::zeros(strokes.dim());
        for (k, mut column) in weighed.columns_mut().into_iter().enumerate() {
            column.scaled_add(noise.variances[k], &strokes.column(k));
            column.scaled_add(noise.covariances[k], &strokes.column(noise.partners[k]));
        }
        Ok(times_transpose(&weighed, &strokes))
    }
}

// Read a correction from a file
impl CorrectionOptions {
    /// Reads the tables `[correction]`, `[[mirror]]` and the weights of `[[target]]`s of a system file, if there is a mirror or a correction.
    ///
    /// # Errors
    /// The first invalid line of the tables.
    ///
    /// ```
    /// use lenslet::{correction::{CorrectionMode, CorrectionOptions}, model::SystemFile};
    /// let read = |text: &str| CorrectionOptions::from_system_file(&SystemFile::from_toml(text, "s.toml")?);
    /// let text = "[correction]\nmode = 'glao'\n[[mirror]]\nactuators = 9\n[[target]]\nweight = 2\n[[target]]\n";
    /// let options = read(text)?.unwrap();
    /// assert_eq!((options.mode, options.weights), (CorrectionMode::Glao, vec![2.0, 1.0]));
    /// let wrong = read(&text.replace("= 2", "= -2")).unwrap_err();
    /// assert_eq!(wrong.to_string(), "s.toml:6: target[0].weight = -2: expected a finite number not less than 0");
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    #[cfg(feature = "files")]
    pub fn from_system_file(file: &SystemFile) -> Result<Option<Self>, Error> {
        let root = file.root()?;
        let (table, mirrors) = (root.table("correction")?, MirrorDesign::from_system_file(file)?);
        if table.is_none() && mirrors.is_empty() {
            return Ok(None);
        }
        let mode = match &table {
            Some(table) => table.choice("mode", &CorrectionMode::NAMES)?.unwrap_or_default(),
            None => CorrectionMode::default(),
        };
        // Check the mirrors of a mode
        if mirrors.is_empty() {
            return Err(root
                .missing("mirror", "a table [[mirror]], as there is a [correction]")
                .into());
        }
        if mirrors.len() > 1 && mode != CorrectionMode::Mcao {
            let expected = "no second mirror, unless correction.mode = \"mcao\"";
            return Err(root.refuse(Invalid::new("mirror[1]", "", expected)).into());
        }
        let mut weights = Vec::new();
        let usual = if root.has("optimisation") { 0.0 } else { 1.0 };
        for target in root.tables("target")? {
            let weight = target.optional("weight", "a number not less than 0")?.unwrap_or(usual);
            weights.push(target.check(not_negative("weight", weight))?);
        }
        Ok(Some(Self::new(mode, mirrors).weights(weights)))
    }
}

// Tests of modes of correction
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Engine;
    use crate::estimation::simulation::Simulation;
    use crate::model::mirror::Spacing;
    use crate::model::noise::GuideStar;
    use crate::plan::Plan;
    use crate::tomography::covariance_matrix::tests::system;
    use crate::tomography::reconstructor::{ReconstructorOptions, ReconstructorPlan};
    use crate::watch::unwatched;
    use CorrectionMode::{Glao, Ltao, Mcao, Moao, Scao};
    use ndarray::Array1;

    // Correct a system in a test
    fn mirror(altitude: f64) -> MirrorDesign {
        MirrorDesign { altitude, ..MirrorDesign::new(Spacing::Actuators(6)) }
    }

    fn options(mode: CorrectionMode, altitudes: &[f64], weights: &[f64]) -> CorrectionOptions {
        let mirrors = altitudes.iter().map(|altitude| mirror(*altitude)).collect();
        CorrectionOptions::new(mode, mirrors).weights(weights.to_vec())
    }

    fn reconstruct(system: &System) -> Reconstruction {
        let options = ReconstructorOptions::default().keep(true);
        let plan = ReconstructorPlan::new(system, options).unwrap();
        plan.run(&Engine::default(), &unwatched).unwrap()
    }

    /// The mean variance of strokes of each target.
    fn variances(corrected: &Corrected) -> Vec<f64> {
        let mean = |errors: ArrayView2<f64>| errors.diag().mean().unwrap();
        corrected.stroke_errors.outer_iter().map(mean).collect()
    }

    // All modes agree for one target
    #[test]
    fn one_target_makes_all_modes_one() {
        let system = system(2e-14);
        let alone = system.to_builder().targets([system.targets()[1]]).build().unwrap();
        let found = reconstruct(&alone);
        let correct = |mode| {
            Correction::new(&alone, &options(mode, &[0.0], &[]))
                .unwrap()
                .of(&found, &Engine::default())
                .unwrap()
        };
        let moao = correct(Moao);
        for mode in [Ltao, Glao, Mcao] {
            let other = correct(mode);
            assert!((&other.commands[0] - &moao.commands[0]).iter().all(|gap| gap.abs() < 1e-12));
            assert!(
                (&other.stroke_errors - &moao.stroke_errors).iter().all(|gap| gap.abs() < 1e-22)
            );
        }
        // Strokes of the guess have the errors of the guess; slopes have those of the mirror as well.
        let correction = Correction::new(&alone, &options(Moao, &[0.0], &[])).unwrap();
        let pupil = correction.pupil(&Engine::default()).unwrap();
        let guess = found.error_covariance.index_axis(Axis(0), 0);
        let strokes = pupil.stroke_errors(&guess, &Engine::default()).unwrap();
        let gap = &moao.stroke_errors.index_axis(Axis(0), 0) - &strokes;
        assert!(gap.iter().all(|gap| gap.abs() < 1e-9 * strokes[[0, 0]]), "{gap:?}");
        let left = moao.slope_errors.index_axis(Axis(0), 0);
        assert!(left.diag().sum() > guess.diag().sum());
    }

    // Optimise without an image
    #[test]
    fn directions_of_an_optimisation_have_weights_and_no_images() {
        let (whole, engine) = (system(2e-14), Engine::default());
        let [near, far] = [0, 1].map(|t| whole.targets()[t]);
        let with = |targets: &[Source], optimisation: &[(Source, f64)]| {
            let builder = whole.to_builder().targets(targets.to_vec());
            builder.optimisation(optimisation.to_vec()).build().unwrap()
        };
        let correct = |system: &System, options: CorrectionOptions| {
            let correction = Correction::new(system, &options).unwrap();
            let found = reconstruct(correction.system());
            (correction.targets(), correction.of(&found, &engine).unwrap())
        };
        let both = with(&[near, far], &[]);
        for (mode, expected) in
            [(Glao, options(Glao, &[0.0], &[0.0, 2.0])), (Ltao, options(Glao, &[0.0], &[0.0, 1.0]))]
        {
            let (_, expected) = correct(&both, expected);
            let (targets, found) =
                correct(&with(&[near], &[(far, 2.0)]), options(mode, &[0.0], &[]));
            assert_eq!((targets, found.stroke_errors.dim().0), (1, 1));
            let scale = expected.commands[0].fold(0.0, |most: f64, x| most.max(x.abs()));
            assert!(
                (&found.commands[0] - &expected.commands[0])
                    .iter()
                    .all(|gap| gap.abs() < 1e-9 * scale)
            );
            assert!((variances(&found)[0] / variances(&expected)[0] - 1.0).abs() < 1e-9);
        }
        // A direction of a target adds its weight to that target's.
        let (targets, found) =
            correct(&with(&[near, far], &[(far, 0.5)]), options(Glao, &[0.0], &[1.0, 0.5]));
        let (_, expected) = correct(&both, options(Glao, &[0.0], &[1.0, 1.0]));
        assert_eq!((targets, variances(&found)), (2, variances(&expected)));
        // Modes without a compromise have no such directions.
        for (mode, directions) in [(Moao, 1), (Scao, 1), (Ltao, 2)] {
            let system = with(&[near], &vec![(far, 1.0); directions]);
            let refused =
                Correction::new(&system, &options(mode, &[0.0], &[])).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("optimisation = {directions}: expected ")),
                "{refused}"
            );
        }
        let zero = whole.to_builder().optimisation([(far, 0.0)]).build().unwrap_err();
        assert_eq!(zero.quantity, "optimisation[0].weight");
    }

    // Mirrors in series beat a single one
    #[test]
    fn mirrors_in_series_beat_a_single_one() {
        let system = system(2e-14);
        let found = reconstruct(&system);
        let correct = |options: &CorrectionOptions| {
            variances(
                &Correction::new(&system, options).unwrap().of(&found, &Engine::default()).unwrap(),
            )
        };
        let own = correct(&options(Moao, &[0.0], &[]));
        let ground = correct(&options(Glao, &[0.0], &[]));
        let series = correct(&options(Mcao, &[0.0, 4500.0, 11e3], &[]));
        for t in 0..2 {
            assert!(
                own[t] < series[t] && series[t] < 0.95 * ground[t],
                "{own:?} {series:?} {ground:?}"
            );
            assert!(series[t] < 1.05 * own[t], "{own:?} {series:?}");
        }
        // A compromise leans to where the weight is, and ends with one target alone.
        let first = correct(&options(Ltao, &[0.0], &[]));
        let leaning = correct(&options(Glao, &[0.0], &[5.0, 1.0]));
        assert!(
            first[0] <= leaning[0] && leaning[0] < ground[0],
            "{first:?} {leaning:?} {ground:?}"
        );
        assert!(
            first[1] > leaning[1] && leaning[1] > ground[1],
            "{first:?} {leaning:?} {ground:?}"
        );
        assert!((first[0] / own[0] - 1.0).abs() < 1e-6);
        let all = correct(&options(Glao, &[0.0], &[1.0, 0.0]));
        assert!((all[0] / first[0] - 1.0).abs() < 1e-9 && (all[1] / first[1] - 1.0).abs() < 1e-9);
        // A mirror for the first guide star, which is far from both targets, is for none of them.
        let scao = Correction::new(&system, &options(Scao, &[0.0], &[])).unwrap();
        assert_eq!(scao.system().targets().len(), 3);
        let corrected = scao.of(&reconstruct(scao.system()), &Engine::default()).unwrap();
        assert_eq!(corrected.stroke_errors.dim().0, 2);
        let apart = variances(&corrected);
        assert!((0..2).all(|t| apart[t] > 1.2 * ground[t]), "{apart:?} {ground:?}");
    }

    // Simulated realisations confirm a correction
    #[test]
    fn simulated_realisations_confirm_a_correction() {
        const REALISATIONS: usize = 60;
        let system = system(4e-14);
        let correction =
            Correction::new(&system, &options(Mcao, &[0.0, 9e3], &[1.0, 2.5])).unwrap();
        let corrected = correction.of(&reconstruct(&system), &Engine::default()).unwrap();
        let truth =
            |target: &Source| GuideStar::at_rest(*target, *system.truth_sensor(), 0.0).unwrap();
        let mut stars = system.guide_stars().to_vec();
        stars.extend(system.targets().iter().map(truth));
        let turbulence =
            Simulation::new(&system.to_builder().guide_stars(stars).build().unwrap()).unwrap();
        let (command, (_, m, _)) = (&corrected.commands[0], corrected.slope_errors.dim());
        let n = command.ncols();
        let mut squares = [Array1::<f64>::zeros(m), Array1::<f64>::zeros(m)];
        for draw in 0..REALISATIONS {
            let slopes = Array1::from(turbulence.realisation(draw as u64 + 1).slopes.to_vec());
            let strokes = command.dot(&slopes.slice(s![..n]));
            for (t, target) in system.targets().iter().enumerate() {
                let own = slopes.slice(s![n + t * m..n + (t + 1) * m]);
                let left = &own - &correction.interaction(target).dot(&strokes);
                squares[t] += &(&left * &left / REALISATIONS as f64);
            }
        }
        for (t, measured) in squares.iter().enumerate() {
            let expected = corrected.slope_errors.index_axis(Axis(0), t).diag().to_owned();
            assert!((measured.sum() / expected.sum() - 1.0).abs() < 0.06, "{t}");
            let bar = (2.0 / REALISATIONS as f64).sqrt();
            let far = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() > 5.0 * bar;
            assert!(!measured.iter().zip(&expected).any(far));
        }
    }

    // Invalid corrections are rejected
    #[test]
    fn corrections_that_cannot_be_are_refused() {
        let system = system(2e-14);
        let named = |options: CorrectionOptions| {
            Correction::new(&system, &options).unwrap_err().to_string()
        };
        assert!(named(options(Moao, &[], &[])).starts_with("mirror = 0: expected one"));
        assert!(named(options(Glao, &[0.0, 5e3], &[])).starts_with("mirror = 2: expected one"));
        assert!(
            named(options(Mcao, &[0.0], &[1.0])).starts_with("weights = 1: expected 2 weights")
        );
        assert!(named(options(Mcao, &[0.0], &[0.0, 0.0])).starts_with("target[0].weight = 0.0"));
        assert!(
            named(options(Mcao, &[0.0], &[1.0, f64::NAN])).starts_with("target[1].weight = NaN")
        );
        let aimless = system.to_builder().targets([]).build().unwrap();
        let error = Correction::new(&aimless, &options(Glao, &[0.0], &[])).unwrap_err();
        assert!(error.to_string().starts_with("target = 0: expected at least one"));
        // A reconstruction without its covariances, and one of another system.
        let correction = Correction::new(&system, &options(Moao, &[0.0], &[])).unwrap();
        let mut found =
            reconstruct(&system.to_builder().targets([system.targets()[0]]).build().unwrap());
        let error = correction.of(&found, &Engine::default()).unwrap_err().to_string();
        assert!(error.starts_with("reconstruction = "), "{error}");
        found.covariances = None;
        assert!(
            correction
                .of(&found, &Engine::default())
                .unwrap_err()
                .to_string()
                .contains("keep(true)")
        );
    }

    // Corrections of files are checked
    #[cfg(feature = "files")]
    #[test]
    fn corrections_of_files_are_checked() {
        let read = |text: &str| {
            CorrectionOptions::from_system_file(&SystemFile::from_toml(text, "s.toml")?)
        };
        assert_eq!(read("").unwrap(), None);
        let refused = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(
            refused("[correction]\nmode = 'ltao'"),
            "s.toml:1: mirror is missing: expected a table [[mirror]], as there is a [correction]"
        );
        let two = "[[mirror]]\nactuators = 9\n[[mirror]]\npitch = 0.5\n";
        assert!(
            refused(two).starts_with("s.toml:3: mirror[1]: expected no second mirror"),
            "{}",
            refused(two)
        );
        let series = format!("{two}[correction]\nmode = 'mcao'\n");
        assert_eq!(read(&series).unwrap().unwrap().mirrors[1].spacing, Spacing::Pitch(0.5));
        assert!(refused("[[mirror]]\n").starts_with("s.toml:1: mirror[0].actuators is missing"));
        let both = "[[mirror]]\nactuators = 9\npitch = 0.5";
        assert!(refused(both).starts_with("s.toml:3: mirror[0].pitch = 0.5: expected either"));
        let wrong = "[[mirror]]\nactuators = 9\nkept = [0.9, 0.2]";
        assert!(refused(wrong).starts_with("s.toml:3: mirror[0].kept"), "{}", refused(wrong));
        assert!(refused("[[mirror]]\nactuator = 9").contains("did you mean actuators?"));
        assert!(refused("[correction]\nmode = 'lgao'").contains("\"moao\" or \"ltao\""));
    }
}
