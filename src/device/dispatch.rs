// Tangled from book/src/dispatch.md: edit there, or here and run cargo tangle stitch.
//! A queue of pieces, the workers that compute them, and a sink for their results.

// Imports of the dispatcher
use super::memory::{available_memory, free_address_space};
use crate::error::Error;
use crate::watch::{Watch, check, unwatched};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

// Workers that compute the pieces
/// Workers of a computation: the cores of this machine, devices, or both. A `W` holds what one of them computes with.
#[derive(Debug)]
pub struct Workers<'a, W> {
    /// What all cores compute with, if they take part.
    pub cores: Option<&'a W>,
    /// What each device computes with; one device may be there several times, with a stream each.
    pub devices: &'a [W],
}

impl<'a, W> Workers<'a, W> {
    /// All cores of this machine.
    pub fn cores(with: &'a W) -> Self {
        Self { cores: Some(with), devices: &[] }
    }

    /// Devices alone.
    pub fn devices(with: &'a [W]) -> Self {
        Self { cores: None, devices: with }
    }
}

// Threads of the cores
/// Threads that cores compute with; 1 where none can be started.
pub fn threads() -> usize {
    if start_threads(false).is_ok() { rayon::current_num_threads() } else { 1 }
}

// Start the threads of the cores
/// Starts the threads that cores compute with, if that has not been done: one for each core, or as many as the system gives.
///
/// Where it gives none, the thread that asks may do all of the work `alone`, which is for the first thread of a program: other
/// threads would wait for it whenever they compute.
///
/// # Errors
/// `Failed` where there is no thread, and none shall work alone.
pub(crate) fn start_threads(alone: bool) -> Result<(), Error> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = lock(&STARTED);
    if *started || rayon::current_thread_index().is_some() {
        return Ok(());
    }
    let (threads, cores) = wanted_threads();
    let free = [free_address_space(), available_memory().filter(|_| threads > cores)];
    let count = bounded_threads(threads, cores, free);
    let threads = (0..count).map_while(|_| waiting_thread().ok()).collect::<Vec<_>>();
    // Refuse to compute without a thread
    if threads.is_empty() && !alone {
        let (what, reason) = ("the start of a thread", "the system gives no more of them");
        return Err(Error::Failed { what: what.into(), reason: reason.into() });
    }
    // Make workers of the threads
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.len().max(1));
    let _ = if threads.is_empty() {
        pool.use_current_thread().build_global()
    } else {
        let mut threads = threads.into_iter();
        let no_more = || std::io::Error::other("there are no more threads");
        let start = |worker| {
            let thread = threads.next().ok_or_else(no_more)?;
            thread.send(worker).map_err(|_| no_more())
        };
        pool.spawn_handler(start).build_global()
    };
    *started = true;
    Ok(())
}

// Threads that wait for work
/// A thread that waits for what it shall do as a worker of `rayon`'s.
fn waiting_thread() -> std::io::Result<Sender<rayon::ThreadBuilder>> {
    let (give, take) = channel::<rayon::ThreadBuilder>();
    let work = move || take.recv().map_or((), |worker| worker.run());
    std::thread::Builder::new().spawn(work).map(|_| give)
}

/// How many threads are wanted, which is one for each core unless the user wants another number; and how many cores there are.
fn wanted_threads() -> (usize, usize) {
    let given = std::env::var("RAYON_NUM_THREADS").ok().and_then(|number| number.parse().ok());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (given.filter(|&number| number > 0).unwrap_or(cores), cores)
}

// Bound the number of threads
/// Address space that the C library reserves for a thread, besides its stack.
const ARENA: u64 = 64 << 20;

/// Threads for which there is memory: at least one.
fn bounded_threads(threads: usize, cores: usize, [free, available]: [Option<u64>; 2]) -> usize {
    let stack = std::env::var("RUST_MIN_STACK").ok().and_then(|bytes| bytes.parse().ok());
    let each = ARENA.saturating_add(stack.unwrap_or(2 << 20));
    let of = |bytes: u64, each: u64| usize::try_from(bytes / each).unwrap_or(usize::MAX);
    let by_space = free.map_or(usize::MAX, |free| of(free, each));
    let by_memory = available.map_or(usize::MAX, |available| of(available, ARENA).max(cores));
    threads.min(by_space).min(by_memory).max(1)
}

// Spread pieces over workers
// The documentation of the dispatcher
/// Does `work` on every item, by all workers from one queue. Each result goes into `sink` with the number of its item, as it comes.
///
/// The sink is used by one thread at a time, and must neither wait for the queue nor spread work itself.
///
/// # Errors
/// One that `work` or `sink` returned, the first in the items' order, or `Cancelled`; items that were not begun then are left.
/// `Failed` where no thread can be started.
pub fn dispatch<W: Sync, I: Send, R: Send>(
    workers: Workers<W>,
    items: impl IntoIterator<IntoIter: ExactSizeIterator<Item = I> + Send>,
    watch: &dyn Watch,
    work: impl Fn(&W, I) -> Result<R, Error> + Sync,
    sink: impl FnMut(usize, R) -> Result<(), Error> + Send,
) -> Result<(), Error> {
    start_threads(false)?;
    let items = items.into_iter();
    let total = items.len();
    let queue = ItemQueue::new(items, watch);
    let (sink, done) = (Mutex::new(sink), AtomicUsize::new(0));
    // Serve the queue as a worker
    let serve = |worker: &W| {
        while let Some((k, item)) = queue.take() {
            let result = work(worker, item);
            match result.and_then(|result| lock(&sink)(k, result)) {
                Ok(()) => watch.progress(done.fetch_add(1, Ordering::Relaxed) + 1, total),
                Err(error) => queue.stop(k, error),
            }
        }
    };
    // Let every worker serve the queue
    let on_cores = |worker: &W| {
        rayon::scope(|scope| {
            let tasks = threads().min(total);
            (0..tasks).for_each(|_| scope.spawn(|_| serve(worker)));
        });
    };
    match (workers.cores, workers.devices) {
        (Some(cores), []) => on_cores(cores),
        (None, [only]) => serve(only),
        (cores, devices) => std::thread::scope(|scope| {
            let (serve, mut started, mut rest) = (&serve, Vec::new(), Vec::new());
            let alone = rayon::current_thread_index().is_some() && threads() == 1;
            // Start a thread for each other device
            for worker in devices {
                let start = || {
                    let thread = std::thread::Builder::new();
                    thread.spawn_scoped(scope, move || serve(worker)).ok()
                };
                match if alone { None } else { start() } {
                    Some(thread) => started.push(thread),
                    None => rest.push(worker),
                }
            }
            if let Some(cores) = cores {
                on_cores(cores);
            }
            rest.into_iter().for_each(serve);
            for thread in started {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        }),
    }
    queue.end()
}

// Queue of pieces
/// Items that are not yet taken, and why no more are given out.
struct ItemQueue<'a, I: Iterator> {
    items: Mutex<std::iter::Enumerate<I>>,
    watch: &'a dyn Watch,
    stopped: AtomicBool,
    /// The item that failed, and its error.
    failure: Mutex<Option<(usize, Error)>>,
}

/// Locks a mutex, also one that a thread held when it panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// Take pieces from the queue
impl<'a, I: Iterator> ItemQueue<'a, I> {
    fn new(items: I, watch: &'a dyn Watch) -> Self {
        let (items, failure) = (Mutex::new(items.enumerate()), Mutex::new(None));
        Self { items, watch, stopped: AtomicBool::new(false), failure }
    }

    fn take(&self) -> Option<(usize, I::Item)> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let taken = lock(&self.items).next()?;
        match check(self.watch) {
            Ok(()) => Some(taken),
            Err(cancelled) => {
                self.stop(usize::MAX, cancelled);
                None
            }
        }
    }

    // Stop the queue for an error
    fn stop(&self, item: usize, error: Error) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(first, _)| item < *first) {
            *failure = Some((item, error));
        }
    }

    fn end(self) -> Result<(), Error> {
        let failure = self.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }
}

// Gather results in their order
/// Computes all items, as [`dispatch`] does, and returns their results in the items' order.
///
/// # Errors
/// Those of [`dispatch`].
pub fn gather<W: Sync, I: Send, R: Send>(
    workers: Workers<W>,
    items: impl IntoIterator<IntoIter: ExactSizeIterator<Item = I> + Send>,
    watch: &dyn Watch,
    work: impl Fn(&W, I) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let items = items.into_iter();
    let mut results: Vec<Option<R>> = (0..items.len()).map(|_| None).collect();
    dispatch(workers, items, watch, work, |k, result| {
        results[k] = Some(result);
        Ok(())
    })?;
    Ok(results.into_iter().flatten().collect())
}

// Share a list in runs
/// Does `work` on runs of the pieces `0..count`, of which each worker takes as many at a time as `suits` it. Each result goes into `sink` with
/// its run, as it comes.
///
/// # Errors
/// One that `work` or `sink` returned, or `Cancelled`; runs that were not begun then are left. `Failed` where no thread can be started.
pub fn dispatch_in_runs<W: Sync, R: Send>(
    workers: &[W],
    count: usize,
    watch: &dyn Watch,
    suits: impl Fn(&W) -> usize + Sync,
    work: impl Fn(&W, Range<usize>) -> Result<R, Error> + Sync,
    sink: impl FnMut(Range<usize>, R) -> Result<(), Error> + Send,
) -> Result<(), Error> {
    let (next, sink, ended) = (AtomicUsize::new(0), Mutex::new(sink), AtomicUsize::new(0));
    // Take the next run of pieces
    let take = |worker: &W| {
        let size = suits(worker).clamp(1, count.max(1));
        let first = next.fetch_add(size, Ordering::Relaxed);
        (first < count).then(|| first..count.min(first + size))
    };
    // Serve runs until none is left
    let serve = |worker: &W, _| {
        while let Some(run) = take(worker) {
            let (done, long) = (check(watch).and_then(|()| work(worker, run.clone())), run.len());
            if let Err(error) = done.and_then(|result| lock(&sink)(run, result)) {
                next.store(count, Ordering::Relaxed);
                return Err(error);
            }
            watch.progress(ended.fetch_add(long, Ordering::Relaxed) + long, count);
        }
        Ok(())
    };
    let all = Workers { cores: None, devices: workers };
    dispatch(all, 0..workers.len(), &unwatched, serve, |_, ()| Ok(()))
}

// Tests of the dispatcher
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Engine};
    use crate::error::Invalid;
    use crate::numerics::real::Precision;
    use crate::watch::Part;
    use std::time::{Duration, Instant};

    // Share one queue among all workers
    #[test]
    fn all_workers_share_one_queue_and_results_keep_their_order() {
        let (most, shares) = (AtomicUsize::new(0), [(); 3].map(|()| AtomicUsize::new(0)));
        let watch = |done: usize, total: usize| {
            assert!(done <= total && total == 1000);
            most.fetch_max(done, Ordering::Relaxed);
        };
        let workers = Workers { cores: Some(&0), devices: &[1, 2] };
        // Threads of the pool may be late where other tests keep them busy: whoever is early waits for them.
        let start = Instant::now();
        let all_have_arrived = || shares.iter().all(|share| share.load(Ordering::Relaxed) > 0);
        let square = |&worker: &usize, k: usize| {
            shares[worker].fetch_add(1, Ordering::Relaxed);
            while !all_have_arrived() && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_micros(20));
            }
            Ok(k * k)
        };
        let squares = gather(workers, 0..1000, &watch, square).unwrap();
        assert!(squares.iter().enumerate().all(|(k, square)| *square == k * k));
        assert_eq!((squares.len(), most.into_inner()), (1000, 1000));
        assert!(all_have_arrived(), "{shares:?}");
        assert!(threads() >= 1);
    }

    // Check failures and cancelling
    /// Wants to stop after so many pieces.
    struct Impatient(AtomicUsize, usize);

    impl Watch for Impatient {
        fn progress(&self, _done: usize, _total: usize) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed) >= self.1
        }
    }

    // Check that failures stop the work
    #[test]
    fn failures_and_watchers_stop_the_work() {
        for workers in [Workers::cores(&()), Workers::devices(&[()]), Workers::devices(&[(); 3])] {
            let Workers { cores, devices } = workers;
            let run = |watch: &dyn Watch, bad: usize| {
                let work = |_: &(), k: usize| {
                    if k == bad {
                        return Err(Invalid::new("k", k, "another").into());
                    }
                    // The failure is reported long before all other pieces are done.
                    if k > bad {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(k)
                };
                let mut done = 0;
                let count = |_, _| {
                    done += 1;
                    Ok(())
                };
                (dispatch(Workers { cores, devices }, 0..1000, watch, work, count), done)
            };
            // Check each way to stop
            let (failed, done) = run(&unwatched, 10);
            assert!(matches!(failed, Err(Error::Invalid(invalid)) if invalid.value == "10"));
            assert!((0..999).contains(&done));
            let (stopped, done) = run(&Impatient(0.into(), 5), 1000);
            assert!(
                matches!(stopped, Err(Error::Cancelled)) && (5..1000).contains(&done),
                "{done}"
            );
            let (complete, done) = run(&Impatient(0.into(), 1000), 1000);
            assert!(complete.is_ok() && done == 1000, "cancelled when all was done");
            let refuse = |k, ()| Err(Invalid::new("sink", k, "less").into());
            let refused =
                dispatch(Workers { cores, devices }, 0..9, &unwatched, |_, _| Ok(()), refuse);
            assert!(matches!(refused, Err(Error::Invalid(_))));
            let none = gather(Workers { cores, devices }, 0..0, &unwatched, |_, k: usize| Ok(k));
            assert!(none.unwrap().is_empty());
        }
    }

    // Check that a part reports to the whole
    #[test]
    fn parts_of_a_stage_count_on() {
        let last = Mutex::new((0, 0));
        let whole = |done: usize, total: usize| *lock(&last) = (done, total);
        let part = Part { whole: &whole, before: 7, total: 10 };
        gather(Workers::devices(&[()]), 0..3, &part, |(), k: usize| Ok(k)).unwrap();
        assert_eq!(*lock(&last), (10, 10));
        let part = Part { whole: &Impatient(3.into(), 2), before: 0, total: 3 };
        assert!(matches!(check(&part), Err(Error::Cancelled)) && check(&unwatched).is_ok());
    }

    // Serve devices by the only thread
    #[test]
    fn the_only_thread_serves_all_devices() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let who = |_: &i32, _: usize| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(std::thread::current().id())
        };
        let run = || gather(Workers::devices(&[1, 2]), 0..20, &unwatched, who);
        let served = pool.install(run).unwrap();
        assert!(served.iter().all(|thread| *thread == served[0]));
    }

    // Bounds on the number of threads
    #[test]
    fn threads_are_bounded_by_memory() {
        let mib = |count: u64| Some(count << 20);
        let bound = |threads, free, available| bounded_threads(threads, 4, [free, available]);
        assert_eq!(bound(3000, None, None), 3000);
        assert_eq!(bound(3000, mib(660), None), 10);
        assert_eq!(bound(3000, mib(1 << 20), mib(6400)), 100);
        assert_eq!(bound(3000, None, mib(1)), 4);
        assert_eq!((bound(8, mib(1), mib(1)), bound(2, mib(1 << 20), None)), (1, 2));
    }

    // Compute without any threads
    #[cfg(target_os = "linux")]
    #[test]
    fn without_threads_there_is_an_error_or_one_that_works_alone() {
        const CHILD: &str = "LENSLET_WITHOUT_THREADS";
        if std::env::var_os(CHILD).is_none() {
            let name = "without_threads_there_is_an_error_or_one_that_works_alone";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args([
                "--exact",
                &format!("{}::{name}", module_path!().split_once("::").unwrap().1),
            ]);
            child.envs([(CHILD, "1"), ("RUST_MIN_STACK", "1000000000000000")]);
            let output = child.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
            return;
        }
        let failed = |done: Result<(), Error>| matches!(done, Err(Error::Failed { .. }));
        let (cores, devices) = (|| Workers::cores(&0), || Workers::devices(&[1, 2, 3]));
        let squares = |workers| gather(workers, 0..9, &unwatched, |_: &i32, k: usize| Ok(k * k));
        assert!(failed(Engine::open(Device::Cpu, Precision::F64).map(drop)));
        assert!(failed(squares(cores()).map(drop)) && failed(squares(devices()).map(drop)));
        assert!(failed(start_threads(false)));
        assert_eq!(threads(), 1);
        start_threads(true).unwrap();
        for workers in [cores(), devices()] {
            assert_eq!(squares(workers).unwrap()[8], 64);
        }
        assert_eq!(threads(), 1);
    }

    // Runs cover a list once
    #[test]
    fn runs_cover_a_list_once() {
        let mut visits = [0; 23];
        let long = |worker: &usize, run: Range<usize>| Ok((*worker, run.len()));
        dispatch_in_runs(
            &[2, 5],
            23,
            &unwatched,
            |&size| size,
            long,
            |run, (size, long)| {
                assert!(long <= size && (long == size || run.end == 23));
                run.for_each(|k| visits[k] += 1);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(visits, [1; 23]);
        let fails = |_: &usize, run: Range<usize>| match run.contains(&7) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        };
        let failed = dispatch_in_runs(
            &[3],
            23,
            &unwatched,
            |&size| size,
            fails,
            |run, ()| {
                assert!(run.end <= 6);
                Ok(())
            },
        );
        assert!(matches!(failed, Err(Error::Cancelled)));
        let none =
            |_: &usize, _: Range<usize>| -> Result<(), Error> { unreachable!("cancelled before") };
        let stopped = Impatient(AtomicUsize::new(0), 0);
        let cancelled = dispatch_in_runs(&[3], 23, &stopped, |&size| size, none, |_, ()| Ok(()));
        assert!(matches!(cancelled, Err(Error::Cancelled)));
    }
}
