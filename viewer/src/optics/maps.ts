/** Numerics of maps: statistics, cuts, rings, and iso-lines. Maps are by rows: values[j * nx + i]. */

import { Dimension, type Numbers, uniform } from "../data";

/** A map with the steps of its axes; its middle has the coordinates (0, 0) unless `origin` gives those of its first sample. */
export interface LagMap {
  readonly values: Numbers;
  readonly nx: number;
  readonly ny: number;
  /** Step along both axes. */
  readonly step: number;
  /** Coordinate of the first sample along either axis. */
  readonly origin: readonly [number, number];
}

/** Whether a sample of a map lies at (0, 0). */
export function isLagged({ step, origin, nx, ny }: LagMap): boolean {
  const [i, j] = origin.map((first) => -first / step);
  return [i, j].every((at) => Math.abs(at - Math.round(at)) < 1e-6) && i >= 0 && i < nx && j >= 0 && j < ny;
}

/** A dimension of `count` samples around zero. */
export function centred(name: string, unit: string, count: number, step: number): Dimension {
  return uniform(name, unit, count, (-(count - 1) / 2) * step, step);
}

export interface Statistics {
  readonly count: number;
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  /** Root of the mean square. */
  readonly rms: number;
  /** Standard deviation about the mean, by the number of samples. */
  readonly deviation: number;
}

/** Statistics of the finite numbers; NaN where there are none. */
export function statistics(values: ArrayLike<number>): Statistics {
  let [count, min, max, sum] = [0, Infinity, -Infinity, 0];
  for (let k = 0; k < values.length; k++) {
    const value = values[k];
    if (Number.isFinite(value)) {
      count++;
      sum += value;
      min = Math.min(min, value);
      max = Math.max(max, value);
    }
  }
  if (count === 0) {
    return { count, min: NaN, max: NaN, mean: NaN, rms: NaN, deviation: NaN };
  }
  const mean = sum / count;
  let [squares, spread] = [0, 0];
  for (let k = 0; k < values.length; k++) {
    if (Number.isFinite(values[k])) {
      squares += values[k] ** 2;
      spread += (values[k] - mean) ** 2;
    }
  }
  return { count, min, max, mean, rms: Math.sqrt(squares / count), deviation: Math.sqrt(spread / count) };
}

/** Index of the number of largest magnitude; the first where several have it. */
export function peak(values: Numbers): number {
  let best = 0;
  for (let k = 1; k < values.length; k++) {
    if (Math.abs(values[k]) > Math.abs(values[best]) || Number.isNaN(values[best])) {
      best = k;
    }
  }
  return best;
}

/** Row j of a map, along x. */
export function row({ values, nx }: Pick<LagMap, "values" | "nx">, j: number): Numbers {
  return values.slice(j * nx, (j + 1) * nx);
}

/** Column i of a map, along y. */
export function column({ values, nx, ny }: Pick<LagMap, "values" | "nx" | "ny">, i: number): Float64Array {
  return Float64Array.from({ length: ny }, (_, j) => values[j * nx + i]);
}

export interface Rings {
  /** Mean distance of the samples of each ring from the centre, in units of a sample. */
  readonly radius: Float64Array;
  /** Mean of their finite numbers. */
  readonly mean: Float64Array;
}

/** Means over rings one sample wide about the sample (ci, cj), which may lie between samples; rings without samples are left out. */
export function rings({ values, nx, ny }: Pick<LagMap, "values" | "nx" | "ny">, ci: number, cj: number, most = Infinity): Rings {
  const count = Math.ceil(Math.hypot(Math.max(ci, nx - 1 - ci), Math.max(cj, ny - 1 - cj))) + 2;
  const [sums, radii, hits] = [new Float64Array(count), new Float64Array(count), new Float64Array(count)];
  for (let j = 0; j < ny; j++) {
    for (let i = 0; i < nx; i++) {
      const value = values[j * nx + i];
      const radius = Math.hypot(i - ci, j - cj);
      if (Number.isFinite(value) && radius <= most) {
        const k = Math.round(radius);
        sums[k] += value;
        radii[k] += radius;
        hits[k]++;
      }
    }
  }
  const kept = Array.from(hits.keys()).filter((k) => hits[k] > 0);
  return { radius: Float64Array.from(kept, (k) => radii[k] / hits[k]), mean: Float64Array.from(kept, (k) => sums[k] / hits[k]) };
}

/** A piece of an iso-line in samples: (x, y) from and to. */
type Piece = readonly [number, number, number, number];

/**
 * Lines on which a map, linear between samples, has this value: marching squares, in units of samples. A cell whose corners alternate is
 * divided by its mean. Cells with a number that is not finite have none.
 */
export function isoLines({ values, nx, ny }: Pick<LagMap, "values" | "nx" | "ny">, level: number): (readonly [number, number])[][] {
  const pieces: Piece[] = [];
  for (let j = 0; j + 1 < ny; j++) {
    for (let i = 0; i + 1 < nx; i++) {
      // Corners in the order of the circumference.
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]] as const;
      const v = corners.map(([x, y]) => values[y * nx + x] - level);
      if (!v.every(Number.isFinite)) {
        continue;
      }
      const crossings: [number, number][] = [];
      for (let k = 0; k < 4; k++) {
        const next = (k + 1) % 4;
        if (v[k] >= 0 !== v[next] >= 0) {
          const t = v[k] / (v[k] - v[next]);
          crossings.push([corners[k][0] + t * (corners[next][0] - corners[k][0]), corners[k][1] + t * (corners[next][1] - corners[k][1])]);
        }
      }
      if (crossings.length === 2) {
        pieces.push([...crossings[0], ...crossings[1]]);
      } else if (crossings.length === 4) {
        const joined = v[0] + v[1] + v[2] + v[3] >= 0 === v[0] >= 0;
        const order = joined ? [0, 1, 2, 3] : [3, 0, 1, 2];
        pieces.push([...crossings[order[0]], ...crossings[order[1]]], [...crossings[order[2]], ...crossings[order[3]]]);
      }
    }
  }
  return joinPieces(pieces);
}

/** Joins pieces that share an end to lines. */
function joinPieces(pieces: readonly Piece[]): (readonly [number, number])[][] {
  const key = (x: number, y: number) => `${x.toFixed(9)},${y.toFixed(9)}`;
  const at = new Map<string, number[]>();
  pieces.forEach(([ax, ay, bx, by], k) => {
    for (const end of [key(ax, ay), key(bx, by)]) {
      at.set(end, [...(at.get(end) ?? []), k]);
    }
  });
  const used = new Set<number>();
  const follow = (x: number, y: number): [number, number][] => {
    const line: [number, number][] = [];
    for (;;) {
      const next = (at.get(key(x, y)) ?? []).find((k) => !used.has(k));
      if (next === undefined) {
        return line;
      }
      used.add(next);
      const [ax, ay, bx, by] = pieces[next];
      [x, y] = key(ax, ay) === key(x, y) ? [bx, by] : [ax, ay];
      line.push([x, y]);
    }
  };
  return pieces.flatMap(([ax, ay, bx, by], k) => {
    if (used.has(k)) {
      return [];
    }
    used.add(k);
    const after: [number, number][] = [[ax, ay], [bx, by], ...follow(bx, by)];
    return [[...follow(ax, ay).reverse(), ...after]];
  });
}
