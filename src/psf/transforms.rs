// Tangled from book/src/plane-transforms.md: edit there, or here and run cargo tangle stitch.
//! Transforms of real maps on a plane, on all threads.

// Imports of transforms of a plane
use crate::numerics::fft::{FftPlans, fast_length};
use ndarray::{Array2, ArrayView2, s};
use num_complex::Complex;
use rayon::prelude::*;
use realfft::{ComplexToReal, RealToComplex};
use rustfft::Fft;
use std::ops::Range;
use std::sync::Arc;

// Plans for a plane
// Plans of a plane along both axes
/// How n × n points are transformed.
pub(crate) struct Plane {
    n: usize,
    along_x: Arc<dyn RealToComplex<f64>>,
    back_along_x: Arc<dyn ComplexToReal<f64>>,
    along_y: Arc<dyn Fft<f64>>,
    back_along_y: Arc<dyn Fft<f64>>,
}

/// Lines that are taken together between rows and columns: two lines of a cache.
const STRIP: usize = 8;

impl Plane {
    /// One with at least so many points across, whose number has no prime factor above 5.
    pub(crate) fn around(least: usize) -> Self {
        Self::new(fast_length(least))
    }

    fn new(n: usize) -> Self {
        let (along_x, back_along_x) = f64::plan_real(n);
        let (along_y, back_along_y) = f64::plan_complex(n);
        Self { n, along_x, back_along_x, along_y, back_along_y }
    }

    // Extent of a plane and its spectrum
    /// Points across.
    pub(crate) fn points(&self) -> usize {
        self.n
    }

    /// Frequencies along x, of a half of the plane.
    fn half(&self) -> usize {
        self.n / 2 + 1
    }
}

// Spectrum of a map
impl Plane {
    /// The transform of a map of at most n × n points, (n/2 + 1, n), at \[f_x, f_y\]; the map starts at 0.
    pub(crate) fn spectrum(&self, map: &ArrayView2<f64>) -> Array2<Complex<f64>> {
        let (n, half) = (self.n, self.half());
        // Transform the rows of a whole map
        let mut rows = vec![Complex::default(); map.nrows() * half];
        rows.par_chunks_mut(half).enumerate().for_each_init(
            || (vec![0.0; n], self.along_x.make_scratch_vec()),
            |(line, scratch), (y, row)| {
                line.fill(0.0);
                line.iter_mut().zip(map.row(y)).for_each(|(to, from)| *to = *from);
                let done = self.along_x.process_with_scratch(line, row, scratch);
                debug_assert!(done.is_ok());
            },
        );
        // Transform strips of columns
        let mut columns = vec![Complex::default(); half * n];
        columns.par_chunks_mut(STRIP * n).enumerate().for_each_init(
            || vec![Complex::default(); self.along_y.get_inplace_scratch_len()],
            |scratch, (k, strip)| {
                for (y, row) in rows.chunks(half).enumerate() {
                    let wide = strip[y..].iter_mut().step_by(n);
                    wide.zip(&row[k * STRIP..]).for_each(|(to, from)| *to = *from);
                }
                self.along_y.process_with_scratch(strip, scratch);
            },
        );
        Array2::from_shape_vec((half, n), columns)
            .unwrap_or_else(|_| unreachable!("as many as were made"))
    }
}

// Correlation of a spectrum
impl Plane {
    /// The map of a real spectrum, (n/2 + 1, n), that is the same at opposite frequencies: up to `reach` from its point 0, which
    /// stands at \[points/2, points/2\], and 0 beyond.
    pub(crate) fn correlation(
        &self,
        power: &Array2<f64>,
        reach: usize,
        points: usize,
    ) -> Array2<f64> {
        let whole = self.whole(power);
        let near =
            |middle: usize| s![middle - reach..=middle + reach, middle - reach..=middle + reach];
        let mut map = Array2::zeros((points, points));
        map.slice_mut(near(points / 2)).assign(&whole.slice(near(self.n / 2)));
        map
    }

    // Transform a real spectrum back
    /// The map of a real spectrum on the whole plane, (n, n), with its point 0 at \[n/2, n/2\].
    fn whole(&self, power: &Array2<f64>) -> Array2<f64> {
        let (n, half) = (self.n, self.half());
        let scale = 1.0 / (n * n) as f64;
        let mut columns: Vec<Complex<f64>> =
            power.iter().map(|&value| Complex::new(scale * value, 0.0)).collect();
        columns.par_chunks_mut(STRIP * n).for_each_init(
            || vec![Complex::default(); self.back_along_y.get_inplace_scratch_len()],
            |scratch, strip| self.back_along_y.process_with_scratch(strip, scratch),
        );
        let mut map = vec![0.0; n * n];
        map.par_chunks_mut(STRIP * n).enumerate().for_each_init(
            || (vec![Complex::default(); STRIP * half], self.back_along_x.make_scratch_vec()),
            |(rows, scratch), (k, strip)| {
                self.finish_rows(&columns, k * STRIP, strip, rows, scratch)
            },
        );
        Array2::from_shape_vec((n, n), map).unwrap_or_else(|_| unreachable!("as many as were made"))
    }

    // Transform rows back to their places
    /// Fills the rows of the map from `first` on, which are a `strip` of it.
    fn finish_rows(
        &self,
        columns: &[Complex<f64>],
        first: usize,
        strip: &mut [f64],
        rows: &mut [Complex<f64>],
        scratch: &mut [Complex<f64>],
    ) {
        let (n, half, wide) = (self.n, self.half(), strip.len() / self.n);
        for (x, column) in columns.chunks(n).enumerate() {
            for r in 0..wide {
                rows[r * half + x] = column[(first + r + n - n / 2) % n];
            }
        }
        for (row, line) in rows.chunks_mut(half).zip(strip.chunks_mut(n)) {
            row[0].im = 0.0;
            if n % 2 == 0 {
                row[n / 2].im = 0.0;
            }
            let done = self.back_along_x.process_with_scratch(row, line, scratch);
            debug_assert!(done.is_ok());
            line.rotate_right(n / 2);
        }
    }
}

// Sum of many powers
// Buffers of a sum of powers
/// A sum of the squared magnitudes of spectra, with what it takes to make them on one thread.
#[cfg_attr(not(feature = "factorise"), allow(dead_code))] // modes want a root of their covariance
pub(crate) struct Powers<'p> {
    plane: &'p Plane,
    /// (n/2 + 1, n), at \[f_x, f_y\].
    pub(crate) sum: Array2<f64>,
    rows: Vec<Complex<f64>>,
    strip: Vec<Complex<f64>>,
    line: Vec<f64>,
    scratch: [Vec<Complex<f64>>; 2],
}

#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
impl<'p> Powers<'p> {
    // Prepare a sum of powers
    /// Nothing yet.
    pub(crate) fn on(plane: &'p Plane) -> Self {
        let along_y = vec![Complex::default(); plane.along_y.get_inplace_scratch_len()];
        Self {
            plane,
            sum: Array2::zeros((plane.half(), plane.n)),
            rows: Vec::new(),
            strip: vec![Complex::default(); STRIP * plane.n],
            line: vec![0.0; plane.n],
            scratch: [plane.along_x.make_scratch_vec(), along_y],
        }
    }

    /// Adds the squared magnitude of the spectrum of a map of at most n × n points.
    pub(crate) fn add(&mut self, map: &ArrayView2<f64>) {
        let (n, half) = (self.plane.n, self.plane.half());
        let [scratch_x, scratch_y] = &mut self.scratch;
        self.rows.resize(map.nrows() * half, Complex::default());
        // Transform the rows of a map
        for (values, row) in map.outer_iter().zip(self.rows.chunks_mut(half)) {
            self.line.fill(0.0);
            self.line.iter_mut().zip(values).for_each(|(to, from)| *to = *from);
            let done = self.plane.along_x.process_with_scratch(&mut self.line, row, scratch_x);
            debug_assert!(done.is_ok());
        }
        // Add the powers of transformed columns
        let sums = self.sum.as_slice_mut().unwrap_or_default().chunks_mut(STRIP * n);
        for (k, sums) in sums.enumerate() {
            let strip = &mut self.strip[..sums.len()];
            strip.fill(Complex::default());
            for (y, row) in self.rows.chunks(half).enumerate() {
                let wide = strip[y..].iter_mut().step_by(n);
                wide.zip(&row[k * STRIP..]).for_each(|(to, from)| *to = *from);
            }
            self.plane.along_y.process_with_scratch(strip, scratch_y);
            sums.iter_mut().zip(strip).for_each(|(sum, value)| *sum += value.norm_sqr());
        }
    }
}

// Sum in an order that threads do not change
/// The sum of the `part`s of a range, on all threads: halves of halves, down to ranges of at most `least` items. Its order depends on the range
/// alone, and so does its last bit.
#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
pub(crate) fn sum_in_order<S: Send>(
    items: Range<usize>,
    least: usize,
    part: &(impl Fn(Range<usize>) -> S + Sync),
    add: &(impl Fn(S, S) -> S + Sync),
) -> S {
    if items.len() <= least {
        return part(items);
    }
    let middle = items.start + items.len() / 2;
    let half = |items| sum_in_order(items, least, part, add);
    let (first, second) = rayon::join(|| half(items.start..middle), || half(middle..items.end));
    add(first, second)
}

// Tests of transforms of a plane
#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    #[test]
    fn sums_do_not_depend_on_the_number_of_threads() {
        let term = |k: usize| (k as f64).sin() * 10f64.powi(k as i32 % 17);
        let part = |items: Range<usize>| items.map(term).sum::<f64>();
        let sum = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sum_in_order(3..1000, 7, &part, &|a, b| a + b))
        };
        let one = sum(1);
        assert!([2, 3, 8].iter().all(|threads| sum(*threads) == one));
        let (all, size) = (part(3..1000), (3..1000).map(|k| term(k).abs()).sum::<f64>());
        assert!((one - all).abs() < 1e-14 * size && one != all, "{one} and {all}");
        let items =
            sum_in_order(3..1000, 7, &|items| items.collect(), &|a: Vec<_>, b| [a, b].concat());
        assert_eq!(items, Vec::from_iter(3..1000));
        assert_eq!(sum_in_order(5..5, 7, &part, &|a, b| a + b), 0.0);
    }

    #[test]
    fn lengths_have_small_factors() {
        assert_eq!([1, 7, 61, 359, 487].map(|least| Plane::around(least).n), [1, 8, 64, 360, 500]);
        assert_eq!(Plane::around(486).half(), 244);
    }

    #[test]
    fn spectra_are_sums_and_come_back() {
        for n in [6, 9] {
            let plane = Plane::new(n);
            let map = Array2::from_shape_fn((4, 5), |(y, x)| ((7 * y + 3 * x * x) % 11) as f64);
            let spectrum = plane.spectrum(&map.view());
            for ((fx, fy), found) in spectrum.indexed_iter() {
                let wave = |((y, x), &value): ((usize, usize), &f64)| {
                    Complex::from_polar(
                        value,
                        -2.0 * PI * ((fy * y + fx * x) % n) as f64 / n as f64,
                    )
                };
                let expected: Complex<f64> = map.indexed_iter().map(wave).sum();
                assert!((found - expected).norm() < 1e-12, "{n} [{fx}, {fy}]");
            }
            let power = spectrum.mapv(|value| value.norm_sqr());
            let squares = map.mapv(|value| value * value).sum();
            assert!((plane.whole(&power)[[n / 2, n / 2]] - squares).abs() < 1e-10);
            let mut powers = Powers::on(&plane);
            powers.add(&map.view());
            powers.add(&map.slice(s![..2, ..]));
            let upper = plane.spectrum(&map.slice(s![..2, ..])).mapv(|value| value.norm_sqr());
            let gap = powers.sum - &power - upper;
            assert!(gap.iter().all(|gap| gap.abs() < 1e-10));
            let near = plane.correlation(&power, 1, 5);
            assert!((near[[2, 2]] - squares).abs() < 1e-10 && near[[2, 4]] == 0.0);
        }
    }
}
