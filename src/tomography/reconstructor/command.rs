// Tangled from book/src/many-targets.md: edit there, or here and run cargo tangle stitch.
//! Commands: strokes for measurements, as sums over the slopes of targets.

mod gpu;

// Imports of commands
use super::wavefront::FactorisedCovariance;
use super::{DEVICE, ERROR, Inversion, RECONSTRUCTOR, ReconstructorPlan};
use crate::device::engine::Engine;
use crate::error::{Error, Invalid, accept};
use crate::estimation::inversion::MatrixRates;
use crate::linear::{times, times_transpose};
use crate::plan::{Memory, Stage};
use crate::tomography::covariance_matrix::{LENSLETS, TRUTH, rows_with_measurements};
use crate::watch::{StageParts, Watch, check};
use ndarray::{Array2, ArrayView2};

// Command of some strokes
/// Command matrix of strokes, with their covariance.
#[derive(Debug, Clone)]
pub(crate) struct StrokeCommand {
    /// K of Eq. [weights first](https://lenslet.github.io/lenslet/many-targets.html#eq-weights-first), (a, n).
    pub(crate) rows: Array2<f64>,
    /// V of Eq. [variance of strokes](https://lenslet.github.io/lenslet/many-targets.html#eq-variance-of-strokes), (a, a).
    pub(crate) variance: Array2<f64>,
}

/// Strokes as a sum over slopes of targets: the index of each target with its P, (a, m).
pub(crate) type StrokeSum<'s> = Vec<(usize, ArrayView2<'s, f64>)>;

impl ReconstructorPlan {
    // Sum projected covariances over targets
    /// The sum of P C_tm over targets, (a, n), with the covariances of one target in memory at a time.
    fn weighed(
        &self,
        sum: &StrokeSum,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let mut all = None::<Array2<f64>>;
        watch.stage(TRUTH, LENSLETS);
        for (t, part) in sum {
            let part = times(part, &self.with_truth(*t, engine, watch)?);
            all = Some(match all {
                Some(all) => all + part,
                None => part,
            });
        }
        Ok(all.unwrap_or_else(|| Array2::zeros((0, self.measurements))))
    }

    // Covariances of one target with measurements
    /// C_tm of one target, (m, n), rad².
    fn with_truth(
        &self,
        t: usize,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        check(watch)?;
        rows_with_measurements(&self.for_target(t)?.system, engine, watch)
    }
}

// Solve for commands one after the other
// Watch one of several commands
/// Watches the stages of one of several commands.
fn command_part(number: usize, count: usize, whole: &dyn Watch) -> StageParts<'_> {
    StageParts { whole, what: "command", number, count }
}

impl ReconstructorPlan {
    /// The commands of some sums, by numbers in a `unit` of the size of C_tt, rad², where a device computes.
    ///
    /// # Errors
    /// As for [`run`](Self::run); `Invalid` if the method is iterative, the reconstructor predicts, or sums have other targets or slopes.
    pub(crate) fn commands(
        &self,
        sums: &[StrokeSum],
        unit: f64,
        (engine, watch): (&Engine, &dyn Watch),
    ) -> Result<Vec<StrokeCommand>, Error> {
        self.check_sums(sums)?;
        if let Some(gpu) = engine.devices().first() {
            return self.commands_on_device(sums, unit, (gpu, engine.precision()), watch);
        }
        let apart = self.factorised_on_host(engine, watch)?;
        // Compute one command after another
        let command = |(number, sum)| {
            let watch = &command_part(number, sums.len(), watch);
            let rows = self.weighed(sum, engine, watch)?;
            watch.stage(RECONSTRUCTOR, "");
            Ok(apart.command(rows))
        };
        sums.iter().enumerate().map(command).collect()
    }

    // Reject invalid sums of strokes
    fn check_sums(&self, sums: &[StrokeSum]) -> Result<(), Invalid> {
        let expected = "\"auto\", \"cholesky\" or \"eigen\" where targets share mirrors, as strokes are made of matrices";
        let good = self.method != Inversion::Iterative;
        accept(good, "reconstructor.method", self.method.name(), expected)?;
        let expected = "0 where targets share mirrors";
        accept(!self.is_delayed(), "reconstructor.delay", self.options.delay, expected)?;
        for (t, part) in sums.iter().flatten() {
            accept(*t < self.targets(), "target", t, "the number of a target")?;
            let expected = format!("strokes of {} slopes of a target", self.truth_slopes);
            accept(part.ncols() == self.truth_slopes, "strokes", part.dim(), &expected)?;
        }
        Ok(())
    }
}

// Command by a factorised covariance
impl FactorisedCovariance {
    /// The command of the sum of P C_tm, (a, n).
    fn command(&self, rows: Array2<f64>) -> StrokeCommand {
        let half = self.halve(rows);
        let variance = times_transpose(&half, &half);
        StrokeCommand { rows: self.finish(half), variance }
    }
}

// Strokes of a target with a command
impl ReconstructorPlan {
    /// X of Eq. [left in strokes](https://lenslet.github.io/lenslet/many-targets.html#eq-left-in-strokes), (b, a): P C_tm Kᵗ of target `t` for P, (b, m), and K, (a, n); in a `unit` of the size of C_tt, where a device computes.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub(crate) fn strokes_with(
        &self,
        t: usize,
        [onto, rows]: [&Array2<f64>; 2],
        unit: f64,
        (engine, watch): (&Engine, &dyn Watch),
    ) -> Result<Array2<f64>, Error> {
        if let Some(gpu) = engine.devices().first() {
            return self.strokes_with_on_device(
                t,
                [onto, rows],
                unit,
                (gpu, engine.precision(), watch),
            );
        }
        let between = self.with_truth(t, engine, watch)?;
        Ok(times(onto, &times_transpose(&between, rows)))
    }
}

// Memory of commands
impl ReconstructorPlan {
    /// Largest memory for command matrices of `actuators` strokes: while they are computed, with `held` of them in memory, and then while the errors of targets are computed with them.
    pub(crate) fn memory_of_commands(
        &self,
        actuators: usize,
        held: usize,
        engine: &Engine,
    ) -> Memory {
        let [n, m, a] = [self.measurements, self.truth_slopes, actuators].map(|k| k as u64);
        let (rows, command) = (m.saturating_mul(n), a.saturating_mul(n));
        let matrices = match (engine.devices(), self.method) {
            ([_, ..], _) => 0,
            (_, Inversion::Eigen) => 4,
            _ => 1,
        };
        let making = (n * n).saturating_mul(matrices).saturating_add(rows + 3 * command);
        let host = 8 * making.max(rows + m * a).saturating_add(held as u64 * command);
        let devices = self.on_devices_for_commands(actuators, engine);
        Memory { host, devices }
    }

    /// The stage of so many commands, and of the products of all targets with them.
    pub(crate) fn stage_of_commands(
        &self,
        [actuators, commands]: [usize; 2],
        engine: &Engine,
    ) -> Stage {
        let [n, m, a] = [self.measurements, self.truth_slopes, actuators].map(|k| k as f64);
        let there = !engine.devices().is_empty();
        let rates = if there { DEVICE } else { MatrixRates::of_threads() };
        let products = commands as f64 * a * n * (n + a + m) + self.targets() as f64 * m * n * a;
        Stage::shared(RECONSTRUCTOR, &[rates.products(products, n)], engine)
    }

    /// Whether a stage of the plan is not there where commands are all that is made.
    pub(crate) fn is_replaced(&self, stage: &Stage) -> bool {
        [RECONSTRUCTOR, ERROR].contains(&stage.name)
    }
}
