// Tangled from book/src/view-pieces.md: edit there, or here and run cargo tangle stitch.
//! Sums over diffraction patterns of a scan that is read in pieces.

// Imports of sums over patterns
use super::pieces::Pieces;
use crate::data::{Positions, TypedArray};
use ndarray::{CowArray, IxDyn};
use rayon::prelude::*;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

// Diffraction patterns of one scan
/// Diffraction patterns (x, y, qx, qy) of a variable, at one index along each dimension before these.
#[derive(Debug)]
pub(crate) struct Patterns<'p> {
    file: &'p Pieces,
    variable: usize,
    /// Number of the first element.
    first: usize,
    /// Number of probes, and samples of a pattern along each of its dimensions.
    probes: usize,
    pattern: [usize; 2],
    /// Sampling steps of a pattern, both in the same unit.
    steps: [f64; 2],
}

impl<'p> Patterns<'p> {
    /// Patterns at these indices along the dimensions before the last four; `None` if the variable has no such patterns.
    pub(crate) fn of(file: &'p Pieces, variable: usize, before: &[usize]) -> Option<Self> {
        file.bytes(variable)?;
        let described = file.data().iter().nth(variable)?;
        let [series @ .., nx, ny, mx, my] = described.shape() else { return None };
        let inside = series.len() == before.len() && series.iter().zip(before).all(|(n, k)| k < n);
        if described.array()?.is_complex() || !inside {
            return None;
        }
        let number = series.iter().zip(before).fold(0, |number, (n, k)| number * n + k);
        let (probes, pattern) = (nx * ny, [*mx, *my]);
        let step = |from_last: usize| {
            let dimensions = &described.dimensions;
            let one = dimensions.len().checked_sub(from_last).and_then(|k| dimensions.get(k));
            let one = one.filter(|one| matches!(one.positions(), Positions::Uniform { .. }));
            one.map(|one| one.step().abs()).filter(|step| *step > 0.0)
        };
        let steps = step(2).zip(step(1)).map_or([1.0; 2], |(x, y)| [x, y]);
        let first = number * probes * pattern[0] * pattern[1];
        Some(Self { file, variable, first, probes, pattern, steps })
    }

    // Patterns of consecutive probes
    fn plane(&self) -> usize {
        self.pattern[0] * self.pattern[1]
    }

    /// Ranges of probes that are read together: a few megabytes of patterns each.
    fn groups(&self, of: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let length = ((1 << 19) / self.plane().max(1)).max(1);
        let end = of.end;
        of.step_by(length).map(move |start| start..(start + length).min(end))
    }

    /// Patterns of consecutive probes.
    fn read(&self, probes: &Range<usize>, stop: &AtomicBool) -> io::Result<TypedArray<'static>> {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let at = |probe: usize| self.first + probe * self.plane();
        self.file.elements(self.variable, at(probes.start)..at(probes.end))
    }
}

// Sum every pattern over rings
impl Patterns<'_> {
    /// Ring of each sample about a centre in units of samples, and the number of rings, whose width is the larger step; `None` for a centre far outside.
    fn rings(&self, centre: [f64; 2]) -> Option<(Vec<u32>, usize)> {
        let ([mx, my], [dx, dy]) = (self.pattern, self.steps);
        let width = dx.max(dy);
        let radius = |i: usize, j: usize| {
            ((i as f64 - centre[0]) * dx).hypot((j as f64 - centre[1]) * dy) / width + 1e-9
        };
        let places = (0..mx).flat_map(|i| (0..my).map(move |j| (i, j)));
        let rings: Vec<u32> = places.map(|(i, j)| radius(i, j) as u32).collect();
        let count = rings.iter().max().map_or(0, |last| *last as usize + 1);
        (centre.iter().all(|x| x.is_finite()) && count <= 4 * (mx + my)).then_some((rings, count))
    }

    // Sums of all patterns
    /// Sums (x, y, ring) of each pattern over the rings about a centre, in single precision, little-endian; `None` for a centre far outside.
    ///
    /// # Errors
    /// Those of [`Pieces::read`], and `Interrupted` after a stop.
    pub(crate) fn ring_sums(
        &self,
        centre: [f64; 2],
        stop: &AtomicBool,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some((rings, count)) = self.rings(centre) else { return Ok(None) };
        let groups: Vec<_> = self.groups(0..self.probes).collect();
        let sums = groups.into_par_iter().map(|probes| {
            let mut sums = vec![0.0_f64; probes.len() * count];
            for_each_number(&self.read(&probes, stop)?, rings.len(), |probe, k, value| {
                sums[probe * count + rings[k] as usize] += value;
            });
            Ok(sums.iter().flat_map(|sum| (*sum as f32).to_le_bytes()).collect())
        });
        let sums: io::Result<Vec<Vec<u8>>> = sums.collect();
        sums.map(|sums| Some(sums.concat()))
    }
}

// Mean pattern of chosen probes
impl Patterns<'_> {
    /// Mean pattern (qx, qy) over the probes of a bit mask, in single precision, little-endian; `None` if no probe is selected.
    ///
    /// # Errors
    /// Those of [`Pieces::read`], and `Interrupted` after a stop.
    pub(crate) fn mean(&self, mask: &[u8], stop: &AtomicBool) -> io::Result<Option<Vec<u8>>> {
        let chosen =
            |probe: &usize| mask.get(probe / 8).is_some_and(|byte| byte >> (probe % 8) & 1 == 1);
        let probes: Vec<usize> = (0..self.probes).filter(chosen).collect();
        let runs = probes.chunk_by(|one, other| one + 1 == *other);
        let groups: Vec<_> = runs.flat_map(|run| self.groups(run[0]..run[0] + run.len())).collect();
        let plane = self.plane();
        let sum = groups.into_par_iter().try_fold(
            || vec![0.0_f64; plane],
            |mut sum, probes| {
                let patterns = self.read(&probes, stop)?;
                for_each_number(&patterns, plane, |_, k, value| sum[k] += value);
                io::Result::Ok(sum)
            },
        );
        let sum = sum.try_reduce(
            || vec![0.0; plane],
            |mut one, other| {
                one.iter_mut().zip(other).for_each(|(sum, more)| *sum += more);
                Ok(one)
            },
        )?;
        let count = probes.len() as f64;
        let mean = sum.iter().flat_map(|sum| ((sum / count) as f32).to_le_bytes());
        Ok((!probes.is_empty()).then(|| mean.collect()))
    }
}

// Numbers of patterns in their order
/// Calls `call` for each element of patterns of `plane` elements: with the number of its pattern, its index in the pattern and its value.
fn for_each_number(array: &TypedArray, plane: usize, call: impl FnMut(usize, usize, f64)) {
    fn each<T: Copy>(
        all: &CowArray<T, IxDyn>,
        plane: usize,
        number: impl Fn(T) -> f64,
        mut call: impl FnMut(usize, usize, f64),
    ) {
        let patterns = all.as_slice().unwrap_or_default().chunks_exact(plane);
        for (k, pattern) in patterns.enumerate() {
            pattern.iter().enumerate().for_each(|(n, x)| call(k, n, number(*x)));
        }
    }
    match array {
        TypedArray::F64(all) => each(all, plane, |x| x, call),
        TypedArray::F32(all) => each(all, plane, f64::from, call),
        TypedArray::I64(all) => each(all, plane, |n| n as f64, call),
        TypedArray::Bool(all) => each(all, plane, |is| u8::from(is).into(), call),
        TypedArray::C64(_) | TypedArray::C32(_) => {}
    }
}
