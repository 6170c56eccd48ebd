/** Numerics of wavefronts: the pupil, piston and tip-tilt, mean and rms. Maps are by rows: values[j * n + i]. */

import type { Numbers } from "../data";

/** Points of an n × n grid of this step, centred on the axis, that the pupil of a telescope contains [m]: 1 inside, 0 outside. */
export function pupilMask(n: number, step: number, diameter: number, obstruction: number): Uint8Array {
  const [outer, inner] = [(diameter / 2) ** 2, ((diameter / 2) * obstruction) ** 2];
  const at = (k: number) => ((k - (n - 1) / 2) * step) ** 2;
  return Uint8Array.from({ length: n * n }, (_, k) => {
    const square = at(k % n) + at(Math.floor(k / n));
    // The last digit of a coordinate decides nothing at the rims, of which the inner one is lit and the outer one is not.
    return inner * (1 - 1e-12) <= square && square < outer * (1 - 1e-12) ? 1 : 0;
  });
}

/** What is subtracted from a wavefront. */
export interface Removal {
  readonly piston: boolean;
  readonly tipTilt: boolean;
}

/** A wavefront over the pupil, with its mean before anything was removed, its rms after that, and what was fitted. */
export interface PupilWavefront {
  /** NaN outside the pupil. */
  readonly values: Float64Array;
  readonly mean: number;
  /** Root of the mean square of `values`: with piston removed, the standard deviation over the pupil. */
  readonly rms: number;
  /** Slopes of the plane fitted by least squares, per sample, along x and y. */
  readonly tilt: readonly [number, number];
  /** Largest minus smallest of `values`. */
  readonly peakToValley: number;
}

/**
 * A wavefront times a factor inside a mask (all points where there is none), after piston, and tip and tilt by least squares, were removed.
 *
 * Tip and tilt are removed as a plane through zero at the mean position of the points, so that removing them keeps the piston.
 */
export function overPupil(wavefront: Numbers, nx: number, mask: Uint8Array | undefined, { piston, tipTilt }: Removal, factor = 1): PupilWavefront {
  const inside = (k: number) => (mask === undefined || mask[k] === 1) && Number.isFinite(wavefront[k]);
  let [count, mean, mx, my] = [0, 0, 0, 0];
  for (let k = 0; k < wavefront.length; k++) {
    if (inside(k)) {
      count++;
      mean += wavefront[k];
      mx += k % nx;
      my += Math.floor(k / nx);
    }
  }
  [mean, mx, my] = [mean / count, mx / count, my / count];
  const tilt = tipTilt ? plane(wavefront, nx, inside, mean, mx, my) : ([0, 0] as const);
  const values = new Float64Array(wavefront.length).fill(NaN);
  let [squares, min, max] = [0, Infinity, -Infinity];
  for (let k = 0; k < wavefront.length; k++) {
    if (inside(k)) {
      const fitted = (piston ? mean : 0) + tilt[0] * ((k % nx) - mx) + tilt[1] * (Math.floor(k / nx) - my);
      const value = (values[k] = factor * (wavefront[k] - fitted));
      squares += value * value;
      min = Math.min(min, value);
      max = Math.max(max, value);
    }
  }
  return { values, mean: factor * mean, rms: Math.sqrt(squares / count), tilt: [factor * tilt[0], factor * tilt[1]], peakToValley: max - min };
}

/** Slopes of the plane through the mean (m) at the mean position (mx, my), by least squares. */
function plane(w: Numbers, nx: number, inside: (k: number) => boolean, m: number, mx: number, my: number): readonly [number, number] {
  let [xx, xy, yy, xw, yw] = [0, 0, 0, 0, 0];
  for (let k = 0; k < w.length; k++) {
    if (inside(k)) {
      const [x, y, v] = [(k % nx) - mx, Math.floor(k / nx) - my, w[k] - m];
      xx += x * x;
      xy += x * y;
      yy += y * y;
      xw += x * v;
      yw += y * v;
    }
  }
  const determinant = xx * yy - xy * xy;
  return determinant > 0 ? [(xw * yy - yw * xy) / determinant, (yw * xx - xw * xy) / determinant] : [0, 0];
}
