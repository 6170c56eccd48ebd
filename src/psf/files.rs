// Tangled from book/src/image-files.md: edit there, or here and run cargo tangle stitch.
//! Images in files with the layout of TIPTOP.

// Imports of files of images
use crate::data::{Coordinate, DataSet, Positions, Variable};
use crate::error::{Error, Invalid, accept};
use crate::model::source::Source;
use crate::psf::options::Exposure;
use crate::psf::point_spread::PointSpread;
use crate::units::ARCSEC;
use ndarray::{Array2, Array4, Axis, s};

// Images of all targets
/// Images of all targets at all wavelengths, for a file.
#[derive(Debug, Clone)]
pub struct Images<'a> {
    /// The targets.
    pub targets: &'a [Source],
    /// For each target the exposures at all wavelengths.
    pub exposures: &'a [Vec<Exposure>],
    /// The wavefront error of each target, m rms.
    pub errors: &'a [f64],
    /// The image without correction at the first wavelength.
    pub uncorrected: &'a PointSpread,
    /// Sides of the boxes of the exposures' ensquared energy \[rad\]; the cards have the value of the first.
    pub ensquared: &'a [f64],
}

// Lay the images out
impl Images<'_> {
    /// Adds the images to a file with the layout of TIPTOP's.
    ///
    /// # Errors
    /// `Invalid` if the numbers of targets, exposures and errors differ, or images differ in their wavelengths, pixels or size.
    pub fn add_to(&self, arrays: &mut DataSet) -> Result<(), Error> {
        self.check()?;
        let first = &self.exposures[0];
        let (waves, targets, m) = (first.len(), self.targets.len(), first[0].image.pixels());
        let mut cube = Array4::zeros((waves, targets, m, m));
        for (t, exposures) in self.exposures.iter().enumerate() {
            for (w, exposure) in exposures.iter().enumerate() {
                cube.slice_mut(s![w, t, .., ..]).assign(&exposure.image.shares());
            }
        }
        let size = |shape: &[usize]| {
            let lengths: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!("({})", lengths.join(", "))
        };
        let profiles = self.profiles();
        let (target, mas) = (Coordinate::index("target"), 1e-3 * ARCSEC);
        let (step, half) = (first[0].image.pixel / mas, (m / 2) as f64);
        let angles = |name| {
            let positions = Positions::Uniform { offset: -half * step, step };
            Coordinate { unit: "mas".into(), positions, ..Coordinate::index(name) }
        };
        let plane = || ["y", "x"].map(angles);
        let entry = if waves > 1 {
            let wavelengths = first.iter().map(|exposure| exposure.image.wavelength).collect();
            let wavelength = Coordinate::listed("wavelength", "m", wavelengths);
            let [y, x] = plane();
            arrays.add_result("psf", cube).along(vec![wavelength, target, y, x])
        } else {
            let [y, x] = plane();
            let cube = cube.index_axis_move(Axis(0), 0);
            arrays.add_result("psf", cube).along(vec![target, y, x])
        };
        let shape = [waves, targets, m, m];
        entry
            .attribute("CONTENT", "PSF CUBE")
            .attribute("SIZE", size(&shape[usize::from(waves == 1)..]));
        self.add_cards(entry);
        for (name, content, image) in [
            ("open_loop", "OPEN-LOOP PSF", self.uncorrected),
            ("diffraction", "DIFFRACTION LIMITED PSF", &first[0].perfect),
        ] {
            let entry = arrays.add_result(name, image.shares()).along(plane().to_vec());
            entry.attribute("CONTENT", content).attribute("SIZE", size(&[m, m]));
        }
        let of_profiles = size(profiles.shape());
        let entry = arrays.add_result("profiles", profiles).dimensions("radii and profiles, ring");
        entry.attribute("CONTENT", "Final PSFs profiles").attribute("SIZE", of_profiles);
        Ok(())
    }

    // Refuse images that differ
    fn check(&self) -> Result<(), Invalid> {
        let targets = self.targets.len();
        let counts = [self.exposures.len(), self.errors.len()];
        let expected = format!("{targets}, of as many targets, and at least one");
        accept(targets > 0 && counts == [targets; 2], "images", counts, &expected)?;
        let all = || self.exposures.iter().flatten().map(|exposure| &exposure.image);
        let first = all().next().ok_or_else(|| Invalid::new("wavelengths", 0, "at least one"))?;
        let waves = self.exposures[0].len();
        let alike = |image: &PointSpread| {
            image.pixels() == first.pixels() && (image.pixel / first.pixel - 1.0).abs() < 1e-9
        };
        let uncorrected = std::iter::once(self.uncorrected);
        if !all().chain(uncorrected).all(alike) {
            let expected = "one side for all wavelengths of a file: set image.pixel";
            return Err(Invalid::new("pixel", "of several sizes", expected));
        }
        let same_waves = |exposures: &Vec<Exposure>| {
            let pairs = exposures.iter().zip(&self.exposures[0]);
            exposures.len() == waves
                && pairs.into_iter().all(|(a, b)| a.image.wavelength == b.image.wavelength)
        };
        accept(
            self.exposures.iter().all(same_waves),
            "wavelengths",
            waves,
            "the same of all targets",
        )
        .map(drop)
    }

    // Profiles of images over the radius
    /// Radii \[mas\] of the rings of each target's image at the first wavelength, and the mean fraction of the light in a pixel of each ring.
    fn profiles(&self) -> Array2<f64> {
        let targets = self.targets.len();
        let rings: Vec<_> =
            self.exposures.iter().map(|exposures| exposures[0].image.rings()).collect();
        Array2::from_shape_fn((2 * targets, rings[0].len()), |(row, k)| {
            let (ring, image) = (&rings[row % targets][k], &self.exposures[row % targets][0].image);
            if row < targets {
                1e3 * ring.radius / ARCSEC
            } else {
                ring.mean * image.strehl * image.share
            }
        })
    }
}

// Cards of the cube of images
impl Images<'_> {
    fn add_cards(&self, entry: &mut Variable) {
        let first = &self.exposures[0];
        let (waves, mas) = (first.len(), 1e-3 * ARCSEC);
        for (w, exposure) in first.iter().enumerate() {
            let key = if waves > 1 { format!("WL_NM{w:03}") } else { "WL_NM".into() };
            entry.attribute(&key, format!("{:.0}", 1e9 * exposure.image.wavelength));
        }
        entry.attribute("PIX_MAS", format!("{}", rounded(first[0].image.pixel / mas, 6)));
        let count = self.targets.len();
        entry.attribute("CC", format!("CARTESIAN COORD. IN ASEC OF THE {count} SOURCES"));
        entry.attribute("RESH", "High Order residual in nm RMS");
        let radius = self.ensquared.first().map(|side| (0.5 * side / mas).round());
        for (t, target) in self.targets.iter().enumerate() {
            let place = target.direction().map(|along| rounded(along / ARCSEC, 3));
            entry
                .attribute(&format!("CCX{t:04}"), place[0])
                .attribute(&format!("CCY{t:04}"), place[1]);
            entry.attribute(&format!("RESH{t:04}"), rounded(1e9 * self.errors[t], 3));
            for (w, exposure) in self.exposures[t].iter().enumerate() {
                let of = |short: &str, long: &str| match waves {
                    1 => format!("{long}{t:04}"),
                    _ => format!("{short}{t:02}W{w:02}"),
                };
                entry.attribute(&of("SR", "SR"), rounded(exposure.image.strehl, 5));
                if let Some(width) = exposure.width {
                    entry.attribute(&of("FW", "FWHM"), rounded(width.mean() / mas, 3));
                }
                if let (Some(radius), Some(light)) = (radius, exposure.ensquared.first()) {
                    entry.attribute(&of("EE", &format!("EE{radius}")), rounded(*light, 5));
                }
            }
        }
    }
}

/// A number rounded to some digits after the decimal point.
fn rounded(x: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (x * scale).round() / scale
}

// Tests of files of images
#[cfg(test)]
mod tests {
    use super::*;
    use crate::psf::{Aperture, CameraOptions};
    use crate::{files::Format, model::Pupil, numerics::Precision, units::DEGREE};
    use fitsio::FitsFile;

    fn exposures(options: &CameraOptions, rms: f64) -> Vec<Exposure> {
        let telescope = Aperture::across(&Pupil::new(8.0, 0.2).unwrap(), &[], 40).unwrap();
        let telescope = telescope.transfer(80).unwrap();
        options.expose(&telescope, &telescope.extra(rms, -2.0).unwrap(), 8.0).unwrap()
    }

    #[test]
    fn files_have_the_cards_of_tiptop() -> Result<(), Box<dyn std::error::Error>> {
        let targets = [Source::star(0.0, 0.0)?, Source::star(30.0 * ARCSEC, 90.0 * DEGREE)?];
        for wavelengths in [vec![1.65e-6], vec![1.25e-6, 2.2e-6]] {
            let options = CameraOptions {
                wavelengths: wavelengths.clone(),
                pixel: Some(7.5e-3 * ARCSEC),
                pixels: 32,
                ensquared: vec![0.16 * ARCSEC],
                ..CameraOptions::default()
            };
            let all = [100e-9, 200e-9].map(|rms| exposures(&options, rms));
            let uncorrected = exposures(&options, 500e-9).remove(0).image;
            let (errors, ensquared) = ([100e-9, 200e-9], &options.ensquared);
            let (targets, exposures, uncorrected) = (&targets[..], &all[..], &uncorrected);
            let images = Images { targets, exposures, errors: &errors, uncorrected, ensquared };
            let mut arrays = DataSet::default();
            images.add_to(&mut arrays)?;
            let file = tempfile::Builder::new().suffix(".fits").tempfile()?;
            arrays.write(file.reopen()?, Format::Fits, Precision::F64)?;
            let mut fits = FitsFile::open(file.path())?;
            let cube = fits.hdu(1)?;
            // Check cards and images
            let text = |fits: &mut FitsFile, key: &str| cube.read_key::<String>(fits, key);
            let number = |fits: &mut FitsFile, key: &str| cube.read_key::<f64>(fits, key);
            assert_eq!(text(&mut fits, "CONTENT")?, "PSF CUBE");
            assert_eq!(text(&mut fits, "PIX_MAS")?, "7.5");
            assert!(
                text(&mut fits, "CC")?.starts_with("CARTESIAN COORD. IN ASEC OF THE 2 SOURCES")
            );
            assert!((number(&mut fits, "CCY0001")? - 30.0).abs() < 1e-9);
            assert_eq!(number(&mut fits, "RESH0001")?, 200.0);
            let (keys, shape): ([&str; 4], &[usize]) = match wavelengths.len() {
                1 => (["WL_NM", "SR0001", "FWHM0001", "EE800001"], &[2, 32, 32]),
                _ => (["WL_NM001", "SR01W01", "FW01W01", "EE01W01"], &[2, 2, 32, 32]),
            };
            let last = &all[1][wavelengths.len() - 1];
            let wave = wavelengths[wavelengths.len() - 1];
            assert_eq!(text(&mut fits, keys[0])?, format!("{:.0}", 1e9 * wave));
            let width = last.width.unwrap().mean() * 1e3 / ARCSEC;
            for (key, expected) in
                [(keys[1], last.image.strehl), (keys[2], width), (keys[3], last.ensquared[0])]
            {
                assert!((number(&mut fits, key)? - expected).abs() < 1e-3, "{key}");
            }
            let values: Vec<f64> = cube.read_image(&mut fits)?;
            assert_eq!(values.len(), shape.iter().product::<usize>());
            let shares = last.image.shares();
            let tail = &values[values.len() - 32 * 32..];
            assert!(tail.iter().zip(&shares).all(|(a, b)| a == b));
            for (part, content) in
                [(2, "OPEN-LOOP PSF"), (3, "DIFFRACTION LIMITED PSF"), (4, "Final PSFs profiles")]
            {
                let hdu = fits.hdu(part)?;
                assert_eq!(hdu.read_key::<String>(&mut fits, "CONTENT")?, content);
            }
            let hdu = fits.hdu(4)?;
            let profiles: Vec<f64> = hdu.read_image(&mut fits)?;
            assert!(profiles.len() == 4 * 16 && profiles[0] == 0.0);
            assert!((profiles[2 * 16] / all[0][0].image.shares()[[16, 16]] - 1.0).abs() < 1e-12);
            // Refuse images of several sizes
            let mut other = all.clone();
            other[1][0].image.pixel *= 1.1;
            let of = |exposures| Images { exposures, ..images.clone() };
            let refused = of(&other).add_to(&mut DataSet::default()).unwrap_err().to_string();
            assert!(refused.starts_with("pixel = of several sizes"), "{refused}");
            let refused = of(&all[..1]).add_to(&mut DataSet::default()).unwrap_err().to_string();
            assert!(refused.starts_with("images = [1, 2]"), "{refused}");
            let mut fewer = all.clone();
            fewer[1].pop();
            assert!(of(&fewer).add_to(&mut DataSet::default()).is_err());
        }
        Ok(())
    }
}
