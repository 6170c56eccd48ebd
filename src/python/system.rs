// Tangled from book/src/python-system.md: edit there, or here and run cargo tangle stitch.
//! System files for Python, and the computations of a system.

// Imports of the bindings of a system
use super::arrays::to_python;
use super::errors::{raised, refused};
use super::interruptible::{run, run_borrowing};
use super::plans::{Found, PlannedComputation, PlannedTask, Task, engine};
use super::values::{from_json, from_toml, options, toml_value};
use crate::command::learned_file::LearnedFile;
use crate::command::planned_run::suited;
use crate::command::psf::target_facts;
use crate::device::Engine;
use crate::error::{Error, Invalid};
use crate::estimation::{
    EstimateOptions, EstimatePlan, Estimator, Simulated, SimulationOptions, SimulationPlan,
    measured_covariance,
};
use crate::files::provenance::Provenance;
use crate::formats::Imported;
use crate::formats::aot::TelemetryFile;
use crate::formats::aot::system::TelemetrySystem;
use crate::formats::scopesim::FieldImages;
use crate::formats::slopes::{ReadSlopes, SlopeFormat};
use crate::linear::Operator;
use crate::model::control::ControlLoop;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::{System, SystemFile};
use crate::plan::Plan;
use crate::profiling::{LearnOptions, LearnPlan, Learned, ParameterGroup};
use crate::psf::options::check_telescope;
use crate::psf::{CameraOptions, PsfOptions, PsfPlan, PsfResult};
use crate::tomography::{
    PointErrors, PointErrorsPlan, ReconstructedQuantity, Reconstruction, ReconstructorOptions,
    ReconstructorPlan, WavefrontError,
};
use crate::turbulence::spectral::SpectralSampling;
use crate::turbulence::{CovarianceOptions, CovariancePlan, Covariances, Method, SlopeSlope};
use crate::units::ARCSEC;
use crate::watch::Watch;
use ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

// Parsed system with its file
/// A system file that was parsed, with the system that it describes.
#[pyclass(frozen, module = "lenslet._lenslet")]
pub(super) struct ParsedSystem {
    file: SystemFile,
    pub(super) system: System,
}

impl ParsedSystem {
    /// The system of a file, all tables of which are checked, whatever will be computed.
    fn of(file: SystemFile) -> Result<Self, Error> {
        file.root()?.check_keys()?;
        check_telescope(&file)?;
        let system = file.system()?;
        ReconstructorOptions::from_system_file(&file)?;
        ControlLoop::from_system_file(&file)?;
        CameraOptions::from_system_file(&file)?;
        if file.has("mirror") {
            PsfOptions::from_system_file(&file)?;
        }
        Ok(Self { file, system })
    }

    // Parse a system without the interpreter
    fn parse(
        py: Python<'_>,
        read: impl FnOnce() -> Result<SystemFile, Error> + Send,
    ) -> PyResult<Self> {
        py.detach(|| read().and_then(Self::of)).map_err(raised)
    }
}

// Methods of a parsed system
#[pymethods]
impl ParsedSystem {
    // Make and edit a parsed system
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::parse(py, || SystemFile::from_file(path))
    }

    #[staticmethod]
    fn from_toml(py: Python<'_>, text: &str, name: &str) -> PyResult<Self> {
        Self::parse(py, || SystemFile::from_toml(text, name))
    }

    #[staticmethod]
    fn from_dict(py: Python<'_>, values: &Bound<'_, PyDict>) -> PyResult<Self> {
        let toml::Value::Table(values) = toml_value("", values.as_any())? else {
            return Err(refused(Invalid::new("values", "no table", "a dictionary")));
        };
        Self::parse(py, || SystemFile::from_value(values))
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

    /// The system with other values at some paths; `None` removes a value.
    fn edited(&self, py: Python<'_>, changes: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut builder = self.file.to_builder();
        for (path, value) in changes.iter() {
            let path: String = path.extract()?;
            builder = match value.is_none() {
                true => builder.remove(&path),
                false => builder.set(&path, toml_value(&path, &value)?),
            };
        }
        Self::parse(py, || builder.build())
    }

    // Summary of a parsed system
    /// Warnings about values that are probably in another unit, and so on.
    fn warnings(&self) -> Vec<String> {
        self.file.warnings()
    }

    /// Numbers of the system: stars, slopes, targets, layers and the like.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (system, valid) = (&self.system, self.system.valid_lenslets());
        let air = system.atmosphere();
        let lenslets = system.lenslet_array();
        from_json(
            py,
            &json!({
                "r0": air.fried_parameter(),
                "wavelength": air.wavelength(),
                "layers": air.layers().len(),
                "diameter": system.pupil().map(|pupil| pupil.diameter()),
                "lenslets": lenslets.lenslets(),
                "pitch": lenslets.pitch(),
                "guide_stars": system.guide_stars().len(),
                "targets": system.targets().len(),
                "slopes": SlopeOrder::new(&valid).len(),
                "points": system.wavefront_grid().ok().map(|grid| grid.points),
                "mirrors": self.file.has("mirror"),
            }),
        )
    }

    /// The valid lenslets of each guide star, arrays of truth values.
    fn valid_lenslets<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyArray2<bool>>> {
        self.system.valid_lenslets().iter().map(|mask| mask.to_pyarray(py)).collect()
    }

    // Plan covariances for Python
    /// Covariances by a method: direct, or spectral with a sampling, in points and in factors of oversampling, if one is given.
    fn plan_covariance(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyDict>,
        method: (&str, Option<(usize, usize)>),
        device: &str,
        precision: &str,
    ) -> PyResult<PlannedComputation> {
        // Method of planned covariances
        let (method, sampling) = method;
        let sampling = sampling.map(|(points, factor)| SpectralSampling::new(points, factor));
        let sampling = sampling.transpose().map_err(refused)?;
        let method = match (method, sampling) {
            ("direct", None) => Method::Direct,
            ("direct", Some(_)) => {
                let expected = "none, except with method = \"spectral\"";
                return Err(refused(Invalid::new("samples", "given", expected)));
            }
            ("spectral", sampling) => Method::Spectral(sampling),
            _ => return Err(refused(Invalid::new("method", method, "direct or spectral"))),
        };
        let options = options::<CovarianceOptions>(given)?.method(method);
        let plan = CovariancePlan::new(&self.system, options).map_err(raised)?;
        let system = self.system.clone();
        let finish = move |found: Covariances, _: &CovariancePlan, _: &Engine| {
            let dense = "slope_slope_dense";
            let mut data = found.to_data_set(&system).owned_without(&[dense]);
            if let SlopeSlope::Dense(matrix) = found.slope_slope {
                data.fill(dense, matrix);
            }
            Ok(Found::from(data))
        };
        let task = PlannedTask { plan, finish };
        self.planned(py, task, (device, precision), None)
    }

    // Plan a reconstructor for Python
    /// The reconstructor as the table `[reconstructor]` of the file asks for it.
    fn plan_reconstructor(
        &self,
        py: Python<'_>,
        covariances: bool,
        device: &str,
        precision: &str,
    ) -> PyResult<PlannedComputation> {
        let options = ReconstructorOptions::from_system_file(&self.file).map_err(raised)?;
        let (options, engine) = (options.keep(covariances), (device, precision));
        let system = self.system.clone();
        // Error maps without a reconstructor
        if options.to == ReconstructedQuantity::Wavefront && options.errors_only {
            let plan = PointErrorsPlan::new(&system, options).map_err(raised)?;
            let finish = move |found: PointErrors, _: &PointErrorsPlan, _: &Engine| {
                let facts = json!({ "errors": errors_of(&found.errors) });
                Ok(Found { data: found.to_data_set(&system).into_owned(), facts })
            };
            return self.planned(py, PlannedTask { plan, finish }, engine, None);
        }
        let plan = ReconstructorPlan::from_system_file(&self.file, options).map_err(raised)?;
        let finish = move |found: Reconstruction, _: &ReconstructorPlan, _: &Engine| {
            let errors = found.wavefront_errors(&system)?;
            let facts = json!({ "errors": errors_of(&errors) });
            // Move the reconstructor into its data set
            let arrays = ["reconstructor", "error_covariance"];
            let mut data = found.to_data_set(&system, &errors).owned_without(&arrays);
            if let Some(reconstructor) = found.reconstructor {
                data.fill("reconstructor", reconstructor);
            }
            data.fill("error_covariance", found.error_covariance);
            Ok(Found { data, facts })
        };
        self.planned(py, PlannedTask { plan, finish }, engine, None)
    }

    // Plan simulated slopes for Python
    fn plan_simulation(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<PlannedComputation> {
        let options: SimulationOptions = options(given)?;
        let plan = SimulationPlan::new(&self.system, options).map_err(raised)?;
        let system = self.system.clone();
        let finish = move |found: Simulated, _: &SimulationPlan, _: &Engine| {
            let mut data = found.to_data_set(&system).owned_without(&["slopes", "wavefront"]);
            data.fill("slopes", found.slopes);
            if let Some(wavefronts) = found.wavefronts {
                data.fill("wavefront", wavefronts);
            }
            Ok(Found::from(data))
        };
        let task = PlannedTask { plan, finish };
        self.planned(py, task, ("cpu", "f64"), Some(options.seed))
    }

    // Plan point-spread functions for Python
    fn plan_psf(
        &self,
        py: Python<'_>,
        whole_field: bool,
        device: &str,
        precision: &str,
    ) -> PyResult<PlannedComputation> {
        let options = PsfOptions::from_system_file(&self.file).map_err(raised)?;
        let plan = PsfPlan::new(&self.system, options).map_err(raised)?.whole_field(whole_field);
        let system = self.system.clone();
        let finish = move |found: PsfResult, plan: &PsfPlan, _: &Engine| {
            let targets = system.targets().iter().zip(&found.targets);
            let targets: Vec<_> =
                targets.map(|(source, target)| target_facts(source, target)).collect();
            let facts = json!({
                "targets": targets,
                "wavelengths": plan.options().image.wavelengths,
                "pixel_mas": pixels_in_mas(plan),
                "mode": plan.options().correction.mode.name(),
                "independent": plan.independent(),
            });
            let mut data = found.to_data_set(plan)?;
            if whole_field {
                FieldImages::of(plan, &found).add_to(&mut data)?;
            }
            Ok(Found { data, facts })
        };
        self.planned(py, PlannedTask { plan, finish }, (device, precision), None)
    }

    // Plan a profile fit for Python
    /// A profile fitted to slopes, (frames, n), rad.
    fn plan_fit(
        &self,
        py: Python<'_>,
        slopes: PyReadonlyArray2<'_, f64>,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<PlannedComputation> {
        let options: LearnOptions = options(given)?;
        let groups: Vec<ParameterGroup> = options.fit.clone();
        let plan = LearnPlan::new(&self.system, options).map_err(raised)?;
        let plan = plan.with_slopes(slopes.as_array().to_owned()).map_err(refused)?;
        let (file, start) = (self.file.clone(), self.system.clone());
        let finish = move |learned: Learned, _: &LearnPlan, _: &Engine| {
            let written = LearnedFile {
                learned: &learned,
                start: &start,
                groups: &groups,
                slopes: "slopes",
                origin: "lenslet.System.fit_profile",
            };
            let text = written.text(&file, file.name())?;
            let facts = fit_facts(&learned, &text);
            Ok(Found { data: learned.to_data_set().into_owned(), facts })
        };
        self.planned(py, PlannedTask { plan, finish }, ("cpu", "f64"), None)
    }

    // Plan an estimate for Python
    /// The description of an estimate of so many frames.
    fn plan_estimate(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyDict>,
        device: &str,
        precision: &str,
    ) -> PyResult<PlannedComputation> {
        let plan = self.estimate_plan(given)?;
        let finish = |_: Estimator, _: &EstimatePlan, _: &Engine| {
            let reason = "slopes are needed: call estimate".into();
            Err(Error::Failed { what: "the estimate".into(), reason })
        };
        self.planned(py, PlannedTask { plan, finish }, (device, precision), None)
    }

    // Prepare an estimator for Python
    /// Prepares an estimator of wavefronts.
    #[pyo3(signature = (given, device, precision, progress=None))]
    fn estimator(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyDict>,
        device: &str,
        precision: &str,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PreparedEstimator> {
        let plan = self.estimate_plan(given)?;
        let opened = py.detach(|| engine(device, precision)).map_err(raised)?;
        let plan = plan.fitted(&opened).map_err(raised)?;
        let engine = suited(opened, &plan);
        let method = plan.describe(&engine).map_err(raised)?.method;
        let job = move |watch: &dyn Watch| {
            plan.check(&engine)?;
            plan.run(&engine, watch)
        };
        let estimator = run(py, progress.as_ref(), job)?.map_err(raised)?;
        let (system, text) = (self.system.clone(), self.file.text().to_string());
        Ok(PreparedEstimator { estimator, system, text, method })
    }

    // Measured slopes and their operator
    /// The covariance of the measurements as an operator.
    #[pyo3(signature = (progress=None))]
    fn covariance_operator(
        &self,
        py: Python<'_>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<CovarianceOperator> {
        let system = self.system.clone();
        let job = move |watch: &dyn Watch| measured_covariance(&system, &Engine::default(), watch);
        let operator = run(py, progress.as_ref(), job)?.map_err(raised)?;
        Ok(CovarianceOperator { operator })
    }

    /// Slopes of a file as the system orders them, (frames, n), rad.
    fn read_slopes<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let read = || ReadSlopes::from_file(&path, &self.system, &SlopeFormat::default());
        let slopes = py.detach(read).map_err(raised)?.slopes;
        Ok(slopes.into_pyarray(py))
    }
}

// Steps shared by plans of a system
impl ParsedSystem {
    /// A task of this system on a device, in a precision.
    fn planned(
        &self,
        py: Python<'_>,
        task: impl Task + 'static,
        engine: (&str, &str),
        seed: Option<u64>,
    ) -> PyResult<PlannedComputation> {
        PlannedComputation::new(py, task, engine, self.file.text(), seed)
    }

    fn estimate_plan(&self, given: &Bound<'_, PyDict>) -> PyResult<EstimatePlan> {
        let options: EstimateOptions = options(given)?;
        EstimatePlan::new(&self.system, options).map_err(raised)
    }
}

// Facts of reconstructors images and fits
/// Sides of a pixel at each wavelength, mas.
fn pixels_in_mas(plan: &PsfPlan) -> Vec<f64> {
    let (image, diameter) = (&plan.options().image, plan.diameter());
    let side = |wavelength: &f64| 1e3 * image.pixel_at(*wavelength, diameter) / ARCSEC;
    image.wavelengths.iter().map(side).collect()
}

/// What a fit found, apart from its arrays: the system file, the values with their errors, and how good the fit is.
fn fit_facts(learned: &Learned, text: &str) -> serde_json::Value {
    let values = learned.values.iter();
    let values = values.map(|one| (one.parameter.to_string(), one.value, one.error));
    let warnings: Vec<_> = learned.warnings.iter().map(ToString::to_string).collect();
    json!({
        "system": text,
        "warnings": warnings,
        "values": values.collect::<Vec<_>>(),
        "misfit": learned.misfit,
        "converged": learned.converged,
        "frames": learned.maps.frames,
        "independent_frames": learned.maps.independent,
    })
}

/// The errors of targets, m: with and without tilt.
fn errors_of(errors: &[WavefrontError]) -> serde_json::Value {
    let of = |error: &WavefrontError| {
        let (rms, without_tilt) = (error.rms, error.rms_without_tilt);
        json!({ "rms": rms, "rms_without_tilt": without_tilt })
    };
    errors.iter().map(of).collect()
}

// Estimator that is ready for frames
/// An estimator that is ready for frames.
#[pyclass(frozen, module = "lenslet._lenslet")]
pub(super) struct PreparedEstimator {
    estimator: Estimator,
    system: System,
    text: String,
    method: String,
}

#[pymethods]
impl PreparedEstimator {
    // Estimate frames of borrowed slopes
    /// Estimates the wavefronts of frames in the rows of `slopes`, which are not copied.
    #[pyo3(signature = (slopes, warm_start, call, progress=None))]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        slopes: PyReadonlyArray2<'py, f64>,
        warm_start: bool,
        call: &str,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>, Bound<'py, PyAny>)> {
        let view = slopes.as_array();
        let job = |watch: &dyn Watch| self.estimator.estimate(view, warm_start, watch);
        let estimates = run_borrowing(py, progress.as_ref(), job)?.map_err(raised)?;
        let facts = json!({ "shortfall": estimates.shortfall });
        let mut data = estimates.to_data_set(&self.system).owned_without(&["wavefront"]);
        data.fill("wavefront", estimates.wavefront);
        Provenance::new(call, &self.method, &self.text).note(&mut data);
        let (variables, attributes) = to_python(py, data)?;
        Ok((variables, attributes, from_json(py, &facts)?))
    }

    /// Slopes of a frame.
    fn slopes(&self) -> usize {
        self.estimator.slopes()
    }
}

// Operator of measurements for Python
/// The covariance of the measurements as an operator, (n, n), rad².
#[pyclass(frozen, module = "lenslet._lenslet")]
pub(super) struct CovarianceOperator {
    operator: Arc<dyn Operator<f64>>,
}

#[pymethods]
impl CovarianceOperator {
    /// Its rows and columns, n.
    fn size(&self) -> usize {
        self.operator.rows()
    }

    // Products with rows of an array
    /// The products with the rows of `vectors`, (k, n), which are not copied where they lie in C order.
    fn product<'py>(
        &self,
        py: Python<'py>,
        vectors: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (view, operator) = (vectors.as_array(), &self.operator);
        let (count, length) = view.dim();
        if length != operator.rows() {
            let expected = format!("{} in each vector", operator.rows());
            return Err(refused(Invalid::new("entries", length, expected)));
        }
        let products = py.detach(|| {
            let x = view.as_standard_layout();
            let mut products = Array2::zeros((count, length));
            let mut scratch = vec![0.0; operator.scratch(count)];
            if let (Some(x), Some(y)) = (x.as_slice(), products.as_slice_mut()) {
                operator.apply(x, y, &mut scratch);
            }
            products
        });
        Ok(products.into_pyarray(py))
    }
}

// System files of other programs
/// The system file of a parameter file of TIPTOP, as text, and warnings.
#[pyfunction]
pub(super) fn import_tiptop(text: &str, name: &str) -> PyResult<(String, Vec<String>)> {
    let imported = Imported::from_tiptop(text, name).map_err(raised)?;
    Ok((imported.toml, imported.warnings))
}

/// The system file of telemetry in AOT, as text, and notes.
#[pyfunction]
pub(super) fn import_aot(py: Python<'_>, path: PathBuf) -> PyResult<(String, Vec<String>)> {
    let read = || -> Result<_, Error> {
        let file = TelemetryFile::open(&path)?;
        let imported = TelemetrySystem::with_correction(&file)?;
        Ok((imported.with_notes(&path), imported.notes))
    };
    py.detach(read).map_err(raised)
}
