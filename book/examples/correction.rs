//! Draws the figures of the chapters on mirrors and what they cannot follow into the folder that is given.

use lenslet::correction::{Mirror, Projector};
use lenslet::model::{
    Atmosphere, GuideStar, Layer, LensletArray, MirrorDesign, Pupil, Source, Spacing, System,
    Validity,
};
use lenslet::plot::Figure;
use plotters::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let system = ten_across()?;
    let mirror = Mirror::new(&MirrorDesign::new(Spacing::Actuators(11)), &system)?;
    actuators(&mirror, &folder.join("mirrors.svg"))?;
    spectrum(&mirror, &system, &folder.join("mirror-spectrum.svg"))
}

/// A telescope of 5 m with ten lenslets across.
fn ten_across() -> Result<System, Box<dyn Error>> {
    let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
    let (array, on_axis) = (LensletArray::new(10, 0.5)?, Source::star(0.0, 0.0)?);
    let star = GuideStar::at_rest(on_axis, array, 1e-14)?;
    let builder = System::builder(air, array).guide_stars([star]).targets([on_axis]);
    Ok(builder.pupil(Some(Pupil::new(5.0, 0.2)?)).validity(Validity::Centre).build()?)
}

/// Actuators over the pupil, and the influence function of one of them.
fn actuators(mirror: &Mirror, path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (760, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area).margin(8).build_cartesian_2d(-3.0..8.06, -2.9..2.9)?;
    let (blue, red) = (RGBColor(0, 114, 178), RGBColor(213, 94, 0));
    let metre = 744.0 / 11.06;
    let disc =
        |radius: f64, style: ShapeStyle| Circle::new((0.0, 0.0), (radius * metre) as i32, style);
    chart.draw_series([
        disc(2.5, blue.mix(0.12).filled()),
        disc(0.5, WHITE.filled()),
        disc(2.5, blue.stroke_width(1)),
        disc(0.5, blue.stroke_width(1)),
    ])?;
    let chosen = [-1.0, 1.0];
    for share in [0.1, 0.3, 0.5, 0.7, 0.9] {
        // Where the influence function has fallen to this share of its height.
        let radius = mirror.pitch() * (f64::ln(share) / f64::ln(0.2)).sqrt();
        let ring =
            Circle::new((chosen[0], chosen[1]), (radius * metre) as i32, red.stroke_width(1));
        chart.draw_series([ring])?;
    }
    let dot = |&[x, y]: &[f64; 2]| Circle::new((x, y), 3, BLACK.filled());
    chart.draw_series(mirror.positions().iter().map(dot))?;
    // Profiles of two neighbours, beside the pupil.
    let (left, base, height) = (3.4, -1.6, 2.6);
    let profile = |middle: f64| {
        (0..=200).map(move |k| (f64::from(k) * 0.01 * 2.0, middle)).map(|(x, middle)| {
            (left + 2.2 * x, base + height * mirror.influence([x - middle, 0.0]))
        })
    };
    chart.draw_series([
        PathElement::new(profile(1.0).collect::<Vec<_>>(), red.stroke_width(3)),
        PathElement::new(profile(1.5).collect::<Vec<_>>(), red.mix(0.4).stroke_width(2)),
        PathElement::new(vec![(left, base), (left + 4.4, base)], BLACK.stroke_width(1)),
    ])?;
    let places = [0.0, 0.5, 1.0, 1.5, 2.0].map(|x| left + 2.2 * x);
    chart.draw_series(places.map(|x| Circle::new((x, base), 3, BLACK.filled())))?;
    let dropped = vec![(left + 3.3, base), (left + 3.3, base + 0.2 * height)];
    chart.draw_series([PathElement::new(dropped, BLACK.stroke_width(1))])?;
    lenslet::plot::load_font("DejaVu Sans")?;
    let write = |text: &str, at: (f64, f64)| {
        Text::new(text.to_string(), at, ("DejaVu Sans", 15).into_font().color(&BLACK))
    };
    chart.draw_series([
        write("coupling", (left + 3.42, base + 0.5)),
        write("pitch", (left + 2.5, base - 0.2)),
        write("influence functions of neighbours", (left + 0.5, base + height + 0.6)),
    ])?;
    area.present()?;
    Ok(())
}

/// Singular values of the interaction matrix, and where two filters cut them.
fn spectrum(mirror: &Mirror, system: &System, path: &Path) -> Result<(), Box<dyn Error>> {
    let projector = Projector::new(mirror, system, &Source::star(0.0, 0.0)?)?;
    let (values, kept) = projector.spectrum();
    println!("{kept} of {} kept, least {:.3}", values.len(), values[values.len() - 1] / values[0]);
    let all = values.iter().enumerate().map(|(k, s)| (k as f64, s / values[0]));
    let cut = |level: f64| [(0.0, level), (values.len() as f64 - 1.0, level)];
    let figure = Figure::new()
        .x_label("number")
        .y_label("singular value, of the largest")
        .log_y()
        .line("interaction matrix", all)
        .dashes("1/√30", cut(1.0 / 30f64.sqrt()))
        .dashes("0.03", cut(0.03));
    Ok(figure.save(path)?)
}
