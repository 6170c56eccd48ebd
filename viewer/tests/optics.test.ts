/** Numerics of adaptive optics, compared with NumPy's numbers (expected/optics.py writes expected/optics.json). */

import assert from "node:assert/strict";
import { test } from "node:test";
import { budgetOf, budgetsOfTable, marechal, percentages } from "../src/optics/budget";
import { openFiles, type DataFile } from "../src/data";
import { isoLines, peak, rings, statistics } from "../src/optics/maps";
import { shownMatrix } from "../src/optics/matrix";
import { mosaic, tileAt } from "../src/optics/mosaic";
import { airyRadius, encircled, ensquared, fwhm } from "../src/optics/psf";
import { psfFacts } from "../src/optics/psf_facts";
import { meansByDisplacement, slopeCovariances } from "../src/optics/slope_covariance";
import { SlopeOrder, slopeOrder, starRms, type Slope } from "../src/optics/slope_order";
import { filterOfMethod, spectrumOf } from "../src/optics/spectrum";
import { directionsOf, systemFacts } from "../src/optics/system";
import { overPupil, pupilMask } from "../src/optics/wavefront";
import { encodeFiles, type FileSpec } from "./browser/pages";
import expected from "./expected/optics.json";

/** Numbers without a pattern: sin(a k + b cos k). */
const wave = (count: number, a: number, b: number) => Float64Array.from({ length: count }, (_, k) => Math.sin(a * k + b * Math.cos(k)));

function near(found: ArrayLike<number>, wanted: readonly (number | null)[], tolerance = 1e-12): void {
  assert.equal(found.length, wanted.length);
  wanted.forEach((one, k) => {
    if (one === null) {
      assert.ok(Number.isNaN(found[k]), `${k}: ${found[k]} in place of NaN`);
    } else {
      assert.ok(Math.abs(found[k] - one) <= tolerance * Math.max(Math.abs(one), 1), `${k}: ${found[k]} in place of ${one}`);
    }
  });
}

/** The data set of a page with these variables. */
function open(variables: FileSpec["variables"]): DataFile {
  const { manifest, parts } = encodeFiles([{ name: "test", variables }]);
  const none = () => Promise.reject(new Error("no server"));
  return openFiles(manifest, { text: async (id) => parts.get(id), fetch: none, request: none })[0];
}

const lattice = (n: number, pitch: number, star: number, skip: readonly number[] = []): Slope[] =>
  [0, 1].flatMap((axis) =>
    Array.from({ length: n * n }, (_, k) => k).filter((k) => !skip.includes(k)).map((k): Slope => {
      const [row, column] = [Math.floor(k / n), k % n];
      return { star, axis, row, column, x: (column - (n - 1) / 2) * pitch, y: (row - (n - 1) / 2) * pitch };
    }),
  );

const table = (slopes: readonly Slope[]): FileSpec["variables"][number] => ({
  name: "slope_table",
  columns: (["star", "axis", "row", "column", "x", "y"] as const).map((name) => ({ name, unit: "", values: slopes.map((one) => one[name]) })),
});

test("rings and statistics leave out what is not finite", () => {
  const map = { values: wave(63, 0.7, 1.3), nx: 9, ny: 7 };
  map.values[2 * 9 + 3] = NaN;
  for (const [found, wanted] of [[rings(map, 4, 3), expected.rings], [rings(map, 3.5, 2.5), expected.rings_between]] as const) {
    near(found.radius, wanted.radius);
    near(found.mean, wanted.mean);
  }
  const { min, max, mean, rms, deviation } = statistics(map.values);
  near([min, max, mean, rms, deviation], expected.statistics);
  assert.equal(peak(Float64Array.of(NaN, 1, -3, 2)), 2);
});

test("iso-lines of a cone are circles, closed inside and open at the rim", () => {
  const n = 21;
  const values = Float64Array.from({ length: n * n }, (_, k) => Math.hypot((k % n) - 10, Math.floor(k / n) - 9));
  const [line, ...more] = isoLines({ values, nx: n, ny: n }, 6);
  assert.equal(more.length, 0);
  assert.deepEqual(line[0].map((one) => one.toFixed(9)), line[line.length - 1].map((one) => one.toFixed(9)));
  assert.ok(line.length > 40 && line.every(([x, y]) => Math.abs(Math.hypot(x - 10, y - 9) - 6) < 0.02));
  assert.equal(isoLines({ values, nx: n, ny: n }, 10.5).length, 3); // three rims of the map cut the circle
  assert.equal(isoLines({ values, nx: n, ny: n }, 100).length, 0);
  // A saddle: the mean of the cell decides which corners are joined.
  const saddle = isoLines({ values: Float64Array.of(1, 0, 0, 1.2), nx: 2, ny: 2 }, 0.5);
  assert.equal(saddle.length, 2);
});

test("wavefronts lose piston, tip and tilt over a lopsided pupil", () => {
  const values = wave(144, 0.31, 2.1).map((one, k) => 1e-7 * one + 3e-8 * (k % 12) - 1e-8 * Math.floor(k / 12));
  const mask = pupilMask(12, 0.25, 3, 0.25);
  const wanted = expected.wavefront;
  assert.equal(mask.reduce((sum, one) => sum + one, 0), expected.pupil);
  for (let j = 0; j < 3; j++) {
    mask.fill(0, 12 * j, 12 * j + 5);
  }
  const over = (piston: boolean, tipTilt: boolean) => overPupil(values, 12, mask, { piston, tipTilt }, 1e9);
  const plane = over(true, true);
  assert.equal(plane.values.filter(Number.isFinite).length, wanted.points);
  near([over(false, false).mean, over(false, false).rms, over(true, false).rms, plane.rms, over(false, true).rms], [wanted.mean, wanted.rms, wanted.rms_piston, wanted.rms_plane, wanted.rms_tilt_only], 1e-9);
  near([...plane.tilt, plane.peakToValley], [...wanted.tilt, wanted.peak_to_valley], 1e-9);
});

/** The image of expected/optics.py: an ellipse turned from x to y, and a little light elsewhere. */
function ellipse(n: number, rest: number): Float64Array {
  const more = wave(n * n, 1.1, 0.4);
  return more.map((one, k) => {
    const [u, v] = [(k % n) - n / 2, Math.floor(k / n) - n / 2];
    return 0.02 * Math.exp(-0.5 * (((u * 0.8 + v * 0.6) / 2.3) ** 2 + ((v * 0.8 - u * 0.6) / 1.6) ** 2)) + rest * one ** 2;
  });
}

test("light in circles and boxes counts parts of pixels", () => {
  const psf = { values: ellipse(16, 1e-4), n: 16, centre: 8 };
  const { radii, encircled: circles, ensquared: boxes } = expected.energy;
  // Parts of a 200th of a pixel decide NumPy's numbers to some 1e-4 of the light of a pixel on the rim.
  near(encircled(psf, radii), circles, 2e-5);
  near(ensquared(psf, radii.map((r) => 2 * r)), boxes, 2e-4);
  near([encircled({ values: new Float64Array(25).fill(1), n: 5, centre: 2 }, [2.5])[0]], [Math.PI * 2.5 ** 2], 1e-12);
});

test("the width of a Gaussian is that of its half maximum", () => {
  const width = fwhm({ values: ellipse(32, 0), n: 32, centre: 16 });
  assert.ok(width);
  // Polynomials between pixels follow this narrow a Gaussian to a thousandth of its width.
  near([width.major, width.minor, width.angle], expected.width, 1.2e-3);
  near([width.mean], [Math.sqrt(width.major * width.minor)]);
  assert.equal(fwhm({ values: new Float64Array(64).fill(1), n: 8, centre: 4 }), undefined);
  near([airyRadius(1.65e-6, 8)], [(1.2196698912665 * 1.65e-6) / 8 / (Math.PI / 648e6)], 1e-12);
});

test("a matrix gives means by displacement on one lattice, and between a lattice and a coarser one that is turned", () => {
  for (const [{ rows, columns, half, means }, step, exact] of [[expected.lattice, 0.5, true], [expected.turned, 0.7, false]] as const) {
    const at = (list: readonly (readonly number[])[]) => list.map(([x, y]) => ({ x, y }));
    // Columns of the matrix begin at the third.
    const width = columns.length + 3;
    const numbers = wave(rows.length * columns.length, 0.9, 0.6);
    const matrix = Float64Array.from({ length: rows.length * width }, (_, k) => (k % width < 3 ? NaN : numbers[Math.floor(k / width) * columns.length + (k % width) - 3]));
    const map = meansByDisplacement(matrix, width, at(rows), at(columns), 3, step);
    assert.equal(map.nx, 2 * half + 1);
    assert.equal(map.exact, exact);
    near(map.values, means);
    near(map.origin, [-half * step, -half * step]);
  }
});

test("covariances are the same in Toeplitz, dense and block form", async () => {
  const [n, pitch, stars] = [3, 0.5, 2];
  const order = new SlopeOrder([...lattice(n, pitch, 0, [0, 1]), ...lattice(n, pitch, 1, [0, 1])]);
  const lags = 2 * n - 1;
  const shape = [stars, stars, 2, 2, lags, lags];
  // By displacement, with the symmetry of a covariance: (p, q, a, b, d) = (q, p, b, a, −d).
  const value = (p: number, q: number, a: number, b: number, j: number, i: number): number =>
    p > q || (p === q && (a > b || (a === b && (j < 0 || (j === 0 && i < 0))))) ? value(q, p, b, a, -j, -i) : Math.sin(1 + p + 2 * q + 3 * a + 5 * b + 0.7 * j + 1.9 * i);
  const toeplitz = new Float64Array(shape.reduce((all, one) => all * one, 1));
  for (let k = 0; k < toeplitz.length; k++) {
    const [i, j, b, a, q, p] = [k % lags, Math.floor(k / lags) % lags, Math.floor(k / lags ** 2) % 2, Math.floor(k / (2 * lags ** 2)) % 2, Math.floor(k / (4 * lags ** 2)) % 2, Math.floor(k / (8 * lags ** 2))];
    toeplitz[k] = value(p, q, a, b, j - n + 1, i - n + 1);
  }
  const entry = (s: Slope, t: Slope) => value(s.star, t.star, s.axis, t.axis, t.row - s.row, t.column - s.column);
  const matrix = (rows: readonly Slope[], columns: readonly Slope[]) => Float64Array.from(rows.flatMap((s) => columns.map((t) => entry(s, t))));
  const of = (star: number) => order.of([star]).slopes;
  const m = of(0).length;
  const files = {
    toeplitz: open([{ name: "slope_slope", shape, values: toeplitz }, { name: "pitch", shape: [2], values: [pitch, pitch] }]),
    dense: open([{ name: "slope_slope_dense", shape: [2 * m, 2 * m], values: matrix(order.slopes, order.slopes) }, table(order.slopes)]),
    blocks: open([
      { name: "slope_slope_0", shape: [1, 1, 2, 2, lags, lags], values: toeplitz.slice(0, 4 * lags ** 2) },
      { name: "slope_slope_dense_1", shape: [m, m], values: matrix(of(1), of(1)) },
      { name: "slopes_between_0_1", shape: [m, m], values: matrix(of(0), of(1)) },
      { name: "star_set", shape: [2], values: [0, 1], type: "i64" },
      table(order.slopes),
    ]),
  };
  const sources = Object.fromEntries(await Promise.all(Object.entries(files).map(async ([name, file]) => [name, (await slopeCovariances(file))[0]] as const)));
  for (const form of ["dense", "blocks"]) {
    for (let k = 0; k < 16; k++) {
      const at = [k >> 3, (k >> 2) & 1, (k >> 1) & 1, k & 1] as const;
      const [map, whole] = await Promise.all([sources[form].map(...at), sources["toeplitz"].map(...at)]);
      assert.deepEqual([map.nx, map.ny, map.step, ...map.origin], [lags, lags, pitch, -1, -1], `${form} ${at}`);
      // No two lenslets in use have the largest displacements along both axes.
      const seen = [...map.values.keys()].filter((one) => Number.isFinite(map.values[one]));
      assert.ok(seen.length >= lags ** 2 - 4);
      near(seen.map((one) => map.values[one]), seen.map((one) => whole.values[one]));
    }
  }
  assert.equal(sources["blocks"].stars, 2);
});

test("the order of slopes follows from a table, or from masks of lenslets", async () => {
  const slopes = [...lattice(3, 0.5, 0, [4]), ...lattice(2, 0.75, 1)];
  const byTable = await slopeOrder(open([table(slopes)]));
  const mask = (n: number, skip: readonly number[]) => ({ shape: [n, n], type: "bool" as const, values: Array.from({ length: n * n }, (_, k) => (skip.includes(k) ? 0 : 1)) });
  const byMasks = await slopeOrder(open([{ name: "valid_0", ...mask(3, [4]) }, { name: "valid_1", ...mask(2, []) }, { name: "pitch", shape: [2], values: [0.5, 0.75] }]));
  assert.deepEqual(byTable?.slopes, slopes);
  assert.deepEqual(byMasks?.slopes, slopes);
  assert.deepEqual(byTable?.boundaries(), [{ at: 8, star: false }, { at: 16, star: true }, { at: 20, star: false }]);
  assert.deepEqual([byTable?.pitch(0), byTable?.pitch(1), byTable?.across(0)], [0.5, 0.75, 3]);
  const map = byTable?.map(Float64Array.from({ length: 24 }, (_, k) => k), 0, 1);
  near(map ?? [], [8, 9, 10, 11, null, 12, 13, 14, 15]);
  assert.equal(await slopeOrder(open([{ name: "pitch", shape: [1], values: [0.5] }])), undefined);
  const vector = wave(10, 0.8, 0.2).map((one, k) => 1e-6 * one + (k < 5 ? 2e-7 : -5e-7));
  const line = new SlopeOrder([0, 1].flatMap((axis) => Array.from({ length: 5 }, (_, column): Slope => ({ star: 0, axis, row: 0, column, x: column, y: 0 }))));
  near([1e6 * starRms(vector, line, 0, false), 1e6 * starRms(vector, line, 0, true)], expected.slopes.map((one) => 1e6 * one));
});

test("eigenvalues are kept above the filter", () => {
  const { values, condition, kept } = expected.spectrum;
  const spectrum = spectrumOf(Float64Array.from(values), 0.01);
  near([spectrum.condition], [condition], 1e-9);
  assert.equal(spectrum.kept, kept);
  near([spectrum.threshold], [0.01 * Math.max(...values)]);
  const rounding = spectrumOf(Float64Array.of(2, -1e-18, 1, 0, 4), 0);
  assert.deepEqual([rounding.kept, rounding.negative, rounding.condition, rounding.values[0]], [3, 2, 4, 4]);
  assert.equal(filterOfMethod("eigenvectors, filtered at 5.2e-14"), 5.2e-14);
  assert.equal(filterOfMethod("Cholesky's factor"), undefined);
});

test("budgets add variances with their signs", () => {
  const { total, percent, marechal: strehl } = expected.budget;
  const rms = [90.116, 53.797, 116.18, -34.702];
  const terms = ["tomography", "noise", "fitting", "covariance"].map((name, k) => ({ name, rms: rms[k] }));
  const budget = budgetOf("target 0", terms);
  near([budget.total, ...percentages(budget), marechal(budget.total, 1.65e-6)], [total, ...percent, strehl]);
  const rows = [...terms, { name: "total", rms: total }, { name: "fitting", rms: 1 }];
  const column = (name: string, unit: string, values: readonly (number | string)[]) => ({ name, unit, values });
  const found = budgetsOfTable({ kind: "table", name: "budget", longName: "", columns: [column("target", "", [0, 0, 0, 0, 0, 1]), column("term", "", rows.map(({ name }) => name)), column("rms", "m", rows.map((one) => 1e-9 * one.rms))] });
  assert.deepEqual(found.map(({ label }) => label), ["target 0", "target 1"]);
  near([found[0].total, found[1].total, found[0].terms.length], [total, 1, 4], 1e-9);
});

test("a system's text is read as far as it goes", async () => {
  const facts = systemFacts(`# a # comment with [brackets]
[telescope]
diameter = 8.0 # m
obstruction = 0.2
name = "a # no comment [x]"
[lenslet_array]
lenslets = 1_0
[[guide_star]]
zenith = 20.0
azimuth = 90
height = inf
[[guide_star]]
layers = [ { altitude = 1 },
  { altitude = 2 } ]
zenith = 10.0
[[target]]
[image]
wavelengths = [
  1.25e-6, # J
  1.65e-6,
]
pixel = 15.0
[phase]
oversampling = 2
`);
  assert.deepEqual([facts.diameter, facts.obstruction, facts.pitch, facts.wavefrontStep, facts.pixel, facts.wavelengths], [8, 0.2, 0.8, 0.4, 15, [1.25e-6, 1.65e-6]]);
  near(facts.guideStars.flatMap(({ x, y }) => [x, y]), [0, 20, 10, 0]);
  assert.deepEqual(facts.targets, [{ x: 0, y: 0 }]);
  assert.equal(systemFacts("diameter = [[[\n]] = \u0000").diameter, undefined);
  const file = open([{ name: "directions", shape: [1, 2], values: [Math.PI / 648_000, -2 * (Math.PI / 648_000)] }]);
  near((await directionsOf(file, ["guide_star_directions", "directions"], [])).flatMap(({ x, y }) => [x, y]), [1, -2]);
});

test("cards of TIPTOP are read at one wavelength and at several", () => {
  const image = { name: "psf", values: new Float64Array(32) };
  const one = open([{ ...image, shape: [2, 4, 4], attributes: { WL_NM: "1650", PIX_MAS: "15", CCX0001: -30, CCY0001: 4, SR0001: 0.534, FWHM0001: 88.2, EE750001: 0.42, RESH0001: 209 } }]);
  const facts = psfFacts(one, one.arrays()[0], 1);
  near([facts.wavelengths[0] ?? NaN], [1.65e-6]);
  assert.deepEqual([facts.pixel, facts.direction(1), facts.strehl(1, 0), facts.fwhm(1, 0), facts.residual(1), facts.ensquared(1, 0)], [15, [-30, 4], 0.534, 88.2, 209, [150, 0.42]]);
  assert.deepEqual([facts.strehl(0, 0), facts.ensquared(0, 0), facts.direction(0)], [undefined, undefined, undefined]);
  const two = open([{ ...image, shape: [2, 1, 4, 4], attributes: { wl_nm000: "1250", wl_nm001: "2200", sr00w01: 0.79, fw00w01: 114, ee00w01: 0.5 } }]);
  const both = psfFacts(two, two.arrays()[0], 2);
  assert.deepEqual([both.strehl(0, 1), both.fwhm(0, 1), both.ensquared(0, 1), both.strehl(0, 0)], [0.79, 114, [undefined, 0.5], undefined]);
});

test("tiles and large matrices keep their numbers", async () => {
  const tile = (label: string, nx: number, ny: number, first: number) => ({ label, nx, ny, values: Float64Array.from({ length: nx * ny }, (_, k) => first + k) });
  const all = mosaic([[tile("a", 2, 2, 0), tile("b", 1, 1, 10)], [tile("c", 2, 1, 20)]]);
  assert.deepEqual([all.nx, all.ny], [4, 4]);
  near(all.values, [20, 21, null, null, null, null, null, null, 0, 1, null, 10, 2, 3, null, null]);
  assert.equal(tileAt(all, 3, 2)?.label, "b");
  assert.equal(tileAt(all, 2, 2), undefined);
  const values = Float64Array.from({ length: 2 * 5 * 4 }, (_, k) => (k % 3 === 0 ? -k : k));
  const array = open([{ name: "m", shape: [2, 5, 4], values }]).arrays()[0];
  const whole = await shownMatrix(array, [1], () => false);
  assert.deepEqual([...(whole?.values ?? [])], [...values.slice(20)]);
  const parts = await shownMatrix(array, [1], () => false, 3);
  assert.deepEqual([parts?.rows, parts?.columns, [...(parts?.values ?? [])]], [3, 2, [25, -27, -33, 35, 37, -39]]);
  assert.equal(await shownMatrix(array, [0], () => true), undefined);
});
