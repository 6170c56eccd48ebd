import assert from "node:assert/strict";
import { test } from "node:test";
import { dimensionsByName } from "../src/conventions";
import { encodeFiles, type FileSpec, uniform } from "./browser/pages";

function named(name: string, shape: number[], others: FileSpec["variables"] = [], more = {}) {
  const { manifest } = encodeFiles([{ name: "f.npz", variables: [{ name, shape, values: new Float64Array(shape.reduce((a, b) => a * b, 1)), ...more }, ...others] }]);
  const [file] = manifest.files;
  const [variable] = file.variables;
  if (variable.values.kind !== "array") {
    throw new Error("not an array");
  }
  return dimensionsByName(variable, variable.values, file);
}

const names = (name: string, shape: number[]) => named(name, shape).dimensions.map((one) => one.name).join(" ");

test("dimensions of results by name and number of dimensions", () => {
  assert.equal(names("slope_slope", [1, 1, 2, 2, 3, 3]), "star_p star_q slope_a slope_b y x");
  assert.equal(names("slope_slope_3", [1, 1, 2, 2, 3, 3]), "star_p star_q slope_a slope_b y x");
  assert.equal(names("four_d", [2, 3, 4, 4]), "x y qx qy");
  assert.equal(names("four_d", [2, 2, 3, 4, 4]), "thickness x y qx qy");
  assert.equal(names("four_d", [2, 2, 2, 3, 4, 4]), "defocus thickness x y qx qy");
  assert.equal(names("standard_error_segmented_1", [3, 4, 2]), "x y sector");
  assert.equal(names("psf", [4, 4]), "y x");
  assert.equal(names("psf_2", [2, 4, 4]), "target y x");
  assert.equal(names("potential", [4, 4, 3]), "x y slice");
});

test("other arrays have axes by number", () => {
  assert.equal(names("unheard_of", [5]), "sample");
  assert.equal(names("unheard_of", [5, 6]), "y x");
  assert.equal(names("unheard_of", [2, 3, 5, 6]), "axis_0 axis_1 y x");
  assert.equal(names("psf", [2]), "sample");
  assert.equal(names("unheard_of", []), "");
});

test("a part of a covariance is no covariance of that name", () => {
  assert.equal(names("slope_slope", [3, 3]), "y x");
});

test("samples are those that another array lists", () => {
  const found = named("four_d", [2, 3, 4, 4], [
    { name: "x", shape: [2], values: [0, 0.5] }, { name: "y", shape: [3], values: [0, 1, 3] },
    { name: "four_d_qx", shape: [4], values: [-2, -1, 0, 1] }, { name: "qx", shape: [4], values: [9, 9, 9, 9] }, { name: "qy", shape: [5], values: [0, 0, 0, 0, 0] },
  ]).dimensions;
  assert.deepEqual(found[0], { name: "x", unit: "Å", positions: { kind: "uniform", offset: 0, step: 0.5 }, navigation: false });
  assert.deepEqual(found[1].positions, { kind: "values", values: [0, 1, 3] });
  assert.deepEqual(found[2].positions, { kind: "uniform", offset: -2, step: 1 });
  assert.deepEqual(found[3].positions, { kind: "index" });
});

test("listed samples of a binned array are means", () => {
  const found = named("four_d", [2, 2, 2, 2], [{ name: "qx", shape: [5], values: [0, 1, 2, 3, 4] }], { originalShape: [2, 2, 5, 2], binning: [1, 1, 3, 1] }).dimensions;
  assert.deepEqual(found[2].positions, { kind: "uniform", offset: 1, step: 2.5 });
});

test("labels are those of a text", () => {
  const found = named("segmented_0", [2, 2, 3], [{ name: "sector", text: "a, b, c" }]).dimensions;
  assert.deepEqual(found[2].positions, { kind: "labels", labels: ["a", "b", "c"] });
});

test("dimensions of the file come first, with the unit of the name where it has none", () => {
  const own = [uniform("u", "nm", 0, 1), uniform("v", "nm", 0, 1)];
  const found = named("wavefront_wavefront", [2, 2], [], { dimensions: own });
  assert.deepEqual(found.dimensions, own);
  assert.equal(named("slopes", [2, 2]).unit, "rad");
});
