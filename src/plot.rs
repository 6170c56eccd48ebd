// Tangled from book/src/plots.md: edit there, or here and run cargo tangle stitch.
//! Pictures of results, as SVG or PNG: curves, and maps of the slope covariance.

use crate::error::{Error, Invalid};
use crate::slope::SlopeCovariance;
use ndarray::{Array2, ArrayView2, s};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

// Formats of a picture
/// The format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Scalable vector graphics; maps are embedded as one pixel a cell.
    Svg,
    /// Portable network graphics, with two pixels for each of the SVG's.
    Png,
}

impl Format {
    /// The format that the extension of a file's name asks for.
    ///
    /// ```
    /// use lenslet::plot::Format;
    /// assert_eq!(Format::of("cov.svg".as_ref()), Ok(Format::Svg));
    /// assert!(Format::of("cov.pdf".as_ref()).is_err());
    /// ```
    pub fn of(path: &Path) -> Result<Self, Invalid> {
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        match extension.as_ref().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(Invalid::new("plot", path.display(), "a file name that ends in .svg or .png")),
        }
    }
}

// Marks on a canvas
type Point = [f64; 2];
type Colour = [u8; 3];

const BLACK_INK: Colour = [0, 0, 0];
const PAPER: Colour = [255, 255, 255];
const GRID_GREY: Colour = [222, 222, 222];

#[derive(Debug, Clone)]
enum Mark {
    /// A broken line through points; drawn as dashes if asked.
    Line { points: Vec<Point>, colour: Colour, width: f64, dashed: bool },
    /// A filled disc.
    Dot { centre: Point, radius: f64, colour: Colour },
    /// A filled rectangle with its upper left corner at `corner`.
    Fill { corner: Point, size: Point, colour: Colour },
    /// A line of text, at its middle height; `turned` reads upwards.
    Text { at: Point, text: String, size: f64, align: Align, turned: bool },
    /// Cells of colour that fill a rectangle; row 0 is at the top.
    Map { corner: Point, size: Point, cells: Array2<Colour> },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Align {
    Start,
    Middle,
    End,
}
/// A page with marks on it, drawn in their order.
#[derive(Debug, Clone)]
struct Canvas {
    size: Point,
    marks: Vec<Mark>,
}

impl Canvas {
    fn new(width: f64, height: f64) -> Self {
        Self { size: [width, height], marks: Vec::new() }
    }

    fn line(&mut self, points: &[Point], colour: Colour, width: f64) {
        self.marks.push(Mark::Line { points: points.to_vec(), colour, width, dashed: false });
    }

    fn text(&mut self, at: Point, text: impl Into<String>, size: f64, align: Align) {
        self.marks.push(Mark::Text { at, text: text.into(), size, align, turned: false });
    }

    fn turned_text(&mut self, at: Point, text: impl Into<String>, size: f64) {
        let (text, align) = (text.into(), Align::Middle);
        self.marks.push(Mark::Text { at, text, size, align, turned: true });
    }

    // Choose between the two writers
    fn render(&self, format: Format) -> Result<Vec<u8>, Error> {
        match format {
            Format::Svg => self.svg().map(String::into_bytes),
            Format::Png => self.png(),
        }
    }
}

fn failed(reason: impl std::fmt::Display) -> Error {
    Error::Failed { what: "drawing".into(), reason: reason.to_string() }
}

// Write the marks as SVG
impl Canvas {
    fn svg(&self) -> Result<String, Error> {
        let [width, height] = self.size;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        for mark in &self.marks {
            svg.push_str(&svg_element(mark)?);
            svg.push('\n');
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

// Write one mark as an element
fn svg_element(mark: &Mark) -> Result<String, Error> {
    Ok(match mark {
        Mark::Line { points, colour, width, dashed } => svg_line(points, *colour, *width, *dashed),
        Mark::Dot { centre: [x, y], radius, colour } => {
            format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{}\"/>",
                hex(*colour)
            )
        }
        Mark::Fill { corner: [x, y], size: [w, h], colour } => format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{}\"/>",
            hex(*colour)
        ),
        Mark::Text { at, text, size, align, turned } => svg_text(*at, text, *size, *align, *turned),
        Mark::Map { corner, size, cells } => svg_map(*corner, *size, cells)?,
    })
}

// Write a line as an element
fn svg_line(points: &[Point], colour: Colour, width: f64, dashed: bool) -> String {
    let list = points.iter().fold(String::new(), |mut list, [x, y]| {
        let _ = write!(list, "{x:.1},{y:.1} ");
        list
    });
    let dashes = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    let (list, colour) = (list.trim_end(), hex(colour));
    format!(
        "<polyline points=\"{list}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>"
    )
}

// Write text and maps as elements
fn svg_text([x, y]: Point, text: &str, size: f64, align: Align, turned: bool) -> String {
    let anchor = match align {
        Align::Start => "start",
        Align::Middle => "middle",
        Align::End => "end",
    };
    let turn =
        if turned { format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"") } else { String::new() };
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let baseline = y + 0.36 * size;
    format!(
        "<text x=\"{x:.1}\" y=\"{baseline:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\"{turn}>{escaped}</text>"
    )
}

fn svg_map([x, y]: Point, [width, height]: Point, cells: &Array2<Colour>) -> Result<String, Error> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let (rows, columns) = cells.dim();
    let image = encode_png(columns, rows, cells.iter().flatten().copied().collect())?;
    Ok(format!(
        "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" preserveAspectRatio=\"none\" \
         style=\"image-rendering: pixelated\" href=\"data:image/png;base64,{}\"/>",
        STANDARD.encode(image)
    ))
}
fn encode_png(width: usize, height: usize, pixels: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

// Paint the marks as PNG
/// Pixels of a PNG for each of the canvas, along an axis.
const PNG_SCALE: f64 = 2.0;

impl Canvas {
    fn png(&self) -> Result<Vec<u8>, Error> {
        load_font()?;
        let [width, height] = self.size.map(|length| (length * PNG_SCALE).ceil() as usize);
        let mut pixels = vec![255; 3 * width * height];
        for mark in &self.marks {
            if let Mark::Map { corner, size, cells } = mark {
                paint_map(&mut pixels, width, corner.map(to_pixel), size.map(to_pixel), cells);
            }
        }
        let backend = BitMapBackend::with_buffer(&mut pixels, (width as u32, height as u32));
        let area = backend.into_drawing_area();
        self.marks.iter().try_for_each(|mark| paint_mark(&area, mark)).map_err(failed)?;
        area.present().map_err(failed)?;
        drop(area);
        encode_png(width, height, pixels)
    }
}

fn to_pixel(length: f64) -> i32 {
    (length * PNG_SCALE).round() as i32
}

// Load the font of the pictures
fn load_font() -> Result<(), Error> {
    static LOADED: OnceLock<bool> = OnceLock::new();
    let font = include_bytes!("../book/fonts/DejaVuSans-subset.ttf");
    let register = || plotters::style::register_font("sans-serif", FontStyle::Normal, font).is_ok();
    LOADED.get_or_init(register).then_some(()).ok_or_else(|| failed("the font cannot be read"))
}

// Paint a map by areas
fn paint_map(
    pixels: &mut [u8],
    page_width: usize,
    [left, top]: [i32; 2],
    [width, height]: [i32; 2],
    cells: &Array2<Colour>,
) {
    let (rows, columns) = (overlaps(cells.nrows(), height), overlaps(cells.ncols(), width));
    for (y, row) in rows.iter().enumerate() {
        for (x, column) in columns.iter().enumerate() {
            // Sum the cells beneath the pixel
            let mut sum = [0.0; 3];
            for (j, high) in row {
                for (i, wide) in column {
                    let colour = cells[[*j, *i]].map(f64::from);
                    (0..3).for_each(|k| sum[k] += high * wide * colour[k]);
                }
            }
            let at = 3 * ((y + top as usize) * page_width + x + left as usize);
            if let Some(pixel) = pixels.get_mut(at..at + 3) {
                pixel.copy_from_slice(&sum.map(|level| level.round() as u8));
            }
        }
    }
}

// Share pixels among cells
/// For each of `pixels` pixels along an axis, the cells beneath it and their shares of its length.
fn overlaps(cells: usize, pixels: i32) -> Vec<Vec<(usize, f64)>> {
    let ratio = cells as f64 / f64::from(pixels);
    let beneath = |pixel: i32| {
        let (from, to) = (f64::from(pixel) * ratio, f64::from(pixel + 1) * ratio);
        let touched = from as usize..(to.ceil() as usize).min(cells);
        let share = |k: usize| (to.min(k as f64 + 1.0) - from.max(k as f64)) / ratio;
        touched.map(|k| (k, share(k))).filter(|(_, share)| *share > 0.0).collect()
    };
    (0..pixels).map(beneath).collect()
}

// Paint one mark
type Page<'a> = DrawingArea<BitMapBackend<'a>, plotters::coord::Shift>;
type PageError<'a> = DrawingAreaErrorKind<<BitMapBackend<'a> as DrawingBackend>::ErrorType>;

fn paint_mark<'a>(area: &Page<'a>, mark: &Mark) -> Result<(), PageError<'a>> {
    let ink = |[red, green, blue]: Colour| RGBColor(red, green, blue);
    let place = |[x, y]: Point| (to_pixel(x), to_pixel(y));
    match mark {
        Mark::Line { points, colour, width, dashed } => {
            let style = ink(*colour).stroke_width(to_pixel(*width).max(1) as u32);
            let points = points.iter().copied().map(place);
            if *dashed {
                area.draw(&plotters::element::DashedPathElement::new(points, 12, 8, style))
            } else {
                area.draw(&PathElement::new(points.collect::<Vec<_>>(), style))
            }
        }
        Mark::Dot { centre, radius, colour } => {
            area.draw(&Circle::new(place(*centre), to_pixel(*radius), ink(*colour).filled()))
        }
        Mark::Fill { corner: [x, y], size: [width, height], colour } => {
            let corners = [place([*x, *y]), place([x + width, y + height])];
            area.draw(&Rectangle::new(corners, ink(*colour).filled()))
        }
        // Paint text and leave maps
        Mark::Text { at, text, size, align, turned } => {
            let side = match align {
                Align::Start => HPos::Left,
                Align::Middle => HPos::Center,
                Align::End => HPos::Right,
            };
            let turn = if *turned { FontTransform::Rotate270 } else { FontTransform::None };
            let font = FontDesc::from(("sans-serif", size * 1.16 * PNG_SCALE)).transform(turn);
            let style = TextStyle::from(font).pos(Pos::new(side, VPos::Center));
            let drop = size / 8.0;
            let lowered = if *turned { [at[0] + drop, at[1]] } else { [at[0], at[1] + drop] };
            area.draw_text(text, &style, place(lowered))
        }
        Mark::Map { .. } => Ok(()),
    }
}

// Axis and its ticks
#[derive(Debug, Clone, Copy, PartialEq)]
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// Where a number lies between the ends, 0 to 1; `None` where it has no place.
    fn place(&self, x: f64) -> Option<f64> {
        let (low, high, x) = if self.log {
            (self.low.log10(), self.high.log10(), x.log10())
        } else {
            (self.low, self.high, x)
        };
        Some((x - low) / (high - low)).filter(|place| place.is_finite())
    }

    // Choose the ticks of an axis
    /// The power of ten that tick labels leave out, a multiple of 3.
    fn exponent(&self) -> i32 {
        let largest = self.low.abs().max(self.high.abs());
        let power = largest.log10().floor();
        if self.log || (-2.0..5.0).contains(&power) || !power.is_finite() {
            return 0;
        }
        3 * (power as i32 + 1).div_euclid(3)
    }

    /// Numbers to mark and their labels, at most about `count` of them.
    fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.log {
            return self.log_ticks(count);
        }
        let rough = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powi(rough.log10().floor() as i32);
        let factor =
            [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
        let (step, unit) = (factor * power, 10f64.powi(self.exponent()));
        let digits = (-(step / unit * 1.001).log10().floor()).max(0.0) as usize;
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let label = |k: i64| format!("{:.digits$}", k as f64 * step / unit).replace('-', "−");
        (first..=last).map(|k| (k as f64 * step, label(k))).collect()
    }

    // Choose the ticks of a logarithmic axis
    fn log_ticks(&self, count: usize) -> Vec<(f64, String)> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (last - first) as usize;
        let factors: &[f64] = if decades > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let stride = decades.div_ceil(count.max(1)).max(1);
        let plain = first >= -3 && last <= 4;
        let mut ticks = Vec::new();
        for power in (first..=last).step_by(stride) {
            for factor in factors {
                let value = factor * 10f64.powi(power);
                let label = match (plain, *factor == 1.0) {
                    (true, _) => format!("{value:.0$}", (-power).max(0) as usize),
                    (false, true) => format!("10{}", superscript(power)),
                    (false, false) => format!("{factor}·10{}", superscript(power)),
                };
                ticks.push((value, label));
            }
        }
        ticks.retain(|(value, _)| (self.low * 0.999..=self.high * 1.001).contains(value));
        ticks
    }
}

// Choose the ends of an axis
/// The axis that shows all of `values`, with a little room on a linear one.
fn axis_around(values: impl Iterator<Item = f64>, log: bool) -> Axis {
    let good = values.filter(|x| x.is_finite() && (!log || *x > 0.0));
    let ends =
        good.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let (low, high) = match ends {
        (low, high) if low < high => ends_with_room(low, high, log),
        (low, high) if low == high && log => (low / 10.0, high * 10.0),
        (0.0, 0.0) => (-1.0, 1.0),
        (low, high) if low == high => (low - low.abs(), high + high.abs()),
        _ => (if log { 0.1 } else { 0.0 }, 1.0),
    };
    Axis { low, high, log }
}

fn ends_with_room(low: f64, high: f64, log: bool) -> (f64, f64) {
    if log {
        let room = (high / low).powf(0.04);
        (low / room, high * room)
    } else {
        let room = 0.04 * (high - low);
        (low - room, high + room)
    }
}

/// A whole number in raised digits: −12 as ⁻¹².
fn superscript(number: i32) -> String {
    let raise = |digit: char| match digit {
        '-' => '⁻',
        _ => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹']
            [digit.to_digit(10).unwrap_or(0) as usize],
    };
    number.to_string().chars().map(raise).collect()
}

// Panel with two axes
#[derive(Debug, Clone, Copy)]
struct Panel {
    corner: Point,
    size: Point,
    x: Axis,
    y: Axis,
}

impl Panel {
    /// Where a pair of coordinates lies on the canvas.
    fn at(&self, x: f64, y: f64) -> Option<Point> {
        let (right, up) = (self.x.place(x)?, self.y.place(y)?);
        Some([self.corner[0] + right * self.size[0], self.corner[1] + (1.0 - up) * self.size[1]])
    }

    fn bottom(&self) -> f64 {
        self.corner[1] + self.size[1]
    }

    // Draw grid lines and frame
    fn draw_grid(&self, canvas: &mut Canvas, counts: [usize; 2]) {
        let ([left, top], [width, height]) = (self.corner, self.size);
        for (value, _) in self.x.ticks(counts[0]) {
            let x = left + self.x.place(value).unwrap_or(0.0) * width;
            canvas.line(&[[x, top], [x, self.bottom()]], GRID_GREY, 0.8);
        }
        for (value, _) in self.y.ticks(counts[1]) {
            let y = top + (1.0 - self.y.place(value).unwrap_or(0.0)) * height;
            canvas.line(&[[left, y], [left + width, y]], GRID_GREY, 0.8);
        }
    }

    fn draw_frame(&self, canvas: &mut Canvas) {
        let ([left, top], [width, _]) = (self.corner, self.size);
        let (right, bottom) = (left + width, self.bottom());
        let corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]];
        canvas.line(&corners, BLACK_INK, 1.0);
    }

    // Label the two axes
    fn label_x(&self, canvas: &mut Canvas, count: usize, size: f64, title: &str) {
        for (value, label) in self.x.ticks(count) {
            let x = self.corner[0] + self.x.place(value).unwrap_or(0.0) * self.size[0];
            canvas.line(&[[x, self.bottom()], [x, self.bottom() + 4.0]], BLACK_INK, 1.0);
            canvas.text([x, self.bottom() + 6.0 + 0.6 * size], label, size, Align::Middle);
        }
        let middle = self.corner[0] + self.size[0] / 2.0;
        if !title.is_empty() {
            let title = with_exponent(title, self.x.exponent());
            canvas.text([middle, self.bottom() + 12.0 + 1.8 * size], title, size, Align::Middle);
        }
    }

    fn label_y(&self, canvas: &mut Canvas, count: usize, size: f64, title: &str) {
        let mut widest: f64 = 0.0;
        for (value, label) in self.y.ticks(count) {
            let y = self.corner[1] + (1.0 - self.y.place(value).unwrap_or(0.0)) * self.size[1];
            canvas.line(&[[self.corner[0] - 4.0, y], [self.corner[0], y]], BLACK_INK, 1.0);
            widest = widest.max(text_width(&label, size));
            canvas.text([self.corner[0] - 7.0, y], label, size, Align::End);
        }
        let middle = self.corner[1] + self.size[1] / 2.0;
        if !title.is_empty() {
            let title = with_exponent(title, self.y.exponent());
            canvas.turned_text([self.corner[0] - 14.0 - widest - 0.6 * size, middle], title, size);
        }
    }

    // Clip a line to the panel
    fn clip(&self, from: Point, to: Point) -> Option<[Point; 2]> {
        let mut inside = [0.0f64, 1.0f64];
        for axis in 0..2 {
            let (low, high) = (self.corner[axis], self.corner[axis] + self.size[axis]);
            let run = to[axis] - from[axis];
            for (gap, rate) in [(from[axis] - low, -run), (high - from[axis], run)] {
                if rate == 0.0 && gap < 0.0 {
                    return None;
                } else if rate > 0.0 {
                    inside[1] = inside[1].min(gap / rate);
                } else if rate < 0.0 {
                    inside[0] = inside[0].max(gap / rate);
                }
            }
        }
        let along = |t: f64| [0, 1].map(|axis| from[axis] + t * (to[axis] - from[axis]));
        (inside[0] <= inside[1]).then(|| inside.map(along))
    }
}
fn text_width(text: &str, size: f64) -> f64 {
    0.62 * size * text.chars().count() as f64
}

fn with_exponent(title: &str, exponent: i32) -> String {
    if exponent == 0 { title.into() } else { format!("{title}  × 10{}", superscript(exponent)) }
}

// Figure of curves
/// A figure of curves in one panel, with a legend.
///
/// ```
/// use lenslet::plot::{Figure, Format};
/// let figure = Figure::new()
///     .title("A power law")
///     .x_label("r [m]")
///     .y_label("D [rad²]")
///     .log_x()
///     .log_y()
///     .line("Kolmogorov", (1..100).map(|r| (r as f64, 6.88 * (r as f64).powf(5.0 / 3.0))))
///     .points_with_errors("measured", [(10.0, 310.0, 15.0), (50.0, 4800.0, 200.0)]);
/// assert!(figure.render(Format::Svg).is_ok_and(|svg| svg.starts_with(b"<svg")));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Figure {
    title: String,
    labels: [String; 2],
    log: [bool; 2],
    ranges: [Option<[f64; 2]>; 2],
    curves: Vec<Curve>,
}

#[derive(Debug, Clone)]
struct Curve {
    name: String,
    style: CurveStyle,
    /// Abscissa, ordinate, and the error of the ordinate.
    points: Vec<[f64; 3]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum CurveStyle {
    Line,
    Dashes,
    Points,
}
impl Figure {
    /// An empty figure with linear axes.
    pub fn new() -> Self {
        Self::default()
    }

    // Describe the axes of a figure
    /// Sets the title above the panel.
    pub fn title(mut self, title: &str) -> Self {
        self.title = title.into();
        self
    }

    /// Names the quantity along the horizontal axis, with its unit.
    pub fn x_label(mut self, label: &str) -> Self {
        self.labels[0] = label.into();
        self
    }

    /// Names the quantity along the vertical axis, with its unit.
    pub fn y_label(mut self, label: &str) -> Self {
        self.labels[1] = label.into();
        self
    }

    /// Makes the horizontal axis logarithmic; what is not positive is then left out.
    pub fn log_x(mut self) -> Self {
        self.log[0] = true;
        self
    }
    /// Makes the vertical axis logarithmic; what is not positive is then left out.
    pub fn log_y(mut self) -> Self {
        self.log[1] = true;
        self
    }

    /// Fixes the ends of the horizontal axis; curves are cut there.
    pub fn x_range(mut self, low: f64, high: f64) -> Self {
        self.ranges[0] = Some([low, high]);
        self
    }

    /// Fixes the ends of the vertical axis; curves are cut there.
    pub fn y_range(mut self, low: f64, high: f64) -> Self {
        self.ranges[1] = Some([low, high]);
        self
    }

    // Add curves and points
    /// Adds a line through points (x, y).
    pub fn line(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.curve(name, CurveStyle::Line, points.into_iter().map(|(x, y)| [x, y, 0.0]))
    }

    /// Adds a dashed line through points (x, y).
    pub fn dashes(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.curve(name, CurveStyle::Dashes, points.into_iter().map(|(x, y)| [x, y, 0.0]))
    }

    /// Adds unconnected points (x, y).
    pub fn points(self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.curve(name, CurveStyle::Points, points.into_iter().map(|(x, y)| [x, y, 0.0]))
    }

    /// Adds points (x, y, e) with bars from y − e to y + e.
    pub fn points_with_errors(
        self,
        name: &str,
        points: impl IntoIterator<Item = (f64, f64, f64)>,
    ) -> Self {
        self.curve(name, CurveStyle::Points, points.into_iter().map(|(x, y, e)| [x, y, e]))
    }

    fn curve(
        mut self,
        name: &str,
        style: CurveStyle,
        points: impl Iterator<Item = [f64; 3]>,
    ) -> Self {
        self.curves.push(Curve { name: name.into(), style, points: points.collect() });
        self
    }

    // Save the figure to a file
    /// Draws the figure and writes it to a file, whose extension chooses the format.
    ///
    /// # Errors
    /// `Invalid` for an extension other than `svg` and `png`, `Write` where the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let picture = self.render(Format::of(path)?)?;
        let refuse = |source| Error::Write { path: path.into(), source };
        std::fs::write(path, picture).map_err(refuse)
    }

    /// Draws the figure; the bytes of the file.
    pub fn render(&self, format: Format) -> Result<Vec<u8>, Error> {
        self.draw().render(format)
    }
}

// Lay out and draw the figure
const CURVE_COLOURS: [Colour; 7] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [60, 60, 60],
];

impl Figure {
    fn draw(&self) -> Canvas {
        let mut canvas = Canvas::new(720.0, 460.0);
        let (corner, size) = ([96.0, 44.0], [596.0, 346.0]);
        let panel = Panel { corner, size, x: self.axis(0), y: self.axis(1) };
        canvas.text([corner[0] + size[0] / 2.0, 22.0], &*self.title, 16.0, Align::Middle);
        self.draw_into(&mut canvas, &panel);
        canvas
    }

    // Fit the axes to the curves
    fn axis(&self, k: usize) -> Axis {
        let log = self.log[k];
        if let Some([low, high]) =
            self.ranges[k].filter(|[low, high]| low < high && (!log || *low > 0.0))
        {
            return Axis { low, high, log };
        }
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let ends = points.flat_map(|point| match k {
            0 => [point[0], point[0]],
            _ => [point[1] - point[2], point[1] + point[2]],
        });
        axis_around(ends, log)
    }

    // Draw curves into a panel
    fn draw_into(&self, canvas: &mut Canvas, panel: &Panel) {
        let counts = [(panel.size[0] / 70.0) as usize, (panel.size[1] / 45.0) as usize];
        panel.draw_grid(canvas, counts);
        for (curve, colour) in self.curves.iter().zip(CURVE_COLOURS.iter().cycle()) {
            draw_curve(canvas, panel, curve, *colour);
        }
        panel.draw_frame(canvas);
        panel.label_x(canvas, counts[0], 13.0, &self.labels[0]);
        panel.label_y(canvas, counts[1], 13.0, &self.labels[1]);
        draw_legend(canvas, panel, &self.curves);
    }
}

// Draw one curve
fn draw_curve(canvas: &mut Canvas, panel: &Panel, curve: &Curve, colour: Colour) {
    if curve.style == CurveStyle::Points || curve.points.len() == 1 {
        return draw_points(canvas, panel, curve, colour);
    }
    let dashed = curve.style == CurveStyle::Dashes;
    let mut strokes: Vec<Vec<Point>> = Vec::new();
    for ends in curve.points.windows(2) {
        let places = (panel.at(ends[0][0], ends[0][1]), panel.at(ends[1][0], ends[1][1]));
        let (Some(from), Some(to)) = places else { continue };
        let Some([from, to]) = panel.clip(from, to) else { continue };
        match strokes.last_mut() {
            Some(stroke) if stroke.last() == Some(&from) => stroke.push(to),
            _ => strokes.push(vec![from, to]),
        }
    }
    let lines = strokes.into_iter().map(|points| Mark::Line { points, colour, width: 1.8, dashed });
    canvas.marks.extend(lines);
}
fn draw_points(canvas: &mut Canvas, panel: &Panel, curve: &Curve, colour: Colour) {
    for &[x, y, error] in &curve.points {
        let Some(centre) = panel.at(x, y) else { continue };
        if panel.clip(centre, centre).is_none() {
            continue;
        }
        canvas.marks.push(Mark::Dot { centre, radius: 3.2, colour });
        // On a logarithmic axis a bar may reach below zero: it then ends at the frame.
        let low = panel.at(x, y - error).unwrap_or([centre[0], panel.bottom()]);
        let bar = panel.at(x, y + error).and_then(|high| panel.clip(low, high));
        if let Some(bar) = bar.filter(|_| error > 0.0) {
            canvas.line(&bar, colour, 1.2);
            for [x, y] in bar {
                canvas.line(&[[x - 3.0, y], [x + 3.0, y]], colour, 1.2);
            }
        }
    }
}

// Place the legend where there is room
fn draw_legend(canvas: &mut Canvas, panel: &Panel, curves: &[Curve]) {
    let coloured = curves.iter().zip(CURVE_COLOURS.iter().cycle());
    let named: Vec<_> = coloured.filter(|(curve, _)| !curve.name.is_empty()).collect();
    let widest = named.iter().map(|(curve, _)| text_width(&curve.name, 12.0)).fold(0.0, f64::max);
    let (width, height) = (widest + 52.0, 18.0 * named.len() as f64 + 8.0);
    if named.is_empty() {
        return;
    }
    let corner = freest_corner(panel, curves, [width, height]);
    canvas.marks.push(Mark::Fill { corner, size: [width, height], colour: PAPER });
    for (row, (curve, colour)) in named.into_iter().enumerate() {
        let y = corner[1] + 13.0 + 18.0 * row as f64;
        let [from, to] = [corner[0] + 8.0, corner[0] + 36.0];
        // Draw a sample of the curve
        canvas.marks.push(match curve.style {
            CurveStyle::Points => {
                Mark::Dot { centre: [(from + to) / 2.0, y], radius: 3.2, colour: *colour }
            }
            style => Mark::Line {
                points: vec![[from, y], [to, y]],
                colour: *colour,
                width: 1.8,
                dashed: style == CurveStyle::Dashes,
            },
        });
        canvas.text([to + 8.0, y], &*curve.name, 12.0, Align::Start);
    }
}

// Find the freest corner
fn freest_corner(panel: &Panel, curves: &[Curve], [width, height]: Point) -> Point {
    let ([left, top], [wide, high]) = (panel.corner, panel.size);
    let (right, low) = (left + wide - width - 8.0, top + high - height - 8.0);
    let corners = [[right, top + 8.0], [left + 8.0, top + 8.0], [right, low], [left + 8.0, low]];
    let covered = |corner: &Point| {
        let inside = |place: &Point| {
            let (x, y) = (place[0] - corner[0], place[1] - corner[1]);
            (-4.0..=width + 4.0).contains(&x) && (-4.0..=height + 4.0).contains(&y)
        };
        curves.iter().flat_map(|curve| samples(panel, curve)).filter(inside).count()
    };
    corners.into_iter().min_by_key(covered).unwrap_or(corners[0])
}

/// Places along a curve, ten on each of its pieces.
fn samples(panel: &Panel, curve: &Curve) -> Vec<Point> {
    let places: Vec<Point> = curve.points.iter().filter_map(|[x, y, _]| panel.at(*x, *y)).collect();
    let between = |ends: &[Point]| {
        let (from, to) = (ends[0], ends[ends.len() - 1]);
        let along = move |t: f64| [0, 1].map(|axis| from[axis] + t * (to[axis] - from[axis]));
        (0..10).map(move |k| along(f64::from(k) / 10.0))
    };
    match curve.style {
        CurveStyle::Points => places,
        _ => places.windows(2).flat_map(between).collect(),
    }
}

// Colours of signed numbers
const STATIONS: [Colour; 11] = [
    [5, 48, 97],
    [33, 102, 172],
    [67, 147, 195],
    [146, 197, 222],
    [209, 229, 240],
    [255, 255, 255],
    [253, 219, 199],
    [244, 165, 130],
    [214, 96, 77],
    [178, 24, 43],
    [103, 0, 31],
];

/// The square root of a magnitude between 0 and 1, with the number's sign.
fn level(share: f64) -> f64 {
    share.abs().sqrt().copysign(share)
}

/// The colour of a level between −1 and 1: blue, white at zero, red.
fn diverging_colour(level: f64) -> Colour {
    let along = 5.0 * (level.clamp(-1.0, 1.0) + 1.0);
    let station = (along as usize).min(STATIONS.len() - 2);
    let (from, to, t) = (STATIONS[station], STATIONS[station + 1], along - station as f64);
    [0, 1, 2].map(|k| (f64::from(from[k]) * (1.0 - t) + f64::from(to[k]) * t).round() as u8)
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

impl Pairs {
    /// All pairs of a small system, up to three stars; the first pair of a larger one.
    pub fn default_for(sources: usize) -> Self {
        if sources <= 3 { Self::All } else { Self::One(0, 0) }
    }

    // Check the choice of pairs
    /// Checks a choice against the number of sources.
    ///
    /// # Errors
    /// `Invalid` where a star does not exist.
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

    fn stars(self, sources: usize) -> (Vec<usize>, Vec<usize>) {
        match self {
            Self::All => ((0..sources).collect(), (0..sources).collect()),
            Self::One(p, q) => (vec![p], vec![q]),
        }
    }
}
/// Draws the slope covariance of pairs of guide stars: maps of the four components over the displacement, and cuts along its axes.
///
/// `pitch` is the lenslet pitch in metres. The bytes of the file are returned.
///
/// # Errors
/// `Invalid` where the pair does not exist.
pub fn plot_covariance(
    covariance: &SlopeCovariance,
    pitch: f64,
    pairs: Pairs,
    format: Format,
) -> Result<Vec<u8>, Error> {
    let (rows, columns) = pairs.check(covariance.sources())?.stars(covariance.sources());
    let mut canvas = Canvas::new(1180.0, 640.0);
    let view = View { covariance, pitch, rows, columns };
    view.draw_maps(&mut canvas);
    view.draw_colour_bar(&mut canvas);
    view.draw_cuts(&mut canvas);
    // Find a title for the picture
    let title = match pairs {
        Pairs::One(p, q) => format!("Slope covariance of guide stars p = {p} and q = {q}"),
        Pairs::All if covariance.sources() == 1 => "Slope covariance".into(),
        Pairs::All => {
            format!("Slope covariance of all pairs of {} guide stars", covariance.sources())
        }
    };
    canvas.text([590.0, 26.0], title, 17.0, Align::Middle);
    canvas.render(format)
}

// View of the chosen pairs
struct View<'a> {
    covariance: &'a SlopeCovariance,
    pitch: f64,
    rows: Vec<usize>,
    columns: Vec<usize>,
}

/// Upper left corner and side of the square that holds all maps.
const MAPS: (Point, f64) = ([82.0, 72.0], 500.0);

impl View<'_> {
    fn field(&self, p: usize, q: usize, a: usize, b: usize) -> ArrayView2<'_, f64> {
        self.covariance.values().slice(s![p, q, a, b, .., ..])
    }

    /// The largest magnitude in the maps, rad².
    fn largest(&self) -> f64 {
        let pairs = self.rows.iter().flat_map(|p| self.columns.iter().map(move |q| (*p, *q)));
        let blocks = pairs.map(|(p, q)| self.covariance.values().slice(s![p, q, .., .., .., ..]));
        let largest =
            blocks.flat_map(|block| block.into_iter()).fold(0.0, |m: f64, c| m.max(c.abs()));
        if largest > 0.0 { largest } else { 1.0 }
    }

    // Draw the maps of all blocks
    fn draw_maps(&self, canvas: &mut Canvas) {
        let (corner, side) = MAPS;
        let across = 2 * self.columns.len();
        let gap = if across == 2 { 26.0 } else { 18.0 };
        let map_side = (side - gap * (across - 1) as f64) / across as f64;
        let reach = (self.covariance.lenslets() as f64 - 0.5) * self.pitch;
        let (axis, largest) = (Axis { low: -reach, high: reach, log: false }, self.largest());
        for row in 0..2 * self.rows.len() {
            for column in 0..across {
                let (p, q, a, b) =
                    (self.rows[row / 2], self.columns[column / 2], row % 2, column % 2);
                let [x, y] = [column, row].map(|k| k as f64 * (map_side + gap));
                let corner = [corner[0] + x, corner[1] + y];
                let panel = Panel { corner, size: [map_side; 2], x: axis, y: axis };
                let colour = |c: &f64| diverging_colour(level(c / largest));
                let cells = self.field(p, q, a, b).slice(s![..;-1, ..]).map(colour);
                canvas.marks.push(Mark::Map { corner, size: panel.size, cells });
                panel.draw_frame(canvas);
                // Name the map and number its axes
                let component = ["xx", "xy", "yx", "yy"][2 * a + b];
                let name =
                    if across == 2 { component.into() } else { format!("{p},{q} {component}") };
                let size = if across == 2 { 14.0 } else { 11.0 };
                canvas.text(
                    [corner[0] + map_side / 2.0, corner[1] - 0.8 * size],
                    name,
                    size,
                    Align::Middle,
                );
                let count = ((map_side / 40.0) as usize).max(3);
                if row + 1 == 2 * self.rows.len() {
                    panel.label_x(canvas, count, 12.0, "");
                }
                if column == 0 {
                    panel.label_y(canvas, count, 12.0, "");
                }
            }
        }
        // Name the axes of all maps
        let (middle, below) = (corner[0] + side / 2.0, corner[1] + side + 34.0);
        let title = |name: &str| with_exponent(&format!("{name} [m]"), axis.exponent());
        canvas.text([middle, below], title("ρx"), 13.0, Align::Middle);
        canvas.turned_text([corner[0] - 58.0, corner[1] + side / 2.0], title("ρy"), 13.0);
    }

    // Draw the bar of colours
    fn draw_colour_bar(&self, canvas: &mut Canvas) {
        let (corner, side) = MAPS;
        let (bar, size) = ([corner[0] + side + 24.0, corner[1]], [16.0, side]);
        let levels = 256;
        let colour = |k: usize| diverging_colour(1.0 - 2.0 * (k as f64 + 0.5) / levels as f64);
        let cells = Array2::from_shape_fn((levels, 1), |(k, _)| colour(k));
        canvas.marks.push(Mark::Map { corner: bar, size, cells });
        let axis = Axis { low: -self.largest(), high: self.largest(), log: false };
        Panel { corner: bar, size, x: axis, y: axis }.draw_frame(canvas);
        for value in bar_values(axis.high) {
            let y = bar[1] + 0.5 * (1.0 - level(value / axis.high)) * side;
            let label = format!("{}", value / 10f64.powi(axis.exponent()));
            canvas.line(&[[bar[0] + 16.0, y], [bar[0] + 20.0, y]], BLACK_INK, 1.0);
            canvas.text([bar[0] + 24.0, y], label.replace('-', "−"), 12.0, Align::Start);
        }
        let title = with_exponent("covariance [rad²], square-root scale", axis.exponent());
        canvas.turned_text([bar[0] + 76.0, bar[1] + side / 2.0], title, 12.0);
    }

    // Draw cuts through the middle
    fn draw_cuts(&self, canvas: &mut Canvas) {
        let middle = self.covariance.lenslets() - 1;
        let lag = |i: usize| (i as f64 - middle as f64) * self.pitch;
        let cut = |p, q, a, along_x: bool| {
            let field = self.field(p, q, a, a);
            let line =
                if along_x { field.row(middle).to_vec() } else { field.column(middle).to_vec() };
            line.into_iter().enumerate().map(move |(i, c)| (lag(i), c))
        };
        let mut figure = Figure::new().x_label("displacement [m]").y_label("covariance [rad²]");
        // Add the cuts that matter
        if let ([p], [q]) = (&self.rows[..], &self.columns[..]) {
            figure = figure
                .line("xx along x", cut(*p, *q, 0, true))
                .line("xx along y", cut(*p, *q, 0, false))
                .dashes("yy along x", cut(*p, *q, 1, true))
                .dashes("yy along y", cut(*p, *q, 1, false));
        } else {
            figure = figure.x_label("displacement along x [m]");
            for p in &self.rows {
                for q in self.columns.iter().filter(|q| *q > p || (*p == 0 && **q == 0)) {
                    figure = figure.line(&format!("xx {p},{q}"), cut(*p, *q, 0, true));
                }
            }
        }
        let (corner, size) = ([800.0, MAPS.0[1]], [352.0, MAPS.1]);
        let panel = Panel { corner, size, x: figure.axis(0), y: figure.axis(1) };
        figure.draw_into(canvas, &panel);
    }
}

/// Zero, and plus and minus 1, 2, 5 times powers of ten, from a thirtieth of `largest` to all of it.
fn bar_values(largest: f64) -> Vec<f64> {
    let power = largest.log10().floor() as i32;
    let steps =
        (power - 2..=power).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
    let shown = steps.filter(|value| (0.03 * largest..=largest).contains(value));
    shown.flat_map(|value| [value, -value]).chain([0.0]).collect()
}

// Tests of the plots
#[cfg(test)]
mod tests {
    use super::*;

    fn axis(low: f64, high: f64, log: bool) -> Axis {
        Axis { low, high, log }
    }

    // Check ticks and their labels
    #[test]
    fn ticks_are_round_and_labels_short() {
        let labels = |axis: Axis, count| -> Vec<String> {
            axis.ticks(count).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(axis(-1.95, 1.95, false), 5), ["−1", "0", "1"]);
        assert_eq!(labels(axis(0.0, 0.3, false), 3), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(labels(axis(-3e-12, 3e-12, false), 4), ["−2", "0", "2"]);
        assert_eq!(axis(-3e-12, 3e-12, false).exponent(), -12);
        assert_eq!(labels(axis(1e-7, 1.0, true), 8)[0], "10⁻⁷");
        assert_eq!(labels(axis(0.5, 20.0, true), 8), ["0.5", "1", "2", "5", "10", "20"]);
        assert_eq!(axis(1.0, 100.0, true).place(10.0), Some(0.5));
        assert_eq!(axis(1.0, 100.0, true).place(0.0), None);
    }

    // Check clipping and resampling
    #[test]
    fn lines_are_clipped_and_pixels_share_cells() {
        let unit = axis(0.0, 1.0, false);
        let panel = Panel { corner: [0.0, 0.0], size: [10.0, 10.0], x: unit, y: unit };
        assert_eq!(panel.clip([-5.0, 5.0], [5.0, 5.0]), Some([[0.0, 5.0], [5.0, 5.0]]));
        assert_eq!(panel.clip([-5.0, 5.0], [-1.0, 5.0]), None);
        assert_eq!(panel.clip([2.0, 12.0], [4.0, 8.0]), Some([[3.0, 10.0], [4.0, 8.0]]));
        for (cells, pixels) in [(3, 10), (10, 3), (7, 7), (1, 5)] {
            for beneath in overlaps(cells, pixels) {
                let whole: f64 = beneath.iter().map(|(_, share)| share).sum();
                assert!((whole - 1.0).abs() < 1e-12);
            }
        }
    }

    // Check that odd figures are drawn
    #[test]
    fn odd_figures_are_drawn() {
        let constant = Figure::new().line("same", [(1.0, 5.0), (2.0, 5.0)]);
        let holes =
            Figure::new().log_y().line("", [(0.0, f64::NAN), (1.0, 0.0), (2.0, -3.0), (3.0, 1.0)]);
        let bars = Figure::new().log_y().points_with_errors("<a & b>", [(1.0, 1.0, 2.0)]);
        for figure in [Figure::new(), Figure::new().log_x().log_y(), constant, holes, bars] {
            let svg = figure.render(Format::Svg).map(String::from_utf8);
            assert!(
                matches!(svg, Ok(Ok(svg)) if svg.ends_with("</svg>\n") && !svg.contains("NaN"))
            );
            let png = figure.render(Format::Png);
            assert!(png.is_ok_and(|png| png.starts_with(b"\x89PNG")));
        }
        let nowhere = Figure::new().save("no/such/folder/figure.svg");
        assert!(matches!(nowhere, Err(Error::Write { .. })));
    }

    // Check orientation and order of maps
    #[test]
    fn maps_show_row_zero_at_the_bottom() -> crate::Result<()> {
        let covariance = lopsided_covariance()?;
        let view = View { covariance: &covariance, pitch: 0.5, rows: vec![0], columns: vec![1] };
        let mut canvas = Canvas::new(1180.0, 640.0);
        view.draw_maps(&mut canvas);
        let maps: Vec<_> = canvas.marks.iter().filter_map(map_cells).collect();
        for (k, cells) in maps.iter().enumerate() {
            let field = view.field(0, 1, k / 2, k % 2);
            for ((row, column), colour) in cells.indexed_iter() {
                assert_eq!(
                    *colour,
                    diverging_colour(level(field[[2 - row, column]] / view.largest()))
                );
            }
        }
        assert_eq!(maps.len(), 4);
        assert!(plot_covariance(&covariance, 0.5, Pairs::One(0, 2), Format::Svg).is_err());
        assert!(plot_covariance(&covariance, 0.5, Pairs::All, Format::Png)?.len() > 1000);
        Ok(())
    }

    fn map_cells(mark: &Mark) -> Option<&Array2<Colour>> {
        if let Mark::Map { cells, .. } = mark { Some(cells) } else { None }
    }

    // Make a covariance without symmetry
    fn lopsided_covariance() -> crate::Result<SlopeCovariance> {
        use crate::atmosphere::{Atmosphere, Layer};
        use crate::source::{ConeGradient, Source};
        let (altitude, fraction, outer_scale) = (5000.0, 1.0, 25.0);
        let layer = Layer { altitude, fraction, outer_scale, wind_speed: 0.0, wind_direction: 0.0 };
        let atmosphere = Atmosphere::new(0.15, 500e-9, vec![layer])?;
        let array = crate::lenslet_array::LensletArray::new(2, 0.5)?;
        let stars = [Source::star(1e-4, 0.3)?, Source::star(2e-4, 2.0)?];
        let problem =
            crate::slope::SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil)?;
        let pair = |k: usize| {
            let number = |(c, j, i)| (100 * k + 9 * c + 3 * j + i) as f64 - 60.0;
            crate::slope::PairCovariance::from_shape_fn((3, 3, 3), number)
        };
        Ok(SlopeCovariance::from_pairs(&problem, &[pair(0), pair(1)]))
    }
}
