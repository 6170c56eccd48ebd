// Tangled from book/src/micrographs.md: edit there, or here and run cargo tangle stitch.
//! From a sample file to images of a plane wave, and from these to signals.

// What posed micrographs stand on
use super::{MicrographOptions, MicrographPlan, Micrographs};
use crate::electrons::finishing::suffix;
use crate::electrons::hrtem::Imaging;
use crate::electrons::posed::{Ground, SampleSummary, note_series};
use crate::electrons::sample_file::SampleFile;
use crate::error::{Error, accept};
use crate::files::signals::{Axis as SignalAxis, Sample, Signal, Signals};
use crate::numerics::real::Precision;
use ndarray::{ArrayView2, Axis, s};
use num_complex::{Complex32, Complex64};

// Pose micrographs of a sample file
impl SampleFile {
    /// The images of a plane wave that the file describes.
    ///
    /// # Errors
    /// [`Error::Read`] where the crystal's file cannot be read, and [`Error::SystemFile`] with the line that makes no sense.
    ///
    /// ```
    /// use lenslet::electrons::sample_file::SampleFile;
    /// let text = "sample = { file = 'SI100.XYZ' }\npotential.grid = [64, 48]\nmethod.algorithm = 'hrtem'\n\
    ///     beam = { energy_kev = 200.0, defocus = [-400.0, 0.0], c3 = 1e7 }\nimaging.aperture = 12.0";
    /// let plan = SampleFile::from_toml(text, "book/systems/si.toml")?.micrographs()?;
    /// assert_eq!((plan.options().defoci.len(), plan.options().lens.aperture), (2, Some(12.0)));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn micrographs(&self) -> Result<MicrographPlan, Error> {
        Ok(self.micrographs_with_summary()?.0)
    }

    /// The images of a plane wave that the file describes, and what is reported of its specimen and its samples.
    ///
    /// # Errors
    /// As [`micrographs`](Self::micrographs).
    pub fn micrographs_with_summary(&self) -> Result<(MicrographPlan, SampleSummary), Error> {
        let refuse = |table: &'static str| move |invalid| self.refuse_in(table, invalid);
        let Ground { prepared, grid, slicing, ends, mut warnings, .. } = self.ground()?;
        let (probe, table) = (self.probe().map_err(refuse("beam"))?, &self.imaging);
        let lens = Imaging {
            beam: probe.beam,
            aberrations: probe.aberrations,
            aperture: table.aperture,
            tilt: table.tilt,
            focal_spread: table.focal_spread,
            convergence: table.convergence,
        };
        let options = MicrographOptions {
            grid,
            slicing,
            potential: self.potential.options,
            phonons: self.phonons,
            lens,
            tilt: [0, 1].map(|axis| self.tilt_of_plane_wave(axis)),
            defoci: self.beam.defocus.clone(),
            refocus: self.method.refocus,
            samples: table.samples,
            ends,
        };
        let plan = MicrographPlan::new(prepared.specimen.clone(), options);
        let plan = plan.map_err(refuse("imaging"))?;
        // Warn of images that overlap
        let highest = |axis: usize| (grid.points()[axis] / 4) as f64 / grid.lengths()[axis];
        let largest = probe.beam.angle(highest(0).min(highest(1)));
        warnings.extend(self.beyond(largest));
        let (sides, foci) = (grid.lengths(), self.beam.defocus.iter());
        let moved =
            foci.map(|defocus| plan.options().lens.at_defocus(*defocus).delocalisation(&grid));
        let moved =
            moved.fold([0.0f64; 2], |most, moved| [0, 1].map(|axis| most[axis].max(moved[axis])));
        let overlaps = (0..2).find(|&axis| moved[axis] > sides[axis] / 2.0);
        if let Some(axis) = overlaps.filter(|_| self.phonons.configurations > 0) {
            warnings.push(format!(
                "the lens displaces images of frequencies by up to {:.2} Å along {}, and half of the cell is {:.2} Å: images of neighbouring cells overlap, where atoms differ; a larger tile or a smaller imaging.aperture helps",
                moved[axis], ["x", "y"][axis], sides[axis] / 2.0
            ));
        }
        let summary =
            SampleSummary::new(prepared, self.sample.tile, (grid, slicing, largest), warnings);
        Ok((plan, summary))
    }

    /// Tilt of a plane wave against the specimen along an axis \[mrad\].
    fn tilt_of_plane_wave(&self, axis: usize) -> f64 {
        self.beam.tilt[axis] - 1e3 * (1e-3 * self.sample.tilt[axis]).tan()
    }
}

// Signals of many micrographs
impl MicrographPlan {
    /// The images as calibrated signals: `image` (x, y) for each defocus, the second with `_2` behind its name, and for each plane inside the specimen, with `_after_20` behind 20 slices; where phonons have been averaged
    /// `standard_error_image`; and if exit waves are wanted, `wave` (x, y), complex, for each plane. Numbers are in the precision of the engine.
    ///
    /// # Errors
    /// `Invalid` where images are not of this plan; `NotFinite` where one is no number.
    pub fn signals(
        &self,
        taken: &Micrographs,
        waves: bool,
        precision: Precision,
    ) -> Result<Signals<'static>, Error> {
        let (options, errors) = (&self.options, taken.standard_error());
        let shape = (options.defoci.len(), options.ends.len());
        let found = (taken.mean.len_of(Axis(0)), taken.mean.len_of(Axis(1)));
        accept(found == shape, "images", found, &format!("{shape:?} images"))?;
        let mut signals = Signals::default();
        for (e, &end) in options.ends.iter().enumerate() {
            let inside = (end < options.slicing.count()).then_some(end);
            for d in 0..options.defoci.len() {
                let suffix = suffix(d, inside);
                let image = taken.mean.slice(s![d, e, .., ..]);
                signals.add(self.plane(&format!("image{suffix}"), image, precision)?)?;
                if let Some(errors) = &errors {
                    let (name, error) =
                        (format!("standard_error_image{suffix}"), errors.slice(s![d, e, .., ..]));
                    signals.add(self.plane(&name, error, precision)?)?;
                }
            }
            if waves {
                let exit = taken.exits.index_axis(Axis(0), e);
                signals.add(self.plane(
                    &format!("wave{}", suffix(0, inside)),
                    exit,
                    precision,
                )?)?;
            }
        }
        note_series(&mut signals, &options.defoci, &options.ends, &options.slicing)?;
        Ok(signals)
    }

    // An image as a signal
    /// An image or a wave (y, x) as a signal (x, y) in a precision.
    fn plane<S: Sample + Narrowed>(
        &self,
        name: &str,
        plane: ArrayView2<'_, S>,
        precision: Precision,
    ) -> Result<Signal<'static>, Error> {
        let stride = self.options.samples.stride() as f64;
        let pixel = self.options.grid.pixel().map(|pixel| stride * pixel);
        let axis = |axis: usize| SignalAxis::signal(["x", "y"][axis], "Å", 0.0, pixel[axis]);
        let (axes, turned) = (vec![axis(0)?, axis(1)?], plane.t());
        match precision {
            Precision::F32 => Signal::new(name, turned.mapv(S::narrow), axes),
            Precision::F64 => Signal::new(name, turned.to_owned(), axes),
        }
    }
}

// Numbers in single precision
/// A number of double precision that may be stored in single precision.
pub(super) trait Narrowed: Sample {
    /// The number in single precision.
    type Single: Sample;

    /// The nearest number of single precision.
    fn narrow(self) -> Self::Single;
}

impl Narrowed for f64 {
    type Single = f32;

    fn narrow(self) -> f32 {
        self as f32
    }
}

impl Narrowed for Complex64 {
    type Single = Complex32;

    fn narrow(self) -> Complex32 {
        Complex32::new(self.re as f32, self.im as f32)
    }
}

// Tests of posed micrographs
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Engine, silent};
    use crate::files::signals::Samples;

    const WAVE: &str = "sample = { file = 'SI100.XYZ' }\nphonons = { configurations = 2, seed = 3 }\n[potential]\ngrid = [48, 32]\nslice_thickness = 1.3575\n\
         [beam]\nenergy_kev = 100.0\ndefocus = [0.0, -400.0]\nc3 = 1e7\n[method]\nalgorithm = 'hrtem'\nthicknesses = [2.8]\n[imaging]\naperture = 15.0\n";

    // Sample files become micrographs
    #[test]
    fn sample_files_become_micrographs() {
        let file = SampleFile::from_toml(WAVE, "book/systems/small.toml").unwrap();
        let plan = file.micrographs().unwrap();
        assert_eq!(plan.options().ends, [2, 4]);
        let tilted = WAVE.replace("'SI100.XYZ' }", "'SI100.XYZ', tilt = [100.0, -20.0] }");
        let tilted = tilted.replace("c3 = 1e7", "c3 = 1e7\ntilt = [0.0, 3.0]");
        let tilted = SampleFile::from_toml(&tilted, "book/systems/small.toml").unwrap();
        let tilt = tilted.micrographs().unwrap().options().tilt;
        assert_eq!(tilt, [-1e3 * f64::tan(0.1), 3.0 + 1e3 * f64::tan(0.02)]);
        let taken = plan.run(&Engine::cpu(Precision::F64), &silent).unwrap();
        let signals = plan.signals(&taken, true, Precision::F64).unwrap();
        let names: Vec<_> = signals.items().map(|signal| signal.name().to_string()).collect();
        let expected = "image_after_2 standard_error_image_after_2 image_2_after_2 standard_error_image_2_after_2 wave_after_2 \
             image standard_error_image image_2 standard_error_image_2 wave";
        assert_eq!(names.join(" "), expected);
        let image = signals.items().find(|signal| signal.name() == "image_2").unwrap();
        let Samples::F64(image) = image.samples() else { unreachable!("of double precision") };
        assert_eq!((image.shape(), image[[5, 7]]), (&[48, 32][..], taken.mean[[1, 1, 7, 5]]));
        let single = plan.signals(&taken, true, Precision::F32).unwrap();
        let wave = single.items().last().unwrap();
        assert!(matches!(wave.samples(), Samples::C32(wave) if wave.shape() == [48, 32]));
        assert_eq!(plan.signals(&taken, false, Precision::F32).unwrap().items().count(), 8);
    }

    #[test]
    fn complaints_about_micrographs_name_their_line() {
        let said = |from: &str, to: &str| {
            assert!(WAVE.contains(from));
            let text = WAVE.replace(from, to);
            let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
            file.micrographs().err().unwrap().to_string()
        };
        let thick = said("[2.8]", "[2.8, 9.0]");
        let start = "book/systems/small.toml:12: method.thicknesses[1] = 9.0: expected a length";
        assert!(thick.starts_with(start), "{thick}");
        let slice = said("1.3575", "7.5");
        assert!(
            slice.starts_with("book/systems/small.toml:5: potential.slice_thickness"),
            "{slice}"
        );
    }
}
