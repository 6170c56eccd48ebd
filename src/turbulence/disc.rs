// Tangled from book/src/disc-average.md: edit there, or here and run cargo tangle stitch.
//! The phase averaged over a disc: covariance with the phase at a point, and with itself.

use crate::numerics::quadrature::{Rule, gauss_legendre};
use crate::turbulence::phase::VonKarman;
use std::f64::consts::PI;
use std::sync::LazyLock;

// Average of the phase over a disc
/// Half the structure function of von Kármán phase, averaged over a disc, for r0 = 1 m: multiply by r0^(−5/3).
///
/// A table of the distance: made in some milliseconds, looked up in some 30 ns. A disc of radius zero is a point.
#[derive(Debug, Clone)]
pub struct DiscAverage {
    radius: f64,
    table: HalfStructureTable,
}

impl DiscAverage {
    // Average over one disc
    /// S̄(r), Eq. [mean half structure](https://lenslet.github.io/lenslet/disc-average.html#eq-mean-half-structure): the phase averaged over a disc of `radius` metres against the phase at a point.
    ///
    /// Tabulated up to the distance `reach` > 0 in metres. The slope is exact to some 1e-13 of the largest.
    ///
    /// ```
    /// use lenslet::turbulence::{DiscAverage, VonKarman, kolmogorov_constant};
    /// let average = DiscAverage::new(&VonKarman::new(f64::INFINITY), 2.0, 10.0);
    /// let closed_form = 6.0 / 11.0 * kolmogorov_constant() * 2f64.powf(5.0 / 3.0); // mean of c r^(5/3) over the disc
    /// assert!((average.half_structure(0.0) / closed_form - 1.0).abs() < 1e-14);
    /// ```
    pub fn new(phase: &VonKarman, radius: f64, reach: f64) -> Self {
        let radius = or_point(phase, radius, reach);
        let at_zero = 2.0 * phase.half_structure_and_half_mean(radius).1;
        let slope = |r: f64| mean_slope(phase, radius, r);
        let singular = (radius, phase.outer_scale());
        Self { radius, table: HalfStructureTable::new(at_zero, singular, reach, 1e-14, slope) }
    }

    // Average over two discs
    /// Half the structure function, averaged over two equal discs, Eq. [twice](https://lenslet.github.io/lenslet/disc-average.html#eq-twice), up to the distance `reach`.
    ///
    /// Their variance is B(0) less half the structure function at 0.
    pub fn twice(phase: &VonKarman, radius: f64, reach: f64) -> Self {
        let radius = or_point(phase, radius, reach);
        let once = Self::new(phase, radius, reach + radius);
        if radius == 0.0 {
            return once;
        }
        let scales = (2.0 * PI * radius / phase.outer_scale()).max(1.0);
        let panels = 1 + (-scales.ln() / SHRINK.ln()).ceil() as i32;
        let slope = |r: f64| once.mean_slope_again(r, panels);
        let at_zero = once.mean_over_disc();
        let singular = (2.0 * radius, phase.outer_scale());
        Self { radius, table: HalfStructureTable::new(at_zero, singular, reach, 4e-14, slope) }
    }

    // Take the mean over the disc
    /// The mean of the tabulated values over the disc around the origin.
    fn mean_over_disc(&self) -> f64 {
        let (mut from, mut sum) = (0.0, 0.0);
        for &to in self.table.ends.iter().take_while(|&&end| end <= self.radius) {
            let (centre, half) = (0.5 * (from + to), 0.5 * (to - from));
            for (node, weight) in SEGMENT.nodes.iter().zip(&SEGMENT.weights) {
                let s = centre + half * node;
                sum += weight * half * s * self.half_structure(s);
            }
            from = to;
        }
        2.0 * sum / (self.radius * self.radius)
    }

    // Average a tabulated slope again
    /// The slope of the mean over the disc once more, at r > 0; Eq. [twice](https://lenslet.github.io/lenslet/disc-average.html#eq-twice), with so many panels on either side.
    fn mean_slope_again(&self, r: f64, panels: i32) -> f64 {
        let cut = f64::acos((-0.5 * r / self.radius).max(-1.0));
        let (nearest, product) = (r - self.radius, r * self.radius);
        let density = |alpha: f64| {
            let square = f64::cos(0.5 * alpha).powi(2);
            let s = (nearest * nearest + 4.0 * product * square).sqrt();
            self.half_structure_slope(s) / s * 4.0 * square * (1.0 - square)
        };
        let mut sum = 0.0;
        for side in [-cut, PI - cut].into_iter().filter(|&side| side != 0.0) {
            for panel in 0..panels {
                // Add a panel of the half circle
                let outer = side * SHRINK.powi(panel);
                let inner = if panel + 1 < panels { outer * SHRINK } else { 0.0 };
                let length = outer - inner;
                for (node, weight) in RIM.nodes.iter().zip(&RIM.weights) {
                    let v = 0.5 * (1.0 + node);
                    let stretch = 1.5 * v * v * length.abs();
                    sum += weight * stretch * density(cut + inner + length * v.powi(3));
                }
            }
        }
        2.0 * r / PI * sum
    }

    // Look half the structure function up
    /// The radius of the disc in metres.
    pub fn radius(&self) -> f64 {
        self.radius
    }

    /// Half the structure function in rad² at the distance `r` in metres, from zero to the table's reach.
    pub fn half_structure(&self, r: f64) -> f64 {
        self.table.value_and_slope(r).0
    }

    /// The slope of half the structure function in rad² m⁻¹ at the distance `r` in metres, from zero to the table's reach.
    pub fn half_structure_slope(&self, r: f64) -> f64 {
        self.table.value_and_slope(r).1
    }

    // Hand an averaged structure function to a device
    /// The segments that a device looks up, of twenty numbers: those of half the structure function, and those of its slope.
    pub(crate) fn stretches(&self) -> [Vec<[f64; COEFFICIENTS + 4]>; 2] {
        let row = |slope: bool| {
            move |(&end, segment): (&f64, &DiscSegment)| {
                let DiscSegment { centre, half, coefficients } = segment;
                let mut row = [0.0; COEFFICIENTS + 4];
                row[..3].copy_from_slice(&[end, *centre, 1.0 / half]);
                for (k, c) in row[3..].iter_mut().enumerate() {
                    let above = coefficients.get(k + 1).copied().unwrap_or_default();
                    *c = if slope { (k + 1) as f64 * above / half } else { coefficients[k] };
                }
                row
            }
        };
        let segments = || self.table.ends.iter().zip(&self.table.segments);
        [segments().map(row(false)).collect(), segments().map(row(true)).collect()]
    }
}

// Treat a small disc as a point
/// The radius, or 0 where a disc is a point to a table of this reach; metres.
fn or_point(phase: &VonKarman, radius: f64, reach: f64) -> f64 {
    if radius < 1e-21 * reach.min(phase.outer_scale()) { 0.0 } else { radius }
}

// Mean slope around the circle
/// The exponent of the error that the steps around the circle are made for.
const EXPONENT: f64 = 42.0;

/// S̄'(r) in rad² m⁻¹ for a disc of `radius` metres at r > 0; Eq. [stretched mean](https://lenslet.github.io/lenslet/disc-average.html#eq-stretched-mean).
fn mean_slope(phase: &VonKarman, radius: f64, r: f64) -> f64 {
    let furthest = r + radius;
    // On the rim itself K is infinite. A millionth part of a millionth off, the slope is the same.
    let complement = ((r - radius).abs() / furthest).max(1e-12);
    let (stages, mean) = means(complement);
    let (_, mean_of_modulus) = means(2.0 * (r * radius).sqrt() / furthest);
    let steps = 4.0 + (EXPONENT / (2.0 * PI) * mean_of_modulus / mean).ceil();
    let term = |j: usize| {
        let (c, d) = elliptic(&stages, mean, j as f64 * PI / (2.0 * steps));
        let sn_cn = c / (1.0 + c * c);
        phase.slope_over_distance((furthest * d).powi(2)) * sn_cn * sn_cn * d
    };
    8.0 * r / (mean * steps) * (1..steps as usize).map(term).sum::<f64>()
}

// Take arithmetic and geometric means
/// The pairs (a, b) from (1, `b`) until they agree, and their common limit; Eq. [agm](https://lenslet.github.io/lenslet/disc-average.html#eq-agm).
fn means(mut b: f64) -> (Vec<[f64; 2]>, f64) {
    let (mut a, mut stages) = (1.0, Vec::with_capacity(12));
    while stages.len() < 12 {
        stages.push([a, b]);
        let close = (a - b).abs() < 1e-8 * a;
        (a, b) = (0.5 * (a + b), (a * b).sqrt());
        if close {
            break;
        }
    }
    (stages, a)
}

// Climb back to the elliptic functions
/// cn/sn and dn where the circular functions of the last stage have the angle `angle`; Eq. [landen](https://lenslet.github.io/lenslet/disc-average.html#eq-landen).
fn elliptic(stages: &[[f64; 2]], mean: f64, angle: f64) -> (f64, f64) {
    let (mut c, mut d, mut above) = (mean / angle.tan(), 1.0, mean);
    for &[a, b] in stages.iter().rev() {
        let x = c * c / above;
        c *= d;
        d = (b + x) / (a + x);
        above = a;
    }
    (c, d)
}

// Panels at the rim of the disc
/// A panel's length in those of the one outside.
const SHRINK: f64 = 0.125;

/// Nodes on a panel.
static RIM: LazyLock<Rule> = LazyLock::new(|| gauss_legendre(28));

/// Exact on a segment of the table.
static SEGMENT: LazyLock<Rule> = LazyLock::new(|| gauss_legendre(COEFFICIENTS / 2 + 2));

// Table of half a structure function by its slope
/// Coefficients of the slope on a segment.
const COEFFICIENTS: usize = 16;

/// A function and its slope as polynomials on segments of unequal length.
#[derive(Debug, Clone, Default)]
struct HalfStructureTable {
    /// Where the segments end, ascending.
    ends: Vec<f64>,
    segments: Vec<DiscSegment>,
}

/// The function as a polynomial in (r − centre) / half.
#[derive(Debug, Clone)]
struct DiscSegment {
    centre: f64,
    half: f64,
    coefficients: [f64; COEFFICIENTS + 1],
}

impl HalfStructureTable {
    // Cut the reach into segments
    /// Tabulates from 0 to `reach` the function that is `at_zero` at 0 and has the slope `slope`, singular at 0 and `kink` and
    /// negligible farther than eight outer scales from both.
    ///
    /// `tolerance` is the error of the slope, as a part of the largest.
    fn new(
        at_zero: f64,
        (kink, outer_scale): (f64, f64),
        reach: f64,
        tolerance: f64,
        slope: impl Fn(f64) -> f64,
    ) -> Self {
        debug_assert!(kink >= 0.0 && reach > 0.0);
        let inside = |r: &f64| *r > 0.0 && *r < reach;
        // Find the largest slope roughly
        let octaves = (0..48).map(|k| reach * 0.5f64.powi(k));
        let samples = octaves.chain(Some(kink).filter(inside));
        let negligible = tolerance * samples.map(&slope).fold(0.0, f64::max);
        let (mut table, mut value) = (Self::default(), at_zero);
        // Begin with segments around the singular points
        let (near, finest) = (8.0 * outer_scale, 1e-21 * reach.min(outer_scale));
        let mut ends = vec![kink, near, kink - near, kink + near];
        ends.retain(inside);
        ends.push(reach);
        ends.sort_by(|one, other| other.total_cmp(one));
        ends.dedup();
        let mut from = 0.0;
        while let Some(&to) = ends.last() {
            // Halve the segment or keep it
            let (centre, half) = (0.5 * (from + to), 0.5 * (to - from));
            let (mut coefficients, tail) = interpolate(|u| slope(centre + half * u));
            let clearance = from.min(if to <= kink { kink - to } else { (from - kink).abs() });
            let finest = finest.max(4.0 * f64::EPSILON * to);
            if tail > negligible && half > clearance / 32.0 && half > finest {
                ends.push(centre);
                continue;
            }
            // Integrate the slope from the left
            for k in (1..=COEFFICIENTS).rev() {
                coefficients[k] = half * coefficients[k - 1] / k as f64;
            }
            coefficients[0] = 0.0;
            let at_start = coefficients.iter().rev().fold(0.0, |sum, c| c - sum);
            coefficients[0] = value - at_start;
            table.segments.push(DiscSegment { centre, half, coefficients });
            table.ends.push(to);
            (from, value) = (to, table.value_and_slope(to).0);
            ends.pop();
        }
        table
    }

    // Look the segment up
    /// The function and its slope at `r`.
    #[inline]
    fn value_and_slope(&self, r: f64) -> (f64, f64) {
        debug_assert!(r >= 0.0);
        let number = self.ends.partition_point(|&end| end < r).min(self.segments.len() - 1);
        let DiscSegment { centre, half, coefficients } = &self.segments[number];
        let u = (r - centre) / half;
        let (mut value, mut slope) = (coefficients[COEFFICIENTS], 0.0);
        for c in coefficients[..COEFFICIENTS].iter().rev() {
            slope = slope * u + value;
            value = value * u + c;
        }
        (value, slope / half)
    }
}

// Interpolate the slope on a segment
/// Coefficients of powers of u, the last one free, and the sum of the last three Chebyshev coefficients.
fn interpolate(f: impl Fn(f64) -> f64) -> ([f64; COEFFICIENTS + 1], f64) {
    const N: usize = COEFFICIENTS;
    let cosine = |k: usize| COSINES[k % (4 * N)];
    let values: [f64; N] = std::array::from_fn(|j| f(cosine(2 * j + 1)));
    let chebyshev: [f64; N] = std::array::from_fn(|k| {
        let sum: f64 = (0..N).map(|j| values[j] * cosine(k * (2 * j + 1))).sum();
        if k == 0 { sum / N as f64 } else { 2.0 * sum / N as f64 }
    });
    let tail = chebyshev[N - 3..].iter().map(|c| c.abs()).sum();
    // Turn Chebyshev polynomials into powers
    let mut powers = [0.0; N + 1];
    let (mut last, mut this) = ([0.0; N], [0.0; N]);
    (last[1], this[0]) = (1.0, 1.0); // T_{−1} and T_0
    for c in chebyshev {
        let mut next = last.map(|power| -power);
        for (k, power) in this.iter().enumerate() {
            powers[k] += c * power;
            if k + 1 < N {
                next[k + 1] += 2.0 * power;
            }
        }
        (last, this) = (this, next);
    }
    (powers, tail)
}

/// cos(πj/2N).
static COSINES: LazyLock<[f64; 4 * COEFFICIENTS]> =
    LazyLock::new(|| std::array::from_fn(|j| f64::cos(PI * j as f64 / (2 * COEFFICIENTS) as f64)));

// Tests of the disc average
#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::special::gamma;
    use crate::turbulence::phase::kolmogorov_constant;

    // Sum a function over a disc
    /// The mean over the disc of `radius` around (r, 0) of a function of the distance from the origin.
    fn mean_over(radius: f64, r: f64, f: impl Fn(f64) -> f64) -> f64 {
        let (rule, angles) = (gauss_legendre(40), 96);
        let mut sum = 0.0;
        for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
            let u = 0.5 * (1.0 + node) * radius;
            for k in 0..angles {
                let (sine, cosine) = f64::sin_cos(2.0 * PI * f64::from(k) / f64::from(angles));
                sum += weight * u * f(f64::hypot(r + u * cosine, u * sine));
            }
        }
        sum / (f64::from(angles) * radius)
    }

    // Compare the averages with plain sums
    #[test]
    fn plain_sums_over_the_disc_agree() {
        for outer_scale in [2.0, 25.0, f64::INFINITY] {
            let (phase, radius) = (VonKarman::new(outer_scale), 0.8);
            let once = DiscAverage::new(&phase, radius, 9.0);
            let twice = DiscAverage::twice(&phase, radius, 9.0 - radius);
            for (r, error) in [(0.0, 1e-5), (0.3, 1e-5), (radius, 1e-5), (1.9, 1e-11), (7.0, 1e-13)]
            {
                let sum = mean_over(radius, r, |s| phase.half_structure_and_half_mean(s).0);
                assert!((once.half_structure(r) / sum - 1.0).abs() < error, "once at {r}");
                let sum = mean_over(radius, r, |s| once.half_structure(s));
                assert!((twice.half_structure(r) / sum - 1.0).abs() < error, "twice at {r}");
            }
        }
    }

    // Compare with the factor in the spectrum
    #[test]
    fn the_factor_in_the_spectrum_agrees() {
        let (outer_scale, radius) = (10.0, 0.6);
        let phase = VonKarman::new(outer_scale);
        let covariance = |r: f64, discs: i32| -> f64 {
            let (first, last, steps) = (1e-6f64, 60.0, 40_000);
            let step = (last / first).ln() / f64::from(steps);
            let term = |k| {
                let f = first * f64::exp((f64::from(k) + 0.5) * step);
                let disc = 2.0 * libm::j1(2.0 * PI * radius * f) / (2.0 * PI * radius * f);
                let wave = libm::j0(2.0 * PI * f * r) * disc.powi(discs);
                2.0 * PI * f * f * step * phase.power_spectrum(f * f) * wave
            };
            (0..steps).map(term).sum()
        };
        let once = DiscAverage::new(&phase, radius, 8.0);
        let twice = DiscAverage::twice(&phase, radius, 8.0);
        for r in [0.0, 0.2, radius, 2.0 * radius, 6.5] {
            let error = phase.covariance(0.0) - once.half_structure(r) - covariance(r, 1);
            assert!(error.abs() < 1e-7 * phase.covariance(0.0), "once at {r}: {error:e}");
            let error = phase.covariance(0.0) - twice.half_structure(r) - covariance(r, 2);
            assert!(error.abs() < 1e-9 * phase.covariance(0.0), "twice at {r}: {error:e}");
        }
    }

    // Compare with the closed forms of Kolmogorov
    #[test]
    fn kolmogorov_has_its_closed_forms() {
        let (phase, power) = (VonKarman::new(f64::INFINITY), 5.0 / 3.0);
        let pair = 2.0 * gamma(power + 2.0) / (gamma(power / 2.0 + 2.0) * gamma(power / 2.0 + 3.0));
        for (radius, reach) in [(1e-6, 500.0), (0.3, 0.2), (0.3, 40.0), (50.0, 60.0)] {
            let unit = kolmogorov_constant() * f64::powf(radius, power);
            let once = DiscAverage::new(&phase, radius, reach).half_structure(0.0) / unit;
            let twice = DiscAverage::twice(&phase, radius, reach).half_structure(0.0) / unit;
            assert!((once - 6.0 / 11.0).abs() < 1e-14, "{once}");
            assert!((twice - pair).abs() < 1e-11, "R = {radius}: {twice} {pair}");
        }
    }

    // Compare a field of an arcminute
    #[test]
    fn a_field_of_an_arcminute_agrees_with_the_worked_case() {
        let radius = 1e4 * PI / (180.0 * 60.0);
        let (power, constant) = (radius.powf(5.0 / 3.0), kolmogorov_constant());
        assert!((radius - 2.91).abs() < 5e-3 && (power - 5.93).abs() < 5e-3, "{radius} {power}");
        for (outer_scale, loss, nanometres) in [(f64::INFINITY, 3.34, 145.4), (25.0, 2.90, 135.5)] {
            let phase = VonKarman::new(outer_scale);
            let once = DiscAverage::new(&phase, radius, 10.0).half_structure(0.0);
            let twice = DiscAverage::twice(&phase, radius, 10.0).half_structure(0.0);
            if outer_scale.is_infinite() {
                // Compare the averages of an arcminute
                assert!(
                    (once - 11.13).abs() < 5e-3 && (twice - 19.43).abs() < 5e-3,
                    "{once} {twice}"
                );
                assert!(
                    (constant - 3.44).abs() < 5e-3
                        && (twice / (constant * power) - 0.952).abs() < 5e-4
                );
                assert!((2.0 * once - twice - 2.83).abs() < 5e-3, "{once} {twice}");
                assert!(((2.0 * once - twice) / power - 0.4771).abs() < 5e-5, "{once} {twice}");
            }
            let variance = 0.05 * 0.15f64.powf(-5.0 / 3.0) * (2.0 * once - twice);
            assert!((variance - loss).abs() < 5e-3, "{variance}");
            assert!((variance.sqrt() * 500.0 / (2.0 * PI) - nanometres).abs() < 0.1, "{variance}");
        }
    }

    // Shrink the disc to a point
    #[test]
    fn small_discs_tend_to_a_point() {
        for outer_scale in [3.0, f64::INFINITY] {
            let phase = VonKarman::new(outer_scale);
            let (once, point) = (DiscAverage::new, DiscAverage::new(&phase, 0.0, 4.0));
            for r in [0.001, 0.4, 4.0] {
                let slope = r * phase.slope_over_distance(r * r);
                assert!((point.half_structure_slope(r) / slope - 1.0).abs() < 1e-12);
                assert!(
                    (point.half_structure(r) / phase.half_structure_and_half_mean(r).0 - 1.0).abs()
                        < 1e-10
                );
            }
            let (r, radius, step) = (1.3f64, 0.02f64, 1e-3);
            let p = |t| phase.slope_over_distance(t);
            let laplacian = 2.0 * p(r * r) + r * r * (p(r * r + step) - p(r * r - step)) / step;
            let gain = radius * radius / 8.0 * laplacian;
            let once = once(&phase, radius, 2.0).half_structure(r) - point.half_structure(r);
            let twice =
                DiscAverage::twice(&phase, radius, 2.0).half_structure(r) - point.half_structure(r);
            assert!((once / gain - 1.0).abs() < 1e-4, "{once:e} {gain:e}");
            assert!((twice / gain - 2.0).abs() < 2e-4, "{twice:e} {gain:e}");
        }
    }

    // Shrink the disc to nothing
    #[test]
    fn discs_shrink_to_a_point_without_a_jump() {
        for outer_scale in [0.01, 25.0, f64::INFINITY] {
            let phase = VonKarman::new(outer_scale);
            let point = DiscAverage::new(&phase, 0.0, 40.0);
            let places: Vec<f64> =
                (0..400).map(|k| 40.0 * (f64::from(k) / 400.0).powi(4)).collect();
            let most =
                |f: &dyn Fn(f64) -> f64| places.iter().map(|&r| f(r).abs()).fold(0.0, f64::max);
            let largest =
                [most(&|r| point.half_structure(r)), most(&|r| point.half_structure_slope(r))];
            let exponents = (6..30).step_by(2).chain((30..=324).step_by(21));
            let radii = exponents.map(|k| 10f64.powi(-k)).chain([5e-324, 0.0]);
            for radius in radii {
                let once = DiscAverage::new(&phase, radius, 40.0);
                for disc in [once, DiscAverage::twice(&phase, radius, 40.0)] {
                    let errors = places.iter().map(|&r| {
                        let half_structure =
                            (disc.half_structure(r) - point.half_structure(r)) / largest[0];
                        let slope = (disc.half_structure_slope(r) - point.half_structure_slope(r))
                            / largest[1];
                        [half_structure.abs(), slope.abs()]
                    });
                    let allowed = [(5.0 / 3.0, largest[0]), (2.0 / 3.0, largest[1])]
                        .map(|(power, largest)| 2e-12 + 6.0 * radius.powf(power) / largest);
                    for [half_structure, slope] in errors {
                        assert!(
                            half_structure < allowed[0] && slope < allowed[1],
                            "R = {radius:e}: {half_structure:e} {slope:e}"
                        );
                    }
                }
            }
        }
    }

    // Compare the table with the circle
    #[test]
    fn the_table_follows_the_circle() {
        for (outer_scale, radius, reach) in
            [(25.0, 0.7, 50.0), (f64::INFINITY, 3.0, 500.0), (0.5, 50.0, 90.0), (25.0, 1e-6, 40.0)]
        {
            let phase = VonKarman::new(outer_scale);
            let table = DiscAverage::new(&phase, radius, reach);
            let twice = DiscAverage::twice(&phase, radius, reach);
            let wide = DiscAverage::new(&phase, radius, reach + radius);
            let slope = |r| mean_slope(&phase, radius, r);
            let near = (0..60).map(|k| 0.5f64.powi(k) * radius);
            let rim = near.flat_map(|v| [radius - v, radius + v]).filter(|&r| r > 0.0 && r < reach);
            let places: Vec<f64> =
                rim.chain((1..200).map(|k| f64::from(k) * reach / 200.0)).collect();
            let largest = places.iter().map(|&r| slope(r)).fold(0.0, f64::max);
            for r in places {
                let error = (table.half_structure_slope(r) - slope(r)) / largest;
                assert!(error.abs() < 1e-13, "slope at {r}, R = {radius}: {error:e}");
                // Integrate the slope over a centimetre
                let length = f64::min(0.01, 0.5 * (r - radius).abs());
                let sum: f64 = (RIM.nodes.iter().zip(&RIM.weights))
                    .map(|(x, weight)| 0.5 * weight * slope(r + 0.5 * length * (1.0 + x)))
                    .sum();
                let difference = table.half_structure(r + length) - table.half_structure(r);
                let allowed =
                    1e-13 * largest * length + 2.0 * f64::EPSILON * table.half_structure(r);
                assert!((difference - length * sum).abs() < allowed, "S at {r}, R = {radius}");
                let error = (twice.half_structure_slope(r) - wide.mean_slope_again(r, 7)) / largest;
                assert!(error.abs() < 2e-13, "twice at {r}, R = {radius}: {error:e}");
            }
        }
    }

    // Recover the variance far away
    #[test]
    fn far_away_half_structure_is_the_variance() {
        for (outer_scale, radius, beyond) in [
            (0.5, 50.0, 0.0),
            (0.5, 1e-6, 0.0),
            (2.0, 1.3, 0.0),
            (5.0, 0.0, 0.0),
            (5.0, 7.0, 0.0),
            (1e-4, 1e-2, 1.0),
            (0.1, 0.02, 1e5),
            (1e-5, 0.0, 10.0),
        ] {
            let phase = VonKarman::new(outer_scale);
            let reach = 2.0 * radius + 8.0 * outer_scale + beyond;
            let variance = phase.covariance(0.0);
            let once = DiscAverage::new(&phase, radius, reach).half_structure(reach) / variance;
            let twice = DiscAverage::twice(&phase, radius, reach).half_structure(reach) / variance;
            assert!((once - 1.0).abs() < 1e-12, "once, R = {radius}: {once}");
            assert!((twice - 1.0).abs() < 1e-11, "twice, R = {radius}: {twice}");
        }
    }
}
