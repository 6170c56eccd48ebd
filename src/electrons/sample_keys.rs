// Tangled from book/src/sample-keys.md: edit there, or here and run cargo tangle stitch.
//! The keys of a sample file.

use crate::files::{Key, KeyKind, KeyRange, Keys};
use crate::plausible;
use crate::specimen::atoms::SYMBOLS;
use KeyKind::{
    Alike, File, Flag, Number, NumberOrList, NumberOrPair, Numbers, Pairs, Text, Tuple, Whole,
    WholeOrPair, Wholes, Word,
};

// Limits that keys of a sample share
const TILT: KeyRange = KeyRange::within(-500.0, 500.0);
const ANNULUS: KeyRange = KeyRange::within(0.0, 2000.0);
const FOCUS: KeyRange = KeyRange::plausible(&plausible::DEFOCUS);
const SEED: KeyRange = KeyRange::NOT_NEGATIVE;

// Tables of a sample file
#[rustfmt::skip]
/// The tables of a sample file, with all their keys.
pub const SAMPLE_KEYS: Keys = &[
    Key::table("sample", SAMPLE, "sample-file", "the specimen").required(),
    Key::table("potential", POTENTIAL, "potentials", "how the potential is computed"),
    Key::table("phonons", PHONONS, "phonons", "frozen phonons"),
    Key::table("beam", BEAM, "electron-beam", "the electrons").required(),
    Key::table("scan", SCAN, "scan", "positions of the probe"),
    Key::table("method", METHOD, "posed-scans", "how the wave is computed"),
    Key::table("detector", DETECTOR, "electron-detectors", "what is recorded of a scan"),
    Key::table("imaging", IMAGING, "hrtem", "the objective lens, for a plane wave"),
    Key::table("run", RUN, "sample-file", "how it is run"),
];

// Keys of displacements in a sample file
static RMS: [Key; SYMBOLS.len()] = {
    let each = Key::new("", Number, "Å", "one-dimensional rms displacement");
    let each =
        each.range(KeyRange::plausible(&plausible::DISPLACEMENT)).otherwise("that of the crystal");
    let (mut keys, mut k) = ([each; SYMBOLS.len()], 0);
    while k < keys.len() {
        keys[k].name = SYMBOLS[k];
        k += 1;
    }
    keys
};

// Keys of sample in a sample file
#[rustfmt::skip]
const SAMPLE: Keys = &[
    Key::new("file", File, "", "crystal: CIF or XYZ").otherwise("required, or `crystal`").chapter("crystal-files"),
    Key::new("crystal", Text, "", "crystal: the text of a CIF or XYZ file").otherwise("in place of `file`").chapter("crystal-files"),
    Key::new("tile", Wholes("3"), "", "cells along x, y and z").range(KeyRange::within(1.0, f64::INFINITY)).default("[1, 1, 1]"),
    Key::new("cell", Tuple(3), "Å", "sides of the cell, in place of the crystal's own")
        .range(KeyRange::plausible(&plausible::CELL)).otherwise("those of the crystal"),
    Key::new("zone_axis", Wholes("3 or 4"), "", "lattice vector that the beam is along; negative ones, too")
        .range(KeyRange::within(-1e3, 1e3).note("not all 0")).otherwise("no cut").chapter("zone-axis"),
    Key::new("strain", Number, "", "largest cosine between two sides of a cut").range(KeyRange::within(0.0, 0.1)).default("1e-6").chapter("zone-axis"),
    Key::new("beam", Word(&["+x", "-x", "+y", "-y", "+z", "-z"]), "", "direction of the beam in the cell").default("\"-z\""),
    Key::new("occupancy", Flag, "", "whether occupancies are used; else every atom is present").default("true"),
    Key::new("tilt", Tuple(2), "mrad", "tilt of the specimen, x and y").range(TILT).default("[0.0, 0.0]"),
];

// Keys of potential in a sample file
#[rustfmt::skip]
const POTENTIAL: Keys = &[
    Key::new("model", Word(&["lookup", "projected", "sliced", "sampled"]), "", "model of the potential").default("\"projected\""),
    Key::new("factors", Word(&["kirkland", "kirkland-rounded", "lobato"]), "", "table of scattering factors")
        .default("\"kirkland\"").chapter("scattering"),
    Key::new("grid", Wholes("2"), "", "points along x and y; excludes `pixel`")
        .range(KeyRange::within(4.0, 32768.0).note("multiples of 4")).otherwise("from `pixel`").chapter("wave-grid"),
    Key::new("pixel", NumberOrPair, "Å", "side of a pixel, along x and y").range(KeyRange::plausible(&plausible::WAVE_PIXEL)).otherwise("0.1, or finer for the largest angle").chapter("wave-grid"),
    Key::new("slice_thickness", Number, "Å", "thickness of a slice").range(KeyRange::plausible(&plausible::SLICE)).default("2.0").chapter("slices"),
    Key::new("bound", Number, "Å", "radius at which an atom's potential is cut off").range(KeyRange::plausible(&plausible::BOUND)).default("3.0"),
    Key::new("planes", Whole, "", "planes of a slice, for the model `sampled`")
        .range(KeyRange::within(1.0, 1e4)).default("16").chapter("potential-planes"),
];

// Keys of phonons in a sample file
#[rustfmt::skip]
const PHONONS: Keys = &[
    Key::new("configurations", Whole, "", "configurations that are averaged; 0 for atoms at rest")
        .range(KeyRange::within(0.0, 1e6)).default("0"),
    Key::new("seed", Whole, "", "seed of the displacements").range(SEED).default("0"),
    Key::new("rms", Alike(&RMS, "ELEMENT"), "", "displacements of elements, in place of the crystal's"),
];

// Keys of beam in a sample file
#[rustfmt::skip]
const BEAM: Keys = &[
    Key::new("energy_kev", Number, "keV", "kinetic energy of an electron").range(KeyRange::plausible(&plausible::ENERGY)).required(),
    Key::new("semi_angle", Number, "mrad", "convergence semi-angle of the probe").range(KeyRange::plausible(&plausible::SEMI_ANGLE)).default("20.0"),
    Key::new("defocus", NumberOrList, "Å", "defocus, or a series of it").range(FOCUS).default("0.0"),
    Key::new("c3", Number, "Å", "spherical aberration of third order")
        .range(KeyRange::plausible(&plausible::C3).note("0, or of size 100 and more")).default("0.0"),
    Key::new("c5", Number, "Å", "spherical aberration of fifth order")
        .range(KeyRange::plausible(&plausible::C5).note("0, or of size 1e4 and more")).default("0.0"),
    Key::tables("aberrations", ABERRATION, "electron-beam", "further aberrations"),
    Key::new("tilt", Tuple(2), "mrad", "tilt of the beam, x and y").range(TILT).default("[0.0, 0.0]"),
];

// Keys of aberration in a sample file
#[rustfmt::skip]
const ABERRATION: Keys = &[
    Key::new("m", Whole, "", "power of the angle").range(KeyRange::within(1.0, 20.0)).required(),
    Key::new("n", Whole, "", "number of maxima around the axis").range(KeyRange::NOT_NEGATIVE.note("at most m")).required(),
    Key::new("magnitude", Number, "rad", "magnitude of the phase").required(),
    Key::new("angle_deg", Number, "degrees", "direction of a maximum").default("0.0"),
];

// Keys of scan in a sample file
#[rustfmt::skip]
const SCAN: Keys = &[
    Key::new("window", Pairs, "Å", "[from, to] along x and along y").range(KeyRange::ANY.note("from below to")).otherwise("the whole cell"),
    Key::new("step", NumberOrPair, "Å", "step, along x and y").range(KeyRange::plausible(&plausible::SCAN_STEP)).default("0.25"),
    Key::new("source_size", Number, "Å", "radius of the source's image along each axis, rms")
        .range(KeyRange::plausible(&plausible::SOURCE_SIZE)).default("0.0").chapter("scan-images"),
];

// Keys of method in a sample file
#[rustfmt::skip]
const METHOD: Keys = &[
    Key::new("algorithm", Word(&["multislice", "prism", "hrtem"]), "", "scan by multislice or PRISM, or images of a plane wave").default("\"multislice\""),
    Key::new("interpolation", WholeOrPair, "", "interpolation factor of PRISM, along x and y")
        .range(KeyRange::within(1.0, 1e3)).otherwise("up to 4, as accuracy allows").chapter("prism"),
    Key::new("interpolation_check", Word(&["reject", "warn"]), "", "what happens if `interpolation` is too large").default("\"reject\"").chapter("prism"),
    Key::new("margin", Number, "mrad", "angle by which PRISM's beams exceed the semi-angle").range(KeyRange::plausible(&plausible::MARGIN)).otherwise("2.5, or the soft edge without interpolation"),
    Key::new("refocus", Number, "Å", "distance by which exit waves are propagated back").range(FOCUS).default("0.0"),
    Key::new("thicknesses", Numbers, "Å", "further thicknesses that are read").range(KeyRange::plausible(&plausible::DEPTH)).default("[]"),
];

// Keys of detector in a sample file
#[rustfmt::skip]
const DETECTOR: Keys = &[
    Key::new("bin", Number, "mrad", "width of an annular bin").range(KeyRange::plausible(&plausible::BIN)).default("1.0"),
    Key::new("bins", Whole, "", "number of annular bins").range(KeyRange::within(1.0, 1e6)).otherwise("all that the grid keeps"),
    Key::new("annuli", Pairs, "mrad", "inner and outer angles of annular detectors")
        .range(ANNULUS.note("inner below outer")).default("[]"),
    Key::tables("segmented", SEGMENTED, "electron-detectors", "annular detectors in sectors"),
    Key::new("centre_of_mass", Flag, "", "whether the centre of mass is recorded").default("false"),
    Key::new("integrated_centre", Flag, "", "whether it is integrated over the scan").default("false").chapter("scan-images"),
    Key::table("four_d", PATTERN, "electron-detectors", "whole diffraction patterns (4D-STEM)"),
    Key::new("dose", Number, "electrons", "electrons at each position of the probe")
        .range(KeyRange::within(0.0, 1e15).above()).otherwise("no noise").chapter("scan-images"),
    Key::new("dose_seed", Whole, "", "seed of the noise").range(SEED).default("0").chapter("scan-images"),
];

// Keys of segmented in a sample file
#[rustfmt::skip]
const SEGMENTED: Keys = &[
    Key::new("inner", Number, "mrad", "inner angle").range(ANNULUS.note("below `outer`")).required(),
    Key::new("outer", Number, "mrad", "outer angle").range(KeyRange::plausible(&plausible::DETECTOR_ANGLE).note("not far below the semi-angle")).required(),
    Key::new("sectors", Whole, "", "number of sectors").range(KeyRange::within(1.0, 1e3)).default("4"),
    Key::new("rotation_deg", Number, "degrees", "direction where the first sector begins").default("0.0"),
];

// Keys of pattern in a sample file
#[rustfmt::skip]
const PATTERN: Keys = &[
    Key::new("crop", Number, "mrad", "largest angle of the patterns").range(KeyRange::plausible(&plausible::CROP).note("not far below the semi-angle")).otherwise("all that the grid keeps"),
    Key::new("bin", Whole, "", "pixels that are summed along either side").range(KeyRange::within(1.0, 4096.0)).default("1"),
];

// Keys of imaging in a sample file
#[rustfmt::skip]
const IMAGING: Keys = &[
    Key::new("aperture", Number, "mrad", "semi-angle of the objective aperture").range(KeyRange::plausible(&plausible::APERTURE)).otherwise("no aperture"),
    Key::new("tilt", Tuple(2), "mrad", "tilt of the beam against the lens, x and y").range(TILT).default("[0.0, 0.0]"),
    Key::new("focal_spread", Number, "Å", "spread of the focus, rms").range(KeyRange::plausible(&plausible::FOCAL_SPREAD)).default("0.0"),
    Key::new("convergence", Number, "mrad", "angle of the illumination along each axis, rms").range(KeyRange::plausible(&plausible::CONVERGENCE)).default("0.0"),
    Key::new("samples", Word(&["grid", "mask"]), "", "samples of the images: of the grid, or of what it keeps").default("\"grid\""),
];

// Keys of run in a sample file
#[rustfmt::skip]
const RUN: Keys = &[
    Key::new("precision", Word(&["f32", "f64"]), "", "precision of waves").default("\"f32\""),
];
