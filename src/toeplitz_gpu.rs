// Tangled from book/src/toeplitz-gpu.md: edit there, or here and run cargo tangle stitch.
//! Products with block Toeplitz matrices on a graphics processor.

// What products on a device stand on
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
const PLAIN_SUM: Source =
    Source { name: "toeplitz_direct.cu", text: include_str!("../kernels/toeplitz_direct.cu") };

// Limits of the forms of a product
/// Bytes of shared memory that a block may have on every device since Ampere, and the most on any.
const SHARED: [usize; 2] = [96 << 10, 227 << 10];

/// Products of more terms than this are made by transforms.
const MOST_DIRECT: usize = 15_000_000;

/// What is usually chosen by size, and may be set to be measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuning {
    pub(crate) direct: Option<bool>,
    pub(crate) radices: Option<[usize; 3]>,
    pub(crate) rows: Option<usize>,
    pub(crate) groups: Option<[usize; 2]>,
}

// Block Toeplitz matrix on a device
/// A block matrix whose blocks are two-level Toeplitz, on a device; see [`BlockToeplitz`](crate::toeplitz::BlockToeplitz).
///
/// Lattices with few points are multiplied by a plain sum, Eq. `[eq:polyphase]`, others by transforms,
/// Eqs. `[eq:two-real-rows]` and `[eq:three-radices]`.
pub struct BlockToeplitzGpu<T> {
    gpu: Gpu,
    forward: Arc<Pass<T>>,
    /// `None` where the matrix is symmetric.
    backward: Option<Pass<T>>,
    diagonal: Option<Arc<Buffer<T>>>,
    rows: usize,
    columns: usize,
}

impl<T: Number> BlockToeplitzGpu<T> {
    // Make a matrix on a device
    /// The operator of [`BlockToeplitz::new`](crate::toeplitz::BlockToeplitz::new), on a device.
    ///
    /// # Errors
    /// `Invalid` as there, and where the lattices are too large for the shared memory of a device; what the device says.
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

    // Make slopes and wavefronts on a device
    /// The covariance of slopes, rad², as [`BlockToeplitz::slopes`](crate::toeplitz::BlockToeplitz::slopes).
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

    // Make wavefronts from slopes on a device
    /// From slopes to wavefronts, as [`BlockToeplitz::wavefront_slope`](crate::toeplitz::BlockToeplitz::wavefront_slope).
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
        let left = |masks: &[Array2<bool>]| masks.iter().flatten().filter(|&&used| used).count();
        let (rows, columns) = (left(&parts.outputs), left(&parts.inputs));
        let (forward, backward) = Making::new(gpu, parts, symmetric, tuning, None).passes()?;
        Ok(Self {
            gpu: gpu.clone(),
            forward: Arc::new(forward),
            backward,
            diagonal: None,
            rows,
            columns,
        })
    }

    // Add a diagonal on a device
    /// The same with these elements added on the diagonal, such as the variance of noise, at no further launch.
    ///
    /// # Errors
    /// `Invalid` where the matrix is not square, or the elements are not as many as its rows.
    pub fn with_diagonal(mut self, elements: &[f64]) -> Result<Self, Error> {
        if (self.rows, self.columns) != (elements.len(), elements.len()) {
            let expected = format!("{}, and a square matrix", self.rows);
            return Err(Invalid::new("elements of a diagonal", elements.len(), expected).into());
        }
        let elements: Vec<T> = elements.iter().map(|&element| T::of(element)).collect();
        self.diagonal = Some(Arc::new(self.gpu.upload(&elements)?));
        Ok(self)
    }
}

impl<T: Number> DeviceOperator<T> for BlockToeplitzGpu<T> {
    // Answers of Toeplitz products on a device
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
        self.forward.run(&self.gpu, x, y, self.diagonal.as_deref())
    }

    // Transpose and weigh on a device
    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.columns, self.rows))?;
        let backward = self.backward.as_ref().unwrap_or(&self.forward);
        backward.run(&self.gpu, x, y, self.diagonal.as_deref())
    }

    fn bytes(&self) -> u64 {
        let passes = [Some(&*self.forward), self.backward.as_ref()].into_iter().flatten();
        let scratch: u64 = passes.map(Pass::scratch).sum();
        scratch
            + self.forward.kept()
            + self.diagonal.as_ref().map_or(0, |diagonal| diagonal.bytes())
    }
}

// Circulant preconditioner on a device
/// The preconditioner of [`Circulant`](crate::circulant::Circulant), on a device.
pub struct CirculantGpu<T> {
    gpu: Gpu,
    parts: Vec<Arc<Pass<T>>>,
    length: usize,
}

impl<T: Number> CirculantGpu<T> {
    // Make the preconditioner on a device
    /// The preconditioner of [`Circulant::new`](crate::circulant::Circulant::new), on a device.
    ///
    /// # Errors
    /// `Invalid` as there, and as in [`BlockToeplitzGpu::new`]; what the device says.
    pub fn new(gpu: &Gpu, groups: &[Group]) -> Result<Self, Error> {
        Self::tuned(gpu, groups, Tuning::default())
    }

    pub(crate) fn tuned(gpu: &Gpu, groups: &[Group], tuning: Tuning) -> Result<Self, Error> {
        let places = places(groups)?;
        let part = |group: &Group| {
            let kernels = inverse_kernels(group.covariance, group.noise)?;
            let parts = parts_of(&kernels, group.valid)?;
            let at: Vec<usize> =
                group.stars.iter().flat_map(|&star| places[star].clone()).collect();
            Ok(Making::new(gpu, &parts, true, tuning, Some(&at)).passes()?.0.into())
        };
        let parts = groups.iter().map(part).collect::<Result<_, Error>>()?;
        let length = places.last().map_or(0, |place| place.end);
        Ok(Self { gpu: gpu.clone(), parts, length })
    }
}

impl<T: Number> DeviceOperator<T> for CirculantGpu<T> {
    // Answers of the preconditioner on a device
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

// Passes of a product on a device
/// Products in one direction.
struct Pass<T> {
    from: Arc<Buffer<[i32; 2]>>,
    to: Arc<Buffer<[i32; 2]>>,
    form: Form<T>,
}

/// A pass forth and, unless the matrix is symmetric, one back.
type Passes<T> = (Pass<T>, Option<Pass<T>>);

enum Form<T> {
    Direct(Direct<T>),
    Transformed(Box<Transformed<T>>),
}

// What the forms of a product keep
/// The plain sum.
struct Direct<T> {
    taps: Arc<Buffer<T>>,
    terms: Arc<Buffer<i32>>,
    /// Without and with a diagonal.
    kernels: [Kernel; 2],
    shape: Launch,
}

/// The sum by transforms.
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
    // Queue the launches of a product
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
        (0..self.stages()).try_for_each(|k| self.stage(gpu, k, [x, y], diagonal))
    }

    // Queue one launch of a product
    fn stage(
        &self,
        gpu: &Gpu,
        k: usize,
        [x, y]: [&Buffer<T>; 2],
        diagonal: Option<&Buffer<T>>,
    ) -> Result<(), Error> {
        let [x, y] = [x, y].map(Argument::from);
        let [from, to] = [&self.from, &self.to].map(|places| Argument::from(&**places));
        let added = usize::from(diagonal.is_some());
        match &self.form {
            Form::Direct(Direct { taps, terms, kernels, shape }) => {
                let mut arguments = vec![x, from, (&**taps).into(), (&**terms).into(), to, y];
                arguments.extend(diagonal.map(Argument::from));
                gpu.launch_early(&kernels[added], *shape, &arguments)
            }
            Form::Transformed(pass) => {
                // Queue one pass of the transforms
                let roots = Argument::from(&*pass.roots);
                let [lines, columns] = [&pass.lines, &pass.columns].map(Argument::from);
                match k {
                    0 => {
                        let arguments = [x, from, roots, lines];
                        gpu.launch_early(&pass.rows, pass.plan.launch_rows(), &arguments)
                    }
                    1 => {
                        let (spectra, tiles) = ((&*pass.spectra).into(), (&pass.tiles).into());
                        let arguments = [lines, spectra, tiles, roots, columns];
                        gpu.launch_early(&pass.mix, pass.plan.launch_columns(), &arguments)
                    }
                    _ => {
                        let mut arguments = vec![columns, to, roots, y];
                        arguments.extend(diagonal.map(Argument::from));
                        arguments.extend(diagonal.map(|_| x));
                        let shape = pass.plan.launch_rows_back(diagonal.is_some());
                        gpu.launch_early(&pass.restore[added], shape, &arguments)
                    }
                }
            }
        }
    }

    // Weigh what a pass keeps
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

// What a solver puts around the columns
pub(crate) struct Around<T> {
    gpu: Gpu,
    pass: Arc<Pass<T>>,
    any: Arc<Buffer<T>>,
}
impl<T: Number> BlockToeplitzGpu<T> {
    pub(crate) fn around(&self) -> Option<(Around<T>, Arc<Buffer<T>>)> {
        let around = self.backward.is_none().then(|| Around::new(&self.gpu, &self.forward));
        around.flatten().zip(self.diagonal.clone())
    }
}
impl<T: Number> CirculantGpu<T> {
    pub(crate) fn around(&self) -> Option<Around<T>> {
        let [part] = self.parts.as_slice() else { return None };
        Around::new(&self.gpu, part)
    }
}
impl<T: Number> Around<T> {
    fn new(gpu: &Gpu, pass: &Arc<Pass<T>>) -> Option<Self> {
        let Form::Transformed(_) = &pass.form else { return None };
        Some(Self { gpu: gpu.clone(), pass: pass.clone(), any: Arc::new(gpu.zeros(1).ok()?) })
    }
    fn parts(&self) -> &Transformed<T> {
        let Form::Transformed(parts) = &self.pass.form else { panic!() };
        parts
    }
    pub(crate) fn is_like(&self, other: &Self) -> Result<bool, Error> {
        let sizes = |plan: &Plan| (plan.points, plan.pairs, plan.radices, plan.rows);
        Ok(sizes(&self.parts().plan) == sizes(&other.parts().plan)
            && self.pass.from.read()? == other.pass.from.read()?)
    }
    pub(crate) fn options(&self, row_threads: usize) -> Vec<String> {
        Plan { row_threads, ..self.parts().plan }.options::<T>()
    }
    pub(crate) fn blocks(&self) -> ([usize; 3], usize) {
        let plan = &self.parts().plan;
        (plan.launch_rows().grid, plan.rows * plan.points[0])
    }
    pub(crate) fn shared(&self) -> usize {
        let plan = &self.parts().plan;
        plan.launch_rows().shared
            + plan.rows * plan.points[0] * (plan.number + size_of::<[i32; 2]>())
    }
    pub(crate) fn tables(&self) -> [Argument; 2] {
        [(&*self.pass.from).into(), (&*self.parts().roots).into()]
    }
    pub(crate) fn lines_and_columns(&self) -> [Argument; 2] {
        [&self.parts().lines, &self.parts().columns].map(Argument::from)
    }
    pub(crate) fn transform_rows(&self, x: &Buffer<T>) -> Result<(), Error> {
        self.pass.stage(&self.gpu, 0, [x, x], None)
    }
    pub(crate) fn mix_columns(&self) -> Result<(), Error> {
        let any = &*self.any;
        self.pass.stage(&self.gpu, 1, [any, any], None)
    }
}

// Plan of the transforms of a direction
/// What fixes the kernels of one direction.
#[derive(Debug, Clone, Copy)]
struct Plan {
    // Sizes that a plan fixes
    /// Points across the lattices of inputs and of outputs.
    points: [usize; 2],
    /// Pairs of lattices.
    pairs: [usize; 2],
    /// Pairs that a block holds at a time.
    groups: [usize; 2],
    tiles: usize,
    /// Whether the tiles below the diagonal are the adjoints of those above.
    mirrored: bool,
    radices: [usize; 3],
    /// Rows in a block.
    rows: usize,
    row_threads: usize,
    column_threads: usize,
    /// Bytes of a complex number.
    number: usize,
}

impl Plan {
    // Room of the transforms of a plan
    fn length(&self) -> usize {
        self.radices.iter().product()
    }

    /// Complex numbers that one transform works in, and those from one whole transform to the next.
    fn room(&self) -> [usize; 2] {
        let ([first, second, third], banks) = (self.radices, 128 / self.number);
        let run = if third == 1 { 1 } else { third | 1 };
        let pitch = if third == 1 { second | 1 } else { up_to(second * run, run, banks) };
        [first * pitch, self.length()].map(|room| up_to(room, self.rows, banks))
    }

    /// Threads that some transforms keep busy, each with one small transform.
    fn threads(&self, transforms: usize) -> usize {
        let radices = self.radices.iter().filter(|&&radix| radix > 1);
        let least = radices.min().map_or(1, |least| self.length() / least);
        (transforms * least).next_multiple_of(32).min(512)
    }

    // Launches of a plan
    fn shared_by_columns(&self) -> usize {
        let sums = if self.groups[0] < self.pairs[0] { self.groups[1] * self.length() } else { 0 };
        self.number * 2 * (2 * self.groups[0].max(self.groups[1]) * self.room()[0] + sums)
    }

    fn launch_rows(&self) -> Launch {
        let grid = [self.points[0].div_ceil(self.rows), self.pairs[0], 1];
        let shared = self.number * self.rows * self.room().iter().sum::<usize>();
        Launch { grid, block: self.row_threads, shared }
    }

    fn launch_columns(&self) -> Launch {
        let grid = [self.length() / 2 + 1, self.pairs[1].div_ceil(self.groups[1]), 1];
        Launch { grid, block: self.column_threads, shared: self.shared_by_columns() }
    }

    fn launch_rows_back(&self, diagonal: bool) -> Launch {
        let grid = [self.points[1].div_ceil(self.rows), self.pairs[1], 1];
        let point = size_of::<[i32; 2]>() + if diagonal { self.number } else { 0 };
        let shared = self.rows * (self.number * self.room()[0] + point * self.points[1]);
        Launch { grid, block: self.row_threads, shared }
    }

    // Options of a plan
    /// Sizes as the source of the kernels names them.
    fn options<T: Number>(&self) -> Vec<String> {
        let [r1, r2, r3] = self.radices;
        let of_sides = [("POINTS", self.points), ("PAIRS", self.pairs), ("GROUP", self.groups)];
        let sides = of_sides.iter().flat_map(|(name, [from, to])| {
            [format!("-DFROM_{name}={from}"), format!("-DTO_{name}={to}")]
        });
        let sizes = [
            ("R1", r1),
            ("R2", r2),
            ("R3", r3),
            ("ROWS", self.rows),
            ("TILES", self.tiles),
            ("MIRRORED", usize::from(self.mirrored)),
            ("ROW_THREADS", self.row_threads),
            ("COLUMN_THREADS", self.column_threads),
        ];
        let sizes = sizes.into_iter().map(|(name, size)| format!("-D{name}={size}"));
        sizes.chain(sides).chain([T::option()]).collect()
    }

    // Fit groups and threads to a device
    fn fitted(mut self, tuning: Tuning) -> Result<Self, Error> {
        self.groups = tuning.groups.unwrap_or(self.pairs);
        while self.shared_by_columns() > SHARED[0] && self.groups != [1, 1] {
            let larger = usize::from(self.groups[1] > self.groups[0]);
            self.groups[larger] = self.groups[larger].div_ceil(2);
        }
        let most = [self.launch_rows(), self.launch_columns(), self.launch_rows_back(true)];
        if most.iter().any(|launch| launch.shared > SHARED[1]) {
            let expected = "transforms that fit into the shared memory of a block";
            return Err(Invalid::new("length of transforms", self.length(), expected).into());
        }
        // Count the threads of a plan
        self.mirrored &= self.groups == self.pairs && self.length() <= 512;
        let parts = (512 / self.length()).min(3);
        let tasks = self.length() * if self.mirrored { parts } else { self.groups[1] };
        let mixing = tasks.div_ceil(tasks.div_ceil(512)).next_multiple_of(32);
        let moving = self.threads(2 * self.groups[0].max(self.groups[1]));
        self.column_threads = mixing.max(moving);
        self.mirrored &= self.column_threads >= self.length();
        self.row_threads = self.threads(self.rows);
        Ok(self)
    }

    // Plan the transpose
    /// The plan of the transpose.
    fn turned(&self) -> Result<Self, Error> {
        let [points, pairs] = [self.points, self.pairs].map(|[from, to]| [to, from]);
        Self { points, pairs, mirrored: false, ..*self }.fitted(Tuning::default())
    }
}

// Next number of a residue
/// The next number from `least` that leaves the rest `residue` by `modulus`.
fn up_to(least: usize, residue: usize, modulus: usize) -> usize {
    least + (residue % modulus + modulus - least % modulus) % modulus
}

// Choose radices by their cost
/// Lengths of the small transforms that the kernels know.
const RADICES: [usize; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16];

/// Cycles of a thread, about, that a transform with these radices takes.
fn cost(radices: [usize; 3]) -> f64 {
    let step = |radix: usize| match radix {
        1 => 0.0,
        _ => 80.0 + radix as f64 * (10.0 + 4.0 * (radix as f64).log2()),
    };
    let runs = if radices[2].is_multiple_of(2) { 200.0 } else { 0.0 };
    let loads = 10.0 * radices[0] as f64;
    let length = radices.iter().product::<usize>() as f64;
    radices.into_iter().map(step).sum::<f64>() + runs + loads + length
}

// List radices from the cheapest
/// Radices of transforms of even length from `least`, the cheapest first; none beyond 4096.
fn radices(least: usize) -> Vec<[usize; 3]> {
    let all = RADICES.into_iter().flat_map(|first| {
        RADICES.into_iter().flat_map(move |second| RADICES.map(|third| [first, second, third]))
    });
    let good = |&[first, second, third]: &[usize; 3]| {
        let length = first * second * third;
        length >= least && length.is_multiple_of(2) && first > 1 && (second > 1 || third == 1)
    };
    let mut all: Vec<_> = all.filter(good).collect();
    all.sort_by(|&a, &b| cost(a).total_cmp(&cost(b)));
    all
}

// Tables of places in vectors
/// Places in a vector of the points of lattices, by pairs: (pairs, rows, points); -1 where there is no number.
///
/// `at` are the places of the numbers in a longer vector.
fn table(
    masks: &[Array2<bool>],
    step: usize,
    points: usize,
    rows: usize,
    at: Option<&[usize]>,
) -> Vec<[i32; 2]> {
    let sublattices = step * step;
    let pairs = (masks.len() * sublattices).div_ceil(2);
    let mut table = vec![[-1; 2]; pairs * rows * points];
    let mut number = 0;
    for (k, mask) in masks.iter().enumerate() {
        for ((y, x), _) in mask.indexed_iter().filter(|(_, used)| **used) {
            let lattice = k * sublattices + y % step * step + x % step;
            let place = (lattice / 2 * rows + y / step) * points + x / step;
            table[place][lattice % 2] = at.map_or(number, |at| at[number]) as i32;
            number += 1;
        }
    }
    table
}

// Tiles of different spectra
/// A spectrum, and whether it is conjugate; none where there is no lattice.
type Entry = Option<(usize, bool)>;

/// The different tiles, and which stands where, (pairs of outputs, pairs of inputs): twice its number, and 1 if adjoint.
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
/// Whether there are several pairs, and the tiles below the diagonal are the adjoints of those above.
fn is_mirrored(places: &Array2<i32>) -> bool {
    let mirrors = |((p, q), &tile): ((usize, usize), &i32)| {
        p > q || (tile & 1 == 0 && (p == q || places[[q, p]] == tile ^ 1))
    };
    let sums_fit = (2..=8).contains(&places.nrows());
    places.is_square() && sums_fit && places.indexed_iter().all(mirrors)
}

// Make the passes of a matrix
/// A matrix on the way to a device.
struct Making<'a, 'k> {
    // What is known of a matrix
    gpu: &'a Gpu,
    parts: &'a Parts<'k>,
    terms: Array2<(usize, bool)>,
    /// Points across the lattices of inputs and of outputs.
    points: [usize; 2],
    symmetric: bool,
    tuning: Tuning,
    /// Places of the numbers of both sides in longer vectors.
    at: Option<&'a [usize]>,
}

impl<'a, 'k> Making<'a, 'k> {
    // Start to make a matrix
    fn new(
        gpu: &'a Gpu,
        parts: &'a Parts<'k>,
        symmetric: bool,
        tuning: Tuning,
        at: Option<&'a [usize]>,
    ) -> Self {
        let points = [parts.shape.lenslets, parts.shape.points.div_ceil(parts.shape.step)];
        Self { gpu, parts, terms: parts.terms(), points, symmetric, tuning, at }
    }

    // Choose the form of a product
    fn passes<T: Number>(&self) -> Result<Passes<T>, Error> {
        let products = self.terms.len() * (self.points[0] * self.points[1]).pow(2);
        let fits = |transposed| self.shared_directly::<T>(transposed) <= SHARED[0];
        let small = products <= MOST_DIRECT && fits(false) && fits(true);
        if self.tuning.direct.unwrap_or(small) { self.directly() } else { self.by_transforms() }
    }

    /// Inputs and outputs, or these exchanged.
    fn sides<S: Clone>(sides: &[S; 2], transposed: bool) -> [S; 2] {
        let mut sides = sides.clone();
        sides.rotate_left(usize::from(transposed));
        sides
    }

    // Put tables of places on a device
    fn tables(&self, rows: usize) -> Result<[Arc<Buffer<[i32; 2]>>; 2], Error> {
        let (parts, [from, to]) = (self.parts, self.points);
        let [from_rows, to_rows] = self.points.map(|points| points.next_multiple_of(rows));
        let from = table(&parts.inputs, 1, from, from_rows, self.at);
        let to = table(&parts.outputs, parts.shape.step, to, to_rows, self.at);
        Ok([Arc::new(self.gpu.upload(&from)?), Arc::new(self.gpu.upload(&to)?)])
    }

    // Make passes of the plain sum
    fn directly<T: Number>(&self) -> Result<Passes<T>, Error> {
        let number = |&(tap, turned): &(usize, bool)| 2 * tap as i32 + i32::from(turned);
        let terms: Vec<i32> = self.terms.iter().map(number).collect();
        let taps = Arc::new(self.gpu.upload(&self.taps::<T>())?);
        let (terms, tables) = (Arc::new(self.gpu.upload(&terms)?), self.tables(1)?);
        let pass = |transposed| {
            let [from, to] = Self::sides(&tables, transposed);
            let (kernels, shape) = self.plain_kernels::<T>(transposed)?;
            let (taps, terms) = (Arc::clone(&taps), Arc::clone(&terms));
            let form = Form::Direct(Direct { taps, terms, kernels, shape });
            Ok::<_, Error>(Pass { from, to, form })
        };
        Ok((pass(false)?, if self.symmetric { None } else { Some(pass(true)?) }))
    }

    // Cut kernels into taps
    fn taps<T: Number>(&self) -> Vec<T> {
        let (shape, lags) = (&self.parts.shape, self.points[0] + self.points[1] - 1);
        let lag = |k: usize, residue| shape.lag((k + self.points[1]) % lags, residue, lags);
        let mut taps = Vec::new();
        for kernel in &self.parts.kernels {
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

    // Compile the plain sum
    fn plain_kernels<T: Number>(&self, transposed: bool) -> Result<([Kernel; 2], Launch), Error> {
        let (points, lattices) = (Self::sides(&self.points, transposed), self.lattices(transposed));
        let (warps, shared) =
            (warps(points[0], lattices[0]), self.shared_directly::<T>(transposed));
        if shared > SHARED[1] {
            let expected = "lattices that fit into the shared memory of a block";
            return Err(Invalid::new("points across", points[0], expected).into());
        }
        let sizes = [
            ("FROM_POINTS", points[0]),
            ("TO_POINTS", points[1]),
            ("FROM_LATTICES", lattices[0]),
            ("TO_LATTICES", lattices[1]),
            ("WARPS", warps),
            ("TRANSPOSED", usize::from(transposed)),
        ];
        let sizes = sizes.into_iter().map(|(name, size)| format!("-D{name}={size}"));
        let options: Vec<String> = sizes.chain([T::option()]).collect();
        let program = self.gpu.program(&PLAIN_SUM, &options)?;
        let kernels = [program.kernel("convolve")?, program.kernel("convolve_with_diagonal")?];
        let grid = [points[1].div_ceil(TILE[1]), points[1].div_ceil(TILE[0]), lattices[1]];
        Ok((kernels, Launch { grid, block: 32 * warps, shared }))
    }

    // Make passes of the transforms
    fn by_transforms<T: Number>(&self) -> Result<Passes<T>, Error> {
        let (tiles, places) = tiles(&self.terms);
        let plan = self.plan(tiles.len(), &places, 2 * size_of::<T>())?;
        let root = |k: usize| {
            let angle = -2.0 * std::f64::consts::PI * k as f64 / plan.length() as f64;
            Complex::new(T::of(angle.cos()), T::of(angle.sin()))
        };
        let roots: Vec<_> = (0..plan.length()).map(root).collect();
        let spectra = Arc::new(self.gpu.upload(&self.spectra::<T>(&tiles, plan.length()))?);
        let (roots, tables) = (Arc::new(self.gpu.upload(&roots)?), self.tables(plan.rows)?);
        let pass = |plan: Plan, tables: [_; 2], tiles: Vec<i32>| {
            // Make one pass of the transforms
            let program = self.gpu.program(&TRANSFORMS, &plan.options::<T>())?;
            let [lines, columns] = [0, 1].map(|side| {
                let rows = plan.points[side].next_multiple_of(plan.rows);
                self.gpu.zeros((plan.length() / 2 + 1) * 2 * plan.pairs[side] * rows)
            });
            let (with, without) = ("restore_rows_with_diagonal", "restore_rows");
            let form = Transformed {
                spectra: Arc::clone(&spectra),
                roots: Arc::clone(&roots),
                tiles: self.gpu.upload(&tiles)?,
                lines: lines?,
                columns: columns?,
                rows: program.kernel("transform_rows")?,
                mix: program.kernel("mix_columns")?,
                restore: [program.kernel(without)?, program.kernel(with)?],
                plan,
            };
            let [from, to] = tables;
            Ok::<_, Error>(Pass { from, to, form: Form::Transformed(Box::new(form)) })
        };
        let forward = pass(plan, tables.clone(), places.iter().copied().collect())?;
        let backward = (!self.symmetric).then(|| {
            let adjoint = places.t().iter().map(|tile| tile ^ 1).collect();
            pass(plan.turned()?, Self::sides(&tables, true), adjoint)
        });
        Ok((forward, backward.transpose()?))
    }

    // Plan the transforms of a matrix
    fn plan(&self, tiles: usize, places: &Array2<i32>, number: usize) -> Result<Plan, Error> {
        let least = self.parts.shape.least_length();
        let found = self.tuning.radices.or_else(|| radices(least).first().copied());
        let refused = || Invalid::new("length of transforms", least, "at most 4096 on a device");
        let radices = found.ok_or_else(refused)?;
        let pairs = [places.ncols(), places.nrows()];
        let mut plan = Plan {
            points: self.points,
            pairs,
            groups: pairs,
            tiles,
            mirrored: is_mirrored(places),
            radices,
            rows: self.tuning.rows.unwrap_or(32 / number),
            row_threads: 0,
            column_threads: 0,
            number,
        };
        while plan.launch_rows().shared > SHARED[0] && plan.rows > 1 {
            plan.rows /= 2;
        }
        plan.fitted(self.tuning)
    }

    // Interleave the spectra of tiles
    /// Half of the spectra of tiles, (L/2 + 1, tiles, 2, L, 2).
    fn spectra<T: Number>(&self, tiles: &[[Entry; 4]], length: usize) -> Vec<Complex<T>> {
        let fields = fields(&self.parts.kernels, &self.parts.shape, length);
        let of_kx = 4 * tiles.len() * length;
        let zero = Complex::new(T::of(0.0), T::of(0.0));
        let mut spectra = vec![zero; (length / 2 + 1) * of_kx];
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
        spectra
    }
}

// Sizes of the plain sum
/// Rows and columns of a tile of the plain sum, and columns of inputs that a warp takes at a time.
const TILE: [usize; 3] = [8, 4, 8];

/// Warps of a block: one for some columns of each input.
fn warps(points: usize, lattices: usize) -> usize {
    (lattices * points.div_ceil(TILE[2])).min(16)
}

impl Making<'_, '_> {
    // Lattices and memory of the plain sum
    /// Lattices of inputs and outputs.
    fn lattices(&self, transposed: bool) -> [usize; 2] {
        Self::sides(&[self.terms.ncols(), self.terms.nrows()], transposed)
    }

    /// Bytes that a block of the plain sum shares.
    fn shared_directly<T>(&self, transposed: bool) -> usize {
        let (points, lattices) =
            (Self::sides(&self.points, transposed)[0], self.lattices(transposed)[0]);
        let spanned = points.next_multiple_of(TILE[2]);
        let deep = points.next_multiple_of(TILE[0]);
        let inputs = spanned * (deep + 16 / size_of::<T>());
        let windows = (deep + TILE[0] - 1) * (spanned + TILE[1] - 1);
        let partial = TILE[0] * TILE[1] * warps(points, lattices);
        size_of::<T>() * (lattices * (inputs + windows) + partial)
    }
}

// Tests of products on a device
#[cfg(test)]
mod tests {
    // What tests of products on devices use
    use super::*;
    use crate::circulant::Circulant;
    use crate::device::gpu::test_machines;
    use crate::device_operator::OnHost;
    use crate::operator::battery::{check, distance, product, random};
    use crate::operator::{Diagonal, Operator, Real, Sum, shape};
    use crate::toeplitz::BlockToeplitz;
    use crate::toeplitz::tests::{covariance, kernels, masks};
    use ndarray::Array5;

    // Ways to make a product
    const DIRECTLY: Tuning = Tuning { direct: Some(true), radices: None, rows: None, groups: None };

    const BY_TRANSFORMS: Tuning = Tuning { direct: Some(false), ..DIRECTLY };

    // Hold a device to the host
    /// Holds an operator on a device to the battery, and to one on the host.
    fn compare<T: Number + Real>(
        device: impl DeviceOperator<T> + 'static,
        host: &dyn Operator<f64>,
        tolerance: f64,
    ) {
        let device = OnHost(Arc::new(device));
        check(&device, tolerance);
        for transposed in [false, true] {
            assert_eq!(shape(&device, transposed), shape(host, transposed));
            let x: Vec<f64> = random(shape(host, transposed).1, 4);
            let expected = product(host, transposed, &x, 1);
            let x: Vec<T> = x.into_iter().map(T::of).collect();
            let y = product(&device, transposed, &x, 1);
            let y: Vec<f64> = y.into_iter().map(Number::to_f64).collect();
            let error = distance(&y, &expected);
            assert!(error <= tolerance, "{error:e}, transposed: {transposed}");
        }
    }

    // Systems without any symmetry
    /// Random kernels, masks of points, masks of lenslets.
    struct System {
        kernels: Array5<f64>,
        step: usize,
        points: Vec<Array2<bool>>,
        valid: Vec<Array2<bool>>,
    }

    impl System {
        fn new([targets, sources]: [usize; 2], [lenslets, points, step]: [usize; 3]) -> Self {
            let kernels = kernels(targets, sources, step * (lenslets - 1) + points, 3);
            let (points, valid) =
                (masks(targets, points, 0.8, 4), masks(sources, lenslets, 0.7, 5));
            Self { kernels, step, points, valid }
        }

        // Compare a system on both machines
        fn parts(&self) -> Parts<'_> {
            let kernels = self.kernels.view();
            Parts::wavefront_slope(kernels, self.step, &self.points, &self.valid).unwrap()
        }

        /// Compares products on a device with those on the host.
        fn compare<T: Number + Real>(&self, gpu: &Gpu, tuning: Tuning, tolerance: f64) {
            let parts = self.parts();
            let device = BlockToeplitzGpu::<T>::of(gpu, &parts, false, tuning).unwrap();
            compare(device, &BlockToeplitz::<f64>::of(&parts), tolerance);
        }
    }

    // Compare systems in all forms
    #[test]
    fn products_are_those_of_the_host() {
        let systems =
            [([1, 1], [5, 5, 1]), ([2, 2], [4, 7, 2]), ([3, 1], [9, 8, 3]), ([1, 3], [1, 6, 1])];
        for gpu in test_machines() {
            for (sides, sizes) in systems {
                let system = System::new(sides, sizes);
                for tuning in [DIRECTLY, BY_TRANSFORMS] {
                    system.compare::<f64>(&gpu, tuning, 1e-12);
                    system.compare::<f32>(&gpu, tuning, 1e-5);
                }
            }
        }
    }

    // Compare all radices and groups
    #[test]
    fn all_radices_and_groups_give_the_same() {
        let system = System::new([5, 2], [2, 2, 1]);
        let two = [[16, 15, 1], [14, 10, 1], [12, 9, 1], [8, 7, 1], [10, 1, 1]];
        for gpu in test_machines() {
            for radices in two.into_iter().chain([[6, 5, 4], [3, 3, 2], [4, 2, 7]]) {
                let tuning = Tuning { radices: Some(radices), ..BY_TRANSFORMS };
                system.compare::<f64>(&gpu, tuning, 1e-12);
            }
            for groups in [[1, 1], [1, 2], [2, 1], [1, 3]] {
                let tuning = Tuning { groups: Some(groups), ..BY_TRANSFORMS };
                system.compare::<f64>(&gpu, tuning, 1e-12);
            }
        }
    }

    // Check slopes and the preconditioner on devices
    #[test]
    fn slopes_share_spectra_and_take_noise() {
        let (covariance, valid) = (covariance(3, 7), masks(3, 7, 0.7, 5));
        let host = BlockToeplitz::<f64>::slopes(&covariance, &valid).unwrap();
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        assert_eq!(tiles(&parts.terms()).0.len(), 4);
        let noise: Vec<f64> = random(host.rows(), 6);
        let sum = Sum::new(vec![Arc::new(host), Arc::new(Diagonal::new(noise.clone()))]).unwrap();
        for gpu in test_machines() {
            for tuning in [DIRECTLY, BY_TRANSFORMS] {
                let device = BlockToeplitzGpu::<f64>::of(&gpu, &parts, true, tuning).unwrap();
                compare(device.with_diagonal(&noise).unwrap(), &sum, 1e-12);
                let device = BlockToeplitzGpu::<f32>::of(&gpu, &parts, true, tuning).unwrap();
                compare(device.with_diagonal(&noise).unwrap(), &sum, 1e-5);
            }
        }
    }

    // Hold the preconditioner to the host
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

    // Hold mirrored tiles to the host
    #[test]
    fn mirrored_tiles_need_no_symmetry() {
        let (valid, lags) = (masks(3, 6, 0.8, 8), 11 * 11);
        let kernel = |k: u64| Array2::from_shape_vec((11, 11), random(lags, 20 + k)).unwrap();
        let kernels: Vec<_> = (0..21).map(kernel).collect();
        let parts = parts_of(&kernels, &valid).unwrap();
        assert!(is_mirrored(&tiles(&parts.terms()).1));
        let host = BlockToeplitz::<f64>::of(&parts);
        for gpu in test_machines() {
            for radices in [[4, 3, 1], [4, 4, 9], [2, 7, 1]] {
                let tuning = Tuning { radices: Some(radices), ..BY_TRANSFORMS };
                let device = BlockToeplitzGpu::<f64>::of(&gpu, &parts, false, tuning).unwrap();
                compare(device, &host, 1e-12);
            }
        }
    }

    // Check that products repeat bit by bit
    #[test]
    fn products_repeat_bit_by_bit() {
        let (covariance, valid) = (covariance(2, 6), masks(2, 6, 0.7, 5));
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        for gpu in test_machines() {
            let times = if gpu.name().starts_with("cuda") { 1000 } else { 4 };
            for tuning in [DIRECTLY, BY_TRANSFORMS] {
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

    // Check refusals and radices
    #[test]
    fn what_cannot_be_done_is_refused() {
        let system = System::new([1, 1], [3, 3, 1]);
        for gpu in test_machines() {
            let device =
                BlockToeplitzGpu::<f64>::of(&gpu, &system.parts(), false, BY_TRANSFORMS).unwrap();
            let [x, y] = [device.columns(), device.rows()].map(|len| gpu.zeros(len).unwrap());
            assert!(device.apply(&y, &x).is_err() && device.apply(&x, &x).is_err());
            assert!(device.with_diagonal(&[1.0]).is_err());
            let large = Tuning { radices: Some([16; 3]), ..BY_TRANSFORMS };
            let refused = BlockToeplitzGpu::<f64>::of(&gpu, &system.parts(), false, large);
            assert!(refused.err().unwrap().to_string().starts_with("length of transforms = 4096"));
        }
        assert!(radices(4097).is_empty());
        for least in (1..80).chain([159, 299, 1025, 2047]) {
            let length: usize = radices(least)[0].iter().product();
            assert!(length >= least && length <= least + least / 4 + 2, "{least}: {length}");
        }
    }
}
