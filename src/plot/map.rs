// Tangled from book/src/wavefront-maps.md: edit there, or here and run cargo tangle stitch.
//! Pictures of wavefronts: maps side by side with one scale of colours.

// Imports of maps
use crate::error::{Error, Invalid, positive};
use crate::plot::{
    Area, BAR, Drawn, LETTERS, Picture, PictureFormat, PlotAxis, SEQUENTIAL, STATIONS, Scale,
    TITLE, TYPEFACE, number, paint, paint_bar_of, title_width,
};
use ndarray::Array2;
use plotters::prelude::*;

// Wavefronts side by side
/// A wavefront to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct WavefrontMap {
    /// What stands above the map.
    pub title: String,
    /// Metres, (M, M), axis 0 along y; NaN where nothing is to be shown.
    pub values: Array2<f64>,
}

/// Draws wavefronts of one shape and grid `step` (m) side by side, up to three in a row, under a title.
///
/// # Errors
/// `Invalid` where there is no wavefront, their shapes differ, all values are NaN or one is infinite.
///
/// ```
/// use lenslet::plot::{*, PictureFormat};
/// let values = ndarray::Array2::from_shape_fn((9, 9), |(y, x)| 1e-8 * (x as f64 - y as f64));
/// let maps = [WavefrontMap { title: "a tilt".into(), values }];
/// let picture = plot_wavefronts(&maps, "made by hand", 0.5, PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("a tilt"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_wavefronts(
    maps: &[WavefrontMap],
    title: &str,
    step: f64,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    Maps::new(maps, title, positive("step", step)?, true)?.encode(format)
}

/// Draws the rms errors \[m\] of wavefronts in the same way, on a sequential scale from zero.
///
/// # Errors
/// `Invalid` as for wavefronts, and where an error is negative.
///
/// ```
/// use lenslet::plot::{*, PictureFormat};
/// let maps = [WavefrontMap { title: "target 0".into(), values: ndarray::Array2::from_elem((9, 9), 1e-7) }];
/// let picture = plot_wavefront_errors(&maps, "made by hand", 0.5, PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("rms error of the wavefront [nm]"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_wavefront_errors(
    maps: &[WavefrontMap],
    title: &str,
    step: f64,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    Maps::new(maps, title, positive("step", step)?, false)?.encode(format)
}

// Take the piston away
/// The mean over the points that are numbers, taken away; and the root mean square of what is left, metres.
pub fn without_piston(values: &Array2<f64>) -> (Array2<f64>, f64) {
    let numbers = || values.iter().filter(|value| !value.is_nan());
    let count = numbers().count().max(1) as f64;
    let mean = numbers().sum::<f64>() / count;
    let square = numbers().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (values - mean, square.sqrt())
}

// Lay out the maps
struct Maps<'a> {
    maps: &'a [WavefrontMap],
    title: &'a str,
    step: f64,
    /// The largest magnitude, metres; never 0.
    largest: f64,
    /// Whether the values have a sign: wavefronts, rather than their errors.
    signed: bool,
}

/// Pixels along the side of a map, about.
const SIDE: usize = 400;

impl<'a> Maps<'a> {
    fn new(
        maps: &'a [WavefrontMap],
        title: &'a str,
        step: f64,
        signed: bool,
    ) -> Result<Self, Invalid> {
        let first = maps.first().ok_or_else(|| Invalid::new("wavefronts", 0, "at least one"))?;
        let values = || maps.iter().flat_map(|map| &map.values).filter(|value| !value.is_nan());
        let largest = values().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        // Refuse maps that cannot be drawn
        let shape = first.values.dim();
        if shape.0 != shape.1 || shape.0 == 0 || maps.iter().any(|map| map.values.dim() != shape) {
            let shapes: Vec<_> = maps.iter().map(|map| map.values.dim()).collect();
            return Err(Invalid::new("wavefronts", format!("{shapes:?}"), "squares of one size"));
        }
        if !largest.is_finite() || values().next().is_none() {
            return Err(Invalid::new("wavefront", largest, "finite numbers, and at least one"));
        }
        if let Some(value) = values().find(|value| !signed && **value < 0.0) {
            return Err(Invalid::new(
                "error of the wavefront",
                value,
                "an rms, which is not negative",
            ));
        }
        Ok(Self { maps, title, step, largest: if largest > 0.0 { largest } else { 1e-9 }, signed })
    }

    // Place the maps in rows
    /// Points across, and pixels along the side of a map, a multiple of them.
    fn size_of_map(&self) -> (usize, i32) {
        let points = self.maps[0].values.nrows();
        (points, (points * (SIDE / points).max(1)) as i32)
    }

    fn columns(&self) -> usize {
        self.maps.len().min(3)
    }

    /// Upper left corner of map `k`, or of what follows behind the last column or row.
    fn corner(&self, column: usize, row: usize) -> (i32, i32) {
        let side = self.size_of_map().1;
        (124 + column as i32 * (side + 40), 140 + row as i32 * (side + 80))
    }
}

// Draw maps and their scale
impl Maps<'_> {
    fn draw_map<DB: DrawingBackend>(&self, area: &Area<DB>, k: usize) -> Drawn<DB> {
        let (column, row) = (k % self.columns(), k / self.columns());
        let ((x, y), (points, side)) = (self.corner(column, row), self.size_of_map());
        let WavefrontMap { title, values } = &self.maps[k];
        area.draw_text(title, &(TYPEFACE, LETTERS).into_text_style(area), (x, y - 38))?;
        area.draw(&Rectangle::new([(x - 1, y - 1), (x + side, y + side)], BLACK))?;
        // Put axes around a map
        let left = if column == 0 { 110 } else { 0 };
        let below = if k + self.columns() >= self.maps.len() { 90 } else { 0 };
        let around = area.clone().shrink((x - left, y), (side + left, side + below));
        let reach = 0.5 * points as f64 * self.step;
        let axis = || PlotAxis::default().scale(&(-reach..reach), 5);
        let mut builder = ChartBuilder::on(&around);
        builder.x_label_area_size(below).y_label_area_size(left);
        let mut chart = builder.build_cartesian_2d(axis(), axis())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, LETTERS));
        mesh.x_desc("x [m]").y_desc("y [m]").draw()?;
        // Colour the map of values
        let place = |share: f64| ((share * points as f64) as usize).min(points - 1);
        let level = |x: f64, y: f64| {
            let share = values[[place(y), place(x)]] / self.largest;
            if self.signed { 0.5 + 0.5 * share } else { share }
        };
        paint(&chart.plotting_area().strip_coord_spec(), self.colours(), level)
    }

    // Draw the scale of the maps
    fn colours(&self) -> &'static [u32] {
        if self.signed { &STATIONS } else { &SEQUENTIAL }
    }

    fn draw_scale<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let nanometres = 1e9 * self.largest;
        let power = 10f64.powf(nanometres.log10().floor());
        let step = [1.0, 2.0, 5.0].map(|step| step * power / 2.0);
        let step = step.into_iter().find(|step| nanometres / step < 5.0).unwrap_or(nanometres);
        let (count, signed) = ((nanometres / step * (1.0 + 1e-9)) as i32, self.signed);
        let tick = |k: i32| (f64::from(k) * step, number(f64::from(k) * step));
        let ticks = (if signed { -count } else { 0 }..=count).map(tick).collect();
        let least = if signed { -nanometres } else { 0.0 };
        let label = if signed { "wavefront [nm]" } else { "rms error of the wavefront [nm]" };
        paint_bar_of(area, self.colours(), Scale { ends: least..nanometres, ticks }, label)
    }
}

// Picture of all maps
impl Picture for Maps<'_> {
    fn size(&self) -> (u32, u32) {
        let rows = self.maps.len().div_ceil(self.columns());
        let (width, height) = self.corner(self.columns(), rows);
        (((width + BAR) as u32).max(title_width(self.title)), height as u32 + 40)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.draw_text(self.title, &(TYPEFACE, TITLE).into_text_style(area), (20, 24))?;
        for k in 0..self.maps.len() {
            self.draw_map(area, k)?;
        }
        let (right, _) = self.corner(self.columns(), 0);
        let side = self.size_of_map().1;
        self.draw_scale(&area.clone().shrink((right - 20, 140), (BAR, side)))
    }
}

// Tests of the maps
#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::DARK;

    #[test]
    fn maps_are_drawn_or_refused() {
        let tilt = |size: f64| WavefrontMap {
            title: format!("tilt {size:e}"),
            values: Array2::from_shape_fn((7, 7), |(y, x)| size * (x as f64 - 0.5 * y as f64)),
        };
        let maps: Vec<_> = [1e-8, 3e-8, 2e-9, 0.0, 1e-7].map(tilt).into();
        let svg = plot_wavefronts(&maps, "five tilts", 0.25, PictureFormat::Svg).unwrap();
        let text = String::from_utf8(svg).unwrap();
        assert!(maps.iter().all(|map| text.contains(&map.title)));
        let (words, least) = crate::plot::tests::letters(text.as_bytes());
        let has = |word: &str| words.iter().any(|other| other == word);
        assert!(has("five tilts") && has("wavefront [nm]") && has("−500") && least >= 11.0);
        assert!(
            plot_wavefronts(&maps[3..4], "", 0.25, PictureFormat::Png)
                .unwrap()
                .starts_with(b"\x89PNG")
        );
        // Refuse wavefronts without a map
        let mut bad = tilt(1e-8);
        bad.values[[2, 3]] = f64::INFINITY;
        assert!(plot_wavefronts(&[bad.clone()], "", 0.25, PictureFormat::Svg).is_err());
        bad.values.fill(f64::NAN);
        assert!(plot_wavefronts(&[bad], "", 0.25, PictureFormat::Svg).is_err());
        assert!(plot_wavefronts(&[], "", 0.25, PictureFormat::Svg).is_err());
        assert!(plot_wavefronts(&maps, "", f64::NAN, PictureFormat::Svg).is_err());
    }

    // Paint dark points grey
    /// The colour in the middle of each point of a map of 2 × 2 points, by its column and row.
    fn points_of(laid_out: &Maps) -> impl Fn(i32, i32) -> [u8; 3] {
        let png = laid_out.encode(PictureFormat::Png).unwrap();
        let picture = image::load_from_memory(&png).unwrap().into_rgb8();
        let ((x, y), side) = (laid_out.corner(0, 0), laid_out.size_of_map().1);
        move |i, j| {
            let place = [x + (2 * i + 1) * side / 4, y + (3 - 2 * j) * side / 4];
            picture.get_pixel(place[0] as u32, place[1] as u32).0
        }
    }

    #[test]
    fn dark_points_are_grey_and_flat_ones_white() {
        let values = ndarray::arr2(&[[0.0, f64::NAN], [1e-8, -1e-8]]);
        let maps = [WavefrontMap { title: String::new(), values }];
        let laid_out = Maps::new(&maps, "", 1.0, true).unwrap();
        let at = points_of(&laid_out);
        assert_eq!((at(0, 0), at(1, 0)), ([255; 3], [DARK.0, DARK.1, DARK.2]));
        assert!(at(0, 1)[0] > at(0, 1)[2] && at(1, 1)[0] < at(1, 1)[2]);
    }

    // Check that errors begin at zero
    #[test]
    fn errors_have_a_scale_from_zero() {
        let of = |values| [WavefrontMap { title: "target 0".into(), values }];
        let maps = of(ndarray::arr2(&[[0.0, f64::NAN], [0.5e-7, 1e-7]]));
        let svg = plot_wavefront_errors(&maps, "errors", 1.0, PictureFormat::Svg).unwrap();
        let (words, least) = crate::plot::tests::letters(&svg);
        assert!(words.contains(&"rms error of the wavefront [nm]".to_string()), "{words:?}");
        assert!(words.contains(&"100".to_string()) && words.contains(&"0".to_string()));
        let after =
            words.iter().position(|word| word == "rms error of the wavefront [nm]").unwrap();
        let bar = &words[after..];
        assert!(!bar.iter().any(|word| word.starts_with('−')) && least >= 11.0, "{bar:?}");
        let laid_out = Maps::new(&maps, "errors", 1.0, false).unwrap();
        let at = points_of(&laid_out);
        let dark = [DARK.0, DARK.1, DARK.2];
        let [low, middle, high] = [[0, 0], [0, 1], [1, 1]].map(|[i, j]| at(i, j));
        assert_eq!((low, at(1, 0), high), ([0x44, 0x01, 0x54], dark, [0xfd, 0xe7, 0x25]));
        let sum = |[r, g, b]: [u8; 3]| u32::from(r) + u32::from(g) + u32::from(b);
        assert!(sum(low) < sum(middle) && sum(middle) < sum(high), "{middle:?}");
        let negative = of(ndarray::arr2(&[[0.0, -1e-9], [0.0, 1e-7]]));
        let refused = plot_wavefront_errors(&negative, "", 1.0, PictureFormat::Svg).unwrap_err();
        assert!(refused.to_string().starts_with("error of the wavefront = "), "{refused}");
        let flat = of(Array2::zeros((2, 2)));
        assert!(plot_wavefront_errors(&flat, "", 1.0, PictureFormat::Png).is_ok());
    }

    // Leave dark points out of the piston
    #[test]
    fn piston_is_that_of_the_lit_points() {
        let values = ndarray::arr2(&[[1.0, f64::NAN], [4.0, 7.0]]);
        let (flat, rms) = without_piston(&values);
        assert_eq!((flat[[0, 0]], flat[[1, 1]], rms), (-3.0, 3.0, 6f64.sqrt()));
        assert!(flat[[0, 1]].is_nan());
    }
}
