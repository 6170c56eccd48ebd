// Tangled from book/src/engines.md: edit there, or here and run cargo tangle stitch.
//! Where a computation runs.

use super::calibration::Speed;
use super::gpu::Gpu;
use super::rank_group::RankGroup;
use super::rank_info::RankInfo;
use super::{Device, start_threads, threads};
use crate::error::{Error, Invalid, accept, count};
use crate::numerics::real::Precision;
use std::sync::Arc;

// Engines of computations
/// The cores and devices of a computation, and its precision.
///
/// ```
/// use lenslet::device::{Device, Engine};
/// use lenslet::numerics::Precision;
/// let engine = Engine::open(Device::Cpu, Precision::F32)?;
/// assert!(engine.has_cores() && engine.devices().is_empty());
/// assert!(engine.name().contains("thread"));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Engine {
    cores: bool,
    devices: Vec<Gpu>,
    precision: Precision,
    /// Speed of one of the devices, or of a thread where there is none.
    speed: Speed,
    /// The devices as ranks of one computation.
    rank_group: Arc<RankGroup>,
}

// Steps of an engine
impl Engine {
    // Make an engine of its workers
    /// All cores of this machine.
    pub fn cpu(precision: Precision) -> Self {
        Self::of(true, Vec::new(), precision)
    }

    /// Graphics processors alone; one that is listed twice computes two pieces at a time.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    pub fn gpus(devices: Vec<Gpu>, precision: Precision) -> Result<Self, Invalid> {
        accept(!devices.is_empty(), "devices", 0, "at least one")?;
        Ok(Self::of(false, devices, precision))
    }

    fn of(cores: bool, devices: Vec<Gpu>, precision: Precision) -> Self {
        Self { cores, devices, precision, speed: Speed::default(), rank_group: Arc::default() }
    }

    /// The engine with the first of its devices alone.
    pub(crate) fn first_device(&self) -> Self {
        let devices = self.devices.iter().take(1).cloned().collect();
        Self { devices, ..self.clone() }
    }

    /// Adds the cores of this machine to the devices.
    pub fn with_cores(self) -> Self {
        Self { cores: true, ..self }
    }

    /// Sets the speed by which plans estimate times: that of one device, or of a thread where there are no devices.
    pub fn with_speed(self, speed: Speed) -> Self {
        Self { speed, ..self }
    }

    // Open the engine of a device
    /// The engine of a device: all graphics processors for `cuda`.
    ///
    /// # Errors
    /// `Device` where there is no such device, with the reason; `Failed` where no thread can be started.
    pub fn open(device: Device, precision: Precision) -> Result<Self, Error> {
        start_threads(false)?;
        match device {
            Device::Cpu => Ok(Self::cpu(precision)),
            Device::Cuda(_) => Ok(Self::gpus(open_gpus(device)?, precision)?),
        }
    }

    // Make an engine a rank of several
    // Join other processes
    /// Engine of one of several processes, each with one device: they compute one reconstructor, which rank 0 returns. Their
    /// rendezvous takes place when the computation begins.
    ///
    /// # Errors
    /// `Invalid` where it has no device, or more than one.
    pub fn with_rank_info(self, rank_info: RankInfo) -> Result<Self, Invalid> {
        let devices = self.devices.len();
        let expected = format!(
            "1, or one graphics processor for each rank (--device cuda), and not {devices}"
        );
        accept(devices == 1, "ranks", rank_info.ranks, &expected)?;
        Ok(Self { rank_group: Arc::new(RankGroup::with_rank_info(rank_info)), ..self })
    }

    // Ranks of an engine
    /// The devices as ranks of one computation.
    pub(crate) fn rank_group(&self) -> &RankGroup {
        &self.rank_group
    }

    /// First rank of this process, and the number of ranks of all processes; each device is a rank.
    pub fn place(&self) -> [usize; 2] {
        self.rank_group.place(self.devices.len())
    }

    // Workers of an engine
    /// Whether the cores of this machine take part.
    pub fn has_cores(&self) -> bool {
        self.cores
    }

    /// The graphics processors that take part.
    pub fn devices(&self) -> &[Gpu] {
        &self.devices
    }

    /// Whether each graphics processor that takes part has so many bytes of free memory.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.devices.iter().all(|gpu| gpu.refuse_beyond_memory(bytes, "").is_ok())
    }

    /// The precision of the numbers.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Speed of one of its devices, or of one of its threads where it has none.
    pub fn speed(&self) -> &Speed {
        &self.speed
    }

    // Name an engine for a person
    /// `2 threads`, or `cuda:0 (NVIDIA H200), f64`, or `cuda:0 (NVIDIA H200), 2 threads, f64`.
    pub fn name(&self) -> String {
        let threads = count(threads(), "thread");
        if self.devices.is_empty() {
            return threads;
        }
        let mut names: Vec<_> = self.devices.iter().map(Gpu::name).collect();
        names.extend(self.cores.then_some(threads.as_str()));
        let names = format!("{}, {}", names.join(", "), self.precision.name());
        match self.place() {
            [rank, ranks] if ranks > self.devices.len() => {
                format!("rank {rank} of {ranks}: {names}")
            }
            _ => names,
        }
    }

    // Refuse what runs on the processor only
    /// Rejects a graphics processor for the computation `what`.
    ///
    /// # Errors
    /// `Device`.
    pub fn require_cpu(&self, what: &str) -> Result<(), Error> {
        let Some(gpu) = self.devices.first() else { return Ok(()) };
        let reason = format!("{what} is computed on the CPU only; use cpu");
        Err(Error::Device { device: gpu.name().into(), reason })
    }

    // Refuse single precision on the processor
    /// Rejects single precision on the CPU for the computation `what`, which it has in double precision only.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn require_double_on_cpu(&self, what: &str) -> Result<(), Invalid> {
        let double = !self.devices.is_empty() || self.precision == Precision::F64;
        let expected = format!("f64, as the CPU computes {what} in double precision only");
        if double { Ok(()) } else { Err(Invalid::new("precision", "f32", expected)) }
    }
}

// Open graphics processors
/// Opens all graphics processors of a device.
///
/// # Errors
/// `Device` where there are none, with the reason.
pub(crate) fn open_gpus(device: Device) -> Result<Vec<Gpu>, Error> {
    #[cfg(feature = "cuda")]
    return super::cuda::open(device);
    #[cfg(not(feature = "cuda"))]
    Err(super::without_cuda(&device.to_string()))
}

// Engine unless another is wanted
impl Default for Engine {
    /// All cores of this machine, in double precision.
    fn default() -> Self {
        Self::cpu(Precision::F64)
    }
}
