// Tangled from book/src/device.md: edit there, or here and run cargo tangle stitch.
//! The machine: its memory, its cores, its graphics processors.

// Modules and imports of devices
#[cfg(feature = "cuda")]
pub(crate) mod authentication;
#[cfg(feature = "cuda")]
pub(crate) mod cache;
pub(crate) mod collective;
pub(crate) mod rank_group;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
mod dispatch;
#[cfg(test)]
pub(crate) mod emulator;
pub(crate) mod engine;
pub mod gpu;
pub(crate) mod headers;
pub(crate) mod backend;
#[cfg(feature = "cuda")]
pub(crate) mod rendezvous;
mod memory;
pub(crate) mod rank_info;
mod calibration;
#[cfg(any(feature = "cuda", feature = "files"))]
pub(crate) mod temporary;

pub use self::calibration::{CostKind, Speed};
#[cfg(feature = "cuda")]
pub use self::cuda::library_search::add_library_folder;
pub use self::dispatch::threads;
pub(crate) use self::dispatch::{Workers, dispatch, dispatch_in_runs, gather, lock, start_threads};
pub use self::engine::Engine;
pub use self::gpu::{Buffer, Gpu};
pub(crate) use self::memory::refuse_beyond_memory;
pub use self::memory::{available_memory, processor_name};
pub use self::rank_info::RankInfo;
use crate::error::Invalid;
use std::fmt;
use std::str::FromStr;

// Device to compute on
/// Where to compute: `cpu`, `cuda` (all graphics processors), or `cuda:K` (one of them).
///
/// ```
/// use lenslet::device::Device;
/// assert_eq!("cuda:1".parse(), Ok(Device::Cuda(Some(1))));
/// assert_eq!(Device::Cuda(None).to_string(), "cuda");
/// assert!("gpu".parse::<Device>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Device {
    /// All cores of this machine.
    #[default]
    Cpu,
    /// A CUDA device, by its ordinal; `None` is all of them.
    Cuda(Option<usize>),
}

// Read and write a device's name
impl FromStr for Device {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("device", name, "cpu, cuda, or cuda:K with K = 0, 1, …");
        match name.split_once(':') {
            None if name == "cpu" => Ok(Self::Cpu),
            None if name == "cuda" => Ok(Self::Cuda(None)),
            Some(("cuda", ordinal)) => {
                ordinal.parse().map(|ordinal| Self::Cuda(Some(ordinal))).map_err(|_| refuse())
            }
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(ordinal)) => write!(f, "cuda:{ordinal}"),
        }
    }
}

// Error without CUDA
/// The error of a build that cannot open a device.
#[cfg(not(feature = "cuda"))]
fn without_cuda(device: &str) -> crate::error::Error {
    let reason = "this build has no CUDA: it lacks the feature `cuda`".into();
    crate::error::Error::Device { device: device.into(), reason }
}

// Tests of devices
#[cfg(test)]
mod tests {
    use super::*;

    // Check names and refusals of devices
    #[test]
    fn devices_are_named_and_refused() {
        for device in [Device::Cpu, Device::Cuda(None), Device::Cuda(Some(3))] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for name in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "CUDA"] {
            assert!(name.parse::<Device>().is_err(), "{name}");
        }
    }

    // Compare the machine with the files of its system
    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_is_that_of_its_system() {
        let value = |file: &str, key: &str| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let value = lines.find(|(name, _)| name.trim() == key);
            value.map(|(_, value)| value.trim().to_string())
        };
        // Of some architectures the system does not print a name.
        if let Some(name) = value("/proc/cpuinfo", "model name").filter(|name| !name.is_empty()) {
            assert_eq!(processor_name(), name);
        }
        let total = value("/proc/meminfo", "MemTotal").unwrap().replace(" kB", "");
        let total = 1024 * total.parse::<u64>().unwrap();
        let available = available_memory().unwrap();
        assert!((total / 10_000..=total).contains(&available), "{available} of {total} bytes");
    }
}
