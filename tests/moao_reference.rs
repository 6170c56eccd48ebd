//! Two systems held against the numbers of the public MOAO code: Strehl ratio and tomographic error, by our own library.
//!
//! The program is `ecrc/moao` (King Abdullah University of Science and Technology and Observatoire de Paris, BSD-3), run in f64 with the tomographic term
//! alone; its parameters are those of its cases `readme` and `nx456` (`prof0-atmos-night0.txt`). Where it differs from our defaults:
//!
//! - Slopes are differences of the middles of a lenslet's edges, and a lenslet is valid by its centre. 1 rad is 206 265″.
//! - Layer strengths are r0^(−5/3) at 0.5 µm; their sum gives the r0 of the noise, and λ/r0, without a factor, its seeing s at the sensor's wavelength.
//! - Noise of a natural star is 0.32/F s² + 0.82 (r/(F p))² s⁴, with F = 10^(2.9 − 0.4 m) T d² t B 10⁴ for the bandwidth B in ångström, read noise r, pixel p. The
//!   atmosphere's transmission A does not enter there. That of a laser spot of width w has a² = s² + w² across and b² = a² + e² along:
//!   0.32/F a² + 0.82 (r/(F p))² a⁴, and 0.32/F b² + 0.82 (r/(F p))² b³ a, with F = flux T d² t/A. The spot is stretched by e = 206 265″ l |x|/H² for a layer
//!   of depth l at H, where x goes from the launch point, at the pupil's rim in the star's direction, to the lenslet.
//! - A variance is added to all x slopes, and to all y slopes, of each laser star.
//! - The pupil has a sample on its axis; those at its rim are lit, those at the rim of the hole are not. The Strehl ratio is the image's peak over that of a
//!   perfect ring, and not of the sampled one, which is larger by (24 436 samples over the area in samples)² = 1.00057.
//! - The tomographic error is the root of the variance C(0) of the wavefront as if its covariance were stationary.
//!
//! What is left: that program has π = 3.14159 where metres become phase, which is 5e-7 of the Strehl ratio, and an asymptotic series for K_{5/6} at
//! large distances, which is 1e-7. A small program in NumPy, which shares nothing with this crate, gives what we find to 2e-8 and 1e-6 nm.

use lenslet::correction::{Mirror, Projector};
use lenslet::device::Engine;
use lenslet::model::{GuideStar, MirrorDesign, Noise, Spacing, System};
use lenslet::plan::Plan;
use lenslet::psf::{Actuators, Aperture};
use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use ndarray::{Array2, Axis};
use std::f64::consts::PI;
use std::fmt::Write;

/// Arcseconds in a radian, as that program has it.
const RADIAN: f64 = 206_265.0;
/// Lenslets across, and the diameter of the hole.
const LENSLETS: usize = 10;
const OBSTRUCTION: f64 = 0.2;
/// Frame time, s, and read noise, electrons.
const FRAME: f64 = 0.004;
const READ_NOISE: f64 = 3.0;
/// r0^(−5/3), m^(−5/3), and altitude, m, of the layers; all have an outer scale of 25 m.
const LAYERS: [[f64; 2]; 10] = [
    [16.1481, 30.0],
    [3.93694, 200.0],
    [3.15623, 390.0],
    [2.16198, 1880.0],
    [1.04095, 4500.0],
    [0.800734, 7500.0],
    [0.867462, 10_500.0],
    [1.72825, 13_500.0],
    [0.411711, 16_500.0],
    [0.144132, 19_500.0],
];
/// Altitude and depth of the sodium layer, m.
const SODIUM: [f64; 2] = [100e3, 5e3];

/// What the two cases do not share.
struct Case {
    diameter: f64,
    /// Directions of laser and of natural stars, arcsec.
    lasers: &'static [[f64; 2]],
    naturals: &'static [[f64; 2]],
    /// Photons of a laser star, /m²/s.
    flux: f64,
    /// What is added to the covariance of its slopes, arcsec².
    constant: f64,
}

const README: Case = Case {
    diameter: 5.0,
    lasers: &[[28.7997509, 0.0], [0.0, 28.7997509], [-28.7997509, 0.0], [0.0, -28.7997509]],
    naturals: &[[-17.768326, 16.4365123], [7.03340438, 16.1264671]],
    flux: 7e6,
    constant: 0.1,
};

const NX456: Case = Case {
    diameter: 39.0,
    lasers: &[[23.0, 0.0], [-11.5, 19.9186], [-11.5, -19.9186]],
    naturals: &[[-16.0, -36.0], [-32.0, 38.0], [52.0, -5.0]],
    flux: 6e7,
    constant: 1.0,
};

impl Case {
    fn side(&self) -> f64 {
        self.diameter / LENSLETS as f64
    }

    /// The system as a file says it, without its noise.
    fn text(&self) -> String {
        let total: f64 = LAYERS.iter().map(|[strength, _]| strength).sum();
        let layers = LAYERS.map(|[strength, altitude]| {
            format!("{{ altitude = {altitude:?}, fraction = {:?} }}", strength / total)
        });
        let mut text = format!(
            "[atmosphere]\nr0 = {:?}\nwavelength = 500e-9\nouter_scale = 25.0\nlayers = [{}]\n\
             [telescope]\ndiameter = {:?}\nobstruction = {OBSTRUCTION:?}\n\
             [lenslet_array]\nlenslets = {LENSLETS}\nvalid = \"centre\"\n\
             [covariance]\nslope_model = \"edge-midpoint\"\n[[target]]\nzenith = 0.0\n",
            total.powf(-0.6),
            layers.join(", "),
            self.diameter,
        );
        let star = |[x, y]: &[f64; 2]| {
            let (zenith, azimuth) = (x.hypot(*y) / (RADIAN * ARCSEC), y.atan2(*x).to_degrees());
            format!("[[guide_star]]\nzenith = {zenith:?}\nazimuth = {azimuth:?}\nnoise = 0.0\n")
        };
        for laser in self.lasers {
            let variance = self.constant / RADIAN.powi(2);
            write!(text, "{}height = {:?}\ntip_tilt = \"unknown\"\n", star(laser), SODIUM[0])
                .unwrap();
            writeln!(text, "tip_tilt_variance = {variance:?}").unwrap();
        }
        self.naturals.iter().for_each(|natural| text.push_str(&star(natural)));
        text
    }

    /// The same with its noise.
    fn system(&self) -> System {
        let system = System::from_toml(&self.text(), "moao.toml").unwrap();
        let (array, valid) = (system.lenslet_array(), system.valid_lenslets().remove(0));
        let centres: Vec<[f64; 2]> = (valid.indexed_iter().filter(|(_, valid)| **valid))
            .map(|((j, i), _)| [array.centre(i), array.centre(j)])
            .collect();
        let with_noise = |(k, star): (usize, &GuideStar)| {
            let noise = match self.lasers.get(k) {
                Some(laser) => self.noise_of_laser(*laser, &centres),
                None => Noise::uniform(self.noise_of_natural()).unwrap(),
            };
            GuideStar { noise, ..star.clone() }
        };
        let stars: Vec<GuideStar> =
            system.guide_stars().iter().enumerate().map(with_noise).collect();
        system.to_builder().guide_stars(stars).build().unwrap()
    }

    // -----------------------------------------------------------------------------------------------------------
    // The noise

    /// Variance of the slopes of a star of magnitude 13, rad².
    fn noise_of_natural(&self) -> f64 {
        let (throughput, bandwidth, pixel) = (0.425, 3300.0, 0.3);
        let area = self.side().powi(2);
        let photons = 10f64.powf(2.9 - 0.4 * 13.0) * throughput * area * FRAME * bandwidth * 1e4;
        let square = seeing(650e-9).powi(2);
        let read = 0.82 * (READ_NOISE / (photons * pixel)).powi(2);
        (0.32 / photons * square + read * square.powi(2)) / RADIAN.powi(2)
    }

    /// Covariances of both slopes of the lenslets, rad².
    fn noise_of_laser(&self, direction: [f64; 2], centres: &[[f64; 2]]) -> Noise {
        let (throughput, transmission, pixel, width) = (0.382, 0.84, 1.0, 1.0);
        let photons = self.flux * throughput * self.side().powi(2) * FRAME / transmission;
        let across = (seeing(589e-9).powi(2) + width * width).sqrt();
        let read = 0.82 * (READ_NOISE / (photons * pixel)).powi(2);
        let variance = |along: f64| {
            (0.32 / photons * along.powi(2) + read * along.powi(3) * across) / RADIAN.powi(2)
        };
        let launch = direction.map(|x| x / direction[0].hypot(direction[1]) * 0.5 * self.diameter);
        let block = |centre: &[f64; 2]| {
            let [x, y] = [0, 1].map(|k| centre[k] - launch[k]);
            let stretch = RADIAN * SODIUM[1] * x.hypot(y) / SODIUM[0].powi(2);
            let (long, short) = (variance(across.hypot(stretch)), variance(across));
            let (sin, cos) = y.atan2(x).sin_cos();
            let both = (long - short) * sin * cos;
            [
                [long * cos * cos + short * sin * sin, both],
                [both, long * sin * sin + short * cos * cos],
            ]
        };
        Noise::blocks(&centres.iter().map(block).collect::<Vec<_>>()).unwrap()
    }
}

/// λ/r0 at this wavelength, arcsec.
fn seeing(wavelength: f64) -> f64 {
    let total: f64 = LAYERS.iter().map(|[strength, _]| strength).sum();
    500e-9 * total.powf(0.6) * (500e-9 / wavelength).powf(0.2) * RADIAN
}

// ---------------------------------------------------------------------------------------------------------------
// The image

/// Samples of the pupil between two actuators, in that program's grid of 512.
const PER_PITCH: usize = 512 / (3 * LENSLETS) + 1;

/// The pupil by the centres of its samples, one of which is on the axis; those at its rim are lit, those at the rim of the hole are not.
fn pupil(diameter: f64) -> Aperture {
    let half = (LENSLETS * PER_PITCH / 2) as i64;
    let hole = (OBSTRUCTION * half as f64).round() as i64;
    let side = 2 * half as usize + 1;
    let light = Array2::from_shape_fn((side, side), |(j, i)| {
        let [x, y] = [i, j].map(|k| k as i64 - half);
        let square = x * x + y * y;
        f64::from(u8::from(hole * hole < square && square <= half * half))
    });
    Aperture::from_light(light, diameter / (LENSLETS * PER_PITCH) as f64).unwrap()
}

/// C(0), m²: means of the covariance of strokes by separation, times what two Gaussians of coupling 0.2 have in common.
fn variance(strokes: &Array2<f64>, positions: &[[f64; 2]], pitch: f64) -> f64 {
    let mut means = Array2::<f64>::zeros((2 * LENSLETS + 1, 2 * LENSLETS + 1));
    let mut counts = means.clone();
    for ((k, l), covariance) in strokes.indexed_iter() {
        let step = |axis: usize| ((positions[l][axis] - positions[k][axis]) / pitch).round();
        let place = [1, 0].map(|axis| (step(axis) + LENSLETS as f64) as usize);
        means[place] += covariance;
        counts[place] += 1.0;
    }
    let decay = 5f64.ln(); // a pitch⁻²
    let of = |((j, i), mean): ((usize, usize), &f64)| {
        let [x, y] = [i, j].map(|k| k as f64 - LENSLETS as f64);
        let common = 0.5 * PI / decay * (-0.5 * decay * (x * x + y * y)).exp();
        mean / counts[[j, i]].max(1.0) * common
    };
    means.indexed_iter().map(of).sum()
}

/// Strehl ratio at 1.65 µm and tomographic error in nm: by the rules of that program; and by the mean over the pupil, on a coarse grid.
fn images(case: &Case) -> [[f64; 2]; 2] {
    let system = case.system();
    let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default()).unwrap();
    assert_eq!((plan.measurements(), plan.truth_slopes()), (912, 152));
    let found = plan.run(&Engine::default(), &unwatched).unwrap();
    let design = MirrorDesign {
        filter: 1.0 / 30f64.sqrt(),
        ..MirrorDesign::new(Spacing::Actuators(LENSLETS + 1))
    };
    let mirror = Mirror::new(&design, &system).unwrap();
    assert_eq!(mirror.positions().len(), 100);
    let projector =
        Projector::new(&mirror, &system, &system.targets()[0], &Engine::default()).unwrap();
    assert_eq!(projector.spectrum().1, 95);
    let errors = found.error_covariance.index_axis(Axis(0), 0);
    let strokes = projector.stroke_errors(&errors, &Engine::default()).unwrap();

    let influence = |offset: [f64; 2]| mirror.influence(offset);
    let (positions, pitch) = (mirror.positions(), mirror.pitch());
    let actuators = Actuators { positions, pitch, influence: &influence };
    let aperture = pupil(case.diameter);
    assert_eq!(aperture.light().sum(), 24_436.0);
    let telescope = aperture.transfer(2 * aperture.light().nrows()).unwrap();
    let structure = actuators.stationary(&strokes, &telescope).unwrap();
    let transfer = telescope.through(&structure, &[1.65e-6]).unwrap().remove(0);
    let ring = 0.25 * PI * case.diameter.powi(2) * (1.0 - OBSTRUCTION.powi(2));
    let strehl = transfer.strehl() * (aperture.area() / ring).powi(2);
    let public = [strehl, 1e9 * variance(&strokes, positions, pitch).sqrt()];

    let aperture = Aperture::across(system.pupil().unwrap(), &[], 50).unwrap();
    let telescope = aperture.transfer(100).unwrap();
    let structure = actuators.mean(&strokes, &aperture, 100).unwrap();
    let transfer = telescope.through(&structure, &[1.65e-6]).unwrap().remove(0);
    [public, [transfer.strehl(), 1e9 * telescope.variance(&structure).unwrap().sqrt()]]
}

#[test]
fn four_lasers_and_two_stars_give_the_public_numbers() {
    let [[strehl, error], exact] = images(&README);
    assert!((strehl - 0.720617).abs() < 2e-6, "{strehl}");
    assert!((error - 157.376).abs() < 1e-3, "{error} nm");
    assert!((exact[0] - 0.7488).abs() < 5e-4 && (exact[1] - 143.02).abs() < 0.2, "{exact:?}");
}

#[test]
fn three_lasers_and_three_stars_give_the_public_numbers() {
    let [[strehl, error], exact] = images(&NX456);
    assert!((strehl - 0.554376).abs() < 2e-6, "{strehl}");
    assert!((error - 204.161).abs() < 1e-3, "{error} nm");
    assert!((exact[0] - 0.6471).abs() < 5e-4 && (exact[1] - 174.09).abs() < 0.2, "{exact:?}");
}
