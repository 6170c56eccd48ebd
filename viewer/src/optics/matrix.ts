/** Large matrices for display: parts of them, of which each shows its entry of largest magnitude. */

import type { ArrayVariable } from "../data";

export interface ShownMatrix {
  /** By rows, the first row first. */
  readonly values: Float64Array;
  readonly rows: number;
  readonly columns: number;
  /** Entries of the matrix to a shown one, along rows and columns. */
  readonly perRow: number;
  readonly perColumn: number;
}

/** Entries that a picture has along a side, at most. */
const MOST = 2048;

/** Elements that are read at once. */
const CHUNK = 1 << 22;

/**
 * The matrix of the last two dimensions where the others have these samples. Where it has more than 2048 rows or columns, each shown entry is
 * that of the largest magnitude of a part. Undefined where `stale` before it was read.
 */
export async function shownMatrix(array: ArrayVariable, fixed: readonly number[], stale: () => boolean, most = MOST): Promise<ShownMatrix | undefined> {
  const [m, n] = array.shape.slice(-2);
  const base = fixed.reduce((sum, at, k) => sum * array.shape[k] + at, 0) * m * n;
  const [perRow, perColumn] = [Math.ceil(m / most), Math.ceil(n / most)];
  const [rows, columns] = [Math.ceil(m / perRow), Math.ceil(n / perColumn)];
  const values = new Float64Array(rows * columns);
  const atOnce = Math.max(Math.floor(CHUNK / n), 1);
  for (let from = 0; from < m; from += atOnce) {
    const to = Math.min(from + atOnce, m);
    const { re } = await array.range(base + from * n, base + to * n);
    if (stale()) {
      return undefined;
    }
    for (let r = from; r < to; r++) {
      const target = Math.floor(r / perRow) * columns;
      const source = (r - from) * n;
      for (let c = 0; c < n; c++) {
        const [at, value] = [target + Math.floor(c / perColumn), re[source + c]];
        if (Math.abs(value) > Math.abs(values[at])) {
          values[at] = value;
        }
      }
    }
  }
  return { values, rows, columns, perRow, perColumn };
}
