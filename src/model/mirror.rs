// Tangled from book/src/mirrors.md: edit there, or here and run cargo tangle stitch.
//! What is said of a deformable mirror: its actuators, where it is, and what of it is used.

use crate::error::{Invalid, accept, length};

// Design of a mirror
/// How far apart the actuators of a mirror are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spacing {
    /// So many actuators across the diameter of the pupil, the first and the last one at its rim.
    Actuators(usize),
    /// A pitch \[m\], with an actuator on the axis.
    Pitch(f64),
}

/// The order in which actuators stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActuatorLayout {
    /// In squares.
    #[default]
    Square,
    /// In equilateral triangles, with rows along x.
    Hexagonal,
}

/// A deformable mirror as it is described: a table `[[mirror]]` of a system file.
///
/// ```
/// use lenslet::model::{MirrorDesign, Spacing};
/// let design = MirrorDesign { coupling: 0.3, ..MirrorDesign::new(Spacing::Actuators(11)) };
/// assert_eq!((design.altitude, design.check().is_ok()), (0.0, true));
/// let stiff = MirrorDesign { coupling: 1.0, ..design };
/// assert_eq!(stiff.check().unwrap_err().quantity, "coupling");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorDesign {
    /// How far apart the actuators are.
    pub spacing: Spacing,
    /// How they stand.
    pub layout: ActuatorLayout,
    /// Altitude that the mirror is conjugate to \[m\].
    pub altitude: f64,
    /// The share of its height that an influence function, a Gaussian, has at the next actuator.
    pub coupling: f64,
    /// Radii between which actuators are kept, in units of that of the mirror's beam; or those of [`Mirror::new`](crate::correction::Mirror::new).
    pub kept: Option<[f64; 2]>,
    /// Singular values of the interaction matrix below this share of the largest are dropped.
    pub filter: f64,
}

impl MirrorDesign {
    /// A mirror in the pupil, its actuators in squares, with a coupling of 0.2 and a filter of 0.03.
    pub fn new(spacing: Spacing) -> Self {
        let layout = ActuatorLayout::Square;
        Self { spacing, layout, altitude: 0.0, coupling: 0.2, kept: None, filter: 0.03 }
    }
}

// Check the design of a mirror
impl MirrorDesign {
    /// Refuses a mirror that cannot be.
    ///
    /// # Errors
    /// `Invalid`, by the name of the key: fewer than 2 or more than 1001 actuators across, a pitch that is no length, an
    /// altitude that is negative, a coupling not between 1e-6 and 0.9, radii out of order, a filter that is no share.
    pub fn check(&self) -> Result<(), Invalid> {
        match self.spacing {
            Spacing::Actuators(actuators) => {
                let expected = "a whole number from 2 to 1001";
                accept((2..=1001).contains(&actuators), "actuators", actuators, expected)?;
            }
            Spacing::Pitch(pitch) => drop(length("pitch", pitch)?),
        }
        let expected = "an altitude in metres, from 0 to 1e6";
        accept((0.0..=1e6).contains(&self.altitude), "altitude", self.altitude, expected)?;
        let expected = "a share of the height, from 1e-6 to 0.9";
        accept((1e-6..=0.9).contains(&self.coupling), "coupling", self.coupling, expected)?;
        if let Some([inner, outer]) = self.kept {
            let good = inner < outer && inner.is_finite() && outer > 0.0 && outer <= 3.0;
            let expected = "two radii in units of that of the pupil, the second greater than the first and at most 3";
            accept(good, "kept", [inner, outer], expected)?;
        }
        let expected = "a share of the largest singular value, at least 0 and less than 1";
        accept((0.0..1.0).contains(&self.filter), "filter", self.filter, expected).map(drop)
    }
}
