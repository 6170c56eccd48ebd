// Tangled from book/src/view-reduction.md: edit there, or here and run cargo tangle stitch.
//! The ladder of an array that is too large for a page: single precision, codes of 16 bits, averages of samples.

// Imports of the ladder
use super::encode::{Elements, Encoding};
use crate::data::{Coordinate, Positions, TypedArray};
use rayon::prelude::*;
use std::collections::BinaryHeap;

// Facts of an array on the ladder
/// Properties of an array on which its reduction depends.
pub(crate) struct ArrayFacts {
    shape: Vec<usize>,
    /// Real numbers per element: 2 for complex arrays.
    components: usize,
    exact: Encoding,
    /// Whether no number overflows single precision.
    fits_single: bool,
    /// Whether all numbers and their differences are finite.
    has_codes: bool,
    /// Dimensions with labels, such as the components of a vector, along which no averages are taken.
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
/// Encoding of a stored array, and number of samples in an average along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) encoding: Encoding,
    pub(crate) binning: Vec<usize>,
}

impl Reduction {
    /// Whether the stored numbers are averages.
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

    /// Bytes of the array with a reduction.
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

/// Samples to which the last two dimensions are averaged before other dimensions are averaged.
const FEWEST_SAMPLES: usize = 16;

// Choose the reduction of every array
/// Reductions with which arrays meet a limit in bytes, as far as possible.
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

/// Arrays of fewer elements are not reduced.
const SMALL_ARRAY: usize = 4096;

// Average the samples of an array
/// Averages over groups of `binning` samples along each dimension, with their shape.
pub(crate) fn averaged(
    elements: &Elements,
    (shape, components): (&[usize], usize),
    binning: &[usize],
) -> (Vec<usize>, Vec<f64>) {
    let mut shape = shape.to_vec();
    let first = shape.len().saturating_sub(2);
    let plane = shape[first..].iter().product::<usize>() * components;
    let planes = elements.len().checked_div(plane).unwrap_or(0);
    // Average every plane of the last two dimensions
    let averaged_plane = |k: usize| {
        let mut numbers = elements.numbers(k * plane..(k + 1) * plane);
        let mut shape = shape[first..].to_vec();
        for axis in 0..shape.len() {
            numbers = along(&numbers, &mut shape, axis, components, binning[first + axis]);
        }
        numbers
    };
    let mut numbers: Vec<f64> = (0..planes).into_par_iter().flat_map_iter(averaged_plane).collect();
    for axis in first..shape.len() {
        shape[axis] = shape[axis].div_ceil(binning[axis]);
    }
    for (axis, samples) in binning.iter().enumerate().take(first) {
        numbers = along(&numbers, &mut shape, axis, components, *samples);
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
/// Positions along a dimension of `count` positions after averages over groups of `samples`.
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
// Rings of a diffraction pattern
/// Rings about the unscattered beam: the ring of each pixel of a pattern, their number and their width.
pub(crate) struct Rings {
    of_pixels: Vec<u32>,
    pub(crate) count: usize,
    pub(crate) width: f64,
}

impl Rings {
    /// Rings of an array whose last two dimensions are qx and qy; `None` for other arrays.
    pub(crate) fn of(shape: &[usize], dimensions: &[Coordinate]) -> Option<Self> {
        let ([.., qx, qy], &[.., nx, ny]) = (dimensions, shape) else { return None };
        if !are_patterns([qx, qy]) || dimensions.len() != shape.len() || nx * ny == 0 {
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
    /// Sums of every pattern over the rings.
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

// Whether dimensions are of diffraction patterns
fn are_patterns([qx, qy]: [&Coordinate; 2]) -> bool {
    let measured = |one: &Coordinate| matches!(one.positions(), Positions::Uniform { .. });
    (qx.name(), qy.name()) == ("qx", "qy") && measured(qx) && measured(qy)
}

// Tests of the ladder
#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, Array3, Array4, ArrayD, IxDyn};
    use num_complex::Complex64;
    use std::ops::Range;

    // Facts of arrays of a shape
    fn facts(shape: &[usize], exact: Encoding) -> ArrayFacts {
        let labelled = vec![false; shape.len()];
        ArrayFacts {
            shape: shape.to_vec(),
            components: 1,
            exact,
            fits_single: true,
            has_codes: true,
            labelled,
        }
    }

    fn stored(encoding: Encoding, binning: &[usize]) -> Reduction {
        Reduction { encoding, binning: binning.to_vec() }
    }

    #[test]
    fn the_largest_array_goes_down_the_ladder_first() {
        let large = || facts(&[100, 100, 100], Encoding::F64); // 8 MB
        let small = || facts(&[100, 100], Encoding::F64); // 80 kB
        let chosen = |limit: u64| choose(&[small(), large()], limit);
        let plain = stored(Encoding::F64, &[1, 1]);
        assert_eq!(chosen(8_080_000), [plain.clone(), stored(Encoding::F64, &[1; 3])]);
        assert_eq!(chosen(8_079_999), [plain.clone(), stored(Encoding::F32, &[1; 3])]);
        assert_eq!(chosen(4_080_000)[0], plain);
        let both = [stored(Encoding::F32, &[1, 1]), stored(Encoding::U16, &[1; 3])];
        assert_eq!(chosen(4_000_000), both);
        assert_eq!(
            chosen(1_010_000),
            [stored(Encoding::U16, &[1, 1]), stored(Encoding::U16, &[1; 3])]
        );
        let averaged = [stored(Encoding::U16, &[1, 1]), stored(Encoding::U16, &[1, 2, 2])];
        assert_eq!(chosen(1_009_999), averaged);
    }

    // Order of averages
    #[test]
    fn patterns_are_averaged_before_the_scan() {
        let scan = || facts(&[64, 48, 100, 40], Encoding::F32);
        let binning = |limit: u64| choose(&[scan()], limit).remove(0).binning;
        let bytes = |binning: &[usize]| scan().bytes(&stored(Encoding::U16, binning));
        let steps: [&[usize]; 5] =
            [&[1, 1, 2, 2], &[1, 1, 4, 2], &[2, 2, 4, 2], &[4, 2, 4, 2], &[4, 2, 8, 4]];
        for step in steps {
            assert_eq!(binning(bytes(step) / 2), step);
        }
        assert_eq!(choose(&[scan()], 0)[0].binning, [64, 32, 64, 32]); // as far as it goes
        assert_eq!(choose(&[facts(&[4095], Encoding::F64)], 0)[0], stored(Encoding::F64, &[1]));
    }

    #[test]
    fn arrays_keep_what_they_cannot_lose() {
        let first = |facts: ArrayFacts, limit: u64| choose(&[facts], limit).remove(0);
        let huge = ArrayFacts { fits_single: false, ..facts(&[5000], Encoding::F64) };
        assert_eq!(first(huge, 39_999), stored(Encoding::U16, &[1]));
        let infinite = ArrayFacts { has_codes: false, ..facts(&[5000], Encoding::F64) };
        assert_eq!(first(infinite, 19_999), stored(Encoding::F32, &[1]));
        let vectors =
            ArrayFacts { labelled: vec![false, false, true], ..facts(&[64, 64, 2], Encoding::F64) };
        assert_eq!(first(vectors, 4096), stored(Encoding::U16, &[1, 2, 1]));
        assert_eq!(first(facts(&[100, 100], Encoding::U8), 2500), stored(Encoding::U16, &[2, 2]));
        // Facts of an array with its numbers
        let of = |x: f64| {
            let array = TypedArray::F64(ArrayD::from_elem(IxDyn(&[2]), x).into());
            let facts = ArrayFacts::of(&array, &Elements::of(&array), &[]);
            (facts.fits_single, facts.has_codes)
        };
        assert_eq!(
            [of(-1e38), of(1e39), of(-1e308), of(f64::INFINITY)],
            [(true, true), (false, true), (false, false), (false, false)]
        );
        assert_eq!(of(f64::NAN), (true, true));
    }

    // Averages by their definition
    fn mean_of_block(cube: &Array3<f64>, at: [usize; 3], binning: [usize; 3]) -> f64 {
        let range = |k: usize| at[k] * binning[k]..((at[k] + 1) * binning[k]).min(cube.shape()[k]);
        let (mut sum, mut count) = (0.0, 0.0);
        for i in range(0) {
            for j in range(1) {
                for k in range(2) {
                    (sum, count) = (sum + cube[[i, j, k]], count + 1.0);
                }
            }
        }
        sum / count
    }

    #[test]
    fn averages_are_those_of_blocks() {
        let cube =
            Array3::from_shape_fn((5, 7, 9), |(i, j, k)| ((3 * i + 5 * j + 7 * k) % 11) as f64);
        let array = TypedArray::F64(cube.view().into_dyn().into());
        for binning in [[1, 2, 2], [2, 4, 1], [8, 2, 4], [1, 1, 16]] {
            let (shape, numbers) = averaged(&Elements::of(&array), (cube.shape(), 1), &binning);
            assert_eq!(shape, [0, 1, 2].map(|k| cube.shape()[k].div_ceil(binning[k])));
            let averages = Array3::from_shape_vec((shape[0], shape[1], shape[2]), numbers).unwrap();
            for ((i, j, k), x) in averages.indexed_iter() {
                assert!(
                    (x - mean_of_block(&cube, [i, j, k], binning)).abs() < 1e-13,
                    "{binning:?}"
                );
            }
        }
    }

    #[test]
    fn complex_numbers_and_gaps_are_averaged() {
        let waves =
            Array2::from_shape_fn((2, 4), |(i, j)| Complex64::new(j as f64, 10.0 * i as f64));
        let array = TypedArray::C64(waves.into_dyn().into());
        let (shape, numbers) = averaged(&Elements::of(&array), (&[2, 4], 2), &[2, 2]);
        assert_eq!((shape, numbers), (vec![1, 2], vec![0.5, 5.0, 2.5, 5.0]));
        let gaps = ndarray::array![1.0, f64::NAN, f64::NAN, f64::NAN];
        let array = TypedArray::F64(gaps.into_dyn().into());
        let (_, numbers) = averaged(&Elements::of(&array), (&[4], 1), &[2]);
        assert!(numbers[0] == 1.0 && numbers[1].is_nan());
    }

    // Positions of averages
    #[test]
    fn positions_of_averages_are_averages_of_positions() {
        let uniform = |offset, step| Positions::Uniform { offset, step };
        assert_eq!(averaged_positions(&uniform(10.0, 0.5), 8, 4), uniform(10.75, 2.0));
        assert_eq!(averaged_positions(&Positions::Index, 6, 2), uniform(0.5, 2.0));
        assert_eq!(
            averaged_positions(&Positions::Index, 5, 2),
            Positions::Values(vec![0.5, 2.5, 4.0])
        );
        let values = Positions::Values(vec![1.0, 2.0, 4.0]);
        assert_eq!(averaged_positions(&values, 3, 2), Positions::Values(vec![1.5, 4.0]));
        assert_eq!(averaged_positions(&values, 3, 1), values);
    }

    // Rings by a plain loop
    fn axis(name: &str, count: usize, step: f64) -> Coordinate {
        Coordinate::signal(name, "1/Å", -step * (count / 2) as f64, step).unwrap()
    }

    #[test]
    fn rings_add_up_whole_patterns() {
        let patterns =
            Array4::from_shape_fn((2, 3, 8, 6), |(i, j, k, l)| (i + 2 * j + k * l) as f32);
        let plain = |name| Coordinate::index(name);
        let dimensions = [plain("x"), plain("y"), axis("qx", 8, 0.1), axis("qy", 6, 0.05)];
        let rings = Rings::of(patterns.shape(), &dimensions).unwrap();
        assert_eq!((rings.count, rings.width), (5, 0.1));
        let array = TypedArray::F32(patterns.view().into_dyn().into());
        let sums = rings.sums(&Elements::of(&array));
        for (i, j, ring) in [(0, 0, 0), (1, 2, 1), (0, 1, 2), (1, 0, 4)] {
            let of_ring = |(k, l): &(usize, usize)| {
                let (x, y) = (2 * k.abs_diff(4), l.abs_diff(3)); // in units of 0.05 1/Å
                let square = x * x + y * y;
                let bounds: Range<usize> = 4 * ring * ring..4 * (ring + 1) * (ring + 1);
                bounds.contains(&square)
            };
            let pixels = (0..8).flat_map(|k| (0..6).map(move |l| (k, l))).filter(of_ring);
            let sum: f32 = pixels.map(|(k, l)| patterns[[i, j, k, l]]).sum();
            assert_eq!(sums[(3 * i + j) * 5 + ring], sum, "{ring}");
        }
        assert_eq!(sums.iter().sum::<f32>(), patterns.sum());
        assert!(Rings::of(&[3, 8, 6], &[plain("x"), plain("qx"), plain("qy")]).is_none());
        assert!(Rings::of(&[8, 6], &[axis("x", 8, 0.1), axis("y", 6, 0.1)]).is_none());
        let off = Coordinate::signal("qx", "1/Å", 1e9, 1e-3).unwrap();
        assert!(Rings::of(&[8, 6], &[off, axis("qy", 6, 1e-3)]).is_none());
    }
}
