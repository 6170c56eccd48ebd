// Tangled from book/src/sets.md: edit there, or here and run cargo tangle stitch.
//! Lattice groups: the sensors of each lattice with many slopes, and one unstructured group of all others.

use crate::model::lenslet_array::SlopeOrder;
use crate::model::sensor::Groups;
use ndarray::Array2;
use std::ops::Range;

// Lattice groups of sensors
/// Largest number of slopes in the unstructured group.
const MOST_UNSTRUCTURED: usize = 256;

// The documentation of lattice groups
/// Lattice groups of a system's sensors: one for each lattice with many slopes, then an unstructured one of all others, if there are any.
///
/// ```
/// use lenslet::model::{LensletArray, Sensor, SlopeOrder, Source};
/// use lenslet::{model::Groups, turbulence::LatticeGroups};
/// use ndarray::Array2;
/// let sensor = |height, lenslets| {
///     let array = LensletArray::new(lenslets, 8.0 / lenslets as f64)?;
///     Ok::<_, lenslet::Invalid>(Sensor::at_rest(Source::new(1e-4, 0.0, height)?, array))
/// };
/// let sensors = [sensor(f64::INFINITY, 2)?, sensor(90e3, 16)?, sensor(90e3, 16)?];
/// let all = |lenslets| Array2::from_elem((lenslets, lenslets), true);
/// let order = SlopeOrder::new(&[all(2), all(16), all(16)]);
/// let sets = LatticeGroups::new(&Groups::new(&sensors), &order);
/// assert_eq!((sets.members(0), sets.members(1)), (&[1, 2][..], &[0][..]));
/// assert_eq!((sets.lattices(), sets.unstructured()), (1, Some(1)));
/// // 15 376 compressed numbers, 8192 between the groups and 64 unstructured ones; a dense matrix has 1 065 024.
/// let [lattice, unstructured] = [sets.slopes(0), sets.slopes(1)];
/// assert_eq!((lattice, unstructured, lattice + unstructured), (1024, 8, 1032));
/// assert_eq!(4 * 4 * 31 * 31 + lattice * unstructured + unstructured * unstructured, 23_632);
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatticeGroups {
    members: Vec<Vec<usize>>,
    lattices: usize,
    /// Indices of each sensor's slopes in the vector of all slopes.
    places: Vec<Range<usize>>,
}

// Methods of the lattice groups
impl LatticeGroups {
    // Join small lattices into one group
    /// Lattice groups of a system whose `groups` share a lattice each, and whose slopes are in this order.
    pub fn new(groups: &Groups, order: &SlopeOrder) -> Self {
        Self::of_at_most(MOST_UNSTRUCTURED, groups, order)
    }

    /// Lattice groups of a system, with at most `limit` slopes in the unstructured one.
    fn of_at_most(limit: usize, groups: &Groups, order: &SlopeOrder) -> Self {
        let count = |q: usize| 2 * order.lenslets(q).len();
        let slopes = |members: &[usize]| members.iter().map(|&q| count(q)).sum::<usize>();
        let mut ranked: Vec<_> =
            groups.members().map(|members| (slopes(members), members)).collect();
        ranked.sort_by_key(|(slopes, _)| *slopes);
        ranked.pop();
        let (mut small, mut total) = (Vec::new(), 0);
        for (slopes, members) in ranked {
            total += slopes;
            if total > limit {
                break;
            }
            small.extend(members.iter().copied());
        }
        // List the large lattices, then the unstructured group
        small.sort_unstable();
        let is_large = |members: &&[usize]| !small.contains(&members[0]);
        let large = groups.members().filter(is_large).map(<[usize]>::to_vec);
        let mut members: Vec<Vec<usize>> = large.collect();
        let lattices = members.len();
        members.extend((!small.is_empty()).then_some(small));
        let sensors = members.iter().map(Vec::len).sum();
        let places = (0..sensors).map(|q| order.index(q, 0, 0)..order.index(q, 0, 0) + count(q));
        Self { members, lattices, places: places.collect() }
    }
    // Look up groups and their sensors
    /// The numbers of a group's sensors, ascending.
    pub fn members(&self, set: usize) -> &[usize] {
        &self.members[set]
    }

    /// Number of groups whose sensors share a lattice; they come first.
    pub fn lattices(&self) -> usize {
        self.lattices
    }

    /// Index of the unstructured group, if there is one.
    pub fn unstructured(&self) -> Option<usize> {
        (self.members.len() > self.lattices).then_some(self.lattices)
    }

    /// Indices of all groups.
    pub fn all(&self) -> Range<usize> {
        0..self.members.len()
    }
    // Look up pairs and slopes of groups
    /// All pairs of two groups, by their indices, the lower one first.
    pub fn pairs(&self) -> Vec<[usize; 2]> {
        self.all().flat_map(|a| (a + 1..self.members.len()).map(move |b| [a, b])).collect()
    }

    /// Index of each sensor's group.
    pub fn of_sensors(&self) -> Vec<usize> {
        let set = |q| self.members.iter().position(|members| members.contains(&q)).unwrap_or(0);
        (0..self.places.len()).map(set).collect()
    }

    /// Indices of the slopes of a group's sensors in the vector of all slopes, a range for each sensor.
    pub fn places(&self, set: usize) -> Vec<Range<usize>> {
        self.members[set].iter().map(|&q| self.places[q].clone()).collect()
    }

    /// Number of slopes of a group.
    pub fn slopes(&self, set: usize) -> usize {
        self.members[set].iter().map(|&q| self.places[q].len()).sum()
    }

    /// The elements of a group's sensors in a list with one element for each sensor.
    pub(crate) fn pick<V: Clone>(&self, set: usize, all: &[V]) -> Vec<V> {
        self.members[set].iter().map(|&q| all[q].clone()).collect()
    }
}

// Cross blocks of the covariance
/// Dense blocks of the slope covariance matrix: those between lattice groups, and that of the unstructured group, rad².
#[derive(Debug, Clone)]
pub struct CrossBlocks {
    /// The lattice groups of the sensors.
    pub sets: LatticeGroups,
    /// Covariance of the unstructured group's slopes, if there is one.
    pub unstructured: Option<Array2<f64>>,
    /// Covariances of the slopes of one group, as rows, with those of another, as columns, in the order of [`LatticeGroups::pairs`].
    pub between: Vec<Array2<f64>>,
}

// Names of arrays in blocks
/// Name in a file of the slope covariance of a group with a lattice.
pub(crate) fn slopes_name(set: usize) -> String {
    format!("slope_slope_{set}")
}

/// Name in a file of the slope covariance of the unstructured group.
pub(crate) fn unstructured_name(set: usize) -> String {
    format!("slope_slope_dense_{set}")
}

/// Name in a file of the covariance of the slopes of two groups.
pub(crate) fn between_name([first, second]: [usize; 2]) -> String {
    format!("slopes_between_{first}_{second}")
}

/// Name in a file of the covariance of wavefronts with a group that shares a lattice with them; `k` counts the lattices of layers.
pub(crate) fn wavefront_name(layered: bool, set: usize, k: usize) -> String {
    if layered { format!("wavefront_slope_{set}_{k}") } else { format!("wavefront_slope_{set}") }
}

/// Name in a file of the covariance of wavefronts with a group that shares no lattice with them.
pub(crate) fn wavefront_unstructured_name(set: usize) -> String {
    format!("wavefront_slope_dense_{set}")
}

// Tests of the lattice groups
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{lenslet_array::LensletArray, sensor::Sensor, source::Source};

    #[test]
    fn the_largest_lattice_stays_and_the_others_join_while_they_are_few() {
        let sizes = [(5, 90e3), (2, 80e3), (5, 90e3), (3, 70e3), (6, f64::INFINITY)];
        let sensor = |(lenslets, height)| {
            let array = LensletArray::new(lenslets, 0.5).unwrap();
            Sensor::at_rest(Source::new(0.0, 0.0, height).unwrap(), array)
        };
        let groups = Groups::new(&sizes.map(sensor));
        let masks = sizes.map(|(lenslets, _)| Array2::from_elem((lenslets, lenslets), true));
        let order = SlopeOrder::new(&masks);
        let sets = |limit| LatticeGroups::of_at_most(limit, &groups, &order);
        let members = |limit| sets(limit).members;
        assert_eq!(members(7), [vec![0, 2], vec![1], vec![3], vec![4]]);
        assert_eq!(members(25), [vec![0, 2], vec![3], vec![4], vec![1]]);
        assert_eq!(members(26), [vec![0, 2], vec![4], vec![1, 3]]);
        assert_eq!(members(1000), [vec![0, 2], vec![1, 3, 4]]);
        // Look up pairs, sensors and slopes of the groups
        let sets = sets(26);
        assert_eq!((sets.lattices(), sets.unstructured(), sets.all()), (2, Some(2), 0..3));
        assert_eq!(sets.pairs(), [[0, 1], [0, 2], [1, 2]]);
        assert_eq!(sets.of_sensors(), [0, 2, 0, 2, 1]);
        assert_eq!((sets.places(0), sets.slopes(0)), (vec![0..50, 58..108], 100));
        assert_eq!(
            (sets.places(2), sets.pick(2, &[5, 6, 7, 8, 9])),
            (vec![50..58, 108..126], vec![6, 8])
        );
        let one = Groups::new(&[sensor(sizes[1])]);
        assert_eq!(LatticeGroups::new(&one, &SlopeOrder::new(&masks[1..2])).unstructured(), None);
    }
}
