/** Matrices over slopes: blocks of guide stars and axes, and one row on the lenslets of every star. Used by covariances and reconstructors. */

import { formatNumber, type ArrayVariable, type Dimension, uniform } from "../data";
import { shownMatrix } from "../optics/matrix";
import { mosaic, type Mosaic } from "../optics/mosaic";
import { AXES, slopeLabel, type SlopeOrder } from "../optics/slope_order";
import type { Cell } from "../store";
import { ImageView } from "../views/image";
import type { Shape } from "../views/image.api";
import { hide, printed, type Sheet } from "./sheet";

/** Rows or columns of a matrix. */
export interface MatrixAxis {
  /** Name of the dimension: "slope". */
  readonly name: string;
  readonly count: number;
  /** Where blocks begin, apart from the first, and their names. */
  readonly blocks: readonly { readonly from: number; readonly to: number; readonly name: string }[];
  /** One row or column in words. */
  label(k: number): string;
  /** The order of its slopes, if it has slopes of guide stars. */
  readonly order?: SlopeOrder;
}

/** Rows or columns that are slopes of guide stars. */
export function slopeAxis(order: SlopeOrder): MatrixAxis {
  const blocks = order.blocks.map(({ star, axis, from, to }) => ({ from, to, name: `star ${star}, ${AXES[axis]}` }));
  return { name: "slope", count: order.count, blocks, label: (k) => slopeLabel(order.slopes[k]), order };
}

/** Rows or columns without stars, in blocks of these names and lengths. */
export function plainAxis(name: string, count: number, parts: readonly (readonly [name: string, count: number])[] = []): MatrixAxis {
  let from = 0;
  const blocks = parts.map(([of, length]) => ({ from, to: (from += length), name: of }));
  const label = (k: number) => {
    const block = blocks.find((one) => k >= one.from && k < one.to);
    return block ? `${block.name}, ${name} ${k - block.from}` : `${name} ${k}`;
  };
  return { name, count, blocks, label };
}

/** The truth sensor's slopes: all x before all y. */
export function truthAxis(count: number): MatrixAxis {
  return plainAxis("truth slope", count, [["x", count / 2], ["y", count / 2]]);
}

/** Which matrix is shown. */
export interface MatrixChoice {
  readonly array: ArrayVariable;
  /** Samples of the dimensions before the last two. */
  readonly fixed: readonly number[];
  readonly rows: MatrixAxis;
  readonly columns: MatrixAxis;
  readonly quantity: string;
  /** Unit of the entries; that of the array if not given. */
  readonly unit?: string;
}

/** Samples of an axis that was binned, or reduced to its largest entries, by a factor. */
function reduced(name: string, count: number, by: number, reverse: boolean): Dimension {
  const first = (by - 1) / 2;
  return reverse ? uniform(name, "", count, first + (count - 1) * by, -by) : uniform(name, "", count, first, by);
}

/** Adds a matrix with its blocks, the row of a cell on the lenslets of all stars, and how they follow the cells. */
export async function matrixCards(
  sheet: Sheet,
  fileName: string,
  cells: readonly (Cell<string> | Cell<number>)[],
  row: Cell<number>,
  choose: () => MatrixChoice | Promise<MatrixChoice>,
): Promise<void> {
  const { scope } = sheet.context;
  const view = new ImageView({ scope: scope.child("matrix"), label: "Matrix", height: 520 });
  const card = sheet.card("Matrix", view, { fileName, wide: true });
  const rowView = new ImageView({ scope: scope.child("row"), label: "Row on the lenslets", height: 360 });
  const rowCard = sheet.card("One row on the lenslets", rowView, { fileName: `${fileName}-row`, wide: true });
  hide(rowCard.element, true);
  let chosen: MatrixChoice | undefined;
  view.onPick(({ y }) => {
    if (chosen) {
      row.set(Math.min(Math.max(Math.round(y), 0), chosen.rows.count - 1));
    }
  });
  await sheet.follow(cells, async (stale) => {
    const choice = await choose();
    const { array, rows, columns, quantity } = choice;
    const unit = printed(choice.unit ?? array.unit);
    const shown = await shownMatrix(array, choice.fixed, stale);
    if (shown === undefined || stale()) {
      return;
    }
    const [byRow, byColumn] = array.array.binning.slice(-2);
    const values = new Float64Array(shown.values.length);
    for (let r = 0; r < shown.rows; r++) {
      values.set(shown.values.subarray(r * shown.columns, (r + 1) * shown.columns), (shown.rows - 1 - r) * shown.columns);
    }
    const x = reduced(columns.name, shown.columns, shown.perColumn * byColumn, false);
    const y = reduced(rows.name, shown.rows, shown.perRow * byRow, true);
    view.show({ values, nx: shown.columns, ny: shown.rows, x, y, quantity, unit, signed: true });
    view.setShapes([...borders(rows, columns.count, "row"), ...borders(columns, rows.count, "column"), ...columns.blocks.map(blockName)]);
    const large = shown.perRow * shown.perColumn > 1 ? " Each sample is the largest entry of a part of the matrix." : "";
    card.setNote(`${rows.count} × ${columns.count}; lines divide guide stars and their x and y slopes. Click a row, or press Enter on it, to see it on the lenslets.${large}`);
    card.changed();
    chosen = choice;
  });
  await sheet.follow([...cells, row], async (stale) => {
    const choice = await choose();
    const order = choice.columns.order;
    const [m, n] = choice.array.shape.slice(-2);
    if (!order || n !== order.count || m !== choice.rows.count) {
      hide(rowCard.element, true);
      return;
    }
    const k = Math.min(row.value, m - 1);
    const at = choice.fixed.reduce((sum, one, d) => sum * choice.array.shape[d] + one, 0) * m * n + k * n;
    const { re } = await choice.array.range(at, at + n);
    if (stale()) {
      return;
    }
    const unit = printed(choice.unit ?? choice.array.unit);
    const tiles = mosaic(
      AXES.map((name, axis) =>
        order.stars.map((star) => {
          const across = order.across(star);
          return { values: order.map(re, star, axis), nx: across, ny: across, label: `star ${star}, ${name}` };
        }),
      ),
    );
    const { values, nx, ny, frames } = tiles;
    rowView.show({ values, nx, ny, x: uniform("lenslet", "", nx, 0, 1), y: uniform("lenslet", "", ny, 0, 1), quantity: choice.quantity, unit, signed: true });
    rowView.setShapes(frameShapes(frames));
    rowCard.title = `Row ${k}: ${choice.rows.label(k)}`;
    let [sum, squares] = [0, 0];
    for (let i = 0; i < re.length; i++) {
      sum += re[i];
      squares += re[i] ** 2;
    }
    rowCard.setNote(`Above the x slopes, below the y slopes of each guide star. Sum of the row ${formatNumber(sum, 5)}, root of its sum of squares ${formatNumber(Math.sqrt(squares), 5)}${unit && ` ${unit}`}.`);
    hide(rowCard.element, false);
    rowCard.changed();
  });
}

/** Frames around tiles, with their names. */
export function frameShapes(frames: Mosaic["frames"]): Shape[] {
  return frames.flatMap(({ label, row, column, i0, i1, j0, j1 }): Shape[] => {
    const [a, b, c, d] = [i0 - 0.5, i1 - 0.5, j0 - 0.5, j1 - 0.5];
    return [
      { kind: "polygon", id: `tile-${row}-${column}`, points: [[a, c], [b, c], [b, d], [a, d]], label, closed: true },
      { kind: "text", id: `name-${row}-${column}`, x: a, y: d, label },
    ];
  });
}

/** The name of a block of columns, at its top. */
function blockName({ from, to, name }: MatrixAxis["blocks"][number], k: number): Shape {
  return { kind: "text", id: `name-${k}`, x: (from + to - 1) / 2, y: -0.5, label: name, middle: true };
}

/** Lines between the blocks of an axis; dashed between x and y of one star. */
function borders(axis: MatrixAxis, across: number, along: "row" | "column"): Shape[] {
  return axis.blocks.slice(1).map(({ from, name }, k) => {
    const at = from - 0.5;
    const [a, b] = [-0.5, across - 0.5];
    const star = (of: string) => /^star \d+/.exec(of)?.[0];
    const dashed = star(name) !== undefined && star(name) === star(axis.blocks[k].name);
    const points = along === "row" ? ([[a, at], [b, at]] as const) : ([[at, a], [at, b]] as const);
    return { kind: "polygon", id: `${along}-${k}`, points, label: name, closed: false, dashed };
  });
}
