/** Curves: one or more series of numbers over a common axis, by uPlot. */

import type uPlot from "uplot";
import { h, uniqueId } from "../dom";
import type { Scope } from "../store";
import type { DataTable, View } from "../view";
import { makeChart, plotted } from "./curve/chart";
import { curveSvg, curveTable } from "./curve/export";
import { CurveMarkers, type CurveMarker, type MarkerListener } from "./curve/markers";
import { CurveModel } from "./curve/model";
import { swatch } from "./curve/paths";
import type { Curves } from "./curve/rows";
import { onResize, onTheme, PRINT, themeOf, type Theme } from "./theme";

export type { CurveMarker } from "./curve/markers";
export type { Curves, Series } from "./curve/rows";

const KEYS = "Left and right arrows move the cursor, with Shift by ten; Home and End go to the ends; plus and minus zoom, 0 shows the whole range; Escape removes the cursor. The pointer zooms by dragging, a double click shows the whole range.";

/** Curves with a cursor, zoom, logarithmic axes and a legend that hides series. */
export class CurveView implements View {
  readonly element: HTMLElement;
  private readonly plot: HTMLDivElement;
  private readonly legend: HTMLDivElement;
  private readonly at = h("span", { class: "curve-at" });
  private readonly note = h("p", { class: "curve-note", hidden: true });
  private readonly spoken = h("p", { class: "curve-hidden", "aria-live": "polite" });
  private readonly buttons: Record<"X" | "Y" | "reset", HTMLButtonElement>;
  private readonly height: number;
  private readonly label: string;
  private readonly model: CurveModel;
  private readonly markers: CurveMarkers;
  private readonly ends: (() => void)[] = [];
  private readonly listeners: ((x: number | null) => void)[] = [];
  private theme: Theme = PRINT;
  private chart: uPlot | undefined;
  private structure = "";
  private cursor: number | null = null;
  private quiet = false;
  private values: HTMLElement[] = [];

  /** `zoomWith`: a view that shares zoom, axes and hidden series with this one. */
  constructor(options: { readonly scope: Scope; readonly label: string; readonly height?: number; readonly zoomWith?: CurveView }) {
    const { label } = options;
    this.height = options.height ?? 280;
    this.label = label;
    const model = (this.model = new CurveModel(options.scope, options.zoomWith?.model));
    this.markers = new CurveMarkers(model);

    const button = (text: string, click: () => void, name?: string) => h("button", { type: "button", class: "curve-button", "aria-label": name, title: name, click }, text);
    this.buttons = {
      X: button("Log x", () => model.toggleLog("X")),
      Y: button("Log y", () => model.toggleLog("Y")),
      reset: button("Whole range", () => model.resetZoom()),
    };
    const help = uniqueId("curve-help");
    this.plot = h("div", {
      class: "curve-plot", tabindex: 0, role: "application", "aria-roledescription": "curves", "aria-label": label, "aria-describedby": help,
      keydown: (event: KeyboardEvent) => this.key(event),
    });
    this.legend = h("div", { class: "curve-legend", role: "group", "aria-label": `Series of ${label}` });
    this.element = h(
      "div",
      { class: "curve" },
      h(
        "div",
        { class: "curve-bar", role: "group", "aria-label": `Axes of ${label}` },
        this.buttons.X,
        this.buttons.Y,
        button("+", () => model.zoomBy(0.5, this.cursor), "Zoom in"),
        button("−", () => model.zoomBy(2, this.cursor), "Zoom out"),
        this.buttons.reset,
        this.at,
      ),
      this.plot,
      this.legend,
      this.note,
      h("p", { class: "curve-hidden", id: help }, KEYS),
      this.spoken,
    );
    this.plot.style.minHeight = `${this.height}px`;

    const rebuild = () => this.rebuild();
    const applyLimits = () => this.applyLimits();
    this.ends.push(
      onResize(this.plot, () => this.resize()),
      onTheme(rebuild),
      model.zoomX.subscribe(applyLimits),
      model.zoomY.subscribe(applyLimits),
      model.logX.subscribe(rebuild),
      model.logY.subscribe(rebuild),
      model.hidden.subscribe(rebuild),
    );
    this.describeState();
  }

  /** Shows other curves; zoom, cursor and hidden series stay. */
  show(curves: Curves): void {
    const { model, chart } = this;
    model.show(curves);
    const structure = JSON.stringify([curves.xTitle, curves.yTitle, model.isLogX, model.isLogY, curves.series.map((one) => [one.label, one.style, one.unit])]);
    if (structure !== this.structure || chart === undefined) {
      this.structure = structure;
      this.rebuild();
    } else {
      chart.setData(plotted(model), true);
      this.describeDropped();
    }
    this.placeCursor();
  }

  /** Vertical lines with labels. */
  setMarkers(markers: readonly CurveMarker[]): void {
    this.markers.markers = markers;
    this.chart?.redraw(false, false);
  }

  /** Makes the markers draggable, by pointer and by arrow keys: calls back with a marker's number and where it is moved to. */
  onMarker(listener: MarkerListener): void {
    this.markers.listener = listener;
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

  // Chart.

  /** Builds the chart anew: for other series, axes or colours. */
  private rebuild(): void {
    const { model, markers, plot } = this;
    const { focused } = markers;
    this.chart?.destroy();
    this.chart = undefined;
    this.describeState();
    this.fillLegend();
    this.describeDropped();
    const width = Math.floor(plot.clientWidth);
    if (width < 40) {
      return;
    }
    this.theme = themeOf(this.element);
    this.fillLegend();
    this.chart = makeChart(plot, width, this.height, model, markers, this.theme, (u) => this.takeCursor(u));
    this.placeCursor();
    markers.placeHandles(this.chart);
    focused?.focus({ preventScroll: true });
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

  private applyLimits(): void {
    const { chart, model } = this;
    this.describeState();
    if (chart === undefined) {
      return;
    }
    const [x, y] = [model.limitsX(), model.limitsY()];
    chart.batch(() => {
      chart.setScale("x", { min: x[0], max: x[1] });
      chart.setScale("y", { min: y[0], max: y[1] });
    });
    this.placeCursor();
  }

  private describeState(): void {
    const { buttons, model } = this;
    buttons.X.setAttribute("aria-pressed", String(model.isLogX));
    buttons.Y.setAttribute("aria-pressed", String(model.isLogY));
    buttons.reset.hidden = model.zoomX.value.length === 0 && model.zoomY.value.length === 0;
  }

  /** Prints what cannot be drawn. */
  private describeDropped(): void {
    this.note.textContent = this.model.describeDropped();
    this.note.hidden = this.note.textContent === "";
  }

  private fillLegend(): void {
    const { legend, model } = this;
    const { series } = model;
    legend.hidden = series.length === 0;
    this.values = series.map(() => h("span", { class: "curve-value" }));
    // Renewed in place where it can be, so that a button keeps the focus.
    const existing = [...legend.children] as HTMLButtonElement[];
    series.forEach((one, k) => {
      const contents = [swatch(model, k, this.theme), h("span", {}, one.label), this.values[k]];
      const button = existing[k] ?? legend.appendChild(h("button", { type: "button", class: "curve-series", click: () => model.toggleSeries(k) }));
      button.setAttribute("aria-pressed", String(model.isShown(k)));
      button.replaceChildren(...contents);
    });
    existing.slice(series.length).forEach((button) => button.remove());
  }

  // Cursor.

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const { model } = this;
    const by = event.shiftKey ? 10 : 1;
    const zoomIn = () => model.zoomBy(0.5, this.cursor);
    const work: Record<string, () => void> = {
      ArrowLeft: () => this.step(-by),
      ArrowRight: () => this.step(by),
      Home: () => this.step(-Infinity),
      End: () => this.step(Infinity),
      "+": zoomIn,
      "=": zoomIn,
      "-": () => model.zoomBy(2, this.cursor),
      "0": () => model.resetZoom(),
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
    const x = this.model.step(this.cursor, by);
    if (x !== undefined) {
      this.setCursor(x);
    }
  }

  private setCursor(x: number | null): void {
    const changed = x !== this.cursor;
    this.cursor = x;
    this.placeCursor();
    if (changed) {
      this.listeners.forEach((listener) => listener(x));
    }
  }

  /** Takes the cursor of the chart, where a pointer moved it. */
  private takeCursor(u: uPlot): void {
    const { left = -1, idx } = u.cursor;
    const x = left < 0 || idx === null || idx === undefined ? null : (u.data[0][idx] ?? null);
    if (!this.quiet && x !== this.cursor) {
      this.cursor = x;
      this.printValues();
      this.listeners.forEach((listener) => listener(x));
    }
  }

  /** Draws the cursor where it is and prints the numbers there. */
  private placeCursor(): void {
    const { chart, cursor } = this;
    if (chart !== undefined) {
      this.quiet = true;
      chart.setCursor(cursor === null ? { left: -10, top: -10 } : { left: chart.valToPos(cursor, "x"), top: chart.over.clientHeight / 2 });
      this.quiet = false;
    }
    this.printValues();
  }

  private printValues(): void {
    const { cursor, model } = this;
    this.at.textContent = cursor === null ? "" : model.describeX(cursor);
    this.values.forEach((place, k) => {
      place.textContent = cursor === null ? "" : model.valueAt(k, cursor);
    });
  }

  /** The numbers at the cursor, for screen readers. */
  private sentence(): string {
    const { cursor, model } = this;
    return cursor === null ? "No cursor" : [model.describeX(cursor), ...model.shown.map((k) => `${model.series[k].label} ${model.valueAt(k, cursor)}`)].join("; ");
  }

  // Exports.

  /** The samples in view, by rows of ascending x. */
  table(): DataTable {
    return curveTable(this.label, this.model);
  }

  /** The picture with axes, markers and legend, in the colours of print. */
  svg(): string {
    return curveSvg(this.label, this.model, (width) => this.markers.placed(width));
  }
}
