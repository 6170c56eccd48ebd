import assert from "node:assert/strict";
import test from "node:test";
import { electronWavelength } from "../src/microscopy/electrons";
import { Fft, fft2, frequencies, shifted } from "../src/microscopy/fft";
import { combined, curl, direction, divergence, dpc, magnitude } from "../src/microscopy/fields";
import { brightest, correlation, fwhm, radial, radiusWithin, rFactor } from "../src/microscopy/profiles";
import { annulus, edgesOf, radialCurve, radialSums, ringAt, ringMap, ringSums } from "../src/microscopy/rings";
import { bitMask, columnOf, inside, meanPattern, probesInside, sumOf } from "../src/microscopy/scan";
import expected from "./numpy_microscopy.json";

/** Numbers between 0 and 1, as in numpy_microscopy.py. */
function sequence(count: number, first = 0): Float64Array {
  return Float64Array.from({ length: count }, (_, k) => (((first + k) ** 2 * 7919) % 1009) / 1009);
}

function close(actual: ArrayLike<number>, wanted: ArrayLike<number>, tolerance = 1e-12): void {
  assert.equal(actual.length, wanted.length);
  for (let k = 0; k < wanted.length; k++) {
    assert.ok(Math.abs(actual[k] - wanted[k]) <= tolerance * Math.max(1, Math.abs(wanted[k])), `${k}: ${actual[k]}, not ${wanted[k]}`);
  }
}

test("wavelengths are NumPy's, and those of the tables", () => {
  close([60, 80, 100, 200, 300].map(electronWavelength), expected.wavelength);
  assert.ok(Math.abs(electronWavelength(100) - 0.037014362) < 1e-9);
});

test("Fourier transforms of lengths with small factors, and of prime lengths, are NumPy's and invert", () => {
  for (const { length, values } of expected.fourier) {
    const [re, im] = [sequence(length), sequence(length, 500)];
    const fft = new Fft(length);
    fft.forward(re, im);
    [0, Math.floor(length / 3), length - 1].forEach((k, n) => close([re[k], im[k]], values[n]));
    fft.inverse(re, im);
    close(re, sequence(length));
    close(im, sequence(length, 500));
  }
});

test("a transform of a plane is NumPy's, and frequency 0 is moved to its middle", () => {
  const { re, im } = fft2(sequence(330), sequence(330, 77), 15, 22);
  [0, 17, 329].forEach((k, n) => close([re[k], im[k]], expected.fourier2[n]));
  const middle = shifted(re, 15, 22);
  close([0, 100, 172, 329].map((k) => middle[k]), expected.shifted);
  close([15, 22].map((n) => frequencies(n, 0.3).first), expected.frequencies);
  assert.equal(middle[11 * 15 + 7], re[0]);
});

const [nx, ny] = [3, 4];
const patterns = sequence(nx * ny * 9 * 7);
const map = ringMap(9, 7, 4.25, 2.5, 0.05, 0.04, 0.05);

function sums() {
  const rings = new Float64Array(nx * ny * map.count);
  ringSums(patterns, map, 0, 5, rings);
  ringSums(patterns, map, 5, nx * ny, rings);
  return radialSums(rings, nx, ny, Float64Array.from({ length: map.count + 1 }, (_, k) => k * 0.05));
}

test("an annulus with cut rings is NumPy's interpolated running sum, and on edges the sum over a mask", () => {
  close(annulus(sums(), 0.06, 0.17, new Float32Array(12)), expected.annulus, 1e-6);
  close(annulus(sums(), 0.05, 0.15, new Float32Array(12)), expected.mask, 1e-6);
  close(radialCurve(sums()), expected.radialCurve);
  // One probe: i = 2 of 3, j = 1 of 4.
  const one = radialCurve(sums(), 1 * nx + 2);
  const total = one.reduce((sum, x) => sum + x * 0.05, 0);
  close([total], [patterns.slice((2 * ny + 1) * 63, (2 * ny + 2) * 63).reduce((sum, x) => sum + x, 0)]);
});

test("radii beyond all rings take everything, crossed ones nothing", () => {
  const all = annulus(sums(), 0, 99, new Float32Array(12));
  close([all.reduce((sum, x) => sum + x, 0)], [patterns.reduce((sum, x) => sum + x, 0)], 1e-6);
  assert.ok(annulus(sums(), 0.2, 0.1, new Float32Array(12)).every((x) => x === 0));
  assert.ok(annulus(sums(), -3, 0, new Float32Array(12)).every((x) => x === 0));
});

test("edges of bins lie half-way between their middles", () => {
  close(edgesOf([1, 3, 5]), [0, 2, 4, 6]);
  close(edgesOf([0, 1, 2]), [0, 0.5, 1.5, 2.5]);
  close(edgesOf([4]), [0, 8]);
  assert.deepEqual([...ringAt(Float64Array.of(0, 2, 4, 6), 3)], [1, 0.5]);
  assert.deepEqual([...ringAt(Float64Array.of(0, 2, 4, 6), 6)], [2, 1]);
});

test("divergence, curl and quadrants are NumPy's", () => {
  const [u, v] = [sequence(20), sequence(20, 333)];
  close(divergence(u, v, 5, 4, [0.4, 0.3]), expected.divergence);
  close(curl(u, v, 5, 4, [0.4, 0.3]), expected.curl);
  const sectors = [0, 1, 2, 3].map((k) => sequence(6, 100 * k + 1));
  close(dpc(sectors, -Math.PI / 4, 0), expected.quadrants);
  const weights = [1, 0, -1, 0];
  const all = combined(sectors, [1, 1, 1, 1]);
  close(combined(sectors, weights).map((x, k) => x / all[k]), expected.quadrants);
  close(magnitude([3, 0] as never, [4, -2] as never), [5, 2]);
  close(direction(Float64Array.of(0, -1), Float64Array.of(2, 0)), [Math.PI / 2, Math.PI]);
});

test("radial profiles, with and without period, are NumPy's", () => {
  const grid = { nx: 12, ny: 10, first: [-0.6, -0.45], steps: [0.1, 0.1] } as const;
  const profile = radial(sequence(120), grid, [0.02, -0.03]);
  close(profile.mean.slice(0, 4), expected.profile);
  close(profile.within.slice(0, 4), expected.enclosed);
  close(radial(sequence(120), grid, [0.5, 0.4], true).mean.slice(0, 4), expected.periodicProfile);
});

test("widths of a Gaussian and of a disc are NumPy's", () => {
  const gauss = Float64Array.from({ length: 41 }, (_, k) => Math.exp(-(((k - 20) * 0.1) ** 2) / 0.5));
  close([fwhm(gauss, 0.1)], [expected.halfWidth]);
  // The same turned about, so that it goes on at the other end.
  const turned = Float64Array.from({ length: 41 }, (_, k) => gauss[(k + 20) % 41]);
  close([fwhm(turned, 0.1, true)], [expected.halfWidth]);
  assert.ok(Number.isNaN(fwhm(turned, 0.1)));
  assert.equal(brightest(turned), 0);
  const edge = Float64Array.from({ length: 8 }, (_, k) => 0.2 * (k + 1));
  let sum = 0;
  const within = sequence(8, 3).map((x) => (sum += x));
  close([radiusWithin({ radius: edge, mean: edge, edge, within }, 0.5)], [expected.medianRadius]);
});

test("the correlation coefficient and the R-factor are NumPy's", () => {
  const [a, b] = [sequence(50), sequence(50, 20)];
  close([correlation(a, b), rFactor(a, b)], [expected.correlation, expected.rFactor]);
  close([correlation(a, a), rFactor(a, a)], [1, 0]);
});

test("probes of a lasso are found, averaged and put into a mask", () => {
  const triangle = [[-0.5, -0.5], [2.6, -0.5], [-0.5, 2.6]] as const;
  assert.ok(inside(triangle, 0, 0) && !inside(triangle, 2, 2));
  const found = probesInside(triangle, [0, 1, 2], [0, 1, 2, 3]);
  assert.deepEqual(found, [0, 1, 2, 4, 5, 8]);
  // Bits 0, 1, 2, 4, 5 of byte 0 and bit 0 of byte 1.
  assert.equal(bitMask(found, 12), Buffer.from([0b110111, 1]).toString("base64url"));
  const mean = meanPattern(patterns, 63, found);
  close([mean[10]], [found.reduce((sum, p) => sum + patterns[p * 63 + 10], 0) / 6]);
});

test("parts of numbers (x, y, part) become rows", () => {
  const values = Float64Array.from({ length: 12 }, (_, k) => k);
  // Two by three probes with two parts: i * 6 + j * 2 + part
  assert.deepEqual([...columnOf(values, 2, 3, 2, 1)], [1, 7, 3, 9, 5, 11]);
  assert.deepEqual([...sumOf(values, 2, 3, 2, 0, 2)], [1, 13, 5, 17, 9, 21]);
});
