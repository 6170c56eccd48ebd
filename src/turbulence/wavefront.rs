// Tangled from book/src/wavefront-slope.md: edit there, or here and run cargo tangle stitch.
//! Wavefront–slope covariance: the problem that the methods solve, its lattices, and the store of its result.

// What the wavefront problem is made of
use crate::device::{Workers, dispatch};
use crate::error::{Error, Invalid};
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::lenslet_array::LensletArray;
use crate::model::sensor::{Groups, Sensor};
use crate::model::source::{ConeGradient, Source};
use crate::model::wavefront_grid::PhaseGrid;
use crate::turbulence::slope::check_outer_scales;
use crate::units::DEGREE;
use crate::watch::Watch;
use ndarray::{Array3, Array5, ArrayView5, s};
use std::f64::consts::PI;

// Layer as targets and guide stars see it
/// A turbulent layer as one target and one guide star see it together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WavefrontLayer {
    /// Altitude h in metres.
    pub altitude: f64,
    /// Cone factor γ = 1 − h/z of the guide stars.
    pub gamma: f64,
    /// Side D = γ d of a lenslet's footprint, metres.
    pub side: f64,
    /// Step of the lattice of displacements, D/o, metres.
    pub step: f64,
    /// Wavefront points across the layer's grid: M, or M_l of Eq. [layer points](https://lenslet.github.io/lenslet/wavefront-slope.html#eq-layer-points).
    pub points: usize,
    /// Radius h ζ of the disc over which the wavefront is averaged, metres; 0 for a point.
    pub disc: f64,
    /// σ' of Eq. [wavefront slope](https://lenslet.github.io/lenslet/wavefront-slope.html#eq-wavefront-slope): multiplies c for r0 = 1 m (rad² m⁻¹) into m rad.
    pub slope_strength: f64,
    /// (λ/2π)² f r0^(−5/3): multiplies a phase covariance for r0 = 1 m (rad²) into m².
    pub wavefront_strength: f64,
    /// Outer scale in metres, possibly infinite.
    pub outer_scale: f64,
}

// Wavefront slope problem
/// All that the wavefront–slope covariance depends on, checked to have a Toeplitz form.
#[derive(Debug, Clone)]
pub struct WavefrontProblem {
    lenslets: usize,
    pitch: f64,
    grid: PhaseGrid,
    targets: Vec<Source>,
    stars: Vec<Sensor>,
    layers: Vec<WavefrontLayer>,
    layered: bool,
}

impl WavefrontProblem {
    // Pose the wavefront problem
    // Pose the wavefront problem at rest
    /// Poses the problem for `targets` and guide `stars` that one lenslet array at rest looks at.
    ///
    /// # Errors
    /// As for [`of_sensors`](Self::of_sensors).
    pub fn new(
        atmosphere: &Atmosphere,
        array: &LensletArray,
        (targets, stars): (&[Source], &[Source]),
        grid: PhaseGrid,
        gradient: ConeGradient,
    ) -> Result<Self, Error> {
        let sensors: Vec<_> = stars.iter().map(|&star| Sensor::at_rest(star, *array)).collect();
        Self::of_sensors(atmosphere, (targets, &sensors), grid, gradient)
    }

    /// Poses the problem for `targets`, and for sensors that share a lattice and are neither turned nor magnified.
    ///
    /// # Errors
    /// `NotToeplitz` where they are, or share none, or the targets are neither at the height of the guide stars nor at infinity;
    /// `Invalid` where there is no target or no star, a layer at or above one or in the tip of a cone, a grid whose layer is too
    /// small for it, an outer scale too short or a disc too large for the promised accuracy.
    pub fn of_sensors(
        atmosphere: &Atmosphere,
        (targets, stars): (&[Source], &[Sensor]),
        grid: PhaseGrid,
        gradient: ConeGradient,
    ) -> Result<Self, Error> {
        // Tell the cases by their heights
        let target_height = common_height(targets)?;
        let Sensor { source: star, array, rotation, magnification, .. } = Groups::single(stars)?;
        let height = star.height();
        // Refuse cones that share no lattice
        if target_height != height && target_height.is_finite() {
            let reason = format!(
                "the targets are at {target_height} m and the guide stars at {height} m: expected targets at \
                 infinity or at the height of the guide stars"
            );
            return Err(Error::NotToeplitz { reason });
        }
        if (rotation, magnification) != (0.0, 1.0) {
            let degrees = rotation / DEGREE;
            let reason = format!(
                "the sensors are turned by {degrees} degrees and magnified {magnification} times against the grid of wavefront \
                 points: expected sensors that are neither"
            );
            return Err(Error::NotToeplitz { reason });
        }
        star.check_above(atmosphere)?;
        check_outer_scales(atmosphere, stars)?;
        grid.check_discs(atmosphere, array.pitch())?;
        let layered = target_height != height;
        // Project all layers for the wavefront
        // Refuse the tip of a cone
        let narrow =
            |(_, layer): &(usize, &Layer)| layered && star.cone_factor(layer.altitude) < 0.01;
        if let Some((l, layer)) = atmosphere.layers().iter().enumerate().find(narrow) {
            let gamma = star.cone_factor(layer.altitude);
            let lags = 2.0 * (grid.oversampling * array.lenslets()) as f64 / gamma;
            let expected = format!(
                "at most {} m under guide stars at {height} m: there their light fills {gamma:.1e} of the pupil's width, and a lattice of \
                 wavefronts and slopes would have some {lags:.0e} lags along an axis; the dense form needs no lattice",
                0.99 * height
            );
            return Err(
                Invalid::new(format!("layers[{l}].altitude"), layer.altitude, expected).into()
            );
        }
        let project = |layer: &Layer| {
            // Project the layer for the wavefront
            let gamma = star.cone_factor(layer.altitude);
            let side = gamma * array.pitch();
            let width = (grid.oversampling * array.lenslets()) as f64;
            let margin =
                if layered { (width * (1.0 - gamma) / (2.0 * gamma)).ceil() as usize } else { 0 };
            let wavefront_strength = (atmosphere.wavelength() / (2.0 * PI)).powi(2)
                * atmosphere.fried_parameter().powf(-5.0 / 3.0)
                * layer.fraction;
            WavefrontLayer {
                altitude: layer.altitude,
                gamma,
                side,
                step: side / grid.oversampling as f64,
                points: grid.points + 2 * margin,
                disc: grid.disc_at(layer.altitude, layer.outer_scale, array.pitch()),
                slope_strength: gradient.factor(gamma) * wavefront_strength,
                wavefront_strength,
                outer_scale: layer.outer_scale,
            }
        };
        let layers: Vec<_> = atmosphere.layers().iter().map(project).collect();
        // Refuse a grid too small for its layer
        let extent = (grid.points - 1) as f64;
        let small =
            |layer: &&WavefrontLayer| extent / layer.gamma > (layer.points - 1) as f64 + 1e-9;
        if let Some(layer) = layers.iter().filter(|_| layered).find(small) {
            let margin = (layer.points - grid.points) as f64;
            let most = 1.0 + (margin * layer.gamma / (1.0 - layer.gamma)).floor();
            let expected = format!(
                "at most {most}: {} points of the layer at {} m, as far apart as the lenslets' footprints there, \
                 do not reach across the grid of the pupil; the dense form has no such limit",
                layer.points, layer.altitude
            );
            return Err(Invalid::new("phase.points", grid.points, expected).into());
        }
        let (targets, stars) = (targets.to_vec(), stars.to_vec());
        Ok(Self {
            lenslets: array.lenslets(),
            pitch: array.pitch(),
            grid,
            targets,
            stars,
            layers,
            layered,
        })
    }

    // Getters of the wavefront problem
    /// Lenslets across the array, N.
    pub fn lenslets(&self) -> usize {
        self.lenslets
    }

    /// Lenslet pitch d in metres.
    pub fn pitch(&self) -> f64 {
        self.pitch
    }

    /// The grid of wavefront points in the pupil.
    pub fn grid(&self) -> PhaseGrid {
        self.grid
    }

    /// Number of targets, T.
    pub fn targets(&self) -> usize {
        self.targets.len()
    }

    /// Number of guide stars, S.
    pub fn stars(&self) -> usize {
        self.stars.len()
    }

    // Lattices of the wavefront problem
    /// The layers, in the atmosphere's order.
    pub fn layers(&self) -> &[WavefrontLayer] {
        &self.layers
    }

    /// Whether each layer has a wavefront grid of its own, for guide stars at a finite height and targets at infinity.
    pub fn is_layered(&self) -> bool {
        self.layered
    }

    /// The layers, grouped by the lattice that they share: all together, or one by one.
    pub fn lattices(&self) -> std::slice::Chunks<'_, WavefrontLayer> {
        self.layers.chunks(if self.layered { 1 } else { self.layers.len() })
    }

    /// Lags along an axis of a layer's lattice, o (N − 1) + M_l.
    pub fn lags(&self, layer: &WavefrontLayer) -> usize {
        self.grid.oversampling * (self.lenslets - 1) + layer.points
    }

    // Displacements of lags and points
    /// Displacement at a layer of lag 0 of target `t` and guide star `q` along x and y, metres; Eq. [centred lags](https://lenslet.github.io/lenslet/wavefront-slope.html#eq-centred-lags).
    pub fn first_lag(&self, layer: &WavefrontLayer, t: usize, q: usize) -> [f64; 2] {
        let reach = (self.lags(layer) - 1) as f64 / 2.0 * layer.step;
        let Sensor { source, shift, .. } = &self.stars[q];
        let by_direction = self.targets[t].shift_to(source, layer.altitude);
        [0, 1].map(|axis| by_direction[axis] + layer.gamma * shift[axis] - reach)
    }

    /// Displacement at a layer from wavefront point `point` of the pupil's grid to the footprint of lenslet `lenslet` (both \[row,
    /// column\]) for target `t` and star `q`, along x and y, metres.
    pub fn displacement(
        &self,
        layer: &WavefrontLayer,
        (t, q): (usize, usize),
        point: [usize; 2],
        lenslet: [usize; 2],
    ) -> [f64; 2] {
        let target = [1, 0].map(|axis| self.grid.coordinate(point[axis], self.pitch));
        let target = self.targets[t].project(target, layer.altitude);
        let star = self.stars[q].footprint(lenslet, layer.altitude).centre;
        [0, 1].map(|axis| star[axis] - target[axis])
    }

    // Offset of targets and number of entries
    /// Displacement h (θ_u − θ_t) at a layer of the wavefronts of targets `t` and `u`, metres.
    pub fn target_offset(&self, layer: &WavefrontLayer, t: usize, u: usize) -> [f64; 2] {
        self.targets[t].shift_to(&self.targets[u], layer.altitude)
    }

    /// Length of the result, over all lattices.
    pub fn len(&self) -> usize {
        let lags = |layers: &[WavefrontLayer]| self.lags(&layers[0]).pow(2);
        2 * self.targets() * self.stars() * self.lattices().map(lags).sum::<usize>()
    }

    /// Never: there is at least one target, one star, one layer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives a layer a strength that makes no sense, to see who notices.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self, strength: f64) {
        self.layers[1].slope_strength = strength;
    }
}

// Height that all targets share
/// The height that all targets share, metres.
fn common_height(targets: &[Source]) -> Result<f64, Error> {
    let first = targets.first().ok_or_else(|| Invalid::new("target", 0, "at least one"))?.height();
    match targets.iter().position(|target| target.height() != first) {
        None => Ok(first),
        Some(other) => {
            let reason = format!(
                "target[0].height is {first} m and target[{other}].height is {} m: expected equal heights",
                targets[other].height()
            );
            Err(Error::NotToeplitz { reason })
        }
    }
}

// Wavefront slope covariance store
/// The Toeplitz-compressed wavefront–slope covariance of all targets and guide stars.
///
/// One array for each lattice of the problem: Ξ\[t, q, a, j, i\] = ⟨w^t(x) s_a^q(x + ρ)⟩ in m rad of shape (T, S, 2, K, K), with
/// i = o n − m + K − 1 − o (N − 1) for lenslet n and wavefront point m along x, j likewise along y; Eq. [wavefront slope](https://lenslet.github.io/lenslet/wavefront-slope.html#eq-wavefront-slope).
#[derive(Debug, Clone, PartialEq)]
pub struct WavefrontSlope {
    lattices: Vec<Array5<f64>>,
}

impl WavefrontSlope {
    /// Computes each lattice from `pair`, which gives the covariance (2, K, K) for a lattice, counted from 0, a target and a star.
    ///
    /// # Errors
    /// `Cancelled` if `watch` requests a stop.
    pub fn compute(
        problem: &WavefrontProblem,
        watch: &dyn Watch,
        pair: impl Fn(usize, usize, usize) -> Array3<f64> + Sync,
    ) -> Result<Self, Error> {
        // Dispatch lattices, targets and stars
        let (targets, stars) = (problem.targets(), problem.stars());
        let items: Vec<(usize, usize, usize)> = (0..problem.lattices().count() * targets * stars)
            .map(|k| (k / (targets * stars), k / stars % targets, k % stars))
            .collect();
        let empty = |layers: &[WavefrontLayer]| {
            let lags = problem.lags(&layers[0]);
            Array5::zeros((targets, stars, 2, lags, lags))
        };
        let mut lattices: Vec<Array5<f64>> = problem.lattices().map(empty).collect();
        let work = |_: &(), &(k, t, q): &(usize, usize, usize)| Ok(pair(k, t, q));
        let keep = |item: usize, field: Array3<f64>| {
            let (k, t, q) = items[item];
            lattices[k].slice_mut(s![t, q, .., .., ..]).assign(&field);
            Ok(())
        };
        dispatch(Workers::cores(&()), &items, watch, work, keep)?;
        Ok(Self { lattices })
    }

    // Make the store from its arrays
    /// The store of `lattices`, one array (T, S, 2, K, K) for each of [`WavefrontProblem::lattices`], in their order.
    pub(crate) fn of_lattices(lattices: Vec<Array5<f64>>) -> Self {
        Self { lattices }
    }

    // Arrays and largest entry of the store
    /// The arrays, in the order of [`WavefrontProblem::lattices`].
    pub fn lattices(&self) -> &[Array5<f64>] {
        &self.lattices
    }

    /// The largest entry by magnitude, m rad.
    pub fn largest(&self) -> f64 {
        self.lattices.iter().flatten().fold(0.0, |largest, value| value.abs().max(largest))
    }
}

// Entry of a point and a lenslet
/// The covariance of wavefront point `point` \[row, column\] of a grid of `points` across with lenslet `lenslet` \[row,
/// column\], taken from one lattice (T, S, 2, K, K) of the given oversampling; both slopes, m rad.
pub fn lattice_entry(
    lattice: ArrayView5<f64>,
    (points, oversampling): (usize, usize),
    (t, q): (usize, usize),
    point: [usize; 2],
    lenslet: [usize; 2],
) -> [f64; 2] {
    let place = |axis: usize| oversampling * lenslet[axis] + points - 1 - point[axis];
    [0, 1].map(|a| lattice[[t, q, a, place(0), place(1)]])
}

// Tests of the wavefront problem
#[cfg(test)]
mod tests {
    use super::*;

    // Pose a lopsided wavefront problem
    /// Shift of the sensors on the pupil, metres.
    const SHIFT: [f64; 2] = [0.13, -0.07];

    /// Two layers, two targets at a height, two guide stars at another.
    fn problem(n: usize, grid: PhaseGrid, heights: [f64; 3]) -> Result<WavefrontProblem, Error> {
        let layers = vec![Layer::new(9000.0, 0.3, 25.0), Layer::new(0.0, 0.7, 25.0)];
        let atmosphere = Atmosphere::new(0.15, 500e-9, layers)?;
        let targets = [Source::new(1e-4, 0.3, heights[0])?, Source::new(2e-4, 2.0, heights[0])?];
        let stars = [Source::new(1.5e-4, 4.4, heights[1])?, Source::new(5e-5, 1.0, heights[2])?];
        let array = LensletArray::new(n, 0.4)?;
        let stars = stars.map(|star| Sensor { shift: SHIFT, ..Sensor::at_rest(star, array) });
        WavefrontProblem::of_sensors(&atmosphere, (&targets, &stars), grid, ConeGradient::Pupil)
    }

    // Compare grids of layers with a pencil
    #[test]
    fn grids_of_layers_agree_with_the_worked_case() {
        let grid = PhaseGrid::new(9, 2, 0.0).unwrap();
        let layers = vec![Layer::new(9e3, 0.3, 25.0), Layer::new(0.0, 0.7, 25.0)];
        let atmosphere = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let (array, target) = (LensletArray::new(4, 0.4).unwrap(), Source::star(0.0, 0.0).unwrap());
        let star = Sensor::at_rest(Source::new(0.0, 0.0, 90e3).unwrap(), array);
        let sources = (&[target][..], &[star][..]);
        let problem =
            WavefrontProblem::of_sensors(&atmosphere, sources, grid, ConeGradient::Pupil).unwrap();
        let known = [(11, 17, 0.18, -1.44), (9, 15, 0.2, -1.4)];
        for (layer, (points, lags, step, first)) in problem.layers().iter().zip(known) {
            assert_eq!((layer.points, problem.lags(layer)), (points, lags));
            assert!((layer.step - step).abs() < 1e-12, "{}", layer.step);
            let [x, y] = problem.first_lag(layer, 0, 0);
            assert!((x - first).abs() < 1e-12 && (y - first).abs() < 1e-12, "{x} {y}");
        }
    }

    // Check displacements by their coordinates
    #[test]
    fn displacements_are_those_of_points_and_lenslets() {
        let infinity = f64::INFINITY;
        for (n, points, oversampling) in [(4, 5, 1), (3, 8, 2), (5, 4, 3), (4, 17, 4), (1, 1, 1)] {
            for heights in [[infinity, 90e3, 90e3], [infinity; 3], [90e3; 3]] {
                let grid = PhaseGrid::new(points, oversampling, 1e-5).unwrap();
                let problem = problem(n, grid, heights).unwrap();
                assert_eq!(problem.is_layered(), heights[0] != heights[1]);
                let array = LensletArray::new(n, 0.4).unwrap();
                for layer in problem.layers() {
                    // Check the displacements of one layer
                    let own = PhaseGrid { points: layer.points, ..grid };
                    let first = problem.first_lag(layer, 1, 0);
                    let offset =
                        problem.targets[1].shift_to(&problem.stars[0].source, layer.altitude);
                    for (lenslet, point) in
                        [(0, 0), (n - 1, layer.points / 2), (n / 2, layer.points - 1)]
                    {
                        let index = oversampling * lenslet + layer.points - 1 - point;
                        assert!(index < problem.lags(layer));
                        let rho = array.centre(lenslet) - own.coordinate(point, 0.4);
                        let expected = layer.gamma * (rho + SHIFT[0]) + offset[0];
                        assert!((first[0] + index as f64 * layer.step - expected).abs() < 1e-12);
                    }
                }
            }
        }
    }

    // Check the refusals of the wavefront problem
    #[test]
    fn heights_and_grids_without_a_lattice_are_refused() {
        let grid = |points| PhaseGrid::new(points, 2, 0.0).unwrap();
        let infinity = f64::INFINITY;
        for heights in [[infinity, 90e3, infinity], [80e3, 90e3, 90e3]] {
            let error = problem(4, grid(9), heights).unwrap_err();
            assert!(matches!(error, Error::NotToeplitz { .. }), "{error}");
        }
        // Check the refusals of layers and grids
        assert!(matches!(problem(4, grid(9), [infinity, 9e3, 9e3]), Err(Error::Invalid(_))));
        // With γ = 0.9 and 8 points across the array the margin is one point a side, enough for 19 points and not for 20.
        let layers = problem(4, grid(19), [infinity, 90e3, 90e3]).unwrap();
        assert_eq!(layers.layers().iter().map(|layer| layer.points).collect::<Vec<_>>(), [21, 19]);
        let error = problem(4, grid(20), [infinity, 90e3, 90e3]).unwrap_err().to_string();
        assert!(error.contains("phase.points = 20: expected at most 19: 22 points"), "{error}");
        assert!(problem(4, grid(20), [90e3; 3]).is_ok());
        // Lenslets that are turned or magnified against the grid of points share no lattice with it.
        let atmosphere = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)]).unwrap();
        let star = Source::star(0.0, 0.0).unwrap();
        let rest = Sensor::at_rest(star, LensletArray::new(4, 0.4).unwrap());
        for sensor in [Sensor { rotation: 0.1, ..rest }, Sensor { magnification: 1.01, ..rest }] {
            let sources = (&[star][..], &[sensor][..]);
            let posed =
                WavefrontProblem::of_sensors(&atmosphere, sources, grid(9), ConeGradient::Pupil);
            assert!(matches!(posed, Err(Error::NotToeplitz { .. })), "{sensor:?}");
        }
    }
}
