// Tangled from book/src/covariance-maps.md: edit there, or here and run cargo tangle stitch.
//! Pictures of covariances: maps over the displacement with one scale of colours, and cuts through their middle.

// Imports of covariance maps
use crate::error::{Error, Invalid, count, finite};
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::plot::{
    Area, BAR, ColourScale, Drawn, Figure, LETTERS, Picture, PictureFormat, PlotAxis, TYPEFACE,
    paint_bar, paint_levels, power_of_ten, short_name, ticks, title_width,
};
use crate::turbulence::slope::SlopeCovariance;
use crate::turbulence::wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
use ndarray::{Array2, ArrayView2, Zip, s};
use plotters::prelude::*;

// What a picture of covariances shows
/// Which pairs a picture shows: of guide stars, or of targets and guide stars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownPairs {
    /// All of them.
    All,
    /// The pair of one first and one second.
    One(usize, usize),
}

/// A component of a covariance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Slopes along x with slopes along x.
    Xx,
    /// Slopes along x with slopes along y.
    Xy,
    /// Slopes along y with slopes along y.
    Yy,
    /// Wavefronts with slopes along x.
    X,
    /// Wavefronts with slopes along y.
    Y,
}

// Choices of a picture of covariances
/// What a picture of covariances shows, and how.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct CovarianceView {
    /// Name of the system, for the title.
    pub system: String,
    /// The pairs; `None` for all of a small system, and the first of a larger one.
    pub pairs: Option<ShownPairs>,
    /// The component; `None` for all.
    pub component: Option<Component>,
    /// The scale of colours.
    pub scale: ColourScale,
}

impl CovarianceView {
    /// All of a small system, the first pair of a larger one, with the name of the system for the title.
    pub fn of(system: impl Into<String>) -> Self {
        Self { system: system.into(), ..Self::default() }
    }

    /// Chooses the pairs.
    pub fn pairs(self, pairs: Option<ShownPairs>) -> Self {
        Self { pairs, ..self }
    }

    /// Chooses a component.
    pub fn component(self, component: Option<Component>) -> Self {
        Self { component, ..self }
    }

    /// Chooses the scale of colours.
    pub fn scale(self, scale: ColourScale) -> Self {
        Self { scale, ..self }
    }
}

// Check what shall be shown
/// The largest number of first and of second things of which all pairs are shown unless others are asked for.
const FEW: usize = 3;

/// Pairs, or components: two numbers each.
type Places = Vec<[usize; 2]>;

impl CovarianceView {
    /// The pairs of slopes that are shown, each once, for so many guide stars; and the components.
    ///
    /// # Errors
    /// `Invalid` where a star does not exist, the component is that of a wavefront, or there are too many maps for a picture.
    pub fn check_slopes(&self, stars: usize) -> Result<(Places, Places), Invalid> {
        let what = format!("two guide stars between 0 and {}, or all", stars.saturating_sub(1));
        let mut pairs = self.pairs_of(stars, stars, stars <= FEW, &what)?;
        if pairs.len() > 1 {
            pairs.retain(|[p, q]| p <= q);
        }
        let components = match self.component {
            None if pairs.len() > 1 => vec![[0, 0], [0, 1], [1, 1]],
            None => vec![[0, 0], [0, 1], [1, 0], [1, 1]],
            Some(Component::Xx) => vec![[0, 0]],
            Some(Component::Xy) => vec![[0, 1]],
            Some(Component::Yy) => vec![[1, 1]],
            Some(other) => return Err(other.refused("xx, xy, yy or all, for slopes")),
        };
        check_size(pairs.len() * components.len())?;
        Ok((pairs, components))
    }

    // Check what shall be shown of wavefronts
    /// The pairs of target and guide star that are shown, and the axes of the slopes.
    ///
    /// # Errors
    /// `Invalid` as for the slopes.
    pub fn check_wavefront(
        &self,
        problem: &WavefrontProblem,
    ) -> Result<(Places, Vec<usize>), Invalid> {
        let axes = match self.component {
            None => vec![0, 1],
            Some(Component::X) => vec![0],
            Some(Component::Y) => vec![1],
            Some(other) => return Err(other.refused("x, y or all, for wavefronts with slopes")),
        };
        let (targets, stars) = (problem.targets(), problem.stars());
        let what = format!(
            "a target between 0 and {} and a guide star between 0 and {}, or all",
            targets.saturating_sub(1),
            stars.saturating_sub(1)
        );
        let few = targets.max(stars) <= FEW && !problem.is_layered();
        let pairs = self.pairs_of(targets, stars, few, &what)?;
        check_size(pairs.len() * axes.len() * problem.lattices().len())?;
        Ok((pairs, axes))
    }
}

// Refuse pairs components and crowds
impl CovarianceView {
    /// The pairs to be shown of so many first and second things.
    fn pairs_of(
        &self,
        first: usize,
        second: usize,
        few: bool,
        expected: &str,
    ) -> Result<Places, Invalid> {
        match self.pairs {
            Some(ShownPairs::One(p, q)) if p >= first || q >= second => {
                Err(Invalid::new("pair", format!("{p},{q}"), expected))
            }
            Some(ShownPairs::One(p, q)) => Ok(vec![[p, q]]),
            None if !few => Ok(vec![[0, 0]]),
            _ => Ok((0..first).flat_map(|p| (0..second).map(move |q| [p, q])).collect()),
        }
    }
}

impl Component {
    fn refused(self, expected: &str) -> Invalid {
        Invalid::new("component", format!("{self:?}").to_lowercase(), expected)
    }
}

/// Refuses a picture of more maps than an eye or a memory takes.
fn check_size(maps: usize) -> Result<(), Invalid> {
    const MOST: usize = 1024;
    let expected = format!("a pair P,Q, or a component, as {maps} maps are more than {MOST}");
    if maps > MOST { Err(Invalid::new("pair", "all", expected)) } else { Ok(()) }
}

// Draw the slope covariance
/// Draws the slope covariance of pairs of guide stars of a system: maps over the displacement, and cuts through their middle.
///
/// The bytes of the file are returned.
///
/// # Errors
/// `Invalid` where the pair or component does not exist, the covariance is not that of the system, or a number is not finite.
pub fn plot_covariance(
    covariance: &SlopeCovariance,
    system: &System,
    view: &CovarianceView,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    slope_view(covariance, system, view)?.encode(format)
}

// Choose curves for slopes
/// The cuts through a map of slopes, by its component: of one pair (`lone`) along both axes.
fn curves(
    name: &str,
    [a, b]: [usize; 2],
    all: bool,
    lone: bool,
) -> Vec<(String, PlotDirection, bool)> {
    let cut = |along, words: &str| (format!("{name} {words}"), along, all && a == 1);
    match (a == b, lone) {
        (true, true) => vec![cut(PlotDirection::X, "along x"), cut(PlotDirection::Y, "along y")],
        (true, false) if a == 0 || !all => vec![cut(PlotDirection::X, "along x")],
        (false, true) if all => vec![],
        (false, true) => vec![cut(PlotDirection::Diagonal, "along the diagonal")],
        _ => vec![],
    }
}

/// The number of pairs in a row, a divisor of `pairs`, for which rows and columns of maps differ least.
fn pairs_in_a_row(pairs: usize, components: usize) -> usize {
    let divisors = (1..=pairs).filter(|k| pairs.is_multiple_of(*k));
    divisors.min_by_key(|k| (k * components).abs_diff(pairs / k)).unwrap_or(1)
}

fn slope_view(
    covariance: &SlopeCovariance,
    system: &System,
    view: &CovarianceView,
) -> Result<CovarianceMaps, Invalid> {
    let (pairs, components) = view.check_slopes(covariance.sources())?;
    let valid = system.valid_lenslets();
    // Refuse the covariance of another system
    let stars = system.guide_stars().len();
    let lenslets = covariance.lenslets();
    if stars != covariance.sources() || valid.iter().any(|valid| valid.nrows() != lenslets) {
        let stars = count(covariance.sources(), "guide star");
        let given = format!("{stars}, {} across", count(lenslets, "lenslet"));
        return Err(Invalid::new("covariance", given, "that of the system"));
    }
    // Map the slopes of each pair
    let lone = pairs.len() == 1;
    let all = components.len() > 1;
    let columns = match (lone, all) {
        (true, true) => 2,
        (true, false) => 1,
        (false, _) => components.len() * pairs_in_a_row(pairs.len(), components.len()),
    };
    let places = pairs.iter().flat_map(|pair| components.iter().map(move |part| (*pair, *part)));
    let mut maps = Vec::new();
    for ([p, q], [a, b]) in places {
        let field = covariance.values().slice(s![p, q, a, b, .., ..]);
        let field = darken(field, &lit_lags(&valid[p], &valid[q], 1))?;
        let component = ["xx", "xy", "yx", "yy"][2 * a + b];
        let name = if lone { component.into() } else { format!("{p},{q} {component}") };
        let cut = lone || (p == pairs[0][0] && [a, b] == components[0]);
        let cuts = if cut { curves(&name, [a, b], lone && all, lone) } else { vec![] };
        maps.push(Map { name, field, cuts });
    }
    // Name the picture of slopes
    let of = match pairs[..] {
        [[p, q]] if p == q => format!("the slopes of guide star {p}"),
        [[p, q]] => format!("slopes of guide stars {p} and {q}"),
        _ => format!("slopes, all pairs of {}", count(stars, "guide star")),
    };
    let component =
        view.component.map_or(String::new(), |only| format!(", {only:?}").to_lowercase());
    let title = format!("{}: covariance of {of}{component}", short_name(&view.system));
    let step = system.guide_stars()[0].sensor.side();
    Ok(CovarianceMaps::new(title, maps, columns, (step, "rad²"), view.scale))
}

// Draw the covariance of wavefronts with slopes
// Picture of wavefronts with slopes
/// Draws the covariance of wavefronts with slopes of a system, for the problem that it was computed for.
///
/// # Errors
/// `Invalid` as for the slopes.
pub fn plot_wavefront_covariance(
    (problem, covariance): (&WavefrontProblem, &WavefrontSlope),
    system: &System,
    view: &CovarianceView,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    wavefront_view((problem, covariance), system, view)?.encode(format)
}

fn wavefront_view(
    (problem, covariance): (&WavefrontProblem, &WavefrontSlope),
    system: &System,
    view: &CovarianceView,
) -> Result<CovarianceMaps, Invalid> {
    let (pairs, axes) = view.check_wavefront(problem)?;
    let valid = system.valid_lenslets();
    // Refuse wavefronts of another system
    let fits = |(layers, lattice): (&[WavefrontLayer], &ndarray::Array5<f64>)| {
        let lags = problem.lags(&layers[0]);
        lattice.dim() == (problem.targets(), problem.stars(), 2, lags, lags)
    };
    let lattices = covariance.lattices();
    let same = valid.len() == problem.stars()
        && valid.iter().all(|valid| valid.nrows() == problem.lenslets())
        && lattices.len() == problem.lattices().len();
    if !same || !problem.lattices().zip(lattices).all(fits) {
        let given = format!("{} lattices", lattices.len());
        return Err(Invalid::new("covariance", given, "that of the system and the problem"));
    }
    let lone = pairs.len() == 1;
    let columns = if lone { axes.len() } else { problem.stars() * axes.len() };
    let mut maps = Vec::new();
    for first in pairs.chunks(if lone { 1 } else { problem.stars() }) {
        for (k, layers) in problem.lattices().enumerate() {
            // Map the wavefronts of a row
            let points = lit_points(system, problem, &layers[0]);
            for &[t, q] in first {
                let lit = lit_lags(&points, &valid[q], problem.grid().oversampling);
                for &a in &axes {
                    let field = darken(covariance.lattices()[k].slice(s![t, q, a, .., ..]), &lit)?;
                    let (axis, along) = [("x", PlotDirection::X), ("y", PlotDirection::Y)][a];
                    let pair = if lone { String::new() } else { format!("{t},{q} ") };
                    let layer =
                        if problem.is_layered() { format!(", layer {k}") } else { String::new() };
                    let name = format!("{pair}{axis}{layer}");
                    let drawn = a == axes[0] && (lone || (t == pairs[0][0] && k == 0));
                    let cut = (format!("{name} along {axis}"), along, false);
                    maps.push(Map { name, field, cuts: if drawn { vec![cut] } else { vec![] } });
                }
            }
        }
    }
    // Name the picture of wavefronts
    let of = match pairs[..] {
        [[t, q]] => format!("the wavefront of target {t} with slopes of guide star {q}"),
        _ => {
            let wavefronts = count(problem.targets(), "wavefront");
            format!("{wavefronts} with slopes of {}", count(valid.len(), "guide star"))
        }
    };
    let axis = view.component.map_or(String::new(), |only| format!(", {only:?}").to_lowercase());
    let title = format!("{}: covariance of {of}{axis}", short_name(&view.system));
    let step = problem.pitch() / problem.grid().oversampling as f64;
    Ok(CovarianceMaps::new(title, maps, columns, (step, "m rad"), view.scale))
}

// Find the displacements that are lit
/// Which lags occur between lit points (M, M) and lit lenslets (N, N), o points to a lenslet; (K, K), K = o (N − 1) + M.
fn lit_lags(points: &Array2<bool>, lenslets: &Array2<bool>, o: usize) -> Array2<bool> {
    let (m, n) = (points.nrows(), lenslets.nrows());
    let lags = o * (n - 1) + m;
    let mut lit = Array2::from_elem((lags, lags), false);
    for ((j, i), _) in lenslets.indexed_iter().filter(|(_, lit)| **lit) {
        let block = lit.slice_mut(s![o * j..o * j + m, o * i..o * i + m]);
        Zip::from(block).and(points.slice(s![..;-1, ..;-1])).for_each(|lag, lit| *lag |= lit);
    }
    lit
}

/// A field of lags, NaN where it is dark; refused where a number is none.
fn darken(field: ArrayView2<f64>, lit: &Array2<bool>) -> Result<Array2<f64>, Invalid> {
    field.iter().try_for_each(|value| finite("covariance", *value).map(drop))?;
    let field = Zip::from(field).and(lit);
    Ok(field.map_collect(|value, lit| if *lit { *value } else { f64::NAN }))
}
/// The lit points of a layer's grid, (M_l, M_l).
fn lit_points(system: &System, problem: &WavefrontProblem, layer: &WavefrontLayer) -> Array2<bool> {
    let grid = PhaseGrid { points: layer.points, ..problem.grid() };
    let shrink = if problem.is_layered() { layer.gamma } else { 1.0 };
    Array2::from_shape_fn((layer.points, layer.points), |(j, i)| {
        let point = [i, j].map(|m| shrink * grid.coordinate(m, problem.pitch()));
        system.pupil().is_none_or(|pupil| pupil.contains(point))
    })
}

// Maps over the displacement
/// A map over the displacement.
struct Map {
    name: String,
    /// Axis 0 along y, centred on no displacement; NaN where it is dark.
    field: Array2<f64>,
    /// Curves through the middle: name, direction, and whether it is dashed.
    cuts: Vec<(String, PlotDirection, bool)>,
}

#[derive(Clone, Copy)]
enum PlotDirection {
    X,
    Y,
    Diagonal,
}

/// Maps side by side, row by row, with one scale of colours.
struct CovarianceMaps {
    title: String,
    maps: Vec<Map>,
    columns: usize,
    /// Step of the lags, metres in the pupil.
    step: f64,
    unit: &'static str,
    scale: ColourScale,
    /// The largest magnitude of a map.
    largest: f64,
}

// Lay out the maps over the displacement
impl CovarianceMaps {
    fn new(
        title: String,
        maps: Vec<Map>,
        columns: usize,
        (step, unit): (f64, &'static str),
        scale: ColourScale,
    ) -> Self {
        let values = maps.iter().flat_map(|map| &map.field);
        let largest = values.fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let largest = if largest > 0.0 { largest } else { 1.0 };
        Self { title, maps, columns, step, unit, scale, largest }
    }

    // Sizes and corners of the maps
    fn rows(&self) -> usize {
        self.maps.len() / self.columns
    }

    /// Lags along an axis of the largest map.
    fn lags(&self) -> usize {
        self.maps.iter().map(|map| map.field.nrows()).max().unwrap_or(1)
    }

    /// Pixels along a map.
    fn side(&self) -> u32 {
        let lags = self.lags() as u32;
        let aim = if self.columns.max(self.rows()) <= 2 { 480 } else { 216 };
        lags * ((aim + lags / 2) / lags).max(1)
    }

    /// Upper left corner of a map, or of what follows behind the last.
    fn corner(&self, [row, column]: [usize; 2]) -> (i32, i32) {
        let step = self.side() as i32 + 52;
        (150 + column as i32 * step, 150 + row as i32 * step)
    }

    /// Right and lower end of the maps, of their bar and of their axes.
    fn maps_end(&self) -> (i32, i32) {
        let (right, below) = self.corner([self.rows(), self.columns]);
        (right + BAR, below + 70)
    }

    /// Upper left corner and size of the cuts: to the right of high maps, else below them.
    fn place_of_cuts(&self) -> ((i32, i32), (i32, i32)) {
        let (right, below) = self.maps_end();
        let higher = self.rows() > self.columns;
        let right_of_maps = ((right + 10, 100), (1000, (below - 100).min(1400)));
        if higher { right_of_maps } else { ((20, below + 40), (right.clamp(900, 1600) - 20, 760)) }
    }

    /// The power of ten in which numbers are given.
    fn power(&self) -> i32 {
        self.largest.log10().floor().max(-300.0) as i32
    }

    // Draw one map
    fn draw_map<DB: DrawingBackend>(&self, area: &Area<DB>, k: usize) -> Drawn<DB> {
        let (row, column, side) = (k / self.columns, k % self.columns, self.side() as i32);
        let ((x, y), Map { name, field, .. }) = (self.corner([row, column]), &self.maps[k]);
        area.draw_text(name, &(TYPEFACE, LETTERS).into_text_style(area), (x, y - 36))?;
        area.draw(&Rectangle::new([(x - 1, y - 1), (x + side, y + side)], BLACK))?;
        // Put axes around a covariance map
        let left = if column == 0 { 120 } else { 0 };
        let below = if row + 1 == self.rows() { 96 } else { 0 };
        let around = area.clone().shrink((x - left, y), (side + left, side + below));
        let reach = 0.5 * self.lags() as f64 * self.step;
        let most = if side < 300 { 3 } else { 5 };
        let axis = || PlotAxis::default().scale(&(-reach..reach), most);
        let mut builder = ChartBuilder::on(&around);
        builder.x_label_area_size(below).y_label_area_size(left);
        let mut chart = builder.build_cartesian_2d(axis(), axis())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, LETTERS));
        mesh.x_desc("ρx [m]").y_desc("ρy [m]").draw()?;
        let (lags, own) = (self.lags(), field.nrows());
        let margin = (lags - own) / 2;
        let lag = |share: f64| ((share * lags as f64) as usize).checked_sub(margin);
        let level = |x: f64, y: f64| {
            let value = lag(x).zip(lag(y)).and_then(|(i, j)| field.get([j, i]));
            value.map_or(f64::NAN, |value| self.scale.level(value / self.largest))
        };
        paint_levels(&chart.plotting_area().strip_coord_spec(), level)
    }

    // Draw the bar of colours
    fn draw_bar<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let (unit, high) = (10f64.powi(self.power()), area.dim_in_pixel().1 as i32);
        let name = format!("covariance [{} {}]", power_of_ten(self.power()), self.unit);
        let gap = 2.0 * 36.0 / f64::from(high);
        paint_bar(area, ticks(self.scale, self.largest / unit, gap), &name)
    }

    // Cut through the middle
    fn cuts(&self) -> Figure {
        let unit = 10f64.powi(self.power());
        let label = format!("covariance [{} {}]", power_of_ten(self.power()), self.unit);
        let figure = Figure::new().x_label("displacement [m]").y_label(&label);
        let all =
            self.maps.iter().flat_map(|map| map.cuts.iter().map(move |cut| (&map.field, cut)));
        all.take(7).fold(figure, |figure, (field, (name, along, dashed))| {
            let (lags, middle) = (field.nrows(), field.nrows() / 2);
            let stretch = if matches!(along, PlotDirection::Diagonal) { 2f64.sqrt() } else { 1.0 };
            let lag = |k: usize| stretch * (k as f64 - 0.5 * (lags - 1) as f64) * self.step;
            let value = |k: usize| match along {
                PlotDirection::X => field[[middle, k]],
                PlotDirection::Y => field[[k, middle]],
                PlotDirection::Diagonal => field[[k, k]],
            };
            let points = (0..lags).map(|k| (lag(k), value(k) / unit));
            let lit: Vec<_> = points.filter(|(_, value)| !value.is_nan()).collect();
            match (lit.len(), dashed) {
                (0 | 1, _) => figure.points(name, lit),
                (_, true) => figure.dashes(name, lit),
                (_, false) => figure.line(name, lit),
            }
        })
    }
}

// Draw a view
impl Picture for CovarianceMaps {
    fn size(&self) -> (u32, u32) {
        let ((right, below), (corner, size)) = (self.maps_end(), self.place_of_cuts());
        let (width, height) = (right.max(corner.0 + size.0), below.max(corner.1 + size.1));
        ((width as u32 + 10).max(title_width(&self.title)), height as u32 + 50)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.margin(20, 0, 0, 0).titled(&self.title, (TYPEFACE, 34))?;
        for k in 0..self.maps.len() {
            self.draw_map(area, k)?;
        }
        let (right, below) = self.corner([self.rows(), self.columns]);
        let high = below - 202;
        self.draw_bar(&area.clone().shrink((right - 22, 150), (BAR, high)))?;
        let mut note = format!("Colours: {}.", self.scale.name());
        if self.maps.iter().any(|map| map.field.iter().any(|value| value.is_nan())) {
            let second = if self.unit == "rad²" { "lenslets" } else { "point and lenslet" };
            note += &format!(" Grey: no lit {second} so far apart.");
        }
        let place = (30, self.size().1 as i32 - 44);
        area.draw_text(&note, &(TYPEFACE, LETTERS).into_text_style(area), place)?;
        let ((x, y), (width, height)) = self.place_of_cuts();
        self.cuts().draw(&area.clone().shrink((x, y), (width, height)))
    }
}

// Tests of covariance maps
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::engine::Engine;
    use crate::plan::Plan;
    use crate::plot::{DARK, STATIONS, colour};
    use crate::turbulence::plan::{WavefrontCovariancePlan, slope_problem, wavefront_problem};
    use crate::turbulence::slope::PairCovariance;
    use crate::watch::unwatched;

    fn system(name: &str) -> System {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/book/systems/");
        System::from_file(format!("{folder}{name}.toml")).unwrap()
    }

    fn three_stars() -> System {
        let four = system("keck-lgs");
        four.to_builder().guide_stars(four.guide_stars()[..3].to_vec()).build().unwrap()
    }

    // Number all entries of a covariance
    /// A covariance of a system whose numbers are all different.
    fn numbered(system: &System) -> SlopeCovariance {
        let problem = slope_problem(system).unwrap();
        let lags = problem.lags();
        let number = |k, (c, j, i)| (((k * 3 + c) * lags + j) * lags + i) as f64 - 8000.0;
        let pair = |k| PairCovariance::from_shape_fn((3, lags, lags), |place| number(k, place));
        let pairs: Vec<_> = (0..problem.pairs().len()).map(pair).collect();
        SlopeCovariance::from_pairs(&problem, &pairs)
    }

    /// Whether two valid lenslets are so far apart, by trying all pairs.
    fn is_lit(valid: &Array2<bool>, [j, i]: [usize; 2]) -> bool {
        let n = valid.nrows();
        let at = |k: usize, lag: usize| (k + lag).checked_sub(n - 1);
        valid.indexed_iter().any(|((y, x), lit)| {
            let second = at(y, j).zip(at(x, i)).and_then(|place| valid.get(place));
            *lit && second.is_some_and(|lit| *lit)
        })
    }

    // Look for each number in the picture
    #[test]
    fn each_number_has_its_place() -> Result<(), Box<dyn std::error::Error>> {
        let system = three_stars();
        let covariance = numbered(&system);
        let valid = &system.valid_lenslets()[0];
        let all = CovarianceView::of("keck").pairs(Some(ShownPairs::All));
        let view = slope_view(&covariance, &system, &all)?;
        let picture = image::load_from_memory(&view.encode(PictureFormat::Png)?)?.into_rgb8();
        let lags = view.lags();
        let (colours, cell) =
            (DerivedColorMap::new(&STATIONS.map(colour)), view.side() / lags as u32);
        assert_eq!((view.columns, view.rows()), (3, 6));
        let shown = |(p, q, a, b)| p <= q && (a, b) != (1, 0);
        for ((p, q, a, b, j, i), value) in covariance.values().indexed_iter() {
            if !shown((p, q, a, b)) {
                continue;
            }
            // Each pair once, (0,0), (0,1), (0,2), (1,1) and so on downwards: xx, xy, yy across.
            let corner = view.corner([p * (5 - p) / 2 + q, a + b]);
            let x = corner.0 as u32 + i as u32 * cell + cell / 2;
            let y = corner.1 as u32 + (lags - 1 - j) as u32 * cell + cell / 2;
            let level = ColourScale::Root.level(value / view.largest);
            let lit = is_lit(valid, [j, i]);
            let expected = if lit { colours.get_color(0.5 + 0.5 * level) } else { DARK };
            let RGBColor(red, green, blue) = expected;
            assert_eq!(picture.get_pixel(x, y).0, [red, green, blue], "{p},{q} {a}{b} at {j},{i}");
        }
        Ok(())
    }

    // Count the maps of a picture
    #[test]
    fn pairs_and_components_make_maps() {
        let system = system("keck-lgs");
        let covariance = numbered(&system);
        let draw = |pairs: Option<ShownPairs>, component: Option<Component>| {
            let view = CovarianceView::of("a/very/far/keck.toml").pairs(pairs).component(component);
            let view = view.scale(ColourScale::Log);
            let svg = plot_covariance(&covariance, &system, &view, PictureFormat::Svg)?;
            Ok::<_, Error>(String::from_utf8_lossy(&svg).into_owned())
        };
        let one = Some(ShownPairs::One(0, 3));
        for (pairs, component, maps) in [
            (None, None, 4),
            (one, Some(Component::Xy), 1),
            (Some(ShownPairs::All), Some(Component::Yy), 10),
            (Some(ShownPairs::All), None, 30),
        ] {
            let svg = draw(pairs, component).unwrap();
            assert_eq!(svg.matches("data:image/png;base64,").count(), maps + 1, "{pairs:?}");
            assert!(svg.contains("keck.toml: covariance") && svg.contains("logarithmic"));
            let (words, least) = crate::plot::tests::letters(svg.as_bytes());
            assert!(least >= 11.0 && words.iter().any(|word| word.ends_with("rad²]")), "{words:?}");
            let names = words.iter().filter(|word| word.len() == 6 && word.ends_with(" yy"));
            let names: Vec<_> = names.collect();
            assert!(maps == 4 || maps == 1 || names.len() == 10, "{names:?}");
            assert!(!words.iter().any(|word| word.starts_with("1,0") || word.ends_with(",0 yx")));
        }
        for pairs in (1..12).map(|stars| stars * (stars + 1) / 2) {
            for components in [1, 3] {
                let across = pairs_in_a_row(pairs, components);
                assert!(pairs % across == 0 && across * components <= 3 * pairs / across + 6);
            }
        }
        let refused = |pairs, component| draw(pairs, component).unwrap_err().to_string();
        assert!(
            refused(Some(ShownPairs::One(0, 4)), None)
                .starts_with("pair = 0,4: expected two guide")
        );
        assert!(refused(None, Some(Component::X)).starts_with("component = x: expected xx, xy"));
        // Refuse what cannot be mapped
        let problem = slope_problem(&system).unwrap();
        let field = PairCovariance::from_elem((3, 39, 39), f64::NAN);
        let nan = SlopeCovariance::from_pairs(&problem, &vec![field; problem.pairs().len()]);
        let view = CovarianceView::of("nan");
        assert!(plot_covariance(&nan, &system, &view, PictureFormat::Png).is_err());
        let other = self::system("small");
        assert!(plot_covariance(&covariance, &other, &view, PictureFormat::Png).is_err());
        assert!(check_size(1025).is_err() && check_size(1024).is_ok());
    }

    // Check maps of wavefronts and slopes
    #[test]
    fn wavefronts_have_a_map_for_each_layer() {
        let system = system("keck-lgs");
        let problem = wavefront_problem(&system).unwrap();
        let plan = WavefrontCovariancePlan::direct(problem.clone());
        let covariance = plan.run(&Engine::default(), &unwatched).unwrap();
        let view = CovarianceView::of("keck").pairs(Some(ShownPairs::One(1, 2)));
        let maps = wavefront_view((&problem, &covariance), &system, &view).unwrap();
        assert_eq!((maps.maps.len(), maps.columns), (14, 2));
        // A lattice that is smaller than the largest lies in the middle of its map.
        let picture = image::load_from_memory(&maps.encode(PictureFormat::Png).unwrap()).unwrap();
        let (picture, side) = (picture.into_rgb8(), maps.side() as i32);
        let at = |k: usize, x: i32, y: i32| {
            let corner = maps.corner([k / 2, k % 2]);
            picture.get_pixel((corner.0 + x) as u32, (corner.1 + y) as u32).0
        };
        assert_eq!(at(0, 0, side / 2), [DARK.0, DARK.1, DARK.2]);
        let [red, _, blue] = at(0, side / 2 - side / 20, side / 2);
        assert!(red > blue, "the wavefront rises towards the point");
        let [red, _, blue] = at(1, side / 2, side / 2 - side / 20);
        assert!(red < blue, "above the point the y slope falls");
        let all = view.clone().pairs(None).component(Some(Component::Y));
        let maps = wavefront_view((&problem, &covariance), &system, &all).unwrap();
        assert_eq!(maps.maps.len(), 7);
        let bad =
            |view: CovarianceView| wavefront_view((&problem, &covariance), &system, &view).err();
        let refused = bad(view.clone().pairs(Some(ShownPairs::One(2, 0)))).unwrap().to_string();
        assert!(refused.contains("pair = 2,0: expected a target between 0 and 1"), "{refused}");
        assert!(bad(view.component(Some(Component::Xx))).is_some());
    }
}
