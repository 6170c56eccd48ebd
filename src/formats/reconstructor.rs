// Tangled from book/src/reconstructor-files.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors from files of this program and others: their shape, and what their rows are.

// Imports of stored reconstructors
use crate::error::{Error, Invalid};
use crate::estimation::matrix_estimator::{ReconstructorOutput, StoredReconstructor, rows_of};
use crate::files::read::{array_names, stored_text};
use crate::files::reading::{Unit, read_array, split_choice};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::system::System;
use ndarray::{Array3, ArrayD};
use std::path::{Path, PathBuf};

// Read a stored reconstructor
/// Name of the array in files of this program.
const NAME: &str = "reconstructor";

/// Name of the text that states what the rows are.
const TO: &str = "to";

impl StoredReconstructor {
    /// Reads a reconstructor of a system from `.npy`, `.npz` or FITS.
    ///
    /// # Errors
    /// `Read` where the file cannot be read; `Invalid`, with the name of the file, for a shape or a meaning that does not fit the system, or a number
    /// that is not finite.
    pub fn from_file(path: &Path, system: &System) -> Result<Self, Error> {
        let (file, choice) = split_choice(path);
        let (chosen, usual) = if choice.is_none() { chosen_array(file)? } else { (None, false) };
        let array = read_array(chosen.as_deref().unwrap_or(path), [2, 3], Unit::Stored)?;
        let stated = stored_text(file, TO)?;
        let stored = StoredMatrix { file, array, usual, stated };
        let output = stored.output(system)?;
        Ok(Self::new(stored.in_sets(output, system)?, output)?)
    }
}

// Choose the array of a reconstructor
/// The array of the usual name in a file, which FITS has in capitals, or the only one besides `to`, as it is chosen in brackets; and whether it has
/// that name.
fn chosen_array(file: &Path) -> Result<(Option<PathBuf>, bool), Error> {
    let names = array_names(file)?;
    let chosen = |name: &str| PathBuf::from(format!("{}[{name}]", file.display()));
    if let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(NAME)) {
        return Ok((Some(chosen(name)), true));
    }
    let others: Vec<_> = names.iter().filter(|name| *name != TO && !name.is_empty()).collect();
    Ok((if let [only] = others[..] { Some(chosen(only)) } else { None }, false))
}

// Meaning of the rows in a file
// Matrix as it is stored
/// A matrix as it is stored.
struct StoredMatrix<'a> {
    file: &'a Path,
    array: ArrayD<f64>,
    /// Whether it has the usual name.
    usual: bool,
    /// What the file states of its rows.
    stated: Option<String>,
}

impl StoredMatrix<'_> {
    /// What the rows are.
    fn output(&self, system: &System) -> Result<ReconstructorOutput, Error> {
        if let Some(name) = &self.stated {
            let known = ReconstructorOutput::named(name);
            return known.map_err(|error| self.refuse("to", &error.value, &error.expected));
        }
        let possible = [ReconstructorOutput::Slopes, ReconstructorOutput::Wavefront];
        let fitting: Vec<_> = possible.into_iter().filter(|one| self.fits(*one, system)).collect();
        match (&fitting[..], self.usual) {
            ([one], _) | ([one, _], true) => Ok(*one),
            (fitting, _) => Err(self.refuse_rows(!fitting.is_empty(), system)),
        }
    }

    // Rows of a stored matrix
    /// Whether the shape is that of a reconstructor with this output.
    fn fits(&self, output: ReconstructorOutput, system: &System) -> bool {
        let expected = rows_of(system, output).ok().flatten();
        expected.is_some_and(|(targets, rows)| match *self.array.shape() {
            [sets, of_set, _] => [sets, of_set] == [targets, rows],
            [all, _] => all == targets * rows,
            _ => false,
        })
    }

    /// The matrix with its sets of rows.
    fn in_sets(self, output: ReconstructorOutput, system: &System) -> Result<Array3<f64>, Error> {
        let n = SlopeOrder::new(&system.valid_lenslets()).len();
        let shape = match *self.array.shape() {
            [sets, rows, columns] => (sets, rows, columns),
            [rows, columns] if rows == n && columns != n => {
                let expected = format!(
                    "(rows, {n}), a row for each number that the matrix gives: it may be transposed"
                );
                return Err(self.refuse("shape", &format!("[{rows}, {columns}]"), &expected));
            }
            [rows, columns] => {
                let sets = rows_of(system, output)?.map_or(1, |(targets, _)| targets);
                let sets = if rows % sets == 0 { sets } else { 1 };
                (sets, rows / sets, columns)
            }
            _ => unreachable!("two or three axes are read"),
        };
        let stored = self.array.into_shape_with_order(shape);
        Ok(stored.unwrap_or_else(|_| unreachable!("as many numbers")))
    }

    fn refuse(&self, what: &str, value: &str, expected: &str) -> Error {
        Invalid::new(format!("{}: {what}", self.file.display()), value, expected).into()
    }

    // Refuse rows of an unknown kind
    /// Rows of neither kind, or of both.
    fn refuse_rows(&self, both: bool, system: &System) -> Error {
        let shape = format!("{:?}", self.array.shape());
        let of = |(what, output): (&str, ReconstructorOutput)| {
            let rows = rows_of(system, output).ok().flatten();
            rows.map(|(targets, rows)| format!("{targets} × {rows} rows for {what}"))
        };
        let kinds = [
            ("slopes of a truth sensor", ReconstructorOutput::Slopes),
            ("the wavefront at the points of [phase]", ReconstructorOutput::Wavefront),
        ];
        let known: Vec<String> = kinds.into_iter().filter_map(of).collect();
        let remedy = "store a text `to` with it: slopes, wavefront or actuators";
        let expected = match (both, &known[..]) {
            (true, _) => format!(
                "a file that states which rows it has, as {}: {remedy}",
                known.join(" and ")
            ),
            (_, []) => {
                format!("a system with at least one [[target]], or strokes of actuators: {remedy}")
            }
            _ => format!("{}; for strokes of actuators {remedy}", known.join(" or ")),
        };
        self.refuse("shape", &shape, &expected)
    }
}

// Tests of stored reconstructors
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSet;
    use crate::estimation::estimate::tests::system;
    use crate::estimation::matrix_estimator::tests::matrix;
    use crate::estimation::{MatrixEstimatorPlan, ReconstructorMatrix};
    use crate::files::Format;
    use crate::numerics::real::Precision;
    use ndarray::Array2;

    /// Writes arrays with a text into a file of a folder; returns its path.
    fn written(folder: &Path, file: &str, arrays: &[(&str, ArrayD<f64>)], to: &str) -> PathBuf {
        let (path, mut data) = (folder.join(file), DataSet::default());
        for (name, array) in arrays {
            data.add(name, array.clone());
        }
        if !to.is_empty() {
            data.set_attribute("to", to).unwrap();
        }
        let format = Format::of(("file", &path), &Format::ALL, None).unwrap();
        data.write(std::fs::File::create(&path).unwrap(), format, Precision::F64).unwrap();
        path
    }

    // Files of this program and others
    #[test]
    fn files_of_this_program_and_others_are_read() {
        use ReconstructorOutput::{Actuators, Slopes, Wavefront};
        let (system, folder) = (system(["inf", "90e3"], 0.0), tempfile::tempdir().unwrap());
        let n = SlopeOrder::new(&system.valid_lenslets()).len();
        let m = rows_of(&system, Slopes).unwrap().unwrap().1;
        let flat = |array: Array3<f64>| {
            let (sets, rows, n) = array.dim();
            array.into_shape_with_order((sets * rows, n)).unwrap().into_dyn()
        };
        let (slopes, waves) = (matrix((2, m, n)), matrix((2, 144, n)));
        let other = ("error_covariance", Array2::<f64>::eye(m).into_dyn());
        for (file, arrays, to, shape, output) in [
            (
                "a.npz",
                vec![(NAME, slopes.clone().into_dyn()), other.clone()],
                "",
                (2, m, n),
                Slopes,
            ),
            (
                "b.npz",
                vec![other.clone(), (NAME, waves.clone().into_dyn())],
                "wavefront",
                (2, 144, n),
                Wavefront,
            ),
            (
                "c.fits",
                vec![other.clone(), (NAME, waves.clone().into_dyn())],
                "wavefront",
                (2, 144, n),
                Wavefront,
            ),
            (
                "d.npz",
                vec![(NAME, matrix((3, 9, n)).into_dyn())],
                "actuators",
                (3, 9, n),
                Actuators,
            ),
            ("e.npy", vec![("x", flat(waves.clone()))], "", (2, 144, n), Wavefront),
            ("f.npz", vec![("mmse", flat(slopes.clone()))], "", (2, m, n), Slopes),
            (
                "g.npz",
                vec![("mvm", matrix((1, 9, n)).into_dyn())],
                "actuators",
                (1, 9, n),
                Actuators,
            ),
        ] {
            let path = written(folder.path(), file, &arrays, to);
            let stored = StoredReconstructor::from_file(&path, &system).unwrap();
            assert_eq!((stored.matrix().dim(), stored.output()), (shape, output), "{file}");
            assert_eq!(*stored.matrix(), ReconstructorMatrix::from(matrix(shape)), "{file}");
            MatrixEstimatorPlan::new(&system, stored).unwrap();
        }
    }

    // Files that fit no system
    #[test]
    fn files_that_fit_no_system_are_refused() {
        let (system, folder) = (system(["inf", "90e3"], 0.0), tempfile::tempdir().unwrap());
        let n = SlopeOrder::new(&system.valid_lenslets()).len();
        let mut hole = matrix((2, 144, n));
        hole[[1, 7, 3]] = f64::INFINITY;
        let many = vec![("a", matrix((2, 144, n)).into_dyn()), ("b", matrix((1, 2, n)).into_dyn())];
        let one = |array: Array3<f64>| vec![(NAME, array.into_dyn())];
        for (file, arrays, to, words) in [
            ("a.npz", one(matrix((2, 143, n))), "", "shape = [2, 143"),
            ("b.npz", one(matrix((2, 144, n))), "phase", "to = phase: expected slopes, wavefront"),
            ("c.npz", one(hole), "wavefront", "row 1, index 7, 3 = inf"),
            ("d.npz", many, "", "arrays = a, b"),
            ("e.npy", vec![("x", Array2::zeros((n, 288)).into_dyn())], "", "shape = "),
            (
                "f.npz",
                vec![("x", Array2::zeros((n, 5)).into_dyn())],
                "actuators",
                "it may be transposed",
            ),
            ("g.npz", vec![(NAME, ArrayD::zeros(vec![n]))], "", "expected two or three axes"),
        ] {
            let path = written(folder.path(), file, &arrays, to);
            let said = StoredReconstructor::from_file(&path, &system).unwrap_err().to_string();
            assert!(said.contains(words) && said.contains(file), "{said}");
        }
        // A wavefront with as many points as a truth sensor has slopes.
        let alike = crate::model::wavefront_grid::PhaseGrid::new(4, 1, 0.0).unwrap();
        let alike = system.to_builder().phase(Some(alike)).build().unwrap();
        let truth = crate::model::lenslet_array::LensletArray::new(3, 3.5 / 3.0).unwrap();
        let alike = alike.to_builder().truth_sensor(Some(truth)).build().unwrap();
        let both = [ReconstructorOutput::Slopes, ReconstructorOutput::Wavefront];
        let rows = both.map(|output| rows_of(&alike, output).unwrap().unwrap().1);
        assert_eq!(rows, [16, 16]);
        let ours = written(folder.path(), "h.npz", &[(NAME, matrix((2, 16, n)).into_dyn())], "");
        let ours = StoredReconstructor::from_file(&ours, &alike).unwrap();
        assert_eq!(ours.output(), ReconstructorOutput::Slopes);
        let theirs = written(folder.path(), "h.npy", &[("x", matrix((2, 16, n)).into_dyn())], "");
        let said = StoredReconstructor::from_file(&theirs, &alike).unwrap_err().to_string();
        assert!(said.contains("a file that states which rows it has"), "{said}");
        let missing = folder.path().join("none.npz");
        assert!(matches!(
            StoredReconstructor::from_file(&missing, &alike),
            Err(Error::Read { .. })
        ));
    }
}
