// Tangled from book/src/beside-readings.md: edit there, or here and run cargo tangle stitch.
//! What may be kept of a scan besides its readings.

// Imports of intermediate results
use super::beam::kept_frequencies;
use super::hrtem::plan::{HrtemPlan, samples};
use super::potential::Potential;
use super::prism::SMatrix;
use super::scan::{StemPlan, focused};
use super::scan_setup::series;
use super::wave_grid::WaveGrid;
use crate::data::{Coordinate, DataSet, Element, Variable};
use crate::error::{Error, Invalid};
use crate::numerics::real::{Precision, Real};
use crate::watch::{CancelOnly, Watch, check};
use ndarray::{Array2, Array3, ArrayView3, Axis as NdAxis, aview1};
use num_complex::{Complex, Complex64};

// Intermediate results of a scan
/// What may be kept of a scan besides its readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intermediate {
    /// The potential of all slices: `potential` (x, y, slice) \[V Å\].
    Potential,
    /// The compact S-matrix of PRISM: `smatrix` (beam, x, y), complex, and `smatrix_beams` (beam, axis) \[1/Å\].
    SMatrix,
    /// The wave of the probe at the first place of the scan, `probe` (x, y), complex, with an axis of `defocus` before these where there are several.
    Probe,
}

// Keep intermediate results of a scan
impl StemPlan {
    // Keep an intermediate result
    /// Adds an intermediate result to a data set, in the precision `T`.
    ///
    /// # Errors
    /// `Invalid` where there is no S-matrix, or a variable of that name already; `Cancelled`.
    pub fn keep<T>(
        &self,
        intermediate: Intermediate,
        data: &mut DataSet<'static>,
        watch: &dyn Watch,
    ) -> Result<(), Error>
    where
        T: Real + Element,
        Complex<T>: Element,
    {
        match intermediate {
            Intermediate::Potential => {
                check(watch)?;
                Ok(data.insert(potential_variable::<T>(&self.potential(0)?)?)?)
            }
            Intermediate::Probe => self.keep_probes::<T>(data),
            Intermediate::SMatrix => self.keep_matrix::<T>(data, watch),
        }
    }

    // Keep the probes of a scan
    fn keep_probes<T>(&self, data: &mut DataSet<'static>) -> Result<(), Error>
    where
        T: Real + Element,
        Complex<T>: Element,
    {
        let (options, grid) = (self.options(), self.grid());
        let [nx, ny] = grid.points();
        let share = Complex64::from(1.0 / ((nx * ny) as f64).sqrt());
        let mut probes = Array3::zeros((options.defoci.len(), nx, ny));
        for (mut to, defocus) in probes.outer_iter_mut().zip(&options.defoci) {
            let probe = focused(&options.probe, *defocus).wave(grid)?;
            let wave = probe.at::<f64>(&[options.scan.place(0)]);
            let wave = samples(grid, wave.index_axis(NdAxis(0), 0));
            to.assign(&wave.mapv(|a| T::of_complex(a * share)).t());
        }
        let foci = series(&options.defoci, &[], &options.slicing)?;
        let axes = [&foci[..], &plane_axes(grid, 1.0)?].concat();
        let probes = probes.into_dyn();
        let probes = if foci.is_empty() { probes.index_axis_move(NdAxis(0), 0) } else { probes };
        Ok(data.insert(Variable::new("probe", probes, axes)?)?)
    }

    // Keep the matrix of a scan
    fn keep_matrix<T>(&self, data: &mut DataSet<'static>, watch: &dyn Watch) -> Result<(), Error>
    where
        T: Real + Element,
        Complex<T>: Element,
    {
        let (options, potential) = (self.options(), self.potential(0)?);
        let Some((prism, refocus)) = self.prism()? else {
            let expected = "a scan whose algorithm is \"prism\"";
            return Err(Invalid::new("save", "smatrix", expected).into());
        };
        let (grid, beam) = (options.grid, &options.probe.beam);
        let mut waves = prism.waves::<T>(0..prism.beams());
        let frequencies = frequencies_of(&grid, waves.view());
        let multislice = self.multislice::<T>()?;
        let slice = |k: usize| Ok(potential.slice(k));
        let end = [potential.count()];
        multislice.run(waves.view_mut(), slice, &end, &CancelOnly(watch), |_, _| Ok(()))?;
        let (beams, ny, nx) = waves.dim();
        let matrix = SMatrix::new(prism, beam, waves, refocus)?;
        // Planes and frequencies of beams
        let planes = Array3::from_shape_fn((beams, nx, ny), |(b, i, j)| matrix.plane(b)[[j, i]]);
        let number = Coordinate::signal("beam", "", 0.0, 1.0)?;
        let [x, y] = plane_axes(&grid, 2.0)?;
        data.insert(Variable::new("smatrix", planes, vec![number.clone(), x, y])?)?;
        let axes = vec![number, Coordinate::labelled("axis", &["x", "y"])?];
        Ok(data.insert(Variable::new("smatrix_beams", frequencies, axes)?)?)
    }

    // Memory of intermediate results
    /// Bytes that keeping something takes at most.
    pub fn intermediate_bytes(&self, intermediate: Intermediate, precision: Precision) -> u64 {
        let number = if precision == Precision::F64 { 8 } else { 4 };
        let points = |grid: &WaveGrid| grid.points().iter().product::<usize>() as u64;
        let (options, all) = (self.options(), points(&self.options().grid));
        match intermediate {
            Intermediate::Potential => all * options.slicing.count() as u64 * (8 + number),
            Intermediate::Probe => {
                points(self.grid()) * options.defoci.len() as u64 * (32 + 2 * number)
            }
            Intermediate::SMatrix => {
                let Ok(Some((prism, _))) = self.prism() else { return 0 };
                let beams = prism.beams() as u64;
                let slices = options.slicing.count() as u64 * all * 2 * number;
                beams * all / 4 * 2 * number * 3 + slices.min(1 << 30)
            }
        }
    }
}

// A potential as a variable
/// The potential of all slices \[V Å\], (x, y, slice); the last axis tells the depth of a slice's upper face \[Å\].
pub(super) fn potential_variable<T: Real + Element>(
    potential: &Potential,
) -> Result<Variable<'static>, Error> {
    let slices = potential.slices().mapv(T::of);
    let [x, y] = plane_axes(&potential.grid(), 1.0)?;
    let depth = Coordinate::signal("slice", "Å", 0.0, potential.thickness())?;
    Variable::new("potential", slices.permuted_axes([2, 1, 0]), vec![x, y, depth])
}

// Keep the potential of images
impl HrtemPlan {
    /// Bytes that keeping the potential takes at most.
    pub fn bytes_of_potential(&self, precision: Precision) -> u64 {
        let (options, number) = (self.options(), if precision == Precision::F64 { 8 } else { 4 });
        let [nx, ny] = options.grid.points();
        (nx * ny * options.slicing.count()) as u64 * (8 + number)
    }

    /// Adds the potential of the first configuration to a data set: `potential` (x, y, slice) \[V Å\].
    ///
    /// # Errors
    /// `Invalid` where there is a variable of that name already.
    pub fn keep_potential(
        &self,
        data: &mut DataSet<'static>,
        precision: Precision,
    ) -> Result<(), Error> {
        let potential = self.potential(0)?;
        Ok(data.insert(match precision {
            Precision::F32 => potential_variable::<f32>(&potential)?,
            Precision::F64 => potential_variable::<f64>(&potential)?,
        })?)
    }
}

// Axes of samples on a grid
/// Axes x and y of samples on a grid, or on pixels so many times as large.
pub(super) fn plane_axes(grid: &WaveGrid, times: f64) -> Result<[Coordinate; 2], Invalid> {
    let [x, y] = grid.pixel();
    Ok([
        Coordinate::signal("x", "Å", 0.0, times * x)?,
        Coordinate::signal("y", "Å", 0.0, times * y)?,
    ])
}

// Frequencies of single beams
/// The frequencies \[1/Å\] of waves (wave, k_y, k_x) of a single one each: (wave, axis).
fn frequencies_of<T: Real>(grid: &WaveGrid, waves: ArrayView3<'_, Complex<T>>) -> Array2<f64> {
    let [x, y] = kept_frequencies(grid);
    let mut frequencies = Array2::zeros((waves.len_of(NdAxis(0)), 2));
    for (mut to, wave) in frequencies.outer_iter_mut().zip(waves.outer_iter()) {
        let lit = wave.indexed_iter().find(|(_, a)| **a != Complex::default());
        if let Some(((j, i), _)) = lit {
            to.assign(&aview1(&[x[i], y[j]]));
        }
    }
    frequencies
}

// Tests of kept things
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TypedArray;
    use crate::electrons::sample_file::SampleFile;
    use crate::watch::unwatched;
    use ndarray::{ArrayD, s};
    use std::f64::consts::TAU;

    const SMALL: &str = "sample = { file = 'SI100.XYZ' }\n[potential]\ngrid = [48, 32]\nslice_thickness = 1.3575\n\
         [beam]\nenergy_kev = 100.0\nsemi_angle = 24.0\ndefocus = [0.0, 40.0]\n[scan]\nwindow = [[0.5, 5.43], [0.2, 2.0]]\nstep = [1.0, 0.7]\n\
         [method]\nalgorithm = 'prism'\ninterpolation = [2, 1]\ninterpolation_check = 'warn'\n[detector]\nbin = 4.0\n";

    fn kept(text: &str, intermediate: Intermediate) -> (StemPlan, Result<DataSet<'static>, Error>) {
        let file = SampleFile::from_toml(text, "book/systems/small.toml").unwrap();
        let (plan, mut data) = (file.plan().unwrap(), DataSet::default());
        let done = plan.keep::<f64>(intermediate, &mut data, &unwatched);
        (plan, done.map(|()| data))
    }

    fn complex(data: &DataSet, name: &str) -> ArrayD<Complex64> {
        let variable = data.get(name).unwrap();
        let Some(TypedArray::C64(values)) = variable.array() else {
            unreachable!("complex numbers")
        };
        values.to_owned()
    }

    // Kept potentials and probes
    #[test]
    fn potentials_and_probes_are_kept() {
        let (plan, data) = kept(SMALL, Intermediate::Potential);
        let data = data.unwrap();
        let kept = data.iter().next().unwrap();
        let Some(TypedArray::F64(values)) = kept.array() else { unreachable!("real numbers") };
        assert_eq!((kept.name(), values.shape()), ("potential", &[48, 32, 4][..]));
        let slice = plan.potential(0).unwrap().slice(2);
        assert!(slice[[9, 13]] != slice[[13, 9]] && values[[13, 9, 2]] == slice[[9, 13]]);
        assert!(
            plan.intermediate_bytes(Intermediate::Potential, Precision::F32) >= 48 * 32 * 4 * 12
        );
        let (plan, data) = kept_probes();
        let probes = complex(&data, "probe");
        assert_eq!(probes.shape(), [2, 24, 32]);
        for (k, defocus) in [0.0, 40.0].into_iter().enumerate() {
            let probe = probes.index_axis(NdAxis(0), k);
            assert!((probe.iter().map(|a| a.norm_sqr()).sum::<f64>() - 1.0).abs() < 1e-12);
            // The sum of its waves at one sample, the probe at the first place of the scan
            let wave = focused(&plan.options().probe, defocus).wave(plan.grid()).unwrap();
            let [x, y] = kept_frequencies(plan.grid());
            let [i, j] = [3, 17];
            let [u, v] = [i as f64 * 5.43 / 48.0 - 0.5, j as f64 * 5.43 / 32.0 - 0.2];
            let term = |((l, k), a): ((usize, usize), &Complex64)| {
                a * Complex64::cis(TAU * (x[k] * u + y[l] * v))
            };
            let sum: Complex64 = wave.on_axis().indexed_iter().map(term).sum();
            assert!((sum / (24.0f64 * 32.0).sqrt() - probe[[i, j]]).norm() < 1e-12);
        }
    }

    fn kept_probes() -> (StemPlan, DataSet<'static>) {
        let (plan, data) = kept(SMALL, Intermediate::Probe);
        (plan, data.unwrap())
    }

    // A kept matrix is made of waves
    #[test]
    fn a_kept_matrix_makes_the_waves_of_probes() {
        let (plan, data) = kept(SMALL, Intermediate::SMatrix);
        let data = data.unwrap();
        let matrix = complex(&data, "smatrix");
        let list = data.get("smatrix_beams").unwrap();
        let Some(TypedArray::F64(list)) = list.array() else { unreachable!("real numbers") };
        let beams = list.shape()[0];
        assert_eq!((matrix.shape(), list.shape()), (&[beams, 24, 16][..], &[beams, 2][..]));
        assert!(beams > 4 && plan.intermediate_bytes(Intermediate::SMatrix, Precision::F64) > 0);
        // A beam behind the specimen, sample by sample
        let options = plan.options();
        let b = beams - 1;
        let q = [list[[b, 0]], list[[b, 1]]];
        let [x, y] = kept_frequencies(&options.grid);
        let place = |all: &[f64], q: f64| all.iter().position(|x| (x - q).abs() < 1e-9).unwrap();
        let mut wave = Array3::zeros((1, 16, 24));
        wave[[0, place(&y, q[1]), place(&x, q[0])]] = Complex64::ONE;
        let multislice = plan.multislice::<f64>().unwrap();
        let potential = plan.potential(0).unwrap();
        let slice = |k: usize| Ok(potential.slice(k));
        multislice.run(wave.view_mut(), slice, &[4], &unwatched, |_, _| Ok(())).unwrap();
        for [i, j] in [[0, 0], [5, 11]] {
            let [u, v] = [i as f64 * 5.43 / 24.0, j as f64 * 5.43 / 16.0];
            let term = |((l, k), a): ((usize, usize), &Complex64)| {
                a * Complex64::cis(TAU * (x[k] * u + y[l] * v))
            };
            let sum: Complex64 = wave.slice(s![0, .., ..]).indexed_iter().map(term).sum();
            assert!((sum / (24.0 * 16.0) - matrix[[b, i, j]]).norm() < 1e-12);
        }
        let multislice = SMALL.replace("'prism'", "'multislice'");
        let refused = kept(&multislice, Intermediate::SMatrix).1.unwrap_err().to_string();
        assert!(
            refused.starts_with("save = smatrix: expected a scan whose algorithm"),
            "{refused}"
        );
        let (plan, mut data) = kept_probes();
        let again = plan.keep::<f32>(Intermediate::Probe, &mut data, &unwatched);
        assert!(again.is_err());
    }
}
