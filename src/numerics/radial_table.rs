// Tangled from book/src/quadrature.md: edit there, or here and run cargo tangle stitch.
//! A table of a smooth function of squared distance: value and slope from one cache line.

/// Each octave of t is divided into 2^SEGMENT_BITS segments.
const SEGMENT_BITS: u32 = 5;

/// Coefficients of a segment's polynomial.
const COEFFICIENTS: usize = 7;

// One segment of the table
/// A polynomial in t − centre.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Segment {
    centre: f64,
    coefficients: [f64; COEFFICIENTS],
}

/// The number of the segment that holds t > 0.
fn segment_number(t: f64) -> u64 {
    t.to_bits() >> (52 - SEGMENT_BITS)
}

/// The lower edge of a segment.
fn lower_edge(number: u64) -> f64 {
    f64::from_bits(number << (52 - SEGMENT_BITS))
}

// Radial table over many octaves
/// A function f(t) of t = r² on a geometric grid of segments, for f smooth on t > 0.
#[derive(Debug, Clone)]
pub struct RadialTable {
    first: u64,
    segments: Vec<Segment>,
}

impl RadialTable {
    /// Tabulates `f` from `low` to `high` (both positive, m² when t is a squared distance).
    pub fn new(low: f64, high: f64, f: impl Fn(f64) -> f64) -> Self {
        debug_assert!(low > 0.0 && low <= high);
        let first = segment_number(low);
        let fit = |number| fit_segment(lower_edge(number), lower_edge(number + 1), &f);
        Self { first, segments: (first..=segment_number(high)).map(fit).collect() }
    }

    // Tabulate by the slope
    /// Tabulates the function that is `value` at the lower edge of the table and has the slope df/dt, from `low` to `high`: differences of
    /// neighbouring values are as accurate as the slope, while those of [`new`](Self::new) have the errors of `value`.
    pub fn by_slope(
        [low, high]: [f64; 2],
        value: impl Fn(f64) -> f64,
        slope: impl Fn(f64) -> f64,
    ) -> Self {
        debug_assert!(low > 0.0 && low <= high);
        let first = segment_number(low);
        // What has been reached, and what its rounding has left out.
        let (mut reached, mut rest) = (value(lower_edge(first)), 0.0);
        let continued = |number| {
            // Continue by an integrated slope
            let (low, high) = (lower_edge(number), lower_edge(number + 1));
            let fitted: [f64; COEFFICIENTS - 1] = fit_polynomial(low, high, &slope);
            let (mut coefficients, half) = ([0.0; COEFFICIENTS], 0.5 * (high - low));
            let (mut before, mut whole, mut power) = (0.0, 0.0, 1.0);
            for (k, coefficient) in fitted.into_iter().enumerate() {
                coefficients[k + 1] = coefficient / (k + 1) as f64;
                power *= half;
                let term = coefficients[k + 1] * power;
                before += if k % 2 == 0 { term } else { -term };
                whole += if k % 2 == 0 { 2.0 * term } else { 0.0 };
            }
            coefficients[0] = reached + (rest + before);
            let next = reached + (rest + whole);
            rest += whole - (next - reached);
            reached = next;
            Segment { centre: 0.5 * (low + high), coefficients }
        };
        Self { first, segments: (first..=segment_number(high)).map(continued).collect() }
    }

    // Look up value and slope
    /// f(t) and df/dt; `t` must lie within the table.
    ///
    /// ```
    /// let table = lenslet::numerics::RadialTable::new(0.5, 90.0, |t| 1.0 / t);
    /// let (value, slope) = table.value_and_slope(2.5);
    /// assert!((value - 0.4).abs() < 1e-14 && (slope + 0.16).abs() < 1e-12);
    /// ```
    #[inline(always)]
    pub fn value_and_slope(&self, t: f64) -> (f64, f64) {
        let segment = &self.segments[(segment_number(t) - self.first) as usize];
        let (u, c) = (t - segment.centre, &segment.coefficients);
        let (mut value, mut slope) = (c[COEFFICIENTS - 1], 0.0);
        for k in (0..COEFFICIENTS - 1).rev() {
            slope = slope * u + value;
            value = value * u + c[k];
        }
        (value, slope)
    }

    // Segments of a table for a device
    /// The segments that a device looks up in double precision: the centre and seven coefficients each.
    pub(crate) fn segments(&self) -> impl Iterator<Item = [f64; 8]> + '_ {
        self.segments.iter().map(|segment| {
            let mut row = [segment.centre; 8];
            row[1..].copy_from_slice(&segment.coefficients);
            row
        })
    }

    /// The numbers of the first and the last of these segments, as a device counts them.
    pub(crate) fn numbers(&self) -> [i32; 2] {
        let first = self.first as i32;
        [first, first + self.segments.len() as i32 - 1]
    }

    // Cubics of a table for a device
    /// The cubics, 64 to the octave, that a device looks up in single precision; for whole octaves from `low` to `high`.
    pub(crate) fn slivers(
        &[low, high]: &[f64; 2],
        f: impl Fn(f64) -> f64,
    ) -> impl Iterator<Item = [f64; 4]> {
        let edge = |number: u64| f64::from_bits(number << (51 - SEGMENT_BITS));
        let numbers = [low, high].map(|t| t.to_bits() >> (51 - SEGMENT_BITS));
        (numbers[0]..numbers[1]).map(move |k| {
            let octave = edge(k >> (SEGMENT_BITS + 1) << (SEGMENT_BITS + 1));
            let mut unit = 1.0 / octave;
            fit_polynomial(edge(k), edge(k + 1), &f).map(|c| {
                unit *= octave;
                c * unit
            })
        })
    }
}

// Interpolate at the nodes of Chebyshev
fn fit_segment(low: f64, high: f64, f: impl Fn(f64) -> f64) -> Segment {
    Segment { centre: 0.5 * (low + high), coefficients: fit_polynomial(low, high, f) }
}

/// The `N` coefficients of a polynomial in t − centre on a segment.
pub(crate) fn fit_polynomial<const N: usize>(
    low: f64,
    high: f64,
    f: impl Fn(f64) -> f64,
) -> [f64; N] {
    let (centre, half) = (0.5 * (low + high), 0.5 * (high - low));
    let angle = |k| (2 * k + 1) as f64 * std::f64::consts::PI / (2 * N) as f64;
    let nodes: [f64; N] = std::array::from_fn(|k| half * f64::cos(angle(k)));
    let mut differences = nodes.map(|u| f(centre + u));
    for order in 1..N {
        for k in (order..N).rev() {
            differences[k] = (differences[k] - differences[k - 1]) / (nodes[k] - nodes[k - order]);
        }
    }
    // Multiply the Newton form out
    let mut coefficients = [0.0; N];
    for k in (0..N).rev() {
        for power in (1..N).rev() {
            coefficients[power] = coefficients[power - 1] - nodes[k] * coefficients[power];
        }
        coefficients[0] = differences[k] - nodes[k] * coefficients[0];
    }
    coefficients
}

// Tests of the radial table
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_and_exponentials_keep_their_digits() {
        let power = |t: f64| (t.powf(-1.0 / 6.0), -t.powf(-7.0 / 6.0) / 6.0);
        let exponential = |t: f64| (f64::exp(-t.sqrt()), -f64::exp(-t.sqrt()) / (2.0 * t.sqrt()));
        for f in [power, exponential] {
            let table = RadialTable::new(1e-3, 99.0, |t| f(t).0);
            for k in 0..4000 {
                let t = 1e-3 * f64::powf(99.0 / 1e-3, f64::from(k) / 4000.0);
                let ((value, slope), (exact, exact_slope)) = (table.value_and_slope(t), f(t));
                assert!((value / exact - 1.0).abs() < 1e-12, "value at {t}");
                assert!((slope / exact_slope - 1.0).abs() < 1e-10, "slope at {t}");
            }
        }
    }
}
