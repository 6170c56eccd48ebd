/** The order of slopes in vectors and matrices: star by star, all x before all y, valid lenslets by rows. */

import type { DataFile, Numbers } from "../data";

/** One slope of a vector, and the centre of its lenslet on the pupil [m]. */
export interface Slope {
  readonly star: number;
  /** 0 for x, 1 for y. */
  readonly axis: number;
  readonly row: number;
  readonly column: number;
  readonly x: number;
  readonly y: number;
}

/** Consecutive slopes of one star and axis: from `from` up to `to`. */
export interface SlopeBlock {
  readonly star: number;
  readonly axis: number;
  readonly from: number;
  readonly to: number;
}

/** Name of an axis. */
export const AXES = ["x", "y"] as const;

/** Slopes one by one, and the blocks of stars and axes. */
export class SlopeOrder {
  readonly blocks: readonly SlopeBlock[];
  /** Numbers of the stars, ascending. */
  readonly stars: readonly number[];

  constructor(readonly slopes: readonly Slope[]) {
    const blocks: { star: number; axis: number; from: number; to: number }[] = [];
    slopes.forEach(({ star, axis }, k) => {
      const last = blocks[blocks.length - 1];
      if (last?.star === star && last.axis === axis) {
        last.to = k + 1;
      } else {
        blocks.push({ star, axis, from: k, to: k + 1 });
      }
    });
    this.blocks = blocks;
    this.stars = [...new Set(blocks.map(({ star }) => star))].sort((a, b) => a - b);
  }

  get count(): number {
    return this.slopes.length;
  }

  /** The block of a star and an axis. */
  block(star: number, axis: number): SlopeBlock {
    return this.blocks.find((one) => one.star === star && one.axis === axis) ?? { star, axis, from: 0, to: 0 };
  }

  /** The order of the slopes of some stars, in the order given. */
  of(stars: readonly number[]): SlopeOrder {
    return new SlopeOrder(stars.flatMap((star) => this.slopes.filter((one) => one.star === star)));
  }

  /** Where wider lines divide a matrix (between stars) and narrower ones (between x and y), as numbers of slopes. */
  boundaries(): { readonly at: number; readonly star: boolean }[] {
    return this.blocks.slice(1).map(({ from, star }, k) => ({ at: from, star: star !== this.blocks[k].star }));
  }

  /** Lenslets across the array of a star: up to the last row or column in use. */
  across(star: number): number {
    return this.slopes.reduce((most, one) => (one.star === star ? Math.max(most, one.row + 1, one.column + 1) : most), 0);
  }

  /** Side of a star's lenslets on the pupil [m]: the distance of neighbours; 1 where there is a single lenslet. */
  pitch(star: number): number {
    const { from, to } = this.block(star, 0);
    for (let k = from + 1; k < to; k++) {
      const [a, b] = [this.slopes[k - 1], this.slopes[k]];
      const steps = Math.hypot(b.column - a.column, b.row - a.row);
      if (steps > 0) {
        return Math.hypot(b.x - a.x, b.y - a.y) / steps;
      }
    }
    return 1;
  }

  /**
   * Numbers of a vector of slopes on the lenslets of a star, by rows, (n, n) for n lenslets across; NaN at lenslets without a slope.
   */
  map(vector: Numbers, star: number, axis: number): Float64Array {
    const n = this.across(star);
    const map = new Float64Array(n * n).fill(NaN);
    const { from, to } = this.block(star, axis);
    for (let k = from; k < to; k++) {
      map[this.slopes[k].row * n + this.slopes[k].column] = vector[k];
    }
    return map;
  }
}

/** A slope in words: "star 1, x, lenslet (3, 4)", of row 3 and column 4. */
export function slopeLabel({ star, axis, row, column }: Slope): string {
  return `star ${star}, ${AXES[axis]}, lenslet (${row}, ${column})`;
}

/**
 * The order of the slopes of a file: by its table `slope_table`, else by its masks of valid lenslets (`valid`, or `valid_0` …) and their
 * pitches; undefined where it has neither.
 */
export async function slopeOrder(file: DataFile): Promise<SlopeOrder | undefined> {
  const table = file.table("slope_table");
  if (table) {
    const column = (name: string) => (table.columns.find((one) => one.name === name)?.values ?? []).map(Number);
    const [star, axis, row, col, x, y] = ["star", "axis", "row", "column", "x", "y"].map(column);
    return new SlopeOrder(star.map((_, k) => ({ star: star[k], axis: axis[k], row: row[k], column: col[k], x: x[k] ?? NaN, y: y[k] ?? NaN })));
  }
  const pitch = await file.array("pitch")?.all();
  const stars = pitch?.re.length ?? file.array("directions")?.shape[0] ?? 0;
  const slopes: Slope[] = [];
  for (let star = 0; star < stars; star++) {
    const mask = file.array(`valid_${star}`) ?? file.array("valid");
    if (mask === undefined) {
      return undefined;
    }
    slopes.push(...lenslets((await mask.all()).re, mask.shape[1], star, pitch?.re[star] ?? 1));
  }
  return slopes.length > 0 ? new SlopeOrder(slopes) : undefined;
}

/** Slopes of a star whose lenslets are valid by a mask, at rest on the axis. */
function lenslets(mask: Numbers, n: number, star: number, pitch: number): Slope[] {
  const valid = Array.from(mask.keys()).filter((k) => mask[k] !== 0);
  const at = (k: number) => (k - (n - 1) / 2) * pitch;
  return [0, 1].flatMap((axis) =>
    valid.map((k): Slope => {
      const [row, column] = [Math.floor(k / n), k % n];
      return { star, axis, row, column, x: at(column), y: at(row) };
    }),
  );
}

/** Root mean square over the slopes of a star, both axes together, as they are or without the mean of either axis. */
export function starRms(vector: Numbers, order: SlopeOrder, star: number, withoutMean: boolean): number {
  let [squares, count] = [0, 0];
  for (const axis of [0, 1]) {
    const { from, to } = order.block(star, axis);
    const mean = withoutMean ? meanOf(vector, from, to) : 0;
    for (let k = from; k < to; k++) {
      squares += (vector[k] - mean) ** 2;
    }
    count += to - from;
  }
  return Math.sqrt(squares / count);
}

/** Mean of the numbers from `from` up to `to`. */
export function meanOf(vector: Numbers, from: number, to: number): number {
  let sum = 0;
  for (let k = from; k < to; k++) {
    sum += vector[k];
  }
  return sum / (to - from);
}
