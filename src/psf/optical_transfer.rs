// Tangled from book/src/optical-transfer.md: edit there, or here and run cargo tangle stitch.
//! The optical transfer function: of the telescope's pupil, and of a wavefront with a structure function.

// Imports of optical transfer
use crate::error::{Invalid, accept, finite, length, positive};
use crate::model::lenslet_array::Pupil;
use crate::psf::transforms::Plane;
use ndarray::{Array2, Zip};
use std::f64::consts::PI;

// Pupil of a telescope on squares
// Pupil on a grid
/// Treatment of the squares that the edge of a pupil crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Edges {
    /// They let through the share of their area that is lit.
    #[default]
    Area,
    /// They are lit if their centre is.
    Centre,
}

// Represent a pupil on a grid
// Light of a pupil on squares
/// A pupil on a grid of squares.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Aperture {
    light: Array2<f64>,
    step: f64,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Aperture::from_light(light: Array2<f64>, step: f64)?);

impl Aperture {
    // Light of every square around the axis
    // Example of a pupil on squares
    /// A pupil on `samples` × `samples` squares of side `step` \[m\] around its axis, with the vanes of a spider.
    ///
    /// # Errors
    /// `Invalid` if there are no or too many squares, they do not contain the pupil, or a vane is invalid.
    ///
    /// ```
    /// use lenslet::{psf::{Aperture, Edges}, model::Pupil};
    /// let pupil = Pupil::new(8.0, 0.25)?;
    /// let aperture = Aperture::new(&pupil, &[], 41, 0.2, Edges::Area)?;
    /// let exact = std::f64::consts::PI * (16.0 - 1.0);
    /// assert!((aperture.area() / exact - 1.0).abs() < 1e-12);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(
        pupil: &Pupil,
        vanes: &[Vane],
        samples: usize,
        step: f64,
        edges: Edges,
    ) -> Result<Self, Invalid> {
        // Refuse grids that do not hold the pupil
        check_samples(samples)?;
        let across = samples as f64 * length("step", step)?;
        let expected = format!("{samples} of them as wide as the pupil, {} m", pupil.diameter());
        accept(across > pupil.diameter() * (1.0 - 1e-9), "step", step, &expected)?;
        vanes.iter().try_for_each(Vane::check)?;
        let middle = 0.5 * (samples as f64 - 1.0);
        let lit = |(j, i): (usize, usize)| {
            lit(pupil, vanes, [i, j].map(|k| (k as f64 - middle) * step), step, edges)
        };
        let light = Array2::from_shape_fn((samples, samples), lit);
        let widest = vanes.iter().map(|vane| vane.width).fold(0.0, f64::max);
        let expected = "vanes, and squares, that leave some of the pupil lit";
        accept(light.sum() > 0.0, "spiders.width", widest, expected)?;
        Ok(Self { light, step })
    }

    // Pupil as wide as its grid
    /// A pupil on a grid of `samples` × `samples` squares that is as wide as the pupil, with edges by area.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn across(pupil: &Pupil, vanes: &[Vane], samples: usize) -> Result<Self, Invalid> {
        check_samples(samples)?;
        Self::new(pupil, vanes, samples, pupil.diameter() / samples as f64, Edges::Area)
    }

    // Transmission and area of a pupil
    /// Transmission of each square, from 0 to 1, (p, p), axis 0 along y.
    pub fn light(&self) -> &Array2<f64> {
        &self.light
    }

    /// Side of a square \[m\].
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The lit area \[m²\].
    pub fn area(&self) -> f64 {
        self.light.sum() * self.step * self.step
    }
}

// Light in a square of the pupil
/// Transmission of a square of the pupil, given its centre and side \[m\].
fn lit(pupil: &Pupil, vanes: &[Vane], centre: [f64; 2], side: f64, edges: Edges) -> f64 {
    match edges {
        Edges::Area => {
            let free = vanes.iter().map(|vane| 1.0 - vane.covers(centre, side));
            pupil.lit_fraction(centre, side) * free.product::<f64>()
        }
        Edges::Centre => {
            let free = !vanes.iter().any(|vane| vane.hides(centre));
            f64::from(u8::from(free && pupil.contains(centre)))
        }
    }
}

// Vanes of a spider
/// A vane of the spider that holds the secondary mirror: a strip from the axis to the rim.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Vane {
    /// Its width \[m\].
    pub width: f64,
    /// Its direction from x to y \[rad\].
    pub angle: f64,
    /// Distance at which its centre line passes to the left of the axis, seen from the axis outwards \[m\].
    #[cfg_attr(feature = "serde", serde(default))]
    pub offset: f64,
}

impl Vane {
    // Check the numbers of a vane
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        positive("width", self.width)?;
        finite("angle", self.angle)?;
        finite("offset", self.offset).map(drop)
    }

    // Points relative to a vane
    /// Coordinates of a point along and across the vane.
    fn seen_along(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let (sin, cos) = self.angle.sin_cos();
        [x * cos + y * sin, y * cos - x * sin - self.offset]
    }

    /// Whether a point \[m\] lies behind the vane.
    pub(crate) fn hides(&self, point: [f64; 2]) -> bool {
        let [along, across] = self.seen_along(point);
        along >= 0.0 && 2.0 * across.abs() <= self.width
    }
}

// Area of a vane in a square
impl Vane {
    /// The fraction of a square, given its centre and side \[m\], behind the vane.
    fn covers(&self, [x, y]: [f64; 2], side: f64) -> f64 {
        let reach = 0.75 * side;
        let [along, across] = self.seen_along([x, y]);
        if along < -reach || across.abs() > 0.5 * self.width + reach {
            return 0.0;
        }
        let corners = [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]];
        let corner = |[u, v]: [f64; 2]| self.seen_along([x + u * side, y + v * side]);
        let mut polygon: Vec<[f64; 2]> = corners.into_iter().map(corner).collect();
        for depth in [
            &(|[along, _]: [f64; 2]| along) as &dyn Fn([f64; 2]) -> f64,
            &|[_, across]| 0.5 * self.width - across,
            &|[_, across]| 0.5 * self.width + across,
        ] {
            polygon = cut(&polygon, depth);
        }
        (area(&polygon) / (side * side)).min(1.0)
    }
}

// Cut a polygon along a line
/// The part of a convex polygon where a linear function is not negative.
fn cut(polygon: &[[f64; 2]], depth: &dyn Fn([f64; 2]) -> f64) -> Vec<[f64; 2]> {
    let mut kept = Vec::with_capacity(polygon.len() + 1);
    for (k, &a) in polygon.iter().enumerate() {
        let b = polygon[(k + 1) % polygon.len()];
        let (of_a, of_b) = (depth(a), depth(b));
        if of_a >= 0.0 {
            kept.push(a);
        }
        if (of_a >= 0.0) != (of_b >= 0.0) {
            let t = of_a / (of_a - of_b);
            kept.push([0, 1].map(|m| a[m] + t * (b[m] - a[m])));
        }
    }
    kept
}

fn area(polygon: &[[f64; 2]]) -> f64 {
    let next = polygon.iter().cycle().skip(1);
    0.5 * polygon.iter().zip(next).map(|(a, b)| a[0] * b[1] - a[1] * b[0]).sum::<f64>()
}

// Pupil from an array or file
/// The most squares across a pupil.
pub(crate) const MOST: usize = 8192;

fn check_samples(samples: usize) -> Result<(), Invalid> {
    let expected = format!("a whole number from 1 to {MOST}");
    accept((1..=MOST).contains(&samples), "samples", samples, &expected).map(drop)
}

impl Aperture {
    /// A pupil whose squares of side `step` \[m\] let through this much `light`, (p, p), axis 0 along y.
    ///
    /// # Errors
    /// `Invalid` if the array is not square, a value is not between 0 and 1, or all are 0.
    pub fn from_light(light: Array2<f64>, step: f64) -> Result<Self, Invalid> {
        let step = length("step", step)?;
        let square = light.is_square() && light.nrows() > 0;
        let refuse = |value: String, expected: &str| Err(Invalid::new("pupil", value, expected));
        if !square {
            return refuse(format!("{:?}", light.dim()), "a square array");
        }
        check_samples(light.nrows())?;
        if let Some((place, value)) =
            light.indexed_iter().find(|(_, value)| !(0.0..=1.0).contains(*value))
        {
            return refuse(format!("{value} at {place:?}"), "numbers from 0 to 1");
        }
        if light.sum() <= 0.0 {
            return refuse("0".into(), "some light");
        }
        Ok(Self { light, step })
    }
}
#[cfg(feature = "files")]
impl Aperture {
    /// Reads a pupil of `diameter` \[m\] from a file with one square image, as wide as the pupil.
    ///
    /// # Errors
    /// `Read` if the file cannot be read, `Invalid` as for [`from_light`](Self::from_light).
    pub fn read(path: &std::path::Path, diameter: f64) -> Result<Self, crate::Error> {
        let light = crate::files::read_array2(path, crate::files::Unit::None)?;
        let samples = light.ncols().max(1) as f64;
        let name = |error: Invalid| Invalid {
            quantity: format!("{} of {}", error.quantity, path.display()),
            ..error
        };
        Ok(Self::from_light(light, length("diameter", diameter)? / samples).map_err(name)?)
    }
}

// Resample a pupil to other squares
impl Aperture {
    /// The pupil resampled to `samples` × `samples` squares of side `step` \[m\] around its axis, each with the mean of the light that it covers.
    ///
    /// # Errors
    /// `Invalid` if there are no or too many squares, their side is not positive, or all are dark.
    pub fn resampled(&self, samples: usize, step: f64) -> Result<Self, Invalid> {
        check_samples(samples)?;
        let (step, old) = (length("step", step)?, self.light.nrows());
        let start = |k: usize, count: usize, side: f64| (k as f64 - 0.5 * count as f64) * side;
        let shares = Array2::from_shape_fn((samples, old), |(j, k)| {
            let (new, old) = (start(j, samples, step), start(k, old, self.step));
            let common = (new + step).min(old + self.step) - new.max(old);
            common.max(0.0) / step
        });
        let light = shares.dot(&self.light).dot(&shares.t());
        Self::from_light(light.mapv(|light| light.clamp(0.0, 1.0)), step)
    }
}

// Transfer function of a telescope
/// The optical transfer function of a telescope on a grid of displacements, Eq. [optical transfer](https://lenslet.github.io/lenslet/optical-transfer.html#eq-optical-transfer).
///
/// Displacement zero is at \[n/2, n/2\], axis 0 is along y.
#[derive(Debug, Clone, PartialEq)]
pub struct TelescopeTransfer {
    values: Array2<f64>,
    step: f64,
    area: f64,
    /// The last displacement along an axis where it is not 0, in steps.
    pub(crate) reach: usize,
}

impl TelescopeTransfer {
    /// Transfer function of an unlimited telescope, 1 everywhere, for images of turbulence alone.
    ///
    /// # Errors
    /// `Invalid` if there are no or too many displacements, or the step is not positive.
    pub fn unlimited(points: usize, step: f64) -> Result<Self, Invalid> {
        let good = (1..=2 * MOST).contains(&points);
        accept(good, "points", points, "a sensible number of displacements")?;
        let step = length("step", step)?;
        let values = Array2::ones((points, points));
        let area = (points as f64 * step).powi(2);
        Ok(Self { values, step, area, reach: (points - 1) / 2 })
    }

    // Values and grid of a telescope's transfer
    /// Its values, (n, n).
    pub fn values(&self) -> &Array2<f64> {
        &self.values
    }

    /// Displacements across the grid.
    pub fn points(&self) -> usize {
        self.values.nrows()
    }

    /// Step of the displacements \[m\].
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The area of the pupil \[m²\].
    pub fn area(&self) -> f64 {
        self.area
    }

    /// The displacement \[m\] of element `[j, i]`.
    pub fn displacement(&self, [j, i]: [usize; 2]) -> [f64; 2] {
        displacement(self.points(), self.step, [j, i])
    }

    /// The values of a function of the displacement \[m\] on the grid, for example of a structure function in closed form.
    pub fn on_grid(&self, f: impl Fn([f64; 2]) -> f64) -> Array2<f64> {
        Array2::from_shape_fn(self.values.dim(), |(j, i)| f(self.displacement([j, i])))
    }
    /// An optical transfer function from its values, (n, n), at a `wavelength` \[m\].
    #[cfg(feature = "factorise")]
    pub(crate) fn with_values(
        &self,
        values: Array2<f64>,
        wavelength: f64,
    ) -> Result<OpticalTransfer, Invalid> {
        OpticalTransfer::of(self, values, length("wavelength", wavelength)?)
    }

    /// Optical transfer function of the telescope alone at a `wavelength` \[m\].
    ///
    /// # Errors
    /// `Invalid` if the wavelength is not positive.
    pub fn alone(&self, wavelength: f64) -> Result<OpticalTransfer, Invalid> {
        let values = self.values.clone();
        OpticalTransfer::of(self, values, length("wavelength", wavelength)?)
    }
}

// Autocorrelate the pupil
impl Aperture {
    /// The telescope's transfer function on `points` × `points` displacements of the step of this grid.
    ///
    /// # Errors
    /// `Invalid` if the grid is smaller than 2p − 1 points across, for p squares across the pupil.
    pub fn transfer(&self, points: usize) -> Result<TelescopeTransfer, Invalid> {
        let samples = self.light.nrows();
        let (least, most) = (2 * samples - 1, 2 * MOST);
        let expected = format!("from {least}, for {samples} squares across the pupil, to {most}");
        accept((least..=most).contains(&points), "points", points, &expected)?;
        let plane = Plane::around(least);
        let power = plane.spectrum(&self.light.view()).mapv(|amplitude| amplitude.norm_sqr());
        let mut values = plane.correlation(&power, samples - 1, points) / self.light.sum();
        values.par_mapv_inplace(|value| value.clamp(0.0, 1.0));
        values[[points / 2, points / 2]] = 1.0;
        Ok(TelescopeTransfer { values, step: self.step, area: self.area(), reach: samples - 1 })
    }
}

// Transfer function of a long exposure
/// The optical transfer function of a long exposure at one wavelength, on a grid of displacements.
#[derive(Debug, Clone, PartialEq)]
pub struct OpticalTransfer {
    pub(crate) values: Array2<f64>,
    pub(crate) step: f64,
    pub(crate) wavelength: f64,
    pub(crate) reach: usize,
    /// The sum over the displacements that a perfect wavefront has, in steps².
    pub(crate) perfect: f64,
}

// Pass through a wavefront
impl TelescopeTransfer {
    // Example of a wavefront behind a telescope
    /// Optical transfer functions of telescope and wavefront at each of the `wavelengths` \[m\], for a structure function \[m²\] of the
    /// wavefront on the same grid; Eq. [optical transfer](https://lenslet.github.io/lenslet/optical-transfer.html#eq-optical-transfer).
    ///
    /// # Errors
    /// `Invalid` if the structure function has another shape or is not finite, or a wavelength is not positive.
    ///
    /// ```
    /// use lenslet::{psf::Aperture, model::Pupil};
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.2)?, &[], 64)?.transfer(128)?;
    /// // A wavefront error of 100 nm rms, independent from point to point
    /// let wrong = telescope.on_grid(|rho| if rho == [0.0, 0.0] { 0.0 } else { 2e-14 });
    /// let [short, long] = &telescope.through(&wrong, &[1.25e-6, 2.2e-6])?[..] else { panic!() };
    /// let marechal = |wavelength: f64| (-(2.0 * std::f64::consts::PI * 1e-7 / wavelength).powi(2)).exp();
    /// assert!((short.strehl() / marechal(1.25e-6) - 1.0).abs() < 1e-3);
    /// assert!((long.strehl() / marechal(2.2e-6) - 1.0).abs() < 1e-3);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    // Transfer functions of a worked case
    ///
    /// The worked case of the chapter:
    ///
    /// ```
    /// use lenslet::{psf::Aperture, model::Pupil};
    /// use std::f64::consts::PI;
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.0)?, &[], 128)?.transfer(256)?;
    /// let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 3e-3, "{found} {expected}");
    /// let t = 0.5f64;
    /// near(t.acos(), 1.0472);
    /// near(t * (1.0 - t * t).sqrt(), 0.4330);
    /// near(telescope.values()[[128, 128 + 64]], 0.391);
    /// near(2.0 * PI * 104.4 / 1650.0, 0.3976);
    /// let fitting = telescope.on_grid(|rho| if rho == [0.0, 0.0] { 0.0 } else { 2.0 * 104.4e-9f64.powi(2) });
    /// let corrected = &telescope.through(&fitting, &[1.65e-6])?[0];
    /// near(corrected.values()[[128, 128 + 64]], 0.334);
    /// near(corrected.strehl(), 0.854);
    /// let phase = |rho: f64| 6.884 * (rho / 0.15).powf(5.0 / 3.0);
    /// near(phase(0.5), 51.2);
    /// near(phase(0.5) * (500.0f64 / 1650.0).powi(2), 4.70);
    /// let kolmogorov = telescope.on_grid(|[x, y]| (500e-9 / (2.0 * PI)).powi(2) * phase(x.hypot(y)));
    /// let seen = &telescope.through(&kolmogorov, &[1.65e-6])?[0];
    /// let factor = |k: usize| seen.values()[[128, 128 + k]] / telescope.values()[[128, 128 + k]];
    /// near(factor(8), f64::exp(-2.351));
    /// assert!((factor(16) - 6e-4).abs() < 5e-5);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn through(
        &self,
        structure: &Array2<f64>,
        wavelengths: &[f64],
    ) -> Result<Vec<OpticalTransfer>, Invalid> {
        self.check_structure(structure)?;
        let at = |&wavelength: &f64| {
            let scale = -0.5 * (2.0 * PI / length("wavelength", wavelength)?).powi(2);
            let mut values = self.values.clone();
            Zip::from(&mut values).and(structure).par_for_each(|value, &structure| {
                if *value > 0.0 {
                    *value *= (scale * structure).exp();
                }
            });
            OpticalTransfer::of(self, values, wavelength)
        };
        wavelengths.iter().map(at).collect()
    }

    // Refuse a structure function of another grid
    pub(crate) fn check_structure(&self, structure: &Array2<f64>) -> Result<(), Invalid> {
        let refuse = |value, expected| Err(Invalid::new("structure function", value, expected));
        if structure.dim() != self.values.dim() {
            let expected = format!("{:?}, as the transfer of the telescope", self.values.dim());
            return refuse(format!("{:?}", structure.dim()), expected);
        }
        match structure.indexed_iter().find(|(_, value)| !value.is_finite()) {
            Some((place, value)) => {
                refuse(format!("{value} at {place:?}"), "finite numbers".into())
            }
            None => Ok(()),
        }
    }
}

// Further factors of a transfer
impl OpticalTransfer {
    // Transfer function with a telescope's grid
    fn of(
        telescope: &TelescopeTransfer,
        values: Array2<f64>,
        wavelength: f64,
    ) -> Result<Self, Invalid> {
        let TelescopeTransfer { step, reach, .. } = *telescope;
        Ok(Self { values, step, wavelength, reach, perfect: telescope.values.sum() })
    }

    /// Multiplies the transfer function by a further factor, an even function of the displacement \[m\].
    pub fn times(mut self, factor: impl Fn([f64; 2]) -> f64 + Sync) -> Self {
        let (points, step) = (self.values.nrows(), self.step);
        Zip::indexed(&mut self.values).par_for_each(|(j, i), value| {
            if *value != 0.0 {
                *value *= factor(displacement(points, step, [j, i]));
            }
        });
        self
    }

    /// The Strehl ratio, Eq. [strehl](https://lenslet.github.io/lenslet/optical-transfer.html#eq-strehl).
    pub fn strehl(&self) -> f64 {
        self.values.sum() / self.perfect
    }

    // Values and grid of an optical transfer
    /// Its values, (n, n), with displacement zero at \[n/2, n/2\] and axis 0 along y.
    pub fn values(&self) -> &Array2<f64> {
        &self.values
    }

    /// Step of the displacements \[m\].
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The wavelength \[m\].
    pub fn wavelength(&self) -> f64 {
        self.wavelength
    }
}

// Displacement of a grid element
/// The displacement \[m\] of element `[j, i]` on a grid of `points` × `points` displacements.
fn displacement(points: usize, step: f64, [j, i]: [usize; 2]) -> [f64; 2] {
    [i, j].map(|k| (k as f64 - (points / 2) as f64) * step)
}

// Tests of optical transfer
#[cfg(test)]
mod tests {
    use super::*;

    /// The area that two discs have in common whose centres are `apart`.
    fn common(a: f64, b: f64, apart: f64) -> f64 {
        if apart >= a + b {
            return 0.0;
        }
        if apart <= (a - b).abs() {
            return PI * a.min(b).powi(2);
        }
        let part = |a: f64, b: f64| {
            let x = (apart * apart + a * a - b * b) / (2.0 * apart);
            a * a * (x / a).acos() - x * (a * a - x * x).sqrt()
        };
        part(a, b) + part(b, a)
    }

    // Compare discs and rings with closed forms
    #[test]
    fn discs_and_rings_have_their_transfer() {
        for obstruction in [0.0, 0.3] {
            for (samples, points, tolerance) in [(40, 80, 4e-3), (41, 81, 4e-3), (120, 243, 1.4e-3)]
            {
                let pupil = Pupil::new(5.0, obstruction).unwrap();
                let aperture = Aperture::across(&pupil, &[], samples).unwrap();
                let transfer = aperture.transfer(points).unwrap();
                let (large, small) = (2.5, 2.5 * obstruction);
                let exact = transfer.on_grid(|[x, y]| {
                    let apart = x.hypot(y);
                    let both = common(large, large, apart) + common(small, small, apart);
                    let ring = PI * (large * large - small * small);
                    (both - 2.0 * common(large, small, apart)) / ring
                });
                let worst =
                    (&exact - transfer.values()).fold(0.0, |most: f64, e| most.max(e.abs()));
                assert!(worst < tolerance, "{obstruction} {samples}: {worst:e}");
                let nu = 7.0 * aperture.step() / 5.0;
                let disc = 2.0 / PI * (nu.acos() - nu * (1.0 - nu * nu).sqrt());
                let found = transfer.values()[[points / 2, points / 2 + 7]];
                assert!(obstruction > 0.0 || (found - disc).abs() < tolerance);
                // By centres, it is worse.
                let step = aperture.step();
                let coarse = Aperture::new(&pupil, &[], samples, step, Edges::Centre).unwrap();
                assert!(coarse.light().iter().all(|&light| light == 0.0 || light == 1.0));
                assert!((coarse.area() / aperture.area() - 1.0).abs() < 0.02);
            }
        }
    }

    // Sum small pupils directly
    #[test]
    fn lopsided_pupils_are_summed() {
        for (samples, points) in [(6, 11), (6, 12), (7, 13), (7, 16)] {
            let light = Array2::from_shape_fn((samples, samples), |(j, i)| {
                ((3 * j + 5 * i * i + 1) % 7) as f64 / 6.0
            });
            let aperture = Aperture::from_light(light.clone(), 0.25).unwrap();
            let transfer = aperture.transfer(points).unwrap();
            let middle = (points / 2) as isize;
            for ((j, i), &found) in transfer.values().indexed_iter() {
                let [v, u] = [j, i].map(|k| k as isize - middle);
                let pair = |((y, x), &here): ((usize, usize), &f64)| {
                    let there = [y.checked_add_signed(v)?, x.checked_add_signed(u)?];
                    Some(here * light.get(there)?)
                };
                let sum: f64 = light.indexed_iter().filter_map(pair).sum();
                let wanted = if (v, u) == (0, 0) { 1.0 } else { sum / light.sum() };
                assert!((found - wanted).abs() < 1e-14, "{samples} {points} [{v}, {u}]");
            }
            assert_eq!(transfer.displacement([points / 2, points / 2 + 1]), [0.25, 0.0]);
        }
    }

    // Count what vanes cover
    #[test]
    fn vanes_cover_their_area() {
        let pupil = Pupil::new(8.0, 0.25).unwrap();
        let vane = Vane { width: 0.3, angle: 0.4, offset: 0.0 };
        let clear = Aperture::across(&pupil, &[], 100).unwrap();
        let held = Aperture::across(&pupil, &[vane], 100).unwrap();
        let lost = clear.area() - held.area();
        assert!((lost / (0.3 * 3.0) - 1.0).abs() < 2e-3, "{lost}");
        assert!(held.light()[[62, 80]] < 0.5 && held.light()[[37, 19]] == 1.0);
        for (centre, side) in [([0.3, 0.2], 0.4), ([-0.05, 0.03], 0.2), ([1.1, 0.3], 0.5)] {
            let at = |k: usize| (k as f64 + 0.5) / 300.0 - 0.5;
            let points = (0..90_000).filter(|k| {
                vane.hides([centre[0] + side * at(k % 300), centre[1] + side * at(k / 300)])
            });
            let counted = points.count() as f64 / 90e3;
            assert!((vane.covers(centre, side) - counted).abs() < 2e-3, "{centre:?}");
        }
        // One along x that passes above the axis.
        let outside = Vane { width: 0.2, angle: 0.0, offset: 0.5 };
        let found = Aperture::new(&pupil, &[outside], 80, 0.1, Edges::Area).unwrap();
        for (place, light) in [([45, 70], 0.0), ([35, 70], 1.0), ([45, 10], 1.0), ([40, 70], 1.0)] {
            assert!((found.light()[place] - light).abs() < 1e-12, "{place:?}");
        }
        let by_centre = Aperture::new(&pupil, &[vane], 81, 0.1, Edges::Centre).unwrap();
        let dark = by_centre.light()[[40 + 8, 40 + 19]];
        assert_eq!((dark, by_centre.light()[[40 - 8, 40 - 19]]), (0.0, 1.0));
    }

    // Keep the light of other squares
    #[test]
    fn pupils_keep_their_light_on_other_squares() {
        let vane = Vane { width: 0.4, angle: 0.9, offset: 0.3 };
        let pupil = Pupil::new(8.0, 0.25).unwrap();
        let fine = Aperture::across(&pupil, &[vane], 240).unwrap();
        for samples in [60, 77, 240, 311] {
            let again = fine.resampled(samples, 8.0 / samples as f64).unwrap();
            assert!((again.area() / fine.area() - 1.0).abs() < 1e-12, "{samples}");
            let direct = Aperture::across(&pupil, &[vane], samples).unwrap();
            let gap = (again.light() - direct.light()).mapv(f64::abs);
            assert!(gap.mean().unwrap() < 0.012, "{samples}: {}", gap.mean().unwrap());
        }
        // A wider grid has a dark rim; one that misses the light is refused.
        let wide = fine.resampled(100, 0.1).unwrap();
        assert!((wide.area() / fine.area() - 1.0).abs() < 1e-12 && wide.light()[[50, 5]] == 0.0);
        assert_eq!(fine.resampled(3, 0.01).unwrap_err().quantity, "pupil");
        assert!(fine.resampled(0, 0.1).is_err() && fine.resampled(9, f64::NAN).is_err());
    }

    // Pass through known wavefronts
    #[test]
    fn wavefronts_take_their_share() {
        let pupil = Pupil::new(4.0, 0.2).unwrap();
        let telescope = Aperture::across(&pupil, &[], 32).unwrap().transfer(64).unwrap();
        let tilted = telescope.on_grid(|[x, y]| 1e-15 * (x * x + 2.0 * y * y));
        let waves = [0.5e-6, 1e-6];
        let found = telescope.through(&tilted, &waves).unwrap();
        let place = [32 + 3, 32 - 5];
        for (transfer, wave) in found.iter().zip(waves) {
            let phase = (2.0 * PI / wave).powi(2);
            let wanted = telescope.values()[place] * (-0.5 * phase * tilted[place]).exp();
            assert!((transfer.values()[place] - wanted).abs() < 1e-15);
            assert_eq!((transfer.wavelength(), transfer.step()), (wave, 0.125));
        }
        assert!(found[0].strehl() < found[1].strehl());
        let alone = telescope.alone(1e-6).unwrap();
        assert_eq!(alone.strehl(), 1.0);
        let with = alone.times(|[x, y]| {
            (-0.5 * (2.0 * PI / 1e-6f64).powi(2) * 1e-15 * (x * x + 2.0 * y * y)).exp()
        });
        assert!((with.strehl() - found[1].strehl()).abs() < 1e-14);
        let endless = TelescopeTransfer::unlimited(9, 0.1).unwrap();
        assert!(endless.values().iter().all(|&value| value == 1.0) && endless.points() == 9);
    }

    // Refuse pupils and wavefronts
    #[test]
    fn impossible_pupils_and_wavefronts_are_refused() {
        let pupil = Pupil::new(4.0, 0.2).unwrap();
        let name = |refused: Result<Aperture, Invalid>| refused.unwrap_err().quantity;
        assert_eq!(name(Aperture::across(&pupil, &[], 0)), "samples");
        assert_eq!(name(Aperture::new(&pupil, &[], 32, 0.1, Edges::Area)), "step");
        assert_eq!(
            name(Aperture::across(&pupil, &[Vane { width: -0.1, angle: 0.0, offset: 0.0 }], 8)),
            "width"
        );
        let no_angle = Vane { width: 0.1, angle: f64::NAN, offset: 0.0 };
        assert_eq!(name(Aperture::across(&pupil, &[no_angle], 8)), "angle");
        assert_eq!(name(Aperture::from_light(Array2::ones((3, 4)), 0.1)), "pupil");
        assert_eq!(name(Aperture::from_light(Array2::zeros((3, 3)), 0.1)), "pupil");
        assert_eq!(name(Aperture::from_light(ndarray::arr2(&[[f64::NAN]]), 0.1)), "pupil");
        let aperture = Aperture::across(&pupil, &[], 16).unwrap();
        assert_eq!(aperture.transfer(30).unwrap_err().quantity, "points");
        let telescope = aperture.transfer(31).unwrap();
        let mut structure = Array2::zeros((31, 31));
        assert_eq!(telescope.through(&structure, &[0.0]).unwrap_err().quantity, "wavelength");
        structure[[3, 4]] = f64::INFINITY;
        let refused = telescope.through(&structure, &[1e-6]).unwrap_err();
        assert_eq!(refused.value, "inf at (3, 4)");
        assert!(telescope.through(&Array2::zeros((32, 32)), &[1e-6]).is_err());
        assert!(telescope.alone(-1e-6).is_err());
        assert!(TelescopeTransfer::unlimited(0, 0.1).is_err());
    }

    // Read pupils written as images
    #[test]
    #[cfg(feature = "files")]
    fn pupils_come_from_files() {
        use crate::{data::DataSet, files::Format, numerics::Precision};
        let file = tempfile::Builder::new().suffix(".fits").tempfile().unwrap();
        for size in [1.0, 3.0] {
            let light = ndarray::arr2(&[[0.0, 0.5, 0.0], [1.0, 0.25, 1.0], [0.0, size, 0.0]]);
            let mut arrays = DataSet::default();
            arrays.add_result("pupil", light.view());
            arrays.write(file.reopen().unwrap(), Format::Fits, Precision::F64).unwrap();
            let found = Aperture::read(file.path(), 6.0);
            if size == 1.0 {
                let found = found.unwrap();
                assert_eq!((found.light(), found.step()), (&light, 2.0));
            } else {
                let message = found.unwrap_err().to_string();
                assert!(message.contains("3 at (2, 1)") && message.contains(".fits"), "{message}");
            }
        }
    }
}
