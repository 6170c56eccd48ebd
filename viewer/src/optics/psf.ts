/** Numerics of point-spread functions on square pixels, (n, n) by rows, of which each number is the share of the light on a pixel. */

import type { Numbers } from "../data";

/** An image of n × n pixels, the star on the pixel (centre, centre) along both axes. */
export interface PsfImage {
  readonly values: Numbers;
  readonly n: number;
  /** The pixel of the star, which lies at its middle: floor(n/2) in Lenslet's files. */
  readonly centre: number;
}

/**
 * Shares of the light in circles about the star, of these radii in pixels: pixels count by the part of their area inside.
 */
export function encircled({ values, n, centre }: PsfImage, radii: readonly number[]): Float64Array {
  const order = Array.from({ length: n * n }, (_, k) => k);
  const distance = Float64Array.from(order, (k) => Math.hypot((k % n) - centre, Math.floor(k / n) - centre));
  order.sort((a, b) => distance[a] - distance[b]);
  const sums = new Float64Array(n * n + 1);
  order.forEach((k, m) => {
    sums[m + 1] = sums[m] + (Number.isFinite(values[k]) ? values[k] : 0);
  });
  return Float64Array.from(radii, (radius) => {
    // Pixels nearer than this are inside as a whole, and those farther than `last` outside; between them the circle divides them.
    const first = lowerBound(order, (k) => distance[k] > radius - Math.SQRT1_2);
    const last = lowerBound(order, (k) => distance[k] >= radius + Math.SQRT1_2);
    let sum = sums[first];
    for (let m = first; m < last; m++) {
      const k = order[m];
      sum += (Number.isFinite(values[k]) ? values[k] : 0) * pixelInCircle((k % n) - centre, Math.floor(k / n) - centre, radius);
    }
    return sum;
  });
}

function lowerBound(order: readonly number[], after: (k: number) => boolean): number {
  let [from, to] = [0, order.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (after(order[middle])) {
      to = middle;
    } else {
      from = middle + 1;
    }
  }
  return from;
}

/** Area of the unit square around (x, y) inside the circle of this radius about zero. */
export function pixelInCircle(x: number, y: number, radius: number): number {
  const corner = (a: number, b: number) => Math.sign(a) * Math.sign(b) * quadrantArea(Math.abs(a), Math.abs(b), radius);
  return corner(x + 0.5, y + 0.5) - corner(x - 0.5, y + 0.5) - corner(x + 0.5, y - 0.5) + corner(x - 0.5, y - 0.5);
}

/** Area of the rectangle from (0, 0) to (a, b) inside the circle of this radius about zero. */
function quadrantArea(a: number, b: number, radius: number): number {
  if (a * a + b * b <= radius * radius) {
    return a * b;
  }
  const [x, y] = [Math.min(a, radius), Math.min(b, radius)];
  // From the height at which the circle leaves the rectangle's top, to where it leaves its right side.
  const start = Math.sqrt(radius * radius - y * y);
  const primitive = (t: number) => 0.5 * (t * Math.sqrt(Math.max(radius * radius - t * t, 0)) + radius * radius * Math.asin(Math.min(t / radius, 1)));
  return start >= x ? x * y : start * y + primitive(x) - primitive(start);
}

/** Shares of the light in square boxes about the star, of these sides in pixels: pixels count by the part of their area inside. */
export function ensquared({ values, n, centre }: PsfImage, sides: readonly number[]): Float64Array {
  const table = new Float64Array((n + 1) ** 2);
  for (let j = 0; j < n; j++) {
    for (let i = 0, sum = 0; i < n; i++) {
      sum += Number.isFinite(values[j * n + i]) ? values[j * n + i] : 0;
      table[(j + 1) * (n + 1) + i + 1] = table[j * (n + 1) + i + 1] + sum;
    }
  }
  // The sum of all below (x, y), in pixels from the image's corner, linear within a pixel.
  const below = (x: number, y: number) => {
    const clip = (t: number) => Math.min(Math.max(t, 0), n);
    const [cx, cy] = [clip(x), clip(y)];
    const [i, j] = [Math.min(Math.floor(cx), n - 1), Math.min(Math.floor(cy), n - 1)];
    const [u, v] = [cx - i, cy - j];
    const at = (di: number, dj: number) => table[(j + dj) * (n + 1) + i + di];
    return (1 - v) * ((1 - u) * at(0, 0) + u * at(1, 0)) + v * ((1 - u) * at(0, 1) + u * at(1, 1));
  };
  return Float64Array.from(sides, (side) => {
    const [from, to] = [centre + 0.5 - side / 2, centre + 0.5 + side / 2];
    return below(to, to) - below(from, to) - below(to, from) + below(from, from);
  });
}

/** The ellipse at half the value at the star [pixels]. */
export interface Width {
  readonly major: number;
  readonly minor: number;
  /** Direction of the longer axis from x to y [rad], from 0 to less than π. */
  readonly angle: number;
  /** Diameter of the circle of the same area. */
  readonly mean: number;
}

const DIRECTIONS = 64;

/**
 * Full widths at half maximum, as Lenslet measures them: of the ellipse 1/r² = c₀ + c₁ cos 2φ + c₂ sin 2φ fitted to the contour at half the
 * value on the star in 64 directions. Between pixels the image is interpolated by polynomials through six of them. Undefined where the image
 * does not fall to half within half its size.
 */
export function fwhm(image: PsfImage): Width | undefined {
  const half = image.values[image.centre * (image.n + 1)] / 2;
  const radii: number[] = [];
  for (let k = 0; k < DIRECTIONS; k++) {
    const radius = firstBelow(image, half, (Math.PI * k) / DIRECTIONS);
    if (radius === undefined) {
      return undefined;
    }
    radii.push(radius);
  }
  const wave = (of: (angle: number) => number) => radii.reduce((sum, r, k) => sum + of((2 * Math.PI * k) / DIRECTIONS) / (r * r * DIRECTIONS), 0);
  const [c0, c1, c2] = [wave(() => 1), 2 * wave(Math.cos), 2 * wave(Math.sin)];
  const uneven = Math.hypot(c1, c2);
  const [major, minor] = [c0 - uneven, c0 + uneven].map((square) => 2 / Math.sqrt(square));
  const angle = uneven > 1e-12 * c0 ? 0.5 * Math.atan2(-c2, -c1) : 0;
  return { major, minor, angle: (angle + Math.PI) % Math.PI, mean: Math.sqrt(major * minor) };
}

/** Distance in pixels at which the image first falls to a value in a direction. */
function firstBelow(image: PsfImage, value: number, angle: number): number | undefined {
  const [dx, dy] = [Math.cos(angle), Math.sin(angle)];
  const at = (r: number) => interpolate(image, image.centre + r * dx, image.centre + r * dy);
  const last = image.n / 2 - 3;
  const step = 0.25;
  for (let r = step; r <= last; r += step) {
    if (at(r) <= value) {
      let [from, to] = [r - step, r];
      for (let k = 0; k < 40; k++) {
        const middle = (from + to) / 2;
        [from, to] = at(middle) > value ? [middle, to] : [from, middle];
      }
      return (from + to) / 2;
    }
  }
  return undefined;
}

/** The image between pixels, by Lagrange's polynomials through six of them along either axis; pixels beyond the image count as those at its rim. */
export function interpolate({ values, n }: PsfImage, x: number, y: number): number {
  const [[i0, bx], [j0, by]] = [sixAround(x), sixAround(y)];
  const clip = (k: number) => Math.min(Math.max(k, 0), n - 1);
  let sum = 0;
  for (let j = 0; j < 6; j++) {
    for (let i = 0; i < 6; i++) {
      sum += by[j] * bx[i] * values[clip(j0 + j) * n + clip(i0 + i)];
    }
  }
  return sum;
}

/** The first of six whole numbers around x, and the weights of Lagrange's polynomial through them. */
function sixAround(x: number): readonly [number, readonly number[]] {
  const first = Math.floor(x) - 2;
  const t = x - first;
  const weights = [0, 1, 2, 3, 4, 5].map((k) => [0, 1, 2, 3, 4, 5].reduce((product, l) => (l === k ? product : (product * (t - l)) / (k - l)), 1));
  return [first, weights];
}

/** Radius of the first dark ring of Airy's pattern [mas], for a wavelength and a diameter [m]: 1.2197 λ/D. */
export function airyRadius(wavelength: number, diameter: number): number {
  return ((1.2196698912665 * wavelength) / diameter / Math.PI) * 648e6;
}
