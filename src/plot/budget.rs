// Tangled from book/src/budget-pictures.md: edit there, or here and run cargo tangle stitch.
//! Pictures of results about images: profiles of stars, and error budgets.

// Imports of pictures of budgets
use crate::error::{Error, Invalid, accept};
use crate::plot::{
    Area, CURVE_COLOURS, Drawn, Figure, LETTERS, Picture, PictureFormat, PlotAxis, Scale, TYPEFACE,
    colour, power_of_ten,
};
use crate::psf::{Budget, PointSpread};
use crate::units::ARCSEC;
use plotters::prelude::*;

// Draw profiles of stars
/// Draws the profiles of images of stars, in units of a perfect star on the axis, over so many `decades` of light; of the first also how much the pixels of a
/// ring differ.
///
/// # Errors
/// `Invalid` where there is no image, a number is not finite, or the decades are not from 1 to 20.
///
/// ```
/// use lenslet::{psf::Aperture, model::Pupil, plot::{PictureFormat, plot_profiles}};
/// let telescope = Aperture::across(&Pupil::new(8.0, 0.2)?, &[], 32)?.transfer(64)?;
/// let image = telescope.alone(1.65e-6)?.point_spread(2e-8, 41)?;
/// let picture = plot_profiles(&[("perfect", &image)], "by hand", 4, PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("perfect"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_profiles(
    images: &[(&str, &PointSpread)],
    title: &str,
    decades: u32,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    accept(!images.is_empty(), "images", images.len(), "at least one")?;
    accept((1..=20).contains(&decades), "decades", decades, "from 1 to 20")?;
    let least = 10f64.powi(-(decades as i32));
    let mut figure = Figure::new()
        .title(title)
        .x_label("distance from the star [mas]")
        .y_label(&format!("PSF / perfect peak, floor {}", power_of_ten(-(decades as i32))))
        .log_y()
        .y_range(least, 1.5);
    for (k, (name, image)) in images.iter().enumerate() {
        let rings = image.rings();
        let at = |radius: f64, value: f64| {
            let level = value * image.strehl;
            (1e3 * radius / ARCSEC, if level < least { least } else { level })
        };
        let means = rings.iter().map(|ring| at(ring.radius, ring.mean));
        figure = figure.line(name, means.collect::<Vec<_>>());
        if k == 0 {
            let outer = rings.iter().filter(|ring| ring.radius > 0.0);
            let spread = outer.map(|ring| at(ring.radius, ring.deviation));
            figure = figure.dashes(&format!("{name}, rms of a ring"), spread.collect::<Vec<_>>());
        }
    }
    figure.render(format)
}

// Draw budgets as bars
/// Draws budgets with the same terms, each with its name, as bars side by side.
///
/// # Errors
/// `Invalid` where there is no budget or no term, their terms are not the same, or a number is not finite.
///
/// ```
/// use lenslet::{psf::Budget, plot::{PictureFormat, plot_budgets}};
/// let budget = Budget::default().with("fitting", 9e-16)?.with("noise", 16e-16)?;
/// let picture = plot_budgets(&[("on the axis", &budget)], "by hand", PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("fitting"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_budgets(
    budgets: &[(&str, &Budget)],
    title: &str,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    accept(!budgets.is_empty(), "budgets", budgets.len(), "at least one")?;
    let names = |budget: &Budget| -> Vec<String> {
        budget.terms().iter().map(|term| term.name.clone()).collect()
    };
    let mut terms = names(budgets[0].1);
    accept(!terms.is_empty(), "budgets", "without terms", "at least one term")?;
    let good = |budget: &Budget| names(budget) == terms && budget.total().is_finite();
    if let Some((name, _)) = budgets.iter().find(|(_, budget)| !good(budget)) {
        let expected = "a budget of the same terms, all of them finite";
        return Err(Invalid::new("budgets", *name, expected).into());
    }
    terms.push("total".into());
    let values = |budget: &Budget| -> Vec<f64> {
        let rms = budget.terms().iter().map(|term| term.rms());
        rms.chain([budget.total()]).map(|rms| 1e9 * rms).collect()
    };
    let bars = budgets.iter().map(|(name, budget)| (name.to_string(), values(budget))).collect();
    Bars { title, terms, bars }.encode(format)
}

// Lay out the bars of budgets
/// Bars of some budgets: their name, and the height of each term, nm.
struct Bars<'a> {
    title: &'a str,
    terms: Vec<String>,
    bars: Vec<(String, Vec<f64>)>,
}

impl Bars<'_> {
    /// Left and right end of a bar, in units of a group.
    fn ends(&self, budget: usize, term: usize) -> [f64; 2] {
        let width = 0.8 / self.bars.len() as f64;
        let left = term as f64 + 0.1 + budget as f64 * width;
        [left, left + 0.92 * width]
    }
}

impl Picture for Bars<'_> {
    fn size(&self) -> (u32, u32) {
        (1440, 920)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let most =
            self.bars.iter().flat_map(|(_, values)| values).fold(1e-9, |a: f64, b| a.max(*b));
        let places = self.terms.iter().enumerate().map(|(k, name)| (k as f64 + 0.5, name.clone()));
        let x = Scale { ends: 0.0..self.terms.len() as f64, ticks: places.collect() };
        let mut builder = ChartBuilder::on(area);
        builder.margin(28).x_label_area_size(70).y_label_area_size(150);
        builder.caption(self.title, (TYPEFACE, 40));
        let y = PlotAxis::default().scale(&(0.0..1.25 * most), 9);
        let mut chart = builder.build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.label_style((TYPEFACE, 30)).axis_desc_style((TYPEFACE, 32)).disable_x_mesh();
        mesh.bold_line_style(colour(0xdedede)).light_line_style(TRANSPARENT);
        mesh.y_desc("wavefront error [nm rms]").draw()?;
        for (k, ((name, values), hex)) in
            self.bars.iter().zip(CURVE_COLOURS.iter().cycle()).enumerate()
        {
            let fill = colour(*hex).filled();
            // Draw the bars of a budget
            let bar = |(term, value): (usize, &f64)| {
                let [left, right] = self.ends(k, term);
                Rectangle::new([(left, 0.0), (right, *value)], fill)
            };
            let series = chart.draw_series(values.iter().enumerate().map(bar))?;
            series
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 8), (x + 30, y + 8)], fill));
            if self.bars.len() * self.terms.len() <= 24 {
                let number = |(term, value): (usize, &f64)| {
                    let place = (self.ends(k, term)[0], value + 0.045 * most);
                    Text::new(format!("{value:.0}"), place, (TYPEFACE, LETTERS).into_font())
                };
                chart.draw_series(values.iter().enumerate().map(number))?;
            }
        }
        let mut legend = chart.configure_series_labels();
        legend
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((TYPEFACE, 28))
            .legend_area_size(44);
        legend.background_style(WHITE.mix(0.8)).draw()
    }
}

// Tests of pictures of budgets
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Pupil, psf::Aperture};

    #[test]
    fn profiles_and_budgets_are_drawn_or_refused() {
        let telescope = Aperture::across(&Pupil::new(4.0, 0.2).unwrap(), &[], 16).unwrap();
        let transfer = telescope.transfer(32).unwrap().alone(1e-6).unwrap();
        let image = transfer.point_spread(1e-7, 15).unwrap();
        let stars = [("one", &image), ("two", &image)];
        let svg = plot_profiles(&stars, "two stars", 3, PictureFormat::Svg).unwrap();
        let text = String::from_utf8_lossy(&svg);
        assert!(text.contains("one, rms of a ring") && !text.contains("two, rms"));
        // Each profile is one line from the middle to the edge, although its dark rings are below the floor.
        assert!(image.rings().iter().any(|ring| ring.mean < 1e-3));
        let lines = |hex: &str| -> Vec<&str> {
            let stroke = format!("stroke=\"{hex}\"");
            text.lines().filter(|line| line.contains(&stroke)).collect()
        };
        let shown = lines("#009E73")[0].split("points=\"").nth(1).unwrap();
        let points = shown.split('"').next().unwrap().split_whitespace().count();
        assert_eq!((lines("#0072B2").len(), lines("#009E73").len()), (2, 2), "with the legend's");
        assert_eq!(points, image.rings().len());
        let (words, least) = crate::plot::tests::letters(text.as_bytes());
        assert!(words.contains(&"PSF / perfect peak, floor 10⁻³".to_string()) && least >= 11.0);
        assert!(plot_profiles(&[], "", 3, PictureFormat::Svg).is_err());
        assert!(plot_profiles(&stars, "", 0, PictureFormat::Svg).is_err());
        let budget = |fitting: f64| {
            let budget = Budget::default().with("fitting", fitting).unwrap();
            budget.with("noise", 2.5e-15).unwrap()
        };
        let (small, large) = (budget(1e-16), budget(9e-15));
        let both = [("small", &small), ("large", &large)];
        let png = plot_budgets(&both, "two budgets", PictureFormat::Png).unwrap();
        let picture = image::load_from_memory(&png).unwrap().into_rgb8();
        // The first bar of the second colour is high, that of the first is low.
        let count = |hex: u32, columns: std::ops::Range<u32>| {
            let colour = [hex >> 16, hex >> 8, hex].map(|byte| byte as u8);
            let rows = |x: u32| (80..840).filter(move |&y| (x, y) != (0, 0));
            columns
                .flat_map(|x| rows(x).map(move |y| (x, y)))
                .filter(|&(x, y)| picture.get_pixel(x, y).0 == colour)
                .count()
        };
        let [first, second] = [CURVE_COLOURS[0], CURVE_COLOURS[1]].map(|hex| count(hex, 200..580));
        assert!(first > 1000 && second > 7 * first && second < 12 * first, "{first} {second}");
        let other = Budget::default().with("wind", 1e-16).unwrap();
        let refused = plot_budgets(&[("small", &small), ("other", &other)], "", PictureFormat::Svg);
        assert!(refused.unwrap_err().to_string().starts_with("budgets = other: expected"));
        assert!(plot_budgets(&[], "", PictureFormat::Svg).is_err());
        let empty = Budget::default();
        assert!(plot_budgets(&[("empty", &empty)], "", PictureFormat::Svg).is_err());
    }
}
