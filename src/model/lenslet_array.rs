// Tangled from book/src/lenslet-array.md: edit there, or here and run cargo tangle stitch.
//! The pupil, the lenslet array in it, its valid lenslets, and the order of their slopes.

use crate::error::{Invalid, accept, length};
use ndarray::{Array2, s};
use std::ops::Range;

// Area of a disc in a rectangle
/// The area \[m²\] that a disc of `radius` \[m\] at the origin has in common with the rectangle
/// `x[0]..x[1]` × `y[0]..y[1]` \[m\], [disc rectangle](https://lenslet.github.io/lenslet/lenslet-array.html#eq-disc-rectangle).
pub(crate) fn disc_rectangle_area(radius: f64, x: [f64; 2], y: [f64; 2]) -> f64 {
    let halves = |[a, b]: [f64; 2]| [[a.max(0.0), b.max(0.0)], [(-b).max(0.0), (-a).max(0.0)]];
    let mut area = 0.0;
    for x in halves(x) {
        for y in halves(y) {
            area += area_in_quadrant(radius, x, y);
        }
    }
    area
}

// Area of a disc in a quadrant
/// The area common to a disc and a rectangle that lies in the first quadrant, [disc rectangle](https://lenslet.github.io/lenslet/lenslet-array.html#eq-disc-rectangle).
fn area_in_quadrant(radius: f64, [x0, x1]: [f64; 2], [y0, y1]: [f64; 2]) -> f64 {
    let arc = |u: f64| ((radius - u) * (radius + u)).max(0.0).sqrt();
    let (xa, xb) = (arc(y1).clamp(x0, x1), arc(y0).clamp(x0, x1));
    let full = (xa - x0) * (y1 - y0);
    if xa == xb {
        return full;
    }
    let (sa, sb) = (arc(xa), arc(xb));
    let alpha = 2.0 * ((xb - xa).hypot(sb - sa) / (2.0 * radius)).min(1.0).asin();
    full + (xb - xa) * (0.5 * (sa + sb) - y0) + 0.5 * radius * radius * (alpha - alpha.sin())
}

// The pupil of a telescope
/// The pupil of a telescope: a disc with a central obstruction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pupil {
    diameter: f64,
    obstruction: f64,
}

impl Pupil {
    /// A pupil of `diameter` \[m\] whose obstruction has `obstruction` times that diameter, from 0 to less
    /// than 1.
    pub fn new(diameter: f64, obstruction: f64) -> Result<Self, Invalid> {
        let diameter = length("diameter", diameter)?;
        let expected = "a ratio of diameters from 0 to less than 1";
        accept((0.0..1.0).contains(&obstruction), "obstruction", obstruction, expected)?;
        Ok(Self { diameter, obstruction })
    }

    // Light in the pupil
    // Diameter and obstruction of the pupil
    /// The diameter \[m\].
    pub fn diameter(&self) -> f64 {
        self.diameter
    }

    /// The diameter of the central obstruction in units of the diameter.
    pub fn obstruction(&self) -> f64 {
        self.obstruction
    }

    /// Whether a point \[m\] is lit; the rim of the obstruction is, the outer rim is not.
    pub fn contains(&self, [x, y]: [f64; 2]) -> bool {
        let (square, outer) = (x * x + y * y, self.diameter / 2.0);
        let inner = outer * self.obstruction;
        inner * inner <= square && square < outer * outer
    }

    /// The lit fraction of the area of a square, given its centre \[m\] and side \[m\]; from 0 to 1.
    pub fn lit_fraction(&self, centre: [f64; 2], side: f64) -> f64 {
        if let Some(fraction) = self.whole_fraction(centre, side) {
            return fraction;
        }
        let [x, y] = centre.map(|c| [c - side / 2.0, c + side / 2.0]);
        let outer = self.diameter / 2.0;
        let disc = |radius| disc_rectangle_area(radius, x, y);
        ((disc(outer) - disc(outer * self.obstruction)) / (side * side)).clamp(0.0, 1.0)
    }

    // Sort squares that no rim crosses
    /// Squares of the radii of the obstruction and of the pupil, m².
    fn rims(&self) -> [f64; 2] {
        let outer = self.diameter / 2.0;
        [outer * self.obstruction, outer].map(|radius| radius * radius)
    }

    /// The lit fraction of a square that no rim crosses: 0 or 1; none for the others.
    fn whole_fraction(&self, centre: [f64; 2], side: f64) -> Option<f64> {
        let ([inner, outer], [nearest, farthest]) = (self.rims(), extremes(centre, side));
        if nearest >= outer || farthest <= inner {
            return Some(0.0);
        }
        (farthest <= outer && nearest >= inner).then_some(1.0)
    }
}

// When a lenslet is valid
/// The rule by which a lenslet is valid, that is, used.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Validity {
    /// At least this fraction of its area is lit, from 0 to 1.
    LitFraction(f64),
    /// Its centre is lit: `(D o / 2)² ≤ r² < (D / 2)²`.
    Centre,
}

impl Validity {
    /// The rule of the lit fraction with a `threshold` from 0 to 1.
    pub fn lit_fraction(threshold: f64) -> Result<Self, Invalid> {
        let good = (0.0..=1.0).contains(&threshold);
        accept(good, "valid_threshold", threshold, "a fraction from 0 to 1").map(Self::LitFraction)
    }
}

impl Default for Validity {
    /// Half of the area.
    fn default() -> Self {
        Self::LitFraction(0.5)
    }
}

// A square array of lenslets
/// A square array of N × N square lenslets, centred on the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LensletArray {
    lenslets: usize,
    pitch: f64,
}

impl LensletArray {
    /// An array of `lenslets` × `lenslets` lenslets with the side and pitch `pitch` \[m\].
    ///
    /// Rejects fewer than 1 or more than 10 000 lenslets across, and a pitch that is not positive and finite.
    pub fn new(lenslets: usize, pitch: f64) -> Result<Self, Invalid> {
        let good = (1..=10_000).contains(&lenslets);
        let lenslets = accept(good, "lenslets", lenslets, "a whole number from 1 to 10000")?;
        Ok(Self { lenslets, pitch: length("pitch", pitch)? })
    }

    // Positions and validity of lenslets
    /// The number N of lenslets across the array.
    pub fn lenslets(&self) -> usize {
        self.lenslets
    }

    /// The pitch of the array, and side of a lenslet \[m\].
    pub fn pitch(&self) -> f64 {
        self.pitch
    }

    /// The coordinate \[m\] of the centre of lenslet `i` along either axis, [lenslet centre](https://lenslet.github.io/lenslet/lenslet-array.html#eq-lenslet-centre).
    pub fn centre(&self, i: usize) -> f64 {
        (i as f64 - (self.lenslets as f64 - 1.0) / 2.0) * self.pitch
    }

    // Decide which lenslets are valid
    /// Whether lenslet `[j, i]` is valid; without a pupil it always is.
    pub fn is_valid(&self, [j, i]: [usize; 2], pupil: Option<&Pupil>, validity: Validity) -> bool {
        let centre = [self.centre(i), self.centre(j)];
        match (pupil, validity) {
            (None, _) => true,
            (Some(pupil), Validity::Centre) => pupil.contains(centre),
            (Some(pupil), Validity::LitFraction(threshold)) => {
                pupil.lit_fraction(centre, self.pitch) >= threshold - 1e-12
            }
        }
    }

    /// Number of valid lenslets.
    pub fn count_valid(&self, pupil: Option<&Pupil>, validity: Validity) -> usize {
        self.runs(pupil, validity).map(|run| run.columns.len()).sum()
    }

    /// Whether there is any valid lenslet.
    pub fn any_valid(&self, pupil: Option<&Pupil>, validity: Validity) -> bool {
        self.runs(pupil, validity).next().is_some()
    }

    // Map of the valid lenslets
    /// Map of the valid lenslets: shape (N, N), axis 0 along y, all true without a pupil.
    ///
    /// ```
    /// use lenslet::model::{LensletArray, Pupil, Validity};
    /// let array = LensletArray::new(4, 0.25)?;
    /// let pupil = Pupil::new(1.0, 0.0)?;
    /// let valid = array.valid(Some(&pupil), Validity::default());
    /// assert_eq!(valid.iter().filter(|&&v| v).count(), 12); // all but the corners
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn valid(&self, pupil: Option<&Pupil>, validity: Validity) -> Array2<bool> {
        let mut valid = Array2::from_elem((self.lenslets, self.lenslets), false);
        for LensletRun { row, columns, .. } in self.runs(pupil, validity) {
            valid.slice_mut(s![row, columns]).fill(true);
        }
        valid
    }
}

// Runs of lenslets that are lit alike
/// Neighbouring lenslets of a row with equal lit fractions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LensletRun {
    pub(crate) row: usize,
    pub(crate) columns: Range<usize>,
    /// The lit fraction of each.
    pub(crate) lit: f64,
}

// Distances of a square and bisection
/// Squares of the distances of the nearest and the farthest point of a square from the axis, m².
fn extremes(centre: [f64; 2], side: f64) -> [f64; 2] {
    let half = side / 2.0;
    let [near, far] = [-half, half].map(|half| centre.map(|x| (x.abs() + half).max(0.0)));
    [near, far].map(|[x, y]| x * x + y * y)
}

/// Number of leading integers below `count` with a property that all later ones lack.
fn bisected(count: usize, has: impl Fn(usize) -> bool) -> usize {
    let (mut least, mut most) = (0, count);
    while least < most {
        let middle = (least + most) / 2;
        if has(middle) {
            least = middle + 1;
        } else {
            most = middle;
        }
    }
    least
}

impl LensletArray {
    // Valid runs of all rows
    /// The valid lenslets in runs, row by row; without a pupil all are lit.
    pub(crate) fn runs(
        &self,
        pupil: Option<&Pupil>,
        validity: Validity,
    ) -> impl Iterator<Item = LensletRun> {
        let (array, pupil) = (*self, pupil.copied());
        let n = array.lenslets;
        let all = move |row| match &pupil {
            Some(pupil) => array.row(row, pupil),
            None => vec![LensletRun { row, columns: 0..n, lit: 1.0 }],
        };
        let is_valid = move |run: &LensletRun| match (&pupil, validity) {
            (None, _) => true,
            (Some(_), Validity::LitFraction(threshold)) => run.lit >= threshold - 1e-12,
            (Some(pupil), Validity::Centre) => {
                pupil.contains([run.columns.start, run.row].map(|k| array.centre(k)))
            }
        };
        (0..n).flat_map(all).filter(is_valid)
    }

    // Runs of one row
    /// All runs of a row, from its first column to the last.
    fn row(&self, row: usize, pupil: &Pupil) -> Vec<LensletRun> {
        let (n, parts) = (self.lenslets, self.parts(row, pupil));
        let (odd, middle) = (n % 2, n / 2);
        let mirrored = parts.iter().rev().map(|(part, lit)| {
            let (start, end) = (part.start.max(odd), part.end.max(part.start.max(odd)));
            (n - middle - end..n - middle - start, *lit)
        });
        let straight =
            parts.iter().map(|(part, lit)| (middle + part.start..middle + part.end, *lit));
        let mut runs = Vec::new();
        for (columns, lit) in mirrored.chain(straight).filter(|(columns, _)| !columns.is_empty()) {
            let Some(lit) = lit else {
                let lit = |i| pupil.lit_fraction([i, row].map(|k| self.centre(k)), self.pitch);
                runs.extend(columns.map(|i| LensletRun { row, columns: i..i + 1, lit: lit(i) }));
                continue;
            };
            runs.push(LensletRun { row, columns, lit });
        }
        runs
    }

    // Parts of a row from its middle
    /// The parts of row `j` from its middle outwards: lenslets from `start` to `end`, counted from the middle one, and the lit fraction of all
    /// of them, unless a rim crosses them.
    fn parts(&self, j: usize, pupil: &Pupil) -> [(Range<usize>, Option<f64>); 5] {
        let (middle, half) = (self.lenslets / 2, self.lenslets - self.lenslets / 2);
        let far = |k: usize| extremes([self.centre(middle + k), self.centre(j)], self.pitch);
        let [inner, outer] = pupil.rims();
        let dark = bisected(half, |k| far(k)[1] <= inner);
        let on_rim = bisected(half, |k| far(k)[0] < inner);
        let whole = bisected(half, |k| far(k)[1] <= outer);
        let last = bisected(half, |k| far(k)[0] < outer);
        let (first, whole) = if on_rim < whole { (on_rim, whole) } else { (last, last) };
        [
            (0..dark, Some(0.0)),
            (dark..first, None),
            (first..whole, Some(1.0)),
            (whole..last, None),
            (last..half, Some(0.0)),
        ]
    }
}

// The order of slopes
/// The order of the slopes of several sources in one vector, [slope order](https://lenslet.github.io/lenslet/lenslet-array.html#eq-slope-order).
///
/// ```
/// use lenslet::model::{LensletArray, SlopeOrder, Validity};
/// let all = LensletArray::new(3, 0.5)?.valid(None, Validity::default());
/// let order = SlopeOrder::new(&[all.clone(), all]);
/// assert_eq!(order.len(), 36);
/// assert_eq!(order.index(1, 0, 4), 22); // second source, along x, the lenslet on the axis
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlopeOrder {
    lenslets: Vec<Vec<[usize; 2]>>,
    starts: Vec<usize>,
}

// Make the order of slopes
impl SlopeOrder {
    /// The order for sources whose valid lenslets are given, one array of shape (N, N) per source.
    pub fn new(valid: &[Array2<bool>]) -> Self {
        let list = |valid: &Array2<bool>| {
            let used = valid.indexed_iter().filter(|&(_, &used)| used);
            used.map(|((j, i), _)| [j, i]).collect::<Vec<_>>()
        };
        let lenslets: Vec<_> = valid.iter().map(list).collect();
        let mut starts = vec![0];
        for source in &lenslets {
            starts.push(starts[starts.len() - 1] + 2 * source.len());
        }
        Self { lenslets, starts }
    }

    // Look up a slope
    /// The length of the vector.
    pub fn len(&self) -> usize {
        self.starts[self.lenslets.len()]
    }

    /// Whether there is no slope at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The valid lenslets of a source as `[j, i]`, row and column, in their order.
    pub fn lenslets(&self, source: usize) -> &[[usize; 2]] {
        &self.lenslets[source]
    }

    /// Index of the slope of valid lenslet `k` of `source` along `component`, 0 for x and 1 for y.
    pub fn index(&self, source: usize, component: usize, k: usize) -> usize {
        self.starts[source] + component * self.lenslets[source].len() + k
    }
}

// Other orders of slopes
/// The order in which the slopes of a sensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlopeArrangement {
    /// All x slopes before all y slopes, lenslets row by row, as in [`SlopeOrder`].
    #[default]
    Rows,
    /// All x slopes before all y slopes, lenslets column by column.
    Columns,
    /// x and y of each lenslet alternate, lenslets row by row.
    Interleaved,
    /// x and y of each lenslet alternate, lenslets column by column.
    InterleavedColumns,
}

impl SlopeArrangement {
    // Names of orders of slopes
    /// All arrangements with their names and descriptions.
    pub const NAMES: [(&'static str, &'static str, Self); 4] = [
        ("rows", "All x before all y, lenslets row by row", Self::Rows),
        ("columns", "All x before all y, lenslets column by column (column-major)", Self::Columns),
        ("interleaved", "x, y, x, y, …, lenslets row by row", Self::Interleaved),
        (
            "interleaved-columns",
            "x, y, x, y, …, lenslets column by column (column-major)",
            Self::InterleavedColumns,
        ),
    ];

    // Positions of slopes in storage
    /// Where the slopes of these lenslets are stored, in the order of [`SlopeOrder`]: all x, then all y.
    #[cfg(any(feature = "files", feature = "factorise"))]
    pub(crate) fn places(self, lenslets: &[[usize; 2]]) -> Vec<usize> {
        let mut stored: Vec<usize> = (0..lenslets.len()).collect();
        if matches!(self, Self::Columns | Self::InterleavedColumns) {
            stored.sort_by_key(|&k| (lenslets[k][1], lenslets[k][0]));
        }
        let mut rank = vec![0; lenslets.len()];
        stored.iter().enumerate().for_each(|(place, &k)| rank[k] = place);
        let place = |axis: usize, k: usize| match self {
            Self::Rows | Self::Columns => axis * lenslets.len() + rank[k],
            Self::Interleaved | Self::InterleavedColumns => 2 * rank[k] + axis,
        };
        (0..2)
            .flat_map(|axis| (0..lenslets.len()).map(move |k| (axis, k)))
            .map(|(axis, k)| place(axis, k))
            .collect()
    }
}

// Check areas against brute force
#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    /// The share of a rectangle's area in which `lit` holds, by counting 500 × 500 points.
    fn count(x: [f64; 2], y: [f64; 2], lit: impl Fn(f64, f64) -> bool) -> f64 {
        let at = |[a, b]: [f64; 2], k: usize| a + (b - a) * (k as f64 + 0.5) / 500.0;
        let column = |i| (0..500).filter(|&j| lit(at(x, i), at(y, j))).count();
        (0..500).map(column).sum::<usize>() as f64 / 250e3
    }

    // Count points in lopsided rectangles
    #[test]
    fn areas_agree_with_counted_points() {
        let rectangles = [
            ([-0.4, 0.7], [0.9, 1.6]),
            ([-1.2, -0.3], [-0.6, 1.1]),
            ([0.1, 5.0], [-0.2, 0.05]),
            ([-9.0, 0.2], [-1.25, 3.0]),
            ([0.95, 1.5], [0.8, 1.2]),
            ([-0.9, 0.8], [-0.7, 0.9]),
            ([1.31, 2.0], [-1.0, 1.0]),
        ];
        for (x, y) in rectangles {
            let side = (x[1] - x[0]) * (y[1] - y[0]);
            let counted = count(x, y, |x, y| x * x + y * y < 1.3 * 1.3);
            let share = disc_rectangle_area(1.3, x, y) / side;
            assert!((share - counted).abs() < 1e-3, "{x:?} {y:?}: {share} against {counted}");
        }
    }

    // Cut a disc by an uneven grid
    #[test]
    fn pieces_of_a_disc_add_up() {
        let edges: Vec<f64> =
            (0..=60).map(|k| -5.0 + 10.1 * (f64::from(k) / 60.0).powf(1.3)).collect();
        let mut sum = 0.0;
        for x in edges.windows(2) {
            for y in edges.windows(2) {
                sum += disc_rectangle_area(4.9, [x[0], x[1]], [y[0], y[1]]);
            }
        }
        assert!((sum / (PI * 4.9 * 4.9) - 1.0).abs() < 1e-14);
        let (radius, chord): (f64, f64) = (2.0, 1.2);
        let segment = radius.powi(2) * (chord / radius).acos()
            - chord * (radius.powi(2) - chord.powi(2)).sqrt();
        assert!((disc_rectangle_area(radius, [-3.0, 3.0], [chord, 9.0]) - segment).abs() < 1e-14);
        assert_eq!(disc_rectangle_area(2.0, [-1.0, 1.0], [-1.5, 0.5]), 4.0);
    }

    // Count light in lopsided pupils
    #[test]
    fn light_agrees_with_counted_points() {
        let pupil = Pupil::new(2.0, 0.3).unwrap();
        for (centre, side) in
            [([0.31, -0.17], 0.2), ([-0.2, 0.1], 0.9), ([0.75, 0.71], 0.4), ([0.0, -0.1], 3.0)]
        {
            let [x, y] = centre.map(|c| [c - side / 2.0, c + side / 2.0]);
            let counted = count(x, y, |x, y| pupil.contains([x, y]));
            assert!((pupil.lit_fraction(centre, side) - counted).abs() < 1e-3, "{centre:?} {side}");
        }
        for lenslets in [7, 8] {
            let array = LensletArray::new(lenslets, 2.0 / lenslets as f64).unwrap();
            let valid = array.valid(Some(&pupil), Validity::LitFraction(0.7));
            for ((j, i), &valid) in valid.indexed_iter() {
                let square = |k| {
                    [array.centre(k) - array.pitch() / 2.0, array.centre(k) + array.pitch() / 2.0]
                };
                let counted = count(square(i), square(j), |x, y| pupil.contains([x, y]));
                assert!(
                    (counted - 0.7).abs() < 1e-3 || valid == (counted > 0.7),
                    "[{j}, {i}] {counted}"
                );
            }
        }
    }

    // Runs agree with single lenslets
    #[test]
    fn runs_agree_with_single_lenslets() {
        for (lenslets, width, obstruction) in [
            (1, 2.0, 0.0),
            (2, 2.0, 0.9),
            (3, 2.0, 0.99),
            (8, 1.4, 0.3),
            (9, 2.3, 0.5),
            (40, 2.0, 0.14),
            (41, 7.0, 0.999),
            (6, 60.0, 0.1),
        ] {
            let (array, pupil) = (
                LensletArray::new(lenslets, width / lenslets as f64).unwrap(),
                Pupil::new(2.0, obstruction).unwrap(),
            );
            let rules = [0.0, 1e-9, 0.5, 1.0].map(Validity::LitFraction);
            for rule in rules.into_iter().chain([Validity::Centre]) {
                let alone = |(j, i)| array.is_valid([j, i], Some(&pupil), rule);
                let expected = Array2::from_shape_fn((lenslets, lenslets), alone);
                assert_eq!(array.valid(Some(&pupil), rule), expected, "{lenslets} {rule:?}");
                let count = expected.iter().filter(|valid| **valid).count();
                assert_eq!(array.count_valid(Some(&pupil), rule), count);
                assert_eq!(array.any_valid(Some(&pupil), rule), count > 0);
                let mut order = Vec::new();
                for LensletRun { row, columns, lit } in array.runs(Some(&pupil), rule) {
                    for i in columns {
                        let centre = [i, row].map(|k| array.centre(k));
                        assert!((pupil.lit_fraction(centre, array.pitch()) - lit).abs() < 1e-14);
                        order.push([row, i]);
                    }
                }
                assert_eq!(order, SlopeOrder::new(&[expected]).lenslets(0));
            }
        }
        let (array, pupil) =
            (LensletArray::new(10_000, 1e-3).unwrap(), Pupil::new(10.0, 0.3).unwrap());
        let start = std::time::Instant::now();
        let count = array.count_valid(Some(&pupil), Validity::default()) as f64;
        let area = 25e6 * PI * (1.0 - 0.09);
        assert!((count / area - 1.0).abs() < 1e-5 && start.elapsed().as_secs_f64() < 1.0);
    }

    // Valid lenslets one by one
    #[test]
    fn small_arrays_are_as_on_paper() {
        let number = |array: &LensletArray, pupil: &Pupil, validity| {
            array.valid(Some(pupil), validity).iter().filter(|&&valid| valid).count()
        };
        let (four, five) =
            (LensletArray::new(4, 0.25).unwrap(), LensletArray::new(5, 0.2).unwrap());
        let clear = Pupil::new(1.0, 0.0).unwrap();
        let fractions = [1.0, 0.5, 0.0].map(|t| number(&four, &clear, Validity::LitFraction(t)));
        assert_eq!(fractions, [4, 12, 16]);
        let obstructed = Pupil::new(1.0, 0.3).unwrap();
        assert_eq!(number(&five, &clear, Validity::Centre), 21);
        assert_eq!(number(&five, &obstructed, Validity::Centre), 20);
        assert!((clear.contains([0.0, 0.0]), clear.contains([0.5, 0.0])) == (true, false));
        assert!(Pupil::new(1.0, 0.5).unwrap().contains([0.0, -0.25]));
        let twenty = LensletArray::new(20, 0.5).unwrap();
        let valid = twenty.valid(Some(&Pupil::new(10.0, 0.24).unwrap()), Validity::default());
        assert_eq!(valid, valid.t());
        assert_eq!(valid, valid.slice(ndarray::s![..;-1, ..]));
    }

    // Areas of two lenslets with a pencil
    #[test]
    fn two_lenslets_agree_with_a_pencil() {
        let root = 0.1875f64.sqrt();
        let trapezium = |width: f64, heights: f64| width * (0.5 * heights - 0.25);
        let alpha = 2.0 * ((root - 0.25) * 2f64.sqrt()).asin();
        let pupil = Pupil::new(1.0, 0.0).unwrap();
        let [corner, rim] = [0.375, 0.125].map(|x| pupil.lit_fraction([x, 0.375], 0.25));
        for (value, expected, last_digit) in [
            (root, 0.4330, 1e-4),
            (root - 0.25, 0.1830, 1e-4),
            (0.5 * (root + 0.25), 0.3415, 1e-4),
            ((root - 0.25) * 2f64.sqrt(), 0.2588, 1e-4),
            (alpha, PI / 6.0, 1e-14),
            (trapezium(root - 0.25, root + 0.25), 0.01675, 1e-5),
            (trapezium(0.25, root + 0.5), 0.05413, 1e-5),
            (0.125 * (alpha - alpha.sin()), 0.00295, 1e-5),
            (0.0625 * corner, 0.0197, 1e-4),
            (0.0625 * rim, 0.0571, 1e-4),
            (corner, 0.315, 1e-3),
            (rim, 0.913, 1e-3),
            (4.0 + 8.0 * rim + 4.0 * corner, 12.57, 1e-2),
        ] {
            assert!((value - expected).abs() < 0.51 * last_digit, "{value}, not {expected}");
        }
    }

    // The order of a lopsided mask
    #[test]
    fn slopes_follow_their_order() {
        let first = ndarray::arr2(&[[false, true], [true, true]]);
        let second = ndarray::arr2(&[[true, false], [false, false]]);
        let order = SlopeOrder::new(&[first, second]);
        assert_eq!(order.lenslets(0), [[0, 1], [1, 0], [1, 1]]);
        assert_eq!((order.len(), order.is_empty()), (8, false));
        assert_eq!([order.index(0, 0, 2), order.index(0, 1, 0), order.index(1, 1, 0)], [2, 3, 7]);
    }

    #[test]
    fn bad_arrays_are_refused_by_name() {
        assert_eq!(LensletArray::new(0, 0.5).unwrap_err().quantity, "lenslets");
        assert_eq!(LensletArray::new(usize::MAX, 0.5).unwrap_err().quantity, "lenslets");
        assert_eq!(LensletArray::new(8, f64::NAN).unwrap_err().quantity, "pitch");
        assert_eq!(Pupil::new(0.0, 0.1).unwrap_err().quantity, "diameter");
        assert_eq!(Pupil::new(8.0, 1.0).unwrap_err().quantity, "obstruction");
    }
}
