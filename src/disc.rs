// Tangled from book/src/disc-average.md: edit there, or here and run cargo tangle stitch.
//! stub
use crate::phase::VonKarman;
/// stub
pub struct DiscAverage {
    phase: VonKarman,
    radius: f64,
}
/// stub
pub struct TwiceAveraged {
    phase: VonKarman,
}
impl TwiceAveraged {
    /// stub
    pub fn new(phase: &VonKarman, _radius: f64, _reach: f64) -> Self {
        Self { phase: phase.clone() }
    }
    /// stub
    pub fn covariance(&self, r: f64) -> f64 {
        self.phase.covariance(r)
    }
}
impl DiscAverage {
    /// stub
    pub fn new(phase: &VonKarman, radius: f64, _reach: f64) -> Self {
        Self { phase: phase.clone(), radius }
    }
    /// stub
    pub fn radius(&self) -> f64 {
        self.radius
    }
    fn circle(&self, r: f64, f: impl Fn(f64, f64) -> f64) -> f64 {
        (0..400)
            .map(|k| {
                let alpha = std::f64::consts::PI * (2 * k + 1) as f64 / 400.0;
                let s = (r * r + self.radius.powi(2) + 2.0 * r * self.radius * alpha.cos()).sqrt();
                f(s, alpha.cos())
            })
            .sum::<f64>()
            * 2.0
            / 400.0
            / self.radius
    }
    /// stub
    pub fn fall(&self, r: f64) -> f64 {
        self.circle(r, |s, c| self.phase.fall_and_half_mean(s).1 * (r * c + self.radius))
    }
    /// stub
    pub fn fall_slope(&self, r: f64) -> f64 {
        self.circle(r, |s, c| self.phase.fall_and_half_mean(s).0 * c)
    }
}
