//! The two first programs of the book: their numbers from closed forms and from the library, and those that their chapters quote.

#[allow(dead_code)] // their main functions
#[path = "../book/examples/lenslet_by_library.rs"]
mod lenslet_by_library;
#[path = "../book/examples/microscope_by_library.rs"]
mod microscope_by_library;
#[allow(dead_code)]
#[path = "../book/examples/smallest-lenslet.rs"]
mod smallest_lenslet;
#[allow(dead_code)]
#[path = "../book/examples/smallest-microscope.rs"]
mod smallest_microscope;

use lenslet::electrons::{Beam, Multislice, Potential, PotentialOptions, WaveGrid};
use lenslet::prelude::*;
use lenslet::specimen::{Atom, Element, Slicing};
use lenslet::tomography::CovarianceMatrices;
use ndarray::{Array3, s};
use num_complex::Complex64;
use std::f64::consts::PI;

const LENSLET: &str = include_str!("../book/src/smallest-lenslet.md");
const MICROSCOPE: &str = include_str!("../book/src/smallest-microscope.md");

fn close(value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() <= tolerance, "{value} for {expected}");
}

/// Refuses a chapter without the quoted numbers.
fn quotes(chapter: &str, numbers: &[String]) {
    let prose = chapter.replace('\n', " ");
    for number in numbers {
        assert!(prose.contains(number), "the chapter does not say {number}");
    }
}

/// Kolmogorov's structure function of the program at `r` lenslet sides, m².
fn structure_function(r: f64) -> f64 {
    (500e-9 / (2.0 * PI)).powi(2) * 6.88 * (4.0 * r).powf(5.0 / 3.0)
}

#[test]
fn slopes_of_four_points_have_the_covariances_of_their_distances() {
    let rows: Vec<Vec<f64>> =
        smallest_lenslet::slopes().iter().map(smallest_lenslet::with_slopes).collect();
    close(rows[0][0], structure_function(1.0) / 0.25, 1e-12);
    close(rows[0][1] / rows[0][0], 2f64.powf(2.0 / 3.0) - 1.0, 1e-12);
    close(rows[0][2] / rows[0][0], 2f64.powf(5.0 / 6.0) - 1.0, 1e-12);
    // Of the average over a lenslet, from the constant that the crate's documentation quotes.
    let average = 0.162_242_8 * 500e-9f64.powi(2) * 0.5f64.powf(-1.0 / 3.0) * 32.0;
    let in_phase = structure_function(1.0) / (500e-9 / (2.0 * PI)).powi(2);
    quotes(
        LENSLET,
        &[
            format!("{in_phase:.1}$ rad²"),
            format!("{:.3}$ µrad²", 1e12 * rows[0][0]),
            format!("{:.3}$", rows[0][1] / rows[0][0]),
            format!("{:.3}$", rows[0][2] / rows[0][0]),
            format!("{:.3} µrad² instead", 1e12 * average),
            format!("{:.1} %", 100.0 * (rows[0][0] / average - 1.0)),
        ],
    );
}

#[test]
fn the_matrix_is_that_of_the_library_with_its_formula_of_four_points() -> Result<()> {
    let air = Atmosphere::new(0.125, 500e-9, vec![Layer::new(10e3, 1.0, f64::INFINITY)])?;
    let (array, star) = (LensletArray::new(2, 0.5)?, Source::star(0.0, 0.0)?);
    let system = System::builder(air, array)
        .guide_stars([GuideStar::at_rest(star, array, 0.0)?])
        .targets([star])
        .slope_model(SlopeModel::EdgeMidpoint)
        .build()?;
    let expected = CovarianceMatrices::of(&system, &unwatched)?.measurements;
    let largest = expected[[0, 0]];
    // 6.88388 is Kolmogorov's constant in the library.
    let constant = 6.88 / (2.0 * 3.441_938);
    for (row, slope) in smallest_lenslet::slopes().iter().enumerate() {
        for (column, value) in smallest_lenslet::with_slopes(slope).iter().enumerate() {
            let off = value - constant * expected[[row, column]];
            assert!(off.abs() < 1e-6 * largest, "{row} {column}: {value}");
        }
    }
    Ok(())
}

#[test]
fn elimination_solves_eight_equations() {
    let matrix: Vec<Vec<f64>> = (0..8)
        .map(|i| (0..8).map(|j| if i == j { 3.0 } else { 1.0 / (1.0 + (i + j) as f64) }).collect())
        .collect();
    let right: Vec<f64> = (0..8).map(|k| (k as f64).cos()).collect();
    let solution = smallest_lenslet::solve(matrix.clone(), right.clone());
    for (row, right) in matrix.iter().zip(right) {
        let product: f64 = row.iter().zip(&solution).map(|(a, x)| a * x).sum();
        assert!((product - right).abs() < 1e-14);
    }
}

#[test]
fn weights_of_a_corner_are_those_of_its_chapter() {
    let slopes = smallest_lenslet::slopes();
    let mut matrix: Vec<Vec<f64>> = slopes.iter().map(smallest_lenslet::with_slopes).collect();
    (0..8).for_each(|k| matrix[k][k] += 0.04e-12);
    let corner = smallest_lenslet::with_slopes(&smallest_lenslet::wavefront(0.0)[2]);
    let weights = smallest_lenslet::solve(matrix, corner);
    let [a, b, c, d] = [0, 1, 2, 3].map(|k| format!("{:.3}", weights[k]));
    let sum: f64 = weights[..4].iter().sum();
    quotes(LENSLET, &[format!("{a}, {b}, {c} and {d} m/rad"), format!("Their sum is {sum:.3} m")]);
    // The corner is its own mirror image if x and −y change places.
    close(weights[1], -weights[5], 1e-9);
}

#[test]
fn errors_of_the_smallest_lenslet_are_those_of_its_chapter() -> Result<()> {
    // Half the mean of D over all 81 pairs of points, by how often each distance occurs.
    let pairs = [(24.0, 1.0), (12.0, 2.0), (16.0, 2f64.sqrt()), (16.0, 5f64.sqrt())];
    let sum: f64 = pairs.iter().map(|(count, r)| count * structure_function(*r)).sum();
    let before = ((sum + 4.0 * structure_function(8f64.sqrt())) / 162.0).sqrt();
    let angles = [0.0, 10.0, 20.0, 30.0, 60.0];
    let errors = angles.map(smallest_lenslet::errors);
    errors.iter().for_each(|error| close(error[0], before, 1e-12));
    let nanometres = errors.map(|error| (1e9 * error[1]).round());
    assert_eq!(nanometres, [188.0, 295.0, 437.0, 515.0, 590.0]);
    let library = lenslet_by_library::errors(f64::INFINITY, &angles)?;
    for (error, library) in errors.iter().zip(&library) {
        let ratio = error[1] / library;
        assert!((1.0..1.3).contains(&ratio), "{ratio}");
    }
    let [on_axis, far] = [0, 3].map(|k| format!("{:.0} nm", 1e9 * library[k]));
    let outer_scale = lenslet_by_library::errors(25.0, &angles)?[3];
    let quoted = [format!("{:.0} nm", 1e9 * before), "188 nm".into(), "437 nm".into(), on_axis];
    quotes(LENSLET, &quoted);
    quotes(LENSLET, &[far, format!("{:.0} nm", 1e9 * outer_scale)]);
    Ok(())
}

#[test]
fn transforms_and_slices_conserve_electrons() {
    let wave = smallest_microscope::diffract(1.0, 2.0, &[]);
    let all = smallest_microscope::electrons(&wave, [0.0, 1.0]);
    quotes(MICROSCOPE, &[format!("in the probe: {all:.0}, one")]);
    let slice = smallest_microscope::transmission(0);
    // The first atom is at x = 12, y = 24 samples.
    let [re, im] = slice[24 * 72 + 12];
    quotes(MICROSCOPE, &[format!("{:.2} rad. The slice", im.atan2(re))]);
    let modulus = |[re, im]: &[f64; 2]| re.hypot(*im);
    assert!(slice.iter().all(|value| (modulus(value) - 1.0).abs() < 1e-14));
    let space = smallest_microscope::transform(wave.clone(), 1.0);
    close(space.iter().map(|value| modulus(value).powi(2)).sum(), all, 1e-12);
    let back = smallest_microscope::transform(space, -1.0);
    assert!(wave.iter().zip(&back).all(|(a, b)| modulus(&[a[0] - b[0], a[1] - b[1]]) < 1e-12));
    // An atom far from the probe's focus scatters little beyond what is kept.
    let [_, kept] = smallest_microscope::signals(8.16, 10.0, &[slice]);
    assert!((99.9..100.0).contains(&kept), "{kept}");
}

/// The signal of a probe at the middle of a column, by the library's multislice with the same probe.
fn signal_by_multislice(x: f64) -> Result<f64> {
    let (grid, beam) = (WaveGrid::new([72, 72], [12.24, 12.24])?, Beam::new(200.0)?);
    let gold = |x: f64, depth: usize| -> Result<Atom> {
        let position = [x, 4.08, 14.28 - 4.08 * depth as f64];
        Ok(Atom { element: Element::new(79)?, position, occupancy: 1.0, displacement: 0.0 })
    };
    let columns = [(2.04, 1), (6.12, 2), (10.2, 4)];
    let atoms = columns.iter().flat_map(|(x, n)| (0..*n).map(|depth| gold(*x, depth)));
    let specimen = Specimen::new([12.24, 12.24, 16.32], atoms.collect::<Result<Vec<_>>>()?)?;
    let slicing = Slicing::new(16.32, 4.08)?;
    let potential = Potential::new(&specimen, grid, slicing, PotentialOptions::default())?;
    let multislice = Multislice::<f64>::new(grid, &beam, 4.08)?;
    let slices: Vec<_> = (0..4)
        .map(|k| multislice.transmission(potential.slice(k).view()))
        .collect::<std::result::Result<_, Invalid>>()?;
    let q: Vec<f64> = grid.kept(0).map(|k| grid.frequency(0, k)).collect();
    let within = |j: usize, i: usize, [inner, outer]: [f64; 2]| {
        (inner..outer).contains(&(beam.wavelength() * q[j].hypot(q[i])))
    };
    let mut wave =
        Array3::from_shape_fn((1, 36, 36), |(_, j, i)| match within(j, i, [0.0, 0.02]) {
            true => Complex64::cis(-2.0 * PI * (q[i] * x + q[j] * 4.08)),
            false => Complex64::ZERO,
        });
    let all: f64 = wave.iter().map(Complex64::norm_sqr).sum();
    for slice in slices.chunks(1) {
        multislice.propagate(wave.view_mut(), slice, &unwatched)?;
        // The program does not keep the frequency −N/4.
        wave.slice_mut(s![.., 18, ..]).fill(Complex64::ZERO);
        wave.slice_mut(s![.., .., 18]).fill(Complex64::ZERO);
    }
    let on_annulus = wave.indexed_iter().filter(|((_, j, i), _)| within(*j, *i, [0.025, 0.036]));
    Ok(100.0 * on_annulus.map(|(_, value)| value.norm_sqr()).sum::<f64>() / all)
}

#[test]
fn signals_of_the_smallest_microscope_are_those_of_the_library() -> Result<()> {
    let slices: Vec<_> = (0..4).map(smallest_microscope::transmission).collect();
    let signals = [2.04, 6.12, 10.2].map(|x| smallest_microscope::signals(x, 4.08, &slices)[0]);
    for (x, signal) in [2.04, 6.12, 10.2].into_iter().zip(signals) {
        close(signal, signal_by_multislice(x)?, 2e-4);
    }
    assert_eq!(signals.map(|signal| format!("{signal:.2}")), ["4.23", "12.97", "23.80"]);
    let [same, finer] = [72, 288].map(|samples| microscope_by_library::signals(samples, 0));
    let small = signals.iter().map(|signal| format!("{signal:.2} %"));
    let library = [same?, finer?].concat();
    let library = library.iter().map(|signal| format!("{signal:.1} %"));
    let lost = 100.0 - smallest_microscope::signals(10.2, 4.08, &slices)[1];
    let numbers: Vec<String> = small.chain(library).chain([format!("{lost:.0} %")]).collect();
    quotes(MICROSCOPE, &numbers);
    Ok(())
}
