// Tangled from book/src/apply-command.md: edit there, or here and run cargo tangle stitch.
//! The option `--reconstructor` of `estimate`: from a file of slopes and a matrix to a file of what the matrix gives.

// Imports of the option reconstructor
use super::estimate::{EstimateArgs, check_lit, draw, of_file};
use super::planned_run::{PlannedRun, suited};
use super::progress::{Terminal, with_speed};
use super::summary::{Outcome, align, command_line, count, file_json, file_line, file_lines};
use crate::device;
use crate::device::engine::Engine;
use crate::error::{Error, Invalid};
use crate::estimation::matrix_estimator::{
    MatrixEstimates, MatrixEstimator, MatrixEstimatorPlan, ReconstructorOutput, StoredReconstructor,
};
use crate::files::atomic_file::AtomicFile;
use crate::files::provenance::Provenance;
use crate::formats::slopes::ReadSlopes;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::numerics::real::Precision;
use crate::watch::check;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

// Apply a reconstructor from a file
/// Multiplies the slopes by the reconstructor in the file `matrix`; returns what to print.
pub fn apply_reconstructor(
    args: &EstimateArgs,
    matrix: &Path,
    read: Result<(System, SystemFile), Error>,
) -> Result<Outcome, Error> {
    args.refuse_solver_options()?;
    let (format, picture) = args.check_outputs()?;
    let (system, file) = read?;
    let terminal = Terminal::new(args.report.quiet);
    terminal.reads(matrix);
    let stored = StoredReconstructor::from_file(matrix, &system)?;
    let plan = MatrixEstimatorPlan::new(&system, stored).map_err(|error| of_file(error, matrix))?;
    // Refuse a picture without wavefronts
    if let Some((path, _)) = picture {
        if plan.output() != ReconstructorOutput::Wavefront {
            let expected = format!(
                "no picture, as {} gives {} and pictures show wavefronts",
                matrix.display(),
                plan.output().name()
            );
            return Err(Invalid::new("plot", path.display(), expected).into());
        }
        check_lit(&system, path)?;
    }
    // Print the plan of a product
    let (Some((output, format)), Some(slopes_file), false) =
        (args.output.as_ref().zip(format), &args.slopes, args.report.plan)
    else {
        let opened = Engine::open(args.engine.device, args.engine.precision)?;
        let engine = suited(with_speed(opened, true)?, &plan);
        terminal.finish();
        return Ok(PlannedRun::new(&plan, &engine).text(args.report.json)?.into());
    };
    // Read the slopes of a product
    terminal.reads(slopes_file);
    let slopes = ReadSlopes::from_file(slopes_file, &system, &args.stored.format()?)?.slopes;
    plan.check_slopes(slopes.view()).map_err(|error| of_file(error.into(), slopes_file))?;
    args.check_frame(slopes.nrows(), slopes_file)?;
    let plan = plan.frames(slopes.nrows());
    // Multiply the frames that were read
    let start = Instant::now();
    let engine = suited(Engine::open(args.engine.device, args.engine.precision)?, &plan);
    let planned = PlannedRun::new(&plan, &engine);
    let files = [Some(output.as_path()), args.plot.as_deref()].into_iter().flatten();
    let estimator = planned.run(&terminal, files)?;
    let prepared = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let estimates = estimator.apply(slopes.view(), &terminal);
    let estimates = estimates.map_err(|error| of_file(error, slopes_file))?;
    let multiplied = start.elapsed().as_secs_f64();
    // Refuse products beyond single precision
    let beyond = estimates.largest() > f64::from(f32::MAX);
    if args.engine.precision == Precision::F32 && beyond {
        let (name, _) = estimates.shape();
        let expected =
            format!("f64, as the {name} is beyond the largest number of single precision");
        return Err(Invalid::new("precision", "f32", expected).into());
    }
    // Write the products and their picture
    let mut data = estimates.to_data_set(&system);
    let method = planned.describe()?.method;
    Provenance::new(&command_line(), &method, file.text()).note(&mut data);
    terminal.writes(output);
    let mut draft = AtomicFile::new(output)?;
    draft.fill(|file| data.write(file, format, args.engine.precision))?;
    let drawing = match (picture, &estimates) {
        (Some((path, format)), MatrixEstimates::Wavefront(wavefront)) => {
            terminal.writes(path);
            Some(AtomicFile::holding(path, &draw(args, &system, wavefront.view(), format)?)?)
        }
        _ => None,
    };
    check(&terminal)?;
    draft.publish()?;
    drawing.map(AtomicFile::publish).transpose()?;
    terminal.finish();
    // Report the products in their form
    let files = [slopes_file.as_path(), matrix, output.as_path()];
    let (output, seconds) = (plan.output(), [prepared, multiplied]);
    let report =
        ProductReport { args, files, output, engine: &engine, estimator, estimates, seconds };
    Ok(args.report.summary(|| report.summary(), || report.lines()).into())
}

// Options without effect on a product
impl EstimateArgs {
    /// Refuses options that a product with a matrix has no use for.
    fn refuse_solver_options(&self) -> Result<(), Invalid> {
        fn name(value: Option<impl ValueEnum>) -> Option<String> {
            value.and_then(|value| Some(value.to_possible_value()?.get_name().to_string()))
        }
        let options = [
            ("method", self.method.map(|method| method.name().to_string())),
            ("filter", self.filter.map(|filter| filter.to_string())),
            ("solver", name(self.solver)),
            ("preconditioner", name(self.preconditioner)),
            ("tolerance", self.tolerance.map(|tolerance| format!("{tolerance:e}"))),
            ("max-iterations", self.max_iterations.map(|most| most.to_string())),
            ("warm-start", self.warm_start.then(|| "given".to_string())),
            ("form", self.form.map(|form| format!("{form:?}").to_lowercase())),
            ("interpolation", self.interpolation.map(|kind| kind.name().to_string())),
        ];
        let expected = "no such option with --reconstructor, which multiplies the slopes by a stored matrix: no covariance is computed, and no system is solved";
        let given = options.into_iter().find_map(|(option, value)| Some((option, value?)));
        given.map_or(Ok(()), |(option, value)| {
            Err(Invalid::new(format!("--{option}"), value, expected))
        })
    }
}

// Report what was applied
/// All that there is to report of a product.
struct ProductReport<'a> {
    args: &'a EstimateArgs,
    /// Of the slopes, of the reconstructor, and of the result.
    files: [&'a Path; 3],
    output: ReconstructorOutput,
    engine: &'a Engine,
    estimator: MatrixEstimator,
    estimates: MatrixEstimates,
    /// To prepare, and to multiply all frames.
    seconds: [f64; 2],
}

impl ProductReport<'_> {
    fn lines(&self) -> String {
        let ([slopes, matrix, output], [prepared, multiplied]) = (self.files, self.seconds);
        let [sets, rows, n] = self.estimator.shape();
        let (name, shape) = self.estimates.shape();
        let times =
            |shape: &[usize]| shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ");
        let rows_are = match self.output {
            ReconstructorOutput::Slopes => "truth slopes of each target",
            ReconstructorOutput::Wavefront => "wavefront points of each target",
            _ => "actuators of each control loop",
        };
        let (frames, each) = (count(shape[0], "frame"), 1e3 * multiplied / shape[0].max(1) as f64);
        let mut lines = vec![
            ("slopes", format!("{} × {n} from {}", shape[0], slopes.display())),
            (
                "matrix",
                format!("{} from {}: {rows_are}", times(&[sets, rows, n]), matrix.display()),
            ),
            (
                "time",
                format!(
                    "{prepared:.3} s to prepare, {multiplied:.3} s for {frames} ({each:.3} ms each), on {}",
                    self.engine.name()
                ),
            ),
            file_line("output", output, &format!("{name} {}", times(shape))),
        ];
        lines.extend(file_lines([("plot", self.args.plot.as_deref())]));
        align(&lines)
    }

    // Report a product in json
    fn summary(&self) -> Value {
        let ([_, matrix, output], [prepared, multiplied]) = (self.files, self.seconds);
        let (name, shape) = self.estimates.shape();
        json!({
            "system": self.args.system.display().to_string(),
            "slopes": self.estimator.slopes(),
            "reconstructor": matrix.display().to_string(),
            "reconstructor_shape": self.estimator.shape(),
            "to": self.output.name(),
            "array": name,
            "shape": shape,
            "frames_at_a_time": self.estimator.batch().min(shape[0].max(1)),
            "precision": self.args.engine.precision.name(),
            "seconds_to_prepare": prepared,
            "seconds_to_multiply": multiplied,
            "seconds_for_each_frame": multiplied / shape[0].max(1) as f64,
            "threads": device::threads(),
            "device": self.args.engine.device.to_string(),
            "computed_on": self.engine.name(),
            "output": file_json(Some(output)),
            "plot": file_json(self.args.plot.as_deref()),
        })
    }
}
