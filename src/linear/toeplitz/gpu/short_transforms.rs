// Tangled from book/src/short-transforms.md: edit there, or here and run cargo tangle stitch.
//! Short Fourier transforms in the shared memory of a device: radices, cost, room and roots.

use crate::device::gpu::Header;
use crate::numerics::real::Real;
use num_complex::Complex;
use std::f64::consts::PI;

// Radices of a transform
/// Lengths of the small transforms that the kernels know.
const SMALL: [usize; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16];

/// The radices of a transform of even length, R₁R₂R₃, Eq. [three radices](https://lenslet.github.io/lenslet/short-transforms.html#eq-three-radices); the last ones may be 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Radices([usize; 3]);

impl Radices {
    /// None where the kernels have no such transform.
    pub(crate) fn new(radices: [usize; 3]) -> Option<Self> {
        let ([first, second, third], length) = (radices, radices.iter().product::<usize>());
        let known = radices.iter().all(|radix| SMALL.contains(radix));
        let ordered = first > 1 && (second > 1 || third == 1);
        (known && ordered && length.is_multiple_of(2)).then_some(Self(radices))
    }

    // Choose radices by their cost
    /// Cycles of a thread, about, that a transform takes.
    fn cost(self) -> f64 {
        let step = |radix: usize| match radix {
            1 => 0.0,
            _ => 80.0 + radix as f64 * (10.0 + 4.0 * (radix as f64).log2()),
        };
        let runs = if self.0[2].is_multiple_of(2) { 200.0 } else { 0.0 };
        let loads = 10.0 * self.0[0] as f64;
        self.0.into_iter().map(step).sum::<f64>() + runs + loads + self.length() as f64
    }

    // Find the cheapest radices
    /// All radices that the kernels know.
    fn all() -> impl Iterator<Item = Self> {
        let all = SMALL.into_iter().flat_map(|first| {
            SMALL.into_iter().flat_map(move |second| SMALL.map(|third| [first, second, third]))
        });
        all.filter_map(Self::new)
    }

    /// The cheapest radices of a length from `least`; none beyond 4096.
    pub(crate) fn cheapest(least: usize) -> Option<Self> {
        let long_enough = Self::all().filter(|radices| radices.length() >= least);
        long_enough.min_by(|a, b| a.cost().total_cmp(&b.cost()))
    }
    /// Radices of just this length, the fewest and the most even; none where there are none.
    pub(crate) fn exactly(length: usize) -> Option<Self> {
        let exact = Self::all().filter(|radices| radices.length() == length);
        exact.min_by_key(|Self([first, second, third])| {
            (*third > 1, first * first + second * second + third * third)
        })
    }

    // Numbers that follow from radices
    pub(crate) fn length(self) -> usize {
        self.0.iter().product()
    }

    // Radices named for the kernels
    /// The radices as the source of the kernels names them.
    pub(crate) fn sizes(self) -> [(&'static str, usize); 3] {
        [("R1", self.0[0]), ("R2", self.0[1]), ("R3", self.0[2])]
    }

    /// Threads that one transform keeps busy, each with one small transform.
    pub(crate) fn threads_alone(self) -> usize {
        let least = self.0.into_iter().filter(|&radix| radix > 1).min().unwrap_or(1);
        self.length() / least
    }

    /// Threads that some transforms keep busy.
    pub(crate) fn threads(self, transforms: usize) -> usize {
        (transforms * self.threads_alone()).next_multiple_of(32).min(512)
    }

    /// The roots of unity exp(−2πi k/F).
    pub(crate) fn roots<T: Real>(self) -> Vec<Complex<T>> {
        let angle = |k: usize| -2.0 * PI * k as f64 / self.length() as f64;
        let root = |k| Complex::new(T::of(angle(k).cos()), T::of(angle(k).sin()));
        (0..self.length()).map(root).collect()
    }
}

// Room of a transform
/// Complex numbers in shared memory from one thing to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedLayout {
    /// Runs of a row, and rows.
    run: usize,
    pitch: usize,
    /// Transforms, while they are worked on and when they are whole.
    pub(crate) work: usize,
    pub(crate) whole: usize,
}

impl Radices {
    // Count the room of a transform
    /// Layout in shared memory of transforms, so many side by side, for complex numbers of so many bytes.
    pub(crate) fn layout(self, side_by_side: usize, number: usize) -> SharedLayout {
        let (Self([first, second, third]), banks) = (self, 128 / number);
        let run = if third == 1 { 1 } else { third | 1 };
        let pitch = if third == 1 { second | 1 } else { up_to(second * run, run, banks) };
        let [work, whole] =
            [first * pitch, self.length()].map(|numbers| up_to(numbers, side_by_side, banks));
        SharedLayout { run, pitch, work, whole }
    }
}

// Next number of a residue
/// The next number from `least` that leaves the rest `residue` by `modulus`.
fn up_to(least: usize, residue: usize, modulus: usize) -> usize {
    least + (residue % modulus + modulus - least % modulus) % modulus
}

/// The transforms themselves.
pub(crate) const SHORT_TRANSFORMS: Header = Header {
    name: "linear/short_transforms.cuh",
    text: include_str!("../../../../kernels/linear/short_transforms.cuh"),
};

// Tests of short transforms
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::kernels::kernels;
    use crate::device::gpu::{Gpu, KernelSource, Shape, test_backends};
    use crate::device::headers::REAL;
    use crate::linear::operator::battery::random;
    use crate::linear::toeplitz::gpu::plain_sum::LOOPS;

    // Transform rows on a device
    const SOURCE: KernelSource = KernelSource {
        name: "short_transforms.cu",
        text: include_str!("../../../../kernels/linear/short_transforms.cu"),
        headers: &[REAL, LOOPS, SHORT_TRANSFORMS],
    };

    kernels! {
        /// Kernels of short transforms by themselves.
        struct ShortTransforms in SOURCE {
            /// Transforms rows, exponent −2πi.
            transform_forth: Forth<T> { x: [Complex<T>], roots: [Complex<T>], y: [Complex<T>] }
            /// Transforms rows, exponent +2πi.
            transform_back: Back<T> { x: [Complex<T>], roots: [Complex<T>], y: [Complex<T>] }
        }
    }

    /// Transforms of two rows, forth and back.
    fn transform(gpu: &Gpu, radices: Radices, rows: &[Complex<f64>]) -> [Vec<Complex<f64>>; 2] {
        let sizes = [&radices.sizes()[..], &[("ROWS", 2), ("TEAM", 32)]].concat();
        let kernels = ShortTransforms::<f64>::load(gpu, &sizes).unwrap();
        let (x, roots) = (gpu.upload(rows).unwrap(), gpu.upload(&radices.roots::<f64>()).unwrap());
        let shape = Shape { grid: [1; 3], block: 32, shared: 2 * 16 * radices.layout(2, 16).work };
        let [forth, back] = [(); 2].map(|()| gpu.zeros(rows.len()).unwrap());
        let (x, roots) = (x.view(..), roots.view(..));
        let arguments = Forth { x, roots, y: forth.view(..) };
        gpu.launch(&kernels.transform_forth, shape, arguments).unwrap();
        gpu.launch(&kernels.transform_back, shape, Back { x, roots, y: back.view(..) }).unwrap();
        [forth, back].map(|y| y.read().unwrap())
    }

    // Hold transforms to the definition
    #[test]
    fn transforms_are_those_of_the_definition() {
        let all = [[2, 1, 1], [16, 15, 1], [9, 14, 1], [12, 10, 7], [8, 6, 5], [4, 3, 3]];
        for (gpu, radices) in
            test_backends().iter().flat_map(|gpu| all.map(|radices| (gpu, radices)))
        {
            let radices = Radices::new(radices).unwrap();
            let length = radices.length();
            let numbers: Vec<f64> = random(4 * length, 1);
            let rows: Vec<_> = numbers.chunks(2).map(|z| Complex::new(z[0], z[1])).collect();
            for (result, sign) in transform(gpu, radices, &rows).into_iter().zip([-1.0, 1.0]) {
                let turn = |k: usize| sign * 2.0 * PI * (k % length) as f64 / length as f64;
                for (k, value) in result.into_iter().enumerate() {
                    let row = rows[k / length * length..][..length].iter().enumerate();
                    let sum: Complex<f64> =
                        row.map(|(n, z)| z * Complex::cis(turn(n * (k % length)))).sum();
                    assert!((value - sum).norm() < 1e-12, "{radices:?} {k}: {value} and {sum}");
                }
            }
        }
    }

    // Check the choice of radices
    #[test]
    fn radices_are_long_enough_and_not_much_longer() {
        assert!(Radices::cheapest(4097).is_none());
        for least in (1..80).chain([159, 299, 1025, 2047]) {
            let length = Radices::cheapest(least).unwrap().length();
            assert!(length >= least && length <= least + least / 4 + 2, "{least}: {length}");
        }
        for (length, radices) in [(512, [8, 8, 8]), (256, [16, 16, 1]), (2, [2, 1, 1])] {
            assert_eq!(Radices::exactly(length), Radices::new(radices));
        }
        assert!([44, 4098, 3].map(Radices::exactly).iter().all(Option::is_none));
        for unknown in [[1, 2, 1], [2, 1, 3], [3, 5, 1], [22, 1, 1], [13, 2, 1]] {
            assert_eq!(Radices::new(unknown), None);
        }
    }

    // Count threads that meet in a bank
    #[test]
    fn few_threads_meet_in_a_bank() {
        let SharedLayout { run, pitch, work, .. } = Radices::new([6, 4, 7]).unwrap().layout(4, 8);
        assert_eq!((run, pitch, work), (7, 39, 244));
        let fullest = |place: &dyn Fn(usize) -> usize, threads: usize| {
            let mut most = 0;
            for first in (0..threads).step_by(16) {
                let mut meet = [0; 16];
                (first..threads.min(first + 16)).for_each(|thread| meet[place(thread) % 16] += 1);
                most = meet.into_iter().max().unwrap().max(most);
            }
            most
        };
        let (second, third) = (|s| s / 7 * pitch + s % 7, |s| s % 6 * pitch + s / 6 * run);
        assert_eq!([fullest(&second, 42), fullest(&third, 24)], [1, 3]);
        let (second, third) = (|s| s / 7 * 28 + s % 7, |s| s % 6 * 28 + s / 6 * 7);
        assert_eq!([fullest(&second, 42), fullest(&third, 24)], [2, 2]);
    }
}
