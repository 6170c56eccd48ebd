// Tangled from book/src/star-pictures.md: edit there, or here and run cargo tangle stitch.
//! Pictures of stars: images side by side, in the logarithm of their light.

// Imports of pictures of stars
use crate::error::{Error, Invalid, accept};
use crate::plot::{
    Area, BAR, Drawn, LETTERS, LIGHT, Picture, PictureFormat, PlotAxis, Scale, TITLE, TYPEFACE,
    paint, paint_bar_of, power_of_ten, title_width,
};
use crate::psf::PointSpread;
use crate::units::ARCSEC;
use plotters::prelude::*;

// Draw stars side by side
/// Draws images of stars side by side, each with its title, over so many `decades` of light; Eq. [level of light](https://lenslet.github.io/lenslet/star-pictures.html#eq-level-of-light).
///
/// # Errors
/// `Invalid` where there is no image, or the decades are not from 1 to 20.
///
/// ```
/// use lenslet::{psf::Aperture, model::Pupil, plot::{PictureFormat, plot_stars}};
/// let telescope = Aperture::across(&Pupil::new(8.0, 0.2)?, &[], 32)?.transfer(64)?;
/// let image = telescope.alone(1.65e-6)?.point_spread(2e-8, 41)?;
/// let picture = plot_stars(&[("perfect", &image)], "by hand", 4, PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("perfect"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_stars(
    images: &[(&str, &PointSpread)],
    title: &str,
    decades: u32,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    accept(!images.is_empty(), "images", images.len(), "at least one")?;
    accept((1..=20).contains(&decades), "decades", decades, "from 1 to 20")?;
    let dark = |image: &PointSpread| image.values.iter().any(|value| !value.is_finite());
    if images.iter().any(|(_, image)| image.values.is_empty() || dark(image)) {
        return Err(Invalid::new("images", "not finite", "finite numbers").into());
    }
    Stars { images, title, decades: f64::from(decades) }.encode(format)
}

// Lay out the stars
struct Stars<'a> {
    images: &'a [(&'a str, &'a PointSpread)],
    title: &'a str,
    decades: f64,
}

/// Pixels along the side of a panel.
const SIDE: i32 = 420;

impl Stars<'_> {
    fn columns(&self) -> usize {
        if self.images.len() > 4 { 3 } else { self.images.len().min(2) }
    }

    /// Upper left corner of a panel, or of what follows behind the last column or row.
    fn corner(column: usize, row: usize) -> (i32, i32) {
        (150 + column as i32 * (SIDE + 150), 140 + row as i32 * (SIDE + 150))
    }
}

// Draw a star with its axes
impl Stars<'_> {
    fn draw_star<DB: DrawingBackend>(&self, area: &Area<DB>, k: usize) -> Drawn<DB> {
        let (title, image) = self.images[k];
        let (x, y) = Self::corner(k % self.columns(), k / self.columns());
        area.draw_text(title, &(TYPEFACE, LETTERS).into_text_style(area), (x, y - 38))?;
        let around = area.clone().shrink((x - 130, y), (SIDE + 130, SIDE + 90));
        let (pixels, side) = (image.pixels(), image.pixel / ARCSEC);
        let first = -((pixels / 2) as f64 + 0.5) * side;
        let axis = || PlotAxis::default().scale(&(first..first + pixels as f64 * side), 5);
        let mut builder = ChartBuilder::on(&around);
        builder.x_label_area_size(90).y_label_area_size(130);
        let mut chart = builder.build_cartesian_2d(axis(), axis())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, LETTERS));
        mesh.x_desc("x [arcsec]").y_desc("y [arcsec]").draw()?;
        let place = |share: f64| ((share * pixels as f64) as usize).min(pixels - 1);
        let level = |x: f64, y: f64| {
            let light = image.values[[place(y), place(x)]].max(f64::MIN_POSITIVE);
            (1.0 + light.log10() / self.decades).clamp(0.0, 1.0)
        };
        paint(&chart.plotting_area().strip_coord_spec(), &LIGHT, level)
    }
}

// Picture of all stars
impl Picture for Stars<'_> {
    fn size(&self) -> (u32, u32) {
        let (width, height) =
            Self::corner(self.columns(), self.images.len().div_ceil(self.columns()));
        (((width - 110 + BAR) as u32).max(title_width(self.title)), height as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.draw_text(self.title, &(TYPEFACE, TITLE).into_text_style(area), (20, 24))?;
        for k in 0..self.images.len() {
            self.draw_star(area, k)?;
        }
        let (right, top) = Self::corner(self.columns(), 0);
        let bar = area.clone().shrink((right - 130, top), (BAR, SIDE));
        let tick = |k: i32| (f64::from(k), power_of_ten(k));
        let ticks = (-self.decades as i32..=0).map(tick).collect();
        let label = format!("PSF / perfect peak, floor {}", power_of_ten(-self.decades as i32));
        paint_bar_of(&bar, &LIGHT, Scale { ends: -self.decades..0.0, ticks }, &label)
    }
}

// Tests of pictures of stars
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Pupil, psf::Aperture};

    #[test]
    fn stars_are_bright_in_the_middle() {
        let telescope = Aperture::across(&Pupil::new(4.0, 0.2).unwrap(), &[], 16).unwrap();
        let transfer = telescope.transfer(32).unwrap().alone(1e-6).unwrap();
        let mut image = transfer.point_spread(1e-7, 15).unwrap();
        let stars = [("one", &image), ("two", &image)];
        let png = plot_stars(&stars, "two stars", 3, PictureFormat::Png).unwrap();
        let picture = image::load_from_memory(&png).unwrap().into_rgb8();
        for column in [0, 1] {
            let (x, y) = Stars::corner(column, 0);
            let at = |i: i32, j: i32| {
                picture.get_pixel((x + i * SIDE / 30) as u32, (y + j * SIDE / 30) as u32).0
            };
            let sum = |[r, g, b]: [u8; 3]| u32::from(r) + u32::from(g) + u32::from(b);
            assert!(sum(at(15, 15)) > 600 && sum(at(1, 1)) < 300, "{:?}", at(15, 15));
        }
        let svg = plot_stars(&stars, "two stars", 3, PictureFormat::Svg).unwrap();
        let (words, least) = crate::plot::tests::letters(&svg);
        let has = |word: &str| words.iter().any(|other| other == word);
        assert!(has("PSF / perfect peak, floor 10⁻³") && has("10⁻³") && !has("10⁻⁴"), "{words:?}");
        assert!(has("x [arcsec]") && has("y [arcsec]") && least >= 11.0);
        assert!(plot_stars(&[], "", 3, PictureFormat::Svg).is_err());
        assert!(plot_stars(&stars, "", 0, PictureFormat::Svg).is_err());
        image.values[[3, 4]] = f64::NAN;
        assert!(plot_stars(&[("bad", &image)], "", 3, PictureFormat::Svg).is_err());
    }
}
