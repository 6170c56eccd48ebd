// Tangled from book/src/scan-images.md: edit there, or here and run cargo tangle stitch.
//! What is done to the readings of a whole scan: the size of the source, and electrons one by one.

// Imports of postprocessed readings
use super::detector::ReadingLayout;
use super::scan::{StemPlan, StemReadings};
#[cfg(doc)]
use super::scan_images::integrated;
use super::scan_images::{Edge, blurred, counted};
use crate::error::{Invalid, accept, not_negative};
use ndarray::parallel::prelude::*;
use ndarray::{Array2, Axis, s};
use rand::{SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, StandardNormal};
use std::borrow::Cow;
use std::ops::Range;

// What is done to readings
/// What is done to the readings of a whole scan before they become images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finishing {
    /// Radius of the source along each axis, as an image in the specimen, rms \[Å\].
    pub source_size: f64,
    /// Electrons for each position of the probe; without, images are shares of the beam and have no noise.
    pub dose: Option<f64>,
    /// What the noise of the dose is drawn from.
    pub seed: u64,
    /// What lies beyond the scan.
    pub edge: Edge,
    /// Whether centres of mass are [integrated], too.
    pub integrated_centre: bool,
}

impl Default for Finishing {
    /// Nothing is done.
    fn default() -> Self {
        let edge = Edge::Mirrored;
        Self { source_size: 0.0, dose: None, seed: 0, edge, integrated_centre: false }
    }
}

// Names of a series
/// `_2` for the second defocus, `_after_20` for a plane behind 20 slices.
pub(super) fn suffix(defocus: usize, inside: Option<usize>) -> String {
    let defocus = if defocus == 0 { String::new() } else { format!("_{}", defocus + 1) };
    inside.map_or(defocus.clone(), |slices| format!("{defocus}_after_{slices}"))
}

// Finish the readings of a scan
impl Finishing {
    /// The readings of a whole scan as this source and this dose give them; with a dose they are numbers of electrons.
    ///
    /// # Errors
    /// `Invalid` where readings are not of the whole plan, and as [`blurred`] and [`counted`].
    pub fn finish<'a>(
        &self,
        plan: &StemPlan,
        readings: &'a StemReadings,
    ) -> Result<Cow<'a, StemReadings>, Invalid> {
        let (places, shape) = (0..plan.places(), (plan.places(), plan.readings()));
        let whole = readings.places == places && readings.mean.dim() == shape;
        accept(whole, "readings", &readings.places, "readings of all places")?;
        let mut finished = Cow::Borrowed(readings);
        // Blur and count readings
        if not_negative("source_size", self.source_size)? > 0.0 {
            let StemReadings { mean, squares, .. } = finished.to_mut();
            self.blur(plan, mean)?;
            squares.mapv_inplace(f64::sqrt);
            self.blur(plan, squares)?;
            squares.mapv_inplace(|spread| spread.max(0.0).powi(2));
        }
        if let Some(electrons) = self.dose {
            let StemReadings { mean, squares, .. } = finished.to_mut();
            self.count(plan, electrons, mean)?;
            *squares *= electrons * electrons;
        }
        Ok(finished)
    }

    // Smooth all columns of readings
    /// Smooths each column by the source.
    fn blur(&self, plan: &StemPlan, columns: &mut Array2<f64>) -> Result<(), Invalid> {
        let scan = &plan.options().scan;
        let [nx, ny] = scan.counts();
        columns.axis_iter_mut(Axis(1)).into_par_iter().try_for_each(|mut column| {
            let image = Array2::from_shape_fn((ny, nx), |(j, i)| column[i * ny + j]);
            let image = blurred(image.view(), scan.step(), self.source_size, self.edge)?;
            column.iter_mut().zip(image.t()).for_each(|(to, from)| *to = *from);
            Ok(())
        })
    }

    // Count the electrons of all readings
    /// Makes counts of shares of the beam.
    fn count(
        &self,
        plan: &StemPlan,
        electrons: f64,
        mean: &mut Array2<f64>,
    ) -> Result<(), Invalid> {
        let (row, values) = (plan.detectors().layout(), plan.detectors().values());
        for (n, mut own) in mean.axis_chunks_iter_mut(Axis(1), values).enumerate() {
            let shares = own.to_owned();
            let columns = own.axis_iter_mut(Axis(1)).into_par_iter().enumerate();
            columns.try_for_each(|(k, mut column)| {
                let Some(address) = row.address(k) else { return Ok::<(), Invalid>(()) };
                let shares = column.mapv(|share| share.max(0.0)).insert_axis(Axis(0));
                let seed = mixed(self.seed, [n, address[0], address[1]]);
                column.assign(&counted(shares.view(), electrons, seed)?.index_axis(Axis(0), 0));
                Ok(())
            })?;
            // Count what consists of rings
            let rings = own.slice(s![.., row.rings.clone()]).to_owned();
            let all = rings.sum_axis(Axis(1)) + own.column(row.corners);
            own.column_mut(row.total).assign(&all);
            for (k, column) in row.annuli.clone().enumerate() {
                if let Some(range) = plan.detectors().rings_of(k) {
                    let sum = rings.slice(s![.., range]).sum_axis(Axis(1));
                    own.column_mut(column).assign(&sum);
                }
            }
            // Count deflected electrons
            if !row.moments.is_empty() {
                let beam = &plan.options().probe.beam;
                let squares = plan.detectors().middles();
                let squares: Vec<f64> =
                    squares.iter().map(|angle| beam.frequency(*angle).powi(2)).collect();
                let beyond = beam.frequency(plan.detectors().widest()).powi(2);
                let mut random = StdRng::seed_from_u64(mixed(self.seed, [n, 3, 0]));
                for (mut own, shares) in own.outer_iter_mut().zip(shares.outer_iter()) {
                    let (light, count) = (shares[row.total], own[row.total]);
                    let centre = row
                        .moments
                        .clone()
                        .map(|k| if light > 0.0 { shares[k] / light } else { 0.0 });
                    let rings =
                        row.rings.clone().zip(&squares).map(|(k, square)| shares[k] * square);
                    let square = rings.sum::<f64>() + shares[row.corners] * beyond;
                    let away = centre.clone().map(|c| c * c).sum::<f64>();
                    let spread =
                        (0.5 * (square / light.max(f64::MIN_POSITIVE) - away)).max(0.0).sqrt();
                    for (k, c) in row.moments.clone().zip(centre) {
                        let normal: f64 = StandardNormal.sample(&mut random);
                        own[k] = count * c + count.sqrt() * spread * normal;
                    }
                }
            }
        }
        Ok(())
    }
}

// Addresses of counted columns
impl ReadingLayout {
    /// The kind and number of a column whose electrons are counted one by one; none for those that follow from others.
    fn address(&self, k: usize) -> Option<[usize; 2]> {
        let inside = |range: &Range<usize>| range.contains(&k).then(|| k - range.start);
        let sector = |(n, range): (usize, &Range<usize>)| inside(range).map(|k| [16 + n, k]);
        let kinds = [(0, &self.rings), (1, &self.annuli), (2, &self.pattern)];
        let mut kinds = kinds.into_iter();
        kinds
            .find_map(|(kind, range)| inside(range).map(|k| [kind, k]))
            .or((k == self.corners).then_some([4, 0]))
            .or_else(|| self.segmented.iter().enumerate().find_map(sector))
    }
}

/// A seed made of another one and an address, by the finishing steps of SplitMix64. The seed is scrambled before the address enters: else
/// seed 0 at address 1 would be seed 1 at address 0.
fn mixed(seed: u64, address: [usize; 3]) -> u64 {
    let scrambled = |x: u64| {
        let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    address.into_iter().fold(scrambled(seed), |seed, word| scrambled(seed ^ word as u64))
}

// Tests of finished readings
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::scan::tests::{plan, whole};
    use crate::numerics::Precision;

    // Finished readings are smoothed and counted
    #[test]
    fn sources_smooth_all_readings() {
        let plan = plan(2);
        let readings = whole(&plan, Precision::F64);
        let same = Finishing::default().finish(&plan, &readings).unwrap();
        assert!(matches!(same, Cow::Borrowed(_)));
        let finishing = Finishing { source_size: 0.7, edge: Edge::Periodic, ..Default::default() };
        let found = finishing.finish(&plan, &readings).unwrap().into_owned();
        let [nx, ny] = plan.options().scan.counts();
        assert_eq!([nx, ny], [8, 5]);
        for k in [0, 4, plan.readings() - 1] {
            let image = Array2::from_shape_fn((ny, nx), |(j, i)| readings.mean[[i * ny + j, k]]);
            let image = blurred(image.view(), [0.8, 0.7], 0.7, Edge::Periodic).unwrap();
            for (i, j) in [(0, 0), (7, 1), (3, 4)] {
                assert_eq!(found.mean[[i * ny + j, k]], image[[j, i]]);
            }
        }
        let [before, after] = [&readings, &found].map(|one| one.standard_error().unwrap());
        assert!((before.sum() - after.sum()).abs() < 1e-9 * before.sum() && before != after);
        let part = plan.begin(0..3).unwrap();
        assert_eq!(finishing.finish(&plan, &part).unwrap_err().quantity, "readings");
        for bad in [
            Finishing { source_size: -1.0, ..Default::default() },
            Finishing { dose: Some(0.0), ..Default::default() },
        ] {
            assert!(bad.finish(&plan, &readings).is_err());
        }
    }

    #[test]
    fn electrons_are_counted_by_detector() {
        let plan = plan(2);
        let readings = whole(&plan, Precision::F64);
        let (row, values) = (plan.detectors().layout(), plan.detectors().values());
        let finish = |dose, seed| {
            let finishing = Finishing { dose: Some(dose), seed, ..Default::default() };
            finishing.finish(&plan, &readings).unwrap().into_owned()
        };
        let few = finish(300.0, 1);
        assert_eq!((row.pattern.end, few.mean.ncols()), (values, 4 * values));
        assert!(few == finish(300.0, 1) && few.mean != finish(300.0, 2).mean);
        let first = |n: usize, k: usize| n * values + k;
        for n in 0..4 {
            let ring = |k: usize| few.mean.column(first(n, k));
            // The annulus from 20 to 60 mrad has rings of 5 mrad, whole electrons each
            let sum = (4..12).fold(&ring(4) * 0.0, |sum, k| sum + ring(k));
            assert_eq!(sum, ring(row.annuli.start));
            assert!(ring(2).iter().all(|x| x.fract() == 0.0 && *x >= 0.0));
            let all = row.rings.clone().fold(&ring(0) * 0.0, |sum, k| sum + ring(k));
            assert_eq!(all + ring(row.corners), ring(row.total));
            assert_ne!(ring(1), few.mean.column(first((n + 1) % 4, 1)));
        }
        let (all, expected) = (few.mean.sum(), 300.0 * readings.mean.sum());
        assert!((all / expected - 1.0).abs() < 0.05, "{all} {expected}");
        let [before, after] = [&readings, &few].map(|one| one.standard_error().unwrap());
        assert!((after - before * 300.0).iter().all(|x| x.abs() < 1e-9));
    }

    // Counts of deflected electrons
    #[test]
    fn centres_of_few_electrons_scatter_as_they_should() {
        let plan = plan(0);
        let readings = whole(&plan, Precision::F64);
        let (row, dose) = (plan.detectors().layout(), 400.0);
        let centre = |readings: &StemReadings, place: usize, axis: usize| {
            let values = readings.mean.row(place);
            values[row.moments.start + axis] / values[row.total]
        };
        let mut sums = [0.0; 2];
        for seed in 0..8 {
            let finishing = Finishing { dose: Some(dose), seed, ..Default::default() };
            let found = finishing.finish(&plan, &readings).unwrap();
            for place in 0..plan.places() {
                for (axis, sum) in sums.iter_mut().enumerate() {
                    *sum += (centre(&found, place, axis) - centre(&readings, place, axis)).powi(2);
                }
            }
        }
        // A cone of 21 mrad at 80 kV has a variance of a quarter of its square along each axis, and what is scattered adds to it
        let cone = plan.options().probe.beam.frequency(21.0).powi(2) / 4.0 / dose;
        for sum in sums {
            let variance = sum / (8.0 * plan.places() as f64);
            assert!((0.85..1.4).contains(&(variance / cone)), "{}", variance / cone);
        }
        assert!((sums[0] / sums[1] - 1.0).abs() < 0.3, "{sums:?}");
    }

    // Seeds of counts are independent
    #[test]
    fn seeds_of_counts_are_independent() {
        let mut known = std::collections::HashSet::new();
        for seed in [0, 1, 2, 3, u64::MAX, u64::MAX - 1] {
            for n in 0..4 {
                for kind in 0..4 {
                    let all = (0..4).map(|k| mixed(seed, [n, kind, k]));
                    all.for_each(|mixed| assert!(known.insert(mixed), "{seed} {n} {kind}"));
                }
            }
        }
    }
}
