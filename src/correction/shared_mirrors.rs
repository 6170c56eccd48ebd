// Tangled from book/src/shared-mirrors.md: edit there, or here and run cargo tangle stitch.
//! Residual strokes behind mirrors that targets share, one target after the other.

// Imports of shared mirrors
use crate::correction::in_band_covariance::{LowTurbulence, low_bytes_of_each};
use crate::correction::modes::{Correction, CorrectionMode};
use crate::correction::projector::Projector;
use crate::device::Engine;
use crate::error::{Error, accept, count};
use crate::linear::factorisation::unit;
use crate::linear::{times, times_transpose};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::source::Source;
use crate::plan::{Description, Memory};
use crate::tomography::covariance_matrix::truth_covariance;
use crate::tomography::noise_error;
use crate::tomography::reconstructor::ReconstructorPlan;
use crate::tomography::reconstructor::command::{StrokeCommand, StrokeSum};
use crate::watch::{CancelOnly, Watch, check};
use ndarray::{Array2, CowArray, Ix2};

// Shared mirrors and their shapes
// Options of shared mirrors
/// Options of shared mirrors.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct SharedOptions {
    /// Noise gain of the loop; 1 without a loop.
    pub noise_gain: f64,
    /// Whether errors are split [by their causes](crate::tomography::ErrorSplit).
    pub by_cause: bool,
    /// Whether the error of each shape in its own directions is computed, from which anisoplanatism is measured, Eq. [own and elsewhere](https://lenslet.github.io/lenslet/anisoplanatism.html#eq-own-and-elsewhere).
    pub own: bool,
    /// How many targets the mirrors are for, from the first on, if each has its own; the others are corrected by the mirror of the nearest.
    pub mirrors: usize,
}

// Options of shared mirrors one by one
impl Default for SharedOptions {
    /// The whole error without a loop, of mirrors for the first target.
    fn default() -> Self {
        Self { noise_gain: 1.0, by_cause: false, own: false, mirrors: 1 }
    }
}

impl SharedOptions {
    /// Sets the noise gain of the loop.
    pub fn noise_gain(self, noise_gain: f64) -> Self {
        Self { noise_gain, ..self }
    }

    /// Sets whether errors are reported by their causes.
    pub fn by_cause(self, by_cause: bool) -> Self {
        Self { by_cause, ..self }
    }

    /// Sets whether the error of each shape in its own directions is computed.
    pub fn own(self, own: bool) -> Self {
        Self { own, ..self }
    }

    /// Sets the number of targets with a separate mirror, if each has its own.
    pub fn mirrors(self, mirrors: usize) -> Self {
        Self { mirrors, ..self }
    }
}

// Mirrors with all their shapes
/// Shapes of shared mirrors, behind which one target after the other is evaluated.
pub struct SharedMirrors<'a> {
    correction: &'a Correction,
    plan: &'a ReconstructorPlan,
    options: SharedOptions,
    pupil: &'a Projector,
    /// J⁺ C_tt J⁺ᵗ, (b, b), m², of all turbulence and of low turbulence.
    before: Array2<f64>,
    low: Option<(LowTurbulence<'a>, Array2<f64>)>,
    /// A number of the size of C_tt, rad².
    unit: f64,
    shapes: Vec<MirrorShape>,
}

// One shape of shared mirrors
/// One shape of the mirrors.
struct MirrorShape {
    /// Indices of the directions for which it is optimised, with weights.
    chosen: Vec<(usize, f64)>,
    moments: MirrorMoments,
    /// C_vv in the directions for which it is optimised, (b, b), m².
    own: Option<Array2<f64>>,
}

// Residual strokes by their causes
/// Residual towards a target, in strokes of a mirror in the pupil.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResidualStrokes {
    /// C_vv, (b, b), m², by the names of causes: `tomography` alone, or `tomography`, `noise` and `aliasing`.
    pub parts: Vec<(&'static str, Array2<f64>)>,
    /// The index of the shape behind which the target is evaluated.
    pub shape: usize,
}

/// The causes of a tomographic error.
pub(crate) const CAUSES: [&str; 3] = ["tomography", "noise", "aliasing"];

// Compute the shapes of mirrors
impl Correction {
    // Example of shared mirrors
    /// The mirrors of this correction with the commands of their shapes, by the plan of a reconstructor of [`system`](Self::system).
    ///
    /// # Errors
    /// `Invalid` if the plan belongs to another system or is iterative, or no target has a mirror; `Memory` if something does not fit; as for
    /// [`ReconstructorPlan`](crate::tomography::ReconstructorPlan) and [`low_covariances`](crate::correction::low_covariances).
    ///
    /// ```
    /// use lenslet::correction::{Correction, CorrectionMode, CorrectionOptions, SharedOptions};
    /// use lenslet::{device::Engine, watch::unwatched};
    /// use lenslet::model::{MirrorDesign, Spacing, System};
    /// use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
    /// let system = System::from_file("book/systems/small-moao.toml")?;
    /// let mirrors = vec![MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(9)) }];
    /// let options = CorrectionOptions::new(CorrectionMode::Ltao, mirrors);
    /// let (correction, cores) = (Correction::new(&system, &options)?, Engine::default());
    /// let plan = ReconstructorPlan::new(correction.system(), ReconstructorOptions::default())?;
    /// let mirror = correction.shared(&plan, SharedOptions::default().own(true), (&cores, &unwatched))?;
    /// // The mirror is optimised for the first target; the other one, half a minute of arc away, has more than twice the variance.
    /// let [own, aside] = [0, 1].map(|t| mirror.left(t, (&cores, &unwatched)).unwrap().parts.remove(0).1.diag().sum());
    /// assert!((own / mirror.own_error(0).unwrap().diag().sum() - 1.0).abs() < 1e-12);
    /// assert!(aside > 2.0 * own);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn shared<'a>(
        &'a self,
        plan: &'a ReconstructorPlan,
        options: SharedOptions,
        (engine, watch): (&Engine, &dyn Watch),
    ) -> Result<SharedMirrors<'a>, Error> {
        let pupil = self.pupil(engine)?;
        // Refuse plans of other systems
        let slopes = pupil.interaction().nrows();
        let shape = (plan.targets(), plan.truth_slopes());
        let expected = (self.system().targets().len(), slopes);
        let words = format!("{expected:?} targets and slopes of each, those of the correction");
        accept(shape == expected, "reconstruction", shape, &words)?;
        let expected = "from 1 to the number of targets";
        let good = (1..=self.targets()).contains(&options.mirrors);
        accept(good || !self.is_own(), "mirrors", options.mirrors, expected)?;
        self.memory_of_shared(plan, options, engine).check(engine, "mirrors that targets share")?;
        // Compute the commands of all shapes
        let truth = truth_covariance(self.system(), watch)?;
        let (unit, before) = (unit(&truth), pupil.stroke_errors(&truth.view(), engine)?);
        drop(truth);
        let shapes = self.chosen(options);
        let own = self.own_sums(&shapes, options);
        let sums = self.sums(&shapes, engine)?;
        let onto = pupil.inverse().view();
        let alone = |t: &usize| vec![(*t, onto)];
        let sums: Vec<StrokeSum> = sums.iter().map(viewed).chain(own.iter().map(alone)).collect();
        let commands = plan.commands(&sums, unit, (engine, watch))?;
        drop(sums);
        // Shared mirrors before their shapes
        let mirrors = SharedMirrors {
            correction: self,
            plan,
            options,
            pupil,
            before,
            low: None,
            unit,
            shapes: Vec::new(),
        };
        mirrors.shaped(shapes, (commands, own), (engine, watch))
    }
}

// Borrowed views of sums
/// Borrowed view of a sum over targets.
pub(crate) fn viewed<'s>(sum: &'s OwnedSum) -> StrokeSum<'s> {
    sum.iter().map(|(t, part)| (*t, part.view())).collect()
}

/// A sum that has or borrows what slopes add to strokes.
pub(crate) type OwnedSum<'s> = Vec<(usize, CowArray<'s, f64, Ix2>)>;

// Choose directions for shapes
impl Correction {
    // Kinds of shared mirrors
    /// Whether each target has a mirror of its own.
    fn is_own(&self) -> bool {
        self.mode() == CorrectionMode::Moao
    }

    /// Whether the strokes are those of the mirror in the pupil.
    pub(crate) fn is_in_pupil(&self) -> bool {
        self.mirrors().len() == 1 && self.mirrors()[0].altitude() == 0.0
    }

    /// The directions that each shape is for, with their weights.
    pub(crate) fn chosen(&self, options: SharedOptions) -> Vec<Vec<(usize, f64)>> {
        if self.is_own() {
            return (0..options.mirrors).map(|t| vec![(t, 1.0)]).collect();
        }
        let all = self.weights().iter().copied().enumerate();
        vec![all.filter(|(_, weight)| *weight > 0.0).collect()]
    }

    // Direction that is nearest to a target
    /// The place in a list of directions, by their numbers, of the first one that is nearest to a target.
    pub(crate) fn nearest(&self, t: usize, directions: impl Iterator<Item = usize>) -> usize {
        let all = self.system().targets();
        let far = |other: usize| {
            let [one, other] = [t, other].map(|t| all[t].direction());
            f64::hypot(one[0] - other[0], one[1] - other[1])
        };
        let gaps = directions.map(far).enumerate();
        gaps.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(0, |(k, _)| k)
    }

    // Directions whose own error is computed
    /// The directions whose own errors are wanted, and are not known from shapes for them alone.
    pub(crate) fn own_sums(
        &self,
        shapes: &[Vec<(usize, f64)>],
        options: SharedOptions,
    ) -> Vec<usize> {
        let known = |chosen: &&Vec<_>| !(self.is_in_pupil() && chosen.len() == 1);
        let all = shapes.iter().filter(known).flatten().map(|(t, _)| *t);
        if options.own { all.collect() } else { Vec::new() }
    }

    // Projectors of the chosen directions
    /// What slopes of the chosen directions add to strokes, for each shape.
    pub(crate) fn sums<'a>(
        &'a self,
        shapes: &[Vec<(usize, f64)>],
        engine: &Engine,
    ) -> Result<Vec<OwnedSum<'a>>, Error> {
        let onto = self.pupil(engine)?.inverse();
        let sum = |chosen: &Vec<(usize, f64)>| {
            let whole: f64 = chosen.iter().map(|(_, weight)| weight).sum();
            if !self.is_in_pupil() {
                let of = |(t, weight): &(usize, f64)| (self.system().targets()[*t], *weight);
                let directions: Vec<(Source, f64)> = chosen.iter().map(of).collect();
                let parts = self.projectors(&directions, engine)?.into_iter().map(CowArray::from);
                return Ok(chosen.iter().map(|(t, _)| *t).zip(parts).collect());
            }
            let part = |(t, weight): &(usize, f64)| match chosen.len() {
                1 => (*t, CowArray::from(onto.view())),
                _ => (*t, CowArray::from(onto * (weight / whole))),
            };
            Ok(chosen.iter().map(part).collect())
        };
        shapes.iter().map(sum).collect()
    }
}

// Second moments of a shape
// Command with its second moments
/// A command, and the covariances of its strokes, (a, a), m².
struct MirrorMoments {
    command: StrokeCommand,
    noise: Array2<f64>,
    low: Option<Array2<f64>>,
}

impl<'a> SharedMirrors<'a> {
    /// With shapes of these commands, behind which stand those of directions alone.
    fn shaped(
        mut self,
        shapes: Vec<Vec<(usize, f64)>>,
        (commands, own): (Vec<StrokeCommand>, Vec<usize>),
        to: (&Engine, &dyn Watch),
    ) -> Result<Self, Error> {
        // Find the moments of the noise
        let system = self.correction.system();
        let order = SlopeOrder::new(&system.valid_lenslets());
        let noise = SlopeNoise::new(system.guide_stars(), &order);
        let moments = |command: StrokeCommand| MirrorMoments {
            noise: noise_error(&command.rows, &noise),
            command,
            low: None,
        };
        let mut moments: Vec<MirrorMoments> = commands.into_iter().map(moments).collect();
        if self.options.by_cause {
            self.add_low(&mut moments, to)?;
        }
        // Evaluate the directions' own errors
        let to: (&Engine, &dyn Watch) = (to.0, &CancelOnly(to.1));
        let alone = moments.split_off(shapes.len());
        let errors =
            own.iter().zip(&alone).map(|(t, moments)| Ok((*t, self.own(*t, moments, to)?)));
        let errors: Vec<(usize, Array2<f64>)> = errors.collect::<Result<_, Error>>()?;
        drop(alone);
        for (chosen, moments) in shapes.into_iter().zip(moments) {
            let own = self.mean_error(&chosen, &moments, &errors, to)?;
            self.shapes.push(MirrorShape { chosen, moments, own });
        }
        Ok(self)
    }

    // Low strokes of all commands
    /// Adds the covariances of strokes by low turbulence, from one covariance of measurements.
    fn add_low(
        &mut self,
        moments: &mut [MirrorMoments],
        (engine, watch): (&Engine, &dyn Watch),
    ) -> Result<(), Error> {
        let pitch = self.correction.pupil_mirror().fitting_pitch();
        let low = LowTurbulence::new(self.correction.system(), pitch, watch)?;
        let measured = low.measurements(watch)?;
        for moments in moments {
            check(watch)?;
            let rows = &moments.command.rows;
            moments.low = Some(times_transpose(&times_transpose(rows, &measured), rows));
        }
        drop(measured);
        let before = self.pupil.stroke_errors(&low.truth(watch)?.view(), engine)?;
        self.low = Some((low, before));
        Ok(())
    }
}

// Compute residual strokes of one target
impl SharedMirrors<'_> {
    /// Residual strokes towards a target.
    ///
    /// # Errors
    /// `Invalid` if there is no such target; as for [`Correction::shared`].
    pub fn left(&self, t: usize, to: (&Engine, &dyn Watch)) -> Result<ResidualStrokes, Error> {
        accept(t < self.correction.targets(), "target", t, "the number of a target")?;
        let shape = self.nearest(t);
        let parts = self.parts(t, &self.shapes[shape].moments, self.projection(t).as_ref(), to)?;
        Ok(ResidualStrokes { parts, shape })
    }

    // Own error and projection of a target
    /// Residual C_vv of a shape in the directions that it is for, (b, b), m², of the first of the parts; the weighted mean over its directions, each behind a mirror of its own, if
    /// that is [wanted](SharedOptions::own).
    pub fn own_error(&self, shape: usize) -> Option<&Array2<f64>> {
        self.shapes.get(shape)?.own.as_ref()
    }

    /// M_t, unless mirrors are the one in the pupil.
    fn projection(&self, t: usize) -> Option<Array2<f64>> {
        let target = &self.correction.system().targets()[t];
        let elsewhere = !self.correction.is_in_pupil();
        elsewhere.then(|| times(self.pupil.inverse(), &self.correction.interaction(target)))
    }

    // Find the nearest shape
    /// The shape that a target sees.
    fn nearest(&self, t: usize) -> usize {
        self.correction.nearest(t, self.shapes.iter().map(|shape| shape.chosen[0].0))
    }

    // Parts of residual strokes
    /// C_vv towards a target behind some command, whole or by causes, Eq. [left in strokes](https://lenslet.github.io/lenslet/many-targets.html#eq-left-in-strokes).
    fn parts(
        &self,
        t: usize,
        MirrorMoments { command, noise, low }: &MirrorMoments,
        projection: Option<&Array2<f64>>,
        (engine, watch): (&Engine, &dyn Watch),
    ) -> Result<Vec<(&'static str, Array2<f64>)>, Error> {
        let gain = self.options.noise_gain;
        let matrices = [self.pupil.inverse(), &command.rows];
        let (Some((of_low, before)), Some(low)) = (&self.low, low) else {
            let with = self.plan.strokes_with(t, matrices, self.unit, (engine, watch))?;
            let made = &command.variance + &(noise * (gain - 1.0));
            return Ok(vec![(CAUSES[0], left(&self.before, &with, projection, &made))]);
        };
        check(watch)?;
        let between = of_low.with_truth(t..t + 1, watch)?;
        let with = times(matrices[0], &times_transpose(&between, matrices[1]));
        let folded = &command.variance - low - noise;
        // Tomography, noise and aliasing of strokes
        let causes = [
            left(before, &with, projection, low),
            through(projection, noise) * gain,
            through(projection, &folded),
        ];
        Ok(CAUSES.into_iter().zip(causes).collect())
    }
}

// Own error of a shape
/// M V Mᵗ.
fn through(projection: Option<&Array2<f64>>, made: &Array2<f64>) -> Array2<f64> {
    projection.map_or_else(
        || made.clone(),
        |projection| times_transpose(&times_transpose(projection, made), projection),
    )
}

// Residual strokes behind commanded mirrors
/// Eq. [left in strokes](https://lenslet.github.io/lenslet/many-targets.html#eq-left-in-strokes).
fn left(
    before: &Array2<f64>,
    with: &Array2<f64>,
    projection: Option<&Array2<f64>>,
    made: &Array2<f64>,
) -> Array2<f64> {
    let cross =
        projection.map_or_else(|| with.clone(), |projection| times_transpose(with, projection));
    let mut left = before - &cross - cross.t() + through(projection, made);
    let turned = left.t().to_owned();
    left.zip_mut_with(&turned, |one, other| *one = 0.5 * (*one + other));
    left
}

impl SharedMirrors<'_> {
    // Mean error of the own directions
    // Own error by a command alone
    /// The first part of the error of a target behind a mirror of its own, by the command for it alone.
    fn own(
        &self,
        t: usize,
        moments: &MirrorMoments,
        to: (&Engine, &dyn Watch),
    ) -> Result<Array2<f64>, Error> {
        Ok(self.parts(t, moments, None, to)?.swap_remove(0).1)
    }

    /// The weighted mean of own errors over the directions that a shape is for.
    fn mean_error(
        &self,
        chosen: &[(usize, f64)],
        moments: &MirrorMoments,
        known: &[(usize, Array2<f64>)],
        to: (&Engine, &dyn Watch),
    ) -> Result<Option<Array2<f64>>, Error> {
        if !self.options.own {
            return Ok(None);
        }
        let (mut sum, mut whole) = (Array2::zeros(self.before.dim()), 0.0);
        for (t, weight) in chosen {
            match known.iter().find(|(other, _)| other == t) {
                Some((_, error)) => sum.scaled_add(*weight, error),
                None => sum.scaled_add(*weight, &self.own(*t, moments, to)?),
            }
            whole += weight;
        }
        Ok(Some(sum / whole))
    }
}

// Memory of shared mirrors
impl Correction {
    /// Strokes of a command, and how many commands there are.
    pub(crate) fn shared_commands(&self, options: SharedOptions) -> [usize; 2] {
        let actuators = match self.is_in_pupil() {
            true => self.pupil_mirror().positions().len(),
            false => self.mirrors().iter().map(|mirror| mirror.positions().len()).sum(),
        };
        let shapes = self.chosen(options);
        [actuators, shapes.len() + self.own_sums(&shapes, options).len()]
    }

    /// Changes what a reconstructor's plan says of itself to what is true of its commands for shared mirrors.
    pub(crate) fn describe_shared(
        &self,
        plan: &ReconstructorPlan,
        (options, engine): (SharedOptions, &Engine),
        description: &mut Description,
    ) {
        description.memory = self.memory_of_shared(plan, options, engine);
        let [targets, slopes] = [(self.targets(), "target"), (plan.measurements(), "slope")]
            .map(|(number, noun)| count(number, noun));
        description.what = format!("images of {targets} behind shared mirrors, from {slopes}");
        let stage = plan.stage_of_commands(self.shared_commands(options), engine);
        description.stages.retain(|known| !plan.is_replaced(known));
        description.stages.push(stage);
    }

    /// Largest memory that [`shared`](Self::shared) mirrors occupy, together with the residual towards one target.
    pub fn memory_of_shared(
        &self,
        plan: &ReconstructorPlan,
        options: SharedOptions,
        engine: &Engine,
    ) -> Memory {
        let [actuators, held] = self.shared_commands(options);
        let mut memory = plan.memory_of_commands(actuators, held, engine);
        let [m, n, a, commands] =
            [plan.truth_slopes(), plan.measurements(), actuators, held].map(|k| k as u64);
        let b = self.pupil_mirror().positions().len() as u64;
        if options.by_cause {
            let low = low_bytes_of_each(self.system(), self.pupil_mirror().fitting_pitch());
            memory.host = memory.host.max(low.saturating_add(8 * (commands + 1) * a * n));
        }
        let directions: usize = self.chosen(options).iter().map(Vec::len).sum();
        let stack = if self.is_in_pupil() { 0 } else { 4 * directions as u64 * m * a };
        let moments = (3 * commands + 4) * a * a + (commands + 6) * b * b + 2 * a * b;
        let numbers = 2 * b * m + 2 * m * m + stack + moments;
        memory.host = memory.host.saturating_add(8 * numbers).saturating_add(Memory::REST);
        memory
    }
}

// Tests of shared mirrors
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::in_band_covariance::low_covariances;
    use crate::correction::modes::CorrectionOptions;
    use crate::estimation::Inversion;
    use crate::estimation::simulation::Simulation;
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::removed_modes::TipTilt;
    use crate::model::system::System;
    use crate::plan::Plan;
    use crate::tomography::covariance_matrix::tests::system;
    use crate::tomography::{ErrorSplit, ReconstructorOptions};
    use crate::watch::unwatched;
    use CorrectionMode::{Glao, Ltao, Mcao, Moao, Scao};
    use ndarray::{Array1, Axis, s};

    // Lopsided mirrors for some targets
    /// Two targets with weights, and two directions without.
    fn lopsided() -> System {
        let system = system(2e-14);
        let mut stars = system.guide_stars().to_vec();
        stars[0].tip_tilt = TipTilt::Removed;
        let star = |zenith: f64, azimuth: f64| Source::star(zenith * 5e-6, azimuth).unwrap();
        let targets = system.targets().iter().copied().chain([star(14.0, 0.7), star(3.0, 5.0)]);
        system.to_builder().guide_stars(stars).targets(targets).build().unwrap()
    }

    fn correction(system: &System, mode: CorrectionMode, designs: &[(usize, f64)]) -> Correction {
        let design = |(actuators, altitude): &(usize, f64)| MirrorDesign {
            altitude: *altitude,
            filter: 0.02,
            ..MirrorDesign::new(Spacing::Actuators(*actuators))
        };
        let weights = vec![1.0, 2.5, 0.0, 0.0];
        let mirrors = designs.iter().map(design).collect();
        Correction::new(system, &CorrectionOptions::new(mode, mirrors).weights(weights)).unwrap()
    }

    fn planned(correction: &Correction, method: Inversion, keep: bool) -> ReconstructorPlan {
        let options = ReconstructorOptions::default().method(method).keep(keep);
        ReconstructorPlan::new(correction.system(), options).unwrap()
    }

    const ALONE: SharedOptions =
        SharedOptions { noise_gain: 1.0, by_cause: false, own: false, mirrors: 4 };

    fn gap(one: &Array2<f64>, other: &Array2<f64>) -> f64 {
        let most = |matrix: &Array2<f64>| matrix.fold(0.0, |most: f64, x| most.max(x.abs()));
        most(&(one - other)) / most(other)
    }

    // One after the other as all at once
    #[test]
    fn one_after_the_other_leaves_what_all_at_once_do() {
        let (system, cores) = (lopsided(), Engine::default());
        let layers = [(6, 0.0), (5, 9e3)];
        for (mode, designs, method) in [
            (Mcao, &layers[..], Inversion::Eigen),
            (Glao, &layers[..1], Inversion::Cholesky),
            (Scao, &layers[1..], Inversion::Cholesky),
        ] {
            let correction = correction(&system, mode, designs);
            let found = planned(&correction, method, true).run(&cores, &unwatched).unwrap();
            let expected = correction.of(&found, &cores).unwrap();
            let plan = planned(&correction, method, false);
            let options = ALONE.noise_gain(1.7);
            let mirrors = correction.shared(&plan, options, (&cores, &unwatched)).unwrap();
            for t in [1, 2] {
                let left = mirrors.left(t, (&cores, &unwatched)).unwrap();
                let [(name, strokes)] = &left.parts[..] else { panic!("{:?}", left.parts) };
                let noise = expected.noise_errors.index_axis(Axis(0), t);
                let expected = &expected.stroke_errors.index_axis(Axis(0), t) + &(0.7 * &noise);
                let gap = gap(strokes, &expected);
                assert!(*name == "tomography" && gap < 1e-10, "{mode:?} {method:?} {t}: {gap:e}");
                assert!(mirrors.own_error(left.shape).is_none());
            }
        }
    }

    // Causes one after the other
    #[test]
    fn causes_come_one_after_the_other() {
        let (system, cores) = (lopsided(), Engine::default());
        let correction = correction(&system, Mcao, &[(6, 0.0), (5, 9e3)]);
        let plan = planned(&correction, Inversion::Cholesky, true);
        let found = plan.run(&cores, &unwatched).unwrap();
        let commands = correction.commands(found.reconstructor.as_ref().unwrap(), &cores).unwrap();
        let low = low_covariances(&system, correction.pupil_mirror().fitting_pitch(), &unwatched)
            .unwrap();
        let measured = found.covariances.unwrap().measurements;
        let split = ErrorSplit::new(&system, measured, low).unwrap();
        let plan = planned(&correction, Inversion::Cholesky, false);
        let options = ALONE.noise_gain(0.4).by_cause(true);
        let mirrors = correction.shared(&plan, options, (&cores, &unwatched)).unwrap();
        let pupil = correction.pupil(&cores).unwrap();
        for t in [1, 2] {
            let left = mirrors.left(t, (&cores, &unwatched)).unwrap();
            let parts = split.of(&correction.made(&commands, t), t).unwrap();
            let expected = [parts.tomography, 0.4 * parts.noise, parts.aliasing];
            for (k, expected) in expected.iter().enumerate() {
                let expected = pupil.stroke_errors(&expected.view(), &cores).unwrap();
                let gap = gap(&left.parts[k].1, &expected);
                assert!(left.parts[k].0 == CAUSES[k] && gap < 1e-9, "{t} {k}: {gap:e}");
            }
        }
    }

    // Own errors are those of own mirrors
    #[test]
    fn own_errors_are_those_of_own_mirrors() {
        let (system, cores) = (lopsided(), Engine::default());
        let own = |mode, designs: &[(usize, f64)]| {
            let correction = correction(&system, mode, designs);
            let plan = planned(&correction, Inversion::Auto, false);
            let options = ALONE.own(true).mirrors(2);
            let mirrors = correction.shared(&plan, options, (&cores, &unwatched)).unwrap();
            let left = |t| mirrors.left(t, (&cores, &unwatched)).unwrap();
            let residuals: Vec<_> = (0..4).map(left).collect();
            let errors: Vec<_> = residuals.iter().map(|left| left.parts[0].1.clone()).collect();
            let own = residuals.iter().map(|left| mirrors.own_error(left.shape).unwrap().clone());
            (errors, own.collect::<Vec<_>>())
        };
        let (each, own_of_each) = own(Moao, &[(6, 0.0)]);
        assert!((0..2).all(|t| gap(&own_of_each[t], &each[t]) < 1e-12));
        // The third direction is nearest to the first target.
        assert!(gap(&own_of_each[2], &each[0]) < 1e-12 && gap(&own_of_each[3], &each[0]) < 1e-12);
        assert!(each[2].diag().sum() > 1.1 * each[0].diag().sum());
        let (first, own_of_first) = own(Ltao, &[(6, 0.0)]);
        assert!(gap(&first[0], &each[0]) < 1e-9 && gap(&own_of_first[3], &each[0]) < 1e-9);
        let mean = (&each[0] + &(2.5 * &each[1])) / 3.5;
        let (shared, own) = own(Mcao, &[(6, 0.0), (5, 9e3)]);
        assert!(gap(&own[1], &mean) < 1e-9);
        assert!((0..2).all(|t| shared[t].diag().sum() > each[t].diag().sum()));
    }

    // Simulated realisations confirm anisoplanatism
    #[test]
    fn simulated_realisations_confirm_anisoplanatism() {
        const REALISATIONS: usize = 120;
        let (system, cores) = (lopsided(), Engine::default());
        let correction = correction(&system, Ltao, &[(6, 0.0)]);
        let plan = planned(&correction, Inversion::Auto, false);
        let options = ALONE.own(true);
        let mirrors = correction.shared(&plan, options, (&cores, &unwatched)).unwrap();
        let command = &mirrors.shapes[0].moments.command.rows;
        let pupil = correction.pupil(&cores).unwrap();
        let truth = |t: usize| {
            let target = correction.system().targets()[t];
            crate::model::noise::GuideStar::at_rest(target, *system.truth_sensor(), 0.0).unwrap()
        };
        let stars = system.guide_stars().iter().cloned().chain([truth(0), truth(2)]);
        let turbulence =
            Simulation::new(&system.to_builder().guide_stars(stars).build().unwrap()).unwrap();
        let (n, m) = (command.ncols(), pupil.interaction().nrows());
        let mut sums = [0.0; 2];
        for draw in 0..REALISATIONS {
            let slopes = Array1::from(turbulence.realisation(draw as u64 + 1).slopes.to_vec());
            let strokes = command.dot(&slopes.slice(s![..n]));
            for (k, sum) in sums.iter_mut().enumerate() {
                let first = n + k * m;
                let left = pupil.inverse().dot(&slopes.slice(s![first..first + m])) - &strokes;
                *sum += left.dot(&left) / REALISATIONS as f64;
            }
        }
        let left = mirrors.left(2, (&cores, &unwatched)).unwrap().parts.remove(0).1;
        let own = mirrors.own_error(0).unwrap().diag().sum();
        let expected = [own, left.diag().sum()];
        for (sum, expected) in sums.iter().zip(expected) {
            assert!((sum / expected - 1.0).abs() < 0.08, "{sums:?} {expected:?}");
        }
        let anisoplanatism = (sums[1] - sums[0]) / (expected[1] - expected[0]);
        assert!((anisoplanatism - 1.0).abs() < 0.12, "{anisoplanatism}");
        assert!(expected[1] > 1.3 * expected[0]);
    }

    // Devices and host agree on shared mirrors
    #[test]
    fn devices_share_mirrors_as_cores_do() {
        use crate::numerics::Precision;
        // The emulated device is slow: few lenslets, two stars, two targets.
        let all = lopsided();
        let array = crate::model::LensletArray::new(4, 0.9).unwrap();
        let star = |k: usize| {
            let mut star = all.guide_stars()[k].clone();
            star.sensor.array = array;
            star
        };
        let few = all.to_builder().lenslet_array(array).truth_sensor(None);
        let few = few.guide_stars([star(0), star(2)]).targets(all.targets()[..2].to_vec());
        let system = few.build().unwrap();
        let design = |actuators: usize, altitude: f64| MirrorDesign {
            altitude,
            ..MirrorDesign::new(Spacing::Actuators(actuators))
        };
        let options = CorrectionOptions::new(Mcao, vec![design(5, 0.0), design(4, 9e3)]);
        let options = options.weights(vec![1.0, 2.0]);
        let correction = Correction::new(&system, &options).unwrap();
        let cores = Engine::default();
        for (method, precision, most) in [
            (Inversion::Cholesky, Precision::F64, 1e-8),
            (Inversion::Eigen, Precision::F64, 1e-7),
            (Inversion::Cholesky, Precision::F32, 2e-2),
        ] {
            let plan = planned(&correction, method, false);
            let here = correction.shared(&plan, ALONE, (&cores, &unwatched)).unwrap();
            let here = here.left(1, (&cores, &unwatched)).unwrap().parts.remove(0).1;
            for gpu in crate::device::gpu::test_backends() {
                if gpu.require_factors(method == Inversion::Eigen).is_err() {
                    eprintln!("skipped on {}: no {method:?}", gpu.name());
                    continue;
                }
                let engine = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                let there = correction.shared(&plan, ALONE, (&engine, &unwatched)).unwrap();
                let left = there.left(1, (&engine, &unwatched)).unwrap().parts.remove(0).1;
                let gap = gap(&left, &here);
                assert!(gap < most, "{method:?} {precision:?} on {}: {gap:e}", gpu.name());
                let memory = correction.memory_of_shared(&plan, ALONE, &engine);
                assert!(memory.devices[0] > 0 && memory.host > 0);
            }
        }
    }

    // Invalid options of shared mirrors
    #[test]
    fn shared_mirrors_that_cannot_be_are_refused() {
        let (system, cores) = (lopsided(), Engine::default());
        let correction = correction(&system, Moao, &[(6, 0.0)]);
        let to = (&cores, &unwatched as &dyn Watch);
        let refused = |plan: &ReconstructorPlan, options: SharedOptions| {
            correction.shared(plan, options, to).map(drop).unwrap_err().to_string()
        };
        let plan = planned(&correction, Inversion::Auto, false);
        let none = refused(&plan, ALONE.mirrors(0));
        assert!(none.starts_with("mirrors = 0: expected from 1"), "{none}");
        let other = system.to_builder().targets(system.targets()[..1].to_vec()).build().unwrap();
        let other = ReconstructorPlan::new(&other, ReconstructorOptions::default()).unwrap();
        assert!(refused(&other, ALONE).starts_with("reconstruction = (1, "));
        let iterated = planned(&correction, Inversion::Iterative, false);
        let words = refused(&iterated, ALONE);
        assert!(words.starts_with("reconstructor.method = \"iterative\""), "{words}");
        let later = ReconstructorOptions::default().delay(2e-3);
        let later = ReconstructorPlan::new(&system, later).unwrap();
        assert!(refused(&later, ALONE).starts_with("reconstructor.delay = 0.002"));
        let shared = correction.shared(&plan, ALONE, to).unwrap();
        assert!(shared.left(4, to).unwrap_err().to_string().starts_with("target = 4"));
        assert!(shared.own_error(9).is_none());
    }
}
