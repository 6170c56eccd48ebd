/** Axes of curves and bars: where ticks lie and how they are labelled. */

import { formatNumber } from "../data";
import { raised } from "./axes";

/** Lower and upper end of an axis. */
export type Limits = readonly [number, number];

/** Round numbers between two limits, about so many. */
export function linearTicks([a, b]: Limits, about: number): number[] {
  const raw = (b - a) / Math.max(about, 1);
  if (!(raw > 0) || !Number.isFinite(raw)) {
    return [];
  }
  const decade = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((m) => m * decade >= raw * 0.75) ?? 10) * decade;
  const first = Math.ceil(a / step - 1e-9);
  const count = Math.floor(b / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(Math.min(count, 100), 0) }, (_, k) => Number(((first + k) * step).toPrecision(14)));
}

/** Ticks of a logarithmic axis: decades, with their parts where there are few, else round numbers. */
export function logTicks([a, b]: Limits, about: number): number[] {
  if (!(a > 0) || !(b > a)) {
    return [];
  }
  const [low, high] = [Math.floor(Math.log10(a)), Math.ceil(Math.log10(b))];
  const decades = Math.log10(b / a);
  if (decades < 0.7) {
    return linearTicks([a, b], about).filter((x) => x > 0);
  }
  const parts = decades * 3 <= about * 1.5 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / Math.max(about, 1)));
  const ticks: number[] = [];
  for (let d = Math.floor(low / every) * every; d <= high; d += every) {
    ticks.push(...parts.map((m) => Number(`${m}e${d}`)));
  }
  return ticks.filter((x) => x >= a * (1 - 1e-9) && x <= b * (1 + 1e-9));
}

/** Ticks of an axis of either kind. */
export function ticksOf(limits: Limits, log: boolean, about: number): number[] {
  return log ? logTicks(limits, about) : linearTicks(limits, about);
}

/** Labels of ticks, with as many digits as tell neighbours apart; powers of ten where numbers are small or large, as in 2·10⁻⁶. */
export function tickLabels(ticks: readonly number[]): string[] {
  const sizes = ticks.map(Math.abs).filter((x) => x > 0);
  const largest = Math.max(...sizes, 0);
  const gaps = ticks.slice(1).map((x, k) => Math.abs(x - ticks[k])).filter((x) => x > 0);
  const smallest = Math.min(...gaps);
  const digits = gaps.length > 0 && largest > 0 ? Math.ceil(Math.log10(largest / smallest)) + 2 : 6;
  const isSmallOrLarge = (x: number) => x < 1e-3 || x >= 1e6;
  // Over decades each number by itself; else all alike.
  const isWide = largest > 900 * Math.min(...sizes);
  return ticks.map((x) => {
    const most = Math.min(Math.max(digits, 3), 15);
    return x !== 0 && isSmallOrLarge(isWide ? Math.abs(x) : largest) ? powerOfTen(x, isWide ? 3 : most) : formatNumber(x, most);
  });
}

/** A number as a power of ten with a factor that is not printed where it is 1. */
function powerOfTen(x: number, digits: number): string {
  const [factor, exponent] = x.toExponential(Math.min(digits, 15) - 1).split("e");
  const number = formatNumber(Number(factor), digits);
  const power = `10${raised(Number(exponent))}`;
  return /^−?1$/.test(number) ? `${number.slice(0, -1)}${power}` : `${number}·${power}`;
}

/** Where a number lies between limits: 0 at the lower end, 1 at the upper one. */
export function fraction(x: number, [a, b]: Limits, log: boolean): number {
  return log ? Math.log(x / a) / Math.log(b / a) : (x - a) / (b - a);
}

/** The inverse of `fraction`. */
export function atFraction(f: number, [a, b]: Limits, log: boolean): number {
  return log ? a * (b / a) ** f : a + f * (b - a);
}

/** Limits about numbers from `a` to `b`, so wide a margin on both sides; about any numbers at all where there are none. */
export function around(a: number, b: number, log: boolean, margin: number): Limits {
  if (!(a <= b)) {
    return log ? [1, 10] : [0, 1];
  }
  if (log) {
    const by = Math.max(b / a, a === b ? 10 : 1) ** (a === b ? 0.5 : margin);
    return [Math.max(a / by, Number.MIN_VALUE), Math.min(b * by, Number.MAX_VALUE)];
  }
  const by = a === b ? Math.abs(a) * 0.1 || 1 : (b - a) * margin;
  return [a - by, b + by];
}
