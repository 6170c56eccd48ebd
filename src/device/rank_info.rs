// Tangled from book/src/rank-info.md: edit there, or here and run cargo tangle stitch.
//! Rank of a process among several, and the address of their rendezvous.

use crate::error::{Error, Invalid};
use std::env;

// Rank info of a process
/// Rank of a process, number of ranks, and the address of their rendezvous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankInfo {
    /// Its rank, from 0; rank 0 has the results.
    pub rank: usize,
    /// Number of processes.
    pub ranks: usize,
    /// `HOST:PORT` at which rank 0 listens, or a file that all ranks can read, to which rank 0 writes its addresses.
    pub meet: String,
    /// Its number among the processes of its machine, which selects its device.
    pub local: usize,
    /// Whether a start program reports that all ranks run on this machine.
    pub one_machine: bool,
}

// Variables of start programs
/// Variables of a start program: rank, number of ranks, rank on the machine, and number of ranks on the machine.
const STARTERS: [[&str; 4]; 3] = [
    [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ],
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
];

// Find the rank info of a process
/// Maximum number of processes of a rendezvous.
const MOST_RANKS: usize = 1 << 16;

impl RankInfo {
    /// Rank info from arguments, or from the environment of `mpirun` or `srun`; none where a process is alone. `variable` reads the
    /// environment.
    ///
    /// # Errors
    /// Where an argument is missing, or the numbers are inconsistent.
    ///
    /// ```
    /// use lenslet::device::RankInfo;
    /// let by_hand = (Some(1), Some(2), Some("node7:4711".to_string()));
    /// let rank_info = RankInfo::find(by_hand, &|_| None)?.expect("two of them");
    /// assert_eq!((rank_info.rank, rank_info.ranks, rank_info.meet.as_str()), (1, 2, "node7:4711"));
    /// assert!(RankInfo::find((None, None, None), &|_| None)?.is_none());
    /// assert!(RankInfo::find((Some(2), Some(2), Some("meet".into())), &|_| None).is_err());
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn find(
        (rank, ranks, meet): (Option<usize>, Option<usize>, Option<String>),
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Invalid> {
        let number = |name: &str| variable(name).and_then(|text| text.parse::<usize>().ok());
        let of = |names: &[&'static str; 4]| {
            let started = number(names[0]).zip(number(names[1]));
            started.filter(|(_, ranks)| *ranks > 1).map(|rank_info| (*names, rank_info))
        };
        // Take the numbers of a start program
        let started = STARTERS.iter().find_map(of);
        let by_hand = rank.is_some() || ranks.is_some();
        let started = started.filter(|_| !by_hand);
        let local = started.and_then(|(names, _)| number(names[2]));
        let all = started.map(|(_, (_, ranks))| ranks);
        let one_machine = all.is_some() && started.and_then(|(names, _)| number(names[3])) == all;
        let Some([rank, ranks]) = numbers([rank, ranks], started, meet.as_deref())? else {
            return Ok(None);
        };
        // Refuse numbers of ranks that do not fit
        if ranks > MOST_RANKS {
            return Err(Invalid::new("ranks", ranks, format!("at most {MOST_RANKS} processes")));
        }
        if rank >= ranks {
            return Err(Invalid::new(
                "rank",
                rank,
                format!("a number from 0 to {}, as there are {ranks} ranks", ranks.max(1) - 1),
            ));
        }
        let meet = meet.map_or_else(|| rendezvous_place(started, variable), Ok)?;
        Ok(Some(Self { rank, ranks, meet, local: local.unwrap_or(rank), one_machine }))
    }
}

// Rank and number of ranks
/// Rank and number of ranks, from arguments or from a start program; none where a process is alone.
fn numbers(
    by_hand: [Option<usize>; 2],
    started: Option<Started>,
    meet: Option<&str>,
) -> Result<Option<[usize; 2]>, Invalid> {
    match (by_hand, started, meet) {
        ([Some(rank), Some(ranks)], ..) => Ok(Some([rank, ranks])),
        ([Some(rank), None], ..) => Err(Invalid::new("rank", rank, "--ranks beside it")),
        ([None, Some(ranks)], ..) => Err(Invalid::new("ranks", ranks, "--rank beside it")),
        (_, Some((_, (rank, ranks))), _) => Ok(Some([rank, ranks])),
        (_, None, Some(meet)) => {
            let expected = "--rank and --ranks beside it, or mpirun or srun";
            Err(Invalid::new("meet", meet, expected))
        }
        (_, None, None) => Ok(None),
    }
}

// Derive the address of a rendezvous
/// A start program's names, rank and ranks.
type Started = ([&'static str; 4], (usize, usize));

/// Address of the rendezvous of ranks that were started together: on the first node of a step of Slurm, or on their common machine.
fn rendezvous_place(
    started: Option<Started>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, Invalid> {
    let expected =
        "HOST:PORT or a file that all ranks can read, as they are not known to share a machine";
    let Some((names, (_, ranks))) = started else {
        return Err(Invalid::new("meet", "", expected));
    };
    let nodes = variable("SLURM_STEP_NODELIST").filter(|_| names[0] == "SLURM_PROCID");
    if let Some(first) = nodes.as_deref().map(first_node) {
        let of = |name: &str| variable(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let port = 20_000 + (61 * of("SLURM_JOB_ID") + of("SLURM_STEP_ID")) % 12_000;
        return Ok(format!("{first}:{port}"));
    }
    // Rendezvous in a file of the machine
    if variable(names[3]) != Some(ranks.to_string()) {
        return Err(Invalid::new("meet", "", expected));
    }
    #[cfg(unix)]
    let starter = std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    let starter = ranks;
    Ok(env::temp_dir().join(format!("lenslet-rendezvous-{starter}")).display().to_string())
}
/// The first of a list of nodes in Slurm's notation: `gpu[07-09,12],login1` begins with `gpu07`.
fn first_node(list: &str) -> String {
    let first = list.split(',').next().unwrap_or(list);
    match first.split_once('[') {
        Some((name, numbers)) => {
            let number = numbers.split(['-', ',', ']']).next().unwrap_or("");
            format!("{name}{number}")
        }
        None => first.to_string(),
    }
}

// Other processes of a computation
/// The other processes of a computation, each with a rank.
pub(crate) trait Peers: Send + Sync {
    /// Rank info of this process.
    fn rank_info(&self) -> &RankInfo;
    /// Shares bytes of rank 0 with all ranks.
    ///
    /// # Errors
    /// `Failed` where a rank is lost, or rank 0 sends nothing for a minute.
    fn share(&self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, Error>;
    /// The error of the loss of a rank, if one was lost.
    fn lost(&self) -> Option<Error>;
    /// Sends the others the reason why this rank ends.
    fn give_up(&self, reason: &str);
    /// Sets whether the computation has ended: a rank that leaves after the end is not lost.
    fn set_over(&self, is_over: bool);
}

// Tests of rank infos
#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    // Rank info of a test
    impl RankInfo {
        /// Rank info with an address.
        pub(crate) fn of_test([rank, ranks]: [usize; 2], meet: &str) -> Self {
            Self { rank, ranks, meet: meet.to_string(), local: rank, one_machine: false }
        }
    }

    // Find rank infos in an environment
    fn rank_info(
        by_hand: (Option<usize>, Option<usize>, Option<&str>),
        set: &[(&str, &str)],
    ) -> Result<Option<RankInfo>, Invalid> {
        let set: HashMap<_, _> = set.iter().copied().collect();
        let (rank, ranks, meet) = by_hand;
        RankInfo::find((rank, ranks, meet.map(str::to_string)), &|name| {
            set.get(name).map(|value| value.to_string())
        })
    }

    #[test]
    fn seats_are_found_by_hand_and_by_starters() {
        let none = (None, None, None);
        let step = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_LOCALID", "1")];
        let place = [
            ("SLURM_STEP_NODELIST", "gpu[07-09,12],login1"),
            ("SLURM_JOB_ID", "100"),
            ("SLURM_STEP_ID", "2"),
        ];
        let found = rank_info(none, &[step, place].concat()).unwrap().unwrap();
        assert_eq!((found.rank, found.ranks, found.local), (3, 4, 1));
        assert_eq!(found.meet, format!("gpu07:{}", 20_000 + 6102));
        // A batch script of Slurm is one process, whatever the number of tasks.
        assert_eq!(rank_info(none, &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), Ok(None));
        assert_eq!(first_node("a1,b2"), "a1");
        let open = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let found = rank_info(none, &open).unwrap().unwrap();
        assert!(found.rank == 1 && found.meet.contains("lenslet-rendezvous-"), "{found:?}");
        let refused =
            |by_hand, set: &[(&str, &str)]| rank_info(by_hand, set).unwrap_err().to_string();
        // Across machines the address must be given.
        assert!(refused(none, &open[..3]).starts_with("meet = : expected HOST:PORT or a file"));
        assert_eq!(rank_info((None, None, Some("a:1")), &open[..3]).unwrap().unwrap().meet, "a:1");
        assert_eq!(rank_info(none, &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(None));
        assert!(
            refused((Some(2), Some(2), Some("m")), &[])
                .starts_with("rank = 2: expected a number from 0 to 1")
        );
        let many = refused((Some(2), Some(1 << 40), Some("m")), &[]);
        assert!(many.ends_with("at most 65536 processes"), "{many}");
        for (by_hand, key) in [
            ((Some(0), None, None), "rank"),
            ((None, Some(2), None), "ranks"),
            ((None, None, Some("m")), "meet"),
            ((Some(0), Some(2), None), "meet"),
        ] {
            assert!(refused(by_hand, &[]).starts_with(&format!("{key} = ")), "{key}");
        }
    }
}
