// Tangled from book/src/planned-run.md: edit there, or here and run cargo tangle stitch.
//! The course of a command with a plan: it is described, its memory is checked, and it runs in sight of a terminal.

use super::progress::Terminal;
use super::summary::plan_text;
use crate::device::Engine;
use crate::error::Error;
use crate::numerics::Precision;
use crate::plan::{Description, Plan, Stage};
use std::path::Path;

// A plan on its engine
/// A plan with the engine that a command runs it on, and what the command adds to it.
pub struct PlannedRun<'a, P> {
    plan: &'a P,
    engine: &'a Engine,
    /// Stages of the command after those of the plan.
    stages: Vec<Stage>,
    /// Bytes on the host besides those of the plan.
    bytes: u64,
}

// Methods of a planned run
impl<'a, P: Plan> PlannedRun<'a, P> {
    pub fn new(plan: &'a P, engine: &'a Engine) -> Self {
        Self { plan, engine, stages: Vec::new(), bytes: 0 }
    }

    /// Adds stages of the command.
    pub fn with_stages(mut self, stages: impl IntoIterator<Item = Stage>) -> Self {
        self.stages.extend(stages);
        self
    }

    /// Adds bytes on the host.
    pub fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes: self.bytes + bytes, ..self }
    }

    // Describe, check and run a plan
    /// What the plan and the command will do.
    pub fn describe(&self) -> Result<Description, Error> {
        let mut description = self.plan.describe(self.engine)?;
        description.memory.host = description.memory.host.saturating_add(self.bytes);
        description.stages.extend(self.stages.iter().cloned());
        Ok(description)
    }

    /// The text that `--plan` prints.
    pub fn text(&self, json: bool) -> Result<String, Error> {
        Ok(plan_text(&self.describe()?, json))
    }

    /// Rejects a run that cannot begin.
    pub fn check(&self) -> Result<(), Error> {
        self.plan.check(self.engine)?;
        match self.bytes {
            0 => Ok(()),
            _ => self.describe()?.memory.check(self.engine, &self.plan.subject()),
        }
    }

    /// Checks the plan, tells the terminal its stages and the files to write, and runs it.
    pub fn run<'p>(
        &self,
        terminal: &Terminal,
        files: impl IntoIterator<Item = &'p Path>,
    ) -> Result<P::Output, Error> {
        self.check()?;
        terminal.plan(|| self.describe(), files)?;
        self.plan.run(self.engine, terminal)
    }
}

// Engine that suits a plan
/// The engine, in double precision where the CPU computes the plan in no other: the precision that a user chooses is then that of the
/// written numbers alone.
pub fn suited(engine: Engine, plan: &impl Plan) -> Engine {
    let has_devices = !engine.devices().is_empty();
    if has_devices || plan.check_engine(&engine).is_ok() {
        return engine;
    }
    Engine::cpu(Precision::F64).with_speed(engine.speed().clone())
}
