import assert from "node:assert/strict";
import { test } from "node:test";
import { textureNumbers } from "../src/views/gl";
import { histogram, histogramScale } from "../src/views/histogram";
import { automaticLimits, looksSigned, percentiles, Scale, statistics } from "../src/views/scale";

const close = (a: number, b: number, relative = 1e-12) => assert.ok(Math.abs(a - b) <= relative * Math.max(Math.abs(a), Math.abs(b), 1e-300), `${a} is not ${b}`);

test("statistics leave out NaN and infinities", () => {
  assert.deepEqual(statistics(Float64Array.of(3, NaN, -2, Infinity, 0.5, -Infinity, 0)), { min: -2, max: 3, minPositive: 0.5, finite: false });
  const none = statistics(Float32Array.of(NaN, Infinity));
  assert.ok(Number.isNaN(none.min) && Number.isNaN(none.max) && !none.finite);
  assert.equal(statistics(Float32Array.of(1, 2)).finite, true);
});

test("signed numbers are those with both signs of similar size", () => {
  assert.ok(looksSigned(statistics(Float64Array.of(-1, 0.9))));
  assert.ok(!looksSigned(statistics(Float64Array.of(-0.01, 1))));
  assert.ok(!looksSigned(statistics(Float64Array.of(0, 1))));
  assert.ok(!looksSigned(statistics(Float64Array.of(NaN))));
});

test("automatic limits of signed, equal, missing and logarithmic numbers", () => {
  const of = (...values: number[]) => statistics(Float64Array.from(values));
  assert.deepEqual(automaticLimits(of(-1, 3), "linear", true), [-3, 3]);
  assert.deepEqual(automaticLimits(of(-1, 3), "linear", false), [-1, 3]);
  assert.deepEqual(automaticLimits(of(4, 4), "linear", false), [2, 6]);
  assert.deepEqual(automaticLimits(of(-4, -4), "log", false), [-6, -2]);
  assert.deepEqual(automaticLimits(of(0, 0), "log", false), [0, 1]);
  assert.deepEqual(automaticLimits(of(0, 0), "linear", true), [-1, 1]);
  assert.deepEqual(automaticLimits(of(NaN), "linear", false), [0, 1]);
  assert.deepEqual(automaticLimits(of(0, 1e-9, 2), "log", false), [2e-6, 2]);
  assert.deepEqual(automaticLimits(of(0, 1e-3, 2), "log", false), [1e-3, 2]);
  assert.deepEqual(automaticLimits(of(0, 5), "log", false), [0.5, 5]);
});

test("scales run from 0 to 1 between the limits, and back", () => {
  const scales = [new Scale("linear", -2, 5), new Scale("sqrt", 0, 9), new Scale("sqrt", -4, 9), new Scale("log", 1e-4, 10), new Scale("log", -3, 3), new Scale("log", 0, 8)];
  for (const scale of scales) {
    close(scale.fraction(scale.lo) + 1, 1);
    close(scale.fraction(scale.hi), 1);
    for (const t of [0.1, 0.35, 0.5, 0.9]) {
      close(scale.fraction(scale.number(t)), t, 1e-10);
      close(scale.apply(scale.number(t)) * scale.line.factor + scale.line.offset, t, 1e-10);
    }
  }
  close(new Scale("sqrt", 0, 9).fraction(2.25), 0.5);
  close(new Scale("log", 1e-4, 1).fraction(1e-2), 0.5);
  close(new Scale("sqrt", -4, 4).fraction(-1), 0.25);
});

test("a logarithm of signed numbers is odd, linear in its core and logarithmic outside", () => {
  const scale = new Scale("log", -3, 3);
  assert.equal(scale.law, "symlog");
  close(scale.core, 3e-3);
  close(scale.fraction(0), 0.5);
  close(scale.fraction(1) - 0.5, 0.5 - scale.fraction(-1));
  close((scale.fraction(2e-5) - 0.5) / (scale.fraction(1e-5) - 0.5), 2, 0.01);
  close(scale.fraction(3) - scale.fraction(0.3), scale.fraction(0.3) - scale.fraction(0.03), 0.05);
});

test("percentiles leave out what is not finite", () => {
  const values = Float64Array.from({ length: 1001 }, (_, k) => 1000 - k);
  assert.deepEqual(percentiles(values, [0.01, 0.5, 0.99]), [10, 500, 990]);
  assert.deepEqual(percentiles(Float32Array.of(NaN, 1, 2, Infinity), [0, 0.5, 1]), [1, 1.5, 2]);
  assert.ok(Number.isNaN(percentiles(Float32Array.of(NaN), [0.5])[0]));
});

test("a histogram counts all numbers along the scale", () => {
  const values = Float64Array.of(1, 10, 10, 100, 1000, NaN, 0);
  const stats = statistics(values);
  const scale = histogramScale({ stats, scale: new Scale("log", 10, 100) });
  assert.deepEqual([scale.lo, scale.hi], [1, 1000]);
  assert.deepEqual([...histogram(values, scale, 3)], [1, 2, 2]);
  const wide = histogramScale({ stats, scale: new Scale("linear", -50, 2000) });
  assert.deepEqual([wide.lo, wide.hi], [-50, 2000]);
  const large = Float32Array.from({ length: 200_000 }, (_, k) => k);
  const counted = histogram(large, new Scale("linear", 0, 199_999), 4).reduce((a, b) => a + b);
  assert.ok(Math.abs(counted - 200_000) < 10);
});

test("numbers of the texture are of ordinary size and have no NaN", () => {
  const small = Float64Array.of(1e-300, -4e-300, NaN, Infinity, -Infinity);
  const { values, gain } = textureNumbers(small, statistics(small));
  assert.ok(Math.abs(values[1]) <= 1 && Math.abs(values[1]) > 0.25);
  close(values[0] / values[1], -0.25, 1e-6);
  close(gain * -4e-300, values[1], 1e-6);
  assert.ok(values[2] > 1e25 && values[3] > 1e15 && values[3] < 1e25 && values[4] === -values[3]);
  const ordinary = Float32Array.of(1, 2);
  assert.equal(textureNumbers(ordinary, statistics(ordinary)).values, ordinary);
});
