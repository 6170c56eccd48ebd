//! The slope covariance held against two oracles that share nothing with the crate.
//!
//! The first is a table of high precision, `tests/oracle/slope_covariance.csv`, whose header says how it was computed. The
//! second is the quadrature of this file, in real space. With B the phase covariance and lenslets of side D,
//!
//! ```text
//! C_ab(r) = D⁻⁴ ∫∫ (D − |u|)(D − |v|) G_ab(r + (u, v)) du dv,    G_ab = −∂²B/∂a∂b = δ_ab P(ρ) − ρ_a ρ_b Q(ρ),
//! P = A k² t^(−1/6) K_{1/6}(t),    Q = A k⁴ t^(−7/6) K_{7/6}(t),    t = k ρ,    k = 2π/L0,
//! A = (L0/r0)^(5/3) Γ(11/6) 2^(−5/6) π^(−8/3) [24/5 Γ(6/5)]^(5/6),
//! ```
//!
//! and for an infinite outer scale P = 5/6 · 6.88… · r0^(−5/3) ρ^(−1/3), Q = P/(3 ρ²). The weight is a product of straight lines on
//! each of four squares. A square far from ρ = 0, where G is singular, is integrated as it stands; one near it is a signed
//! sum of four rectangles that have a corner there, and each rectangle is two triangles, on which new variables make the
//! integrand smooth. All integrals are by adaptive Gauss–Kronrod cells.

use lenslet::device::Engine;
use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
use lenslet::plan::Plan;
use lenslet::turbulence::{SlopeCovariance, SlopeCovariancePlan, SlopeProblem};
use lenslet::watch::unwatched;
use std::f64::consts::PI;

/// 2 [24/5 Γ(6/5)]^(5/6): the structure function of Kolmogorov's turbulence at r = r0, rad².
const STRUCTURE: f64 = 6.883_877_182_293_811;
/// A for L0 = r0, rad².
const AMPLITUDE: f64 = 0.085_830_681_062_285_43;

/// Components xx, xy, yy of a covariance of slopes.
type Components = [f64; 3];

fn add(sum: &mut Components, term: Components) {
    sum.iter_mut().zip(term).for_each(|(sum, term)| *sum += term);
}

fn largest_difference(one: Components, other: Components) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, larger)
}

/// The larger of two errors, where NaN is larger than all.
fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || one > other { one } else { other }
}

// ---------------------------------------------------------------------------------------------------------------
// The second derivatives of the phase covariance

/// Von Kármán turbulence for r0 = 1 m.
struct Turbulence {
    outer_scale: f64,
    /// For each node u of the trapezium rule: cosh u, cosh(u/6) and cosh(7u/6), the last two times the step.
    nodes: Vec<[f64; 3]>,
}

impl Turbulence {
    /// The step 0.15 gives K_ν(t) = ∫ exp(−t cosh u) cosh(ν u) du, u > 0, to rounding: the rule's error is exp(−π²/0.15).
    fn new(outer_scale: f64) -> Self {
        let step = 0.15;
        let node = |j: u32| {
            let (u, weight) = (step * f64::from(j), if j == 0 { step / 2.0 } else { step });
            [u.cosh(), weight * (u / 6.0).cosh(), weight * (7.0 * u / 6.0).cosh()]
        };
        Self { outer_scale, nodes: (0..400).map(node).collect() }
    }

    /// K_{1/6}(t) and K_{7/6}(t).
    fn bessel(&self, t: f64) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for &[cosh, sixth, seven_sixths] in &self.nodes {
            let fall = (-t * cosh).exp();
            sum[0] += fall * sixth;
            sum[1] += fall * seven_sixths;
            if fall * seven_sixths < 1e-19 * sum[1] {
                break;
            }
        }
        sum
    }

    /// G_xx, G_xy, G_yy at the displacement (x, y).
    fn curvature(&self, x: f64, y: f64) -> Components {
        let distance = x.hypot(y);
        let (p, q) = if self.outer_scale.is_infinite() {
            let p = 5.0 / 6.0 * STRUCTURE / distance.cbrt();
            (p, p / (3.0 * distance * distance))
        } else {
            let k = 2.0 * PI / self.outer_scale;
            let t = k * distance;
            let scale = AMPLITUDE * self.outer_scale.powf(5.0 / 3.0) * k * k * t.powf(-1.0 / 6.0);
            let [sixth, seven_sixths] = self.bessel(t);
            (scale * sixth, scale * k * k / t * seven_sixths)
        };
        [p - x * x * q, -x * y * q, p - y * y * q]
    }

    /// The slope covariance of squares of side `side` at the displacement `r`, for λ/2π = 1, to `tolerance`.
    fn slope_covariance(&self, side: f64, r: [f64; 2], tolerance: f64) -> Components {
        let tolerance = tolerance * side.powi(4);
        let pieces = r.map(|centre| Line::pieces(centre, side));
        let mut sum = [0.0; 3];
        for x in &pieces[0] {
            for y in &pieces[1] {
                let near = x.gap().hypot(y.gap()) < side / 2.0;
                let part = if near {
                    self.square_near(x, y, tolerance)
                } else {
                    self.square_far(x, y, tolerance)
                };
                add(&mut sum, part);
            }
        }
        sum.map(|sum| sum / side.powi(4))
    }

    fn square_far(&self, x: &Line, y: &Line, tolerance: f64) -> Components {
        let integrand = |px: f64, py: f64| {
            let weight = x.at(px) * y.at(py);
            self.curvature(px, py).map(|curvature| weight * curvature)
        };
        integrate(&integrand, [x.from, x.to], [y.from, y.to], tolerance)
    }

    /// ∫ from a to b is ∫ from 0 to b less ∫ from 0 to a, along x and along y.
    fn square_near(&self, x: &Line, y: &Line, tolerance: f64) -> Components {
        let mut sum = [0.0; 3];
        for (end_x, sign_x) in [(x.to, 1.0), (x.from, -1.0)] {
            for (end_y, sign_y) in [(y.to, 1.0), (y.from, -1.0)] {
                if end_x != 0.0 && end_y != 0.0 {
                    let weighted = |px: f64, py: f64| {
                        let weight = sign_x * sign_y * x.at(px) * y.at(py);
                        self.curvature(px, py).map(|curvature| weight * curvature)
                    };
                    add(&mut sum, corner_triangle(&weighted, end_x, end_y, tolerance));
                    let turned = |py: f64, px: f64| weighted(px, py);
                    add(&mut sum, corner_triangle(&turned, end_y, end_x, tolerance));
                }
            }
        }
        sum
    }
}

/// The signed integral over the triangle (0, 0), (X, 0), (X, Y) of a function with a singularity ρ^(−1/3) at the origin.
///
/// With x = X s, y = |X| s sinh w · sign Y, the distance is |X| s cosh w and dx dy = X |X| s cosh w ds dw; s = q³ turns the powers
/// s^(−1/3 + n/3) into whole ones, so that nothing singular is left.
fn corner_triangle(
    f: &impl Fn(f64, f64) -> Components,
    end_x: f64,
    end_y: f64,
    tolerance: f64,
) -> Components {
    let size = end_x.abs();
    let integrand = |q: f64, w: f64| {
        let s = q.powi(3);
        let jacobian = end_x * end_y.signum() * size * s * w.cosh() * 3.0 * q * q;
        f(end_x * s, end_y.signum() * size * s * w.sinh()).map(|value| jacobian * value)
    };
    integrate(&integrand, [0.0, 1.0], [0.0, (end_y / end_x).abs().asinh()], tolerance)
}

/// A straight stretch of the triangle D − |u| along one axis, in the coordinate of the displacement.
struct Line {
    from: f64,
    to: f64,
    slope: f64,
    zero: f64,
}

impl Line {
    /// The rising and the falling stretch around the displacement `centre`.
    fn pieces(centre: f64, side: f64) -> [Self; 2] {
        let (low, high) = (centre - side, centre + side);
        [
            Self { from: low, to: centre, slope: 1.0, zero: low },
            Self { from: centre, to: high, slope: -1.0, zero: high },
        ]
    }

    fn at(&self, x: f64) -> f64 {
        self.slope * (x - self.zero)
    }

    /// Distance of the stretch from 0.
    fn gap(&self) -> f64 {
        self.from.max(-self.to).max(0.0)
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Adaptive quadrature

/// Gauss–Kronrod rule on [−1, 1]: node, Kronrod's weight for 15 nodes, Gauss's weight for 7; negative nodes by symmetry.
const KRONROD: [[f64; 3]; 8] = [
    [0.0, 0.209_482_141_084_727_82, 0.417_959_183_673_469_4],
    [0.207_784_955_007_898_48, 0.204_432_940_075_298_9, 0.0],
    [0.405_845_151_377_397_2, 0.190_350_578_064_785_4, 0.381_830_050_505_118_9],
    [0.586_087_235_467_691_1, 0.169_004_726_639_267_9, 0.0],
    [0.741_531_185_599_394_3, 0.140_653_259_715_525_92, 0.279_705_391_489_276_64],
    [0.864_864_423_359_769_1, 0.104_790_010_322_250_17, 0.0],
    [0.949_107_912_342_758_5, 0.063_092_092_629_978_54, 0.129_484_966_168_869_7],
    [0.991_455_371_120_812_6, 0.022_935_322_010_529_224, 0.0],
];

/// The integral over a rectangle, cut in four until the two rules agree on every cell to `tolerance`.
fn integrate(
    f: &impl Fn(f64, f64) -> Components,
    x: [f64; 2],
    y: [f64; 2],
    tolerance: f64,
) -> Components {
    let mut sum = [0.0; 3];
    let mut cells = vec![(x, y, 0)];
    while let Some((x, y, depth)) = cells.pop() {
        let (kronrod, gauss) = cell(f, x, y);
        if largest_difference(kronrod, gauss) <= tolerance {
            add(&mut sum, kronrod);
            continue;
        }
        assert!(depth < 30, "no convergence on {x:?} × {y:?}");
        let middle = [x, y].map(|[from, to]| 0.5 * (from + to));
        for x in [[x[0], middle[0]], [middle[0], x[1]]] {
            for y in [[y[0], middle[1]], [middle[1], y[1]]] {
                cells.push((x, y, depth + 1));
            }
        }
    }
    sum
}

/// The products of the two rules on one cell, Kronrod's and Gauss's.
fn cell(f: &impl Fn(f64, f64) -> Components, x: [f64; 2], y: [f64; 2]) -> (Components, Components) {
    let [nodes_x, nodes_y] = [x, y].map(nodes);
    let mut sums = ([0.0; 3], [0.0; 3]);
    for [px, kronrod_x, gauss_x] in nodes_x {
        for [py, kronrod_y, gauss_y] in nodes_y {
            let value = f(px, py);
            add(&mut sums.0, value.map(|value| kronrod_x * kronrod_y * value));
            add(&mut sums.1, value.map(|value| gauss_x * gauss_y * value));
        }
    }
    sums
}

/// The 15 nodes on a stretch, each with its two weights.
fn nodes([from, to]: [f64; 2]) -> [[f64; 3]; 15] {
    let (middle, half) = (0.5 * (from + to), 0.5 * (to - from));
    std::array::from_fn(|j| {
        let [node, kronrod, gauss] = KRONROD[j.abs_diff(7)];
        let side = if j < 7 { -half } else { half };
        [middle + side * node, half * kronrod, half * gauss]
    })
}

// ---------------------------------------------------------------------------------------------------------------
// The table

/// A row of the table: lengths in metres, the covariance for r0 = 1 m and λ/2π = 1.
#[derive(Debug)]
struct Row {
    side: f64,
    outer_scale: f64,
    r: [f64; 2],
    covariance: Components,
    variance: f64,
}

fn table() -> Vec<Row> {
    let text = include_str!("oracle/slope_covariance.csv");
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| {
        let numbers: Result<Vec<f64>, _> = line.split(',').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[side, outer_scale, x, y, xx, xy, yy, variance]) => {
                Row { side, outer_scale, r: [x, y], covariance: [xx, xy, yy], variance }
            }
            _ => panic!("a row of the table does not hold eight numbers: {line}"),
        }
    });
    rows.collect()
}

/// The largest of a set of errors, with the case that it belongs to.
#[derive(Default)]
struct Worst {
    error: f64,
    case: String,
}

impl Worst {
    fn see(&mut self, error: f64, case: impl FnOnce() -> String) {
        if error.is_nan() || error > self.error {
            *self = Self { error, case: case() };
        }
    }

    fn check(&self, what: &str, tolerance: f64) {
        println!("{what}: largest error {:.2e} of the variance, at {}", self.error, self.case);
        assert!(
            self.error <= tolerance,
            "{what}: {:.3e} of the variance at {}",
            self.error,
            self.case
        );
    }
}

#[test]
fn the_quadrature_agrees_with_the_table() {
    let mut worst = Worst::default();
    // It is only the yardstick: the crate itself is held to each row.
    for row in table().into_iter().step_by(3) {
        let turbulence = Turbulence::new(row.outer_scale);
        let found = turbulence.slope_covariance(row.side, row.r, 1e-12 * row.variance);
        worst.see(largest_difference(found, row.covariance) / row.variance, || format!("{row:?}"));
    }
    worst.check("quadrature against table", 1e-12);
}

// ---------------------------------------------------------------------------------------------------------------
// The crate

/// λ/2π in the tests, m: slopes of the table times this are angles.
const PER_RADIAN: f64 = 1e-6;

/// A star in the direction that shifts its footprint by `shift` at the altitude `altitude`.
fn star_shifting([x, y]: [f64; 2], altitude: f64) -> Source {
    Source::star(x.hypot(y) / altitude, y.atan2(x)).expect("a direction near the axis")
}

/// Covariance of the crate at the lag (i, j) of stars `p` and `q`.
fn at_lag(covariance: &SlopeCovariance, [p, q]: [usize; 2], [i, j]: [usize; 2]) -> [[f64; 2]; 2] {
    [0, 1].map(|a| [0, 1].map(|b| covariance.values()[[p, q, a, b, j, i]]))
}

/// Differences of all four components.
fn error_of(found: [[f64; 2]; 2], [xx, xy, yy]: Components) -> f64 {
    let yx = largest_difference([found[0][0], found[1][0], found[1][1]], [xx, xy, yy]);
    larger(yx, (found[0][1] - xy).abs())
}

/// One layer and two stars whose directions bring about the displacement of a row at a chosen lag.
fn direct_error(row: &Row, lenslets: usize, [i, j]: [usize; 2], reverse: bool) -> f64 {
    let altitude = 2e5;
    let layer = Layer {
        altitude,
        fraction: 1.0,
        outer_scale: row.outer_scale,
        wind_speed: 0.0,
        wind_direction: 0.0,
    };
    let atmosphere = Atmosphere::new(1.0, 2.0 * PI * PER_RADIAN, vec![layer]).expect("atmosphere");
    let array = LensletArray::new(lenslets, row.side).expect("lenslet array");
    let lag = [i, j].map(|index| (index as f64 - (lenslets - 1) as f64) * row.side);
    let shift = [row.r[0] - lag[0], row.r[1] - lag[1]];
    // The first star off the axis and the second on it bring about the displacement the other way round.
    let sources = if reverse {
        [star_shifting(shift.map(|shift| -shift), altitude), star_shifting([0.0; 2], altitude)]
    } else {
        [star_shifting([0.0; 2], altitude), star_shifting(shift, altitude)]
    };
    let problem =
        SlopeProblem::new(&atmosphere, &array, &sources, ConeGradient::Pupil).expect("problem");
    let plan = SlopeCovariancePlan::direct(problem);
    let covariance = plan.run(&Engine::default(), &unwatched).expect("covariance");
    let scale = PER_RADIAN * PER_RADIAN;
    let found = at_lag(&covariance, [0, 1], [i, j]).map(|row| row.map(|value| value / scale));
    let variance = (covariance.variance() / scale - row.variance).abs();
    larger(error_of(found, row.covariance), variance) / row.variance
}

#[test]
fn the_direct_method_agrees_with_the_table() {
    let mut worst = Worst::default();
    for (k, row) in table().iter().enumerate() {
        let (two, three) = ([k % 3, k / 3 % 3], [k % 5, k / 5 % 5]);
        for (lenslets, lag, reverse) in [(1, [0, 0], false), (2, two, true), (3, three, false)] {
            let error = direct_error(row, lenslets, lag, reverse);
            worst.see(error, || format!("N = {lenslets}, lag {lag:?}, {row:?}"));
        }
    }
    worst.check("direct method against table", 1e-10);
}

/// A lopsided system: stars at one height, layers of unequal strength, altitude and outer scale.
struct System {
    name: &'static str,
    fried_parameter: f64,
    /// Altitude, fraction and outer scale of each layer.
    layers: Vec<[f64; 3]>,
    lenslets: usize,
    pitch: f64,
    /// Zenith distance in arcseconds and azimuth in degrees of each star.
    stars: Vec<[f64; 2]>,
    height: f64,
    gradient: ConeGradient,
}

impl System {
    fn problem(&self) -> SlopeProblem {
        let layer = |&[altitude, fraction, outer_scale]: &[f64; 3]| Layer {
            altitude,
            fraction,
            outer_scale,
            wind_speed: 0.0,
            wind_direction: 0.0,
        };
        let layers = self.layers.iter().map(layer).collect();
        let atmosphere = Atmosphere::new(self.fried_parameter, 2.0 * PI * PER_RADIAN, layers);
        let sources: Vec<Source> =
            self.directions().iter().map(|&star| self.source(star)).collect();
        let array = LensletArray::new(self.lenslets, self.pitch).expect("lenslet array");
        SlopeProblem::new(&atmosphere.expect("atmosphere"), &array, &sources, self.gradient)
            .expect("problem")
    }

    fn source(&self, [x, y]: [f64; 2]) -> Source {
        Source::new(x.hypot(y), y.atan2(x), self.height).expect("source")
    }

    /// θ = (ζ cos a, ζ sin a) of each star, rad.
    fn directions(&self) -> Vec<[f64; 2]> {
        let direction = |&[zenith, azimuth]: &[f64; 2]| {
            let (zenith, azimuth) = (zenith / 3600.0 * PI / 180.0, azimuth * PI / 180.0);
            [zenith * azimuth.cos(), zenith * azimuth.sin()]
        };
        self.stars.iter().map(direction).collect()
    }

    /// ⟨s_a^p(x) s_b^q(x + lag)⟩ by the quadrature of this file, rad².
    fn covariance(&self, [p, q]: [usize; 2], lag: [f64; 2], tolerance: f64) -> Components {
        let directions = self.directions();
        let mut sum = [0.0; 3];
        for &[altitude, fraction, outer_scale] in &self.layers {
            let cone = 1.0 - altitude / self.height;
            let gradient = if self.gradient == ConeGradient::Pupil { cone } else { 1.0 };
            let strength =
                (PER_RADIAN * gradient).powi(2) * fraction * self.fried_parameter.powf(-5.0 / 3.0);
            let axis = |k: usize| cone * lag[k] + altitude * (directions[q][k] - directions[p][k]);
            let part = Turbulence::new(outer_scale).slope_covariance(
                cone * self.pitch,
                [axis(0), axis(1)],
                tolerance / strength,
            );
            add(&mut sum, part.map(|part| strength * part));
        }
        sum
    }

    /// The largest error of the crate's direct method over all pairs, lags and components.
    fn check(&self) {
        let plan = SlopeCovariancePlan::direct(self.problem());
        let covariance = plan.run(&Engine::default(), &unwatched).expect("covariance");
        let shape = (
            self.stars.len(),
            self.stars.len(),
            2,
            2,
            2 * self.lenslets - 1,
            2 * self.lenslets - 1,
        );
        assert_eq!(covariance.values().dim(), shape);
        let variance = covariance.variance();
        let mut worst = Worst::default();
        for pair in
            (0..self.stars.len().pow(2)).map(|k| [k / self.stars.len(), k % self.stars.len()])
        {
            for at in (0..shape.4 * shape.5).map(|k| [k % shape.5, k / shape.5]) {
                let lag = at.map(|index| (index as f64 - (self.lenslets - 1) as f64) * self.pitch);
                let expected = self.covariance(pair, lag, 1e-12 * variance);
                let error = error_of(at_lag(&covariance, pair, at), expected) / variance;
                worst.see(error, || format!("stars {pair:?}, lag {lag:?}"));
            }
        }
        worst.check(self.name, 1e-9);
    }
}

#[test]
fn two_laser_stars_and_an_odd_array() {
    let system = System {
        name: "two laser stars, N = 3",
        fried_parameter: 0.13,
        layers: vec![[0.0, 0.47, 21.0], [4100.0, 0.34, 37.0], [12_700.0, 0.19, 8.5]],
        lenslets: 3,
        pitch: 0.41,
        stars: vec![[37.0, 23.0], [52.0, 161.0]],
        height: 90e3,
        gradient: ConeGradient::Pupil,
    };
    system.check();
}

#[test]
fn three_laser_stars_and_an_even_array() {
    let system = System {
        name: "three laser stars, N = 4",
        fried_parameter: 0.17,
        layers: vec![[9300.0, 0.22, 30.0], [250.0, 0.78, f64::INFINITY]],
        lenslets: 4,
        pitch: 0.23,
        stars: vec![[11.0, 290.0], [0.0, 0.0], [3.5, 47.0]],
        height: 90e3,
        gradient: ConeGradient::Pupil,
    };
    system.check();
}

#[test]
fn three_laser_stars_with_the_gradient_of_the_layer() {
    let system = System {
        name: "three laser stars, gradient by the layer, N = 2",
        fried_parameter: 0.1,
        layers: vec![[18_000.0, 0.31, 1.7], [0.0, 0.23, 60.0], [6000.0, 0.46, 25.0]],
        lenslets: 2,
        pitch: 1.25,
        stars: vec![[60.0, 5.0], [28.0, 255.0], [59.0, 111.0]],
        height: 90e3,
        gradient: ConeGradient::Layer,
    };
    system.check();
}

#[test]
fn two_natural_stars_and_one_lenslet() {
    let system = System {
        name: "two natural stars, N = 1",
        fried_parameter: 0.2,
        layers: vec![[700.0, 0.6, 13.0], [10_000.0, 0.4, f64::INFINITY]],
        lenslets: 1,
        pitch: 4.2,
        stars: vec![[80.0, 200.0], [15.0, 60.0]],
        height: f64::INFINITY,
        gradient: ConeGradient::Pupil,
    };
    system.check();
}
