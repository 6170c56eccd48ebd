// Tangled from book/src/hrtem-setup.md: edit there, or here and run cargo tangle stitch.
//! From a sample file to images of a plane wave, and from these to data sets.

// Imports of posed micrographs
use super::plan::{HrtemImages, HrtemOptions, HrtemPlan};
use crate::data::{Coordinate, DataSet, Element, Variable};
use crate::electrons::hrtem::optics::HrtemOptics;
use crate::electrons::sample_file::SampleFile;
use crate::electrons::scan_setup::{Ground, SampleSummary, note_series, series};
use crate::error::{Error, accept};
use crate::files::Instrument;
use crate::numerics::real::Precision;
use ndarray::{ArrayViewD, Axis};
use num_complex::{Complex32, Complex64};

// Plan plane-wave images of a sample file
impl SampleFile {
    // The images of a sample file
    /// The images of a plane wave that the file describes.
    ///
    /// # Errors
    /// [`Error::Read`] where the crystal's file cannot be read, and [`Error::SystemFile`] with the line that makes no sense.
    ///
    /// ```
    /// use lenslet::electrons::sample_file::SampleFile;
    /// let text = "sample = { file = 'SI100.XYZ' }\npotential.grid = [64, 48]\nmethod.algorithm = 'hrtem'\n\
    ///     beam = { energy_kev = 200.0, defocus = [-400.0, 0.0], c3 = 1e7 }\nimaging.aperture = 12.0";
    /// let plan = SampleFile::from_toml(text, "book/systems/si.toml")?.hrtem()?;
    /// assert_eq!((plan.options().defoci.len(), plan.options().lens.aperture), (2, Some(12.0)));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn hrtem(&self) -> Result<HrtemPlan, Error> {
        Ok(self.hrtem_with_summary()?.0)
    }

    // Images of a file with their summary
    /// The images of a plane wave that the file describes, and what is reported of its specimen and its samples.
    ///
    /// # Errors
    /// As [`hrtem`](Self::hrtem).
    pub fn hrtem_with_summary(&self) -> Result<(HrtemPlan, SampleSummary), Error> {
        let refuse = |table: &'static str| move |invalid| self.refuse_in(table, invalid);
        let Ground { prepared, grid, slicing, ends, mut warnings, .. } = self.ground()?;
        let (probe, table) = (self.probe().map_err(refuse("beam"))?, &self.imaging);
        // The lens of a sample file
        let lens = HrtemOptics {
            beam: probe.beam,
            aberrations: probe.aberrations,
            aperture: table.aperture,
            tilt: table.tilt,
            focal_spread: table.focal_spread,
            convergence: table.convergence,
        };
        // Options of images of a file
        let options = HrtemOptions::new(grid, slicing, lens)
            .potential(self.potential.options)
            .phonons(self.phonons)
            .tilt([0, 1].map(|axis| self.tilt_of_plane_wave(axis)))
            .defoci(self.defoci().map_err(refuse("beam"))?)
            .refocus(self.method.refocus)
            .samples(table.samples)
            .ends(ends);
        let plan = HrtemPlan::new(prepared.specimen.clone(), options);
        let plan = plan.map_err(refuse("imaging"))?;
        // Warn of images that overlap
        let highest = |axis: usize| (grid.points()[axis] / 4) as f64 / grid.lengths()[axis];
        let largest = probe.beam.angle(highest(0).min(highest(1)));
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
        let summary = SampleSummary::new(prepared, self, (grid, slicing, largest), warnings);
        Ok((plan, summary))
    }

    // Tilt of a plane wave against its specimen
    /// Tilt of a plane wave against the specimen along an axis \[mrad\].
    fn tilt_of_plane_wave(&self, axis: usize) -> f64 {
        self.beam.tilt[axis] - 1e3 * (1e-3 * self.sample.tilt[axis]).tan()
    }
}

// Data set of many micrographs
impl HrtemImages {
    /// The images of a `plan` as a data set with coordinates: `image` (defocus, thickness, x, y), where phonons have been averaged `standard_error_image` of the same shape, and if exit waves are wanted, `wave` (thickness, x, y), complex. There is
    /// an axis of `defocus` or of `thickness` only where there are several. Numbers are in the precision of the engine.
    ///
    /// # Errors
    /// `Invalid` where images are not of this plan; `NotFinite` where one is no number.
    pub fn to_data_set(
        &self,
        plan: &HrtemPlan,
        waves: bool,
        precision: Precision,
    ) -> Result<DataSet<'static>, Error> {
        let (options, errors) = (plan.options(), self.standard_error());
        let shape = (options.defoci.len(), options.ends.len());
        let images = (self.mean.len_of(Axis(0)), self.mean.len_of(Axis(1)));
        accept(images == shape, "images", images, &format!("{shape:?} images"))?;
        let mut data = DataSet::default();
        let all = series(&options.defoci, &options.ends, &options.slicing)?;
        let planes = series(&[], &options.ends, &options.slicing)?;
        // Add images, errors and exit waves
        data.insert(plan.stack("image", self.mean.view().into_dyn(), &all, precision)?)?;
        if let Some(errors) = &errors {
            let errors = errors.view().into_dyn();
            data.insert(plan.stack("standard_error_image", errors, &all, precision)?)?;
        }
        if waves {
            let exits = self.exits.view().into_dyn();
            data.insert(plan.stack("wave", exits, &planes, precision)?)?;
        }
        note_series(&mut data, &all)?;
        let (beam_energy, lens) = (options.lens.beam.energy_kev(), &options.lens);
        let convergence_angle = lens.convergence;
        Instrument { beam_energy, convergence_angle, scanned: false }.add_to(&mut data)?;
        Ok(data)
    }
}

impl HrtemPlan {
    // An image as a variable
    /// Images or waves (…, y, x) as a variable with x before y, with the dimensions of their series.
    fn stack<S: Element + Narrowed>(
        &self,
        name: &str,
        mut stack: ArrayViewD<'_, S>,
        series: &[Coordinate],
        precision: Precision,
    ) -> Result<Variable<'static>, Error> {
        let stride = self.options().samples.stride() as f64;
        let pixel = self.options().grid.pixel().map(|pixel| stride * pixel);
        let axis = |axis: usize| Coordinate::signal(["x", "y"][axis], "Å", 0.0, pixel[axis]);
        let axes = [series, &[axis(0)?, axis(1)?]].concat();
        let last = stack.ndim() - 1;
        stack.swap_axes(last - 1, last);
        // Series of one have no axis
        while stack.ndim() > axes.len() {
            let one = stack.shape().iter().position(|&count| count == 1).unwrap_or(0);
            stack = stack.index_axis_move(Axis(one), 0);
        }
        match precision {
            Precision::F32 => Variable::new(name, stack.mapv(S::narrow), axes),
            Precision::F64 => Variable::new(name, stack.to_owned(), axes),
        }
    }
}

// Numbers in single precision
/// A number of double precision that may be stored in single precision.
pub(super) trait Narrowed: Element {
    /// The number in single precision.
    type Single: Element;

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
    use crate::data::TypedArray;
    use crate::device::Engine;
    use crate::plan::Plan;
    use crate::watch::unwatched;

    const WAVE: &str = "sample = { file = 'SI100.XYZ' }\nphonons = { configurations = 2, seed = 3 }\n[potential]\ngrid = [48, 32]\nslice_thickness = 1.3575\n\
         [beam]\nenergy_kev = 100.0\ndefocus = [0.0, -400.0]\nc3 = 1e7\n[method]\nalgorithm = 'hrtem'\nthicknesses = [2.8]\n[imaging]\naperture = 15.0\n";

    // Sample files become micrographs
    #[test]
    fn sample_files_become_micrographs() {
        let file = SampleFile::from_toml(WAVE, "book/systems/small.toml").unwrap();
        let plan = file.hrtem().unwrap();
        assert_eq!(plan.options().ends, [2, 4]);
        let tilted = WAVE.replace("'SI100.XYZ' }", "'SI100.XYZ', tilt = [100.0, -20.0] }");
        let tilted = tilted.replace("c3 = 1e7", "c3 = 1e7\ntilt = [0.0, 3.0]");
        let tilted = SampleFile::from_toml(&tilted, "book/systems/small.toml").unwrap();
        let tilt = tilted.hrtem().unwrap().options().tilt;
        assert_eq!(tilt, [-1e3 * f64::tan(0.1), 3.0 + 1e3 * f64::tan(0.02)]);
        let taken = plan.run(&Engine::cpu(Precision::F64), &unwatched).unwrap();
        let data = taken.to_data_set(&plan, true, Precision::F64).unwrap();
        let names: Vec<_> = data.iter().map(|variable| variable.name().to_string()).collect();
        assert_eq!(names.join(" "), "image standard_error_image wave");
        let image = data.iter().next().unwrap();
        assert_eq!(
            image.coordinates().iter().map(|axis| axis.name()).collect::<Vec<_>>(),
            ["defocus", "thickness", "x", "y"]
        );
        let Some(TypedArray::F64(image)) = image.array() else {
            unreachable!("of double precision")
        };
        assert_eq!(image.shape(), [2, 2, 48, 32]);
        assert_eq!(image[[1, 0, 5, 7]], taken.mean[[1, 0, 7, 5]]);
        let single = taken.to_data_set(&plan, true, Precision::F32).unwrap();
        let wave = single.iter().last().unwrap();
        assert!(matches!(wave.array(), Some(TypedArray::C32(wave)) if wave.shape() == [2, 48, 32]));
        assert_eq!(taken.to_data_set(&plan, false, Precision::F32).unwrap().iter().count(), 2);
        let one = WAVE.replace("[0.0, -400.0]", "-400.0").replace("[2.8]", "[]");
        let plan = SampleFile::from_toml(&one, "book/systems/small.toml").unwrap().hrtem().unwrap();
        let taken = plan.run(&Engine::cpu(Precision::F64), &unwatched).unwrap();
        let data = taken.to_data_set(&plan, true, Precision::F64).unwrap();
        assert!(data.iter().all(|variable| variable.shape() == [48, 32]));
    }

    #[test]
    fn complaints_about_micrographs_name_their_line() {
        let said = |from: &str, to: &str| {
            assert!(WAVE.contains(from));
            let text = WAVE.replace(from, to);
            let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
            file.hrtem().err().unwrap().to_string()
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
