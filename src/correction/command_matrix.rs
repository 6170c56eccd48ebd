// Tangled from book/src/command-matrix.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors of strokes: the command matrices of a system's mirrors.

// Imports of command matrices
use crate::correction::modes::{Correction, CorrectionMode, CorrectionOptions};
use crate::device::Engine;
use crate::error::Error;
#[cfg(feature = "files")]
use crate::model::SystemFile;
use crate::model::system::System;
#[cfg(feature = "files")]
use crate::tomography::reconstructor::ReconstructedQuantity;
use crate::tomography::reconstructor::{
    Actuator, ReconstructorOptions, ReconstructorPlan, StrokeProjection,
};
use ndarray::{Array2, Array3};
use std::sync::Arc;

// Projection of slopes onto the mirrors of a correction
impl StrokeProjection for Correction {
    fn commands(&self) -> usize {
        if self.mode() == CorrectionMode::Moao { self.system().targets().len() } else { 1 }
    }

    fn targets(&self) -> usize {
        Self::targets(self)
    }

    fn actuators(&self) -> Vec<Actuator> {
        let of_mirror = |(mirror, design): (usize, &crate::correction::Mirror)| {
            let altitude = design.altitude();
            let actuator = move |&position| Actuator { mirror, altitude, position };
            design.positions().iter().map(actuator).collect::<Vec<_>>()
        };
        self.mirrors().iter().enumerate().flat_map(of_mirror).collect()
    }

    fn project(&self, rows: &Array3<f64>, engine: &Engine) -> Result<Vec<Array2<f64>>, Error> {
        Self::commands(self, rows, engine)
    }
}

// Plan the reconstructor of a correction
impl ReconstructorPlan {
    /// Plans the reconstructor of the strokes of a correction's mirrors, `to = "actuators"`.
    ///
    /// # Errors
    /// As for [`new`](Self::new) and [`Correction::new`]; `Invalid` where only errors are wanted.
    pub fn for_mirrors(
        system: &System,
        options: ReconstructorOptions,
        correction: &CorrectionOptions,
    ) -> Result<Self, Error> {
        let correction = Correction::new(system, correction)?;
        let system = correction.system().clone();
        Self::with_mirrors(&system, options, Arc::new(correction))
    }

    // Plan what a system file asks for
    /// Plans the reconstructor of a system file to the quantity of the `options`, with the mirrors of the file where these are strokes.
    ///
    /// # Errors
    /// As for [`new`](Self::new) and [`for_mirrors`](Self::for_mirrors), and those of a wrong file.
    ///
    /// ```
    /// use lenslet::{device::Engine, model::SystemFile, plan::Plan, tomography::*, watch::unwatched};
    /// let file = SystemFile::from_file("book/systems/small-moao.toml")?;
    /// let options = ReconstructorOptions::from_system_file(&file)?.to(ReconstructedQuantity::Actuators);
    /// let plan = ReconstructorPlan::from_system_file(&file, options)?;
    /// assert_eq!(plan.shape(), [2, 68, 232]); // targets, actuators, slopes
    /// let found = plan.run(&Engine::default(), &unwatched)?;
    /// assert_eq!((found.actuators.len(), found.actuators[67].mirror), (68, 0));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    #[cfg(feature = "files")]
    pub fn from_system_file(
        file: &SystemFile,
        options: ReconstructorOptions,
    ) -> Result<Self, Error> {
        let system = file.system()?;
        if options.to != ReconstructedQuantity::Actuators {
            return Self::new(&system, options);
        }
        match CorrectionOptions::from_system_file(file)? {
            Some(correction) => Self::for_mirrors(&system, options, &correction),
            None => {
                let expected = "a table [[mirror]], as reconstructor.to = \"actuators\"";
                Err(file.root()?.missing("mirror", expected).into())
            }
        }
    }
}

// Tests of command matrices
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::mirror::tests::{star, ten_across};
    use crate::estimation::inversion::Inversion;
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::noise::GuideStar;
    use crate::model::system::SlopeModel;
    use crate::plan::Plan;
    use crate::tomography::covariance_matrix::tests::{system, windy};
    use crate::tomography::reconstructor::{ReconstructedQuantity, Reconstruction};
    use crate::watch::unwatched;
    use CorrectionMode::{Glao, Ltao, Mcao, Moao, Scao};
    use ndarray::{Array1, Axis};

    // Plan mirrors in a test
    fn mirrors(mode: CorrectionMode, altitudes: &[f64]) -> CorrectionOptions {
        let mirror =
            |&altitude: &f64| MirrorDesign { altitude, ..MirrorDesign::new(Spacing::Actuators(6)) };
        CorrectionOptions::new(mode, altitudes.iter().map(mirror).collect())
    }

    fn run(plan: Result<ReconstructorPlan, Error>) -> Reconstruction {
        plan.unwrap().run(&Engine::default(), &unwatched).unwrap()
    }

    fn gap(one: &Array3<f64>, other: &Array3<f64>) -> f64 {
        let size = |all: &Array3<f64>| all.fold(0.0, |most: f64, value| most.max(value.abs()));
        size(&(one - other)) / size(other)
    }

    // Compare strokes with commands of slopes
    #[test]
    fn strokes_are_commands_of_the_slope_reconstructor() {
        let (whole, engine) = (windy(2e-14), Engine::default());
        let weighed = |mode, weights: [f64; 2]| mirrors(mode, &[0.0]).weights(weights.to_vec());
        let late = ReconstructorOptions::default().delay(5e-3);
        for (options, correction, commands) in [
            (ReconstructorOptions::default(), mirrors(Moao, &[0.0]), 2),
            (late, mirrors(Moao, &[0.0]), 2),
            (ReconstructorOptions::default(), mirrors(Ltao, &[0.0]), 1),
            (ReconstructorOptions::default(), weighed(Glao, [3.0, 1.0]), 1),
            (ReconstructorOptions::default(), mirrors(Scao, &[0.0]), 1),
            (late.predict(false), mirrors(Mcao, &[0.0, 9e3]), 1),
        ] {
            let mode = correction.mode;
            let plan = ReconstructorPlan::for_mirrors(&whole, options, &correction).unwrap();
            let found = plan.run(&engine, &unwatched).unwrap();
            let posed = Correction::new(&whole, &correction).unwrap();
            let slopes = run(ReconstructorPlan::new(posed.system(), options));
            let expected = posed.commands(slopes.reconstructor.as_ref().unwrap(), &engine).unwrap();
            let matrix = found.reconstructor.as_ref().unwrap();
            let actuators = posed.mirrors().iter().map(|mirror| mirror.positions().len());
            let shape = [commands, actuators.sum(), plan.measurements()];
            assert_eq!((matrix.shape(), plan.shape()), (&shape[..], shape), "{mode:?}");
            for (matrix, expected) in matrix.outer_iter().zip(&expected) {
                assert_eq!(matrix, expected, "{mode:?}");
            }
            assert_eq!(expected.len(), commands);
            // Errors are those of the targets that are evaluated
            assert_eq!(found.error_covariance.dim().0, 2, "{mode:?}");
            let own = slopes.error_covariance.index_axis(Axis(0), 1);
            assert_eq!(found.error_covariance.index_axis(Axis(0), 1), own);
            assert_eq!(found.other_error_covariance.is_some(), options.delay > 0.0);
            let errors = found.wavefront_errors(&whole).unwrap();
            let data = found.to_data_set(&whole, &errors);
            let info = plan.describe(&engine).unwrap();
            for array in &info.arrays {
                assert!(data.shapes().contains(array), "{array:?} {:?}", data.shapes());
            }
            // Actuators have their mirrors and positions
            let mirrors = data.array::<i64, ndarray::Ix1>("actuator_mirror").unwrap();
            let positions = data.array::<f64, ndarray::Ix2>("actuator_positions").unwrap();
            let altitudes = data.array::<f64, ndarray::Ix1>("mirror_altitudes").unwrap();
            for (k, mirror) in posed.mirrors().iter().enumerate() {
                let own: Vec<usize> =
                    (0..mirrors.len()).filter(|&row| mirrors[row] == k as i64).collect();
                assert_eq!(own.len(), mirror.positions().len());
                for (&row, position) in own.iter().zip(mirror.positions()) {
                    assert_eq!(positions.row(row).to_vec(), position);
                }
                assert_eq!(altitudes[k], mirror.altitude());
            }
        }
    }

    // Reconstruct the strokes of a mirror from its slopes
    #[test]
    fn strokes_of_a_mirror_come_back() {
        let axis = star(0.0, 0.0);
        let system = ten_across(SlopeModel::Average, &[axis]);
        let guide_star = GuideStar::at_rest(axis, *system.lenslet_array(), 1e-20).unwrap();
        let system = system.to_builder().guide_stars([guide_star]).build().unwrap();
        let design = MirrorDesign { filter: 1e-4, ..MirrorDesign::new(Spacing::Actuators(11)) };
        let correction = CorrectionOptions::new(Ltao, vec![design]);
        let options = ReconstructorOptions::default();
        let found = run(ReconstructorPlan::for_mirrors(&system, options, &correction));
        let posed = Correction::new(&system, &correction).unwrap();
        let strokes = Array1::from_shape_fn(found.actuators.len(), |k| ((7 * k + 3) as f64).sin());
        let slopes = posed.interaction(&axis).dot(&strokes);
        let matrix = found.reconstructor.unwrap();
        let again = matrix.index_axis(Axis(0), 0).dot(&slopes);
        let worst = (&again - &strokes).fold(0.0, |most: f64, gap| most.max(gap.abs()));
        assert!(worst < 1e-2, "{worst:e}");
        assert!((&again + &strokes).iter().any(|sum| sum.abs() > 1.0));
    }

    // Iterate for strokes
    #[test]
    fn iterations_find_the_strokes_of_a_factor() {
        let whole = system(2e-14);
        let stars = [whole.guide_stars()[0].clone(), whole.guide_stars()[2].clone()];
        let few = whole.to_builder().guide_stars(stars).build().unwrap();
        let strokes = |method| {
            let options = ReconstructorOptions::default().method(method).tolerance(1e-10);
            let correction = mirrors(Mcao, &[0.0, 7e3]);
            let found = run(ReconstructorPlan::for_mirrors(&few, options, &correction));
            found.reconstructor.unwrap()
        };
        let factor = strokes(Inversion::Cholesky);
        assert!(gap(&strokes(Inversion::Iterative), &factor) < 1e-6);
        assert!(gap(&strokes(Inversion::Eigen), &factor) < 1e-6);
    }

    // Refuse strokes without mirrors
    #[cfg(feature = "files")]
    #[test]
    fn strokes_without_mirrors_are_refused() {
        let text = std::fs::read_to_string("book/systems/small-moao.toml").unwrap();
        let text = text.split("[reconstructor]").next().unwrap();
        let read =
            |more: &str| SystemFile::from_toml(&format!("{text}\n{more}"), "s.toml").unwrap();
        let options = ReconstructorOptions::default().to(ReconstructedQuantity::Actuators);
        let refused = |more: &str, options| {
            ReconstructorPlan::from_system_file(&read(more), options).unwrap_err().to_string()
        };
        assert_eq!(
            refused("", options),
            "s.toml:1: mirror is missing: expected a table [[mirror]], as reconstructor.to = \"actuators\""
        );
        let mirror = "[[mirror]]\nactuators = 6\n";
        let words = refused(mirror, options.errors_only(true));
        assert!(words.starts_with("errors_only = true: expected false with to = \"actuators\""));
        let file = read(mirror);
        let asked = read(&format!("{mirror}[reconstructor]\nto = 'actuators'\n"));
        assert_eq!(ReconstructorOptions::from_system_file(&asked).unwrap().to, options.to);
        let shape = |options| ReconstructorPlan::from_system_file(&file, options).unwrap().shape();
        assert!(shape(options)[1] < shape(ReconstructorOptions::default())[1]);
        // Old and unknown values of the key
        let wrong = |line: &str| {
            let file = SystemFile::from_toml(&format!("[reconstructor]\n{line}\n"), "s.toml");
            let read = file.and_then(|file| ReconstructorOptions::from_system_file(&file));
            read.unwrap_err().to_string()
        };
        assert_eq!(
            wrong("truth = 'wavefront'"),
            "s.toml:2: reconstructor.truth = 'wavefront': expected to, the new name of truth"
        );
        let words = wrong("to = 'phase'");
        assert!(words.contains("\"slopes\"") && words.contains("\"actuators\""), "{words}");
    }
}
