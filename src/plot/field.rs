// Tangled from book/src/field-pictures.md: edit there, or here and run cargo tangle stitch.
//! Pictures of fields: maps over directions, with guide stars.

// What pictures of fields stand on
use crate::error::{Error, Invalid, accept, positive};
use crate::plot::{
    Area, Axis, Drawn, Picture, PictureFormat, Scale, TYPEFACE, paint, paint_bar_of,
};
use ndarray::Array2;
use plotters::prelude::*;

// A field to be drawn
/// Maps over one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldPicture {
    /// What stands above all maps.
    pub title: String,
    /// Each map with its title, (n, n), axis 0 along y; NaN where there is nothing.
    pub maps: Vec<(String, Array2<f64>)>,
    /// From one direction to the next, arcsec.
    pub step: f64,
    /// Directions of guide stars, arcsec.
    pub stars: Vec<[f64; 2]>,
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
/// let picture = FieldPicture { title: "by hand".into(), maps, step: 10.0, stars: vec![[30.0, 0.0]] };
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

/// Colours from the least value to the largest.
const STATIONS: [u32; 6] = [0x440154, 0x414487, 0x2a788e, 0x22a884, 0x7ad151, 0xfde725];

impl FieldPicture {
    /// Half of the directions that are shown, arcsec.
    fn half(&self) -> f64 {
        let field = 0.5 * self.step * self.maps[0].1.nrows() as f64;
        let stars = self.stars.iter().flatten().map(|x| 1.08 * x.abs());
        stars.fold(field, f64::max)
    }

    /// Upper left corner of a map, or of what follows behind the last column or row.
    fn corner(column: usize, row: usize) -> (i32, i32) {
        (120 + column as i32 * (SIDE + 260), 140 + row as i32 * (SIDE + 140))
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
        area.draw_text(title, &(TYPEFACE, 26).into_text_style(area), (x, y - 34))?;
        let around = area.clone().shrink((x - 100, y), (SIDE + 100, SIDE + 80));
        let axis = || Axis::default().scale(&(-half..half), 5);
        let mut builder = ChartBuilder::on(&around);
        builder.x_label_area_size(80).y_label_area_size(100);
        let mut chart = builder.build_cartesian_2d(axis(), axis())?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, 24));
        mesh.x_desc("arcsec").draw()?;
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
        paint(&chart.plotting_area().strip_coord_spec(), &STATIONS, level)?;
        let star = |&[x, y]: &[f64; 2]| Circle::new((x, y), 9, WHITE.stroke_width(4));
        chart.draw_series(self.stars.iter().map(star))?;
        let star = |&[x, y]: &[f64; 2]| Circle::new((x, y), 9, BLACK.stroke_width(2));
        chart.draw_series(self.stars.iter().map(star))?;
        // Draw the scale of a map
        let bar = area.clone().shrink((x + SIDE + 20, y), (130, SIDE));
        let digits = (1.0 - (most - least).log10().floor()).clamp(0.0, 12.0) as usize;
        let tick = |k: i32| {
            let value = least + (most - least) * f64::from(k) / 4.0;
            (value, format!("{value:.digits$}").replace('-', "−"))
        };
        let ticks = (0..=4).map(tick).collect();
        paint_bar_of(&bar, &STATIONS, Scale { ends: least..most, ticks }, 24)
    }
}

/// The least and the largest value, a little apart.
pub(super) fn ends(values: &Array2<f64>) -> [f64; 2] {
    let good = || values.iter().copied().filter(|value| value.is_finite());
    let [least, most] =
        [good().fold(f64::INFINITY, f64::min), good().fold(f64::NEG_INFINITY, f64::max)];
    if least > most {
        return [0.0, 1.0];
    }
    let room = 1e-6 * least.abs().max(most.abs()).max(1e-300);
    if most - least < room { [least - room, most + room] } else { [least, most] }
}

// Picture of all maps of a field
impl Picture for FieldPicture {
    fn size(&self) -> (u32, u32) {
        let (width, height) =
            Self::corner(self.columns(), self.maps.len().div_ceil(self.columns()));
        (width as u32 - 60, height as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.draw_text(&self.title, &(TYPEFACE, 32).into_text_style(area), (20, 24))?;
        (0..self.maps.len()).try_for_each(|k| self.draw_map(area, k))
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
        let mut picture =
            FieldPicture { title: "one map".into(), maps, step: 10.0, stars: vec![[14.0, 0.0]] };
        let png = plot_field(&picture, PictureFormat::Png).unwrap();
        let drawn = image::load_from_memory(&png).unwrap().into_rgb8();
        let (x, y) = FieldPicture::corner(0, 0);
        let at = |i: i32, j: i32| {
            drawn.get_pixel((x + i * SIDE / 12) as u32, (y + j * SIDE / 12) as u32).0
        };
        // Yellow, the largest, is in the upper right; violet in the lower left.
        let ([red, _, blue], [low, ..]) = (at(10, 2), at(2, 10));
        assert!(red > 200 && blue < 100 && low < 100, "{:?} {:?}", at(10, 2), at(2, 10));
        picture.maps.push(("thin".into(), Array2::zeros((3, 2))));
        assert!(plot_field(&picture, PictureFormat::Svg).unwrap_err().to_string().contains("thin"));
        picture.maps.clear();
        assert!(plot_field(&picture, PictureFormat::Svg).is_err());
    }
}
