// Tangled from book/src/bandwidth.md: edit there, or here and run cargo tangle stitch.
//! Servo-lag error of a mirror: the change of the turbulence while light is measured and strokes are held.

// Imports of bandwidth
use crate::correction::correctable_band::Band;
use crate::correction::fitting::square_metres;
#[cfg(feature = "files")]
use crate::error::Error;
use crate::error::{Invalid, accept, length};
#[cfg(feature = "files")]
use crate::model::SystemFile;
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::control::{ControlLoop, LoopKind};
use crate::turbulence::phase::VonKarman;
use ndarray::Array2;
use num_complex::Complex64;
use std::f64::consts::PI;

// Residual fraction of a wave
impl ControlLoop {
    /// Fraction of the power of a wave of this temporal `frequency` \[Hz\] that remains in the residual, averaged over time, Eq. [rejection](https://lenslet.github.io/lenslet/bandwidth.html#eq-rejection).
    // Example of a rejected wave
    ///
    /// ```
    /// use lenslet::model::{ControlLoop, LoopKind};
    /// let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.5, delay: 2.0 };
    /// // A slow wave is suppressed by the square of ω/(gain × rate).
    /// let slow = 2.0 * std::f64::consts::PI * 0.01 / (0.5 * 500.0);
    /// assert!((control.rejection(0.01) / (slow * slow) - 1.0).abs() < 0.1);
    /// assert!(control.rejection(80.0) > 1.0);
    /// ```
    pub fn rejection(&self, frequency: f64) -> f64 {
        let turn = PI * frequency / self.rate; // half the phase of a frame
        let short = one_less_sinc(turn);
        let left = match self.kind {
            LoopKind::Open => {
                -rise(-2.0 * turn * self.delay) + short * Complex64::cis(-2.0 * turn * self.delay)
            }
            LoopKind::Closed => self.left_of_integrator(turn, short),
        };
        left.norm_sqr() + 2.0 * short * (1.0 - left.re)
    }

    // Residual of a wave behind an integrator
    /// 1 − U of Eq. [what is left](https://lenslet.github.io/lenslet/bandwidth.html#eq-what-is-left), for half the phase of a frame, and 1 − s.
    fn left_of_integrator(&self, turn: f64, short: f64) -> Complex64 {
        let (whole, rest) = (self.delay.floor(), self.delay.fract());
        let power = |k: f64| Complex64::cis(2.0 * turn * k);
        let forgets = -rise(-2.0 * turn);
        let sees = (1.0 - rest) * power(-whole) + rest * power(-whole - 1.0);
        let mean = (1.0 - rest) * rise(2.0 * turn * rest) + rest * rise(2.0 * turn * (rest - 1.0));
        let top = forgets + self.gain * power(-self.delay) * (mean + short);
        top / (forgets + self.gain * sees)
    }
}

// Differences without cancellation
/// exp(iφ) − 1.
fn rise(phase: f64) -> Complex64 {
    Complex64::cis(0.5 * phase) * Complex64::new(0.0, 2.0 * (0.5 * phase).sin())
}

/// 1 − sin(x)/x.
fn one_less_sinc(x: f64) -> f64 {
    let square = x * x;
    if square > 0.1 {
        return 1.0 - x.sin() / x;
    }
    // Seven terms of the series.
    let step = |sum: f64, k: f64| square / ((2.0 * k) * (2.0 * k + 1.0)) * (1.0 - sum);
    [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0].into_iter().fold(0.0, step)
}

// Temporal error of a loop
/// Servo-lag error: turbulence that the mirror could correct, but that the control loop corrects too late.
// Example of a servo lag
///
/// ```
/// use lenslet::correction::ServoLag;
/// use lenslet::model::{Atmosphere, ControlLoop, Layer, LoopKind};
/// let wind = Layer { wind_speed: 10.0, ..Layer::new(0.0, 1.0, 25.0) };
/// let air = Atmosphere::new(0.15, 500e-9, vec![wind])?;
/// let control = ControlLoop { kind: LoopKind::Open, rate: 500.0, gain: 1.0, delay: 2.0 };
/// let error = ServoLag::new(&air, &control, 0.5)?;
/// let nm = 1e9 * error.variance()?.sqrt();
/// assert!((nm - 36.1).abs() < 0.1, "{nm}");
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct ServoLag {
    control: ControlLoop,
    pitch: f64,
    /// Strengths \[m²\], statistics for a Fried parameter of a metre, and velocities \[m/s\].
    layers: Vec<(f64, VonKarman, [f64; 2])>,
}

impl ServoLag {
    // Construct the servo lag of layers
    /// Servo-lag error of a loop that controls a mirror with actuators on a square grid of this `pitch` \[m\].
    ///
    /// # Errors
    /// `Invalid` for an [invalid](ControlLoop::check) loop, and if the pitch is not a length.
    pub fn new(air: &Atmosphere, control: &ControlLoop, pitch: f64) -> Result<Self, Invalid> {
        control.check()?;
        let of_layer = |layer: &Layer| {
            let strength = square_metres(air) * layer.fraction;
            (strength, VonKarman::new(layer.outer_scale), layer.velocity())
        };
        let layers = air.layers().iter().filter(|layer| layer.fraction > 0.0).map(of_layer);
        Ok(Self { control: *control, pitch: length("pitch", pitch)?, layers: layers.collect() })
    }

    // Spectrum of the temporal error
    /// The power spectrum \[m⁴\] at a spatial frequency \[1/m\], Eq. [temporal spectrum](https://lenslet.github.io/lenslet/bandwidth.html#eq-temporal-spectrum): none outside of the square.
    pub fn spectrum(&self, f: [f64; 2]) -> f64 {
        let inside = f[0].abs().max(f[1].abs()) < 0.5 / self.pitch;
        if inside { self.left(f)[0] } else { 0.0 }
    }

    /// Residual spectrum at (x, y) and at (x, −y).
    fn left(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for (strength, phase, [u, v]) in &self.layers {
            let power = strength * phase.power_spectrum(x * x + y * y);
            let passing = [x * u + y * v, x * u - y * v];
            sum = [0, 1].map(|k| sum[k] + power * self.control.rejection(passing[k]));
        }
        sum
    }

    // Variance of the temporal error
    /// The variance \[m²\].
    ///
    /// # Errors
    /// `Invalid` if the wind blows further than 1000 pitches within the memory of the loop.
    pub fn variance(&self) -> Result<f64, Invalid> {
        Ok(self.band(0.0)?.integral(|f| self.left(f)))
    }

    /// The structure function \[m²\] on n × n displacements of this `step` \[m\]: element [j, i] is that of ((i − ⌊n/2⌋) s, (j − ⌊n/2⌋) s).
    ///
    /// # Errors
    /// `Invalid` if n is zero, the step is not a length, or n steps and the distance that the wind covers are too many pitches.
    pub fn structure_function(&self, n: usize, step: f64) -> Result<Array2<f64>, Invalid> {
        self.band(n as f64 * 0.5 * step)?.structure_function(n, step, |f| self.left(f))
    }

    // Band for the memory of a loop
    fn band(&self, reach: f64) -> Result<Band, Invalid> {
        let memory = match self.control.kind {
            LoopKind::Open => self.control.delay,
            LoopKind::Closed => self.control.delay + 2.0 / self.control.gain,
        };
        let fastest = self.layers.iter().flat_map(|(_, _, v)| v.map(f64::abs)).fold(0.0, f64::max);
        let scales = self.layers.iter().map(|(_, phase, _)| phase.outer_scale());
        let path = fastest * memory / self.control.rate;
        let expected =
            "a wind that blows no further than 1000 pitches within the memory of the loop";
        accept(path <= 1000.0 * self.pitch, "wind_speed", fastest, expected)?;
        Band::new(self.pitch, scales.fold(0.0, f64::max), [reach, path])
    }
}

// Read the loop of a file
impl ControlLoop {
    /// Reads the table `[loop]` of a system file, if there is one.
    ///
    /// # Errors
    /// The first invalid line of the table, or that of a layer without wind.
    ///
    /// ```
    /// use lenslet::model::{ControlLoop, SystemFile};
    /// let air = "atmosphere = { r0 = 0.2, layers = [{ altitude = 0, fraction = 1, wind_speed = 9 }] }\n";
    /// let read = |table: &str| ControlLoop::from_system_file(&SystemFile::from_toml(&format!("{air}{table}"), "s.toml")?);
    /// assert_eq!(read("[loop]\nrate = 250.0")?.map(|control| control.delay), Some(2.0));
    /// assert_eq!(read("")?, None);
    /// let wild = read("[loop]\nkind = 'closed'\nrate = 250\ngain = 0.7\ndelay = 3").unwrap_err().to_string();
    /// assert_eq!(wild, "s.toml:5: loop.gain = 0.7: expected a gain for which the loop is stable: less than 0.618 with this delay");
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    #[cfg(feature = "files")]
    pub fn from_system_file(file: &SystemFile) -> Result<Option<Self>, Error> {
        let Some(table) = file.root()?.table("loop")? else {
            return Ok(None);
        };
        let kinds = [("open", LoopKind::Open), ("closed", LoopKind::Closed)];
        let control = Self {
            kind: table.choice("kind", &kinds)?.unwrap_or_default(),
            rate: table.required("rate", "frames in a second")?,
            gain: table.optional("gain", "a gain")?.unwrap_or(0.5),
            delay: table.optional("delay", "a number of frames")?.unwrap_or(2.0),
        };
        table.check(control.check())?;
        file.require_winds("a speed in m/s, which may be 0, as there is a [loop]")?;
        Ok(Some(control))
    }
}

// Tests of bandwidth
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::fitting::Fitting;

    // Loops run in time
    /// The mean square of what is left of a wave of unit power, frame by frame.
    fn in_time(control: &ControlLoop, frequency: f64) -> f64 {
        let (delay, turn) = (control.delay, 2.0 * PI * frequency / control.rate);
        // Strokes of exposure k, exp(i turn t) being the air at the time t in frames.
        let mean = |from: f64, to: f64| {
            (Complex64::cis(turn * to) - Complex64::cis(turn * from))
                / Complex64::new(0.0, turn * (to - from))
        };
        let (n, rest, frames) = (delay.floor() as usize, delay.fract(), 3000);
        let mut strokes = vec![Complex64::ZERO; frames];
        for k in 25..frames {
            let air = mean(k as f64, k as f64 + 1.0);
            let delayed = (1.0 - rest) * strokes[k - n] + rest * strokes[k - n - 1];
            strokes[k] = match control.kind {
                LoopKind::Open => air,
                LoopKind::Closed => strokes[k - 1] + control.gain * (air - delayed),
            };
        }
        let held = |k: usize| {
            let times = (0..40).map(|i| k as f64 + delay + (f64::from(i) + 0.5) / 40.0);
            times.map(|t| (Complex64::cis(turn * t) - strokes[k]).norm_sqr()).sum::<f64>() / 40.0
        };
        (2000..2200).map(held).sum::<f64>() / 200.0
    }

    #[test]
    fn loops_leave_what_they_leave_in_time() {
        let of = |kind, gain, delay| ControlLoop { kind, rate: 500.0, gain, delay };
        let loops = [
            of(LoopKind::Open, 1.0, 1.0),
            of(LoopKind::Open, 1.0, 2.7),
            of(LoopKind::Closed, 0.5, 2.0),
            of(LoopKind::Closed, 0.3, 3.0),
            of(LoopKind::Closed, 0.6, 1.4),
            of(LoopKind::Closed, 0.4, 2.75),
        ];
        for control in loops {
            for frequency in [1.7, 31.0, 62.0, 140.0, 333.0, 777.0] {
                let (found, expected) =
                    (control.rejection(frequency), in_time(&control, frequency));
                assert!(
                    (found - expected).abs() < 3e-4 * expected.max(0.1),
                    "{control:?} {frequency}: {found} {expected}"
                );
            }
            // Slow waves keep their digits.
            let slow = [1e-9, 1e-8].map(|frequency| control.rejection(frequency));
            assert!((slow[1] / slow[0] / 100.0 - 1.0).abs() < 1e-9 && slow[0] > 0.0, "{slow:?}");
            assert_eq!(control.rejection(0.0), 0.0);
        }
    }

    // Pure delays leave the structure function
    #[test]
    fn pure_delays_leave_the_structure_function() {
        let layer = Layer { wind_speed: 12.0, wind_direction: 0.7, ..Layer::new(5e3, 1.0, 22.0) };
        let air = Atmosphere::new(0.15, 500e-9, vec![layer]).unwrap();
        // Very short frames: a delay of 20 of them, and a mirror that is fine against the way of the wind.
        let control = ControlLoop { kind: LoopKind::Open, rate: 4e3, gain: 1.0, delay: 20.0 };
        let [u, v] = layer.velocity().map(|v| v * 20.0 / 4e3);
        let whole = VonKarman::new(22.0).structure_function(f64::hypot(u, v)) * square_metres(&air);
        let left = |pitch: f64| ServoLag::new(&air, &control, pitch).unwrap().variance().unwrap();
        assert!((left(2e-3) / whole - 1.0).abs() < 5e-3, "{:e} {whole:e}", left(2e-3));
        // What a coarse mirror does not correct cannot be too late.
        let outside = Fitting::new(&air, 0.2).unwrap().structure_function(3, u).unwrap();
        let along = ControlLoop { ..control };
        let straight = Atmosphere::new(
            0.15,
            500e-9,
            vec![Layer { wind_direction: 0.0, wind_speed: u * 200.0, ..layer }],
        )
        .unwrap();
        let inside =
            VonKarman::new(22.0).structure_function(u) * square_metres(&air) - outside[[1, 2]];
        let found = ServoLag::new(&straight, &along, 0.2).unwrap().variance().unwrap();
        assert!((found / inside - 1.0).abs() < 3e-3, "{found:e} {inside:e}");
        // Without an outer scale it is (τ/τ0)^(5/3), τ0 = 0.314 r0/v.
        let free =
            Atmosphere::new(0.15, 500e-9, vec![Layer { outer_scale: f64::INFINITY, ..layer }])
                .unwrap();
        let found = ServoLag::new(&free, &control, 5e-3).unwrap().variance().unwrap();
        let greenwood = f64::powf(20.0 / 4e3 / (0.314 * 0.15 / 12.0), 5.0 / 3.0)
            * (500e-9 / (2.0 * PI)).powi(2);
        assert!((found / greenwood - 1.0).abs() < 0.02, "{found:e} {greenwood:e}");
    }

    // Winds have directions
    #[test]
    fn winds_have_directions() {
        let wind = |direction: f64, speed| Layer {
            wind_speed: speed,
            wind_direction: direction,
            ..Layer::new(0.0, 1.0, 20.0)
        };
        let of = |layers: Vec<Layer>| {
            let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
            let control =
                ControlLoop { kind: LoopKind::Closed, rate: 400.0, gain: 0.4, delay: 2.0 };
            ServoLag::new(&air, &control, 0.5).unwrap()
        };
        let aslant = of(vec![wind(0.5, 15.0)]);
        let d = aslant.structure_function(16, 0.4).unwrap();
        // By the plainest sum over the square of frequencies.
        let (step, reach) = (5e-3, 200i32);
        for (j, i) in [(8, 12), (11, 3), (2, 1)] {
            let [x, y] = [i, j].map(|k: usize| 0.4 * (k as f64 - 8.0));
            let mut sum = 0.0;
            for (k, l) in (-reach..reach).flat_map(|k| (-reach..reach).map(move |l| (k, l))) {
                let f = [k, l].map(|k| step * (f64::from(k) + 0.5));
                sum += aslant.spectrum(f) * 2.0 * (1.0 - (2.0 * PI * (f[0] * x + f[1] * y)).cos());
            }
            let expected = sum * step * step;
            assert!((d[[j, i]] / expected - 1.0).abs() < 1e-3, "{:e} {expected:e}", d[[j, i]]);
        }
        assert_eq!((d[[8, 8]], d.dim()), (0.0, (16, 16)));
        assert!((d[[8 + 3, 8 + 5]] / d[[8 - 3, 8 - 5]] - 1.0).abs() < 1e-12);
        assert!((d[[8 + 3, 8 + 5]] / d[[8 - 3, 8 + 5]] - 1.0).abs() > 0.05);
        // Along the wind points differ more; a turn of it by a quarter swaps the axes.
        let [along, across] =
            [0.0, 0.5 * PI].map(|a| of(vec![wind(a, 15.0)]).structure_function(9, 0.3).unwrap());
        assert!(along[[4, 8]] > 1.1 * along[[8, 4]], "{} {}", along[[4, 8]], along[[8, 4]]);
        assert!((&along - &across.t()).iter().all(|gap| gap.abs() < 1e-9 * along[[4, 8]]));
        // Air that stands still is never too late.
        assert_eq!(of(vec![wind(0.0, 0.0)]).variance().unwrap(), 0.0);
        assert_eq!(of(vec![wind(0.0, 1e9)]).variance().unwrap_err().quantity, "wind_speed");
    }
}
