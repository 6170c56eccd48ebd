// Tangled from book/src/point-errors-gpu.md: edit there, or here and run cargo tangle stitch.
//! Errors at points on devices.

// What errors at points on devices stand on
use super::{Answers, Job, PointErrorsPlan, Strip};
use crate::device::gpu::{Buffer, Gpu};
use crate::device::{Watch, Workers, check, engine::Engine, gather};
use crate::error::{Error, Invalid};
use crate::linear::interpolation::ToPupil;
use crate::linear::interpolation::gpu::LayersGpu;
use crate::linear::operator::gpu::DeviceOperator;
use crate::linear::solver::Stop;
use crate::linear::solver::together::Explained;
use crate::linear::toeplitz::Parts;
use crate::linear::toeplitz::gpu::transforms::Choices;
use crate::linear::toeplitz::gpu::{BlockToeplitzGpu, Tuning};
use crate::numerics::real::{Precision, Real};
use crate::tomography::circulant::between_transforms::SideBySide;
use crate::tomography::circulant::gpu::CirculantGpu;
use crate::tomography::estimate::gpu::{bytes_needed, stacked};
use crate::tomography::estimate::{Matrices, Model};
use crate::turbulence::wavefront::WavefrontLayer;
use std::sync::{Arc, Mutex, PoisonError};

// Points that a device explains side by side
/// Points that are explained side by side.
const BATCH: usize = 32;

impl PointErrorsPlan {
    /// Bytes of the operators and of all vectors on each device.
    pub(super) fn bytes_there(&self, engine: &Engine) -> u64 {
        let posed = &self.posed;
        let (operators, number) = match engine.precision() {
            Precision::F64 => (bytes_needed::<f64>(posed), 8),
            Precision::F32 => (bytes_needed::<f32>(posed), 4),
        };
        let Some(plan) = posed.covariances.wavefront() else { return operators };
        let (problem, stars) = (plan.problem(), plan.problem().stars());
        let layers = || problem.lattices().map(|layers| layers[0].points);
        let fields: usize = layers().map(|points| posed.targets * points * points).sum();
        let largest = layers().max().unwrap_or(0).max(problem.lenslets());
        // Half spectra of rows have as many numbers as a transform is long.
        let length = (problem.lenslets() + largest).next_multiple_of(32);
        let of_wavefronts = 2 * stars + problem.lattices().len() * posed.targets + 1;
        let spectra = (8 * stars + 2 * of_wavefronts) * length * largest;
        let of_point = 6 * self.measurements() + fields + spectra;
        operators.saturating_add(number * (BATCH * of_point) as u64)
    }
}

// Explain on devices
impl Job<'_> {
    /// As [`explain_here`](Self::explain_here), on the devices of an engine.
    pub(super) fn explain_there(
        &self,
        model: &Model,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Answers, Error> {
        match engine.precision() {
            Precision::F64 => in_precision::<f64>(self, model, engine.devices(), watch),
            Precision::F32 => in_precision::<f32>(self, model, engine.devices(), watch),
        }
    }
}

fn in_precision<T: Real>(
    job: &Job,
    model: &Model,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Answers, Error> {
    let strips = job.strips(job.batch.unwrap_or(BATCH));
    let batch = strips.iter().map(|strip| strip.width).max().unwrap_or(1);
    let explainer = |gpu: &Gpu| Explainer::<T>::new(gpu, job, model, batch, watch).map(Mutex::new);
    let explainers = gpus.iter().map(explainer).collect::<Result<Vec<_>, Error>>()?;
    let found = gather(Workers::devices(&explainers), &strips, watch, |explainer, strip| {
        let mut explainer = explainer.lock().unwrap_or_else(PoisonError::into_inner);
        (0..strip.rows).map(|row| explainer.explain(job, strip, row, watch)).collect()
    })?;
    let mut answers = job.answers();
    for (strip, rows) in strips.iter().zip(found) {
        let rows: Vec<(Vec<Explained>, Vec<f64>)> = rows;
        for (row, (explained, with_tilts)) in rows.iter().enumerate() {
            answers.put(strip.first(row), explained, with_tilts);
        }
    }
    Ok(answers)
}

// Explain points on a device
/// What explains points on a device.
struct Explainer<T> {
    layers: LayersGpu<T>,
    /// Ξ without the way from the layers to the pupil.
    stacked: BlockToeplitzGpu<T>,
    systems: SideBySide<T>,
    /// Wavefronts at the layers, for each of the points.
    fields: Buffer<T>,
    /// What the weights of the mean over the pupil are there.
    area: Buffer<T>,
    /// Solutions for the tilts, and the products of right-hand sides with them.
    tilts: Buffer<T>,
    products: Buffer<f64>,
    /// Less than the eigenvalues of PA.
    least: f64,
    stop: Stop,
}

impl<T: Real> Explainer<T> {
    // Explain a row of a strip
    /// What is explained of the points of a strip in one row, and their products with the solutions for tilts.
    fn explain(
        &mut self,
        job: &Job,
        strip: &Strip,
        row: usize,
        watch: &dyn Watch,
    ) -> Result<(Vec<Explained>, Vec<f64>), Error> {
        let (first, systems) = (strip.first(row), &mut self.systems);
        self.layers.scatter_points(&self.area, first, &self.fields)?;
        self.stacked.apply_transpose(&self.fields, systems.right_hand_sides())?;
        if row == 0 {
            systems.solutions().clear()?;
        }
        let mut with_tilts = systems.times(&self.tilts, &self.products)?;
        with_tilts.truncate(job.tilts() * strip.width);
        let wholes = job.wholes(strip, row);
        let ask = &mut || check(watch);
        let explained = systems.explain((wholes, self.least), &self.stop, ask)?;
        Ok((explained, with_tilts))
    }

    // Make what explains points
    fn new(
        gpu: &Gpu,
        job: &Job,
        model: &Model,
        batch: usize,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let apart = || Invalid::new("guide stars", "lattices apart", "one lattice for all");
        let Matrices::Toeplitz(problem, covariance) = &model.covariances else {
            return Err(apart().into());
        };
        let transforms = Choices { vectors: Some(batch), ..Choices::default() };
        let tuning = Tuning { direct: Some(false), transforms };
        let group = model.groups[0].group();
        let parts = Parts::slopes(group.covariance, &model.valid)?;
        let slopes = BlockToeplitzGpu::of(gpu, &parts, true, tuning)?;
        let slopes = Arc::new(slopes.with_diagonal(&model.noise.variances)?);
        let circulant = Arc::new(CirculantGpu::tuned(gpu, &[group], tuning)?);
        let systems = SideBySide::new(&slopes, &circulant)?.ok_or_else(apart)?;
        // Put points and tilts on the device
        let (targets, points) = (problem.targets(), problem.grid().points);
        let way = |layer: &WavefrontLayer| {
            ToPupil::new(
                targets,
                points,
                (layer.points, layer.gamma),
                job.posed.options.interpolation,
            )
        };
        let ways = problem.lattices().map(|layers| way(&layers[0]));
        let layers = LayersGpu::new(gpu, &ways.collect::<Result<Vec<_>, _>>()?)?;
        let stacked = stacked(gpu, problem, covariance, &model.valid, tuning)?;
        let (tilts, length) = (job.tilts(), layers.columns());
        let (fields, there) = (gpu.zeros(batch * length)?, gpu.zeros(length)?);
        let area = job.lit.area.iter().map(|&share| T::of(share));
        let area: Vec<T> = area.cycle().take(targets * points * points).collect();
        layers.apply_transpose(&gpu.upload(&area)?, &there)?;
        let mut explainer = Self {
            tilts: gpu.zeros(tilts * model.noise.variances.len())?,
            products: gpu.zeros(tilts * batch)?,
            stop: job.stop(),
            least: 0.0,
            area: there,
            layers,
            stacked,
            systems,
            fields,
        };
        let ask = &mut || check(watch);
        explainer.least = explainer.systems.below_eigenvalues(&explainer.stop, ask)?;
        explainer.solve_for_tilts(job, ask)?;
        Ok(explainer)
    }

    // Solve for tilts on a device
    fn solve_for_tilts(
        &mut self,
        job: &Job,
        watch: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (gpu, batch, length) = (self.stacked.gpu(), self.systems.systems(), self.area.len());
        let (n, all) = (self.stacked.columns() / batch, job.before.len() * job.lit.area.len());
        let least = if T::PRECISION == Precision::F32 { 1e-8 } else { 1e-13 };
        let tolerance = (1e-3 * self.stop.tolerance.powi(2)).max(least);
        let stop = Stop { tolerance, ..self.stop };
        let numbers: Vec<usize> = (0..job.tilts()).collect();
        for some in numbers.chunks(batch) {
            // Bring some tilts to the layers
            for (slot, &k) in some.iter().enumerate() {
                let (start, weights) = job.tilt(k);
                let mut field = vec![T::zero(); all];
                for (value, weight) in field[start..].iter_mut().zip(&weights) {
                    *value = T::of(*weight);
                }
                let there = gpu.zeros(length)?;
                self.layers.apply_transpose(&gpu.upload(&field)?, &there)?;
                gpu.copy_within(&there, self.fields.view(slot * length..(slot + 1) * length))?;
            }
            self.stacked.apply_transpose(&self.fields, self.systems.right_hand_sides())?;
            self.systems.solutions().clear()?;
            let wholes: Vec<f64> = some.iter().map(|&k| job.whole_of_tilt(k)).collect();
            self.systems.explain((&wholes, self.least), &stop, watch)?;
            let solved = self.systems.solutions().view(..some.len() * n);
            gpu.copy_within(solved, self.tilts.view(some[0] * n..(some[0] + some.len()) * n))?;
        }
        Ok(())
    }
}
