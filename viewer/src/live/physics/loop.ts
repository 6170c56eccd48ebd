/** Control loops: the chapter "Servo-lag error". */

/** A loop: open where `gain` is null. Rate in Hz, delay in frames. */
export interface ControlLoop {
  readonly rate: number;
  readonly gain: number | null;
  readonly delay: number;
}

type Complex = readonly [number, number];
const times = ([a, b]: Complex, [c, d]: Complex): Complex => [a * c - b * d, a * d + b * c];
const plus = ([a, b]: Complex, [c, d]: Complex): Complex => [a + c, b + d];
const scaled = (s: number, [a, b]: Complex): Complex => [s * a, s * b];
const cis = (phase: number): Complex => [Math.cos(phase), Math.sin(phase)];
const over = ([a, b]: Complex, [c, d]: Complex): Complex => scaled(1 / (c * c + d * d), times([a, b], [c, -d]));
/** exp(iφ) − 1 without cancellation. */
const rise = (phase: number): Complex => times(cis(0.5 * phase), [0, 2 * Math.sin(0.5 * phase)]);

/** 1 − sin(x)/x. */
function oneLessSinc(x: number): number {
  const square = x * x;
  return square > 0.1 ? 1 - Math.sin(x) / x : [7, 6, 5, 4, 3, 2, 1].reduce((sum, k) => (square / (2 * k * (2 * k + 1))) * (1 - sum), 0);
}

/** |E(ν)|²: the fraction of the power of a wave of a temporal frequency [Hz] that remains in the residual. */
export function rejection({ rate, gain, delay }: ControlLoop, frequency: number): number {
  const turn = (Math.PI * frequency) / rate;
  const short = oneLessSinc(turn);
  let left: Complex;
  if (gain === null) {
    left = plus(scaled(-1, rise(-2 * turn * delay)), scaled(short, cis(-2 * turn * delay)));
  } else {
    const whole = Math.floor(delay);
    const rest = delay - whole;
    const power = (k: number) => cis(2 * turn * k);
    const forgets = scaled(-1, rise(-2 * turn));
    const sees = plus(scaled(1 - rest, power(-whole)), scaled(rest, power(-whole - 1)));
    const mean = plus(scaled(1 - rest, rise(2 * turn * rest)), scaled(rest, rise(2 * turn * (rest - 1))));
    const top = plus(forgets, scaled(gain, times(power(-delay), plus(mean, [short, 0]))));
    left = over(top, plus(forgets, scaled(gain, sees)));
  }
  return left[0] ** 2 + left[1] ** 2 + 2 * short * (1 - left[0]);
}

/**
 * Product of 1 − ζ² of Levinson's recursion for the characteristic polynomial z^(n+1+…) − z^n + g[(1−η) z + η] of a loop; null where a
 * reflection coefficient is not below 1, so that the loop is not stable.
 */
function damping(gain: number, delay: number): number | null {
  const whole = Math.floor(delay);
  const rest = delay - whole;
  // Coefficients of z^0 … z^(whole + 1).
  let polynomial = new Array<number>(whole + 2).fill(0);
  polynomial[whole + 1] += 1;
  polynomial[whole] -= 1;
  polynomial[1] += gain * (1 - rest);
  polynomial[0] += gain * rest;
  let product = 1;
  while (polynomial.length > 1) {
    const degree = polynomial.length - 1;
    const share = polynomial[0] / polynomial[degree];
    if (Math.abs(share) >= 1) {
      return null;
    }
    product *= 1 - share * share;
    polynomial = Array.from({ length: degree }, (_, k) => (polynomial[k + 1] - share * polynomial[degree - k - 1]) / (1 - share * share));
  }
  return product;
}

/** Noise gain β: ratio of the noise variance of the strokes to that of a frame; 1 in an open loop, infinite in one that is not stable. */
export function noiseGain({ gain, delay }: ControlLoop): number {
  if (gain === null) {
    return 1;
  }
  const product = damping(gain, delay);
  return product === null ? Infinity : (gain * gain) / product;
}
