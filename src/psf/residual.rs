// Tangled from book/src/residual-wavefront.md: edit there, or here and run cargo tangle stitch.
//! The residual wavefront of a loop, from one covariance of all its causes.

// Imports of the residual wavefront
use crate::correction::in_band_covariance::{LowTurbulence, low_wavefront};
use crate::correction::loop_covariances::{LOOP, LoopCovariances, LoopWeights, WavefrontsInLoop};
use crate::correction::shared_mirrors::{SharedOptions, viewed};
use crate::correction::{Correction, Fitting, Mirror};
use crate::device::Engine;
use crate::error::{Error, Invalid};
use crate::linear::factorisation::unit;
use crate::linear::{times, times_transpose};
use crate::model::control::ControlLoop;
use crate::model::lenslet_array::{Pupil, SlopeOrder};
use crate::model::noise::SlopeNoise;
use crate::model::source::Source;
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::plan::Memory;
use crate::psf::budget::Budget;
use crate::psf::optical_transfer::{Aperture, Edges, TelescopeTransfer};
use crate::psf::options::{CameraOptions, ErrorTerm};
use crate::psf::transforms::{Plane, sum_in_order};
use crate::tomography::covariance_matrix::truth_covariance;
use crate::tomography::noise_error;
use crate::tomography::reconstructor::ReconstructorPlan;
use crate::tomography::reconstructor::command::StrokeSum;
use crate::watch::{Watch, WithinStage, check};
use ndarray::{Array1, Array2, Axis, Zip};
use num_complex::Complex64;
use std::ops::Range;

// Points of the pupil
/// Smallest numbers of points per pitch of the mirror and across the pupil.
const PER_PITCH: f64 = 3.0;
const ACROSS: f64 = 24.0;

/// The pupil on squares that belong to it if their centre is lit, or the mean light in each square of a mask.
pub(crate) fn sampled_aperture(
    image: &CameraOptions,
    pupil: &Pupil,
    samples: usize,
    step: f64,
) -> Result<Aperture, Invalid> {
    match &image.mask {
        Some(mask) => mask.resampled(samples, step),
        None => Aperture::new(pupil, &image.vanes, samples, step, Edges::Centre),
    }
}

/// Side of the squares at whose centres a pupil is sampled, for a mirror of this `pitch` \[m\].
pub(crate) fn sample_step(diameter: f64, pitch: f64) -> f64 {
    (diameter / ACROSS).min(pitch / PER_PITCH)
}

// Points of a pupil on a grid
// Points of a pupil with their light
/// Points of a pupil on a grid around its axis.
struct Points {
    telescope: TelescopeTransfer,
    plane: Plane,
    grid: PhaseGrid,
    step: f64,
    /// Row and column of each lit point, and its share of the light.
    lit: Vec<[usize; 2]>,
    share: Array1<f64>,
    /// Transform of the light.
    light: Array2<Complex64>,
    squares: f64,
}

impl Points {
    fn across(system: &System, image: &CameraOptions, pitch: f64) -> Result<Self, Error> {
        let expected = "a [telescope], whose images are wanted";
        let pupil = system.pupil().ok_or_else(|| Invalid::new("telescope", "none", expected))?;
        let samples = Self::count(pupil.diameter(), pitch);
        let step = pupil.diameter() / samples as f64;
        let aperture = sampled_aperture(image, pupil, samples, step)?;
        let (telescope, plane) = (aperture.transfer(2 * samples)?, Plane::around(2 * samples - 1));
        // Light at the points of a pupil
        let bright = aperture.light().indexed_iter().filter(|(_, light)| **light > 0.0);
        let (lit, light): (Vec<_>, Vec<f64>) = bright.map(|((j, i), x)| ([j, i], *x)).unzip();
        let squares: f64 = light.iter().sum();
        let share = Array1::from(light) / squares;
        let light = plane.spectrum(&aperture.light().view());
        let grid = PhaseGrid::new(samples, 1, 0.0)?;
        Ok(Self { telescope, plane, grid, step, lit, share, light, squares })
    }

    /// Points along an axis.
    fn count(diameter: f64, pitch: f64) -> usize {
        (diameter / sample_step(diameter, pitch) * (1.0 - 1e-12)).ceil() as usize
    }

    // Places and maps of points
    /// Positions of the lit points, m.
    fn positions(&self) -> Vec<[f64; 2]> {
        self.lit.iter().map(|[j, i]| [*i, *j].map(|k| self.grid.coordinate(k, self.step))).collect()
    }

    /// The transform of values at the lit points, times the light.
    fn transform(&self, values: impl Iterator<Item = f64>) -> Array2<Complex64> {
        let across = self.grid.points;
        let mut map = Array2::zeros((across, across));
        for ((place, value), share) in self.lit.iter().zip(values).zip(&self.share) {
            map[*place] = value * share * self.squares;
        }
        self.plane.spectrum(&map.view())
    }

    // Means over the points of the pupil
    /// Shapes, (P, a), without their means over the pupil.
    fn flattened(&self, mut shapes: Array2<f64>) -> Array2<f64> {
        let pistons = self.share.dot(&shapes);
        shapes -= &pistons;
        shapes
    }

    /// The mean over the pupil of the sum over columns of products of two matrices, (P, a).
    fn product(&self, one: &Array2<f64>, other: &Array2<f64>) -> f64 {
        let rows = one.outer_iter().zip(other.outer_iter());
        rows.zip(&self.share).map(|((one, other), share)| share * one.dot(&other)).sum()
    }

    /// The mean variance over the pupil of shapes, (P, a), with strokes of this covariance, (a, a).
    fn variance(&self, shapes: &Array2<f64>, strokes: &Array2<f64>) -> f64 {
        self.product(&times(shapes, strokes), shapes)
    }
}

// Fit of the mirror to wavefronts
/// Influence functions of the actuators of some mirrors at points of the pupil, towards a target, (points, a).
pub(crate) fn shapes_towards(
    mirrors: &[Mirror],
    target: &Source,
    points: &[[f64; 2]],
) -> Array2<f64> {
    let count = mirrors.iter().map(|mirror| mirror.positions().len()).sum();
    let mut shapes = Array2::zeros((points.len(), count));
    for (mut row, point) in shapes.outer_iter_mut().zip(points) {
        let actuators = mirrors.iter().flat_map(|mirror| {
            let [x, y] = target.project(*point, mirror.altitude());
            let places = mirror.positions().iter().enumerate();
            places.map(move |(k, place)| mirror.influence_of(k, [x - place[0], y - place[1]]))
        });
        row.iter_mut().zip(actuators).for_each(|(to, height)| *to = height);
    }
    shapes
}

// Fit of a mirror to coarse turbulence
/// Fit of a mirror in the pupil to slopes of coarse turbulence.
struct Fit {
    /// Its shapes at the points, without piston, (P, b).
    shapes: Array2<f64>,
    /// J⁺ of the truth sensor's slopes, (b, m).
    onto: Array2<f64>,
    /// J⁺ C^L_tt J⁺ᵗ, (b, b), m².
    strokes: Array2<f64>,
    /// D_φ on the displacements of the points, m².
    turbulence: Array2<f64>,
    /// The variance of the fitting error, m².
    fitting: f64,
}

// Compute the fit of a mirror
impl Fit {
    fn new(
        correction: &Correction,
        (points, low): (&Points, &LowTurbulence),
        (engine, watch): (&Engine, &dyn Watch),
    ) -> Result<Self, Error> {
        let (system, mirror) = (correction.system(), correction.pupil_mirror());
        let onto = correction.pupil(engine)?.inverse().clone();
        let positions = points.positions();
        let shapes = shapes_towards(std::slice::from_ref(mirror), &system.targets()[0], &positions);
        let shapes = points.flattened(shapes);
        let strokes = through(&onto, &low.truth(watch)?);
        let between = low_wavefront(system, mirror.fitting_pitch(), &positions)?;
        let with_strokes = times_transpose(&between, &onto);
        let turbulence = points.telescope.turbulence(system.atmosphere());
        let fitting = points.telescope.variance(&turbulence)?
            - 2.0 * points.product(&with_strokes, &shapes)
            + points.variance(&shapes, &strokes);
        Ok(Self { shapes, onto, strokes, turbulence, fitting })
    }
}

// Strokes of a command in the loop
// Command with the moments of its strokes
/// A command with the covariances of its strokes, (a, a), m².
struct CommandMoments {
    /// K, (a, n).
    rows: Array2<f64>,
    /// V of Eq. [residual moments](https://lenslet.github.io/lenslet/residual-wavefront.html#eq-residual-moments).
    strokes: Array2<f64>,
    /// Of coarse turbulence at one instant, of fine turbulence at one instant, of the change by the loop, and of noise.
    coarse: Array2<f64>,
    fine: Array2<f64>,
    late: Array2<f64>,
    noise: Array2<f64>,
}

// Covariance of strokes from slopes
/// K C Kᵗ.
fn through(rows: &Array2<f64>, covariance: &Array2<f64>) -> Array2<f64> {
    times_transpose(&times_transpose(rows, covariance), rows)
}

/// Moments of all commands of a correction, and the covariances due to coarse turbulence of the commands for single directions.
fn moments_of(
    (correction, weights, low): (&Correction, &LoopWeights, &LowTurbulence),
    (commands, alone): (Vec<Array2<f64>>, &[Array2<f64>]),
    (engine, watch): (&Engine, &dyn Watch),
) -> Result<(Vec<CommandMoments>, Vec<Array2<f64>>), Error> {
    let system = correction.system();
    let slopes = LoopCovariances::new(system, weights, engine, watch)?;
    let present: Vec<_> = commands.iter().map(|rows| through(rows, &slopes.present)).collect();
    let late: Option<Vec<_>> = slopes.late.as_ref().map(|[crossed, filtered]| {
        commands.iter().map(|rows| [crossed, filtered].map(|c| through(rows, c))).collect()
    });
    drop(slopes);
    check(watch)?;
    let low = low.measurements(watch)?;
    let order = SlopeOrder::new(&system.valid_lenslets());
    let noise = SlopeNoise::new(system.guide_stars(), &order);
    // Join the moments of each command
    let join = |(k, rows): (usize, Array2<f64>)| {
        let noise = noise_error(&rows, &noise) * weights.noise_gain;
        let (coarse, present) = (through(&rows, &low), &present[k]);
        let (filtered, late) = match late.as_ref().map(|late| &late[k]) {
            None => (present.clone(), Array2::zeros(present.dim())),
            Some([crossed, filtered]) => (filtered.clone(), present + filtered - crossed),
        };
        CommandMoments {
            strokes: filtered + &noise,
            fine: present - &coarse,
            coarse,
            late,
            noise,
            rows,
        }
    };
    let alone = alone.iter().map(|rows| through(rows, &low)).collect();
    Ok((commands.into_iter().enumerate().map(join).collect(), alone))
}

// Residual wavefronts of all targets
// Options of residual wavefronts
/// Options of residual wavefronts.
pub(crate) struct ResidualOptions<'a> {
    pub(crate) image: &'a CameraOptions,
    pub(crate) control: Option<&'a ControlLoop>,
    /// Number of targets, from the first on, that have their own mirrors.
    pub(crate) mirrors: usize,
    /// Whether anisoplanatism is a term separate from tomography.
    pub(crate) apart: bool,
}

// Command for some directions
/// Command of the mirrors that is optimised for some directions.
struct CommandShape {
    /// Indices of these directions, with weights.
    chosen: Vec<(usize, f64)>,
    moments: CommandMoments,
    /// Tomographic variance in these directions, m², if requested: the weighted mean, each behind its own mirror.
    own: Option<f64>,
}

/// The residual wavefronts of the targets of a correction.
pub(crate) struct ResidualWavefronts<'a> {
    correction: &'a Correction,
    weights: LoopWeights,
    points: Points,
    low: LowTurbulence<'a>,
    fit: Fit,
    wavefronts: WavefrontsInLoop<'a>,
    shapes: Vec<CommandShape>,
}

// Limits of residual wavefronts
/// Points per block of covariances with all slopes.
const SOME: usize = 1024;

/// Steps of the stage of the covariances through the loop: tables of coarse turbulence, the fit of the mirror, tables of wavefronts, and
/// moments of the commands, which follow the reconstructor.
const STEPS: usize = 4;

// Construct the residual wavefronts
impl<'a> ResidualWavefronts<'a> {
    /// Residual wavefronts behind the mirrors of a correction, whose strokes follow from the plan of a reconstructor of its system.
    ///
    /// # Errors
    /// As for [`Correction::shared`] and [`LoopCovariances::new`].
    pub(crate) fn new(
        correction: &'a Correction,
        plan: &ReconstructorPlan,
        options: &ResidualOptions,
        to: (&Engine, &dyn Watch),
    ) -> Result<Self, Error> {
        let (system, pitch) = (correction.system(), correction.pupil_mirror().fitting_pitch());
        let points = Points::across(system, options.image, pitch)?;
        // Weights of exposures in the loop
        let finest = system.sensors().iter().map(|sensor| sensor.side()).fold(pitch, f64::min);
        let weights = options.control.map_or_else(LoopWeights::at_once, |control| {
            LoopWeights::new(control, system.atmosphere(), MOST_MOTION * finest)
        });
        let (engine, watch) = to;
        correction.pupil(engine)?;
        // Announce the steps of the covariances
        let step = |number: usize| {
            watch.stage(LOOP, "");
            watch.part("step", number, STEPS);
            WithinStage(watch)
        };
        // Tabulate turbulence and fit the mirror
        let low = LowTurbulence::new(system, pitch, &step(0))?;
        let fit = Fit::new(correction, (&points, &low), (engine, &step(1)))?;
        let reach = 0.5_f64.sqrt() * points.step * points.grid.points as f64;
        let wavefronts = WavefrontsInLoop::new(system, reach, &weights, &step(2))?;
        let shapes = Vec::new();
        let residuals = Self { correction, weights, points, low, fit, wavefronts, shapes };
        residuals.shaped(plan, options, to)
    }

    // Compute the commands of all residual shapes
    /// Adds the commands of all shapes, with the directions for which they are optimised.
    fn shaped(
        mut self,
        plan: &ReconstructorPlan,
        ResidualOptions { mirrors, apart, .. }: &ResidualOptions,
        to: (&Engine, &dyn Watch),
    ) -> Result<Self, Error> {
        let (correction, mirrors, own) = (self.correction, *mirrors, *apart);
        // Sums of shapes and of single directions
        let asked = SharedOptions::default().own(own).mirrors(mirrors);
        let onto = correction.pupil(to.0)?.inverse().view();
        let truth = unit(&truth_covariance(correction.system(), to.1)?);
        let chosen = correction.chosen(asked);
        let own = correction.own_sums(&chosen, asked);
        let sums = correction.sums(&chosen, to.0)?;
        let alone = |t: &usize| vec![(*t, onto)];
        let sums: Vec<StrokeSum> = sums.iter().map(viewed).chain(own.iter().map(alone)).collect();
        let commands = plan.commands(&sums, truth, to)?;
        let mut commands: Vec<_> = commands.into_iter().map(|command| command.rows).collect();
        let alone = commands.split_off(chosen.len());
        to.1.stage(LOOP, "");
        to.1.part("step", STEPS - 1, STEPS);
        let (posed, within) = ((correction, &self.weights, &self.low), WithinStage(to.1));
        let (moments, coarse) = moments_of(posed, (commands, &alone), (to.0, &within))?;
        // Evaluate each shape in its own directions
        let mut errors = Vec::new();
        for (t, command) in own.iter().zip(alone.iter().zip(&coarse)) {
            errors.push((*t, self.tomographic(*t, command, &self.fit.shapes, to.1)?));
        }
        for (chosen, moments) in chosen.into_iter().zip(moments) {
            let (mut sum, mut whole) = (0.0, 0.0);
            for (t, weight) in chosen.iter().filter(|_| *apart) {
                let error = match errors.iter().find(|(known, _)| known == t) {
                    Some((_, error)) => *error,
                    None => {
                        let command = (&moments.rows, &moments.coarse);
                        self.tomographic(*t, command, &self.fit.shapes, to.1)?
                    }
                };
                (sum, whole) = (sum + weight * error, whole + weight);
            }
            self.shapes.push(CommandShape { chosen, moments, own: apart.then_some(sum / whole) });
        }
        Ok(self)
    }

    // Tomographic variance of a command
    /// Variance over the pupil of the tomographic term towards a target, m², behind mirrors with these shapes without piston, (P, a).
    fn tomographic(
        &self,
        t: usize,
        (rows, coarse): (&Array2<f64>, &Array2<f64>),
        shapes: &Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<f64, Error> {
        let between = self.low.with_truth(t..t + 1, watch)?;
        let crossed = times(&self.fit.onto, &times_transpose(&between, rows));
        let own = self.points.variance(&self.fit.shapes, &self.fit.strokes);
        let common = self.points.product(&times(&self.fit.shapes, &crossed), shapes);
        Ok(own - 2.0 * common + self.points.variance(shapes, coarse))
    }
}

// Motion between combined frames
/// How far layers may move between frames of the distant past that share their weights, in lenslets.
const MOST_MOTION: f64 = 0.2;

// Residual wavefront of one target
// Residual with its variances by cause
/// The residual wavefront towards a target.
pub(crate) struct Residual {
    /// D_ψ of Eq. [residual structure](https://lenslet.github.io/lenslet/residual-wavefront.html#eq-residual-structure) on the displacements of the camera, m².
    pub(crate) structure: Array2<f64>,
    /// The variance over the pupil by its causes, m², with a signed term for their covariances.
    terms: Vec<(&'static str, f64)>,
}

/// Name of the covariances of the other terms.
const COVARIANCE: &str = "covariance";

impl ResidualWavefronts<'_> {
    // Compute the residual of one target
    /// The residual wavefront of a target, for a camera with the displacements of `telescope`.
    ///
    /// # Errors
    /// As for [`low_covariances`](crate::correction::low_covariances).
    pub(crate) fn of(
        &self,
        t: usize,
        telescope: &TelescopeTransfer,
        watch: &dyn Watch,
    ) -> Result<Residual, Error> {
        let (system, points) = (self.correction.system(), &self.points);
        let directions = self.shapes.iter().map(|shape| shape.chosen[0].0);
        let shape = &self.shapes[self.correction.nearest(t, directions)];
        let target = &system.targets()[t];
        let moments = &shape.moments;
        // Structure function behind the nearest command
        let with_strokes = self.with_strokes(target, &moments.rows, watch)?;
        let shapes = points.flattened(shapes_towards(
            self.correction.mirrors(),
            target,
            &points.positions(),
        ));
        let structure =
            points.structure(&self.fit.turbulence, &shapes, &with_strokes, &moments.strokes);
        let whole = points.telescope.variance(&structure)?;
        let terms = self.terms(t, (shape, &shapes), whole, watch)?;
        let structure = self.on_camera(&structure, telescope)?;
        Ok(Residual { structure, terms })
    }

    // Covariance of a wavefront with strokes
    /// Y of Eq. [residual moments](https://lenslet.github.io/lenslet/residual-wavefront.html#eq-residual-moments) for a target and the rows of a command, (P, a), m²; in blocks of points, so that the covariances with all slopes occupy little memory.
    fn with_strokes(
        &self,
        target: &Source,
        rows: &Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let positions = self.points.positions();
        let mut all = Array2::zeros((positions.len(), rows.nrows()));
        for (some, mut to) in positions.chunks(SOME).zip(all.axis_chunks_iter_mut(Axis(0), SOME)) {
            check(watch)?;
            to.assign(&times_transpose(&self.wavefronts.at(target, some), rows));
        }
        Ok(all)
    }

    // Split the variance of a residual
    /// The `whole` variance by its causes, Eq. [split](https://lenslet.github.io/lenslet/residual-terms.html#eq-split).
    fn terms(
        &self,
        t: usize,
        (shape, shapes): (&CommandShape, &Array2<f64>),
        whole: f64,
        watch: &dyn Watch,
    ) -> Result<Vec<(&'static str, f64)>, Error> {
        let CommandShape { chosen, moments, own } = shape;
        // Tomographic variance behind a command
        let for_it = chosen.len() == 1 && chosen[0].0 == t && self.correction.is_in_pupil();
        let tomography = match own.filter(|_| for_it) {
            Some(own) => own,
            None => self.tomographic(t, (&moments.rows, &moments.coarse), shapes, watch)?,
        };
        let made = |strokes: &Array2<f64>| self.points.variance(shapes, strokes);
        let [aliasing, noise, late] = [&moments.fine, &moments.noise, &moments.late].map(made);
        let alone = tomography + aliasing + noise + late + self.fit.fitting;
        let here = own.unwrap_or(tomography);
        // List the variances by cause
        let mut terms = vec![("tomography", here)];
        terms.extend(own.map(|own| (ErrorTerm::Anisoplanatism.name(), tomography - own)));
        terms.extend([("noise", noise), ("aliasing", aliasing)]);
        if !self.weights.is_at_once() {
            terms.push(("bandwidth", late));
        }
        terms.extend([("fitting", self.fit.fitting), (COVARIANCE, whole - alone)]);
        Ok(terms)
    }

    // Residual on the displacements of a camera
    /// Interpolates a structure function from the displacements of the points to those of a camera.
    fn on_camera(
        &self,
        structure: &Array2<f64>,
        telescope: &TelescopeTransfer,
    ) -> Result<Array2<f64>, Error> {
        let (air, pitch) =
            (self.correction.system().atmosphere(), self.correction.pupil_mirror().fitting_pitch());
        let (own, fitting) = (&self.points.telescope, Fitting::new(air, pitch)?);
        let known =
            |grid: &TelescopeTransfer| fitting.structure_function(grid.points(), grid.step());
        let weighed = (structure - &known(own)?) * own.values();
        let mut fine = known(telescope)?;
        let (middle, scale) = ((own.points() / 2) as f64, telescope.step() / own.step());
        let centre = telescope.points() / 2;
        Zip::indexed(&mut fine).and(telescope.values()).par_for_each(|(j, i), value, &overlap| {
            let place = [j, i].map(|k| middle + (k as f64 - centre as f64) * scale);
            let [sum, pairs] = [&weighed, own.values()].map(|map| cubic(map, place));
            *value = match overlap > 0.0 && pairs > 1e-4 {
                true => (*value + sum / pairs).max(0.0),
                false => *value,
            };
        });
        Ok(fine)
    }
}

// Budget of a residual
impl Residual {
    /// The budget of its terms.
    pub(crate) fn budget(&self) -> Result<Budget, Invalid> {
        let nothing = Ok(Budget::default());
        self.terms.iter().fold(nothing, |sum, (name, value)| sum?.with_signed(name, *value))
    }
}

// Structure function of a residual
impl Points {
    /// D_ψ of Eq. [residual structure](https://lenslet.github.io/lenslet/residual-wavefront.html#eq-residual-structure) on the displacements of the points, m²; 0 where there are no pairs.
    fn structure(
        &self,
        turbulence: &Array2<f64>,
        shapes: &Array2<f64>,
        with_strokes: &Array2<f64>,
        strokes: &Array2<f64>,
    ) -> Array2<f64> {
        let pairs = times(shapes, strokes) - &(2.0 * with_strokes);
        let products = (&pairs * shapes).sum_axis(Axis(1));
        let all = self.transform(products.into_iter());
        let mut spectrum = Zip::from(&self.light)
            .and(&all)
            .map_collect(|light, all| 2.0 * (light.conj() * all).re);
        // Subtract the correlations of all actuators
        let correlations = |actuators: Range<usize>| {
            let mut sum = Array2::<f64>::zeros(spectrum.dim());
            for a in actuators {
                let [pair, shape] =
                    [&pairs, shapes].map(|all| self.transform(all.column(a).iter().copied()));
                Zip::from(&mut sum).and(&pair).and(&shape).for_each(|sum, pair, shape| {
                    *sum += 2.0 * (pair.conj() * shape).re;
                });
            }
            sum
        };
        let correlations = sum_in_order(0..shapes.ncols(), 8, &correlations, &|a, b| a + b);
        spectrum -= &correlations;
        // Divide sums over pairs by their number
        let reach = self.telescope.reach;
        let sums = self.plane.correlation(&spectrum, reach, self.telescope.points());
        let mut structure = Array2::zeros(sums.dim());
        Zip::from(&mut structure).and(&sums).and(turbulence).and(self.telescope.values()).for_each(
            |value, sum, turbulence, overlap| {
                if overlap * self.squares > 0.5 {
                    *value = turbulence + sum / (overlap * self.squares);
                }
            },
        );
        let middle = self.telescope.points() / 2;
        structure[[middle, middle]] = 0.0;
        structure
    }
}

// Memory of residual wavefronts
// Interpolate a map by cubics
/// Value of a map between its points, by the cubic through four of them along each axis; points outside the map count as 0.
fn cubic(map: &Array2<f64>, [y, x]: [f64; 2]) -> f64 {
    let along = |x: f64| {
        let (first, t) = (x.floor() as isize - 1, x - x.floor());
        let (a, b, c, d) = (t + 1.0, t, t - 1.0, t - 2.0);
        (first, [-b * c * d / 6.0, a * c * d / 2.0, -a * b * d / 2.0, a * b * c / 6.0])
    };
    let ((top, down), (left, across)) = (along(y), along(x));
    let at = |j: isize, i: isize| {
        let place = [top + j, left + i].map(usize::try_from);
        match place {
            [Ok(j), Ok(i)] => map.get([j, i]).copied().unwrap_or(0.0),
            _ => 0.0,
        }
    };
    let row = |j: isize| (0..4).map(|i| across[i as usize] * at(j, i)).sum::<f64>();
    (0..4).map(|j| down[j as usize] * row(j)).sum()
}

impl ResidualWavefronts<'_> {
    // Time of residual wavefronts
    /// Seconds that a thread takes for residual wavefronts, by the built-in rates.
    pub(crate) fn seconds(correction: &Correction, control: Option<&ControlLoop>) -> f64 {
        const NUMBER: f64 = 3e-7;
        const LOOK_UP: f64 = 5e-8;
        const PRODUCT: f64 = 1.5e-10;
        let (system, mirror) = (correction.system(), correction.pupil_mirror());
        let diameter = system.pupil().map_or(0.0, Pupil::diameter);
        let points = Points::count(diameter, mirror.fitting_pitch()).pow(2) as f64;
        let n = SlopeOrder::new(&system.valid_lenslets()).len() as f64;
        let layers = system.atmosphere().layers().len() as f64;
        let times = control.map_or(1, |control| control.impulse_response().len().min(64)) as f64;
        let finest = system.sensors().iter().map(|s| s.side()).fold(diameter, f64::min);
        let table = (16.0 * diameter / finest).powi(2) * layers * times * NUMBER;
        let targets = correction.targets() as f64;
        let actuators = mirror.positions().len() as f64;
        let matrices = if control.is_some() { 4.0 } else { 2.0 };
        table + LOOK_UP * targets * points * n * layers + PRODUCT * matrices * actuators * n * n
    }

    /// Upper limit of the memory for residual wavefronts, without the commands of the mirrors.
    pub(crate) fn bytes(correction: &Correction) -> u64 {
        let (system, mirror) = (correction.system(), correction.pupil_mirror());
        let diameter = system.pupil().map_or(0.0, Pupil::diameter);
        let all = (Points::count(diameter, mirror.fitting_pitch()) as u64).saturating_pow(2);
        let n = SlopeOrder::new(&system.valid_lenslets()).len();
        let b = mirror.positions().len();
        let a: usize = correction.mirrors().iter().map(|mirror| mirror.positions().len()).sum();
        let [n, a, b] = [n, a, b].map(|count| count as u64);
        let numbers = 5 * n * n + 2 * SOME as u64 * n + all * (4 * a + 4 * b) + 8 * (a * a + b * b);
        8u64.saturating_mul(numbers).saturating_add(Memory::REST)
    }
}

// Tests of residual wavefronts
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::{CorrectionMode, CorrectionOptions};
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::{Atmosphere, GuideStar, Layer, LensletArray, LoopKind, Pupil};
    use crate::tomography::ReconstructorOptions;
    use crate::watch::unwatched;
    use std::f64::consts::PI;

    // Interpolate maps between their points
    #[test]
    fn maps_between_points_are_cubic() {
        let of = |y: f64, x: f64| 1.0 + x - 0.3 * y * x + 0.02 * x.powi(3) - 0.01 * y.powi(3) * x;
        let map = Array2::from_shape_fn((9, 9), |(j, i)| of(j as f64, i as f64));
        for place in [[3.2, 4.7], [1.0, 6.0], [6.99, 1.01]] {
            assert!((cubic(&map, place) - of(place[0], place[1])).abs() < 1e-12);
        }
        assert_eq!(cubic(&map, [-3.5, 4.0]), 0.0);
    }

    // Residuals with known answers
    /// A star on the axis of a telescope of 3 m with 6 × 6 lenslets, a layer at 5 km, and a target.
    fn single(speed: f64, noise: f64, zenith: f64) -> System {
        let layer = Layer { wind_speed: speed, ..Layer::new(5e3, 1.0, 20.0) };
        let array = LensletArray::new(6, 0.5).unwrap();
        let star = |x: f64| Source::star(x.abs(), if x < 0.0 { PI } else { 0.0 }).unwrap();
        System::builder(Atmosphere::new(0.16, 500e-9, vec![layer]).unwrap(), array)
            .pupil(Some(Pupil::new(3.0, 0.0).unwrap()))
            .guide_stars([GuideStar::at_rest(star(0.0), array, noise).unwrap()])
            .targets([star(zenith)])
            .build()
            .unwrap()
    }

    fn residual(system: &System, control: Option<ControlLoop>) -> Vec<(&'static str, f64)> {
        let mirrors =
            vec![MirrorDesign { filter: 0.02, ..MirrorDesign::new(Spacing::Actuators(7)) }];
        let options = CorrectionOptions::new(CorrectionMode::Scao, mirrors);
        let correction = Correction::new(system, &options).unwrap();
        let asked = ReconstructorOptions::default();
        let plan = ReconstructorPlan::new(correction.system(), asked).unwrap();
        let (image, cores) = (CameraOptions::default(), Engine::default());
        let control = control.as_ref();
        let wanted = ResidualOptions { image: &image, control, mirrors: 1, apart: true };
        let residuals =
            ResidualWavefronts::new(&correction, &plan, &wanted, (&cores, &unwatched)).unwrap();
        let telescope = residuals.points.telescope.clone();
        residuals.of(0, &telescope, &unwatched).unwrap().terms
    }

    fn term(terms: &[(&'static str, f64)], name: &str) -> f64 {
        terms.iter().find(|(known, _)| *known == name).map_or(f64::NAN, |(_, value)| *value)
    }

    #[test]
    fn residuals_have_their_known_limits() {
        let whole = |terms: &[(&str, f64)]| terms.iter().map(|(_, value)| value).sum::<f64>();
        let still = residual(&single(0.0, 1e-14, 0.0), None);
        let fitting = Fitting::new(single(0.0, 1e-14, 0.0).atmosphere(), 0.5).unwrap().variance();
        let share = term(&still, "fitting") / fitting;
        assert!((1.0..1.6).contains(&share), "{share}");
        assert!(
            term(&still, "tomography") < 0.05 * fitting && term(&still, "anisoplanatism") == 0.0
        );
        assert!(term(&still, "aliasing") > 0.15 * fitting && term(&still, "bandwidth").is_nan());
        // In still air the loop changes the noise alone.
        let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.5, delay: 2.0 };
        let looped = residual(&single(0.0, 1e-14, 0.0), Some(control));
        let gap = whole(&still) - term(&still, "noise") - whole(&looped) + term(&looped, "noise");
        assert!(gap.abs() < 1e-9 * fitting && term(&looped, "bandwidth").abs() < 1e-12 * fitting);
        assert!((term(&looped, "noise") / term(&still, "noise") / 0.6 - 1.0).abs() < 1e-3);
        // The wind blows along x: 10 ms later and at 20 m/s, the target 40 µrad downwind sees what the star saw.
        let open = ControlLoop { kind: LoopKind::Open, rate: 2e3, gain: 1.0, delay: 20.0 };
        let downwind = residual(&single(20.0, 1e-14, 40e-6), Some(open));
        let gap = whole(&downwind) / whole(&still) - 1.0;
        assert!(gap.abs() < 0.01, "{gap}");
        let upwind = residual(&single(20.0, 1e-14, -40e-6), Some(open));
        assert!(whole(&upwind) > 3.0 * whole(&downwind));
        assert!(term(&upwind, COVARIANCE) > 0.0 && term(&downwind, COVARIANCE) < 0.0);
    }
}
