// Tangled from book/src/tomographic-error.md: edit there, or here and run cargo tangle stitch.
//! The error of the wavefront that an error of slopes means: a map over the pupil, and its mean.

// Imports of the wavefront error
use crate::data::DataSet;
use crate::device::Engine;
use crate::error::{Error, Invalid};
use crate::estimation::inversion::MatrixRates;
use crate::linear::{Cholesky, times_transpose};
use crate::model::lenslet_array::LensletArray;
use crate::model::system::System;
use crate::plan::Stage;
use crate::tomography::covariance_matrix::truth_valid;
pub use crate::tomography::reconstructor::WavefrontError;
use crate::tomography::reconstructor::{
    Actuator, ReconstructedQuantity, Reconstruction, ReconstructorPlan,
};
use crate::turbulence::arrays::{describe_system, slope_table};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2};

// Error of a wavefront
impl WavefrontError {
    // Wavefront error of a covariance of slopes
    /// The error of the wavefront for a covariance of the error of slopes, (m, m), rad², of the valid lenslets of `array`: all x
    /// slopes, then all y slopes, row by row; Eq. [wavefront error](https://lenslet.github.io/lenslet/tomographic-error.html#eq-wavefront-error).
    ///
    /// # Errors
    /// `Invalid` where the matrix is not of the slopes of those lenslets.
    ///
    /// ```
    /// use lenslet::{model::LensletArray, tomography::WavefrontError};
    /// use ndarray::{Array2, s};
    /// let (array, valid) = (LensletArray::new(4, 0.5)?, Array2::from_elem((4, 4), true));
    /// // All x slopes are wrong by the same amount, 1e-7 rad rms: a tilt with x² = 0.375 m² in the mean.
    /// let mut errors = Array2::zeros((32, 32));
    /// errors.slice_mut(s![..16, ..16]).fill(1e-14);
    /// let error = WavefrontError::of(&errors.view(), &array, &valid)?;
    /// assert!((error.rms / (1e-7 * 0.375f64.sqrt()) - 1.0).abs() < 1e-6 && error.rms_without_tilt < 1e-6 * error.rms);
    /// // Independent noise of 1e-7 rad: of one lenslet of 2 m, and of squares of 8 and 16 lenslets, in units of their side.
    /// let variance = |lenslets: usize, side: f64| -> Result<f64, lenslet::Error> {
    ///     let array = LensletArray::new(lenslets, side)?;
    ///     let valid = Array2::from_elem((lenslets, lenslets), true);
    ///     let noise = Array2::from_diag_elem(2 * lenslets * lenslets, 1e-14);
    ///     let error = WavefrontError::of(&noise.view(), &array, &valid)?;
    ///     Ok((error.rms / (1e-7 * side)).powi(2))
    /// };
    /// assert!((variance(1, 2.0)? - 0.5).abs() < 1e-6);
    /// let [small, large] = [variance(8, 0.5)?, variance(16, 0.5)?];
    /// assert!((small - 1.202).abs() < 1e-3 && (large - 1.424).abs() < 1e-3);
    /// assert!(((large - small) / 2f64.ln() / 0.3206 - 1.0).abs() < 0.01); // Fried: 0.6558 (1 + 0.24441 ln N²)
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn of(
        errors: &ArrayView2<f64>,
        array: &LensletArray,
        valid: &Array2<bool>,
    ) -> Result<Self, Error> {
        let corners = LensletCorners::of(array, valid);
        let slopes = 2 * corners.cells.len();
        // Refuse a covariance of other slopes
        if errors.dim() != (slopes, slopes) || slopes == 0 {
            let expected = format!("({slopes}, {slopes}), x and y of {} lenslets", slopes / 2);
            return Err(
                Invalid::new("error covariance", format!("{:?}", errors.dim()), expected).into()
            );
        }
        let wavefront = corners.integrate(errors)?;
        Ok(corners.map(&wavefront))
    }
}

// Errors of all targets of a system
impl Reconstruction {
    // Reconstruction as a data set
    /// The reconstruction as a data set, with the `errors` of its [wavefronts](Self::wavefront_errors) and a description of the system.
    pub fn to_data_set(&self, system: &System, errors: &[WavefrontError]) -> DataSet<'_> {
        let mut data = DataSet::default();
        data.note("to", self.to.name(), "what the reconstructor gives");
        if let Some(reconstructor) = &self.reconstructor {
            let (dimensions, unit, about) = match self.to {
                ReconstructedQuantity::Slopes => (
                    "target, truth slope, slope",
                    "",
                    "slopes of a truth sensor per measured slope",
                ),
                ReconstructedQuantity::Wavefront => (
                    "target, point, slope",
                    "m/rad",
                    "wavefront at its points, row by row, per slope",
                ),
                ReconstructedQuantity::Actuators => {
                    ("command, actuator, slope", "m/rad", "strokes of all mirrors per slope")
                }
            };
            let variable = data.add_result("reconstructor", reconstructor.view());
            variable.unit(unit).dimensions(dimensions).long_name(about);
        }
        if !self.actuators.is_empty() {
            add_actuators(&mut data, &self.actuators);
        }
        let to_wavefront = self.to == ReconstructedQuantity::Wavefront;
        if !to_wavefront {
            let about = "covariance of the error of the truth sensor's slopes";
            let variable = data.add_result("error_covariance", self.error_covariance.view());
            variable.unit("rad2").dimensions("target, truth slope, truth slope").long_name(about);
        }
        let about = match to_wavefront {
            true => "variance of the wavefront's error at its points",
            false => "variance of the wavefront at the corners of the truth sensor's lenslets",
        };
        add_errors(&mut data, errors, about);
        if let Some(covariances) = &self.covariances {
            for (name, matrix) in [
                ("c_mm", &covariances.measurements),
                ("c_tm", &covariances.truth_measurements),
                ("c_tt", &covariances.truth),
            ] {
                data.add_result(name, matrix.view()).unit("rad2").dimensions("slope, slope");
            }
        }
        if let Some((values, _)) = &self.spectrum {
            let eigenvalues = data.add("eigenvalues", ArrayView1::from(values)).unit("rad2");
            eigenvalues.long_name("of the measurements, ascending");
        }
        describe_system(&mut data, system);
        if !to_wavefront {
            let valid = data.add("truth_valid", truth_valid(system)).dimensions("y, x");
            valid.long_name("lenslets of the truth sensor");
        }
        data.add_table("slope_table", slope_table(system));
        data
    }

    /// The error of the wavefront of each target of the system that was reconstructed: at the points of a reconstructed wavefront, otherwise at the
    /// corners of the truth sensor's lenslets.
    ///
    /// # Errors
    /// `Invalid` where the reconstruction is that of a system with another truth sensor.
    ///
    /// ```
    /// use lenslet::model::{System, TipTilt};
    /// use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
    /// use lenslet::{device::Engine, plan::Plan, watch::unwatched};
    /// let first = |system: &System| -> Result<[f64; 2], lenslet::Error> {
    ///     let plan = ReconstructorPlan::new(system, ReconstructorOptions::default())?;
    ///     let errors = plan.run(&Engine::default(), &unwatched)?.wavefront_errors(system)?;
    ///     Ok([errors[0].rms, errors[0].rms_without_tilt].map(|error| (1e9 * error).round()))
    /// };
    /// let system = System::from_file("book/systems/small-moao.toml")?;
    /// let mut stars = system.guide_stars().to_vec();
    /// stars[0].tip_tilt = TipTilt::Removed;
    /// let removed = system.to_builder().guide_stars(stars).build()?;
    /// assert_eq!((first(&system)?, first(&removed)?), ([163.0, 156.0], [194.0, 156.0])); // nm
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn wavefront_errors(&self, system: &System) -> Result<Vec<WavefrontError>, Error> {
        match self.to {
            ReconstructedQuantity::Wavefront => Ok(self.point_errors.clone()),
            _ => errors_of(&self.error_covariance, system),
        }
    }

    // Errors without or with prediction
    /// The errors of the other reconstructor, without or with prediction, if there is a delay.
    ///
    /// # Errors
    /// As [`wavefront_errors`](Self::wavefront_errors).
    pub fn other_wavefront_errors(
        &self,
        system: &System,
    ) -> Result<Option<Vec<WavefrontError>>, Error> {
        self.other_error_covariance.as_ref().map(|errors| errors_of(errors, system)).transpose()
    }
}

// Actuators in a data set
/// Adds the mirror and the position of each actuator, and the altitude of each mirror.
fn add_actuators(data: &mut DataSet, actuators: &[Actuator]) {
    let mirrors: Array1<i64> = actuators.iter().map(|actuator| actuator.mirror as i64).collect();
    let variable = data.add("actuator_mirror", mirrors).dimensions("actuator");
    variable.long_name("number of the mirror of each actuator, from 0");
    let position = |(k, axis): (usize, usize)| actuators[k].position[axis];
    let positions = Array2::from_shape_fn((actuators.len(), 2), position);
    let variable = data.add("actuator_positions", positions).unit("m");
    let about = "x and y in the plane to which the mirror is conjugate";
    variable.dimensions("actuator, component").long_name(about);
    let is_first = |&k: &usize| k == 0 || actuators[k].mirror != actuators[k - 1].mirror;
    let altitudes: Array1<f64> =
        (0..actuators.len()).filter(is_first).map(|k| actuators[k].altitude).collect();
    data.add("mirror_altitudes", altitudes).unit("m").dimensions("mirror");
}

// Maps of errors in a data set
/// Adds the maps of the errors of some targets to a data set.
pub(crate) fn add_errors(data: &mut DataSet, errors: &[WavefrontError], about: &str) {
    let (rows, columns) = errors[0].variance.dim();
    let maps = |map: fn(&WavefrontError) -> &Array2<f64>| {
        Array3::from_shape_fn((errors.len(), rows, columns), |(t, j, i)| map(&errors[t])[[j, i]])
    };
    let entry = data.add("error_map", maps(|error| &error.variance));
    entry.unit("m2").dimensions("target, y, x").long_name(about);
    let entry = data.add("error_map_without_tilt", maps(|error| &error.variance_without_tilt));
    entry.unit("m2").dimensions("target, y, x").long_name(about);
    let rms = |(t, k): (usize, usize)| [errors[t].rms, errors[t].rms_without_tilt][k];
    let rms = Array2::from_shape_fn((errors.len(), 2), rms);
    data.add("error_rms", rms).unit("m").dimensions("target, with tilt and without");
}

fn errors_of(errors: &Array3<f64>, system: &System) -> Result<Vec<WavefrontError>, Error> {
    let (truth, valid) = (system.truth_sensor(), truth_valid(system));
    errors.outer_iter().map(|error| WavefrontError::of(&error, truth, &valid)).collect()
}

// Time of the errors of wavefronts
impl ReconstructorPlan {
    /// The stage that integrates the errors of the slopes to those of the wavefronts, on cores; none where wavefronts are reconstructed, with their
    /// errors.
    pub fn stage_of_wavefront_errors(&self, cores: &Engine) -> Option<Stage> {
        if self.to() == ReconstructedQuantity::Wavefront {
            return None;
        }
        let m = self.truth_slopes() as f64;
        let maps = (self.targets() * if self.is_delayed() { 2 } else { 1 }) as f64;
        let work = MatrixRates::of_threads().products(maps * m.powi(3), m);
        Some(Stage::shared("error of the wavefront", &[work], cores))
    }
}

// Corners of the valid lenslets
/// The corners of valid lenslets, in the order of their first lenslet.
struct LensletCorners {
    /// Lenslets along an axis, and their side in metres.
    lenslets: usize,
    side: f64,
    /// Row and column of each corner.
    places: Vec<[usize; 2]>,
    /// Corners of each valid lenslet: south-west, south-east, north-west, north-east.
    cells: Vec<[usize; 4]>,
    /// Share of the pupil's area that is nearest to each corner.
    area: Array1<f64>,
}

impl LensletCorners {
    // Number the corners of lenslets
    fn of(array: &LensletArray, valid: &Array2<bool>) -> Self {
        let lenslets = array.lenslets();
        let (mut numbers, mut places) =
            (Array2::from_elem((lenslets + 1, lenslets + 1), None), Vec::new());
        let mut cells = Vec::new();
        for ((j, i), _) in valid.indexed_iter().filter(|(_, valid)| **valid) {
            cells.push([[j, i], [j, i + 1], [j + 1, i], [j + 1, i + 1]].map(|place| {
                *numbers[place].get_or_insert_with(|| {
                    places.push(place);
                    places.len() - 1
                })
            }));
        }
        let mut area = Array1::zeros(places.len());
        let share = 0.25 / cells.len() as f64;
        cells.iter().flatten().for_each(|&corner| area[corner] += share);
        Self { lenslets, side: array.pitch(), places, cells, area }
    }

    // Slopes at corners
    /// 2d H, (m, p).
    fn slopes(&self) -> Array2<f64> {
        let lenslets = self.cells.len();
        let mut slopes = Array2::zeros((2 * lenslets, self.places.len()));
        for (axis, signs) in SIGNS[..2].iter().enumerate() {
            for (k, cell) in self.cells.iter().enumerate() {
                let row = axis * lenslets + k;
                cell.iter().zip(signs).for_each(|(&corner, sign)| slopes[[row, corner]] = *sign);
            }
        }
        slopes
    }

    // Connected parts of the pupil
    /// Corners of each connected part of the pupil.
    fn parts(&self) -> Vec<Vec<usize>> {
        let mut part: Vec<usize> = (0..self.places.len()).collect();
        // Each corner takes the least number of its lenslets' corners, until nothing changes.
        loop {
            let before = part.clone();
            for cell in self.cells.iter().chain(self.cells.iter().rev()) {
                let least = cell.iter().map(|&corner| part[corner]).min().unwrap_or(0);
                cell.iter().for_each(|&corner| part[corner] = least);
            }
            if part == before {
                break;
            }
        }
        let mut parts: Vec<Vec<usize>> = vec![Vec::new(); part.len()];
        part.iter().enumerate().for_each(|(corner, &least)| parts[least].push(corner));
        parts.retain(|part| !part.is_empty());
        parts
    }
}

// Matrix of slopes and corners
/// Signs of the corners of a lenslet in its x slope, its y slope, and its waffle.
const SIGNS: [[f64; 4]; 3] =
    [[-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, 1.0], [1.0, -1.0, -1.0, 1.0]];

/// ε: weight of waffle relative to slopes.
const WAFFLE: f64 = 1e-7;

impl LensletCorners {
    /// N' times 4d², (p, p).
    fn normal(&self) -> Array2<f64> {
        let p = self.places.len();
        let mut normal = Array2::zeros((p, p));
        // Add the patterns of all cells
        for cell in &self.cells {
            for (signs, weight) in SIGNS.iter().zip([1.0, 1.0, WAFFLE]) {
                for (a, sign_a) in cell.iter().zip(signs) {
                    for (b, sign_b) in cell.iter().zip(signs) {
                        normal[[*a, *b]] += weight * sign_a * sign_b;
                    }
                }
            }
        }
        for part in self.parts() {
            for &a in &part {
                part.iter().for_each(|&b| normal[[a, b]] += 1.0 / part.len() as f64);
            }
        }
        normal
    }
}

// Integrate a covariance of slopes
impl LensletCorners {
    /// C_ww of Eq. [wavefront error](https://lenslet.github.io/lenslet/tomographic-error.html#eq-wavefront-error), (p, p), m².
    fn integrate(&self, errors: &ArrayView2<f64>) -> Result<Array2<f64>, Error> {
        let singular = |error| Error::Failed {
            what: "the integration of slopes over the pupil".to_string(),
            reason: format!("{error}"),
        };
        let integral = {
            let factor = Cholesky::new(self.normal()).map_err(singular)?;
            let mut of_slopes = self.slopes();
            factor.halve(&mut of_slopes);
            factor.finish(&mut of_slopes);
            of_slopes.t().as_standard_layout().into_owned()
        };
        let once = times_transpose(&integral, errors); // C_ee is symmetric
        Ok(times_transpose(&once, &integral) * (4.0 * self.side * self.side))
    }
}

// Piston and tilts over the pupil
/// Piston and the given tilts, orthonormal over the area of the pupil; a tilt is left out where the pupil is too narrow for it.
pub(crate) fn piston_and_tilts(area: &Array1<f64>, tilts: [Array1<f64>; 2]) -> Vec<Array1<f64>> {
    let mut modes: Vec<Array1<f64>> = Vec::new();
    for mut mode in [Array1::ones(area.len())].into_iter().chain(tilts) {
        for known in &modes {
            let share = (area * known).dot(&mode);
            mode.scaled_add(-share, known);
        }
        let square = (area * &mode).dot(&mode);
        if square > 1e-9 {
            modes.push(mode / square.sqrt());
        }
    }
    modes
}

// Take modes out of variances
/// Variances of Eq. [projected variance](https://lenslet.github.io/lenslet/tomographic-error.html#eq-projected-variance), of those with the modes, and of the covariances with each mode.
pub(crate) fn without_modes(
    area: &Array1<f64>,
    modes: &[Array1<f64>],
    covariances: &[Array1<f64>],
    mut variance: Array1<f64>,
) -> Array1<f64> {
    for (mode, common) in modes.iter().zip(covariances) {
        variance = variance - 2.0 * mode * common;
        for (other, also) in modes.iter().zip(covariances) {
            variance = variance + (area * mode).dot(also) * mode * other;
        }
    }
    variance
}

// Map the error of a wavefront
impl LensletCorners {
    // Piston and tilts at the corners
    /// Piston and tilts at the corners.
    fn modes(&self) -> Vec<Array1<f64>> {
        let along = |axis: usize| -> Array1<f64> {
            self.places
                .iter()
                .map(|place| place[axis] as f64 - 0.5 * self.lenslets as f64)
                .collect()
        };
        piston_and_tilts(&self.area, [along(1), along(0)])
    }

    fn map(&self, wavefront: &Array2<f64>) -> WavefrontError {
        let modes = self.modes();
        let with_mode = |mode: &Array1<f64>| wavefront.dot(&(&self.area * mode));
        let covariances: Vec<Array1<f64>> = modes.iter().map(with_mode).collect();
        let [with, without] = [1, modes.len()].map(|count| {
            let all = wavefront.diag().to_owned();
            without_modes(&self.area, &modes[..count], &covariances[..count], all)
        });
        let rms = |variance: &Array1<f64>| self.area.dot(variance).max(0.0).sqrt();
        let over_the_pupil = |variance: &Array1<f64>| {
            let mut map = Array2::from_elem((self.lenslets + 1, self.lenslets + 1), f64::NAN);
            self.places.iter().zip(variance).for_each(|(place, value)| map[*place] = *value);
            map
        };
        WavefrontError {
            variance: over_the_pupil(&with),
            variance_without_tilt: over_the_pupil(&without),
            rms: rms(&with),
            rms_without_tilt: rms(&without),
        }
    }
}

// Tests of the wavefront error
#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimation::simulation::Simulation;
    use crate::model::atmosphere::Atmosphere;
    use crate::model::noise::GuideStar;
    use crate::model::removed_modes::{Focus, Mode, RemovedModes, TipTilt};
    use crate::model::source::Source;
    use crate::plan::Plan;
    use crate::tomography::covariance_matrix::tests::system;
    use crate::tomography::reconstructor::ReconstructorOptions;
    use crate::watch::unwatched;
    use ndarray::{Array3, Axis, s};

    /// Turbulence realisations.
    const REALISATIONS: usize = 200;

    // Test the error of a parabola
    #[test]
    fn a_parabola_comes_back() {
        let array = LensletArray::new(7, 0.4).unwrap();
        let valid = Array2::from_shape_fn((7, 7), |(j, i)| (2 * j + 3 * i) % 11 != 4 && i + j > 2);
        // w = c (x² + 2 y² + x), c of variance 1e-14.
        let slopes = |place: [usize; 2]| {
            let [x, y] = [array.centre(place[1]), array.centre(place[0])];
            [2.0 * x + 1.0, 4.0 * y]
        };
        let centres: Vec<[f64; 2]> = (valid.indexed_iter().filter(|(_, valid)| **valid))
            .map(|((j, i), _)| slopes([j, i]))
            .collect();
        let s: Array1<f64> =
            [0, 1].iter().flat_map(|&axis| centres.iter().map(move |s| s[axis])).collect();
        let n = s.len();
        let errors = Array2::from_shape_fn((n, n), |(k, l)| 1e-14 * s[k] * s[l]);
        let found = WavefrontError::of(&errors.view(), &array, &valid).unwrap();
        // Compare with the parabola itself
        let corners = LensletCorners::of(&array, &valid);
        let at = |place: &[usize; 2]| {
            let [y, x] = place.map(|k| 0.4 * (k as f64 - 3.5));
            [1.0, x, y, x * x + 2.0 * y * y + x]
        };
        let basis: Vec<[f64; 4]> = corners.places.iter().map(at).collect();
        for (modes, map, rms) in [
            (1, &found.variance, found.rms),
            (3, &found.variance_without_tilt, found.rms_without_tilt),
        ] {
            // Weighted least squares of the wavefront on the modes, by the normal equations.
            let mut rest: Array1<f64> = basis.iter().map(|row| row[3]).collect();
            for _ in 0..200 {
                for k in 0..modes {
                    let mode: Array1<f64> = basis.iter().map(|row| row[k]).collect();
                    let weighted = &corners.area * &mode;
                    rest = &rest - &(&mode * (weighted.dot(&rest) / weighted.dot(&mode)));
                }
            }
            let expected = 1e-7 * (&corners.area * &rest).dot(&rest).sqrt();
            assert!((rms / expected - 1.0).abs() < 1e-5, "{modes}: {rms:e} {expected:e}");
            for (place, rest) in corners.places.iter().zip(&rest) {
                let gap = map[*place] - 1e-14 * rest * rest;
                assert!(
                    gap.abs() < 1e-4 * expected * expected,
                    "{modes} {place:?}: {gap:e} {expected:e}"
                );
            }
            assert_eq!(map.iter().filter(|v| v.is_nan()).count(), 64 - corners.places.len());
        }
    }

    // Test pupils in several parts
    #[test]
    fn pupils_may_be_in_parts() {
        let array = LensletArray::new(5, 1.0).unwrap();
        let mut valid = Array2::from_elem((5, 5), false);
        [[0, 0], [0, 1], [1, 1], [3, 3], [4, 4], [4, 0]].iter().for_each(|&at| valid[at] = true);
        assert_eq!(LensletCorners::of(&array, &valid).parts().len(), 3);
        let errors = Array2::from_diag(&Array1::from_elem(12, 1e-14));
        let error = WavefrontError::of(&errors.view(), &array, &valid).unwrap();
        assert!(error.rms > error.rms_without_tilt && error.rms_without_tilt > 0.0);
        let wrong = WavefrontError::of(&errors.slice(s![1.., ..]), &array, &valid).unwrap_err();
        assert!(wrong.to_string().starts_with("error covariance = (11, 12): expected (12, 12)"));
        // A single lenslet has tilts only.
        let one = Array2::from_elem((1, 1), true);
        let array = LensletArray::new(1, 2.0).unwrap();
        let tilts = Array2::from_diag(&Array1::from_elem(2, 1e-14));
        let error = WavefrontError::of(&tilts.view(), &array, &one).unwrap();
        assert!((error.rms - 1e-7 * 2f64.sqrt()).abs() < 1e-13 && error.rms_without_tilt < 1e-12);
    }

    // Test errors by simulated realisations
    #[test]
    fn simulated_realisations_confirm_the_error() {
        let (delay, wind) = (0.02, [2e-5, -3.5e-5]);
        let system = blown(&system(4e-14), wind, delay);
        let options = ReconstructorOptions::default();
        let run = |options| {
            let plan = ReconstructorPlan::new(&system, options).unwrap();
            let found = plan.run(&Engine::default(), &unwatched).unwrap();
            let rows = found.reconstructor.as_ref().unwrap();
            let shape = (rows.dim().0 * rows.dim().1, rows.dim().2);
            (rows.to_shape(shape).unwrap().to_owned(), found)
        };
        let ((rows, found), (later, predicted)) =
            (run(options.keep(true)), run(options.delay(delay)));
        let modes = modes_of_the_laser(&system);
        let (blind, blind_errors) = without(&modes, &found);
        let late = predicted.other_error_covariance.unwrap();
        let cases = [
            Case { rows: &rows, errors: &found.error_covariance, late: false, blind: false },
            Case { rows: &blind, errors: &blind_errors, late: false, blind: true },
            Case { rows: &later, errors: &predicted.error_covariance, late: true, blind: false },
            Case { rows: &rows, errors: &late, late: true, blind: false },
        ];
        // Compare residual slopes of each case
        let all = left(&system, &cases, &modes, wind);
        for (case, left) in cases.iter().zip(&all) {
            compare_with_realisations(case, left, &system);
        }
        let gain = all[3].fold(0.0, |sum, x| sum + x * x) / all[2].fold(0.0, |sum, x| sum + x * x);
        assert!(gain > 1.1, "{gain}");
    }

    // Cases of a simulated reconstruction
    /// A reconstructor of all targets, and the errors, (T, m, m), that are claimed for it.
    struct Case<'a> {
        rows: &'a Array2<f64>,
        errors: &'a Array3<f64>,
        /// Whether the true slopes are those after the delay.
        late: bool,
        /// Whether the removed modes of the measurements are offset.
        blind: bool,
    }

    /// The system under a wind that moves each layer, in `delay` seconds, by its altitude times an angle.
    fn blown(still: &System, [x, y]: [f64; 2], delay: f64) -> System {
        let mut layers = still.atmosphere().layers().to_vec();
        for layer in &mut layers {
            layer.wind_speed = layer.altitude * f64::hypot(x, y) / delay;
            layer.wind_direction = f64::atan2(y, x);
        }
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        still.to_builder().atmosphere(air).build().unwrap()
    }

    // Residual slopes of simulated realisations
    /// Errors of the true slopes in each case, (realisations, T m). The truth sensors are further stars in the same
    /// realisation, without noise; those after the delay point upwind.
    fn left(
        system: &System,
        cases: &[Case],
        modes: &RemovedModes,
        wind: [f64; 2],
    ) -> Vec<Array2<f64>> {
        let mut stars = system.guide_stars().to_vec();
        let truth = |source| GuideStar::at_rest(source, *system.truth_sensor(), 0.0).unwrap();
        let upwind = |target: &Source| {
            let [x, y] = target.direction();
            let [x, y] = [x - wind[0], y - wind[1]];
            Source::star(f64::hypot(x, y), f64::atan2(y, x)).unwrap()
        };
        stars.extend(system.targets().iter().map(|target| truth(*target)));
        stars.extend(system.targets().iter().map(|target| truth(upwind(target))));
        let turbulence =
            Simulation::new(&system.to_builder().guide_stars(stars).build().unwrap()).unwrap();
        let (m, n) = cases[0].rows.dim();
        let mut all = vec![Array2::zeros((REALISATIONS, m)); cases.len()];
        // Measure and reconstruct in each realisation
        for realisation in 0..REALISATIONS {
            let slopes =
                Array1::from(turbulence.realisation(realisation as u64 + 1).slopes.to_vec());
            let measured = slopes.slice(s![..n]).to_owned();
            let mut spoilt = measured.clone();
            for Mode { first, shape } in modes.iter() {
                let mut own = spoilt.slice_mut(s![*first..first + shape.len()]);
                own.scaled_add(3e-5, &Array1::from(shape.clone()));
            }
            for (case, left) in cases.iter().zip(&mut all) {
                let from = n + if case.late { m } else { 0 };
                let frame_slopes = if case.blind { &spoilt } else { &measured };
                left.row_mut(realisation)
                    .assign(&(&slopes.slice(s![from..from + m]) - &case.rows.dot(frame_slopes)));
            }
        }
        all
    }

    // Compare variances of residual slopes
    fn compare_with_realisations(case: &Case, left: &Array2<f64>, system: &System) {
        let (targets, m, _) = case.errors.dim();
        for t in 0..targets {
            let left = left.slice(s![.., t * m..(t + 1) * m]);
            let expected = case.errors.index_axis(Axis(0), t).to_owned();
            let measured = left.t().dot(&left) / REALISATIONS as f64;
            // A variance from n realisations has a relative standard error of √(2/n); that of the mean over slopes is smaller.
            let bar = (2.0 / REALISATIONS as f64).sqrt();
            let ratio = measured.diag().sum() / expected.diag().sum();
            assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
            for (measured, expected) in measured.diag().iter().zip(expected.diag()) {
                assert!((measured / expected - 1.0).abs() < 5.0 * bar, "{measured:e} {expected:e}");
            }
            let of = |errors: &Array2<f64>| {
                WavefrontError::of(&errors.view(), system.truth_sensor(), &truth_valid(system))
                    .unwrap()
            };
            let (measured, expected) = (of(&measured), of(&expected));
            assert!((measured.rms / expected.rms - 1.0).abs() < 0.06, "{measured:?}");
            assert!((measured.rms_without_tilt / expected.rms_without_tilt - 1.0).abs() < 0.04);
            assert!(expected.rms_without_tilt < expected.rms);
            assert!(
                expected.rms_without_tilt > 100e-9 && expected.rms < 400e-9,
                "{:e}",
                expected.rms
            );
        }
    }

    // Reconstruct without modes in a test
    fn modes_of_the_laser(system: &System) -> RemovedModes {
        let mut stars = system.guide_stars().to_vec();
        (stars[0].tip_tilt, stars[0].focus) = (TipTilt::Removed, Focus::Removed);
        system.to_builder().guide_stars(stars).build().unwrap().removed_modes()
    }

    /// Reconstructor of all targets, (T m, n), and errors from covariances without modes.
    fn without(modes: &RemovedModes, found: &Reconstruction) -> (Array2<f64>, Array3<f64>) {
        let mut covariances = found.covariances.clone().unwrap();
        covariances.remove(modes);
        let factor = Cholesky::new(covariances.measurements).unwrap();
        let (mut rows, mut errors) =
            (covariances.truth_measurements, found.error_covariance.clone());
        factor.halve(&mut rows);
        for (mut error, half) in
            errors.outer_iter_mut().zip(rows.axis_chunks_iter(Axis(0), covariances.truth.nrows()))
        {
            error.assign(&(&covariances.truth - &half.dot(&half.t())));
        }
        factor.finish(&mut rows);
        (rows, errors)
    }
}
