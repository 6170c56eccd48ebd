//! Boxes with lines of text and arrows between them, for programs that draw how things hang together.

use plotters::prelude::*;
use std::{error::Error, path::Path};

pub type Drawn = Result<(), Box<dyn Error>>;

pub const BLUE_INK: RGBColor = RGBColor(0, 114, 178);
pub const RED_INK: RGBColor = RGBColor(213, 94, 0);
pub const GREEN_INK: RGBColor = RGBColor(0, 130, 90);

/// A box: its upper left corner, width and height, its lines, and the colour of its kind.
pub type Part = ((i32, i32), (i32, i32), &'static [&'static str], RGBColor);

/// Boxes with lines of text, and arrows between points.
pub fn draw(
    (path, size): (&Path, (u32, u32)),
    parts: &[Part],
    arrows: &[[(i32, i32); 2]],
) -> Drawn {
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    for ((x, y), (width, height), lines, colour) in parts {
        let corners = [(*x, *y), (x + width, y + height)];
        area.draw(&Rectangle::new(corners, colour.mix(0.15).filled()))?;
        area.draw(&Rectangle::new(corners, colour.stroke_width(1)))?;
        for (k, line) in lines.iter().enumerate() {
            let style = ("DejaVu Sans", 13).into_font().color(if k == 0 { colour } else { &BLACK });
            area.draw(&Text::new((*line).to_string(), (x + 7, y + 6 + 18 * k as i32), style))?;
        }
    }
    for [(x, y), (u, v)] in arrows {
        let (dx, dy) = (f64::from(u - x), f64::from(v - y));
        let length = f64::hypot(dx, dy);
        let (along, across) = ([dx / length, dy / length], [-dy / length, dx / length]);
        let wing = |side: f64| {
            let at = |k: usize, end: i32| f64::from(end) - 9.0 * along[k] + side * across[k];
            (at(0, *u).round() as i32, at(1, *v).round() as i32)
        };
        let points = vec![(*x, *y), (*u, *v), wing(4.0), (*u, *v), wing(-4.0)];
        area.draw(&PathElement::new(points, BLACK.mix(0.7).stroke_width(1)))?;
    }
    area.present()?;
    Ok(())
}
