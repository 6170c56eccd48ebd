/**
 * Names of Lenslet's results: dimensions, units and meanings of variables whose file format keeps none of them, such as NumPy's.
 */

import type { ArrayEntry, DimensionEntry, FileEntry, VariableEntry } from "./manifest";

interface Meaning {
  /** The whole name. */
  readonly name: RegExp;
  readonly dimensions: readonly string[];
  readonly unit: string;
  readonly longName: string;
}

const meaning = (name: RegExp, dimensions: string, unit: string, longName: string): Meaning => ({
  name,
  dimensions: dimensions.split(" "),
  unit,
  longName,
});

const SCAN = "defocus thickness x y";

/** Known variables by name and number of dimensions; leading dimensions of a series may be missing. */
const MEANINGS: readonly Meaning[] = [
  meaning(/^slope_slope(_\d+)?$/, "star_p star_q slope_a slope_b y x", "rad2", "covariance of slopes"),
  meaning(/^(slope_slope_dense(_\d+)?|slopes_between_\d+_\d+)$/, "slope slope", "rad2", "covariance matrix of slopes"),
  meaning(/^c_mm$/, "slope slope", "rad2", "covariance matrix of slopes, with noise"),
  meaning(/^wavefront_slope(_\d+)*$/, "target_t star_q slope_a y x", "m rad", "covariance of wavefront and slopes"),
  meaning(/^wavefront_slope_dense(_\d+)?$/, "target y x slope", "m rad", "covariance of wavefront and slopes"),
  meaning(/^wavefront_wavefront$/, "target_t target_u y x", "m2", "covariance of wavefronts"),
  meaning(/^wavefront$/, "frame target y x", "m", "wavefronts"),
  meaning(/^error_map(_without_tilt)?$/, "target y x", "m2", "variance of the wavefront's error"),
  meaning(/^reconstructor$/, "target row slope", "", "reconstructor"),
  meaning(/^error_covariance$/, "target slope slope", "rad2", "covariance of the errors"),
  meaning(/^(valid|truth_valid)(_\d+)?$/, "y x", "", "valid subapertures"),
  meaning(/^(directions|target_directions)$/, "star component", "rad", "directions on the sky"),
  meaning(/^psf(_\d+)?$/, "wavelength target y x", "", "point-spread function"),
  meaning(/^(open_loop|diffraction)$/, "y x", "", "point-spread function"),
  meaning(/^field_error$/, "term y x", "m", "wavefront error"),
  meaning(/^field_(strehl|fwhm|ensquared_\d+)$/, "wavelength y x", "", ""),
  meaning(/^eigenvalues$/, "eigenvalue", "rad2", "eigenvalues of the covariance of the measurements"),
  meaning(/^slopes$/, "frame slope", "rad", "slopes"),
  meaning(/^(standard_error_)?(annulus_\d+|idpc)$/, SCAN, "", ""),
  meaning(/^image$|^standard_error_image$/, SCAN, "", "image"),
  meaning(/^(annular|standard_error)$/, `${SCAN} angle`, "", "electrons by angle"),
  meaning(/^(standard_error_)?segmented_\d+$/, `${SCAN} sector`, "", "segmented detector"),
  meaning(/^(standard_error_)?centre_of_mass$/, `${SCAN} axis`, "1/Å", "centre of mass"),
  meaning(/^(standard_error_)?four_d$/, `${SCAN} qx qy`, "", "diffraction patterns"),
  meaning(/^potential$/, "x y slice", "V Å", "projected potential"),
  meaning(/^probe$/, "defocus x y", "", "probe"),
  meaning(/^wave$/, "thickness x y", "", "exit wave"),
  meaning(/^smatrix$/, "beam x y", "", "S-matrix"),
];

const UNITS: Readonly<Record<string, string>> = {
  x: "Å", y: "Å", defocus: "Å", thickness: "Å", slice: "Å", angle: "mrad", qx: "1/Å", qy: "1/Å", q: "1/Å",
};

/** Dimensions, unit and meaning of a variable: those of the file, else by its name. */
export function dimensionsByName(
  variable: VariableEntry,
  array: ArrayEntry,
  file: FileEntry,
): { readonly dimensions: readonly DimensionEntry[]; readonly unit: string; readonly longName: string } {
  const rank = array.shape.length;
  const known = MEANINGS.find((one) => one.name.test(variable.name) && (one.dimensions.length === rank || leads(one, rank)));
  const { unit, longName } = known ?? { unit: "", longName: "" };
  if (array.dimensions.length === rank) {
    return { dimensions: array.dimensions, unit, longName };
  }
  const names = known?.dimensions.slice(known.dimensions.length - rank) ?? defaultNames(rank);
  return { dimensions: names.map((name, k) => samplesByName(variable.name, name, array, k, file)), unit, longName };
}

/** Whether dimensions of a series, which come first, may be missing. */
function leads({ dimensions }: Meaning, rank: number): boolean {
  const series = ["defocus", "thickness", "wavelength", "frame", "target"];
  return rank < dimensions.length && rank > 0 && dimensions.slice(0, dimensions.length - rank).every((name) => series.includes(name));
}

function defaultNames(rank: number): string[] {
  const last = rank === 1 ? ["sample"] : ["y", "x"];
  return [...Array.from({ length: Math.max(rank - 2, 0) }, (_, k) => `axis_${k}`), ...last];
}

/** A dimension whose samples another array of the file lists: one named like it, after its variable where two differ. */
function samplesByName(variable: string, name: string, array: ArrayEntry, k: number, file: FileEntry): DimensionEntry {
  const index: DimensionEntry = { name, unit: "", positions: { kind: "index" }, navigation: false };
  for (const candidate of [`${variable}_${name}`, name]) {
    const listed = file.variables.find((one) => one.name === candidate)?.values;
    if (listed?.kind === "array" && listed.samples !== undefined && listed.samples.length === array.originalShape[k]) {
      const values = binned(listed.samples, array.binning[k] ?? 1);
      return { ...index, unit: UNITS[name] ?? "", positions: positionsOf(values) };
    }
    if (listed?.kind === "text" && listed.text.split(", ").length === array.shape[k]) {
      return { ...index, positions: { kind: "labels", labels: listed.text.split(", ") } };
    }
  }
  return index;
}

/** Positions of listed samples: uniform where they are equally spaced. */
function positionsOf(values: readonly number[]): DimensionEntry["positions"] {
  const [offset, last] = [values[0], values[values.length - 1]];
  const step = values.length > 1 ? (last - offset) / (values.length - 1) : 0;
  const far = Math.max(Math.abs(offset), Math.abs(last));
  const isUniform = step !== 0 && values.every((x, k) => Math.abs(x - offset - step * k) <= 1e-9 * far);
  return isUniform ? { kind: "uniform", offset, step } : { kind: "values", values };
}

function binned(samples: readonly number[], by: number): number[] {
  const count = Math.ceil(samples.length / by);
  return Array.from({ length: count }, (_, k) => {
    const part = samples.slice(k * by, (k + 1) * by);
    return part.reduce((sum, x) => sum + x, 0) / part.length;
  });
}
