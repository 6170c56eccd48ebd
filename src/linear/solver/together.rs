// Tangled from book/src/solvers.md: edit there, or here and run cargo tangle stitch.
//! Conjugate gradients for many right-hand sides at once.

// What solving together stands on
use super::{Solver, Stop, combine, dot, norm_of};
use crate::error::Error;
use crate::linear::operator::Operator;
use ndarray::Array2;
use rayon::prelude::*;

// Solve right-hand sides together
const CG: Solver = Solver::ConjugateGradients;

/// Right-hand sides that are solved together, as rows.
struct Together<'a> {
    a: &'a dyn Operator<f64>,
    preconditioner: &'a dyn Operator<f64>,
    stop: Stop,
    x: Array2<f64>,
    /// b − A x.
    left: Array2<f64>,
    norms: Vec<f64>,
    iterations: Vec<usize>,
    watch: &'a mut dyn FnMut() -> Result<(), Error>,
}

/// Solves A x = b for each row of `b`; the solutions, and their true residuals b − A x. `watch` is asked in each step.
///
/// # Errors
/// As for [`Solver::solve`], of the first row that is found to fail.
pub(crate) fn solve_together(
    a: &dyn Operator<f64>,
    preconditioner: &dyn Operator<f64>,
    b: &Array2<f64>,
    stop: Stop,
    watch: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<[Array2<f64>; 2], Error> {
    let norm = |row: ndarray::ArrayView1<f64>| norm_of(&row.to_vec(), &[]);
    let norms = b.outer_iter().map(norm).collect::<Result<Vec<f64>, _>>()?;
    let (x, left) = (Array2::zeros(b.dim()), b.clone());
    let iterations = vec![0; b.nrows()];
    let mut run = Together { a, preconditioner, stop, x, left, norms, iterations, watch };
    run.sweep_until_all_are_true(b)?;
    Ok([run.x, run.left])
}

// Sweep until all residuals are true
impl Together<'_> {
    fn sweep_until_all_are_true(&mut self, b: &Array2<f64>) -> Result<(), Error> {
        let tolerance = self.stop.tolerance;
        let mut before = vec![f64::INFINITY; b.nrows()];
        loop {
            let residual = |k: usize| {
                let row = self.left.row(k);
                if self.norms[k] > 0.0 { row.dot(&row).sqrt() / self.norms[k] } else { 0.0 }
            };
            let residuals: Vec<f64> = (0..b.nrows()).map(residual).collect();
            let open = |k: &usize| residuals[*k].is_nan() || residuals[*k] > tolerance;
            let open: Vec<usize> = (0..b.nrows()).filter(open).collect();
            for &k in &open {
                let spent = self.iterations[k] >= self.stop.iterations;
                if spent || residuals[k].is_nan() || residuals[k] > 0.9 * before[k] {
                    return Err(CG.not_converged(self.iterations[k], residuals[k], tolerance));
                }
            }
            if open.is_empty() {
                return Ok(());
            }
            before = residuals;
            self.sweep(open, &before)?;
            // True residuals of all rows
            let mut products = Array2::zeros(b.dim());
            let mut scratch = vec![0.0; self.a.scratch(b.nrows())];
            let [x, y] =
                [&mut self.x, &mut products].map(|rows| rows.as_slice_mut().unwrap_or_default());
            self.a.apply(x, y, &mut scratch);
            self.left = b - &products;
        }
    }
}

// Sweep over those that are open
impl Together<'_> {
    /// Runs conjugate gradients for these rows from their residuals, relative ones of which are given.
    fn sweep(&mut self, mut rows: Vec<usize>, residuals: &[f64]) -> Result<(), Error> {
        let (n, many, tolerance) = (self.a.rows(), rows.len(), self.stop.tolerance);
        let target = |&k: &usize| {
            let first = self.iterations[k] == 0;
            let aim = if first { tolerance } else { tolerance.min(0.1 * residuals[k]) };
            aim.max(f64::EPSILON * residuals[k])
        };
        let mut targets: Vec<f64> = rows.iter().map(target).collect();
        let mut r: Vec<f64> = rows.iter().flat_map(|&k| self.left.row(k).to_vec()).collect();
        let [mut x, mut z, mut product] = [(); 3].map(|()| vec![0.0; many * n]);
        let longest = self.a.scratch(many).max(self.preconditioner.scratch(many));
        let mut scratch = vec![0.0; longest];
        self.preconditioner.apply(&r, &mut z, &mut scratch);
        let mut p = z.clone();
        let mut along = self.positive(dots(&r, &z, n), &rows, ("preconditioner", "r·Pr"))?;
        while !rows.is_empty() {
            (self.watch)()?;
            // Step all rows along their directions
            let all = rows.len() * n;
            self.a.apply(&p[..all], &mut product[..all], &mut scratch);
            let curvatures = dots(&p[..all], &product[..all], n);
            let curvatures = self.positive(curvatures, &rows, ("operator", "p·Ap"))?;
            let steps: Vec<f64> = along.iter().zip(&curvatures).map(|(a, c)| a / c).collect();
            add(&mut x, &p, n, &steps, 1.0);
            add(&mut r, &product, n, &steps, -1.0);
            let squares = dots(&r[..all], &r[..all], n);
            rows.iter().for_each(|&k| self.iterations[k] += 1);
            // Let rows that are done leave
            for s in (0..rows.len()).rev() {
                let (k, last) = (rows[s], rows.len() - 1);
                let residual = squares[s].sqrt() / self.norms[k];
                if residual > targets[s] && self.iterations[k] < self.stop.iterations {
                    continue;
                }
                let mut row = self.x.row_mut(k);
                row.iter_mut().zip(&x[s * n..(s + 1) * n]).for_each(|(sum, part)| *sum += part);
                for vectors in [&mut x, &mut r, &mut p] {
                    vectors.copy_within(last * n..(last + 1) * n, s * n);
                }
                rows.swap_remove(s);
                along.swap_remove(s);
                targets.swap_remove(s);
            }
            // Turn to new directions
            let all = rows.len() * n;
            self.preconditioner.apply(&r[..all], &mut z[..all], &mut scratch);
            let next = dots(&r[..all], &z[..all], n);
            let next = self.positive(next, &rows, ("preconditioner", "r·Pr"))?;
            let turns: Vec<f64> =
                next.iter().zip(&along).map(|(next, along)| next / along).collect();
            p[..all]
                .par_chunks_exact_mut(n)
                .zip(z.par_chunks_exact(n))
                .zip(&turns)
                .for_each(|((p, z), &turn)| combine(p, turn, z, 1.0));
            along = next;
        }
        Ok(())
    }

    // Refuse what is not positive
    /// The numbers, of these rows, if all are positive.
    fn positive(
        &self,
        values: Vec<f64>,
        rows: &[usize],
        named: (&str, &str),
    ) -> Result<Vec<f64>, Error> {
        let check = |(&value, &k)| CG.positive(value, named, self.iterations[k] + 1);
        values.iter().zip(rows).map(check).collect()
    }
}

// Products and sums side by side
/// The inner products of vectors of `n` numbers.
fn dots(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    a.par_chunks_exact(n).zip(b.par_chunks_exact(n)).map(|(a, b)| dot(a, b)).collect()
}

/// y ← y ± s x, for as many vectors of `n` numbers as there are numbers s.
fn add(y: &mut [f64], x: &[f64], n: usize, steps: &[f64], sign: f64) {
    let pairs = y.par_chunks_exact_mut(n).zip(x.par_chunks_exact(n));
    pairs.zip(steps).for_each(|((y, x), step)| combine(y, 1.0, x, sign * step));
}

// Tests of solving together
#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::matrix::Dense;
    use crate::linear::operator::{Diagonal, battery::random};

    #[test]
    fn rows_are_solved_together_as_alone() {
        let n = 40;
        let half = Array2::from_shape_vec((n + 5, n), random(n * (n + 5), 1)).unwrap();
        let a = Dense::new(half.t().dot(&half) + Array2::<f64>::eye(n));
        let p = Diagonal::new((0..n).map(|k| 1.0 / (10.0 + (k % 3) as f64)).collect());
        let mut b = Array2::from_shape_vec((5, n), random(5 * n, 2)).unwrap();
        b.row_mut(3).fill(0.0);
        let stop = Stop { tolerance: 1e-10, iterations: 200 };
        let alone = |row: ndarray::ArrayView1<f64>| {
            let (row, mut x) = (row.to_vec(), vec![0.0; n]);
            let solved = CG.solve(&a, Some(&p), &row, &mut x, &stop, &mut |_, _| Ok(())).unwrap();
            (row, x, solved.iterations)
        };
        let alone: Vec<_> = b.outer_iter().map(alone).collect();
        // Side by side no row takes more steps than alone.
        let most = alone.iter().map(|(_, _, iterations)| *iterations).max().unwrap();
        let limit = Stop { iterations: most + 1, ..stop };
        let [x, left] = solve_together(&a, &p, &b, limit, &mut || Ok(())).unwrap();
        for (k, (row, alone, _)) in alone.iter().enumerate() {
            let gap = &x.row(k) - &ndarray::ArrayView1::from(&alone[..]);
            assert!(gap.iter().all(|gap| gap.abs() < 1e-9), "row {k}");
            let size = left.row(k).dot(&left.row(k)).sqrt();
            assert!(size <= 1e-10 * dot(row, row).sqrt(), "row {k}: {size:e}");
        }
        // Ends that rows solved together may have
        let few = Stop { tolerance: 1e-10, iterations: 2 };
        let error = solve_together(&a, &p, &b, few, &mut || Ok(())).unwrap_err();
        assert!(error.to_string().contains("after 2 iterations"), "{error}");
        let bad = Diagonal::new((0..n).map(|k| k as f64 - 20.5).collect());
        let error = solve_together(&bad, &p, &b, stop, &mut || Ok(())).unwrap_err();
        assert!(error.to_string().contains("operator is not positive definite"), "{error}");
        let end = solve_together(&a, &p, &b, stop, &mut || Err(Error::Cancelled)).unwrap_err();
        assert!(matches!(end, Error::Cancelled));
    }
}
