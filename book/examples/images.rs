//! Pictures of arrays, painted pixel by pixel beside axes and words, for programs that draw what electrons do.

use plotters::coord::Shift;
use plotters::element::BitMapElement;
use plotters::prelude::*;
use std::{error::Error, path::Path};

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), Box<dyn Error>>;

pub const TYPEFACE: &str = "DejaVu Sans";

/// A picture of twice the size in which it is shown, so that its pixels are small.
pub fn picture(path: &Path, (width, height): (u32, u32), draw: impl Fn(&Area) -> Drawn) -> Drawn {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    let drawn = format!("width=\"{width}\" height=\"{height}\"");
    let shown = format!("width=\"{}\" height=\"{}\"", width / 2, height / 2);
    let text = text.replacen(&drawn, &shown, 1).replace("\"data:png;", "\"data:image/png;");
    Ok(std::fs::write(path, text)?)
}

/// Fills an area with colours, given the shares of its width and of its height, upwards.
pub fn paint(area: &Area, colour: impl Fn(f64, f64) -> RGBColor) -> Drawn {
    let (width, height) = area.dim_in_pixel();
    let share = |pixel: u32, pixels: u32| (f64::from(pixel) + 0.5) / f64::from(pixels);
    let places = (0..height).rev().flat_map(|y| (0..width).map(move |x| (x, y)));
    let colours = places.map(|(x, y)| colour(share(x, width), share(y, height)));
    let pixels = colours.flat_map(|RGBColor(red, green, blue)| [red, green, blue]).collect();
    let map: Option<BitMapElement<_>> =
        BitMapElement::with_owned_buffer((0, 0), (width, height), pixels);
    Ok(area.draw(&map.ok_or("pixels of the whole area")?)?)
}

/// Writes a line, its upper left corner at a place.
pub fn write(area: &Area, text: &str, at: (i32, i32)) -> Drawn {
    let style = (TYPEFACE, 26).into_font().color(&BLACK);
    Ok(area.draw(&Text::new(text.to_string(), at, style))?)
}

/// A level from 0 to 1 in grey.
pub fn grey(level: f64) -> RGBColor {
    let grey = (255.0 * level.clamp(0.0, 1.0)).round() as u8;
    RGBColor(grey, grey, grey)
}
