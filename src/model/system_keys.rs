// Tangled from book/src/system-keys.md: edit there, or here and run cargo tangle stitch.
//! The keys of a system file.

use crate::files::{Key, KeyKind, KeyRange, Keys};
use crate::plausible;
use crate::units::ARCSEC;
use KeyKind::{File, Flag, Number, NumberOrFile, Numbers, Tuple, Whole, Word, Words};

// Limits that keys of a system share
const LENGTH: KeyRange = KeyRange::within(1e-9, 1e15);
const WAVELENGTH: KeyRange = KeyRange::plausible(&plausible::WAVELENGTH);
const SIDE: KeyRange = KeyRange::plausible(&plausible::PITCH);
const ON_SKY: KeyRange = KeyRange::within(0.0, 0.1 / ARCSEC);
const PIXEL: KeyRange =
    KeyRange::plausible(&plausible::SENSOR_PIXEL).note("more for lenslets below a millimetre");
const ALTITUDE: KeyRange = KeyRange::plausible(&plausible::ALTITUDE);
const LENSLETS: KeyRange = KeyRange::within(1.0, 1e4);
const SHARE: KeyRange = KeyRange::within(0.0, 1.0);

// Tables of a system file
#[rustfmt::skip]
/// The tables of a system file, with all their keys.
pub const SYSTEM_KEYS: Keys = &[
    Key::table("atmosphere", ATMOSPHERE, "atmosphere", "the turbulence").required(),
    Key::table("telescope", TELESCOPE, "lenslet-array", "the pupil; without it all lenslets are valid"),
    Key::table("lenslet_array", ARRAY, "lenslet-array", "the lenslets of all sensors").required(),
    Key::tables("guide_star", STAR, "sources", "guide stars and their sensors, at least one").required(),
    Key::tables("target", TARGET, "sources", "directions to correct, or where phase is wanted"),
    Key::tables("optimisation", OPTIMISATION, "correction-modes", "directions to optimise for, without images"),
    Key::table("truth_sensor", TRUTH, "covariance-matrices", "lenslets by whose slopes errors are measured"),
    Key::table("phase", PHASE, "wavefront-slope", "the grid of wavefront points"),
    // Tables of correction and image
    Key::table("covariance", COVARIANCE, "edge-midpoint", "how slopes are modelled"),
    Key::table("reconstructor", RECONSTRUCTOR, "reconstructor", "how the reconstructor is computed"),
    Key::table("correction", CORRECTION, "correction-modes", "which mirrors correct which targets"),
    Key::tables("mirror", MIRROR, "mirrors", "deformable mirrors"),
    Key::table("loop", LOOP, "bandwidth", "the control loop"),
    Key::table("image", IMAGE, "image-options", "images and their errors"),
    Key::table("field", FIELD, "field-maps", "a square of directions that is mapped"),
];

// Keys of atmosphere in a system file
#[rustfmt::skip]
const ATMOSPHERE: Keys = &[
    Key::new("r0", Number, "m", "Fried parameter at `wavelength`")
        .range(KeyRange::plausible(&plausible::FRIED_PARAMETER).note("at 500 nm; 1e4 and more: no turbulence")).otherwise("required, or `seeing`"),
    Key::new("seeing", Number, "arcsec", "seeing at `wavelength`: full width at half maximum, for an infinite outer scale")
        .range(KeyRange::within(0.05, 10.0)).otherwise("in place of `r0`"),
    Key::new("wavelength", Number, "m", "wavelength that `r0` or `seeing` belongs to").range(WAVELENGTH).default("500e-9"),
    Key::new("outer_scale", Number, "m", "outer scale of the layers that give none; `inf` is Kolmogorov's limit")
        .range(LENGTH.or_infinite()).otherwise("given in each layer"),
    Key::new("cone_gradient", Word(&["pupil", "layer"]), "", "where slopes of a star at a finite height are derivatives")
        .default("\"pupil\"").chapter("sources"),
    Key::tables("layers", LAYER, "atmosphere", "turbulent layers, at least one").required(),
];

// Keys of layer in a system file
#[rustfmt::skip]
const LAYER: Keys = &[
    Key::new("altitude", Number, "m", "altitude above the telescope").range(ALTITUDE).required(),
    Key::new("fraction", Number, "", "share of r0^(-5/3)")
        .range(KeyRange::NOT_NEGATIVE.note("the sum is 1 within 1e-6")).required(),
    Key::new("outer_scale", Number, "m", "outer scale").range(LENGTH.or_infinite()).otherwise("that of `[atmosphere]`, else required"),
    Key::new("wind_speed", Number, "m/s", "speed of the wind; required with a `[loop]` or a `reconstructor.delay`")
        .range(KeyRange::plausible(&plausible::WIND_SPEED)).default("0.0"),
    Key::new("wind_direction", Number, "degrees", "direction towards which the wind blows").default("0.0"),
];

// Keys of telescope in a system file
#[rustfmt::skip]
const TELESCOPE: Keys = &[
    Key::new("diameter", Number, "m", "diameter of the pupil").range(KeyRange::plausible(&plausible::DIAMETER)).required(),
    Key::new("obstruction", Number, "", "diameter of the central obstruction over that of the pupil")
        .range(SHARE.below()).default("0.0"),
    Key::table("spiders", SPIDERS, "image-options", "vanes that the camera sees"),
    Key::new("pupil", File, "", "image of the pupil that the camera sees; excludes `spiders`").chapter("image-options"),
];

// Keys of spiders in a system file
#[rustfmt::skip]
const SPIDERS: Keys = &[
    Key::new("width", Number, "m", "width of a vane")
        .range(KeyRange::POSITIVE.note("less than the diameter")).required(),
    Key::new("angles", Numbers, "degrees", "directions of the vanes")
        .range(KeyRange::ANY.note("1 to 100 of them")).required(),
    Key::new("offset", Number, "m", "distance of a vane's middle line from the centre").default("0.0"),
];

// Keys of array in a system file
#[rustfmt::skip]
const ARRAY: Keys = &[
    Key::new("lenslets", Whole, "", "lenslets across the array").range(LENSLETS).required(),
    Key::new("pitch", Number, "m", "side of a lenslet").range(SIDE).otherwise("diameter / lenslets"),
    Key::new("valid_threshold", Number, "", "lit share of its area from which a lenslet is valid").range(SHARE).default("0.5"),
    Key::new("valid", Word(&["centre"]), "", "valid are the lenslets whose centre is lit; excludes `valid_threshold`")
        .otherwise("by lit area"),
];

// Keys of star in a system file
#[rustfmt::skip]
const STAR: Keys = &[
    Key::new("zenith", Number, "arcsec", "distance from the axis").range(ON_SKY).default("0.0"),
    Key::new("azimuth", Number, "degrees", "direction from the axis").default("0.0"),
    Key::new("height", Number, "m", "height; `inf` is a natural star")
        .range(KeyRange::plausible(&plausible::HEIGHT).or_infinite().note("above all layers; lower above arrays below 0.1 m")).default("inf"),
    Key::new("noise", NumberOrFile, "rad²", "variance of a slope, or a file of one for each lenslet; excludes `sensor`")
        .range(KeyRange::plausible(&plausible::NOISE).note("more for small lenslets")).default("0.0").chapter("noise"),
    Key::table("sensor", LIGHT, "light", "noise from light, in place of `noise`"),
    Key::new("tip_tilt", Word(&["measured", "removed", "unknown"]), "", "whether tip and tilt are known")
        .default("\"measured\"").chapter("unmeasured"),
    Key::new("tip_tilt_variance", Number, "rad²", "variance of an unknown tip and tilt")
        .range(KeyRange::plausible(&plausible::TILT_VARIANCE).above()).otherwise("required with `tip_tilt = \"unknown\"`").chapter("unmeasured"),
    Key::new("focus", Word(&["measured", "removed"]), "", "whether the focus is known")
        .default("\"measured\"").chapter("unmeasured"),
    // Keys of the sensor of a star
    Key::new("lenslets", Whole, "", "lenslets across the array of this sensor").range(LENSLETS).otherwise("as `[lenslet_array]`"),
    Key::new("pitch", Number, "m", "side of a lenslet of this sensor").range(SIDE).otherwise("width of the array / lenslets"),
    Key::new("rotation", Number, "degrees", "angle by which the sensor is turned")
        .range(KeyRange::within(-360.0, 360.0)).default("0.0").chapter("sensors"),
    Key::new("shift", Tuple(2), "m", "shift of the sensor on the pupil, x and y")
        .range(KeyRange::plausible(&plausible::SHIFT)).default("[0.0, 0.0]").chapter("sensors"),
    Key::new("magnification", Number, "", "magnification of the lenslets on the pupil")
        .range(KeyRange::within(0.1, 10.0)).default("1.0").chapter("sensors"),
];

// Keys of light in a system file
#[rustfmt::skip]
const LIGHT: Keys = &[
    Key::new("photons", Number, "", "photons detected behind a lit lenslet in a frame")
        .range(KeyRange::within(1e-3, 1e15)).otherwise("required, or `magnitude`"),
    Key::new("magnitude", Number, "", "magnitude of the star").range(KeyRange::within(-50.0, 50.0)).otherwise("in place of `photons`"),
    Key::new("zero_point", Number, "1/s/m²", "photons of magnitude 0 in the band")
        .range(KeyRange::plausible(&plausible::ZERO_POINT)).otherwise("required with `magnitude`"),
    Key::new("throughput", Number, "", "share of the photons that is detected, with `magnitude`").range(SHARE.above()).default("1.0"),
    Key::new("frame_rate", Number, "Hz", "frames in a second").range(KeyRange::plausible(&plausible::RATE)).otherwise("required with `magnitude`"),
    Key::new("rate", Number, "Hz", "frames in a second, if not those of the loop; commands warn of it")
        .range(KeyRange::plausible(&plausible::RATE)).otherwise("`loop.rate`"),
    Key::new("wavelength", Number, "m", "wavelength of the light").range(WAVELENGTH).required(),
    // Keys of the detector of a sensor
    Key::new("pixel", Number, "arcsec", "side of a pixel on the sky").range(PIXEL).required(),
    Key::new("fwhm", Number, "arcsec", "full width at half maximum of a round spot").range(PIXEL).otherwise("that of seeing and lenslet"),
    Key::new("read_noise", Number, "electrons", "read-out noise of a pixel, rms").range(KeyRange::within(0.0, 1e6)).default("0.0"),
    Key::new("excess_noise", Number, "", "excess noise factor of a detector that multiplies").range(KeyRange::within(1.0, 10.0)).default("1.0"),
    Key::new("background", Number, "", "background photons of a pixel in a frame").range(KeyRange::within(0.0, 1e12)).default("0.0"),
    Key::new("window", Whole, "pixels", "width of the window under a spot")
        .range(KeyRange::within(2.0, 1e4)).otherwise("6 standard deviations of the widest spot"),
    Key::table("spot", SPOT, "light", "an elongated laser spot; without it spots are round"),
];

// Keys of spot in a system file
#[rustfmt::skip]
const SPOT: Keys = &[
    Key::new("launch", Tuple(2), "m", "where the laser is launched, x and y").range(KeyRange::plausible(&plausible::LAUNCH)).required(),
    Key::new("altitude", Number, "m", "mean altitude of the sodium").range(KeyRange::plausible(&plausible::SPOT_ALTITUDE)).otherwise("`height` of a laser star, else required"),
    Key::new("thickness", Number, "m", "full width at half maximum of the sodium")
        .range(KeyRange::plausible(&plausible::SPOT_THICKNESS).note("less than `altitude`")).required(),
];

// Keys of target in a system file
#[rustfmt::skip]
const TARGET: Keys = &[
    Key::new("zenith", Number, "arcsec", "distance from the axis").range(ON_SKY).default("0.0"),
    Key::new("azimuth", Number, "degrees", "direction from the axis").default("0.0"),
    Key::new("height", Number, "m", "height of a target, which is a direction")
        .range(KeyRange::within(f64::INFINITY, f64::INFINITY).note("inf only")).default("inf"),
    Key::new("weight", Number, "", "weight in a compromise of several targets")
        .range(KeyRange::NOT_NEGATIVE).otherwise("1; 0 beside `[[optimisation]]`").chapter("correction-modes"),
];

// Keys of optimisation in a system file
#[rustfmt::skip]
const OPTIMISATION: Keys = &[
    Key::new("zenith", Number, "arcsec", "distance from the axis").range(ON_SKY).default("0.0"),
    Key::new("azimuth", Number, "degrees", "direction from the axis").default("0.0"),
    Key::new("weight", Number, "", "weight in the compromise").range(KeyRange::POSITIVE).default("1.0"),
];

// Keys of truth in a system file
#[rustfmt::skip]
const TRUTH: Keys = &[
    Key::new("lenslets", Whole, "", "lenslets across").range(LENSLETS).required(),
    Key::new("pitch", Number, "m", "side of a lenslet").range(SIDE).otherwise("width of `[lenslet_array]` / lenslets"),
];

// Keys of phase in a system file
#[rustfmt::skip]
const PHASE: Keys = &[
    Key::new("points", Whole, "", "wavefront points across the grid").range(KeyRange::within(1.0, 1e5)).required(),
    Key::new("oversampling", Whole, "", "points per lenslet").range(KeyRange::within(1.0, 1e3)).default("1"),
    Key::new("disc_radius", Number, "arcsec", "radius of the disc of directions that is averaged over")
        .range(ON_SKY).default("0.0").chapter("disc-average"),
];

// Keys of covariance in a system file
#[rustfmt::skip]
const COVARIANCE: Keys = &[
    Key::new("slope_model", Word(&["average", "edge-midpoint"]), "", "the exact mean over a lenslet, or a formula of four points")
        .default("\"average\""),
];

// Keys of reconstructor in a system file
#[rustfmt::skip]
const RECONSTRUCTOR: Keys = &[
    Key::new("method", Word(&["auto", "cholesky", "eigen", "iterative"]), "", "how the covariance is inverted").default("\"auto\""),
    Key::new("filter", Number, "", "eigenvalues below this share of the largest are dropped")
        .range(SHARE.below()).default("0.0"),
    Key::new("delay", Number, "s", "time by which the truth is later than the measurements")
        .range(KeyRange::plausible(&plausible::DELAY)).default("0.0").chapter("prediction"),
    Key::new("predict", Flag, "", "whether the reconstructor predicts over `delay`").default("true").chapter("prediction"),
    Key::new("errors_only", Flag, "", "whether errors are wanted without the matrix").default("false").chapter("tomographic-error"),
    Key::new("tolerance", Number, "", "relative residual of an iterative solution")
        .range(SHARE.above().below()).default("1e-6"),
    Key::new("to", Word(&["slopes", "wavefront", "actuators"]), "", "what is reconstructed")
        .default("\"slopes\"").chapter("reconstructor-options").formerly("truth"),
];

// Keys of correction in a system file
#[rustfmt::skip]
const CORRECTION: Keys = &[
    Key::new("mode", Word(&["moao", "ltao", "mcao", "glao", "scao"]), "", "which mirrors correct which targets").default("\"moao\""),
];

// Keys of mirror in a system file
#[rustfmt::skip]
const MIRROR: Keys = &[
    Key::new("actuators", Whole, "", "actuators across").range(KeyRange::within(2.0, 1001.0)).otherwise("required, or `pitch`"),
    Key::new("pitch", Number, "m", "distance of actuators").range(SIDE).otherwise("in place of `actuators`"),
    Key::new("layout", Word(&["square", "hexagonal"]), "", "pattern of the actuators").default("\"square\""),
    Key::new("altitude", Number, "m", "altitude that the mirror is conjugate to").range(ALTITUDE).default("0.0"),
    Key::new("coupling", Number, "", "height of an influence function at the next actuator; excludes `influence`")
        .range(KeyRange::within(1e-6, 0.9)).default("0.2"),
    Key::new("influence", File, "", "images of measured influence functions").otherwise("Gaussians"),
    Key::new("influence_step", Number, "m", "side of a pixel of these images").range(LENGTH.note("with `influence` only")).otherwise("required with `influence`"),
    Key::new("kept", Tuple(2), "", "radii over that of the pupil between which actuators are kept")
        .range(KeyRange::ANY.note("inner below outer, outer at most 3")).otherwise("all that move the pupil"),
    Key::new("filter", Number, "", "singular values below this share of the largest are dropped").range(SHARE.below()).default("0.03"),
];

// Keys of loop in a system file
#[rustfmt::skip]
const LOOP: Keys = &[
    Key::new("kind", Word(&["open", "closed"]), "", "whether sensors see the turbulence or the residual").default("\"open\""),
    Key::new("rate", Number, "Hz", "frames in a second").range(KeyRange::plausible(&plausible::RATE)).required(),
    Key::new("gain", Number, "", "gain of the integrator of a closed loop")
        .range(KeyRange::POSITIVE.note("below the limit of stability")).default("0.5"),
    Key::new("delay", Number, "frames", "frames from the start of an exposure to that of its correction")
        .range(KeyRange::within(1.0, 20.0)).default("2.0"),
];

// Keys of image in a system file
#[rustfmt::skip]
const IMAGE: Keys = &[
    Key::new("wavelengths", Numbers, "m", "wavelengths of the images").range(WAVELENGTH).default("[1.65e-6]"),
    Key::new("pixel", Number, "mas", "side of a pixel").range(KeyRange::plausible(&plausible::IMAGE_PIXEL).note("near λ/D")).otherwise("λ/2D"),
    Key::new("pixels", Whole, "", "pixels across").range(KeyRange::within(1.0, 16384.0)).default("256"),
    Key::new("terms", Words(&["tomography", "fitting", "bandwidth", "aliasing", "anisoplanatism"]), "", "errors that enter")
        .otherwise("all that the method can compute").chapter("error-budget"),
    Key::new("structure", Word(&["exact", "stationary"]), "", "structure function of the tomographic error")
        .default("\"exact\"").chapter("structure-function"),
    Key::new("extra", Number, "nm", "rms of an extra error").range(KeyRange::plausible(&plausible::EXTRA)).default("0.0"),
    Key::new("jitter", Number, "mas", "rms of the image's position along each axis").range(KeyRange::plausible(&plausible::JITTER)).default("0.0"),
    Key::new("ensquared", Numbers, "mas", "sides of the boxes of ensquared energy").range(KeyRange::plausible(&plausible::ENSQUARED).note("near λ/D")).default("[]"),
];

// Keys of field in a system file
#[rustfmt::skip]
const FIELD: Keys = &[
    Key::new("size", Number, "arcsec", "side of the square").range(KeyRange::plausible(&plausible::FIELD)).required(),
    Key::new("step", Number, "arcsec", "distance of directions")
        .range(KeyRange::plausible(&plausible::FIELD).note("at most the size, and above a 200th of it")).required(),
];
