// Tangled from book/src/scan-checkpoints.md: edit there, or here and run cargo tangle stitch.
//! Readings of single configurations of a scan, and their average.

// Imports of single configurations
use super::scan::{StemPlan, StemReadings};
use crate::device::{Engine, refuse_beyond_memory};
use crate::error::{Error, Invalid, accept, count};
use crate::plan::Plan;
use crate::watch::Watch;
use ndarray::{Array2, Array3, Axis};
use std::ops::Range;

// Readings of single configurations
/// Readings of a part of a scan in each of some configurations, before they are [averaged](StemPlan::average).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ConfigurationReadings {
    /// The positions of this part among all.
    pub places: Range<usize>,
    /// The configurations of this part among all.
    pub configurations: Range<usize>,
    /// Readings: (configuration, place, reading), each in the order of [`StemReadings::mean`].
    pub values: Array3<f64>,
}

impl StemPlan {
    // Run single configurations
    /// Runs some configurations at some positions and keeps the readings of each.
    ///
    /// # Errors
    /// Those of [`run`](crate::plan::Plan::run); `Invalid` for positions or configurations that the scan lacks.
    pub fn run_configurations(
        &self,
        engine: &Engine,
        places: Range<usize>,
        configurations: Range<usize>,
        watch: &dyn Watch,
    ) -> Result<ConfigurationReadings, Error> {
        // Check the memory of single configurations
        self.accept_places(&places)?;
        self.accept_configurations(&configurations)?;
        self.check(engine)?;
        let numbers =
            configurations.len().saturating_mul(places.len()).saturating_mul(self.readings());
        refuse_beyond_memory(8_u64.saturating_mul(numbers as u64), || {
            format!("readings of {}", count(configurations.len(), "configuration"))
        })?;
        let mut values = Array3::zeros((configurations.len(), places.len(), self.readings()));
        let done = [configurations.start, 0];
        let mut part = StemReadings { done, squares: Array2::zeros((0, 0)), ..self.begin(places)? };
        self.run_until(engine, &mut part, configurations.end, watch, &mut |now| {
            if now.done[1] == now.places.len() {
                values.index_axis_mut(Axis(0), now.done[0] - done[0]).assign(&now.mean);
            }
            Ok(())
        })?;
        Ok(ConfigurationReadings { places: part.places, configurations, values })
    }

    // Average single configurations
    /// The readings of a share of the positions, averaged over all configurations in their order: those of a run, in every bit.
    ///
    /// # Errors
    /// `Invalid` where parts overlap, leave positions or configurations out, or are of another plan.
    pub fn average(&self, parts: &[ConfigurationReadings]) -> Result<StemReadings, Invalid> {
        parts.iter().try_for_each(|part| self.accept_part(part))?;
        let mut parts: Vec<_> = parts.iter().collect();
        parts.sort_by_key(|part| part.places.start);
        let start = parts.first().map_or(0, |part| part.places.start);
        let end = parts.iter().map(|part| part.places.end).max().unwrap_or(0);
        let mut all = self.begin(start..end)?;
        for c in 0..self.configurations() {
            let mut next = start;
            for part in parts.iter().filter(|part| part.configurations.contains(&c)) {
                refuse_gap(c, next, part.places.start)?;
                let values = part.values.index_axis(Axis(0), c - part.configurations.start);
                let rows = (next - start..).zip(values.outer_iter());
                rows.for_each(|(k, values)| all.add(k, values));
                next = part.places.end;
            }
            refuse_gap(c, next, end)?;
            all.done = [c + 1, 0];
        }
        Ok(all)
    }

    // Check single configurations
    /// Refuses configurations that are none of this plan's.
    fn accept_configurations(&self, configurations: &Range<usize>) -> Result<(), Invalid> {
        let all = self.configurations();
        let good = !configurations.is_empty() && configurations.end <= all;
        let expected = format!("some of {}", count(all, "configuration"));
        accept(good, "configurations", configurations, &expected).map(drop)
    }

    /// Refuses a part of another plan.
    fn accept_part(&self, part: &ConfigurationReadings) -> Result<(), Invalid> {
        self.accept_places(&part.places)?;
        self.accept_configurations(&part.configurations)?;
        let own = (part.configurations.len(), part.places.len(), self.readings());
        let expected = format!("{own:?} of this plan");
        accept(part.values.dim() == own, "readings", part.values.dim(), &expected).map(drop)
    }
}

// Refuse gaps between configuration shares
/// Refuses parts that have positions of configuration `c` twice or not at all: the next one of them should begin at `next`.
fn refuse_gap(c: usize, next: usize, start: usize) -> Result<(), Invalid> {
    let fault = if start < next { "overlap" } else { "leave positions out" };
    let expected = format!("position {next} of configuration {c}: shares {fault}");
    accept(start == next, "share", start, &expected).map(drop)
}

// Tests of single configurations
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::scan::tests::{options, plan, whole};
    use crate::electrons::{Scan, StemMethod, StemRunOptions};
    use crate::numerics::Precision;
    use crate::watch::unwatched;

    // Shares of configurations are joined
    #[test]
    fn shares_of_configurations_are_joined_to_the_bit() {
        let scan = Scan::new([[0.0, 6.4], [1.0, 4.0]], [1.0, 0.7]).unwrap();
        let prism = StemMethod::Prism { factor: [2, 1], refocus: 12.0, margin: None };
        for (method, precision) in
            [(StemMethod::Multislice, Precision::F32), (prism, Precision::F64)]
        {
            let options = options(5).scan(scan).method(method);
            let plan = StemPlan::new(plan(5).specimen().clone(), options).unwrap();
            let engine = Engine::cpu(precision);
            let run = |places: Range<usize>, configurations: Range<usize>| {
                plan.run_configurations(&engine, places, configurations, &unwatched).unwrap()
            };
            let tiles =
                [(20..35, 1..5), (0..11, 2..5), (11..35, 0..1), (0..11, 0..2), (11..20, 1..5)];
            let mut parts =
                tiles.map(|(places, configurations)| run(places, configurations)).to_vec();
            let all = whole(&plan, precision);
            assert_eq!((plan.places(), plan.readings() % 4), (35, 0));
            assert_eq!(plan.average(&parts).unwrap(), all);
            // Shares of positions, each averaged, are collected as those of runs are
            let left = plan.average(&[parts[1].clone(), parts[3].clone()]).unwrap();
            let options = StemRunOptions::default().places(0..11);
            assert_eq!(left, plan.run_with(&engine, options, &unwatched).unwrap());
            // Exchange two configurations
            let mut other = parts.clone();
            other[0].values.invert_axis(Axis(0));
            assert_ne!(plan.average(&other).unwrap(), all);
            // Refuse shares of configurations that do not fit
            let said =
                |parts: &[ConfigurationReadings]| plan.average(parts).unwrap_err().to_string();
            assert!(said(&[]).contains("some of 35 places"), "{}", said(&[]));
            assert!(said(&parts[..4]).contains("leave positions out"), "{}", said(&parts[..4]));
            parts.push(parts[2].clone());
            assert!(said(&parts).contains("position 35 of configuration 0: shares overlap"));
            parts.pop();
            parts[2].values = Array3::zeros((1, 23, plan.readings()));
            assert!(said(&parts).starts_with("readings = (1, 23,"), "{}", said(&parts));
            parts[2].configurations = 4..6;
            assert!(said(&parts).starts_with("configurations = 4..6"), "{}", said(&parts));
        }
    }

    #[test]
    fn a_specimen_at_rest_is_one_configuration() {
        let (plan, engine) = (plan(0), Engine::cpu(Precision::F32));
        let run = |places| plan.run_configurations(&engine, places, 0..1, &unwatched).unwrap();
        let parts = [run(9..40), run(0..9)];
        assert_eq!(plan.average(&parts).unwrap(), whole(&plan, Precision::F32));
        let outside = plan.run_configurations(&engine, 0..9, 1..2, &unwatched).unwrap_err();
        assert!(outside.to_string().contains("some of 1 configuration"), "{outside}");
        assert!(plan.run_configurations(&engine, 0..41, 0..1, &unwatched).is_err());
    }
}
