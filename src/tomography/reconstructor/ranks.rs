// Tangled from book/src/reconstructor-ranks.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors by several graphics processors, of one machine or of several.

// What reconstructors of ranks stand on
use super::{ERROR, Errors, Inversion, Inverted, RECONSTRUCTOR, ReconstructorPlan};
use crate::device::collective::Deal;
use crate::device::crew::Work;
use crate::device::cuda::distributed::require_several;
use crate::device::gpu::{Buffer, View, member::Member};
use crate::device::{Watch, check, engine::Engine};
use crate::error::{Error, Invalid};
use crate::linear::NotPositive;
use crate::linear::factorisation::gpu::{EigenGpu, FETCHED, upload_rows};
use crate::linear::factorisation::unit;
use crate::numerics::real::{Precision, Real};
use ndarray::{Array2, Array3, parallel::prelude::*, s};
use rayon::slice::ParallelSlice;
use std::sync::Arc;

// Decide whether ranks share the work
/// Slopes from which several devices are faster than one, once they have found each other.
const WORTHWHILE: usize = 16_384;

impl ReconstructorPlan {
    /// Why the devices of an engine do not invert together; nothing where they do, or there is only one.
    pub(super) fn why_alone(&self, engine: &Engine) -> Option<String> {
        let ([_, ranks], devices) = (engine.place(), engine.devices());
        if devices.is_empty() || (ranks == 1 && !engine.crew().is_seated()) {
            return None;
        }
        if self.method == Inversion::Iterative {
            return Some("method = \"iterative\" has no matrix to share".into());
        }
        if !Deal::serves_all(self.measurements, ranks) {
            return Some(format!("{} slopes are too few to be dealt out", self.measurements));
        }
        // Look at the libraries and the size
        if engine.crew().is_seated() {
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
        let found = require_several(devices[0].name());
        found.err().map(|error| match error {
            Error::Device { reason, .. } => reason,
            other => other.to_string(),
        })
    }

    // Tell whether ranks share the work
    /// Whether the devices of an engine, or those of several processes, invert together.
    pub(super) fn is_shared(&self, engine: &Engine) -> bool {
        let several = engine.place()[1] > 1 || engine.crew().is_seated();
        several && !engine.devices().is_empty() && self.why_alone(engine).is_none()
    }

    // Refuse what several processes cannot share
    /// Refuses several processes for what one has to do alone.
    pub(super) fn check_ranks(&self, engine: &Engine) -> Result<(), Invalid> {
        let why = engine.crew().is_seated().then(|| self.why_alone(engine)).flatten();
        let refuse = |why| Invalid::new("ranks", engine.place()[1], format!("1, as {why}"));
        why.map_or(Ok(()), |why| Err(refuse(why)))
    }

    // Memory of ranks
    /// Bytes that each rank takes, at most.
    pub(super) fn on_rank(&self, engine: &Engine) -> u64 {
        let [n, m] = [self.measurements, self.truth_slopes].map(|k| k as f64);
        let targets = self.system.targets().len() as f64;
        let rows = self.sets() as f64 * targets * m;
        let count = Deal::new(self.measurements, [0, engine.place()[1]]).count() as f64;
        let (matrices, halves) = match self.method {
            Inversion::Eigen => (EIGENVECTORS, rows * n),
            _ => (1.0, rows * count),
        };
        let numbers = n * count * matrices + rows * count + halves + (targets + 1.0) * m * m;
        let bytes = match engine.precision() {
            Precision::F64 => 8.0,
            Precision::F32 => 4.0,
        };
        (bytes * numbers) as u64 + WORKING
    }
}

// Sizes that libraries of ranks take
/// Parts of the size of a rank's part of C_mm that finding eigenvectors takes, its own included.
const EIGENVECTORS: f64 = 8.5;

/// Bytes that the libraries of ranks take whatever the sizes.
const WORKING: u64 = 2 << 30;

// Invert together
impl ReconstructorPlan {
    /// Reconstructor and errors by all ranks, where this process has rank 0; nothing elsewhere.
    pub(super) fn invert_together(
        &self,
        truth: &Array2<f64>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Option<Inverted>, Error> {
        let (plan, truth, precision) = (self.clone(), truth.clone(), engine.precision());
        let work: Arc<Work<Option<Inverted>>> = match precision {
            Precision::F64 => {
                Arc::new(move |member, watch| plan.part::<f64>(member, &truth, watch))
            }
            Precision::F32 => {
                Arc::new(move |member, watch| plan.part::<f32>(member, &truth, watch))
            }
        };
        let found = engine.crew().work(engine.devices(), watch, &work)?;
        Ok(found.into_iter().flatten().next())
    }

    // Do the part of one rank
    /// What one rank does of the inversion, in the precision T; rank 0 has the results.
    fn part<T: Real>(
        &self,
        member: &Member,
        truth: &Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<Option<Inverted>, Error> {
        let (n, unit, gpu) = (self.measurements, unit(truth), member.gpu());
        let deal = Deal::new(n, member.place());
        let sum = |values: &Buffer<f64>| member.sum(values);
        let [matrix, rows] = self.made::<T>((gpu, &deal), unit, &sum, watch)?;
        let read = |rows: View<T>| collected(member, &deal, rows, unit);
        let kept = self.kept_there([&matrix, &rows], &read)?;
        let (errors, spectrum) = if self.method == Inversion::Eigen {
            // Find eigenvectors by all ranks
            let filter = self.filter_above(T::epsilon().in_double());
            let found = member.eigenvectors(&matrix, &deal)?;
            drop(matrix);
            let eigen = EigenGpu::of(gpu, found, deal.count(), filter)?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            let half = eigen.project(&rows)?;
            member.sum(&half)?;
            let errors = self.errors_by_ranks((member, truth), &[[&half; 2]], unit)?;
            if !self.options.errors_only {
                eigen.expand(self.asked_there(&half), self.asked_there(&rows))?;
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
            (self.errors_by_ranks((member, truth), &pairs, unit)?, None)
        };
        let is_first = member.place()[0] == 0;
        let mut found = None;
        if !self.options.errors_only {
            watch.stage(ERROR, "");
            check(watch)?;
            found = Some(collected(member, &deal, self.asked_there(&rows), 1.0)?);
        }
        Ok(is_first.then_some((found, errors, spectrum, kept)))
    }

    // Sum the errors over ranks
    /// C_tt less products of rows, on rank 0; elsewhere nothing. Where each rank has some columns of the factors, all add up.
    fn errors_by_ranks<T: Real>(
        &self,
        (member, truth): (&Member, &Array2<f64>),
        pairs: &[[&Buffer<T>; 2]],
        unit: f64,
    ) -> Result<Errors, Error> {
        let (gpu, is_first) = (member.gpu(), member.place()[0] == 0);
        let by_all = self.method != Inversion::Eigen;
        let nothing = || Array3::zeros((0, 0, 0));
        if !by_all && !is_first {
            return Ok((nothing(), None));
        }
        let read = |errors: &Buffer<T>| {
            if by_all {
                member.sum(errors)?;
            }
            if is_first { self.read_errors(errors, unit) } else { Ok(nothing()) }
        };
        let truth = is_first.then(|| upload_rows::<T>(gpu, truth, unit)).transpose()?;
        self.errors_there(gpu, truth.as_ref(), pairs, &read)
    }
}

// Collect the columns of all ranks
/// Numbers that rank 0 takes over at a time.
const PIECE: usize = 1 << 26;

/// All columns of some rows, of which each rank has those of its deal, times `unit` on rank 0; elsewhere nothing.
fn collected<T: Real>(
    member: &Member,
    deal: &Deal,
    rows: View<T>,
    unit: f64,
) -> Result<Array2<f64>, Error> {
    let [rank, ranks] = member.place();
    let count = rows.len() / deal.count();
    let mut all = Array2::zeros((if rank == 0 { count } else { 0 }, deal.columns()));
    // All ranks agree on the size of a piece: rank 0 has the most columns.
    let piece = PIECE.min(count * deal.of(0).count()).max(deal.columns());
    let room = member.gpu().zeros::<T>(if ranks > 1 { piece } else { 0 })?;
    for from in 0..ranks {
        let theirs = deal.of(from);
        let width = theirs.count();
        let height = piece / width;
        for first in (0..count).step_by(height) {
            let height = height.min(count - first);
            let part = if from == rank { rows.from(first * width) } else { room.view(..) };
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

// Put columns into their places
/// Puts the columns of a deal, times `unit`, into so many rows of a matrix, from a first one.
fn put_columns<T: Real>(
    (all, first): (&mut Array2<f64>, usize),
    deal: &Deal,
    piece: &[T],
    unit: f64,
) {
    let width = deal.count();
    let mut rows = all.slice_mut(s![first..first + piece.len() / width, ..]);
    rows.outer_iter_mut().into_par_iter().zip(piece.par_chunks(width)).for_each(
        |(mut row, piece)| {
            for (tile, piece) in deal.tiles().zip(piece.chunks(deal.block())) {
                row.slice_mut(s![tile])
                    .iter_mut()
                    .zip(piece)
                    .for_each(|(to, value)| *to = unit * value.in_double());
            }
        },
    );
}

// Tests of reconstructors by ranks
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::cuda::open;
    use crate::device::gpu::{Gpu, emulated};
    use crate::device::silent;
    use crate::model::system::System;
    use crate::model::unmeasured::{Focus, TipTilt};
    use crate::tomography::covariance_matrix::tests::windy;
    use crate::tomography::covariance_matrix::truth_covariance;
    use crate::tomography::reconstructor::ReconstructorOptions;

    // Devices of a test
    /// Two emulated devices, and all devices of CUDA where there are two.
    fn pairs() -> Vec<Vec<Gpu>> {
        let several = open(Device::Cuda(None)).and_then(|gpus| {
            require_several("cuda")?;
            Ok(gpus)
        });
        let several = several.map_err(|reason| eprintln!("skipped on several devices: {reason}"));
        let all = [emulated(2), several.unwrap_or_default()];
        all.into_iter().filter(|gpus| gpus.len() > 1).collect()
    }

    // Two small stars
    /// The smallest star of the tests of covariances twice, once turned by an angle.
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
        // What one star does not measure is taken out, and what the other does not is uncertain.
        (stars[0].tip_tilt, stars[0].focus) = (TipTilt::unknown(1e-12).unwrap(), Focus::Removed);
        stars[1].tip_tilt = TipTilt::Removed;
        system = system.to_builder().guide_stars(stars).build().unwrap();
        let truth = truth_covariance(&system, &silent).unwrap();
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
                    plan.invert_together(&truth, &engine, &silent).map(Option::unwrap)
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
                let alone = plan.invert_there(&truth, &engine, &silent).unwrap();
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
                // What is kept is what was inverted: R C_mm is C_tm of the later truth.
                let [c_mm, c_tm] = two.3.as_ref().unwrap();
                assert!(
                    largest(&(rows.dot(c_mm) - c_tm)) < 1e-10 * largest(c_tm),
                    "{method:?} on {name}"
                );
                assert_eq!(two.2.is_some(), method == Inversion::Eigen);
            }
        }
    }

    // A pivot is blamed by ranks
    #[test]
    fn ranks_blame_a_slope_and_say_why_one_works_alone() {
        let twins = pair(0.0, 0.0);
        let options = ReconstructorOptions::default().method(Inversion::Cholesky);
        let plan = ReconstructorPlan::new(&twins, options).unwrap();
        let truth = truth_covariance(&twins, &silent).unwrap();
        for gpus in pairs() {
            let twice = Engine::gpus(vec![gpus[0].clone(); 2], Precision::F64).unwrap();
            assert!(plan.why_alone(&twice).is_some_and(|why| why.contains("twice")));
            let engine = Engine::gpus(gpus, Precision::F64).unwrap();
            let error = plan.invert_together(&truth, &engine, &silent).unwrap_err().to_string();
            assert!(
                error.contains("not positive definite") && error.contains("guide_star[1]"),
                "{error}"
            );
            // Small systems are left to one device.
            assert!(!plan.is_shared(&engine) && plan.check_ranks(&engine).is_ok());
            let said = plan.describe(&engine);
            assert!(said.method.contains("worth sharing"), "{}", said.method);
            let later = ReconstructorPlan::new(&twins, options.delay(0.01).keep(true)).unwrap();
            assert!(later.why_alone(&engine).is_some_and(|why| why.contains("worth sharing")));
        }
    }
}
