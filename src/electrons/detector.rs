// Tangled from book/src/electron-detectors.md: edit there, or here and run cargo tangle stitch.
//! What detectors read of a wave.
pub(crate) mod gpu;

// Imports of detectors
use super::beam::{Beam, kept_frequencies};
use super::wave_grid::WaveGrid;
use crate::error::{Invalid, accept, finite, positive};
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView2};
use num_complex::Complex;
use std::{f64::consts::PI, ops::Range, sync::OnceLock};

// Bins of angles
/// The number of a ring, Eq. [detector bin](https://lenslet.github.io/lenslet/electron-detectors.html#eq-detector-bin), for an angle and a width.
fn ring(angle: f64, width: f64) -> usize {
    ((angle + width / 2.0) / width).round() as usize - 1
}

/// Number of rings of a width up to the angle `widest`.
pub(crate) fn rings(widest: f64, width: f64) -> usize {
    let middle = |k: usize| width / 2.0 + k as f64 * width;
    let about = (widest / width) as usize;
    (0..about + 2).rev().find(|&k| middle(k) <= widest - width / 2.0).map_or(0, |k| k + 1)
}

// What is asked of detectors
/// Detectors that read the pattern of each probe.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct DetectorOptions {
    /// Width of a ring \[mrad\].
    pub bin: f64,
    /// Number of rings; `None` for all complete ones.
    pub rings: Option<usize>,
    /// Annuli.
    pub annuli: Vec<Annulus>,
    /// Segmented detectors.
    pub segmented: Vec<Segmented>,
    /// Whether the first moments are read, for the centre of mass.
    pub centre_of_mass: bool,
    /// Whether the pattern itself is kept, and how.
    pub pattern: Option<PatternOptions>,
}

impl Default for DetectorOptions {
    /// Rings of 1 mrad.
    fn default() -> Self {
        let (annuli, segmented) = (Vec::new(), Vec::new());
        let (rings, pattern) = (None, None);
        Self { bin: 1.0, rings, annuli, segmented, centre_of_mass: false, pattern }
    }
}

// Detectors one by one
impl DetectorOptions {
    /// Sets the width of a ring \[mrad\].
    pub fn bin(self, bin: f64) -> Self {
        Self { bin, ..self }
    }

    /// Sets the number of rings, instead of all complete ones.
    pub fn rings(self, rings: usize) -> Self {
        Self { rings: Some(rings), ..self }
    }

    /// Sets the annuli.
    pub fn annuli(self, annuli: Vec<Annulus>) -> Self {
        Self { annuli, ..self }
    }

    /// Sets the segmented detectors.
    pub fn segmented(self, segmented: Vec<Segmented>) -> Self {
        Self { segmented, ..self }
    }

    /// Sets whether the first moments are read, for the centre of mass.
    pub fn centre_of_mass(self, centre_of_mass: bool) -> Self {
        Self { centre_of_mass, ..self }
    }

    /// Keeps the pattern itself.
    pub fn pattern(self, pattern: PatternOptions) -> Self {
        Self { pattern: Some(pattern), ..self }
    }
}

// Shapes of detectors
/// An annulus \[mrad\].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Annulus {
    /// Its inner angle, which belongs to it.
    pub inner: f64,
    /// Its outer angle, which does not.
    pub outer: f64,
    /// Whether it is judged by the angle of each frequency; else it consists of whole rings.
    #[cfg_attr(feature = "serde", serde(default))]
    pub exact: bool,
}

/// An annulus cut into equal sectors, judged by the angle of each frequency.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Segmented {
    /// Its inner angle \[mrad\], which belongs to it.
    pub inner: f64,
    /// Its outer angle \[mrad\], which does not.
    pub outer: f64,
    /// Number of sectors.
    pub sectors: usize,
    /// Azimuth at which the first sector begins \[rad\], from x to y.
    #[cfg_attr(feature = "serde", serde(default))]
    pub rotation: f64,
}

/// How patterns are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct PatternOptions {
    /// Frequencies whose angle along x or along y is larger \[mrad\] are left out.
    pub crop: Option<f64>,
    /// Frequencies along each axis that are added into one.
    pub bin: usize,
}

// Options of patterns one by one
impl Default for PatternOptions {
    /// All frequencies that waves keep, each by itself.
    fn default() -> Self {
        Self { crop: None, bin: 1 }
    }
}

impl PatternOptions {
    /// Leaves out frequencies whose angle along x or along y is larger \[mrad\].
    pub fn crop(self, crop: f64) -> Self {
        Self { crop: Some(crop), ..self }
    }

    /// Adds so many frequencies along each axis into one.
    pub fn bin(self, bin: usize) -> Self {
        Self { bin, ..self }
    }
}

// Detectors on a grid
/// Detectors for the waves on one grid.
///
/// ```
/// use lenslet::electrons::{Aberrations, Beam, DetectorOptions, Detectors, Probe, WaveGrid};
/// let (grid, beam) = (WaveGrid::new([128, 128], [12.0, 12.0])?, Beam::new(100.0)?);
/// let (aberrations, tilt) = (Aberrations::default(), [0.0; 2]);
/// let probe = Probe { beam, semi_angle: 20.0, aberrations, tilt }.wave(&grid)?;
/// let detectors = Detectors::new(grid, &beam, DetectorOptions::default())?;
/// let read = detectors.read(probe.at::<f64>(&[[1.0, 2.0]]).outer_iter().next().unwrap());
/// assert!((beam.wavelength() - 0.0370).abs() < 1e-4);
/// assert!((beam.angle(2.67) - 98.7).abs() < 0.2 && (beam.angle(5.0 / 12.0) - 15.4).abs() < 0.1);
/// assert!((20.0 + beam.angle(0.5 / 12.0) - 21.5).abs() < 0.1); // the end of the soft edge
/// assert_eq!(detectors.rings(), 98);
/// assert!((read.rings[..22].iter().sum::<f64>() - 1.0).abs() < 1e-12);
/// assert!(read.lost().abs() < 1e-12);
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct Detectors {
    options: DetectorOptions,
    widest: f64,
    /// Frequencies \[1/Å\] along x and y.
    frequencies: [Vec<f64>; 2],
    layout: ReadingLayout,
    wavelength: f64,
    areas: OnceLock<Areas>,
    pattern: Option<Pattern>,
}

// Areas of detectors among frequencies
/// Where the detectors are among the frequencies.
#[derive(Debug, Clone)]
struct Areas {
    /// The ring of each frequency (k_y, k_x), or `rings` for a corner.
    ring_of: Vec<u32>,
    annuli: Vec<AnnulusArea>,
    segmented: Vec<Vec<Vec<u32>>>,
}

/// Where an annulus is.
#[derive(Debug, Clone)]
enum AnnulusArea {
    Rings(Range<usize>),
    Frequencies(Vec<u32>),
}

// Steps of reading a wave
impl Detectors {
    // Place detectors on a grid
    /// The detectors for waves of a beam on a grid.
    ///
    /// # Errors
    /// `Invalid` where a width, an angle or a number makes no sense, where not even one ring fits into the kept frequencies, or where an annulus reaches beyond what they hold.
    pub fn new(grid: WaveGrid, beam: &Beam, options: DetectorOptions) -> Result<Self, Invalid> {
        let frequencies = kept_frequencies(&grid);
        let half = |axis: usize| (grid.points()[axis] / 4) as f64 / grid.lengths()[axis];
        let widest = beam.angle(half(0).min(half(1)));
        let rings = checked_rings(&options, widest)?;
        let pattern = options.pattern.map(|asked| Pattern::new(&grid, beam, asked)).transpose()?;
        let (wavelength, areas) = (beam.wavelength(), OnceLock::new());
        let bins =
            pattern.as_ref().map_or(0, |pattern| pattern.axes[0].len() * pattern.axes[1].len());
        let layout = ReadingLayout::new(&options, rings, bins);
        Ok(Self { options, widest, frequencies, layout, wavelength, areas, pattern })
    }

    // Find the areas of detectors
    /// Where the detectors are, found at the first call.
    fn areas(&self) -> &Areas {
        self.areas.get_or_init(|| {
            let ([x, y], options) = (&self.frequencies, &self.options);
            let places: Vec<[f64; 2]> = y
                .iter()
                .flat_map(|y| x.iter().map(|x| [*x, *y]))
                .map(|q| q.map(|q| 1e3 * q * self.wavelength))
                .collect();
            let ring_of =
                |[x, y]: &[f64; 2]| ring(x.hypot(*y), options.bin).min(self.rings()) as u32;
            let ring_of = places.iter().map(ring_of).collect();
            let annuli = options.annuli.iter().map(|annulus| annulus.area(&places, options.bin));
            let (annuli, segmented) =
                (annuli.collect(), options.segmented.iter().map(|s| s.sectors(&places)).collect());
            Areas { ring_of, annuli, segmented }
        })
    }

    // Getters of detectors
    /// Number of rings.
    pub fn rings(&self) -> usize {
        self.layout.rings.len()
    }

    /// Positions of each detector's numbers in a row of readings.
    pub fn layout(&self) -> &ReadingLayout {
        &self.layout
    }

    /// How many numbers they read of a wave.
    pub fn values(&self) -> usize {
        self.layout.values()
    }

    /// The angle of half of the highest frequency \[mrad\], the smaller one of both axes.
    pub fn widest(&self) -> f64 {
        self.widest
    }

    /// The options of the detectors.
    pub fn options(&self) -> &DetectorOptions {
        &self.options
    }

    /// The middles \[mrad\] of the rings.
    pub fn middles(&self) -> Vec<f64> {
        (0..self.rings()).map(|k| (k as f64 + 0.5) * self.options.bin).collect()
    }

    /// Which rings annulus `k` consists of, unless it is an exact one.
    pub(super) fn rings_of(&self, k: usize) -> Option<Range<usize>> {
        let annulus = &self.options.annuli[k];
        (!annulus.exact).then(|| annulus.rings(self.options.bin))
    }

    /// Frequencies \[1/Å\] of a pattern along x and y, if patterns are kept.
    pub fn pattern_axes(&self) -> Option<[&[f64]; 2]> {
        self.pattern.as_ref().map(|pattern| [&pattern.axes[0][..], &pattern.axes[1][..]])
    }

    // Read one wave
    /// Reads a wave (k_y, k_x), kept frequencies in their order.
    ///
    /// # Panics
    /// Where the wave is of another grid.
    pub fn read<T: Real>(&self, wave: ArrayView2<'_, Complex<T>>) -> Reading {
        let [x, y] = &self.frequencies;
        assert_eq!(wave.dim(), (y.len(), x.len()), "a wave on the grid of the detectors");
        let mut intensity = Vec::with_capacity(wave.len());
        intensity.extend(wave.iter().map(|a| a.norm_sqr().in_double()));
        let mut rings = vec![0.0; self.rings() + 1];
        let areas = self.areas();
        for (ring, i) in areas.ring_of.iter().zip(&intensity) {
            rings[*ring as usize] += i;
        }
        let corners = rings.pop().unwrap_or(0.0);
        // Electrons in each annulus
        let sum = |area: &Vec<u32>| area.iter().map(|&k| intensity[k as usize]).sum();
        let annuli = areas.annuli.iter().map(|area| match area {
            AnnulusArea::Rings(range) => rings[range.clone()].iter().sum(),
            AnnulusArea::Frequencies(list) => sum(list),
        });
        let annuli = annuli.collect();
        let segmented = areas.segmented.iter().map(|s| s.iter().map(sum).collect()).collect();
        let total = intensity.iter().sum();
        let moments = self.options.centre_of_mass.then(|| self.moments(&intensity));
        let pattern = self.pattern.as_ref().map(|pattern| pattern.of(&intensity));
        Reading { rings, corners, total, annuli, segmented, moments, pattern }
    }

    // First moments of an intensity
    /// Sums of the frequency \[1/Å\] times the intensity.
    fn moments(&self, intensity: &[f64]) -> [f64; 2] {
        let [x, y] = &self.frequencies;
        let mut moments = [0.0; 2];
        for (line, y) in intensity.chunks_exact(x.len()).zip(y) {
            moments[0] += line.iter().zip(x).map(|(i, x)| i * x).sum::<f64>();
            moments[1] += y * line.iter().sum::<f64>();
        }
        moments
    }
}

// Frequencies of an annulus
impl Annulus {
    /// Its rings, or which of the `places` \[mrad\] it holds. A slack of 1e-9 of a ring is for the rounding of an angle such as 0.3.
    fn area(&self, places: &[[f64; 2]], width: f64) -> AnnulusArea {
        if self.exact {
            return AnnulusArea::Frequencies(within(places, self.inner, self.outer).collect());
        }
        AnnulusArea::Rings(self.rings(width))
    }

    /// Its rings.
    fn rings(&self, width: f64) -> Range<usize> {
        let [first, end] = [self.inner, self.outer].map(|a| (a / width + 1e-9) as usize);
        first..end
    }
}

/// The numbers of the places \[mrad\] between two angles.
fn within(places: &[[f64; 2]], inner: f64, outer: f64) -> impl Iterator<Item = u32> {
    let numbered = (0u32..).zip(places);
    let good = move |&(_, [x, y]): &(u32, &[f64; 2])| (inner..outer).contains(&x.hypot(*y));
    numbered.filter(good).map(|(k, _)| k)
}

// Frequencies of sectors
impl Segmented {
    /// Which of the `places` \[mrad\] each sector holds.
    fn sectors(&self, places: &[[f64; 2]]) -> Vec<Vec<u32>> {
        let mut sectors = vec![Vec::new(); self.sectors];
        for k in within(places, self.inner, self.outer) {
            let [x, y] = places[k as usize];
            let turned = (y.atan2(x) - self.rotation).rem_euclid(2.0 * PI);
            let sector = (turned * self.sectors as f64 / (2.0 * PI)) as usize;
            sectors[sector % self.sectors].push(k);
        }
        sectors
    }
}

// What is read of a wave
/// Readings of all detectors for one wave.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reading {
    /// Electrons in each ring.
    pub rings: Vec<f64>,
    /// Electrons in the corners of the kept square, beyond the last ring.
    pub corners: f64,
    /// Electrons in the whole kept square.
    pub total: f64,
    /// Electrons in each annulus.
    pub annuli: Vec<f64>,
    /// Electrons in each sector of each segmented detector.
    pub segmented: Vec<Vec<f64>>,
    /// Sums of the frequency times the intensity \[1/Å\], x and y, if they are requested.
    pub moments: Option<[f64; 2]>,
    /// The pattern (q_y, q_x), zero frequency in the middle, if it is requested.
    pub pattern: Option<Array2<f64>>,
}

// Lost electrons and the centre of mass
impl Reading {
    /// Share of the electron that has left the kept square: 1 minus the total.
    pub fn lost(&self) -> f64 {
        1.0 - self.total
    }

    /// The centre of mass \[1/Å\], x and y, Eq. [centre of mass](https://lenslet.github.io/lenslet/electron-detectors.html#eq-centre-of-mass), if moments were read and anything was counted.
    pub fn centre_of_mass(&self) -> Option<[f64; 2]> {
        let moments = self.moments.filter(|_| self.total > 0.0)?;
        Some(moments.map(|moment| moment / self.total))
    }
}

// Layout of a row of readings
/// Positions of each detector's numbers in a row of readings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReadingLayout {
    /// The rings, from the inner to the outer.
    pub rings: Range<usize>,
    /// Electrons beyond the last ring.
    pub corners: usize,
    /// All electrons of the kept square.
    pub total: usize,
    /// The annuli, in the order of the options.
    pub annuli: Range<usize>,
    /// The sectors of each segmented detector.
    pub segmented: Vec<Range<usize>>,
    /// The first moments along x and y; empty unless they are read.
    pub moments: Range<usize>,
    /// The pattern, by lines of q_y; empty unless it is kept.
    pub pattern: Range<usize>,
}

impl ReadingLayout {
    // Ranges of a row of readings
    /// The layout for so many rings and so many bins of the pattern.
    fn new(options: &DetectorOptions, rings: usize, bins: usize) -> Self {
        let mut end = 0;
        let mut next = |count: usize| {
            end += count;
            end - count..end
        };
        let (rings, corners, total) = (next(rings), next(1).start, next(1).start);
        let annuli = next(options.annuli.len());
        let segmented = options.segmented.iter().map(|segmented| next(segmented.sectors));
        let segmented = segmented.collect();
        let moments = next(if options.centre_of_mass { 2 } else { 0 });
        Self { rings, corners, total, annuli, segmented, moments, pattern: next(bins) }
    }

    // Numbers of a row
    /// How many numbers a row has.
    pub fn values(&self) -> usize {
        self.pattern.end
    }
}

// A reading as a row
impl Reading {
    /// All numbers in a row, in the order of the [layout](ReadingLayout).
    pub fn into_values(self) -> Vec<f64> {
        let mut values = self.rings;
        values.extend([self.corners, self.total]);
        values.extend(self.annuli);
        values.extend(self.segmented.into_iter().flatten());
        values.extend(self.moments.into_iter().flatten());
        values.extend(self.pattern.into_iter().flatten());
        values
    }
}

// A pattern and its axes
/// How a pattern is laid out.
#[derive(Debug, Clone)]
struct Pattern {
    /// Along x and y: the bin of each kept frequency, if it is in the pattern.
    bins: [Vec<Option<u32>>; 2],
    /// Frequencies \[1/Å\] of the middles of bins.
    axes: [Vec<f64>; 2],
}

impl Pattern {
    // Lay a pattern out
    fn new(grid: &WaveGrid, beam: &Beam, asked: PatternOptions) -> Result<Self, Invalid> {
        accept(asked.bin > 0, "four_d.bin", asked.bin, "at least 1")?;
        if let Some(crop) = asked.crop {
            positive("four_d.crop", crop)?;
        }
        let (size, before) =
            (asked.bin as i64, if asked.bin.is_multiple_of(2) { 0 } else { asked.bin as i64 / 2 });
        let (mut bins, mut axes) = ([vec![], vec![]], [vec![], vec![]]);
        for axis in 0..2 {
            let (half, length) = (grid.points()[axis] as i64 / 2, grid.lengths()[axis]);
            let signed = |k: i64| if k < half / 2 { k } else { k - half };
            let kept = |k: &i64| {
                asked.crop.is_none_or(|crop| beam.angle(*k as f64 / length).abs() <= crop)
            };
            let block = |k: i64| (k + before).div_euclid(size);
            let inside: Vec<i64> = (-half / 2..half / 2).filter(kept).map(block).collect();
            let (first, last) = (inside[0], inside[inside.len() - 1]);
            let bin = |k: i64| kept(&k).then(|| (block(k) - first) as u32);
            bins[axis] = (0..half).map(|k| bin(signed(k))).collect();
            let middle = |block: i64| (block * size - before) as f64 + 0.5 * (size - 1) as f64;
            axes[axis] = (first..=last).map(|block| middle(block) / length).collect();
        }
        Ok(Self { bins, axes })
    }

    // Sum an intensity into bins
    /// The pattern of the intensity (k_y, k_x).
    fn of(&self, intensity: &[f64]) -> Array2<f64> {
        let ([x, y], [bin_x, bin_y]) = (&self.axes, &self.bins);
        let mut pattern = Array2::zeros((y.len(), x.len()));
        for (line, j) in intensity.chunks_exact(bin_x.len()).zip(bin_y) {
            let Some(j) = j else { continue };
            for (a, i) in line.iter().zip(bin_x) {
                if let Some(i) = i {
                    pattern[[*j as usize, *i as usize]] += a;
                }
            }
        }
        pattern
    }
}

// Refuse detectors that make no sense
/// How many rings there are up to the angle `widest`, if all that is asked makes sense.
fn checked_rings(options: &DetectorOptions, widest: f64) -> Result<usize, Invalid> {
    let bin = positive("bin", options.bin)?;
    let good = (1e-6 * widest..=widest).contains(&bin);
    let most = format!("at most {widest:.3} mrad, the angle that the grid keeps");
    accept(good, "bin", bin, &most)?;
    let complete = rings(widest, bin);
    accept(complete > 0, "bin", bin, &most)?;
    let rings = options.rings.unwrap_or(complete);
    let largest = (2.0 * widest / bin) as usize;
    let expected = format!("a number from 1 to {largest}, twice the angle that the grid keeps");
    accept((1..=largest).contains(&rings), "bins", rings, &expected)?;
    let check = |key: &str, inner: f64, outer: f64, widest: f64| {
        let good = inner >= 0.0 && inner < outer;
        let range = || format!("[{inner}, {outer}]");
        accept(good, key, range(), "two angles in mrad, the smaller one first")?;
        let most = format!("angles of at most {widest:.3} mrad, which the grid keeps");
        accept(outer <= widest, key, range(), &most)
    };
    for (k, annulus) in options.annuli.iter().enumerate() {
        let most = if annulus.exact { widest } else { rings as f64 * bin * (1.0 + 1e-12) };
        check(&format!("annuli[{k}]"), annulus.inner, annulus.outer, most)?;
        let share = annulus.outer / bin + 1e-9;
        let whole = annulus.exact || share as usize > (annulus.inner / bin + 1e-9) as usize;
        let expected = "an annulus with at least one ring, or an exact one";
        accept(whole, &format!("annuli[{k}]"), annulus.outer, expected)?;
    }
    for (k, segmented) in options.segmented.iter().enumerate() {
        let key = format!("segmented[{k}]");
        check(&key, segmented.inner, segmented.outer, widest)?;
        let good = (1..=1024).contains(&segmented.sectors);
        accept(good, &format!("{key}.sectors"), segmented.sectors, "a number from 1 to 1024")?;
        finite(&format!("{key}.rotation"), segmented.rotation)?;
    }
    Ok(rings)
}

// Tests of detectors
#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex64;

    // A pattern without symmetry
    fn grid() -> WaveGrid {
        WaveGrid::new([48, 40], [9.0, 6.5]).unwrap()
    }

    fn beam() -> Beam {
        Beam::new(200.0).unwrap()
    }

    /// A wave of norm 0.9 without any symmetry.
    fn wave() -> Array2<Complex64> {
        let a = Array2::from_shape_fn((20, 24), |(j, i)| {
            Complex64::new((0.7 * (i * j) as f64).sin() + 0.2, (1.3 * i as f64 - j as f64).cos())
        });
        let norm: f64 = a.iter().map(Complex64::norm_sqr).sum();
        a * Complex64::from((0.9 / norm).sqrt())
    }

    fn detectors(change: impl FnOnce(&mut DetectorOptions)) -> Result<Detectors, Invalid> {
        let mut options = DetectorOptions::default();
        change(&mut options);
        Detectors::new(grid(), &beam(), options)
    }

    /// The sum of the intensity where `counted` says so of the angles \[mrad\] along x and y.
    fn sum_where(counted: impl Fn(f64, f64) -> bool) -> f64 {
        let (wave, [x, y]) = (wave(), kept_frequencies(&grid()));
        let angles = |q: f64| beam().angle(q);
        let chosen =
            wave.indexed_iter().filter(|((j, i), _)| counted(angles(x[*i]), angles(y[*j])));
        chosen.map(|(_, a)| a.norm_sqr()).sum()
    }

    // Check rings and sums
    #[test]
    fn every_electron_is_counted_once() {
        for bin in [1.0, 3.7, 0.3] {
            let detectors = detectors(|options| options.bin = bin).unwrap();
            let read = detectors.read(wave().view());
            let sum: f64 = read.rings.iter().sum::<f64>() + read.corners + read.lost();
            assert!((sum - 1.0).abs() < 1e-14 && (read.lost() - 0.1).abs() < 1e-14);
            let widest = beam().angle((12.0f64 / 9.0).min(10.0 / 6.5));
            assert!((detectors.widest() - widest).abs() < 1e-12);
            assert_eq!(read.rings.len(), ((widest / bin) - 1e-9) as usize);
            assert_eq!(detectors.middles().len(), read.rings.len());
            for (k, ring) in read.rings.iter().enumerate() {
                let (low, high) = (k as f64 * bin, (k + 1) as f64 * bin);
                let expected = sum_where(|x, y| (low..high).contains(&x.hypot(y)));
                assert!((ring - expected).abs() < 1e-14, "{bin} {k}");
            }
            assert!(read.corners > 0.0);
        }
        // A requested number of rings: some of the corners are in rings, or some rings are not read
        for rings in [20, 45] {
            let detectors = detectors(|options| options.rings = Some(rings)).unwrap();
            let (read, end) = (detectors.read(wave().view()), rings as f64);
            let expected = sum_where(|x, y| x.hypot(y) >= end);
            assert_eq!((read.rings.len(), detectors.middles().len()), (rings, rings));
            assert!((read.corners - expected).abs() < 1e-14);
            let last = sum_where(|x, y| (end - 1.0..end).contains(&x.hypot(y)));
            assert!((read.rings[rings - 1] - last).abs() < 1e-14);
        }
        assert_eq!([0.0, 0.49, 0.5, 0.999, 1.0, 7.2].map(|a| ring(a, 0.5)), [0, 0, 1, 1, 2, 14]);
        assert_eq!(
            [rings(3.0, 1.0), rings(2.99, 1.0), rings(0.9, 1.0), rings(1.0, 1.0)],
            [3, 2, 0, 1]
        );
    }

    // Check annuli and sectors
    #[test]
    fn annuli_and_sectors_are_where_they_should_be() {
        let annulus = |inner, outer, exact| Annulus { inner, outer, exact };
        let cut = |inner, rotation| Segmented { inner, outer: 17.3, sectors: 3, rotation };
        let detectors = detectors(|options| {
            options.annuli =
                vec![annulus(4.2, 17.3, false), annulus(4.2, 17.3, true), annulus(0.0, 9.0, false)];
            options.segmented = vec![cut(4.2, 0.0), cut(4.2, 1.0), cut(0.0, -0.3)];
        });
        let read = detectors.unwrap().read(wave().view());
        let ring_sum: f64 = read.rings[4..17].iter().sum();
        assert!((read.annuli[0] - ring_sum).abs() < 1e-15);
        let exact = sum_where(|x, y| (4.2..17.3).contains(&x.hypot(y)));
        assert!((read.annuli[1] - exact).abs() < 1e-15 && (exact - ring_sum).abs() > 1e-4);
        assert!((read.annuli[2] - read.rings[..9].iter().sum::<f64>()).abs() < 1e-15);
        for sectors in &read.segmented[..2] {
            assert!((sectors.iter().sum::<f64>() - exact).abs() < 1e-14);
        }
        for (k, sector) in read.segmented[1].iter().enumerate() {
            let (low, high) =
                (1.0 + k as f64 * 2.0 * PI / 3.0, 1.0 + (k + 1) as f64 * 2.0 * PI / 3.0);
            let inside = |x: f64, y: f64| {
                let angle = [0.0, 2.0 * PI].map(|turn| y.atan2(x) + turn);
                let good = angle.iter().any(|angle| (low..high).contains(angle));
                good && (4.2..17.3).contains(&x.hypot(y))
            };
            assert!((sector - sum_where(inside)).abs() < 1e-14, "{k}");
        }
    }

    #[test]
    fn quadrants_of_an_even_pattern_are_equal() {
        let even = Array2::from_elem((24, 24), Complex64::ONE);
        let square = WaveGrid::new([48, 48], [4.8, 4.8]).unwrap();
        let quadrants = Segmented { inner: 1.0, outer: 55.0, sectors: 4, rotation: 0.0 };
        let options = DetectorOptions::default().segmented(vec![quadrants]);
        let read = Detectors::new(square, &beam(), options).unwrap().read(even.view());
        let sectors = &read.segmented[0];
        assert!(sectors[0] > 10.0 && sectors.iter().all(|sector| *sector == sectors[0]));
    }

    // Check the centre of mass

    // Check patterns of detectors
    #[test]
    fn the_centre_of_mass_is_that_of_the_pattern() {
        let detectors = detectors(|options| options.centre_of_mass = true).unwrap();
        let [x, y] = kept_frequencies(&grid());
        let mut single = Array2::zeros((20, 24));
        single[[17, 5]] = Complex64::new(0.0, 0.5);
        let read = detectors.read(single.view());
        assert_eq!(read.centre_of_mass(), Some([x[5], y[17]]));
        assert_eq!([x[5], y[17]], [5.0 / 9.0, -3.0 / 6.5]);
        let wave = wave();
        let sum: f64 = wave.indexed_iter().map(|((_, i), a)| x[i] * a.norm_sqr()).sum();
        let centre = detectors.read(wave.view()).centre_of_mass().unwrap();
        assert!((centre[0] - sum / 0.9).abs() < 1e-14);
        let nothing = detectors.read(Array2::<Complex64>::zeros((20, 24)).view());
        assert_eq!(nothing.centre_of_mass(), None);
    }

    #[test]
    fn patterns_are_centred_cropped_and_binned() {
        let pattern = |crop, bin| {
            let asked = Some(PatternOptions { crop, bin });
            let detectors = detectors(|options| options.pattern = asked).unwrap();
            let axes = detectors.pattern_axes().unwrap().map(<[f64]>::to_vec);
            (detectors.read(wave().view()).pattern.unwrap(), axes)
        };
        let (whole, [x, y]) = pattern(None, 1);
        assert_eq!((whole.dim(), x[12], y[10], x[0]), ((20, 24), 0.0, 0.0, -12.0 / 9.0));
        assert_eq!(whole[[10, 12]], wave()[[0, 0]].norm_sqr());
        assert_eq!(whole[[9, 14]], wave()[[19, 2]].norm_sqr());
        for bin in [2, 3, 4, 5] {
            let (binned, [x, y]) = pattern(None, bin);
            assert_eq!(binned.dim(), (y.len(), x.len()));
            assert!((binned.sum() - 0.9).abs() < 1e-14, "{bin}");
            assert!((x[1] - x[0] - bin as f64 / 9.0).abs() < 1e-14);
            assert_eq!(x.contains(&0.0), bin % 2 == 1);
        }
        let (three, [x, _]) = pattern(None, 3);
        let middle = x.iter().position(|x| *x == 0.0).unwrap();
        let block: f64 = whole.slice(ndarray::s![9..12, 11..14]).sum();
        assert!((three[[3, middle]] - block).abs() < 1e-15, "{middle}");
        let angle = beam().angle(4.0 / 9.0) + 1e-9;
        let (cropped, [x, y]) = pattern(Some(angle), 1);
        assert_eq!((x.len(), y.len()), (9, 5)); // 4/9 per Å is 2.9/6.5
        assert_eq!(cropped, whole.slice(ndarray::s![8..13, 8..17]));
        let expected = sum_where(|x, y| x.abs() <= angle && y.abs() <= angle);
        assert!((cropped.sum() - expected).abs() < 1e-14);
    }

    // Check the layout of readings
    #[test]
    fn numbers_of_a_row_are_where_the_layout_says() {
        let detectors = detectors(|options| {
            let annulus = |exact| Annulus { inner: 4.2, outer: 17.3, exact };
            let cut = |sectors| Segmented { inner: 3.0, outer: 12.0, sectors, rotation: 0.2 };
            options.annuli = vec![annulus(false), annulus(true)];
            options.segmented = vec![cut(4), cut(3)];
            options.centre_of_mass = true;
            options.pattern = Some(PatternOptions::default().crop(9.0));
        })
        .unwrap();
        let (layout, read) = (detectors.layout(), detectors.read(wave().view()));
        let values = read.clone().into_values();
        assert_eq!((values.len(), layout.values()), (detectors.values(), detectors.values()));
        assert_eq!(values[layout.rings.clone()], read.rings);
        assert_eq!([values[layout.corners], values[layout.total]], [read.corners, read.total]);
        assert_eq!(values[layout.annuli.clone()], read.annuli);
        for (range, sectors) in layout.segmented.iter().zip(&read.segmented) {
            assert_eq!(values[range.clone()], *sectors);
        }
        assert_eq!(values[layout.moments.clone()], read.moments.unwrap());
        assert_eq!(
            values[layout.pattern.clone()],
            read.pattern.unwrap().into_raw_vec_and_offset().0
        );
    }

    // Check refusals of detectors
    #[test]
    fn detectors_that_make_no_sense_are_refused() {
        let refused = |change: &dyn Fn(&mut DetectorOptions)| detectors(change).unwrap_err();
        for bin in [0.0, -1.0, f64::NAN, 40.0, 1e-9] {
            assert_eq!(refused(&|options| options.bin = bin).quantity, "bin");
        }
        for rings in [0, 67, usize::MAX] {
            let refused = refused(&|options| options.rings = Some(rings));
            assert!(refused.quantity == "bins" && refused.expected.contains("from 1 to 66"));
        }
        let annulus = |inner, outer, exact| {
            refused(&|options| options.annuli = vec![Annulus { inner, outer, exact }])
        };
        assert_eq!(annulus(5.0, 5.0, true).quantity, "annuli[0]");
        assert!(annulus(5.0, 80.0, true).expected.contains("33.439 mrad"));
        assert!(annulus(5.0, 33.2, false).expected.contains("33.000 mrad"));
        assert!(annulus(5.1, 5.9, false).expected.contains("at least one ring"));
        assert_eq!(annulus(-1.0, f64::NAN, true).quantity, "annuli[0]");
        let segments = Segmented { inner: 0.0, outer: 9.0, sectors: 0, rotation: 0.0 };
        let none = refused(&|options| options.segmented = vec![segments]);
        assert_eq!(none.quantity, "segmented[0].sectors");
        let turned = Segmented { sectors: 2, rotation: f64::INFINITY, ..segments };
        let turned = refused(&|options| options.segmented = vec![turned]);
        assert_eq!(turned.quantity, "segmented[0].rotation");
        let pattern =
            |crop, bin| refused(&|options| options.pattern = Some(PatternOptions { crop, bin }));
        assert_eq!(pattern(None, 0).quantity, "four_d.bin");
        assert_eq!(pattern(Some(-1.0), 1).quantity, "four_d.crop");
    }
}
