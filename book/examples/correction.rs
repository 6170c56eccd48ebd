//! Draws the figures of the chapters on mirrors and what they cannot follow into the folder that is given.

use lenslet::correction::{Fitting, Mirror, Projector};
use lenslet::device::Engine;
use lenslet::model::{
    Atmosphere, ControlLoop, GuideStar, Layer, LensletArray, LoopKind, MirrorDesign, Pupil, Source,
    Spacing, System, Validity,
};
use lenslet::plot::Figure;
use lenslet::turbulence::VonKarman;
use plotters::prelude::*;
use std::f64::consts::PI;
use std::{error::Error, path::Path, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let system = ten_across()?;
    let mirror = Mirror::new(&MirrorDesign::new(Spacing::Actuators(11)), &system)?;
    actuators(&mirror, &folder.join("mirrors.svg"))?;
    spectrum(&mirror, &system, &folder.join("mirror-spectrum.svg"))?;
    square(&folder.join("fitting-square.svg"))?;
    structure(&folder.join("fitting.svg"))?;
    times(&folder.join("bandwidth-times.svg"))?;
    rejection(&folder.join("bandwidth.svg"))?;
    noise(&folder.join("bandwidth-noise.svg"))?;
    modes(&folder.join("correction-modes.svg"))
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
        (0..=200).map(move |k| (f64::from(k) * 0.01, middle)).map(|(x, middle)| {
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
    let projector = Projector::new(mirror, system, &Source::star(0.0, 0.0)?, &Engine::default())?;
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

const BLUE_INK: RGBColor = RGBColor(0, 114, 178);
const RED_INK: RGBColor = RGBColor(213, 94, 0);

fn write(text: &str, at: (f64, f64), colour: RGBColor) -> Text<'static, (f64, f64), String> {
    Text::new(text.to_string(), at, ("DejaVu Sans", 15).into_font().color(&colour))
}

/// The plane of frequencies with the square that is corrected, and spectra along an axis beside it.
fn square(path: &Path) -> Result<(), Box<dyn Error>> {
    lenslet::plot::load_font("DejaVu Sans")?;
    let area = SVGBackend::new(path, (760, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(360);
    let mut chart = ChartBuilder::on(&left).margin(8).build_cartesian_2d(-2.0..2.0, -2.0..2.0)?;
    let phase = VonKarman::new(25.0);
    // Shades by the logarithm of the spectrum.
    let cells = 60;
    let shade = |k: i32, l: i32| {
        let [x, y] = [k, l].map(|k| (f64::from(k) + 0.5) * 4.0 / f64::from(cells) - 2.0);
        let level = (phase.power_spectrum(x * x + y * y).log10() + 3.2) / 5.0;
        let corner = |k: i32| f64::from(k) * 4.0 / f64::from(cells) - 2.0;
        let ends = [(corner(k), corner(l)), (corner(k + 1), corner(l + 1))];
        Rectangle::new(ends, RED_INK.mix(level.clamp(0.03, 0.9)).filled())
    };
    chart.draw_series(
        (0..cells).flat_map(|k| (0..cells).map(move |l| (k, l))).map(|(k, l)| shade(k, l)),
    )?;
    let corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0)];
    chart.draw_series([PathElement::new(corners.to_vec(), BLACK.stroke_width(3))])?;
    chart.draw_series([
        write("corrected", (-0.5, 0.85), BLACK),
        write("fitting error", (-0.6, 1.65), BLACK),
    ])?;
    let mut chart = ChartBuilder::on(&right)
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(16)
        .build_cartesian_2d((0.01f64..10.0).log_scale(), -6.5..4.0)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .y_labels(0)
        .x_desc("frequency along an axis, of the highest corrected")
        .axis_desc_style(("DejaVu Sans", 15))
        .label_style(("DejaVu Sans", 13))
        .draw()?;
    let curve = |from: i32, to: i32| -> Vec<(f64, f64)> {
        let frequency = |k: i32| 10f64.powf(0.01 * f64::from(k));
        (from..=to).map(frequency).map(|f| (f, phase.power_spectrum(f * f).log10())).collect()
    };
    chart.draw_series([
        PathElement::new(curve(-200, 0), BLACK.mix(0.35).stroke_width(2)),
        PathElement::new(curve(0, 100), RED_INK.stroke_width(4)),
        PathElement::new(vec![(1.0, -6.5), (1.0, 4.0)], BLACK.stroke_width(1)),
    ])?;
    chart.draw_series([
        write("power spectrum", (0.02, 3.7), BLACK),
        write("residual", (2.0, -1.6), RED_INK),
    ])?;
    area.present()?;
    Ok(())
}

/// The structure function of the fitting error of a mirror with a pitch of half a metre.
fn structure(path: &Path) -> Result<(), Box<dyn Error>> {
    let (pitch, steps, step) = (0.5, 241, 0.0125);
    let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
    let fitting = Fitting::new(&air, pitch)?;
    let found = fitting.structure_function(steps, step)?;
    let (middle, limit) = (steps / 2, 2.0 * fitting.variance());
    println!("fitting {:.1} nm", 1e9 * fitting.variance().sqrt());
    let along =
        (0..=middle).map(|k| (k as f64 * step / pitch, found[[middle, middle + k]] / limit));
    let slanted = (0..=middle).map(|k| {
        let distance = k as f64 * step * 2f64.sqrt();
        (distance / pitch, found[[middle + k, middle + k]] / limit)
    });
    let radian = air.wavelength() / (2.0 * PI);
    let strength = radian * radian * air.fried_parameter().powf(-5.0 / 3.0) / limit;
    let phase = VonKarman::new(25.0);
    let whole = (0..60)
        .map(|k| f64::from(k) * step)
        .map(|r| (r / pitch, strength * phase.structure_function(r)));
    let figure = Figure::new()
        .x_label("distance [pitches]")
        .y_label("structure function, of twice the variance")
        .x_range(0.0, 3.0)
        .y_range(0.0, 1.5)
        .line("along an axis", along.filter(|p| p.0 <= 3.0))
        .line("along the diagonal", slanted.filter(|p| p.0 <= 3.0))
        .dashes("the whole wavefront", whole.filter(|p| p.1 <= 1.5));
    Ok(figure.save(path)?)
}

/// Exposures, and the holds that they lead to two frames later.
fn times(path: &Path) -> Result<(), Box<dyn Error>> {
    lenslet::plot::load_font("DejaVu Sans")?;
    let area = SVGBackend::new(path, (760, 240)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area).margin(8).build_cartesian_2d(-1.3..6.2, -0.4..2.6)?;
    for k in 0..4 {
        let (start, depth) = (f64::from(k), if k == 1 { 0.6 } else { 0.2 });
        let block = |from: f64, low: f64, colour: RGBColor| {
            Rectangle::new([(from, low), (from + 1.0, low + 0.5)], colour.mix(depth).filled())
        };
        let frame = |from: f64, low: f64| {
            Rectangle::new([(from, low), (from + 1.0, low + 0.5)], BLACK.stroke_width(1))
        };
        chart.draw_series([block(start, 1.6, BLUE_INK), block(start + 2.0, 0.3, RED_INK)])?;
        chart.draw_series([frame(start, 1.6), frame(start + 2.0, 0.3)])?;
    }
    let arrow = vec![(1.5, 1.6), (3.5, 0.8), (3.36, 0.93), (3.5, 0.8), (3.32, 0.82)];
    chart.draw_series([PathElement::new(arrow, BLACK.stroke_width(2))])?;
    let measure = vec![(1.0, 2.25), (3.0, 2.25), (3.0, 0.3), (3.0, 2.25), (1.0, 2.25), (1.0, 2.1)];
    chart.draw_series([PathElement::new(measure, BLACK.mix(0.5).stroke_width(1))])?;
    chart.draw_series([
        write("exposures", (-1.2, 1.92), BLUE_INK),
        write("holds", (-1.2, 0.62), RED_INK),
        write("delay of two frames", (1.2, 2.5), BLACK),
        write("time", (5.4, -0.05), BLACK),
    ])?;
    let axis = vec![(-0.2, 0.05), (6.0, 0.05), (5.9, 0.12), (6.0, 0.05), (5.9, -0.02)];
    chart.draw_series([PathElement::new(axis, BLACK.stroke_width(1))])?;
    area.present()?;
    Ok(())
}

/// What loops of 500 Hz with a delay of two frames leave of waves.
fn rejection(path: &Path) -> Result<(), Box<dyn Error>> {
    let curve = |kind: LoopKind, gain: f64| {
        let control = ControlLoop { kind, rate: 500.0, gain, delay: 2.0 };
        let frequencies = (0..=540).map(|k| 10f64.powf(-0.3 + 0.005 * f64::from(k)));
        frequencies.map(move |frequency| (frequency, control.rejection(frequency)))
    };
    let figure = Figure::new()
        .x_label("temporal frequency [Hz]")
        .y_label("residual share of the power")
        .log_x()
        .log_y()
        .x_range(0.5, 250.0)
        .y_range(1e-5, 30.0)
        .line("open", curve(LoopKind::Open, 1.0))
        .line("closed, gain 0.2", curve(LoopKind::Closed, 0.2))
        .line("closed, gain 0.5", curve(LoopKind::Closed, 0.5))
        .line("closed, gain 0.8", curve(LoopKind::Closed, 0.8));
    Ok(figure.save(path)?)
}

/// Noise gain of closed loops over their gain, for some delays.
fn noise(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut figure = Figure::new()
        .x_label("gain")
        .y_label("noise gain")
        .x_range(0.0, 1.0)
        .y_range(0.0, 2.0)
        .dashes("open", [(0.0, 1.0), (1.0, 1.0)]);
    for delay in [1.0, 1.5, 2.0, 3.0] {
        let gain = |gain: f64| {
            let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain, delay };
            (gain, control.noise_gain())
        };
        let curve =
            (1..200).map(|k| gain(0.005 * f64::from(k))).take_while(|(_, beta)| *beta < 2.2);
        figure = figure.line(&format!("closed, delay {delay}"), curve.collect::<Vec<_>>());
    }
    Ok(figure.save(path)?)
}

/// Beams of two targets, and mirrors in three places.
fn modes(path: &Path) -> Result<(), Box<dyn Error>> {
    lenslet::plot::load_font("DejaVu Sans")?;
    let area = SVGBackend::new(path, (760, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let names = ["a mirror for each target", "one mirror for all", "mirrors in series"];
    for (k, (part, name)) in area.split_evenly((1, 3)).iter().zip(names).enumerate() {
        let mut chart =
            ChartBuilder::on(part).margin(6).build_cartesian_2d(-2.2..2.2, -1.2..3.2)?;
        for (lean, colour) in [(-0.35, BLUE_INK), (0.35, RED_INK)] {
            // A beam of the width of the pupil, from the sky down to it.
            let side = |edge: f64, height: f64| (edge + lean * height, height);
            let beam = vec![side(-0.8, 0.0), side(0.8, 0.0), side(0.8, 2.7), side(-0.8, 2.7)];
            chart.draw_series([Polygon::new(beam, colour.mix(0.25))])?;
            if k == 0 {
                // Behind the field, each target has its own.
                let middle = -2.6 * lean;
                let mirror = vec![(middle - 0.5, -0.7), (middle + 0.5, -0.7)];
                chart.draw_series([PathElement::new(mirror, colour.stroke_width(6))])?;
            }
        }
        let mirror = |half: f64, height: f64| {
            PathElement::new(vec![(-half, height), (half, height)], BLACK.stroke_width(6))
        };
        match k {
            0 => chart.draw_series([PathElement::new(
                vec![(-0.8, 0.0), (0.8, 0.0)],
                BLACK.stroke_width(1),
            )])?,
            1 => chart.draw_series([mirror(0.8, 0.0)])?,
            _ => chart.draw_series([mirror(0.8, 0.0), mirror(1.35, 1.5)])?,
        };
        chart.draw_series([write(name, (-1.5, -0.95), BLACK)])?;
    }
    area.present()?;
    Ok(())
}
