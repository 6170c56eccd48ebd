// Tangled from book/src/plain-sum-plan-gpu.md: edit there, or here and run cargo tangle stitch.
//! Products with block Toeplitz matrices as plain sums, on a device.

// Imports of plain sums
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Gpu, Header, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::{Error, Invalid};
use crate::linear::toeplitz::gpu::lattices::{Directions, ProductMatrix, SHARED_BY_CHOICE, Sides};
use crate::numerics::real::Real;

const SOURCE: KernelSource = KernelSource {
    name: "plain_sum.cu",
    text: include_str!("../../../../kernels/linear/plain_sum.cu"),
    headers: &[REAL, LOOPS, WAITING],
};

// Kernels of the plain sum
kernels! {
    /// Kernels of the plain sum.
    struct PlainSumKernels in SOURCE {
        /// y = A x.
        convolve: Convolve<T> {
            x: [T], from_places: [[i32; 2]] as "int", taps: [T], terms: [i32],
            to_places: [[i32; 2]] as "int", y: [T],
        }
        /// y = A x + D x, with a diagonal D.
        convolve_with_diagonal: ConvolveWithDiagonal<T> {
            x: [T], from_places: [[i32; 2]] as "int", taps: [T], terms: [i32],
            to_places: [[i32; 2]] as "int", y: [T], noise: [T],
        }
    }
}

// Loops and waiting for other kernels
/// Loops unrolled by the compiler.
pub(crate) const LOOPS: Header =
    Header { name: "linear/loops.cuh", text: include_str!("../../../../kernels/linear/loops.cuh") };

/// Waiting for the work before.
pub(crate) const WAITING: Header = Header {
    name: "linear/waiting.cuh",
    text: include_str!("../../../../kernels/linear/waiting.cuh"),
};

/// Rows of a tile, its columns, and columns of inputs that a warp takes at a time.
const TALL: usize = 8;
const WIDE: usize = 4;
const SPLIT: usize = 8;

// Plain sum on a device
/// Products with a block Toeplitz matrix as plain sums, Eq. [polyphase](https://lenslet.github.io/lenslet/toeplitz-products.html#eq-polyphase).
pub(crate) struct PlainSum<T> {
    gpu: Gpu,
    taps: Buffer<T>,
    terms: Buffer<i32>,
    places: Sides<Buffer<[i32; 2]>>,
    directions: Directions<Direction<T>>,
}

/// What one direction has besides.
struct Direction<T> {
    kernels: PlainSumKernels<T>,
    shape: Shape,
}

impl<T: Real> PlainSum<T> {
    // Make a plain sum
    /// # Errors
    /// `Invalid` where the inputs do not fit into the shared memory of a block; what the device says.
    pub(crate) fn new(matrix: &ProductMatrix) -> Result<Self, Error> {
        let gpu = matrix.gpu.clone();
        let number = |&(tap, turned): &(usize, bool)| 2 * tap as i32 + i32::from(turned);
        let terms: Vec<i32> = matrix.terms.iter().map(number).collect();
        Ok(Self {
            taps: gpu.upload(&taps::<T>(matrix))?,
            terms: gpu.upload(&terms)?,
            places: matrix.places(1)?,
            directions: matrix
                .directions(|transposed| KernelCut::new(matrix, transposed).compile::<T>(&gpu))?,
            gpu,
        })
    }

    /// Whether all inputs of the matrix, and of its transpose, fit easily into the shared memory of a block.
    pub(crate) fn fits(matrix: &ProductMatrix) -> bool {
        let bytes = |transposed| KernelCut::new(matrix, transposed).shared(size_of::<T>());
        bytes(false).max(bytes(true)) <= SHARED_BY_CHOICE.min(matrix.gpu.shared_memory())
    }

    // Queue a plain sum
    /// Queues y = A x, or y = Aᵀ x; and adds D x, if there is a diagonal D.
    pub(crate) fn apply(
        &self,
        transposed: bool,
        [x, y]: [&Buffer<T>; 2],
        diagonal: Option<&Buffer<T>>,
    ) -> Result<(), Error> {
        let Direction { kernels, shape } = self.directions.direction(transposed);
        let Sides { from, to } = self.places.each_ref().turned(transposed);
        let [x, y, taps] = [x, y, &self.taps].map(|numbers| numbers.view(..));
        let (from_places, to_places, terms) = (from.view(..), to.view(..), self.terms.view(..));
        if let Some(diagonal) = diagonal {
            let noise = diagonal.view(..);
            let arguments =
                ConvolveWithDiagonal { x, from_places, taps, terms, to_places, y, noise };
            return self.gpu.launch_early(&kernels.convolve_with_diagonal, *shape, arguments);
        }
        let arguments = Convolve { x, from_places, taps, terms, to_places, y };
        self.gpu.launch_early(&kernels.convolve, *shape, arguments)
    }

    // Bytes of a plain sum
    /// Bytes that it keeps on the device.
    pub(crate) fn bytes(&self) -> u64 {
        let places = self.places.from.bytes() + self.places.to.bytes();
        self.taps.bytes() + self.terms.bytes() + places
    }
}

// Cut kernels into taps
/// Taps of all kernels by sublattices, (kernels, sublattices, N + M − 1, N + M − 1).
fn taps<T: Real>(matrix: &ProductMatrix) -> Vec<T> {
    let (shape, Sides { from, to }) = (&matrix.parts.shape, matrix.points);
    let lags = from + to - 1;
    let lag = |k: usize, residue| shape.lag((k + to) % lags, residue, lags);
    let mut taps = Vec::new();
    for kernel in &matrix.parts.kernels {
        for sublattice in 0..shape.step * shape.step {
            let [of_y, of_x] = [sublattice / shape.step, sublattice % shape.step];
            for y in (0..lags).map(|k| lag(k, of_y)) {
                let value = |x| Some(kernel[[y?, lag(x, of_x)?]]);
                taps.extend((0..lags).map(|x| T::of(value(x).unwrap_or(0.0))));
            }
        }
    }
    taps
}

// Sizes of the plain sum
/// What fixes the kernels of one direction.
#[derive(Debug, Clone, Copy)]
struct KernelCut {
    points: Sides<usize>,
    lattices: Sides<usize>,
    transposed: bool,
}

impl KernelCut {
    fn new(matrix: &ProductMatrix, transposed: bool) -> Self {
        let points = matrix.points.turned(transposed);
        Self { points, lattices: matrix.lattices().turned(transposed), transposed }
    }

    // Warps and memory of a plain sum
    /// Warps of a block: one for some columns of each input.
    fn warps(&self) -> usize {
        (self.lattices.from * self.points.from.div_ceil(SPLIT)).min(16)
    }

    /// Bytes that a block shares, for numbers of so many bytes.
    fn shared(&self, number: usize) -> usize {
        let spanned = self.points.from.next_multiple_of(SPLIT);
        let deep = self.points.from.next_multiple_of(TALL);
        let inputs = spanned * (deep + 16 / number);
        let windows = (deep + TALL - 1) * (spanned + WIDE - 1);
        let partial = TALL * WIDE * self.warps();
        number * (self.lattices.from * (inputs + windows) + partial)
    }

    // Compile the plain sum
    fn compile<T: Real>(&self, gpu: &Gpu) -> Result<Direction<T>, Error> {
        let Self { points, lattices, transposed } = *self;
        let (warps, shared) = (self.warps(), self.shared(size_of::<T>()));
        if shared > gpu.shared_memory() {
            let expected = "lattices that fit into the shared memory of a block";
            return Err(Invalid::new("points across", points.from, expected).into());
        }
        // Name the sizes of a plain sum
        let sizes = [
            ("FROM_POINTS", points.from),
            ("TO_POINTS", points.to),
            ("FROM_LATTICES", lattices.from),
            ("TO_LATTICES", lattices.to),
            ("TALL", TALL),
            ("WIDE", WIDE),
            ("SPLIT", SPLIT),
            ("WARPS", warps),
            ("TRANSPOSED", usize::from(transposed)),
        ];
        let kernels = PlainSumKernels::load(gpu, &sizes)?;
        let grid = [points.to.div_ceil(WIDE), points.to.div_ceil(TALL), lattices.to];
        Ok(Direction { kernels, shape: Shape { grid, block: 32 * warps, shared } })
    }
}
