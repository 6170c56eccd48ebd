// Tangled from book/src/phase-gpu.md: edit there, or here and run cargo tangle stitch.
//! Von Kármán phase statistics on a graphics processor: tables for every outer scale at once.

// Imports of tables on a device
use crate::device::gpu::{Buffer, Gpu, Header};
use crate::error::Error;
use crate::numerics::radial_table::RadialTable;
use crate::numerics::real::Real;
use crate::turbulence::phase::VonKarman;
use rayon::prelude::*;
use std::f64::consts::PI;
use std::sync::LazyLock;

// Range of the universal tables
/// Where the tables begin and end: 2^−120 and 2^40, in squared units of length.
const RANGE: [f64; 2] = [1.0 / (1u128 << 120) as f64, (1u64 << 40) as f64];

/// Octaves between the two.
const OCTAVES: usize = 160;

/// Segments of a table of one law.
const SEGMENTS: usize = 32 * OCTAVES;

// Universal tables on the host
/// Segments of both laws, von Kármán's first.
struct HostTables {
    slope_over_distance: Vec<f64>,
    slope_slivers: Vec<f64>,
    half_structure: Vec<f64>,
    half_mean: Vec<f64>,
}

static TABLES: LazyLock<HostTables> = LazyLock::new(|| HostTables {
    slope_over_distance: both_laws(|phase, t| phase.slope_over_distance(t), full),
    slope_slivers: both_laws(|phase, t| phase.slope_over_distance(t), short),
    half_structure: both_laws(|phase, t| phase.half_structure_and_half_mean(t.sqrt()).0, full),
    half_mean: both_laws(|phase, t| phase.half_structure_and_half_mean(t.sqrt()).1, full),
});

// Make the octaves of both laws
/// The function `f`(phase, t) of both laws in segments of the `form`, one after the other.
fn both_laws(
    f: impl Fn(&VonKarman, f64) -> f64 + Sync,
    form: impl Fn([f64; 2], &dyn Fn(f64) -> f64) -> Vec<f64> + Sync,
) -> Vec<f64> {
    let laws = [VonKarman::new(2.0 * PI), VonKarman::new(f64::INFINITY)];
    let octave = |k: usize| {
        let low = RANGE[0] * 2f64.powi((k % OCTAVES) as i32);
        form([low, 2.0 * low], &|t| f(&laws[k / OCTAVES], t))
    };
    (0..2 * OCTAVES).into_par_iter().flat_map_iter(octave).collect()
}

/// An octave in double precision, eight numbers a segment.
fn full([low, high]: [f64; 2], f: &dyn Fn(f64) -> f64) -> Vec<f64> {
    let table = RadialTable::new(low, high, f);
    table.segments().take(SEGMENTS / OCTAVES).flatten().collect()
}

/// An octave in single precision, four numbers a segment.
fn short(ends: [f64; 2], f: &dyn Fn(f64) -> f64) -> Vec<f64> {
    RadialTable::slivers(&ends, f).flatten().collect()
}

// Universal tables on a device
/// The universal tables in the memory of a device.
pub struct PhaseTablesGpu<T> {
    /// Ŝ₁, for gradients, in the precision of the computation.
    pub(crate) slope_over_distance: Buffer<T>,
    /// Ŝ, in double precision.
    pub(crate) half_structure: Buffer<f64>,
    /// M̂, in double precision.
    pub(crate) half_mean: Buffer<f64>,
}

// Copy the universal tables
impl<T: Real> PhaseTablesGpu<T> {
    /// Copies the tables to a device. They are made at the first call.
    ///
    /// # Errors
    /// `Cuda` where the device has too little memory.
    pub fn on(gpu: &Gpu) -> Result<Self, Error> {
        let single = size_of::<T>() == 4;
        let slope = if single { &TABLES.slope_slivers } else { &TABLES.slope_over_distance };
        let slope: Vec<T> = slope.iter().map(|&number| T::of(number)).collect();
        Ok(Self {
            slope_over_distance: gpu.upload(&slope)?,
            half_structure: gpu.upload(&TABLES.half_structure)?,
            half_mean: gpu.upload(&TABLES.half_mean)?,
        })
    }

    /// Bytes that they take.
    pub fn bytes() -> u64 {
        let slope = 2 * SEGMENTS * 8 * size_of::<T>(); // twice as many slivers, of half as many numbers
        (slope + 2 * 2 * SEGMENTS * 8 * size_of::<f64>()) as u64
    }
}

// Scales of one outer scale
/// Parameters of a kernel for an outer scale, in metres or infinite: 1/ℓ², ℓ^(5/3), ℓ^(−1/3) and the law, 0 or 1; Eq.
/// [scaled phase](https://lenslet.github.io/lenslet/phase-gpu.html#eq-scaled-phase). If it is infinite, `unit` becomes ℓ: a length, in metres, of the order of those to be looked up.
pub(crate) fn phase_scales(outer_scale: f64, unit: f64) -> [f64; 4] {
    let (unit, law) =
        if outer_scale.is_finite() { (outer_scale / (2.0 * PI), 0.0) } else { (unit, 1.0) };
    let root = unit.cbrt();
    [1.0 / (unit * unit), unit * root * root, 1.0 / root, law]
}

// Phase for kernels that include it
/// The look-up in a radial table.
pub(crate) const RADIAL_TABLE: Header = Header {
    name: "numerics/radial_table.cuh",
    text: include_str!("../../../kernels/numerics/radial_table.cuh"),
};

/// The phase by such look-ups.
pub(crate) const PHASE: Header = Header {
    name: "turbulence/phase.cuh",
    text: include_str!("../../../kernels/turbulence/phase.cuh"),
};

// Tests of the universal tables
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::kernels::kernels;
    use crate::device::gpu::{KernelSource, Shape, test_backends};
    use crate::device::headers::REAL;

    const FUNCTIONS: KernelSource = KernelSource {
        name: "phase.cu",
        text: include_str!("../../../kernels/turbulence/phase.cu"),
        headers: &[REAL, RADIAL_TABLE, PHASE],
    };

    kernels! {
        /// The functions of the phase, by themselves.
        struct PhaseKernels in FUNCTIONS {
            /// S, M, p and dp/dt at some squared distances.
            phase_functions: PhaseFunctions<T> {
                slopes: [T], half_structures: [f64], half_means: [f64], phase: [f64] as "Phase", t: [f64],
                values: [f64], n: usize,
            }
        }
    }

    // Compare the device's functions with ours
    /// The largest errors of S, M, p and t dp/dt on a device, for one outer scale.
    fn errors<T: Real>(gpu: &Gpu, outer_scale: f64) -> [f64; 4] {
        let least = if size_of::<T>() == 4 { -6.0 } else { -12.0 };
        let t = (0..1000).map(|k| 10f64.powf(least + (6.0 - least) * f64::from(k) / 1000.0));
        let t: Vec<f64> = t.collect();
        let tables = PhaseTablesGpu::<T>::on(gpu).unwrap();
        let scales = gpu.upload(&phase_scales(outer_scale, 0.4)).unwrap();
        let (there, values) = (gpu.upload(&t).unwrap(), gpu.zeros::<f64>(4 * t.len()).unwrap());
        let kernels = PhaseKernels::<T>::load(gpu, &[]).unwrap();
        // Launch the kernel of the phase functions
        let arguments = PhaseFunctions {
            slopes: tables.slope_over_distance.view(..),
            half_structures: tables.half_structure.view(..),
            half_means: tables.half_mean.view(..),
            phase: scales.view(..),
            t: there.view(..),
            values: values.view(..),
            n: t.len(),
        };
        let shape = Shape::over(t.len(), 128, [1, 1]);
        gpu.launch(&kernels.phase_functions, shape, arguments).unwrap();
        let values = values.read().unwrap();
        let (phase, law) = (VonKarman::new(outer_scale), VonKarman::new(f64::INFINITY));
        let mut largest = [0.0f64; 4];
        for (&t, values) in t.iter().zip(values.chunks(4)) {
            // Note the errors at one distance
            let p = |t: f64| phase.slope_over_distance(t);
            let (half_structure, half_mean) = phase.half_structure_and_half_mean(t.sqrt());
            let rise = (p(1.0005 * t) - p(0.9995 * t)) / 1e-3;
            let scale = p(t).max(1e-3 * law.slope_over_distance(t));
            let found = [values[0] / half_structure - 1.0, values[1] / half_mean - 1.0];
            let found =
                [found[0], found[1], (values[2] - p(t)) / scale, (t * values[3] - rise) / scale];
            for (largest, error) in largest.iter_mut().zip(found) {
                *largest = largest.max(error.abs());
            }
        }
        largest
    }

    // Compare the functions on all devices
    #[test]
    fn functions_on_the_device_are_those_of_the_phase() {
        for gpu in test_backends() {
            for outer_scale in [0.03, 1.0, 25.0, 1000.0, 1e12, f64::INFINITY] {
                let [half_structure, half_mean, p, rise] = errors::<f64>(&gpu, outer_scale);
                assert!(
                    half_structure < 1e-13 && half_mean < 1e-13,
                    "{outer_scale}: {half_structure:e} {half_mean:e}"
                );
                assert!(p < 1e-13 && rise < 1e-5, "{outer_scale}: {p:e} {rise:e}");
                let [_, _, p, rise] = errors::<f32>(&gpu, outer_scale);
                assert!(p < 5e-7 && rise < 1e-5, "{outer_scale}, single: {p:e} {rise:e}");
            }
            let tables = PhaseTablesGpu::<f32>::on(&gpu).unwrap();
            let bytes = tables.slope_over_distance.bytes() + tables.half_structure.bytes();
            assert_eq!(bytes + tables.half_mean.bytes(), PhaseTablesGpu::<f32>::bytes());
        }
    }
}
