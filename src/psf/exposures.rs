// Tangled from book/src/exposures.md: edit there, or here and run cargo tangle stitch.
//! Exposures of one covariance of strokes after the other.

mod gpu;

// Imports of exposures
use crate::device::Engine;
use crate::device::gpu::Buffer;
use crate::error::{Error, Invalid, accept};
use crate::linear::factorisation::gpu::read_rows;
use crate::psf::budget::Budget;
use crate::psf::optical_transfer::{Aperture, TelescopeTransfer};
use crate::psf::options::{CameraOptions, EXPONENT, Exposure, StructureFunctionModel};
use crate::psf::point_spread::{Frame, PointSpread, Quarter};
use crate::psf::structure_function::{Actuators, MeanStructure, Stationary};
use ndarray::{Array2, arr2};
use std::borrow::Cow;

// Covariance of strokes in either memory
/// A covariance of strokes, m², (a, a).
pub(crate) enum StrokeCovariance<'s> {
    /// In the memory of the host.
    OnHost(Cow<'s, Array2<f64>>),
    /// By rows in that of the engine's first device.
    OnDevice(Buffer<f64>),
}

impl StrokeCovariance<'_> {
    /// The covariance of the strokes of so many actuators, m², (a, a), in the memory of the host.
    fn here(&self, actuators: usize) -> Result<Cow<'_, Array2<f64>>, Error> {
        match self {
            Self::OnHost(strokes) => Ok(Cow::Borrowed(strokes)),
            Self::OnDevice(strokes) => Ok(Cow::Owned(read_rows(strokes.view(..), actuators, 1.0)?)),
        }
    }

    // Refuse the shape of strokes
    /// Refuses a covariance of other actuators, as far as its shape tells.
    fn check(&self, actuators: &Actuators) -> Result<(), Invalid> {
        match self {
            Self::OnHost(strokes) => actuators.check_shape(strokes.dim()),
            Self::OnDevice(strokes) => {
                let count = actuators.positions.len();
                let good = count > 0 && strokes.len() == count * count;
                let expected = format!("the square of {count} actuators");
                accept(good, "covariance of strokes", strokes.len(), &expected).map(drop)
            }
        }
    }
}

// Camera on any device
/// Camera on a device.
trait DeviceCamera {
    /// Begins with what all wavefronts have in common.
    fn begin(&mut self) -> Result<(), Error>;
    /// Adds errors of strokes, as if they were stationary.
    fn add_strokes(&mut self, strokes: &StrokeCovariance) -> Result<(), Error>;
    /// Adds an error by its structure function, (n, n), m².
    fn add_structure(&mut self, structure: &Array2<f64>) -> Result<(), Error>;
    /// The variance over the pupil of what was added last, m².
    fn variance(&self) -> Result<f64, Error>;
    /// The images of what was added.
    fn images(&mut self) -> Result<Vec<PointSpread>, Error>;
    /// The quarters of their transfer functions.
    fn quarters(&mut self) -> Result<Vec<(Quarter, Frame)>, Error>;
}

// Inputs of a camera on a device
/// Inputs of a camera on a device.
struct ExposureInputs<'p> {
    telescope: &'p TelescopeTransfer,
    /// The structure function that all wavefronts have in common, m².
    common: &'p Array2<f64>,
    structure: Option<&'p StructureFunctionSource<'p>>,
    /// Wavelengths \[m\] with the sides of their pixels \[rad\].
    exposures: &'p [(f64, f64)],
    /// Pixels across.
    pixels: usize,
}

// Source of structure functions
/// Source of the structure function of a mirror's errors.
enum StructureFunctionSource<'a> {
    Exact(Box<MeanStructure<'a>>),
    Stationary(Box<Stationary>),
}

// Exposures of a mirror
/// Long-exposure images of a star behind a mirror with stroke errors, for one covariance of strokes after the other.
// Example of exposures of strokes
///
/// On an engine with devices, the first of them computes.
///
/// ```
/// use lenslet::{device::Engine, model::Pupil};
/// use lenslet::psf::{Actuators, Aperture, Exposures, CameraOptions, StructureFunctionModel};
/// let aperture = Aperture::across(&Pupil::new(4.0, 0.0)?, &[], 64)?;
/// let positions: Vec<_> = (0..121).map(|k| [(k % 11) as f64 - 5.0, (k / 11) as f64 - 5.0].map(|x| 0.4 * x)).collect();
/// let gauss = |[x, y]: [f64; 2]| (-(x * x + y * y) / 0.1).exp();
/// let actuators = Actuators { positions: &positions, pitch: 0.4, influence: &gauss };
/// let image = CameraOptions::default().pixels(32).structure(StructureFunctionModel::Stationary);
/// let mut exposures = Exposures::new(actuators, &aperture, &image, 4.0, &Engine::default())?;
/// // Strokes without errors, and with independent errors of 80 nm rms
/// let quiet = exposures.images(&ndarray::Array2::zeros((121, 121)))?;
/// let noisy = exposures.images(&(ndarray::Array2::eye(121) * 6.4e-15))?;
/// assert!((quiet[0].strehl - 1.0).abs() < 1e-12 && noisy[0].strehl < 0.97);
/// assert_eq!(noisy[0].values.dim(), (32, 32));
/// # Ok::<(), lenslet::Error>(())
/// ```
// Exposures of several causes in numbers
///
/// The worked case of the chapter:
///
/// ```
/// use lenslet::{device::Engine, model::Pupil};
/// use lenslet::psf::{Actuators, Aperture, CameraOptions, Exposures, StructureFunctionModel};
/// use ndarray::Array2;
/// let aperture = Aperture::across(&Pupil::new(4.0, 0.0)?, &[], 64)?;
/// let positions: Vec<_> = (0..121).map(|k| [(k % 11) as f64 - 5.0, (k / 11) as f64 - 5.0].map(|x| 0.4 * x)).collect();
/// let gauss = |[x, y]: [f64; 2]| (-(x * x + y * y) / 0.1).exp();
/// let actuators = Actuators { positions: &positions, pitch: 0.4, influence: &gauss };
/// let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 2e-3, "{found} {expected}");
/// assert_eq!((121 * 121, 21 * 21), (14_641, 441));
/// let strokes = Array2::eye(121) * 6.4e-15;
/// let telescope = aperture.transfer(128)?;
/// near(1e9 * telescope.variance(&actuators.stationary(&strokes, &telescope)?)?.sqrt(), 77.5);
/// near(std::f64::consts::PI * 0.05 / 0.16, 0.982);
/// near(80.0 * 0.982f64.sqrt(), 79.3);
/// // A jitter of 60 nm rms over a disc of 4 m
/// for (jitter, size, strehl) in [(0.0, 1.0, 0.917), (0.0, 2.0, 0.840), (60e-9 * 8f64.sqrt() / 4.0, 1.0, 0.870)] {
///     let image = CameraOptions::default().pixels(32).structure(StructureFunctionModel::Stationary).jitter(jitter);
///     let mut exposures = Exposures::new(actuators, &aperture, &image, 4.0, &Engine::default())?;
///     near(exposures.images(&(size * &strokes))?[0].strehl, strehl);
/// }
/// near((-(2.0 * std::f64::consts::PI * 60.0 / 1650.0f64).powi(2)).exp(), 0.949);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub struct Exposures<'a> {
    image: CameraOptions,
    telescope: TelescopeTransfer,
    diameter: f64,
    actuators: Option<Actuators<'a>>,
    structure: Option<StructureFunctionSource<'a>>,
    common: Array2<f64>,
    perfect: Vec<PointSpread>,
    there: Option<Box<dyn DeviceCamera + 'a>>,
}

// Prepare exposures of a mirror
impl<'a> Exposures<'a> {
    // Exposures of one mirror
    /// Exposures of a mirror's errors through an `aperture` of this `diameter` \[m\], on twice as many displacements as it has squares.
    ///
    /// # Errors
    /// `Invalid` if options are invalid, pixels exceed the field that the sampling of the pupil allows, actuators have no finite position or,
    /// for a stationary structure function, an irregular grid; errors of a device.
    pub fn new(
        actuators: Actuators<'a>,
        aperture: &'a Aperture,
        image: &CameraOptions,
        diameter: f64,
        engine: &Engine,
    ) -> Result<Self, Error> {
        let telescope = aperture.transfer(2 * aperture.light().nrows())?;
        let none = Array2::zeros(telescope.values().dim());
        Self::with(Some(actuators), (aperture, telescope), &none, (image, diameter), engine)
    }

    /// Exposures with a structure function \[m²\] that all wavefronts have in common, with a mirror or without one.
    pub(crate) fn with(
        actuators: Option<Actuators<'a>>,
        (aperture, telescope): (&'a Aperture, TelescopeTransfer),
        common: &Array2<f64>,
        (image, diameter): (&CameraOptions, f64),
        engine: &Engine,
    ) -> Result<Self, Error> {
        image.check()?;
        let mut common = common + &telescope.jitter(image.jitter)?;
        if image.extra > 0.0 {
            common += &telescope.extra(image.extra, EXPONENT)?;
        }
        let image = CameraOptions { extra: 0.0, jitter: 0.0, ..image.clone() };
        // Choose how structure functions are found
        let structure = |actuators: Actuators<'a>| {
            let count = actuators.positions.len();
            accept(count > 0, "positions", count, "at least one actuator")?;
            Ok::<_, Error>(match image.structure {
                StructureFunctionModel::Exact => {
                    let points = telescope.points();
                    StructureFunctionSource::Exact(Box::new(MeanStructure::new(
                        actuators, aperture, points, engine,
                    )?))
                }
                StructureFunctionModel::Stationary => StructureFunctionSource::Stationary(
                    Box::new(Stationary::new(actuators, &telescope)?),
                ),
            })
        };
        let structure = actuators.map(structure).transpose()?;
        // Expose a perfect wavefront
        let waves = image.wavelengths.iter();
        let pixels: Vec<(f64, f64)> =
            waves.map(|&wavelength| (wavelength, image.pixel_at(wavelength, diameter))).collect();
        let perfect = pixels.iter().map(|&(wavelength, pixel)| {
            telescope.alone(wavelength)?.point_spread(pixel, image.pixels)
        });
        let perfect = perfect.collect::<Result<Vec<_>, Invalid>>()?;
        // Camera of the engine's device
        let there = {
            let (telescope, common, structure) = (&telescope, &common, structure.as_ref());
            let posed = ExposureInputs {
                telescope,
                common,
                structure,
                exposures: &pixels,
                pixels: image.pixels,
            };
            posed.there(engine)?
        };
        Ok(Self { image, telescope, diameter, actuators, structure, common, perfect, there })
    }
}

// Expose errors of strokes
impl Exposures<'_> {
    // Exposures of one covariance
    /// The exposures of a covariance C_vv of `strokes` \[m²\], (a, a), one for each wavelength.
    ///
    /// # Errors
    /// `Invalid` if the covariance has another shape or is not finite, or boxes exceed the field that the sampling of the pupil
    /// allows; errors of a device.
    pub fn of(&mut self, strokes: &Array2<f64>) -> Result<Vec<Exposure>, Error> {
        let strokes = StrokeCovariance::OnHost(Cow::Borrowed(strokes));
        Ok(self.by_cause(&[("strokes", strokes)], true)?.1)
    }

    // Budget and exposures by causes
    /// The budget and the exposures of errors by their causes; unless `whole`, images contain only their central pixel.
    pub(crate) fn by_cause(
        &mut self,
        own: &[(&str, StrokeCovariance)],
        whole: bool,
    ) -> Result<(Budget, Vec<Exposure>), Error> {
        if self.there.is_some() {
            return self.expose_on_device(own, whole);
        }
        let structures = own.iter().map(|(name, strokes)| Ok((*name, self.structure(strokes)?)));
        let structures = structures.collect::<Result<Vec<_>, Error>>()?;
        let named: Vec<_> = structures.iter().map(|(name, structure)| (*name, structure)).collect();
        let budget = Budget::of(&self.telescope, &named)?;
        let sum = named.iter().fold(self.common.clone(), |sum, (_, structure)| sum + *structure);
        Ok((budget, self.expose_on_host(&sum, whole)?))
    }

    // Find a structure function on cores
    /// The structure function of errors of strokes, in the memory of the host.
    fn structure(&self, strokes: &StrokeCovariance) -> Result<Array2<f64>, Error> {
        let (Some(actuators), Some(structure)) = (&self.actuators, &self.structure) else {
            return Err(
                Invalid::new("covariance of strokes", "some", "none, without a mirror").into()
            );
        };
        strokes.check(actuators)?;
        let strokes = strokes.here(actuators.positions.len())?;
        match structure {
            StructureFunctionSource::Exact(means) => means.of(&strokes),
            StructureFunctionSource::Stationary(stationary) => {
                actuators.check(&strokes)?;
                Ok(stationary.of(&strokes))
            }
        }
    }

    // Expose by a device
    // Add strokes on a device
    /// Adds errors of strokes to what the device exposes.
    fn add_on_device(&mut self, strokes: &StrokeCovariance) -> Result<(), Error> {
        if let Some(StructureFunctionSource::Stationary(_)) = self.structure {
            self.actuators.as_ref().map_or(Ok(()), |actuators| strokes.check(actuators))?;
            return self.there.as_mut().map_or(Ok(()), |there| there.add_strokes(strokes));
        }
        let structure = self.structure(strokes)?;
        self.there.as_mut().map_or(Ok(()), |there| there.add_structure(&structure))
    }

    /// As on cores, by the device.
    fn expose_on_device(
        &mut self,
        own: &[(&str, StrokeCovariance)],
        whole: bool,
    ) -> Result<(Budget, Vec<Exposure>), Error> {
        let mut budget = Budget::default();
        self.there.as_mut().map_or(Ok(()), |there| there.begin())?;
        for (name, strokes) in own {
            self.add_on_device(strokes)?;
            let variance = self.there.as_ref().map_or(Ok(0.0), |there| there.variance())?;
            self.refuse_none(variance, strokes)?;
            budget = budget.with(name, variance)?;
        }
        self.read_from_device(whole).map(|exposures| (budget, exposures))
    }

    // Exposures read from a device
    /// The exposures of what the device has added; where not `whole`, images have their middle alone.
    fn read_from_device(&mut self, whole: bool) -> Result<Vec<Exposure>, Error> {
        let mut exposures = Vec::new();
        // Read exposures from quarters
        let Some(there) = self.there.as_mut() else { return Ok(exposures) };
        let quarters = there.quarters()?;
        let images = if whole { there.images()? } else { Vec::new() };
        let mut images = images.into_iter();
        for ((quarter, frame), perfect) in quarters.iter().zip(&self.perfect) {
            let middle = || {
                let sum = quarter.even.sum();
                let sums = [arr2(&[[sum]]), arr2(&[[0.0]])];
                Frame { pixels: 1, ..*frame }.image(&sums, sum / frame.perfect)
            };
            exposures.push(Exposure {
                image: images.next().unwrap_or_else(middle),
                perfect: of_perfect(perfect, whole),
                width: quarter.width().ok(),
                ensquared: quarter.ensquared(&self.image.ensquared)?,
            });
        }
        Ok(exposures)
    }

    // Find a value that is not finite
    /// Refuses strokes of which something became no number, with the place in their covariance.
    fn refuse_none(&self, number: f64, strokes: &StrokeCovariance) -> Result<(), Error> {
        if number.is_finite() {
            return Ok(());
        }
        if let Some(actuators) = &self.actuators {
            actuators.check(strokes.here(actuators.positions.len())?.as_ref())?;
        }
        let reason = "it is beyond the numbers of this precision".into();
        Err(Error::Failed { what: "the image of the strokes".into(), reason })
    }
}

// Middle of a perfect image
/// The image of a perfect wavefront, or its middle.
fn of_perfect(perfect: &PointSpread, whole: bool) -> PointSpread {
    match whole {
        true => perfect.clone(),
        false => PointSpread { values: arr2(&[[1.0]]), ..*perfect },
    }
}

// Expose a structure function
impl Exposures<'_> {
    /// The exposures of a wavefront with a structure function \[m²\] beside what all have in common; where not `whole`, images have their middle alone.
    pub(crate) fn of_structure(
        &mut self,
        structure: &Array2<f64>,
        whole: bool,
    ) -> Result<Vec<Exposure>, Error> {
        if let Some(there) = self.there.as_mut() {
            there.begin()?;
            there.add_structure(structure)?;
            return self.read_from_device(whole);
        }
        self.expose_on_host(&(structure + &self.common), whole)
    }

    // Expose a structure function on cores
    /// The exposures of a structure function by cores.
    fn expose_on_host(&self, structure: &Array2<f64>, whole: bool) -> Result<Vec<Exposure>, Error> {
        let pixels = if whole { self.image.pixels } else { 1 };
        let image = CameraOptions { pixels, ..self.image.clone() };
        let mut exposures = image.expose(&self.telescope, structure, self.diameter)?;
        let pairs = exposures.iter_mut().zip(&self.perfect);
        pairs.for_each(|(exposure, perfect)| exposure.perfect = of_perfect(perfect, whole));
        Ok(exposures)
    }
}

// Images without budgets and widths
impl Exposures<'_> {
    // Images of one covariance
    /// The images of a covariance C_vv of `strokes` \[m²\], (a, a), one for each wavelength, without widths and energies.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn images(&mut self, strokes: &Array2<f64>) -> Result<Vec<PointSpread>, Error> {
        self.images_of(&StrokeCovariance::OnHost(Cow::Borrowed(strokes)))
    }

    /// The images of strokes whose covariance is on the host or on a device, one for each wavelength.
    pub(crate) fn images_of(
        &mut self,
        strokes: &StrokeCovariance,
    ) -> Result<Vec<PointSpread>, Error> {
        // Images of strokes by cores
        if self.there.is_none() {
            let whole = &self.common + &self.structure(strokes)?;
            let transfers = self.telescope.through(&whole, &self.image.wavelengths)?;
            let each = |transfer: &crate::psf::OpticalTransfer| {
                let pixel = self.image.pixel_at(transfer.wavelength(), self.diameter);
                Ok(transfer.point_spread(pixel, self.image.pixels)?)
            };
            return transfers.iter().map(each).collect();
        }
        self.there.as_mut().map_or(Ok(()), |there| there.begin())?;
        self.add_on_device(strokes)?;
        let images = self.there.as_mut().map_or(Ok(Vec::new()), |there| there.images())?;
        images.iter().try_for_each(|image| self.refuse_none(image.strehl, strokes))?;
        Ok(images)
    }
}

// Tests of exposures
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pupil;

    #[test]
    fn exposures_are_made_of_their_steps() {
        let aperture = Aperture::across(&Pupil::new(2.0, 0.2).unwrap(), &[], 20).unwrap();
        let telescope = aperture.transfer(40).unwrap();
        let place = |k: usize| [0.5 * (k % 5) as f64 - 0.9, 0.5 * (k / 5) as f64 - 1.0];
        let positions: Vec<[f64; 2]> = (0..25).map(place).collect();
        let influence = |[x, y]: [f64; 2]| (-(x * x + 1.2 * y * y) / 0.15).exp();
        let actuators = Actuators { positions: &positions, pitch: 0.5, influence: &influence };
        let strokes = Array2::from_shape_fn((25, 25), |(k, l)| {
            let rms = |k: usize| 8e-8 * (1.0 + 0.4 * positions[k][0]);
            rms(k) * rms(l) * (-0.3 * (k as f64 - l as f64).powi(2)).exp()
        });
        let image = CameraOptions::default().wavelengths(vec![1.2e-6, 2.2e-6]).pixels(15);
        let mut image = image.pixel(2e-7).ensquared(vec![5e-7]).jitter(3e-8);
        for structure in [StructureFunctionModel::Exact, StructureFunctionModel::Stationary] {
            image.structure = structure;
            let found = match structure {
                StructureFunctionModel::Exact => actuators.mean(&strokes, &aperture, 40).unwrap(),
                StructureFunctionModel::Stationary => {
                    actuators.stationary(&strokes, &telescope).unwrap()
                }
            };
            let wanted = image.expose(&telescope, &found, 2.0).unwrap();
            let engine = Engine::default();
            let mut made = Exposures::new(actuators, &aperture, &image, 2.0, &engine).unwrap();
            let (exposures, images) = (made.of(&strokes).unwrap(), made.images(&strokes).unwrap());
            // Compare exposures with their steps
            for k in 0..2 {
                let gap = (&exposures[k].image.values - &wanted[k].image.values)
                    .fold(0.0, |m: f64, g| m.max(g.abs()));
                assert!(gap < 1e-13, "{gap:e}");
                assert_eq!(exposures[k].image.values, images[k].values);
                assert_eq!(
                    (exposures[k].width, &exposures[k].perfect),
                    (wanted[k].width, &wanted[k].perfect)
                );
                assert_eq!(exposures[k].ensquared.len(), 1);
            }
            let causes = [("one", StrokeCovariance::OnHost(Cow::Borrowed(&strokes)))];
            let (budget, middles) = made.by_cause(&causes, false).unwrap();
            let variance = telescope.variance(&found).unwrap();
            assert!((budget.terms()[0].variance / variance - 1.0).abs() < 1e-12);
            assert_eq!(middles[1].image.values.dim(), (1, 1));
            assert!((middles[1].image.values[[0, 0]] - images[1].strehl).abs() < 1e-12);
        }
    }

    // Refuse exposures of other mirrors
    #[test]
    fn exposures_of_other_mirrors_are_refused() {
        let aperture = Aperture::across(&Pupil::new(2.0, 0.2).unwrap(), &[], 12).unwrap();
        let influence = |[x, y]: [f64; 2]| (-(x * x + y * y) / 0.2).exp();
        let positions = [[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]];
        let actuators = Actuators { positions: &positions, pitch: 0.5, influence: &influence };
        let stationary = StructureFunctionModel::Stationary;
        let mut image = CameraOptions::default().pixels(8).structure(stationary);
        let engine = Engine::default();
        let made =
            |image: &CameraOptions| Exposures::new(actuators, &aperture, image, 2.0, &engine);
        let mut good = made(&image).unwrap();
        let refused = good.of(&Array2::eye(4)).unwrap_err().to_string();
        assert!(refused.contains("(3, 3)"), "{refused}");
        let mut none = Array2::eye(3);
        none[[1, 2]] = f64::NAN;
        let refused = good.images(&none).unwrap_err().to_string();
        assert!(refused.contains("NaN at (1, 2)"), "{refused}");
        image.pixels = 4000;
        assert!(made(&image).err().unwrap().to_string().starts_with("pixels"));
        let nobody = Actuators { positions: &[], ..actuators };
        image.pixels = 8;
        assert!(Exposures::new(nobody, &aperture, &image, 2.0, &engine).is_err());
    }
}
