// Tangled from book/src/block-covariances.md: edit there, or here and run cargo tangle stitch.
//! Plans of covariances in blocks.

// Imports of plans in blocks
use super::{
    BlocksPlan, CovariancePlan, ENTRY_OF_WAVEFRONT, GroupWavefrontSlopes, PIECES, SLOPES,
    SlopeCovariancePlan, WAVEFRONT, WavefrontCovariancePlan, by_points, check_finite, sensors_of,
    slope_cross_covariance,
};
use crate::device::{CostKind, engine::Engine};
use crate::error::Error;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::system::System;
use crate::plan::Memory;
use crate::turbulence::blocks::{
    CrossBlocks, LatticeGroups, between_name, slopes_name, unstructured_name, wavefront_name,
    wavefront_unstructured_name,
};
use crate::turbulence::cost_model::{among, time_of_slopes};
use crate::turbulence::cross_covariance;
use crate::turbulence::slope::SlopeProblem;
use crate::turbulence::wavefront::WavefrontProblem;
use crate::watch::{StageParts, Watch};

// Steps of a plan in blocks
impl BlocksPlan {
    // Make the problems of all groups
    /// Poses the covariances of a system, those of wavefronts if it is `with_wavefronts`.
    ///
    /// # Errors
    /// `Invalid` as in [`SlopeProblem::of_sensors`].
    pub(super) fn new(system: &System, with_wavefronts: bool) -> Result<Self, Error> {
        let (sensors, order) = (system.sensors(), SlopeOrder::new(&system.valid_lenslets()));
        let sets = LatticeGroups::new(&system.groups(), &order);
        let (air, gradient) = (system.atmosphere(), system.cone_gradient());
        let slopes = |set| SlopeProblem::of_sensors(air, &sets.pick(set, &sensors), gradient);
        let slopes = (0..sets.lattices()).map(slopes).collect::<Result<Vec<_>, _>>()?;
        let grid = system.wavefront_grid().ok().filter(|_| with_wavefronts);
        let wavefront = |set| {
            let sensors = sets.pick(set, &sensors);
            let on_grid = sensors[0].array.pitch() == system.wavefront_pitch();
            let targets = (system.targets(), sensors.as_slice());
            let pose = |grid| WavefrontProblem::of_sensors(air, targets, grid, gradient).ok();
            let grid = grid.filter(|_| on_grid && Some(set) != sets.unstructured());
            grid.and_then(pose).map(WavefrontCovariancePlan::direct)
        };
        let wavefront = grid.map_or(Vec::new(), |_| sets.all().map(wavefront).collect());
        let points = grid.map_or(0, |grid| grid.points.pow(2) * system.targets().len());
        let slopes = slopes.into_iter().map(SlopeCovariancePlan::direct).collect();
        let layers = air.layers().len();
        Ok(Self { sets, slopes, wavefront, layers, points })
    }
    // Count the entries without a lattice
    /// Numbers in the rectangles of slopes, and in those of wavefronts and slopes.
    pub(crate) fn entries(&self) -> [u64; 2] {
        let slopes = |set| self.sets.slopes(set) as u64;
        let between =
            self.sets.pairs().into_iter().map(|pair| pair.map(slopes).iter().product::<u64>());
        let unstructured = self.sets.unstructured().map_or(0, |set| slopes(set).pow(2));
        let dense = self.wavefront.iter().enumerate().filter(|(_, plan)| plan.is_none());
        let wavefronts = dense.map(|(set, _)| self.points as u64 * slopes(set)).sum();
        [between.sum::<u64>() + unstructured, wavefronts]
    }

    /// Bytes of all results.
    pub(crate) fn result_bytes(&self) -> u64 {
        let slopes: u64 = self.slopes.iter().map(SlopeCovariancePlan::result_bytes).sum();
        let wavefront = self.wavefront.iter().flatten().map(WavefrontCovariancePlan::result_bytes);
        slopes + wavefront.sum::<u64>() + 8 * self.entries().iter().sum::<u64>()
    }
    // Work and memory of a plan in blocks
    /// The working memory of each of its stages.
    pub(crate) fn working(&self, system: &System, engine: &Engine) -> Vec<Memory> {
        let mut stages: Vec<Memory> = self.slopes.iter().map(|plan| plan.working(engine)).collect();
        stages.extend(self.wavefront.iter().flatten().map(|plan| plan.working(engine)));
        let devices = CovariancePlan::dense_on_devices(system, engine);
        stages.push(Memory { host: 0, devices });
        stages
    }

    // Work and time in blocks
    /// Seconds of one thread for slopes of lattices, and for wavefronts and slopes.
    pub(super) fn work(&self) -> [Vec<(CostKind, f64)>; 2] {
        let slopes = self.slopes.iter().map(SlopeCovariancePlan::work).collect();
        let wavefront = self.wavefront.iter().flatten().map(WavefrontCovariancePlan::work);
        let [_, dense] = self.entries().map(|entries| entries as f64 * self.layers as f64);
        let dense = (CostKind::Integrals, dense * ENTRY_OF_WAVEFRONT);
        [slopes, wavefront.chain([dense]).collect()]
    }

    /// Seconds for the slopes of sensors of different groups, and of the unstructured ones.
    pub(super) fn time_between(&self, system: &System, engine: &Engine) -> f64 {
        let (sensors, sets) = (sensors_of(system), self.sets.of_sensors());
        let mut pairs = among(&sensors);
        pairs.retain(|pair| {
            let [p, q] = pair.map(|cost| sets[cost.number]);
            p != q || Some(p) == self.sets.unstructured()
        });
        time_of_slopes(SLOPES, system, &pairs, engine).seconds
    }
    // Names and shapes of arrays in blocks
    /// Names and shapes of the results.
    pub(super) fn arrays(&self, system: &System) -> Vec<(String, Vec<usize>)> {
        let mut arrays = Vec::new();
        for (set, plan) in self.slopes.iter().enumerate() {
            let (stars, lags) = (plan.problem.sources(), plan.problem.lags());
            arrays.push((slopes_name(set), vec![stars, stars, 2, 2, lags, lags]));
        }
        let slopes = |set| self.sets.slopes(set);
        arrays.extend(
            self.sets.unstructured().map(|set| (unstructured_name(set), vec![slopes(set); 2])),
        );
        let between = |pair: [usize; 2]| (between_name(pair), pair.map(slopes).to_vec());
        arrays.extend(self.sets.pairs().into_iter().map(between));
        // Name wavefronts with each set
        for (set, plan) in self.wavefront.iter().enumerate() {
            match plan {
                Some(plan) => {
                    let problem = &plan.problem;
                    for (k, layers) in problem.lattices().enumerate() {
                        let lags = problem.lags(&layers[0]);
                        let shape = vec![problem.targets(), problem.stars(), 2, lags, lags];
                        let name = wavefront_name(problem.is_layered(), set, k);
                        arrays.push((name, shape));
                    }
                }
                None => {
                    let (targets, grid) = (system.targets().len(), system.phase());
                    let points = grid.map_or(0, |grid| grid.points);
                    let shape = vec![targets, points, points, slopes(set)];
                    arrays.push((wavefront_unstructured_name(set), shape));
                }
            }
        }
        arrays
    }
    // Compute the rectangles of slopes
    // Watch one part of the slopes
    /// Watches one of the parts in which slopes are computed: the lattices, and at last what has none.
    pub(crate) fn part<'a>(&self, number: usize, whole: &'a dyn Watch) -> StageParts<'a> {
        StageParts { whole, what: "set of stars", number, count: self.slopes.len() + 1 }
    }

    /// Covariances of slopes that have no lattice.
    ///
    /// # Errors
    /// `Memory` if they do not fit; `Cancelled` if the watcher cancels; errors of a device.
    pub(crate) fn rectangles(
        &self,
        system: &System,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<CrossBlocks, Error> {
        watch.stage(SLOPES, PIECES);
        let (sensors, valid) = (system.sensors(), system.valid_lenslets());
        let (air, gradient) = (system.atmosphere(), system.cone_gradient());
        let of = |set| (self.sets.pick(set, &sensors), self.sets.pick(set, &valid));
        // Unstructured slopes among themselves
        let unstructured = self.sets.unstructured().map(|set| {
            let (sensors, valid) = of(set);
            let matrix =
                cross_covariance::slope_covariance(air, &sensors, &valid, gradient, watch)?;
            check_finite(&unstructured_name(set), &matrix).map(|()| matrix)
        });
        // Slopes of two lattice groups
        let between = |pair: [usize; 2]| {
            let [first, second] = pair.map(of);
            let sets = [(&*first.0, &*first.1), (&*second.0, &*second.1)];
            let between = slope_cross_covariance(air, sets, gradient, engine, watch)?;
            check_finite(&between_name(pair), &between).map(|()| between)
        };
        let between = self.sets.pairs().into_iter().map(between).collect::<Result<_, Error>>()?;
        Ok(CrossBlocks {
            sets: self.sets.clone(),
            unstructured: unstructured.transpose()?,
            between,
        })
    }
    // Compute wavefronts with each group
    /// The covariances of the wavefronts with the slopes of each group.
    ///
    /// # Errors
    /// As for the slopes.
    pub(crate) fn wavefronts(
        &self,
        system: &System,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Vec<GroupWavefrontSlopes>, Error> {
        let (sensors, valid) = (system.sensors(), system.valid_lenslets());
        let of_set = |(set, plan): (usize, &Option<WavefrontCovariancePlan>)| {
            let (number, count) = (set, self.wavefront.len());
            let watch = &StageParts { whole: watch, what: "set of stars", number, count };
            if let Some(plan) = plan {
                let covariance = plan.compute(engine, watch)?;
                return Ok(GroupWavefrontSlopes::Toeplitz(plan.problem.clone(), covariance));
            }
            // Dense wavefronts of a group
            watch.stage(WAVEFRONT, PIECES);
            let grid = system.wavefront_grid()?;
            let wavefronts = (system.targets(), grid, system.wavefront_pitch());
            let (sensors, valid) = (self.sets.pick(set, &sensors), self.sets.pick(set, &valid));
            let (air, gradient) = (system.atmosphere(), system.cone_gradient());
            let matrix = cross_covariance::wavefront_slope(
                air, wavefronts, &sensors, &valid, gradient, watch,
            )?;
            check_finite(&wavefront_unstructured_name(set), &matrix)?;
            Ok(GroupWavefrontSlopes::Dense(by_points(matrix, system.targets().len(), grid.points)))
        };
        self.wavefront.iter().enumerate().map(of_set).collect()
    }
}

// Tests of plans in blocks
#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::turbulence::plan::{
        CovarianceOptions, Covariances, Form, Method, SlopeSlope, WavefrontSlopes,
    };
    use crate::watch::unwatched;
    use ndarray::Array2;

    /// A laser star of 5 × 5 lenslets between natural ones of 2 × 2 and 3 × 3, one of them turned.
    fn mixed() -> System {
        let text = "atmosphere = { r0 = 0.15, outer_scale = 25, layers = [\
               { altitude = 0, fraction = 0.6 }, { altitude = 9000, fraction = 0.4 }] }\n\
             telescope = { diameter = 3.0, obstruction = 0.2 }\n\
             lenslet_array = { lenslets = 5 }\n\
             phase = { points = 4 }\n\
             guide_star = [{ zenith = 20, lenslets = 2 }, { zenith = 10, azimuth = 100, height = 90e3 },\
               { zenith = 30, azimuth = 220, lenslets = 3, rotation = 10 }]\n\
             target = [{ zenith = 3 }, { zenith = 7, azimuth = 40 }]\n";
        System::from_toml(text, "mixed.toml").unwrap()
    }

    fn planned(system: &System, form: Form) -> CovariancePlan {
        CovariancePlan::new(system, CovarianceOptions::default().form(form)).unwrap()
    }

    // Find blocks in dense matrices
    #[test]
    fn blocks_are_those_of_dense_matrices() {
        let system = mixed();
        let run = |form| planned(&system, form).run(&Engine::default(), &unwatched).unwrap();
        let (dense, blocks) = (run(Form::Dense), run(Form::Blocks));
        let SlopeSlope::Dense(matrix) = &dense.slope_slope else { panic!("not dense") };
        let Covariances { slope_slope: SlopeSlope::Blocks(lattices, rectangles), .. } = &blocks
        else {
            panic!("not in blocks")
        };
        let sets = &rectangles.sets;
        let part = |rows: usize, columns: usize| {
            let places = [rows, columns].map(|set| sets.places(set).into_iter().flatten());
            let [rows, columns] = places.map(|places| places.collect::<Vec<_>>());
            Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| {
                matrix[[rows[i], columns[j]]]
            })
        };
        // Compare every block
        let close = |one: &Array2<f64>, other: &Array2<f64>| {
            let worst = (one - other).iter().fold(0.0, |most, error| f64::max(most, error.abs()));
            assert!(one.dim() == other.dim() && worst < 1e-11 * matrix[[0, 0]], "{worst:e}");
        };
        let order = SlopeOrder::new(&sets.pick(0, &system.valid_lenslets()));
        close(&lattices[0].dense(&order), &part(0, 0));
        close(rectangles.unstructured.as_ref().unwrap(), &part(1, 1));
        close(&rectangles.between[0], &part(0, 1));
        assert!((blocks.slope_slope.variance() / matrix[[0, 0]] - 1.0).abs() < 1e-11);
        let Some(WavefrontSlopes::Blocks(of_sets)) = &blocks.wavefront_slope else {
            panic!("no blocks")
        };
        let (Some(WavefrontSlopes::Dense(all)), GroupWavefrontSlopes::Dense(unstructured)) =
            (&dense.wavefront_slope, &of_sets[1])
        else {
            panic!("not dense")
        };
        for (k, place) in sets.places(1).into_iter().flatten().enumerate() {
            let [one, other] = [
                unstructured.index_axis(ndarray::Axis(3), k),
                all.index_axis(ndarray::Axis(3), place),
            ];
            let largest = all.iter().fold(0.0, |most, value| f64::max(most, value.abs()));
            assert!((&one - &other).iter().all(|error| error.abs() < 1e-11 * largest));
        }
        // Tell the same names and shapes
        let description = planned(&system, Form::Blocks).describe(&Engine::default()).unwrap();
        let arrays = blocks.to_data_set(&system);
        let results = arrays.shapes();
        for (name, shape) in &description.arrays {
            assert!(
                results.contains(&(name.clone(), shape.clone())),
                "{name} {shape:?} {results:?}"
            );
        }
        assert_eq!((description.form, description.arrays.len()), ("blocks", 7));
    }
    // Choose blocks for many slopes
    #[test]
    fn many_slopes_are_taken_in_blocks() {
        let system = System::from_file("book/systems/elt-mixed.toml").unwrap();
        let plan = planned(&system, Form::Auto);
        let description = plan.describe(&Engine::default()).unwrap();
        assert!(
            description.form == "blocks"
                && description.reason.contains("guide_star[6] has 2 lenslets"),
            "{description:?}"
        );
        assert!(description.memory.host < 1 << 30, "{:?}", description.memory);
        let unstructured = plan.blocks().and_then(|blocks| blocks.sets.unstructured());
        assert_eq!(unstructured, Some(1));
        assert_eq!(planned(&mixed(), Form::Auto).form(), "dense");
        // Refuse what has no blocks
        let refused = |options: CovarianceOptions, system: &System| {
            let error: Error = CovariancePlan::new(system, options).unwrap_err();
            error.to_string()
        };
        let options = CovarianceOptions::default().form(Form::Blocks);
        let spectral = refused(options.method(Method::Spectral(None)), &system);
        assert!(spectral.contains("toeplitz form alone"), "{spectral}");
        let builder = mixed().to_builder().slope_model(crate::model::SlopeModel::EdgeMidpoint);
        let midpoints = refused(options.slopes_only(), &builder.targets([]).build().unwrap());
        assert!(midpoints.contains("no form of blocks"), "{midpoints}");
    }
}
