import assert from "node:assert/strict";
import { test } from "node:test";
import { Dimension } from "../src/data";
import type { DimensionEntry } from "../src/manifest";
import { Axis, niceStep, niceTicks, printedUnit, quantity, scaleBar, scaleTicks, title } from "../src/views/axes";
import { interpolate, linePoints, profileTable } from "../src/views/profile";
import { Scale } from "../src/views/scale";

const axis = (positions: DimensionEntry["positions"], count: number, unit = "m", name = "x_axis") => new Axis(new Dimension({ name, unit, positions, navigation: false }, count));

test("positions and sample numbers are inverse to each other", () => {
  const all = [
    axis({ kind: "uniform", offset: -2, step: 0.5 }, 9),
    axis({ kind: "uniform", offset: 3, step: -0.25 }, 9),
    axis({ kind: "values", values: [0, 1, 3, 10] }, 4),
    axis({ kind: "values", values: [5, 2, 1.5, -4] }, 4),
    axis({ kind: "index" }, 9),
    axis({ kind: "labels", labels: ["a", "b"] }, 2),
  ];
  for (const one of all) {
    for (const index of [-0.5, 0, 0.3, 1, 2.75]) {
      assert.ok(Math.abs(one.index(one.position(index)) - index) < 1e-12);
    }
  }
  assert.equal(all[2].position(1.5), 2);
  assert.equal(all[4].unit, undefined);
  assert.equal(all[0].unit, "m");
});

test("positions that make no sense are sample numbers", () => {
  for (const positions of [{ kind: "uniform", offset: 0, step: 0 }, { kind: "uniform", offset: NaN, step: 1 }, { kind: "values", values: [1, 1, 2] }, { kind: "values", values: [0, 2, 1] }] as const) {
    assert.equal(axis(positions, 3).position(2), 2);
    assert.equal(axis(positions, 3).unit, undefined);
  }
});

test("ticks are round numbers within the range, with the power of ten in the title", () => {
  assert.equal(niceStep(0.3), 0.5);
  assert.equal(niceStep(2), 2);
  assert.equal(niceStep(7), 10);
  assert.deepEqual(niceTicks(-1, 1, 5).values, [-1, -0.5, 0, 0.5, 1]);
  const small = axis({ kind: "uniform", offset: -2e-6, step: 1e-7 }, 41, "rad").ticks(-0.5, 40.5, 5);
  assert.deepEqual(small.ticks.map(({ label }) => label), ["−2", "−1", "0", "1", "2"]);
  assert.deepEqual(small.ticks.map(({ where }) => Math.round(where)), [0, 10, 20, 30, 40]);
  assert.equal(small.title, "x axis [10⁻⁶ rad]");
  const labels = axis({ kind: "labels", labels: ["bright field", "annular dark field", "c", "d"] }, 4).ticks(-0.5, 3.5, 9);
  assert.deepEqual(labels.ticks.map(({ label }) => label), ["bright field", "annular dar…", "c", "d"]);
  assert.deepEqual(niceTicks(1, 1, 4).values, [1]);
  assert.deepEqual(niceTicks(NaN, NaN, 4).values, []);
  assert.ok(niceTicks(0, 1e300, 6).values.length <= 7);
});

test("ticks of a colour bar lie in the limits, apart from each other", () => {
  for (const scale of [new Scale("linear", -3, 4), new Scale("sqrt", 0, 9), new Scale("log", 1e-6, 1), new Scale("log", -2, 2), new Scale("log", 5.1, 5.4), new Scale("sqrt", -1e-12, 1e-12)]) {
    const { ticks } = scaleTicks(scale, 0.1);
    assert.ok(ticks.length >= 2, `${scale.name} ${scale.lo} has ${ticks.length} ticks`);
    for (const { at } of ticks) {
      assert.ok(at >= -1e-9 && at <= 1 + 1e-9);
    }
    const sorted = ticks.map(({ at }) => at).sort((a, b) => a - b);
    sorted.slice(1).forEach((at, k) => assert.ok(at - sorted[k] > 0.03));
  }
  const labels = scaleTicks(new Scale("log", 1e-6, 1), 0.12).ticks.map(({ label }) => label);
  assert.ok(["1", "0.1", "0.01", "10⁻³", "10⁻⁴", "10⁻⁵", "10⁻⁶"].every((one) => labels.includes(one)), labels.join());
  assert.ok(scaleTicks(new Scale("log", -2, 2), 0.1).ticks.some(({ label, at }) => label === "0" && Math.abs(at - 0.5) < 1e-12));
});

test("scale bars are round, and in a unit of readable size", () => {
  assert.deepEqual(scaleBar(12, "Å"), { length: 5, label: "5 Å" });
  assert.equal(scaleBar(3e-6, "rad")?.label, "0.5 arcsec");
  assert.equal(scaleBar(3e-7, "rad")?.label, "50 mas");
  assert.equal(scaleBar(3e-9, "m")?.label, "2 nm");
  assert.equal(scaleBar(2, "rad2"), undefined);
  assert.equal(scaleBar(0, "m"), undefined);
});

test("units are printed with raised powers", () => {
  assert.equal(printedUnit("rad2"), "rad²");
  assert.equal(printedUnit("1/Å"), "1/Å");
  assert.equal(printedUnit("Å-2"), "Å⁻²");
  assert.equal(quantity(-0.5, "m2"), "−0.5 m²");
  assert.equal(title("covariance", "rad2", -13), "covariance [10⁻¹³ rad²]");
  assert.equal(title("row", ""), "row");
});

test("interpolation is bilinear, and NaN spreads only where it has a weight", () => {
  const values = Float64Array.of(0, 1, 2, 10, 11, NaN);
  assert.equal(interpolate(values, 3, 2, 0.5, 0), 0.5);
  assert.equal(interpolate(values, 3, 2, 0.25, 0.5), 5.25);
  assert.equal(interpolate(values, 3, 2, 1, 1), 11);
  assert.equal(interpolate(values, 3, 2, -0.4, 0), 0);
  assert.equal(interpolate(values, 3, 2, 2, 0), 2);
  assert.ok(Number.isNaN(interpolate(values, 3, 2, 1.5, 0.5)));
  assert.ok(Number.isNaN(interpolate(values, 3, 2, 3, 0)));
  assert.equal(interpolate(Float64Array.of(7), 1, 1, 0.3, -0.2), 7);
  const plane = Float64Array.from({ length: 20 }, (_, k) => 3 * (k % 5) - 2 * Math.floor(k / 5));
  for (const { i, j } of linePoints(0.2, 0.1, 3.7, 2.9)) {
    assert.ok(Math.abs(interpolate(plane, 5, 4, i, j) - (3 * i - 2 * j)) < 1e-12);
  }
});

test("a line has a point a sample, from end to end", () => {
  const points = linePoints(0, 0, 3, 4);
  assert.equal(points.length, 6);
  assert.deepEqual(points[5], { t: 1, i: 3, j: 4 });
  assert.equal(linePoints(1, 1, 1, 1).length, 2);
  assert.equal(linePoints(0, 0, 1e7, 0).length, 2000);
});

test("the table of a profile has its units", () => {
  const numbers = Float64Array.of(0, 1);
  const table = profileTable({ length: numbers, x: numbers, y: numbers, values: numbers, unit: "Å", quantity: "potential", valueUnit: "V Å" }, "x [Å]", "y [Å]");
  assert.deepEqual(table.columns, ["length [Å]", "x [Å]", "y [Å]", "potential [V Å]"]);
  assert.deepEqual(table.rows[1], [1, 1, 1, 1]);
});
