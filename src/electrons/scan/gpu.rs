// Tangled from book/src/scan-gpu.md: edit there, or here and run cargo tangle stitch.
//! Scans on devices.

// What scans on devices stand on
use super::{StemPlan, Unseen, Waves};
use crate::device::gpu::{Buffer, Gpu};
use crate::device::{Engine, Watch, Workers, dispatch, gather};
use crate::electrons::multislice::gpu::PassesGpu;
use crate::electrons::{Potential, ProbeWave};
use crate::error::Error;
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView3, s};
use num_complex::Complex;
use std::f64::consts::PI;

// A device that follows probes
/// What a device needs to follow probes.
struct Follower<T> {
    gpu: Gpu,
    passes: PassesGpu<T>,
    /// Transmissions of all slices, over the samples along x.
    slices: Buffer<Complex<T>>,
    /// The spectrum of the probe of each defocus.
    probes: Vec<Buffer<Complex<T>>>,
    waves: Buffer<Complex<T>>,
    spectra: Buffer<Complex<T>>,
}

/// Probes slice after slice, by devices.
struct SlicesThere<'a, T> {
    plan: &'a StemPlan,
    followers: Vec<Follower<T>>,
    batch: usize,
}

impl StemPlan {
    /// The waves of a configuration with this potential on the devices of an engine; none where there are no kernels for the grid.
    pub(super) fn there<'a, T: Real>(
        &'a self,
        engine: &Engine,
        potential: &Potential,
        watch: &dyn Watch,
    ) -> Result<Option<Box<dyn Waves + 'a>>, Error> {
        let there = SlicesThere::<T>::new(self, engine, potential, watch)?;
        Ok(there.map(|there| Box::new(there) as Box<dyn Waves>))
    }
}

// Prepare devices for a configuration
/// Bytes of the waves of a batch, about.
const BATCH: usize = 1 << 26;

impl<'a, T: Real> SlicesThere<'a, T> {
    /// The slices of a potential on all devices of an engine; none where there are no kernels for the grid.
    ///
    /// # Errors
    /// `Memory` where the slices do not fit on a device, and those of devices.
    fn new(
        plan: &'a StemPlan,
        engine: &Engine,
        potential: &Potential,
        watch: &dyn Watch,
    ) -> Result<Option<Self>, Error> {
        let [nx, ny] = plan.options.grid.points();
        let number = size_of::<Complex<T>>();
        let batch = (BATCH / (nx / 2 * ny * number)).clamp(1, 256);
        let count = plan.options.ends.last().copied().unwrap_or(0);
        let needed = number * (count * nx * ny + batch * nx / 2 * (ny + ny / 2));
        let sigma = plan.options.probe.beam.interaction();
        let ready = |_: &(), k: usize| Ok(transmission::<T>(&potential.slice(k), sigma));
        let slices = gather(Workers::cores(&()), 0..count, &Unseen(watch), ready)?.concat();
        let mut followers = Vec::new();
        for gpu in engine.devices() {
            gpu.refuse_beyond_memory(needed as u64, "the slices of a scan")?;
            let factors = propagator(plan, potential.thickness());
            let [x, y] = &factors;
            let Some(passes) = PassesGpu::new(gpu, &plan.options.grid, [x, y])? else {
                return Ok(None);
            };
            // Make a follower of a device
            let spectrum = |probe: &ProbeWave| {
                let wave = probe.on_axis().mapv(|a| Complex::new(T::of(a.re), T::of(a.im)));
                gpu.upload(&wave.into_iter().collect::<Vec<_>>())
            };
            followers.push(Follower {
                gpu: gpu.clone(),
                passes,
                slices: gpu.upload(&slices)?,
                probes: plan.probes.iter().map(spectrum).collect::<Result<_, _>>()?,
                waves: gpu.zeros(batch * nx / 2 * ny)?,
                spectra: gpu.zeros(batch * nx / 2 * ny / 2)?,
            });
        }
        Ok(Some(Self { plan, followers, batch }))
    }
}

// Transmissions and propagators for a device
/// exp(iσV)/N_x of a slice \[V Å\].
fn transmission<T: Real>(potential: &Array2<f64>, sigma: f64) -> Vec<Complex<T>> {
    let share = 1.0 / potential.ncols() as f64;
    let turned =
        |v: &f64| Complex::new(T::of(share * (sigma * v).cos()), T::of(share * (sigma * v).sin()));
    potential.iter().map(turned).collect()
}

/// Factors of the propagator over kept k_x and over all k_y, zero where nothing is kept.
fn propagator(plan: &StemPlan, thickness: f64) -> [Vec<Complex<f64>>; 2] {
    let (grid, wavelength) = (&plan.options.grid, plan.options.probe.beam.wavelength());
    let turn = |axis: usize, k: usize| {
        let q = grid.frequency(axis, k);
        Complex::cis(-PI * wavelength * thickness * q * q)
    };
    let along_y = |k: usize| if grid.keeps(1, k) { turn(1, k) } else { Complex::default() };
    [grid.kept(0).map(|k| turn(0, k)).collect(), (0..grid.points()[1]).map(along_y).collect()]
}

// Follow a batch on a device
impl<T: Real> Follower<T> {
    /// Readings of probes at some places.
    fn follow(&self, plan: &StemPlan, places: &[[f64; 2]]) -> Result<Array2<f64>, Error> {
        let ([nx, ny], count) = (plan.options.grid.points(), places.len());
        let lengths = plan.options.grid.lengths();
        let in_cells = places.iter().map(|[x, y]| [x / lengths[0], y / lengths[1]]);
        let there = self.gpu.upload(&in_cells.collect::<Vec<_>>())?;
        let mut found = Array2::zeros((count, plan.readings()));
        for (d, probe) in self.probes.iter().enumerate() {
            self.passes.begin(self.waves.view(..), probe, there.view(..))?;
            let mut done = 0;
            for (e, &end) in plan.options.ends.iter().enumerate() {
                for k in done..end {
                    let slice = self.slices.view(k * nx * ny..(k + 1) * nx * ny);
                    self.passes.pass(self.waves.view(..), count, slice)?;
                }
                done = end;
                self.passes.look(self.waves.view(..), count, self.spectra.view(..))?;
                let spectra = self.spectra.view(..count * nx / 2 * ny / 2).read()?;
                let shape = (count, ny / 2, nx / 2);
                let waves = ArrayView3::from_shape(shape, &spectra);
                let waves = waves.unwrap_or_else(|_| unreachable!("as many as were made"));
                plan.read_waves(waves, d, e, &mut found);
            }
        }
        Ok(found)
    }
}

impl<T: Real> Waves for SlicesThere<'_, T> {
    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let mut found = Array2::zeros((places.len(), self.plan.readings()));
        let each = self.batch.min(places.len().div_ceil(self.followers.len())).max(1);
        let follow =
            |follower: &Follower<T>, places: &[[f64; 2]]| follower.follow(self.plan, places);
        let devices = Workers::devices(&self.followers);
        dispatch(devices, places.chunks(each), watch, follow, |k, values: Array2<f64>| {
            let first = k * each;
            found.slice_mut(s![first..first + values.nrows(), ..]).assign(&values);
            Ok(())
        })?;
        Ok(found)
    }
}

// Tests of scans on devices
#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::device::gpu::test_machines;
    use crate::device::silent;
    use crate::numerics::Precision;

    #[test]
    fn scans_on_devices_are_those_of_cores() {
        for gpu in test_machines() {
            for (precision, bound) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
                let plan = plan(0);
                let read = |engine: &Engine| {
                    let mut readings = plan.begin(5..9).unwrap();
                    plan.run(engine, &mut readings, &silent, &mut |_| Ok(())).unwrap();
                    readings.mean
                };
                let here = read(&Engine::cpu(precision));
                let there = read(&Engine::gpus(vec![gpu.clone()], precision).unwrap());
                let gap = (&there - &here).fold(0.0, |most: f64, gap| most.max(gap.abs()));
                assert!(gap < bound && gap > 0.0, "{}: {gap:e}", gpu.name());
            }
        }
    }
}
