// Tangled from book/src/bandwidth.md: edit there, or here and run cargo tangle stitch.
//! Control loop of a mirror: its rate, delay and gain.

use crate::error::{Invalid, accept, positive};
use crate::model::atmosphere::Atmosphere;
use crate::plausible::RATE;

// Control loop of a mirror
/// Whether sensors measure the whole turbulence or the residual behind the mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum LoopKind {
    /// Sensors measure the whole turbulence, and the measured strokes are applied.
    #[default]
    Open,
    /// Sensors measure the residual, and an integrator adds a fraction of it to the strokes.
    Closed,
}

// Numbers of a loop
/// Control loop of a mirror: the table `[loop]` of a system file.
// Example of a control loop
///
/// ```
/// use lenslet::model::{ControlLoop, LoopKind};
/// let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.5, delay: 2.0 };
/// assert!(control.check().is_ok());
/// let wild = ControlLoop { gain: 1.1, ..control };
/// assert_eq!(wild.check().unwrap_err().to_string(), "gain = 1.1: expected a gain for which the loop is stable: less than 1.000 with this delay");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ControlLoop {
    /// Open or closed.
    pub kind: LoopKind,
    /// Frame rate \[Hz\].
    pub rate: f64,
    /// Gain: fraction of the measured residual that each frame adds to the strokes, in a closed loop.
    pub gain: f64,
    /// Delay from the start of an exposure to the start of the hold that results from it, in frames; from 1 to 20.
    pub delay: f64,
}

// Check the parameters of a loop
impl ControlLoop {
    /// Checks the loop and its stability.
    ///
    /// # Errors
    /// `Invalid`, by the name of the key: a rate that is not positive, a delay not from 1 to 20 frames, a gain for which strokes grow without end.
    pub fn check(&self) -> Result<(), Invalid> {
        RATE.check("rate", positive("rate", self.rate)?)?;
        let expected = "a number of frames from 1, that of the exposure itself, to 20";
        accept((1.0..=20.0).contains(&self.delay), "delay", self.delay, expected)?;
        if self.kind == LoopKind::Open {
            return Ok(());
        }
        positive("gain", self.gain)?;
        let limit = self.largest_gain();
        let expected =
            format!("a gain for which the loop is stable: less than {limit:.3} with this delay");
        accept(self.gain < limit, "gain", self.gain, &expected).map(drop)
    }
}

// Check a loop against the wind
impl ControlLoop {
    /// Refuses a loop so slow, or winds so fast, that layers move by more than 1000 pitches of a mirror \[m\] within the memory of the loop.
    ///
    /// # Errors
    /// `Invalid`, by the name of the key that is to blame: the wind where it is faster than 100 m/s, else the rate.
    pub fn check_winds(&self, air: &Atmosphere, pitch: f64) -> Result<(), Invalid> {
        let frames = match self.kind {
            LoopKind::Open => self.delay,
            LoopKind::Closed => self.delay + 2.0 / self.gain,
        };
        let speeds = air.layers().iter().map(|layer| layer.wind_speed).enumerate();
        let (l, fastest) = speeds.fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
        let (reach, seconds) = (1000.0 * pitch, frames / self.rate);
        if fastest * seconds <= reach {
            return Ok(());
        }
        let limit = format!(
            "so that the wind moves layers by at most 1000 pitches of the mirror, {reach} m, within the memory of the loop"
        );
        if fastest > FASTEST {
            let expected = format!("at most {:.4} m/s, {limit}", reach / seconds);
            return Err(Invalid::new(
                format!("atmosphere.layers[{l}].wind_speed"),
                fastest,
                expected,
            ));
        }
        let least = fastest * frames / reach;
        let expected = format!("at least {least:.4} Hz for winds of {fastest} m/s, {limit}");
        Err(Invalid::new("loop.rate", format!("{:?}", self.rate), expected))
    }
}

/// The fastest wind that is no mistake, m/s.
const FASTEST: f64 = 100.0;

// Decide whether a loop is stable
impl ControlLoop {
    /// The product of 1 − ζ² of all degrees, Eq. [noise gain](https://lenslet.github.io/lenslet/bandwidth.html#eq-noise-gain), if the zeros of Eq. [characteristic](https://lenslet.github.io/lenslet/bandwidth.html#eq-characteristic) are inside of the unit circle.
    fn damping(&self, gain: f64) -> Option<f64> {
        let (whole, rest) = (self.delay.floor() as usize, self.delay.fract());
        let mut polynomial = vec![0.0; whole + 2]; // highest power first
        polynomial[0] = 1.0;
        polynomial[1] -= 1.0;
        polynomial[whole] += gain * (1.0 - rest);
        polynomial[whole + 1] += gain * rest;
        while polynomial.len() > 1 {
            let share = polynomial[polynomial.len() - 1] / polynomial[0];
            if share.abs() >= 1.0 {
                return None;
            }
            let backwards: Vec<f64> = polynomial.iter().rev().copied().collect();
            polynomial.iter_mut().zip(backwards).for_each(|(a, b)| *a -= share * b);
            polynomial.pop();
        }
        Some(polynomial[0])
    }

    // Find the largest gain
    /// Largest stable gain of the closed loop.
    pub fn largest_gain(&self) -> f64 {
        let (mut low, mut high) = (0.0, 4.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.damping(middle).is_some() { low = middle } else { high = middle }
        }
        low
    }

    // Gain of a loop for noise
    /// Ratio of the noise variance of the strokes to that of a frame, for noise that is independent from frame to frame, Eq. [noise gain](https://lenslet.github.io/lenslet/bandwidth.html#eq-noise-gain): 1 in an open loop, and
    /// infinite in a closed one that is not stable.
    // Example of a noise gain
    ///
    /// ```
    /// use lenslet::model::{ControlLoop, LoopKind};
    /// let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.5, delay: 2.0 };
    /// assert!((control.noise_gain() - 0.6).abs() < 1e-15);
    /// assert_eq!(ControlLoop { kind: LoopKind::Open, ..control }.noise_gain(), 1.0);
    /// ```
    // Noise gain of a worked case
    ///
    /// The worked case of the chapter:
    ///
    /// ```
    /// use lenslet::{correction::ServoLag, model::{Atmosphere, ControlLoop, Layer, LoopKind}};
    /// let wind = Layer { wind_speed: 10.0, ..Layer::new(0.0, 1.0, 25.0) };
    /// let air = Atmosphere::new(0.15, 500e-9, vec![wind])?;
    /// let closed = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.5, delay: 2.0 };
    /// let product = 0.75 * (1.0 - 4.0 / 9.0); // 0.4167
    /// assert!((closed.noise_gain() - 0.25 / product).abs() < 1e-12);
    /// let slow = (2.0 * std::f64::consts::PI * 5.0 / 250.0f64).powi(2);
    /// assert!((slow - 0.0158).abs() < 5e-5 && (closed.rejection(5.0) - 0.0162).abs() < 5e-5);
    /// assert!((closed.rejection(50.0) - 2.83).abs() < 0.005);
    /// let nm = |control: ControlLoop| -> Result<f64, lenslet::Invalid> {
    ///     Ok(1e9 * ServoLag::new(&air, &control, 0.5)?.variance()?.sqrt())
    /// };
    /// assert!((nm(closed)? - 36.3).abs() < 0.06);
    /// assert!((nm(ControlLoop { kind: LoopKind::Open, ..closed })? - 36.1).abs() < 0.06);
    /// assert!((nm(ControlLoop { rate: 1000.0, ..closed })? - 18.1).abs() < 0.06);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn noise_gain(&self) -> f64 {
        match (self.kind, self.damping(self.gain)) {
            (LoopKind::Open, _) => 1.0,
            (LoopKind::Closed, Some(damping)) => self.gain * self.gain / damping,
            (LoopKind::Closed, None) => f64::INFINITY,
        }
    }
}

// Tests of loops
#[cfg(test)]
mod tests {
    use super::*;

    fn closed(gain: f64, delay: f64) -> ControlLoop {
        ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain, delay }
    }

    // Loops that make strokes of noise
    #[test]
    fn noise_runs_through_loops() {
        // Strokes after a frame of noise: the sum of their squares is the noise gain.
        let in_time = |control: &ControlLoop| {
            let (n, rest) = (control.delay.floor() as usize, control.delay.fract());
            let mut strokes = vec![0.0; 4000];
            for k in n + 2..4000 {
                let delayed = (1.0 - rest) * strokes[k - n] + rest * strokes[k - n - 1];
                let noise = if k == n + 2 { 1.0 } else { 0.0 };
                strokes[k] = strokes[k - 1] + control.gain * (noise - delayed);
            }
            strokes.iter().map(|stroke| stroke * stroke).sum::<f64>()
        };
        for (gain, delay) in
            [(0.5, 1.0), (0.2, 1.4), (0.6, 2.0), (0.45, 2.75), (0.3, 3.0), (0.1, 7.5)]
        {
            let control = closed(gain, delay);
            let (computed, found) = (control.noise_gain(), in_time(&control));
            assert!((computed / found - 1.0).abs() < 1e-10, "{gain} {delay}: {computed} {found}");
        }
        for gain in [0.01, 0.3, 0.9] {
            assert!((closed(gain, 1.0).noise_gain() / (gain / (2.0 - gain)) - 1.0).abs() < 1e-12);
            let two = gain * (1.0 + gain) / ((1.0 - gain) * (2.0 + gain));
            assert!((closed(gain, 2.0).noise_gain() / two - 1.0).abs() < 1e-12);
        }
        // Close to the limit there is no end to it, and beyond it none at all.
        let limit = closed(0.1, 2.5).largest_gain();
        assert!(closed(limit * (1.0 - 1e-9), 2.5).noise_gain() > 1e6);
        assert_eq!(closed(limit * 1.01, 2.5).noise_gain(), f64::INFINITY);
    }

    #[test]
    fn gains_have_known_limits() {
        for whole in 1..12u8 {
            let n = f64::from(whole);
            let limit = 2.0 * (std::f64::consts::PI / (2.0 * (2.0 * n - 1.0))).sin();
            assert!((closed(0.1, n).largest_gain() - limit).abs() < 1e-9, "{n}");
        }
        // Between whole delays, too, as a loop in time confirms.
        for delay in [1.3, 2.5, 3.9] {
            let limit = closed(0.1, delay).largest_gain();
            assert!(grows(1.02 * limit, delay) && !grows(0.98 * limit, delay), "{delay} {limit}");
        }
        assert_eq!(closed(-0.1, 2.0).check().unwrap_err().quantity, "gain");
        assert_eq!(closed(f64::NAN, 2.0).check().unwrap_err().quantity, "gain");
        assert_eq!(closed(0.5, 0.5).check().unwrap_err().quantity, "delay");
        assert_eq!(
            ControlLoop { rate: 0.0, ..closed(0.5, 2.0) }.check().unwrap_err().quantity,
            "rate"
        );
    }

    /// Whether strokes grow after a push.
    fn grows(gain: f64, delay: f64) -> bool {
        let (n, rest) = (delay.floor() as usize, delay.fract());
        let mut strokes = vec![0.0; 4000];
        for k in n + 2..4000 {
            let delayed = (1.0 - rest) * strokes[k - n] + rest * strokes[k - n - 1];
            let air = if k == n + 2 { 1.0 } else { 0.0 };
            strokes[k] = strokes[k - 1] + gain * (air - delayed);
        }
        let most = |part: &[f64]| part.iter().fold(0.0, |most: f64, u| most.max(u.abs()));
        most(&strokes[3900..]) > most(&strokes[1900..2000])
    }
}
