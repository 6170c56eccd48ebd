//! What the live figures of the book compute, by the library: the reference of `viewer/tests/physics.test.ts`.
//!
//! `LENSLET_REFERENCE=write cargo test live_figures` writes it anew.

use lenslet::correction::Fitting;
use lenslet::electrons::{Aberration, Aberrations, Beam, HrtemOptics, Probe, WaveGrid};
use lenslet::model::{Atmosphere, ControlLoop, Layer, LoopKind, Pupil};
use lenslet::numerics::bessel_k;
use lenslet::psf::Aperture;
use lenslet::specimen::{Atom, Element, Factors, Phonons, Specimen};
use lenslet::turbulence::{VonKarman, gradient_covariances};
use ndarray::{Array2, Axis};
use num_complex::Complex64;
use serde_json::{Value, json};
use std::f64::consts::PI;

const FILE: &str = "viewer/tests/reference/physics.json";

/// JSON has no infinity: null stands for it.
fn finite(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

fn special_functions() -> Value {
    let arguments = [1e-3, 0.07, 0.4, 1.0, 2.3, 7.7, 29.0, 61.0];
    let bessel =
        |order: f64| -> Vec<f64> { arguments.iter().map(|&x| bessel_k(order, x)).collect() };
    let orders = [0.0, 1.0 / 6.0, 5.0 / 6.0, 1.0];
    json!({
        "arguments": arguments,
        "orders": orders,
        "bessel": orders.map(bessel),
    })
}

fn phase() -> Value {
    let distances = [0.0, 1e-4, 0.013, 0.3, 1.1, 4.9, 8.3, 25.0, 170.0];
    let of = |outer_scale: f64| {
        let phase = VonKarman::new(outer_scale);
        let halves = distances.map(|r| phase.half_structure_and_half_mean(r));
        json!({
            "outerScale": finite(outer_scale),
            "structure": distances.map(|r| phase.structure_function(r)),
            "covariance": distances.map(|r| finite(phase.covariance(r))),
            "halfMean": halves.map(|(_, mean)| mean),
            "spectrum": distances.map(|f| finite(phase.power_spectrum(f * f))),
        })
    };
    let cases = [0.7, 9.0, 25.0, 300.0, f64::INFINITY].map(of);
    json!({ "distances": distances, "cases": cases })
}

fn slopes() -> Value {
    let cases = [
        (25.0, 0.5, [-1.5, -1.0], (5, 7)),
        (25.0, 0.43, [0.31, -0.77], (3, 4)),
        (f64::INFINITY, 0.5, [2.61, 0.4], (2, 3)),
        (3.0, 0.9, [-0.2, 1.7], (3, 2)),
    ];
    let of = |(outer_scale, side, first, (ny, nx)): (f64, f64, [f64; 2], (usize, usize))| {
        let phase = VonKarman::new(outer_scale);
        let found = gradient_covariances(&phase, side, first, (ny, nx));
        let component = |k: usize| found.index_axis(Axis(0), k).iter().copied().collect::<Vec<_>>();
        json!({
            "outerScale": finite(outer_scale), "side": side, "first": first, "shape": [ny, nx],
            "xx": component(0), "xy": component(1), "yy": component(2),
        })
    };
    json!(cases.map(of))
}

fn fitting() -> Value {
    let cases =
        [(0.15, 500e-9, 25.0, 0.5), (0.21, 550e-9, 7.0, 0.83), (0.1, 500e-9, f64::INFINITY, 0.2)];
    json!(cases.map(|(r0, wavelength, outer_scale, pitch)| {
        let air = Atmosphere::new(r0, wavelength, vec![Layer::new(0.0, 1.0, outer_scale)]).unwrap();
        let variance = Fitting::new(&air, pitch).unwrap().variance();
        json!({ "r0": r0, "wavelength": wavelength, "outerScale": finite(outer_scale), "pitch": pitch, "variance": variance })
    }))
}

fn transfers() -> Value {
    let cases = [
        (8.0, 0.0, 0.15, 25.0, 1.65e-6),
        (4.2, 0.31, 0.09, 11.0, 0.83e-6),
        (1.3, 0.55, 0.2, f64::INFINITY, 0.64e-6),
    ];
    json!(cases.map(|(diameter, obstruction, r0, outer_scale, wavelength): (f64, f64, f64, f64, f64)| {
        let aperture = Aperture::across(&Pupil::new(diameter, obstruction).unwrap(), &[], 32).unwrap();
        let telescope = aperture.transfer(64).unwrap();
        let phase = VonKarman::new(outer_scale);
        let scale = (500e-9 / (2.0 * PI)).powi(2) * r0.powf(-5.0 / 3.0);
        let structure = telescope.on_grid(|[x, y]| scale * phase.structure_function(x.hypot(y)));
        let seen = telescope.through(&structure, &[wavelength]).unwrap().remove(0);
        let pixel = 0.37 * wavelength / diameter;
        let image = seen.point_spread(pixel, 25).unwrap();
        let cut = |values: &Array2<f64>| values.row(32).iter().skip(32).copied().collect::<Vec<_>>();
        json!({
            "diameter": diameter, "obstruction": obstruction, "r0": r0, "r0Wavelength": 500e-9,
            "outerScale": finite(outer_scale), "wavelength": wavelength, "samples": 32,
            "telescope": cut(telescope.values()), "transfer": cut(seen.values()), "strehl": seen.strehl(),
            "angles": (0..13).map(|k| pixel * f64::from(k)).collect::<Vec<_>>(),
            "pointSpread": image.values.row(12).iter().skip(12).copied().collect::<Vec<_>>(),
        })
    }))
}

fn loops() -> Value {
    let frequencies = [0.01, 1.0, 7.3, 31.0, 55.0, 180.0, 433.0];
    let cases = [
        (500.0, None, 2.0),
        (800.0, None, 1.37),
        (500.0, Some(0.5), 2.0),
        (500.0, Some(0.31), 1.0),
        (1000.0, Some(0.27), 2.6),
        (700.0, Some(0.12), 3.0),
        (500.0, Some(0.9), 2.9),
    ];
    let of = |(rate, gain, delay): (f64, Option<f64>, f64)| {
        let kind = if gain.is_none() { LoopKind::Open } else { LoopKind::Closed };
        let control = ControlLoop { kind, rate, gain: gain.unwrap_or(1.0), delay };
        json!({
            "rate": rate, "gain": gain, "delay": delay,
            "rejection": frequencies.map(|frequency| control.rejection(frequency)),
            "noiseGain": finite(control.noise_gain()),
        })
    };
    json!({ "frequencies": frequencies, "cases": cases.map(of) })
}

/// Astigmatism and coma [Å] at azimuths [rad] as terms of the phase at a wavelength.
fn lens(wavelength: f64, [c1, c3]: [f64; 2], [c12, phi12, c21, phi21]: [f64; 4]) -> Aberrations {
    let unit = 2.0 * PI / wavelength;
    let terms = vec![
        Aberration { order: 2, fold: 2, magnitude: unit * c12 / 2.0, angle: phi12 },
        Aberration { order: 3, fold: 1, magnitude: unit * c21 / 3.0, angle: phi21 },
    ];
    Aberrations { defocus: c1, c3, terms, ..Aberrations::default() }
}

fn probes() -> Value {
    let cases = [
        (200.0, 10.0, [-610.0, 1e7], [0.0; 4]),
        (100.0, 21.0, [40.0, 1e5], [25.0, 0.4, 900.0, -1.1]),
    ];
    let (samples, length) = (64, 14.3);
    let of = |(energy, semi_angle, round, others): (f64, f64, [f64; 2], [f64; 4])| {
        let beam = Beam::new(energy).unwrap();
        let aberrations = lens(beam.wavelength(), round, others);
        let frequencies = [[0.1, 0.0], [0.2, -0.33], [-0.41, 0.17]];
        let phases = frequencies.map(|q| aberrations.phase(beam.wavelength(), q));
        let grid = WaveGrid::new([samples; 2], [length; 2]).unwrap();
        let wave = Probe { beam, semi_angle, aberrations, tilt: [0.0; 2] }.wave(&grid).unwrap();
        // The sum over the kept frequencies at some points [samples] from the middle.
        let kept: Vec<i64> = grid
            .kept(0)
            .map(|k| if k < samples / 2 { k as i64 } else { k as i64 - samples as i64 })
            .collect();
        let intensity = |[x, y]: [i64; 2]| {
            let phase = |k: usize, l: usize| {
                2.0 * PI * ((kept[k] * x + kept[l] * y) as f64) / samples as f64
            };
            let sum: Complex64 = wave
                .on_axis()
                .indexed_iter()
                .map(|((l, k), a)| a * Complex64::cis(phase(k, l)))
                .sum();
            sum.norm_sqr() / (length * length)
        };
        let points = [[0, 0], [3, 0], [0, 5], [-4, 2], [7, -9], [-13, -6]];
        json!({
            "energy": energy, "semiAngle": semi_angle, "c1": round[0], "c3": round[1],
            "c12": others[0], "phi12": others[1], "c21": others[2], "phi21": others[3],
            "frequencies": frequencies, "phases": phases, "samples": samples, "length": length, "points": points, "intensity": points.map(intensity),
        })
    };
    let energies = [20.0, 80.0, 200.0, 300.0, 1250.0];
    let beams = energies.map(|energy| Beam::new(energy).unwrap());
    json!({
        "energies": energies,
        "wavelengths": beams.map(|beam| beam.wavelength()),
        "interactions": beams.map(|beam| beam.interaction()),
        "cases": cases.map(of),
    })
}

fn contrast_transfers() -> Value {
    let grid = WaveGrid::new([128, 4], [25.0, 1.0]).unwrap();
    let cases = [
        (200.0, -613.3, 1e7, 0.0, 0.0),
        (300.0, -420.0, 6.1e6, 38.0, 0.22),
        (80.0, 130.0, -2e5, 55.0, 0.4),
    ];
    json!(cases.map(|(energy, c1, c3, focal_spread, convergence)| {
        let beam = Beam::new(energy).unwrap();
        let aberrations = Aberrations { defocus: c1, c3, ..Aberrations::default() };
        let optics = HrtemOptics { aberrations, focal_spread, convergence, ..HrtemOptics::perfect(beam) };
        let transfer = optics.transfer(&grid).unwrap();
        let indices = [1usize, 4, 9, 14, 21, 27];
        json!({
            "energy": energy, "c1": c1, "c3": c3, "focalSpread": focal_spread, "convergence": convergence,
            "frequencies": indices.map(|k| k as f64 / 25.0),
            // The wave is multiplied by exp(−iχ): minus the imaginary part is the sine of χ times the envelopes.
            "contrast": indices.map(|k| -transfer[[0, k]].im),
            "envelope": indices.map(|k| transfer[[0, k]].norm()),
        })
    }))
}

fn scattering() -> Value {
    let table = include_str!("../book/data/kirkland.csv");
    let (frequencies, distances) = ([0.0, 0.13, 0.8, 2.1, 5.0], [0.02, 0.11, 0.5, 1.3, 2.9]);
    let of = |symbol: &str| {
        let element = Element::of_symbol(symbol).unwrap();
        let line = table.lines().nth(element.number()).unwrap();
        let parameters: Vec<f64> =
            line.split(',').skip(2).map(|x| x.trim().parse().unwrap()).collect();
        let factor = Factors::Kirkland.of(element).unwrap();
        json!({
            "symbol": symbol, "parameters": parameters,
            "factor": frequencies.map(|q| factor.at(q)), "projected": distances.map(|r| factor.projected(r)),
        })
    };
    let cases = ["H", "C", "Si", "Sr", "Au", "U"].map(of);
    json!({ "frequencies": frequencies, "distances": distances, "cases": cases })
}

fn phonons() -> Value {
    let atom = |k: usize| Atom {
        element: Element::new(14).unwrap(),
        position: [0.3 * k as f64 + 20.0, 22.0, 23.0],
        occupancy: 1.0,
        displacement: 1.0,
    };
    let specimen = Specimen::new([50.0; 3], (0..7).map(atom).collect()).unwrap();
    let of = |(seed, configuration): (u64, usize)| {
        let displaced = Phonons { configurations: 10, seed }.displaced(&specimen, configuration);
        let difference = |(a, b): (&Atom, &Atom)| [0, 1, 2].map(|k| a.position[k] - b.position[k]);
        let found: Vec<_> =
            displaced.atoms().iter().zip(specimen.atoms()).map(difference).collect();
        json!({ "seed": seed, "configuration": configuration, "normal": found })
    };
    json!([(0, 0), (7, 3), (123_456_789, 9)].map(of))
}

fn reference() -> Value {
    json!({
        "specialFunctions": special_functions(),
        "phase": phase(),
        "slopes": slopes(),
        "fitting": fitting(),
        "transfers": transfers(),
        "loops": loops(),
        "probes": probes(),
        "contrastTransfers": contrast_transfers(),
        "scattering": scattering(),
        "phonons": phonons(),
    })
}

/// Where two values differ by more than rounding, relative to the largest number of the same list.
fn difference(path: &str, a: &Value, b: &Value) -> Option<String> {
    let differs = || Some(format!("{path}: {a} in the library, {b} in the file"));
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys());
            keys.into_iter().find_map(|key| {
                let at = |map: &serde_json::Map<String, Value>| {
                    map.get(key).cloned().unwrap_or_default()
                };
                difference(&format!("{path}.{key}"), &at(a), &at(b))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let numbers = || a.iter().filter_map(Value::as_f64).map(f64::abs).fold(0.0, f64::max);
            let is_far = |(a, b): (&Value, &Value)| match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => (a - b).abs() > 1e-12 * numbers(),
                _ => false,
            };
            if a.iter().zip(b).any(is_far) {
                return differs();
            }
            let nested = a.iter().zip(b).enumerate().filter(|(_, (a, _))| !a.is_number());
            nested.into_iter().find_map(|(k, (a, b))| difference(&format!("{path}[{k}]"), a, b))
        }
        (Value::Number(x), Value::Number(y)) => match (x.as_f64(), y.as_f64()) {
            (Some(x), Some(y)) if (x - y).abs() <= 1e-12 * x.abs() => None,
            _ => differs(),
        },
        _ if a == b => None,
        _ => differs(),
    }
}

#[test]
fn live_figures_are_compared_with_the_library() {
    let found = reference();
    if std::env::var("LENSLET_REFERENCE").is_ok_and(|value| value == "write") {
        std::fs::write(FILE, format!("{found}\n")).unwrap();
    }
    let file: Value = serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap();
    let remedy = "run LENSLET_REFERENCE=write cargo test live_figures, and the tests of viewer/";
    if let Some(what) = difference("physics", &found, &file) {
        panic!("{FILE} is not what the library computes, {what}: {remedy}");
    }
}
