/** Radial profiles of images, and measures of how alike two images are. */

import type { Numbers } from "../data";

/** Mean and sum of an image in rings about a centre. */
export interface Radial {
  /** Middle of each ring. */
  readonly radius: Float64Array;
  /** Mean of the samples in a ring; NaN where there is none. */
  readonly mean: Float64Array;
  /** Sum of all samples within the outer edge of a ring. */
  readonly within: Float64Array;
  /** Outer edge of each ring. */
  readonly edge: Float64Array;
}

/** An image on a grid: by rows, first position and step along both sides. */
export interface Grid {
  readonly nx: number;
  readonly ny: number;
  readonly first: readonly [number, number];
  readonly steps: readonly [number, number];
}

/** Rings of a width (the larger step unless given) about a centre; `periodic` measures the way through the nearer edge. */
export function radial(values: Numbers, grid: Grid, centre: readonly [number, number], periodic = false, width?: number): Radial {
  const { nx, ny, first, steps } = grid;
  const step = width ?? Math.max(Math.abs(steps[0]), Math.abs(steps[1]));
  const distance = (at: number, n: number, axis: 0 | 1) => {
    const d = first[axis] + at * steps[axis] - centre[axis];
    const period = n * Math.abs(steps[axis]);
    return periodic ? d - period * Math.round(d / period) : d;
  };
  const ring = new Int32Array(nx * ny);
  let count = 1;
  for (let j = 0; j < ny; j++) {
    const dy = distance(j, ny, 1);
    for (let i = 0; i < nx; i++) {
      const k = Math.floor(Math.hypot(distance(i, nx, 0), dy) / step + 1e-9);
      ring[j * nx + i] = k;
      count = Math.max(count, k + 1);
    }
  }
  const [sums, samples] = [new Float64Array(count), new Float64Array(count)];
  for (let n = 0; n < nx * ny; n++) {
    sums[ring[n]] += values[n];
    samples[ring[n]]++;
  }
  const within = new Float64Array(count);
  sums.reduce((sum, one, k) => (within[k] = sum + one), 0);
  return {
    radius: Float64Array.from({ length: count }, (_, k) => (k + 0.5) * step),
    mean: sums.map((sum, k) => sum / samples[k]),
    within,
    edge: Float64Array.from({ length: count }, (_, k) => (k + 1) * step),
  };
}

/** Radius within which a share of the sum lies: linear between edges. */
export function radiusWithin({ edge, within }: Radial, share: number): number {
  const target = share * within[within.length - 1];
  const k = within.findIndex((sum) => sum >= target);
  const [below, from] = k > 0 ? [within[k - 1], edge[k - 1]] : [0, 0];
  return within[k] === below ? from : from + ((edge[k] - from) * (target - below)) / (within[k] - below);
}

/** Full width at half maximum of an image along a row through its maximum, linear between samples; `periodic` rows go on at the other end. */
export function fwhm(row: Numbers, step: number, periodic = false): number {
  const n = row.length;
  let top = 0;
  for (let k = 1; k < n; k++) {
    if (row[k] > row[top]) {
      top = k;
    }
  }
  const half = row[top] / 2;
  const reach = (direction: 1 | -1) => {
    for (let d = 1; d < n; d++) {
      const place = top + direction * d;
      if (!periodic && (place < 0 || place >= n)) {
        return NaN;
      }
      const [before, here] = [row[(place - direction + n) % n], row[(place + n) % n]];
      if (here <= half) {
        return d - 1 + (before - half) / (before - here);
      }
    }
    return NaN;
  };
  return (reach(1) + reach(-1)) * Math.abs(step);
}

/** Position of the largest number of an image by rows. */
export function brightest(values: Numbers): number {
  let top = 0;
  for (let k = 1; k < values.length; k++) {
    if (values[k] > values[top]) {
      top = k;
    }
  }
  return top;
}

/** Pearson's correlation coefficient of two images. */
export function correlation(a: Numbers, b: Numbers): number {
  const n = a.length;
  let [ma, mb] = [0, 0];
  for (let k = 0; k < n; k++) {
    ma += a[k] / n;
    mb += b[k] / n;
  }
  let [aa, bb, ab] = [0, 0, 0];
  for (let k = 0; k < n; k++) {
    const [u, v] = [a[k] - ma, b[k] - mb];
    aa += u * u;
    bb += v * v;
    ab += u * v;
  }
  return ab / Math.sqrt(aa * bb);
}

/** R-factor of an image against a reference: Σ|a − b| / Σ b. */
export function rFactor(a: Numbers, reference: Numbers): number {
  let [difference, all] = [0, 0];
  for (let k = 0; k < a.length; k++) {
    difference += Math.abs(a[k] - reference[k]);
    all += reference[k];
  }
  return difference / all;
}
