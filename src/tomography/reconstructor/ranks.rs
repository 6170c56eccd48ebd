// Tangled from book/src/reconstructor-ranks.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors by several graphics processors, of one machine or of several.

// Imports of reconstructors by ranks
use super::gpu::{HostColumns, RIDGE};
use super::{ERROR, Errors, FACTOR, Inversion, Inverted, RECONSTRUCTOR, ReconstructorPlan};
use crate::device::collective::BlockCyclic;
use crate::device::engine::Engine;
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, KernelSource, Shape, rank::Rank};
use crate::device::headers::REAL;
use crate::device::rank_group::RankTask;
use crate::error::{Error, Invalid};
use crate::linear::NotPositive;
use crate::linear::factorisation::gpu::{EigenGpu, FETCHED};
use crate::linear::factorisation::unit;
use crate::numerics::real::{Precision, Real};
use crate::tomography::covariance_matrix::{truth_sensors, truth_valid};
use crate::watch::{Watch, check};
use ndarray::{Array2, Array3, parallel::prelude::*, s};
use rayon::slice::ParallelSlice;
use std::sync::Arc;

// Decide whether ranks share the work
/// Slopes from which several devices are faster than one, once they have joined.
const WORTHWHILE: usize = 16_384;

impl ReconstructorPlan {
    /// Reason why the devices of an engine do not share the inversion; none where they do, or where there is only one.
    pub(crate) fn why_alone(&self, engine: &Engine) -> Option<String> {
        let ([_, ranks], devices) = (engine.place(), engine.devices());
        if devices.is_empty() || (ranks == 1 && !engine.rank_group().is_ranked()) {
            return None;
        }
        // Exclude what has no shared matrix
        if self.method == Inversion::Iterative {
            return Some("method = \"iterative\" has no matrix to share".into());
        }
        if self.is_to_wavefront() {
            return Some("to = \"wavefront\" is solved by one device".into());
        }
        if !BlockCyclic::serves_all(self.measurements, ranks) {
            return Some(format!("{} slopes are too few to be dealt out", self.measurements));
        }
        // Check the libraries and the size
        if engine.rank_group().is_ranked() {
            return None;
        }
        let is_new = |k: usize| !devices[..k].iter().any(|gpu| gpu.is_same_device(&devices[k]));
        if !(0..ranks).all(is_new) {
            return Some("a device is there twice".into());
        }
        let one = self.on_first(engine.precision());
        let fits = devices[0].refuse_beyond_memory(one, "").is_ok();
        if self.measurements < WORTHWHILE && fits {
            return Some(format!("{WORTHWHILE} slopes would be worth sharing"));
        }
        let required = devices[0].require_joining();
        required.err().map(|error| match error {
            Error::Device { reason, .. } => reason,
            other => other.to_string(),
        })
    }

    // Whether ranks share the inversion
    /// Whether the devices of an engine, or those of several processes, share the inversion.
    pub(super) fn is_shared(&self, engine: &Engine) -> bool {
        let several = engine.place()[1] > 1 || engine.rank_group().is_ranked();
        several && !engine.devices().is_empty() && self.why_alone(engine).is_none()
    }

    // Reject what several processes cannot share
    /// Rejects several processes for a computation that they cannot share.
    pub(super) fn check_ranks(&self, engine: &Engine) -> Result<(), Invalid> {
        let why = engine.rank_group().is_ranked().then(|| self.why_alone(engine)).flatten();
        let refuse = |why| Invalid::new("ranks", engine.place()[1], format!("1, as {why}"));
        why.map_or(Ok(()), |why| Err(refuse(why)))
    }

    // Memory of ranks
    /// Maximum number of bytes on each rank.
    pub(super) fn on_rank(&self, engine: &Engine) -> u64 {
        let [n, m] = [self.measurements, self.truth_slopes].map(|k| k as f64);
        let targets = self.system.targets().len() as f64;
        let rows = self.sets() as f64 * targets * m;
        let count = BlockCyclic::new(self.order(), [0, engine.place()[1]]).count() as f64;
        let of_matrix = self.order() as f64 * count;
        let of_work = match self.method {
            _ if self.is_bordered() => of_matrix + rows * rows,
            Inversion::Eigen => EIGENVECTORS * of_matrix + rows * (count + n),
            _ => of_matrix + 2.0 * rows * count,
        };
        let numbers = of_work + targets * m * m;
        let bytes = match engine.precision() {
            Precision::F64 => 8.0,
            Precision::F32 => 4.0,
        };
        (bytes * numbers) as u64 + WORKING
    }
}

// Memory of the libraries of ranks
/// Memory for eigenvectors, in units of a rank's part of C_mm, which is included.
const EIGENVECTORS: f64 = 8.5;

/// Bytes that the libraries of ranks take at any size.
const WORKING: u64 = 2 << 30;

// Kernel for the corner of a factor
/// The kernel that copies the corner of a factor.
const CORNER: KernelSource = KernelSource {
    name: "corner.cu",
    text: include_str!("../../../kernels/tomography/corner.cu"),
    headers: &[REAL],
};

kernels! {
    /// Kernel of bordered matrices.
    struct CornerKernels in CORNER {
        /// Transposes the corner of a factor.
        take_corner: TakeCorner<T> {
            matrix: [T], slopes: [i32], corner: [T], width: usize, from: usize, first: usize, order: usize,
        }
    }
}

// Invert by all ranks
impl ReconstructorPlan {
    /// Reconstructor and errors from all ranks, where this process has rank 0; none elsewhere.
    pub(super) fn invert_together(
        &self,
        truth: &Array2<f64>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Option<Inverted>, Error> {
        // Task of a rank in either precision
        let (plan, truth, precision) = (self.clone(), truth.clone(), engine.precision());
        let work: Arc<RankTask<Option<Inverted>>> = match precision {
            Precision::F64 => {
                Arc::new(move |member, watch| plan.part::<f64>(member, &truth, watch))
            }
            Precision::F32 => {
                Arc::new(move |member, watch| plan.part::<f32>(member, &truth, watch))
            }
        };
        let results = engine.rank_group().work(engine.devices(), watch, &work)?;
        Ok(results.into_iter().flatten().next())
    }

    // Part of one rank in an inversion
    /// The part of one rank in the inversion, in the precision T; rank 0 has the results.
    fn part<T: Real>(
        &self,
        member: &Rank,
        truth: &Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<Option<Inverted>, Error> {
        if self.is_bordered() {
            return self.errors_of_border::<T>(member, unit(truth), watch);
        }
        let (n, unit, gpu) = (self.measurements, unit(truth), member.gpu());
        let deal = BlockCyclic::new(n, member.place());
        let sum = |values: &Buffer<f64>| member.sum(values);
        let [matrix, rows] = self.made::<T>((gpu, &deal), unit, &sum, watch)?;
        let read = |rows: BufferView<T>| collected(member, &deal, rows, unit);
        let kept = self.kept_on_device([&matrix, &rows], &read)?;
        let (errors, spectrum) = if self.method == Inversion::Eigen {
            // Find eigenvectors by all ranks
            let filter = self.filter_above(T::epsilon().in_double());
            let eigenvectors = member.eigenvectors(&matrix, &deal)?;
            drop(matrix);
            let eigen = EigenGpu::of(gpu, eigenvectors, deal.count(), filter)?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            let half = eigen.project(&rows)?;
            member.sum(&half)?;
            let errors = self.errors_by_ranks((member, truth), &[[&half; 2]], unit, watch)?;
            if !self.options.errors_only {
                eigen.expand(self.requested_on_device(&half), self.requested_on_device(&rows))?;
            }
            let (values, kept) = eigen.spectrum();
            (errors, Some((values.iter().map(|value| unit * value).collect(), kept)))
        } else {
            // Take the cholesky factor by all ranks
            let pivot = member.cholesky(&matrix, &deal)?;
            pivot.map_or(Ok(()), |pivot| Err(self.blame(NotPositive { pivot })))?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            let given = gpu.zeros::<T>(rows.len())?;
            gpu.copy_within(&rows, &given)?;
            member.solve(&matrix, &deal, &rows)?;
            let pairs = [[&given, &rows], [&rows, &given]];
            (self.errors_by_ranks((member, truth), &pairs, unit, watch)?, None)
        };
        let is_first = member.place()[0] == 0;
        let mut rows_of_all = None;
        if !self.options.errors_only {
            watch.stage(ERROR, "");
            check(watch)?;
            rows_of_all = Some(collected(member, &deal, self.requested_on_device(&rows), 1.0)?);
        }
        Ok(is_first.then_some((rows_of_all, errors, spectrum, kept)))
    }

    // Whether a border is enough
    /// Whether a bordered matrix is enough: only the errors of one truth are requested.
    fn is_bordered(&self) -> bool {
        let alone = self.options.errors_only && !self.options.keep && !self.is_delayed();
        alone && self.method == Inversion::Cholesky
    }

    /// Whether several ranks share the matrix with a border.
    pub(super) fn has_border(&self, engine: &Engine) -> bool {
        self.is_bordered() && self.is_shared(engine)
    }

    /// Columns of the matrix that ranks factorise.
    fn order(&self) -> usize {
        let truth = self.system.targets().len() * self.truth_slopes;
        self.measurements + if self.is_bordered() { truth } else { 0 }
    }

    // Border the matrix with the truth
    /// A rank's columns of the bordered matrix, Eq. [bordered](https://lenslet.github.io/lenslet/reconstructor-ranks.html#eq-bordered), divided by `unit`; `sum` adds numbers over all ranks.
    fn bordered<T: Real>(
        &self,
        (gpu, deal): (&Gpu, &BlockCyclic),
        unit: f64,
        sum: &dyn Fn(&Buffer<f64>) -> Result<(), Error>,
        watch: &dyn Watch,
    ) -> Result<Buffer<T>, Error> {
        let (system, truths, here) =
            (&self.system, truth_sensors(&self.system), HostColumns::of(gpu, deal)?);
        let masks = vec![truth_valid(system); truths.len()];
        let sensors = [system.sensors(), truths].concat();
        let valid = [system.valid_lenslets(), masks].concat();
        let matrix = self.filled((gpu, unit, deal), &here, (&sensors, &valid), watch)?;
        gpu.synchronise()?;
        watch.stage(FACTOR, "");
        self.replace_modes_on_device(gpu, &here, &matrix, sum)?;
        Ok(matrix)
    }

    // Errors of a bordered matrix
    /// The errors from the factor of the bordered matrix, on rank 0; none elsewhere.
    fn errors_of_border<T: Real>(
        &self,
        member: &Rank,
        unit: f64,
        watch: &dyn Watch,
    ) -> Result<Option<Inverted>, Error> {
        let (gpu, deal) = (member.gpu(), BlockCyclic::new(self.order(), member.place()));
        let sum = |values: &Buffer<f64>| member.sum(values);
        let matrix = self.bordered::<T>((gpu, &deal), unit, &sum, watch)?;
        let pivot = member.cholesky(&matrix, &deal)?;
        pivot.map_or(Ok(()), |pivot| Err(self.blame(NotPositive { pivot })))?;
        watch.stage(ERROR, "");
        check(watch)?;
        let corner = self.corner(gpu, &matrix, &deal)?;
        drop(matrix);
        member.sum(&corner)?;
        if member.place()[0] > 0 {
            return Ok(None);
        }
        Ok(Some((None, (self.errors_of_corner(gpu, &corner, unit)?, None), None, None)))
    }

    // Take the corner of a factor
    /// The corner of the factor of a bordered matrix in block-cyclic layout, transposed: zero in the columns of other ranks.
    fn corner<T: Real>(
        &self,
        gpu: &Gpu,
        matrix: &Buffer<T>,
        deal: &BlockCyclic,
    ) -> Result<Buffer<T>, Error> {
        let (n, here) = (self.measurements, HostColumns::of(gpu, deal)?);
        let columns = here.columns(&(n..deal.columns()));
        let order = deal.columns() - n;
        let corner = gpu.zeros::<T>(order * order)?;
        let arguments = TakeCorner {
            matrix: matrix.view(..),
            slopes: here.there.view(..),
            corner: corner.view(..),
            width: here.slopes.len(),
            from: columns.start,
            first: n,
            order,
        };
        let kernels = CornerKernels::load(gpu, &[])?;
        let shape = Shape::over(columns.len(), 256, [order, 1]);
        gpu.launch(&kernels.take_corner, shape, arguments)?;
        Ok(corner)
    }

    // Errors from the corner
    /// The errors of all targets from the corner of the factor.
    fn errors_of_corner<T: Real>(
        &self,
        gpu: &Gpu,
        corner: &Buffer<T>,
        unit: f64,
    ) -> Result<Array3<f64>, Error> {
        let products = self.products_on_device(gpu, &[[corner; 2]], &[(0, 0, 1.0)])?;
        let mut errors = self.read_errors(&products, unit)?;
        for mut errors in errors.outer_iter_mut() {
            errors.diag_mut().mapv_inplace(|variance| variance - RIDGE * unit);
        }
        Ok(errors)
    }

    // Sum the errors over ranks
    /// C_tt less products of rows, on rank 0; empty elsewhere. Where each rank has some columns of the factors, the products are summed.
    fn errors_by_ranks<T: Real>(
        &self,
        (member, truth): (&Rank, &Array2<f64>),
        pairs: &[[&Buffer<T>; 2]],
        unit: f64,
        watch: &dyn Watch,
    ) -> Result<Errors, Error> {
        let (gpu, is_first) = (member.gpu(), member.place()[0] == 0);
        let by_all = self.method != Inversion::Eigen;
        let nothing = || Array3::zeros((0, 0, 0));
        if !by_all && !is_first {
            return Ok((nothing(), None));
        }
        let read = |products: &Buffer<T>| {
            if by_all {
                member.sum(products)?;
            }
            if is_first { self.read_errors(products, unit) } else { Ok(nothing()) }
        };
        self.errors_on_device((gpu, truth), pairs, &read, watch)
    }
}

// Collect the columns of all ranks
/// Numbers that rank 0 collects at a time.
const PIECE: usize = 1 << 26;

/// All columns of some rows in block-cyclic layout, times `unit`, on rank 0; empty elsewhere.
fn collected<T: Real>(
    member: &Rank,
    deal: &BlockCyclic,
    rows: BufferView<T>,
    unit: f64,
) -> Result<Array2<f64>, Error> {
    let [rank, ranks] = member.place();
    let count = rows.len() / deal.count();
    let mut all = Array2::zeros((if rank == 0 { count } else { 0 }, deal.columns()));
    // All ranks compute the same size of a piece: rank 0 has the most columns.
    let piece = PIECE.min(count * deal.of(0).count()).max(deal.columns());
    let received = member.gpu().zeros::<T>(if ranks > 1 { piece } else { 0 })?;
    for from in 0..ranks {
        // Collect the columns of one rank
        let theirs = deal.of(from);
        let width = theirs.count();
        let height = piece / width;
        for first in (0..count).step_by(height) {
            let height = height.min(count - first);
            let part = if from == rank { rows.from(first * width) } else { received.view(..) };
            let part = part.first(height * width);
            if from > 0 {
                member.broadcast(part, from)?;
            }
            if rank == 0 {
                let at_a_time = (FETCHED / width).max(1) * width;
                part.read_pieces(at_a_time, &mut |start, piece| {
                    put_columns((&mut all, first + start / width), &theirs, piece, unit);
                })?;
            }
        }
    }
    Ok(all)
}

// Copy columns to their positions
/// Copies the columns of a layout, times `unit`, to rows of a matrix, from a first one.
fn put_columns<T: Real>(
    (all, first): (&mut Array2<f64>, usize),
    deal: &BlockCyclic,
    piece: &[T],
    unit: f64,
) {
    let width = deal.count();
    let mut rows = all.slice_mut(s![first..first + piece.len() / width, ..]);
    rows.outer_iter_mut()
        .into_par_iter()
        .zip(piece.par_chunks(width))
        .for_each(|(row, piece)| deal.put(row, piece, unit));
}

// Tests of reconstructors by ranks
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::engine::open_gpus;
    use crate::device::gpu::{Gpu, emulated};
    use crate::device::{Device, RankInfo};
    use crate::model::removed_modes::{Focus, TipTilt};
    use crate::model::system::{SlopeModel, System};
    use crate::plan::Plan;
    use crate::tomography::covariance_matrix::tests::windy;
    use crate::tomography::covariance_matrix::truth_covariance;
    use crate::tomography::reconstructor::ReconstructorOptions;
    use crate::watch::unwatched;

    // Devices of a test
    /// Two emulated devices, and all devices of CUDA where there are two.
    fn pairs() -> Vec<Vec<Gpu>> {
        let several = open_gpus(Device::Cuda(None)).and_then(|gpus| {
            gpus.iter().try_for_each(Gpu::require_joining)?;
            Ok(gpus)
        });
        let several = several.map_err(|reason| eprintln!("skipped on several devices: {reason}"));
        let all = [emulated(2), several.unwrap_or_default()];
        all.into_iter().filter(|gpus| gpus.len() > 1).collect()
    }

    // Two small stars
    /// The smallest guide star of the tests of covariances twice, one of them with a sensor rotated by an angle.
    fn pair(noise: f64, turned: f64) -> System {
        let all = windy(noise);
        let mut stars = [2, 2].map(|q: usize| all.guide_stars()[q].clone());
        stars[1].sensor.rotation = turned;
        all.to_builder().guide_stars(stars).targets([all.targets()[0]]).build().unwrap()
    }

    // Two ranks reconstruct as one
    #[test]
    fn two_ranks_reconstruct_as_one_does() {
        let mut system = pair(2e-14, 0.2);
        let mut stars = system.guide_stars().to_vec();
        // The mode that one star does not measure is removed, and that of the other is uncertain.
        (stars[0].tip_tilt, stars[0].focus) = (TipTilt::unknown(1e-12).unwrap(), Focus::Removed);
        stars[1].tip_tilt = TipTilt::Removed;
        system = system.to_builder().guide_stars(stars).build().unwrap();
        let truth = truth_covariance(&system, &unwatched).unwrap();
        let largest = |m: &Array2<f64>| m.fold(0.0, |most: f64, v| most.max(v.abs()));
        for gpus in pairs() {
            for method in [Inversion::Cholesky, Inversion::Eigen] {
                let options = ReconstructorOptions::default().method(method).delay(0.01).keep(true);
                let plan = ReconstructorPlan::new(&system, options).unwrap();
                let name = gpus[0].name().to_string();
                if method == Inversion::Eigen
                    && let Err(reason) = gpus[0].require_factors(true)
                {
                    eprintln!("skipped on {name}: {reason}");
                    continue;
                }
                let run = |count: usize| {
                    let engine = Engine::gpus(gpus[..count].to_vec(), Precision::F64).unwrap();
                    plan.invert_together(&truth, &engine, &unwatched).map(Option::unwrap)
                };
                let one = run(1).unwrap();
                let two = run(2).unwrap();
                // Compare one rank with two
                let [one, rows] = [&one, &two].map(|found| found.0.as_ref().unwrap());
                let gap = largest(&(one - rows)) / largest(one);
                eprintln!("one rank and two by {method:?} on {name}: {gap:.1e}");
                assert!(gap < 1e-12, "{method:?} on {name}: {gap:e}");
                // And as one device does without ranks
                let engine = Engine::gpus(gpus[..1].to_vec(), Precision::F64).unwrap();
                let alone = plan.invert_on_device(&truth, &engine, &unwatched).unwrap();
                let all = alone.0.as_ref().unwrap();
                let gap = largest(&(all - rows)) / largest(all);
                assert!(gap < 1e-10, "{method:?} on {name}: {gap:e}");
                for (alone, two) in
                    [(Some(&alone.1.0), Some(&two.1.0)), (alone.1.1.as_ref(), two.1.1.as_ref())]
                {
                    let gap = alone.unwrap() - two.unwrap();
                    let gap = gap.fold(0.0, |most: f64, v| most.max(v.abs()));
                    assert!(gap < 1e-11 * largest(&truth), "{method:?} on {name}: {gap:e}");
                }
                for (alone, two) in alone.3.iter().flatten().zip(two.3.as_ref().unwrap()) {
                    assert!(
                        largest(&(alone - two)) < 1e-13 * largest(alone),
                        "{method:?} on {name}"
                    );
                }
                // The kept matrices are those that were inverted: R C_mm is C_tm of the later truth.
                let [c_mm, c_tm] = two.3.as_ref().unwrap();
                assert!(
                    largest(&(rows.dot(c_mm) - c_tm)) < 1e-10 * largest(c_tm),
                    "{method:?} on {name}"
                );
                assert_eq!(two.2.is_some(), method == Inversion::Eigen);
            }
        }
    }

    // A bordered matrix has the errors of one device
    #[test]
    fn ranks_know_the_errors_by_a_bordered_matrix() {
        let mut system = pair(2e-14, 0.2);
        let mut stars = system.guide_stars().to_vec();
        (stars[0].tip_tilt, stars[1].focus) = (TipTilt::unknown(1e-12).unwrap(), Focus::Removed);
        let targets = windy(0.0).targets()[..2].to_vec();
        system = system.to_builder().guide_stars(stars).targets(targets).build().unwrap();
        let truth = truth_covariance(&system, &unwatched).unwrap();
        let largest = truth.fold(0.0, |most: f64, v| most.max(v.abs()));
        for slope_model in [SlopeModel::Average, SlopeModel::EdgeMidpoint] {
            let system = system.to_builder().slope_model(slope_model).build().unwrap();
            let truth = truth_covariance(&system, &unwatched).unwrap();
            let options = ReconstructorOptions::default().method(Inversion::Cholesky);
            let plan =
                |errors_only| ReconstructorPlan::new(&system, options.errors_only(errors_only));
            let [whole, bordered] = [plan(false), plan(true)].map(Result::unwrap);
            assert!(bordered.is_bordered() && !whole.is_bordered());
            for gpus in pairs() {
                for (precision, bound) in [(Precision::F64, 1e-11), (Precision::F32, 1e-4)] {
                    let name = gpus[0].name().to_string();
                    let alone = Engine::gpus(gpus[..1].to_vec(), Precision::F64).unwrap();
                    let alone = whole.invert_on_device(&truth, &alone, &unwatched).unwrap();
                    let two = Engine::gpus(gpus.clone(), precision).unwrap();
                    let two = bordered.invert_together(&truth, &two, &unwatched).unwrap().unwrap();
                    assert!(two.0.is_none() && two.1.0.dim() == alone.1.0.dim());
                    let gap = (&two.1.0 - &alone.1.0).fold(0.0, |most: f64, v| most.max(v.abs()));
                    eprintln!("bordered {precision:?} on {name}: {:.1e}", gap / largest);
                    assert!(gap < bound * largest, "{precision:?} on {name}: {gap:e}");
                }
            }
        }
    }

    // Ranks report a pivot
    #[test]
    fn ranks_blame_a_slope_and_say_why_one_works_alone() {
        let twins = pair(0.0, 0.0);
        let options = ReconstructorOptions::default().method(Inversion::Cholesky);
        let plan = ReconstructorPlan::new(&twins, options).unwrap();
        let truth = truth_covariance(&twins, &unwatched).unwrap();
        for gpus in pairs() {
            let twice = Engine::gpus(vec![gpus[0].clone(); 2], Precision::F64).unwrap();
            assert!(plan.why_alone(&twice).is_some_and(|why| why.contains("twice")));
            let engine = Engine::gpus(gpus, Precision::F64).unwrap();
            let error = plan.invert_together(&truth, &engine, &unwatched).unwrap_err().to_string();
            assert!(
                error.contains("not positive definite") && error.contains("guide_star[1]"),
                "{error}"
            );
            // One device computes small systems.
            assert!(!plan.is_shared(&engine) && plan.check_ranks(&engine).is_ok());
            let said = plan.describe(&engine).unwrap();
            assert!(said.method.contains("worth sharing"), "{}", said.method);
            let first = Engine::gpus(engine.devices()[..1].to_vec(), Precision::F64).unwrap();
            let factor = |engine: &Engine| {
                let stages = plan.describe(engine).unwrap().stages;
                stages.into_iter().find(|stage| stage.name == FACTOR).unwrap().seconds
            };
            assert_eq!(factor(&engine), factor(&first));
            // An iteration has no matrix for several processes to share.
            let rank_info = RankInfo::of_test([1, 2], "nowhere");
            let first = Engine::gpus(engine.devices()[..1].to_vec(), Precision::F64).unwrap();
            let alone =
                ReconstructorPlan::new(&pair(2e-14, 0.0), options.method(Inversion::Iterative));
            let error = alone
                .unwrap()
                .run(&first.with_rank_info(rank_info).unwrap(), &unwatched)
                .unwrap_err();
            let words = "ranks = 2: expected 1, as method = \"iterative\"";
            assert!(error.to_string().starts_with(words), "{error}");
            let later = ReconstructorPlan::new(&twins, options.delay(0.01).keep(true)).unwrap();
            assert!(later.why_alone(&engine).is_some_and(|why| why.contains("worth sharing")));
        }
    }
}
