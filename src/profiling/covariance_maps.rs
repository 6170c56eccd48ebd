// Tangled from book/src/measured-maps.md: edit there, or here and run cargo tangle stitch.
//! Covariance of measured slopes, averaged over lenslets with the same displacement.

// Imports of measured maps
use crate::device::refuse_beyond_memory;
use crate::error::{Error, Invalid, accept};
use crate::estimation::estimate::check_slopes;
use crate::linear::times_transpose;
use crate::model::lenslet_array::{LensletArray, SlopeOrder};
use crate::model::noise::GuideStar;
use crate::model::removed_modes::{RemovedModes, TipTilt};
use crate::model::sensor::Sensor;
use crate::model::system::System;
use crate::watch::{Watch, check};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

// Maps of all pairs of stars
/// Which slopes go into which elements of the maps of a system.
#[derive(Debug, Clone)]
pub struct MapLayout {
    order: Arc<SlopeOrder>,
    modes: RemovedModes,
    pairs: Vec<MapPair>,
}

impl MapLayout {
    // Maps of the stars of a system
    /// The maps of the guide stars of a system. Tip and tilt that are unknown are taken to be removed.
    pub fn new(system: &System) -> Self {
        let order = Arc::new(SlopeOrder::new(&system.valid_lenslets()));
        let sensors = system.sensors();
        let mut pairs: Vec<MapPair> = Vec::new();
        for p in 0..sensors.len() {
            for q in p..sensors.len() {
                let start = pairs.last().map_or(0, |pair| pair.range().end);
                pairs.push(MapPair::new([p, q], &sensors, &order, start));
            }
        }
        Self { order, modes: modes_without_tilt(system), pairs }
    }

    // Count slopes and elements of maps
    /// The order of the slopes.
    pub fn order(&self) -> &SlopeOrder {
        &self.order
    }

    /// The pairs of stars.
    pub fn pairs(&self) -> &[MapPair] {
        &self.pairs
    }

    /// Elements of all maps.
    pub fn len(&self) -> usize {
        self.pairs.last().map_or(0, |pair| pair.range().end)
    }

    /// Never: there is at least one star with one lenslet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places of the slopes of a star.
    pub(crate) fn slopes(&self, star: usize) -> Range<usize> {
        let lenslets = self.order.lenslets(star).len();
        self.order.index(star, 0, 0)..self.order.index(star, 0, 0) + 2 * lenslets
    }

    /// Whether modes are taken out of the slopes of a star.
    pub(crate) fn has_modes(&self, star: usize) -> bool {
        self.modes_of(star).next().is_some()
    }

    /// The modes that are taken out of the slopes of a star.
    fn modes_of(&self, star: usize) -> impl Iterator<Item = &[f64]> {
        let own = self.slopes(star);
        let of_star = move |first: usize| own.contains(&first);
        self.modes.iter().filter(move |mode| of_star(mode.first)).map(|mode| &mode.shape[..])
    }

    // Average a covariance into a map
    /// The map of a pair of stars, (2, 2, lags, lags) one after the other, whose slopes have this covariance, (slopes of p, slopes of q); with the
    /// modes that are removed taken out of it, unless they are already.
    pub(crate) fn average(&self, pair: &MapPair, mut covariance: Array2<f64>) -> Array1<f64> {
        let [p, q] = pair.stars;
        let column = |mode: &[f64]| Array2::from_shape_vec((mode.len(), 1), mode.to_vec());
        for mode in self.modes_of(p).filter_map(|mode| column(mode).ok()) {
            covariance = &covariance - &mode.dot(&mode.t().dot(&covariance));
        }
        for mode in self.modes_of(q).filter_map(|mode| column(mode).ok()) {
            covariance = &covariance - &covariance.dot(&mode).dot(&mode.t());
        }
        self.average_projected(pair, covariance.view())
    }

    // Average covariances with the same lag
    /// The map of a pair of stars, (2, 2, lags, lags) one after the other, by a covariance of slopes whose modes are already removed.
    fn average_projected(&self, pair: &MapPair, covariance: ArrayView2<f64>) -> Array1<f64> {
        let [firsts, others] = pair.stars.map(|star| self.order.lenslets(star));
        let mut map = Array1::zeros(pair.len());
        for (k, &first) in firsts.iter().enumerate() {
            for (l, &other) in others.iter().enumerate() {
                let lag = pair.lag_of(first, other);
                for (axes, [a, b]) in [[0, 0], [0, 1], [1, 0], [1, 1]].into_iter().enumerate() {
                    let [row, column] = [a * firsts.len() + k, b * others.len() + l];
                    map[pair.place(axes, lag)] += covariance[[row, column]];
                }
            }
        }
        for axes in 0..4 {
            for ((j, i), count) in pair.counts().indexed_iter().filter(|(_, count)| **count > 0.0) {
                map[pair.place(axes, [j, i])] /= count;
            }
        }
        map
    }
}

// The map of two stars
/// The modes that are removed, with tip and tilt where they are unknown.
fn modes_without_tilt(system: &System) -> RemovedModes {
    let removed = |star: &GuideStar| match star.tip_tilt {
        TipTilt::Unknown { .. } => GuideStar { tip_tilt: TipTilt::Removed, ..star.clone() },
        _ => star.clone(),
    };
    let stars: Vec<GuideStar> = system.guide_stars().iter().map(removed).collect();
    let without = system.to_builder().guide_stars(stars).build();
    without.map_or_else(|_| system.removed_modes(), |system| system.removed_modes())
}

/// The map of two stars: four pairs of axes, xx, xy, yx and yy, by lags along y and x.
#[derive(Debug, Clone)]
pub struct MapPair {
    /// The numbers of the stars; the second is not less than the first.
    pub stars: [usize; 2],
    /// The step of a lag \[m\]: the coarser of both pitches, at rest.
    pub pitch: f64,
    start: usize,
    /// Lags from the middle to the last.
    reach: usize,
    arrays: [LensletArray; 2],
    order: Arc<SlopeOrder>,
    known: OnceLock<PairLags>,
}

/// The lags of all pairs of lenslets.
#[derive(Debug, Clone)]
struct PairLags {
    /// The lag of two lenslets by their places along an axis.
    table: Array2<usize>,
    /// Pairs of lenslets of each lag, (lags, lags).
    counts: Array2<f64>,
}

impl MapPair {
    fn new(stars: [usize; 2], sensors: &[Sensor], order: &Arc<SlopeOrder>, start: usize) -> Self {
        let arrays = stars.map(|star| sensors[star].array);
        let pitch = arrays[0].pitch().max(arrays[1].pitch());
        let far = arrays.map(|array| array.centre(0).abs());
        let reach = ((far[0] + far[1]) / pitch - 1e-9).ceil().max(0.0) as usize;
        let (order, known) = (Arc::clone(order), OnceLock::new());
        Self { stars, pitch, start, reach, arrays, order, known }
    }

    // Count pairs of lenslets by their lags
    /// The lags of all pairs, made when they are first needed.
    fn known(&self) -> &PairLags {
        self.known.get_or_init(|| {
            let ([one, two], pitch, reach) = (self.arrays, self.pitch, self.reach as f64);
            let lag =
                |(k, l)| ((two.centre(l) - one.centre(k)) / pitch + reach + 1e-9).round() as usize;
            let table = Array2::from_shape_fn((one.lenslets(), two.lenslets()), lag);
            let mut counts = Array2::zeros((self.lags(), self.lags()));
            let [firsts, others] = self.stars.map(|star| self.order.lenslets(star));
            for first in firsts {
                for other in others {
                    counts[[0, 1].map(|axis| table[[first[axis], other[axis]]])] += 1.0;
                }
            }
            PairLags { table, counts }
        })
    }

    /// Pairs of lenslets of each lag, (lags, lags).
    pub fn counts(&self) -> &Array2<f64> {
        &self.known().counts
    }

    /// Pairs of lenslets of all lags.
    pub fn lenslet_pairs(&self) -> f64 {
        self.stars.map(|star| self.order.lenslets(star).len() as f64).iter().product()
    }

    // Look up a lag of two lenslets
    /// The lag of two lenslets along y and along x.
    pub(crate) fn lag_of(&self, first: [usize; 2], other: [usize; 2]) -> [usize; 2] {
        let table = &self.known().table;
        [0, 1].map(|axis| table[[first[axis], other[axis]]])
    }

    /// Lags along an axis; the middle one is none.
    pub fn lags(&self) -> usize {
        2 * self.reach + 1
    }

    /// Elements of the map.
    pub fn len(&self) -> usize {
        4 * self.lags().pow(2)
    }

    /// Never: there is at least one lag.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Places of the elements among those of all maps.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len()
    }

    /// Index of an element in the map: axes 0 to 3 for xx, xy, yx and yy, and the lag along y and x.
    pub fn place(&self, axes: usize, [j, i]: [usize; 2]) -> usize {
        (axes * self.lags() + j) * self.lags() + i
    }

    /// Whether the map is that of a star with itself.
    pub fn is_own(&self) -> bool {
        self.stars[0] == self.stars[1]
    }
}

// Maps of measured slopes
/// The maps of all pairs of stars, measured or expected.
///
/// ```
/// use lenslet::model::{Atmosphere, GuideStar, Layer, LensletArray, Source, System};
/// use lenslet::{profiling::SlopeMaps, watch::unwatched};
/// use ndarray::Array2;
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
/// let star = GuideStar::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(2, 0.5)?, 0.0)?;
/// let system = System::builder(air, LensletArray::new(2, 0.5)?).guide_stars([star]).build()?;
/// // Slopes with the temporal correlation exp(−|ℓ|/10): the closed form is 20000 tanh(0.1) = 1993 independent frames.
/// let (mut seed, keep) = (1u64, (-0.1f64).exp());
/// let mut uniform = || {
///     seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
///     (seed >> 11) as f64 / (1u64 << 53) as f64 - 0.5
/// };
/// let mut normal = || (0..12).map(|_| uniform()).sum::<f64>();
/// let mut slopes = Array2::zeros((20_000, 8));
/// for mut series in slopes.columns_mut() {
///     let mut slope = normal();
///     for value in &mut series {
///         *value = slope;
///         slope = keep * slope + (1.0 - keep * keep).sqrt() * normal();
///     }
/// }
/// let maps = SlopeMaps::measure(&system, slopes.view(), &unwatched)?;
/// let expected = 20_000.0 * 0.1f64.tanh();
/// assert!((expected - 1993.0).abs() < 1.0 && (maps.independent / expected - 1.0).abs() < 0.05);
/// let errors = maps.scatter.column(maps.layout.pairs()[0].place(0, [1, 1]));
/// let deviation = (errors.dot(&errors) / errors.len() as f64).sqrt();
/// assert!((deviation / 0.0158 - 1.0).abs() < 0.1); // (2 / (4 · 1993))^(1/2), of four slopes
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SlopeMaps {
    /// Which slopes went where.
    pub layout: MapLayout,
    /// All elements of all maps, rad², Eq. [mean removed](https://lenslet.github.io/lenslet/measured-maps.html#eq-mean-removed); in the order of the layout's pairs.
    pub values: Array1<f64>,
    /// Realisations of the errors of `values`, Eq. [map errors](https://lenslet.github.io/lenslet/measured-maps.html#eq-map-errors), (R, elements); no rows where the maps are not measured.
    pub scatter: Array2<f64>,
    /// Frames that were measured.
    pub frames: usize,
    /// Effective number of independent frames, Eq. [effective frames](https://lenslet.github.io/lenslet/measured-maps.html#eq-effective-frames).
    pub independent: f64,
    /// Frames after which slopes are no longer correlated, at most a quarter of all.
    pub memory: usize,
    /// Correlation of the products of slopes that remains after the memory: errors are too small where it is not near 0.
    pub echo: f64,
}

impl SlopeMaps {
    // Measure the maps of slopes
    /// Measures the maps of slopes (frames, n), rad, in the order of [`SlopeOrder`].
    ///
    /// # Errors
    /// `Invalid` for another number of slopes than the system has, a number that is not finite, fewer than two frames, or a star whose slopes never change;
    /// `Memory` if the maps do not fit into memory; `Cancelled`.
    ///
    /// ```
    /// use lenslet::model::{Atmosphere, GuideStar, Layer, LensletArray, Source, System};
    /// use lenslet::{profiling::SlopeMaps, watch::unwatched};
    /// use ndarray::arr2;
    /// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
    /// let star = GuideStar::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(2, 0.5)?, 0.0)?;
    /// let system = System::builder(air, LensletArray::new(2, 0.5)?).guide_stars([star]).build()?;
    /// // Four x slopes, then four y slopes, in a frame; their negatives in the next one.
    /// let frame = [1.0, 2.0, 3.0, 4.0, 1.0, 1.0, 1.0, 1.0].map(|slope| 1e-7 * slope);
    /// let frames = arr2(&[frame, frame.map(|slope| -slope)]);
    /// let maps = SlopeMaps::measure(&system, frames.view(), &unwatched)?;
    /// assert_eq!((maps.layout.pairs().len(), maps.memory), (1, 1));
    /// let pair = &maps.layout.pairs()[0];
    /// for (lag, value, pairs) in [([1, 1], 15e-14, 4.0), ([1, 2], 14e-14, 2.0), ([2, 1], 11e-14, 2.0), ([2, 2], 8e-14, 1.0)] {
    ///     assert!((maps.values[pair.place(0, lag)] / value - 1.0).abs() < 1e-9);
    ///     assert_eq!(pair.counts()[lag], pairs);
    /// }
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn measure(
        system: &System,
        slopes: ArrayView2<f64>,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        // Maps from frames of slopes
        let layout = MapLayout::new(system);
        // Refuse slopes without maps
        check_slopes(slopes, layout.order.len())?;
        let frames = slopes.nrows();
        accept(frames >= 2, "frames", frames, "at least 2, as covariances are means over frames")?;
        let numbers = layout.len().saturating_mul(REALISATIONS + 2) as u64;
        refuse_beyond_memory(8 * numbers, || "the maps of the slopes".into())?;
        let mut slopes = slopes.as_standard_layout().into_owned();
        let mean = slopes.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(slopes.ncols()));
        slopes -= &mean;
        slopes.rows_mut().into_iter().for_each(|mut frame| {
            layout.modes.remove(frame.as_slice_mut().unwrap_or_else(|| unreachable!("a row")));
        });
        let memory = CorrelationTime::of(&normalised(&layout, &slopes)?);
        let slopes = slopes.reversed_axes().as_standard_layout().into_owned();
        let values = Self::products(&layout, &slopes, memory.frames);
        let scatter = Self::scatter(&layout, &slopes, memory.frames, watch)?;
        let CorrelationTime { frames: memory, independent, echo } = memory;
        Ok(Self { layout, values, scatter, frames, independent, memory, echo })
    }

    // Multiply all frames
    /// Eq. [mean removed](https://lenslet.github.io/lenslet/measured-maps.html#eq-mean-removed) of slopes (n, frames), averaged into maps.
    fn products(layout: &MapLayout, slopes: &Array2<f64>, memory: usize) -> Array1<f64> {
        let frames = slopes.ncols();
        let share = 1.0 / (frames + 1 - 2 * memory.min(frames / 2)) as f64;
        let mut corrected = slopes.clone();
        for (mut row, own) in corrected.rows_mut().into_iter().zip(slopes.rows()) {
            let at = |t: usize| own[t % frames];
            let mut near: f64 = (0..2 * memory - 1).map(|t| at(t + frames + 1 - memory)).sum();
            for t in 0..frames {
                row[t] += share * near;
                near += at(t + memory) - at(t + frames + 1 - memory);
            }
        }
        let map = |pair: &MapPair| {
            let [p, q] = pair.stars.map(|star| layout.slopes(star));
            let product = times_transpose(&slopes.slice(s![p, ..]), &corrected.slice(s![q, ..]));
            layout.average_projected(pair, (product / frames as f64).view())
        };
        let maps: Vec<Array1<f64>> = layout.pairs.par_iter().map(map).collect();
        maps.into_iter().flatten().collect()
    }

    // Multiply frames by shifted frames
    /// Realisations of the errors of the maps, Eq. [map errors](https://lenslet.github.io/lenslet/measured-maps.html#eq-map-errors), of slopes (n, frames).
    fn scatter(
        layout: &MapLayout,
        slopes: &Array2<f64>,
        memory: usize,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let frames = slopes.ncols();
        let number = REALISATIONS.min(frames * (frames - 1) / 2);
        let length = block_length(frames, memory);
        let scale = (2.0 * length as f64 / frames as f64).sqrt() / (2 * length) as f64;
        let mut all = Array2::zeros((number, layout.len()));
        for (r, mut row) in all.rows_mut().into_iter().enumerate() {
            check(watch)?;
            let (first, shift) = (r * frames / number, shift_of(r, frames, memory));
            // Realisation from two blocks of frames
            let block = |shift: usize| (0..length).map(move |t| (first + shift + t) % frames);
            let own: Vec<usize> = block(0).chain(block(shift)).collect();
            let other: Vec<usize> = block(shift).chain(block(0)).collect();
            let [own, other] = [own, other].map(|frames| slopes.select(Axis(1), &frames));
            let map = |pair: &MapPair| {
                let [p, q] = pair.stars.map(|star| layout.slopes(star));
                let product = times_transpose(&own.slice(s![p, ..]), &other.slice(s![q, ..]));
                layout.average_projected(pair, (product * scale).view())
            };
            let maps: Vec<Array1<f64>> = layout.pairs.par_iter().map(map).collect();
            row.assign(&maps.into_iter().flatten().collect::<Array1<f64>>());
            watch.progress(r + 1, number);
        }
        Ok(all)
    }
}

// Blocks and shifts of realisations
/// The most realisations of the errors of maps.
const REALISATIONS: usize = 64;

/// The frames that go into one realisation.
fn block_length(frames: usize, memory: usize) -> usize {
    let least = if memory > 1 { 8 * memory } else { 1 };
    least.max(frames.div_ceil(REALISATIONS)).min(frames)
}

/// The shift of a realisation, from the memory to half of the recording.
fn shift_of(realisation: usize, frames: usize, memory: usize) -> usize {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let range = (frames / 2 + 1).saturating_sub(memory).max(1);
    let part = (0.5 + GOLDEN * realisation as f64).fract();
    memory + ((part * range as f64) as usize).min(range - 1)
}

// Memory of the slopes
// Correlation time of slopes
/// How long slopes are correlated.
struct CorrelationTime {
    /// Frames.
    frames: usize,
    /// N_eff of Eq. [effective frames](https://lenslet.github.io/lenslet/measured-maps.html#eq-effective-frames).
    independent: f64,
    /// The correlation that remains.
    echo: f64,
}

impl CorrelationTime {
    /// The memory of slopes (frames, n), each star's in units of its own.
    fn of(slopes: &Array2<f64>) -> Self {
        let frames = slopes.nrows();
        let longest = (frames / 4).max(1);
        let series = products_of_frames(slopes, longest, SHIFTS);
        let correlation = |lag| autocovariance(&series, lag) / autocovariance(&series, 0);
        let chance = 3.0 / ((frames * series.len().min(longest)) as f64).sqrt();
        let little = chance.max(0.05);
        let lags = std::iter::successors(Some(1), |lag: &usize| Some(lag + 1 + lag / 8));
        let memory = lags.take_while(|&lag| lag < longest).find(|&lag| correlation(lag) < little);
        let memory = memory.unwrap_or(longest);
        let echo = if correlation(memory) < little { 0.0 } else { correlation(memory) };
        // Count independent frames
        let far = products_of_frames(slopes, memory, REALISATIONS);
        let mean = |series: &Array1<f64>| series.mean().unwrap_or(0.0).powi(2);
        let of_means = far.iter().map(mean).sum::<f64>() / far.len() as f64;
        let independent = autocovariance(&far, 0) / of_means;
        let independent = if independent.is_finite() { independent } else { 1.0 };
        let independent = independent.clamp(1.0, frames as f64);
        Self { frames: memory, independent, echo }
    }
}

/// Shifts from which the memory is found.
const SHIFTS: usize = 16;

// Products of shifted frames
/// The products of frames with those a shift later, (frames), for so many shifts beyond a least one.
fn products_of_frames(slopes: &Array2<f64>, least: usize, shifts: usize) -> Vec<Array1<f64>> {
    let frames = slopes.nrows();
    let of_shift = |k: usize| {
        let shift = shift_of(k, frames, least);
        let product = |t: usize| slopes.row(t).dot(&slopes.row((t + shift) % frames));
        Array1::from_shape_fn(frames, product)
    };
    (0..shifts).into_par_iter().map(of_shift).collect()
}

/// The mean product of numbers that are a lag apart, of series without expectation.
fn autocovariance(series: &[Array1<f64>], lag: usize) -> f64 {
    let of_one = |series: &Array1<f64>| {
        let end = series.len() - lag.min(series.len() - 1);
        let product = series.slice(s![..end]).dot(&series.slice(s![series.len() - end..]));
        product / end as f64
    };
    series.iter().map(of_one).sum::<f64>() / series.len().max(1) as f64
}

/// The slopes (frames, n), each star's over their rms.
fn normalised(layout: &MapLayout, slopes: &Array2<f64>) -> Result<Array2<f64>, Invalid> {
    let mut slopes = slopes.clone();
    let stars = 0..=layout.pairs.last().map_or(0, |pair| pair.stars[1]);
    for star in stars {
        let mut own = slopes.slice_mut(s![.., layout.slopes(star)]);
        let mean = own.iter().map(|slope| slope * slope).sum::<f64>() / own.nrows() as f64;
        let expected = "slopes that change from frame to frame";
        accept(
            mean > 1e-36 && mean.is_finite(),
            &format!("mean square of the slopes of guide_star[{star}]"),
            mean,
            expected,
        )?;
        own /= mean.sqrt();
    }
    Ok(slopes)
}

// Tests of measured maps
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Atmosphere, Focus, Layer, Noise, Source};
    use crate::watch::unwatched;
    use rand::{SeedableRng, rngs::StdRng};
    use rand_distr::{Distribution, StandardNormal};

    // Test means over pairs of lenslets
    /// Stars with arrays of so many lenslets, in the same 1.2 m; of the last one tip and tilt are removed where asked for.
    fn system(arrays: &[usize], tip_tilt: TipTilt) -> System {
        let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)]).unwrap();
        let star = |&n: &usize| {
            let array = LensletArray::new(n, 1.2 / n as f64).unwrap();
            let star = Sensor::at_rest(Source::star(0.0, 0.0).unwrap(), array);
            GuideStar::new(star, Noise::uniform(0.0).unwrap())
        };
        let mut stars: Vec<GuideStar> = arrays.iter().map(star).collect();
        stars.last_mut().unwrap().tip_tilt = tip_tilt;
        let array = LensletArray::new(arrays[0], 1.2 / arrays[0] as f64).unwrap();
        System::builder(air, array).guide_stars(stars).build().unwrap()
    }

    fn random(frames: usize, n: usize, seed: u64) -> Array2<f64> {
        let mut random = StdRng::seed_from_u64(seed);
        Array2::from_shape_simple_fn((frames, n), || StandardNormal.sample(&mut random))
    }

    #[test]
    fn maps_are_means_over_pairs_of_lenslets() {
        let system = system(&[3, 2], TipTilt::Measured);
        let slopes = random(5, 26, 1);
        let maps = SlopeMaps::measure(&system, slopes.view(), &unwatched).unwrap();
        let [own, cross, other] = maps.layout.pairs() else { panic!("three pairs") };
        assert_eq!((own.lags(), cross.lags(), other.lags(), cross.pitch), (5, 5, 3, 0.6));
        let about = &slopes - &slopes.mean_axis(Axis(0)).unwrap();
        let covariance = about.t().dot(&about) / 4.0;
        // Lenslets of the first star one to the right and none up: two in each of three rows, x with y.
        let pairs = [[0, 1], [1, 2], [3, 4], [4, 5], [6, 7], [7, 8]];
        let mean = pairs.iter().map(|[k, l]| covariance[[*k, 9 + l]]).sum::<f64>() / 6.0;
        let found = maps.values[own.range().start + own.place(1, [2, 3])];
        assert!((found - mean).abs() < 1e-12, "{found} {mean}");
        assert_eq!(
            (own.counts()[[2, 3]], own.counts().sum(), cross.counts().sum()),
            (6.0, 81.0, 36.0)
        );
        assert_eq!((own.lenslet_pairs(), cross.lenslet_pairs()), (81.0, 36.0));
        // Lenslets of the second star stand at ±0.3 m, of the first at 0 and ±0.4 m: from −0.4 and 0 it is one coarse lag to 0.3 m, and none
        // from −0.4 and 0 to −0.3 m and from 0.4 to 0.3 m.
        let (along_x, along_y) = ([[0, 1], [1, 1]], [[0, 0], [1, 0], [2, 1]]);
        let products = along_x.iter().flat_map(|x| along_y.map(|y| [0, 1].map(|k| (y[k], x[k]))));
        let right: f64 =
            products.map(|[(j, i), (m, l)]| covariance[[3 * j + i, 18 + 2 * m + l]]).sum();
        let mean = maps.values[cross.range().start + cross.place(0, [2, 3])];
        assert_eq!(cross.counts()[[2, 3]], 6.0);
        assert!((6.0 * mean - right).abs() < 1e-12, "{mean} {right}");
        // A realisation of the errors is the product of a frame with another one, here with half of five frames between them.
        assert_eq!((maps.scatter.nrows(), maps.memory), (10, 1));
        let middle = own.range().start + own.place(3, [2, 2]);
        let shift = shift_of(6, 5, 1);
        let [rest, later] = [3, (3 + shift) % 5].map(|t| about.slice(s![t, 9..18]).to_owned());
        let expected = (2.0f64 / 5.0).sqrt() * rest.dot(&later) / 9.0;
        assert!((maps.scatter[[6, middle]] - expected).abs() < 1e-12);
    }

    // Test maps with removed tilt
    #[test]
    fn tilt_that_is_removed_or_unknown_leaves_the_maps() {
        for tip_tilt in [TipTilt::Removed, TipTilt::unknown(1e-9).unwrap()] {
            let system = system(&[3, 3], tip_tilt);
            let mut slopes = random(4, 36, 2);
            let before = SlopeMaps::measure(&system, slopes.view(), &unwatched).unwrap();
            slopes.slice_mut(s![2, 18..27]).mapv_inplace(|slope| slope + 5.0);
            let after = SlopeMaps::measure(&system, slopes.view(), &unwatched).unwrap();
            let gaps = &before.values - &after.values;
            assert!(gaps.iter().all(|gap| gap.abs() < 1e-12));
            // What is averaged with the projection is what the projected slopes are averaged to.
            let layout = &before.layout;
            let plain = slopes.mean_axis(Axis(0)).unwrap();
            let about = &slopes - &plain;
            let covariance = about.slice(s![.., ..18]).t().dot(&about.slice(s![.., 18..])) / 3.0;
            let pair = &layout.pairs()[1];
            let map = layout.average(pair, covariance);
            let same = &map - &after.values.slice(s![pair.range()]);
            assert!(same.iter().all(|gap| gap.abs() < 1e-12));
        }
        let mut stars = system(&[3], TipTilt::Measured).guide_stars().to_vec();
        stars[0].focus = Focus::Removed;
        let focus =
            system(&[3], TipTilt::Measured).to_builder().guide_stars(stars).build().unwrap();
        assert_eq!(MapLayout::new(&focus).modes_of(0).count(), 1);
    }

    // Test the correction for the mean
    #[test]
    fn slow_slopes_are_corrected_for_their_mean() {
        let system = system(&[2], TipTilt::Measured);
        let (mut sum, mut plain) = (0.0, 0.0);
        for seed in 0..40 {
            // Each frame is there 40 times: 20 independent ones of 800.
            let few = random(20, 8, seed);
            let slopes = Array2::from_shape_fn((800, 8), |(t, k)| few[[t / 40, k]]);
            let maps = SlopeMaps::measure(&system, slopes.view(), &unwatched).unwrap();
            if seed == 0 {
                assert!((10.0..=45.0).contains(&maps.independent), "{}", maps.independent);
                assert!((20..=60).contains(&maps.memory), "{}", maps.memory);
            }
            let pair = &maps.layout.pairs()[0];
            sum += maps.values[pair.place(0, [1, 1])] / 40.0;
            let about = &slopes - &slopes.mean_axis(Axis(0)).unwrap();
            plain += about.slice(s![.., ..4]).mapv(|s| s * s).mean().unwrap() / 40.0;
        }
        // 20 frames about their mean lack a twentieth; of 40 times 4 slopes their mean is known to 0.027.
        assert!(
            (plain - 0.95).abs() < 0.075 && (sum - 1.0).abs() < 0.08 && sum > plain + 0.02,
            "{sum} {plain}"
        );
        let fresh = random(800, 8, 7);
        let maps = SlopeMaps::measure(&system, fresh.view(), &unwatched).unwrap();
        assert!(maps.memory == 1 && maps.independent > 400.0 && maps.echo == 0.0);
    }

    // Test the rejection of bad slopes
    #[test]
    fn bad_slopes_are_refused_by_name() {
        let system = system(&[2, 2], TipTilt::Measured);
        let refused = |slopes: Array2<f64>| {
            SlopeMaps::measure(&system, slopes.view(), &unwatched).unwrap_err().to_string()
        };
        let one = refused(random(1, 16, 1));
        assert!(one.starts_with("frames = 1: expected at least 2"), "{one}");
        assert!(refused(random(3, 15, 1)).starts_with("slopes in a frame = 15: expected 16"));
        let mut bad = random(3, 16, 1);
        bad[[2, 9]] = f64::NAN;
        assert!(refused(bad).starts_with("slope 9 of frame 2 = NaN"));
        let mut still = random(3, 16, 1);
        still.slice_mut(s![.., 8..]).fill(1e-7);
        let still = refused(still);
        assert!(still.starts_with("mean square of the slopes of guide_star[1]"), "{still}");
    }
}
