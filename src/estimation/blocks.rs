// Tangled from book/src/covariance-block-operators.md: edit there, or here and run cargo tangle stitch.
//! Covariances in blocks as operators, and a preconditioner for them.

pub(crate) mod gpu;

// Imports of operators in blocks of covariances
use crate::error::{Error, Invalid};
use crate::estimation::circulant::{Circulant, Group};
use crate::linear::blocks::{Blocks, Border, OperatorBlock, Strip};
use crate::linear::elimination::{Elimination, root_of_inverse};
use crate::linear::matrix::Dense;
use crate::linear::operator::{Diagonal, LowRank, Operator, Pairs, Sum, scatter};
use crate::linear::toeplitz::BlockToeplitz;
#[cfg(feature = "factorise")]
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::removed_modes::RemovedModes;
use crate::numerics::real::Real;
use crate::turbulence::blocks::{CrossBlocks, LatticeGroups};
use ndarray::{Array2, ArrayView2};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

pub(crate) type SharedOperator<T> = Arc<dyn Operator<T>>;

// A wide form of a rectangle
/// A matrix with no more rows than columns: the given one or its transpose; and whether it is that.
pub(crate) fn wide(rectangle: &Array2<f64>) -> (ArrayView2<'_, f64>, bool) {
    let transposed = rectangle.nrows() > rectangle.ncols();
    (if transposed { rectangle.t() } else { rectangle.view() }, transposed)
}

// Covariance of slopes in blocks
/// The covariance of all slopes in blocks, rad², of the groups that share a lattice, the `strip` of the unstructured group and
/// the blocks between lattices.
fn slopes_in_blocks<T: Real>(
    groups: &[Group],
    rectangles: &CrossBlocks,
    strip: Option<&Array2<f64>>,
) -> Result<SharedOperator<T>, Error> {
    let sets = &rectangles.sets;
    let n = sets.all().map(|set| sets.slopes(set)).sum();
    let mut blocks = Vec::new();
    let mut put = |operator: SharedOperator<T>,
                   transposed,
                   rows: &[Range<usize>],
                   columns: &[Range<usize>]| {
        let (rows, columns) = (rows.to_vec(), columns.to_vec());
        blocks.push(OperatorBlock { operator, transposed, rows, columns });
    };
    for (set, group) in groups.iter().enumerate() {
        let (toeplitz, places) =
            (BlockToeplitz::slopes(group.covariance, group.valid)?, sets.places(set));
        put(Arc::new(toeplitz), false, &places, &places);
    }
    // Put the unstructured group and all rectangles
    let all = lattice_and_unstructured_places(sets).concat();
    for (matrix, strip) in rectangles.unstructured.iter().zip(strip) {
        let border =
            Border { between: Strip::new(strip.view()), corner: Dense::new(matrix.mapv(T::of)) };
        put(Arc::new(border), false, &all, &all);
    }
    for ([first, second], rectangle) in sets.pairs().into_iter().zip(&rectangles.between) {
        if Some(second) == sets.unstructured() {
            continue;
        }
        let (matrix, transposed) = wide(rectangle);
        let operator: SharedOperator<T> = Arc::new(Dense::new(matrix.mapv(T::of)));
        let [one, other] = [sets.places(first), sets.places(second)];
        put(Arc::clone(&operator), transposed, &one, &other);
        put(operator, !transposed, &other, &one);
    }
    Ok(Arc::new(Blocks::new((n, n), blocks)?))
}

// Wavefronts with slopes in blocks
/// Wavefronts with all slopes, from operators of `rows` for each group.
pub(crate) fn side_by_side<T: Real>(
    sets: &LatticeGroups,
    operators: Vec<SharedOperator<T>>,
) -> Result<SharedOperator<T>, Error> {
    let n = sets.all().map(|set| sets.slopes(set)).sum();
    let rows = operators.first().map_or(0, |operator| operator.rows());
    let block = |(set, operator)| {
        let columns = sets.places(set);
        OperatorBlock { operator, transposed: false, rows: iter::once(0..rows).collect(), columns }
    };
    let blocks = operators.into_iter().enumerate().map(block).collect();
    Ok(Arc::new(Blocks::new((rows, n), blocks)?))
}

// Numbers of stars among those of lattices
/// The numbers of the stars of each lattice when the others are left out.
pub(crate) fn renumbered(sets: &LatticeGroups) -> Vec<Vec<usize>> {
    let mut kept: Vec<usize> =
        (0..sets.lattices()).flat_map(|set| sets.members(set)).copied().collect();
    kept.sort_unstable();
    let number = |star: &usize| kept.partition_point(|other| other < star);
    (0..sets.lattices()).map(|set| sets.members(set).iter().map(number).collect()).collect()
}

/// Places of the slopes of all lattices, star by star, and of those of the unstructured group.
pub(crate) fn lattice_and_unstructured_places(sets: &LatticeGroups) -> [Vec<Range<usize>>; 2] {
    let mut lattices: Vec<_> = (0..sets.lattices()).flat_map(|set| sets.places(set)).collect();
    lattices.sort_unstable_by_key(|place| place.start);
    [lattices, sets.unstructured().map_or(Vec::new(), |set| sets.places(set))]
}

// Covariances of the unstructured group with all lattices
/// Covariances of the unstructured slopes, as rows, with those of all lattices, star by star, rad².
pub(crate) fn unstructured_with_lattices(rectangles: &CrossBlocks) -> Array2<f64> {
    let sets = &rectangles.sets;
    let [lattices, unstructured] = lattice_and_unstructured_places(sets)
        .map(|places| places.iter().map(Range::len).sum::<usize>());
    let mut matrix = Array2::zeros((unstructured, lattices));
    // Columns where stars begin
    let starts = |stars: &[Range<usize>]| {
        let mut end = 0;
        let start = |place: &Range<usize>| {
            end += place.len();
            (place.start, end - place.len())
        };
        stars.iter().map(start).collect::<Vec<_>>()
    };
    let known = starts(&lattice_and_unstructured_places(sets)[0]);
    for ([set, other], rectangle) in sets.pairs().into_iter().zip(&rectangles.between) {
        if Some(other) != sets.unstructured() {
            continue;
        }
        // Place the slopes of each star
        for (place, (_, from)) in sets.places(set).iter().zip(starts(&sets.places(set))) {
            let (_, to) = known[known.partition_point(|(start, _)| *start < place.start)];
            for k in 0..place.len() {
                let column = rectangle.row(from + k);
                matrix.column_mut(to + k).assign(&column);
            }
        }
    }
    matrix
}

// All blocks in one matrix
/// The covariance of all slopes as one matrix, rad².
#[cfg(feature = "factorise")]
pub(crate) fn expanded(groups: &[Group], rectangles: &CrossBlocks) -> Array2<f64> {
    let sets = &rectangles.sets;
    let n = sets.all().map(|set| sets.slopes(set)).sum();
    let mut all = Array2::zeros((n, n));
    let mut put = |[rows, columns]: [usize; 2], block: &Array2<f64>| {
        let places = [rows, columns].map(|set| sets.places(set).into_iter().flatten());
        let [rows, columns] = places.map(|places| places.collect::<Vec<_>>());
        for ((row, column), value) in block.indexed_iter() {
            all[[rows[row], columns[column]]] = *value;
            all[[columns[column], rows[row]]] = *value;
        }
    };
    for (set, group) in groups.iter().enumerate() {
        put([set; 2], &group.covariance.dense(&SlopeOrder::new(group.valid)));
    }
    sets.unstructured()
        .into_iter()
        .zip(&rectangles.unstructured)
        .for_each(|(set, block)| put([set; 2], block));
    sets.pairs().into_iter().zip(&rectangles.between).for_each(|(pair, block)| put(pair, block));
    all
}

// Add noise to an operator
/// Θ + C_n, of Θ and the noise.
pub(crate) fn with_noise<T: Real>(
    slopes: SharedOperator<T>,
    noise: SlopeNoise,
) -> Result<SharedOperator<T>, Invalid> {
    let correlated = noise.is_correlated();
    let SlopeNoise { variances, partners, covariances, common } = noise;
    let rows = variances.len();
    let [variances, covariances] =
        [variances, covariances].map(|values| values.into_iter().map(T::of).collect());
    let mut terms: Vec<SharedOperator<T>> = vec![slopes, Arc::new(Diagonal::new(variances))];
    if correlated {
        terms.push(Arc::new(Pairs::new(partners, covariances)?));
    }
    if !common.is_empty() {
        let ones = |slopes: Range<usize>| vec![T::one(); slopes.len()];
        let term =
            |(slopes, variance): (Range<usize>, f64)| (T::of(variance), slopes.start, ones(slopes));
        terms.push(Arc::new(LowRank::new(rows, common.into_iter().map(term).collect())?));
    }
    Ok(Arc::new(Sum::new(terms)?))
}

// Unstructured slopes with their noise
/// Covariance of the unstructured slopes with their noise, rad².
pub(crate) fn unstructured_with_noise(rectangles: &CrossBlocks, noise: &SlopeNoise) -> Array2<f64> {
    let [_, places] = lattice_and_unstructured_places(&rectangles.sets);
    let places: Vec<usize> = places.into_iter().flatten().collect();
    let mut matrix = rectangles.unstructured.clone().unwrap_or_else(|| Array2::zeros((0, 0)));
    for (k, &place) in places.iter().enumerate() {
        matrix[[k, k]] += noise.variances[place];
        if let Ok(partner) = places.binary_search(&noise.partners[place]) {
            matrix[[k, partner]] += noise.covariances[place];
        }
        for (slopes, variance) in noise.common.iter().filter(|(slopes, _)| slopes.contains(&place))
        {
            let alike = places.iter().enumerate().filter(|(_, other)| slopes.contains(other));
            alike.for_each(|(other, _)| matrix[[k, other]] += variance);
        }
    }
    matrix
}

// Projected complement of the unstructured slopes
/// E of Eq. [projected complement](https://lenslet.github.io/lenslet/covariance-block-operators.html#eq-projected-complement), (unstructured, unstructured), rad⁶, of the strip `between` and the matrix `small` of the unstructured slopes with noise.
pub(crate) fn projected_complement(
    measured: &MeasuredCovariance,
    rectangles: &CrossBlocks,
    [between, small]: [&Array2<f64>; 2],
) -> Result<Array2<f64>, Error> {
    let MeasuredCovariance { groups, noise, removed, .. } = *measured;
    let operator = with_noise(slopes_in_blocks(groups, rectangles, None)?, noise.clone())?;
    let (count, n) = (between.nrows(), operator.rows());
    let [lattices, _] = lattice_and_unstructured_places(&rectangles.sets);
    let [mut columns, mut products] = [(); 2].map(|()| vec![0.0; count * n]);
    scatter(between.as_slice().unwrap_or_default(), n, &lattices, &mut columns);
    let mut scratch = vec![0.0; operator.scratch(1)];
    for (column, product) in columns.chunks_exact_mut(n).zip(products.chunks_exact_mut(n)) {
        removed.remove(column);
        operator.apply(column, product, &mut scratch);
    }
    let matrix = |values| ArrayView2::from_shape((count, n), values);
    let [columns, products] = [matrix(&columns), matrix(&products)]
        .map(|matrix| matrix.unwrap_or_else(|_| unreachable!("same length")));
    let shares = root_of_inverse(small.view())?.dot(&columns.dot(&columns.t()));
    Ok(columns.dot(&products.t()) - shares.t().dot(&shares))
}

// Precondition in blocks
/// The preconditioner of all groups for the covariance of measured slopes: circulant for lattices, and the unstructured slopes eliminated.
fn eliminated<T: Real>(
    measured: &MeasuredCovariance,
    rectangles: &CrossBlocks,
    strip: Option<&Array2<f64>>,
) -> Result<SharedOperator<T>, Error> {
    let stars = renumbered(&rectangles.sets);
    let groups: Vec<Group> = measured
        .groups
        .iter()
        .zip(&stars)
        .map(|(group, stars)| Group { stars, ..*group })
        .collect();
    let circulant: SharedOperator<T> = Arc::new(Circulant::new(&groups)?);
    let Some(between) = strip else { return Ok(circulant) };
    let small = unstructured_with_noise(rectangles, measured.noise);
    let projected = projected_complement(measured, rectangles, [between, &small])?;
    let (small, places) =
        ([small.view(), projected.view()], lattice_and_unstructured_places(&rectangles.sets));
    Ok(Arc::new(Elimination::new(circulant, between.view(), small, places)?))
}

// Either compressed form
/// The covariance of measured slopes without its matrix: that of each lattice, the cross blocks, and the noise.
#[derive(Clone, Copy)]
pub(crate) struct MeasuredCovariance<'a> {
    pub(crate) groups: &'a [Group<'a>],
    /// None where all stars share a lattice.
    pub(crate) rectangles: Option<&'a CrossBlocks>,
    pub(crate) valid: &'a [Array2<bool>],
    pub(crate) noise: &'a SlopeNoise,
    pub(crate) removed: &'a RemovedModes,
}

impl MeasuredCovariance<'_> {
    // Operator and preconditioner of slopes
    /// Θ, and the preconditioner of Θ + C_n if the solver is `preconditioned`.
    ///
    /// # Errors
    /// `Invalid` where there is no valid lenslet.
    pub(crate) fn operators<T: Real>(
        &self,
        preconditioned: bool,
    ) -> Result<(SharedOperator<T>, Option<SharedOperator<T>>), Error> {
        let Some(rectangles) = self.rectangles else {
            let slopes = BlockToeplitz::slopes(self.groups[0].covariance, self.valid)?;
            let circulant =
                || Circulant::new(self.groups).map(|p| Arc::new(p) as SharedOperator<T>);
            return Ok((Arc::new(slopes), preconditioned.then(circulant).transpose()?));
        };
        let strip = rectangles.sets.unstructured().map(|_| unstructured_with_lattices(rectangles));
        let slopes = slopes_in_blocks(self.groups, rectangles, strip.as_ref())?;
        let preconditioner = || eliminated(self, rectangles, strip.as_ref());
        Ok((slopes, preconditioned.then(preconditioner).transpose()?))
    }
}
