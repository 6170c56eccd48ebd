// Tangled from book/src/toeplitz-gpu.md: edit there, or here and run cargo tangle stitch.
//! Products with block Toeplitz matrices on a graphics processor.

use crate::circulant::{Group, inverse_kernels, parts_of, places};
use crate::device::gpu::{Argument, Buffer, Gpu, Kernel, Number, Shape as Launch, Source};
use crate::device_operator::{DeviceOperator, check_lengths};
use crate::error::{Error, Invalid};
use crate::slope::SlopeCovariance;
use crate::toeplitz::{Block, Parts, fields};
use ndarray::{Array2, ArrayView2, ArrayView5};
use num_complex::Complex;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const TRANSFORMS: Source =
    Source { name: "toeplitz.cu", text: include_str!("../kernels/toeplitz.cu") };
const CONVOLUTION: Source =
    Source { name: "toeplitz_direct.cu", text: include_str!("../kernels/toeplitz_direct.cu") };

/// Bytes of shared memory that a block may have on any device since Ampere.
const SHARED: usize = 96 << 10;

/// Products with more multiplications than this are made by transforms.
const MOST_DIRECT: usize = 30_000_000;

/// What is usually chosen by size, and may be set to be measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuning {
    pub(crate) direct: Option<bool>,
    pub(crate) radices: Option<[usize; 3]>,
    pub(crate) rows: Option<usize>,
    pub(crate) groups: Option<[usize; 2]>,
    pub(crate) column_threads: Option<usize>,
}

/// A block matrix of two-level Toeplitz blocks on a device.
pub struct BlockToeplitzGpu<T> {
    gpu: Gpu,
    forward: Pass<T>,
    /// `None` where the matrix is symmetric.
    backward: Option<Pass<T>>,
    diagonal: Option<Buffer<T>>,
    rows: usize,
    columns: usize,
}

impl<T: Number> BlockToeplitzGpu<T> {
    /// The operator of [`BlockToeplitz::new`](crate::toeplitz::BlockToeplitz::new), on a device.
    ///
    /// # Errors
    /// `Invalid` as there, and where the transforms would be too long; what the device says.
    pub fn new(
        gpu: &Gpu,
        kernels: &[ArrayView2<f64>],
        blocks: &Array2<Block>,
        oversampling: usize,
        outputs: &[Array2<bool>],
        inputs: &[Array2<bool>],
    ) -> Result<Self, Error> {
        let (kernels, outputs, inputs) = (kernels.to_vec(), outputs.to_vec(), inputs.to_vec());
        let parts = Parts::new(kernels, blocks.clone(), oversampling, outputs, inputs)?;
        Self::of(gpu, &parts, false, Tuning::default())
    }

    /// The covariance matrix of the slopes of valid lenslets, rad², as
    /// [`BlockToeplitz::slopes`](crate::toeplitz::BlockToeplitz::slopes).
    ///
    /// # Errors
    /// As in [`BlockToeplitzGpu::new`].
    pub fn slopes(
        gpu: &Gpu,
        covariance: &SlopeCovariance,
        valid: &[Array2<bool>],
    ) -> Result<Self, Error> {
        Self::of(gpu, &Parts::slopes(covariance, valid)?, true, Tuning::default())
    }

    /// The matrix that takes slopes to wavefront points, as
    /// [`BlockToeplitz::wavefront_slope`](crate::toeplitz::BlockToeplitz::wavefront_slope).
    ///
    /// # Errors
    /// As in [`BlockToeplitzGpu::new`].
    pub fn wavefront_slope(
        gpu: &Gpu,
        kernels: ArrayView5<f64>,
        oversampling: usize,
        points: &[Array2<bool>],
        valid: &[Array2<bool>],
    ) -> Result<Self, Error> {
        let parts = Parts::wavefront_slope(kernels, oversampling, points, valid)?;
        Self::of(gpu, &parts, false, Tuning::default())
    }

    pub(crate) fn of(
        gpu: &Gpu,
        parts: &Parts,
        symmetric: bool,
        tuning: Tuning,
    ) -> Result<Self, Error> {
        let [rows, columns] = [&parts.outputs, &parts.inputs].map(|masks| count(masks));
        let (forward, backward) = passes(gpu, parts, symmetric, tuning, None)?;
        Ok(Self { gpu: gpu.clone(), forward, backward, diagonal: None, rows, columns })
    }

    /// The same with these elements added on the diagonal, such as the variance of noise, in one go.
    ///
    /// # Errors
    /// `Invalid` where the matrix is not square, or the elements are not as many as its rows.
    pub fn with_diagonal(mut self, elements: &[f64]) -> Result<Self, Error> {
        if (self.rows, self.columns) != (elements.len(), elements.len()) {
            let expected = format!("{}, and a square matrix", self.rows);
            return Err(Invalid::new("elements of a diagonal", elements.len(), expected).into());
        }
        let elements: Vec<T> = elements.iter().map(|&element| T::of(element)).collect();
        self.diagonal = Some(self.gpu.upload(&elements)?);
        Ok(self)
    }

    /// Launches of one product.
    pub(crate) fn stages(&self) -> usize {
        self.forward.stages()
    }

    /// One launch of a product.
    pub(crate) fn stage(&self, k: usize, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.forward.stage(&self.gpu, k, x, y, self.diagonal.as_ref())
    }

    /// How it's done.
    pub(crate) fn describe(&self) -> String {
        match &self.forward.form {
            Form::Direct(direct) => format!("direct, {:?}", direct.shape),
            Form::Transformed(passes) => format!("{:?}", passes.plan),
        }
    }
}

fn count(masks: &[Array2<bool>]) -> usize {
    masks.iter().flatten().filter(|&&used| used).count()
}

impl<T: Number> DeviceOperator<T> for BlockToeplitzGpu<T> {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.rows, self.columns))?;
        self.forward.run(&self.gpu, x, y, self.diagonal.as_ref())
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.columns, self.rows))?;
        let backward = self.backward.as_ref().unwrap_or(&self.forward);
        backward.run(&self.gpu, x, y, self.diagonal.as_ref())
    }

    fn bytes(&self) -> u64 {
        let passes = [Some(&self.forward), self.backward.as_ref()].into_iter().flatten();
        let scratch: u64 = passes.map(|pass| pass.scratch()).sum();
        scratch + self.forward.kept() + self.diagonal.as_ref().map_or(0, |elements| elements.bytes())
    }
}

/// Products in one direction.
struct Pass<T> {
    from: Arc<Buffer<[i32; 2]>>,
    to: Arc<Buffer<[i32; 2]>>,
    form: Form<T>,
}

enum Form<T> {
    Direct(Direct<T>),
    Transformed(Transformed<T>),
}

struct Direct<T> {
    taps: Arc<Buffer<T>>,
    terms: Arc<Buffer<i32>>,
    /// Without and with a diagonal.
    kernels: [Kernel; 2],
    shape: Launch,
}

struct Transformed<T> {
    spectra: Arc<Buffer<Complex<T>>>,
    roots: Arc<Buffer<Complex<T>>>,
    tiles: Buffer<i32>,
    lines: Buffer<Complex<T>>,
    columns: Buffer<Complex<T>>,
    rows: Kernel,
    mix: Kernel,
    /// Without and with a diagonal.
    restore: [Kernel; 2],
    plan: Plan,
}

impl<T: Number> Pass<T> {
    fn stages(&self) -> usize {
        match &self.form {
            Form::Direct(_) => 1,
            Form::Transformed(_) => 3,
        }
    }

    fn run(
        &self,
        gpu: &Gpu,
        x: &Buffer<T>,
        y: &Buffer<T>,
        diagonal: Option<&Buffer<T>>,
    ) -> Result<(), Error> {
        (0..self.stages()).try_for_each(|k| self.stage(gpu, k, x, y, diagonal))
    }

    fn stage(
        &self,
        gpu: &Gpu,
        k: usize,
        x: &Buffer<T>,
        y: &Buffer<T>,
        diagonal: Option<&Buffer<T>>,
    ) -> Result<(), Error> {
        let [x, y] = [x, y].map(Argument::from);
        let [from, to] = [&self.from, &self.to].map(|places| Argument::from(&**places));
        let added = usize::from(diagonal.is_some());
        match &self.form {
            Form::Direct(Direct { taps, terms, kernels, shape }) => {
                let mut arguments = vec![x, from, (&**taps).into(), (&**terms).into(), to, y];
                arguments.extend(diagonal.map(Argument::from));
                gpu.launch(&kernels[added], *shape, &arguments)
            }
            Form::Transformed(pass) => {
                let roots = Argument::from(&*pass.roots);
                let [lines, columns] = [&pass.lines, &pass.columns].map(Argument::from);
                match k {
                    0 => gpu.launch(&pass.rows, pass.plan.launch_rows(), &[x, from, roots, lines]),
                    1 => {
                        let (spectra, tiles) = ((&*pass.spectra).into(), (&pass.tiles).into());
                        let arguments = [lines, spectra, tiles, roots, columns];
                        gpu.launch(&pass.mix, pass.plan.launch_columns(), &arguments)
                    }
                    _ => {
                        let mut arguments = vec![columns, to, roots, y];
                        arguments.extend(diagonal.map(Argument::from));
                        arguments.extend(diagonal.map(|_| x));
                        let shape = pass.plan.launch_rows_back(diagonal.is_some());
                        gpu.launch(&pass.restore[added], shape, &arguments)
                    }
                }
            }
        }
    }

    /// Bytes that both directions share.
    fn kept(&self) -> u64 {
        let of_form = match &self.form {
            Form::Direct(direct) => direct.taps.bytes() + direct.terms.bytes(),
            Form::Transformed(pass) => pass.spectra.bytes() + pass.roots.bytes(),
        };
        of_form + self.from.bytes() + self.to.bytes()
    }

    /// Bytes of its own.
    fn scratch(&self) -> u64 {
        match &self.form {
            Form::Direct(_) => 0,
            Form::Transformed(pass) => {
                pass.tiles.bytes() + pass.lines.bytes() + pass.columns.bytes()
            }
        }
    }
}

/// What fixes the kernels of one direction.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Points across the lattices of inputs and of outputs.
    points: [usize; 2],
    /// Pairs of lattices.
    pairs: [usize; 2],
    /// Pairs that a block holds at a time.
    groups: [usize; 2],
    tiles: usize,
    radices: [usize; 3],
    /// Rows in a block.
    rows: usize,
    row_threads: usize,
    column_threads: usize,
    /// Bytes of a complex number.
    number: usize,
}

/// The next number from `least` that leaves the rest `residue` by `modulus`.
fn up_to(least: usize, residue: usize, modulus: usize) -> usize {
    least + (residue + modulus - least % modulus) % modulus
}

impl Plan {
    fn length(&self) -> usize {
        self.radices.iter().product()
    }

    fn banks(&self) -> usize {
        128 / self.number
    }

    /// Complex numbers that a transform works in.
    fn work(&self) -> usize {
        let [first, second, third] = self.radices;
        let run = if third == 1 { 1 } else { third | 1 };
        let pitch =
            if third == 1 { second | 1 } else { up_to(second * run, run % self.banks(), self.banks()) };
        up_to(first * pitch, self.rows % self.banks(), self.banks())
    }

    /// Complex numbers from row to row of whole transforms.
    fn whole(&self) -> usize {
        up_to(self.length(), self.rows % self.banks(), self.banks())
    }

    /// Threads that a number of transforms keeps busy.
    fn threads(&self, transforms: usize) -> usize {
        let [first, second, third] = self.radices;
        transforms * (second * third).max(first * third).max(first * second)
    }

    fn shared_by_columns(&self) -> usize {
        let most = 2 * self.groups[0].max(self.groups[1]);
        let sums =
            if self.groups[0] < self.pairs[0] { 2 * self.groups[1] * self.length() } else { 0 };
        self.number * (2 * most * self.work() + sums)
    }

    fn shared_by_rows(&self) -> usize {
        self.number * self.rows * (self.work() + self.whole())
    }

    fn launch_rows(&self) -> Launch {
        let grid = [self.points[0].div_ceil(self.rows), self.pairs[0], 1];
        Launch { grid, block: self.row_threads, shared: self.shared_by_rows() }
    }

    fn launch_columns(&self) -> Launch {
        let grid = [self.length() / 2 + 1, self.pairs[1].div_ceil(self.groups[1]), 1];
        Launch { grid, block: self.column_threads, shared: self.shared_by_columns() }
    }

    fn launch_rows_back(&self, diagonal: bool) -> Launch {
        let grid = [self.points[1].div_ceil(self.rows), self.pairs[1], 1];
        let point = 8 + if diagonal { self.number } else { 0 };
        let shared = self.rows * (self.number * self.work() + point * self.points[1]);
        Launch { grid, block: self.row_threads, shared }
    }

    /// Sizes as the kernels' source names them.
    fn options(&self) -> Vec<String> {
        let [r1, r2, r3] = self.radices;
        let sizes = [
            ("R1", r1),
            ("R2", r2),
            ("R3", r3),
            ("ROWS", self.rows),
            ("FROM_POINTS", self.points[0]),
            ("TO_POINTS", self.points[1]),
            ("FROM_PAIRS", self.pairs[0]),
            ("TO_PAIRS", self.pairs[1]),
            ("FROM_GROUP", self.groups[0]),
            ("TO_GROUP", self.groups[1]),
            ("TILES", self.tiles),
            ("ROW_THREADS", self.row_threads),
            ("COLUMN_THREADS", self.column_threads),
        ];
        sizes.into_iter().map(|(name, size)| format!("-D{name}={size}")).collect()
    }

    /// The plan of the transpose.
    fn turned(&self) -> Result<Self, Error> {
        let [points, pairs] = [self.points, self.pairs].map(|[from, to]| [to, from]);
        Self { points, pairs, ..*self }.fitted(Tuning::default())
    }

    /// Fits groups and threads to the memory that a block may share.
    fn fitted(mut self, tuning: Tuning) -> Result<Self, Error> {
        self.groups = tuning.groups.unwrap_or(self.pairs);
        while self.shared_by_columns() > SHARED && self.groups != [1, 1] {
            let larger = usize::from(self.groups[1] > self.groups[0]);
            self.groups[larger] = self.groups[larger].div_ceil(2);
        }
        if self.shared_by_columns() > 227 << 10 {
            let expected = "transforms that fit into the shared memory of a block";
            return Err(Invalid::new("length of transforms", self.length(), expected).into());
        }
        let whole = |threads: usize| threads.next_multiple_of(32).clamp(32, 512);
        let items = self.groups[1] * self.length();
        let transforms = 2 * self.groups[0].max(self.groups[1]);
        let threads = self.threads(transforms).max(items.div_ceil(items.div_ceil(512)));
        self.column_threads = tuning.column_threads.unwrap_or(whole(threads));
        self.row_threads = whole(self.threads(self.rows));
        Ok(self)
    }
}

/// Lengths of small transforms that the kernels know.
const RADICES: [usize; 14] = [16, 15, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1];

/// Cycles of one thread, about, that a transform with these radices takes.
fn cost(radices: [usize; 3]) -> f64 {
    let stage = |radix: usize| match radix {
        1 => 0.0,
        _ => 80.0 + radix as f64 * (10.0 + 4.0 * (radix as f64).log2()),
    };
    radices.into_iter().map(stage).sum::<f64>() + radices.iter().product::<usize>() as f64
}

/// The best radices of a transform of even length from `least`.
fn radices(least: usize) -> Option<[usize; 3]> {
    let mut best: Option<[usize; 3]> = None;
    for first in RADICES {
        for second in RADICES {
            for third in RADICES {
                let length = first * second * third;
                let good = length >= least.max(2)
                    && length % 2 == 0
                    && first >= second
                    && first > 1
                    && (second > 1 || third == 1);
                let odd = |radices: [usize; 3]| usize::from(radices[2] % 2 == 0);
                let key = |radices: [usize; 3]| (cost(radices), odd(radices));
                let radices = [first, second, third];
                if good && best.is_none_or(|best| key(radices) < key(best)) {
                    best = Some(radices);
                }
            }
        }
    }
    best
}

/// Positions in vectors of the points of lattices, by pairs: (pairs, rows, points).
fn table(
    masks: &[Array2<bool>],
    step: usize,
    points: usize,
    rows: usize,
    at: Option<&[usize]>,
) -> Vec<[i32; 2]> {
    let squares = step * step;
    let pairs = (masks.len() * squares).div_ceil(2);
    let mut table = vec![[-1; 2]; pairs * rows * points];
    let mut position = 0;
    for (k, mask) in masks.iter().enumerate() {
        for ((y, x), _) in mask.indexed_iter().filter(|(_, used)| **used) {
            let lattice = k * squares + y % step * step + x % step;
            let place = (lattice / 2 * rows + y / step) * points + x / step;
            table[place][lattice % 2] = at.map_or(position, |at| at[position]) as i32;
            position += 1;
        }
    }
    table
}

/// A spectrum, and whether it is conjugate; none where there is no lattice.
type Entry = Option<(usize, bool)>;

/// Blocks of 2 × 2 terms: the different ones, and which stands where: (pairs of outputs, pairs of inputs), twice
/// the number and 1 if adjoint.
fn tiles(terms: &Array2<(usize, bool)>) -> (Vec<[Entry; 4]>, Array2<i32>) {
    let (mut known, mut tiles) = (HashMap::new(), Vec::new());
    let [rows, columns] = [terms.nrows(), terms.ncols()].map(|lattices| lattices.div_ceil(2));
    let conjugate = |entry: Entry| entry.map(|(spectrum, conjugate)| (spectrum, !conjugate));
    let places = Array2::from_shape_fn((rows, columns), |(p, q)| {
        let tile = [(0, 0), (0, 1), (1, 0), (1, 1)]
            .map(|(a, b)| terms.get((2 * p + a, 2 * q + b)).copied());
        let adjoint = [tile[0], tile[2], tile[1], tile[3]].map(conjugate);
        let found = known.get(&tile).map(|&k| 2 * k);
        found.or_else(|| known.get(&adjoint).map(|&k| 2 * k + 1)).unwrap_or_else(|| {
            known.insert(tile, tiles.len() as i32);
            tiles.push(tile);
            2 * (tiles.len() as i32 - 1)
        })
    });
    (tiles, places)
}

/// The passes of a matrix forth and back, the latter unless it is symmetric.
fn passes<T: Number>(
    gpu: &Gpu,
    parts: &Parts,
    symmetric: bool,
    tuning: Tuning,
    at: Option<&[usize]>,
) -> Result<(Pass<T>, Option<Pass<T>>), Error> {
    let terms = parts.terms();
    let points = [parts.shape.lenslets, parts.shape.points.div_ceil(parts.shape.step)];
    let products = terms.len() * (points[0] * points[1]).pow(2);
    let shared = shared_directly::<T>(points[0], terms.ncols()).max(shared_directly::<T>(points[1], terms.nrows()));
    let direct = products <= MOST_DIRECT && shared <= SHARED;
    if tuning.direct.unwrap_or(direct) {
        direct_passes(gpu, parts, &terms, points, symmetric, at)
    } else {
        transformed_passes(gpu, parts, &terms, points, symmetric, tuning, at)
    }
}

/// Tables of the places of inputs and outputs.
fn tables(
    gpu: &Gpu,
    parts: &Parts,
    points: [usize; 2],
    rows: usize,
    at: Option<&[usize]>,
) -> Result<[Arc<Buffer<[i32; 2]>>; 2], Error> {
    let [from, to] = points.map(|points| points.next_multiple_of(rows));
    let from = table(&parts.inputs, 1, points[0], from, at);
    let to = table(&parts.outputs, parts.shape.step, points[1], to, at);
    Ok([Arc::new(gpu.upload(&from)?), Arc::new(gpu.upload(&to)?)])
}

/// Rows, columns and splits of a tile of the direct sum.
const TILE: [usize; 3] = [8, 4, 8];

fn shared_directly<T>(points: usize, lattices: usize) -> usize {
    let [tall, wide, split] = TILE;
    let (spanned, deep) = (points.next_multiple_of(split), points.next_multiple_of(tall));
    let inputs = spanned * (deep + 16 / size_of::<T>());
    let windows = (deep + tall - 1) * (spanned + wide - 1);
    size_of::<T>() * (lattices * (inputs + windows) + 32 * warps(points, lattices))
}

fn warps(points: usize, lattices: usize) -> usize {
    (lattices * points.div_ceil(TILE[2])).min(16)
}

fn direct_passes<T: Number>(
    gpu: &Gpu,
    parts: &Parts,
    terms: &Array2<(usize, bool)>,
    points: [usize; 2],
    symmetric: bool,
    at: Option<&[usize]>,
) -> Result<(Pass<T>, Option<Pass<T>>), Error> {
    let (shape, lags) = (&parts.shape, points[0] + points[1] - 1);
    let sublattices = shape.step * shape.step;
    let mut taps = Vec::with_capacity(parts.kernels.len() * sublattices * lags * lags);
    for kernel in &parts.kernels {
        for sublattice in 0..sublattices {
            let lag = |k: usize, residue| shape.lag((k + points[1]) % lags, residue, lags);
            for y in (0..lags).map(|k| lag(k, sublattice / shape.step)) {
                let value = |x| Some(kernel[[y?, lag(x, sublattice % shape.step)?]]);
                taps.extend((0..lags).map(|x| T::of(value(x).unwrap_or(0.0))));
            }
        }
    }
    let numbers: Vec<i32> =
        terms.iter().map(|&(tap, turned)| 2 * tap as i32 + i32::from(turned)).collect();
    let (taps, numbers) = (Arc::new(gpu.upload(&taps)?), Arc::new(gpu.upload(&numbers)?));
    let [from, to] = tables(gpu, parts, points, 1, at)?;
    let lattices = [terms.ncols(), terms.nrows()];
    let pass = |transposed: bool| {
        let order = |mut sides: [usize; 2]| {
            sides.rotate_left(usize::from(transposed));
            sides
        };
        let (points, lattices) = (order(points), order(lattices));
        let warps = warps(points[0], lattices[0]);
        let sizes = [
            ("FROM_POINTS", points[0]),
            ("TO_POINTS", points[1]),
            ("FROM_LATTICES", lattices[0]),
            ("TO_LATTICES", lattices[1]),
            ("WARPS", warps),
            ("TRANSPOSED", usize::from(transposed)),
        ];
        let mut options: Vec<_> =
            sizes.into_iter().map(|(name, size)| format!("-D{name}={size}")).collect();
        options.push(T::option());
        let program = gpu.program(&CONVOLUTION, &options)?;
        let kernels = [program.kernel("convolve")?, program.kernel("convolve_with_diagonal")?];
        let [tall, wide, _] = TILE;
        let grid = [points[1].div_ceil(wide), points[1].div_ceil(tall), lattices[1]];
        let shared = shared_directly::<T>(points[0], lattices[0]);
        let shape = Launch { grid, block: 32 * warps, shared };
        let (taps, terms) = (Arc::clone(&taps), Arc::clone(&numbers));
        let mut sides = [Arc::clone(&from), Arc::clone(&to)];
        sides.rotate_left(usize::from(transposed));
        let [from, to] = sides;
        Ok::<_, Error>(Pass { from, to, form: Form::Direct(Direct { taps, terms, kernels, shape }) })
    };
    Ok((pass(false)?, if symmetric { None } else { Some(pass(true)?) }))
}

#[expect(clippy::too_many_arguments)]
fn transformed_passes<T: Number>(
    gpu: &Gpu,
    parts: &Parts,
    terms: &Array2<(usize, bool)>,
    points: [usize; 2],
    symmetric: bool,
    tuning: Tuning,
    at: Option<&[usize]>,
) -> Result<(Pass<T>, Option<Pass<T>>), Error> {
    let least = parts.shape.least_length();
    let radices = tuning.radices.or_else(|| radices(least)).ok_or_else(|| {
        Invalid::new("length of transforms", least, "at most 4096 on a graphics processor")
    })?;
    let number = 2 * size_of::<T>();
    let (tiles, places) = tiles(terms);
    let pairs = [places.ncols(), places.nrows()];
    let mut plan = Plan {
        points,
        pairs,
        groups: pairs,
        tiles: tiles.len(),
        radices,
        rows: tuning.rows.unwrap_or(32 / number),
        row_threads: 0,
        column_threads: 0,
        number,
    };
    while plan.shared_by_rows() > SHARED && plan.rows > 1 {
        plan.rows /= 2;
    }
    let plan = plan.fitted(tuning)?;
    let length = plan.length();
    let fields = fields(&parts.kernels, &parts.shape, length);
    let of_kx = 4 * tiles.len() * length;
    let mut spectra = vec![Complex::<T>::new(T::of(0.0), T::of(0.0)); (length / 2 + 1) * of_kx];
    spectra.par_chunks_mut(of_kx).enumerate().for_each(|(kx, spectra)| {
        for (tile, spectra) in tiles.iter().zip(spectra.chunks_mut(4 * length)) {
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
    let root = |k: usize| {
        let angle = -2.0 * std::f64::consts::PI * k as f64 / length as f64;
        Complex::new(T::of(angle.cos()), T::of(angle.sin()))
    };
    let roots: Vec<_> = (0..length).map(root).collect();
    let (spectra, roots) = (Arc::new(gpu.upload(&spectra)?), Arc::new(gpu.upload(&roots)?));
    let [from, to] = tables(gpu, parts, points, plan.rows, at)?;
    let pass = |plan: Plan, from: &Arc<_>, to: &Arc<_>, tiles: Vec<i32>| {
        let mut options = plan.options();
        options.push(T::option());
        let program = gpu.program(&TRANSFORMS, &options)?;
        let half = length / 2 + 1;
        let [lines, columns] = [0, 1].map(|side| {
            let rows = plan.points[side].next_multiple_of(plan.rows);
            gpu.zeros(half * 2 * plan.pairs[side] * rows)
        });
        let form = Form::Transformed(Transformed {
            spectra: Arc::clone(&spectra),
            roots: Arc::clone(&roots),
            tiles: gpu.upload(&tiles)?,
            lines: lines?,
            columns: columns?,
            rows: program.kernel("transform_rows")?,
            mix: program.kernel("mix_columns")?,
            restore: [
                program.kernel("restore_rows")?,
                program.kernel("restore_rows_with_diagonal")?,
            ],
            plan,
        });
        Ok::<_, Error>(Pass { from: Arc::clone(from), to: Arc::clone(to), form })
    };
    let forward = pass(plan, &from, &to, places.iter().copied().collect())?;
    let backward = (!symmetric).then(|| {
        let tiles = places.t().iter().map(|tile| tile ^ 1).collect();
        pass(plan.turned()?, &to, &from, tiles)
    });
    Ok((forward, backward.transpose()?))
}

/// The circulant preconditioner on a device.
pub struct CirculantGpu<T> {
    gpu: Gpu,
    parts: Vec<Pass<T>>,
    length: usize,
}

impl<T: Number> CirculantGpu<T> {
    /// The preconditioner of [`Circulant::new`](crate::circulant::Circulant::new), on a device.
    ///
    /// # Errors
    /// `Invalid` as there; what the device says.
    pub fn new(gpu: &Gpu, groups: &[Group]) -> Result<Self, Error> {
        let places = places(groups)?;
        let part = |group: &Group| {
            let kernels = inverse_kernels(group.covariance, group.noise)?;
            let parts = parts_of(&kernels, group.valid)?;
            let at: Vec<usize> =
                group.stars.iter().flat_map(|&star| places[star].clone()).collect();
            Ok(passes(gpu, &parts, true, Tuning::default(), Some(&at))?.0)
        };
        let parts = groups.iter().map(part).collect::<Result<_, Error>>()?;
        let length = places.last().map_or(0, |place| place.end);
        Ok(Self { gpu: gpu.clone(), parts, length })
    }
}

impl<T: Number> DeviceOperator<T> for CirculantGpu<T> {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.length
    }

    fn columns(&self) -> usize {
        self.length
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.length, self.length))?;
        self.parts.iter().try_for_each(|part| part.run(&self.gpu, x, y, None))
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.apply(x, y)
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.kept() + part.scratch()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circulant::Circulant;
    use crate::device::gpu::test_machines;
    use crate::device_operator::OnHost;
    use crate::operator::Real;
    use crate::operator::battery::{check, distance, product, random};
    use crate::toeplitz::BlockToeplitz;
    use crate::toeplitz::tests::{covariance, kernels, masks};
    use ndarray::Array5;

    const DIRECT: Tuning = Tuning {
        direct: Some(true),
        radices: None,
        rows: None,
        groups: None,
        column_threads: None,
    };
    const BY_TRANSFORMS: Tuning = Tuning { direct: Some(false), ..DIRECT };

    fn rounded<T: Number>(x: &[f64]) -> Vec<T> {
        x.iter().map(|&x| T::of(x)).collect()
    }

    /// Holds an operator on a device to one on the host.
    fn compare<T: Number + Real>(
        device: impl DeviceOperator<T> + 'static,
        host: &dyn crate::operator::Operator<f64>,
        tolerance: f64,
    ) {
        let device = OnHost(Arc::new(device));
        check(&device, tolerance);
        for transposed in [false, true] {
            let (rows, columns) = crate::operator::shape(host, transposed);
            assert_eq!(crate::operator::shape(&device, transposed), (rows, columns));
            let x: Vec<f64> = random(columns, 4);
            let expected = product(host, transposed, &x, 1);
            let y = product(&device, transposed, &rounded::<T>(&x), 1);
            let y: Vec<f64> = y.into_iter().map(|y| Number::to_f64(y)).collect();
            let error = distance(&y, &expected);
            assert!(error <= tolerance, "{error:e}, transposed: {transposed}");
        }
    }

    /// Random kernels, masks of points, masks of lenslets.
    struct System {
        kernels: Array5<f64>,
        step: usize,
        points: Vec<Array2<bool>>,
        valid: Vec<Array2<bool>>,
    }

    impl System {
        fn new(targets: usize, sources: usize, lenslets: usize, points: usize, step: usize) -> Self {
            let lags = step * (lenslets - 1) + points;
            Self {
                kernels: kernels(targets, sources, lags, 3),
                step,
                points: masks(targets, points, 0.8, 4),
                valid: masks(sources, lenslets, 0.7, 5),
            }
        }

        fn parts(&self) -> Parts<'_> {
            Parts::wavefront_slope(self.kernels.view(), self.step, &self.points, &self.valid)
                .unwrap()
        }

        /// Compares products on a device with those on the host.
        fn compare<T: Number + Real>(&self, gpu: &Gpu, tuning: Tuning, tolerance: f64) {
            let (parts, host) = (self.parts(), BlockToeplitz::<f64>::of(&self.parts()));
            let device = BlockToeplitzGpu::<T>::of(gpu, &parts, false, tuning).unwrap();
            compare(device, &host, tolerance);
        }
    }

    #[test]
    fn products_are_those_of_the_host() {
        for gpu in test_machines() {
            for (targets, sources, lenslets, points, step) in
                [(1, 1, 5, 5, 1), (2, 2, 4, 7, 2), (3, 1, 9, 8, 3), (1, 3, 1, 6, 1), (2, 1, 12, 13, 1)]
            {
                let system = System::new(targets, sources, lenslets, points, step);
                for tuning in [DIRECT, BY_TRANSFORMS] {
                    system.compare::<f64>(&gpu, tuning, 1e-12);
                    system.compare::<f32>(&gpu, tuning, 1e-5);
                }
            }
        }
    }

    #[test]
    fn all_radices_and_groups_give_the_same() {
        let system = System::new(5, 2, 2, 2, 1);
        for gpu in test_machines() {
            let all = [
                [16, 15, 1],
                [14, 10, 1],
                [12, 9, 1],
                [8, 7, 1],
                [6, 5, 4],
                [3, 3, 2],
                [4, 2, 7],
                [10, 1, 1],
            ];
            for radices in all {
                let tuning = Tuning { radices: Some(radices), ..BY_TRANSFORMS };
                system.compare::<f64>(&gpu, tuning, 1e-12);
            }
            for groups in [[1, 1], [1, 2], [2, 1], [1, 3]] {
                let tuning = Tuning { groups: Some(groups), ..BY_TRANSFORMS };
                system.compare::<f64>(&gpu, tuning, 1e-12);
            }
        }
    }

    #[test]
    fn slopes_share_spectra_and_take_noise() {
        let (covariance, valid) = (covariance(3, 7), masks(3, 7, 0.7, 5));
        let host = BlockToeplitz::<f64>::slopes(&covariance, &valid).unwrap();
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        assert_eq!(tiles(&parts.terms()).0.len(), 4);
        let noise: Vec<f64> = random(crate::operator::Operator::rows(&host), 6);
        let sum = crate::operator::Sum::new(vec![
            Arc::new(host),
            Arc::new(crate::operator::Diagonal::new(noise.clone())),
        ])
        .unwrap();
        for gpu in test_machines() {
            for tuning in [DIRECT, BY_TRANSFORMS] {
                let device = BlockToeplitzGpu::<f64>::of(&gpu, &parts, true, tuning).unwrap();
                compare(device.with_diagonal(&noise).unwrap(), &sum, 1e-12);
                let device = BlockToeplitzGpu::<f32>::of(&gpu, &parts, true, tuning).unwrap();
                compare(device.with_diagonal(&noise).unwrap(), &sum, 1e-5);
            }
        }
    }

    #[test]
    fn preconditioners_are_those_of_the_host() {
        let (two, one) = (covariance(2, 5), covariance(1, 4));
        let [of_two, of_one] = [(2, 5), (1, 4)].map(|(stars, across)| masks(stars, across, 0.8, 7));
        let groups = [
            Group { covariance: &two, noise: &[0.3, 0.5], valid: &of_two, stars: &[2, 0] },
            Group { covariance: &one, noise: &[0.4], valid: &of_one, stars: &[1] },
        ];
        let host = Circulant::<f64>::new(&groups).unwrap();
        for gpu in test_machines() {
            compare(CirculantGpu::<f64>::new(&gpu, &groups).unwrap(), &host, 1e-12);
        }
    }

    #[test]
    fn products_repeat_bit_by_bit() {
        let (covariance, valid) = (covariance(2, 6), masks(2, 6, 0.7, 5));
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        for gpu in test_machines() {
            let times = if gpu.name().starts_with("cuda") { 1000 } else { 4 };
            for tuning in [DIRECT, BY_TRANSFORMS] {
                let device = BlockToeplitzGpu::<f32>::of(&gpu, &parts, true, tuning).unwrap();
                let x = gpu.upload(&random::<f32>(device.columns(), 1)).unwrap();
                let y = gpu.zeros::<f32>(device.rows()).unwrap();
                let graph = gpu.record(|| device.apply(&x, &y)).unwrap();
                let once = || {
                    y.clear().unwrap();
                    gpu.replay(&graph).unwrap();
                    y.read().unwrap()
                };
                let first = once();
                assert!(first.iter().any(|&y| y != 0.0));
                assert!((1..times).all(|_| once() == first));
            }
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let system = System::new(1, 1, 3, 3, 1);
        for gpu in test_machines() {
            let device =
                BlockToeplitzGpu::<f64>::of(&gpu, &system.parts(), false, BY_TRANSFORMS).unwrap();
            let [x, y] = [device.columns(), device.rows()].map(|len| gpu.zeros(len).unwrap());
            assert!(device.apply(&y, &x).is_err() && device.apply(&x, &x).is_err());
            assert!(device.with_diagonal(&[1.0]).is_err());
        }
        assert_eq!(radices(5000), None);
        assert!((1..2048).all(|least| radices(least).is_some_and(|r| {
            let length = r.iter().product::<usize>();
            length >= least && length <= least * 5 / 4 + 2
        })));
    }

    #[test]
    #[ignore = "a measurement"]
    fn time_products_on_the_gpu() {
        for gpu in test_machines().iter().filter(|gpu| gpu.name().starts_with("cuda")) {
            println!("{}", gpu.name());
            for (stars, lenslets) in [(1, 20), (1, 40), (1, 64), (1, 84), (1, 150), (6, 80)] {
                time_one::<f32>(gpu, stars, lenslets);
                time_one::<f64>(gpu, stars, lenslets);
            }
        }
    }

    /// Prints times of the products of some size, made in several ways.
    fn time_one<T: Number + Real>(gpu: &Gpu, stars: usize, lenslets: usize) {
        let covariance = covariance(stars, lenslets);
        let valid = vec![Array2::from_elem((lenslets, lenslets), true); stars];
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        let least = parts.shape.least_length();
        let mut ways = vec![("auto", Tuning::default())];
        if lenslets <= 84 && stars == 1 {
            ways.push(("direct", DIRECT));
        }
        let all = [
            [8, 5, 1], [4, 2, 5],
            [10, 8, 1], [5, 4, 4], [4, 4, 5],
            [16, 8, 1], [8, 4, 4], [8, 16, 1],
            [16, 10, 1], [10, 16, 1], [8, 4, 5], [4, 8, 5], [6, 6, 5],
            [14, 12, 1], [12, 14, 1], [8, 7, 3], [8, 3, 7], [12, 15, 1], [15, 12, 1],
            [10, 10, 3], [10, 6, 5], [5, 4, 15], [6, 10, 5], [8, 8, 5], [12, 5, 5],
        ];
        for radices in all {
            let length = radices.iter().product::<usize>();
            if length >= least && length < least + 14 + least / 15 {
                ways.push(("set", Tuning { radices: Some(radices), ..BY_TRANSFORMS }));
            }
        }
        if stars == 6 {
            for to_group in [3, 2] {
                ways.push(("split", Tuning { groups: Some([6, to_group]), ..BY_TRANSFORMS }));
            }
            for threads in [256, 320, 640, 960] {
                ways.push(("threads", Tuning { column_threads: Some(threads), ..BY_TRANSFORMS }));
            }
        }
        for rows in [1, 2, 8] {
            ways.push(("rows", Tuning { rows: Some(rows), ..BY_TRANSFORMS }));
        }
        for (name, tuning) in ways {
            let device = match BlockToeplitzGpu::<T>::of(gpu, &parts, true, tuning) {
                Ok(device) => device,
                Err(error) => {
                    println!("{stars} × {lenslets} {} {name} {tuning:?}: {error}", T::C_NAME);
                    continue;
                }
            };
            let x = gpu.upload(&random::<T>(device.columns(), 1)).unwrap();
            let y = gpu.zeros::<T>(device.rows()).unwrap();
            // Microseconds of some work, the median of repetitions.
            let time = |work: &dyn Fn() -> Result<(), Error>| {
                let graph = gpu.record(|| (0..20).try_for_each(|_| work())).unwrap();
                let replay = || gpu.milliseconds(5, || gpu.replay(&graph)).unwrap() * 50.0;
                replay();
                let mut times: Vec<f64> = (0..21).map(|_| replay()).collect();
                times.sort_by(f64::total_cmp);
                times[10]
            };
            let whole = time(&|| device.apply(&x, &y));
            let each: Vec<_> = (0..device.stages())
                .map(|k| format!("{:.2}", time(&|| device.stage(k, &x, &y))))
                .collect();
            let (type_name, how) = (T::C_NAME, device.describe());
            println!("{stars} × {lenslets} {type_name} {name}: {whole:.2} µs = {each:?}; {how}");
        }
    }
}
