// Tangled from book/src/reconstructor-pictures.md: edit there, or here and run cargo tangle stitch.
//! Pictures of reconstructors: the matrix as blocks of sensors, and the eigenvalues that it keeps and drops.

// Imports of pictures of reconstructors
use crate::error::{Error, Invalid, accept, finite};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::system::System;
use crate::plot::{
    Area, BAR, ColourScale, Drawn, Figure, LETTERS, Picture, PictureFormat, TITLE, TYPEFACE,
    paint_bar, paint_levels, power_of_ten, ticks, title_width,
};
#[cfg(feature = "factorise")]
use crate::tomography::reconstructor::{Actuator, ReconstructedQuantity, Reconstruction};
#[cfg(feature = "factorise")]
use ndarray::Axis;
use ndarray::{Array2, ArrayView2};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

// Draw a reconstructor as blocks
/// Draws the reconstructor (m, n) of one target of a system as blocks of sensors, under a title: rows are the x slopes of the truth
/// sensor, then its y slopes, from above; columns are measured slopes, star by star, x then y.
///
/// # Errors
/// `Invalid` where the matrix has not a column for each slope of the guide stars and an even number of rows, or no finite numbers.
///
/// ```
/// use lenslet::model::System;
/// use lenslet::plot::{ColourScale, PictureFormat, plot_reconstructor};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let matrix = ndarray::Array2::from_shape_fn((96, 232), |(i, j)| if i == j { 0.5 } else { 0.01 });
/// let picture = plot_reconstructor(&matrix.view(), &system, "by hand", ColourScale::Root, PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("star 2"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_reconstructor(
    matrix: &ArrayView2<f64>,
    system: &System,
    title: &str,
    scale: ColourScale,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    let (m, n) = matrix.dim();
    let expected = format!("an even number of rows, and {n} columns");
    accept(m % 2 == 0, "reconstructor", (m, n), &expected)?;
    MatrixBlocks::new(matrix, system, (title, scale), MatrixRows::truth(m))?.encode(format)
}

// Draw a matrix of a reconstruction
/// Draws one matrix of a reconstruction of a system, of a target or of mirrors by its number, as [`plot_reconstructor`] does. Rows of wavefronts
/// are the points of the grid; rows of strokes are the actuators, mirror by mirror.
///
/// # Errors
/// `Invalid` where there is no such matrix, or it belongs to another system or has no finite numbers.
#[cfg(feature = "factorise")]
pub fn plot_reconstruction(
    (found, number): (&Reconstruction, usize),
    system: &System,
    title: &str,
    scale: ColourScale,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    let expected = "the number of a matrix of the reconstruction";
    let all = found.reconstructor.as_ref().filter(|all| number < all.dim().0);
    let all = all.ok_or_else(|| Invalid::new("target", number, expected))?;
    let matrix = all.index_axis(Axis(0), number);
    let rows = match found.to {
        ReconstructedQuantity::Wavefront => MatrixRows::points(matrix.nrows()),
        ReconstructedQuantity::Actuators => MatrixRows::mirrors(&found.actuators),
        _ => return plot_reconstructor(&matrix, system, title, scale, format),
    };
    MatrixBlocks::new(&matrix, system, (title, scale), rows)?.encode(format)
}

// Names and borders of the rows of a matrix
/// Blocks of rows of a matrix.
struct MatrixRows {
    /// Where each block begins, and whether with a wide border; at last the number of all rows.
    borders: Vec<(usize, bool)>,
    /// Name of each block; empty for none.
    names: Vec<String>,
    /// Name of all rows, and unit of the entries.
    about: [&'static str; 2],
}

impl MatrixRows {
    /// The x and the y slopes of a truth sensor.
    fn truth(m: usize) -> Self {
        let borders = vec![(0, true), (m / 2, false), (m, true)];
        Self { borders, names: ["x", "y"].map(String::from).into(), about: ["truth", "rad/rad"] }
    }

    /// The points of a wavefront.
    #[cfg(feature = "factorise")]
    fn points(m: usize) -> Self {
        let borders = vec![(0, true), (m, true)];
        Self { borders, names: vec![String::new()], about: ["points", "m/rad"] }
    }

    /// The actuators of mirrors.
    #[cfg(feature = "factorise")]
    fn mirrors(actuators: &[Actuator]) -> Self {
        let is_first = |&k: &usize| k == 0 || actuators[k].mirror != actuators[k - 1].mirror;
        let starts: Vec<usize> = (0..actuators.len()).filter(is_first).collect();
        let names = starts.iter().map(|&k| actuators[k].mirror.to_string()).collect();
        let borders = starts.into_iter().chain([actuators.len()]).map(|row| (row, true)).collect();
        Self { borders, names, about: ["mirror", "m/rad"] }
    }
}

// Blocks of a reconstructor
struct MatrixBlocks<'a> {
    title: &'a str,
    scale: ColourScale,
    /// Rows and columns of the matrix.
    shape: [usize; 2],
    /// The matrix, or the largest entries of its parts.
    shown: Array2<f64>,
    /// The largest magnitude of an entry; never 0.
    largest: f64,
    /// The first column of each star, and the number of all.
    starts: Vec<usize>,
    rows: MatrixRows,
}

/// Points along the longer side of the matrix, at most.
const MOST: usize = 1400;

/// The least height of the bar of colours, pixels.
const BAR_HEIGHT: i32 = 360;

impl<'a> MatrixBlocks<'a> {
    // Settle the blocks of a matrix
    fn new(
        matrix: &ArrayView2<f64>,
        system: &System,
        (title, scale): (&'a str, ColourScale),
        rows: MatrixRows,
    ) -> Result<Self, Invalid> {
        let order = SlopeOrder::new(&system.valid_lenslets());
        let (m, n) = matrix.dim();
        let expected = format!("at least one row, and {} columns", order.len());
        let all = rows.borders.last().map(|(row, _)| *row);
        let fits = m > 0 && all == Some(m) && n == order.len();
        accept(fits, "reconstructor", (m, n), &expected)?;
        let largest = matrix.fold(0.0, |most: f64, entry| most.max(entry.abs()));
        let good = matrix.iter().all(|entry| entry.is_finite());
        accept(good, "reconstructor", f64::NAN, "finite numbers")?;
        let starts =
            (0..system.guide_stars().len()).map(|q| order.index(q, 0, 0)).chain([n]).collect();
        let shown = Self::reduce(matrix, [m.min(MOST), n.min(MOST)]);
        let largest = if largest > 0.0 { largest } else { 1.0 };
        Ok(Self { title, scale, shape: [m, n], shown, largest, starts, rows })
    }

    // Largest entries of a matrix by parts
    /// The entries of the largest magnitude in so many parts of rows and columns.
    fn reduce(matrix: &ArrayView2<f64>, parts: [usize; 2]) -> Array2<f64> {
        let (m, n) = matrix.dim();
        let mut shown = Array2::<f64>::zeros(parts);
        for ((i, j), &entry) in matrix.indexed_iter() {
            let most = &mut shown[[i * parts[0] / m, j * parts[1] / n]];
            if entry.abs() > most.abs() {
                *most = entry;
            }
        }
        shown
    }
}

// Lay out the blocks of sensors
impl MatrixBlocks<'_> {
    /// Pixels along rows and columns of the image: its height and its width.
    fn sides(&self) -> [i32; 2] {
        let longer = self.shape[0].max(self.shape[1]);
        let whole = (MOST / longer).max(1) * longer;
        let share = |entries: usize| (entries * whole.min(MOST)).div_ceil(longer);
        self.shape.map(|entries| share(entries).max(40) as i32)
    }

    /// The upper left corner of the image.
    const CORNER: (i32, i32) = (116, 140);

    /// The pixel at which a row or a column begins.
    fn place(&self, axis: usize, entry: usize) -> i32 {
        let corner = [Self::CORNER.1, Self::CORNER.0][axis];
        corner
            + (entry as f64 / self.shape[axis] as f64 * f64::from(self.sides()[axis])).round()
                as i32
    }

    /// The borders of the blocks along rows or columns, and whether a sensor begins there.
    fn borders(&self, axis: usize) -> Vec<(usize, bool)> {
        if axis == 0 {
            return self.rows.borders.clone();
        }
        let within = self
            .starts
            .windows(2)
            .flat_map(|pair| [(pair[0], true), ((pair[0] + pair[1]) / 2, false)]);
        within.chain([(self.shape[1], true)]).collect()
    }
}

// Draw the blocks of sensors
impl Picture for MatrixBlocks<'_> {
    fn size(&self) -> (u32, u32) {
        let [height, width] = self.sides();
        let right = (Self::CORNER.0 + width + 50 + BAR) as u32;
        (right.max(title_width(self.title)), (Self::CORNER.1 + height.max(BAR_HEIGHT) + 120) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let ([height, width], (left, top)) = (self.sides(), Self::CORNER);
        area.draw_text(self.title, &(TYPEFACE, TITLE).into_text_style(area), (20, 24))?;
        let image = area.clone().shrink((left, top), (width, height));
        let (rows, columns) = self.shown.dim();
        let entry =
            |share: f64, entries: usize| ((share * entries as f64) as usize).min(entries - 1);
        let level = |x: f64, y: f64| {
            let value = self.shown[[entry(1.0 - y, rows), entry(x, columns)]];
            self.scale.level(value / self.largest)
        };
        paint_levels(&image, level)?;
        // Draw borders between the blocks
        let line = |ends: [(i32, i32); 2], whole: bool| {
            let style = if whole { BLACK.stroke_width(3) } else { BLACK.mix(0.5).stroke_width(1) };
            area.draw(&PathElement::new(ends, style))
        };
        for (row, whole) in self.borders(0) {
            let y = self.place(0, row);
            line([(left, y), (left + width, y)], whole)?;
        }
        for (column, whole) in self.borders(1) {
            let x = self.place(1, column);
            line([(x, top), (x, top + height)], whole)?;
        }
        // Name sensors and their slopes
        let write = |words: &str, at: (i32, i32), letters: u32| {
            let style =
                (TYPEFACE, letters).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Center));
            area.draw_text(words, &style, at)
        };
        for (q, ends) in self.starts.windows(2).enumerate() {
            let [from, to] = [ends[0], ends[1]].map(|column| self.place(1, column));
            let name = if to - from > 110 { format!("star {q}") } else { q.to_string() };
            if to - from > 36 {
                write(&name, ((from + to) / 2, top - 28), LETTERS)?;
            }
        }
        for axis in [0, 1] {
            for (k, pair) in self.borders(axis).windows(2).enumerate() {
                let [from, to] = [pair[0].0, pair[1].0].map(|entry| self.place(axis, entry));
                let middle = (from + to) / 2;
                let at = [(left - 28, middle), (middle, top + height + 26)][axis];
                let of_slopes = ["x", "y"][k % 2];
                let name = if axis == 0 { &self.rows.names[k] } else { of_slopes };
                if to - from > 24 {
                    write(name, at, LETTERS)?;
                }
            }
        }
        let [rows, unit] = self.rows.about;
        write(rows, (left - 60, top - 28), LETTERS)?;
        // Paint the scale of the matrix
        let high = height.max(BAR_HEIGHT);
        let bar = area.clone().shrink((left + width + 30, top), (BAR, high));
        let power = self.largest.log10().floor();
        let name = match power as i32 {
            0 => format!("entry [{unit}]"),
            power => format!("entry [{} {unit}]", power_of_ten(power)),
        };
        let note = format!("Colours: {}. Columns: measured slopes.", self.scale.name());
        area.draw_text(&note, &(TYPEFACE, LETTERS).into_text_style(area), (20, top + high + 64))?;
        let gap = 2.0 * 36.0 / f64::from(high);
        paint_bar(&bar, ticks(self.scale, self.largest / 10f64.powf(power), gap), &name)
    }
}

// Draw a spectrum of measurements
/// Draws eigenvalues (ascending, rad²), of which the `kept` largest were kept, with the filter that divides them: a share of the
/// largest.
///
/// # Errors
/// `Invalid` where one is not finite.
///
/// ```
/// use lenslet::plot::{PictureFormat, plot_spectrum};
/// let picture = plot_spectrum(&[-1e-30, 1e-17, 1e-12, 2e-12], 2, 1e-4, "four", PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("2 dropped, 1 not positive"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_spectrum(
    values: &[f64],
    kept: usize,
    filter: f64,
    title: &str,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    values.iter().try_for_each(|value| finite("eigenvalue", *value).map(drop))?;
    spectrum(values, kept, filter).title(title).render(format)
}
/// Decades below the smallest kept eigenvalue that a picture shows at most.
const DECADES: i32 = 3;

fn spectrum(values: &[f64], kept: usize, filter: f64) -> Figure {
    let largest_first: Vec<(f64, f64)> =
        values.iter().rev().enumerate().map(|(k, value)| (k as f64 + 1.0, *value)).collect();
    let (above, below) = largest_first.split_at(kept.min(values.len()));
    let positive = |points: &[(f64, f64)]| {
        points.iter().map(|(_, value)| *value).filter(|value| *value > 0.0).fold(f64::NAN, f64::min)
    };
    let (most, least) = (values.iter().copied().fold(0.0, f64::max), positive(&largest_first));
    let floor = least.max(
        positive(if above.is_empty() { &largest_first } else { above }) * 10f64.powi(-DECADES),
    );
    let threshold = filter * most;
    // Name the eigenvalues that are dropped
    let negative = below.iter().filter(|(_, value)| *value <= 0.0).count();
    let hidden = below.iter().filter(|(_, value)| *value > 0.0 && *value < floor).count();
    let mut dropped = format!("{} dropped", below.len());
    if negative > 0 {
        dropped += &format!(", {negative} not positive");
    }
    if hidden > 0 {
        dropped += &format!(", {hidden} below the axis");
    }
    let figure = Figure::new().log_y().x_label("number of the eigenvalue, largest first");
    let figure = figure.y_label("eigenvalue [rad²]");
    let figure = if most > floor { figure.y_range(0.5 * floor, 2.0 * most) } else { figure };
    // Draw kept and dropped eigenvalues
    let shown = |points: &[(f64, f64)]| {
        thinned(points).into_iter().filter(|point| point.1 >= floor).collect::<Vec<_>>()
    };
    let figure = figure.points(&format!("{} kept", above.len()), shown(above));
    let figure = if below.is_empty() { figure } else { figure.points(&dropped, shown(below)) };
    // Draw the filter if it is on the axis
    match (threshold > 0.0, (0.5 * floor..=2.0 * most).contains(&threshold)) {
        (false, _) => figure,
        (true, true) => {
            let across = [(1.0, threshold), (values.len() as f64, threshold)];
            figure.dashes(&format!("filter: {threshold:.1e} rad²").replace('-', "−"), across)
        }
        (true, false) => {
            let name = format!("filter: {threshold:.1e} rad², below the axis").replace('-', "−");
            figure.dashes(&name, [])
        }
    }
}

// Thin the points of a spectrum
/// So few points that a picture is not heavy, the first and the last among them.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(600).max(1);
    let last = points.len().saturating_sub(1);
    let shown = points.iter().enumerate().filter(|(k, _)| k % step == 0 || *k == last);
    shown.map(|(_, point)| *point).collect()
}

// Tests of pictures of reconstructors
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Atmosphere, GuideStar, Layer, LensletArray, Source};

    // An entry is seen in its block
    fn system() -> System {
        let star = |lenslets| {
            let array = LensletArray::new(lenslets, 0.5).unwrap();
            GuideStar::at_rest(Source::star(0.0, 0.0).unwrap(), array, 1e-14).unwrap()
        };
        let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)]).unwrap();
        let builder = System::builder(air, LensletArray::new(3, 0.5).unwrap());
        builder.guide_stars([star(3), star(2)]).build().unwrap()
    }

    #[test]
    fn an_entry_is_seen_in_its_block() {
        let (system, mut matrix) = (system(), Array2::zeros((10, 26)));
        matrix[[7, 21]] = -0.25;
        let blocks = MatrixBlocks::new(
            &matrix.view(),
            &system,
            ("one", ColourScale::Linear),
            MatrixRows::truth(matrix.nrows()),
        )
        .unwrap();
        assert_eq!((&blocks.starts, blocks.largest), (&vec![0, 18, 26], 0.25));
        assert_eq!(blocks.borders(1)[1..4], [(9, false), (18, true), (22, false)]);
        let png = blocks.encode(PictureFormat::Png).unwrap();
        let picture = image::load_from_memory(&png).unwrap().into_rgb8();
        let colour = |row: usize, column: usize| {
            let middle =
                |axis, entry| (blocks.place(axis, entry) + blocks.place(axis, entry + 1)) / 2;
            picture.get_pixel(middle(1, column) as u32, middle(0, row) as u32).0
        };
        assert_eq!(
            (colour(7, 21), colour(7, 20), colour(6, 21)),
            ([5, 48, 97], [255; 3], [255; 3])
        );
        // A wide matrix is reduced, and keeps its largest entries.
        let mut wide = Array2::zeros((4, 9000));
        wide[[2, 4321]] = -3.0;
        let reduced = MatrixBlocks::reduce(&wide.view(), [4, 100]);
        assert!(reduced[[2, 48]] == -3.0 && reduced.sum() == -3.0);
        let other = Array2::zeros((10, 25));
        for bad in [other, matrix.mapv(|_| f64::NAN)] {
            assert!(
                plot_reconstructor(&bad.view(), &system, "", ColourScale::Root, PictureFormat::Svg)
                    .is_err()
            );
        }
    }

    // Spectra of any length are drawn
    #[test]
    fn spectra_of_any_length_are_drawn() {
        let values: Vec<f64> = (0..5000).map(|k| 1e-20 * f64::from(k - 3)).collect();
        let svg = plot_spectrum(&values, 4000, 0.2, "long", PictureFormat::Svg).unwrap();
        let text = String::from_utf8(svg).unwrap();
        assert!(text.contains("4000 kept") && text.contains("1000 dropped, 4 not positive"));
        assert!(crate::plot::tests::letters(text.as_bytes()).1 >= 11.0);
        let points: Vec<_> = (0..5000).map(|k| (f64::from(k), 1.0)).collect();
        let few = thinned(&points);
        assert!(few.len() < 700 && few[0] == points[0] && few.last() == points.last());
        assert!(thinned(&[]).is_empty() && thinned(&points[..3]) == points[..3]);
        for (values, kept) in [(vec![], 0), (vec![0.0, 0.0], 1), (vec![-1.0], 1), (vec![1.0], 0)] {
            assert!(
                plot_spectrum(&values, kept, 0.1, "odd", PictureFormat::Svg).is_ok(),
                "{values:?}"
            );
        }
    }

    #[test]
    fn eigenvalues_fill_their_panel() {
        let words = |values: &[f64], kept, filter| {
            let svg = plot_spectrum(values, kept, filter, "", PictureFormat::Svg).unwrap();
            crate::plot::tests::letters(&svg).0
        };
        let has = |words: &[String], word: &str| words.iter().any(|other| other == word);
        let values: Vec<f64> = (0..232).map(|k| 1e-14 * 10f64.powf(f64::from(k) / 90.0)).collect();
        let all = words(&values, 232, 1e-12);
        assert!(has(&all, "10⁻¹³") && !has(&all, "10⁻²⁰") && !has(&all, "0 dropped"), "{all:?}");
        assert!(all.iter().any(|word| word == "filter: 3.7e−24 rad², below the axis"), "{all:?}");
        assert!(has(&all, "eigenvalue [rad²]"));
        let rounding: Vec<f64> = [1e-31, 2e-30, 3e-16].into_iter().chain(values).collect();
        let some = words(&rounding, 232, 1e-5);
        assert!(has(&some, "3 dropped, 2 below the axis") && !has(&some, "10⁻³⁰"), "{some:?}");
        let filtered = words(&rounding, 200, 1e-2);
        assert!(
            filtered.iter().any(|word| word.starts_with("filter: 3.") && !word.contains("below"))
        );
    }
}
