/** Annular detectors: sums over rings of diffraction patterns, by which any annulus costs one subtraction a probe. */

import type { Numbers } from "../data";

/** Sums of all rings within each edge, for every probe. */
export interface RadialSums {
  /** Radii between rings, ascending, one more than there are rings; unit of whoever made them. */
  readonly edges: Float64Array;
  /** Number of probes. */
  readonly probes: number;
  /** Electrons within an edge: within[k * probes + p]. */
  readonly within: Float64Array;
}

/**
 * Running sums of rings, `rings[p * count + k]`, over radii.
 *
 * Probes are put in the order of an image's rows: those of a scan (x, y) of `nx` by `ny` probes become rows of y.
 */
export function radialSums(rings: Numbers, nx: number, ny: number, edges: Float64Array): RadialSums {
  const [count, probes] = [edges.length - 1, nx * ny];
  const within = new Float64Array((count + 1) * probes);
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      let sum = 0;
      const from = (i * ny + j) * count;
      for (let k = 0, to = j * nx + i + probes; k < count; k++, to += probes) {
        sum += rings[from + k];
        within[to] = sum;
      }
    }
  }
  return { edges, probes, within };
}

/** Where a radius lies among edges: the ring, and the share of its width below the radius. */
export function ringAt(edges: Float64Array, radius: number): readonly [number, number] {
  const last = edges.length - 2;
  if (!(radius > edges[0])) {
    return [0, 0];
  }
  if (radius >= edges[last + 1]) {
    return [last, 1];
  }
  let [low, high] = [0, last];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= radius) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return [low, (radius - edges[low]) / (edges[low + 1] - edges[low])];
}

/** Electrons between two radii for every probe, written to `to`; of a ring that is cut, its share by width is counted. */
export function annulus({ edges, probes, within }: RadialSums, inner: number, outer: number, to: Float32Array): Float32Array {
  const [[a, u], [b, v]] = [ringAt(edges, inner), ringAt(edges, Math.max(inner, outer))];
  const [a0, a1, b0, b1] = [a * probes, (a + 1) * probes, b * probes, (b + 1) * probes];
  for (let p = 0; p < probes; p++) {
    to[p] = (1 - v) * within[b0 + p] + v * within[b1 + p] - (1 - u) * within[a0 + p] - u * within[a1 + p];
  }
  return to;
}

/** Mean over all probes, or the value of one, of electrons in each ring, divided by the ring's width. */
export function radialCurve({ edges, probes, within }: RadialSums, probe?: number): Float64Array {
  const total = (k: number) => {
    if (probe !== undefined) {
      return within[k * probes + probe];
    }
    let sum = 0;
    for (let p = k * probes; p < (k + 1) * probes; p++) {
      sum += within[p];
    }
    return sum / probes;
  };
  const sums = Array.from(edges, (_, k) => total(k));
  return Float64Array.from({ length: edges.length - 1 }, (_, k) => (sums[k + 1] - sums[k]) / (edges[k + 1] - edges[k]));
}

/** Edges of bins whose middles are given: half-way between them, and as far beyond the first and last; none is negative. */
export function edgesOf(middles: ArrayLike<number>): Float64Array {
  const n = middles.length;
  if (n === 1) {
    return Float64Array.of(0, 2 * middles[0] || 1);
  }
  const edges = new Float64Array(n + 1);
  for (let k = 1; k < n; k++) {
    edges[k] = (middles[k - 1] + middles[k]) / 2;
  }
  edges[0] = Math.max(middles[0] - (edges[1] - middles[0]), 0);
  edges[n] = 2 * middles[n - 1] - edges[n - 1];
  // A middle at half a step: the first edge is 0, but for rounding.
  if (edges[0] < 1e-9 * edges[n]) {
    edges[0] = 0;
  }
  return edges;
}

/** Which ring each sample of a pattern (qx, qy) is in: samples at distance r of the centre are in ring ⌊r / width⌋. */
export interface RingMap {
  readonly ring: Int32Array;
  /** Number of rings. */
  readonly count: number;
}

/** Rings of a `width` about a centre (cx, cy) in samples; steps and width in one unit. */
export function ringMap(nx: number, ny: number, cx: number, cy: number, stepX: number, stepY: number, width: number): RingMap {
  const ring = new Int32Array(nx * ny);
  let count = 1;
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      const k = Math.floor(Math.hypot((i - cx) * stepX, (j - cy) * stepY) / width + 1e-9);
      ring[i * ny + j] = k;
      count = Math.max(count, k + 1);
    }
  }
  return { ring, count };
}

/** Sums over rings of the patterns of probes `from` up to `to`, added to `sums[p * count + k]`. */
export function ringSums(patterns: Numbers, { ring, count }: RingMap, from: number, to: number, sums: Float64Array): void {
  const size = ring.length;
  for (let p = from; p < to; p++) {
    const [first, base] = [p * size, p * count];
    for (let n = 0; n < size; n++) {
      sums[base + ring[n]] += patterns[first + n];
    }
  }
}
