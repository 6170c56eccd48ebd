// Tangled from book/src/meetings.md: edit there, or here and run cargo tangle stitch.
//! Ranks at work: a thread for each device of this process, watched by the one that started them.

// What a crew stands on
use super::gpu::{Gpu, rank::Rank};
use super::rendezvous::{RankInfo, Rendezvous};
use super::{Watch, check};
use crate::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

// Devices that work together
/// Devices that work together: those of this process, or one in each of several processes that have met.
#[derive(Default)]
pub(crate) struct RankGroup {
    /// Where this process sits, if there are several.
    rank_info: Option<RankInfo>,
    /// Those of the other processes, once they are wanted.
    rendezvous: Mutex<Option<Arc<Rendezvous>>>,
    /// Those that have joined before, and have not failed.
    members: Mutex<Vec<Rank>>,
}

impl fmt::Debug for RankGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Crew").field(&self.rank_info).finish()
    }
}

// What happens on a thread
/// What a rank is to do, and what it finds.
pub(crate) type RankTask<R> = dyn Fn(&Rank, &dyn Watch) -> Result<R, Error> + Send + Sync;

/// What a thread tells.
enum Event<R> {
    Stage(String),
    Part(String, [usize; 2]),
    Joined(Rank),
    Done(usize, Result<R, Error>),
}

// Relay stages to the watcher
/// Tells of stages, and asks whether to stop.
struct Relay<R> {
    to: Sender<Event<R>>,
    tells: bool,
    is_stopped: Arc<AtomicBool>,
}

impl<R: Send> Watch for Relay<R> {
    fn stage(&self, name: &str, _pieces: &str) {
        if self.tells {
            let _ = self.to.send(Event::Stage(name.into())); // nobody listens when all has ended
        }
    }

    fn part(&self, what: &str, number: usize, count: usize) {
        if self.tells {
            let _ = self.to.send(Event::Part(what.into(), [number, count])); // as above
        }
    }

    fn cancelled(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

// Steps of a crew
impl RankGroup {
    /// The crew of one of several processes.
    pub(crate) fn with_rank_info(rank_info: RankInfo) -> Self {
        Self { rank_info: Some(rank_info), ..Self::default() }
    }

    /// Whether this is one of several processes.
    pub(crate) fn is_seated(&self) -> bool {
        self.rank_info.is_some()
    }

    /// The first rank of this process, and the number of all, where it has so many devices.
    pub(crate) fn place(&self, devices: usize) -> [usize; 2] {
        self.rank_info.as_ref().map_or([0, devices], |rank_info| [rank_info.rank, rank_info.ranks])
    }

    /// Where this process meets the others, if there are any; they are waited for once.
    fn rendezvous(&self) -> Result<Option<Arc<Rendezvous>>, Error> {
        let Some(rank_info) = &self.rank_info else { return Ok(None) };
        let mut rendezvous = self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner);
        if rendezvous.is_none() {
            *rendezvous = Some(Arc::new(Rendezvous::new(rank_info.clone())?));
        }
        Ok(rendezvous.clone())
    }

    // Have all ranks work
    /// Has each device do its part of some work, and gives what each of this process has found, in their order. When one fails, or a
    /// rank of another process is lost, the others are freed from waiting for it.
    ///
    /// # Errors
    /// The first failure; that a rank was lost, by its name; `Cancelled`.
    pub(crate) fn work<R: Send + 'static>(
        &self,
        gpus: &[Gpu],
        watch: &dyn Watch,
        work: &Arc<RankTask<R>>,
    ) -> Result<Vec<R>, Error> {
        let rendezvous = self.rendezvous()?;
        let rendezvous = rendezvous.as_deref();
        let failed = |error: Error| {
            let unheard = rendezvous.filter(|rendezvous| rendezvous.lost().is_none());
            unheard.into_iter().for_each(|rendezvous| rendezvous.give_up(&error.to_string()));
            error
        };
        rendezvous.into_iter().for_each(|rendezvous| rendezvous.set_over(false));
        let mut known = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let members = std::mem::take(&mut *known);
        let identifier = match members.is_empty() {
            true => identifier(gpus, rendezvous).map_err(failed)?,
            false => Vec::new(),
        };
        let shift = self.start(gpus, &members, identifier, work).map_err(failed)?;
        let (found, members) = shift.watched(rendezvous, watch).map_err(failed)?;
        *known = members;
        rendezvous.into_iter().for_each(|rendezvous| rendezvous.set_over(true));
        Ok(found)
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
            let part = move || {
                let relay = Relay { to: to.clone(), tells: k == 0, is_stopped };
                let done = catch_unwind(AssertUnwindSafe(|| {
                    let place = [first + k, ranks];
                    let member = known.map_or_else(|| gpu.join(place, &identifier), Ok)?;
                    let _ = to.send(Event::Joined(member.clone())); // as above
                    work(&member, &relay)
                }));
                let _ = to.send(Event::Done(k, done.unwrap_or_else(|_| Err(panicked())))); // as above
            };
            let started =
                std::thread::Builder::new().name(format!("rank {}", first + k)).spawn(part);
            let failed = |error: std::io::Error| Error::Failed {
                what: format!("starting rank {}", first + k),
                reason: error.to_string(),
            };
            threads.push(started.map_err(failed)?);
        }
        Ok(Shift { events, threads, is_stopped, members: Vec::new() })
    }
}

// Find an identifier for a group
/// The identifier of a new group, which rank 0 makes and all others hear.
fn identifier(gpus: &[Gpu], rendezvous: Option<&Rendezvous>) -> Result<Vec<u8>, Error> {
    match rendezvous {
        Some(rendezvous) if rendezvous.rank_info().rank > 0 => rendezvous.share(None),
        Some(rendezvous) => rendezvous.share(Some(gpus[0].identifier()?)),
        None => gpus[0].identifier(),
    }
}

// Threads at work
/// Threads at work for one computation.
struct Shift<R> {
    events: Receiver<Event<R>>,
    threads: Vec<JoinHandle<()>>,
    is_stopped: Arc<AtomicBool>,
    members: Vec<Rank>,
}

/// How long threads may take to end when a rank has failed. One that does not is left behind: it waits inside of a library.
const GRACE: Duration = Duration::from_secs(15);

/// How long to wait for the news that a rank was lost, when a library says that something is wrong between ranks.
const NEWS: Duration = Duration::from_secs(5);

// Watch threads at work
impl<R> Shift<R> {
    /// What all have found, and the members; or the first failure, once the threads have ended or had time for it.
    fn watched(
        mut self,
        rendezvous: Option<&Rendezvous>,
        watch: &dyn Watch,
    ) -> Result<(Vec<R>, Vec<Rank>), Error> {
        let count = self.threads.len();
        let mut found: Vec<Option<R>> = (0..count).map(|_| None).collect();
        let (mut ended, mut failure) = (vec![false; count], None::<(Instant, Error)>);
        while ended.contains(&false) {
            let wrong = match self.events.recv_timeout(Duration::from_millis(50)) {
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
                        member.abort();
                    }
                    self.members.push(member);
                    continue;
                }
                // Note who has ended and how
                Ok(Event::Done(k, done)) => {
                    ended[k] = true;
                    match done {
                        Ok(result) => {
                            found[k] = Some(result);
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
            let lost = || rendezvous.and_then(Rendezvous::lost);
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
            if failure.as_ref().is_some_and(|(since, _)| since.elapsed() > GRACE) {
                break;
            }
        }
        match failure {
            Some((_, error)) => Err(cause(error, rendezvous)),
            None => {
                self.members.sort_by_key(Rank::place);
                Ok((found.into_iter().flatten().collect(), self.members))
            }
        }
    }

    // Free threads from waiting
    /// Frees all threads from waiting for others.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.members.iter().for_each(Rank::abort);
    }
}

/// The error of a thread that told nothing.
fn panicked() -> Error {
    Error::Failed { what: "a rank".into(), reason: "its thread has panicked".into() }
}

// Find the cause of a failure
/// Whether an error is that something is wrong between ranks, which may be for an error of another.
fn is_between(error: &Error) -> bool {
    matches!(error, Error::Cuda { call, .. } if call.starts_with("nccl") || call.starts_with("cusolverMp"))
}

/// Whether an error is one of its own, and not that of a rank that was stopped.
fn tells_more(error: &Error) -> bool {
    !is_between(error) && !matches!(error, Error::Cancelled)
}

/// What has failed in truth: where something is wrong between ranks, it may be that one was lost.
fn cause(error: Error, rendezvous: Option<&Rendezvous>) -> Error {
    let Some(rendezvous) = rendezvous.filter(|_| is_between(&error)) else { return error };
    let until = Instant::now() + NEWS;
    while rendezvous.lost().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    rendezvous.lost().unwrap_or(error)
}

// Tests of crews
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{gpu::emulated, unwatched};

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
        // Rank 1 does not come to the sum.
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
        // All of them join anew.
        assert_eq!(rank_group.work(&gpus, &unwatched, &sum).unwrap()[2], [3.0, 3.0]);
        let panics: Arc<RankTask<()>> = Arc::new(|member, _| match member.place()[0] {
            2 => panic!("of a test"),
            _ => member.sum(&member.gpu().upload(&[0.0f64])?),
        });
        let said = rank_group.work(&gpus, &unwatched, &panics).unwrap_err().to_string();
        assert!(said.contains("panicked"), "{said}");
    }
}
