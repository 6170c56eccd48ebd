// Tangled from book/src/detectors-gpu.md: edit there, or here and run cargo tangle stitch.
//! Detectors on a device.

// Imports of detectors on a device
use super::{AnnulusArea, Detectors};
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, KernelSource, Shape};
use crate::device::headers::{BLOCK_SUM, REAL};
use crate::error::Error;
use crate::numerics::real::Real;
use num_complex::Complex;

const SOURCE: KernelSource = KernelSource {
    name: "detectors.cu",
    text: include_str!("../../../kernels/electrons/detectors.cu"),
    headers: &[REAL, BLOCK_SUM],
};

kernels! {
    /// Kernels of detectors.
    struct DetectorKernels in SOURCE {
        /// Adds up frequencies in long lists, a block for each.
        add_lists: AddLists<T> {
            spectra: [Complex<T>] as "real", starts: [u32], places: [u32], weights: [f64], readings: [f64],
            frequencies: usize, lists: usize, bins: usize,
        }
        /// Adds up frequencies in short lists, a thread for each.
        add_bins: AddBins<T> {
            spectra: [Complex<T>] as "real", starts: [u32], places: [u32], weights: [f64], readings: [f64],
            frequencies: usize, lists: usize, bins: usize,
        }
    }
}

// Lists of what detectors add
/// For each number in a row, the frequencies that it adds up.
struct Lists {
    /// Where each list begins, and the end of the last.
    starts: Vec<u32>,
    places: Vec<u32>,
    weights: Vec<f64>,
}

impl Lists {
    fn add(&mut self, list: impl IntoIterator<Item = (u32, f64)>) {
        for (place, weight) in list {
            self.places.push(place);
            self.weights.push(weight);
        }
        self.starts.push(self.places.len() as u32);
    }
}

// Write the lists of detectors
impl Detectors {
    /// The lists of all numbers in a row.
    fn lists(&self) -> Lists {
        let mut lists = Lists { starts: vec![0], places: vec![], weights: vec![] };
        let mut rings = vec![Vec::new(); self.rings() + 1];
        let areas = self.areas();
        (0u32..).zip(&areas.ring_of).for_each(|(k, ring)| rings[*ring as usize].push(k));
        let alike = |list: &[u32]| list.iter().map(|&k| (k, 1.0)).collect::<Vec<_>>();
        rings.iter().for_each(|ring| lists.add(alike(ring)));
        lists.add((0..areas.ring_of.len() as u32).map(|k| (k, 1.0)));
        for area in &areas.annuli {
            match area {
                AnnulusArea::Rings(range) => lists.add(alike(&rings[range.clone()].concat())),
                AnnulusArea::Frequencies(list) => lists.add(alike(list)),
            }
        }
        areas.segmented.iter().flatten().for_each(|sector| lists.add(alike(sector)));
        // Lists of moments and bins
        let [x, y] = &self.frequencies;
        if self.options.centre_of_mass {
            let all = || 0..x.len() * y.len();
            lists.add(all().map(|k| (k as u32, x[k % x.len()])));
            lists.add(all().map(|k| (k as u32, y[k / x.len()])));
        }
        if let Some(pattern) = &self.pattern {
            let [across, down] = [0, 1].map(|axis| pattern.axes[axis].len());
            let mut bins = vec![Vec::new(); across * down];
            for (k, j) in pattern.bins[1].iter().enumerate() {
                for (i, bin) in pattern.bins[0].iter().enumerate() {
                    if let (Some(j), Some(bin)) = (j, bin) {
                        bins[*j as usize * across + *bin as usize].push((k * x.len() + i) as u32);
                    }
                }
            }
            bins.iter().for_each(|bin| lists.add(alike(bin)));
        }
        lists
    }
}

// Detectors on a device
/// Detectors on a device.
pub(crate) struct DetectorsGpu<T> {
    kernels: DetectorKernels<T>,
    starts: Buffer<u32>,
    places: Buffer<u32>,
    weights: Buffer<f64>,
    long: usize,
    bins: usize,
    frequencies: usize,
}

impl<T: Real> DetectorsGpu<T> {
    // Upload the lists of detectors
    /// Detectors for spectra of numbers of type `T`.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(gpu: &Gpu, detectors: &Detectors) -> Result<Self, Error> {
        let (lists, layout) = (detectors.lists(), detectors.layout());
        debug_assert_eq!(lists.starts.len() - 1, layout.values());
        Ok(Self {
            kernels: DetectorKernels::load(gpu, &[])?,
            starts: gpu.upload(&lists.starts)?,
            places: gpu.upload(&lists.places)?,
            weights: gpu.upload(&lists.weights)?,
            long: layout.pattern.start,
            bins: layout.pattern.len(),
            frequencies: detectors.areas().ring_of.len(),
        })
    }

    /// How many numbers are read of a wave.
    pub(crate) fn values(&self) -> usize {
        self.long + self.bins
    }

    // Read spectra on a device
    /// Reads `count` spectra (w, k_y, k_x) into `readings` (w, values).
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn read(
        &self,
        queue: &Gpu,
        spectra: BufferView<Complex<T>>,
        count: usize,
        readings: BufferView<f64>,
    ) -> Result<(), Error> {
        let (starts, places) = (self.starts.view(..), self.places.view(..));
        let (weights, frequencies) = (self.weights.view(..), self.frequencies);
        let (lists, bins) = (self.long, self.bins);
        let blocks = Shape { grid: [lists, count, 1], block: 128, shared: 0 };
        let arguments =
            AddLists { spectra, starts, places, weights, readings, frequencies, lists, bins };
        queue.launch(&self.kernels.add_lists, blocks, arguments)?;
        let arguments =
            AddBins { spectra, starts, places, weights, readings, frequencies, lists, bins };
        queue.launch(&self.kernels.add_bins, Shape::over(bins, 128, [count, 1]), arguments)
    }
}

// Tests of detectors on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::electrons::{Annulus, Beam, DetectorOptions, PatternOptions, Segmented, WaveGrid};
    use ndarray::ArrayView2;

    fn everything() -> DetectorOptions {
        let annulus = |exact| Annulus { inner: 20.0, outer: 60.0, exact };
        let segmented = Segmented { inner: 5.0, outer: 40.0, sectors: 3, rotation: 0.3 };
        DetectorOptions::default()
            .bin(2.0)
            .rings(40)
            .annuli(vec![annulus(false), annulus(true)])
            .segmented(vec![segmented, Segmented { sectors: 2, ..segmented }])
            .centre_of_mass(true)
            .pattern(PatternOptions::default().crop(50.0).bin(2))
    }

    #[test]
    fn devices_read_what_processors_read() {
        let grid = WaveGrid::new([40, 56], [5.0, 8.0]).unwrap();
        let beam = Beam::new(100.0).unwrap();
        for options in [everything(), DetectorOptions::default()] {
            let detectors = Detectors::new(grid, &beam, options).unwrap();
            let turn = |k: usize| Complex::from_polar(1.0 + (k * k) as f64 % 3.7, k as f64);
            let spectra: Vec<_> = (0..3 * 20 * 28).map(turn).collect();
            for gpu in test_backends() {
                let there = DetectorsGpu::<f64>::new(&gpu, &detectors).unwrap();
                let readings = gpu.zeros(3 * there.values()).unwrap();
                let uploaded = gpu.upload(&spectra).unwrap();
                there.read(&gpu, uploaded.view(..), 3, readings.view(..)).unwrap();
                let found: Vec<f64> = readings.read().unwrap();
                for (wave, found) in spectra.chunks(560).zip(found.chunks(there.values())) {
                    let wave = ArrayView2::from_shape((28, 20), wave).unwrap();
                    let expected = detectors.read(wave).into_values();
                    assert_eq!(expected.len(), found.len());
                    let total: f64 = wave.iter().map(Complex::norm_sqr).sum();
                    for (k, (a, b)) in expected.iter().zip(found).enumerate() {
                        assert!((a - b).abs() < 1e-14 * total, "{k}: {a} and {b}");
                    }
                }
            }
        }
    }
}
