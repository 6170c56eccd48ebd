// Tangled from book/src/stroke-projection.md: edit there, or here and run cargo tangle stitch.
//! From slopes to the strokes of a mirror.

mod gpu;

// Imports of projectors
use crate::correction::mirror::Mirror;
use crate::device::Engine;
use crate::error::{Error, accept};
use crate::linear::{SingularValues, times_transpose};
use crate::model::source::Source;
use crate::model::system::System;
use ndarray::{Array2, ArrayView2};

// Projector onto a mirror
/// Projector of slopes onto the strokes of a mirror that fit them best, by least squares.
#[derive(Debug, Clone)]
pub struct Projector {
    interaction: Array2<f64>,
    inverse: Array2<f64>,
    values: Vec<f64>,
    kept: usize,
}

impl Projector {
    // Projector by a truth sensor
    /// The projector onto a mirror from the slopes of the system's truth sensor in the direction of a star, with the filter of the mirror.
    /// The engine computes the singular values.
    ///
    /// # Errors
    /// `Failed` if the singular values do not converge; `Invalid` if the truth sensor measures no slopes for any actuator; errors of a device.
    pub fn new(
        mirror: &Mirror,
        system: &System,
        star: &Source,
        engine: &Engine,
    ) -> Result<Self, Error> {
        Self::of(mirror.interaction(system, star), mirror.filter(), engine)
    }

    // Filter the singular values of an interaction
    /// The projector of an interaction matrix, (m, a), without the singular values that are below `filter` times the largest, Eq. [filtered inverse](https://lenslet.github.io/lenslet/stroke-projection.html#eq-filtered-inverse).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(interaction: Array2<f64>, filter: f64, engine: &Engine) -> Result<Self, Error> {
        SingularValues::check_filter(filter)?;
        let expected = "a mirror of which the truth sensor sees something";
        accept(interaction.iter().any(|&slope| slope != 0.0), "mirror", "no slopes", expected)?;
        if let Some(gpu) = Self::device(engine, filter) {
            return Self::there(gpu, interaction, filter);
        }
        let parts = SingularValues::new(&interaction)?;
        let kept = parts.kept(filter);
        let inverse = parts.inverse(kept);
        Ok(Self { interaction, inverse, values: parts.values().to_vec(), kept })
    }

    // Getters of a projector
    /// J, (m, a), 1/m.
    pub fn interaction(&self) -> &Array2<f64> {
        &self.interaction
    }

    /// J⁺, (a, m), m.
    pub fn inverse(&self) -> &Array2<f64> {
        &self.inverse
    }

    /// The singular values of J, descending, 1/m, and how many of them are kept.
    pub fn spectrum(&self) -> (&[f64], usize) {
        (&self.values, self.kept)
    }
}

// Strokes and their errors
impl Projector {
    /// C_vv, (a, a), m²: covariance of the errors of strokes, for the covariance C_ee, (m, m), rad², of the errors of slopes, Eq. [stroke errors](https://lenslet.github.io/lenslet/stroke-projection.html#eq-stroke-errors).
    ///
    /// # Errors
    /// `Invalid` if the shape is not that of the slopes of the truth sensor; errors of a device.
    pub fn stroke_errors(
        &self,
        slope_errors: &ArrayView2<f64>,
        engine: &Engine,
    ) -> Result<Array2<f64>, Error> {
        self.check_errors(slope_errors)?;
        if let Some(gpu) = engine.devices().first() {
            return self.errors_on_device(gpu, slope_errors);
        }
        let once = times_transpose(&self.inverse, slope_errors); // C_ee is symmetric
        let mut errors = times_transpose(&once, &self.inverse);
        make_even(&mut errors);
        Ok(errors)
    }

    // Reject error covariances of other slopes
    /// Rejects a covariance of other slopes.
    fn check_errors(&self, slope_errors: &ArrayView2<f64>) -> Result<(), Error> {
        let m = self.interaction.nrows();
        let expected = format!("({m}, {m}), the slopes of the truth sensor");
        accept(slope_errors.dim() == (m, m), "error covariance", slope_errors.dim(), &expected)?;
        Ok(())
    }
}

// Make a symmetric matrix exactly symmetric
/// Makes a matrix that is symmetric up to rounding exactly symmetric.
fn make_even(matrix: &mut Array2<f64>) {
    let mirrored = matrix.t().to_owned();
    matrix.zip_mut_with(&mirrored, |a, b| *a = 0.5 * (*a + b));
}

// Tests of projectors
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::mirror::tests::{star, ten_across};
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::system::SlopeModel;
    use ndarray::{Array1, s};

    // Strokes come back from their slopes
    #[test]
    fn strokes_come_back_from_their_slopes() {
        for model in [SlopeModel::Average, SlopeModel::EdgeMidpoint] {
            let system = ten_across(model, &[]);
            let design = MirrorDesign { filter: 1e-4, ..MirrorDesign::new(Spacing::Actuators(11)) };
            let mirror = Mirror::new(&design, &system).unwrap();
            let projector =
                Projector::new(&mirror, &system, &star(0.0, 0.0), &Engine::default()).unwrap();
            let (values, kept) = projector.spectrum();
            assert_eq!((values.len(), projector.interaction().dim()), (100, (152, 100)));
            assert_eq!(kept, 100);
            // What is made of slopes is made of them again: J J⁺ J = J, but for what is filtered.
            let (j, inverse) = (projector.interaction(), projector.inverse());
            let strokes = Array1::from_shape_fn(100, |a| ((7 * a + 3) as f64).sin());
            let slopes = j.dot(&strokes);
            let again = j.dot(&inverse.dot(&slopes));
            let largest = slopes.fold(0.0, |most: f64, s| most.max(s.abs()));
            assert!((&again - &slopes).iter().all(|gap| gap.abs() < 1e-4 * largest));
            // Equal slopes along x are a tilt: strokes rise by the pitch from one actuator to the next.
            let mut tilt = Array1::zeros(152);
            tilt.slice_mut(s![..76]).fill(1.0);
            let strokes = inverse.dot(&tilt);
            let height = |[x, y]: [f64; 2]| -> f64 {
                let actuators = mirror.positions().iter().zip(&strokes);
                actuators.map(|([u, w], stroke)| stroke * mirror.influence([x - u, y - w])).sum()
            };
            let rise = height([1.5, 0.9]) - height([-0.9, -0.6]);
            assert!((rise / 2.4 - 1.0).abs() < 0.02, "{rise}");
        }
    }

    // Covariances of strokes are projected
    #[test]
    fn covariances_of_strokes_are_projected() {
        let system = ten_across(SlopeModel::Average, &[]);
        let mirror = Mirror::new(&MirrorDesign::new(Spacing::Actuators(11)), &system).unwrap();
        let projector =
            Projector::new(&mirror, &system, &star(0.0, 0.0), &Engine::default()).unwrap();
        // One error of slopes, of variance 1e-14: that of its strokes is their product.
        let slopes = Array1::from_shape_fn(152, |k| ((3 * k + 1) as f64).cos());
        let errors = Array2::from_shape_fn((152, 152), |(k, l)| 1e-14 * slopes[k] * slopes[l]);
        let found = projector.stroke_errors(&errors.view(), &Engine::default()).unwrap();
        let strokes = projector.inverse().dot(&slopes);
        for ((k, l), found) in found.indexed_iter() {
            assert!((found - 1e-14 * strokes[k] * strokes[l]).abs() < 1e-24);
        }
        assert_eq!(found, found.t());
        // Of the strokes that are kept, all are: J⁺ J J⁺ = J⁺.
        let (j, inverse) = (projector.interaction(), projector.inverse());
        let gap = inverse.dot(j).dot(inverse) - inverse;
        assert!(gap.iter().all(|gap| gap.abs() < 1e-12));
        let coarse = Projector::of(j.clone(), 1.0 / 30f64.sqrt(), &Engine::default()).unwrap();
        let ((values, kept), few) = (projector.spectrum(), coarse.spectrum().1);
        assert!(few < kept && values[few] < values[0] / 30f64.sqrt() && few > 50, "{few} {kept}");
        let wrong = projector.stroke_errors(&errors.slice(s![1.., ..]), &Engine::default());
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.starts_with("error covariance"), "{wrong}");
        let blind = Projector::of(Array2::zeros((4, 3)), 0.1, &Engine::default()).unwrap_err();
        assert!(blind.to_string().starts_with("mirror = \"no slopes\""), "{blind}");
    }
}
