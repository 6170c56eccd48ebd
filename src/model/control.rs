// Tangled from book/src/bandwidth.md: edit there, or here and run cargo tangle stitch.
//! What is said of the loop that steers a mirror: its rate, its delay, and its gain.

use crate::error::{Invalid, accept, positive};

// Loop that steers a mirror
/// Whether sensors see the air, or what the mirror leaves of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoopKind {
    /// Sensors see the air, and strokes are what they measure.
    #[default]
    Open,
    /// Sensors see what is left, and an integrator adds a share of it to the strokes.
    Closed,
}

// Numbers of a loop
/// The loop that steers a mirror: the table `[loop]` of a system file.
///
/// ```
/// use lenslet::model::{ControlLoop, LoopKind};
/// let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.5, delay: 2.0 };
/// assert!(control.check().is_ok());
/// let wild = ControlLoop { gain: 1.1, ..control };
/// assert_eq!(wild.check().unwrap_err().to_string(), "gain = 1.1: expected a gain for which the loop is stable: less than 1.000 with this delay");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ControlLoop {
    /// Open or closed.
    pub kind: LoopKind,
    /// Frames in a second \[Hz\].
    pub rate: f64,
    /// Share of what is left that each frame adds, in a closed loop.
    pub gain: f64,
    /// Frames from the start of an exposure to the start of the hold that it leads to; from 1 to 20.
    pub delay: f64,
}

// Check what is said of a loop
impl ControlLoop {
    /// Refuses a loop that cannot be, or is not stable.
    ///
    /// # Errors
    /// `Invalid`, by the name of the key: a rate that is not positive, a delay not from 1 to 20 frames, a gain for which strokes grow without end.
    pub fn check(&self) -> Result<(), Invalid> {
        positive("rate", self.rate)?;
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

// Decide whether a loop is stable
impl ControlLoop {
    /// Whether the zeros of Eq. [characteristic](https://lenslet.github.io/lenslet/bandwidth.html#eq-characteristic) are inside of the unit circle, for some gain.
    fn is_stable(&self, gain: f64) -> bool {
        let (whole, rest) = (self.delay.floor() as usize, self.delay.fract());
        let mut polynomial = vec![0.0; whole + 2]; // highest power first
        polynomial[0] = 1.0;
        polynomial[1] -= 1.0;
        polynomial[whole] += gain * (1.0 - rest);
        polynomial[whole + 1] += gain * rest;
        while polynomial.len() > 1 {
            let share = polynomial[polynomial.len() - 1] / polynomial[0];
            if share.abs() >= 1.0 {
                return false;
            }
            let backwards: Vec<f64> = polynomial.iter().rev().copied().collect();
            polynomial.iter_mut().zip(backwards).for_each(|(a, b)| *a -= share * b);
            polynomial.pop();
        }
        true
    }

    // Find the largest gain
    /// The gain below which the loop, closed, is stable.
    pub fn largest_gain(&self) -> f64 {
        let (mut low, mut high) = (0.0, 4.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.is_stable(middle) { low = middle } else { high = middle }
        }
        low
    }
}

// Tests of loops
#[cfg(test)]
mod tests {
    use super::*;

    fn closed(gain: f64, delay: f64) -> ControlLoop {
        ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain, delay }
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
            let seen = (1.0 - rest) * strokes[k - n] + rest * strokes[k - n - 1];
            let air = if k == n + 2 { 1.0 } else { 0.0 };
            strokes[k] = strokes[k - 1] + gain * (air - seen);
        }
        let most = |part: &[f64]| part.iter().fold(0.0, |most: f64, u| most.max(u.abs()));
        most(&strokes[3900..]) > most(&strokes[1900..2000])
    }
}
