// Tangled from book/src/cuda-libraries.md: edit there, or here and run cargo tangle stitch.
//! Dense factorisations by cuSOLVER, in its 64-bit form. Its errors do not contain the name of the device; the backend adds it.

// Imports of factorisations on CUDA
use crate::device::backend::Symmetric;
use crate::error::Error;
use cudarc::cusolver::sys::{self, cudaDataType, cusolverStatus_t};
use cudarc::driver::{result as driver, sys::CUstream};
use std::ffi::c_void;
use std::fmt::Debug;
use std::ptr::null_mut;

// Handle of cuSOLVER
/// A handle of cuSOLVER on a stream, and the parameters of its 64-bit functions.
pub(super) struct CusolverHandle {
    handle: sys::cusolverDnHandle_t,
    parameters: sys::cusolverDnParams_t,
    stream: CUstream,
}

// SAFETY: any thread may use these handles; only the thread that holds the lock of the stream does.
unsafe impl Send for CusolverHandle {}
// SAFETY: as above.
unsafe impl Sync for CusolverHandle {}

impl Drop for CusolverHandle {
    fn drop(&mut self) {
        // SAFETY: both were made with this structure and belong to it; a null handle only gives an error status, which is ignored.
        unsafe {
            let _ = sys::cusolverDnDestroyParams(self.parameters);
            let _ = sys::cusolverDnDestroy(self.handle);
        }
    }
}

// Open cuSOLVER on a stream
/// The result of a call of cuSOLVER, with its status as an error.
fn check_status<T, E: Debug>(call: &'static str, status: Result<T, E>) -> Result<T, Error> {
    status.map_err(|error| Error::Cuda {
        call,
        device: String::new(),
        reason: format!("{error:?}"),
    })
}

impl CusolverHandle {
    /// A handle on a stream. The library must be present.
    pub fn open(stream: CUstream) -> Result<Self, Error> {
        let mut solver = Self { handle: null_mut(), parameters: null_mut(), stream };
        // SAFETY: each call writes one handle, which is destroyed with `solver`; the stream is of the current context.
        unsafe {
            check_status("cusolverDnCreate", sys::cusolverDnCreate(&mut solver.handle).result())?;
            let made = sys::cusolverDnCreateParams(&mut solver.parameters);
            check_status("cusolverDnCreateParams", made.result())?;
            let set = sys::cusolverDnSetStream(solver.handle, stream.cast());
            check_status("cusolverDnSetStream", set.result())?;
        }
        Ok(solver)
    }

    // Allocate workspace for a factorisation
    /// Runs a function of cuSOLVER with its workspace, on the device and on the host. `calls` names the query of the sizes and the function.
    fn with_workspace(
        &self,
        calls: [&'static str; 2],
        ask: impl FnOnce(&mut usize, &mut usize) -> cusolverStatus_t,
        work: impl FnOnce([*mut c_void; 2], [usize; 2]) -> cusolverStatus_t,
    ) -> Result<(), Error> {
        let (mut device, mut host) = (0, 0);
        check_status(calls[0], ask(&mut device, &mut host).result())?;
        let mut on_host = vec![0u8; host];
        // SAFETY: the stream is that of this handle; the memory is freed below, in the order of the stream.
        let lent = unsafe { driver::malloc_async(self.stream, device.max(1)) };
        let lent = check_status("cuMemAllocAsync", lent)?;
        let memory = [lent as usize as *mut c_void, on_host.as_mut_ptr().cast()];
        let status = work(memory, [device, host]);
        // SAFETY: allocated above on this stream, and freed once.
        let freed = unsafe { driver::free_async(lent, self.stream) };
        // SAFETY: as above.
        let done =
            if host > 0 { unsafe { driver::stream::synchronize(self.stream) } } else { Ok(()) };
        check_status(calls[1], status.result())?;
        check_status("cuMemFreeAsync", freed)?;
        check_status("cuStreamSynchronize", done)
    }

    // Take Cholesky's factor on CUDA
    /// Queues Cholesky's factorisation, which overwrites the matrix by its factor.
    pub fn cholesky(&self, of: &Symmetric) -> Result<(), Error> {
        let (solver, parameters, kind) = (self.handle, self.parameters, kind(of.double));
        let (n, a) = (of.order as i64, of.matrix as usize as *mut c_void);
        let (lower, report) = (sys::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER, of.report as usize);
        // SAFETY: `Gpu::cholesky` has checked that the matrix fits its order; two sizes are written.
        let ask = |device: &mut usize, host: &mut usize| unsafe {
            sys::cusolverDnXpotrf_bufferSize(
                solver, parameters, lower, n, kind, a, n, kind, device, host,
            )
        };
        let calls = ["cusolverDnXpotrf_bufferSize", "cusolverDnXpotrf"];
        self.with_workspace(calls, ask, |[device, host], [on_device, on_host]| {
            // SAFETY: as above; the memory is as large as was asked for, and the report an `int` of the device.
            unsafe {
                sys::cusolverDnXpotrf(
                    solver,
                    parameters,
                    lower,
                    n,
                    kind,
                    a,
                    n,
                    kind,
                    device,
                    on_device,
                    host,
                    on_host,
                    report as *mut i32,
                )
            }
        })
    }
    // Find eigenvectors on CUDA
    /// Queues an eigendecomposition, which overwrites the matrix by its eigenvectors.
    pub fn eigenvectors(&self, of: &Symmetric, values: u64) -> Result<(), Error> {
        let (solver, parameters, kind) = (self.handle, self.parameters, kind(of.double));
        let [a, w] = [of.matrix, values].map(|address| address as usize as *mut c_void);
        let (n, report) = (of.order as i64, of.report as usize);
        let lower = sys::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER;
        let vectors = sys::cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR;
        // SAFETY: `Gpu::eigenvectors` has checked that matrix and values fit the order; two sizes are written.
        let ask = |device: &mut usize, host: &mut usize| unsafe {
            sys::cusolverDnXsyevd_bufferSize(
                solver, parameters, vectors, lower, n, kind, a, n, kind, w, kind, device, host,
            )
        };
        let calls = ["cusolverDnXsyevd_bufferSize", "cusolverDnXsyevd"];
        self.with_workspace(calls, ask, |[device, host], [on_device, on_host]| {
            // SAFETY: as above; the memory is as large as was asked for, and the report an `int` of the device.
            unsafe {
                sys::cusolverDnXsyevd(
                    solver,
                    parameters,
                    vectors,
                    lower,
                    n,
                    kind,
                    a,
                    n,
                    kind,
                    w,
                    kind,
                    device,
                    on_device,
                    host,
                    on_host,
                    report as *mut i32,
                )
            }
        })
    }
}

/// The numbers of a matrix, as cuSOLVER calls them.
fn kind(double: bool) -> cudaDataType {
    if double { cudaDataType::CUDA_R_64F } else { cudaDataType::CUDA_R_32F }
}
