/** Lines, symbols and error bars of curves as paths, and their samples in the legend. */

import { svg } from "../../dom";
import { fraction } from "../axis";
import { fix, symbolPath, type Theme } from "../theme";
import { isDrawable, type CurveModel } from "./model";

/** A point of a line, pixels; null leaves a gap. */
type LinePoint = readonly [number, number] | null;

/** The colour of a series. */
export function colourOf(k: number, { series }: Theme): string {
  return series[k % series.length];
}

/** From x and y to pixels in a frame of a size, from its upper left corner. */
function projection(model: CurveModel, width: number, height: number) {
  const [lx, ly] = [model.limitsX(), model.limitsY()];
  return {
    px: (x: number) => fraction(x, lx, model.isLogX) * width,
    py: (y: number) => (1 - fraction(y, ly, model.isLogY)) * height,
    lowest: ly[0],
  };
}

/** Symbols and error bars of a series as paths in a frame of a size, from its upper left corner. */
export function markPaths(model: CurveModel, k: number, width: number, height: number): { readonly symbols: string; readonly errors: string } {
  const { rows, series, isLogX, isLogY } = model;
  const { px, py, lowest } = projection(model, width, height);
  const style = series[k].style ?? "line";
  const isCrowd = series.length > 1;
  const values = rows.y[k];
  const errors = rows.error[k];
  const [symbols, bars]: [string[], string[]] = [[], []];
  const present = values.flatMap((value, n) => (value === undefined || !isDrawable(rows.x[n], isLogX) ? [] : [n]));
  let last = -Infinity;
  present.forEach((n, m) => {
    const value = values[n];
    const x = px(rows.x[n]);
    if (!isDrawable(value, isLogY) || x < -9 || x > width + 9) {
      return;
    }
    const isAlone = [present[m - 1], present[m + 1]].every((other) => other === undefined || !isDrawable(values[other], isLogY));
    const isSpaced = isCrowd && style !== "step" && x - last >= 44 + 7 * (k % 5);
    if (style === "points" || isAlone || isSpaced || errors !== undefined) {
      symbols.push(moved(symbolPath(k, style === "points" || isAlone ? 3.2 : 2.8), x, py(value)));
      last = x;
    }
    const error = errors?.[n];
    if (error !== undefined && Number.isFinite(error) && error > 0) {
      const low = isLogY && value - error <= 0 ? lowest : value - error;
      const [a, b] = [py(low), py(value + error)];
      bars.push(`M${fix(x)},${fix(a)}V${fix(b)}M${fix(x - 3)},${fix(a)}h6M${fix(x - 3)},${fix(b)}h6`);
    }
  });
  return { symbols: symbols.join(""), errors: bars.join("") };
}

/** A path about the origin, moved. */
function moved(path: string, x: number, y: number): string {
  return path.replace(/M(-?[\d.]+),(-?[\d.]+)|L(-?[\d.]+),(-?[\d.]+)/g, (_, mx, my, lx, ly) =>
    mx === undefined ? `L${fix(Number(lx) + x)},${fix(Number(ly) + y)}` : `M${fix(Number(mx) + x)},${fix(Number(my) + y)}`);
}

/** The line of a series in a frame of a size, from its upper left corner. */
export function linePath(model: CurveModel, k: number, width: number, height: number): string {
  const { rows, series, isLogX, isLogY } = model;
  const { px, py } = projection(model, width, height);
  const points: LinePoint[] = [];
  rows.y[k].forEach((value, n) => {
    const x = rows.x[n];
    if (value !== undefined && isDrawable(x, isLogX)) {
      points.push(isDrawable(value, isLogY) ? [px(x), py(value)] : null);
    }
  });
  return series[k].style === "step" ? stepPath(points) : points.map((at, n) => (at === null ? "" : `${n === 0 || points[n - 1] === null ? "M" : "L"}${fix(at[0])},${fix(at[1])}`)).join("");
}

/** A path that holds each number from half-way to its neighbours. */
export function stepPath(points: readonly LinePoint[]): string {
  let path = "";
  points.forEach((at, n) => {
    if (at === null) {
      return;
    }
    const [before, after] = [points[n - 1], points[n + 1]];
    const wide = before ? at[0] - before[0] : after ? after[0] - at[0] : 0;
    const from = before ? at[0] - wide / 2 : at[0] - (after ? (after[0] - at[0]) / 2 : 0);
    const to = after ? (at[0] + after[0]) / 2 : at[0] + wide / 2;
    path += before ? `L${fix(from)},${fix(at[1])}` : `M${fix(from)},${fix(at[1])}`;
    path += `H${fix(to)}`;
  });
  return path;
}

/** How a series looks, for the legend. */
export function swatch({ series }: CurveModel, k: number, theme: Theme): SVGSVGElement {
  const style = series[k].style ?? "line";
  const isCrowd = series.length > 1 && style !== "step";
  const colour = colourOf(k, theme);
  return svg(
    "svg",
    { width: 28, height: 12, viewBox: "0 0 28 12", "aria-hidden": "true" },
    style === "points" ? null : svg("path", { d: style === "step" ? "M1,9H10V3H19V9H27" : "M1,6H27", fill: "none", stroke: colour, "stroke-width": 2, ...(style === "dashed" ? { "stroke-dasharray": "6 3" } : {}) }),
    isCrowd || style === "points" ? svg("path", { d: symbolPath(k, 3.2), transform: "translate(14 6)", fill: colour }) : null,
  );
}
