// Tangled from book/src/device.md: edit there, or here and run cargo tangle stitch.
//! Graphics processors in a build without CUDA: there is none.

use crate::error::Error;

/// A graphics processor; in a build without CUDA there can be none.
#[derive(Debug, Clone, Copy)]
pub enum Gpu {}

impl Gpu {
    /// Its name.
    pub fn name(&self) -> &str {
        match *self {}
    }

    /// Refuses what it has no memory for.
    ///
    /// # Errors
    /// None, as nobody can ask.
    pub fn refuse_beyond_memory(&self, _needed: u64, _what: &str) -> Result<(), Error> {
        match *self {}
    }
}

/// What devices would compute, if there were any.
pub(crate) fn on_none<R>(gpus: &[Gpu]) -> Result<R, Error> {
    match gpus.first() {
        Some(gpu) => match *gpu {},
        None => Err(without_cuda("cuda")),
    }
}

/// Says that this build knows no graphics processors.
pub(crate) fn without_cuda(device: &str) -> Error {
    let reason = "this build has no CUDA: it lacks the feature `cuda`".into();
    Error::Device { device: device.into(), reason }
}
