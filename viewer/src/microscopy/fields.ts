/** Fields of two components over a scan: centres of mass, differences of sectors. */

import type { Numbers } from "../data";

/** Length of each vector. */
export function magnitude(x: Numbers, y: Numbers): Float64Array {
  return Float64Array.from(x, (one, k) => Math.hypot(one, y[k]));
}

/** Direction of each vector [rad], from x to y, between −π and π. */
export function direction(x: Numbers, y: Numbers): Float64Array {
  return Float64Array.from(x, (one, k) => Math.atan2(y[k], one));
}

/** Derivative of an image's rows (`along` 0) or columns (1): central differences, one-sided at the edges. */
export function derivative(values: Numbers, nx: number, ny: number, step: number, along: 0 | 1): Float64Array {
  const to = new Float64Array(nx * ny);
  const [count, stride] = along === 0 ? [nx, 1] : [ny, nx];
  if (count < 2) {
    return to;
  }
  for (let n = 0; n < nx * ny; n++) {
    const at = along === 0 ? n % nx : Math.floor(n / nx);
    const [a, b] = [at > 0 ? 1 : 0, at < count - 1 ? 1 : 0];
    to[n] = (values[n + b * stride] - values[n - a * stride]) / ((a + b) * step);
  }
  return to;
}

/** Divergence ∂x/∂x + ∂y/∂y of a field by rows. */
export function divergence(x: Numbers, y: Numbers, nx: number, ny: number, steps: readonly [number, number]): Float64Array {
  const [a, b] = [derivative(x, nx, ny, steps[0], 0), derivative(y, nx, ny, steps[1], 1)];
  return a.map((one, k) => one + b[k]);
}

/** Curl ∂y/∂x − ∂x/∂y of a field by rows: 0 for the gradient of a potential. */
export function curl(x: Numbers, y: Numbers, nx: number, ny: number, steps: readonly [number, number]): Float64Array {
  const [a, b] = [derivative(y, nx, ny, steps[0], 0), derivative(x, nx, ny, steps[1], 1)];
  return a.map((one, k) => one - b[k]);
}

/**
 * Sums of sectors weighted by the cosine (`along` 0) or the sine (1) of their middle's azimuth, in shares of the sum of all: of four
 * quadrants that begin at −45°, the difference of opposing ones. `sectors` are images by rows, the first beginning at `rotation` [rad].
 */
export function dpc(sectors: readonly Numbers[], rotation: number, along: 0 | 1): Float64Array {
  const weight = sectors.map((_, k) => {
    const azimuth = rotation + (2 * Math.PI * (k + 0.5)) / sectors.length;
    return along === 0 ? Math.cos(azimuth) : Math.sin(azimuth);
  });
  return Float64Array.from(sectors[0], (_, n) => {
    let [sum, all] = [0, 0];
    sectors.forEach((one, k) => {
      sum += weight[k] * one[n];
      all += one[n];
    });
    return all === 0 ? 0 : sum / all;
  });
}

/** Sum of images of some sectors, minus that of others. */
export function combined(sectors: readonly Numbers[], weights: readonly number[]): Float64Array {
  return Float64Array.from(sectors[0], (_, n) => sectors.reduce((sum, one, k) => sum + weights[k] * one[n], 0));
}
