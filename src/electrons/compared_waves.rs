// Tangled from book/src/compared-waves.md: edit there, or here and run cargo tangle stitch.
//! Exit waves of compared probes, by PRISM and by multislice.

// Imports of compared waves
use super::comparison::Comparison;
use super::intermediates::plane_axes;
use super::prism::Prism;
use super::scan::StemPlan;
use super::scan_images::transform_plane;
use super::scan_setup::series;
use crate::data::{Coordinate, DataSet, Element, Variable};
use crate::error::{Error, Invalid, accept};
use crate::numerics::real::{Precision, Real};
use crate::watch::{CancelOnly, Watch};
use ndarray::{Array2, Array3, Array6, ArrayView2, ArrayViewMut2, Axis, arr2, s};
use num_complex::Complex;

// Keep the waves of a comparison
impl StemPlan {
    // Keep compared waves
    /// Adds the exit waves of compared probes by both methods to a data set, in the precision `T`: `compared_prism` and `compared_multislice` (probe, x, y), complex, with axes of
    /// `defocus` and `thickness` before these where there are several, and `compared_places` (probe, axis) \[Å\]. They are those of the first configuration, on pixels of twice the size of the grid's.
    // Errors of compared waves
    ///
    /// # Errors
    /// `Invalid` for another method than PRISM, for places that the scan lacks, or where a variable of such a name is there already; `Cancelled`.
    pub fn keep_compared<T>(
        &self,
        comparison: &Comparison,
        data: &mut DataSet<'static>,
        watch: &dyn Watch,
    ) -> Result<(), Error>
    where
        T: Real + Element,
        Complex<T>: Element,
    {
        let (options, numbers) = (self.options(), &comparison.places);
        let good = numbers.iter().all(|k| *k < self.places());
        accept(good, "places", numbers, &format!("numbers below {}", self.places()))?;
        let places: Vec<_> = numbers.iter().map(|k| options.scan.place(*k)).collect();
        let waves = self.compared_waves::<T>(&places, watch)?;
        // Add compared waves to a data set
        let series = series(&options.defoci, &options.ends, &options.slicing)?;
        let probe = Coordinate::navigation("probe", "", 0.0, 1.0)?;
        let axes =
            [&series[..], std::slice::from_ref(&probe), &plane_axes(&options.grid, 2.0)?].concat();
        for (method, waves) in ["PRISM", "multislice"].into_iter().zip(waves.outer_iter()) {
            // Axes of one focus and of one plane are left out
            let mut waves = waves.to_owned().into_dyn();
            for axis in [1, 0] {
                if waves.shape()[axis] == 1 {
                    waves = waves.index_axis_move(Axis(axis), 0);
                }
            }
            let name = format!("compared_{}", method.to_lowercase());
            let mut variable = Variable::new(&name, waves, axes.clone())?;
            variable.long_name(&format!(
                "exit waves of compared probes by {method}, first configuration"
            ));
            data.insert(variable)?;
        }
        let axes = vec![probe, Coordinate::labelled("axis", &["x", "y"])?];
        let mut variable = Variable::new("compared_places", arr2(&places), axes)?;
        variable.unit("Å").long_name("positions of compared probes");
        data.insert(variable)?;
        Ok(())
    }

    // Beams and probes that are compared
    /// Waves (wave, k_y, k_x) in front of the specimen: by PRISM, then by multislice, for each of those the defoci, for each of those the `places` \[Å\].
    fn compared_probes<T: Real>(
        &self,
        prism: &Prism,
        places: &[[f64; 2]],
    ) -> Result<Array3<Complex<T>>, Invalid> {
        let ([nx, ny], exact) = (self.options().grid.points(), self.by_multislice(places.len())?);
        let each = self.options().defoci.len() * places.len();
        let mut waves = Array3::zeros((2 * each, ny / 2, nx / 2));
        let share =
            T::of((nx * ny) as f64 / self.grid().points().iter().product::<usize>() as f64).sqrt();
        let (mut sums, mut whole) = waves.view_mut().split_at(Axis(0), each);
        for (d, (own, probe)) in self.probes().iter().zip(exact.probes()).enumerate() {
            let here = s![d * places.len()..(d + 1) * places.len(), .., ..];
            whole.slice_mut(here).assign(&probe.at::<T>(places));
            let (windows, mut sums) = (own.at::<T>(places), sums.slice_mut(here));
            for b in 0..prism.beams() {
                let ([i, j], [k, l]) = (prism.place_in_window(b), prism.place(b));
                let amplitudes = windows.slice(s![.., j, i]).mapv(|a| a * share);
                sums.slice_mut(s![.., l, k]).assign(&amplitudes);
            }
        }
        Ok(waves)
    }

    // Propagate and sample compared waves
    /// Exit waves of the first configuration: (method, defocus, plane, place, x, y), PRISM before multislice.
    fn compared_waves<T: Real>(
        &self,
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array6<Complex<T>>, Error> {
        let options = self.options();
        let expected = "a scan whose algorithm is \"prism\"";
        let (prism, refocus) =
            self.prism()?.ok_or_else(|| Invalid::new("compare", places.len(), expected))?;
        let mut waves = self.compared_probes::<T>(&prism, places)?;
        // Prepare the samples of compared waves
        let (foci, [nx, ny]) = (options.defoci.len(), options.grid.points().map(|n| n / 2));
        let mut found = Array6::zeros((2, foci, options.ends.len(), places.len(), nx, ny));
        let [x, y] = prism.back(&options.probe.beam, refocus);
        let scale = ((nx * ny) as f64).sqrt();
        let back = Array2::from_shape_fn((ny, nx), |(j, i)| T::of_complex(x[i] * y[j] * scale));
        let sampled = |wave: ArrayView2<'_, Complex<T>>| {
            let mut plane = &wave * &back;
            transform_plane(&mut plane, true);
            plane
        };
        // Send compared waves through the slices
        let (multislice, potential) = (self.multislice::<T>()?, self.potential(0)?);
        let slice = |k: usize| Ok(potential.slice(k));
        let mut plane = 0;
        multislice.run(
            waves.view_mut(),
            slice,
            &options.ends,
            &CancelOnly(watch),
            |_, waves| {
                for (k, wave) in waves.outer_iter().enumerate() {
                    let [method, d, n] =
                        [k / places.len() / foci, k / places.len() % foci, k % places.len()];
                    let mut to = found.slice_mut(s![method, d, plane, n, .., ..]);
                    to.assign(&sampled(wave).t());
                    if method == 0 {
                        clear_outside(&prism, places[n], to);
                    }
                }
                plane += 1;
                Ok(())
            },
        )?;
        Ok(found)
    }

    // Memory of compared waves
    /// Bytes that keeping the waves of a comparison of so many probes takes at most.
    pub fn compared_bytes(&self, count: usize, precision: Precision) -> u64 {
        let number = if precision == Precision::F64 { 8 } else { 4 };
        let options = self.options();
        let points = options.grid.points().iter().product::<usize>() as u64;
        let waves = 2 * (count.min(self.places()) * options.defoci.len()) as u64;
        let slices = options.slicing.count() as u64 * points * 2 * number;
        let each = points / 4 * 2 * number;
        waves * each * (1 + 2 * options.ends.len() as u64) + slices.min(1 << 30)
    }
}

// Outside of a window
/// Clears a wave (x, y) outside the window of a probe at `place` \[Å\].
fn clear_outside<T: Real>(prism: &Prism, place: [f64; 2], mut wave: ArrayViewMut2<'_, Complex<T>>) {
    let (first, window) = (prism.first_pixel(place), prism.window().points().map(|n| n / 2));
    let (nx, ny) = wave.dim();
    for ((i, j), a) in wave.indexed_iter_mut() {
        let [i, j] = [(i + nx - first[0]) % nx, (j + ny - first[1]) % ny];
        if i >= window[0] || j >= window[1] {
            *a = Complex::default();
        }
    }
}

// Tests of compared waves
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Engine;
    use crate::electrons::StemMethod;
    use crate::electrons::scan::tests::plan;
    use crate::watch::unwatched;
    use ndarray::{Array5, ArrayView4, Ix5};
    use num_complex::Complex64;

    // A comparison of lopsided waves
    const NUMBERS: [usize; 3] = [0, 17, 39];

    fn shared(factor: [usize; 2], refocus: f64) -> StemPlan {
        let plan = plan(2);
        let method = StemMethod::Prism { factor, refocus, margin: None };
        StemPlan::new(plan.specimen().clone(), plan.options().clone().method(method)).unwrap()
    }

    fn kept(plan: &StemPlan, numbers: &[usize]) -> Result<DataSet<'static>, Error> {
        let comparison = Comparison { places: numbers.to_vec(), detectors: Vec::new() };
        let mut data = DataSet::default();
        plan.keep_compared::<f64>(&comparison, &mut data, &unwatched)?;
        Ok(data)
    }

    fn waves(data: &DataSet, name: &str) -> Array5<Complex64> {
        data.array::<Complex64, Ix5>(name).unwrap()
    }

    // Waves of all beams are those of multislice
    #[test]
    fn all_beams_have_the_waves_of_multislice() {
        let plan = shared([1, 1], 7.0);
        let data = kept(&plan, &NUMBERS).unwrap();
        let [prism, exact] =
            ["compared_prism", "compared_multislice"].map(|name| waves(&data, name));
        let [nx, ny] = plan.options().grid.points().map(|n| n / 2);
        assert_eq!(exact.shape(), [2, 2, 3, nx, ny]);
        assert!(nx != ny && exact.iter().zip(&prism).all(|(a, b)| (a - b).norm() < 1e-12));
        let names: Vec<_> = data.get("compared_prism").unwrap().coordinates().iter().collect();
        assert_eq!(
            names.iter().map(|one| one.name()).collect::<Vec<_>>(),
            ["defocus", "thickness", "probe", "x", "y"]
        );
        assert_eq!(names[3].step(), 2.0 * plan.options().grid.pixel()[0]);
        let places = data.array::<f64, ndarray::Ix2>("compared_places").unwrap();
        for (k, row) in NUMBERS.iter().zip(places.outer_iter()) {
            assert_eq!(row.to_vec(), plan.options().scan.place(*k));
        }
        // A refocus changes phases alone, of both methods
        let straight = waves(&kept(&shared([1, 1], 0.0), &NUMBERS).unwrap(), "compared_prism");
        assert!(straight.iter().zip(&exact).any(|(a, b)| (a - b).norm() > 1e-3));
        assert!(plan.compared_bytes(3, Precision::F64) >= 2 * 16 * exact.len() as u64);
    }

    // Transforms of compared waves give readings
    /// Spectra of sampled waves (x, y) in the order of kept frequencies, whose squares are electrons.
    fn spectrum(wave: ArrayView2<'_, Complex64>) -> Array2<Complex64> {
        let mut plane = wave.t().as_standard_layout().into_owned();
        transform_plane(&mut plane, false);
        plane / Complex64::from((wave.len() as f64).sqrt())
    }

    #[test]
    fn compared_waves_give_the_readings_of_their_configuration() {
        let (few, engine) = (shared([2, 1], 7.0), Engine::cpu(Precision::F64));
        let data = kept(&few, &NUMBERS).unwrap();
        let exact = few.by_multislice(1).unwrap();
        let window = few.grid().points().map(|n| n / 2);
        for (name, plan) in [("compared_prism", &few), ("compared_multislice", &exact)] {
            let (waves, places) = (waves(&data, name), 0..plan.places());
            let read = plan.run_configurations(&engine, places, 0..1, &unwatched).unwrap();
            for (k, number) in NUMBERS.into_iter().enumerate() {
                let here: ArrayView4<Complex64> = waves.index_axis(Axis(2), k);
                let row = read.values.slice(s![0, number, ..]);
                for (n, expected) in
                    row.exact_chunks(plan.detectors().values()).into_iter().enumerate()
                {
                    let wave = here.slice(s![n / 2, n % 2, .., ..]);
                    // The window of PRISM in place of the cell: pixels at their indices modulo its size
                    let mut own = wave.to_owned();
                    if name == "compared_prism" {
                        own = Array2::zeros((window[0], window[1]));
                        for ((i, j), a) in wave.indexed_iter() {
                            own[[i % window[0], j % window[1]]] += a;
                        }
                        let inside = wave.iter().filter(|a| a.norm_sqr() > 0.0).count();
                        assert_eq!(inside, window[0] * window[1]);
                    }
                    let found = plan.detectors().read(spectrum(own.view()).view()).into_values();
                    let gaps = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
                    assert!(gaps.fold(0.0, f64::max) < 1e-12, "{name} {number} {n}");
                }
            }
        }
        // The window is centred on its probe, and wraps around the edge of the cell
        let wave = waves(&data, "compared_prism");
        let [nx, ny] = few.options().grid.points().map(|n| n / 2);
        let lit = |i: usize| wave[[0, 1, 0, i, ny / 2]].norm() > 0.0;
        let place = few.options().scan.place(NUMBERS[0])[0];
        let middle = (place / (2.0 * few.options().grid.pixel()[0])).round() as usize;
        assert!(middle < nx / 4 && lit(middle) && lit(nx - 1) && !lit(middle + nx / 2));
        let gap = |k: usize| {
            let of = |name| waves(&data, name).index_axis_move(Axis(2), k);
            let (hat, x) = (of("compared_prism"), of("compared_multislice"));
            (&hat - &x).mapv(|a| a.norm_sqr()).sum() / x.mapv(|a| a.norm_sqr()).sum()
        };
        assert!((0..3).all(|k| gap(k) > 1e-6 && gap(k) < 0.1), "{:?}", [0, 1, 2].map(gap));
    }

    // Compared waves are refused without a comparison
    #[test]
    fn waves_that_cannot_be_compared_are_refused() {
        let plan = shared([2, 1], 0.0);
        let refused = |found: Result<DataSet<'static>, Error>| match found {
            Err(Error::Invalid(invalid)) => invalid.quantity,
            _ => unreachable!("refused"),
        };
        assert_eq!(refused(kept(&plan, &[40])), "places");
        assert_eq!(refused(kept(&plan, &[])), "compare");
        assert_eq!(refused(kept(&plan.by_multislice(1).unwrap(), &[3])), "compare");
    }
}
