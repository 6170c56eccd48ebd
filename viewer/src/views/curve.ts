/** Curves: one or more series of numbers over a common axis, by uPlot. */

import uPlot from "uplot";
import { formatNumber, type Numbers } from "../data";
import { h, plainNumber, svg, uniqueId } from "../dom";
import type { Cell, Scope } from "../store";
import type { DataTable, View } from "../view";
import { around, atFraction, fraction, tickLabels, ticksOf, type Limits } from "./axis";
import { fix, onResize, onTheme, PRINT, symbolPath, themeOf, type Theme } from "./theme";

/** One curve. */
export interface Series {
  readonly label: string;
  /** The numbers y; those that are not finite leave gaps. */
  readonly values: Numbers;
  /** Its own x; all others share that of the curves. */
  readonly x?: Numbers;
  /** "step" holds each number from half-way to its neighbours. */
  readonly style?: "line" | "points" | "dashed" | "step";
  /** Standard errors, drawn as bars of ± one. */
  readonly error?: Numbers;
  readonly unit?: string;
}

/** What a CurveView shows. */
export interface Curves {
  readonly x: Numbers;
  /** Names and units of the axes, as in "height [m]". */
  readonly xTitle: string;
  readonly yTitle: string;
  readonly series: readonly Series[];
  /** Axes that are logarithmic until the reader chooses. */
  readonly logX?: boolean;
  readonly logY?: boolean;
}

/** A vertical line at x. */
export interface CurveMarker {
  readonly x: number;
  readonly label: string;
}

/** The series in the rows of one table: ascending x, and for each series a number (NaN: a gap) or undefined where it has no sample. */
interface Rows {
  readonly x: readonly number[];
  readonly y: readonly (readonly (number | undefined)[])[];
  readonly error: readonly (readonly (number | undefined)[] | undefined)[];
}


const isChoice = (value: string) => ["auto", "linear", "log"].includes(value);
const isZoom = (value: readonly number[]) => value.length === 0 || (value.length === 2 && value.every(Number.isFinite) && value[0] < value[1]);
const isHidden = (value: readonly number[]) => value.length < 1000 && value.every((k) => Number.isInteger(k) && k >= 0);

/** Most rows that a table of curves has. */
const ROWS = 10_000;
const NOTHING: Curves = { x: new Float64Array(0), xTitle: "", yTitle: "", series: [] };

/** Curves with a cursor, zoom, logarithmic axes and a legend that hides series. */
export class CurveView implements View {
  readonly element: HTMLElement;
  private readonly plot: HTMLDivElement;
  private readonly legend: HTMLDivElement;
  private readonly at: HTMLElement;
  private readonly note: HTMLParagraphElement;
  private readonly spoken: HTMLParagraphElement;
  private readonly buttons: { readonly logX: HTMLButtonElement; readonly logY: HTMLButtonElement; readonly reset: HTMLButtonElement };
  private readonly height: number;
  private readonly label: string;
  private readonly zoomX: Cell<readonly number[]>;
  private readonly zoomY: Cell<readonly number[]>;
  private readonly logX: Cell<string>;
  private readonly logY: Cell<string>;
  private readonly hidden: Cell<readonly number[]>;
  private readonly ends: (() => void)[] = [];
  private readonly listeners: ((x: number | null) => void)[] = [];
  private curves: Curves = NOTHING;
  private rows: Rows = { x: [], y: [], error: [] };
  private markers: readonly CurveMarker[] = [];
  private readonly handles: HTMLElement[] = [];
  private moved: ((k: number, x: number, live: boolean) => void) | undefined;
  private theme: Theme = PRINT;
  private chart: uPlot | undefined;
  private structure = "";
  private cursor: number | null = null;
  private quiet = false;
  private values: HTMLElement[] = [];

  /** `zoomWith`: a view that shares zoom, axes and hidden series with this one. */
  constructor(options: { readonly scope: Scope; readonly label: string; readonly height?: number; readonly zoomWith?: CurveView }) {
    this.height = options.height ?? 280;
    this.label = options.label;
    const shared = options.zoomWith;
    const zoom = (key: string) => options.scope.cell<readonly number[]>(key, [], isZoom);
    this.zoomX = shared?.zoomX ?? zoom("zoom_x");
    this.zoomY = shared?.zoomY ?? zoom("zoom_y");
    this.logX = shared?.logX ?? options.scope.cell<string>("log_x", "auto", isChoice);
    this.logY = shared?.logY ?? options.scope.cell<string>("log_y", "auto", isChoice);
    this.hidden = shared?.hidden ?? options.scope.cell<readonly number[]>("hidden", [], isHidden);

    const toggle = (text: string, cell: Cell<string>, isOn: () => boolean) =>
      h("button", { type: "button", class: "curve-button", click: () => this.toggleLog(cell, isOn()) }, text);
    this.buttons = {
      logX: toggle("Log x", this.logX, () => this.isLogX),
      logY: toggle("Log y", this.logY, () => this.isLogY),
      reset: h("button", { type: "button", class: "curve-button", click: () => this.resetZoom() }, "Whole range"),
    };
    const zoomButton = (text: string, name: string, by: number) =>
      h("button", { type: "button", class: "curve-button", "aria-label": name, title: name, click: () => this.zoomBy(by) }, text);
    this.at = h("span", { class: "curve-at" });
    const help = uniqueId("curve-help");
    this.plot = h("div", {
      class: "curve-plot", tabindex: 0, role: "application", "aria-roledescription": "curves", "aria-label": options.label, "aria-describedby": help,
      keydown: (event: KeyboardEvent) => this.key(event),
    });
    this.legend = h("div", { class: "curve-legend", role: "group", "aria-label": `Series of ${options.label}` });
    this.note = h("p", { class: "curve-note", hidden: true });
    this.spoken = h("p", { class: "curve-hidden", "aria-live": "polite" });
    this.element = h(
      "div",
      { class: "curve" },
      h("div", { class: "curve-bar", role: "group", "aria-label": `Axes of ${options.label}` }, this.buttons.logX, this.buttons.logY, zoomButton("+", "Zoom in", 0.5), zoomButton("−", "Zoom out", 2), this.buttons.reset, this.at),
      this.plot,
      this.legend,
      this.note,
      h("p", { class: "curve-hidden", id: help }, "Left and right arrows move the cursor, with Shift by ten; Home and End go to the ends; plus and minus zoom, 0 shows the whole range; Escape removes the cursor. The pointer zooms by dragging, a double click shows the whole range."),
      this.spoken,
    );
    this.plot.style.minHeight = `${this.height}px`;

    this.ends.push(
      onResize(this.plot, () => this.resize()),
      onTheme(() => this.rebuild()),
      this.zoomX.subscribe(() => this.applyLimits()),
      this.zoomY.subscribe(() => this.applyLimits()),
      this.logX.subscribe(() => this.rebuild()),
      this.logY.subscribe(() => this.rebuild()),
      this.hidden.subscribe(() => this.rebuild()),
    );
    this.describeState();
  }

  /** Shows other curves; zoom, cursor and hidden series stay. */
  show(curves: Curves): void {
    this.curves = curves;
    this.rows = inRows(curves);
    const structure = JSON.stringify([curves.xTitle, curves.yTitle, this.isLogX, this.isLogY, curves.series.map((one) => [one.label, one.style, one.unit])]);
    if (structure !== this.structure || this.chart === undefined) {
      this.structure = structure;
      this.rebuild();
    } else {
      this.chart.setData(this.plotted(), true);
      this.describeDropped();
    }
    this.placeCursor();
  }

  /** Vertical lines with labels. */
  setMarkers(markers: readonly CurveMarker[]): void {
    this.markers = markers;
    this.chart?.redraw(false, false);
  }

  /** Makes the markers draggable, by pointer and by arrow keys: calls back with a marker's number and where it is moved to. */
  onMarker(listener: (k: number, x: number, live: boolean) => void): void {
    this.moved = listener;
    this.chart?.redraw(false, false);
  }

  /** Calls back with the x of the sample under the pointer or the keyboard cursor; null where there is none. */
  onCursor(listener: (x: number | null) => void): void {
    this.listeners.push(listener);
  }

  /** Puts the cursor at the sample next to x without calling back: links two views. */
  moveCursor(x: number | null): void {
    this.cursor = x;
    this.placeCursor();
  }

  destroy(): void {
    this.ends.forEach((end) => end());
    this.chart?.destroy();
    this.chart = undefined;
    this.listeners.length = 0;
  }

  private get isLogX(): boolean {
    return this.logX.value === "auto" ? this.curves.logX === true : this.logX.value === "log";
  }

  private get isLogY(): boolean {
    return this.logY.value === "auto" ? this.curves.logY === true : this.logY.value === "log";
  }

  private isShown(k: number): boolean {
    return !this.hidden.value.includes(k);
  }

  private toggleLog(cell: Cell<string>, isOn: boolean): void {
    const zoom = cell === this.logX ? this.zoomX : this.zoomY;
    cell.set(isOn ? "linear" : "log", { live: true });
    if (zoom.value.length === 2 && zoom.value[0] <= 0) {
      zoom.set([], { live: true });
    }
    this.zoomX.set(this.zoomX.value);
  }

  /** Whether a number can be drawn on an axis. */
  private static drawable(value: number | undefined, log: boolean): value is number {
    return value !== undefined && Number.isFinite(value) && (!log || value > 0);
  }

  // ---- Limits

  private limitsX(): Limits {
    const zoom = this.zoomX.value;
    if (zoom.length === 2 && !(this.isLogX && zoom[0] <= 0)) {
      return [zoom[0], zoom[1]];
    }
    const shown = this.curves.series.map((_, k) => k).filter((k) => this.isShown(k));
    const { x, y } = this.rows;
    const isUsed = (n: number) => CurveView.drawable(x[n], this.isLogX) && shown.some((k) => y[k][n] !== undefined);
    let [first, last] = [0, x.length - 1];
    while (first < x.length && !isUsed(first)) {
      first++;
    }
    while (last > first && !isUsed(last)) {
      last--;
    }
    const isSpaced = this.curves.series.some((one) => one.style === "points" || one.style === "step" || one.error !== undefined);
    return around(first < x.length ? x[first] : NaN, first < x.length ? x[last] : NaN, this.isLogX, isSpaced ? 0.03 : 0);
  }

  private limitsY(): Limits {
    const zoom = this.zoomY.value;
    if (zoom.length === 2 && !(this.isLogY && zoom[0] <= 0)) {
      return [zoom[0], zoom[1]];
    }
    const [from, to] = this.limitsX();
    let [low, high] = [Infinity, -Infinity];
    const take = (value: number) => {
      if (CurveView.drawable(value, this.isLogY)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    };
    this.rows.y.forEach((values, k) => {
      if (!this.isShown(k)) {
        return;
      }
      const errors = this.rows.error[k];
      values.forEach((value, n) => {
        const x = this.rows.x[n];
        if (CurveView.drawable(value, this.isLogY) && x >= from && x <= to) {
          take(value);
          const error = errors?.[n];
          if (error !== undefined && Number.isFinite(error)) {
            take(value + error);
            take(value - error);
          }
        }
      });
    });
    return around(low, high, this.isLogY, this.isLogY ? 0.05 : 0.06);
  }

  private applyLimits(): void {
    this.describeState();
    const chart = this.chart;
    if (chart === undefined) {
      return;
    }
    const [x, y] = [this.limitsX(), this.limitsY()];
    chart.batch(() => {
      chart.setScale("x", { min: x[0], max: x[1] });
      chart.setScale("y", { min: y[0], max: y[1] });
    });
    this.placeCursor();
  }

  private resetZoom(): void {
    this.zoomX.set([], { live: true });
    this.zoomY.set([]);
  }

  /** Zooms x by a factor about the cursor, or about the middle. */
  private zoomBy(factor: number): void {
    const limits = this.limitsX();
    const middle = this.cursor === null ? 0.5 : fraction(this.cursor, limits, this.isLogX);
    const about = middle >= 0 && middle <= 1 ? middle : 0.5;
    const ends = [about - about * factor, about + (1 - about) * factor].map((f) => atFraction(f, limits, this.isLogX));
    if (ends.every(Number.isFinite) && ends[1] > ends[0]) {
      this.zoomX.set(ends);
    }
  }

  // ---- Cursor

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const by = event.shiftKey ? 10 : 1;
    const work: Record<string, () => void> = {
      ArrowLeft: () => this.step(-by),
      ArrowRight: () => this.step(by),
      Home: () => this.step(-Infinity),
      End: () => this.step(Infinity),
      "+": () => this.zoomBy(0.5),
      "=": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      "0": () => this.resetZoom(),
      Escape: () => this.setCursor(null),
    };
    const chosen = work[event.key];
    if (chosen !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      chosen();
      this.spoken.textContent = this.sentence();
    }
  }

  /** Moves the cursor by so many samples of those in view. */
  private step(by: number): void {
    const [from, to] = this.limitsX();
    const shown = this.curves.series.map((_, k) => k).filter((k) => this.isShown(k));
    const inView = this.rows.x.flatMap((x, n) => (x >= from && x <= to && CurveView.drawable(x, this.isLogX) && shown.some((k) => this.rows.y[k][n] !== undefined) ? [x] : []));
    if (inView.length === 0) {
      return;
    }
    const now = this.cursor === null ? (by > 0 ? -1 : inView.length) : nearest(inView, this.cursor);
    this.setCursor(inView[Math.min(Math.max(now + by, 0), inView.length - 1)]);
  }

  private setCursor(x: number | null): void {
    const changed = x !== this.cursor;
    this.cursor = x;
    this.placeCursor();
    if (changed) {
      this.listeners.forEach((listener) => listener(x));
    }
  }

  /** Draws the cursor where it is and prints the numbers there. */
  private placeCursor(): void {
    const chart = this.chart;
    if (chart !== undefined) {
      this.quiet = true;
      if (this.cursor === null) {
        chart.setCursor({ left: -10, top: -10 });
      } else {
        chart.setCursor({ left: chart.valToPos(this.cursor, "x"), top: chart.over.clientHeight / 2 });
      }
      this.quiet = false;
    }
    const at = this.cursor;
    this.at.textContent = at === null ? "" : valueWithTitle(at, this.curves.xTitle);
    this.values.forEach((place, k) => {
      place.textContent = at === null ? "" : this.valueAt(k, at);
    });
  }

  /** The number of a series at its sample next to x, with its error and unit. */
  private valueAt(k: number, x: number): string {
    const n = this.nearestRow(k, x);
    if (n < 0) {
      return "";
    }
    const error = this.rows.error[k]?.[n];
    const unit = this.unit(k);
    const value = formatNumber(this.rows.y[k][n] as number, 5) + (error === undefined ? "" : ` ± ${formatNumber(error, 2)}`);
    const own = this.rows.x[n] === this.rows.x[nearest(this.rows.x, x)] ? "" : ` at ${formatNumber(this.rows.x[n], 5)}`;
    return (unit ? `${value} ${unit}` : value) + own;
  }

  private nearestRow(k: number, x: number): number {
    const values = this.rows.y[k];
    const start = nearest(this.rows.x, x);
    for (let d = 0; d < values.length; d++) {
      const [a, b] = [start - d, start + d];
      const left = a >= 0 && values[a] !== undefined;
      const right = b < values.length && values[b] !== undefined;
      if (left && right) {
        return Math.abs(this.rows.x[a] - x) <= Math.abs(this.rows.x[b] - x) ? a : b;
      }
      if (left || right) {
        return left ? a : b;
      }
    }
    return -1;
  }

  /** The numbers at the cursor, for screen readers. */
  private sentence(): string {
    const at = this.cursor;
    if (at === null) {
      return "No cursor";
    }
    const series = this.curves.series.flatMap((one, k) => (this.isShown(k) ? [`${one.label} ${this.valueAt(k, at)}`] : []));
    return [valueWithTitle(at, this.curves.xTitle), ...series].join("; ");
  }

  private unit(k: number): string {
    return this.curves.series[k].unit ?? unitOf(this.curves.yTitle);
  }

  // ---- Drawing

  /** Builds the chart anew: for other series, axes or colours. */
  private rebuild(): void {
    const focused = this.handles.find((one) => one === document.activeElement);
    this.chart?.destroy();
    this.chart = undefined;
    this.describeState();
    this.fillLegend();
    this.describeDropped();
    const width = Math.floor(this.plot.clientWidth);
    if (width < 40) {
      return;
    }
    this.theme = themeOf(this.element);
    this.fillLegend();
    const { ink, line, font } = this.theme;
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
        const room = side === "x" ? (u.over.clientWidth || width - 60) / 72 : this.height / 44;
        return ticksOf([min, max], side === "x" ? this.isLogX : this.isLogY, Math.max(Math.floor(room), 2));
      },
      // uPlot would leave out ticks between decades, which `ticksOf` has chosen.
      filter: (_, ticks) => ticks,
      values: (_, ticks) => tickLabels(ticks),
      ...(side === "y" ? { size: (_: uPlot, labels: string[] | null) => 12 + 6.4 * Math.max(...(labels ?? []).map((text) => text.length), 2) } : { size: 24 }),
    });
    this.chart = new uPlot(
      {
        width,
        height: this.height,
        padding: [10, 18, 0, 2],
        legend: { show: false },
        scales: {
          x: { time: false, distr: this.isLogX ? 3 : 1, range: () => [...this.limitsX()] },
          y: { distr: this.isLogY ? 3 : 1, range: () => [...this.limitsY()] },
        },
        axes: [axis("x", this.curves.xTitle), axis("y", this.curves.yTitle)],
        series: [{}, ...this.curves.series.map((one, k) => this.seriesOptions(one, k))],
        cursor: {
          y: false,
          drag: { x: true, y: true, uni: 24, dist: 4, setScale: false },
          points: { size: 7 },
          dataIdx: (_, s, hovered) => (s === 0 ? hovered : this.rows.y[s - 1]?.[hovered] !== undefined ? hovered : this.nearestRow(s - 1, this.rows.x[hovered])),
          bind: {
            dblclick: () => () => {
              this.resetZoom();
              return null;
            },
          },
        },
        hooks: {
          setSelect: [(u) => this.takeSelection(u)],
          setCursor: [(u) => this.takeCursor(u)],
          drawSeries: [(u, k) => this.drawSymbols(u, k - 1)],
          draw: [(u) => this.drawMarkers(u), (u) => this.placeHandles(u)],
        },
      },
      this.plotted(),
      this.plot,
    );
    this.listenToTouch(this.chart);
    this.placeCursor();
    this.placeHandles(this.chart);
    focused?.focus({ preventScroll: true });
  }

  private seriesOptions(one: Series, k: number): uPlot.Series {
    const style = one.style ?? "line";
    const linear = (uPlot.paths.linear as () => uPlot.Series.PathBuilder)();
    return {
      label: one.label,
      show: this.isShown(k),
      stroke: this.colour(k),
      width: 1.75,
      ...(style === "dashed" ? { dash: [7, 4] } : {}),
      points: { show: false },
      paths: (u, s, from, to) => (style === "points" ? null : style === "step" ? stepPaths(u, s) : linear(u, s, from, to)),
    };
  }

  private colour(k: number, { series }: Theme = this.theme): string {
    return series[k % series.length];
  }

  /** Numbers as uPlot takes them: null leaves a gap, undefined none. */
  private plotted(): uPlot.AlignedData {
    const { x, y } = this.rows;
    const kept = x.flatMap((value, n) => (CurveView.drawable(value, this.isLogX) ? [n] : []));
    const columns = y.map((values) => kept.map((n) => (values[n] === undefined ? undefined : CurveView.drawable(values[n], this.isLogY) ? values[n] : null)));
    // Rows that a logarithmic axis cannot show come first, so that rows of the chart and of `rows` would differ: they stay, outside the axis.
    if (kept.length < x.length) {
      const low = kept.length > 0 ? x[kept[0]] : 1;
      const lost = x.length - kept.length;
      return [[...new Array<number>(lost).fill(low), ...kept.map((n) => x[n])], ...columns.map((column) => [...new Array<undefined>(lost).fill(undefined), ...column])] as uPlot.AlignedData;
    }
    return [[...x], ...columns] as uPlot.AlignedData;
  }

  /** Symbols and error bars of one series. */
  private drawSymbols(u: uPlot, k: number): void {
    if (k < 0 || !this.isShown(k)) {
      return;
    }
    const context = u.ctx;
    const ratio = devicePixelRatio;
    const { left, top, width, height } = u.bbox;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.strokeStyle = context.fillStyle = this.colour(k);
    context.translate(left, top);
    context.scale(ratio, ratio);
    const marks = this.marks(k, width / ratio, height / ratio);
    context.lineWidth = 1.2;
    context.setLineDash([]);
    context.stroke(new Path2D(marks.errors));
    context.fill(new Path2D(marks.symbols));
    context.restore();
  }

  /** Symbols and error bars of a series as paths in a frame of a size, from its upper left corner. */
  private marks(k: number, width: number, height: number): { readonly symbols: string; readonly errors: string } {
    const [lx, ly] = [this.limitsX(), this.limitsY()];
    const px = (x: number) => fraction(x, lx, this.isLogX) * width;
    const py = (y: number) => (1 - fraction(y, ly, this.isLogY)) * height;
    const style = this.curves.series[k].style ?? "line";
    const isCrowd = this.curves.series.length > 1;
    const values = this.rows.y[k];
    const errors = this.rows.error[k];
    const [symbols, bars]: [string[], string[]] = [[], []];
    const present = values.flatMap((value, n) => (value === undefined || !CurveView.drawable(this.rows.x[n], this.isLogX) ? [] : [n]));
    let last = -Infinity;
    present.forEach((n, m) => {
      const value = values[n];
      const x = px(this.rows.x[n]);
      if (!CurveView.drawable(value, this.isLogY) || x < -9 || x > width + 9) {
        return;
      }
      const isAlone = [present[m - 1], present[m + 1]].every((other) => other === undefined || !CurveView.drawable(values[other], this.isLogY));
      const isSpaced = isCrowd && style !== "step" && x - last >= 44 + 7 * (k % 5);
      if (style === "points" || isAlone || isSpaced || errors !== undefined) {
        symbols.push(moved(symbolPath(k, style === "points" || isAlone ? 3.2 : 2.8), x, py(value)));
        last = x;
      }
      const error = errors?.[n];
      if (error !== undefined && Number.isFinite(error) && error > 0) {
        const low = this.isLogY && value - error <= 0 ? ly[0] : value - error;
        const [a, b] = [py(low), py(value + error)];
        bars.push(`M${fix(x)},${fix(a)}V${fix(b)}M${fix(x - 3)},${fix(a)}h6M${fix(x - 3)},${fix(b)}h6`);
      }
    });
    return { symbols: symbols.join(""), errors: bars.join("") };
  }

  private drawMarkers(u: uPlot): void {
    const context = u.ctx;
    const ratio = devicePixelRatio;
    const { left, top, width, height } = u.bbox;
    context.save();
    context.translate(left, top);
    context.scale(ratio, ratio);
    context.strokeStyle = context.fillStyle = this.theme.muted;
    context.font = `11px ${this.theme.font}`;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.textBaseline = "top";
    for (const { x, y, label, isLeft } of this.placedMarkers(width / ratio)) {
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height / ratio);
      context.stroke();
      context.textAlign = isLeft ? "right" : "left";
      context.fillText(label, x + (isLeft ? -4 : 4), y);
    }
    context.restore();
  }

  /** Puts a handle on each marker, at the edge where the marker is outside. */
  private placeHandles(u: uPlot): void {
    if (this.moved === undefined) {
      return;
    }
    this.handles.splice(this.markers.length).forEach((one) => one.remove());
    this.markers.forEach(({ x, label }, k) => {
      const handle = (this.handles[k] ??= this.makeHandle(k));
      if (handle.parentElement !== u.over) {
        u.over.append(handle);
      }
      const at = fraction(x, this.limitsX(), this.isLogX);
      handle.style.left = `${100 * Math.min(Math.max(Number.isFinite(at) ? at : 0, 0), 1)}%`;
      handle.setAttribute("aria-label", label);
      handle.setAttribute("aria-valuenow", plainNumber(x));
      handle.setAttribute("aria-valuetext", valueWithTitle(x, this.curves.xTitle));
    });
  }

  private makeHandle(k: number): HTMLElement {
    let held = false;
    const at = (event: PointerEvent) => {
      const { left, width } = (this.chart as uPlot).over.getBoundingClientRect();
      return atFraction(Math.min(Math.max((event.clientX - left) / width, 0), 1), this.limitsX(), this.isLogX);
    };
    const handle = h("div", { class: "curve-handle", role: "slider", tabindex: 0 });
    const release = (event: PointerEvent) => {
      if (held) {
        held = false;
        this.moved?.(k, event.type === "pointerup" ? at(event) : this.markers[k].x, false);
      }
    };
    const listeners: Record<string, (event: never) => void> = {
      // The plot would begin to select a range.
      mousedown: (event: MouseEvent) => event.stopPropagation(),
      pointerdown: (event: PointerEvent) => {
        event.stopPropagation();
        handle.setPointerCapture(event.pointerId);
        held = true;
      },
      pointermove: (event: PointerEvent) => held && this.moved?.(k, at(event), true),
      pointerup: release,
      pointercancel: release,
      keydown: (event: KeyboardEvent) => {
        const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (by !== 0) {
          event.preventDefault();
          event.stopPropagation();
          const limits = this.limitsX();
          const share = fraction(this.markers[k].x, limits, this.isLogX) + (event.shiftKey ? 0.05 : 0.005) * by;
          this.moved?.(k, atFraction(Math.min(Math.max(share, 0), 1), limits, this.isLogX), false);
        }
      },
    };
    for (const [name, listener] of Object.entries(listeners)) {
      handle.addEventListener(name, listener as (event: Event) => void);
    }
    return handle;
  }

  /** Where markers and their labels are drawn: labels that would overlap are below one another. */
  private placedMarkers(width: number): { readonly x: number; readonly y: number; readonly label: string; readonly isLeft: boolean }[] {
    const limits = this.limitsX();
    const ends: number[] = [];
    return this.markers
      .filter(({ x }) => CurveView.drawable(x, this.isLogX) && x >= limits[0] && x <= limits[1])
      .map(({ x, label }) => ({ x: fraction(x, limits, this.isLogX) * width, label }))
      .sort((a, b) => a.x - b.x)
      .map(({ x, label }) => {
        const long = label.length * 6.2 + 8;
        const isLeft = x + long > width && x > long;
        const [from, to] = isLeft ? [x - long, x] : [x, x + long];
        const free = ends.findIndex((end) => end <= from);
        const row = free < 0 ? ends.length : free;
        ends[row] = to;
        return { x, label, isLeft, y: 3 + 14 * row };
      });
  }

  private takeSelection(u: uPlot): void {
    const { left, top, width, height } = u.select;
    const [all, tall] = [u.over.clientWidth, u.over.clientHeight];
    if (width <= 0 || height <= 0) {
      return;
    }
    const zoom = (from: number, to: number, scale: "x" | "y"): number[] => {
      const ends = [u.posToVal(from, scale), u.posToVal(to, scale)].sort((a, b) => a - b);
      return ends[1] > ends[0] && ends.every(Number.isFinite) ? ends : [];
    };
    const isWide = width < all - 1;
    const isTall = height < tall - 1;
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (isWide) {
      this.zoomX.set(zoom(left, left + width, "x"), { live: true });
    }
    if (isTall) {
      this.zoomY.set(zoom(top, top + height, "y"), { live: true });
    }
    this.zoomX.set(this.zoomX.value);
  }

  private takeCursor(u: uPlot): void {
    if (this.quiet) {
      return;
    }
    const { left = -1, idx } = u.cursor;
    const x = left < 0 || idx === null || idx === undefined ? null : (u.data[0][idx] ?? null);
    if (x !== this.cursor) {
      this.cursor = x;
      this.at.textContent = x === null ? "" : valueWithTitle(x, this.curves.xTitle);
      this.values.forEach((place, k) => {
        place.textContent = x === null ? "" : this.valueAt(k, x);
      });
      this.listeners.forEach((listener) => listener(x));
    }
  }

  /** A finger moves the cursor; two zoom. */
  private listenToTouch(u: uPlot): void {
    const fingers = new Map<number, number>();
    let span: { readonly limits: Limits; readonly ends: readonly number[] } | undefined;
    const positions = () => [...fingers.values()].sort((a, b) => a - b);
    const within = (event: PointerEvent) => event.clientX - u.over.getBoundingClientRect().left;
    u.over.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") {
        fingers.set(event.pointerId, within(event));
        const ends = positions();
        span = ends.length === 2 && ends[1] - ends[0] > 10 ? { limits: this.limitsX(), ends } : undefined;
      }
    });
    u.over.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) {
        return;
      }
      fingers.set(event.pointerId, within(event));
      const ends = positions();
      if (span !== undefined && ends.length === 2 && ends[1] - ends[0] > 10) {
        const wide = u.over.clientWidth;
        const scale = (span.ends[1] - span.ends[0]) / (ends[1] - ends[0]);
        const low = span.ends[0] / wide - (ends[0] / wide) * scale;
        const { limits } = span;
        this.zoomX.set([low, low + scale].map((f) => atFraction(f, limits, this.isLogX)), { live: true });
      } else if (ends.length === 1) {
        u.setCursor({ left: ends[0], top: u.over.clientHeight / 2 });
      }
    });
    const lift = (event: PointerEvent) => {
      if (fingers.delete(event.pointerId) && span !== undefined) {
        span = undefined;
        this.zoomX.set(this.zoomX.value);
      }
    };
    u.over.addEventListener("pointerup", lift);
    u.over.addEventListener("pointercancel", lift);
  }

  private resize(): void {
    const width = Math.floor(this.plot.clientWidth);
    if (this.chart === undefined) {
      this.rebuild();
    } else if (width >= 40 && width !== this.chart.width) {
      this.chart.setSize({ width, height: this.height });
      this.placeCursor();
    }
  }

  private describeState(): void {
    this.buttons.logX.setAttribute("aria-pressed", String(this.isLogX));
    this.buttons.logY.setAttribute("aria-pressed", String(this.isLogY));
    this.buttons.reset.hidden = this.zoomX.value.length === 0 && this.zoomY.value.length === 0;
  }

  /** Says what cannot be drawn. */
  private describeDropped(): void {
    const { x, y } = this.rows;
    let [below, holes] = [0, 0];
    y.forEach((values, k) => {
      values.forEach((value, n) => {
        if (value !== undefined && this.isShown(k)) {
          if (!Number.isFinite(value)) {
            holes++;
          } else if (!CurveView.drawable(x[n], this.isLogX) || !CurveView.drawable(value, this.isLogY)) {
            below++;
          }
        }
      });
    });
    const points = (n: number) => (n === 1 ? "1 point is" : `${n} points are`);
    const sentences = [
      below > 0 ? `${points(below)} not drawn: a logarithmic axis shows positive numbers only.` : "",
      holes > 0 ? `${points(holes)} not drawn: not a finite number.` : "",
    ].filter((text) => text !== "");
    this.note.textContent = sentences.join(" ");
    this.note.hidden = sentences.length === 0;
  }

  private fillLegend(): void {
    this.legend.hidden = this.curves.series.length === 0;
    this.values = this.curves.series.map(() => h("span", { class: "curve-value" }));
    // Renewed in place where it can be, so that a button keeps the focus.
    const existing = [...this.legend.children] as HTMLButtonElement[];
    this.curves.series.forEach((one, k) => {
      const contents = [this.swatch(k, this.theme), h("span", {}, one.label), this.values[k]];
      const button = existing[k] ?? this.legend.appendChild(h("button", { type: "button", class: "curve-series", click: () => this.toggleSeries(k) }));
      button.setAttribute("aria-pressed", String(this.isShown(k)));
      button.replaceChildren(...contents);
    });
    existing.slice(this.curves.series.length).forEach((button) => button.remove());
  }

  private swatch(k: number, theme: Theme): SVGSVGElement {
    const style = this.curves.series[k].style ?? "line";
    const isCrowd = this.curves.series.length > 1 && style !== "step";
    const colour = this.colour(k, theme);
    return svg(
      "svg",
      { width: 28, height: 12, viewBox: "0 0 28 12", "aria-hidden": "true" },
      style === "points" ? null : svg("path", { d: style === "step" ? "M1,9H10V3H19V9H27" : "M1,6H27", fill: "none", stroke: colour, "stroke-width": 2, ...(style === "dashed" ? { "stroke-dasharray": "6 3" } : {}) }),
      isCrowd || style === "points" ? svg("path", { d: symbolPath(k, 3.2), transform: "translate(14 6)", fill: colour }) : null,
    );
  }

  private toggleSeries(k: number): void {
    const hidden = this.hidden.value;
    this.hidden.set(hidden.includes(k) ? hidden.filter((one) => one !== k) : [...hidden, k].sort((a, b) => a - b));
  }

  // ---- What a card exports

  table(): DataTable {
    const { series, xTitle } = this.curves;
    const [from, to] = this.limitsX();
    const isZoomed = this.zoomX.value.length === 2;
    const wanted = this.rows.x.map((_, n) => n).filter((n) => !isZoomed || (this.rows.x[n] >= from && this.rows.x[n] <= to));
    const kept = wanted.slice(0, ROWS);
    const columns = series.flatMap((one, k) => {
      const title = this.unit(k) ? `${one.label} [${this.unit(k)}]` : one.label;
      return this.rows.error[k] === undefined ? [title] : [title, `standard error of ${title}`];
    });
    const rows = kept.map((n) => [
      this.rows.x[n],
      ...series.flatMap((_, k) => {
        const errors = this.rows.error[k];
        const value = this.rows.y[k][n] ?? "";
        return errors === undefined ? [value] : [value, errors[n] ?? ""];
      }),
    ]);
    const range = isZoomed ? `, ${xTitle} from ${formatNumber(from)} to ${formatNumber(to)}` : "";
    const cut = wanted.length > kept.length ? `, the first ${kept.length} of ${wanted.length} samples` : "";
    return { caption: `${this.label}${range}${cut}`, columns: [xTitle, ...columns], rows };
  }

  svg(): string {
    const [width, height] = [720, 440];
    const shown = this.curves.series.map((_, k) => k).filter((k) => this.isShown(k));
    const [lx, ly] = [this.limitsX(), this.limitsY()];
    const ticksY = ticksOf(ly, this.isLogY, 7);
    const labelsY = tickLabels(ticksY);
    const left = 34 + 7 * Math.max(...labelsY.map((text) => text.length), 1);
    const columns = Math.max(Math.floor((width - left - 20) / Math.max(...shown.map((k) => this.curves.series[k].label.length * 6.6 + 56), 60)), 1);
    const legendHeight = this.curves.series.length > 1 ? Math.ceil(shown.length / columns) * 18 + 6 : 0;
    const frame = { left, top: 16, width: width - left - 20, height: height - 16 - 46 };
    const px = (x: number) => frame.left + fraction(x, lx, this.isLogX) * frame.width;
    const py = (y: number) => frame.top + (1 - fraction(y, ly, this.isLogY)) * frame.height;
    const text = (x: number, y: number, content: string, anchor = "middle", more = {}) => svg("text", { x: fix(x), y: fix(y), "text-anchor": anchor, fill: PRINT.ink, ...more }, content);
    const ticksX = ticksOf(lx, this.isLogX, Math.floor(frame.width / 80));
    const labelsX = tickLabels(ticksX);
    const bottom = frame.top + frame.height;
    const clip = uniqueId("clip");
    const root = svg(
      "svg",
      { xmlns: "http://www.w3.org/2000/svg", width, height: height + legendHeight, viewBox: `0 0 ${width} ${height + legendHeight}`, "font-family": "sans-serif", "font-size": 12 },
      svg("title", {}, this.label),
      svg("rect", { width, height: height + legendHeight, fill: PRINT.paper }),
      svg("clipPath", { id: clip }, svg("rect", { x: frame.left, y: frame.top, width: frame.width, height: frame.height })),
      svg("path", { d: [...ticksX.map((x) => `M${fix(px(x))},${frame.top}V${bottom}`), ...ticksY.map((y) => `M${frame.left},${fix(py(y))}h${frame.width}`)].join(""), stroke: PRINT.line, "stroke-width": 0.5 }),
      ...ticksX.map((x, n) => text(px(x), bottom + 17, labelsX[n])),
      ...ticksY.map((y, n) => text(frame.left - 7, py(y) + 4, labelsY[n], "end")),
      text(frame.left + frame.width / 2, bottom + 38, this.curves.xTitle),
      text(0, 0, this.curves.yTitle, "middle", { transform: `translate(14 ${frame.top + frame.height / 2}) rotate(-90)` }),
      svg(
        "g",
        { "clip-path": `url(#${clip})` },
        ...shown.flatMap((k) => {
          const colour = this.colour(k, PRINT);
          const style = this.curves.series[k].style ?? "line";
          const { symbols, errors } = this.marks(k, frame.width, frame.height);
          const at = `translate(${frame.left} ${frame.top})`;
          return [
            style === "points" ? null : svg("path", { d: this.linePath(k, px, py), fill: "none", stroke: colour, "stroke-width": 1.75, "stroke-linejoin": "round", ...(style === "dashed" ? { "stroke-dasharray": "7 4" } : {}) }),
            errors ? svg("path", { d: errors, transform: at, fill: "none", stroke: colour, "stroke-width": 1.2 }) : null,
            symbols ? svg("path", { d: symbols, transform: at, fill: colour }) : null,
          ];
        }),
      ),
      ...this.placedMarkers(frame.width).flatMap((one) => [
        svg("path", { d: `M${fix(frame.left + one.x)},${frame.top}v${frame.height}`, stroke: PRINT.muted, "stroke-dasharray": "3 3" }),
        text(frame.left + one.x + (one.isLeft ? -4 : 4), frame.top + one.y + 10, one.label, one.isLeft ? "end" : "start", { fill: PRINT.muted }),
      ]),
      svg("rect", { x: frame.left, y: frame.top, width: frame.width, height: frame.height, fill: "none", stroke: PRINT.ink }),
      ...(legendHeight === 0 ? [] : shown.map((k, n) => {
        const swatch = this.swatch(k, PRINT);
        const x = frame.left + ((n % columns) * frame.width) / columns;
        const y = height + 4 + Math.floor(n / columns) * 18;
        swatch.setAttribute("x", fix(x));
        swatch.setAttribute("y", String(y));
        return svg("g", {}, swatch, text(x + 34, y + 10, this.curves.series[k].label, "start"));
      })),
    );
    return new XMLSerializer().serializeToString(root);
  }

  private linePath(k: number, px: (x: number) => number, py: (y: number) => number): string {
    const values = this.rows.y[k];
    const isStep = this.curves.series[k].style === "step";
    const points: ([number, number] | null)[] = [];
    values.forEach((value, n) => {
      const x = this.rows.x[n];
      if (value !== undefined && CurveView.drawable(x, this.isLogX)) {
        points.push(CurveView.drawable(value, this.isLogY) ? [px(x), py(value)] : null);
      }
    });
    return isStep ? stepPath(points) : points.map((at, n) => (at === null ? "" : `${n === 0 || points[n - 1] === null ? "M" : "L"}${fix(at[0])},${fix(at[1])}`)).join("");
  }
}

/** A path that holds each number from half-way to its neighbours; null leaves a gap. */
function stepPath(points: readonly ([number, number] | null)[]): string {
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

function stepPaths(u: uPlot, s: number): uPlot.Series.Paths {
  const points: ([number, number] | null)[] = [];
  u.data[s].forEach((value, n) => {
    if (value !== undefined) {
      points.push(value === null ? null : [u.valToPos(u.data[0][n], "x", true), u.valToPos(value, "y", true)]);
    }
  });
  return { stroke: new Path2D(stepPath(points)) };
}

/** A path about the origin, moved. */
function moved(path: string, x: number, y: number): string {
  return path.replace(/M(-?[\d.]+),(-?[\d.]+)|L(-?[\d.]+),(-?[\d.]+)/g, (_, mx, my, lx, ly) =>
    mx === undefined ? `L${fix(Number(lx) + x)},${fix(Number(ly) + y)}` : `M${fix(Number(mx) + x)},${fix(Number(my) + y)}`);
}

/** All series in rows of ascending x. Samples of one series at the same x have rows of their own. */
function inRows({ x, series }: Curves): Rows {
  const isShared = series.every((one) => one.x === undefined) && x.every((value, n) => Number.isFinite(value) && (n === 0 || value > x[n - 1]));
  if (isShared) {
    const cut = (values: Numbers) => Array.from(x, (_, n) => (n < values.length ? values[n] : undefined));
    return { x: Array.from(x), y: series.map((one) => cut(one.values)), error: series.map((one) => one.error && cut(one.error)) };
  }
  const sorted = series.map((one) => {
    const own = one.x ?? x;
    return Array.from({ length: Math.min(own.length, one.values.length) }, (_, n) => n).filter((n) => Number.isFinite(own[n])).sort((a, b) => own[a] - own[b]);
  });
  const at = series.map(() => 0);
  const rows: number[] = [];
  const y: (number | undefined)[][] = series.map(() => []);
  const error: ((number | undefined)[] | undefined)[] = series.map((one) => (one.error ? [] : undefined));
  for (;;) {
    const next = Math.min(...series.map((one, k) => (at[k] < sorted[k].length ? (one.x ?? x)[sorted[k][at[k]]] : Infinity)));
    if (next === Infinity) {
      return { x: rows, y, error };
    }
    rows.push(next);
    series.forEach((one, k) => {
      const n = sorted[k][at[k]];
      const isHere = n !== undefined && (one.x ?? x)[n] === next;
      y[k].push(isHere ? one.values[n] : undefined);
      error[k]?.push(isHere ? one.error?.[n] : undefined);
      at[k] += isHere ? 1 : 0;
    });
  }
}

/** Number of the element of ascending numbers next to x. */
function nearest(sorted: readonly number[], x: number): number {
  let [low, high] = [0, sorted.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return Math.abs(sorted[high] - x) < Math.abs(sorted[low] - x) ? high : low;
}

/** The unit in a title such as "height [m]". */
function unitOf(title: string): string {
  return /\[([^\]]*)\]$/.exec(title)?.[1] ?? "";
}

/** A number with the name and unit of its axis. */
function valueWithTitle(x: number, title: string): string {
  const unit = unitOf(title);
  const name = unit ? title.slice(0, title.lastIndexOf("[")).trim() : title;
  return `${name} ${formatNumber(x, 5)}${unit ? ` ${unit}` : ""}`.trim();
}
