// Tangled from book/src/gpu-backends.md: edit there, or here and run cargo tangle stitch.
//! Interface of a device: the `Backend` trait, its queues of work, and the locks of their streams.

// What backends depend on
use super::dispatch::lock;
use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;

// Sources of kernels
/// A file of kernels, embedded in this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSource {
    /// Its name, for messages.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// All headers that it includes, and that these include.
    pub headers: &'static [Header],
}

// Text that kernels include
/// A text that files of kernels include.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The name by which it is included, its place in `kernels/`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

// Shape of a launch
/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks along x, y and z.
    pub grid: [usize; 3],
    /// Threads in a block.
    pub block: usize,
    /// Bytes of shared memory, beyond what the kernel declares.
    pub shared: usize,
}

impl Shape {
    /// Blocks of `block` threads along x, one thread for each of `threads`, and more blocks along y and z.
    pub fn over(threads: usize, block: usize, [y, z]: [usize; 2]) -> Self {
        Self { grid: [threads.div_ceil(block), y, z], block, shared: 0 }
    }
}
// Backend of a graphics processor
/// Implementation of a device, in terms of addresses, handles and bytes. Work is queued, and done in the order of its stream.
pub(crate) trait Backend: Send + Sync {
    /// `cuda:0 (NVIDIA H200)`.
    fn name(&self) -> &str;
    /// Free memory of the device, in bytes.
    fn available_memory(&self) -> Result<u64, Error>;
    /// Bytes of shared memory that a block may have.
    fn shared_memory(&self) -> usize;
    // Memory of a backend
    /// The address of so many new bytes.
    fn allocate(&self, bytes: usize) -> Result<u64, Error>;
    /// Bytes of the host that the device can copy by itself.
    fn pin(&self, bytes: usize) -> Result<Box<dyn Pages>, Error>;
    /// Copies to the device, after the work of a stream.
    fn write(&self, stream: u64, address: u64, bytes: &[u8]) -> Result<(), Error>;
    /// Copies to the host, when all work of a stream is done.
    fn read(&self, stream: u64, address: u64, bytes: &mut [u8]) -> Result<(), Error>;
    // Streams of a backend
    /// A new stream.
    fn open_stream(&self) -> Result<u64, Error>;
    /// Waits until all work of a stream is done.
    fn synchronise(&self, stream: u64) -> Result<(), Error>;
    /// A mark in a stream, behind all its work.
    fn mark(&self, stream: u64) -> Result<u64, Error>;
    /// Waits until a mark is reached.
    fn reach(&self, mark: u64) -> Result<(), Error>;
    /// Refuses where the device cannot tell times.
    fn require_clock(&self) -> Result<(), Error> {
        Ok(())
    }
    /// Refuses where the device has nothing to find Cholesky's factor by, or `eigenvectors`.
    fn require_factors(&self, _eigenvectors: bool) -> Result<(), Error> {
        Ok(())
    }
    /// Milliseconds on the device from one mark to another, both reached.
    fn milliseconds(&self, marks: [u64; 2]) -> Result<f64, Error>;
    // Programs of a backend
    /// The handle of a compiled program; the same source and options are compiled once.
    fn load(&self, source: &KernelSource, options: &[String]) -> Result<u64, Error>;
    /// The handle of a kernel of a program.
    fn kernel(&self, program: u64, name: &str) -> Result<u64, Error>;
    /// Queues a launch: blocks along three axes, threads in a block, bytes of shared memory, arguments.
    fn launch(
        &self,
        stream: u64,
        kernel: u64,
        shape: Shape,
        arguments: &mut [u64],
    ) -> Result<(), Error>;
    /// Queues a launch of a kernel that waits by itself for the work before it, and may get ready earlier.
    fn launch_early(
        &self,
        stream: u64,
        kernel: u64,
        shape: Shape,
        arguments: &mut [u64],
    ) -> Result<(), Error> {
        self.launch(stream, kernel, shape, arguments)
    }
    // Recordings and plans of a backend
    /// What a Fourier transform of some size needs, for one stream.
    fn plan(&self, stream: u64, transforms: &TransformBatch) -> Result<u64, Error>;
    /// Queues an operation.
    fn enqueue(&self, stream: u64, operation: &Operation) -> Result<(), Error>;
    /// Starts to record.
    fn begin_recording(&self, stream: u64) -> Result<(), Error>;
    /// Ends the recording, and gives its handle.
    fn end_recording(&self, stream: u64) -> Result<u64, Error>;
    /// Queues all that was recorded.
    fn replay(&self, stream: u64, graph: u64) -> Result<(), Error>;
    /// Releases a handle. All work that may use it is done, and no stream records.
    fn forget(&self, handle: Handle);
    // Backends that join as ranks
    /// Refuses where a library that joins several devices is missing.
    fn require_joining(&self) -> Result<(), Error> {
        Err(cannot_join(self.name()))
    }
    /// Identifier of a new group of ranks; one of them makes it and gives it to the others.
    fn identifier(&self) -> Result<Vec<u8>, Error> {
        Err(cannot_join(self.name()))
    }
    /// Joins other backends as a rank of so many, with work in a stream; waits for them.
    fn join(
        &self,
        _stream: u64,
        _place: [usize; 2],
        _identifier: &[u8],
    ) -> Result<Box<dyn Collective>, Error> {
        Err(cannot_join(self.name()))
    }
}

/// The error of a device that is always alone.
fn cannot_join(device: &str) -> Error {
    Error::Device { device: device.into(), reason: "it cannot join others".into() }
}

// What ranks do together
/// Collective operations of joined ranks: all of them make the same calls in the same order, and each call waits until it is done.
/// Reports are an `int` on the device, 0 where all is well.
pub(crate) trait Collective: Send + Sync {
    /// A symmetric matrix becomes its factor of Cholesky.
    fn cholesky(&self, stream: u64, of: &DistributedMatrix, report: u64) -> Result<(), Error>;
    /// Rows, by their address and number, are solved with a factor.
    fn solve(
        &self,
        stream: u64,
        of: &DistributedMatrix,
        rows: [u64; 2],
        report: u64,
    ) -> Result<(), Error>;
    /// Eigenvalues and eigenvectors go to two addresses.
    fn eigenvectors(
        &self,
        stream: u64,
        of: &DistributedMatrix,
        found: [u64; 2],
        report: u64,
    ) -> Result<(), Error>;
    // Sums and broadcasts of ranks
    /// Numbers, by their address and number, are added up over all ranks.
    fn sum(&self, stream: u64, double: bool, numbers: [u64; 2]) -> Result<(), Error>;
    /// Bytes, by their address and number, go from one rank to all.
    fn broadcast(&self, stream: u64, bytes: [u64; 2], from: usize) -> Result<(), Error>;
    /// Ends what any thread does by the other methods, and all that may come.
    fn abort(&self);
}

// Matrix that ranks share
/// A symmetric matrix, order × order, in a block-cyclic layout: each rank has some blocks of columns of each row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DistributedMatrix {
    pub double: bool,
    pub order: usize,
    /// Columns of a block.
    pub block: usize,
    /// Columns that this rank has.
    pub count: usize,
    pub matrix: u64,
}

// Pages of the host
/// Pinned memory of the host, released when it is dropped. While the device copies, no thread may read or write it.
pub(crate) trait Pages: Send + Sync {
    /// Address of its first byte, for the backend.
    fn address(&self) -> u64;
    /// Its bytes.
    fn bytes(&self) -> &[u8];
    /// Its bytes, to be changed.
    fn bytes_mut(&mut self) -> &mut [u8];
}

// Operations of a backend
/// Something that is queued and is no launch. Addresses are of the device unless they are called `host`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Operation {
    /// Fills with zeros.
    Clear { address: u64, bytes: usize },
    /// Copies within the device.
    Copy { from: u64, to: u64, bytes: usize },
    /// Copies from pinned memory.
    Send { host: u64, to: u64, bytes: usize },
    /// Copies into pinned memory.
    Fetch { from: u64, host: u64, bytes: usize },
    /// Waits for a mark in another stream.
    Await { mark: u64 },
    /// The Fourier transforms of a plan; in place where both addresses are the same.
    Transform { plan: u64, from: u64, to: u64 },
    // Products and factorisations as operations
    /// y = A x for a matrix by rows.
    MultiplyVector { double: bool, matrix: u64, shape: [usize; 2], x: u64, y: u64 },
    /// C ← α A B + β C for matrices by rows.
    Multiply(MatrixProduct),
    /// A symmetric matrix becomes its factor of Cholesky.
    Cholesky(Symmetric),
    /// A symmetric matrix becomes its eigenvectors, row by row, by ascending eigenvalues, which go to `values`.
    Eigenvectors { of: Symmetric, values: u64 },
    /// Each of some rows b becomes L⁻¹ b, or L⁻ᵗ b.
    SolveTriangular(Triangular),
}

// Matrices that are taken apart
/// A symmetric matrix, order × order, of which the upper triangle by rows is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Symmetric {
    pub double: bool,
    pub order: usize,
    pub matrix: u64,
    /// An `int` that becomes 0, or the number, from 1, of what has failed: a pivot that is not positive, an eigenvalue not found.
    pub report: u64,
}

// Rows to be solved
/// Rows, each of `order` numbers, and Cholesky's factor Lᵗ in the upper triangle of a matrix by rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Triangular {
    pub double: bool,
    pub order: usize,
    pub factor: u64,
    pub count: usize,
    pub rows: u64,
    /// Whether it is L⁻ᵗ that they are multiplied by.
    pub transposed: bool,
}

// Product of two matrices
/// C ← α A B + β C, by rows; C is rows × columns, and `inner` is what the sum runs over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MatrixProduct {
    pub double: bool,
    /// Rows and columns of C.
    pub shape: [usize; 2],
    pub inner: usize,
    /// Whether A is stored as (inner, rows), and B as (columns, inner).
    pub transposed: [bool; 2],
    /// α and β.
    pub factors: [f64; 2],
    pub a: u64,
    pub b: u64,
    pub c: u64,
}

// Transforms of a plan
/// So many Fourier transforms of one size, one after the other in memory; none is normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransformBatch {
    /// Lengths along the axes, the last being the fastest.
    pub lengths: Vec<usize>,
    pub batch: usize,
    pub kind: TransformKind,
    pub double: bool,
}

// Kinds of transforms
/// What is transformed into what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransformKind {
    /// Complex numbers, exponent −2πi.
    Forward,
    /// Complex numbers, exponent +2πi.
    Inverse,
    /// Real numbers into half of their spectrum, exponent −2πi.
    FromReal,
    /// Half of a spectrum into real numbers, exponent +2πi.
    ToReal,
}

// Numbers before and after a transform
impl TransformBatch {
    /// How many numbers go in and come out, real or complex as they are; `usize::MAX` where they are more than can be counted.
    pub(crate) fn numbers(&self) -> [usize; 2] {
        let (last, others) = self.lengths.split_last().unwrap_or((&1, &[]));
        let others = others.iter().fold(self.batch, |product, n| product.saturating_mul(*n));
        let (whole, half) = (others.saturating_mul(*last), others.saturating_mul(last / 2 + 1));
        match self.kind {
            TransformKind::Forward | TransformKind::Inverse => [whole; 2],
            TransformKind::FromReal => [whole, half],
            TransformKind::ToReal => [half, whole],
        }
    }
}

// Lock of a stream
/// Lock of a stream, which the thread that holds it may acquire again.
#[derive(Default)]
struct StreamLock {
    /// The thread that holds the lock, and how often it has acquired it.
    holder: Mutex<Option<(ThreadId, usize)>>,
    free: Condvar,
}

/// Guard of a stream's lock, which it releases when it is dropped.
pub(super) struct StreamGuard<'a>(&'a StreamLock);

impl Drop for StreamGuard<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

// Acquire and release a stream
impl StreamLock {
    /// Waits until no other thread holds the lock, and acquires it once more.
    fn take(&self) -> StreamGuard<'_> {
        let me = std::thread::current().id();
        let mut holder = lock(&self.holder);
        while holder.is_some_and(|(other, _)| other != me) {
            holder = self.free.wait(holder).unwrap_or_else(PoisonError::into_inner);
        }
        *holder = Some((me, holder.map_or(0, |(_, times)| times) + 1));
        StreamGuard(self)
    }

    /// Releases the lock once; another thread can acquire it after as many releases as acquisitions.
    fn give_back(&self) {
        let mut holder = lock(&self.holder);
        *holder = holder.and_then(|(me, times)| (times > 1).then_some((me, times - 1)));
        if holder.is_none() {
            self.free.notify_one();
        }
    }

    // Check the holder of a stream
    fn is_mine(&self) -> bool {
        let me = std::thread::current().id();
        lock(&self.holder).is_some_and(|(holder, _)| holder == me)
    }
}

// Opened backend and its queues
/// An opened backend with its queues.
pub(super) struct Opened {
    pub backend: Box<dyn Backend>,
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// Handles that were dropped while their thread recorded, to be released later.
    left: Mutex<Vec<Handle>>,
}

/// A stream and its lock.
struct Lane {
    stream: u64,
    lock_of_stream: StreamLock,
    is_open: Mutex<bool>,
}

// Queue that closes when it is dropped
/// A queue of work, closed when it is dropped.
pub(super) struct Queue {
    pub device: Arc<Opened>,
    lane: Arc<Lane>,
    /// What is kept for the graph that is being recorded, by its place in memory.
    kept: Mutex<Option<BTreeMap<usize, Arc<Owned>>>>,
}

// Open and close a queue
impl Queue {
    /// The first queue of a backend.
    pub fn first(backend: impl Backend + 'static) -> Result<Self, Error> {
        let (lanes, left) = Default::default();
        Self::new(&Arc::new(Opened { backend: Box::new(backend), lanes, left }))
    }

    /// One more queue.
    pub fn new(device: &Arc<Opened>) -> Result<Self, Error> {
        let stream = device.backend.open_stream()?;
        let (lock_of_stream, is_open) = (StreamLock::default(), Mutex::new(true));
        let lane = Arc::new(Lane { stream, lock_of_stream, is_open });
        lock(&device.lanes).push(Arc::clone(&lane));
        Ok(Self { device: Arc::clone(device), lane, kept: Mutex::default() })
    }

    /// Acquires the lock; the guard, the backend, and the number of the stream.
    pub fn enter(&self) -> (StreamGuard<'_>, &dyn Backend, u64) {
        (self.lane.lock_of_stream.take(), &*self.device.backend, self.lane.stream)
    }
}

// Close a queue with its holder
impl Drop for Queue {
    fn drop(&mut self) {
        let _guard = self.lane.lock_of_stream.take();
        *lock(&self.lane.is_open) = false;
        if self.device.backend.synchronise(self.lane.stream).is_ok() {
            self.device.backend.forget(Handle::Stream(self.lane.stream));
        }
        lock(&self.device.lanes).retain(|lane| !Arc::ptr_eq(lane, &self.lane));
    }
}

// Record and keep what is used
impl Queue {
    /// Starts to record; the caller holds the lock of the stream until the recording ends.
    pub fn record(&self) -> Result<Recording<'_>, Error> {
        let (turn, backend, stream) = self.enter();
        backend.begin_recording(stream)?;
        *lock(&self.kept) = Some(BTreeMap::new());
        Ok(Recording { queue: self, _guard: turn, has_ended: false })
    }

    /// Keeps what is used for the graph that is being recorded, if one is.
    pub fn keep<'a>(&self, used: impl Iterator<Item = &'a Arc<Owned>>) {
        if let Some(kept) = &mut *lock(&self.kept) {
            kept.extend(used.map(|owned| (Arc::as_ptr(owned) as usize, Arc::clone(owned))));
        }
    }

    /// Whether it records.
    pub fn records(&self) -> bool {
        lock(&self.kept).is_some()
    }
}

// Recording that ends in any case
/// A recording that is ended when it is dropped.
pub(super) struct Recording<'a> {
    queue: &'a Queue,
    _guard: StreamGuard<'a>,
    has_ended: bool,
}

// End a recording in any case
impl Recording<'_> {
    /// The graph, and what must live as long as it does.
    pub fn end(mut self) -> Result<(Owned, Vec<Arc<Owned>>), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(Owned, Vec<Arc<Owned>>), Error> {
        self.has_ended = true;
        let kept = lock(&self.queue.kept).take().unwrap_or_default();
        let (device, stream) = (&self.queue.device, self.queue.lane.stream);
        let graph = device.backend.end_recording(stream)?;
        Ok((device.own(Handle::Graph(graph)), kept.into_values().collect()))
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            drop(self.finish());
        }
    }
}

// Handles of a backend
/// Address or handle of memory, a plan, a graph, a mark or a stream of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    Memory(u64),
    /// Memory of another program's, which is not released here.
    #[cfg_attr(not(feature = "python"), allow(dead_code))]
    Foreign(u64),
    Plan(u64),
    Graph(u64),
    Mark(u64),
    Stream(u64),
}

// Number of a handle
impl Handle {
    /// The address or number.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Memory(number)
            | Self::Foreign(number)
            | Self::Plan(number)
            | Self::Graph(number)
            | Self::Mark(number)
            | Self::Stream(number) => number,
        }
    }
}

// Handle that is released when it is dropped
/// Handle that is released when it is dropped, after all work that may use it.
pub(super) struct Owned {
    pub device: Arc<Opened>,
    pub handle: Handle,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.device.give_back(Some(self.handle));
    }
}

impl Opened {
    // Release handles when all queues are empty
    /// Owns a handle of this backend, which is released when the owner is dropped.
    pub fn own(self: &Arc<Self>, handle: Handle) -> Owned {
        Owned { device: Arc::clone(self), handle }
    }

    /// Releases a handle, and all that were set aside; sets it aside while the thread records.
    pub fn give_back(&self, handle: Option<Handle>) {
        if let Some(mark @ Handle::Mark(_)) = handle {
            return self.backend.forget(mark);
        }
        lock(&self.left).extend(handle);
        let lanes = lock(&self.lanes).clone();
        if lanes.iter().any(|lane| lane.lock_of_stream.is_mine()) {
            return;
        }
        let handles = std::mem::take(&mut *lock(&self.left));
        let is_empty = |lane: &Arc<Lane>| {
            let _guard = lane.lock_of_stream.take();
            !*lock(&lane.is_open) || self.backend.synchronise(lane.stream).is_ok()
        };
        if !handles.is_empty() && lanes.iter().all(is_empty) {
            handles.into_iter().for_each(|handle| self.backend.forget(handle));
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for handle in lock(&self.left).drain(..) {
            self.backend.forget(handle);
        }
    }
}
