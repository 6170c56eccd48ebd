// Tangled from book/src/python-sample.md: edit there, or here and run cargo tangle stitch.
//! Sample files for Python, and the computations of a sample.

// Imports of the bindings of a sample
use super::arrays::to_python;
use super::errors::{raised, refused};
use super::interruptible::run;
use super::plans::{Found, PlannedComputation, PlannedTask, engine, precision_of};
use super::values::{from_json, from_toml, toml_value};
use crate::data::DataSet;
use crate::device::Engine;
use crate::electrons::postprocess::Finishing;
use crate::electrons::sample_file::{Algorithm, SampleFile};
use crate::electrons::{
    ConfigurationReadings, HrtemImages, HrtemPlan, Intermediate, StemMethod, StemPlan,
    StemReadings, StemRunOptions,
};
use crate::error::{Error, Invalid};
use crate::files::provenance::Provenance;
use crate::files::spanned_toml::Document;
use crate::model::SystemFile;
use crate::numerics::Precision;
use crate::plan::Plan;
use crate::specimen::Atom;
use crate::watch::{Watch, unwatched};
use ndarray::{Array1, Array2};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyReadonlyArray2, PyReadonlyArray3};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use std::path::PathBuf;

// Parsed sample with its file
/// A sample file that was parsed.
#[pyclass(frozen, module = "lenslet._lenslet")]
pub(super) struct ParsedSample {
    file: SampleFile,
}

// Methods of a parsed sample
#[pymethods]
impl ParsedSample {
    // Make and edit a parsed sample
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let file = py.detach(|| SampleFile::from_file(path)).map_err(raised)?;
        Ok(Self { file })
    }

    #[staticmethod]
    fn from_toml(text: &str, name: &str) -> PyResult<Self> {
        Ok(Self { file: SampleFile::from_toml(text, name).map_err(raised)? })
    }

    #[staticmethod]
    fn from_dict(values: &Bound<'_, PyDict>) -> PyResult<Self> {
        let toml::Value::Table(values) = toml_value("", values.as_any())? else {
            return Err(refused(Invalid::new("values", "no table", "a dictionary")));
        };
        let document = Document::from_table(values).map_err(|line| raised(line.into()))?;
        Ok(Self { file: SampleFile::from_document(document).map_err(raised)? })
    }

    /// The sample with other values at some paths; `None` removes a value.
    fn edited(&self, py: Python<'_>, changes: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (text, name) = (self.file.text(), self.file.name());
        let mut builder = SystemFile::from_toml(text, name).map_err(raised)?.to_builder();
        for (path, value) in changes.iter() {
            let path: String = path.extract()?;
            builder = match value.is_none() {
                true => builder.remove(&path),
                false => builder.set(&path, toml_value(&path, &value)?),
            };
        }
        let read = || -> Result<SampleFile, Error> {
            let document = Document::parse(name, &builder.checked_text()?)?;
            let document = if name.is_empty() { document.without_lines() } else { document };
            SampleFile::from_document(document)
        };
        Ok(Self { file: py.detach(read).map_err(raised)? })
    }

    // Read a share of a scan
    /// Readings of the places from `start` to `end` of a scan, as `collect` joins them.
    #[pyo3(signature = (places, device, precision, progress=None))]
    fn stem_share<'py>(
        &self,
        py: Python<'py>,
        places: (usize, usize),
        device: &str,
        precision: &str,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Share<'py>> {
        let opened = py.detach(|| engine(device, precision)).map_err(raised)?;
        let file = self.file.clone();
        let job = move |watch: &dyn Watch| -> Result<StemReadings, Error> {
            let options = StemRunOptions::default().places(places.0..places.1);
            file.plan()?.run_with(&opened, options, watch)
        };
        let readings = run(py, progress.as_ref(), job)?.map_err(raised)?;
        Ok(share_of(py, readings))
    }

    // Read and average single configurations
    /// Readings of the places from `start` to `end` of a scan in each of some configurations, as `average` takes them.
    #[pyo3(signature = (places, configurations, device, precision, progress=None))]
    fn stem_configurations<'py>(
        &self,
        py: Python<'py>,
        places: (usize, usize),
        configurations: (usize, usize),
        device: &str,
        precision: &str,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Configurations<'py>> {
        let opened = py.detach(|| engine(device, precision)).map_err(raised)?;
        let file = self.file.clone();
        let (places, configurations) = (places.0..places.1, configurations.0..configurations.1);
        let job = move |watch: &dyn Watch| -> Result<ConfigurationReadings, Error> {
            file.plan()?.run_configurations(&opened, places, configurations, watch)
        };
        let readings = run(py, progress.as_ref(), job)?.map_err(raised)?;
        let ConfigurationReadings { places, configurations, values } = readings;
        let ranges = [places, configurations].map(|range| (range.start, range.end));
        Ok((ranges[0], ranges[1], values.into_pyarray(py)))
    }

    /// Readings of the places that these parts cover, averaged over all configurations in their order.
    fn average<'py>(
        &self,
        py: Python<'py>,
        parts: Vec<ReadConfigurations<'py>>,
    ) -> PyResult<Share<'py>> {
        let plan = py.detach(|| self.file.plan()).map_err(raised)?;
        let part =
            |(places, configurations, values): ReadConfigurations<'_>| ConfigurationReadings {
                places: places.0..places.1,
                configurations: configurations.0..configurations.1,
                values: values.as_array().to_owned(),
            };
        let parts: Vec<_> = parts.into_iter().map(part).collect();
        let readings = py.detach(|| plan.average(&parts)).map_err(refused)?;
        Ok(share_of(py, readings))
    }

    // Join the shares of a scan
    /// The scan whose shares have been read, as a run returns it.
    fn collect<'py>(
        &self,
        py: Python<'py>,
        shares: Vec<ReadShare<'py>>,
        precision: &str,
        call: &str,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>, Bound<'py, PyAny>)> {
        let precision = precision_of(precision).map_err(refused)?;
        let (plan, summary) = py.detach(|| self.file.plan_with_summary()).map_err(raised)?;
        // Readings of received shares
        let part = |(places, done, mean, squares): ReadShare<'_>| StemReadings {
            places: places.0..places.1,
            done: [done.0, done.1],
            mean: mean.as_array().to_owned(),
            squares: squares.as_array().to_owned(),
        };
        let readings = plan.collect(shares.into_iter().map(part).collect()).map_err(refused)?;
        let (engine, finishing) = (Engine::cpu(precision), self.file.finishing(&plan));
        let mut data = scan_data(&readings, &plan, &finishing, precision).map_err(raised)?;
        let method = plan.describe(&engine).map_err(raised)?.method;
        let seed = Some(self.file.phonons.seed);
        Provenance::new(call, &method, self.file.text()).seed(seed).note(&mut data);
        let facts = json!({ "summary": &summary });
        let (variables, attributes) = to_python(py, data)?;
        Ok((variables, attributes, from_json(py, &facts)?))
    }

    // Summary of a parsed sample
    /// Places of the scan, and configurations of the specimen.
    fn stem_size(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let plan = py.detach(|| self.file.plan()).map_err(raised)?;
        Ok((plan.places(), plan.configurations()))
    }

    /// The text of the file and its name, from which it can be made anew.
    fn source(&self) -> (String, String) {
        (self.file.text().to_string(), self.file.name().to_string())
    }

    /// All values of the file as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values: toml::Table = self.file.text().parse().unwrap_or_default();
        from_toml(py, &toml::Value::Table(values))
    }

    /// The algorithm of the file, and its precision.
    fn method(&self) -> (&'static str, &'static str) {
        let algorithm = match self.file.method.algorithm {
            Algorithm::Hrtem => "hrtem",
            Algorithm::Prism => "prism",
            _ => "multislice",
        };
        (algorithm, self.file.run.precision.name())
    }

    /// What is known of the specimen and its samples.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let file = self.file.clone();
        let summary = py.detach(|| match file.method.algorithm {
            Algorithm::Hrtem => file.hrtem_with_summary().map(|(_, summary)| summary),
            _ => file.plan_with_summary().map(|(_, summary)| summary),
        });
        from_json(py, &serde_json::to_value(summary.map_err(raised)?).unwrap_or_default())
    }

    // Atoms of a sample for Python
    /// The atoms of the specimen, at rest: atomic numbers, positions, sides of the cell [Å], occupancies and displacements [Å].
    fn specimen<'py>(&self, py: Python<'py>) -> PyResult<Atoms<'py>> {
        let specimen = py.detach(|| self.file.specimen()).map_err(raised)?;
        let (atoms, cell) = (specimen.atoms(), specimen.cell());
        let number = |of: &dyn Fn(&Atom) -> f64| atoms.iter().map(of).collect::<Array1<f64>>();
        let places = Array2::from_shape_fn((atoms.len(), 3), |(k, axis)| atoms[k].position[axis]);
        let elements = atoms.iter().map(|atom| atom.element.number() as i64);
        Ok((
            elements.collect::<Array1<i64>>().into_pyarray(py),
            places.into_pyarray(py),
            cell,
            number(&|atom| atom.occupancy).into_pyarray(py),
            number(&|atom| atom.displacement).into_pyarray(py),
        ))
    }

    // Plan a scan for Python
    /// A scan; `keep` names intermediate results that are returned, too.
    fn plan_stem(
        &self,
        py: Python<'_>,
        keep: Vec<String>,
        compare: Option<usize>,
        device: &str,
        precision: &str,
    ) -> PyResult<PlannedComputation> {
        let file = self.file.clone();
        let planned = py.detach(|| file.plan_with_summary()).map_err(raised)?;
        let (plan, summary) = planned;
        let kept = keep.iter().map(|name| intermediate(name, &plan)).collect::<Result<Vec<_>, _>>();
        let kept = kept.map_err(refused)?;
        if let Some(count) = compare {
            plan.by_multislice(count).map_err(refused)?;
        }
        let finishing = file.finishing(&plan);
        let seed = file.phonons.seed;
        let text = file.text().to_string();
        // Data set of readings and intermediates
        let finish = move |readings: StemReadings, plan: &StemPlan, engine: &Engine| {
            let mut data = scan_data(&readings, plan, &finishing, engine.precision())?;
            for &one in &kept {
                match engine.precision() {
                    Precision::F32 => plan.keep::<f32>(one, &mut data, &unwatched)?,
                    Precision::F64 => plan.keep::<f64>(one, &mut data, &unwatched)?,
                }
            }
            let compared =
                compare.map(|count| plan.compare(&readings, count, seed, engine, &unwatched));
            let comparison = compared.transpose()?;
            if let Some(comparison) = &comparison {
                match engine.precision() {
                    Precision::F32 => {
                        plan.keep_compared::<f32>(comparison, &mut data, &unwatched)?
                    }
                    Precision::F64 => {
                        plan.keep_compared::<f64>(comparison, &mut data, &unwatched)?
                    }
                }
            }
            let facts = json!({
                "summary": &summary,
                "comparison": comparison.as_ref().map(serde_json::to_value).and_then(Result::ok),
                "warnings": comparison.as_ref().map(|it| it.warnings(plan)).unwrap_or_default(),
            });
            Ok(Found { data, facts })
        };
        let task = PlannedTask { plan, finish };
        PlannedComputation::new(py, task, (device, precision), &text, Some(seed))
    }

    // Plan plane-wave images for Python
    /// Images of a plane wave.
    fn plan_hrtem(
        &self,
        py: Python<'_>,
        waves: bool,
        potential: bool,
        device: &str,
        precision: &str,
    ) -> PyResult<PlannedComputation> {
        let file = self.file.clone();
        let (plan, summary) = py.detach(|| file.hrtem_with_summary()).map_err(raised)?;
        let finish = move |images: HrtemImages, plan: &HrtemPlan, engine: &Engine| {
            let mut data = images.to_data_set(plan, waves, engine.precision())?;
            if potential {
                plan.keep_potential(&mut data, engine.precision())?;
            }
            Ok(Found { data, facts: json!({ "summary": &summary }) })
        };
        let task = PlannedTask { plan, finish };
        PlannedComputation::new(
            py,
            task,
            (device, precision),
            self.file.text(),
            Some(self.file.phonons.seed),
        )
    }
}

// Arrays of atoms and shares
/// Atomic numbers, positions, sides of the cell, occupancies and displacements.
type Atoms<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<f64>>,
    [f64; 3],
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
);

/// Readings of a share of a scan: its places, what is done of them, means and squared deviations.
type Share<'py> =
    ((usize, usize), (usize, usize), Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>);
type ReadShare<'py> =
    ((usize, usize), (usize, usize), PyReadonlyArray2<'py, f64>, PyReadonlyArray2<'py, f64>);

/// Readings of single configurations: places, configurations, and (configuration, place, reading).
type Configurations<'py> = ((usize, usize), (usize, usize), Bound<'py, PyArray3<f64>>);
type ReadConfigurations<'py> = ((usize, usize), (usize, usize), PyReadonlyArray3<'py, f64>);

/// Readings as arrays of Python.
fn share_of(py: Python<'_>, readings: StemReadings) -> Share<'_> {
    let StemReadings { places, done, mean, squares } = readings;
    let [mean, squares] = [mean, squares].map(|values| values.into_pyarray(py));
    ((places.start, places.end), (done[0], done[1]), mean, squares)
}

// Readings and intermediates by name
/// The readings of a scan as a data set in a precision.
fn scan_data(
    readings: &StemReadings,
    plan: &StemPlan,
    finishing: &Finishing,
    precision: Precision,
) -> Result<DataSet<'static>, Error> {
    match precision {
        Precision::F32 => readings.to_data_set::<f32>(plan, finishing),
        Precision::F64 => readings.to_data_set::<f64>(plan, finishing),
    }
}

fn intermediate(name: &str, plan: &StemPlan) -> Result<Intermediate, Invalid> {
    let prism = matches!(plan.options().method, StemMethod::Prism { .. });
    match name {
        "potential" => Ok(Intermediate::Potential),
        "probe" => Ok(Intermediate::Probe),
        "smatrix" if prism => Ok(Intermediate::SMatrix),
        "smatrix" => {
            Err(Invalid::new("keep", name, "algorithm = \"prism\", which has an S-matrix"))
        }
        _ => Err(Invalid::new("keep", name, "potential, probe or smatrix")),
    }
}
