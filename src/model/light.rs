// Tangled from book/src/light.md: edit there, or here and run cargo tangle stitch.
//! Noise of slopes from the light on their sensor: photons, detector, and the elongation of laser guide stars.

// Imports of light
use crate::{
    error::{Invalid, accept, positive},
    model::atmosphere::{Atmosphere, check_wavelength},
    model::lenslet_array::{LensletRun, Pupil, Validity},
    model::noise::Noise,
    model::sensor::Sensor,
    plausible::{self, Plausible, SENSOR_PIXEL},
};

// Width of a gaussian
/// The full width at half maximum of a Gaussian in units of its standard deviation, √(8 ln 2).
pub(crate) const FWHM: f64 = 2.354_820_045_030_949_3;

// Limits of a window
const MOST_PIXELS: usize = 10_000;

/// Largest number of lenslets across a sensor whose light is computed.
const MOST_LENSLETS: usize = 10_000;

/// Expected window, for messages.
pub(crate) const WINDOW: &str = "a whole number of pixels from 2 to 10000";

/// Elements xx, xy and yy of the covariance of the light of a spot, rad².
type Spot = [f64; 3];

// Light of a star on its sensor
/// The light of a guide star on its sensor, from which the noise of its slopes follows, [light noise](https://lenslet.github.io/lenslet/light.html#eq-light-noise). Made by
/// [`new`](Self::new); checked when its noise is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Light {
    /// Photons detected behind a lenslet that is wholly lit, in one frame.
    pub photons: f64,
    /// Wavelength of the light \[m\].
    pub wavelength: f64,
    /// Side of a pixel on the sky \[rad\].
    pub pixel: f64,
    /// Full width at half maximum of a round spot \[rad\]; by default that of the seeing and the lenslet.
    pub fwhm: Option<f64>,
    /// Read-out noise of a pixel \[electrons rms\].
    pub read_noise: f64,
    /// Root of the factor by which multiplication increases the variance of a number of photons.
    pub excess_noise: f64,
    /// Background: photons detected by a pixel in one frame.
    pub background: f64,
    /// Pixels across the window under a spot; by default the fewest that hold three standard deviations on both sides.
    pub window: Option<usize>,
    /// Column of sodium of a laser guide star; without it, the spots are round.
    pub spot: Option<LaserSpot>,
}

// Noise computed from light
impl Light {
    // Make the light of a perfect detector
    /// A number of `photons` behind a lenslet that is wholly lit, of `wavelength` \[m\], in round spots on the `pixel`s \[rad\] of a
    /// perfect detector.
    ///
    /// ```
    /// use lenslet::model::{Atmosphere, Layer, LensletArray, Light, Sensor, Source, Validity};
    /// use lenslet::units::ARCSEC;
    /// let fwhm = Some((8.0 * 2f64.ln()).sqrt() * ARCSEC); // a standard deviation of 1 arcsec
    /// let light = Light { fwhm, ..Light::new(100.0, 589e-9, ARCSEC) };
    /// let detector = Light { read_noise: 3.0, window: Some(4), ..light };
    /// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
    /// let sensor = Sensor::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(8, 0.5)?);
    /// let noise = |light: Light| light.noise(&sensor, None, Validity::default(), &air);
    /// assert!((noise(light)?.mean() / ARCSEC.powi(2) - 0.010_833_333).abs() < 1e-9);
    /// assert!((noise(detector)?.mean() / ARCSEC.powi(2) - 0.028_833_333).abs() < 1e-9);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(photons: f64, wavelength: f64, pixel: f64) -> Self {
        Self {
            photons,
            wavelength,
            pixel,
            fwhm: None,
            read_noise: 0.0,
            excess_noise: 1.0,
            background: 0.0,
            window: None,
            spot: None,
        }
    }

    // Check the ranges of light
    /// Rejects values outside of the ranges of light and detectors.
    ///
    /// # Errors
    /// `Invalid`, by the name that a system file has for the number.
    pub fn check(&self) -> Result<(), Invalid> {
        let good = (1e-3..=1e15).contains(&self.photons);
        accept(good, "photons", self.photons, "a number of photons from 1e-3 to 1e15")?;
        check_wavelength(self.wavelength)?;
        // Check the ranges of a detector
        let angle = "an angle greater than 0, and at most 0.1 rad (20626 arcsec)";
        let is_angle = |x: f64| x > 0.0 && x <= 0.1;
        for (key, x) in [("pixel", Some(self.pixel)), ("fwhm", self.fwhm)] {
            let Some(x) = x else { continue };
            accept(is_angle(x), key, x, &(angle.to_string() + &SENSOR_PIXEL.remark(x)))?;
        }
        let electrons = "a number of electrons from 0 to 1e6";
        accept((0.0..=1e6).contains(&self.read_noise), "read_noise", self.read_noise, electrons)?;
        let factor = "a factor from 1 to 10";
        let excess = self.excess_noise;
        accept((1.0..=10.0).contains(&excess), "excess_noise", excess, factor)?;
        let background = "a number of photons from 0 to 1e12";
        let good = (0.0..=1e12).contains(&self.background);
        accept(good, "background", self.background, background)?;
        if let Some(window) = self.window {
            let good = (2..=MOST_PIXELS).contains(&window);
            accept(good, "window", window, WINDOW)?;
        }
        let spot = self.spot.map_or(Ok(()), |spot| spot.check());
        spot.map_err(|bad| Invalid { quantity: format!("spot.{}", bad.quantity), ..bad })
    }

    /// Rejects pixels and spots whose angles are probably in another unit, behind lenslets of a side \[m\].
    fn check_angles(&self, side: f64) -> Result<(), Invalid> {
        let [low, high] = SENSOR_PIXEL.accepted;
        let widest = high.max(20.0 * self.wavelength / side / SENSOR_PIXEL.unit);
        let angle = Plausible { accepted: [low, widest], ..SENSOR_PIXEL };
        angle.check("pixel", self.pixel)?;
        self.fwhm.map_or(Ok(0.0), |fwhm| angle.check("fwhm", fwhm)).map(drop)
    }

    // Noise of the slopes from light
    /// The noise of the slopes of the valid lenslets of a sensor, along its axes, [light noise](https://lenslet.github.io/lenslet/light.html#eq-light-noise).
    ///
    /// # Errors
    /// `Invalid` where the light or the sensor is out of range, a valid lenslet is dark, or a window would be of more than 10 000
    /// pixels across.
    pub fn noise(
        &self,
        sensor: &Sensor,
        pupil: Option<&Pupil>,
        validity: Validity,
        air: &Atmosphere,
    ) -> Result<Noise, Invalid> {
        self.check()?;
        sensor.check()?;
        self.check_angles(sensor.side())?;
        let (array, round) = (&sensor.array, self.round_spot(sensor, air));
        let expected = format!("at most {MOST_LENSLETS}, whose light is computed one by one");
        accept(array.lenslets() <= MOST_LENSLETS, "lenslets", array.lenslets(), &expected)?;
        let spot = |lenslet: [usize; 2]| self.spot_behind(sensor, lenslet, round);
        let runs = || array.runs(pupil, validity);
        let lenslets = || runs().flat_map(|run| run.columns.map(move |i| ([run.row, i], run.lit)));
        // Noise of the widest window
        let streaks = self.spot.iter().flat_map(|_| lenslets());
        let widest = streaks
            .map(|(lenslet, _)| spot(lenslet))
            .fold(round, |widest, [xx, _, yy]| widest.max(xx).max(yy));
        let of_pixels = self.of_pixels(widest)?;
        // Noise of lenslets or of one for all
        let of_photons = self.excess_noise.powi(2);
        let variance =
            |photons: f64, spot: f64| (of_photons * spot + of_pixels / photons) / photons;
        if self.spot.is_none() && pupil.is_none() {
            return Noise::uniform(variance(self.photons, round));
        }
        if self.spot.is_none() {
            let (mut others, mut count) = (Vec::new(), 0);
            for LensletRun { row, columns, lit } in runs() {
                let photons = self.gathered(lit, [row, columns.start])?;
                if lit != 1.0 {
                    others.extend(
                        (count..count + columns.len()).map(|k| (k, variance(photons, round))),
                    );
                }
                count += columns.len();
            }
            return Noise::most(count, variance(self.photons, round), others);
        }
        let block = |(lenslet, lit): ([usize; 2], f64)| {
            let (photons, [xx, xy, yy]) = (self.gathered(lit, lenslet)?, spot(lenslet));
            let xy = of_photons * xy / photons;
            Ok([[variance(photons, xx), xy], [xy, variance(photons, yy)]])
        };
        Noise::blocks(&lenslets().map(block).collect::<Result<Vec<_>, Invalid>>()?)
    }

    // Light gathered by a lenslet
    /// Photons behind lenslet `[j, i]`, of which this fraction is lit.
    fn gathered(&self, lit: f64, [j, i]: [usize; 2]) -> Result<f64, Invalid> {
        let expected =
            format!("light behind all valid lenslets, and [{j}, {i}] is valid without any");
        accept(lit > 1e-9, "photons", self.photons * lit, &expected)
    }

    // Covariance of the light of a spot
    /// Variance of the light of a round spot along any axis, including the effect of the pixels \[rad²\], [pixel spot](https://lenslet.github.io/lenslet/guide-star-spots.html#eq-pixel-spot).
    fn round_spot(&self, sensor: &Sensor, air: &Atmosphere) -> f64 {
        let diffraction = 0.885_893 * self.wavelength / sensor.side();
        let of_air = || air.seeing_at(self.wavelength).hypot(diffraction);
        let fwhm = self.fwhm.unwrap_or_else(of_air);
        (fwhm / FWHM).powi(2) + self.pixel * self.pixel / 12.0
    }
    /// Elements xx, xy and yy of the covariance of the light behind `lenslet` of a sensor, whose spots have the variance `round`
    /// \[rad²\] without elongation, [spot covariance](https://lenslet.github.io/lenslet/guide-star-spots.html#eq-spot-covariance).
    fn spot_behind(&self, sensor: &Sensor, lenslet: [usize; 2], round: f64) -> Spot {
        let [x, y] = self.spot.map_or([0.0; 2], |spot| spot.streak(sensor, lenslet));
        [round + x * x, x * y, round + y * y]
    }

    // Noise of the pixels under a spot
    /// Contribution of the pixels under a spot to the variance of a slope, times the square of the photons \[rad²\]; last term of
    /// [light noise](https://lenslet.github.io/lenslet/light.html#eq-light-noise). `widest` is the largest variance of the light of a spot along an axis.
    fn of_pixels(&self, widest: f64) -> Result<f64, Invalid> {
        let variance = self.read_noise.powi(2) + self.excess_noise.powi(2) * self.background;
        if variance == 0.0 {
            return Ok(0.0);
        }
        let least = (6.0 * widest.sqrt() / self.pixel - 1e-9).ceil().max(2.0);
        let across = self.window.map_or(least, |window| window as f64);
        let expected = "pixels of which 10000 across hold six standard deviations of a spot";
        accept(across <= MOST_PIXELS as f64, "pixel", self.pixel, expected)?;
        let square = across * across;
        Ok(variance * self.pixel * self.pixel * square * (square - 1.0) / 12.0)
    }
}

// Brightness of a guide star
/// Brightness of a star, with the throughput and frame rate of its sensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Brightness {
    /// Magnitude of the star.
    pub magnitude: f64,
    /// Photons of a star of magnitude 0, in the band of the sensor \[1/s/m²\].
    pub zero_point: f64,
    /// Share of the photons that is detected, from the telescope's entrance to the detector.
    pub throughput: f64,
    /// Frames in a second \[Hz\].
    pub frame_rate: f64,
}

// Photons of a magnitude
impl Brightness {
    /// Photons detected behind a lenslet of `side` \[m\] in one frame, [photons of magnitude](https://lenslet.github.io/lenslet/light.html#eq-photons-of-magnitude).
    ///
    /// # Errors
    /// `Invalid` where a field is out of its range.
    ///
    /// ```
    /// use lenslet::model::Brightness;
    /// let star = Brightness { magnitude: 10.0, zero_point: 1e10, throughput: 0.3, frame_rate: 500.0 };
    /// assert!((star.photons(0.5)? - 150.0).abs() < 1e-9); // 1e6 in a second and square metre
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn photons(&self, side: f64) -> Result<f64, Invalid> {
        let Self { magnitude, zero_point, throughput, frame_rate } = *self;
        let good = (-50.0..=50.0).contains(&magnitude);
        accept(good, "magnitude", magnitude, "a magnitude from -50 to 50")?;
        plausible::ZERO_POINT.check("zero_point", positive("zero_point", zero_point)?)?;
        let good = throughput > 0.0 && throughput <= 1.0;
        accept(good, "throughput", throughput, "a share greater than 0, and at most 1")?;
        let flux = zero_point * 10f64.powf(-0.4 * magnitude) * throughput;
        let frame_rate = positive("frame_rate", frame_rate)?;
        Ok(flux * side * side / plausible::RATE.check("frame_rate", frame_rate)?)
    }
}

// Column of excited sodium
/// Column of sodium that a laser excites.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaserSpot {
    /// Position of the launch telescope, in the coordinates of the pupil \[m\].
    pub launch: [f64; 2],
    /// Mean altitude of the sodium above the telescope \[m\].
    pub altitude: f64,
    /// Full width at half maximum of its Gaussian profile \[m\].
    pub thickness: f64,
}

// Elongation seen by a lenslet
impl LaserSpot {
    /// Rms elongation of the spot of lenslet `[j, i]` of a sensor, along the axes of the sensor \[rad\], [streak](https://lenslet.github.io/lenslet/guide-star-spots.html#eq-streak).
    ///
    /// ```
    /// use lenslet::model::{LaserSpot, LensletArray, Sensor, Source};
    /// let spot = LaserSpot { launch: [-8.5, 0.0], altitude: 90e3, thickness: 10e3 };
    /// let sensor = Sensor::at_rest(Source::new(0.0, 0.0, 90e3)?, LensletArray::new(2, 1.0)?);
    /// let [along, across] = spot.streak(&sensor, [1, 1]); // the lenslet at (0.5, 0.5)
    /// assert!((2.354_820 * along - 9.0 * 10e3 / 90e3f64.powi(2)).abs() < 1e-11);
    /// assert!((across / along - 0.5 / 9.0).abs() < 1e-12);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn streak(&self, sensor: &Sensor, lenslet: [usize; 2]) -> [f64; 2] {
        let scale = self.thickness / (FWHM * self.altitude * self.altitude);
        let centre = sensor.centre(lenslet);
        let away = [0, 1].map(|k| scale * (centre[k] - self.launch[k]));
        sensor.axes().map(|axis| axis[0] * away[0] + axis[1] * away[1])
    }

    // Check the launch of a laser
    fn check(&self) -> Result<(), Invalid> {
        for (axis, place) in self.launch.into_iter().enumerate() {
            plausible::LAUNCH.check(&format!("launch[{axis}]"), place)?;
        }
        plausible::SPOT_ALTITUDE.check("altitude", self.altitude)?;
        let good = self.thickness > 0.0 && self.thickness < self.altitude;
        accept(good, "thickness", self.thickness, "a length in metres, less than the altitude")?;
        plausible::SPOT_THICKNESS.check("thickness", self.thickness).map(drop)
    }
}

// Check light against its photons
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::atmosphere::Layer,
        model::lenslet_array::LensletArray,
        model::source::Source,
        units::{ARCSEC, DEGREE},
    };
    use rand::{SeedableRng, rngs::StdRng};
    use rand_distr::{Distribution, Gamma, Normal, Poisson};

    // A sensor and its light
    fn air() -> Atmosphere {
        Atmosphere::new(0.16, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)]).unwrap()
    }

    /// Three lenslets across, 0.8 m each, that look at a laser star; turned, shifted and magnified.
    fn sensor() -> Sensor {
        let source = Source::new(1e-4, 40.0 * DEGREE, 85e3).unwrap();
        let rest = Sensor::at_rest(source, LensletArray::new(3, 0.8).unwrap());
        Sensor { rotation: 25.0 * DEGREE, shift: [0.3, -0.1], magnification: 1.1, ..rest }
    }

    fn light() -> Light {
        let spot = LaserSpot { launch: [-6.0, 2.5], altitude: 85e3, thickness: 9e3 };
        Light { fwhm: Some(1.2 * ARCSEC), spot: Some(spot), ..Light::new(300.0, 589e-9, ARCSEC) }
    }

    fn noise(light: Light, pupil: Option<&Pupil>) -> Noise {
        light.noise(&sensor(), pupil, Validity::LitFraction(0.1), &air()).unwrap()
    }

    fn assert_near(found: f64, expected: f64, tolerance: f64) {
        assert!((found / expected - 1.0).abs() < tolerance, "{found} and {expected}");
    }

    // Check light against quoted formulae
    #[test]
    fn the_phase_has_the_variance_that_is_quoted() {
        use std::f64::consts::PI;
        let round = Light { pixel: 1e-4 * ARCSEC, spot: None, ..light() };
        let (side, photons) = (sensor().side(), round.photons);
        let to_phase = (2.0 * PI * side / 589e-9).powi(2);
        let widths = 1.2 * ARCSEC * side / 589e-9;
        let quoted = PI * PI / (2.0 * 2f64.ln()) * widths * widths / photons;
        assert_near(to_phase * noise(round, None).mean(), quoted, 1e-8);

        let detector = Light { read_noise: 2.5, window: Some(60), pixel: 0.2 * ARCSEC, ..round };
        let without = noise(Light { read_noise: 0.0, ..detector }, None).mean();
        let pixels = 0.2 * ARCSEC * side / 589e-9; // in units of λ/d
        let quoted = PI * PI / 3.0 * (2.5 / photons * 3600.0 * pixels).powi(2);
        let of_reading = to_phase * (noise(detector, None).mean() - without);
        assert_near(of_reading, quoted * (1.0 - 1.0 / 3600.0), 1e-9);
        // A background is read-out noise of its root, which multiplication increases as well.
        let bright = Light { read_noise: 0.0, background: 6.25, ..detector };
        assert_near(noise(bright, None).mean(), noise(detector, None).mean(), 1e-12);
        let multiplied = noise(Light { excess_noise: 1.5, ..bright }, None).mean();
        assert_near(multiplied, 2.25 * noise(bright, None).mean(), 1e-12);
    }

    // Check round spots and photons
    #[test]
    fn noise_follows_the_spot_and_the_light_of_each_lenslet() {
        let seeing = Light { fwhm: None, spot: None, pixel: 1e-9, ..light() };
        let spot = (2.951_28e-6f64.powi(2) + 0.592_94e-6f64.powi(2)) / 5.545_177;
        assert_near(300.0 * noise(seeing, None).mean(), spot, 1e-5);

        let pupil = Pupil::new(2.4, 0.3).unwrap();
        let partly = noise(Light { spot: None, ..light() }, Some(&pupil));
        let whole = noise(Light { spot: None, ..light() }, None);
        assert_eq!(partly.check_lenslets(|| 9), Ok(()));
        for (k, centre) in [(0, [-0.8, -0.8]), (4, [0.0, 0.0]), (5, [0.8, 0.0])] {
            let lit = pupil.lit_fraction(centre, 0.8);
            assert!(lit < 0.999);
            assert_near(partly.block(k)[0] * lit, whole.block(0)[0], 1e-12);
        }

        let detector = Light { read_noise: 3.0, ..light() };
        assert_eq!(noise(Light { window: Some(6), ..detector }, None), noise(detector, None));
        let smaller = noise(Light { window: Some(5), ..detector }, None).mean();
        assert!(smaller < noise(detector, None).mean());
        let brighter = noise(Light { photons: 600.0, ..detector }, None).mean();
        let ratio = brighter / noise(detector, None).mean();
        assert!(ratio > 0.25 && ratio < 0.5, "{ratio}");
    }

    // Check a round spot against its transform
    #[test]
    fn round_spots_are_as_wide_as_a_long_exposure() {
        const STEPS: i32 = 100;
        let light = Light { fwhm: None, spot: None, wavelength: 500e-9, pixel: 1e-9, ..light() };
        for pitch in [0.08, 0.16, 0.48, 1.28] {
            let array = LensletArray::new(1, pitch).unwrap();
            let variance = light.round_spot(&Sensor::at_rest(sensor().source, array), &air());
            let step = pitch / f64::from(STEPS);
            let transfer = |x: f64, y: f64| {
                let structure = 6.883_877 * (x.hypot(y) / 0.16).powf(5.0 / 3.0);
                (-0.5 * structure).exp() * (1.0 - x.abs() / pitch) * (1.0 - y.abs() / pitch)
            };
            let place = |k: i32| f64::from(k) * step;
            let row = |x: f64| (-STEPS..=STEPS).map(|k| transfer(x, place(k))).sum::<f64>();
            let rows: Vec<f64> = (-STEPS..=STEPS).map(|k| row(place(k))).collect();
            let image = |angle: f64| {
                let wave = |k: i32| (2.0 * std::f64::consts::PI * angle * place(k) / 500e-9).cos();
                (-STEPS..=STEPS).zip(&rows).map(|(k, row)| wave(k) * row).sum::<f64>()
            };
            let half = 0.5 * variance.sqrt() * FWHM;
            let [inside, outside] = [0.96, 1.04].map(|share| image(share * half) / image(0.0));
            assert!(inside > 0.5 && outside < 0.5, "{pitch}: {inside} and {outside}");
        }
    }

    // Image of displaced gaussian spots
    /// Shares of light in pixels across × across of side 1, x fastest: Gaussians of the standard deviation `round`, each with its
    /// weight and its centre.
    fn image_of(across: usize, round: f64, spots: &[(f64, [f64; 2])]) -> Vec<f64> {
        let place = |k: usize| k as f64 - (across as f64 - 1.0) / 2.0;
        let below = |x: f64| 0.5 * libm::erf(x / (round * 2f64.sqrt()));
        let share = |k: usize, c: f64| below(place(k) - c + 0.5) - below(place(k) - c - 0.5);
        let pixel = |k: usize| {
            let light =
                spots.iter().map(|&(w, [x, y])| w * share(k % across, x) * share(k / across, y));
            light.sum::<f64>()
        };
        let image: Vec<f64> = (0..across * across).map(pixel).collect();
        let sum: f64 = image.iter().sum();
        image.into_iter().map(|light| light / sum).collect()
    }

    /// Weights of a Gaussian profile at steps of a tenth of its standard deviation.
    fn profile() -> impl Iterator<Item = (f64, f64)> {
        (-40..=40).map(|k| f64::from(k) / 10.0).map(|s| ((-0.5 * s * s).exp(), s))
    }

    // Check a centre of gravity by chance
    #[test]
    fn simulated_centres_of_gravity_waver_as_they_should() {
        const FRAMES: usize = 12_000;
        let (across, photons, background, read) = (9, 2500.0, 0.5, 2.0);
        let (streak, round) = ([0.9, 0.5], 0.8);
        let spots: Vec<_> = profile().map(|(w, s)| (w, streak.map(|e| s * e))).collect();
        let image = image_of(across, round, &spots);
        let mut random = StdRng::seed_from_u64(11);
        let reading = Normal::new(0.0, read).unwrap();
        let mut centre = || {
            let (mut sum, mut c) = (0.0, [0.0; 2]);
            for (k, light) in image.iter().enumerate() {
                // Draw the electrons of a pixel
                let before: f64 =
                    Poisson::new(photons * light + background).unwrap().sample(&mut random);
                let multiplied = if before > 0.0 {
                    Gamma::new(before, 1.0).unwrap().sample(&mut random)
                } else {
                    0.0
                };
                let electrons = multiplied + reading.sample(&mut random) - background;
                sum += electrons;
                for (axis, place) in [k % across, k / across].into_iter().enumerate() {
                    c[axis] += electrons * (place as f64 - 4.0);
                }
            }
            c.map(|c| c / sum)
        };
        let centres: Vec<_> = (0..FRAMES).map(|_| centre()).collect();
        // Compare the centres with their formula
        let (altitude, thickness) = (90e3, 10e3);
        let away = FWHM * altitude * altitude / thickness * ARCSEC;
        let launch = streak.map(|e| -e * away);
        let detector = Light {
            fwhm: Some(round * FWHM * ARCSEC),
            read_noise: read,
            excess_noise: 2f64.sqrt(),
            background,
            window: Some(across),
            spot: Some(LaserSpot { launch, altitude, thickness }),
            ..Light::new(photons, 589e-9, ARCSEC)
        };
        let single = Sensor::at_rest(sensor().source, LensletArray::new(1, 0.5).unwrap());
        let expected = detector.noise(&single, None, Validity::default(), &air()).unwrap().block(0);
        let [xx, xy, yy] = expected.map(|element| element / ARCSEC.powi(2));
        let mean =
            |of: &dyn Fn(&[f64; 2]) -> f64| centres.iter().map(of).sum::<f64>() / FRAMES as f64;
        let centre = [0, 1].map(|k| mean(&|c| c[k]));
        let found = |a: usize, b: usize| mean(&|c| (c[a] - centre[a]) * (c[b] - centre[b]));
        for (found, expected, square) in [
            (found(0, 0), xx, 2.0 * xx * xx),
            (found(0, 1), xy, xx * yy + xy * xy),
            (found(1, 1), yy, 2.0 * yy * yy),
        ] {
            let error = (square / FRAMES as f64).sqrt();
            assert!(
                (found - expected).abs() < 4.0 * error,
                "{found} and {expected}, error {error}"
            );
        }
    }

    // Check a streak height by height
    #[test]
    fn a_streak_is_what_its_heights_make_it() {
        let (sensor, light) = (sensor(), Light { pixel: 0.4 * ARCSEC, ..light() });
        let LaserSpot { launch, altitude, thickness } = light.spot.unwrap();
        let (sin, cos) = (25.0 * DEGREE).sin_cos();
        let covariance = noise(light, None);
        for (k, lenslet) in [(0, [0, 0]), (2, [0, 2]), (7, [2, 1])] {
            let x = sensor.centre(lenslet);
            let position = |h: f64| {
                let angle = |a: usize| (launch[a] * (1.0 - h / altitude) - x[a]) / h;
                let [u, v] = [0, 1].map(|a| (angle(a) + x[a] / altitude) / light.pixel);
                [cos * u + sin * v, cos * v - sin * u]
            };
            let spots: Vec<_> =
                profile().map(|(w, s)| (w, position(altitude + s * thickness / FWHM))).collect();
            let image = image_of(33, 1.2 / 0.4 / FWHM, &spots);
            // Compare the moments of an image
            let place = |k: usize| [k % 33, k / 33].map(|i| i as f64 - 16.0);
            let moment = |of: &dyn Fn([f64; 2]) -> f64| {
                image.iter().enumerate().map(|(k, light)| light * of(place(k))).sum::<f64>()
            };
            let mean = [0, 1].map(|a| moment(&|x| x[a]));
            let scale = light.photons / (light.pixel * light.pixel);
            let [xx, xy, yy] = covariance.block(k).map(|element| scale * element);
            let round = (1.2 / 0.4 / FWHM).powi(2) + 1.0 / 12.0;
            let second = 1.0 + (thickness / altitude).powi(2) / 2f64.ln();
            let expected =
                [round + second * (xx - round), second * xy, round + second * (yy - round)];
            for ((a, b), expected) in [(0, 0), (0, 1), (1, 1)].into_iter().zip(expected) {
                let traced = moment(&|x| (x[a] - mean[a]) * (x[b] - mean[b]));
                let tolerance = 0.002 * (xx * yy).sqrt();
                assert!(
                    (traced - expected).abs() < tolerance,
                    "{lenslet:?}: {traced} and {expected}"
                );
            }
            assert!(xy.abs() > 0.05 * (xx * yy).sqrt());
        }
    }

    // Check that streaks turn with sensors
    #[test]
    fn blocks_are_along_the_axes_of_the_sensor() {
        let rest = Sensor { rotation: 0.0, shift: [0.0; 2], ..sensor() };
        let block = |rotation: f64| {
            let turned = Sensor { rotation: rotation * DEGREE, ..rest };
            let noise = light().noise(&turned, None, Validity::default(), &air()).unwrap();
            noise.block(4).map(|element| 1e14 * element)
        };
        let [xx, xy, yy] = block(0.0);
        assert!(xx > 1.2 * yy && xy < -0.1 * yy); // from the left and above
        for (found, expected) in block(90.0).into_iter().zip([yy, -xy, xx]) {
            assert_near(found, expected, 1e-12);
        }
        let [a, b, c] = block(33.0);
        assert_near(a + c, xx + yy, 1e-12);
        assert_near(a * c - b * b, xx * yy - xy * xy, 1e-12);
    }

    // Check that bad light is refused
    #[test]
    fn bad_light_is_refused_by_name() {
        let nan = f64::NAN;
        let good = Light { window: Some(8), read_noise: 1.0, ..light() };
        let spot = good.spot.unwrap();
        let laser = |spot: LaserSpot| Light { spot: Some(spot), ..good };
        assert_eq!(good.check(), Ok(()));
        for (bad, name) in [
            (Light { photons: 0.0, ..good }, "photons"),
            (Light { photons: nan, ..good }, "photons"),
            (Light { wavelength: 589.0, ..good }, "wavelength"),
            (Light { pixel: 0.0, ..good }, "pixel"),
            (Light { pixel: nan, ..good }, "pixel"),
            (Light { fwhm: Some(0.2), ..good }, "fwhm"),
            (Light { read_noise: -1.0, ..good }, "read_noise"),
            (Light { excess_noise: 0.5, ..good }, "excess_noise"),
            (Light { background: f64::INFINITY, ..good }, "background"),
            (Light { window: Some(1), ..good }, "window"),
            (laser(LaserSpot { launch: [0.0, nan], ..spot }), "spot.launch[1]"),
            (laser(LaserSpot { altitude: 90.0, ..spot }), "spot.altitude"),
            (laser(LaserSpot { thickness: 85e3, ..spot }), "spot.thickness"),
            (laser(LaserSpot { thickness: 0.0, ..spot }), "spot.thickness"),
            // Pixels too small for any window
            (Light { pixel: 1e-13, window: None, ..good }, "pixel"),
        ] {
            let refused = bad.noise(&sensor(), None, Validity::default(), &air()).unwrap_err();
            assert_eq!(refused.quantity, name, "{bad:?}");
        }
        // Refuse dark lenslets and bad stars
        let ring = Pupil::new(2.4, 0.9).unwrap();
        let dark = |validity| good.noise(&sensor(), Some(&ring), validity, &air());
        assert_eq!(dark(Validity::LitFraction(0.0)).unwrap_err().quantity, "photons");
        assert!(dark(Validity::LitFraction(0.01)).is_ok());
        let turned = Sensor { rotation: 7.0, ..sensor() };
        let refused = good.noise(&turned, None, Validity::default(), &air()).unwrap_err();
        assert_eq!(refused.quantity, "rotation");
        let star =
            Brightness { magnitude: 9.0, zero_point: 1e9, throughput: 0.5, frame_rate: 250.0 };
        for (bad, name) in [
            (Brightness { magnitude: nan, ..star }, "magnitude"),
            (Brightness { zero_point: 0.0, ..star }, "zero_point"),
            (Brightness { throughput: 1.1, ..star }, "throughput"),
            (Brightness { throughput: 0.0, ..star }, "throughput"),
            (Brightness { frame_rate: nan, ..star }, "frame_rate"),
        ] {
            assert_eq!(bad.photons(0.5).unwrap_err().quantity, name);
        }
    }
}
