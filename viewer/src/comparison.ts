/** Arithmetic of comparing two arrays, or two texts. */

import type { Numbers } from "./data";

/** How two arrays of numbers become one. */
export type Combination = "difference" | "relative" | "ratio";

/** An angle in (−π, π]. */
function wrapped(angle: number): number {
  const turn = 2 * Math.PI;
  const rest = angle - turn * Math.ceil((angle - Math.PI) / turn);
  return rest;
}

/** A − B, (A − B)/|B| or A/B of each element; differences of phases [rad] lie in (−π, π]. */
export function combine(how: Combination, a: Numbers, b: Numbers, isPhase: boolean): Float64Array {
  const to = new Float64Array(a.length);
  for (let k = 0; k < to.length; k++) {
    const d = isPhase ? wrapped(a[k] - b[k]) : a[k] - b[k];
    to[k] = how === "difference" ? d : how === "relative" ? d / Math.abs(b[k]) : a[k] / b[k];
  }
  return to;
}

/** Statistics of the differences of two arrays, gathered piece by piece in one pass. */
export class Comparison {
  /** Elements that are finite in both. */
  count = 0;
  /** Elements that are not finite in one or both. */
  skipped = 0;
  /** Elements that are not equal; two NaN are equal. */
  differing = 0;
  /** Largest |A − B| and the number of its element; −1 where there is none. */
  largest = 0;
  largestAt = -1;
  private seen = 0;
  private squares = 0;
  private squaresB = 0;
  private meanA = 0;
  private meanB = 0;
  private varianceA = 0;
  private varianceB = 0;
  private covariance = 0;

  constructor(private readonly isPhase = false) {}

  /** Takes the next elements of both. */
  add(a: Numbers, b: Numbers): void {
    for (let k = 0; k < a.length; k++) {
      const [x, y] = [a[k], b[k]];
      if (x !== y && !(Number.isNaN(x) && Number.isNaN(y))) {
        this.differing++;
      }
      if (!Number.isFinite(x) || !Number.isFinite(y)) {
        this.skipped++;
        continue;
      }
      const d = this.isPhase ? wrapped(x - y) : x - y;
      if (Math.abs(d) > this.largest) {
        this.largest = Math.abs(d);
        this.largestAt = this.seen + k;
      }
      this.squares += d * d;
      this.squaresB += y * y;
      const n = ++this.count;
      const fromA = x - this.meanA;
      const fromB = y - this.meanB;
      this.meanA += fromA / n;
      this.meanB += fromB / n;
      this.varianceA += fromA * (x - this.meanA);
      this.varianceB += fromB * (y - this.meanB);
      this.covariance += fromA * (y - this.meanB);
    }
    this.seen += a.length;
  }

  /** Root mean square of A − B. */
  get rms(): number {
    return Math.sqrt(this.squares / this.count);
  }

  /** Root mean square of A − B over that of B. */
  get relativeRms(): number {
    return Math.sqrt(this.squares / this.squaresB);
  }

  /** Pearson's correlation coefficient of A and B; NaN where one of them is constant. */
  get correlation(): number {
    return this.covariance / Math.sqrt(this.varianceA * this.varianceB);
  }
}

/** A line of two texts: of both, of A only, or of B only, with its numbers from 0. */
export interface ComparedLine {
  readonly of: "both" | "a" | "b";
  readonly a: number;
  readonly b: number;
  readonly text: string;
}

/** Most pairs of lines whose longest common subsequence is sought. */
const PAIRS = 4_000_000;

/** Compares two texts line by line: lines of the longest common subsequence are of both. Long texts that differ throughout are not aligned. */
export function compareLines(a: readonly string[], b: readonly string[]): ComparedLine[] {
  let [start, endA, endB] = [0, a.length, b.length];
  while (start < endA && start < endB && a[start] === b[start]) {
    start++;
  }
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA--;
    endB--;
  }
  const [n, m] = [endA - start, endB - start];
  const both = (i: number, j: number): ComparedLine => ({ of: "both", a: i, b: j, text: a[i] });
  const middle: ComparedLine[] = [];
  const isAligned = n * m <= PAIRS;
  // Lengths of the longest common subsequence of what follows, by rows.
  const lengths = new Uint32Array(isAligned ? (n + 1) * (m + 1) : 0);
  for (let i = n - 1; isAligned && i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      const at = i * (m + 1) + j;
      lengths[at] = a[start + i] === b[start + j] ? lengths[at + m + 2] + 1 : Math.max(lengths[at + m + 1], lengths[at + 1]);
    }
  }
  let [i, j] = [0, 0];
  while (i < n || j < m) {
    const at = i * (m + 1) + j;
    if (isAligned && i < n && j < m && a[start + i] === b[start + j]) {
      middle.push(both(start + i++, start + j++));
    } else if (i < n && (j === m || !isAligned || lengths[at + m + 1] >= lengths[at + 1])) {
      middle.push({ of: "a", a: start + i, b: -1, text: a[start + i++] });
    } else {
      middle.push({ of: "b", a: -1, b: start + j, text: b[start + j++] });
    }
  }
  return [
    ...Array.from({ length: start }, (_, k) => both(k, k)),
    ...middle,
    ...Array.from({ length: a.length - endA }, (_, k) => both(endA + k, endB + k)),
  ];
}
