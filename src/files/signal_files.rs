// Tangled from book/src/signal-files.md: edit there, or here and run cargo tangle stitch.
//! Signals in a file, or a folder, of one of seven formats.

// What files of signals stand on
use super::arrays::{ArrayFormat, Arrays, Values};
use super::atomic_file::{AtomicFile, AtomicFolder};
use super::signals::{Axis, Fact, Samples, Signal, Signals};
use super::zarr::{self, Folder};
use crate::error::{Error, Invalid, accept};
use crate::numerics::real::Precision;
use ndarray::{Array1, arr0};
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

// Formats of signals
/// In which format signals are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalFormat {
    /// HDF5, in the trees of EMD 1.0, which py4DSTEM reads, and of Prismatic: `.emd`, `.h5`, `.hdf5`.
    Hdf5,
    /// HDF5 as HyperSpy saves it: `.hspy`.
    Hspy,
    /// Zarr in an archive, as HyperSpy saves it: `.zspy`.
    Zspy,
    /// Zarr in a folder, a group for each signal: `.zarr`.
    Zarr,
    /// Zarr in an archive, a group for each signal: `.zarr.zip`.
    ZarrZip,
    /// One signal as a stack of images: `.mrc`.
    Mrc,
    /// NumPy's archive: `.npz`.
    Npz,
}

impl SignalFormat {
    /// All formats.
    pub const ALL: [Self; 7] =
        [Self::Hdf5, Self::Hspy, Self::Zspy, Self::Zarr, Self::ZarrZip, Self::Mrc, Self::Npz];

    // Check an output of a format
    /// Whether a file or folder of this format can be written under this name, in place of an older one.
    ///
    /// # Errors
    /// `Write` as in [`AtomicFile::new`], and where the name is that of a folder which this program did not write alone.
    pub fn check_output(self, path: &Path) -> Result<(), Error> {
        match self {
            Self::Zarr => AtomicFolder::new(path, zarr::accept_own_store).map(drop),
            _ => AtomicFile::new(path).map(drop),
        }
    }

    // Find the format of signals
    /// The format of the file of a `role`, such as `output`, by what its name ends in.
    ///
    /// # Errors
    /// `Invalid`, with all endings, for any other ending or none.
    ///
    /// ```
    /// use lenslet::files::SignalFormat;
    /// let of = |name: &str| SignalFormat::of(("output", name.as_ref()));
    /// assert_eq!(of("Si.H5"), Ok(SignalFormat::Hdf5));
    /// let said = of("Si.tif").unwrap_err().to_string();
    /// assert!(said.ends_with("expected a file name that ends in .h5, .hdf5, .emd, .hspy, .zspy, .zarr, .zarr.zip, .mrc or .npz"));
    /// ```
    pub fn of((role, path): (&str, &Path)) -> Result<Self, Invalid> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let ends = |ending: &&str| {
            let rest = name.strip_suffix(*ending).and_then(|rest| rest.strip_suffix('.'));
            rest.is_some_and(|stem| !stem.is_empty())
        };
        let fits = |format: &Self| format.endings().iter().any(ends);
        let refused = || {
            let all: Vec<_> = Self::ALL.iter().flat_map(|format| format.endings()).collect();
            let all = all.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>().join(", ");
            let all = all.replace(", .npz", " or .npz");
            Invalid::new(role, path.display(), format!("a file name that ends in {all}"))
        };
        Self::ALL.into_iter().find(fits).ok_or_else(refused)
    }

    // Endings of files of signals
    /// What names of such files end in, behind a point.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Hdf5 => &["h5", "hdf5", "emd"],
            Self::Hspy => &["hspy"],
            Self::Zspy => &["zspy"],
            Self::Zarr => &["zarr"],
            Self::ZarrZip => &["zarr.zip"],
            Self::Mrc => &["mrc"],
            Self::Npz => &["npz"],
        }
    }
}

// Write signals into a draft
impl<'a> Signals<'a> {
    /// Writes all signals, or in MRC the one that is `chosen` by its name, in place of an older file; returns the length in bytes.
    ///
    /// # Errors
    /// `Invalid` where there is no signal, or as [`check`](Self::check) says; `Write` where the file cannot be written: an older one is
    /// then still there.
    pub fn write(
        &self,
        path: &Path,
        format: SignalFormat,
        chosen: Option<&str>,
    ) -> Result<u64, Error> {
        self.check(format, chosen)?;
        if format == SignalFormat::Zarr {
            let mut draft = AtomicFolder::new(path, zarr::accept_own_store)?;
            let length = draft.fill(|folder| {
                let mut folder = Folder::new(folder);
                self.write_zarr(&mut folder)?;
                Ok(folder.length)
            })?;
            return draft.publish().map(|()| length);
        }
        let mut draft = AtomicFile::new(path)?;
        draft.fill(|file| self.write_into(BufWriter::new(file), format, chosen))?;
        draft.publish()
    }

    // Check that signals fit a format
    /// Whether the signals fit into a file of this format.
    ///
    /// # Errors
    /// `Invalid` where there is no signal, none of the `chosen` name, or, in MRC, several and none chosen, or one that the format cannot hold.
    pub fn check(&self, format: SignalFormat, chosen: Option<&str>) -> Result<(), Invalid> {
        accept(!self.items.is_empty(), "signals", self.items.len(), "at least one")?;
        if format != SignalFormat::Mrc {
            return Ok(());
        }
        self.only(chosen)?.check_mrc()
    }

    /// The signal of this name, or the only one.
    fn only(&self, chosen: Option<&str>) -> Result<&Signal<'a>, Invalid> {
        let names = || self.items.iter().map(Signal::name).collect::<Vec<_>>().join(", ");
        let expected = || format!("one of {}: a file in MRC holds one signal", names());
        match (chosen, &self.items[..]) {
            (None, [one]) => Ok(one),
            (None, all) => Err(Invalid::new("signals", all.len(), expected())),
            (Some(name), all) => {
                let found = all.iter().find(|signal| signal.name == name);
                found.ok_or_else(|| Invalid::new("signal", name, expected()))
            }
        }
    }

    // Write signals in their format
    fn write_into<W: Write + Seek>(
        &self,
        file: W,
        format: SignalFormat,
        chosen: Option<&str>,
    ) -> io::Result<()> {
        match format {
            SignalFormat::Hdf5 => self.write_emd(file),
            SignalFormat::Hspy => self.write_hspy(file),
            SignalFormat::Zspy => zarr::archive(file, |members| self.write_zspy(members)),
            SignalFormat::Zarr | SignalFormat::ZarrZip => {
                zarr::archive(file, |members| self.write_zarr(members))
            }
            SignalFormat::Npz => self.as_arrays().write(file, ArrayFormat::Npz, Precision::F64),
            SignalFormat::Mrc => {
                let signal = self.only(chosen).map_err(io::Error::other)?;
                let mut file = file;
                signal.write_mrc(&mut file)
            }
        }
    }
}

// Names of arrays in an archive
/// Names that are taken.
struct Names(Vec<String>);

impl Names {
    /// The name, with as many lines behind it as make it the only one.
    fn free(&mut self, name: &str) -> String {
        let mut name = name.to_string();
        while self.0.contains(&name) {
            name.push('_');
        }
        self.0.push(name.clone());
        name
    }
}

// Signals as an archive of arrays
impl Signals<'_> {
    /// All signals, axes and facts as arrays.
    fn as_arrays(&self) -> Arrays<'_> {
        let (mut arrays, mut names) = (Arrays::default(), Names(Vec::new()));
        for signal in &self.items {
            let name = names.free(&signal.name);
            let axes: Vec<_> = signal.axes.iter().map(|axis| &axis.name[..]).collect();
            let entry = match &signal.samples {
                Samples::F32(array) => arrays.add(&name, array.view()),
                Samples::F64(array) => arrays.add(&name, array.view()),
                Samples::C32(array) => arrays.add(&name, array.view()),
                Samples::C64(array) => arrays.add(&name, array.view()),
            };
            entry.axes(&axes.join(", "));
        }
        self.add_axes(&mut arrays, &mut names);
        self.add_facts(&mut arrays, &mut names);
        arrays
    }

    // Axes as arrays
    fn add_axes(&self, arrays: &mut Arrays, names: &mut Names) {
        let mut known: Vec<(&Axis, usize)> = Vec::new();
        for signal in &self.items {
            for (axis, &count) in signal.axes.iter().zip(signal.samples.shape()) {
                if known.contains(&(axis, count)) {
                    continue;
                }
                let other = known.iter().any(|(other, _)| other.name == axis.name);
                known.push((axis, count));
                let long = format!("{}_{}", signal.name, axis.name);
                let name = names.free(if other { &long } else { &axis.name });
                if axis.labels.is_empty() {
                    arrays.add(&name, Array1::from(axis.places(count))).unit(&axis.unit);
                } else {
                    arrays.add_text(&name, axis.labels.join(", "));
                }
                if let Some((also, unit, factor)) = &axis.also {
                    let places = Array1::from(axis.places(count)) * *factor;
                    arrays.add(&names.free(also), places).unit(unit);
                }
            }
        }
    }

    // Facts as arrays
    fn add_facts(&self, arrays: &mut Arrays, names: &mut Names) {
        for (key, fact) in &self.facts {
            let name = names.free(key);
            match fact {
                Fact::Text(text) => arrays.note(&name, Values::Text(text.clone())),
                Fact::Number(x) => arrays.add(&name, arr0(*x)),
                Fact::Integer(n) => arrays.add(&name, arr0(*n)),
                Fact::Flag(is) => arrays.add(&name, arr0(i64::from(*is))),
                Fact::Numbers(all) => arrays.add(&name, Array1::from(all.clone())),
            };
        }
    }
}

// Tests of files of signals
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::signals::tests::{LENGTHS, lopsided};
    use ndarray::Array4;
    use ndarray_npy::NpzReader;
    use std::io::{Cursor, ErrorKind, Read, SeekFrom};

    /// What is chosen in MRC, where one must be.
    fn chosen(format: SignalFormat) -> Option<&'static str> {
        (format == SignalFormat::Mrc).then_some("four_d")
    }

    // Run out of disk at every moment
    /// A disk with so many bytes left.
    struct Disk {
        file: Cursor<Vec<u8>>,
        size: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.size.saturating_sub(self.file.position() as usize);
            if room == 0 && !bytes.is_empty() {
                return Err(ErrorKind::StorageFull.into());
            }
            self.file.write(&bytes[..room.min(bytes.len())])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }

    #[test]
    fn a_full_disk_is_told() {
        let signals = lopsided();
        for format in SignalFormat::ALL {
            let mut whole = Disk { file: Cursor::default(), size: usize::MAX };
            signals.write_into(&mut whole, format, chosen(format)).unwrap();
            let length = whole.file.into_inner().len();
            for size in (0..length).step_by(length / 23).chain([length - 1]) {
                let disk = Disk { file: Cursor::default(), size };
                let failed =
                    signals.write_into(disk, format, chosen(format)).map_err(|error| error.kind());
                assert_eq!(
                    failed,
                    Err(ErrorKind::StorageFull),
                    "{format:?} on a disk of {size} bytes"
                );
            }
        }
    }

    // Leave older files alone
    #[test]
    fn files_that_cannot_be_written_stay() {
        let folder = tempfile::tempdir().unwrap();
        let signals = lopsided();
        let path = folder.path().join("old.mrc");
        std::fs::write(&path, "old").unwrap();
        let failed = signals.write(&path, SignalFormat::Mrc, None).unwrap_err().to_string();
        let titles = "annular, annulus_1, four_d, annulus_0, centre_of_mass, probe";
        assert_eq!(
            failed,
            format!("signals = 6: expected one of {titles}: a file in MRC holds one signal")
        );
        let empty =
            Signals::default().write(&path, SignalFormat::Npz, None).unwrap_err().to_string();
        assert_eq!(empty, "signals = 0: expected at least one");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        let length = signals.write(&path, SignalFormat::Mrc, Some("four_d")).unwrap();
        assert_eq!(length, path.metadata().unwrap().len());
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn folders_are_replaced_if_they_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let (signals, path) = (lopsided(), folder.path().join("s.zarr"));
        let write = || signals.write(&path, SignalFormat::Zarr, None);
        let listed = |at: &Path| at.read_dir().unwrap().count();
        let length = write().unwrap();
        let stale = path.join("stale/stale");
        std::fs::create_dir_all(stale.parent().unwrap()).unwrap();
        assert_eq!(write().unwrap(), length);
        assert!(!stale.parent().unwrap().exists(), "an older store is gone as a whole");
        std::fs::write(path.join("notes.txt"), "mine").unwrap();
        let said = write().unwrap_err().to_string();
        assert!(
            said.contains("notes.txt is not part of it") && said.contains("another name"),
            "{said}"
        );
        assert!(SignalFormat::Zarr.check_output(&path).is_err());
        assert_eq!(std::fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
        // What stands there as a file is replaced as in any other format, and an empty folder is somebody's.
        let (file, empty) = (folder.path().join("file.zarr"), folder.path().join("empty.zarr"));
        std::fs::write(&file, "old").unwrap();
        signals.write(&file, SignalFormat::Zarr, None).unwrap();
        assert_eq!((file.is_dir(), listed(&file)), (true, listed(&path) - 1));
        std::fs::create_dir(&empty).unwrap();
        assert!(signals.write(&empty, SignalFormat::Zarr, None).is_err() && listed(&empty) == 0);
        assert_eq!(listed(folder.path()), 3, "no draft is left");
    }

    // Choose signals and formats
    #[test]
    fn endings_and_titles_choose() {
        for (name, format) in [
            ("a.h5", SignalFormat::Hdf5),
            ("a.HDF5", SignalFormat::Hdf5),
            ("b.emd", SignalFormat::Hdf5),
            ("c.d.zspy", SignalFormat::Zspy),
            ("b.hspy", SignalFormat::Hspy),
            ("d.zarr", SignalFormat::Zarr),
            ("d.zarr/", SignalFormat::Zarr),
            ("d.zarr.ZIP", SignalFormat::ZarrZip),
            ("e.mrc", SignalFormat::Mrc),
            ("f.npz", SignalFormat::Npz),
        ] {
            assert_eq!(SignalFormat::of(("output", name.as_ref())), Ok(format));
        }
        for name in ["a", "h5", ".h5", "a.h5.part", "a.tiff", "a.zip", ""] {
            let refused = SignalFormat::of(("output", name.as_ref())).unwrap_err();
            assert!(
                refused
                    .expected
                    .ends_with("in .h5, .hdf5, .emd, .hspy, .zspy, .zarr, .zarr.zip, .mrc or .npz"),
                "{name}"
            );
        }
        let signals = lopsided();
        assert!(signals.check(SignalFormat::Mrc, Some("probe")).is_ok());
        let refused = signals.check(SignalFormat::Mrc, Some("prob")).unwrap_err().to_string();
        assert!(refused.starts_with("signal = prob: expected one of annular, annulus_1,"));
        assert!(signals.check(SignalFormat::Zarr, Some("prob")).is_ok());
    }

    // Find signals in an archive of arrays
    #[test]
    fn archives_have_signals_and_their_places() {
        let mut file = Cursor::new(Vec::new());
        lopsided().write_into(&mut file, SignalFormat::Npz, None).unwrap();
        let mut npz = NpzReader::new(file.clone()).unwrap();
        let [x, y, bins, qx, qy] = LENGTHS;
        let cube: Array4<f32> = npz.by_name("four_d").unwrap();
        assert_eq!((cube.dim(), cube[[3, 2, 6, 4]]), ((x, y, qx, qy), 3264.25));
        let rings: Array4<f32> = npz.by_name("annular").unwrap();
        assert_eq!((rings.dim(), rings[[1, 0, 0, 1]]), ((2, x, y, bins), 1001.0 / 7.0));
        let images: Array4<f64> = npz.by_name("annulus_1").unwrap();
        assert_eq!(images.dim(), (3, 2, x, y));
        let mut places = |name: &str| {
            npz.by_name::<ndarray::OwnedRepr<f64>, ndarray::Ix1>(name).unwrap().to_vec()
        };
        assert_eq!(places("x"), [1.25, 1.75, 2.25, 2.75]);
        assert_eq!(places("probe_y")[2], 2.0 * 0.3);
        assert_eq!((places("thickness"), places("qy")[0]), (vec![20.0, 40.0], -0.25));
        assert_eq!(places("defocus"), [30.0, 10.0, -25.0]);
        let names = npz.names().unwrap();
        let mut archive = zip::ZipArchive::new(file).unwrap();
        let mut probe = Vec::new();
        archive.by_name("probe.npy").unwrap().read_to_end(&mut probe).unwrap();
        let last: Vec<u8> = [3.5_f64, -2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert!(probe.ends_with(&last) && probe[..64].windows(4).any(|letters| letters == b"c16'"));
        assert!(
            ["component", "sample", "c", "ns", "beam_energy"]
                .iter()
                .all(|name| names.iter().any(|it| it == name))
        );
    }
    #[test]
    fn an_axis_of_two_measures_makes_two_arrays() {
        let angle = Axis::signal("angle", "mrad", 2.0, 4.0).unwrap();
        assert!(angle.clone().also("q q", "1/Å", 0.1).is_err());
        assert!(angle.clone().also("q", "1/Å", 0.0).is_err());
        let axes = vec![angle.also("q", "1/Å", 0.25).unwrap()];
        let rings = || ndarray::array![1.0, 2.0, 3.0];
        let mut signals = Signals::default();
        signals.add(Signal::new("annular", rings(), axes.clone()).unwrap()).unwrap();
        signals.add(Signal::new("standard_error", rings(), axes).unwrap()).unwrap();
        let mut file = Cursor::new(Vec::new());
        signals.write_into(&mut file, SignalFormat::Npz, None).unwrap();
        let mut npz = NpzReader::new(file).unwrap();
        let mut values = |name: &str| npz.by_name::<ndarray::OwnedRepr<f64>, ndarray::Ix1>(name);
        assert_eq!(values("angle").unwrap().to_vec(), [2.0, 6.0, 10.0]);
        assert_eq!(values("q").unwrap().to_vec(), [0.5, 1.5, 2.5]);
        assert!(values("q_").is_err());
    }

    // Write files for other readers
    #[test]
    fn files_for_other_readers() {
        let folder = tempfile::tempdir().unwrap();
        let asked = std::env::var_os("LENSLET_SIGNAL_FILES");
        let folder = asked.as_deref().map_or(folder.path(), Path::new);
        let signals = lopsided();
        for format in SignalFormat::ALL {
            let path = folder.join(format!("signals.{}", format.endings()[0]));
            let length = signals.write(&path, format, chosen(format)).unwrap();
            assert!(length > 1000 && SignalFormat::of(("output", &path)) == Ok(format));
        }
        for title in ["annular", "annulus_0", "annulus_1"] {
            let path = folder.join(format!("{title}.mrc"));
            signals.write(&path, SignalFormat::Mrc, Some(title)).unwrap();
        }
        signals.write(&folder.join("signals.emd"), SignalFormat::Hdf5, None).unwrap();
    }
}
