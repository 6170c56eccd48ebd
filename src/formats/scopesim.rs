// Tangled from book/src/scopesim-files.md: edit there, or here and run cargo tangle stitch.
//! Images over a field, in files that ScopeSim reads.

// Imports of images over a field
use crate::data::{DataSet, Variable};
use crate::error::{Error, Invalid, accept};
use crate::model::source::Source;
use crate::psf::field::Field;
use crate::psf::options::Exposure;
#[cfg(feature = "factorise")]
use crate::psf::{PsfPlan, PsfResult};
use crate::units::ARCSEC;
use ndarray::{Array2, Array3, s};

// Images over a field
/// Images of directions at all wavelengths, for a file that ScopeSim reads.
#[derive(Debug, Clone)]
pub struct FieldImages<'a> {
    /// The directions.
    pub directions: &'a [Source],
    /// For each direction the exposures at all wavelengths.
    pub exposures: Vec<&'a [Exposure]>,
    /// The field that they are of, if they are all of one: by rows, x fastest.
    pub field: Option<Field>,
}

/// Pixels across a map, at least.
const ACROSS: usize = 201;

// Images of a result over its field
#[cfg(feature = "factorise")]
impl<'a> FieldImages<'a> {
    /// The images of a result that kept its whole field, or of its targets where it has no field.
    pub fn of(plan: &'a PsfPlan, result: &'a PsfResult) -> Self {
        let (all, targets) = (plan.correction().system().targets(), result.targets.len());
        let field = plan.options().field;
        let (directions, images) = match field {
            Some(_) => (&all[targets..targets + result.field.len()], &result.field),
            None => (&all[..targets], &result.targets),
        };
        let exposures = images.iter().map(|image| image.exposures.as_slice()).collect();
        Self { directions, exposures, field }
    }
}

// Lay the images of a field out
impl FieldImages<'_> {
    /// Adds the index map and the images to a file.
    ///
    /// # Errors
    /// `Invalid` where there is no direction or not an exposure at each wavelength for each, or images differ in their size.
    pub fn add_to(&self, arrays: &mut DataSet) -> Result<(), Error> {
        let first = self.exposures.first().and_then(|all| all.first());
        let first = first.ok_or_else(|| {
            Invalid::new("images", 0, "at least one direction and one wavelength")
        })?;
        self.check(first)?;
        for (key, unit) in [("ECAT", 1), ("EDATA", 2)] {
            arrays.note(key, unit, "number of a part");
        }
        let (map, step) = self.map();
        let middle = 0.5 * (map.nrows() as f64 + 1.0);
        let entry = arrays
            .add("psf_index", map)
            .dimensions("y, x")
            .long_name("number of the image for each place");
        add_frame(entry, middle, step);
        let skipped = usize::from(first.image.pixels() % 2 == 0);
        let side = first.image.pixels() - skipped;
        for (w, exposure) in self.exposures[0].iter().enumerate() {
            let mut cube = Array3::zeros((self.exposures.len(), side, side));
            for (mut layer, exposures) in cube.outer_iter_mut().zip(&self.exposures) {
                let image = &exposures[w].image;
                layer.assign(&image.values.slice(s![skipped.., skipped..]));
                layer *= image.share;
            }
            let entry = arrays.add_result(&format!("psf_{w}"), cube).dimensions("image, y, x");
            entry.long_name("shares of the light of a star");
            entry.attribute("WAVE0", 1e6 * exposure.image.wavelength).attribute("WAVEUNIT", "um");
            add_frame(entry, 0.5 * (side as f64 + 1.0), exposure.image.pixel);
        }
        Ok(())
    }

    // Refuse images of several sizes in a field
    fn check(&self, first: &Exposure) -> Result<(), Invalid> {
        let (directions, waves) = (self.directions.len(), self.exposures[0].len());
        let expected = format!("{directions} directions with {waves} wavelengths each");
        let good = self.exposures.len() == directions
            && self.exposures.iter().all(|all| all.len() == waves);
        let grid = self.field.is_none_or(|field| field.across().pow(2) == directions);
        accept(good && grid, "images", self.exposures.len(), &expected)?;
        let sides =
            self.exposures.iter().copied().flatten().map(|exposure| exposure.image.pixels());
        let expected = "images of one size, of at least 2 pixels";
        let side = first.image.pixels();
        let good = side > 1 && sides.into_iter().all(|other| other == side);
        accept(good, "pixels", side, expected).map(drop)
    }
}

/// Cards of a square frame whose middle, a pixel counted from 1, is at 0, with pixels of a side \[rad\].
fn add_frame(entry: &mut Variable, middle: f64, side: f64) {
    for axis in [1, 2] {
        let key = |word: &str| format!("{word}{axis}");
        entry.attribute(&key("CTYPE"), "LINEAR").attribute(&key("CUNIT"), "arcsec");
        entry.attribute(&key("CRPIX"), middle).attribute(&key("CRVAL"), 0.0);
        entry.attribute(&key("CDELT"), side / ARCSEC);
    }
}

// Map places to images
impl FieldImages<'_> {
    /// The number of the image for each pixel around the axis, axis 0 along y, and the side of a pixel \[rad\].
    fn map(&self) -> (Array2<i64>, f64) {
        if let Some(field) = &self.field {
            let n = field.across();
            let each = ACROSS.div_ceil(n);
            let number = |(j, i): (usize, usize)| (j / each * n + i / each) as i64;
            return (Array2::from_shape_fn((n * each, n * each), number), field.step / each as f64);
        }
        let places = || self.directions.iter().map(Source::direction);
        let reach = places().flatten().fold(ARCSEC, |reach: f64, along| reach.max(along.abs()));
        let step = 3.0 * reach / ACROSS as f64;
        let at = |k: usize| (k as f64 - 0.5 * (ACROSS as f64 - 1.0)) * step;
        let nearest = |(j, i): (usize, usize)| {
            let away = |[x, y]: [f64; 2]| f64::hypot(x - at(i), y - at(j));
            let each = places().map(away).enumerate();
            each.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(k, _)| k as i64)
        };
        (Array2::from_shape_fn((ACROSS, ACROSS), nearest), step)
    }
}

// Tests of images over a field
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Format;
    use crate::psf::{Aperture, CameraOptions};
    use crate::{model::Pupil, numerics::Precision, units::DEGREE};
    use fitsio::FitsFile;

    fn exposures(pixels: usize, rms: f64) -> Vec<Exposure> {
        let telescope = Aperture::across(&Pupil::new(8.0, 0.2).unwrap(), &[], 40).unwrap();
        let telescope = telescope.transfer(80).unwrap();
        let options = CameraOptions::default().wavelengths(vec![1.25e-6, 2.2e-6]);
        let options = options.pixels(pixels).pixel(7.5e-3 * ARCSEC);
        options.expose(&telescope, &telescope.extra(rms, -2.0).unwrap(), 8.0).unwrap()
    }

    // Find images by the map of a field
    #[test]
    fn fields_have_an_image_for_each_place() -> Result<(), Box<dyn std::error::Error>> {
        let field = Field { size: 40.0 * ARCSEC, step: 20.0 * ARCSEC };
        let directions = field.directions()?;
        let all: Vec<_> = (0..9).map(|k| exposures(24, 1e-8 * f64::from(3 + k))).collect();
        let exposures = all.iter().map(Vec::as_slice).collect();
        let images = FieldImages { directions: &directions, exposures, field: Some(field) };
        let mut arrays = DataSet::default();
        images.add_to(&mut arrays)?;
        let file = tempfile::Builder::new().suffix(".fits").tempfile()?;
        arrays.write(file.reopen()?, Format::Fits, Precision::F64)?;
        let mut fits = FitsFile::open(file.path())?;
        assert_eq!(fits.hdu(0)?.read_key::<i64>(&mut fits, "EDATA")?, 2);
        let map = fits.hdu(1)?;
        let numbers: Vec<i64> = map.read_image(&mut fits)?;
        assert_eq!(numbers.len(), 201 * 201);
        assert_eq!(
            [[66, 100], [67, 133], [133, 134], [134, 0]].map(|[j, i]| numbers[201 * j + i]),
            [1, 4, 5, 6]
        );
        assert!((map.read_key::<f64>(&mut fits, "CDELT2")? - 20.0 / 67.0).abs() < 1e-12);
        assert_eq!(map.read_key::<f64>(&mut fits, "CRPIX1")?, 101.0);
        let cube = fits.hdu(3)?;
        assert!((cube.read_key::<f64>(&mut fits, "WAVE0")? - 2.2).abs() < 1e-12);
        assert!((cube.read_key::<f64>(&mut fits, "CDELT1")? - 7.5e-3).abs() < 1e-12);
        let values: Vec<f64> = cube.read_image(&mut fits)?;
        assert_eq!(values.len(), 9 * 23 * 23);
        // The star is in the middle of what is left.
        let shares = all[5][1].image.shares();
        let middle = 5 * 23 * 23 + 11 * 23 + 11;
        assert!((values[middle] / shares[[12, 12]] - 1.0).abs() < 1e-12);
        assert!((values[middle + 2 * 23 + 3] / shares[[14, 15]] - 1.0).abs() < 1e-12);
        let few = FieldImages { exposures: images.exposures[..8].to_vec(), ..images.clone() };
        assert!(few.add_to(&mut DataSet::default()).is_err());
        Ok(())
    }

    // Find images by the nearest target
    #[test]
    fn targets_have_the_places_around_them() -> Result<(), Box<dyn std::error::Error>> {
        let directions =
            [Source::star(10.0 * ARCSEC, 0.0)?, Source::star(30.0 * ARCSEC, 90.0 * DEGREE)?];
        let (one, other) = (exposures(9, 1e-7), exposures(9, 2e-7));
        let images =
            FieldImages { directions: &directions, exposures: vec![&one, &other], field: None };
        let (map, step) = images.map();
        assert_eq!(map.dim(), (ACROSS, ACROSS));
        let place = |x: f64| (x * ARCSEC / step + 100.0).round() as usize;
        assert_eq!((map[[place(0.0), place(10.0)]], map[[place(30.0), place(0.0)]]), (0, 1));
        assert_eq!((map[[place(-40.0), place(-40.0)]], map[[place(40.0), place(-40.0)]]), (0, 1));
        let small = exposures(7, 1e-7);
        let uneven = FieldImages { exposures: vec![&one, &small], ..images.clone() };
        assert!(
            uneven
                .add_to(&mut DataSet::default())
                .unwrap_err()
                .to_string()
                .starts_with("pixels = 9")
        );
        let none = FieldImages { exposures: Vec::new(), ..images };
        assert!(
            none.add_to(&mut DataSet::default()).unwrap_err().to_string().starts_with("images = 0")
        );
        Ok(())
    }
}
