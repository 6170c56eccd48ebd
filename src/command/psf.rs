// Tangled from book/src/psf-command.md: edit there, or here and run cargo tangle stitch.
//! The command `psf`: from a system file to the images of its targets, and their budgets of errors.

// Imports of the command psf
use super::examples::{self, examples};
use super::planned_run::PlannedRun;
use super::progress::{Terminal, with_speed};
use super::summary::{align, command_line, count, file_json, file_line, file_lines};
use super::value_parsers;
use crate::data::DataSet;
use crate::device::engine::Engine;
use crate::device::threads;
use crate::error::{Error, Invalid};
use crate::estimation::inversion::Inversion;
use crate::files::Format;
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::provenance::Provenance;
use crate::formats::FieldImages;
use crate::model::source::Source;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::plan::{Description, Plan};
use crate::plot::{
    FieldPicture, PictureFormat, plot_budgets, plot_field, plot_profiles, plot_stars, short_name,
};
use crate::psf::{
    Exposure, Field, LoopSimulationOptions, LoopSimulationPlan, PsfOptions, PsfPlan, PsfResult,
    Ring, Simulated, TargetImage,
};
use crate::units::ARCSEC;
use crate::watch::check;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

// Arguments of psf
#[derive(Debug, Args)]
#[command(after_help = examples(examples::PSF))]
#[command(mut_arg("precision", |arg| arg.help(value_parsers::DOUBLE_ON_CPU)))]
pub struct PsfArgs {
    /// System file (TOML), with a telescope, at least one mirror and one target.
    pub system: PathBuf,
    /// File to write: FITS if it ends in .fits, .fit or .fts, or NumPy's .npz.
    #[arg(short, long, required_unless_present = "plan")]
    output: Option<PathBuf>,
    /// How the covariance of the measurements is inverted, in place of what the system file says.
    #[arg(long, value_parser = value_parsers::inversions())]
    method: Option<Inversion>,
    /// Write the images of the field, or else of the targets, into this file that ScopeSim reads (.fits), too.
    #[arg(long)]
    scopesim: Option<PathBuf>,
    /// Draw what was found at the first wavelength into this file, .svg or .png.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// What to draw.
    #[arg(long, value_enum, requires = "plot", default_value = "psf")]
    of: PsfPlotKind,
    /// Write a line for each target and each direction of the field into this file, .csv.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Simulate so many independent realisations of the loop, and print their errors and Strehl ratios with standard errors, too.
    #[arg(long, value_name = "REALISATIONS", conflicts_with = "plan", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    check: Option<u32>,
    /// Decades of light that the picture shows.
    #[arg(long, requires = "plot", default_value_t = 4)]
    decades: u32,
    #[command(flatten)]
    engine: value_parsers::EngineArgs,
    // Arguments about what psf says
    #[command(flatten)]
    report: value_parsers::ReportArgs,
}

/// What a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PsfPlotKind {
    /// The images of the targets.
    Psf,
    /// Profiles of the targets, of a perfect star and of one without correction.
    Profile,
    /// The error budgets of the targets as bars.
    Budget,
    /// The maps of the field, with the guide stars.
    Field,
}

// Images into a file
/// Computes what the arguments ask for; returns what to print.
pub fn psf(args: &PsfArgs, read: Result<(System, SystemFile), Error>) -> Result<String, Error> {
    // Check the files of the images
    let picture = args.plot.as_deref();
    let picture =
        picture.map(|path| PictureFormat::of(path).map(|format| (path, format))).transpose()?;
    let named = args.output.as_deref().map(|path| ("output", path));
    let format = named.map(|name| Format::of(name, &Format::OF_ARRAYS, None)).transpose()?;
    let table = args.csv.as_deref().map(|path| ("csv", path));
    let is_table =
        |path: &Path| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
    if let Some((_, path)) = table.filter(|(_, path)| !is_table(path)) {
        return Err(Invalid::new("csv", path.display(), "a file name that ends in .csv").into());
    }
    let scopesim = args.scopesim.as_deref().map(|path| ("scopesim", path));
    if let Some(name) = scopesim {
        Format::of(name, &[Format::Fits], None)?;
    }
    let outputs = [named, picture.map(|(path, _)| ("plot", path)), table, scopesim];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.report.plan).collect();
    check_files(&[("system file", &args.system)], &outputs)?;
    let (system, file) = read?;
    let mut options = PsfOptions::from_system_file(&file)?;
    options.reconstructor =
        options.reconstructor.method(args.method.unwrap_or(options.reconstructor.method));
    // Refuse pictures that there are not
    let image = &options.image;
    let terms = image.terms.as_ref().is_none_or(|terms| !terms.is_empty());
    let terms = terms || image.extra + image.jitter > 0.0;
    let (targets, mapped) = (!system.targets().is_empty(), options.field.is_some());
    let stars = "the images of targets need a [[target]]";
    let pictures = [
        (PsfPlotKind::Psf, "psf", targets, stars),
        (PsfPlotKind::Profile, "profile", targets, stars),
        (
            PsfPlotKind::Budget,
            "budget",
            targets && terms,
            "a budget needs a [[target]], and an error in image.terms",
        ),
        (
            PsfPlotKind::Field,
            "field",
            mapped,
            "maps of a field need a table [field] with its size and step in arcsec, such as size = 60 and step = 10",
        ),
    ];
    let existing: Vec<&str> =
        pictures.iter().filter(|(_, _, exists, _)| *exists).map(|(_, name, ..)| *name).collect();
    let missing = pictures.iter().find(|(of, _, exists, _)| *of == args.of && !exists);
    if let Some((_, name, _, needed)) = missing.filter(|_| picture.is_some()) {
        return Err(value_parsers::no_picture(name, &existing, needed).into());
    }
    let plan = PsfPlan::new(&system, options)?.whole_field(args.scopesim.is_some());
    let engine = with_speed(args.engine.engine(&plan)?, args.report.plan)?;
    let planned = PlannedRun::new(&plan, &engine);
    let Some((output, format)) = args.output.as_ref().zip(format).filter(|_| !args.report.plan)
    else {
        return planned.text(args.report.json);
    };
    // Plan simulated loops beside the images
    let (cores, description) = (Engine::default(), planned.describe()?);
    let loops = |count| {
        let options = LoopSimulationOptions::default().realisations(count as usize);
        LoopSimulationPlan::new(&system, plan.options(), options)
    };
    let loops = args.check.map(loops).transpose()?;
    let stages = loops.as_ref().map(|loops| loops.describe(&cores)).transpose()?;
    let planned = planned.with_stages(stages.into_iter().flat_map(|loops| loops.stages));
    let (terminal, start) = (Terminal::new(args.report.quiet), Instant::now());
    let files = [args.output.as_deref(), args.scopesim.as_deref(), args.plot.as_deref()];
    let files = files.into_iter().chain([args.csv.as_deref()]).flatten();
    let result = planned.run(&terminal, files)?;
    let seconds = start.elapsed().as_secs_f64();
    let simulated =
        loops.map(|loops| loops.run(&cores, &terminal)).transpose()?.unwrap_or_default();
    let report = PsfReport {
        args,
        system: &system,
        plan: &plan,
        description: &description,
        engine: &engine,
        result: &result,
        simulated: &simulated,
        seconds,
    };
    // Write the images and their picture
    let mut arrays = result.to_data_set(&plan)?;
    let origin = Provenance::new(&command_line(), &description.method, file.text());
    origin.clone().note(&mut arrays);
    terminal.writes(output);
    let mut draft = AtomicFile::new(output)?;
    draft.fill(|file| arrays.write(file, format, args.engine.precision))?;
    drop(arrays);
    let scopesim = args.scopesim.as_deref().map(|path| {
        terminal.writes(path);
        report.draft_of_field(path, origin)
    });
    let scopesim = scopesim.transpose()?;
    let drawing = picture.map(|(path, format)| {
        terminal.writes(path);
        AtomicFile::holding(path, &report.draw(format)?)
    });
    let drawing = drawing.transpose()?;
    let table = args.csv.as_deref().map(|path| {
        terminal.writes(path);
        AtomicFile::holding(path, report.table().as_bytes())
    });
    let table = table.transpose()?;
    check(&terminal)?;
    draft.publish()?;
    scopesim.map(AtomicFile::publish).transpose()?;
    drawing.map(AtomicFile::publish).transpose()?;
    table.map(AtomicFile::publish).transpose()?;
    terminal.finish();
    Ok(args.report.summary(|| report.summary(), || report.lines()))
}

// Report of the command psf
/// The results of the command, with what is needed to report them.
struct PsfReport<'a> {
    args: &'a PsfArgs,
    system: &'a System,
    plan: &'a PsfPlan,
    description: &'a Description,
    engine: &'a Engine,
    result: &'a PsfResult,
    /// Means over simulated loops of each target, if they are requested.
    simulated: &'a [Simulated],
    seconds: f64,
}

impl PsfReport<'_> {
    fn mode(&self) -> &'static str {
        self.plan.options().correction.mode.name()
    }

    fn actuators(&self) -> usize {
        self.plan.correction().mirrors().iter().map(|mirror| mirror.positions().len()).sum()
    }

    /// Sides of the boxes of ensquared energy, mas.
    fn boxes(&self) -> Vec<f64> {
        let sides = self.plan.options().image.ensquared.iter();
        sides.map(|side| (1e6 * side / ARCSEC).round() / 1e3).collect()
    }
}

/// An angle in milliarcseconds.
fn mas(angle: f64) -> f64 {
    1e3 * angle / ARCSEC
}

/// The mean width of an image in milliarcseconds, if it has one.
fn width(exposure: &Exposure) -> Option<f64> {
    exposure.width.map(|width| mas(width.mean()))
}

// Images for ScopeSim before they are published
impl PsfReport<'_> {
    /// The file for ScopeSim, complete but not yet published.
    fn draft_of_field(&self, path: &Path, origin: Provenance) -> Result<AtomicFile, Error> {
        let mut arrays = DataSet::default();
        FieldImages::of(self.plan, self.result).add_to(&mut arrays)?;
        origin.note(&mut arrays);
        let mut draft = AtomicFile::new(path)?;
        draft.fill(|file| arrays.write(file, Format::Fits, self.args.engine.precision))?;
        Ok(draft)
    }
}

// Report images in lines
impl PsfReport<'_> {
    fn lines(&self) -> String {
        let (stars, n) =
            (self.system.guide_stars().len(), self.plan.reconstruction().measurements());
        let targets = self.result.targets.len();
        let description = self.description;
        let system = [
            [count(stars, "guide star"), count(n, "slope")].join(", "),
            [count(self.actuators(), "actuator"), self.mode().into()].join(", "),
            count(targets, "target"),
        ]
        .join("; ");
        let names: Vec<String> = (0..targets).map(|t| format!("target {t}")).collect();
        let mut lines = vec![("system", system), ("method", description.reason.clone())];
        for (t, (name, target)) in names.iter().zip(&self.result.targets).enumerate() {
            let mut name = name.as_str();
            for line in self.lines_of(target) {
                lines.push((std::mem::take(&mut name), line));
            }
            lines.extend(self.line_of_check(t, target).map(|line| ("", line)));
        }
        if let Some(why) = self.plan.independent() {
            lines.push(("terms", format!("added as if independent, as {why}")));
        }
        if let Some(field) = &self.plan.options().field {
            lines.push(("field", self.line_of(field)));
        }
        let output = self.args.output.as_deref().unwrap_or("".as_ref());
        let shape: Vec<String> = description.arrays[0].1.iter().map(usize::to_string).collect();
        lines.push(("time", format!("{:.3} s on {}", self.seconds, self.engine.name())));
        lines.push(file_line("output", output, &format!("psf {}", shape.join(" × "))));
        lines.extend(file_lines(self.further_files()));
        align(&lines)
    }
}

// Report fields and targets in lines
impl PsfReport<'_> {
    // Files written with images
    /// Files that are written beside the images.
    fn further_files(&self) -> [(&'static str, Option<&Path>); 3] {
        let Self { args, .. } = self;
        [
            ("scopesim", args.scopesim.as_deref()),
            ("plot", args.plot.as_deref()),
            ("csv", args.csv.as_deref()),
        ]
    }

    /// From where to where the numbers of a field go at the first wavelength.
    fn line_of(&self, field: &Field) -> String {
        let range = |value: &dyn Fn(&TargetImage) -> f64| {
            let values = self.result.field.iter().map(value);
            let start = [f64::INFINITY, f64::NEG_INFINITY];
            values.fold(start, |[low, high], value| [low.min(value), high.max(value)])
        };
        let [worst, best] = range(&|target| target.exposures[0].image.strehl);
        let [least, most] = range(&|target| 1e9 * target.budget.total());
        let (n, size) = (field.across(), field.size / ARCSEC);
        format!(
            "{n} × {n} over {size:.1} arcsec: Strehl {worst:.3} to {best:.3}, {least:.0} to {most:.0} nm rms"
        )
    }

    /// The total and the Strehl ratios of a target next to those of simulated loops, if there are any.
    fn line_of_check(&self, t: usize, target: &TargetImage) -> Option<String> {
        let simulated = self.simulated.get(t)?;
        let computed = target.exposures.iter().zip(&simulated.strehl);
        let strehl: Vec<String> = computed
            .map(|(exposure, [mean, error])| {
                let wavelength = 1e6 * exposure.image.wavelength;
                let computed = exposure.image.strehl;
                format!("Strehl {mean:.3} ± {error:.3} ({computed:.3}) at {wavelength:.4} µm")
            })
            .collect();
        let ([mean, error], total) =
            (simulated.error.map(|x| 1e9 * x), 1e9 * target.budget.total());
        let count = self.args.check.unwrap_or(0);
        Some(format!(
            "simulated (computed): {mean:.1} ± {error:.1} ({total:.1}) nm rms, {}; {count} realisations",
            strehl.join(", ")
        ))
    }

    /// A line for each wavelength, and one for the budget.
    fn lines_of(&self, target: &TargetImage) -> Vec<String> {
        let boxes = self.boxes();
        let exposures = target.exposures.iter().map(|exposure| {
            let across = width(exposure).map(|width| format!("{width:.0} mas"));
            let across = across.unwrap_or("wider than half the field".into());
            let energy = exposure.ensquared.iter().zip(&boxes);
            let energy = energy.map(|(share, side)| format!(", {share:.3} in {side} mas"));
            let wavelength = 1e6 * exposure.image.wavelength;
            let strehl = exposure.image.strehl;
            format!(
                "{wavelength:.4} µm: Strehl {strehl:.3}, FWHM {across}{}",
                energy.collect::<String>()
            )
        });
        let terms = target.budget.terms().iter();
        let terms: Vec<String> =
            terms.map(|term| format!("{} {:.0}", term.name, 1e9 * term.rms())).collect();
        let budget = format!("{}: {:.0} nm rms", terms.join(", "), 1e9 * target.budget.total());
        exposures.chain([budget]).collect()
    }
}

// Report images as JSON
impl PsfReport<'_> {
    fn summary(&self) -> Value {
        let (image, image_field) = (&self.plan.options().image, &self.plan.options().field);
        let description = self.description;
        let targets = self.targets();
        let field = image_field.as_ref().map(|field| self.field(field));
        json!({
            "system": self.args.system.display().to_string(),
            "measurements": self.plan.reconstruction().measurements(),
            "actuators": self.actuators(),
            "mode": self.mode(),
            "method": self.plan.reconstruction().method().name(),
            "terms": if self.plan.independent().is_some() { "independent" } else { "one covariance" },
            "terms_reason": self.plan.independent(),
            "wavelengths": image.wavelengths,
            "pixel_mas": mas(image.pixel_at(image.wavelengths[0], self.plan.diameter())),
            "pixels": image.pixels,
            "ensquared_mas": self.boxes(),
            "targets": targets,
            "field": field,
            "computed_on": description.engine,
            "precision": self.args.engine.precision.name(),
            "seconds": self.seconds,
            "threads": threads(),
            "output": file_json(self.args.output.as_deref()),
            "scopesim": file_json(self.args.scopesim.as_deref()),
            "plot": file_json(self.args.plot.as_deref()),
            "csv": file_json(self.args.csv.as_deref()),
        })
    }

    /// All targets, with their residual errors in simulated loops.
    fn targets(&self) -> Vec<Value> {
        let targets = self.system.targets().iter().zip(&self.result.targets).enumerate();
        let each = targets.map(|(t, (source, target))| {
            let mut object = target_facts(source, target);
            if let Some(simulated) = self.simulated.get(t) {
                object["simulated"] = of_check(simulated, self.args.check.unwrap_or(0));
            }
            object
        });
        each.collect()
    }

    fn field(&self, field: &Field) -> Value {
        let directions = &self.plan.correction().system().targets()[self.result.targets.len()..];
        let points = directions.iter().zip(&self.result.field);
        let points: Vec<Value> =
            points.map(|(source, target)| target_json(source, target)).collect();
        let [size, step] = [field.size, field.step].map(|angle| angle / ARCSEC);
        json!({ "size_arcsec": size, "step_arcsec": step, "across": field.across(), "points": points })
    }
}

// Report the contrast around targets
/// A target as JSON: the values of its direction, and the contrast around it at each wavelength.
pub(crate) fn target_facts(source: &Source, target: &TargetImage) -> Value {
    let contrast = |exposure: &Exposure| {
        let rings = exposure.image.rings();
        let of = |value: &dyn Fn(&Ring) -> f64| rings.iter().map(value).collect::<Vec<f64>>();
        json!({
            "radius_mas": of(&|ring| mas(ring.radius)),
            "mean": of(&|ring| ring.mean),
            "rms": of(&|ring| ring.deviation),
        })
    };
    let mut object = target_json(source, target);
    object["contrast"] = target.exposures.iter().map(contrast).collect();
    object
}

// Means of simulated loops in json
/// Means of simulated loops with their standard errors.
fn of_check(simulated: &Simulated, realisations: u32) -> Value {
    let of = |k: usize| simulated.strehl.iter().map(|strehl| strehl[k]).collect::<Vec<f64>>();
    json!({
        "realisations": realisations,
        "error_nm": 1e9 * simulated.error[0],
        "error_nm_uncertainty": 1e9 * simulated.error[1],
        "strehl": of(0),
        "strehl_uncertainty": of(1),
    })
}

// One direction in json
/// One direction as JSON.
fn target_json(source: &Source, target: &TargetImage) -> Value {
    let [x, y] = source.direction();
    let exposures = &target.exposures;
    let terms = target.budget.terms().iter();
    let mut budget: Map<String, Value> =
        terms.map(|term| (term.name.clone(), json!(1e9 * term.rms()))).collect();
    budget.insert("total".into(), json!(1e9 * target.budget.total()));
    let of = |value: &dyn Fn(&Exposure) -> Value| -> Vec<Value> {
        exposures.iter().map(value).collect()
    };
    json!({
        "zenith_arcsec": f64::hypot(x, y) / ARCSEC,
        "azimuth_degrees": y.atan2(x).to_degrees(),
        "strehl": of(&|exposure| json!(exposure.image.strehl)),
        "fwhm_mas": of(&|exposure| json!(width(exposure))),
        "ensquared": of(&|exposure| json!(exposure.ensquared)),
        "budget_nm": budget,
    })
}

// Report images in a table
impl PsfReport<'_> {
    /// All directions as comma-separated values.
    fn table(&self) -> String {
        let image = &self.plan.options().image;
        let waves: Vec<String> =
            image.wavelengths.iter().map(|wave| format!("{:.4}", 1e6 * wave)).collect();
        let mut titles = ["kind", "number", "x_arcsec", "y_arcsec"].map(String::from).to_vec();
        for wave in &waves {
            titles.extend([format!("strehl_{wave}"), format!("fwhm_mas_{wave}")]);
            titles.extend(self.boxes().iter().map(|side| format!("ensquared_{side}mas_{wave}")));
        }
        let all = || self.result.targets.iter().chain(&self.result.field);
        let terms = all().next().map_or_else(Vec::new, |target| target.budget.terms().to_vec());
        titles.extend(terms.iter().map(|term| format!("{}_nm", term.name)));
        titles.push("total_nm".into());
        let mut lines = vec![titles.join(",")];
        let targets = self.result.targets.len();
        for (k, (source, image)) in
            self.plan.correction().system().targets().iter().zip(all()).enumerate()
        {
            let (kind, number) = if k < targets { ("target", k) } else { ("field", k - targets) };
            let [x, y] = source.direction().map(|x| x / ARCSEC);
            lines.push(format!("{kind},{number},{x},{y},{}", self.numbers(image).join(",")));
        }
        lines.join("\n") + "\n"
    }

    /// The numbers of one direction; where an image is too wide to have a width, there is none.
    fn numbers(&self, image: &TargetImage) -> Vec<String> {
        let mut numbers = Vec::new();
        for exposure in &image.exposures {
            numbers.push(exposure.image.strehl.to_string());
            numbers.push(width(exposure).map_or_else(String::new, |width| width.to_string()));
            numbers.extend(exposure.ensquared.iter().map(f64::to_string));
        }
        let errors = image.budget.terms().iter().map(|term| 1e9 * term.rms());
        numbers.extend(errors.chain([1e9 * image.budget.total()]).map(|error| error.to_string()));
        numbers
    }
}

// Draw the images of a system
impl PsfReport<'_> {
    fn draw(&self, format: PictureFormat) -> Result<Vec<u8>, Error> {
        if let (PsfPlotKind::Field, Some(field)) = (self.args.of, &self.plan.options().field) {
            return plot_field(&self.picture_of(field), format);
        }
        if self.args.of == PsfPlotKind::Budget {
            return self.draw_budgets(format);
        }
        let mut images = vec![("perfect".into(), &self.result.targets[0].exposures[0].perfect)];
        for (t, target) in self.result.targets.iter().enumerate().take(6) {
            let image = &target.exposures[0].image;
            images.push((format!("target {t}: Strehl {:.2}", image.strehl), image));
        }
        images.push(("without correction".into(), &self.result.uncorrected));
        let mut images: Vec<_> =
            images.iter().map(|(title, image)| (title.as_str(), *image)).collect();
        if self.args.of == PsfPlotKind::Profile {
            images.rotate_left(1); // the first target is the one whose rings are told
            return plot_profiles(&images, &self.title(), self.args.decades, format);
        }
        plot_stars(&images, &self.title(), self.args.decades, format)
    }

    /// Bars for the targets, at most six of them.
    fn draw_budgets(&self, format: PictureFormat) -> Result<Vec<u8>, Error> {
        let names: Vec<String> =
            (0..self.result.targets.len().min(6)).map(|t| format!("target {t}")).collect();
        let budgets = names.iter().zip(&self.result.targets);
        let budgets: Vec<_> = budgets.map(|(name, one)| (name.as_str(), &one.budget)).collect();
        let name = short_name(&self.args.system.display().to_string());
        plot_budgets(&budgets, &format!("{name}: error budget"), format)
    }

    /// The system, and the first wavelength.
    fn title(&self) -> String {
        let name = short_name(&self.args.system.display().to_string());
        format!("{name} at {:.4} µm", 1e6 * self.result.uncorrected.wavelength)
    }

    /// The maps of a field at the first wavelength.
    fn picture_of(&self, field: &Field) -> FieldPicture {
        let first = |value: &dyn Fn(&Exposure) -> f64| {
            self.result.map(field, |target| value(&target.exposures[0]))
        };
        let mut maps = vec![
            ("Strehl ratio".to_string(), first(&|exposure| exposure.image.strehl)),
            ("FWHM [mas]".to_string(), first(&|exposure| width(exposure).unwrap_or(f64::NAN))),
        ];
        if let Some(side) = self.boxes().first() {
            maps.push((
                format!("energy in a box of {side} mas"),
                first(&|exposure| exposure.ensquared[0]),
            ));
        }
        let error = self.result.map(field, |target| 1e9 * target.budget.total());
        maps.push(("wavefront error [nm rms]".to_string(), error));
        // Part natural from laser guide stars
        let (natural, laser): (Vec<_>, Vec<_>) = self
            .system
            .guide_stars()
            .iter()
            .map(|star| &star.sensor.source)
            .partition(|source| source.height().is_infinite());
        let directions = |sources: Vec<&Source>| {
            sources.iter().map(|source| source.direction().map(|x| x / ARCSEC)).collect()
        };
        let (stars, lasers) = (directions(natural), directions(laser));
        FieldPicture { title: self.title(), maps, step: field.step / ARCSEC, stars, lasers }
    }
}
