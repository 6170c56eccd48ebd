/** State of curves: their series, which of them are shown, and the limits of their axes. */

import { formatNumber } from "../../data";
import type { Cell, Scope } from "../../store";
import { around, atFraction, fraction, type Limits } from "../axis";
import { inRows, nearest, nearestRow, type Curves, type Rows, type Series } from "./rows";

const isChoice = (value: string) => ["auto", "linear", "log"].includes(value);
const isZoom = (value: readonly number[]) => value.length === 0 || (value.length === 2 && value.every(Number.isFinite) && value[0] < value[1]);
const isHidden = (value: readonly number[]) => value.length < 1000 && value.every((k) => Number.isInteger(k) && k >= 0);

/** Whether a number can be drawn on an axis. */
export function isDrawable(value: number | undefined, log: boolean): value is number {
  return value !== undefined && Number.isFinite(value) && (!log || value > 0);
}

/** Curves with the zoom, the logarithmic axes and the hidden series that the reader chose. */
export class CurveModel {
  /** Ends of the axes, or nothing for the whole range; "auto", "linear" or "log"; numbers of hidden series. */
  readonly zoomX: Cell<readonly number[]>;
  readonly zoomY: Cell<readonly number[]>;
  readonly logX: Cell<string>;
  readonly logY: Cell<string>;
  readonly hidden: Cell<readonly number[]>;
  curves: Curves = { x: new Float64Array(0), xTitle: "", yTitle: "", series: [] };
  rows: Rows = { x: [], y: [], error: [] };

  /** `shared`: curves of which the reader's choices hold for these too. */
  constructor(scope: Scope, shared?: CurveModel) {
    const zoom = (key: string) => scope.cell<readonly number[]>(key, [], isZoom);
    this.zoomX = shared?.zoomX ?? zoom("zoom_x");
    this.zoomY = shared?.zoomY ?? zoom("zoom_y");
    this.logX = shared?.logX ?? scope.cell<string>("log_x", "auto", isChoice);
    this.logY = shared?.logY ?? scope.cell<string>("log_y", "auto", isChoice);
    this.hidden = shared?.hidden ?? scope.cell<readonly number[]>("hidden", [], isHidden);
  }

  /** Takes other curves. */
  show(curves: Curves): void {
    this.curves = curves;
    this.rows = inRows(curves);
  }

  /** The series of the curves. */
  get series(): readonly Series[] {
    return this.curves.series;
  }

  /** Whether x is logarithmic. */
  get isLogX(): boolean {
    return this.logX.value === "auto" ? this.curves.logX === true : this.logX.value === "log";
  }

  /** Whether y is logarithmic. */
  get isLogY(): boolean {
    return this.logY.value === "auto" ? this.curves.logY === true : this.logY.value === "log";
  }

  /** Whether the reader has not hidden a series. */
  isShown(k: number): boolean {
    return !this.hidden.value.includes(k);
  }

  /** Numbers of the series that are shown. */
  get shown(): number[] {
    return this.series.map((_, k) => k).filter((k) => this.isShown(k));
  }

  /** Hides a series, or shows it. */
  toggleSeries(k: number): void {
    const hidden = this.hidden.value;
    this.hidden.set(hidden.includes(k) ? hidden.filter((one) => one !== k) : [...hidden, k].sort((a, b) => a - b));
  }

  /** Makes an axis linear or logarithmic; a zoom that its new kind cannot show ends. */
  toggleLog(axis: "X" | "Y"): void {
    const zoom = this[`zoom${axis}`];
    this[`log${axis}`].set(this[`isLog${axis}`] ? "linear" : "log", { live: true });
    if (zoom.value.length === 2 && zoom.value[0] <= 0) {
      zoom.set([], { live: true });
    }
    this.commitZoom();
  }

  // Limits.

  /** Whether a row has a sample that is shown. */
  private isUsed(n: number, shown: readonly number[]): boolean {
    return isDrawable(this.rows.x[n], this.isLogX) && shown.some((k) => this.rows.y[k][n] !== undefined);
  }

  /** Ends of the x axis: those of the zoom, else about all samples that are shown. */
  limitsX(): Limits {
    const zoom = this.zoomX.value;
    if (zoom.length === 2 && !(this.isLogX && zoom[0] <= 0)) {
      return [zoom[0], zoom[1]];
    }
    const { shown } = this;
    const { x } = this.rows;
    let [first, last] = [0, x.length - 1];
    while (first < x.length && !this.isUsed(first, shown)) {
      first++;
    }
    while (last > first && !this.isUsed(last, shown)) {
      last--;
    }
    const isSpaced = this.series.some((one) => one.style === "points" || one.style === "step" || one.error !== undefined);
    return around(first < x.length ? x[first] : NaN, first < x.length ? x[last] : NaN, this.isLogX, isSpaced ? 0.03 : 0);
  }

  /** Ends of the y axis: those of the zoom, else about all numbers and errors between the ends of x. */
  limitsY(): Limits {
    const zoom = this.zoomY.value;
    const { isLogY, rows } = this;
    if (zoom.length === 2 && !(isLogY && zoom[0] <= 0)) {
      return [zoom[0], zoom[1]];
    }
    const [from, to] = this.limitsX();
    let [low, high] = [Infinity, -Infinity];
    const take = (value: number) => {
      if (isDrawable(value, isLogY)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    };
    for (const k of this.shown) {
      const errors = rows.error[k];
      rows.y[k].forEach((value, n) => {
        const x = rows.x[n];
        if (isDrawable(value, isLogY) && x >= from && x <= to) {
          take(value);
          const error = errors?.[n];
          if (error !== undefined && Number.isFinite(error)) {
            take(value + error);
            take(value - error);
          }
        }
      });
    }
    return around(low, high, isLogY, isLogY ? 0.05 : 0.06);
  }

  /** Returns to the whole range, in one step that can be undone. */
  resetZoom(): void {
    this.zoomX.set([], { live: true });
    this.zoomY.set([]);
  }

  /** Ends a gesture that zoomed, so that it can be undone. */
  commitZoom(): void {
    this.zoomX.set(this.zoomX.value);
  }

  /** Zooms x by a factor about a position, or about the middle. */
  zoomBy(factor: number, x: number | null): void {
    const limits = this.limitsX();
    const middle = x === null ? 0.5 : fraction(x, limits, this.isLogX);
    const about = middle >= 0 && middle <= 1 ? middle : 0.5;
    const ends = [about - about * factor, about + (1 - about) * factor].map((f) => atFraction(f, limits, this.isLogX));
    if (ends.every(Number.isFinite) && ends[1] > ends[0]) {
      this.zoomX.set(ends);
    }
  }

  // Read-out.

  /** The x by so many samples of those in view from another, or from the end where there is none. */
  step(x: number | null, by: number): number | undefined {
    const [from, to] = this.limitsX();
    const { shown } = this;
    const inView = this.rows.x.filter((at, n) => at >= from && at <= to && this.isUsed(n, shown));
    const now = x === null ? (by > 0 ? -1 : inView.length) : nearest(inView, x);
    return inView[Math.min(Math.max(now + by, 0), inView.length - 1)];
  }

  /** The unit of a series. */
  unit(k: number): string {
    return this.series[k].unit ?? unitOf(this.curves.yTitle);
  }

  /** The number of a series at its sample next to x, with its error and unit. */
  valueAt(k: number, x: number): string {
    const { rows } = this;
    const n = nearestRow(rows, k, x);
    if (n < 0) {
      return "";
    }
    const error = rows.error[k]?.[n];
    const unit = this.unit(k);
    const value = formatNumber(rows.y[k][n] as number, 5) + (error === undefined ? "" : ` ± ${formatNumber(error, 2)}`);
    const own = rows.x[n] === rows.x[nearest(rows.x, x)] ? "" : ` at ${formatNumber(rows.x[n], 5)}`;
    return (unit ? `${value} ${unit}` : value) + own;
  }

  /** A position with the name and unit of x. */
  describeX(x: number): string {
    const title = this.curves.xTitle;
    const unit = unitOf(title);
    const name = unit ? title.slice(0, title.lastIndexOf("[")).trim() : title;
    return `${name} ${formatNumber(x, 5)}${unit ? ` ${unit}` : ""}`.trim();
  }

  /** What cannot be drawn, in words; empty where all can. */
  describeDropped(): string {
    const { rows, isLogX, isLogY } = this;
    let [below, holes] = [0, 0];
    for (const k of this.shown) {
      rows.y[k].forEach((value, n) => {
        if (value !== undefined) {
          if (!Number.isFinite(value)) {
            holes++;
          } else if (!isDrawable(rows.x[n], isLogX) || !isDrawable(value, isLogY)) {
            below++;
          }
        }
      });
    }
    const points = (n: number) => (n === 1 ? "1 point is" : `${n} points are`);
    return [
      below > 0 ? `${points(below)} not drawn: a logarithmic axis shows positive numbers only.` : "",
      holes > 0 ? `${points(holes)} not drawn: not a finite number.` : "",
    ].filter((text) => text !== "").join(" ");
  }
}

/** The unit in a title such as "height [m]". */
function unitOf(title: string): string {
  return /\[([^\]]*)\]$/.exec(title)?.[1] ?? "";
}
