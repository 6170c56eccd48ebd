// Tangled from book/src/spectral-plan-gpu.md: edit there, or here and run cargo tangle stitch.
//! Covariances from the power spectrum on graphics processors: fold, transform, gather.

// Imports of spectra on the GPU
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Fft, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::device::{Workers, gather};
use crate::error::{Error, Invalid, accept};
use crate::numerics::real::Real;
use crate::turbulence::slope::{PairCovariance, ProjectedLayer, SlopeProblem};
use crate::turbulence::spectral;
use crate::turbulence::spectral::slope::{SpectralSampling, sincs};
use crate::turbulence::wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
use crate::watch::Watch;
use ndarray::{Array3, Array5};
use num_complex::Complex;

const SPECTRAL: KernelSource = KernelSource {
    name: "spectral.cu",
    text: include_str!("../../../kernels/turbulence/spectral.cu"),
    headers: &[REAL],
};

// Kernels of the spectral method
kernels! {
    /// Kernels of the spectral method.
    struct SpectralKernels in SPECTRAL {
        /// Waves of displacements over the frequencies of an axis.
        waves: Waves<T> { cycles: [f64], table: [Complex<T>] as "complex", count: usize, length: usize }
        /// Folds spectra of products into the band of a lattice.
        fold: Fold<T> {
            layers: [f64] as "Layer", lenslet: [T], waves: [Complex<T>] as "complex",
            planes: [Complex<T>] as "complex", layer_count: usize, folded: usize, half: usize,
        }
        /// Gathers covariances at the displacements of a lattice.
        gather: Gather<T> {
            planes: [Complex<T>] as "complex", fields: [T], folded: usize, lags: usize, shift: usize,
        }
    }
}

// Slope covariance by spectra on devices
/// Slope covariance of the pairs of [`SlopeProblem::pairs`], in their order, on `gpus` in the precision T; rad².
///
/// Equals [`spectral::slope::pair_covariances`] of the same sampling to rounding. `watch` counts groups of up to four pairs. The
/// result does not depend on how many devices share them.
///
/// # Errors
/// `Invalid` where the transform has fewer than 2N − 1 lags, or there is no device; `Cancelled` if `watch` requests a stop;
/// `Device` where CUDA fails.
pub fn slope_pairs<T: Real>(
    problem: &SlopeProblem,
    sampling: &SpectralSampling,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Vec<PairCovariance>, Error> {
    let lags = problem.lags();
    sampling.check(format_args!("{} lenslets", problem.lenslets()), lags)?;
    let fields = DeviceSpectrum::of_slopes::<T>(problem, sampling).compute::<T>(gpus, watch)?;
    let shape = |fields| Array3::from_shape_vec((3, lags, lags), fields);
    Ok(fields.into_iter().flatten().flat_map(shape).collect())
}

// Wavefront covariance by spectra on devices
/// Wavefront–slope covariance on `gpus` in the precision T, m rad: the twin of [`spectral::wavefront::covariance`].
///
/// # Errors
/// As [`slope_pairs`].
pub fn wavefront<T: Real>(
    problem: &WavefrontProblem,
    sampling: &SpectralSampling,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<WavefrontSlope, Error> {
    spectral::wavefront::check(problem, sampling)?;
    let spectrum = DeviceSpectrum::of_wavefront::<T>(problem, sampling);
    let fields = spectrum.compute::<T>(gpus, watch)?;
    let lattice = |(pairs, lattice): (Vec<Vec<f64>>, &LagLattice)| {
        let shape = (problem.targets(), problem.stars(), 2, lattice.lags, lattice.lags);
        Array5::from_shape_vec(shape, pairs.concat())
    };
    let lattices = fields.into_iter().zip(&spectrum.lattices).flat_map(lattice);
    Ok(WavefrontSlope::of_lattices(lattices.collect()))
}

// Memory that spectra take on devices
/// Bytes of a device's memory that [`slope_pairs`] takes.
pub(crate) fn slope_memory<T: Real>(problem: &SlopeProblem, sampling: &SpectralSampling) -> u64 {
    DeviceSpectrum::of_slopes::<T>(problem, sampling).memory::<T>()
}

/// Bytes of a device's memory that [`wavefront`] takes.
pub(crate) fn wavefront_memory<T: Real>(
    problem: &WavefrontProblem,
    sampling: &SpectralSampling,
) -> u64 {
    DeviceSpectrum::of_wavefront::<T>(problem, sampling).memory::<T>()
}

// Spectrum as the device takes it
/// A spectrum to fold: all that the kernels need to know of a problem and its sampling.
struct DeviceSpectrum {
    /// e: 2 for slopes, 1 for wavefront–slope.
    derivatives: usize,
    /// F.
    folded: usize,
    /// N_F/2.
    half: usize,
    /// Pairs of sources of each lattice.
    pairs: usize,
    /// Pairs that a thread serves together: 1, 2 or 4.
    together: usize,
    /// G of each n = 0 … N_F/2.
    lenslet: Vec<f64>,
    lattices: Vec<LagLattice>,
}

/// Lags that are transformed together, from one layer or all.
struct LagLattice {
    lags: usize,
    /// Where the transform has lag 0.
    shift: usize,
    layers: Vec<SampledLayer>,
}

// Describe and compute a spectrum
// Layer of a spectrum without units
/// A layer in the units of Eq. [sample without unit](https://lenslet.github.io/lenslet/spectral-gpu.html#eq-sample-without-unit).
struct SampledLayer {
    /// s.
    ratio: f64,
    /// Σ in the unit of the result.
    strength: f64,
    /// R Δ.
    disc: f64,
    /// For each pair, the cycles a sample along x and y.
    cycles: Vec<[f64; 2]>,
}

impl SampledLayer {
    /// A layer whose sample is `scale` (f² + 1/L0²)^(−11/6) times the derivatives in steps of the frequency.
    fn new((step, scale): (f64, f64), outer_scale: f64, disc: f64, offsets: Vec<[f64; 2]>) -> Self {
        let lowest = step * step + outer_scale.powi(-2);
        Self {
            ratio: step * step / lowest,
            strength: scale * lowest.powf(-11.0 / 6.0),
            disc: disc * step,
            cycles: offsets.iter().map(|offset| offset.map(|offset| offset * step)).collect(),
        }
    }
}

impl DeviceSpectrum {
    // Describe the spectrum of slopes
    fn of_slopes<T: Real>(problem: &SlopeProblem, sampling: &SpectralSampling) -> Self {
        let (folded, pairs, lags) = (sampling.folded(), problem.pairs(), problem.lags());
        let layer = |layer: &ProjectedLayer| {
            let (step, scale) = spectral::slope::step_and_scale(layer, folded);
            let offsets = pairs.iter().map(|&(p, q)| problem.offset(layer, p, q)).collect();
            SampledLayer::new((step, scale * step * step), layer.outer_scale, 0.0, offsets)
        };
        let layers = problem.layers().iter().map(layer).collect();
        Self {
            derivatives: 2,
            folded,
            half: sampling.samples() / 2,
            pairs: pairs.len(),
            together: 1,
            lenslet: sincs(sampling, 1).iter().map(|sinc| sinc * sinc).collect(),
            lattices: vec![LagLattice { lags, shift: folded - lags / 2, layers }],
        }
        .group_pairs::<T>()
    }

    // Describe the spectrum of wavefronts
    fn of_wavefront<T: Real>(problem: &WavefrontProblem, sampling: &SpectralSampling) -> Self {
        let (folded, stars) = (sampling.folded(), problem.stars());
        let pairs = problem.targets() * stars;
        let layer = |layer: &WavefrontLayer| {
            let (step, scale) = spectral::wavefront::step_and_scale(layer, folded);
            let first = |pair| problem.first_lag(layer, pair / stars, pair % stars);
            let offsets = (0..pairs).map(first).collect();
            SampledLayer::new((step, scale * step), layer.outer_scale, layer.disc, offsets)
        };
        let lattice = |layers: &[WavefrontLayer]| LagLattice {
            lags: problem.lags(&layers[0]),
            shift: 0,
            layers: layers.iter().map(layer).collect(),
        };
        Self {
            derivatives: 1,
            folded,
            half: sampling.samples() / 2,
            pairs,
            together: 1,
            lenslet: sincs(sampling, problem.grid().oversampling),
            lattices: problem.lattices().map(lattice).collect(),
        }
        .group_pairs::<T>()
    }

    // Count the memory of a group
    /// Fields of a group, and the planes that hold them.
    fn fields_and_planes(&self) -> (usize, usize) {
        let fields = self.together * (self.derivatives + 1);
        (fields, fields.div_ceil(2))
    }

    /// Device memory in bytes at work on one group: planes and as much for their transform, waves, lags, tables.
    fn memory<T>(&self) -> u64 {
        let (fields, planes) = self.fields_and_planes();
        let planes = 4.0 * planes as f64 * (self.folded as f64).powi(2);
        let waves = (4 * self.layers() * self.together) as f64 * self.lenslet.len() as f64;
        let lags = fields as f64 * (self.most_lags() as f64).powi(2);
        let tables = self.lenslet.len() as f64 + (8 * self.layers() * (self.together + 3)) as f64;
        (size_of::<T>() as f64 * (planes + waves + lags + tables)) as u64 // saturates
    }

    // Count layers and lags of lattices
    /// Layers of each lattice: lattices have one, or there is one lattice.
    fn layers(&self) -> usize {
        self.lattices[0].layers.len()
    }

    fn most_lags(&self) -> usize {
        self.lattices.iter().map(|lattice| lattice.lags).max().unwrap_or(0)
    }

    // Choose how many pairs go together
    /// Takes as many pairs together as the kernel can and 24 MB hold, and at least one.
    fn group_pairs<T>(mut self) -> Self {
        const MOST: u64 = 24_000_000;
        self.together = self.pairs.next_power_of_two().min(4);
        while self.together > 1 && self.memory::<T>() > MOST {
            self.together /= 2;
        }
        self
    }

    // Share groups over the devices
    /// The fields of each lattice and pair, (components, K, K), in the unit of the result.
    fn compute<T: Real>(
        &self,
        gpus: &[Gpu],
        watch: &dyn Watch,
    ) -> Result<Vec<Vec<Vec<f64>>>, Error> {
        let none = || Invalid::new("devices", 0, "at least one graphics processor");
        gpus.first().ok_or_else(none)?;
        self.check_count()?;
        let workers: Vec<SpectralWorker<T>> =
            gpus.iter().map(|gpu| SpectralWorker::new(self, gpu)).collect::<Result<_, _>>()?;
        let groups = self.pairs.div_ceil(self.together);
        let items: Vec<(usize, usize)> =
            (0..self.lattices.len() * groups).map(|k| (k / groups, k % groups)).collect();
        let fields =
            gather(Workers::devices(&workers), items, watch, |worker, (lattice, group)| {
                worker.group(&self.lattices[lattice], group * self.together)
            })?;
        let mut pairs = fields.into_iter().flatten();
        Ok(self.lattices.iter().map(|_| pairs.by_ref().take(self.pairs).collect()).collect())
    }

    // Refuse more samples than are counted
    fn check_count(&self) -> Result<(), Invalid> {
        let samples = 2 * self.half;
        accept(samples <= 1 << 24, "samples", samples, "at most 2^24 on a graphics processor")?;
        Ok(())
    }
}

// Device at work on groups
/// A device with all that the groups of a spectrum need on it.
struct SpectralWorker<'a, T: Real> {
    spectrum: &'a DeviceSpectrum,
    gpu: &'a Gpu,
    kernels: SpectralKernels<T>,
    fft: Fft<Complex<T>>,
    /// G, (N_F/2 + 1).
    lenslet: Buffer<T>,
    /// Ratio, strength, disc, (layers, 3).
    layers: Buffer<f64>,
    /// Cycles, (2, layers, together).
    cycles: Buffer<f64>,
    /// Waves, (2, layers, together, N_F/2 + 1).
    table: Buffer<Complex<T>>,
    /// Two fields each, (planes, F, F).
    planes: Buffer<Complex<T>>,
    /// (fields, K, K).
    fields: Buffer<T>,
}

// Put a device to work
impl<'a, T: Real> SpectralWorker<'a, T> {
    // Prepare a device for its groups
    fn new(spectrum: &'a DeviceSpectrum, gpu: &'a Gpu) -> Result<Self, Error> {
        let sizes = [("DERIVATIVES", spectrum.derivatives), ("PAIRS", spectrum.together)];
        let (fields, planes) = spectrum.fields_and_planes();
        let (layers, length) = (spectrum.layers(), spectrum.lenslet.len());
        let lenslet: Vec<T> = spectrum.lenslet.iter().map(|&g| T::of(g)).collect();
        let waves = 2 * layers * spectrum.together;
        Ok(Self {
            spectrum,
            gpu,
            kernels: SpectralKernels::load(gpu, &sizes)?,
            // Allocate the buffers of a group
            fft: gpu.inverse_fft(&[spectrum.folded; 2], planes)?,
            lenslet: gpu.upload(&lenslet)?,
            layers: gpu.zeros(3 * layers)?,
            cycles: gpu.zeros(waves)?,
            table: gpu.zeros(waves * length)?,
            planes: gpu.zeros(planes * spectrum.folded.pow(2))?,
            fields: gpu.zeros(fields * spectrum.most_lags().pow(2))?,
        })
    }

    // Compute the fields of one group
    /// The fields of the pairs of a lattice from number `first` on, as many as go together; each (components, K, K).
    fn group(&self, lattice: &LagLattice, first: usize) -> Result<Vec<Vec<f64>>, Error> {
        let strengths = lattice.layers.iter().map(|layer| layer.strength);
        let unit = strengths.fold(f64::MIN_POSITIVE, f64::max);
        let numbers = |layer: &SampledLayer| [layer.ratio, layer.strength / unit, layer.disc];
        let layers: Vec<f64> = lattice.layers.iter().flat_map(numbers).collect();
        let pairs = first..first + self.spectrum.together;
        let cycle = |axis: usize, layer: &SampledLayer, pair: usize| {
            layer.cycles.get(pair).map_or(0.0, |cycles| cycles[axis])
        };
        let mut cycles = Vec::new();
        for axis in 0..2 {
            for layer in &lattice.layers {
                cycles.extend(pairs.clone().map(|pair| cycle(axis, layer, pair)));
            }
        }
        self.layers.write(&layers)?;
        self.cycles.write(&cycles)?;
        self.launch(lattice)?;
        let fields = self.fields.read()?;
        let pair = |fields: &[T]| fields.iter().map(|field| unit * field.in_double()).collect();
        let length = (self.spectrum.derivatives + 1) * lattice.lags.pow(2);
        let pairs = self.spectrum.together.min(self.spectrum.pairs - first);
        Ok(fields.chunks(length).take(pairs).map(pair).collect())
    }

    // Launch the kernels of a group
    fn launch(&self, lattice: &LagLattice) -> Result<(), Error> {
        let (spectrum, length) = (self.spectrum, self.spectrum.lenslet.len());
        let (folded, layer_count) = (spectrum.folded, spectrum.layers());
        let count = 2 * layer_count * spectrum.together;
        let [cycles, layers] = [&self.cycles, &self.layers].map(|numbers| numbers.view(..));
        let [table, planes] = [&self.table, &self.planes].map(|numbers| numbers.view(..));
        let [lenslet, fields] = [&self.lenslet, &self.fields].map(|numbers| numbers.view(..));
        // Tabulate, fold, transform and gather
        const BLOCK: usize = 128; // 32 bins of four parts in `fold`
        let waves = Waves { cycles, table, count, length };
        let shape = Shape::over(length, BLOCK, [count, 1]);
        self.gpu.launch(&self.kernels.waves, shape, waves)?;
        let (bins, half) = ((folded / 2 + 1) * folded, spectrum.half);
        let fold = Fold { layers, lenslet, waves: table, planes, layer_count, folded, half };
        self.gpu.launch(&self.kernels.fold, Shape::over(4 * bins, BLOCK, [1, 1]), fold)?;
        self.gpu.transform(&self.fft, &self.planes, &self.planes)?;
        let values = spectrum.fields_and_planes().0 * lattice.lags.pow(2);
        let gather = Gather { planes, fields, folded, lags: lattice.lags, shift: lattice.shift };
        self.gpu.launch(&self.kernels.gather, Shape::over(values, BLOCK, [1, 1]), gather)
    }
}

// Tests of spectra on the GPU
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::watch::unwatched;

    // Pose problems without symmetry twice
    const PLACES: [(f64, f64); 5] =
        [(1e-4, 0.3), (2e-4, 2.0), (1.5e-4, 4.4), (0.0, 0.0), (5e-5, 1.0)];

    fn stars(count: usize, height: f64) -> Vec<Source> {
        let star = |&(zenith, azimuth): &(f64, f64)| Source::new(zenith, azimuth, height).unwrap();
        PLACES[..count].iter().map(star).collect()
    }

    fn atmosphere() -> Atmosphere {
        let layers = vec![
            Layer::new(0.0, 0.5, f64::INFINITY),
            Layer::new(4000.0, 0.3, 11.0),
            Layer::new(9000.0, 0.2, 3.0),
        ];
        Atmosphere::new(0.15, 500e-9, layers).unwrap()
    }

    // Compare slopes with the processor's
    fn compare_slopes<T: Real>(
        gpu: &Gpu,
        problem: &SlopeProblem,
        sampling: (usize, usize),
        least: f64,
    ) {
        let sampling = SpectralSampling::new(sampling.0, sampling.1).unwrap();
        let expected = spectral::slope::pair_covariances(problem, &sampling, &unwatched).unwrap();
        let gpus = [gpu.clone(), gpu.clone()];
        let computed = slope_pairs::<T>(problem, &sampling, &gpus, &unwatched).unwrap();
        assert_eq!(computed.len(), expected.len());
        let (centre, gpus) = (problem.lenslets() - 1, &gpus[..1]);
        let variance = expected[0][[0, centre, centre]];
        for (computed, expected) in computed.iter().zip(&expected) {
            assert_eq!(computed.dim(), expected.dim());
            let differences = (computed - expected).into_iter();
            let worst = differences.fold(0.0, |worst: f64, x| worst.max(x.abs())) / variance;
            assert!(worst < least, "{sampling:?} on {}: {worst:e}", gpu.name());
        }
        let alone = slope_pairs::<T>(problem, &sampling, gpus, &unwatched).unwrap();
        assert_eq!(alone, computed, "not the same by one device and by two");
    }

    // Compare small slope problems with the processor
    #[test]
    fn slopes_are_those_of_the_processor() {
        for gpu in test_backends() {
            for (sampling, count) in [
                ((64, 4), 3),
                ((60, 4), 2),
                ((84, 3), 5),
                ((120, 5), 1),
                ((30, 2), 3),
                ((14, 1), 4),
            ] {
                let array = LensletArray::new(4, 0.4).unwrap();
                let stars = stars(count, 90e3);
                let problem =
                    SlopeProblem::new(&atmosphere(), &array, &stars, ConeGradient::Pupil).unwrap();
                compare_slopes::<f64>(&gpu, &problem, sampling, 1e-13);
                if count > 2 {
                    compare_slopes::<f32>(&gpu, &problem, sampling, 1e-6);
                }
            }
        }
    }

    // Compare wavefronts with the processor's
    fn compare_wavefronts<T: Real>(
        gpu: &Gpu,
        problem: &WavefrontProblem,
        sampling: (usize, usize),
        least: f64,
    ) {
        let sampling = SpectralSampling::new(sampling.0, sampling.1).unwrap();
        let expected = spectral::wavefront::covariance(problem, &sampling, &unwatched).unwrap();
        let gpus = [gpu.clone(), gpu.clone()];
        let computed = wavefront::<T>(problem, &sampling, &gpus, &unwatched).unwrap();
        assert_eq!(computed.lattices().len(), expected.lattices().len());
        for (computed, expected) in computed.lattices().iter().zip(expected.lattices()) {
            assert_eq!(computed.dim(), expected.dim());
            let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let differences = (computed - expected).into_iter();
            let worst = differences.fold(0.0, |worst: f64, x| worst.max(x.abs())) / largest;
            assert!(worst < least, "{sampling:?} on {}: {worst:e}", gpu.name());
        }
        let alone = wavefront::<T>(problem, &sampling, &gpus[..1], &unwatched).unwrap();
        assert_eq!(alone, computed, "not the same by one device and by two");
    }

    // Compare small wavefront problems with the processor
    #[test]
    fn wavefronts_are_those_of_the_processor() {
        let cases = [
            ((5, 1, 0.0), (64, 4), (1, 1)),
            ((4, 1, 2e-5), (90, 5), (2, 1)),
            ((8, 2, 0.0), (64, 2), (1, 3)),
            ((9, 2, 3e-5), (90, 3), (2, 3)),
            ((11, 3, 0.0), (28, 1), (2, 2)),
        ];
        for gpu in test_backends() {
            for ((grid, sampling, sources), height) in
                cases.into_iter().flat_map(|case| [(case, f64::INFINITY), (case, 90e3)])
            {
                let array = LensletArray::new(4, 0.4).unwrap();
                let grid = PhaseGrid::new(grid.0, grid.1, grid.2).unwrap();
                let (targets, stars) = (stars(sources.0, f64::INFINITY), stars(sources.1, height));
                let sources = (&targets[..], &stars[..]);
                let gradient = ConeGradient::Pupil;
                let problem =
                    WavefrontProblem::new(&atmosphere(), &array, sources, grid, gradient).unwrap();
                compare_wavefronts::<f64>(&gpu, &problem, sampling, 1e-13);
                if stars.len() > 1 {
                    compare_wavefronts::<f32>(&gpu, &problem, sampling, 1e-6);
                }
            }
        }
    }

    // Refuse short transforms and no device
    #[test]
    fn short_transforms_and_no_device_are_refused() {
        let array = LensletArray::new(9, 0.2).unwrap();
        let stars = stars(2, 90e3);
        let problem =
            SlopeProblem::new(&atmosphere(), &array, &stars, ConeGradient::Pupil).unwrap();
        let refuse = |samples, oversampling| {
            let sampling = SpectralSampling::new(samples, oversampling).unwrap();
            slope_pairs::<f32>(&problem, &sampling, &[], &unwatched).unwrap_err()
        };
        assert_eq!(refuse(60, 4).exit_code(), 2);
        assert!(refuse(60, 4).to_string().contains("at least 68"));
        assert!(refuse(68, 4).to_string().contains("at least one graphics processor"));
    }
}
