// Tangled from book/src/cuda-detection.md: edit there, or here and run cargo tangle stitch.
//! What there is of CUDA on this machine.

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

// What a look for CUDA finds
/// What a look for CUDA on this machine found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaProbe {
    /// The driver with its devices, or why there is none to use.
    pub driver: Result<CudaDriver, NoCuda>,
    /// The libraries that we would use, and why one of them is of no use.
    pub libraries: [(&'static str, Result<(), NoCuda>); 4],
}

// Ways to have no CUDA device
/// Why there is no CUDA device to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
    let toolkit = [Library::Nvrtc, Library::Cufft, Library::Cublas, Library::Cusolver];
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
    Cusolver,
}

// Require a library before its calls
/// Refuses where a library, or a function of it that we call, is missing.
#[allow(unsafe_code)]
pub(crate) fn require(library: Library) -> Result<(), NoCuda> {
    // SAFETY: opens NVIDIA's library by its well-known name; no function of it is called.
    // Search for a library by name
    let present = unsafe {
        match library {
            Library::Driver => cudarc::driver::sys::is_culib_present(),
            Library::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
            Library::Cufft => cudarc::cufft::sys::is_culib_present(),
            Library::Cublas => cudarc::cublas::sys::is_culib_present(),
            Library::Cusolver => cudarc::cusolver::sys::is_culib_present(),
        }
    };
    if !present {
        return Err(NoCuda::NoToolkit(library.name()));
    }
    library.functions().iter().try_for_each(|function| require_function(library, function))
}

/// Refuses where a function of a library that is present is missing.
pub(crate) fn require_function(library: Library, function: &'static str) -> Result<(), NoCuda> {
    let missing = || NoCuda::NoFunction { library: library.name(), function };
    has(library, function).then_some(()).ok_or_else(missing)
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
            Library::Cusolver => cudarc::cusolver::sys::culib(),
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
            Self::Cusolver => "cusolver",
        }
    }

    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &DRIVER,
            Self::Nvrtc => &NVRTC,
            Self::Cufft => &CUFFT,
            Self::Cublas => &CUBLAS,
            Self::Cusolver => &CUSOLVER,
        }
    }
}

// Functions of transforms and products
#[rustfmt::skip]
const CUFFT: [&str; 10] = [
    "cufftCreate", "cufftMakePlanMany64", "cufftSetStream", "cufftDestroy", "cufftExecC2C", "cufftExecZ2Z", "cufftExecR2C",
    "cufftExecD2Z", "cufftExecC2R", "cufftExecZ2D",
];

#[rustfmt::skip]
const CUBLAS: [&str; 9] = [
    "cublasCreate_v2", "cublasSetStream_v2", "cublasDestroy_v2", "cublasSgemv_v2", "cublasDgemv_v2", "cublasSgemm_v2",
    "cublasDgemm_v2", "cublasStrsm_v2", "cublasDtrsm_v2",
];

#[rustfmt::skip]
const CUSOLVER: [&str; 9] = [
    "cusolverDnCreate", "cusolverDnDestroy", "cusolverDnSetStream", "cusolverDnCreateParams", "cusolverDnDestroyParams",
    "cusolverDnXpotrf_bufferSize", "cusolverDnXpotrf", "cusolverDnXsyevd_bufferSize", "cusolverDnXsyevd",
];

// Functions of driver and compiler
#[rustfmt::skip]
const DRIVER: [&str; 43] = [
    "cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName",
    "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2", "cuStreamCreate", "cuStreamSynchronize", "cuStreamDestroy_v2", "cuStreamBeginCapture_v2",
    "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphLaunch", "cuGraphExecDestroy",
    "cuEventCreate", "cuEventRecord", "cuEventDestroy_v2", "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
    "cuFuncSetAttribute", "cuLaunchKernel", "cuLaunchKernelEx", "cuGetErrorName", "cuMemcpyDtoDAsync_v2", "cuMemHostAlloc",
    "cuMemFreeHost", "cuStreamWaitEvent", "cuEventSynchronize", "cuMemAllocAsync", "cuMemFreeAsync",
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

// Refuse a driver without answers
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

// Tests of the probe
#[cfg(test)]
mod tests {
    use super::*;

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
}
