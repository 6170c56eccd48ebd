// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! Commands that read a system file.

use super::summary::Outcome;
use crate::error::Error;
use crate::model::{SYSTEM_KEYS, System, SystemFile};
use crate::psf::options::check_telescope;
use std::path::Path;

// Run a command with a system file
/// Runs a command with the system file at a path, which is read and parsed here, once.
pub fn of_file(
    path: &Path,
    command: impl FnOnce(Result<(System, SystemFile), Error>) -> Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    of_system(SystemFile::from_file(path), command)
}

/// Runs a command with a system file. The pupil of the file is checked as for images, whatever the command computes, errors that name
/// keys of the file get its name and a line, and warnings of the file are added.
pub fn of_system(
    file: Result<SystemFile, Error>,
    command: impl FnOnce(Result<(System, SystemFile), Error>) -> Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    let known = file.as_ref().ok().cloned();
    let read = file.and_then(|file| file.system().map(|system| (system, file)));
    // Check the pupil and gather warnings
    let warnings = match &read {
        Ok((_, file)) => {
            check_telescope(file)?;
            file.warnings()
        }
        Err(_) => Vec::new(),
    };
    let said = command(read).map_err(|error| located(error, known.as_ref()))?;
    Ok(said.warned(warnings))
}

// Locate an error about a key
/// An error about a key of a system file, with the line of the file.
fn located(error: Error, file: Option<&SystemFile>) -> Error {
    let (Error::Invalid(invalid), Some(file)) = (&error, file) else { return error };
    let key = invalid.quantity.split(['.', '[']).next().unwrap_or_default();
    if !SYSTEM_KEYS.iter().any(|table| table.name == key) {
        return error;
    }
    let located = file.root().map(|root| root.refuse(invalid.clone()));
    let Ok(bad) = located else { return error };
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let plain = |text: &str| text.trim_matches(['"', '\'']).to_string();
    let is_of_file = bad.value.as_ref().is_none_or(|value| {
        number(value).is_some() || value.is_empty() || plain(value) == plain(&invalid.value)
    });
    // A word that is not that of the file is from an option.
    if is_of_file { bad.into() } else { error }
}
