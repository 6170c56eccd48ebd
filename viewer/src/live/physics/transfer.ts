/**
 * Optical transfer functions and point-spread functions of a round telescope: the chapters "The optical transfer function" and
 * "The point-spread function". The pupil is on squares, as in the library.
 */

import { inverseTransform } from "./fft";

/** Area of the part of a disc of radius r with 0 ≤ x' ≤ x and 0 ≤ y' ≤ y. */
function quadrantArea(r: number, x: number, y: number): number {
  const [width, height] = [Math.min(x, r), Math.min(y, r)];
  const corner = Math.sqrt(r * r - height * height);
  if (width <= corner) {
    return width * height;
  }
  const below = (t: number) => 0.5 * (t * Math.sqrt(r * r - t * t) + r * r * Math.asin(t / r));
  return corner * height + below(width) - below(corner);
}

/** Fraction of the square from (x, y) to (x + side, y + side) that is in the disc of radius r about the origin. */
function discFraction(r: number, x: number, y: number, side: number): number {
  const area = (a: number, b: number) => Math.sign(a) * Math.sign(b) * quadrantArea(r, Math.abs(a), Math.abs(b));
  return (area(x + side, y + side) - area(x, y + side) - area(x + side, y) + area(x, y)) / (side * side);
}

/** Transmission of samples × samples squares across a pupil with a central obstruction (ratio of the diameters). */
export function pupilLight(samples: number, obstruction: number): Float64Array {
  const half = samples / 2;
  return Float64Array.from({ length: samples * samples }, (_, k) => {
    const [x, y] = [(k % samples) - half, Math.floor(k / samples) - half];
    const hidden = obstruction > 0 ? discFraction(half * obstruction, x, y, 1) : 0;
    return discFraction(half, x, y, 1) - hidden;
  });
}

/** Values of a transfer function on n × n displacements; displacement zero is at (n/2, n/2). */
export interface Transfer {
  readonly values: Float64Array;
  /** n, twice the squares across the pupil. */
  readonly points: number;
  /** Step of the displacements [m]. */
  readonly step: number;
}

/** Optical transfer function of a telescope of a diameter [m] with a central obstruction; `samples` is a power of 2. */
export function telescopeTransfer(diameter: number, obstruction: number, samples: number): Transfer {
  const light = pupilLight(samples, obstruction);
  const points = 2 * samples;
  const [re, im] = [new Float64Array(points * points), new Float64Array(points * points)];
  light.forEach((value, k) => (re[Math.floor(k / samples) * points + (k % samples)] = value));
  inverseTransform(re, im, points);
  const power = re.map((a, k) => a * a + im[k] * im[k]);
  im.fill(0);
  inverseTransform(power, im, points);
  const total = light.reduce((sum, value) => sum + value, 0) * points * points;
  const values = new Float64Array(points * points);
  for (let j = 0; j < points; j++) {
    for (let i = 0; i < points; i++) {
      const from = ((j + samples) % points) * points + ((i + samples) % points);
      values[j * points + i] = j * i === 0 ? 0 : Math.min(1, Math.max(0, power[from] / total));
    }
  }
  values[samples * points + samples] = 1;
  return { values, points, step: diameter / samples };
}

/** A long exposure at a wavelength [m] through a wavefront with this structure function [m²] of the distance [m]. */
export function longExposure(telescope: Transfer, structure: (rho: number) => number, wavelength: number): Transfer {
  const { points, step } = telescope;
  const scale = -0.5 * ((2 * Math.PI) / wavelength) ** 2;
  const factors = new Map<number, number>();
  const values = telescope.values.map((value, k) => {
    const [i, j] = [(k % points) - points / 2, Math.floor(k / points) - points / 2];
    const square = i * i + j * j;
    if (value === 0 || square === 0) {
      return value;
    }
    let factor = factors.get(square);
    if (factor === undefined) {
      factor = Math.exp(scale * structure(step * Math.sqrt(square)));
      factors.set(square, factor);
    }
    return value * factor;
  });
  return { values, points, step };
}

const sum = (values: Float64Array) => values.reduce((total, value) => total + value, 0);

/** Strehl ratio: the sum of a transfer function over that of the telescope alone. */
export function strehlRatio(transfer: Transfer, telescope: Transfer): number {
  return sum(transfer.values) / sum(telescope.values);
}

/** Cut along x through a transfer function, from displacement zero on: [m], values. */
export function transferCut({ values, points, step }: Transfer): { rho: Float64Array; values: Float64Array } {
  const half = points / 2;
  const row = half * points + half;
  return { rho: Float64Array.from({ length: half }, (_, k) => k * step), values: values.slice(row, row + half) };
}

/** Cut along x through the point-spread function at the angles [rad], in units of the maximum of the telescope alone. */
export function pointSpreadCut(transfer: Transfer, telescope: Transfer, wavelength: number, angles: readonly number[]): number[] {
  const { values, points, step } = transfer;
  const half = points / 2;
  const columns = new Float64Array(half);
  values.forEach((value, k) => (columns[Math.abs((k % points) - half) % half] += value));
  const perfect = sum(telescope.values);
  return angles.map((angle) => columns.reduce((total, value, i) => total + value * Math.cos((2 * Math.PI * i * step * angle) / wavelength), 0) / perfect);
}
