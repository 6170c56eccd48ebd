// Tangled from book/src/scan-images.md: edit there, or here and run cargo tangle stitch.
//! What is made of the readings of a scan: integrals of deflections, sizes of sources, counts.

// Imports of images of scans
use super::prism::transform_along;
use crate::error::{Invalid, accept, finite, not_negative, positive};
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView2, ArrayView3, Axis, s};
use num_complex::{Complex, Complex64};
use rand::{SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Poisson};
use std::f64::consts::PI;
use std::mem;

// What lies beyond a scan
/// What is assumed beyond the edges of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The scan once more: it covers a cell that repeats.
    Periodic,
    /// Its mirror image.
    Mirrored,
}

// A scan and its mirror images
impl Edge {
    /// An image continued to one that repeats; `odd` says along which axes, x and y, it changes its sign in the mirror.
    fn continued(self, image: ArrayView2<'_, f64>, odd: [bool; 2]) -> Array2<Complex64> {
        let (ny, nx) = image.dim();
        if self == Self::Periodic {
            return image.mapv(Complex64::from);
        }
        let within = |k: usize, n: usize, odd: bool| match k < n {
            true => (k, 1.0),
            false => (2 * n - 1 - k, if odd { -1.0 } else { 1.0 }),
        };
        Array2::from_shape_fn((2 * ny, 2 * nx), |(j, i)| {
            let ((j, over_y), (i, over_x)) = (within(j, ny, odd[1]), within(i, nx, odd[0]));
            Complex64::from(over_x * over_y * image[[j, i]])
        })
    }
}

// A transform of a plane
/// Transforms a plane in place: to frequencies, or without any factor back to samples.
pub(crate) fn transform_plane<T: Real>(plane: &mut Array2<Complex<T>>, back: bool) {
    let (ny, nx) = plane.dim();
    let along = [nx, ny].map(|n| {
        let (forward, inverse) = T::plan_complex(n);
        if back { inverse } else { forward }
    });
    let mut whole = mem::take(plane).as_standard_layout().into_owned();
    if let Some(values) = whole.as_slice_mut() {
        transform_along(values, &along, &mut Vec::new());
    }
    *plane = whole;
}

/// The frequency \[1/Å\] of index `k` of `n` samples a `step` \[Å\] apart.
fn frequency(k: usize, n: usize, step: f64) -> f64 {
    (k as f64 - if 2 * k >= n { n as f64 } else { 0.0 }) / (n as f64 * step)
}

// Integrate deflections of the beam
/// The phase \[rad\], (y, x), of mean 0, whose gradient over 2π is nearest to the centres of mass \[1/Å\], (y, x, 2), x before y; Eq. [integrated centres](https://lenslet.github.io/lenslet/scan-images.html#eq-integrated-centres).
///
/// # Errors
/// `Invalid` where the shape is another, or a step \[Å\] of the scan, x and y, is not a length.
pub fn integrated(
    centres: ArrayView3<'_, f64>,
    step: [f64; 2],
    edge: Edge,
) -> Result<Array2<f64>, Invalid> {
    let (ny, nx, components) = centres.dim();
    accept(components == 2, "centres", centres.dim(), "two components at each place")?;
    checked(centres.iter(), step)?;
    let component = |axis| {
        let odd = [axis == 0, axis == 1];
        let mut plane = edge.continued(centres.index_axis(Axis(2), axis), odd);
        transform_plane(&mut plane, false);
        plane
    };
    let (mut phase, y) = (component(0), component(1));
    // Invert the gradient by frequency
    let (height, width) = phase.dim();
    let slope = |k: usize, n: usize, step| match 2 * k == n {
        true => 0.0,
        false => frequency(k, n, step),
    };
    for ((j, i), a) in phase.indexed_iter_mut() {
        let k = [slope(i, width, step[0]), slope(j, height, step[1])];
        let square = k[0] * k[0] + k[1] * k[1];
        let along = *a * k[0] + y[[j, i]] * k[1];
        *a = if square > 0.0 { -Complex64::I * along / square } else { Complex64::ZERO };
    }
    Ok(back(phase, [ny, nx]))
}

// Back from a continued scan
/// The part of so many lines and points of a plane of frequencies that is the image itself.
fn back(mut plane: Array2<Complex64>, [ny, nx]: [usize; 2]) -> Array2<f64> {
    transform_plane(&mut plane, true);
    let scale = 1.0 / plane.len() as f64;
    plane.slice(s![..ny, ..nx]).mapv(|a| scale * a.re)
}

/// Refuses numbers that are not finite and steps that are no lengths.
fn checked<'a>(
    mut numbers: impl ExactSizeIterator<Item = &'a f64>,
    step: [f64; 2],
) -> Result<(), Invalid> {
    accept(numbers.len() > 0, "scan", 0, "at least one place of the probe")?;
    let bad = numbers.find(|x| !x.is_finite());
    bad.map_or(Ok(0.0), |&x| finite("image", x))?;
    step.into_iter().try_for_each(|step| positive("step", step).map(|_| ()))
}

// An image by a source of some size
/// An image (y, x) blurred by a Gaussian source of rms `radius` \[Å\] along each axis where it is focused, Eq. [source size](https://lenslet.github.io/lenslet/scan-images.html#eq-source-size).
///
/// # Errors
/// `Invalid` where the radius is negative, a step \[Å\] of the scan, x and y, is not a length, or the image is not finite.
pub fn blurred(
    image: ArrayView2<'_, f64>,
    step: [f64; 2],
    radius: f64,
    edge: Edge,
) -> Result<Array2<f64>, Invalid> {
    checked(image.iter(), step)?;
    not_negative("source_size", radius)?;
    let (ny, nx) = image.dim();
    let mut plane = edge.continued(image, [false; 2]);
    transform_plane(&mut plane, false);
    let (height, width) = plane.dim();
    for ((j, i), a) in plane.indexed_iter_mut() {
        let k = frequency(i, width, step[0]).hypot(frequency(j, height, step[1]));
        *a *= (-2.0 * (PI * radius * k).powi(2)).exp();
    }
    Ok(back(plane, [ny, nx]))
}

// Electrons counted one by one
/// Counts of electrons for an image (y, x) of shares of the beam, with so many `electrons` for each position of the probe.
///
/// # Errors
/// `Invalid` where the number of electrons is not positive, or beyond 1e15, or a share is negative or not finite.
///
/// ```
/// use lenslet::electrons::counted;
/// let image = ndarray::Array2::from_elem((40, 50), 0.02);
/// let counts = counted(image.view(), 5000.0, 7)?;
/// assert_eq!(counts, counted(image.view(), 5000.0, 7)?);
/// assert!((counts.mean().unwrap() - 100.0).abs() < 1.0); // rms of the mean: 10/√2000
/// # Ok::<(), lenslet::Invalid>(())
/// ```
pub fn counted(
    image: ArrayView2<'_, f64>,
    electrons: f64,
    seed: u64,
) -> Result<Array2<f64>, Invalid> {
    let good = electrons > 0.0 && electrons <= 1e15;
    accept(good, "dose", electrons, "a number of electrons above 0 and up to 1e15")?;
    // Draw the counts of an image
    let mut random = StdRng::seed_from_u64(seed);
    let mut counts = image.to_owned();
    for share in &mut counts {
        let mean = electrons * not_negative("image", *share)?;
        let refused = |_| Invalid::new("image", *share, "a share of the beam, at most 1");
        *share = match mean > 0.0 {
            true => Poisson::new(mean).map_err(refused)?.sample(&mut random),
            false => 0.0,
        };
    }
    Ok(counts)
}

// Tests of images of scans
#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array3;

    // Check integrals of deflections
    /// Gradients over 2π of a sum of waves, and the waves: those that fit into the scan, or into twice of it.
    fn waves(size: [usize; 2], step: [f64; 2], edge: Edge) -> (Array2<f64>, Array3<f64>) {
        let [nx, ny] = size;
        let turns = if edge == Edge::Periodic { 2.0 * PI } else { PI };
        let rate = [turns / (nx as f64 * step[0]), turns / (ny as f64 * step[1])];
        let half = if edge == Edge::Periodic { 0.0 } else { 0.5 };
        let at = |j: usize, i: usize| [(i as f64 + half) * step[0], (j as f64 + half) * step[1]];
        let modes = [[1.0, 2.0, 0.4], [3.0, 0.0, -0.2], [0.0, 1.0, 0.7]];
        let phase = Array2::from_shape_fn((ny, nx), |(j, i)| {
            let [x, y] = at(j, i);
            let wave = |[m, n, a]: [f64; 3]| a * (m * rate[0] * x).cos() * (n * rate[1] * y).cos();
            modes.into_iter().map(wave).sum()
        });
        let slopes = Array3::from_shape_fn((ny, nx, 2), |(j, i, axis)| {
            let [x, y] = at(j, i);
            let slope = |[m, n, a]: [f64; 3]| {
                let (x, y) = ((m * rate[0] * x).sin_cos(), (n * rate[1] * y).sin_cos());
                if axis == 0 { -a * m * rate[0] * x.0 * y.1 } else { -a * n * rate[1] * x.1 * y.0 }
            };
            modes.into_iter().map(slope).sum::<f64>() / (2.0 * PI)
        });
        (phase, slopes)
    }

    #[test]
    fn deflections_are_integrated() {
        let step = [0.3, 0.45];
        for edge in [Edge::Periodic, Edge::Mirrored] {
            for size in [[12, 9], [11, 8]] {
                let (phase, mut slopes) = waves(size, step, edge);
                let found = integrated(slopes.view(), step, edge).unwrap();
                assert!((&found - &phase).iter().all(|x| x.abs() < 1e-12), "{edge:?}");
                // A field of curls is no gradient, and a constant one tells nothing of a cell that repeats.
                let [nx, _] = size;
                let curl = |i: usize| (2.0 * PI * i as f64 / nx as f64).sin();
                slopes.indexed_iter_mut().for_each(|((_, i, axis), x)| *x += axis as f64 * curl(i));
                if edge == Edge::Periodic {
                    slopes += 0.7;
                    let found = integrated(slopes.view(), step, edge).unwrap();
                    assert!((&found - &phase).iter().all(|x| x.abs() < 1e-12));
                }
            }
        }
        let refused = |shape: [usize; 3], step| {
            integrated(Array3::zeros(shape).view(), step, Edge::Mirrored).unwrap_err().quantity
        };
        assert_eq!(refused([4, 4, 3], [1.0, 1.0]), "centres");
        assert_eq!(refused([4, 4, 2], [1.0, 0.0]), "step");
        assert_eq!(refused([0, 4, 2], [1.0, 1.0]), "scan");
    }

    // Check blurred and counted images
    #[test]
    fn sources_blur_as_gaussians() {
        let (step, own, radius) = ([0.25, 0.2], 0.9, 0.7f64);
        let spot = |variance: f64| {
            Array2::from_shape_fn((60, 48), |(j, i)| {
                let (x, y) = (step[0] * (i as f64 - 23.0), step[1] * (j as f64 - 28.0));
                (-(x * x + y * y) / (2.0 * variance)).exp() / variance
            })
        };
        let expected = spot(own * own + radius * radius);
        for edge in [Edge::Periodic, Edge::Mirrored] {
            let found = blurred(spot(own * own).view(), step, radius, edge).unwrap();
            assert!((&found - &expected).iter().all(|x| x.abs() < 2e-6), "{edge:?}");
            assert!((found.sum() - spot(own * own).sum()).abs() < 1e-9);
        }
        let still = blurred(expected.view(), step, 0.0, Edge::Periodic).unwrap();
        assert!((&still - &expected).iter().all(|x| x.abs() < 1e-14));
        // A step at the right edge goes on behind a mirror, and comes back from the left without one.
        let slope = Array2::from_shape_fn((4, 40), |(_, i)| i as f64);
        let ends = |edge| blurred(slope.view(), [1.0; 2], 1.5, edge).unwrap()[[2, 39]];
        assert!(ends(Edge::Mirrored) > 37.0 && ends(Edge::Periodic) < 25.0);
        let refused = |image: f64, radius| {
            blurred(Array2::from_elem((2, 2), image).view(), [1.0; 2], radius, Edge::Periodic)
        };
        assert_eq!(refused(1.0, -1.0).unwrap_err().quantity, "source_size");
        assert_eq!(refused(f64::NAN, 1.0).unwrap_err().quantity, "image");
    }

    #[test]
    fn counts_have_the_variance_of_their_mean() {
        for (share, electrons) in [(0.3, 10.0), (0.01, 1e6)] {
            let image = Array2::from_elem((60, 50), share);
            let counts = counted(image.view(), electrons, 3).unwrap();
            let (n, expected) = (3000.0f64, share * electrons);
            let mean = counts.sum() / n;
            let variance = counts.mapv(|x| (x - mean).powi(2)).sum() / n;
            assert!((mean - expected).abs() < 4.0 * (expected / n).sqrt(), "{mean}");
            assert!((variance / expected - 1.0).abs() < 6.0 * (2.0 / n).sqrt(), "{variance}");
            assert!(counts != counted(image.view(), electrons, 4).unwrap());
        }
        let none = counted(Array2::zeros((2, 2)).view(), 5.0, 1).unwrap();
        assert_eq!(none.sum(), 0.0);
        let refused = |share, electrons| {
            counted(Array2::from_elem((1, 1), share).view(), electrons, 1).unwrap_err().quantity
        };
        assert_eq!(
            [refused(-1.0, 1.0), refused(f64::NAN, 1.0), refused(0.1, 0.0)],
            ["image", "image", "dose"]
        );
    }
}
