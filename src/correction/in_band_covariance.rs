// Tangled from book/src/in-band-covariances.md: edit there, or here and run cargo tangle stitch.
//! Covariances of slopes due to the turbulence inside the band of a mirror.

// Imports of in-band covariances
use crate::correction::correctable_band::Band;
use crate::correction::fitting::square_metres;
use crate::device::refuse_beyond_memory;
use crate::error::{Error, Invalid, length};
use crate::model::atmosphere::Layer;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::sensor::Sensor;
use crate::model::system::{SlopeModel, System};
use crate::numerics::special::sinc;
use crate::tomography::covariance_matrix::{
    CovarianceMatrices, check_targets, truth_sensors, truth_valid,
};
use crate::turbulence::cross_covariance::{Slopes, fill_slopes, rectangle, square};
use crate::turbulence::edge_midpoint::Displacements;
use crate::turbulence::phase::VonKarman;
use crate::watch::Watch;
use ndarray::Array2;
use rayon::prelude::*;
use std::f64::consts::PI;
use std::ops::Range;

// Response of slopes to waves
/// Response of both slopes of a lenslet to a wave on a layer, Eq. [slope response](https://lenslet.github.io/lenslet/in-band-covariances.html#eq-slope-response).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Response {
    model: SlopeModel,
    /// D, metres.
    side: f64,
    /// γ; between midpoints of edges 1/d, 1/m.
    factor: f64,
    axes: [[f64; 2]; 2],
}

impl Response {
    fn new(system: &System, sensor: &Sensor, altitude: f64) -> Self {
        let (model, footprint) = (system.slope_model(), sensor.footprint([0, 0], altitude));
        let factor = match model {
            SlopeModel::Average => {
                system.cone_gradient().factor(sensor.source.cone_factor(altitude))
            }
            SlopeModel::EdgeMidpoint => sensor.side().recip(),
        };
        Self { model, side: footprint.side, factor, axes: footprint.axes }
    }
}

// Response of both slopes to waves
impl Response {
    /// τ of both slopes, 1/m.
    fn at(&self, f: [f64; 2]) -> [f64; 2] {
        match self.model {
            SlopeModel::Average => {
                let own = self.axes.map(|axis| axis[0] * f[0] + axis[1] * f[1]);
                let mean = own.map(|f| sinc(self.side * f)).iter().product::<f64>();
                own.map(|f| 2.0 * PI * self.factor * f * mean)
            }
            SlopeModel::EdgeMidpoint => f.map(|f| 2.0 * self.factor * (PI * self.side * f).sin()),
        }
    }
}

// Covariance over displacements on a grid
/// Functions of the displacement, tabulated on a grid.
pub(crate) struct Grid<const N: usize> {
    /// Distance of displacements, and the place of zero.
    step: f64,
    middle: usize,
    /// Row by row.
    values: Vec<[f64; N]>,
}

/// c^L of Eq. [low covariance](https://lenslet.github.io/lenslet/in-band-covariances.html#eq-low-covariance): xx, xy, yx and yy, the first letter being the first sensor's slope; rad² m⁻² for a Fried parameter of a metre.
struct InBandTable {
    kind: CovarianceKey,
    grid: Grid<4>,
}

/// Quantities other than the displacement on which a covariance depends.
#[derive(Clone, Copy, PartialEq)]
struct CovarianceKey {
    outer_scale: f64,
    responses: [Response; 2],
}

// Look up a displacement in a table
impl<const N: usize> Grid<N> {
    /// At the displacement of the second footprint against the first, metres.
    #[inline(always)]
    pub(crate) fn at(&self, displacement: [f64; 2]) -> [f64; N] {
        let [(left, x), (below, y)] = displacement.map(|component| {
            let place = component / self.step + self.middle as f64;
            let before = place.floor();
            (before as usize - 2, through_six(place - before))
        });
        let (mut sum, across) = ([0.0; N], 2 * self.middle + 1);
        for (row, weight) in y.iter().enumerate() {
            let near = &self.values[(below + row) * across + left..][..6];
            for (value, along) in near.iter().zip(&x) {
                let weight = weight * along;
                for k in 0..N {
                    sum[k] += weight * value[k];
                }
            }
        }
        sum
    }
}

// Weights of six table points
/// Weights of six points from −2 to 3 in the polynomial through them, at a place from 0 to 1.
#[inline(always)]
fn through_six(t: f64) -> [f64; 6] {
    let [a, b, c, d, e, f] = [t + 2.0, t + 1.0, t, t - 1.0, t - 2.0, t - 3.0];
    let (low, high, inner) = (a * b, e * f, c * d);
    [
        b * inner * high / -120.0,
        a * inner * high / 24.0,
        low * d * high / -12.0,
        low * c * high / 12.0,
        low * inner * f / -24.0,
        low * inner * e / 120.0,
    ]
}

// Compute the values of a table
// Extent of a table of displacements
/// Points of a table for each pitch of the mirror, and how many more than needed there are at each end.
const PER_PITCH: f64 = 10.0;
pub(crate) const MARGIN: usize = 3;

/// Displacements of a table that are not negative, for displacements up to `reach`, metres.
fn half_table(reach: f64, pitch: f64) -> usize {
    (reach * PER_PITCH / pitch).ceil() as usize + MARGIN
}

impl InBandTable {
    /// The table of displacements up to `reach` along each axis, metres, for a mirror of this pitch.
    fn new(kind: CovarianceKey, reach: f64, pitch: f64) -> Result<Self, Invalid> {
        let (middle, step) = (half_table(reach, pitch), pitch / PER_PITCH);
        let CovarianceKey { outer_scale, responses } = kind;
        let band = Band::new(pitch, outer_scale, [(middle as f64) * step, 0.0])?;
        let phase = VonKarman::new(outer_scale);
        let parts = band.covariances(middle, step, |[x, y]| {
            let power = phase.power_spectrum(x * x + y * y);
            [[x, y], [x, -y]].map(|f| {
                let [one, two] = responses.map(|response| response.at(f));
                [0, 1, 2, 3].map(|k| power * one[k / 2] * two[k % 2])
            })
        });
        Ok(Self { kind, grid: Grid::new(step, middle, parts) })
    }
}

// Grid of several functions
impl<const N: usize> Grid<N> {
    pub(crate) fn new(step: f64, middle: usize, parts: [Array2<f64>; N]) -> Self {
        let places = parts[0].indexed_iter().map(|(at, _)| at);
        let values = places.map(|at| std::array::from_fn(|k| parts[k][at])).collect();
        Self { step, middle, values }
    }
}

// Footprints as a lattice of points
/// The centres of a sensor's footprints on a layer.
#[derive(Debug, Clone, Copy)]
struct FootprintCentres {
    /// That of lenslet \[0, 0\], metres.
    corner: [f64; 2],
    /// From a lenslet to the next of its row, and to the next of its column, metres.
    steps: [[f64; 2]; 2],
    lenslets: usize,
}

impl FootprintCentres {
    fn new(sensor: &Sensor, altitude: f64) -> Self {
        let footprint = sensor.footprint([0, 0], altitude);
        let steps = footprint.axes.map(|axis| axis.map(|part| footprint.side * part));
        Self { corner: footprint.centre, steps, lenslets: sensor.array.lenslets() }
    }

    /// The centre in a row and a column, which may lie beyond the array.
    fn centre(&self, [row, column]: [f64; 2]) -> [f64; 2] {
        let [along, up] = self.steps;
        [0, 1].map(|k| self.corner[k] + column * along[k] + row * up[k])
    }

    // Farthest displacement of two lattices
    /// Largest distance of a footprint of another lattice from one of this, along either axis.
    fn reach(&self, other: &Self) -> f64 {
        let corners = |lattice: &Self| {
            let last = lattice.lenslets as f64 - 1.0;
            [[0.0, 0.0], [0.0, last], [last, 0.0], [last, last]].map(|place| lattice.centre(place))
        };
        let (here, there) = (corners(self), corners(other));
        let displacements =
            here.iter().flat_map(|a| there.iter().map(move |b| (b[0] - a[0], b[1] - a[1])));
        displacements.fold(0.0, |most, (x, y)| most.max(x.abs()).max(y.abs()))
    }
}

// Tables needed by pairs of sensors
// Footprints of a pair of sensors
/// Footprints of two sensors on a layer, and the key of their covariance.
fn lattices_at(
    system: &System,
    layer: &Layer,
    pair: [&Sensor; 2],
) -> (CovarianceKey, [FootprintCentres; 2]) {
    let responses = pair.map(|sensor| Response::new(system, sensor, layer.altitude));
    let lattices = pair.map(|sensor| FootprintCentres::new(sensor, layer.altitude));
    (CovarianceKey { outer_scale: layer.outer_scale, responses }, lattices)
}

/// All layers with turbulence.
fn layers(system: &System) -> impl Iterator<Item = &Layer> {
    system.atmosphere().layers().iter().filter(|layer| layer.fraction > 0.0)
}

/// The tables for the covariances of all stars, and of truth sensors with stars and with themselves, each with its farthest
/// displacement, metres.
fn tables_needed(system: &System) -> Vec<(CovarianceKey, f64)> {
    let (stars, truths) = (system.sensors(), truth_sensors(system));
    let among =
        stars.iter().enumerate().flat_map(|(p, one)| stars[p..].iter().map(move |q| (one, q)));
    let with_truth = truths.iter().flat_map(|truth| stars.iter().map(move |star| (truth, star)));
    let own = truths.iter().take(1).map(|truth| (truth, truth));
    let mut reaches: Vec<(CovarianceKey, f64)> = Vec::new();
    for (one, other) in among.chain(with_truth).chain(own) {
        for layer in layers(system) {
            let (kind, [first, second]) = lattices_at(system, layer, [one, other]);
            let reach = first.reach(&second);
            match reaches.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, most)) => *most = f64::max(*most, reach),
                None => reaches.push((kind, reach)),
            }
        }
    }
    reaches
}

// Block of low covariances
/// The covariances of the slopes of two sensors.
struct InBandBlock<'a> {
    /// Of layers where both share a lattice, rad².
    shared: Displacements,
    /// Of the other layers: strength (m²), table, and the footprints of both.
    apart: Vec<(f64, &'a InBandTable, [FootprintCentres; 2])>,
}

impl<'a> InBandBlock<'a> {
    fn new(system: &System, tables: &'a [InBandTable], pair: [&Sensor; 2]) -> Self {
        let metres = square_metres(system.atmosphere());
        let views = layers(system).filter_map(|layer| {
            let (kind, lattices) = lattices_at(system, layer, pair);
            let table = tables.iter().find(|table| table.kind == kind)?;
            Some((metres * layer.fraction, table, lattices))
        });
        let (together, apart): (Vec<_>, Vec<_>) =
            views.partition(|(.., [one, two])| one.steps == two.steps);
        // Look up all displacements of a lattice
        let displacement = |lag: [f64; 2]| {
            let mut sum = [0.0; 4];
            for (strength, table, [one, two]) in &together {
                let end = two.centre(lag);
                let values = table.grid.at([0, 1].map(|k| end[k] - one.corner[k]));
                sum.iter_mut().zip(values).for_each(|(sum, values)| *sum += strength * values);
            }
            sum
        };
        let lenslets = pair.map(|sensor| sensor.array.lenslets());
        let shared = Displacements::new(lenslets, !together.is_empty(), displacement);
        Self { shared, apart }
    }

    // Fill rows of low covariances
    /// Covariances of some lenslets with others: for each of the first its xx, xy, yx and yy.
    fn fill(&self, [firsts, others]: [&[[usize; 2]]; 2], rows: &mut [[&mut [f64]; 4]]) {
        let place = |lenslet: [usize; 2]| lenslet.map(|k| k as f64);
        for (first, rows) in firsts.iter().zip(&mut *rows) {
            for (k, &other) in others.iter().enumerate() {
                let mut sum = self.shared.between_lenslets(*first, other);
                for (strength, table, [one, two]) in &self.apart {
                    let [from, to] = [one.centre(place(*first)), two.centre(place(other))];
                    let values = table.grid.at([0, 1].map(|axis| to[axis] - from[axis]));
                    sum.iter_mut().zip(values).for_each(|(sum, values)| *sum += strength * values);
                }
                rows.iter_mut().zip(sum).for_each(|(row, value)| row[k] = value);
            }
        }
    }
}

// Low covariances of a system
// Example of low covariances
/// The three covariance matrices of a system in the turbulence that a mirror of this `pitch` \[m\] can follow, without noise, and with all modes; Eq. [low covariance](https://lenslet.github.io/lenslet/in-band-covariances.html#eq-low-covariance).
/// Elements are accurate to 1e-6 of the variance of a slope.
///
/// # Errors
/// `Invalid` if the pitch is not a length, there is no target, or displacements are more than 2000 pitches; `Memory` if a matrix or its tables do not fit;
/// `Cancelled` if the watcher cancels the computation.
///
/// ```
/// use lenslet::{correction::low_covariances, watch::unwatched, model::System, tomography::CovarianceMatrices};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let (whole, low) = (CovarianceMatrices::of(&system, &unwatched)?, low_covariances(&system, 0.5, &unwatched)?);
/// // 6 % of the variance of these slopes is due to ripples that actuators half a metre apart cannot form.
/// let share = 1.0 - low.truth[[0, 0]] / whole.truth[[0, 0]];
/// assert!((share - 0.0603).abs() < 1e-3, "{share}");
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn low_covariances(
    system: &System,
    pitch: f64,
    watch: &dyn Watch,
) -> Result<CovarianceMatrices, Error> {
    length("pitch", pitch)?;
    check_targets(system)?;
    let what = || "covariances of the slopes of low turbulence".to_string();
    refuse_beyond_memory(low_bytes(system, pitch), what)?;
    let low = LowTurbulence::new(system, pitch, watch)?;
    Ok(CovarianceMatrices {
        measurements: low.measurements(watch)?,
        truth_measurements: low.with_truth(0..system.targets().len(), watch)?,
        truth: low.truth(watch)?,
    })
}

// Further uses of low covariances
// One low covariance at a time
/// The tables of low turbulence, from which each of its covariances is looked up when it is wanted.
pub(crate) struct LowTurbulence<'s> {
    system: &'s System,
    tables: Vec<InBandTable>,
}

impl<'s> LowTurbulence<'s> {
    pub(crate) fn new(system: &'s System, pitch: f64, watch: &dyn Watch) -> Result<Self, Error> {
        watch.stage(LOW, "lenslets");
        let reaches = tables_needed(system).into_par_iter();
        let tables = reaches.map(|(kind, reach)| InBandTable::new(kind, reach, pitch));
        Ok(Self { system, tables: tables.collect::<Result<_, Invalid>>()? })
    }

    // Fill a matrix by pairs of sensors
    fn fill(
        &self,
        (sensors, slopes): (&[Sensor], [Slopes; 2]),
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let pair = |pair: [usize; 2]| pair.map(|k| &sensors[k]);
        let block = |sensors| InBandBlock::new(self.system, &self.tables, pair(sensors));
        fill_slopes(slopes, block, InBandBlock::fill, watch)
    }

    // Low covariances of stars and targets
    /// C_mm of low turbulence, (n, n), rad².
    pub(crate) fn measurements(&self, watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let (stars, valid) = (self.system.sensors(), self.system.valid_lenslets());
        square(self.system.atmosphere(), (&stars, &valid), |all, slopes| {
            self.fill((all, slopes), watch)
        })
    }

    /// C_tm of some targets, target by target, (T m, n), rad².
    pub(crate) fn with_truth(
        &self,
        targets: Range<usize>,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let truths = &truth_sensors(self.system)[targets];
        let (stars, valid) = (self.system.sensors(), self.system.valid_lenslets());
        let masks = vec![truth_valid(self.system); truths.len()];
        let sets = [(truths, &masks[..]), (&stars[..], &valid[..])];
        rectangle(self.system.atmosphere(), sets, |all, slopes| self.fill((all, slopes), watch))
    }

    /// C_tt of one target, (m, m), rad².
    pub(crate) fn truth(&self, watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let (truths, mask) = (truth_sensors(self.system), [truth_valid(self.system)]);
        square(self.system.atmosphere(), (&truths[..1], &mask), |all, slopes| {
            self.fill((all, slopes), watch)
        })
    }
}

/// Name of the stage of the covariances within the correctable band.
pub(crate) const LOW: &str = "turbulence that mirrors follow";

// Low covariance of a wavefront
/// The covariances of the wavefront of a target at some points of the pupil \[m\] with the low slopes of its truth sensor, for a mirror of this `pitch` \[m\]; (points, m), m rad.
///
/// # Errors
/// `Invalid` if displacements are more than 2000 pitches.
pub(crate) fn low_wavefront(
    system: &System,
    pitch: f64,
    points: &[[f64; 2]],
) -> Result<Array2<f64>, Invalid> {
    let (truth, order) = (&truth_sensors(system)[0], SlopeOrder::new(&[truth_valid(system)]));
    let (response, metres) =
        (Response::new(system, truth, 0.0), square_metres(system.atmosphere()));
    let lenslets = order.lenslets(0);
    let middles: Vec<[f64; 2]> =
        lenslets.iter().map(|lenslet| truth.footprint(*lenslet, 0.0).centre).collect();
    let far = |all: &[[f64; 2]]| all.iter().flatten().fold(0.0, |far: f64, x| far.max(x.abs()));
    let reach = far(points) + far(&middles);
    // Strength of turbulence by outer scale
    let mut tables: Vec<(f64, f64)> = Vec::new();
    for layer in layers(system) {
        match tables.iter_mut().find(|(outer_scale, _)| *outer_scale == layer.outer_scale) {
            Some((_, strength)) => *strength += metres * layer.fraction,
            None => tables.push((layer.outer_scale, metres * layer.fraction)),
        }
    }
    let mut all = Array2::zeros((points.len(), order.len()));
    for (outer_scale, strength) in tables {
        let table = Grid::of_wavefronts((outer_scale, response), reach, pitch)?;
        // Add the low slopes of a table
        let rows = all.outer_iter_mut().into_par_iter().zip(points);
        rows.for_each(|(mut row, [x, y])| {
            for (k, [u, v]) in middles.iter().enumerate() {
                let [along_x, along_y] = table.at([u - x, v - y]);
                row[k] += strength * along_x;
                row[middles.len() + k] += strength * along_y;
            }
        });
    }
    Ok(all)
}

// Table of a wavefront with slopes
impl Grid<2> {
    /// Eq. [low wavefront](https://lenslet.github.io/lenslet/in-band-wavefronts.html#eq-low-wavefront) for displacements up to `reach` along each axis, metres.
    fn of_wavefronts(
        (outer_scale, response): (f64, Response),
        reach: f64,
        pitch: f64,
    ) -> Result<Self, Invalid> {
        let (middle, step) = (half_table(reach, pitch), pitch / PER_PITCH);
        let band = Band::new(pitch, outer_scale, [(middle as f64) * step, 0.0])?;
        let phase = VonKarman::new(outer_scale);
        let parts = band.odd_covariances(middle, step, |[x, y]| {
            let power = phase.power_spectrum(x * x + y * y);
            [[x, y], [x, -y]].map(|f| response.at(f).map(|amplitude| -power * amplitude))
        });
        Ok(Self::new(step, middle, parts))
    }
}

// Memory of low covariances
/// Seconds that a thread takes to look up a pair of lenslets on a layer, and for a number of a table, by the built-in rates.
const LOOK_UP: f64 = 1e-7;
const NUMBER: f64 = 3e-8;

/// Numbers of all matrices, and of all tables.
fn sizes(system: &System, pitch: f64) -> [u64; 2] {
    let n = SlopeOrder::new(&system.valid_lenslets()).len() as u64;
    let m = 2 * truth_valid(system).iter().filter(|valid| **valid).count() as u64;
    let matrices = n * n + system.targets().len() as u64 * m * n + m * m;
    let across = |reach: f64| 2 * half_table(reach, pitch) as u64 + 1;
    let of = |(_, reach): &(CovarianceKey, f64)| across(*reach).saturating_pow(2).saturating_mul(4);
    [matrices, tables_needed(system).iter().map(of).fold(0, u64::saturating_add)]
}

/// Memory of the low covariances of a system, bytes; tables are made of as many numbers again.
pub(crate) fn low_bytes(system: &System, pitch: f64) -> u64 {
    let [matrices, tables] = sizes(system, pitch);
    matrices.saturating_add(tables.saturating_mul(2)).saturating_mul(8)
}

/// Memory of the low covariances with one matrix at a time, bytes: that of the stars, or that of a target with them.
pub(crate) fn low_bytes_of_each(system: &System, pitch: f64) -> u64 {
    let [matrices, tables] = sizes(system, pitch);
    let one = system.to_builder().targets(system.targets().first().copied()).build();
    let matrices = one.map_or(matrices, |one| sizes(&one, pitch)[0]);
    matrices.saturating_add(tables.saturating_mul(2)).saturating_mul(8)
}

/// Seconds that a thread takes for them by the built-in rates.
pub(crate) fn low_seconds(system: &System, pitch: f64) -> f64 {
    let [matrices, tables] = sizes(system, pitch).map(|numbers| numbers as f64);
    0.25 * LOOK_UP * layers(system).count() as f64 * matrices + NUMBER * tables
}

// Tests of low turbulence
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Engine;
    use crate::linear::Eigen;
    use crate::model::atmosphere::Atmosphere;
    use crate::model::lenslet_array::LensletArray;
    use crate::model::noise::{GuideStar, Noise};
    use crate::model::removed_modes::TipTilt;
    use crate::model::source::Source;
    use crate::numerics::quadrature::gauss_legendre;
    use crate::plan::Plan;
    use crate::tomography::covariance_matrix::tests::system;
    use crate::tomography::error_decomposition::ErrorSplit;
    use crate::tomography::reconstructor::{ReconstructorOptions, ReconstructorPlan};
    use crate::watch::unwatched;
    use ndarray::Array2;
    use ndarray::{Axis, s};

    // Compare low covariances with another rule
    /// Everything unequal: a laser star, a turned natural one and a coarse one, and short outer scales, for which few nodes are enough.
    fn lopsided(model: SlopeModel) -> System {
        let system = system(0.0);
        let layers = vec![Layer::new(0.0, 0.6, 1.5), Layer::new(6e3, 0.4, 2.0)];
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        system.to_builder().atmosphere(air).slope_model(model).build().unwrap()
    }

    /// The covariance of two slopes by Gauss's rule over the four quadrants: each a sensor, a component and a lenslet.
    fn by_quadrature(system: &System, pitch: f64, slopes: [(Sensor, usize, [usize; 2]); 2]) -> f64 {
        let (rule, limit) = (gauss_legendre(40), 0.5 / pitch);
        let axis: Vec<[f64; 2]> = [-1.0, 1.0]
            .into_iter()
            .flat_map(|side| {
                let place = move |node: f64| 0.5 * limit * (side + node);
                let weights = rule.weights.iter().map(move |weight| 0.5 * limit * weight);
                rule.nodes.clone().into_iter().map(place).zip(weights).map(|(f, w)| [f, w])
            })
            .collect();
        let of_layer = |layer: &Layer| {
            let phase = VonKarman::new(layer.outer_scale);
            let footprints = slopes.map(|(sensor, a, lenslet)| {
                let footprint = sensor.footprint(lenslet, layer.altitude);
                (sensor, a, footprint)
            });
            let [from, to] = [0, 1].map(|k| footprints[k].2.centre);
            let mut sum = 0.0;
            for [x, wx] in &axis {
                for [y, wy] in &axis {
                    let answer = |(sensor, a, footprint): &(Sensor, usize, _)| {
                        let crate::model::sensor::Footprint { side, axes, .. } = *footprint;
                        let mean = |u: f64| if u == 0.0 { 1.0 } else { (PI * u).sin() / (PI * u) };
                        let own = axes.map(|axis: [f64; 2]| axis[0] * x + axis[1] * y);
                        match system.slope_model() {
                            SlopeModel::Average => {
                                let gamma = sensor.source.cone_factor(layer.altitude);
                                let means = mean(side * own[0]) * mean(side * own[1]);
                                2.0 * PI * gamma * own[*a] * means
                            }
                            SlopeModel::EdgeMidpoint => {
                                let ahead = 0.5 * side * [x, y][*a];
                                2.0 * (2.0 * PI * ahead).sin() / sensor.side()
                            }
                        }
                    };
                    let wave = (2.0 * PI * (x * (to[0] - from[0]) + y * (to[1] - from[1]))).cos();
                    let product = answer(&footprints[0]) * answer(&footprints[1]);
                    sum += wx * wy * phase.power_spectrum(x * x + y * y) * product * wave;
                }
            }
            square_metres(system.atmosphere()) * layer.fraction * sum
        };
        system.atmosphere().layers().iter().map(of_layer).sum()
    }

    // Compare low covariances with quadrature
    #[test]
    fn low_covariances_are_integrals_over_the_square() {
        for model in [SlopeModel::Average, SlopeModel::EdgeMidpoint] {
            let system = lopsided(model);
            let found = low_covariances(&system, 0.55, &unwatched).unwrap();
            let order = SlopeOrder::new(&system.valid_lenslets());
            let at_truth = SlopeOrder::new(&[truth_valid(&system)]);
            let (stars, truth) = (system.sensors(), truth_sensors(&system)[1]);
            let variance = found.measurements[[0, 0]];
            let mut worst: f64 = 0.0;
            for ((p, a, k), (q, b, l)) in
                [((0, 0, 3), (1, 1, 20)), ((1, 0, 5), (2, 0, 2)), ((2, 1, 7), (0, 0, 11))]
            {
                let slope = |p: usize, a, k: usize| (stars[p], a, order.lenslets(p)[k]);
                let expected = by_quadrature(&system, 0.55, [slope(p, a, k), slope(q, b, l)]);
                let places = [order.index(p, a, k), order.index(q, b, l)];
                worst = worst.max((found.measurements[places] - expected).abs() / variance);
                // The second target with the second star.
                let own = (truth, a, at_truth.lenslets(0)[k]);
                let expected = by_quadrature(&system, 0.55, [own, slope(q, b, l)]);
                let row = at_truth.len() + at_truth.index(0, a, k);
                let place = [row, order.index(q, b, l)];
                worst = worst.max((found.truth_measurements[place] - expected).abs() / variance);
            }
            assert!(worst < 1e-6 && worst > 1e-14, "{worst:e}");
            assert_eq!(found.measurements, found.measurements.t());
        }
    }

    // Follow more turbulence with a finer mirror
    #[test]
    fn finer_mirrors_follow_more_turbulence() {
        let system = lopsided(SlopeModel::EdgeMidpoint);
        let whole = CovarianceMatrices::of(&system, &unwatched).unwrap();
        let variance = whole.truth[[0, 0]];
        let largest = |pitch: f64| {
            let low = low_covariances(&system, pitch, &unwatched).unwrap();
            let gaps = [
                &whole.measurements - &low.measurements,
                &whole.truth_measurements - &low.truth_measurements,
                &whole.truth - &low.truth,
            ];
            // What is outside of the square is a covariance, too.
            let least = Eigen::new(&gaps[0]).unwrap().values()[0];
            assert!(least > -1e-5 * variance, "{least:e} of {variance:e}");
            let most = |gap: &Array2<f64>| gap.fold(0.0, |most: f64, gap| most.max(gap.abs()));
            gaps.map(|gap| most(&gap) / variance)
        };
        let [coarse, fine] = [largest(0.6), largest(0.3)];
        let shrinks = |k: usize| fine[k] < 0.5 * coarse[k] && fine[k] > 1e-3 && coarse[k] > 0.05;
        assert!((0..3).all(shrinks), "{coarse:?} {fine:?}");
    }

    #[test]
    fn low_turbulence_that_cannot_be_is_refused() {
        let refused = |pitch: f64| low_covariances(&system(0.0), pitch, &unwatched).unwrap_err();
        assert!(refused(0.0).to_string().starts_with("pitch = 0"));
        assert!(refused(f64::NAN).to_string().starts_with("pitch = NaN"));
        assert!(matches!(refused(1e-4), Error::Memory { .. }));
        let aimless = system(0.0).to_builder().targets([]).build().unwrap();
        let words = low_covariances(&aimless, 0.5, &unwatched).unwrap_err().to_string();
        assert!(words.starts_with("target = 0"), "{words}");
    }

    // Integrate slopes outside of the square
    #[test]
    fn slopes_outside_of_the_square_have_their_variance() {
        let (array, on_axis) =
            (LensletArray::new(1, 0.5).unwrap(), Source::star(0.0, 0.0).unwrap());
        for (outer_scale, pitch) in [(25.0, 0.5), (f64::INFINITY, 0.4)] {
            let air =
                Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, outer_scale)]).unwrap();
            let star = GuideStar::at_rest(on_axis, array, 0.0).unwrap();
            let builder = System::builder(air, array).guide_stars([star]).targets([on_axis]);
            let system = builder.build().unwrap();
            let [whole, low] = [
                CovarianceMatrices::of(&system, &unwatched).unwrap(),
                low_covariances(&system, pitch, &unwatched).unwrap(),
            ];
            let found = whole.truth[[0, 0]] - low.truth[[0, 0]];
            // The square is one panel, and there are sixty.
            let (rule, phase, panel) =
                (gauss_legendre(6), VonKarman::new(outer_scale), 0.5 / pitch);
            let (panels, inside) = (60, 1);
            let nodes: Vec<(usize, f64, f64)> = (0..panels)
                .flat_map(|k| {
                    let at = |node: &f64| panel * (k as f64 + 0.5 * (node + 1.0));
                    let pairs = rule.nodes.iter().zip(&rule.weights);
                    pairs.map(move |(node, w)| (k, at(node), 0.5 * panel * w)).collect::<Vec<_>>()
                })
                .collect();
            let mut sum = 0.0;
            for &(k, x, wx) in &nodes {
                for &(l, y, wy) in &nodes {
                    if k >= inside || l >= inside {
                        let response = 2.0 * PI * x * sinc(0.5 * x) * sinc(0.5 * y);
                        sum +=
                            4.0 * wx * wy * phase.power_spectrum(x * x + y * y) * response.powi(2);
                    }
                }
            }
            let expected = square_metres(system.atmosphere()) * sum;
            assert!((found / expected - 1.0).abs() < 2e-4, "{found:e} {expected:e}");
            let share = found / whole.truth[[0, 0]];
            assert!((share - if pitch == 0.5 { 0.0603 } else { 0.0140 }).abs() < 2e-4, "{share}");
        }
    }

    // Add the parts of an error
    #[test]
    fn parts_of_an_error_add_up() {
        // A laser star with correlated noise that does not see tilts, and one of an unknown tilt.
        let bare = system(2e-14);
        let mut stars = bare.guide_stars().to_vec();
        let lenslets = SlopeOrder::new(&bare.valid_lenslets()).lenslets(0).len();
        stars[0].noise = Noise::blocks(&vec![[[3e-14, 1e-14], [1e-14, 2e-14]]; lenslets]).unwrap();
        stars[0].tip_tilt = TipTilt::Removed;
        stars[1].tip_tilt = TipTilt::unknown(1e-11).unwrap();
        let system = bare.to_builder().guide_stars(stars).build().unwrap();
        let options = ReconstructorOptions::default().keep(true);
        let plan = ReconstructorPlan::new(&system, options).unwrap();
        let found = plan.run(&Engine::default(), &unwatched).unwrap();
        let (r, kept) = (found.reconstructor.unwrap(), found.covariances.unwrap());
        let low = low_covariances(&system, 0.6, &unwatched).unwrap();
        let split = ErrorSplit::new(&system, kept.measurements, low.clone()).unwrap();
        let (m, scale) = (low.truth.nrows(), low.truth[[0, 0]]);
        for t in 0..2 {
            let r = r.index_axis(Axis(0), t).to_owned();
            let parts = split.of(&r, t).unwrap();
            let rows = s![t * m..(t + 1) * m, ..];
            let high = &kept.truth_measurements.slice(rows) - &low.truth_measurements.slice(rows);
            let cross = high.dot(&r.t());
            let own = &kept.truth - &low.truth - &cross - cross.t();
            let sum = &parts.tomography + &parts.noise + &parts.aliasing + own;
            let whole = found.error_covariance.index_axis(Axis(0), t);
            assert!((&sum - &whole).iter().all(|gap| gap.abs() < 1e-9 * scale));
            let all = [&parts.tomography, &parts.noise, &parts.aliasing];
            for part in all {
                let values = Eigen::new(part).unwrap();
                assert!(values.values()[0] > -1e-6 * scale, "{:e}", values.values()[0]);
                assert!(part.diag().mean().unwrap() > 1e-4 * scale);
            }
        }
        assert!(
            split.of(&Array2::zeros((m, 3)), 0).is_err()
                && split.of(&r.index_axis(Axis(0), 0).to_owned(), 2).is_err()
        );
        assert!(ErrorSplit::new(&system, Array2::zeros((3, 3)), low).is_err());
    }
}
