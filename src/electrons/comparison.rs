// Tangled from book/src/prism-error.md: edit there, or here and run cargo tangle stitch.
//! PRISM compared with multislice at a few probes.

// Imports of comparisons
use super::detector::DetectorOptions;
use super::detector::ReadingLayout;
use super::postprocess::suffix;
use super::prism::MOST_LOST;
use super::scan::{StemMethod, StemPlan, StemReadings};
use crate::device::Engine;
use crate::error::{Error, Invalid, accept};
use crate::plan::Stage;
use crate::specimen::Phonons;
use crate::watch::Watch;
use ndarray::{ArrayView1, ArrayView2, Axis, s};
use rand::{SeedableRng, rngs::StdRng, seq::index::sample};
use std::ops::Range;

// How far PRISM is off
/// How far PRISM is from multislice for one detector, Eq. [prism error](https://lenslet.github.io/lenslet/prism-error.html#eq-prism-error).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DetectorError {
    /// Name of the detector's variable; or `rings_20_40` for rings between two angles \[mrad\].
    pub name: String,
    /// Mean reading by multislice; for a centre of mass the rms of its components \[1/Å\].
    pub scale: f64,
    /// Root mean square of the errors, in shares of the scale.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::number"))]
    pub rms: f64,
    /// The largest error, in shares of the scale.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::number"))]
    pub largest: f64,
}

/// PRISM compared with multislice at some places of a scan.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Comparison {
    /// The places, by their numbers.
    pub places: Vec<usize>,
    /// Errors by detector: for each defocus, and for each plane in the specimen.
    pub detectors: Vec<DetectorError>,
}

// Compare shared beams with multislice
/// Name of the stage that computes the compared probes by multislice.
const COMPARED: &str = "multislice";

impl StemPlan {
    // Compare readings with multislice
    /// Compares readings by PRISM of the whole scan with multislice at so many places, drawn from a `seed`; or at all places where there are not as many.
    ///
    /// # Errors
    /// `Invalid` where the scan is not made by PRISM, its readings are not complete, or no place is asked for; `Cancelled`.
    pub fn compare(
        &self,
        readings: &StemReadings,
        count: usize,
        seed: u64,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Comparison, Error> {
        let exact = self.by_multislice(count)?;
        let all = self.places();
        let whole = readings.places == (0..all) && readings.done == [self.configurations(), 0];
        accept(whole, "readings", &readings.places, "readings of all places")?;
        // Draw the positions to compare
        let mut random = StdRng::seed_from_u64(seed);
        let mut places = sample(&mut random, all, count.min(all)).into_vec();
        places.sort_unstable();
        let at: Vec<_> = places.iter().map(|k| exact.options().scan.place(*k)).collect();
        watch.stage(COMPARED, "");
        let reference = exact.mean_at(engine, &at, watch)?;
        let mine = readings.mean.select(Axis(0), &places);
        Ok(Comparison { places, detectors: self.errors(&exact, mine.view(), reference.view()) })
    }

    // The same scan by multislice
    /// Multislice plan of a scan by PRISM, without patterns, for a comparison of `count` probes.
    ///
    /// # Errors
    /// `Invalid` for another method, or no places.
    pub fn by_multislice(&self, count: usize) -> Result<Self, Invalid> {
        let options = self.options();
        let shared = matches!(options.method, StemMethod::Prism { .. });
        let expected = "algorithm = \"prism\", which is what multislice is compared with";
        accept(shared, "compare", count, expected)?;
        accept(count > 0, "compare", count, "at least one probe")?;
        let detectors = DetectorOptions { pattern: None, ..options.detectors.clone() };
        let options = options.clone().method(StemMethod::Multislice).detectors(detectors);
        Self::new(self.tiled_specimen().clone(), options)
    }

    // Time of a comparison
    /// How long comparing so many places will take, with the [exit waves](Self::keep_compared) of both methods in one configuration, which the cores compute.
    pub fn comparing(&self, count: usize, engine: &Engine) -> Stage {
        let waves = count.min(self.places()) * self.options().defoci.len();
        let sum = |stages: [Stage; 2]| stages.iter().map(|stage| stage.seconds).sum::<f64>();
        let readings = sum(self.following(COMPARED, waves, engine));
        let kept = sum(self.following(COMPARED, 2 * waves, &Engine::cpu(engine.precision())));
        Stage { name: COMPARED, seconds: readings + kept / self.configurations() as f64 }
    }

    // Errors of all detectors
    /// Errors of readings (place, reading) of this plan against those of [the same by multislice](Self::by_multislice).
    fn errors(
        &self,
        exact: &Self,
        mine: ArrayView2<'_, f64>,
        reference: ArrayView2<'_, f64>,
    ) -> Vec<DetectorError> {
        let options = self.options();
        let layouts = [self, exact].map(|plan| plan.detectors().layout());
        let rings = layouts[0].rings.len().min(layouts[1].rings.len());
        let [groups, exact_groups] = [0, 1].map(|k| self.groups(layouts[k], rings));
        let mut errors = Vec::new();
        let series =
            (0..options.defoci.len()).flat_map(|d| options.ends.iter().map(move |e| (d, *e)));
        for (n, (defocus, end)) in series.enumerate() {
            let inside = (end < options.slicing.count()).then_some(end);
            // Columns of one focus and plane
            let own = |all: ArrayView2<'_, f64>, layout: &ReadingLayout, columns: &Compared| {
                let values = layout.values();
                columns.of(all.slice(s![.., n * values..(n + 1) * values]), layout.total)
            };
            // The error of each detector
            for ((name, columns), (_, exact_columns)) in groups.iter().zip(&exact_groups) {
                let x = own(reference, layouts[1], exact_columns);
                let hat = own(mine, layouts[0], columns);
                let name = format!("{name}{}", suffix(defocus, inside));
                errors.push(DetectorError::of(name, columns, &hat, &x));
            }
        }
        errors
    }

    // Groups of columns that are compared
    /// The detectors that are compared, by their names; both layouts have so many rings in common.
    fn groups(&self, layout: &ReadingLayout, rings: usize) -> Vec<(String, Compared)> {
        let (probe, bin) = (&self.options().probe, self.detectors().options().bin);
        let mut groups = Vec::new();
        let cones = [[0.0, 1.0], [1.0, 2.0], [2.0, 4.0], [3.0, 5.0]];
        for cone in cones.iter().filter(|_| layout.annuli.is_empty()) {
            let [first, end] = cone.map(|times| (times * probe.semi_angle / bin).round() as usize);
            let end = end.min(rings);
            if first < end {
                let [inner, outer] = [first, end].map(|ring| ring as f64 * bin);
                groups.push((format!("rings_{inner}_{outer}"), Compared::Sum(first..end)));
            }
        }
        for (k, column) in layout.annuli.clone().enumerate() {
            groups.push((format!("annulus_{k}"), Compared::Sum(column..column + 1)));
        }
        for (k, sectors) in layout.segmented.iter().enumerate() {
            groups.push((format!("segmented_{}", k + 1), Compared::Each(sectors.clone())));
        }
        if !layout.moments.is_empty() {
            groups.push(("centre_of_mass".into(), Compared::Ratio(layout.moments.clone())));
        }
        groups
    }
}

// Electrons that PRISM keeps
/// Probes whose electrons are compared at the beginning of a scan.
const COUNTED: usize = 4;

/// Name of the stage that computes these probes by multislice, to count their electrons.
const COUNTING: &str = "electrons by multislice";

impl StemPlan {
    // Electrons kept by multislice
    /// Electrons that multislice keeps in the first configuration at a few of these places, the mean of all foci and planes, by the number of the place in the
    /// part; none where PRISM does not interpolate.
    ///
    /// # Errors
    /// As for [running](crate::plan::Plan::run).
    pub fn kept_by_multislice(
        &self,
        places: &Range<usize>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Vec<(usize, f64)>, Error> {
        match self.options().method {
            StemMethod::Prism { factor, .. } if factor != [1, 1] => {}
            _ => return Ok(Vec::new()),
        }
        // The first configuration by multislice
        let all = self.by_multislice(1)?;
        let phonons = Phonons {
            configurations: self.options().phonons.configurations.min(1),
            ..self.options().phonons
        };
        let options = all.options().clone().phonons(phonons);
        let first = Self::new(self.tiled_specimen().clone(), options)?;
        // Probes at the beginning of a part
        let early = places.len().div_ceil(20);
        let each = early.div_ceil(COUNTED);
        let numbers: Vec<usize> = (0..early).step_by(each).collect();
        let at: Vec<_> =
            numbers.iter().map(|k| self.options().scan.place(places.start + k)).collect();
        watch.stage(COUNTING, "");
        let readings = first.mean_at(engine, &at, watch)?;
        let kept = readings.outer_iter().map(|row| first.total_of(row));
        Ok(numbers.into_iter().zip(kept).collect())
    }

    // The stage that counts electrons
    /// The stage in which these electrons are counted, where they are.
    ///
    /// # Errors
    /// As for [`by_multislice`](Self::by_multislice).
    pub fn counting(&self, engine: &Engine) -> Result<Option<Stage>, Invalid> {
        let StemMethod::Prism { factor, .. } = self.options().method else { return Ok(None) };
        let waves = COUNTED * self.options().defoci.len();
        let stages = self.by_multislice(1)?.following(COUNTING, waves, engine);
        let seconds = stages.iter().map(|stage| stage.seconds).sum::<f64>();
        let seconds = seconds / self.configurations() as f64;
        Ok(Some(Stage { name: COUNTING, seconds }).filter(|_| factor != [1, 1]))
    }

    // Compare the electrons that are kept
    /// Compares the electrons of the first readings of a part with those that [multislice keeps](Self::kept_by_multislice).
    ///
    /// # Errors
    /// `Invalid` where they differ by more than 1 % of the beam.
    pub fn check_kept(
        &self,
        by_multislice: &[(usize, f64)],
        readings: &StemReadings,
    ) -> Result<(), Invalid> {
        let ready = if readings.done[0] > 0 { readings.places.len() } else { readings.done[1] };
        let pairs = by_multislice.iter().filter(|(k, _)| *k < ready);
        let pairs: Vec<[f64; 2]> =
            pairs.map(|(k, kept)| [self.total_of(readings.mean.row(*k)), *kept]).collect();
        let count = pairs.len().max(1) as f64;
        let [mine, exact] = [0, 1].map(|k| pairs.iter().map(|pair| pair[k]).sum::<f64>() / count);
        let StemMethod::Prism { factor, .. } = self.options().method else { return Ok(()) };
        let smaller = factor.map(|f| f.div_ceil(2));
        let expected = format!(
            "windows that keep the electrons: at {} probes PRISM keeps {mine:.4} of the beam and multislice {exact:.4}, and 0.01 is the largest difference; {smaller:?} may do, or a larger tile",
            pairs.len()
        );
        accept((mine - exact).abs() <= MOST_LOST, "interpolation", factor, &expected).map(|_| ())
    }

    // Electrons in a row of readings
    /// The electrons in a row of readings, the mean of all foci and planes.
    fn total_of(&self, row: ArrayView1<'_, f64>) -> f64 {
        let layout = self.detectors().layout();
        let (values, total) = (layout.values(), layout.total);
        let count = row.len() / values.max(1);
        (0..count).map(|n| row[n * values + total]).sum::<f64>() / count.max(1) as f64
    }
}

// Columns that are compared
/// Columns of a row that are compared.
enum Compared {
    /// Their sum.
    Sum(Range<usize>),
    /// Each of them.
    Each(Range<usize>),
    /// Each of them over all electrons.
    Ratio(Range<usize>),
}

impl Compared {
    /// What is compared of rows (place, reading).
    fn of(&self, rows: ArrayView2<'_, f64>, total: usize) -> Vec<f64> {
        let of_row = |row: ArrayView1<'_, f64>| match self {
            Self::Sum(range) => vec![row.slice(s![range.clone()]).sum()],
            Self::Each(range) => row.slice(s![range.clone()]).to_vec(),
            Self::Ratio(range) => {
                let total = row[total].max(f64::MIN_POSITIVE);
                range.clone().map(|k| row[k] / total).collect()
            }
        };
        rows.outer_iter().flat_map(of_row).collect()
    }
}

// The error of one detector
impl DetectorError {
    /// The error of what PRISM says against what multislice says.
    fn of(name: String, columns: &Compared, hat: &[f64], x: &[f64]) -> Self {
        let mean_square = |x: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = x.fold((0.0, 0.0), |(sum, n), x| (sum + x * x, n + 1.0));
            (sum / f64::max(count, 1.0)).sqrt()
        };
        let scale = match columns {
            Compared::Ratio(_) => mean_square(&mut x.iter().copied()),
            _ => x.iter().sum::<f64>() / x.len().max(1) as f64,
        };
        let gaps = || hat.iter().zip(x).map(|(hat, x)| hat - x);
        let largest = gaps().fold(0.0, |most: f64, gap| most.max(gap.abs()));
        let share =
            |error: f64| if error == 0.0 { 0.0 } else { error / scale.max(f64::MIN_POSITIVE) };
        let rms = share(mean_square(&mut gaps()));
        Self { name, scale, rms, largest: share(largest) }
    }
}
// Warn of a large error of PRISM
/// The largest error of PRISM, in shares of the mean, that is not warned of.
pub const LARGE_ERROR: f64 = 0.05;

impl Comparison {
    /// A warning of the detectors whose error exceeds 5 % at a probe, with what to change in the file of a plan; none where all are within it.
    pub fn warnings(&self, plan: &StemPlan) -> Vec<String> {
        let StemMethod::Prism { factor, .. } = plan.options().method else { return Vec::new() };
        let large = self
            .detectors
            .iter()
            .filter(|error| error.largest.is_nan() || error.largest > LARGE_ERROR);
        let large: Vec<String> = large
            .map(|error| format!("{} by up to {:.1} %", error.name, 100.0 * error.largest))
            .collect();
        if large.is_empty() {
            return Vec::new();
        }
        // A warning with its remedy
        let remedy = match factor {
            [1, 1] => "a larger method.margin".to_string(),
            _ => format!(
                "method.interpolation = {:?} in place of {factor:?}, or a larger sample.tile",
                factor.map(smaller_factor)
            ),
        };
        vec![format!(
            "PRISM differs from multislice by more than {} %: {}; {remedy}, reduces the error",
            100.0 * LARGE_ERROR,
            large.join(", ")
        )]
    }
}

// The next smaller factor of PRISM
/// The largest divisor of a factor that is smaller, and at least 1.
fn smaller_factor(factor: usize) -> usize {
    (1..factor).rev().find(|&divisor| factor.is_multiple_of(divisor)).unwrap_or(1)
}

// Tests of comparisons
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::scan::tests::{plan, whole};
    use crate::numerics::Precision;
    use crate::watch::unwatched;

    fn shared(factor: [usize; 2], annuli: bool) -> StemPlan {
        let plan = plan(2);
        let method = StemMethod::Prism { factor, refocus: 0.0, margin: None };
        let mut options = plan.options().clone().method(method);
        options.detectors.bin = 4.0;
        if !annuli {
            options.detectors.annuli.clear();
        }
        StemPlan::new(plan.specimen().clone(), options).unwrap()
    }

    // Errors of few and of all beams
    #[test]
    fn errors_are_those_of_the_two_ways() {
        let engine = Engine::cpu(Precision::F64);
        let all = shared([1, 1], false);
        let readings = whole(&all, Precision::F64);
        let found = all.compare(&readings, 3, 1, &engine, &unwatched).unwrap();
        assert_eq!(found.places.len(), 3);
        let names: Vec<_> = found.detectors.iter().map(|one| &one.name[..]).collect();
        assert_eq!(
            names[..3],
            ["rings_0_20_after_1", "rings_20_44_after_1", "rings_44_76_after_1"]
        );
        assert!(names.contains(&"centre_of_mass") && names.contains(&"rings_0_20_2"));
        assert!(found.detectors.iter().all(|one| one.largest < 1e-11 && one.scale > 0.0));
        let same = all.compare(&readings, 3, 1, &engine, &unwatched).unwrap();
        assert!(same == found);
        for gpu in crate::device::gpu::test_backends() {
            let engine = Engine::gpus(vec![gpu], Precision::F64).unwrap();
            let there = all.compare(&readings, 3, 1, &engine, &unwatched).unwrap();
            assert!(there.places == found.places && there != found);
            for (there, here) in there.detectors.iter().zip(&found.detectors) {
                assert!(there.largest < 1e-11 && (there.scale / here.scale - 1.0).abs() < 1e-11);
            }
        }
        assert_ne!(all.compare(&readings, 3, 2, &engine, &unwatched).unwrap().places, found.places);
        // Every other beam along x, all places: the errors by hand
        let few = shared([2, 1], true);
        let mine = whole(&few, Precision::F64);
        let found = few.compare(&mine, 1000, 1, &engine, &unwatched).unwrap();
        assert_eq!(found.places, (0..40).collect::<Vec<_>>());
        let exact = few.by_multislice(1).unwrap();
        let truth = whole(&exact, Precision::F64);
        let column = few.detectors().layout().annuli.start;
        let (hat, x) = (mine.mean.column(column), truth.mean.column(column));
        let scale = x.mean().unwrap();
        let gaps = (&hat - &x) / scale;
        let rms = (gaps.mapv(|gap| gap * gap).mean().unwrap()).sqrt();
        let error = &found.detectors[0];
        assert_eq!(error.name, "annulus_0_after_1");
        assert!((error.rms / rms - 1.0).abs() < 1e-9 && (error.scale / scale - 1.0).abs() < 1e-9);
        let largest = gaps.iter().fold(0.0f64, |most, gap| most.max(gap.abs()));
        assert!((error.largest / largest - 1.0).abs() < 1e-9 && rms > 1e-4);
        let refused = |found: Result<Comparison, Error>| match found {
            Err(Error::Invalid(invalid)) => invalid.quantity,
            _ => unreachable!("refused"),
        };
        assert_eq!(refused(few.compare(&mine, 0, 1, &engine, &unwatched)), "compare");
        assert_eq!(refused(exact.compare(&truth, 4, 1, &engine, &unwatched)), "compare");
        let part = few.begin(0..3).unwrap();
        assert_eq!(refused(few.compare(&part, 4, 1, &engine, &unwatched)), "readings");
        let [some, more] = [4, 400].map(|count| few.comparing(count, &engine).seconds);
        assert!(0.0 < some && some < more && more < 11.0 * some);
    }

    // Lost electrons are found at the first probes
    #[test]
    fn lost_electrons_are_found_at_the_first_probes() {
        let engine = Engine::cpu(Precision::F64);
        let few = shared([2, 1], true);
        let places = 0..few.places();
        let kept = few.kept_by_multislice(&places, &engine, &unwatched).unwrap();
        assert_eq!(kept.iter().map(|(k, _)| *k).collect::<Vec<_>>(), [0, 1]);
        let exact = few.by_multislice(1).unwrap();
        let phonons = Phonons { configurations: 1, ..exact.options().phonons };
        let options = exact.options().clone().phonons(phonons);
        let exact = StemPlan::new(exact.tiled_specimen().clone(), options).unwrap();
        let truth = whole(&exact, Precision::F64);
        assert!(
            kept.iter().all(|(k, kept)| (kept - exact.total_of(truth.mean.row(*k))).abs() < 1e-12)
        );
        // Readings that keep as much pass, and those that keep 1.5 % more or less do not
        let (values, total) = (few.detectors().values(), few.detectors().layout().total);
        let of = |share: f64| {
            let mut readings = few.begin(places.clone()).unwrap();
            for (k, kept) in &kept {
                for column in (total..few.readings()).step_by(values) {
                    readings.mean[[*k, column]] = kept + share;
                }
            }
            readings.done = [0, 2];
            few.check_kept(&kept, &readings)
        };
        assert!(of(0.0).is_ok() && of(-0.009).is_ok());
        for share in [-0.015, 0.015, f64::NAN] {
            let refused = of(share).unwrap_err();
            assert_eq!((&*refused.quantity, &*refused.value), ("interpolation", "[2, 1]"));
        }
        let all = shared([1, 1], true);
        assert!(all.kept_by_multislice(&places, &engine, &unwatched).unwrap().is_empty());
        assert!(all.check_kept(&[], &few.begin(places).unwrap()).is_ok());
    }
}
