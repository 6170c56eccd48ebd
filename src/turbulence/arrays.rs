// Tangled from book/src/results.md: edit there, or here and run cargo tangle stitch.
//! Files that appear whole or not at all, and the arrays of a covariance.

use crate::error::{Error, Invalid};
use crate::files::arrays::Arrays;
use crate::model::sensor::Sensor;
use crate::model::source::Source;
use crate::model::system::System;
use crate::turbulence::plan::{Covariances, SlopeSlope, WavefrontSlopes};
use ndarray::{Array2, arr0, arr1};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::NamedTempFile;

// Draft of a file
/// A file in the making, which is removed unless it is published.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    target: PathBuf,
    name: PathBuf,
}

impl Draft {
    // Start a draft beside its target
    /// Starts a draft of the file `name`, in the folder where that file shall be.
    ///
    /// # Errors
    /// `Write` where the folder does not exist or cannot be written, or `name` is not that of a file.
    pub fn new(name: &Path) -> Result<Self, Error> {
        let refuse = |source| Error::Write { path: name.into(), source };
        let target = target_of(name).map_err(refuse)?;
        if target.exists() && !target.is_file() {
            let reason = "the name is taken by something that is not a file";
            return Err(refuse(io::Error::other(reason)));
        }
        let mut drafts = DRAFTS.lock().unwrap_or_else(PoisonError::into_inner);
        let file = start_file(folder_of(&target)).map_err(refuse)?;
        drafts.insert(file.path().into());
        Ok(Self { file, target, name: name.into() })
    }

    // Fill and publish the draft
    /// Fills the draft; nothing is visible yet.
    ///
    /// # Errors
    /// `Write` with what `fill` says, or where the disk is full.
    pub fn fill(&mut self, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
        let file = self.file.as_file_mut();
        let filled = fill(file).and_then(|()| file.sync_all());
        filled.map_err(|source| Error::Write { path: self.name.clone(), source })
    }

    /// Gives the draft its name, in place of an older file; returns its length in bytes.
    ///
    /// # Errors
    /// `Write` where the rename fails; an older file is then still there.
    pub fn publish(self) -> Result<u64, Error> {
        let Self { file, target, name } = self;
        let refuse = |source| Error::Write { path: name.clone(), source };
        let length = file.as_file().metadata().map_err(refuse)?.len();
        file.persist(target).map_err(|error| refuse(error.error))?;
        Ok(length)
    }
}

// Follow a name to its target
/// The file that a name stands for: links followed, even where nothing is at their end, and its folder spelt out in full.
fn target_of(name: &Path) -> io::Result<PathBuf> {
    let mut target = name.to_path_buf();
    for _ in 0..40 {
        let folder = folder_of(&target);
        if let Ok(link) = std::fs::read_link(&target) {
            target = folder.join(link);
        } else if !folder.is_dir() {
            let reason = format!("there is no folder {}", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        } else {
            let file = target.file_name().filter(|_| !target.starts_with("/proc"));
            let file = file.ok_or_else(|| io::Error::other("this is not the name of a file"))?;
            return Ok(folder.canonicalize()?.join(file));
        }
    }
    Err(io::Error::other("the name is a chain of links without an end"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

// Start a file with ordinary permissions
fn start_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lenslet-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(|error| io::Error::from(error.kind()))
}

// Remove drafts when interrupted
static DRAFTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// From now on an interrupt, or a request to end, removes all drafts and ends the process with the code 130.
pub fn remove_drafts_on_interrupt() {
    let clean = || {
        let drafts = DRAFTS.lock().unwrap_or_else(PoisonError::into_inner);
        for draft in drafts.iter() {
            let _ = std::fs::remove_file(draft);
        }
        std::process::exit(130);
    };
    let _ = ctrlc::set_handler(clean); // fails only where a handler is set already
}

// Refuse two names for one file
/// Refuses the name of a `role`, such as `output`, that stands for the same file as the name of another.
///
/// # Errors
/// `Invalid`, naming both roles.
pub fn check_distinct(
    (role, name): (&str, &Path),
    (other_role, other): (&str, &Path),
) -> Result<(), Invalid> {
    match (target_of(name), target_of(other)) {
        (Ok(one), Ok(two)) if one == two => {
            let expected = format!("another file than the {other_role}");
            Err(Invalid::new(role, name.display(), expected))
        }
        _ => Ok(()),
    }
}
/// Refuses outputs that stand for the file of an input or of each other, or that cannot be written; each is a role and a name.
///
/// # Errors
/// `Invalid`, naming both roles; `Write` as in [`Draft::new`].
pub fn check_files(inputs: &[(&str, &Path)], outputs: &[(&str, &Path)]) -> Result<(), Error> {
    for (k, &output) in outputs.iter().enumerate() {
        for &other in outputs[..k].iter().chain(inputs) {
            check_distinct(output, other)?;
        }
        drop(Draft::new(output.1)?);
    }
    Ok(())
}

// Arrays of a covariance
/// The covariances of a system, with what is needed to use them, as arrays for a file.
pub fn covariance_arrays<'a>(covariances: &'a Covariances, system: &System) -> Arrays<'a> {
    let mut arrays = Arrays::default();
    add_slopes(&mut arrays, &covariances.slope_slope);
    if let Some(wavefront) = &covariances.wavefront_slope {
        add_wavefront(&mut arrays, wavefront);
    }
    if let Some(values) = &covariances.wavefront_wavefront {
        let about = "covariance of the wavefronts of target t and target u";
        let entry = arrays.add_result("wavefront_wavefront", values.view());
        entry.unit("m2").axes("target t, target u, y, x").about(about);
    }
    describe_system(&mut arrays, system);
    arrays
}

// Add slopes and wavefronts
fn add_slopes<'a>(arrays: &mut Arrays<'a>, slopes: &'a SlopeSlope) {
    let entry = match slopes {
        SlopeSlope::Toeplitz(covariance) => arrays
            .add_result("slope_slope", covariance.values().view())
            .axes("star p, star q, slope a, slope b, y, x"),
        SlopeSlope::Dense(matrix) => {
            arrays.add_result("slope_slope_dense", matrix.view()).axes("slope, slope")
        }
    };
    entry.unit("rad2").about("covariance of slope a under star p and slope b under star q");
}

fn add_wavefront<'a>(arrays: &mut Arrays<'a>, wavefront: &'a WavefrontSlopes) {
    let about = "covariance of the wavefront of target t and slope a under star q";
    match wavefront {
        WavefrontSlopes::Dense(values) => {
            let entry = arrays.add_result("wavefront_slope_dense", values.view());
            entry.axes("target, y, x, slope").unit("m rad").about(about);
        }
        WavefrontSlopes::Toeplitz(problem, covariance) => {
            // Add the lattices of the wavefront
            for (k, lattice) in covariance.lattices().iter().enumerate() {
                let layered = problem.is_layered();
                let name =
                    if layered { format!("wavefront_slope_{k}") } else { "wavefront_slope".into() };
                let entry = arrays.add_result(&name, lattice.view());
                entry.axes("target t, star q, slope a, y, x").unit("m rad").about(about);
            }
            if problem.is_layered() {
                let gamma: Vec<f64> = problem.layers().iter().map(|layer| layer.gamma).collect();
                let points: Vec<i64> =
                    problem.layers().iter().map(|layer| layer.points as i64).collect();
                arrays
                    .add("layer_gamma", arr1(&gamma))
                    .axes("layer")
                    .about("cone factor of each layer");
                arrays
                    .add("layer_points", arr1(&points))
                    .axes("layer")
                    .about("wavefront points across");
            }
        }
    }
}

// Describe the system in arrays
fn describe_system(arrays: &mut Arrays, system: &System) {
    let stars = system.guide_stars();
    let lit = "lenslets that are lit";
    let first = system.first_array();
    if system.common_array().is_some() {
        let valid = first.valid(system.pupil(), system.validity());
        arrays.add("valid", valid).axes("y, x").about(lit);
        arrays.add("pitch", arr0(first.pitch())).unit("m");
    } else {
        for (q, valid) in system.valid_lenslets().into_iter().enumerate() {
            arrays.add(&format!("valid_{q}"), valid).axes("y, x").about(lit);
        }
        let pitches: Vec<f64> = stars.iter().map(|star| star.sensor.array.pitch()).collect();
        arrays.add("pitch", arr1(&pitches)).unit("m").axes("star");
    }
    describe_misaligned(arrays, &system.sensors());
    let sources: Vec<_> = stars.iter().map(|star| star.sensor.source).collect();
    arrays.add("directions", directions(&sources)).unit("rad").axes("star, component");
    if let Ok(grid) = system.wavefront_grid() {
        let targets = directions(system.targets());
        arrays.add("target_directions", targets).unit("rad").axes("target, component");
        let step = system.wavefront_pitch() / grid.oversampling as f64;
        arrays.add("wavefront_step", arr0(step)).unit("m");
    }
}

/// The directions of sources, (sources, 2), rad.
fn directions(sources: &[Source]) -> Array2<f64> {
    let component = |(k, axis): (usize, usize)| sources[k].direction()[axis];
    Array2::from_shape_fn((sources.len(), 2), component)
}
/// Rotation, shift and magnification of each sensor, unless all are at rest.
fn describe_misaligned(arrays: &mut Arrays, sensors: &[Sensor]) {
    if sensors.iter().all(Sensor::is_at_rest) {
        return;
    }
    let rotations: Vec<f64> = sensors.iter().map(|sensor| sensor.rotation).collect();
    arrays.add("rotation", arr1(&rotations)).unit("rad").axes("star");
    let shift = |(k, axis): (usize, usize)| sensors[k].shift[axis];
    let shifts = Array2::from_shape_fn((sensors.len(), 2), shift);
    arrays.add("shift", shifts).unit("m").axes("star, component");
    let magnifications: Vec<f64> = sensors.iter().map(|sensor| sensor.magnification).collect();
    arrays.add("magnification", arr1(&magnifications)).axes("star");
}

// Tests of drafts
#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    // Fail in the middle of a draft
    #[test]
    fn a_draft_that_fails_leaves_the_old_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let name = folder.path().join("result.npz");
        std::fs::write(&name, "old")?;
        let full = |file: &mut File| {
            file.write_all(b"half of the n")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        let failed = Draft::new(&name).and_then(|mut draft| draft.fill(full));
        assert!(matches!(failed, Err(Error::Write { path, .. }) if path == name));
        assert_eq!(std::fs::read_to_string(&name)?, "old");
        assert_eq!(folder.path().read_dir()?.count(), 1);
        let published = Draft::new(&name).and_then(|mut draft| {
            draft.fill(|file| file.write_all(b"new"))?;
            draft.publish()
        });
        assert!(matches!(published, Ok(3)));
        assert_eq!(std::fs::read_to_string(&name)?, "new");
        Ok(())
    }

    // Refuse names that are no files
    #[test]
    fn names_of_other_things_are_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let absent = folder.path().join("absent/result.npz");
        for name in [folder.path(), &absent, Path::new(""), Path::new(".."), Path::new("/")] {
            let refused = Draft::new(name);
            assert!(matches!(refused, Err(Error::Write { .. })), "{}", name.display());
        }
        let (one, same) = (folder.path().join("a.npz"), folder.path().join("./a.npz"));
        assert!(check_distinct(("plot", &one), ("output", &same)).is_err());
        assert!(check_distinct(("plot", &one), ("output", &absent)).is_ok());
        Ok(())
    }

    // Follow links without an end
    #[cfg(unix)]
    #[test]
    fn links_lead_to_their_files() -> io::Result<()> {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir()?;
        let name = |name: &str| folder.path().join(name);
        symlink("second", name("first"))?;
        symlink(name("file.npz"), name("second"))?;
        symlink("circle", name("circle"))?;
        let published = Draft::new(&name("first")).and_then(|mut draft| {
            draft.fill(|file| file.write_all(b"new"))?;
            draft.publish()
        });
        assert!(published.is_ok() && name("first").is_symlink() && name("second").is_symlink());
        assert_eq!(std::fs::read_to_string(name("file.npz"))?, "new");
        assert!(check_distinct(("plot", &name("second")), ("output", &name("file.npz"))).is_err());
        assert!(Draft::new(&name("circle")).is_err());
        Ok(())
    }
}
