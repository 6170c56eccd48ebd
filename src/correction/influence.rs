// Tangled from book/src/mirrors.md: edit there, or here and run cargo tangle stitch.
//! Influence functions of actuators, and their slopes averaged over lenslets.

use crate::error::{Invalid, accept};
use crate::model::mirror::{MeasuredInfluence, MirrorDesign};
use crate::model::system::SlopeModel;
use crate::numerics::quadrature::{Rule, gauss_legendre};
use crate::numerics::special::erf;
use ndarray::{Array2, ArrayView2, Axis};
use std::f64::consts::PI;
use std::sync::LazyLock;

// Influence functions of either kind
/// The influence functions of all actuators of a mirror.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Influence {
    Gaussian(GaussianInfluence),
    Measured { images: MeasuredInfluence, mean: Array2<f64> },
}

// Influence functions of a design
impl Influence {
    /// Influence functions of a design with this `pitch` \[m\], for a number of actuators.
    pub(crate) fn new(
        design: &MirrorDesign,
        pitch: f64,
        actuators: usize,
    ) -> Result<Self, Invalid> {
        let Some(images) = design.influence.clone() else {
            return Ok(Self::Gaussian(GaussianInfluence {
                decay: -design.coupling.ln() / (pitch * pitch),
            }));
        };
        let count = images.heights().dim().0;
        let expected = format!("one image, or one for each of {actuators} actuators");
        accept(count == 1 || count == actuators, "influence", count, &expected)?;
        let mean = images.heights().sum_axis(Axis(0)) / count as f64;
        Ok(Self::Measured { images, mean })
    }

    // Height and slopes of either kind
    /// Height at an offset from an actuator, or the mean over all actuators.
    pub(crate) fn at(&self, actuator: Option<usize>, offset: [f64; 2]) -> f64 {
        match self {
            Self::Gaussian(gaussian) => gaussian.at(offset),
            Self::Measured { images, mean } => {
                let image = actuator.map_or(mean.view(), |actuator| of(images, actuator));
                interpolated(image, offset.map(|x| x / images.step()))
            }
        }
    }

    /// Slopes along x and y, rad per metre of stroke, of a lenslet of this `side` \[m\] at an `offset` \[m\] from an actuator.
    pub(crate) fn slopes(
        &self,
        actuator: usize,
        offset: [f64; 2],
        side: f64,
        model: SlopeModel,
    ) -> [f64; 2] {
        match self {
            Self::Gaussian(gaussian) => gaussian.slopes(offset, side, model),
            Self::Measured { images, .. } => {
                let [offset, side] =
                    [offset, [side; 2]].map(|pair| pair.map(|x| x / images.step()));
                let slopes = slopes_of_image(of(images, actuator), offset, side[0], model);
                slopes.map(|slope| slope / images.step())
            }
        }
    }
}

// Gaussian influence function
/// An influence function, Eq. [influence](https://lenslet.github.io/lenslet/mirrors.html#eq-influence).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GaussianInfluence {
    /// κ, m⁻².
    decay: f64,
}

impl GaussianInfluence {
    fn at(&self, [x, y]: [f64; 2]) -> f64 {
        (-self.decay * (x * x + y * y)).exp()
    }

    /// ∫ exp(−κ x²) dx from `from` to `to`, m.
    fn integral(&self, from: f64, to: f64) -> f64 {
        let root = self.decay.sqrt();
        0.5 * (PI / self.decay).sqrt() * (erf(root * to) - erf(root * from))
    }
}

// Slopes of a gaussian
/// An influence function is negligible where κ x² exceeds this value.
const FAR: f64 = 45.0;

impl GaussianInfluence {
    /// Slopes along x and y, rad per metre of stroke, of a lenslet of this `side` \[m\] at an offset \[m\] from the actuator.
    fn slopes(&self, [x, y]: [f64; 2], side: f64, model: SlopeModel) -> [f64; 2] {
        let near = |x: f64| (x.abs() - 0.5 * side).max(0.0);
        if self.decay * (near(x).powi(2) + near(y).powi(2)) > FAR {
            return [0.0; 2];
        }
        let half = 0.5 * side;
        let rise = |x: f64| self.at([x + half, 0.0]) - self.at([x - half, 0.0]);
        let across = |y: f64| match model {
            SlopeModel::Average => self.integral(y - half, y + half) / side,
            SlopeModel::EdgeMidpoint => self.at([y, 0.0]),
        };
        [rise(x) * across(y) / side, rise(y) * across(x) / side]
    }
}

// Interpolate between measured heights
// Image of one actuator
/// The image of an actuator, or the common image of all.
fn of(images: &MeasuredInfluence, actuator: usize) -> ArrayView2<'_, f64> {
    let heights = images.heights();
    let k = if heights.dim().0 == 1 { 0 } else { actuator };
    heights.index_axis_move(Axis(0), k)
}

// Weights of a cubic interpolation
/// Weights of four pixels around a point that is `t` beyond the second one.
fn catmull_rom(t: f64) -> [f64; 4] {
    let (square, cube) = (t * t, t * t * t);
    [
        0.5 * (2.0 * square - cube - t),
        0.5 * (3.0 * cube - 5.0 * square + 2.0),
        0.5 * (4.0 * square - 3.0 * cube + t),
        0.5 * (cube - square),
    ]
}

/// Height at an offset from the centre, in pixels.
fn interpolated(image: ArrayView2<f64>, [x, y]: [f64; 2]) -> f64 {
    let n = image.nrows() as f64;
    let place = |x: f64| x + 0.5 * (n - 1.0);
    let (x, y) = (place(x), place(y));
    if !(x > -2.0 && x < n + 1.0 && y > -2.0 && y < n + 1.0) {
        return 0.0;
    }
    let (across, up) = (catmull_rom(x - x.floor()), catmull_rom(y - y.floor()));
    let pixel = |j: i64, i: i64| match (usize::try_from(j), usize::try_from(i)) {
        (Ok(j), Ok(i)) => image.get([j, i]).copied().unwrap_or(0.0),
        _ => 0.0,
    };
    let row = |j: i64| {
        (0..4).map(|i| across[i as usize] * pixel(j, x.floor() as i64 - 1 + i)).sum::<f64>()
    };
    (0..4).map(|j| up[j as usize] * row(y.floor() as i64 - 1 + j)).sum()
}

// Slopes of measured heights
/// Slopes along x and y, per pixel, of a lenslet whose side and offset are in pixels.
fn slopes_of_image(
    image: ArrayView2<f64>,
    [x, y]: [f64; 2],
    side: f64,
    model: SlopeModel,
) -> [f64; 2] {
    let (half, reach) = (0.5 * side, 0.5 * image.nrows() as f64 + 1.5);
    if x.abs() - half > reach || y.abs() - half > reach {
        return [0.0; 2];
    }
    let at = |u: f64, w: f64| interpolated(image, [x + half * u, y + half * w]);
    let rise = |u: f64| [at(1.0, u) - at(-1.0, u), at(u, 1.0) - at(u, -1.0)];
    if model == SlopeModel::EdgeMidpoint {
        return rise(0.0).map(|rise| rise / side);
    }
    let (panels, rule) = (side.ceil().max(1.0) as usize, &*EDGE);
    // Integrate along the edges of a lenslet
    let mut sum = [0.0; 2];
    for panel in 0..panels {
        for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
            let rise = rise(((2 * panel + 1) as f64 + node) / panels as f64 - 1.0);
            sum = [0, 1].map(|axis| sum[axis] + 0.5 * weight / panels as f64 * rise[axis]);
        }
    }
    sum.map(|rise| rise / side)
}

/// The rule for each pixel along the edge of a lenslet.
static EDGE: LazyLock<Rule> = LazyLock::new(|| gauss_legendre(3));

// Tests of influence functions
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::mirror::Spacing;
    use ndarray::Array3;

    // Slopes are averages of the gradient
    #[test]
    fn slopes_are_averages_of_the_gradient() {
        let gaussian = GaussianInfluence { decay: 2.3 };
        let rule = gauss_legendre(24);
        for side in [0.07, 0.9] {
            for [x, y] in [[0.3, -0.8], [-1.1, 0.2], [0.0, 0.4]] {
                let mut average = [0.0; 2];
                for (u, wu) in rule.nodes.iter().zip(&rule.weights) {
                    for (w, ww) in rule.nodes.iter().zip(&rule.weights) {
                        let at = [x + 0.5 * side * u, y + 0.5 * side * w];
                        let gradient = at.map(|at| -2.0 * 2.3 * at);
                        let share = 0.25 * wu * ww * gaussian.at(at);
                        average = [0, 1].map(|k| average[k] + share * gradient[k]);
                    }
                }
                let found = gaussian.slopes([x, y], side, SlopeModel::Average);
                assert!(
                    (0..2).all(|k| (found[k] - average[k]).abs() < 2e-14),
                    "{found:?} {average:?}"
                );
                let [right, left] = [0.5, -0.5].map(|half| gaussian.at([x + half * side, y]));
                let [above, below] = [0.5, -0.5].map(|half| gaussian.at([x, y + half * side]));
                let midpoint = gaussian.slopes([x, y], side, SlopeModel::EdgeMidpoint);
                assert!((midpoint[0] - (right - left) / side).abs() < 1e-14);
                assert!((midpoint[1] - (above - below) / side).abs() < 1e-14);
            }
        }
    }

    // Images of gaussians are gaussians
    #[test]
    fn images_of_gaussians_are_gaussians() {
        let (pitch, design) = (0.5, MirrorDesign::new(Spacing::Pitch(0.5)));
        let exact = Influence::new(&design, pitch, 3).unwrap();
        // Ten pixels to a pitch, and three actuators of different heights in another unit.
        let heights = |count: usize, n: usize| {
            Array3::from_shape_fn((count, n, n), |(k, j, i)| {
                let [x, y] = [i, j].map(|k| 0.05 * (k as f64 - 0.5 * (n - 1) as f64));
                1e-6 * (1.0 + 0.5 * (k as f64 - (count / 2) as f64)) * exact.at(None, [x, y])
            })
        };
        let of = |count: usize, n: usize| {
            let influence = Some(MeasuredInfluence::new(heights(count, n), 0.05).unwrap());
            Influence::new(&MirrorDesign { influence, ..design.clone() }, pitch, 3)
        };
        let most = exact.slopes(0, [0.3, 0.0], 0.2, SlopeModel::Average)[0].abs();
        for (count, n) in [(1, 61), (3, 61), (1, 60)] {
            let found = of(count, n).unwrap();
            for offset in [[0.0, 0.0], [0.33, -0.21], [-0.72, 0.4], [0.05, 1.1], [4.0, 0.0]] {
                let gap = found.at(None, offset) - exact.at(None, offset);
                assert!(gap.abs() < 1e-3, "{count} {n} {offset:?}: {gap}");
                for (model, side) in [
                    (SlopeModel::Average, 0.5),
                    (SlopeModel::Average, 0.12),
                    (SlopeModel::EdgeMidpoint, 0.5),
                ] {
                    let expected = exact.slopes(0, offset, side, model);
                    let inner = found.slopes(1, offset, side, model);
                    let good = |k: usize| (inner[k] - expected[k]).abs() < 6e-3 * most;
                    assert!(good(0) && good(1), "{offset:?} {side}: {inner:?} {expected:?}");
                    let weak = found.slopes(0, offset, side, model);
                    let share = if count == 3 { 0.5 } else { 1.0 };
                    assert!((0..2).all(|k| (weak[k] - share * inner[k]).abs() < 1e-12));
                }
            }
        }
        assert_eq!(of(2, 61).unwrap_err().quantity, "influence");
        assert_eq!(MeasuredInfluence::new(heights(1, 3), 0.05).unwrap_err().quantity, "influence");
        let bad = MeasuredInfluence::new(heights(1, 8), 0.0).unwrap_err();
        assert_eq!(bad.quantity, "influence_step");
    }
}
