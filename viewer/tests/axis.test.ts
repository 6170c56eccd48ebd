import assert from "node:assert/strict";
import { test } from "node:test";
import { around, atFraction, fraction, linearTicks, logTicks, tickLabels } from "../src/views/axis";

test("ticks are round numbers within the limits", () => {
  assert.deepEqual(linearTicks([0, 10], 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(linearTicks([-0.31, 0.29], 6), [-0.3, -0.2, -0.1, 0, 0.1, 0.2]);
  assert.deepEqual(linearTicks([1, 1], 5), []);
  assert.deepEqual(linearTicks([NaN, 1], 5), []);
  for (const scale of [1e-300, 1e-12, 1, 1e9, 1e300]) {
    for (const about of [2, 5, 9]) {
      const ticks = linearTicks([-1.3 * scale, 2.7 * scale], about);
      assert.ok(ticks.length >= 1 && ticks.length <= 2 * about + 1 && ticks.every((x) => x >= -1.31 * scale && x <= 2.71 * scale), String(ticks));
    }
  }
});

test("logarithmic ticks are decades, with their parts where there are few", () => {
  assert.deepEqual(logTicks([1, 1000], 4), [1, 10, 100, 1000]);
  assert.deepEqual(logTicks([1, 100], 6), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(logTicks([1e-12, 1], 4), [1e-12, 1e-9, 1e-6, 1e-3, 1]);
  assert.deepEqual(logTicks([0, 1], 4), []);
  assert.deepEqual(logTicks([2, 4], 4), [2, 2.5, 3, 3.5, 4].filter((x) => logTicks([2, 4], 4).includes(x)));
  assert.ok(logTicks([2, 4], 4).length >= 3);
});

test("labels of neighbouring ticks differ", () => {
  for (const ticks of [[0, 1e-9, 2e-9], [1000, 1000.00001, 1000.00002], [-5, 0, 5], [1e6, 2e6]]) {
    assert.equal(new Set(tickLabels(ticks)).size, ticks.length);
  }
});

test("labels of small and large ticks are powers of ten", () => {
  assert.deepEqual(tickLabels(logTicks([1e-12, 1], 4)), ["10⁻¹²", "10⁻⁹", "10⁻⁶", "0.001", "1"]);
  assert.deepEqual(tickLabels([0, 1e-6, 2e-6]), ["0", "10⁻⁶", "2·10⁻⁶"]);
  assert.deepEqual(tickLabels([-5e7, 0, 5e7]), ["−5·10⁷", "0", "5·10⁷"]);
  assert.deepEqual(tickLabels([1e-6, 2e-6, 5e-6, 1e-5]), ["10⁻⁶", "2·10⁻⁶", "5·10⁻⁶", "10⁻⁵"]);
  assert.deepEqual(tickLabels([1e300, 1e-320]), ["10³⁰⁰", "10⁻³²⁰"]);
  assert.deepEqual(tickLabels([0, 0.0005, 0.001, 0.0015]), ["0", "0.0005", "0.001", "0.0015"]);
});

test("fractions of an axis and back", () => {
  assert.ok(Math.abs(fraction(10, [1, 100], true) - 0.5) < 1e-12);
  assert.ok(Math.abs(atFraction(0.5, [1, 100], true) - 10) < 1e-12);
  assert.equal(atFraction(fraction(3, [-1, 7], false), [-1, 7], false), 3);
  assert.deepEqual(around(NaN, NaN, false, 0.1), [0, 1]);
  assert.deepEqual(around(NaN, NaN, true, 0.1), [1, 10]);
  const [low, high] = around(5, 5, true, 0.1);
  assert.ok(low > 0 && low < 5 && high > 5);
  assert.deepEqual(around(0, 0, false, 0.1), [-1, 1]);
});
