// Tangled from book/src/field-pictures.md: edit there, or here and run cargo tangle stitch.
//! Pictures of fields: maps over directions, with guide stars.

// Imports of pictures of fields
use crate::error::{Error, Invalid, accept, positive};
use crate::plot::{
    Area, BAR, Drawn, LETTERS, Picture, PictureFormat, PlotAxis, SEQUENTIAL, TITLE, TYPEFACE,
    paint, paint_bar_of, title_width,
};
use ndarray::Array2;
use plotters::prelude::*;
use std::f64::consts::PI;

// A field to be drawn
/// Maps over one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldPicture {
    /// What stands above all maps.
    pub title: String,
    /// Each map with its quantity and unit, (n, n), axis 0 along y; NaN where there is nothing.
    pub maps: Vec<(String, Array2<f64>)>,
    /// From one direction to the next, arcsec.
    pub step: f64,
    /// Directions of natural guide stars, arcsec.
    pub stars: Vec<[f64; 2]>,
    /// Directions of laser guide stars, arcsec.
    pub lasers: Vec<[f64; 2]>,
}

/// Draws the maps side by side.
///
/// # Errors
/// `Invalid` where there is no map, they are not square and of one size, or the step is not positive.
///
/// ```
/// use lenslet::plot::{FieldPicture, PictureFormat, plot_field};
/// let values = ndarray::Array2::from_shape_fn((5, 5), |(y, x)| 0.3 + 0.01 * (x + 2 * y) as f64);
/// let maps = vec![("Strehl ratio".into(), values)];
/// let (stars, lasers) = (vec![[30.0, 0.0]], vec![]);
/// let picture = FieldPicture { title: "by hand".into(), maps, step: 10.0, stars, lasers };
/// assert!(String::from_utf8_lossy(&plot_field(&picture, PictureFormat::Svg)?).contains("Strehl ratio"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_field(picture: &FieldPicture, format: PictureFormat) -> Result<Vec<u8>, Error> {
    accept(!picture.maps.is_empty(), "maps", 0, "at least one")?;
    positive("step", picture.step)?;
    let n = picture.maps[0].1.nrows();
    if let Some((title, map)) = picture.maps.iter().find(|(_, map)| map.dim() != (n, n) || n == 0) {
        let expected = format!("({n}, {n}), and at least one direction");
        return Err(Invalid::new(title.clone(), format!("{:?}", map.dim()), expected).into());
    }
    picture.encode(format)
}

/// Pixels along the side of a map.
const SIDE: i32 = 420;

impl FieldPicture {
    /// Half of the directions that are shown, arcsec.
    fn half(&self) -> f64 {
        let field = 0.5 * self.step * self.maps[0].1.nrows() as f64;
        let stars = self.stars.iter().chain(&self.lasers).flatten().map(|x| 1.08 * x.abs());
        stars.fold(field, f64::max)
    }

    /// Upper left corner of a map, or of what follows behind the last column or row.
    fn corner(column: usize, row: usize) -> (i32, i32) {
        (150 + column as i32 * (SIDE + BAR + 160), 140 + row as i32 * (SIDE + 160))
    }

    fn columns(&self) -> usize {
        self.maps.len().min(2)
    }
}

// Draw a map of a field
impl FieldPicture {
    fn draw_map<DB: DrawingBackend>(&self, area: &Area<DB>, k: usize) -> Drawn<DB> {
        let ((title, values), half) = (&self.maps[k], self.half());
        let (x, y) = Self::corner(k % self.columns(), k / self.columns());
        area.draw_text(title, &(TYPEFACE, LETTERS).into_text_style(area), (x, y - 38))?;
        let around = area.clone().shrink((x - 130, y), (SIDE + 130, SIDE + 90));
        let axis = || PlotAxis::default().scale(&(-half..half), 5);
        let mut builder = ChartBuilder::on(&around);
        builder.x_label_area_size(90).y_label_area_size(130);
        let mut chart = builder.build_cartesian_2d(axis(), axis())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, LETTERS));
        mesh.x_desc("x [arcsec]").y_desc("y [arcsec]").draw()?;
        let [least, most] = ends(values);
        let n = values.nrows() as f64;
        let place = |share: f64| (2.0 * share - 1.0) * half / self.step + 0.5 * n;
        let level = |x: f64, y: f64| {
            let [i, j] = [x, y].map(place);
            let within = (0.0..n).contains(&i) && (0.0..n).contains(&j);
            if within {
                (values[[j as usize, i as usize]] - least) / (most - least)
            } else {
                f64::NAN
            }
        };
        paint(&chart.plotting_area().strip_coord_spec(), &SEQUENTIAL, level)?;
        for (stars, outline) in [(&self.stars, circle()), (&self.lasers, triangle())] {
            for style in [WHITE.stroke_width(7), BLACK.stroke_width(3)] {
                let mark = |&[x, y]: &[f64; 2]| {
                    EmptyElement::at((x, y)) + PathElement::new(outline.clone(), style)
                };
                chart.draw_series(stars.iter().map(mark))?;
            }
        }
        // Draw the scale of a map
        let bar = area.clone().shrink((x + SIDE + 20, y), (BAR, SIDE));
        paint_bar_of(&bar, &SEQUENTIAL, PlotAxis::default().scale(&(least..most), 6), title)
    }
}

// Marks of stars and ends of maps
/// Outline of the mark of a natural star, pixels.
fn circle() -> Vec<(i32, i32)> {
    let point =
        |angle: f64| ((11.0 * angle.cos()).round() as i32, (11.0 * angle.sin()).round() as i32);
    (0..=16).map(|k| point(f64::from(k) * PI / 8.0)).collect()
}

/// Outline of the mark of a laser star, pixels.
fn triangle() -> Vec<(i32, i32)> {
    vec![(0, -15), (13, 9), (-13, 9), (0, -15)]
}

/// The least and the largest value, a little apart.
pub(super) fn ends(values: &Array2<f64>) -> [f64; 2] {
    let good = || values.iter().copied().filter(|value| value.is_finite());
    let [least, most] =
        [good().fold(f64::INFINITY, f64::min), good().fold(f64::NEG_INFINITY, f64::max)];
    if least > most {
        return [0.0, 1.0];
    }
    let margin = 1e-6 * least.abs().max(most.abs()).max(1e-300);
    if most - least < margin { [least - margin, most + margin] } else { [least, most] }
}

// Picture of all maps of a field
impl Picture for FieldPicture {
    fn size(&self) -> (u32, u32) {
        let (width, height) =
            Self::corner(self.columns(), self.maps.len().div_ceil(self.columns()));
        (((width - 130) as u32).max(title_width(&self.title)), height as u32 + 30)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.draw_text(&self.title, &(TYPEFACE, TITLE).into_text_style(area), (20, 24))?;
        self.draw_key(area)?;
        (0..self.maps.len()).try_for_each(|k| self.draw_map(area, k))
    }
}

impl FieldPicture {
    /// Draws the meaning of the marks below all maps.
    fn draw_key<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        let (letters, below) =
            ((TYPEFACE, LETTERS).into_text_style(area), self.size().1 as i32 - 40);
        let mut left = 40;
        for (stars, outline, words) in [
            (&self.stars, circle(), "natural guide star"),
            (&self.lasers, triangle(), "laser guide star"),
        ] {
            if !stars.is_empty() {
                let mark = outline.iter().map(|(x, y)| (left + x, below + y)).collect::<Vec<_>>();
                area.draw(&PathElement::new(mark, BLACK.stroke_width(3)))?;
                area.draw_text(words, &letters, (left + 26, below - 16))?;
                left += 360;
            }
        }
        Ok(())
    }
}

// Tests of pictures of fields
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_fields_have_the_right_side_up() {
        let values = Array2::from_shape_fn((3, 3), |(y, x)| (x + 3 * y) as f64);
        let maps = vec![("rising".to_string(), values)];
        let mut picture = FieldPicture {
            title: "one map".into(),
            maps,
            step: 10.0,
            stars: vec![[14.0, 0.0]],
            lasers: vec![],
        };
        let png = plot_field(&picture, PictureFormat::Png).unwrap();
        let drawn = image::load_from_memory(&png).unwrap().into_rgb8();
        let (x, y) = FieldPicture::corner(0, 0);
        let at = |i: i32, j: i32| {
            drawn.get_pixel((x + i * SIDE / 12) as u32, (y + j * SIDE / 12) as u32).0
        };
        // Yellow, the largest, is in the upper right; violet in the lower left.
        let ([red, _, blue], [low, ..]) = (at(10, 2), at(2, 10));
        assert!(red > 200 && blue < 100 && low < 100, "{:?} {:?}", at(10, 2), at(2, 10));
        let drawn = |picture: &FieldPicture| {
            crate::plot::tests::letters(&plot_field(picture, PictureFormat::Svg).unwrap())
        };
        let (words, least) = drawn(&picture);
        let has =
            |words: &[String], word: &str| words.iter().filter(|other| *other == word).count();
        assert_eq!((has(&words, "rising"), has(&words, "natural guide star")), (2, 1), "{words:?}");
        assert!(has(&words, "x [arcsec]") == 1 && has(&words, "laser guide star") == 0);
        assert!(least >= 11.0 && has(&words, "8") == 1, "{words:?}");
        picture.lasers.push([0.0, 14.0]);
        assert_eq!(has(&drawn(&picture).0, "laser guide star"), 1);
        picture.maps.push(("thin".into(), Array2::zeros((3, 2))));
        assert!(plot_field(&picture, PictureFormat::Svg).unwrap_err().to_string().contains("thin"));
        picture.maps.clear();
        assert!(plot_field(&picture, PictureFormat::Svg).is_err());
    }
}
