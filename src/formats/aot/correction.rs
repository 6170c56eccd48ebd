// Tangled from book/src/telemetry-loops.md: edit there, or here and run cargo tangle stitch.
//! Mirrors and loops in telemetry.

// Imports of mirrors in telemetry
use crate::correction::mirror::Mirror;
use crate::correction::modes::{Correction, CorrectionMode, CorrectionOptions};
use crate::error::{Error, Invalid, accept};
use crate::formats::aot::system::{TelemetrySystem, sensor_name, slopes_of_star};
use crate::formats::aot::{RowOf, Telemetry, TelemetryFile};
use crate::model::control::{ControlLoop, LoopKind};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::mirror::{ActuatorLayout, MirrorDesign, Spacing};
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use ndarray::{Array2, Array3, ArrayView2, Axis, arr2};

// Add mirrors and their loops
impl<'a> Telemetry<'a> {
    /// Adds the mirrors of a correction to telemetry of its system, and for each mirror and sensor a loop with its control matrix: a part of
    /// [`commands`](Correction::commands), which is not copied. With a mirror for each target there is a matrix for each, else one for all.
    ///
    /// # Errors
    /// `Invalid` where the matrices are not those of this correction.
    pub fn add_correction(
        &mut self,
        correction: &Correction,
        mode: CorrectionMode,
        commands: &'a [Array2<f64>],
        control: Option<&ControlLoop>,
    ) -> Result<(), Invalid> {
        // Mode and mirrors of a correction
        let name = CorrectionMode::NAMES.iter().find(|(_, known)| *known == mode);
        self.set_mode(name.map_or("", |(name, _)| name));
        let order = SlopeOrder::new(&correction.system().valid_lenslets());
        let mut first = 0; // actuator of a matrix for all mirrors
        let designs = correction.mirrors();
        let each = mode == CorrectionMode::Moao;
        let count = if each { correction.targets() } else { designs.len() };
        for k in 0..count {
            let mirror = &designs[k.min(designs.len() - 1)];
            // Add one mirror and its loops
            let name = format!("MIRROR {k}");
            self.add_mirror(&name, mirror);
            // Take the strokes of a mirror
            let all = commands.get(if each { k } else { 0 });
            let rows = first..first + mirror.positions().len();
            let whole = all.map(|all| all.view()).filter(|all| {
                rows.end <= all.nrows() && all.ncols() == order.len() && all.is_standard_layout()
            });
            let expected =
                format!("strokes of {} actuators for {} slopes, row by row", rows.end, order.len());
            let given = all.map_or((0, 0), Array2::dim);
            let refuse = || Invalid::new("commands", format!("{given:?}"), expected);
            let part = whole.ok_or_else(refuse)?.slice_move(ndarray::s![rows.clone(), ..]);
            self.add_loops((k, &name), &part, (&order, "CONTROL_MATRIX", "m rad^-1"), control);
            if !each {
                first = rows.end;
            }
        }
        Ok(())
    }

    // Add a mirror to telemetry
    fn add_mirror(&mut self, name: &str, mirror: &Mirror) {
        let (image, pitch) = (format!("{name} TRANSFORMATION"), mirror.pitch());
        let row = self.row("AOT_WAVEFRONT_CORRECTORS", name);
        row.text("TYPE", "Deformable Mirror").row("TELESCOPE_UID", "TELESCOPE");
        row.number("N_VALID_ACTUATORS", mirror.positions().len() as f64);
        row.image("TRANSFORMATION_MATRIX", &image);
        let along = |axis: usize| mirror.positions().iter().map(|place| place[axis]).collect();
        let row = self.row("AOT_WAVEFRONT_CORRECTORS_DM", name);
        row.list("ACTUATORS_X", along(0)).list("ACTUATORS_Y", along(1));
        let nothing = arr2(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
        let entry = self.images.add(&image, nothing.insert_axis(Axis(2)));
        entry.dimensions("row, column, instant").attribute("PITCH", pitch);
        entry.attribute("ALTITUDE", mirror.altitude()).attribute("FILTER", mirror.filter());
        entry.attribute("COUPLING", mirror.influence([0.0, pitch]));
    }

    // Add the loops of a mirror
    /// Adds the loops from all sensors to corrector `k` of a name, with the parts of a matrix in a column, in a unit.
    fn add_loops(
        &mut self,
        (k, corrector): (usize, &str),
        matrix: &ArrayView2<'a, f64>,
        (order, column, unit): (&SlopeOrder, &'static str, &str),
        control: Option<&ControlLoop>,
    ) {
        let stars = self.rows("AOT_WAVEFRONT_SENSORS");
        for q in 0..stars {
            let (name, image) = (format!("LOOP {k} {q}"), format!("LOOP {k} {q} {column}"));
            let row = self.row("AOT_LOOPS", &name);
            row.text("TYPE", "Control Loop").row("COMMANDED_UID", corrector);
            // State of a loop in telemetry
            if let Some(control) = control {
                let closed = control.kind == LoopKind::Closed;
                row.text("STATUS", if closed { "Closed" } else { "Open" });
                row.number("FRAMERATE", control.rate).number("DELAY", control.delay);
                if closed {
                    row.image("TIME_FILTER_NUM", "LOOP GAIN");
                }
            }
            let row = self.row("AOT_LOOPS_CONTROL", &name);
            row.row("INPUT_SENSOR_UID", &sensor_name(q)).image(column, &image);
            let part = slopes_of_star(matrix, order.index(q, 0, 0), order.lenslets(q).len());
            self.images
                .add_result(&image, part)
                .unit(unit)
                .dimensions("stroke, component, lenslet");
        }
        // Write the gain of a loop
        if let (0, Some(control)) = (k, control.filter(|control| control.kind == LoopKind::Closed))
        {
            self.images.add("LOOP GAIN", arr2(&[[control.gain]])).dimensions("mode, coefficient");
        }
    }
}

// Add the loops of a reconstructor
impl<'a> Telemetry<'a> {
    /// Adds a reconstructor, (T, m, n), to telemetry of a system without mirrors: for each target and sensor a loop whose modes are the slopes of the truth sensor. It is not
    /// copied.
    ///
    /// # Errors
    /// `Invalid` where it is that of another system.
    pub fn add_reconstructor(
        &mut self,
        system: &System,
        reconstructor: &'a Array3<f64>,
    ) -> Result<(), Invalid> {
        let order = SlopeOrder::new(&system.valid_lenslets());
        let (targets, _, n) = reconstructor.dim();
        let good = targets == system.targets().len()
            && n == order.len()
            && reconstructor.is_standard_layout();
        let expected = format!("{} targets and {} slopes", system.targets().len(), order.len());
        accept(good, "reconstructor", reconstructor.dim(), &expected)?;
        for (t, matrix) in reconstructor.outer_iter().enumerate() {
            let name = format!("TRUTH {t}");
            let row = self.row("AOT_WAVEFRONT_CORRECTORS", &name);
            row.text("TYPE", "Deformable Mirror").row("TELESCOPE_UID", "TELESCOPE");
            self.row("AOT_WAVEFRONT_CORRECTORS_DM", &name);
            self.add_loops((t, &name), &matrix, (&order, "MEASUREMENTS_TO_MODES", ""), None);
        }
        Ok(())
    }
}

// Read mirrors of telemetry
impl TelemetrySystem {
    /// The system that telemetry tells, with its mirrors, their mode and their loop, as far as a system file can say them.
    ///
    /// # Errors
    /// As [`of`](Self::of); where places of actuators or numbers of the loop make no sense.
    pub fn with_correction(file: &TelemetryFile) -> Result<Self, Error> {
        let mut imported = Self::of(file)?;
        let name = file.path().display().to_string();
        let system = System::from_toml(&imported.text, &name)?;
        let mode = file.mode().replace("SLAO", "SCAO").to_ascii_lowercase();
        let several = mode == "mcao";
        let mut mirrors: Vec<(String, Vec<[f64; 2]>)> = Vec::new();
        for row in file.table("AOT_WAVEFRONT_CORRECTORS") {
            let (uid, places) = (row.uid(), places_of(&row)?);
            let same = mirrors.first().is_some_and(|(_, first)| *first == places);
            if places.is_empty() {
                imported
                    .notes
                    .push(format!("not used: {uid}, which does not tell where its actuators are"));
            } else if !mirrors.is_empty() && !several {
                if !same {
                    imported
                        .notes
                        .push(format!("not used: {uid}, as {} has one mirror", file.mode()));
                }
            } else {
                match design_of(&row, &places, &system)? {
                    Some(text) => mirrors.push((format!("\n[[mirror]]  # {uid}\n{text}"), places)),
                    None => imported.notes.push(format!("not used: {uid}, whose actuators are on no grid that a mirror can have here")),
                }
            }
        }
        if !mirrors.is_empty() && !system.targets().is_empty() {
            if !CorrectionMode::NAMES.iter().any(|(known, _)| *known == mode) {
                return Err(file.refuse(
                    "AO-MODE",
                    file.mode(),
                    "SCAO, SLAO, GLAO, MOAO, LTAO or MCAO",
                ));
            }
            imported.text += &format!("\n[correction]\nmode = {mode:?}\n");
            imported.text.extend(mirrors.into_iter().map(|(text, _)| text));
        }
        imported.text += &control_of(file, &mut imported.notes)?;
        CorrectionOptions::from_system_file(&SystemFile::from_toml(&imported.text, &name)?)?;
        Ok(imported)
    }
}

// Places of actuators
/// Positions of the actuators of a corrector \[m\]; empty if the file has none.
fn places_of(row: &RowOf) -> Result<Vec<[f64; 2]>, Error> {
    let Some(more) = row.more("AOT_WAVEFRONT_CORRECTORS_DM") else { return Ok(Vec::new()) };
    let [x, y] = [more.list("ACTUATORS_X")?, more.list("ACTUATORS_Y")?];
    let value = format!("{} and {}", x.len(), y.len());
    if x.len() != y.len() || x.iter().chain(&y).any(|place| !place.is_finite()) {
        return Err(more.refuse("ACTUATORS_X", value, "as many finite places along x as along y"));
    }
    let count = row.number("N_VALID_ACTUATORS")?;
    if !x.is_empty() && count.is_some_and(|count| count != x.len() as f64) {
        return Err(row.refuse(
            "N_VALID_ACTUATORS",
            count.unwrap_or_default(),
            &format!("{}, the number of places", x.len()),
        ));
    }
    Ok(x.into_iter().zip(y).map(|(x, y)| [x, y]).collect())
}

// Find the design of a mirror
/// The keys of a mirror with actuators at these places, if there is one.
fn design_of(row: &RowOf, places: &[[f64; 2]], system: &System) -> Result<Option<String>, Error> {
    let card = |key: &str| -> Result<Option<f64>, Error> {
        let number = row.card("TRANSFORMATION_MATRIX", key)?;
        Ok(number.and_then(|number| number.parse().ok()).filter(|x: &f64| x.is_finite()))
    };
    let gap = |a: &[f64; 2], b: &[f64; 2]| f64::hypot(a[0] - b[0], a[1] - b[1]);
    let nearest =
        places[1..].iter().map(|place| gap(place, &places[0])).fold(f64::INFINITY, f64::min);
    let pitch = card("PITCH")?.unwrap_or(nearest);
    let Some(pupil) = system.pupil().filter(|_| pitch > 0.0 && pitch.is_finite()) else {
        return Ok(None);
    };
    let altitude = card("ALTITUDE")?.unwrap_or(0.0);
    let (coupling, filter) = (card("COUPLING")?.unwrap_or(0.2), card("FILTER")?.unwrap_or(0.03));
    // Radii of kept actuators
    let field = system
        .targets()
        .iter()
        .map(|target| f64::hypot(target.direction()[0], target.direction()[1]));
    let radius = 0.5 * pupil.diameter() + altitude * field.fold(0.0, f64::max);
    let radii = || places.iter().map(|[x, y]| f64::hypot(*x, *y));
    let (least, most) = (radii().fold(f64::INFINITY, f64::min), radii().fold(0.0, f64::max));
    let kept = [least - 1e-6 * pitch, most + 1e-6 * pitch].map(|r| r / radius);
    // Try the designs of a mirror
    let across = pupil.diameter() / pitch + 1.0;
    let whole = (across - across.round()).abs() < 1e-9 * across;
    let spacings =
        [whole.then_some(Spacing::Actuators(across.round() as usize)), Some(Spacing::Pitch(pitch))];
    for spacing in spacings.into_iter().flatten() {
        for layout in [ActuatorLayout::Square, ActuatorLayout::Hexagonal] {
            for kept in [None, Some(kept)] {
                let plain = MirrorDesign::new(spacing);
                let design = MirrorDesign { layout, altitude, coupling, filter, kept, ..plain };
                let mirror = Mirror::new(&design, system);
                if mirror.is_ok_and(|mirror| same_places(mirror.positions(), places, 1e-6 * pitch))
                {
                    return Ok(Some(keys_of(&design)));
                }
            }
        }
    }
    Ok(None)
}

// Read the loop of telemetry
/// Whether two lists of places are the same but for their order and a small distance.
fn same_places(some: &[[f64; 2]], others: &[[f64; 2]], distance: f64) -> bool {
    let key = |[x, y]: &[f64; 2]| [y, x].map(|along| (along / (10.0 * distance)).round() as i64);
    let sorted = |places: &[[f64; 2]]| {
        let mut keys: Vec<_> = places.iter().map(key).collect();
        keys.sort_unstable();
        keys
    };
    let near = |(a, b): (&[i64; 2], &[i64; 2])| (0..2).all(|k| (a[k] - b[k]).abs() <= 1);
    some.len() == others.len() && sorted(some).iter().zip(&sorted(others)).all(near)
}

/// The keys of a design.
fn keys_of(design: &MirrorDesign) -> String {
    let mut text = match design.spacing {
        Spacing::Actuators(count) => format!("actuators = {count}\n"),
        Spacing::Pitch(pitch) => format!("pitch = {pitch:?}\n"),
    };
    if design.layout == ActuatorLayout::Hexagonal {
        text += "layout = \"hexagonal\"\n";
    }
    if let Some([inner, outer]) = design.kept {
        text += &format!("kept = [{inner:?}, {outer:?}]\n");
    }
    let (altitude, coupling, filter) = (design.altitude, design.coupling, design.filter);
    text + &format!("altitude = {altitude:?}\ncoupling = {coupling:?}\nfilter = {filter:?}\n")
}

/// The table of the loop, by the first loop that tells its rate.
fn control_of(file: &TelemetryFile, notes: &mut Vec<String>) -> Result<String, Error> {
    for row in file.table("AOT_LOOPS") {
        let Some(rate) = row.number("FRAMERATE")? else { continue };
        let mut assume = |what: &str, value: f64| {
            notes.push(format!("not told, and assumed: {what} = {value:?}"));
            value
        };
        let delay = row.number("DELAY")?.unwrap_or_else(|| assume("loop.delay", 2.0));
        let closed = row.text("STATUS")? == Some("Closed");
        let kind = if closed { LoopKind::Closed } else { LoopKind::Open };
        let filter = row.array("TIME_FILTER_NUM", [1, 2], None)?;
        let gain = filter.and_then(|filter| filter.first().copied());
        let gain = if closed { gain.unwrap_or_else(|| assume("loop.gain", 0.5)) } else { 0.5 };
        let control = ControlLoop { kind, rate, gain, delay };
        control.check().map_err(|bad| {
            let column = match bad.quantity.as_str() {
                "rate" => "FRAMERATE",
                "delay" => "DELAY",
                _ => "TIME_FILTER_NUM",
            };
            row.refuse(column, bad.value, &bad.expected)
        })?;
        let kind = if closed { "closed" } else { "open" };
        let gain = if closed { format!("gain = {gain:?}\n") } else { String::new() };
        return Ok(format!(
            "\n[loop]\nkind = {kind:?}\nrate = {rate:?}\n{gain}delay = {delay:?}\n"
        ));
    }
    Ok(String::new())
}

// Tests of mirrors in telemetry
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Engine;
    use crate::numerics::Precision;
    use std::fs::File;

    type Checked = Result<(), Box<dyn std::error::Error>>;

    fn open(
        telemetry: &Telemetry,
    ) -> Result<(tempfile::TempDir, TelemetryFile), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("t.aot.fits");
        telemetry.write(File::create(&path)?, Precision::F64)?;
        let file = TelemetryFile::open(&path)?;
        Ok((folder, file))
    }

    fn small() -> String {
        std::fs::read_to_string("book/systems/small-moao.toml").unwrap()
    }

    // Put strokes together from loops
    #[test]
    fn strokes_are_sums_over_loops() -> Checked {
        let system = System::from_toml(&small(), "small")?;
        let mirrors = vec![
            MirrorDesign { kept: Some([0.2, 1.05]), ..MirrorDesign::new(Spacing::Actuators(8)) },
            MirrorDesign { altitude: 4500.0, ..MirrorDesign::new(Spacing::Pitch(0.8)) },
        ];
        let (mode, weights) = (CorrectionMode::Mcao, vec![1.0, 2.0]);
        let options = CorrectionOptions::new(mode, mirrors).weights(weights);
        let correction = Correction::new(&system, &options)?;
        let order = SlopeOrder::new(&system.valid_lenslets());
        let (n, m) =
            (order.len(), correction.pupil(&Engine::default()).unwrap().interaction().nrows());
        let reconstructor =
            Array3::from_shape_fn((2, m, n), |(t, k, l)| ((t + 3 * k + 7 * l) as f64).sin());
        let commands = correction.commands(&reconstructor, &Engine::default())?;
        assert_eq!(commands.len(), 1);
        let control = ControlLoop { kind: LoopKind::Closed, rate: 400.0, gain: 0.4, delay: 2.5 };
        let mut telemetry = Telemetry::of(&system);
        telemetry.add_correction(&correction, mode, &commands, Some(&control))?;
        let (_folder, file) = open(&telemetry)?;
        let slopes = ndarray::Array1::from_shape_fn(n, |k| ((5 * k + 1) as f64).cos());
        let expected = commands[0].dot(&slopes);
        let mut first = 0;
        for (k, mirror) in correction.mirrors().iter().enumerate() {
            let mut strokes = ndarray::Array1::<f64>::zeros(mirror.positions().len());
            for row in file.table("AOT_LOOPS_CONTROL") {
                let Some(q) = row.uid().strip_prefix(&format!("LOOP {k} ")) else { continue };
                let (q, matrix) =
                    (q.parse::<usize>()?, row.array("CONTROL_MATRIX", [3; 2], None)?.unwrap());
                let lenslets = order.lenslets(q).len();
                assert_eq!(matrix.shape(), [strokes.len(), 2, lenslets]);
                for ((a, axis, lenslet), value) in
                    matrix.into_dimensionality::<ndarray::Ix3>()?.indexed_iter()
                {
                    strokes[a] += value * slopes[order.index(q, axis, lenslet)];
                }
            }
            for (a, stroke) in strokes.iter().enumerate() {
                assert!(
                    (stroke - expected[first + a]).abs() < 1e-9 * (1.0 + stroke.abs()),
                    "{k} {a}"
                );
            }
            first += strokes.len();
        }
        // Read those mirrors back
        let found = TelemetrySystem::with_correction(&file)?;
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let file = SystemFile::from_toml(&found.text, "again")?;
        let again = CorrectionOptions::from_system_file(&file)?.unwrap();
        assert_eq!((again.mode, again.mirrors.len()), (mode, 2));
        let other = Correction::new(&file.system()?, &again)?;
        for (a, b) in correction.mirrors().iter().zip(other.mirrors()) {
            assert!(
                same_places(a.positions(), b.positions(), 1e-9) && a.altitude() == b.altitude()
            );
            assert!((a.influence([0.0, a.pitch()]) - b.influence([0.0, b.pitch()])).abs() < 1e-12);
        }
        assert_eq!(ControlLoop::from_system_file(&file)?, Some(control));
        let wrong = telemetry.add_correction(&correction, mode, &commands[..0], None).unwrap_err();
        assert_eq!(wrong.quantity, "commands");
        Ok(())
    }

    // Bring mirrors and loops back
    #[test]
    fn mirrors_that_fit_nowhere_are_told() -> Checked {
        let system = System::from_toml(&small(), "small")?;
        let design = MirrorDesign::new(Spacing::Actuators(9));
        let mirror = Mirror::new(&design, &system)?;
        type Change = fn(&mut Vec<[f64; 2]>);
        let cases: [(Change, &str); 4] = [
            (|_| {}, ""),
            (|places| places.reverse(), ""),
            (|places| places[3][0] += 0.1, "whose actuators are on no grid"),
            (|places| places.clear(), "does not tell where its actuators are"),
        ];
        for (change, words) in cases {
            let mut telemetry = Telemetry::of(&system);
            telemetry.add_mirror("DM", &mirror);
            let mut places = mirror.positions().to_vec();
            change(&mut places);
            let along = |axis: usize| places.iter().map(|place| place[axis]).collect();
            let row = telemetry.change("AOT_WAVEFRONT_CORRECTORS_DM", 0);
            row.list("ACTUATORS_X", along(0)).list("ACTUATORS_Y", along(1));
            let found = TelemetrySystem::with_correction(&open(&telemetry)?.1)?;
            let again = SystemFile::from_toml(&found.text, "again")?;
            let mirrors = MirrorDesign::from_system_file(&again)?;
            let fits = words.is_empty();
            assert_eq!(
                (mirrors.len(), found.notes.len()),
                if fits { (1, 0) } else { (0, 1) },
                "{words}"
            );
            assert!(found.notes.iter().all(|note| note.contains(words)), "{:?}", found.notes);
            assert!(
                mirrors.iter().all(|found| found.spacing == design.spacing && found.kept.is_none())
            );
        }
        // Refuse loops that cannot be
        let mut telemetry = Telemetry::of(&system);
        telemetry.add_mirror("DM", &mirror);
        telemetry.row("AOT_LOOPS", "L").number("FRAMERATE", 500.0).number("DELAY", 0.5);
        let said = TelemetrySystem::with_correction(&open(&telemetry)?.1).unwrap_err().to_string();
        assert!(said.contains("AOT_LOOPS[0].DELAY = 0.5"), "{said}");
        telemetry.change("AOT_LOOPS", 0).number("DELAY", 2.0);
        telemetry.change("AOT_WAVEFRONT_CORRECTORS", 0).number("N_VALID_ACTUATORS", 3.0);
        let said = TelemetrySystem::with_correction(&open(&telemetry)?.1).unwrap_err().to_string();
        assert!(
            said.contains("AOT_WAVEFRONT_CORRECTORS[0].N_VALID_ACTUATORS = 3: expected 68"),
            "{said}"
        );
        Ok(())
    }

    // Bring a reconstructor back
    #[test]
    fn reconstructors_are_modes_of_loops() -> Checked {
        let system = System::from_toml(&small(), "small")?;
        let order = SlopeOrder::new(&system.valid_lenslets());
        let reconstructor =
            Array3::from_shape_fn((2, 6, order.len()), |(t, k, l)| (1000 * (6 * t + k) + l) as f64);
        let mut telemetry = Telemetry::of(&system);
        telemetry.add_reconstructor(&system, &reconstructor)?;
        let (_folder, file) = open(&telemetry)?;
        assert_eq!((file.rows("AOT_WAVEFRONT_CORRECTORS"), file.rows("AOT_LOOPS_CONTROL")), (2, 6));
        let row = file.table("AOT_LOOPS_CONTROL").find(|row| row.uid() == "LOOP 1 2").unwrap();
        let matrix = row.array("MEASUREMENTS_TO_MODES", [3; 2], None)?.unwrap();
        for ((k, axis, lenslet), value) in
            matrix.into_dimensionality::<ndarray::Ix3>()?.indexed_iter()
        {
            assert_eq!(*value, reconstructor[[1, k, order.index(2, axis, lenslet)]]);
        }
        let found = TelemetrySystem::with_correction(&file)?;
        assert_eq!((found.notes.len(), found.text.contains("[[mirror]]")), (2, false));
        let other = Array3::zeros((1, 6, order.len()));
        assert_eq!(
            Telemetry::of(&system).add_reconstructor(&system, &other).unwrap_err().quantity,
            "reconstructor"
        );
        Ok(())
    }
}
