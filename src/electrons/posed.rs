// Tangled from book/src/posed-scans.md: edit there, or here and run cargo tangle stitch.
//! From a sample file to the plan of a scan, and from its readings to signals.

// What posed scans stand on
use super::beam::{Aberration, Aberrations, Beam, Probe};
use super::detector::{Annulus, DetectorOptions, PatternOptions, Segmented};
use super::prism::Prism;
use super::sample_file::{Algorithm, SampleFile, Sampling};
use super::scan::{Scan, StemMethod, StemOptions, StemPlan, StemReadings};
use super::wave_grid::WaveGrid;
use crate::error::{Error, Invalid, accept};
use crate::files::signals::{Axis, Sample, Signal, Signals};
use crate::numerics::real::Real;
use crate::specimen::Slicing;
use ndarray::{Array2, ArrayD, ArrayView2, s};

// Pose a sample file
impl SampleFile {
    /// The scan that the file describes.
    ///
    /// # Errors
    /// [`Error::Read`] where the crystal's file cannot be read, and [`Error::SystemFile`] with the line that makes no sense.
    ///
    /// ```
    /// use lenslet::electrons::sample_file::SampleFile;
    /// let plan = SampleFile::from_file("book/systems/silicon-stem.toml")?.plan()?;
    /// assert_eq!((plan.options().scan.counts(), plan.options().slicing.count()), ([16, 16], 40));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn plan(&self) -> Result<StemPlan, Error> {
        let specimen = self.specimen()?;
        let [x, y, z] = specimen.cell();
        let refuse = |table: &'static str| move |invalid| self.refuse(table, invalid);
        let factor = match self.method.algorithm {
            Algorithm::Prism => self.method.interpolation,
            Algorithm::Multislice => [1; 2],
        };
        let grid = match self.potential.sampling {
            Sampling::Points(points) => WaveGrid::new(points, [x, y]),
            Sampling::Pixel(pixel) => WaveGrid::with_pixel(pixel, [x, y], factor),
        };
        let grid = grid.map_err(refuse("potential"))?;
        let slicing =
            Slicing::new(z, self.potential.slice_thickness).map_err(refuse("potential"))?;
        let probe = self.probe().map_err(refuse("beam"))?;
        // Check the probe on its grid
        let method = match self.method.algorithm {
            Algorithm::Multislice => StemMethod::Multislice,
            Algorithm::Prism => {
                StemMethod::Prism { factor, refocus: 0.0, margin: self.method.margin }
            }
        };
        probe.wave(&grid).map_err(refuse("beam"))?;
        if let StemMethod::Prism { factor, margin, .. } = method {
            Prism::new(grid, factor, &probe, margin).map_err(refuse("method"))?;
        }
        let window = self.scan.window.unwrap_or([[0.0, x], [0.0, y]]);
        let scan = Scan::new(window, self.scan.step).map_err(refuse("scan"))?;
        let options = StemOptions {
            grid,
            ends: vec![slicing.count()],
            slicing,
            model: self.potential.model,
            factors: self.potential.factors,
            bound: self.potential.bound,
            phonons: self.phonons,
            probe,
            defoci: self.beam.defocus.clone(),
            scan,
            method,
            detectors: self.detectors(),
        };
        StemPlan::new(specimen, options).map_err(refuse("detector"))
    }

    // The probe and detectors of a sample file
    /// The probe, without a defocus: those of a series are kept apart.
    fn probe(&self) -> Result<Probe, Invalid> {
        let beam = Beam::new(self.beam.energy_kev)?;
        let terms = self.beam.aberrations.iter().map(|term| Aberration {
            order: term.m as u32,
            fold: term.n as u32,
            magnitude: term.magnitude,
            angle: term.angle_deg.to_radians(),
        });
        let (c3, c5, terms) = (self.beam.c3, self.beam.c5, terms.collect());
        let aberrations = Aberrations { defocus: 0.0, c3, c5, terms };
        Ok(Probe { beam, semi_angle: self.beam.semi_angle, aberrations, tilt: self.beam.tilt })
    }

    /// What is read of each wave.
    fn detectors(&self) -> DetectorOptions {
        let table = &self.detector;
        let annuli =
            table.annuli.iter().map(|&[inner, outer]| Annulus { inner, outer, exact: false });
        let segmented = table.segmented.iter().map(|segmented| Segmented {
            inner: segmented.inner,
            outer: segmented.outer,
            sectors: segmented.sectors,
            rotation: segmented.rotation_deg.to_radians(),
        });
        DetectorOptions {
            bin: table.bin,
            annuli: annuli.collect(),
            segmented: segmented.collect(),
            centre_of_mass: table.centre_of_mass,
            pattern: table
                .four_d
                .map(|four_d| PatternOptions { crop: four_d.crop, bin: four_d.bin }),
        }
    }
}

// Signals of a scan
impl StemPlan {
    /// The readings as calibrated signals: `annular` (x, y, ring), `annulus_0`, … (x, y), `segmented_1`, … (x, y, sector), `centre_of_mass` (x, y, axis) \[1/Å\] and `four_d` (x, y, q_x, q_y), and where phonons have been averaged
    /// `standard_error` of the rings; each once for each defocus, the second with `_2` behind its name. Numbers are in the precision `T`.
    ///
    /// # Errors
    /// `Invalid` where readings are not of this whole plan; `NotFinite` where one is no number.
    pub fn signals<T: Real + Sample>(
        &self,
        readings: &StemReadings,
    ) -> Result<Signals<'static>, Error> {
        let whole = readings.places == (0..self.places());
        accept(whole, "readings", &readings.places, "readings of all places")?;
        let (mut signals, values) = (Signals::default(), self.detectors().values());
        let errors = readings.standard_error();
        for d in 0..self.options().defoci.len() {
            let here = s![.., d * values..(d + 1) * values];
            let name = |name: &str| if d == 0 { name.into() } else { format!("{name}_{}", d + 1) };
            let all = Columns { plan: self, values: readings.mean.slice(here) };
            all.add_to::<T>(&mut signals, &name)?;
            if let Some(errors) = &errors {
                let errors = Columns { plan: self, values: errors.slice(here) };
                signals.add(errors.rings::<T>(&name("standard_error"))?)?;
            }
        }
        Ok(signals)
    }
}

// Columns of readings
/// Columns of readings of one defocus, (place, value).
struct Columns<'a> {
    plan: &'a StemPlan,
    values: ArrayView2<'a, f64>,
}

impl Columns<'_> {
    /// Columns from `first`, with the places along x and y and what else `shape` says.
    fn signal<T: Real + Sample>(
        &self,
        name: &str,
        first: usize,
        shape: &[usize],
        axes: Vec<Axis>,
    ) -> Result<Signal<'static>, Error> {
        let scan = &self.plan.options().scan;
        let width = shape.iter().product::<usize>();
        let values = self.values.slice(s![.., first..first + width]).mapv(T::of);
        let [nx, ny] = scan.counts();
        let shape = [&[nx, ny], shape].concat();
        let expected = || Invalid::new(name, values.len(), format!("{shape:?} numbers"));
        let array = ArrayD::from_shape_vec(shape.clone(), values.iter().copied().collect());
        let [from, step] = [scan.place(0), scan.step()];
        let places = ["x", "y"].into_iter().zip(from.into_iter().zip(step));
        let places = places.map(|(name, (from, step))| Axis::navigation(name, "Å", from, step));
        let all = places.chain(axes.into_iter().map(Ok)).collect::<Result<_, _>>()?;
        Signal::new(name, array.map_err(|_| expected())?, all)
    }

    /// The rings.
    fn rings<T: Real + Sample>(&self, name: &str) -> Result<Signal<'static>, Error> {
        let detectors = self.plan.detectors();
        let bin = detectors.options().bin;
        let axis = Axis::signal("angle", "mrad", bin / 2.0, bin)?;
        self.signal::<T>(name, 0, &[detectors.rings()], vec![axis])
    }

    // Add all columns to signals
    /// Adds everything that was read, under names made by `name`.
    fn add_to<T: Real + Sample>(
        &self,
        signals: &mut Signals<'static>,
        name: &dyn Fn(&str) -> String,
    ) -> Result<(), Error> {
        let (detectors, options) = (self.plan.detectors(), self.plan.detectors().options());
        signals.add(self.rings::<T>(&name("annular"))?)?;
        let mut next = detectors.rings() + 2;
        for k in 0..options.annuli.len() {
            let annulus = name(&format!("annulus_{k}"));
            signals.add(self.signal::<T>(&annulus, next + k, &[], vec![])?)?;
        }
        next += options.annuli.len();
        for (k, segmented) in options.segmented.iter().enumerate() {
            let axis = Axis::signal("sector", "", 0.0, 1.0)?;
            let title = name(&format!("segmented_{}", k + 1));
            signals.add(self.signal::<T>(&title, next, &[segmented.sectors], vec![axis])?)?;
            next += segmented.sectors;
        }
        if options.centre_of_mass {
            signals.add(self.centre_of_mass::<T>(&name("centre_of_mass"), next)?)?;
            next += 2;
        }
        if let Some([x, y]) = detectors.pattern_axes() {
            signals.add(self.patterns::<T>(&name("four_d"), next, [x, y])?)?;
        }
        Ok(())
    }

    // Centres of mass and patterns as signals
    /// Centres of mass from the moments in columns `first` and `first` + 1.
    fn centre_of_mass<T: Real + Sample>(
        &self,
        name: &str,
        first: usize,
    ) -> Result<Signal<'static>, Error> {
        let total = self.values.column(self.plan.detectors().rings() + 1);
        let mut centres = self.values.slice(s![.., first..first + 2]).to_owned();
        for (mut centre, total) in centres.outer_iter_mut().zip(total) {
            centre.mapv_inplace(|moment| if *total > 0.0 { moment / total } else { 0.0 });
        }
        let axis = Axis::labelled("axis", &["x", "y"])?;
        let own = Columns { plan: self.plan, values: centres.view() };
        own.signal::<T>(name, 0, &[2], vec![axis])
    }

    /// Patterns from column `first`.
    fn patterns<T: Real + Sample>(
        &self,
        name: &str,
        first: usize,
        [x, y]: [&[f64]; 2],
    ) -> Result<Signal<'static>, Error> {
        let mut turned = Array2::zeros((self.values.nrows(), x.len() * y.len()));
        for (mut to, from) in turned.outer_iter_mut().zip(self.values.outer_iter()) {
            for (k, value) in from.iter().skip(first).take(x.len() * y.len()).enumerate() {
                to[k % x.len() * y.len() + k / x.len()] = *value;
            }
        }
        let axis = |name: &str, q: &[f64]| {
            let step = if q.len() > 1 { q[1] - q[0] } else { 1.0 };
            Axis::signal(name, "1/Å", q[0], step)
        };
        let axes = vec![axis("q_x", x)?, axis("q_y", y)?];
        let own = Columns { plan: self.plan, values: turned.view() };
        own.signal::<T>(name, 0, &[x.len(), y.len()], axes)
    }
}

// Tests of posed scans
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Engine, silent};
    use crate::files::signals::Samples;
    use crate::numerics::Precision;

    const SMALL: &str = "sample = { file = 'SI100.XYZ' }\nphonons = { configurations = 2, seed = 3 }\n[potential]\ngrid = [48, 32]\nslice_thickness = 1.3575\n\
         [beam]\nenergy_kev = 100.0\nsemi_angle = 20.0\ndefocus = [0.0, 40.0]\n[scan]\nwindow = [[0.0, 5.43], [0.0, 2.0]]\nstep = [1.0, 0.7]\n\
         [detector]\nbin = 4.0\nannuli = [[20.0, 40.0]]\ncentre_of_mass = true\nfour_d = { bin = 1 }\n";

    // Sample files become scans and signals
    #[test]
    fn sample_files_become_scans_and_signals() {
        let plan = SampleFile::from_toml(SMALL, "book/systems/small.toml").unwrap().plan().unwrap();
        assert_eq!((plan.options().scan.counts(), plan.configurations()), ([6, 3], 2));
        let mut readings = plan.begin(0..plan.places()).unwrap();
        let engine = Engine::cpu(Precision::F64);
        plan.run(&engine, &mut readings, &silent, &mut |_| Ok(())).unwrap();
        let signals = plan.signals::<f64>(&readings).unwrap();
        let found: Vec<_> = signals
            .items()
            .map(|signal| (signal.name(), signal.samples().shape().to_vec()))
            .collect();
        let (rings, [x, y]) = (plan.detectors().rings(), plan.detectors().pattern_axes().unwrap());
        let names = ["annular", "annulus_0", "centre_of_mass", "four_d", "standard_error"];
        let shapes = [vec![rings], vec![], vec![2], vec![x.len(), y.len()], vec![rings]];
        assert!(x.len() != y.len());
        for (k, (name, shape)) in found.iter().enumerate() {
            let suffix = if k < 5 { "" } else { "_2" };
            assert_eq!(*name, format!("{}{suffix}", names[k % 5]));
            assert_eq!(*shape, [&[6, 3], &shapes[k % 5][..]].concat());
        }
        assert_eq!(found.len(), 10);
        // The first moments of a whole pattern, q_x before q_y, are the centre of mass
        let values = |name: &str| {
            let signal = signals.items().find(|signal| signal.name() == name).unwrap();
            let Samples::F64(values) = signal.samples() else {
                unreachable!("of double precision")
            };
            values.clone()
        };
        let (centres, patterns) = (values("centre_of_mass"), values("four_d"));
        for place in [[0, 0], [1, 0], [4, 2]] {
            let mut sums = [0.0; 3];
            for (i, qx) in x.iter().enumerate() {
                for (j, qy) in y.iter().enumerate() {
                    let light = patterns[[place[0], place[1], i, j]];
                    [1.0, *qx, *qy].iter().zip(&mut sums).for_each(|(q, sum)| *sum += q * light);
                }
            }
            for axis in 0..2 {
                let centre = centres[[place[0], place[1], axis]];
                assert!((sums[axis + 1] / sums[0] - centre).abs() < 1e-12, "{place:?}: {centre}");
            }
        }
        assert!(centres[[1, 0, 0]].abs() > 1e-6 && centres[[1, 0, 0]] != centres[[1, 0, 1]]);
        let part = plan.begin(0..3).unwrap();
        assert!(plan.signals::<f64>(&part).is_err());
    }

    // Complaints name their table
    #[test]
    fn complaints_name_their_table() {
        let said = |from: &str, to: &str| {
            assert!(SMALL.contains(from));
            let text = SMALL.replace(from, to);
            let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
            file.plan().err().unwrap().to_string()
        };
        let wide = said("semi_angle = 20.0", "semi_angle = 120.0");
        assert!(
            wide.starts_with(
                "book/systems/small.toml:8: beam.semi_angle = 120.0: expected at most"
            ),
            "{wide}"
        );
        let thick = said("slice_thickness = 1.3575", "slice_thickness = 7.0");
        assert!(thick.contains("potential.slice_thickness"), "{thick}");
        let odd = said("[scan]", "[method]\nalgorithm = \"prism\"\ninterpolation = 5\n[scan]");
        assert!(odd.contains("method.interpolation"), "{odd}");
        let beyond = said("[[20.0, 40.0]]", "[[20.0, 600.0]]");
        assert!(beyond.contains("detector."), "{beyond}");
    }
}
