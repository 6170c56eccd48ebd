// Tangled from book/src/device.md: edit there, or here and run cargo tangle stitch.
//! The machine: its memory, its cores, its graphics processors.

pub mod gpu;
pub mod cuda;
pub mod engine;
pub(crate) mod headers;
#[cfg(test)]
pub(crate) mod emulator;

use crate::error::{Error, Invalid};
use rayon::prelude::*;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

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

// What there is of CUDA
/// A graphics processor as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDevice {
    /// Its number, from 0.
    pub ordinal: usize,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// Its compute capability, major and minor: (9, 0).
    pub compute_capability: (i32, i32),
    /// Bytes of shared memory that a block of threads may have.
    pub shared_memory: usize,
}

/// A CUDA driver that works, and its devices, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDriver {
    /// The newest version of CUDA that it knows, major and minor: (13, 0).
    pub version: (i32, i32),
    /// Its devices by ordinal.
    pub devices: Vec<CudaDevice>,
}
/// What a look for CUDA on this machine found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaProbe {
    /// The driver with its devices, or why there is none to use.
    pub driver: Result<CudaDriver, NoCuda>,
    /// The libraries that we would use, and why one of them is of no use.
    pub libraries: [(&'static str, Result<(), NoCuda>); 3],
}

// Ways to have no CUDA device
/// Why there is no CUDA device to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCuda {
    /// The library `libcuda` is not installed, or not where the loader looks.
    #[error("no CUDA driver library (libcuda) was found on this machine")]
    NoLibrary,
    /// The driver library is there, but it does not start.
    #[error("the CUDA driver library does not start: {0}")]
    DriverFailed(String),
    /// The driver is older than the oldest that we support.
    #[error("the driver knows CUDA {}.{}, and at least {}.0 is needed", .0.0, .0.1, OLDEST_CUDA)]
    DriverTooOld((i32, i32)),
    // Ways to see no such device
    /// The driver sees no device.
    #[error("the CUDA driver sees no device (is one hidden by CUDA_VISIBLE_DEVICES?)")]
    NoDevice,
    /// There are devices, but none with this number.
    #[error("there is no device {ordinal}: the machine has {found}, numbered from 0")]
    NoSuchOrdinal {
        /// The ordinal that was asked for.
        ordinal: usize,
        /// How many devices there are.
        found: usize,
    },
    // Ways to lack a library's functions
    /// A library of the CUDA toolkit is not installed, or not where the loader looks.
    #[error(
        "the library {0} was not found; it comes with the CUDA toolkit, version {OLDEST_CUDA} or later"
    )]
    NoToolkit(&'static str),
    /// A library is there, but a function that we call is not in it.
    #[error(
        "the library {library} has no function {function}; is its version {OLDEST_CUDA} or later?"
    )]
    NoFunction {
        /// The library, such as `nvrtc`.
        library: &'static str,
        /// The function.
        function: &'static str,
    },
}

/// Major version of the oldest CUDA that is supported.
const OLDEST_CUDA: i32 = 12;

// Look for CUDA
/// Looks for CUDA on this machine. Never panics, and needs neither driver nor toolkit.
pub fn probe() -> CudaProbe {
    let toolkit = [Library::Nvrtc, Library::Cufft, Library::Cublas];
    let libraries = toolkit.map(|library| (library.name(), require(library)));
    let driver = match require(Library::Driver) {
        Ok(()) => ask_driver(),
        Err(NoCuda::NoToolkit(_)) => Err(NoCuda::NoLibrary),
        Err(reason) => Err(too_old().unwrap_or(reason)),
    };
    CudaProbe { driver, libraries }
}

// Require a library and its functions
/// A library of NVIDIA's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    Driver,
    Nvrtc,
    Cufft,
    Cublas,
}

/// Refuses where a library, or a function of it that we call, is missing.
#[allow(unsafe_code)]
pub(crate) fn require(library: Library) -> Result<(), NoCuda> {
    // SAFETY: opens NVIDIA's library by its well-known name; no function of it is called.
    let present = unsafe {
        match library {
            Library::Driver => cudarc::driver::sys::is_culib_present(),
            Library::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
            Library::Cufft => cudarc::cufft::sys::is_culib_present(),
            Library::Cublas => cudarc::cublas::sys::is_culib_present(),
        }
    };
    if !present {
        return Err(NoCuda::NoToolkit(library.name()));
    }
    let missing = library.functions().iter().find(|function| !has(library, function));
    missing.map_or(Ok(()), |function| Err(NoCuda::NoFunction { library: library.name(), function }))
}

// See whether a library has a function
#[allow(unsafe_code)]
fn has(library: Library, function: &str) -> bool {
    // SAFETY: the library was found present; a symbol is looked up by its name and not used.
    unsafe {
        let library = match library {
            Library::Driver => cudarc::driver::sys::culib(),
            Library::Nvrtc => cudarc::nvrtc::sys::culib(),
            Library::Cufft => cudarc::cufft::sys::culib(),
            Library::Cublas => cudarc::cublas::sys::culib(),
        };
        library.get::<unsafe extern "C" fn()>(function.as_bytes()).is_ok()
    }
}

// Functions that we call
impl Library {
    fn name(self) -> &'static str {
        match self {
            Self::Driver => "cuda",
            Self::Nvrtc => "nvrtc",
            Self::Cufft => "cufft",
            Self::Cublas => "cublas",
        }
    }

    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &DRIVER,
            Self::Nvrtc => &NVRTC,
            Self::Cufft => {
                &["cufftPlanMany", "cufftSetStream", "cufftExecC2C", "cufftExecZ2Z", "cufftDestroy"]
            }
            // Functions of matrix products
            Self::Cublas => &[
                "cublasCreate_v2",
                "cublasSetStream_v2",
                "cublasSgemv_v2",
                "cublasDgemv_v2",
                "cublasDestroy_v2",
            ],
        }
    }
}

// Functions of driver and compiler
#[rustfmt::skip]
const DRIVER: [&str; 36] = [
    "cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName",
    "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2", "cuStreamCreate", "cuStreamSynchronize", "cuStreamDestroy_v2", "cuStreamBeginCapture_v2",
    "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphLaunch", "cuGraphExecDestroy",
    "cuEventCreate", "cuEventRecord", "cuEventDestroy_v2", "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
    "cuFuncSetAttribute", "cuLaunchKernel", "cuLaunchKernelEx", "cuGetErrorName",
];

const NVRTC: [&str; 11] = [
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetPTX",
    "nvrtcGetPTXSize",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
];

// Ask the driver for its devices
fn ask_driver() -> Result<CudaDriver, NoCuda> {
    use cudarc::driver::{result, sys::CUresult};
    let version = driver_version()?;
    if let Some(reason) = too_old() {
        return Err(reason);
    }
    match result::init() {
        Err(error) if error.0 == CUresult::CUDA_ERROR_NO_DEVICE => return Err(NoCuda::NoDevice),
        started => started.map_err(driver_failed)?,
    }
    let count = result::device::get_count().map_err(driver_failed)?;
    let devices: Vec<_> =
        (0..count).map(describe).collect::<Result<_, _>>().map_err(driver_failed)?;
    if devices.is_empty() { Err(NoCuda::NoDevice) } else { Ok(CudaDriver { version, devices }) }
}

/// That the driver is too old, if it is; its version is the one question that every driver answers.
fn too_old() -> Option<NoCuda> {
    let version = has(Library::Driver, "cuDriverGetVersion").then(driver_version)?.ok()?;
    (version.0 < OLDEST_CUDA).then_some(NoCuda::DriverTooOld(version))
}

fn driver_failed(error: cudarc::driver::DriverError) -> NoCuda {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    NoCuda::DriverFailed(format!(
        "{} ({:?})",
        text.unwrap_or_else(|_| "unknown error".into()),
        error.0
    ))
}

// Ask for version and properties
#[allow(unsafe_code)]
fn driver_version() -> Result<(i32, i32), NoCuda> {
    let mut version = 0;
    // SAFETY: writes one integer through a pointer that is valid; may be called before the driver is started.
    unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(driver_failed)?;
    Ok((version / 1000, version % 1000 / 10))
}

// Describe a device
#[allow(unsafe_code)]
fn describe(ordinal: i32) -> Result<CudaDevice, cudarc::driver::DriverError> {
    use cudarc::driver::{result::device, sys::CUdevice_attribute as Attribute};
    let handle = device::get(ordinal)?;
    // SAFETY: the handle comes from `device::get`, which is all that these functions ask for.
    let (memory, [major, minor, shared]) = unsafe {
        let attribute = |name| device::get_attribute(handle, name);
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let shared = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        (device::total_mem(handle)? as u64, [major, minor, attribute(shared)?])
    };
    Ok(CudaDevice {
        ordinal: ordinal as usize,
        name: device::get_name(handle)?,
        memory,
        compute_capability: (major, minor),
        shared_memory: shared.max(0) as usize,
    })
}

// Decide whether a device can compute
impl CudaProbe {
    /// The device with this ordinal, or the first.
    pub fn device(&self, ordinal: Option<usize>) -> Result<&CudaDevice, NoCuda> {
        let devices = &self.driver.as_ref().map_err(Clone::clone)?.devices;
        let ordinal = ordinal.unwrap_or(0);
        devices.get(ordinal).ok_or(NoCuda::NoSuchOrdinal { ordinal, found: devices.len() })
    }
}

// Spread work over the cores
/// Is told how many pieces are done, and of how many; from any thread.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// The progress report that nobody reads.
pub fn silent(_done: usize, _total: usize) {}

/// Does `work` on every item, one by one on all cores; the results are in the items' order.
///
/// ```
/// use lenslet::device::{dispatch, silent};
/// assert_eq!(dispatch(&[1, 2, 3], &silent, |k| k * k), [1, 4, 9]);
/// ```
pub fn dispatch<T: Sync, R: Send>(
    items: &[T],
    progress: Progress,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let done = AtomicUsize::new(0);
    let pieces = items.par_iter().with_max_len(1).map(|item| {
        let result = work(item);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, items.len());
        result
    });
    pieces.collect()
}
/// Does `work` on every item, by all `workers` from one queue; the results are in the items' order.
///
/// # Errors
/// One that `work` returned, the first in the items' order; items that were not begun then are left.
///
/// ```
/// use lenslet::device::{dispatch_on, silent};
/// let squares = dispatch_on(&["one", "two"], &[1, 2, 3], &silent, |_, k| Ok::<_, ()>(k * k));
/// assert_eq!(squares, Ok(vec![1, 4, 9]));
/// ```
pub fn dispatch_on<W: Sync, T: Sync, R: Send, E: Send>(
    workers: &[W],
    items: &[T],
    progress: Progress,
    work: impl Fn(&W, &T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Serve the queue as a worker
    let serve = |worker: &W| {
        let mut results = Vec::new();
        while let Some((k, item)) = take(items, &next) {
            // Do one piece of a worker
            let result = work(worker, item);
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            results.push((k, result));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, items.len());
        }
        results
    };
    // Let every worker serve the queue
    if let [only] = workers {
        return serve(only).into_iter().map(|(_, result)| result).collect();
    }
    let mut results: Vec<(usize, Result<R, E>)> = std::thread::scope(|scope| {
        let serve = &serve;
        let threads: Vec<_> =
            workers.iter().map(|worker| scope.spawn(move || serve(worker))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<_>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(join).collect()
    });
    results.sort_by_key(|(k, _)| *k);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The next item of a queue, with its number.
fn take<'a, T>(items: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let k = next.fetch_add(1, Ordering::Relaxed);
    items.get(k).map(|item| (k, item))
}
/// Threads that [`dispatch`] spreads its work over.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

// Measure the available memory
/// Memory that this process could still use, in bytes; `None` where the system does not tell.
pub fn available_memory() -> Option<u64> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory();
    let limit = system
        .cgroup_limits()
        .map_or(u64::MAX, |limits| limits.total_memory.saturating_sub(limits.rss));
    Some(system.available_memory().min(limit)).filter(|&bytes| bytes > 0)
}
/// Refuses `what`, which needs so many bytes, where fewer are available now.
///
/// # Errors
/// `Memory`. Where the system does not tell what is available, nothing is refused.
pub fn refuse_beyond_memory(needed: u64, what: impl Fn() -> String) -> Result<(), Error> {
    available_memory().map_or(Ok(()), |available| refuse(needed, available, what))
}

/// Refuses `what`, which needs so many bytes, where fewer are available.
fn refuse(needed: u64, available: u64, what: impl Fn() -> String) -> Result<(), Error> {
    if needed <= available {
        return Ok(());
    }
    Err(Error::Memory { what: what(), needed, available })
}
/// What the processor calls itself, such as `AMD EPYC`; `processor of unknown name` where it does not.
pub fn processor_name() -> String {
    let mut system = sysinfo::System::new().ok();
    let brand = system.as_mut().and_then(|system| {
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        system.cpus().first().map(|cpu| cpu.brand().trim().to_string())
    });
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| "processor of unknown name".into())
}

// Tests of devices and dispatch
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

    // Check a probe against itself
    #[test]
    fn probe_answers_on_every_machine() {
        let found = probe();
        match (&found.driver, found.device(Some(9999))) {
            (Ok(driver), Err(NoCuda::NoSuchOrdinal { ordinal: 9999, found })) => {
                assert_eq!(found, driver.devices.len());
                assert!(driver.devices.iter().all(|device| device.memory > 1 << 28));
            }
            (Err(reason), Err(same)) => assert_eq!(*reason, same),
            other => panic!("{other:?}"),
        }
        let old = NoCuda::DriverTooOld((11, 4)).to_string();
        assert_eq!(old, "the driver knows CUDA 11.4, and at least 12.0 is needed");
    }

    // Check order and progress of dispatch
    #[test]
    fn dispatch_keeps_the_order_and_counts() {
        let (items, most) = ((0..1000).collect::<Vec<usize>>(), AtomicUsize::new(0));
        let squares = dispatch(
            &items,
            &|done, total| {
                assert!(done <= total);
                most.fetch_max(done, Ordering::Relaxed);
            },
            |k| k * k,
        );
        assert!(squares.iter().enumerate().all(|(k, square)| *square == k * k));
        assert_eq!(most.into_inner(), 1000);
        assert!(threads() >= 1 && available_memory().is_none_or(|bytes| bytes > 1 << 20));
        assert!(processor_name().len() > 2);
    }
}
