// Tangled from book/src/shared-options.md: edit there, or here and run cargo tangle stitch.
//! Choices of the library that are named on the command line.

// Imports of choices by name
use super::planned_run::suited;
use super::watch::complain;
use crate::device::{Device, Engine};
use crate::error::{Error, Invalid};
use crate::estimation::inversion::Inversion;
use crate::files::Format;
use crate::formats::slopes::{SlopeFormat, SlopeUnit};
use crate::linear::interpolation::Interpolation;
use crate::model::lenslet_array::SlopeArrangement;
use crate::numerics::real::Precision;
use crate::plan::Plan;
use crate::plot::{ColourScale, Component};
use crate::profiling::fit::ParameterGroup;
use crate::tomography::reconstructor::ReconstructedQuantity;
use crate::turbulence::plan::Form;
use crate::units::{ARCSEC, DEGREE};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::Value;

// Read one of several values by its name
/// Reads one of several values by its name; each has a name, an explanation and the value.
fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    choices: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = choices.each_ref().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).try_map(move |given| {
        let known = choices.iter().find(|(name, ..)| *name == given);
        known.map(|(_, _, value)| value.clone()).ok_or("not one of the choices")
    })
}

// Choices that commands share
/// Precisions.
pub fn precisions() -> impl TypedValueParser<Value = Precision> {
    let choices =
        [("f64", "Double precision", Precision::F64), ("f32", "Single precision", Precision::F32)];
    one_of(choices)
}

/// Formats of a file of arrays.
pub fn formats() -> impl TypedValueParser<Value = Format> {
    one_of([
        ("npz", "NumPy's archive of arrays", Format::Npz),
        ("fits", "FITS, with an image for each array", Format::Fits),
    ])
}

// Format of a file by option
/// The format of a file whose name does not give it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct FileFormat {
    /// Format of a file whose name has none of these endings.
    #[arg(long, value_parser = formats())]
    format: Option<Format>,
    /// The old name of --format.
    #[arg(long, hide = true, value_parser = formats(), conflicts_with = "format")]
    save: Option<Format>,
}

impl FileFormat {
    /// The format that is asked for; its old option comes with a note, unless the program shall be quiet.
    pub fn format(&self, quiet: bool) -> Option<Format> {
        if let Some(format) = self.save.filter(|_| !quiet) {
            complain("note", &format!("--save {0} has become --format {0}", format.name()));
        }
        self.format.or(self.save)
    }
}

// Arguments about what is printed
/// Arguments about what a command prints.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ReportArgs {
    /// Say what would be computed, how, in what memory and time, and stop.
    #[arg(long)]
    pub plan: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print neither summary nor progress.
    #[arg(long, short)]
    pub quiet: bool,
}

impl ReportArgs {
    /// The summary that a command prints: as JSON, in lines, or none.
    pub fn summary(&self, json: impl FnOnce() -> Value, lines: impl FnOnce() -> String) -> String {
        match (self.json, self.quiet) {
            (true, _) => format!("{}\n", json()),
            (false, true) => String::new(),
            (false, false) => lines(),
        }
    }
}

// Arguments about the engine
/// Help of `--precision` where the CPU computes in double precision only.
pub const DOUBLE_ON_CPU: &str = "Precision of the written numbers, and of what a graphics processor computes; processors compute in double precision";

/// Arguments about where a command computes.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct EngineArgs {
    /// Where to compute: cpu, cuda (all graphics processors), or cuda:K (one of them).
    #[arg(long, default_value = "cpu")]
    pub device: Device,
    /// Precision of the written numbers, and of the computation on a graphics processor.
    #[arg(long, value_parser = precisions(), default_value = "f64")]
    pub precision: Precision,
}

impl EngineArgs {
    /// The engine on which a plan runs.
    pub fn engine(&self, plan: &impl Plan) -> Result<Engine, Error> {
        Ok(suited(Engine::open(self.device, self.precision)?, plan))
    }
}

// Choices of form and interpolation
/// Forms of a covariance.
pub fn forms() -> impl TypedValueParser<Value = Form> {
    one_of([
        (
            "auto",
            "Toeplitz where the geometry allows it; else dense, or blocks where dense slopes would take more than 2 GiB",
            Form::Auto,
        ),
        ("toeplitz", "Toeplitz-compressed; refused where there is no such form", Form::Toeplitz),
        (
            "blocks",
            "Toeplitz for stars that share a lattice, dense between those that do not",
            Form::Blocks,
        ),
        ("dense", "Each pair of valid lenslets, exact also where the cones differ", Form::Dense),
    ])
}

/// Quantities that are reconstructed.
pub fn reconstructed_quantities() -> impl TypedValueParser<Value = ReconstructedQuantity> {
    let [slopes, wavefront, actuators] = ReconstructedQuantity::NAMES;
    one_of([
        (slopes.0, "Slopes of a truth sensor", slopes.1),
        (wavefront.0, "The wavefront at the points of [phase], in metres", wavefront.1),
        (actuators.0, "Strokes of the actuators of each [[mirror]], in metres", actuators.1),
    ])
}

/// Ways to interpolate between grids.
pub fn interpolations() -> impl TypedValueParser<Value = Interpolation> {
    one_of([
        ("linear", "Two points along each axis", Interpolation::Linear),
        ("cubic", "Four points along each axis", Interpolation::Cubic),
        ("quintic", "Six points along each axis", Interpolation::Quintic),
    ])
}

/// What can be learned from slopes.
pub fn parameter_groups() -> impl TypedValueParser<Value = ParameterGroup> {
    one_of([
        ("strengths", "r0 and the fractions of layers", ParameterGroup::Strengths),
        ("altitudes", "Altitudes of layers, but of those at the ground", ParameterGroup::Altitudes),
        ("outer-scale", "One outer scale of all layers", ParameterGroup::OuterScale),
        ("shifts", "Shifts of sensors against the first one", ParameterGroup::Shifts),
        ("rotations", "Rotations of all sensors", ParameterGroup::Rotations),
        ("magnifications", "Magnifications of all sensors", ParameterGroup::Magnifications),
    ])
}

/// Ways to invert the covariance of measurements.
pub fn inversions() -> impl TypedValueParser<Value = Inversion> {
    one_of([
        (
            "auto",
            "What the plan chooses and says: Cholesky's factor where all guide stars have noise",
            Inversion::Auto,
        ),
        ("cholesky", "Cholesky's factor", Inversion::Cholesky),
        ("eigen", "Eigenvectors, the smallest filtered", Inversion::Eigen),
        ("iterative", "Iterations with products, never forming the matrix", Inversion::Iterative),
    ])
}

// Choices of a picture
/// A component of a covariance, or all.
#[derive(Debug, Clone, Copy)]
pub struct Components(pub Option<Component>);

/// Components of a covariance.
pub fn components() -> impl TypedValueParser<Value = Components> {
    let one = |component| Components(Some(component));
    one_of([
        ("all", "All of them", Components(None)),
        ("xx", "Slopes along x with slopes along x", one(Component::Xx)),
        ("xy", "Slopes along x with slopes along y", one(Component::Xy)),
        ("yy", "Slopes along y with slopes along y", one(Component::Yy)),
        ("x", "Wavefronts with slopes along x", one(Component::X)),
        ("y", "Wavefronts with slopes along y", one(Component::Y)),
    ])
}

/// Scales of colour.
pub fn scales() -> impl TypedValueParser<Value = ColourScale> {
    one_of([
        ("linear", "In proportion", ColourScale::Linear),
        ("root", "Like the square root, the sign kept", ColourScale::Root),
        ("log", "Like the logarithm above 1e-4 of the largest, the sign kept", ColourScale::Log),
    ])
}
// Refuse a picture that does not exist
/// The error of a picture `of` something that does not exist here, with the pictures that exist and what it needs.
pub fn no_picture(of: &str, existing: &[&str], needed: &str) -> Invalid {
    let expected = match existing {
        [] => format!("a system that has pictures; {needed}"),
        [only] => format!("{only}, the only picture that exists here; {needed}"),
        [first @ .., last] => {
            format!("{} or {last}, which exist here; {needed}", first.join(", "))
        }
    };
    Invalid::new("of", of, expected)
}

// Order, sign and unit of slopes
/// What must be known of slopes.
pub const SLOPES: &str = "\
Order: star by star; of each star first the x slopes of its valid lenslets, then their y slopes; lenslets row by
       row from the least y, in a row from the least x. A result's slope_table has star, axis, row, column, x and y
       of each.
Sign:  the gradient of the wavefront: positive where it grows along +x or +y. A wrong sign does not show in χ²/n.
Unit:  radians (1 arcsec = 4.848137e-6 rad), unless FITS states a BUNIT.
Other orders and units of a file are given by --order, --unit or --pixel-scale of learn and estimate. A cube is
(frames, sensors, slopes); or each sensor has an image, or an array of an archive, (frames, slopes).";

// Options about stored slopes
/// How slopes are stored in a file that does not state it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct StoredSlopes {
    /// Unit of the slopes, in a file that states none; m and nm are those of the wavefront across a lenslet.
    #[arg(long, value_parser = slope_units(), conflicts_with = "pixel_scale")]
    unit: Option<SlopeUnit>,
    /// The slopes are in pixels of so many arcseconds.
    #[arg(long, value_name = "ARCSEC")]
    pixel_scale: Option<f64>,
    /// Order of the slopes of each sensor: rows unless given.
    #[arg(long, value_parser = arrangements())]
    order: Option<SlopeArrangement>,
}

impl StoredSlopes {
    /// The unit and the order that are given.
    pub fn format(&self) -> Result<SlopeFormat, Invalid> {
        let pixel = self.pixel_scale.map(SlopeUnit::pixel).transpose()?;
        Ok(SlopeFormat { unit: self.unit.or(pixel), arrangement: self.order })
    }
}

/// Units of slopes.
pub fn slope_units() -> impl TypedValueParser<Value = SlopeUnit> {
    one_of([
        ("rad", "Radians", SlopeUnit::Angle(1.0)),
        ("mrad", "Milliradians", SlopeUnit::Angle(1e-3)),
        ("urad", "Microradians", SlopeUnit::Angle(1e-6)),
        ("nrad", "Nanoradians", SlopeUnit::Angle(1e-9)),
        ("deg", "Degrees", SlopeUnit::Angle(DEGREE)),
        ("arcsec", "Arcseconds", SlopeUnit::Angle(ARCSEC)),
        ("mas", "Milliarcseconds", SlopeUnit::Angle(1e-3 * ARCSEC)),
        ("m", "Metres of wavefront across a lenslet", SlopeUnit::Length(1.0)),
        ("um", "Micrometres of wavefront across a lenslet", SlopeUnit::Length(1e-6)),
        ("nm", "Nanometres of wavefront across a lenslet", SlopeUnit::Length(1e-9)),
    ])
}

/// Orders of the slopes of a sensor.
pub fn arrangements() -> impl TypedValueParser<Value = SlopeArrangement> {
    one_of(SlopeArrangement::NAMES)
}
