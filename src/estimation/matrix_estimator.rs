// Tangled from book/src/matrix-estimator.md: edit there, or here and run cargo tangle stitch.
//! Application of a reconstructor: the product of a matrix with the slopes of each frame.

pub(crate) mod gpu;

// Imports of the matrix estimator
use crate::data::DataSet;
use crate::device::{CostKind, Engine, Workers, dispatch};
use crate::error::{Error, Invalid, accept, count};
use crate::estimation::estimate::{check_frames, check_slopes, unit_of};
use crate::estimation::inversion::MatrixRates;
use crate::linear::matrix::times_vectors;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::system::System;
use crate::numerics::real::{Precision, Real};
use crate::plan::{Description, Memory, Plan, Stage};
use crate::turbulence::arrays::slope_table;
use crate::watch::{Watch, check};
use ndarray::{
    Array, Array2, Array3, Array4, ArrayView2, ArrayViewMut2, Axis, Dimension, IntoDimension,
};
use rayon::prelude::*;
use std::sync::Arc;

// Reconstructor that is stored
/// What a reconstructor gives: the meaning of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum ReconstructorOutput {
    /// Slopes of a truth sensor towards each target, rad.
    Slopes,
    /// Wavefronts towards each target at the points of the grid, row by row along x, m.
    Wavefront,
    /// Strokes of the actuators of each control loop, m.
    Actuators,
}

// Names of the outputs
impl ReconstructorOutput {
    /// All of them by their names in files.
    pub const NAMES: [(&'static str, Self); 3] =
        [("slopes", Self::Slopes), ("wavefront", Self::Wavefront), ("actuators", Self::Actuators)];

    /// Its name in a file.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, output)| *output == self).map_or("", |(name, _)| name)
    }

    /// The output of this name.
    ///
    /// # Errors
    /// `Invalid`, with all names, where none has it.
    pub fn named(name: &str) -> Result<Self, Invalid> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name);
        let expected = "slopes, wavefront or actuators";
        known.map(|(_, output)| *output).ok_or_else(|| Invalid::new("to", name, expected))
    }

    /// What a set of its rows belongs to, what a row is, and what a frame of them is called.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Slopes => ["target", "truth slope", "slopes"],
            Self::Wavefront => ["target", "wavefront point", "wavefronts"],
            Self::Actuators => ["loop", "actuator", "strokes"],
        }
    }
}

// Elements of a reconstructor
/// The elements of a reconstructor, (sets, rows, n), in double or single precision.
#[derive(Debug, Clone, PartialEq)]
pub enum ReconstructorMatrix {
    /// In double precision.
    Double(Arc<Array3<f64>>),
    /// In single precision.
    Single(Arc<Array3<f32>>),
}

// Conversions of elements
/// An array whose last index runs fastest.
fn by_rows<T: Real>(matrix: Array3<T>) -> Array3<T> {
    if matrix.is_standard_layout() { matrix } else { matrix.as_standard_layout().into_owned() }
}

impl From<Array3<f64>> for ReconstructorMatrix {
    fn from(matrix: Array3<f64>) -> Self {
        Self::Double(Arc::new(by_rows(matrix)))
    }
}

impl From<Array3<f32>> for ReconstructorMatrix {
    fn from(matrix: Array3<f32>) -> Self {
        Self::Single(Arc::new(by_rows(matrix)))
    }
}

// Elements in one precision
impl ReconstructorMatrix {
    /// Sets, rows of a set, and slopes.
    pub fn dim(&self) -> (usize, usize, usize) {
        match self {
            Self::Double(matrix) => matrix.dim(),
            Self::Single(matrix) => matrix.dim(),
        }
    }

    /// The precision of its elements.
    pub fn precision(&self) -> Precision {
        match self {
            Self::Double(_) => Precision::F64,
            Self::Single(_) => Precision::F32,
        }
    }

    /// The elements, row by row, if they have this precision.
    fn values<T: Real>(&self) -> Option<&[T]> {
        match (self, T::PRECISION) {
            (Self::Double(matrix), Precision::F64) => matrix.as_slice().map(bytemuck::cast_slice),
            (Self::Single(matrix), Precision::F32) => matrix.as_slice().map(bytemuck::cast_slice),
            _ => None,
        }
    }

    /// The same elements, rounded to a precision if they have another.
    fn rounded(&self, precision: Precision) -> Self {
        match (self, precision) {
            (Self::Double(matrix), Precision::F32) => matrix.mapv(|x| x as f32).into(),
            (Self::Single(matrix), Precision::F64) => matrix.mapv(f64::from).into(),
            _ => self.clone(),
        }
    }

    /// The first element that is not finite: its set, row and slope, and its value.
    fn first_not_finite(&self) -> Option<([usize; 3], f64)> {
        fn first<T: Real>(matrix: &Array3<T>) -> Option<([usize; 3], f64)> {
            let (_, rows, n) = matrix.dim();
            let position = matrix.as_slice()?.par_iter().position_first(|x| !x.is_finite())?;
            let index = [position / n / rows, position / n % rows, position % n];
            Some((index, matrix[index].in_double()))
        }
        match self {
            Self::Double(matrix) => first(matrix),
            Self::Single(matrix) => first(matrix),
        }
    }
}

// Check a stored reconstructor
/// A reconstructor R, (sets, rows, n), and the meaning of its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredReconstructor {
    matrix: ReconstructorMatrix,
    output: ReconstructorOutput,
}

impl StoredReconstructor {
    /// A reconstructor with a set of rows for each target or control loop, and a column for each slope of all guide stars, in the order of
    /// [`SlopeOrder`].
    ///
    /// # Errors
    /// `Invalid` where it has no elements, or one that is not finite.
    pub fn new(
        matrix: impl Into<ReconstructorMatrix>,
        output: ReconstructorOutput,
    ) -> Result<Self, Invalid> {
        let matrix = matrix.into();
        let (sets, rows, n) = matrix.dim();
        let expected = "three axes (sets, rows, slopes), none of them of length 0";
        accept(sets * rows * n > 0, "shape of the reconstructor", [sets, rows, n], expected)?;
        match matrix.first_not_finite() {
            None => Ok(Self { matrix, output }),
            Some(([set, row, slope], value)) => {
                let name = format!("element [{set}, {row}, {slope}] of the reconstructor");
                Err(Invalid::new(name, value, "a finite number"))
            }
        }
    }

    /// Its elements.
    pub fn matrix(&self) -> &ReconstructorMatrix {
        &self.matrix
    }

    /// What it gives.
    pub fn output(&self) -> ReconstructorOutput {
        self.output
    }
}

// Plan of a product with frames
/// Plan of the product of a stored reconstructor with the slopes of some frames.
///
/// ```
/// use lenslet::{device::Engine, estimation::*, model::*, plan::Plan, watch::unwatched};
/// let (axis, array) = (Source::star(0.0, 0.0)?, LensletArray::new(1, 1.0)?);
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
/// let system = System::builder(air, array)
///     .guide_stars([GuideStar::at_rest(axis, array, 1e-14)?])
///     .phase(Some(PhaseGrid::new(2, 1, 0.0)?))
///     .targets([axis])
///     .build()?;
/// // A plane through the four corners of a lenslet of 1 m.
/// let plane = ndarray::array![[[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]]]; // m/rad
/// let stored = StoredReconstructor::new(plane, ReconstructorOutput::Wavefront)?;
/// let estimator = MatrixEstimatorPlan::new(&system, stored)?.run(&Engine::default(), &unwatched)?;
/// let slopes = ndarray::array![[2e-6, 0.0], [0.0, 4e-6]]; // two frames, rad
/// let MatrixEstimates::Wavefront(wavefront) = estimator.apply(slopes.view(), &unwatched)? else { panic!() };
/// assert_eq!(wavefront.dim(), (2, 1, 2, 2));
/// assert_eq!([wavefront[[0, 0, 0, 1]], wavefront[[1, 0, 0, 1]]], [1e-6, -2e-6]); // m
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MatrixEstimatorPlan {
    reconstructor: StoredReconstructor,
    frames: usize,
    /// Points across a wavefront.
    points: usize,
    slope_model: &'static str,
}

// Compare a reconstructor with a system
impl MatrixEstimatorPlan {
    /// Plans the product of a reconstructor with the slopes of a system.
    ///
    /// # Errors
    /// `Invalid` where the reconstructor has another number of slopes, targets or rows than the system; where it gives wavefronts or slopes and the
    /// system has no target, or wavefronts and the system has no grid of points.
    pub fn new(system: &System, reconstructor: StoredReconstructor) -> Result<Self, Error> {
        system.expect_slopes()?;
        let ((sets, rows, columns), output) = (reconstructor.matrix.dim(), reconstructor.output);
        let n = SlopeOrder::new(&system.valid_lenslets()).len();
        let expected = format!("{n}, the slopes of all guide stars of the system");
        accept(columns == n, "slopes of the reconstructor", columns, &expected)?;
        // Refuse rows of another system
        let [of_sets, of_rows, _] = output.words();
        if let Some((targets, wanted)) = rows_of(system, output)? {
            let expected = format!("{targets}, the targets of the system");
            accept(sets == targets, &format!("{of_sets}s of the reconstructor"), sets, &expected)?;
            let expected = format!("{wanted}, the {of_rows}s of the system");
            accept(rows == wanted, &format!("{of_rows}s of the reconstructor"), rows, &expected)?;
        }
        let points = if output == ReconstructorOutput::Wavefront { rows.isqrt() } else { 0 };
        let slope_model = system.slope_model().name();
        Ok(Self { reconstructor, frames: 1, points, slope_model })
    }

    // Numbers of a planned product
    /// Sets the number of frames that will follow, for the memory and the time that the plan states.
    pub fn frames(self, frames: usize) -> Self {
        Self { frames, ..self }
    }

    /// Slopes of a frame, n.
    pub fn slopes(&self) -> usize {
        self.reconstructor.matrix.dim().2
    }

    /// What the reconstructor gives.
    pub fn output(&self) -> ReconstructorOutput {
        self.reconstructor.output
    }

    /// Sets, rows of a set, and slopes of the reconstructor.
    pub fn shape(&self) -> [usize; 3] {
        self.reconstructor.matrix.dim().into()
    }

    /// Refuses frames of slopes, (frames, n), that make no sense.
    ///
    /// # Errors
    /// `Invalid` where a row has the wrong length or a slope is not finite.
    pub fn check_slopes(&self, slopes: ArrayView2<f64>) -> Result<(), Invalid> {
        check_slopes(slopes, self.slopes())
    }

    /// Name and shape of the result.
    fn result(&self) -> (&'static str, Vec<usize>) {
        let ([sets, rows, _], frames, m) = (self.shape(), self.frames, self.points);
        match self.output() {
            ReconstructorOutput::Wavefront => ("wavefront", vec![frames, sets, m, m]),
            ReconstructorOutput::Slopes => ("slopes", vec![frames, sets, rows]),
            ReconstructorOutput::Actuators => ("strokes", vec![frames, sets, rows]),
        }
    }
}

// Memory and time of a product
/// Time of one thread to read one element of a matrix.
const READ: f64 = 0.6e-9;

impl MatrixEstimatorPlan {
    /// Time of one thread for the product of all frames.
    fn work(&self) -> [(CostKind, f64); 2] {
        let ([sets, rows, n], frames) = (self.shape(), self.frames as f64);
        let elements = (sets * rows * n) as f64;
        let batches = self.frames.div_ceil(frames_in_batch(sets * rows, n)) as f64;
        [
            (CostKind::Memory, READ * elements * batches),
            MatrixRates::of_threads().products(frames * elements, n as f64),
        ]
    }

    // Bytes and words of a product
    /// The most memory that the product has in use at a time, with the matrix and the results.
    fn memory_on(&self, engine: &Engine) -> Memory {
        let [sets, rows, n] = self.shape();
        let devices = ReconstructorMatrix::bytes_on_devices([sets * rows, n], engine);
        let [sets, rows, n] = [sets, rows, n].map(|k| k as u64);
        let size = |precision: Precision| if precision == Precision::F64 { 8 } else { 4 };
        let (elements, stored) = (sets * rows * n, self.reconstructor.matrix.precision());
        let copied = engine.devices().is_empty() && engine.precision() != stored;
        let copy = if copied { elements * size(engine.precision()) } else { 0 };
        let batch = 64 * (n + sets * rows);
        let results = 8 * (sets * rows + n).saturating_mul(self.frames as u64);
        let host = (elements * size(stored) + copy + batch).saturating_add(results);
        Memory::of_stages(host, [&Memory { host: 0, devices }])
    }

    /// Description of the plan.
    fn description(&self, engine: &Engine) -> Description {
        let ([sets, rows, n], (name, shape)) = (self.shape(), self.result());
        let [of_sets, _, what] = self.output().words();
        let batch = frames_in_batch(sets * rows, n);
        let elements = (sets * rows * n) as f64;
        Description {
            what: format!("the {what} of {} from {}", count(sets, of_sets), count(n, "slope")),
            arrays: vec![(name.into(), shape)],
            form: "",
            reason: String::new(),
            method: format!(
                "product with a stored reconstructor, {sets} × {rows} × {n}, of {} at a time",
                count(batch.min(self.frames.max(1)), "frame")
            ),
            slope_model: self.slope_model,
            engine: engine.name(),
            memory: self.memory_on(engine),
            stages: vec![
                Stage::new(MATRIX, &[(CostKind::Memory, READ * elements)], engine),
                Stage::new(FRAMES, &self.work(), engine),
            ],
            rates: engine.speed().to_string(),
        }
    }
}

// Run the plan of a product
/// Names of the stages of a product.
const MATRIX: &str = "reconstructor";
const FRAMES: &str = "frames";

impl Plan for MatrixEstimatorPlan {
    /// The reconstructor where it is applied: in the memory of the processor or of devices.
    type Output = MatrixEstimator;

    /// Accepts every engine: processors multiply in both precisions.
    fn check_engine(&self, _engine: &Engine) -> Result<(), Error> {
        Ok(())
    }

    fn subject(&self) -> String {
        let [sets, rows, n] = self.shape();
        format!("the product with a reconstructor of {sets} × {rows} × {n} elements")
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        Ok(self.description(engine))
    }

    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<MatrixEstimator, Error> {
        self.check(engine)?;
        watch.stage(MATRIX, "");
        check(watch)?;
        let workers = products(&self.reconstructor.matrix, engine)?;
        let (output, shape, points) = (self.output(), self.shape(), self.points);
        Ok(MatrixEstimator { workers, output, shape, points })
    }
}

// Product of a matrix with frames
/// The product of a reconstructor with frames, where its elements are.
pub(crate) trait FrameProduct: Send + Sync {
    /// Frames that it takes at a time.
    fn batch(&self) -> usize;

    /// Writes R s for each row s into `results`, (frames, rows of all sets).
    fn multiply(&self, slopes: ArrayView2<f64>, results: ArrayViewMut2<f64>) -> Result<(), Error>;
}

// Products on an engine
/// A product for each device of an engine, or one for the cores.
pub(crate) fn products(
    matrix: &ReconstructorMatrix,
    engine: &Engine,
) -> Result<Vec<Box<dyn FrameProduct>>, Error> {
    if !engine.devices().is_empty() {
        return matrix.on_devices(engine);
    }
    let matrix = matrix.rounded(engine.precision());
    Ok(vec![match engine.precision() {
        Precision::F64 => Box::new(OnCores::<f64>::of(matrix)),
        Precision::F32 => Box::new(OnCores::<f32>::of(matrix)),
    }])
}

/// Bytes of the frames of a batch, with their results.
const BATCH: usize = 64 << 20;

/// Most frames of a batch.
const LONGEST: usize = 256;

/// Frames that are multiplied at a time.
pub(crate) fn frames_in_batch(rows: usize, n: usize) -> usize {
    (BATCH / (16 * (rows + n))).clamp(1, LONGEST)
}

/// A matrix in the memory of the processor.
struct OnCores<T> {
    matrix: ReconstructorMatrix,
    precision: std::marker::PhantomData<fn() -> T>,
}

// Frames in units of their own
/// Writes the slopes of frames into `to`, each frame divided by a power of two that is close to its largest slope; returns these powers.
pub(crate) fn scaled<T: Real>(slopes: ArrayView2<f64>, to: &mut [T]) -> Vec<f64> {
    let frames: Vec<_> = slopes.outer_iter().collect();
    let scale = |(to, slopes): (&mut [T], ndarray::ArrayView1<f64>)| {
        let unit = unit_of(slopes);
        let factor = unit.recip();
        to.iter_mut().zip(&slopes).for_each(|(to, slope)| *to = T::of(slope * factor));
        unit
    };
    to.par_chunks_mut(slopes.ncols()).zip(frames).map(scale).collect()
}

// Product of a batch on cores
impl<T: Real> OnCores<T> {
    fn of(matrix: ReconstructorMatrix) -> Self {
        Self { matrix, precision: std::marker::PhantomData }
    }
}

impl<T: Real> FrameProduct for OnCores<T> {
    fn batch(&self) -> usize {
        let (sets, rows, n) = self.matrix.dim();
        frames_in_batch(sets * rows, n)
    }

    fn multiply(
        &self,
        slopes: ArrayView2<f64>,
        mut results: ArrayViewMut2<f64>,
    ) -> Result<(), Error> {
        let (frames, n) = slopes.dim();
        let matrix: &[T] = self.matrix.values().unwrap_or_default();
        let mut frames_of_slopes = vec![T::zero(); slopes.len()];
        let units = scaled(slopes, &mut frames_of_slopes);
        let mut products = vec![T::zero(); matrix.len() / n * frames];
        times_vectors(matrix, &frames_of_slopes, n, &mut products);
        let rows: Vec<_> = results.rows_mut().into_iter().zip(units).enumerate().collect();
        rows.into_par_iter().for_each(|(frame, (mut row, unit))| {
            let own = products.iter().skip(frame).step_by(frames);
            row.iter_mut().zip(own).for_each(|(to, product)| *to = unit * product.in_double());
        });
        Ok(())
    }
}

// Apply a reconstructor to frames
/// A reconstructor in the memory of a processor or of devices, ready to be applied.
pub struct MatrixEstimator {
    workers: Vec<Box<dyn FrameProduct>>,
    output: ReconstructorOutput,
    /// Sets, rows of a set, and slopes.
    shape: [usize; 3],
    /// Points across a wavefront.
    points: usize,
}

// Multiply frames by all workers
/// R s for each frame s of slopes, (frames, rows of all sets), by all workers; `what` names a frame of the result.
pub(crate) fn multiply_frames(
    workers: &[Box<dyn FrameProduct>],
    slopes: ArrayView2<f64>,
    rows: usize,
    what: &str,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let frames = slopes.nrows();
    let suits = workers.iter().map(|worker| worker.batch()).min().unwrap_or(1);
    let size = suits.min(frames.div_ceil(workers.len().max(1))).max(1);
    let mut products = Array2::zeros((frames, rows));
    let results = products.axis_chunks_iter_mut(Axis(0), size);
    let parts: Vec<_> = slopes.axis_chunks_iter(Axis(0), size).zip(results).enumerate().collect();
    // Multiply the frames of a batch
    let workers: Vec<&dyn FrameProduct> = workers.iter().map(AsRef::as_ref).collect();
    let work = |worker: &&dyn FrameProduct, (k, (slopes, mut results)): (usize, Batch)| {
        worker.multiply(slopes, results.view_mut())?;
        let values = results.as_slice().unwrap_or_default();
        match values.par_iter().position_first(|value| !value.is_finite()) {
            None => Ok(()),
            Some(position) => {
                let name = format!("{what} of frame {}", k * size + position / rows);
                let expected =
                    "finite numbers: are the slopes in radians, and is the precision f64?";
                Err(Invalid::new(name, "infinite", expected).into())
            }
        }
    };
    let watch = InFrames { watch, size, frames };
    dispatch(Workers::devices(&workers), parts, &watch, work, |_, ()| Ok(()))?;
    Ok(products)
}

// Progress in frames
/// Slopes of a batch of frames, and the part of the result for them.
type Batch<'a> = (ArrayView2<'a, f64>, ArrayViewMut2<'a, f64>);

/// Reports batches of so many frames as frames.
struct InFrames<'a> {
    watch: &'a dyn Watch,
    size: usize,
    frames: usize,
}

impl Watch for InFrames<'_> {
    fn progress(&self, done: usize, _total: usize) {
        self.watch.progress(self.frames.min(done * self.size), self.frames);
    }

    fn cancelled(&self) -> bool {
        self.watch.cancelled()
    }
}

// Methods of a matrix estimator
/// The same numbers in another shape.
fn shaped<D: Dimension>(
    products: Array2<f64>,
    shape: impl IntoDimension<Dim = D>,
) -> Array<f64, D> {
    let shaped = products.into_shape_with_order(shape);
    shaped.unwrap_or_else(|_| unreachable!("as many numbers"))
}

impl MatrixEstimator {
    /// Multiplies the frames in the rows of `slopes`, (frames, n), rad, in the order of [`SlopeOrder`].
    ///
    /// # Errors
    /// `Invalid` where a row has the wrong length, a slope is not finite, or a result leaves the range of the numbers; `Memory` where the results do
    /// not fit; `Cancelled` where the watcher wants to stop; what a device says.
    pub fn apply(
        &self,
        slopes: ArrayView2<f64>,
        watch: &dyn Watch,
    ) -> Result<MatrixEstimates, Error> {
        let ([sets, rows, n], frames, m) = (self.shape, slopes.nrows(), self.points);
        watch.stage(FRAMES, FRAMES);
        check_slopes(slopes, n)?;
        check_frames(frames, [sets, rows, 1])?;
        let what = self.output.words()[2];
        let products = multiply_frames(&self.workers, slopes, sets * rows, what, watch)?;
        Ok(match self.output {
            ReconstructorOutput::Wavefront => {
                MatrixEstimates::Wavefront(shaped(products, (frames, sets, m, m)))
            }
            ReconstructorOutput::Slopes => {
                MatrixEstimates::Slopes(shaped(products, (frames, sets, rows)))
            }
            ReconstructorOutput::Actuators => {
                MatrixEstimates::Strokes(shaped(products, (frames, sets, rows)))
            }
        })
    }

    /// Slopes of a frame, n.
    pub fn slopes(&self) -> usize {
        self.shape[2]
    }

    /// Sets, rows of a set, and slopes of the reconstructor.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Most frames that are multiplied at a time.
    pub fn batch(&self) -> usize {
        self.workers.iter().map(|worker| worker.batch()).max().unwrap_or(1)
    }
}

// Results of a product with frames
/// Targets of a system, and the rows that a reconstructor has for each of them; none where the system does not determine them.
///
/// # Errors
/// `Invalid` where the system has no target, or no grid of wavefront points.
pub(crate) fn rows_of(
    system: &System,
    output: ReconstructorOutput,
) -> Result<Option<(usize, usize)>, Invalid> {
    let targets = system.targets().len();
    let rows = match output {
        ReconstructorOutput::Actuators => return Ok(None),
        ReconstructorOutput::Wavefront => system.wavefront_grid()?.points.pow(2),
        ReconstructorOutput::Slopes => {
            let valid = system.truth_sensor().valid(system.pupil(), system.validity());
            2 * valid.iter().filter(|valid| **valid).count()
        }
    };
    let expected = "at least one [[target]], for which the reconstructor has rows";
    accept(targets > 0, "target", targets, expected)?;
    Ok(Some((targets, rows)))
}

// Estimates by a matrix
/// What a reconstructor gives for some frames.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum MatrixEstimates {
    /// Wavefronts, (frames, T, M, M), metres; axis 2 is y.
    Wavefront(Array4<f64>),
    /// Slopes of a truth sensor, (frames, T, m), rad, in the order of [`SlopeOrder`].
    Slopes(Array3<f64>),
    /// Strokes of actuators, (frames, loops, actuators), m.
    Strokes(Array3<f64>),
}

// Estimates by a matrix as data
impl MatrixEstimates {
    /// Name of the array, and its shape.
    pub fn shape(&self) -> (&'static str, &[usize]) {
        match self {
            Self::Wavefront(values) => ("wavefront", values.shape()),
            Self::Slopes(values) => ("slopes", values.shape()),
            Self::Strokes(values) => ("strokes", values.shape()),
        }
    }

    /// Largest magnitude of all numbers.
    pub fn largest(&self) -> f64 {
        let most = |a: f64, b: &f64| a.max(b.abs());
        match self {
            Self::Wavefront(values) => values.iter().fold(0.0, most),
            Self::Slopes(values) | Self::Strokes(values) => values.iter().fold(0.0, most),
        }
    }

    /// The result as a data set, with the order of the slopes of the `system`.
    pub fn to_data_set(&self, system: &System) -> DataSet<'_> {
        let mut data = DataSet::default();
        let (name, _) = self.shape();
        match self {
            Self::Wavefront(values) => {
                let array = data.add_result(name, values.view()).unit("m");
                array.dimensions("frame, target, y, x").long_name("estimated wavefronts");
            }
            Self::Slopes(values) => {
                let array = data.add_result(name, values.view()).unit("rad");
                let about = "reconstructed slopes of a truth sensor";
                array.dimensions("frame, target, truth slope").long_name(about);
            }
            Self::Strokes(values) => {
                let array = data.add_result(name, values.view()).unit("m");
                array.dimensions("frame, loop, actuator").long_name("strokes of the actuators");
            }
        }
        data.add_table("slope_table", slope_table(system));
        data
    }
}

// Tests of the matrix estimator
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::error::Error;
    use crate::estimation::estimate::tests::{blinded, system};
    use crate::estimation::{EstimateOptions, EstimatePlan, Inversion};
    use crate::watch::unwatched;

    /// Elements without a pattern, different along all axes.
    pub(crate) fn matrix(shape: (usize, usize, usize)) -> Array3<f64> {
        Array3::from_shape_fn(shape, |(set, row, slope)| {
            ((0.31 * (set * set) as f64 + 1.7 * row as f64 + 0.53) * (slope as f64 + 0.7)).sin()
        })
    }

    /// Frames of slopes, some a thousand million times as small as others.
    pub(crate) fn frames(count: usize, n: usize) -> Array2<f64> {
        Array2::from_shape_fn((count, n), |(frame, slope)| {
            let unit = if frame % 3 == 1 { 1e-15 } else { 1e-6 };
            unit * ((1.3 * slope as f64 + 0.37) * (frame as f64 + 0.6)).cos()
        })
    }

    fn planned(system: &System, stored: StoredReconstructor) -> Result<MatrixEstimator, Error> {
        MatrixEstimatorPlan::new(system, stored)?.run(&Engine::default(), &unwatched)
    }

    #[test]
    fn the_worked_case_has_these_sizes() {
        let keck = System::from_file("book/systems/keck-lgs.toml").unwrap();
        let (targets, rows) = rows_of(&keck, ReconstructorOutput::Wavefront).unwrap().unwrap();
        let n = SlopeOrder::new(&keck.valid_lenslets()).len();
        assert_eq!((n, targets, rows, targets * rows), (2400, 2, 1681, 3362));
        assert_eq!(8 * n * targets * rows / 1_000_000, 64);
    }

    // Products are direct sums
    #[test]
    fn products_are_direct_sums() {
        let largest = |row: &ndarray::ArrayView1<f64>| row.fold(0.0, |a: f64, b| a.max(b.abs()));
        for (shape, count) in [((2, 37, 53), 1), ((1, 5, 300), 5), ((3, 41, 24), 700)] {
            let (elements, slopes) = (matrix(shape), frames(count, shape.2));
            let rows = shape.0 * shape.1;
            let flat = elements.to_shape((rows, shape.2)).unwrap();
            let stored = [elements.clone().into(), elements.mapv(|x| x as f32).into()];
            for (stored, precision, bound) in [
                (&stored[0], Precision::F64, 1e-14),
                (&stored[0], Precision::F32, 1e-5),
                (&stored[1], Precision::F64, 1e-5),
                (&stored[1], Precision::F32, 1e-5),
            ] {
                let workers = products(stored, &Engine::cpu(precision)).unwrap();
                let found = multiply_frames(&workers, slopes.view(), rows, "", &unwatched).unwrap();
                for (found, slopes) in found.outer_iter().zip(slopes.outer_iter()) {
                    let sum = |row: usize| -> f64 {
                        flat.row(row).iter().zip(&slopes).map(|(r, s)| r * s).sum()
                    };
                    let expected = ndarray::Array1::from_shape_fn(rows, sum);
                    let gap = largest(&(&found - &expected).view()) / largest(&expected.view());
                    assert!(gap < bound, "{shape:?} {precision:?}: {gap:e}");
                    assert!(bound < 1e-10 || gap > 1e-10, "{shape:?} {precision:?}: {gap:e}");
                }
            }
        }
    }

    // A matrix estimates as iterations do
    #[test]
    fn a_matrix_estimates_as_iterations_do() {
        for system in [system(["inf", "90e3"], 0.0), blinded(&system(["90e3", "90e3"], 0.0))] {
            let options = EstimateOptions::default().method(Inversion::Iterative).tolerance(1e-10);
            let plan = EstimatePlan::new(&system, options).unwrap();
            let solver = plan.run(&Engine::default(), &unwatched).unwrap();
            let n = plan.slopes();
            let estimate = |slopes: &Array2<f64>| {
                solver.estimate(slopes.view(), false, &unwatched).unwrap().wavefront
            };
            let columns = estimate(&(1e-6 * Array2::<f64>::eye(n))) * 1e6;
            let element = |(t, row, k): (usize, usize, usize)| columns[[k, t, row / 12, row % 12]];
            let stored = Array3::from_shape_fn((2, 144, n), element);
            let stored = StoredReconstructor::new(stored, ReconstructorOutput::Wavefront).unwrap();
            let estimator = planned(&system, stored).unwrap();
            let slopes = 1e-6 * frames(7, n);
            let MatrixEstimates::Wavefront(found) =
                estimator.apply(slopes.view(), &unwatched).unwrap()
            else {
                panic!("wavefronts")
            };
            let expected = estimate(&slopes);
            for (found, expected) in found.outer_iter().zip(expected.outer_iter()) {
                let scale = expected.fold(0.0, |a: f64, b| a.max(b.abs()));
                let gap = (&found - &expected).fold(0.0, |a: f64, b| a.max(b.abs()));
                assert!(gap < 1e-7 * scale, "{:e}", gap / scale);
            }
        }
    }

    // Reconstructors of other systems are refused
    #[test]
    fn reconstructors_of_other_systems_are_refused() {
        use ReconstructorOutput::{Actuators, Slopes, Wavefront};
        let system = system(["inf", "90e3"], 0.0);
        let n = SlopeOrder::new(&system.valid_lenslets()).len();
        let valid = rows_of(&system, Slopes).unwrap().unwrap().1;
        let refused = |system: &System, shape: (usize, usize, usize), output| {
            let stored = StoredReconstructor::new(matrix(shape), output).unwrap();
            MatrixEstimatorPlan::new(system, stored).err().map(|error| error.to_string())
        };
        let fits = [((2, 144, n), Wavefront), ((2, valid, n), Slopes), ((5, 9, n), Actuators)];
        for (shape, output) in fits {
            assert_eq!(refused(&system, shape, output), None);
        }
        let bare = system.to_builder().phase(None).build().unwrap();
        let aimless = system.to_builder().targets([]).phase(None).build().unwrap();
        assert_eq!(refused(&bare, (2, valid, n), Slopes), None);
        assert_eq!(refused(&aimless, (2, valid, n), Actuators), None);
        for (system, shape, output, words) in [
            (&system, (2, 144, n + 1), Wavefront, "slopes of the reconstructor = "),
            (&system, (3, 144, n), Wavefront, "targets of the reconstructor = 3: expected 2"),
            (&system, (2, 143, n), Wavefront, "wavefront points of the reconstructor = 143"),
            (&system, (2, 144, n), Slopes, "truth slopes of the reconstructor = 144"),
            (&bare, (2, 144, n), Wavefront, "phase = none"),
            (&aimless, (2, 144, n), Wavefront, "target = 0"),
            (&aimless, (2, valid, n), Slopes, "target = 0"),
        ] {
            let said = refused(system, shape, output).unwrap();
            assert!(said.starts_with(words), "{said}");
        }
        let mut hole = matrix((2, 3, 5));
        hole[[1, 2, 3]] = f64::NAN;
        let said = StoredReconstructor::new(hole, Slopes).unwrap_err().to_string();
        assert!(said.starts_with("element [1, 2, 3] of the reconstructor = NaN"), "{said}");
        assert!(StoredReconstructor::new(Array3::<f32>::zeros((0, 2, 3)), Slopes).is_err());
        assert_eq!(ReconstructorOutput::named("wavefront").unwrap(), Wavefront);
        assert!(ReconstructorOutput::named("phase").is_err());
        // Refuse frames and infinite products
        let huge = StoredReconstructor::new(1e300 * matrix((5, 9, n)), Actuators).unwrap();
        let estimator = planned(&system, huge).unwrap();
        let mut slopes = frames(3, n);
        slopes.row_mut(2).mapv_inplace(|slope| 1e300 * slope);
        let said = estimator.apply(slopes.view(), &unwatched).unwrap_err().to_string();
        assert!(said.starts_with("strokes of frame 2 = infinite"), "{said}");
        slopes[[1, 4]] = f64::INFINITY;
        let said = estimator.apply(slopes.view(), &unwatched).unwrap_err().to_string();
        assert!(said.starts_with("slope 4 of frame 1"), "{said}");
        struct Stopped;
        impl Watch for Stopped {
            fn cancelled(&self) -> bool {
                true
            }
        }
        assert!(matches!(estimator.apply(frames(3, n).view(), &Stopped), Err(Error::Cancelled)));
    }
}
