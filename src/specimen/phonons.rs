// Tangled from book/src/phonons.md: edit there, or here and run cargo tangle stitch.
//! Frozen phonons: where trembling atoms stand when an electron passes.

// Imports of phonons
use crate::specimen::atoms::{Atom, Specimen};
use std::{collections::HashMap, f64::consts::PI};

// Configurations of trembling atoms
/// Frozen phonons: snapshots of vibrating atoms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Phonons {
    /// The number of snapshots; 0 for atoms at rest.
    pub configurations: usize,
    /// Seed of the random displacements: the same seed gives the same snapshots.
    pub seed: u64,
}

impl Phonons {
    /// The specimen as a passing electron finds it in snapshot `configuration`; without configurations, the specimen at rest.
    ///
    /// Atoms that are present have occupancy 1, and absent ones are left out. An atom displaced out of the cell above or below keeps its
    /// height, and [`Slicing::slice_of`](crate::specimen::Slicing::slice_of) counts it in the first or last slice. The result depends on the
    /// seed, the configuration and the atom's position in the list alone.
    ///
    /// ```
    /// use lenslet::specimen::{Atom, Element, Phonons, Specimen};
    /// let site = |number, occupancy| -> Result<_, lenslet::Invalid> {
    ///     let element = Element::new(number)?;
    ///     Ok(Atom { element, position: [1.0, 2.0, 3.0], occupancy, displacement: 0.076 })
    /// };
    /// let alloy = Specimen::new([5.0; 3], vec![site(14, 0.7)?, site(32, 0.3)?])?;
    /// let phonons = Phonons { configurations: 1000, seed: 1 };
    /// let drawn = (0..1000).map(|c| phonons.displaced(&alloy, c).atoms()[0]);
    /// assert_eq!(drawn.filter(|atom| atom.element.number() == 14).count(), 696);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn displaced(&self, specimen: &Specimen, configuration: usize) -> Specimen {
        if self.configurations == 0 {
            return specimen.clone();
        }
        let draws = |atom| Draws { seed: self.seed, configuration, atom };
        let shares = shares(specimen.atoms());
        let there = |(k, atom): (usize, &Atom)| {
            // Leave out the atom or displace it
            let (site, before) = shares.get(&k).copied().unwrap_or((k, 0.0));
            let uniform = draws(site).uniform();
            if uniform < before || uniform >= before + atom.occupancy {
                return None;
            }
            let normal = draws(k).normal();
            let mut displaced = Atom { occupancy: 1.0, displacement: 0.0, ..*atom };
            for (place, normal) in displaced.position.iter_mut().zip(normal) {
                *place += atom.displacement * normal;
            }
            Some(displaced)
        };
        specimen.with(specimen.atoms().iter().enumerate().filter_map(there).collect())
    }
}

// Sites that atoms share
/// For each atom with company on its site: the first atom there, and the occupancies of those before it.
fn shares(atoms: &[Atom]) -> HashMap<usize, (usize, f64)> {
    let mut sites: HashMap<[u64; 3], (usize, f64)> = HashMap::new();
    let mut shares = HashMap::new();
    for (k, atom) in atoms.iter().enumerate().filter(|(_, atom)| atom.occupancy < 1.0) {
        let site = sites.entry(atom.position.map(f64::to_bits)).or_insert((k, 0.0));
        if site.0 != k {
            shares.insert(k, *site);
        }
        site.1 += atom.occupancy;
    }
    shares
}

// Scramble an address by Philox
/// 128 bits that belong to `counter` under `key`: Philox 4×32 with ten rounds.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let halves = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    for _ in 0..10 {
        let (high0, low0) = halves(0xD251_1F53, counter[0]);
        let (high2, low2) = halves(0xCD9E_8D57, counter[2]);
        counter = [high2 ^ counter[1] ^ key[0], low2, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

// Numbers drawn for an atom
/// The numbers that belong to an atom of a configuration, [random address](https://lenslet.github.io/lenslet/phonons.html#eq-random-address).
#[derive(Debug, Clone, Copy)]
struct Draws {
    seed: u64,
    configuration: usize,
    atom: usize,
}

impl Draws {
    /// Two uniform numbers in \[0, 1) for one of four purposes.
    fn pair(self, purpose: u32) -> [f64; 2] {
        let words = |x: u64| [x as u32, (x >> 32) as u32];
        // Random words at an address
        let [atom, high] = words(self.atom as u64);
        let place = [
            atom,
            high << 2 | purpose,
            self.configuration as u32,
            (self.configuration as u64 >> 32) as u32,
        ];
        let bits = philox(place, words(self.seed));
        let uniform = |low: u32, high: u32| {
            let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
            bits as f64 / (1u64 << 53) as f64
        };
        [uniform(bits[0], bits[1]), uniform(bits[2], bits[3])]
    }

    // Uniform and normal numbers
    /// A uniform number in \[0, 1).
    fn uniform(self) -> f64 {
        self.pair(0)[0]
    }

    /// Three independent standard normal numbers.
    fn normal(self) -> [f64; 3] {
        let point = |[radius, angle]: [f64; 2]| {
            let (sine, cosine) = libm::sincos(2.0 * PI * angle);
            let radius = (-2.0 * libm::log(1.0 - radius)).sqrt();
            [radius * cosine, radius * sine]
        };
        let ([x, y], [z, _]) = (point(self.pair(1)), point(self.pair(2)));
        [x, y, z]
    }
}

// Tests of phonons
#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::atoms::Element;

    fn atom(position: [f64; 3], occupancy: f64, displacement: f64) -> Atom {
        Atom { element: Element::new(14).unwrap(), position, occupancy, displacement }
    }

    // Published answers of the generator
    #[test]
    fn the_generator_gives_its_published_answers() {
        let zeros = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
        assert_eq!(philox([0; 4], [0; 2]), zeros);
        let ones = [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd];
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), ones);
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let pi = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(counter, [0xa409_3822, 0x299f_31d0]), pi);
    }

    // Moments of displacements
    #[test]
    fn displacements_have_the_moments_of_normal_numbers() {
        let count = 10_000;
        let draw = |seed, configuration| {
            let drawn =
                (0..count).flat_map(move |atom| Draws { seed, configuration, atom }.normal());
            drawn.collect::<Vec<f64>>()
        };
        let mean = |values: &mut dyn Iterator<Item = f64>, n: usize| values.sum::<f64>() / n as f64;
        let (a, n) = (draw(3, 0), 3 * count);
        // Variances of the means of g, g², g³, g⁴: 1, 2, 15, 96.
        for (power, expected, variance) in
            [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
        {
            let found = mean(&mut a.iter().map(|g| g.powi(power)), n);
            let error = (variance / n as f64).sqrt();
            assert!((found - expected).abs() < 4.0 * error, "moment {power}: {found} ± {error}");
        }
        let shifted = |by: usize| a[by..].iter().chain(&a[..by]).copied().collect::<Vec<f64>>();
        for b in [
            draw(4, 0),
            draw(3, 1),
            draw(3, 1 << 32),
            draw(3 + (1 << 32), 0),
            shifted(1),
            shifted(2),
            shifted(3),
        ] {
            let correlation = mean(&mut a.iter().zip(&b).map(|(a, b)| a * b), n);
            assert!(correlation.abs() < 4.0 / (n as f64).sqrt(), "{correlation}");
        }
    }

    // Displacements make the Debye–Waller factor
    #[test]
    fn displacements_make_the_debye_waller_factor() {
        // ⟨cos 2πq·δ⟩ = exp(−2π²q²u²) along any direction, for a one-dimensional rms u
        let (count, u, q) = (20_000, 0.076, 2.0);
        let phonons = Phonons { configurations: 1, seed: 9 };
        let atoms = vec![atom([0.5; 3], 1.0, u); count];
        let moved = phonons.displaced(&Specimen::new([1.0; 3], atoms).unwrap(), 0);
        let expected = (-2.0 * PI * PI * q * q * u * u).exp();
        for direction in [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.6, 0.0, 0.8]] {
            let turn = |atom: &Atom| {
                let along: f64 = (0..3).map(|k| direction[k] * (atom.position[k] - 0.5)).sum();
                (2.0 * PI * q * along).cos()
            };
            let mean = moved.atoms().iter().map(turn).sum::<f64>() / count as f64;
            assert!((mean - expected).abs() < 4.0 / (count as f64).sqrt(), "{mean} {expected}");
        }
    }

    // Displacements have addresses, not an order
    #[test]
    fn displacements_do_not_depend_on_the_other_atoms() {
        let cell = [4.0, 4.0, 8.0];
        let places = (0..20).map(|k| [0.2 * f64::from(k), 0.0, 0.4 * f64::from(k)]);
        let atoms: Vec<Atom> = places.map(|place| atom(place, 1.0, 0.1)).collect();
        let phonons = Phonons { configurations: 8, seed: 7 };
        let whole = phonons.displaced(&Specimen::new(cell, atoms.clone()).unwrap(), 3);
        let half = Specimen::new(cell, atoms[..10].to_vec()).unwrap();
        assert_eq!(phonons.displaced(&half, 3).atoms(), &whole.atoms()[..10]);
        assert_ne!(phonons.displaced(&half, 2).atoms(), &whole.atoms()[..10]);
        assert_eq!(whole.atoms().len(), 20);
        // The lowest atom rests on the face, and about half of its snapshots are below it.
        let lowest = |c| phonons.displaced(&half, c).atoms()[0].position;
        let below = (0..64).filter(|&c| lowest(c)[2] < 0.0).count();
        assert!((16..48).contains(&below), "{below}");
        assert!((0..64).all(|c| (0.0..4.0).contains(&lowest(c)[0])));
        let numbers = format!(
            "{:?}",
            [0, 1, 1000].map(|atom| Draws { seed: 7, configuration: 3, atom }.normal()[2])
        );
        insta::assert_snapshot!(numbers, @"[-1.0908109378505055, -0.13040144731052117, 0.5739027627737272]");
        let still = Phonons { configurations: 0, seed: 7 };
        assert_eq!(still.displaced(&half, 0), half);
    }

    // Occupancies as probabilities
    #[test]
    fn sites_hold_atoms_as_often_as_they_are_occupied() {
        let (here, there) = ([0.5, 0.5, 0.5], [0.1, 0.5, 0.5]);
        let atoms = vec![
            atom(here, 0.3, 0.0),
            atom(there, 1.0, 0.0),
            atom(here, 0.6, 0.0),
            atom(there, 0.0, 0.1),
            atom([0.0; 3], 0.3, 0.0),
        ];
        let specimen = Specimen::new([1.0; 3], atoms).unwrap();
        let phonons = Phonons { configurations: 4000, seed: 2 };
        let mut found = [0; 3];
        for c in 0..4000 {
            let atoms = phonons.displaced(&specimen, c);
            let at = |place| atoms.atoms().iter().filter(|atom| atom.position == place).count();
            assert!(at(here) <= 1, "two atoms on one site");
            assert_eq!(at(there), 1);
            found[0] += at(here);
            found[1] += at([0.0; 3]);
            found[2] += at(here) * at([0.0; 3]);
            assert!(atoms.atoms().iter().all(|atom| atom.occupancy == 1.0));
        }
        for (found, share) in found.into_iter().zip([0.9, 0.3, 0.27]) {
            let error = (share * (1.0 - share) / 4000.0_f64).sqrt();
            let found = found as f64 / 4000.0;
            assert!((found - share).abs() < 4.0 * error, "{found} for {share}");
        }
    }
}
