// Tangled from book/src/mirrors.md: edit there, or here and run cargo tangle stitch.
//! Design of a deformable mirror: its actuators, its altitude and its influence functions.

use crate::error::{Invalid, accept, length};
use crate::plausible::{ALTITUDE, PITCH};
use ndarray::{Array3, ArrayView2, ArrayView3};
use std::sync::Arc;

// Design of a mirror
/// Spacing of the actuators of a mirror.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Spacing {
    /// Number of actuators across the diameter of the pupil, the first and the last one at its edge.
    Actuators(usize),
    /// A pitch \[m\], with an actuator on the axis.
    Pitch(f64),
}

/// Layout of the actuators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ActuatorLayout {
    /// Square lattice.
    #[default]
    Square,
    /// Equilateral triangles, with rows along x.
    Hexagonal,
}

// Description of a mirror
/// Design of a deformable mirror: a table `[[mirror]]` of a system file.
///
/// ```
/// use lenslet::model::{MirrorDesign, Spacing};
/// let design = MirrorDesign { coupling: 0.3, ..MirrorDesign::new(Spacing::Actuators(11)) };
/// assert_eq!((design.altitude, design.check().is_ok()), (0.0, true));
/// let stiff = MirrorDesign { coupling: 1.0, ..design };
/// assert_eq!(stiff.check().unwrap_err().quantity, "coupling");
/// ```
// Heights of a worked case
///
/// Heights and slopes of an influence function, the worked case of the chapter:
///
/// ```
/// use lenslet::{correction::Mirror, model::*};
/// let (array, axis) = (LensletArray::new(10, 0.5)?, Source::star(0.0, 0.0)?);
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
/// let star = GuideStar::at_rest(axis, array, 1e-14)?;
/// let system = System::builder(air, array).guide_stars([star]).targets([axis]).build()?;
/// let mirror = Mirror::new(&MirrorDesign::new(Spacing::Pitch(0.5)), &system)?;
/// for (offset, height) in [([0.5, 0.0], 0.2), ([0.25, 0.0], 0.669), ([0.5, 0.5], 0.04)] {
///     assert!((mirror.influence(offset) - height).abs() < 3e-4);
/// }
/// let largest = mirror.interaction(&system, &axis).fold(0.0, |most: f64, slope| most.max(*slope));
/// assert!((largest - 1.036).abs() < 5e-4, "{largest}");
/// assert!((-f64::ln(0.2) - 1.609).abs() < 1e-3 && (largest * 0.5 / 0.8 - 0.648).abs() < 1e-3);
/// assert!((0.8 * mirror.influence([0.0, 0.25]) / 0.5 - 1.07).abs() < 1e-3); // edge midpoints
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MirrorDesign {
    /// Spacing of the actuators.
    pub spacing: Spacing,
    /// Layout of the actuators.
    pub layout: ActuatorLayout,
    /// Altitude to which the mirror is conjugate \[m\].
    pub altitude: f64,
    /// Height of a Gaussian influence function at the next actuator, relative to its peak.
    pub coupling: f64,
    /// Measured influence functions instead of Gaussians; the coupling is then not used.
    pub influence: Option<MeasuredInfluence>,
    /// Inner and outer radius of the kept actuators, in units of the radius of the mirror's beam; by default those of [`Mirror::new`](crate::correction::Mirror::new).
    pub kept: Option<[f64; 2]>,
    /// Singular values of the interaction matrix below this fraction of the largest are dropped.
    pub filter: f64,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(MirrorDesign::new(spacing: Spacing) {
    layout: ActuatorLayout,
    altitude: f64,
    coupling: f64,
    influence: Option<MeasuredInfluence>,
    kept: Option<[f64; 2]>,
    filter: f64
});

impl MirrorDesign {
    /// A mirror in the pupil with a square lattice of actuators, a coupling of 0.2 and a filter of 0.03.
    pub fn new(spacing: Spacing) -> Self {
        let layout = ActuatorLayout::Square;
        let (influence, kept) = (None, None);
        Self { spacing, layout, altitude: 0.0, coupling: 0.2, influence, kept, filter: 0.03 }
    }
}

// Influence functions that were measured
/// Images of the influence functions of a mirror, each with its actuator in the middle.
// Example of measured influence functions
///
/// ```
/// use lenslet::model::MeasuredInfluence;
/// let pyramid = ndarray::Array3::from_shape_fn((1, 5, 5), |(_, j, i)| {
///     (1.0 - 0.5 * (i as f64 - 2.0).abs()) * (1.0 - 0.5 * (j as f64 - 2.0).abs())
/// });
/// assert!(MeasuredInfluence::new(pyramid.clone(), 0.1).is_ok());
/// assert_eq!(MeasuredInfluence::new(-pyramid, 0.1).unwrap_err().quantity, "influence");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredInfluence {
    heights: Arc<Array3<f64>>,
    step: f64,
}

// Measured shapes as text
#[cfg(feature = "serde")]
impl serde::Serialize for MeasuredInfluence {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Fields<'a> {
            heights: &'a Array3<f64>,
            step: f64,
        }
        Fields { heights: &self.heights, step: self.step }.serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl MeasuredInfluence {
    /// As [`new`](Self::new), but heights that are already normalised remain unchanged to the last bit.
    fn read_back(heights: Array3<f64>, step: f64) -> Result<Self, Invalid> {
        let made = Self::new(heights.clone(), step)?;
        let same = |(given, made): (&f64, &f64)| (given - made).abs() <= 1e-12 * given.abs();
        let read = heights.iter().zip(made.heights.iter()).all(same);
        Ok(if read { Self { heights: Arc::new(heights), step } } else { made })
    }
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(MeasuredInfluence::read_back(heights: Array3<f64>, step: f64)?);

impl MeasuredInfluence {
    // Take images of influence functions
    /// Influence functions from images (k, n, n), one for each of k actuators or a single one for all, with pixels of `step` \[m\] on the pupil. Heights may have any unit: they are divided by their mean at the centre. Axis 1 is y.
    ///
    /// # Errors
    /// `Invalid` if there is no image, an image is not square or has fewer than 4 × 4 pixels, a height is not finite, the step is not a length, or the mean height at the centre is not positive.
    pub fn new(heights: Array3<f64>, step: f64) -> Result<Self, Invalid> {
        PITCH.check("influence_step", length("influence_step", step)?)?;
        let (count, n, across) = heights.dim();
        let expected = "square images of at least 4 × 4 pixels, (k, n, n)";
        accept(count > 0 && n >= 4 && n == across, "influence", heights.dim(), expected)?;
        let good = heights.iter().all(|height| height.is_finite());
        accept(good, "influence", "a number that is not finite", "finite heights")?;
        let mean = heights.outer_iter().map(middle).sum::<f64>() / count as f64;
        accept(mean > 0.0, "influence", mean, "a height in the middle that is greater than 0")?;
        Ok(Self { heights: Arc::new(heights / mean), step })
    }

    // Read measured influence functions
    /// Reads images (k, n, n), or a single one (n, n), from a FITS or NumPy file.
    ///
    /// # Errors
    /// Those of [`read_array`](crate::files::read_array) and of [`new`](Self::new).
    #[cfg(feature = "files")]
    pub fn read(path: &std::path::Path, step: f64) -> Result<Self, crate::error::Error> {
        use crate::files::reading::{Unit, read_array};
        let array = read_array(path, [2, 3], Unit::Metre)?;
        let shape = match *array.shape() {
            [n, across] => (1, n, across),
            [count, n, across] => (count, n, across),
            _ => (0, 0, 0),
        };
        let heights = array.into_shape_with_order(shape);
        let heights = heights.map_err(|_| Invalid::new("influence", "no images", "(k, n, n)"))?;
        Ok(Self::new(heights, step)?)
    }

    /// The images, (k, n, n), with a mean height of 1 at the centre.
    pub fn heights(&self) -> ArrayView3<'_, f64> {
        self.heights.view()
    }

    /// Side of a pixel \[m\].
    pub fn step(&self) -> f64 {
        self.step
    }
}

/// Height at the centre of an image: that of the central pixel or, if the number of pixels is even, interpolated by the cubic through the nearest four along each axis.
fn middle(image: ArrayView2<f64>) -> f64 {
    let n = image.nrows();
    let weights: &[f64] = if n % 2 == 1 { &[1.0] } else { &[-0.0625, 0.5625, 0.5625, -0.0625] };
    let first = (n - weights.len()) / 2;
    let row = |j: usize| {
        weights.iter().enumerate().map(|(i, weight)| weight * image[[j, first + i]]).sum::<f64>()
    };
    weights.iter().enumerate().map(|(j, weight)| weight * row(first + j)).sum()
}

// Check the design of a mirror
impl MirrorDesign {
    /// Checks the design.
    ///
    /// # Errors
    /// `Invalid`, with the name of the key: fewer than 2 or more than 1001 actuators across, a pitch that is not a length, a
    /// negative altitude, a coupling outside of 1e-6 to 0.9, radii out of order, a filter that is not a fraction.
    pub fn check(&self) -> Result<(), Invalid> {
        match self.spacing {
            Spacing::Actuators(actuators) => {
                let expected = "a whole number from 2 to 1001";
                accept((2..=1001).contains(&actuators), "actuators", actuators, expected)?;
            }
            Spacing::Pitch(pitch) => drop(PITCH.check("pitch", length("pitch", pitch)?)?),
        }
        ALTITUDE.check("altitude", self.altitude)?;
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
