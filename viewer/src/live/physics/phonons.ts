/** Frozen phonons: the chapter of that name, with the same random numbers. */

/** High and low half of the product of two unsigned numbers of 32 bits. */
function halves(a: number, b: number): readonly [number, number] {
  const [low, high] = [(b & 0xffff) >>> 0, b >>> 16];
  // Both partial products are below 2^48, so that they are exact.
  const first = a * low;
  const second = a * high + Math.floor(first / 0x10000);
  return [Math.floor(second / 0x10000) >>> 0, Math.imul(a, b) >>> 0];
}

/** 128 bits that belong to a counter under a key: Philox 4×32 with ten rounds. */
export function philox(counter: readonly number[], key: readonly number[]): number[] {
  let [a, b, c, d] = counter;
  let [k, l] = key;
  for (let round = 0; round < 10; round++) {
    const [high0, low0] = halves(0xd2511f53, a);
    const [high2, low2] = halves(0xcd9e8d57, c);
    [a, b, c, d] = [(high2 ^ b ^ k) >>> 0, low2, (high0 ^ d ^ l) >>> 0, low0];
    k = (k + 0x9e3779b9) >>> 0;
    l = (l + 0xbb67ae85) >>> 0;
  }
  return [a, b, c, d];
}

/** Three standard normal numbers of an atom in a configuration, as the library draws them; all arguments are below 2^30. */
export function displacementOf(seed: number, configuration: number, atom: number): [number, number, number] {
  const pair = (purpose: number): [number, number] => {
    const bits = philox([atom, purpose, configuration, 0], [seed, 0]);
    const uniform = (low: number, high: number) => (high * 2 ** 21 + (low >>> 11)) / 2 ** 53;
    return [uniform(bits[0], bits[1]), uniform(bits[2], bits[3])];
  };
  const point = ([radius, angle]: [number, number]): [number, number] => {
    const r = Math.sqrt(-2 * Math.log(1 - radius));
    return [r * Math.cos(2 * Math.PI * angle), r * Math.sin(2 * Math.PI * angle)];
  };
  const [[x, y], [z]] = [point(pair(1)), point(pair(2))];
  return [x, y, z];
}
