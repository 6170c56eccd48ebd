// Tangled from book/src/plots.md: edit there, or here and run cargo tangle stitch.
//! Pictures of results, as SVG or PNG: curves, and maps of the slope covariance.

pub(crate) mod map;

pub use map::{WavefrontMap, plot_wavefronts, without_piston};

// What the plots stand on
use crate::error::{Error, Invalid, finite, positive};
use crate::turbulence::slope::SlopeCovariance;
use ndarray::{ArrayView2, s};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::data::float::pretty_print_float;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters_svg::SVGBackend;
use std::{io::Cursor, ops::Range, path::Path};

// Formats of a picture
/// The format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PictureFormat {
    /// Scalable vector graphics.
    Svg,
    /// Portable network graphics.
    Png,
}

impl PictureFormat {
    /// The format that the extension of a file's name asks for; `Invalid` unless it is `svg` or `png`.
    pub fn of(path: &Path) -> Result<Self, Invalid> {
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        match extension.as_ref().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(Invalid::new("plot", path.display(), "a file name that ends in .svg or .png")),
        }
    }
}

// Picture in either format
pub(crate) type Area<DB> = DrawingArea<DB, Shift>;
pub(crate) type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// The font that the program carries, and what a viewer of SVG may put in its place.
pub(crate) const TYPEFACE: &str = "DejaVu Sans, Verdana, sans-serif";

pub(crate) trait Picture {
    /// Width and height, in pixels.
    fn size(&self) -> (u32, u32);

    /// Draws the picture on an area, of its own size or another.
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB>;

    // Encode the picture in a format
    fn encode(&self, format: PictureFormat) -> Result<Vec<u8>, Error> {
        load_font(TYPEFACE)?;
        let (width, height) = self.size();
        if format == PictureFormat::Svg {
            let mut text = String::new();
            self.paint(SVGBackend::with_string(&mut text, (width, height)))?;
            // Mend the media type and the size
            let drawn = format!("width=\"{width}\" height=\"{height}\"");
            let shown = format!("width=\"{}\" height=\"{}\"", width / 2, height / 2);
            let text = text.replacen(&drawn, &shown, 1).replace("\"data:png;", "\"data:image/png;");
            return Ok(text.into_bytes());
        }
        let mut pixels = vec![0; 3 * width as usize * height as usize];
        self.paint(BitMapBackend::with_buffer(&mut pixels, (width, height)))?;
        let (mut file, rgb, png) =
            (Cursor::default(), image::ColorType::Rgb8, image::ImageFormat::Png);
        image::write_buffer_with_format(&mut file, &pixels, width, height, rgb, png)
            .map_err(failed)?;
        Ok(file.into_inner())
    }

    // Paint on any backend
    fn paint<DB: DrawingBackend>(&self, backend: DB) -> Result<(), Error> {
        let area = backend.into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| self.draw(&area)).and_then(|()| area.present());
        drawn.map_err(failed)
    }
}

// Load the font of the pictures
/// Makes the font that the program carries known to plotters under the name `typeface`.
///
/// # Errors
/// `Failed` where plotters cannot read it.
pub fn load_font(typeface: &str) -> Result<(), Error> {
    let font = include_bytes!("../../book/fonts/DejaVuSans-subset.ttf");
    plotters::style::register_font(typeface, FontStyle::Normal, font)
        .map_err(|_| failed("the font cannot be read"))
}

fn failed(reason: impl std::fmt::Display) -> Error {
    Error::Failed { what: "drawing".into(), reason: reason.to_string() }
}

// Figure of curves
/// A figure of curves in one panel, with a legend.
///
/// ```
/// use lenslet::plot::{Figure, PictureFormat};
/// let power = (1..100).map(|r| (r as f64, 6.88 * (r as f64).powf(5.0 / 3.0)));
/// let figure = Figure::new().x_label("r [m]").log_x().log_y().line("Kolmogorov", power);
/// assert!(figure.render(PictureFormat::Svg).is_ok_and(|svg| svg.starts_with(b"<svg")));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Figure {
    title: String,
    x: Axis,
    y: Axis,
    curves: Vec<(String, Style, Vec<[f64; 3]>)>,
}

#[derive(Debug, Clone, Copy)]
enum Style {
    Line,
    Dashes,
    Points,
}

// Make, describe and show a figure
impl Figure {
    /// An empty figure with linear axes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the title above the panel.
    pub fn title(self, title: &str) -> Self {
        Self { title: title.into(), ..self }
    }

    // Describe the axes of a figure
    /// Names the quantity along the horizontal axis, with its unit.
    pub fn x_label(self, label: &str) -> Self {
        Self { x: Axis { label: label.into(), ..self.x }, ..self }
    }

    /// Names the quantity along the vertical axis, with its unit.
    pub fn y_label(self, label: &str) -> Self {
        Self { y: Axis { label: label.into(), ..self.y }, ..self }
    }

    /// Makes the horizontal axis logarithmic; what is not positive is then left out.
    pub fn log_x(self) -> Self {
        Self { x: Axis { log: true, ..self.x }, ..self }
    }

    /// Makes the vertical axis logarithmic; what is not positive is then left out.
    pub fn log_y(self) -> Self {
        Self { y: Axis { log: true, ..self.y }, ..self }
    }

    // Fix the ends of axes
    /// Fixes the ends of the horizontal axis; points beyond are left out.
    pub fn x_range(self, low: f64, high: f64) -> Self {
        Self { x: Axis { range: Some([low, high]), ..self.x }, ..self }
    }

    /// Fixes the ends of the vertical axis; points beyond are left out.
    pub fn y_range(self, low: f64, high: f64) -> Self {
        Self { y: Axis { range: Some([low, high]), ..self.y }, ..self }
    }

    // Add curves and points
    /// Adds a line through points (x, y).
    pub fn line(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add(name, Style::Line, points.into_iter().map(|(x, y)| [x, y, 0.0]).collect())
    }

    /// Adds a dashed line through points (x, y).
    pub fn dashes(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add(name, Style::Dashes, points.into_iter().map(|(x, y)| [x, y, 0.0]).collect())
    }

    /// Adds unconnected points (x, y).
    pub fn points(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.points_with_errors(name, points.into_iter().map(|(x, y)| (x, y, 0.0)))
    }

    // Add points with error bars
    /// Adds points (x, y, e) with bars from y − e to y + e.
    pub fn points_with_errors<I>(self, name: &str, points: I) -> Self
    where
        I: IntoIterator<Item = (f64, f64, f64)>,
    {
        self.add(name, Style::Points, points.into_iter().map(|(x, y, e)| [x, y, e]).collect())
    }

    fn add(mut self, name: &str, style: Style, points: Vec<[f64; 3]>) -> Self {
        self.curves.push((name.into(), style, points));
        self
    }

    // Render and save the figure
    /// Draws the figure; the bytes of the file. `Invalid` for a number that is not finite.
    pub fn render(&self, format: PictureFormat) -> Result<Vec<u8>, Error> {
        for (name, _, points) in &self.curves {
            for x in points.iter().flatten() {
                finite(&format!("curve {name:?}"), *x)?;
            }
        }
        self.encode(format)
    }

    /// Draws the figure and writes it to a file, whose extension chooses the format.
    ///
    /// # Errors
    /// `Invalid` for another extension or a number that is not finite, `Write` where the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let picture = self.render(PictureFormat::of(path)?)?;
        std::fs::write(path, picture).map_err(|source| Error::Write { path: path.into(), source })
    }
}

// Axes, their ticks and labels
// Axis of a panel
#[derive(Debug, Clone, Default)]
pub(crate) struct Axis {
    label: String,
    log: bool,
    range: Option<[f64; 2]>,
}

// Place numbers along an axis
impl Axis {
    /// Where a number lies on the panel; not finite where it has no place.
    fn place(&self, x: f64) -> f64 {
        if self.log { x.log10() } else { x }
    }

    /// The ends of the panel, around places of which at least the finite ones shall be shown.
    fn ends(&self, places: impl Iterator<Item = f64>) -> Range<f64> {
        let good = places.filter(|x| x.abs() < 1e300);
        let (low, high) = good
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let is_wide = |low: f64, high: f64| high - low > 1e-9 * low.abs().max(high.abs());
        match self.range.map(|range| range.map(|x| self.place(x))) {
            Some([low, high]) if is_wide(low, high) => low..high,
            // Leave room around the places
            _ if low > high => 0.0..1.0,
            _ if is_wide(low, high) => low - 0.04 * (high - low)..high + 0.04 * (high - low),
            _ if self.log || low == 0.0 => low - 1.0..high + 1.0,
            _ => low - low.abs()..high + high.abs(),
        }
    }

    // Tick and label the axis
    pub(crate) fn scale(&self, ends: &Range<f64>, most: usize) -> Scale {
        let (first, last) = (ends.start.ceil(), ends.end.floor());
        let most = if self.log { most.min((last - first).max(0.0) as usize + 1) } else { most };
        let round = || RangedCoordf64::from(ends.clone()).key_points(most).into_iter();
        let ticks = if !self.log {
            round().map(|tick| (tick, number(tick))).collect()
        } else if last - first > 1.0 {
            round().map(|tick| (tick, power_of_ten(tick.round() as i32))).collect()
        } else {
            let decades = [-1.0, 0.0, 1.0].map(|k| 10f64.powf(first + k));
            let ticks = decades.iter().flat_map(|power| [1.0, 2.0, 5.0].map(|k| k * power));
            ticks.map(|tick| (tick.log10(), number(tick))).collect()
        };
        Scale { ends: ends.clone(), ticks }
    }
}

// Ends and ticks of an axis
/// The ends of an axis, its ticks and their labels.
pub(crate) struct Scale {
    pub(crate) ends: Range<f64>,
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.ends.clone()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|tick| tick.0).filter(|tick| within(*tick, &self.ends)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.ends.clone()
    }
}

// Label the ticks of an axis
impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.0 == *value);
        tick.map_or(String::new(), |tick| tick.1.clone())
    }
}

// Write numbers and powers of ten
fn within(x: f64, ends: &Range<f64>) -> bool {
    ends.start <= x && x <= ends.end
}

pub(crate) fn number(x: f64) -> String {
    pretty_print_float(x, !(1e-3..1e6).contains(&x.abs())).replace('-', "−")
}

/// A power of ten with raised digits, 10⁻¹² for −12.
fn power_of_ten(power: i32) -> String {
    let raise = |digit: char| match digit.to_digit(10) {
        Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
        None => '⁻',
    };
    format!("10{}", power.to_string().chars().map(raise).collect::<String>())
}

// Draw the figure
const CURVE_COLOURS: [u32; 7] =
    [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x3c3c3c];

fn colour(hex: u32) -> RGBColor {
    RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

impl Picture for Figure {
    fn size(&self) -> (u32, u32) {
        (1440, 920)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let all = self.curves.iter().flat_map(|(_, _, points)| points);
        let reach = all.clone().flat_map(|p| [p[1] - p[2], p[1], p[1] + p[2]]);
        let x_ends = self.x.ends(all.clone().map(|p| self.x.place(p[0])));
        let y_ends = self.y.ends(reach.map(|y| self.y.place(y)));
        let place = |p: &[f64; 3]| (self.x.place(p[0]), self.y.place(p[1]));
        // Set up the panel
        let mut builder = ChartBuilder::on(area);
        builder.margin(28).x_label_area_size(96).y_label_area_size(150);
        if !self.title.is_empty() {
            builder.caption(&self.title, (TYPEFACE, 40));
        }
        let mut chart =
            builder.build_cartesian_2d(self.x.scale(&x_ends, 9), self.y.scale(&y_ends, 9))?;
        let mut mesh = chart.configure_mesh();
        mesh.label_style((TYPEFACE, 30)).axis_desc_style((TYPEFACE, 32)).set_all_tick_mark_size(8);
        mesh.bold_line_style(colour(0xdedede)).light_line_style(TRANSPARENT);
        mesh.x_desc(&self.x.label).y_desc(&self.y.label).draw()?;
        for ((name, style, points), hex) in self.curves.iter().zip(CURVE_COLOURS.iter().cycle()) {
            // Draw one curve
            let inside = |p: &[f64; 3]| within(place(p).0, &x_ends) && within(place(p).1, &y_ends);
            let runs = points.split(|p| !inside(p)).filter(|run| run.len() > 1);
            let runs = runs.map(|run| run.iter().map(place).collect::<Vec<_>>());
            let shown = points.iter().filter(|p| inside(p));
            let (line, disc) =
                (colour(*hex).stroke_width(4), colour(*hex).filled().stroke_width(2));
            let bar = |p: &[f64; 3]| {
                let end = |y| Some(self.y.place(y)).filter(|y| within(*y, &y_ends));
                let (low, high) = (end(p[1] - p[2]), end(p[1] + p[2]));
                let (low, high) = (low.unwrap_or(y_ends.start), high.unwrap_or(y_ends.end));
                ErrorBar::new_vertical(place(p).0, low, place(p).1, high, disc, 12)
            };
            let series = match style {
                Style::Line => chart.draw_series(runs.map(|run| PathElement::new(run, line)))?,
                Style::Dashes => {
                    chart.draw_series(runs.map(|run| DashedPathElement::new(run, 14, 8, line)))?
                }
                Style::Points => chart.draw_series(shown.map(bar))?,
            };
            // Name the curve in the legend
            if !name.is_empty() {
                let style = *style;
                series.label(name).legend(move |(x, y)| match style {
                    Style::Line => PathElement::new([(x, y), (x + 56, y)], line).into_dyn(),
                    Style::Dashes => {
                        DashedPathElement::new([(x, y), (x + 56, y)], 14, 8, line).into_dyn()
                    }
                    Style::Points => Circle::new((x + 28, y), 6, disc).into_dyn(),
                });
            }
        }
        // Put the legend into a free corner
        let rows = self.curves.iter().filter(|(name, ..)| !name.is_empty()).count() as f64;
        let share = |x: f64, ends: &Range<f64>| (x - ends.start) / (ends.end - ends.start);
        let is_near = |p: &[f64; 3], [right, top]: [f64; 2]| {
            let (x, y) = (share(place(p).0, &x_ends), share(place(p).1, &y_ends));
            (x - right).abs() < 0.4 && (y - top).abs() < 0.07 + 0.05 * rows
        };
        let covered = |corner| all.clone().filter(|p| is_near(p, corner)).count();
        let corners = [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]];
        let position = match corners.into_iter().min_by_key(|corner| covered(*corner)) {
            Some([0.0, 1.0]) => SeriesLabelPosition::UpperLeft,
            Some([1.0, 0.0]) => SeriesLabelPosition::LowerRight,
            Some([0.0, 0.0]) => SeriesLabelPosition::LowerLeft,
            _ => SeriesLabelPosition::UpperRight,
        };
        let mut legend = chart.configure_series_labels();
        legend.position(position).label_font((TYPEFACE, 28)).legend_area_size(70);
        let background = if rows > 0.0 { WHITE.mix(0.8) } else { TRANSPARENT };
        legend.background_style(background).draw()
    }
}

// Picture of the slope covariance
/// Which pairs of guide stars a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// All of them, S × S blocks.
    All,
    /// The pair of one first and one second star.
    One(usize, usize),
}

// Choose pairs for a picture
impl Pairs {
    /// All pairs of a small system, up to three stars; the first pair of a larger one.
    pub fn default_for(sources: usize) -> Self {
        if sources <= 3 { Self::All } else { Self::One(0, 0) }
    }

    /// Checks a choice against the number of sources; `Invalid` where a star does not exist.
    pub fn check(self, sources: usize) -> Result<Self, Invalid> {
        match self {
            Self::One(p, q) if p >= sources || q >= sources => {
                let expected =
                    format!("two guide stars between 0 and {}", sources.saturating_sub(1));
                Err(Invalid::new("pair", format!("{p},{q}"), expected))
            }
            good => Ok(good),
        }
    }
}

// Draw the slope covariance
/// Draws the slope covariance of pairs of guide stars: maps of the four components over the displacement, and cuts along its axes.
///
/// `pitch` is the lenslet pitch in metres. The bytes of the file are returned.
///
/// # Errors
/// `Invalid` where the pair does not exist, or a number is not finite.
pub fn plot_covariance(
    covariance: &SlopeCovariance,
    pitch: f64,
    pairs: Pairs,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    View::new(covariance, pitch, pairs)?.encode(format)
}

/// The first stars of the pairs, downwards, the second, across, and the largest magnitude of a map, rad².
struct View<'a> {
    covariance: &'a SlopeCovariance,
    pitch: f64,
    stars: [Vec<usize>; 2],
    largest: f64,
}

// Lay out the view of the pairs
impl<'a> View<'a> {
    fn new(covariance: &'a SlopeCovariance, pitch: f64, pairs: Pairs) -> Result<Self, Invalid> {
        positive("pitch", pitch)?;
        let all = || (0..covariance.sources()).collect();
        let stars = match pairs.check(covariance.sources())? {
            Pairs::All => [all(), all()],
            Pairs::One(p, q) => [vec![p], vec![q]],
        };
        let view = Self { covariance, pitch, stars, largest: 0.0 };
        let mut values = view.maps().into_iter().flat_map(|map| view.field(map));
        let larger = |largest: f64, c: &f64| Ok(largest.max(finite("covariance", *c)?.abs()));
        Ok(Self { largest: values.try_fold(0.0, larger)?, ..view })
    }

    // Find the maps of a view
    /// Row and column of each map.
    fn maps(&self) -> Vec<[usize; 2]> {
        let [rows, columns] = self.shape();
        (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column])).collect()
    }

    fn shape(&self) -> [usize; 2] {
        [0, 1].map(|way| 2 * self.stars[way].len())
    }

    fn field(&self, [row, column]: [usize; 2]) -> ArrayView2<'a, f64> {
        let (p, q) = (self.stars[0][row / 2], self.stars[1][column / 2]);
        self.covariance.values().slice(s![p, q, row % 2, column % 2, .., ..])
    }

    // Sizes and corners of the maps
    /// Pixels along a map.
    fn side(&self) -> u32 {
        let lags = 2 * self.covariance.lenslets() as u32 - 1;
        let aim = if self.shape()[1] == 2 { 480 } else { 216 };
        lags * ((aim + lags / 2) / lags).max(1)
    }

    /// Upper left corner of a map, or of what follows behind the last.
    fn corner(&self, [row, column]: [usize; 2]) -> (i32, i32) {
        let step = self.side() as i32 + 48;
        (140 + column as i32 * step, 150 + row as i32 * step)
    }

    /// The power of ten in which numbers are given.
    fn power(&self) -> i32 {
        if self.largest > 0.0 { self.largest.log10().floor().max(-300.0) as i32 } else { 0 }
    }

    // Draw one map
    fn draw_map<DB: DrawingBackend>(&self, area: &Area<DB>, map: [usize; 2]) -> Drawn<DB> {
        let ((x, y), side, field) = (self.corner(map), self.side() as i32, self.field(map));
        // Name the map
        let component = ["xx", "xy", "yx", "yy"][2 * (map[0] % 2) + map[1] % 2];
        let (p, q) = (self.stars[0][map[0] / 2], self.stars[1][map[1] / 2]);
        let name =
            if self.shape()[1] == 2 { component.into() } else { format!("{p},{q} {component}") };
        area.draw_text(&name, &(TYPEFACE, 28).into_text_style(area), (x, y - 32))?;
        area.draw(&Rectangle::new([(x - 1, y - 1), (x + side, y + side)], BLACK))?;
        let left = if map[1] == 0 { 100 } else { 0 };
        let below = if map[0] + 1 == self.shape()[0] { 90 } else { 0 };
        let around = area.clone().shrink((x - left, y), (side + left, side + below));
        let reach = (self.covariance.lenslets() as f64 - 0.5) * self.pitch;
        let axis = || Axis::default().scale(&(-reach..reach), 5);
        let mut builder = ChartBuilder::on(&around);
        builder.x_label_area_size(below).y_label_area_size(left);
        let mut chart = builder.build_cartesian_2d(axis(), axis())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, 28));
        mesh.x_desc("ρx [m]").y_desc("ρy [m]").draw()?;
        let lag = |share: f64| (share * field.nrows() as f64) as usize;
        let level = |x: f64, y: f64| root(field[[lag(y), lag(x)]] / self.largest);
        paint_levels(&chart.plotting_area().strip_coord_spec(), level)
    }

    // Draw the bar of colours
    fn draw_bar<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let (unit, high) = (10f64.powi(self.power()), area.dim_in_pixel().1 as i32);
        let steps = [1.0, 0.5, 0.2, 0.1].map(|step| step * (self.largest / unit).floor().max(1.0));
        let ticks = steps.into_iter().flat_map(|step| [step, -step]).chain([0.0]);
        let ticks = ticks.map(|tick| (root(tick * unit / self.largest), number(tick))).collect();
        let name = format!("{} rad², square-root scale", power_of_ten(self.power()));
        area.draw_text(&name, &(TYPEFACE, 28).into_text_style(area), (0, 38))?;
        let bar = area.clone().shrink((0, 70), (130, high - 70));
        let levels = Scale { ends: -1.0..1.0, ticks };
        let mut builder = ChartBuilder::on(&bar);
        let mut chart = builder.right_y_label_area_size(96).build_cartesian_2d(0.0..1.0, levels)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, 28)).draw()?;
        paint_levels(&chart.plotting_area().strip_coord_spec(), |_, y| 2.0 * y - 1.0)
    }

    // Cut through the middle
    fn cuts(&self) -> Figure {
        let (unit, middle) = (10f64.powi(self.power()), self.covariance.lenslets() - 1);
        let label = format!("covariance [{} rad²]", power_of_ten(self.power()));
        let cut = |map: [usize; 2], along_x: bool| {
            let field = self.field(map);
            let line =
                if along_x { field.row(middle).to_vec() } else { field.column(middle).to_vec() };
            let lag = move |i: usize| (i as f64 - middle as f64) * self.pitch;
            line.into_iter().enumerate().map(move |(i, value)| (lag(i), value / unit))
        };
        let figure = Figure::new().x_label("displacement [m]").y_label(&label);
        if self.shape()[1] == 2 {
            return (figure.line("xx along x", cut([0, 0], true)))
                .line("xx along y", cut([0, 0], false))
                .dashes("yy along x", cut([1, 1], true))
                .dashes("yy along y", cut([1, 1], false));
        }
        self.stars[1].iter().fold(figure, |figure, q| {
            figure.line(&format!("0,{q}: xx along x"), cut([0, 2 * q], true))
        })
    }
}

// Draw a view
impl Picture for View<'_> {
    fn size(&self) -> (u32, u32) {
        let (width, height) = self.corner(self.shape());
        (width as u32 + 1130, height as u32 + 80)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let title = match (&self.stars[0][..], &self.stars[1][..]) {
            ([p], [q]) => format!("Slope covariance of guide stars p = {p} and q = {q}"),
            (all, _) => format!("Slope covariance of all pairs of {} guide stars", all.len()),
        };
        area.margin(20, 0, 0, 0).titled(&title, (TYPEFACE, 40))?;
        for map in self.maps() {
            self.draw_map(area, map)?;
        }
        let (right, below) = self.corner(self.shape());
        let high = (below - 198).min(1100);
        self.draw_bar(&area.clone().shrink((right, 80), (170, high + 70)))?;
        self.cuts().draw(&area.clone().shrink((right + 180, 122), (950, high + 152)))
    }
}

// Colours of signed numbers
const STATIONS: [u32; 11] = [
    0x053061, 0x2166ac, 0x4393c3, 0x92c5de, 0xd1e5f0, 0xffffff, 0xfddbc7, 0xf4a582, 0xd6604d,
    0xb2182b, 0x67001f,
];

/// The square root of a magnitude between 0 and 1, with the number's sign; 0 for 0/0.
fn root(share: f64) -> f64 {
    if share.is_nan() { 0.0 } else { share.abs().sqrt().copysign(share) }
}

/// Fills an area with the colours of levels from −1 to 1, given the shares of its width and of its height, upwards.
pub(crate) fn paint_levels<DB: DrawingBackend>(
    area: &Area<DB>,
    level: impl Fn(f64, f64) -> f64,
) -> Drawn<DB> {
    let (colours, (width, height)) =
        (DerivedColorMap::new(&STATIONS.map(colour)), area.dim_in_pixel());
    let share = |pixel: u32, pixels: u32| (f64::from(pixel) + 0.5) / f64::from(pixels);
    let places = (0..height).rev().flat_map(|y| (0..width).map(move |x| (x, y)));
    let levels = places.map(|(x, y)| level(share(x, width), share(y, height)));
    let colours = levels.map(|level| colours.get_color(0.5 + 0.5 * level));
    let pixels = colours.flat_map(|RGBColor(red, green, blue)| [red, green, blue]).collect();
    let element = BitMapElement::with_owned_buffer((0, 0), (width, height), pixels);
    element.map_or(Ok(()), |element: BitMapElement<_>| area.draw(&element))
}

// Tests of the plots
#[cfg(test)]
mod tests {
    use super::*;
    use crate::turbulence::slope::PairCovariance;

    // Look for each number in the picture
    #[test]
    fn each_number_has_its_place() -> Result<(), Box<dyn std::error::Error>> {
        // Number all entries of a covariance
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/book/systems/keck-lgs.toml");
        let problem = crate::turbulence::plan::slope_problem(
            &crate::model::system::System::from_file(file)?,
        )?;
        let lags = 2 * problem.lenslets() - 1;
        let number = |k, (c, j, i)| (((k * 3 + c) * lags + j) * lags + i) as f64 - 8000.0;
        let pair = |k| PairCovariance::from_shape_fn((3, lags, lags), |place| number(k, place));
        let mut pairs: Vec<_> = (0..problem.pairs().len()).map(pair).collect();
        let covariance = SlopeCovariance::from_pairs(&problem, &pairs);
        let view = View::new(&covariance, 0.5, Pairs::All)?;
        let picture = image::load_from_memory(&view.encode(PictureFormat::Png)?)?.into_rgb8();
        let (colours, cell) =
            (DerivedColorMap::new(&STATIONS.map(colour)), view.side() / lags as u32);
        for ((p, q, a, b, j, i), value) in covariance.values().indexed_iter() {
            let corner = view.corner([2 * p + a, 2 * q + b]);
            let x = corner.0 as u32 + i as u32 * cell + cell / 2;
            let y = corner.1 as u32 + (lags - 1 - j) as u32 * cell + cell / 2;
            let RGBColor(red, green, blue) =
                colours.get_color(0.5 + 0.5 * root(value / view.largest));
            assert_eq!(picture.get_pixel(x, y).0, [red, green, blue], "{p},{q} {a}{b} at {j},{i}");
        }
        // Check what is refused
        assert!(plot_covariance(&covariance, 0.5, Pairs::One(0, 4), PictureFormat::Svg).is_err());
        let one = plot_covariance(&covariance, 0.5, Pairs::One(0, 3), PictureFormat::Svg)?;
        assert_eq!(String::from_utf8(one)?.matches("data:image/png;base64,").count(), 5);
        pairs[0][[0, 1, 2]] = f64::NAN;
        let covariance = SlopeCovariance::from_pairs(&problem, &pairs);
        assert!(plot_covariance(&covariance, 0.5, Pairs::All, PictureFormat::Png).is_err());
        Ok(())
    }

    // Check that odd figures are drawn
    #[test]
    fn odd_figures_are_drawn_or_refused() {
        let constant = Figure::new().line("same", [(1.0, 5.0), (2.0, 5.0)]);
        let holes =
            Figure::new().log_y().line("", [(0.0, 3e-9), (1.0, 0.0), (2.0, -3.0), (3.0, 1.0)]);
        let bars = Figure::new().log_y().points_with_errors("<a & b>", [(1.0, 1.0, 2.0)]);
        let tiny =
            Figure::new().dashes("", [(1e-20, 0.0), (3e-20, f64::MAX)]).y_range(0.0, f64::NAN);
        for figure in [Figure::new(), Figure::new().log_x().log_y(), constant, holes, bars, tiny] {
            let svg = figure.render(PictureFormat::Svg).map(String::from_utf8);
            assert!(
                matches!(svg, Ok(Ok(svg)) if svg.ends_with("</svg>\n") && !svg.contains("NaN"))
            );
            assert!(figure.render(PictureFormat::Png).is_ok_and(|png| png.starts_with(b"\x89PNG")));
        }
        let nan = Figure::new().line("", [(0.0, f64::NAN)]).render(PictureFormat::Svg);
        assert!(matches!(nan, Err(Error::Invalid(_))));
        for name in ["figure.pdf", "svg", "no/such/folder/figure.svg"] {
            assert!(Figure::new().save(name).is_err(), "{name}");
        }
    }
}
