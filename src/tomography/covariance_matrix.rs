// Tangled from book/src/covariance-matrices.md: edit there, or here and run cargo tangle stitch.
//! Covariance matrices of the slopes of guide stars and truth sensors.

// Imports of the covariance matrices
use crate::device::engine::Engine;
use crate::error::{Error, Invalid};
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::removed_modes::RemovedModes;
use crate::model::sensor::Sensor;
use crate::model::source::Source;
use crate::model::system::{SlopeModel, System};
use crate::turbulence::plan::{check_finite, dense_slopes, slope_cross_covariance};
use crate::turbulence::{cross_covariance, edge_midpoint};
use crate::watch::{StageParts, Watch};
use ndarray::{Array2, ArrayView1, s};

// Three covariance matrices
/// Covariance matrices of measurements and truth, Eq. [three covariances](https://lenslet.github.io/lenslet/covariance-matrices.html#eq-three-covariances).
///
/// ```
/// use lenslet::{model::*, tomography::CovarianceMatrices, watch::unwatched};
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(10e3, 1.0, 25.0)])?;
/// let array = LensletArray::new(1, 1.0)?;
/// let [left, right] = [Source::star(5e-5, std::f64::consts::PI)?, Source::star(5e-5, 0.0)?];
/// let system = System::builder(air, array)
///     .guide_stars([GuideStar::at_rest(left, array, 1e-13)?, GuideStar::at_rest(right, array, 1e-13)?])
///     .targets([Source::star(0.0, 0.0)?])
///     .build()?;
/// let c = CovarianceMatrices::of(&system, &unwatched)?;
/// let close = |value: f64, expected: f64| assert!((1e12 * value - expected).abs() < 1e-6);
/// close(c.truth[[0, 0]], 0.441668);
/// close(c.measurements[[0, 0]], 0.541668);
/// [(0, 0.128004), (1, 0.304748)].map(|(axis, covariance)| close(c.measurements[[axis, axis + 2]], covariance));
/// [(0, 0.317104), (1, 0.395554)].map(|(axis, covariance)| close(c.truth_measurements[[axis, axis]], covariance));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CovarianceMatrices {
    /// C_mm of the guide stars' slopes, their noise included, (n, n), rad²; in the order of [`SlopeOrder`].
    pub measurements: Array2<f64>,
    /// C_tm, (T m, n), rad²: target by target, the rows of each in the order of [`SlopeOrder`].
    pub truth_measurements: Array2<f64>,
    /// C_tt, (m, m), rad², the same for all targets.
    pub truth: Array2<f64>,
}

// Compute the three matrices
impl CovarianceMatrices {
    /// The matrices of a system with its noise. `watch` receives three stages, whose pieces are lenslets.
    ///
    /// # Errors
    /// `Invalid` where the system has no target; `Memory` where a matrix does not fit; `Cancelled` where the watcher wants to stop.
    ///
    /// ```
    /// use lenslet::{watch::unwatched, model::*, tomography::CovarianceMatrices};
    /// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(8e3, 1.0, 25.0)])?;
    /// let (array, on_axis) = (LensletArray::new(2, 0.5)?, Source::star(0.0, 0.0)?);
    /// let system = System::builder(air, array)
    ///     .guide_stars([GuideStar::at_rest(on_axis, array, 1e-13)?])
    ///     .targets([on_axis])
    ///     .build()?;
    /// let c = CovarianceMatrices::of(&system, &unwatched)?;
    /// // The star is where the target is: what it measures is the truth, and noise.
    /// let gap = &c.truth_measurements - &c.truth;
    /// assert!(gap.dim() == (8, 8) && gap.iter().all(|gap| gap.abs() < 1e-25));
    /// assert!((&c.measurements - &c.truth).diag().iter().all(|noise| (noise - 1e-13).abs() < 1e-25));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn of(system: &System, watch: &dyn Watch) -> Result<Self, Error> {
        Self::on(system, &Engine::default(), watch)
    }

    // Compute the three on an engine
    /// The three covariance matrices, rad², computed on an engine: its devices, if any, average over lenslets in its precision.
    ///
    /// # Errors
    /// As [`of`](Self::of), and what a device says.
    pub fn on(system: &System, engine: &Engine, watch: &dyn Watch) -> Result<Self, Error> {
        check_targets(system)?;
        watch.stage(MEASUREMENTS, LENSLETS);
        let mut measurements = dense_slopes(system, engine, watch)?;
        add_noise(&mut measurements, system);
        // Covariances with the truth
        watch.stage(TRUTH, LENSLETS);
        let (air, truths) = (system.atmosphere(), truth_sensors(system));
        let truth_measurements = with_measurements(system, air, &truths, engine, watch)?;
        check_finite("c_tm", &truth_measurements)?;
        let truth = truth_covariance(system, watch)?;
        let mut matrices = Self { measurements, truth_measurements, truth };
        matrices.remove(&system.removed_modes());
        Ok(matrices)
    }
}

// Sensors of truth and guide stars
// Covariance of truth sensors with measurements
/// The covariances of the slopes of truth sensors with all measurements, in the air of some layers, rad².
fn with_measurements(
    system: &System,
    air: &Atmosphere,
    truths: &[Sensor],
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let (sensors, valid) = (system.sensors(), system.valid_lenslets());
    let masks = vec![truth_valid(system); truths.len()];
    let (rows, columns) = ((truths, &masks[..]), (&sensors[..], &valid[..]));
    match system.slope_model() {
        SlopeModel::Average => {
            slope_cross_covariance(air, [rows, columns], system.cone_gradient(), engine, watch)
        }
        SlopeModel::EdgeMidpoint => {
            edge_midpoint::slope_cross_covariance(air, rows, columns, watch)
        }
    }
}

// Stages of the covariance matrices
/// Names of the stages of the covariance matrices, and of their pieces.
pub(crate) const MEASUREMENTS: &str = "covariance of measurements";
pub(crate) const TRUTH: &str = "covariance with the truth";
pub(crate) const LENSLETS: &str = "lenslets";

/// A truth sensor for each target.
pub(crate) fn truth_sensors(system: &System) -> Vec<Sensor> {
    let at = |target: &Source| Sensor::at_rest(*target, *system.truth_sensor());
    system.targets().iter().map(at).collect()
}

// Covariance of the truth
/// C_tt, (m, m), rad², of the first target, which is that of all.
pub(crate) fn truth_covariance(system: &System, watch: &dyn Watch) -> Result<Array2<f64>, Error> {
    let (truths, valid) = (truth_sensors(system), [truth_valid(system)]);
    let (air, gradient) = (system.atmosphere(), system.cone_gradient());
    let truth = match system.slope_model() {
        SlopeModel::Average => {
            cross_covariance::slope_covariance(air, &truths[..1], &valid, gradient, watch)?
        }
        SlopeModel::EdgeMidpoint => {
            edge_midpoint::slope_covariance(air, &truths[..1], &valid, watch)?
        }
    };
    check_finite("c_tt", &truth)?;
    Ok(truth)
}

// Refuse a system without target
/// Refuses a system without a target.
pub(crate) fn check_targets(system: &System) -> Result<(), Invalid> {
    let expected = "at least one [[target]], whose slopes are to be reconstructed";
    system.targets().first().map(drop).ok_or_else(|| Invalid::new("target", 0, expected))
}

// Valid lenslets of a truth sensor
/// The valid lenslets of a truth sensor, (N, N).
pub(crate) fn truth_valid(system: &System) -> Array2<bool> {
    system.truth_sensor().valid(system.pupil(), system.validity())
}

// Covariance with the truth alone
/// C_mm with its noise, (n, n), rad², and with noise in place of the modes that are removed.
///
/// # Errors
/// As for [`CovarianceMatrices::on`].
pub(crate) fn measurements_with_noise(
    system: &System,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let mut measurements = dense_slopes(system, engine, watch)?;
    add_noise(&mut measurements, system);
    system.removed_modes().replace_in(&mut measurements);
    Ok(measurements)
}

// Covariance of truth without measurements
/// C_tm, (T m, n), rad², without the modes that are removed.
///
/// # Errors
/// As for [`CovarianceMatrices::on`].
pub(crate) fn rows_with_measurements(
    system: &System,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let (air, truths) = (system.atmosphere(), truth_sensors(system));
    let mut rows = with_measurements(system, air, &truths, engine, watch)?;
    take_out(&mut rows, &system.removed_modes());
    check_finite("c_tm", &rows)?;
    Ok(rows)
}

// Covariance with a later truth
/// Name of the stage of the covariance with a later truth.
pub(crate) const LATER: &str = "covariance with the later truth";

impl CovarianceMatrices {
    /// C_tm, (T m, n), rad², for a truth that is `delay` seconds later than the measurements, Eq. [later truth](https://lenslet.github.io/lenslet/prediction.html#eq-later-truth); arranged as
    /// [`truth_measurements`](Self::truth_measurements).
    ///
    /// # Errors
    /// As [`on`](Self::on).
    ///
    /// ```
    /// use lenslet::{device::Engine, model::*, plan::Plan, tomography::*, watch::unwatched};
    /// let mut layer = Layer::new(10e3, 1.0, 25.0);
    /// (layer.wind_speed, layer.wind_direction) = (50.0, 0.0);
    /// let (air, array) = (Atmosphere::new(0.15, 500e-9, vec![layer])?, LensletArray::new(1, 1.0)?);
    /// let [left, right] = [Source::star(5e-5, std::f64::consts::PI)?, Source::star(5e-5, 0.0)?];
    /// let system = System::builder(air, array)
    ///     .guide_stars([GuideStar::at_rest(left, array, 1e-13)?, GuideStar::at_rest(right, array, 1e-13)?])
    ///     .targets([Source::star(0.0, 0.0)?])
    ///     .build()?;
    /// let later = CovarianceMatrices::later_truth(&system, 0.01, &Engine::default(), &unwatched)?;
    /// assert!((1e12 * later[[0, 0]] - 0.4417).abs() < 1e-4 && (1e12 * later[[0, 2]] - 0.1280).abs() < 1e-4);
    /// let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default().delay(0.01))?;
    /// let found = plan.run(&Engine::default(), &unwatched)?;
    /// let weights = found.reconstructor.unwrap_or_default();
    /// assert!((weights[[0, 0, 0]] - 0.804).abs() < 1e-3 && (weights[[0, 0, 2]] - 0.046).abs() < 1e-3);
    /// assert!((1e12 * found.error_covariance[[0, 0, 0]] - 0.0804).abs() < 1e-4);
    /// let without = found.other_error_covariance.unwrap_or_default();
    /// assert!((1e12 * without[[0, 0, 0]] - 0.2025).abs() < 1e-4);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn later_truth(
        system: &System,
        delay: f64,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        check_targets(system)?;
        let mut sum = None::<Array2<f64>>;
        // Sum over parts of the air
        let groups = upwind(system, delay)?;
        let count = groups.len();
        for (number, (truths, air)) in groups.into_iter().enumerate() {
            let watch = &StageParts { whole: watch, what: "group of layers", number, count };
            watch.stage(LATER, LENSLETS);
            let part = with_measurements(system, &air, &truths, engine, watch)?;
            sum = Some(match sum {
                Some(sum) => sum + &part,
                None => part,
            });
        }
        let mut sum = sum.unwrap_or_else(|| unreachable!("fractions sum to 1"));
        take_out(&mut sum, &system.removed_modes());
        check_finite("c_tm", &sum)?;
        Ok(sum)
    }
}

// Parts of the air that move alike
/// The truth sensors of all targets a `delay` (s) upwind, and the air that they see from there; for all parts of the air that move alike.
pub(crate) fn upwind(
    system: &System,
    delay: f64,
) -> Result<Vec<(Vec<Sensor>, Atmosphere)>, Invalid> {
    let upwind_sensors = |(moved, air): ([f64; 2], Atmosphere)| {
        let back = |truth: Sensor| Sensor { shift: moved.map(|component| -component), ..truth };
        (truth_sensors(system).into_iter().map(back).collect(), air)
    };
    Ok(flows(system.atmosphere(), delay)?.into_iter().map(upwind_sensors).collect())
}

// Displacements of the layers
/// How far layers move in a time, metres along x and y, and the air of those that move so.
fn flows(air: &Atmosphere, delay: f64) -> Result<Vec<([f64; 2], Atmosphere)>, Invalid> {
    let mut flows: Vec<([f64; 2], Vec<Layer>)> = Vec::new();
    for layer in air.layers().iter().filter(|layer| layer.fraction > 0.0) {
        let moved = layer.velocity().map(|speed| delay * speed);
        match flows.iter_mut().find(|(known, _)| *known == moved) {
            Some((_, layers)) => layers.push(*layer),
            None => flows.push((moved, vec![*layer])),
        }
    }
    let alone = |(moved, mut layers): ([f64; 2], Vec<Layer>)| {
        let share: f64 = layers.iter().map(|layer| layer.fraction).sum();
        layers.iter_mut().for_each(|layer| layer.fraction /= share);
        let r0 = air.fried_parameter() * share.powf(-0.6);
        Ok((moved, Atmosphere::new(r0, air.wavelength(), layers)?))
    };
    flows.into_iter().map(alone).collect()
}

// Noise on the diagonal blocks
/// Adds the noise of all guide stars to a covariance matrix of their slopes, (n, n), rad²; tilts that are unknown are part of it.
pub fn add_noise(matrix: &mut Array2<f64>, system: &System) {
    let order = SlopeOrder::new(&system.valid_lenslets());
    SlopeNoise::new(system.guide_stars(), &order).add_to(matrix);
}

// Take modes out of covariances
impl CovarianceMatrices {
    /// Replaces modes of the measurements by independent noise of the same variance, Eq. [removed covariances](https://lenslet.github.io/lenslet/covariance-matrices.html#eq-removed-covariances).
    /// [`of`](Self::of) has done so with those of its system.
    ///
    /// # Panics
    /// If a mode is of more slopes than there are.
    pub fn remove(&mut self, modes: &RemovedModes) {
        modes.replace_in(&mut self.measurements);
        take_out(&mut self.truth_measurements, modes);
    }
}

/// Takes modes of the measurements out of covariances with them, (m, n).
pub(crate) fn take_out(rows: &mut Array2<f64>, modes: &RemovedModes) {
    for mode in modes.iter() {
        let (z, end) = (ArrayView1::from(&mode.shape[..]), mode.first + mode.shape.len());
        for mut row in rows.slice_mut(s![.., mode.first..end]).rows_mut() {
            let share = row.dot(&z);
            row.scaled_add(-share, &z);
        }
    }
}

// Tests of the covariance matrices
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::lenslet_array::{LensletArray, Pupil};
    use crate::model::noise::{GuideStar, Noise};
    use crate::model::removed_modes::{Focus, Mode, TipTilt};
    use crate::units::{ARCSEC, DEGREE};
    use crate::watch::unwatched;

    // A system for tests of tomography
    /// A laser star and two natural ones, one of them turned and shifted, for two targets; `noise` is a variance in rad².
    pub(crate) fn system(noise: f64) -> System {
        let layers = vec![
            Layer::new(0.0, 0.55, 25.0),
            Layer::new(4500.0, 0.3, 18.0),
            Layer::new(11e3, 0.15, 40.0),
        ];
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let source = |zenith: f64, azimuth: f64, height| {
            Source::new(zenith * ARCSEC, azimuth * DEGREE, height).unwrap()
        };
        let arrays =
            [(6, 0.6), (6, 0.6), (4, 0.9)].map(|(n, pitch)| LensletArray::new(n, pitch).unwrap());
        let star = |k: usize| {
            let at =
                [(20.0, 10.0, 90e3), (25.0, 130.0, f64::INFINITY), (18.0, 260.0, f64::INFINITY)][k];
            GuideStar::at_rest(source(at.0, at.1, at.2), arrays[k], noise).unwrap()
        };
        let mut stars = [0, 1, 2].map(star);
        stars[1].sensor.rotation = 10.0 * DEGREE;
        stars[1].sensor.shift = [0.12, -0.07];
        System::builder(air, arrays[0])
            .pupil(Some(Pupil::new(3.6, 0.25).unwrap()))
            .guide_stars(stars)
            .targets([source(3.0, 70.0, f64::INFINITY), source(11.0, 200.0, f64::INFINITY)])
            .truth_sensor(Some(LensletArray::new(5, 0.72).unwrap()))
            .build()
            .unwrap()
    }

    // The same system with wind
    /// The system of the tests with a wind in each layer.
    pub(crate) fn windy(noise: f64) -> System {
        let still = system(noise);
        let mut layers = still.atmosphere().layers().to_vec();
        let winds = [(9.0, 0.5), (15.0, 2.0), (28.0, 1.1)];
        for (layer, wind) in layers.iter_mut().zip(winds) {
            (layer.wind_speed, layer.wind_direction) = wind;
        }
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        still.to_builder().atmosphere(air).build().unwrap()
    }

    // Blocks stand where they belong
    #[test]
    fn blocks_stand_where_they_belong() {
        let bare = system(0.0);
        let mut stars = bare.guide_stars().to_vec();
        let lenslets = bare.valid_lenslets()[2].iter().filter(|&&valid| valid).count();
        let block = |k: usize| {
            let x = 1e-14 * (1.0 + k as f64);
            [[2.0 * x, -0.5 * x], [-0.5 * x, x]]
        };
        stars[2].noise = Noise::blocks(&(0..lenslets).map(block).collect::<Vec<_>>()).unwrap();
        let noisy = bare.to_builder().guide_stars(stars).build().unwrap();
        let [bare, with] = [bare, noisy].map(|s| CovarianceMatrices::of(&s, &unwatched).unwrap());
        let (c, n) = (&with.measurements, with.measurements.nrows());
        assert_eq!(
            (c, with.truth_measurements.dim()),
            (&c.t().to_owned(), (2 * with.truth.nrows(), n))
        );
        // Noise is in the last star's blocks only.
        let noise = c - &bare.measurements;
        let first = n - 2 * lenslets;
        for k in 0..lenslets {
            let [x, y] = [first + k, first + lenslets + k];
            let found = [[noise[[x, x]], noise[[x, y]]], [noise[[y, x]], noise[[y, y]]]];
            let pairs = found.iter().flatten().zip(block(k).into_iter().flatten());
            pairs.for_each(|(found, given)| assert!((found - given).abs() < 1e-24));
        }
        let total: f64 =
            (0..lenslets).map(|k| block(k)[0][0] + block(k)[1][1] + 2.0 * block(k)[0][1]).sum();
        assert!((noise.sum() - total).abs() < 1e-9 * total);
        // Targets stand one below the other
        let m = with.truth.nrows();
        let swapped = system(0.0);
        let targets = [swapped.targets()[1], swapped.targets()[0]];
        let swapped = swapped.to_builder().targets(targets).build().unwrap();
        let swapped = CovarianceMatrices::of(&swapped, &unwatched).unwrap();
        let of = |c: &CovarianceMatrices, k: usize| {
            c.truth_measurements.slice(s![k * m..(k + 1) * m, ..]).to_owned()
        };
        assert_eq!((of(&swapped, 0), of(&swapped, 1)), (of(&bare, 1), of(&bare, 0)));
        assert_ne!(of(&bare, 0), of(&bare, 1));
        let aimless = system(0.0).to_builder().targets([]).build().unwrap();
        assert!(CovarianceMatrices::of(&aimless, &unwatched).is_err());
        // All three follow the model of the slopes.
        let other = system(0.0).to_builder().slope_model(SlopeModel::EdgeMidpoint).build().unwrap();
        let other = CovarianceMatrices::of(&other, &unwatched).unwrap();
        let means = |c: &CovarianceMatrices| [c.measurements.diag().mean(), c.truth.diag().mean()];
        for (midpoint, average) in means(&other).into_iter().zip(means(&bare)) {
            let ratio = midpoint.unwrap() / average.unwrap();
            assert!((1.08..1.2).contains(&ratio), "{ratio}");
        }
        let [midpoint, average] = [&other, &bare].map(|c| c.truth_measurements.sum());
        assert!(midpoint != average && (midpoint / average - 1.0).abs() < 0.1);
    }

    // A mode is replaced by noise
    #[test]
    fn modes_are_replaced_by_noise() {
        let bare = system(0.0);
        let mut stars = bare.guide_stars().to_vec();
        (stars[0].tip_tilt, stars[0].focus) = (TipTilt::Removed, Focus::Removed);
        stars[1].focus = Focus::Removed;
        let blind = bare.to_builder().guide_stars(stars).build().unwrap();
        let modes = blind.removed_modes();
        let order = SlopeOrder::new(&blind.valid_lenslets());
        let n = order.len();
        let mut z = Array2::zeros((n, 4));
        for (k, Mode { first, shape }) in modes.iter().enumerate() {
            let own = s![*first..first + shape.len(), k];
            z.slice_mut(own).assign(&ArrayView1::from(&shape[..]));
        }
        // Slopes of a parabola, along the axes of each sensor.
        for (q, has_tilt) in [(0, false), (1, true)] {
            let sensor = blind.guide_stars()[q].sensor;
            let own = order.index(q, 0, 0)..order.index(q + 1, 0, 0);
            let along = sensor.axes().map(|axis| {
                let [x, y]: [Vec<f64>; 2] = [0, 1]
                    .map(|c| order.lenslets(q).iter().map(|&at| sensor.centre(at)[c]).collect());
                let places = x.iter().zip(&y).map(|(x, y)| axis[0] * x + axis[1] * y);
                places.collect::<Vec<f64>>()
            });
            let mut slopes = vec![0.0; n];
            slopes[own.clone()].copy_from_slice(&along.concat());
            modes.remove(&mut slopes);
            let left = |axis| slopes[order.index(q, axis, 0)..order.index(q, axis + 1, 0)].to_vec();
            for (axis, left) in [left(0), left(1)].into_iter().enumerate() {
                let mean = left.iter().sum::<f64>() / left.len() as f64;
                assert!(left.iter().all(|slope| (slope - mean).abs() < 1e-12), "{q} {axis}");
                assert!(has_tilt || mean.abs() < 1e-12, "{q} {axis}");
            }
        }
        // Compare with projections spelled out
        let random = |rows: usize, seed| {
            let numbers = crate::linear::operator::battery::random(rows * n, seed);
            Array2::from_shape_vec((rows, n), numbers).unwrap()
        };
        let half = random(n, 3);
        let [c, c_tm] = [half.dot(&half.t()), random(5, 4)];
        let truth = Array2::zeros((5, 5));
        let mut found =
            CovarianceMatrices { measurements: c.clone(), truth_measurements: c_tm.clone(), truth };
        found.remove(&modes);
        let p = Array2::eye(n) - z.dot(&z.t());
        let gap = |found: Array2<f64>, expected: Array2<f64>| {
            (found - expected).fold(0.0, |most: f64, gap| most.max(gap.abs()))
        };
        assert!(gap(found.truth_measurements, c_tm.dot(&p)) < 1e-12);
        let variances = z.t().dot(&c).dot(&z).diag().to_owned();
        let noise = z.dot(&Array2::from_diag(&variances)).dot(&z.t());
        assert!(gap(found.measurements.clone(), p.dot(&c).dot(&p) + noise) < 1e-10);
        assert_eq!(found.measurements, found.measurements.t());
    }

    // Wind is a direction where it grows with altitude
    #[test]
    fn wind_is_a_direction_where_it_grows_with_altitude() {
        let (still, delay, [x, y]) = (system(0.0), 0.02, [1.3e-5, -2.1e-5]);
        let engine = Engine::default();
        let mut layers = still.atmosphere().layers().to_vec();
        for layer in &mut layers {
            layer.wind_speed = layer.altitude * f64::hypot(x, y) / delay;
            layer.wind_direction = f64::atan2(y, x);
        }
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let target = still.targets()[0];
        let [u, v] = target.direction();
        let elsewhere = Source::star(f64::hypot(u - x, v - y), f64::atan2(v - y, u - x)).unwrap();
        for model in [SlopeModel::Average, SlopeModel::EdgeMidpoint] {
            let builder = still.to_builder().atmosphere(air.clone()).slope_model(model);
            let windy = builder.targets([target]).build().unwrap();
            let found =
                CovarianceMatrices::later_truth(&windy, delay, &engine, &unwatched).unwrap();
            let truth = [Sensor::at_rest(elsewhere, *still.truth_sensor())];
            let expected = with_measurements(&windy, &air, &truth, &engine, &unwatched).unwrap();
            let most = expected.fold(0.0, |most: f64, value| most.max(value.abs()));
            let gap = (&found - &expected).fold(0.0, |most: f64, gap| most.max(gap.abs()));
            assert!(gap < 1e-9 * most, "{gap:e} {most:e}");
            // Without the delay it is another covariance.
            let at_once =
                CovarianceMatrices::later_truth(&windy, 0.0, &engine, &unwatched).unwrap();
            let gap = (&at_once - &expected).fold(0.0, |most: f64, gap| most.max(gap.abs()));
            assert!(gap > 1e-2 * most, "{gap:e} {most:e}");
        }
    }
}
