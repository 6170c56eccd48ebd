// Tangled from book/src/transforms-plan-gpu.md: edit there, or here and run cargo tangle stitch.
//! Products with block Toeplitz matrices by Fourier transforms, on a device, in three passes.

// Imports of passes on a device
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, Header, KernelSource, Shape as Launch};
use crate::device::headers::{GENERATION, REAL};
use crate::error::{Error, Invalid};
use crate::linear::toeplitz::gpu::lattices::{Directions, ProductMatrix, SHARED_BY_CHOICE, Sides};
use crate::linear::toeplitz::gpu::plain_sum::{LOOPS, WAITING};
use crate::linear::toeplitz::gpu::short_transforms::{Radices, SHORT_TRANSFORMS, SharedLayout};
use crate::linear::toeplitz::{Parts, fields};
use crate::numerics::real::Real;
use ndarray::Array2;
use num_complex::Complex;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const SOURCE: KernelSource = KernelSource {
    name: "toeplitz.cu",
    text: include_str!("../../../../kernels/linear/toeplitz.cu"),
    headers: &[GENERATION, REAL, LOOPS, SHORT_TRANSFORMS, ROW_SPECTRA, WAITING],
};

kernels! {
    /// Kernels of a product by transforms.
    struct TransformKernels in SOURCE {
        /// Half spectra of the rows of vectors.
        transform_rows: TransformRows<T> {
            x: [T], places: [[i32; 2]], roots: [Complex<T>], lines: [Complex<T>], length: usize,
        }
        /// Transforms, mixes and transforms back the columns of half spectra, unless a system is `done`.
        mix_columns: MixColumns<T> {
            lines: [Complex<T>], spectra: [Complex<T>] as "Couple", tiles: [i32], roots: [Complex<T>],
            columns: [Complex<T>], done: (Option [f64]), every: usize,
        }
        /// Rows of vectors from their half spectra.
        restore_rows: RestoreRows<T> {
            columns: [Complex<T>], places: [[i32; 2]], roots: [Complex<T>], y: [T], length: usize,
        }
        /// Adds a diagonal times x to them.
        restore_rows_with_diagonal: RestoreRowsWithDiagonal<T> {
            columns: [Complex<T>], places: [[i32; 2]], roots: [Complex<T>], y: [T], length: usize,
            noise: [T], x: [T],
        }
    }
}

/// Rows of two lattices as complex rows.
pub(crate) const ROW_SPECTRA: Header = Header {
    name: "linear/row_spectra.cuh",
    text: include_str!("../../../../kernels/linear/row_spectra.cuh"),
};

// Choices that may be set
/// What is usually chosen by size, and may be set to be measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choices {
    pub(crate) radices: Option<Radices>,
    /// Rows in a block.
    pub(crate) rows: Option<usize>,
    /// Pairs of lattices that a block holds at a time.
    pub(crate) groups: Option<Sides<usize>>,
    /// Vectors that are multiplied side by side, one behind the other in the buffers.
    pub(crate) vectors: Option<usize>,
}

// Plan of the transforms of a direction
/// What fixes the kernels of one direction.
#[derive(Debug, Clone, Copy)]
struct Plan {
    // Sizes that a plan fixes
    /// Points across the lattices.
    points: Sides<usize>,
    /// Pairs of lattices.
    pairs: Sides<usize>,
    /// Pairs that a block holds at a time.
    groups: Sides<usize>,
    tiles: usize,
    /// Whether the tiles below the diagonal are the adjoints of those above.
    mirrored: bool,
    radices: Radices,
    /// Rows in a block.
    rows: usize,
    row_threads: usize,
    column_threads: usize,
    /// Bytes of a complex number.
    number: usize,
    /// Bytes of shared memory that a block may have.
    most: usize,
    /// Vectors side by side.
    vectors: usize,
}

impl Plan {
    // Plan the transforms of a matrix
    fn new(
        matrix: &ProductMatrix,
        tiles: &Tiles,
        choices: Choices,
        number: usize,
    ) -> Result<Self, Error> {
        // Choose the length of transforms
        let least = matrix.parts.shape.least_length();
        let radices = choices.radices.or_else(|| Radices::cheapest(least));
        let refused = || Invalid::new("length of transforms", least, "at most 4096 on a device");
        let pairs = tiles.pairs();
        let mut plan = Self {
            points: matrix.points,
            pairs,
            groups: pairs,
            tiles: tiles.different.len(),
            mirrored: tiles.are_mirrored(),
            radices: radices.ok_or_else(refused)?,
            rows: choices.rows.unwrap_or(32 / number),
            row_threads: 0,
            column_threads: 0,
            number,
            most: matrix.gpu.shared_memory(),
            vectors: choices.vectors.unwrap_or(1),
        };
        // Take fewer rows if they are long
        while plan.launch_rows().shared > plan.by_choice() && plan.rows > 1 {
            plan.rows /= 2;
        }
        plan.fitted(choices.groups)
    }

    // Launches of a plan
    fn layout(&self) -> SharedLayout {
        self.radices.layout(self.rows, self.number)
    }

    fn launch_rows(&self) -> Launch {
        let grid = [self.points.from.div_ceil(self.rows), self.pairs.from, self.vectors];
        let SharedLayout { work, whole, .. } = self.layout();
        Launch { grid, block: self.row_threads, shared: self.number * self.rows * (work + whole) }
    }

    fn launch_columns(&self) -> Launch {
        let Sides { from, to } = self.groups;
        let grid = [self.radices.length() / 2 + 1, self.pairs.to.div_ceil(to), self.vectors];
        let sums = if from < self.pairs.from { to * self.radices.length() } else { 0 };
        let shared = self.number * 2 * (2 * from.max(to) * self.layout().work + sums);
        Launch { grid, block: self.column_threads, shared }
    }

    fn launch_rows_back(&self, diagonal: bool) -> Launch {
        let grid = [self.points.to.div_ceil(self.rows), self.pairs.to, self.vectors];
        let point = size_of::<[i32; 2]>() + if diagonal { self.number } else { 0 };
        let shared = self.rows * (self.number * self.layout().work + point * self.points.to);
        Launch { grid, block: self.row_threads, shared }
    }

    // Sizes that the kernels need
    fn sizes(&self) -> Vec<(&'static str, usize)> {
        let sizes = [
            ("FROM_POINTS", self.points.from),
            ("TO_POINTS", self.points.to),
            ("FROM_PAIRS", self.pairs.from),
            ("TO_PAIRS", self.pairs.to),
            ("FROM_GROUP", self.groups.from),
            ("TO_GROUP", self.groups.to),
            ("ROWS", self.rows),
            ("TILES", self.tiles),
            ("MIRRORED", usize::from(self.mirrored)),
            ("ROW_THREADS", self.row_threads),
            ("COLUMN_THREADS", self.column_threads),
        ];
        [&self.radices.sizes()[..], &sizes].concat()
    }

    // Fit groups and threads to a device
    /// Bytes of shared memory that a block takes where it has a choice.
    fn by_choice(&self) -> usize {
        SHARED_BY_CHOICE.min(self.most)
    }

    fn fitted(mut self, groups: Option<Sides<usize>>) -> Result<Self, Error> {
        self.groups = groups.unwrap_or(self.pairs);
        while self.launch_columns().shared > self.by_choice() {
            let Sides { from, to } = &mut self.groups;
            let larger = if *to > *from { to } else { from };
            if *larger == 1 {
                break;
            }
            *larger = larger.div_ceil(2);
        }
        // Refuse launches beyond the shared memory
        let launches = [self.launch_rows(), self.launch_columns(), self.launch_rows_back(true)];
        if launches.iter().any(|launch| launch.shared > self.most) {
            let expected = "transforms that fit into the shared memory of a block";
            let length = self.radices.length();
            return Err(Invalid::new("length of transforms", length, expected).into());
        }
        // Count the threads of a plan
        let length = self.radices.length();
        self.mirrored &= self.groups == self.pairs && length <= 512;
        let parts = (512 / length).min(3);
        let tasks = length * if self.mirrored { parts } else { self.groups.to };
        let mixing = tasks.div_ceil(tasks.div_ceil(512)).next_multiple_of(32);
        let moving = self.radices.threads(2 * self.groups.from.max(self.groups.to));
        self.column_threads = mixing.max(moving);
        self.mirrored &= self.column_threads >= length;
        self.row_threads = self.radices.threads(self.rows);
        Ok(self)
    }

    // Plan the transpose
    /// The plan of the transpose.
    fn turned(&self) -> Result<Self, Error> {
        let [points, pairs] = [self.points, self.pairs].map(|sides| sides.turned(true));
        Self { points, pairs, mirrored: false, ..*self }.fitted(None)
    }
}

// Tiles of different spectra
/// A spectrum, and whether it is conjugate; none where there is no lattice.
type SpectrumEntry = Option<(usize, bool)>;

/// The tiles of a matrix.
struct Tiles {
    different: Vec<[SpectrumEntry; 4]>,
    /// Which stands where, (pairs of outputs, pairs of inputs): twice its number, and 1 if adjoint.
    which: Array2<i32>,
}

impl Tiles {
    // Find the different tiles
    fn new(terms: &Array2<(usize, bool)>) -> Self {
        let (mut known, mut different) = (HashMap::new(), Vec::new());
        let [rows, columns] = [terms.nrows(), terms.ncols()].map(|lattices| lattices.div_ceil(2));
        let conjugate =
            |entry: SpectrumEntry| entry.map(|(spectrum, conjugate)| (spectrum, !conjugate));
        let which = Array2::from_shape_fn((rows, columns), |(p, q)| {
            let tile = [(0, 0), (0, 1), (1, 0), (1, 1)]
                .map(|(a, b)| terms.get((2 * p + a, 2 * q + b)).copied());
            let adjoint = [tile[0], tile[2], tile[1], tile[3]].map(conjugate);
            let index = known.get(&tile).map(|&k| 2 * k);
            index.or_else(|| known.get(&adjoint).map(|&k| 2 * k + 1)).unwrap_or_else(|| {
                known.insert(tile, different.len() as i32);
                different.push(tile);
                2 * (different.len() as i32 - 1)
            })
        });
        Self { different, which }
    }

    // Look at tiles and their mirror images
    /// Pairs of lattices on both sides.
    fn pairs(&self) -> Sides<usize> {
        Sides { from: self.which.ncols(), to: self.which.nrows() }
    }

    /// Whether there are several pairs, and the tiles below the diagonal are the adjoints of those above.
    fn are_mirrored(&self) -> bool {
        let which = &self.which;
        let mirrors = |((p, q), &tile): ((usize, usize), &i32)| {
            p > q || (tile & 1 == 0 && (p == q || which[[q, p]] == tile ^ 1))
        };
        let sums_fit = (2..=8).contains(&which.nrows());
        which.is_square() && sums_fit && which.indexed_iter().all(mirrors)
    }

    /// The tiles of the transpose.
    fn turned(&self) -> Array2<i32> {
        self.which.t().mapv(|tile| tile ^ 1)
    }
}

// Interleave the spectra of tiles
/// Half of the spectra of tiles, (F/2 + 1, tiles, 2, F, 2).
fn spectra<T: Real>(parts: &Parts, tiles: &Tiles, length: usize) -> Vec<Complex<T>> {
    let fields = fields(&parts.kernels, &parts.shape, length);
    let of_kx = 4 * tiles.different.len() * length;
    let zero = Complex::new(T::of(0.0), T::of(0.0));
    let mut spectra = vec![zero; (length / 2 + 1) * of_kx];
    spectra.par_chunks_mut(of_kx).enumerate().for_each(|(kx, spectra)| {
        for (tile, spectra) in tiles.different.iter().zip(spectra.chunks_mut(4 * length)) {
            for (k, value) in spectra.iter_mut().enumerate() {
                let (row, ky, column) = (k / (2 * length), k / 2 % length, k % 2);
                if let Some((spectrum, conjugate)) = tile[2 * row + column] {
                    let z = 0.5 * fields[spectrum][kx * length + ky];
                    let im = if conjugate { -z.im } else { z.im };
                    *value = Complex::new(T::of(z.re), T::of(im));
                }
            }
        }
    });
    spectra
}

// Product in three passes
/// Products with a block Toeplitz matrix by transforms; Eqs. [two real rows](https://lenslet.github.io/lenslet/transforms-gpu.html#eq-two-real-rows) and [three radices](https://lenslet.github.io/lenslet/short-transforms.html#eq-three-radices).
pub(crate) struct Passes<T> {
    gpu: Gpu,
    spectra: Buffer<Complex<T>>,
    roots: Buffer<Complex<T>>,
    places: Sides<Buffer<[i32; 2]>>,
    directions: Directions<TransformDirection<T>>,
}

impl<T: Real> Passes<T> {
    // Make a product by transforms
    /// # Errors
    /// `Invalid` where the transforms are too long for a device; what the device says.
    pub(crate) fn new(matrix: &ProductMatrix, choices: Choices) -> Result<Self, Error> {
        let (gpu, tiles) = (matrix.gpu.clone(), Tiles::new(&matrix.terms));
        let plan = Plan::new(matrix, &tiles, choices, 2 * size_of::<T>())?;
        let spectra = spectra::<T>(matrix.parts, &tiles, plan.radices.length());
        Ok(Self {
            spectra: gpu.upload(&spectra)?,
            roots: gpu.upload(&plan.radices.roots::<T>())?,
            places: matrix.places(plan.rows)?,
            directions: matrix.directions(|transposed| match transposed {
                false => TransformDirection::new(&gpu, plan, &tiles.which),
                true => TransformDirection::new(&gpu, plan.turned()?, &tiles.turned()),
            })?,
            gpu,
        })
    }

    // Queue a product by transforms
    /// Queues y = A x, or y = Aᵀ x; and adds D x, if there is a diagonal D.
    pub(crate) fn apply(
        &self,
        transposed: bool,
        [x, y]: [&Buffer<T>; 2],
        diagonal: Option<&Buffer<T>>,
    ) -> Result<(), Error> {
        self.transform_rows(transposed, x)?;
        self.mix_columns(transposed, (None, 0))?;
        self.restore_rows(transposed, y, diagonal.map(|diagonal| [diagonal, x]))
    }

    fn places(&self, transposed: bool) -> Sides<&Buffer<[i32; 2]>> {
        self.places.each_ref().turned(transposed)
    }

    // Queue each of the passes
    fn transform_rows(&self, transposed: bool, x: &Buffer<T>) -> Result<(), Error> {
        let (direction, places) = (self.directions.direction(transposed), self.places(transposed));
        let arguments = TransformRows {
            x: x.view(..),
            places: places.from.view(..),
            roots: self.roots.view(..),
            lines: direction.lines.view(..),
            length: x.len() / direction.plan.vectors,
        };
        self.gpu.launch_early(
            &direction.kernels.transform_rows,
            direction.plan.launch_rows(),
            arguments,
        )
    }

    /// Queues the mixing, unless a number of `done` is not zero: that of a system, `every` so many.
    fn mix_columns(
        &self,
        transposed: bool,
        (done, every): (Option<BufferView<f64>>, usize),
    ) -> Result<(), Error> {
        let direction = self.directions.direction(transposed);
        let arguments = MixColumns {
            lines: direction.lines.view(..),
            spectra: self.spectra.view(..),
            tiles: direction.tiles.view(..),
            roots: self.roots.view(..),
            columns: direction.columns.view(..),
            done,
            every,
        };
        self.gpu.launch_early(
            &direction.kernels.mix_columns,
            direction.plan.launch_columns(),
            arguments,
        )
    }

    // Queue the pass back to vectors
    fn restore_rows(
        &self,
        transposed: bool,
        y: &Buffer<T>,
        added: Option<[&Buffer<T>; 2]>,
    ) -> Result<(), Error> {
        let (direction, places) = (self.directions.direction(transposed), self.places(transposed));
        let [columns, roots] = [&direction.columns, &self.roots].map(|numbers| numbers.view(..));
        let (places, length, y) =
            (places.to.view(..), y.len() / direction.plan.vectors, y.view(..));
        let (kernels, shape) =
            (&direction.kernels, direction.plan.launch_rows_back(added.is_some()));
        if let Some(added) = added {
            let [noise, x] = added.map(|numbers| numbers.view(..));
            let arguments = RestoreRowsWithDiagonal { columns, places, roots, y, length, noise, x };
            return self.gpu.launch_early(&kernels.restore_rows_with_diagonal, shape, arguments);
        }
        let arguments = RestoreRows { columns, places, roots, y, length };
        self.gpu.launch_early(&kernels.restore_rows, shape, arguments)
    }

    // Weigh a product by transforms
    /// Bytes that it keeps on the device, with its scratch.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes_of = |direction: &TransformDirection<T>| {
            direction.tiles.bytes() + direction.lines.bytes() + direction.columns.bytes()
        };
        let places = self.places.from.bytes() + self.places.to.bytes();
        let shared = self.spectra.bytes() + self.roots.bytes() + places;
        shared + self.directions.iter().map(bytes_of).sum::<u64>()
    }
}

// One direction of the passes
/// What one direction has besides.
struct TransformDirection<T> {
    plan: Plan,
    tiles: Buffer<i32>,
    /// Half spectra of rows before the mixing, and after it.
    lines: Buffer<Complex<T>>,
    columns: Buffer<Complex<T>>,
    kernels: TransformKernels<T>,
}

impl<T: Real> TransformDirection<T> {
    // Make one direction of the passes
    fn new(gpu: &Gpu, plan: Plan, tiles: &Array2<i32>) -> Result<Self, Error> {
        let half_spectra = |points: usize, pairs| {
            let rows = points.next_multiple_of(plan.rows);
            gpu.zeros(plan.vectors * (plan.radices.length() / 2 + 1) * 2 * pairs * rows)
        };
        Ok(Self {
            plan,
            tiles: gpu.upload(&tiles.iter().copied().collect::<Vec<_>>())?,
            lines: half_spectra(plan.points.from, plan.pairs.from)?,
            columns: half_spectra(plan.points.to, plan.pairs.to)?,
            kernels: TransformKernels::load(gpu, &plan.sizes())?,
        })
    }
}

// What a solver puts around the columns
/// A product by transforms, for a solver that puts kernels of its own around the columns.
pub(crate) struct Around<T>(Arc<Passes<T>>);

impl<T: Real> Around<T> {
    /// None where the matrix is not symmetric.
    pub(crate) fn new(passes: &Arc<Passes<T>>) -> Option<Self> {
        passes.directions.is_symmetric().then(|| Self(Arc::clone(passes)))
    }

    fn plan(&self) -> &Plan {
        &self.0.directions.direction(false).plan
    }

    // Sizes for kernels around the columns
    /// Whether the kernels for the rows of one do for the other, and their numbers have the same places.
    pub(crate) fn is_like(&self, other: &Self) -> Result<bool, Error> {
        let sizes = |plan: &Plan| (plan.points, plan.pairs, plan.radices, plan.rows, plan.vectors);
        let places = |around: &Self| around.0.places.from.read();
        Ok(sizes(self.plan()) == sizes(other.plan()) && places(self)? == places(other)?)
    }

    /// Sizes for a program that is compiled together with the transforms, with so many threads in a block of rows.
    pub(crate) fn sizes(&self, row_threads: usize) -> Vec<(&'static str, usize)> {
        Plan { row_threads, ..*self.plan() }.sizes()
    }

    /// Blocks of rows, and the numbers of one of two lattices in a block.
    pub(crate) fn blocks(&self) -> ([usize; 3], usize) {
        (self.plan().launch_rows().grid, self.plan().rows * self.plan().points.from)
    }

    /// Bytes of shared memory of a block of rows, with the numbers of two lattices and their places.
    pub(crate) fn shared(&self) -> usize {
        let number = self.plan().number + size_of::<[i32; 2]>();
        self.plan().launch_rows().shared + self.blocks().1 * number
    }

    // Lend buffers and launches of a product
    /// Places of the numbers, and roots of unity.
    pub(crate) fn tables(&self) -> (BufferView<'_, [i32; 2]>, BufferView<'_, Complex<T>>) {
        (self.0.places.from.view(..), self.0.roots.view(..))
    }

    /// Where the rows are left for the columns, and the columns for the rows.
    pub(crate) fn lines_and_columns(&self) -> [BufferView<'_, Complex<T>>; 2] {
        let direction = self.0.directions.direction(false);
        [&direction.lines, &direction.columns].map(|half_spectra| half_spectra.view(..))
    }

    /// Queues the first pass of the product with `x`.
    pub(crate) fn transform_rows(&self, x: &Buffer<T>) -> Result<(), Error> {
        self.0.transform_rows(false, x)
    }

    /// Queues the second pass, for vectors of which the number that stands `every` so many from the first of `done` is 0.
    pub(crate) fn mix_columns(&self, done: BufferView<f64>, every: usize) -> Result<(), Error> {
        self.0.mix_columns(false, (Some(done), every))
    }
}

// Tests of tiles and plans
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::estimation::circulant::parts_of;
    use crate::linear::toeplitz::tests::{covariance, kernels, masks};

    #[test]
    fn tiles_of_stars_are_few_and_mirrored() {
        for (stars, different) in [(1, 1), (3, 4), (6, 16), (9, 37)] {
            let (covariance, valid) = (covariance(stars, 2), masks(stars, 2, 1.0, 5));
            let tiles = Tiles::new(&Parts::slopes(&covariance, &valid).unwrap().terms());
            assert_eq!(tiles.different.len(), different);
            assert_eq!(tiles.are_mirrored(), stars == 3 || stars == 6);
        }
        let (kernels, valid) = (vec![Array2::zeros((3, 3)); 21], masks(3, 2, 1.0, 5));
        let tiles = Tiles::new(&parts_of(&kernels, &valid).unwrap().terms());
        assert_eq!((tiles.different.len(), tiles.are_mirrored()), (6, true));
    }

    // Leave out what is not there
    #[test]
    fn tiles_have_empty_entries() {
        let (points, valid) = (masks(3, 3, 1.0, 2), masks(2, 2, 1.0, 3));
        let kernels = kernels(3, 2, 4, 1);
        let parts = Parts::wavefront_slope(kernels.view(), 1, &points, &valid).unwrap();
        let tiles = Tiles::new(&parts.terms());
        assert_eq!((tiles.pairs(), tiles.are_mirrored()), (Sides { from: 2, to: 2 }, false));
        assert_eq!(tiles.different[3], [Some((10, false)), Some((11, false)), None, None]);
    }

    // Fit a plan to small devices
    #[test]
    fn plans_fit_into_the_shared_memory_of_a_device() {
        let (covariance, valid) = (covariance(6, 80), masks(6, 80, 1.0, 5));
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        let gpu = &test_backends()[0];
        let matrix = ProductMatrix::new(gpu, &parts, true, None);
        let tiles = Tiles::new(&matrix.terms);
        let plan = Plan::new(&matrix, &tiles, Choices::default(), 16).unwrap();
        for (kib, groups, mirrored) in [(227, 6, true), (96, 6, true), (64, 3, false)] {
            let plan = Plan { most: kib << 10, mirrored: true, ..plan }.fitted(None).unwrap();
            let launches = [plan.launch_rows(), plan.launch_columns(), plan.launch_rows_back(true)];
            assert!(launches.iter().all(|launch| launch.shared <= kib << 10), "{kib} KiB");
            assert_eq!((plan.groups.to, plan.mirrored), (groups, mirrored), "{kib} KiB");
        }
        let refused = Plan { most: 8 << 10, ..plan }.fitted(None).unwrap_err().to_string();
        assert!(refused.starts_with("length of transforms = 160"), "{refused}");
    }
}
