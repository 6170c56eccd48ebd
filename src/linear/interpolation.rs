// Tangled from book/src/layers-to-pupil.md: edit there, or here and run cargo tangle stitch.
//! Interpolation of layers' wavefronts from their own grids to the pupil's.

#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
pub(crate) mod gpu;

// Imports of the interpolation
use crate::error::Invalid;
use crate::linear::operator::Operator;
use crate::numerics::real::Real;
use rayon::prelude::*;

// Degrees of interpolation
/// How a layer's wavefront is interpolated: by the polynomial through the nearest points, along each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Interpolation {
    /// Two points along each axis.
    Linear,
    /// Four points along each axis.
    #[default]
    Cubic,
    /// Six points along each axis.
    Quintic,
}

// Stencil and name of a degree
impl Interpolation {
    /// Points of a stencil along one axis.
    pub fn points(self) -> usize {
        match self {
            Self::Linear => 2,
            Self::Cubic => 4,
            Self::Quintic => 6,
        }
    }

    /// Its name, as the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Cubic => "cubic",
            Self::Quintic => "quintic",
        }
    }
}

// Stencils along one axis
/// For each point of the pupil along an axis: the first grid point of its stencil, and the weights.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stencils<T> {
    pub(crate) first: Vec<usize>,
    pub(crate) weights: Vec<T>,
    /// Points of a stencil.
    pub(crate) width: usize,
}

// Weigh the points of stencils
impl<T: Real> Stencils<T> {
    pub(crate) fn new(points: usize, layer_points: usize, gamma: f64, kind: Interpolation) -> Self {
        let width = kind.points().min(layer_points);
        let (mut first, mut weights) = (Vec::new(), Vec::new());
        for m in 0..points {
            let place =
                0.5 * (layer_points - 1) as f64 + (m as f64 - 0.5 * (points - 1) as f64) / gamma;
            let start = (place - 0.5 * (width as f64 - 2.0)).floor().max(0.0) as usize;
            let start = start.min(layer_points - width);
            first.push(start);
            for k in start..start + width {
                let others = (start..start + width).filter(|other| *other != k);
                let factor = |other: usize| (place - other as f64) / (k as f64 - other as f64);
                let weight: f64 = others.map(factor).product();
                weights.push(T::of(weight));
            }
        }
        Self { first, weights, width }
    }

    // Walk over the points of a stencil
    /// The stencil of point `m`: grid points and their weights.
    pub(crate) fn of(&self, m: usize) -> impl Iterator<Item = (usize, T)> {
        let weights = &self.weights[m * self.width..(m + 1) * self.width];
        (self.first[m]..).zip(weights.iter().copied())
    }
}

// Operator from a layer to the pupil
// Example of an interpolation to the pupil
/// Interpolates the wavefronts of several targets from the grid of a layer to that of the pupil.
///
/// ```
/// use lenslet::linear::{Interpolation, Operator, ToPupil};
///
/// let layer: Vec<f64> = (0..36).map(|k| f64::from(k % 6).powi(3)).collect();
/// let first_point = |kind| -> Result<f64, lenslet::Error> {
///     let to_pupil = ToPupil::new(1, 4, (6, 0.8), kind)?;
///     let (mut pupil, mut scratch) = (vec![0.0; 16], vec![0.0; to_pupil.scratch(1)]);
///     to_pupil.apply(&layer, &mut pupil, &mut scratch);
///     Ok(pupil[0])
/// };
/// assert!((first_point(Interpolation::Linear)? - 0.625).abs() < 1e-14);
/// assert!((first_point(Interpolation::Cubic)? - 0.625f64.powi(3)).abs() < 1e-14);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ToPupil<T> {
    pub(crate) targets: usize,
    pub(crate) points: usize,
    pub(crate) layer_points: usize,
    pub(crate) stencils: Stencils<T>,
}

// Make the way to the pupil
impl<T: Real> ToPupil<T> {
    /// From `layer_points` across, `gamma` pupil steps apart, to `points` across; both grids centred.
    ///
    /// # Errors
    /// `Invalid` where the layer's grid does not reach across the pupil's.
    pub fn new(
        targets: usize,
        points: usize,
        (layer_points, gamma): (usize, f64),
        kind: Interpolation,
    ) -> Result<Self, Invalid> {
        // Refuse a layer's grid that is too small
        if points == 0
            || layer_points == 0
            || (points - 1) as f64 > (layer_points as f64 - 1.0 + 1e-9) * gamma
        {
            let least = ((points as f64 - 1.0) / gamma - 1e-9).ceil().max(0.0) + 1.0;
            let expected =
                format!("at least {least}, to reach across {points} points of the pupil");
            return Err(Invalid::new("points of a layer", layer_points, expected));
        }
        let stencils = Stencils::new(points, layer_points, gamma, kind);
        Ok(Self { targets, points, layer_points, stencils })
    }

    // Interpolate along both axes
    /// One wavefront to the pupil; `rows` is room for M_l × M numbers.
    fn gather(&self, layer: &[T], pupil: &mut [T], rows: &mut [T]) {
        let (points, stencils) = (self.points, &self.stencils);
        for (row, layer) in rows.chunks_exact_mut(points).zip(layer.chunks_exact(self.layer_points))
        {
            for (m, value) in row.iter_mut().enumerate() {
                *value = stencils.of(m).map(|(k, weight)| weight * layer[k]).sum();
            }
        }
        for (m, row) in pupil.chunks_exact_mut(points).enumerate() {
            row.fill(T::zero());
            for (k, weight) in stencils.of(m) {
                let values = &rows[k * points..(k + 1) * points];
                row.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * *value);
            }
        }
    }

    // Scatter along both axes
    /// The transpose of `gather`.
    fn scatter(&self, pupil: &[T], layer: &mut [T], rows: &mut [T]) {
        let (points, stencils) = (self.points, &self.stencils);
        rows.fill(T::zero());
        for (m, row) in pupil.chunks_exact(points).enumerate() {
            for (k, weight) in stencils.of(m) {
                let sums = &mut rows[k * points..(k + 1) * points];
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * *value);
            }
        }
        layer.fill(T::zero());
        for (layer, row) in layer.chunks_exact_mut(self.layer_points).zip(rows.chunks_exact(points))
        {
            for (m, value) in row.iter().enumerate() {
                stencils.of(m).for_each(|(k, weight)| layer[k] += weight * *value);
            }
        }
    }
}

// Apply the way to the pupil
impl<T: Real> Operator<T> for ToPupil<T> {
    fn rows(&self) -> usize {
        self.targets * self.points.pow(2)
    }

    fn columns(&self) -> usize {
        self.targets * self.layer_points.pow(2)
    }

    fn scratch(&self, vectors: usize) -> usize {
        vectors * self.targets * self.layer_points * self.points
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let wavefronts = x.par_chunks_exact(self.layer_points.pow(2));
        let rows = scratch.par_chunks_exact_mut(self.layer_points * self.points);
        let pupils = y.par_chunks_exact_mut(self.points.pow(2));
        wavefronts
            .zip(pupils)
            .zip(rows)
            .for_each(|((layer, pupil), rows)| self.gather(layer, pupil, rows));
    }

    // Answer the rest about the way to the pupil
    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let wavefronts = x.par_chunks_exact(self.points.pow(2));
        let rows = scratch.par_chunks_exact_mut(self.layer_points * self.points);
        let layers = y.par_chunks_exact_mut(self.layer_points.pow(2));
        wavefronts
            .zip(layers)
            .zip(rows)
            .for_each(|((pupil, layer), rows)| self.scatter(pupil, layer, rows));
    }

    fn bytes(&self) -> u64 {
        (size_of_val(self.stencils.weights.as_slice())
            + size_of_val(self.stencils.first.as_slice())) as u64
    }
}

// Tests of the interpolation
#[cfg(test)]
mod tests {
    use super::*;

    // Check that polynomials pass through
    #[test]
    fn polynomials_pass_through() {
        for (kind, degree) in
            [(Interpolation::Linear, 1), (Interpolation::Cubic, 3), (Interpolation::Quintic, 5)]
        {
            for (points, layer_points, gamma) in
                [(9, 13, 0.8), (12, 16, 0.81), (7, 7, 1.0), (1, 6, 0.9)]
            {
                let to_pupil = ToPupil::<f64>::new(2, points, (layer_points, gamma), kind).unwrap();
                let polynomial = |y: f64, x: f64| 1.0 + (y - 0.3 * x).powi(degree) + 0.2 * x;
                let grid = |count: usize, step: f64| {
                    let at = move |k: usize| (k as f64 - 0.5 * (count - 1) as f64) * step / 6.0;
                    let one =
                        (0..count * count).map(move |k| polynomial(at(k / count), at(k % count)));
                    one.clone().map(|value| 2.0 * value).chain(one).collect::<Vec<f64>>()
                };
                // Hold the pupil to the polynomial
                let (layer, expected) = (grid(layer_points, gamma), grid(points, 1.0));
                let mut pupil = vec![f64::NAN; to_pupil.rows()];
                to_pupil.apply(&layer, &mut pupil, &mut vec![f64::NAN; to_pupil.scratch(1)]);
                for (value, expected) in pupil.iter().zip(&expected) {
                    assert!((value - expected).abs() < 1e-13, "{kind:?}: {value} for {expected}");
                }
            }
        }
        // Check that a cubic is too much
        let linear = ToPupil::<f64>::new(1, 4, (6, 0.8), Interpolation::Linear).unwrap();
        let cubes: Vec<f64> = (0..36).map(|k| f64::from(k % 6).powi(3)).collect();
        let mut pupil = vec![0.0; 16];
        linear.apply(&cubes, &mut pupil, &mut vec![0.0; linear.scratch(1)]);
        assert!((pupil[0] - 0.625f64.powi(3)).abs() > 0.1);
        let refused = ToPupil::<f64>::new(1, 9, (10, 0.8), Interpolation::Cubic).unwrap_err();
        assert!(refused.to_string().contains("expected at least 11"), "{refused}");
    }

    // Check the transpose of the interpolation
    #[test]
    fn transpose_is_the_transpose() {
        for kind in [Interpolation::Linear, Interpolation::Cubic, Interpolation::Quintic] {
            let to_pupil = ToPupil::<f64>::new(2, 8, (11, 0.75), kind).unwrap();
            let noise = |k: usize| (k as f64 * 0.7 + 0.3).sin();
            let x: Vec<f64> = (0..3 * to_pupil.columns()).map(noise).collect();
            let y: Vec<f64> = (0..3 * to_pupil.rows()).map(|k| noise(k + 77)).collect();
            let mut scratch = vec![f64::NAN; to_pupil.scratch(3)];
            let (mut ax, mut aty) = (vec![f64::NAN; y.len()], vec![f64::NAN; x.len()]);
            to_pupil.apply(&x, &mut ax, &mut scratch);
            to_pupil.apply_transpose(&y, &mut aty, &mut scratch);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            assert!((dot(&ax, &y) - dot(&x, &aty)).abs() < 1e-12 * dot(&x, &x));
        }
    }
}
