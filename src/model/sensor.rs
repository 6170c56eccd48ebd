// Tangled from book/src/sensors.md: edit there, or here and run cargo tangle stitch.
//! Sensors: lenslet arrays that are rotated, shifted and magnified on the pupil, and their footprints on layers.

use crate::{
    error::{Error, Invalid, accept},
    model::lenslet_array::LensletArray,
    model::source::Source,
    plausible::SHIFT,
    units::DEGREE,
};

// A sensor on the pupil
/// Wavefront sensor of a source: a lenslet array that is magnified, rotated and shifted on the pupil, [sensor point](https://lenslet.github.io/lenslet/sensors.html#eq-sensor-point).
///
/// ```
/// use lenslet::model::{LensletArray, Sensor, Source};
/// use lenslet::units::{ARCSEC, DEGREE};
/// let star = |azimuth: f64| Source::new(20.0 * ARCSEC, azimuth * DEGREE, 90e3);
/// let rest = Sensor::at_rest(star(0.0)?, LensletArray::new(8, 0.5)?);
/// let first = Sensor { rotation: 8.0 * DEGREE, shift: [0.3, -0.2], magnification: 1.05, ..rest };
/// let near = |[x, y]: [f64; 2], [a, b]: [f64; 2]| (x - a).abs() < 6e-5 && (y - b).abs() < 6e-5;
/// assert!(near(first.axes()[0], [0.9903, 0.1392]));
/// assert!(near(rest.centre([0, 7]).map(|x| 1.05 * x), [1.8375, -1.8375]));
/// assert!(near(first.centre([0, 7]), [2.0753 + 0.3, -1.5639 - 0.2])); // (2.3753, −1.7639)
/// let footprint = first.footprint([0, 7], 10e3);
/// assert!(near(footprint.centre, [2.1114 + 0.9696, -1.5679])); // (3.0810, −1.5679)
/// assert!((footprint.side - 0.467).abs() < 5e-4);
/// let second = Sensor { source: star(90.0)?, shift: [0.35, -0.2], ..first };
/// assert!(first.shares_lattice_with(&second));
/// assert!(near(first.source.shift_to(&second.source, 10e3), [-0.9696, 0.9696]));
/// assert!(near(first.offset_to(&second, 10e3), [-0.7812, 1.0890])); // of (−0.9252, 0.9696)
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensor {
    /// Direction and height of the source that it measures.
    pub source: Source,
    /// Lenslet array at rest.
    pub array: LensletArray,
    /// The angle by which the array and its slope axes are rotated about the centre of the pupil, from x to y \[rad\].
    pub rotation: f64,
    /// The shift of the array on the pupil \[m\], along x and y of the pupil.
    pub shift: [f64; 2],
    /// The factor by which the array is magnified on the pupil, about the centre of the pupil.
    pub magnification: f64,
}

// Methods of a sensor
impl Sensor {
    // Make a sensor at rest
    /// A sensor at rest: centred, neither rotated nor magnified.
    ///
    /// ```
    /// use lenslet::model::{LensletArray, Sensor, Source};
    /// let rest = Sensor::at_rest(Source::star(1e-4, 0.0)?, LensletArray::new(8, 0.5)?);
    /// let turned = Sensor { rotation: std::f64::consts::FRAC_PI_2, shift: [0.1, 0.0], ..rest };
    /// assert_eq!(rest.centre([0, 7]), [1.75, -1.75]);
    /// let [x, y] = turned.centre([0, 7]);
    /// assert!((x - 1.85).abs() < 1e-15 && (y - 1.75).abs() < 1e-15);
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn at_rest(source: Source, array: LensletArray) -> Self {
        Self { source, array, rotation: 0.0, shift: [0.0; 2], magnification: 1.0 }
    }

    // Check the ranges of a sensor
    /// Rejects a rotation of more than a full turn, a shift of more than a kilometre, and a magnification outside of 0.1 to 10.
    pub fn check(&self) -> Result<(), Invalid> {
        let turn = self.rotation.abs() <= 360.0 * DEGREE;
        accept(turn, "rotation", self.rotation, "an angle from -360 to 360 degrees")?;
        for (axis, shift) in self.shift.into_iter().enumerate() {
            SHIFT.check(&format!("shift[{axis}]"), shift)?;
        }
        let (magnification, expected) = (self.magnification, "a factor from 0.1 to 10");
        let good = (0.1..=10.0).contains(&magnification);
        accept(good, "magnification", magnification, expected).map(|_| ())
    }

    // Lenslets of a sensor on the pupil
    /// The centre of lenslet `[j, i]` on the pupil \[m\], [sensor point](https://lenslet.github.io/lenslet/sensors.html#eq-sensor-point).
    pub fn centre(&self, [j, i]: [usize; 2]) -> [f64; 2] {
        let [x, y] = [i, j].map(|k| self.magnification * self.array.centre(k));
        let (sin, cos) = self.rotation.sin_cos();
        [cos * x - sin * y + self.shift[0], sin * x + cos * y + self.shift[1]]
    }

    /// The corners of the whole array on the pupil \[m\], counterclockwise.
    pub fn outline(&self) -> [[f64; 2]; 4] {
        let (width, axes) = (self.array.lenslets() as f64 * self.side(), self.axes());
        Footprint { centre: self.shift, side: width, axes }.corners()
    }

    /// The side of a lenslet on the pupil \[m\].
    pub fn side(&self) -> f64 {
        self.magnification * self.array.pitch()
    }

    /// The directions of the slopes: that of the x slope (cos α, sin α), then that of the y slope (−sin α, cos α).
    pub fn axes(&self) -> [[f64; 2]; 2] {
        let (sin, cos) = self.rotation.sin_cos();
        [[cos, sin], [-sin, cos]]
    }

    // Footprint of a lenslet on a layer
    /// Footprint of lenslet `[j, i]` on a layer at `altitude` \[m\].
    pub fn footprint(&self, lenslet: [usize; 2], altitude: f64) -> Footprint {
        Footprint {
            centre: self.source.project(self.centre(lenslet), altitude),
            side: self.source.cone_factor(altitude) * self.side(),
            axes: self.axes(),
        }
    }

    // Compare a sensor with another
    /// Whether the sensor is centred and neither rotated nor magnified.
    pub fn is_at_rest(&self) -> bool {
        *self == Self::at_rest(self.source, self.array)
    }

    /// Whether the slopes of both have a covariance that depends on displacements alone, [sensor shift](https://lenslet.github.io/lenslet/sensors.html#eq-sensor-shift): heights, arrays,
    /// rotations and magnifications are equal. Directions and shifts need not be.
    pub fn shares_lattice_with(&self, other: &Self) -> bool {
        self.source.height() == other.source.height()
            && self.array == other.array
            && self.rotation == other.rotation
            && self.magnification == other.magnification
    }

    /// Displacement of the footprints of `second` relative to those of this sensor on a layer at `altitude` \[m\], along the axes of the sensors
    /// \[m\]; both share a lattice. [sensor shift](https://lenslet.github.io/lenslet/sensors.html#eq-sensor-shift) with ρ = 0.
    pub fn offset_to(&self, second: &Self, altitude: f64) -> [f64; 2] {
        let gamma = self.source.cone_factor(altitude);
        let by_direction = self.source.shift_to(&second.source, altitude);
        let offset = [0, 1].map(|k| by_direction[k] + gamma * (second.shift[k] - self.shift[k]));
        self.axes().map(|axis| axis[0] * offset[0] + axis[1] * offset[1])
    }

    // Reason for unequal lattices
    /// Reason why this sensor, the first, shares no lattice with the one of index `number`.
    fn reason_against(&self, second: &Self, number: usize) -> String {
        if self.array != second.array {
            let arrays =
                [self, second].map(|sensor| (sensor.array.lenslets(), sensor.array.pitch()));
            let [(n, pitch), (other_n, other_pitch)] = arrays;
            return format!(
                "guide_star[0] has {n} lenslets of {pitch} m and guide_star[{number}] has {other_n} lenslets of \
                 {other_pitch} m; arrays of unequal pitch share no lattice of displacements: expected equal arrays"
            );
        }
        let [height, other] = [self, second].map(|sensor| sensor.source.height());
        if height != other {
            return format!(
                "guide_star[0].height is {height} m and guide_star[{number}].height is {other} m; sources at unequal \
                 heights see footprints of unequal size on a layer, and their covariance depends on more \
                 than a displacement: expected equal heights"
            );
        }
        // Report unequal rotations and magnifications
        let words = |sensor: &Self| {
            format!(
                "{} degrees and magnified {} times",
                sensor.rotation / DEGREE,
                sensor.magnification
            )
        };
        format!(
            "guide_star[0] is turned by {} and guide_star[{number}] is turned by {}; footprints that are turned or magnified \
             against each other share no lattice of displacements: expected equal rotations and magnifications",
            words(self),
            words(second)
        )
    }
}

// A lenslet on a layer
/// Footprint of one lenslet on a layer: a square that may be rotated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Footprint {
    /// Its centre on the layer \[m\], [footprint centre](https://lenslet.github.io/lenslet/sensors.html#eq-footprint-centre).
    pub centre: [f64; 2],
    /// Its side \[m\].
    pub side: f64,
    /// The directions of its sides, x first.
    pub axes: [[f64; 2]; 2],
}

impl Footprint {
    /// The four corners \[m\], counterclockwise from the one with the least coordinates along both axes.
    pub fn corners(&self) -> [[f64; 2]; 4] {
        let half = 0.5 * self.side;
        [[-half, -half], [half, -half], [half, half], [-half, half]].map(|[a, b]| {
            [0, 1].map(|k| self.centre[k] + a * self.axes[0][k] + b * self.axes[1][k])
        })
    }
}

// Groups of sensors that share a lattice
/// Groups of sensors that share a lattice, in the order of the first sensor of each group.
///
/// ```
/// use lenslet::model::{Groups, LensletArray, Sensor, Source};
/// let array = LensletArray::new(8, 0.5)?;
/// let laser = Sensor::at_rest(Source::new(1e-4, 0.0, 90e3)?, array);
/// let star = Sensor::at_rest(Source::star(0.0, 0.0)?, array);
/// let groups = Groups::new(&[laser, star, Sensor { shift: [0.05, 0.0], ..laser }]);
/// assert_eq!(groups.members().collect::<Vec<_>>(), [&[0, 2][..], &[1]]);
/// assert_eq!(groups.place(2), (0, 1));
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    members: Vec<Vec<usize>>,
    places: Vec<(usize, usize)>,
}

impl Groups {
    // Gather sensors by their lattices
    /// Gathers the sensors that share a lattice.
    pub fn new(sensors: &[Sensor]) -> Self {
        let (mut members, mut places) = (Vec::<Vec<usize>>::new(), Vec::new());
        for (k, sensor) in sensors.iter().enumerate() {
            let shares = |group: &Vec<usize>| sensor.shares_lattice_with(&sensors[group[0]]);
            let group = members.iter().position(shares).unwrap_or(members.len());
            if group == members.len() {
                members.push(Vec::new());
            }
            places.push((group, members[group].len()));
            members[group].push(k);
        }
        Self { members, places }
    }

    // Look up the groups of sensors
    /// Number of groups.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no sensor.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The numbers of the sensors of each group, ascending.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.members.iter().map(Vec::as_slice)
    }

    /// The group of a sensor, and the position of the sensor in it.
    pub fn place(&self, sensor: usize) -> (usize, usize) {
        self.places[sensor]
    }

    // Reject sensors without a common lattice
    /// The first of several sensors that all share one lattice.
    ///
    /// # Errors
    /// `NotToeplitz` where they do not, with the reason; `Invalid` where there is no sensor.
    pub fn single(sensors: &[Sensor]) -> Result<Sensor, Error> {
        let groups = Self::new(sensors);
        let first =
            *sensors.first().ok_or_else(|| Invalid::new("guide stars", 0, "at least one"))?;
        let Some(&[other, ..]) = groups.members().nth(1) else { return Ok(first) };
        Err(Error::NotToeplitz { reason: first.reason_against(&sensors[other], other) })
    }
}

// Check sensors that are turned
#[cfg(test)]
mod tests {
    use super::*;

    /// Two lenslets across, 1 m each, seen from 20 km; doubled, turned by 30° and shifted.
    fn turned() -> Sensor {
        let source = Source::new(1e-3, 90.0 * DEGREE, 20e3).unwrap();
        let rest = Sensor::at_rest(source, LensletArray::new(2, 1.0).unwrap());
        Sensor { rotation: 30.0 * DEGREE, shift: [3.0, -1.0], magnification: 2.0, ..rest }
    }

    fn assert_near(points: &[[f64; 2]], expected: &[[f64; 2]]) {
        for (point, expected) in points.iter().zip(expected) {
            let distance = (point[0] - expected[0]).hypot(point[1] - expected[1]);
            assert!(distance < 1e-12, "{points:?}, not {expected:?}");
        }
    }

    // Check places footprints and offsets
    #[test]
    fn a_turned_lenslet_is_where_a_drawing_has_it() {
        let sensor = turned();
        let (c, s) = (0.75f64.sqrt(), 0.5);
        assert_near(&[sensor.centre([1, 0])], &[[3.0 - c - s, -1.0 + c - s]]);
        let footprint = sensor.footprint([1, 0], 10e3);
        assert!((footprint.side - 1.0).abs() < 1e-12 && sensor.side() == 2.0);
        let corners = [[-2.0, 0.0], [0.0, 0.0], [0.0, 2.0], [-2.0, 2.0]];
        let place =
            |[x, y]: [f64; 2]| [(3.0 + c * x - s * y) / 2.0, 10.0 + (-1.0 + s * x + c * y) / 2.0];
        assert_near(&footprint.corners(), &corners.map(place));
        assert_near(&footprint.axes, &[[c, s], [-s, c]]);
    }

    // Check offsets between two footprints
    #[test]
    fn an_offset_takes_one_footprint_to_the_other() {
        let first = turned();
        let source = Source::new(2e-3, 0.3, 20e3).unwrap();
        let second = Sensor { source, shift: [-0.7, 0.2], ..first };
        let [along, across] = first.offset_to(&second, 8e3);
        for lenslet in [[0, 0], [1, 0]] {
            let [from, to] = [first, second].map(|sensor| sensor.footprint(lenslet, 8e3));
            let [x, y] = from.axes;
            let moved = [0, 1].map(|k| from.centre[k] + along * x[k] + across * y[k]);
            assert_near(&[moved], &[to.centre]);
        }
    }

    // Check groups and refusals of sensors
    #[test]
    fn lattices_are_shared_by_equals_that_may_be_shifted() {
        let first = turned();
        let others = [
            Sensor { shift: [0.0, 0.5], ..first },
            Sensor { rotation: 0.1, ..first },
            Sensor { magnification: 1.01, ..first },
            Sensor { source: Source::new(1e-3, 0.0, 21e3).unwrap(), ..first },
            Sensor { array: LensletArray::new(3, 1.0).unwrap(), ..first },
            Sensor { source: Source::new(0.0, 0.0, 20e3).unwrap(), ..first },
        ];
        let shared = others.map(|other| first.shares_lattice_with(&other));
        assert_eq!(shared, [true, false, false, false, false, true]);
        let groups = Groups::new(&others);
        assert_eq!((groups.len(), groups.is_empty(), groups.place(5)), (5, false, (0, 1)));
        assert!(!first.is_at_rest() && Sensor::at_rest(first.source, first.array).is_at_rest());
        let reason =
            |other: usize| Groups::single(&[first, others[other]]).unwrap_err().to_string();
        let words =
            ["turned by", "magnified 1.01 times", "height is 21000 m", "has 3 lenslets of 1 m"];
        for (k, words) in words.into_iter().enumerate() {
            assert!(reason(k + 1).contains(words), "{}", reason(k + 1));
        }
        assert_eq!(Groups::single(&[first, others[0]]).unwrap(), first);
        assert!(matches!(Groups::single(&[]), Err(Error::Invalid(_))));
    }

    // Check that bad sensors are refused
    #[test]
    fn bad_sensors_are_refused_by_name() {
        let (good, nan) = (turned(), f64::NAN);
        let name = |sensor: Sensor| sensor.check().unwrap_err().quantity;
        assert!(good.check().is_ok());
        assert_eq!(name(Sensor { rotation: 7.0, ..good }), "rotation");
        assert_eq!(name(Sensor { rotation: nan, ..good }), "rotation");
        assert_eq!(name(Sensor { shift: [0.0, nan], ..good }), "shift[1]");
        assert_eq!(name(Sensor { shift: [-1e4, 0.0], ..good }), "shift[0]");
        assert_eq!(name(Sensor { magnification: 0.0, ..good }), "magnification");
        assert_eq!(name(Sensor { magnification: nan, ..good }), "magnification");
    }
}
