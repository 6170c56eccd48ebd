// Tangled from book/src/scan-checkpoints.md: edit there, or here and run cargo tangle stitch.
//! Readings in files: runs that go on, and shares that are joined.

// What checkpoints stand on
use super::scan::{StemPlan, StemReadings};
use crate::device::Engine;
use crate::error::{Error, Invalid, accept};
use crate::files::draft::Draft;
use crate::files::located::read_bytes;
use ndarray::{Array2, s};
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
        let asked = format!("{kind} {:?} {:?}", engine.precision(), self.options());
        let atoms = format!("{:?}", self.specimen());
        sum_over(atoms.as_bytes(), sum_over(asked.as_bytes(), EMPTY))
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
        Draft::holding(path, &bytes)?.publish().map(|_| ())
    }

    // Read a checkpoint
    /// Reads what [`write`](Self::write) has written, for the plan of this fingerprint.
    ///
    /// # Errors
    /// `Read` where there is no such file; `Invalid` where it is no checkpoint, of another plan, or damaged.
    pub fn read(path: &Path, fingerprint: u64) -> Result<Self, Error> {
        let bytes = read_bytes(path)?;
        let refuse = |expected: &str| Invalid::new("checkpoint", path.display(), expected);
        let Some((body, sum)) = bytes.split_last_chunk::<8>().filter(|_| bytes.starts_with(MARK))
        else {
            return Err(refuse("a file of readings of `lenslet stem`").into());
        };
        if sum_over(body, EMPTY) != u64::from_le_bytes(*sum) {
            return Err(refuse("a file that is whole: its sum is wrong").into());
        }
        let (numbers, _) = body[MARK.len()..].as_chunks::<8>();
        let [own, head @ ..] = numbers else { return Err(refuse("a file that is whole").into()) };
        if u64::from_le_bytes(*own) != fingerprint {
            let expected = "readings of the same sample, options, precision and kind of engine";
            return Err(refuse(expected).into());
        }
        // Take the readings out of a checkpoint
        let whole = "a file that is whole: its length is wrong";
        let Some((head, values)) = head.split_first_chunk::<6>() else {
            return Err(refuse(whole).into());
        };
        let [start, end, configurations, places, columns, deviations] =
            head.map(|number| u64::from_le_bytes(number) as usize);
        let shape = (end.saturating_sub(start), columns);
        let count = shape.0.saturating_mul(shape.1);
        if values.len() != count.saturating_mul(1 + deviations) {
            return Err(refuse(whole).into());
        }
        let mut values = values.iter().map(|number| f64::from_le_bytes(*number));
        let mut next = |shape: (usize, usize)| {
            Array2::from_shape_simple_fn(shape, || values.next().unwrap_or_default())
        };
        let mean = next(shape);
        let squares = if deviations > 0 { next(shape) } else { Array2::zeros((0, 0)) };
        Ok(Self { places: start..end, done: [configurations, places], mean, squares })
    }
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
            if start != next {
                let fault = if start < next { "overlap" } else { "leave places out" };
                return Err(refuse(format!("places from {next} on: shares {fault}")));
            }
            if part.done != [self.configurations(), 0] {
                return Err(refuse(format!(
                    "a finished share of {} configurations",
                    self.configurations()
                )));
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
    use crate::device::silent;
    use crate::electrons::scan::tests::plan;
    use crate::numerics::Precision;
    use std::fs;

    fn finished(plan: &StemPlan, engine: &Engine, places: Range<usize>) -> StemReadings {
        let mut readings = plan.begin(places).unwrap();
        plan.run(engine, &mut readings, &silent, &mut |_| Ok(())).unwrap();
        readings
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
            assert_eq!(StemReadings::read(&path, fingerprint).unwrap(), readings);
            let other = plan.fingerprint(&Engine::cpu(Precision::F64));
            let said =
                |fingerprint| StemReadings::read(&path, fingerprint).unwrap_err().to_string();
            assert!(said(other).contains("readings of the same sample"), "{}", said(other));
            // Damage it
            let whole = fs::read(&path).unwrap();
            let mut flipped = whole.clone();
            flipped[100] ^= 1;
            for (bytes, expected) in [
                (&flipped[..], "its sum is wrong"),
                (&whole[..whole.len() - 8], "its sum is wrong"),
                (&whole[..20], "a file that is whole"),
                (&b"something else"[..], "a file of readings"),
            ] {
                fs::write(&path, bytes).unwrap();
                assert!(said(fingerprint).contains(expected), "{}", said(fingerprint));
            }
        }
        assert!(matches!(
            StemReadings::read(&folder.path().join("no"), 1),
            Err(Error::Read { .. })
        ));
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
