/** Waves on a periodic grid: centred about a position, in real and in reciprocal space. */

import type { Dimension, Numbers } from "../data";
import { fft2, frequencies, shifted } from "./fft";
import { brightest } from "./profiles";

/** A complex wave by rows, on uniform axes. */
export interface Wave {
  readonly re: Numbers;
  readonly im: Numbers;
  readonly nx: number;
  readonly ny: number;
  /** Position of the first sample, and step. */
  readonly first: readonly [number, number];
  readonly steps: readonly [number, number];
}

/** A wave (x, y) of a file, x the first dimension, by rows. */
export function waveOf(re: Numbers, im: Numbers, x: Dimension, y: Dimension): Wave {
  const [nx, ny] = [x.count, y.count];
  const rows = (values: Numbers) => {
    const to = new Float64Array(nx * ny);
    for (let i = 0; i < nx; i++) {
      for (let j = 0; j < ny; j++) {
        to[j * nx + i] = values[i * ny + j];
      }
    }
    return to;
  };
  return { re: rows(re), im: rows(im), nx, ny, first: [x.position(0), y.position(0)], steps: [x.step, y.step] };
}

/** The wave with the sample next to a position moved to (⌊nx/2⌋, ⌊ny/2⌋), through the periodic edges; positions are then relative to that position. */
export function centred(wave: Wave, at: readonly [number, number]): Wave {
  const { nx, ny, first, steps } = wave;
  const [mx, my] = [Math.floor(nx / 2), Math.floor(ny / 2)];
  const sample = at.map((value, k) => (value - first[k]) / steps[k]);
  const [px, py] = sample.map(Math.round);
  const roll = (values: Numbers) => {
    const to = new Float64Array(nx * ny);
    for (let j = 0; j < ny; j++) {
      const from = (((j - my + py) % ny) + ny) % ny;
      for (let i = 0; i < nx; i++) {
        to[j * nx + i] = values[from * nx + ((((i - mx + px) % nx) + nx) % nx)];
      }
    }
    return to;
  };
  const origin = [(px - sample[0] - mx) * steps[0], (py - sample[1] - my) * steps[1]] as const;
  return { ...wave, re: roll(wave.re), im: roll(wave.im), first: origin };
}

/** The wave's transform over its origin of positions: Σ|·|² is that of the wave; frequency 0 is sample (⌊nx/2⌋, ⌊ny/2⌋). */
export function reciprocal(wave: Wave): Wave {
  const { nx, ny, first, steps } = wave;
  const transform = fft2(wave.re, wave.im, nx, ny);
  const [re, im] = [shifted(transform.re, nx, ny), shifted(transform.im, nx, ny)];
  const [qx, qy] = [frequencies(nx, steps[0]), frequencies(ny, steps[1])];
  const norm = 1 / Math.sqrt(nx * ny);
  for (let j = 0; j < ny; j++) {
    for (let i = 0; i < nx; i++) {
      // Positions begin at `first`, not at 0: exp(−2πi q·first).
      const angle = -2 * Math.PI * ((qx.first + i * qx.step) * first[0] + (qy.first + j * qy.step) * first[1]);
      const [c, s, n] = [Math.cos(angle) * norm, Math.sin(angle) * norm, j * nx + i];
      [re[n], im[n]] = [re[n] * c - im[n] * s, re[n] * s + im[n] * c];
    }
  }
  return { re, im, nx, ny, first: [qx.first, qy.first], steps: [qx.step, qy.step] };
}

/** Squared modulus of each sample. */
export function intensity({ re, im }: Wave): Float64Array {
  return Float64Array.from(re, (one, k) => one * one + im[k] * im[k]);
}

/** Position of the brightest sample. */
export function brightestPlace(wave: Wave): readonly [number, number] {
  const top = brightest(intensity(wave));
  return [wave.first[0] + (top % wave.nx) * wave.steps[0], wave.first[1] + Math.floor(top / wave.nx) * wave.steps[1]];
}
