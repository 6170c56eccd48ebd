// Tangled from book/src/potentials.md: edit there, or here and run cargo tangle stitch.
//! Atoms as potentials need them.

// Imports of sites
use crate::specimen::{Atom, Element, Slicing, Specimen};

// Atoms as potentials need them
/// An atom as potentials need it: the number of its element among those of the specimen, its position \[Å\] and its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Site {
    pub(super) kind: usize,
    pub(super) place: [f64; 3],
    pub(super) weight: f64,
}

// Sites of a specimen
/// The atoms of non-zero occupancy; `elements` are in order.
pub(super) fn sites(specimen: &Specimen, elements: &[Element]) -> Vec<Site> {
    let there = specimen.atoms().iter().filter(|atom| atom.occupancy > 0.0);
    let kind = |element: Element| elements.partition_point(|&known| known < element);
    let site = |atom: &Atom| Site {
        kind: kind(atom.element),
        place: atom.position,
        weight: atom.occupancy,
    };
    there.map(site).collect()
}

// Sites sorted by slice
/// Each slice's atoms.
pub(super) fn by_slice(slicing: &Slicing, sites: Vec<Site>) -> Vec<Vec<Site>> {
    let mut slices = vec![Vec::new(); slicing.count()];
    for site in sites {
        slices[slicing.slice_of(site.place[2])].push(site);
    }
    slices
}
