// Tangled from book/src/posed-scans.md: edit there, or here and run cargo tangle stitch.
//! From a sample file to the plan of a scan, and from its readings to a data set.

// Imports of the scan setup
use super::beam::{Aberration, Aberrations, Beam, Probe};
use super::detector::{Annulus, DetectorOptions, PatternOptions, Segmented};
use super::postprocess::Finishing;
use super::prism::{MOST_LOST, Prism, window_fault};
use super::sample_file::{Algorithm, PreparedSpecimen, SampleFile, WaveSampling};
use super::scan::{Scan, StemMethod, StemOptions, StemPlan, StemReadings, focused};
use super::scan_images::{Edge, integrated};
use super::wave_grid::WaveGrid;
use crate::data::{Coordinate, DataSet, Element as ArrayElement, Variable};
use crate::error::{Error, Invalid, accept, is_ordered, positive};
use crate::files::Instrument;
use crate::numerics::real::Real;
use crate::specimen::{Element, Slicing};
use ndarray::{Array2, Array3, ArrayD, ArrayView1, ArrayView2, Axis as NdAxis};
use std::ops::Range;

/// How far the [beams](Prism) of a sample file that interpolates reach beyond the semi-angle, unless it says otherwise \[mrad\].
const MARGIN: f64 = 2.5;

// Pose a sample file
impl SampleFile {
    // The plan of a sample file
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
        Ok(self.plan_with_summary()?.0)
    }

    // A plan with its summary
    /// The scan that the file describes, and what is reported of its specimen and its samples.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_with_summary(&self) -> Result<(StemPlan, SampleSummary), Error> {
        let refuse = |table: &'static str| move |invalid| self.refuse_in(table, invalid);
        // Choose the method of a scan
        if self.method.algorithm == Algorithm::Hrtem {
            let expected = "\"multislice\" or \"prism\", which have probes that scan";
            return Err(refuse("method")(Invalid::new("algorithm", "\"hrtem\"", expected)));
        }
        let ground = self.ground()?;
        let Ground { prepared, grid, slicing, ends, factor, mut warnings } = ground;
        let (specimen, [x, y, _]) = (prepared.specimen.clone(), prepared.specimen.cell());
        let probe = self.probe().map_err(refuse("beam"))?;
        // Check the probe on its grid
        for defocus in &self.beam.defocus {
            let probe = focused(&probe, *defocus);
            probe.check(&grid).map_err(refuse("beam"))?;
            probe.check_sampling(&grid).map_err(refuse("beam"))?;
        }
        let method = match self.method.algorithm {
            Algorithm::Prism => {
                let (refocus, margin) = (self.method.refocus, self.margin(factor));
                StemMethod::Prism { factor, refocus, margin }
            }
            Algorithm::Multislice | Algorithm::Hrtem => StemMethod::Multislice,
        };
        if let StemMethod::Prism { factor, margin, .. } = method {
            Prism::new(grid, factor, &probe, margin).map_err(refuse("method"))?;
        }
        let (radius, sides) = (probe.diffraction_radius(), [x, y]);
        for axis in (0..2).filter(|&axis| radius > sides[axis] / 2.0) {
            warnings.push(format!(
                "a probe of {} mrad has a radius of {radius:.3} Å to its first dark ring, and the cell of {:.3} Å along {} holds {:.3} Å: it overlaps with its images",
                probe.semi_angle, sides[axis], ["x", "y"][axis], sides[axis] / 2.0
            ));
        }
        let window = self.scan.window.unwrap_or([[0.0, x], [0.0, y]]);
        let scan = Scan::new(window, self.scan.step).map_err(refuse("scan"))?;
        // Options of a posed scan
        let options = StemOptions::new(grid, slicing, probe, scan)
            .potential(self.potential.options)
            .phonons(self.phonons)
            .tilt(self.sample.tilt)
            .defoci(self.defoci().map_err(refuse("beam"))?)
            .method(method)
            .detectors(self.detectors())
            .ends(ends);
        let plan = StemPlan::new(specimen, options).map_err(refuse("detector"))?;
        let largest = plan.detectors().widest();
        let summary = SampleSummary::new(prepared, self, (grid, slicing, largest), warnings);
        Ok((plan, summary))
    }

    // Imports of any run
    /// The specimen, its grid and its slices, and the planes behind which waves are read.
    pub(super) fn ground(&self) -> Result<Ground, Error> {
        let prepared = self.prepared_specimen()?;
        let [x, y, z] = prepared.specimen.cell();
        let refuse = |table: &'static str| move |invalid| self.refuse_in(table, invalid);
        let slicing =
            Slicing::new(z, self.potential.slice_thickness).map_err(refuse("potential"))?;
        let ends = self.ends(&slicing).map_err(refuse("method"))?;
        let depths = ends.iter().map(|&end| (end as f64 * slicing.thickness()).min(z));
        let depths: Vec<f64> = depths.collect();
        let (factor, warnings) = match self.method.algorithm {
            Algorithm::Prism => self.interpolation([x, y], &depths).map_err(refuse("method"))?,
            Algorithm::Multislice | Algorithm::Hrtem => ([1; 2], Vec::new()),
        };
        let grid = self.grid([x, y], factor).map_err(refuse("potential"))?;
        // Grid of another sampling
        let grid_of = |sampling: WaveSampling| -> Result<WaveGrid, Error> {
            let mut other = self.clone();
            other.potential.sampling = sampling;
            let factor = match self.method.algorithm {
                Algorithm::Prism => other.interpolation([x, y], &depths)?.0,
                Algorithm::Multislice | Algorithm::Hrtem => [1; 2],
            };
            Ok(other.grid([x, y], factor)?)
        };
        let beyond = self.check_kept_angles(&grid, factor, &grid_of)?;
        let warnings = prepared.warnings.iter().cloned().chain(warnings).chain(beyond).collect();
        Ok(Ground { prepared, grid, slicing, ends, factor, warnings })
    }

    // Grid of a sampling
    /// The grid of waves across a cell of these sides \[Å\], for PRISM with a factor.
    fn grid(&self, sides: [f64; 2], factor: [usize; 2]) -> Result<WaveGrid, Invalid> {
        match self.potential.sampling {
            WaveSampling::Points(points) => WaveGrid::new(points, sides),
            WaveSampling::Pixel(pixel) => WaveGrid::with_pixel(pixel, sides, factor),
            WaveSampling::Automatic => self.automatic_grid(sides, factor),
        }
    }

    // The table of a key
    /// A complaint about a key, in the table that it belongs to; in `table` where it may be in several.
    pub(super) fn refuse_in(&self, table: &'static str, invalid: Invalid) -> Error {
        let key = invalid.quantity.split(['.', '[', ' ']).next().unwrap_or_default();
        let table = match key {
            "energy_kev" | "semi_angle" | "tilt" | "defocus" | "c3" | "c5" | "aberrations" => {
                "beam"
            }
            "interpolation" | "margin" | "refocus" | "thicknesses" | "algorithm" => "method",
            "grid" | "pixel" | "slice_thickness" | "bound" => "potential",
            "window" | "step" => "scan",
            _ => table,
        };
        self.refuse(table, invalid)
    }

    // Choose the interpolation
    /// Interpolation of PRISM across a cell of these sides \[Å\], behind these depths \[Å\]; and what is wrong with it, where that is a warning.
    fn interpolation(
        &self,
        sides: [f64; 2],
        depths: &[f64],
    ) -> Result<([usize; 2], Vec<String>), Invalid> {
        let probe = self.probe()?;
        positive("semi_angle", probe.semi_angle)?;
        probe.aberrations.check()?;
        let rules = Rules { file: self, sides, radius: self.widest_probe(&probe, depths), probe };
        let asked = self.method.interpolation;
        let factor = asked.unwrap_or_else(|| rules.largest([4; 2]));
        // Reject an interpolation or warn of it
        let Some((key, fault)) = rules.fault(factor) else { return Ok((factor, Vec::new())) };
        if self.method.lenient && factor == [1, 1] {
            return Ok((factor, Vec::new()));
        }
        if self.method.lenient {
            return Ok((factor, vec![format!("method.{key} = {factor:?}: {fault}")]));
        }
        if key == "margin" {
            let margin = self.method.margin.unwrap_or_default();
            return Err(Invalid::new(key, margin, fault));
        }
        let works = rules.largest(factor);
        let remedy = format!("at most {works:?} here: {fault}; or a larger tile");
        Err(Invalid::new(key, format!("{factor:?}"), remedy))
    }

    // The widest probe of a run
    /// The largest [extent](Probe::extent) \[Å\] of the probe at all foci and depths, through vacuum, in the plane in which windows are cut.
    fn widest_probe(&self, probe: &Probe, depths: &[f64]) -> [f64; 2] {
        let mut widest = [0.0f64; 2];
        for defocus in &self.beam.defocus {
            for depth in depths {
                let extent = focused(probe, defocus + depth - self.method.refocus).extent();
                widest = [0, 1].map(|axis| widest[axis].max(extent.radius[axis]));
            }
        }
        widest
    }

    /// How far beams reach beyond the semi-angle \[mrad\].
    fn margin(&self, factor: [usize; 2]) -> Option<f64> {
        self.method.margin.or((factor != [1, 1]).then_some(MARGIN))
    }

    // Planes behind which waves are read
    /// Numbers of slices in front of the planes that are asked for, in rising order, that of all slices the last.
    fn ends(&self, slicing: &Slicing) -> Result<Vec<usize>, Invalid> {
        let (count, slice, height) = (slicing.count(), slicing.thickness(), slicing.height());
        let mut ends = vec![count];
        for (k, &thickness) in self.method.thicknesses.iter().enumerate() {
            let slices = (thickness / slice).round();
            let good = slices >= 1.0 && thickness <= height * (1.0 + 1e-9);
            let expected = format!(
                "a length in Å from half a slice, {}, to the height of the specimen, {height}",
                0.5 * slice
            );
            accept(good, &format!("thicknesses[{k}]"), thickness, &expected)?;
            ends.push((slices as usize).min(count));
        }
        ends.sort_unstable();
        ends.dedup();
        let expected = "at most 999 planes between the slices";
        accept(ends.len() <= 1000, "thicknesses", ends.len(), expected)?;
        Ok(ends)
    }

    // The probe and detectors of a sample file
    /// The probe, without a defocus: those of a series are kept apart.
    pub(super) fn probe(&self) -> Result<Probe, Invalid> {
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

    /// The defoci \[Å\] in an order in which they rise or fall: that of the file, if it is one.
    ///
    /// # Errors
    /// `Invalid` where two are the same.
    pub(super) fn defoci(&self) -> Result<Vec<f64>, Invalid> {
        let mut all = self.beam.defocus.clone();
        if !is_ordered(&all) {
            all.sort_by(f64::total_cmp);
        }
        accept(
            is_ordered(&all),
            "defocus",
            &self.beam.defocus,
            "defoci that differ from each other",
        )?;
        Ok(all)
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
            rings: table.bins,
            annuli: annuli.collect(),
            segmented: segmented.collect(),
            centre_of_mass: table.centre_of_mass || table.integrated_centre,
            pattern: table
                .four_d
                .map(|four_d| PatternOptions { crop: four_d.crop, bin: four_d.bin }),
        }
    }

    // What is done to readings of a sample file
    /// What is done to the readings of a scan that the file describes.
    pub fn finishing(&self, plan: &StemPlan) -> Finishing {
        let (scan, cell) = (&plan.options().scan, plan.tiled_specimen().cell());
        let whole = |axis: usize| {
            let period = cell[axis] / self.sample.tile[axis] as f64;
            let (step, count) = (scan.step()[axis], scan.counts()[axis] as f64);
            let periods = (count * step / period).round();
            periods >= 1.0 && (count * step - periods * period).abs() <= 0.05 * step
        };
        let edge = if whole(0) && whole(1) { Edge::Periodic } else { Edge::Mirrored };
        Finishing {
            source_size: self.scan.source_size,
            dose: self.detector.dose,
            seed: self.detector.dose_seed,
            edge,
            integrated_centre: self.detector.integrated_centre,
        }
    }
}

// What waves of a sample file pass
/// What any kind of run stands on.
pub(super) struct Ground {
    pub prepared: PreparedSpecimen,
    pub grid: WaveGrid,
    pub slicing: Slicing,
    /// Numbers of slices behind which waves are read.
    pub ends: Vec<usize>,
    /// Interpolation of PRISM.
    pub factor: [usize; 2],
    pub warnings: Vec<String>,
}

// Rules of interpolation
/// What interpolation must obey.
struct Rules<'a> {
    file: &'a SampleFile,
    sides: [f64; 2],
    probe: Probe,
    /// Geometric radius of the probe along x and y \[Å\].
    radius: [f64; 2],
}

impl Rules<'_> {
    // Faults along one axis
    /// What is wrong with a factor along an axis.
    fn window(&self, axis: usize, factor: usize) -> Option<String> {
        let length = self.sides[axis] / factor as f64;
        let fault = window_fault(length, axis, &self.probe, self.radius[axis])?;
        (factor > 1).then(|| format!("a factor of {factor} is too large, as {fault}"))
    }

    /// Whether a factor divides the samples along an axis, where these are given.
    fn divides(&self, axis: usize, factor: usize) -> bool {
        match self.file.potential.sampling {
            WaveSampling::Points(points) => (points[axis] / 4).is_multiple_of(factor),
            WaveSampling::Pixel(_) | WaveSampling::Automatic => true,
        }
    }

    // The fault of both factors
    /// The key that is at fault with both factors, and why; factors that do not divide the samples are left to [`Prism::new`].
    fn fault(&self, factor: [usize; 2]) -> Option<(&'static str, String)> {
        if (0..2).any(|axis| !self.divides(axis, factor[axis])) {
            return None;
        }
        if let Some(fault) = (0..2).find_map(|axis| self.window(axis, factor[axis])) {
            return Some(("interpolation", fault));
        }
        let grid = self.file.grid(self.sides, factor).ok()?;
        let margin = self.file.margin(factor);
        let lost = Prism::lost(&grid, factor, &self.probe, margin).ok()?;
        let key = if self.file.method.margin.is_some() { "margin" } else { "interpolation" };
        let fault = format!(
            "beams within {} mrad of the semi-angle, of which {:.2} % of the probe's electrons are left out, and 1 % may be; a larger margin takes all",
            margin.unwrap_or_default(),
            100.0 * lost
        );
        (lost > MOST_LOST).then_some((key, fault))
    }

    // The largest interpolation that works
    /// The largest factors up to `most` with which nothing is wrong, or 1 along both axes.
    fn largest(&self, most: [usize; 2]) -> [usize; 2] {
        let along = |axis: usize, most: usize| {
            let good = |&f: &usize| self.divides(axis, f) && self.window(axis, f).is_none();
            (1..=most).rev().find(good).unwrap_or(1)
        };
        let mut factor = [0, 1].map(|axis| along(axis, most[axis]));
        while factor != [1, 1] && self.fault(factor).is_some() {
            let larger = usize::from(factor[1] > factor[0]);
            factor[larger] = along(larger, factor[larger] - 1);
        }
        factor
    }
}

// What is reported of a sample
/// What is reported of the specimen and the samples of a run.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SampleSummary {
    /// Sides of the specimen \[Å\]: x, y, and the thickness.
    pub cell: [f64; 3],
    /// Cells along these.
    pub tile: [usize; 3],
    /// Atoms of each element, each counted by its occupancy.
    pub atoms: Vec<(Element, f64)>,
    /// Atoms that a zone axis merged with others, if one was asked for.
    pub merged: Option<usize>,
    /// Samples along x and y.
    pub samples: [usize; 2],
    /// Sides of a pixel \[Å\].
    pub pixel: [f64; 2],
    /// Slices.
    pub slices: usize,
    /// The largest angle that the samples keep along both axes \[mrad\].
    pub largest_angle: f64,
    /// The key and the angle for which the pixel was [chosen](https://lenslet.github.io/lenslet/kept-angles.html), if the file states none and it is below 0.1 Å.
    pub pixel_for: Option<String>,
    /// What may be wrong.
    pub warnings: Vec<String>,
}

impl SampleSummary {
    /// The summary of the specimen of a file, with its grid, its slices, its largest angle \[mrad\], and warnings.
    pub(super) fn new(
        prepared: PreparedSpecimen,
        file: &SampleFile,
        (grid, slicing, largest_angle): (WaveGrid, Slicing, f64),
        warnings: Vec<String>,
    ) -> Self {
        let (specimen, merged) = (prepared.specimen, prepared.merged);
        let (cell, atoms) = (specimen.cell(), specimen.composition().into_iter().collect());
        let (samples, pixel, slices) = (grid.points(), grid.pixel(), slicing.count());
        let (tile, pixel_for) = (file.sample.tile, file.reason_of_pixel(&grid));
        Self {
            cell,
            tile,
            atoms,
            merged,
            samples,
            pixel,
            slices,
            largest_angle,
            pixel_for,
            warnings,
        }
    }
}

// Data set of a scan
impl StemReadings {
    /// The readings of a `plan` as a data set with coordinates, [finished](Finishing): `annular` (x, y, ring), `annulus_0`, … (x, y), `segmented_1`, … (x, y, sector), `centre_of_mass` (x, y, axis) \[1/Å\], `idpc` (x, y) \[rad\] and `four_d` (x, y, q_x, q_y), and where phonons have been averaged
    /// `standard_error` of the rings, `standard_error_annulus_0` and so on of the others but `idpc`; with an axis of `defocus` before those, and of `thickness` after that, where there are
    /// several \[Å\]. Numbers are in the precision `T`.
    ///
    /// # Errors
    /// `Invalid` where readings are not of this whole plan, or a centre of mass is to be integrated that was not read; `NotFinite` where one is no number.
    pub fn to_data_set<T: Real + ArrayElement>(
        &self,
        plan: &StemPlan,
        finishing: &Finishing,
    ) -> Result<DataSet<'static>, Error> {
        let (finished, options) = (finishing.finish(plan, self)?, plan.options());
        let (values, errors) = (plan.detectors().values(), finished.standard_error());
        let series = series(&options.defoci, &options.ends, &options.slicing)?;
        // Add means and errors to a data set
        let means = finished.mean.axis_chunks_iter(NdAxis(1), values).collect();
        let all = Columns { plan, means, series: &series };
        let mut data = DataSet::default();
        all.add_to::<T>(&mut data, finishing)?;
        if let Some(errors) = errors {
            let errors: Vec<_> = errors.axis_chunks_iter(NdAxis(1), values).collect();
            all.add_errors_to::<T>(&mut data, &errors)?;
        }
        note_series(&mut data, &series)?;
        plan.instrument().add_to(&mut data)?;
        Ok(data)
    }
}

// The instrument of a scan
impl StemPlan {
    /// The beam of this scan, as files describe it.
    fn instrument(&self) -> Instrument {
        let Probe { beam, semi_angle, .. } = &self.options().probe;
        let (beam_energy, convergence_angle) = (beam.energy_kev(), *semi_angle);
        Instrument { beam_energy, convergence_angle, scanned: true }
    }
}

// Notes of a series
/// The axes of a series of foci and planes \[Å\], of those of which there are several.
pub(super) fn series(
    defoci: &[f64],
    ends: &[usize],
    slicing: &Slicing,
) -> Result<Vec<Coordinate>, Invalid> {
    let thickness = |&end: &usize| (end as f64 * slicing.thickness()).min(slicing.height());
    let thicknesses: Vec<f64> = ends.iter().map(thickness).collect();
    let all = [("defocus", defoci), ("thickness", &thicknesses[..])].into_iter();
    all.filter(|(_, all)| all.len() > 1)
        .map(|(name, all)| Coordinate::series(name, "Å", all))
        .collect()
}

/// Notes the values of a series as facts, for readers who do not look at axes.
pub(super) fn note_series(data: &mut DataSet, series: &[Coordinate]) -> Result<(), Invalid> {
    for axis in series.iter().filter(|axis| axis.values().len() <= 1000) {
        let key = if axis.name() == "defocus" { "defoci" } else { "thicknesses" };
        data.set_attribute(key, axis.values())?;
    }
    Ok(())
}

// Columns of readings
/// Mean readings, (place, value) for each defocus and for each of those for each plane.
struct Columns<'a> {
    plan: &'a StemPlan,
    means: Vec<ArrayView2<'a, f64>>,
    /// Axes of foci and planes.
    series: &'a [Coordinate],
}

/// A variable's name, its columns in their order, and its dimensions.
struct SignalColumns {
    name: String,
    columns: Vec<usize>,
    axes: Vec<(Coordinate, usize)>,
}

impl Columns<'_> {
    // A variable of some columns
    /// A variable made of some columns of `values`, which have the layout of the means.
    fn variable<T: Real + ArrayElement>(
        &self,
        name: &str,
        part: &SignalColumns,
        values: &[ArrayView2<'_, f64>],
    ) -> Result<Variable<'static>, Error> {
        let (scan, mut axes) = (&self.plan.options().scan, self.series.to_vec());
        // Axes of a variable
        let mut shape: Vec<usize> = axes.iter().map(|axis| axis.values().len()).collect();
        shape.extend(scan.counts());
        for (axis, name) in ["x", "y"].into_iter().enumerate() {
            axes.push(Coordinate::navigation(name, "Å", scan.place(0)[axis], scan.step()[axis])?);
        }
        for (axis, count) in &part.axes {
            shape.push(*count);
            axes.push(axis.clone());
        }
        let row = |row: ArrayView1<'_, f64>| {
            part.columns.iter().map(|k| T::of(row[*k])).collect::<Vec<_>>()
        };
        let numbers: Vec<T> =
            values.iter().flat_map(|one| one.outer_iter().flat_map(row)).collect();
        let expected = || Invalid::new(name, values.len(), format!("readings for {shape:?}"));
        let array = ArrayD::from_shape_vec(&shape[..], numbers).map_err(|_| expected())?;
        Variable::new(name, array, axes)
    }

    // All parts of a row
    /// What a row has, but for the centre of mass.
    fn parts(&self) -> Result<Vec<SignalColumns>, Invalid> {
        let detectors = self.plan.detectors();
        let (layout, options) = (detectors.layout(), detectors.options());
        let per_mrad = self.plan.options().probe.beam.frequency(1.0);
        let angle = Coordinate::signal("angle", "mrad", options.bin / 2.0, options.bin)?;
        let rings = vec![(angle.also("q", "1/Å", per_mrad)?, layout.rings.len())];
        let part = |name: &str, columns: Range<usize>, axes| SignalColumns {
            name: name.into(),
            columns: columns.collect(),
            axes,
        };
        let mut parts = vec![part("annular", layout.rings.clone(), rings)];
        // Columns of annuli and segments
        for (k, column) in layout.annuli.clone().enumerate() {
            parts.push(part(&format!("annulus_{k}"), column..column + 1, vec![]));
        }
        for (k, sectors) in layout.segmented.iter().enumerate() {
            let axes = vec![(Coordinate::signal("sector", "", 0.0, 1.0)?, sectors.len())];
            parts.push(part(&format!("segmented_{}", k + 1), sectors.clone(), axes));
        }
        // Columns of a diffraction pattern
        if let Some([x, y]) = detectors.pattern_axes() {
            let columns = (0..layout.pattern.len())
                .map(|k| layout.pattern.start + k % y.len() * x.len() + k / y.len());
            let axes = vec![(frequencies("qx", x)?, x.len()), (frequencies("qy", y)?, y.len())];
            parts.push(SignalColumns { name: "four_d".into(), columns: columns.collect(), axes });
        }
        Ok(parts)
    }

    // Centres of mass and their errors
    /// Centres of mass \[1/Å\], (place, axis), if moments were read; or their errors, if those of the readings are given.
    fn centres(&self, errors: Option<&[ArrayView2<'_, f64>]>) -> Option<Vec<Array2<f64>>> {
        let layout = self.plan.detectors().layout();
        let first = (!layout.moments.is_empty()).then_some(layout.moments.start)?;
        let centre = |(n, mean): (usize, &ArrayView2<'_, f64>)| {
            let errors = errors.and_then(|errors| errors.get(n));
            Array2::from_shape_fn((mean.nrows(), 2), |(k, axis)| {
                let (mean, total) = (mean.row(k), mean[[k, layout.total]]);
                if total <= 0.0 {
                    return 0.0;
                }
                let centre = mean[first + axis] / total;
                errors.map_or(centre, |errors| {
                    (errors[[k, first + axis]] + centre.abs() * errors[[k, layout.total]]) / total
                })
            })
        };
        Some(self.means.iter().enumerate().map(centre).collect())
    }

    // Add all parts to a data set
    /// Adds everything that was read.
    fn add_to<T: Real + ArrayElement>(
        &self,
        data: &mut DataSet<'static>,
        finishing: &Finishing,
    ) -> Result<(), Error> {
        for part in self.parts()? {
            data.insert(self.variable::<T>(&part.name, &part, &self.means)?)?;
        }
        // Add centres of mass and their integral
        let centres = self.centres(None);
        let lacking = finishing.integrated_centre && centres.is_none();
        accept(!lacking, "integrated_centre", true, "a centre of mass that was read")?;
        let Some(centres) = centres else { return Ok(()) };
        let part = centre_part()?;
        data.insert(self.variable::<T>(&part.name, &part, &views(&centres))?)?;
        if finishing.integrated_centre {
            let phase = |centres: &Array2<f64>| self.integral(centres.view(), finishing.edge);
            let phases = centres.iter().map(phase).collect::<Result<Vec<_>, _>>()?;
            let part = SignalColumns { name: "idpc".into(), columns: vec![0], axes: vec![] };
            data.insert(self.variable::<T>(&part.name, &part, &views(&phases))?)?;
        }
        Ok(())
    }

    // Add standard errors to a data set
    /// Adds the standard errors of everything that was read.
    fn add_errors_to<T: Real + ArrayElement>(
        &self,
        data: &mut DataSet<'static>,
        errors: &[ArrayView2<'_, f64>],
    ) -> Result<(), Error> {
        for part in self.parts()? {
            let name = match &part.name[..] {
                "annular" => "standard_error".into(),
                other => format!("standard_error_{other}"),
            };
            data.insert(self.variable::<T>(&name, &part, errors)?)?;
        }
        let Some(centres) = self.centres(Some(errors)) else { return Ok(()) };
        let name = "standard_error_centre_of_mass";
        Ok(data.insert(self.variable::<T>(name, &centre_part()?, &views(&centres))?)?)
    }
    /// The [integral](integrated) of centres of mass (place, axis), as one column.
    fn integral(&self, centres: ArrayView2<'_, f64>, edge: Edge) -> Result<Array2<f64>, Invalid> {
        let scan = &self.plan.options().scan;
        let [nx, ny] = scan.counts();
        let field = Array3::from_shape_fn((ny, nx, 2), |(j, i, axis)| centres[[i * ny + j, axis]]);
        let phase = integrated(field.view(), scan.step(), edge)?;
        Ok(Array2::from_shape_fn((nx * ny, 1), |(k, _)| phase[[k % ny, k / ny]]))
    }
}

// Axes of parts
/// An axis of these frequencies \[1/Å\].
fn frequencies(name: &str, q: &[f64]) -> Result<Coordinate, Invalid> {
    Coordinate::signal(name, "1/Å", q[0], if q.len() > 1 { q[1] - q[0] } else { 1.0 })
}

fn views(all: &[Array2<f64>]) -> Vec<ArrayView2<'_, f64>> {
    all.iter().map(|one| one.view()).collect()
}

/// Centres of mass, in columns of their own.
fn centre_part() -> Result<SignalColumns, Invalid> {
    let axes = vec![(Coordinate::labelled("axis", &["x", "y"])?, 2)];
    Ok(SignalColumns { name: "centre_of_mass".into(), columns: vec![0, 1], axes })
}

// Tests of posed scans
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Engine;
    use crate::numerics::Precision;
    use crate::plan::Plan;
    use crate::watch::unwatched;

    const SMALL: &str = "sample = { file = 'SI100.XYZ' }\nphonons = { configurations = 2, seed = 3 }\n[potential]\ngrid = [48, 32]\nslice_thickness = 1.3575\n\
         [beam]\nenergy_kev = 100.0\nsemi_angle = 20.0\ndefocus = [0.0, 40.0]\n[scan]\nwindow = [[0.0, 5.43], [0.0, 2.0]]\nstep = [1.0, 0.7]\n\
         [detector]\nbin = 4.0\nannuli = [[20.0, 40.0]]\ncentre_of_mass = true\nfour_d = { bin = 1 }\n";

    // Sample files become scans and data sets
    /// A sample file of that text, its plan and its readings.
    fn scanned(text: &str) -> (SampleFile, StemPlan, StemReadings) {
        let file = SampleFile::from_toml(text, "book/systems/small.toml").unwrap();
        let plan = file.plan().unwrap();
        let readings = plan.run(&Engine::default(), &unwatched).unwrap();
        (file, plan, readings)
    }

    fn values(data: &DataSet, name: &str) -> ArrayD<f64> {
        data.array::<f64, ndarray::IxDyn>(name).unwrap()
    }

    #[test]
    fn sample_files_become_scans_and_signals() {
        let (_, plan, readings) = scanned(SMALL);
        assert_eq!((plan.options().scan.counts(), plan.configurations()), ([6, 3], 2));
        let data = readings.to_data_set::<f64>(&plan, &Finishing::default()).unwrap();
        let found: Vec<_> =
            data.iter().map(|variable| (variable.name(), variable.shape().to_vec())).collect();
        let (rings, [x, y]) = (plan.detectors().rings(), plan.detectors().pattern_axes().unwrap());
        let parts = ["annular", "annulus_0", "four_d", "centre_of_mass"];
        let shapes = [vec![rings], vec![], vec![x.len(), y.len()], vec![2]];
        assert!(x.len() != y.len());
        for (k, (name, shape)) in found.iter().enumerate() {
            let part = parts[k % 4];
            let kind = if k < 4 { part.into() } else { format!("standard_error_{part}") };
            assert_eq!(*name, kind.replace("_annular", ""));
            assert_eq!(*shape, [&[2, 6, 3], &shapes[k % 4][..]].concat());
        }
        assert_eq!(found.len(), 8);
        // Centres and errors of a scan as data
        let (centres, patterns) = (values(&data, "centre_of_mass"), values(&data, "four_d"));
        for place in [[0, 0], [1, 0], [4, 2]] {
            let mut sums = [0.0; 3];
            for (i, qx) in x.iter().enumerate() {
                for (j, qy) in y.iter().enumerate() {
                    let light = patterns[[0, place[0], place[1], i, j]];
                    [1.0, *qx, *qy].iter().zip(&mut sums).for_each(|(q, sum)| *sum += q * light);
                }
            }
            for axis in 0..2 {
                let centre = centres[[0, place[0], place[1], axis]];
                assert!((sums[axis + 1] / sums[0] - centre).abs() < 1e-12, "{place:?}: {centre}");
            }
        }
        let one = |axis: usize| centres[[0, 1, 0, axis]];
        assert!(one(0).abs() > 1e-6 && one(0) != one(1));
        let (_, once, first) = scanned(&SMALL.replace("configurations = 2", "configurations = 1"));
        let alone = first.to_data_set::<f64>(&once, &Finishing::default()).unwrap();
        assert!(alone.iter().all(|variable| !variable.name().starts_with("standard")));
        for (name, slack) in [("annulus_0", 1e-12), ("four_d", 1e-12), ("centre_of_mass", 0.03)] {
            let [mean, one] = [&data, &alone].map(|data| values(data, name));
            let (error, apart) =
                (values(&data, &format!("standard_error_{name}")), (one - mean).mapv(f64::abs));
            let most = error.iter().fold(0.0f64, |most, error| most.max(*error));
            assert!((&apart - &error).iter().all(|x| x.abs() < slack * most), "{name}");
            assert!(most > 1e-5, "{name}");
        }
        let part = plan.begin(0..3).unwrap();
        assert!(part.to_data_set::<f64>(&plan, &Finishing::default()).is_err());
        let integrated = Finishing { integrated_centre: true, ..Finishing::default() };
        let phase = values(&readings.to_data_set::<f64>(&plan, &integrated).unwrap(), "idpc");
        let phase = phase.index_axis(NdAxis(0), 1);
        assert!(phase.shape() == [6, 3] && phase.sum().abs() < 1e-12 && phase[[1, 0]] != 0.0);
    }

    // Planes of a sample file
    #[test]
    fn planes_inside_the_specimen_have_signals_of_their_own() {
        let still = SMALL.replace("phonons = { configurations = 2, seed = 3 }", "");
        let thick = still.replace("[scan]", "[method]\nthicknesses = [4.1, 1.9, 2.0]\n[scan]");
        let (file, plan, readings) = scanned(&thick);
        // Of 5.43 Å in slices of 1.3575 Å, and two of the planes are one
        assert_eq!(plan.options().ends, [1, 3, 4]);
        let shared = "[method]\nalgorithm = 'prism'\ninterpolation = [2, 1]\ninterpolation_check = 'warn'\nrefocus = -7.5\n[scan]";
        let shared =
            SampleFile::from_toml(&still.replace("[scan]", shared), "book/systems/small.toml");
        let method = StemMethod::Prism { factor: [2, 1], refocus: -7.5, margin: Some(2.5) };
        assert_eq!(shared.unwrap().plan().unwrap().options().method, method);
        let finishing = file.finishing(&plan);
        let data = readings.to_data_set::<f64>(&plan, &finishing).unwrap();
        assert_eq!(data.iter().count(), 4);
        let (_, whole, all) = scanned(&still);
        let alone = all.to_data_set::<f64>(&whole, &finishing).unwrap();
        for name in ["annular", "annulus_0", "centre_of_mass", "four_d"] {
            let [long, short] = [&data, &alone].map(|data| values(data, name));
            assert_eq!(long.shape()[..4], [2, 3, 6, 3]);
            assert_eq!([&long.shape()[..1], &long.shape()[2..]].concat(), short.shape());
            let plane = |k: usize| long.index_axis(NdAxis(1), k);
            assert!((&plane(2) - &short).iter().all(|x| x.abs() < 1e-13));
            assert!(plane(1) != short && plane(0) != plane(1));
        }
        let axes = |name: &str| data.get(name).unwrap().coordinates().to_vec();
        let [defocus, thickness] = [0, 1].map(|k| axes("four_d")[k].clone());
        assert_eq!((defocus.name(), defocus.values()), ("defocus", &[0.0, 40.0][..]));
        assert_eq!((thickness.name(), thickness.values().len()), ("thickness", 3));
        assert!((thickness.values()[1] - 3.0 * 1.3575).abs() < 1e-12 && thickness.unit() == "Å");
    }

    // Foci of a sample file
    #[test]
    fn foci_are_put_in_order_and_differ() {
        let defoci = |list: &str| {
            let text = SMALL.replace("[0.0, 40.0]", list);
            let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
            file.plan().map(|plan| plan.options().defoci.clone()).map_err(|error| error.to_string())
        };
        assert_eq!(defoci("[40.0, 10.0, -3.0]"), Ok(vec![40.0, 10.0, -3.0]));
        assert_eq!(defoci("[0.0, 50.0, -50.0]"), Ok(vec![-50.0, 0.0, 50.0]));
        let said = defoci("[1.0, 5.0, 1.0]").unwrap_err();
        assert!(
            said.starts_with("book/systems/small.toml:9: beam.defocus = [1.0, 5.0, 1.0]"),
            "{said}"
        );
    }

    // Edges of a sample file
    #[test]
    fn scans_of_whole_cells_repeat() {
        let edge = |from: &str, to: &str| {
            assert!(SMALL.contains(from));
            let text = SMALL.replace(from, to);
            let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
            file.finishing(&file.plan().unwrap())
        };
        assert_eq!(edge("seed = 3", "seed = 4").edge, Edge::Mirrored);
        let whole = "step = [1.0, 0.7]\nsource_size = 0.3";
        assert_eq!(edge("step = [1.0, 0.7]", whole).source_size, 0.3);
        // 16 steps of 0.34 Å go a hundredth of an ångström too far
        let cell = edge("window = [[0.0, 5.43], [0.0, 2.0]]\nstep = [1.0, 0.7]", "step = 0.34");
        assert_eq!(cell.edge, Edge::Periodic);
        let half = "window = [[0.0, 5.43], [0.0, 2.72]]\nstep = 0.34";
        let half = edge("window = [[0.0, 5.43], [0.0, 2.0]]\nstep = [1.0, 0.7]", half);
        assert_eq!(half.edge, Edge::Mirrored);
        let tiled = SMALL.replace("'SI100.XYZ'", "'SI100.XYZ', tile = [2, 1, 1]");
        let tiled = tiled.replace("[[0.0, 5.43], [0.0, 2.0]]", "[[1.0, 6.43], [0.0, 5.43]]");
        let tiled = tiled.replace("[1.0, 0.7]", "[0.543, 0.905]").replace("[48, 32]", "[96, 32]");
        let file = SampleFile::from_toml(&tiled, "book/systems/small.toml").unwrap();
        assert_eq!(file.finishing(&file.plan().unwrap()).edge, Edge::Periodic);
        let dose = edge("bin = 4.0", "bin = 4.0\ndose = 50\ndose_seed = 7");
        assert_eq!((dose.dose, dose.seed, dose.integrated_centre), (Some(50.0), 7, false));
    }

    // Beams of a sample file
    #[test]
    fn sample_files_that_interpolate_mean_beams_within_a_margin() {
        let margin = |method: &str| {
            let text = format!(
                "{SMALL}[method]\nalgorithm = 'prism'\ninterpolation_check = 'warn'\n{method}"
            );
            let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
            let plan = file.plan().unwrap();
            let StemMethod::Prism { margin, .. } = plan.options().method else {
                unreachable!("PRISM")
            };
            margin
        };
        assert_eq!(margin("interpolation = [1, 1]"), None);
        assert_eq!(margin("interpolation = [2, 1]"), Some(2.5));
        assert_eq!(margin("interpolation = [1, 2]\nmargin = 10.0"), Some(10.0));
        assert_eq!(margin("interpolation = 1\nmargin = 1.0"), Some(1.0));
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
        for (list, line) in
            [("[2.0, 5.5]", "thicknesses[1] = 5.5"), ("[0.6]", "thicknesses[0] = 0.6")]
        {
            let thick = said("[scan]", &format!("[method]\nthicknesses = {list}\n[scan]"));
            let start = format!(
                "book/systems/small.toml:11: method.{line}: expected a length in Å from half"
            );
            assert!(thick.starts_with(&start), "{thick}");
        }
        let wave = said("[scan]", "[method]\nalgorithm = \"hrtem\"\n[scan]");
        assert!(
            wave.contains(":11: method.algorithm = \"hrtem\": expected \"multislice\""),
            "{wave}"
        );
        let beyond = said("[[20.0, 40.0]]", "[[20.0, 600.0]]");
        assert!(beyond.contains("detector."), "{beyond}");
    }

    // Faults of the beam are reported of it
    // What is wrong with the beam is reported of the beam, whichever part finds it
    #[test]
    fn faults_of_the_beam_are_reported_of_the_beam() {
        let prism = "[scan]\nstep = 1.0\n[method]\nalgorithm = 'prism'\n[ignored]";
        let prism = prism.replace("\n[ignored]", "");
        let of_prism =
            SMALL.replace("[scan]\nwindow = [[0.0, 5.43], [0.0, 2.0]]\nstep = [1.0, 0.7]", &prism);
        let complaint = |text: &str| {
            let file = SampleFile::from_toml(text, "book/systems/small.toml").unwrap();
            file.plan().err().map(|error| error.to_string().replace("book/systems/small.toml:", ""))
        };
        assert_eq!(complaint(&of_prism), None);
        for text in [SMALL, &of_prism] {
            let wide = complaint(&text.replace("semi_angle = 20.0", "semi_angle = 120.0")).unwrap();
            assert!(wide.starts_with("8: beam.semi_angle = 120.0: expected at most"), "{wide}");
            let tilted =
                text.replace("semi_angle = 20.0", "semi_angle = 20.0\ntilt = [0.0, 490.0]");
            let tilted = complaint(&tilted).unwrap();
            assert!(tilted.starts_with("9: beam.tilt[1] = 490.0: expected at most 5"), "{tilted}");
            assert!(!tilted.contains("at most -"), "{tilted}");
            let spread = text.replace("semi_angle = 20.0", "semi_angle = 20.0\nc3 = 1e300");
            let spread = complaint(&spread).unwrap();
            assert!(
                spread.starts_with("9: beam.c3 = 1e300: expected aberrations whose"),
                "{spread}"
            );
            let far = complaint(&text.replace("[0.0, 40.0]", "[0.0, 400.0]")).unwrap();
            assert!(far.starts_with("9: beam.defocus = 400"), "{far}");
        }
    }

    // Interpolation obeys the rules of PRISM
    /// The plan of silicon of `tile` cells by PRISM, or the complaint, with and without its line.
    fn by_prism(tile: [usize; 3], method: &str) -> Result<(StemPlan, SampleSummary), String> {
        let text = format!(
            "[sample]\nfile = 'SI100.XYZ'\ntile = {tile:?}\n[potential]\ngrid = [{}, {}]\nslice_thickness = 1.3575\n\
             [beam]\nenergy_kev = 100.0\n[scan]\nwindow = [[0.0, 5.43], [0.0, 5.43]]\nstep = 1.0\n\
             [method]\nalgorithm = 'prism'\n{method}",
            48 * tile[0],
            48 * tile[1]
        );
        let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
        file.plan_with_summary().map_err(|error| error.to_string())
    }

    #[test]
    fn interpolation_obeys_the_rules_of_prism() {
        let factor = |tile: [usize; 3], method: &str| {
            let (plan, summary) = by_prism(tile, method)?;
            let StemMethod::Prism { factor, .. } = plan.options().method else { unreachable!() };
            Ok::<_, String>((factor, summary.warnings))
        };
        // Of 7.40 Å, and 2 (0.54 … + 1.13) + 3 Å behind 54.3 Å: 21.72 Å have room for two windows, 43.44 Å for four
        let chosen = |tile| factor(tile, "").unwrap();
        assert_eq!(chosen([1, 1, 1]), ([1, 1], vec![]));
        assert_eq!(chosen([4, 4, 10]), ([2, 2], vec![]));
        assert_eq!(chosen([8, 4, 10]), ([4, 2], vec![]));
        // A factor that is given is refused, with its line and what works
        let refused = factor([1, 1, 1], "interpolation = 4").unwrap_err();
        for words in [
            "small.toml:14: method.interpolation = 4: expected at most [1, 1] here",
            "1.5 beams across the cone along x, of which 8 are needed",
            "a window of 1.357 Å where 7.403 Å are",
        ] {
            assert!(refused.contains(words), "{refused}");
        }
        let refused = factor([4, 8, 10], "interpolation = [4, 4]").unwrap_err();
        assert!(refused.contains("at most [2, 4] here"), "{refused}");
        assert_eq!(factor([4, 8, 10], "interpolation = [2, 4]").unwrap().0, [2, 4]);
        let (used, warnings) =
            factor([1, 1, 1], "interpolation = 4\ninterpolation_check = 'warn'").unwrap();
        assert!(used == [4, 4] && warnings.len() == 1, "{warnings:?}");
        assert!(warnings[0].starts_with("method.interpolation = [4, 4]: a factor of 4"));
        // Of the probe behind 300 Å of silicon, 2 (6.0 + 1.13) Å and 3 Å more do not fit into 10.86 Å
        let thick = factor([4, 4, 55], "interpolation = 2").unwrap_err();
        assert!(thick.contains("smaller than the probe behind the specimen, 14.2"), "{thick}");
        assert_eq!(factor([4, 4, 55], "interpolation = 2\nrefocus = 290.0").unwrap().0, [2, 2]);
        // A margin that loses electrons
        let narrow = factor([1, 1, 1], "interpolation = 1\nmargin = 0.0").unwrap_err();
        assert!(
            narrow.contains("small.toml:15: method.margin = 0.0: expected beams within"),
            "{narrow}"
        );
        assert!(factor([1, 1, 1], "interpolation = 1\nmargin = 10.0").is_ok());
        // Factors that do not divide the samples are reported as such
        let odd = factor([1, 1, 1], "interpolation = 5").unwrap_err();
        assert!(odd.contains("divides a quarter of 48 points"), "{odd}");
    }

    // Samples are summed up before a run
    #[test]
    fn samples_are_summed_up_before_anything_is_computed() {
        let (plan, summary) = by_prism([4, 2, 10], "interpolation = 1").unwrap();
        assert_eq!((summary.cell, summary.tile), ([21.72, 10.86, 54.3], [4, 2, 10]));
        assert_eq!(summary.atoms, [(Element::of_symbol("Si").unwrap(), 640.0)]);
        assert_eq!((summary.samples, summary.slices, summary.merged), ([192, 96], 40, None));
        // λ N/4L of 48 samples over 5.43 Å
        let largest = plan.options().probe.beam.angle(12.0 / 5.43);
        assert!(
            (summary.largest_angle - largest).abs() < 1e-9 && summary.pixel == [5.43 / 48.0; 2]
        );
        assert!(!plan.tiled_specimen().is_made(), "no atom is made for a plan");
        let cut = SMALL.replace("bin = 1 }", "bin = 1, crop = 300.0 }");
        let file = SampleFile::from_toml(&cut, "book/systems/small.toml").unwrap();
        let warnings = file.plan_with_summary().unwrap().1.warnings;
        assert!(warnings[0].starts_with("detector.four_d.crop = 300 is beyond"), "{warnings:?}");
        // A probe that its own diffraction spreads over the cell
        let parallel = SMALL.replace("semi_angle = 20.0", "semi_angle = 2.0");
        let file = SampleFile::from_toml(&parallel, "book/systems/small.toml").unwrap();
        let warnings = file.plan_with_summary().unwrap().1.warnings;
        assert!(warnings[0].contains("radius of 11.289 Å to its first dark ring"), "{warnings:?}");
    }

    // Time plans of large grids
    #[test]
    fn plans_of_large_grids_take_no_time() {
        let begun = std::time::Instant::now();
        for method in ["multislice", "prism", "hrtem"] {
            let text = format!(
                "[sample]\nfile = 'SI100.XYZ'\ntile = [256, 256, 2000]\n[potential]\ngrid = [16384, 16384]\n\
                 [beam]\nenergy_kev = 100.0\n[detector]\nannuli = [[60.0, 90.0]]\nfour_d = {{ bin = 4 }}\n[method]\nalgorithm = '{method}'"
            );
            let file = SampleFile::from_toml(&text, "book/systems/small.toml").unwrap();
            if method == "hrtem" {
                file.hrtem().unwrap().describe(&Engine::cpu(Precision::F32)).unwrap();
            } else {
                file.plan().unwrap().describe(&Engine::cpu(Precision::F32)).unwrap();
            }
        }
        assert!(begun.elapsed().as_secs_f64() < 30.0, "{:?}", begun.elapsed());
    }
}
