// Tangled from book/src/point-errors-gpu.md: edit there, or here and run cargo tangle stitch.
//! Errors at points on devices.

// Imports of errors at points on devices
use super::{Answers, Job, PointErrorsPlan, PointStrip};
use crate::device::gpu::{Buffer, Gpu};
use crate::device::{Workers, engine::Engine, gather, lock};
use crate::error::Error;
use crate::estimation::blocks::MeasuredCovariance;
use crate::estimation::blocks::gpu::{modes_of, systems_on};
use crate::estimation::circulant::Group;
use crate::estimation::estimate::gpu::{bytes_needed, stacked};
use crate::estimation::estimate::{Grouped, Matrices, Model, PosedGroup};
use crate::estimation::inversion::{half_spectra, side_by_side};
use crate::linear::blocks::gpu::RowsAtPlaces;
use crate::linear::interpolation::ToPupil;
use crate::linear::interpolation::gpu::LayersGpu;
use crate::linear::operator::gpu::DeviceOperator;
use crate::linear::operator::gpu::modes::ModesGpu;
use crate::linear::solver::Stop;
use crate::linear::solver::multi_rhs::ExplainedVariance;
use crate::linear::solver::multi_rhs::gpu::SideBySide;
use crate::linear::toeplitz::gpu::transforms::Choices;
use crate::linear::toeplitz::gpu::{BlockToeplitzGpu, Tuning};
use crate::numerics::real::{Precision, Real};
use crate::turbulence::plan::{GroupWavefrontSlopes, WavefrontCovariancePlan};
use crate::turbulence::wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
use crate::watch::{Watch, check};
use ndarray::{Array2, ArrayView2, ArrayView4, Axis, s};
use std::ops::Range;
use std::sync::Mutex;

// Number of points per batch
/// Points that are explained side by side.
const BATCH: usize = 32;

impl PointErrorsPlan {
    // Bytes of points on each device
    /// Bytes of the operators and of all vectors on each device.
    pub(super) fn bytes_on_device(&self, batch: usize, engine: &Engine) -> u64 {
        let posed = &self.posed;
        let (operators, number) = match engine.precision() {
            Precision::F64 => (bytes_needed::<f64>(posed), 8),
            Precision::F32 => (bytes_needed::<f32>(posed), 4),
        };
        let wavefronts: Vec<_> = match posed.covariances.blocks() {
            Some(blocks) => blocks.wavefront.iter().map(Option::as_ref).collect(),
            None => vec![posed.covariances.wavefront()],
        };
        let of_set = |(group, wavefront)| self.numbers_of_set(group, wavefront);
        let of_sets: usize = posed.groups.iter().zip(wavefronts).map(of_set).sum();
        let of_point = 8 * self.measurements() + of_sets;
        operators.saturating_add(number * (batch * of_point) as u64)
    }

    /// Points that each device of an engine explains at a time, where a row has as many: as many as fit.
    pub(super) fn batch_on(&self, engine: &Engine) -> usize {
        side_by_side(BATCH, |batch| engine.has_room(self.bytes_on_device(batch, engine)))
    }

    // Bytes of a group of stars
    /// Numbers of half spectra and fields of a point, for guide stars that share a lattice, perhaps with wavefronts.
    fn numbers_of_set(
        &self,
        group: &PosedGroup,
        wavefront: Option<&WavefrontCovariancePlan>,
    ) -> usize {
        let (stars, lenslets) = (group.plan.problem().sources(), group.plan.problem().lenslets());
        // Half spectra of rows have as many numbers as a transform is long.
        let length = |points: usize| (lenslets + points).next_multiple_of(32);
        let slopes = half_spectra(stars, lenslets);
        let Some(problem) = wavefront.map(WavefrontCovariancePlan::problem) else { return slopes };
        let (layers, targets) =
            (|| problem.lattices().map(|layers| layers[0].points), problem.targets());
        let fields: usize = layers().map(|points| targets * points * points).sum();
        let largest = layers().max().unwrap_or(0).max(lenslets);
        let of_wavefronts = 2 * stars + problem.lattices().len() * targets + 1;
        slopes + fields + 2 * of_wavefronts * length(largest) * largest
    }
}

// Distribute strips among the devices
// Explain in the precision of devices
impl Job<'_> {
    /// Explains the variances of all points on the devices of an engine, in its precision.
    pub(super) fn explain_on_device(
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
    let strips = job.strips(job.batch);
    let batch = strips.iter().map(|strip| strip.width).max().unwrap_or(1);
    let explainer = |gpu: &Gpu| Explainer::<T>::new(gpu, job, model, batch, watch).map(Mutex::new);
    let explainers = gpus.iter().map(explainer).collect::<Result<Vec<_>, Error>>()?;
    let explained = gather(Workers::devices(&explainers), &strips, watch, |explainer, strip| {
        let mut explainer = lock(explainer);
        (0..strip.rows).map(|row| explainer.explain(job, strip, row, watch)).collect()
    })?;
    let mut answers = job.answers();
    for (strip, rows) in strips.iter().zip(explained) {
        let rows: Vec<(Vec<ExplainedVariance>, Vec<f64>)> = rows;
        for (row, (explained, with_tilts)) in rows.iter().enumerate() {
            answers.put(strip.first(row), explained, with_tilts);
        }
    }
    Ok(answers)
}

// Explain points on a device
/// Explains the variance of points on a device.
struct Explainer<T> {
    right_hand_sides: Vec<RightHandSides<T>>,
    systems: SideBySide<T>,
    /// Modes that are removed from right-hand sides.
    unseen: Option<ModesGpu<T>>,
    /// Solutions for the tilts, and the products of right-hand sides with them.
    tilts: Buffer<T>,
    products: Buffer<f64>,
    /// Lower bound of the eigenvalues of PA.
    least: f64,
    stop: Stop,
}

// Steps of the explainer on a device
impl<T: Real> Explainer<T> {
    // Explain a row of a strip
    /// Explained variances of the points of a strip in one row, and their products with the solutions for tilts.
    fn explain(
        &mut self,
        job: &Job,
        strip: &PointStrip,
        row: usize,
        watch: &dyn Watch,
    ) -> Result<(Vec<ExplainedVariance>, Vec<f64>), Error> {
        let first = strip.first(row);
        self.right_hand_sides.iter().try_for_each(|group| group.points(first, &self.systems))?;
        self.remove_unseen()?;
        let systems = &mut self.systems;
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

    // Prepare the explainer of a device
    fn new(
        gpu: &Gpu,
        job: &Job,
        model: &Model,
        batch: usize,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        // Measured covariance and removed modes
        let groups: Vec<Group> = model.groups.iter().map(Grouped::group).collect();
        let rectangles = match &model.covariances {
            Matrices::Blocks(rectangles, _) => Some(rectangles),
            _ => None,
        };
        let (valid, noise) = (&model.valid[..], &model.noise);
        let removed = &model.removed;
        let measured = MeasuredCovariance { groups: &groups, rectangles, valid, noise, removed };
        let (tilts, n) = (job.tilts(), noise.variances.len());
        let unseen = (!model.removed.is_empty())
            .then(|| ModesGpu::new(gpu, [n, batch], &modes_of(&model.removed)));
        let mut explainer = Self {
            right_hand_sides: right_hand_sides(gpu, job, model, batch)?,
            systems: systems_on(gpu, &measured, batch)?,
            unseen: unseen.transpose()?,
            tilts: gpu.zeros(tilts * n)?,
            products: gpu.zeros(tilts * batch)?,
            stop: job.stop(),
            least: 0.0,
        };
        let ask = &mut || check(watch);
        explainer.least = explainer.systems.below_eigenvalues(&explainer.stop, ask)?;
        explainer.solve_for_tilts(job, ask)?;
        Ok(explainer)
    }

    /// Removes from right-hand sides the modes that stars do not measure.
    fn remove_unseen(&self) -> Result<(), Error> {
        let rows = self.systems.right_hand_sides();
        self.unseen.iter().try_for_each(|modes| modes.apply(rows, rows))
    }

    // Solve for tilts on a device
    fn solve_for_tilts(
        &mut self,
        job: &Job,
        watch: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (batch, n) = (self.systems.systems(), self.tilts.len() / job.tilts().max(1));
        let least = if T::PRECISION == Precision::F32 { 1e-8 } else { 1e-13 };
        let tolerance = (1e-3 * self.stop.tolerance.powi(2)).max(least);
        let stop = Stop { tolerance, ..self.stop };
        let numbers: Vec<usize> = (0..job.tilts()).collect();
        for some in numbers.chunks(batch) {
            self.right_hand_sides
                .iter()
                .try_for_each(|group| group.tilts(job, some, &self.systems))?;
            self.remove_unseen()?;
            self.systems.solutions().clear()?;
            let wholes: Vec<f64> = some.iter().map(|&k| job.whole_of_tilt(k)).collect();
            self.systems.explain((&wholes, self.least), &stop, watch)?;
            let (solved, to) = (self.systems.solutions().view(..some.len() * n), some[0] * n);
            let part = self.tilts.view(to..to + some.len() * n);
            self.systems.gpu().copy_within(solved, part)?;
        }
        Ok(())
    }
}

// Right-hand sides of a group of stars
/// How points and tilts become right-hand sides, for a group of guide stars.
enum RightHandSides<T> {
    Layered(Box<Layered<T>>),
    /// By tables, of points and of tilts.
    Known(Box<[RowsAtPlaces<T>; 2]>),
}

// Right-hand sides of points and tilts
impl<T: Real> RightHandSides<T> {
    /// Makes the right-hand sides of points from the first on.
    fn points(&self, first: usize, systems: &SideBySide<T>) -> Result<(), Error> {
        match self {
            Self::Layered(layered) => {
                layered.layers.scatter_points(&layered.area, first, &layered.fields)?;
                layered.stacked.apply_transpose(&layered.fields, systems.right_hand_sides())
            }
            Self::Known(tables) => {
                tables[0].put(first, systems.systems(), systems.right_hand_sides())
            }
        }
    }

    // Right-hand sides of some tilts
    /// Makes the right-hand sides of some tilts, which follow each other.
    fn tilts(&self, job: &Job, some: &[usize], systems: &SideBySide<T>) -> Result<(), Error> {
        match self {
            Self::Layered(layered) => {
                layered.bring_tilts(job, some)?;
                layered.stacked.apply_transpose(&layered.fields, systems.right_hand_sides())
            }
            Self::Known(tables) => {
                tables[1].put(some[0], systems.systems(), systems.right_hand_sides())
            }
        }
    }
}

// Compressed form of right-hand sides
/// Of stars that share a lattice with the wavefronts.
struct Layered<T> {
    layers: LayersGpu<T>,
    /// Ξ without the interpolation from the layers to the pupil.
    stacked: BlockToeplitzGpu<T>,
    /// Wavefronts at the layers, for each of the points.
    fields: Buffer<T>,
    /// Weights of the mean over the pupil, at the layers.
    area: Buffer<T>,
}

impl<T: Real> Layered<T> {
    // Prepare the compressed right-hand sides
    fn new(
        gpu: &Gpu,
        job: &Job,
        (problem, covariance): (&WavefrontProblem, &WavefrontSlope),
        valid: &[Array2<bool>],
        (batch, at): (usize, (&[usize], usize)),
    ) -> Result<Self, Error> {
        let transforms = Choices { vectors: Some(batch), ..Choices::default() };
        let tuning = Tuning { direct: Some(false), transforms };
        let (targets, points) = (problem.targets(), problem.grid().points);
        let interpolation = |layer: &WavefrontLayer| {
            let grid = (layer.points, layer.gamma);
            ToPupil::new(targets, points, grid, job.posed.options.interpolation)
        };
        let interpolations = problem.lattices().map(|layers| interpolation(&layers[0]));
        let layers = LayersGpu::new(gpu, &interpolations.collect::<Result<Vec<_>, _>>()?)?;
        let stacked = stacked(gpu, problem, covariance, valid, (tuning, Some(at)))?;
        let length = layers.columns();
        let (fields, there) = (gpu.zeros(batch * length)?, gpu.zeros(length)?);
        let area = job.lit.area.iter().map(|&share| T::of(share));
        let area: Vec<T> = area.cycle().take(targets * points * points).collect();
        layers.apply_transpose(&gpu.upload(&area)?, &there)?;
        Ok(Self { layers, stacked, fields, area: there })
    }

    // Bring tilts to the layers
    /// Brings some tilts to the layers.
    fn bring_tilts(&self, job: &Job, some: &[usize]) -> Result<(), Error> {
        let (gpu, length) = (self.stacked.gpu(), self.area.len());
        for (slot, &k) in some.iter().enumerate() {
            let (start, weights) = job.tilt(k);
            let mut field = vec![T::zero(); self.layers.rows()];
            for (value, weight) in field[start..].iter_mut().zip(&weights) {
                *value = T::of(*weight);
            }
            let there = gpu.zeros(length)?;
            self.layers.apply_transpose(&gpu.upload(&field)?, &there)?;
            gpu.copy_within(&there, self.fields.view(slot * length..(slot + 1) * length))?;
        }
        Ok(())
    }
}

// Right-hand sides of all groups
/// Right-hand sides of all groups of guide stars, for a batch of points.
fn right_hand_sides<T: Real>(
    gpu: &Gpu,
    job: &Job,
    model: &Model,
    batch: usize,
) -> Result<Vec<RightHandSides<T>>, Error> {
    let n = model.noise.variances.len();
    type Given<'a> = (&'a WavefrontProblem, &'a WavefrontSlope);
    let layered = |given: Given, valid: &[Array2<bool>], at: &[usize]| {
        let layered = Layered::new(gpu, job, given, valid, (batch, (at, n)))?;
        Ok::<_, Error>(RightHandSides::Layered(Box::new(layered)))
    };
    match &model.covariances {
        Matrices::Toeplitz(problem, covariance) => {
            let all: Vec<usize> = (0..n).collect();
            Ok(vec![layered((problem, covariance), &model.valid, &all)?])
        }
        Matrices::Blocks(rectangles, wavefronts) => {
            // Right-hand sides in blocks
            let of_set = |(k, wavefront): (usize, &GroupWavefrontSlopes)| {
                let (sets, places) = (&rectangles.sets, rectangles.sets.places(k));
                match wavefront {
                    GroupWavefrontSlopes::Toeplitz(problem, covariance) => {
                        let at: Vec<usize> = places.into_iter().flatten().collect();
                        layered((problem, covariance), &sets.pick(k, &model.valid), &at)
                    }
                    GroupWavefrontSlopes::Dense(values) => {
                        known(gpu, job, values.view(), (&places, batch))
                    }
                }
            };
            wavefronts.iter().enumerate().map(of_set).collect()
        }
        Matrices::Dense(_) => unreachable!("errors at points are posed in a compressed form"),
    }
}

// Tables of points and tilts
/// Right-hand sides of slopes whose covariances with all points, (T, M, M, n), are known.
fn known<T: Real>(
    gpu: &Gpu,
    job: &Job,
    values: ArrayView4<f64>,
    (places, batch): (&[Range<usize>], usize),
) -> Result<RightHandSides<T>, Error> {
    let (n, points) = (values.dim().3, job.lit.area.len());
    let rows = values.into_shape_with_order((values.len() / n.max(1), n));
    let rows = rows.unwrap_or_else(|_| unreachable!("same length"));
    let mut level = rows.to_owned();
    for mut target in level.axis_chunks_iter_mut(Axis(0), points) {
        let mean = job.lit.area.dot(&target);
        target -= &mean;
    }
    let mut tilts = Array2::zeros((job.tilts(), n));
    for (k, mut tilt) in tilts.outer_iter_mut().enumerate() {
        let (start, weights) = job.tilt(k);
        tilt.assign(&weights.dot(&rows.slice(s![start..start + points, ..])));
    }
    let table = |rows: ArrayView2<f64>| RowsAtPlaces::new(gpu, rows, places, batch);
    Ok(RightHandSides::Known(Box::new([table(level.view())?, table(tilts.view())?])))
}
