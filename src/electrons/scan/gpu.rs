// Tangled from book/src/scan-gpu.md: edit there, or here and run cargo tangle stitch.
//! Scans on devices.

// Imports of scans on devices
use super::{Follower, Slices, StemPlan, Waves};
use crate::device::gpu::{Buffer, BufferView, Gpu, Pinned};
use crate::device::{Engine, dispatch_in_runs, lock};
use crate::electrons::detector::gpu::DetectorsGpu;
use crate::electrons::multislice::gpu::{PassesGpu, Passing};
use crate::electrons::prism::gpu::{BeamsGpu, PlanesGpu, WindowsGpu};
use crate::electrons::{Prism, ProbeWave, SMatrix, Transmission};
use crate::error::Error;
use crate::numerics::real::Real;
use crate::watch::{CancelOnly, Watch, check};
use ndarray::{Array2, Array3};
use num_complex::Complex;
use std::ops::Range;
use std::sync::{Arc, Mutex};

// Room for waves on a device
/// Queues of a device.
const QUEUES: usize = 2;
/// Bytes of the waves of a batch, about, and of its readings, at most.
const BATCH: usize = 1 << 26;
const READ: usize = 1 << 28;

/// What a device has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Whether all slices.
    resident: bool,
    /// How many waves a queue follows at a time.
    batch: usize,
    /// Bytes of it all.
    bytes: u64,
}

impl StemPlan {
    // Slices and waves that fit on a device
    /// What a device with so many bytes free has room for, with complex numbers of so many bytes.
    fn layout(&self, number: usize, free: u64) -> Layout {
        let [nx, ny] = self.options.grid.points();
        let count = self.distinct();
        let read = 8 * self.readings();
        let wave = number * (nx / 2 * ny + nx / 2 * ny / 2) + read;
        let most = (READ / read).max(1);
        let few = (BATCH / (nx / 2 * ny * number)).clamp(1, 256.min(most));
        let whole = |batch: usize, slices: usize| {
            (QUEUES * batch * wave + slices * nx * ny * number) as u64
        };
        if whole(few, count) <= free {
            return Layout { resident: true, batch: few, bytes: whole(few, count) };
        }
        let left = (free / 2).saturating_sub(whole(0, 2 * QUEUES)) as usize;
        let batch = (left / (QUEUES * wave)).clamp(1, most);
        Layout { resident: false, batch, bytes: whole(batch, 2 * QUEUES) }
    }

    // Memory of a scan on each device
    /// Bytes that each device of an engine takes for a scan with complex numbers of so many bytes and so many bytes of beams, which they share where one has no room for all.
    pub(super) fn memory_on_device(&self, engine: &Engine, number: usize, beams: u64) -> Vec<u64> {
        let (devices, mut all) = (engine.devices(), Vec::new());
        for gpu in devices {
            let free = gpu.available_memory().unwrap_or(u64::MAX);
            let waves = self.layout(number, free).bytes;
            let whole = waves.saturating_add(beams) <= free;
            all.push(waves + if whole { beams } else { beams.div_ceil(devices.len() as u64) });
        }
        all
    }
}

// Batches of nearly equal size
/// How many of so many waves a queue takes at a time, of several with room for `most`.
fn even(waves: usize, queues: usize, most: usize) -> usize {
    let rounds = waves.div_ceil(queues * most).max(1);
    waves.div_ceil(queues * rounds).max(1)
}

// Readings that come back
/// What is read of the waves of a batch.
struct Readings<T> {
    detectors: Arc<DetectorsGpu<T>>,
    /// (wave of a probe, probe, value), of as many probes as a batch has.
    there: Buffer<f64>,
    here: Pinned<f64>,
}

impl<T: Real> Readings<T> {
    /// Room for so many waves of each of `batch` probes.
    fn new(
        queue: &Gpu,
        detectors: &Arc<DetectorsGpu<T>>,
        waves: usize,
        batch: usize,
    ) -> Result<Self, Error> {
        let length = waves * batch * detectors.values();
        let detectors = Arc::clone(detectors);
        Ok(Self { detectors, there: queue.zeros(length)?, here: queue.pinned(length)? })
    }

    // Read the waves of a batch
    /// Reads spectra of `count` probes, wave `wave` of each.
    fn read(
        &self,
        queue: &Gpu,
        spectra: &Buffer<Complex<T>>,
        count: usize,
        wave: usize,
    ) -> Result<(), Error> {
        let length = count * self.detectors.values();
        let to = self.there.view(wave * length..(wave + 1) * length);
        self.detectors.read(queue, spectra.view(..), count, to)
    }

    // Fetch the readings of a batch
    /// All readings of `count` probes: (probe, reading).
    fn fetch(&mut self, queue: &Gpu, count: usize, readings: usize) -> Result<Array2<f64>, Error> {
        queue.fetch(&self.there, &mut self.here)?;
        let (values, here) = (self.detectors.values(), self.here.values()?);
        let at = |(w, k)| here[(k / values * count + w) * values + k % values];
        Ok(Array2::from_shape_fn((count, readings), at))
    }
}

// A queue that follows waves
/// A queue of a device that follows waves.
struct DeviceWorker<'a, T> {
    plan: &'a StemPlan,
    queue: Gpu,
    passes: Arc<PassesGpu<T>>,
    /// Transmissions of each kind of slice, over the samples along x, for all queues of the device, if there is room for them.
    slices: Option<Arc<Buffer<Complex<T>>>>,
    /// Whether it takes them for the others.
    takes: bool,
    /// The spectrum of the probe of each defocus.
    probes: Arc<Vec<Buffer<Complex<T>>>>,
    batch: usize,
    /// Queues that share the waves.
    queues: usize,
    workspace: Mutex<Workspace<T>>,
}

/// What a batch works in.
struct Workspace<T> {
    places: Buffer<[f64; 2]>,
    beams: Buffer<[i32; 2]>,
    waves: Buffer<Complex<T>>,
    spectra: Buffer<Complex<T>>,
    readings: Readings<T>,
    /// A slice that comes, and one that is used.
    passing: Vec<Passing<T>>,
}

// The queues of all devices
impl StemPlan {
    /// The queues of all devices of an engine, for so many waves; none where there are no kernels for the grid.
    ///
    /// # Errors
    /// `Memory` where not even a wave fits on a device, and those of devices.
    pub(super) fn workers_on_device<'a, T: Real>(
        &'a self,
        engine: &Engine,
        waves: usize,
    ) -> Result<Vec<Box<dyn Follower<T> + 'a>>, Error> {
        self.crew_within(engine, waves, u64::MAX)
    }

    // Queues of devices within a limit
    /// The queues of all devices of an engine, for so many waves, within at most `most` bytes of each device's free memory.
    fn crew_within<'a, T: Real>(
        &'a self,
        engine: &Engine,
        waves: usize,
        most: u64,
    ) -> Result<Vec<Box<dyn Follower<T> + 'a>>, Error> {
        let mut followers: Vec<Box<dyn Follower<T> + 'a>> = Vec::new();
        let queues = QUEUES * engine.devices().len();
        let factors = self.multislice::<T>()?.factors();
        for gpu in engine.devices() {
            let Some(passes) = PassesGpu::new(gpu, &self.options.grid, &factors)? else {
                return Ok(Vec::new());
            };
            let layout = self.layout(size_of::<Complex<T>>(), gpu.available_memory()?.min(most));
            gpu.refuse_beyond_memory(layout.bytes, "a scan")?;
            let batch = even(waves, queues, layout.batch);
            // The queues of a device
            let [nx, ny] = self.options.grid.points();
            // Slices and probes that queues share
            let slices = layout
                .resident
                .then(|| gpu.zeros(self.distinct() * nx * ny))
                .transpose()?
                .map(Arc::new);
            let spectrum = |probe: &ProbeWave| {
                let wave = probe.on_axis().mapv(T::of_complex);
                gpu.upload(&wave.into_iter().collect::<Vec<_>>())
            };
            let detectors = Arc::new(DetectorsGpu::<T>::new(gpu, &self.detectors)?);
            let spectra = self.probes().iter().map(spectrum).collect::<Result<Vec<_>, _>>()?;
            let (passes, spectra) = (Arc::new(passes), Arc::new(spectra));
            for k in 0..QUEUES {
                let queue = if k == 0 { gpu.clone() } else { gpu.stream()? };
                // Buffers of a batch on a queue
                let passing =
                    (0..if layout.resident { 0 } else { 2 }).map(|_| Passing::new(&queue, nx * ny));
                let waves = self.probes().len() * self.options.ends.len();
                let workspace = Workspace {
                    places: queue.zeros(batch)?,
                    beams: queue.zeros(batch)?,
                    waves: queue.zeros(batch * nx / 2 * ny)?,
                    spectra: queue.zeros(batch * nx / 2 * ny / 2)?,
                    readings: Readings::new(&queue, &detectors, waves, batch)?,
                    passing: passing.collect::<Result<_, Error>>()?,
                };
                let (passes, probes) = (Arc::clone(&passes), Arc::clone(&spectra));
                let (slices, takes, workspace) = (slices.clone(), k == 0, Mutex::new(workspace));
                followers.push(Box::new(DeviceWorker {
                    plan: self,
                    queue,
                    passes,
                    slices,
                    takes,
                    probes,
                    batch,
                    queues,
                    workspace,
                }));
            }
        }
        Ok(followers)
    }
}

// Follow a batch on a device
impl<T: Real> DeviceWorker<'_, T> {
    /// Takes `count` waves that have begun through the slices; `read` is called with the index of each end that they have reached.
    fn follow(
        &self,
        slices: &Slices<T>,
        workspace: &mut Workspace<T>,
        count: usize,
        watch: &dyn Watch,
        mut read: impl FnMut(usize, &Workspace<T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let plane = self.plan.options.grid.points().iter().product::<usize>();
        let mut done = 0;
        for (e, &end) in self.plan.options.ends.iter().enumerate() {
            // Pass all waves through slices
            for k in done..end {
                let slice = match &self.slices {
                    Some(all) => all.view(slices.kinds[k] * plane..(slices.kinds[k] + 1) * plane),
                    None => self.fetch_slice(slices, k, &mut workspace.passing, watch)?,
                };
                self.passes.pass(&self.queue, workspace.waves.view(..), count, slice)?;
            }
            done = end;
            read(e, workspace)?;
        }
        Ok(())
    }

    // Queue the copy of a slice
    /// Queues the copy of slice `k`, when the slice before the last has been copied.
    fn fetch_slice<'r>(
        &self,
        slices: &Slices<T>,
        k: usize,
        passing: &'r mut [Passing<T>],
        watch: &dyn Watch,
    ) -> Result<BufferView<'r, Complex<T>>, Error> {
        check(watch)?;
        slices.with(k, |slice| passing[k % 2].send(&self.queue, slice))?
    }
}

// Beams and spectra of a batch
impl<T: Real> DeviceWorker<'_, T> {
    /// Begins with some beams.
    fn begin_beams(
        &self,
        workspace: &Workspace<T>,
        prism: &Prism,
        which: Range<usize>,
    ) -> Result<(), Error> {
        let places: Vec<_> = which.map(|b| prism.place(b).map(|k| k as i32)).collect();
        let beams = workspace.beams.view(..places.len());
        beams.on(&self.queue)?.write(&places)?;
        self.passes.begin_beams(&self.queue, workspace.waves.view(..), beams)
    }

    /// Spectra of `count` waves.
    fn transform_waves<'v>(
        &self,
        workspace: &Workspace<T>,
        count: usize,
        spectra: BufferView<'v, Complex<T>>,
    ) -> Result<(), Error> {
        self.passes.transform_waves(&self.queue, workspace.waves.view(..), count, spectra)
    }
}

// Slices for a queue
impl<T: Real> Slices<T> {
    /// Calls `apply` with the transmission of slice `k`.
    fn with<R>(&self, k: usize, apply: impl FnOnce(&Transmission<T>) -> R) -> Result<R, Error> {
        match self.ready.get(self.kinds[k]) {
            Some(slice) => Ok(apply(slice)),
            None => Ok(apply(&self.made(k)?)),
        }
    }
}

// A queue as a follower
impl<T: Real> Follower<T> for DeviceWorker<'_, T> {
    fn batch(&self, waves: usize) -> usize {
        even(waves, self.queues, self.batch)
    }

    fn holds(&self) -> bool {
        self.slices.is_some()
    }

    fn take(&self, kind: usize, slice: &Transmission<T>) -> Result<(), Error> {
        let Some(all) = self.slices.as_ref().filter(|_| self.takes) else { return Ok(()) };
        let plane = slice.values().len();
        all.view(kind * plane..(kind + 1) * plane).write(slice.values())
    }

    // Probes and beams by a queue
    fn probes(
        &self,
        slices: &Slices<T>,
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let (mut workspace, count) = (lock(&self.workspace), places.len());
        let [width, height] = self.plan.options.grid.lengths();
        let in_cells: Vec<_> = places.iter().map(|[x, y]| [x / width, y / height]).collect();
        workspace.places.view(..count).on(&self.queue)?.write(&in_cells)?;
        for (d, probe) in self.probes.iter().enumerate() {
            let (waves, there) = (workspace.waves.view(..), workspace.places.view(..count));
            self.passes.begin(&self.queue, waves, probe, there)?;
            let first = d * self.plan.options.ends.len();
            self.follow(slices, &mut workspace, count, watch, |e, workspace| {
                self.transform_waves(workspace, count, workspace.spectra.view(..))?;
                workspace.readings.read(&self.queue, &workspace.spectra, count, first + e)
            })?;
        }
        workspace.readings.fetch(&self.queue, count, self.plan.readings())
    }

    // Spectra of beams by a queue
    fn beams(
        &self,
        slices: &Slices<T>,
        prism: &Prism,
        which: Range<usize>,
        watch: &dyn Watch,
    ) -> Result<Vec<Array3<Complex<T>>>, Error> {
        let (mut workspace, count) = (lock(&self.workspace), which.len());
        self.begin_beams(&workspace, prism, which)?;
        let ([nx, ny], mut all) = (self.plan.options.grid.points().map(|n| n / 2), Vec::new());
        self.follow(slices, &mut workspace, count, watch, |_, workspace| {
            self.transform_waves(workspace, count, workspace.spectra.view(..))?;
            let spectra = workspace.spectra.view(..count * nx * ny).on(&self.queue)?.read()?;
            let spectra = Array3::from_shape_vec((count, ny, nx), spectra);
            all.push(spectra.unwrap_or_else(|_| unreachable!("as many as were made")));
            Ok(())
        })?;
        Ok(all)
    }

    // Beams left on a device
    fn leave_beams(
        &self,
        slices: &Slices<T>,
        prism: &Prism,
        which: Range<usize>,
        planes: &[Buffer<Complex<T>>],
        watch: &dyn Watch,
    ) -> Result<bool, Error> {
        let mut workspace = lock(&self.workspace);
        let plane = self.plan.kept();
        self.begin_beams(&workspace, prism, which.clone())?;
        self.follow(slices, &mut workspace, which.len(), watch, |e, workspace| {
            self.transform_waves(
                workspace,
                which.len(),
                planes[e].view(which.start * plane..which.end * plane),
            )
        })?;
        self.queue.synchronise()?;
        Ok(true)
    }
}

// Windows that devices sum
/// Some beams of all ends on a device, and room for a batch of probes.
struct BeamShare<T> {
    queue: Gpu,
    windows: Arc<WindowsGpu<T>>,
    beams: Arc<Vec<BeamsGpu<T>>>,
    places: Buffer<[f64; 2]>,
    firsts: Buffer<[i32; 2]>,
    weights: Buffer<Complex<T>>,
    sums: Buffer<Complex<T>>,
}

/// Probes as sums of beams, by a queue of a device or by devices together.
struct DeviceWindows<'a, T> {
    plan: &'a StemPlan,
    prism: Prism,
    shares: Vec<BeamShare<T>>,
    readings: Mutex<Readings<T>>,
    batch: usize,
    queues: usize,
}

// Share the beams of a matrix
impl StemPlan {
    /// Workers that sum the beams of these matrices on the devices of an engine; none where there are no kernels for the window.
    ///
    /// # Errors
    /// `Memory` where the beams do not fit on all devices together, and those of devices.
    pub(super) fn windows_on_device<'a, T: Real>(
        &'a self,
        engine: &Engine,
        matrices: &[SMatrix<T>],
    ) -> Result<Vec<Box<dyn Waves + 'a>>, Error> {
        let whole = engine.has_room(self.bytes_of_planes::<T>(matrices[0].prism()));
        self.windows_shared(engine.devices(), matrices, whole)
    }

    // Bytes of the planes of beams
    /// Frequencies that a wave keeps, and pixels of the plane of a beam.
    fn kept(&self) -> usize {
        self.options.grid.points().iter().map(|points| points / 2).product()
    }

    /// Bytes that planes of all beams take, with something left beside them.
    fn bytes_of_planes<T>(&self, prism: &Prism) -> u64 {
        let planes = self.options.ends.len() * prism.beams() * self.kept();
        (size_of::<Complex<T>>() * planes / 8 * 9) as u64
    }

    // Windows over all beams or shares
    /// Workers that sum the beams of these matrices on the devices: with all beams on each device if `whole`, otherwise with a share on each.
    fn windows_shared<'a, T: Real>(
        &'a self,
        devices: &[Gpu],
        matrices: &[SMatrix<T>],
        whole: bool,
    ) -> Result<Vec<Box<dyn Waves + 'a>>, Error> {
        let (prism, mut workers) = (matrices[0].prism(), Vec::<Box<dyn Waves + 'a>>::new());
        let count = prism.beams();
        let each = if whole { count } else { count.div_ceil(devices.len().max(1)).max(1) };
        let mut shares = Vec::new();
        for (k, gpu) in devices.iter().enumerate() {
            let Some(windows) = WindowsGpu::new(gpu, &self.waves)? else { return Ok(Vec::new()) };
            let first = if whole { 0 } else { (k * each).min(count) };
            let which = first..count.min(first + each);
            // Beams of all ends on a device
            let beams = matrices
                .iter()
                .map(|matrix| BeamsGpu::new(gpu, matrix, which.clone(), self.probes()));
            let (beams, windows) =
                (Arc::new(beams.collect::<Result<Vec<_>, _>>()?), Arc::new(windows));
            if whole {
                workers.extend(self.windows_of_device(
                    gpu,
                    (windows, beams),
                    prism,
                    devices.len(),
                )?);
            } else {
                shares.push(self.sums(gpu.clone(), &windows, &beams, which.len())?);
            }
        }
        if !shares.is_empty() {
            workers.push(Box::new(self.windows_of(shares, prism, 1)?));
        }
        Ok(workers)
    }

    // Beams that stay where they are
    /// Workers that sum the beams that the devices have computed and kept in their memory; none where they do not fit, where cores
    /// compute beams, too, or where there are no kernels for the grid.
    ///
    /// # Errors
    /// `Cancelled`, and those of devices.
    pub(super) fn windows_in_place<'a, T: Real>(
        &'a self,
        followers: &[Box<dyn Follower<T> + '_>],
        slices: &Slices<T>,
        beams: (&Prism, f64),
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Vec<Box<dyn Waves + 'a>>, Error> {
        let (devices, (prism, _)) = (engine.devices(), beams);
        let has_room = engine.has_room(self.bytes_of_planes::<T>(prism));
        if devices.is_empty() || engine.has_cores() || !has_room {
            return Ok(Vec::new());
        }
        let stores = devices.iter().map(|gpu| BeamStore::new(self, gpu, beams));
        let Some(stores) = stores.collect::<Result<Option<Vec<_>>, _>>()? else {
            return Ok(Vec::new());
        };
        let Some(ranges) = self.fill_stores(followers, slices, prism, &stores, watch)? else {
            return Ok(Vec::new());
        };
        exchange(&stores, &ranges, self.kept())?;
        // Windows over stored beams
        let mut workers: Vec<Box<dyn Waves + 'a>> = Vec::new();
        for (gpu, store) in devices.iter().zip(stores) {
            let windows = store.finish(self, gpu, prism)?;
            workers.extend(self.windows_of_device(gpu, windows, prism, devices.len())?);
        }
        Ok(workers)
    }

    // Propagate beams into their stores
    /// Propagates all beams by the queues of all devices. Returns which device has computed which of them; nothing where a queue cannot
    /// leave beams on its device.
    fn fill_stores<T: Real>(
        &self,
        followers: &[Box<dyn Follower<T> + '_>],
        slices: &Slices<T>,
        prism: &Prism,
        stores: &[BeamStore<T>],
        watch: &dyn Watch,
    ) -> Result<Option<Vec<ComputedBeams>>, Error> {
        let queues: Vec<_> =
            followers.iter().enumerate().map(|(k, queue)| (k / QUEUES, queue)).collect();
        let (mut all, mut ranges) = (true, Vec::new());
        dispatch_in_runs(
            &queues,
            prism.beams(),
            watch,
            |(_, queue)| queue.batch(prism.beams()),
            |&(device, queue), which| {
                let (planes, watch) = (&stores[device].planes, CancelOnly(watch));
                Ok((device, queue.leave_beams(slices, prism, which, planes, &watch)?))
            },
            |which, (device, left)| {
                all &= left;
                ranges.push((device, which));
                Ok(())
            },
        )?;
        Ok(all.then_some(ranges))
    }

    // Room for sums on a device
    /// How many probes are summed at a time.
    fn summed<T>(&self) -> usize {
        let window: usize = self.waves.points().iter().map(|points| points / 2).product();
        (BATCH / (window * size_of::<Complex<T>>())).min(READ / (8 * self.readings())).clamp(1, 512)
    }

    // Buffers for sums of beams
    /// Room for the sums of so many beams.
    fn sums<T: Real>(
        &self,
        queue: Gpu,
        windows: &Arc<WindowsGpu<T>>,
        beams: &Arc<Vec<BeamsGpu<T>>>,
        count: usize,
    ) -> Result<BeamShare<T>, Error> {
        let window: usize = self.waves.points().iter().map(|points| points / 2).product();
        let batch = self.summed::<T>();
        Ok(BeamShare {
            windows: Arc::clone(windows),
            beams: Arc::clone(beams),
            places: queue.zeros(batch)?,
            firsts: queue.zeros(batch)?,
            weights: queue.zeros(batch * count.max(1))?,
            sums: queue.zeros(batch * window)?,
            queue,
        })
    }

    // A worker that sums beams
    /// What sums the shares of beams, one of so many `queues`.
    fn windows_of<'a, T: Real>(
        &'a self,
        shares: Vec<BeamShare<T>>,
        prism: &Prism,
        queues: usize,
    ) -> Result<DeviceWindows<'a, T>, Error> {
        let (batch, queue) = (self.summed::<T>(), &shares[0].queue);
        let detectors = Arc::new(DetectorsGpu::<T>::new(queue, &self.detectors)?);
        let waves = self.probes().len() * self.options.ends.len();
        let readings = Mutex::new(Readings::new(queue, &detectors, waves, batch)?);
        Ok(DeviceWindows { plan: self, prism: prism.clone(), shares, readings, batch, queues })
    }

    // Workers of a device with all beams
    /// The workers of a device that holds all beams, one for each of its queues, where so many devices sum.
    fn windows_of_device<'a, T: Real>(
        &'a self,
        gpu: &Gpu,
        (windows, beams): WindowsAndBeams<T>,
        prism: &Prism,
        devices: usize,
    ) -> Result<Vec<Box<dyn Waves + 'a>>, Error> {
        let mut workers: Vec<Box<dyn Waves + 'a>> = Vec::new();
        for queue in [gpu.clone(), gpu.stream()?] {
            let share = self.sums(queue, &windows, &beams, prism.beams())?;
            workers.push(Box::new(self.windows_of(vec![share], prism, QUEUES * devices)?));
        }
        Ok(workers)
    }
}

// Computed beams and their windows
/// Number of a device, and the beams that it has computed.
type ComputedBeams = (usize, Range<usize>);

/// Kernels that sum beams in windows, and the beams behind each end.
type WindowsAndBeams<T> = (Arc<WindowsGpu<T>>, Arc<Vec<BeamsGpu<T>>>);

// Beams stored on a device
/// Planes of all beams behind each end on a device, and the kernels that transform and sum them.
struct BeamStore<T> {
    planes: Vec<Buffer<Complex<T>>>,
    back: PlanesGpu<T>,
    windows: Arc<WindowsGpu<T>>,
}

impl<T: Real> BeamStore<T> {
    /// Memory for all beams; none where there are no kernels for the grid.
    fn new(
        plan: &StemPlan,
        gpu: &Gpu,
        (prism, refocus): (&Prism, f64),
    ) -> Result<Option<Self>, Error> {
        let options = &plan.options;
        let back = PlanesGpu::new(gpu, &options.grid, &prism.back(&options.probe.beam, refocus))?;
        let (Some(back), Some(windows)) = (back, WindowsGpu::new(gpu, &plan.waves)?) else {
            return Ok(None);
        };
        let planes = options.ends.iter().map(|_| gpu.zeros(prism.beams() * plan.kept()));
        let planes = planes.collect::<Result<_, _>>()?;
        gpu.synchronise()?;
        Ok(Some(Self { planes, back, windows: Arc::new(windows) }))
    }

    // Transform stored spectra to planes
    /// The kernels that sum, and the beams behind each end, in focus.
    fn finish(
        self,
        plan: &StemPlan,
        gpu: &Gpu,
        prism: &Prism,
    ) -> Result<WindowsAndBeams<T>, Error> {
        let (mut beams, count) = (Vec::new(), prism.beams());
        for planes in self.planes {
            self.back.back(gpu, &planes, count)?;
            beams.push(BeamsGpu::of_planes(gpu, prism, planes, 0..count, plan.probes())?);
        }
        gpu.synchronise()?;
        Ok((self.windows, Arc::new(beams)))
    }
}

// Exchange beams between devices
/// Copies the beams that each device has computed, of so many pixels each, to all others.
fn exchange<T: Real>(
    stores: &[BeamStore<T>],
    ranges: &[ComputedBeams],
    plane: usize,
) -> Result<(), Error> {
    if stores.len() == 1 {
        return Ok(());
    }
    for (from, which) in ranges {
        for (end, planes) in stores[*from].planes.iter().enumerate() {
            let part = which.start * plane..which.end * plane;
            let computed = planes.view(part.clone()).read()?;
            for (_, other) in stores.iter().enumerate().filter(|(to, _)| to != from) {
                other.planes[end].view(part.clone()).write(&computed)?;
            }
        }
    }
    Ok(())
}

// Read sums of beams
impl<T: Real> Waves for DeviceWindows<'_, T> {
    fn batch(&self, probes: usize) -> usize {
        even(probes, self.queues, self.batch)
    }

    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        // Send positions to all devices
        let mut readings = lock(&self.readings);
        let (count, [width, height]) = (places.len(), self.plan.waves.lengths());
        let in_cells: Vec<_> = places.iter().map(|[x, y]| [x / width, y / height]).collect();
        let first = |place: &[f64; 2]| self.prism.first_pixel(*place).map(|k| k as i32);
        let firsts: Vec<_> = places.iter().map(first).collect();
        for share in &self.shares {
            share.places.view(..count).on(&share.queue)?.write(&in_cells)?;
            share.firsts.view(..count).on(&share.queue)?.write(&firsts)?;
        }
        let (first, ends) = (&self.shares[0], self.plan.options.ends.len());
        for d in 0..self.plan.probes().len() {
            for e in 0..ends {
                check(watch)?;
                self.sum(d, e, count)?;
                first.windows.transform(&first.queue, first.sums.view(..), count)?;
                readings.read(&first.queue, &first.sums, count, d * ends + e)?;
            }
        }
        readings.fetch(&first.queue, count, self.plan.readings())
    }
}

// Add the sums of all devices
impl<T: Real> DeviceWindows<'_, T> {
    /// Sums the beams behind end `e` of `count` probes of defocus `d`, on the first device.
    fn sum(&self, d: usize, e: usize, count: usize) -> Result<(), Error> {
        for share in &self.shares {
            let at = (share.places.view(..), share.firsts.view(..));
            let workspace = [share.weights.view(..), share.sums.view(..)];
            share.windows.sum(&share.queue, &share.beams[e], d, at, workspace, count)?;
        }
        let [first, others @ ..] = &self.shares[..] else { return Ok(()) };
        if others.is_empty() {
            return Ok(());
        }
        let mut whole: Vec<Complex<T>> = first.sums.read()?;
        for other in others {
            let some: Vec<Complex<T>> = other.sums.read()?;
            whole.iter_mut().zip(some).for_each(|(all, some)| *all += some);
        }
        first.sums.write(&whole)
    }
}

// Tests of scans on devices
#[cfg(test)]
mod tests {
    use super::super::tests::{options, plan, prism_plan};
    use super::super::{StemOptions, StemReadings};
    use super::*;
    use crate::device::gpu::{emulated, test_backends};
    use crate::electrons::Scan;
    use crate::numerics::Precision;
    use crate::plan::Plan;
    use crate::watch::unwatched;

    /// Readings of some places, by all devices of an engine.
    fn read(plan: &StemPlan, engine: &Engine) -> Array2<f64> {
        let (mut readings, mut keep) = (plan.begin(5..9).unwrap(), |_: &StemReadings| Ok(()));
        let (end, watch) = (plan.configurations(), &unwatched);
        match engine.precision() {
            Precision::F32 => plan.run_all::<f32>(engine, &mut readings, end, watch, &mut keep),
            Precision::F64 => plan.run_all::<f64>(engine, &mut readings, end, watch, &mut keep),
        }
        .unwrap();
        readings.mean
    }

    fn gap(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
        (a - b).fold(0.0, |most: f64, gap| most.max(gap.abs()))
    }

    #[test]
    fn scans_on_devices_are_those_of_cores() {
        for (plan, precision, bound) in [
            (plan(0), Precision::F64, 1e-12),
            (plan(2), Precision::F32, 1e-5),
            (prism_plan(), Precision::F64, 1e-12),
            (prism_plan(), Precision::F32, 1e-5),
        ] {
            let here = read(&plan, &Engine::cpu(precision));
            for gpu in test_backends() {
                let there = read(&plan, &Engine::gpus(vec![gpu.clone()], precision).unwrap());
                let gap = gap(&there, &here);
                assert!(gap < bound && gap > 0.0, "{}: {gap:e}", gpu.name());
            }
        }
    }

    // Devices and cores share a scan
    #[test]
    fn devices_and_cores_share_a_scan() {
        for plan in [plan(0), prism_plan()] {
            let alone = read(&plan, &Engine::cpu(Precision::F64));
            let devices = emulated(2);
            let engine = Engine::gpus(devices, Precision::F64).unwrap();
            let [two, mixed] =
                [engine.clone(), engine.clone().with_cores()].map(|engine| read(&plan, &engine));
            assert!(gap(&two, &alone) < 1e-12 && gap(&mixed, &alone) < 1e-12);
            // Several devices would not finish so small a scan sooner.
            let first = engine.first_device();
            let [several, one] = [&engine, &first].map(|engine| plan.describe(engine).unwrap());
            assert!(several.method.ends_with(", by one device alone"), "{}", several.method);
            assert_eq!((several.stages, several.engine), (one.stages, one.engine));
            let scan = Scan::new([[0.0, 6.4], [1.0, 4.0]], [0.0008, 0.0007]).unwrap();
            let dense = StemPlan { options: StemOptions { scan, ..plan.options.clone() }, ..plan };
            let description = dense.describe(&engine).unwrap();
            assert_eq!(description.engine, engine.name());
        }
    }

    // One device and several agree
    #[test]
    fn one_device_and_several_give_the_same_bits() {
        let cases = [
            (plan(0), Precision::F64),
            (prism_plan(), Precision::F64),
            (prism_plan(), Precision::F32),
        ];
        for (plan, precision) in cases {
            let engines = [1, 2, 3].map(|count| Engine::gpus(emulated(count), precision).unwrap());
            let [one, two, three] = engines.map(|engine| read(&plan, &engine));
            assert!(one == two && one == three);
        }
    }

    // Slices pass through a device without room
    #[test]
    fn slices_pass_through_a_device_without_room() {
        let plan = StemPlan { options: options(0), ..plan(0) };
        let batches = [(129, 2, 64), (4, 2, 64), (1, 2, 9), (0, 2, 3)];
        assert_eq!(batches.map(|(waves, queues, most)| even(waves, queues, most)), [33, 2, 1, 1]);
        let ample = plan.layout(16, u64::MAX);
        let least = plan.layout(16, ample.bytes - 1);
        assert!(ample.resident && !least.resident && least.bytes < ample.bytes);
        assert_eq!(plan.layout(16, ample.bytes), ample);
        let engine = Engine::gpus(emulated(1), Precision::F64).unwrap();
        let followers = plan.workers_on_device::<f64>(&engine, 4).unwrap();
        assert!(followers.iter().all(|follower| follower.holds()));
        let places: Vec<_> = (5..9).map(|k| plan.options.scan.place(k)).collect();
        let slices = plan.slices(0, &unwatched).unwrap();
        let passing = plan.crew_within::<f64>(&engine, 4, 0).unwrap();
        assert!(!passing.iter().any(|follower| follower.holds()));
        let workers = plan.waves(&passing, &slices, &engine, &unwatched).unwrap();
        let found = plan.shared(&workers, &places, &unwatched).unwrap();
        let expected = read(&plan, &Engine::cpu(Precision::F64));
        assert!(gap(&found, &expected) < 1e-12);
    }

    // Beams are spread over devices without room
    #[test]
    fn beams_are_spread_over_devices_without_room() {
        let plan = prism_plan();
        let engine = Engine::cpu(Precision::F64);
        let followers = plan.followers::<f64>(&engine, 4).unwrap();
        let slices = plan.slices(0, &unwatched).unwrap();
        let (prism, refocus) = plan.prism().unwrap().unwrap();
        let matrices = plan.matrices(&followers, &slices, (&prism, refocus), &unwatched).unwrap();
        let places: Vec<_> = (5..9).map(|k| plan.options.scan.place(k)).collect();
        let expected = read(&plan, &engine);
        for (devices, whole, workers) in [(3, false, 1), (2, true, 4)] {
            let there = plan.windows_shared(&emulated(devices), &matrices, whole).unwrap();
            assert_eq!(there.len(), workers);
            let found = plan.shared(&there, &places, &unwatched).unwrap();
            assert!(gap(&found, &expected) < 1e-12 && gap(&found, &expected) > 0.0);
        }
    }
}
