// Tangled from book/src/distributed-cuda.md: edit there, or here and run cargo tangle stitch.
//! Matrices over several devices by cuSOLVERMp, whose ranks speak through NCCL; both libraries are looked for at run time.

// Imports of several devices
use super::library_search::{self, CUSOLVERMP, NCCL, NvidiaLibrary};
use super::probe::{self, Library as Known};
use crate::device::backend::{Collective, DistributedMatrix};
use crate::error::Error;
use cudarc::driver::{result as driver, sys};
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

// Declare functions of a library
/// A structure of functions that a library must have, each of which returns a status.
macro_rules! functions {
    ($name:ident { $($function:ident($($argument:ty),+);)+ }) => {
        #[allow(non_snake_case)]
        struct $name {
            $($function: unsafe extern "C" fn($($argument),+) -> i32,)+
        }

        impl $name {
            /// The functions of a library; or the name of one that is missing.
            fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: the types are those of the library's header.
                Ok(unsafe { Self {
                    $($function: *library
                        .get(stringify!($function).as_bytes())
                        .map_err(|_| stringify!($function))?,)+
                } })
            }
        }
    };
}

// Functions of NCCL
/// What NCCL's ranks know each other by.
#[derive(Clone, Copy)]
#[repr(C)]
struct Identifier([u8; 128]);

type Stream = sys::CUstream;
type Pointer = *mut c_void;

functions!(Nccl {
    ncclGetUniqueId(*mut Identifier);
    ncclCommInitRank(*mut Pointer, i32, Identifier, i32);
    ncclCommDestroy(Pointer);
    ncclCommAbort(Pointer);
    ncclAllReduce(Pointer, Pointer, usize, i32, i32, Pointer, Stream);
    ncclBcast(Pointer, usize, i32, i32, Pointer, Stream);
});

// Functions of the distributed solver
functions!(Solver {
    cusolverMpCreate(*mut Pointer, i32, Stream);
    cusolverMpDestroy(Pointer);
    cusolverMpCreateDeviceGrid(Pointer, *mut Pointer, Pointer, i32, i32, i32);
    cusolverMpDestroyGrid(Pointer);
    cusolverMpCreateMatrixDesc(*mut Pointer, Pointer, i32, i64, i64, i64, i64, u32, u32, i64);
    cusolverMpDestroyMatrixDesc(Pointer);
    cusolverMpPotrf_bufferSize(Pointer, i32, i64, Pointer, i64, i64, Pointer, i32, *mut usize, *mut usize);
    cusolverMpPotrf(
        Pointer, i32, i64, Pointer, i64, i64, Pointer, i32, Pointer, usize, Pointer, usize, Pointer
    );
    cusolverMpPotrs_bufferSize(
        Pointer, i32, i64, i64, Pointer, i64, i64, Pointer, Pointer, i64, i64, Pointer, i32, *mut usize, *mut usize
    );
    cusolverMpPotrs(
        Pointer, i32, i64, i64, Pointer, i64, i64, Pointer, Pointer, i64, i64, Pointer, i32, Pointer, usize, Pointer,
        usize, Pointer
    );
    cusolverMpSyevd_bufferSize(
        Pointer, *mut c_char, i32, i64, Pointer, i64, i64, Pointer, Pointer, Pointer, i64, i64, Pointer, i32,
        *mut usize, *mut usize
    );
    cusolverMpSyevd(
        Pointer, *mut c_char, i32, i64, Pointer, i64, i64, Pointer, Pointer, Pointer, i64, i64, Pointer, i32, Pointer,
        usize, Pointer, usize, Pointer
    );
});

// Both libraries of this process
/// The libraries with their functions; they are never unloaded.
struct Libraries {
    nccl: Nccl,
    /// The text of a status of NCCL's.
    text: unsafe extern "C" fn(i32) -> *const c_char,
    solver: Solver,
    _loaded: [Library; 2],
}

/// The libraries, or which of them is missing and what brings it.
fn libraries() -> Result<&'static Libraries, String> {
    static FOUND: OnceLock<Result<Libraries, String>> = OnceLock::new();
    FOUND.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// Whether the libraries by which devices share a matrix are found; if not, which one is missing and what installs it.
pub(crate) fn libraries_found() -> Result<(), String> {
    libraries().map(drop)
}

/// Rejects a device where a library for several devices is missing.
///
/// # Errors
/// `Device`, with the library's name and what installs it.
pub(crate) fn require_several(device: &str) -> Result<(), Error> {
    libraries_found().map_err(|reason| Error::Device { device: device.into(), reason })
}

// Open both libraries
fn open() -> Result<Libraries, String> {
    let cublas = probe::locate(Known::Cublas).map_err(|none| none.to_string())?;
    probe::require(Known::Cusolver).map_err(|none| none.to_string())?;
    let release = probe::installable(cublas.release.or_else(probe::driver_release));
    let open = |library, companion| {
        let opened = library_search::open(library, companion, release);
        opened.map_err(|reason: String| missing(library, release, &reason))
    };
    let first = open(&NCCL, Some(&CUSOLVERMP))?;
    let of_nccl = |function| {
        format!("{} has no function {function}; is it 2.28 or newer?", NCCL.soname(release))
    };
    let nccl = Nccl::of(&first).map_err(of_nccl)?;
    // SAFETY: the type is that of NCCL's header.
    let text = unsafe { first.get(b"ncclGetErrorString") }.map(|text| *text);
    let text = text.map_err(|_| of_nccl("ncclGetErrorString"))?;
    // Open the distributed solver
    let second = open(&CUSOLVERMP, None)?;
    let solver = Solver::of(&second).map_err(|function| {
        format!("{} has no function {function}; is it 0.8 or newer?", CUSOLVERMP.soname(release))
    })?;
    Ok(Libraries { nccl, text, solver, _loaded: [first, second] })
}

// Say which package is missing
/// Says that a library does not load, why, and what would help.
fn missing(library: &NvidiaLibrary, release: i32, reason: &str) -> String {
    let (name, stem) = (library.soname(release), library.stem.to_lowercase());
    let hint = if reason.contains("undefined symbol") || reason.contains("cublasmp") {
        " (cuSOLVERMp 0.8 runs with NCCL 2.28; 0.9 needs NCCL 2.29.2 and cuBLASMp)"
    } else {
        ""
    };
    format!(
        "{name} does not load: {reason}{hint}; `pip install nvidia-{stem}-cu{release}` brings it"
    )
}

// Ranks on CUDA and their work
// A rank on CUDA
/// A device that has joined others: communicator, handle and a grid that is one column of ranks.
pub(super) struct CudaRank {
    libraries: &'static Libraries,
    context: sys::CUcontext,
    communicator: Pointer,
    handle: Pointer,
    grid: Pointer,
    is_aborted: AtomicBool,
}

// SAFETY: handles that any thread may use; one at a time does, whose turn the stream is, but for `abort`, which NCCL allows from others.
unsafe impl Send for CudaRank {}
// SAFETY: as above.
unsafe impl Sync for CudaRank {}

// Make an identifier on CUDA
/// An identifier for ranks that are to join.
pub(super) fn identifier() -> Result<Vec<u8>, String> {
    let (libraries, mut identifier) = (libraries()?, Identifier([0; 128]));
    // SAFETY: writes one identifier.
    let status = unsafe { (libraries.nccl.ncclGetUniqueId)(&mut identifier) };
    libraries.nccl_says("ncclGetUniqueId", status).map_err(|error| error.to_string())?;
    Ok(identifier.0.to_vec())
}

// Name what libraries answer
impl Libraries {
    /// The error of a call of NCCL's, if it is one; the device gets its name later.
    fn nccl_says(&self, call: &'static str, status: i32) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NCCL has a constant text for each status.
        let text = unsafe { CStr::from_ptr((self.text)(status)) }.to_string_lossy().into_owned();
        Err(Error::Cuda { call, device: String::new(), reason: text })
    }
}

// Errors of cuSOLVERMp and the driver
/// The error of a call of cuSOLVERMp's, if it is one.
fn check_status(call: &'static str, status: i32) -> Result<(), Error> {
    let reason = || format!("status {status}");
    if status == 0 {
        Ok(())
    } else {
        Err(Error::Cuda { call, device: String::new(), reason: reason() })
    }
}

/// The result of a call of the driver, with its status as an error; the device gets its name later.
fn driven<T>(call: &'static str, status: Result<T, driver::DriverError>) -> Result<T, Error> {
    status.map_err(|error| Error::Cuda {
        call,
        device: String::new(),
        reason: format!("{error:?}"),
    })
}

// Join other ranks
impl CudaRank {
    /// Joins others with a device whose context is current; waits for them.
    pub(super) fn join(
        (device, context, stream): (i32, sys::CUcontext, Stream),
        [rank, ranks]: [usize; 2],
        identifier: &[u8],
    ) -> Result<Self, Error> {
        let refuse = |reason| Error::Device { device: String::new(), reason };
        let libraries = libraries().map_err(refuse)?;
        let bytes = identifier.try_into();
        let known = Identifier(bytes.map_err(|_| refuse("this is no identifier".into()))?);
        let is_aborted = AtomicBool::new(false);
        let (communicator, handle, grid) = (null_mut(), null_mut(), null_mut());
        let mut made = Self { libraries, context, communicator, handle, grid, is_aborted };
        let (rank, ranks) = (rank as i32, ranks as i32);
        // Make communicator, handle and grid
        // SAFETY: each call writes one handle, which is given back with `made`; the stream is of the current context.
        unsafe {
            let joined =
                (libraries.nccl.ncclCommInitRank)(&mut made.communicator, ranks, known, rank);
            libraries.nccl_says("ncclCommInitRank", joined)?;
            let created = (libraries.solver.cusolverMpCreate)(&mut made.handle, device, stream);
            check_status("cusolverMpCreate", created)?;
            let (by_columns, joined) = (0, made.communicator);
            let create = libraries.solver.cusolverMpCreateDeviceGrid;
            let created = create(made.handle, &mut made.grid, joined, ranks, 1, by_columns);
            check_status("cusolverMpCreateDeviceGrid", created)?;
        }
        Ok(made)
    }

    // Enter the context of a rank
    /// Makes the context that of the calling thread.
    fn enter(&self) -> Result<(), Error> {
        if self.is_aborted.load(Ordering::Acquire) {
            let reason = "the ranks have parted".to_string();
            return Err(Error::Cuda { call: "cusolverMp", device: String::new(), reason });
        }
        // SAFETY: the context belongs to the machine that holds this rank.
        driven("cuCtxSetCurrent", unsafe { driver::ctx::set_current(self.context) })
    }
}

// Part from other ranks
impl Drop for CudaRank {
    fn drop(&mut self) {
        if self.is_aborted.load(Ordering::Acquire) || self.enter().is_err() {
            return;
        }
        // SAFETY: all handles were made by `join` and belong to this rank; a status is of no use to anybody here.
        unsafe {
            let (solver, nccl) = (&self.libraries.solver, &self.libraries.nccl);
            if !self.grid.is_null() {
                (solver.cusolverMpDestroyGrid)(self.grid);
            }
            if !self.handle.is_null() {
                (solver.cusolverMpDestroy)(self.handle);
            }
            if !self.communicator.is_null() {
                (nccl.ncclCommDestroy)(self.communicator);
            }
        }
    }
}

// Describe a matrix to the library
/// A matrix of so many rows and columns, as the library counts them, that lies on all ranks.
struct Described<'a> {
    rank: &'a CudaRank,
    descriptor: Pointer,
}

// Make a descriptor
impl CudaRank {
    /// Describes `columns` columns, as the library counts, of a matrix whose rows are dealt out; the columns are in blocks of `wide`.
    fn describe(
        &self,
        of: &DistributedMatrix,
        [columns, wide]: [usize; 2],
    ) -> Result<Described<'_>, Error> {
        let mut described = Described { rank: self, descriptor: null_mut() };
        let [rows, columns, block, wide, count] =
            [of.order, columns, of.block, wide, of.count].map(|size| size as i64);
        let (create, kind) = (self.libraries.solver.cusolverMpCreateMatrixDesc, kind(of.double));
        let (to, grid) = (&mut described.descriptor, self.grid);
        // SAFETY: writes one descriptor, which is given back below.
        let status = unsafe { create(to, grid, kind, rows, columns, block, wide, 0, 0, count) };
        check_status("cusolverMpCreateMatrixDesc", status)?;
        Ok(described)
    }
}

// Destroy a descriptor
impl Drop for Described<'_> {
    fn drop(&mut self) {
        let destroy = self.rank.libraries.solver.cusolverMpDestroyMatrixDesc;
        if !self.descriptor.is_null() {
            // SAFETY: made by `describe`, and no work uses it any more.
            unsafe { destroy(self.descriptor) };
        }
    }
}

// Words of the distributed solver
/// The numbers of a matrix, as the library calls them.
fn kind(double: bool) -> i32 {
    i32::from(double)
}

/// An address of a device as a pointer.
fn pointer(address: u64) -> Pointer {
    address as usize as Pointer
}

/// The half of a matrix that is looked at, the lower one as the library counts.
const LOWER: i32 = 0;

// Lend memory to ranks
impl CudaRank {
    /// Does some work with the bytes that it asks for, on the device and on the host, and waits for it. `calls` names asking and doing.
    fn with_workspace(
        &self,
        stream: u64,
        calls: [&'static str; 2],
        ask: &dyn Fn(*mut usize, *mut usize) -> i32,
        work: &dyn Fn([Pointer; 2], [usize; 2]) -> i32,
    ) -> Result<(), Error> {
        let (mut device, mut host, stream) = (0, 0, stream as usize as Stream);
        check_status(calls[0], ask(&mut device, &mut host))?;
        let mut on_host = vec![0u8; host.max(1)];
        // Allocate work and free
        // SAFETY: given back below, when all work of the stream is done.
        let lent = driven("cuMemAlloc", unsafe { driver::malloc_sync(device.max(1)) })?;
        // SAFETY: the stream is that of this rank, here and below.
        let ready = unsafe { driver::stream::synchronize(stream) };
        let status = work([pointer(lent), on_host.as_mut_ptr().cast()], [device, host]);
        // SAFETY: as above.
        let done = unsafe { driver::stream::synchronize(stream) };
        // SAFETY: allocated above, and given back once.
        let freed = unsafe { driver::free_sync(lent) };
        driven("cuStreamSynchronize", ready)?;
        check_status(calls[1], status)?;
        driven(calls[1], done)?;
        driven("cuMemFree", freed)
    }
}

// Work of a rank
impl Collective for CudaRank {
    // Factorise on several devices
    fn cholesky(&self, stream: u64, of: &DistributedMatrix, report: u64) -> Result<(), Error> {
        self.enter()?;
        let (solver, handle) = (&self.libraries.solver, self.handle);
        let (described, kind) = (self.describe(of, [of.order, of.block])?, kind(of.double));
        let (n, a, d, report) =
            (of.order as i64, pointer(of.matrix), described.descriptor, pointer(report));
        let calls = ["cusolverMpPotrf_bufferSize", "cusolverMpPotrf"];
        // SAFETY: `Rank` has checked that the matrix fits its deal; two sizes are written.
        let ask = |device: *mut usize, host: *mut usize| unsafe {
            (solver.cusolverMpPotrf_bufferSize)(handle, LOWER, n, a, 1, 1, d, kind, device, host)
        };
        // SAFETY: as above; the memory is as large as was asked for, and the report an `int` of the device.
        let work = |[w, h]: [Pointer; 2], [on_w, on_h]: [usize; 2]| unsafe {
            (solver.cusolverMpPotrf)(handle, LOWER, n, a, 1, 1, d, kind, w, on_w, h, on_h, report)
        };
        self.with_workspace(stream, calls, &ask, &work)
    }

    // Solve on several devices
    fn solve(
        &self,
        stream: u64,
        of: &DistributedMatrix,
        [rows, count]: [u64; 2],
        report: u64,
    ) -> Result<(), Error> {
        self.enter()?;
        let (solver, handle) = (&self.libraries.solver, self.handle);
        let all = count as usize;
        let (factor, sides) =
            (self.describe(of, [of.order, of.block])?, self.describe(of, [all, all])?);
        let (n, a, kind) = (of.order as i64, pointer(of.matrix), kind(of.double));
        let (m, b, report) = (count as i64, pointer(rows), pointer(report));
        let (d, e) = (factor.descriptor, sides.descriptor);
        let calls = ["cusolverMpPotrs_bufferSize", "cusolverMpPotrs"];
        // SAFETY: `Rank` has checked that factor and rows fit their deal; two sizes are written.
        let ask = |device: *mut usize, host: *mut usize| unsafe {
            (solver.cusolverMpPotrs_bufferSize)(
                handle, LOWER, n, m, a, 1, 1, d, b, 1, 1, e, kind, device, host,
            )
        };
        // SAFETY: as above; the memory is as large as was asked for, and the report an `int` of the device.
        let work = |[w, h]: [Pointer; 2], [on_w, on_h]: [usize; 2]| unsafe {
            (solver.cusolverMpPotrs)(
                handle, LOWER, n, m, a, 1, 1, d, b, 1, 1, e, kind, w, on_w, h, on_h, report,
            )
        };
        self.with_workspace(stream, calls, &ask, &work)
    }

    // Find eigenvectors on several devices
    fn eigenvectors(
        &self,
        stream: u64,
        of: &DistributedMatrix,
        found: [u64; 2],
        report: u64,
    ) -> Result<(), Error> {
        self.enter()?;
        let (solver, handle) = (&self.libraries.solver, self.handle);
        let (described, kind) = (self.describe(of, [of.order, of.block])?, kind(of.double));
        let (n, a, d) = (of.order as i64, pointer(of.matrix), described.descriptor);
        let ([values, q], report) = (found.map(pointer), pointer(report));
        let mut vectors = [b'V' as c_char, 0];
        let vectors = vectors.as_mut_ptr();
        let calls = ["cusolverMpSyevd_bufferSize", "cusolverMpSyevd"];
        // SAFETY: `Rank` has checked that matrix, values and vectors fit the deal; two sizes are written, and the text is only read.
        let ask = |device: *mut usize, host: *mut usize| unsafe {
            (solver.cusolverMpSyevd_bufferSize)(
                handle, vectors, LOWER, n, a, 1, 1, d, values, q, 1, 1, d, kind, device, host,
            )
        };
        // SAFETY: as above; the memory is as large as was asked for, and the report an `int` of the device.
        let work = |[w, h]: [Pointer; 2], [on_w, on_h]: [usize; 2]| unsafe {
            (solver.cusolverMpSyevd)(
                handle, vectors, LOWER, n, a, 1, 1, d, values, q, 1, 1, d, kind, w, on_w, h, on_h,
                report,
            )
        };
        self.with_workspace(stream, calls, &ask, &work)
    }

    // Sum and send over several devices
    fn sum(&self, stream: u64, double: bool, [address, count]: [u64; 2]) -> Result<(), Error> {
        self.enter()?;
        let (kind, sum, to) = (if double { 8 } else { 7 }, 0, stream as usize as Stream);
        let numbers = pointer(address);
        let call = self.libraries.nccl.ncclAllReduce;
        // SAFETY: the numbers are a buffer of this device, read and written in place, and we wait for it.
        let status =
            unsafe { call(numbers, numbers, count as usize, kind, sum, self.communicator, to) };
        self.libraries.nccl_says("ncclAllReduce", status)?;
        // SAFETY: the stream is that of this rank.
        driven("ncclAllReduce", unsafe { driver::stream::synchronize(to) })
    }

    fn broadcast(&self, stream: u64, [address, bytes]: [u64; 2], from: usize) -> Result<(), Error> {
        self.enter()?;
        let (as_bytes, to) = (0, stream as usize as Stream);
        let (call, from) = (self.libraries.nccl.ncclBcast, from as i32);
        // SAFETY: the bytes are those of a buffer of this device, and we wait for them.
        let status = unsafe {
            call(pointer(address), bytes as usize, as_bytes, from, self.communicator, to)
        };
        self.libraries.nccl_says("ncclBcast", status)?;
        // SAFETY: the stream is that of this rank.
        driven("ncclBcast", unsafe { driver::stream::synchronize(to) })
    }

    // Abort on several devices
    fn abort(&self) {
        if !self.is_aborted.swap(true, Ordering::AcqRel) {
            // SAFETY: a communicator of this rank, which nothing uses after it, as `enter` and `drop` see to; NCCL lets go of threads that
            // wait for it.
            unsafe { (self.libraries.nccl.ncclCommAbort)(self.communicator) };
        }
    }
}

// End a process without exit handlers
unsafe extern "C" {
    /// Ends the process at once, as the standard of C has it.
    safe fn _Exit(code: i32) -> !;
}

/// Ends the process without exit handlers.
#[cfg(feature = "command")]
pub(in crate::device) fn end_process(code: i32) -> ! {
    _Exit(code)
}

// Tests of libraries for several devices
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_libraries_are_reported_with_their_packages() {
        let said = missing(&NCCL, 13, "not found");
        assert_eq!(
            said,
            "libnccl.so.2 does not load: not found; `pip install nvidia-nccl-cu13` brings it"
        );
        let said = missing(&CUSOLVERMP, 12, "undefined symbol: c");
        assert!(said.contains("NCCL 2.29.2") && said.contains("nvidia-cusolvermp-cu12"), "{said}");
        if let Err(error) = require_several("cuda") {
            eprintln!("skipped with several devices: {error}");
            let named = ["cublas", "cusolver", "libnccl.so.2", "libcusolverMp.so.0"];
            assert!(named.iter().any(|name| error.to_string().contains(name)), "{error}");
        }
    }
}
