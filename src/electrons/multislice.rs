// Tangled from book/src/multislice.md: edit there, or here and run cargo tangle stitch.
//! Waves of electrons through slices of a specimen.
pub(crate) mod gpu;

// Imports of multislice
use super::beam::{Beam, kept_frequencies};
use super::wave_grid::WaveGrid;
use crate::device::{Workers, dispatch, gather, threads};
use crate::error::{Error, Invalid, accept, finite, positive};
use crate::numerics::real::{Precision, Real};
use crate::watch::{CancelOnly, Watch};
use ndarray::{Array2, ArrayView2, ArrayView3, ArrayViewMut2, ArrayViewMut3, Axis};
use num_complex::Complex;
use rustfft::Fft;
use std::{f64::consts::PI, ops::Range, sync::Arc};

// Transforms along one axis
/// Transforms along one axis, neither divided by the number of samples.
struct AxisTransforms<T> {
    points: usize,
    forward: Arc<dyn Fft<T>>,
    inverse: Arc<dyn Fft<T>>,
}

impl<T: Real> AxisTransforms<T> {
    fn new(points: usize) -> Self {
        let (forward, inverse) = T::plan_complex(points);
        Self { points, forward, inverse }
    }

    // Transforms that clear unkept frequencies
    /// Samples of lines of frequencies, of which those that are not kept are set to zero.
    fn to_samples(&self, lines: &mut [Complex<T>], scratch: &mut [Complex<T>]) {
        let quarter = self.points / 4;
        for line in lines.chunks_exact_mut(self.points) {
            line[quarter..self.points - quarter].fill(Complex::default());
        }
        self.inverse.process_with_scratch(lines, scratch);
    }

    /// Frequencies of lines of samples, as many times too large as there are samples.
    fn to_frequencies(&self, lines: &mut [Complex<T>], scratch: &mut [Complex<T>]) {
        self.forward.process_with_scratch(lines, scratch);
    }

    fn scratch(&self) -> usize {
        self.forward.get_inplace_scratch_len().max(self.inverse.get_inplace_scratch_len())
    }
}

// A transmission made ready
/// The transmission of a slice for waves on one grid: (y, x), divided by the number of samples along x.
///
/// A copy shares the numbers.
#[derive(Clone)]
pub struct Transmission<T>(Arc<[Complex<T>]>);

impl<T> Transmission<T> {
    /// Its values, exp(iσV)/N_x: (y, x), line by line.
    pub fn values(&self) -> &[Complex<T>] {
        &self.0
    }
}

/// A number of absolute value 1 and its phase.
fn cis<T: Real>(phase: f64) -> Complex<T> {
    let (sin, cos) = phase.sin_cos();
    Complex::new(T::of(cos), T::of(sin))
}

// Multislice on a grid
/// Multislice on one grid, with slices of one thickness.
///
/// ```
/// use lenslet::watch::unwatched;
/// use lenslet::electrons::{Beam, Multislice, WaveGrid};
/// use ndarray::{Array2, Array3};
/// use num_complex::Complex64;
/// let grid = WaveGrid::new([16, 8], [4.0, 2.0])?;
/// let multislice = Multislice::<f64>::new(grid, &Beam::new(100.0)?, 2.0)?;
/// let mut wave = Array3::zeros((1, 4, 8)); // one wave, (k_y, k_x)
/// wave[[0, 0, 1]] = Complex64::ONE;
/// let empty = multislice.transmission(Array2::zeros((8, 16)).view())?;
/// multislice.propagate(wave.view_mut(), &[empty], &unwatched)?;
/// let phase = -std::f64::consts::PI * 0.037014362 * 2.0 / 16.0; // q = 1/4 per Å
/// assert!((wave[[0, 0, 1]] - Complex64::cis(phase)).norm() < 1e-9);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub struct Multislice<T> {
    grid: WaveGrid,
    wavelength: f64,
    interaction: f64,
    thickness: f64,
    /// Of the beam \[rad\].
    tilt: [f64; 2],
    along: [AxisTransforms<T>; 2],
    /// (k_x, k_y), over the samples along y.
    propagator: Vec<Complex<T>>,
}

// Steps of the multislice method
impl<T: Real> Multislice<T> {
    // Multislice for a beam and a thickness
    /// Multislice on a `grid` through slices of `thickness` \[Å\].
    ///
    /// # Errors
    /// `Invalid` where the thickness is not a length.
    pub fn new(grid: WaveGrid, beam: &Beam, thickness: f64) -> Result<Self, Invalid> {
        positive("slice_thickness", thickness)?;
        let along = grid.points().map(AxisTransforms::new);
        let (wavelength, interaction) = (beam.wavelength(), beam.interaction());
        let (tilt, propagator) = ([0.0; 2], Vec::new());
        Self { grid, wavelength, interaction, thickness, tilt, along, propagator }.tilted(tilt)
    }

    /// Tilts the beam by `tilt` \[mrad\], x and y; waves are then in the frame of the beam, Eq. [tilted propagator](https://lenslet.github.io/lenslet/multislice.html#eq-tilted-propagator).
    ///
    /// ```
    /// use lenslet::electrons::{Beam, Multislice, WaveGrid};
    /// use lenslet::watch::unwatched;
    /// use ndarray::{Array2, Array3};
    /// use num_complex::Complex64;
    /// use std::f64::consts::PI;
    /// // A potential of a single wave of 0.4 V and a period of 1.2 Å, at the Bragg condition.
    /// let (beam, grid) = (Beam::new(100.0)?, WaveGrid::new([16, 4], [1.2, 1.0])?);
    /// let (rate, bragg) = (0.2 * beam.interaction(), 500.0 * beam.wavelength() / 1.2);
    /// assert!((rate - 1.85e-4).abs() < 1e-6 && (bragg - 15.4).abs() < 0.1);
    /// let multislice = Multislice::<f64>::new(grid, &beam, 10.0)?.tilted([bragg, 0.0])?;
    /// let v = Array2::from_shape_fn((4, 16), |(_, i)| 4.0 * (PI * i as f64 / 8.0).cos());
    /// let slices = vec![multislice.transmission(v.view())?; 425];
    /// let mut wave = Array3::zeros((1, 2, 8));
    /// wave[[0, 0, 0]] = Complex64::ONE;
    /// for share in [0.5, 1.0, 0.5, 0.0] {
    ///     multislice.propagate(wave.view_mut(), &slices, &unwatched)?; // by 4250 Å
    ///     assert!((wave[[0, 0, 7]].norm_sqr() - share).abs() < 1e-2);
    /// }
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` where the tilt is not finite.
    pub fn tilted(mut self, tilt: [f64; 2]) -> Result<Self, Invalid> {
        for tilt in tilt {
            finite("tilt", tilt)?;
        }
        self.tilt = tilt.map(|tilt| 1e-3 * tilt);
        self.propagator = self.propagator();
        Ok(self)
    }
    /// Tilts the specimen by `tilt` \[mrad\], x and y, in an untilted beam, Eq. [tilted specimen](https://lenslet.github.io/lenslet/multislice.html#eq-tilted-specimen).
    ///
    /// # Errors
    /// `Invalid` where the tilt is not below a right angle.
    pub fn through_tilted(self, tilt: [f64; 2]) -> Result<Self, Invalid> {
        for tilt in tilt {
            let good = (1e-3 * tilt).abs() < 0.5 * PI;
            accept(good, "tilt", tilt, "angles in mrad below a right angle")?;
        }
        self.tilted(tilt.map(|tilt| -1e3 * (1e-3 * tilt).tan()))
    }

    // The propagator over a slice
    /// The propagator's factors over the kept k_x and the kept k_y, Eq. [tilted propagator](https://lenslet.github.io/lenslet/multislice.html#eq-tilted-propagator).
    pub(crate) fn factors(&self) -> [Vec<Complex<f64>>; 2] {
        let kept = kept_frequencies(&self.grid);
        [0, 1].map(|axis| {
            let dispersion = |q: &f64| self.wavelength * q * q + 2.0 * q * self.tilt[axis];
            kept[axis].iter().map(|q| Complex::cis(-PI * self.thickness * dispersion(q))).collect()
        })
    }

    /// The propagator, over the samples along y.
    fn propagator(&self) -> Vec<Complex<T>> {
        let ([x, y], scale) = (self.factors(), 1.0 / self.grid.points()[1] as f64);
        x.iter().flat_map(|x| y.iter().map(move |y| T::of_complex(x * y * scale))).collect()
    }

    // The transmission of a slice
    /// The transmission of a slice with a `potential` \[V Å\], (y, x), Eq. [transmission](https://lenslet.github.io/lenslet/multislice.html#eq-transmission).
    ///
    /// # Errors
    /// `Invalid` where it is not of the grid's shape, or not finite everywhere.
    pub fn transmission(&self, potential: ArrayView2<'_, f64>) -> Result<Transmission<T>, Invalid> {
        let [nx, ny] = self.grid.points();
        let (shape, expected) = (potential.dim(), format!("{ny} lines of {nx} points"));
        accept(shape == (ny, nx), "potential", shape, &expected)?;
        if let Some(&bad) = potential.iter().find(|v| !v.is_finite()) {
            finite("potential", bad)?;
        }
        let scale = T::of(1.0 / nx as f64);
        let value = |v: &f64| cis::<T>(self.interaction * v) * scale;
        Ok(Transmission(potential.iter().map(value).collect()))
    }

    // Follow waves through slices
    /// Propagates waves (wave, k_y, k_x), kept frequencies in their order, through slices one after the other; all cores share the waves.
    ///
    /// # Errors
    /// `Invalid` where waves or slices are of another grid; `Cancelled`.
    pub fn propagate(
        &self,
        mut waves: ArrayViewMut3<'_, Complex<T>>,
        slices: &[Transmission<T>],
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        // Reject waves of another grid
        let [nx, ny] = self.grid.points();
        let (shape, expected) = (waves.dim(), format!("waves of {} by {}", ny / 2, nx / 2));
        accept((shape.1, shape.2) == (ny / 2, nx / 2), "waves", shape, &expected)?;
        for slice in slices {
            accept(slice.0.len() == nx * ny, "slice", slice.0.len(), "a slice on the same grid")?;
        }
        if slices.is_empty() {
            return Ok(());
        }
        let batches = waves.axis_chunks_iter_mut(Axis(0), self.batch(shape.0));
        let work = |_: &(), batch| {
            self.follow(batch, slices);
            Ok(())
        };
        dispatch(Workers::cores(&()), batches, watch, work, |_, ()| Ok(()))
    }

    // Waves in a batch
    /// Number of waves in a batch, of a total.
    fn batch(&self, waves: usize) -> usize {
        let [nx, ny] = self.grid.points();
        let bytes = nx / 2 * ny * size_of::<Complex<T>>();
        let share = waves.div_ceil(threads()).max(1);
        (CACHE / bytes).clamp(1, share)
    }

    // A batch goes through the slices
    /// Propagates a batch of waves (wave, k_y, k_x) through slices.
    fn follow(&self, mut batch: ArrayViewMut3<'_, Complex<T>>, slices: &[Transmission<T>]) {
        let ny = self.grid.points()[1];
        let mut workspace = WaveWorkspace::new(self, batch.len_of(Axis(0)));
        let of_wave = self.grid.points()[0] / 2 * ny;
        for (own, wave) in workspace.waves.chunks_exact_mut(of_wave).zip(batch.outer_iter()) {
            turn_in(own, wave, ny);
            self.along[1].to_samples(own, &mut workspace.scratch);
        }
        for (n, slice) in slices.iter().enumerate() {
            self.transmit(&mut workspace, slice);
            self.spread(&mut workspace, n + 1 < slices.len());
        }
        for (own, wave) in workspace.waves.chunks_exact(of_wave).zip(batch.outer_iter_mut()) {
            turn_out(own, wave, ny);
        }
    }

    // Transmit lines of a batch
    /// The first pass: to real space along x, the transmission, and back.
    fn transmit(&self, workspace: &mut WaveWorkspace<T>, slice: &Transmission<T>) {
        let nx = self.grid.points()[0];
        for (block, through) in slice.0.chunks(LINES * nx).enumerate() {
            if through.len() == LINES * nx {
                self.transmit_lines::<LINES>(workspace, block * LINES, through);
            } else {
                self.transmit_lines::<{ LINES / 2 }>(workspace, block * LINES, through);
            }
        }
    }

    // Transmit a few lines of each wave
    /// The first pass for `N` lines from `first` on.
    fn transmit_lines<const N: usize>(
        &self,
        workspace: &mut WaveWorkspace<T>,
        first: usize,
        through: &[Complex<T>],
    ) {
        let (sides, along) = (self.grid.points(), &self.along[0]);
        let [nx, ny] = sides;
        let WaveWorkspace { waves, lines, scratch } = workspace;
        let lines = &mut lines[..through.len()];
        for wave in waves.chunks_exact_mut(nx / 2 * ny) {
            let (low, high) = wave.split_at_mut(nx / 4 * ny);
            fetch::<T, N>(low, [first, 0], lines, sides);
            fetch::<T, N>(high, [first, nx - nx / 4], lines, sides);
            for (line, through) in lines.chunks_exact_mut(nx).zip(through.chunks_exact(nx)) {
                along.to_samples(line, scratch);
                line.iter_mut().zip(through).for_each(|(a, through)| *a *= through);
                along.to_frequencies(line, scratch);
            }
            bring_back::<T, N>(low, [first, 0], lines, sides);
            bring_back::<T, N>(high, [first, nx - nx / 4], lines, sides);
        }
    }

    // Spread columns of a batch
    /// The second pass: to frequencies along y, the propagator, and, where the wave goes `on`, back to samples.
    fn spread(&self, workspace: &mut WaveWorkspace<T>, on: bool) {
        let ([nx, ny], along) = (self.grid.points(), &self.along[1]);
        for wave in workspace.waves.chunks_exact_mut(nx / 2 * ny) {
            let factors = self.propagator.chunks_exact(ny / 2);
            for (column, factors) in wave.chunks_exact_mut(ny).zip(factors) {
                along.to_frequencies(column, &mut workspace.scratch);
                let (low, high) = (&factors[..ny / 4], &factors[ny / 4..]);
                column[..ny / 4].iter_mut().zip(low).for_each(|(a, factor)| *a *= factor);
                column[ny - ny / 4..].iter_mut().zip(high).for_each(|(a, factor)| *a *= factor);
                if on {
                    along.to_samples(column, &mut workspace.scratch);
                }
            }
        }
    }

    // Follow waves through a whole specimen
    /// Propagates waves through slices whose potentials \[V Å\] are computed on demand, slice 0 first. After the numbers of slices in `ends`, in increasing order,
    /// the waves are passed to `sink`. Slices behind the last end are not computed.
    ///
    /// # Errors
    /// Those of `potential`, of [`transmission`](Self::transmission) and of [`propagate`](Self::propagate), and of `sink`; `Invalid` where `ends` do not rise.
    pub fn run(
        &self,
        mut waves: ArrayViewMut3<'_, Complex<T>>,
        potential: impl Fn(usize) -> Result<Array2<f64>, Error> + Sync,
        ends: &[usize],
        watch: &dyn Watch,
        mut sink: impl FnMut(usize, ArrayView3<'_, Complex<T>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        accept(ends.is_sorted_by(|a, b| a < b), "ends", ends, "numbers of slices that rise")?;
        let mut done = 0;
        for &end in ends {
            self.in_groups(done..end, &potential, watch, |slices| {
                self.propagate(waves.view_mut(), slices, watch)
            })?;
            sink(end, waves.view())?;
            done = end;
        }
        Ok(())
    }

    // Make slices in groups
    /// Computes slices by all cores in groups that fit into memory, and passes each group to `pass`.
    ///
    /// # Errors
    /// Those of `potential`, of [`transmission`](Self::transmission) and of `pass`; `Cancelled`.
    pub(crate) fn in_groups(
        &self,
        slices: Range<usize>,
        potential: impl Fn(usize) -> Result<Array2<f64>, Error> + Sync,
        watch: &dyn Watch,
        mut pass: impl FnMut(&[Transmission<T>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let [nx, ny] = self.grid.points();
        let group = (HELD / (nx * ny * size_of::<Complex<T>>())).max(1);
        let ready = |_: &(), n: usize| Ok(self.transmission(potential(n)?.view())?);
        for first in slices.clone().step_by(group) {
            let some = first..slices.end.min(first + group);
            pass(&gather(Workers::cores(&()), some, &CancelOnly(watch), ready)?)?;
        }
        Ok(())
    }
}

// Room for a batch
/// How many lines the first pass turns at a time.
const LINES: usize = 8;

/// Memory that a thread works in.
struct WaveWorkspace<T> {
    /// A batch of waves: (wave, k_x, y).
    waves: Vec<Complex<T>>,
    lines: Vec<Complex<T>>,
    scratch: Vec<Complex<T>>,
}

impl<T: Real> WaveWorkspace<T> {
    fn new(multislice: &Multislice<T>, waves: usize) -> Self {
        let [nx, ny] = multislice.grid.points();
        let scratch = multislice.along.iter().map(AxisTransforms::scratch).max().unwrap_or(0);
        let zeros = |length| vec![Complex::default(); length];
        Self {
            waves: zeros(waves * nx / 2 * ny),
            lines: zeros(LINES * nx),
            scratch: zeros(scratch),
        }
    }
}

// Fetch lines out of columns
/// How many columns are turned at a time.
const TILE: usize = 4;

/// Fetches `N` lines from `first` on out of a run of columns, to the places from `start` on.
fn fetch<T: Real, const N: usize>(
    columns: &[Complex<T>],
    [first, start]: [usize; 2],
    lines: &mut [Complex<T>],
    [nx, ny]: [usize; 2],
) {
    let piece = |column: &[Complex<T>]| -> [Complex<T>; N] {
        std::array::from_fn(|r| column[first..first + N][r])
    };
    for (tile, columns) in columns.chunks(TILE * ny).enumerate() {
        let start = start + tile * TILE;
        if columns.len() == TILE * ny {
            let own: [_; TILE] = std::array::from_fn(|i| piece(&columns[i * ny..][..ny]));
            for (r, line) in lines.chunks_exact_mut(nx).take(N).enumerate() {
                line[start..start + TILE].copy_from_slice(&own.map(|own| own[r]));
            }
        } else {
            // Fetch the last few columns one by one
            for (i, own) in columns.chunks_exact(ny).map(piece).enumerate() {
                let lines = lines.chunks_exact_mut(nx).zip(own);
                lines.for_each(|(line, a)| line[start + i] = a);
            }
        }
    }
}

// Bring lines back into columns
/// Brings `N` lines back into a run of columns: the reverse of [`fetch`].
fn bring_back<T: Real, const N: usize>(
    columns: &mut [Complex<T>],
    [first, start]: [usize; 2],
    lines: &[Complex<T>],
    [nx, ny]: [usize; 2],
) {
    for (tile, columns) in columns.chunks_mut(TILE * ny).enumerate() {
        let start = start + tile * TILE;
        if columns.len() == TILE * ny {
            let mut rows = [[Complex::default(); TILE]; N];
            for (row, line) in rows.iter_mut().zip(lines.chunks_exact(nx)) {
                row.copy_from_slice(&line[start..start + TILE]);
            }
            for (i, column) in columns.chunks_exact_mut(ny).enumerate() {
                column[first..first + N].copy_from_slice(&rows.map(|row| row[i]));
            }
        } else {
            // Bring the last few columns back one by one
            for (i, column) in columns.chunks_exact_mut(ny).enumerate() {
                let own = column[first..first + N].iter_mut().zip(lines.chunks_exact(nx));
                own.for_each(|(a, line)| *a = line[start + i]);
            }
        }
    }
}

// A wave turned in and out
/// The place in a column of `ny` of the kept frequency number `j`.
fn place(j: usize, ny: usize) -> usize {
    if j < ny / 4 { j } else { j + ny / 2 }
}

/// Puts the frequencies of a wave (k_y, k_x) into its columns.
fn turn_in<T: Real>(columns: &mut [Complex<T>], wave: ArrayView2<'_, Complex<T>>, ny: usize) {
    for (j, line) in wave.outer_iter().enumerate() {
        for (column, a) in columns.chunks_exact_mut(ny).zip(line) {
            column[place(j, ny)] = *a;
        }
    }
}

/// Takes the frequencies of a wave out of its columns.
fn turn_out<T: Real>(columns: &[Complex<T>], mut wave: ArrayViewMut2<'_, Complex<T>>, ny: usize) {
    for (j, mut line) in wave.outer_iter_mut().enumerate() {
        for (column, a) in columns.chunks_exact(ny).zip(&mut line) {
            *a = column[place(j, ny)];
        }
    }
}

// Time of a pass
/// Seconds of one thread for a wave through a slice, by the built-in rates.
pub(crate) fn seconds_of_a_pass(grid: &WaveGrid, precision: Precision) -> f64 {
    let points = grid.points().iter().product::<usize>() as f64;
    let numbers = if precision == Precision::F64 { 2.0 } else { 1.0 };
    1e-9 * points * points.log2() * numbers
}

// Sizes of groups and batches
/// Bytes of the transmissions that are held at a time, and of the waves of a batch.
const HELD: usize = 1 << 30;
const CACHE: usize = 512 << 10;

// Tests of multislice
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::{Aberration, Aberrations, Probe};
    use crate::watch::unwatched;
    use ndarray::{Array3, ArrayView1};
    use num_complex::Complex64;

    // Specimens for tests of multislice
    fn grid() -> WaveGrid {
        WaveGrid::new([24, 16], [7.0, 5.5]).unwrap()
    }

    fn beam() -> Beam {
        Beam::new(100.0).unwrap()
    }

    /// A potential without any symmetry, of which slice `n` differs from the others.
    fn potential(grid: &WaveGrid, n: usize, strength: f64) -> Array2<f64> {
        let ([nx, ny], n) = (grid.points(), n as f64);
        Array2::from_shape_fn((ny, nx), |(j, i)| {
            let (x, y) = (i as f64 / nx as f64, j as f64 / ny as f64);
            let bumps = (2.0 * PI * (x + 0.3 * n)).cos() + (4.0 * PI * (y - 0.1 * n)).sin();
            strength * (bumps + (2.0 * PI * (3.0 * x + 2.0 * y)).cos() + 2.0).powi(3)
        })
    }

    fn probe(tilt: [f64; 2]) -> Probe {
        let terms = vec![Aberration { order: 3, fold: 1, magnitude: 900.0, angle: 0.7 }];
        let aberrations = Aberrations { defocus: -90.0, c3: 2e5, terms, ..Default::default() };
        Probe { beam: beam(), semi_angle: 14.0, aberrations, tilt }
    }

    /// The largest difference of two sets of waves.
    fn apart<T: Real>(a: ArrayView3<'_, Complex<T>>, b: ArrayView3<'_, Complex<T>>) -> f64 {
        let pairs = a.iter().zip(b).map(|(a, b)| (a - b).norm().in_double());
        pairs.fold(0.0, f64::max)
    }

    fn power(wave: ArrayView1<'_, Complex64>) -> f64 {
        wave.iter().map(Complex64::norm_sqr).sum()
    }

    fn total(waves: &Array3<Complex64>) -> f64 {
        waves.rows().into_iter().map(power).sum()
    }

    // Check multislice against its definition
    /// A transform of all samples by its definition; `sign` −1 goes to frequencies and divides by their number.
    fn transform(a: &Array2<Complex64>, sign: f64) -> Array2<Complex64> {
        let (ny, nx) = a.dim();
        let turn = |k: usize, n: usize| sign * 2.0 * PI * (k % n) as f64 / n as f64;
        let of_row = |j: usize, k: usize| -> Complex64 {
            (0..nx).map(|i| a[[j, i]] * Complex64::cis(turn(k * i, nx))).sum()
        };
        let rows = Array2::from_shape_fn((ny, nx), |(j, k)| of_row(j, k));
        let of_column = |l: usize, k: usize| -> Complex64 {
            (0..ny).map(|j| rows[[j, k]] * Complex64::cis(turn(l * j, ny))).sum()
        };
        let scale = if sign < 0.0 { 1.0 / (nx * ny) as f64 } else { 1.0 };
        Array2::from_shape_fn((ny, nx), |(l, k)| scale * of_column(l, k))
    }

    #[test]
    fn multislice_is_what_the_conventions_say() {
        let (grid, tilt, place) = (grid(), [4.0, -7.0], [2.3, 1.1]);
        let ([nx, ny], thickness, beam) = (grid.points(), 2.5, beam());
        let signed = |k: usize, n: usize| k as f64 - if 2 * k >= n { n as f64 } else { 0.0 };
        let q = |j: usize, i: usize| [signed(i, nx) / 7.0, signed(j, ny) / 5.5];
        let kept = |j: usize, i: usize| !(6..18).contains(&i) && !(4..12).contains(&j);
        let wave = probe([6.0, -3.0]).wave(&grid).unwrap();
        let mut waves: Array3<Complex64> = wave.at(&[place]);
        let mut whole = Array2::zeros((ny, nx));
        for (j, k) in grid.kept(1).enumerate() {
            for (i, l) in grid.kept(0).enumerate() {
                whole[[k, l]] = waves[[0, j, i]];
            }
        }
        let (lambda, sigma) = (0.037_014_361_993_5, 9.243_959_416_073_3e-4);
        let tilted = tilt.map(|tilt| 1e-3 * tilt);
        for n in 0..3 {
            let v = potential(&grid, n, 25.0);
            let mut through = transform(&whole, 1.0);
            through.zip_mut_with(&v, |a, v| *a *= Complex64::cis(sigma * v));
            whole = transform(&through, -1.0);
            for ((j, i), a) in whole.indexed_iter_mut() {
                let [x, y] = q(j, i);
                let path = lambda * (x * x + y * y) + 2.0 * (x * tilted[0] + y * tilted[1]);
                let factor = Complex64::cis(-PI * thickness * path);
                *a *= if kept(j, i) { factor } else { Complex64::ZERO };
            }
        }
        let multislice = Multislice::new(grid, &beam, thickness).unwrap().tilted(tilt).unwrap();
        let slices = [0, 1, 2].map(|n| multislice.transmission(potential(&grid, n, 25.0).view()));
        let slices = slices.map(Result::unwrap);
        multislice.propagate(waves.view_mut(), &slices, &unwatched).unwrap();
        let expected = Array3::from_shape_fn((1, ny / 2, nx / 2), |(_, j, i)| {
            let (j, i) = (grid.kept(1).nth(j).unwrap(), grid.kept(0).nth(i).unwrap());
            whole[[j, i]]
        });
        let lost = 1.0 - total(&waves);
        assert!((0.01..0.5).contains(&lost), "a specimen that scatters beyond the mask: {lost}");
        assert!(apart(waves.view(), expected.view()) < 1e-13);
    }

    // Check waves in free space and without loss
    #[test]
    fn free_space_turns_phases_and_weak_matter_loses_nothing() {
        let grid = WaveGrid::new([64, 48], [11.0, 9.0]).unwrap();
        let multislice = Multislice::<f64>::new(grid, &beam(), 1.7).unwrap();
        let start: Array3<Complex64> = probe([0.0; 2]).wave(&grid).unwrap().at(&[[1.0, 2.0]]);
        let flat = multislice.transmission(Array2::from_elem((48, 64), 30.0).view()).unwrap();
        let mut waves = start.clone();
        multislice.propagate(waves.view_mut(), &[flat], &unwatched).unwrap();
        let [x, y] = kept_frequencies(&grid);
        for ((_, j, i), a) in waves.indexed_iter() {
            let q2 = x[i] * x[i] + y[j] * y[j];
            let phase = 30.0 * beam().interaction() - PI * beam().wavelength() * 1.7 * q2;
            assert!((a - start[[0, j, i]] * Complex64::cis(phase)).norm() < 1e-14);
        }
        let smooth = |_| Ok(potential(&grid, 0, 0.3));
        let mut waves = start;
        multislice.run(waves.view_mut(), smooth, &[5], &unwatched, |_, _| Ok(())).unwrap();
        assert!((total(&waves) - 1.0).abs() < 1e-11, "{}", total(&waves));
    }

    // A crystal of a few waves
    /// Waves of the crystal: frequency in units of the cell's, volts, and phase.
    const WAVES: [([isize; 2], f64, f64); 4] =
        [([1, 0], 9.0, 0.3), ([2, -1], 5.0, 1.1), ([1, 1], 4.0, -0.7), ([0, 2], 3.0, 2.0)];

    /// The crystal's potential \[V\].
    fn crystal(grid: &WaveGrid) -> Array2<f64> {
        let [nx, ny] = grid.points();
        Array2::from_shape_fn((ny, nx), |(j, i)| {
            let [x, y] = [i as f64 / nx as f64, j as f64 / ny as f64];
            let wave = |([k, l], volts, phase): ([isize; 2], f64, f64)| {
                volts * (2.0 * PI * (k as f64 * x + l as f64 * y) + phase).cos()
            };
            WAVES.map(wave).iter().sum()
        })
    }

    /// The phase by which the frequency at each place turns in an ångström of free space.
    fn turns(grid: &WaveGrid, tilt: [f64; 2]) -> Array2<f64> {
        let [x, y] = kept_frequencies(grid);
        Array2::from_shape_fn((y.len(), x.len()), |(j, i)| {
            let square = x[i] * x[i] + y[j] * y[j];
            let aside = 1e-3 * (x[i] * tilt[0] + y[j] * tilt[1]);
            -PI * (beam().wavelength() * square + 2.0 * aside)
        })
    }

    // Waves of many beams exactly
    /// The wave behind so much of the crystal by Eq. [many beams](https://lenslet.github.io/lenslet/multislice.html#eq-many-beams).
    fn many_beams(start: &Array2<Complex64>, turns: &Array2<f64>, depth: f64) -> Array2<Complex64> {
        let (rows, columns) = start.dim();
        let signed =
            |k: usize, n: usize| if 2 * k < n { k as isize } else { k as isize - n as isize };
        let coupled = |at: (usize, usize), [k, l]: [isize; 2]| {
            let (j, i) = (signed(at.0, rows) - l, signed(at.1, columns) - k);
            let inside = |k: isize, n: usize| (-(n as isize)..n as isize).contains(&(2 * k));
            let home = |k: isize, n: usize| k.rem_euclid(n as isize) as usize;
            (inside(j, rows) && inside(i, columns)).then(|| (home(j, rows), home(i, columns)))
        };
        let steps = depth.ceil();
        let applied = |wave: &Array2<Complex64>| {
            Array2::from_shape_fn(wave.dim(), |at| {
                let mut sum = turns[at] * wave[at];
                for ([k, l], volts, phase) in WAVES {
                    for sign in [1, -1] {
                        if let Some(from) = coupled(at, [sign * k, sign * l]) {
                            let half = 0.5 * volts * beam().interaction();
                            sum += Complex64::from_polar(half, sign as f64 * phase) * wave[from];
                        }
                    }
                }
                Complex64::I * (depth / steps) * sum
            })
        };
        let mut wave = start.clone();
        for _ in 0..steps as usize {
            let mut term = wave.clone();
            for n in 1..=20 {
                term = applied(&term) / Complex64::from(n as f64);
                wave += &term;
            }
        }
        wave
    }

    // Check multislice against many beams
    #[test]
    fn thin_slices_make_the_waves_of_many_beams() {
        let grid = WaveGrid::new([32, 24], [5.1, 4.3]).unwrap();
        let (tilt, depth) = ([5.0, -3.0], 40.0);
        let (turns, potential) = (turns(&grid, tilt), crystal(&grid));
        let mut start = Array2::zeros((12, 16));
        (start[[0, 0]], start[[11, 1]]) = (Complex64::from(0.8), Complex64::new(0.0, 0.6));
        let expected = many_beams(&start, &turns, depth).insert_axis(Axis(0));
        let sliced = |count: usize| {
            let thickness = depth / count as f64;
            let multislice = Multislice::<f64>::new(grid, &beam(), thickness).unwrap();
            let half = turns.mapv(|turn| Complex64::cis(0.5 * thickness * turn));
            let mut waves = (&start * &half).insert_axis(Axis(0));
            let slice = |_| Ok(&potential * thickness);
            let tilted = multislice.tilted(tilt).unwrap();
            tilted.run(waves.view_mut(), slice, &[count], &unwatched, |_, _| Ok(())).unwrap();
            waves / half
        };
        let (coarse, fine) = (sliced(40), sliced(80));
        let [far, near] = [&coarse, &fine].map(|waves| apart(waves.view(), expected.view()));
        let limit = (fine * Complex64::from(4.0) - coarse) / Complex64::from(3.0);
        let left = apart(limit.view(), expected.view());
        assert!((3.99..4.01).contains(&(far / near)), "{far:e} {near:e}");
        assert!(far > 5e-6 && left < 1e-8, "{left:e}");
        assert!((total(&expected) - 1.0).abs() < 1e-12);
        let beams = expected.iter().filter(|a| a.norm_sqr() > 1e-3).count();
        assert!(beams > 8, "{beams} beams");
    }

    // Check thickness fringes of two beams
    #[test]
    fn two_beams_exchange_their_electrons() {
        let (a, v0, thickness) = (1.2, 0.4, 1.0);
        let (grid, lambda) = (WaveGrid::new([16, 4], [a, 1.0]).unwrap(), beam().wavelength());
        let coupling = 0.5 * beam().interaction() * v0;
        let wave_of_x =
            |(_, i): (usize, usize)| v0 * thickness * (2.0 * PI * i as f64 / 16.0).cos();
        let v = Array2::from_shape_fn((4, 16), wave_of_x);
        let leak = (coupling * a * a / (2.0 * PI * lambda)).powi(2);
        for off in [0.0, 1.5] {
            // The beam −1 turns faster by off · c.
            let tilt = 0.5 * lambda / a + off * coupling * a / (2.0 * PI);
            let multislice = Multislice::<f64>::new(grid, &beam(), thickness).unwrap();
            let multislice = multislice.tilted([1e3 * tilt, 0.0]).unwrap();
            let mut waves = Array3::zeros((1, 2, 8));
            waves[[0, 0, 0]] = Complex64::ONE;
            let ends: Vec<usize> = (1..=40).map(|k| 400 * k).collect();
            let mut most: f64 = 0.0;
            let share = 1.0 + 0.25 * off * off;
            let check = |end: usize, waves: ArrayView3<'_, Complex64>| {
                let found = waves[[0, 0, 7]].norm_sqr();
                most = most.max(found);
                let phase = coupling * share.sqrt() * end as f64 * thickness;
                let gap = (found - phase.sin().powi(2) / share).abs();
                assert!(gap < 4.0 * leak, "{end} {found}: {gap:e}");
                assert!((found + waves[[0, 0, 0]].norm_sqr() - 1.0).abs() < 6.0 * leak, "{end}");
                Ok(())
            };
            multislice.run(waves.view_mut(), |_| Ok(v.clone()), &ends, &unwatched, check).unwrap();
            assert!((most * share - 1.0).abs() < 0.01 && leak < 2e-6, "{most} {leak}");
        }
    }

    // Check that slices have an order
    #[test]
    fn slices_have_an_order() {
        let (grid, beam) = (grid(), beam());
        let multislice = Multislice::<f64>::new(grid, &beam, 2.0).unwrap();
        let start: Array3<Complex64> = probe([0.0; 2]).wave(&grid).unwrap().at(&[[1.0, 2.0]]);
        let through = |order: [usize; 2]| {
            let mut waves = start.clone();
            let ready = |n| multislice.transmission(potential(&grid, n, 15.0).view()).unwrap();
            multislice.propagate(waves.view_mut(), &order.map(ready), &unwatched).unwrap();
            waves
        };
        let (forward, backward) = (through([0, 1]), through([1, 0]));
        assert!(apart(forward.view(), backward.view()) > 1e-3);
        // One after the other is both at once.
        let mut steps = start.clone();
        for n in [0, 1] {
            let slice = [multislice.transmission(potential(&grid, n, 15.0).view()).unwrap()];
            multislice.propagate(steps.view_mut(), &slice, &unwatched).unwrap();
        }
        assert!(apart(forward.view(), steps.view()) < 1e-14);
        multislice.propagate(steps.view_mut(), &[], &unwatched).unwrap();
        assert!(apart(forward.view(), steps.view()) < 1e-14);
    }

    // Check both frames of a tilt
    #[test]
    fn a_tilt_is_the_same_in_both_frames() {
        let grid = WaveGrid::new([64, 48], [9.0, 8.0]).unwrap();
        let tilt = [2.0 / 9.0, -3.0 / 8.0].map(|q| beam().angle(q));
        let run = |multislice: Multislice<f64>, probe: Probe| {
            let mut waves = probe.wave(&grid).unwrap().at(&[[4.0, 3.0]]);
            let smooth = |n| Ok(potential(&grid, n, 0.1));
            multislice.run(waves.view_mut(), smooth, &[6], &unwatched, |_, _| Ok(())).unwrap();
            waves
        };
        let straight = || Multislice::<f64>::new(grid, &beam(), 2.0).unwrap();
        let fixed = run(straight(), probe(tilt));
        let following = run(straight().tilted(tilt).unwrap(), probe([0.0; 2]));
        let mut worst: f64 = 0.0;
        for ((_, j, i), a) in following.indexed_iter() {
            let b = fixed[[0, (j + 21) % 24, (i + 2) % 32]];
            worst = worst.max((a.norm() - b.norm()).abs());
        }
        let other = run(straight().tilted(tilt.map(|tilt| -tilt)).unwrap(), probe([0.0; 2]));
        assert!(worst < 1e-6, "{worst}");
        assert!(apart(other.view(), following.view()) > 1e-2);
    }

    // Check a tilted specimen
    #[test]
    fn a_tilted_specimen_moves_its_columns() {
        let (grid, tilt) = (grid(), [120.0, -45.0]);
        let multislice = Multislice::<f64>::new(grid, &beam(), 2.5).unwrap();
        let multislice = multislice.through_tilted(tilt).unwrap();
        let start: Array3<Complex64> = probe([0.0; 2]).wave(&grid).unwrap().at(&[[2.3, 1.1]]);
        let empty = multislice.transmission(Array2::zeros((16, 24)).view()).unwrap();
        let mut wave = start.clone();
        multislice.propagate(wave.view_mut(), &[empty.clone(), empty], &unwatched).unwrap();
        let ([x, y], lambda) = (kept_frequencies(&grid), beam().wavelength());
        for ((_, j, i), a) in wave.indexed_iter() {
            let tilted = 2.0 * (x[i] * f64::tan(0.120) + y[j] * f64::tan(-0.045));
            let phase = PI * 5.0 * (tilted - lambda * (x[i] * x[i] + y[j] * y[j]));
            assert!((a - start[[0, j, i]] * Complex64::cis(phase)).norm() < 1e-12);
        }
        let upright = Multislice::<f64>::new(grid, &beam(), 2.5).unwrap();
        assert_eq!(upright.through_tilted([0.0, 1600.0]).err().unwrap().quantity, "tilt");
    }

    // Check that the image moves with the specimen
    #[test]
    fn a_probe_and_a_specimen_that_move_together_see_the_same() {
        let (grid, [px, py]) = (grid(), grid().pixel());
        let multislice = Multislice::<f64>::new(grid, &beam(), 2.0).unwrap();
        let pattern = |moved: [usize; 2]| {
            let place = [1.3 + moved[0] as f64 * px, 0.4 + moved[1] as f64 * py];
            let mut waves: Array3<Complex64> = probe([0.0; 2]).wave(&grid).unwrap().at(&[place]);
            let slice = |n| {
                let v = potential(&grid, n, 5.0);
                Ok(Array2::from_shape_fn((16, 24), |(j, i)| {
                    v[[(j + 16 - moved[1]) % 16, (i + 24 - moved[0]) % 24]]
                }))
            };
            multislice.run(waves.view_mut(), slice, &[3], &unwatched, |_, _| Ok(())).unwrap();
            waves.mapv(|a| Complex64::from(a.norm_sqr()))
        };
        let (here, there) = (pattern([0, 0]), pattern([5, 3]));
        assert!(apart(here.view(), there.view()) < 1e-14);
        assert!(apart(here.view(), pattern([5, 0]).view()) < 1e-14);
    }

    // Check single precision and batches
    #[test]
    fn precisions_and_batches_agree() {
        let grid = WaveGrid::new([40, 24], [7.0, 5.5]).unwrap();
        let wave = probe([0.0; 2]).wave(&grid).unwrap();
        let places: Vec<[f64; 2]> = (0..7).map(|k| [0.7 * k as f64, 0.3 * k as f64]).collect();
        fn run<T: Real>(grid: WaveGrid, mut waves: Array3<Complex<T>>) -> Array3<Complex<T>> {
            let multislice = Multislice::<T>::new(grid, &beam(), 2.0).unwrap();
            let slices = |n| Ok(potential(&grid, n % 3, 3.0));
            multislice.run(waves.view_mut(), slices, &[10], &unwatched, |_, _| Ok(())).unwrap();
            waves
        }
        let double: Array3<Complex64> = run(grid, wave.at(&places));
        let single =
            run(grid, wave.at::<f32>(&places)).mapv(|a| Complex64::new(a.re.into(), a.im.into()));
        assert!(apart(double.view(), single.view()) < 1e-5);
        assert!(apart(double.view(), single.view()) > 1e-9);
        for (k, &place) in places.iter().enumerate() {
            let alone = run(grid, wave.at::<f64>(&[place]));
            assert_eq!(alone.index_axis(Axis(0), 0), double.index_axis(Axis(0), k));
        }
    }

    // Check waves on their way
    #[test]
    fn waves_are_shown_on_their_way() {
        let grid = grid();
        let multislice = Multislice::<f64>::new(grid, &beam(), 2.0).unwrap();
        let start: Array3<Complex64> = probe([0.0; 2]).wave(&grid).unwrap().at(&[[1.0, 2.0]]);
        let slices = |n| Ok(potential(&grid, n, 3.0));
        let mut recorded = Vec::new();
        let keep = |end, waves: ArrayView3<'_, Complex64>| {
            recorded.push((end, waves.to_owned()));
            Ok(())
        };
        let mut waves = start.clone();
        multislice.run(waves.view_mut(), slices, &[0, 2, 5], &unwatched, keep).unwrap();
        let (ends, shown): (Vec<usize>, Vec<_>) = recorded.into_iter().unzip();
        assert_eq!((ends, &shown[0], &shown[2]), (vec![0, 2, 5], &start, &waves));
        let mut two = start;
        multislice.run(two.view_mut(), slices, &[2], &unwatched, |_, _| Ok(())).unwrap();
        assert!(apart(two.view(), shown[1].view()) < 1e-15);
    }

    // Check refusals of multislice
    #[test]
    fn slices_and_waves_that_do_not_fit_are_refused() {
        let grid = grid();
        let new = |thickness| Multislice::<f64>::new(grid, &beam(), thickness);
        assert_eq!(new(0.0).err().unwrap().quantity, "slice_thickness");
        assert_eq!(new(1.0).unwrap().tilted([0.0, f64::NAN]).err().unwrap().quantity, "tilt");
        let multislice = new(1.0).unwrap();
        let refused = |v: Array2<f64>| multislice.transmission(v.view()).err().unwrap().quantity;
        assert_eq!(refused(Array2::zeros((24, 16))), "potential");
        assert_eq!(refused(Array2::from_elem((16, 24), f64::NAN)), "potential");
        let other = WaveGrid::new([16, 16], [7.0, 5.5]).unwrap();
        let foreign = Multislice::<f64>::new(other, &beam(), 1.0).unwrap();
        let foreign = foreign.transmission(Array2::zeros((16, 16)).view()).unwrap();
        let mut waves = Array3::zeros((1, 8, 12));
        let named = |result: Result<(), Error>| match result {
            Err(Error::Invalid(invalid)) => invalid.quantity,
            other => format!("{other:?}"),
        };
        assert_eq!(named(multislice.propagate(waves.view_mut(), &[foreign], &unwatched)), "slice");
        let mut turned = Array3::zeros((1, 12, 8));
        assert_eq!(named(multislice.propagate(turned.view_mut(), &[], &unwatched)), "waves");
        let zero = |_| Ok(Array2::zeros((16, 24)));
        let falling = multislice.run(waves.view_mut(), zero, &[2, 1], &unwatched, |_, _| Ok(()));
        assert_eq!(named(falling), "ends");
        let impatient = CancelOnly(&Stopped);
        let stopped = multislice.run(waves.view_mut(), zero, &[1], &impatient, |_, _| Ok(()));
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }

    /// Wants no computation.
    struct Stopped;

    impl Watch for Stopped {
        fn cancelled(&self) -> bool {
            true
        }
    }
}
