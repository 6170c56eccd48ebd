// Tangled from book/src/interaction-matrix.md: edit there, or here and run cargo tangle stitch.
//! A deformable mirror in a system: positions of its actuators, heights, and interaction matrix.

// Imports of mirrors
use crate::correction::influence::Influence;
#[cfg(feature = "files")]
use crate::error::{BadLine, Error};
use crate::error::{Invalid, accept};
#[cfg(feature = "files")]
use crate::files::spanned_toml::Table;
#[cfg(feature = "files")]
use crate::model::SystemFile;
#[cfg(feature = "files")]
use crate::model::mirror::MeasuredInfluence;
use crate::model::mirror::{ActuatorLayout, MirrorDesign, Spacing};
use crate::model::source::Source;
use crate::model::system::System;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, Axis};
use std::f64::consts::PI;

// Mirror of a system
/// A deformable mirror in a system, with its actuators on the pupil or, at an altitude, on the meta-pupil of all targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Mirror {
    pitch: f64,
    layout: ActuatorLayout,
    altitude: f64,
    filter: f64,
    positions: Vec<[f64; 2]>,
    influence: Influence,
}

/// Largest number of actuators; larger matrices would not fit into memory.
const MOST_ACTUATORS: f64 = 1e6;

impl Mirror {
    // Construct a mirror from a design
    /// The mirror of a design in a system. Unless the design gives radii, a mirror in the pupil keeps the actuators of
    /// Eq. [kept actuators](https://lenslet.github.io/lenslet/interaction-matrix.html#eq-kept-actuators), and other mirrors keep those up to its outer radius. Without a telescope, the pupil is as wide as the lenslet array.
    // Errors and example of a mirror
    ///
    /// # Errors
    /// `Invalid`, by the name of the key, for an invalid design and for one that keeps no actuator, or more than a million.
    ///
    /// ```
    /// use lenslet::{correction::Mirror, model::{MirrorDesign, Spacing, System}};
    /// let system = System::from_file("book/systems/small-moao.toml")?;
    /// let mirror = Mirror::new(&MirrorDesign::new(Spacing::Actuators(9)), &system)?;
    /// assert_eq!((mirror.pitch(), mirror.positions().len()), (0.5, 68));
    /// assert!((mirror.influence([0.0, 0.5]) - 0.2).abs() < 1e-15);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn new(design: &MirrorDesign, system: &System) -> Result<Self, Invalid> {
        design.check()?;
        let (diameter, hole) = width_and_hole(system);
        let (pitch, offset) = match design.spacing {
            Spacing::Actuators(n) => {
                (diameter / (n - 1) as f64, if n % 2 == 0 { 0.5 } else { 0.0 })
            }
            Spacing::Pitch(pitch) => (pitch, 0.0),
        };
        let radius = 0.5 * diameter + design.altitude * field_radius(system);
        // Keep the actuators between two radii
        let per_pitch = 0.5 * pitch / radius; // 1/N
        let hole = if radius > 0.5 * diameter { f64::NEG_INFINITY } else { hole - per_pitch };
        let [inner, outer] =
            design.kept.unwrap_or([hole, 1.0 + 1.4 * per_pitch]).map(|r| r * radius);
        // Refuse mirrors of too many actuators
        let about = PI * (outer / pitch).powi(2);
        let expected =
            format!("a pitch that leaves at most a million actuators, and not some {about:.1e}");
        let key = if matches!(design.spacing, Spacing::Pitch(_)) { "pitch" } else { "actuators" };
        accept(about <= MOST_ACTUATORS, key, pitch, &expected)?;
        let lattice = design.layout.points(offset, outer / pitch).into_iter();
        let positions: Vec<[f64; 2]> = lattice
            .map(|point| point.map(|x| x * pitch))
            .filter(|[x, y]| (inner < f64::hypot(*x, *y)) && f64::hypot(*x, *y) < outer)
            .collect();
        let expected =
            format!("radii between which there is an actuator, with a pitch of {pitch} m");
        accept(!positions.is_empty(), "kept", [inner / radius, outer / radius], &expected)?;
        let influence = Influence::new(design, pitch, positions.len())?;
        let (layout, altitude, filter) = (design.layout, design.altitude, design.filter);
        Ok(Self { pitch, layout, altitude, filter, positions, influence })
    }

    // Getters of a mirror
    /// Positions of the actuators \[m\], row by row, in the plane to which the mirror is conjugate.
    pub fn positions(&self) -> &[[f64; 2]] {
        &self.positions
    }

    /// Distance between neighbouring actuators \[m\].
    pub fn pitch(&self) -> f64 {
        self.pitch
    }

    /// Pitch \[m\] of a square lattice with the same density of actuators, from which the [fitting error](crate::correction::Fitting) is computed.
    pub fn fitting_pitch(&self) -> f64 {
        self.pitch * self.layout.points_per_square().powf(-0.5)
    }

    /// Altitude to which the mirror is conjugate \[m\].
    pub fn altitude(&self) -> f64 {
        self.altitude
    }

    /// Singular values below this fraction of the largest are dropped.
    pub fn filter(&self) -> f64 {
        self.filter
    }

    /// Height of the influence function at an `offset` \[m\] from its actuator, where it is 1, Eq. [influence](https://lenslet.github.io/lenslet/mirrors.html#eq-influence); the mean over all actuators for measured influence functions.
    pub fn influence(&self, offset: [f64; 2]) -> f64 {
        self.influence.at(None, offset)
    }

    /// Height of the influence function of one `actuator`, by the index of its position, at an `offset` \[m\] from it.
    ///
    /// # Panics
    /// If there is no such actuator.
    pub fn influence_of(&self, actuator: usize, offset: [f64; 2]) -> f64 {
        assert!(actuator < self.positions.len(), "actuator {actuator} of {}", self.positions.len());
        self.influence.at(Some(actuator), offset)
    }
}

// Width of the pupil and of the field
/// Diameter of the pupil, m, and that of its obstruction relative to it.
fn width_and_hole(system: &System) -> (f64, f64) {
    let array = system.lenslet_array();
    let width = array.lenslets() as f64 * array.pitch();
    system.pupil().map_or((width, 0.0), |pupil| (pupil.diameter(), pupil.obstruction()))
}

/// Largest distance of a target from the axis, rad.
fn field_radius(system: &System) -> f64 {
    let away = |target: &Source| f64::hypot(target.direction()[0], target.direction()[1]);
    system.targets().iter().map(away).fold(0.0, f64::max)
}

// Order of actuators on a lattice
impl ActuatorLayout {
    /// Actuators on the square of the pitch.
    fn points_per_square(self) -> f64 {
        if self == Self::Hexagonal { 2.0 / 3f64.sqrt() } else { 1.0 }
    }

    /// The points of a lattice of unit pitch in the square around a disc, row by row. Rows and columns of squares begin `offset` from the axis.
    fn points(self, offset: f64, radius: f64) -> Vec<[f64; 2]> {
        let (row, shift, offset) = match self {
            Self::Square => (1.0, 0.0, offset),
            Self::Hexagonal => (0.75f64.sqrt(), 0.5, 0.0),
        };
        let reach = (radius / row).ceil() as i64 + 1;
        let point = |j: i64, i: i64| {
            let odd = if j.rem_euclid(2) == 1 { shift } else { 0.0 };
            [i as f64 + offset + odd, (j as f64 + offset) * row]
        };
        let rows = -reach..=reach;
        rows.flat_map(|j| (-reach..=reach).map(move |i| point(j, i))).collect()
    }
}

// Interaction matrix of a mirror
impl Mirror {
    /// J, (m, a), 1/m: slopes, in rad per metre of stroke, that the truth sensor of a system measures for each actuator in the direction of a star. The rows are all x slopes, then all y
    /// slopes, of the valid lenslets row by row, in the slope model of the system.
    pub fn interaction(&self, system: &System, star: &Source) -> Array2<f64> {
        let (array, model) = (system.truth_sensor(), system.slope_model());
        let valid = array.valid(system.pupil(), system.validity());
        let centres: Vec<[f64; 2]> = (valid.indexed_iter().filter(|(_, valid)| **valid))
            .map(|((j, i), _)| star.project([array.centre(i), array.centre(j)], self.altitude))
            .collect();
        let (mut matrix, side) =
            (Array2::zeros((2 * centres.len(), self.positions.len())), array.pitch());
        let (mut along_x, mut along_y) = matrix.view_mut().split_at(Axis(0), centres.len());
        let rows = along_x.outer_iter_mut().into_par_iter().zip(along_y.outer_iter_mut());
        rows.zip(&centres).for_each(|((mut x, mut y), centre)| {
            for (place, actuator) in self.positions.iter().enumerate() {
                let offset = [centre[0] - actuator[0], centre[1] - actuator[1]];
                [x[place], y[place]] = self.influence.slopes(place, offset, side, model);
            }
        });
        matrix
    }
}

// Read the mirrors of a file
impl MirrorDesign {
    /// Reads the tables `[[mirror]]` of a system file.
    ///
    /// # Errors
    /// The first invalid line of the tables.
    ///
    /// ```
    /// use lenslet::model::{MirrorDesign, Spacing, SystemFile};
    /// let read = |text: &str| MirrorDesign::from_system_file(&SystemFile::from_toml(text, "s.toml")?);
    /// let mirrors = read("[[mirror]]\nactuators = 75\ncoupling = 0.3")?;
    /// assert_eq!((mirrors[0].spacing, mirrors[0].coupling), (Spacing::Actuators(75), 0.3));
    /// let wrong = read("[[mirror]]\nactuators = 75\ncoupling = 2").unwrap_err();
    /// assert_eq!(wrong.to_string(), "s.toml:3: mirror[0].coupling = 2: expected a share of the height, from 1e-6 to 0.9");
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    #[cfg(feature = "files")]
    pub fn from_system_file(file: &SystemFile) -> Result<Vec<Self>, Error> {
        let tables = file.root()?.tables("mirror")?;
        tables.iter().map(|table| Ok(read_mirror(table)?)).collect()
    }
}

// Read one mirror
#[cfg(feature = "files")]
fn read_mirror(table: &Table) -> Result<MirrorDesign, BadLine> {
    let actuators = table.optional("actuators", "a whole number from 2 to 1001")?;
    let pitch = table.optional("pitch", "a length in metres")?;
    let spacing = match (actuators, pitch) {
        (Some(actuators), None) => Spacing::Actuators(actuators),
        (None, Some(pitch)) => Spacing::Pitch(pitch),
        (Some(_), Some(pitch)) => {
            let expected = "either actuators or pitch, not both";
            return Err(table.refuse(Invalid::new("pitch", pitch, expected)));
        }
        (None, None) => {
            return Err(table.missing("actuators", "a whole number from 2 to 1001, or a pitch"));
        }
    };
    let layouts = [("square", ActuatorLayout::Square), ("hexagonal", ActuatorLayout::Hexagonal)];
    let new = MirrorDesign::new(spacing);
    let design = MirrorDesign {
        layout: table.choice("layout", &layouts)?.unwrap_or_default(),
        altitude: table.optional("altitude", "an altitude in metres")?.unwrap_or(new.altitude),
        coupling: table.optional("coupling", "a share of the height")?.unwrap_or(new.coupling),
        influence: read_influence(table)?,
        kept: table.optional("kept", "two radii, [inner, outer]")?,
        filter: table.optional("filter", "a share")?.unwrap_or(new.filter),
        ..new
    };
    table.check(design.check())?;
    Ok(design)
}

// Read influence functions of a file
#[cfg(feature = "files")]
fn read_influence(table: &Table) -> Result<Option<MeasuredInfluence>, BadLine> {
    let (name, step) = ("the name of a file of influence functions", "a length in metres");
    let given = table.optional("influence_step", step)?;
    let Some(file) = table.optional::<&str>("influence", name)? else {
        let without = "no step, unless there is an influence";
        return given.map_or(Ok(None), |step: f64| {
            Err(table.refuse(Invalid::new("influence_step", step, without)))
        });
    };
    if table.has("coupling") {
        let expected = "either coupling or influence, not both";
        return Err(table.refuse(Invalid::new("coupling", "", expected)));
    }
    let step =
        given.ok_or_else(|| table.missing("influence_step", "the side of a pixel in metres"))?;
    let read =
        MeasuredInfluence::read(&table.folder().join(file), step).map_err(|error| match error {
            Error::Invalid(invalid) if invalid.quantity == "influence_step" => {
                table.refuse(invalid)
            }
            error => {
                let expected = format!("the name of a file of influence functions, and {error}");
                table.refuse(Invalid::new("influence", file, expected))
            }
        });
    read.map(Some)
}

// Tests of mirrors
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::{LensletArray, Pupil, Validity};
    use crate::model::noise::GuideStar;
    use crate::model::system::SlopeModel;

    // System of a test with mirrors
    /// A telescope of 5 m with an obstruction of a fifth, ten lenslets across, and targets.
    pub(crate) fn ten_across(model: SlopeModel, targets: &[Source]) -> System {
        let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(3e3, 1.0, 25.0)]).unwrap();
        let array = LensletArray::new(10, 0.5).unwrap();
        let star = GuideStar::at_rest(Source::star(0.0, 0.0).unwrap(), array, 1e-14).unwrap();
        System::builder(air, array)
            .pupil(Some(Pupil::new(5.0, 0.2).unwrap()))
            .validity(Validity::Centre)
            .slope_model(model)
            .guide_stars([star])
            .targets(targets.iter().copied())
            .build()
            .unwrap()
    }

    pub(crate) fn star(x: f64, y: f64) -> Source {
        Source::star(f64::hypot(x, y), f64::atan2(y, x)).unwrap()
    }

    // The public rule keeps a hundred
    #[test]
    fn the_public_rule_keeps_a_hundred() {
        let system = ten_across(SlopeModel::Average, &[]);
        let eleven = MirrorDesign::new(Spacing::Actuators(11));
        let mirror = Mirror::new(&eleven, &system).unwrap();
        assert_eq!((mirror.positions().len(), mirror.pitch()), (100, 0.5));
        // The same influence function as others write it, with r in pupil radii.
        let x0 = (-2.0 / 0.2f64.ln()).sqrt() / 10.0;
        let r = f64::hypot(0.4, 0.31) / 2.5;
        assert!((mirror.influence([0.4, -0.31]) - (-r * r / (2.0 * x0 * x0)).exp()).abs() < 1e-15);
        // An even number has none on the axis; radii may be given.
        let kept = Some([0.0, 0.3]);
        let ten = MirrorDesign { kept, ..MirrorDesign::new(Spacing::Actuators(10)) };
        let four = Mirror::new(&ten, &system).unwrap();
        let half = 2.5 / 9.0;
        assert_eq!(four.positions(), [[-half, -half], [half, -half], [-half, half], [half, half]]);
    }

    // Hexagons have six neighbours
    #[test]
    fn hexagons_have_six_neighbours() {
        let layout = ActuatorLayout::Hexagonal;
        let design = MirrorDesign { layout, ..MirrorDesign::new(Spacing::Pitch(0.6)) };
        let system = ten_across(SlopeModel::Average, &[]);
        let mirror = Mirror::new(&design, &system).unwrap();
        let places = mirror.positions();
        let near = |a: &[f64; 2]| {
            let distance = |b: &&[f64; 2]| f64::hypot(a[0] - b[0], a[1] - b[1]);
            places.iter().filter(|b| (distance(b) - 0.6).abs() < 1e-9).count()
        };
        let inside = |a: &&[f64; 2]| (1.2..1.9).contains(&f64::hypot(a[0], a[1]));
        assert!(places.iter().filter(inside).count() > 10);
        assert!(places.iter().filter(inside).all(|a| near(a) == 6));
        let area = mirror.fitting_pitch().powi(2);
        assert!((area - 0.6 * 0.6 * 0.75f64.sqrt()).abs() < 1e-15);
        let share = area * places.len() as f64 / (PI * (2.5f64 + 0.42).powi(2) - PI * 0.2 * 0.2);
        assert!((share - 1.0).abs() < 0.05, "{share}");
    }

    // Mirrors at altitude are displaced
    #[test]
    fn mirrors_at_altitude_are_displaced() {
        let (on_axis, aside) = (star(0.0, 0.0), star(1.25e-4, -2.5e-4));
        let system = ten_across(SlopeModel::Average, &[on_axis, aside]);
        let high = MirrorDesign { altitude: 4e3, ..MirrorDesign::new(Spacing::Actuators(11)) };
        let mirror = Mirror::new(&high, &system).unwrap();
        let radius = 2.5 + 4e3 * 1.25e-4 * 5f64.sqrt() + 0.35;
        assert!(mirror.positions().iter().all(|[x, y]| f64::hypot(*x, *y) < radius));
        assert!(
            mirror.positions().contains(&[0.0, 0.0]) && mirror.positions().contains(&[0.0, -3.5])
        );
        // The footprint of the second target is one pitch further along x and two back along y.
        let [at_once, displaced] = [on_axis, aside].map(|star| mirror.interaction(&system, &star));
        let places = mirror.positions();
        for (a, [x, y]) in places.iter().enumerate() {
            let Some(moved) = places
                .iter()
                .position(|b| (b[0] - x - 0.5).abs() < 1e-9 && (b[1] - y + 1.0).abs() < 1e-9)
            else {
                continue;
            };
            let gap = &at_once.column(a) - &displaced.column(moved);
            assert!(gap.iter().all(|gap| gap.abs() < 1e-13));
        }
    }

    // Invalid mirrors are rejected
    #[test]
    fn mirrors_that_cannot_be_are_refused() {
        let system = ten_across(SlopeModel::Average, &[]);
        let good = MirrorDesign::new(Spacing::Actuators(11));
        let named = |design: MirrorDesign| Mirror::new(&design, &system).unwrap_err().quantity;
        assert_eq!(named(MirrorDesign { coupling: 0.0, ..good.clone() }), "coupling");
        assert_eq!(named(MirrorDesign { coupling: f64::NAN, ..good.clone() }), "coupling");
        assert_eq!(named(MirrorDesign { altitude: -1.0, ..good.clone() }), "altitude");
        assert_eq!(named(MirrorDesign { filter: 1.0, ..good.clone() }), "filter");
        assert_eq!(named(MirrorDesign { kept: Some([0.5, 0.5]), ..good.clone() }), "kept");
        assert_eq!(named(MirrorDesign { kept: Some([0.41, 0.42]), ..good.clone() }), "kept");
        assert_eq!(named(MirrorDesign::new(Spacing::Actuators(1))), "actuators");
        assert_eq!(named(MirrorDesign::new(Spacing::Pitch(0.0))), "pitch");
        assert_eq!(named(MirrorDesign::new(Spacing::Pitch(1e-4))), "pitch");
    }

    // Influence functions come from files
    #[cfg(feature = "files")]
    #[test]
    fn influence_functions_come_from_files() {
        use crate::numerics::Precision;
        use crate::{data::DataSet, files::Format};
        let image = Array2::from_shape_fn((9, 9), |(j, i)| {
            let square = (i as f64 - 4.0).powi(2) + (j as f64 - 4.0).powi(2);
            (-0.1 * square).exp()
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shape.fits");
        let mut arrays = DataSet::default();
        arrays.add_result("shape", image.view()).unit("m").dimensions("y, x");
        let mut written = std::fs::File::create(&file).unwrap();
        arrays.write(&mut written, Format::Fits, Precision::F64).unwrap();
        let name = folder.path().join("s.toml").display().to_string();
        let read = |keys: &str| {
            let text = format!("[[mirror]]\nactuators = 11\n{keys}");
            MirrorDesign::from_system_file(&SystemFile::from_toml(&text, &name)?)
        };
        let design = read("influence = 'shape.fits'\ninfluence_step = 0.1").unwrap().remove(0);
        let mirror = Mirror::new(&design, &ten_across(SlopeModel::Average, &[])).unwrap();
        assert!((mirror.influence_of(7, [0.1, -0.2]) - (-0.5f64).exp()).abs() < 1e-12);
        assert_eq!(mirror.influence([0.1, -0.2]), mirror.influence_of(7, [0.1, -0.2]));
        // Bad influence functions are refused
        for (keys, words) in [
            ("influence = 'shape.fits'", "mirror[0].influence_step is missing"),
            ("influence_step = 0.1", "mirror[0].influence_step = 0.1: expected no step"),
            ("influence = 'none.fits'\ninfluence_step = 0.1", "mirror[0].influence = 'none.fits'"),
            ("influence = 'shape.fits'\ninfluence_step = 0", "mirror[0].influence_step = 0"),
            ("coupling = 0.3\ninfluence = 'shape.fits'\ninfluence_step = 0.1", "either coupling"),
        ] {
            let error = read(keys).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
