// Tangled from book/src/prismatic-options.md: edit there, or here and run cargo tangle stitch.
//! Command lines of Prismatic as sample files.

// Imports of lines of Prismatic
use crate::device::Device;
use crate::electrons::detector::rings;
use crate::electrons::sample_file::Algorithm;
use crate::electrons::{Beam, DetectorOptions, Detectors, Scan, WaveGrid};
use crate::error::{BadLine, Error, Invalid, accept};
use crate::files::spanned_toml::{edits, one_line, read_text};
use crate::specimen::{self, Atom, Crystal, Element, Slicing, Specimen};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

// Words of a line
/// The words of a line, split as a shell splits them.
fn words(line: &str) -> Result<Vec<String>, Invalid> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        let taken = match (quote, sign) {
            // Open and close quotes
            (Some(open), _) if open == sign => {
                quote = None;
                None
            }
            (None, '\'' | '"') => {
                quote = Some(sign);
                None
            }
            (None, _) if sign.is_whitespace() => {
                words.extend(word.take());
                continue;
            }
            // Take the sign behind a backslash
            (None, '\\') => signs.next(),
            (Some('"'), '\\') if matches!(signs.clone().next(), Some('"' | '\\')) => signs.next(),
            _ => Some(sign),
        };
        word.get_or_insert_default().extend(taken);
    }
    accept(quote.is_none(), "--prismatic", line, "quotes that are closed")?;
    words.extend(word);
    Ok(words)
}

// An option of Prismatic
/// An option: its names, the second empty where there is none, the number of its values, and what they are.
type Known = (&'static str, &'static str, usize, &'static str);

/// All options.
const OPTIONS: [&[Known]; 5] = [SAMPLE, BEAM, SCAN, DETECTOR, MACHINE];

// Options about the specimen
const SAMPLE: &[Known] = &[
    ("-i", "--input-file", 1, "the name of a file of atoms"),
    ("-c", "--cell-dimension", 3, "three lengths in Å greater than 0"),
    ("-t", "--tile-uc", 3, "three whole numbers from 1 to a million"),
    ("-p", "--pixel-size", 1, "a length in Å greater than 0"),
    ("-px", "--pixel-size-x", 1, "a length in Å greater than 0"),
    ("-py", "--pixel-size-y", 1, "a length in Å greater than 0"),
    ("-s", "--slice-thickness", 1, "a length in Å greater than 0"),
    ("-P", "--potential-bound", 1, "a length in Å greater than 0"),
    ("-3DP", "", 1, "0 or 1"),
    ("-3DPZ", "", 1, "a whole number from 1 to 1000"),
    ("-te", "--thermal-effects", 1, "0 or 1"),
    ("-F", "--num-FP", 1, "a whole number from 1 to a million"),
    ("-rs", "--random-seed", 1, "a whole number, not negative"),
    ("-oc", "--occupancy", 1, "0 or 1"),
];

// Options about the beam and the method
const BEAM: &[Known] = &[
    ("-a", "--algorithm", 1, "p for PRISM, m for multislice or t for images of a plane wave"),
    ("-f", "--interp-factor", 1, "a whole number from 1 to 1000"),
    ("-fx", "--interp-factor-x", 1, "a whole number from 1 to 1000"),
    ("-fy", "--interp-factor-y", 1, "a whole number from 1 to 1000"),
    ("-mrf", "", 1, "0 or 1"),
    ("-ns", "--num-slices", 1, "a whole number from 0 to a million"),
    ("-zs", "--zstart-slices", 1, "a length in Å, not negative"),
    ("-E", "--energy", 1, "an energy between 1 and 10000 keV"),
    ("-sa", "--probe-semiangle", 1, "an angle in mrad greater than 0"),
    ("-A", "--alpha-max", 1, "an angle in mrad"),
    ("-df", "--probe-defocus", 1, "a length in Å"),
    ("-dfr", "", 3, "the least and the largest defocus and a step in Å, at most 1000 in all"),
    ("-dfs", "", 1, "a spread of defocus in Å greater than 0"),
    ("-C3", "", 1, "a length in Å"),
    ("-C5", "", 1, "a length in Å"),
    ("-aber", "", 1, "the name of a file with lines m,n,magnitude,angle"),
    ("-tx", "--probe-xtilt", 1, "an angle in mrad"),
    ("-ty", "--probe-ytilt", 1, "an angle in mrad"),
];

// Options about the scan and the detectors
const SCAN: &[Known] = &[
    ("-r", "--probe-step", 1, "a length in Å greater than 0"),
    ("-rx", "--probe-step-x", 1, "a length in Å greater than 0"),
    ("-ry", "--probe-step-y", 1, "a length in Å greater than 0"),
    ("-wx", "--scan-window-x", 2, "two shares of the cell, the second larger"),
    ("-wy", "--scan-window-y", 2, "two shares of the cell, the second larger"),
    ("-wxr", "--scan-window-xr", 2, "two lengths in Å, the second larger"),
    ("-wyr", "--scan-window-yr", 2, "two lengths in Å, the second larger"),
    ("-nqs", "--nyquist-sampling", 1, "0 or 1"),
    (
        "-pos",
        "",
        1,
        "no list of places: lattices of places alone are scanned, -r and -wx say which",
    ),
];

// Options about the detectors
const DETECTOR: &[Known] = &[
    ("-d", "--detector-angle-step", 1, "an angle in mrad greater than 0"),
    (
        "-2D",
        "--save-2D-output",
        2,
        "two angles in mrad, with a bin of -d between them that the grid holds",
    ),
    ("-3D", "--save-3D-output", 1, "0 or 1"),
    ("-4D", "--save-4D-output", 1, "0 or 1"),
    ("-4DC", "--4D-crop", 1, "0 or 1"),
    ("-4DA", "--4D-amax", 1, "an angle in mrad greater than 0"),
    ("-DPC", "--save-DPC-CoM", 1, "0 or 1"),
];

// Options about files and machines
const MACHINE: &[Known] = &[
    ("-o", "--output-file", 1, "the name of a file"),
    ("-probe", "", 1, "0, 1 or 2"),
    ("-ps", "--save-potential-slices", 1, "0 or 1"),
    ("-sm", "", 1, "0 or 1"),
    ("-com", "", 1, "0 or 1"),
    ("-j", "--num-threads", 1, "a whole number from 1 to a million"),
    ("-g", "--num-gpus", 1, "a whole number from 0 to 1000"),
    ("-S", "--num-streams", 1, "a whole number"),
    ("-b", "--batch-size", 1, "a whole number"),
    ("-bc", "--batch-size-cpu", 1, "a whole number"),
    ("-bg", "--batch-size-gpu", 1, "a whole number"),
    ("-C", "--also-do-cpu-work", 1, "0 or 1"),
];

// Read the options of a line
/// The options of a line, in their order.
struct GivenOptions(Vec<(&'static Known, Vec<String>)>);

/// The option of this name.
fn known(name: &str) -> Option<&'static Known> {
    let mut all = OPTIONS.iter().flat_map(|options| options.iter());
    all.find(|known| known.0 == name || (known.1 == name && !name.is_empty()))
}

impl GivenOptions {
    // Divide a line into options
    fn read(line: &str) -> Result<Self, Invalid> {
        let mut words = words(line)?.into_iter().peekable();
        words.next_if(|word| Path::new(word).file_stem().is_some_and(|stem| stem == "prismatic"));
        let mut given = Self(Vec::new());
        while let Some(word) = words.next() {
            let option = known(&word).ok_or_else(|| stranger(&word))?;
            let mut values = Vec::new();
            while values.len() < option.2 {
                let value = words.next_if(|word| known(word).is_none());
                let Some(value) = value else { return Err(refuse(option.0, &values)) };
                values.push(value);
            }
            if given.values(option.0).is_some() {
                let quantity = format!("--prismatic {}", option.0);
                return Err(Invalid::new(quantity, values.join(" "), "an option that stands once"));
            }
            given.0.push((option, values));
        }
        Ok(given)
    }

    /// The values of an option.
    fn values(&self, name: &str) -> Option<&[String]> {
        let mut all = self.0.iter();
        all.find(|(known, _)| known.0 == name).map(|(_, values)| &values[..])
    }

    // Numbers of an option
    /// The numbers of an option, if it is given, all finite and `good`.
    fn numbers<const K: usize>(
        &self,
        name: &str,
        good: impl Fn(f64) -> bool,
    ) -> Result<Option<[f64; K]>, Invalid> {
        let Some(values) = self.values(name) else { return Ok(None) };
        let numbers = values.iter().filter_map(|value| value.parse().ok());
        let numbers: Vec<f64> = numbers.filter(|x: &f64| x.is_finite() && good(*x)).collect();
        numbers.try_into().map(Some).map_err(|_| refuse(name, values))
    }

    /// The number of an option, or another.
    fn number(&self, name: &str, good: impl Fn(f64) -> bool, other: f64) -> Result<f64, Invalid> {
        Ok(self.numbers::<1>(name, good)?.map_or(other, |[x]| x))
    }

    /// A whole number in a range.
    fn whole(&self, name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, Invalid> {
        let Some(values) = self.values(name) else { return Ok(None) };
        let number = values[0].parse().ok().filter(|n| range.contains(n));
        number.map(Some).ok_or_else(|| refuse(name, values))
    }

    // Choices of an option
    /// Whether an option is switched on.
    fn switch(&self, name: &str, other: bool) -> Result<bool, Invalid> {
        Ok(self.whole(name, 0..=1)?.map_or(other, |n| n == 1))
    }

    /// The numbers along x and y of three options: for both, for x, and for y.
    fn two(&self, [both, x, y]: [&str; 3], other: f64) -> Result<[f64; 2], Invalid> {
        let mut numbers = [other; 2];
        for (known, _) in &self.0 {
            if [both, x, y].contains(&known.0) {
                let number = self.number(known.0, |x| x > 0.0, other)?;
                let axes = if known.0 == both {
                    0..2
                } else {
                    usize::from(known.0 == y)..1 + usize::from(known.0 == y)
                };
                numbers[axes].fill(number);
            }
        }
        Ok(numbers)
    }
}

// Refuse an option
/// Refuses the values of an option.
fn refuse(name: &str, values: &[String]) -> Invalid {
    let value = if values.is_empty() { "nothing".into() } else { values.join(" ") };
    Invalid::new(format!("--prismatic {name}"), value, known(name).map_or("", |known| known.3))
}

/// Refuses a word that is no option, and names the one that is most like it.
fn stranger(word: &str) -> Invalid {
    let all = OPTIONS.iter().flat_map(|options| options.iter());
    let names = all.flat_map(|known| [known.0, known.1]).filter(|name| !name.is_empty());
    let like = |name: &&str| (edits(&word.to_lowercase(), &name.to_lowercase()), edits(word, name));
    let nearest = names.min_by_key(like).unwrap_or_default();
    let expected = format!("an option of Prismatic; did you mean {nearest}?");
    Invalid::new("--prismatic", word, expected)
}

// What a line asks for
/// What a command line of Prismatic asks for.
#[derive(Debug, Default)]
pub struct FromPrismatic {
    /// Text of a sample file; the names of files in it are relative to the current folder.
    pub text: String,
    /// The file to write, if the line names one.
    pub output: Option<PathBuf>,
    /// What is to be saved besides the readings.
    pub save: Vec<String>,
    /// Where to compute, if the line says so.
    pub device: Option<Device>,
    /// What is not as in Prismatic.
    pub notes: Vec<String>,
    /// The list of aberrations, if there is one.
    pub aberrations: Option<PathBuf>,
    /// The crystal's file, as it was named.
    crystal: String,
}

// Read a line of Prismatic
impl FromPrismatic {
    /// Reads a command line; `-i` and `-aber` are relative to the current folder.
    ///
    /// # Errors
    /// `Invalid` with the option that is unknown, stands twice or has no good value; those of the crystal's file and of the file of aberrations.
    pub fn read(line: &str) -> Result<Self, Error> {
        let given = GivenOptions::read(line)?;
        let mut own = Self::default();
        // Write the tables of a line
        let (mut sample, specimen) = own.sample(&given)?;
        let setting = ScanSettings::new(&given, &specimen)?;
        sample += &setting.specimen_tilt();
        let potential = own.potential(&given, &setting)?;
        if !setting.deep {
            own.lost_atoms(&specimen, &setting.slicing);
        }
        let phonons = own.phonons(&given, &specimen)?;
        let (beam, defocus) = own.beam(&given, &setting)?;
        let mut tables = vec![sample, potential, phonons, beam];
        if setting.scans() {
            tables.push(own.scan(&given, &setting)?);
        }
        tables.push(own.method(&given, &setting, &defocus)?);
        if setting.scans() {
            tables.push(own.detector(&given, &setting)?);
        } else {
            tables.push("[imaging]\nsamples = \"mask\"".into());
            own.without_probes(&given);
        }
        own.outputs(&given, &setting)?;
        own.machine(&given)?;
        let clean = line.replace(char::is_control, " ");
        let head = format!("# Of the command line of Prismatic: {}\n", clean.trim());
        own.text = head + &tables.join("\n") + "\n[run]\nprecision = \"f32\"\n";
        Ok(own)
    }

    // Texts and notes of a line
    /// The text for a file at `path`: in another folder than the current one it names the crystal by its whole path.
    ///
    /// # Errors
    /// `Read` where there is no current folder.
    pub fn text_beside(&self, path: &Path) -> Result<String, Error> {
        if path.parent().is_none_or(|folder| folder.as_os_str().is_empty()) {
            return Ok(self.text.clone());
        }
        let failed = |source| Error::Read { path: self.crystal.clone().into(), source };
        let whole = std::path::absolute(&self.crystal).map_err(failed)?;
        let line = |name: &str| format!("\nfile = {}\n", quoted(name));
        Ok(self.text.replacen(&line(&self.crystal), &line(&whole.display().to_string()), 1))
    }

    /// Notes something about an option.
    fn note(&mut self, option: &str, text: impl std::fmt::Display) {
        self.notes.push(format!("{option}: {text}"));
    }

    // Tables of a sample file from options
    // The specimen of a line
    /// The table `[sample]`, and the specimen.
    fn sample(&mut self, given: &GivenOptions) -> Result<(String, Specimen), Error> {
        let file = &given.values("-i").ok_or_else(|| refuse("-i", &[]))?[0];
        let whole = |x: f64| x.fract() == 0.0 && (1.0..=1e6).contains(&x);
        let tile = given.numbers::<3>("-t", whole)?.unwrap_or([1.0; 3]).map(|x| x as usize);
        let cell = given.numbers::<3>("-c", |x| (1e-3..=1e7).contains(&x))?;
        let crystal = Crystal::from_file(file, cell)?;
        let specimen = crystal.specimen(specimen::BeamDirection::MinusZ, tile)?;
        self.crystal.clone_from(file);
        let mut text = format!("[sample]\nfile = {}\ntile = {tile:?}", quoted(file));
        if let Some(cell) = cell {
            text += &format!("\ncell = {cell:?}");
        }
        if !given.switch("-oc", true)? {
            text += "\noccupancy = false";
        } else if crystal.atoms().iter().any(|atom| atom.occupancy < 1.0) {
            self.note(
                "-oc 1",
                "an atom counts by its occupancy; Prismatic draws whether it is there",
            );
        }
        Ok((text, specimen))
    }

    // The potential of a line
    /// The table `[potential]`.
    fn potential(&mut self, given: &GivenOptions, setting: &ScanSettings) -> Result<String, Error> {
        let planes = given.whole("-3DPZ", 1..=1000)?;
        let (model, more) = match (setting.deep, planes) {
            (true, planes) => ("sampled", format!("\nplanes = {}", planes.unwrap_or(Self::PLANES))),
            (false, _) => ("lookup", String::new()),
        };
        if setting.deep {
            // Note what samples on planes change
            let planes = "each atom is sampled on planes at the middles of pixels, as by Prismatic; at large angles this differs by several percent from integrals over slices, model = \"sliced\"";
            self.note("-3DP 1", planes);
        } else if planes.is_some() {
            self.note("-3DPZ", "without effect, as -3DP 0 has no planes");
        }
        let bound = given.number("-P", |x| x > 0.0, 3.0)?;
        let (grid, thickness) = (setting.grid.points(), setting.slicing.thickness());
        Ok(format!(
            "[potential]\nmodel = \"{model}\"\nfactors = \"kirkland-rounded\"\ngrid = {grid:?}\nslice_thickness = {thickness:?}\nbound = {bound:?}{more}"
        ))
    }

    /// Planes in a slice, unless `-3DPZ` says otherwise.
    const PLANES: usize = 16;

    // Atoms that Prismatic loses
    /// Notes how many atoms Prismatic would not have.
    fn lost_atoms(&mut self, specimen: &Specimen, slicing: &Slicing) {
        let beyond = |atom: &&Atom| {
            let depth = (slicing.height() - atom.position[2]) / slicing.thickness();
            (depth + 0.5).round() - 1.0 >= slicing.count() as f64
        };
        let lost = specimen.atoms().iter().filter(beyond).count();
        if lost > 0 {
            let atoms = if lost == 1 { "atom" } else { "atoms" };
            let kept =
                "at the exit face kept in the last slice; Prismatic would lose what lies there";
            self.note("-s", format_args!("{lost} {atoms} {kept}"));
        }
    }

    // The phonons of a line
    /// The table `[phonons]`.
    fn phonons(&mut self, given: &GivenOptions, specimen: &Specimen) -> Result<String, Invalid> {
        let moves = |atom: &Atom| atom.displacement > 0.0;
        let mut rest: BTreeSet<Element> = specimen.atoms().iter().map(|a| a.element).collect();
        rest.retain(|e| !specimen.atoms().iter().any(|atom| atom.element == *e && moves(atom)));
        let none = !specimen.atoms().iter().any(moves);
        let trembling = given.switch("-te", true)?;
        let configurations_given = given.whole("-F", 1..=1_000_000)?.unwrap_or(1);
        let seed = given.whole("-rs", 0..=usize::MAX)?;
        if trembling {
            let text = "atoms tremble along all three axes, by displacements that depend on the seed alone; those of Prismatic depend on its threads, so compare runs with -te 0";
            self.note("-te 1", text);
        } else if configurations_given > 1 {
            self.note("-F", "atoms at rest have one configuration");
        }
        if seed.is_some() {
            self.note("-rs", "seeds the displacements here; Prismatic itself ignores it");
        }
        if trembling && none {
            self.note("-te 1", "the crystal file gives no displacement, so the atoms are at rest");
        }
        let configurations = if trembling && !none { configurations_given } else { 0 };
        let seed = seed.unwrap_or(0);
        let zero = rest.iter().map(|element| format!("{} = 0.0", element.symbol()));
        let zero = zero.collect::<Vec<_>>().join(", ");
        let still = if rest.is_empty() { String::new() } else { format!("\nrms = {{ {zero} }}") };
        Ok(format!("[phonons]\nconfigurations = {configurations}\nseed = {seed}{still}"))
    }

    // The beam of a line
    /// The table `[beam]`, and its defoci.
    fn beam(
        &mut self,
        given: &GivenOptions,
        setting: &ScanSettings,
    ) -> Result<(String, Vec<f64>), Error> {
        let any = |name: &str| given.number(name, |_| true, 0.0);
        let tilt = setting.cone_tilt();
        if tilt != [0.0; 2] {
            let text = "all beams of the tilted cone are taken, and it stands over its place on the entrance face; Prismatic cuts the cone and shifts it by the thickness";
            self.note("-tx, -ty", text);
        }
        if given.numbers::<1>("-A", |_| true)?.is_some() && setting.scans() {
            self.note("-A", "ignored, as by Prismatic itself");
        }
        let defocus = self.defocus(given)?;
        let energy = given.number("-E", |x| x > 0.0, 80.0)?;
        let (c3, c5) = (any("-C3")?, any("-C5")?);
        let mut text = format!(
            "[beam]\nenergy_kev = {energy:?}\ndefocus = {defocus:?}\nc3 = {c3:?}\nc5 = {c5:?}"
        );
        if setting.scans() {
            text += &format!("\nsemi_angle = {:?}\ntilt = {tilt:?}", setting.semi_angle);
        }
        // Add the aberrations of a file
        if let Some(values) = given.values("-aber") {
            let (terms, note) = aberrations(Path::new(&values[0]))?;
            text += &format!("\naberrations = [{terms}]");
            self.aberrations = Some(PathBuf::from(&values[0]));
            if let Some(note) = note {
                self.note("-aber", note);
            }
        }
        Ok((text, defocus))
    }

    // The defoci of a line
    /// The defoci, one or a series.
    fn defocus(&mut self, given: &GivenOptions) -> Result<Vec<f64>, Invalid> {
        let one = given.number("-df", |x| x.abs() <= 1e7, 0.0)?;
        let spread = given.numbers::<1>("-dfs", |x| x > 0.0 && x <= 1e6)?;
        let Some([from, to, step]) = given.numbers::<3>("-dfr", |x| x.abs() <= 1e7)? else {
            let Some([sigma]) = spread else { return Ok(vec![one]) };
            self.note(
                "-dfs",
                "nine images, one for each defocus within two sigma; they are not averaged",
            );
            return Ok((-4..=4).map(|k| one + 0.5 * f64::from(k) * sigma).collect());
        };
        let steps = ((to - from) / step + 1e-9).floor();
        let good = from <= to && step > 0.0 && steps < 1000.0 && spread.is_none();
        let values = given.values("-dfr").unwrap_or_default();
        if !good {
            return Err(refuse("-dfr", values));
        }
        if given.values("-df").is_some() {
            self.note("-df", "replaced by the series -dfr");
        }
        Ok((0..=steps as usize).map(|k| from + k as f64 * step).collect())
    }

    // The scan of a line
    /// The table `[scan]`.
    fn scan(&mut self, given: &GivenOptions, setting: &ScanSettings) -> Result<String, Error> {
        if let Some(values) = given.values("-pos") {
            return Err(refuse("-pos", values).into());
        }
        let lengths = setting.grid.lengths();
        let mut step = given.two(["-r", "-rx", "-ry"], 0.25)?;
        if given.switch("-nqs", false)? {
            // Steps at the limit of Nyquist
            let most = 4.0 * setting.beam.frequency(setting.semi_angle);
            step = lengths.map(|length| length / (most * length).ceil());
        }
        let mut window = [[0.0; 2]; 2];
        for axis in 0..2 {
            let [from, to] =
                window_of(given, ["-wx", "-wy"][axis], ["-wxr", "-wyr"][axis], lengths[axis])?;
            let count = ((to - from) / step[axis] + 1e-9).floor() + 1.0;
            window[axis] = [from, from + count * step[axis]];
        }
        Scan::new(window, step).map_err(of("-r"))?;
        Ok(format!("[scan]\nwindow = {window:?}\nstep = {step:?}"))
    }

    // The method of a line
    /// The table `[method]`.
    fn method(
        &mut self,
        given: &GivenOptions,
        setting: &ScanSettings,
        defocus: &[f64],
    ) -> Result<String, Invalid> {
        let (every, from) =
            (given.whole("-ns", 0..=1_000_000)?, given.number("-zs", |x| x >= 0.0, 0.0)?);
        let (slices, thickness) = (setting.slicing.count(), setting.slicing.thickness());
        let refocused = given.switch("-mrf", false)?;
        if setting.algorithm != Algorithm::Prism {
            // Thicknesses of multislice and images
            let first = (from / thickness).ceil() as usize;
            let every = every.filter(|every| *every > 0).unwrap_or(slices);
            let ends = (every..slices).step_by(every).filter(|end| *end >= first);
            let ends: Vec<f64> = ends.map(|end| end as f64 * thickness).collect();
            let more =
                if ends.is_empty() { String::new() } else { format!("\nthicknesses = {ends:?}") };
            if setting.scans() {
                return Ok(format!("[method]\nalgorithm = \"multislice\"{more}"));
            }
            if !ends.is_empty() {
                let text = "waves inside the specimen are imaged, too, refocused by the same length; Prismatic images the exit wave alone";
                self.note("-ns, -zs", text);
            }
            let back = 0.5 * setting.slicing.height();
            return Ok(format!("[method]\nalgorithm = \"hrtem\"\nrefocus = {back:?}{more}"));
        }
        if every.is_some() {
            self.note("-ns, -zs", "without effect, as multislice alone is read on the way");
        }
        let factor = setting.factor;
        // Text of the method of PRISM
        let mut text = format!(
            "[method]\nalgorithm = \"prism\"\ninterpolation = {factor:?}\ninterpolation_check = \"warn\"\nmargin = 2.5"
        );
        if refocused {
            // Refocus to where probes are narrow
            let distance = slices as f64 * thickness + defocus[defocus.len() / 2];
            text += &format!("\nrefocus = {distance:?}");
            self.note(
                "-mrf 1",
                format!("waves are refocused by {distance} Å, thickness and defocus"),
            );
        }
        Ok(text)
    }

    // The detectors of a line
    /// The table `[detector]`.
    fn detector(&mut self, given: &GivenOptions, setting: &ScanSettings) -> Result<String, Error> {
        let bin = given.number("-d", |x| x > 0.0, 1.0)?;
        let bins = rings(setting.beam.angle(0.25 / setting.pixel), bin).max(1);
        let options = DetectorOptions::default().bin(bin).rings(bins);
        Detectors::new(setting.grid, &setting.beam, options).map_err(of("-d"))?;
        let mut text = format!("[detector]\nbin = {bin:?}\nbins = {bins}");
        if let Some(range) = given.numbers::<2>("-2D", |x| (0.0..=2000.0).contains(&x))? {
            text += &self.annulus(range, bin, bins)?;
        }
        if given.switch("-DPC", false)? {
            text += "\ncentre_of_mass = true";
        }
        if !given.switch("-3D", true)? {
            self.note("-3D 0", "annular bins are written all the same");
        }
        text += &self.patterns(given)?;
        Ok(text)
    }

    // The annulus of a line
    /// The key `annuli`, for an annulus between two angles \[mrad\] out of `bins` bins of width `bin`.
    fn annulus(&mut self, range: [f64; 2], bin: f64, bins: usize) -> Result<String, Invalid> {
        let radians = |angle: f64| angle as f32 / 1000.0;
        let [first, end] = range.map(|angle| (radians(angle) / radians(bin)) as usize);
        let last = end.min(bins);
        if first >= last {
            return Err(refuse("-2D", &range.map(|angle| angle.to_string())));
        }
        let [inner, outer] = [first, last].map(|bins| bins as f64 * bin);
        if last < end {
            self.note("-2D", format!("the bins end at {outer} mrad, and so does the annulus"));
        } else if (inner - range[0]).abs() + (outer - range[1]).abs() > 1e-9 * bin {
            let text = format!(
                "whole bins, from {inner} to {outer} mrad, are summed, as by Prismatic, which divides angles in single precision"
            );
            self.note("-2D", text);
        }
        Ok(format!("\nannuli = [[{inner:?}, {outer:?}]]"))
    }

    // The patterns of a line
    /// The key `four_d`, if patterns are wanted.
    fn patterns(&mut self, given: &GivenOptions) -> Result<String, Invalid> {
        let crop = given.number("-4DA", |x| x > 0.0, 100.0)?;
        let (patterns, cropped) = (given.switch("-4D", false)?, given.switch("-4DC", false)?);
        Ok(match (patterns, cropped) {
            (false, _) => String::new(),
            (true, false) => "\nfour_d = { bin = 1 }".into(),
            (true, true) => {
                self.note(
                    "-4DC 1",
                    "patterns are cut symmetrically, and have one more row and column",
                );
                format!("\nfour_d = {{ crop = {crop:?}, bin = 1 }}")
            }
        })
    }

    // Options of probes alone
    /// Notes what is given to no effect where a plane wave lights the specimen.
    fn without_probes(&mut self, given: &GivenOptions) {
        const OTHERS: [&str; 6] = ["-sa", "-tx", "-ty", "-A", "-mrf", "-probe"];
        let of_probes = |name: &str| {
            let mut all = SCAN.iter().chain(DETECTOR).map(|known| known.0);
            OTHERS.contains(&name) || all.any(|known| known == name)
        };
        let names = given.0.iter().map(|(known, _)| known.0).filter(|name| of_probes(name));
        let names: Vec<&str> = names.collect();
        if !names.is_empty() {
            self.note(&names.join(", "), "without effect, as a plane wave has no probes");
        }
    }

    // Outputs and machines of a line
    /// What is to be written, and where.
    fn outputs(&mut self, given: &GivenOptions, setting: &ScanSettings) -> Result<(), Invalid> {
        self.output = given.values("-o").map(|values| PathBuf::from(&values[0]));
        let probe = given.whole("-probe", 0..=2)?.is_some_and(|how| how > 0);
        let (matrix, complex) = (given.switch("-sm", false)?, given.switch("-com", false)?);
        let prism = setting.algorithm == Algorithm::Prism;
        let saved = [
            (given.switch("-ps", false)?, "potential"),
            (matrix && prism, "smatrix"),
            (probe && setting.scans(), "probe"),
            (complex && !setting.scans(), "wave"),
        ];
        self.save = saved
            .iter()
            .filter(|(is_saved, _)| *is_saved)
            .map(|(_, name)| name.to_string())
            .collect();
        if matrix && !prism {
            self.note("-sm 1", "without effect, as PRISM alone has an S-matrix");
        }
        if complex && setting.scans() {
            self.note("-com 1", "intensities are written, not complex waves");
        } else if complex {
            self.note("-com 1", "exit waves, before the lens, are written beside the images");
        }
        Ok(())
    }

    // Device and machine of a line
    /// The device, and what is said of machines to no effect.
    fn machine(&mut self, given: &GivenOptions) -> Result<(), Invalid> {
        self.device = given.whole("-g", 0..=1000)?.map(|count| match count {
            0 => Device::Cpu,
            _ => Device::Cuda(None),
        });
        if given.whole("-j", 1..=1_000_000)?.is_some() {
            self.note("-j", "the number of threads is that of RAYON_NUM_THREADS, or of the cores");
        }
        for name in ["-S", "-b", "-bc", "-bg", "-C"] {
            if given.whole(name, 0..=usize::MAX)?.is_some() {
                self.note(name, "ignored: work is laid out as memory and devices allow");
            }
        }
        Ok(())
    }
}

// What several tables of a line need
// Settings that several tables share
/// What several tables need.
struct ScanSettings {
    algorithm: Algorithm,
    factor: [usize; 2],
    beam: Beam,
    semi_angle: f64,
    /// Tilt of `-tx` and `-ty` \[mrad\].
    tilt: [f64; 2],
    /// Whether the potential is three-dimensional.
    deep: bool,
    /// The pixel that is asked for \[Å\], the larger of both sides.
    pixel: f64,
    grid: WaveGrid,
    slicing: Slicing,
}

impl ScanSettings {
    fn new(given: &GivenOptions, specimen: &Specimen) -> Result<Self, Invalid> {
        // Algorithm of a line
        let algorithm = match given.values("-a").map(|values| &*values[0]) {
            None | Some("p" | "prism") => Algorithm::Prism,
            Some("m" | "multislice") => Algorithm::Multislice,
            Some("t" | "hrtem") => Algorithm::Hrtem,
            Some(other) => return Err(refuse("-a", &[other.into()])),
        };
        let [x, y, z] = specimen.cell();
        // Grid and slices of a line
        for name in ["-f", "-fx", "-fy"] {
            given.whole(name, 1..=1000)?;
        }
        let factor = given.two(["-f", "-fx", "-fy"], 4.0)?.map(|f| f as usize);
        // Of Eq. [eq:prismatic-grid]
        let pixel = given.two(["-p", "-px", "-py"], 0.1)?;
        let grid = WaveGrid::with_pixel(pixel, [x, y], factor).map_err(of("-p"))?;
        let thickness = given.number("-s", |x| x > 0.0, 2.0)?;
        let slicing = Slicing::new(z, thickness).map_err(of("-s"))?;
        let energy = given.number("-E", |x| (0.1..=1e5).contains(&x), 80.0)?;
        let semi_angle = given.number("-sa", |x| x > 0.0, 20.0)?;
        let beam = Beam::new(energy).map_err(of("-E"))?;
        let angle = |name: &str| given.number(name, |x| x.abs() <= 500.0, 0.0);
        let (tilt, deep) = ([angle("-tx")?, angle("-ty")?], given.switch("-3DP", true)?);
        let pixel = pixel[0].max(pixel[1]);
        Ok(Self { algorithm, factor, beam, semi_angle, tilt, deep, pixel, grid, slicing })
    }

    // A tilt of the specimen or of the cone
    /// A line of the table `[sample]` for a tilt of the specimen, if there is one.
    fn specimen_tilt(&self) -> String {
        if self.algorithm == Algorithm::Multislice && self.tilt != [0.0; 2] {
            return format!("\ntilt = {:?}", self.tilt);
        }
        String::new()
    }

    /// Tilt of the probe's cone \[mrad\].
    fn cone_tilt(&self) -> [f64; 2] {
        if self.algorithm == Algorithm::Prism { self.tilt } else { [0.0; 2] }
    }

    /// Whether probes scan the specimen.
    fn scans(&self) -> bool {
        self.algorithm != Algorithm::Hrtem
    }
}

// Name the option of an error
/// Puts the name of an option on a complaint.
fn of(option: &str) -> impl Fn(Invalid) -> Invalid {
    move |invalid| Invalid { quantity: format!("--prismatic {option}"), ..invalid }
}

// Aberrations of a file
/// The aberrations of a file with lines m,n,magnitude,angle, as a list of tables; and a note on its first line, if it needs one.
fn aberrations(path: &Path) -> Result<(String, Option<String>), Error> {
    let text = read_text(path, 1 << 20, "a list of aberrations")?;
    let (mut terms, mut note) = (Vec::new(), None);
    let bad = |line: usize, value: Option<&str>| {
        let expected = "m,n,magnitude,angle: m from 1 to 20, n from 0 to m, a magnitude in radians and an angle in degrees";
        let (file, value) = (path.display().to_string(), value.map(one_line));
        BadLine { file, line, key: "aberration".into(), value, expected: expected.into() }
    };
    // Collect the lines of aberrations
    for (k, line) in text.lines().enumerate() {
        let comment = line.trim_start().starts_with('#');
        match aberration(line) {
            _ if line.trim() == "-1" => break,
            _ if line.trim().is_empty() || comment => {}
            Some(term) => {
                if k == 0 {
                    let line = one_line(line);
                    note = Some(format!(
                        "its first line, {line}, counts; Prismatic would take it for a comment"
                    ));
                }
                terms.push(term);
            }
            None if k == 0 => {
                let number = |c: char| c.is_ascii_digit() || "+-.".contains(c);
                if line.trim_start().starts_with(number) {
                    note =
                        Some(format!("its first line, {}, is taken for a comment", one_line(line)));
                }
            }
            None => return Err(bad(k + 1, Some(line)).into()),
        }
    }
    if terms.is_empty() {
        return Err(bad(text.lines().count().max(1), None).into());
    }
    Ok((terms.join(", "), note))
}

// Aberration of a line
/// The aberration of a line as a table of a sample file, if the line is one.
fn aberration(line: &str) -> Option<String> {
    let words = line.split(',').flat_map(|part| {
        let mut words = part.split_whitespace().peekable();
        // Nothing between two commas is a missing number
        let missing = words.peek().is_none().then_some("");
        words.chain(missing)
    });
    let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
    let [m, n, size, angle] = <[f64; 4]>::try_from(numbers?).ok()?;
    let whole = m.fract() == 0.0 && n.fract() == 0.0;
    let good = whole && (1.0..=20.0).contains(&m) && (0.0..=m).contains(&n);
    (good && size.is_finite() && angle.is_finite())
        .then(|| format!("{{ m = {m}, n = {n}, magnitude = {size:?}, angle_deg = {angle:?} }}"))
}

// Window of a line along a side
/// The ends \[Å\] of the window along a side of the cell, from shares of it or from lengths, which go before them.
fn window_of(
    given: &GivenOptions,
    shares: &str,
    lengths: &str,
    side: f64,
) -> Result<[f64; 2], Invalid> {
    let rise = |name: &str, ends: Option<[f64; 2]>| match ends {
        Some([from, to]) if from > to => Err(refuse(name, given.values(name).unwrap_or_default())),
        ends => Ok(ends),
    };
    let share = rise(shares, given.numbers::<2>(shares, |x| x.abs() <= 1e3)?)?;
    let length = rise(lengths, given.numbers::<2>(lengths, |x| x.abs() <= 1e7)?)?;
    Ok(match length.filter(|[_, to]| *to != 0.0) {
        Some(ends) => ends.map(|end| end.min(side)),
        None => share.unwrap_or([0.0, 0.99999]).map(|end| end * side),
    })
}

/// A text between quotes, as TOML has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

// Tests of lines of Prismatic
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Engine;
    use crate::electrons::sample_file::SampleFile;
    use crate::electrons::{HrtemOptions, HrtemPlan};
    use crate::numerics::Precision;
    use crate::plan::Plan;
    use crate::watch::unwatched;

    const CRYSTAL: &str = "-i book/systems/SI100.XYZ";

    // Texts that lines become
    fn read(more: &str) -> FromPrismatic {
        FromPrismatic::read(&format!("{CRYSTAL} {more}")).unwrap()
    }

    /// A table of the text that a line becomes.
    fn table(more: &str, name: &str) -> String {
        let text = read(more).text;
        let table =
            text.split("\n[").find(|table| table.starts_with(&format!("{name}]\n"))).unwrap();
        table.split_once('\n').unwrap().1.into()
    }

    // An empty line has defaults
    #[test]
    fn an_empty_line_has_the_defaults_of_prismatic() {
        let least = "# Of the command line of Prismatic: -i book/systems/SI100.XYZ\n\
            [sample]\nfile = \"book/systems/SI100.XYZ\"\ntile = [1, 1, 1]\n\
            [potential]\nmodel = \"sampled\"\nfactors = \"kirkland-rounded\"\ngrid = [48, 48]\nslice_thickness = 2.0\nbound = 3.0\nplanes = 16\n\
            [phonons]\nconfigurations = 1\nseed = 0\n\
            [beam]\nenergy_kev = 80.0\ndefocus = [0.0]\nc3 = 0.0\nc5 = 0.0\nsemi_angle = 20.0\ntilt = [0.0, 0.0]\n\
            [scan]\nwindow = [[0.0, 5.5], [0.0, 5.5]]\nstep = [0.25, 0.25]\n\
             [method]\nalgorithm = \"prism\"\ninterpolation = [4, 4]\ninterpolation_check = \"warn\"\nmargin = 2.5\n\
             [detector]\nbin = 1.0\nbins = 104\n\
            [run]\nprecision = \"f32\"\n";
        let found = FromPrismatic::read(CRYSTAL).unwrap();
        assert_eq!(found.text, least);
        assert_eq!((found.output, found.device, found.save.len()), (None, None, 0));
        SampleFile::from_toml(&found.text, "--prismatic").unwrap().plan().unwrap();
    }

    // A full line to the last key
    #[test]
    fn a_full_line_is_written_to_the_last_key() {
        let line = "prismatic --input-file 'book/systems/SI100.XYZ' -o \"si 1.h5\" -a m -t 2 3 4 -c 5.43 5.5 5.6 \
            -f 2 -fy 1 -px 0.09 -py 0.11 -s 1.4 -P 2.5 -3DP 0 -te 0 -oc 0 -rs 7 -E 100 -sa 18 -df -30 -C3 1.2e7 -C5 5e11 \
            -tx 2 -ty -1 -r 0.5 -ry 0.4 -wx 0 0.5 -wyr 1 3 -d 2 -2D 40 79 -4D 1 -4DC 1 -4DA 30 -DPC 1 -probe 1 -ps 1 -ns 5 -zs 10 -g 0";
        let expected = "\n[sample]\nfile = \"book/systems/SI100.XYZ\"\ntile = [2, 3, 4]\ncell = [5.43, 5.5, 5.6]\noccupancy = false\ntilt = [2.0, -1.0]\n\
            [potential]\nmodel = \"lookup\"\nfactors = \"kirkland-rounded\"\ngrid = [120, 152]\nslice_thickness = 1.4\nbound = 2.5\n\
            [phonons]\nconfigurations = 0\nseed = 7\n\
            [beam]\nenergy_kev = 100.0\ndefocus = [-30.0]\nc3 = 12000000.0\nc5 = 500000000000.0\nsemi_angle = 18.0\ntilt = [0.0, 0.0]\n\
            [scan]\nwindow = [[0.0, 5.5], [1.0, 3.4000000000000004]]\nstep = [0.5, 0.4]\n\
            [method]\nalgorithm = \"multislice\"\nthicknesses = [14.0, 21.0]\n\
            [detector]\nbin = 2.0\nbins = 42\nannuli = [[38.0, 78.0]]\ncentre_of_mass = true\nfour_d = { crop = 30.0, bin = 1 }\n\
            [run]\nprecision = \"f32\"\n";
        let found = FromPrismatic::read(line).unwrap();
        assert_eq!(found.text.split_once('\n').unwrap().1, &expected[1..]);
        assert_eq!((found.output, found.device), (Some("si 1.h5".into()), Some(Device::Cpu)));
        assert_eq!(found.save, ["potential", "probe"]);
        let here = read("");
        assert_eq!(here.text_beside(Path::new("si.toml")).unwrap(), here.text);
        let there = here.text_beside(Path::new("/tmp/si.toml")).unwrap();
        let there = SampleFile::from_toml(&there, "/tmp/si.toml").unwrap();
        assert!(
            there.sample.crystal.file().is_some_and(Path::is_absolute) && there.specimen().is_ok()
        );
        let prism = "-te 0 -mrf 1 -df 12 -sm 1 -g 2 -s 2.5";
        assert_eq!(
            table(prism, "method"),
            "algorithm = \"prism\"\ninterpolation = [4, 4]\ninterpolation_check = \"warn\"\nmargin = 2.5\nrefocus = 19.5"
        );
        assert_eq!(
            (read(prism).save, read(prism).device),
            (vec!["smatrix".into()], Some(Device::Cuda(None)))
        );
    }

    // A plane wave of a line
    #[test]
    fn a_plane_wave_has_a_lens_and_no_probes() {
        let line = "-a t -te 0 -3DP 0 -s 2.5 -df 60 -C3 1e4 -ns 1 -sa 9 -tx 3 -r 0.3 -d 2 -com 1 -probe 1 -ps 1";
        let found = read(line);
        let expected = "[beam]\nenergy_kev = 80.0\ndefocus = [60.0]\nc3 = 10000.0\nc5 = 0.0\n\
            [method]\nalgorithm = \"hrtem\"\nrefocus = 2.715\nthicknesses = [2.5, 5.0]\n\
            [imaging]\nsamples = \"mask\"\n\
            [run]\nprecision = \"f32\"\n";
        assert!(found.text.ends_with(expected), "{}", found.text);
        assert_eq!(found.save, ["potential", "wave"]);
        assert_eq!(
            found.notes,
            [
                "-ns, -zs: waves inside the specimen are imaged, too, refocused by the same length; Prismatic images the exit wave alone",
                "-sa, -tx, -r, -d, -probe: without effect, as a plane wave has no probes",
                "-com 1: exit waves, before the lens, are written beside the images",
            ]
        );
        let file = SampleFile::from_toml(&found.text, "--prismatic").unwrap();
        let plan = file.hrtem().unwrap();
        assert_eq!(
            (plan.options().ends.as_slice(), plan.options().lens.aperture),
            (&[1, 2, 3][..], None)
        );
        // 48 by 48 samples of the grid, and half as many of an image
        let taken = plan.run(&Engine::cpu(Precision::F64), &unwatched).unwrap();
        assert_eq!((plan.options().grid.points(), taken.mean.dim()), ([48; 2], (1, 3, 24, 24)));
        // Focused on the middle of a specimen of 5.43 Å: a defocus of half of that is none at the exit face
        let image = |line: &str, change: &dyn Fn(&mut HrtemOptions)| {
            let text = read(line).text;
            let plan = SampleFile::from_toml(&text, "--prismatic").unwrap().hrtem().unwrap();
            let mut options = plan.options().clone();
            change(&mut options);
            let plan = HrtemPlan::new(plan.specimen().clone(), options).unwrap();
            plan.run(&Engine::cpu(Precision::F64), &unwatched).unwrap().mean
        };
        let middle = image("-a t -te 0 -3DP 0", &|_| ());
        let exit = image("-a t -te 0 -3DP 0 -df -2.715", &|options| options.refocus = 0.0);
        assert!((&middle - &exit).iter().all(|gap| gap.abs() < 1e-12));
        let face = image("-a t -te 0 -3DP 0", &|options| options.refocus = 0.0);
        assert!((&middle - &face).iter().any(|gap| gap.abs() > 1e-2));
    }

    // Grids and places of a line
    #[test]
    fn grids_and_places_follow_the_rules() {
        let grid = |more: &str| table(more, "potential").lines().nth(2).unwrap().to_string();
        assert_eq!(grid("-a m"), "grid = [48, 48]");
        assert_eq!(grid("-a m -f 1"), "grid = [56, 56]");
        assert_eq!(grid("-fx 1 -t 2 1 1 -p 0.2 -py 0.1"), "grid = [56, 48]");
        assert_eq!(grid("-fx 1 -f 7"), "grid = [56, 56]");
        // The later of two wins
        assert_eq!(grid("-px 0.3 -p 0.1 -f 1"), "grid = [56, 56]");
        let scan = |more: &str| table(more, "scan");
        assert_eq!(scan("-r 2.715"), "window = [[0.0, 5.43], [0.0, 5.43]]\nstep = [2.715, 2.715]");
        assert_eq!(
            scan("-r 1 -wx 0 0 -wyr 4.5 9"),
            "window = [[0.0, 1.0], [4.5, 5.5]]\nstep = [1.0, 1.0]"
        );
        // A last step on the end is there; lengths go before shares
        assert_eq!(
            scan("-r 0.1 -wxr 0 0.3 -wx 0 1 -wyr 1 1.25"),
            "window = [[0.0, 0.4], [1.0, 1.3]]\nstep = [0.1, 0.1]"
        );
        // 4 · 0.02 / 0.0417571 · 5.43 = 10.403 probes of 80 keV along one cell, 20.8 along two
        let text = scan("-nqs 1 -t 2 1 1");
        let expected = format!("step = [{:?}, {:?}]", 10.86 / 21.0, 5.43 / 11.0);
        assert_eq!(text.lines().nth(1), Some(expected.as_str()));
        assert!(text.starts_with("window = [[0.0, 10.86], [0.0, 5.43"), "{text}");
    }

    // Notes tell what differs
    #[test]
    fn notes_tell_what_differs() {
        let notes = |more: &str| -> Vec<String> {
            let notes = read(more).notes;
            notes.iter().map(|note| note.split(": ").next().unwrap().to_string()).collect()
        };
        assert_eq!(notes(""), ["-3DP 1", "-te 1"]);
        assert_eq!(notes("-te 0 -3DP 0"), [""; 0]);
        // Two atoms at z = 0 where slices fill the cell
        assert_eq!(notes("-te 0 -3DP 0 -s 1.3575"), ["-s"]);
        assert_eq!(notes("-te 0 -3DP 1 -s 1.3575"), ["-3DP 1"]);
        assert_eq!(notes("-te 0 -3DP 0 -a m -tx 3"), [""; 0]);
        assert!(read("-te 0 -3DP 0 -s 1.3575 -t 3 1 1").notes[0].contains("6 atoms"));
        let all = "-te 0 -3DP 0 -A 24 -rs 3 -F 4 -3DPZ 8 -tx 1 -ns 2 -3D 0 -4D 1 -4DC 1 -com 1 -j 2 -S 3 -b 4 -C 0";
        let expected = [
            "-3DPZ", "-F", "-rs", "-tx, -ty", "-A", "-ns, -zs", "-3D 0", "-4DC 1", "-com 1", "-j",
            "-S", "-b", "-C",
        ];
        assert_eq!(notes(all), expected);
        assert_eq!(notes("-te 0 -3DP 0 -2D 20 500")[0], "-2D");
        let detector = |more: &str| table(&format!("-te 0 -3DP 0 {more}"), "detector");
        assert!(detector("-2D 20 500").contains("annuli = [[19.0, 104.0]]"));
        // In single precision 0.06/0.001 is below 60, and 0.1/0.001 is 100
        assert!(detector("-2D 60 100").contains("annuli = [[59.0, 100.0]]"));
        assert_eq!(notes("-te 0 -3DP 0 -2D 60 100"), ["-2D"]);
        assert_eq!(notes("-te 0 -3DP 0 -2D 70 100"), [""; 0]);
        assert!(detector("-d 0.5 -2D 20 70").contains("annuli = [[19.5, 70.0]]"));
        // Bins by the pixel that is asked for, 0.1 or 0.13 Å, on grids of 48 and of 40 samples
        assert!(detector("-a m -f 1 -py 0.13").ends_with("bins = 80"));
        let line = format!("{CRYSTAL} -te 0 -3DP 0 -a m -E 80 -r 5");
        let found = FromPrismatic::read(&line).unwrap();
        let plan = SampleFile::from_toml(&found.text, "--prismatic").unwrap().plan().unwrap();
        let complete = DetectorOptions::default();
        let complete = Detectors::new(plan.options().grid, &plan.options().probe.beam, complete);
        assert_eq!((plan.detectors().rings(), complete.unwrap().rings()), (104, 92));
        assert_eq!(notes("-te 0 -3DP 0 -a m -sm 1 -dfr 0 1 1 -df 3"), ["-df", "-sm 1"]);
    }

    // Series and aberrations of a line
    #[test]
    fn series_and_aberrations_become_lists() {
        let beam = |more: &str| table(more, "beam");
        assert!(beam("-dfr -10 10 5").contains("defocus = [-10.0, -5.0, 0.0, 5.0, 10.0]\n"));
        assert!(beam("-dfr 0 0.3 0.1").contains("0.30000000000000004]\n"));
        assert!(
            beam("-df 8 -dfs 4")
                .contains("defocus = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]")
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a list");
        std::fs::write(&file, "# measured\n2, 2, 1.5, 30\n\n3,1,-2e2,0\n").unwrap();
        let line = format!("{CRYSTAL} -aber '{}'", file.display());
        let found = FromPrismatic::read(&line).unwrap().text;
        let sample = SampleFile::from_toml(&found, "--prismatic").unwrap();
        assert_eq!(
            sample
                .beam
                .aberrations
                .iter()
                .map(|a| (a.m, a.n, a.magnitude, a.angle_deg))
                .collect::<Vec<_>>(),
            [(2, 2, 1.5, 30.0), (3, 1, -200.0, 0.0)]
        );
        // Commas or blanks, a comment in the first line, and what is behind -1 is not read
        let listed = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let found = FromPrismatic::read(&line).map_err(|error| error.to_string())?;
            let noted = found.notes.into_iter().filter(|note| note.starts_with("-aber"));
            let terms = found.text.split_once("aberrations = [").unwrap().1;
            Ok::<_, String>((terms.matches("{ m = ").count(), noted.collect::<Vec<_>>()))
        };
        assert_eq!(
            listed("m n magnitude angle\n2 2 1.5 30\n3 , 1, 2  0\n-1\nxyz\n"),
            Ok((2, vec![]))
        );
        assert_eq!(listed("measured\n4,0,1,0\n  -1  "), Ok((1, vec![])));
        let counts =
            "-aber: its first line, 2,2,1.5,30, counts; Prismatic would take it for a comment";
        assert_eq!(listed("2,2,1.5,30\n-1\n"), Ok((1, vec![counts.to_string()])));
        let comment = "-aber: its first line, 2,2,1.5, is taken for a comment";
        assert_eq!(listed("2,2,1.5\n2,0,1,0\n"), Ok((1, vec![comment.to_string()])));
        for empty in ["", "nothing\n", "nothing\n-1\n2,2,1,0\n"] {
            let refused = listed(empty).unwrap_err();
            assert!(refused.contains("aberration is missing: expected m,n,magnitude"), "{refused}");
        }
        for bad in
            ["2,2,1", "2,3,1,0", "0,0,1,0", "2,2,x,0", "2,2,1,inf", "2,2,1,0,5", "2,,1,0", "-2"]
        {
            std::fs::write(&file, format!("2,0,1,0\n{bad}\n")).unwrap();
            let said = FromPrismatic::read(&line).unwrap_err().to_string();
            let expected =
                format!("a list:2: aberration = {bad}: expected m,n,magnitude,angle: m from 1");
            assert!(said.contains(&expected), "{said}");
        }
        assert!(matches!(FromPrismatic::read("-i none.xyz"), Err(Error::Read { .. })));
    }

    // Bad lines of Prismatic are refused
    #[test]
    fn bad_lines_are_refused_by_option() {
        let refused = |line: &str, expected: &str| {
            let said = FromPrismatic::read(line).unwrap_err().to_string();
            assert!(said.starts_with(&format!("--prismatic{expected}")), "{line}: {said}");
        };
        refused("", " -i = nothing: expected the name of a file of atoms");
        refused("-a m", " -i = nothing");
        refused("-i 'a b", " = \"-i 'a b\": expected quotes that are closed");
        let cases = [
            ("--Df 3", " = --Df: expected an option of Prismatic; did you mean -df?"),
            (
                "--probestep-x 3",
                " = --probestep-x: expected an option of Prismatic; did you mean --probe-step-x?",
            ),
            ("-p 0.1 0.2", " = 0.2: expected an option"),
            ("-df -p 0.1", " -df = nothing: expected a length in Å"),
            ("-df", " -df = nothing"),
            ("-t 2 2", " -t = 2 2: expected three whole numbers"),
            ("-t 2 2 0", " -t = 2 2 0: expected three whole numbers"),
            ("-t 2 2 1.5", " -t = 2 2 1.5"),
            ("-c 5 5 -5", " -c = 5 5 -5: expected three lengths"),
            ("-p 0", " -p = 0: expected a length in Å greater than 0"),
            ("-p nan", " -p = nan"),
            ("-p 0.1 -pixel", " = -pixel"),
            ("-p 0.1 --pixel-size 0.2", " -p = 0.2: expected an option that stands once"),
            ("-f 1.5", " -f = 1.5: expected a whole number from 1 to 1000"),
            ("-a x", " -a = x: expected p for PRISM, m for multislice or t"),
            ("-te yes", " -te = yes: expected 0 or 1"),
            ("-s 9", " -s = 9.0: expected a length in Å up to the height of the cell"),
            ("-E 0", " -E = 0: expected an energy between"),
            ("-sa -3", " -sa = -3: expected an angle in mrad greater than 0"),
            ("-dfr 0 10 0", " -dfr = 0 10 0: expected the least"),
            ("-dfr 0 10 1e-5", " -dfr = 0 10 1e-5: expected the least"),
            ("-dfr 0 10 5 -dfs 2", " -dfr = 0 10 5"),
            ("-wx 0.5 0.2", " -wx = 0.5 0.2: expected two shares of the cell, the second larger"),
            ("-wyr 3", " -wyr = 3: expected two lengths"),
            ("-r 1e-9", " -r = "),
            ("-pos list.txt", " -pos = list.txt: expected no list of places"),
            ("-2D 30 30", " -2D = 30 30: expected two angles"),
            ("-2D 300 400", " -2D = 300 400: expected two angles"),
            ("-d 0", " -d = 0: expected an angle"),
            ("-probe 3", " -probe = 3: expected 0, 1 or 2"),
            ("-4DC 1 -4DA 0", " -4DA = 0: expected an angle"),
        ];
        for (more, expected) in cases {
            refused(&format!("{CRYSTAL} {more}"), expected);
        }
        assert_eq!(
            words(r#" a 'b "c"' "d\" e\f"  \ g'h'i ''"#).unwrap(),
            ["a", "b \"c\"", "d\" e\\f", " ghi", ""]
        );
    }

    // A lopsided crystal and its readings
    /// A line for a lopsided crystal, without its algorithm, and the folder of its files.
    fn lopsided() -> (String, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let [atoms, list] = ["atoms.xyz", "aber"].map(|name| folder.path().join(name));
        let lines = "14 0.3 0.9 5.2 1 0.076\n14 4.1 5.6 4.9 1 0.076\n79 2.2 3.35 3.1 1 0.05\n8 6.55 1.95 2.4 0.5 0.08\n\
            14 7.9 4.4 1.9 1 0.076\n31 5.0 0.1 0.7 1 0.06\n14 1.0 6.6 0.0 1 0.06\n-1\n";
        std::fs::write(&atoms, format!("a lopsided cell\n8.1 6.7 5.43\n{lines}")).unwrap();
        std::fs::write(&list, "2,2,900,20\n3,1,-20000,70\n").unwrap();
        let line = format!(
            "-i '{}' -aber '{}' -te 0 -3DP 0 -E 100 -sa 15 -df 25 -C3 8000 -C5 2e6 -s 1.3575 -P 2.4 -d 3 -2D 10 40 -DPC 1 -4D 1 \
             -rx 1.7 -ry 1.3 -wx 0.37 0.37 -wyr 4.9 4.95",
            atoms.display(),
            list.display()
        );
        (line, folder)
    }

    /// Some readings of the one probe of a line, with a table of scattering factors.
    fn readings(line: &str, factors: &str) -> [f64; 7] {
        let text = FromPrismatic::read(line).unwrap().text;
        let text = text.replace("kirkland-rounded", factors);
        let plan = SampleFile::from_toml(&text, "--prismatic").unwrap().plan().unwrap();
        let readings = plan.run(&Engine::default(), &unwatched).unwrap();
        let (row, layout) = (readings.mean.row(0).to_vec(), plan.detectors().layout());
        assert_eq!(readings.mean.nrows(), 1);
        let [x, y] = plan.detectors().pattern_axes().unwrap().map(<[f64]>::len);
        let (total, moments) = (row[layout.total], &row[layout.moments.clone()]);
        let pixel = row[layout.pattern.start + (y / 2 - 2) * x + x / 2 + 1];
        let annulus = row[layout.annuli.start];
        [row[1], row[12], annulus, moments[0] / total, moments[1] / total, pixel, total]
    }

    // Numbers of a literal transcription
    #[test]
    fn readings_are_those_of_a_literal_transcription() {
        let (line, _folder) = lopsided();
        let cases = [
            (
                "-a m -px 0.12 -py 0.13",
                [
                    0.1569271009799003,
                    8.007191133051583e-5,
                    0.6455270316816267,
                    0.0035966596157850942,
                    0.002140113137189538,
                    0.038449000568520526,
                    0.9997521071090785,
                ],
            ),
            (
                "-a p -fx 2 -fy 1 -p 0.12",
                [
                    0.15805627796155727,
                    5.2653025389830374e-5,
                    0.7596570790185788,
                    0.003144004754486269,
                    0.0020755985035054267,
                    0.026801933847491268,
                    0.9962886897211043,
                ],
            ),
        ];
        for (more, expected) in cases {
            let found = readings(&format!("{line} {more}"), "kirkland");
            let rounded = readings(&format!("{line} {more}"), "kirkland-rounded");
            for ((found, expected), rounded) in found.iter().zip(expected).zip(rounded) {
                assert!((found - expected).abs() < 1e-14, "{more}: {found} is not {expected}");
                let gap = (rounded - expected).abs();
                assert!(gap < 1e-6 * expected.abs() && gap > 0.0, "{more}: {rounded}");
            }
        }
    }
}
