// Tangled from book/src/electron-beam.md: edit there, or here and run cargo tangle stitch.
//! Electrons of one energy, lenses with aberrations, and the probe that they make.

// Imports of the beam
use super::wave_grid::WaveGrid;
use crate::error::{Invalid, accept, finite, positive};
use crate::numerics::real::Real;
use crate::plausible::ENERGY;
use ndarray::{Array2, Array3, ArrayView2, ArrayViewMut2};
use num_complex::{Complex, Complex64};
use std::f64::consts::PI;

// Constants of an electron
/// Mass of an electron \[kg\], its charge \[C\], the speed of light \[m/s\] and Planck's constant \[J s\].
const MASS: f64 = 9.109_383e-31;
const CHARGE: f64 = 1.602_177e-19;
const LIGHT: f64 = 299_792_458.0;
const PLANCK: f64 = 6.626_07e-34;

// Electrons of one energy
/// Electrons of one energy.
///
/// ```
/// use lenslet::electrons::Beam;
/// let beam = Beam::new(100.0)?;
/// assert!((beam.wavelength() - 0.0370143620).abs() < 1e-10); // Å
/// assert!((beam.interaction() - 9.243959e-4).abs() < 1e-10); // rad/(V Å)
/// assert_eq!(beam.frequency(37.0143620).round(), 1.0);       // mrad to 1/Å
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Beam {
    energy_kev: f64,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Beam::new(energy_kev: f64)?);

impl Beam {
    /// Electrons of `energy_kev` kiloelectronvolts.
    ///
    /// # Errors
    /// `Invalid` outside of 1 to 10 000 keV.
    pub fn new(energy_kev: f64) -> Result<Self, Invalid> {
        ENERGY.check("energy_kev", energy_kev).map(|energy_kev| Self { energy_kev })
    }

    // Wavelength and interaction of a beam
    /// Its energy \[keV\].
    // Energy of a beam
    pub fn energy_kev(&self) -> f64 {
        self.energy_kev
    }

    /// The wavelength \[Å\], Eq. [electron wavelength](https://lenslet.github.io/lenslet/electron-beam.html#eq-electron-wavelength).
    pub fn wavelength(&self) -> f64 {
        let (energy, rest) = (1e3 * self.energy_kev * CHARGE, MASS * LIGHT * LIGHT);
        1e10 * PLANCK / (2.0 * MASS * energy).sqrt() / (1.0 + energy / (2.0 * rest)).sqrt()
    }

    /// The interaction constant: phase for each V Å of projected potential \[rad/(V Å)\], Eq. [interaction constant](https://lenslet.github.io/lenslet/electron-beam.html#eq-interaction-constant).
    pub fn interaction(&self) -> f64 {
        let (energy, rest) = (1e3 * self.energy_kev * CHARGE, MASS * LIGHT * LIGHT);
        let share = (rest + energy) / (2.0 * rest + energy);
        2.0 * PI / (self.wavelength() * 1e3 * self.energy_kev) * share
    }

    // Frequencies and angles of a beam
    /// The frequency \[1/Å\] of a wave at an angle \[mrad\] to the axis: the angle over the wavelength.
    pub fn frequency(&self, angle: f64) -> f64 {
        1e-3 * angle / self.wavelength()
    }

    /// The angle \[mrad\] to the axis of a wave of a frequency \[1/Å\].
    pub fn angle(&self, frequency: f64) -> f64 {
        1e3 * frequency * self.wavelength()
    }
}

// A term of the aberrations
/// A term of the phase of lenses, Eq. [aberration phase](https://lenslet.github.io/lenslet/electron-beam.html#eq-aberration-phase).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Aberration {
    /// Power m of the angle.
    pub order: u32,
    /// How often it repeats around the axis, n.
    pub fold: u32,
    /// Its size \[rad\], at an angle of 1 rad.
    pub magnitude: f64,
    /// The direction of its crest \[rad\].
    pub angle: f64,
}

// Aberrations of a lens
/// The aberrations of lenses; those of a perfect one by default.
///
/// ```
/// use lenslet::electrons::{Aberrations, Beam, Probe};
/// use std::f64::consts::PI;
/// let (beam, c3) = (Beam::new(200.0)?, 1e7);
/// let defocus = -(1.5 * c3 * beam.wavelength()).sqrt(); // of Scherzer, an underfocus
/// assert!((defocus + 613.3).abs() < 0.1);
/// let aberrations = Aberrations { defocus, c3, ..Default::default() };
/// let phase = |mrad| aberrations.phase(beam.wavelength(), [beam.frequency(mrad), 0.0]);
/// assert!((phase(7.83) / PI + 0.75).abs() < 1e-3); // its minimum
/// assert!(phase(11.08).abs() < 0.02 && (beam.frequency(11.08) - 0.442).abs() < 1e-3);
/// let probe = Probe { beam, semi_angle: 10.0, aberrations, tilt: [0.0; 2] };
/// assert!((probe.diffraction_radius() - 1.53).abs() < 0.01);
/// assert!((probe.extent().radius[0] - 3.87).abs() < 0.01);
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Aberrations {
    /// Defocus C1 \[Å\]: positive is overfocus and acts as propagation over this distance; negative is underfocus.
    pub defocus: f64,
    /// Spherical aberration C3 \[Å\].
    pub c3: f64,
    /// Spherical aberration of fifth order, C5 \[Å\].
    pub c5: f64,
    /// Further terms, which add to these.
    pub terms: Vec<Aberration>,
}

impl Aberrations {
    // All terms of the aberrations
    /// The terms at a `wavelength` \[Å\], Eq. [round aberrations](https://lenslet.github.io/lenslet/electron-beam.html#eq-round-aberrations).
    fn terms(&self, wavelength: f64) -> impl Iterator<Item = Aberration> {
        let unit = PI / wavelength;
        let round = [(2, self.defocus), (4, self.c3 / 2.0), (6, self.c5 / 3.0)];
        let round = round.map(|(order, length)| Aberration {
            order,
            fold: 0,
            magnitude: unit * length,
            angle: 0.0,
        });
        round.into_iter().chain(self.terms.iter().copied())
    }

    // Phase and slope of the aberrations
    /// The phase χ \[rad\] at a frequency \[1/Å\] x, y of electrons of a `wavelength` \[Å\], Eq. [aberration phase](https://lenslet.github.io/lenslet/electron-beam.html#eq-aberration-phase).
    ///
    /// ```
    /// use lenslet::electrons::{Aberrations, Beam};
    /// let (beam, lens) = (Beam::new(200.0)?, Aberrations { defocus: 100.0, ..Default::default() });
    /// let phase = lens.phase(beam.wavelength(), [0.3, 0.4]);
    /// assert!((phase - std::f64::consts::PI * beam.wavelength() * 100.0 * 0.25).abs() < 1e-12);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn phase(&self, wavelength: f64, [x, y]: [f64; 2]) -> f64 {
        let (sine, theta) = (wavelength * x.hypot(y), y.atan2(x));
        let term = |term: Aberration| {
            let turned = f64::from(term.fold) * (theta - term.angle);
            term.magnitude * sine.powi(term.order as i32) * turned.cos()
        };
        self.terms(wavelength).map(term).sum()
    }

    // Gradient of the phase of lenses
    /// The gradient of the phase by the frequency \[rad Å\], x and y.
    pub fn slope(&self, wavelength: f64, [x, y]: [f64; 2]) -> [f64; 2] {
        let (q, theta) = (x.hypot(y), y.atan2(x));
        let mut slope = [0.0; 2];
        for term in self.terms(wavelength).filter(|term| term.order > 0) {
            let (order, fold) = (f64::from(term.order), f64::from(term.fold));
            let size = term.magnitude * wavelength * (wavelength * q).powi(term.order as i32 - 1);
            let (sin, cos) = (fold * (theta - term.angle)).sin_cos();
            let (outwards, around) = (order * size * cos, -fold * size * sin);
            slope[0] += outwards * theta.cos() - around * theta.sin();
            slope[1] += outwards * theta.sin() + around * theta.cos();
        }
        slope
    }

    // Refuse aberrations that are none
    /// Refuses lengths, sizes and angles that are no finite numbers, and powers beyond 20.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let lengths = [("defocus", self.defocus), ("c3", self.c3), ("c5", self.c5)];
        for (name, length) in lengths {
            finite(name, length)?;
        }
        for (k, term) in self.terms.iter().enumerate() {
            let key = |name: &str| format!("aberrations[{k}].{name}");
            accept(term.order <= 20, &key("m"), term.order, "a power from 0 to 20")?;
            accept(term.fold <= 20, &key("n"), term.fold, "a number from 0 to 20")?;
            finite(&key("magnitude"), term.magnitude)?;
            finite(&key("angle"), term.angle)?;
        }
        Ok(())
    }

    // The largest phases of all terms
    /// For each term its key, its value, and its largest phase up to a frequency `radius` \[1/Å\].
    pub(super) fn largest_phases(&self, wavelength: f64, radius: f64) -> Vec<(String, f64, f64)> {
        let keys = ["defocus".to_owned(), "c3".into(), "c5".into()].into_iter();
        let more = (0..self.terms.len()).map(|k| format!("aberrations[{k}].magnitude"));
        let phase = |term: Aberration| {
            let phase = term.magnitude.abs() * (wavelength * radius).powi(term.order as i32);
            if phase.is_nan() { f64::INFINITY } else { phase }
        };
        let terms = keys.chain(more).zip(self.terms(wavelength));
        terms.map(|(key, term)| (key.clone(), self.value_of(&key), phase(term))).collect()
    }

    // The value of a term by its key
    /// The value of the term of a key: a length, or the magnitude of a further term.
    fn value_of(&self, key: &str) -> f64 {
        match key {
            "defocus" => self.defocus,
            "c3" => self.c3,
            "c5" => self.c5,
            _ => {
                let number = key.split(['[', ']']).nth(1).and_then(|number| number.parse().ok());
                let term = number.and_then(|number: usize| self.terms.get(number));
                term.map_or(f64::NAN, |term| term.magnitude)
            }
        }
    }
}

// A soft aperture
/// Transmission of an aperture of radius `radius` \[1/Å\] at the frequency `q` \[1/Å\] on a grid of cells `step` \[1/Å\],
/// Eq. [soft aperture](https://lenslet.github.io/lenslet/electron-beam.html#eq-soft-aperture).
pub(crate) fn aperture(radius: f64, q: [f64; 2], step: [f64; 2]) -> f64 {
    let length = q[0].hypot(q[1]);
    let cells = (step[0] * q[0]).hypot(step[1] * q[1]);
    if length == 0.0 {
        return 1.0;
    }
    ((radius * length - length * length) / cells + 0.5).clamp(0.0, 1.0)
}

// The geometric image of a point
/// Geometric radius of the image of a point by a lens, and the term that contributes most.
#[derive(Debug, Clone, PartialEq)]
pub struct GeometricExtent {
    /// The largest distance from the axis along x and y \[Å\], Eq. [geometric probe](https://lenslet.github.io/lenslet/aberration-sampling.html#eq-geometric-probe).
    pub radius: [f64; 2],
    /// The key of the term with the largest share.
    pub term: String,
}

impl Aberrations {
    /// The extent of the rays through an aperture of radius `aperture` \[1/Å\] around a frequency `axis` \[1/Å\] at a `wavelength` \[Å\].
    pub fn extent(&self, wavelength: f64, axis: [f64; 2], aperture: f64) -> GeometricExtent {
        // Extent of the rays through an aperture
        let own = |aberrations: &Self| {
            let mut radius = [0.0f64; 2];
            let at_axis = aberrations.slope(wavelength, axis);
            if !at_axis.iter().all(|slope| slope.abs() < 1e12) {
                return [f64::INFINITY; 2];
            }
            for k in 0..72 * 48 {
                let (sine, cosine) = (PI * f64::from(k % 72) / 36.0).sin_cos();
                let length = aperture * f64::from(k / 72 + 1) / 48.0;
                let q = [axis[0] + length * cosine, axis[1] + length * sine];
                let slope = aberrations.slope(wavelength, q);
                for (axis, most) in radius.iter_mut().enumerate() {
                    let distance = ((slope[axis] - at_axis[axis]) / (2.0 * PI)).abs();
                    *most = if distance.is_nan() { f64::INFINITY } else { most.max(distance) };
                }
            }
            radius
        };
        // Find the term that spreads most
        let none = Self::default();
        let mut single = vec![
            ("defocus".to_owned(), Self { defocus: self.defocus, ..none.clone() }),
            ("c3".to_owned(), Self { c3: self.c3, ..none.clone() }),
            ("c5".to_owned(), Self { c5: self.c5, ..none.clone() }),
        ];
        for (k, term) in self.terms.iter().enumerate() {
            let name = format!("aberrations[{k}].magnitude");
            single.push((name, Self { terms: vec![*term], ..none.clone() }));
        }
        let mut largest = 0.0;
        let mut term = "defocus".to_owned();
        for (name, aberrations) in &single {
            let [x, y] = own(aberrations);
            if x.max(y) > largest {
                (largest, term) = (x.max(y), name.clone());
            }
        }
        GeometricExtent { radius: own(self), term }
    }
}

// A probe as it is asked for
/// A convergent probe.
///
/// A negative defocus is an underfocus: the crossover is that far below the upper face.
///
/// ```
/// use lenslet::electrons::{Aberrations, Beam, Multislice, Probe, WaveGrid};
/// use lenslet::watch::unwatched;
/// use ndarray::Array2;
/// let (beam, grid) = (Beam::new(100.0)?, WaveGrid::new([64, 64], [16.0, 16.0])?);
/// let probe = |defocus| {
///     let aberrations = Aberrations { defocus, ..Default::default() };
///     Probe { beam, semi_angle: 20.0, aberrations, tilt: [0.0; 2] }.wave(&grid)
/// };
/// let multislice = Multislice::<f64>::new(grid, &beam, 25.0)?;
/// let vacuum = multislice.transmission(Array2::zeros((64, 64)).view())?;
/// let mut waves = probe(-50.0)?.at(&[[4.0, 7.0]]);
/// multislice.propagate(waves.view_mut(), &[vacuum.clone(), vacuum], &unwatched)?;
/// let focused = probe(0.0)?.at::<f64>(&[[4.0, 7.0]]);
/// assert!(waves.iter().zip(&focused).all(|(a, b)| (a - b).norm() < 1e-12));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Probe {
    /// Its electrons.
    pub beam: Beam,
    /// Semi-angle of its cone \[mrad\].
    pub semi_angle: f64,
    /// Aberrations of the lenses.
    #[cfg_attr(feature = "serde", serde(default))]
    pub aberrations: Aberrations,
    /// Tilt of the beam \[mrad\], x and y: its cone is around this direction.
    #[cfg_attr(feature = "serde", serde(default))]
    pub tilt: [f64; 2],
}

// The wave of a probe
impl Probe {
    /// Its wave on a grid, on the axis.
    ///
    /// # Errors
    /// `Invalid` where the semi-angle is not positive or the cone leaves the frequencies that the grid keeps, where an aberration or the tilt is not finite,
    /// or where the cone is so narrow that no frequency of the grid lies in it.
    pub fn wave(&self, grid: &WaveGrid) -> Result<ProbeWave, Invalid> {
        self.check(grid)?;
        Ok(self.checked_wave(grid))
    }

    /// The wave of a probe that has been checked.
    // Wave of a checked probe
    pub(super) fn checked_wave(&self, grid: &WaveGrid) -> ProbeWave {
        let wavelength = self.beam.wavelength();
        let [x, y] = kept_frequencies(grid);
        let mut wave = Array2::from_shape_fn((y.len(), x.len()), |(j, i)| {
            let (q, through) = self.through(grid, [x[i], y[j]]);
            Complex64::from_polar(through, -self.aberrations.phase(wavelength, q))
        });
        let norm = wave.iter().map(Complex64::norm_sqr).sum::<f64>().sqrt();
        wave.mapv_inplace(|a| a / norm);
        ProbeWave { x, y, wave }
    }

    // Transmission of the aperture by frequency
    /// The frequency relative to the axis of the cone \[1/Å\], and the transmission of the aperture there.
    pub(super) fn through(&self, grid: &WaveGrid, q: [f64; 2]) -> ([f64; 2], f64) {
        let q = [0, 1].map(|axis| q[axis] - self.beam.frequency(self.tilt[axis]));
        let step = grid.lengths().map(|length| 1.0 / length);
        (q, aperture(self.beam.frequency(self.semi_angle), q, step))
    }

    // Refuse a cone that is not kept
    /// Refuses a cone that the grid does not keep, or in which it has no frequency.
    pub(super) fn check(&self, grid: &WaveGrid) -> Result<(), Invalid> {
        positive("semi_angle", self.semi_angle)?;
        self.aberrations.check()?;
        for axis in 0..2 {
            let tilt = finite("tilt", self.tilt[axis])?.abs();
            let last = (grid.points()[axis] / 4) as f64 - 0.5;
            let kept = self.beam.angle(last / grid.lengths()[axis]);
            let most = kept - tilt;
            let expected = format!(
                "at most {kept:.3} mrad along {}, with the semi-angle: the grid keeps no larger angles; a smaller pixel keeps more",
                ["x", "y"][axis]
            );
            accept(most > 0.0, &format!("tilt[{axis}]"), self.tilt[axis], &expected)?;
            let expected = format!(
                "at most {most:.3} mrad: the grid keeps no larger angles beside a tilt of {tilt} mrad; a smaller pixel keeps more"
            );
            accept(self.semi_angle <= most, "semi_angle", self.semi_angle, &expected)?;
        }
        let near = [0, 1].map(|axis| {
            let (length, quarter) = (grid.lengths()[axis], (grid.points()[axis] / 4) as f64);
            let middle = (self.beam.frequency(self.tilt[axis]) * length).round();
            [-1.0, 0.0, 1.0].map(|step| (middle + step).clamp(-quarter, quarter - 1.0) / length)
        });
        let lit = |x: &f64| near[1].iter().any(|y| self.through(grid, [*x, *y]).1 > 0.0);
        let expected = "a cone with at least one frequency of the grid in it";
        accept(near[0].iter().any(lit), "semi_angle", self.semi_angle, expected).map(|_| ())
    }

    // Refuse a phase that is not sampled
    /// Rejects aberrations whose phase the grid does not sample: the [geometric probe](GeometricExtent) does not fit into the cell.
    ///
    /// # Errors
    /// `Invalid`, with the term that is at fault.
    pub fn check_sampling(&self, grid: &WaveGrid) -> Result<(), Invalid> {
        let GeometricExtent { radius, term } = self.extent();
        for axis in 0..2 {
            let (radius, length) = (radius[axis], grid.lengths()[axis]);
            let step = 2.0 * PI * radius / length;
            let expected = format!(
                "aberrations whose phase is sampled: the geometric probe has a radius of {radius:.4} Å along {}, and a cell of {length:.4} Å holds {:.4} Å; the phase changes by {step:.4} rad \
                 between neighbouring frequencies, and π is the limit; give the sample a tile of at least {:.4} Å, or a smaller aberration or semi_angle",
                ["x", "y"][axis],
                length / 2.0,
                2.0 * radius
            );
            let value = self.aberrations.value_of(&term);
            accept(step <= PI * (1.0 + 1e-9), &term, value, &expected)?;
        }
        Ok(())
    }

    // Extent and diffraction radius
    /// The [extent](GeometricExtent) of the probe without diffraction.
    pub fn extent(&self) -> GeometricExtent {
        let radius = self.beam.frequency(self.semi_angle);
        self.aberrations.extent(self.beam.wavelength(), [0.0; 2], radius)
    }

    /// Radius of the first dark ring of a perfect probe \[Å\], 0.61 λ/α.
    pub fn diffraction_radius(&self) -> f64 {
        0.61 / self.beam.frequency(self.semi_angle)
    }
}

// Frequencies that waves keep
/// The frequencies \[1/Å\] that waves keep along x and y, in their order.
pub(crate) fn kept_frequencies(grid: &WaveGrid) -> [Vec<f64>; 2] {
    [0, 1].map(|axis| grid.kept(axis).map(|k| grid.frequency(axis, k)).collect())
}

// A probe at its places
/// The wave of a probe on a grid, which can be shifted to any position.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeWave {
    x: Vec<f64>,
    y: Vec<f64>,
    wave: Array2<Complex64>,
}

impl ProbeWave {
    /// The wave of the probe on the axis: (k_y, k_x), the kept frequencies in their order, of norm 1.
    pub fn on_axis(&self) -> ArrayView2<'_, Complex64> {
        self.wave.view()
    }

    // Probes at any positions
    /// The waves of probes at the positions `places` \[Å\], x before y: (place, k_y, k_x), Eq. [probe](https://lenslet.github.io/lenslet/electron-beam.html#eq-probe).
    pub fn at<T: Real>(&self, places: &[[f64; 2]]) -> Array3<Complex<T>> {
        let (ny, nx) = self.wave.dim();
        let mut waves = Array3::zeros((places.len(), ny, nx));
        for (wave, &place) in waves.outer_iter_mut().zip(places) {
            self.put(place, wave);
        }
        waves
    }

    /// Writes the wave of the probe at one position \[Å\].
    pub fn put<T: Real>(&self, place: [f64; 2], mut wave: ArrayViewMut2<'_, Complex<T>>) {
        let ramp = |q: &Vec<f64>, r: f64| -> Vec<Complex64> {
            q.iter().map(|q| Complex64::cis(-2.0 * PI * q * r)).collect()
        };
        let (x, y) = (ramp(&self.x, place[0]), ramp(&self.y, place[1]));
        for ((mut row, own), y) in wave.outer_iter_mut().zip(self.wave.outer_iter()).zip(y) {
            for ((a, own), x) in row.iter_mut().zip(own).zip(&x) {
                *a = T::of_complex(own * (x * y));
            }
        }
    }
}

// Tests of the beam
#[cfg(test)]
mod tests {
    use super::*;

    // Check wavelengths and interactions
    #[test]
    fn wavelength_and_interaction_are_the_tabulated_ones() {
        // Å, and 1e-4 rad/(V Å), computed from the constants with 50 digits.
        let known = [
            (60.0, 0.048660599831646174, 0.00113569067066885),
            (100.0, 0.037014361993505496, 0.0009243959416073288),
            (200.0, 0.025079337357037372, 0.000728840220184184),
            (300.0, 0.01968748638820192, 0.000652616257479744),
        ];
        for (energy, wavelength, interaction) in known {
            let beam = Beam::new(energy).unwrap();
            assert!((beam.wavelength() / wavelength - 1.0).abs() < 1e-13, "{energy}");
            assert!((beam.interaction() / interaction - 1.0).abs() < 1e-13, "{energy}");
            let gamma = 1.0 + 1e3 * energy * CHARGE / (MASS * LIGHT * LIGHT);
            let metres = 1e-10 * beam.wavelength();
            let other = 2.0 * PI * gamma * MASS * CHARGE * metres / (PLANCK * PLANCK) * 1e-10;
            assert!((beam.interaction() / other - 1.0).abs() < 1e-13);
            assert!((beam.frequency(beam.angle(0.7)) - 0.7).abs() < 1e-14);
        }
        assert!(Beam::new(0.0).is_err() && Beam::new(f64::NAN).is_err() && Beam::new(1e5).is_err());
    }

    // Check phases of lenses
    fn lopsided() -> Aberrations {
        let term = |order, fold, magnitude, angle| Aberration { order, fold, magnitude, angle };
        let terms = vec![term(2, 2, 300.0, 0.4), term(3, 1, 4e3, -1.1), term(1, 1, 5.0, 2.0)];
        Aberrations { defocus: -70.0, c3: 1.2e4, c5: -3e6, terms }
    }

    #[test]
    fn the_gradient_is_that_of_the_phase() {
        let (lens, wavelength, step) = (lopsided(), 0.025, 1e-5);
        for q in [[0.31, -0.12], [-0.2, 0.4], [0.0, 0.5], [-0.6, 0.0]] {
            for axis in 0..2 {
                let shifted = |by: f64| {
                    let mut q = q;
                    q[axis] += by;
                    lens.phase(wavelength, q)
                };
                let numeric = (shifted(step) - shifted(-step)) / (2.0 * step);
                let slope = lens.slope(wavelength, q)[axis];
                assert!((slope - numeric).abs() < 1e-7 * (1.0 + slope.abs()), "{q:?} {axis}");
            }
        }
        assert_eq!(Aberrations::default().slope(wavelength, [0.0; 2]), [0.0; 2]);
    }

    #[test]
    fn lengths_and_terms_add() {
        let (wavelength, q) = (0.0370, [0.2, 0.3]);
        let by_length = Aberrations { defocus: 250.0, ..Default::default() };
        let magnitude = PI * 150.0 / wavelength;
        let terms = vec![Aberration { order: 2, fold: 0, magnitude, angle: 1.0 }];
        let both = Aberrations { defocus: 100.0, terms, ..Default::default() };
        let (one, other) = (by_length.phase(wavelength, q), both.phase(wavelength, q));
        assert!((one - other).abs() < 1e-12 && one > 0.0);
        // The definition, term by term, of the lopsided lens.
        let (sine, theta) = (wavelength * 0.13f64.sqrt(), 0.3f64.atan2(0.2));
        let round =
            PI / wavelength * (-70.0 * sine.powi(2) + 6e3 * sine.powi(4) - 1e6 * sine.powi(6));
        let others = 300.0 * sine.powi(2) * (2.0 * (theta - 0.4)).cos()
            + 4e3 * sine.powi(3) * (theta + 1.1).cos()
            + 5.0 * sine * (theta - 2.0).cos();
        assert!((lopsided().phase(wavelength, q) - round - others).abs() < 1e-12);
    }

    // Check shapes and shifts of probes
    fn probe(tilt: [f64; 2]) -> Probe {
        Probe { beam: Beam::new(80.0).unwrap(), semi_angle: 15.0, aberrations: lopsided(), tilt }
    }

    #[test]
    fn probes_are_soft_discs_of_norm_one() {
        let grid = WaveGrid::new([64, 48], [11.0, 9.0]).unwrap();
        let wave =
            Probe { aberrations: Aberrations::default(), ..probe([0.0; 2]) }.wave(&grid).unwrap();
        let (middle, radius) = (wave.on_axis()[[0, 0]].re, probe([0.0; 2]).beam.frequency(15.0));
        let sum: f64 = wave.on_axis().iter().map(Complex64::norm_sqr).sum();
        assert!((sum - 1.0).abs() < 1e-14);
        // Along an axis the ratio is the distance from the rim in cells.
        for (i, a) in wave.on_axis().row(0).iter().enumerate().take(16) {
            let soft = (radius * 11.0 - i as f64 + 0.5).clamp(0.0, 1.0);
            assert!((a.re / middle - soft).abs() < 1e-12 && a.im == 0.0, "{i}");
        }
        assert_eq!(aperture(0.5, [3.0, 4.0], [0.1, 0.1]), 0.0);
        assert_eq!(aperture(0.5, [0.3, 0.4], [0.1, 0.1]), 0.5);
    }

    #[test]
    fn tilts_and_places_move_probes() {
        let grid = WaveGrid::new([64, 48], [11.0, 9.0]).unwrap();
        let straight = probe([0.0; 2]).wave(&grid).unwrap();
        let cell = probe([0.0; 2]).beam.angle(1.0);
        let tilted = probe([3.0 * cell / 11.0, -2.0 * cell / 9.0]).wave(&grid).unwrap();
        for ((j, i), a) in straight.on_axis().indexed_iter() {
            let moved = tilted.on_axis()[[(j + 22) % 24, (i + 3) % 32]];
            assert!((a - moved).norm() < 1e-12);
        }
        let placed = tilted.at::<f64>(&[[1.3, -0.4], [0.0, 2.0]]);
        for (wave, r) in placed.outer_iter().zip([[1.3, -0.4], [0.0, 2.0]]) {
            for ((j, i), a) in wave.indexed_iter() {
                let q = [straight.x[i], straight.y[j]];
                let ramp = Complex64::cis(-2.0 * PI * (q[0] * r[0] + q[1] * r[1]));
                assert!((a - tilted.on_axis()[[j, i]] * ramp).norm() < 1e-14);
            }
        }
        let single = tilted.at::<f32>(&[[1.3, -0.4]]);
        assert!((f64::from(single[[0, 22, 3]].re) - placed[[0, 22, 3]].re).abs() < 1e-7);
    }

    // Check refusals of probes
    #[test]
    fn probes_beyond_the_grid_are_refused() {
        let grid = WaveGrid::new([64, 48], [11.0, 9.0]).unwrap();
        let refused = |change: &dyn Fn(&mut Probe)| {
            let mut bad = probe([0.0; 2]);
            change(&mut bad);
            bad.wave(&grid).unwrap_err()
        };
        let most = probe([0.0; 2]).beam.angle(11.5 / 9.0);
        let wide = refused(&|probe| probe.semi_angle = most + 1e-3);
        assert!(
            wide.quantity == "semi_angle" && wide.expected.contains(&format!("{most:.3} mrad"))
        );
        assert!(Probe { semi_angle: most, ..probe([0.0; 2]) }.wave(&grid).is_ok());
        assert_eq!(refused(&|probe| probe.tilt = [0.0, most - 14.0]).quantity, "semi_angle");
        assert_eq!(refused(&|probe| probe.tilt = [f64::NAN, 0.0]).quantity, "tilt");
        assert_eq!(refused(&|probe| probe.semi_angle = -1.0).quantity, "semi_angle");
        assert_eq!(refused(&|probe| probe.aberrations.c3 = f64::INFINITY).quantity, "c3");
        let second = refused(&|probe| probe.aberrations.terms[1].order = 21);
        assert_eq!(second.quantity, "aberrations[1].m");
        let lost = refused(&|probe| (probe.semi_angle, probe.tilt) = (1e-3, [1.9, 2.3]));
        assert!(lost.expected.contains("at least one frequency"));
        // A tilt that the grid does not keep is at fault itself, and no negative angle is named
        let tilted = refused(&|probe| probe.tilt = [3.0, -(most + 1.0)]);
        assert_eq!((&*tilted.quantity, tilted.expected.contains("most -")), ("tilt[1]", false));
        assert!(tilted.expected.contains(&format!("at most {most:.3} mrad along y")), "{tilted}");
    }

    // Check phases that are not sampled
    #[test]
    fn phases_that_the_grid_does_not_sample_are_refused() {
        let grid = WaveGrid::new([64, 48], [11.0, 9.0]).unwrap();
        let lens = |aberrations| Probe { aberrations, ..probe([0.0; 2]) };
        let of = |defocus, c3, c5| Aberrations { defocus, c3, c5, terms: vec![] };
        // Radii of rays at 15 mrad: α C₁, α³ C₃ and α⁵ C₅
        for (aberrations, radius) in
            [(of(-200.0, 0.0, 0.0), 3.0), (of(0.0, 1e6, 0.0), 3.375), (of(0.0, 0.0, 4e9), 3.0375)]
        {
            let extent = lens(aberrations.clone()).extent();
            assert!(
                extent.radius.iter().all(|found| (found / radius - 1.0).abs() < 1e-9),
                "{extent:?}"
            );
            // From one frequency to the next the phase changes by 2π radius / side
            let (q, lambda) = (lens(of(0.0, 0.0, 0.0)).beam.frequency(15.0), 1e-6);
            let slope = aberrations.slope(lens(of(0.0, 0.0, 0.0)).beam.wavelength(), [0.0, q])[1];
            assert!((slope.abs() / (2.0 * PI) / radius - 1.0).abs() < lambda);
            assert!(lens(aberrations).check_sampling(&grid).is_ok());
        }
        let refused = |aberrations| lens(aberrations).check_sampling(&grid).unwrap_err();
        let spherical = refused(of(100.0, 2e6, 0.0));
        assert_eq!((&*spherical.quantity, &*spherical.value), ("c3", "2000000.0"));
        for words in ["radius of 8.25", "holds 5.5", "π is the limit", "tile of at least 16.5"] {
            assert!(spherical.expected.contains(words), "{spherical}");
        }
        assert_eq!(refused(of(400.0, 1.0, 0.0)).quantity, "defocus");
        for c3 in [1e300, -1e300, f64::MAX] {
            assert_eq!(refused(of(0.0, c3, 0.0)).quantity, "c3");
        }
        let term = |order, fold, magnitude| Aberration { order, fold, magnitude, angle: 0.3 };
        let terms = vec![term(1, 1, 1e5), term(3, 1, 1e300)];
        let coma = refused(Aberrations { terms, ..Default::default() });
        assert_eq!(coma.quantity, "aberrations[1].magnitude");
        // A shift of the probe is no blur, unless it is beyond all numbers
        let shift = |size| Aberrations { terms: vec![term(1, 1, size)], ..Default::default() };
        assert!(lens(shift(1e5)).check_sampling(&grid).is_ok());
        assert!(lens(shift(1e300)).check_sampling(&grid).is_err());
    }
}
