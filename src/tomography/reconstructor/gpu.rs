// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors on a graphics processor.

// What the reconstructor on a device stands on
use super::{ERROR, Errors, FACTOR, Inversion, Inverted, RECONSTRUCTOR, ReconstructorPlan};
use crate::device::collective::Deal;
use crate::device::gpu::{Argument, Buffer, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::device::{Watch, check, engine::Engine};
use crate::error::Error;
use crate::linear::factorisation::gpu::{
    CholeskyGpu, EIGENVECTORS, EigenGpu, WORKING, read_rows, upload_rows,
};
use crate::linear::factorisation::unit;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::system::SlopeModel;
use crate::model::unmeasured::Mode;
use crate::numerics::real::{Precision, Real};
use crate::tomography::covariance_matrix::{MEASUREMENTS, TRUTH, truth_sensors, truth_valid};
use crate::turbulence::{dense, midpoint};
use ndarray::{Array2, Array3};

// Memory and precision of a device
impl ReconstructorPlan {
    /// Bytes that the plan takes on each device of an engine: the first one takes the matrices apart, or all of them do.
    pub(super) fn on_devices(&self, engine: &Engine) -> Vec<u64> {
        let (air, sensors) = (self.system.atmosphere(), self.system.sensors());
        let covariances = match self.system.slope_model() {
            SlopeModel::Average => dense::gpu::bytes(engine.precision(), air, &sensors),
            SlopeModel::EdgeMidpoint => midpoint::gpu::bytes(air, &sensors),
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
            [self.measurements, self.truth_slopes, self.system.targets().len()].map(|k| k as u64);
        let targets = if self.is_delayed() { 2 * targets } else { targets };
        let (rows, blocks) = match self.method {
            Inversion::Eigen => (2 * targets * m, EIGENVECTORS),
            _ => (targets * m, 1.0),
        };
        let numbers = n.saturating_mul(rows).saturating_add(2 * m * m) as f64;
        let bytes = match precision {
            Precision::F64 => 8.0,
            Precision::F32 => 4.0,
        };
        (bytes * (numbers + blocks * (n as f64).powi(2))) as u64 + WORKING
    }

    // Choose the precision of a device
    /// As on processors, by the first device of an engine, in its precision: from C_tt, and C_mm and C_tm where
    /// they are given; else they are made there.
    pub(super) fn invert_there(
        &self,
        truth: &Array2<f64>,
        given: Option<[Array2<f64>; 2]>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Inverted, Error> {
        let gpu = &engine.devices()[0];
        match engine.precision() {
            Precision::F64 => self.inverted::<f64>(truth, given, gpu, watch),
            Precision::F32 => self.inverted::<f32>(truth, given, gpu, watch),
        }
    }
}

// Covariances that never leave the device
impl ReconstructorPlan {
    /// The columns of a deal of C_mm with its noise, and of C_tm, over `unit`, made on a device.
    pub(super) fn made<T: Real>(
        &self,
        (gpu, deal): (&Gpu, &Deal),
        unit: f64,
        watch: &dyn Watch,
    ) -> Result<[Buffer<T>; 2], Error> {
        let system = &self.system;
        let (air, gradient) = (system.atmosphere(), system.cone_gradient());
        let (sensors, valid) = (system.sensors(), system.valid_lenslets());
        let columns = (&sensors[..], &valid[..]);
        watch.stage(MEASUREMENTS, "");
        let to = (gpu, unit, deal);
        let matrix = match system.slope_model() {
            SlopeModel::Average => {
                dense::gpu::slopes_there::<T>(air, columns, gradient, to, watch)?
            }
            SlopeModel::EdgeMidpoint => midpoint::gpu::slopes_there(air, columns, to, watch)?,
        };
        self.add_noise_there(to, &matrix)?;
        watch.stage(TRUTH, "");
        let truths = truth_sensors(system);
        let masks = vec![truth_valid(system); truths.len()];
        let sets = [(&truths[..], &masks[..]), columns];
        let rows = match system.slope_model() {
            SlopeModel::Average => dense::gpu::between_there::<T>(air, sets, gradient, to, watch)?,
            SlopeModel::EdgeMidpoint => midpoint::gpu::between_there(air, sets, to, watch)?,
        };
        gpu.synchronise()?;
        watch.stage(FACTOR, "");
        self.remove_there(gpu, &matrix, &rows)?;
        Ok([matrix, rows])
    }

    // Add noise on a device
    /// Adds the noise of slopes to the columns of a covariance matrix that a device has.
    fn add_noise_there<T: Real>(
        &self,
        (gpu, unit, deal): (&Gpu, f64, &Deal),
        matrix: &Buffer<T>,
    ) -> Result<(), Error> {
        let order = SlopeOrder::new(&self.system.valid_lenslets());
        let noise = SlopeNoise::new(self.system.guide_stars(), &order);
        let slopes: Vec<usize> = deal.tiles().flatten().collect();
        let [variances, covariances] = [&noise.variances, &noise.covariances].map(|values| {
            gpu.upload(&slopes.iter().map(|&k| T::of(values[k] / unit)).collect::<Vec<T>>())
        });
        let numbers = |values: Vec<usize>| {
            gpu.upload(&values.into_iter().map(|k| k as i32).collect::<Vec<i32>>())
        };
        let partners = numbers(slopes.iter().map(|&k| noise.partners[k]).collect())?;
        let (variances, covariances, count) = (variances?, covariances?, slopes.len());
        let program = gpu.program::<T>(&NOISE, &[])?;
        let kernel = program.kernel("add_noise")?;
        let slopes = numbers(slopes)?;
        let arguments: [Argument; 6] = [
            matrix.into(),
            (&slopes).into(),
            (&variances).into(),
            (&partners).into(),
            (&covariances).into(),
            count.into(),
        ];
        gpu.launch(&kernel, Shape::over(count, 256, [1, 1]), &arguments)?;
        // Add what slopes have in common
        let kernel = program.kernel("add_common")?;
        for (slopes, variance) in &noise.common {
            let (count, variance) = (slopes.len(), variance / unit);
            let arguments: [Argument; 5] = [
                matrix.into(),
                order.len().into(),
                slopes.start.into(),
                count.into(),
                variance.into(),
            ];
            gpu.launch(&kernel, Shape { grid: [count, 1, 1], block: 256, shared: 0 }, &arguments)?;
        }
        Ok(())
    }

    // Take modes out on a device
    /// Replaces the modes that stars do not measure by noise in C_mm, and takes them out of C_tm.
    fn remove_there<T: Real>(
        &self,
        gpu: &Gpu,
        matrix: &Buffer<T>,
        rows: &Buffer<T>,
    ) -> Result<(), Error> {
        let (n, program) = (self.measurements, gpu.program::<T>(&NOISE, &[])?);
        let [multiply, replace, take_out] =
            ["mode_products", "replace_mode", "take_out_mode"].map(|name| program.kernel(name));
        let (multiply, replace, take_out) = (multiply?, replace?, take_out?);
        let a_block_each = |rows| Shape { grid: [rows, 1, 1], block: 256, shared: 0 };
        let products = gpu.zeros::<f64>(n)?;
        for Mode { first, shape } in self.system.removed_modes().iter() {
            let (mode, own) = (gpu.upload(shape)?, *first..first + shape.len());
            let place: [Argument; 3] = [n.into(), (*first).into(), shape.len().into()];
            let arguments = [&[matrix.into(), (&mode).into()], &place[..], &[(&products).into()]];
            gpu.launch(&multiply, Shape::over(n, 256, [1, 1]), &arguments.concat())?;
            // Take the mode's own variance
            let mut b = products.read()?;
            let variance: f64 = b[own.clone()].iter().zip(shape).map(|(g, z)| g * z).sum();
            b[own.clone()].iter_mut().zip(shape).for_each(|(g, z)| *g -= variance * z);
            let b = gpu.upload(&b)?;
            let arguments = [&[matrix.into(), (&mode).into(), (&b).into()], &place[..]];
            gpu.launch(&replace, a_block_each(own.end), &arguments.concat())?;
            let arguments = [&[rows.into(), (&mode).into()], &place[..]];
            gpu.launch(&take_out, a_block_each(rows.len() / n), &arguments.concat())?;
        }
        Ok(())
    }
}

/// The kernel that adds noise.
const NOISE: KernelSource = KernelSource {
    name: "noise.cu",
    text: include_str!("../../../kernels/tomography/noise.cu"),
    headers: &[REAL],
};

// Invert on one device
/// C_mm and C_tm of the host over `unit`, on a device.
fn sent<T: Real>(
    [measurements, truth_measurements]: [Array2<f64>; 2],
    gpu: &Gpu,
    unit: f64,
) -> Result<[Buffer<T>; 2], Error> {
    let matrix = upload_rows(gpu, &measurements, unit)?;
    drop(measurements);
    Ok([matrix, upload_rows(gpu, &truth_measurements, unit)?])
}

impl ReconstructorPlan {
    // Invert where the matrices are
    /// Inverts in the precision T, in a unit of the size of C_tt.
    fn inverted<T: Real>(
        &self,
        truth: &Array2<f64>,
        given: Option<[Array2<f64>; 2]>,
        gpu: &Gpu,
        watch: &dyn Watch,
    ) -> Result<Inverted, Error> {
        let (n, unit) = (self.measurements, unit(truth));
        let [matrix, rows] = match given {
            Some(given) => sent::<T>(given, gpu, unit)?,
            None => self.made((gpu, &Deal::whole(n)), unit, watch)?,
        };
        let truth = upload_rows::<T>(gpu, truth, unit)?;
        let (errors, spectrum) = if self.method == Inversion::Eigen {
            // Invert by eigenvectors on a device
            let eigen = EigenGpu::new(gpu, matrix, n, self.filter_above(T::epsilon().in_double()))?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            let half = eigen.project(&rows)?;
            let errors = self.errors_there(gpu, &truth, &half, unit)?;
            check(watch)?;
            if !self.options.errors_only {
                eigen.expand(&half, &rows)?;
            }
            let (values, kept) = eigen.spectrum();
            (errors, Some((values.iter().map(|value| unit * value).collect(), kept)))
        } else {
            // Invert by the cholesky factor on a device
            let factor = CholeskyGpu::new(gpu, matrix, n)?.map_err(|error| self.blame(error))?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            factor.halve(&rows)?;
            let errors = self.errors_there(gpu, &truth, &rows, unit)?;
            check(watch)?;
            if !self.options.errors_only {
                factor.finish(&rows)?;
            }
            (errors, None)
        };
        if self.options.errors_only {
            return Ok((None, errors, spectrum));
        }
        watch.stage(ERROR, "");
        check(watch)?;
        Ok((self.asked(read_rows(&rows, n, 1.0)?), errors, spectrum))
    }

    // Take away on a device what is explained
    /// The errors of all targets, from the rows of all, those of a later truth above those of the present one.
    pub(super) fn errors_there<T: Real>(
        &self,
        gpu: &Gpu,
        truth: &Buffer<T>,
        half: &Buffer<T>,
        unit: f64,
    ) -> Result<Errors, Error> {
        let (one, [later, present]) = (T::one(), [0, 1]);
        let with = self.with_products(gpu, truth, half, unit, &[(later, later, -one)])?;
        if !self.is_delayed() {
            return Ok((with, None));
        }
        let long = [(later, present, -one), (present, later, -one), (present, present, one)];
        let without = self.with_products(gpu, truth, half, unit, &long)?;
        Ok(self.choose(with, without))
    }

    // Add products of rows on a device
    /// C_tt of each target with products of its rows and others, each by the number of the set of rows and a sign.
    fn with_products<T: Real>(
        &self,
        gpu: &Gpu,
        truth: &Buffer<T>,
        half: &Buffer<T>,
        unit: f64,
        products: &[(usize, usize, T)],
    ) -> Result<Array3<f64>, Error> {
        let (targets, m) = (self.system.targets().len(), self.truth_slopes);
        let sets = if self.is_delayed() { 2 } else { 1 };
        let (inner, error) = (half.len() / (sets * targets * m), gpu.zeros::<T>(m * m)?);
        let mut errors = Array3::zeros((targets, m, m));
        for (t, mut found) in errors.outer_iter_mut().enumerate() {
            gpu.copy_within(truth, &error)?;
            let rows = |set: usize| {
                let first = (set * targets + t) * m * inner;
                half.view(first..first + m * inner)
            };
            for &(a, b, sign) in products {
                let factors = [(rows(a), false), (rows(b), true)];
                gpu.multiply_matrices(factors, [m, inner, m], &error, [sign, T::one()])?;
            }
            let there: Array2<f64> = read_rows(&error, m, unit)?;
            found.assign(&there);
        }
        Ok(errors)
    }
}

// Tests of the reconstructor on a device
#[cfg(test)]
mod tests {
    use crate::device::engine::Engine;
    use crate::device::{gpu::test_machines, silent};
    use crate::model::system::SlopeModel;
    use crate::model::unmeasured::{Focus, TipTilt};
    use crate::numerics::real::Precision;
    use crate::tomography::covariance_matrix::tests::windy;
    use crate::tomography::inversion::Inversion;
    use crate::tomography::reconstructor::{ReconstructorOptions, ReconstructorPlan};

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
        let at = |delay: f64| ReconstructorOptions::default().delay(delay);
        let by_points = system.to_builder().slope_model(SlopeModel::EdgeMidpoint).build().unwrap();
        let here = [(&system, 0.0), (&system, 0.01), (&by_points, 0.0)].map(|(system, delay)| {
            let plan = ReconstructorPlan::new(system, at(delay)).unwrap();
            plan.run(&Engine::default(), &silent).unwrap()
        });
        let scale = here[0].truth_covariance.diag().mean().unwrap();
        for gpu in test_machines() {
            for (precision, method, (keep, delay), least, case) in [
                (Precision::F64, Inversion::Cholesky, (false, 0.0), 1e-9, 0),
                (Precision::F64, Inversion::Cholesky, (true, 0.01), 1e-9, 1),
                (Precision::F32, Inversion::Cholesky, (false, 0.0), 2e-3, 0),
                (Precision::F64, Inversion::Eigen, (false, 0.01), 1e-8, 1),
                (Precision::F64, Inversion::Cholesky, (false, 0.0), 1e-9, 2),
            ] {
                let (here, system) = (&here[case], [&system, &system, &by_points][case]);
                let options = at(delay).method(method).keep(keep);
                let plan = ReconstructorPlan::new(system, options).unwrap();
                let engine = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                let there = match plan.run(&engine, &silent) {
                    Ok(there) => there,
                    Err(reason) if method == Inversion::Eigen => {
                        eprintln!("skipped on {}: {reason}", gpu.name());
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
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
            }
        }
    }
}
