// Tangled from book/src/cuda-machine.md: edit there, or here and run cargo tangle stitch.
//! The CUDA backend: each method is a call of NVIDIA's libraries, whose status becomes an error with the name of the call.
#![allow(unsafe_code)]

pub(crate) mod compiler;
mod cusolver;
pub(crate) mod distributed;
pub(crate) mod library_search;
pub mod probe;

// Imports of the CUDA backend
use self::cusolver::CusolverHandle;
use self::probe::{CudaDevice, Library, probe, require, require_function};
use super::Device;
use super::backend::{
    Backend, Collective, Handle, MatrixProduct, Operation, Pages, TransformBatch, TransformKind,
    Triangular,
};
use super::dispatch::lock;
use super::gpu::{Gpu, KernelSource, Shape};
use crate::error::Error;
use cudarc::driver::{DriverError, result as driver, sys};
use cudarc::{cublas, cufft};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

// Open the devices of a name
/// Opens the devices of a name: all of the machine for `cuda`, one for `cuda:K`.
///
/// # Errors
/// `Device` with the reason where there is no such device, or the name is `cpu`.
pub fn open(device: Device) -> Result<Vec<Gpu>, Error> {
    let refuse = |reason: String| Error::Device { device: device.to_string(), reason };
    let Device::Cuda(ordinal) = device else {
        return Err(refuse("it is no graphics processor".into()));
    };
    let libraries = probe();
    let first = libraries.device(ordinal).map_err(|none| refuse(none.to_string()))?;
    let driver = libraries.driver.as_ref().map_err(|none| refuse(none.to_string()))?;
    let chosen = match ordinal {
        Some(_) => std::slice::from_ref(first),
        None => driver.devices.as_slice(),
    };
    chosen.iter().map(|device| Gpu::new(Cuda::open(device, driver.version)?)).collect()
}

// One device and its context
/// A device, its primary context, and the programs, handles and plans made in it.
struct Cuda {
    name: String,
    capability: (i32, i32),
    version: (i32, i32),
    shared_memory: usize,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    /// Programs by their key.
    programs: Mutex<HashMap<String, u64>>,
    /// Handles of cuBLAS by their stream.
    blas: Mutex<HashMap<u64, usize>>,
    /// Handles of cuSOLVER by their stream.
    solvers: Mutex<HashMap<u64, Arc<CusolverHandle>>>,
    /// Kind of transform of each plan of cuFFT, and whether it is in double precision.
    plans: Mutex<HashMap<u64, (TransformKind, bool)>>,
}

// SAFETY: the driver's functions may be called from any thread with these handles.
unsafe impl Send for Cuda {}
// SAFETY: as above; the maps have locks of their own.
unsafe impl Sync for Cuda {}

// Open a device and its context
impl Cuda {
    fn open(device: &CudaDevice, version: (i32, i32)) -> Result<Self, Error> {
        let name = format!("cuda:{} ({})", device.ordinal, device.name);
        let handle = driver::device::get(device.ordinal as i32)
            .map_err(|error| failed(&name, "cuDeviceGet", error))?;
        // SAFETY: the handle comes from the driver; the context is released when `Cuda` is dropped.
        let context = unsafe { driver::primary_ctx::retain(handle) }
            .map_err(|error| failed(&name, "cuDevicePrimaryCtxRetain", error))?;
        let CudaDevice { compute_capability: capability, shared_memory, .. } = *device;
        let (programs, blas, solvers, plans) = Default::default();
        // Assemble an opened device
        Ok(Self {
            name,
            capability,
            version,
            shared_memory,
            handle,
            context,
            programs,
            blas,
            solvers,
            plans,
        })
    }
}

// Release a device of CUDA
impl Drop for Cuda {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        let programs = self.programs.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: each handle was made by this backend, and nothing uses it any more: buffers, programs, graphs and plans keep
        // the backend alive. The status cannot be reported here.
        unsafe {
            for (_, program) in programs.drain() {
                let _ = driver::module::unload(program as usize as sys::CUmodule);
            }
            let _ = driver::primary_ctx::release(self.handle);
        }
    }
}

// Make calls and name their errors
/// The error of a call of the driver on the device of this name.
fn failed(device: &str, call: &'static str, error: DriverError) -> Error {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    let text = text.unwrap_or_else(|_| "unknown error".into());
    let reason = format!("{text} ({:?})", error.0);
    Error::Cuda { call, device: device.into(), reason }
}

impl Cuda {
    fn call<T>(&self, call: &'static str, status: Result<T, DriverError>) -> Result<T, Error> {
        status.map_err(|error| failed(&self.name, call, error))
    }

    // Name the errors of other libraries
    /// The result of a call of another library; its error names the device and the status.
    fn library<T, E: std::fmt::Debug>(
        &self,
        call: &'static str,
        status: Result<T, E>,
    ) -> Result<T, Error> {
        let refuse =
            |error| Error::Cuda { call, device: self.name.clone(), reason: format!("{error:?}") };
        status.map_err(refuse)
    }

    // Make the context current
    /// Makes the context current in the calling thread.
    fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context was retained when the device was opened.
        self.call("cuCtxSetCurrent", unsafe { driver::ctx::set_current(self.context) })
    }

    /// An error of the compiler, with the name of this device.
    fn named(&self, error: Error) -> Error {
        let device = self.name.clone();
        match error {
            Error::Device { reason, .. } => Error::Device { device, reason },
            Error::Cuda { call, reason, .. } => Error::Cuda { call, device, reason },
            other => other,
        }
    }

    /// Returns an error where a library, or a function of it, is missing.
    fn require(&self, library: Result<(), probe::NoCuda>) -> Result<(), Error> {
        library
            .map_err(|none| Error::Device { device: self.name.clone(), reason: none.to_string() })
    }
}
/// The driver's stream of a handle.
fn stream_of(handle: u64) -> sys::CUstream {
    handle as usize as sys::CUstream
}

/// The driver's event of a handle.
fn event_of(handle: u64) -> sys::CUevent {
    handle as usize as sys::CUevent
}

// Limits of launches and of drivers
/// Bytes of shared memory that a launch may use by default.
const SHARED: usize = 48 << 10;

/// The oldest driver that supports timing.
const TIMING: (i32, i32) = (12, 8);

/// The oldest driver that can record early launches.
const EARLY: (i32, i32) = (12, 3);

impl Cuda {
    /// A kernel, allowed to use so many bytes of shared memory.
    fn with_shared(&self, kernel: u64, bytes: usize) -> Result<sys::CUfunction, Error> {
        let kernel = kernel as usize as sys::CUfunction;
        if bytes > SHARED {
            let limit = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the kernel belongs to a program of this backend.
            let set =
                unsafe { driver::function::set_function_attribute(kernel, limit, bytes as i32) };
            self.call("cuFuncSetAttribute", set)?;
        }
        Ok(kernel)
    }
}

// The backend of CUDA
impl Backend for Cuda {
    // Properties of a CUDA device
    fn name(&self) -> &str {
        &self.name
    }

    fn available_memory(&self) -> Result<u64, Error> {
        self.enter()?;
        let (free, _) = self.call("cuMemGetInfo", driver::mem_get_info())?;
        Ok(free as u64)
    }

    fn shared_memory(&self) -> usize {
        self.shared_memory
    }

    // Allocate and copy on CUDA
    fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        self.enter()?;
        // SAFETY: the address is released once, by `forget`.
        self.call("cuMemAlloc", unsafe { driver::malloc_sync(bytes) })
    }

    fn write(&self, stream: u64, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: a buffer holds as many bytes as it writes, and they live until the copy is done.
        let status = unsafe { driver::memcpy_htod_async(address, bytes, stream_of(stream)) };
        self.call("cuMemcpyHtoDAsync", status)?;
        self.synchronise(stream)
    }

    fn read(&self, stream: u64, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: a buffer holds at least as many bytes as are read, and we wait for the copy.
        let status = unsafe { driver::memcpy_dtoh_async(bytes, address, stream_of(stream)) };
        self.call("cuMemcpyDtoHAsync", status)?;
        self.synchronise(stream)
    }

    // Pin memory of the host
    fn pin(&self, bytes: usize) -> Result<Box<dyn Pages>, Error> {
        self.enter()?;
        // SAFETY: as many bytes as requested, or an error; released once, when the pages are dropped.
        let start = unsafe { driver::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let start = self.call("cuMemHostAlloc", start)?.cast::<u8>();
        // SAFETY: the bytes were just allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Box::new(PinnedMemory { context: self.context, start, bytes }))
    }

    // Streams and events of CUDA
    fn open_stream(&self) -> Result<u64, Error> {
        self.enter()?;
        let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking);
        Ok(self.call("cuStreamCreate", stream)? as usize as u64)
    }

    fn synchronise(&self, stream: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the stream is ours.
        let status = unsafe { driver::stream::synchronize(stream_of(stream)) };
        self.call("cuStreamSynchronize", status)
    }

    // Events in a stream of CUDA
    fn mark(&self, stream: u64) -> Result<u64, Error> {
        self.enter()?;
        let event = driver::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let event = self.call("cuEventCreate", event)?;
        // SAFETY: event and stream are ours, and the event is destroyed once, by `forget`.
        let recorded = unsafe { driver::event::record(event, stream_of(stream)) };
        let event = event as usize as u64;
        if recorded.is_err() {
            self.forget(Handle::Mark(event));
        }
        self.call("cuEventRecord", recorded).map(|()| event)
    }

    fn reach(&self, mark: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the event is ours and was recorded.
        self.call("cuEventSynchronize", unsafe { driver::event::synchronize(event_of(mark)) })
    }

    // Measure times on CUDA
    fn require_clock(&self) -> Result<(), Error> {
        if self.version >= TIMING {
            return Ok(());
        }
        let reason = format!("timing needs a driver of CUDA {}.{}", TIMING.0, TIMING.1);
        Err(Error::Device { device: self.name.clone(), reason })
    }

    fn require_factors(&self, _eigenvectors: bool) -> Result<(), Error> {
        [Library::Cusolver, Library::Cublas]
            .into_iter()
            .try_for_each(|it| self.require(require(it)))
    }

    fn milliseconds(&self, marks: [u64; 2]) -> Result<f64, Error> {
        self.require_clock()?;
        self.enter()?;
        let [start, end] = marks.map(event_of);
        // SAFETY: both events have been recorded, and are done.
        let elapsed = unsafe { driver::event::elapsed(start, end) };
        self.call("cuEventElapsedTime", elapsed).map(f64::from)
    }

    // Load and launch on CUDA
    fn load(&self, source: &KernelSource, options: &[String]) -> Result<u64, Error> {
        self.enter()?;
        let key = format!("{} {options:?}\n{}", source.name, source.text);
        let mut programs = lock(&self.programs);
        if let Some(&program) = programs.get(&key) {
            return Ok(program);
        }
        let image = compiler::image(source, options, self.capability, self.version);
        let mut image = image.map_err(|error| self.named(error))?;
        image.push(0); // PTX is a text that ends with a zero
        // SAFETY: the image is whole, and the driver copies it.
        let program = unsafe { driver::module::load_data(image.as_ptr().cast()) };
        let program = self.call("cuModuleLoadData", program)? as usize as u64;
        programs.insert(key, program);
        Ok(program)
    }

    // Find a kernel on CUDA
    fn kernel(&self, program: u64, name: &str) -> Result<u64, Error> {
        self.enter()?;
        let name = self.library("cuModuleGetFunction", CString::new(name))?;
        // SAFETY: the program was loaded by this backend, and is unloaded with it.
        let kernel =
            unsafe { driver::module::get_function(program as usize as sys::CUmodule, name) };
        Ok(self.call("cuModuleGetFunction", kernel)? as usize as u64)
    }

    // Launch a kernel on CUDA
    fn launch(
        &self,
        stream: u64,
        kernel: u64,
        shape: Shape,
        arguments: &mut [u64],
    ) -> Result<(), Error> {
        self.enter()?;
        let kernel = self.with_shared(kernel, shape.shared)?;
        let [x, y, z] = shape.grid.map(|blocks| blocks as u32);
        let mut pointers: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
        let (block, shared) = ((shape.block as u32, 1, 1), shape.shared as u32);
        let stream = stream_of(stream);
        // SAFETY: the caller gives the arguments that the kernel declares; the driver reads as many bytes of each as declared, at
        // most eight, and copies them.
        let status = unsafe {
            driver::launch_kernel(kernel, (x, y, z), block, shared, stream, &mut pointers)
        };
        self.call("cuLaunchKernel", status)
    }

    // Launch early on CUDA
    fn launch_early(
        &self,
        stream: u64,
        kernel: u64,
        shape: Shape,
        arguments: &mut [u64],
    ) -> Result<(), Error> {
        if self.capability < (9, 0) || self.version < EARLY {
            return self.launch(stream, kernel, shape, arguments);
        }
        self.enter()?;
        let kernel = self.with_shared(kernel, shape.shared)?;
        let [x, y, z] = shape.grid.map(|blocks| blocks as u32);
        let mut pointers: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
        value.programmaticStreamSerializationAllowed = 1;
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        // Launch with an attribute
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: shape.block as u32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shape.shared as u32,
            hStream: stream_of(stream),
            attrs: &mut attribute,
            numAttrs: 1,
        };
        // SAFETY: as for any launch; the configuration and its attribute live until the call returns.
        let status = unsafe {
            sys::cuLaunchKernelEx(&config, kernel, pointers.as_mut_ptr(), std::ptr::null_mut())
        };
        let status = status.result();
        self.call("cuLaunchKernelEx", status)
    }

    // Operations and recordings of CUDA
    fn begin_recording(&self, stream: u64) -> Result<(), Error> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours.
        let status = unsafe { driver::stream::begin_capture(stream_of(stream), mode) };
        self.call("cuStreamBeginCapture", status)
    }

    fn end_recording(&self, stream: u64) -> Result<u64, Error> {
        self.enter()?;
        // SAFETY: the stream is ours and records.
        let graph = unsafe { driver::stream::end_capture(stream_of(stream)) };
        let graph = self.call("cuStreamEndCapture", graph)?;
        // SAFETY: the graph was just recorded; it is destroyed once, below.
        let executable =
            unsafe { driver::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: as above; the executable graph does not need it.
        let _ = unsafe { driver::graph::destroy(graph) };
        Ok(self.call("cuGraphInstantiateWithFlags", executable)? as usize as u64)
    }

    // Replay a graph on CUDA
    fn replay(&self, stream: u64, graph: u64) -> Result<(), Error> {
        self.enter()?;
        let (graph, stream) = (graph as usize as sys::CUgraphExec, stream_of(stream));
        // SAFETY: the graph was recorded by this backend, and keeps the buffers that it uses.
        self.call("cuGraphLaunch", unsafe { driver::graph::launch(graph, stream) })
    }

    // Do one operation on CUDA
    fn enqueue(&self, stream: u64, operation: &Operation) -> Result<(), Error> {
        self.enter()?;
        let to = stream_of(stream);
        match *operation {
            Operation::Clear { address, bytes } => {
                // SAFETY: a buffer clears its own bytes.
                let status = unsafe { driver::memset_d8_async(address, 0, bytes, to) };
                self.call("cuMemsetD8Async", status)
            }
            // Copy within CUDA and to pinned memory
            Operation::Copy { from, to: there, bytes } => {
                // SAFETY: both ranges are within their buffers.
                let status = unsafe { driver::memcpy_dtod_async(there, from, bytes, to) };
                self.call("cuMemcpyDtoDAsync", status)
            }
            Operation::Send { host, to: there, bytes } => {
                // SAFETY: pinned memory of this length, which is neither changed nor released before the copy is done.
                let status = unsafe {
                    let host = std::slice::from_raw_parts(host as usize as *const u8, bytes);
                    driver::memcpy_htod_async(there, host, to)
                };
                self.call("cuMemcpyHtoDAsync", status)
            }
            Operation::Fetch { from, host, bytes } => {
                // SAFETY: pinned memory of this length, which is not read before the copy is done.
                let status = unsafe {
                    let host = std::slice::from_raw_parts_mut(host as usize as *mut u8, bytes);
                    driver::memcpy_dtoh_async(host, from, to)
                };
                self.call("cuMemcpyDtoHAsync", status)
            }
            // Wait for an event on CUDA
            Operation::Await { mark } => {
                let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                // SAFETY: stream and event are ours.
                let status = unsafe { driver::stream::wait_event(to, event_of(mark), flags) };
                self.call("cuStreamWaitEvent", status)
            }
            Operation::Transform { plan, from, to } => self.transform(plan, [from, to]),
            Operation::MultiplyVector { double, matrix, shape, x, y } => {
                self.multiply_vector(stream, double, shape, [matrix, x, y])
            }
            Operation::Multiply(ref product) => self.multiply(stream, product),
            // Factors and eigenvectors on CUDA
            Operation::Cholesky(ref of) => {
                self.solver(stream)?.cholesky(of).map_err(|error| self.named(error))
            }
            Operation::Eigenvectors { ref of, values } => {
                self.solver(stream)?.eigenvectors(of, values).map_err(|error| self.named(error))
            }
            Operation::SolveTriangular(ref rows) => self.solve_triangular(stream, rows),
        }
    }

    // Plan transforms by cuFFT
    fn plan(&self, stream: u64, transforms: &TransformBatch) -> Result<u64, Error> {
        use cufft::{result, sys::cufftType};
        self.enter()?;
        self.require(require(Library::Cufft))?;
        let kind = match (transforms.kind, transforms.double) {
            (TransformKind::Forward | TransformKind::Inverse, true) => cufftType::CUFFT_Z2Z,
            (TransformKind::Forward | TransformKind::Inverse, false) => cufftType::CUFFT_C2C,
            (TransformKind::FromReal, true) => cufftType::CUFFT_D2Z,
            (TransformKind::FromReal, false) => cufftType::CUFFT_R2C,
            (TransformKind::ToReal, true) => cufftType::CUFFT_Z2D,
            (TransformKind::ToReal, false) => cufftType::CUFFT_C2R,
        };
        let plan = self.library("cufftCreate", result::create())?;
        let made = self.make_plan(plan, stream, transforms, kind);
        if made.is_err() {
            // SAFETY: the plan was just made, and is used nowhere else.
            let _ = unsafe { result::destroy(plan) };
        }
        made?;
        lock(&self.plans).insert(plan as u64, (transforms.kind, transforms.double));
        Ok(plan as u64)
    }

    // Release handles of CUDA
    fn forget(&self, handle: Handle) {
        if self.enter().is_err() {
            return;
        }
        // SAFETY: each handle was made by this backend, is released once, and no work uses it. The status cannot be reported here.
        unsafe {
            let _ = match handle {
                Handle::Memory(address) => driver::free_sync(address),
                Handle::Foreign(_) => Ok(()),
                Handle::Graph(graph) => {
                    driver::graph::exec_destroy(graph as usize as sys::CUgraphExec)
                }
                Handle::Mark(mark) => driver::event::destroy(event_of(mark)),
                // Release a stream and its libraries
                Handle::Stream(stream) => {
                    drop(lock(&self.solvers).remove(&stream));
                    if let Some(blas) = lock(&self.blas).remove(&stream) {
                        let _ = cublas::result::destroy_handle(blas as cublas::sys::cublasHandle_t);
                    }
                    driver::stream::destroy(stream_of(stream))
                }
                Handle::Plan(plan) => {
                    lock(&self.plans).remove(&plan);
                    let _ = cufft::result::destroy(plan as cufft::sys::cufftHandle);
                    Ok(())
                }
            };
        }
    }

    // Join other devices of CUDA
    // Join other devices of CUDA
    fn require_joining(&self) -> Result<(), Error> {
        distributed::require_several(&self.name)
    }

    fn identifier(&self) -> Result<Vec<u8>, Error> {
        self.enter()?;
        let refuse = |reason| Error::Device { device: self.name.clone(), reason };
        distributed::identifier().map_err(refuse)
    }

    fn join(
        &self,
        stream: u64,
        place: [usize; 2],
        identifier: &[u8],
    ) -> Result<Box<dyn Collective>, Error> {
        self.enter()?;
        let mine = (self.handle, self.context, stream_of(stream));
        let joined = distributed::CudaRank::join(mine, place, identifier);
        Ok(Box::new(joined.map_err(|error| self.named(error))?))
    }
}

// Pinned pages of CUDA
/// Pinned memory. Its owner also keeps the backend alive, and therefore the context.
struct PinnedMemory {
    context: sys::CUcontext,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain bytes, and a handle that any thread may use.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; bytes are changed through an exclusive reference only.
unsafe impl Sync for PinnedMemory {}

// Methods of pinned pages
impl Pages for PinnedMemory {
    fn address(&self) -> u64 {
        self.start as usize as u64
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this length; `gpu::Pinned` waits for the device's copies before it reads.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `pin`, and no copy is pending; the status cannot be reported here.
        let _ = unsafe {
            driver::ctx::set_current(self.context)
                .and_then(|()| driver::free_host(self.start.cast()))
        };
    }
}

// Functions of cuBLAS by their sizes
/// Calls a function of cuBLAS with 32-bit sizes where they fit, else its form with 64-bit sizes.
macro_rules! by_size {
    ([$($size:ident),+], $short:path | $wide:path, ($($argument:expr),+ $(,)?)) => {
        if are_short(&[$($size),+]) {
            $(let $size = $size as i32;)+
            $short($($argument),+)
        } else {
            $wide($($argument),+)
        }
    };
}

/// Whether sizes fit into 32 bits.
fn are_short(sizes: &[i64]) -> bool {
    sizes.iter().all(|&size| i32::try_from(size).is_ok())
}

// Operations of CUDA's libraries
impl Cuda {
    // Set the transforms of a plan
    /// Sets the transforms and the stream of an empty plan.
    fn make_plan(
        &self,
        plan: cufft::sys::cufftHandle,
        stream: u64,
        transforms: &TransformBatch,
        kind: cufft::sys::cufftType,
    ) -> Result<(), Error> {
        use cufft::result;
        let mut lengths: Vec<i64> = transforms.lengths.iter().map(|&n| n as i64).collect();
        let (rank, batch) = (lengths.len() as i32, transforms.batch as i64);
        let (lengths, none) = (lengths.as_mut_ptr(), std::ptr::null_mut());
        // Make many transforms by cuFFT
        // SAFETY: there are as many lengths as the rank of the transform, read only during the call; no embedding is given.
        let made = unsafe {
            result::make_plan_many64(plan, rank, lengths, none, 1, 0, none, 1, 0, kind, batch)
        };
        self.library("cufftMakePlanMany64", made)?;
        // SAFETY: plan and stream are ours.
        let status = unsafe { result::set_stream(plan, stream_of(stream).cast()) };
        self.library("cufftSetStream", status)
    }

    // Execute a plan of transforms
    fn transform(&self, plan: u64, [from, to]: [u64; 2]) -> Result<(), Error> {
        use cufft::result;
        let known = lock(&self.plans).get(&plan).copied();
        let (kind, double) = known.unwrap_or((TransformKind::Inverse, true));
        let direction = if kind == TransformKind::Inverse { 1 } else { -1 };
        let plan = plan as cufft::sys::cufftHandle;
        let [from, to] = [from, to].map(|address| address as usize as *mut c_void);
        // SAFETY: the plan was made by this backend, and `Gpu::transform` has checked the number of fields.
        let status = unsafe {
            match (kind, double) {
                (TransformKind::Forward | TransformKind::Inverse, true) => {
                    result::exec_z2z(plan, from.cast(), to.cast(), direction)
                }
                (TransformKind::Forward | TransformKind::Inverse, false) => {
                    result::exec_c2c(plan, from.cast(), to.cast(), direction)
                }
                (TransformKind::FromReal, true) => result::exec_d2z(plan, from.cast(), to.cast()),
                (TransformKind::FromReal, false) => result::exec_r2c(plan, from.cast(), to.cast()),
                (TransformKind::ToReal, true) => result::exec_z2d(plan, from.cast(), to.cast()),
                (TransformKind::ToReal, false) => result::exec_c2r(plan, from.cast(), to.cast()),
            }
        };
        self.library("cufftExec", status)
    }

    // Multiply a vector by cuBLAS
    fn multiply_vector(
        &self,
        stream: u64,
        double: bool,
        shape: [usize; 2],
        addresses: [u64; 3],
    ) -> Result<(), Error> {
        use cublas::sys::{self, cublasOperation_t::CUBLAS_OP_T as T};
        let [rows, columns] = shape.map(|size| size as i64);
        let wide = ["cublasSgemv_v2_64", "cublasDgemv_v2_64"];
        let blas = self.blas(stream, &[rows, columns], wide[usize::from(double)])?;
        let [a, x, y] = addresses.map(|address| address as usize as *mut c_void);
        let (of_f64, of_f32): ([f64; 2], [f32; 2]) = ([1.0, 0.0], [1.0, 0.0]);
        // Call the product with a vector
        // SAFETY: the buffers fit the shape, as `Gpu::multiply_matrix` has checked; the factors are read during the call.
        let status = unsafe {
            if double {
                let ([one, zero], a, x, y) = (&of_f64, a.cast(), x.cast(), y.cast());
                by_size!(
                    [columns, rows],
                    sys::cublasDgemv_v2 | sys::cublasDgemv_v2_64,
                    (blas, T, columns, rows, one, a, columns, x, 1, zero, y, 1)
                )
            } else {
                let ([one, zero], a, x, y) = (&of_f32, a.cast(), x.cast(), y.cast());
                by_size!(
                    [columns, rows],
                    sys::cublasSgemv_v2 | sys::cublasSgemv_v2_64,
                    (blas, T, columns, rows, one, a, columns, x, 1, zero, y, 1)
                )
            }
        };
        self.library("cublasGemv", status.result())
    }

    // Multiply matrices by cuBLAS
    fn multiply(&self, stream: u64, product: &MatrixProduct) -> Result<(), Error> {
        use cublas::sys::{self, cublasOperation_t};
        let MatrixProduct { double, transposed: [is_at, is_bt], factors, a, b, c, .. } = *product;
        let [rows, columns] = product.shape.map(|size| size as i64);
        let inner = product.inner as i64;
        let (row_a, row_b) =
            (if is_at { rows } else { inner }, if is_bt { inner } else { columns });
        let wide = ["cublasSgemm_v2_64", "cublasDgemm_v2_64"];
        let blas = self.blas(stream, &[rows, inner, columns], wide[usize::from(double)])?;
        let [a, b, c] = [a, b, c].map(|address| address as usize as *mut c_void);
        let [at, bt] = [is_at, is_bt].map(|transposed| match transposed {
            true => cublasOperation_t::CUBLAS_OP_T,
            false => cublasOperation_t::CUBLAS_OP_N,
        });
        let (of_f64, of_f32) = (factors, factors.map(|factor| factor as f32));
        // Call the product of matrices
        // SAFETY: the buffers fit the shape, as `Gpu::multiply_matrices` has checked; the factors are read during the call.
        let status = unsafe {
            if double {
                let ([x, y], a, b, c) = (&of_f64, a.cast(), b.cast(), c.cast());
                by_size!(
                    [columns, rows, inner, row_a, row_b],
                    sys::cublasDgemm_v2 | sys::cublasDgemm_v2_64,
                    (blas, bt, at, columns, rows, inner, x, b, row_b, a, row_a, y, c, columns)
                )
            } else {
                let ([x, y], a, b, c) = (&of_f32, a.cast(), b.cast(), c.cast());
                by_size!(
                    [columns, rows, inner, row_a, row_b],
                    sys::cublasSgemm_v2 | sys::cublasSgemm_v2_64,
                    (blas, bt, at, columns, rows, inner, x, b, row_b, a, row_a, y, c, columns)
                )
            }
        };
        self.library("cublasGemm", status.result())
    }

    // Find the handle of cuSOLVER
    /// The handle of cuSOLVER on a stream.
    fn solver(&self, stream: u64) -> Result<Arc<CusolverHandle>, Error> {
        let mut solvers = lock(&self.solvers);
        if let Some(solver) = solvers.get(&stream) {
            return Ok(Arc::clone(solver));
        }
        self.require(require(Library::Cusolver))?;
        let opened = CusolverHandle::open(stream_of(stream)).map_err(|error| self.named(error))?;
        let solver = Arc::new(opened);
        solvers.insert(stream, Arc::clone(&solver));
        Ok(solver)
    }

    // Solve triangular systems on CUDA
    fn solve_triangular(&self, stream: u64, of: &Triangular) -> Result<(), Error> {
        use cublas::sys;
        let [n, count] = [of.order, of.count].map(|size| size as i64);
        let wide = ["cublasStrsm_v2_64", "cublasDtrsm_v2_64"];
        let handle = self.blas(stream, &[n, count], wide[usize::from(of.double)])?;
        let [a, b] = [of.factor, of.rows].map(|address| address as usize as *mut c_void);
        let (left, lower) = (
            sys::cublasSideMode_t::CUBLAS_SIDE_LEFT,
            sys::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
        );
        let diagonal = sys::cublasDiagType_t::CUBLAS_DIAG_NON_UNIT;
        let operation = match of.transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        };
        // Call the triangular solution
        // SAFETY: `Gpu::solve_triangular` has checked that factor and rows fit their sizes; the factor 1 is read during the call.
        let status = unsafe {
            if of.double {
                let (one, a, b) = (&1.0f64, a.cast(), b.cast());
                by_size!(
                    [n, count],
                    sys::cublasDtrsm_v2 | sys::cublasDtrsm_v2_64,
                    (handle, left, lower, operation, diagonal, n, count, one, a, n, b, n)
                )
            } else {
                let (one, a, b) = (&1.0f32, a.cast(), b.cast());
                by_size!(
                    [n, count],
                    sys::cublasStrsm_v2 | sys::cublasStrsm_v2_64,
                    (handle, left, lower, operation, diagonal, n, count, one, a, n, b, n)
                )
            }
        };
        self.library("cublasTrsm", status.result())
    }

    // Make a handle of cuBLAS
    /// The handle of cuBLAS on a stream, after a check that the library supports these sizes.
    fn blas(
        &self,
        stream: u64,
        sizes: &[i64],
        wide: &'static str,
    ) -> Result<cublas::sys::cublasHandle_t, Error> {
        let mut handles = lock(&self.blas);
        let known = handles.get(&stream).map(|&blas| blas as cublas::sys::cublasHandle_t);
        if known.is_none() {
            self.require(require(Library::Cublas))?;
        }
        if !are_short(sizes) {
            self.require(require_function(Library::Cublas, wide))?;
        }
        if let Some(blas) = known {
            return Ok(blas);
        }
        let blas = self.library("cublasCreate", cublas::result::create_handle())?;
        // Give the handle its stream
        // SAFETY: handle and stream are ours; the handle is destroyed with its stream.
        let status = unsafe { cublas::result::set_stream(blas, stream_of(stream).cast()) };
        if status.is_err() {
            // SAFETY: the handle was made above and is used nowhere else.
            let _ = unsafe { cublas::result::destroy_handle(blas) };
        }
        self.library("cublasSetStream", status)?;
        handles.insert(stream, blas as usize);
        Ok(blas)
    }
}

// Tests of opened devices
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::cuda_devices;
    use crate::device::gpu::kernels::kernels;

    #[test]
    fn errors_bear_the_name_of_the_call() {
        assert!(matches!(open(Device::Cpu), Err(Error::Device { .. })));
        assert!(matches!(open(Device::Cuda(Some(9999))), Err(Error::Device { .. })));
        for gpu in cuda_devices() {
            // Record while another thread works
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    (0..200u32).all(|k| gpu.upload(&[k; 64]).unwrap().read().unwrap() == [k; 64])
                });
                let buffer = gpu.upload(&[1f32; 100]).unwrap();
                for _ in 0..100 {
                    let graph = gpu.record(|| buffer.clear()).unwrap();
                    gpu.replay(&graph).unwrap();
                }
                assert!(other.join().unwrap() && buffer.read().unwrap() == [0.0; 100]);
            });
            let error = gpu.zeros::<f64>(1 << 44).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(error.contains("cuMemAlloc") && error.contains(gpu.name()), "{error}");
        }
    }

    // Kernels that overlap
    /// The first kernel lets the second begin, and waits for its sign for some cycles; the second gives it, and waits for the first.
    const OVERLAPPING: KernelSource = KernelSource {
        name: "overlapping.cu",
        text: r#"
    #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    #define WAIT asm volatile("griddepcontrol.wait;" ::: "memory")
    #define RELEASE asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
    #else
    #define WAIT
    #define RELEASE
    #endif
    extern "C" __global__ void first(const double *x, double *y, int *sign, int *flag, int n, int cycles) {
    RELEASE;
    if (threadIdx.x == 0) {
        const long long start = clock64();
        int found = 0;
        while (found == 0 && clock64() - start < cycles) found = atomicAdd(sign, 0);
        *flag = found;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += blockDim.x) y[k] = x[k] + 1;
    }
    extern "C" __global__ void second(const double *y, double *z, int *sign, int n) {
    if (threadIdx.x == 0) atomicExch(sign, 1);
    WAIT;
    for (int k = threadIdx.x; k < n; k += blockDim.x) z[k] = 2 * y[k];
    }
    "#,
        headers: &[],
    };

    kernels! {
        /// Kernels that overlap.
        struct Overlapping in OVERLAPPING {
            /// y = x + 1, when the second kernel has begun or some cycles are over.
            first: First<T> { x: [T] as "double", y: [f64], sign: [i32], flag: [i32], n: usize, cycles: usize }
            /// z = 2 y.
            second: Second { y: [f64], z: [f64], sign: [i32], n: usize }
        }
    }

    // Launch a kernel early
    #[test]
    fn a_kernel_launched_early_begins_early_and_waits() {
        let driver = probe().driver.ok();
        for (device, gpu) in driver.iter().flat_map(|driver| &driver.devices).zip(cuda_devices()) {
            let version = driver.as_ref().map_or((0, 0), |driver| driver.version);
            let is_early = device.compute_capability >= (9, 0) && version >= EARLY;
            let kernels = Overlapping::<f64>::load(&gpu, &[]).unwrap();
            let n = 1000;
            let (x, y) = (gpu.zeros::<f64>(n).unwrap(), gpu.zeros::<f64>(n).unwrap());
            let (z, shape) = (gpu.zeros::<f64>(n).unwrap(), Shape::over(64, 64, [1, 1]));
            let (sign, flag) = (gpu.zeros::<i32>(1).unwrap(), gpu.zeros::<i32>(1).unwrap());
            let queue = || {
                let (y, sign) = (y.view(..), sign.view(..));
                sign.clear()?;
                let (flag, cycles) = (flag.view(..), 100_000_000);
                gpu.launch(
                    &kernels.first,
                    shape,
                    First { x: x.view(..), y, sign, flag, n, cycles },
                )?;
                gpu.launch_early(&kernels.second, shape, Second { y, z: z.view(..), sign, n })
            };
            // Hold early launches to their results
            let mut begins_early = false;
            for round in 0..5 {
                let values: Vec<f64> = (0..n).map(|k| f64::from(round) + k as f64).collect();
                x.write(&values).unwrap();
                queue().unwrap();
                let doubled: Vec<f64> = values.iter().map(|x| 2.0 * (x + 1.0)).collect();
                assert_eq!(z.read().unwrap(), doubled);
                begins_early |= flag.read().unwrap() == [1];
                // A recording launches early too, and waits as well.
                let graph = gpu.record(queue).unwrap();
                z.clear().unwrap();
                gpu.replay(&graph).unwrap();
                assert_eq!(z.read().unwrap(), doubled);
            }
            // A host that is busy may launch the second kernel too late in some rounds.
            assert_eq!(begins_early, is_early, "{}", gpu.name());
        }
    }
}
