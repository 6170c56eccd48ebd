// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors on a graphics processor.

// Imports of the reconstructor on a device
use super::{
    ERROR, ErrorSink, Errors, FACTOR, Inversion, Inverted, RECONSTRUCTOR, ReconstructorPlan,
};
use crate::device::collective::BlockCyclic;
use crate::device::engine::Engine;
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::Error;
use crate::linear::factorisation::gpu::{CholeskyGpu, EIGENVECTORS, EigenGpu, WORKING, read_rows};
use crate::linear::factorisation::unit;
use crate::model::atmosphere::Atmosphere;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::removed_modes::Mode;
use crate::model::sensor::Sensor;
use crate::model::system::SlopeModel;
use crate::numerics::real::{Precision, Real};
use crate::tomography::covariance_matrix::{
    LATER, MEASUREMENTS, TRUTH, truth_covariance, truth_sensors, truth_valid, upwind,
};
use crate::turbulence::{cross_covariance, edge_midpoint};
use crate::watch::{StageParts, Watch, check};
use ndarray::{Array2, Array3, Axis, Zip};
use std::ops::Range;

// Memory and precision of a device
impl ReconstructorPlan {
    /// Bytes that the plan takes on each device of an engine: the first one takes the matrices apart, or all of them do.
    pub(super) fn on_devices(&self, engine: &Engine) -> Vec<u64> {
        let (air, sensors) = (self.system.atmosphere(), self.system.sensors());
        let covariances = match self.system.slope_model() {
            SlopeModel::Average => cross_covariance::gpu::bytes(engine.precision(), air, &sensors),
            SlopeModel::EdgeMidpoint => edge_midpoint::gpu::bytes(air, &sensors),
        };
        if self.is_shared(engine) {
            return vec![self.on_rank(engine).max(covariances); engine.devices().len()];
        }
        let mut all = vec![covariances; engine.devices().len()];
        let first = all.iter_mut().take(1);
        first.for_each(|bytes| *bytes = self.on_first(engine.precision()).max(covariances));
        all
    }

    /// Bytes that one device takes to take the matrices apart.
    pub(super) fn on_first(&self, precision: Precision) -> u64 {
        let [n, m, targets] =
            [self.measurements, self.unknowns(), self.system.targets().len()].map(|k| k as u64);
        // Wavefronts are solved for one target at a time, and their errors are computed on the host.
        let (errors, targets) = match self.is_to_wavefront() {
            true => (0, 1),
            false => (targets * m * m, self.sets() as u64 * targets),
        };
        let (rows, blocks) = match self.method {
            Inversion::Eigen => (2 * targets * m, EIGENVECTORS),
            _ => (targets * m, 1.0),
        };
        let numbers = n.saturating_mul(rows).saturating_add(errors) as f64;
        let bytes = match precision {
            Precision::F64 => 8.0,
            Precision::F32 => 4.0,
        };
        (bytes * (numbers + blocks * (n as f64).powi(2))) as u64 + WORKING
    }

    // Choose the precision of a device
    /// As on processors, by the first device of an engine, in its precision, from C_tt; C_mm and C_tm are made
    /// there.
    pub(super) fn invert_on_device(
        &self,
        truth: &Array2<f64>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Inverted, Error> {
        let gpu = &engine.devices()[0];
        match engine.precision() {
            Precision::F64 => self.inverted::<f64>(truth, gpu, watch),
            Precision::F32 => self.inverted::<f32>(truth, gpu, watch),
        }
    }
}

// Covariances that never leave the device
impl ReconstructorPlan {
    // Covariances made on a device
    /// The columns of a deal of C_mm with its noise, and of C_tm, over `unit`, made on a device; `sum` adds numbers of all ranks.
    pub(super) fn made<T: Real>(
        &self,
        (gpu, deal): (&Gpu, &BlockCyclic),
        unit: f64,
        sum: &dyn Fn(&Buffer<f64>) -> Result<(), Error>,
        watch: &dyn Watch,
    ) -> Result<[Buffer<T>; 2], Error> {
        let (to, here) = ((gpu, unit, deal), HostColumns::of(gpu, deal)?);
        let stars = (&self.system.sensors()[..], &self.system.valid_lenslets()[..]);
        let matrix = self.filled(to, &here, stars, watch)?;
        let rows = self.rows_on_device(to, watch)?;
        gpu.synchronise()?;
        watch.stage(FACTOR, "");
        self.replace_modes_on_device(gpu, &here, &matrix, sum)?;
        self.remove_modes_on_device(gpu, &here, &rows, sum)?;
        Ok([matrix, rows])
    }

    // Fill a matrix with its noise
    /// The columns of a deal of the covariances of sensors, which begin with those of all stars, with the noise of these, over `unit`.
    pub(super) fn filled<T: Real>(
        &self,
        to: (&Gpu, f64, &BlockCyclic),
        here: &HostColumns,
        sensors: (&[Sensor], &[Array2<bool>]),
        watch: &dyn Watch,
    ) -> Result<Buffer<T>, Error> {
        watch.stage(MEASUREMENTS, "");
        let (air, gradient) = (self.system.atmosphere(), self.system.cone_gradient());
        let matrix = match self.system.slope_model() {
            SlopeModel::Average => {
                cross_covariance::gpu::slopes_on_device::<T>(air, sensors, gradient, to, watch)?
            }
            SlopeModel::EdgeMidpoint => {
                edge_midpoint::gpu::slopes_on_device(air, sensors, to, watch)?
            }
        };
        self.add_noise_on_device((to.0, to.1), here, &matrix)?;
        Ok(matrix)
    }

    // Make rows of the truth on a device
    /// The columns of a deal of C_tm, over `unit`: with a delay of the later truth, and below it of the present one.
    pub(super) fn rows_on_device<T: Real>(
        &self,
        to: (&Gpu, f64, &BlockCyclic),
        watch: &dyn Watch,
    ) -> Result<Buffer<T>, Error> {
        let (system, truths) = (&self.system, truth_sensors(&self.system));
        let (sensors, valid) = (system.sensors(), system.valid_lenslets());
        let masks = vec![truth_valid(system); truths.len()];
        let size = truths.len() * self.truth_slopes * to.2.count();
        let rows = to.0.zeros::<T>(self.sets() * size)?;
        // Add covariances of one part
        let add = |truths: &[Sensor], air: &Atmosphere, part: BufferView<T>| {
            let sets = [(truths, &masks[..]), (&sensors[..], &valid[..])];
            match system.slope_model() {
                SlopeModel::Average => cross_covariance::gpu::add_cross_covariance(
                    air,
                    sets,
                    system.cone_gradient(),
                    (to, part),
                    watch,
                ),
                SlopeModel::EdgeMidpoint => {
                    edge_midpoint::gpu::add_cross_covariance(air, sets, (to, part), watch)
                }
            }
        };
        watch.stage(TRUTH, "");
        add(&truths, system.atmosphere(), rows.view((self.sets() - 1) * size..))?;
        if self.is_delayed() {
            watch.stage(LATER, "");
            for (truths, air) in upwind(system, self.options.delay)? {
                add(&truths, &air, rows.view(..size))?;
            }
        }
        Ok(rows)
    }

    // Keep what a device has made
    /// C_mm and C_tm, where they are to be kept; `read` brings rows to the host.
    pub(super) fn kept_on_device<T: Real>(
        &self,
        [matrix, rows]: [&Buffer<T>; 2],
        read: &ReadRows<T>,
    ) -> Result<Option<[Array2<f64>; 2]>, Error> {
        if !self.options.keep {
            return Ok(None);
        }
        let mut measurements = read(matrix.view(..))?;
        cross_covariance::mirror(&mut measurements);
        Ok(Some([measurements, read(rows.view(..rows.len() / self.sets()))?]))
    }

    // Add noise on a device
    /// Adds the noise of slopes to the columns of a covariance matrix that are here, and the ridge to the truth's.
    fn add_noise_on_device<T: Real>(
        &self,
        (gpu, unit): (&Gpu, f64),
        here: &HostColumns,
        matrix: &Buffer<T>,
    ) -> Result<(), Error> {
        let order = SlopeOrder::new(&self.system.valid_lenslets());
        let noise = SlopeNoise::new(self.system.guide_stars(), &order);
        let (slopes, count) = (&here.slopes, here.slopes.len());
        let upload = |values: &[f64], of_truth: f64| {
            let value = |k: usize| T::of(values.get(k).map_or(of_truth, |value| value / unit));
            gpu.upload(&slopes.iter().map(|&k| value(k)).collect::<Vec<T>>())
        };
        let variances = upload(&noise.variances, RIDGE)?;
        let covariances = upload(&noise.covariances, 0.0)?;
        let partner = |&k: &usize| noise.partners.get(k).copied().unwrap_or(k) as i32;
        let partners = gpu.upload(&slopes.iter().map(partner).collect::<Vec<i32>>())?;
        let (kernels, matrix) = (NoiseKernels::load(gpu, &[])?, matrix.view(..));
        let arguments = AddNoise {
            matrix,
            slopes: here.there.view(..),
            variances: variances.view(..),
            partners: partners.view(..),
            covariances: covariances.view(..),
            count,
        };
        gpu.launch(&kernels.add_noise, Shape::over(count, 256, [1, 1]), arguments)?;
        // Add what slopes have in common
        for (slopes, variance) in &noise.common {
            let (columns, variance) = (here.columns(slopes), variance / unit);
            let arguments = AddCommon {
                matrix,
                width: count,
                row: slopes.start,
                first: columns.start,
                count: columns.len(),
                variance,
            };
            gpu.launch(&kernels.add_common, Self::a_block_each(slopes.len()), arguments)?;
        }
        Ok(())
    }

    // Take modes out on a device
    /// Replaces the modes that stars do not measure by noise in C_mm; of the columns that are here.
    pub(super) fn replace_modes_on_device<T: Real>(
        &self,
        gpu: &Gpu,
        here: &HostColumns,
        matrix: &Buffer<T>,
        sum: &dyn Fn(&Buffer<f64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (width, kernels) = (here.slopes.len(), NoiseKernels::<T>::load(gpu, &[])?);
        let (slopes, height) = (here.there.view(..), matrix.len() / width);
        for Mode { first, shape } in self.system.removed_modes().iter() {
            let (columns, part) = here.part((*first, shape));
            let own = *first..first + shape.len();
            let (mode, part) = (gpu.upload(shape)?, gpu.upload(&part)?);
            let behind = width - columns.end;
            // Multiply a matrix by a mode
            let products = gpu.zeros::<f64>(height)?;
            let arguments = RowProducts {
                rows: matrix.view(..),
                here: part.view(..),
                width,
                first: columns.start,
                count: columns.len(),
                products: products.view(..),
            };
            gpu.launch(&kernels.row_products, Self::a_block_each(own.end), arguments)?;
            if behind > 0 {
                let arguments = ColumnProducts {
                    matrix: matrix.view(..),
                    mode: mode.view(..),
                    slopes,
                    width,
                    start: columns.end,
                    first: own.start,
                    count: own.len(),
                    products: products.view(..),
                };
                let shape = Shape::over(behind, 256, [1, 1]);
                gpu.launch(&kernels.column_products, shape, arguments)?;
            }
            sum(&products)?;
            // Take the mode's own variance
            let mut b = products.read()?;
            let variance: f64 = b[own.clone()].iter().zip(shape).map(|(g, z)| g * z).sum();
            b[own.clone()].iter_mut().zip(shape).for_each(|(g, z)| *g -= variance * z);
            // Replace a mode in a matrix
            let b = gpu.upload(&b)?;
            let arguments = ReplaceMode {
                matrix: matrix.view(..),
                mode: mode.view(..),
                here: part.view(..),
                b: b.view(..),
                slopes,
                width,
                first: own.start,
                start: columns.start,
                end: columns.end,
            };
            gpu.launch(&kernels.replace_mode, Self::a_block_each(own.end), arguments)?;
        }
        Ok(())
    }

    // Block of threads for each row
    /// A block of threads for each of some rows.
    fn a_block_each(rows: usize) -> Shape {
        Shape { grid: [rows, 1, 1], block: 256, shared: 0 }
    }

    // Take modes out of rows on a device
    /// Takes the modes that stars do not measure out of rows of C_tm; of the columns that are here.
    pub(super) fn remove_modes_on_device<T: Real>(
        &self,
        gpu: &Gpu,
        here: &HostColumns,
        rows: &Buffer<T>,
        sum: &dyn Fn(&Buffer<f64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (width, kernels) = (here.slopes.len(), NoiseKernels::<T>::load(gpu, &[])?);
        let (height, rows) = (rows.len() / width, rows.view(..));
        for Mode { first, shape } in self.system.removed_modes().iter() {
            let (columns, part) = here.part((*first, shape));
            let (part, shares) = (gpu.upload(&part)?, gpu.zeros::<f64>(height)?);
            let (first, count) = (columns.start, columns.len());
            let (here, products) = (part.view(..), shares.view(..));
            let arguments = RowProducts { rows, here, width, first, count, products };
            gpu.launch(&kernels.row_products, Self::a_block_each(height), arguments)?;
            sum(&shares)?;
            let shares = shares.view(..);
            let arguments = TakeOutMode { rows, shares, here, width, first, count };
            gpu.launch(&kernels.take_out_mode, Self::a_block_each(height), arguments)?;
        }
        Ok(())
    }
}

// Columns that are here
/// The slopes whose columns a device has.
pub(super) struct HostColumns {
    pub(super) slopes: Vec<usize>,
    pub(super) there: Buffer<i32>,
}

impl HostColumns {
    pub(super) fn of(gpu: &Gpu, deal: &BlockCyclic) -> Result<Self, Error> {
        let slopes: Vec<usize> = deal.tiles().flatten().collect();
        let there = slopes.iter().map(|&k| k as i32).collect::<Vec<i32>>();
        Ok(Self { slopes, there: gpu.upload(&there)? })
    }

    /// The columns here of some slopes that follow each other.
    pub(super) fn columns(&self, slopes: &Range<usize>) -> Range<usize> {
        let before = |end: usize| self.slopes.partition_point(|&slope| slope < end);
        before(slopes.start)..before(slopes.end)
    }

    /// The columns here of a mode's slopes, and what the mode is there.
    fn part(&self, (first, shape): (usize, &[f64])) -> (Range<usize>, Vec<f64>) {
        let columns = self.columns(&(first..first + shape.len()));
        let part = self.slopes[columns.clone()].iter().map(|slope| shape[slope - first]).collect();
        (columns, part)
    }
}

// Readers and constants of device matrices
/// How rows come to the host from a device, and how errors of all targets do.
type ReadRows<'r, T> = dyn Fn(BufferView<T>) -> Result<Array2<f64>, Error> + 'r;
type ReadErrors<'r, T> = dyn Fn(&Buffer<T>) -> Result<Array3<f64>, Error> + 'r;

/// Ridge on the variances of the truth in a bordered matrix, over the unit.
pub(super) const RIDGE: f64 = 1.0;

/// The kernels for noise, and for modes.
const NOISE: KernelSource = KernelSource {
    name: "noise.cu",
    text: include_str!("../../../kernels/tomography/noise.cu"),
    headers: &[REAL],
};

// Kernels of noise and modes
kernels! {
    /// Kernels of noise and modes in covariances of slopes.
    struct NoiseKernels in NOISE {
        /// Adds the noise of slopes.
        add_noise: AddNoise<T> {
            matrix: [T], slopes: [i32], variances: [T], partners: [i32], covariances: [T], count: usize,
        }
        /// Adds a variance that some slopes have in common.
        add_common: AddCommon<T> {
            matrix: [T], width: usize, row: usize, first: usize, count: usize, variance: f64,
        }
        /// Products of rows with a mode.
        row_products: RowProducts<T> {
            rows: [T], here: [f64], width: usize, first: usize, count: usize, products: [f64],
        }
        /// Products of columns with a mode.
        column_products: ColumnProducts<T> {
            matrix: [T], mode: [f64], slopes: [i32], width: usize, start: usize, first: usize, count: usize,
            products: [f64],
        }
        /// Replaces a mode by noise.
        replace_mode: ReplaceMode<T> {
            matrix: [T], mode: [f64], here: [f64], b: [f64], slopes: [i32], width: usize, first: usize,
            start: usize, end: usize,
        }
        /// Takes a mode out of rows.
        take_out_mode: TakeOutMode<T> {
            rows: [T], shares: [f64], here: [f64], width: usize, first: usize, count: usize,
        }
    }
}

// A matrix taken apart on a device
/// C_mm taken apart by either method.
pub(super) enum FactorisedCovarianceGpu<T> {
    Cholesky(CholeskyGpu<T>),
    Eigen(EigenGpu<T>),
}

impl<T: Real> FactorisedCovarianceGpu<T> {
    /// Rows of C_tm divided by half of the matrix.
    fn halve(&self, rows: Buffer<T>) -> Result<Buffer<T>, Error> {
        match self {
            Self::Cholesky(factor) => factor.halve(&rows).map(|()| rows),
            Self::Eigen(eigen) => eigen.project(&rows),
        }
    }
}

impl ReconstructorPlan {
    /// C_mm with its noise, over the unit, made and taken apart.
    pub(super) fn taken_apart<T: Real>(
        &self,
        to: (&Gpu, f64, &BlockCyclic),
        here: &HostColumns,
        watch: &dyn Watch,
    ) -> Result<FactorisedCovarianceGpu<T>, Error> {
        let (gpu, n) = (to.0, self.measurements);
        let stars = (&self.system.sensors()[..], &self.system.valid_lenslets()[..]);
        let matrix = self.filled::<T>(to, here, stars, watch)?;
        gpu.synchronise()?;
        watch.stage(FACTOR, "");
        self.replace_modes_on_device(gpu, here, &matrix, &|_| Ok(()))?;
        Ok(if self.method == Inversion::Eigen {
            let filter = self.filter_above(T::epsilon().in_double());
            FactorisedCovarianceGpu::Eigen(EigenGpu::new(gpu, matrix, n, filter)?)
        } else {
            let factor = CholeskyGpu::new(gpu, matrix, n)?;
            FactorisedCovarianceGpu::Cholesky(factor.map_err(|error| self.blame(error))?)
        })
    }
}

// Invert on one device
impl ReconstructorPlan {
    // Invert where the matrices are
    /// Inverts in the precision T, in a unit of the size of C_tt.
    fn inverted<T: Real>(
        &self,
        truth: &Array2<f64>,
        gpu: &Gpu,
        watch: &dyn Watch,
    ) -> Result<Inverted, Error> {
        let (n, unit) = (self.measurements, unit(truth));
        let [matrix, rows] =
            self.made::<T>((gpu, &BlockCyclic::whole(n)), unit, &|_| Ok(()), watch)?;
        let kept = self.kept_on_device([&matrix, &rows], &|rows| read_rows(rows, n, unit))?;
        let read = |products: &Buffer<T>| self.read_errors(products, unit);
        let (errors, spectrum) = if self.method == Inversion::Eigen {
            // Invert by eigenvectors on a device
            let eigen = EigenGpu::new(gpu, matrix, n, self.filter_above(T::epsilon().in_double()))?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            let half = eigen.project(&rows)?;
            let errors = self.errors_on_device((gpu, truth), &[[&half; 2]], &read, watch)?;
            check(watch)?;
            if !self.options.errors_only {
                eigen.expand(self.requested_on_device(&half), self.requested_on_device(&rows))?;
            }
            let (values, kept) = eigen.spectrum();
            (errors, Some((values.iter().map(|value| unit * value).collect(), kept)))
        } else {
            // Invert by the factor on a device
            let factor = CholeskyGpu::new(gpu, matrix, n)?.map_err(|error| self.blame(error))?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            factor.halve(&rows)?;
            let errors = self.errors_on_device((gpu, truth), &[[&rows; 2]], &read, watch)?;
            check(watch)?;
            if !self.options.errors_only {
                factor.finish(self.requested_on_device(&rows))?;
            }
            (errors, None)
        };
        if self.options.errors_only {
            return Ok((None, errors, spectrum, kept));
        }
        watch.stage(ERROR, "");
        check(watch)?;
        Ok((Some(read_rows(self.requested_on_device(&rows), n, 1.0)?), errors, spectrum, kept))
    }

    // Take away on a device what is explained
    /// The errors of all targets: C_tt less products of rows, those of a later truth above those of the present one, which `read` brings
    /// to the host; the mean over pairs of factors.
    pub(super) fn errors_on_device<T: Real>(
        &self,
        (gpu, truth): (&Gpu, &Array2<f64>),
        pairs: &[[&Buffer<T>; 2]],
        read: &ReadErrors<T>,
        watch: &dyn Watch,
    ) -> Result<Errors, Error> {
        if self.options.errors_only {
            gpu.synchronise()?;
            watch.stage(ERROR, "");
        }
        check(watch)?;
        let [later, present] = [0, 1];
        // Subtract products from the truth
        let of = |products: &[(usize, usize, f64)]| {
            let mut errors = read(&self.products_on_device(gpu, pairs, products)?)?;
            for error in errors.outer_iter_mut() {
                Zip::from(error).and(truth).par_for_each(|error, &truth| *error += truth);
            }
            Ok::<_, Error>(errors)
        };
        let with = of(&[(later, later, -1.0)])?;
        if !self.is_delayed() {
            return Ok((with, None));
        }
        let without =
            of(&[(later, present, -1.0), (present, later, -1.0), (present, present, 1.0)])?;
        Ok(self.choose(with, without))
    }

    // Rows that are asked for on a device
    /// The part of all rows that belongs to the requested reconstructor.
    pub(super) fn requested_on_device<'a, T: Real>(
        &self,
        rows: &'a Buffer<T>,
    ) -> BufferView<'a, T> {
        let size = rows.len() / self.sets();
        let is_below = self.is_delayed() && !self.options.predict;
        rows.view(..).from(if is_below { size } else { 0 }).first(size)
    }

    /// Sums of products for the errors of all targets, over `unit`, from a device.
    pub(super) fn read_errors<T: Real>(
        &self,
        products: &Buffer<T>,
        unit: f64,
    ) -> Result<Array3<f64>, Error> {
        let (targets, m) = (self.system.targets().len(), self.truth_slopes);
        let all = read_rows(products.view(..), m, unit)?.into_shape_with_order((targets, m, m));
        Ok(all.unwrap_or_else(|_| unreachable!("rows of all targets")))
    }

    // Add products of rows on a device
    /// Products of the rows of each target and others, each by the number of the set of rows and a sign.
    pub(super) fn products_on_device<T: Real>(
        &self,
        gpu: &Gpu,
        pairs: &[[&Buffer<T>; 2]],
        products: &[(usize, usize, f64)],
    ) -> Result<Buffer<T>, Error> {
        let (targets, m) = (self.system.targets().len(), self.truth_slopes);
        let inner = pairs[0][0].len() / (self.sets() * targets * m);
        let sums = gpu.zeros::<T>(targets * m * m)?;
        for t in 0..targets {
            let sum = sums.view(t * m * m..(t + 1) * m * m);
            for (&(a, b, sign), pair) in
                products.iter().flat_map(|it| pairs.iter().map(move |p| (it, p)))
            {
                let rows = |k: usize, set: usize| {
                    pair[k].view(..).from((set * targets + t) * m * inner).first(m * inner)
                };
                let factors = [(rows(0, a), false), (rows(1, b), true)];
                let scales = [T::of(sign / pairs.len() as f64), T::one()];
                gpu.multiply_matrices(factors, [m, inner, m], sum, scales)?;
            }
        }
        Ok(sums)
    }

    // Errors of one target after the other
    // Errors one by one in either precision
    /// Hands C_ee of one target after the other, (m, m), rad², to `sink` with the target's number; the first device of an engine has rows
    /// of one of them at a time.
    pub(super) fn each_error_on_device(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
        sink: &mut ErrorSink,
    ) -> Result<(), Error> {
        let gpu = &engine.devices()[0];
        match engine.precision() {
            Precision::F64 => self.each_error_of::<f64>(gpu, watch, sink),
            Precision::F32 => self.each_error_of::<f32>(gpu, watch, sink),
        }
    }

    fn each_error_of<T: Real>(
        &self,
        gpu: &Gpu,
        watch: &dyn Watch,
        sink: &mut ErrorSink,
    ) -> Result<(), Error> {
        let truth = truth_covariance(&self.system, watch)?;
        let (unit, deal) = (unit(&truth), BlockCyclic::whole(self.measurements));
        let (to, here) = ((gpu, unit, &deal), HostColumns::of(gpu, &deal)?);
        let apart = self.taken_apart::<T>(to, &here, watch)?;
        for t in 0..self.targets() {
            check(watch)?;
            let (number, count) = (t, self.targets());
            let watch = &StageParts { whole: watch, what: "target", number, count };
            let one = self.for_target(t)?;
            let rows = one.rows_on_device::<T>(to, watch)?;
            one.remove_modes_on_device(gpu, &here, &rows, &|_| Ok(()))?;
            watch.stage(RECONSTRUCTOR, "");
            let half = apart.halve(rows)?;
            let read = |products: &Buffer<T>| one.read_errors(products, unit);
            let (errors, _) = one.errors_on_device((gpu, &truth), &[[&half; 2]], &read, watch)?;
            sink(t, errors.index_axis(Axis(0), 0))?;
        }
        Ok(())
    }
}

// Tests of the reconstructor on a device
#[cfg(test)]
mod tests {
    use crate::device::engine::Engine;
    use crate::device::gpu::test_backends;
    use crate::estimation::inversion::Inversion;
    use crate::model::removed_modes::{Focus, TipTilt};
    use crate::model::system::SlopeModel;
    use crate::numerics::real::Precision;
    use crate::plan::Plan;
    use crate::tomography::covariance_matrix::CovarianceMatrices;
    use crate::tomography::covariance_matrix::tests::windy;
    use crate::tomography::reconstructor::{ReconstructorOptions, ReconstructorPlan};
    use crate::watch::unwatched;
    use ndarray::Axis;

    // Reconstruct as on the processor
    #[test]
    fn devices_reconstruct_as_the_processor_does() {
        // A laser star and a turned one are enough, for the emulated device is slow.
        let all = windy(2e-14);
        let (mut stars, target) = (all.guide_stars()[..2].to_vec(), all.targets()[0]);
        // What one cannot tell is taken out, and what the other cannot is uncertain.
        (stars[0].tip_tilt, stars[0].focus) = (TipTilt::Removed, Focus::Removed);
        stars[1].tip_tilt = TipTilt::unknown(1e-12).unwrap();
        let system = all.to_builder().guide_stars(stars).targets([target]).build().unwrap();
        let at = |delay: f64| ReconstructorOptions::default().delay(delay).predict(false);
        let by_points = system.to_builder().slope_model(SlopeModel::EdgeMidpoint).build().unwrap();
        let here = [(&system, 0.0), (&system, 0.01), (&by_points, 0.01)].map(|(system, delay)| {
            let plan = ReconstructorPlan::new(system, at(delay).keep(true)).unwrap();
            plan.run(&Engine::default(), &unwatched).unwrap()
        });
        let scale = here[0].truth_covariance.diag().mean().unwrap();
        for gpu in test_backends() {
            for (precision, method, (keep, delay), least, case) in [
                (Precision::F64, Inversion::Cholesky, (false, 0.0), 1e-9, 0),
                (Precision::F64, Inversion::Cholesky, (true, 0.01), 1e-9, 1),
                (Precision::F32, Inversion::Cholesky, (false, 0.0), 2e-3, 0),
                (Precision::F64, Inversion::Eigen, (false, 0.01), 1e-8, 1),
                (Precision::F64, Inversion::Cholesky, (true, 0.01), 1e-9, 2),
            ] {
                if method == Inversion::Eigen
                    && let Err(reason) = gpu.require_factors(true)
                {
                    eprintln!("skipped on {}: {reason}", gpu.name());
                    continue;
                }
                let (here, system) = (&here[case], [&system, &system, &by_points][case]);
                let options = at(delay).method(method).keep(keep);
                let plan = ReconstructorPlan::new(system, options).unwrap();
                let engine = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                let there = plan.run(&engine, &unwatched).unwrap();
                // Compare reconstructors and errors
                let [theirs, ours] = [&there, here].map(|r| r.reconstructor.as_ref().unwrap());
                let gap = theirs - ours;
                let worst = gap.iter().fold(0.0, |most: f64, gap| most.max(gap.abs()));
                assert!(worst < least, "{precision:?} {method:?} on {}: {worst:e}", gpu.name());
                let gap = (&there.error_covariance - &here.error_covariance) / scale;
                let worst = gap.iter().fold(0.0, |most: f64, gap| most.max(gap.abs()));
                assert!(worst < least, "{precision:?} {method:?} on {}: {worst:e}", gpu.name());
                let others = there.other_error_covariance.zip(here.other_error_covariance.as_ref());
                assert_eq!(others.is_some(), delay > 0.0);
                let gap = others.map_or(0.0, |(there, here)| {
                    (there - here).fold(0.0, |most: f64, gap| most.max(gap.abs()))
                });
                assert!(gap < least * scale, "{method:?} on {}: {gap:e}", gpu.name());
                assert_eq!(there.spectrum.is_some(), method == Inversion::Eigen);
                // Compare the covariances that are kept
                assert_eq!(there.covariances.is_some(), keep);
                for (there, here) in there.covariances.iter().zip(&here.covariances) {
                    let of = |c: &CovarianceMatrices| {
                        [c.measurements.clone(), c.truth_measurements.clone()]
                    };
                    for (there, here) in of(there).iter().zip(&of(here)) {
                        let worst = (there - here).fold(0.0, |most: f64, gap| most.max(gap.abs()));
                        assert!(worst < 1e-11 * scale, "{method:?} on {}: {worst:e}", gpu.name());
                    }
                }
                // Compare errors that come one by one
                let errors_only = plan.options.errors_only(true).keep(false);
                let plan = ReconstructorPlan::new(system, errors_only).unwrap();
                assert_eq!(plan.is_one_by_one(&engine), delay == 0.0);
                let mut gaps = Vec::new();
                plan.each_error(&engine, &unwatched, &mut |t, error| {
                    let gap = &error - &here.error_covariance.index_axis(Axis(0), t);
                    gaps.push(gap.fold(0.0, |most: f64, gap| most.max(gap.abs())) / scale);
                    Ok(())
                })
                .unwrap();
                assert!(
                    gaps.len() == 1 && gaps[0] < least,
                    "{precision:?} on {}: {gaps:?}",
                    gpu.name()
                );
            }
        }
    }
}
