// Tangled from book/src/graphics-processor.md: edit there, or here and run cargo tangle stitch.
//! A graphics processor as the rest of the crate knows it: buffers, programs, launches, graphs.

// What the seam stands on
use super::refuse;
use crate::error::Error;
use crate::numerics::real::{Precision, Real};
use bytemuck::Pod;
use num_complex::Complex;
use std::{fmt, marker::PhantomData, sync::Arc};

// Machine behind the seam
/// What lies behind a [`Gpu`]: addresses, handles and bytes. Work is queued, and done in order.
pub(crate) trait Machine: Send + Sync {
    /// `cuda:0 (NVIDIA H200)`.
    fn name(&self) -> &str;
    /// Free memory of the device, in bytes.
    fn available_memory(&self) -> Result<u64, Error>;
    /// Bytes of shared memory that a block may have.
    fn shared_memory(&self) -> usize;
    // Memory of a machine
    /// The address of so many new bytes.
    fn allocate(&self, bytes: usize) -> Result<u64, Error>;
    /// Gives an allocation back.
    fn free(&self, address: u64);
    /// Fills with zeros.
    fn clear(&self, address: u64, bytes: usize) -> Result<(), Error>;
    /// Copies to the device.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error>;
    /// Copies to the host, when all work before is done.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error>;
    // Programs of a machine
    /// The handle of a compiled program; the same source and options are compiled once.
    fn load(&self, source: &Source, options: &[String]) -> Result<u64, Error>;
    /// The handle of a kernel of a program.
    fn kernel(&self, program: u64, name: &str) -> Result<u64, Error>;
    /// Queues a launch: blocks along three axes, threads in a block, bytes of shared memory, arguments.
    fn launch(&self, kernel: u64, shape: Shape, arguments: &mut [u64]) -> Result<(), Error>;
    /// The same for a kernel that waits by itself for the work before it, and may get ready earlier.
    fn launch_early(&self, kernel: u64, shape: Shape, arguments: &mut [u64]) -> Result<(), Error> {
        self.launch(kernel, shape, arguments)
    }
    /// Waits until all work is done.
    fn synchronise(&self) -> Result<(), Error>;
    // Recordings and time of a machine
    /// Starts to record.
    fn begin_recording(&self) -> Result<(), Error>;
    /// Ends the recording, and gives its handle.
    fn end_recording(&self) -> Result<u64, Error>;
    /// Queues all that was recorded.
    fn replay(&self, graph: u64) -> Result<(), Error>;
    /// Forgets a recording.
    fn forget_graph(&self, graph: u64);
    /// Milliseconds on the device between the start and the end of some work.
    fn milliseconds(&self, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error>;
    // Tuned operations of a machine
    /// A plan of `batch` inverse transforms in place, complex, length × length, exponent +2πi, not normalised.
    fn plan_fft(&self, length: usize, batch: usize, double: bool) -> Result<u64, Error>;
    /// Queues the transforms of a plan.
    fn transform(&self, plan: u64, address: u64) -> Result<(), Error>;
    /// Forgets a plan.
    fn forget_fft(&self, plan: u64);
    /// Queues y = A x for a matrix by rows, (rows, columns).
    fn multiply_matrix(
        &self,
        double: bool,
        matrix: u64,
        shape: (usize, usize),
        x: u64,
        y: u64,
    ) -> Result<(), Error>;
}

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

// Opened graphics processor
/// An opened graphics processor, with one queue of work.
#[derive(Clone)]
pub struct Gpu {
    machine: Arc<dyn Machine>,
}

// Print a device by its name
impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.name()).finish()
    }
}

impl Gpu {
    pub(super) fn new(machine: impl Machine + 'static) -> Self {
        Self { machine: Arc::new(machine) }
    }

    /// Its name, such as `cuda:0 (NVIDIA H200)`.
    pub fn name(&self) -> &str {
        self.machine.name()
    }

    // Refuse beyond the device's memory
    /// Free memory of the device, in bytes.
    ///
    /// # Errors
    /// `Cuda` where the device does not answer.
    pub fn available_memory(&self) -> Result<u64, Error> {
        self.machine.available_memory()
    }

    /// Bytes of shared memory that a block may have.
    pub fn shared_memory(&self) -> usize {
        self.machine.shared_memory()
    }

    /// Refuses `what`, which needs so many bytes of the device's memory, where fewer are free.
    ///
    /// # Errors
    /// `Memory`, with the device's name.
    pub fn refuse_beyond_memory(&self, needed: u64, what: &str) -> Result<(), Error> {
        refuse(needed, self.available_memory()?, || format!("{what} on {}", self.name()))
    }

    // Make buffers on the device
    /// Room for `len` numbers, all bytes zero.
    ///
    /// # Errors
    /// `Cuda` where the device has no such room.
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let buffer = self.room(len)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// The values, on the device.
    ///
    /// # Errors
    /// `Cuda` where the device has no such room.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, Error> {
        let buffer = self.room(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    fn room<T: Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let address = self.machine.allocate((len * size_of::<T>()).max(1))?;
        Ok(Buffer { gpu: self.clone(), address, len, values: PhantomData })
    }
}

// Numbers in the device's memory
/// Values in the memory of a device.
pub struct Buffer<T> {
    gpu: Gpu,
    address: u64,
    len: usize,
    values: PhantomData<fn() -> T>,
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.gpu.machine.free(self.address);
    }
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

    // Copy there and back
    /// Fills it with zeros.
    ///
    /// # Errors
    /// `Cuda` where the device fails, as for the other copies.
    pub fn clear(&self) -> Result<(), Error> {
        self.gpu.machine.clear(self.address, self.len * size_of::<T>())
    }

    /// Copies `values`, as many as it holds, to the device.
    pub fn write(&self, values: &[T]) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "a buffer is written as a whole");
        self.gpu.machine.write(self.address, bytemuck::cast_slice(values))
    }

    /// Copies the first `values.len()` of its values to the host, when all work before is done.
    pub fn read_into(&self, values: &mut [T]) -> Result<(), Error> {
        assert!(values.len() <= self.len, "a buffer holds what is read from it");
        self.gpu.machine.read(self.address, bytemuck::cast_slice_mut(values))
    }

    /// Its values.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        let mut values = vec![T::zeroed(); self.len];
        self.read_into(&mut values)?;
        Ok(values)
    }
}

// Programs and their kernels
/// A file of kernels, embedded in this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
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

/// A compiled source.
pub struct Program {
    machine: Arc<dyn Machine>,
    handle: u64,
}

/// A function that many threads of a device run at once.
pub struct Kernel {
    handle: u64,
    _machine: Arc<dyn Machine>,
}

// Compile a program and find kernels
impl Gpu {
    /// Compiles a source for numbers T and for sizes, which stand under the names that a kernel gives them; or finds it compiled.
    ///
    /// # Errors
    /// `Device` where the compiler is missing, `Cuda` where it refuses.
    pub fn program<T: Real>(
        &self,
        source: &Source,
        sizes: &[(&str, usize)],
    ) -> Result<Program, Error> {
        let handle = self.machine.load(source, &options::<T>(sizes))?;
        Ok(Program { machine: Arc::clone(&self.machine), handle })
    }
}

impl Program {
    /// The kernel of this name.
    ///
    /// # Errors
    /// `Cuda` where there is none.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let handle = self.machine.kernel(self.handle, name)?;
        Ok(Kernel { handle, _machine: Arc::clone(&self.machine) })
    }
}

// Arguments of a kernel
/// An argument of a kernel: the address of a buffer, an `int`, a `float` or a `double`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument(u64);

impl<T> From<&Buffer<T>> for Argument {
    fn from(buffer: &Buffer<T>) -> Self {
        Self(buffer.address)
    }
}

impl Argument {
    /// The address of element `k` of a buffer of `U`.
    pub fn offset<U>(self, k: usize) -> Self {
        Self(self.0 + (k * size_of::<U>()) as u64)
    }
}

impl From<usize> for Argument {
    fn from(number: usize) -> Self {
        assert!(number <= i32::MAX as usize, "{number} is no int of a kernel");
        Self(number as u64)
    }
}

impl From<f64> for Argument {
    fn from(number: f64) -> Self {
        Self(number.to_bits())
    }
}

impl From<f32> for Argument {
    fn from(number: f32) -> Self {
        Self(u64::from(number.to_bits()))
    }
}

// Launches and their recordings
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

/// Launches that were recorded, to be replayed together.
pub struct Graph {
    machine: Arc<dyn Machine>,
    handle: u64,
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.machine.forget_graph(self.handle);
    }
}

// Hand the arguments to a launch
/// Does a `launch` with its arguments, unless the grid is empty.
fn queue(
    shape: Shape,
    arguments: &[Argument],
    launch: impl FnOnce(&mut [u64]) -> Result<(), Error>,
) -> Result<(), Error> {
    if shape.grid.contains(&0) {
        return Ok(());
    }
    let mut arguments: Vec<u64> = arguments.iter().map(|argument| argument.0).collect();
    launch(&mut arguments)
}

// End a recording in any case
/// A recording that is ended when it is dropped.
struct Recording<'a>(Option<&'a Arc<dyn Machine>>);

impl Recording<'_> {
    fn end(mut self) -> Result<Graph, Error> {
        self.finish().unwrap_or_else(|| unreachable!("it is ended once"))
    }

    fn finish(&mut self) -> Option<Result<Graph, Error>> {
        let machine = Arc::clone(self.0.take()?);
        Some(machine.end_recording().map(|handle| Graph { machine, handle }))
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        drop(self.finish());
    }
}

// Launch, record and replay
impl Gpu {
    /// Queues a kernel. The arguments must be those that the kernel declares, and its buffers as long as it expects.
    ///
    /// # Errors
    /// `Cuda` where the device refuses; an empty grid is no launch, and no error.
    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), Error> {
        queue(shape, arguments, |arguments| self.machine.launch(kernel.handle, shape, arguments))
    }

    // Launch a kernel that waits by itself
    /// Queues a kernel that waits by itself, before it uses what earlier work has made; see [`Gpu::launch`].
    ///
    /// # Errors
    /// Those of [`Gpu::launch`].
    pub(crate) fn launch_early(
        &self,
        kernel: &Kernel,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), Error> {
        queue(shape, arguments, |arguments| {
            self.machine.launch_early(kernel.handle, shape, arguments)
        })
    }

    // Record work and replay it
    /// Records the launches and clears that `work` queues; nothing is done.
    ///
    /// # Errors
    /// Those of `work`, and `Cuda`.
    pub fn record(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        self.machine.begin_recording()?;
        let recording = Recording(Some(&self.machine));
        let (done, graph) = (work(), recording.end());
        done.and(graph)
    }

    /// Queues all that a graph holds.
    ///
    /// # Errors
    /// `Cuda` where the device refuses.
    pub fn replay(&self, graph: &Graph) -> Result<(), Error> {
        self.machine.replay(graph.handle)
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// `Cuda` where some of it failed.
    pub fn synchronise(&self) -> Result<(), Error> {
        self.machine.synchronise()
    }
}

// Operations of the maker's libraries
/// A plan of inverse Fourier transforms in two dimensions.
pub struct Fft<T> {
    machine: Arc<dyn Machine>,
    handle: u64,
    values: usize,
    precision: PhantomData<fn() -> T>,
}

impl<T> Drop for Fft<T> {
    fn drop(&mut self) {
        self.machine.forget_fft(self.handle);
    }
}

impl Gpu {
    // Plan and apply inverse transforms
    /// A plan of `batch` inverse transforms of length × length complex numbers, exponent +2πi, not normalised.
    ///
    /// # Errors
    /// `Device` where cuFFT is missing, `Cuda` where it refuses.
    pub fn inverse_fft<T: Real>(&self, length: usize, batch: usize) -> Result<Fft<T>, Error> {
        let handle = self.machine.plan_fft(length, batch, size_of::<T>() == 8)?;
        let (machine, values) = (Arc::clone(&self.machine), length * length * batch);
        Ok(Fft { machine, handle, values, precision: PhantomData })
    }

    /// Queues the transforms of a plan on `fields`, in place.
    ///
    /// # Errors
    /// `Cuda` where the device refuses.
    pub fn transform<T: Real>(
        &self,
        fft: &Fft<T>,
        fields: &Buffer<Complex<T>>,
    ) -> Result<(), Error> {
        assert!(fields.len >= fft.values, "a plan fits its fields");
        self.machine.transform(fft.handle, fields.address)
    }

    // Multiply a dense matrix on the device
    /// Queues y = A x for a matrix of `rows` × `columns`, by rows.
    ///
    /// # Errors
    /// `Device` where cuBLAS is missing, `Cuda` where it refuses.
    pub fn multiply_matrix<T: Real>(
        &self,
        matrix: &Buffer<T>,
        (rows, columns): (usize, usize),
        x: &Buffer<T>,
        y: &Buffer<T>,
    ) -> Result<(), Error> {
        let fits = (matrix.len, x.len, y.len) == (rows * columns, columns, rows);
        assert!(fits, "a matrix fits its vectors");
        let addresses = [matrix.address, x.address, y.address];
        let [matrix, x, y] = addresses;
        self.machine.multiply_matrix(size_of::<T>() == 8, matrix, (rows, columns), x, y)
    }
}

// Time on the device
impl Gpu {
    /// Mean time of some work on the device, in milliseconds, over so many repetitions queued one after the other.
    ///
    /// # Errors
    /// Those of `work`, and `Cuda`.
    pub fn milliseconds(
        &self,
        repetitions: usize,
        mut work: impl FnMut() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let mut all = || (0..repetitions).try_for_each(|_| work());
        Ok(self.machine.milliseconds(&mut all)? / repetitions as f64)
    }
}

// Machines for the tests
/// The emulated device and all CUDA devices of this machine; says on the standard error what there is not.
#[cfg(test)]
pub(crate) fn test_machines() -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    match super::emulator::Emulator::new() {
        Ok(emulator) => gpus.push(Gpu::new(emulator)),
        Err(reason) => eprintln!("skipped on the emulated device: {reason}"),
    }
    match super::cuda::open(super::Device::Cuda(None)) {
        Ok(devices) => gpus.extend(devices),
        Err(reason) => eprintln!("skipped on a graphics processor: {reason}"),
    }
    gpus
}

// Tests of the seam
#[cfg(test)]
mod tests {
    use super::*;

    /// y ← a x + b i in the precision of the option.
    const LINE: Source = Source {
        name: "line.cu",
        text: "extern \"C\" __global__ void line(const REAL *x, REAL *y, int n, REAL a, double b) {\n\
               int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
               if (i < n) y[i] = a * x[i] + (REAL)(b * i);\n}\n",
        headers: &[],
    };

    // Check copies, launches and recordings
    #[test]
    fn launches_run_in_order_and_recordings_wait() {
        for gpu in test_machines() {
            let x: Vec<f32> = (0..1000).map(|i| i as f32 * 0.5).collect();
            let (x_there, y_there) = (gpu.upload(&x).unwrap(), gpu.zeros::<f32>(1000).unwrap());
            assert_eq!(x_there.read().unwrap(), x);
            assert_eq!((y_there.len(), y_there.bytes(), y_there.is_empty()), (1000, 4000, false));
            let program = gpu.program::<f32>(&LINE, &[]).unwrap();
            assert!(program.kernel("circle").is_err());
            let line = program.kernel("line").unwrap();
            let queue = |n: usize| {
                let arguments = [&x_there, &y_there].map(Argument::from);
                let [x, y] = arguments;
                let arguments = [x, y, n.into(), 3f32.into(), 0.25f64.into()];
                gpu.launch(&line, Shape::over(n, 128, [1, 1]), &arguments)
            };
            // Check what was and what was not done
            let graph = gpu.record(|| queue(1000)).unwrap();
            assert_eq!(y_there.read().unwrap(), [0.0; 1000], "a recording does nothing");
            queue(0).unwrap();
            gpu.replay(&graph).unwrap();
            let expected: Vec<f32> =
                x.iter().zip(0..).map(|(x, i)| 3.0 * x + 0.25 * i as f32).collect();
            assert_eq!(y_there.read().unwrap(), expected);
            y_there.clear().unwrap();
            queue(999).unwrap();
            assert_eq!(y_there.read().unwrap()[997..], [expected[997], expected[998], 0.0]);
            let failed = gpu.record(|| Err(crate::error::Invalid::new("it", 1, "2").into()));
            assert!(failed.is_err() && gpu.synchronise().is_ok(), "the queue goes on");
            assert!(gpu.milliseconds(3, || queue(1000)).unwrap() > 0.0);
            assert!(gpu.available_memory().unwrap() > 1 << 20);
            let error = gpu.refuse_beyond_memory(u64::MAX, "it").unwrap_err().to_string();
            assert!(error.contains(gpu.name()), "{error}");
        }
    }

    // Check transforms and products
    #[test]
    fn transforms_and_products_are_those_of_their_sums() {
        for gpu in test_machines() {
            let length = 6;
            let value = |k: usize| Complex::new((k as f64 * 0.7).sin(), (k as f64 * 1.3).cos());
            let fields: Vec<Complex<f64>> = (0..2 * length * length).map(value).collect();
            let there = gpu.upload(&fields).unwrap();
            gpu.transform(&gpu.inverse_fft(length, 2).unwrap(), &there).unwrap();
            for (k, &transformed) in there.read().unwrap().iter().enumerate() {
                let (field, j, i) = (k / length.pow(2), k / length % length, k % length);
                let term = |l: usize| {
                    let cycles = ((l / length) * j + (l % length) * i) as f64 / length as f64;
                    let wave = Complex::cis(2.0 * std::f64::consts::PI * cycles);
                    fields[field * length.pow(2) + l] * wave
                };
                let sum: Complex<f64> = (0..length.pow(2)).map(term).sum();
                assert!((sum - transformed).norm() < 1e-12);
            }
            // Check the product with a matrix
            let a: Vec<f32> = (0..15).map(|k| (k * k % 7) as f32).collect();
            let matrix = gpu.upload(&a).unwrap();
            let (x, y) = (gpu.upload(&[1f32, -2.0, 3.0]).unwrap(), gpu.zeros::<f32>(5).unwrap());
            gpu.multiply_matrix(&matrix, (5, 3), &x, &y).unwrap();
            let expected: Vec<f32> =
                a.chunks(3).map(|row| row[0] - 2.0 * row[1] + 3.0 * row[2]).collect();
            assert_eq!(y.read().unwrap(), expected);
        }
    }
}
