/** Second-order statistics of turbulence: the chapters "Phase covariance", "Edge integrals", "Fitting error" and "Conical and angular decorrelation" of the book, in TypeScript. */

import { besselK, gamma, gaussLegendre } from "./special";

const ORDER = 5 / 6;
/** Below this x = 2πr/L₀ a series is summed. */
const SERIES_END = 2;
const TERMS = 14;

/** [24/5 Γ(6/5)]^(5/6) = 3.441939. */
export const KOLMOGOROV = (4.8 * gamma(1.2)) ** ORDER;

/** The constant c_W = 0.0228956 of the power spectrum. */
export const SPECTRUM = (gamma(11 / 6) ** 2 / (2 * Math.PI ** (11 / 3))) * KOLMOGOROV;

/** Phase statistics of one outer scale [m], possibly infinite, for r₀ = 1 m: multiply by r₀^(−5/3). */
export class VonKarman {
  private readonly scale: number;
  private readonly odd: number[] = [];
  private readonly even: number[] = [];
  private readonly zeroLag = 2 ** (ORDER - 1) * gamma(ORDER);

  constructor(readonly outerScale: number) {
    this.scale = Number.isFinite(outerScale)
      ? (gamma(11 / 6) / (2 ** ORDER * Math.PI ** (8 / 3))) * KOLMOGOROV * outerScale ** (5 / 3)
      : KOLMOGOROV;
    const reflection = Math.PI / (2 * Math.sin(Math.PI * ORDER));
    let above = (reflection * 2 ** -ORDER) / gamma(1 + ORDER);
    let below = (-reflection * 2 ** ORDER) / gamma(1 - ORDER);
    for (let n = 1; n <= TERMS; n++) {
      this.odd.push(above);
      above *= 0.25 / (n * (n + ORDER));
      below *= 0.25 / (n * (n - ORDER));
      this.even.push(below);
    }
  }

  /** Power spectrum [rad² m²] at a squared spatial frequency [m⁻²]. */
  powerSpectrum(frequencySquared: number): number {
    return SPECTRUM * (frequencySquared + this.outerScale ** -2) ** (-11 / 6);
  }

  /** Covariance B(r) [rad²] at a distance [m]; infinite where the outer scale is. */
  covariance(r: number): number {
    const x = (2 * Math.PI * r) / this.outerScale;
    return Number.isFinite(this.outerScale) ? this.scale * (x === 0 ? this.zeroLag : x ** ORDER * besselK(ORDER, x)) : Infinity;
  }

  /** Structure function D(r) [rad²] at a distance [m]. */
  structureFunction(r: number): number {
    return 2 * this.halves(r)[0];
  }

  /** S(r), half the structure function, and M(r), half its mean over the disc of radius r [rad²]. */
  halves(r: number): readonly [number, number] {
    if (r === 0) {
      return [0, 0];
    }
    if (!Number.isFinite(this.outerScale)) {
      const half = this.scale * r ** (5 / 3);
      return [half, (half * 3) / 11];
    }
    const x = (2 * Math.PI * r) / this.outerScale;
    const [half, mean] = x < SERIES_END ? this.near(x) : this.far(x);
    return [this.scale * half, this.scale * mean];
  }

  private near(x: number): readonly [number, number] {
    const square = x * x;
    let [odd, even, oddMean, evenMean] = [0, 0, 0, 0];
    for (let k = TERMS - 1; k >= 0; k--) {
      odd = odd * square + this.odd[k];
      even = even * square + this.even[k];
      oddMean = oddMean * square + this.odd[k] / (2 * k + 11 / 3);
      evenMean = evenMean * square + this.even[k] / (2 * k + 4);
    }
    const leading = x ** (5 / 3);
    return [leading * odd + square * even, leading * oddMean + square * evenMean];
  }

  private far(x: number): readonly [number, number] {
    const lower = besselK(ORDER, x);
    const upper = besselK(ORDER - 1, x) + ((2 * ORDER) / x) * lower;
    const power = x ** ORDER;
    const whole = 2 ** ORDER * gamma(ORDER + 1);
    return [this.zeroLag - power * lower, 0.5 * this.zeroLag - (whole - x * power * upper) / (x * x)];
  }
}

/** ∫ S du, ∫ u S du and ∫ M du along an edge. */
type Edge = readonly [number, number, number];

/** Integrals along an edge whose line passes the origin at the distance `across`, from u = a to u = b; panels are halved towards the cusp at the origin. */
function edgeIntegrals(phase: VonKarman, side: number, across: number, [a, b]: readonly [number, number]): Edge {
  const rule = gaussLegendre(10);
  const finest = Math.min(side, phase.outerScale) / 65536;
  const sum: [number, number, number] = [0, 0, 0];
  const panel = (from: number, to: number): void => {
    const length = to - from;
    const distance = Math.hypot(across, Math.max(0, Math.max(from, -to)));
    if ((length > distance && length > finest) || (length > phase.outerScale && distance < 8 * phase.outerScale)) {
      const middle = 0.5 * (from + to);
      panel(from, middle);
      panel(middle, to);
      return;
    }
    rule.nodes.forEach((node, k) => {
      const u = from + 0.5 * length * (1 + node);
      const weight = 0.5 * length * rule.weights[k];
      const [half, mean] = phase.halves(Math.hypot(across, u));
      sum[0] += weight * half;
      sum[1] += weight * (u - a) * half;
      sum[2] += weight * mean;
    });
  };
  if (a < 0 && b > 0) {
    panel(a, 0);
    panel(0, b);
  } else {
    panel(a, b);
  }
  return sum;
}

/** Covariances of phase gradients averaged over square footprints, for r₀ = 1 m [rad² m⁻²]: components xx, xy, yy, each (ny, nx). */
export interface GradientCovariances {
  readonly xx: Float64Array;
  readonly xy: Float64Array;
  readonly yy: Float64Array;
}

/**
 * Covariances at the lags `first` + (i, j)·`step`, where `step` is the side of the footprints [m]: exact, by integrals along the edges
 * of the lattice of lags.
 */
export function gradientCovariances(phase: VonKarman, side: number, first: readonly [number, number], [ny, nx]: readonly [number, number]): GradientCovariances {
  const lines = (start: number, n: number) => Array.from({ length: n + 2 }, (_, k) => start + (k - 1) * side);
  const [x, y] = [lines(first[0], nx), lines(first[1], ny)];
  const edge = (across: number, along: readonly number[], k: number) => edgeIntegrals(phase, side, Math.abs(across), [along[k], along[k + 1]]);
  const vertical = Array.from({ length: ny + 1 }, (_, j) => x.map((across) => edge(across, y, j)));
  const horizontal = y.map((across) => Array.from({ length: nx + 1 }, (_, i) => edge(across, x, i)));
  const triangle = (rising: Edge, falling: Edge) => rising[1] + side * falling[0] - falling[1];
  const alongY = (j: number, i: number) => triangle(vertical[j][i], vertical[j + 1][i]);
  const alongX = (j: number, i: number) => triangle(horizontal[j][i], horizontal[j][i + 1]);
  const cell = (j: number, i: number) =>
    y[j + 1] * horizontal[j + 1][i][2] - y[j] * horizontal[j][i][2] + x[i + 1] * vertical[j][i + 1][2] - x[i] * vertical[j][i][2];
  const grid = (value: (j: number, i: number) => number) =>
    Float64Array.from({ length: ny * nx }, (_, k) => value(Math.floor(k / nx), k % nx) / side ** 4);
  return {
    xx: grid((j, i) => alongY(j, i) - 2 * alongY(j, i + 1) + alongY(j, i + 2)),
    xy: grid((j, i) => cell(j + 1, i + 1) - cell(j + 1, i) - cell(j, i + 1) + cell(j, i)),
    yy: grid((j, i) => alongX(j, i) - 2 * alongX(j + 1, i) + alongX(j + 2, i)),
  };
}

/** (λ/2π)² r₀^(−5/3) [m² per rad² at r₀ = 1 m]: from phase to wavefront. */
export function squareMetres(friedParameter: number, wavelength: number): number {
  return (wavelength / (2 * Math.PI)) ** 2 * friedParameter ** (-5 / 3);
}

/** Variance of the fitting error [m²] of a square lattice of actuators of a pitch [m] under one outer scale [m]. */
export function fittingVariance(friedParameter: number, wavelength: number, outerScale: number, pitch: number): number {
  const rule = gaussLegendre(20);
  const eighth = Math.PI / 8;
  const octant = rule.nodes.reduce((sum, node, k) => {
    const edge = 0.5 / pitch / Math.cos(eighth * (1 + node));
    return sum + rule.weights[k] * (edge * edge + outerScale ** -2) ** (-5 / 6);
  }, 0);
  return squareMetres(friedParameter, wavelength) * 4.8 * SPECTRUM * eighth * octant;
}
