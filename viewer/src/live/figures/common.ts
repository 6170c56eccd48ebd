/** What several live figures need. */

import { formatNumber } from "../../data";

/** A number of so many digits, with its unit. */
export function inUnits(value: number, unit: string, digits = 3): string {
  return `${formatNumber(value, digits)}${unit === "" ? "" : " "}${unit}`;
}

/** count numbers from a to b, equally spaced. */
export function evenly(a: number, b: number, count: number): Float64Array {
  return Float64Array.from({ length: count }, (_, k) => a + ((b - a) * k) / (count - 1));
}

/** count numbers from a to b, equally spaced on a logarithmic axis. */
export function byDecades(a: number, b: number, count: number): Float64Array {
  return evenly(Math.log(a), Math.log(b), count).map(Math.exp);
}

