// Tangled from book/src/results.md: edit there, or here and run cargo tangle stitch.
//! The covariances of a system as a data set.

use crate::data::{DataSet, Table};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::sensor::Sensor;
use crate::model::source::Source;
use crate::model::system::System;
use crate::turbulence::blocks::{
    CrossBlocks, between_name, slopes_name, unstructured_name, wavefront_name,
    wavefront_unstructured_name,
};
use crate::turbulence::plan::{
    Covariances, GroupWavefrontSlopes, SlopeSlope, WavefrontSlopes, lattice_name,
};
use crate::turbulence::slope::SlopeCovariance;
use crate::turbulence::wavefront::{WavefrontProblem, WavefrontSlope};
use ndarray::{Array2, Array4, arr1};

// Arrays of a covariance
impl Covariances {
    /// The covariances of a system as a data set, with what is needed to use them: lenslets, pitches, directions and the order of the slopes.
    pub fn to_data_set(&self, system: &System) -> DataSet<'_> {
        let mut arrays = DataSet::default();
        add_slopes(&mut arrays, &self.slope_slope);
        if let Some(wavefront) = &self.wavefront_slope {
            add_wavefront(&mut arrays, wavefront);
        }
        // Add the wavefronts among themselves
        if let Some(values) = &self.wavefront_wavefront {
            let about = "covariance of the wavefronts of target t and target u";
            let variable = arrays.add_result("wavefront_wavefront", values.view()).unit("m2");
            variable.dimensions("target t, target u, y, x").long_name(about);
        }
        describe_system(&mut arrays, system);
        let about = "star, axis, lenslet and place of each slope of a vector";
        arrays.add_table("slope_table", slope_table(system)).long_name(about);
        arrays
    }
}

// Add slopes in their form
fn add_slopes<'a>(arrays: &mut DataSet<'a>, slopes: &'a SlopeSlope) {
    match slopes {
        SlopeSlope::Toeplitz(covariance) => add_lattice(arrays, "slope_slope", covariance),
        SlopeSlope::Blocks(lattices, rectangles) => {
            for (set, covariance) in lattices.iter().enumerate() {
                add_lattice(arrays, &slopes_name(set), covariance);
            }
            add_rectangles(arrays, rectangles);
        }
        SlopeSlope::Dense(matrix) => add_matrix(arrays, "slope_slope_dense", matrix),
    }
}

/// What the covariances of slopes are about.
const OF_SLOPES: &str = "covariance of slope a under star p and slope b under star q";

fn add_lattice<'a>(arrays: &mut DataSet<'a>, name: &str, covariance: &'a SlopeCovariance) {
    let entry = arrays.add_result(name, covariance.values().view());
    entry.dimensions("star p, star q, slope a, slope b, y, x").unit("rad2").long_name(OF_SLOPES);
}

fn add_matrix<'a>(arrays: &mut DataSet<'a>, name: &str, matrix: &'a Array2<f64>) {
    arrays
        .add_result(name, matrix.view())
        .dimensions("slope, slope")
        .unit("rad2")
        .long_name(OF_SLOPES);
}

// Add blocks without a lattice
fn add_rectangles<'a>(arrays: &mut DataSet<'a>, rectangles: &'a CrossBlocks) {
    let sets = &rectangles.sets;
    for (set, matrix) in sets.unstructured().into_iter().zip(&rectangles.unstructured) {
        add_matrix(arrays, &unstructured_name(set), matrix);
    }
    for (pair, between) in sets.pairs().into_iter().zip(&rectangles.between) {
        add_matrix(arrays, &between_name(pair), between);
    }
    let of_stars: Vec<i64> = sets.of_sensors().into_iter().map(|set| set as i64).collect();
    let about = "the set that each star belongs to; in a set, stars are in their order";
    arrays.add("star_set", arr1(&of_stars)).dimensions("star").long_name(about);
}

// Add wavefronts in their form
/// What the covariances of wavefronts with slopes are about.
const OF_WAVEFRONTS: &str = "covariance of the wavefront of target t and slope a under star q";

fn add_wavefront<'a>(arrays: &mut DataSet<'a>, wavefront: &'a WavefrontSlopes) {
    match wavefront {
        WavefrontSlopes::Dense(values) => add_points(arrays, "wavefront_slope_dense", values),
        WavefrontSlopes::Toeplitz(problem, covariance) => {
            add_lattices(arrays, (problem, covariance), "", |k| lattice_name(problem, k));
        }
        WavefrontSlopes::Blocks(sets) => {
            for (set, of_set) in sets.iter().enumerate() {
                match of_set {
                    GroupWavefrontSlopes::Toeplitz(problem, covariance) => {
                        let (of_set, name) =
                            (format!("_{set}"), |k| wavefront_name(problem.is_layered(), set, k));
                        add_lattices(arrays, (problem, covariance), &of_set, name);
                    }
                    GroupWavefrontSlopes::Dense(values) => {
                        add_points(arrays, &wavefront_unstructured_name(set), values);
                    }
                }
            }
        }
    }
}

fn add_points<'a>(arrays: &mut DataSet<'a>, name: &str, values: &'a Array4<f64>) {
    let entry = arrays.add_result(name, values.view());
    entry.dimensions("target, y, x, slope").unit("m rad").long_name(OF_WAVEFRONTS);
}

// Add the lattices of the wavefront
fn add_lattices<'a>(
    arrays: &mut DataSet<'a>,
    (problem, covariance): (&WavefrontProblem, &'a WavefrontSlope),
    of_set: &str,
    name: impl Fn(usize) -> String,
) {
    for (k, lattice) in covariance.lattices().iter().enumerate() {
        let entry = arrays.add_result(&name(k), lattice.view());
        entry.dimensions("target t, star q, slope a, y, x").unit("m rad").long_name(OF_WAVEFRONTS);
    }
    if problem.is_layered() {
        let gamma: Vec<f64> = problem.layers().iter().map(|layer| layer.gamma).collect();
        let points: Vec<i64> = problem.layers().iter().map(|layer| layer.points as i64).collect();
        let names = ["layer_gamma", "layer_points"].map(|name| format!("{name}{of_set}"));
        arrays
            .add(&names[0], arr1(&gamma))
            .dimensions("layer")
            .long_name("cone factor of each layer");
        arrays
            .add(&names[1], arr1(&points))
            .dimensions("layer")
            .long_name("wavefront points across");
    }
}

// Describe the system in arrays
/// Adds the description of a system: valid lenslets, pitches, directions, rotations and shifts of the sensors.
pub(crate) fn describe_system(arrays: &mut DataSet, system: &System) {
    let stars = system.guide_stars();
    let lit = "lenslets that are lit";
    if system.common_array().is_some() {
        let valid = system.first_array().valid(system.pupil(), system.validity());
        arrays.add("valid", valid).dimensions("y, x").long_name(lit);
    } else {
        for (q, valid) in system.valid_lenslets().into_iter().enumerate() {
            arrays.add(&format!("valid_{q}"), valid).dimensions("y, x").long_name(lit);
        }
    }
    let pitches: Vec<f64> = stars.iter().map(|star| star.sensor.array.pitch()).collect();
    arrays.add("pitch", arr1(&pitches)).unit("m").dimensions("star");
    // Add directions and the step
    describe_misaligned(arrays, &system.sensors());
    let sources: Vec<_> = stars.iter().map(|star| star.sensor.source).collect();
    arrays.add("directions", directions(&sources)).unit("rad").dimensions("star, component");
    if let Ok(grid) = system.wavefront_grid() {
        let targets = directions(system.targets());
        arrays.add("target_directions", targets).unit("rad").dimensions("target, component");
        let step = system.wavefront_pitch() / grid.oversampling as f64;
        arrays.add("wavefront_step", arr1(&[step])).unit("m");
    }
}

// Directions and positions in arrays
/// The directions of sources, (sources, 2), rad.
fn directions(sources: &[Source]) -> Array2<f64> {
    let component = |(k, axis): (usize, usize)| sources[k].direction()[axis];
    Array2::from_shape_fn((sources.len(), 2), component)
}
/// Rotation, shift and magnification of each sensor, unless all are at rest.
fn describe_misaligned(arrays: &mut DataSet, sensors: &[Sensor]) {
    if sensors.iter().all(Sensor::is_at_rest) {
        return;
    }
    let rotations: Vec<f64> = sensors.iter().map(|sensor| sensor.rotation).collect();
    arrays.add("rotation", arr1(&rotations)).unit("rad").dimensions("star");
    let shift = |(k, axis): (usize, usize)| sensors[k].shift[axis];
    let shifts = Array2::from_shape_fn((sensors.len(), 2), shift);
    arrays.add("shift", shifts).unit("m").dimensions("star, component");
    let magnifications: Vec<f64> = sensors.iter().map(|sensor| sensor.magnification).collect();
    arrays.add("magnification", arr1(&magnifications)).dimensions("star");
}

// Slopes one by one in a table
// One slope and its lenslet
/// A slope of a vector: its star, axis and lenslet, and the position of the lenslet on the pupil, metres.
struct Slope {
    star: usize,
    axis: usize,
    lenslet: [usize; 2],
    centre: [f64; 2],
}

/// The slopes of a system, one by one, in the order of their vector: star, axis, row, column, x and y in metres.
pub fn slope_table(system: &System) -> Table {
    let order = SlopeOrder::new(&system.valid_lenslets());
    let sensors = system.sensors();
    let of_star = |star: usize| {
        let (sensor, lenslets) = (&sensors[star], order.lenslets(star));
        let of_axis = move |axis| {
            let slope = move |&lenslet: &[usize; 2]| {
                let centre = sensor.centre(lenslet);
                Slope { star, axis, lenslet, centre }
            };
            lenslets.iter().map(slope)
        };
        of_axis(0).chain(of_axis(1))
    };
    let slopes: Vec<Slope> = (0..sensors.len()).flat_map(of_star).collect();
    // Columns of the table of slopes
    Table::of(&slopes)
        .integer("star", |slope| slope.star as i32)
        .integer("axis", |slope| slope.axis as i32)
        .integer("row", |slope| slope.lenslet[0] as i32)
        .integer("column", |slope| slope.lenslet[1] as i32)
        .number("x", "m", |slope| slope.centre[0])
        .number("y", "m", |slope| slope.centre[1])
        .table()
}
