/** Curves drawn by uPlot: its options, and what pointers and fingers do over it. */

import uPlot from "uplot";
import { atFraction, tickLabels, ticksOf, type Limits } from "../axis";
import type { Theme } from "../theme";
import type { CurveMarkers } from "./markers";
import { isDrawable, type CurveModel } from "./model";
import { colourOf, markPaths, stepPath } from "./paths";
import { nearestRow, type Series } from "./rows";

/** Numbers as uPlot takes them: null leaves a gap, undefined none. */
export function plotted({ rows: { x, y }, isLogX, isLogY }: CurveModel): uPlot.AlignedData {
  const kept = x.flatMap((value, n) => (isDrawable(value, isLogX) ? [n] : []));
  const columns = y.map((values) => kept.map((n) => (values[n] === undefined ? undefined : isDrawable(values[n], isLogY) ? values[n] : null)));
  // Rows that a logarithmic axis cannot show come first, so that rows of the chart and of `rows` would differ: they stay, outside the axis.
  const lost = x.length - kept.length;
  const low = kept.length > 0 ? x[kept[0]] : 1;
  return [[...new Array<number>(lost).fill(low), ...kept.map((n) => x[n])], ...columns.map((column) => [...new Array<undefined>(lost).fill(undefined), ...column])] as uPlot.AlignedData;
}

/** A chart of curves in an element, of a size in pixels; `moved` is called when a pointer or a finger moved its cursor. */
export function makeChart(plot: HTMLElement, width: number, height: number, model: CurveModel, markers: CurveMarkers, theme: Theme, moved: (u: uPlot) => void): uPlot {
  const { curves, series, isLogX, isLogY } = model;
  const { ink, line, font } = theme;
  const axis = (side: "x" | "y", title: string): uPlot.Axis => ({
    label: title,
    labelSize: 18,
    labelFont: `12px ${font}`,
    font: `11px ${font}`,
    stroke: ink,
    grid: { stroke: line, width: 0.5 },
    ticks: { stroke: line, width: 1, size: 4 },
    gap: 3,
    splits: (u) => {
      const { min = 0, max = 1 } = u.scales[side];
      const room = side === "x" ? (u.over.clientWidth || width - 60) / 72 : height / 44;
      return ticksOf([min, max], side === "x" ? isLogX : isLogY, Math.max(Math.floor(room), 2));
    },
    // uPlot would leave out ticks between decades, which `ticksOf` has chosen.
    filter: (_, ticks) => ticks,
    values: (_, ticks) => tickLabels(ticks),
    ...(side === "y" ? { size: (_: uPlot, labels: string[] | null) => 12 + 6.4 * Math.max(...(labels ?? []).map((text) => text.length), 2) } : { size: 24 }),
  });
  const linear = (uPlot.paths.linear as () => uPlot.Series.PathBuilder)();
  const options = ({ label, style }: Series, k: number): uPlot.Series => ({
    label,
    show: model.isShown(k),
    stroke: colourOf(k, theme),
    width: 1.75,
    ...(style === "dashed" ? { dash: [7, 4] } : {}),
    points: { show: false },
    paths: (u, s, from, to) => (style === "points" ? null : style === "step" ? stepPaths(u, s) : linear(u, s, from, to)),
  });
  const chart = new uPlot(
    {
      width,
      height,
      padding: [10, 18, 0, 2],
      legend: { show: false },
      scales: {
        x: { time: false, distr: isLogX ? 3 : 1, range: () => [...model.limitsX()] },
        y: { distr: isLogY ? 3 : 1, range: () => [...model.limitsY()] },
      },
      axes: [axis("x", curves.xTitle), axis("y", curves.yTitle)],
      series: [{}, ...series.map(options)],
      cursor: {
        y: false,
        drag: { x: true, y: true, uni: 24, dist: 4, setScale: false },
        points: { size: 7 },
        dataIdx: (_, s, hovered) => (s === 0 || model.rows.y[s - 1]?.[hovered] !== undefined ? hovered : nearestRow(model.rows, s - 1, model.rows.x[hovered])),
        bind: {
          dblclick: () => () => {
            model.resetZoom();
            return null;
          },
        },
      },
      hooks: {
        setSelect: [(u) => zoomToSelection(u, model)],
        setCursor: [moved],
        drawSeries: [(u, s) => s > 0 && drawMarks(u, model, s - 1, theme)],
        draw: [(u) => markers.draw(u, theme)],
      },
    },
    plotted(model),
    plot,
  );
  listenToTouch(chart, model);
  return chart;
}

function stepPaths(u: uPlot, s: number): uPlot.Series.Paths {
  const points: ([number, number] | null)[] = [];
  u.data[s].forEach((value, n) => {
    if (value !== undefined) {
      points.push(value === null ? null : [u.valToPos(u.data[0][n], "x", true), u.valToPos(value, "y", true)]);
    }
  });
  return { stroke: new Path2D(stepPath(points)) };
}

/** Symbols and error bars of one series. */
function drawMarks(u: uPlot, model: CurveModel, k: number, theme: Theme): void {
  if (!model.isShown(k)) {
    return;
  }
  const context = u.ctx;
  const ratio = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = context.fillStyle = colourOf(k, theme);
  context.translate(left, top);
  context.scale(ratio, ratio);
  const marks = markPaths(model, k, width / ratio, height / ratio);
  context.lineWidth = 1.2;
  context.setLineDash([]);
  context.stroke(new Path2D(marks.errors));
  context.fill(new Path2D(marks.symbols));
  context.restore();
}

/** Zooms to what the pointer selected, along the axes of which that is a part. */
function zoomToSelection(u: uPlot, model: CurveModel): void {
  const { left, top, width, height } = u.select;
  const [all, tall] = [u.over.clientWidth, u.over.clientHeight];
  if (width <= 0 || height <= 0) {
    return;
  }
  const zoom = (from: number, to: number, scale: "x" | "y"): number[] => {
    const ends = [u.posToVal(from, scale), u.posToVal(to, scale)].sort((a, b) => a - b);
    return ends[1] > ends[0] && ends.every(Number.isFinite) ? ends : [];
  };
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  if (width < all - 1) {
    model.zoomX.set(zoom(left, left + width, "x"), { live: true });
  }
  if (height < tall - 1) {
    model.zoomY.set(zoom(top, top + height, "y"), { live: true });
  }
  model.commitZoom();
}

/** A finger moves the cursor; two zoom. */
function listenToTouch(u: uPlot, model: CurveModel): void {
  const { over } = u;
  const fingers = new Map<number, number>();
  let span: { readonly limits: Limits; readonly ends: readonly number[] } | undefined;
  const positions = () => [...fingers.values()].sort((a, b) => a - b);
  const within = (event: PointerEvent) => event.clientX - over.getBoundingClientRect().left;
  over.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") {
      fingers.set(event.pointerId, within(event));
      const ends = positions();
      span = ends.length === 2 && ends[1] - ends[0] > 10 ? { limits: model.limitsX(), ends } : undefined;
    }
  });
  over.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) {
      return;
    }
    fingers.set(event.pointerId, within(event));
    const ends = positions();
    if (span !== undefined && ends.length === 2 && ends[1] - ends[0] > 10) {
      const wide = over.clientWidth;
      const scale = (span.ends[1] - span.ends[0]) / (ends[1] - ends[0]);
      const low = span.ends[0] / wide - (ends[0] / wide) * scale;
      const { limits } = span;
      model.zoomX.set([low, low + scale].map((f) => atFraction(f, limits, model.isLogX)), { live: true });
    } else if (ends.length === 1) {
      u.setCursor({ left: ends[0], top: over.clientHeight / 2 });
    }
  });
  const lift = (event: PointerEvent) => {
    if (fingers.delete(event.pointerId) && span !== undefined) {
      span = undefined;
      model.commitZoom();
    }
  };
  over.addEventListener("pointerup", lift);
  over.addEventListener("pointercancel", lift);
}
