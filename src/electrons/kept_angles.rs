// Tangled from book/src/kept-angles.md: edit there, or here and run cargo tangle stitch.
//! The angles that the detectors and the beam of a sample file need, and the pixel that keeps them.

use super::beam::Beam;
use super::sample_file::{Algorithm, BeamTable, DetectorTable, SampleFile, WaveSampling};
use super::wave_grid::WaveGrid;
use crate::error::{Error, Invalid};
use crate::plausible::WAVE_PIXEL;

// Angles that a run needs
/// An angle that a run needs its waves to keep.
#[derive(Debug, Clone)]
// An angle that a run needs
pub(super) struct NeededAngle {
    /// The table of its key, and the key.
    table: &'static str,
    key: String,
    /// Its value in the file.
    value: String,
    /// The angle along x and y \[mrad\].
    angle: [f64; 2],
    /// Samples of the transform that the largest kept frequency is to be beyond.
    beyond: f64,
    /// Whether a run without it is wrong; else it is only warned of.
    required: bool,
}

impl SampleFile {
    /// All angles that the file needs, those of the beam first.
    fn needed_angles(&self) -> Vec<NeededAngle> {
        let angle = |key: String, value: String, angle: f64, required: bool| NeededAngle {
            table: if key == "aperture" { "imaging" } else { "detector" },
            key,
            value,
            angle: [angle; 2],
            beyond: 0.0,
            required,
        };
        // The aperture of an image
        if self.method.algorithm == Algorithm::Hrtem {
            let aperture = self.imaging.aperture.into_iter();
            return aperture.map(|a| angle("aperture".into(), a.to_string(), a, false)).collect();
        }
        let mut all = vec![self.angle_of_probe()];
        // Angles of the detectors of a file
        let DetectorTable { bin, bins, annuli, segmented, four_d, .. } = &self.detector;
        for (k, &[inner, outer]) in annuli.iter().enumerate().filter(|_| bins.is_none()) {
            let edge = (outer / bin - 1e-9).ceil() * bin * (1.0 + 1e-12);
            all.push(angle(format!("annuli[{k}]"), format!("[{inner}, {outer}]"), edge, true));
        }
        for (k, one) in segmented.iter().enumerate() {
            let range = format!("[{}, {}]", one.inner, one.outer);
            all.push(angle(format!("segmented[{k}]"), range, one.outer, true));
        }
        if let Some(bins) = bins.filter(|_| self.potential.sampling == WaveSampling::Automatic) {
            let edge = bins as f64 * bin;
            all.push(angle("bins".into(), format!("{bins} bins of {bin}"), edge, false));
        }
        if let Some(crop) = four_d.and_then(|four_d| four_d.crop) {
            all.push(angle("four_d.crop".into(), crop.to_string(), crop, false));
        }
        all
    }

    // The angle of the probe's cone
    /// The angle of the cone of the probe.
    fn angle_of_probe(&self) -> NeededAngle {
        let BeamTable { semi_angle, tilt, .. } = self.beam;
        let (key, value) = ("semi_angle".into(), semi_angle.to_string());
        let angle = tilt.map(|tilt| tilt.abs() + semi_angle);
        NeededAngle { table: "beam", key, value, angle, beyond: 0.5, required: true }
    }
}
// Samples that an angle needs
impl NeededAngle {
    /// Samples across a cell of these sides \[Å\] with which waves keep the angle along an axis.
    fn samples(&self, beam: &Beam, sides: [f64; 2], axis: usize) -> f64 {
        4.0 * (beam.frequency(self.angle[axis]) * sides[axis] * (1.0 - 1e-12) + self.beyond)
    }

    /// The axis along which a grid does not keep the angle, if there is one, and the largest angle that it keeps there \[mrad\].
    fn missing(&self, beam: &Beam, grid: &WaveGrid) -> Option<(usize, f64)> {
        let (sides, points) = (grid.lengths(), grid.points());
        let kept =
            |axis: usize| beam.angle((points[axis] as f64 / 4.0 - self.beyond) / sides[axis]);
        let axis = (0..2).find(|&axis| self.samples(beam, sides, axis) > points[axis] as f64)?;
        let of_beam = self.table == "beam";
        Some((axis, if of_beam { kept(axis) } else { kept(0).min(kept(1)) }))
    }
}
// Choose the pixel from the largest angle
/// The coarsest and the finest pixel that are chosen \[Å\].
const CHOSEN: [f64; 2] = [0.1, 0.02];

impl SampleFile {
    /// The grid across a cell of these sides \[Å\], for PRISM with a factor, that keeps all needed angles, if pixels of 0.02 Å do.
    pub(super) fn automatic_grid(
        &self,
        sides: [f64; 2],
        factor: [usize; 2],
    ) -> Result<WaveGrid, Invalid> {
        let [coarse, fine] = CHOSEN.map(|pixel| WaveGrid::with_pixel([pixel; 2], sides, factor));
        let (coarse, needed) = (coarse?, self.needed_angles());
        let Ok(fine) = fine else { return Ok(coarse) };
        let beam = Beam::new(self.beam.energy_kev)?;
        // Samples along an axis
        let along = |axis: usize| {
            let samples = |one: &NeededAngle| one.samples(&beam, sides, axis);
            let least = needed.iter().map(samples).fold(0.0, f64::max);
            let [least_of, most] = [coarse, fine].map(|grid| grid.points()[axis]);
            if least <= least_of as f64 {
                return least_of;
            }
            let unit = 4 * factor[axis];
            let units = (least.min(most as f64) / unit as f64).ceil() as usize;
            let good = (units..2 * units).find(|&n| has_small_factors(n)).unwrap_or(units);
            (unit * good).min(most)
        };
        WaveGrid::new([along(0), along(1)], sides)
    }
}

// Numbers with small factors
/// Whether a number is a product of 2, 3, 5 and 7.
fn has_small_factors(n: usize) -> bool {
    let without = |mut n: usize, factor: usize| {
        while n.is_multiple_of(factor) {
            n /= factor;
        }
        n
    };
    n > 0 && [2, 3, 5, 7].into_iter().fold(n, without) == 1
}
// Propose a pixel or a grid
impl SampleFile {
    /// The key and the value with which a file that has this grid keeps these angles; `grid_of` has the grid of another sampling.
    fn remedy(
        &self,
        needed: &[NeededAngle],
        grid: &WaveGrid,
        factor: [usize; 2],
        grid_of: &dyn Fn(WaveSampling) -> Result<WaveGrid, Error>,
    ) -> Option<String> {
        let beam = Beam::new(self.beam.energy_kev).ok()?;
        // Samples that all angles need
        let least = |axis: usize| {
            let samples = |one: &NeededAngle| one.samples(&beam, grid.lengths(), axis);
            needed.iter().map(samples).fold(grid.points()[axis] as f64, f64::max)
        };
        let keeps = |sampling: WaveSampling| {
            let grid = grid_of(sampling).ok();
            grid.is_some_and(|grid| needed.iter().all(|one| one.missing(&beam, &grid).is_none()))
        };
        // Propose a grid with more points
        if let WaveSampling::Points(_) = self.potential.sampling {
            let points = [0, 1].map(|axis| {
                let unit = 4 * factor[axis];
                unit * (least(axis) / unit as f64).ceil() as usize
            });
            return keeps(WaveSampling::Points(points))
                .then(|| format!("potential.grid = {points:?}"));
        }
        // Propose a smaller pixel
        let mut pixel = (0..2).map(|axis| grid.lengths()[axis] / least(axis)).fold(1e3, f64::min);
        while pixel > WAVE_PIXEL.accepted[0] {
            let unit = 10f64.powf(pixel.log10().floor() - 2.0);
            let rounded: f64 = format!("{:.6}", (pixel / unit).floor() * unit).parse().ok()?;
            if keeps(WaveSampling::Pixel([rounded; 2])) {
                return Some(format!("potential.pixel = {rounded}"));
            }
            pixel = 0.98 * rounded;
        }
        None
    }
}
// Refuse angles that the grid does not keep
impl SampleFile {
    /// Refuses required angles that a grid does not keep, with a key and a value that keep them; warns of the others.
    ///
    /// # Errors
    /// [`Error::SystemFile`] with the line of the angle.
    pub(super) fn check_kept_angles(
        &self,
        grid: &WaveGrid,
        factor: [usize; 2],
        grid_of: &dyn Fn(WaveSampling) -> Result<WaveGrid, Error>,
    ) -> Result<Vec<String>, Error> {
        let (needed, beam) = (self.needed_angles(), Beam::new(self.beam.energy_kev)?);
        let mut warnings = Vec::new();
        for one in &needed {
            let Some((axis, kept)) = one.missing(&beam, grid) else { continue };
            let together: Vec<NeededAngle> = needed
                .iter()
                .filter(|other| other.required || other.key == one.key)
                .cloned()
                .collect();
            let remedy = self.remedy(&together, grid, factor, grid_of);
            let remedy = remedy.map_or_else(
                || "no pixel that waves can have keeps it".into(),
                |remedy| format!("{remedy} keeps it"),
            );
            if one.required && one.table == "beam" && self.beam.tilt[axis].abs() >= kept {
                let expected = format!(
                    "at most {kept:.3} mrad along {}, with the semi-angle: the grid keeps no larger angles; {remedy}",
                    ["x", "y"][axis]
                );
                let (key, tilt) = (format!("tilt[{axis}]"), self.beam.tilt[axis]);
                return Err(self.refuse_in("beam", Invalid::new(key, tilt, expected)));
            }
            if one.required {
                let expected = one.expected(["x", "y"][axis], kept, self.beam.tilt[axis].abs());
                let invalid = Invalid::new(&one.key, &one.value, format!("{expected}; {remedy}"));
                return Err(self.refuse_in(one.table, invalid));
            }
            warnings.push(format!(
                "{}.{} = {} is beyond {kept:.3} mrad, the largest angle that the samples keep; {remedy}",
                one.table, one.key, one.value
            ));
        }
        Ok(warnings)
    }
}

impl NeededAngle {
    /// What is expected where a grid keeps no more than the angle `kept` \[mrad\] along an axis.
    fn expected(&self, axis: &str, kept: f64, tilt: f64) -> String {
        if self.table != "beam" {
            return format!("angles of at most {kept:.3} mrad, which the grid keeps");
        }
        let most = kept - tilt;
        format!(
            "at most {most:.3} mrad along {axis}, beside a tilt of {tilt} mrad: the grid keeps no larger angles"
        )
    }
}
// Name the angle of the chosen pixel
impl SampleFile {
    /// The angle for which the pixel of a file that states none was chosen below 0.1 Å, with its key.
    pub(super) fn reason_of_pixel(&self, grid: &WaveGrid) -> Option<String> {
        let chosen = self.potential.sampling == WaveSampling::Automatic;
        let finer = chosen && grid.pixel().iter().any(|pixel| *pixel < 0.9 * CHOSEN[0]);
        let widest = |one: &NeededAngle| one.angle[0].max(one.angle[1]);
        let needed = self.needed_angles().into_iter().filter(|_| finer);
        let largest = needed.max_by(|a, b| widest(a).total_cmp(&widest(b)))?;
        Some(format!("{}.{} = {}", largest.table, largest.key, largest.value))
    }
}
// Tests of kept angles
#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "sample = { file = 'SI100.XYZ', tile = [3, 2, 1] }\nbeam = { energy_kev = 200.0, semi_angle = 20.0 }\n";

    fn file(more: &str) -> SampleFile {
        SampleFile::from_toml(&format!("{SMALL}{more}"), "book/systems/small.toml").unwrap()
    }

    // A file without a pixel keeps its angles
    #[test]
    fn a_file_without_a_pixel_keeps_its_angles() {
        let points = |more: &str| {
            let (plan, summary) = file(more).plan_with_summary().unwrap();
            (plan.options().grid.points(), plan.detectors().widest(), summary.pixel_for)
        };
        // Without large angles the pixel is that of 0.1 Å
        assert_eq!(
            points(""),
            (
                WaveGrid::with_pixel([0.1; 2], [16.29, 10.86], [1; 2]).unwrap().points(),
                points("").1,
                None
            )
        );
        for outer in [63.0, 100.5, 150.0, 200.0, 300.0] {
            let ([nx, ny], widest, reason) =
                points(&format!("detector.annuli = [[40.0, {outer}]]"));
            assert!(widest >= outer && widest < 1.2 * outer + 3.0, "{outer}: {widest}");
            assert!(outer < 100.0 || has_small_factors(nx / 4) && has_small_factors(ny / 4));
            let named = (outer > 100.0).then(|| format!("detector.annuli[0] = [40, {outer}]"));
            assert_eq!(reason, named);
        }
        let segmented = points("detector.segmented = [{ inner = 10, outer = 120 }]");
        assert!(segmented.1 >= 120.0);
        let cut = points("detector.four_d = { crop = 130.0 }");
        assert!(cut.1 >= 130.0);
        let tilted = "beam = { energy_kev = 200.0, semi_angle = 60.0, tilt = [0.0, 40.0] }";
        let text = SMALL.replace("beam = { energy_kev = 200.0, semi_angle = 20.0 }", tilted);
        let tilted =
            SampleFile::from_toml(&text, "book/systems/small.toml").unwrap().plan().unwrap();
        assert!(tilted.detectors().widest() > 60.0);
        // An aperture of a plane wave
        let plane =
            file("method.algorithm = 'hrtem'\nimaging.aperture = 90.0").hrtem_with_summary();
        let (plan, summary) = plane.unwrap();
        assert!(summary.largest_angle >= 90.0 && summary.warnings.is_empty());
        assert_eq!(summary.pixel_for.unwrap(), "imaging.aperture = 90");
        assert!(plan.options().grid.pixel()[0] < 0.07);
        // A pixel that is stated is kept
        let stated =
            file("potential.pixel = 0.1\nmethod.algorithm = 'hrtem'\nimaging.aperture = 90.0");
        let (plan, summary) = stated.hrtem_with_summary().unwrap();
        assert!(plan.options().grid.pixel()[0] > 0.09 && summary.pixel_for.is_none());
        assert!(summary.warnings[0].contains("potential.pixel = 0.0"), "{:?}", summary.warnings);
    }
    // Proposals of pixels and grids are accepted
    #[test]
    fn proposals_of_pixels_and_grids_are_accepted() {
        let prism = "method = { algorithm = 'prism', interpolation_check = 'warn' }\n";
        for method in ["", prism] {
            for sampling in
                ["pixel = 0.1", "pixel = [0.2, 0.1]", "pixel = 0.25", "grid = [160, 104]"]
            {
                for detector in [
                    "annuli = [[60.0, 100.0]]",
                    "annuli = [[20.0, 40.0], [60.0, 151.7]]\nsegmented = [{ inner = 1, outer = 170 }]",
                    "segmented = [{ inner = 10, outer = 120.5 }]\nfour_d = { crop = 300.0 }",
                ] {
                    let text = |potential: &str| {
                        format!("{method}[potential]\n{potential}\n[detector]\n{detector}\n")
                    };
                    let Err(refused) = file(&text(sampling)).plan() else {
                        panic!("{sampling} keeps {detector}")
                    };
                    let refused = refused.to_string();
                    let (_, proposal) = refused.split_once("; potential.").unwrap();
                    let (proposal, _) = proposal.split_once(" keeps it").unwrap();
                    assert_eq!(proposal.split(' ').next(), sampling.split(' ').next(), "{refused}");
                    let plan = file(&text(proposal)).plan();
                    assert!(
                        plan.is_ok(),
                        "{refused}: {:?}",
                        plan.err().map(|error| error.to_string())
                    );
                }
            }
        }
        // A beam beyond a coarse grid, and an angle beyond every grid
        let coarse = file("potential.pixel = 0.6").plan().err().unwrap().to_string();
        assert!(
            coarse.contains("small.toml:2: beam.semi_angle = 20.0: expected at most"),
            "{coarse}"
        );
        let (_, proposal) = coarse.split_once("potential.pixel = ").unwrap();
        let proposal = proposal.split(' ').next().unwrap();
        assert!(file(&format!("potential.pixel = {proposal}")).plan().is_ok(), "{coarse}");
        let vast = file("detector.annuli = [[60.0, 2000.0]]").plan().err().unwrap().to_string();
        assert!(
            vast.contains("no pixel that waves can have") || vast.contains("potential.pixel"),
            "{vast}"
        );
    }
}
