// Tangled from book/src/gpu-backends.md: edit there, or here and run cargo tangle stitch.
//! A graphics processor as the rest of the crate knows it: buffers, programs, launches, graphs.

pub(crate) mod kernels;
pub(crate) mod rank;

// Imports of the seam
use super::backend::{
    Backend, Handle, MatrixProduct, Opened, Operation, Owned, Pages, Queue, Symmetric,
    TransformBatch, TransformKind, Triangular,
};
pub use super::backend::{Header, KernelSource, Shape};
use super::dispatch::lock;
use super::memory::refuse;
use crate::error::Error;
use crate::numerics::real::{Precision, Real};
use bytemuck::Pod;
use num_complex::Complex;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, marker::PhantomData};

// Options of a kernel for these numbers
/// Options of the compiler: `real` is the number T, and sizes stand under the names that a kernel gives them.
fn options<T: Real>(sizes: &[(&str, usize)]) -> Vec<String> {
    let real = match T::PRECISION {
        Precision::F32 => "float",
        Precision::F64 => "double",
    };
    let sizes = sizes.iter().map(|(name, size)| format!("-D{name}={size}"));
    std::iter::once(format!("-DREAL={real}")).chain(sizes).collect()
}

// Graphics processor that is open
// Opened graphics processor
/// An opened graphics processor, with one queue of work.
#[derive(Clone)]
pub struct Gpu {
    queue: Arc<Queue>,
}

// Print a device by its name
impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.name()).finish()
    }
}

// Steps of an opened graphics processor
impl Gpu {
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))] // without a backend, there is no device
    pub(super) fn new(backend: impl Backend + 'static) -> Result<Self, Error> {
        Ok(Self { queue: Arc::new(Queue::first(backend)?) })
    }

    /// Its name, such as `cuda:0 (NVIDIA H200)`.
    pub fn name(&self) -> &str {
        self.backend().name()
    }

    // Backend of an opened graphics processor
    fn backend(&self) -> &dyn Backend {
        &*self.queue.device.backend
    }

    // Open another queue on the same device
    /// Another queue of this device; work in the two queues is done in any order, or at the same time.
    ///
    /// # Errors
    /// `Cuda` where the device refuses.
    pub fn stream(&self) -> Result<Self, Error> {
        Ok(Self { queue: Arc::new(Queue::new(&self.queue.device)?) })
    }

    /// Whether both mean the same opened device.
    pub fn is_same_device(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue.device, &other.queue.device)
    }

    // Refuse what belongs to another device
    /// Refuses `what` if it belongs to another device.
    fn own(&self, what: &'static str, owner: &Arc<Opened>) -> Result<(), Error> {
        if Arc::ptr_eq(owner, &self.queue.device) {
            return Ok(());
        }
        let (owner, device) = (owner.backend.name().into(), self.name().into());
        Err(Error::Foreign { what, owner, device })
    }

    // Refuse beyond the device's memory
    /// Free memory of the device, in bytes.
    ///
    /// # Errors
    /// `Cuda` where the device does not answer.
    pub fn available_memory(&self) -> Result<u64, Error> {
        self.backend().available_memory()
    }

    /// Bytes of shared memory that a block may have.
    pub fn shared_memory(&self) -> usize {
        self.backend().shared_memory()
    }

    /// Refuses where what [`Gpu::cholesky`] needs, or [`Gpu::eigenvectors`], is missing.
    ///
    /// # Errors
    /// Those of either where a library is missing.
    pub(crate) fn require_factors(&self, eigenvectors: bool) -> Result<(), Error> {
        self.backend().require_factors(eigenvectors)
    }

    /// Refuses where a library that joins several devices is missing.
    ///
    /// # Errors
    /// `Device`, with the name of the library and how to install it.
    pub(crate) fn require_joining(&self) -> Result<(), Error> {
        self.backend().require_joining()
    }

    /// Refuses `what`, which needs so many bytes of the device's memory, where fewer are free.
    ///
    /// # Errors
    /// `Memory`, with the device's name.
    pub fn refuse_beyond_memory(&self, needed: u64, what: &str) -> Result<(), Error> {
        refuse(needed, self.available_memory()?, || format!("{what} on {}", self.name()))
    }

    // Make buffers on the device
    /// A buffer of `len` numbers, all bytes zero.
    ///
    /// # Errors
    /// `Cuda` where the device has no so much memory.
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let buffer = self.allocate(len)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// The values, on the device.
    ///
    /// # Errors
    /// `Cuda` where the device has no so much memory.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, Error> {
        let buffer = self.allocate(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    // Bytes of so many numbers
    /// Bytes of so many numbers, where there can be so many.
    fn bytes_of<T>(&self, len: usize) -> Result<usize, Error> {
        let bytes = len.checked_mul(size_of::<T>());
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).map_or_else(
            || {
                let what = format!("{len} numbers of {} bytes on {}", size_of::<T>(), self.name());
                let needed = (len as u64).saturating_mul(size_of::<T>() as u64);
                Err(Error::Memory { what, needed, available: self.available_memory()? })
            },
            Ok,
        )
    }

    fn allocate<T: Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let address = self.backend().allocate(self.bytes_of::<T>(len)?.max(1))?;
        let memory = Arc::new(self.queue.device.own(Handle::Memory(address)));
        Ok(Buffer { gpu: self.clone(), memory, address, len, values: PhantomData })
    }

    // Memory that another program owns
    /// The stream of the queue, as other programs on this device call it.
    #[cfg(feature = "python")]
    pub(crate) fn stream_handle(&self) -> u64 {
        self.queue.enter().2
    }

    /// A buffer over memory of this device that another program owns, which must keep it until the buffer is dropped.
    ///
    /// # Errors
    /// `Memory` where there cannot be so many numbers.
    #[cfg(feature = "python")]
    pub(crate) fn foreign<T: Pod>(&self, address: u64, len: usize) -> Result<Buffer<T>, Error> {
        self.bytes_of::<T>(len)?;
        let memory = Arc::new(self.queue.device.own(Handle::Foreign(address)));
        Ok(Buffer { gpu: self.clone(), memory, address, len, values: PhantomData })
    }

    // Copy by the queue of a device
    /// Pinned memory of the host for so many values, all zero.
    ///
    /// # Errors
    /// `Cuda` where the driver refuses.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>, Error> {
        let pages = self.backend().pin(self.bytes_of::<T>(len)?.max(1))?;
        let (pending, device) = (Mutex::default(), Arc::clone(&self.queue.device));
        Ok(Pinned { pages, pending, device, len, values: PhantomData })
    }

    // Send from pinned memory
    /// Queues a copy of the first of `values` to the device, as many as `to` holds.
    ///
    /// # Errors
    /// `Foreign` where one of them is another device's, `Failed` while the queue records, `Cuda` where the device fails.
    pub fn send<'a, T: Pod>(
        &self,
        values: &Pinned<T>,
        to: impl Into<BufferView<'a, T>>,
    ) -> Result<(), Error> {
        let to = to.into();
        let host = values.pages.address();
        let send = Operation::Send { host, to: to.address(), bytes: to.bytes() };
        self.copy(values, to, &send)
    }
    // Fetch into pinned memory
    /// Queues a copy of `from` to the host, to the first of `values`, where there must be as much room.
    ///
    /// # Errors
    /// As for [`Gpu::send`].
    pub fn fetch<'a, T: Pod>(
        &self,
        from: impl Into<BufferView<'a, T>>,
        values: &mut Pinned<T>,
    ) -> Result<(), Error> {
        let from = from.into();
        let host = values.pages.address();
        let fetch = Operation::Fetch { from: from.address(), host, bytes: from.bytes() };
        self.copy(values, from, &fetch)
    }

    // Copy and put a mark behind it
    fn copy<T: Pod>(
        &self,
        values: &Pinned<T>,
        view: BufferView<T>,
        copy: &Operation,
    ) -> Result<(), Error> {
        assert!(view.len <= values.len, "a copy takes the first of the pinned values");
        self.own("pinned memory", &values.device)?;
        self.refuse_to_record("a copy of pinned memory")?;
        let mut pending = lock(&values.pending);
        self.enqueue(copy, &[&view.buffer.memory])?;
        let mark = self.mark();
        if mark.is_err() {
            self.synchronise()?;
        }
        pending.push(mark?);
        Ok(())
    }

    // Copy within the device
    /// Queues a copy from one part to another of the same length, on the device.
    ///
    /// # Errors
    /// `Foreign` where one of them is another device's, `Cuda` where the device fails.
    pub fn copy_within<'a, T: Pod>(
        &self,
        from: impl Into<BufferView<'a, T>>,
        to: impl Into<BufferView<'a, T>>,
    ) -> Result<(), Error> {
        let (from, to) = (from.into(), to.into());
        assert_eq!(from.len, to.len, "a copy has one length");
        let bytes = from.bytes();
        let copy = Operation::Copy { from: from.address(), to: to.address(), bytes };
        self.enqueue(&copy, &[&from.buffer.memory, &to.buffer.memory])
    }
}

// Memory of a graphics processor
// Numbers in the device's memory
/// Values in the memory of a device.
pub struct Buffer<T> {
    gpu: Gpu,
    memory: Arc<Owned>,
    address: u64,
    len: usize,
    values: PhantomData<fn() -> T>,
}

impl<T: Pod> Buffer<T> {
    // Measure a buffer of the device
    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// Its address on the device.
    #[cfg(feature = "python")]
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    // Copy there and back
    /// Fills it with zeros.
    ///
    /// # Errors
    /// `Cuda` where the device fails, as for the other copies.
    pub fn clear(&self) -> Result<(), Error> {
        self.view(..).clear()
    }

    /// Copies `values`, as many as it holds, to the device.
    pub fn write(&self, values: &[T]) -> Result<(), Error> {
        self.view(..).write(values)
    }
    /// Copies the first `values.len()` of its values to the host, when all work before is done.
    pub fn read_into(&self, values: &mut [T]) -> Result<(), Error> {
        assert!(values.len() <= self.len, "a buffer holds what is read from it");
        self.view(..values.len()).read_into(values)
    }

    /// Its values.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        self.view(..).read()
    }
}

// Parts of a buffer
/// A part of a buffer, and the queue by which it is copied.
pub struct BufferView<'a, T> {
    buffer: &'a Buffer<T>,
    gpu: &'a Gpu,
    start: usize,
    len: usize,
}

// Copy and make views
impl<T> Clone for BufferView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for BufferView<'_, T> {}

impl<'a, T: Pod> From<&'a Buffer<T>> for BufferView<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.view(..)
    }
}

impl<T: Pod> Buffer<T> {
    // Take a part of a buffer
    /// The part of the buffer in a range of its values, which must lie inside.
    pub fn view(&self, range: impl RangeBounds<usize>) -> BufferView<'_, T> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        assert!(start <= end && end <= self.len, "{start}..{end} of a buffer of {}", self.len);
        BufferView { buffer: self, gpu: &self.gpu, start, len: end - start }
    }
}

impl<'a, T: Pod> BufferView<'a, T> {
    // Use a part of a buffer
    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is left of it from the value of a number on.
    pub fn from(self, start: usize) -> Self {
        assert!(start <= self.len, "from {start} on of {} values", self.len);
        Self { start: self.start + start, len: self.len - start, ..self }
    }

    /// Its first so many values.
    pub fn first(self, len: usize) -> Self {
        assert!(len <= self.len, "{len} of {} values", self.len);
        Self { len, ..self }
    }

    // Part as another queue sees it
    /// Makes another queue of the device copy this part.
    ///
    /// # Errors
    /// `Foreign` where that is another device.
    pub fn on(self, gpu: &'a Gpu) -> Result<Self, Error> {
        gpu.own("buffer", &self.buffer.memory.device)?;
        Ok(Self { gpu, ..self })
    }

    fn address(&self) -> u64 {
        self.buffer.address + (self.start * size_of::<T>()) as u64
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    // Copy a part there and back
    /// Fills it with zeros.
    ///
    /// # Errors
    /// `Cuda` where the device fails, as for the other copies.
    pub fn clear(&self) -> Result<(), Error> {
        let clear = Operation::Clear { address: self.address(), bytes: self.bytes() };
        self.gpu.enqueue(&clear, &[&self.buffer.memory])
    }

    /// Copies `values`, as many as it holds, to the device.
    pub fn write(&self, values: &[T]) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "a buffer is written as a whole");
        let (_guard, backend, stream) = self.gpu.queue.enter();
        backend.write(stream, self.address(), bytemuck::cast_slice(values))
    }

    // Copy a part to the host
    /// Copies its values to the host, when all work before is done.
    pub fn read_into(&self, values: &mut [T]) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "a part is read as a whole");
        let (_guard, backend, stream) = self.gpu.queue.enter();
        backend.read(stream, self.address(), bytemuck::cast_slice_mut(values))
    }

    /// Its values.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        let mut values = vec![T::zeroed(); self.len];
        self.read_into(&mut values)?;
        Ok(values)
    }

    // Read a long part piece by piece
    /// Its values, so many at a time, through pinned memory; `put` is called with the index at which each piece begins, and its values.
    pub(crate) fn read_pieces(
        &self,
        piece: usize,
        put: &mut dyn FnMut(usize, &[T]),
    ) -> Result<(), Error> {
        let whole = self.len / piece.max(1);
        let buffers = (0..whole.min(2)).map(|_| self.gpu.pinned(piece));
        let mut pinned = buffers.collect::<Result<Vec<_>, _>>()?;
        // Fetch one piece and take another
        // One piece is fetched while another is put.
        for k in 0..=whole {
            if k < whole {
                let part = Self { start: self.start + k * piece, len: piece, ..*self };
                self.gpu.fetch(part, &mut pinned[k % 2])?;
            }
            if k > 0 {
                put((k - 1) * piece, pinned[(k - 1) % 2].values()?);
            }
        }
        let rest =
            Self { start: self.start + whole * piece, len: self.len - whole * piece, ..*self };
        if !rest.is_empty() {
            put(whole * piece, &rest.read()?);
        }
        Ok(())
    }
}

// Memory that a device copies by itself
/// Values in memory of the host that a device copies by itself.
pub struct Pinned<T> {
    pages: Box<dyn Pages>,
    /// Behind each copy from or to it.
    pending: Mutex<Vec<Mark>>,
    device: Arc<Opened>,
    len: usize,
    values: PhantomData<fn() -> T>,
}

impl<T: Pod> Pinned<T> {
    // See pinned values when all copies are done
    /// The values, when all copies are done.
    ///
    /// # Errors
    /// `Cuda` where the device fails.
    pub fn values(&self) -> Result<&[T], Error> {
        self.wait()?;
        let bytes = self.len * size_of::<T>();
        Ok(bytemuck::cast_slice(&self.pages.bytes()[..bytes]))
    }

    /// The values, to be changed, when all copies are done.
    ///
    /// # Errors
    /// As for [`Pinned::values`].
    pub fn values_mut(&mut self) -> Result<&mut [T], Error> {
        self.wait()?;
        let bytes = self.len * size_of::<T>();
        Ok(bytemuck::cast_slice_mut(&mut self.pages.bytes_mut()[..bytes]))
    }

    // Wait for copies of pinned memory
    fn wait(&self) -> Result<(), Error> {
        let mut pending = lock(&self.pending);
        pending.iter().try_for_each(Mark::wait)?;
        pending.clear();
        Ok(())
    }
}

// Release pinned memory after its copies
impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        if pending.drain(..).any(|mark| mark.wait().is_err()) {
            // The device has failed, and may still use the pages: they are not released.
            std::mem::forget(std::mem::replace(&mut self.pages, Box::new(NoPages)));
        }
    }
}

// Pages that are none
/// Placeholder for pages that are leaked, because they could not be released.
struct NoPages;

impl Pages for NoPages {
    fn address(&self) -> u64 {
        0
    }

    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

// Programs and their kernels
/// A compiled source.
pub struct Program {
    device: Arc<Opened>,
    handle: u64,
}

/// A function A that many threads of a device run at once.
pub struct Kernel<A> {
    handle: u64,
    device: Arc<Opened>,
    arguments: PhantomData<A>,
}

// Compile a program and find kernels
impl Gpu {
    /// Compiles a source for numbers T and for sizes, which stand under the names that a kernel gives them; or finds it compiled.
    ///
    /// # Errors
    /// `Device` where the compiler is missing, `Cuda` where it refuses.
    pub fn program<T: Real>(
        &self,
        source: &KernelSource,
        sizes: &[(&str, usize)],
    ) -> Result<Program, Error> {
        let handle = self.backend().load(source, &options::<T>(sizes))?;
        Ok(Program { device: Arc::clone(&self.queue.device), handle })
    }
}

impl Program {
    /// The kernel of this name, for the arguments that [`kernels`] declares.
    ///
    /// # Errors
    /// `Cuda` where there is none.
    pub(crate) fn kernel<A>(&self, name: &str) -> Result<Kernel<A>, Error> {
        let handle = self.device.backend.kernel(self.handle, name)?;
        Ok(Kernel { handle, device: Arc::clone(&self.device), arguments: PhantomData })
    }
}

// What a kernel is given
// Arguments of a kernel
/// An argument of a kernel: a buffer, a part of one or none, an `int`, a `float` or a `double`.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    bits: u64,
    memory: Option<&'a Arc<Owned>>,
}

impl<'a, T> From<&'a Buffer<T>> for Argument<'a> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self { bits: buffer.address, memory: Some(&buffer.memory) }
    }
}

impl<'a, T: Pod> From<BufferView<'a, T>> for Argument<'a> {
    fn from(view: BufferView<'a, T>) -> Self {
        Self { bits: view.address(), memory: Some(&view.buffer.memory) }
    }
}

// List of arguments of one kernel
/// Arguments of a kernel, by the names of its parameters.
pub(crate) trait KernelArguments {
    /// A function of these arguments, for any lifetime of their buffers; it distinguishes kernels from each other.
    type Kernel;

    /// The arguments in the order that the kernel declares.
    fn list(&self) -> impl AsRef<[Argument<'_>]>;
}

impl<'a, T: Pod> From<Option<BufferView<'a, T>>> for Argument<'a> {
    fn from(view: Option<BufferView<'a, T>>) -> Self {
        view.map_or(Self { bits: 0, memory: None }, Self::from)
    }
}

// Numbers that become arguments
impl From<usize> for Argument<'_> {
    fn from(number: usize) -> Self {
        assert!(number <= i32::MAX as usize, "{number} is no int of a kernel");
        Self { bits: number as u64, memory: None }
    }
}

impl From<bool> for Argument<'_> {
    fn from(flag: bool) -> Self {
        Self { bits: u64::from(flag), memory: None }
    }
}

impl From<f64> for Argument<'_> {
    fn from(number: f64) -> Self {
        Self { bits: number.to_bits(), memory: None }
    }
}

impl From<f32> for Argument<'_> {
    fn from(number: f32) -> Self {
        Self { bits: u64::from(number.to_bits()), memory: None }
    }
}

// Launches and their recordings
/// Launches that were recorded, to be replayed together, with the buffers that they use.
pub struct Graph {
    graph: Owned,
    _kept: Vec<Arc<Owned>>,
}

// Launch, record and replay
impl Gpu {
    /// Queues a kernel. Its buffers must be as long as it expects.
    ///
    /// # Errors
    /// `Foreign` where kernel or buffers are another device's, `Cuda` where the device refuses; an empty grid is no launch, and no error.
    pub(crate) fn launch<A: KernelArguments>(
        &self,
        kernel: &Kernel<A::Kernel>,
        shape: Shape,
        arguments: A,
    ) -> Result<(), Error> {
        self.queue_kernel(kernel, shape, arguments.list().as_ref(), |backend, stream, arguments| {
            backend.launch(stream, kernel.handle, shape, arguments)
        })
    }

    // Launch a kernel that waits by itself
    /// Queues a kernel that waits by itself, before it uses what earlier work has made; see [`Gpu::launch`].
    ///
    /// # Errors
    /// Those of [`Gpu::launch`].
    pub(crate) fn launch_early<A: KernelArguments>(
        &self,
        kernel: &Kernel<A::Kernel>,
        shape: Shape,
        arguments: A,
    ) -> Result<(), Error> {
        self.queue_kernel(kernel, shape, arguments.list().as_ref(), |backend, stream, arguments| {
            backend.launch_early(stream, kernel.handle, shape, arguments)
        })
    }

    // Hand the arguments to a launch
    /// Does a `launch` with its arguments, unless the grid is empty.
    fn queue_kernel<A>(
        &self,
        kernel: &Kernel<A>,
        shape: Shape,
        arguments: &[Argument],
        launch: impl FnOnce(&dyn Backend, u64, &mut [u64]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.own("kernel", &kernel.device)?;
        let mut memory = arguments.iter().filter_map(|argument| argument.memory);
        memory.clone().try_for_each(|memory| self.own("buffer", &memory.device))?;
        if shape.grid.contains(&0) {
            return Ok(());
        }
        self.refuse_large_shape(shape)?;
        let (_guard, backend, stream) = self.queue.enter();
        self.queue.keep(&mut memory);
        let mut arguments: Vec<u64> = arguments.iter().map(|argument| argument.bits).collect();
        launch(backend, stream, &mut arguments)
    }

    // Reject launches beyond the driver
    /// Rejects a launch of which a size does not fit into the driver's integers.
    fn refuse_large_shape(&self, shape: Shape) -> Result<(), Error> {
        let Shape { grid: [x, y, z], block, shared } = shape;
        let sizes = [x, y, z, block, shared];
        if sizes.iter().all(|&size| i32::try_from(size).is_ok()) {
            return Ok(());
        }
        let reason = format!("a size of {shape:?} is above {}", i32::MAX);
        Err(Error::Cuda { call: "launch", device: self.name().into(), reason })
    }

    // Record work and replay it
    /// Records the launches and operations that `work` queues; nothing is done.
    ///
    /// # Errors
    /// Those of `work`, and `Cuda`.
    pub fn record(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let recording = self.queue.record()?;
        let (done, graph) = (work(), recording.end());
        self.queue.device.give_back(None);
        let (graph, kept) = done.and(graph)?;
        Ok(Graph { graph, _kept: kept })
    }

    /// Refuses what cannot be recorded.
    fn refuse_to_record(&self, what: &str) -> Result<(), Error> {
        if !self.queue.records() {
            return Ok(());
        }
        let reason = format!("{} records", self.name());
        Err(Error::Failed { what: what.into(), reason })
    }

    // Replay what was recorded
    /// Queues all that a graph holds.
    ///
    /// # Errors
    /// `Foreign` where the graph is another device's, `Cuda` where the device refuses.
    pub fn replay(&self, graph: &Graph) -> Result<(), Error> {
        self.own("graph", &graph.graph.device)?;
        let (_guard, backend, stream) = self.queue.enter();
        backend.replay(stream, graph.graph.handle.number())
    }

    /// Waits until all work of the queue is done.
    ///
    /// # Errors
    /// `Cuda` where some of it failed.
    pub fn synchronise(&self) -> Result<(), Error> {
        let (_guard, backend, stream) = self.queue.enter();
        backend.synchronise(stream)
    }
}

// Marks in a queue
/// A mark in a queue, reached when all work before it is done.
pub struct Mark(Owned);

impl Mark {
    /// Waits until the mark is reached.
    ///
    /// # Errors
    /// `Cuda` where the work before it failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.0.device.backend.reach(self.handle())
    }

    fn handle(&self) -> u64 {
        self.0.handle.number()
    }
}

impl Gpu {
    // Mark and wait for marks
    /// A mark behind all work that was queued until now.
    ///
    /// # Errors
    /// `Failed` while the queue records, `Cuda` where the device refuses.
    pub fn mark(&self) -> Result<Mark, Error> {
        self.refuse_to_record("a mark")?;
        let (_guard, backend, stream) = self.queue.enter();
        Ok(Mark(self.queue.device.own(Handle::Mark(backend.mark(stream)?))))
    }

    /// Has the queue wait for a mark in another queue of the device, before it goes on.
    ///
    /// # Errors
    /// `Foreign` where the mark is another device's, and those of [`Gpu::mark`].
    pub fn wait(&self, mark: &Mark) -> Result<(), Error> {
        self.own("mark", &mark.0.device)?;
        self.refuse_to_record("waiting for a mark")?;
        self.enqueue(&Operation::Await { mark: mark.handle() }, &[])
    }

    // Measure time by two marks
    /// Mean time of some work on the device, in milliseconds, over so many repetitions queued one after the other.
    ///
    /// # Errors
    /// Those of `work`, and `Cuda`; `Device` where the driver cannot tell times.
    pub fn milliseconds(
        &self,
        repetitions: usize,
        mut work: impl FnMut() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        self.backend().require_clock()?;
        let start = self.mark()?;
        (0..repetitions).try_for_each(|_| work())?;
        let end = self.mark()?;
        end.wait()?;
        let marks = [start.handle(), end.handle()];
        Ok(self.backend().milliseconds(marks)? / repetitions as f64)
    }
}

// Library operations of a device
// Operations of the maker's libraries
/// A plan of Fourier transforms of numbers I into numbers O, for one queue.
pub struct Fft<I, O = I> {
    plan: Arc<Owned>,
    gpu: Gpu,
    numbers: [usize; 2],
    kinds: PhantomData<fn(I) -> O>,
}

impl Gpu {
    // Queue an operation
    fn enqueue(&self, operation: &Operation, used: &[&Arc<Owned>]) -> Result<(), Error> {
        used.iter().try_for_each(|owned| match owned.handle {
            Handle::Plan(_) => self.own("plan", &owned.device),
            _ => self.own("buffer", &owned.device),
        })?;
        let (_guard, backend, stream) = self.queue.enter();
        self.queue.keep(used.iter().copied());
        backend.enqueue(stream, operation)
    }

    // Plan transforms of any kind
    /// A plan of `batch` inverse transforms of complex numbers, exponent +2πi, not normalised; `lengths` along the axes, the last one the
    /// fastest.
    ///
    /// # Errors
    /// `Device` where cuFFT is missing, `Cuda` where it refuses, as for the other plans.
    pub fn inverse_fft<T: Real>(
        &self,
        lengths: &[usize],
        batch: usize,
    ) -> Result<Fft<Complex<T>>, Error> {
        self.plan::<T, _, _>(TransformKind::Inverse, lengths, batch)
    }

    /// A plan of transforms of complex numbers, exponent −2πi, not normalised.
    pub fn forward_fft<T: Real>(
        &self,
        lengths: &[usize],
        batch: usize,
    ) -> Result<Fft<Complex<T>>, Error> {
        self.plan::<T, _, _>(TransformKind::Forward, lengths, batch)
    }

    // Plan transforms of real fields
    /// A plan of transforms of real numbers into the first n/2 + 1 of their spectrum along the last axis, exponent −2πi, not normalised.
    pub fn real_fft<T: Real>(
        &self,
        lengths: &[usize],
        batch: usize,
    ) -> Result<Fft<T, Complex<T>>, Error> {
        self.plan::<T, _, _>(TransformKind::FromReal, lengths, batch)
    }

    /// A plan of their inverse, exponent +2πi, not normalised; the spectrum is overwritten.
    pub fn inverse_real_fft<T: Real>(
        &self,
        lengths: &[usize],
        batch: usize,
    ) -> Result<Fft<Complex<T>, T>, Error> {
        self.plan::<T, _, _>(TransformKind::ToReal, lengths, batch)
    }

    // Plan so many transforms
    fn plan<T: Real, I, O>(
        &self,
        kind: TransformKind,
        lengths: &[usize],
        batch: usize,
    ) -> Result<Fft<I, O>, Error> {
        let double = T::PRECISION == Precision::F64;
        let transforms = TransformBatch { lengths: lengths.to_vec(), batch, kind, double };
        let numbers = transforms.numbers();
        numbers.into_iter().try_for_each(|len| self.bytes_of::<Complex<T>>(len).map(drop))?;
        let (_guard, backend, stream) = self.queue.enter();
        let plan = Handle::Plan(backend.plan(stream, &transforms)?);
        let plan = Arc::new(self.queue.device.own(plan));
        Ok(Fft { plan, gpu: self.clone(), numbers, kinds: PhantomData })
    }

    // Apply a plan of transforms
    /// Queues the transforms of a plan; complex numbers may be transformed in place, `from` and `to` being the same.
    ///
    /// # Errors
    /// `Foreign` where plan or buffers are another device's or the plan another queue's, `Cuda` where the device refuses.
    pub fn transform<'a, I: Pod, O: Pod>(
        &self,
        fft: &Fft<I, O>,
        from: impl Into<BufferView<'a, I>>,
        to: impl Into<BufferView<'a, O>>,
    ) -> Result<(), Error> {
        let (from, to) = (from.into(), to.into());
        assert!(from.len >= fft.numbers[0] && to.len >= fft.numbers[1], "a plan fits its fields");
        if !Arc::ptr_eq(&fft.gpu.queue, &self.queue) {
            let (owner, device) = (fft.gpu.name().into(), self.name().into());
            return Err(Error::Foreign { what: "plan of another queue", owner, device });
        }
        let plan = fft.plan.handle.number();
        let transform = Operation::Transform { plan, from: from.address(), to: to.address() };
        self.enqueue(&transform, &[&fft.plan, &from.buffer.memory, &to.buffer.memory])
    }

    // Multiply a dense matrix on the device
    /// Queues y = A x for a matrix of `rows` × `columns`, by rows.
    ///
    /// # Errors
    /// `Foreign` where a buffer is another device's, `Device` where cuBLAS is missing or too old for so large a matrix, `Cuda` where it
    /// refuses.
    pub fn multiply_matrix<'a, T: Real>(
        &self,
        matrix: impl Into<BufferView<'a, T>>,
        (rows, columns): (usize, usize),
        x: impl Into<BufferView<'a, T>>,
        y: impl Into<BufferView<'a, T>>,
    ) -> Result<(), Error> {
        let (matrix, x, y) = (matrix.into(), x.into(), y.into());
        let fits = (matrix.len, x.len, y.len) == (count([rows, columns]), columns, rows);
        assert!(fits, "a matrix fits its vectors");
        let (double, shape) = (T::PRECISION == Precision::F64, [rows, columns]);
        let used = [&matrix, &x, &y].map(|view| &view.buffer.memory);
        let [matrix, x, y] = [matrix, x, y].map(|view| view.address());
        self.enqueue(&Operation::MultiplyVector { double, matrix, shape, x, y }, &used)
    }

    // Multiply two matrices on the device
    /// Queues C ← α A B + β C; C has `rows` × `columns`, by rows, and A is rows × inner, or stored as its transpose, B likewise.
    ///
    /// # Errors
    /// As for [`Gpu::multiply_matrix`].
    pub fn multiply_matrices<'a, T: Real>(
        &self,
        factors: [(BufferView<'a, T>, bool); 2],
        [rows, inner, columns]: [usize; 3],
        c: impl Into<BufferView<'a, T>>,
        [alpha, beta]: [T; 2],
    ) -> Result<(), Error> {
        let ([(a, a_transposed), (b, b_transposed)], c) = (factors, c.into());
        let fits =
            [a.len, b.len, c.len] == [[rows, inner], [inner, columns], [rows, columns]].map(count);
        assert!(fits, "matrices fit their product");
        let product = Operation::Multiply(MatrixProduct {
            double: T::PRECISION == Precision::F64,
            shape: [rows, columns],
            inner,
            transposed: [a_transposed, b_transposed],
            factors: [alpha, beta].map(Real::in_double),
            a: a.address(),
            b: b.address(),
            c: c.address(),
        });
        self.enqueue(&product, &[a, b, c].each_ref().map(|view| &view.buffer.memory))
    }
}

// Count the numbers of a matrix
/// Numbers of a matrix of this shape; `usize::MAX` where they are more than can be counted.
fn count([rows, columns]: [usize; 2]) -> usize {
    rows.saturating_mul(columns)
}

// Take matrices apart on a device
impl Gpu {
    /// Puts Cholesky's factor in the place of a symmetric positive definite matrix of which the upper triangle by rows is looked at: Lᵗ,
    /// whose lower triangle is of no meaning. Waits for it, and tells the first pivot that is not positive.
    ///
    /// # Errors
    /// `Foreign` where the buffer is another device's, `Device` where cuSOLVER is missing, `Failed` while the queue records, `Cuda` where
    /// the device refuses, or has no room to work in.
    pub fn cholesky<T: Real>(
        &self,
        matrix: &Buffer<T>,
        order: usize,
    ) -> Result<Option<usize>, Error> {
        self.apart(matrix, order, Operation::Cholesky, &[])
    }

    // Find eigenvectors on the device
    /// Puts eigenvectors in the place of a symmetric matrix of which the upper triangle by rows is looked at, one a row, and gives their
    /// eigenvalues, ascending. Waits for them.
    ///
    /// # Errors
    /// As for [`Gpu::cholesky`], and `Failed` where eigenvalues are not found.
    pub fn eigenvectors<T: Real>(&self, matrix: &Buffer<T>, order: usize) -> Result<Vec<T>, Error> {
        let values = self.zeros::<T>(order)?;
        let address = values.address;
        let operation = |of| Operation::Eigenvectors { of, values: address };
        let missing = self.apart(matrix, order, operation, &[&values.memory])?;
        let failed = |k| Error::Failed {
            what: format!("the decomposition of {order} × {order} numbers"),
            reason: format!("{k} of its steps did not converge on {}", self.name()),
        };
        missing.map_or(Ok(()), |k| Err(failed(k + 1)))?;
        values.read()
    }

    // Take a matrix apart and read the report
    fn apart<T: Real>(
        &self,
        matrix: &Buffer<T>,
        order: usize,
        operation: impl FnOnce(Symmetric) -> Operation,
        others: &[&Arc<Owned>],
    ) -> Result<Option<usize>, Error> {
        assert_eq!(matrix.len, count([order; 2]), "a matrix fits its order");
        self.refuse_to_record("taking a matrix apart")?;
        let report = self.zeros::<i32>(1)?;
        let double = T::PRECISION == Precision::F64;
        let (matrix_at, report_at) = (matrix.address, report.address);
        let operation =
            operation(Symmetric { double, order, matrix: matrix_at, report: report_at });
        self.enqueue(&operation, &[&[&matrix.memory, &report.memory], others].concat())?;
        let report = report.read()?[0];
        Ok(usize::try_from(report).ok().and_then(|number| number.checked_sub(1)))
    }

    // Solve triangular systems on the device
    /// Queues: each row b, of `order` numbers, becomes L⁻¹ b, or L⁻ᵗ b where `transposed`, with the factor of [`Gpu::cholesky`].
    ///
    /// # Errors
    /// As for [`Gpu::multiply_matrix`].
    pub fn solve_triangular<'a, T: Real>(
        &self,
        factor: &Buffer<T>,
        order: usize,
        rows: impl Into<BufferView<'a, T>>,
        transposed: bool,
    ) -> Result<(), Error> {
        let rows = rows.into();
        let fits = factor.len == count([order; 2]) && order > 0 && rows.len.is_multiple_of(order);
        assert!(fits, "rows fit their factor");
        let (double, many) = (T::PRECISION == Precision::F64, rows.len / order.max(1));
        let (factor_at, rows_at) = (factor.address, rows.address());
        let triangular =
            Triangular { double, order, factor: factor_at, count: many, rows: rows_at, transposed };
        let operation = Operation::SolveTriangular(triangular);
        self.enqueue(&operation, &[&factor.memory, &rows.buffer.memory])
    }
}

// Devices and tests of the seam
// Devices for the tests
/// So many emulated devices; none where there is no compiler.
#[cfg(test)]
pub(crate) fn emulated(count: usize) -> Vec<Gpu> {
    let emulators = (0..count).filter_map(|_| super::emulator::Emulator::for_tests());
    emulators.map(|it| Gpu::new(it).unwrap()).collect()
}

/// All CUDA devices of this machine; where there are none, a message on the standard error.
///
/// # Panics
/// Where there are none, and the variable `LENSLET_REQUIRE_CUDA` is set.
#[cfg(test)]
pub(crate) fn cuda_devices() -> Vec<Gpu> {
    let required = std::env::var_os("LENSLET_REQUIRE_CUDA").is_some();
    super::engine::open_gpus(super::Device::Cuda(None)).unwrap_or_else(|reason| {
        assert!(!required, "no graphics processor: {reason}");
        eprintln!("skipped on a graphics processor: {reason}");
        Vec::new()
    })
}

/// The emulated device and all CUDA devices of this machine.
#[cfg(test)]
pub(crate) fn test_backends() -> Vec<Gpu> {
    [emulated(1), cuda_devices()].concat()
}

// Tests of the seam
#[cfg(test)]
pub(crate) mod tests {
    use super::kernels::kernels;
    use super::*;
    use crate::error::Invalid;

    /// y ← a x + b i in the precision of the option.
    const LINE: KernelSource = KernelSource {
        name: "line.cu",
        text: "extern \"C\" __global__ void line(const REAL *x, REAL *y, int n, REAL a, double b) {\n\
               int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
               if (i < n) y[i] = a * x[i] + (REAL)(b * i);\n}\n",
        headers: &[],
    };

    kernels! {
        /// Kernel of a line.
        struct LineKernels in LINE {
            /// y = a x + b i.
            line: Line<T> { x: [T] as "REAL", y: [T] as "REAL", n: usize, a: f32 as "REAL", b: f64 }
        }
    }

    // Queue a line
    /// The kernel of `LINE`.
    fn line(gpu: &Gpu) -> LineKernels<f32> {
        LineKernels::load(gpu, &[]).unwrap()
    }

    /// Queues y ← 3 x + i / 4 for the first `n` numbers.
    fn queue<'a>(
        (gpu, kernels): (&Gpu, &LineKernels<f32>),
        x: impl Into<BufferView<'a, f32>>,
        y: impl Into<BufferView<'a, f32>>,
        n: usize,
    ) -> Result<(), Error> {
        let arguments = Line { x: x.into(), y: y.into(), n, a: 3.0, b: 0.25 };
        gpu.launch(&kernels.line, Shape::over(n, 128, [1, 1]), arguments)
    }

    /// What that gives.
    fn lined(x: &[f32]) -> Vec<f32> {
        x.iter().zip(0..).map(|(x, i)| 3.0 * x + 0.25 * i as f32).collect()
    }

    fn is_foreign<T>(result: Result<T, Error>) -> bool {
        matches!(result, Err(Error::Foreign { .. }))
    }

    // Check copies, launches and recordings
    #[test]
    fn launches_run_in_order_and_recordings_wait() {
        for gpu in test_backends() {
            let x: Vec<f32> = (0..1000).map(|i| i as f32 * 0.5).collect();
            let (x_on_device, y_on_device) =
                (gpu.upload(&x).unwrap(), gpu.zeros::<f32>(1000).unwrap());
            assert_eq!(x_on_device.read().unwrap(), x);
            assert_eq!(
                (y_on_device.len(), y_on_device.bytes(), y_on_device.is_empty()),
                (1000, 4000, false)
            );
            let program = gpu.program::<f32>(&LINE, &[]).unwrap();
            assert!(program.kernel::<()>("circle").is_err());
            let line = line(&gpu);
            let queue = |n: usize| queue((&gpu, &line), &x_on_device, &y_on_device, n);
            // Check what was and what was not done
            let graph = gpu.record(|| queue(1000)).unwrap();
            assert_eq!(y_on_device.read().unwrap(), [0.0; 1000], "a recording does nothing");
            queue(0).unwrap();
            gpu.replay(&graph).unwrap();
            let expected = lined(&x);
            assert_eq!(y_on_device.read().unwrap(), expected);
            y_on_device.clear().unwrap();
            queue(999).unwrap();
            assert_eq!(y_on_device.read().unwrap()[997..], [expected[997], expected[998], 0.0]);
            let failed = gpu.record(|| Err(Invalid::new("it", 1, "2").into()));
            assert!(failed.is_err() && gpu.synchronise().is_ok(), "the queue goes on");
            assert!(gpu.milliseconds(3, || queue(1000)).unwrap() > 0.0);
            assert!(gpu.available_memory().unwrap() > 1 << 20);
            let error = gpu.refuse_beyond_memory(u64::MAX, "it").unwrap_err().to_string();
            assert!(error.contains(gpu.name()), "{error}");
        }
    }

    // Check what a graph keeps
    #[test]
    fn a_graph_keeps_its_buffers() {
        for gpu in test_backends() {
            let (line, x) = (line(&gpu), vec![0.5f32; 300]);
            let (from, to) = (gpu.upload(&x).unwrap(), gpu.zeros::<f32>(300).unwrap());
            let between = gpu.zeros::<f32>(300).unwrap();
            let other = gpu.zeros::<f32>(300).unwrap();
            let graph = gpu.record(|| {
                queue((&gpu, &line), &from, &between, 300)?;
                queue((&gpu, &line), &between, &other, 300)?;
                gpu.copy_within(&other, &to)?;
                drop(other);
                Ok(())
            });
            drop((from, between));
            let _others: Vec<_> = (0..9).map(|_| gpu.upload(&[7f32; 300]).unwrap()).collect();
            gpu.replay(graph.as_ref().unwrap()).unwrap();
            assert_eq!(to.read().unwrap(), lined(&lined(&x)));
            let fields = gpu.upload(&[Complex::new(1.0, 0.0); 8]).unwrap();
            let plan = gpu.inverse_fft::<f64>(&[8], 1).unwrap();
            let graph = gpu.record(|| gpu.transform(&plan, &fields, &fields)).unwrap();
            drop(plan);
            gpu.replay(&graph).unwrap();
            assert!((fields.read().unwrap()[0] - 8.0).norm() < 1e-12);
        }
    }

    // Check that foreign buffers are refused
    #[test]
    fn what_belongs_to_another_device_is_refused() {
        for (here, there) in test_backends().into_iter().zip(test_backends()) {
            let (ours, theirs) = (line(&here), line(&there));
            let buffer = |gpu: &Gpu| gpu.zeros::<f32>(64).unwrap();
            let (x, y, far) = (buffer(&here), buffer(&here), buffer(&there));
            assert!(queue((&here, &ours), &x, &y, 64).is_ok());
            assert!(is_foreign(queue((&here, &theirs), &x, &y, 64)));
            assert!(is_foreign(queue((&here, &ours), &far, &y, 64)));
            assert!(is_foreign(queue((&here, &ours), &x, far.view(3..), 0)));
            assert!(is_foreign(here.copy_within(&x, &far)) && is_foreign(far.view(..).on(&here)));
            assert!(is_foreign(here.replay(&there.record(|| Ok(())).unwrap())));
            assert!(is_foreign(here.wait(&there.mark().unwrap())));
            let mut pinned = there.pinned::<f32>(64).unwrap();
            assert!(is_foreign(here.send(&pinned, &x)) && is_foreign(here.fetch(&x, &mut pinned)));
            // Check that foreign plans and factors are refused
            let plan = |gpu: &Gpu| gpu.inverse_fft::<f32>(&[4], 1).unwrap();
            let field = |gpu: &Gpu| gpu.zeros::<Complex<f32>>(4).unwrap();
            let (field, far_field) = (field(&here), field(&there));
            assert!(is_foreign(here.transform(&plan(&there), &field, &field)));
            assert!(is_foreign(here.transform(&plan(&here), &field, &far_field)));
            let second = here.stream().unwrap();
            assert!(is_foreign(second.transform(&plan(&here), &field, &field)));
            assert!(second.is_same_device(&here) && !there.is_same_device(&here));
            assert!(is_foreign(here.multiply_matrix(&far, (8, 8), x.view(..8), y.view(..8))));
            let product = [(x.view(..), false), (far.view(..), false)];
            assert!(is_foreign(here.multiply_matrices(product, [8; 3], &y, [1.0, 0.0])));
            let error = queue((&here, &theirs), &x, &y, 64).unwrap_err().to_string();
            assert!(error.starts_with("a kernel of ") && error.ends_with(here.name()), "{error}");
        }
    }

    // Check parts, queues and pinned memory
    #[test]
    fn parts_and_queues_work_side_by_side() {
        for gpu in test_backends() {
            let line = line(&gpu);
            let all = gpu.upload(&[1f32; 100]).unwrap();
            let part = all.view(20..60);
            part.write(&[2.0; 40]).unwrap();
            queue((&gpu, &line), all.view(20..30), all.view(50..), 10).unwrap();
            all.view(..5).clear().unwrap();
            let read = all.read().unwrap();
            assert_eq!(
                (&read[..5], &read[5..20], &read[20..50]),
                (&[0.0; 5][..], &[1.0; 15][..], &[2.0; 30][..])
            );
            assert_eq!((&read[50..60], &read[60..]), (&lined(&[2.0; 10])[..], &[1.0; 40][..]));
            assert_eq!((part.len(), part.is_empty(), all.view(7..7).is_empty()), (40, false, true));
            assert!(
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| all.view(99..101).len()))
                    .is_err()
            );
            // Pass numbers between two queues
            let other = gpu.stream().unwrap();
            let (n, rounds) = (1 << 16, 100);
            let (mut from, mut to) = (gpu.pinned::<f32>(n).unwrap(), gpu.pinned::<f32>(n).unwrap());
            let (x, y) = (gpu.zeros::<f32>(n).unwrap(), gpu.zeros::<f32>(n).unwrap());
            assert_eq!(to.values().unwrap(), vec![0.0; n]);
            for round in 0..rounds {
                from.values_mut().unwrap().fill(round as f32);
                gpu.send(&from, &x).unwrap();
                queue((&gpu, &line), &x, &y, n).unwrap();
                other.wait(&gpu.mark().unwrap()).unwrap();
                other.fetch(&y, &mut to).unwrap();
                gpu.wait(&other.mark().unwrap()).unwrap();
                y.clear().unwrap();
                assert_eq!(to.values().unwrap()[..9], lined(&[round as f32; 9])[..]);
            }
            assert!(
                gpu.record(|| gpu.send(&from, &x)).is_err()
                    && gpu.record(|| gpu.mark().map(drop)).is_err()
            );
            assert_eq!(y.view(..).on(&other).unwrap().read().unwrap(), vec![0.0; n]);
            drop(other);
            assert_eq!(x.view(n - 1..).read().unwrap(), [99.0]);
        }
    }

    // Check sizes beyond every memory
    #[test]
    fn sizes_that_wrap_are_rejected() {
        for gpu in test_backends() {
            let wrapping = [usize::MAX / 8 + 2, usize::MAX, usize::MAX / 16 + 1];
            for len in wrapping {
                let errors = [
                    gpu.zeros::<f64>(len).err(),
                    gpu.pinned::<f64>(len).err(),
                    gpu.forward_fft::<f64>(&[len], 1).err(),
                    gpu.real_fft::<f32>(&[8, 2], len).err(),
                ];
                for error in errors {
                    let message = error.as_ref().map(ToString::to_string).unwrap_or_default();
                    assert!(matches!(error, Some(Error::Memory { .. })), "{len}: {message}");
                    assert!(
                        message.contains(gpu.name()) && message.contains("bytes on"),
                        "{message}"
                    );
                }
            }
            let (large, small) = (1 << 32, gpu.zeros::<f64>(0).unwrap());
            // Check matrices whose size wraps
            assert_eq!((small.bytes(), small.view(..).bytes()), (0, 0));
            let panics = |run: &dyn Fn()| {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
            };
            assert!(panics(&|| drop(gpu.cholesky(&small, large))));
            assert!(panics(&|| drop(gpu.solve_triangular(&small, large, &small, false))));
            let factors = [(small.view(..), false), (small.view(..), false)];
            assert!(panics(&|| drop(gpu.multiply_matrices(
                factors,
                [large; 3],
                &small,
                [1.0, 0.0]
            ))));
            assert!(panics(&|| assert!(small.view(..=usize::MAX).is_empty())));
            let line = line(&gpu);
            let shape = Shape { grid: [1 << 32, 1, 1], block: 1, shared: 0 };
            let (x, y) = (gpu.zeros::<f32>(1).unwrap(), gpu.zeros::<f32>(1).unwrap());
            let arguments = Line { x: x.view(..), y: y.view(..), n: 1, a: 1.0, b: 0.0 };
            let error = gpu.launch(&line.line, shape, arguments).unwrap_err().to_string();
            assert!(error.contains("above 2147483647"), "{error}");
        }
    }

    // Check transforms of every kind
    /// The transform of one field, as its sum says; the exponent has this sign.
    fn transformed(field: &[Complex<f64>], lengths: &[usize], sign: f64) -> Vec<Complex<f64>> {
        let places = |mut k: usize| -> Vec<usize> {
            let place = |&length: &usize| (k % length, k /= length).0;
            lengths.iter().rev().map(place).collect()
        };
        let cycles = |k: usize, l: usize| -> f64 {
            let both = places(k).into_iter().zip(places(l)).zip(lengths.iter().rev());
            both.map(|((k, l), &length)| (k * l) as f64 / length as f64).sum()
        };
        let wave = |k, l| Complex::cis(sign * 2.0 * std::f64::consts::PI * cycles(k, l));
        let sum = |k| field.iter().enumerate().map(|(l, &value)| value * wave(k, l)).sum();
        (0..field.len()).map(sum).collect()
    }

    fn close<T: Real>(ours: &[Complex<T>], theirs: &[Complex<f64>]) -> bool {
        let bound = if T::PRECISION == Precision::F64 { 1e-12 } else { 1e-4 };
        let near = |(a, b): (&Complex<T>, &Complex<f64>)| {
            (Complex::new(a.re.in_double(), a.im.in_double()) - b).norm() < bound
        };
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(near)
    }

    // Check one size of transforms
    fn check_transforms<T: Real>(gpu: &Gpu, lengths: &[usize]) {
        let size: usize = lengths.iter().product();
        let value = |k: usize| Complex::new((k as f64 * 0.7).sin(), (k as f64 * 1.3).cos());
        let fields: Vec<_> = (0..2 * size).map(value).collect();
        // Check transforms of complex numbers
        let in_t = |z: &Complex<f64>| T::of_complex(*z);
        let there = gpu.upload(&fields.iter().map(in_t).collect::<Vec<_>>()).unwrap();
        let results = gpu.zeros::<Complex<T>>(2 * size).unwrap();
        let both = |sign| -> Vec<_> {
            fields.chunks(size).flat_map(|field| transformed(field, lengths, sign)).collect()
        };
        gpu.transform(&gpu.forward_fft(lengths, 2).unwrap(), &there, &results).unwrap();
        assert!(close(&results.read().unwrap(), &both(-1.0)), "{lengths:?} forward");
        gpu.transform(&gpu.inverse_fft(lengths, 2).unwrap(), &there, &there).unwrap();
        assert!(close(&there.read().unwrap(), &both(1.0)), "{lengths:?} in place");

        // Check transforms of real numbers
        let real: Vec<T> = fields.iter().map(|z| T::of(z.re)).collect();
        let (last, there) = (lengths[lengths.len() - 1], gpu.upload(&real).unwrap());
        let half = gpu.zeros::<Complex<T>>(2 * size / last * (last / 2 + 1)).unwrap();
        gpu.transform(&gpu.real_fft(lengths, 2).unwrap(), &there, &half).unwrap();
        let spectra = fields.chunks(size).flat_map(|field| {
            let real: Vec<_> = field.iter().map(|z| Complex::from(z.re)).collect();
            transformed(&real, lengths, -1.0)
        });
        let spectra: Vec<_> = spectra.collect();
        let first: Vec<_> =
            spectra.chunks(last).flat_map(|row| &row[..=last / 2]).copied().collect();
        assert!(close(&half.read().unwrap(), &first), "{lengths:?} of real numbers");
        gpu.transform(&gpu.inverse_real_fft(lengths, 2).unwrap(), &half, &there).unwrap();
        let back: Vec<_> = there.read().unwrap().into_iter().map(Complex::from).collect();
        let times: Vec<_> = fields.iter().map(|z| Complex::from(z.re * size as f64)).collect();
        assert!(close(&back, &times), "{lengths:?} to real numbers");
    }

    // Check all sizes and kinds of transforms
    #[test]
    fn transforms_are_their_sums() {
        for gpu in test_backends() {
            for lengths in [&[12][..], &[5], &[6, 6], &[3, 8], &[4, 5], &[2, 3, 4], &[3, 2, 5]] {
                check_transforms::<f64>(&gpu, lengths);
                check_transforms::<f32>(&gpu, lengths);
            }
        }
    }

    // Check products of matrices
    #[test]
    fn products_are_their_sums() {
        for gpu in test_backends() {
            let a: Vec<f32> = (0..15).map(|k| (k * k % 7) as f32).collect();
            let matrix = gpu.upload(&a).unwrap();
            let (x, y) = (gpu.upload(&[1f32, -2.0, 3.0]).unwrap(), gpu.zeros::<f32>(5).unwrap());
            gpu.multiply_matrix(&matrix, (5, 3), &x, &y).unwrap();
            let expected: Vec<f32> =
                a.chunks(3).map(|row| row[0] - 2.0 * row[1] + 3.0 * row[2]).collect();
            assert_eq!(y.read().unwrap(), expected);
            check_products::<f64>(&gpu);
            check_products::<f32>(&gpu);
        }
    }

    // Check products with every choice of transposes
    /// C ← 2 A B + 3 C with every choice of transposes; A is 4 × 3 and B is 3 × 5.
    fn check_products<T: Real>(gpu: &Gpu) {
        let ([rows, inner, columns], number) = ([4, 3, 5], |k: usize| (k * k % 11) as f64);
        let entries = |of: &dyn Fn(usize, usize) -> f64, [rows, columns]: [usize; 2]| {
            let all = (0..rows * columns).map(|k| T::of(of(k / columns, k % columns)));
            gpu.upload(&all.collect::<Vec<_>>()).unwrap()
        };
        let (a, b) =
            (|j: usize, k: usize| number(3 * j + k), |k: usize, i: usize| number(5 * k + i + 2));
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            // Check one product of matrices
            let of_a = match transposed[0] {
                true => entries(&|k, j| a(j, k), [inner, rows]),
                false => entries(&a, [rows, inner]),
            };
            let of_b = match transposed[1] {
                true => entries(&|i, k| b(k, i), [columns, inner]),
                false => entries(&b, [inner, columns]),
            };
            let c = entries(&|_, i| i as f64, [rows, columns]);
            let factors = [(of_a.view(..), transposed[0]), (of_b.view(..), transposed[1])];
            gpu.multiply_matrices(factors, [rows, inner, columns], &c, [T::of(2.0), T::of(3.0)])
                .unwrap();
            for (at, value) in c.read().unwrap().into_iter().enumerate() {
                let (j, i) = (at / columns, at % columns);
                let sum: f64 = (0..inner).map(|k| a(j, k) * b(k, i)).sum();
                assert_eq!(value.in_double(), 2.0 * sum + 3.0 * i as f64, "{transposed:?}");
            }
        }
    }

    // Matrices with known factors
    /// An upper triangular matrix R with a positive diagonal.
    pub(crate) fn root(i: usize, j: usize) -> f64 {
        match i.cmp(&j) {
            std::cmp::Ordering::Less => 0.5 * ((3 * i + 7 * j) as f64).cos() / (1 + j - i) as f64,
            std::cmp::Ordering::Equal => 2.0 + (i % 3) as f64,
            std::cmp::Ordering::Greater => 0.0,
        }
    }

    /// RᵗR.
    pub(crate) fn squared(i: usize, j: usize) -> f64 {
        (0..=i.min(j)).map(|k| root(k, i) * root(k, j)).sum()
    }

    /// An orthogonal matrix Q of this order, symmetric: a reflection.
    pub(crate) fn reflection(order: usize, i: usize, j: usize) -> f64 {
        let v = |k: usize| 1.0 + (k as f64).sin();
        let square: f64 = (0..order).map(|k| v(k) * v(k)).sum();
        f64::from(i == j) - 2.0 * v(i) * v(j) / square
    }

    /// Q Λ Q, with the eigenvalues 1, 2, 3 …
    pub(crate) fn reflected(order: usize) -> Vec<f64> {
        let q: Vec<f64> =
            (0..order * order).map(|k| reflection(order, k / order, k % order)).collect();
        let entry = |i: usize, j: usize| {
            let terms = (0..order).map(|k| (k + 1) as f64 * q[i * order + k] * q[j * order + k]);
            terms.sum()
        };
        (0..order * order).map(|k| entry(k / order, k % order)).collect()
    }

    /// Rounding errors of numbers T that grow with the size of a matrix.
    pub(crate) fn bound<T: Real>() -> f64 {
        if T::PRECISION == Precision::F64 { 1e-10 } else { 2e-3 }
    }

    // Take known matrices apart
    fn check_factors<T: Real>(gpu: &Gpu) {
        const N: usize = 70;
        let upload = |entry: &dyn Fn(usize) -> f64| {
            gpu.upload(&(0..N * N).map(|k| T::of(entry(k))).collect::<Vec<_>>()).unwrap()
        };
        let matrix = upload(&|k| squared(k / N, k % N));
        assert_eq!(gpu.cholesky(&matrix, N).unwrap(), None);
        for (k, value) in matrix.read().unwrap().into_iter().enumerate() {
            let (i, j) = (k / N, k % N);
            let error = (value.in_double() - root(i, j)).abs();
            assert!(i > j || error < bound::<T>(), "{i}, {j}: {error:e}");
        }
        // The pivot that is made negative is the first that fails.
        let broken = upload(&|k| squared(k / N, k % N) - if k == 41 * N + 41 { 99.0 } else { 0.0 });
        assert_eq!(gpu.cholesky(&broken, N).unwrap(), Some(41));
        // Find known eigenvectors
        if gpu.require_factors(true).is_err() {
            return;
        }
        let entries = reflected(N);
        let vectors = upload(&|k| entries[k]);
        let values = gpu.eigenvectors(&vectors, N).unwrap();
        let vectors = vectors.read().unwrap();
        for (k, (value, vector)) in values.into_iter().zip(vectors.chunks(N)).enumerate() {
            assert!((value.in_double() - (k + 1) as f64).abs() < N as f64 * bound::<T>());
            let along = vector.iter().enumerate();
            let along: f64 = along.map(|(j, x)| x.in_double() * reflection(N, k, j)).sum();
            assert!((along.abs() - 1.0).abs() < bound::<T>(), "{k}: {along}");
        }
    }

    // Take known matrices apart in two queues
    #[test]
    fn factors_and_eigenvectors_are_known_ones() {
        for gpu in test_backends() {
            check_factors::<f64>(&gpu);
            check_factors::<f32>(&gpu.stream().unwrap());
            check_factors::<f64>(&gpu.stream().unwrap());
        }
    }
}
