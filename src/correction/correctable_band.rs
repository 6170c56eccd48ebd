// Tangled from book/src/fitting.md: edit there, or here and run cargo tangle stitch.
//! The square of spatial frequencies that a mirror corrects, and structure functions of what is inside.

use crate::error::{Invalid, accept, length};
use crate::numerics::quadrature::gauss_legendre;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, Axis};
use std::f64::consts::PI;

// Nodes between zero and the limit
/// Spatial frequencies up to the limit of a mirror, along one axis.
#[derive(Debug, Clone)]
pub(crate) struct Band {
    /// 1/m, and their weights in an integral.
    nodes: Vec<f64>,
    weights: Vec<f64>,
}

/// Largest half phase of a wave on a panel, rad, and the number of nodes of a panel.
const HALF_PHASE: f64 = 8.0;
const NODES: usize = 20;

/// Factor by which panels shrink, and the lowest frequency, relative to the limit, for an infinite outer scale.
const SHRINK: f64 = 8.0;
const LEAST: f64 = 1e-27;

impl Band {
    // Place panels from the limit down
    /// Frequencies below 1/2p of a `pitch` p \[m\], for spectra of outer scales up to `outer_scale` \[m\], and waves of displacements up to the sum of `reaches` \[m\].
    ///
    /// # Errors
    /// `Invalid` if displacements of so many pitches would need too many nodes.
    pub(crate) fn new(pitch: f64, outer_scale: f64, reaches: [f64; 2]) -> Result<Self, Invalid> {
        let (limit, reach) = (0.5 / pitch, reaches[0] + reaches[1]);
        let expected = "displacements of at most 2000 pitches";
        accept(reach <= 2000.0 * pitch, "step", reach, expected)?;
        let least = if outer_scale.is_finite() { 1.0 / outer_scale } else { LEAST * limit };
        let (rule, mut band) = (gauss_legendre(NODES), Self { nodes: vec![], weights: vec![] });
        let mut end = limit;
        while end > 0.0 {
            let begin = if end > least { end / SHRINK } else { 0.0 };
            let panels = (PI * (end - begin) * reach / HALF_PHASE).ceil().max(1.0);
            let half = 0.5 * (end - begin) / panels;
            for panel in 0..panels as usize {
                let middle = begin + half * (2 * panel + 1) as f64;
                band.nodes.extend(rule.nodes.iter().map(|node| middle + half * node));
                band.weights.extend(rule.weights.iter().map(|weight| half * weight));
            }
            end = begin;
        }
        Ok(band)
    }
}

// Integrate over the square
impl Band {
    /// The integral of an even spectrum over the square, which is a variance; given at (x, y) and (x, −y).
    pub(crate) fn integral(&self, spectrum: impl Fn([f64; 2]) -> [f64; 2] + Sync) -> f64 {
        2.0 * self.fold(spectrum)[0].sum()
    }
}

// Displacements and their mirror images
/// A function of the displacement in steps on an n × n grid, which is the same for displacements of other signs.
pub(crate) fn mirrored(n: usize, of: impl Fn([f64; 2]) -> f64 + Sync) -> Array2<f64> {
    let far = n / 2 + 1;
    let mut quadrant = Array2::zeros((far, far));
    quadrant.outer_iter_mut().into_par_iter().enumerate().for_each(|(j, mut row)| {
        row.iter_mut().enumerate().for_each(|(i, value)| *value = of([i as f64, j as f64]));
    });
    let steps = |k: usize| k.abs_diff(n / 2);
    Array2::from_shape_fn((n, n), |(j, i)| quadrant[[steps(j), steps(i)]])
}

// Fold a spectrum onto a quadrant
impl Band {
    /// S and A of Eq. [structure in square](https://lenslet.github.io/lenslet/fitting.html#eq-structure-in-square) with the weights of both axes; axis 0 is y. The spectrum is given at (x, y) and (x, −y).
    fn fold(&self, spectrum: impl Fn([f64; 2]) -> [f64; 2] + Sync) -> [Array2<f64>; 2] {
        let k = self.nodes.len();
        let (mut even, mut odd) = (Array2::zeros((k, k)), Array2::zeros((k, k)));
        let rows = even.outer_iter_mut().into_par_iter().zip(odd.outer_iter_mut());
        let along_y = self.nodes.par_iter().zip(&self.weights);
        rows.zip(along_y).for_each(|((mut even, mut odd), (&y, wy))| {
            for (place, (&x, wx)) in self.nodes.iter().zip(&self.weights).enumerate() {
                let [up, down] = spectrum([x, y]);
                [even[place], odd[place]] = [wx * wy * (up + down), wx * wy * (up - down)];
            }
        });
        [even, odd]
    }
}

// Structure function inside of the square
impl Band {
    /// The structure function of an even spectrum, given at (x, y) and (x, −y), inside of the square on n × n displacements, Eq. [structure in square](https://lenslet.github.io/lenslet/fitting.html#eq-structure-in-square); zero is at [n/2, n/2].
    pub(crate) fn structure_function(
        &self,
        n: usize,
        step: f64,
        spectrum: impl Fn([f64; 2]) -> [f64; 2] + Sync,
    ) -> Result<Array2<f64>, Invalid> {
        accept((1..=20_000).contains(&n), "displacements", n, "a whole number from 1 to 20000")?;
        length("step", step)?;
        let [even, odd] = self.fold(spectrum);
        let waves =
            [n / 2 + 1, 2 * (n / 2) + 1].map(|rows| AxisWaves::new(self, rows, n / 2, step));
        let [y, x] = &waves;
        // Multiply waves of both axes
        let along_x: Array1<f64> = x.rises.dot(&even.sum_axis(Axis(0)));
        let mut half = y.rises.dot(&even).dot(&x.cosines.t()) + &along_x;
        if odd.iter().any(|odd| *odd != 0.0) {
            half += &y.sines.dot(&odd).dot(&x.sines.t());
        }
        // The other half is the same at the opposite displacements.
        let place = |j: usize, i: usize| {
            if j > n / 2 { [2 * (n / 2) - j, 2 * (n / 2) - i] } else { [j, i] }
        };
        Ok(Array2::from_shape_fn((n, n), |(j, i)| 4.0 * half[place(j, i)]))
    }
}

// Waves of displacements along an axis
/// 2 sin² of half the phase, cosine and sine of the phase, for displacements of one axis (rows) and frequencies (columns).
struct AxisWaves {
    rises: Array2<f64>,
    cosines: Array2<f64>,
    sines: Array2<f64>,
}

impl AxisWaves {
    fn new(band: &Band, rows: usize, middle: usize, step: f64) -> Self {
        let shape = (rows, band.nodes.len());
        let phases = Array2::from_shape_fn(shape, |(j, k)| {
            2.0 * PI * band.nodes[k] * step * (j as f64 - middle as f64)
        });
        let rises = phases.mapv(|phase| 2.0 * (0.5 * phase).sin().powi(2));
        Self { rises, cosines: phases.mapv(f64::cos), sines: phases.mapv(f64::sin) }
    }
}

// Covariances inside of the square
#[cfg(feature = "factorise")]
impl Band {
    /// The covariances of some even spectra, given at (x, y) and (x, −y), inside of the square on 2n + 1 displacements along each axis,
    /// Eq. [covariance in square](https://lenslet.github.io/lenslet/in-band-covariances.html#eq-covariance-in-square); zero is at [n, n].
    pub(crate) fn covariances<const N: usize>(
        &self,
        n: usize,
        step: f64,
        spectra: impl Fn([f64; 2]) -> [[f64; N]; 2] + Sync,
    ) -> [Array2<f64>; N] {
        let waves = AxisWaves::new(self, n + 1, 0, step);
        let product = |part: &Array2<f64>, wave: &Array2<f64>| wave.dot(part).dot(&wave.t());
        // Covariance from even and odd parts
        self.halves(spectra).map(|[sum, difference]| {
            let (even, odd) = (product(&sum, &waves.cosines), product(&difference, &waves.sines));
            Array2::from_shape_fn((2 * n + 1, 2 * n + 1), |(j, i)| {
                let place = [j.abs_diff(n), i.abs_diff(n)];
                let sign = if (j < n) == (i < n) { 1.0 } else { -1.0 };
                even[place] - sign * odd[place]
            })
        })
    }

    // Odd covariances inside of the square
    /// Integrals of some odd spectra, given at (x, y) and (x, −y), times the sine, inside of the square on 2n + 1 displacements along each axis; zero is at [n, n].
    pub(crate) fn odd_covariances<const N: usize>(
        &self,
        n: usize,
        step: f64,
        spectra: impl Fn([f64; 2]) -> [[f64; N]; 2] + Sync,
    ) -> [Array2<f64>; N] {
        let AxisWaves { cosines, sines, .. } = AxisWaves::new(self, n + 1, 0, step);
        self.halves(spectra).map(|[sum, difference]| {
            let along_x = cosines.dot(&sum).dot(&sines.t());
            let along_y = sines.dot(&difference).dot(&cosines.t());
            let sign = |k: usize| if k < n { -1.0 } else { 1.0 };
            Array2::from_shape_fn((2 * n + 1, 2 * n + 1), |(j, i)| {
                let place = [j.abs_diff(n), i.abs_diff(n)];
                sign(i) * along_x[place] + sign(j) * along_y[place]
            })
        })
    }

    // Fold spectra onto one quadrant
    /// Twice the sums and the differences of spectra at (x, y) and (x, −y), with the weights of both axes.
    fn halves<const N: usize>(
        &self,
        spectra: impl Fn([f64; 2]) -> [[f64; N]; 2] + Sync,
    ) -> [[Array2<f64>; 2]; N] {
        let row = |y: &f64| self.nodes.iter().map(|x| spectra([*x, *y])).collect::<Vec<_>>();
        let all: Vec<Vec<[[f64; N]; 2]>> = self.nodes.par_iter().map(row).collect();
        let shape = (self.nodes.len(), self.nodes.len());
        std::array::from_fn(|k| {
            [1.0, -1.0].map(|sign| {
                Array2::from_shape_fn(shape, |(j, i)| {
                    let [up, down] = all[j][i];
                    2.0 * self.weights[j] * self.weights[i] * (up[k] + sign * down[k])
                })
            })
        })
    }
}
