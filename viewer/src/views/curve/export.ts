/** What is saved of curves: their samples in view as a table, and their picture as SVG. */

import { formatNumber } from "../../data";
import { svg, uniqueId } from "../../dom";
import type { DataTable } from "../../view";
import { fraction, tickLabels, ticksOf } from "../axis";
import { fix, PRINT } from "../theme";
import type { PlacedMarker } from "./markers";
import type { CurveModel } from "./model";
import { colourOf, linePath, markPaths, swatch } from "./paths";

/** Most rows that a table of curves has. */
const ROWS = 10_000;

/** The samples in view, by rows of ascending x. */
export function curveTable(label: string, model: CurveModel): DataTable {
  const { rows, series, curves: { xTitle } } = model;
  const [from, to] = model.limitsX();
  const isZoomed = model.zoomX.value.length === 2;
  const wanted = rows.x.map((_, n) => n).filter((n) => !isZoomed || (rows.x[n] >= from && rows.x[n] <= to));
  const kept = wanted.slice(0, ROWS);
  const columns = series.flatMap((one, k) => {
    const title = model.unit(k) ? `${one.label} [${model.unit(k)}]` : one.label;
    return rows.error[k] === undefined ? [title] : [title, `standard error of ${title}`];
  });
  const range = isZoomed ? `, ${xTitle} from ${formatNumber(from)} to ${formatNumber(to)}` : "";
  const cut = wanted.length > kept.length ? `, the first ${kept.length} of ${wanted.length} samples` : "";
  return {
    caption: `${label}${range}${cut}`,
    columns: [xTitle, ...columns],
    rows: kept.map((n) => [
      rows.x[n],
      ...series.flatMap((_, k) => {
        const errors = rows.error[k];
        const value = rows.y[k][n] ?? "";
        return errors === undefined ? [value] : [value, errors[n] ?? ""];
      }),
    ]),
  };
}

/** The picture with axes, markers and legend, in the colours of print; `placed` gives the markers in a plot of a width. */
export function curveSvg(label: string, model: CurveModel, placed: (width: number) => readonly PlacedMarker[]): string {
  const { curves, series, shown, isLogX, isLogY } = model;
  const [width, height] = [720, 440];
  const [lx, ly] = [model.limitsX(), model.limitsY()];
  const ticksY = ticksOf(ly, isLogY, 7);
  const labelsY = tickLabels(ticksY);
  const left = 34 + 7 * Math.max(...labelsY.map((text) => text.length), 1);
  const columns = Math.max(Math.floor((width - left - 20) / Math.max(...shown.map((k) => series[k].label.length * 6.6 + 56), 60)), 1);
  const legendHeight = series.length > 1 ? Math.ceil(shown.length / columns) * 18 + 6 : 0;
  const frame = { left, top: 16, width: width - left - 20, height: height - 16 - 46 };
  const px = (x: number) => frame.left + fraction(x, lx, isLogX) * frame.width;
  const py = (y: number) => frame.top + (1 - fraction(y, ly, isLogY)) * frame.height;
  const text = (x: number, y: number, content: string, anchor = "middle", more = {}) => svg("text", { x: fix(x), y: fix(y), "text-anchor": anchor, fill: PRINT.ink, ...more }, content);
  const ticksX = ticksOf(lx, isLogX, Math.floor(frame.width / 80));
  const labelsX = tickLabels(ticksX);
  const bottom = frame.top + frame.height;
  const clip = uniqueId("clip");
  const transform = `translate(${frame.left} ${frame.top})`;
  const root = svg(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width, height: height + legendHeight, viewBox: `0 0 ${width} ${height + legendHeight}`, "font-family": "sans-serif", "font-size": 12 },
    svg("title", {}, label),
    svg("rect", { width, height: height + legendHeight, fill: PRINT.paper }),
    svg("clipPath", { id: clip }, svg("rect", { x: frame.left, y: frame.top, width: frame.width, height: frame.height })),
    svg("path", { d: [...ticksX.map((x) => `M${fix(px(x))},${frame.top}V${bottom}`), ...ticksY.map((y) => `M${frame.left},${fix(py(y))}h${frame.width}`)].join(""), stroke: PRINT.line, "stroke-width": 0.5 }),
    ...ticksX.map((x, n) => text(px(x), bottom + 17, labelsX[n])),
    ...ticksY.map((y, n) => text(frame.left - 7, py(y) + 4, labelsY[n], "end")),
    text(frame.left + frame.width / 2, bottom + 38, curves.xTitle),
    text(0, 0, curves.yTitle, "middle", { transform: `translate(14 ${frame.top + frame.height / 2}) rotate(-90)` }),
    svg(
      "g",
      { "clip-path": `url(#${clip})` },
      ...shown.flatMap((k) => {
        const colour = colourOf(k, PRINT);
        const style = series[k].style ?? "line";
        const { symbols, errors } = markPaths(model, k, frame.width, frame.height);
        return [
          style === "points" ? null : svg("path", { d: linePath(model, k, frame.width, frame.height), transform, fill: "none", stroke: colour, "stroke-width": 1.75, "stroke-linejoin": "round", ...(style === "dashed" ? { "stroke-dasharray": "7 4" } : {}) }),
          errors ? svg("path", { d: errors, transform, fill: "none", stroke: colour, "stroke-width": 1.2 }) : null,
          symbols ? svg("path", { d: symbols, transform, fill: colour }) : null,
        ];
      }),
    ),
    ...placed(frame.width).flatMap((one) => [
      svg("path", { d: `M${fix(frame.left + one.x)},${frame.top}v${frame.height}`, stroke: PRINT.muted, "stroke-dasharray": "3 3" }),
      text(frame.left + one.x + (one.isLeft ? -4 : 4), frame.top + one.y + 10, one.label, one.isLeft ? "end" : "start", { fill: PRINT.muted }),
    ]),
    svg("rect", { x: frame.left, y: frame.top, width: frame.width, height: frame.height, fill: "none", stroke: PRINT.ink }),
    ...(legendHeight === 0 ? [] : shown.map((k, n) => {
      const sample = swatch(model, k, PRINT);
      const x = frame.left + ((n % columns) * frame.width) / columns;
      const y = height + 4 + Math.floor(n / columns) * 18;
      sample.setAttribute("x", fix(x));
      sample.setAttribute("y", String(y));
      return svg("g", {}, sample, text(x + 34, y + 10, series[k].label, "start"));
    })),
  );
  return new XMLSerializer().serializeToString(root);
}
