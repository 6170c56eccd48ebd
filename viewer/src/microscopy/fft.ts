/** Discrete Fourier transforms of any length: mixed radix for factors up to 13, Bluestein's method for others. */

import type { Numbers } from "../data";

/** Largest prime factor that is summed directly. */
const LARGEST = 13;

/** The transform of one length: X_k = Σ x_n exp(−2πi kn/N), in place. */
export class Fft {
  private readonly factors: readonly number[];
  private readonly cos: Float64Array;
  private readonly sin: Float64Array;
  private readonly re: Float64Array;
  private readonly im: Float64Array;
  private readonly chirp: Chirp | undefined;

  constructor(readonly length: number) {
    this.factors = factorise(length);
    this.chirp = this.factors.some((one) => one > LARGEST) ? new Chirp(length) : undefined;
    const table = this.chirp === undefined ? length : 0;
    this.cos = Float64Array.from({ length: table }, (_, k) => Math.cos((2 * Math.PI * k) / length));
    this.sin = Float64Array.from({ length: table }, (_, k) => -Math.sin((2 * Math.PI * k) / length));
    this.re = new Float64Array(table);
    this.im = new Float64Array(table);
  }

  /** Transforms numbers in place. */
  forward(re: Float64Array, im: Float64Array): void {
    if (this.chirp !== undefined) {
      this.chirp.forward(re, im);
      return;
    }
    let [xr, xi, yr, yi] = [re, im, this.re, this.im];
    let [length, stride] = [this.length, 1];
    for (const radix of this.factors) {
      this.stage(radix, length, stride, xr, xi, yr, yi);
      [xr, xi, yr, yi] = [yr, yi, xr, xi];
      length /= radix;
      stride *= radix;
    }
    if (xr !== re) {
      re.set(xr);
      im.set(xi);
    }
  }

  /** The inverse transform in place, divided by N. */
  inverse(re: Float64Array, im: Float64Array): void {
    this.forward(im, re);
    for (let k = 0; k < this.length; k++) {
      re[k] /= this.length;
      im[k] /= this.length;
    }
  }

  /** One stage of Stockham's method: sums over a factor, and results in the order of the next stage. */
  private stage(radix: number, length: number, stride: number, xr: Float64Array, xi: Float64Array, yr: Float64Array, yi: Float64Array): void {
    const { cos, sin } = this;
    const part = length / radix;
    const all = this.length;
    for (let p = 0; p < part; p++) {
      for (let k = 0; k < radix; k++) {
        // exp(−2πi k (p/length + j/radix)) for all j
        const turn = (k * p * stride) % all;
        const step = ((k * all) / radix) % all;
        for (let q = 0; q < stride; q++) {
          let [a, b] = [0, 0];
          let angle = turn;
          for (let j = 0, at = q + stride * p; j < radix; j++, at += stride * part) {
            const [c, s, u, v] = [cos[angle], sin[angle], xr[at], xi[at]];
            a += u * c - v * s;
            b += u * s + v * c;
            angle += step;
            angle -= angle >= all ? all : 0;
          }
          const to = q + stride * (radix * p + k);
          yr[to] = a;
          yi[to] = b;
        }
      }
    }
  }
}

/** Bluestein's method: a transform of any length as a convolution of a length 2^m. */
class Chirp {
  private readonly cos: Float64Array;
  private readonly sin: Float64Array;
  private readonly long: Fft;
  private readonly kernel: readonly [Float64Array, Float64Array];

  constructor(private readonly length: number) {
    // k² mod 2N keeps the angle exact for large k.
    const angle = (k: number) => (Math.PI * ((k * k) % (2 * length))) / length;
    this.cos = Float64Array.from({ length }, (_, k) => Math.cos(angle(k)));
    this.sin = Float64Array.from({ length }, (_, k) => -Math.sin(angle(k)));
    const padded = 2 ** Math.ceil(Math.log2(2 * length - 1));
    this.long = new Fft(padded);
    const [re, im] = [new Float64Array(padded), new Float64Array(padded)];
    for (let k = 0; k < length; k++) {
      const back = (padded - k) % padded;
      re[k] = re[back] = this.cos[k];
      im[k] = im[back] = -this.sin[k];
    }
    this.long.forward(re, im);
    this.kernel = [re, im];
  }

  forward(re: Float64Array, im: Float64Array): void {
    const { cos, sin, long, kernel, length } = this;
    const [a, b] = [new Float64Array(long.length), new Float64Array(long.length)];
    for (let k = 0; k < length; k++) {
      a[k] = re[k] * cos[k] - im[k] * sin[k];
      b[k] = re[k] * sin[k] + im[k] * cos[k];
    }
    long.forward(a, b);
    for (let k = 0; k < long.length; k++) {
      const [u, v] = [a[k], b[k]];
      a[k] = u * kernel[0][k] - v * kernel[1][k];
      b[k] = u * kernel[1][k] + v * kernel[0][k];
    }
    long.inverse(a, b);
    for (let k = 0; k < length; k++) {
      re[k] = a[k] * cos[k] - b[k] * sin[k];
      im[k] = a[k] * sin[k] + b[k] * cos[k];
    }
  }
}

/** Factors of a number: fours first, then primes in ascending order. */
function factorise(length: number): number[] {
  const factors: number[] = [];
  let rest = length;
  while (rest % 4 === 0) {
    factors.push(4);
    rest /= 4;
  }
  for (let prime = 2; rest > 1; prime++) {
    while (rest % prime === 0) {
      factors.push(prime);
      rest /= prime;
    }
    if (prime * prime > rest && rest > 1) {
      factors.push(rest);
      rest = 1;
    }
  }
  return factors;
}

const plans = new Map<number, Fft>();

/** The plan of a length; the last ones are kept. */
export function plan(length: number): Fft {
  let found = plans.get(length);
  if (found === undefined) {
    found = new Fft(length);
    plans.set(length, found);
    if (plans.size > 8) {
      plans.delete(plans.keys().next().value as number);
    }
  }
  return found;
}

/** A complex plane by rows. */
export interface Plane {
  readonly re: Float64Array;
  readonly im: Float64Array;
}

/** The transform of a plane of `ny` rows of `nx` numbers, not shifted: frequency 0 is first. */
export function fft2(re: Numbers, im: Numbers | undefined, nx: number, ny: number): Plane {
  const to: Plane = { re: Float64Array.from(re), im: im ? Float64Array.from(im) : new Float64Array(nx * ny) };
  const rows = plan(nx);
  for (let j = 0; j < ny; j++) {
    rows.forward(to.re.subarray(j * nx, (j + 1) * nx), to.im.subarray(j * nx, (j + 1) * nx));
  }
  const columns = plan(ny);
  const [a, b] = [new Float64Array(ny), new Float64Array(ny)];
  for (let i = 0; i < nx; i++) {
    for (let j = 0; j < ny; j++) {
      a[j] = to.re[j * nx + i];
      b[j] = to.im[j * nx + i];
    }
    columns.forward(a, b);
    for (let j = 0; j < ny; j++) {
      to.re[j * nx + i] = a[j];
      to.im[j * nx + i] = b[j];
    }
  }
  return to;
}

/** Puts frequency 0 of a plane by rows to sample (⌊nx/2⌋, ⌊ny/2⌋). */
export function shifted(values: Numbers, nx: number, ny: number): Float64Array {
  const to = new Float64Array(nx * ny);
  const [sx, sy] = [Math.floor(nx / 2), Math.floor(ny / 2)];
  for (let j = 0; j < ny; j++) {
    const row = ((j + sy) % ny) * nx;
    for (let i = 0; i < nx; i++) {
      to[row + ((i + sx) % nx)] = values[j * nx + i];
    }
  }
  return to;
}

/** First frequency and step of `shifted` transforms of n samples of a step: the sample of frequency 0 is ⌊n/2⌋. */
export function frequencies(n: number, step: number): { readonly first: number; readonly step: number } {
  const each = 1 / (n * step);
  return { first: -Math.floor(n / 2) * each, step: each };
}
