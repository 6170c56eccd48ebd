"""Keywords of systems and samples with their types. Written by ``python/keywords.py`` from the keys of their files."""

# ruff: noqa: E501
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypedDict


class FieldOptions(TypedDict, total=False):
    """Keys of ``[field]``: a square of directions that is mapped."""

    size: float | None
    """side of the square [arcsec]; 0.01 to 41253."""
    step: float | None
    """distance of directions [arcsec]; 0.01 to 41253, at most the size, and above a 200th of it."""


class ImageOptions(TypedDict, total=False):
    """Keys of ``[image]``: images and their errors."""

    wavelengths: Sequence[float] | None
    """wavelengths of the images [m]; 1e-9 to 1e-3, default [1.65e-6]."""
    pixel: float | None
    """side of a pixel [mas]; 0.02 to 3.6e6, near λ/D."""
    pixels: int | None
    """pixels across; 1 to 16384, default 256."""
    terms: Sequence[Literal["tomography", "fitting", "bandwidth", "aliasing", "anisoplanatism"]] | None
    """errors that enter."""
    structure: Literal["exact", "stationary"] | None
    """structure function of the tomographic error, default "exact"."""
    extra: float | None
    """rms of an extra error [nm]; 1e-3 to 1e6, or 0, default 0.0."""
    jitter: float | None
    """rms of the image's position along each axis [mas]; 0.01 to 1e6, or 0, default 0.0."""
    ensquared: Sequence[float] | None
    """sides of the boxes of ensquared energy [mas]; 0.02 to 3.6e6, near λ/D, default []."""


class ControlLoop(TypedDict, total=False):
    """Keys of ``[loop]``: the control loop."""

    kind: Literal["open", "closed"] | None
    """whether sensors see the turbulence or the residual, default "open"."""
    rate: float | None
    """frames in a second [Hz]; 0.01 to 1e6."""
    gain: float | None
    """gain of the integrator of a closed loop; > 0, below the limit of stability, default 0.5."""
    delay: float | None
    """frames from the start of an exposure to that of its correction [frames]; 1 to 20, default 2.0."""


class Mirror(TypedDict, total=False):
    """Keys of ``[[mirror]]``: deformable mirrors."""

    actuators: int | None
    """actuators across; 2 to 1001."""
    pitch: float | None
    """distance of actuators [m]; 1e-6 to 100."""
    layout: Literal["square", "hexagonal"] | None
    """pattern of the actuators, default "square"."""
    altitude: float | None
    """altitude that the mirror is conjugate to [m]; 0 to 1e6, default 0.0."""
    coupling: float | None
    """height of an influence function at the next actuator; excludes `influence`; 1e-6 to 0.9, default 0.2."""
    influence: str | os.PathLike[str] | None
    """images of measured influence functions."""
    influence_step: float | None
    """side of a pixel of these images [m]; 1e-9 to 1e15, with `influence` only."""
    kept: Sequence[float] | None
    """radii over that of the pupil between which actuators are kept; inner below outer, outer at most 3."""
    filter: float | None
    """singular values below this share of the largest are dropped; ≥ 0, < 1, default 0.03."""


class CorrectionOptions(TypedDict, total=False):
    """Keys of ``[correction]``: which mirrors correct which targets."""

    mode: Literal["moao", "ltao", "mcao", "glao", "scao"] | None
    """which mirrors correct which targets, default "moao"."""


class ReconstructorOptions(TypedDict, total=False):
    """Keys of ``[reconstructor]``: how the reconstructor is computed."""

    method: Literal["auto", "cholesky", "eigen", "iterative"] | None
    """how the covariance is inverted, default "auto"."""
    filter: float | None
    """eigenvalues below this share of the largest are dropped; ≥ 0, < 1, default 0.0."""
    delay: float | None
    """time by which the truth is later than the measurements [s]; 0 to 1, default 0.0."""
    predict: bool | None
    """whether the reconstructor predicts over `delay`, default true."""
    errors_only: bool | None
    """whether errors are wanted without the matrix, default false."""
    tolerance: float | None
    """relative residual of an iterative solution; > 0, < 1, default 1e-6."""
    to: Literal["slopes", "wavefront", "actuators"] | None
    """what is reconstructed, default "slopes"."""


class WavefrontGrid(TypedDict, total=False):
    """Keys of ``[phase]``: the grid of wavefront points."""

    points: int | None
    """wavefront points across the grid; 1 to 1e5."""
    oversampling: int | None
    """points per lenslet; 1 to 1000, default 1."""
    disc_radius: float | None
    """radius of the disc of directions that is averaged over [arcsec]; 0 to 20626.5, default 0.0."""


class TruthSensor(TypedDict, total=False):
    """Keys of ``[truth_sensor]``: lenslets by whose slopes errors are measured."""

    lenslets: int | None
    """lenslets across; 1 to 10000."""
    pitch: float | None
    """side of a lenslet [m]; 1e-6 to 100."""


class OptimisationDirection(TypedDict, total=False):
    """Keys of ``[[optimisation]]``: directions to optimise for, without images."""

    zenith: float | None
    """distance from the axis [arcsec]; 0 to 20626.5, default 0.0."""
    azimuth: float | None
    """direction from the axis [degrees], default 0.0."""
    weight: float | None
    """weight in the compromise; > 0, default 1.0."""


class Target(TypedDict, total=False):
    """Keys of ``[[target]]``: directions to correct, or where phase is wanted."""

    zenith: float | None
    """distance from the axis [arcsec]; 0 to 20626.5, default 0.0."""
    azimuth: float | None
    """direction from the axis [degrees], default 0.0."""
    height: float | None
    """height of a target, which is a direction [m]; inf only, default inf."""
    weight: float | None
    """weight in a compromise of several targets; ≥ 0."""


class LaserSpot(TypedDict, total=False):
    """Keys of ``[guide_star.sensor.spot]``: an elongated laser spot; without it spots are round."""

    launch: Sequence[float] | None
    """where the laser is launched, x and y [m]; -1000 to 1000."""
    altitude: float | None
    """mean altitude of the sodium [m]; 1000 to 1e9."""
    thickness: float | None
    """full width at half maximum of the sodium [m]; ≥ 30, less than `altitude`."""


class LightSensor(TypedDict, total=False):
    """Keys of ``[guide_star.sensor]``: noise from light, in place of `noise`."""

    photons: float | None
    """photons detected behind a lit lenslet in a frame; 1e-3 to 1e15."""
    magnitude: float | None
    """magnitude of the star; -50 to 50."""
    zero_point: float | None
    """photons of magnitude 0 in the band [1/s/m²]; 10000 to 1e14."""
    throughput: float | None
    """share of the photons that is detected, with `magnitude`; > 0, ≤ 1, default 1.0."""
    frame_rate: float | None
    """frames in a second [Hz]; 0.01 to 1e6."""
    rate: float | None
    """frames in a second, if not those of the loop; commands warn of it [Hz]; 0.01 to 1e6."""
    wavelength: float | None
    """wavelength of the light [m]; 1e-9 to 1e-3."""
    pixel: float | None
    """side of a pixel on the sky [arcsec]; 6e-5 to 60, more for lenslets below a millimetre."""
    fwhm: float | None
    """full width at half maximum of a round spot [arcsec]; 6e-5 to 60, more for lenslets below a millimetre."""
    read_noise: float | None
    """read-out noise of a pixel, rms [electrons]; 0 to 1e6, default 0.0."""
    excess_noise: float | None
    """excess noise factor of a detector that multiplies; 1 to 10, default 1.0."""
    background: float | None
    """background photons of a pixel in a frame; 0 to 1e12, default 0.0."""
    window: int | None
    """width of the window under a spot [pixels]; 2 to 10000."""
    spot: LaserSpot | None
    """an elongated laser spot; without it spots are round."""


class GuideStar(TypedDict, total=False):
    """Keys of ``[[guide_star]]``: guide stars and their sensors, at least one."""

    zenith: float | None
    """distance from the axis [arcsec]; 0 to 20626.5, default 0.0."""
    azimuth: float | None
    """direction from the axis [degrees], default 0.0."""
    height: float | None
    """height; `inf` is a natural star [m]; ≥ 200, or inf, above all layers; lower above arrays below 0.1 m, default inf."""
    noise: float | str | os.PathLike[str] | None
    """variance of a slope, or a file of one for each lenslet; excludes `sensor` [rad²]; 0 to 2.35044e-9, more for small lenslets, default 0.0."""
    tip_tilt: Literal["measured", "removed", "unknown"] | None
    """whether tip and tilt are known, default "measured"."""
    tip_tilt_variance: float | None
    """variance of an unknown tip and tilt [rad²]; > 0, ≤ 1e-5."""
    focus: Literal["measured", "removed"] | None
    """whether the focus is known, default "measured"."""
    lenslets: int | None
    """lenslets across the array of this sensor; 1 to 10000."""
    pitch: float | None
    """side of a lenslet of this sensor [m]; 1e-6 to 100."""
    rotation: float | None
    """angle by which the sensor is turned [degrees]; -360 to 360, default 0.0."""
    shift: Sequence[float] | None
    """shift of the sensor on the pupil, x and y [m]; -1000 to 1000, default [0.0, 0.0]."""
    magnification: float | None
    """magnification of the lenslets on the pupil; 0.1 to 10, default 1.0."""
    sensor: LightSensor | None
    """noise from light, in place of `noise`."""


class Spiders(TypedDict, total=False):
    """Keys of ``[telescope.spiders]``: vanes that the camera sees."""

    width: float | None
    """width of a vane [m]; > 0, less than the diameter."""
    angles: Sequence[float] | None
    """directions of the vanes [degrees]; 1 to 100 of them."""
    offset: float | None
    """distance of a vane's middle line from the centre [m], default 0.0."""


class Layer(TypedDict, total=False):
    """Keys of ``[[atmosphere.layers]]``: turbulent layers, at least one."""

    altitude: float | None
    """altitude above the telescope [m]; 0 to 1e6."""
    fraction: float | None
    """share of r0^(-5/3); ≥ 0, the sum is 1 within 1e-6."""
    outer_scale: float | None
    """outer scale [m]; 1e-9 to 1e15, or inf."""
    wind_speed: float | None
    """speed of the wind; required with a `[loop]` or a `reconstructor.delay` [m/s]; 0 to 2000, default 0.0."""
    wind_direction: float | None
    """direction towards which the wind blows [degrees], default 0.0."""


class SystemKeywords(TypedDict, total=False):
    """Keywords of :class:`lenslet.System`."""

    r0: float | None
    """Fried parameter at `wavelength` [m]; 1e-5 to 3, at 500 nm; 1e4 and more: no turbulence."""
    seeing: float | None
    """seeing at `wavelength`: full width at half maximum, for an infinite outer scale [arcsec]; 0.05 to 10."""
    wavelength: float | None
    """wavelength that `r0` or `seeing` belongs to [m]; 1e-9 to 1e-3, default 500e-9."""
    outer_scale: float | None
    """outer scale of the layers that give none; `inf` is Kolmogorov's limit [m]; 1e-9 to 1e15, or inf."""
    cone_gradient: Literal["pupil", "layer"] | None
    """where slopes of a star at a finite height are derivatives, default "pupil"."""
    layers: Sequence[Layer] | None
    """turbulent layers, at least one."""
    diameter: float | None
    """diameter of the pupil [m]; 1e-4 to 200."""
    obstruction: float | None
    """diameter of the central obstruction over that of the pupil; ≥ 0, < 1, default 0.0."""
    pupil: str | os.PathLike[str] | None
    """image of the pupil that the camera sees; excludes `spiders`."""
    spiders: Spiders | None
    """vanes that the camera sees."""
    lenslets: int | None
    """lenslets across the array; 1 to 10000."""
    pitch: float | None
    """side of a lenslet [m]; 1e-6 to 100."""
    valid_threshold: float | None
    """lit share of its area from which a lenslet is valid; 0 to 1, default 0.5."""
    valid: Literal["centre"] | None
    """valid are the lenslets whose centre is lit; excludes `valid_threshold`."""
    optimisation: Sequence[OptimisationDirection] | None
    """directions to optimise for, without images."""
    truth_sensor: TruthSensor | None
    """lenslets by whose slopes errors are measured."""
    phase: WavefrontGrid | None
    """the grid of wavefront points."""
    slope_model: Literal["average", "edge-midpoint"] | None
    """the exact mean over a lenslet, or a formula of four points, default "average"."""
    reconstructor: ReconstructorOptions | None
    """how the reconstructor is computed."""
    correction: CorrectionOptions | None
    """which mirrors correct which targets."""
    loop: ControlLoop | None
    """the control loop."""
    image: ImageOptions | None
    """images and their errors."""
    field: FieldOptions | None
    """a square of directions that is mapped."""
    guide_stars: Sequence[GuideStar] | None
    """guide stars and their sensors, at least one."""
    targets: Sequence[Target] | None
    """directions to correct, or where phase is wanted."""
    mirrors: Sequence[Mirror] | None
    """deformable mirrors."""


class ReconstructorKeywords(SystemKeywords, total=False):
    """Keys of ``[reconstructor]`` and keywords of :class:`lenslet.System`."""

    method: Literal["auto", "cholesky", "eigen", "iterative"] | None
    """how the covariance is inverted, default "auto"."""
    filter: float | None
    """eigenvalues below this share of the largest are dropped; ≥ 0, < 1, default 0.0."""
    delay: float | None
    """time by which the truth is later than the measurements [s]; 0 to 1, default 0.0."""
    predict: bool | None
    """whether the reconstructor predicts over `delay`, default true."""
    errors_only: bool | None
    """whether errors are wanted without the matrix, default false."""
    tolerance: float | None
    """relative residual of an iterative solution; > 0, < 1, default 1e-6."""
    to: Literal["slopes", "wavefront", "actuators"] | None
    """what is reconstructed, default "slopes"."""


class ImageKeywords(SystemKeywords, total=False):
    """Keys of ``[image]`` and keywords of :class:`lenslet.System`."""

    wavelengths: Sequence[float] | None
    """wavelengths of the images [m]; 1e-9 to 1e-3, default [1.65e-6]."""
    pixel: float | None
    """side of a pixel [mas]; 0.02 to 3.6e6, near λ/D."""
    pixels: int | None
    """pixels across; 1 to 16384, default 256."""
    terms: Sequence[Literal["tomography", "fitting", "bandwidth", "aliasing", "anisoplanatism"]] | None
    """errors that enter."""
    structure: Literal["exact", "stationary"] | None
    """structure function of the tomographic error, default "exact"."""
    extra: float | None
    """rms of an extra error [nm]; 1e-3 to 1e6, or 0, default 0.0."""
    jitter: float | None
    """rms of the image's position along each axis [mas]; 0.01 to 1e6, or 0, default 0.0."""
    ensquared: Sequence[float] | None
    """sides of the boxes of ensquared energy [mas]; 0.02 to 3.6e6, near λ/D, default []."""


class DiffractionPatterns(TypedDict, total=False):
    """Keys of ``[detector.four_d]``: whole diffraction patterns (4D-STEM)."""

    crop: float | None
    """largest angle of the patterns [mrad]; 0.5 to 2000, not far below the semi-angle."""
    bin: int | None
    """pixels that are summed along either side; 1 to 4096, default 1."""


class SegmentedDetector(TypedDict, total=False):
    """Keys of ``[[detector.segmented]]``: annular detectors in sectors."""

    inner: float | None
    """inner angle [mrad]; 0 to 2000, below `outer`."""
    outer: float | None
    """outer angle [mrad]; 0.5 to 2000, not far below the semi-angle."""
    sectors: int | None
    """number of sectors; 1 to 1000, default 4."""
    rotation_deg: float | None
    """direction where the first sector begins [degrees], default 0.0."""


class Aberration(TypedDict, total=False):
    """Keys of ``[[beam.aberrations]]``: further aberrations."""

    m: int | None
    """power of the angle; 1 to 20."""
    n: int | None
    """number of maxima around the axis; ≥ 0, at most m."""
    magnitude: float | None
    """magnitude of the phase [rad]."""
    angle_deg: float | None
    """direction of a maximum [degrees], default 0.0."""


class SampleKeywords(TypedDict, total=False):
    """Keywords of :class:`lenslet.Sample`."""

    file: str | os.PathLike[str] | None
    """crystal: CIF or XYZ."""
    crystal: str | None
    """crystal: the text of a CIF or XYZ file."""
    tile: Sequence[int] | None
    """cells along x, y and z; ≥ 1, default [1, 1, 1]."""
    cell: Sequence[float] | None
    """sides of the cell, in place of the crystal's own [Å]; 1.5 to 1e6."""
    zone_axis: Sequence[int] | None
    """lattice vector that the beam is along; negative ones, too; -1000 to 1000, not all 0."""
    strain: float | None
    """largest cosine between two sides of a cut; 0 to 0.1, default 1e-6."""
    beam_direction: Literal["+x", "-x", "+y", "-y", "+z", "-z"] | None
    """direction of the beam in the cell, default "-z"."""
    occupancy: bool | None
    """whether occupancies are used; else every atom is present, default true."""
    specimen_tilt: Sequence[float] | None
    """tilt of the specimen, x and y [mrad]; -500 to 500, default [0.0, 0.0]."""
    model: Literal["lookup", "projected", "sliced", "sampled"] | None
    """model of the potential, default "projected"."""
    factors: Literal["kirkland", "kirkland-rounded", "lobato"] | None
    """table of scattering factors, default "kirkland"."""
    grid: Sequence[int] | None
    """points along x and y; excludes `pixel`; 4 to 32768, multiples of 4."""
    pixel: float | Sequence[float] | None
    """side of a pixel, along x and y [Å]; 0.005 to 4."""
    slice_thickness: float | None
    """thickness of a slice [Å]; 0.05 to 1000, default 2.0."""
    bound: float | None
    """radius at which an atom's potential is cut off [Å]; 0.5 to 30, default 3.0."""
    planes: int | None
    """planes of a slice, for the model `sampled`; 1 to 10000, default 16."""
    configurations: int | None
    """configurations that are averaged; 0 for atoms at rest; 0 to 1e6, default 0."""
    seed: int | None
    """seed of the displacements; ≥ 0, default 0."""
    rms: dict[str, float] | None
    """displacements of elements, in place of the crystal's."""
    energy: float | None
    """energy of the electrons [eV]."""
    semi_angle: float | None
    """convergence semi-angle of the probe [mrad]; 0.1 to 500, or 0, default 20.0."""
    defocus: float | Sequence[float] | None
    """defocus, or a series of it [Å]; -1e7 to 1e7, default 0.0."""
    c3: float | None
    """spherical aberration of third order [Å]; 0, or of size 100 and more, default 0.0."""
    c5: float | None
    """spherical aberration of fifth order [Å]; 0, or of size 1e4 and more, default 0.0."""
    beam_tilt: Sequence[float] | None
    """tilt of the beam, x and y [mrad]; -500 to 500, default [0.0, 0.0]."""
    aberrations: Sequence[Aberration] | None
    """further aberrations."""
    window: Sequence[Sequence[float]] | None
    """[from, to] along x and along y [Å]; from below to."""
    step: float | Sequence[float] | None
    """step, along x and y [Å]; 0.005 to 1000, default 0.25."""
    source_size: float | None
    """radius of the source's image along each axis, rms [Å]; 0.01 to 1000, or 0, default 0.0."""
    algorithm: Literal["multislice", "prism", "hrtem"] | None
    """scan by multislice or PRISM, or images of a plane wave, default "multislice"."""
    interpolation: int | Sequence[int] | None
    """interpolation factor of PRISM, along x and y; 1 to 1000."""
    interpolation_check: Literal["reject", "warn"] | None
    """what happens if `interpolation` is too large, default "reject"."""
    margin: float | None
    """angle by which PRISM's beams exceed the semi-angle [mrad]; 0.01 to 500, or 0."""
    refocus: float | None
    """distance by which exit waves are propagated back [Å]; -1e7 to 1e7, default 0.0."""
    thicknesses: Sequence[float] | None
    """further thicknesses that are read [Å]; 0.1 to 1e7, default []."""
    bin: float | None
    """width of an annular bin [mrad]; 0.005 to 500, default 1.0."""
    bins: int | None
    """number of annular bins; 1 to 1e6."""
    annuli: Sequence[Sequence[float]] | None
    """inner and outer angles of annular detectors [mrad]; 0 to 2000, inner below outer, default []."""
    centre_of_mass: bool | None
    """whether the centre of mass is recorded, default false."""
    integrated_centre: bool | None
    """whether it is integrated over the scan, default false."""
    dose: float | None
    """electrons at each position of the probe [electrons]; > 0, ≤ 1e15."""
    dose_seed: int | None
    """seed of the noise; ≥ 0, default 0."""
    segmented: Sequence[SegmentedDetector] | None
    """annular detectors in sectors."""
    four_d: DiffractionPatterns | None
    """whole diffraction patterns (4D-STEM)."""
    aperture: float | None
    """semi-angle of the objective aperture [mrad]; 0.1 to 500."""
    imaging_tilt: Sequence[float] | None
    """tilt of the beam against the lens, x and y [mrad]; -500 to 500, default [0.0, 0.0]."""
    focal_spread: float | None
    """spread of the focus, rms [Å]; 0.1 to 1e6, or 0, default 0.0."""
    convergence: float | None
    """angle of the illumination along each axis, rms [mrad]; 1e-3 to 500, or 0, default 0.0."""
    samples: Literal["grid", "mask"] | None
    """samples of the images: of the grid, or of what it keeps, default "grid"."""
    precision: Literal["f32", "f64"] | None
    """precision of waves, default "f32"."""
