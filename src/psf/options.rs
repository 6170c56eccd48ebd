// Tangled from book/src/image-options.md: edit there, or here and run cargo tangle stitch.
//! Camera options, and images from structure functions.

// Imports of camera options
use crate::correction::fitting::WavefrontSpectrum;
#[cfg(feature = "files")]
use crate::error::finite;
use crate::error::{Error, Invalid, accept, length, not_negative, positive};
#[cfg(feature = "files")]
use crate::files::spanned_toml::Table;
#[cfg(feature = "files")]
use crate::model::SystemFile;
use crate::model::atmosphere::Atmosphere;
use crate::model::lenslet_array::Pupil;
#[cfg(feature = "factorise")]
use crate::plausible::Plausible;
use crate::plausible::{ENSQUARED, EXTRA, IMAGE_PIXEL, JITTER, WAVELENGTH};
use crate::psf::optical_transfer::{Aperture, Edges, TelescopeTransfer, Vane};
use crate::psf::point_spread::{PointSpread, Width};
use crate::units::ARCSEC;
use ndarray::Array2;
use rayon::prelude::*;
use std::f64::consts::PI;

// Error terms and structure-function models
/// A term of the residual wavefront error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum ErrorTerm {
    /// Tomographic error: the error of the reconstructor within what the mirror can correct, noise and aliasing included.
    Tomography,
    /// Aliasing error, and with it the noise, both separated from the rest of the tomographic error.
    Aliasing,
    /// Anisoplanatism: the residual beyond that in the directions for which the mirror is optimised, separated from the rest of
    /// the tomographic error.
    Anisoplanatism,
    /// Fitting error: what the mirror cannot form.
    Fitting,
    /// Servo-lag error.
    #[cfg_attr(feature = "serde", serde(rename = "bandwidth"))]
    ServoLag,
}

impl ErrorTerm {
    /// All terms, by their names in a system file.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("tomography", Self::Tomography),
        ("fitting", Self::Fitting),
        ("bandwidth", Self::ServoLag),
        ("aliasing", Self::Aliasing),
        ("anisoplanatism", Self::Anisoplanatism),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, term)| *term == self).map_or("", |(name, _)| name)
    }
}

/// Model of the structure function of the tomographic error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum StructureFunctionModel {
    /// The exact mean over the pupil, by modes.
    #[default]
    Exact,
    /// The stationary approximation of other codes: covariances depend on the separation of actuators alone.
    Stationary,
}

impl StructureFunctionModel {
    /// Both models, by their names in a system file.
    pub const NAMES: [(&'static str, Self); 2] =
        [("exact", Self::Exact), ("stationary", Self::Stationary)];
}

// Options of the camera
/// Options of the camera: wavelengths, pixels, and the errors that enter its images.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct CameraOptions {
    /// Wavelengths of the images \[m\].
    pub wavelengths: Vec<f64>,
    /// Side of a pixel \[rad\]; `None` for λ/2D at each wavelength.
    pub pixel: Option<f64>,
    /// Pixels across.
    pub pixels: usize,
    /// The errors that enter; `None` for all that the method can compute.
    pub terms: Option<Vec<ErrorTerm>>,
    /// Model of the structure function of the tomographic error.
    pub structure: StructureFunctionModel,
    /// Rms of an extra error \[m\].
    pub extra: f64,
    /// Rms image motion along each axis \[rad\].
    pub jitter: f64,
    /// Sides of the boxes in which ensquared energy is computed \[rad\].
    pub ensquared: Vec<f64>,
    /// Vanes of the telescope's spider.
    pub vanes: Vec<Vane>,
    /// Transmission of the pupil, in place of the telescope's disc, central obstruction and vanes.
    pub mask: Option<Aperture>,
}

impl Default for CameraOptions {
    fn default() -> Self {
        Self {
            wavelengths: vec![1.65e-6],
            pixel: None,
            pixels: 256,
            terms: None,
            structure: StructureFunctionModel::Exact,
            extra: 0.0,
            jitter: 0.0,
            ensquared: Vec::new(),
            vanes: Vec::new(),
            mask: None,
        }
    }
}

// Options of the camera one by one
impl CameraOptions {
    /// Sets the wavelengths of the images \[m\].
    pub fn wavelengths(self, wavelengths: Vec<f64>) -> Self {
        Self { wavelengths, ..self }
    }

    /// Sets the side of a pixel \[rad\], in place of λ/2D at each wavelength.
    pub fn pixel(self, pixel: f64) -> Self {
        Self { pixel: Some(pixel), ..self }
    }

    /// Sets the pixels across.
    pub fn pixels(self, pixels: usize) -> Self {
        Self { pixels, ..self }
    }

    /// Sets the errors that enter, in place of all that the method can compute.
    pub fn terms(self, terms: impl IntoIterator<Item = ErrorTerm>) -> Self {
        Self { terms: Some(terms.into_iter().collect()), ..self }
    }

    /// Sets the model of the structure function of the tomographic error.
    pub fn structure(self, structure: StructureFunctionModel) -> Self {
        Self { structure, ..self }
    }

    // Errors and pupil of a camera
    // Errors, boxes and pupil of a camera
    /// Sets the rms of an extra error \[m\].
    pub fn extra(self, extra: f64) -> Self {
        Self { extra, ..self }
    }

    /// Sets the rms image motion along each axis \[rad\].
    pub fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// Sets the sides of the boxes in which ensquared energy is computed \[rad\].
    pub fn ensquared(self, ensquared: Vec<f64>) -> Self {
        Self { ensquared, ..self }
    }

    /// Sets the vanes of the telescope's spider.
    pub fn vanes(self, vanes: Vec<Vane>) -> Self {
        Self { vanes, ..self }
    }

    /// Sets the transmission of the pupil, in place of the telescope's disc, central obstruction and vanes.
    pub fn mask(self, mask: Aperture) -> Self {
        Self { mask: Some(mask), ..self }
    }
}

// Read the table of the image
#[cfg(feature = "files")]
impl CameraOptions {
    /// Reads the table `[image]` of a system file, and spiders and the image of the pupil of its `[telescope]`.
    ///
    /// # Errors
    /// The first line of the tables that makes no sense.
    ///
    /// ```
    /// use lenslet::{model::SystemFile, psf::CameraOptions, units::ARCSEC};
    /// let read = |text: &str| CameraOptions::from_system_file(&SystemFile::from_toml(text, "s.toml")?);
    /// let options = read("image = { pixel = 4.0, wavelengths = [1.25e-6, 2.2e-6] }")?;
    /// assert_eq!((options.pixel, options.wavelengths.len()), (Some(4e-3 * ARCSEC), 2));
    /// let wrong = read("[image]\nwavelengths = [1e-6, -2e-6]").unwrap_err();
    /// assert!(wrong.to_string().starts_with("s.toml:2: image.wavelengths[1] = -2e-6: expected a length"));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn from_system_file(file: &SystemFile) -> Result<Self, Error> {
        let root = file.root()?;
        let mut options = Self::default();
        if let Some(telescope) = root.table("telescope")? {
            (options.vanes, options.mask) = (spiders(&telescope)?, mask(&telescope)?);
        }
        let Some(table) = root.table("image")? else { return Ok(options) };
        let mas = |x: f64| 1e-3 * ARCSEC * x;
        if let Some(wavelengths) = table.optional("wavelengths", "a list of lengths in metres")? {
            options.wavelengths = wavelengths;
        }
        options.pixel = table.optional("pixel", "an angle in mas")?.map(mas);
        options.pixels = table.optional("pixels", "a whole number")?.unwrap_or(options.pixels);
        options.terms = terms(&table)?;
        options.structure =
            table.choice("structure", &StructureFunctionModel::NAMES)?.unwrap_or_default();
        options.extra = 1e-9 * table.optional("extra", "nanometres rms")?.unwrap_or(0.0);
        options.jitter = mas(table.optional("jitter", "an angle in mas rms")?.unwrap_or(0.0));
        let sides: Option<Vec<f64>> = table.optional("ensquared", "a list of angles in mas")?;
        options.ensquared = sides.unwrap_or_default().into_iter().map(mas).collect();
        table.check(options.check())?;
        Ok(options)
    }
}

// Read the error terms of images
/// The terms that a table names, if it does.
#[cfg(feature = "files")]
fn terms(table: &Table) -> Result<Option<Vec<ErrorTerm>>, Error> {
    let Some(names) = table.optional::<Vec<&str>>("terms", "a list of names")? else {
        return Ok(None);
    };
    let mut terms = Vec::new();
    for (k, name) in names.into_iter().enumerate() {
        let known = ErrorTerm::NAMES.iter().find(|(known, _)| *known == name);
        let Some(&(_, term)) = known.filter(|(_, term)| !terms.contains(term)) else {
            let all = ErrorTerm::NAMES.map(|(name, _)| format!("{name:?}")).join(" or ");
            let refused = Invalid::new(format!("terms[{k}]"), name, format!("{all}, each once"));
            return Err(table.refuse(refused).into());
        };
        terms.push(term);
    }
    Ok(Some(terms))
}

// Check options of the camera
/// The widest pixel, rad.
const WIDEST: f64 = PI / 180.0;

impl CameraOptions {
    /// Refuses options that make no sense.
    ///
    /// # Errors
    /// `Invalid` with the key of the first such option.
    pub fn check(&self) -> Result<(), Invalid> {
        accept(!self.wavelengths.is_empty(), "wavelengths", &self.wavelengths, "at least one")?;
        for (k, &wavelength) in self.wavelengths.iter().enumerate() {
            let key = format!("wavelengths[{k}]");
            WAVELENGTH.check(&key, length(&key, wavelength)?)?;
        }
        let part =
            |term: &ErrorTerm| [ErrorTerm::Aliasing, ErrorTerm::Anisoplanatism].contains(term);
        let terms = self.terms.as_deref().unwrap_or_default();
        if let Some(k) = terms.iter().position(part) {
            let expected = "\"tomography\" beside it, which it is a part of";
            let whole = terms.contains(&ErrorTerm::Tomography);
            accept(whole, &format!("terms[{k}]"), terms[k].name(), expected)?;
        }
        self.pixel.map_or(Ok(0.0), |pixel| positive("pixel", pixel))?;
        if let Some(pixel) = self.pixel.filter(|pixel| *pixel > WIDEST) {
            let expected = "an angle in mas, at most that of a degree, 3.6e6";
            return Err(Invalid::new("pixel", 1e3 * pixel / ARCSEC, expected));
        }
        self.pixel.map_or(Ok(0.0), |pixel| IMAGE_PIXEL.check("pixel", pixel))?;
        let expected = "a whole number from 1 to 16384";
        accept((1..=16384).contains(&self.pixels), "pixels", self.pixels, expected)?;
        EXTRA.check("extra", not_negative("extra", self.extra)?)?;
        JITTER.check("jitter", not_negative("jitter", self.jitter)?)?;
        for (k, &side) in self.ensquared.iter().enumerate() {
            let key = format!("ensquared[{k}]");
            ENSQUARED.check(&key, positive(&key, side)?)?;
        }
        self.vanes.iter().try_for_each(Vane::check)
    }

    // Compare pixels with the diffraction
    /// Refuses pixels and boxes that were probably meant in another unit, as they do not fit the diffraction of a telescope of this
    /// `diameter` \[m\].
    ///
    /// # Errors
    /// `Invalid` with the key in the file: `image.pixel`, `image.ensquared[0]`.
    #[cfg(feature = "factorise")]
    pub(crate) fn check_diffraction(&self, diameter: f64) -> Result<(), Invalid> {
        let width = |wavelength: f64| wavelength / diameter / IMAGE_PIXEL.unit;
        let widths = self.wavelengths.iter().map(|wavelength| width(*wavelength));
        let [least, most] = widths
            .fold([f64::INFINITY, 0.0], |[least, most]: [f64; 2], x| [least.min(x), most.max(x)]);
        if let Some(pixel) = self.pixel {
            let accepted = [least / 200.0, (1e3 * most).max(IMAGE_PIXEL.usual[1])];
            let usual = [accepted[0].max(IMAGE_PIXEL.usual[0]), IMAGE_PIXEL.usual[1]];
            Plausible { accepted, usual, ..IMAGE_PIXEL }.check("image.pixel", pixel)?;
        }
        for (k, &side) in self.ensquared.iter().enumerate() {
            let accepted = [least / 10.0, IMAGE_PIXEL.accepted[1]];
            let usual = [accepted[0].max(ENSQUARED.usual[0]), ENSQUARED.usual[1]];
            let boxes = Plausible { accepted, usual, ..ENSQUARED };
            boxes.check(&format!("image.ensquared[{k}]"), side)?;
        }
        Ok(())
    }

    /// Side of a pixel \[rad\] at a `wavelength` \[m\] in a telescope of this `diameter` \[m\].
    pub fn pixel_at(&self, wavelength: f64, diameter: f64) -> f64 {
        self.pixel.unwrap_or(0.5 * wavelength / diameter)
    }
}

// Expose for all wavelengths
// Exposure with its width and boxes
/// An image, with its width and ensquared energies.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Exposure {
    /// The image of a star.
    pub image: PointSpread,
    /// The image of a star with a perfect wavefront.
    pub perfect: PointSpread,
    /// Its full widths at half maximum; `None` where it is wider than half the field.
    pub width: Option<Width>,
    /// The fraction of the light in each of the boxes of the options.
    pub ensquared: Vec<f64>,
}

impl CameraOptions {
    // Example of a camera's exposure
    /// The images of a star through a telescope of this `diameter` \[m\] and a wavefront with this structure function \[m²\], to which jitter and
    /// the extra error are added; one for each wavelength.
    ///
    /// # Errors
    /// `Invalid` if the structure function has another grid, or pixels or boxes exceed the field that the sampling of the
    /// pupil allows.
    ///
    /// ```
    /// use lenslet::{psf::{Aperture, CameraOptions}, model::Pupil, units::ARCSEC};
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.14)?, &[], 128)?.transfer(256)?;
    /// let options = CameraOptions::default().pixels(33).ensquared(vec![0.08 * ARCSEC]);
    /// let seen = options.expose(&telescope, &telescope.extra(150e-9, -2.0)?, 8.0)?.remove(0);
    /// assert!(seen.image.strehl < 0.8 && seen.perfect.strehl == 1.0);
    /// assert!(seen.ensquared[0] < 0.8 && seen.width.is_some());
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    // Exposures of a worked case
    ///
    /// The worked case of the chapter:
    ///
    /// ```
    /// use lenslet::{model::Pupil, psf::{Aperture, CameraOptions}, units::ARCSEC};
    /// let telescope = Aperture::across(&Pupil::new(8.0, 0.0)?, &[], 128)?.transfer(256)?;
    /// let fitting = telescope.on_grid(|rho| if rho == [0.0, 0.0] { 0.0 } else { 2.0 * 104.4e-9f64.powi(2) });
    /// let options = CameraOptions::default().wavelengths(vec![0.64e-6, 1.25e-6, 2.2e-6]).jitter(3e-3 * ARCSEC).pixels(33);
    /// let exposures = options.expose(&telescope, &fitting, 8.0)?;
    /// let expected = [(8.25, 2.1, 0.297), (16.1, 4.1, 0.728), (28.4, 7.3, 0.902)];
    /// for (exposure, (pixel, field, strehl)) in exposures.iter().zip(expected) {
    ///     let found = exposure.image.pixel / ARCSEC;
    ///     assert!((1e3 * found - pixel).abs() < 0.05 && (256.0 * found - field).abs() < 0.05);
    ///     assert!((exposure.image.strehl - strehl).abs() < 0.01, "{} {strehl}", exposure.image.strehl);
    /// }
    /// let total = 104.4f64.hypot(41.1);
    /// assert!((total - 112.2).abs() < 0.05);
    /// assert!((2.0 * std::f64::consts::PI * total / 640.0 - 1.102).abs() < 1e-3);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn expose(
        &self,
        telescope: &TelescopeTransfer,
        structure: &Array2<f64>,
        diameter: f64,
    ) -> Result<Vec<Exposure>, Error> {
        self.check()?;
        telescope.check_structure(structure)?;
        let mut whole = structure + &telescope.jitter(self.jitter)?;
        if self.extra > 0.0 {
            whole += &telescope.extra(self.extra, EXPONENT)?;
        }
        // Image at one wavelength
        let each = |otf: crate::psf::OpticalTransfer| {
            let pixel = self.pixel_at(otf.wavelength(), length("diameter", diameter)?);
            Ok(Exposure {
                image: otf.point_spread(pixel, self.pixels)?,
                perfect: telescope.alone(otf.wavelength())?.point_spread(pixel, self.pixels)?,
                width: otf.width().ok(),
                ensquared: otf.ensquared(&self.ensquared)?,
            })
        };
        telescope.through(&whole, &self.wavelengths)?.into_iter().map(each).collect()
    }
}

/// The exponent of the spectrum of the extra error.
pub(crate) const EXPONENT: f64 = -2.0;

// Read spiders and pupil images
/// Rejects spiders and an image of the pupil that no telescope has, in a system file.
///
/// # Errors
/// The line of `[telescope]` that makes no sense.
#[cfg(feature = "command")]
pub(crate) fn check_telescope(file: &SystemFile) -> Result<(), Error> {
    let Some(telescope) = file.root()?.table("telescope")? else {
        return Ok(());
    };
    spiders(&telescope)?;
    mask(&telescope).map(drop)
}

/// The vanes of a telescope's spider.
#[cfg(feature = "files")]
fn spiders(telescope: &Table) -> Result<Vec<Vane>, Error> {
    let Some(table) = telescope.table("spiders")? else {
        return Ok(Vec::new());
    };
    let width = table.required("width", "a width in metres")?;
    let angles: Vec<f64> = table.required("angles", "a list of directions in degrees")?;
    let few = angles.len() <= MOST_VANES;
    table.check(accept(few, "angles", angles.len(), "at most 100 directions"))?;
    let offset = table.optional("offset", "a length in metres")?.unwrap_or(0.0);
    table.check(accept(!angles.is_empty(), "angles", &angles, "at least one direction"))?;
    let vane = |(k, angle): (usize, &f64)| {
        let angle = finite(&format!("angles[{k}]"), *angle)?.to_radians();
        let vane = Vane { width, angle, offset };
        vane.check().map(|()| vane)
    };
    let vanes = angles.iter().enumerate().map(vane).collect::<Result<Vec<_>, Invalid>>();
    let vanes = table.check(vanes)?;
    let diameter = telescope.required("diameter", "a length in metres")?;
    let obstruction = telescope.optional("obstruction", "a ratio of diameters")?.unwrap_or(0.0);
    let pupil = telescope.check(Pupil::new(diameter, obstruction))?;
    let expected = format!(
        "a width in metres that leaves light in the pupil of {diameter} m: less than {diameter}, and vanes that do not cover it all. A width \
         in millimetres is 1000 times too large"
    );
    let lit = width < diameter && lit_share(&pupil, &vanes) > LEAST_LIGHT;
    table.check(accept(lit, "width", width, &expected))?;
    Ok(vanes)
}

// Light that a spider leaves
/// The most vanes of a spider.
#[cfg(feature = "files")]
const MOST_VANES: usize = 100;

/// The least share of a pupil that its spider leaves lit.
#[cfg(feature = "files")]
const LEAST_LIGHT: f64 = 1e-3;

/// The share of a pupil's area that vanes leave lit, by counting points of equal areas.
#[cfg(feature = "files")]
fn lit_share(pupil: &Pupil, vanes: &[Vane]) -> f64 {
    const POINTS: usize = 20_000;
    let (outer, golden) = (0.5 * pupil.diameter(), PI * (3.0 - 5f64.sqrt()));
    let inner = pupil.obstruction().powi(2);
    let is_lit = |k: &usize| {
        let share = (*k as f64 + 0.5) / POINTS as f64;
        let radius = outer * (inner + (1.0 - inner) * share).sqrt();
        let (sine, cosine) = (golden * *k as f64).sin_cos();
        !vanes.iter().any(|vane| vane.hides([radius * cosine, radius * sine]))
    };
    (0..POINTS).filter(is_lit).count() as f64 / POINTS as f64
}

/// The image of a telescope's pupil.
#[cfg(feature = "files")]
fn mask(telescope: &Table) -> Result<Option<Aperture>, Error> {
    let expected = "the name of a file with an image of the pupil";
    let Some(file) = telescope.optional::<&str>("pupil", expected)? else { return Ok(None) };
    let refuse = |expected: String| telescope.refuse(Invalid::new("pupil", file, expected));
    if telescope.has("spiders") {
        return Err(refuse("no image, where there are spiders".into()).into());
    }
    let diameter = telescope.required("diameter", "a length in metres")?;
    let read = Aperture::read(&telescope.folder().join(file), diameter);
    Ok(Some(read.map_err(|error| refuse(format!("{expected}, and {error}")))?))
}

// Pupil of the camera on a grid
impl CameraOptions {
    /// The pupil of the camera on a grid of `samples` × `samples` squares of side `step` \[m\].
    ///
    /// # Errors
    /// As [`Aperture::new`] and [`Aperture::resampled`].
    pub fn aperture(&self, pupil: &Pupil, samples: usize, step: f64) -> Result<Aperture, Invalid> {
        match &self.mask {
            Some(mask) => mask.resampled(samples, step),
            None => Aperture::new(pupil, &self.vanes, samples, step, Edges::Area),
        }
    }
}

// Turbulence without correction
impl TelescopeTransfer {
    /// The structure function \[m²\] of the wavefront behind an atmosphere without correction. It is 0 where the telescope's
    /// transfer is.
    pub fn turbulence(&self, atmosphere: &Atmosphere) -> Array2<f64> {
        let air = WavefrontSpectrum::of(atmosphere);
        let row = |j: usize| -> Vec<f64> {
            let at = |i: usize| air.structure_function(self.step() * (j as f64).hypot(i as f64));
            (0..=j).map(at).collect()
        };
        let eighth: Vec<Vec<f64>> = (0..=self.reach).into_par_iter().map(row).collect();
        let middle = self.points() / 2;
        Array2::from_shape_fn(self.values().dim(), |(j, i)| {
            let (j, i) = (j.abs_diff(middle), i.abs_diff(middle));
            eighth.get(j.max(i)).map_or(0.0, |row| row[j.min(i)])
        })
    }
}

// Tests of camera options
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Layer, Pupil};
    use crate::psf::{Aperture, Budget};
    use crate::turbulence::phase::VonKarman;

    // Turbulence of all layers
    #[test]
    fn turbulence_is_that_of_all_layers() {
        let telescope = Aperture::across(&Pupil::new(4.0, 0.0).unwrap(), &[], 20).unwrap();
        let telescope = telescope.transfer(50).unwrap();
        let layers = vec![
            Layer::new(0.0, 0.5, 20.0),
            Layer::new(4e3, 0.2, 50.0),
            Layer::new(9e3, 0.3, 20.0),
        ];
        let air = Atmosphere::new(0.12, 0.6e-6, layers).unwrap();
        let found = telescope.turbulence(&air);
        let scale = (0.6e-6 / (2.0 * PI)).powi(2) * 0.12f64.powf(-5.0 / 3.0);
        for (u, v) in [(0, 0), (3, -7), (-11, 2), (19, 19)] {
            let r = 0.2 * f64::from(u).hypot(f64::from(v));
            let of = |outer: f64| VonKarman::new(outer).structure_function(r);
            let wanted = scale * (0.8 * of(20.0) + 0.2 * of(50.0));
            let place = [v, u].map(|k: i32| (25 + k) as usize);
            assert!((found[place] - wanted).abs() <= 1e-12 * wanted, "[{u}, {v}]");
        }
        assert_eq!(found[[25, 49]], 0.0);
    }

    #[test]
    fn given_errors_reach_the_image() {
        let telescope = Aperture::across(&Pupil::new(8.0, 0.2).unwrap(), &[], 48).unwrap();
        let telescope = telescope.transfer(96).unwrap();
        let mas = 1e-3 * ARCSEC;
        let options = CameraOptions {
            wavelengths: vec![1.2e-6, 2.2e-6],
            pixels: 24,
            extra: 60e-9,
            jitter: 4.0 * mas,
            ensquared: vec![50.0 * mas, 200.0 * mas],
            ..CameraOptions::default()
        };
        let nothing = Array2::zeros((96, 96));
        let exposures = options.expose(&telescope, &nothing, 8.0).unwrap();
        let (jitter, extra) =
            (telescope.jitter(4.0 * mas).unwrap(), telescope.extra(60e-9, -2.0).unwrap());
        let budget = Budget::of(&telescope, &[("jitter", &jitter), ("extra", &extra)]).unwrap();
        assert_eq!(exposures.len(), 2);
        for (exposure, &wavelength) in exposures.iter().zip(&options.wavelengths) {
            let marechal = budget.marechal(wavelength);
            assert!((exposure.image.strehl / marechal - 1.0).abs() < 0.03, "{wavelength}");
            assert_eq!(exposure.image.pixel, wavelength / 16.0);
            assert_eq!(exposure.image.values.dim(), (24, 24));
            assert!((exposure.perfect.values[[12, 12]] - 1.0).abs() < 1e-12);
            assert!(exposure.ensquared[0] < exposure.ensquared[1]);
            let width = exposure.width.unwrap().mean() * 8.0 / wavelength;
            assert!((0.9..1.2).contains(&width), "{width}");
        }
        assert!(options.expose(&telescope, &Array2::zeros((95, 95)), 8.0).is_err());
        let wide = CameraOptions { pixels: 16384, ..options };
        assert!(wide.expose(&telescope, &nothing, 8.0).is_err());
    }

    // Read good and bad tables of images
    #[test]
    #[cfg(feature = "files")]
    fn tables_of_images_are_read_or_refused() {
        let of =
            |text: &str| CameraOptions::from_system_file(&SystemFile::from_toml(text, "s.toml")?);
        let read = |lines: &str| of(&format!("[image]\n{lines}"));
        assert_eq!(of("").unwrap(), CameraOptions::default());
        assert_eq!(read("").unwrap(), CameraOptions::default());
        let mas = 1e-3 * ARCSEC;
        let all = "wavelengths = [1.65e-6, 0.64e-6]\npixel = 4.0\npixels = 128\nterms = ['fitting']\n\
                   structure = 'stationary'\nextra = 30\njitter = 2.5\nensquared = [80.0, 160]";
        let wanted = CameraOptions {
            wavelengths: vec![1.65e-6, 0.64e-6],
            pixel: Some(mas * 4.0),
            pixels: 128,
            terms: Some(vec![ErrorTerm::Fitting]),
            structure: StructureFunctionModel::Stationary,
            extra: 1e-9 * 30.0,
            jitter: mas * 2.5,
            ensquared: vec![mas * 80.0, mas * 160.0],
            ..CameraOptions::default()
        };
        assert_eq!(read(all).unwrap(), wanted);
        assert_eq!(ErrorTerm::ServoLag.name(), "bandwidth");
        let split = read("terms = ['aliasing', 'tomography']").unwrap().terms;
        assert_eq!(split, Some(vec![ErrorTerm::Aliasing, ErrorTerm::Tomography]));
        for (line, message) in [
            // Bad tables of images
            ("wavelengths = []", "s.toml:2: image.wavelengths = []: expected at least one"),
            (
                "pixels = 8\nwavelengths = [0]",
                "s.toml:3: image.wavelengths[0] = 0: expected a length",
            ),
            (
                "wavelengths = 1e-6",
                "s.toml:2: image.wavelengths = 1e-6: expected a list of lengths",
            ),
            ("wavelengths = [nan]", "s.toml:2: image.wavelengths[0] = nan: expected a length"),
            (
                "pixel = -4.0",
                "s.toml:2: image.pixel = -4.0: expected a finite number greater than 0",
            ),
            ("pixel = 'λ/2D'", "s.toml:2: image.pixel = 'λ/2D': expected an angle in mas"),
            ("pixels = 0", "s.toml:2: image.pixels = 0: expected a whole number from 1 to 16384"),
            ("pixels = 2.5", "s.toml:2: image.pixels = 2.5: expected a whole number"),
            (
                "terms = ['fitting', 'tomografy']",
                "s.toml:2: image.terms[1] = 'tomografy': expected",
            ),
            ("terms = ['fitting', 'fitting']", "s.toml:2: image.terms[1] = 'fitting': expected"),
            (
                "terms = ['fitting', 'aliasing']",
                "s.toml:2: image.terms[1] = 'aliasing': expected \"tomography\" beside it",
            ),
            (
                "terms = ['anisoplanatism']",
                "s.toml:2: image.terms[0] = 'anisoplanatism': expected \"tomography\" beside it",
            ),
            ("structure = 'best'", "s.toml:2: image.structure = 'best': expected \"exact\" or"),
            ("extra = -1", "s.toml:2: image.extra = -1: expected a finite number not less than 0"),
            ("jitter = inf", "s.toml:2: image.jitter = inf: expected a finite number"),
            ("ensquared = [80.0, 0]", "s.toml:2: image.ensquared[1] = 0: expected a finite number"),
            ("colour = 3", "s.toml:2: image.colour = 3: expected one of the keys wavelengths, "),
        ] {
            let refused = read(line).unwrap_err().to_string();
            assert!(refused.starts_with(message), "{refused}");
        }
    }

    // Read spiders and pupils of telescopes
    #[test]
    #[cfg(feature = "files")]
    fn spiders_and_pupils_are_read_or_refused() {
        let read = |lines: &str| {
            let telescope = format!("[telescope]\ndiameter = 4.0\nobstruction = 0.25\n{lines}");
            CameraOptions::from_system_file(&SystemFile::from_toml(&telescope, "s.toml")?)
        };
        let cross =
            read("spiders = { width = 0.05, angles = [0, 90, 180, 270], offset = 0.2 }").unwrap();
        assert_eq!(cross.vanes.len(), 4);
        let quarter = Vane { width: 0.05, angle: 90f64.to_radians(), offset: 0.2 };
        assert_eq!(cross.vanes[1], quarter);
        let pupil = Pupil::new(4.0, 0.25).unwrap();
        let open = CameraOptions::default().aperture(&pupil, 200, 0.02).unwrap();
        let held = cross.aperture(&pupil, 200, 0.02).unwrap();
        // Each vane from the hub to the rim, beside the axis.
        let length = (4.0f64 - 0.04).sqrt() - (0.25f64 - 0.04).sqrt();
        let lost = (open.area() - held.area()) / (4.0 * 0.05 * length);
        assert!((lost - 1.0).abs() < 0.01, "{lost}");
        assert!(
            held.light()[[100 + 80, 100 - 10]] < 0.6 && held.light()[[100 + 80, 100 + 10]] == 1.0
        );
        // An image of the pupil, beside the file.
        let folder = tempfile::tempdir().unwrap();
        let image = Array2::from_shape_fn((8, 8), |(j, i)| if i < 4 || j > 5 { 1.0 } else { 0.25 });
        ndarray_npy::write_npy(folder.path().join("mask.npy"), &image).unwrap();
        let name = folder.path().join("s.toml").display().to_string();
        let of = |line: &str| {
            let text = format!("telescope.diameter = 4.0\n{line}");
            CameraOptions::from_system_file(&SystemFile::from_toml(&text, &name)?)
        };
        let mask = of("telescope.pupil = 'mask.npy'").unwrap().aperture(&pupil, 16, 0.25).unwrap();
        assert_eq!(
            (mask.light()[[0, 7]], mask.light()[[0, 8]], mask.light()[[12, 8]]),
            (1.0, 0.25, 1.0)
        );
        let refused = of("telescope.pupil = 'nothing.npy'").unwrap_err().to_string();
        assert!(
            refused.contains(":2: telescope.pupil = 'nothing.npy': expected the name"),
            "{refused}"
        );
        // Refuse spiders and pupils without sense
        for (line, message) in [
            (
                "spiders = { angles = [0] }",
                "s.toml:4: telescope.spiders.width is missing: expected",
            ),
            (
                "spiders = { width = 0.05 }",
                "s.toml:4: telescope.spiders.angles is missing: expected",
            ),
            (
                "spiders = { width = -1, angles = [0] }",
                "s.toml:4: telescope.spiders.width = -1: expected",
            ),
            (
                "spiders = { width = 0.1, angles = [] }",
                "s.toml:4: telescope.spiders.angles = []: expected at least",
            ),
            (
                "spiders = { width = 0.1, angles = [nan] }",
                "s.toml:4: telescope.spiders.angles[0] = nan: expected",
            ),
            (
                "spiders = { width = 0.1, angles = 0 }",
                "s.toml:4: telescope.spiders.angles = 0: expected a list",
            ),
            (
                "spiders = { width = 0.1, angles = [0], offset = inf }",
                "s.toml:4: telescope.spiders.offset = inf",
            ),
            ("spiders = { wide = 0.1 }", "s.toml:4: telescope.spiders.wide = 0.1: expected"),
            ("spiders = 4", "s.toml:4: telescope.spiders = 4: expected"),
            (
                "spiders = { width = 0.1, angles = [0] }\npupil = 'm.npy'",
                "s.toml:5: telescope.pupil = 'm.npy': expected no image",
            ),
        ] {
            let refused = read(line).unwrap_err().to_string();
            assert!(refused.starts_with(message), "{refused}");
        }
    }
}
