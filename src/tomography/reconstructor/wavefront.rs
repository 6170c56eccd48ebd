// Tangled from book/src/wavefront-reconstructor.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor of wavefronts at the points of a grid, with its error at each point.

mod gpu;

// Imports of the wavefront reconstructor
use super::{
    ERROR, FACTOR, Inversion, RECONSTRUCTOR, ReconstructedQuantity, Reconstruction,
    ReconstructorOptions, ReconstructorPlan,
};
use crate::device::{CostKind, engine::Engine};
use crate::error::{Error, Invalid, accept};
use crate::estimation::inversion::MatrixRates;
use crate::linear::{Cholesky, Eigen};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::source::Source;
use crate::model::system::System;
use crate::plan::{Memory, Stage};
use crate::tomography::covariance_matrix::{
    LENSLETS, MEASUREMENTS, measurements_with_noise, take_out,
};
use crate::tomography::error::WavefrontError;
use crate::tomography::point_errors::{Before, Lit, Prior};
use crate::turbulence::plan::{
    NO_WAVEFRONT, PIECES, WAVEFRONT, WavefrontCovariancePlan, dense_wavefront_slope,
    wavefront_problem, wavefront_work,
};
use crate::turbulence::wavefront::{WavefrontSlope, lattice_entry};
use crate::watch::{Watch, check};
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

// Reconstruct the wavefronts of all targets
impl ReconstructorPlan {
    /// R of Eq. [wavefront reconstructor](https://lenslet.github.io/lenslet/wavefront-reconstructor.html#eq-wavefront-reconstructor) for all targets, with its errors.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub(super) fn reconstruct_wavefronts(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Reconstruction, Error> {
        let lit = Lit::new(&self.system, self.system.wavefront_grid()?)?;
        // Solve by iterations or by a factor
        let (rows, explained, spectrum) = match (self.method, engine.devices()) {
            (Inversion::Iterative, _) => {
                let (rows, explained) = self.iterate_wavefronts(&lit, engine, watch)?;
                (rows, explained, None)
            }
            (_, []) => self.wavefronts_on_host(&lit, engine, watch)?,
            (_, [gpu, ..]) => self.wavefronts_on_device(&lit, (gpu, engine), watch)?,
        };
        watch.stage(ERROR, "");
        check(watch)?;
        let point_errors = self.errors_after(&lit, &explained)?;
        // Arrange the rows by targets
        let [targets, points, n] = self.shape();
        let rows = rows.into_shape_with_order((targets, points, n));
        let rows = rows.unwrap_or_else(|_| unreachable!("M² rows of each target"));
        Ok(Reconstruction {
            to: ReconstructedQuantity::Wavefront,
            reconstructor: Some(rows),
            point_errors,
            spectrum,
            ..Reconstruction::elsewhere()
        })
    }

    // Rows of wavefronts and slopes
    /// C_ws of all targets, (T M², n), m rad, without the modes that are removed from slopes.
    fn wavefront_rows(&self, engine: &Engine, watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let mut rows = match self.lattice_of_wavefronts() {
            Some(plan) => self.rows_of_lattice(&plan.compute(engine, watch)?),
            None => {
                watch.stage(WAVEFRONT, PIECES);
                dense_wavefront_slope(&self.system, watch)?
            }
        };
        take_out(&mut rows, &self.system.removed_modes());
        Ok(rows)
    }

    // Lattice that all wavefronts and stars share
    /// The plan of a lattice with the covariances of all wavefronts and slopes, if there is one for all layers.
    fn lattice_of_wavefronts(&self) -> Option<WavefrontCovariancePlan> {
        let problem = wavefront_problem(&self.system).ok();
        problem.filter(|problem| !problem.is_layered()).map(WavefrontCovariancePlan::direct)
    }

    // Rows from a lattice
    /// C_ws of all targets, (T M², n), m rad, from the lattice of its covariances.
    fn rows_of_lattice(&self, covariance: &WavefrontSlope) -> Array2<f64> {
        let (order, lattice) =
            (SlopeOrder::new(&self.system.valid_lenslets()), covariance.lattices()[0].view());
        let grid = self.system.phase().map_or((1, 1), |grid| (grid.points, grid.oversampling));
        let ([targets, points, n], stars) = (self.shape(), self.system.guide_stars().len());
        let mut rows = Array2::zeros((targets * points, n));
        rows.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(k, mut row)| {
            let (t, point) = (k / points, [k % points / grid.0, k % grid.0]);
            for q in 0..stars {
                for (l, &lenslet) in order.lenslets(q).iter().enumerate() {
                    let [x, y] = lattice_entry(lattice, grid, (t, q), point, lenslet);
                    (row[order.index(q, 0, l)], row[order.index(q, 1, l)]) = (x, y);
                }
            }
        });
        rows
    }
}

// Solve for the rows of each target
// Types of solved wavefronts
/// Rows of the reconstructor, what the measurements explain of each wavefront, and the spectrum with the number of values kept.
type SolvedWavefronts = (Array2<f64>, Vec<ExplainedWavefront>, Option<(Vec<f64>, usize)>);

impl ReconstructorPlan {
    /// Replaces C_ws of each target, (M², n), by the solution that `solve` gives, and collects what it explains.
    fn solve_each_target(
        &self,
        rows: &mut Array2<f64>,
        watch: &dyn Watch,
        solve: &dyn Fn(Array2<f64>) -> Result<(Array2<f64>, ExplainedWavefront), Error>,
    ) -> Result<Vec<ExplainedWavefront>, Error> {
        watch.stage(RECONSTRUCTOR, "targets");
        let (points, count) = (self.unknowns(), self.targets());
        let mut all = Vec::with_capacity(count);
        for (t, mut own) in rows.axis_chunks_iter_mut(Axis(0), points).enumerate() {
            // Replace the rows of a target
            check(watch)?;
            let (solution, explained) = solve(own.to_owned())?;
            own.assign(&solution);
            all.push(explained);
            watch.progress(t + 1, count);
        }
        Ok(all)
    }

    // Solve for wavefronts by a factor on the host
    fn wavefronts_on_host(
        &self,
        lit: &Lit,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<SolvedWavefronts, Error> {
        let mut rows = self.wavefront_rows(engine, watch)?;
        let factorised = self.factorised_on_host(engine, watch)?;
        let explained = self.solve_each_target(&mut rows, watch, &|own| {
            let half = factorised.halve(own);
            let explained = ExplainedWavefront::of(lit, [half.view(), half.view()]);
            Ok((factorised.finish(half), explained))
        })?;
        Ok((rows, explained, factorised.spectrum()))
    }

    // Solve for wavefronts by iterations
    fn iterate_wavefronts(
        &self,
        lit: &Lit,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<(Array2<f64>, Vec<ExplainedWavefront>), Error> {
        let (mut rows, [x, left]) =
            self.solve_iteratively((engine, watch), || self.wavefront_rows(engine, watch))?;
        rows += &left;
        drop(left);
        let points = self.unknowns();
        let own = |all: &'_ Array2<f64>, t: usize| {
            all.slice(s![t * points..(t + 1) * points, ..]).to_owned()
        };
        let of_target = |t: usize| {
            let both = [own(&rows, t), own(&x, t)];
            ExplainedWavefront::of(lit, both.each_ref().map(|rows| rows.view()))
        };
        let explained = (0..self.targets()).map(of_target).collect();
        Ok((x, explained))
    }
}

// Explained part of a wavefront
/// Part of a wavefront's variance that the measurements explain, without piston.
struct ExplainedWavefront {
    /// Explained variance at each point, (M²), m².
    variance: Array1<f64>,
    /// Explained covariance of each point with each tilt, (M²), m².
    with_tilts: Vec<Array1<f64>>,
}

// Explained variances at the points
impl ExplainedWavefront {
    /// The diagonal of A Bᵗ without piston, and its covariances with the tilts, for A and B of shape (M², n).
    fn of(lit: &Lit, [a, b]: [ArrayView2<f64>; 2]) -> Self {
        let means = [a, b].map(|rows| lit.area.dot(&rows));
        let tilts = |rows: ArrayView2<f64>| -> Vec<Array1<f64>> {
            lit.modes[1..].iter().map(|mode| (&lit.area * mode).dot(&rows)).collect()
        };
        let [of_a, of_b] = [tilts(a), tilts(b)];
        let point = |p: usize| {
            let (u, v) = (&a.row(p) - &means[0], &b.row(p) - &means[1]);
            let pairs = of_a.iter().zip(&of_b);
            let with_tilts = pairs.map(|(of_a, of_b)| 0.5 * (u.dot(of_b) + v.dot(of_a)));
            (u.dot(&v), with_tilts.collect::<Vec<f64>>())
        };
        let all: Vec<(f64, Vec<f64>)> = (0..a.nrows()).into_par_iter().map(point).collect();
        let variance = all.iter().map(|(variance, _)| *variance).collect();
        let with_tilt = |k: usize| all.iter().map(|(_, with_tilts)| with_tilts[k]).collect();
        Self { variance, with_tilts: (0..of_a.len()).map(with_tilt).collect() }
    }
}

// Errors after what is explained
impl ReconstructorPlan {
    /// The error of each target's wavefront: its prior variances less what is explained.
    fn errors_after(
        &self,
        lit: &Lit,
        explained: &[ExplainedWavefront],
    ) -> Result<Vec<WavefrontError>, Error> {
        let (system, grid) = (&self.system, self.system.wavefront_grid()?);
        let error = |(target, explained): (&Source, &ExplainedWavefront)| {
            let before = Before::new(&Prior::new(system, grid, target), lit);
            before.error_after(lit, &explained.variance, &explained.with_tilts)
        };
        Ok(system.targets().iter().zip(explained).map(error).collect())
    }
}

// Factorised covariance of measurements
/// C_mm, factorised by either method.
pub(super) enum FactorisedCovariance {
    Cholesky(Cholesky),
    /// With the number of kept eigenvectors, and the roots of their eigenvalues.
    Eigen(Eigen, usize, Array1<f64>),
}

// Solve in two halves by a factor
impl FactorisedCovariance {
    /// Rows B divided by half of the matrix: W, of which W Wᵗ is B C_mm⁻¹ Bᵗ.
    pub(super) fn halve(&self, mut rows: Array2<f64>) -> Array2<f64> {
        match self {
            Self::Cholesky(factor) => {
                factor.halve(&mut rows);
                rows
            }
            Self::Eigen(eigen, kept, roots) => eigen.project(&rows, *kept) / roots,
        }
    }

    /// B C_mm⁻¹ from the half W.
    pub(super) fn finish(&self, mut half: Array2<f64>) -> Array2<f64> {
        match self {
            Self::Cholesky(factor) => {
                factor.finish(&mut half);
                half
            }
            Self::Eigen(eigen, _, roots) => eigen.expand(&(half / roots)),
        }
    }

    // Spectrum of a factor
    /// The eigenvalues, ascending, and how many are kept, where there are eigenvectors.
    fn spectrum(&self) -> Option<(Vec<f64>, usize)> {
        match self {
            Self::Cholesky(_) => None,
            Self::Eigen(eigen, kept, _) => Some((eigen.values().to_vec(), *kept)),
        }
    }
}

// Factorise the measurements on processors
impl ReconstructorPlan {
    /// C_mm with its noise, computed and factorised on the host.
    pub(super) fn factorised_on_host(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<FactorisedCovariance, Error> {
        watch.stage(MEASUREMENTS, LENSLETS);
        let matrix = measurements_with_noise(&self.system, engine, watch)?;
        watch.stage(FACTOR, "");
        check(watch)?;
        Ok(if self.method == Inversion::Eigen {
            let eigen = Eigen::new(&matrix)?;
            let kept = eigen.kept(self.filter_above(f64::EPSILON));
            let values = eigen.values();
            let roots = values[values.len() - kept..].iter().map(|value| value.sqrt()).collect();
            FactorisedCovariance::Eigen(eigen, kept, roots)
        } else {
            FactorisedCovariance::Cholesky(
                Cholesky::new(matrix).map_err(|error| self.blame(error))?,
            )
        })
    }
}

// Options and cost of wavefronts
// Refuse options that wavefronts have not
impl ReconstructorOptions {
    /// Rejects what the reconstructor of wavefronts has no use for, and a system without a grid for them.
    pub(super) fn check_wavefront(&self, system: &System) -> Result<(), Invalid> {
        let expected = "0 with to = \"wavefront\", which is that of the measurements' time";
        accept(self.delay == 0.0, "delay", self.delay, expected)?;
        let expected = "false with to = \"wavefront\": CovariancePlan, or the command covariance --form dense, has the covariances";
        accept(!self.keep, "keep", true, expected)?;
        let expected =
            "false with to = \"wavefront\", or a PointErrorsPlan, which has the errors alone";
        accept(!self.errors_only, "errors_only", true, expected)?;
        system.expect_average(NO_WAVEFRONT)?;
        Lit::new(system, system.wavefront_grid()?).map(drop)
    }
}

// Memory and time of wavefronts
impl ReconstructorPlan {
    /// Whether wavefronts are reconstructed.
    pub(super) fn is_to_wavefront(&self) -> bool {
        self.options.to == ReconstructedQuantity::Wavefront
    }

    /// The most memory that the dense reconstructor of wavefronts has in use at a time.
    pub(super) fn memory_of_wavefronts(&self, engine: &Engine) -> Memory {
        let [targets, points, n] = self.shape().map(|k| k as u64);
        let own = points.saturating_mul(n).saturating_mul(8);
        let matrices = match (engine.devices(), self.method) {
            ([_, ..], _) => 0,
            (_, Inversion::Eigen) => 4,
            _ => 1,
        };
        let square = n.saturating_mul(n).saturating_mul(8);
        let host = square.saturating_mul(matrices).saturating_add(own.saturating_mul(3));
        let working = Memory { host, devices: self.on_devices(engine) };
        let of_lattice = self.lattice_of_wavefronts().map(|plan| plan.working(engine));
        Memory::of_stages(targets.saturating_mul(own), [&working].into_iter().chain(&of_lattice))
    }

    /// The stage that sums the prior variances of all targets over the pupil, on processors.
    pub(super) fn stage_of_point_errors(&self) -> Stage {
        let [targets, points, _] = self.shape().map(|k| k as f64);
        let sums = 3.0 * targets * points.powi(2);
        let work = [MatrixRates::of_threads().products(sums, points)];
        Stage::shared(ERROR, &work, &Engine::default())
    }

    /// The stage that computes the covariances of wavefronts with slopes: those of a lattice on an engine, others on processors.
    pub(super) fn stage_of_wavefront_rows(&self, engine: &Engine) -> Stage {
        if let Some(plan) = self.lattice_of_wavefronts() {
            return plan.stage(engine);
        }
        let alone = engine.devices().is_empty();
        let cores = if alone { engine.clone() } else { Engine::default() };
        let work = [(CostKind::Integrals, wavefront_work(&self.system))];
        Stage::new(WAVEFRONT, &work, &cores)
    }
}

// Tests of the wavefront reconstructor
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::error::count;
    use crate::estimation::estimate::tests::{blinded, mixed, slopes, streaked, system};
    use crate::estimation::{EstimateOptions, EstimatePlan};
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::numerics::real::Precision;
    use crate::plan::Plan;
    use crate::tomography::PointErrorsPlan;
    use crate::turbulence::direct::wavefront::wavefront_covariance;
    use crate::units::ARCSEC;
    use crate::watch::unwatched;
    use ndarray::Array3;

    // Reconstruct wavefronts in a test
    fn to_wavefront() -> ReconstructorOptions {
        ReconstructorOptions::default().to(ReconstructedQuantity::Wavefront)
    }

    fn run(system: &System, options: ReconstructorOptions, engine: &Engine) -> Reconstruction {
        ReconstructorPlan::new(system, options).unwrap().run(engine, &unwatched).unwrap()
    }

    fn matrix(found: &Reconstruction) -> &Array3<f64> {
        found.reconstructor.as_ref().unwrap()
    }

    fn with_grid(system: &System, grid: PhaseGrid) -> System {
        system.to_builder().phase(Some(grid)).build().unwrap()
    }

    /// Largest difference of two sets of numbers, over the largest of the second.
    fn gap<'a>(
        these: impl IntoIterator<Item = &'a f64>,
        those: impl IntoIterator<Item = &'a f64>,
    ) -> f64 {
        let pairs: Vec<(f64, f64)> =
            these.into_iter().copied().zip(those.into_iter().copied()).collect();
        let size = pairs.iter().fold(0.0, |most: f64, (_, b)| most.max(b.abs()));
        pairs.iter().fold(0.0, |most: f64, (a, b)| most.max((a - b).abs())) / size
    }

    // Lopsided systems with wavefronts
    /// A laser star whose tilt is removed and a natural star, on four lenslets across, and an odd grid of two points a lenslet.
    fn even() -> System {
        let text = "atmosphere = { r0 = 0.14, outer_scale = 22, layers = [\
               { altitude = 0, fraction = 0.5 }, { altitude = 6000, fraction = 0.2 }, { altitude = 11000, fraction = 0.3 }] }\n\
             telescope = { diameter = 2.4, obstruction = 0.2 }\n\
             lenslet_array = { lenslets = 4 }\n\
             phase = { points = 9, oversampling = 2 }\n\
             guide_star = [{ zenith = 25, azimuth = 140, height = 88e3, noise = 2e-13, tip_tilt = 'removed' },\
               { zenith = 12, azimuth = 290, noise = 1e-13 }]\n\
             target = [{ zenith = 9, azimuth = 20 }, { zenith = 4, azimuth = 250 }]\n";
        System::from_toml(text, "even.toml").unwrap()
    }

    fn lopsided() -> [System; 4] {
        let odd = blinded(&streaked(&system(["90e3", "inf"], 0.0)));
        [even(), odd, blinded(&mixed("90e3")), system(["inf", "inf"], 6.0)]
    }

    // Compare a matrix with the estimate
    #[test]
    fn reconstructor_times_slopes_is_the_estimate() {
        let engine = Engine::default();
        for system in &lopsided() {
            let options = EstimateOptions::default().tolerance(1e-11);
            let estimator = EstimatePlan::new(system, options).unwrap();
            let estimator = estimator.run(&engine, &unwatched).unwrap();
            let factor = run(system, to_wavefront(), &engine);
            let (targets, points, n) = matrix(&factor).dim();
            let mut slopes = slopes(2, n);
            let reversed: Array1<f64> = slopes.row(0).iter().rev().copied().collect();
            slopes.row_mut(1).assign(&reversed);
            let estimates = estimator.estimate(slopes.view(), false, &unwatched).unwrap();
            let rows = matrix(&factor).to_shape((targets * points, n)).unwrap();
            let products = slopes.dot(&rows.t());
            let difference = gap(&products, &estimates.wavefront);
            assert!(difference < 1e-7, "{}: {difference:e}", count(n, "slope"));
            // Another row of slopes, and another order of points, are something else.
            assert!(gap(products.row(0), estimates.wavefront.index_axis(Axis(0), 1)) > 0.1);
            let across = points.isqrt();
            let first = estimates.wavefront.slice(s![0, 0, .., ..]);
            let transposed = products.slice(s![0, ..points]).to_owned();
            let transposed = transposed.to_shape((across, across)).unwrap();
            assert!(gap(transposed.t(), first) > 0.1);
            // All methods compute one matrix
            let eigen = run(system, to_wavefront().method(Inversion::Eigen), &engine);
            let iterative = to_wavefront().method(Inversion::Iterative);
            let fine = run(system, iterative.tolerance(1e-11), &engine);
            for found in [&eigen, &fine] {
                assert!(gap(matrix(found), matrix(&factor)) < 1e-7);
                for (one, other) in found.point_errors.iter().zip(&factor.point_errors) {
                    assert!(gap(&one.variance, &other.variance) < 1e-7);
                    assert!(gap(&one.variance_without_tilt, &other.variance_without_tilt) < 1e-7);
                }
            }
            assert!(eigen.spectrum.is_some_and(|(values, kept)| values.len() == n && kept <= n));
            assert!(factor.spectrum.is_none());
            let coarse = run(system, iterative.tolerance(1e-2), &engine);
            assert!(gap(matrix(&coarse), matrix(&factor)) > 1e-4);
        }
    }

    // Compare errors of a matrix with errors at points
    #[test]
    fn errors_of_a_matrix_are_those_at_points() {
        let engine = Engine::default();
        let mut endless = system(["inf", "inf"], 0.0);
        let air = endless.atmosphere();
        let mut layers = air.layers().to_vec();
        layers.iter_mut().for_each(|layer| layer.outer_scale = f64::INFINITY);
        let air = crate::model::Atmosphere::new(air.fried_parameter(), air.wavelength(), layers);
        endless = endless.to_builder().atmosphere(air.unwrap()).build().unwrap();
        // Errors at single points interpolate the layers of laser stars, and matrices do not.
        let natural = blinded(&streaked(&system(["inf", "inf"], 0.0)));
        let disc = ARCSEC * 6.0;
        for (system, disc, bound) in [
            (&natural, 0.0, 1e-6),
            (&endless, 0.0, 1e-6),
            (&natural, disc, 1e-6),
            (&even(), 0.0, 0.03),
        ] {
            let system = with_grid(system, PhaseGrid::new(5, 2, disc).unwrap());
            let found = run(&system, to_wavefront(), &engine).point_errors;
            let options = to_wavefront().errors_only(true).tolerance(1e-9);
            let plan = PointErrorsPlan::new(&system, options).unwrap();
            let expected = plan.run(&engine, &unwatched).unwrap().errors;
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                let difference = gap(&found.variance, &expected.variance);
                assert!(difference < bound, "{difference:e} {bound:e}");
                let pair = [found, expected].map(|error| &error.variance_without_tilt);
                assert!(gap(pair[0], pair[1]) < bound);
                assert!((found.rms / expected.rms - 1.0).abs() < bound);
                assert!((found.rms_without_tilt / expected.rms_without_tilt - 1.0).abs() < bound);
                assert!(found.rms > 1.01 * found.rms_without_tilt);
            }
            assert!((found[0].rms / found[1].rms - 1.0).abs() > 1e-3);
        }
    }

    // Compare rows of a lattice with dense ones
    #[test]
    fn rows_of_a_lattice_are_dense_rows() {
        let natural = streaked(&system(["inf", "inf"], 6.0));
        let plan = ReconstructorPlan::new(&natural, to_wavefront()).unwrap();
        let lattice = plan.lattice_of_wavefronts().unwrap();
        let lattice = lattice.compute(&Engine::default(), &unwatched).unwrap();
        let dense = dense_wavefront_slope(&natural, &unwatched).unwrap();
        let rows = plan.rows_of_lattice(&lattice);
        assert_eq!(rows.dim(), dense.dim());
        assert!(gap(&rows, &dense) < 1e-9);
        let laser = ReconstructorPlan::new(&even(), to_wavefront()).unwrap();
        assert!(laser.lattice_of_wavefronts().is_none());
    }

    // Compare the prior of a disc with covariances
    #[test]
    fn prior_of_a_disc_is_that_of_its_covariance() {
        let system = system(["inf", "inf"], 8.0);
        let (grid, m) = (system.wavefront_grid().unwrap(), 12);
        let covariance = wavefront_covariance(&wavefront_problem(&system).unwrap()).unwrap();
        let at = |j: usize, i: usize| covariance[[1, 1, m - 1 + j, m - 1 + i]];
        let lit = Lit::new(&system, grid).unwrap();
        let prior = Before::new(&Prior::new(&system, grid, &system.targets()[1]), &lit);
        let nothing = prior.error_after(&lit, &Array1::zeros(m * m), &[]);
        // The variance of each point without the mean over the pupil, term by term.
        let between = |p: usize, q: usize| at((p / m).abs_diff(q / m), (p % m).abs_diff(q % m));
        let mean = |p: usize| (0..m * m).map(|q| lit.area[q] * between(p, q)).sum::<f64>();
        let of_mean: f64 = (0..m * m).map(|p| lit.area[p] * mean(p)).sum();
        let expected =
            Array2::from_shape_fn((m, m), |(j, i)| at(0, 0) - 2.0 * mean(j * m + i) + of_mean);
        assert!(gap(&nothing.variance, &expected) < 1e-9);
        let point = with_grid(&system, PhaseGrid::new(m, 2, 0.0).unwrap());
        let prior = Prior::new(&point, point.wavefront_grid().unwrap(), &system.targets()[1]);
        let other = Before::new(&prior, &lit).error_after(&lit, &Array1::zeros(m * m), &[]);
        assert!(gap(&other.variance, &expected) > 1e-3);
    }

    // Reconstruct wavefronts on devices
    #[test]
    fn devices_reconstruct_wavefronts_as_processors_do() {
        // The emulated device is slow: a few points are enough.
        let small = with_grid(&even(), PhaseGrid::new(3, 1, 0.0).unwrap());
        let here = run(&small, to_wavefront(), &Engine::default());
        for gpu in test_backends() {
            for (precision, method, bounds) in [
                (Precision::F64, Inversion::Cholesky, [1e-9, 1e-9]),
                (Precision::F32, Inversion::Cholesky, [2e-3, 1e-2]),
                (Precision::F64, Inversion::Eigen, [1e-8, 1e-8]),
                (Precision::F64, Inversion::Iterative, [1e-6, 1e-9]),
                (Precision::F32, Inversion::Iterative, [2e-2, 1e-2]),
            ] {
                if method == Inversion::Eigen
                    && let Err(reason) = gpu.require_factors(true)
                {
                    eprintln!("skipped on {}: {reason}", gpu.name());
                    continue;
                }
                let tolerance = if precision == Precision::F32 { 1e-4 } else { 1e-9 };
                let options = to_wavefront().method(method).tolerance(tolerance);
                let engine = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                let there = run(&small, options, &engine);
                let mut gaps = [gap(matrix(&there), matrix(&here)), 0.0];
                for (there, here) in there.point_errors.iter().zip(&here.point_errors) {
                    gaps[1] = gaps[1].max(gap(&there.variance, &here.variance));
                }
                eprintln!("{precision:?} {method:?} on {}: {gaps:?}", gpu.name());
                let good = gaps[0] < bounds[0] && gaps[1] < bounds[1];
                assert!(good, "{precision:?} {method:?} on {}: {gaps:?}", gpu.name());
                assert_eq!(there.spectrum.is_some(), method == Inversion::Eigen);
            }
        }
    }

    // Refuse wavefronts that cannot be reconstructed
    #[test]
    fn wavefronts_that_cannot_be_reconstructed_are_refused() {
        let good = even();
        let refused = |system: &System, options| {
            ReconstructorPlan::new(system, options).unwrap_err().to_string()
        };
        let no_grid = good.to_builder().phase(None).build().unwrap();
        let words = refused(&no_grid, to_wavefront());
        assert!(words.starts_with("phase = none: expected a table [phase]"), "{words}");
        let points = no_grid.to_builder().slope_model(crate::model::SlopeModel::EdgeMidpoint);
        let words = refused(&points.build().unwrap(), to_wavefront());
        assert!(words.starts_with("covariance.slope_model"), "{words}");
        let hidden = with_grid(&good, PhaseGrid::new(1, 1, 0.0).unwrap());
        let words = refused(&hidden, to_wavefront());
        assert!(words.starts_with("phase.points = 1: expected a grid with a point"), "{words}");
        for (options, words) in [
            (to_wavefront().delay(1e-3), "delay = 0.001: expected 0 with to = \"wavefront\""),
            (to_wavefront().keep(true), "keep = true: expected false with to = \"wavefront\""),
            (to_wavefront().errors_only(true), "errors_only = true: expected false with to"),
            (
                to_wavefront().to(ReconstructedQuantity::Actuators),
                "to = \"actuators\": expected slopes or wavefront",
            ),
        ] {
            let found = refused(&good, options);
            assert!(found.starts_with(words), "{found}");
        }
        let plan = ReconstructorPlan::new(&good, to_wavefront()).unwrap();
        let each = plan.each_error(&Engine::default(), &unwatched, &mut |_, _| Ok(()));
        assert!(each.unwrap_err().to_string().starts_with("to = \"wavefront\": expected slopes"));
        // Describe what is reconstructed
        let info = plan.describe(&Engine::default()).unwrap();
        let arrays = run(&good, to_wavefront(), &Engine::default());
        let errors = arrays.wavefront_errors(&good).unwrap();
        let data = arrays.to_data_set(&good, &errors);
        for array in &info.arrays {
            assert!(data.shapes().contains(array), "{array:?} {:?}", data.shapes());
        }
        assert!(info.what.contains("9 × 9 wavefront points of 2 targets"), "{}", info.what);
        assert_eq!(info.arrays.len(), 3);
        let stages: Vec<&str> = info.stages.iter().map(|stage| stage.name).collect();
        assert_eq!(stages, [WAVEFRONT, MEASUREMENTS, FACTOR, RECONSTRUCTOR, ERROR]);
    }
}
