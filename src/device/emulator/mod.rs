// Tangled from book/src/emulated-device.md: edit there, or here and run cargo tangle stitch.
//! An emulated device for tests: kernels compiled by the system's C++ compiler run on the processor, with every access checked.
#![allow(unsafe_code)]

pub(crate) mod collector;
mod ranks;
mod translation;

// Imports of the emulator
use self::translation::{compiler, library};
use super::backend::{
    Backend, Collective, Handle, MatrixProduct, Operation, Pages, Symmetric, TransformBatch,
    TransformKind, Triangular,
};
use super::dispatch::lock;
use super::gpu::{KernelSource, Shape};
use crate::error::Error;
use crate::numerics::real::Real;
use libloading::Library;
use num_complex::Complex;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock};
use std::time::Instant;
use std::{env, slice};

// Programs of this process
/// The file of a library, or the reason why there is none; and the library as loaded for each set.
struct LibraryFile {
    key: (KernelSource, Vec<String>),
    file: OnceLock<Result<PathBuf, String>>,
    loaded: Mutex<BTreeMap<usize, &'static Library>>,
}

/// All programs of this process; a handle is an index of the list.
static PROGRAMS: Mutex<Vec<&'static LibraryFile>> = Mutex::new(Vec::new());

// Load a program once
fn load(source: &KernelSource, options: &[String]) -> Result<usize, Error> {
    let mut programs = lock(&PROGRAMS);
    let key = (*source, options.to_vec());
    let known = programs.iter().position(|program| program.key == key);
    let place = known.unwrap_or_else(|| {
        let (file, loaded) = (OnceLock::new(), Mutex::default());
        programs.push(Box::leak(Box::new(LibraryFile { key, file, loaded })));
        programs.len() - 1
    });
    let program = programs[place];
    drop(programs);
    program.file().map(|_| place)
}

impl LibraryFile {
    /// The file of its library, compiled by the first caller.
    fn file(&self) -> Result<&Path, Error> {
        let made = self.file.get_or_init(|| library(&self.key.0, &self.key.1));
        made.as_deref().map_err(|reason| failed("compile", reason))
    }

    // Load a library for a set
    /// Its library in a set.
    fn library(&self, set: &LibrarySet) -> Result<&'static Library, Error> {
        let mut loaded = lock(&self.loaded);
        if let Some(library) = loaded.get(&set.0) {
            return Ok(library);
        }
        let load = || -> Result<Library, Box<dyn std::error::Error>> {
            let file = self.file()?;
            let copy = tempfile::NamedTempFile::new_in(file.with_file_name(""))?;
            std::fs::copy(file, copy.path())?;
            // SAFETY: the library was made from one of our kernels; it runs nothing when it is loaded.
            Ok(unsafe { Library::new(copy.path()) }?)
        };
        let library = &*Box::leak(Box::new(load().map_err(|error| failed("load", error))?));
        loaded.insert(set.0, library);
        Ok(library)
    }
}

// Libraries of one emulator
/// The number of a set of libraries that belongs to one emulator, until that is dropped.
struct LibrarySet(usize);

/// Sets in use.
static TAKEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

impl Default for LibrarySet {
    fn default() -> Self {
        let mut taken = lock(&TAKEN);
        let mut free = 0;
        while !taken.insert(free) {
            free += 1;
        }
        Self(free)
    }
}

impl Drop for LibrarySet {
    fn drop(&mut self) {
        lock(&TAKEN).remove(&self.0);
    }
}

// Errors of the emulator
fn failed(call: &'static str, reason: impl ToString) -> Error {
    Error::Cuda { call, device: NAME.into(), reason: reason.to_string() }
}

/// The error of an operation that needs a library of the vendor.
fn no_eigenvectors() -> Error {
    failed("eigenvectors", "only a library finds them")
}

const NAME: &str = "emulated device";

// Memory with guards
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;

/// Bytes of the device, between guards.
struct Allocation {
    base: usize,
    bytes: usize,
}

impl Allocation {
    fn layout(bytes: usize) -> Result<Layout, Error> {
        Layout::from_size_align(bytes.saturating_add(2 * GUARD), GUARD)
            .map_err(|error| failed("allocate", error))
    }

    // Allocate between guards
    fn new(bytes: usize) -> Result<Self, Error> {
        // SAFETY: the layout is not empty, and the guards and all between them lie inside of it.
        unsafe {
            let base = alloc(Self::layout(bytes)?);
            if base.is_null() {
                return Err(failed("allocate", "there is not enough memory"));
            }
            base.write_bytes(GUARD_BYTE, bytes + 2 * GUARD);
            base.add(GUARD).write_bytes(0xff, bytes);
            Ok(Self { base: base as usize, bytes })
        }
    }

    // Check the guards
    fn start(&self) -> usize {
        self.base + GUARD
    }

    fn bounds(&self) -> [usize; 2] {
        [self.start(), self.start() + self.bytes]
    }

    fn is_intact(&self) -> bool {
        // SAFETY: both guards belong to the allocation, and no kernel runs during the check.
        let guards = [self.base, self.start() + self.bytes]
            .map(|start| unsafe { slice::from_raw_parts(start as *const u8, GUARD) });
        guards.iter().all(|guard| guard.iter().all(|&byte| byte == GUARD_BYTE))
    }
}

// Free the memory
impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(layout) = Self::layout(self.bytes) {
            // SAFETY: allocated above, with the same layout.
            unsafe { dealloc(self.base as *mut u8, layout) }
        }
    }
}

// State and work of an emulator
#[derive(Clone)]
enum Work {
    Launch { kernel: u64, shape: Shape, arguments: Vec<u64> },
    Operation(Operation),
}

/// State of an emulator.
#[derive(Default)]
struct State {
    memory: BTreeMap<u64, Allocation>,
    libraries: LibrarySet,
    /// Streams, each with its recording while it records.
    streams: HashMap<u64, Option<Vec<Work>>>,
    marks: HashMap<u64, Instant>,
    kernels: Vec<LoadedKernel>,
    plans: HashMap<u64, TransformBatch>,
    graphs: HashMap<u64, Vec<Work>>,
    handles: u64,
}

// Execute work on the emulator
impl State {
    fn new_handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    /// The address of so many new bytes.
    fn allocate(&mut self, bytes: usize) -> Result<u64, Error> {
        let allocation = Allocation::new(bytes)?;
        let address = allocation.start() as u64;
        self.memory.insert(address, allocation);
        Ok(address)
    }

    // Find bytes in the memory
    /// Some values in one allocation.
    #[allow(clippy::mut_from_ref)]
    fn values<T>(&self, call: &'static str, address: u64, len: usize) -> Result<&mut [T], Error> {
        let bytes = len.saturating_mul(size_of::<T>());
        let inside =
            self.memory.range(..=address).next_back().is_some_and(|(&start, allocation)| {
                (address as usize).saturating_add(bytes) <= start as usize + allocation.bytes
            });
        if !inside {
            return Err(failed(call, format!("{bytes} bytes at {address:#x} lie in no buffer")));
        }
        // SAFETY: the bytes were just found; the state is locked, and each call requests bytes that no other slice refers to.
        Ok(unsafe { slice::from_raw_parts_mut(address as usize as *mut T, len) })
    }

    // Queue or execute work
    /// Records some work, or executes it.
    fn queue(&mut self, stream: u64, work: Work) -> Result<(), Error> {
        match self.streams.get_mut(&stream) {
            Some(Some(recording)) => recording.push(work),
            Some(None) => self.perform(&work)?,
            None => return Err(failed("queue", "no stream")),
        }
        Ok(())
    }

    fn refuse_to_wait(&self, call: &'static str, stream: u64) -> Result<(), Error> {
        match self.streams.get(&stream) {
            Some(None) => Ok(()),
            Some(Some(_)) => Err(failed(call, "the device records")),
            None => Err(failed(call, "no stream")),
        }
    }

    // Perform work of any kind
    fn perform(&mut self, work: &Work) -> Result<(), Error> {
        match work {
            Work::Launch { kernel, shape, arguments } => {
                self.launch(*kernel, *shape, &mut arguments.clone())
            }
            Work::Operation(operation) => self.operate(operation),
        }
    }

    // Do one operation
    fn operate(&self, operation: &Operation) -> Result<(), Error> {
        match *operation {
            Operation::Clear { address, bytes } => {
                self.values::<u8>("clear", address, bytes)?.fill(0);
            }
            Operation::Copy { from, to, bytes } => {
                let copied = self.values::<u8>("copy", from, bytes)?.to_vec();
                self.values("copy", to, bytes)?.copy_from_slice(&copied);
            }
            // Copy from and to pinned memory
            Operation::Send { host, to, bytes } => {
                // SAFETY: pinned memory of this length, which `gpu::Pinned` keeps, and which is not changed during the copy.
                let host = unsafe { slice::from_raw_parts(host as usize as *const u8, bytes) };
                self.values("send", to, bytes)?.copy_from_slice(host);
            }
            Operation::Fetch { from, host, bytes } => {
                // SAFETY: as above, and it is not read during the copy.
                let host = unsafe { slice::from_raw_parts_mut(host as usize as *mut u8, bytes) };
                host.copy_from_slice(self.values("fetch", from, bytes)?);
            }
            Operation::Await { mark } => {
                self.marks.get(&mark).ok_or_else(|| failed("await", "no mark"))?;
            }
            Operation::Transform { plan, from, to } => self.transform(plan, from, to)?,
            // Perform a product
            Operation::MultiplyVector { double, matrix, shape: [rows, inner], x, y } => {
                let shape = [rows, 1];
                let (transposed, factors) = ([false; 2], [1.0, 0.0]);
                let (a, b, c) = (matrix, x, y);
                self.multiply(&MatrixProduct {
                    double,
                    shape,
                    inner,
                    transposed,
                    factors,
                    a,
                    b,
                    c,
                })?;
            }
            Operation::Multiply(ref product) => self.multiply(product)?,
            // Factorise a matrix
            Operation::Cholesky(ref of) if of.double => self.cholesky::<f64>(of)?,
            Operation::Cholesky(ref of) => self.cholesky::<f32>(of)?,
            Operation::SolveTriangular(ref rows) if rows.double => self.solve::<f64>(rows)?,
            Operation::SolveTriangular(ref rows) => self.solve::<f32>(rows)?,
            Operation::Eigenvectors { .. } => {
                return Err(no_eigenvectors());
            }
        }
        Ok(())
    }

    // Launch on the processor
    fn launch(&self, kernel: u64, shape: Shape, arguments: &mut [u64]) -> Result<(), Error> {
        let known =
            self.kernels.get(kernel as usize).ok_or_else(|| failed("launch", "no kernel"))?;
        let buffers: Vec<[usize; 2]> = self.memory.values().map(Allocation::bounds).collect();
        let mut pointers: Vec<*mut u64> = arguments.iter_mut().map(std::ptr::from_mut).collect();
        let launch = Launch {
            grid: shape.grid.map(|blocks| blocks as u32),
            block: shape.block as u32,
            shared: shape.shared as u32,
            buffers: buffers.len() as u32,
            buffer: buffers.as_ptr(),
            arguments: pointers.as_mut_ptr(),
        };
        // SAFETY: the entry point was made for this structure; the caller gives the arguments that the kernel declares.
        let message = unsafe { (known.entry)(&launch) };
        // Report errors of a launch
        let wrong = |reason: &str| Err(failed("launch", format!("{}: {reason}", known.name)));
        if !message.is_null() {
            // SAFETY: a message is a text in the library, with a zero at its end.
            return wrong(&unsafe { std::ffi::CStr::from_ptr(message) }.to_string_lossy());
        }
        if !self.memory.values().all(Allocation::is_intact) {
            return wrong("it wrote beyond the bounds of a buffer");
        }
        Ok(())
    }
}

// Launches as the library expects them
/// A launch, in the layout that a library expects.
#[repr(C)]
struct Launch {
    grid: [u32; 3],
    block: u32,
    shared: u32,
    buffers: u32,
    buffer: *const [usize; 2],
    arguments: *mut *mut u64,
}

/// A kernel with its entry point.
struct LoadedKernel {
    name: String,
    entry: unsafe extern "C" fn(&Launch) -> *const std::ffi::c_char,
}

// The emulator and its state
/// An emulated device: its memory and kernels are those of this process.
pub(crate) struct Emulator {
    state: Arc<Mutex<State>>,
}

impl Emulator {
    /// An emulator with empty memory; none where there is no compiler, which is reported once on the standard error.
    ///
    /// # Panics
    /// Where there is no compiler, and the variable `LENSLET_REQUIRE_EMULATOR` is set.
    pub(crate) fn for_tests() -> Option<Self> {
        static REPORTED: Once = Once::new();
        let report = |reason: String| {
            assert!(env::var_os("LENSLET_REQUIRE_EMULATOR").is_none(), "no emulator: {reason}");
            let text = format!("all tests skip the emulator: {reason}\n");
            REPORTED.call_once(|| drop(io::stderr().write_all(text.as_bytes())));
        };
        compiler().map(|_| Self { state: Arc::default() }).map_err(report).ok()
    }

    /// Locks its state.
    fn enter(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

// Plain forms of tuned operations
impl State {
    fn transform(&self, plan: u64, from: u64, to: u64) -> Result<(), Error> {
        let plan = self.plans.get(&plan).ok_or_else(|| failed("transform", "no plan"))?;
        if plan.double {
            self.transformed::<f64>(plan, from, to)
        } else {
            self.transformed::<f32>(plan, from, to)
        }
    }

    // Transform fields of one precision
    fn transformed<T: Real>(&self, plan: &TransformBatch, from: u64, to: u64) -> Result<(), Error> {
        let [numbers, results] = plan.numbers();
        let half = plan.lengths.last().map_or(1, |last| last / 2 + 1);
        let mut fields: Vec<Complex<T>> = match plan.kind {
            TransformKind::FromReal => {
                let values = self.values::<T>("transform", from, numbers)?;
                values.iter().map(|&value| Complex::from(value)).collect()
            }
            TransformKind::ToReal => whole(self.values("transform", from, numbers)?, plan),
            _ => self.values("transform", from, numbers)?.to_vec(),
        };
        along_axes(&mut fields, plan);
        // Store transformed fields
        match plan.kind {
            TransformKind::ToReal => {
                let there = self.values::<T>("transform", to, results)?;
                there.iter_mut().zip(&fields).for_each(|(to, from)| *to = from.re);
            }
            TransformKind::FromReal => {
                let there = self.values::<Complex<T>>("transform", to, results)?;
                let last = plan.lengths.last().map_or(1, |&last| last);
                let kept = fields.chunks_exact(last).flat_map(|row| &row[..half]);
                there.iter_mut().zip(kept).for_each(|(to, from)| *to = *from);
            }
            _ => self.values("transform", to, results)?.copy_from_slice(&fields),
        }
        Ok(())
    }

    // Multiply by a plain sum
    fn multiply(&self, product: &MatrixProduct) -> Result<(), Error> {
        if product.double {
            self.multiplied::<f64>(product)
        } else {
            self.multiplied::<f32>(product)
        }
    }

    // Sum a product plainly
    fn multiplied<T: Real>(&self, product: &MatrixProduct) -> Result<(), Error> {
        let ([rows, columns], inner) = (product.shape, product.inner);
        let [alpha, beta] = product.factors.map(T::of);
        let a: &[T] = self.values("multiply", product.a, rows * inner)?;
        let b: &[T] = self.values("multiply", product.b, inner * columns)?;
        let c: Vec<T> = self.values("multiply", product.c, rows * columns)?.to_vec();
        let [is_at, is_bt] = product.transposed;
        let of_a = |j: usize, k: usize| if is_at { a[k * rows + j] } else { a[j * inner + k] };
        let of_b = |k: usize, i: usize| if is_bt { b[i * inner + k] } else { b[k * columns + i] };
        let entry = |at: usize| {
            let (j, i) = (at / columns, at % columns);
            let sum = (0..inner).fold(T::zero(), |sum, k| sum + of_a(j, k) * of_b(k, i));
            if beta == T::zero() { alpha * sum } else { alpha * sum + beta * c[at] }
        };
        let all: Vec<T> = (0..rows * columns).map(entry).collect();
        self.values("multiply", product.c, rows * columns)?.copy_from_slice(&all);
        Ok(())
    }
}

// Factorise matrices by plain loops
impl State {
    /// Cholesky's factor, row by row of Lᵗ.
    fn cholesky<T: Real>(&self, of: &Symmetric) -> Result<(), Error> {
        let n = of.order;
        let a = self.values::<T>("cholesky", of.matrix, n * n)?;
        let report = &mut self.values::<i32>("cholesky", of.report, 1)?[0];
        *report = 0;
        for j in 0..n {
            let (above, below) = a.split_at_mut(j * n);
            let row = &mut below[j..n];
            for before in above.chunks_exact(n) {
                row.iter_mut().zip(&before[j..]).for_each(|(x, l)| *x -= before[j] * *l);
            }
            if row[0].is_nan() || row[0] <= T::zero() {
                *report = j as i32 + 1;
                return Ok(());
            }
            let root = row[0].sqrt();
            row.iter_mut().for_each(|x| *x /= root);
        }
        Ok(())
    }

    // Solve triangular systems plainly
    fn solve<T: Real>(&self, of: &Triangular) -> Result<(), Error> {
        let n = of.order;
        let factor: Vec<T> = self.values("solve", of.factor, n * n)?.to_vec();
        let l = |row: usize, column: usize| factor[column * n + row];
        for b in self.values::<T>("solve", of.rows, of.count * n)?.chunks_exact_mut(n) {
            for step in 0..n {
                let k = if of.transposed { n - 1 - step } else { step };
                let known = if of.transposed { k + 1..n } else { 0..k };
                let of_l = |j| if of.transposed { l(j, k) } else { l(k, j) };
                let sum = known.fold(b[k], |sum, j| sum - of_l(j) * b[j]);
                b[k] = sum / l(k, k);
            }
        }
        Ok(())
    }
}

// Transform along every axis
/// Transforms of all fields, along all axes.
fn along_axes<T: Real>(fields: &mut [Complex<T>], plan: &TransformBatch) {
    let mut stride = 1;
    for &length in plan.lengths.iter().rev() {
        let (forward, inverse) = T::plan_complex(length);
        let is_inverse = matches!(plan.kind, TransformKind::Inverse | TransformKind::ToReal);
        let fft = if is_inverse { inverse } else { forward };
        for slab in fields.chunks_exact_mut(length * stride) {
            for first in 0..stride {
                let mut line: Vec<_> = slab[first..].iter().step_by(stride).copied().collect();
                fft.process(&mut line);
                slab[first..].iter_mut().step_by(stride).zip(line).for_each(|(to, z)| *to = z);
            }
        }
        stride *= length;
    }
}

// Complete half of a spectrum
/// Whole spectra of real fields, from the first half along the last axis.
fn whole<T: Real>(halves: &[Complex<T>], plan: &TransformBatch) -> Vec<Complex<T>> {
    let last = plan.lengths.last().map_or(1, |&last| last);
    let rows: usize = plan.lengths.iter().product::<usize>() / last;
    let half = last / 2 + 1;
    let opposite = |row: usize| {
        let (mut rest, mut place, mut stride) = (row, 0, 1);
        for &length in plan.lengths.iter().rev().skip(1) {
            place += (length - rest % length) % length * stride;
            (rest, stride) = (rest / length, stride * length);
        }
        place
    };
    let mut whole = Vec::with_capacity(plan.batch * rows * last);
    for field in halves.chunks_exact(rows * half) {
        for row in 0..rows {
            whole.extend_from_slice(&field[row * half..][..half]);
            let other = &field[opposite(row) * half..][..half];
            whole.extend((half..last).map(|i| other[last - i].conj()));
        }
    }
    whole
}

// Emulator as a backend
impl Backend for Emulator {
    // Properties of the emulator
    fn name(&self) -> &str {
        NAME
    }

    fn available_memory(&self) -> Result<u64, Error> {
        Ok(super::available_memory().unwrap_or(1 << 30))
    }

    fn shared_memory(&self) -> usize {
        227 << 10
    }

    fn require_factors(&self, eigenvectors: bool) -> Result<(), Error> {
        if eigenvectors { Err(no_eigenvectors()) } else { Ok(()) }
    }

    // Memory of the emulator
    fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        self.enter().allocate(bytes)
    }

    fn write(&self, stream: u64, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let state = self.enter();
        state.refuse_to_wait("write", stream)?;
        state.values("write", address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, stream: u64, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let state = self.enter();
        state.refuse_to_wait("read", stream)?;
        bytes.copy_from_slice(state.values("read", address, bytes.len())?);
        Ok(())
    }

    // Release handles of the emulator
    fn forget(&self, handle: Handle) {
        let mut state = self.enter();
        match handle {
            Handle::Memory(address) => drop(state.memory.remove(&address)),
            Handle::Foreign(_) => {}
            Handle::Plan(plan) => drop(state.plans.remove(&plan)),
            Handle::Graph(graph) => drop(state.graphs.remove(&graph)),
            Handle::Mark(mark) => drop(state.marks.remove(&mark)),
            Handle::Stream(stream) => drop(state.streams.remove(&stream)),
        }
    }

    // Pin pages of the emulator
    fn pin(&self, bytes: usize) -> Result<Box<dyn Pages>, Error> {
        let mut pages = Allocation::new(bytes)?;
        pages.bytes_mut().fill(0);
        Ok(Box::new(pages))
    }

    // Streams and marks of the emulator
    fn open_stream(&self) -> Result<u64, Error> {
        let mut state = self.enter();
        let handle = state.new_handle();
        state.streams.insert(handle, None);
        Ok(handle)
    }

    fn synchronise(&self, stream: u64) -> Result<(), Error> {
        self.enter().refuse_to_wait("synchronise", stream)
    }

    // Marks of the emulator
    fn mark(&self, stream: u64) -> Result<u64, Error> {
        let mut state = self.enter();
        state.refuse_to_wait("mark", stream)?;
        let handle = state.new_handle();
        state.marks.insert(handle, Instant::now());
        Ok(handle)
    }

    fn reach(&self, mark: u64) -> Result<(), Error> {
        self.enter().operate(&Operation::Await { mark })
    }

    fn milliseconds(&self, marks: [u64; 2]) -> Result<f64, Error> {
        let state = self.enter();
        let [start, end] = marks.map(|mark| state.marks.get(&mark));
        let elapsed = start.zip(end).map(|(start, end)| end.duration_since(*start));
        let elapsed = elapsed.ok_or_else(|| failed("milliseconds", "no mark"))?;
        Ok(elapsed.as_secs_f64() * 1e3)
    }

    // Programs and launches of the emulator
    fn load(&self, source: &KernelSource, options: &[String]) -> Result<u64, Error> {
        load(source, options).map(|program| program as u64)
    }

    fn kernel(&self, program: u64, name: &str) -> Result<u64, Error> {
        let known = lock(&PROGRAMS).get(program as usize).copied();
        let program = known.ok_or_else(|| failed("kernel", "no program"))?;
        let symbol = format!("{name}_on_processor");
        let mut state = self.enter();
        let library = program.library(&state.libraries)?;
        // SAFETY: the macro that makes these entry points gives them this type.
        let entry = unsafe { library.get(symbol.as_bytes()) };
        let entry = *entry.map_err(|error| failed("kernel", error))?;
        state.kernels.push(LoadedKernel { name: name.into(), entry });
        Ok(state.kernels.len() as u64 - 1)
    }

    // Queue a launch on the emulator
    fn launch(
        &self,
        stream: u64,
        kernel: u64,
        shape: Shape,
        arguments: &mut [u64],
    ) -> Result<(), Error> {
        self.enter().queue(stream, Work::Launch { kernel, shape, arguments: arguments.to_vec() })
    }

    // Operations and recordings of the emulator
    fn plan(&self, _stream: u64, transforms: &TransformBatch) -> Result<u64, Error> {
        let mut state = self.enter();
        let handle = state.new_handle();
        state.plans.insert(handle, transforms.clone());
        Ok(handle)
    }

    fn enqueue(&self, stream: u64, operation: &Operation) -> Result<(), Error> {
        self.enter().queue(stream, Work::Operation(*operation))
    }

    // Record and replay on the emulator
    fn begin_recording(&self, stream: u64) -> Result<(), Error> {
        let mut state = self.enter();
        state.refuse_to_wait("record", stream)?;
        state.streams.insert(stream, Some(Vec::new()));
        Ok(())
    }

    fn end_recording(&self, stream: u64) -> Result<u64, Error> {
        let mut state = self.enter();
        let recorded = state.streams.get_mut(&stream).and_then(Option::take);
        let recorded = recorded.ok_or_else(|| failed("record", "nothing is recorded"))?;
        let handle = state.new_handle();
        state.graphs.insert(handle, recorded);
        Ok(handle)
    }

    fn replay(&self, stream: u64, graph: u64) -> Result<(), Error> {
        let mut state = self.enter();
        let work = state.graphs.get(&graph).cloned().ok_or_else(|| failed("replay", "no graph"))?;
        work.into_iter().try_for_each(|work| state.queue(stream, work))
    }

    // Join emulated devices
    // Join emulated devices
    fn require_joining(&self) -> Result<(), Error> {
        Ok(())
    }

    fn identifier(&self) -> Result<Vec<u8>, Error> {
        Ok(ranks::identifier())
    }

    fn join(
        &self,
        _stream: u64,
        place: [usize; 2],
        identifier: &[u8],
    ) -> Result<Box<dyn Collective>, Error> {
        Ok(Box::new(ranks::EmulatedRank::new(Arc::clone(&self.state), place, identifier)?))
    }
}

// Pages of the emulator
impl Pages for Allocation {
    fn address(&self) -> u64 {
        self.start() as u64
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has so many bytes between its guards, and copies are finished when their calls return.
        unsafe { slice::from_raw_parts(self.start() as *const u8, self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.start() as *mut u8, self.bytes) }
    }
}

// Tests of the emulator
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::{Argument, Gpu, KernelArguments};

    fn gpu() -> Option<Gpu> {
        Emulator::for_tests().map(|emulator| Gpu::new(emulator).unwrap())
    }

    // Report a missing compiler
    #[cfg(target_os = "linux")]
    #[test]
    fn a_missing_compiler_is_told_or_refused() {
        let test = "device::emulator::tests::a_block_sums_what_its_threads_share";
        let run = |required: bool| {
            let mut child = std::process::Command::new(env::current_exe().unwrap());
            child.args(["--exact", test]).env("CXX", "no-such-compiler");
            child.env_remove("LENSLET_REQUIRE_EMULATOR");
            child.envs(required.then_some(("LENSLET_REQUIRE_EMULATOR", "1")));
            let output = child.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (passed, said) = run(false);
        assert!(
            passed && said.contains("skip the emulator: the compiler no-such-compiler"),
            "{said}"
        );
        assert!(!run(true).0);
    }

    // Arguments without names
    /// Arguments of any kernel of a test.
    impl KernelArguments for &[Argument<'_>] {
        type Kernel = ();

        fn list(&self) -> impl AsRef<[Argument<'_>]> {
            self
        }
    }

    // Tests of CUDA's words
    // Launch a kernel of a test
    /// Runs a kernel of a text on two blocks of 64 threads, 1 KiB of shared memory.
    fn launch(
        gpu: &Gpu,
        text: &'static str,
        name: &str,
        arguments: &[Argument],
    ) -> Result<(), String> {
        let source = KernelSource { name: "test.cu", text, headers: &[] };
        let program = gpu.program::<f64>(&source, &[]).map_err(|error| error.to_string())?;
        let kernel = program.kernel(name).map_err(|error| error.to_string())?;
        let shape = Shape { grid: [2, 1, 1], block: 64, shared: 1024 };
        gpu.launch(&kernel, shape, arguments).map_err(|error| error.to_string())
    }

    // Check that a missing barrier is found
    // Kernel that turns numbers round
    const TURN: &str = r#"
    extern "C" __global__ void turn(double *x) {
        __shared__ double s[64];
        int k = threadIdx.x;
        x += 64 * blockIdx.x;
        s[k] = x[k];
        __syncthreads();
        x[k] = s[63 - k];
    }"#;

    #[test]
    fn a_missing_barrier_is_found() {
        let Some(gpu) = gpu() else { return };
        let numbers: Vec<f64> = (0..128).map(f64::from).collect();
        let turn = |text| {
            let x = gpu.upload(&numbers).unwrap();
            launch(&gpu, text, "turn", &[(&x).into()]).map(|()| x.read().unwrap())
        };
        let turned: Vec<f64> = numbers.chunks(64).flat_map(|x| x.iter().rev()).copied().collect();
        assert_eq!(turn(TURN), Ok(turned));
        let said = turn(TURN.replace("__syncthreads();", "").leak()).unwrap_err();
        let expected = "launch failed on emulated device: turn: no barrier after another thread's \
                        read of shared memory (thread 32 of block 0, 0, 0)";
        assert_eq!(said, expected);
    }

    // Launch from two emulators at once
    #[test]
    fn emulators_launch_one_kernel_side_by_side() {
        let numbers: Vec<f64> = (0..128).map(f64::from).collect();
        let turned: Vec<f64> = numbers.chunks(64).flat_map(|x| x.iter().rev()).copied().collect();
        let turn = || {
            let Some(gpu) = gpu() else { return };
            let x = gpu.upload(&numbers).unwrap();
            (0..101).for_each(|_| launch(&gpu, TURN, "turn", &[(&x).into()]).unwrap());
            assert_eq!(x.read().unwrap(), turned);
        };
        std::thread::scope(|scope| drop([0; 2].map(|_| scope.spawn(turn))));
    }

    // Check a sum over a block
    const SUM: &str = r#"
    extern "C" __global__ void sum(const double *x, double *y, int n, float a, double b) {
        extern __shared__ double part[];
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        part[threadIdx.x] = i < n ? a * x[i] + b : 0.0;
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        }
        if (threadIdx.x > 0) return;
        y[blockIdx.x] = part[0];
    }"#;

    #[test]
    fn a_block_sums_what_its_threads_share() {
        let Some(gpu) = gpu() else { return };
        let x = gpu.upload(&(0..100).map(f64::from).collect::<Vec<_>>()).unwrap();
        let y = gpu.zeros::<f64>(2).unwrap();
        let arguments = [(&x).into(), (&y).into(), 100.into(), 0.5f32.into(), 0.25f64.into()];
        launch(&gpu, SUM, "sum", &arguments).unwrap();
        assert_eq!(y.read().unwrap(), [0.5 * 2016.0 + 16.0, 0.5 * 2934.0 + 9.0]);
    }

    // Check exchanges in a warp
    const EXCHANGE: &str = r#"
    extern "C" __global__ void exchange(int *y) {
        int k = threadIdx.x, all = 0xffffffff, *mine = y + 4 * (blockIdx.x * 64 + k);
        mine[0] = __shfl_down_sync(all, k, 3);
        mine[1] = __shfl_xor_sync(all, k, 5);
        mine[2] = __shfl_up_sync(all, k, 1, 8);
        __syncwarp();
        mine[3] = __shfl_sync(all, k, 9, 4);
    }"#;

    #[test]
    fn a_warp_exchanges_its_values() {
        let Some(gpu) = gpu() else { return };
        let y = gpu.zeros::<i32>(4 * 128).unwrap();
        launch(&gpu, EXCHANGE, "exchange", &[(&y).into()]).unwrap();
        for (k, found) in y.read().unwrap().chunks(4).enumerate() {
            let (k, lane) = (k as i32 % 64, k as i32 % 32);
            let down = if lane + 3 < 32 { k + 3 } else { k };
            let up = if lane % 8 > 0 { k - 1 } else { k };
            assert_eq!(found, [down, k - lane + (lane ^ 5), up, k - lane % 4 + 1]);
        }
    }

    // Check that mistakes are reported
    #[test]
    fn mistakes_are_reported() {
        let Some(gpu) = gpu() else { return };
        let share = |rest: &str| format!("__shared__ float s[64]; s[k] = k; {rest}");
        let apart = "if (k < 8) __syncthreads(); else\n __syncthreads();";
        let cases = [
            // Mistakes in the memory
            ("x[k] = k;".to_string(), "none"),
            (
                "x[k + 1] = k;".into(),
                "write of 8 bytes at byte 512 of a buffer of 512 bytes (thread 63 of block 0",
            ),
            ("x[0] = x[k - 1];".into(), "a read of 8 bytes"),
            ("x[k] = *(float *)16;".into(), "a read of 4 bytes outside of all buffers (thread 0"),
            ("extern __shared__ double s[]; s[127] = 1; x[k] = s[127];".into(), "no barrier"),
            (
                "extern __shared__ double s[]; s[128] = 1;".into(),
                "beyond the shared memory of the launch",
            ),
            // Mistakes at barriers
            (share("__syncthreads(); x[k] = s[63 - k];"), "none"),
            (share("x[k] = s[(k + 1) % 64];"), "no barrier after another thread's"),
            (share("__syncwarp(); x[k] = s[k ^ 1];"), "none"),
            (share("__syncwarp(); x[k] = s[k ^ 32];"), "no barrier after another thread's read"),
            (
                share("__syncthreads(); x[k] = s[k] += s[63 - k];"),
                "no barrier after another thread's",
            ),
            (apart.into(), "wait at different barriers"),
            (
                "if (k < 8) __syncwarp(); else __syncthreads();".into(),
                "the threads of a warp wait apart",
            ),
            ("if (k < 8) return; __syncthreads();".into(), "none"),
            ("x[k] = __shfl_sync(0xff, k, 0);".into(), "less than the full warp"),
        ];
        let kernel = |(n, (body, _)): (usize, &(String, &str))| {
            let head = format!("extern \"C\" __global__ void wrong{n}(double *x)");
            format!("{head} {{ int k = threadIdx.x; {body} }}\n")
        };
        let text: &str = cases.iter().enumerate().map(kernel).collect::<String>().leak();
        for (n, (body, expected)) in cases.iter().enumerate() {
            let x = gpu.zeros::<f64>(64).unwrap();
            let said = launch(&gpu, text, &format!("wrong{n}"), &[(&x).into()]);
            let said = said.map_or_else(|reason| reason, |()| "none".into());
            assert!(said.contains(expected), "{body}: {said}");
        }
        let refused = launch(&gpu, "nonsense", "it", &[]).unwrap_err();
        assert!(refused.contains("test.cu:1") && refused.contains("nonsense"), "{refused}");
    }

    // Check the mathematics of a kernel
    const MATHEMATICS: &str = r#"
    extern "C" __global__ void mathematics(double *y) {
        double s, c;
        sincospi(1e6 + 0.25, &s, &c);
        y[0] = s - c, y[1] = sinpi(-0.5), y[2] = cospi(1e9 + 1.0), y[3] = rsqrt(16.0);
        y[4] = min(2, 1) + max(2.5f, nan("")) + min(1.0, 2.0), y[5] = sinpi(1.5f);
        y[6] = fma(2.0, 3.0, 4.0), y[7] = j1(1.0), y[8] = rsqrtf(4.0f), y[9] = cospi(0.5);
        double2 pair = make_double2(1.0, 2.0);
        y[10] = pair.x + __ldg(&pair.y);
    }"#;

    #[test]
    fn the_mathematics_of_a_kernel_is_exact() {
        let Some(gpu) = gpu() else { return };
        let y = gpu.zeros::<f64>(11).unwrap();
        launch(&gpu, MATHEMATICS, "mathematics", &[(&y).into()]).unwrap();
        let bessel = 0.440_050_585_744_933_5;
        let expected = [0.0, -1.0, -1.0, 0.25, 4.5, -1.0, 10.0, bessel, 0.5, 0.0, 3.0];
        for (found, expected) in y.read().unwrap().iter().zip(expected) {
            assert!((found - expected).abs() < 2e-16, "{found} is not {expected}");
        }
    }

    // Check the guards and fresh memory
    #[test]
    fn memory_is_guarded_and_starts_as_nan() {
        let Some(emulator) = Emulator::for_tests() else { return };
        let (address, stream) = (emulator.allocate(24).unwrap(), emulator.open_stream().unwrap());
        let mut bytes = [0; 24];
        emulator.read(stream, address, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff; 24]);
        let clear = |address, bytes| emulator.enqueue(stream, &Operation::Clear { address, bytes });
        assert!(clear(address + 8, 16).is_ok() && clear(address + 9, 16).is_err());
        let intact = || emulator.enter().memory[&address].is_intact();
        assert!(intact());
        // SAFETY: the byte belongs to the guard after the buffer.
        unsafe { *((address as usize + 24) as *mut u8) = 1 };
        assert!(!intact());
        emulator.begin_recording(stream).unwrap();
        let waits = [emulator.read(stream, address, &mut bytes), emulator.synchronise(stream)];
        assert!(waits.iter().all(Result::is_err) && emulator.mark(stream).is_err());
        emulator.forget(Handle::Memory(address));
        emulator.end_recording(stream).unwrap();
        assert!(emulator.write(stream, address, &bytes).is_err() && emulator.mark(0).is_err());
    }
}
