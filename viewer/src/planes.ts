/** Planes of arrays, as images want them. */

import type { ArrayVariable, Numbers } from "./data";

/** Which part of complex numbers is shown. */
export const PARTS = ["modulus", "phase", "intensity", "real", "imaginary"] as const;

export type Part = (typeof PARTS)[number];

/** One real number of each complex one. */
export function partOf(re: Numbers, im: Numbers | undefined, part: Part): Numbers {
  if (im === undefined) {
    return re;
  }
  if (part === "real" || part === "imaginary") {
    return part === "real" ? re : im;
  }
  const to = re instanceof Float64Array ? new Float64Array(re.length) : new Float32Array(re.length);
  for (let k = 0; k < to.length; k++) {
    const [a, b] = [re[k], im[k]];
    to[k] = part === "phase" ? Math.atan2(b, a) : part === "modulus" ? Math.hypot(a, b) : a * a + b * b;
  }
  return to;
}

/** Exchanges rows and columns of numbers by rows: (rows, columns) to (columns, rows). */
export function transposed(values: Numbers, rows: number, columns: number): Numbers {
  const to = values instanceof Float64Array ? new Float64Array(values.length) : new Float32Array(values.length);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      to[j * rows + i] = values[i * columns + j];
    }
  }
  return to;
}

/** The dimensions that make up a picture, x and y, unless others are chosen: q_x and q_y, x and y, else the last two. */
export function pictureAxes(variable: ArrayVariable): readonly [number, number] {
  for (const [x, y] of [["qx", "qy"], ["x", "y"]]) {
    const axes = [variable.axis(x), variable.axis(y)] as const;
    if (axes[0] >= 0 && axes[1] >= 0) {
      return axes;
    }
  }
  const rank = variable.shape.length;
  return [rank - 1, rank - 2];
}

/** A plane of a variable, by rows: x to the right, y upwards; other dimensions have a fixed sample. */
export async function plane(
  variable: ArrayVariable,
  fixed: readonly number[],
  [x, y]: readonly [number, number],
  part: Part = "modulus",
): Promise<{ readonly values: Numbers; readonly nx: number; readonly ny: number }> {
  const { re, im } = await variable.block(fixed.map((at, k) => (k === x || k === y ? null : at)));
  const values = partOf(re, im, part);
  const [nx, ny] = [variable.shape[x], variable.shape[y]];
  return { values: x > y ? values : transposed(values, nx, ny), nx, ny };
}
