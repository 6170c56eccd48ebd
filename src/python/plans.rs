// Tangled from book/src/python-plans.md: edit there, or here and run cargo tangle stitch.
//! Planned computations for Python.

// Imports of plans for Python
use super::arrays::to_python;
use super::errors::raised;
use super::interruptible::run;
use super::values::from_json;
use crate::command::planned_run::suited;
use crate::command::progress::with_speed;
use crate::data::DataSet;
use crate::device::{Device, Engine, lock};
use crate::error::{Error, Invalid};
use crate::files::provenance::Provenance;
use crate::numerics::Precision;
use crate::plan::{Description, Plan};
use crate::watch::Watch;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

// Data set and facts of a result
/// What a computation gives to Python: a data set, and facts that no array holds.
pub(super) struct Found {
    pub(super) data: DataSet<'static>,
    pub(super) facts: serde_json::Value,
}

impl From<DataSet<'static>> for Found {
    fn from(data: DataSet<'static>) -> Self {
        Self { data, facts: serde_json::Value::Null }
    }
}

// Task of a planned computation
/// A plan whose result becomes arrays of Python.
pub(super) trait Task: Send + Sync {
    /// What a run on an engine will do.
    fn describe(&self, engine: &Engine) -> Result<Description, Error>;

    /// Checks memory and engine, and computes.
    fn compute(&self, engine: &Engine, watch: &dyn Watch) -> Result<Found, Error>;

    /// The engine on which the computation runs where this one is requested.
    fn suited(&self, engine: Engine) -> Engine;
}

/// A plan with the step that makes arrays of its result.
pub(super) struct PlannedTask<P: Plan, F> {
    pub(super) plan: P,
    pub(super) finish: F,
}

// Plan as a task
impl<P, F> Task for PlannedTask<P, F>
where
    P: Plan + Send + Sync,
    F: Fn(P::Output, &P, &Engine) -> Result<Found, Error> + Send + Sync,
{
    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.plan.describe(engine)
    }

    fn compute(&self, engine: &Engine, watch: &dyn Watch) -> Result<Found, Error> {
        self.plan.check(engine)?;
        let output = self.plan.run(engine, watch)?;
        (self.finish)(output, &self.plan, engine)
    }

    fn suited(&self, engine: Engine) -> Engine {
        suited(engine, &self.plan)
    }
}

// Engines that stay open
/// The engine of a device and a precision. Devices stay open from one computation to the next.
pub(super) fn engine(device: &str, precision: &str) -> Result<Engine, Error> {
    static OPEN: Mutex<BTreeMap<(String, String), Engine>> = Mutex::new(BTreeMap::new());
    let key = (device.to_string(), precision.to_string());
    if let Some(open) = lock(&OPEN).get(&key) {
        return Ok(open.clone());
    }
    let device: Device = device.parse()?;
    let opened = Engine::open(device, precision_of(precision)?)?;
    lock(&OPEN).insert(key, opened.clone());
    Ok(opened)
}

// Precision of a name
/// The precision of a name.
pub(super) fn precision_of(name: &str) -> Result<Precision, Invalid> {
    let all = [Precision::F64, Precision::F32];
    let known = all.into_iter().find(|precision| precision.name() == name);
    known.ok_or_else(|| Invalid::new("precision", name, "f64 or f32"))
}

// Computation that was planned for Python
/// A computation that is described and run.
#[pyclass(frozen, module = "lenslet._lenslet")]
pub(super) struct PlannedComputation {
    task: Arc<dyn Task>,
    engine: Engine,
    /// The text of the system or sample file.
    text: String,
    seed: Option<u64>,
}

impl PlannedComputation {
    /// Plans a task on a device.
    pub(super) fn new(
        py: Python<'_>,
        task: impl Task + 'static,
        (device, precision): (&str, &str),
        text: &str,
        seed: Option<u64>,
    ) -> PyResult<Self> {
        let engine = py.detach(|| engine(device, precision)).map_err(raised)?;
        let engine = task.suited(engine);
        Ok(Self { task: Arc::new(task), engine, text: text.into(), seed })
    }
}

// Describe and run for Python
#[pymethods]
impl PlannedComputation {
    // Describe a computation for Python
    /// The description as a dictionary: `what`, `arrays`, `method`, `memory`, `stages` and so on. Where the speed of this machine is not known, it is
    /// measured, once.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (task, engine) = (Arc::clone(&self.task), self.engine.clone());
        let described = run(py, None, move |_| task.describe(&with_speed(engine, true)?))?;
        let described = described.map_err(raised)?;
        let mut value = serde_json::to_value(&described).unwrap_or_default();
        value["seconds"] = described.seconds().into();
        from_json(py, &value)
    }

    // Run a computation for Python
    /// Computes; returns variables, attributes and facts.
    #[pyo3(signature = (call, progress=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        call: String,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>, Bound<'py, PyAny>)> {
        let (task, engine) = (Arc::clone(&self.task), self.engine.clone());
        let (text, seed) = (self.text.clone(), self.seed);
        let job = move |watch: &dyn Watch| -> Result<Found, Error> {
            let mut found = task.compute(&engine, watch)?;
            let method = task.describe(&engine)?.method;
            Provenance::new(&call, &method, &text).seed(seed).note(&mut found.data);
            Ok(found)
        };
        let found = run(py, progress.as_ref(), job)?.map_err(raised)?;
        let facts = from_json(py, &found.facts)?;
        let (variables, attributes) = to_python(py, found.data)?;
        Ok((variables, attributes, facts))
    }
}
