/** Arrays of scans, whose first dimension is x: images by rows, sets of probes, means over them. */

import type { Numbers } from "../data";

/** Part `k` of numbers (x, y, part) as the rows of an image. */
export function columnOf(values: Numbers, nx: number, ny: number, parts: number, k: number): Float32Array {
  const to = new Float32Array(nx * ny);
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      to[j * nx + i] = values[(i * ny + j) * parts + k];
    }
  }
  return to;
}

/** Sum of parts `from` up to `to` of numbers (x, y, part) as the rows of an image. */
export function sumOf(values: Numbers, nx: number, ny: number, parts: number, from: number, to: number): Float32Array {
  const image = new Float32Array(nx * ny);
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      let sum = 0;
      for (let k = from, at = (i * ny + j) * parts + from; k < to; k++, at++) {
        sum += values[at];
      }
      image[j * nx + i] = sum;
    }
  }
  return image;
}

/** Whether a point is inside a polygon: an edge is crossed an odd number of times on the way to the left. */
export function inside(points: readonly (readonly [number, number])[], x: number, y: number): boolean {
  let odd = false;
  for (let k = 0, last = points.length - 1; k < points.length; last = k++) {
    const [[ax, ay], [bx, by]] = [points[k], points[last]];
    if (ay > y !== by > y && x < ax + ((bx - ax) * (y - ay)) / (by - ay)) {
      odd = !odd;
    }
  }
  return odd;
}

/** Numbers i * ny + j of the probes (x, y) of a scan that lie in a polygon. */
export function probesInside(points: readonly (readonly [number, number])[], x: ArrayLike<number>, y: ArrayLike<number>): number[] {
  const found: number[] = [];
  for (let i = 0; i < x.length; i++) {
    for (let j = 0; j < y.length; j++) {
      if (inside(points, x[i], y[j])) {
        found.push(i * y.length + j);
      }
    }
  }
  return found;
}

/** Mean of the patterns of some probes, each of `size` samples. */
export function meanPattern(patterns: Numbers, size: number, probes: readonly number[]): Float64Array {
  const mean = new Float64Array(size);
  for (const p of probes) {
    for (let n = 0, at = p * size; n < size; n++, at++) {
      mean[n] += patterns[at];
    }
  }
  return mean.map((sum) => sum / Math.max(probes.length, 1));
}

/** A set of probes as a bit mask in base64 of addresses: probe k is bit k mod 8 of byte ⌊k / 8⌋. */
export function bitMask(probes: readonly number[], count: number): string {
  const bytes = new Uint8Array(Math.ceil(count / 8));
  for (const k of probes) {
    bytes[k >> 3] |= 1 << (k & 7);
  }
  let text = "";
  for (const byte of bytes) {
    text += String.fromCharCode(byte);
  }
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Position of a value on a uniform axis, in samples. */
export function sampleAt(first: number, step: number, value: number): number {
  return step === 0 ? 0 : (value - first) / step;
}
