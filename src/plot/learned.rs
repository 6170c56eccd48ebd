// Tangled from book/src/learned-pictures.md: edit there, or here and run cargo tangle stitch.
//! Pictures of what was learned from slopes: the profile, and maps as measured and as fitted.

// Imports of pictures of learning
use crate::error::Error;
use crate::model::system::System;
use crate::plot::{
    Area, BAR, ColourScale, Drawn, Figure, LETTERS, Picture, PictureFormat, PlotAxis, TITLE,
    TYPEFACE, paint_bar, paint_levels, power_of_ten, ticks,
};
use crate::profiling::covariance_maps::MapPair;
use crate::profiling::fit::{FitWarning, Learned, Parameter};
use ndarray::{Array2, ArrayView1, Axis};
use plotters::prelude::*;

// Draw what was learned
/// Draws what was learned, beginning from the system `start`, under a title.
///
/// # Errors
/// `Failed` where a picture cannot be drawn.
///
/// ```
/// use lenslet::{watch::unwatched, model::System, plot::{PictureFormat, plot_learned}, profiling::*};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let plan = LearnPlan::new(&system, LearnOptions::default())?;
/// let learned = plan.fit(plan.expected(&unwatched)?, &unwatched)?;
/// let picture = plot_learned(&learned, &system, "by hand", PictureFormat::Svg)?;
/// assert!(String::from_utf8_lossy(&picture).contains("stars 0 and 1, measured"));
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn plot_learned(
    learned: &Learned,
    start: &System,
    title: &str,
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    let pairs = learned.maps.layout.pairs();
    let pair = pairs.iter().find(|pair| !pair.is_own()).unwrap_or(&pairs[0]);
    let measured = trace(pair, learned.maps.values.view());
    let fitted = trace(pair, learned.fitted.view());
    let difference = &measured - &fitted;
    let figures = [profile(learned, start), cut(learned, start, pair)];
    let maps = [("measured", measured), ("fitted", fitted), ("difference", difference)];
    LearnedPanels { title, figures, maps, step: pair.pitch }.encode(format)
}

// A profile with its errors
fn profile(learned: &Learned, start: &System) -> Figure {
    let error_of = |l: usize| error_of_altitude(learned, l);
    let begun = || start.atmosphere().layers().iter();
    let layers = learned.system.atmosphere().layers().iter().zip(&learned.fractions).enumerate();
    let point =
        |(l, (layer, (fraction, error))): (usize, (&crate::model::Layer, &(f64, Option<f64>)))| {
            [1e-3 * layer.altitude, *fraction, 1e-3 * error_of(l), error.unwrap_or(0.0)]
        };
    let (known, unknown): (Vec<_>, Vec<_>) =
        layers.partition(|(l, _)| is_constrained(learned, start, *l));
    let top = learned.fractions.iter().map(|(x, error)| x + error.unwrap_or(0.0).min(*x));
    let top = top.chain(begun().map(|layer| layer.fraction)).fold(0.0, f64::max);
    let figure = Figure::new()
        .x_label("altitude [km]")
        .y_label("fraction of the turbulence")
        .y_range(0.0, 1.08 * top)
        .points_with_both_errors("learned", known.into_iter().map(point))
        .points("start", begun().map(|layer| (1e-3 * layer.altitude, layer.fraction)));
    if unknown.is_empty() {
        return figure;
    }
    let hollow = unknown.into_iter().map(point).map(|[x, y, _, error]| (x, y, error));
    figure.hollow_points("learned, altitude not constrained", hollow)
}

// Altitudes that slopes constrain
// Standard error of an altitude
/// The standard error of a layer's altitude \[m\]; 0 where there is none.
fn error_of_altitude(learned: &Learned, layer: usize) -> f64 {
    let mut values = learned.values.iter();
    let own = values.find(|value| value.parameter == Parameter::Altitude(layer));
    own.and_then(|value| value.error).unwrap_or(0.0)
}

/// Whether the slopes constrain the altitude of a layer, or it was not fitted.
fn is_constrained(learned: &Learned, start: &System, layer: usize) -> bool {
    const LARGEST_ERROR: f64 = 0.25;
    let highest =
        start.atmosphere().layers().iter().map(|layer| layer.altitude).fold(0.0, f64::max);
    if error_of_altitude(learned, layer) > LARGEST_ERROR * highest {
        return false;
    }
    let altitude = Parameter::Altitude(layer);
    let weighs = |parts: &[(Parameter, f64)]| {
        parts.iter().any(|(part, weight)| *part == altitude && weight.abs() > 0.1)
    };
    !learned.warnings.iter().any(|warning| match warning {
        FitWarning::Bound(part, _) | FitWarning::Idle(part) | FitWarning::Vague(part) => {
            *part == altitude
        }
        FitWarning::Blind(parts) | FitWarning::Hardly(parts) => weighs(parts),
        FitWarning::Tied(..) => false,
    })
}

// A cut through a map
/// Elements of a map of this pair near to the line in the direction from its first star to its second: places on the line in metres, and lags.
fn near_the_line(start: &System, pair: &MapPair) -> Vec<(f64, [usize; 2])> {
    let [one, two] = pair.stars.map(|star| start.guide_stars()[star].sensor.source.direction());
    let [x, y] = [two[0] - one[0], two[1] - one[1]];
    let length = x.hypot(y);
    let [x, y] = if length > 0.0 { [x / length, y / length] } else { [1.0, 0.0] };
    let middle = (pair.lags() / 2) as f64;
    let place = |[j, i]: [usize; 2]| {
        let [u, v] = [i, j].map(|k| (k as f64 - middle) * pair.pitch);
        (u * x + v * y, (u * y - v * x).abs())
    };
    let all = pair.counts().indexed_iter().filter(|(_, count)| **count > 0.0);
    let own = |lag: [usize; 2]| pair.is_own() && lag == [pair.lags() / 2; 2];
    let near = all.map(|((j, i), _)| [j, i]).filter(|&lag| !own(lag));
    let mut near: Vec<_> = near.map(|lag| (place(lag), lag)).collect();
    near.retain(|((_, off), _)| *off <= 0.5001 * pair.pitch);
    near.sort_by(|((one, _), _), ((other, _), _)| one.total_cmp(other));
    near.into_iter().map(|((along, _), lag)| (along, lag)).collect()
}
/// What the maps say along that line.
fn cut(learned: &Learned, start: &System, pair: &MapPair) -> Figure {
    let maps = &learned.maps;
    let [measured, fitted] =
        [maps.values.view(), learned.fitted.view()].map(|all| trace(pair, all));
    let scatter: Vec<_> =
        maps.scatter.axis_iter(Axis(0)).map(|errors| trace(pair, errors)).collect();
    let error = |lag: [usize; 2]| {
        let squares = scatter.iter().map(|errors| errors[lag].powi(2)).sum::<f64>();
        if scatter.is_empty() { 0.0 } else { (squares / scatter.len() as f64).sqrt() }
    };
    let line = near_the_line(start, pair);
    let name = match pair.stars {
        [one, two] if one == two => format!("star {one}"),
        [one, two] => format!("stars {one} and {two}"),
    };
    Figure::new()
        .x_label("displacement [m]")
        .y_label("xx + yy [rad²]")
        .points_with_errors(
            &format!("{name}, measured"),
            line.iter().map(|&(along, lag)| (along, measured[lag], error(lag))),
        )
        .line("fitted", line.iter().map(|&(along, lag)| (along, fitted[lag])))
}
/// The map of a pair, xx + yy; NaN where no lenslets have the lag.
fn trace(pair: &MapPair, all: ArrayView1<f64>) -> Array2<f64> {
    let element = |(j, i): (usize, usize)| {
        let at = |axes| all[pair.range().start + pair.place(axes, [j, i])];
        if pair.counts()[[j, i]] > 0.0 { at(0) + at(3) } else { f64::NAN }
    };
    Array2::from_shape_fn((pair.lags(), pair.lags()), element)
}

// Lay out what was learned
struct LearnedPanels<'a> {
    title: &'a str,
    figures: [Figure; 2],
    maps: [(&'static str, Array2<f64>); 3],
    /// From one lag of the maps to the next, m.
    step: f64,
}

/// Pixels along the side of a map, from one map to the next, and of the panels of curves.
const SIDE: i32 = 420;
const STEP: i32 = 450;
const CURVES: (i32, i32) = (1640, 720);

impl Picture for LearnedPanels<'_> {
    fn size(&self) -> (u32, u32) {
        (1680, (100 + 2 * CURVES.1 + SIDE + 190) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn<DB> {
        area.draw_text(self.title, &(TYPEFACE, TITLE).into_text_style(area), (20, 24))?;
        for (k, figure) in self.figures.iter().enumerate() {
            figure.draw(&area.clone().shrink((0, 70 + CURVES.1 * k as i32), CURVES))?;
        }
        let values = || self.maps[..2].iter().flat_map(|(_, map)| map.iter());
        let largest =
            values().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()));
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let top = 70 + 2 * CURVES.1 + 60;
        for (k, (name, map)) in self.maps.iter().enumerate() {
            let left = 130 + STEP * k as i32;
            area.draw_text(name, &(TYPEFACE, LETTERS).into_text_style(area), (left, top - 38))?;
            // Draw a map of what was learned
            let start = if k == 0 { 120 } else { 0 };
            let around = area.clone().shrink((left - start, top), (SIDE + start, SIDE + 96));
            let reach = 0.5 * map.nrows() as f64 * self.step;
            let axis = || PlotAxis::default().scale(&(-reach..reach), 5);
            let mut builder = ChartBuilder::on(&around);
            builder.x_label_area_size(96).y_label_area_size(start);
            let mut chart = builder.build_cartesian_2d(axis(), axis())?;
            let mut mesh = chart.configure_mesh();
            mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, LETTERS));
            mesh.x_desc("ρx [m]").y_desc("ρy [m]").draw()?;
            let n = map.nrows();
            let entry = |share: f64| ((share * n as f64) as usize).min(n - 1);
            let level = |x, y| ColourScale::Root.level(map[[entry(y), entry(x)]] / largest);
            paint_levels(&chart.plotting_area().strip_coord_spec(), level)?;
        }
        let (power, gap) = (largest.log10().floor(), 2.0 * 36.0 / f64::from(SIDE));
        let name = format!("xx + yy [{} rad²]", power_of_ten(power as i32));
        let bar = area.clone().shrink((130 + 3 * STEP - 14, top), (BAR, SIDE));
        paint_bar(&bar, ticks(ColourScale::Root, largest / 10f64.powf(power), gap), &name)
    }
}

// Tests of pictures of learning
#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiling::fit::{LearnOptions, LearnPlan};
    use crate::watch::unwatched;

    #[test]
    fn spots_lie_along_the_line_between_two_stars() {
        let system = System::from_file("book/systems/small-moao.toml").unwrap();
        let stars = system.guide_stars()[..2].to_vec();
        let mut stars = [stars[0].clone(), stars[0].clone()];
        stars[1].sensor.source = crate::model::Source::new(5e-5, 1.2, 90e3).unwrap();
        let system = system.to_builder().guide_stars(stars).build().unwrap();
        let plan = LearnPlan::new(&system, LearnOptions::default()).unwrap();
        let learned = plan.fit(plan.expected(&unwatched).unwrap(), &unwatched).unwrap();
        let [own, pair, _] = learned.maps.layout.pairs() else { panic!("three pairs") };
        let line = near_the_line(&system, pair);
        assert!(line.windows(2).all(|pair| pair[0].0 <= pair[1].0) && line.len() > 10);
        let map = trace(pair, learned.fitted.view());
        let at = |(_, lag): &(f64, [usize; 2])| map[*lag];
        // What the upper layers have in common lies on one side of the middle.
        let half =
            |side: f64| line.iter().filter(|(along, _)| side * along > 0.7).map(at).sum::<f64>();
        assert!((half(1.0) - half(-1.0)).abs() > 0.05 * map[[7, 7]]);
        let middle = near_the_line(&system, own).iter().any(|(_, lag)| *lag == [7, 7]);
        assert!(!middle && map[[0, 0]].is_nan() == (pair.counts()[[0, 0]] == 0.0));
        let svg = plot_learned(&learned, &system, "exact", PictureFormat::Svg).unwrap();
        let (words, least) = crate::plot::tests::letters(&svg);
        let count = |word: &str| words.iter().filter(|other| *other == word).count();
        assert_eq!(
            (count("ρx [m]"), count("ρy [m]"), count("altitude [km]")),
            (3, 1, 1),
            "{words:?}"
        );
        assert!(count("xx + yy [10⁻¹² rad²]") == 1 && least >= 11.0, "{words:?} {least}");
        let png = plot_learned(&learned, &system, "exact", PictureFormat::Png).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
    }

    // Check that unconstrained altitudes are marked
    #[test]
    fn unconstrained_altitudes_are_marked_and_do_not_widen_the_axis() {
        let system = System::from_file("book/systems/small-moao.toml").unwrap();
        let plan = LearnPlan::new(&system, LearnOptions::default()).unwrap();
        let mut learned = plan.fit(plan.expected(&unwatched).unwrap(), &unwatched).unwrap();
        let air = learned.system.atmosphere();
        let mut layers = air.layers().to_vec();
        layers[2].altitude = 85e3;
        let air = crate::model::Atmosphere::new(air.fried_parameter(), air.wavelength(), layers);
        learned.system = learned.system.to_builder().atmosphere(air.unwrap()).build().unwrap();
        let key = Parameter::Altitude(2);
        let mut words = |warnings: &[FitWarning], error: Option<f64>| {
            learned.warnings = warnings.to_vec();
            let altitude = learned.values.iter_mut().find(|value| value.parameter == key);
            altitude.unwrap().error = error;
            let svg = plot_learned(&learned, &system, "", PictureFormat::Svg).unwrap();
            let words = crate::plot::tests::letters(&svg).0;
            let marked = words.iter().any(|word| word == "learned, altitude not constrained");
            (marked, words.iter().any(|word| word == "80"))
        };
        assert_eq!((words(&[], None), words(&[], Some(500.0))), ((false, true), (false, true)));
        assert_eq!(words(&[], Some(40e3)), (true, false));
        for warning in [
            FitWarning::Idle(key),
            FitWarning::Vague(key),
            FitWarning::Bound(key, 85e3),
            FitWarning::Hardly(vec![(key, 0.7), (Parameter::Strength(2), 0.7)]),
        ] {
            assert_eq!(
                words(&[FitWarning::Vague(Parameter::Strength(0)), warning], None),
                (true, false)
            );
        }
    }
}
