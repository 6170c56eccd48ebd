/** Fourier transforms of square planes whose side is a power of 2. */

/** Replaces a plane (side², row-major) by Σ f(k, l) exp(+2πi(kx + ly)/side), without a factor in front. */
export function inverseTransform(re: Float64Array, im: Float64Array, side: number): void {
  for (const [stride, next] of [[1, side], [side, 1]]) {
    for (let row = 0; row < side; row++) {
      line(re, im, row * next, stride, side);
    }
  }
}

/** The transform along one line of the plane, in place. */
function line(re: Float64Array, im: Float64Array, start: number, stride: number, n: number): void {
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) {
      j ^= bit;
    }
    j ^= bit;
    if (i < j) {
      const [a, b] = [start + i * stride, start + j * stride];
      [re[a], re[b]] = [re[b], re[a]];
      [im[a], im[b]] = [im[b], im[a]];
    }
  }
  for (let size = 2; size <= n; size *= 2) {
    const half = size / 2;
    for (let k = 0; k < half; k++) {
      const [c, s] = [Math.cos((2 * Math.PI * k) / size), Math.sin((2 * Math.PI * k) / size)];
      for (let i = k; i < n; i += size) {
        const [a, b] = [start + i * stride, start + (i + half) * stride];
        const [x, y] = [re[b] * c - im[b] * s, re[b] * s + im[b] * c];
        re[b] = re[a] - x;
        im[b] = im[a] - y;
        re[a] += x;
        im[a] += y;
      }
    }
  }
}
