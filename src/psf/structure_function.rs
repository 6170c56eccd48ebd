// Tangled from book/src/structure-function.md: edit there, or here and run cargo tangle stitch.
//! Structure functions of the wavefront that a mirror makes with errors of its strokes.

#[cfg(feature = "factorise")]
pub(super) mod gpu;

// Imports of structure functions
#[cfg(feature = "factorise")]
use crate::device::Engine;
#[cfg(feature = "factorise")]
use crate::error::Error;
use crate::error::{Invalid, accept, length};
#[cfg(feature = "factorise")]
use crate::linear::{Cholesky, Eigen};
use crate::psf::optical_transfer::TelescopeTransfer;
#[cfg(feature = "factorise")]
use crate::psf::optical_transfer::{Aperture, OpticalTransfer};
use crate::psf::transforms::Plane;
#[cfg(feature = "factorise")]
use crate::psf::transforms::{Powers, sum_in_order};
#[cfg(feature = "factorise")]
use ndarray::{Array1, ArrayView2, ArrayViewMut1, s};
use ndarray::{Array2, Zip};
#[cfg(feature = "factorise")]
use rayon::prelude::*;
use std::f64::consts::PI;
#[cfg(feature = "factorise")]
use std::ops::Range;

// Actuators of a mirror
/// The actuators of a mirror and their influence function.
#[derive(Clone, Copy)]
pub struct Actuators<'a> {
    /// Their positions in the pupil \[m\].
    pub positions: &'a [[f64; 2]],
    /// Their pitch \[m\].
    pub pitch: f64,
    /// The influence function at an offset \[m\] from an actuator, 1 at its centre.
    pub influence: &'a (dyn Fn([f64; 2]) -> f64 + Sync),
}

impl Actuators<'_> {
    // Refuse strokes of other actuators at once
    /// Rejects a covariance of other actuators, and actuators without a finite position.
    pub(super) fn check(&self, strokes: &Array2<f64>) -> Result<(), Invalid> {
        self.check_shape(strokes.dim())?;
        self.check_places()?;
        match strokes.indexed_iter().find(|(_, value)| !value.is_finite()) {
            Some((place, value)) => {
                let value = format!("{value} at {place:?}");
                Err(Invalid::new("covariance of strokes", value, "finite numbers"))
            }
            None => Ok(()),
        }
    }

    /// Refuses the shape of a covariance of other actuators.
    pub(super) fn check_shape(&self, shape: (usize, usize)) -> Result<(), Invalid> {
        let count = self.positions.len();
        let expected = format!("({count}, {count}), and at least one actuator");
        let good = shape == (count, count) && count > 0;
        accept(good, "covariance of strokes", shape, &expected).map(drop)
    }

    /// Refuses actuators without a pitch or a place.
    fn check_places(&self) -> Result<(), Invalid> {
        length("pitch", self.pitch)?;
        match self.positions.iter().position(|x| !x.iter().all(|x| x.is_finite())) {
            Some(place) => Err(Invalid::new(format!("positions[{place}]"), "not finite", "metres")),
            None => Ok(()),
        }
    }
}

// Separations of actuators
/// Distinct numbers, ascending, and the place of each of the `values` among them.
fn distinct(values: &[f64], tolerance: f64) -> (Vec<f64>, Vec<usize>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let (mut distinct, mut places) = (Vec::<f64>::new(), vec![0; values.len()]);
    for k in order {
        if distinct.last().is_none_or(|last| values[k] - last > tolerance) {
            distinct.push(values[k]);
        }
        places[k] = distinct.len() - 1;
    }
    (distinct, places)
}

// Separations along one axis
/// Along one axis: the coordinates of the separations, and for each pair of actuators' coordinates which one is theirs.
struct SeparationAxis {
    separations: Vec<f64>,
    between: Array2<usize>,
    place: Vec<usize>,
}

impl SeparationAxis {
    fn of(coordinates: &[f64], pitch: f64) -> Self {
        let (known, place) = distinct(coordinates, 1e-4 * pitch);
        let count = known.len();
        let differences: Vec<f64> =
            (0..count * count).map(|k| known[k % count] - known[k / count]).collect();
        let (separations, between) = distinct(&differences, 1e-3 * pitch);
        let between = Array2::from_shape_fn((count, count), |(k, l)| between[k * count + l]);
        Self { separations, between, place }
    }
}
/// The cosine or the sine.
type Harmonic = fn(f64) -> f64;

// Structure function of stationary strokes
impl Actuators<'_> {
    /// The structure function \[m²\] of the wavefront on the displacements of a telescope, (n, n), in the approximation that the covariance `strokes` (C_vv, m²) depends only
    /// on the separation of two actuators; Eq. [stationary structure](https://lenslet.github.io/lenslet/structure-function.html#eq-stationary-structure). It is 0 where the transfer function of the telescope is.
    // Errors and example of stationary strokes
    ///
    /// # Errors
    /// `Invalid` if the covariance has another shape or is not finite, or the grid of actuators is irregular.
    ///
    /// ```
    /// use lenslet::{psf::{Actuators, Aperture}, model::Pupil};
    /// let telescope = Aperture::across(&Pupil::new(4.0, 0.0)?, &[], 40)?.transfer(80)?;
    /// let positions: Vec<_> = (0..81).map(|k| [(k % 9) as f64 - 4.0, (k / 9) as f64 - 4.0].map(|x| 0.5 * x)).collect();
    /// let gauss = |[x, y]: [f64; 2]| (-(x * x + y * y) / 0.16).exp();
    /// let actuators = Actuators { positions: &positions, pitch: 0.5, influence: &gauss };
    /// // Independent strokes of 10 nm rms: far apart, the wavefront is uncorrelated as well
    /// let found = actuators.stationary(&(ndarray::Array2::eye(81) * 1e-16), &telescope)?;
    /// let variance = 1e-16 / 0.25 * std::f64::consts::PI * 0.08;
    /// assert!((found[[40, 40 + 35]] / (2.0 * variance) - 1.0).abs() < 1e-9);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    // Structure functions of a worked case
    ///
    /// The worked case of the chapter:
    ///
    /// ```
    /// use lenslet::{psf::{Actuators, Aperture}, model::Pupil};
    /// use ndarray::Array2;
    /// let telescope = Aperture::across(&Pupil::new(4.0, 0.0)?, &[], 40)?.transfer(80)?;
    /// let positions: Vec<_> = (0..169).map(|k| [(k % 13) as f64, (k / 13) as f64].map(|x| 0.5 * (x - 6.0))).collect();
    /// let gauss = |[x, y]: [f64; 2]| (-(x * x + y * y) / 0.25 * 5f64.ln()).exp();
    /// let actuators = Actuators { positions: &positions, pitch: 0.5, influence: &gauss };
    /// let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 4e-3, "{found} {expected}");
    /// near(std::f64::consts::PI / (2.0 * 5f64.ln()), 0.976);
    /// near(5f64.powf(-0.5), 0.447);
    /// // Structure functions at one pitch and far apart, for a correlation of neighbours
    /// for (correlation, next, far) in [(0.0, 108.0, 195.0), (0.25, 125.0, 282.0)] {
    ///     let strokes = Array2::from_shape_fn((169, 169), |(k, l)| {
    ///         let apart = [0, 1].map(|m| positions[k][m] - positions[l][m]);
    ///         let apart = apart[0].hypot(apart[1]);
    ///         1e-16 * if apart < 0.1 { 1.0 } else if apart < 0.6 { correlation } else { 0.0 }
    ///     });
    ///     let found = actuators.stationary(&strokes, &telescope)?;
    ///     near(1e18 * found[[40, 40 + 5]], next);
    ///     near(1e18 * found[[40, 40 + 35]], far);
    /// }
    /// // Covariances 97.6, 141.2 and 78.8 nm²
    /// near(97.6 * (1.0 + 0.447), 141.2);
    /// near(97.6 * (0.447 + 0.25 * 1.44), 78.8);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn stationary(
        &self,
        strokes: &Array2<f64>,
        telescope: &TelescopeTransfer,
    ) -> Result<Array2<f64>, Invalid> {
        self.check(strokes)?;
        Ok(Stationary::new(*self, telescope)?.of(strokes))
    }
}

// Stationary structure functions of a mirror
// Constants of stationary structure functions
/// Structure functions of one mirror behind one telescope, as if strokes were stationary.
pub(crate) struct Stationary {
    separations: Separations,
    plane: Plane,
    /// The squared magnitude of the transform of the influence function over the area of a cell, (n/2 + 1, n), at \[f_x, f_y\], m².
    weights: Array2<f64>,
    step: f64,
    /// The last displacement that is wanted, in steps, and displacements across the grid.
    reach: usize,
    points: usize,
}

impl Stationary {
    /// Constants for these actuators and a telescope.
    ///
    /// # Errors
    /// `Invalid` if actuators have no finite position, or their grid is irregular.
    pub(crate) fn new(
        actuators: Actuators,
        telescope: &TelescopeTransfer,
    ) -> Result<Self, Invalid> {
        actuators.check_places()?;
        let separations = Separations::of(&actuators)?;
        let (step, reach) = (telescope.step(), telescope.reach);
        let all = separations.axes.iter().flat_map(|along| &along.separations);
        let farthest = all.fold(0.0, |most: f64, x| most.max(x.abs()));
        let margin = (farthest + 6.0 * actuators.pitch) / step;
        let plane = Plane::around(2 * (reach + 1).max(margin as usize / 2) + margin as usize / 2);
        let area = step * step / separations.cell;
        let influence = plane.spectrum(&actuators.on_plane(step).view());
        let weights = influence.mapv(|influence| influence.norm_sqr() * area);
        Ok(Self { separations, plane, weights, step, reach, points: telescope.points() })
    }

    // Structure function of one covariance
    /// The structure function, as [`Actuators::stationary`], for a covariance that was checked.
    pub(crate) fn of(&self, strokes: &Array2<f64>) -> Array2<f64> {
        let means = self.separations.means(strokes);
        let power =
            self.separations.transform(&means, self.plane.points(), self.step) * &self.weights;
        let covariance = self.plane.correlation(&power, self.reach, self.points);
        let middle = self.points / 2;
        let variance = covariance[[middle, middle]];
        let near = |k: usize| k.abs_diff(middle) <= self.reach;
        Array2::from_shape_fn(covariance.dim(), |(j, i)| {
            let is_near = near(j) && near(i);
            if is_near { 2.0 * (variance - covariance[[j, i]]).max(0.0) } else { 0.0 }
        })
    }
}

// Spectrum of the separations
// Numbered separations along both axes
/// The separations of actuators along y and along x, and how many pairs have each two of them.
struct Separations {
    axes: [SeparationAxis; 2],
    counts: Array2<f64>,
    /// Area of a cell of the grid of actuators, m².
    cell: f64,
}

impl Separations {
    fn of(actuators: &Actuators) -> Result<Self, Invalid> {
        let axes = [1, 0].map(|axis| {
            let along: Vec<f64> = actuators.positions.iter().map(|place| place[axis]).collect();
            SeparationAxis::of(&along, actuators.pitch)
        });
        let [y, x] = axes.each_ref().map(|along| along.separations.len());
        // Refuse irregular grids of actuators
        let expected = "a regular grid of actuators, where pairs have separations in common";
        let count = actuators.positions.len();
        accept(y * x <= 64 * count + 1024, "positions", "irregular", expected)?;
        // Count the pairs of each separation
        let mut separations = Self { axes, counts: Array2::zeros((y, x)), cell: 0.0 };
        for (k, l) in (0..count * count).map(|pair| (pair / count, pair % count)) {
            let place = separations.between(k, l);
            separations.counts[place] += 1.0;
        }
        let along = separations.axes.each_ref().map(|along| along.separations.as_slice());
        separations.cell = cell(&separations.counts, along, actuators.pitch);
        Ok(separations)
    }

    // Average over pairs of a separation
    /// Where the separation of actuator `l` from actuator `k` stands, \[y, x\].
    fn between(&self, k: usize, l: usize) -> [usize; 2] {
        self.axes.each_ref().map(|along| along.between[[along.place[k], along.place[l]]])
    }

    /// Mean covariances of strokes by separation: Γ(Δ), (y, x).
    fn means(&self, strokes: &Array2<f64>) -> Array2<f64> {
        let mut means = Array2::zeros(self.counts.dim());
        for ((k, l), covariance) in strokes.indexed_iter() {
            means[self.between(k, l)] += covariance;
        }
        Zip::from(&mut means).and(&self.counts).for_each(|mean, count| *mean /= count.max(1.0));
        means
    }

    // Transform the separations
    /// A wave of the frequencies of a plane of n points with this step, along the separations of an axis, (`count`, separations).
    fn waves(&self, axis: usize, [n, count]: [usize; 2], step: f64, wave: Harmonic) -> Array2<f64> {
        let separations = &self.axes[axis].separations;
        Array2::from_shape_fn((count, separations.len()), |(k, l)| {
            let signed = if 2 * k > n { k as f64 - n as f64 } else { k as f64 };
            wave(2.0 * PI * signed * separations[l] / (n as f64 * step))
        })
    }

    /// Σ Γ(Δ) cos(2π f·Δ) for the frequencies of a plane of n × n points with this step, (n/2 + 1, n), at \[f_x, f_y\].
    fn transform(&self, means: &Array2<f64>, n: usize, step: f64) -> Array2<f64> {
        let both = |wave: Harmonic| {
            let along_x = self.waves(1, [n, n / 2 + 1], step, wave);
            along_x.dot(&means.t()).dot(&self.waves(0, [n, n], step, wave).t())
        };
        both(f64::cos) - both(f64::sin)
    }
}

// Area of a cell of actuators
fn cell(counts: &Array2<f64>, [y, x]: [&[f64]; 2], pitch: f64) -> f64 {
    let present = counts.indexed_iter().filter(|(_, count)| **count > 0.0);
    let mut steps: Vec<[f64; 2]> = present.map(|((j, i), _)| [x[i], y[j]]).collect();
    steps.sort_by(|a, b| a[0].hypot(a[1]).total_cmp(&b[0].hypot(b[1])));
    steps.retain(|step| step[0].hypot(step[1]) > 1e-3 * pitch);
    let area = |a: [f64; 2], b: [f64; 2]| (a[0] * b[1] - a[1] * b[0]).abs();
    let first = steps.first().copied().unwrap_or([pitch, 0.0]);
    let length = first[0].hypot(first[1]);
    let spanned =
        steps.iter().map(|&step| area(first, step)).find(|area| *area > 0.3 * length * length);
    spanned.unwrap_or(pitch * pitch)
}

// Influence function on a plane
impl Actuators<'_> {
    /// The influence function on squares of side `step` \[m\], six pitches wide.
    fn on_plane(&self, step: f64) -> Array2<f64> {
        let half = (3.0 * self.pitch / step).ceil();
        let count = 2 * half as usize + 1;
        let mut values = Array2::zeros((count, count));
        Zip::indexed(&mut values).par_for_each(|(j, i), value| {
            *value = (self.influence)([i, j].map(|k| (k as f64 - half) * step));
        });
        values
    }
}

// Mean structure function over the pupil
// Sums of modes on a device
/// Sums over modes of covariances of strokes, on a device.
#[cfg(feature = "factorise")]
pub(super) trait DeviceModes {
    /// The variance on the squares of the pupil, (p, p), and the sum of the squared magnitudes of the modes' transforms, (n/2 + 1, n),
    /// at \[f_x, f_y\].
    fn sums(&self, strokes: &Array2<f64>) -> Result<[Array2<f64>; 2], Error>;
}

// Mean structure function by modes
// Mirror and pupil of mean structure functions
/// The mean structure functions of one mirror on one pupil, for any covariance of its strokes.
#[cfg(feature = "factorise")]
pub(crate) struct MeanStructure<'a> {
    actuators: Actuators<'a>,
    aperture: &'a Aperture,
    telescope: TelescopeTransfer,
    plane: Plane,
    felt: Felt,
    /// A device that sums modes, if cores do not.
    there: Option<Box<dyn DeviceModes>>,
}

#[cfg(feature = "factorise")]
impl<'a> MeanStructure<'a> {
    // Prepare mean structure functions
    /// Those on `points` × `points` displacements, with the modes summed on the first device of an engine, if it has one.
    pub(crate) fn new(
        actuators: Actuators<'a>,
        aperture: &'a Aperture,
        points: usize,
        engine: &Engine,
    ) -> Result<Self, Error> {
        let telescope = aperture.transfer(points)?;
        let plane = Plane::around(2 * aperture.light().nrows() - 1);
        let felt = Felt::of(&actuators, aperture);
        let there = felt.there(engine, &plane, actuators.positions.len())?;
        Ok(Self { actuators, aperture, telescope, plane, felt, there })
    }

    /// The structure function \[m²\] for the covariance C_vv of the `strokes` \[m²\]; as [`Actuators::mean`].
    pub(crate) fn of(&self, strokes: &Array2<f64>) -> Result<Array2<f64>, Error> {
        self.actuators.check(strokes)?;
        // Correlate the variance and the modes
        let (plane, light) = (&self.plane, self.aperture.light());
        let [variance, mut products] = self.sums(strokes)?;
        let variance = plane.spectrum(&(variance * light).view());
        let light = plane.spectrum(&light.view());
        Zip::from(&mut products).and(&light).and(&variance).par_for_each(|sum, light, variance| {
            *sum = 2.0 * ((light.conj() * variance).re - *sum);
        });
        let points = self.telescope.points();
        let mut structure = plane.correlation(&products, self.telescope.reach, points);
        // Divide by the overlap of the pupil
        let squares = self.aperture.light().sum();
        Zip::from(&mut structure).and(self.telescope.values()).par_for_each(|value, &overlap| {
            *value = if overlap > 1e-9 { (*value / (overlap * squares)).max(0.0) } else { 0.0 };
        });
        structure[[points / 2, points / 2]] = 0.0;
        Ok(structure)
    }

    // Sum modes on cores or on a device
    /// The variance on the squares of the pupil, (p, p), m², and the sum of the squared magnitudes of all modes' transforms.
    fn sums(&self, strokes: &Array2<f64>) -> Result<[Array2<f64>; 2], Error> {
        if let Some(there) = &self.there {
            return there.sums(strokes);
        }
        let modes = Modes { roots: root(strokes)?, felt: &self.felt };
        let side = self.felt.side;
        let half = (self.plane.points() / 2 + 1, self.plane.points());
        let mut sums = [(side, side), half].map(Array2::zeros);
        for first in (0..modes.count()).step_by(BATCH) {
            let batch = modes.batch(first);
            let new = sums_of_modes(&self.plane, &modes, &batch);
            sums.iter_mut().zip(new).for_each(|(sum, new)| *sum += &new);
        }
        Ok(sums)
    }
}

// Mean for one covariance
#[cfg(feature = "factorise")]
impl Actuators<'_> {
    /// The mean over the pupil of the structure function \[m²\] of the wavefront on `points` × `points` displacements, for the covariance C_vv of
    /// the `strokes` \[m²\]; Eq. [modal structure](https://lenslet.github.io/lenslet/pupil-structure.html#eq-modal-structure). It is 0 where the transfer function of the telescope is.
    ///
    /// # Errors
    /// `Invalid` if the covariance has another shape, is not finite or not symmetric, or the grid does not contain the
    /// displacements of the pupil; `Failed` if its eigenvectors are not found.
    pub fn mean(
        &self,
        strokes: &Array2<f64>,
        aperture: &Aperture,
        points: usize,
    ) -> Result<Array2<f64>, Error> {
        MeanStructure::new(*self, aperture, points, &Engine::default())?.of(strokes)
    }
}

// Actuators near each square
/// Influence functions below this share of their height are not felt.
#[cfg(feature = "factorise")]
const FELT: f64 = 1e-12;

/// The lit squares of a pupil, and which actuators they feel.
#[cfg(feature = "factorise")]
struct Felt {
    /// Row and column of each square, and its light.
    squares: Vec<([usize; 2], f64)>,
    /// For each square the actuators that are felt there, and how much.
    near: Vec<Vec<(usize, f64)>>,
    side: usize,
}

// List actuators near each square
#[cfg(feature = "factorise")]
impl Felt {
    fn of(actuators: &Actuators, aperture: &Aperture) -> Self {
        let lit = aperture.light().indexed_iter().filter(|(_, light)| **light > 0.0);
        let squares: Vec<_> = lit.map(|((j, i), light)| ([j, i], *light)).collect();
        let middle = 0.5 * (aperture.light().nrows() as f64 - 1.0);
        let reach = actuators.reach();
        // Actuators near one square
        let felt_at = |([j, i], _): &([usize; 2], f64)| {
            let [x, y] = [*i, *j].map(|k| (k as f64 - middle) * aperture.step());
            let offsets = actuators.positions.iter().map(|[u, v]| [x - u, y - v]).enumerate();
            let near = offsets.filter(|(_, [u, v])| u.hypot(*v) <= reach);
            let heights = near.map(|(l, offset)| (l, (actuators.influence)(offset)));
            heights.filter(|(_, height)| height.abs() > FELT).collect()
        };
        let near = squares.par_iter().map(felt_at).collect();
        Self { squares, near, side: aperture.light().nrows() }
    }

    // Add rows of nearby actuators
    /// Adds to `sum` the parts of the rows of all actuators, each as much as square `k` feels it.
    fn add(&self, k: usize, rows: &ArrayView2<f64>, mut sum: ArrayViewMut1<f64>) {
        self.near[k].iter().for_each(|(l, height)| sum.scaled_add(*height, &rows.row(*l)));
    }
}

// Reach of an influence function
#[cfg(feature = "factorise")]
impl Actuators<'_> {
    /// How far from its actuator an influence function is felt, m; looked for up to forty pitches, every half of one, and anywhere
    /// if it is felt there.
    fn reach(&self) -> f64 {
        let step = 0.5 * self.pitch;
        let offsets = (-80..=80).flat_map(|j| (-80..=80).map(move |i| [i, j]));
        let offsets = offsets.map(|place| place.map(|k| f64::from(k) * step));
        let felt = offsets.filter(|&offset| (self.influence)(offset).abs() > FELT);
        let most = felt.fold(0.0, |most: f64, [x, y]| most.max(x.hypot(y))) + 2.0 * step;
        if most > 80.0 * step { f64::INFINITY } else { most }
    }
}

// Root of a covariance of strokes
/// A matrix B with B Bᵗ = C_vv, (actuators, modes).
#[cfg(feature = "factorise")]
fn root(strokes: &Array2<f64>) -> Result<Array2<f64>, Error> {
    let largest = strokes.diag().fold(0.0, |most: f64, value| most.max(*value));
    let mut lifted = strokes.clone();
    lifted.diag_mut().mapv_inplace(|value| value + 1e-12 * largest);
    if let Ok(factor) = Cholesky::new(lifted) {
        return Ok(factor.lower());
    }
    let eigen = Eigen::new(strokes)?;
    let kept = eigen.kept(1e-14);
    let values = &eigen.values()[eigen.values().len() - kept..];
    let roots = Array1::from_iter(values.iter().map(|value| value.sqrt()));
    Ok(eigen.project(&Array2::eye(strokes.nrows()), kept) * &roots)
}

// Modes of a mirror on the pupil
/// Modes that are on the pupil at a time.
#[cfg(feature = "factorise")]
const BATCH: usize = 128;

/// Wavefronts of the columns of a root of a covariance of strokes, on the lit squares of a pupil.
#[cfg(feature = "factorise")]
struct Modes<'a> {
    /// The root, (actuators, modes), m.
    roots: Array2<f64>,
    felt: &'a Felt,
}

#[cfg(feature = "factorise")]
impl Modes<'_> {
    fn count(&self) -> usize {
        self.roots.ncols()
    }

    // Modes of a batch on lit squares
    /// The modes from `first` on, (squares, modes), m.
    fn batch(&self, first: usize) -> Array2<f64> {
        let last = (first + BATCH).min(self.count());
        let roots = self.roots.slice(s![.., first..last]);
        let mut modes = Array2::zeros((self.felt.squares.len(), last - first));
        let rows = modes.outer_iter_mut().into_par_iter().enumerate();
        rows.for_each(|(k, row)| self.felt.add(k, &roots, row));
        modes
    }
}

// Sums over a batch of modes
/// Sums over modes of their squares on the pupil, (p, p), and of the squared magnitudes of their transforms with the light.
#[cfg(feature = "factorise")]
fn sums_of_modes(plane: &Plane, modes: &Modes, batch: &Array2<f64>) -> [Array2<f64>; 2] {
    let Felt { squares, side, .. } = modes.felt;
    let mut variance = Array2::zeros((*side, *side));
    let rows = squares.iter().zip(batch.outer_iter());
    rows.for_each(|((place, _), row)| variance[*place] = row.dot(&row));
    let powers_of = |modes: Range<usize>| {
        let (mut powers, mut map) = (Powers::on(plane), Array2::zeros((*side, *side)));
        for k in modes {
            // Squares without light stay 0 in the map of each mode.
            let lit = squares.iter().zip(batch.column(k));
            lit.for_each(|((place, light), value)| map[*place] = light * value);
            powers.add(&map.view());
        }
        powers.sum
    };
    [variance, sum_in_order(0..batch.ncols(), 8, &powers_of, &|a, b| a + b)]
}

// Transfer function pair by pair
#[cfg(feature = "factorise")]
impl Actuators<'_> {
    /// The optical transfer functions at the `wavelengths` \[m\] for the covariance C_vv of the `strokes` \[m²\], pair of points by pair of points;
    /// Eq. [transfer by pairs](https://lenslet.github.io/lenslet/pupil-structure.html#eq-transfer-by-pairs). The time grows with the square of the number of lit squares.
    ///
    /// # Errors
    /// `Invalid` as for [`mean`](Self::mean), or for more than 50 000 lit squares.
    pub fn by_pairs(
        &self,
        strokes: &Array2<f64>,
        aperture: &Aperture,
        points: usize,
        wavelengths: &[f64],
    ) -> Result<Vec<OpticalTransfer>, Error> {
        self.check(strokes)?;
        // Refuse too many lit squares
        let telescope = aperture.transfer(points)?;
        let felt = Felt::of(self, aperture);
        let expected = "at most 50000 lit squares for a sum over their pairs";
        accept(felt.squares.len() <= 50_000, "samples", felt.squares.len(), expected)?;
        let pairs = SquarePairs::of(felt, strokes, points);
        let mut transfers = Vec::with_capacity(wavelengths.len());
        // Transfer function at each wavelength
        for &wavelength in wavelengths {
            let phase = 2.0 * PI / length("wavelength", wavelength)?;
            let mut values = pairs.transfer(phase * phase) / aperture.light().sum();
            values[[points / 2, points / 2]] = 1.0;
            transfers.push(telescope.with_values(values, wavelength)?);
        }
        Ok(transfers)
    }
}

// Sum over pairs of squares
/// Lit squares, strokes and variances for a sum over pairs of squares.
#[cfg(feature = "factorise")]
struct SquarePairs<'a> {
    felt: Felt,
    strokes: &'a Array2<f64>,
    /// Variance of each square, m².
    variances: Vec<f64>,
    points: usize,
}

#[cfg(feature = "factorise")]
impl<'a> SquarePairs<'a> {
    fn of(felt: Felt, strokes: &'a Array2<f64>, points: usize) -> Self {
        let mut pairs = Self { felt, strokes, variances: Vec::new(), points };
        let squares = (0..pairs.felt.squares.len()).into_par_iter();
        let variance = |k| pairs.covariance(&pairs.with_strokes(k), k);
        pairs.variances = squares.map(variance).collect();
        pairs
    }

    // Covariances between lit squares
    /// Covariances of square `k` with all strokes.
    fn with_strokes(&self, k: usize) -> Array1<f64> {
        let mut sum = Array1::zeros(self.strokes.nrows());
        self.felt.add(k, &self.strokes.view(), sum.view_mut());
        sum
    }

    /// The covariance with square `l` of what has these covariances with strokes.
    fn covariance(&self, with_strokes: &Array1<f64>, l: usize) -> f64 {
        self.felt.near[l].iter().map(|(k, height)| height * with_strokes[*k]).sum()
    }

    // Sum the exponentials of pairs
    /// Sums of P P' exp(−½ `scale` D) by displacement, (n, n).
    fn transfer(&self, scale: f64) -> Array2<f64> {
        let pairs_of = |squares: Range<usize>| {
            let mut sum = Array2::zeros((self.points, self.points));
            squares.for_each(|k| self.add_square(&mut sum, k, scale));
            sum
        };
        sum_in_order(0..self.felt.squares.len(), 32, &pairs_of, &|a, b| a + b)
    }

    /// Adds the pairs of square `k` with all squares.
    fn add_square(&self, sum: &mut Array2<f64>, k: usize, scale: f64) {
        let (with_strokes, ([j, i], light)) = (self.with_strokes(k), self.felt.squares[k]);
        let middle = self.points / 2;
        for (l, ([v, u], other)) in self.felt.squares.iter().enumerate() {
            let both = self.covariance(&with_strokes, l);
            let difference = self.variances[k] + self.variances[l] - 2.0 * both;
            let place = [middle + v - j, middle + u - i];
            sum[place] += light * other * (-0.5 * scale * difference).exp();
        }
    }
}

// Tests of structure functions
#[cfg(all(test, feature = "factorise"))]
mod tests {
    use super::*;
    use crate::model::Pupil;
    use crate::psf::Edges;

    /// Places on a square grid, `across` × `across`, around a centre.
    fn grid(across: usize, pitch: f64, centre: [f64; 2]) -> Vec<[f64; 2]> {
        let middle = 0.5 * (across as f64 - 1.0);
        let place = |k: usize| [k % across, k / across].map(|k| (k as f64 - middle) * pitch);
        (0..across * across).map(place).map(|[x, y]| [x + centre[0], y + centre[1]]).collect()
    }

    fn gauss(width: f64) -> impl Fn([f64; 2]) -> f64 + Sync {
        move |[x, y]| (-(x * x + y * y) / (2.0 * width * width)).exp()
    }

    /// A covariance that falls with the distance, by one diagonal faster than by the other, and is larger to one side.
    fn lopsided(positions: &[[f64; 2]], size: f64, tilt: f64) -> Array2<f64> {
        let rms = |k: usize| size * (1.0 + tilt * (positions[k][0] + 0.5 * positions[k][1]));
        Array2::from_shape_fn((positions.len(), positions.len()), |(k, l)| {
            let apart = [0, 1].map(|m| positions[k][m] - positions[l][m]);
            let square = apart[0].powi(2) + 2.0 * apart[1].powi(2) + 1.3 * apart[0] * apart[1];
            rms(k) * rms(l) * (-square).exp()
        })
    }

    // One actuator in closed form
    #[test]
    fn one_actuator_is_known() {
        let (half, width, centre) = (1.0, 0.3, [0.2, -0.35]);
        let samples = 64;
        let step = 2.0 * half / samples as f64;
        let aperture = Aperture::from_light(Array2::ones((samples, samples)), step).unwrap();
        let influence = gauss(width);
        let actuators = Actuators { positions: &[centre], pitch: 0.5, influence: &influence };
        let found = actuators.mean(&ndarray::arr2(&[[4e-16]]), &aperture, 2 * samples).unwrap();
        // ∫ exp(−(x − a)²/2w² − (x + r − b)²/2w²) over x from −half to half − r, with r ≥ 0.
        let product = |a: f64, b: f64, r: f64| {
            let apart = b - r - a;
            let at = |x: f64| libm::erf((x - 0.5 * (a + b - r)) / width);
            let scale = 0.5 * width * PI.sqrt() * (-apart * apart / (4.0 * width * width)).exp();
            scale * (at(half - r) - at(-half))
        };
        for (u, v) in [(0usize, 5usize), (7, 0), (20, 11), (40, 50)] {
            let rho = [u, v].map(|k| k as f64 * step);
            // The squares of both ends, and their product; the second end is at x + ρ.
            let over = |f: &dyn Fn(usize) -> f64| f(0) * f(1);
            let here = over(&|m| product(centre[m], centre[m] + rho[m], rho[m]));
            let there = over(&|m| product(centre[m] - rho[m], centre[m], rho[m]));
            let both = over(&|m| product(centre[m], centre[m], rho[m]));
            let overlap = over(&|m| 2.0 * half - rho[m]);
            let expected = 4e-16 * (here + there - 2.0 * both) / overlap;
            let value = found[[samples + v, samples + u]];
            let gap = (value - expected).abs();
            assert!(gap < 2e-3 * expected + 1e-20, "[{u}, {v}]: {value:e} {expected:e}");
            assert!((found[[samples - v, samples - u]] / value - 1.0).abs() < 1e-9);
        }
    }

    // Stationary strokes by two ways
    #[test]
    fn stationary_strokes_have_one_structure_function() {
        let pupil = Pupil::new(4.0, 0.2).unwrap();
        let aperture = Aperture::new(&pupil, &[], 40, 0.1, Edges::Area).unwrap();
        let telescope = aperture.transfer(80).unwrap();
        let pitch = 0.55;
        let square = grid(15, pitch, [0.1, 0.0]);
        let row = |k: usize| 0.5 * (k / 15 % 2) as f64 - 7.0;
        let hexagonal: Vec<[f64; 2]> = (0..15 * 17)
            .map(|k| {
                [
                    ((k % 15) as f64 + row(k)) * pitch,
                    ((k / 15) as f64 - 8.0) * pitch * 0.75f64.sqrt(),
                ]
            })
            .collect();
        let influence = gauss(0.6 * pitch);
        for positions in [square, hexagonal] {
            let actuators = Actuators { positions: &positions, pitch, influence: &influence };
            let strokes = lopsided(&positions, 1e-7, 0.0);
            let fast = actuators.stationary(&strokes, &telescope).unwrap();
            let mean = actuators.mean(&strokes, &aperture, 80).unwrap();
            let largest = mean.fold(0.0, |most: f64, value| most.max(*value));
            for place in [[40, 44], [43, 40], [47, 30], [40, 65], [25, 48]] {
                let gap = (fast[place] - mean[place]).abs();
                assert!(gap < 0.01 * largest, "{place:?}: {} {}", fast[place], mean[place]);
            }
            assert!((fast[[46, 46]] - fast[[46, 34]]).abs() > 0.1 * largest);
            assert_eq!((fast[[40, 40]], fast[[0, 40]], mean[[40, 40]]), (0.0, 0.0, 0.0));
        }
    }

    // Mean structure functions by their sums
    #[test]
    fn mean_structure_functions_are_summed() {
        let vane = crate::psf::Vane { width: 0.2, angle: 0.5, offset: 0.0 };
        let pupil = Pupil::new(2.0, 0.2).unwrap();
        let aperture = Aperture::across(&pupil, &[vane], 13).unwrap();
        let positions = grid(4, 0.6, [0.1, -0.05]);
        let influence = gauss(0.35);
        let actuators = Actuators { positions: &positions, pitch: 0.6, influence: &influence };
        let strokes = lopsided(&positions, 1e-7, 0.6);
        let found = actuators.mean(&strokes, &aperture, 27).unwrap();
        let felt = Felt::of(&actuators, &aperture);
        let squares = &felt.squares;
        let influences = Array2::from_shape_fn((squares.len(), 16), |(k, l)| {
            let [x, y] = [1, 0].map(|m| (squares[k].0[m] as f64 - 6.0) * aperture.step());
            influence([x - positions[l][0], y - positions[l][1]])
        });
        let covariance = influences.dot(&strokes).dot(&influences.t());
        for (u, v) in [(1, 0), (3, -4), (-6, 2), (0, 9)] {
            let (mut sum, mut weight) = (0.0, 0.0);
            for (k, ([j, i], light)) in squares.iter().enumerate() {
                let there =
                    [j.checked_add_signed(v), i.checked_add_signed(u)].map(|x| x.unwrap_or(99));
                let Some(l) = squares.iter().position(|(place, _)| *place == there) else {
                    continue;
                };
                let both = light * squares[l].1;
                sum += both * (covariance[[k, k]] + covariance[[l, l]] - 2.0 * covariance[[k, l]]);
                weight += both;
            }
            let value = found[[13usize.strict_add_signed(v), 13usize.strict_add_signed(u)]];
            assert!((value / (sum / weight) - 1.0).abs() < 1e-9, "[{u}, {v}]: {value:e}");
        }
    }

    // Roots of covariances
    #[test]
    fn roots_are_those_of_their_covariances() {
        let positions = grid(4, 0.6, [0.1, -0.05]);
        let definite = lopsided(&positions, 1e-7, 0.6);
        let few = Array2::from_shape_fn((16, 3), |(k, l)| 1e-7 * ((k * (l + 2)) as f64).sin());
        let low = few.dot(&few.t());
        let mut negative = definite.clone();
        negative[[3, 3]] -= 0.9 * definite[[3, 3]];
        let gap = |matrix: &Array2<f64>| {
            let root = root(matrix).unwrap();
            (root.dot(&root.t()) - matrix).fold(0.0, |most: f64, gap| most.max(gap.abs()))
                / matrix[[1, 1]]
        };
        assert!(gap(&definite) < 1e-11 && gap(&low) < 1e-10, "{} {}", gap(&definite), gap(&low));
        // Without its negative part, a matrix is not the same, and not far.
        assert!(gap(&negative) > 1e-3 && gap(&negative) < 2.0, "{}", gap(&negative));
        assert_eq!(root(&Array2::zeros((2, 2))).unwrap().ncols(), 0);
    }

    // Average images of random strokes
    #[test]
    fn random_strokes_make_the_mean_image() {
        use rand::{SeedableRng, rngs::StdRng};
        use rand_distr::{Distribution, StandardNormal};
        let (wave, points) = (1e-6, 25);
        let aperture = Aperture::across(&Pupil::new(2.0, 0.25).unwrap(), &[], 13).unwrap();
        let positions = grid(5, 0.5, [0.0, 0.0]);
        let influence = gauss(0.3);
        let actuators = Actuators { positions: &positions, pitch: 0.5, influence: &influence };
        let strokes = lopsided(&positions, 8e-8, 0.5);
        let exact = actuators.by_pairs(&strokes, &aperture, points, &[wave]).unwrap().remove(0);
        // Image after image of random strokes
        let felt = Felt::of(&actuators, &aperture);
        let modes = Modes { roots: root(&strokes).unwrap(), felt: &felt };
        let (squares, modes) = (&modes.felt.squares, modes.batch(0));
        let mut random = StdRng::seed_from_u64(7);
        let perfect = aperture.transfer(points).unwrap().values().sum();
        let draws: Vec<Array2<f64>> = (0..400)
            .map(|_| {
                let sizes = Array1::from_shape_simple_fn(modes.ncols(), || {
                    let size: f64 = StandardNormal.sample(&mut random);
                    size
                });
                let wavefront = modes.dot(&sizes);
                let mut transfer = Array2::zeros((points, points));
                for (k, ([j, i], light)) in squares.iter().enumerate() {
                    for (([v, u], other), there) in squares.iter().zip(&wavefront).take(k) {
                        let phase = 2.0 * PI / wave * (wavefront[k] - there);
                        let product = light * other * phase.cos();
                        transfer[[12 + v - j, 12 + u - i]] += product;
                        transfer[[12 + j - v, 12 + i - u]] += product;
                    }
                }
                transfer /= aperture.light().sum();
                transfer[[12, 12]] = 1.0;
                transfer
            })
            .collect();
        let places = [[12, 12 + 3], [12 + 4, 12 - 2], [12 + 7, 12]];
        let check = |expected: f64, of: &dyn Fn(&Array2<f64>) -> f64| {
            let values: Vec<f64> = draws.iter().map(of).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            let error = square.sqrt() / values.len() as f64;
            assert!((mean - expected).abs() < 4.0 * error, "{mean} ± {error}, {expected}");
            assert!(error < 0.01, "{error}");
            mean
        };
        for place in places {
            check(exact.values()[place], &|realisation| realisation[place]);
        }
        let strehl = check(exact.strehl(), &|realisation| realisation.sum() / perfect);
        assert!((strehl / exact.strehl() - 1.0).abs() < 0.06, "{strehl}");
        let mean = actuators.mean(&strokes, &aperture, points).unwrap();
        let telescope = aperture.transfer(points).unwrap();
        let lower = telescope.through(&mean, &[wave]).unwrap()[0].strehl();
        assert!(lower < 0.997 * exact.strehl() && lower > 0.95 * exact.strehl(), "{lower}");
    }

    // Refuse strokes of other actuators
    #[test]
    fn strokes_of_other_actuators_are_refused() {
        let aperture = Aperture::across(&Pupil::new(2.0, 0.2).unwrap(), &[], 8).unwrap();
        let telescope = aperture.transfer(16).unwrap();
        let influence = gauss(0.3);
        let positions = grid(3, 0.5, [0.0, 0.0]);
        let actuators = Actuators { positions: &positions, pitch: 0.5, influence: &influence };
        let name = |strokes: &Array2<f64>| actuators.stationary(strokes, &telescope).unwrap_err();
        assert_eq!(name(&Array2::eye(8)).value, "(8, 8)");
        let mut bad = Array2::eye(9);
        bad[[3, 4]] = f64::NAN;
        assert_eq!(name(&bad).value, "NaN at (3, 4)");
        assert!(actuators.mean(&bad, &aperture, 16).is_err());
        assert!(actuators.mean(&Array2::eye(9), &aperture, 14).is_err());
        assert!(actuators.by_pairs(&Array2::eye(9), &aperture, 16, &[-1.0]).is_err());
        let flat = Actuators { pitch: f64::NAN, ..actuators };
        assert_eq!(flat.stationary(&Array2::eye(9), &telescope).unwrap_err().quantity, "pitch");
        let scattered: Vec<[f64; 2]> =
            (0..150).map(|k| [(k * k) as f64 % 7.3, (k * k * k) as f64 % 5.9]).collect();
        let scattered = Actuators { positions: &scattered, ..actuators };
        let refused = scattered.stationary(&Array2::eye(150), &telescope).unwrap_err();
        assert_eq!(refused.quantity, "positions");
    }
}
