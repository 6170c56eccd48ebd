// Tangled from book/src/fourier-transforms.md: edit there, or here and run cargo tangle stitch.
//! Discrete Fourier transforms: their plans, and lengths that transform fast.

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftNum, FftPlanner};
use std::sync::Arc;

// Plans of Fourier transforms
/// Real numbers with plans of Fourier transforms, Eq. [dft](https://lenslet.github.io/lenslet/fourier-transforms.html#eq-dft). No inverse is
/// divided by the length.
pub trait FftPlans: Sized {
    /// Plans of the complex transform of a length and of its inverse.
    fn plan_complex(length: usize) -> (Arc<dyn Fft<Self>>, Arc<dyn Fft<Self>>)
    where
        Self: FftNum;

    /// Plan of the inverse complex transform of a length.
    fn plan_complex_inverse(length: usize) -> Arc<dyn Fft<Self>>
    where
        Self: FftNum;

    /// Plans of the real transform of a length and of its inverse.
    fn plan_real(length: usize) -> (Arc<dyn RealToComplex<Self>>, Arc<dyn ComplexToReal<Self>>)
    where
        Self: FftNum;

    /// Plan of the inverse real transform of a length.
    fn plan_real_inverse(length: usize) -> Arc<dyn ComplexToReal<Self>>
    where
        Self: FftNum;
}

// Plans in either precision
/// Makes the plans for one type of number.
macro_rules! fft_plans {
    ($real:ty) => {
        impl FftPlans for $real {
            fn plan_complex(length: usize) -> (Arc<dyn Fft<Self>>, Arc<dyn Fft<Self>>) {
                let mut planner = FftPlanner::new();
                (planner.plan_fft_forward(length), planner.plan_fft_inverse(length))
            }

            fn plan_complex_inverse(length: usize) -> Arc<dyn Fft<Self>> {
                FftPlanner::new().plan_fft_inverse(length)
            }

            fn plan_real(
                length: usize,
            ) -> (Arc<dyn RealToComplex<Self>>, Arc<dyn ComplexToReal<Self>>) {
                let mut planner = RealFftPlanner::new();
                (planner.plan_fft_forward(length), planner.plan_fft_inverse(length))
            }

            fn plan_real_inverse(length: usize) -> Arc<dyn ComplexToReal<Self>> {
                RealFftPlanner::new().plan_fft_inverse(length)
            }
        }
    };
}

fft_plans!(f32);
fft_plans!(f64);

// Lengths without large prime factors
/// The next number, from `least` and from 1, without other prime factors than 2, 3 and 5.
pub(crate) fn fast_length(least: usize) -> usize {
    let is_fast = |length: &usize| {
        let mut rest = *length;
        for prime in [2, 3, 5] {
            while rest.is_multiple_of(prime) {
                rest /= prime;
            }
        }
        rest == 1
    };
    (least.max(1)..).find(is_fast).unwrap_or(least)
}
/// The next even number, from `least` and from 2, without other prime factors than 2, 3 and 5.
pub(crate) fn even_fast_length(least: usize) -> usize {
    2 * fast_length(least.div_ceil(2))
}

/// Numbers 2^a 3^b 5^c from `least` on, ascending, up to the first at `most` or beyond, one at least.
pub(crate) fn fast_lengths(least: usize, most: usize) -> Vec<usize> {
    let most = most.max(least).next_power_of_two();
    let powers = |prime: usize, from: usize| {
        std::iter::successors(Some(from), move |n| Some(n * prime)).take_while(move |n| *n <= most)
    };
    let twos = powers(2, 1);
    let lengths = twos.flat_map(|n| powers(3, n)).flat_map(|n| powers(5, n));
    let mut lengths: Vec<usize> = lengths.filter(|n| *n >= least).collect();
    lengths.sort_unstable();
    lengths
}

// Tests of lengths that transform fast
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_lengths_have_no_other_prime_factors() {
        let first: Vec<usize> = (0..20).map(fast_length).collect();
        assert_eq!(first[..8], [1, 1, 2, 3, 4, 5, 6, 8]);
        assert_eq!(first[8..], [8, 9, 10, 12, 12, 15, 15, 15, 16, 18, 18, 20]);
        assert_eq!([0, 1, 2, 3, 13, 22, 61].map(even_fast_length), [2, 2, 2, 4, 16, 24, 64]);
        for least in 1..3000 {
            assert_eq!(fast_lengths(least, least)[0], fast_length(least), "{least}");
            let even = fast_lengths(least, 2 * least).into_iter().find(|n| n % 2 == 0);
            assert_eq!(even, Some(even_fast_length(least)), "{least}");
        }
    }

    #[test]
    fn fast_lengths_are_dense() {
        let lengths = fast_lengths(100, 1_000_000);
        let steps = lengths.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64);
        let widest = steps.fold(1.0, f64::max);
        assert!((1.11..1.12).contains(&widest), "{widest}");
    }

    #[test]
    fn an_inverse_alone_is_that_of_the_pair() {
        let samples: Vec<_> = (0..30).map(|n| num_complex::Complex::new(n as f64, 0.5)).collect();
        let (forward, inverse) = f64::plan_complex(30);
        let mut both = samples.clone();
        forward.process(&mut both);
        let mut alone = both.clone();
        inverse.process(&mut both);
        f64::plan_complex_inverse(30).process(&mut alone);
        assert_eq!(both, alone);
        for (result, sample) in both.iter().zip(&samples) {
            assert!((result / 30.0 - sample).norm() < 1e-13);
        }
    }
}
