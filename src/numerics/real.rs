// Tangled from book/src/number-types.md: edit there, or here and run cargo tangle stitch.
//! Real numbers in two precisions.

use super::fft::FftPlans;
use bytemuck::Pod;
use num_complex::Complex;
use num_traits::{Float, FromPrimitive, NumAssign, Signed};
use std::{fmt::Debug, iter::Sum};

// Precision of a computation
/// Precision of a computation, and of the numbers of a result in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Double precision.
    F64,
    /// Single precision.
    F32,
}

impl Precision {
    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
        }
    }
}

// A real number of either precision
/// A real number, `f32` or `f64`.
pub trait Real:
    Float + FromPrimitive + Signed + NumAssign + Pod + Sum + Default + Debug + Send + Sync + FftPlans
{
    /// Which of the two.
    const PRECISION: Precision;

    /// The nearest number to `x`.
    fn of(x: f64) -> Self;

    /// The number in double precision.
    fn in_double(self) -> f64;

    /// The nearest complex number to `z`.
    fn of_complex(z: Complex<f64>) -> Complex<Self> {
        Complex::new(Self::of(z.re), Self::of(z.im))
    }
}

// Single and double numbers
/// What there is to be said of one type of number.
macro_rules! real {
    ($real:ty, $precision:ident) => {
        impl Real for $real {
            const PRECISION: Precision = Precision::$precision;

            fn of(x: f64) -> Self {
                x as Self
            }

            fn in_double(self) -> f64 {
                f64::from(self)
            }
        }
    };
}

real!(f32, F32);
real!(f64, F64);
