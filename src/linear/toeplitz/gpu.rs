// Tangled from book/src/toeplitz-gpu.md: edit there, or here and run cargo tangle stitch.
//! Products with block Toeplitz matrices on a graphics processor.

pub(crate) mod lattices;
pub(crate) mod plain_sum;
pub(crate) mod short_transforms;
pub(crate) mod transforms;

// Imports of products on a device
use crate::device::gpu::{Buffer, Gpu};
use crate::error::{Error, Invalid};
use crate::linear::operator::gpu::{DeviceOperator, check_lengths};
use crate::linear::toeplitz::gpu::lattices::ProductMatrix;
use crate::linear::toeplitz::gpu::plain_sum::PlainSum;
use crate::linear::toeplitz::gpu::transforms::{Around, Choices, Passes};
use crate::linear::toeplitz::{Block, Parts};
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView2, ArrayView5};
use std::sync::Arc;

// Which form a product takes
/// Products of more terms than this are made by transforms.
const MOST_DIRECT: usize = 15_000_000;

/// What is usually chosen by size, and may be set to be measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuning {
    /// Whether to make a plain sum.
    pub(crate) direct: Option<bool>,
    pub(crate) transforms: Choices,
}

/// A product in one of its forms.
pub(crate) enum ToeplitzProduct<T> {
    Plain(Box<PlainSum<T>>),
    Transforms(Arc<Passes<T>>),
}

impl<T: Real> ToeplitzProduct<T> {
    // Choose the form of a product
    pub(crate) fn new(matrix: &ProductMatrix, tuning: Tuning) -> Result<Self, Error> {
        let terms = matrix.terms.len() * (matrix.points.from * matrix.points.to).pow(2);
        let small = terms <= MOST_DIRECT && PlainSum::<T>::fits(matrix);
        Ok(match tuning.direct.unwrap_or(small) {
            true => Self::Plain(Box::new(PlainSum::new(matrix)?)),
            false => Self::Transforms(Arc::new(Passes::new(matrix, tuning.transforms)?)),
        })
    }

    // Multiply in either form
    pub(crate) fn apply(
        &self,
        transposed: bool,
        vectors: [&Buffer<T>; 2],
        diagonal: Option<&Buffer<T>>,
    ) -> Result<(), Error> {
        match self {
            Self::Plain(sum) => sum.apply(transposed, vectors, diagonal),
            Self::Transforms(passes) => passes.apply(transposed, vectors, diagonal),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Plain(sum) => sum.bytes(),
            Self::Transforms(passes) => passes.bytes(),
        }
    }

    pub(crate) fn around(&self) -> Option<Around<T>> {
        match self {
            Self::Plain(_) => None,
            Self::Transforms(passes) => Around::new(passes),
        }
    }
}

// Block Toeplitz matrix on a device
/// A block matrix whose blocks are two-level Toeplitz, on a device; see [`BlockToeplitz`](crate::linear::toeplitz::BlockToeplitz).
///
/// Lattices with few points are multiplied by a plain sum, Eq. [polyphase](https://lenslet.github.io/lenslet/toeplitz-products.html#eq-polyphase), others by transforms,
/// Eqs. [two real rows](https://lenslet.github.io/lenslet/transforms-gpu.html#eq-two-real-rows) and [three radices](https://lenslet.github.io/lenslet/short-transforms.html#eq-three-radices).
pub struct BlockToeplitzGpu<T> {
    gpu: Gpu,
    product: ToeplitzProduct<T>,
    diagonal: Option<Arc<Buffer<T>>>,
    rows: usize,
    columns: usize,
    /// How often the matrix stands on the diagonal, for vectors one behind the other.
    vectors: usize,
}

impl<T: Real> BlockToeplitzGpu<T> {
    // Make a matrix on a device
    /// The operator of [`BlockToeplitz::new`](crate::linear::toeplitz::BlockToeplitz::new), on a device.
    ///
    /// # Errors
    /// `Invalid` as there, and where the lattices are too large for the shared memory of a device; what the device says.
    pub fn new(
        gpu: &Gpu,
        kernels: &[ArrayView2<f64>],
        blocks: &Array2<Block>,
        oversampling: usize,
        outputs: &[Array2<bool>],
        inputs: &[Array2<bool>],
    ) -> Result<Self, Error> {
        let (kernels, outputs, inputs) = (kernels.to_vec(), outputs.to_vec(), inputs.to_vec());
        let parts = Parts::new(kernels, blocks.clone(), oversampling, outputs, inputs)?;
        Self::of(gpu, &parts, false, Tuning::default())
    }

    // Make wavefronts and other matrices on a device
    // Make wavefronts from slopes on a device
    /// From slopes to wavefronts, as [`BlockToeplitz::wavefront_slope`](crate::linear::toeplitz::BlockToeplitz::wavefront_slope).
    ///
    /// # Errors
    /// As in [`BlockToeplitzGpu::new`].
    pub fn wavefront_slope(
        gpu: &Gpu,
        kernels: ArrayView5<f64>,
        oversampling: usize,
        points: &[Array2<bool>],
        valid: &[Array2<bool>],
    ) -> Result<Self, Error> {
        let parts = Parts::wavefront_slope(kernels, oversampling, points, valid)?;
        Self::of(gpu, &parts, false, Tuning::default())
    }

    // Make a matrix of its parts
    pub(crate) fn of(
        gpu: &Gpu,
        parts: &Parts,
        symmetric: bool,
        tuning: Tuning,
    ) -> Result<Self, Error> {
        Self::placed(gpu, parts, symmetric, (tuning, None))
    }

    /// The matrix of these parts, with inputs at given positions of vectors of some length; the transpose leaves other elements unchanged.
    pub(crate) fn placed(
        gpu: &Gpu,
        parts: &Parts,
        symmetric: bool,
        (tuning, at): (Tuning, Option<(&[usize], usize)>),
    ) -> Result<Self, Error> {
        let left = |masks: &[Array2<bool>]| masks.iter().flatten().filter(|&&used| used).count();
        let vectors = tuning.transforms.vectors.unwrap_or(1);
        let inputs = at.map_or_else(|| left(&parts.inputs), |(_, length)| length);
        let [rows, columns] = [left(&parts.outputs), inputs].map(|n| vectors * n);
        let matrix = ProductMatrix::new(gpu, parts, symmetric, at.map(|(places, _)| places));
        let product = ToeplitzProduct::new(&matrix, tuning)?;
        Ok(Self { gpu: gpu.clone(), product, diagonal: None, rows, columns, vectors })
    }

    // Add a diagonal on a device
    /// Adds these elements to the diagonal, such as the variance of noise, without a further launch.
    ///
    /// # Errors
    /// `Invalid` where the matrix is not square, or the elements are not as many as its rows.
    pub fn with_diagonal(mut self, elements: &[f64]) -> Result<Self, Error> {
        if [self.rows, self.columns].map(|n| n / self.vectors) != [elements.len(); 2] {
            let expected = format!("{}, and a square matrix", self.rows / self.vectors);
            return Err(Invalid::new("elements of a diagonal", elements.len(), expected).into());
        }
        let elements: Vec<T> = elements.iter().map(|&element| T::of(element)).collect();
        self.diagonal = Some(Arc::new(self.gpu.upload(&elements)?));
        Ok(self)
    }

    // Lend the product of a matrix
    /// The product of a symmetric matrix, if it is made by transforms and has a diagonal; and that.
    pub(crate) fn around(&self) -> Option<(Around<T>, Arc<Buffer<T>>)> {
        self.product.around().zip(self.diagonal.clone())
    }
}

impl<T: Real> DeviceOperator<T> for BlockToeplitzGpu<T> {
    // Answers of Toeplitz products on a device
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.rows, self.columns))?;
        self.product.apply(false, [x, y], self.diagonal.as_deref())
    }

    // Transpose and weigh on a device
    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.columns, self.rows))?;
        self.product.apply(true, [x, y], self.diagonal.as_deref())
    }

    fn bytes(&self) -> u64 {
        self.product.bytes() + self.diagonal.as_ref().map_or(0, |diagonal| diagonal.bytes())
    }
}

// Tests of products on a device
#[cfg(test)]
pub(crate) mod tests {
    // What tests of products on devices use
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::linear::operator::battery::{check, distance, product, random};
    use crate::linear::operator::gpu::OnHost;
    use crate::linear::operator::{Diagonal, Operator, Sum, shape};
    use crate::linear::toeplitz::BlockToeplitz;
    use crate::linear::toeplitz::gpu::lattices::Sides;
    use crate::linear::toeplitz::gpu::short_transforms::Radices;
    use crate::linear::toeplitz::tests::{covariance, kernels, masks};
    use crate::numerics::real::Real;
    use ndarray::Array5;

    // Ways to make a product
    /// Tunings for plain sums, and for transforms with these choices.
    fn directly() -> Tuning {
        Tuning { direct: Some(true), ..Tuning::default() }
    }

    fn by_transforms(transforms: Choices) -> Tuning {
        Tuning { direct: Some(false), transforms }
    }

    /// Transforms that are four times as long as a single lenslet under six points asks for.
    fn longer() -> Tuning {
        let radices = Radices::new([3, 2, 4]);
        assert!(radices.is_some());
        by_transforms(Choices { radices, ..Choices::default() })
    }

    fn both_forms() -> [Tuning; 2] {
        [directly(), by_transforms(Choices::default())]
    }

    // Hold a device to the host
    /// Holds an operator on a device to the battery, and to one on the host.
    pub(crate) fn compare<T: Real>(
        device: impl DeviceOperator<T> + 'static,
        host: &dyn Operator<f64>,
        tolerance: f64,
    ) {
        let device = OnHost(Arc::new(device));
        check(&device, tolerance);
        for transposed in [false, true] {
            assert_eq!(shape(&device, transposed), shape(host, transposed));
            let x: Vec<f64> = random(shape(host, transposed).1, 4);
            let expected = product(host, transposed, &x, 1);
            let x: Vec<T> = x.into_iter().map(T::of).collect();
            let y = product(&device, transposed, &x, 1);
            let y: Vec<f64> = y.into_iter().map(Real::in_double).collect();
            let error = distance(&y, &expected);
            assert!(error <= tolerance, "{error:e}, transposed: {transposed}");
        }
    }

    // Systems without any symmetry
    /// Random kernels, masks of points, masks of lenslets.
    struct System {
        kernels: Array5<f64>,
        step: usize,
        points: Vec<Array2<bool>>,
        valid: Vec<Array2<bool>>,
    }

    impl System {
        fn new([targets, sources]: [usize; 2], [lenslets, points, step]: [usize; 3]) -> Self {
            let kernels = kernels(targets, sources, step * (lenslets - 1) + points, 3);
            let (points, valid) =
                (masks(targets, points, 0.8, 4), masks(sources, lenslets, 0.7, 5));
            Self { kernels, step, points, valid }
        }

        /// Three sensors of a single lenslet, under six points.
        fn single() -> Self {
            Self::new([1, 3], [1, 6, 1])
        }

        // Compare a system on both machines
        fn parts(&self) -> Parts<'_> {
            let kernels = self.kernels.view();
            Parts::wavefront_slope(kernels, self.step, &self.points, &self.valid).unwrap()
        }

        /// Compares products on a device with those on the host.
        fn compare<T: Real>(&self, gpu: &Gpu, tuning: Tuning, tolerance: f64) {
            let parts = self.parts();
            let device = BlockToeplitzGpu::<T>::of(gpu, &parts, false, tuning).unwrap();
            compare(device, &BlockToeplitz::<f64>::of(&parts), tolerance);
        }
    }

    // Compare systems in all forms
    #[test]
    fn products_are_those_of_the_host() {
        let (many, single) = (System::new([3, 1], [9, 8, 3]), System::single());
        for gpu in test_backends() {
            single.compare::<f64>(&gpu, directly(), 1e-12);
            for tuning in both_forms() {
                many.compare::<f64>(&gpu, tuning, 1e-12);
            }
        }
    }

    // Compare lengths and groups
    #[test]
    fn all_lengths_and_groups_give_the_same() {
        let (single, wide) = (System::single(), System::new([5, 2], [2, 2, 1]));
        let groups = Some(Sides { from: 2, to: 1 });
        let grouped = Choices { groups, rows: Some(1), ..Choices::default() };
        for gpu in test_backends() {
            single.compare::<f64>(&gpu, longer(), 1e-12);
            wide.compare::<f64>(&gpu, by_transforms(grouped), 1e-12);
        }
    }

    // Check slopes and mirrored tiles on devices
    #[test]
    fn slopes_share_spectra_and_take_noise() {
        let (covariance, valid) = (covariance(2, 7), masks(2, 7, 0.7, 5));
        let host = BlockToeplitz::<f64>::slopes(&covariance, &valid).unwrap();
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        let noise: Vec<f64> = random(host.rows(), 6);
        let sum = Sum::new(vec![Arc::new(host), Arc::new(Diagonal::new(noise.clone()))]).unwrap();
        for gpu in test_backends() {
            for tuning in both_forms() {
                let device = BlockToeplitzGpu::<f64>::of(&gpu, &parts, true, tuning).unwrap();
                compare(device.with_diagonal(&noise).unwrap(), &sum, 1e-12);
                let device = BlockToeplitzGpu::<f32>::of(&gpu, &parts, true, tuning).unwrap();
                compare(device.with_diagonal(&noise).unwrap(), &sum, 1e-5);
            }
        }
    }

    // Hold mirrored tiles to the host
    #[test]
    fn mirrored_tiles_need_no_symmetry() {
        let (valid, lags) = (masks(3, 6, 0.8, 8), 11 * 11);
        let kernel = |k: u64| Array2::from_shape_vec((11, 11), random(lags, 20 + k)).unwrap();
        let kernels: Vec<_> = (0..21).map(kernel).collect();
        let parts = crate::estimation::circulant::parts_of(&kernels, &valid).unwrap();
        let host = BlockToeplitz::<f64>::of(&parts);
        for gpu in test_backends() {
            let radices = Some(Radices::new([4, 3, 1]).unwrap());
            let tuning = by_transforms(Choices { radices, ..Choices::default() });
            let device = BlockToeplitzGpu::<f64>::of(&gpu, &parts, false, tuning).unwrap();
            compare(device, &host, 1e-12);
        }
    }

    // Check that products repeat bit by bit
    #[test]
    fn products_repeat_bit_by_bit() {
        let (covariance, valid) = (covariance(2, 7), masks(2, 7, 0.7, 5));
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        for gpu in test_backends() {
            let times = if gpu.name().starts_with("cuda") { 1000 } else { 4 };
            for tuning in both_forms() {
                let device = BlockToeplitzGpu::<f32>::of(&gpu, &parts, true, tuning).unwrap();
                let x = gpu.upload(&random::<f32>(device.columns(), 1)).unwrap();
                let y = gpu.zeros::<f32>(device.rows()).unwrap();
                let graph = gpu.record(|| device.apply(&x, &y)).unwrap();
                let once = || {
                    y.clear().unwrap();
                    gpu.replay(&graph).unwrap();
                    y.read().unwrap()
                };
                let first = once();
                assert!(first.iter().any(|&y| y != 0.0));
                assert!((1..times).all(|_| once() == first));
            }
        }
    }

    // Refuse what cannot be multiplied
    #[test]
    fn what_cannot_be_done_is_refused() {
        let system = System::single();
        let large = Choices { radices: Radices::new([16; 3]), ..Choices::default() };
        for gpu in test_backends() {
            let make = |tuning| BlockToeplitzGpu::<f64>::of(&gpu, &system.parts(), false, tuning);
            let device = make(longer()).unwrap();
            let [x, y] = [device.columns(), device.rows()].map(|len| gpu.zeros(len).unwrap());
            assert!(device.apply(&y, &x).is_err() && device.apply(&x, &x).is_err());
            assert!(device.with_diagonal(&[1.0]).is_err());
            let refused = make(by_transforms(large)).err().unwrap().to_string();
            assert!(refused.starts_with("length of transforms = 4096"));
        }
    }

    // Lend only what a solver can use
    #[test]
    fn products_are_lent_if_symmetric_and_by_transforms() {
        let (covariance, valid) = (covariance(2, 7), masks(2, 7, 0.7, 5));
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        for gpu in test_backends() {
            let is_lent = |symmetric, tuning| {
                let made = BlockToeplitzGpu::<f64>::of(&gpu, &parts, symmetric, tuning).unwrap();
                let diagonal = vec![1.0; made.rows()];
                made.with_diagonal(&diagonal).unwrap().around().is_some()
            };
            let tuning = by_transforms(Choices::default());
            let bare = BlockToeplitzGpu::<f64>::of(&gpu, &parts, true, tuning).unwrap();
            assert!(is_lent(true, tuning) && bare.around().is_none());
            assert!(!is_lent(false, tuning) && !is_lent(true, directly()));
        }
    }
}
