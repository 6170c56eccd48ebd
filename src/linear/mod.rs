// Tangled from book/src/foundations.md: edit there, or here and run cargo tangle stitch.
//! Linear operators and solvers, on processors and on devices.

// Modules of linear
pub(crate) mod operator;
pub use operator::gpu::{DeviceOperator, OnHost};
pub use operator::{Diagonal, LowRank, Operator, Pairs, Product, Sum};
pub(crate) mod matrix;
pub use matrix::Dense;
pub use matrix::gpu::MatrixGpu;
pub(crate) mod solver;
pub use solver::gpu::{SolverGpu, Start};
pub use solver::{Attempt, Solved, Solver, Stop, conjugate_gradients, minres};
#[cfg(feature = "factorise")]
pub(crate) mod factorisation;
#[cfg(feature = "factorise")]
pub use factorisation::{Cholesky, Eigen, NotPositive, SingularValues, times, times_transpose};
#[cfg(feature = "factorise")]
pub(crate) mod least_squares;
#[cfg(feature = "factorise")]
pub use least_squares::{Fitted, LeastSquares, Normal, Residuals};
pub(crate) mod toeplitz;
pub use toeplitz::gpu::BlockToeplitzGpu;
pub use toeplitz::{Block, BlockToeplitz};
pub(crate) mod interpolation;
pub use interpolation::{Interpolation, ToPupil};
pub(crate) mod blocks;
pub use blocks::{Blocks, OperatorBlock};
pub(crate) mod elimination;
pub use elimination::Elimination;
