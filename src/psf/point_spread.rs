// Tangled from book/src/point-spread.md: edit there, or here and run cargo tangle stitch.
//! Point-spread functions on any pixels, and what is read from them.

// Imports of point spread
#[cfg(feature = "factorise")]
pub(crate) mod gpu;

use crate::error::{Error, Invalid, accept, positive};
use crate::numerics::special::sinc;
use crate::psf::optical_transfer::OpticalTransfer;
use ndarray::{Array1, Array2, Axis, Zip, concatenate};
use rayon::prelude::*;
use std::f64::consts::PI;

// Quarter of a transfer function
/// The quarter of a transfer function where no coordinate is negative, Eq. [quarter sums](https://lenslet.github.io/lenslet/point-spread.html#eq-quarter-sums).
pub(crate) struct Quarter {
    pub(super) even: Array2<f64>,
    pub(super) odd: Array2<f64>,
    /// The field \[rad\] after which images repeat, λ/ℓ.
    pub(super) field: f64,
}

impl Quarter {
    // Quadrant of a long exposure
    fn of(transfer: &OpticalTransfer) -> Self {
        let middle = transfer.values.nrows() / 2;
        let side = transfer.reach + 1;
        let at = |(j, i): (usize, usize), sign: f64| {
            let [here, there] = [middle + i, middle - i].map(|i| transfer.values[[middle + j, i]]);
            let times = |k: usize| if k == 0 { 1.0 } else { 2.0 };
            0.5 * times(j) * times(i) * (here + sign * there)
        };
        Self {
            even: Array2::from_shape_fn((side, side), |place| at(place, 1.0)),
            odd: Array2::from_shape_fn((side, side), |place| at(place, -1.0)),
            field: transfer.field(),
        }
    }

    // Sums over a quarter
    /// Both sums for `count` directions from 0 in steps of `pixel` \[rad\] along either axis.
    fn sums(&self, count: usize, pixel: f64) -> [Array2<f64>; 2] {
        let waves = |wave| waves([count, self.even.nrows()], pixel / self.field, wave);
        let even = both_sides(&waves(f64::cos), &self.even);
        if self.odd.iter().all(|value| value.abs() < 1e-15) {
            return [even, Array2::zeros((count, count))];
        }
        [even, both_sides(&waves(f64::sin), &self.odd)]
    }
}

// Waves of displacements in directions
/// A wave of the displacements of a quadrant in several directions, whose pixel is this fraction of the field; (directions, displacements).
pub(super) fn waves(shape: [usize; 2], pixel: f64, wave: fn(f64) -> f64) -> Array2<f64> {
    Array2::from_shape_fn(shape, |(k, j)| wave(2.0 * PI * pixel * (k * j) as f64))
}

// Product with waves on both sides
/// W A Wᵗ, on all threads.
fn both_sides(waves: &Array2<f64>, quarter: &Array2<f64>) -> Array2<f64> {
    let transposed = waves.t().as_standard_layout().into_owned();
    let strips: Vec<_> = waves.axis_chunks_iter(Axis(0), 32).collect();
    let products: Vec<Array2<f64>> =
        strips.into_par_iter().map(|strip| strip.dot(quarter).dot(&transposed)).collect();
    let views: Vec<_> = products.iter().map(|strip| strip.view()).collect();
    concatenate(Axis(0), &views).unwrap_or_else(|_| unreachable!("strips of one width"))
}

// Image of a star
/// The image of a star: a point-spread function on square pixels.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PointSpread {
    /// Light at the centres of the pixels, in units of that of a perfect wavefront on the axis, (m, m), axis 0 along y; the star is at
    /// \[m/2, m/2\], where the value is the Strehl ratio.
    pub values: Array2<f64>,
    /// Side of a pixel \[rad\].
    pub pixel: f64,
    /// The wavelength \[m\].
    pub wavelength: f64,
    /// The Strehl ratio.
    pub strehl: f64,
    /// Factor from a value to the fraction of the star's light on that pixel.
    pub share: f64,
}

// Transform to the sky
impl OpticalTransfer {
    /// The image of a star on `pixels` × `pixels` pixels of side `pixel` \[rad\], Eq. [point spread](https://lenslet.github.io/lenslet/point-spread.html#eq-point-spread).
    // Errors and example of an image
    ///
    /// # Errors
    /// `Invalid` if there are no or too many pixels, their side is not positive, or they exceed the field λ/ℓ
    /// that the sampling of the transfer function allows.
    ///
    /// ```
    /// use lenslet::{psf::Aperture, model::Pupil};
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.0)?, &[], 64)?.transfer(128)?;
    /// let perfect = telescope.alone(1.6e-6)?;
    /// // Half a pixel of λ/2D off the axis, and in Airy's first dark ring.
    /// let image = perfect.point_spread(1.22 * 1.6e-6 / 8.0, 3)?;
    /// assert!((image.values[[1, 1]] - 1.0).abs() < 1e-12 && image.values[[1, 2]] < 1e-4);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    // Images of a worked case
    ///
    /// The worked case of the chapter on point-spread functions:
    ///
    /// ```
    /// use lenslet::{psf::Aperture, model::Pupil, units::ARCSEC};
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.0)?, &[], 128)?.transfer(256)?;
    /// let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 3e-3, "{found} {expected}");
    /// let (wavelength, mas) = (1.65e-6, 1e-3 * ARCSEC);
    /// let perfect = telescope.alone(wavelength)?;
    /// near(wavelength / 8.0 / mas, 42.5);
    /// near(perfect.width()?.mean() / mas, 43.8);
    /// near(1.22 * wavelength / 8.0 / mas, 51.9);
    /// near(perfect.encircled(&[1.22 * wavelength / 8.0])?[0], 0.838);
    /// let pixel = 0.5 * wavelength / 8.0;
    /// near(pixel / mas, 21.3);
    /// near(perfect.point_spread(pixel, 9)?.shares()[[4, 4]], 0.196);
    /// near(perfect.ensquared(&[pixel])?[0], 0.177);
    /// let fitting = telescope.on_grid(|rho| if rho == [0.0, 0.0] { 0.0 } else { 2.0 * 104.4e-9f64.powi(2) });
    /// let corrected = &telescope.through(&fitting, &[wavelength])?[0];
    /// near(corrected.strehl(), 0.854);
    /// near(corrected.point_spread(pixel, 9)?.shares()[[4, 4]], 0.168);
    /// near(corrected.width()?.mean() / mas, 43.8);
    /// near(perfect.ensquared(&[0.1 * ARCSEC])?[0], 0.842);
    /// near(corrected.ensquared(&[0.1 * ARCSEC])?[0], 0.719);
    /// near(1.0 - corrected.strehl(), 0.146);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn point_spread(&self, pixel: f64, pixels: usize) -> Result<PointSpread, Invalid> {
        let Self { step, wavelength, perfect, .. } = *self;
        let frame = Frame { step, wavelength, perfect, pixel, pixels };
        frame.check()?;
        let sums = Quarter::of(self).sums(pixels / 2 + 1, pixel);
        Ok(frame.image(&sums, self.strehl()))
    }

    /// The field \[rad\] after which images repeat, λ/ℓ.
    pub fn field(&self) -> f64 {
        self.wavelength / self.step
    }
}

// Image from a quarter
/// Wavelength, normalisation and pixels of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Frame {
    /// Step of the displacements, and the wavelength, m.
    pub(super) step: f64,
    pub(super) wavelength: f64,
    /// The sum over the displacements that a perfect wavefront has, in steps².
    pub(super) perfect: f64,
    /// Side of a pixel \[rad\], and pixels across.
    pub(super) pixel: f64,
    pub(super) pixels: usize,
}

impl Frame {
    // Refuse pixels beyond the field
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let (pixel, pixels) = (positive("pixel", self.pixel)?, self.pixels);
        accept((1..=16384).contains(&pixels), "pixels", pixels, "a whole number from 1 to 16384")?;
        let field = self.wavelength / self.step / pixel;
        let expected = format!("at most {field:.0} of this size, for the sampling of the pupil");
        accept(pixels as f64 <= field * (1.0 + 1e-9), "pixels", pixels, &expected).map(drop)
    }

    /// The image of which these are the sums for the directions of a quarter.
    pub(super) fn image(&self, sums: &[Array2<f64>; 2], strehl: f64) -> PointSpread {
        let Self { step, wavelength, perfect, pixel, pixels } = *self;
        let values = unfold(sums, pixels) / perfect;
        let share = perfect * (step * pixel / wavelength).powi(2);
        PointSpread { values, pixel, wavelength, strehl, share }
    }
}
/// All quarters of an image from the sums of one.
fn unfold([even, odd]: &[Array2<f64>; 2], pixels: usize) -> Array2<f64> {
    let middle = pixels / 2;
    let mut values = Array2::zeros((pixels, pixels));
    Zip::indexed(&mut values).par_for_each(|(j, i), value| {
        let place = [j.abs_diff(middle), i.abs_diff(middle)];
        let sign = if (j < middle) == (i < middle) { -1.0 } else { 1.0 };
        *value = even[place] + sign * odd[place];
    });
    values
}
impl PointSpread {
    /// The fraction of the star's light on each pixel, (m, m).
    pub fn shares(&self) -> Array2<f64> {
        &self.values * self.share
    }

    /// Pixels across.
    pub fn pixels(&self) -> usize {
        self.values.nrows()
    }
}

// Light in boxes
impl OpticalTransfer {
    /// The fraction of the light in boxes of these `sides` \[rad\] around the star, Eq. [energy](https://lenslet.github.io/lenslet/point-spread.html#eq-energy).
    ///
    /// # Errors
    /// `Invalid` for a side that is negative or larger than the [`field`](Self::field).
    pub fn ensquared(&self, sides: &[f64]) -> Result<Vec<f64>, Invalid> {
        Quarter::of(self).ensquared(sides)
    }
}

impl Quarter {
    /// Shares of the light in boxes of these sides \[rad\] around the star, Eq. [energy](https://lenslet.github.io/lenslet/point-spread.html#eq-energy).
    pub(super) fn ensquared(&self, sides: &[f64]) -> Result<Vec<f64>, Invalid> {
        let each = |&side: &f64| {
            let width = self.in_fields("ensquared", side, 1.0)?;
            let kernel = |k: usize| width * sinc(width * k as f64);
            let kernel = Array1::from_shape_fn(self.even.nrows(), kernel);
            Ok(kernel.dot(&self.even.dot(&kernel)))
        };
        sides.iter().map(each).collect()
    }
}

// Light in circles
impl OpticalTransfer {
    /// The fraction of the light in circles of these `radii` \[rad\] around the star, Eq. [energy](https://lenslet.github.io/lenslet/point-spread.html#eq-energy).
    ///
    /// # Errors
    /// `Invalid` for a radius that is negative or larger than half the [`field`](Self::field).
    pub fn encircled(&self, radii: &[f64]) -> Result<Vec<f64>, Invalid> {
        let quarter = Quarter::of(self);
        let each = |&radius: &f64| {
            let radius = quarter.in_fields("encircled", radius, 0.5)?;
            let kernel = |j: usize, i: usize| match (j as f64).hypot(i as f64) {
                0.0 => PI * radius * radius,
                rho => radius / rho * libm::j1(2.0 * PI * radius * rho),
            };
            let row = |(j, row): (usize, &[f64])| -> f64 {
                row.iter().enumerate().map(|(i, value)| value * kernel(j, i)).sum()
            };
            let side = quarter.even.ncols();
            let rows = quarter.even.as_slice().unwrap_or_default().par_chunks(side);
            let rows: Vec<f64> = rows.enumerate().map(row).collect();
            Ok(rows.iter().sum())
        };
        radii.iter().map(each).collect()
    }
}

// Lengths on the sky in fields
impl Quarter {
    /// A length on the sky in units of the field, not more than `most` of it.
    fn in_fields(&self, name: &str, length: f64, most: f64) -> Result<f64, Invalid> {
        let good = length >= 0.0 && length <= most * self.field;
        let expected = format!("an angle in radians from 0 to {:.3e}", most * self.field);
        accept(good, name, length, &expected).map(|length| length / self.field)
    }
}

// Full widths at half maximum
// Width of an image
/// The ellipse at half the maximum of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Width {
    /// Full width along the longer axis \[rad\].
    pub major: f64,
    /// Full width along the shorter axis \[rad\].
    pub minor: f64,
    /// Direction of the longer axis from x to y \[rad\], from 0 to less than π.
    pub angle: f64,
}

impl Width {
    /// The diameter \[rad\] of the circle of the same area.
    pub fn mean(&self) -> f64 {
        (self.major * self.minor).sqrt()
    }

    // Ellipse through equally spaced radii
    /// The ellipse through radii \[rad\] at equally spaced angles over half a turn, from 0; Eq. [half maximum](https://lenslet.github.io/lenslet/point-spread.html#eq-half-maximum).
    fn through(radii: &[f64]) -> Self {
        let count = radii.len() as f64;
        let sum = |wave: fn(f64) -> f64| -> f64 {
            let term = |(k, radius): (usize, &f64)| {
                wave(2.0 * PI * k as f64 / count) / (radius * radius * count)
            };
            radii.iter().enumerate().map(term).sum()
        };
        let [c0, c1, c2] = [sum(|_| 1.0), 2.0 * sum(f64::cos), 2.0 * sum(f64::sin)];
        let uneven = c1.hypot(c2);
        let [major, minor] = [c0 - uneven, c0 + uneven].map(|square| 2.0 / square.sqrt());
        let angle = if uneven > 1e-12 * c0 { 0.5 * (-c2).atan2(-c1) } else { 0.0 };
        Self { major, minor, angle: angle.rem_euclid(PI) }
    }
}

// Contour at half the maximum
/// Steps of a patch from the star to its rim, and directions in which the contour is looked for.
const STEPS: usize = 24;
const DIRECTIONS: usize = 64;

// Width of an optical transfer
impl OpticalTransfer {
    /// The full widths of the image at half its maximum, Eq. [half maximum](https://lenslet.github.io/lenslet/point-spread.html#eq-half-maximum).
    ///
    /// # Errors
    /// `Failed` if the image is wider than half the [`field`](Self::field).
    ///
    /// ```
    /// use lenslet::{psf::Aperture, model::Pupil};
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.0)?, &[], 128)?.transfer(256)?;
    /// let width = telescope.alone(1.6e-6)?.width()?;
    /// assert!((width.mean() / (1.029 * 1.6e-6 / 8.0) - 1.0).abs() < 1e-3); // Airy's pattern
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn width(&self) -> Result<Width, Error> {
        Quarter::of(self).width()
    }
}

// Search patch after patch
impl Quarter {
    /// Full widths of the image at half its maximum, Eq. [half maximum](https://lenslet.github.io/lenslet/point-spread.html#eq-half-maximum).
    pub(super) fn width(&self) -> Result<Width, Error> {
        let mut reach = 1.2 * self.field / self.even.nrows() as f64;
        while reach < 0.5 * self.field {
            let patch = QuarterPatch(self.sums(STEPS + 1, reach / STEPS as f64));
            let angle = |k: usize| PI * k as f64 / DIRECTIONS as f64;
            let radii: Option<Vec<f64>> =
                (0..DIRECTIONS).map(|k| patch.half_maximum(angle(k))).collect();
            if let Some(radii) = radii {
                let step = reach / STEPS as f64;
                return Ok(Width::through(&radii.iter().map(|r| r * step).collect::<Vec<_>>()));
            }
            reach *= 2.0;
        }
        let reason = "it is wider than half the field λ/ℓ, so the pupil wants a finer step".into();
        Err(Error::Failed { what: "the width of the image".into(), reason })
    }
}
// Search for half the maximum
/// The sums of a quarter around the star.
struct QuarterPatch([Array2<f64>; 2]);

impl QuarterPatch {
    /// Distance from the star, in steps, at which the image has half its maximum, if it is on this patch.
    fn half_maximum(&self, angle: f64) -> Option<f64> {
        let (sin, cos) = angle.sin_cos();
        let half = 0.5 * self.0[0][[0, 0]];
        let above = |radius: f64| self.at([radius * sin, radius * cos]) - half;
        let last = 2 * (STEPS - 4);
        let first = (1..=last).map(|k| 0.5 * k as f64).find(|&radius| above(radius) < 0.0)?;
        let (mut low, mut high) = (first - 0.5, first);
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            *(if above(middle) < 0.0 { &mut high } else { &mut low }) = middle;
        }
        Some(low)
    }

    // Value between points of a patch
    /// The image at a place \[y, x\] in steps.
    fn at(&self, [y, x]: [f64; 2]) -> f64 {
        let ((j, along_y), (i, along_x)) = (six_around(y), six_around(x));
        let mut sum = 0.0;
        for (j, by) in (j..).zip(along_y) {
            for (i, bx) in (i..).zip(along_x) {
                let place = [j.unsigned_abs(), i.unsigned_abs()];
                let sign = if (j < 0) == (i < 0) { -1.0 } else { 1.0 };
                sum += by * bx * (self.0[0][place] + sign * self.0[1][place]);
            }
        }
        sum
    }
}

// Interpolate on the patch
/// The first of six whole numbers around `x`, and the weights of Lagrange's polynomial through them.
fn six_around(x: f64) -> (isize, [f64; 6]) {
    let first = x.floor() as isize - 2;
    let t = x - first as f64;
    let weight = |k: usize| -> f64 {
        let others = (0..6).filter(|&l| l != k);
        others.map(|l| (t - l as f64) / (k as f64 - l as f64)).product()
    };
    (first, [0, 1, 2, 3, 4, 5].map(weight))
}

// Rings of an image
// Values of a ring
/// A ring of an image around the star, one pixel wide.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Ring {
    /// Mean distance of its pixels from the star \[rad\].
    pub radius: f64,
    /// Mean of their values, in units of the value on the axis.
    pub mean: f64,
    /// Standard deviation of their values, in the same unit.
    pub deviation: f64,
    /// Number of its pixels.
    pub pixels: usize,
}

impl PointSpread {
    /// Rings of pixels around the star, up to the last complete one.
    pub fn rings(&self) -> Vec<Ring> {
        let middle = self.pixels() / 2;
        let count = self.pixels() - middle;
        // Add pixels to their rings
        let mut sums = vec![[0.0; 4]; count];
        for ((j, i), value) in self.values.indexed_iter() {
            let radius = (j as f64 - middle as f64).hypot(i as f64 - middle as f64);
            if let Some(sum) = sums.get_mut(radius.round() as usize) {
                let value = value / self.strehl;
                let terms = [1.0, radius, value, value * value];
                sum.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        }
        let ring = |[pixels, radius, sum, squares]: [f64; 4]| {
            let mean = sum / pixels;
            let deviation = (squares / pixels - mean * mean).max(0.0).sqrt();
            Ring { radius: self.pixel * radius / pixels, mean, deviation, pixels: pixels as usize }
        };
        sums.into_iter().map(ring).collect()
    }
}

// Tests of point spread
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pupil;
    use crate::psf::optical_transfer::{Aperture, TelescopeTransfer, Vane};
    use crate::turbulence::VonKarman;

    fn telescope(obstruction: f64, samples: usize) -> TelescopeTransfer {
        let pupil = Pupil::new(8.0, obstruction).unwrap();
        Aperture::across(&pupil, &[], samples).unwrap().transfer(2 * samples).unwrap()
    }

    // Compare with the pattern of Airy
    #[test]
    fn clear_telescopes_make_the_pattern_of_airy() {
        let (wave, unit) = (2e-6, 2e-6 / 8.0);
        let clear = telescope(0.0, 180).alone(wave).unwrap();
        let width = clear.width().unwrap();
        assert!((width.mean() / unit - 1.02899).abs() < 2e-4, "{}", width.mean() / unit);
        assert!((width.major / width.minor - 1.0).abs() < 1e-4);
        let within = clear.encircled(&[1.21967 * unit]).unwrap()[0];
        assert!((within - 0.83778).abs() < 2e-4, "{within}");
        let ringed = telescope(0.3, 180).alone(wave).unwrap();
        let image = ringed.point_spread(0.37 * unit, 31).unwrap();
        let disc = |v: f64| if v == 0.0 { 1.0 } else { 2.0 * libm::j1(PI * v) / (PI * v) };
        for ((j, i), &found) in image.values.indexed_iter() {
            let v = 0.37 * (j as f64 - 15.0).hypot(i as f64 - 15.0);
            let expected = ((disc(v) - 0.09 * disc(0.3 * v)) / 0.91).powi(2);
            assert!((found - expected).abs() < 2e-4, "[{j}, {i}]: {found} and {expected}");
        }
    }

    // Sum the image of a lopsided pupil
    #[test]
    fn lopsided_images_are_summed() {
        let vane = Vane { width: 1.2, angle: 0.6, offset: 0.0 };
        let pupil = Pupil::new(8.0, 0.2).unwrap();
        let aperture = Aperture::new(&pupil, &[vane], 40, 0.2, Default::default()).unwrap();
        let (transfer, wave) = (aperture.transfer(81).unwrap().alone(1e-6).unwrap(), 1e-6);
        for (pixels, pixel) in [(6, 0.7e-7), (5, 0.9e-7)] {
            let image = transfer.point_spread(pixel, pixels).unwrap();
            for ((j, i), &found) in image.values.indexed_iter() {
                let [y, x] = [j, i].map(|k| (k as f64 - (pixels / 2) as f64) * pixel);
                let mut field = num_complex::Complex::new(0.0, 0.0);
                for ((l, k), light) in aperture.light().indexed_iter() {
                    let phase = 2.0 * PI * 0.2 * (l as f64 * y + k as f64 * x) / wave;
                    field += num_complex::Complex::from_polar(*light, phase);
                }
                // What edges scatter is spread evenly over the field.
                let expected = field.norm_sqr() / aperture.light().sum().powi(2);
                assert!((found - expected).abs() < 5e-5, "[{j}, {i}]: {found} and {expected}");
            }
            let near = |j: usize, i: usize| image.values[[pixels / 2 + j - 1, pixels / 2 + i - 1]];
            assert!((near(0, 2) - near(2, 0)).abs() < 1e-12);
            assert!((near(0, 2) - near(0, 0)).abs() > 1e-4);
        }
    }

    // Widths of seeing
    #[test]
    fn seeing_has_its_width() {
        let (wave, r0) = (0.5e-6, 0.15f64);
        let endless = TelescopeTransfer::unlimited(241, r0 / 20.0).unwrap();
        for (outer_scale, expected, tolerance) in [
            (f64::INFINITY, 0.97586, 1e-4),
            (100.0 * r0, 0.97586 * (1.0 - 2.183 * 0.01f64.powf(0.356)).sqrt(), 1e-2),
        ] {
            let phase = VonKarman::new(outer_scale);
            let scale = (wave / (2.0 * PI)).powi(2) * r0.powf(-5.0 / 3.0);
            let structure = endless.on_grid(|[x, y]| scale * phase.structure_function(x.hypot(y)));
            let transfer = &endless.through(&structure, &[wave]).unwrap()[0];
            let width = transfer.width().unwrap();
            let ratio = width.mean() / (wave / r0);
            assert!(
                (ratio / expected - 1.0).abs() < tolerance,
                "{outer_scale}: {ratio}, {expected}"
            );
            assert!((width.major / width.minor - 1.0).abs() < 1e-4);
        }
    }

    // Widths of tilted ellipses
    #[test]
    fn tilted_gaussians_have_their_axes() {
        let endless = TelescopeTransfer::unlimited(96, 0.02).unwrap();
        let (wave, long, short, angle) = (1e-6, 3e-6f64, 1.9e-6f64, 2.1f64);
        let (sin, cos) = angle.sin_cos();
        let factor = |[x, y]: [f64; 2]| {
            let [u, v] = [x * cos + y * sin, y * cos - x * sin];
            (-2.0 * (PI / wave).powi(2) * ((long * u).powi(2) + (short * v).powi(2))).exp()
        };
        let transfer = endless.alone(wave).unwrap().times(factor);
        let (width, full) = (transfer.width().unwrap(), 2.0 * (2.0 * 2f64.ln()).sqrt());
        assert!((width.major / (full * long) - 1.0).abs() < 1e-6, "{width:?}");
        assert!((width.minor / (full * short) - 1.0).abs() < 1e-6, "{width:?}");
        assert!((width.angle - angle).abs() < 1e-6, "{width:?}");
        assert!((width.mean().powi(2) / (width.major * width.minor) - 1.0).abs() < 1e-12);
        let inside = transfer.ensquared(&[0.0, 4e-6]).unwrap();
        assert!(inside[0] == 0.0 && inside[1] > 0.2 && inside[1] < 0.8);
    }

    // Light and its sums
    #[test]
    fn no_light_is_lost_and_none_is_negative() {
        for (samples, points) in [(30, 60), (31, 61)] {
            let pupil = Pupil::new(8.0, 0.2).unwrap();
            let vane = Vane { width: 0.5, angle: 1.1, offset: 0.0 };
            let aperture = Aperture::across(&pupil, &[vane], samples).unwrap();
            let telescope = aperture.transfer(points).unwrap();
            let phase = VonKarman::new(25.0);
            let structure = telescope
                .on_grid(|[x, y]| 2e-14 * phase.structure_function(x.hypot(0.8 * y)).min(9.0));
            let transfer = &telescope.through(&structure, &[1.2e-6]).unwrap()[0];
            let image = transfer.point_spread(transfer.field() / points as f64, points).unwrap();
            assert!((image.shares().sum() - 1.0).abs() < 1e-12, "{}", image.shares().sum());
            assert!(image.values.iter().all(|&value| value > -1e-12));
            assert!((image.values[[points / 2, points / 2]] - transfer.strehl()).abs() < 1e-12);
            assert_eq!(image.strehl, transfer.strehl());
            let all = transfer.ensquared(&[transfer.field()]).unwrap()[0];
            assert!((all - 1.0).abs() < 1e-12, "{all}");
            // Fine pixels are counted in a box and in a circle.
            let fine = transfer.point_spread(transfer.field() / 600.0, 401).unwrap();
            let light = |inside: &dyn Fn(f64, f64) -> bool| -> f64 {
                let at = |k: usize| (k as f64 - 200.0) * fine.pixel;
                let lit = fine.values.indexed_iter().filter(|((j, i), _)| inside(at(*j), at(*i)));
                lit.map(|(_, value)| value * fine.share).sum()
            };
            let side = 101.0 * fine.pixel;
            let boxed = light(&|y, x| y.abs() < 0.5 * side && x.abs() < 0.5 * side);
            let exact = transfer.ensquared(&[side]).unwrap()[0];
            assert!((boxed - exact).abs() < 1e-3, "{boxed} {exact}");
            let round = light(&|y, x| y.hypot(x) < side);
            let exact = transfer.encircled(&[side]).unwrap()[0];
            assert!((round - exact).abs() < 2e-3, "{round} {exact}");
        }
    }

    // Images of small errors
    #[test]
    fn small_errors_obey_marechal_and_scale() {
        let telescope = telescope(0.25, 48);
        let structure = |rms: f64| {
            telescope.on_grid(|[x, y]| 2.0 * rms * rms * (1.0 - (-(x * x + y * y) / 0.09).exp()))
        };
        let at =
            |rms: f64, wave: f64| telescope.through(&structure(rms), &[wave]).unwrap().remove(0);
        let sigma = 2.0 * PI * 20e-9 / 1e-6;
        let strehl = at(20e-9, 1e-6).strehl();
        assert!((strehl - (-sigma * sigma).exp()).abs() < 1e-4, "{strehl}");
        assert_eq!(at(0.0, 1e-6).strehl(), 1.0);
        let [small, large] = [at(150e-9, 1e-6), at(300e-9, 2e-6)];
        assert!((small.strehl() - large.strehl()).abs() < 1e-12);
        let [narrow, wide] = [&small, &large].map(|transfer| transfer.width().unwrap().mean());
        assert!((wide / narrow - 2.0).abs() < 1e-9);
        let [inner, outer] = [(&small, 1e-7), (&large, 2e-7)]
            .map(|(transfer, side)| transfer.ensquared(&[side]).unwrap()[0]);
        assert!((inner - outer).abs() < 1e-12);
        let rings = small.point_spread(0.25 * 1e-6 / 8.0, 64).unwrap().rings();
        assert!((rings[0].mean - 1.0).abs() < 1e-12 && rings[0].pixels == 1 && rings.len() == 32);
        assert!(rings[1].pixels == 8 && rings[5].deviation < rings[5].mean);
        assert!((rings[20].radius / (20.0 * 0.25 * 1e-6 / 8.0) - 1.0).abs() < 0.01);
    }

    // Refuse images that cannot be
    #[test]
    fn impossible_images_are_refused() {
        let transfer = telescope(0.2, 16).alone(1e-6).unwrap();
        let field = transfer.field();
        assert_eq!(field, 2e-6);
        let name = |pixel, pixels| transfer.point_spread(pixel, pixels).unwrap_err().quantity;
        assert_eq!(
            [name(0.0, 8), name(f64::NAN, 8), name(1e-8, 0), name(1e-8, 201)],
            ["pixel", "pixel", "pixels", "pixels"]
        );
        assert!(transfer.point_spread(1e-8, 200).is_ok());
        assert_eq!(transfer.ensquared(&[1e-7, -1e-7]).unwrap_err().quantity, "ensquared");
        assert_eq!(transfer.ensquared(&[1.1 * field]).unwrap_err().quantity, "ensquared");
        assert_eq!(transfer.encircled(&[0.6 * field]).unwrap_err().quantity, "encircled");
        assert!(transfer.encircled(&[f64::NAN]).is_err());
        let flat = TelescopeTransfer::unlimited(32, 0.1).unwrap().alone(1e-6).unwrap();
        let point = flat.times(|[x, y]| if x == 0.0 && y == 0.0 { 1.0 } else { 0.0 });
        assert!(point.width().unwrap_err().to_string().contains("finer step"));
    }
}
