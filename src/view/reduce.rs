// Tangled from book/src/view-encoding.md: edit there, or here and run cargo tangle stitch.
//! The ladder of an array that is too large for a page: single precision, codes of 16 bits, averages of samples.

// Imports of the ladder
use super::encode::{Elements, Encoding};
use crate::data::{Coordinate, Positions, TypedArray};
use rayon::prelude::*;
use std::collections::BinaryHeap;

// Facts of an array on the ladder
/// What the ladder has to know of an array.
pub(crate) struct ArrayFacts {
    shape: Vec<usize>,
    /// Real numbers of an element: 2 where it is complex.
    components: usize,
    exact: Encoding,
    /// Whether no number overflows single precision.
    fits_single: bool,
    /// Whether no number, and no difference of two, is infinite.
    has_codes: bool,
    /// Dimensions along which samples are parts of one thing, and have no average.
    labelled: Vec<bool>,
}

impl ArrayFacts {
    pub(crate) fn of(array: &TypedArray, elements: &Elements, dimensions: &[Coordinate]) -> Self {
        let shape = array.shape().to_vec();
        let components = if array.is_complex() { 2 } else { 1 };
        let largest = match elements {
            Elements::F64(all) => all.iter().fold(0.0, |most: f64, x| most.max(x.abs())),
            Elements::F32(all) => all.iter().fold(0.0, |most: f64, x| most.max(x.abs().into())),
            Elements::I64(_) | Elements::Bool(_) => 0.0,
        };
        let (fits_single, has_codes) = (largest <= f32::MAX.into(), largest < f64::MAX / 4.0);
        let is_labelled = |k| {
            let named: Option<&Coordinate> = dimensions.get(k);
            named.is_some_and(|one| matches!(one.positions(), Positions::Labels(_)))
        };
        let labelled = (0..shape.len()).map(is_labelled).collect();
        Self {
            shape,
            components,
            exact: elements.exact_encoding(),
            fits_single,
            has_codes,
            labelled,
        }
    }
}

// Reduction of an array
/// How an array is stored: in which encoding, and averages of how many samples along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) encoding: Encoding,
    pub(crate) binning: Vec<usize>,
}

impl Reduction {
    /// Whether the numbers are those of the array.
    pub(crate) fn is_binned(&self) -> bool {
        self.binning.iter().any(|samples| *samples > 1)
    }
}

impl ArrayFacts {
    // Size of an array after a reduction
    fn exact(&self) -> Reduction {
        Reduction { encoding: self.exact, binning: vec![1; self.shape.len()] }
    }

    /// Elements of the array.
    fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of the array as it is stored.
    fn bytes(&self, stored: &Reduction) -> u64 {
        let samples = self.binned_shape(&stored.binning).into_iter();
        let count = samples.fold(1, |all: u64, n| all.saturating_mul(n as u64));
        count.saturating_mul((self.components * stored.encoding.bytes()) as u64)
    }

    /// Lengths of the dimensions after averaging.
    fn binned_shape(&self, binning: &[usize]) -> Vec<usize> {
        self.shape.iter().zip(binning).map(|(n, samples)| n.div_ceil(*samples)).collect()
    }
}

// Steps down the ladder
type Step = fn(&ArrayFacts, &Reduction) -> Option<Reduction>;

/// Double precision to single precision.
fn to_single(facts: &ArrayFacts, stored: &Reduction) -> Option<Reduction> {
    let wide = stored.encoding == Encoding::F64 && facts.fits_single;
    wide.then(|| Reduction { encoding: Encoding::F32, ..stored.clone() })
}

/// Numbers of four or eight bytes to codes.
fn to_codes(facts: &ArrayFacts, stored: &Reduction) -> Option<Reduction> {
    let wide = stored.encoding.bytes() > 2 && facts.has_codes;
    wide.then(|| Reduction { encoding: Encoding::U16, ..stored.clone() })
}

// Step to averages of twice as many samples
/// Averages of twice as many samples.
fn to_averages(facts: &ArrayFacts, stored: &Reduction) -> Option<Reduction> {
    let pairs =
        || (0..facts.shape.len()).rev().step_by(2).map(|last| last.saturating_sub(1)..=last);
    for fewest in [FEWEST_SAMPLES, 1] {
        for pair in pairs() {
            let mut binning = stored.binning.clone();
            for k in pair.filter(|k| !facts.labelled[*k]) {
                if facts.shape[k] >= 2 * fewest * binning[k] {
                    binning[k] *= 2;
                }
            }
            if binning != stored.binning {
                let encoding = if facts.has_codes { Encoding::U16 } else { stored.encoding };
                return Some(Reduction { encoding, binning });
            }
        }
    }
    None
}

/// Samples along a dimension down to which the last two are averaged before others.
const FEWEST_SAMPLES: usize = 16;

// Choose the reduction of every array
/// The reductions with which arrays keep a limit in bytes, as far as they can.
pub(crate) fn choose(arrays: &[ArrayFacts], limit: u64) -> Vec<Reduction> {
    let mut all: Vec<_> = arrays.iter().map(ArrayFacts::exact).collect();
    let mut total: u64 = arrays.iter().zip(&all).map(|(facts, stored)| facts.bytes(stored)).sum();
    let rungs: [(Step, u64); 3] =
        [(to_single, limit), (to_codes, limit), (to_averages, limit.saturating_mul(2))];
    for (step, limit) in rungs {
        let large = (0..arrays.len()).filter(|k| arrays[*k].count() >= SMALL_ARRAY);
        let mut queue: BinaryHeap<_> = large.map(|k| (arrays[k].bytes(&all[k]), k)).collect();
        while let Some((before, k)) = queue.pop().filter(|_| total > limit) {
            let Some(next) = step(&arrays[k], &all[k]) else { continue };
            let after = arrays[k].bytes(&next);
            (total, all[k]) = (total - before + after, next);
            queue.push((after, k));
        }
    }
    all
}

/// Numbers of an array below which it is not reduced.
const SMALL_ARRAY: usize = 4096;

// Average the samples of an array
/// Averages of samples, so many along each dimension, with the shape that they have.
pub(crate) fn averaged(
    elements: &Elements,
    (shape, components): (&[usize], usize),
    binning: &[usize],
) -> (Vec<usize>, Vec<f64>) {
    let mut shape = shape.to_vec();
    let first = shape.len().saturating_sub(2);
    let plane = shape[first..].iter().product::<usize>() * components;
    let planes = if plane == 0 { 0 } else { elements.len() / plane };
    let mut numbers: Vec<f64> = (0..planes)
        .into_par_iter()
        .flat_map_iter(|k| {
            let mut numbers = elements.numbers(k * plane..(k + 1) * plane);
            let mut shape = shape[first..].to_vec();
            for axis in 0..shape.len() {
                numbers = along(&numbers, &mut shape, axis, components, binning[first + axis]);
            }
            numbers
        })
        .collect();
    for axis in first..shape.len() {
        shape[axis] = shape[axis].div_ceil(binning[axis]);
    }
    for axis in 0..first {
        numbers = along(&numbers, &mut shape, axis, components, binning[axis]);
    }
    (shape, numbers)
}

// Average along one dimension
/// Averages of `samples` numbers along a dimension of an array, whose shape changes with it.
fn along(
    numbers: &[f64],
    shape: &mut [usize],
    axis: usize,
    components: usize,
    samples: usize,
) -> Vec<f64> {
    let inner = shape[axis + 1..].iter().product::<usize>() * components;
    let block = shape[axis] * inner;
    shape[axis] = shape[axis].div_ceil(samples);
    if samples == 1 || block == 0 {
        return numbers.to_vec();
    }
    let mut averages = Vec::with_capacity(numbers.len() / samples + inner);
    for group in numbers.chunks(block).flat_map(|block| block.chunks(samples * inner)) {
        for k in 0..inner {
            let good = || group[k..].iter().step_by(inner).filter(|x| !x.is_nan());
            averages.push(good().sum::<f64>() / good().count() as f64);
        }
    }
    averages
}

// Positions of averaged samples
/// A dimension of `count` samples after averages of so many.
pub(crate) fn averaged_positions(positions: &Positions, count: usize, samples: usize) -> Positions {
    if samples == 1 {
        return positions.clone();
    }
    let (offset, step) = match positions {
        Positions::Uniform { offset, step } => (*offset, *step),
        _ => (0.0, 1.0),
    };
    let at = |k: usize| match positions {
        Positions::Values(values) => values.get(k).copied().unwrap_or(f64::NAN),
        _ => offset + step * k as f64,
    };
    let centre = |first: usize| {
        let group = first..(first + samples).min(count);
        group.clone().map(at).sum::<f64>() / group.len() as f64
    };
    match positions {
        Positions::Index | Positions::Uniform { .. } if count.is_multiple_of(samples) => {
            Positions::Uniform { offset: centre(0), step: step * samples as f64 }
        }
        _ => Positions::Values((0..count).step_by(samples).map(centre).collect()),
    }
}

// Sum diffraction patterns over rings
/// Rings about the unscattered beam: the ring of each pixel of a pattern, their number and their width.
pub(crate) struct Rings {
    of_pixels: Vec<u32>,
    pub(crate) count: usize,
    pub(crate) width: f64,
}

impl Rings {
    /// The rings of an array whose last two dimensions are qx and qy.
    pub(crate) fn of(shape: &[usize], dimensions: &[Coordinate]) -> Option<Self> {
        let [.., qx, qy] = dimensions else { return None };
        let named = dimensions.len() == shape.len() && (qx.name(), qy.name()) == ("qx", "qy");
        let [.., nx, ny] = *shape else { return None };
        let measured =
            [qx, qy].iter().all(|one| matches!(one.positions(), Positions::Uniform { .. }));
        if !named || !measured || nx * ny == 0 {
            return None;
        }
        let width = qx.step().abs().max(qy.step().abs());
        let (qx, qy) = (qx.samples(nx), qy.samples(ny));
        let radii = qx.iter().flat_map(|x| qy.iter().map(move |y| x.hypot(*y)));
        let of_pixels: Vec<_> = radii.map(|q| (q / width + 1e-9) as u32).collect();
        let count = of_pixels.iter().max().map_or(0, |last| *last as usize + 1);
        (count <= nx + ny).then_some(Self { of_pixels, count, width })
    }

    // Sums of patterns over rings
    /// Sums over the rings of every pattern.
    pub(crate) fn sums(&self, patterns: &Elements) -> Vec<f32> {
        let plane = self.of_pixels.len();
        let sums = (0..patterns.len() / plane).into_par_iter().flat_map_iter(|k| {
            let mut sums = vec![0.0; self.count];
            let pattern = patterns.numbers(k * plane..(k + 1) * plane);
            for (ring, x) in self.of_pixels.iter().zip(pattern) {
                sums[*ring as usize] += x;
            }
            sums.into_iter().map(|sum| sum as f32)
        });
        sums.collect()
    }
}
