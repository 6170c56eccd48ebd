// Tangled from book/src/factorised-gpu.md: edit there, or here and run cargo tangle stitch.
//! Estimates by a factor on a device.

// Imports of a factor for estimates
use super::{Factored, Factorised};
use crate::device::engine::Engine;
use crate::device::gpu::{Buffer, Gpu};
use crate::device::lock;
use crate::error::Error;
use crate::estimation::estimate::gpu::{Operators, operators};
use crate::estimation::estimate::{EstimateOptions, Model};
use crate::linear::factorisation::gpu::{
    CholeskyGpu, EIGENVECTORS, EigenGpu, WORKING, read_rows, upload_rows,
};
use crate::linear::factorisation::unit;
use crate::linear::operator::gpu::DeviceOperator;
use crate::numerics::real::{Precision, Real};
use ndarray::Array2;
use std::sync::Mutex;

// A factor for estimates on a device
/// A factor on a device, and the operators of the estimate.
struct OnDevice<T> {
    gpu: Gpu,
    factor: FactorGpu<T>,
    /// One user at a time, as operators share their scratch.
    operators: Mutex<Operators<T>>,
    /// Unit of the matrix, rad².
    unit: f64,
}

enum FactorGpu<T> {
    Cholesky(CholeskyGpu<T>),
    Eigen(EigenGpu<T>),
}

// Factorise on the first device
impl Factorised {
    /// A factor of a matrix on the first device of an engine, of its eigenvectors where `filtered`; `blame` makes the error of a pivot.
    pub(super) fn there(
        model: &Model,
        options: EstimateOptions,
        matrix: (Array2<f64>, bool),
        engine: &Engine,
        blame: &dyn Fn(usize) -> Error,
    ) -> Result<Box<dyn Factored>, Error> {
        let gpu = &engine.devices()[0];
        Ok(match engine.precision() {
            Precision::F64 => Box::new(OnDevice::<f64>::new(gpu, model, options, matrix, blame)?),
            Precision::F32 => Box::new(OnDevice::<f32>::new(gpu, model, options, matrix, blame)?),
        })
    }

    // Bytes of a factor on a device
    /// Bytes of the factor of a matrix of `n` rows on the first device of an engine.
    pub(crate) fn bytes_on_device(n: usize, filtered: bool, engine: &Engine) -> u64 {
        let size = match engine.precision() {
            Precision::F64 => 8.0,
            Precision::F32 => 4.0,
        };
        let matrices = if filtered { EIGENVECTORS } else { 1.0 };
        (size * matrices * (n as f64).powi(2)) as u64 + WORKING
    }
}
impl<T: Real> OnDevice<T> {
    fn new(
        gpu: &Gpu,
        model: &Model,
        options: EstimateOptions,
        (matrix, filtered): (Array2<f64>, bool),
        blame: &dyn Fn(usize) -> Error,
    ) -> Result<Self, Error> {
        let (n, unit) = (matrix.nrows(), unit(&matrix));
        let there = upload_rows::<T>(gpu, &matrix, unit)?;
        drop(matrix);
        let factor = if filtered {
            let filter = options.filter.max(n as f64 * T::epsilon().in_double());
            FactorGpu::Eigen(EigenGpu::new(gpu, there, n, filter)?)
        } else {
            let factor = CholeskyGpu::new(gpu, there, n)?;
            FactorGpu::Cholesky(factor.map_err(|error| blame(error.pivot))?)
        };
        let operators = Mutex::new(operators(gpu, model, options)?);
        Ok(Self { gpu: gpu.clone(), factor, operators, unit })
    }

    // Multiply rows one by one
    /// The products of an operator with all rows, as rows.
    fn times(
        &self,
        operator: &dyn DeviceOperator<T>,
        rows: &Array2<f64>,
    ) -> Result<Array2<f64>, Error> {
        let x: Buffer<T> = self.gpu.zeros(operator.columns())?;
        let y: Buffer<T> = self.gpu.zeros(operator.rows())?;
        let mut products = Array2::zeros((rows.nrows(), operator.rows()));
        for (row, mut product) in rows.outer_iter().zip(products.outer_iter_mut()) {
            x.write(&row.iter().map(|&value| T::of(value)).collect::<Vec<T>>())?;
            operator.apply(&x, &y)?;
            product.iter_mut().zip(y.read()?).for_each(|(to, from)| *to = from.in_double());
        }
        Ok(products)
    }
}

// Products of a factor on a device
impl<T: Real> Factored for OnDevice<T> {
    fn solve(&self, rows: &mut Array2<f64>) -> Result<(), Error> {
        let x = upload_rows::<T>(&self.gpu, &*rows, 1.0)?;
        match &self.factor {
            FactorGpu::Cholesky(factor) => {
                factor.halve(&x)?;
                factor.finish(x.view(..))?;
            }
            FactorGpu::Eigen(eigen) => {
                let along = eigen.project(&x)?;
                eigen.expand(along.view(..), x.view(..))?;
            }
        }
        *rows = read_rows(x.view(..), rows.ncols(), self.unit.recip())?;
        Ok(())
    }

    fn multiply(&self, rows: &Array2<f64>) -> Result<Array2<f64>, Error> {
        let operators = lock(&self.operators);
        self.times(operators.measured.as_ref(), rows)
    }

    // Wavefronts and bytes of a factor on a device
    fn wavefronts(&self, rows: &Array2<f64>) -> Result<Array2<f64>, Error> {
        let operators = lock(&self.operators);
        self.times(operators.wavefront.as_ref(), rows)
    }

    fn bytes(&self) -> [u64; 2] {
        let operators = lock(&self.operators);
        let slopes = operators.measured.rows();
        [(size_of::<T>() * slopes * slopes) as u64, operators.wavefront.bytes()]
    }
}
