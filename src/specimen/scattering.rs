// Tangled from book/src/scattering.md: edit there, or here and run cargo tangle stitch.
//! Scattering factors of atoms for electrons, and the potentials that they stand for.

// Imports of scattering factors
use crate::error::Invalid;
use crate::numerics::{Rule, bessel_k, erfc, gauss_legendre};
use crate::specimen::atoms::Element;
use std::{f64::consts::PI, sync::LazyLock};

// Volts of a scattering factor
/// The factor C = 2π e a₀ of Eq. [atom potential](https://lenslet.github.io/lenslet/scattering.html#eq-atom-potential) from a scattering factor \[Å\] to a potential, with e = 14.4 V Å and a₀ = 0.5292 Å \[V Å²\].
pub const VOLTS: f64 = 2.0 * PI * 14.4 * 0.5292;

// A scattering factor as a sum of terms
/// The scattering factor of an element for electrons: a sum of poles and Gaussians in the square of the frequency, Eq. [scattering terms](https://lenslet.github.io/lenslet/scattering.html#eq-scattering-terms).
#[derive(Debug, Clone, PartialEq)]
pub struct ScatteringFactor {
    pub(crate) poles: Vec<Pole>,
    pub(crate) gaussians: Vec<Gaussian>,
}

/// μ/(q² + β) + ν/(q² + β)².
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pole {
    pub(crate) simple: f64,
    pub(crate) double: f64,
    pub(crate) beta: f64,
}

/// G exp(−d q²).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gaussian {
    pub(crate) height: f64,
    pub(crate) steepness: f64,
}

// Tables of scattering factors
const KIRKLAND_LINES: &str = include_str!("../../book/data/kirkland.csv");

static KIRKLAND: LazyLock<Vec<ScatteringFactor>> =
    LazyLock::new(|| read_table(KIRKLAND_LINES, of_kirkland));

/// The factor of the parameters a₁, b₁ … c₃, d₃ of a line of Kirkland's table.
fn of_kirkland(numbers: &[f64]) -> ScatteringFactor {
    let (pairs, _) = numbers.as_chunks::<2>();
    let pole = |&[a, b]: &[f64; 2]| Pole { simple: a, double: 0.0, beta: b };
    let gaussian = |&[c, d]: &[f64; 2]| Gaussian { height: c, steepness: d };
    ScatteringFactor {
        poles: pairs.iter().take(3).map(pole).collect(),
        gaussians: pairs.iter().skip(3).map(gaussian).collect(),
    }
}

static LOBATO: LazyLock<Vec<ScatteringFactor>> = LazyLock::new(|| {
    read_table(include_str!("../../book/data/lobato.csv"), |numbers| {
        let terms = numbers.iter().zip(numbers.iter().skip(5));
        let pole = |(a, b)| Pole { simple: a / b, double: a / (b * b), beta: 1.0 / b };
        ScatteringFactor { poles: terms.map(pole).collect(), gaussians: Vec::new() }
    })
});

// Round the parameters of Kirkland
static KIRKLAND_ROUNDED: LazyLock<Vec<ScatteringFactor>> = LazyLock::new(|| {
    read_table(KIRKLAND_LINES, |numbers| {
        let seven_digits = |x: &f64| format!("{x:.6e}").parse().unwrap_or(*x);
        of_kirkland(&numbers.iter().map(seven_digits).collect::<Vec<f64>>())
    })
});

// Read a table of scattering factors
/// The factors of a table with one line an element, in the order of their numbers: a number, a symbol, and the parameters.
fn read_table(table: &str, factor: fn(&[f64]) -> ScatteringFactor) -> Vec<ScatteringFactor> {
    let numbers = |line: &str| -> Vec<f64> {
        line.split(',').skip(2).filter_map(|field| field.trim().parse().ok()).collect()
    };
    table.lines().skip(1).map(|line| factor(&numbers(line))).collect()
}

// Choose a table of scattering factors
/// A table of scattering factors of neutral atoms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Factors {
    /// Kirkland's, for the elements up to 98, Eq. [kirkland](https://lenslet.github.io/lenslet/scattering.html#eq-kirkland).
    #[default]
    Kirkland,
    /// Kirkland's, with parameters of seven significant digits, as Prismatic holds them.
    KirklandRounded,
    /// That of Lobato and Van Dyck, for the elements up to 103, Eq. [lobato](https://lenslet.github.io/lenslet/scattering.html#eq-lobato).
    Lobato,
}

// Scattering factor of an element
impl Factors {
    /// The scattering factor of an element.
    ///
    /// # Errors
    /// `Invalid` where the table lacks the element.
    ///
    /// ```
    /// use lenslet::specimen::{Element, Factors};
    /// let silicon = Factors::Kirkland.of(Element::new(14)?)?;
    /// assert!((silicon.at(0.0) - 5.814).abs() < 0.001); // Å
    /// let hydrogen = Element::new(1)?;
    /// assert!((Factors::Kirkland.of(hydrogen)?.at(1.0) - 0.0890).abs() < 1e-4);
    /// assert!((Factors::Lobato.of(hydrogen)?.at(1.0) - 0.08898).abs() < 1e-5);
    /// assert!(Factors::Kirkland.of(Element::of_symbol("Es")?).is_err());
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn of(self, element: Element) -> Result<&'static ScatteringFactor, Invalid> {
        let (table, name): (&'static [_], _) = match self {
            Self::Kirkland => (&KIRKLAND, "Kirkland"),
            Self::KirklandRounded => (&KIRKLAND_ROUNDED, "Kirkland"),
            Self::Lobato => (&LOBATO, "Lobato"),
        };
        let symbol = element.symbol();
        let expected = || format!("an element of the table of {name}, 1 to {}", table.len());
        let refused = || Invalid::new("element", symbol, expected());
        table.get(element.number() - 1).ok_or_else(refused)
    }
}

// The scattering factor at a frequency
impl ScatteringFactor {
    /// fₑ(q) \[Å\] at the frequency `q` \[1/Å\], Eq. [scattering terms](https://lenslet.github.io/lenslet/scattering.html#eq-scattering-terms).
    pub fn at(&self, q: f64) -> f64 {
        let pole = |pole: &Pole| {
            let square = q * q + pole.beta;
            (pole.simple + pole.double / square) / square
        };
        let gaussian = |term: &Gaussian| term.height * f64::exp(-term.steepness * q * q);
        self.poles.iter().map(pole).sum::<f64>() + self.gaussians.iter().map(gaussian).sum::<f64>()
    }
}

// Terms at a distance
impl Pole {
    /// x = 2π √β r.
    fn argument(&self, r: f64) -> f64 {
        2.0 * PI * self.beta.sqrt() * r
    }
}

impl Gaussian {
    /// G exp(−π² r²/d).
    fn at_distance(&self, r: f64) -> f64 {
        self.height * f64::exp(-PI * PI * r * r / self.steepness)
    }
}

impl ScatteringFactor {
    // Potential of an atom along a line
    /// v(r) \[V Å\], the potential integrated along a line at the distance `r` \[Å\] from the nucleus, Eq. [projected atom](https://lenslet.github.io/lenslet/scattering.html#eq-projected-atom); infinite at r = 0.
    ///
    /// ```
    /// use lenslet::specimen::{Element, Factors};
    /// let gold = Factors::Kirkland.of(Element::of_symbol("Au")?)?;
    /// assert!((gold.projected(0.5) - 132.05).abs() < 0.01); // V Å
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn projected(&self, r: f64) -> f64 {
        let r = r.abs();
        if r == 0.0 {
            return f64::INFINITY;
        }
        let pole = |pole: &Pole| {
            let (root, x) = (pole.beta.sqrt(), pole.argument(r));
            let double = if pole.double == 0.0 { 0.0 } else { pole.double * bessel_k(1.0, x) };
            2.0 * PI * (pole.simple * bessel_k(0.0, x) + PI * r / root * double)
        };
        let gaussian = |term: &Gaussian| PI / term.steepness * term.at_distance(r);
        VOLTS
            * (self.poles.iter().map(pole).sum::<f64>()
                + self.gaussians.iter().map(gaussian).sum::<f64>())
    }

    // Potential of an atom at a point
    /// Φ(r) \[V\], the potential at the distance `r` \[Å\] from the nucleus, Eq. [potential at point](https://lenslet.github.io/lenslet/scattering.html#eq-potential-at-point); infinite at r = 0.
    pub fn potential(&self, r: f64) -> f64 {
        let r = r.abs();
        if r == 0.0 {
            return f64::INFINITY;
        }
        let pole = |pole: &Pole| {
            let charge = pole.simple / r + PI * pole.double / pole.beta.sqrt();
            PI * charge * f64::exp(-pole.argument(r))
        };
        let gaussian = |term: &Gaussian| (PI / term.steepness).powf(1.5) * term.at_distance(r);
        VOLTS
            * (self.poles.iter().map(pole).sum::<f64>()
                + self.gaussians.iter().map(gaussian).sum::<f64>())
    }

    // Potential of an atom between two heights
    /// The potential \[V Å\] integrated along a line at the distance `r` \[Å\] from the nucleus, between two heights above it \[Å\], the lower one first; either may be infinite.
    ///
    /// Infinite for r = 0 where the nucleus lies between them or on either. Eq. [potential between](https://lenslet.github.io/lenslet/scattering.html#eq-potential-between).
    pub fn between(&self, r: f64, [low, high]: [f64; 2]) -> f64 {
        if low < 0.0 && high > 0.0 {
            return self.between(r, [0.0, -low]) + self.between(r, [0.0, high]);
        }
        let (near, far) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
        if r == 0.0 && near == 0.0 {
            return if far == 0.0 { 0.0 } else { f64::INFINITY };
        }
        let pole = |pole: &Pole| PI * pole.along_line(r.abs(), near, far);
        let gaussian = |term: &Gaussian| {
            let beyond = |z: f64| 0.5 * erfc(PI * z / term.steepness.sqrt());
            PI / term.steepness * term.at_distance(r) * (beyond(near) - beyond(far))
        };
        VOLTS
            * (self.poles.iter().map(pole).sum::<f64>()
                + self.gaussians.iter().map(gaussian).sum::<f64>())
    }

    // Scattering factor beyond a height
    /// The part of the scattering factor \[Å\] from higher than `z` ≥ 0 \[Å\] above the nucleus, as a function of the frequency across the beam
    /// \[1/Å\], Eq. [scattering beyond](https://lenslet.github.io/lenslet/scattering.html#eq-scattering-beyond).
    ///
    /// ```
    /// use lenslet::specimen::{Element, Factors};
    /// let silicon = Factors::Lobato.of(Element::new(14)?)?;
    /// assert!((silicon.beyond(0.0)(0.3) / silicon.at(0.3) - 0.5).abs() < 1e-14);
    /// assert!(silicon.beyond(2.0)(3.0) < 1e-15);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn beyond(&self, z: f64) -> impl Fn(f64) -> f64 {
        let share = |term: &Gaussian| 0.5 * erfc(PI * z / term.steepness.sqrt());
        let part = |term: &Gaussian| Gaussian { height: term.height * share(term), ..*term };
        let reaches = |term: &Gaussian| share(term) > 1e-18;
        let gaussians: Vec<Gaussian> =
            self.gaussians.iter().filter(|g| reaches(g)).map(part).collect();
        // Frequencies beyond a height
        move |q| {
            let pole = |pole: &Pole| {
                let square = q * q + pole.beta;
                let exponent = PI * square.sqrt() * z;
                let double = pole.double * (1.0 + exponent) / square;
                0.5 * (pole.simple + double) / square * f64::exp(-2.0 * exponent)
            };
            let gaussian = |term: &Gaussian| term.height * f64::exp(-term.steepness * q * q);
            self.poles.iter().map(pole).sum::<f64>() + gaussians.iter().map(gaussian).sum::<f64>()
        }
    }
}

// Integrate a pole along a line
impl Pole {
    /// ∫ (μ/R + π ν/√β) exp(−2π √β R) dz with R² = r² + z², for z from `near` to `far`, not negative.
    fn along_line(&self, r: f64, near: f64, far: f64) -> f64 {
        let (root, scale) = (self.beta.sqrt(), r.max(near));
        // Beyond this the exponential has fallen to e^(−45) of its value at the nearer end.
        let negligible = f64::hypot(r, near) + 45.0 / (2.0 * PI * root);
        let end = far.min((negligible * negligible - r * r).sqrt());
        let [from, to] = [near, end].map(|z| (z / scale).asinh());
        let pieces = ((to - from) / 0.5).ceil().max(4.0);
        let half = 0.5 * (to - from) / pieces;
        let term = |t: f64| {
            let distance = f64::hypot(r, scale * t.sinh());
            let charge = self.simple / distance + PI * self.double / root;
            charge * f64::exp(-self.argument(distance)) * scale * t.cosh()
        };
        // Sum pieces by Gauss's rule
        let nodes = || RULE.nodes.iter().zip(&RULE.weights);
        let piece = |k: usize| {
            let middle = from + (2 * k + 1) as f64 * half;
            nodes().map(|(node, weight)| weight * half * term(middle + node * half)).sum::<f64>()
        };
        (0..pieces as usize).map(piece).sum()
    }
}

/// Gauss's rule for a piece of a line.
static RULE: LazyLock<Rule> = LazyLock::new(|| gauss_legendre(16));

// Highest frequency beyond a height
/// Terms that have fallen to exp(−NEGLIGIBLE) of their height are omitted.
pub(crate) const NEGLIGIBLE: f64 = 32.0;

impl ScatteringFactor {
    /// The highest frequency \[1/Å\] at which anything of the factor comes from higher than `z` \[Å\] above the nucleus, to 1e-14 of its terms; `None` where there is none.
    pub(crate) fn highest_beyond(&self, z: f64) -> Option<f64> {
        let pole = |pole: &Pole| (NEGLIGIBLE / (2.0 * PI * z)).powi(2) - pole.beta;
        let gaussian = |term: &Gaussian| {
            let d = term.steepness;
            (NEGLIGIBLE - (PI * z).powi(2) / d) / d
        };
        let squares = self.poles.iter().map(pole).chain(self.gaussians.iter().map(gaussian));
        let highest = squares.fold(f64::NEG_INFINITY, f64::max);
        (highest >= 0.0).then(|| highest.sqrt())
    }
}

// Tests of scattering factors
#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: [Factors; 2] = [Factors::Kirkland, Factors::Lobato];

    fn factor(table: Factors, symbol: &str) -> &'static ScatteringFactor {
        table.of(Element::of_symbol(symbol).unwrap()).unwrap()
    }

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance * b.abs(), "{a:e} is not {b:e}");
    }

    /// ∫ f dr from 0 to `end`, for functions with a logarithm or a power at 0: pieces that double.
    fn integral(end: f64, f: impl Fn(f64) -> f64) -> f64 {
        let rule = gauss_legendre(24);
        let piece = |low: f64, high: f64| {
            let (middle, half) = (0.5 * (low + high), 0.5 * (high - low));
            let at = |(node, weight): (&f64, &f64)| weight * half * f(middle + node * half);
            rule.nodes.iter().zip(&rule.weights).map(at).sum::<f64>()
        };
        let doubling = |k: i32| piece(0.25 * 0.5f64.powi(k + 1), 0.25 * 0.5f64.powi(k));
        let steps = (end / 0.25).ceil();
        let equal = |k: usize| piece(k as f64 * end / steps, (k + 1) as f64 * end / steps);
        let near = piece(0.0, 0.25 * 0.5f64.powi(40)) + (0..40).map(doubling).sum::<f64>();
        let rest = piece(0.25, end / steps) + (1..steps as usize).map(equal).sum::<f64>();
        near + rest
    }

    // Every element has its line
    #[test]
    fn every_element_has_its_line() {
        let texts = [
            (include_str!("../../book/data/kirkland.csv"), &KIRKLAND, 98, 14),
            (include_str!("../../book/data/lobato.csv"), &LOBATO, 103, 12),
        ];
        for (text, table, elements, fields) in texts {
            assert_eq!((text.lines().count(), table.len()), (elements + 1, elements));
            for (number, line) in (1..).zip(text.lines().skip(1)) {
                let parts: Vec<&str> = line.split(',').collect();
                let element = Element::new(number).unwrap();
                assert_eq!(parts[..2], [number.to_string().as_str(), element.symbol()]);
                assert_eq!(parts.len(), fields);
                assert!(parts[2..].iter().all(|number| number.parse::<f64>().unwrap().is_finite()));
            }
        }
        assert!(KIRKLAND.iter().all(|f| f.poles.len() == 3 && f.gaussians.len() == 3));
        assert!(LOBATO.iter().all(|f| f.poles.len() == 5));
        let refused = Factors::Kirkland.of(Element::new(99).unwrap()).unwrap_err().to_string();
        assert_eq!(refused, "element = Es: expected an element of the table of Kirkland, 1 to 98");
        assert!(Factors::Lobato.of(Element::new(103).unwrap()).is_ok());
        assert_eq!(factor(Factors::Kirkland, "H").poles[1].simple, 0.062_776_250_5);
        let rounded = factor(Factors::KirklandRounded, "H");
        assert_eq!((rounded.poles[1].simple, rounded.poles[1].beta), (0.062_776_25, 0.225_367));
        let helium = factor(Factors::KirklandRounded, "He").gaussians[2];
        assert_eq!((helium.height, helium.steepness), (4.659_29e-7, 37_576.8));
        let (rounded, whole) = (factor(Factors::KirklandRounded, "Si"), factor(TABLES[0], "Si"));
        let gap = (rounded.at(0.4) / whole.at(0.4) - 1.0).abs();
        assert!((1e-10..1e-6).contains(&gap), "{gap:e}");
        assert_eq!(
            factor(Factors::Kirkland, "Cf").gaussians[2].steepness,
            KIRKLAND[97].gaussians[2].steepness
        );
    }

    // Both ends of scattering factors are known
    #[test]
    fn both_ends_are_those_of_a_neutral_atom() {
        for (table, tolerance) in TABLES.into_iter().zip([0.25, 2e-3]) {
            let factors = (1..=98).map(|z| (z, table.of(Element::new(z).unwrap()).unwrap()));
            for (z, f) in factors {
                let bare = |q: f64| z as f64 / (2.0 * PI * PI * 0.529_177 * q * q);
                close(f.at(2000.0), bare(2000.0), tolerance);
                let falls = |k: i32| f.at(f64::from(k) * 0.1) > f.at(f64::from(k + 1) * 0.1);
                assert!((0..200).all(|k| falls(k) && f.at(f64::from(k) * 0.1) > 0.0), "{z}");
                let sum = |p: &Pole| p.simple / p.beta + p.double / p.beta.powi(2);
                let heights: f64 = f.gaussians.iter().map(|term| term.height).sum();
                close(f.at(0.0), f.poles.iter().map(sum).sum::<f64>() + heights, 1e-12);
            }
            close(factor(table, "H").at(0.0), 0.529_177, 2e-3);
        }
        let constants =
            6.626_070_15e-34f64.powi(2) / (2.0 * PI * 9.109_383_7e-31 * 1.602_176_634e-19);
        close(VOLTS, constants * 1e20, 1e-4);
    }

    // Projected potentials transform back
    #[test]
    fn projected_potentials_transform_back() {
        for (table, symbol) in
            [(TABLES[0], "Si"), (TABLES[1], "Si"), (TABLES[0], "Au"), (TABLES[1], "O")]
        {
            let f = factor(table, symbol);
            for q in [0.0, 0.17, 0.9, 3.1] {
                let hankel =
                    integral(30.0, |r| 2.0 * PI * r * f.projected(r) * libm::j0(2.0 * PI * q * r));
                close(hankel, VOLTS * f.at(q), 1e-10);
            }
        }
    }

    // Potentials at a point transform back
    #[test]
    fn potentials_at_a_point_transform_back() {
        for (table, symbol) in
            [(TABLES[0], "Si"), (TABLES[1], "Si"), (TABLES[0], "Au"), (TABLES[1], "O")]
        {
            let f = factor(table, symbol);
            for q in [0.11, 0.9, 3.1] {
                let sine =
                    integral(30.0, |r| 2.0 / q * r * f.potential(r) * (2.0 * PI * q * r).sin());
                close(sine, VOLTS * f.at(q), 1e-10);
            }
        }
        let silicon = factor(TABLES[0], "Si");
        assert_eq!(
            (silicon.potential(0.0), silicon.projected(0.0)),
            (f64::INFINITY, f64::INFINITY)
        );
        // A nucleus of 14 charges, hardly screened at a thousandth of an ångström.
        close(silicon.potential(1e-3), 14.0 * 14.4 / 1e-3, 0.05);
    }

    // What lies between heights adds up
    #[test]
    fn what_lies_between_heights_adds_up() {
        let all = [f64::NEG_INFINITY, f64::INFINITY];
        for (table, symbol) in [(TABLES[0], "Si"), (TABLES[1], "Au")] {
            let f = factor(table, symbol);
            for r in [1e-4, 0.03, 0.4, 2.0] {
                close(f.between(r, all), f.projected(r), 1e-12);
                let cuts = [f64::NEG_INFINITY, -1.3, 0.0, 0.02, 0.9, 4.0, f64::INFINITY];
                let parts = cuts.windows(2).map(|cut| f.between(r, [cut[0], cut[1]]));
                close(parts.sum(), f.projected(r), 1e-12);
                let plain = integral(1.3, |z| f.potential(f64::hypot(r, z)));
                close(f.between(r, [-1.3, 0.0]), plain, 1e-11);
            }
            let plain = integral(0.5, |z| f.potential(0.7 + z));
            close(f.between(0.0, [0.7, 1.2]), plain, 1e-12);
            assert_eq!(f.between(0.0, [0.0, 1.0]), f64::INFINITY);
            assert_eq!(f.between(0.3, [0.5, 0.5]), 0.0);
        }
    }

    // What lies beyond a height transforms back
    #[test]
    fn what_lies_beyond_a_height_transforms_back() {
        for (table, symbol) in [(TABLES[0], "Si"), (TABLES[1], "Si")] {
            let f = factor(table, symbol);
            for (z, q) in [(0.2, 0.0), (0.2, 1.4), (1.1, 0.3)] {
                let above = |r: f64| f.between(r, [z, f64::INFINITY]);
                let hankel =
                    integral(20.0, |r| 2.0 * PI * r * above(r) * libm::j0(2.0 * PI * q * r));
                close(hankel, VOLTS * f.beyond(z)(q), 1e-9);
            }
            for q in [0.0, 0.5, 4.0] {
                close(2.0 * f.beyond(0.0)(q), f.at(q), 1e-14);
            }
        }
    }

    // Two tables agree within known differences
    #[test]
    fn two_tables_agree_within_known_differences() {
        for symbol in ["C", "O", "Si", "Cu", "Ag", "Au"] {
            let [one, other] = TABLES.map(|table| factor(table, symbol));
            for q in [0.5, 1.0, 2.0, 4.0, 8.0] {
                close(one.at(q), other.at(q), 0.02);
            }
            for r in [0.02, 0.1, 0.3] {
                close(one.projected(r), other.projected(r), 0.02);
            }
        }
    }
}
