/** Series of curves, and their samples in the rows of one table. */

import type { Numbers } from "../../data";

/** One curve. */
export interface Series {
  readonly label: string;
  /** The numbers y; those that are not finite leave gaps. */
  readonly values: Numbers;
  /** Its own x; all others share that of the curves. */
  readonly x?: Numbers;
  /** "step" holds each number from half-way to its neighbours. */
  readonly style?: "line" | "points" | "dashed" | "step";
  /** Standard errors, drawn as bars of ± one. */
  readonly error?: Numbers;
  readonly unit?: string;
}

/** What a CurveView shows. */
export interface Curves {
  readonly x: Numbers;
  /** Names and units of the axes, as in "height [m]". */
  readonly xTitle: string;
  readonly yTitle: string;
  readonly series: readonly Series[];
  /** Axes that are logarithmic until the reader chooses. */
  readonly logX?: boolean;
  readonly logY?: boolean;
}

/** The series in the rows of one table: ascending x, and for each series a number (NaN: a gap) or undefined where it has no sample. */
export interface Rows {
  readonly x: readonly number[];
  readonly y: readonly (readonly (number | undefined)[])[];
  readonly error: readonly (readonly (number | undefined)[] | undefined)[];
}

/** All series in rows of ascending x. Samples of one series at the same x have rows of their own. */
export function inRows({ x, series }: Curves): Rows {
  const isShared = series.every((one) => one.x === undefined) && x.every((value, n) => Number.isFinite(value) && (n === 0 || value > x[n - 1]));
  if (isShared) {
    const cut = (values: Numbers) => Array.from(x, (_, n) => (n < values.length ? values[n] : undefined));
    return { x: Array.from(x), y: series.map((one) => cut(one.values)), error: series.map((one) => one.error && cut(one.error)) };
  }
  const sorted = series.map((one) => {
    const own = one.x ?? x;
    return Array.from({ length: Math.min(own.length, one.values.length) }, (_, n) => n).filter((n) => Number.isFinite(own[n])).sort((a, b) => own[a] - own[b]);
  });
  const at = series.map(() => 0);
  const rows: number[] = [];
  const y: (number | undefined)[][] = series.map(() => []);
  const error: ((number | undefined)[] | undefined)[] = series.map((one) => (one.error ? [] : undefined));
  for (;;) {
    const next = Math.min(...series.map((one, k) => (at[k] < sorted[k].length ? (one.x ?? x)[sorted[k][at[k]]] : Infinity)));
    if (next === Infinity) {
      return { x: rows, y, error };
    }
    rows.push(next);
    series.forEach((one, k) => {
      const n = sorted[k][at[k]];
      const isHere = n !== undefined && (one.x ?? x)[n] === next;
      y[k].push(isHere ? one.values[n] : undefined);
      error[k]?.push(isHere ? one.error?.[n] : undefined);
      at[k] += isHere ? 1 : 0;
    });
  }
}

/** Number of the element of ascending numbers next to x. */
export function nearest(sorted: readonly number[], x: number): number {
  let [low, high] = [0, sorted.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return Math.abs(sorted[high] - x) < Math.abs(sorted[low] - x) ? high : low;
}

/** The row next to x in which a series has a sample; −1 where it has none. */
export function nearestRow(rows: Rows, k: number, x: number): number {
  const values = rows.y[k];
  const start = nearest(rows.x, x);
  for (let d = 0; d < values.length; d++) {
    const [a, b] = [start - d, start + d];
    const left = a >= 0 && values[a] !== undefined;
    const right = b < values.length && values[b] !== undefined;
    if (left && right) {
      return Math.abs(rows.x[a] - x) <= Math.abs(rows.x[b] - x) ? a : b;
    }
    if (left || right) {
      return left ? a : b;
    }
  }
  return -1;
}
