// Tangled from book/src/loop-covariances.md: edit there, or here and run cargo tangle stitch.
//! Covariances of wavefronts and slopes with slopes as a loop averages them, under frozen flow.

// Imports of loop covariances
use crate::correction::in_band_covariance::{Grid, MARGIN};
use crate::device::Engine;
use crate::error::Error;
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::control::{ControlLoop, LoopKind};
use crate::model::lenslet_array::{LensletArray, SlopeOrder};
use crate::model::sensor::Sensor;
use crate::model::source::Source;
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::turbulence::cross_covariance::{
    Motion, moving_cross_covariance, wavefront_slope_moving,
};
use crate::turbulence::plan::dense_slopes;
use crate::watch::{CancelOnly, Watch, check};
use ndarray::Array2;
use rayon::prelude::*;

// Weights of past slopes
// Weights and times of a loop
/// Weights of slopes of the past in the strokes that a mirror holds, Eqs. [loop weights](https://lenslet.github.io/lenslet/loop-covariances.html#eq-loop-weights) to [exposure and hold](https://lenslet.github.io/lenslet/loop-covariances.html#eq-exposure-and-hold).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoopWeights {
    /// How long before the hold slopes were measured \[s\], with their weights μ'; the weights sum to 1.
    pub(crate) delays: Vec<[f64; 2]>,
    /// Times between two measurements, from 0 on \[s\], with their weights r', which hold for either order of the two.
    pub(crate) lags: Vec<[f64; 2]>,
    /// β.
    pub(crate) noise_gain: f64,
}

impl LoopWeights {
    // Weights without a loop
    /// The weights of a system without a loop, in which nothing is late.
    pub(crate) fn at_once() -> Self {
        Self { delays: vec![[0.0, 1.0]], lags: vec![[0.0, 1.0]], noise_gain: 1.0 }
    }

    /// The weights of a loop. Far from the present, frames share weights as long as no layer moves by more than `reach` \[m\] between them.
    pub(crate) fn new(control: &ControlLoop, air: &Atmosphere, reach: f64) -> Self {
        let (response, frame) = (control.impulse_response(), 1.0 / control.rate);
        let product = |d: usize| response.iter().zip(&response[d..]).map(|(a, b)| a * b).sum();
        let products: Vec<f64> = (0..response.len()).map(product).collect();
        // Frames that keep their own weights
        let fastest = air.layers().iter().map(|layer| layer.wind_speed).fold(0.0, f64::max);
        let stride = (reach / (fastest * frame).max(1e-3 * reach)).max(1.0) as usize;
        let near = control.delay.ceil() as usize + NEAR;
        // Smooth and gather weights with their times
        let timed = |weights: &[f64], first: f64| {
            let at = |(k, weight)| [(first + k as f64) * frame, weight];
            gathered(weights, near, stride).into_iter().map(at).collect()
        };
        // The triangle begins a frame before the response; an autocorrelation is the same at both sides of 0.
        let delays = timed(&smoothed(&response, false), control.delay - 1.0);
        let lags = timed(&smoothed(&products, true)[1..], 0.0);
        Self { delays, lags, noise_gain: products[0] }
    }

    // Test for a loop without delay
    /// Whether slopes are those of the time of the hold.
    pub(crate) fn is_at_once(&self) -> bool {
        self.delays.iter().all(|[time, _]| *time == 0.0)
    }
}

// Smooth weights by exposure and hold
/// Eq. [exposure and hold](https://lenslet.github.io/lenslet/loop-covariances.html#eq-exposure-and-hold) for weights from frame 0 on, from frame −1 on; before frame 0 the weights are 0, or those of an `even` sequence.
fn smoothed(weights: &[f64], even: bool) -> Vec<f64> {
    let at = |k: isize| match k {
        ..0 if !even => 0.0,
        _ => weights.get(k.unsigned_abs()).copied().unwrap_or(0.0),
    };
    (-1..=weights.len() as isize).map(|k| (at(k - 1) + 10.0 * at(k) + at(k + 1)) / 12.0).collect()
}

// Gather weights of distant frames
/// Frames beyond the delay that all keep their own weights.
const NEAR: usize = 8;

/// Weights by frame, of which those beyond the frame `near` are gathered at every `stride`-th.
fn gathered(weights: &[f64], near: usize, stride: usize) -> Vec<(usize, f64)> {
    let last = near + (weights.len().saturating_sub(near + 1)).div_ceil(stride) * stride;
    let kept = (0..near.min(weights.len())).chain((near..=last).step_by(stride));
    let share = |k: usize| {
        let width = if k > near { stride } else { 1 };
        let after = if k >= near { stride } else { 1 };
        let part = |f: usize| {
            let (gap, across) = (f.abs_diff(k), if f < k { width } else { after });
            weights
                .get(f)
                .map_or(0.0, |weight| weight * (1.0 - gap as f64 / across as f64).max(0.0))
        };
        (k.saturating_sub(width - 1)..k + after).map(part).sum()
    };
    kept.map(|k| (k, share(k))).filter(|(_, weight): &(usize, f64)| *weight != 0.0).collect()
}

// Response of a loop to one frame
impl ControlLoop {
    /// The weights μ_j of Eq. [loop weights](https://lenslet.github.io/lenslet/loop-covariances.html#eq-loop-weights), which sum to 1.
    pub(crate) fn impulse_response(&self) -> Vec<f64> {
        if self.kind == LoopKind::Open {
            return vec![1.0];
        }
        let (whole, rest) = (self.delay.floor() as usize, self.delay.fract());
        let (mut response, mut most, mut quiet) = (Vec::<f64>::new(), 0.0, 0);
        while quiet <= whole + 1 && response.len() < MOST_FRAMES {
            // Weight of some frames ago
            let ago = |frames: usize| match response.len().checked_sub(frames) {
                Some(k) => response[k],
                None => 0.0,
            };
            let push = if response.is_empty() { 1.0 } else { 0.0 };
            let delayed = (1.0 - rest) * ago(whole) + rest * ago(whole + 1);
            let next: f64 = ago(1) + self.gain * (push - delayed);
            response.push(next);
            most = f64::max(most, next.abs());
            quiet = if next.abs() < FORGOTTEN * most { quiet + 1 } else { 0 };
        }
        let sum: f64 = response.iter().sum();
        response.into_iter().map(|weight| weight / sum).collect()
    }
}

// Limits of the memory of a loop
/// The share of its largest weight below which a loop has forgotten a frame, and the most frames that it may remember.
const FORGOTTEN: f64 = 1e-4;
const MOST_FRAMES: usize = 4000;

// Motions of all layers
/// The displacements of the footprints of earlier measurements on all layers, for measurements at some times \[s\] with weights.
fn motions(air: &Atmosphere, times: &[[f64; 2]]) -> Vec<Motion> {
    let of_layer = |(layer, moving): (usize, &Layer)| {
        let whole: f64 = times.iter().map(|[_, weight]| weight).sum();
        let times = if moving.wind_speed == 0.0 { vec![[0.0, whole]] } else { times.to_vec() };
        let velocity = moving.velocity();
        times.into_iter().map(move |[time, weight]| Motion {
            layer,
            by: velocity.map(|speed| speed * time),
            weight,
        })
    };
    air.layers().iter().enumerate().flat_map(of_layer).collect()
}

// Covariances of slopes in a loop
/// Name of the stage of these covariances.
pub(crate) const LOOP: &str = "covariances through the loop";

// Covariances of slopes at two times
/// Covariances of slopes of turbulence, (n, n), rad².
pub(crate) struct LoopCovariances {
    /// C_mm of one time.
    pub(crate) present: Array2<f64>,
    /// C_mm̄ and its transpose, their sum; C_m̄m̄. `None` where nothing is late.
    pub(crate) late: Option<[Array2<f64>; 2]>,
}

impl LoopCovariances {
    /// Those of the guide stars of a system, without noise and with all modes.
    ///
    /// # Errors
    /// As for [`slope_cross_covariance`](crate::turbulence::cross_covariance::slope_cross_covariance), and what a device says.
    pub(crate) fn new(
        system: &System,
        weights: &LoopWeights,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let present = dense_slopes(system, engine, &CancelOnly(watch))?;
        if weights.is_at_once() {
            return Ok(Self { present, late: None });
        }
        // Add both orders of two times
        let (sensors, valid) = (system.sensors(), system.valid_lenslets());
        let (air, slopes) = (system.atmosphere(), (&sensors[..], &valid[..]));
        let both_ways = |times: &[[f64; 2]]| {
            check(watch)?;
            let motions = motions(air, times);
            let gradient = system.cone_gradient();
            let one = moving_cross_covariance((air, &motions), [slopes, slopes], gradient, watch)?;
            Ok::<_, Error>(&one + &one.t())
        };
        let mut lags = weights.lags.clone();
        lags[0][1] *= 0.5;
        let late = [both_ways(&weights.delays)?, both_ways(&lags)?];
        Ok(Self { present, late: Some(late) })
    }
}

// Tables of wavefronts through a loop
/// Points of a table for the side of a footprint.
const PER_SIDE: f64 = 4.0;

// Footprint of a table of wavefronts
/// What F of Eq. [wavefront through loop](https://lenslet.github.io/lenslet/loop-covariances.html#eq-wavefront-through-loop) depends on: the number of a layer, the height and side of a star's lenslets, and how they are turned.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LoopFootprint {
    layer: usize,
    height: f64,
    side: f64,
    rotation: f64,
}

/// Covariances of the wavefronts of targets with slopes as a loop averages them.
pub(crate) struct WavefrontsInLoop<'s> {
    system: &'s System,
    tables: Vec<(LoopFootprint, Grid<2>)>,
}

impl<'s> WavefrontsInLoop<'s> {
    // Tabulate all wavefronts of a system
    /// Those of all targets of a system, for points of the pupil up to `reach` \[m\] from its axis.
    ///
    /// # Errors
    /// As for [`wavefront_slope`](crate::turbulence::cross_covariance::wavefront_slope).
    pub(crate) fn new(
        system: &'s System,
        reach: f64,
        weights: &LoopWeights,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let reaches = tables_needed(system, reach);
        let (mut tables, count) = (Vec::new(), reaches.len());
        for (footprint, reach) in reaches {
            let table = tabulate(system, footprint, reach, (weights, watch))?;
            tables.push((footprint, table));
            watch.progress(tables.len(), count);
        }
        Ok(Self { system, tables })
    }

    // Look up the wavefront of a target
    /// C_φm̄ of some points of the pupil \[m\], towards a target at the time of the hold, (points, n), m rad.
    pub(crate) fn at(&self, target: &Source, points: &[[f64; 2]]) -> Array2<f64> {
        let (sensors, valid) = (self.system.sensors(), self.system.valid_lenslets());
        let order = SlopeOrder::new(&valid);
        let mut all = Array2::zeros((points.len(), order.len()));
        for (layer, turbulent) in self.system.atmosphere().layers().iter().enumerate() {
            for (q, sensor) in sensors.iter().enumerate() {
                let footprint = LoopFootprint::new(layer, sensor);
                let known = self.tables.iter().find(|(known, _)| *known == footprint);
                let Some((_, table)) = known else { continue };
                let (lenslets, first) = (order.lenslets(q), order.index(q, 0, 0));
                let centre = |k: &[usize; 2]| sensor.footprint(*k, turbulent.altitude).centre;
                let centres: Vec<[f64; 2]> = lenslets.iter().map(centre).collect();
                let axes = sensor.axes();
                // Look up all points of a sensor
                let rows = all.outer_iter_mut().into_par_iter().zip(points);
                rows.for_each(|(mut row, point)| {
                    let [x, y] = target.project(*point, turbulent.altitude);
                    for (k, [u, v]) in centres.iter().enumerate() {
                        let apart = axes.map(|axis| axis[0] * (u - x) + axis[1] * (v - y));
                        let [along_x, along_y] = table.at(apart);
                        row[first + k] += along_x;
                        row[first + centres.len() + k] += along_y;
                    }
                });
            }
        }
        all
    }
}

// Footprints of all stars on all layers
impl LoopFootprint {
    fn new(layer: usize, sensor: &Sensor) -> Self {
        let (height, side) = (sensor.source.height(), sensor.side());
        Self { layer, height, side, rotation: sensor.rotation }
    }
}

/// All footprints of a system, each with the farthest displacement from a point that is seen by a target, metres.
fn tables_needed(system: &System, reach: f64) -> Vec<(LoopFootprint, f64)> {
    let mut reaches: Vec<(LoopFootprint, f64)> = Vec::new();
    for (layer, turbulent) in system.atmosphere().layers().iter().enumerate() {
        let centre = |source: &Source| source.project([0.0; 2], turbulent.altitude);
        for sensor in system.sensors().iter().filter(|_| turbulent.fraction > 0.0) {
            let footprint = LoopFootprint::new(layer, sensor);
            let last = sensor.array.lenslets() - 1;
            // Farthest displacement of a footprint
            let corners = [[0, 0], [0, last], [last, 0], [last, last]];
            let far = system.targets().iter().flat_map(|target| {
                let [x, y] = centre(target);
                corners
                    .map(|k| sensor.footprint(k, turbulent.altitude).centre)
                    .map(|[u, v]| f64::hypot(u - x, v - y))
            });
            let far = far.fold(0.0, f64::max) + reach;
            match reaches.iter_mut().find(|(known, _)| *known == footprint) {
                Some((_, most)) => *most = f64::max(*most, far),
                None => reaches.push((footprint, far)),
            }
        }
    }
    reaches
}

// Tabulate a wavefront through a loop
/// F of a footprint for displacements up to `reach` along each of its axes, metres; of the x slope and of the y slope, m rad.
fn tabulate(
    system: &System,
    footprint: LoopFootprint,
    reach: f64,
    (weights, watch): (&LoopWeights, &dyn Watch),
) -> Result<Grid<2>, Error> {
    // Layer of a table by itself
    let air = system.atmosphere();
    let layer = air.layers()[footprint.layer];
    let direction = layer.wind_direction - footprint.rotation;
    let alone = Layer { fraction: 1.0, wind_direction: direction, ..layer };
    let r0 = air.fried_parameter() * layer.fraction.powf(-0.6);
    let alone = Atmosphere::new(r0, air.wavelength(), vec![alone])?;
    let star = Source::new(0.0, 0.0, footprint.height)?;
    let sensor = Sensor::at_rest(star, LensletArray::new(1, footprint.side)?);
    let step = footprint.side * star.cone_factor(layer.altitude) / PER_SIDE;
    let middle = (reach / step).ceil() as usize + MARGIN;
    let points = (&[Source::star(0.0, 0.0)?][..], PhaseGrid::new(2 * middle + 1, 1, 0.0)?, step);
    let (one, motions) = ([Array2::from_elem((1, 1), true)], motions(&alone, &weights.delays));
    let stars = (&[sensor][..], &one[..], system.cone_gradient());
    let all = wavefront_slope_moving((&alone, &motions), points, stars, &CancelOnly(watch))?;
    // Read displacements in reverse
    // The lenslet lies opposite to the point.
    let across = 2 * middle + 1;
    let part = |slope: usize| {
        Array2::from_shape_fn((across, across), |(j, i)| {
            all[[(across - 1 - j) * across + across - 1 - i, slope]]
        })
    };
    Ok(Grid::new(step, middle, [part(0), part(1)]))
}

// Tests of loop covariances
#[cfg(test)]
mod tests {
    use super::*;

    // Weights of loops sum to one
    fn control(kind: LoopKind, gain: f64, delay: f64) -> ControlLoop {
        ControlLoop { kind, rate: 500.0, gain, delay }
    }

    fn windy(speed: f64) -> Atmosphere {
        let layer = Layer { wind_speed: speed, ..Layer::new(0.0, 1.0, 25.0) };
        Atmosphere::new(0.15, 500e-9, vec![layer]).unwrap()
    }

    #[test]
    fn weights_of_loops_sum_to_one() {
        let open = LoopWeights::new(&control(LoopKind::Open, 0.5, 2.0), &windy(10.0), 0.1);
        let expected = [1.0, 10.0, 1.0].map(|twelfths| twelfths / 12.0);
        let found: Vec<_> =
            open.delays.iter().map(|[time, weight]| (500.0 * time, *weight)).collect();
        assert!((0..3).all(|k| (found[k].0 - (k + 1) as f64).abs() < 1e-12));
        assert!((0..3).all(|k| (found[k].1 - expected[k]).abs() < 1e-15) && found.len() == 3);
        assert_eq!(open.lags, [[0.0, 10.0 / 12.0], [2e-3, 1.0 / 12.0]]);
        let response = control(LoopKind::Closed, 0.4, 2.0).impulse_response();
        let expected = [0.4, 0.4, 0.24, 0.08, -0.016];
        assert!((0..5).all(|j| (response[j] - expected[j]).abs() < 1e-4), "{response:?}");
        for (gain, delay, speed) in
            [(0.4, 2.0, 30.0), (0.05, 1.3, 12.0), (0.9, 2.0, 3.0), (0.01, 4.0, 8.0)]
        {
            let control = control(LoopKind::Closed, gain, delay);
            let weights = LoopWeights::new(&control, &windy(speed), 0.1);
            let [delays, lags] = [&weights.delays, &weights.lags]
                .map(|all| all.iter().map(|[_, weight]| weight).sum::<f64>());
            assert!((delays - 1.0).abs() < 1e-12, "{gain} {delay}: {delays}");
            let first = weights.lags[0][1];
            assert!((2.0 * lags - first - 1.0).abs() < 1e-9, "{gain} {delay}: {lags}");
            assert!(
                (weights.noise_gain / control.noise_gain() - 1.0).abs() < 2e-3,
                "{gain} {delay}"
            );
            // The mean delay of an integrator: what is not yet corrected of a ramp is its slope over the gain.
            let late: f64 = weights.delays.iter().map(|[time, weight]| 500.0 * time * weight).sum();
            assert!((late * gain - 1.0).abs() < 0.02 * (1.0 + gain), "{gain} {delay}: {late}");
        }
    }
}
