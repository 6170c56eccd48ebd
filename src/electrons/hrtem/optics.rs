// Tangled from book/src/hrtem.md: edit there, or here and run cargo tangle stitch.
//! Images of the exit wave of a plane wave, through a lens and with partial coherence.

// Imports of images of plane waves
use crate::electrons::beam::{Aberrations, Beam, aperture, kept_frequencies};
use crate::electrons::scan_images::transform_plane;
use crate::electrons::wave_grid::WaveGrid;
use crate::error::{Invalid, accept, finite, not_negative, positive};
use crate::numerics::real::Real;
use ndarray::{Array2, Array3, ArrayView2, Axis, RemoveAxis};
use num_complex::{Complex, Complex64};
use num_traits::One;
use std::f64::consts::PI;

// The wave of parallel light
/// A plane wave of intensity 1 along the beam: (1, k_y, k_x), the kept frequencies in their order.
pub fn plane_wave<T: Real>(grid: &WaveGrid) -> Array3<Complex<T>> {
    let [nx, ny] = grid.points();
    let mut wave = Array3::zeros((1, ny / 2, nx / 2));
    wave[[0, 0, 0]] = Complex::one();
    wave
}

// Optics of plane-wave imaging
/// Optics of HRTEM: the lens that images the exit wave of a plane wave, its coherence, and the tilt of the beam.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HrtemOptics {
    /// The electrons.
    pub beam: Beam,
    /// Aberrations of the lens; their defocus is that of the image, positive for overfocus and negative for underfocus.
    pub aberrations: Aberrations,
    /// Semi-angle of the objective aperture \[mrad\], if there is one.
    pub aperture: Option<f64>,
    /// Tilt of the beam against the axis of the lens \[mrad\], x and y.
    pub tilt: [f64; 2],
    /// Focal spread, rms \[Å\].
    pub focal_spread: f64,
    /// Convergence of the illumination along each axis, rms \[mrad\].
    pub convergence: f64,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(HrtemOptics::perfect(beam: Beam) {
    aberrations: Aberrations,
    aperture: Option<f64>,
    tilt: [f64; 2],
    focal_spread: f64,
    convergence: f64
});

impl HrtemOptics {
    /// A perfect and coherent lens without an aperture.
    pub fn perfect(beam: Beam) -> Self {
        let (aberrations, aperture, tilt) = (Aberrations::default(), None, [0.0; 2]);
        Self { beam, aberrations, aperture, tilt, focal_spread: 0.0, convergence: 0.0 }
    }

    // What a lens makes of frequencies
    /// Transfer function of the lens at each kept frequency (k_y, k_x) in the frame of the beam, Eq. [plane wave image](https://lenslet.github.io/lenslet/hrtem.html#eq-plane-wave-image).
    ///
    /// # Errors
    /// `Invalid` where an aperture is not positive, a spread or an angle is negative, or something is not finite.
    pub fn transfer(&self, grid: &WaveGrid) -> Result<Array2<Complex64>, Invalid> {
        self.check_phase(grid)?;
        let (lambda, step) = (self.beam.wavelength(), grid.lengths().map(|length| 1.0 / length));
        let straight = self.tilt.map(|tilt| self.beam.frequency(tilt));
        let radius = self.aperture.map(|angle| self.beam.frequency(angle));
        let slope = |q| self.aberrations.slope(lambda, q);
        let at_beam = slope(straight);
        let [x, y] = kept_frequencies(grid);
        Ok(Array2::from_shape_fn((y.len(), x.len()), |(j, i)| {
            let q = [x[i] + straight[0], y[j] + straight[1]];
            let through = radius.map_or(1.0, |radius| aperture(radius, q, step));
            let envelopes = self.envelope(q, slope(q), straight, at_beam);
            Complex64::from_polar(through * envelopes, -self.aberrations.phase(lambda, q))
        }))
    }

    // Image an exit wave
    /// The image (y, x), on all samples of the grid, of an exit wave (k_y, k_x), kept frequencies in their order; of mean 1 without a specimen.
    ///
    /// ```
    /// use lenslet::electrons::{Aberrations, Beam, HrtemOptics, WaveGrid};
    /// use ndarray::Array2;
    /// use num_complex::Complex64;
    /// let (beam, grid) = (Beam::new(200.0)?, WaveGrid::new([64, 4], [16.0, 1.0])?);
    /// let aberrations = Aberrations { defocus: -613.3, c3: 1e7, ..Default::default() };
    /// let lens = HrtemOptics { aberrations, ..HrtemOptics::perfect(beam) };
    /// let phase = lens.aberrations.phase(beam.wavelength(), [0.25, 0.0]);
    /// assert!((beam.wavelength() - 0.0251).abs() < 1e-4 && (beam.angle(0.25) - 6.27).abs() < 0.01);
    /// assert!((phase + 2.05).abs() < 0.01);
    /// // 1 + 0.1i cos 2πx/4
    /// let mut exit = Array2::from_elem((2, 32), Complex64::ZERO);
    /// exit[[0, 0]] = Complex64::ONE;
    /// (exit[[0, 4]], exit[[0, 28]]) = (Complex64::new(0.0, 0.05), Complex64::new(0.0, 0.05));
    /// let contrast = |lens: &HrtemOptics| {
    ///     lens.image(&grid, exit.view()).map(|image| 0.5 * (image[[0, 0]] - image[[0, 8]]))
    /// };
    /// assert!((contrast(&lens)? / 0.2 + 0.886).abs() < 1e-3); // dark where the phase is large
    /// let partial = HrtemOptics { focal_spread: 40.0, convergence: 0.3, ..lens };
    /// assert!((contrast(&partial)? / 0.2 + 0.886 * 0.981 * 0.995).abs() < 1e-3);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// As [`transfer`](Self::transfer); `Invalid` where the wave is of another grid.
    pub fn image<T: Real>(
        &self,
        grid: &WaveGrid,
        exit: ArrayView2<'_, Complex<T>>,
    ) -> Result<Array2<f64>, Invalid> {
        let ([nx, ny], transfer) = (grid.points(), self.transfer(grid)?);
        let expected = format!("a wave of {} by {}", ny / 2, nx / 2);
        accept(exit.dim() == transfer.dim(), "wave", exit.dim(), &expected)?;
        let mut plane = Array2::zeros((ny, nx));
        for (l, j) in grid.kept(1).enumerate() {
            for (k, i) in grid.kept(0).enumerate() {
                let a = exit[[l, k]];
                plane[[j, i]] =
                    Complex64::new(a.re.in_double(), a.im.in_double()) * transfer[[l, k]];
            }
        }
        transform_plane(&mut plane, true);
        Ok(plane.mapv(|a| a.norm_sqr()))
    }

    // Images at several foci
    /// Images (focus, y, x) at several values of the defocus \[Å\], which replace that of the aberrations.
    ///
    /// # Errors
    /// As [`image`](Self::image).
    pub fn series<T: Real>(
        &self,
        grid: &WaveGrid,
        exit: ArrayView2<'_, Complex<T>>,
        defoci: &[f64],
    ) -> Result<Array3<f64>, Invalid> {
        let [nx, ny] = grid.points();
        let mut images = Array3::zeros((defoci.len(), ny, nx));
        for (mut image, &defocus) in images.outer_iter_mut().zip(defoci) {
            let aberrations = Aberrations { defocus, ..self.aberrations.clone() };
            image.assign(&Self { aberrations, ..self.clone() }.image(grid, exit)?);
        }
        Ok(images)
    }

    // An image of a varying focus
    /// The image (y, x) with a fluctuating focus, as the mean of images at `foci` foci, an odd number of at least 9.
    ///
    /// # Errors
    /// As [`image`](Self::image), and `Invalid` for another number of foci.
    pub fn image_by_series<T: Real>(
        &self,
        grid: &WaveGrid,
        exit: ArrayView2<'_, Complex<T>>,
        foci: usize,
    ) -> Result<Array2<f64>, Invalid> {
        let good = (9..=999).contains(&foci) && foci % 2 == 1;
        accept(good, "foci", foci, "an odd number from 9 to 999")?;
        let still = Self { focal_spread: 0.0, ..self.clone() };
        self.check()?;
        let off: Vec<f64> = (0..foci).map(|k| 8.0 * k as f64 / (foci - 1) as f64 - 4.0).collect();
        let weights: Vec<f64> = off.iter().map(|x| (-0.5 * x * x).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let middle = self.aberrations.defocus;
        let defoci: Vec<f64> = off.iter().map(|x| middle + x * self.focal_spread).collect();
        let images = still.series(grid, exit, &defoci)?;
        let weighted =
            images.outer_iter().zip(weights).map(|(image, weight)| &image * (weight / sum));
        Ok(weighted.fold(Array2::zeros(images.raw_dim().remove_axis(Axis(0))), |a, b| a + b))
    }

    // Check the optics of a lens
    /// Refuses what is not finite, negative spreads, and an aperture that is none.
    fn check(&self) -> Result<(), Invalid> {
        self.aberrations.check()?;
        self.aperture.map_or(Ok(0.0), |angle| positive("aperture", angle))?;
        self.tilt.iter().try_for_each(|&tilt| finite("tilt", tilt).map(|_| ()))?;
        not_negative("focal_spread", self.focal_spread)?;
        not_negative("convergence", self.convergence).map(|_| ())
    }
}

// Samples of images
/// The samples of images of a plane wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ImageSamples {
    /// Those of the grid.
    #[default]
    Grid,
    /// As many as a wave has kept frequencies: every second one of the grid along x and y.
    Mask,
}

impl ImageSamples {
    /// Samples of the grid from one of an image to the next.
    pub fn stride(self) -> usize {
        match self {
            Self::Grid => 1,
            Self::Mask => 2,
        }
    }
}
// Refuse a phase without digits
/// The largest phase that has digits behind the point \[rad\].
const LARGEST_PHASE: f64 = 5e11;

impl HrtemOptics {
    /// Rejects what [`transfer`](Self::transfer) rejects, and a phase without digits behind the point.
    ///
    /// # Errors
    /// `Invalid`, with the largest term.
    pub(super) fn check_phase(&self, grid: &WaveGrid) -> Result<(), Invalid> {
        self.check()?;
        let highest = |axis: usize| (grid.points()[axis] / 4) as f64 / grid.lengths()[axis];
        let straight = self.tilt.map(|tilt| self.beam.frequency(tilt.abs()));
        let corner = (highest(0) + straight[0]).hypot(highest(1) + straight[1]);
        let radius = self.aperture.map_or(corner, |angle| self.beam.frequency(angle).min(corner));
        // Reject phases without digits
        for (key, value, phase) in self.aberrations.largest_phases(self.beam.wavelength(), radius) {
            let expected = format!(
                "a phase of at most {LARGEST_PHASE:e} rad at {:.3} mrad, where it is {phase:.3e} rad and has no digit behind the point; a smaller aberration or imaging.aperture",
                self.beam.angle(radius)
            );
            accept(phase <= LARGEST_PHASE, &key, value, &expected)?;
        }
        Ok(())
    }

    // A lens with another defocus
    /// The lens with a defocus \[Å\] added to its own.
    pub(super) fn at_defocus(&self, defocus: f64) -> Self {
        let mut lens = self.clone();
        lens.aberrations.defocus += defocus;
        lens
    }

    // Displacement of images by the lens
    /// Delocalisation: largest displacement of the image of a transmitted frequency \[Å\], x and y.
    pub fn delocalisation(&self, grid: &WaveGrid) -> [f64; 2] {
        let lambda = self.beam.wavelength();
        let straight = self.tilt.map(|tilt| self.beam.frequency(tilt));
        let highest = [0, 1].map(|axis| (grid.points()[axis] / 4) as f64 / grid.lengths()[axis]);
        let widest = highest[0].min(highest[1]);
        let radius = self.aperture.map_or(widest, |angle| self.beam.frequency(angle).min(widest));
        let at_beam = self.aberrations.slope(lambda, straight);
        let mut most = [0.0f64; 2];
        for k in 0..72 * 96 {
            let (sine, cosine) = (PI * f64::from(k % 72) / 36.0).sin_cos();
            let length = radius * f64::from(k / 72 + 1) / 96.0;
            let q = [straight[0] + length * cosine, straight[1] + length * sine];
            let slope = self.aberrations.slope(lambda, q);
            if self.envelope(q, slope, straight, at_beam) > 0.1 {
                for (axis, most) in most.iter_mut().enumerate() {
                    *most = most.max(((slope[axis] - at_beam[axis]) / (2.0 * PI)).abs());
                }
            }
        }
        most
    }

    // Damp a frequency by partial coherence
    /// Envelope of partial coherence at a frequency `q` \[1/Å\], given the gradients of the phase there and at the beam's own frequency.
    fn envelope(&self, q: [f64; 2], slope: [f64; 2], straight: [f64; 2], at_beam: [f64; 2]) -> f64 {
        let longer = square(q) - square(straight);
        let focus = PI * self.beam.wavelength() * self.focal_spread * longer;
        let angles = self.beam.frequency(self.convergence);
        let source = angles * (slope[0] - at_beam[0]).hypot(slope[1] - at_beam[1]);
        (-0.5 * (focus * focus + source * source)).exp()
    }
}

// Square of a frequency
fn square([x, y]: [f64; 2]) -> f64 {
    x * x + y * y
}

// Tests of images of plane waves
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::{Aberration, Multislice};
    use crate::watch::unwatched;

    // A weak specimen and a lens
    fn grid() -> WaveGrid {
        WaveGrid::new([32, 24], [6.0, 5.0]).unwrap()
    }

    /// A lens of no symmetry, at 200 kV.
    fn lens() -> HrtemOptics {
        let terms = vec![Aberration { order: 2, fold: 2, magnitude: 4e4, angle: 0.4 }];
        let aberrations = Aberrations { defocus: -400.0, c3: 8e6, terms, ..Default::default() };
        HrtemOptics { aberrations, ..HrtemOptics::perfect(Beam::new(200.0).unwrap()) }
    }

    /// The frequency of the grating, and the exit wave of a grating of this amplitude of the phase.
    fn grating(phase: f64) -> ([f64; 2], Array2<Complex64>) {
        let (grid, beam) = (grid(), Beam::new(200.0).unwrap());
        let v = Array2::from_shape_fn((24, 32), |(j, i)| {
            let turn = 2.0 * i as f64 / 32.0 + j as f64 / 24.0;
            phase / beam.interaction() * (2.0 * PI * turn).cos()
        });
        let thin = Multislice::<f64>::new(grid, &beam, 1e-9).unwrap();
        let slice = thin.transmission(v.view()).unwrap();
        let mut wave = plane_wave(&grid);
        thin.propagate(wave.view_mut(), &[slice], &unwatched).unwrap();
        ([2.0 / 6.0, 1.0 / 5.0], wave.index_axis(Axis(0), 0).to_owned())
    }

    /// The largest difference of an image from 1 + `contrast` × the grating.
    fn off(image: &Array2<f64>, contrast: f64) -> f64 {
        let expected = |j: usize, i: usize| {
            1.0 + contrast * (2.0 * PI * (2.0 * i as f64 / 32.0 + j as f64 / 24.0)).cos()
        };
        image.indexed_iter().map(|((j, i), x)| (x - expected(j, i)).abs()).fold(0.0, f64::max)
    }

    // Check the contrast of a weak phase
    #[test]
    fn a_weak_phase_has_its_analytic_contrast() {
        let (phase, lambda) = (1e-4, lens().beam.wavelength());
        let (q, exit) = grating(phase);
        for defocus in [-900.0, -400.0, 0.0, 350.0] {
            let aberrations = Aberrations { defocus, ..lens().aberrations };
            let lens = HrtemOptics { aberrations, ..lens() };
            let contrast = 2.0 * phase * lens.aberrations.phase(lambda, q).sin();
            let image = lens.image(&grid(), exit.view()).unwrap();
            assert!(off(&image, contrast) < 8.0 * phase * phase, "{defocus}");
            assert!(contrast.abs() > 1e-5);
            let damped = HrtemOptics { focal_spread: 60.0, convergence: 0.2, ..lens.clone() };
            let slope = lens.aberrations.slope(lambda, q);
            let source = 0.2e-3 / lambda * slope[0].hypot(slope[1]);
            let focus = PI * lambda * 60.0 * (q[0] * q[0] + q[1] * q[1]);
            let envelopes = (-0.5 * (source * source + focus * focus)).exp();
            assert!((0.2..0.98).contains(&envelopes), "{envelopes}");
            let image = damped.image(&grid(), exit.view()).unwrap();
            assert!(off(&image, contrast * envelopes) < 8.0 * phase * phase);
            // An aperture at the very frequency lets half of its amplitude through.
            let aperture = Some(lens.beam.angle(q[0].hypot(q[1])));
            let half = HrtemOptics { aperture, ..lens }.image(&grid(), exit.view()).unwrap();
            assert!(off(&half, 0.5 * contrast) < 8.0 * phase * phase);
        }
    }

    // Check envelopes against sums
    #[test]
    fn envelopes_are_means_over_foci_and_directions() {
        let phase = 1e-4;
        let (_, exit) = grating(phase);
        for tilt in [[0.0, 0.0], [3.0, -2.0]] {
            let wavering = HrtemOptics { focal_spread: 80.0, tilt, ..lens() };
            let envelope = wavering.image(&grid(), exit.view()).unwrap();
            let sum = wavering.image_by_series(&grid(), exit.view(), 41).unwrap();
            let still =
                HrtemOptics { focal_spread: 0.0, ..wavering }.image(&grid(), exit.view()).unwrap();
            let apart = |a: &Array2<f64>| (a - &sum).iter().fold(0.0f64, |m, x| m.max(x.abs()));
            assert!(apart(&envelope) < 2e-4 * phase && apart(&still) > 0.05 * phase, "{tilt:?}");
        }
        let aberrations = Aberrations { c3: 0.0, ..lens().aberrations };
        let quadratic = HrtemOptics { aberrations, ..lens() };
        let wide = HrtemOptics { convergence: 0.1, ..quadratic.clone() };
        let envelope = wide.image(&grid(), exit.view()).unwrap();
        let (mut sum, mut weights) = (Array2::<f64>::zeros((24, 32)), 0.0);
        for k in -4..=4 {
            for l in -4..=4 {
                let weight = (-0.5 * f64::from(k * k + l * l)).exp();
                let tilt = [0.1 * f64::from(k), 0.1 * f64::from(l)];
                let image = HrtemOptics { tilt, ..quadratic.clone() };
                let image = image.image(&grid(), exit.view()).unwrap();
                (sum, weights) = (sum + image * weight, weights + weight);
            }
        }
        let off = (sum / weights - &envelope).iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let still = quadratic.image(&grid(), exit.view()).unwrap();
        let damped = (still - envelope).iter().fold(0.0f64, |m, x| m.max(x.abs()));
        assert!(off < 0.01 * damped && damped > 5e-4 * phase, "{off} {damped}");
    }

    // Check series of foci
    #[test]
    fn a_series_of_foci_is_single_images() {
        let ((_, exit), defoci) = (grating(0.3), [-500.0, 0.0, 120.0]);
        let images = lens().series(&grid(), exit.view(), &defoci).unwrap();
        assert_eq!(images.dim(), (3, 24, 32));
        for (image, defocus) in images.outer_iter().zip(defoci) {
            let aberrations = Aberrations { defocus, ..lens().aberrations };
            let single = HrtemOptics { aberrations, ..lens() }.image(&grid(), exit.view()).unwrap();
            assert_eq!(image, single);
            assert!((single.mean().unwrap() - 1.0).abs() < 1e-8);
        }
        // A strong object without any focus error of a perfect lens shows nothing but what it absorbs.
        let nothing = HrtemOptics::perfect(lens().beam).image(&grid(), exit.view()).unwrap();
        assert!(nothing.iter().all(|x| (x - 1.0).abs() < 1e-4));
        assert!(images.iter().any(|x| (x - 1.0).abs() > 0.1));
        // A way behind the specimen is a defocus.
        let far = Multislice::<f64>::new(grid(), &lens().beam, 120.0).unwrap();
        let empty = far.transmission(Array2::zeros((24, 32)).view()).unwrap();
        let mut moved = exit.clone().insert_axis(Axis(0));
        far.propagate(moved.view_mut(), &[empty], &unwatched).unwrap();
        let zero = Aberrations { defocus: 0.0, ..lens().aberrations };
        let zero = HrtemOptics { aberrations: zero, ..lens() };
        let moved = zero.image(&grid(), moved.index_axis(Axis(0), 0)).unwrap();
        assert!((&moved - &images.index_axis(Axis(0), 2)).iter().all(|x| x.abs() < 1e-12));
    }

    // Check vacuum and refusals of lenses
    #[test]
    fn vacuum_is_bright_and_senseless_lenses_are_refused() {
        let wave = plane_wave::<f32>(&grid());
        let wave = wave.index_axis(Axis(0), 0);
        let coherent = HrtemOptics { tilt: [3.0, 1.0], aperture: Some(9.0), ..lens() };
        let partial = HrtemOptics { focal_spread: 50.0, convergence: 0.3, ..coherent };
        let image = partial.image(&grid(), wave).unwrap();
        assert!(image.iter().all(|x| (x - 1.0).abs() < 1e-12));
        let dark = HrtemOptics { aperture: Some(0.5), ..partial.clone() };
        assert!(dark.image(&grid(), wave).unwrap().iter().all(|x| *x < 1e-12));
        let refused = |change: &dyn Fn(&mut HrtemOptics)| {
            let mut bad = lens();
            change(&mut bad);
            bad.image(&grid(), wave).unwrap_err().quantity
        };
        assert_eq!(refused(&|lens| lens.aperture = Some(0.0)), "aperture");
        assert_eq!(refused(&|lens| lens.focal_spread = -1.0), "focal_spread");
        assert_eq!(refused(&|lens| lens.convergence = f64::NAN), "convergence");
        for c3 in [1e300, 1e18] {
            assert_eq!(refused(&|lens| lens.aberrations.c3 = c3), "c3");
        }
        assert_eq!(
            refused(&|lens| lens.aberrations.terms[0].magnitude = 1e17),
            "aberrations[0].magnitude"
        );
        // Frequencies that do not pass have no phase, and rays at 9 mrad of a pure C3 are 5.83 Å off
        let pure = Aberrations { c3: 8e6, ..Aberrations::default() };
        let narrow = HrtemOptics {
            aberrations: pure,
            aperture: Some(9.0),
            ..HrtemOptics::perfect(lens().beam)
        };
        assert!(narrow.delocalisation(&grid()).iter().all(|x| (x / 5.832 - 1.0).abs() < 1e-9));
        let damped = HrtemOptics { convergence: 3.0, ..narrow }.delocalisation(&grid());
        assert!(damped[0] < 3.0 && damped[0] > 2.5, "{damped:?}");
        assert_eq!(refused(&|lens| lens.tilt[1] = f64::INFINITY), "tilt");
        assert_eq!(refused(&|lens| lens.aberrations.c5 = f64::NAN), "c5");
        let other = WaveGrid::new([16, 16], [6.0, 5.0]).unwrap();
        assert_eq!(lens().image(&other, wave).unwrap_err().quantity, "wave");
        let few = lens().image_by_series(&grid(), wave, 8).unwrap_err();
        assert_eq!(few.quantity, "foci");
    }
}
