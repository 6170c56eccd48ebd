// Tangled from book/src/scan-checkpoints.md: edit there, or here and run cargo tangle stitch.
//! Readings in files: runs that go on, and shares that are joined.

// Imports of checkpoints
use super::scan::{StemPlan, StemReadings};
use crate::device::Engine;
use crate::error::{Error, Invalid, accept, count};
use crate::files::atomic_file::AtomicFile;
use ndarray::{Array2, s};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::{ops::Range, path::Path};

// Sum over bytes
/// The sum of Fowler, Noll and Vo over bytes, 64 bits, from a sum that was begun.
fn sum_over(bytes: &[u8], begun: u64) -> u64 {
    let join = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(begun, join)
}

/// The sum over no bytes.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

impl StemPlan {
    /// A number that tells this plan, computed by such an engine, from any other.
    pub fn fingerprint(&self, engine: &Engine) -> u64 {
        let kind = match (engine.has_cores(), engine.devices().is_empty()) {
            (_, true) => "cores",
            (false, _) => "devices",
            (true, _) => "cores and devices",
        };
        let description = format!("{kind} {:?} {:?}", engine.precision(), self.options());
        let atoms = format!("{:?}", self.specimen());
        sum_over(atoms.as_bytes(), sum_over(description.as_bytes(), EMPTY))
    }
}

// Write a checkpoint
/// The first bytes of a checkpoint.
const MARK: &[u8; 16] = b"lenslet-stem-v1\n";

impl StemReadings {
    /// Writes the readings into a file, in place of an older one, with the [fingerprint](StemPlan::fingerprint) of their plan.
    ///
    /// # Errors
    /// `Write` where the file cannot be written: an older one is then still there.
    pub fn write(&self, path: &Path, fingerprint: u64) -> Result<(), Error> {
        // Bytes of a checkpoint
        let deviations = u64::from(!self.squares.is_empty());
        let [configurations, places] = self.done;
        let head = [self.places.start, self.places.end, configurations, places, self.mean.ncols()];
        let mut bytes = MARK.to_vec();
        bytes.extend(fingerprint.to_le_bytes());
        head.iter().for_each(|number| bytes.extend((*number as u64).to_le_bytes()));
        bytes.extend(deviations.to_le_bytes());
        for number in self.mean.iter().chain(&self.squares) {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(sum_over(&bytes, EMPTY).to_le_bytes());
        AtomicFile::holding(path, &bytes)?.publish().map(|_| ())
    }

    // Read a checkpoint
    /// Reads what [`write`](Self::write) has written, for the plan of this fingerprint.
    ///
    /// # Errors
    /// `Read` where there is no such file; `Invalid` where it is no checkpoint, of another plan, or damaged.
    pub fn read(path: &Path, plan: &StemPlan, fingerprint: u64) -> Result<Self, Error> {
        let failed = |source| Error::Read { path: path.into(), source };
        let refuse = |expected: &str| Invalid::new("checkpoint", path.display(), expected);
        let mut file = File::open(path).map_err(failed)?;
        let mut head = [0; HEAD];
        let mark = read_up_to(&mut file, &mut head).map_err(failed)?;
        // Check the mark and the fingerprint
        if !mark.starts_with(MARK) {
            return Err(refuse("a file of readings of `lenslet stem`").into());
        }
        if mark.len() < HEAD {
            return Err(refuse("a file that is whole: it ends within its head").into());
        }
        let (numbers, _) = head[MARK.len()..].as_chunks::<8>();
        let [own, numbers @ ..] = numbers else {
            return Err(refuse("a file that is whole").into());
        };
        if u64::from_le_bytes(*own) != fingerprint {
            let expected = "readings of the same sample, options, precision and kind of engine";
            return Err(refuse(expected).into());
        }
        let part = Self::empty_part(plan, numbers).map_err(|expected| refuse(&expected))?;
        // Read the numbers behind the head of a checkpoint
        let shape = (part.places.len(), plan.readings());
        let blocks = 1 + usize::from(plan.averages());
        let bytes = shape.0.saturating_mul(shape.1).saturating_mul(8 * blocks);
        let length = file.metadata().map_err(failed)?.len();
        if length != (HEAD + bytes + 8) as u64 {
            return Err(refuse("a file that is whole: its length is wrong").into());
        }
        let mut body = vec![0; bytes + 8];
        file.read_exact(&mut body).map_err(failed)?;
        let (body, sum) = body.split_at(bytes);
        if sum_over(body, sum_over(&head, EMPTY)).to_le_bytes() != sum {
            return Err(refuse("a file that is whole: its sum is wrong").into());
        }
        let (values, _) = body.as_chunks::<8>();
        let mut values = values.iter().map(|number| f64::from_le_bytes(*number));
        let mut next = |shape: (usize, usize)| {
            Array2::from_shape_simple_fn(shape, || values.next().unwrap_or_default())
        };
        let mean = next(shape);
        let squares = if plan.averages() { next(shape) } else { Array2::zeros((0, 0)) };
        let good = |square: &f64| square.is_finite() && *square >= 0.0;
        if !mean.iter().all(|x| x.is_finite()) || !squares.iter().all(good) {
            return Err(refuse("finite readings, and squares that are not negative").into());
        }
        Ok(Self { mean, squares, ..part })
    }

    // Check the head of a checkpoint
    /// Readings that have the ranges in the head of a file, and no numbers yet.
    fn empty_part(plan: &StemPlan, head: &[[u8; 8]]) -> Result<Self, String> {
        let number = |k: usize| head.get(k).map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        let [start, end, configurations, positions, columns, deviations] =
            [0, 1, 2, 3, 4, 5].map(|k| usize::try_from(number(k)).unwrap_or(usize::MAX));
        let part = Self {
            places: start..end,
            done: [configurations, positions],
            mean: Array2::zeros((0, 0)),
            squares: Array2::zeros((0, 0)),
        };
        plan.accept_progress(&part).map_err(|invalid| invalid.to_string())?;
        let whole = |good: bool, what: &str, found: usize, expected: usize| {
            if good { Ok(()) } else { Err(format!("{expected} {what}, not {found}")) }
        };
        let (readings, averaged) = (plan.readings(), usize::from(plan.averages()));
        whole(columns == readings, "numbers for each position", columns, readings)?;
        whole(deviations == averaged, "blocks of deviations", deviations, averaged)?;
        Ok(part)
    }

    // Remove a checkpoint
    /// Removes a checkpoint of this plan; leaves any other file as it is.
    ///
    /// # Errors
    /// `Write` where the file is a checkpoint and cannot be removed.
    pub fn remove(path: &Path, plan: &StemPlan, fingerprint: u64) -> Result<(), Error> {
        let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_file || Self::read(path, plan, fingerprint).is_err() {
            return Ok(());
        }
        fs::remove_file(path).map_err(|source| Error::Write { path: path.into(), source })
    }
}

// Bytes at the beginning of a file
/// Bytes before the numbers: the mark, the fingerprint and six numbers.
const HEAD: usize = MARK.len() + 7 * 8;

/// As many bytes as a file has, and at most as many as the buffer.
fn read_up_to<'b>(file: &mut File, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&buffer[..length])
}

// Shares of a scan
impl StemPlan {
    /// The places of share `k` of `n`, both counted from 1.
    ///
    /// # Errors
    /// `Invalid` where k does not lie between 1 and n, or there are more shares than places.
    pub fn share(&self, k: usize, n: usize) -> Result<Range<usize>, Invalid> {
        let all = self.places();
        let value = format!("{k}/{n}");
        let expected = format!("K/N with K from 1 to N, and N not more than {all} places");
        accept((1..=n).contains(&k) && n <= all, "share", value, &expected)?;
        Ok((k - 1) * all / n..k * all / n)
    }

    // Collect the parts of a scan
    /// The readings of the whole scan from those of its parts, in any order.
    ///
    /// # Errors
    /// `Invalid` where a part is not finished, or parts overlap or leave places out.
    pub fn collect(&self, mut parts: Vec<StemReadings>) -> Result<StemReadings, Invalid> {
        parts.sort_by_key(|part| part.places.start);
        let mut whole = self.begin(0..self.places())?;
        let mut next = 0;
        for part in &parts {
            let Range { start, end } = part.places;
            let refuse =
                |expected: String| Invalid::new("share", format!("{start}..{end}"), expected);
            // Reject gaps and unfinished parts
            if start != next {
                let fault = if start < next { "overlap" } else { "leave places out" };
                return Err(refuse(format!("places from {next} on: shares {fault}")));
            }
            self.accept_progress(part)?;
            if part.done != [self.configurations(), 0] {
                let all = count(self.configurations(), "configuration");
                return Err(refuse(format!("a finished share of {all}")));
            }
            whole.mean.slice_mut(s![start..end, ..]).assign(&part.mean);
            if !whole.squares.is_empty() {
                whole.squares.slice_mut(s![start..end, ..]).assign(&part.squares);
            }
            next = end;
        }
        let all = self.places();
        accept(next == all, "shares", next, &format!("shares of all {all} places"))?;
        whole.done = [self.configurations(), 0];
        Ok(whole)
    }
}

// Tests of checkpoints
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::StemRunOptions;
    use crate::electrons::scan::tests::plan;
    use crate::numerics::Precision;
    use crate::watch::unwatched;
    use std::fs;

    fn finished(plan: &StemPlan, engine: &Engine, places: Range<usize>) -> StemReadings {
        let options = StemRunOptions::default().places(places);
        plan.run_with(engine, options, &unwatched).unwrap()
    }

    // Checkpoints come back to the bit
    #[test]
    fn checkpoints_come_back_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        for configurations in [0, 2] {
            let (plan, engine) = (plan(configurations), Engine::cpu(Precision::F32));
            let fingerprint = plan.fingerprint(&engine);
            let readings = finished(&plan, &engine, 3..11);
            readings.write(&path, fingerprint).unwrap();
            assert_eq!(StemReadings::read(&path, &plan, fingerprint).unwrap(), readings);
            let other = plan.fingerprint(&Engine::cpu(Precision::F64));
            let said = |fingerprint| {
                StemReadings::read(&path, &plan, fingerprint).unwrap_err().to_string()
            };
            assert!(said(other).contains("readings of the same sample"), "{}", said(other));
            // Damage it
            let whole = fs::read(&path).unwrap();
            let mut flipped = whole.clone();
            flipped[100] ^= 1;
            for (bytes, expected) in [
                (&flipped[..], "its sum is wrong"),
                (&whole[..whole.len() - 8], "its length is wrong"),
                (&whole[..20], "a file that is whole"),
                (&b"something else"[..], "a file of readings"),
            ] {
                fs::write(&path, bytes).unwrap();
                assert!(said(fingerprint).contains(expected), "{}", said(fingerprint));
            }
        }
        assert!(matches!(
            StemReadings::read(&folder.path().join("no"), &plan(0), 1),
            Err(Error::Read { .. })
        ));
    }

    // Forged checkpoints are refused
    #[test]
    fn forged_checkpoints_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        let (plan, engine) = (plan(2), Engine::cpu(Precision::F32));
        let fingerprint = plan.fingerprint(&engine);
        finished(&plan, &engine, 3..11).write(&path, fingerprint).unwrap();
        let whole = fs::read(&path).unwrap();
        let forged = |at: usize, number: u64| {
            let mut bytes = whole[..whole.len() - 8].to_vec();
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            bytes.extend(sum_over(&bytes, EMPTY).to_le_bytes());
            fs::write(&path, bytes).unwrap();
            let read = StemReadings::read(&path, &plan, fingerprint);
            StemReadings::remove(&path, &plan, fingerprint).unwrap();
            assert_eq!(path.exists(), read.is_err(), "only a checkpoint is removed");
            read.map(|readings| readings.done).map_err(|error| error.to_string())
        };
        let (nan, minus) = (f64::NAN.to_bits(), (-1.0_f64).to_bits());
        let squares = HEAD + 8 * plan.readings() * 8;
        for (at, number, words) in [
            (24, 12, "places = 12..11"),
            (24, u64::MAX, "places"),
            (32, 41, "places = 3..41"),
            (32, u64::MAX, "places"),
            (40, 99, "configurations of the specimen = 99: expected at most 2"),
            (40, u64::MAX, "configurations"),
            (48, 1, "positions of the next configuration = 1: expected 0"),
            (48, u64::MAX, "positions of the next configuration"),
            (56, 1 << 61, "numbers for each position"),
            (64, u64::MAX, "blocks of deviations"),
            (64, 0, "1 blocks of deviations, not 0"),
            (HEAD, nan, "finite readings"),
            (squares, minus, "squares that are not negative"),
        ] {
            let said = forged(at, number).unwrap_err();
            assert!(said.starts_with("checkpoint = ") && said.contains(words), "{at}: {said}");
        }
        assert_eq!(forged(40, 1), Ok([1, 0]));
        assert!(!path.exists());
    }

    // Shares are joined to the bit
    #[test]
    fn shares_are_joined_to_the_bit() {
        let (plan, engine) = (plan(2), Engine::cpu(Precision::F32));
        let all = finished(&plan, &engine, 0..plan.places());
        let part = |k| finished(&plan, &engine, plan.share(k, 3).unwrap());
        let joined = plan.collect(vec![part(3), part(1), part(2)]).unwrap();
        assert_eq!(joined, all);
        let said = |parts| plan.collect(parts).unwrap_err().to_string();
        assert!(said(vec![part(1), part(3)]).contains("leave places out"));
        assert!(said(vec![part(1), part(1), part(2), part(3)]).contains("overlap"));
        assert!(said(vec![part(1), part(2)]).contains("shares of all 40 places"));
        let unfinished = StemReadings { done: [1, 3], ..part(1) };
        assert!(said(vec![unfinished]).contains("a finished share"));
        assert!(
            plan.share(0, 3).is_err() && plan.share(4, 3).is_err() && plan.share(1, 41).is_err()
        );
    }
}
