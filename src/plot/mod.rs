// Tangled from book/src/plots.md: edit there, or here and run cargo tangle stitch.
//! Pictures of results, as SVG or PNG: curves, maps of covariances, of wavefronts, of noise and of stars, reconstructors, scans.

pub(crate) mod covariance;
pub(crate) mod map;
pub(crate) mod noise;
pub(crate) mod field;
pub(crate) mod budget;
#[cfg(feature = "factorise")]
pub(crate) mod learned;
pub(crate) mod point_spread;
pub(crate) mod reconstructor;
#[cfg(feature = "files")]
pub(crate) mod scans;

pub use budget::{plot_budgets, plot_profiles};
pub use covariance::{
    Component, CovarianceView, ShownPairs, plot_covariance, plot_wavefront_covariance,
};
pub use field::{FieldPicture, plot_field};
#[cfg(feature = "factorise")]
pub use learned::plot_learned;
pub use map::{WavefrontMap, plot_wavefront_errors, plot_wavefronts, without_piston};
pub use noise::{plot_noise, plot_noise_of_stars};
pub use point_spread::plot_stars;
#[cfg(feature = "factorise")]
pub use reconstructor::plot_reconstruction;
pub use reconstructor::{plot_reconstructor, plot_spectrum};
#[cfg(feature = "files")]
pub use scans::{ScanPicture, plot_scan};

// Imports of the plots
use crate::error::{Error, Invalid, finite};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::data::float::pretty_print_float;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters_svg::SVGBackend;
use std::{f64::consts::PI, io::Cursor, ops::Range, path::Path};

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

// Font and sizes of letters
/// The font that the program carries, and what a viewer of SVG may put in its place.
pub(crate) const TYPEFACE: &str = "DejaVu Sans, Verdana, sans-serif";

/// The height of the smallest letters: a font of 11.3 pixels where a picture is shown at half the size at which it is drawn.
pub(crate) const LETTERS: u32 = 28;

/// The height of a title's letters.
pub(crate) const TITLE: u32 = 32;

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
    x: PlotAxis,
    y: PlotAxis,
    curves: Vec<(String, Style, Vec<[f64; 4]>)>,
}

/// Between two lines of one curve: a point without a place.
const BREAK: [f64; 4] = [f64::NAN; 4];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Style {
    Line,
    Dashes,
    Points,
    Hollow,
}

// Make, describe and show a figure
impl Figure {
    // Begin an empty figure
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
        Self { x: PlotAxis { label: label.into(), ..self.x }, ..self }
    }

    /// Names the quantity along the vertical axis, with its unit.
    pub fn y_label(self, label: &str) -> Self {
        Self { y: PlotAxis { label: label.into(), ..self.y }, ..self }
    }

    /// Makes the horizontal axis logarithmic; what is not positive is then left out.
    pub fn log_x(self) -> Self {
        Self { x: PlotAxis { log: true, ..self.x }, ..self }
    }

    /// Makes the vertical axis logarithmic; what is not positive is then left out.
    pub fn log_y(self) -> Self {
        Self { y: PlotAxis { log: true, ..self.y }, ..self }
    }

    // Fix the ends of axes
    /// Fixes the ends of the horizontal axis; points beyond are left out.
    pub fn x_range(self, low: f64, high: f64) -> Self {
        Self { x: PlotAxis { range: Some([low, high]), ..self.x }, ..self }
    }

    /// Fixes the ends of the vertical axis; points beyond are left out.
    pub fn y_range(self, low: f64, high: f64) -> Self {
        Self { y: PlotAxis { range: Some([low, high]), ..self.y }, ..self }
    }

    // Add curves and points
    /// Adds a line through points (x, y).
    pub fn line(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add(name, Style::Line, points.into_iter().map(|(x, y)| [x, y, 0.0, 0.0]).collect())
    }

    /// Adds lines of one colour, each through its points (x, y), under one name.
    pub fn lines<L>(self, name: &str, lines: impl IntoIterator<Item = L>) -> Self
    where
        L: IntoIterator<Item = (f64, f64)>,
    {
        let points = |line: L| line.into_iter().map(|(x, y)| [x, y, 0.0, 0.0]);
        let points = lines.into_iter().flat_map(|line| points(line).chain([BREAK]));
        self.add(name, Style::Line, points.collect())
    }

    /// Adds a dashed line through points (x, y).
    pub fn dashes(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add(name, Style::Dashes, points.into_iter().map(|(x, y)| [x, y, 0.0, 0.0]).collect())
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
        self.add(name, Style::Points, points.into_iter().map(|(x, y, e)| [x, y, e, 0.0]).collect())
    }

    /// Adds points with bars across, too: [x, y, error of x, error of y].
    pub fn points_with_both_errors<I>(self, name: &str, points: I) -> Self
    where
        I: IntoIterator<Item = [f64; 4]>,
    {
        let ordered = |[x, y, of_x, of_y]: [f64; 4]| [x, y, of_y, of_x];
        self.add(name, Style::Points, points.into_iter().map(ordered).collect())
    }

    /// Adds hollow points (x, y, e) that do not widen the axes; an arrow at the edge of the panel marks one beyond it.
    pub fn hollow_points<I>(self, name: &str, points: I) -> Self
    where
        I: IntoIterator<Item = (f64, f64, f64)>,
    {
        self.add(name, Style::Hollow, points.into_iter().map(|(x, y, e)| [x, y, e, 0.0]).collect())
    }

    fn add(mut self, name: &str, style: Style, points: Vec<[f64; 4]>) -> Self {
        self.curves.push((name.into(), style, points));
        self
    }

    // Render and save the figure
    /// Draws the figure; the bytes of the file. `Invalid` for a number that is not finite.
    pub fn render(&self, format: PictureFormat) -> Result<Vec<u8>, Error> {
        for (name, _, points) in &self.curves {
            let broken = |point: &&[f64; 4]| point.iter().all(|x| x.is_nan());
            for x in points.iter().filter(|point| !broken(point)).flatten() {
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
pub(crate) struct PlotAxis {
    label: String,
    log: bool,
    range: Option<[f64; 2]>,
}

// Place numbers along an axis
impl PlotAxis {
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
        // Their zero is a difference that may have been rounded.
        let zero = 1e-9 * (ends.end - ends.start);
        let near_zero = move |tick: f64| if tick.abs() < zero { 0.0 } else { tick };
        let round =
            || RangedCoordf64::from(ends.clone()).key_points(most).into_iter().map(near_zero);
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
pub(crate) fn power_of_ten(power: i32) -> String {
    let raise = |digit: char| match digit.to_digit(10) {
        Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
        None => '⁻',
    };
    format!("10{}", power.to_string().chars().map(raise).collect::<String>())
}

// Draw the figure
// Colours of the curves
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
        let hollow = |style: &Style| *style == Style::Hollow;
        let lone = self.curves.iter().all(|(_, style, points)| hollow(style) || points.is_empty());
        let wide = self.curves.iter().filter(|(_, style, _)| lone || !hollow(style));
        let all = wide.flat_map(|(_, _, points)| points);
        // Ends of both axes
        let reach = all.clone().flat_map(|p| [p[1] - p[2], p[1], p[1] + p[2]]);
        let across = all.clone().flat_map(|p| [p[0] - p[3], p[0], p[0] + p[3]]);
        let x_ends = self.x.ends(across.map(|x| self.x.place(x)));
        let y_ends = self.y.ends(reach.map(|y| self.y.place(y)));
        let place = |p: &[f64; 4]| (self.x.place(p[0]), self.y.place(p[1]));
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
            let inside = |p: &[f64; 4]| within(place(p).0, &x_ends) && within(place(p).1, &y_ends);
            let placed: Vec<_> = points.iter().map(place).collect();
            let runs = clipped(&placed, [&x_ends, &y_ends]).into_iter();
            let shown = points.iter().filter(|p| inside(p));
            let (line, disc) =
                (colour(*hex).stroke_width(4), colour(*hex).filled().stroke_width(2));
            let bar = |p: &[f64; 4]| {
                let end = |y| Some(self.y.place(y)).filter(|y| within(*y, &y_ends));
                let (low, high) = (end(p[1] - p[2]), end(p[1] + p[2]));
                let (low, high) = (low.unwrap_or(y_ends.start), high.unwrap_or(y_ends.end));
                ErrorBar::new_vertical(place(p).0, low, place(p).1, high, disc, 12)
            };
            let across = |p: &[f64; 4]| {
                let end = |x| Some(self.x.place(x)).filter(|x| within(*x, &x_ends));
                let (low, high) = (end(p[0] - p[3]), end(p[0] + p[3]));
                let (low, high) = (low.unwrap_or(x_ends.start), high.unwrap_or(x_ends.end));
                PathElement::new([(low, place(p).1), (high, place(p).1)], disc)
            };
            let series = match style {
                Style::Line => chart.draw_series(runs.map(|run| PathElement::new(run, line)))?,
                Style::Dashes => {
                    chart.draw_series(runs.map(|run| DashedPathElement::new(run, 14, 8, line)))?
                }
                Style::Points => {
                    chart.draw_series(shown.clone().filter(|p| p[3] > 0.0).map(across))?;
                    chart.draw_series(shown.map(bar))?
                }
                Style::Hollow => {
                    // Draw hollow points and arrows
                    let thin = colour(*hex).stroke_width(3);
                    let near = |x: f64| x.clamp(x_ends.start, x_ends.end);
                    let high = points
                        .iter()
                        .filter(|p| within(place(p).1, &y_ends) && !place(p).0.is_nan());
                    let rods = high.clone().filter(|p| p[2] > 0.0 && inside(p)).map(|p| {
                        let end = |y| self.y.place(y).clamp(y_ends.start, y_ends.end);
                        let ends = [end(p[1] - p[2]), end(p[1] + p[2])].map(|y| (place(p).0, y));
                        PathElement::new(ends, thin)
                    });
                    chart.draw_series(rods)?;
                    chart.draw_series(high.map(|p| {
                        let (x, y) = place(p);
                        let mark: Vec<(i32, i32)> = match (x < x_ends.start, x > x_ends.end) {
                            (true, _) => vec![(24, -10), (4, 0), (24, 10), (24, -10)],
                            (_, true) => vec![(-24, -10), (-4, 0), (-24, 10), (-24, -10)],
                            _ => (0..=16).map(|k| f64::from(k) * PI / 8.0).map(on_ring).collect(),
                        };
                        EmptyElement::at((near(x), y)) + PathElement::new(mark, thin)
                    }))?
                }
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
                    Style::Hollow => Circle::new((x + 28, y), 9, line.stroke_width(3)).into_dyn(),
                });
            }
        }
        // Put the legend into a free corner
        let rows = self.curves.iter().filter(|(name, ..)| !name.is_empty()).count() as f64;
        let share = |x: f64, ends: &Range<f64>| (x - ends.start) / (ends.end - ends.start);
        let is_near = |p: &[f64; 4], [right, top]: [f64; 2]| {
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

// Clip a line at a panel's edges
/// The visible parts of a polyline in a panel with these ends along x and y.
fn clipped(points: &[(f64, f64)], panel: [&Range<f64>; 2]) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    for pair in points.windows(2) {
        let Some([from, to]) = segment([pair[0], pair[1]], panel) else { continue };
        match parts.last_mut() {
            Some(part) if part.last() == Some(&from) => part.push(to),
            _ => parts.push(vec![from, to]),
        }
    }
    parts
}

/// The visible part of one segment.
fn segment([a, b]: [(f64, f64); 2], panel: [&Range<f64>; 2]) -> Option<[(f64, f64); 2]> {
    let step = [b.0 - a.0, b.1 - a.1];
    let (mut enter, mut leave) = (0.0f64, 1.0f64);
    for ((from, step), ends) in [a.0, a.1].into_iter().zip(step).zip(panel) {
        if step == 0.0 && within(from, ends) {
            continue;
        }
        let [one, two] = [ends.start, ends.end].map(|end| (end - from) / step);
        if !step.is_finite() || step == 0.0 {
            return None;
        }
        (enter, leave) = (enter.max(one.min(two)), leave.min(one.max(two)));
    }
    let at = |t: f64| match t {
        0.0 => a,
        1.0 => b,
        _ => (a.0 + t * step[0], a.1 + t * step[1]),
    };
    (enter < leave).then(|| [at(enter), at(leave)])
}

/// A point of a small ring around the origin, pixels.
fn on_ring(angle: f64) -> (i32, i32) {
    ((9.0 * angle.cos()).round() as i32, (9.0 * angle.sin()).round() as i32)
}

// Colours of signed numbers
const STATIONS: [u32; 11] = [
    0x053061, 0x2166ac, 0x4393c3, 0x92c5de, 0xd1e5f0, 0xffffff, 0xfddbc7, 0xf4a582, 0xd6604d,
    0xb2182b, 0x67001f,
];

/// Colours of numbers without a sign, from the least to the largest: *viridis*.
pub(crate) const SEQUENTIAL: [u32; 9] =
    [0x440154, 0x472d7b, 0x3b528b, 0x2c728e, 0x21918c, 0x28ae80, 0x5ec962, 0xaddc30, 0xfde725];

/// Colours of light over several decades: *inferno*.
pub(crate) const LIGHT: [u32; 9] =
    [0x000004, 0x1b0c41, 0x4a0c6b, 0x781c6d, 0xa52c60, 0xcf4446, 0xed6925, 0xfb9b06, 0xfcffa4];

/// The colour of what is dark.
pub(crate) const DARK: RGBColor = RGBColor(0xb0, 0xb0, 0xb0);

/// Fills an area with the colours of levels from −1 to 1, given the shares of its width and of its height, upwards; NaN is dark.
pub(crate) fn paint_levels<DB: DrawingBackend>(
    area: &Area<DB>,
    level: impl Fn(f64, f64) -> f64,
) -> Drawn<DB> {
    paint(area, &STATIONS, |x, y| 0.5 + 0.5 * level(x, y))
}

/// Fills an area with colours between the `stations` for levels from 0 to 1, given the shares of width and height; NaN is dark.
pub(crate) fn paint<DB: DrawingBackend>(
    area: &Area<DB>,
    stations: &[u32],
    level: impl Fn(f64, f64) -> f64,
) -> Drawn<DB> {
    let stations: Vec<RGBColor> = stations.iter().map(|&station| colour(station)).collect();
    let colours = DerivedColorMap::new(&stations);
    let colour = |level: f64| if level.is_nan() { DARK } else { colours.get_color(level) };
    paint_colours(area, |x, y| colour(level(x, y)))
}

/// Fills an area with the colours of a function of the shares of its width and of its height, upwards.
pub(crate) fn paint_colours<DB: DrawingBackend>(
    area: &Area<DB>,
    colour: impl Fn(f64, f64) -> RGBColor,
) -> Drawn<DB> {
    let (width, height) = area.dim_in_pixel();
    let share = |pixel: u32, pixels: u32| (f64::from(pixel) + 0.5) / f64::from(pixels);
    let places = (0..height).rev().flat_map(|y| (0..width).map(move |x| (x, y)));
    let colours = places.map(|(x, y)| colour(share(x, width), share(y, height)));
    let pixels = colours.flat_map(|RGBColor(red, green, blue)| [red, green, blue]);
    let element = BitMapElement::with_owned_buffer((0, 0), (width, height), pixels.collect());
    element.map_or(Ok(()), |element: BitMapElement<_>| area.draw(&element))
}

// Bars of all colours
/// Width of a bar of colours with the labels of its ticks and its own.
pub(crate) const BAR: i32 = 196;

// Bar of signed levels
/// Paints a bar of all levels from −1 to 1, with ticks and a `label` of quantity and unit.
pub(crate) fn paint_bar<DB: DrawingBackend>(
    area: &Area<DB>,
    ticks: Vec<(f64, String)>,
    label: &str,
) -> Drawn<DB> {
    paint_bar_of(area, &STATIONS, Scale { ends: -1.0..1.0, ticks }, label)
}

/// Paints a bar of colours between the `stations` over the ends of a scale, with its ticks and a `label` of quantity and unit.
pub(crate) fn paint_bar_of<DB: DrawingBackend>(
    area: &Area<DB>,
    stations: &[u32],
    levels: Scale,
    label: &str,
) -> Drawn<DB> {
    let mut builder = ChartBuilder::on(area);
    let mut chart = builder.right_y_label_area_size(160).build_cartesian_2d(0.0..1.0, levels)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, LETTERS));
    mesh.axis_desc_style((TYPEFACE, LETTERS)).y_desc(label).draw()?;
    paint(&chart.plotting_area().strip_coord_spec(), stations, |_, y| y)
}

// Scales of colour
/// How the colour of a map follows its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColourScale {
    /// In proportion.
    Linear,
    /// Like the square root of the magnitude, the sign kept.
    #[default]
    Root,
    /// Like the logarithm of the magnitude above 1e-4 of the largest, the sign kept; Eq. [signed logarithm](https://lenslet.github.io/lenslet/plots.html#eq-signed-logarithm).
    Log,
}

impl ColourScale {
    /// The level, from −1 to 1, of a number given as a share of the largest; rising, odd, and NaN for NaN.
    pub fn level(self, share: f64) -> f64 {
        const LEAST: f64 = 1e-4;
        let size = share.abs();
        let level = match self {
            Self::Linear => size,
            Self::Root => size.sqrt(),
            Self::Log => (size / LEAST).ln_1p() / (1.0 / LEAST).ln_1p(),
        };
        level.copysign(share)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear scale",
            Self::Root => "square-root scale",
            Self::Log => "logarithmic scale",
        }
    }
}

// Ticks of a scale of colour
/// Levels and labels of ticks, for numbers up to `largest` in the unit of the labels; `gap` is the least distance of two levels.
pub(crate) fn ticks(scale: ColourScale, largest: f64, gap: f64) -> Vec<(f64, String)> {
    let mut ticks = vec![(0.0, number(0.0))];
    let mut last = f64::INFINITY;
    let round = |k: i32| [5.0, 2.0, 1.0].map(|step| step * 10f64.powi(k));
    for tick in (-4..=3).rev().flat_map(round).filter(|tick| *tick <= largest * (1.0 + 1e-9)) {
        let level = scale.level((tick / largest).min(1.0));
        if last - level >= gap && level >= gap {
            last = level;
            ticks.extend([(level, number(tick)), (-level, number(-tick))]);
        }
    }
    ticks
}

// Name a system in a title
/// The width that a title needs with margins, pixels.
pub(crate) fn title_width(title: &str) -> u32 {
    (0.62 * f64::from(TITLE) * title.chars().count() as f64).ceil() as u32 + 40
}

/// The name of a file without its folder, cut to what a title has room for.
pub(crate) fn short_name(system: &str) -> String {
    const MOST: usize = 28;
    let name = Path::new(system).file_name().map_or(system.into(), |name| name.to_string_lossy());
    let over = name.chars().count().saturating_sub(MOST);
    let end: String = name.chars().skip(if over > 0 { over + 1 } else { 0 }).collect();
    if over > 0 { format!("…{end}") } else { end }
}

// Tests of the plots
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    // Check scales of colour and ticks
    #[test]
    fn scales_of_colour_rise_and_keep_the_sign() {
        for scale in [ColourScale::Linear, ColourScale::Root, ColourScale::Log] {
            let shares = (-400..=400).map(|k| f64::from(k) / 400.0);
            let levels: Vec<f64> = shares.map(|share| scale.level(share)).collect();
            assert!(levels.windows(2).all(|pair| pair[0] < pair[1]), "{scale:?}");
            assert!((0..=400).all(|k| levels[400 - k] == -levels[400 + k]), "{scale:?}");
            assert_eq!((levels[0], levels[400], levels[800]), (-1.0, 0.0, 1.0));
            assert!(scale.level(f64::NAN).is_nan());
            let ticks = ticks(scale, 4.9, 0.1);
            assert!(ticks.len() >= 5, "{ticks:?}");
            for (level, label) in &ticks {
                let value: f64 = label.replace('−', "-").parse().unwrap();
                assert!((scale.level(value / 4.9) - level).abs() < 1e-12, "{scale:?} {label}");
            }
        }
        assert!(ColourScale::Log.level(1e-3) > 0.2 && ColourScale::Root.level(0.01) == 0.1);
        let middle = PlotAxis::default().scale(&(-0.05..0.05), 5).ticks;
        assert!(middle.iter().any(|tick| *tick == (0.0, "0".into())), "{middle:?}");
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

    // Check that lines are clipped and unbroken
    #[test]
    fn lines_are_cut_at_the_edge_and_nowhere_else() {
        let panel = [&(0.0..4.0), &(0.0..2.0)];
        let zigzag = [(0.0, 1.0), (1.0, -1.0), (2.0, 1.0), (3.0, 1.0), (5.0, 1.0)];
        let parts = clipped(&zigzag, panel);
        let expected =
            [vec![(0.0, 1.0), (0.5, 0.0)], vec![(1.5, 0.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)]];
        assert_eq!(parts, expected);
        let broken =
            [(0.0, 1.0), (1.0, f64::NEG_INFINITY), (2.0, 1.0), (3.0, f64::NAN), (4.0, 1.0)];
        assert!(clipped(&broken, panel).is_empty() && clipped(&zigzag[..1], panel).is_empty());
        assert!(clipped(&[(0.0, 3.0), (4.0, 3.0)], panel).is_empty());
        let across = clipped(&[(-1.0, 1.0), (9.0, 1.0)], panel);
        assert_eq!(across, [vec![(0.0, 1.0), (4.0, 1.0)]]);
        let pieces = Figure::new().lines("", [[(0.0, 0.0), (1.0, 1.0)], [(2.0, 1.0), (3.0, 0.0)]]);
        let svg = String::from_utf8(pieces.render(PictureFormat::Svg).unwrap()).unwrap();
        assert_eq!(svg.lines().filter(|line| line.contains(r##"stroke="#0072B2""##)).count(), 2);
        let wave = (0..200).map(|k| (f64::from(k), 1.5 + f64::from(k).sin()));
        let svg = Figure::new().log_y().line("", wave).render(PictureFormat::Svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let curve = r##"stroke="#0072B2""##;
        assert_eq!(svg.lines().filter(|line| line.contains(curve)).count(), 1);
    }

    #[test]
    fn hollow_points_do_not_widen_the_axes() {
        let near = Figure::new().points("near", [(0.0, 1.0), (10.0, 2.0)]);
        let ticks = |figure: &Figure| {
            let svg = String::from_utf8(figure.render(PictureFormat::Svg).unwrap()).unwrap();
            ["0", "10", "500", "1000"].map(|tick| svg.contains(&format!(">\n{tick}\n<")))
        };
        let far = near.clone().hollow_points("far", [(1000.0, 1.5, 0.1), (5.0, 1.2, 0.0)]);
        assert_eq!((ticks(&near), ticks(&far)), ([true, true, false, false], ticks(&near)));
        assert_ne!(
            far.render(PictureFormat::Png).unwrap(),
            near.render(PictureFormat::Png).unwrap()
        );
        let lone = Figure::new().hollow_points("lone", [(0.0, 1.0, 0.0), (1000.0, 2.0, 0.0)]);
        assert!(ticks(&lone)[3]);
    }

    // Measure the letters of a picture
    /// Words of a picture in SVG, and the font of its smallest letters as it is shown, pixels.
    pub(crate) fn letters(svg: &[u8]) -> (Vec<String>, f64) {
        let svg = String::from_utf8(svg.to_vec()).unwrap();
        let number = |text: &str| text.split('"').next().unwrap().parse::<f64>().unwrap();
        let sizes = svg.split("font-size=\"").skip(1).map(number);
        let words = svg.split("<text").skip(1).map(|text| {
            let words = text.split_once('>').unwrap().1.split_once('<').unwrap().0;
            words.trim().to_string()
        });
        (words.collect(), 0.5 * sizes.fold(f64::INFINITY, f64::min))
    }

    #[test]
    fn letters_of_figures_are_large_enough() {
        let figure =
            Figure::new().title("title").x_label("x [m]").line("one", [(0.0, 1.0), (1.0, 2.0)]);
        let (words, least) = letters(&figure.render(PictureFormat::Svg).unwrap());
        assert!(least >= 11.0 && words.contains(&"x [m]".to_string()), "{least} {words:?}");
    }
}
