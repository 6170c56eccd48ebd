// Tangled from book/src/reconstruct-command.md: edit there, or here and run cargo tangle stitch.
//! Arguments of commands that several processes run together.

// Imports of arguments of ranks
use crate::device::cuda::probe::probe;
use crate::device::{Device, Engine, RankInfo};
use crate::error::Error;
use crate::numerics::real::Precision;
use clap::Args;

// Which rank a process is
#[derive(Debug, Args)]
#[command(next_help_heading = "Several processes, with a graphics processor each")]
pub struct RankArgs {
    /// Number of this process, from 0, which writes the output; unless mpirun or srun tell it.
    #[arg(long)]
    rank: Option<usize>,
    /// How many processes there are.
    #[arg(long)]
    ranks: Option<usize>,
    /// Where they meet: HOST:PORT of rank 0, or a file that all can read and is not there yet. They share a secret: LENSLET_MEET_SECRET, or
    /// the file lenslet/meet-secret among the user's configurations, which rank 0 makes.
    #[arg(long)]
    meet: Option<String>,
}

impl RankArgs {
    // Open the engine of a rank
    /// The engine of a device: with several processes, `cuda` is one for each of those on a machine.
    ///
    /// # Errors
    /// Where the numbers of ranks make no sense, and those of [`Engine::open`].
    pub fn engine(&self, device: Device, precision: Precision) -> Result<Engine, Error> {
        let by_hand = (self.rank, self.ranks, self.meet.clone());
        let Some(rank_info) = RankInfo::find(by_hand, &|name| std::env::var(name).ok())? else {
            return Engine::open(device, precision);
        };
        let there = probe().driver.map_or(1, |driver| driver.devices.len().max(1));
        let device = match device {
            Device::Cuda(None) => Device::Cuda(Some(rank_info.local % there)),
            chosen => chosen,
        };
        Ok(Engine::open(device, precision)?.with_rank_info(rank_info)?)
    }
}
