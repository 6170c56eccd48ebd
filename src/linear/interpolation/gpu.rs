// Tangled from book/src/estimate-gpu.md: edit there, or here and run cargo tangle stitch.
//! Interpolation of layers' wavefronts to the pupil's grid, on a device.

use crate::device::gpu::{Argument, Buffer, Gpu, Kernel, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::{Error, Invalid, accept};
use crate::linear::interpolation::ToPupil;
use crate::linear::operator::gpu::{DeviceOperator, check_lengths};
use crate::numerics::real::Real;

// Layers brought to the pupil on a device
const SOURCE: KernelSource = KernelSource {
    name: "layers.cu",
    text: include_str!("../../../kernels/linear/layers.cu"),
    headers: &[REAL],
};

/// Threads in a block.
const THREADS: usize = 128;

/// The sum of the ways of several layers to the pupil, (P_1 … P_L) of Eq. [stacked layers](https://lenslet.github.io/lenslet/estimate-gpu.html#eq-stacked-layers).
pub struct LayersGpu<T> {
    gpu: Gpu,
    /// Size and start of each layer.
    layers: Buffer<i32>,
    /// First points of the stencils, and weights, layer by layer.
    first: Buffer<i32>,
    weights: Buffer<T>,
    targets: usize,
    points: usize,
    sizes: Vec<usize>,
    kernels: [Kernel; 2],
    one_by_one: Kernel,
}

// Place layers and stencils on a device
impl<T: Real> LayersGpu<T> {
    /// The operator that adds up what `layers`, one or more with the same targets and points of the pupil, give.
    ///
    /// # Errors
    /// `Invalid` where there is no layer or they differ; what the device says.
    pub fn new(gpu: &Gpu, layers: &[ToPupil<f64>]) -> Result<Self, Error> {
        let expected = "at least one, with the targets and points of the first";
        let none = || Invalid::new("layers", 0, expected);
        let (targets, points) =
            layers.first().map(|layer| (layer.targets, layer.points)).ok_or_else(none)?;
        let alike = layers.iter().all(|layer| (layer.targets, layer.points) == (targets, points));
        accept(alike, "layers", layers.len(), expected)?;
        // Lay the stencils of all layers out
        let width = layers.iter().map(|layer| layer.stencils.width).max().unwrap_or(0);
        let (mut table, mut first, mut weights, mut start) =
            (Vec::new(), Vec::new(), Vec::new(), 0);
        for layer in layers {
            table.extend([layer.layer_points as i32, start as i32]);
            start += targets * layer.layer_points.pow(2);
            first.extend(layer.stencils.first.iter().map(|&first| first as i32));
            for stencil in layer.stencils.weights.chunks(layer.stencils.width) {
                let padding = std::iter::repeat_n(0.0, width - stencil.len());
                weights.extend(stencil.iter().copied().chain(padding).map(T::of));
            }
        }
        // Put the stencils on the device
        let program = gpu.program::<T>(&SOURCE, &[("WIDTH", width)])?;
        Ok(Self {
            layers: gpu.upload(&table)?,
            first: gpu.upload(&first)?,
            weights: gpu.upload(&weights)?,
            kernels: [program.kernel("gather_layers")?, program.kernel("scatter_layers")?],
            one_by_one: program.kernel("scatter_points")?,
            sizes: layers.iter().map(|layer| layer.layer_points).collect(),
            gpu: gpu.clone(),
            targets,
            points,
        })
    }

    // Launch over the points of layers or pupil
    fn launch(&self, transposed: bool, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        let (rows, columns) = (self.rows(), self.columns());
        let shape = if transposed { (columns, rows) } else { (rows, columns) };
        check_lengths(x, y, shape)?;
        let largest = self.sizes.iter().max().map_or(0, |size| self.targets * size * size);
        let shape = match transposed {
            false => Shape::over(rows, THREADS, [1, 1]),
            true => Shape::over(largest, THREADS, [self.sizes.len(), 1]),
        };
        let tables = [(&self.layers).into(), (&self.first).into(), (&self.weights).into()];
        let sizes = [self.sizes.len(), self.points, self.targets].map(Argument::from);
        let sizes = &sizes[usize::from(transposed)..];
        let arguments = [&[x.into(), y.into()], &tables[..], sizes].concat();
        self.gpu.launch(&self.kernels[usize::from(transposed)], shape, &arguments)
    }
}

// Scatter points to the layers
impl<T: Real> LayersGpu<T> {
    /// What the transpose makes of pupils that are 1 at one point and less by the mean over the pupil elsewhere, for the points from
    /// `first` on, one behind the other; `mean` is what it makes of the weights of that mean, and beyond the last point comes the last again.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn scatter_points(
        &self,
        mean: &Buffer<T>,
        first: usize,
        fields: &Buffer<T>,
    ) -> Result<(), Error> {
        let (length, tables) = (self.columns(), [&self.layers, &self.first].map(Argument::from));
        let largest = self.sizes.iter().max().map_or(0, |size| self.targets * size * size);
        let shape = Shape::over(largest, THREADS, [self.sizes.len(), fields.len() / length]);
        let sizes = [first, self.points, self.targets, length].map(Argument::from);
        let [layers, stencils] = tables;
        let buffers = [mean.into(), fields.into(), layers, stencils, (&self.weights).into()];
        self.gpu.launch(&self.one_by_one, shape, &[&buffers[..], &sizes].concat())
    }
}

// Answers of the layers as an operator
impl<T: Real> DeviceOperator<T> for LayersGpu<T> {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.targets * self.points.pow(2)
    }

    fn columns(&self) -> usize {
        self.sizes.iter().map(|size| self.targets * size * size).sum()
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.launch(false, x, y)
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.launch(true, x, y)
    }

    fn bytes(&self) -> u64 {
        self.layers.bytes() + self.first.bytes() + self.weights.bytes()
    }
}
