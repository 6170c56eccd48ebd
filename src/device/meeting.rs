// Tangled from book/src/meetings.md: edit there, or here and run cargo tangle stitch.
//! Where the ranks of several processes meet, tell each other what they have to know, and notice when one of them is lost.

// What meetings stand on
use crate::error::{Error, Invalid};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

// Seat of a process
/// Which rank a process is, of how many, and where they meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Its number, from 0; rank 0 has the results.
    pub rank: usize,
    /// How many processes there are.
    pub ranks: usize,
    /// `HOST:PORT`, where rank 0 listens, or a file that all can read, in which rank 0 says where.
    pub meet: String,
    /// Its number among those of its machine, which chooses its device.
    pub local: usize,
}

// Names that start programs use
/// What a start program calls rank, number of ranks, number on the machine, and number of ranks of the machine.
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

// Find the seat of a process
impl Seat {
    /// The seat that is given by hand, or by the environment of `mpirun` or `srun`; none where a process is alone. `variable` reads the
    /// environment.
    ///
    /// # Errors
    /// Where something is missing, or the numbers make no sense.
    ///
    /// ```
    /// use lenslet::device::Seat;
    /// let by_hand = (Some(1), Some(2), Some("node7:4711".to_string()));
    /// let seat = Seat::find(by_hand, &|_| None)?.expect("two of them");
    /// assert_eq!((seat.rank, seat.ranks, seat.meet.as_str()), (1, 2, "node7:4711"));
    /// assert!(Seat::find((None, None, None), &|_| None)?.is_none());
    /// assert!(Seat::find((Some(2), Some(2), Some("meet".into())), &|_| None).is_err());
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn find(
        (rank, ranks, meet): (Option<usize>, Option<usize>, Option<String>),
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Invalid> {
        let number = |name: &str| variable(name).and_then(|text| text.parse::<usize>().ok());
        let of = |names: &[&'static str; 4]| {
            let started = number(names[0]).zip(number(names[1]));
            started.filter(|(_, ranks)| *ranks > 1).map(|seat| (*names, seat))
        };
        let started = STARTERS.iter().find_map(of);
        let by_hand = rank.is_some() || ranks.is_some();
        let started = started.filter(|_| !by_hand);
        let local = started.and_then(|(names, _)| number(names[2]));
        let Some([rank, ranks]) = numbers([rank, ranks], started, meet.as_deref())? else {
            return Ok(None);
        };
        if rank >= ranks {
            return Err(Invalid::new(
                "rank",
                rank,
                format!("a number from 0 to {}, as there are {ranks} ranks", ranks.max(1) - 1),
            ));
        }
        let meet = meet.map_or_else(|| meeting_place(started, variable), Ok)?;
        Ok(Some(Self { rank, ranks, meet, local: local.unwrap_or(rank) }))
    }
}

// Rank and number of ranks
/// The rank and how many there are, as told by hand or by who has started them; nothing where a process is alone.
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

// Meet without being told where
/// A start program's names, rank and ranks.
type Started = ([&'static str; 4], (usize, usize));

/// Where ranks meet that were started together: on the first node of a step of Slurm's, or on their one machine.
fn meeting_place(
    started: Option<Started>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, Invalid> {
    let wanted =
        "HOST:PORT or a file that all ranks can read, as they are not known to share a machine";
    let Some((names, (_, ranks))) = started else {
        return Err(Invalid::new("meet", "", wanted));
    };
    let nodes = variable("SLURM_STEP_NODELIST").filter(|_| names[0] == "SLURM_PROCID");
    if let Some(first) = nodes.as_deref().map(first_node) {
        let of = |name: &str| variable(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let port = 20_000 + (61 * of("SLURM_JOB_ID") + of("SLURM_STEP_ID")) % 12_000;
        return Ok(format!("{first}:{port}"));
    }
    // Meet in a file of the machine
    if variable(names[3]) != Some(ranks.to_string()) {
        return Err(Invalid::new("meet", "", wanted));
    }
    #[cfg(unix)]
    let starter = std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    let starter = ranks;
    Ok(env::temp_dir().join(format!("lenslet-meeting-{starter}")).display().to_string())
}

/// The first of a list of nodes as Slurm writes it: `gpu[07-09,12],login1` begins with `gpu07`.
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

// Ranks that have met
/// How long ranks wait for each other, and how long one may be silent before it is lost.
const PATIENCE: Duration = Duration::from_secs(60);
const SILENCE: Duration = Duration::from_secs(20);

// Processes with lines between them
/// Processes that have met, each with a line to rank 0 that is kept open.
#[derive(Debug)]
pub(crate) struct Meeting {
    seat: Seat,
    news: Arc<News>,
}

/// What a process hears.
#[derive(Debug, Default)]
struct News {
    told: Mutex<Told>,
    changed: Condvar,
    /// Lines to others; all of them for rank 0, to which others have one.
    lines: Mutex<Vec<TcpStream>>,
    /// Whether all is done that was to be done.
    is_over: AtomicBool,
}

/// What rank 0 has to say to all, and who was lost and why.
#[derive(Debug, Default)]
struct Told {
    shared: Option<Vec<u8>>,
    lost: Option<String>,
}

/// A lock, also of what a thread held when it panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// Meet and keep the lines
impl Meeting {
    /// Meets the others: rank 0 waits for them, they look for it.
    ///
    /// # Errors
    /// `Failed` where they do not come within a minute, with those that are missing, or do not agree how many they are.
    pub(crate) fn new(seat: Seat) -> Result<Self, Error> {
        let news = Arc::new(News::default());
        let until = Instant::now() + PATIENCE;
        let met = if seat.rank == 0 {
            wait_for_all(&seat, until)?
        } else {
            vec![look_for_first(&seat, until)?]
        };
        for (name, line) in met {
            let failed = |error| failed(&seat, error);
            line.set_read_timeout(Some(SILENCE)).map_err(failed)?;
            line.set_write_timeout(Some(SILENCE)).map_err(failed)?;
            lock(&news.lines).push(line.try_clone().map_err(failed)?);
            let news = Arc::clone(&news);
            start("listen", move || news.listen(&name, line)).map_err(failed)?;
        }
        let beating = Arc::downgrade(&news);
        let beat = move || {
            while let Some(news) = beating.upgrade() {
                news.say("alive");
                drop(news);
                thread::sleep(Duration::from_secs(1));
            }
        };
        start("beat", beat).map_err(|error| failed(&seat, error))?;
        Ok(Self { seat, news })
    }

    /// Where this process sits.
    pub(crate) fn seat(&self) -> &Seat {
        &self.seat
    }

    // Share what rank 0 has to say
    /// The bytes of rank 0, for all ranks.
    ///
    /// # Errors
    /// `Failed` where a rank is lost, or rank 0 says nothing for a minute.
    pub(crate) fn share(&self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
        if let Some(bytes) = bytes {
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            self.news.say(&format!("share {text}"));
            return Ok(bytes);
        }
        let until = Instant::now() + PATIENCE;
        let mut told = lock(&self.news.told);
        loop {
            if let Some(shared) = told.shared.take() {
                return Ok(shared);
            }
            let left = until.saturating_duration_since(Instant::now());
            if let Some(reason) = &told.lost {
                return Err(failed(&self.seat, reason));
            } else if left.is_zero() {
                return Err(failed(&self.seat, "rank 0 said nothing for a minute"));
            }
            let waited = self.news.changed.wait_timeout(told, left);
            told = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    // Tell and hear of lost ranks
    /// The error that a rank was lost, if one was.
    pub(crate) fn lost(&self) -> Option<Error> {
        lock(&self.news.told).lost.as_ref().map(|reason| failed(&self.seat, reason))
    }

    /// Tells the others that this rank ends, and why.
    pub(crate) fn give_up(&self, reason: &str) {
        let reason = reason.replace('\n', " ");
        self.news.say(&format!("lost {} ended: {reason}", name(&self.seat)));
    }

    /// Says that all is done, or again something to do: a rank that leaves when all is done is not lost.
    pub(crate) fn set_over(&self, is_over: bool) {
        self.news.is_over.store(is_over, Ordering::Release);
    }
}

// Leave a meeting
impl Drop for Meeting {
    fn drop(&mut self) {
        if self.news.is_over.load(Ordering::Acquire) {
            self.news.say("bye");
        }
        for line in lock(&self.news.lines).drain(..) {
            let _ = line.shutdown(Shutdown::Write); // a line that is broken is as good as one that is closed
        }
    }
}

/// The name of this process among the ranks.
fn name(seat: &Seat) -> String {
    format!("rank {} ({}, process {})", seat.rank, host(), process::id())
}

/// The name of this machine.
fn host() -> String {
    sysinfo::System::host_name().unwrap_or_else(|_| "localhost".into())
}

/// The error of ranks that do not meet, or part.
fn failed(seat: &Seat, reason: impl std::fmt::Display) -> Error {
    let what = format!("the meeting of {} ranks at {}", seat.ranks, seat.meet);
    Error::Failed { what, reason: reason.to_string() }
}

/// Starts a thread.
fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

// Listen to one line
impl News {
    /// Says something to all that one has a line to; whoever does not hear is found lost by who listens.
    fn say(&self, text: &str) {
        for line in lock(&self.lines).iter_mut() {
            let _ = writeln!(line, "{text}");
        }
    }

    /// Hears what one other says, until it leaves or is lost.
    fn listen(&self, name: &str, line: TcpStream) {
        let (mut reader, mut text) = (BufReader::new(line), String::new());
        loop {
            text.clear();
            let heard = reader.read_line(&mut text);
            let reason = match (heard, text.trim_end().split_once(' ')) {
                (Ok(0), _) => "its connection ended".to_string(),
                (Ok(_), Some(("share", bytes))) => {
                    lock(&self.told).shared = Some(read_bytes(bytes));
                    self.changed.notify_all();
                    continue;
                }
                (Ok(_), Some(("lost", reason))) => return self.lose(reason.to_string()),
                (Ok(_), _) if text.trim_end() == "bye" => return,
                (Ok(_), _) => continue,
                (Err(_), _) => format!(
                    "it has said nothing for {} s, or its connection broke",
                    SILENCE.as_secs()
                ),
            };
            return self.lose(format!("{name} was lost: {reason}"));
        }
    }

    // Note who was lost
    /// Notes who was lost, unless another was before, and tells all.
    fn lose(&self, reason: String) {
        if !self.is_over.load(Ordering::Acquire) {
            lock(&self.told).lost.get_or_insert_with(|| reason.clone());
            self.changed.notify_all();
            self.say(&format!("lost {reason}"));
        }
    }
}

// Read bytes from their text
/// Bytes from their text.
fn read_bytes(text: &str) -> Vec<u8> {
    let digit = |k: usize| text.get(k..k + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).filter_map(digit).collect()
}

// Wait for all ranks
/// Rank 0 opens a door, and has a line to each of the others when all have come.
fn wait_for_all(seat: &Seat, until: Instant) -> Result<Vec<(String, TcpStream)>, Error> {
    let refuse = |reason: String| failed(seat, reason);
    let (door, token) = open_door(seat).map_err(|error| refuse(error.to_string()))?;
    door.set_nonblocking(true).map_err(|error| refuse(error.to_string()))?;
    let mut met: Vec<Option<(String, TcpStream)>> = (1..seat.ranks).map(|_| None).collect();
    while met.iter().any(Option::is_none) {
        match door.accept() {
            Ok((line, _)) => {
                if let Some((rank, name)) = greet(seat, &token, &line, &met)? {
                    met[rank - 1] = Some((name, line));
                }
            }
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            Err(_) => {
                let missing = (1..seat.ranks).filter(|rank| met[rank - 1].is_none());
                let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
                return Err(refuse(format!(
                    "rank {} did not come within {} s",
                    missing.join(", "),
                    PATIENCE.as_secs()
                )));
            }
        }
    }
    if host_and_port(&seat.meet).is_none() {
        let _ = fs::remove_file(&seat.meet); // all have read it
    }
    let mut met: Vec<_> = met.into_iter().flatten().collect();
    for (name, line) in &mut met {
        writeln!(line, "welcome").map_err(|error| refuse(format!("{name}: {error}")))?;
    }
    Ok(met)
}

// Greet who comes in
/// Hears who has come: its rank and name; nothing where it is none of ours.
fn greet(
    seat: &Seat,
    token: &str,
    line: &TcpStream,
    met: &[Option<(String, TcpStream)>],
) -> Result<Option<(usize, String)>, Error> {
    let Ok(text) = line.set_nonblocking(false).and_then(|()| hear(line)) else { return Ok(None) };
    let mut words = text.splitn(6, ' ');
    let mut word = || words.next().unwrap_or("").to_string();
    let (lenslet, theirs, rank, ranks) = (word(), word(), word(), word());
    let name = format!("{} {}", word(), word());
    if lenslet != GREETING || theirs != token {
        return Ok(None);
    }
    let (known, count) = (rank.parse::<usize>().unwrap_or(0), ranks.parse::<usize>());
    let free = known >= 1 && met.get(known - 1).is_some_and(Option::is_none);
    if count == Ok(seat.ranks) && free {
        return Ok(Some((known, name)));
    }
    let reason = format!(
        "{name} came as rank {rank} of {ranks}, where {} are to meet, each once",
        seat.ranks
    );
    let _ = writeln!(&*line, "refused {reason}"); // it may have gone
    Err(failed(seat, reason))
}

// Hear one line
/// The first word of whoever comes.
const GREETING: &str = concat!("lenslet-", env!("CARGO_PKG_VERSION"));

/// One line of text, within some seconds.
fn hear(line: &TcpStream) -> std::io::Result<String> {
    line.set_read_timeout(Some(PATIENCE))?;
    let (mut text, mut byte) = (Vec::new(), [0]);
    while std::io::Read::read(&mut &*line, &mut byte)? == 1 && byte != *b"\n" && text.len() < 4096 {
        text.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

// Open a door or find one
/// A port to listen at and a word that who comes must know; in a file, where it is said how to find them, or as told.
fn open_door(seat: &Seat) -> std::io::Result<(TcpListener, String)> {
    if let Some((_, port)) = host_and_port(&seat.meet) {
        return Ok((TcpListener::bind(("0.0.0.0", port))?, "open".into()));
    }
    let door = TcpListener::bind("0.0.0.0:0")?;
    let port = door.local_addr()?.port();
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let token = format!("{:x}-{:x}", process::id(), now.as_nanos());
    let file = Path::new(&seat.meet);
    let draft = file.with_extension(&token);
    fs::write(&draft, format!("{token}\n{}:{port}\n127.0.0.1:{port}\n", host()))?;
    fs::rename(&draft, file)?;
    Ok((door, token))
}

/// The two parts of `HOST:PORT`; nothing where a file is meant.
fn host_and_port(meet: &str) -> Option<(&str, u16)> {
    let (host, port) = meet.rsplit_once(':')?;
    Some((host, port.parse().ok()?)).filter(|_| !host.is_empty() && !host.contains('/'))
}

// Look for rank 0
/// A line to rank 0, when all have come.
fn look_for_first(seat: &Seat, until: Instant) -> Result<(String, TcpStream), Error> {
    let mut reason = "nobody is there".to_string();
    while Instant::now() < until {
        match knock(seat) {
            Ok((line, answer)) if answer == "welcome" => return Ok(("rank 0".into(), line)),
            Ok((_, answer)) if answer.starts_with("refused ") => return Err(failed(seat, answer)),
            Ok(_) => reason = "whoever is there has closed the door".into(),
            Err(error) => reason = error.to_string(),
        }
        thread::sleep(Duration::from_millis(50));
    }
    let waited = PATIENCE.as_secs();
    Err(failed(seat, format!("rank 0 was not found within {waited} s: {reason}")))
}

// Knock at the doors of rank 0
/// Knocks at the doors of rank 0, says who one is, and waits for an answer.
fn knock(seat: &Seat) -> std::io::Result<(TcpStream, String)> {
    let (token, doors) = match host_and_port(&seat.meet) {
        Some(_) => ("open".to_string(), vec![seat.meet.clone()]),
        None => {
            let text = fs::read_to_string(&seat.meet)?;
            let mut lines = text.lines().map(str::to_string);
            (lines.next().unwrap_or_default(), lines.collect())
        }
    };
    let mut said = std::io::Error::other("no address is known");
    for door in doors.iter().flat_map(|door| door.to_socket_addrs().into_iter().flatten()) {
        match TcpStream::connect_timeout(&door, Duration::from_secs(5)) {
            Ok(mut line) => {
                writeln!(line, "{GREETING} {token} {} {} {}", seat.rank, seat.ranks, name(seat))?;
                let answer = hear(&line)?;
                return Ok((line, answer));
            }
            Err(error) => said = error,
        }
    }
    Err(said)
}

// Tests of meetings
#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    // Find seats in an environment
    fn seat(
        by_hand: (Option<usize>, Option<usize>, Option<&str>),
        set: &[(&str, &str)],
    ) -> Result<Option<Seat>, Invalid> {
        let set: HashMap<_, _> = set.iter().copied().collect();
        let (rank, ranks, meet) = by_hand;
        Seat::find((rank, ranks, meet.map(str::to_string)), &|name| {
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
        let found = seat(none, &[step, place].concat()).unwrap().unwrap();
        assert_eq!((found.rank, found.ranks, found.local), (3, 4, 1));
        assert_eq!(found.meet, format!("gpu07:{}", 20_000 + 6102));
        // A batch script of Slurm's is one process, whatever the step may have.
        assert_eq!(seat(none, &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), Ok(None));
        assert_eq!(first_node("a1,b2"), "a1");
        let open = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let found = seat(none, &open).unwrap().unwrap();
        assert!(found.rank == 1 && found.meet.contains("lenslet-meeting-"), "{found:?}");
        let refused = |by_hand, set: &[(&str, &str)]| seat(by_hand, set).unwrap_err().to_string();
        // Across machines the place must be told.
        assert!(refused(none, &open[..3]).starts_with("meet = : expected HOST:PORT or a file"));
        assert_eq!(seat((None, None, Some("a:1")), &open[..3]).unwrap().unwrap().meet, "a:1");
        assert_eq!(seat(none, &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(None));
        assert!(
            refused((Some(2), Some(2), Some("m")), &[])
                .starts_with("rank = 2: expected a number from 0 to 1")
        );
        for (by_hand, key) in [
            ((Some(0), None, None), "rank"),
            ((None, Some(2), None), "ranks"),
            ((None, None, Some("m")), "meet"),
            ((Some(0), Some(2), None), "meet"),
        ] {
            assert!(refused(by_hand, &[]).starts_with(&format!("{key} = ")), "{key}");
        }
        assert_eq!(host_and_port("node:47"), Some(("node", 47)));
        assert!(host_and_port("/tmp/a:1").is_none() && host_and_port("meet").is_none());
    }

    // Meet between threads
    /// Meetings of so many ranks, each by a thread of its own.
    fn meet(ranks: usize, place: &str) -> Vec<Result<Meeting, Error>> {
        let meet =
            |rank: usize| Meeting::new(Seat { rank, ranks, meet: place.to_string(), local: rank });
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..ranks).rev().map(|rank| scope.spawn(move || meet(rank))).collect();
            threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn wait_for(lost: impl Fn() -> Option<Error>) -> String {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if let Some(error) = lost() {
                return error.to_string();
            }
            thread::sleep(Duration::from_millis(5));
        }
        "nobody was lost".into()
    }

    #[test]
    fn ranks_meet_share_and_are_lost_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("meet").display().to_string();
        fs::write(&file, "of another time\n127.0.0.1:9\n").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for place in [file.clone(), format!("127.0.0.1:{port}")] {
            let met: Vec<Meeting> = meet(3, &place).into_iter().map(Result::unwrap).collect();
            let bytes: Vec<u8> = (0..=255).collect();
            assert_eq!(met[0].share(Some(bytes.clone())).unwrap(), bytes);
            for other in &met[1..] {
                assert_eq!(other.share(None).unwrap(), bytes);
            }
            // Who has done all leaves quietly; who has not is lost.
            let [first, second, third] = <[Meeting; 3]>::try_from(met).unwrap();
            second.set_over(true);
            drop(second);
            thread::sleep(Duration::from_millis(50));
            assert!(first.lost().is_none() && third.lost().is_none());
            third.give_up("out of\nmemory");
            let said = wait_for(|| first.lost());
            assert!(said.contains("rank 2 (") && said.ends_with("ended: out of memory"), "{said}");
            assert!(said.contains(&format!("the meeting of 3 ranks at {place}")), "{said}");
        }
        assert!(!Path::new(&file).exists());
    }

    // Lose a rank of another process
    #[test]
    fn a_process_that_dies_is_told_by_its_name() {
        const CHILD: &str = "LENSLET_RANK_TO_DIE";
        if let Ok(place) = env::var(CHILD) {
            let _met = Meeting::new(Seat { rank: 1, ranks: 3, meet: place, local: 1 }).unwrap();
            thread::sleep(Duration::from_secs(60));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("meet").display().to_string();
        let name = format!(
            "{}::a_process_that_dies_is_told_by_its_name",
            module_path!().split_once("::").unwrap().1
        );
        let mut child = process::Command::new(env::current_exe().unwrap());
        child.args(["--exact", &name]).env(CHILD, &place).stdout(process::Stdio::null());
        let mut child = child.spawn().unwrap();
        let seats = [0, 2].map(|rank| Seat { rank, ranks: 3, meet: place.clone(), local: rank });
        let [first, third] = thread::scope(|scope| {
            seats
                .map(|seat| scope.spawn(|| Meeting::new(seat).unwrap()))
                .map(|it| it.join().unwrap())
        });
        assert!(first.lost().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        for meeting in [&first, &third] {
            let said = wait_for(|| meeting.lost());
            assert!(said.contains(&format!("process {}) was lost", child.id())), "{said}");
            assert!(said.contains("rank 1 ("), "{said}");
            assert!(meeting.share(None).is_err());
        }
    }

    // Refuse ranks that do not fit
    #[test]
    fn ranks_that_do_not_agree_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("meet").display().to_string();
        let of = |rank, ranks| Seat { rank, ranks, meet: place.clone(), local: 0 };
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| Meeting::new(of(0, 2)).map(drop));
            let second = scope.spawn(|| Meeting::new(of(1, 3)).map(drop));
            (first.join().unwrap(), second.join().unwrap())
        });
        let [first, second] = [first, second].map(|met| met.unwrap_err().to_string());
        assert!(first.contains("as rank 1 of 3, where 2 are to meet"), "{first}");
        assert!(second.contains("refused rank 1 ("), "{second}");
    }
}
