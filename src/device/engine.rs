// Tangled from book/src/cuda-machine.md: edit there, or here and run cargo tangle stitch.
//! Where a computation runs.

use super::gpu::Gpu;
use super::{Device, cuda, threads};
use crate::error::Error;
use crate::numerics::real::Precision;

// Engines of computations
/// Where something is computed.
#[derive(Debug, Clone)]
pub enum Engine {
    /// On all cores of this machine, in double precision.
    Cpu,
    /// On graphics processors, in the precision given.
    Gpus(Vec<Gpu>, Precision),
}

impl Engine {
    // Open the engine of a device
    /// The engine of a device: all graphics processors for `cuda`. The processor ignores the precision.
    ///
    /// # Errors
    /// `Device` where there is no such device, with the reason.
    pub fn open(device: Device, precision: Precision) -> Result<Self, Error> {
        match device {
            Device::Cpu => Ok(Self::Cpu),
            Device::Cuda(_) => Ok(Self::Gpus(cuda::open(device)?, precision)),
        }
    }

    // Name an engine for a person
    /// `2 threads`, or `cuda:0 (NVIDIA H200), f64`.
    pub fn name(&self) -> String {
        match self {
            Self::Cpu if threads() == 1 => "1 thread".into(),
            Self::Cpu => format!("{} threads", threads()),
            Self::Gpus(gpus, precision) => {
                let names: Vec<_> = gpus.iter().map(Gpu::name).collect();
                format!("{}, {}", names.join(", "), precision.name())
            }
        }
    }

    // Refuse what runs on the processor only
    /// Refuses a graphics processor for `what`.
    ///
    /// # Errors
    /// `Device`.
    pub fn require_cpu(&self, what: &str) -> Result<(), Error> {
        let Self::Gpus(gpus, _) = self else { return Ok(()) };
        let device = gpus.first().map_or("cuda", Gpu::name).to_string();
        Err(Error::Device {
            device,
            reason: format!("{what} is computed on the CPU only; use cpu"),
        })
    }
}
