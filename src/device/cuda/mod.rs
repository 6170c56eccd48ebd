// Tangled from book/src/cuda-machine.md: edit there, or here and run cargo tangle stitch.
//! CUDA behind the seam: each method is a call of NVIDIA's libraries, whose status becomes an error with its name.
#![allow(unsafe_code)]

pub(crate) mod compiler;
pub mod probe;

use self::probe::{CudaDevice, Library, probe, require};
use super::Device;
use super::gpu::{Gpu, Machine, Shape, Source};
use crate::error::Error;
use cudarc::driver::{DriverError, result as driver, sys};
use cudarc::{cublas, cufft};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

// Open the devices of a name
/// Opens the devices that a name stands for: all of the machine for `cuda`, one for `cuda:K`.
///
/// # Errors
/// `Device` with the reason where there is none, or the name is `cpu`.
pub fn open(device: Device) -> Result<Vec<Gpu>, Error> {
    let refuse = |reason: String| Error::Device { device: device.to_string(), reason };
    let Device::Cuda(ordinal) = device else {
        return Err(refuse("it is no graphics processor".into()));
    };
    let found = probe();
    let first = found.device(ordinal).map_err(|none| refuse(none.to_string()))?;
    let driver = found.driver.as_ref().map_err(|none| refuse(none.to_string()))?;
    let chosen = match ordinal {
        Some(_) => std::slice::from_ref(first),
        None => driver.devices.as_slice(),
    };
    chosen.iter().map(|device| Cuda::open(device, driver.version).map(Gpu::new)).collect()
}

// One device with a stream
/// A device, its primary context, and one stream.
struct Cuda {
    name: String,
    capability: (i32, i32),
    version: (i32, i32),
    shared_memory: usize,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Programs by their key.
    programs: Mutex<HashMap<String, u64>>,
    blas: OnceLock<usize>,
    plans: Mutex<HashMap<u64, bool>>,
    turns: Turns,
}

// SAFETY: the driver's functions may be called from any thread with these handles.
unsafe impl Send for Cuda {}
// SAFETY: as above; the maps have locks of their own.
unsafe impl Sync for Cuda {}

// Open and give back a device
impl Cuda {
    // Open one device and its stream
    fn open(device: &CudaDevice, version: (i32, i32)) -> Result<Self, Error> {
        let name = format!("cuda:{} ({})", device.ordinal, device.name);
        let handle = driver::device::get(device.ordinal as i32)
            .map_err(|error| failed(&name, "cuDeviceGet", error))?;
        // SAFETY: the handle comes from the driver; the context is released when `Cuda` is dropped.
        let context = unsafe { driver::primary_ctx::retain(handle) }
            .map_err(|error| failed(&name, "cuDevicePrimaryCtxRetain", error))?;
        // Put a machine together without its stream
        let stream = std::ptr::null_mut();
        let CudaDevice { compute_capability: capability, shared_memory, .. } = *device;
        let (programs, blas, plans, turns) = Default::default();
        let mut cuda = Self {
            name,
            capability,
            version,
            shared_memory,
            handle,
            context,
            stream,
            programs,
            blas,
            plans,
            turns,
        };
        drop(cuda.enter()?);
        let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking);
        cuda.stream = cuda.call("cuStreamCreate", stream)?;
        Ok(cuda)
    }
}

// Give a device back
impl Drop for Cuda {
    fn drop(&mut self) {
        let Ok(turn) = self.enter() else { return };
        drop(turn);
        // SAFETY: each handle was made by this machine, and nothing holds it any more: buffers, programs, graphs and plans keep
        // the machine alive. A status is of no use to anybody here.
        unsafe {
            let _ = driver::stream::synchronize(self.stream);
            if let Some(&blas) = self.blas.get() {
                let _ = cublas::result::destroy_handle(blas as cublas::sys::cublasHandle_t);
            }
            let programs = self.programs.get_mut().unwrap_or_else(PoisonError::into_inner);
            for (_, program) in programs.drain() {
                let _ = driver::module::unload(program as usize as sys::CUmodule);
            }
            if !self.stream.is_null() {
                let _ = driver::stream::destroy(self.stream);
            }
            let _ = driver::primary_ctx::release(self.handle);
        }
    }
}

// Make calls and name their errors
/// The error of a driver's call on the device of this name.
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
    /// The same for the other libraries.
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
    /// Takes the turn, and makes the context that of the calling thread.
    fn enter(&self) -> Result<Turn<'_>, Error> {
        let turn = self.turns.take();
        // SAFETY: the context was retained when the machine was opened.
        self.call("cuCtxSetCurrent", unsafe { driver::ctx::set_current(self.context) })?;
        Ok(turn)
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

    /// Refuses where a library is missing.
    fn require(&self, library: Library) -> Result<(), Error> {
        require(library)
            .map_err(|none| Error::Device { device: self.name.clone(), reason: none.to_string() })
    }
}
/// Lets one thread at a time use a machine.
#[derive(Default)]
pub(super) struct Turns {
    /// Who has the turn, and how often it was taken.
    holder: Mutex<Option<(ThreadId, usize)>>,
    free: Condvar,
}

/// The turn of a thread, given back when it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

// Take and give back a turn
impl Turns {
    /// Waits until no other thread has the turn, and takes it once more.
    pub(super) fn take(&self) -> Turn<'_> {
        let me = std::thread::current().id();
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        while holder.is_some_and(|(other, _)| other != me) {
            holder = self.free.wait(holder).unwrap_or_else(PoisonError::into_inner);
        }
        *holder = Some((me, holder.map_or(0, |(_, times)| times) + 1));
        Turn(self)
    }

    /// Gives it back once; another thread may have it when it was given back as often as taken.
    pub(super) fn give_back(&self) {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        *holder = holder.and_then(|(me, times)| (times > 1).then_some((me, times - 1)));
        if holder.is_none() {
            self.free.notify_one();
        }
    }
}
/// Bytes of shared memory that a launch may have without asking.
const SHARED: usize = 48 << 10;

/// The oldest driver that can tell times.
const TIMING: (i32, i32) = (12, 8);

/// The oldest driver that can record early launches.
const EARLY: (i32, i32) = (12, 3);

impl Cuda {
    /// A kernel that may have so many bytes of shared memory.
    fn with_shared(&self, kernel: u64, bytes: usize) -> Result<sys::CUfunction, Error> {
        let kernel = kernel as usize as sys::CUfunction;
        if bytes > SHARED {
            let limit = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the kernel belongs to a program of this machine.
            let set =
                unsafe { driver::function::set_function_attribute(kernel, limit, bytes as i32) };
            self.call("cuFuncSetAttribute", set)?;
        }
        Ok(kernel)
    }
}
impl Cuda {
    /// The handle of cuBLAS on our stream.
    fn blas(&self) -> Result<cublas::sys::cublasHandle_t, Error> {
        if let Some(&blas) = self.blas.get() {
            return Ok(blas as cublas::sys::cublasHandle_t);
        }
        self.require(Library::Cublas)?;
        let blas = self.library("cublasCreate", cublas::result::create_handle())?;
        // SAFETY: handle and stream are ours.
        let status = unsafe { cublas::result::set_stream(blas, self.stream.cast()) };
        self.library("cublasSetStream", status)?;
        // Two threads may both have come here; the second's handle is not kept.
        match self.blas.set(blas as usize) {
            Ok(()) => Ok(blas),
            Err(_) => {
                // SAFETY: the handle was made above and nobody else knows it.
                let _ = unsafe { cublas::result::destroy_handle(blas) };
                self.blas()
            }
        }
    }
}

// CUDA as a machine
impl Machine for Cuda {
    // Tell what a CUDA device has
    fn name(&self) -> &str {
        &self.name
    }

    fn available_memory(&self) -> Result<u64, Error> {
        let _turn = self.enter()?;
        let (free, _) = self.call("cuMemGetInfo", driver::mem_get_info())?;
        Ok(free as u64)
    }

    fn shared_memory(&self) -> usize {
        self.shared_memory
    }

    // Allocate and free on CUDA
    fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        let _turn = self.enter()?;
        // SAFETY: the address is given back once, by `free`.
        self.call("cuMemAlloc", unsafe { driver::malloc_sync(bytes) })
    }

    fn free(&self, address: u64) {
        if let Ok(_turn) = self.enter() {
            // SAFETY: the address was allocated here, and work that uses it is waited for first.
            let _ = unsafe {
                driver::stream::synchronize(self.stream).and_then(|()| driver::free_sync(address))
            };
        }
    }

    fn clear(&self, address: u64, bytes: usize) -> Result<(), Error> {
        let _turn = self.enter()?;
        // SAFETY: a buffer clears its own bytes.
        let status = unsafe { driver::memset_d8_async(address, 0, bytes, self.stream) };
        self.call("cuMemsetD8Async", status)
    }

    // Copy to and from CUDA
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let _turn = self.enter()?;
        // SAFETY: a buffer holds as many bytes as it writes, and they live until the copy is done.
        let status = unsafe { driver::memcpy_htod_async(address, bytes, self.stream) };
        self.call("cuMemcpyHtoDAsync", status)?;
        self.synchronise()
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let _turn = self.enter()?;
        // SAFETY: a buffer holds at least as many bytes as are read, and we wait for the copy.
        let status = unsafe { driver::memcpy_dtoh_async(bytes, address, self.stream) };
        self.call("cuMemcpyDtoHAsync", status)?;
        self.synchronise()
    }

    fn synchronise(&self) -> Result<(), Error> {
        let _turn = self.enter()?;
        // SAFETY: the stream is ours.
        self.call("cuStreamSynchronize", unsafe { driver::stream::synchronize(self.stream) })
    }

    // Load and launch on CUDA
    fn load(&self, source: &Source, options: &[String]) -> Result<u64, Error> {
        let _turn = self.enter()?;
        let key = format!("{} {options:?}\n{}", source.name, source.text);
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
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
        let _turn = self.enter()?;
        let name = self.library("cuModuleGetFunction", CString::new(name))?;
        // SAFETY: the program was loaded by this machine, and is unloaded with it.
        let kernel =
            unsafe { driver::module::get_function(program as usize as sys::CUmodule, name) };
        Ok(self.call("cuModuleGetFunction", kernel)? as usize as u64)
    }

    // Launch a kernel on CUDA
    fn launch(&self, kernel: u64, shape: Shape, arguments: &mut [u64]) -> Result<(), Error> {
        let _turn = self.enter()?;
        let kernel = self.with_shared(kernel, shape.shared)?;
        let [x, y, z] = shape.grid.map(|blocks| blocks as u32);
        let mut pointers: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
        let (block, shared) = ((shape.block as u32, 1, 1), shape.shared as u32);
        // SAFETY: who launches gives the kernel's own arguments; the driver reads as many bytes of each as the kernel declares, at
        // most eight, and copies them.
        let status = unsafe {
            driver::launch_kernel(kernel, (x, y, z), block, shared, self.stream, &mut pointers)
        };
        self.call("cuLaunchKernel", status)
    }

    // Launch early on CUDA
    fn launch_early(&self, kernel: u64, shape: Shape, arguments: &mut [u64]) -> Result<(), Error> {
        if self.capability < (9, 0) || self.version < EARLY {
            return self.launch(kernel, shape, arguments);
        }
        let _turn = self.enter()?;
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
            hStream: self.stream,
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

    // Record and replay on CUDA
    fn begin_recording(&self) -> Result<(), Error> {
        let _turn = self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours.
        let status = unsafe { driver::stream::begin_capture(self.stream, mode) };
        self.call("cuStreamBeginCapture", status)?;
        std::mem::forget(self.turns.take()); // until the recording ends
        Ok(())
    }

    fn end_recording(&self) -> Result<u64, Error> {
        let _turn = self.enter()?;
        // SAFETY: the stream is ours and records.
        let graph = unsafe { driver::stream::end_capture(self.stream) };
        self.turns.give_back(); // what the beginning took
        let graph = self.call("cuStreamEndCapture", graph)?;
        // SAFETY: the graph was just recorded; it is destroyed once, below.
        let executable =
            unsafe { driver::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: as above; the executable graph does not need it.
        let _ = unsafe { driver::graph::destroy(graph) };
        Ok(self.call("cuGraphInstantiateWithFlags", executable)? as usize as u64)
    }

    // Replay and forget on CUDA
    fn replay(&self, graph: u64) -> Result<(), Error> {
        let _turn = self.enter()?;
        // SAFETY: the graph was recorded by this machine, and its buffers are alive as long as their owner.
        let status =
            unsafe { driver::graph::launch(graph as usize as sys::CUgraphExec, self.stream) };
        self.call("cuGraphLaunch", status)
    }

    fn forget_graph(&self, graph: u64) {
        if let Ok(_turn) = self.enter() {
            // SAFETY: the graph was recorded by this machine and is forgotten once; we wait until no replay of it is left.
            let _ = unsafe {
                driver::stream::synchronize(self.stream)
                    .and_then(|()| driver::graph::exec_destroy(graph as usize as sys::CUgraphExec))
            };
        }
    }

    // Measure time on CUDA
    fn milliseconds(&self, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error> {
        let _turn = self.enter()?;
        if self.version < TIMING {
            let reason = format!("timing needs a driver of CUDA {}.{}", TIMING.0, TIMING.1);
            return Err(Error::Device { device: self.name.clone(), reason });
        }
        // Make two events and record them
        let event = || {
            let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
            self.call("cuEventCreate", driver::event::create(flags))
        };
        let (start, end) = (event()?, event()?);
        // SAFETY: events and stream are ours, and the events are destroyed once, below.
        let record = |event| {
            self.call("cuEventRecord", unsafe { driver::event::record(event, self.stream) })
        };
        let measured = record(start).and_then(|()| work()).and_then(|()| record(end));
        let measured = measured.and_then(|()| self.synchronise()).and_then(|()| {
            // SAFETY: both events have been recorded on one stream, and are done.
            self.call("cuEventElapsedTime", unsafe { driver::event::elapsed(start, end) })
        });
        for event in [start, end] {
            // SAFETY: as above.
            let _ = unsafe { driver::event::destroy(event) };
        }
        measured.map(f64::from)
    }

    // Transform by cuFFT
    fn plan_fft(&self, length: usize, batch: usize, double: bool) -> Result<u64, Error> {
        use cufft::{result, sys::cufftType};
        let _turn = self.enter()?;
        self.require(Library::Cufft)?;
        let kind = if double { cufftType::CUFFT_Z2Z } else { cufftType::CUFFT_C2C };
        let (mut lengths, none) = ([length as i32; 2], std::ptr::null_mut());
        let distance = (length * length) as i32;
        // SAFETY: `lengths` holds two numbers and is read only during the call; no embedding is given.
        let plan = unsafe {
            let lengths = lengths.as_mut_ptr();
            result::plan_many(2, lengths, none, 1, distance, none, 1, distance, kind, batch as i32)
        };
        let plan = self.library("cufftPlanMany", plan)?;
        // Put a plan on our stream
        // SAFETY: plan and stream are ours.
        let status = unsafe { result::set_stream(plan, self.stream.cast()) };
        if status.is_err() {
            // SAFETY: the plan was just made, and nobody else knows it.
            let _ = unsafe { result::destroy(plan) };
        }
        self.library("cufftSetStream", status)?;
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(plan as u64, double);
        Ok(plan as u64)
    }

    // Execute a plan of transforms
    fn transform(&self, plan: u64, address: u64) -> Result<(), Error> {
        use cufft::{result, sys};
        let _turn = self.enter()?;
        let double = self.plans.lock().unwrap_or_else(PoisonError::into_inner).get(&plan).copied();
        let (plan, inverse) = (plan as sys::cufftHandle, 1);
        // SAFETY: the plan was made by this machine, and `Gpu::transform` has checked that the fields are as many as it transforms.
        let status = unsafe {
            if double.unwrap_or(true) {
                let fields = address as usize as *mut sys::cufftDoubleComplex;
                result::exec_z2z(plan, fields, fields, inverse)
            } else {
                let fields = address as usize as *mut sys::cufftComplex;
                result::exec_c2c(plan, fields, fields, inverse)
            }
        };
        self.library("cufftExec", status)
    }

    // Forget a plan of transforms
    fn forget_fft(&self, plan: u64) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).remove(&plan);
        if let Ok(_turn) = self.enter() {
            // SAFETY: the plan was made by this machine, is forgotten once, and its work is waited for.
            let _ = unsafe { driver::stream::synchronize(self.stream) };
            // SAFETY: as above.
            let _ = unsafe { cufft::result::destroy(plan as cufft::sys::cufftHandle) };
        }
    }

    // Multiply by cuBLAS
    fn multiply_matrix(
        &self,
        double: bool,
        matrix: u64,
        (rows, columns): (usize, usize),
        x: u64,
        y: u64,
    ) -> Result<(), Error> {
        use cublas::{result, sys::cublasOperation_t::CUBLAS_OP_T};
        let _turn = self.enter()?;
        let blas = self.blas()?;
        let (m, n) = (columns as i32, rows as i32);
        let [matrix, x, y] = [matrix, x, y].map(|address| address as usize as *mut c_void);
        // SAFETY: the buffers fit the shape, as `Gpu::multiply_matrix` has checked; the factors are read during the call.
        let status = unsafe {
            if double {
                let (one, zero, [a, x, y]) = (1.0, 0.0, [matrix, x, y].map(<*mut c_void>::cast));
                result::dgemv(blas, CUBLAS_OP_T, m, n, &one, a, m, x, 1, &zero, y, 1)
            } else {
                let (one, zero, [a, x, y]) = (1.0, 0.0, [matrix, x, y].map(<*mut c_void>::cast));
                result::sgemv(blas, CUBLAS_OP_T, m, n, &one, a, m, x, 1, &zero, y, 1)
            }
        };
        self.library("cublasGemv", status)
    }
}

// Tests of opened devices
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_bear_the_name_of_the_call() {
        assert!(matches!(open(Device::Cpu), Err(Error::Device { .. })));
        assert!(matches!(open(Device::Cuda(Some(9999))), Err(Error::Device { .. })));
        let devices = match open(Device::Cuda(None)) {
            Ok(devices) => devices,
            Err(reason) => return eprintln!("skipped on a graphics processor: {reason}"),
        };
        for gpu in devices {
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
}
