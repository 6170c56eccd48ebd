/** Eigenvalues of the covariance of the measurements, and which of them a reconstructor keeps. */

import type { Numbers } from "../data";

export interface Spectrum {
  /** From the largest to the smallest. */
  readonly values: Float64Array;
  /** Value below which eigenvalues are dropped: the filter times the largest one; 0 where there is no filter. */
  readonly threshold: number;
  /** Number of values at or above the threshold, and above zero. */
  readonly kept: number;
  /** Number of values at or below zero. */
  readonly negative: number;
  /** Largest over smallest positive eigenvalue. */
  readonly condition: number;
  /** Largest over smallest kept eigenvalue. */
  readonly conditionKept: number;
}

/** The spectrum of eigenvalues in any order, with a filter, a share of the largest one. */
export function spectrumOf(eigenvalues: Numbers, filter: number): Spectrum {
  const values = Float64Array.from(eigenvalues).sort().reverse();
  const threshold = filter * values[0];
  const positive = values.filter((value) => value > 0);
  const kept = positive.filter((value) => value >= threshold);
  const ratio = (some: Float64Array) => (some.length > 0 ? some[0] / some[some.length - 1] : NaN);
  return { values, threshold, kept: kept.length, negative: values.length - positive.length, condition: ratio(positive), conditionKept: ratio(kept) };
}

/** The filter that the name of a method tells, as in "eigenvectors, filtered at 5.2e-14"; undefined where it tells none. */
export function filterOfMethod(method: string): number | undefined {
  const found = /filtered at ([-+0-9.eE]+)/.exec(method);
  return found && Number.isFinite(Number(found[1])) ? Number(found[1]) : undefined;
}
