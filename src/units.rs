// Tangled from book/src/errors.md: edit there, or here and run cargo tangle stitch.
//! Angles that people write, in the radians that the library computes with.

use std::f64::consts::PI;

// Angular units in radians
/// One second of arc \[rad\].
///
/// ```
/// use lenslet::units::ARCSEC;
/// assert!((206_264.806_247 * ARCSEC - 1.0).abs() < 1e-12);
/// ```
pub const ARCSEC: f64 = PI / 648_000.0;

/// One degree \[rad\].
///
/// ```
/// use lenslet::units::{ARCSEC, DEGREE};
/// let (zenith, azimuth) = (60.0 * ARCSEC, 30.0 * DEGREE);
/// assert!((zenith - 2.91e-4).abs() < 1e-6);
/// let [x, y] = [zenith * azimuth.cos(), zenith * azimuth.sin()];
/// assert!((x - 2.52e-4).abs() < 1e-6 && (y - 1.45e-4).abs() < 1e-6);
/// ```
pub const DEGREE: f64 = PI / 180.0;
