/** Covariances of slopes by pair of stars and component, whatever form a file has them in: Toeplitz, blocks or dense. */

import { DataError, type ArrayVariable, type DataFile, type Numbers } from "../data";
import type { LagMap } from "./maps";
import { slopeOrder, type SlopeOrder } from "./slope_order";

/** A covariance by displacement: of component a of star p with component b of star q, whose lenslet is displaced from that of p [m]. */
export interface PairMap extends LagMap {
  /** How the numbers follow from those of the file, in a sentence; empty where they are the file's own. */
  readonly about: string;
}

/** Covariances of slopes of a file. */
export interface SlopeCovariances {
  /** Name of the variable, or of the first of several. */
  readonly name: string;
  readonly unit: string;
  /** Number of stars. */
  readonly stars: number;
  map(p: number, q: number, a: number, b: number): Promise<PairMap>;
}

/** All covariances of slopes that a file has: those of `slope_slope` in any form, and matrices of measurements, `c_mm`. */
export async function slopeCovariances(file: DataFile): Promise<SlopeCovariances[]> {
  const order = await slopeOrder(file);
  const pitches = (await file.array("pitch")?.all())?.re;
  const found: SlopeCovariances[] = [];
  const toeplitz = file.array("slope_slope");
  const sets = file.array("star_set");
  const dense = file.array("slope_slope_dense");
  if (toeplitz?.shape.length === 6) {
    found.push(new ToeplitzCovariances(toeplitz, (pitches?.[0] ?? order?.pitch(0)) || 1));
  } else if (sets && order) {
    found.push(new BlockCovariances(file, Array.from((await sets.all()).re), order));
  } else if (dense && order && isSquare(dense, order.count)) {
    found.push(new DenseCovariances(dense, order));
  }
  const measured = file.array("c_mm");
  if (measured && order && isSquare(measured, order.count)) {
    found.push(new DenseCovariances(measured, order));
  }
  return found;
}

/** Whether a file has covariances of slopes by name. */
export function hasSlopeCovariances(file: DataFile): boolean {
  return file.array("slope_slope")?.shape.length === 6 || ["star_set", "slope_slope_dense", "c_mm"].some((name) => file.array(name) !== undefined);
}

function isSquare({ shape }: ArrayVariable, n: number): boolean {
  return shape.length === 2 && shape[0] === n && shape[1] === n;
}

/** (p, q, a, b, y, x): maps are the file's own. */
class ToeplitzCovariances implements SlopeCovariances {
  constructor(
    private readonly array: ArrayVariable,
    private readonly pitch: number,
  ) {}

  get name(): string {
    return this.array.name;
  }

  get unit(): string {
    return this.array.unit;
  }

  get stars(): number {
    return this.array.shape[0];
  }

  async map(p: number, q: number, a: number, b: number): Promise<PairMap> {
    return lattice(this.array, [p, q, a, b], this.pitch);
  }
}

/** A map of a Toeplitz form, whose last two dimensions are displacements about zero. */
async function lattice(array: ArrayVariable, at: readonly number[], pitch: number): Promise<PairMap> {
  const { re, shape } = await array.block([...at, null, null]);
  const step = pitch * (array.array.binning[array.shape.length - 1] ?? 1);
  return { values: re, nx: shape[1], ny: shape[0], step, origin: [-((shape[1] - 1) / 2) * step, -((shape[0] - 1) / 2) * step], about: "" };
}

/** (slope, slope): maps are means over pairs of lenslets by their displacement. */
class DenseCovariances implements SlopeCovariances {
  constructor(
    private readonly array: ArrayVariable,
    private readonly order: SlopeOrder,
  ) {}

  get name(): string {
    return this.array.name;
  }

  get unit(): string {
    return this.array.unit;
  }

  get stars(): number {
    return this.order.stars.length;
  }

  map(p: number, q: number, a: number, b: number): Promise<PairMap> {
    return byDisplacement(this.array, [this.order, this.order], [p, q, a, b]);
  }
}

/** Several arrays: one for each group of stars on a lattice, one for each pair of groups, and one of stars without a lattice. */
class BlockCovariances implements SlopeCovariances {
  private readonly members: number[][] = [];

  constructor(
    private readonly file: DataFile,
    private readonly sets: readonly number[],
    private readonly order: SlopeOrder,
  ) {
    sets.forEach((set, star) => (this.members[set] ??= []).push(star));
  }

  get name(): string {
    return "slope_slope";
  }

  get unit(): string {
    return this.file.arrays().find((one) => /^slope_slope/.test(one.name))?.unit ?? "rad2";
  }

  get stars(): number {
    return this.sets.length;
  }

  async map(p: number, q: number, a: number, b: number): Promise<PairMap> {
    const [first, second] = [this.sets[p], this.sets[q]];
    if (first > second) {
      return reversed(await this.map(q, p, b, a));
    }
    const order = (set: number) => this.order.of(this.members[set]);
    const toeplitz = first === second ? this.file.array(`slope_slope_${first}`) : undefined;
    if (toeplitz?.shape.length === 6) {
      const place = (star: number) => this.members[first].indexOf(star);
      return lattice(toeplitz, [place(p), place(q), a, b], this.order.pitch(p));
    }
    const name = first === second ? `slope_slope_dense_${first}` : `slopes_between_${first}_${second}`;
    const array = this.file.array(name);
    if (array === undefined) {
      throw new DataError(`The file has no array ${name}, with the covariance of stars ${p} and ${q}.`);
    }
    return byDisplacement(array, [order(first), order(second)], [p, q, a, b]);
  }
}

/** The map of the pair (q, p) from that of (p, q): all displacements change their sign. */
export function reversed(map: PairMap): PairMap {
  const last = (count: number, k: 0 | 1) => -(map.origin[k] + (count - 1) * map.step);
  return { ...map, values: map.values.slice().reverse(), origin: [last(map.nx, 0), last(map.ny, 1)] };
}

/**
 * Means of a matrix, whose rows and columns have these orders of slopes, over the pairs of lenslets of stars p and q whose displacement is
 * the same to half a pitch, that of the coarser lenslets.
 */
async function byDisplacement(
  array: ArrayVariable,
  [rows, columns]: readonly [SlopeOrder, SlopeOrder],
  [p, q, a, b]: readonly [number, number, number, number],
): Promise<PairMap> {
  const [from, to] = [rows.block(p, a), columns.block(q, b)];
  const { re } = await array.range(from.from * columns.count, from.to * columns.count);
  const step = Math.max(rows.pitch(p), columns.pitch(q));
  const means = meansByDisplacement(re, columns.count, rows.slopes.slice(from.from, from.to), columns.slopes.slice(to.from, to.to), to.from, step);
  const about = "Mean over the pairs of lenslets with the same displacement" + (means.exact ? "." : `, rounded to ${step} m, the pitch of the coarser lenslets.`);
  return { ...means, about };
}

interface Placed {
  readonly x: number;
  readonly y: number;
}

/**
 * Means of rows × columns of a matrix by displacement of column from row, rounded to a step; NaN where no pair has it. `first` is the
 * column of the first of `columns`, `width` that of the matrix.
 */
export function meansByDisplacement(
  matrix: Numbers,
  width: number,
  rows: readonly Placed[],
  columns: readonly Placed[],
  first: number,
  step: number,
): LagMap & { readonly exact: boolean } {
  const reach = (of: (one: Placed) => number) => {
    const [a, b] = [rows.map(of), columns.map(of)];
    return Math.round(Math.max(Math.max(...b) - Math.min(...a), Math.max(...a) - Math.min(...b)) / step);
  };
  const half = Math.max(reach(({ x }) => x), reach(({ y }) => y), 0);
  const n = 2 * half + 1;
  const [sums, hits] = [new Float64Array(n * n), new Float64Array(n * n)];
  let off = 0;
  rows.forEach((one, r) => {
    columns.forEach((other, c) => {
      const [dx, dy] = [(other.x - one.x) / step, (other.y - one.y) / step];
      // A displacement half way between two goes to the larger one, whatever its last digits.
      const [i, j] = [Math.floor(dx + 0.500001), Math.floor(dy + 0.500001)];
      off = Math.max(off, Math.abs(dx - i), Math.abs(dy - j));
      const at = (j + half) * n + i + half;
      sums[at] += matrix[r * width + first + c];
      hits[at]++;
    });
  });
  return { values: sums.map((sum, k) => sum / hits[k]), nx: n, ny: n, step, origin: [-half * step, -half * step], exact: off < 1e-6 };
}
