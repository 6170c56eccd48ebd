// Tangled from book/src/scan-pictures.md: edit there, or here and run cargo tangle stitch.
//! Pictures of scans: the crystal, images, deflections and the mean diffraction pattern.

// Imports of pictures of scans
use crate::data::{Coordinate, DataSet, TypedArray, Variable};
use crate::error::{Error, accept, not_negative};
use crate::numerics::real::Real;
use crate::plot::field::ends;
use crate::plot::{
    Area, BAR, Drawn, LETTERS, LIGHT, Picture, PictureFormat, PlotAxis, Scale, TITLE, TYPEFACE,
    number, paint, paint_bar_of, paint_colours, power_of_ten, title_width,
};
use crate::specimen::{Element, Specimen};
use ndarray::{Array2, ArrayD, ArrayViewD, Axis as Along, Dimension, Ix2, IxDyn, s};
use plotters::prelude::*;
use std::f64::consts::PI;

// A scan to be drawn
/// What there is to be drawn of a scan.
#[derive(Debug)]
pub struct ScanPicture<'a, 's> {
    /// What stands above all panels.
    pub title: String,
    /// The specimen, whose columns are shown.
    pub specimen: &'a Specimen,
    /// What was read, with calibrated axes.
    pub data: &'a DataSet<'s>,
    /// Half of the angle of the probe's cone \[mrad\], by which rings are summed where the data set has no annulus.
    pub semi_angle: f64,
    /// Names of variables, each with a note for the picture; it also applies to names continued by `_2`.
    pub notes: Vec<(String, String)>,
    /// Whether the values are numbers of electrons, rather than shares of the beam.
    pub counted: bool,
}

// Draw a scan
/// Draws the crystal with the scanned window, and each real variable that is an image, a field of deflections or a set of patterns.
///
/// # Errors
/// `Invalid` where there is nothing to be drawn, or the angle is negative.
///
/// ```
/// use lenslet::{electrons::sample_file::SampleFile, data::{Coordinate, DataSet, Variable}};
/// use lenslet::plot::{PictureFormat, ScanPicture, plot_scan};
/// let specimen = SampleFile::from_file("book/systems/silicon-stem.toml")?.specimen()?;
/// let image = ndarray::array![[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]];
/// let axes = vec![Coordinate::navigation("x", "Å", 0.0, 0.5)?, Coordinate::navigation("y", "Å", 0.0, 0.5)?];
/// let mut data = DataSet::default();
/// data.insert(Variable::new("annulus_0", image.view(), axes)?)?;
/// let notes = vec![("annulus_0".to_string(), "60–90 mrad".to_string())];
/// let scan = ScanPicture { title: "by hand".into(), specimen: &specimen, data: &data, semi_angle: 20.0, notes, counted: false };
/// let picture = plot_scan(&scan, PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("annulus_0: 60–90 mrad"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_scan(picture: &ScanPicture<'_, '_>, format: PictureFormat) -> Result<Vec<u8>, Error> {
    not_negative("semi_angle", picture.semi_angle)?;
    Scans::new(picture)?.encode(format)
}

// Panels of a scan
/// What a panel shows over its two sides.
enum Shown {
    /// Columns of atoms, the lower corner of what is seen \[Å\], and the scanned window, if it is known.
    Crystal([f64; 2], Option<[[f64; 2]; 2]>),
    /// An image (x, y), in grey.
    Image(Array2<f64>),
    /// Both components of a field (x, y).
    Field([Array2<f64>; 2]),
    /// A diffraction pattern (q_x, q_y), in the logarithm of its light.
    Pattern(Array2<f64>),
}

/// One panel.
struct Panel {
    title: String,
    shown: Shown,
    /// Lengths of both sides.
    lengths: [f64; 2],
    unit: String,
    /// Quantity and unit of the colours.
    quantity: String,
}

// Panels of each variable
impl ScanPicture<'_, '_> {
    /// The panels of a variable; none where it is not an image of some kind.
    fn panels(&self, variable: &Variable<'_>, rings: bool) -> Vec<Panel> {
        let [series, ..] = variable.kinds();
        let of = |setting: &[usize]| {
            let numbers = match variable.array() {
                _ if variable.name().starts_with("standard_error") => return Vec::new(),
                Some(TypedArray::F32(array)) => plane_of(at_setting(array.view(), setting)),
                Some(TypedArray::F64(array)) => plane_of(at_setting(array.view(), setting)),
                _ => return Vec::new(),
            };
            self.images(variable, setting, &numbers, rings)
        };
        let settings = indices(&variable.shape()[..series]);
        settings.iter().flat_map(|setting| of(setting.slice())).collect()
    }

    /// The panels of a variable at one focus and thickness, whose numbers are given.
    fn images(
        &self,
        variable: &Variable<'_>,
        setting: &[usize],
        numbers: &ArrayD<f64>,
        rings: bool,
    ) -> Vec<Panel> {
        let axes = &variable.coordinates()[setting.len()..];
        let third = if axes.len() == 3 { axes[2].name() } else { "" };
        // Divide a variable into images
        let part = |k: usize| plane(numbers.index_axis(Along(2), k).into_dyn());
        let all = || (0..numbers.shape()[2]).map(part);
        let parts: Vec<(String, Shown)> = match (axes.len(), third) {
            (2, _) => vec![(String::new(), Shown::Image(plane(numbers.view())))],
            (4, _) => vec![(" (mean)".into(), Shown::Pattern(plane(numbers.view())))],
            (3, "axis") if numbers.shape()[2] == 2 => {
                vec![(String::new(), Shown::Field([part(0), part(1)]))]
            }
            (3, "sector") => all()
                .enumerate()
                .map(|(k, map)| (format!(", sector {k}"), Shown::Image(map)))
                .collect(),
            (3, "angle") if rings => {
                let [offset, width] = [axes[2].offset(), axes[2].step()];
                self.groups(&all().collect::<Vec<_>>(), offset, width)
            }
            _ => Vec::new(),
        };
        parts.into_iter().map(|(what, shown)| self.panel(variable, setting, &what, shown)).collect()
    }

    // Name a panel of a scan
    /// A panel of a variable, whose title has the variable's name, the setting, `what` it is, and the note.
    fn panel(&self, variable: &Variable<'_>, setting: &[usize], what: &str, shown: Shown) -> Panel {
        let name = variable.name();
        let value = |(axis, k): (&Coordinate, &usize)| {
            format!(", {} {} {}", axis.name(), number(axis.values()[*k]), axis.unit())
        };
        let value: String = variable.coordinates().iter().zip(setting).map(value).collect();
        let goes_on = |rest: &str| rest.is_empty() || rest.starts_with('_');
        let fits = |key: &str| name.strip_prefix(key).is_some_and(goes_on);
        let note = self.notes.iter().find(|(key, _)| fits(key));
        let note = note.map(|(_, note)| format!(": {note}"));
        let title = format!("{name}{value}{what}{}", note.unwrap_or_default());
        let axes = variable.coordinates();
        let first = setting.len() + if matches!(shown, Shown::Pattern(_)) { 2 } else { 0 };
        let shape = &variable.shape()[first..first + 2];
        let length = |k: usize| axes[first + k].step() * shape[k] as f64;
        let (quantity, unit) = (self.quantity(name, &shown), axes[first].unit().into());
        Panel { title, shown, lengths: [length(0), length(1)], unit, quantity }
    }

    /// The label of the colours of a variable.
    fn quantity(&self, name: &str, shown: &Shown) -> String {
        let beam = if self.counted { "electrons" } else { "share of the beam" };
        match shown {
            Shown::Pattern(_) if self.counted => {
                format!("electrons, floor {}", power_of_ten(-FLOOR))
            }
            Shown::Pattern(_) => format!("share, floor {} of peak", power_of_ten(-FLOOR)),
            Shown::Image(_) if name.starts_with("image") => "intensity / incident".into(),
            _ => beam.into(),
        }
    }

    // Sum rings into groups
    /// Sums of rings of a width from the middle of the first on: up to the semi-angle, twice and four times of it, and beyond.
    fn groups(&self, rings: &[Array2<f64>], first: f64, width: f64) -> Vec<(String, Shown)> {
        let widest = first + width * (rings.len() as f64 - 0.5);
        let bright = if self.semi_angle > 0.0 { self.semi_angle } else { widest / 8.0 };
        let limits = [0.0, bright, 2.0 * bright, 4.0 * bright, f64::INFINITY];
        let group = |pair: &[f64]| {
            let (from, to) = (pair[0], pair[1].min(widest));
            let middle = |k: usize| first + width * k as f64;
            let within = (0..rings.len()).filter(|&k| (pair[0]..pair[1]).contains(&middle(k)));
            let sum = within.map(|k| rings[k].clone()).reduce(|sum, ring| sum + ring)?;
            Some((format!(", {}–{} mrad", number(from), number(to)), Shown::Image(sum)))
        };
        limits.windows(2).filter_map(group).collect()
    }
}

// One setting of a series
/// All settings of a series of these lengths.
fn indices(lengths: &[usize]) -> Vec<IxDyn> {
    ndarray::indices(lengths).into_iter().collect()
}

/// The numbers at one setting.
fn at_setting<'a, T>(mut array: ArrayViewD<'a, T>, setting: &[usize]) -> ArrayViewD<'a, T> {
    setting.iter().for_each(|&k| array.index_axis_inplace(Along(0), k));
    array
}

// Planes of numbers
/// The numbers in double precision, with four axes their mean over the first two.
fn plane_of<T: Real>(array: ArrayViewD<'_, T>) -> ArrayD<f64> {
    let mean = || array.mean_axis(Along(0))?.mean_axis(Along(0));
    let few = (array.ndim() == 4).then(mean).flatten().unwrap_or_else(|| array.to_owned());
    few.mapv(T::in_double)
}
/// A plane of numbers.
fn plane(numbers: ArrayViewD<'_, f64>) -> Array2<f64> {
    let plane = numbers.into_dimensionality::<Ix2>().map(|plane| plane.to_owned());
    plane.unwrap_or_else(|_| unreachable!("of two axes"))
}

// Place the panels of a scan
/// A picture with its panels, and how many more there would be.
struct Scans<'a, 's> {
    picture: &'a ScanPicture<'a, 's>,
    panels: Vec<Panel>,
    more: usize,
}

/// Panels that a picture has at most, besides that of the crystal.
const MOST: usize = 35;

impl<'a, 's> Scans<'a, 's> {
    fn new(picture: &'a ScanPicture<'a, 's>) -> Result<Self, Error> {
        let data = || picture.data.iter();
        let rings = !data().any(|variable| variable.name().starts_with("annulus"));
        let mut all: Vec<_> = data().flat_map(|variable| picture.panels(variable, rings)).collect();
        accept(!all.is_empty(), "signals", all.len(), "an image, a field or patterns")?;
        let more = all.len().saturating_sub(MOST);
        all.truncate(MOST);
        all.insert(0, picture.crystal());
        Ok(Self { picture, panels: all, more })
    }

    // Lay out panels in rows
    fn columns(&self) -> usize {
        if self.panels.len() > 6 { 3 } else { self.panels.len().min(2) }
    }

    /// Upper left corner of panel `k` of all, or of what follows behind the last row.
    fn corner(&self, k: usize) -> (i32, i32) {
        let (columns, row) = (self.columns(), k / self.columns());
        let height = |row: &[Panel]| row.iter().map(|panel| panel.pixels()[1]).max().unwrap_or(0);
        let above = self.panels.chunks(columns).take(row).map(|row| height(row) as i32 + 180);
        (40 + (k % columns) as i32 * (SIDE + BAR + 44), 150 + above.sum::<i32>())
    }
}

impl ScanPicture<'_, '_> {
    // See the crystal and its window
    /// The panel of the crystal.
    fn crystal(&self) -> Panel {
        let scanned = |variable: &Variable<'_>| {
            let [series, ..] = variable.kinds();
            let names = variable.coordinates()[series..].iter().map(|axis| axis.name()).take(2);
            names.eq(["x", "y"]).then_some(series)
        };
        let mut data = self.data.iter();
        let window = data.find_map(|variable| scanned(variable).map(|first| (variable, first)));
        let window = window.map(|(variable, first)| {
            [first, first + 1].map(|k| {
                let (axis, count) = (&variable.coordinates()[k], variable.shape()[k] as f64);
                [axis.offset(), axis.offset() + axis.step() * count]
            })
        });
        let [mut from, mut to] = [[0.0; 2], [self.specimen.cell()[0], self.specimen.cell()[1]]];
        for (k, [low, high]) in window.into_iter().flatten().enumerate() {
            (from[k], to[k]) = (low.min(from[k]), high.max(to[k]));
        }
        let (title, unit) = ("columns of atoms".into(), "Å".into());
        let lengths = [to[0] - from[0], to[1] - from[1]];
        let quantity = String::new();
        Panel { title, shown: Shown::Crystal(from, window), lengths, unit, quantity }
    }
}

// Sides of a panel
/// Pixels along the longer side of a panel.
const SIDE: i32 = 400;

impl Panel {
    /// Pixels along both sides; few where one is much shorter than the other.
    fn pixels(&self) -> [u32; 2] {
        let longer = self.lengths[0].max(self.lengths[1]);
        self.lengths.map(|length| (f64::from(SIDE) * length / longer).round().max(24.0) as u32)
    }
}

// Bars of round lengths
/// The largest of the numbers 1, 2 and 5, times powers of ten, that is not above `x`.
fn round_below(x: f64) -> f64 {
    let power = 10f64.powf(x.log10().floor());
    let fits = |step: &f64| step * power <= x * (1.0 + 1e-9);
    [10.0, 5.0, 2.0].into_iter().find(fits).unwrap_or(1.0) * power
}

impl Panel {
    /// Draws the bar of a round length below an area, and on the right which way x and y run.
    fn draw_bar<DB: DrawingBackend>(&self, area: &Area<DB>, (x, y): (i32, i32)) -> Drawn<DB> {
        let ([width, height], length) = (self.pixels(), round_below(0.4 * self.lengths[0]));
        let (y, right) =
            (y + height as i32 + 22, x + (length / self.lengths[0] * f64::from(width)) as i32);
        area.draw(&Rectangle::new([(x, y), (right, y + 8)], BLACK.filled()))?;
        let text = format!("{} {}", number(length), self.unit);
        area.draw_text(&text, &(TYPEFACE, LETTERS).into_text_style(area), (right + 14, y - 10))
    }
}

// Draw a panel of a scan
impl Scans<'_, '_> {
    fn draw_panel<DB: DrawingBackend>(&self, area: &Area<DB>, k: usize) -> Drawn<DB> {
        let (panel, (x, y)) = (&self.panels[k], self.corner(k));
        let [width, height] = panel.pixels();
        let letters = (TYPEFACE, LETTERS).into_text_style(area);
        for (line, words) in lines(&panel.title).iter().rev().enumerate() {
            area.draw_text(words, &letters, (x, y - 38 - 34 * line as i32))?;
        }
        let (right, bottom) = (x + width as i32, y + height as i32);
        let inside = area.clone().shrink((x, y), (width, height));
        let bar = area.clone().shrink((right + 14, y), (BAR, height.max(90)));
        match &panel.shown {
            // Paint what a panel shows
            Shown::Crystal(from, window) => {
                self.draw_crystal(area, panel, (x, y), *from, *window)?
            }
            Shown::Image(values) => {
                let [least, most] = ends(values);
                paint(&inside, &GREY, |x, y| (at(values, [x, y]) - least) / (most - least))?;
                let scale = PlotAxis::default().scale(&(least..most), 5);
                paint_bar_of(&bar, &GREY, scale, &panel.quantity)?;
            }
            Shown::Field([along_x, along_y]) => {
                let sizes = along_x.iter().zip(along_y).map(|(x, y)| x.hypot(*y));
                let largest = sizes.fold(f64::MIN_POSITIVE, f64::max);
                let field = [along_x, along_y];
                let deflection = |x, y| field.map(|values| at(values, [x, y]) / largest);
                paint_colours(&inside, |x, y| colour_of(deflection(x, y)))?;
                panel.draw_wheel(area, (right + 20, y), largest)?;
            }
            // Paint a diffraction pattern
            Shown::Pattern(values) => {
                let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max).log10();
                let light = |x, y| at(values, [x, y]).max(f64::MIN_POSITIVE).log10();
                paint(&inside, &LIGHT, |x, y| {
                    (1.0 + (light(x, y) - most) / DECADES).clamp(0.0, 1.0)
                })?;
                let low = (most - DECADES).ceil() as i32;
                let ticks = (low..=most.floor() as i32).map(|k| (f64::from(k), power_of_ten(k)));
                let scale = Scale { ends: most - DECADES..most, ticks: ticks.collect() };
                paint_bar_of(&bar, &LIGHT, scale, &panel.quantity)?;
            }
        }
        area.draw(&Rectangle::new([(x - 1, y - 1), (right, bottom)], BLACK))?;
        panel.draw_bar(area, (x, y))
    }

    // Draw the crystal with its legend
    fn draw_crystal<DB: DrawingBackend>(
        &self,
        area: &Area<DB>,
        panel: &Panel,
        (x, y): (i32, i32),
        from: [f64; 2],
        window: Option<[[f64; 2]; 2]>,
    ) -> Drawn<DB> {
        let [width, height] = panel.pixels();
        let scale = f64::from(width) / panel.lengths[0];
        let specimen = self.picture.specimen;
        let picture = discs(specimen, from, scale, [width, height]);
        let pixel = |share: f64, n: u32| (share * f64::from(n)) as usize;
        paint_colours(&area.clone().shrink((x, y), (width, height)), |x, y| {
            let [red, green, blue] = picture[[pixel(y, height), pixel(x, width)]].map(|a| a as u8);
            RGBColor(red, green, blue)
        })?;
        let place = |[u, v]: [f64; 2]| {
            let [u, v] = [(u - from[0]) * scale, (v - from[1]) * scale].map(|a| a.round() as i32);
            (x + u, y + height as i32 - v)
        };
        // Frame the cell and the window
        let [a, b, _] = specimen.cell();
        area.draw(&Rectangle::new([place([0.0, b]), place([a, 0.0])], BLACK.mix(0.4)))?;
        if let Some([[left, right], [low, high]]) = window {
            let corners =
                [[left, low], [right, low], [right, high], [left, high], [left, low]].map(place);
            for (colour, width) in [(WHITE, 9), (FRAME, 5)] {
                area.draw(&PathElement::new(corners, colour.stroke_width(width)))?;
            }
        }
        // Tell elements and directions
        let mut elements: Vec<Element> = specimen.atoms().iter().map(|atom| atom.element).collect();
        elements.sort_unstable();
        elements.dedup();
        let (right, letters) = (x + width as i32 + 30, (TYPEFACE, LETTERS).into_text_style(area));
        for (k, element) in elements.iter().enumerate().take(10) {
            let middle = (right, y + 14 + 34 * k as i32);
            area.draw(&Circle::new(middle, 10, element_colour(*element).filled()))?;
            let name = if k < 9 { element.symbol() } else { "…" };
            area.draw_text(name, &letters, (middle.0 + 20, middle.1 - 15))?;
        }
        let corner = (right - 8, y + height as i32 - 4);
        for (name, end, text) in [("x", (60, 0), (68, -16)), ("y", (0, -60), (-8, -98))] {
            let at = |(u, v): (i32, i32)| (corner.0 + u, corner.1 + v);
            area.draw(&PathElement::new([corner, at(end)], BLACK.stroke_width(3)))?;
            area.draw_text(name, &letters, at(text))?;
        }
        Ok(())
    }
}

// Colours and numbers of a panel
/// Colours from the least value of an image to the largest.
const GREY: [u32; 2] = [0x000000, 0xffffff];

/// Decades of light in a pattern.
const DECADES: f64 = FLOOR as f64;
const FLOOR: i32 = 4;

/// The number at shares of both sides.
fn at(values: &Array2<f64>, shares: [f64; 2]) -> f64 {
    let (nx, ny) = values.dim();
    let place = |share: f64, n: usize| ((share * n as f64) as usize).min(n - 1);
    values[[place(shares[0], nx), place(shares[1], ny)]]
}
/// The colour of the scanned window.
const FRAME: RGBColor = RGBColor(220, 0, 120);

// Colours of a deflection
/// The colour of a deflection given in units of the largest one; Eq. [colour of a deflection](https://lenslet.github.io/lenslet/scan-panels.html#eq-colour-of-a-deflection).
fn colour_of([x, y]: [f64; 2]) -> RGBColor {
    let (size, angle) = (x.hypot(y).min(1.0), y.atan2(x));
    let brightness = |k: f64| {
        let share = 0.5 * size * (1.0 + (angle - 2.0 * PI * k / 3.0).cos());
        (255.0 * share).round() as u8
    };
    RGBColor(brightness(0.0), brightness(1.0), brightness(2.0))
}

// Wheel of directions
impl Panel {
    /// Draws the wheel of directions, and how long the longest deflection is.
    fn draw_wheel<DB: DrawingBackend>(
        &self,
        area: &Area<DB>,
        (x, y): (i32, i32),
        largest: f64,
    ) -> Drawn<DB> {
        const ACROSS: u32 = 110;
        let wheel = area.clone().shrink((x, y), (ACROSS, ACROSS));
        paint_colours(&wheel, |x, y| {
            let place = [2.0 * x - 1.0, 2.0 * y - 1.0];
            if place[0].hypot(place[1]) < 1.0 { colour_of(place) } else { WHITE }
        })?;
        let text = format!("{} 1/Å", number(round_to_two(largest)));
        let letters = (TYPEFACE, LETTERS).into_text_style(area);
        area.draw_text("deflection up to", &letters, (x - 14, y + ACROSS as i32 + 12))?;
        area.draw_text(&text, &letters, (x - 14, y + ACROSS as i32 + 48))
    }
}
/// A number with two digits that count.
fn round_to_two(x: f64) -> f64 {
    let power = 10f64.powf(x.abs().max(1e-300).log10().floor() - 1.0);
    (x / power).round() * power
}

// Columns of a crystal as discs
/// The columns of a specimen on so many pixels, row by row from low y.
fn discs(
    specimen: &Specimen,
    from: [f64; 2],
    scale: f64,
    [width, height]: [u32; 2],
) -> Array2<[f64; 3]> {
    let mut picture = Array2::from_elem((height as usize, width as usize), [255.0; 3]);
    for column in specimen.columns() {
        let place = [0, 1].map(|k| (column.place[k] - from[k]) * scale);
        let radius = (radius_of(column.element) * scale).max(1.2);
        let RGBColor(red, green, blue) = element_colour(column.element);
        let ink = [red, green, blue].map(f64::from);
        let reach = |k: usize, pixels: u32| {
            let end = |x: f64| x.clamp(0.0, f64::from(pixels)) as usize;
            end(place[k] - radius - 1.0)..end(place[k] + radius + 2.0)
        };
        let around = s![reach(1, height), reach(0, width)];
        let corner = [reach(0, width).start, reach(1, height).start];
        // Paint one disc
        for ((j, i), pixel) in picture.slice_mut(around).indexed_iter_mut() {
            let [x, y] = [(i + corner[0]) as f64 + 0.5, (j + corner[1]) as f64 + 0.5];
            let share = (radius + 0.5 - f64::hypot(x - place[0], y - place[1])).clamp(0.0, 1.0);
            pixel.iter_mut().zip(ink).for_each(|(a, ink)| *a += share * (ink - *a));
        }
    }
    picture
}

// Sizes and colours of elements
/// Half of the width of an element's disc \[Å\].
fn radius_of(element: Element) -> f64 {
    0.25 + 0.04 * (element.number() as f64).sqrt()
}

/// The colour of an element.
fn element_colour(element: Element) -> RGBColor {
    const KNOWN: [(&str, RGBColor); 12] = [
        ("H", RGBColor(190, 190, 190)),
        ("C", RGBColor(80, 80, 80)),
        ("N", RGBColor(48, 80, 248)),
        ("O", RGBColor(230, 30, 30)),
        ("Al", RGBColor(150, 130, 150)),
        ("Si", RGBColor(205, 150, 90)),
        ("P", RGBColor(255, 128, 0)),
        ("S", RGBColor(220, 200, 30)),
        ("Ti", RGBColor(110, 140, 160)),
        ("Fe", RGBColor(200, 90, 40)),
        ("Sr", RGBColor(40, 170, 60)),
        ("Au", RGBColor(230, 180, 20)),
    ];
    let known = KNOWN.iter().find(|(symbol, _)| *symbol == element.symbol());
    let hue = (element.number() as f64 * 137.508 / 360.0).fract();
    let (red, green, blue) = HSLColor(hue, 0.6, 0.45).rgb();
    known.map_or(RGBColor(red, green, blue), |(_, colour)| *colour)
}

// Picture of a scan
/// The lines of a panel's title, two where one is too long for the panel.
fn lines(title: &str) -> Vec<String> {
    const MOST: usize = 36;
    if title.chars().count() <= MOST {
        return vec![title.into()];
    }
    let cut = |separator: &str| {
        title
            .match_indices(separator)
            .map(|(at, _)| at + separator.len())
            .filter(|at| title[..*at].chars().count() <= MOST)
            .last()
    };
    let cut = cut(": ").or_else(|| cut(", "));
    cut.map_or_else(
        || vec![title.into()],
        |at| vec![title[..at].trim_end().into(), title[at..].into()],
    )
}

impl Scans<'_, '_> {
    /// The title of the picture, with the number of panels that it leaves out.
    fn title(&self) -> String {
        let more = if self.more > 0 {
            format!("; {} more are in the file", self.more)
        } else {
            String::new()
        };
        format!("{}{more}", self.picture.title)
    }
}

impl Picture for Scans<'_, '_> {
    fn size(&self) -> (u32, u32) {
        let rows = self.panels.len().div_ceil(self.columns());
        let (left, bottom) = self.corner(rows * self.columns());
        let width = (left + self.columns() as i32 * (SIDE + BAR + 44)) as u32;
        (width.max(title_width(&self.title())), bottom as u32 - 80)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.draw_text(&self.title(), &(TYPEFACE, TITLE).into_text_style(area), (20, 24))?;
        (0..self.panels.len()).try_for_each(|k| self.draw_panel(area, k))
    }
}

// Tests of pictures of scans
#[cfg(test)]
mod tests {
    use super::*;

    use crate::specimen::Atom;
    use ndarray::{Array3, Array4};
    use num_complex::Complex32;

    /// Two elements in a lopsided cell, heavy ones at low x.
    fn specimen() -> Specimen {
        let atom = |symbol, x, y| Atom {
            element: Element::of_symbol(symbol).unwrap(),
            position: [x, y, 1.0],
            occupancy: 1.0,
            displacement: 0.0,
        };
        let atoms = vec![atom("Sr", 2.0, 3.0), atom("O", 10.0, 3.0), atom("O", 10.0, 3.0)];
        Specimen::new([16.0, 8.0, 2.0], atoms).unwrap()
    }

    fn scanned() -> Vec<Coordinate> {
        let x = Coordinate::navigation("x", "Å", 4.0, 1.5).unwrap();
        vec![x, Coordinate::navigation("y", "Å", 2.0, 1.0).unwrap()]
    }

    fn with(axes: Vec<Coordinate>) -> Vec<Coordinate> {
        scanned().into_iter().chain(axes).collect()
    }

    // Variables of all kinds to be drawn
    fn data(annulus: bool) -> DataSet<'static> {
        let mut data = DataSet::default();
        let mut add =
            |variable: Result<Variable<'static>, Error>| data.insert(variable.unwrap()).unwrap();
        let q = |name| Coordinate::signal(name, "1/Å", -0.5, 0.1).unwrap();
        if annulus {
            let rising = Array2::from_shape_fn((6, 4), |(i, _)| i as f32);
            add(Variable::new("annulus_0", rising.clone(), scanned()));
            add(Variable::new("annulus_0_2", rising, scanned()));
        }
        let angles = || with(vec![Coordinate::signal("angle", "mrad", 5.0, 10.0).unwrap()]);
        add(Variable::new("annular", Array3::<f32>::zeros((6, 4, 9)), angles()));
        add(Variable::new("standard_error", Array3::<f32>::zeros((6, 4, 9)), angles()));
        let sectors = with(vec![Coordinate::signal("sector", "", 0.0, 1.0).unwrap()]);
        add(Variable::new("segmented_1", Array3::<f64>::ones((6, 4, 3)), sectors));
        let field = Array3::from_shape_fn((6, 4, 2), |(.., axis)| [0.0, -0.25][axis]);
        let axis = with(vec![Coordinate::labelled("axis", &["x", "y"]).unwrap()]);
        add(Variable::new("centre_of_mass", field, axis));
        let light =
            Array4::from_shape_fn((6, 4, 11, 7), |(_, _, i, j)| f32::from(i == 9 && j == 3));
        add(Variable::new("four_d", light, with(vec![q("q_x"), q("q_y")])));
        let wave = Array2::from_elem((6, 4), Complex32::I);
        add(Variable::new("wave", wave, scanned()));
        data
    }

    fn picture<'a, 's>(specimen: &'a Specimen, data: &'a DataSet<'s>) -> ScanPicture<'a, 's> {
        let notes = [("annulus_0", "60–90 mrad"), ("annulus_00", "no")];
        let notes = notes.map(|(name, note)| (name.into(), note.into())).into();
        ScanPicture {
            title: "lopsided".into(),
            specimen,
            data,
            semi_angle: 20.0,
            notes,
            counted: false,
        }
    }

    // Check what is drawn of variables
    #[test]
    fn signals_are_drawn_by_their_axes() {
        let specimen = specimen();
        let text = |data: &DataSet<'_>| {
            let drawn = plot_scan(&picture(&specimen, data), PictureFormat::Svg).unwrap();
            String::from_utf8(drawn).unwrap()
        };
        let [with, without] = [true, false].map(|annulus| text(&data(annulus)));
        let all = [
            "lopsided",
            "annulus_0: 60–90 mrad",
            "annulus_0_2: 60–90 mrad",
            "segmented_1, sector 2",
            "centre_of_mass",
            "0.25 1/Å",
            "deflection up to",
            "share of the beam",
            "share, floor 10⁻⁴ of peak",
            "four_d (mean)",
            "10⁻²",
            "columns of atoms",
            "Sr",
            "2 Å",
        ];
        for word in all {
            assert!(with.contains(&format!(">\n{word}\n<")), "{word}");
        }
        for word in ["standard_error", "wave", "annular", "sector 3", "NaN", "more are"] {
            assert!(!with.contains(word), "{word}");
        }
        // Rings are for those who have no annulus; the last group has the ring at 85 mrad
        for word in ["annular, 0–20 mrad", "annular, 40–80 mrad", "annular, 80–90 mrad"] {
            assert!(without.contains(word), "{word}");
        }
        let refused = |data: &DataSet<'_>, semi_angle| {
            let bad = ScanPicture { semi_angle, ..picture(&specimen, data) };
            plot_scan(&bad, PictureFormat::Png).unwrap_err().to_string()
        };
        assert!(refused(&DataSet::default(), 1.0).starts_with("signals"));
        assert!(refused(&data(true), f64::NAN).starts_with("semi_angle"));
    }

    #[test]
    fn too_many_images_are_left_to_the_file() {
        let mut data = DataSet::default();
        for k in 0..MOST + 2 {
            let image = Array2::<f32>::zeros((1, 3));
            data.insert(Variable::new(&format!("image_{k}"), image, scanned()).unwrap()).unwrap();
        }
        let specimen = specimen();
        let drawn = plot_scan(&picture(&specimen, &data), PictureFormat::Svg).unwrap();
        assert!(String::from_utf8(drawn).unwrap().contains("lopsided; 2 more are in the file"));
    }

    // Check where things are drawn
    #[test]
    fn x_runs_to_the_right_and_y_upwards() {
        let (specimen, mut data) = (specimen(), DataSet::default());
        for (axis, name) in ["along_x", "along_y"].into_iter().enumerate() {
            let image = Array2::from_shape_fn((6, 4), |(i, j)| [i, j][axis] as f32);
            data.insert(Variable::new(name, image, scanned()).unwrap()).unwrap();
        }
        let scan = picture(&specimen, &data);
        let png = plot_scan(&scan, PictureFormat::Png).unwrap();
        let drawn = image::load_from_memory(&png).unwrap().into_rgb8();
        let laid_out = Scans::new(&scan).unwrap();
        let pixel = |k: usize, [u, v]: [f64; 2]| {
            let ((x, y), [width, height]) = (laid_out.corner(k), laid_out.panels[k].pixels());
            let (u, v) = (u * f64::from(width), (1.0 - v) * f64::from(height));
            drawn.get_pixel((x + u as i32) as u32, (y + v as i32) as u32).0
        };
        assert_eq!(laid_out.panels[1].pixels(), [400, 178]); // 9 Å and 4 Å
        assert_eq!(pixel(1, [0.05, 0.9]), [0; 3]);
        assert_eq!(pixel(1, [0.95, 0.1]), [255; 3]);
        assert_eq!(pixel(2, [0.9, 0.05]), [0; 3]);
        assert_eq!(pixel(2, [0.1, 0.95]), [255; 3]);
        // Strontium is on the left, oxygen on the right, both below the middle; the frame is around the window.
        let RGBColor(red, green, blue) = element_colour(specimen.atoms()[0].element);
        assert_eq!(pixel(0, [2.0 / 16.0, 3.0 / 8.0]), [red, green, blue]);
        let [red, green, _] = pixel(0, [10.0 / 16.0, 3.0 / 8.0]);
        assert!(red > 200 && green < 50);
        assert_eq!(pixel(0, [2.0 / 16.0, 5.0 / 8.0]), [255; 3]);
        for [x, y] in [[4.0, 4.0], [13.0, 4.0], [8.0, 2.0], [8.0, 6.0]] {
            assert_eq!(pixel(0, [x / 16.0, y / 8.0]), [FRAME.0, FRAME.1, FRAME.2], "{x} {y}");
        }
    }

    // Check bars and colours
    #[test]
    fn bars_are_round_and_directions_have_colours() {
        for (x, round) in
            [(9.9, 5.0), (5.0, 5.0), (4.9, 2.0), (1.99e-3, 1e-3), (1e4, 1e4), (0.2, 0.2)]
        {
            assert!((round_below(x) / round - 1.0).abs() < 1e-12, "{x}: {}", round_below(x));
        }
        assert_eq!(round_to_two(0.01234), 0.012);
        let [right, up, still] = [[1.0, 0.0], [0.0, 0.5], [0.0, 0.0]].map(colour_of);
        assert_eq!((right, still), (RGBColor(255, 64, 64), BLACK));
        assert!(up.1 > up.0 && up.0 > up.2 && up.1 < 128, "{up:?}");
        let sum = |[x, y]: [f64; 2]| {
            let RGBColor(red, green, blue) = colour_of([x, y]);
            i32::from(red) + i32::from(green) + i32::from(blue)
        };
        assert!((0..20).all(|k| {
            (sum([(0.3 * f64::from(k)).cos(), (0.3 * f64::from(k)).sin()]) - 383).abs() < 3
        }));
    }
}
