// Tangled from book/src/least-squares.md: edit there, or here and run cargo tangle stitch.
//! Nonlinear least squares by damped steps, within bounds.

// Imports of least squares
use crate::error::Error;
use crate::linear::factorisation::Eigen;
use crate::watch::{Watch, check};
use ndarray::{Array1, Array2, Axis, Zip};

// A model with residuals
/// A model that can be fitted: its residuals and their derivatives.
pub trait Residuals {
    /// The residuals at these parameters, each divided by its standard deviation.
    ///
    /// # Errors
    /// Errors of the model.
    fn residuals(&mut self, parameters: &[f64]) -> Result<Array1<f64>, Error>;

    /// The derivatives of the residuals by the parameters, (residuals, parameters).
    ///
    /// # Errors
    /// Errors of the model.
    fn jacobian(&mut self, parameters: &[f64]) -> Result<Array2<f64>, Error>;
}

// Fit a model by damped steps
/// Options of a fit.
///
/// ```
/// use lenslet::{watch::unwatched, linear::{LeastSquares, Residuals}, Error};
/// use ndarray::{Array1, Array2};
/// struct Decay; // data: 3 exp(-t/2)
/// impl Residuals for Decay {
///     fn residuals(&mut self, u: &[f64]) -> Result<Array1<f64>, Error> {
///         Ok(Array1::from_shape_fn(8, |t| u[0] * (-u[1] * t as f64).exp() - 3.0 * (-0.5 * t as f64).exp()))
///     }
///     fn jacobian(&mut self, u: &[f64]) -> Result<Array2<f64>, Error> {
///         let decay = |t: usize| (-u[1] * t as f64).exp();
///         Ok(Array2::from_shape_fn((8, 2), |(t, k)| [decay(t), -u[0] * t as f64 * decay(t)][k]))
///     }
/// }
/// let fit = LeastSquares { bounds: vec![[0.0, 10.0]; 2], floor: 1e-9, steps: 50 };
/// let found = fit.run(&mut Decay, &[1.0, 2.0], &unwatched)?;
/// assert!((found.parameters[0] - 3.0).abs() < 1e-8 && (found.parameters[1] - 0.5).abs() < 1e-8);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LeastSquares {
    /// The smallest and the largest value of each parameter.
    pub bounds: Vec<[f64; 2]>,
    /// The fit ends if the root of the sum of squares is below this value.
    pub floor: f64,
    /// The largest number of steps.
    pub steps: usize,
}

// Methods of a damped fit
// What a fit has found
/// The result of a fit.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The best parameters.
    pub parameters: Vec<f64>,
    /// The residuals at these parameters.
    pub residuals: Array1<f64>,
    /// The derivatives at these parameters.
    pub jacobian: Array2<f64>,
    /// Which parameters are at a bound beyond which the sum of squares decreases.
    pub held: Vec<bool>,
    /// Steps that were taken.
    pub steps: usize,
    /// Whether the fit has converged.
    pub converged: bool,
}

impl LeastSquares {
    // Minimise by damped steps
    /// Fits a model, starting from some parameters.
    ///
    /// # Errors
    /// Those of the model, `Cancelled`, and `Failed` if a matrix cannot be decomposed.
    ///
    /// # Panics
    /// If the number of bounds differs from that of the parameters.
    pub fn run(
        &self,
        model: &mut dyn Residuals,
        start: &[f64],
        watch: &dyn Watch,
    ) -> Result<Fitted, Error> {
        assert_eq!(start.len(), self.bounds.len(), "a bound for each parameter");
        let mut at = self.within(start.to_vec());
        let mut residuals = model.residuals(&at)?;
        let (mut damping, mut settled, mut steps) = (1e-3, false, 0);
        loop {
            check(watch)?;
            let jacobian = model.jacobian(&at)?;
            let gradient = jacobian.t().dot(&residuals);
            let held = self.held(&at, &gradient);
            settled |= norm(&residuals) <= self.floor;
            // Try a step unless settled
            let next = match settled || steps == self.steps {
                true => None,
                false => {
                    self.descend(model, (&at, &residuals), (&jacobian, &held), &mut damping)?
                }
            };
            // Return where no step is taken
            let Some((lower, left)) = next else {
                let converged = settled || steps < self.steps;
                return Ok(Fitted { parameters: at, residuals, jacobian, held, steps, converged });
            };
            // Settle where little is gained
            let gain = (norm(&residuals) - norm(&left)) * (norm(&residuals) + norm(&left));
            settled = gain <= LITTLE * norm(&left).powi(2);
            (at, residuals, steps) = (lower, left, steps + 1);
        }
    }

    // Try steps until one descends
    /// Parameters with a smaller sum of squares, and their residuals; none if no step reduces the sum.
    fn descend(
        &self,
        model: &mut dyn Residuals,
        (at, residuals): (&[f64], &Array1<f64>),
        (jacobian, held): (&Array2<f64>, &[bool]),
        damping: &mut f64,
    ) -> Result<Option<Iterate>, Error> {
        // Normal equations of the present parameters
        let normal = Normal::new(jacobian, held)?;
        let gradient = jacobian.t().dot(residuals).insert_axis(Axis(0));
        let now = norm(residuals).powi(2);
        for _ in 0..30 {
            // Predict the gain of a trial step
            let step = normal.solve(&gradient, *damping);
            let trial = self.within(at.iter().zip(&step).map(|(at, step)| at - step).collect());
            let moved: Array1<f64> = trial.iter().zip(at).map(|(trial, at)| trial - at).collect();
            let predicted = now - norm(&(residuals + &jacobian.dot(&moved))).powi(2);
            if trial == at || (*damping < 1e-2 && predicted <= LITTLE * now) {
                return Ok(None);
            }
            let left = model.residuals(&trial)?;
            let gained = now - norm(&left).powi(2);
            if gained > 0.0 {
                // Lower the damping by trust
                let trust = (gained / predicted.max(gained)).min(1.0);
                *damping = (*damping * (1.0 - (2.0 * trust - 1.0).powi(3)).max(0.1)).max(1e-12);
                return Ok(Some((trial, left)));
            }
            *damping *= 5.0;
        }
        Ok(None)
    }

    // Keep parameters within their bounds
    /// The parameters, none of them beyond its bounds.
    fn within(&self, mut parameters: Vec<f64>) -> Vec<f64> {
        for (parameter, [low, high]) in parameters.iter_mut().zip(&self.bounds) {
            *parameter = parameter.max(*low).min(*high);
        }
        parameters
    }
}

// Hold parameters at their bounds
impl LeastSquares {
    /// Which parameters are at a bound beyond which the sum of squares decreases.
    fn held(&self, at: &[f64], gradient: &Array1<f64>) -> Vec<bool> {
        let beyond = |((at, [low, high]), slope): ((&f64, &[f64; 2]), &f64)| {
            (at <= low && *slope >= 0.0) || (at >= high && *slope <= 0.0)
        };
        at.iter().zip(&self.bounds).zip(gradient).map(beyond).collect()
    }
}

/// The relative gain in the sum of squares at which a fit ends.
const LITTLE: f64 = 1e-10;

/// Parameters, and their residuals.
type Iterate = (Vec<f64>, Array1<f64>);

/// The root of the sum of squares.
fn norm(residuals: &Array1<f64>) -> f64 {
    residuals.dot(residuals).sqrt()
}

// Normal equations and their eigenvectors
/// The normal equations of the free parameters, in the form of their eigenvectors.
#[derive(Debug, Clone)]
pub struct Normal {
    /// The free parameters, and the number of all.
    free: Vec<usize>,
    parameters: usize,
    scales: Vec<f64>,
    eigen: Option<Eigen>,
}

impl Normal {
    // Construct the normal equations
    /// The equations for derivatives (residuals, parameters), without the parameters that are `held`.
    ///
    /// # Errors
    /// `Failed` if the matrix cannot be decomposed.
    pub fn new(jacobian: &Array2<f64>, held: &[bool]) -> Result<Self, Error> {
        let lengths: Vec<f64> =
            jacobian.columns().into_iter().map(|column| column.dot(&column).sqrt()).collect();
        let free: Vec<usize> = (0..held.len()).filter(|&k| !held[k] && lengths[k] > 0.0).collect();
        let scales: Vec<f64> = free.iter().map(|&k| lengths[k]).collect();
        let columns = jacobian.select(Axis(1), &free) / &Array1::from(scales.clone());
        let eigen = match free.is_empty() {
            true => None,
            false => Some(Eigen::new(&columns.t().dot(&columns))?),
        };
        Ok(Self { free, parameters: held.len(), scales, eigen })
    }

    // Directions that the data do not determine
    /// Directions along which the residuals hardly change: eigenvectors of $\mathcal N$ whose eigenvalues are below a fraction of the
    /// largest, in the scaled parameters $\mathcal D\upsilon$.
    pub fn blind(&self, share: f64) -> Vec<Vec<f64>> {
        let Some(eigen) = &self.eigen else { return Vec::new() };
        let blind = self.free.len() - eigen.kept(share);
        let all = eigen.expand(&Array2::eye(self.free.len()));
        let whole = |vector: ndarray::ArrayView1<f64>| {
            let mut direction = vec![0.0; self.parameters];
            vector.iter().zip(&self.free).for_each(|(part, &k)| direction[k] = *part);
            direction
        };
        all.rows().into_iter().take(blind).map(whole).collect()
    }

    // Solve the normal equations
    /// Eigenvalues below this fraction of the largest are rounding errors.
    pub const ROUNDING: f64 = 1e-10;

    /// 𝒟⁻¹ (𝒩 + ϰ)⁻¹ 𝒟⁻¹ g for each row g, (rows, parameters), Eq. [damped step](https://lenslet.github.io/lenslet/least-squares.html#eq-damped-step); zero for fixed parameters, and along
    /// directions that the data do not determine.
    pub fn solve(&self, rows: &Array2<f64>, damping: f64) -> Array2<f64> {
        let mut solved = Array2::zeros(rows.dim());
        let Some(eigen) = &self.eigen else { return solved };
        let scales = Array1::from(self.scales.clone());
        let mut along =
            eigen.project(&(rows.select(Axis(1), &self.free) / &scales), self.free.len());
        let values = eigen.values();
        let least = Self::ROUNDING * values.last().copied().unwrap_or(0.0);
        for mut row in along.rows_mut() {
            Zip::from(&mut row).and(values).for_each(|part, value| {
                *part = if *value > least { *part / (value + damping) } else { 0.0 };
            });
        }
        let steps = eigen.expand(&along) / &scales;
        for (steps, &k) in steps.columns().into_iter().zip(&self.free) {
            solved.column_mut(k).assign(&steps);
        }
        solved
    }

    /// The free parameters: neither held nor without influence.
    pub fn free(&self) -> &[usize] {
        &self.free
    }
}

// Tests of least squares
#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::unwatched;
    use ndarray::{arr1, arr2};

    struct Valley;

    impl Residuals for Valley {
        fn residuals(&mut self, u: &[f64]) -> Result<Array1<f64>, Error> {
            Ok(arr1(&[10.0 * (u[1] - u[0] * u[0]), 1.0 - u[0]]))
        }
        fn jacobian(&mut self, u: &[f64]) -> Result<Array2<f64>, Error> {
            Ok(arr2(&[[-20.0 * u[0], 10.0], [-1.0, 0.0]]))
        }
    }

    // A curved valley leads to its end
    #[test]
    fn a_curved_valley_leads_to_its_end_or_to_a_bound() {
        let fit = |high: f64, steps| {
            let fit = LeastSquares { bounds: vec![[-5.0, high], [-5.0, 5.0]], floor: 1e-12, steps };
            fit.run(&mut Valley, &[-1.2, 1.0], &unwatched).unwrap()
        };
        let free = fit(5.0, 100);
        assert!(free.converged && free.parameters.iter().all(|u| (u - 1.0).abs() < 1e-9));
        assert_eq!((free.held, free.steps > 5), (vec![false; 2], true));
        let bound = fit(0.7, 100);
        assert_eq!((bound.parameters[0], bound.held), (0.7, vec![true, false]));
        assert!(bound.converged && (bound.parameters[1] - 0.49).abs() < 1e-6);
        let short = fit(5.0, 3);
        assert!(!short.converged && short.steps == 3 && norm(&short.residuals) > 0.1);
    }

    // A line through points has known errors
    /// A straight line, whose height is there twice, through points at 0 to 4.
    struct Line(Array2<f64>);

    impl Residuals for Line {
        fn residuals(&mut self, u: &[f64]) -> Result<Array1<f64>, Error> {
            Ok(self.0.dot(&arr1(u)) - arr1(&[1.0, 0.5, 2.0, 3.5, 3.0]))
        }
        fn jacobian(&mut self, _: &[f64]) -> Result<Array2<f64>, Error> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn a_line_through_points_has_known_errors_and_one_blind_direction() {
        let mut line = Line(Array2::from_shape_fn((5, 3), |(k, u)| [1.0, k as f64, 2.0][u]));
        let fit = LeastSquares { bounds: vec![[-9.0, 9.0]; 3], floor: 0.0, steps: 20 };
        let found = fit.run(&mut line, &[0.0; 3], &unwatched).unwrap();
        let [height, slope] =
            [found.parameters[0] + 2.0 * found.parameters[2], found.parameters[1]];
        assert!((slope - 0.7).abs() < 1e-5 && (height - 0.6).abs() < 1e-5, "{found:?}");
        let normal = Normal::new(&found.jacobian, &found.held).unwrap();
        let blind = normal.blind(1e-9);
        let half = 0.5f64.sqrt();
        assert_eq!(blind.len(), 1);
        assert!((blind[0][0].abs() - half).abs() < 1e-9 && blind[0][1].abs() < 1e-9);
        assert!((blind[0][0] + blind[0][2]).abs() < 1e-9);
        // The covariance of a line through five points at 0 to 4 is [[0.6, -0.2], [-0.2, 0.1]].
        let without = Normal::new(&found.jacobian, &[false, false, true]).unwrap();
        let covariance = without.solve(&Array2::eye(3), 0.0);
        let expected = arr2(&[[0.6, -0.2, 0.0], [-0.2, 0.1, 0.0], [0.0; 3]]);
        assert!((covariance - expected).iter().all(|gap| gap.abs() < 1e-12));
        assert_eq!(without.free(), [0, 1]);
        let none = Normal::new(&Array2::zeros((5, 3)), &[false; 3]).unwrap();
        assert!(none.free().is_empty() && none.solve(&Array2::eye(3), 0.0).sum() == 0.0);
    }
}
