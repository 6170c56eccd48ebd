// Tangled from book/src/measured-maps.md: edit there, or here and run cargo tangle stitch.
//! Covariance of measured slopes, averaged over lenslets with the same displacement.

// What measured maps stand on
use crate::device::{Watch, check, refuse_beyond_memory};
use crate::error::{Error, Invalid, accept};
use crate::linear::times_transpose;
use crate::model::lenslet_array::{LensletArray, SlopeOrder};
use crate::model::noise::GuideStar;
use crate::model::sensor::Sensor;
use crate::model::system::System;
use crate::model::unmeasured::{RemovedModes, TipTilt};
use crate::tomography::estimate::check_slopes;
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

    /// The same of slopes that have lost the modes.
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

    /// The place of an element in the map: axes 0 to 3 for xx, xy, yx and yy, and the lag along y and x.
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
#[derive(Debug, Clone)]
pub struct SlopeMaps {
    /// Which slopes went where.
    pub layout: MapLayout,
    /// All elements of all maps, rad², Eq. [mean removed](https://lenslet.github.io/lenslet/measured-maps.html#eq-mean-removed); in the order of the layout's pairs.
    pub values: Array1<f64>,
    /// The same of each block of frames, (B, elements); no rows where the maps are not measured.
    pub blocks: Array2<f64>,
    /// Frames that were measured, and how many independent ones say as much.
    pub frames: usize,
    /// Independent frames that would say as much.
    pub independent: f64,
    /// Correlation of what neighbouring blocks say: errors are too small where it is not near 0.
    pub echo: f64,
}

impl SlopeMaps {
    // Measure the maps of slopes
    /// Measures the maps of slopes (frames, n), rad, in the order of [`SlopeOrder`].
    ///
    /// # Errors
    /// `Invalid` for another number of slopes than the system has, a number that is not finite, fewer than two frames, or a star whose slopes never change;
    /// `Memory` where the maps do not fit; `Cancelled`.
    ///
    /// ```
    /// use lenslet::{device::silent, model::System, tomography::{Simulation, SlopeMaps}};
    /// use ndarray::Array2;
    /// let system = System::from_file("book/systems/small-moao.toml")?;
    /// let simulation = Simulation::new(&system)?;
    /// let mut slopes = Array2::zeros((8, simulation.order().len()));
    /// for (seed, mut frame) in slopes.rows_mut().into_iter().enumerate() {
    ///     frame.assign(&ndarray::Array1::from(simulation.draw(seed as u64).slopes));
    /// }
    /// let maps = SlopeMaps::measure(&system, slopes.view(), &silent)?;
    /// assert_eq!((maps.layout.pairs().len(), maps.blocks()), (6, 8)); // of three stars
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn measure(
        system: &System,
        slopes: ArrayView2<f64>,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let layout = MapLayout::new(system);
        check_slopes(slopes, layout.order.len())?;
        let frames = slopes.nrows();
        accept(frames >= 2, "frames", frames, "at least 2, as covariances are means over frames")?;
        let mut slopes = slopes.as_standard_layout().into_owned();
        let mean = slopes.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(slopes.ncols()));
        slopes -= &mean;
        slopes.rows_mut().into_iter().for_each(|mut frame| {
            layout.modes.remove(frame.as_slice_mut().unwrap_or_else(|| unreachable!("a row")));
        });
        let power = power_of_frames(&layout, &slopes)?;
        let (edges, echo) = blocks_of_frames(&power);
        let independent = independent_frames(&power, &edges);
        let numbers = layout.len().saturating_mul(edges.len() + 2) as u64;
        refuse_beyond_memory(8 * numbers, || "the maps of the slopes".into())?;
        let (values, blocks) = Self::products(&layout, slopes.reversed_axes(), &edges, watch)?;
        Ok(Self { layout, values, blocks, frames, independent, echo })
    }

    // Multiply slopes block by block
    /// Maps of all frames, and of each block, of slopes (n, frames).
    fn products(
        layout: &MapLayout,
        slopes: Array2<f64>,
        blocks: &[Range<usize>],
        watch: &dyn Watch,
    ) -> Result<(Array1<f64>, Array2<f64>), Error> {
        let (number, frames) = (blocks.len() as f64, slopes.ncols() as f64);
        let mut all = Array2::zeros((blocks.len(), layout.len()));
        let mut means = Array2::zeros((slopes.nrows(), blocks.len()));
        for (b, block) in blocks.iter().enumerate() {
            check(watch)?;
            let own = slopes.slice(s![.., block.clone()]).as_standard_layout().into_owned();
            means.column_mut(b).assign(&(own.sum_axis(Axis(1)) / block.len() as f64));
            let map = |pair: &MapPair| {
                let [p, q] = pair.stars.map(|star| own.slice(s![layout.slopes(star), ..]));
                let product = times_transpose(&p, &q) / block.len() as f64;
                layout.average_projected(pair, product.view())
            };
            let maps: Vec<Array1<f64>> = layout.pairs.par_iter().map(map).collect();
            for (pair, map) in layout.pairs.iter().zip(maps) {
                all.slice_mut(s![b, pair.range()]).assign(&map);
            }
            watch.progress(b + 1, blocks.len());
        }
        let shares = Array1::from_iter(blocks.iter().map(|block| block.len() as f64 / frames));
        let mut values = shares.dot(&all);
        for pair in &layout.pairs {
            let [p, q] = pair.stars.map(|star| means.slice(s![layout.slopes(star), ..]));
            let of_means = times_transpose(&p, &q) / (number * (number - 1.0));
            let mut values = values.slice_mut(s![pair.range()]);
            values += &layout.average_projected(pair, of_means.view());
        }
        Ok((values, all))
    }

    /// Blocks of frames.
    pub fn blocks(&self) -> usize {
        self.blocks.nrows()
    }
}

// Blocks of frames long enough
/// The most blocks of frames, and the fewest that are made of more.
const BLOCKS: [usize; 2] = [64, 16];

/// The blocks into which frames are cut, and the correlation of neighbouring ones.
fn blocks_of_frames(power: &[f64]) -> (Vec<Range<usize>>, f64) {
    let cut = |blocks: usize| -> Vec<Range<usize>> {
        let edge = |b: usize| b * power.len() / blocks;
        (0..blocks).map(|b| edge(b)..edge(b + 1)).collect()
    };
    let mut blocks = cut(power.len().min(BLOCKS[0]));
    loop {
        let echo = echo_of(&means_of(power, &blocks));
        let few = blocks.len() < 2 * BLOCKS[1];
        if few || echo < 2.0 / (blocks.len() as f64).sqrt() {
            return (blocks, echo);
        }
        blocks = cut(blocks.len() / 2);
    }
}

/// How many independent frames have a mean that scatters as much as that of these.
fn independent_frames(power: &[f64], blocks: &[Range<usize>]) -> f64 {
    let of_blocks = variance(&means_of(power, blocks)) / blocks.len() as f64;
    (variance(power) / of_blocks).clamp(1.0, power.len() as f64)
}

// How frames and blocks scatter
/// The mean square of the slopes of each frame, each star's in units of its own.
fn power_of_frames(layout: &MapLayout, slopes: &Array2<f64>) -> Result<Vec<f64>, Invalid> {
    let mut power = Array1::zeros(slopes.nrows());
    let stars = 0..=layout.pairs.last().map_or(0, |pair| pair.stars[1]);
    for star in stars {
        let own = slopes.slice(s![.., layout.slopes(star)]);
        let squares = own.map_axis(Axis(1), |frame| frame.dot(&frame));
        let mean = squares.mean().unwrap_or(0.0);
        let expected = "slopes that change from frame to frame";
        accept(
            mean > 1e-36,
            &format!("mean square of the slopes of guide_star[{star}]"),
            mean,
            expected,
        )?;
        power = power + squares / mean;
    }
    Ok(power.to_vec())
}

fn means_of(power: &[f64], blocks: &[Range<usize>]) -> Vec<f64> {
    let mean = |block: &Range<usize>| power[block.clone()].iter().sum::<f64>() / block.len() as f64;
    blocks.iter().map(mean).collect()
}

fn variance(numbers: &[f64]) -> f64 {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    squares / (numbers.len() as f64 - 1.0)
}

/// The correlation of neighbouring numbers.
fn echo_of(numbers: &[f64]) -> f64 {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let products = numbers.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    if squares > 0.0 { products.sum::<f64>() / squares } else { 0.0 }
}

// Tests of measured maps
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::silent;
    use crate::model::{Atmosphere, Focus, Layer, Noise, Source};
    use rand::{SeedableRng, rngs::StdRng};
    use rand_distr::{Distribution, StandardNormal};

    // Maps are means over pairs of lenslets
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
        let maps = SlopeMaps::measure(&system, slopes.view(), &silent).unwrap();
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
        // The maps of blocks are those of their frames, here one each.
        let frame = about.row(3);
        assert_eq!(maps.blocks(), 5);
        let middle = own.range().start + own.place(3, [2, 2]);
        let rest = frame.slice(s![9..18]);
        assert!((maps.blocks[[3, middle]] - rest.dot(&rest) / 9.0).abs() < 1e-12);
    }

    // Tilt that is removed leaves the maps
    #[test]
    fn tilt_that_is_removed_or_unknown_leaves_the_maps() {
        for tip_tilt in [TipTilt::Removed, TipTilt::unknown(1e-9).unwrap()] {
            let system = system(&[3, 3], tip_tilt);
            let mut slopes = random(4, 36, 2);
            let before = SlopeMaps::measure(&system, slopes.view(), &silent).unwrap();
            slopes.slice_mut(s![2, 18..27]).mapv_inplace(|slope| slope + 5.0);
            let after = SlopeMaps::measure(&system, slopes.view(), &silent).unwrap();
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

    // Slow slopes are corrected for their mean
    #[test]
    fn slow_slopes_are_corrected_for_their_mean() {
        let system = system(&[2], TipTilt::Measured);
        let (mut sum, mut plain) = (0.0, 0.0);
        for seed in 0..40 {
            // Each frame is there 40 times: 20 independent ones of 800.
            let few = random(20, 8, seed);
            let slopes = Array2::from_shape_fn((800, 8), |(t, k)| few[[t / 40, k]]);
            let maps = SlopeMaps::measure(&system, slopes.view(), &silent).unwrap();
            assert!(maps.blocks() <= 32, "{}", maps.blocks());
            if seed == 0 {
                assert!((10.0..=45.0).contains(&maps.independent), "{}", maps.independent);
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
        let maps = SlopeMaps::measure(&system, fresh.view(), &silent).unwrap();
        assert!(maps.blocks() >= 32 && maps.independent > 400.0 && maps.echo.abs() < 0.5);
    }

    // Bad slopes are refused by name
    #[test]
    fn bad_slopes_are_refused_by_name() {
        let system = system(&[2, 2], TipTilt::Measured);
        let refused = |slopes: Array2<f64>| {
            SlopeMaps::measure(&system, slopes.view(), &silent).unwrap_err().to_string()
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
