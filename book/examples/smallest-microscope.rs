// Tangled from book/src/smallest-microscope.md: edit there, or here and run cargo tangle stitch.
//! The smallest microscope: a probe scans a row of gold columns that are 1, 2 and 4 atoms deep.

use std::f64::consts::PI;

// Row, beam and annular detector
const SPACING: f64 = 4.08; // of the atoms, along the row and along the beam [Å]
const COLUMNS: [(f64, usize); 3] = [(0.5, 1), (1.5, 2), (2.5, 4)]; // x in spacings, and atoms
const N: usize = 72; // samples of the wave, along x and along y
const SIDE: f64 = 3.0 * SPACING; // of the square on which the wave is sampled [Å]
const WAVELENGTH: f64 = 0.025079; // of an electron of 200 keV [Å]
const MASS: f64 = 1.0 + 200.0 / 510.999; // of that electron, in rest masses
const CONE: [f64; 2] = [0.0, 0.020]; // angles in the probe [rad]
const ANNULUS: [f64; 2] = [0.025, 0.036]; // angles on the detector [rad]

// Waves, transforms and angles
// Complex numbers as pairs
type Complex = [f64; 2];

fn polar(amplitude: f64, phase: f64) -> Complex {
    [amplitude * phase.cos(), amplitude * phase.sin()]
}

fn add_product(sum: Complex, [a, b]: Complex, [c, d]: Complex) -> Complex {
    [sum[0] + a * c - b * d, sum[1] + a * d + b * c]
}

// Plain discrete Fourier transform
pub fn transform(mut wave: Vec<Complex>, sign: f64) -> Vec<Complex> {
    let root = |k| polar(1.0 / (N as f64).sqrt(), sign * 2.0 * PI * k as f64 / N as f64);
    let roots: Vec<Complex> = (0..N).map(root).collect();
    for _ in ["along x", "along y"] {
        let term = |sum, line, k, j| add_product(sum, wave[N * line + j], roots[j * k % N]);
        let sum = |k, line| (0..N).fold([0.0; 2], |sum, j| term(sum, line, k, j));
        wave = (0..N * N).map(|m| sum(m / N, m % N)).collect();
    }
    wave
}

// Value at each frequency
fn at_frequencies<T>(value: impl Fn(f64, f64) -> T) -> Vec<T> {
    let frequency = |k| ((k + N / 2) % N) as f64 / SIDE - (N / 2) as f64 / SIDE;
    (0..N * N).map(|m| value(frequency(m % N), frequency(m / N))).collect()
}

// Share within two angles
fn within(angles: [f64; 2], u: f64, v: f64) -> f64 {
    f64::from((angles[0]..angles[1]).contains(&(WAVELENGTH * u.hypot(v))))
}

// Scattering factor of gold
const GOLD: [[f64; 4]; 3] = [
    [0.961263398, 0.170932277, 0.295414176, 0.16352551],
    [3.6958103, 12.9335319, 0.311475743, 1.39200901],
    [2.77567491, 0.68999707, 0.0143237267, 0.0271265337],
];

fn scattering_factor(q: f64) -> f64 {
    GOLD.iter().map(|[a, b, c, d]| a / (q * q + b) + c * (-d * q * q).exp()).sum()
}

// Transmission function of a slice
pub fn transmission(depth: usize) -> Vec<Complex> {
    let spectrum = at_frequencies(|u, v| {
        let factor = MASS * WAVELENGTH * N as f64 / SIDE.powi(2) * scattering_factor(u.hypot(v));
        let columns = COLUMNS.iter().filter(|(_, atoms)| depth < *atoms);
        let atoms = columns.map(|(x, _)| polar(factor, -2.0 * PI * SPACING * (u * x + v)));
        atoms.fold([0.0; 2], |sum, atom| add_product(sum, atom, [1.0, 0.0]))
    });
    transform(spectrum, 1.0).iter().map(|phase| polar(1.0, phase[0])).collect()
}

// Propagator from slice to slice
fn propagator(u: f64, v: f64) -> Complex {
    let kept = u.abs().max(v.abs()) < N as f64 / 4.0 / SIDE;
    polar(f64::from(kept), -PI * WAVELENGTH * SPACING * (u * u + v * v))
}

// Follow a probe through the slices
pub fn diffract(x: f64, y: f64, slices: &[Vec<Complex>]) -> Vec<Complex> {
    let mut wave = at_frequencies(|u, v| polar(within(CONE, u, v), -2.0 * PI * (u * x + v * y)));
    for slice in slices {
        for (sign, factors) in [(1.0, slice), (-1.0, &at_frequencies(propagator))] {
            let pairs = transform(wave, sign).into_iter().zip(factors);
            wave = pairs.map(|(value, factor)| add_product([0.0; 2], value, *factor)).collect();
        }
    }
    wave
}

// Electrons within two angles
pub fn electrons(wave: &[Complex], angles: [f64; 2]) -> f64 {
    let shares = at_frequencies(|u, v| within(angles, u, v));
    wave.iter().zip(shares).map(|([re, im], share)| share * (re * re + im * im)).sum()
}

// Percentage on the detector and in all
pub fn signals(x: f64, y: f64, slices: &[Vec<Complex>]) -> [f64; 2] {
    let (wave, probe) = (diffract(x, y, slices), diffract(x, y, &[]));
    [ANNULUS, [0.0, 1.0]].map(|angles| 100.0 * electrons(&wave, angles) / electrons(&probe, CONE))
}

fn main() {
    // Scan along the row
    let slices: Vec<Vec<Complex>> = (0..4).map(transmission).collect();
    for x in (0..24).map(|step| step as f64 * SIDE / 24.0) {
        let [signal, all] = signals(x, SPACING, &slices);
        let bar = "█".repeat((10.0 * signal.sqrt()) as usize);
        println!("{x:5.2} Å: {signal:6.3} % of {all:5.1} % {bar}");
    }
}
