// Tangled from book/src/covariance-cost.md: edit there, or here and run cargo tangle stitch.
//! How long dense covariances of slopes take, sensor by sensor.

use crate::device::{CostKind, engine::Engine};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::sensor::Sensor;
use crate::model::system::{SlopeModel, System};
use crate::plan::Stage;

// Rates of dense covariances
/// Seconds that a thread, or a device, takes for parts of the covariance of slopes that are averages.
struct Rates {
    /// For a number that is gathered from a table.
    gathered: f64,
    /// For two sensors of a lattice and a layer, and for each of their lags.
    view: f64,
    lag: f64,
    /// For a layer, if sensors share no lattice.
    layer: f64,
    /// For two lenslets and a layer, aligned and rotated, and the addition where they are near.
    parallel: [f64; 2],
    turned: [f64; 2],
    /// For an entry and a layer by the formula of four points.
    points: f64,
}

// Rates of a thread and a device
/// Seconds of one thread for two sensors of a lattice and a layer, and for each of their lags.
pub(crate) const VIEW: f64 = 0.4e-3;
pub(crate) const VIEW_LAG: f64 = 14e-9;

const THREAD: Rates = Rates {
    gathered: 20e-9,
    view: VIEW,
    lag: VIEW_LAG,
    layer: 4e-3,
    parallel: [55e-9, 0.45e-6],
    turned: [0.25e-6, 3e-6],
    points: 6e-9,
};

const DEVICE: Rates = Rates {
    gathered: 4e-12,
    view: 0.23e-3,
    lag: 0.0,
    layer: 2.5e-3,
    parallel: [0.015e-9, 1e-9],
    turned: [0.5e-9, 20e-9],
    points: 0.02e-9,
};

// Sensors and their lenslets
/// Properties of a sensor on which the cost of its covariance depends.
pub(crate) struct SensorCost {
    /// Its number among those of its kind.
    pub(crate) number: usize,
    sensor: Sensor,
    /// Valid lenslets.
    lenslets: usize,
}

impl SensorCost {
    /// Some sensors, with the order of their slopes.
    pub(crate) fn all(sensors: &[Sensor], order: &SlopeOrder) -> Vec<Self> {
        let cost = |(number, sensor): (usize, &Sensor)| {
            let lenslets = order.lenslets(number).len();
            Self { number, sensor: *sensor, lenslets }
        };
        sensors.iter().enumerate().map(cost).collect()
    }

    /// The side of the whole array, metres.
    fn width(&self) -> f64 {
        self.sensor.array.lenslets() as f64 * self.sensor.side()
    }
}

/// Each sensor with itself and with those behind it.
pub(crate) fn among(sensors: &[SensorCost]) -> Vec<[&SensorCost; 2]> {
    let from = |p: usize| sensors[p..].iter().map(move |second| [&sensors[p], second]);
    (0..sensors.len()).flat_map(from).collect()
}

/// Each of the first with each of the second.
#[cfg(any(feature = "factorise", test))]
pub(crate) fn between<'a>(
    first: &'a [SensorCost],
    second: &'a [SensorCost],
) -> Vec<[&'a SensorCost; 2]> {
    first.iter().flat_map(|p| second.iter().map(move |q| [p, q])).collect()
}

// Work of two sensors
impl Rates {
    /// Seconds for the covariances of two sensors' slopes on so many layers: to integrate, and to write.
    fn of_pair(&self, [first, second]: [&SensorCost; 2], layers: f64) -> [(CostKind, f64); 2] {
        let [p, q] = [&first.sensor, &second.sensor];
        let pairs = (first.lenslets * second.lenslets) as f64;
        let written = (CostKind::Memory, 4.0 * pairs * self.gathered);
        if p.shares_lattice_with(q) {
            let lags = (2 * p.array.lenslets() - 1).pow(2) as f64;
            return [(CostKind::Integrals, layers * (self.view + self.lag * lags)), written];
        }
        let mean = 0.5 * (p.side() + q.side());
        let across = first.width().max(second.width()) / mean;
        let turn = (p.rotation - q.rotation).rem_euclid(std::f64::consts::FRAC_PI_2);
        let ([far, near], nearby) = match turn == 0.0 {
            true => (self.parallel, (5.0 * mean / q.side()).powi(2) * first.lenslets as f64),
            false => (self.turned, pairs / (1.0 + (across / 14.0).powf(2.5))),
        };
        [(CostKind::Integrals, layers * (far * pairs + near * nearby.min(pairs))), written]
    }
}

// Time of covariances of slopes
/// Rows of lenslets in a band.
const BAND: usize = 4;

/// The stage that computes the covariances of the slopes of some pairs of a system's sensors.
pub(crate) fn time_of_slopes(
    name: &'static str,
    system: &System,
    pairs: &[[&SensorCost; 2]],
    engine: &Engine,
) -> Stage {
    let layers = system.atmosphere().layers().len() as f64;
    let by_points = system.slope_model() == SlopeModel::EdgeMidpoint;
    let rates = if engine.devices().is_empty() { &THREAD } else { &DEVICE };
    // Add up the work of pairs
    let of_pair = |pair: &[&SensorCost; 2]| match by_points {
        true => {
            let entries = (4 * pair[0].lenslets * pair[1].lenslets) as f64;
            [(CostKind::Integrals, layers * rates.points * entries), (CostKind::Memory, 0.0)]
        }
        false => rates.of_pair(*pair, layers),
    };
    let add = |sum: [(CostKind, f64); 2], more: [(CostKind, f64); 2]| {
        [0, 1].map(|k| (sum[k].0, sum[k].1 + more[k].1))
    };
    let none = [(CostKind::Integrals, 0.0), (CostKind::Memory, 0.0)];
    let (mut total, mut largest) = (none, none);
    // Add the rows of each sensor
    for rows in pairs.chunk_by(|[first, _], [next, _]| first.number == next.number) {
        let of_rows = rows.iter().map(of_pair).fold(none, add);
        let bands = rows[0][0].sensor.array.lenslets().div_ceil(BAND) as f64;
        let of_band = of_rows.map(|(kind, seconds)| (kind, seconds / bands));
        total = add(total, of_rows);
        largest = if of_band[0].1 + of_band[1].1 > largest[0].1 + largest[1].1 {
            of_band
        } else {
            largest
        };
    }
    let apart =
        |[first, second]: &[&SensorCost; 2]| !first.sensor.shares_lattice_with(&second.sensor);
    if !by_points && pairs.iter().any(apart) {
        total[0].1 += layers * rates.layer;
    }
    Stage::shared(name, &total, engine).with_piece(&largest, engine)
}

// Tests of work by pairs
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Speed, threads};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::Source;

    #[test]
    fn pairs_cost_by_how_they_stand() {
        let sensor = |lenslets, height| {
            let array = LensletArray::new(lenslets, 8.0 / lenslets as f64).unwrap();
            Sensor::at_rest(Source::new(1e-4, 0.0, height).unwrap(), array)
        };
        let turned = Sensor { rotation: 0.2, ..sensor(16, f64::INFINITY) };
        let sensors = [
            sensor(16, 90e3),
            sensor(16, 90e3),
            sensor(16, f64::INFINITY),
            turned,
            sensor(8, 90e3),
        ];
        let all: Vec<_> = sensors.iter().map(|sensor| sensor.array.lenslets()).collect();
        let full: Vec<_> = all.iter().map(|&n| ndarray::Array2::from_elem((n, n), true)).collect();
        let costs = SensorCost::all(&sensors, &SlopeOrder::new(&full));
        assert_eq!((among(&costs).len(), between(&costs[..2], &costs).len()), (15, 10));
        let cost = |q: usize| THREAD.of_pair([&costs[0], &costs[q]], 3.0);
        let [shared, parallel, turned] = [1, 2, 3].map(|q| cost(q)[0].1);
        assert!(shared < 0.2 * parallel && 5.0 * parallel < turned, "{shared} {parallel} {turned}");
        // A pair costs the same in either order.
        let other = THREAD.of_pair([&costs[4], &costs[0]], 3.0)[0].1;
        assert!((other / cost(4)[0].1 - 1.0).abs() < 1e-12 && other < parallel);
        assert_eq!(cost(1)[1], cost(2)[1]);
    }

    #[test]
    fn paces_scale_and_the_largest_band_rules() {
        let system = System::from_toml(include_str!("../../book/systems/small-moao.toml"), "s");
        let (system, engine) = (system.unwrap(), Engine::default());
        let costs = SensorCost::all(&system.sensors(), &SlopeOrder::new(&system.valid_lenslets()));
        let pairs = among(&costs);
        let time = |engine: &Engine| time_of_slopes("a", &system, &pairs, engine).seconds;
        let pace = |kind| if kind == CostKind::Integrals { 2.0 } else { 1e-9 };
        let slow = engine.clone().with_speed(Speed::measured("now".into(), pace).unwrap());
        let ratio = time(&slow) / time(&engine);
        assert!(ratio > 1.9 && ratio < 2.0, "{ratio}");
        // One core has to do a band, of two that the rows of the first star have.
        let few = time_of_slopes("a", &system, &pairs[..1], &engine).seconds;
        let work = THREAD.of_pair(pairs[0], 3.0).iter().map(|(_, seconds)| seconds).sum::<f64>();
        let busy = threads().min(2) as f64;
        assert!((few * busy / work - 1.0).abs() < 1e-9, "{few} {work}");
    }
}
