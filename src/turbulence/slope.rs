// Tangled from book/src/slope-covariance.md: edit there, or here and run cargo tangle stitch.
//! Slope covariance: the problem that the methods solve, its symmetries, and the store of its result.

// Imports of the slope covariance
use crate::error::{Error, Invalid};
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::lenslet_array::{LensletArray, SlopeOrder};
use crate::model::sensor::{Groups, Sensor};
use crate::model::source::{ConeGradient, Source};
use ndarray::{Array2, Array3, Array6, ArrayView2, s};
use rayon::prelude::*;
use std::{f64::consts::PI, sync::Arc};

// Layer projected through the cone
/// A turbulent layer, projected onto the pupil through the cone of the guide stars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProjectedLayer {
    /// Altitude h in metres.
    pub altitude: f64,
    /// Cone factor γ = 1 − h/z.
    pub gamma: f64,
    /// Side D = γ d of a lenslet's footprint, metres.
    pub side: f64,
    /// σ of Eq. [slope covariance](https://lenslet.github.io/lenslet/slope-covariance.html#eq-slope-covariance): converts a covariance of phase gradients for r0 = 1 m (rad² m⁻²) to rad².
    pub strength: f64,
    /// Outer scale in metres, possibly infinite.
    pub outer_scale: f64,
}

// Slope covariance problem
/// All that the slope covariance depends on, checked to have a Toeplitz form.
#[derive(Debug, Clone)]
pub struct SlopeProblem {
    lenslets: usize,
    pitch: f64,
    sensors: Vec<Sensor>,
    layers: Vec<ProjectedLayer>,
}
/// `make` of each number, called once for each distinct number.
pub(crate) fn share_equals<T>(
    numbers: impl Iterator<Item = f64>,
    make: impl Fn(f64) -> T,
) -> Vec<Arc<T>> {
    let mut made: Vec<(f64, Arc<T>)> = Vec::new();
    for number in numbers {
        let known = made.iter().find(|(other, _)| *other == number);
        let shared = known.map_or_else(|| Arc::new(make(number)), |(_, made)| Arc::clone(made));
        made.push((number, shared));
    }
    made.into_iter().map(|(_, made)| made).collect()
}

// Refuse outer scales that are too short
/// The shortest outer scale for which covariances keep their accuracy, in sides of a footprint.
const SHORTEST: f64 = 1e-3;

/// Rejects an outer scale that is too short for the footprints of some sensors on its layer.
pub(crate) fn check_outer_scales(air: &Atmosphere, sensors: &[Sensor]) -> Result<(), Invalid> {
    for (l, layer) in air.layers().iter().enumerate() {
        let side = |sensor: &Sensor| sensor.source.cone_factor(layer.altitude) * sensor.side();
        let side = sensors.iter().map(side).fold(0.0, f64::max);
        if layer.outer_scale < SHORTEST * side {
            // Name the layer and its outer scale
            let expected = format!(
                "at least {:.1e} m or inf: lenslets of {side} m at this layer, at {} m, are averaged with the promised accuracy down to \
                 outer scales of {SHORTEST:e} of their side",
                SHORTEST * side,
                layer.altitude
            );
            return Err(Invalid::new(
                format!("layers[{l}].outer_scale"),
                layer.outer_scale,
                expected,
            ));
        }
    }
    Ok(())
}

// Methods of the slope problem
impl SlopeProblem {
    // Pose the problem for common heights
    // Pose the problem at rest
    /// Poses the problem for one lenslet array at rest that observes several sources.
    ///
    /// ```
    /// use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
    /// use lenslet::turbulence::{SlopeCovariance, SlopeProblem, direct::slope::pair_covariances};
    /// let layers = vec![Layer::new(0.0, 0.7, 25.0), Layer::new(9000.0, 0.3, 25.0)];
    /// let air = Atmosphere::new(0.15, 500e-9, layers)?;
    /// let star = |azimuth| Source::new(10.0 * lenslet::units::ARCSEC, azimuth, 90e3);
    /// let stars = [star(0.0)?, star(std::f64::consts::PI)?];
    /// let array = LensletArray::new(3, 0.5)?;
    /// let problem = SlopeProblem::new(&air, &array, &stars, ConeGradient::Pupil)?;
    /// let upper = problem.layers()[1];
    /// assert!((upper.side - 0.45).abs() < 1e-12 && (upper.strength - 3.634e-14).abs() < 1e-17);
    /// assert!((problem.offset(&upper, 0, 1)[0] + 0.873).abs() < 1e-3);
    /// let pairs = pair_covariances(&problem, &lenslet::watch::unwatched)?;
    /// let covariance = SlopeCovariance::from_pairs(&problem, &pairs);
    /// assert!((covariance.variance() - 6.576e-13).abs() < 1e-16);
    /// assert!((covariance.values()[[0, 1, 0, 0, 2, 4]] - 2.359e-13).abs() < 1e-16);
    /// assert!((covariance.values()[[0, 0, 0, 0, 2, 4]] / covariance.variance() - 0.129).abs() < 1e-3);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`of_sensors`](Self::of_sensors).
    pub fn new(
        atmosphere: &Atmosphere,
        array: &LensletArray,
        sources: &[Source],
        gradient: ConeGradient,
    ) -> Result<Self, Error> {
        let sensors: Vec<_> =
            sources.iter().map(|&source| Sensor::at_rest(source, *array)).collect();
        Self::of_sensors(atmosphere, &sensors, gradient)
    }

    /// Poses the problem for sensors that share a lattice; their slopes are along their own axes.
    ///
    /// # Errors
    /// `NotToeplitz` where they do not share one; `Invalid` where there is no sensor, a layer at or above a source, or an outer
    /// scale too short for the promised accuracy.
    pub fn of_sensors(
        atmosphere: &Atmosphere,
        sensors: &[Sensor],
        gradient: ConeGradient,
    ) -> Result<Self, Error> {
        let first = Groups::single(sensors)?;
        first.source.check_above(atmosphere)?;
        check_outer_scales(atmosphere, sensors)?;
        let project = |layer: &Layer| {
            // Project the layer through the cone
            let gamma = first.source.cone_factor(layer.altitude);
            let per_radian = atmosphere.wavelength() / (2.0 * PI) * gradient.factor(gamma);
            ProjectedLayer {
                altitude: layer.altitude,
                gamma,
                side: gamma * first.side(),
                strength: per_radian.powi(2)
                    * atmosphere.fried_parameter().powf(-5.0 / 3.0)
                    * layer.fraction,
                outer_scale: layer.outer_scale,
            }
        };
        Ok(Self {
            lenslets: first.array.lenslets(),
            pitch: first.side(),
            layers: atmosphere.layers().iter().map(project).collect(),
            sensors: sensors.to_vec(),
        })
    }

    // Getters of the slope problem
    /// Lenslets across the array, N.
    pub fn lenslets(&self) -> usize {
        self.lenslets
    }

    /// Lenslet pitch d in metres, on the pupil.
    pub fn pitch(&self) -> f64 {
        self.pitch
    }

    /// Number of sources, N★.
    pub fn sources(&self) -> usize {
        self.sensors.len()
    }

    /// The layers, in the atmosphere's order.
    pub fn layers(&self) -> &[ProjectedLayer] {
        &self.layers
    }

    // Geometry of the lags
    /// Lags along an axis, 2N − 1.
    pub fn lags(&self) -> usize {
        2 * self.lenslets - 1
    }

    /// Displacement at a layer due to the directions and shifts of sensors `p` and `q`, along their axes, metres:
    /// h (θ_q − θ_p) for sensors at rest, else Eq. [sensor shift](https://lenslet.github.io/lenslet/sensors.html#eq-sensor-shift).
    pub fn offset(&self, layer: &ProjectedLayer, p: usize, q: usize) -> [f64; 2] {
        self.sensors[p].offset_to(&self.sensors[q], layer.altitude)
    }

    // Size and pairs of the result
    /// Length of the result: N★² blocks of 2 × 2 components of (2N − 1)² lags.
    pub fn len(&self) -> usize {
        self.sources().pow(2) * 4 * self.lags().pow(2)
    }

    /// Always false: there is at least one source and one lenslet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pairs to compute, from which all others follow by symmetry: one for p = q, then each p < q.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let sources = self.sources();
        let above = (0..sources).flat_map(|p| (p + 1..sources).map(move |q| (p, q)));
        std::iter::once((0, 0)).chain(above).collect()
    }

    // Share objects of equal outer scales
    // Spoil a problem for a test
    /// Gives a layer an invalid strength, to test that the error is detected.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self, strength: f64) {
        self.layers[0].strength = strength;
    }

    /// `make` of the outer scale (m) of each layer, called once for each distinct outer scale.
    pub fn for_each_outer_scale<T>(&self, make: impl Fn(f64) -> T) -> Vec<Arc<T>> {
        share_equals(self.layers.iter().map(|layer| layer.outer_scale), make)
    }
}

// Covariance of one pair of sources
/// Covariance of one pair of sources: components xx, xy and yy on axis 0, then the lags along y and x; (3, 2N−1, 2N−1), rad².
pub type PairCovariance = Array3<f64>;

/// Index of the component of the axes `a` and `b` (0 for x, 1 for y); xy and yx share one.
fn component(a: usize, b: usize) -> usize {
    a + b
}

// Slope covariance of all pairs
/// The Toeplitz-compressed slope covariance of all pairs of sources.
///
/// C\[p, q, a, b, j, i\] = ⟨s_a^p(x) s_b^q(x + ρ)⟩ in rad² with ρ = ((i − N + 1) d, (j − N + 1) d), of shape
/// (N★, N★, 2, 2, 2N − 1, 2N − 1); Eq. [slope covariance](https://lenslet.github.io/lenslet/slope-covariance.html#eq-slope-covariance).
#[derive(Debug, Clone, PartialEq)]
pub struct SlopeCovariance(Array6<f64>);

impl SlopeCovariance {
    // Spread the computed pairs by symmetry
    /// Fills all blocks from those of [`SlopeProblem::pairs`], given in that order.
    pub fn from_pairs(problem: &SlopeProblem, computed: &[PairCovariance]) -> Self {
        let (sources, lags) = (problem.sources(), problem.lags());
        let pairs = problem.pairs();
        let mut values = vec![0.0; problem.len()];
        values.par_chunks_mut(4 * lags * lags).enumerate().for_each(|(block, values)| {
            // Fill the block from its pair
            let (p, q) = (block / sources, block % sources);
            let key = if p == q { (0, 0) } else { (p.min(q), p.max(q)) };
            if let Ok(pair) = pairs.binary_search(&key).map(|k| &computed[k]) {
                for (k, values) in values.chunks_mut(lags * lags).enumerate() {
                    let field = pair.slice(s![component(k / 2, k % 2), .., ..]);
                    place_field(field, p > q, p == q, values);
                }
            }
        });
        let shape = (sources, sources, 2, 2, lags, lags);
        Self(Array6::from_shape_vec(shape, values).unwrap_or_else(|_| unreachable!("same length")))
    }

    // Read the slope covariance
    /// The array, (N★, N★, 2, 2, 2N − 1, 2N − 1), rad².
    pub fn values(&self) -> &Array6<f64> {
        &self.0
    }

    /// Lenslets across the array, N.
    pub fn lenslets(&self) -> usize {
        self.0.dim().5.div_ceil(2)
    }

    /// Number of sources, N★.
    pub fn sources(&self) -> usize {
        self.0.dim().0
    }

    /// Variance of the x slope of any lenslet, rad²; that of the y slope is the same.
    pub fn variance(&self) -> f64 {
        let centre = self.lenslets() - 1;
        self.0[[0, 0, 0, 0, centre, centre]]
    }

    // Write the covariance as a dense matrix
    /// The covariance matrix of the slope vector of the valid lenslets, square of side `order.len()`, rad².
    pub fn dense(&self, order: &SlopeOrder) -> Array2<f64> {
        let origin = self.lenslets() - 1;
        let slopes: Vec<_> = (0..self.sources())
            .flat_map(|p| [0, 1].map(|a| (p, a)))
            .flat_map(|(p, a)| order.lenslets(p).iter().map(move |&lenslet| (p, a, lenslet)))
            .collect();
        let mut matrix = Array2::zeros((order.len(), order.len()));
        matrix.outer_iter_mut().into_par_iter().zip(&slopes).for_each(
            |(mut row, &(p, a, [y, x]))| {
                for (entry, &(q, b, [y2, x2])) in row.iter_mut().zip(&slopes) {
                    *entry = self.0[[p, q, a, b, origin + y2 - y, origin + x2 - x]];
                }
            },
        );
        matrix
    }
}

// Write a field, rotated or made even
/// Writes a field of lags into its block: unchanged, rotated by half a turn, or with its first half mirrored.
fn place_field(field: ArrayView2<f64>, turned: bool, even: bool, values: &mut [f64]) {
    let last = values.len() - 1;
    for (k, &value) in field.iter().enumerate() {
        if even && k <= last / 2 {
            values[k] = value;
            values[last - k] = value;
        } else if !even {
            values[if turned { last - k } else { k }] = value;
        }
    }
}

// Tests of the slope covariance store
#[cfg(test)]
mod tests {
    use super::*;

    fn layer(altitude: f64, fraction: f64) -> Layer {
        let (outer_scale, wind_speed, wind_direction) = (25.0, 0.0, 0.0);
        Layer { altitude, fraction, outer_scale, wind_speed, wind_direction }
    }

    // Pose a lopsided problem of three stars
    fn problem(heights: [f64; 3]) -> crate::Result<SlopeProblem> {
        let layers = vec![layer(0.0, 0.7), layer(9000.0, 0.3)];
        let atmosphere = Atmosphere::new(0.15, 500e-9, layers)?;
        let sources = [(1e-4, 0.3), (2e-4, 2.0), (1.5e-4, 4.4)];
        let sources: Result<Vec<_>, _> = (sources.iter().zip(heights))
            .map(|(&(zenith, azimuth), height)| Source::new(zenith, azimuth, height))
            .collect();
        SlopeProblem::new(&atmosphere, &LensletArray::new(3, 0.5)?, &sources?, ConeGradient::Pupil)
    }

    // Check that blocks follow the symmetries
    #[test]
    fn blocks_follow_the_symmetries() {
        let problem = problem([90e3; 3]).unwrap();
        let computed: Vec<PairCovariance> = (0..problem.pairs().len())
            .map(|k| {
                Array3::from_shape_fn((3, 5, 5), |(c, j, i)| {
                    (1000 * k + 100 * c + 10 * j + i) as f64
                })
            })
            .collect();
        let covariance = SlopeCovariance::from_pairs(&problem, &computed);
        let values = covariance.values();
        for ((p, q, a, b, j, i), &value) in values.indexed_iter() {
            assert_eq!(value, values[[q, p, b, a, 4 - j, 4 - i]], "exchange");
            assert_eq!(value, values[[p, q, b, a, j, i]], "mixed components");
            assert!(p != q || value == values[[0, 0, a, b, 4 - j, 4 - i]], "a star with itself");
        }
        assert_eq!(values[[0, 2, 0, 1, 3, 4]], 2134.0);
        assert_eq!(values[[2, 1, 1, 1, 3, 4]], 3210.0);
        assert_eq!(covariance.variance(), 22.0);
        // Check that the dense matrix is symmetric
        let mut valid = Array2::from_elem((3, 3), true);
        valid[[0, 0]] = false;
        valid[[1, 2]] = false;
        let masks = [valid.clone(), Array2::from_elem((3, 3), true), valid];
        let dense = covariance.dense(&SlopeOrder::new(&masks));
        assert_eq!(dense.dim(), (46, 46));
        assert_eq!(dense, dense.t());
        // Star 0, y slope of lenslet (y, x) = (0, 1), against star 2, x slope of lenslet (2, 0): a lag of (2, −1).
        assert_eq!(dense[[7, 14 + 18 + 4]], values[[0, 2, 1, 0, 4, 1]]);
    }

    // Check the refusals of the problem
    #[test]
    fn unequal_heights_have_no_toeplitz_form() {
        let error = problem([90e3, f64::INFINITY, 90e3]).unwrap_err();
        assert!(matches!(error, Error::NotToeplitz { .. }), "{error}");
        let named = "guide_star[0].height is 90000 m and guide_star[1].height is inf m";
        assert!(error.to_string().contains(named), "{error}");
        assert!(matches!(problem([9e3; 3]), Err(Error::Invalid(_))));
    }
}
