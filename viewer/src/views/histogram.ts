/** Contrast: a histogram of an image with a handle at each limit of the colours, and the limits as numbers. */

import type { Numbers } from "../data";
import { h, plainNumber, svg } from "../dom";
import { quantity } from "./axes";
import type { ScaleName } from "./image.api";
import { Scale, type Statistics } from "./scale";

/** What the histogram shows. */
export interface Contrast {
  readonly values: Numbers;
  readonly stats: Statistics;
  readonly scale: Scale;
  readonly quantity: string;
  readonly unit: string;
}

const BINS = 96;

/** The range of a histogram, along the scale of the colours: all numbers that the scale can show, and both limits. */
export function histogramScale({ stats, scale }: Pick<Contrast, "stats" | "scale">): Scale {
  const { min, max, minPositive } = stats;
  const lowest = scale.law === "log" ? Math.max(minPositive, max * 1e-12) : min;
  const lo = Number.isFinite(lowest) ? Math.min(lowest, scale.lo) : scale.lo;
  const hi = Number.isFinite(max) ? Math.max(max, scale.hi) : scale.hi;
  return new Scale(scale.name as ScaleName, lo, hi);
}

/** Numbers in each of the bins that divide a scale equally; of large images, of every so many-th number. */
export function histogram(values: Numbers, scale: Scale, bins: number): Float64Array {
  const counts = new Float64Array(bins);
  const stride = Math.max(1, Math.floor(values.length / 65_536));
  for (let k = 0; k < values.length; k += stride) {
    const v = values[k];
    if (v >= scale.lo && v <= scale.hi) {
      counts[Math.min(Math.floor(scale.fraction(v) * bins), bins - 1)] += stride;
    }
  }
  return counts;
}

/** Keys of the handles. */
export type Limit = "lo" | "hi";

/** The histogram with its handles, buttons and fields. */
export class ContrastControl {
  readonly element: HTMLElement;
  private readonly path = svg("path", { fill: "currentColor" });
  private readonly shade = h("div", { class: "iv-range" });
  private readonly plot: HTMLElement;
  private readonly handles: Record<Limit, HTMLElement>;
  private readonly fields: Record<Limit, HTMLInputElement>;
  private range = new Scale("linear", 0, 1);
  private shown: Contrast | undefined;
  private dragged: Limit | undefined;

  constructor(
    label: string,
    private readonly listener: (limit: Limit, value: number, live: boolean) => void,
    automatic: (range: "minmax" | "percentile" | "hold") => void,
  ) {
    const handle = (limit: Limit, name: string) =>
      h("div", { class: "iv-limit", role: "slider", tabindex: 0, "aria-label": `${name}, ${label}`, "aria-valuenow": 0, "data-limit": limit, keydown: (event: KeyboardEvent) => this.key(limit, event) });
    const field = (limit: Limit, name: string) =>
      h("input", {
        type: "number", step: "any", "aria-label": `${name}, ${label}`,
        change: () => {
          const value = this.fields[limit].valueAsNumber;
          if (Number.isFinite(value)) {
            this.move(limit, value, false);
          }
        },
      });
    this.handles = { lo: handle("lo", "Lower limit"), hi: handle("hi", "Upper limit") };
    this.fields = { lo: field("lo", "Lower limit"), hi: field("hi", "Upper limit") };
    this.plot = h(
      "div",
      {
        class: "iv-histogram",
        pointerdown: (event: PointerEvent) => this.down(event),
        pointermove: (event: PointerEvent) => this.dragged && this.move(this.dragged, this.at(event), true),
        pointerup: (event: PointerEvent) => this.up(event),
        pointercancel: (event: PointerEvent) => this.up(event),
      },
      svg("svg", { viewBox: `0 0 ${BINS} 40`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.path),
      this.shade,
      this.handles.lo,
      this.handles.hi,
    );
    const button = (text: string, kind: "minmax" | "percentile" | "hold", hint: string) => h("button", { type: "button", title: hint, click: () => automatic(kind) }, text);
    this.element = h(
      "details",
      { class: "iv-contrast", open: true },
      h("summary", {}, "Contrast"),
      this.plot,
      h(
        "div",
        { class: "iv-fields" },
        this.fields.lo,
        this.fields.hi,
        button("min–max", "minmax", "From the smallest to the largest number of each image"),
        button("1–99 %", "percentile", "Without the lowest and the highest hundredth of each image"),
        button("Hold", "hold", "Keeps these limits for all images"),
      ),
    );
  }

  /** Shows the limits, and counts numbers unless `countLater`. */
  update(contrast: Contrast, count: boolean): void {
    this.shown = contrast;
    const { scale, unit } = contrast;
    if (!this.dragged) {
      this.range = histogramScale(contrast);
    }
    if (count) {
      const counts = histogram(contrast.values, this.range, BINS);
      const top = Math.log1p(Math.max(...counts)) || 1;
      this.path.setAttribute("d", `M0 40${[...counts].map((n, k) => `V${(40 - (38 * Math.log1p(n)) / top).toFixed(1)}H${k + 1}`).join("")}V40Z`);
    }
    const [a, b] = [this.range.fraction(scale.lo), this.range.fraction(scale.hi)];
    this.shade.style.left = `${100 * a}%`;
    this.shade.style.width = `${100 * (b - a)}%`;
    for (const limit of ["lo", "hi"] as const) {
      const handle = this.handles[limit];
      const value = scale[limit];
      handle.style.left = `${100 * (limit === "lo" ? a : b)}%`;
      handle.setAttribute("aria-valuenow", plainNumber(value));
      handle.setAttribute("aria-valuemin", plainNumber(this.range.lo));
      handle.setAttribute("aria-valuemax", plainNumber(this.range.hi));
      handle.setAttribute("aria-valuetext", quantity(value, unit, 4));
      const field = this.fields[limit];
      if (document.activeElement !== field) {
        field.value = String(Number(value.toPrecision(5)));
      }
    }
  }

  private at(event: PointerEvent): number {
    const { left, width } = this.plot.getBoundingClientRect();
    return this.range.number(Math.min(Math.max((event.clientX - left) / width, 0), 1));
  }

  private down(event: PointerEvent): void {
    if (!this.shown || event.button !== 0) {
      return;
    }
    const value = this.at(event);
    const { scale } = this.shown;
    const from = (limit: Limit) => Math.abs(this.range.fraction(value) - this.range.fraction(scale[limit]));
    const handle = (event.target as Element).closest<HTMLElement>("[data-limit]")?.dataset["limit"] as Limit | undefined;
    this.dragged = handle ?? (from("lo") <= from("hi") ? "lo" : "hi");
    this.plot.setPointerCapture(event.pointerId);
    this.handles[this.dragged].focus({ preventScroll: true });
    event.preventDefault();
    if (!handle) {
      this.move(this.dragged, value, true);
    }
  }

  private up(event: PointerEvent): void {
    if (this.dragged) {
      const limit = this.dragged;
      this.dragged = undefined;
      this.move(limit, this.at(event), false);
    }
  }

  private key(limit: Limit, event: KeyboardEvent): void {
    const step = { ArrowLeft: -0.01, ArrowDown: -0.01, ArrowRight: 0.01, ArrowUp: 0.01, PageDown: -0.1, PageUp: 0.1, Home: -1, End: 1 }[event.key];
    if (step !== undefined && this.shown) {
      event.preventDefault();
      const at = this.range.fraction(this.shown.scale[limit]) + step;
      this.move(limit, this.range.number(Math.min(Math.max(at, 0), 1)), false);
    }
  }

  /** Sets a limit, which cannot pass the other one. */
  private move(limit: Limit, value: number, live: boolean): void {
    if (this.shown) {
      const { lo, hi } = this.shown.scale;
      const least = Math.max(Math.abs(lo), Math.abs(hi)) * 1e-6;
      this.listener(limit, limit === "lo" ? Math.min(value, hi - least) : Math.max(value, lo + least), live);
    }
  }
}
