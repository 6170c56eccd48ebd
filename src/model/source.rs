// Tangled from book/src/sources.md: edit there, or here and run cargo tangle stitch.
//! Sources: guide stars and targets, their directions and heights, and the cone effect.

use crate::{
    error::{Invalid, accept, finite, length_or_infinity},
    model::atmosphere::Atmosphere,
    plausible::{HEIGHT, ZENITH},
};

// Coordinate of the cone gradient
/// The coordinate along which the phase of a source at finite height is differentiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConeGradient {
    /// The coordinate of the pupil: a factor γ, as a sensor measures, [cone gradient](https://lenslet.github.io/lenslet/sources.html#eq-cone-gradient).
    #[default]
    Pupil,
    /// The coordinate of the layer: no factor; for comparison with programs that omit it.
    Layer,
}

impl ConeGradient {
    /// Factor of a slope for the cone factor of its source.
    pub fn factor(self, cone_factor: f64) -> f64 {
        match self {
            Self::Pupil => cone_factor,
            Self::Layer => 1.0,
        }
    }
}

// A source and its direction
/// A guide star, or a direction in which the wavefront is to be estimated.
///
/// ```
/// use lenslet::model::Source;
/// use lenslet::units::{ARCSEC, DEGREE};
/// let star = |azimuth: f64| Source::new(20.0 * ARCSEC, azimuth * DEGREE, 90e3);
/// let (first, third) = (star(45.0)?, star(225.0)?);
/// let gamma = first.cone_factor(8e3);
/// assert!((gamma - 0.911).abs() < 5e-4 && (10.0 * gamma - 9.11).abs() < 5e-3);
/// assert!((0.5 * gamma - 0.456).abs() < 5e-4);
/// assert!((first.direction()[0] - 68.56e-6).abs() < 5e-9); // 96.96 µrad / √2
/// let near = |[x, y]: [f64; 2], [a, b]: [f64; 2]| (x - a).abs() < 5e-4 && (y - b).abs() < 5e-4;
/// assert!(near(first.project([0.0, 0.0], 8e3), [0.5485, 0.5485]));
/// assert!(near(first.project([5.0, 0.0], 8e3), [5.104, 0.549]));
/// let shift = first.shift_to(&third, 8e3);
/// assert!(near(shift, [-1.097, -1.097]));
/// assert!((shift[0].hypot(shift[1]) - 1.55).abs() < 5e-3);
/// assert!((-shift[0] / gamma - 1.204).abs() < 5e-4); // in the pupil
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Source {
    direction: [f64; 2],
    height: f64,
}

impl Source {
    /// A source at the zenith distance `zenith` \[rad\] and the azimuth `azimuth` \[rad\], counted from the
    /// x axis towards the y axis, at the height `height` \[m\], infinity for a star.
    ///
    /// Rejects a zenith distance outside of 0 to 0.1 rad, an infinite azimuth, and a height that is not positive.
    pub fn new(zenith: f64, azimuth: f64, height: f64) -> Result<Self, Invalid> {
        let zenith = small_angle("zenith", zenith)?;
        let azimuth = finite("azimuth", azimuth)?;
        let height = length_or_infinity("height", height)?;
        Ok(Self { direction: [zenith * azimuth.cos(), zenith * azimuth.sin()], height })
    }

    // Height and cone factor of a source
    /// A source at infinity.
    pub fn star(zenith: f64, azimuth: f64) -> Result<Self, Invalid> {
        Self::new(zenith, azimuth, f64::INFINITY)
    }

    /// The direction (ζ cos a, ζ sin a) \[rad\].
    pub fn direction(&self) -> [f64; 2] {
        self.direction
    }

    /// The height \[m\]; infinity for a star.
    pub fn height(&self) -> f64 {
        self.height
    }

    /// The cone factor γ = 1 − h/z of a layer at `altitude` h \[m\]; 1 for a star, [cone](https://lenslet.github.io/lenslet/sources.html#eq-cone).
    ///
    /// ```
    /// let laser = lenslet::model::Source::new(0.0, 0.0, 90e3)?;
    /// assert!((laser.cone_factor(10e3) - 8.0 / 9.0).abs() < 1e-15);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn cone_factor(&self, altitude: f64) -> f64 {
        1.0 - altitude / self.height
    }

    // Project a point along the cone
    /// The point \[m\] at `altitude` \[m\] on the ray that reaches the pupil at `point` \[m\], [cone](https://lenslet.github.io/lenslet/sources.html#eq-cone).
    pub fn project(&self, point: [f64; 2], altitude: f64) -> [f64; 2] {
        let gamma = self.cone_factor(altitude);
        [0, 1].map(|k| gamma * point[k] + altitude * self.direction[k])
    }

    /// Displacement h (θ₂ − θ₁) \[m\] of the footprint of `second` relative to this one, [footprint shift](https://lenslet.github.io/lenslet/sources.html#eq-footprint-shift).
    pub fn shift_to(&self, second: &Source, altitude: f64) -> [f64; 2] {
        [0, 1].map(|k| altitude * (second.direction[k] - self.direction[k]))
    }

    // Reject layers above a source
    /// Rejects an atmosphere with a layer at the height of the source or above.
    pub fn check_above(&self, atmosphere: &Atmosphere) -> Result<(), Invalid> {
        let top = atmosphere.layers().iter().map(|layer| layer.altitude).fold(0.0, f64::max);
        let remark = HEIGHT.remark(self.height);
        let expected = format!("a height above the highest layer, which is at {top:?} m{remark}");
        accept(self.height > top, "height", self.height, &expected).map(|_| ())
    }
}

// Reject angles that are large
pub(crate) fn small_angle(quantity: &str, x: f64) -> Result<f64, Invalid> {
    ZENITH.accept((0.0..=0.1).contains(&x), quantity, x)
}

// Check rays footprints and shifts
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::atmosphere::Layer, units::DEGREE};

    #[test]
    fn a_ray_is_straight_from_the_source_to_the_pupil() {
        let laser = Source::new(3e-4, 30.0 * DEGREE, 90e3).unwrap();
        let [x, y] = laser.direction();
        assert!((x - 2.598_076_211e-4).abs() < 1e-12 && (y - 1.5e-4).abs() < 1e-12);
        assert_eq!(laser.project([1.5, -4.0], 0.0), [1.5, -4.0]);
        let top = laser.project([1.5, -4.0], 90e3);
        assert!((top[0] - 23.382_685_9).abs() < 1e-6 && (top[1] - 13.5).abs() < 1e-9);
        let half = laser.project([1.5, -4.0], 45e3);
        assert!((half[0] - (1.5 + top[0]) / 2.0).abs() < 1e-12);
        assert!((half[1] - (-4.0 + top[1]) / 2.0).abs() < 1e-12);
    }

    // Check signs factors and refusals
    #[test]
    fn the_shift_is_second_minus_first() {
        let first = Source::star(0.0, 1.0).unwrap();
        let second = Source::star(1e-4, 90.0 * DEGREE).unwrap();
        let [x, y] = first.shift_to(&second, 10e3);
        assert!(x.abs() < 1e-15 && (y - 1.0).abs() < 1e-12);
        assert_eq!(second.shift_to(&first, 10e3), [-x, -y]);
        assert_eq!(second.cone_factor(20e3), 1.0);
        assert_eq!(
            (ConeGradient::default().factor(0.8), ConeGradient::Layer.factor(0.8)),
            (0.8, 1.0)
        );
    }
    #[test]
    fn bad_sources_are_refused_by_name() {
        let name =
            |zenith, azimuth, height| Source::new(zenith, azimuth, height).unwrap_err().quantity;
        assert_eq!(name(-1e-6, 0.0, 90e3), "zenith");
        assert_eq!(name(1.05, 0.0, 90e3), "zenith");
        assert_eq!(name(0.0, f64::INFINITY, 90e3), "azimuth");
        assert_eq!(name(0.0, 0.0, f64::NAN), "height");
        let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(9e3, 1.0, 25.0)]).unwrap();
        let check = |height| Source::new(0.0, 0.0, height).unwrap().check_above(&air).is_ok();
        assert_eq!([9e3, 9.001e3, f64::INFINITY].map(check), [false, true, true]);
    }
}
