// Tangled from book/src/variables-on-disk.md: edit there, or here and run cargo tangle stitch.
//! Variables with coordinates, as electron microscopists exchange them.

// Imports of variables on disk

use crate::data::coordinate::identifier;
use crate::data::variable::check_dimensions;
use crate::data::{AttributeValue, DataSet, TypedArray, Values, Variable};
use crate::error::{Invalid, accept, not_negative, positive};
use crate::files::npz::{Kind, Number, write_each};

use std::io::{self, Write};

// Bytes of typed arrays
impl TypedArray<'_> {
    /// Bytes of a real number, or of one part of a complex one.
    pub(super) fn part_bytes(&self) -> usize {
        match self {
            Self::F64(_) | Self::C64(_) | Self::I64(_) => 8,
            Self::F32(_) | Self::C32(_) => 4,
            Self::Bool(_) => 1,
        }
    }

    /// Bytes of an element.
    pub(crate) fn bytes(&self) -> usize {
        self.part_bytes() * (1 + usize::from(self.is_complex()))
    }

    // NumPy's names of types
    /// What NumPy calls the type, least significant byte first.
    pub(super) fn descriptor(&self) -> String {
        match self {
            Self::F64(_) | Self::F32(_) => format!("<f{}", self.bytes()),
            Self::C64(_) | Self::C32(_) => format!("<c{}", self.bytes()),
            Self::I64(_) => "<i8".into(),
            Self::Bool(_) => "|b1".into(),
        }
    }

    // Write the elements of an array
    /// Writes all elements, the last dimension the fastest, least significant bytes first.
    pub(crate) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let number = Number { kind: Kind::Float, bytes: self.bytes(), big_endian: false };
        number.write_array(self, file)
    }

    /// Writes all elements in single precision.
    pub(super) fn write_single(&self, file: &mut impl Write) -> io::Result<()> {
        let four = |x: f64| (x as f32).to_le_bytes();
        match self {
            Self::C64(array) => write_each(array, |z| [z.re, z.im].map(four), file),
            Self::C32(array) => write_each(array, |z| [z.re, z.im].map(f32::to_le_bytes), file),
            Self::F32(array) => write_each(array, |x| [x.to_le_bytes()], file),
            Self::F64(array) => write_each(array, |x| [four(x)], file),
            Self::I64(array) => write_each(array, |n| [four(n as f64)], file),
            Self::Bool(array) => write_each(array, |is| [four(f64::from(u8::from(is)))], file),
        }
    }

    /// Calls with the real and the imaginary part of each element, the last dimension the fastest.
    pub(super) fn for_each(&self, mut call: impl FnMut([f64; 2])) {
        match self {
            Self::C64(array) => array.iter().for_each(|z| call([z.re, z.im])),
            Self::C32(array) => array.iter().for_each(|z| call([z.re.into(), z.im.into()])),
            Self::F32(array) => array.iter().for_each(|x| call([(*x).into(), 0.0])),
            Self::F64(array) => array.iter().for_each(|x| call([*x, 0.0])),
            Self::I64(array) => array.iter().for_each(|n| call([*n as f64, 0.0])),
            Self::Bool(array) => array.iter().for_each(|is| call([f64::from(u8::from(*is)), 0.0])),
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
    // Attributes of an instrument
    /// Key and value of each attribute, by the names that HyperSpy has for them.
    pub(super) fn attributes(&self) -> [(&'static str, AttributeValue); 3] {
        let mode = if self.scanned { "STEM" } else { "TEM" };
        [
            ("beam_energy", self.beam_energy.into()),
            ("convergence_angle", self.convergence_angle.into()),
            ("acquisition_mode", mode.into()),
        ]
    }

    /// Adds the attributes `beam_energy`, `convergence_angle` and `acquisition_mode` to a data set.
    ///
    /// # Errors
    /// `Invalid` for an energy that is not positive, an angle that is negative, or one that is not finite; or where there are such attributes
    /// already.
    pub fn add_to(self, data: &mut DataSet) -> Result<(), Invalid> {
        positive("beam_energy", self.beam_energy)?;
        not_negative("convergence_angle", self.convergence_angle)?;
        self.attributes().into_iter().try_for_each(|(key, value)| data.set_attribute(key, value))
    }

    /// The instrument of a data set, if it has these attributes.
    pub fn of(data: &DataSet) -> Option<Self> {
        let number = |key: &str| match data.attribute(key) {
            Some(AttributeValue::Number(number)) => Some(*number),
            _ => None,
        };
        let mode = data.attribute("acquisition_mode")?;
        let scanned = *mode == AttributeValue::from("STEM");
        let [beam_energy, convergence_angle] =
            [number("beam_energy")?, number("convergence_angle")?];
        Some(Self { beam_energy, convergence_angle, scanned })
    }
}

// Names of variables in other programs
// Names of Prismatic
/// Name of a variable in a file of Prismatic.
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

impl<'a> DataSet<'a> {
    /// The variables that are arrays, with these.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = (&Variable<'a>, &TypedArray<'a>)> {
        self.iter().filter_map(|variable| Some((variable, variable.array()?)))
    }

    /// Key and value of all attributes, and of all texts.
    pub(super) fn facts(&self) -> Vec<(String, AttributeValue)> {
        let attributes = self.attributes.iter().map(|one| (one.name.clone(), one.value.clone()));
        let texts = self.variables.iter().filter_map(|variable| match &variable.values {
            Values::Text(text) => Some((variable.name.clone(), text.replace('\0', " ").into())),
            _ => None,
        });
        attributes.chain(texts).collect()
    }

    // Check variables with coordinates
    /// Rejects what the formats of variables with coordinates cannot hold.
    pub(super) fn check_coordinates(&self) -> Result<(), Invalid> {
        for variable in &self.variables {
            identifier("variable", &variable.name)?;
            match &variable.values {
                Values::Text(_) => {}
                Values::Table(_) => {
                    let expected = "an array or a text: .npz and .fits hold tables";
                    return Err(Invalid::new(&variable.name, "a table", expected));
                }
                Values::Array(array) => {
                    let dimensions = &variable.dimensions;
                    dimensions.iter().try_for_each(|one| identifier("dimension", &one.name))?;
                    check_dimensions(&variable.name, array.shape(), dimensions)?;
                }
            }
        }
        Ok(())
    }

    /// Rejects names that stand for others in Prismatic's tree.
    pub(super) fn check_prismatic(&self) -> Result<(), Invalid> {
        let names: Vec<_> = self.arrays().map(|(variable, _)| known_as(&variable.name)).collect();
        for (k, name) in names.iter().enumerate() {
            accept(!names[..k].contains(name), "variable", name, "another name for each variable")?;
        }
        let taken = |key: &&str| self.attribute(key).is_some();
        let taken = ["E", "sa"].into_iter().find(taken); // which stand for the instrument's
        accept(taken.is_none(), "key of an attribute", taken.unwrap_or(""), "another key").map(drop)
    }
}

// Tests of variables on disk
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::data::Coordinate;
    use ndarray::{Array2, Array3, Array4, ArrayD, Dimension};
    use num_complex::Complex64;

    // Lopsided variables for all formats
    /// Lengths along x, y, bins, q_x and q_y.
    pub const LENGTHS: [usize; 5] = [4, 3, 6, 7, 5];

    /// Foci and thicknesses of the series, unevenly spaced and evenly.
    pub const SERIES: [&[f64]; 2] = [&[30.0, 10.0, -25.0], &[20.0, 40.0]];

    pub fn scan(step: f64) -> Vec<Coordinate> {
        let axis = |name, offset, scale| Coordinate::navigation(name, "Å", offset, scale).unwrap();
        vec![axis("x", 1.25, step), axis("y", -0.5, 0.2)]
    }

    pub fn lopsided() -> DataSet<'static> {
        let [x, y, bins, qx, qy] = LENGTHS;
        let axes = |more: Vec<Coordinate>| scan(0.5).into_iter().chain(more).collect::<Vec<_>>();
        let mut data = DataSet::default();
        let defocus = Coordinate::series("defocus", "Å", SERIES[0]).unwrap();
        let thickness = Coordinate::series("thickness", "Å", SERIES[1]).unwrap();
        let value = |(t, i, j, b)| (100 * i + 10 * j + b + 1000 * t) as f32 / 7.0;
        let cube = Array4::from_shape_fn((2, x, y, bins), value);
        let bin = Coordinate::signal("bin", "mrad", 0.5, 1.5).unwrap();
        let with = [vec![thickness.clone()], axes(vec![bin])].concat();
        data.insert(Variable::new("annular", cube, with).unwrap()).unwrap();
        let value =
            |place: ndarray::IxDyn| place.slice().iter().fold(0.5, |x, &k| 8.0 * x + k as f64);
        let images = ArrayD::from_shape_fn(vec![3, 2, x, y], value);
        let with = [vec![defocus, thickness], axes(vec![])].concat();
        data.insert(Variable::new("annulus_1", images, with).unwrap()).unwrap();
        // Lopsided variables of other kinds
        let value = |(i, j, k, l)| (1000 * i + 100 * j + 10 * k + l) as f32 + 0.25;
        let cube = Array4::from_shape_fn((x, y, qx, qy), value);
        let q = |name, offset, scale| Coordinate::signal(name, "1/Å", offset, scale).unwrap();
        let patterns = axes(vec![q("qx", -0.75, 0.25), q("qy", -0.25, 0.125)]);
        data.insert(Variable::new("four_d", cube, patterns).unwrap()).unwrap();
        let image = Array2::from_shape_fn((x, y), |(i, j)| (10 * i + j) as f64 / 3.0);
        data.insert(Variable::new("annulus_0", image, axes(vec![])).unwrap()).unwrap();
        let field =
            Array3::from_shape_fn((x, y, 2), |(i, j, c)| (i + 10 * j + 100 * c) as f64 - 31.5);
        let component = Coordinate::labelled("component", &["x", "y"]).unwrap();
        data.insert(Variable::new("centre_of_mass", field, axes(vec![component])).unwrap())
            .unwrap();
        let wave =
            Array2::from_shape_fn((x, y), |(i, j)| Complex64::new(i as f64 + 0.5, -(j as f64)));
        let plane = |name, scale| Coordinate::signal(name, "Å", 0.0, scale).unwrap();
        let axes = vec![plane("x", 0.1), plane("y", 0.3)];
        data.insert(Variable::new("probe", wave, axes).unwrap()).unwrap();
        let beam = Instrument { beam_energy: 100.0, convergence_angle: 21.5, scanned: true };
        beam.add_to(&mut data).unwrap();
        data.set_attribute("c", [4.0, 5.43, 5.43].as_slice()).unwrap();
        data.set_attribute("ns", 10_i64).unwrap();
        data.set_attribute("periodic", true).unwrap();
        data.set_attribute("sample", "file = \"Si, naïvely.xyz\"\n").unwrap();
        data
    }

    // Recognise pictures and instruments
    #[test]
    fn pictures_and_instruments_are_recognised() {
        let data = lopsided();
        let orders: Vec<_> = data.iter().map(Variable::picture_order).collect();
        let expected: [&[usize]; 6] =
            [&[0, 2, 1, 3], &[0, 1, 3, 2], &[1, 0, 3, 2], &[1, 0], &[1, 0, 2], &[1, 0]];
        assert_eq!(orders, expected);
        let beam = Instrument { beam_energy: 100.0, convergence_angle: 21.5, scanned: true };
        assert_eq!(Instrument::of(&data), Some(beam));
        assert!(
            beam.add_to(&mut lopsided()).is_err() && Instrument::of(&DataSet::default()).is_none()
        );
        for (energy, angle) in [(0.0, 1.0), (f64::NAN, 1.0), (1.0, -1.0), (1.0, f64::INFINITY)] {
            let beam = Instrument { beam_energy: energy, convergence_angle: angle, scanned: true };
            assert!(beam.add_to(&mut DataSet::default()).is_err());
        }
        let descriptors = data.arrays().map(|(_, array)| array.descriptor()).collect::<Vec<_>>();
        assert_eq!(descriptors, ["<f4", "<f8", "<f4", "<f8", "<f8", "<c16"]);
    }

    #[test]
    fn names_that_prismatic_knows_are_rejected_twice() {
        let mut data = lopsided();
        let image = Array2::<f32>::zeros((4, 3));
        data.insert(Variable::new("virtual_detector", image, scan(0.5)).unwrap()).unwrap();
        assert!(data.check_coordinates().is_ok());
        let refused = data.check_prismatic().unwrap_err().to_string();
        assert!(refused.contains("another name for each variable"), "{refused}");
        let mut data = lopsided();
        data.set_attribute("sa", 1.0).unwrap();
        assert!(data.check_prismatic().is_err() && lopsided().check_prismatic().is_ok());
        data.add("bare", Array2::<f32>::zeros((4, 3)));
        assert!(
            data.check_coordinates().unwrap_err().to_string().starts_with("dimensions of bare")
        );
    }
}
