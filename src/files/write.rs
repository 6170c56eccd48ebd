// Tangled from book/src/writing-data-sets.md: edit there, or here and run cargo tangle stitch.
//! Data sets in a file, or a folder, of any format.

// Imports of writing data sets
use super::Format;
use super::atomic_file::{AtomicFile, AtomicFolder};
use super::zarr::{self, Folder};
use crate::data::{DataSet, TypedArray, Variable};
use crate::error::{Error, Invalid, accept};
use crate::numerics::real::Precision;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

// Check an output of a format
impl Format {
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
}

// Write data sets into files
impl<'a> DataSet<'a> {
    /// Writes all variables, or in MRC the one of the `chosen` name, in place of an older file; returns the length in bytes.
    ///
    /// # Errors
    /// `Invalid` as [`check`](Self::check) reports; `Write` where the file cannot be written: an older one is then still there.
    ///
    /// ```
    /// use lenslet::data::{Coordinate, DataSet, Variable};
    /// use lenslet::files::Format;
    /// let probe = ndarray::Array1::linspace(0.0_f32, 1.0, 5);
    /// let mut data = DataSet::default();
    /// data.insert(Variable::new("probe", &probe, vec![Coordinate::signal("x", "Å", 0.0, 0.1)?])?)?;
    /// data.set_attribute("slices", 40)?;
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("probe.h5");
    /// let format = Format::of(("output", &path), &Format::WITH_COORDINATES, None)?;
    /// assert!(data.save(&path, format, None)? > 1000);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn save(&self, path: &Path, format: Format, chosen: Option<&str>) -> Result<u64, Error> {
        self.check(format, chosen)?;
        // Write a folder as a store
        if format == Format::Zarr {
            let mut draft = AtomicFolder::new(path, zarr::accept_own_store)?;
            let length = draft.fill(|folder| {
                let mut folder = Folder::new(folder);
                self.write_zarr(&mut folder)?;
                Ok(folder.length)
            })?;
            return draft.publish().map(|()| length);
        }
        // Write a file in its format
        let mut draft = AtomicFile::new(path)?;
        let precision = Precision::F64;
        draft.fill(|file| self.write_as(BufWriter::new(file), (format, precision), chosen))?;
        draft.publish()
    }

    // Check that variables fit a format
    /// Whether the variables fit into a file of this format.
    ///
    /// # Errors
    /// `Invalid` where there is no array, none of the `chosen` name, a variable without the coordinates that the format needs, or, in MRC, several
    /// and none chosen, or one that the format cannot hold.
    pub fn check(&self, format: Format, chosen: Option<&str>) -> Result<(), Invalid> {
        let count = self.arrays().count();
        accept(count > 0, "signals", count, "at least one")?;
        if !Format::OF_ARRAY.contains(&format) {
            self.check_coordinates()?;
        }
        match format {
            Format::Hdf5 => self.check_prismatic(),
            Format::Mrc => self.only(chosen)?.0.check_mrc(),
            _ => Ok(()),
        }
    }

    /// The array of this name, or the only one.
    fn only(&self, chosen: Option<&str>) -> Result<(&Variable<'a>, &TypedArray<'a>), Invalid> {
        let all: Vec<_> = self.arrays().collect();
        let names = || all.iter().map(|(one, _)| one.name()).collect::<Vec<_>>().join(", ");
        let expected = || format!("one of {}: a file in MRC holds one signal", names());
        match (chosen, &all[..]) {
            (None, [one]) => Ok(*one),
            (None, all) => Err(Invalid::new("signals", all.len(), expected())),
            (Some(name), all) => {
                let variable = all.iter().find(|(one, _)| one.name() == name).copied();
                variable.ok_or_else(|| Invalid::new("signal", name, expected()))
            }
        }
    }

    // Write variables in their format
    /// Writes all variables into a file of one of the formats, results in the given precision.
    ///
    /// # Errors
    /// What the operating system reports; `InvalidInput` where the format cannot hold the variables, as [`check`](Self::check) reports, holds one
    /// array of several, or is a folder.
    pub fn write<W: Write + Seek>(
        &self,
        file: W,
        format: Format,
        precision: Precision,
    ) -> io::Result<()> {
        if !Format::OF_ARRAY.contains(&format) {
            self.check(format, None)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        }
        self.write_as(file, (format, precision), None)
    }

    fn write_as<W: Write + Seek>(
        &self,
        mut file: W,
        (format, precision): (Format, Precision),
        chosen: Option<&str>,
    ) -> io::Result<()> {
        match format {
            Format::Npz => self.write_npz(file, precision),
            Format::Npy => self.write_npy(file, precision),
            Format::Fits => self.write_fits(file, precision),
            Format::Hdf5 => self.write_emd(file),
            Format::Hspy => self.write_hspy(file),
            Format::Zspy => zarr::archive(file, |members| self.write_zspy(members)),
            Format::Zarr | Format::ZarrZip => {
                zarr::archive(file, |members| self.write_zarr(members))
            }
            Format::Mrc => {
                let (variable, _) = self.only(chosen).map_err(io::Error::other)?;
                variable.write_mrc(&mut file)
            }
        }
    }
}

// Tests of writing data sets
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Coordinate;
    use crate::files::variables::tests::{LENGTHS, lopsided};
    use ndarray::Array4;
    use ndarray_npy::NpzReader;
    use std::io::{Cursor, ErrorKind, Read, SeekFrom};

    fn of(path: &Path) -> Result<Format, Invalid> {
        Format::of(("output", path), &Format::WITH_COORDINATES, None)
    }

    /// What is chosen in MRC, where one must be.
    fn chosen(format: Format) -> Option<&'static str> {
        (format == Format::Mrc).then_some("four_d")
    }

    // Run out of disk at every moment
    /// A disk with so many bytes left.
    struct Disk {
        file: Cursor<Vec<u8>>,
        size: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let available = self.size.saturating_sub(self.file.position() as usize);
            if available == 0 && !bytes.is_empty() {
                return Err(ErrorKind::StorageFull.into());
            }
            self.file.write(&bytes[..available.min(bytes.len())])
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
        let data = lopsided();
        for format in Format::WITH_COORDINATES {
            let mut whole = Disk { file: Cursor::default(), size: usize::MAX };
            data.write_as(&mut whole, (format, Precision::F64), chosen(format)).unwrap();
            let length = whole.file.into_inner().len();
            for size in (0..length).step_by(length / 23).chain([length - 1]) {
                let disk = Disk { file: Cursor::default(), size };
                let failed = data
                    .write_as(disk, (format, Precision::F64), chosen(format))
                    .map_err(|error| error.kind());
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
        let data = lopsided();
        let path = folder.path().join("old.mrc");
        std::fs::write(&path, "old").unwrap();
        let failed = data.save(&path, Format::Mrc, None).unwrap_err().to_string();
        let titles = "annular, annulus_1, four_d, annulus_0, centre_of_mass, probe";
        assert_eq!(
            failed,
            format!("signals = 6: expected one of {titles}: a file in MRC holds one signal")
        );
        let empty = DataSet::default().save(&path, Format::Npz, None).unwrap_err().to_string();
        assert_eq!(empty, "signals = 0: expected at least one");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        let length = data.save(&path, Format::Mrc, Some("four_d")).unwrap();
        assert_eq!(length, path.metadata().unwrap().len());
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn folders_are_replaced_if_they_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let (data, path) = (lopsided(), folder.path().join("s.zarr"));
        let write = || data.save(&path, Format::Zarr, None);
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
        assert!(Format::Zarr.check_output(&path).is_err());
        assert_eq!(std::fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
        // What stands there as a file is replaced as in any other format, and an empty folder is somebody's.
        let (file, empty) = (folder.path().join("file.zarr"), folder.path().join("empty.zarr"));
        std::fs::write(&file, "old").unwrap();
        data.save(&file, Format::Zarr, None).unwrap();
        assert_eq!((file.is_dir(), listed(&file)), (true, listed(&path) - 1));
        std::fs::create_dir(&empty).unwrap();
        assert!(data.save(&empty, Format::Zarr, None).is_err() && listed(&empty) == 0);
        assert_eq!(listed(folder.path()), 3, "no draft is left");
    }

    // Choose variables and formats
    #[test]
    fn endings_and_titles_choose() {
        for (name, format) in [
            ("a.h5", Format::Hdf5),
            ("a.HDF5", Format::Hdf5),
            ("b.emd", Format::Hdf5),
            ("c.d.zspy", Format::Zspy),
            ("b.hspy", Format::Hspy),
            ("d.zarr", Format::Zarr),
            ("d.zarr/", Format::Zarr),
            ("d.zarr.ZIP", Format::ZarrZip),
            ("e.mrc", Format::Mrc),
            ("f.npz", Format::Npz),
        ] {
            assert_eq!(of(name.as_ref()), Ok(format));
        }
        for name in ["a", "h5", ".h5", "a.h5.part", "a.tiff", "a.zip", ""] {
            let refused = of(name.as_ref()).unwrap_err();
            assert!(
                refused
                    .expected
                    .ends_with("in .h5, .hdf5, .emd, .hspy, .zspy, .zarr, .zarr.zip, .mrc or .npz"),
                "{name}"
            );
        }
        let data = lopsided();
        assert!(data.check(Format::Mrc, Some("probe")).is_ok());
        let refused = data.check(Format::Mrc, Some("prob")).unwrap_err().to_string();
        assert!(refused.starts_with("signal = prob: expected one of annular, annulus_1,"));
        assert!(data.check(Format::Zarr, Some("prob")).is_ok());
    }

    // Find variables in an archive of arrays
    #[test]
    fn archives_have_signals_and_their_places() {
        let mut file = Cursor::new(Vec::new());
        lopsided().write(&mut file, Format::Npz, Precision::F64).unwrap();
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
        let angle = Coordinate::signal("angle", "mrad", 2.0, 4.0).unwrap();
        assert!(angle.clone().also("q q", "1/Å", 0.1).is_err());
        assert!(angle.clone().also("q", "1/Å", 0.0).is_err());
        let axes = vec![angle.also("q", "1/Å", 0.25).unwrap()];
        let rings = || ndarray::array![1.0, 2.0, 3.0];
        let mut data = DataSet::default();
        data.insert(Variable::new("annular", rings(), axes.clone()).unwrap()).unwrap();
        data.insert(Variable::new("standard_error", rings(), axes).unwrap()).unwrap();
        let mut file = Cursor::new(Vec::new());
        data.write(&mut file, Format::Npz, Precision::F64).unwrap();
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
        let kept = std::env::var_os("LENSLET_SIGNAL_FILES");
        let folder = kept.as_deref().map_or(folder.path(), Path::new);
        let data = lopsided();
        for format in Format::WITH_COORDINATES {
            let path = folder.join(format!("signals.{}", format.name()));
            let length = data.save(&path, format, chosen(format)).unwrap();
            assert!(length > 1000 && of(&path) == Ok(format));
        }
        for title in ["annular", "annulus_0", "annulus_1"] {
            let path = folder.join(format!("{title}.mrc"));
            data.save(&path, Format::Mrc, Some(title)).unwrap();
        }
        data.save(&folder.join("signals.emd"), Format::Hdf5, None).unwrap();
    }
}
