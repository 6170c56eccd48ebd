/** The special functions and quadrature rules of the physics, by the algorithms of the library's chapters "Special functions" and "Quadrature and tables". */

/** Coefficients of Lanczos's approximation with g = 7. */
const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
  -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

/** Γ(x), for x that is no integer below 1; relative error below 1e-14 for |x| ≤ 20. */
export function gamma(x: number): number {
  if (x < 0.5) {
    return Math.PI / (Math.sin(Math.PI * x) * gamma(1 - x));
  }
  const sum = LANCZOS.reduce((sum, coefficient, k) => sum + (k === 0 ? coefficient : coefficient / (x - 1 + k)), 0);
  const t = x + 6.5;
  return Math.sqrt(2 * Math.PI) * t ** (x - 0.5) * Math.exp(-t) * sum;
}

/** The modified Bessel function of the second kind, K_ν(x), for x > 0 and |ν| ≤ 2: the integral ∫ exp(−x cosh t) cosh νt dt by the trapezoidal rule. */
export function besselK(order: number, x: number): number {
  const step = 0.125 * Math.min(1, Math.sqrt(30 / x));
  let sum = 0.5;
  for (let k = 1; ; k++) {
    const t = k * step;
    const half = Math.sinh(0.5 * t);
    const fall = 2 * x * half * half;
    if (fall > 40) {
      return step * Math.exp(-x) * sum;
    }
    sum += Math.cosh(order * t) * Math.exp(-fall);
  }
}


/** Nodes and weights on [−1, 1]. */
export interface Rule {
  readonly nodes: readonly number[];
  readonly weights: readonly number[];
}

const rules = new Map<number, Rule>();

/** Gauss's rule of n nodes: roots of Legendre's polynomial by Newton's method. */
export function gaussLegendre(n: number): Rule {
  const known = rules.get(n);
  if (known) {
    return known;
  }
  const nodes: number[] = [];
  const weights: number[] = [];
  for (let k = 0; k < n; k++) {
    let x = -Math.cos((Math.PI * (k + 0.75)) / (n + 0.5));
    let derivative = 1;
    for (let round = 0; round < 8; round++) {
      let [before, value] = [1, x];
      for (let j = 2; j <= n; j++) {
        [before, value] = [value, ((2 * j - 1) * x * value - (j - 1) * before) / j];
      }
      derivative = (n * (x * value - before)) / (x * x - 1);
      x -= value / derivative;
    }
    nodes.push(x);
    weights.push(2 / ((1 - x * x) * derivative * derivative));
  }
  const rule = { nodes, weights };
  rules.set(n, rule);
  return rule;
}

/** sin(πu)/πu, and 1 at 0. */
export function sinc(u: number): number {
  return u === 0 ? 1 : Math.sin(Math.PI * u) / (Math.PI * u);
}
