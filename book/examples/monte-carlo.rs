// Tangled from book/src/monte-carlo.md: edit there, or here and run cargo tangle stitch.
//! Simulates the slopes of two laser stars, and draws the comparison with both conventions of the gradient into the given folder.

// Imports of the simulation of slopes
use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
use lenslet::turbulence::direct::slope::pair_covariances;
use lenslet::turbulence::{SlopeCovariance, SlopeProblem, VonKarman};
use lenslet::units::{ARCSEC, DEGREE};
use lenslet::watch::unwatched;
use num_complex::Complex64;
use plotters::prelude::*;
use rand::{SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use rustfft::FftPlanner;
use std::{env, f64::consts::PI, path::PathBuf};

// Two layers and two laser stars
/// Errors of any kind, with their message.
pub type Failure = Box<dyn std::error::Error>;

/// Lenslets to the period of the screens, and grid points to the lenslet.
const LENSLETS: usize = 48;
const FINE: usize = 8;
const GRID: usize = LENSLETS * FINE;

const PITCH: f64 = 0.25;
const WAVELENGTH: f64 = 500e-9;
const R0: f64 = 0.15;
const OUTER_SCALE: f64 = 1.5;

/// Altitude and fraction of the layers.
const LAYERS: [(f64, f64); 2] = [(0.0, 0.4), (18e3, 0.6)];

fn stars() -> Result<[Source; 2], Failure> {
    let star = |zenith: f64, azimuth: f64| Source::new(zenith * ARCSEC, azimuth * DEGREE, 90e3);
    Ok([star(2.0, 30.0)?, star(2.5, 205.0)?])
}

// Simulation of slopes and their products
// Phase screens projected onto the pupil
/// A layer: standard deviations of its Fourier coefficients, and the phase factors of each star along x and y.
struct Screen {
    deviations: Vec<f64>,
    shifts: [[Vec<Complex64>; 2]; 2],
}

impl Screen {
    // Prepare the screen of a layer
    fn new((altitude, fraction): (f64, f64), stars: &[Source; 2]) -> Self {
        let step = 1.0 / (stars[0].cone_factor(altitude) * LENSLETS as f64 * PITCH);
        let frequency =
            |n: usize| step * if n < GRID / 2 { n as f64 } else { n as f64 - GRID as f64 };
        let phase = VonKarman::new(OUTER_SCALE);
        let strength = fraction * R0.powf(-5.0 / 3.0);
        let deviation = |k: usize| {
            let f_squared = frequency(k / GRID).powi(2) + frequency(k % GRID).powi(2);
            step * (strength * phase.power_spectrum(f_squared)).sqrt()
        };
        let shifts = [0, 1].map(|star: usize| {
            let offset = stars[star].project([0.0, 0.0], altitude);
            let factor = |axis: usize, n| Complex64::cis(2.0 * PI * frequency(n) * offset[axis]);
            [0, 1].map(|axis| (0..GRID).map(|n| factor(axis, n)).collect())
        });
        Self { deviations: (0..GRID * GRID).map(deviation).collect(), shifts }
    }
}

// Generate the phases of both stars
/// The phases of both stars on the pupil's grid; real and imaginary parts are two independent realisations.
fn phases(screens: &[Screen], seed: u64) -> [Vec<Complex64>; 2] {
    let mut random = StdRng::seed_from_u64(seed);
    let mut normal = || -> f64 { StandardNormal.sample(&mut random) };
    let mut phases = [(); 2].map(|()| vec![Complex64::ZERO; GRID * GRID]);
    for screen in screens {
        for k in 0..GRID * GRID {
            let amplitude = screen.deviations[k] * Complex64::new(normal(), normal());
            for (phase, [x, y]) in phases.iter_mut().zip(&screen.shifts) {
                phase[k] += amplitude * x[k % GRID] * y[k / GRID];
            }
        }
    }
    phases.map(transform)
}

// Transform a square grid
/// The two-dimensional inverse transform, by rows, twice.
fn transform(mut grid: Vec<Complex64>) -> Vec<Complex64> {
    let fft = FftPlanner::new().plan_fft_inverse(GRID);
    for _ in 0..2 {
        fft.process(&mut grid);
        grid = (0..GRID * GRID).map(|k| grid[k % GRID * GRID + k / GRID]).collect();
    }
    grid
}

// Slopes as differences across lenslets
/// Slopes of one star along x and y, in radians, of all lenslets by rows.
fn slopes(phase: &[f64]) -> [Vec<f64>; 2] {
    let simpson = |k: usize| match k {
        0 | FINE => 1.0 / (3 * FINE) as f64,
        _ => (2 + 2 * (k % 2)) as f64 / (3 * FINE) as f64,
    };
    let at = |y: usize, x: usize| phase[y % GRID * GRID + x % GRID];
    let mean = |at: &dyn Fn(usize) -> f64| (0..=FINE).map(|k| simpson(k) * at(k)).sum::<f64>();
    let lenslet = |k: usize| (k / LENSLETS * FINE, k % LENSLETS * FINE);
    let radians = WAVELENGTH / (2.0 * PI) / PITCH;
    let along_x = |k| {
        let (y, x) = lenslet(k);
        radians * (mean(&|k| at(y + k, x + FINE)) - mean(&|k| at(y + k, x)))
    };
    let along_y = |k| {
        let (y, x) = lenslet(k);
        radians * (mean(&|k| at(y + FINE, x + k)) - mean(&|k| at(y, x + k)))
    };
    let lenslets = LENSLETS * LENSLETS;
    [(0..lenslets).map(along_x).collect(), (0..lenslets).map(along_y).collect()]
}

// Products that are averaged
/// An entry of the covariance: stars p and q, axes a and b, and the lag in pitches along x and y.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub pair: [usize; 2],
    pub axes: [usize; 2],
    pub lag: [isize; 2],
}

const fn entry(p: usize, q: usize, a: usize, b: usize, i: isize, j: isize) -> Entry {
    Entry { pair: [p, q], axes: [a, b], lag: [i, j] }
}

/// The entries that are compared; the first is the variance.
pub const ENTRIES: [Entry; 12] = [
    // Entries of single star and pair
    entry(0, 0, 0, 0, 0, 0),
    entry(1, 1, 1, 1, 0, 0),
    entry(0, 0, 0, 0, 1, 0),
    entry(1, 1, 0, 0, 0, 1),
    entry(0, 0, 0, 1, 1, 1),
    entry(0, 1, 0, 0, 0, 0),
    entry(0, 1, 1, 1, 0, 0),
    entry(0, 1, 0, 1, 0, 0),
    entry(0, 1, 0, 1, 2, 1),
    entry(0, 1, 0, 0, 1, 2),
    entry(0, 1, 1, 1, 2, 1),
    entry(1, 0, 1, 0, 1, -2),
];

// Averages over many realisations
/// Mean and standard error of each entry of [`ENTRIES`] over `2 × draws` realisations, rad².
pub fn simulate(draws: u64, seed: u64) -> Result<Vec<(f64, f64)>, Failure> {
    let stars = stars()?;
    let screens = LAYERS.map(|layer| Screen::new(layer, &stars));
    let realisation = |realisation| {
        let phases = phases(&screens, seed + realisation);
        let real = [0, 1].map(|star: usize| slopes(&map(&phases[star], |z| z.re)));
        let imaginary = [0, 1].map(|star: usize| slopes(&map(&phases[star], |z| z.im)));
        [
            ENTRIES.map(|entry| average(&real, entry)),
            ENTRIES.map(|entry| average(&imaginary, entry)),
        ]
    };
    let realisations: Vec<[f64; ENTRIES.len()]> =
        (0..draws).into_par_iter().flat_map_iter(realisation).collect();
    // Mean and standard error of an entry
    let n = realisations.len() as f64;
    let statistics = |k: usize| {
        let mean = realisations.iter().map(|one| one[k]).sum::<f64>() / n;
        let scatter =
            realisations.iter().map(|one| (one[k] - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, (scatter / n).sqrt())
    };
    Ok((0..ENTRIES.len()).map(statistics).collect())
}

// Mean product of two slopes
/// ⟨s_a^p(x) s_b^q(x + ρ)⟩ over the lenslets of one realisation; `slopes[star][axis]`.
fn average(slopes: &[[Vec<f64>; 2]; 2], entry: Entry) -> f64 {
    let first = &slopes[entry.pair[0]][entry.axes[0]];
    let second = &slopes[entry.pair[1]][entry.axes[1]];
    let moved = |at: usize, by: isize| (at + LENSLETS).wrapping_add_signed(by) % LENSLETS;
    let product = |k: usize| {
        let (y, x) = (moved(k / LENSLETS, entry.lag[1]), moved(k % LENSLETS, entry.lag[0]));
        first[k] * second[y * LENSLETS + x]
    };
    (0..first.len()).map(product).sum::<f64>() / first.len() as f64
}

fn map(values: &[Complex64], part: impl Fn(&Complex64) -> f64) -> Vec<f64> {
    values.iter().map(part).collect()
}

// Predictions of the two conventions
/// The entries of [`ENTRIES`] by the direct method of this crate, rad².
pub fn predict(gradient: ConeGradient) -> Result<Vec<f64>, Failure> {
    const REACH: usize = 3;
    let layer = |(altitude, fraction)| {
        let (outer_scale, wind_speed, wind_direction) = (OUTER_SCALE, 0.0, 0.0);
        Layer { altitude, fraction, outer_scale, wind_speed, wind_direction }
    };
    let atmosphere = Atmosphere::new(R0, WAVELENGTH, LAYERS.map(layer).to_vec())?;
    let array = LensletArray::new(REACH, PITCH)?;
    let problem = SlopeProblem::new(&atmosphere, &array, &stars()?, gradient)?;
    let covariance =
        SlopeCovariance::from_pairs(&problem, &pair_covariances(&problem, &unwatched)?);
    let read = |entry: &Entry| {
        let [i, j] = entry.lag.map(|lag| (REACH - 1).wrapping_add_signed(lag));
        let ([p, q], [a, b]) = (entry.pair, entry.axes);
        covariance.values()[[p, q, a, b, j, i]]
    };
    Ok(ENTRIES.iter().map(read).collect())
}

// Draw both predictions with error bars
fn main() -> Result<(), Failure> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let measured = simulate(150, 2026)?;
    let (pupil, layer) = (predict(ConeGradient::Pupil)?, predict(ConeGradient::Layer)?);
    let percent = 100.0 / pupil[0];
    let path = folder.join("sensor-verdict.svg");
    let area = SVGBackend::new(&path, (760, 440)).into_drawing_area();
    area.fill(&WHITE)?;
    // Set up the chart of entries
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(50)
        .y_label_area_size(60)
        .build_cartesian_2d((0..ENTRIES.len() - 1).into_segmented(), -10.0..40.0)?;
    let name = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(k) => ENTRIES.get(*k).map_or(String::new(), label),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(ENTRIES.len())
        .x_label_formatter(&name)
        .x_desc("entry: stars, axes, lag in lenslets")
        .y_desc("difference from “pupil” [% of the variance]")
        .draw()?;
    // Draw predictions and measurements
    let (blue, orange) = (RGBColor(0, 114, 178), RGBColor(213, 94, 0));
    let at = SegmentValue::CenterOf;
    let line = [at(0), at(ENTRIES.len() - 1)].map(|place| (place, 0.0));
    chart
        .draw_series(LineSeries::new(line, blue.stroke_width(2)))?
        .label("gradient along the pupil")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], blue.stroke_width(2)));
    let squares = layer.iter().zip(&pupil).enumerate().map(|(k, (layer, pupil))| {
        TriangleMarker::new((at(k), percent * (layer - pupil)), 6, orange.filled())
    });
    chart
        .draw_series(squares)?
        .label("gradient along the layer")
        .legend(move |(x, y)| TriangleMarker::new((x + 9, y), 6, orange.filled()));
    let bars = measured.iter().zip(&pupil).enumerate().map(|(k, ((mean, error), pupil))| {
        let [low, middle, high] = [-3.0, 0.0, 3.0].map(|n| percent * (mean + n * error - pupil));
        ErrorBar::new_vertical(at(k), low, middle, high, BLACK.filled(), 8)
    });
    chart
        .draw_series(bars)?
        .label("sensor, bars of ±3 standard errors")
        .legend(|(x, y)| Circle::new((x + 9, y), 3, BLACK.filled()));
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}

// Name an entry for the axis
fn label(entry: &Entry) -> String {
    let [a, b] = entry.axes.map(|axis| ["x", "y"][axis]);
    let ([p, q], [i, j]) = (entry.pair.map(|star| star + 1), entry.lag);
    format!("{p}{q} {a}{b} {i},{j}")
}

// Tests of the simulated sensor
#[cfg(test)]
mod tests {
    use super::*;
    use lenslet::turbulence::gradient_covariances;

    // Check the variances of both conventions
    #[test]
    fn the_upper_layer_makes_the_ratio_of_the_variances() -> Result<(), Failure> {
        let phase = VonKarman::new(OUTER_SCALE);
        let averaged = |side| gradient_covariances(&phase, side, [0.0; 2], (1, 1))[[0, 0, 0]];
        let (ground, upper) = (averaged(0.25), averaged(0.2));
        assert!((ground - 1.985).abs() < 1e-3 && (upper - 2.595).abs() < 1e-3);
        let (along_pupil, along_layer) =
            (0.4 * ground + 0.6 * 0.64 * upper, 0.4 * ground + 0.6 * upper);
        assert!((along_layer / along_pupil - 1.313).abs() < 1e-3);
        let predicted = predict(ConeGradient::Layer)?[0] / predict(ConeGradient::Pupil)?[0];
        assert!((predicted / (along_layer / along_pupil) - 1.0).abs() < 1e-9);
        Ok(())
    }
}
