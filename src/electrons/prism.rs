// Tangled from book/src/prism.md: edit there, or here and run cargo tangle stitch.
//! PRISM: plane waves through the specimen once, probes as their sums.
pub(crate) mod gpu;

// Imports of the beams of a probe
use super::beam::{Beam, Probe, ProbeWave, kept_frequencies};
use super::wave_grid::WaveGrid;
use crate::device::{Workers, dispatch, threads};
use crate::error::{Error, Invalid, accept, finite};
use crate::numerics::real::Real;
use crate::watch::Watch;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, Array3, ArrayView2, ArrayViewMut3, Axis, Zip};
use num_complex::Complex;
use rustfft::Fft;
use std::{f64::consts::PI, ops::Range, sync::Arc};

// The beams of a probe
/// The plane waves of the probes of a scan, every f-th of a grid, and the window in which they are summed.
#[derive(Debug, Clone, PartialEq)]
pub struct Prism {
    grid: WaveGrid,
    window: WaveGrid,
    factor: [usize; 2],
    /// Places x, y of the beams among the kept frequencies of the window.
    beams: Vec<[usize; 2]>,
}

// Choose the beams of a probe
impl Prism {
    // Beams of a probe with interpolation
    /// The beams of a `probe` on a `grid` with interpolation by `factor`, x before y; those only that lie within a `margin` \[mrad\] of the semi-angle if one is given,
    /// Eq. [beams within](https://lenslet.github.io/lenslet/prism.html#eq-beams-within).
    ///
    /// # Errors
    /// `Invalid` where a factor does not divide a quarter of the grid's points, where no beam lies within the margin, and as [`Probe::wave`] for the grid of the window.
    ///
    /// ```
    /// use lenslet::electrons::{Aberrations, Beam, Prism, Probe, WaveGrid};
    /// let (beam, aberrations) = (Beam::new(100.0)?, Aberrations::default());
    /// let probe = Probe { beam, semi_angle: 20.0, aberrations, tilt: [0.0; 2] };
    /// let grid = WaveGrid::new([256, 256], [21.72, 21.72])?;
    /// let prism = Prism::new(grid, [4, 4], &probe, None)?;
    /// assert_eq!(prism.beams(), 37);
    /// let cone = |side: f64| beam.frequency(20.0) * side; // in steps of 1/side
    /// assert!((beam.frequency(20.0) - 0.540).abs() < 1e-3 && (cone(5.43) - 2.93).abs() < 0.01);
    /// assert!((cone(21.72) - 11.74).abs() < 0.01 && (cone(21.72) + 0.5 - 12.24).abs() < 0.01);
    /// assert!((cone(5.43) + 0.5 - 3.43).abs() < 0.01);
    /// assert_eq!(Prism::new(grid, [4, 4], &probe, Some(2.5))?.beams(), 37);
    /// assert_eq!(prism.window().points(), [64, 64]);
    /// for (f, beams) in [(1, 481), (2, 129)] {
    ///     assert_eq!(Prism::new(grid, [f, f], &probe, None)?.beams(), beams);
    /// }
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(
        grid: WaveGrid,
        factor: [usize; 2],
        probe: &Probe,
        margin: Option<f64>,
    ) -> Result<Self, Invalid> {
        // Beams within a given margin
        let window = window_of(&grid, factor)?;
        let lit = lit_beams(&window, probe)?;
        let mut beams: Vec<_> = lit.into_iter().map(|(beam, _)| beam).collect();
        if let Some(margin) = margin {
            let kept = kept_frequencies(&window);
            beams.retain(|beam| within(&kept, probe, margin, *beam));
            let expected = "an angle that keeps at least one beam";
            accept(!beams.is_empty(), "margin", margin, expected)?;
        }
        Ok(Self { grid, window, factor, beams })
    }

    // Numbers of beams and windows
    // Counts of beams and windows
    /// Number of beams.
    pub fn beams(&self) -> usize {
        self.beams.len()
    }

    /// The grid of the window, on which probes and detectors are defined.
    pub fn window(&self) -> &WaveGrid {
        &self.window
    }

    /// Plane waves to be sent through the specimen, those of `which` beams: (beam, k_y, k_x), kept frequencies of the large grid in their order.
    ///
    /// # Panics
    /// Where there are no such beams.
    pub fn waves<T: Real>(&self, which: Range<usize>) -> Array3<Complex<T>> {
        let [nx, ny] = self.grid.points();
        let mut waves = Array3::zeros((which.len(), ny / 2, nx / 2));
        for (mut wave, b) in waves.outer_iter_mut().zip(which) {
            let [i, j] = self.place(b);
            wave[[j, i]] = Complex::new(T::one(), T::zero());
        }
        waves
    }

    // Index of a beam in the large grid
    /// Index x, y of beam `b` among the kept frequencies of the large grid.
    pub(crate) fn place(&self, b: usize) -> [usize; 2] {
        [0, 1].map(|axis| {
            let [own, all] =
                [&self.window, &self.grid].map(|grid| grid.points()[axis] as isize / 2);
            let place = self.beams[b][axis] as isize;
            let signed = if place < own / 2 { place } else { place - own };
            (self.factor[axis] as isize * signed).rem_euclid(all) as usize
        })
    }

    /// Index x, y of beam `b` among the kept frequencies of the window.
    #[cfg(feature = "files")]
    pub(crate) fn place_in_window(&self, b: usize) -> [usize; 2] {
        self.beams[b]
    }

    // Back through free space
    /// Factors of kept k_x and of kept k_y that propagate a wave back by `distance` \[Å\], over the pixels of its transform, Eq. [refocus](https://lenslet.github.io/lenslet/prism.html#eq-refocus).
    pub(crate) fn back(&self, beam: &Beam, distance: f64) -> [Vec<Complex<f64>>; 2] {
        kept_frequencies(&self.grid).map(|kept| {
            let share = 1.0 / kept.len() as f64;
            let turn = |q: &f64| Complex::cis(PI * beam.wavelength() * distance * q * q) * share;
            kept.iter().map(turn).collect()
        })
    }

    // Where a window begins
    /// The first pixels x, y of the window of a probe at `place` \[Å\] among those of the planes.
    pub(crate) fn first_pixel(&self, place: [f64; 2]) -> [usize; 2] {
        [0, 1].map(|axis| {
            let pixel = 2.0 * self.grid.pixel()[axis];
            let [all, own] = [&self.grid, &self.window].map(|grid| grid.points()[axis] as i64 / 2);
            ((place[axis] / pixel).round() as i64 - own / 2).rem_euclid(all) as usize
        })
    }
}

// Beams that an aperture lets through
/// Indices x, y of the beams of a probe among the kept frequencies of a window, with the transmission of the aperture.
fn lit_beams(window: &WaveGrid, probe: &Probe) -> Result<Vec<([usize; 2], f64)>, Invalid> {
    probe.check(window)?;
    let kept = kept_frequencies(window);
    let step = window.lengths().map(|length| 1.0 / length);
    let reach = probe.beam.frequency(probe.semi_angle) + step[0].max(step[1]);
    let near = |axis: usize| {
        let middle = probe.beam.frequency(probe.tilt[axis]);
        let inside = move |(_, q): &(usize, &f64)| (*q - middle).abs() <= reach;
        kept[axis].iter().enumerate().filter(inside).collect::<Vec<_>>()
    };
    let (columns, rows) = (near(0), near(1));
    let mut beams = Vec::new();
    for (j, y) in rows {
        for (i, x) in &columns {
            let (_, through) = probe.through(window, [**x, *y]);
            if through > 0.0 {
                beams.push(([*i, j], through));
            }
        }
    }
    Ok(beams)
}

// Beams within a margin
/// Whether a beam lies within the semi-angle of the probe and a `margin` \[mrad\], Eq. [beams within](https://lenslet.github.io/lenslet/prism.html#eq-beams-within).
fn within([x, y]: &[Vec<f64>; 2], probe: &Probe, margin: f64, place: [usize; 2]) -> bool {
    let [qx, qy] = [x[place[0]], y[place[1]]];
    let [tx, ty] = probe.tilt.map(|tilt| probe.beam.frequency(tilt));
    (qx - tx).hypot(qy - ty) < probe.beam.frequency(probe.semi_angle + margin)
}

// Whether a window is large enough
/// Beams across the cone that a window must leave along each axis.
pub const BEAMS_ACROSS: f64 = 8.0;

/// How much larger than the probe a window must be, the reach of an atom \[Å\].
const REACH: f64 = 3.0;

/// The share of a probe's electrons that its beams may lack.
pub const MOST_LOST: f64 = 0.01;

// Faults of a window's length
/// Why a window of side `length` \[Å\] along `axis` is too small for a probe whose geometric [extent](Probe::extent) is `radius` \[Å\]; none where it is not.
pub fn window_fault(length: f64, axis: usize, probe: &Probe, radius: f64) -> Option<String> {
    let (across, name) = (2.0 * probe.beam.frequency(probe.semi_angle) * length, ["x", "y"][axis]);
    let diameter = 2.0 * (radius + probe.diffraction_radius());
    if across < BEAMS_ACROSS {
        let needed = length * BEAMS_ACROSS / across;
        return Some(format!(
            "it leaves {across:.1} beams across the cone along {name}, of which {BEAMS_ACROSS} are needed, in a window of {length:.3} Å where {needed:.3} Å are"
        ));
    }
    let small = format!(
        "its window of {length:.3} Å along {name} is smaller than the probe behind the specimen, {diameter:.3} Å, and {REACH} Å more"
    );
    let holds = diameter + REACH <= length;
    (!holds).then_some(small)
}

// Electrons that beams within a margin lack
impl Prism {
    /// The share of a probe's electrons in beams beyond a `margin` \[mrad\].
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn lost(
        grid: &WaveGrid,
        factor: [usize; 2],
        probe: &Probe,
        margin: Option<f64>,
    ) -> Result<f64, Invalid> {
        let window = window_of(grid, factor)?;
        let beams = lit_beams(&window, probe)?;
        let sum = |taken: &dyn Fn([usize; 2]) -> bool| -> f64 {
            let taken = beams.iter().filter(|(beam, _)| taken(*beam));
            taken.map(|(_, through)| through * through).sum()
        };
        let kept = kept_frequencies(&window);
        let inside = |beam| margin.is_none_or(|margin| within(&kept, probe, margin, beam));
        Ok(1.0 - sum(&inside) / sum(&|_| true))
    }
}

// Grid of a window
/// The grid of the window: a share 1/f of the cell along either side.
fn window_of(grid: &WaveGrid, factor: [usize; 2]) -> Result<WaveGrid, Invalid> {
    let (mut points, mut lengths) = (grid.points(), grid.lengths());
    for axis in 0..2 {
        let (f, quarter) = (factor[axis], points[axis] / 4);
        let expected = format!("a whole number that divides a quarter of {} points", points[axis]);
        accept(f > 0 && quarter.is_multiple_of(f), "interpolation", f, &expected)?;
        points[axis] /= f;
        lengths[axis] /= f as f64;
    }
    WaveGrid::new(points, lengths)
}

// The compact matrix of a specimen
/// The compact S-matrix: the waves of all beams behind a specimen.
pub struct SMatrix<T> {
    prism: Prism,
    /// (beam, y, x), on pixels of twice the size of the grid's.
    planes: Array3<Complex<T>>,
    along: [Arc<dyn Fft<T>>; 2],
}

impl<T: Real> SMatrix<T> {
    // Beams of an S-matrix
    /// Number of beams.
    pub fn beams(&self) -> usize {
        self.prism.beams()
    }

    /// The beams.
    pub fn prism(&self) -> &Prism {
        &self.prism
    }

    /// Wave of beam `b` behind the specimen, (y, x), on pixels of twice the size of the grid's.
    ///
    /// # Panics
    /// Where there is no such beam.
    pub fn plane(&self, b: usize) -> ArrayView2<'_, Complex<T>> {
        self.planes.index_axis(Axis(0), b)
    }

    // The matrix from spectra of beams
    /// The matrix from the spectra of the beams behind the specimen, (beam, k_y, k_x), refocused by `refocus` \[Å\].
    ///
    /// # Errors
    /// `Invalid` where there are not as many spectra as beams, or not of the grid's kept frequencies, or where the refocus is not finite.
    pub fn new(
        prism: Prism,
        beam: &Beam,
        spectra: Array3<Complex<T>>,
        refocus: f64,
    ) -> Result<Self, Invalid> {
        finite("refocus", refocus)?;
        let [nx, ny] = prism.grid.points().map(|points| points / 2);
        let (shape, expected) = (spectra.dim(), format!("{} of {ny} by {nx}", prism.beams()));
        accept(shape == (prism.beams(), ny, nx), "spectra", shape, &expected)?;
        let [x, y] = prism.back(beam, refocus);
        let back = Array2::from_shape_fn((ny, nx), |(j, i)| T::of_complex(x[i] * y[j]));
        let inverse = [nx, ny].map(|points| T::plan_complex(points).1);
        let mut planes = match spectra.is_standard_layout() {
            true => spectra,
            false => spectra.as_standard_layout().into_owned(),
        };
        // Transform the spectra of all beams
        planes.axis_iter_mut(Axis(0)).into_par_iter().for_each(|mut plane| {
            Zip::from(&mut plane).and(&back).for_each(|a, back| *a *= back);
            let values = plane.as_slice_mut().unwrap_or_else(|| unreachable!("planes are whole"));
            transform_along(values, &inverse, &mut Vec::new());
        });
        let along = prism.window.points().map(|points| T::plan_complex(points / 2).0);
        Ok(Self { prism, planes, along })
    }

    // Sum the beams in a window
    /// Adds a beam with its amplitude to the window that begins at pixel `first`.
    fn add_beam(&self, b: usize, amplitude: Complex<T>, first: [usize; 2], sum: &mut [Complex<T>]) {
        let (_, ny, nx) = self.planes.dim();
        let [wx, wy] = self.prism.window.points().map(|points| points / 2);
        let plane = self.planes.index_axis(Axis(0), b);
        let plane = plane.as_slice().unwrap_or_else(|| unreachable!("planes are whole"));
        for n in 0..wy {
            let y = (first[1] + n) % ny;
            let (from, to) = (&plane[y * nx..][..nx], &mut sum[y % wy * wx..][..wx]);
            // Add a line of a beam
            let (mut x, mut left) = (first[0], wx);
            while left > 0 {
                let run = left.min(nx - x).min(wx - x % wx);
                let pieces = to[x % wx..][..run].iter_mut().zip(&from[x..][..run]);
                pieces.for_each(|(to, from)| *to += amplitude * from);
                (x, left) = ((x + run) % nx, left - run);
            }
        }
    }

    // Spectra of probes from the matrix
    /// Spectra of `probe`s at the positions `places` \[Å\], x before y: (place, k_y, k_x), kept frequencies of the [window](Prism::window), Eq. [prism wave](https://lenslet.github.io/lenslet/prism.html#eq-prism-wave).
    ///
    /// # Errors
    /// `Invalid` where the probe is of another grid; `Cancelled`.
    pub fn spectra(
        &self,
        probe: &ProbeWave,
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array3<Complex<T>>, Error> {
        let [wx, wy] = self.prism.window.points().map(|points| points / 2);
        let (shape, expected) = (probe.on_axis().dim(), format!("{wy} by {wx} frequencies"));
        accept(shape == (wy, wx), "probe", shape, &expected)?;
        let mut spectra = Array3::zeros((places.len(), wy, wx));
        let each = places.len().div_ceil(4 * threads()).clamp(1, 64);
        let some = spectra.axis_chunks_iter_mut(Axis(0), each).zip(places.chunks(each));
        let work = |_: &(), (mut spectra, places): (ArrayViewMut3<'_, Complex<T>>, &[[f64; 2]])| {
            let (mut amplitudes, mut scratch) = (Array2::zeros((wy, wx)), Vec::new());
            // Sum and transform the windows of some probes
            for (mut sum, &place) in spectra.outer_iter_mut().zip(places) {
                probe.put::<T>(place, amplitudes.view_mut());
                let (first, [fx, fy]) = (self.prism.first_pixel(place), self.prism.factor);
                let sum = sum.as_slice_mut().unwrap_or_else(|| unreachable!("spectra are whole"));
                for (b, [i, j]) in self.prism.beams.iter().enumerate() {
                    let amplitude = amplitudes[[*j, *i]] * T::of((fx * fy) as f64);
                    if amplitude != Complex::default() {
                        self.add_beam(b, amplitude, first, sum);
                    }
                }
                transform_along(sum, &self.along, &mut scratch);
            }
            Ok(())
        };
        dispatch(Workers::cores(&()), some, watch, work, |_, ()| Ok(()))?;
        Ok(spectra)
    }
}

// Transform a plane by lines and columns
/// Transforms a plane (y, x) along both axes, x before y in `along`.
pub(crate) fn transform_along<T: Real>(
    plane: &mut [Complex<T>],
    along: &[Arc<dyn Fft<T>>; 2],
    turned: &mut Vec<Complex<T>>,
) {
    let [nx, ny] = [along[0].len(), along[1].len()];
    turned.resize(nx * ny, Complex::default());
    along[0].process(plane);
    turn(plane, turned, [nx, ny]);
    along[1].process(turned);
    turn(turned, plane, [ny, nx]);
}

/// Turns lines of `length`, so many, into columns.
fn turn<N: Copy>(from: &[N], to: &mut [N], [length, count]: [usize; 2]) {
    for (tile, lines) in from.chunks(8 * length).enumerate() {
        for (i, column) in to.chunks_exact_mut(count).enumerate() {
            let places = column[8 * tile..].iter_mut().zip(lines.chunks_exact(length));
            places.for_each(|(a, line)| *a = line[i]);
        }
    }
}

// Tests of shared beams
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::electrons::{Aberration, Aberrations, Multislice};
    use crate::watch::unwatched;
    use std::f64::consts::TAU;

    // A lopsided probe in a lopsided cell
    pub(super) fn probe() -> Probe {
        let astigmatism = Aberration { order: 2, fold: 2, magnitude: 900.0, angle: 0.4 };
        let aberrations =
            Aberrations { defocus: 60.0, terms: vec![astigmatism], ..Default::default() };
        Probe { beam: Beam::new(100.0).unwrap(), semi_angle: 18.0, aberrations, tilt: [6.0, -3.0] }
    }

    fn grid() -> WaveGrid {
        WaveGrid::new([48, 64], [14.0, 17.0]).unwrap()
    }

    /// Three slices with a few bumps each \[V Å\], no two alike.
    fn potential(n: usize) -> Array2<f64> {
        Array2::from_shape_fn((64, 48), |(j, i)| {
            let bump = |x: f64, y: f64, width: f64| {
                let apart = [i as f64 / 48.0 - x, j as f64 / 64.0 - y];
                let [u, v] = apart.map(|apart| apart - apart.round());
                (-(14.0 * u / width).powi(2) - (17.0 * v / width).powi(2)).exp()
            };
            let n = n as f64;
            90.0 * bump(0.2 + 0.1 * n, 0.31, 0.9) + 40.0 * bump(0.7, 0.6 - 0.15 * n, 1.3)
        })
    }

    /// Spectra of waves behind the three slices.
    fn behind<T: Real>(mut waves: Array3<Complex<T>>) -> Array3<Complex<T>> {
        let multislice = Multislice::<T>::new(grid(), &probe().beam, 2.3).unwrap();
        let potential = |n| Ok(potential(n));
        multislice.run(waves.view_mut(), potential, &[3], &unwatched, |_, _| Ok(())).unwrap();
        waves
    }

    pub(super) const PLACES: [[f64; 2]; 3] = [[0.0, 0.0], [3.1, 11.4], [13.9, 16.8]];

    pub(super) fn matrix<T: Real>(factor: [usize; 2], refocus: f64) -> SMatrix<T> {
        let prism = Prism::new(grid(), factor, &probe(), None).unwrap();
        let spectra = behind(prism.waves::<T>(0..prism.beams()));
        SMatrix::new(prism, &probe().beam, spectra, refocus).unwrap()
    }

    fn spectra<T: Real>(factor: [usize; 2], refocus: f64) -> Array3<Complex<T>> {
        let (matrix, probe) = (matrix::<T>(factor, refocus), probe());
        let wave = probe.wave(matrix.prism.window()).unwrap();
        matrix.spectra(&wave, &PLACES, &unwatched).unwrap()
    }

    // All beams make the waves of multislice
    /// The largest difference of two numbers of the same place.
    fn gap<T: Real>(a: &Array3<Complex<T>>, b: &Array3<Complex<T>>) -> f64 {
        a.iter().zip(b).fold(0.0, |most: f64, (a, b)| most.max((a - b).norm().in_double()))
    }

    #[test]
    fn all_beams_make_the_waves_of_multislice() {
        let expected = behind(probe().wave(&grid()).unwrap().at::<f64>(&PLACES));
        let found = spectra::<f64>([1, 1], 0.0);
        assert!(gap(&found, &expected) < 1e-14, "{:e}", gap(&found, &expected));
        // Its single precision, and its intensities through free space
        let single = spectra::<f32>([1, 1], 0.0);
        let close = |(a, b): (&Complex<f32>, &Complex<f64>)| {
            (Complex::new(f64::from(a.re), f64::from(a.im)) - b).norm() < 1e-6
        };
        assert!(single.iter().zip(&expected).all(close));
        let refocused = spectra::<f64>([1, 1], 40.0);
        assert!(gap(&refocused, &expected) > 1e-3);
        for (a, b) in refocused.iter().zip(&expected) {
            assert!((a.norm_sqr() - b.norm_sqr()).abs() < 1e-14);
        }
    }

    // Few beams make what is written
    #[test]
    fn few_beams_make_what_is_written() {
        let (found, matrix) = (spectra::<f64>([3, 2], 0.0), matrix::<f64>([3, 2], 0.0));
        let window = *matrix.prism.window();
        let wave = probe().wave(&window).unwrap();
        let (x, y) = ([0, 1].map(|axis| 2.0 * grid().pixel()[axis]), kept_frequencies(&window));
        assert!((9..60).contains(&matrix.prism.beams()), "{}", matrix.prism.beams());
        for (place, found) in PLACES.iter().zip(found.outer_iter()) {
            // Pixels of the window, and the sum of the beams there
            let [columns, rows] = [0, 1].map(|axis| {
                let count = window.points()[axis] as i64 / 2;
                let first = (place[axis] / x[axis]).round() as i64 - count / 2;
                (first..first + count).collect::<Vec<_>>()
            });
            let sum = |row: i64, column: i64| -> Complex<f64> {
                let (_, ny, nx) = matrix.planes.dim();
                let at =
                    [row.rem_euclid(ny as i64) as usize, column.rem_euclid(nx as i64) as usize];
                let beam = |(b, [i, j]): (usize, &[usize; 2])| {
                    let turns = y[0][*i] * place[0] + y[1][*j] * place[1];
                    let amplitude = wave.on_axis()[[*j, *i]] * Complex::cis(-TAU * turns);
                    amplitude * matrix.planes[[b, at[0], at[1]]]
                };
                matrix.prism.beams.iter().enumerate().map(beam).sum()
            };
            for (j, i) in [(0, 0), (1, 0), (0, 2), (14, 6), (9, 5)] {
                let mut expected = Complex::default();
                for &row in &rows {
                    for &column in &columns {
                        let turns = y[0][i] * column as f64 * x[0] + y[1][j] * row as f64 * x[1];
                        expected += sum(row, column) * Complex::cis(-TAU * turns) * 6.0;
                    }
                }
                assert!(
                    (found[[j, i]] - expected).norm() < 1e-13,
                    "{j} {i}: {} {expected}",
                    found[[j, i]]
                );
            }
        }
    }

    // A margin takes the outermost beams away
    #[test]
    fn a_margin_takes_the_outermost_beams_away() {
        let all = Prism::new(grid(), [3, 2], &probe(), None).unwrap();
        let wide = Prism::new(grid(), [3, 2], &probe(), Some(40.0)).unwrap();
        let narrow = Prism::new(grid(), [3, 2], &probe(), Some(2.5)).unwrap();
        assert_eq!(all, wide);
        // Angles from the tilted axis, beam by beam: a window of 14/3 by 17/2 Å, 18 + 2.5 mrad
        let beam = probe().beam;
        let [x, y] = kept_frequencies(all.window());
        let angle = |[i, j]: [usize; 2]| {
            let [a, b] = [beam.angle(x[i]) - 6.0, beam.angle(y[j]) + 3.0];
            (a * a + b * b).sqrt()
        };
        let expected: Vec<_> = all.beams.iter().copied().filter(|b| angle(*b) < 20.5).collect();
        assert!(
            expected.len() > 3 && expected.len() < all.beams(),
            "{} of {}",
            expected.len(),
            all.beams()
        );
        assert_eq!(narrow.beams, expected);
        assert!(narrow.beams.iter().any(|b| beam.angle(x[b[0]].hypot(y[b[1]])) > 20.5));
        let none = Prism::new(grid(), [3, 2], &Probe { semi_angle: 0.9, ..probe() }, Some(0.0));
        assert!(none.is_err_and(|e| e.quantity == "margin"));
    }

    // Windows that are too small have faults
    #[test]
    fn windows_that_are_too_small_have_faults() {
        // Of 20 mrad at 100 kV, 8 beams across are a window of 7.40 Å
        let (beam, aberrations) = (Beam::new(100.0).unwrap(), Aberrations::default());
        let probe = Probe { beam, semi_angle: 20.0, aberrations, tilt: [0.0; 2] };
        let fault = |length, radius| window_fault(length, 0, &probe, radius);
        assert_eq!((fault(7.41, 0.0), fault(7.40, 0.0).is_some()), (None, true));
        let few = fault(5.43 / 4.0, 0.0).unwrap();
        assert!(
            few.contains("1.5 beams across the cone along x") && few.contains("7.403"),
            "{few}"
        );
        // A diameter of 2 (4 + 0.61 λ/α) = 10.26 Å, and 3 Å
        assert_eq!((fault(13.26, 4.0), fault(13.25, 4.0).is_some()), (None, true));
        assert!(
            fault(13.25, 4.0)
                .unwrap()
                .contains("smaller than the probe behind the specimen, 10.25")
        );
        assert!(fault(1e3, f64::NAN).is_some() && fault(1e3, f64::INFINITY).is_some());
        // What a margin leaves out is what the probe lacks
        let grid = WaveGrid::new([64, 64], [5.43; 2]).unwrap();
        let wave = probe.wave(&grid).unwrap();
        for margin in [0.0, 1.0, 2.5] {
            let prism = Prism::new(grid, [1, 1], &probe, Some(margin)).unwrap();
            let kept: f64 =
                prism.beams.iter().map(|[i, j]| wave.on_axis()[[*j, *i]].norm_sqr()).sum();
            let lost = Prism::lost(&grid, [1, 1], &probe, Some(margin)).unwrap();
            assert!(
                (lost - (1.0 - kept)).abs() < 1e-12 && (lost > 0.01) == (margin < 2.0),
                "{lost}"
            );
        }
        assert_eq!(Prism::lost(&grid, [1, 1], &probe, None).unwrap(), 0.0);
    }

    // Errors of few beams grow with their distance
    #[test]
    fn errors_of_few_beams_grow_with_their_distance() {
        let light = |spectra: &Array3<Complex<f64>>| -> Vec<f64> {
            let light = |one: ArrayView2<Complex<f64>>| one.iter().map(|a| a.norm_sqr()).sum();
            spectra.outer_iter().map(light).collect()
        };
        let all = light(&spectra([1, 1], 0.0));
        let error = |factor| {
            let gaps = light(&spectra(factor, 0.0));
            gaps.iter().zip(&all).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        let [two, four] = [error([2, 2]), error([4, 4])];
        assert!(two < 0.1 && four > two && four < 0.6, "{two} {four}");
    }

    // Refuse beams that make no sense
    #[test]
    fn beams_that_make_no_sense_are_refused() {
        let refused = |factor| Prism::new(grid(), factor, &probe(), None).unwrap_err();
        let error = refused([5, 1]);
        assert_eq!((&*error.quantity, &*error.value), ("interpolation", "5"));
        assert_eq!(refused([1, 0]).quantity, "interpolation");
        let narrow = Probe { semi_angle: 200.0, ..probe() };
        assert_eq!(Prism::new(grid(), [1, 1], &narrow, None).unwrap_err().quantity, "semi_angle");
        let prism = Prism::new(grid(), [2, 2], &probe(), None).unwrap();
        let (waves, beam) = (prism.waves::<f64>(0..prism.beams()), probe().beam);
        let some = waves.slice(ndarray::s![1.., .., ..]).to_owned();
        assert_eq!(
            SMatrix::new(prism.clone(), &beam, some, 0.0).err().unwrap().quantity,
            "spectra"
        );
        let bad = SMatrix::new(prism.clone(), &beam, waves.clone(), f64::NAN);
        assert_eq!(bad.err().unwrap().quantity, "refocus");
        let matrix = SMatrix::new(prism, &beam, waves, 0.0).unwrap();
        let other = probe().wave(&grid()).unwrap();
        assert!(matrix.spectra(&other, &PLACES, &unwatched).is_err());
    }
}
