/** From numbers to a fraction of the colour map: linear, square-root, logarithmic. */

import type { Numbers } from "../data";
import type { ScaleName } from "./image.api";

/** What is known of an image's finite numbers. */
export interface Statistics {
  /** Smallest and largest finite number; NaN where there is none. */
  readonly min: number;
  readonly max: number;
  /** Smallest number above 0; Infinity where there is none. */
  readonly minPositive: number;
  /** Whether all numbers are finite. */
  readonly finite: boolean;
}

/** Smallest, largest and smallest positive number in one pass. */
export function statistics(values: Numbers): Statistics {
  let [min, max, minPositive, finite] = [Infinity, -Infinity, Infinity, true];
  for (let k = 0; k < values.length; k++) {
    const v = values[k];
    if (v - v !== 0) {
      finite = false;
      continue;
    }
    if (v < min) {
      min = v;
    }
    if (v > max) {
      max = v;
    }
    if (v > 0 && v < minPositive) {
      minPositive = v;
    }
  }
  return min > max ? { min: NaN, max: NaN, minPositive, finite } : { min, max, minPositive, finite };
}

/** What is known of two images together. */
export function together(a: Statistics, b: Statistics): Statistics {
  if (Number.isNaN(a.min) || Number.isNaN(b.min)) {
    return { ...(Number.isNaN(a.min) ? b : a), finite: a.finite && b.finite };
  }
  return { min: Math.min(a.min, b.min), max: Math.max(a.max, b.max), minPositive: Math.min(a.minPositive, b.minPositive), finite: a.finite && b.finite };
}

/** Whether numbers of both signs are of similar size. */
export function looksSigned({ min, max }: Statistics): boolean {
  return min < 0 && max > 0 && Math.min(-min, max) > 0.2 * Math.max(-min, max);
}

/** Limits of the colours where none are set: symmetric where numbers are signed; a logarithmic scale spans so many decades at most. */
export function automaticLimits(stats: Statistics, scale: ScaleName, signed: boolean, decades = 6): readonly [number, number] {
  const { min, max, minPositive } = stats;
  if (Number.isNaN(min)) {
    return [0, 1];
  }
  if (signed) {
    const size = Math.max(-min, max);
    return size > 0 ? [-size, size] : [-1, 1];
  }
  if (min === max) {
    return min === 0 ? [0, 1] : [min - Math.abs(min) / 2, max + Math.abs(min) / 2];
  }
  if (scale === "log" && max > 0) {
    const lowest = Math.max(minPositive, max * 10 ** -decades);
    return lowest < max ? [lowest, max] : [max / 10, max];
  }
  return [min, max];
}

/** The number below which a share of the finite numbers lies; of large images, of every so many-th number. */
export function percentiles(values: Numbers, shares: readonly number[]): number[] {
  const stride = Math.max(1, Math.floor(values.length / 65_536));
  const sample = new Float64Array(Math.ceil(values.length / stride));
  let count = 0;
  for (let k = 0; k < values.length; k += stride) {
    if (Number.isFinite(values[k])) {
      sample[count++] = values[k];
    }
  }
  const sorted = sample.subarray(0, count).sort();
  return shares.map((share) => {
    const at = share * (count - 1);
    const k = Math.floor(at);
    return count === 0 ? NaN : sorted[k] + ((sorted[k + 1] ?? sorted[k]) - sorted[k]) * (at - k);
  });
}

/** Laws as the fragment shader numbers them: linear; signed square root; logarithm; signed logarithm with a linear core. */
export const LAWS = { linear: 0, sqrt: 1, log: 2, symlog: 3 } as const;

/**
 * A law f between two limits: fraction(v) = (f(v) − f(lo)) / (f(hi) − f(lo)).
 *
 * The square root of a negative number is −√|v|. The logarithm is log v where the lower limit is positive; else it is
 * sign(v) log(1 + |v|/core), which is linear within ±core, a thousandth of the larger limit.
 */
export class Scale {
  readonly law: keyof typeof LAWS;
  /** Half-width of the linear core of a signed logarithm; 0 where there is none. */
  readonly core: number;
  private readonly low: number;
  private readonly span: number;

  constructor(
    readonly name: ScaleName,
    readonly lo: number,
    readonly hi: number,
  ) {
    this.law = name === "log" && lo <= 0 ? "symlog" : name;
    this.core = this.law === "symlog" ? Math.max(Math.abs(lo), Math.abs(hi)) / 1000 : 0;
    this.low = this.apply(lo);
    this.span = this.apply(hi) - this.low || 1;
  }

  /** f(v), not normalised. */
  apply(v: number): number {
    switch (this.law) {
      case "linear":
        return v;
      case "sqrt":
        return Math.sign(v) * Math.sqrt(Math.abs(v));
      case "log":
        return Math.log(Math.max(v, this.lo * 1e-30));
      case "symlog":
        return Math.sign(v) * Math.log1p(Math.abs(v) / this.core);
    }
  }

  /** 0 at the lower limit, 1 at the upper one; not clamped. */
  fraction(v: number): number {
    return (this.apply(v) - this.low) / this.span;
  }

  /** The number at a fraction. */
  number(fraction: number): number {
    const f = this.low + fraction * this.span;
    switch (this.law) {
      case "linear":
        return f;
      case "sqrt":
        return Math.sign(f) * f * f;
      case "log":
        return Math.exp(f);
      case "symlog":
        return Math.sign(f) * Math.expm1(Math.abs(f)) * this.core;
    }
  }

  /** fraction(v) = factor f(v) + offset. */
  get line(): { readonly factor: number; readonly offset: number } {
    return { factor: 1 / this.span, offset: -this.low / this.span };
  }
}
