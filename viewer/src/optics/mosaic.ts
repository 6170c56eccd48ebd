/** Several maps side by side in one image. */

import type { Numbers } from "../data";

export interface Tile {
  readonly values: Numbers;
  readonly nx: number;
  readonly ny: number;
  readonly label: string;
}

/** A tile in the mosaic: the samples of its corners, `i1` and `j1` beyond the last ones. */
export interface TileFrame {
  readonly label: string;
  /** Row (from the top) and column of the tile. */
  readonly row: number;
  readonly column: number;
  readonly i0: number;
  readonly i1: number;
  readonly j0: number;
  readonly j1: number;
}

export interface Mosaic {
  readonly values: Float64Array;
  readonly nx: number;
  readonly ny: number;
  readonly frames: readonly TileFrame[];
}

/**
 * Tiles by rows, the first row above, with one empty sample between neighbours; a tile that is smaller than others of its row or column is
 * at their lower left. Samples without a tile are NaN.
 */
export function mosaic(tiles: readonly (readonly Tile[])[]): Mosaic {
  const columns = Math.max(...tiles.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, c) => Math.max(...tiles.map((row) => row[c]?.nx ?? 0)));
  const heights = tiles.map((row) => Math.max(...row.map(({ ny }) => ny)));
  const sum = (lengths: readonly number[], upTo: number) => lengths.slice(0, upTo).reduce((all, length) => all + length + 1, 0);
  const [nx, ny] = [sum(widths, columns) - 1, sum(heights, tiles.length) - 1];
  const values = new Float64Array(nx * ny).fill(NaN);
  const frames = tiles.flatMap((line, row) =>
    line.map((tile, column): TileFrame => {
      const [i0, j0] = [sum(widths, column), ny - sum(heights, row) - heights[row]];
      for (let j = 0; j < tile.ny; j++) {
        values.set(tile.values.subarray(j * tile.nx, (j + 1) * tile.nx), (j0 + j) * nx + i0);
      }
      return { label: tile.label, row, column, i0, i1: i0 + tile.nx, j0, j1: j0 + tile.ny };
    }),
  );
  return { values, nx, ny, frames };
}

/** The tile that has a sample, if any. */
export function tileAt({ frames }: Mosaic, i: number, j: number): TileFrame | undefined {
  return frames.find((one) => i >= one.i0 && i < one.i1 && j >= one.j0 && j < one.j1);
}
