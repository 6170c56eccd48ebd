// Tangled from book/src/compiling-kernels.md: edit there, or here and run cargo tangle stitch.
//! Headers that kernels of all rooms include.

use crate::device::gpu::Header;

/// The type `real`.
pub(crate) const REAL: Header =
    Header { name: "device/real.cuh", text: include_str!("../../kernels/device/real.cuh") };

/// The constant `GENERATION`.
pub(crate) const GENERATION: Header = Header {
    name: "device/generation.cuh",
    text: include_str!("../../kernels/device/generation.cuh"),
};

/// Sums over the threads of a block.
pub(crate) const BLOCK_SUM: Header = Header {
    name: "device/block_sum.cuh",
    text: include_str!("../../kernels/device/block_sum.cuh"),
};
