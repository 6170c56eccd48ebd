// Tangled from book/src/signals.md: edit there, or here and run cargo tangle stitch.
//! Signals: arrays whose axes are calibrated, as electron microscopists exchange them.

// What signals stand on
use crate::error::{Error, Invalid, accept, finite, is_ordered, not_negative, positive};
use crate::files::arrays::{Arrays, Values};
use crate::files::provenance::Provenance;
use ndarray::{CowArray, Dimension, IxDyn};
use num_complex::{Complex32, Complex64};
use std::io::{self, Write};
use std::ops::Range;

// One axis of a signal
/// One axis of a signal: what it is called, and where its samples lie.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) offset: f64,
    pub(super) scale: f64,
    /// Names of the samples, where they are no places on a line.
    pub(super) labels: Vec<String>,
    pub(super) navigation: bool,
    /// Values of a series, which need not be equally spaced; else empty.
    pub(super) values: Vec<f64>,
    /// Name, unit and factor of another measure of the same places.
    pub(super) also: Option<(String, String, f64)>,
}

impl Axis {
    // Kinds of axes
    /// An axis along which the beam or the sample was moved, with the place of its first sample and the step to the next.
    ///
    /// # Errors
    /// `Invalid` for a name that is none (a letter, then letters, digits and underscores), an offset that is not finite, or a step that is
    /// not greater than 0.
    pub fn navigation(name: &str, unit: &str, offset: f64, scale: f64) -> Result<Self, Invalid> {
        Self::new(name, unit, [offset, scale], true)
    }

    /// An axis along which something was recorded each time.
    ///
    /// # Errors
    /// As [`navigation`](Self::navigation).
    pub fn signal(name: &str, unit: &str, offset: f64, scale: f64) -> Result<Self, Invalid> {
        Self::new(name, unit, [offset, scale], false)
    }

    // Axis of a series
    /// An axis of navigation along which a setting took these values, such as the foci of a series; in a signal it comes before the axes of a
    /// scan.
    ///
    /// # Errors
    /// As [`navigation`](Self::navigation), and for values that are not finite, or that neither rise nor fall from each to the next.
    pub fn series(name: &str, unit: &str, values: &[f64]) -> Result<Self, Invalid> {
        let quantity = format!("values of axis {name}");
        let finite = values.iter().all(|x| x.is_finite()) && !values.is_empty();
        let good = finite && is_ordered(values);
        accept(
            good,
            &quantity,
            values,
            "finite numbers that rise, or that fall, without repetition",
        )?;
        let step = (values[values.len() - 1] - values[0]) / (values.len() - 1).max(1) as f64;
        let axis = Self::new(name, unit, [values[0], 1.0], true)?;
        Ok(Self {
            scale: if values.len() > 1 { step } else { 1.0 },
            values: values.to_vec(),
            ..axis
        })
    }

    /// An axis of signal whose samples are parts of one thing, such as components of a vector.
    ///
    /// # Errors
    /// As [`navigation`](Self::navigation), and for a label that is empty or has characters that cannot be printed.
    pub fn labelled(name: &str, labels: &[&str]) -> Result<Self, Invalid> {
        for label in labels {
            printable("label", label)?;
            accept(!label.is_empty(), "label", label, "a text that is not empty")?;
        }
        let axis = Self::new(name, "", [0.0, 1.0], false)?;
        Ok(Self { labels: labels.iter().map(ToString::to_string).collect(), ..axis })
    }
    /// Adds a second measure of the axis with its `name` and `unit`, `factor` times the first.
    ///
    /// # Errors
    /// `Invalid` for a name that is none, or a factor that is not greater than 0.
    pub fn also(self, name: &str, unit: &str, factor: f64) -> Result<Self, Invalid> {
        let other = Self::signal(name, unit, 0.0, factor)?;
        Ok(Self { also: Some((other.name, other.unit, factor)), ..self })
    }

    // Check an axis
    fn new(
        name: &str,
        unit: &str,
        [offset, scale]: [f64; 2],
        navigation: bool,
    ) -> Result<Self, Invalid> {
        identifier("axis", name)?;
        printable("unit", unit)?;
        let quantity = |word: &str| format!("{word} of axis {name}");
        finite(&quantity("offset"), offset)?;
        let expected = "a finite step greater than 0";
        accept(scale > 0.0 && scale.is_finite(), &quantity("scale"), scale, expected)?;
        let (name, unit, labels) = (name.to_string(), unit.to_string(), Vec::new());
        Ok(Self { name, unit, offset, scale, labels, navigation, values: Vec::new(), also: None })
    }

    /// Where each of `count` samples lies; at least as many positions as a series has.
    pub(super) fn places(&self, count: usize) -> Vec<f64> {
        let place = |k: usize| self.offset + self.scale * k as f64;
        (0..count).map(|k| self.values.get(k).copied().unwrap_or(place(k))).collect()
    }

    /// Whether offset and scale say where its samples are.
    pub(super) fn is_uniform(&self) -> bool {
        let far = self.values.iter().fold(self.scale.abs(), |most, x| most.max(x.abs()));
        let off = |(k, x): (usize, &f64)| x - (self.offset + self.scale * k as f64);
        self.values.iter().enumerate().map(off).all(|off| off.abs() <= 1e-9 * far)
    }

    // Read an axis
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unit of its samples' places.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// The place of its first sample.
    pub fn offset(&self) -> f64 {
        self.offset
    }

    /// Whether a setting was varied along it.
    pub(super) fn is_series(&self) -> bool {
        !self.values.is_empty()
    }

    /// From one sample to the next; of a series, the mean step.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The values of a series; empty for any other axis.
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

// Samples of four types
/// What a signal may consist of: real or complex numbers in single or double precision.
pub trait Sample: Copy + 'static {
    /// The array with its type told.
    fn samples(array: CowArray<'_, Self, IxDyn>) -> Samples<'_>;

    /// Appends the number, real part first, each part with its least significant byte first.
    fn push(self, bytes: &mut Vec<u8>);

    /// Real and imaginary part.
    fn parts(self) -> [f64; 2];
}

/// The numbers of a signal, borrowed or owned.
#[derive(Debug)]
pub enum Samples<'a> {
    /// Real, in single precision.
    F32(CowArray<'a, f32, IxDyn>),
    /// Real, in double precision.
    F64(CowArray<'a, f64, IxDyn>),
    /// Complex, in single precision.
    C32(CowArray<'a, Complex32, IxDyn>),
    /// Complex, in double precision.
    C64(CowArray<'a, Complex64, IxDyn>),
}

// What each type of sample does
macro_rules! sample {
    ($type:ty, $kind:ident, $x:ident => $real:expr, $imaginary:expr, $push:expr) => {
        impl Sample for $type {
            fn samples(array: CowArray<'_, Self, IxDyn>) -> Samples<'_> {
                Samples::$kind(array)
            }

            fn push(self, bytes: &mut Vec<u8>) {
                let $x = self;
                $push.into_iter().for_each(|part| bytes.extend(part.to_le_bytes()));
            }

            fn parts(self) -> [f64; 2] {
                let $x = self;
                [f64::from($real), f64::from($imaginary)]
            }
        }
    };
}

sample!(f32, F32, x => x, 0.0_f32, [x]);
sample!(f64, F64, x => x, 0.0, [x]);
sample!(Complex32, C32, z => z.re, z.im, [z.re, z.im]);
sample!(Complex64, C64, z => z.re, z.im, [z.re, z.im]);

// The same for all types of samples
macro_rules! each_type {
    ($samples:expr, $array:ident => $done:expr) => {
        match $samples {
            Samples::F32($array) => $done,
            Samples::F64($array) => $done,
            Samples::C32($array) => $done,
            Samples::C64($array) => $done,
        }
    };
}

impl Samples<'_> {
    // Form and shape of samples
    /// Lengths along the axes.
    pub fn shape(&self) -> &[usize] {
        each_type!(self, array => array.shape())
    }

    /// Whether the numbers are complex.
    pub fn is_complex(&self) -> bool {
        matches!(self, Self::C32(_) | Self::C64(_))
    }

    /// Bytes of a real number, or of one part of a complex one.
    pub(super) fn part_bytes(&self) -> usize {
        if matches!(self, Self::F32(_) | Self::C32(_)) { 4 } else { 8 }
    }

    /// Bytes of a number.
    pub(super) fn bytes(&self) -> usize {
        self.part_bytes() * (1 + usize::from(self.is_complex()))
    }

    /// What NumPy calls the type, least significant byte first.
    pub(super) fn descriptor(&self) -> String {
        format!("<{}{}", if self.is_complex() { 'c' } else { 'f' }, self.bytes())
    }

    // Look at samples in another order
    /// A view of the numbers with their axes in another order.
    pub(super) fn permuted(&self, order: &[usize]) -> Samples<'_> {
        each_type!(self, array => Sample::samples(array.view().permuted_axes(order).into()))
    }

    /// The numbers at the indices `fixed` of the first axes, and in a range of the axis after these.
    pub(super) fn part(&self, fixed: &[usize], range: Range<usize>) -> Samples<'_> {
        each_type!(self, array => {
            let mut view = array.view();
            for &index in fixed {
                view = view.index_axis_move(ndarray::Axis(0), index);
            }
            view.slice_axis_inplace(ndarray::Axis(0), range.into());
            Sample::samples(view.into())
        })
    }

    // Write samples one after the other
    /// Writes all numbers, the last axis the fastest.
    pub(super) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        each_type!(self, array => gather(array.iter(), |x, bytes| x.push(bytes), file))
    }

    /// Writes all numbers in single precision.
    pub(super) fn write_single(&self, file: &mut impl Write) -> io::Result<()> {
        let complex = self.is_complex();
        each_type!(self, array => gather(array.iter(), |x, bytes| {
            let parts = x.parts().into_iter().take(1 + usize::from(complex));
            parts.for_each(|part| bytes.extend((part as f32).to_le_bytes()));
        }, file))
    }

    // Walk over the parts of samples
    /// Calls with the parts of each number, the last axis the fastest.
    pub(super) fn for_each(&self, mut call: impl FnMut([f64; 2])) {
        each_type!(self, array => array.iter().for_each(|x| call(x.parts())));
    }

    /// The first number that is NaN or infinite, with its place.
    fn first_bad(&self) -> Option<(Vec<usize>, f64)> {
        each_type!(self, array => {
            let bad = |x: f64| !x.is_finite();
            let found = array.indexed_iter().find(|(_, x)| x.parts().into_iter().any(bad));
            found.map(|(place, x)| {
                let [real, imaginary] = x.parts();
                (ndarray::Dimension::slice(&place).to_vec(), if bad(real) { real } else { imaginary })
            })
        })
    }
}

// A signal with its axes
/// An array with an axis for each of its dimensions, navigation before signal.
///
/// ```
/// use lenslet::files::{Axis, Signal};
/// let image = ndarray::array![[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]];
/// let axes = vec![Axis::navigation("x", "Å", 0.0, 0.25)?, Axis::navigation("y", "Å", 0.0, 0.25)?];
/// let signal = Signal::new("annulus_0", image.view(), axes)?;
/// assert_eq!((signal.name(), signal.axes().len()), ("annulus_0", 2));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug)]
pub struct Signal<'a> {
    pub(super) name: String,
    pub(super) samples: Samples<'a>,
    pub(super) axes: Vec<Axis>,
}

impl<'a> Signal<'a> {
    // Make and check a signal
    /// A signal of this name; the array may be borrowed or owned.
    ///
    /// # Errors
    /// `Invalid` where there is not an axis for each dimension, an axis of navigation follows one of signal, a series follows another axis, two
    /// axes have one name, labels or values are more or fewer than samples, or a dimension has no samples; `NotFinite` where a number is NaN or infinite.
    pub fn new<T: Sample, D: Dimension>(
        name: &str,
        array: impl Into<CowArray<'a, T, D>>,
        axes: Vec<Axis>,
    ) -> Result<Self, Error> {
        identifier("signal", name)?;
        let samples = T::samples(array.into().into_dyn());
        check_axes(name, samples.shape(), &axes)?;
        match samples.first_bad() {
            Some((place, value)) => Err(Error::NotFinite { result: name.into(), place, value }),
            None => Ok(Self { name: name.into(), samples, axes }),
        }
    }

    // Names and orders of a signal
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its axes, one for each dimension.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The numbers.
    pub fn samples(&self) -> &Samples<'a> {
        &self.samples
    }

    /// How many axes it has of each kind: series, navigation that is no series, and signal; they come in this order.
    pub(crate) fn kinds(&self) -> [usize; 3] {
        let series = self.axes.iter().filter(|axis| axis.is_series()).count();
        let navigation = self.axes.iter().filter(|axis| axis.navigation).count();
        [series, navigation - series, self.axes.len() - navigation]
    }

    /// The axes in an order in which a picture is indexed by y, x: pairs of one kind are exchanged.
    pub(super) fn picture_order(&self) -> Vec<usize> {
        let [series, scanned, recorded] = self.kinds();
        let mut order: Vec<usize> = (0..self.axes.len()).collect();
        if scanned == 2 {
            order.swap(series, series + 1);
        }
        if recorded == 2 {
            order.swap(series + scanned, series + scanned + 1);
        }
        order
    }
}

// Facts about a run
/// Something that is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
    /// A count.
    Integer(i64),
    /// A choice of two.
    Flag(bool),
    /// A few numbers, such as the sides of a cell.
    Numbers(Vec<f64>),
}

// Make facts of what they hold
impl From<&str> for Fact {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<f64> for Fact {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<i64> for Fact {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&[f64]> for Fact {
    fn from(numbers: &[f64]) -> Self {
        Self::Numbers(numbers.to_vec())
    }
}

// Check a fact
impl Fact {
    /// Refuses a fact that cannot stand in all of the formats.
    fn check(&self, key: &str) -> Result<(), Invalid> {
        match self {
            Self::Text(text) => {
                let good = !text.contains('\0');
                accept(good, key, text, "a text without the character of number 0").map(drop)
            }
            Self::Number(x) => finite(key, *x).map(drop),
            Self::Integer(_) | Self::Flag(_) => Ok(()),
            Self::Numbers(all) => {
                let good = (1..=1000).contains(&all.len());
                accept(good, key, all.len(), "1 to 1000 numbers")?;
                all.iter().try_for_each(|x| finite(key, *x).map(drop))
            }
        }
    }
}

// The instrument of a run
/// The beam of a run, as readers of electron microscopists ask for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instrument {
    /// Energy of the electrons \[keV\].
    pub beam_energy: f64,
    /// Convergence semi-angle \[mrad\]; 0 for a plane wave.
    pub convergence_angle: f64,
    /// Whether a probe was scanned, rather than an image taken at once.
    pub scanned: bool,
}

impl Instrument {
    /// Key and value of each fact, by the names that HyperSpy has for them.
    pub(super) fn facts(&self) -> [(&'static str, Fact); 3] {
        let mode = if self.scanned { "STEM" } else { "TEM" };
        [
            ("beam_energy", self.beam_energy.into()),
            ("convergence_angle", self.convergence_angle.into()),
            ("acquisition_mode", mode.into()),
        ]
    }
}

// Signals of one run
/// What goes into one file: the signals of a run, in their order, and its facts.
///
/// ```
/// use lenslet::files::{Axis, Signal, SignalFormat, Signals};
/// let probe = ndarray::Array1::linspace(0.0_f32, 1.0, 5);
/// let mut signals = Signals::default();
/// signals.add(Signal::new("probe", &probe, vec![Axis::signal("x", "Å", 0.0, 0.1)?])?)?;
/// signals.fact("slices", 40_i64)?;
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("probe.h5");
/// assert!(signals.write(&path, SignalFormat::of(("output", &path))?, None)? > 1000);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Signals<'a> {
    pub(super) items: Vec<Signal<'a>>,
    pub(super) facts: Vec<(String, Fact)>,
    pub(super) instrument: Option<Instrument>,
}

impl<'a> Signals<'a> {
    // Add signals and facts
    /// The signals, in the order in which they were added.
    pub fn items(&self) -> impl Iterator<Item = &Signal<'a>> {
        self.items.iter()
    }

    /// Adds a signal.
    ///
    /// # Errors
    /// `Invalid` where there is one of this name already.
    pub fn add(&mut self, signal: Signal<'a>) -> Result<(), Invalid> {
        let known = known_as(&signal.name);
        let twice = self.items.iter().any(|other| known_as(&other.name) == known);
        accept(!twice, "signal", &signal.name, "another name for each signal")?;
        self.items.push(signal);
        Ok(())
    }

    /// Adds a fact; the key consists of letters, digits and underscores.
    ///
    /// # Errors
    /// `Invalid` for another key or one that is there already, a number that is not finite, or no numbers or more than a thousand.
    pub fn fact(&mut self, key: &str, fact: impl Into<Fact>) -> Result<(), Invalid> {
        identifier("key of a fact", &format!("k{key}"))?;
        let twice = self.facts.iter().any(|(other, _)| other == key);
        let free = !twice && !matches!(key, "" | "E" | "sa"); // which stand for the instrument's in Prismatic's tree
        accept(free, "key of a fact", key, "another key for each fact")?;
        let fact = fact.into();
        fact.check(key)?;
        self.facts.push((key.into(), fact));
        Ok(())
    }

    /// Sets the instrument, whose numbers are facts as well: `beam_energy`, `convergence_angle` and `acquisition_mode`.
    ///
    /// # Errors
    /// `Invalid` for an energy that is not positive, an angle that is negative, or one that is not finite; or where there are such facts already.
    pub fn set_instrument(&mut self, instrument: Instrument) -> Result<(), Invalid> {
        positive("beam_energy", instrument.beam_energy)?;
        not_negative("convergence_angle", instrument.convergence_angle)?;
        for (key, fact) in instrument.facts() {
            self.fact(key, fact)?;
        }
        self.instrument = Some(instrument);
        Ok(())
    }

    // Tell where signals come from
    /// Adds the notes of an origin as facts.
    ///
    /// # Errors
    /// As [`fact`](Self::fact).
    pub fn origin(&mut self, origin: Provenance) -> Result<(), Invalid> {
        let mut notes = Arrays::default();
        origin.note(&mut notes);
        for entry in notes.0 {
            match entry.values {
                Values::Text(text) => self.fact(&entry.name, text.replace('\0', " ").as_str())?,
                Values::F64(x) => x.iter().try_for_each(|x| self.fact(&entry.name, *x))?,
                Values::I64(n) => n.iter().try_for_each(|n| self.fact(&entry.name, *n))?,
                _ => {}
            }
        }
        Ok(())
    }
}

// Names by which others know signals
/// The name of a signal in a file of Prismatic.
pub(super) fn known_as(name: &str) -> &str {
    match name {
        "annular" => "virtual_detector",
        "annulus" | "annulus_0" => "annular_detector",
        "centre_of_mass" => "DPC_CoM",
        "four_d" => "CBED_array",
        "potential" => "ppotential",
        _ => name,
    }
}

// Names that may stand in any file
/// Refuses axes that do not fit the array of the signal `name`.
fn check_axes(name: &str, shape: &[usize], axes: &[Axis]) -> Result<(), Invalid> {
    let quantity = format!("axes of {name}");
    let expected = format!("an axis for each of the {} dimensions, and at least one", shape.len());
    let fits = axes.len() == shape.len() && !axes.is_empty();
    accept(fits, &quantity, axes.len(), &expected)?;
    for (k, (axis, &count)) in axes.iter().zip(shape).enumerate() {
        let late = axis.navigation && axes[..k].iter().any(|before| !before.navigation);
        accept(!late, &quantity, &axis.name, "axes of navigation before those of signal")?;
        let late = axis.is_series() && axes[..k].iter().any(|before| !before.is_series());
        accept(!late, &quantity, &axis.name, "axes of a series before all others")?;
        let twice = axes[..k].iter().any(|before| before.name == axis.name);
        accept(!twice, &quantity, &axis.name, "another name for each axis")?;
        let quantity = format!("samples of {name} along {}", axis.name);
        accept(count > 0, &quantity, count, "at least one")?;
        for (list, what) in [(axis.labels.len(), "labels"), (axis.values.len(), "values")] {
            let expected = format!("{list}, as there are {what}");
            accept(list == 0 || list == count, &quantity, count, &expected)?;
        }
    }
    Ok(())
}

/// Refuses a name that cannot stand in all of the formats.
fn identifier(quantity: &str, name: &str) -> Result<(), Invalid> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain);
    let expected = "a letter, then letters, digits and underscores, 60 at most";
    accept(good && name.len() <= 60, quantity, name, expected).map(drop)
}

fn printable(quantity: &str, text: &str) -> Result<(), Invalid> {
    let good = !text.chars().any(char::is_control);
    accept(good, quantity, text, "a text without control characters").map(drop)
}

// Gather bytes for a file
/// Bytes that are gathered before they are handed to the file.
const BUFFER: usize = 1 << 16;

fn gather<'n, T: Copy + 'n>(
    numbers: impl Iterator<Item = &'n T>,
    push: impl Fn(T, &mut Vec<u8>),
    file: &mut impl Write,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(BUFFER + 16);
    for &x in numbers {
        push(x, &mut bytes);
        if bytes.len() >= BUFFER {
            file.write_all(&bytes)?;
            bytes.clear();
        }
    }
    file.write_all(&bytes)
}

// Tests of signals
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ndarray::{Array1, Array2, Array3, Array4, ArrayD};

    // Lopsided signals for all formats
    /// Lengths along x, y, bins, q_x and q_y.
    pub const LENGTHS: [usize; 5] = [4, 3, 6, 7, 5];

    /// Foci and thicknesses of the series, unevenly spaced and evenly.
    pub const SERIES: [&[f64]; 2] = [&[30.0, 10.0, -25.0], &[20.0, 40.0]];

    pub fn scan(step: f64) -> Vec<Axis> {
        let axis = |name, offset, scale| Axis::navigation(name, "Å", offset, scale).unwrap();
        vec![axis("x", 1.25, step), axis("y", -0.5, 0.2)]
    }

    pub fn lopsided() -> Signals<'static> {
        let [x, y, bins, qx, qy] = LENGTHS;
        let axes = |more: Vec<Axis>| scan(0.5).into_iter().chain(more).collect::<Vec<_>>();
        let mut signals = Signals::default();
        let defocus = Axis::series("defocus", "Å", SERIES[0]).unwrap();
        let thickness = Axis::series("thickness", "Å", SERIES[1]).unwrap();
        let value = |(t, i, j, b)| (100 * i + 10 * j + b + 1000 * t) as f32 / 7.0;
        let cube = Array4::from_shape_fn((2, x, y, bins), value);
        let bin = Axis::signal("bin", "mrad", 0.5, 1.5).unwrap();
        let with = [vec![thickness.clone()], axes(vec![bin])].concat();
        signals.add(Signal::new("annular", cube, with).unwrap()).unwrap();
        let value =
            |place: ndarray::IxDyn| place.slice().iter().fold(0.5, |x, &k| 8.0 * x + k as f64);
        let images = ArrayD::from_shape_fn(vec![3, 2, x, y], value);
        let with = [vec![defocus, thickness], axes(vec![])].concat();
        signals.add(Signal::new("annulus_1", images, with).unwrap()).unwrap();
        // Lopsided signals of other kinds
        let value = |(i, j, k, l)| (1000 * i + 100 * j + 10 * k + l) as f32 + 0.25;
        let cube = Array4::from_shape_fn((x, y, qx, qy), value);
        let q = |name, offset, scale| Axis::signal(name, "1/Å", offset, scale).unwrap();
        let patterns = axes(vec![q("qx", -0.75, 0.25), q("qy", -0.25, 0.125)]);
        signals.add(Signal::new("four_d", cube, patterns).unwrap()).unwrap();
        let image = Array2::from_shape_fn((x, y), |(i, j)| (10 * i + j) as f64 / 3.0);
        signals.add(Signal::new("annulus_0", image, axes(vec![])).unwrap()).unwrap();
        let field =
            Array3::from_shape_fn((x, y, 2), |(i, j, c)| (i + 10 * j + 100 * c) as f64 - 31.5);
        let component = Axis::labelled("component", &["x", "y"]).unwrap();
        signals.add(Signal::new("centre_of_mass", field, axes(vec![component])).unwrap()).unwrap();
        let wave =
            Array2::from_shape_fn((x, y), |(i, j)| Complex64::new(i as f64 + 0.5, -(j as f64)));
        let plane = |name, scale| Axis::signal(name, "Å", 0.0, scale).unwrap();
        let axes = vec![plane("x", 0.1), plane("y", 0.3)];
        signals.add(Signal::new("probe", wave, axes).unwrap()).unwrap();
        let beam = Instrument { beam_energy: 100.0, convergence_angle: 21.5, scanned: true };
        signals.set_instrument(beam).unwrap();
        signals.fact("c", [4.0, 5.43, 5.43].as_slice()).unwrap();
        signals.fact("ns", 10_i64).unwrap();
        signals.fact("periodic", Fact::Flag(true)).unwrap();
        signals.fact("sample", "file = \"Si, naïvely.xyz\"\n").unwrap();
        signals
    }

    // Refuse signals that do not fit
    #[test]
    fn signals_that_do_not_fit_are_refused() {
        let image = Array2::<f32>::zeros((4, 3));
        let said = |name: &str, array: &Array2<f32>, axes: Vec<Axis>| {
            Signal::new(name, array, axes).map(drop).unwrap_err().to_string()
        };
        let two = || scan(0.5);
        assert!(
            said("i", &image, two()[..1].to_vec())
                .contains("axes of i = 1: expected an axis for each of the 2")
        );
        assert!(
            said("no name", &image, two()).starts_with("signal = \"no name\": expected a letter")
        );
        let empty = said("i", &Array2::zeros((4, 0)), two());
        assert!(empty.starts_with("samples of i along y = 0: expected at least one"), "{empty}");
        let same = vec![two()[0].clone(), two()[0].clone()];
        assert!(said("i", &image, same).contains("another name for each axis"));
        let turned = vec![Axis::signal("q", "1/Å", 0.0, 1.0).unwrap(), two()[0].clone()];
        assert!(said("i", &image, turned).contains("navigation before those of signal"));
        let labels = vec![two()[0].clone(), Axis::labelled("c", &["x", "y"]).unwrap()];
        assert!(said("i", &image, labels).contains("along c = 3: expected 2, as there are labels"));
        let foci = Axis::series("f", "Å", &[1.0, 2.0, 5.0]).unwrap();
        let late = vec![Axis::navigation("x", "Å", 0.0, 1.0).unwrap(), foci.clone()];
        assert!(said("i", &image, late).contains("axes of a series before all others"));
        let few = vec![foci, two()[1].clone()];
        assert!(said("i", &image, few).contains("along f = 4: expected 3, as there are values"));
        for values in [&[][..], &[1.0, 1.0], &[1.0, 3.0, 2.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(Axis::series("f", "Å", values).is_err(), "{values:?}");
        }
        // Refuse numbers and names that are none
        let mut broken = image.clone();
        broken[[2, 1]] = f32::NAN;
        assert_eq!(
            said("i", &broken, two()),
            "i is NaN at [2, 1], which is no number to go on with"
        );
        let wave = Array1::from(vec![Complex32::new(0.0, 1.0), Complex32::new(0.0, f32::INFINITY)]);
        let found = Signal::new("wave", &wave, two()[..1].to_vec()).map(drop).unwrap_err();
        assert!(found.to_string().starts_with("wave is inf at [1]"));
        for (offset, scale) in [(f64::NAN, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, f64::INFINITY)] {
            assert!(Axis::signal("q", "", offset, scale).is_err());
        }
        assert!(
            Axis::labelled("c", &[""]).is_err() && Axis::navigation("x", "Å\n", 0.0, 1.0).is_err()
        );
        let mut signals = lopsided();
        let again = |name| Signal::new(name, image.clone(), two()).unwrap();
        assert!(signals.add(again("four_d")).is_err() && signals.add(again("annular")).is_err());
        let prismatic = signals.add(again("virtual_detector")).unwrap_err().to_string();
        assert!(prismatic.contains("another name for each signal"), "{prismatic}");
        for (energy, angle) in [(0.0, 1.0), (f64::NAN, 1.0), (1.0, -1.0), (1.0, f64::INFINITY)] {
            let beam = Instrument { beam_energy: energy, convergence_angle: angle, scanned: true };
            assert!(Signals::default().set_instrument(beam).is_err());
        }
        for (key, fact) in
            [("beam_energy", 1.0), ("E", 1.0), ("", 1.0), ("a/b", 1.0), ("f", f64::NAN)]
        {
            assert!(signals.fact(key, fact).is_err(), "{key}");
        }
        assert!(signals.fact("none", [].as_slice()).is_err() && signals.fact("nul", "\0").is_err());
    }

    // Look at samples from another side
    #[test]
    fn samples_are_permuted_and_cut() {
        let cube: ArrayD<f32> =
            Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as f32).into_dyn();
        let samples = f32::samples(cube.into());
        let bytes = |samples: &Samples| {
            let mut bytes = Vec::new();
            samples.write(&mut bytes).unwrap();
            let numbers = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            numbers.collect::<Vec<_>>()
        };
        let turned = samples.permuted(&[1, 0, 2]);
        assert_eq!(
            (turned.shape(), &bytes(&turned)[4..8]),
            (&[3, 2, 4][..], &[100.0, 101.0, 102.0, 103.0][..])
        );
        assert_eq!(bytes(&samples.part(&[1, 2], 1..3)), [121.0, 122.0]);
        assert_eq!(bytes(&turned.part(&[2], 1..2)), [120.0, 121.0, 122.0, 123.0]);
        let signals = lopsided();
        let orders: Vec<_> = signals.items.iter().map(Signal::picture_order).collect();
        let expected: [&[usize]; 6] =
            [&[0, 2, 1, 3], &[0, 1, 3, 2], &[1, 0, 3, 2], &[1, 0], &[1, 0, 2], &[1, 0]];
        assert_eq!(orders, expected);
        assert_eq!(samples.descriptor(), "<f4");
    }

    #[test]
    fn series_are_even_or_uneven() {
        let series = |values: &[f64]| Axis::series("defocus", "Å", values).unwrap();
        let foci = [0.3, 0.2, 0.1, 0.0].map(|x: f64| x - 1e4);
        assert!(series(&foci).is_uniform() && series(&[7.0]).is_uniform());
        assert!(!series(SERIES[0]).is_uniform() && !series(&[0.0, 1.0, 2.0 + 1e-6]).is_uniform());
        assert_eq!((series(SERIES[1]).scale(), series(&[7.0]).scale()), (20.0, 1.0));
        assert_eq!(series(SERIES[0]).places(3), SERIES[0]);
        assert!(scan(0.5)[0].is_uniform() && !scan(0.5)[0].is_series());
    }
}
