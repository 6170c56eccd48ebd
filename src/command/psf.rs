// Tangled from book/src/psf-command.md: edit there, or here and run cargo tangle stitch.
//! The command `psf`: from a system file to the images of its targets, and their budgets of errors.

// What the command psf stands on
use super::choice;
use super::summary::{align, command_line, count, plan_text};
use super::watch::{Terminal, with_speed};
use crate::correction::CorrectionMode;
use crate::device::{Device, check, engine::Engine, threads};
use crate::error::Error;
use crate::files::arrays::{ArrayFormat, Arrays, Precision};
use crate::files::draft::{Draft, check_files};
use crate::files::origin::Origin;
use crate::image::{Imaged, Images, ImagingOptions, ImagingPlan, TargetImage};
use crate::model::system::System;
use crate::plot::{PictureFormat, plot_stars, short_name};
use crate::tomography::inversion::Inversion;
use crate::units::ARCSEC;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Instant;

// Arguments of psf
#[derive(Debug, Args)]
pub struct PsfArgs {
    /// System file (TOML), with a telescope, at least one mirror and one target.
    system: PathBuf,
    /// File to write: FITS if it ends in .fits, .fit or .fts, or NumPy's .npz.
    #[arg(short, long, required_unless_present = "plan")]
    output: Option<PathBuf>,
    /// How the covariance of the measurements is inverted, in place of what the system file says.
    #[arg(long, value_parser = choice::inversions())]
    method: Option<Inversion>,
    /// Draw the images at the first wavelength into this file, .svg or .png.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Decades of light that the picture shows.
    #[arg(long, requires = "plot", default_value_t = 4)]
    decades: u32,
    /// Precision of the written numbers, and of what a graphics processor computes; processors compute in double precision.
    #[arg(long, value_parser = choice::precisions(), default_value = "f64")]
    precision: Precision,
    /// Where to reconstruct: cpu.
    #[arg(long, default_value = "cpu")]
    device: Device,
    // Arguments about what psf says
    /// Say what would be computed, how, in what memory and time, and stop.
    #[arg(long)]
    plan: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Print neither summary nor progress.
    #[arg(long, short)]
    quiet: bool,
}

// Images into a file
/// Computes what the arguments ask for; returns what to print.
pub fn psf(args: &PsfArgs) -> Result<String, Error> {
    // Check the files of the images
    let picture = args.plot.as_deref();
    let picture =
        picture.map(|path| PictureFormat::of(path).map(|format| (path, format))).transpose()?;
    let named = args.output.as_deref().map(|path| ("output", path));
    let format =
        named.map(|name| ArrayFormat::of(name, &ArrayFormat::OF_MANY, None)).transpose()?;
    let outputs = [named, picture.map(|(path, _)| ("plot", path))];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.plan).collect();
    check_files(&[("system file", &args.system)], &outputs)?;
    let (system, text) = System::with_text(&args.system)?;
    let name = args.system.display().to_string();
    let mut options = ImagingOptions::from_toml(&text, &name)?;
    options.reconstructor =
        options.reconstructor.method(args.method.unwrap_or(options.reconstructor.method));
    let plan = ImagingPlan::new(&system, options)?;
    let engine = with_speed(Engine::open(args.device, args.precision)?, args.plan)?;
    let description = plan.describe(&engine);
    let Some((output, format)) = args.output.as_ref().zip(format).filter(|_| !args.plan) else {
        return Ok(plan_text(&description, args.json));
    };
    let (terminal, start) = (Terminal::new(args.quiet), Instant::now());
    let found = plan.run(&engine, &terminal)?;
    let seconds = start.elapsed().as_secs_f64();
    let told = Told { args, system: &system, plan: &plan, engine: &engine, found: &found, seconds };
    // Write the images and their picture
    let mut arrays = Arrays::default();
    let errors: Vec<f64> = found.targets.iter().map(|target| target.budget.total()).collect();
    let exposures: Vec<_> = found.targets.iter().map(|target| target.exposures.clone()).collect();
    let images = Images {
        targets: system.targets(),
        exposures: &exposures,
        errors: &errors,
        uncorrected: &found.uncorrected,
        ensquared: &plan.options().image.ensquared,
    };
    images.add_to(&mut arrays)?;
    Origin::new(&command_line(), &description.method, &text).note(&mut arrays);
    let mut draft = Draft::new(output)?;
    draft.fill(|file| arrays.write(file, format, args.precision))?;
    let drawing = picture.map(|(path, format)| Draft::holding(path, &told.draw(format)?));
    let drawing = drawing.transpose()?;
    check(&terminal)?;
    draft.publish()?;
    drawing.map(Draft::publish).transpose()?;
    Ok(match (args.json, args.quiet) {
        (true, _) => format!("{}\n", told.summary()),
        (false, true) => String::new(),
        (false, false) => told.lines(),
    })
}

// What there is to tell of images
/// All that there is to tell.
struct Told<'a> {
    args: &'a PsfArgs,
    system: &'a System,
    plan: &'a ImagingPlan,
    engine: &'a Engine,
    found: &'a Imaged,
    seconds: f64,
}

impl Told<'_> {
    fn mode(&self) -> &'static str {
        let mode = self.plan.options().correction.mode;
        CorrectionMode::NAMES.iter().find(|(_, known)| *known == mode).map_or("", |(name, _)| name)
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

// Tell of images in lines
impl Told<'_> {
    fn lines(&self) -> String {
        let (stars, n) =
            (self.system.guide_stars().len(), self.plan.reconstruction().measurements());
        let targets = self.found.targets.len();
        let description = self.plan.describe(self.engine);
        let system = [
            [count(stars, "guide star"), count(n, "slope")].join(", "),
            [count(self.actuators(), "actuator"), self.mode().into()].join(", "),
            count(targets, "target"),
        ]
        .join("; ");
        let names: Vec<String> = (0..targets).map(|t| format!("target {t}")).collect();
        let mut lines = vec![("system", system), ("method", description.reason.clone())];
        for (name, target) in names.iter().zip(&self.found.targets) {
            let mut name = name.as_str();
            for line in self.lines_of(target) {
                lines.push((std::mem::take(&mut name), line));
            }
        }
        let output = self.args.output.as_deref().unwrap_or("".as_ref()).display();
        let shape: Vec<String> = description.arrays[0].1.iter().map(usize::to_string).collect();
        lines.push(("time", format!("{:.3} s on {}", self.seconds, self.engine.name())));
        lines.push(("output", format!("{output}: psf {}", shape.join(" × "))));
        align(&lines)
    }

    /// A line for each wavelength, and one for the budget.
    fn lines_of(&self, target: &TargetImage) -> Vec<String> {
        let boxes = self.boxes();
        let exposures = target.exposures.iter().map(|seen| {
            let width = seen.width.map_or("wider than half the field".into(), |width| {
                format!("{:.0} mas", mas(width.mean()))
            });
            let energy = seen.ensquared.iter().zip(&boxes);
            let energy = energy.map(|(share, side)| format!(", {share:.3} in {side} mas"));
            let wavelength = 1e6 * seen.image.wavelength;
            let strehl = seen.image.strehl;
            format!(
                "{wavelength:.4} µm: Strehl {strehl:.3}, FWHM {width}{}",
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

// Tell of images in json
impl Told<'_> {
    fn summary(&self) -> Value {
        let image = &self.plan.options().image;
        let description = self.plan.describe(self.engine);
        let targets = self.system.targets().iter().zip(&self.found.targets);
        let targets: Vec<Value> = targets
            .map(|(source, target)| {
                let [x, y] = source.direction();
                let exposures = &target.exposures;
                let terms = target.budget.terms().iter();
                let mut budget: Map<String, Value> =
                    terms.map(|term| (term.name.clone(), json!(1e9 * term.rms()))).collect();
                budget.insert("total".into(), json!(1e9 * target.budget.total()));
                let of = |value: &dyn Fn(&crate::image::Exposure) -> Value| -> Vec<Value> {
                    exposures.iter().map(value).collect()
                };
                json!({
                    "zenith_arcsec": f64::hypot(x, y) / ARCSEC,
                    "azimuth_degrees": y.atan2(x).to_degrees(),
                    "strehl": of(&|seen| json!(seen.image.strehl)),
                    "fwhm_mas": of(&|seen| json!(seen.width.map(|width| mas(width.mean())))),
                    "ensquared": of(&|seen| json!(seen.ensquared)),
                    "budget_nm": budget,
                })
            })
            .collect();
        json!({
            "system": self.args.system.display().to_string(),
            "measurements": self.plan.reconstruction().measurements(),
            "actuators": self.actuators(),
            "mode": self.mode(),
            "method": self.plan.reconstruction().method().name(),
            "wavelengths": image.wavelengths,
            "pixel_mas": mas(image.pixel_at(image.wavelengths[0], self.plan.diameter())),
            "pixels": image.pixels,
            "ensquared_mas": self.boxes(),
            "targets": targets,
            "computed_on": description.engine,
            "precision": self.args.precision.name(),
            "seconds": self.seconds,
            "threads": threads(),
            "output": self.args.output.as_ref().map(|path| path.display().to_string()),
            "plot": self.args.plot.as_ref().map(|path| path.display().to_string()),
        })
    }
}

// Draw the images of a system
impl Told<'_> {
    fn draw(&self, format: PictureFormat) -> Result<Vec<u8>, Error> {
        let mut images = vec![("perfect".to_string(), &self.found.targets[0].exposures[0].perfect)];
        for (t, target) in self.found.targets.iter().enumerate().take(6) {
            let seen = &target.exposures[0].image;
            images.push((format!("target {t}: Strehl {:.2}", seen.strehl), seen));
        }
        images.push(("without correction".into(), &self.found.uncorrected));
        let images: Vec<_> = images.iter().map(|(title, image)| (title.as_str(), *image)).collect();
        let name = short_name(&self.args.system.display().to_string());
        let wavelength = 1e6 * self.found.uncorrected.wavelength;
        plot_stars(&images, &format!("{name} at {wavelength:.4} µm"), self.args.decades, format)
    }
}
