// Tangled from book/src/cuda-detection.md: edit there, or here and run cargo tangle stitch.
//! What there is of CUDA on this machine.

// Imports of the probe
use super::library_search::{self, Located, NotLocated, NvidiaLibrary};
use std::path::PathBuf;

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
    /// The libraries that we would use, each with its file where that is known, or why it is of no use.
    pub libraries: [(&'static str, Result<Option<PathBuf>, NoCuda>); 4],
    /// The package for Python that brings all of them, such as `lenslet[cuda13]`.
    pub package: String,
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
    /// A library of the CUDA toolkit is nowhere that we search.
    #[error(
        "the library {library} was not found: `pip install \"lenslet[cuda{release}]\"` brings it, and so does the CUDA toolkit, \
         version {OLDEST_CUDA} or later"
    )]
    NoToolkit {
        /// The library, such as `nvrtc`.
        library: &'static str,
        /// The release of CUDA to install.
        release: i32,
    },
    // Ways to lack a fitting library
    /// There is a file of a library, and it does not load.
    #[error(
        "the library {library} does not load from {}: {reason}; `pip install \"lenslet[cuda{release}]\"` brings it with all that \
         it needs", file.display()
    )]
    DoesNotLoad {
        /// The library.
        library: &'static str,
        /// The file.
        file: PathBuf,
        /// What the loader says.
        reason: String,
        /// The release of CUDA to install.
        release: i32,
    },
    /// The only library that there is needs a newer driver.
    #[error(
        "the library {library} in {} is of CUDA {of}, and the driver of CUDA {release}: `pip install \"lenslet[cuda{release}]\"` \
         brings one that fits, or update the driver", file.display()
    )]
    TooNew {
        /// The library.
        library: &'static str,
        /// Its file.
        file: PathBuf,
        /// The release of CUDA that it belongs to.
        of: i32,
        /// The release of the driver.
        release: i32,
    },
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
    let file = |library| locate(library).map(|located| located.file);
    let libraries = toolkit.map(|library| (library.name(), file(library)));
    let driver = match require(Library::Driver) {
        Ok(()) => ask_driver(),
        Err(NoCuda::NoLibrary) => Err(NoCuda::NoLibrary),
        Err(reason) => Err(too_old().unwrap_or(reason)),
    };
    let package = format!("lenslet[cuda{}]", installable(driver_release()));
    CudaProbe { driver, libraries, package }
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
/// Rejects where a library, or a function of it that we call, is missing.
pub(crate) fn require(library: Library) -> Result<(), NoCuda> {
    locate(library).map(drop)
}

/// Locates a library; rejects it as `require` does.
pub(super) fn locate(library: Library) -> Result<Located, NoCuda> {
    let functions = library.functions();
    let driver = driver_release();
    let located = match library.searched() {
        None if has_driver() => Located { file: None, release: driver },
        None => return Err(NoCuda::NoLibrary),
        Some(searched) => library_search::locate(searched, functions[0], driver)
            .map_err(|reason| not_located(library.name(), reason, driver))?,
    };
    functions.iter().try_for_each(|function| require_function(library, function))?;
    Ok(located)
}

// Name what is wrong with a library
/// Rejects where a function of a library that is present is missing.
pub(crate) fn require_function(library: Library, function: &'static str) -> Result<(), NoCuda> {
    let missing = || NoCuda::NoFunction { library: library.name(), function };
    has(library, function).then_some(()).ok_or_else(missing)
}

/// The release whose packages a driver runs.
pub(super) fn installable(driver: Option<i32>) -> i32 {
    let [newest, oldest] = library_search::RELEASES;
    driver.unwrap_or(newest).clamp(oldest, newest)
}

fn not_located(library: &'static str, reason: NotLocated, driver: Option<i32>) -> NoCuda {
    let release = installable(driver);
    match reason {
        NotLocated::Missing => NoCuda::NoToolkit { library, release },
        NotLocated::TooNew { file, release: of } => NoCuda::TooNew { library, file, of, release },
        NotLocated::DoesNotLoad { file, reason } => {
            NoCuda::DoesNotLoad { library, file, reason, release }
        }
    }
}

// Ask for the driver's release
/// The major version of CUDA that the driver knows, if there is a driver that answers.
pub(super) fn driver_release() -> Option<i32> {
    let answers = has_driver() && has(Library::Driver, "cuDriverGetVersion");
    Some(answers.then(driver_version)?.ok()?.0)
}

/// Whether the driver's library is there.
#[allow(unsafe_code)]
fn has_driver() -> bool {
    // SAFETY: opens the driver's library by its well-known name; no function of it is called.
    unsafe { cudarc::driver::sys::is_culib_present() }
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

    /// What is searched for; the driver's library is not.
    fn searched(self) -> Option<&'static NvidiaLibrary> {
        match self {
            Self::Driver => None,
            Self::Nvrtc => Some(&library_search::NVRTC),
            Self::Cufft => Some(&library_search::CUFFT),
            Self::Cublas => Some(&library_search::CUBLAS),
            Self::Cusolver => Some(&library_search::CUSOLVER),
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

    // Check the choice in a process
    /// Names the folder of made libraries to the process that is to look at them.
    const CHILD: &str = "LENSLET_TEST_LIBRARIES";

    /// Makes a library with all functions that we require and one more; whether there is a compiler.
    fn make(file: &std::path::Path, library: Library, marker: &str, options: &[&str]) -> bool {
        let functions = library.functions().iter().filter(|name| **name != "cuDriverGetVersion");
        let mut source: String =
            functions.map(|name| format!("int {name}() {{ return 100; }}\n")).collect();
        source += marker;
        library_search::compiled(file, &source, options)
    }

    // Make libraries of several releases
    /// Makes drivers of CUDA 12 and 13, each with libraries before the loader, and an environment of Python.
    #[cfg(target_os = "linux")]
    fn make_all(root: &std::path::Path) -> bool {
        use Library::{Cublas, Cufft, Cusolver, Driver, Nvrtc};
        for (folder, version) in [("loader12", 12040), ("loader13", 13000)] {
            let folder = root.join(folder);
            let driver =
                format!("int cuDriverGetVersion(int *it) {{ *it = {version}; return 0; }}");
            if !make(&folder.join("libcuda.so"), Driver, &driver, &[]) {
                return false;
            }
            let libraries = [
                ("nvrtc", Nvrtc, 14),
                ("cufft", Cufft, 13),
                ("cublas", Cublas, 13),
                ("cusolver", Cusolver, 12),
            ];
            for (name, library, number) in libraries {
                let file = folder.join(format!("lib{name}.so.{number}"));
                make(&file, library, "int by_loader() { return 1; }", &[]);
                std::os::unix::fs::symlink(&file, folder.join(format!("lib{name}.so"))).unwrap();
            }
        }
        let files = [
            ("cuda_nvrtc/lib/libnvrtc.so.12", Nvrtc),
            ("cublas/lib/libcublas.so.12", Cublas),
            ("cusolver/lib/libcusolver.so.11", Cusolver),
            ("cu13/lib/libnvrtc.so.13", Nvrtc),
            ("cu13/lib/libcufft.so.12", Cufft),
            ("cu13/lib/libcublas.so.13", Cublas),
            ("cu13/lib/libcusolver.so.12", Cusolver),
        ];
        let site = root.join("venv/lib/python3.12/site-packages/nvidia");
        files.into_iter().all(|(file, library)| {
            make(&site.join(file), library, "int in_site() { return 1; }", &[])
        })
    }

    /// Prints what a process finds: a line for each library.
    #[cfg(target_os = "linux")]
    fn report_libraries() {
        for library in [Library::Nvrtc, Library::Cufft, Library::Cublas, Library::Cusolver] {
            let text = match locate(library) {
                Ok(Located { file: Some(file), .. }) => {
                    let from =
                        ["in_site", "by_loader"].into_iter().filter(|from| has(library, from));
                    format!("{} {}", file.display(), from.collect::<String>())
                }
                Ok(other) => format!("{other:?}"),
                Err(reason) => reason.to_string(),
            };
            println!("found: {} {text}", library.name());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn each_driver_gets_libraries_that_fit() {
        if std::env::var_os(CHILD).is_some() {
            return report_libraries();
        }
        let folder = tempfile::tempdir().unwrap();
        if !make_all(folder.path()) {
            return;
        }
        let root = folder.path().canonicalize().unwrap();
        let site = root.join("venv/lib/python3.12/site-packages/nvidia");
        let line = |name: &str, file: PathBuf| format!("{name} {}", file.display());
        let twelve = [
            line("nvrtc", site.join("cuda_nvrtc/lib/libnvrtc.so.12")) + " in_site",
            format!(
                "cufft the library cufft in {} is of CUDA 14, and the driver of CUDA 12: `pip install \"lenslet[cuda12]\"` brings \
                 one that fits, or update the driver",
                root.join("loader12/libcufft.so.13").display()
            ),
            line("cublas", site.join("cublas/lib/libcublas.so.12")) + " in_site",
            line("cusolver", site.join("cusolver/lib/libcusolver.so.11")) + " in_site",
        ];
        let thirteen = [
            line("nvrtc", site.join("cu13/lib/libnvrtc.so.13")) + " in_site",
            line("cufft", site.join("cu13/lib/libcufft.so.12")) + " in_site",
            line("cublas", root.join("loader13/libcublas.so.13")) + " by_loader",
            line("cusolver", root.join("loader13/libcusolver.so.12")) + " by_loader",
        ];
        // Run the test in processes of their own
        let name = format!(
            "{}::each_driver_gets_libraries_that_fit",
            module_path!().split_once("::").unwrap().1
        );
        for (loader, expected) in [("loader12", twelve), ("loader13", thirteen)] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", &name, "--nocapture"]).env(CHILD, "1");
            child.env("LD_LIBRARY_PATH", root.join(loader)).env("VIRTUAL_ENV", root.join("venv"));
            let output = child.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let found: Vec<&str> = said
                .lines()
                .filter_map(|line| line.split_once("found: ").map(|(_, text)| text))
                .collect();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(found, expected, "{loader}");
        }
    }

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
        assert_eq!([None, Some(11), Some(12), Some(14)].map(installable), [13, 12, 12, 13]);
        let missing = not_located("nvrtc", NotLocated::Missing, Some(12)).to_string();
        assert!(
            missing.contains("nvrtc was not found: `pip install \"lenslet[cuda12]\"`"),
            "{missing}"
        );
    }
}
