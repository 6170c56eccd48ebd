// Tangled from book/src/covariance-blocks-gpu.md: edit there, or here and run cargo tangle stitch.
//! Covariances in blocks as operators on a device.

// Imports of blocks of covariances on a device
use crate::device::gpu::{Buffer, Gpu};
use crate::error::Error;
use crate::estimation::blocks::{
    MeasuredCovariance, lattice_and_unstructured_places, projected_complement,
    unstructured_with_lattices, unstructured_with_noise, wide,
};
use crate::estimation::circulant::Group;
use crate::estimation::circulant::gpu::CirculantGpu;
use crate::linear::blocks::gpu::WideMatrix;
use crate::linear::elimination::gpu::EliminationGpu;
use crate::linear::operator::Pairs;
use crate::linear::operator::gpu::modes::{RowMode, WithModesGpu};
use crate::linear::operator::gpu::{DeviceOperator, WithPairsGpu, check_lengths};
use crate::linear::solver::multi_rhs::gpu::SideBySide;
use crate::linear::toeplitz::Parts;
use crate::linear::toeplitz::gpu::lattices::ProductMatrix;
use crate::linear::toeplitz::gpu::transforms::Choices;
use crate::linear::toeplitz::gpu::{BlockToeplitzGpu, ToeplitzProduct, Tuning};
use crate::model::noise::SlopeNoise;
use crate::model::removed_modes::RemovedModes;
use crate::numerics::real::Real;
use crate::turbulence::blocks::{CrossBlocks, LatticeGroups};
use std::ops::Range;
use std::sync::Arc;

// Slopes in blocks on a device
/// The covariance of all slopes in blocks with variances on its diagonal, rad², on a device.
pub(crate) struct SlopesInBlocksGpu<T> {
    gpu: Gpu,
    lattices: Vec<ToeplitzProduct<T>>,
    variances: Buffer<T>,
    unstructured: Option<WideMatrix<T>>,
    between: Vec<WideMatrix<T>>,
    /// How many vectors stand one behind the other.
    vectors: usize,
}

// Steps of slopes in blocks on a device
impl<T: Real> SlopesInBlocksGpu<T> {
    // Put slopes in blocks on a device
    /// The groups that share a lattice, the cross blocks, and the variance of the noise of each slope.
    ///
    /// # Errors
    /// `Invalid` where they do not fit, or lattices are too large for the shared memory of a device; what the device says.
    pub(crate) fn new(
        gpu: &Gpu,
        groups: &[Group],
        rectangles: &CrossBlocks,
        variances: &[f64],
        tuning: Tuning,
    ) -> Result<Self, Error> {
        let (sets, vectors) = (&rectangles.sets, tuning.transforms.vectors.unwrap_or(1));
        // Products of the lattices on a device
        let lattice = |(set, group): (usize, &Group)| {
            let at: Vec<usize> = sets.places(set).into_iter().flatten().collect();
            let parts = Parts::slopes(group.covariance, group.valid)?;
            ToeplitzProduct::new(&ProductMatrix::new(gpu, &parts, true, Some(&at)), tuning)
        };
        let lattices = groups.iter().enumerate().map(lattice).collect::<Result<_, Error>>()?;
        // Matrix of the unstructured slopes
        let unstructured =
            sets.unstructured().zip(rectangles.unstructured.as_ref()).map(|(set, matrix)| {
                // Add the noise of the unstructured slopes
                let (places, mut matrix) = (sets.places(set), matrix.clone());
                let noise = places.iter().cloned().flatten().map(|place| variances[place]);
                matrix.diag_mut().iter_mut().zip(noise).for_each(|(value, noise)| *value += noise);
                WideMatrix::new(gpu, matrix.view(), [&places, &places], vectors)
            });
        // Place the cross blocks
        let between = |([first, second], rectangle): ([usize; 2], &_)| {
            let (matrix, transposed) = wide(rectangle);
            let [one, other] = [sets.places(first), sets.places(second)];
            let places = if transposed { [&*other, &*one] } else { [&*one, &*other] };
            WideMatrix::new(gpu, matrix, places, vectors)
        };
        let between = sets.pairs().into_iter().zip(&rectangles.between).map(between);
        let between = between.collect::<Result<_, Error>>()?;
        let variances: Vec<T> = variances.iter().map(|&variance| T::of(variance)).collect();
        let (gpu, variances) = (gpu.clone(), gpu.upload(&variances)?);
        Ok(Self {
            gpu,
            lattices,
            variances,
            unstructured: unstructured.transpose()?,
            between,
            vectors,
        })
    }
}

impl<T: Real> DeviceOperator<T> for SlopesInBlocksGpu<T> {
    // Answers of slopes in blocks on a device
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.vectors * self.variances.len()
    }

    fn columns(&self) -> usize {
        self.rows()
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.apply(x, y)
    }

    fn bytes(&self) -> u64 {
        let lattices = self.lattices.iter().map(ToeplitzProduct::bytes).sum::<u64>();
        let dense =
            self.unstructured.iter().chain(&self.between).map(WideMatrix::bytes).sum::<u64>();
        lattices + dense + self.variances.bytes()
    }
    // Multiply blocks on a device
    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.rows(), self.rows()))?;
        let diagonal = Some(&self.variances);
        self.lattices.iter().try_for_each(|lattice| lattice.apply(false, [x, y], diagonal))?;
        self.unstructured.iter().try_for_each(|matrix| matrix.add_rows(true, [x, y]))?;
        self.between.iter().try_for_each(|between| {
            between.add_rows(false, [x, y])?;
            between.add_columns([false; 2], [x, y, y])
        })
    }
}

// Precondition in blocks on a device
/// The preconditioner of [`eliminated`](crate::estimation::blocks::eliminated), on a device.
pub(crate) fn eliminated_on<T: Real>(
    gpu: &Gpu,
    measured: &MeasuredCovariance,
    rectangles: &CrossBlocks,
    tuning: Tuning,
) -> Result<Arc<dyn DeviceOperator<T>>, Error> {
    let (sets, vectors) = (&rectangles.sets, tuning.transforms.vectors.unwrap_or(1));
    let places = (&*places_of_stars(sets), measured.noise.variances.len());
    let circulant = CirculantGpu::placed(gpu, measured.groups, places, tuning)?;
    let circulant: Arc<dyn DeviceOperator<T>> = Arc::new(circulant);
    if rectangles.unstructured.is_none() {
        return Ok(circulant);
    }
    // Eliminate with the projected complement
    let (between, small) = (
        unstructured_with_lattices(rectangles),
        unstructured_with_noise(rectangles, measured.noise),
    );
    let projected = projected_complement(measured, rectangles, [&between, &small])?;
    let blocks = (between, [small.view(), projected.view()]);
    Ok(Arc::new(EliminationGpu::new(
        circulant,
        blocks,
        lattice_and_unstructured_places(sets),
        vectors,
    )?))
}

// Places of the slopes of stars
/// Where the slopes of each star stand in the vector of all.
fn places_of_stars(sets: &LatticeGroups) -> Vec<Range<usize>> {
    let mut places: Vec<_> = sets.all().flat_map(|set| sets.places(set)).collect();
    places.sort_unstable_by_key(|place| place.start);
    places
}

// Systems of a model side by side
/// What solves for so many right-hand sides side by side with the covariance of measured slopes, without the modes that are removed.
///
/// # Errors
/// As for its operators; `Memory` where the vectors do not fit.
#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
pub(crate) fn systems_on<T: Real>(
    gpu: &Gpu,
    measured: &MeasuredCovariance,
    systems: usize,
) -> Result<SideBySide<T>, Error> {
    let transforms = Choices { vectors: Some(systems), ..Choices::default() };
    let tuning = Tuning { direct: Some(false), transforms };
    let MeasuredCovariance { groups, valid, noise, removed, .. } = *measured;
    // Systems with cross blocks
    if let Some(rectangles) = measured.rectangles {
        let variances = &noise.variances;
        let slopes = SlopesInBlocksGpu::new(gpu, groups, rectangles, variances, tuning)?;
        let preconditioner = eliminated_on(gpu, measured, rectangles, tuning)?;
        let measured = without(with_noise(Arc::new(slopes), noise)?, variances.len(), removed)?;
        return SideBySide::new(measured, preconditioner, systems);
    }
    let parts = Parts::slopes(groups[0].covariance, valid)?;
    let slopes = BlockToeplitzGpu::of(gpu, &parts, true, tuning)?;
    let slopes = Arc::new(slopes.with_diagonal(&noise.variances)?);
    let circulant = Arc::new(CirculantGpu::tuned(gpu, groups, tuning)?);
    if is_diagonal(noise) && removed.is_empty() {
        return SideBySide::between_transforms(slopes, circulant, systems);
    }
    let measured = without(with_noise(slopes, noise)?, noise.variances.len(), removed)?;
    SideBySide::new(measured, circulant, systems)
}

// Covariance as it is measured
/// Whether the noise is on the diagonal alone.
pub(crate) fn is_diagonal(noise: &SlopeNoise) -> bool {
    !noise.is_correlated() && noise.common.is_empty()
}

// Add noise off the diagonal
/// An operator with the noise that is not on its diagonal, if there is any.
pub(crate) fn with_noise<T: Real>(
    operator: Arc<dyn DeviceOperator<T>>,
    noise: &SlopeNoise,
) -> Result<Arc<dyn DeviceOperator<T>>, Error> {
    let (mut operator, rows) = (operator, noise.variances.len());
    if noise.is_correlated() {
        let pairs = Pairs::new(noise.partners.clone(), noise.covariances.clone())?;
        operator = Arc::new(WithPairsGpu::new(operator, &pairs)?);
    }
    if !noise.common.is_empty() {
        let ones = |slopes: &Range<usize>| (slopes.start, vec![1.0; slopes.len()]);
        let (modes, weights): (Vec<RowMode>, Vec<f64>) =
            noise.common.iter().map(|(slopes, variance)| (ones(slopes), *variance)).unzip();
        operator = Arc::new(WithModesGpu::in_common(operator, rows, &modes, &weights)?);
    }
    Ok(operator)
}

// Remove modes on a device
/// An operator of so many rows without the modes that are removed, if there are any.
pub(crate) fn without<T: Real>(
    operator: Arc<dyn DeviceOperator<T>>,
    rows: usize,
    removed: &RemovedModes,
) -> Result<Arc<dyn DeviceOperator<T>>, Error> {
    match removed.is_empty() {
        true => Ok(operator),
        false => Ok(Arc::new(WithModesGpu::taken_out(operator, rows, &modes_of(removed))?)),
    }
}

/// Modes as vectors over some rows.
pub(crate) fn modes_of(removed: &RemovedModes) -> Vec<RowMode> {
    removed.iter().map(|mode| (mode.first, mode.shape.clone())).collect()
}
