// Tangled from book/src/noise-maps.md: edit there, or here and run cargo tangle stitch.
//! Pictures of noise: an ellipse of one standard deviation for each lenslet, over the pupil.

// Imports of pictures of noise
use crate::error::{Error, Invalid, accept};
use crate::model::noise::GuideStar;
use crate::model::system::System;
use crate::plot::{
    Area, Drawn, LETTERS, Picture, PictureFormat, PlotAxis, TITLE, TYPEFACE, colour, number,
    title_width,
};
use crate::units::ARCSEC;
use ndarray::Array2;
use plotters::prelude::*;
use std::f64::consts::PI;

// Noise over the pupil
/// Draws the noise of a guide star's slopes over the pupil: an ellipse of one standard deviation around each `valid` lenslet,
/// (N, N), axis 0 along y, and a disc at the `launch` \[m\] of its laser, if there is one.
///
/// # Errors
/// `Invalid` where the valid lenslets are not those of the noise, or none has any noise.
///
/// ```
/// use lenslet::model::{GuideStar, LensletArray, Source, Validity};
/// use lenslet::{plot::{PictureFormat, plot_noise}, units::ARCSEC};
/// let array = LensletArray::new(4, 0.5)?;
/// let star = GuideStar::at_rest(Source::star(0.0, 0.0)?, array, (0.02 * ARCSEC).powi(2))?;
/// let valid = array.valid(None, Validity::default());
/// let picture = plot_noise(&star, &valid, None, "a small sensor", PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("half a lenslet = 20 mas rms"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_noise(
    star: &GuideStar,
    valid: &Array2<bool>,
    launch: Option<[f64; 2]>,
    title: &str,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    let panel = Ellipses::new(star, valid, launch, String::new())?;
    NoisePanels { title, panels: vec![panel] }.encode(format)
}
/// Draws the noise of all guide stars of a system that have any, side by side under a title.
///
/// # Errors
/// `Invalid` where no guide star has noise.
///
/// ```
/// use lenslet::model::System;
/// use lenslet::plot::{PictureFormat, plot_noise_of_stars};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let picture = plot_noise_of_stars(&system, "noise of the slopes", PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("half a lenslet = 20.63 mas rms"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_noise_of_stars(
    system: &System,
    title: &str,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    check_noise(system)?;
    let stars = system.guide_stars().iter().zip(system.valid_lenslets()).enumerate();
    let noisy = stars.filter(|(_, (star, _))| star.noise.mean() > 0.0);
    let panels = noisy
        .map(|(q, (star, valid))| Ellipses::new(star, &valid, None, format!("guide star {q}")));
    NoisePanels { title, panels: panels.collect::<Result<_, _>>()? }.encode(format)
}

/// Refuses a system without any noise.
pub(crate) fn check_noise(system: &System) -> Result<(), Invalid> {
    let noisy = system.guide_stars().iter().any(|star| star.noise.mean() > 0.0);
    accept(noisy, "noise", 0, "some noise of a guide star, for a picture").map(drop)
}

// Ellipse of one standard deviation
struct Ellipses<'a> {
    star: &'a GuideStar,
    lenslets: Vec<[usize; 2]>,
    launch: Option<[f64; 2]>,
    title: String,
    /// The largest standard deviation of a slope, rad.
    largest: f64,
}

impl<'a> Ellipses<'a> {
    // Find the largest noise of a sensor
    fn new(
        star: &'a GuideStar,
        valid: &Array2<bool>,
        launch: Option<[f64; 2]>,
        title: String,
    ) -> Result<Self, Invalid> {
        let n = star.sensor.array.lenslets();
        let shape = || Invalid::new("valid", format!("{:?}", valid.dim()), format!("({n}, {n})"));
        (valid.dim() == (n, n)).then_some(()).ok_or_else(shape)?;
        let used = valid.indexed_iter().filter(|(_, used)| **used);
        let lenslets: Vec<_> = used.map(|((j, i), _)| [j, i]).collect();
        star.noise.check_lenslets(|| lenslets.len())?;
        let variances = (0..lenslets.len()).map(|k| star.noise.block(k));
        let largest = variances.fold(0.0, |most: f64, [xx, _, yy]| most.max(xx).max(yy)).sqrt();
        let without = || Invalid::new("noise", largest, "some noise of a valid lenslet");
        (largest > 0.0).then_some(()).ok_or_else(without)?;
        Ok(Self { star, lenslets, launch, title, largest })
    }

    // Points of an ellipse on the pupil
    /// The outline \[m\] of the ellipse of valid lenslet `k`, [noise ellipse](https://lenslet.github.io/lenslet/noise-maps.html#eq-noise-ellipse).
    fn outline(&self, k: usize) -> Vec<(f64, f64)> {
        let sensor = &self.star.sensor;
        let (centre, axes, [a, b, c]) =
            (sensor.centre(self.lenslets[k]), sensor.axes(), self.star.noise.factor(k));
        let scale = 0.5 * sensor.side() / self.largest;
        let point = |step: i32| {
            let (sin, cos) = (f64::from(step) * PI / 12.0).sin_cos();
            let noise = [a * cos, b * cos + c * sin];
            let [x, y] =
                [0, 1].map(|m| centre[m] + scale * (noise[0] * axes[0][m] + noise[1] * axes[1][m]));
            (x, y)
        };
        (0..=24).map(point).collect()
    }
}

// Draw the ellipses of noise
impl Ellipses<'_> {
    /// Draws the panel of a star on an area of its own.
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let points = || self.star.sensor.outline().into_iter().chain(self.launch);
        let end = |axis: usize, sign: f64| {
            sign * points().map(|point| sign * point[axis]).fold(f64::NEG_INFINITY, f64::max)
        };
        let [x, y] = [0, 1].map(|axis| [end(axis, -1.0), end(axis, 1.0)]);
        let half = 0.53 * (x[1] - x[0]).max(y[1] - y[0]);
        let [x, y] = [x, y].map(|[low, high]| 0.5 * (low + high));
        // Set up the panel of noise
        let side = area.dim_in_pixel().0;
        let axis = |middle: f64| PlotAxis::default().scale(&(middle - half..middle + half), 7);
        let panel = area.clone().shrink((0, 0), (side, side));
        let mut builder = ChartBuilder::on(&panel);
        builder.margin(16).x_label_area_size(100).y_label_area_size(120);
        builder.caption(&self.title, (TYPEFACE, LETTERS + 2));
        let mut chart = builder.build_cartesian_2d(axis(x), axis(y))?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().label_style((TYPEFACE, LETTERS)).axis_desc_style((TYPEFACE, LETTERS));
        mesh.set_all_tick_mark_size(8).x_desc("x [m]").y_desc("y [m]").draw()?;
        let line = colour(0x0072b2).stroke_width(3);
        let outlines = (0..self.lenslets.len()).map(|k| self.outline(k));
        chart.draw_series(outlines.map(|outline| PathElement::new(outline, line)))?;
        let disc = |[x, y]: [f64; 2]| Circle::new((x, y), 12, colour(0xd55e00).filled());
        chart.draw_series(self.launch.map(disc))?;
        // Draw the key of the noise
        let letters = (TYPEFACE, LETTERS).into_text_style(area);
        let scale = number((1e3 * self.largest / ARCSEC * 100.0).round() / 100.0);
        let below = side as i32 + 16;
        let ring = |k: i32| {
            let (sin, cos) = (f64::from(k) * PI / 12.0).sin_cos();
            (60 + (22.0 * cos).round() as i32, below + (13.0 * sin).round() as i32)
        };
        area.draw(&PathElement::new((0..=24).map(ring).collect::<Vec<_>>(), line))?;
        let words = format!("one standard deviation; half a lenslet = {scale} mas rms");
        area.draw_text(&words, &letters, (96, below - 16))?;
        if self.launch.is_some() {
            area.draw(&Circle::new((60, below + 40), 12, colour(0xd55e00).filled()))?;
            area.draw_text("launch telescope of the laser", &letters, (96, below + 24))?;
        }
        Ok(())
    }
}

/// Panels of stars side by side under one title.
struct NoisePanels<'a> {
    title: &'a str,
    panels: Vec<Ellipses<'a>>,
}

impl NoisePanels<'_> {
    /// Columns, and pixels along the side of a panel.
    fn layout(&self) -> (usize, i32) {
        match self.panels.len() {
            1 => (1, 1440),
            2..=4 => (2, 800),
            _ => (3, 800),
        }
    }
}

/// Height of the title, and that of the key below each panel.
const ABOVE: i32 = 80;
const KEY: i32 = 90;

impl Picture for NoisePanels<'_> {
    fn size(&self) -> (u32, u32) {
        let (columns, side) = self.layout();
        let rows = self.panels.len().div_ceil(columns) as i32;
        let (width, height) = (columns as i32 * side, ABOVE + rows * (side + KEY));
        ((width as u32).max(title_width(self.title)), height as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.draw_text(self.title, &(TYPEFACE, TITLE).into_text_style(area), (20, 24))?;
        let (columns, side) = self.layout();
        self.panels.iter().enumerate().try_for_each(|(k, panel)| {
            let (column, row) = ((k % columns) as i32, (k / columns) as i32);
            let corner = (column * side, ABOVE + row * (side + KEY));
            panel.draw(&area.clone().shrink(corner, (side, side + KEY)))
        })
    }
}

// Tests of pictures of noise
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LensletArray, Noise, Sensor, Source};

    fn star(noise: Noise) -> GuideStar {
        let array = LensletArray::new(2, 1.0).unwrap();
        let rest = Sensor::at_rest(Source::star(0.0, 0.0).unwrap(), array);
        GuideStar::new(Sensor { rotation: 0.5, shift: [0.25, 0.0], ..rest }, noise)
    }

    #[test]
    fn ellipses_reach_as_far_as_their_noise() {
        let blocks = [[[4.0, 1.2], [1.2, 1.0]], [[0.0, 0.0], [0.0, 0.5]]];
        let star = star(Noise::blocks(&blocks).unwrap());
        let valid = ndarray::arr2(&[[false, true], [true, false]]);
        let ellipses = Ellipses::new(&star, &valid, None, String::new()).unwrap();
        assert_eq!((ellipses.lenslets.clone(), ellipses.largest), (vec![[0, 1], [1, 0]], 2.0));
        let (s, c) = 0.5f64.sin_cos();
        let centre = star.sensor.centre([0, 1]);
        let along = |[u, v]: [f64; 2]| {
            let away = |(x, y): (f64, f64)| u * (x - centre[0]) + v * (y - centre[1]);
            ellipses.outline(0).into_iter().map(away).fold(0.0, f64::max) / 0.25
        };
        let x = (4.0 * c * c - 2.4 * s * c + s * s).sqrt();
        let y = (4.0 * s * s + 2.4 * s * c + c * c).sqrt();
        assert!((along([1.0, 0.0]) / x - 1.0).abs() < 9e-3);
        assert!((along([0.0, 1.0]) / y - 1.0).abs() < 9e-3);
    }

    // Refuse noise that has no picture
    #[test]
    fn noise_of_other_lenslets_is_refused() {
        let draw = |noise: Noise, valid: &Array2<bool>, format| {
            plot_noise(&star(noise), valid, Some([-3.0, 1.0]), "two", format)
        };
        let all = Array2::from_elem((2, 2), true);
        let noise = || Noise::lenslets(vec![1e-14, 2e-14, 3e-14, 4e-14]).unwrap();
        assert!(draw(noise(), &all, PictureFormat::Png).unwrap().starts_with(b"\x89PNG"));
        let wide = Array2::from_elem((2, 3), true);
        let none = Noise::uniform(0.0).unwrap();
        let few = Noise::lenslets(vec![1e-14]).unwrap();
        let svg = draw(noise(), &all, PictureFormat::Svg).unwrap();
        let (words, least) = crate::plot::tests::letters(&svg);
        let has = |word: &str| words.iter().any(|other| other == word);
        assert!(has("two") && has("launch telescope of the laser") && least >= 11.0, "{words:?}");
        assert!(has("one standard deviation; half a lenslet = 41.25 mas rms"), "{words:?}");
        for (noise, valid, name) in
            [(noise(), &wide, "valid"), (none, &all, "noise"), (few, &all, "noise")]
        {
            let refused = draw(noise, valid, PictureFormat::Svg).unwrap_err().to_string();
            assert!(refused.starts_with(name), "{refused}");
        }
    }
}
