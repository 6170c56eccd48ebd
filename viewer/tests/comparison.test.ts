import assert from "node:assert/strict";
import { test } from "node:test";
import { combine, Comparison, compareLines } from "../src/comparison";

test("statistics of differences, in pieces as at once", () => {
  const a = Float64Array.from({ length: 1000 }, (_, k) => 1e6 + Math.sin(k) * 3);
  const b = Float64Array.from({ length: 1000 }, (_, k) => 1e6 + Math.sin(k + 0.3) * 2);
  const [once, pieces] = [new Comparison(), new Comparison()];
  once.add(a, b);
  for (const [from, to] of [[0, 1], [1, 400], [400, 1000]]) {
    pieces.add(a.subarray(from, to), b.subarray(from, to));
  }
  const mean = (x: ArrayLike<number>) => Array.from(x).reduce((s, v) => s + v, 0) / x.length;
  const d = a.map((x, k) => x - b[k]);
  const [ma, mb] = [mean(a), mean(b)];
  const rms = Math.sqrt(mean(d.map((x) => x * x)));
  const correlation = mean(a.map((x, k) => (x - ma) * (b[k] - mb))) / Math.sqrt(mean(a.map((x) => (x - ma) ** 2)) * mean(b.map((x) => (x - mb) ** 2)));
  const largest = Math.max(...d.map(Math.abs));
  for (const one of [once, pieces]) {
    assert.ok(Math.abs(one.rms / rms - 1) < 1e-10);
    assert.ok(Math.abs(one.correlation - correlation) < 1e-8, `${one.correlation} ${correlation}`);
    assert.ok(Math.abs(one.relativeRms / (rms / Math.sqrt(mean(b.map((x) => x * x)))) - 1) < 1e-10);
    assert.equal(one.largest, largest);
    assert.equal(Math.abs(d[one.largestAt]), largest);
    assert.deepEqual([one.count, one.differing, one.skipped], [1000, 1000, 0]);
  }
});

test("NaN equals NaN, and numbers that are not finite take no part in sums", () => {
  const one = new Comparison();
  one.add(Float64Array.of(NaN, NaN, 1, Infinity, 2), Float64Array.of(NaN, 1, 1, Infinity, 3));
  assert.deepEqual([one.count, one.differing, one.skipped, one.largest, one.largestAt], [2, 2, 3, 1, 4]);
});

test("a constant has no correlation", () => {
  const one = new Comparison();
  one.add(Float64Array.of(1, 1, 1), Float64Array.of(1, 2, 3));
  assert.ok(Number.isNaN(one.correlation));
});

test("difference, relative difference and ratio", () => {
  const [a, b] = [Float64Array.of(1, -4, 0, 2), Float64Array.of(2, -2, 0, 0)];
  assert.deepEqual([...combine("difference", a, b, false)], [-1, -2, 0, 2]);
  assert.deepEqual([...combine("relative", a, b, false)], [-0.5, -1, NaN, Infinity]);
  assert.deepEqual([...combine("ratio", a, b, false)], [0.5, 2, NaN, Infinity]);
  const phases = combine("difference", Float64Array.of(3.1, -3.1, 0.1, Math.PI), Float64Array.of(-3.1, 3.1, 0, -Math.PI), true);
  [6.2 - 2 * Math.PI, 2 * Math.PI - 6.2, 0.1, 0].forEach((x, k) => assert.ok(Math.abs(phases[k] - x) < 1e-12, `${phases[k]} for ${x}`));
});

test("lines: both texts can be read off the comparison, and as many lines as possible are of both", () => {
  let seed = 1;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 200; round++) {
    const text = () => Array.from({ length: random(12) }, () => "abc"[random(3)]);
    const [a, b] = [text(), text()];
    const lines = compareLines(a, b);
    assert.deepEqual(lines.filter((one) => one.of !== "b").map((one) => one.text), a);
    assert.deepEqual(lines.filter((one) => one.of !== "a").map((one) => one.text), b);
    for (const one of lines) {
      assert.equal(one.of === "b" ? one.a : a[one.a], one.of === "b" ? -1 : one.text);
      assert.equal(one.of === "a" ? one.b : b[one.b], one.of === "a" ? -1 : one.text);
    }
    // Longest common subsequence by its definition
    const longest = (i: number, j: number): number => (i === a.length || j === b.length ? 0 : a[i] === b[j] ? 1 + longest(i + 1, j + 1) : Math.max(longest(i + 1, j), longest(i, j + 1)));
    if (a.length * b.length < 60) {
      assert.equal(lines.filter((one) => one.of === "both").length, longest(0, 0), `${a} ${b}`);
    }
  }
});

test("long texts without a line in common are compared at once", () => {
  const [a, b] = [Array.from({ length: 3000 }, (_, k) => `a${k}`), Array.from({ length: 3000 }, (_, k) => `b${k}`)];
  const lines = compareLines(["same", ...a], ["same", ...b]);
  assert.deepEqual([lines.length, lines.filter((one) => one.of === "both").length, lines[1].of, lines.at(-1)?.of], [6001, 1, "a", "b"]);
});
