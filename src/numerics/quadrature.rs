// Tangled from book/src/quadrature.md: edit there, or here and run cargo tangle stitch.
//! Gauss quadrature on [−1, 1] for the plain weight, the triangle and the trapezium.

/// A quadrature rule: ∫ ω(x) f(x) dx over [−1, 1] ≈ Σ `weights[k]` f(`nodes[k]`).
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Abscissae, ascending, symmetric about zero.
    pub nodes: Vec<f64>,
    /// Positive weights, one for each node.
    pub weights: Vec<f64>,
}

// Rules of Gauss for three weights
/// Gauss–Legendre: weight 1, exact for polynomials of degree 2n − 1.
pub fn gauss_legendre(n: usize) -> Rule {
    let beta: Vec<f64> = (0..n)
        .map(|k| (k * k) as f64)
        .map(|square| if square == 0.0 { 2.0 } else { square / (4.0 * square - 1.0) })
        .collect();
    rule_from_recurrence(&beta)
}

// Rule of Gauss for the trapezium
/// Gauss's rule for the triangle 1 − |u|, exact for polynomials of degree 2n − 1.
///
/// ```
/// let rule = lenslet::numerics::gauss_triangle(2);
/// assert!((rule.nodes[1] - 1.0 / 6f64.sqrt()).abs() < 1e-15); // the triangle's variance is 1/6
/// assert!((rule.nodes[1] - 0.408).abs() < 1e-3);
/// let sum: f64 = rule.nodes.iter().zip(&rule.weights).map(|(u, w)| w * u.cos()).sum();
/// let exact = 2.0 * (1.0 - f64::cos(1.0));
/// assert!((sum - 0.917_82).abs() < 1e-5 && (exact - 0.919_40).abs() < 1e-5);
/// assert!((exact - sum - 1.58e-3).abs() < 1e-5 && exact - sum < 1.62e-3);
/// assert!((1.0 / 15.0 - 1.0 / 36.0 - 0.0389f64).abs() < 1e-4);
/// ```
pub fn gauss_triangle(n: usize) -> Rule {
    gauss_trapezium(n, 0.0)
}

/// Gauss's rule for a trapezium of integral 1 that is flat on |u| < `flat` and falls to zero at 1; 0 ≤ `flat` < 1.
///
/// The weight is that of Eq. [trapezium weight](https://lenslet.github.io/lenslet/quadrature.html#eq-trapezium-weight) over 1 + `flat`; exact for polynomials of degree 2n − 1.
pub fn gauss_trapezium(n: usize, flat: f64) -> Rule {
    let half = gauss_legendre(n + 1);
    gauss_even(n, |f| {
        // Integrate over half of the trapezium
        (half.nodes.iter().zip(&half.weights))
            .map(|(x, w)| (0.5 * (x + 1.0), w / (1.0 + flat)))
            .map(|(u, w)| {
                (flat * u, flat + (1.0 - flat) * u, w * flat, w * (1.0 - flat) * (1.0 - u))
            })
            .map(|(level, falling, w, v)| w * f(level) + v * f(falling))
            .sum()
    })
}

// Rule of Gauss for an even weight
/// Gauss's rule for an even weight of integral 1 on [−1, 1], which is given by the weighted `mean` of any even function.
pub(crate) fn gauss_even(n: usize, mean: impl Fn(&dyn Fn(f64) -> f64) -> f64) -> Rule {
    let (mut beta, mut norm) = (vec![1.0], 1.0);
    while beta.len() < n {
        let next = mean(&|u| orthogonal_polynomial(&beta, u).powi(2));
        beta.push(next / norm);
        norm = next;
    }
    rule_from_recurrence(&beta)
}

// Orthogonal polynomial by its recurrence
/// π_n(x), n the number of coefficients given; Eq. [recurrence](https://lenslet.github.io/lenslet/quadrature.html#eq-recurrence). The first coefficient has no effect.
fn orthogonal_polynomial(beta: &[f64], x: f64) -> f64 {
    beta.iter().fold((1.0, 0.0), |(last, before), b| (x * last - b * before, last)).0
}

// Nodes and weights from recurrence coefficients
/// The Gauss rule of the even weight whose recurrence coefficients are given; Eq. [christoffel](https://lenslet.github.io/lenslet/quadrature.html#eq-christoffel).
fn rule_from_recurrence(beta: &[f64]) -> Rule {
    let mut nodes: Vec<f64> = Vec::new();
    for degree in 1..=beta.len() {
        let brackets = [&[-1.0], nodes.as_slice(), &[1.0]].concat();
        nodes = brackets.windows(2).map(|ends| zero_between(&beta[..degree], ends)).collect();
        if degree % 2 == 1 {
            nodes[degree / 2] = 0.0;
        }
    }
    let weights = nodes.iter().map(|&x| {
        let mut norm = 1.0;
        let share = |(m, b): (usize, &f64)| {
            norm *= b;
            orthogonal_polynomial(&beta[..m], x).powi(2) / norm
        };
        1.0 / beta.iter().enumerate().map(share).sum::<f64>()
    });
    Rule { weights: weights.collect(), nodes }
}

// Bisect to the zero in a bracket
fn zero_between(beta: &[f64], ends: &[f64]) -> f64 {
    let (mut low, mut high) = (ends[0], ends[1]);
    let above = orthogonal_polynomial(beta, high).is_sign_positive();
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if orthogonal_polynomial(beta, middle).is_sign_positive() == above {
            high = middle;
        } else {
            low = middle;
        }
    }
    0.5 * (low + high)
}

// Tests of the quadrature rules
#[cfg(test)]
mod tests {
    use super::*;

    /// Σ w x^power, to be compared with the moment of the weight.
    fn moment(rule: &Rule, power: i32) -> f64 {
        rule.nodes.iter().zip(&rule.weights).map(|(x, w)| w * x.powi(power)).sum()
    }

    // Reproduce the moments of all weights
    #[test]
    fn rules_are_exact_up_to_their_degree_and_not_beyond() {
        for n in 1..=12 {
            for power in (0..=2 * n as i32).step_by(2) {
                let p = f64::from(power);
                let plain = moment(&gauss_legendre(n), power) - 2.0 / (p + 1.0);
                let triangle = moment(&gauss_triangle(n), power) - 2.0 / ((p + 1.0) * (p + 2.0));
                let exact = power < 2 * n as i32;
                assert_eq!(plain.abs() < 1e-14, exact, "n = {n}, power {power}: {plain:e}");
                assert_eq!(triangle.abs() < 1e-14, exact, "n = {n}: {triangle:e}");
                let flat = 0.3f64;
                let mass =
                    2.0 * (1.0 - flat.powi(power + 2)) / ((p + 1.0) * (p + 2.0) * (1.0 - flat));
                let trapezium = moment(&gauss_trapezium(n, flat), power) - mass / (1.0 + flat);
                assert_eq!(trapezium.abs() < 1e-14, exact, "n = {n}: {trapezium:e}");
            }
        }
    }
}
