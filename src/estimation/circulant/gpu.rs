// Tangled from book/src/circulant-gpu.md: edit there, or here and run cargo tangle stitch.
//! The circulant preconditioner on a graphics processor.

// Imports of the preconditioner on a device
use crate::device::gpu::{Buffer, Gpu};
use crate::error::Error;
use crate::estimation::circulant::{Group, inverse_kernels, parts_of, places};
use crate::linear::operator::gpu::{DeviceOperator, check_lengths};
use crate::linear::toeplitz::gpu::lattices::ProductMatrix;
use crate::linear::toeplitz::gpu::transforms::Around;
use crate::linear::toeplitz::gpu::{ToeplitzProduct, Tuning};
use crate::numerics::real::Real;
use std::ops::Range;

// Circulant preconditioner on a device
/// The preconditioner of [`Circulant`](crate::estimation::circulant::Circulant), on a device.
pub(crate) struct CirculantGpu<T> {
    gpu: Gpu,
    parts: Vec<ToeplitzProduct<T>>,
    length: usize,
}

impl<T: Real> CirculantGpu<T> {
    // Make the preconditioner on a device
    // Preconditioner for all slopes
    /// The preconditioner of [`Circulant::new`](crate::estimation::circulant::Circulant::new), on a device.
    ///
    /// # Errors
    /// `Invalid` as there, and as in [`BlockToeplitzGpu::new`](crate::linear::toeplitz::gpu::BlockToeplitzGpu::new); what the device
    /// says.
    pub fn new(gpu: &Gpu, groups: &[Group]) -> Result<Self, Error> {
        Self::tuned(gpu, groups, Tuning::default())
    }

    pub(crate) fn tuned(gpu: &Gpu, groups: &[Group], tuning: Tuning) -> Result<Self, Error> {
        let places = places(groups)?;
        let length = places.last().map_or(0, |place| place.end);
        Self::placed(gpu, groups, (&places, length), tuning)
    }

    /// The preconditioner for vectors of some length with the slopes of each star at given positions; other elements are left unchanged.
    pub(crate) fn placed(
        gpu: &Gpu,
        groups: &[Group],
        (places, length): (&[Range<usize>], usize),
        tuning: Tuning,
    ) -> Result<Self, Error> {
        let part = |group: &Group| {
            let kernels = inverse_kernels(group.covariance, group.noise)?;
            let parts = parts_of(&kernels, group.valid)?;
            let at: Vec<usize> =
                group.stars.iter().flat_map(|&star| places[star].clone()).collect();
            ToeplitzProduct::new(&ProductMatrix::new(gpu, &parts, true, Some(&at)), tuning)
        };
        let parts = groups.iter().map(part).collect::<Result<_, Error>>()?;
        let length = length * tuning.transforms.vectors.unwrap_or(1);
        Ok(Self { gpu: gpu.clone(), parts, length })
    }

    // Lend the product of a preconditioner
    /// The product with the preconditioner of one group of stars, if it is made by transforms.
    pub(crate) fn around(&self) -> Option<Around<T>> {
        let [part] = self.parts.as_slice() else { return None };
        part.around()
    }
}

impl<T: Real> DeviceOperator<T> for CirculantGpu<T> {
    // Answers of the preconditioner on a device
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.length
    }

    fn columns(&self) -> usize {
        self.length
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.length, self.length))?;
        self.parts.iter().try_for_each(|part| part.apply(false, [x, y], None))
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.apply(x, y)
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(ToeplitzProduct::bytes).sum()
    }
}

// Tests of the preconditioner on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::estimation::circulant::Circulant;
    use crate::linear::toeplitz::gpu::tests::compare;
    use crate::linear::toeplitz::tests::{covariance, masks};

    // Hold the preconditioner to the host
    #[test]
    fn preconditioners_are_those_of_the_host() {
        let (two, one) = (covariance(2, 7), covariance(1, 4));
        let [of_two, of_one] = [(2, 7), (1, 4)].map(|(stars, across)| masks(stars, across, 0.8, 7));
        let groups = [
            Group { covariance: &two, noise: &[0.3, 0.5], valid: &of_two, stars: &[2, 0] },
            Group { covariance: &one, noise: &[0.4], valid: &of_one, stars: &[1] },
        ];
        let host = Circulant::<f64>::new(&groups).unwrap();
        for gpu in test_backends() {
            compare(CirculantGpu::<f64>::new(&gpu, &groups).unwrap(), &host, 1e-12);
        }
    }
}
