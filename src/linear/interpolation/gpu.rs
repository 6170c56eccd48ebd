// Tangled from book/src/layers-gpu.md: edit there, or here and run cargo tangle stitch.
//! Interpolation of layers' wavefronts to the pupil's grid, on a device.

use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::{Error, Invalid, accept};
use crate::linear::interpolation::ToPupil;
use crate::linear::operator::gpu::{DeviceOperator, check_lengths};
use crate::numerics::real::Real;

// Layers brought to the pupil on a device
// Kernels between layers and pupil
const SOURCE: KernelSource = KernelSource {
    name: "layers.cu",
    text: include_str!("../../../kernels/linear/layers.cu"),
    headers: &[REAL],
};

kernels! {
    /// Kernels of the interpolation of layers to the pupil.
    struct LayerKernels in SOURCE {
        /// Interpolates the wavefronts of layers at the points of the pupil.
        gather_layers: GatherLayers<T> {
            wavefronts: [T], pupil: [T], layers: [i32] as "Layer", first: [i32], weights: [T],
            count: usize, points: usize, targets: usize,
        }
        /// Its transpose.
        scatter_layers: ScatterLayers<T> {
            pupil: [T], wavefronts: [T], layers: [i32] as "Layer", first: [i32], weights: [T],
            points: usize, targets: usize,
        }
        /// Its transpose for pupils that are 1 at one point.
        scatter_points: ScatterPoints<T> {
            mean: [T], wavefronts: [T], layers: [i32] as "Layer", first: [i32], weights: [T],
            from: usize, points: usize, targets: usize, length: usize,
        }
    }
}

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
    kernels: LayerKernels<T>,
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
        Ok(Self {
            layers: gpu.upload(&table)?,
            first: gpu.upload(&first)?,
            weights: gpu.upload(&weights)?,
            kernels: LayerKernels::load(gpu, &[("WIDTH", width)])?,
            sizes: layers.iter().map(|layer| layer.layer_points).collect(),
            gpu: gpu.clone(),
            targets,
            points,
        })
    }

    // Launch over the points of the layers
    /// A thread for each point of the largest layer, and so many blocks of them along z.
    fn over_layers(&self, fields: usize) -> Shape {
        let largest = self.sizes.iter().max().map_or(0, |size| self.targets * size * size);
        Shape::over(largest, THREADS, [self.sizes.len(), fields])
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
        let length = self.columns();
        let arguments = ScatterPoints {
            mean: mean.view(..),
            wavefronts: fields.view(..),
            layers: self.layers.view(..),
            first: self.first.view(..),
            weights: self.weights.view(..),
            from: first,
            points: self.points,
            targets: self.targets,
            length,
        };
        let shape = self.over_layers(fields.len() / length);
        self.gpu.launch(&self.kernels.scatter_points, shape, arguments)
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
        let rows = self.rows();
        check_lengths(x, y, (rows, self.columns()))?;
        let arguments = GatherLayers {
            wavefronts: x.view(..),
            pupil: y.view(..),
            layers: self.layers.view(..),
            first: self.first.view(..),
            weights: self.weights.view(..),
            count: self.sizes.len(),
            points: self.points,
            targets: self.targets,
        };
        let shape = Shape::over(rows, THREADS, [1, 1]);
        self.gpu.launch(&self.kernels.gather_layers, shape, arguments)
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.columns(), self.rows()))?;
        let arguments = ScatterLayers {
            pupil: x.view(..),
            wavefronts: y.view(..),
            layers: self.layers.view(..),
            first: self.first.view(..),
            weights: self.weights.view(..),
            points: self.points,
            targets: self.targets,
        };
        self.gpu.launch(&self.kernels.scatter_layers, self.over_layers(1), arguments)
    }

    fn bytes(&self) -> u64 {
        self.layers.bytes() + self.first.bytes() + self.weights.bytes()
    }
}
