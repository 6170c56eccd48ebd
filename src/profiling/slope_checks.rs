// Tangled from book/src/slope-checks.md: edit there, or here and run cargo tangle stitch.
//! Plausibility of the unit and the order of slopes that a system is learned from.

// Imports of checks of slopes
use crate::error::{Error, Invalid};
use crate::linear::times_transpose;
use crate::model::lenslet_array::SlopeArrangement;
use crate::profiling::covariance_maps::{MapLayout, SlopeMaps};
use crate::profiling::fit::LearnPlan;
use crate::units::{ARCSEC, DEGREE};
use crate::watch::Watch;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

// Maps of stars with themselves
/// The maps of stars with themselves, without mean and zero lag, times √ω.
fn own_maps(layout: &MapLayout, values: &Array1<f64>) -> Array1<f64> {
    let mut own = Vec::new();
    for pair in layout.pairs().iter().filter(|pair| pair.is_own()) {
        for axes in 0..4 {
            let lags = pair
                .counts()
                .indexed_iter()
                .filter(|((j, i), count)| **count > 0.0 && [*j, *i] != [pair.lags() / 2; 2]);
            let at = |[j, i]: [usize; 2]| values[pair.range().start + pair.place(axes, [j, i])];
            let elements: Vec<(f64, f64)> =
                lags.map(|((j, i), count)| (*count, at([j, i]))).collect();
            let sum: f64 = elements.iter().map(|(count, _)| count).sum();
            let mean = elements.iter().map(|(count, x)| count * x / sum).sum::<f64>();
            own.extend(elements.iter().map(|(count, x)| count.sqrt() * (x - mean)));
        }
    }
    Array1::from(own)
}

// Strength and unexplained share of a model
/// x and υ of Eq. [explained share](https://lenslet.github.io/lenslet/slope-checks.html#eq-explained-share).
fn strength_and_unexplained(model: &Array1<f64>, measured: &Array1<f64>) -> (f64, f64) {
    let product = model.dot(measured);
    let [of_model, of_measured] = [model.dot(model), measured.dot(measured)];
    (product / of_model, 1.0 - product.abs() * product / (of_model * of_measured))
}

// Check the unit of slopes
// Units that slopes may have
/// Units that slopes may have, with the option that states them and their size in rad; metres are those of a lenslet of 1 m.
pub const UNITS_OF_SLOPES: [(&str, &str, f64); 8] = [
    ("radians", "--unit rad", 1.0),
    ("arcsec", "--unit arcsec", ARCSEC),
    ("milliarcseconds", "--unit mas", 1e-3 * ARCSEC),
    ("milliradians", "--unit mrad", 1e-3),
    ("microradians", "--unit urad", 1e-6),
    ("degrees", "--unit deg", DEGREE),
    ("metres of wavefront across a lenslet", "--unit m", 1.0),
    ("nanometres of wavefront across a lenslet", "--unit nm", 1e-9),
];

/// How much less plausible radians may be than another unit.
const IMPLAUSIBLE: f64 = 3.3;

impl LearnPlan {
    /// Refuses maps of slopes that are hardly in radians.
    ///
    /// # Errors
    /// `Invalid`, with the probable unit and the option that states it; those of the covariances.
    pub fn check_unit(&self, maps: &SlopeMaps, watch: &dyn Watch) -> Result<(), Error> {
        let expected = self.expected(watch)?;
        let own = [&expected, maps].map(|maps| own_maps(&maps.layout, &maps.values));
        let (strength, _) = strength_and_unexplained(&own[0], &own[1]);
        let air = self.system().atmosphere();
        let start = air.fried_parameter();
        let r0 = start * strength.powf(-0.6);
        if !(strength > 0.0 && r0 > 0.0 && r0.is_finite()) {
            return Ok(());
        }
        // Plausibility of each unit
        let at_500 = (500e-9 / air.wavelength()).powf(1.2);
        let implausible = |r0: f64| {
            let known = [(r0 * at_500 / 0.13).ln() / 0.45, (r0 / start).ln() / 0.5];
            0.5 * (known[0] * known[0] + known[1] * known[1])
        };
        let side = self.system().sensors().first().map_or(1.0, |sensor| sensor.side());
        let units = UNITS_OF_SLOPES.map(|(name, option, radians)| {
            let across = if name.contains("lenslet") { side } else { 1.0 };
            (name, option, r0 * (radians / across).powf(-1.2))
        });
        let best =
            units.iter().min_by(|one, other| implausible(one.2).total_cmp(&implausible(other.2)));
        // Refuse an implausible unit
        let possible = (0.005..3.0).contains(&(r0 * at_500));
        let (name, option, fitting) = *best.unwrap_or(&units[0]);
        if implausible(r0) - implausible(fitting) > IMPLAUSIBLE || !possible {
            let pixel = (r0 / start).powf(5.0 / 6.0) / ARCSEC;
            let probable = if implausible(fitting) < 10.0 {
                format!("the slopes are probably in {name} (r0 = {fitting:.3} m): give {option}")
            } else {
                "give --unit, if they are in another unit".into()
            };
            let pixels = if (0.01..20.0).contains(&pixel) {
                format!("; or in pixels of about {pixel:.2} arcsec: give --pixel-scale")
            } else {
                String::new()
            };
            let expected = format!(
                "slopes in radians of the open loop, that is r0 near {start} m; {probable}{pixels}; if they are in radians: --unit rad"
            );
            return Err(Invalid::new("r0 of the slopes", format!("{r0:.2e} m"), expected).into());
        }
        Ok(())
    }
}

// Check the order of slopes
impl LearnPlan {
    // Shares unexplained by each order
    /// Shares of the maps of stars with themselves that are not explained, υ of Eq. [explained share](https://lenslet.github.io/lenslet/slope-checks.html#eq-explained-share), if the slopes (frames, n), rad, had each of the arrangements.
    ///
    /// # Errors
    /// Those of the covariances.
    pub fn unexplained_by_order(
        &self,
        slopes: ArrayView2<f64>,
        watch: &dyn Watch,
    ) -> Result<Vec<(SlopeArrangement, f64)>, Error> {
        let expected = self.expected(watch)?;
        let layout = &expected.layout;
        let model = own_maps(layout, &expected.values);
        let mean = slopes.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(slopes.ncols()));
        let about: Array2<f64> = &slopes - &mean;
        // Covariances of the slopes of stars
        let pairs = layout.pairs().iter().filter(|pair| pair.is_own());
        let products: Vec<(_, Array2<f64>)> = pairs
            .map(|pair| {
                let own = about.slice(s![.., layout.slopes(pair.stars[0])]).reversed_axes();
                (pair, times_transpose(&own, &own) / slopes.nrows() as f64)
            })
            .collect();
        let unexplained = |arrangement: SlopeArrangement| {
            let mut values = Array1::zeros(layout.len());
            for (pair, product) in &products {
                let places = arrangement.places(layout.order().lenslets(pair.stars[0]));
                let ordered = product.select(Axis(0), &places).select(Axis(1), &places);
                values.slice_mut(s![pair.range()]).assign(&layout.average(pair, ordered));
            }
            strength_and_unexplained(&model, &own_maps(layout, &values)).1
        };
        Ok(SlopeArrangement::NAMES.map(|(_, _, one)| (one, unexplained(one))).to_vec())
    }

    // Refuse slopes in another order
    /// Refuses slopes that another order explains much better.
    ///
    /// # Errors
    /// `Invalid`, with the order that fits; those of the covariances.
    pub fn check_order(&self, slopes: ArrayView2<f64>, watch: &dyn Watch) -> Result<(), Error> {
        let all = self.unexplained_by_order(slopes, watch)?;
        let given = all[0].1;
        let best = all.iter().min_by(|one, other| one.1.total_cmp(&other.1)).copied();
        let Some((best, share)) = best.filter(|(_, share)| given > 0.1 && *share < 0.6 * given)
        else {
            return Ok(());
        };
        let named = SlopeArrangement::NAMES.iter().find(|(_, _, one)| *one == best);
        let (name, about) = named.map_or(("", ""), |(name, about, _)| (*name, *about));
        let value = format!(
            "all x before all y, row by row, which leaves {:.0} % of their maps unexplained",
            100.0 * given
        );
        let expected = format!(
            "--order {name}, as the slopes are probably in this order: {about} (unexplained: {:.0} %); to keep the order: --order rows",
            100.0 * share
        );
        Err(Invalid::new("order of the slopes", value, expected).into())
    }
}

// Tests of checks of slopes
#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimation::simulation::{Sampling, Simulation};
    use crate::model::System;
    use crate::profiling::fit::LearnOptions;
    use crate::watch::unwatched;

    const SYSTEM: &str = "
        [atmosphere]\nr0 = 0.15\nouter_scale = 25.0
        layers = [{ altitude = 0.0, fraction = 0.6 }, { altitude = 4000.0, fraction = 0.4 }]
        [telescope]\ndiameter = 1.5\nobstruction = 0.2
        [lenslet_array]\nlenslets = 6\nvalid_threshold = 0.4
        [[guide_star]]\nzenith = 30.0\nnoise = 2e-14
        [[guide_star]]\nzenith = 30.0\nazimuth = 140.0\nnoise = 1e-14\ntip_tilt = \"removed\"\n";

    /// A plan, and 60 frames of its system.
    fn simulated() -> (LearnPlan, Array2<f64>) {
        let system = System::from_toml(SYSTEM, "s.toml").unwrap();
        let sampling = Sampling { period: 1.2, growth: 0.6, highest: 15.0 };
        let simulation = Simulation::with_sampling(&system, &sampling).unwrap();
        let mut slopes = Array2::zeros((60, simulation.order().len()));
        for (t, mut frame) in slopes.rows_mut().into_iter().enumerate() {
            frame.assign(&Array1::from(simulation.realisation(1000 * t as u64).slopes));
        }
        let start = SYSTEM.replace("r0 = 0.15", "r0 = 0.2");
        let start = System::from_toml(&start, "start.toml").unwrap();
        (LearnPlan::new(&start, LearnOptions::default()).unwrap(), slopes)
    }

    // Slopes in other units are refused
    #[test]
    fn slopes_in_other_units_are_refused_by_name() {
        let (plan, slopes) = simulated();
        let check = |factor: f64| {
            let slopes = &slopes * factor;
            let maps = SlopeMaps::measure(plan.system(), slopes.view(), &unwatched).unwrap();
            plan.check_unit(&maps, &unwatched).map_err(|error| error.to_string())
        };
        assert_eq!(check(1.0), Ok(()));
        // Half and twice the r0 are the air's.
        assert_eq!([check(0.6), check(1.8)], [Ok(()), Ok(())]);
        for (name, option, radians) in UNITS_OF_SLOPES.into_iter().skip(1) {
            let across = if name.contains("lenslet") { 0.25 } else { 1.0 };
            let said = check(across / radians).unwrap_err();
            assert!(said.contains(&format!("in {name} ")) && said.contains(option), "{said}");
        }
        let said = check(1.0 / (0.4 * ARCSEC)).unwrap_err();
        assert!(said.contains("--pixel-scale"), "{said}");
    }

    // Slopes in another order are refused
    #[test]
    fn slopes_in_another_order_are_refused_by_name() {
        let (plan, slopes) = simulated();
        for (name, _, arrangement) in SlopeArrangement::NAMES {
            let order = plan.layout().order();
            let mut stored = slopes.clone();
            for star in [0, 1] {
                let first = order.index(star, 0, 0);
                let places = arrangement.places(order.lenslets(star));
                for (k, place) in places.into_iter().enumerate() {
                    stored.column_mut(first + place).assign(&slopes.column(first + k));
                }
            }
            let checked = plan.check_order(stored.view(), &unwatched);
            if arrangement == SlopeArrangement::Rows {
                assert!(checked.is_ok(), "{checked:?}");
                continue;
            }
            let said = checked.unwrap_err().to_string();
            assert!(said.contains(&format!("--order {name},")), "{said}");
        }
    }
}
