// Tangled from book/src/rank-groups.md: edit there, or here and run cargo tangle stitch.
//! Rank groups: a thread for each device of this process, watched by the thread that started them.

// Imports of a rank group
use super::dispatch::lock;
use super::gpu::{Gpu, rank::Rank};
use super::rank_info::{Peers, RankInfo};
use crate::error::Error;
use crate::watch::{Watch, check};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

// Devices of a rank group
/// Devices that share a computation: those of this process, or one in each of several processes.
#[derive(Default)]
pub(crate) struct RankGroup {
    /// Rank info of this process, if there are several processes.
    rank_info: Option<RankInfo>,
    /// Rendezvous with the other processes, from the first computation on.
    rendezvous: Mutex<Option<Arc<dyn Peers>>>,
    /// Ranks that have joined in an earlier computation without a failure.
    members: Mutex<Vec<Rank>>,
}

impl fmt::Debug for RankGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RankGroup").field(&self.rank_info).finish()
    }
}

// Connect with the other processes
/// Connects this process with the others.
fn connect(rank_info: &RankInfo) -> Result<Arc<dyn Peers>, Error> {
    #[cfg(feature = "cuda")]
    return Ok(Arc::new(super::rendezvous::Rendezvous::new(rank_info.clone())?));
    #[cfg(not(feature = "cuda"))]
    Err(super::without_cuda(&format!("rank {}", rank_info.rank)))
}

// Events of a thread
/// The computation of a rank, with its result.
pub(crate) type RankTask<R> = dyn Fn(&Rank, &dyn Watch) -> Result<R, Error> + Send + Sync;

/// An event that a thread reports.
enum Event<R> {
    Stage(String),
    Part(String, [usize; 2]),
    Joined(Rank),
    Done(usize, Result<R, Error>),
}

// Relay stages to the watcher
/// Reports stages to the watching thread, and returns whether to stop.
struct Relay<R> {
    to: Sender<Event<R>>,
    reports: bool,
    is_stopped: Arc<AtomicBool>,
}

impl<R: Send> Watch for Relay<R> {
    fn stage(&self, name: &str, _pieces: &str) {
        if self.reports {
            let _ = self.to.send(Event::Stage(name.into())); // there is no receiver after the end
        }
    }

    fn part(&self, what: &str, number: usize, count: usize) {
        if self.reports {
            let _ = self.to.send(Event::Part(what.into(), [number, count])); // as above
        }
    }

    fn cancelled(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

// Steps of a rank group
impl RankGroup {
    // Ranks of a group
    /// Rank group of one of several processes.
    pub(crate) fn with_rank_info(rank_info: RankInfo) -> Self {
        Self { rank_info: Some(rank_info), ..Self::default() }
    }

    /// Whether this is one of several processes.
    pub(crate) fn is_ranked(&self) -> bool {
        self.rank_info.is_some()
    }

    /// First rank of this process, and the number of ranks, where it has so many devices.
    pub(crate) fn place(&self, devices: usize) -> [usize; 2] {
        self.rank_info.as_ref().map_or([0, devices], |rank_info| [rank_info.rank, rank_info.ranks])
    }

    /// Rendezvous with the other processes, if there are any; the first call waits for them.
    fn rendezvous(&self) -> Result<Option<Arc<dyn Peers>>, Error> {
        let Some(rank_info) = &self.rank_info else { return Ok(None) };
        let mut rendezvous = lock(&self.rendezvous);
        if rendezvous.is_none() {
            *rendezvous = Some(connect(rank_info)?);
        }
        Ok(rendezvous.clone())
    }

    // Run a task on all ranks
    /// Runs `work` on each rank, and returns the results of the ranks of this process, in their order. When one fails, or a
    /// rank of another process is lost, the others are aborted.
    ///
    /// # Errors
    /// The first failure; the loss of a rank, with its name; `Cancelled`.
    pub(crate) fn work<R: Send + 'static>(
        &self,
        gpus: &[Gpu],
        watch: &dyn Watch,
        work: &Arc<RankTask<R>>,
    ) -> Result<Vec<R>, Error> {
        let rendezvous = self.rendezvous()?;
        let rendezvous = rendezvous.as_deref();
        // Send the reason of a failure
        let failed = |error: Error| {
            let unheard = rendezvous.filter(|rendezvous| rendezvous.lost().is_none());
            unheard.into_iter().for_each(|rendezvous| rendezvous.give_up(&error.to_string()));
            error
        };
        rendezvous.into_iter().for_each(|rendezvous| rendezvous.set_over(false));
        let mut known = lock(&self.members);
        let members = std::mem::take(&mut *known);
        let identifier = match members.is_empty() {
            true => identifier(gpus, rendezvous).map_err(failed)?,
            false => Vec::new(),
        };
        let shift = self.start(gpus, &members, identifier, work).map_err(failed)?;
        let (results, members) = shift.watched(rendezvous, watch).map_err(failed)?;
        *known = members;
        rendezvous.into_iter().for_each(|rendezvous| rendezvous.set_over(true));
        Ok(results)
    }

    // Start a thread for each device
    fn start<R: Send + 'static>(
        &self,
        gpus: &[Gpu],
        members: &[Rank],
        identifier: Vec<u8>,
        work: &Arc<RankTask<R>>,
    ) -> Result<Shift<R>, Error> {
        let (to, events) = channel();
        let (is_stopped, [first, ranks]) =
            (Arc::new(AtomicBool::new(false)), self.place(gpus.len()));
        let mut threads = Vec::new();
        for (k, gpu) in gpus.iter().enumerate() {
            let (gpu, known, identifier) =
                (gpu.clone(), members.get(k).cloned(), identifier.clone());
            let (to, work, is_stopped) = (to.clone(), Arc::clone(work), Arc::clone(&is_stopped));
            // Join the group and compute on one device
            let part = move || {
                let relay = Relay { to: to.clone(), reports: k == 0, is_stopped };
                let done = in_libraries(|| {
                    let place = [first + k, ranks];
                    let member = known.map_or_else(|| gpu.join(place, &identifier), Ok)?;
                    let _ = to.send(Event::Joined(member.clone())); // as above
                    work(&member, &relay)
                });
                let _ = to.send(Event::Done(k, done)); // as above
            };
            // Start the thread of a device
            let started =
                std::thread::Builder::new().name(format!("rank {}", first + k)).spawn(part);
            let failed = |error: std::io::Error| Error::Failed {
                what: format!("starting rank {}", first + k),
                reason: error.to_string(),
            };
            threads.push(started.map_err(failed)?);
        }
        Ok(Shift { events, threads, is_stopped, members: Vec::new(), grace: GRACE })
    }
}

// Find an identifier for a group
/// The identifier of a new group, which rank 0 makes and shares with all others.
fn identifier(gpus: &[Gpu], rendezvous: Option<&dyn Peers>) -> Result<Vec<u8>, Error> {
    match rendezvous {
        Some(rendezvous) if rendezvous.rank_info().rank > 0 => rendezvous.share(None),
        Some(rendezvous) => rendezvous.share(Some(gpus[0].identifier()?)),
        None => gpus[0].identifier(),
    }
}

// Threads of a computation
/// The threads of one computation.
struct Shift<R> {
    events: Receiver<Event<R>>,
    threads: Vec<JoinHandle<()>>,
    is_stopped: Arc<AtomicBool>,
    members: Vec<Rank>,
    /// Time for the threads to end after a failure.
    grace: Duration,
}

/// Time for threads to end after a rank has failed. A thread that takes longer is abandoned: it waits inside a library.
const GRACE: Duration = Duration::from_secs(15);

/// Time to wait for the peer status to report a lost rank, after a library has reported an error between ranks.
const NEWS: Duration = Duration::from_secs(5);

// Watch the threads of a computation
impl<R> Shift<R> {
    /// The results of all threads, and the ranks; or the first failure, once the threads have ended or their time is over.
    fn watched(
        mut self,
        rendezvous: Option<&dyn Peers>,
        watch: &dyn Watch,
    ) -> Result<(Vec<R>, Vec<Rank>), Error> {
        let count = self.threads.len();
        let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
        let (mut ended, mut failure) = (vec![false; count], None::<(Instant, Error)>);
        while ended.contains(&false) {
            let wrong = match self.events.recv_timeout(Duration::from_millis(50)) {
                // Pass on what the threads report
                Ok(Event::Stage(name)) => {
                    watch.stage(&name, "");
                    continue;
                }
                Ok(Event::Part(what, [number, count])) => {
                    watch.part(&what, number, count);
                    continue;
                }
                Ok(Event::Joined(member)) => {
                    if failure.is_some() {
                        abort(&member);
                    }
                    self.members.push(member);
                    continue;
                }
                // Store the result of a thread
                Ok(Event::Done(k, done)) => {
                    ended[k] = true;
                    match done {
                        Ok(result) => {
                            results[k] = Some(result);
                            None
                        }
                        Err(error) => Some(error),
                    }
                }
                Err(RecvTimeoutError::Timeout) => check(watch).err(),
                Err(RecvTimeoutError::Disconnected) => {
                    ended.fill(true);
                    Some(panicked())
                }
            };
            // Stop all when one has failed
            let lost = || rendezvous.and_then(Peers::lost);
            match (&failure, wrong) {
                (None, wrong) => {
                    if let Some(error) = wrong.or_else(lost) {
                        self.stop();
                        failure = Some((Instant::now(), error));
                    }
                }
                (Some((since, first)), Some(error)) if is_between(first) && tells_more(&error) => {
                    failure = Some((*since, error));
                }
                _ => {}
            }
            if failure.as_ref().is_some_and(|(since, _)| since.elapsed() > self.grace) {
                break;
            }
        }
        // Return results or the failure
        match failure {
            Some((_, error)) => Err(cause(error, rendezvous)),
            None => {
                self.members.sort_by_key(Rank::place);
                Ok((results.into_iter().flatten().collect(), self.members))
            }
        }
    }

    // Stop threads that wait
    /// Asks all threads to stop, and aborts their collective operations.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.members.iter().for_each(abort);
    }
}
/// The error of a thread that ended without a result.
fn panicked() -> Error {
    Error::Failed { what: "a rank".into(), reason: "its thread has panicked".into() }
}

// Failures between ranks
// Abort in a separate thread
/// Aborts the collective operations of a rank in a separate thread. If there can be no such thread, the rank is abandoned after
/// the time of grace.
fn abort(member: &Rank) {
    let member = member.clone();
    let thread = std::thread::Builder::new().name(format!("abort rank {}", member.place()[0]));
    let _ = thread.spawn(move || {
        in_libraries(|| {
            member.abort();
            Ok(())
        })
    });
}

// Count the threads inside libraries
/// Number of threads that may be waiting inside a library between ranks.
static IN_LIBRARIES: AtomicUsize = AtomicUsize::new(0);

/// Result of some work between ranks, with a panic as an error.
fn in_libraries<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    IN_LIBRARIES.fetch_add(1, Ordering::AcqRel);
    let done = catch_unwind(AssertUnwindSafe(work));
    IN_LIBRARIES.fetch_sub(1, Ordering::AcqRel);
    done.unwrap_or_else(|_| Err(panicked()))
}

/// Ends the process with an exit code, without exit handlers, if a rank has been abandoned inside a library.
#[cfg(feature = "command")]
pub(crate) fn end_if_abandoned(code: u8) {
    if IN_LIBRARIES.load(Ordering::Acquire) > 0 {
        super::cuda::distributed::end_process(code.into());
    }
}

// Find the cause of a failure
/// Whether an error is one between ranks, which the failure of another rank may have caused.
fn is_between(error: &Error) -> bool {
    matches!(error, Error::Cuda { call, .. } if call.starts_with("nccl") || call.starts_with("cusolverMp"))
}

/// Whether an error is specific, and not that of a rank that was stopped.
fn tells_more(error: &Error) -> bool {
    !is_between(error) && !matches!(error, Error::Cancelled)
}

/// The cause of a failure: after an error between ranks, it may be the loss of a rank.
fn cause(error: Error, rendezvous: Option<&dyn Peers>) -> Error {
    let Some(rendezvous) = rendezvous.filter(|_| is_between(&error)) else { return error };
    let until = Instant::now() + NEWS;
    while rendezvous.lost().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    rendezvous.lost().unwrap_or(error)
}

// Tests of rank groups
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::backend::{Collective, DistributedMatrix};
    use crate::device::collective::BlockCyclic;
    use crate::device::gpu::tests::{bound, reflected, reflection, root, squared};
    use crate::device::gpu::{cuda_devices, emulated};
    use crate::numerics::real::Real;
    use crate::watch::unwatched;
    use std::sync::Barrier;

    #[test]
    fn ranks_sum_and_one_that_fails_frees_the_others() {
        let (gpus, rank_group) = (emulated(3), RankGroup::default());
        if gpus.is_empty() {
            return;
        }
        let sum: Arc<RankTask<Vec<f64>>> = Arc::new(|member, _| {
            let numbers = member.gpu().upload(&[member.place()[0] as f64, 1.0])?;
            member.sum(&numbers)?;
            numbers.read()
        });
        for _ in 0..2 {
            let sums = rank_group.work(&gpus, &unwatched, &sum).unwrap();
            assert_eq!(sums, vec![vec![3.0, 3.0]; 3]);
        }
        // Rank 1 does not take part in the sum.
        let broken: Arc<RankTask<Vec<f64>>> = Arc::new(|member, _| match member.place()[0] {
            1 => Err(Error::Failed { what: "rank 1".into(), reason: "of a test".into() }),
            _ => {
                member.sum(&member.gpu().upload(&[0.0f64])?)?;
                Ok(Vec::new())
            }
        });
        let (start, error) =
            (Instant::now(), rank_group.work(&gpus, &unwatched, &broken).unwrap_err());
        assert_eq!(error.to_string(), "rank 1 failed: of a test");
        assert!(start.elapsed() < GRACE / 2);
        // All ranks join again.
        assert_eq!(rank_group.work(&gpus, &unwatched, &sum).unwrap()[2], [3.0, 3.0]);
        let panics: Arc<RankTask<()>> = Arc::new(|member, _| match member.place()[0] {
            2 => panic!("of a test"),
            _ => member.sum(&member.gpu().upload(&[0.0f64])?),
        });
        let said = rank_group.work(&gpus, &unwatched, &panics).unwrap_err().to_string();
        assert!(said.contains("panicked"), "{said}");
    }

    // Groups of devices of a test
    /// Two emulated devices; the first device of CUDA alone, and all of them, where libraries join them.
    ///
    /// # Panics
    /// Where a library is missing, and the variable `LENSLET_REQUIRE_RANKS` is set.
    fn groups() -> Vec<Vec<Gpu>> {
        let (mut groups, gpus) = (vec![emulated(2)], cuda_devices());
        let required = std::env::var_os("LENSLET_REQUIRE_RANKS").is_some();
        match gpus.iter().try_for_each(Gpu::require_joining) {
            Ok(()) => {
                groups.push(gpus.iter().take(1).cloned().collect());
                groups.extend((gpus.len() > 1).then_some(gpus));
            }
            Err(reason) => {
                assert!(!required, "no ranks: {reason}");
                eprintln!("skipped with ranks: {reason}");
            }
        }
        groups.retain(|gpus| !gpus.is_empty());
        groups
    }

    // Work of one rank on known matrices
    /// The largest errors of a factor, of solutions, of eigenvalues and eigenvectors, and of a sum that was broadcast.
    fn errors<T: Real>(member: &Rank) -> Result<[f64; 4], Error> {
        const N: usize = 300;
        let (gpu, [rank, ranks]) = (member.gpu(), member.place());
        let deal = BlockCyclic::new(N, [rank, ranks]);
        let here: Vec<usize> = deal.tiles().flatten().collect();
        let upload = |rows: usize, entry: &dyn Fn(usize, usize) -> f64| {
            let of_row = |i: usize| here.iter().map(move |&j| T::of(entry(i, j)));
            gpu.upload(&(0..rows).flat_map(of_row).collect::<Vec<_>>())
        };
        let largest = |values: &[T], entry: &dyn Fn(usize, usize) -> f64| {
            values.iter().enumerate().fold(0.0f64, |largest, (k, value)| {
                let (i, j) = (k / here.len(), here[k % here.len()]);
                largest.max((value.in_double() - entry(i, j)).abs())
            })
        };
        // Factorise and solve
        let matrix = upload(N, &squared)?;
        assert_eq!(member.cholesky(&matrix, &deal)?, None);
        let upper = matrix.read()?.into_iter().enumerate();
        let upper: Vec<T> = upper
            .map(|(k, x)| if k / here.len() > here[k % here.len()] { T::zero() } else { x })
            .collect();
        let solution = |k: usize, j: usize| ((k + 2 * j) as f64).cos();
        let right = |k: usize, j: usize| (0..N).map(|l| solution(k, l) * squared(l, j)).sum();
        let rows = upload(3, &right)?;
        member.solve(&matrix, &deal, &rows)?;
        let found = [largest(&upper, &root), largest(&rows.read()?, &solution)];
        // Find eigenvectors of all ranks
        let mut worst = 0.0f64;
        if gpu.require_factors(true).is_ok() {
            let entries = reflected(N);
            let matrix = upload(N, &|i, j| entries[i * N + j])?;
            let (values, vectors) = member.eigenvectors(&matrix, &deal)?;
            let vectors = vectors.read()?;
            for (k, value) in values.into_iter().enumerate() {
                let row = &vectors[k * here.len()..(k + 1) * here.len()];
                let with = |sign: f64| {
                    let terms = row.iter().zip(&here);
                    let term = |(x, &j): (&T, &usize)| x.in_double() - sign * reflection(N, k, j);
                    terms.map(term).fold(0.0, |m: f64, x| m.max(x.abs()))
                };
                let error = (value.in_double() / (k + 1) as f64 - 1.0).abs();
                worst = worst.max(error).max(with(1.0).min(with(-1.0)));
            }
        }
        // Sum and broadcast numbers of ranks
        let numbers = gpu.upload(&[T::of((rank + 1) as f64); 5])?;
        member.sum(&numbers)?;
        let sum = (ranks * (ranks + 1) / 2) as f64;
        let own = gpu.upload(&[T::of(rank as f64); 7])?;
        member.broadcast(own.view(2..), ranks - 1)?;
        let wrong = numbers.read()?.iter().any(|x| x.in_double() != sum)
            || own.read()?[2..].iter().any(|x| x.in_double() != (ranks - 1) as f64)
            || own.read()?[..2].iter().any(|x| x.in_double() != rank as f64);
        Ok([found[0], found[1], worst, f64::from(wrong)])
    }

    // Share known matrices
    #[test]
    fn ranks_share_known_matrices() {
        for gpus in groups() {
            let rank_group = RankGroup::default();
            let double: Arc<RankTask<[f64; 4]>> = Arc::new(|member, _| errors::<f64>(member));
            let single: Arc<RankTask<[f64; 4]>> = Arc::new(|member, _| errors::<f32>(member));
            for (task, bound) in [(double, bound::<f64>()), (single, bound::<f32>())] {
                let found = rank_group.work(&gpus, &unwatched, &task).unwrap();
                assert_eq!(found.len(), gpus.len());
                let name = gpus[0].name();
                assert!(found.as_flattened().iter().all(|&x| x < bound), "{name}: {found:?}");
            }
        }
    }

    // Abandon a rank inside a library
    /// Operations between ranks that do not end before a barrier is reached.
    struct Stuck(Arc<Barrier>);

    impl Collective for Stuck {
        fn cholesky(&self, _: u64, _: &DistributedMatrix, _: u64) -> Result<(), Error> {
            unreachable!("no task calls it")
        }

        fn solve(&self, _: u64, _: &DistributedMatrix, _: [u64; 2], _: u64) -> Result<(), Error> {
            unreachable!("no task calls it")
        }

        // Further operations that do not end
        fn eigenvectors(
            &self,
            _: u64,
            _: &DistributedMatrix,
            _: [u64; 2],
            _: u64,
        ) -> Result<(), Error> {
            unreachable!("no task calls it")
        }

        fn sum(&self, _: u64, _: bool, _: [u64; 2]) -> Result<(), Error> {
            unreachable!("no task calls it")
        }

        fn broadcast(&self, _: u64, _: [u64; 2], _: usize) -> Result<(), Error> {
            unreachable!("no task calls it")
        }

        fn abort(&self) {
            self.0.wait();
        }
    }

    #[test]
    fn a_rank_that_stays_inside_a_library_is_abandoned() {
        let Some(gpu) = emulated(1).pop() else { return };
        let barrier = Arc::new(Barrier::new(3));
        let ((to, events), inside) = (channel::<Event<()>>(), Arc::clone(&barrier));
        let waits = move || {
            in_libraries(|| {
                inside.wait();
                Ok(())
            })
            .unwrap();
        };
        let threads = vec![std::thread::spawn(waits), std::thread::spawn(|| ())];
        let stuck = Rank::with_collective(gpu, Arc::new(Stuck(Arc::clone(&barrier))), [0, 2]);
        to.send(Event::Joined(stuck)).unwrap();
        let failed = Error::Failed { what: "rank 1".into(), reason: "of a test".into() };
        to.send(Event::Done(1, Err(failed))).unwrap();
        let (grace, is_stopped) = (Duration::from_millis(300), Arc::default());
        let shift = Shift { events, threads, is_stopped, members: Vec::new(), grace };
        let (start, error) = (Instant::now(), shift.watched(None, &unwatched).err());
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some("rank 1 failed: of a test")
        );
        assert!((grace..GRACE / 2).contains(&start.elapsed()));
        // The thread of the rank, and the one that aborts it.
        assert!(IN_LIBRARIES.load(Ordering::Acquire) >= 2);
        barrier.wait();
    }
}
