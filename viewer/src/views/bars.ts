/** Bars: signed numbers in groups, such as the terms of an error budget by target. */

import { formatNumber } from "../data";
import { h, svg, uniqueId } from "../dom";
import type { Cell, Scope } from "../store";
import type { DataTable, View } from "../view";
import { fraction, linearTicks, tickLabels, type Limits } from "./axis";
import { fix, onResize, onTheme, PRINT, themeOf, type Theme } from "./theme";

/** One bar: a number with its standard error. */
export interface Bar {
  readonly label: string;
  readonly value: number;
  readonly error?: number;
}

/** Bars that stand together below a heading. */
export interface BarGroup {
  readonly label: string;
  readonly bars: readonly Bar[];
}

/** What a BarView shows. */
export interface Bars {
  readonly groups: readonly BarGroup[];
  /** Name and unit of the numbers, as in "wavefront error [nm]". */
  readonly yTitle: string;
}

/** A bar with its position in the drawing. */
interface Row {
  readonly group: BarGroup;
  readonly bar: Bar;
  /** Middle of the bar. */
  readonly y: number;
  readonly kind: number;
}

const ORDERS = ["given", "size"];

/** Horizontal bars with their numbers printed, so that long names can be read on a phone too. */
export class BarView implements View {
  readonly element: HTMLElement;
  private readonly drawing: HTMLDivElement;
  private readonly sort: HTMLButtonElement;
  private readonly order: Cell<string>;
  private readonly ends: (() => void)[] = [];
  private readonly label: string;
  private readonly height: number | undefined;
  private bars: Bars = { groups: [], yTitle: "" };
  private focused = 0;

  /** `height` in pixels spreads the bars; without it they have a height of their own. */
  constructor(options: { readonly scope: Scope; readonly label: string; readonly height?: number }) {
    this.label = options.label;
    this.height = options.height;
    this.order = options.scope.cell<string>("order", "given", (value) => ORDERS.includes(value));
    this.sort = h("button", { type: "button", class: "curve-button", click: () => this.order.set(this.order.value === "size" ? "given" : "size") }, "Largest first");
    this.drawing = h("div", { class: "bars-drawing", keydown: (event: KeyboardEvent) => this.key(event) });
    this.element = h("div", { class: "bars" }, h("div", { class: "curve-bar" }, this.sort), this.drawing);
    let wide = 0;
    const resized = () => {
      if (this.drawing.clientWidth !== wide) {
        wide = this.drawing.clientWidth;
        this.redraw();
      }
    };
    this.ends.push(onResize(this.drawing, resized), onTheme(() => this.redraw()), this.order.subscribe(() => this.redraw()));
    this.redraw();
  }

  /** Shows other bars. */
  show(bars: Bars): void {
    this.bars = bars;
    this.redraw();
  }

  destroy(): void {
    this.ends.forEach((end) => end());
  }

  /** Groups in their order: as given, or the largest first, and so their bars. */
  private ordered(): readonly BarGroup[] {
    if (this.order.value === "given") {
      return this.bars.groups;
    }
    const size = ({ value }: Bar) => (Number.isFinite(value) ? Math.abs(value) : -1);
    const largest = ({ bars }: BarGroup) => Math.max(...bars.map(size), -1);
    return this.bars.groups.map((group) => ({ ...group, bars: [...group.bars].sort((a, b) => size(b) - size(a)) })).sort((a, b) => largest(b) - largest(a));
  }

  private redraw(): void {
    const width = Math.floor(this.drawing.clientWidth);
    this.sort.setAttribute("aria-pressed", String(this.order.value === "size"));
    if (width < 40) {
      return;
    }
    const hadFocus = this.drawing.contains(document.activeElement);
    this.drawing.replaceChildren(this.draw(width, themeOf(this.element), true));
    if (hadFocus) {
      this.focus(this.focused);
    }
  }

  private key(event: KeyboardEvent): void {
    const count = this.drawing.querySelectorAll("[data-bar]").length;
    const to: Record<string, number> = { ArrowDown: this.focused + 1, ArrowRight: this.focused + 1, ArrowUp: this.focused - 1, ArrowLeft: this.focused - 1, Home: 0, End: count - 1 };
    const next = to[event.key];
    if (next !== undefined && count > 0) {
      event.preventDefault();
      event.stopPropagation();
      this.focus(Math.min(Math.max(next, 0), count - 1));
    }
  }

  private focus(k: number): void {
    const all = this.drawing.querySelectorAll<SVGGElement>("[data-bar]");
    all.forEach((one, n) => one.setAttribute("tabindex", n === k ? "0" : "-1"));
    this.focused = k;
    all[k]?.focus();
  }

  private get unit(): string {
    return /\[([^\]]*)\]$/.exec(this.bars.yTitle)?.[1] ?? "";
  }

  /** Number, error and unit of a bar. */
  private printed({ value, error }: Bar): string {
    return formatNumber(value, 4) + (Number.isFinite(value) && error !== undefined && Number.isFinite(error) ? ` ± ${formatNumber(error, 2)}` : "");
  }

  /** Ends of the axis: zero, and all numbers with their errors. */
  private limits(): Limits {
    let [low, high] = [0, 0];
    for (const { value, error } of this.bars.groups.flatMap((group) => group.bars)) {
      if (Number.isFinite(value)) {
        const by = error !== undefined && Number.isFinite(error) ? error : 0;
        low = Math.min(low, value - by);
        high = Math.max(high, value + by);
      }
    }
    return low === high ? [0, 1] : [low, high];
  }

  private draw(width: number, theme: Theme, isInteractive: boolean): SVGSVGElement {
    const groups = this.ordered();
    const kinds = [...new Set(groups.flatMap((group) => group.bars.map((bar) => bar.label)))];
    // A group of one bar needs no heading of its own.
    const isSingle = groups.every((group) => group.bars.length === 1);
    const count = groups.reduce((sum, group) => sum + group.bars.length, 0);
    const heading = isSingle ? 0 : 22;
    const gap = isSingle ? 0 : 6;
    const fixed = 52 + groups.length * (heading + gap);
    const thickness = this.height === undefined ? 26 : Math.min(Math.max((this.height - fixed) / Math.max(count, 1), 18), 44);
    const name = (group: BarGroup, bar: Bar) => (isSingle ? group.label || bar.label : bar.label);
    const names = groups.flatMap((group) => group.bars.map((bar) => name(group, bar)));
    // Names of bars are at their left, or above them where the page is too narrow for that.
    const needed = Math.max(...names.map((text) => text.length * 7.4), 20) + 10;
    const isAbove = needed > width * 0.38;
    const labelWidth = isAbove ? 0 : needed;
    const wordy = Math.floor((isAbove ? width : labelWidth) / 7.4);
    const above = isAbove ? 15 : 0;
    const pitch = thickness + above;
    const limits = this.limits();
    const printed = groups.flatMap((group) => group.bars.map((bar) => this.printed(bar).length * 6.6 + 12));
    const hasNegative = limits[0] < 0;
    // Numbers are printed at the outer end of the bars: they need a margin there.
    const margin = Math.min(Math.max(...printed, 20), width * 0.34);
    const left = labelWidth + (hasNegative ? margin * 0.9 : 4);
    const wide = Math.max(width - left - margin, 30);
    const px = (value: number) => left + fraction(value, limits, false) * wide;
    const rows: Row[] = [];
    const headings: { readonly label: string; readonly y: number }[] = [];
    let y = 6;
    for (const group of groups) {
      if (!isSingle) {
        headings.push({ label: group.label, y: y + 15 });
        y += heading;
      }
      for (const bar of group.bars) {
        rows.push({ group, bar, y: y + above + thickness / 2, kind: isSingle ? 0 : kinds.indexOf(bar.label) });
        y += pitch;
      }
      y += gap;
    }
    const bottom = y + 2;
    const ticks = linearTicks(limits, Math.max(Math.floor(wide / 64), 2));
    const labels = tickLabels(ticks);
    const text = (x: number, at: number, content: string, anchor = "start", more = {}) => svg("text", { x: fix(x), y: fix(at), "text-anchor": anchor, fill: theme.ink, ...more }, content);
    const id = uniqueId("bars");
    const thick = Math.min(thickness * 0.68, 26);
    return svg(
      "svg",
      {
        xmlns: "http://www.w3.org/2000/svg", width, height: bottom + 44, viewBox: `0 0 ${width} ${bottom + 44}`, "font-size": 12,
        "font-family": isInteractive ? theme.font : "sans-serif", role: isInteractive ? "group" : "img", "aria-labelledby": id,
      },
      svg("title", { id }, this.label),
      isInteractive ? null : svg("rect", { width, height: bottom + 44, fill: theme.paper }),
      svg("path", { d: ticks.map((x) => `M${fix(px(x))},4V${bottom}`).join(""), stroke: theme.line, "stroke-width": 0.5 }),
      ...ticks.map((x, k) => text(px(x), bottom + 16, labels[k], "middle", { "font-size": 11 })),
      text(left + wide / 2, bottom + 36, this.bars.yTitle, "middle"),
      ...headings.map((one) => text(2, one.y, one.label, "start", { "font-weight": 600 })),
      ...rows.map(({ group, bar, y: at, kind }, k) => {
        const isFinite = Number.isFinite(bar.value);
        const value = isFinite ? bar.value : 0;
        const [from, to] = [px(Math.min(value, 0)), px(Math.max(value, 0))];
        const colour = theme.series[kind % theme.series.length];
        const by = isFinite && bar.error !== undefined && Number.isFinite(bar.error) ? bar.error : 0;
        const [a, b] = [px(value - by), px(value + by)];
        const full = name(group, bar);
        const short = full.length > wordy ? `${full.slice(0, Math.max(wordy - 1, 1))}…` : full;
        const sentence = `${isSingle || group.label === "" ? full : `${group.label}, ${full}`}: ${this.printed(bar)}${this.unit ? ` ${this.unit}` : ""}`;
        return svg(
          "g",
          isInteractive ? { "data-bar": k, class: "bar", tabindex: k === Math.min(this.focused, rows.length - 1) ? 0 : -1, role: "img", "aria-label": sentence, focus: () => (this.focused = k) } : {},
          svg("title", {}, sentence),
          isInteractive ? svg("rect", { class: "bar-back", x: 1, y: fix(at - above - thickness / 2 + 1), width: width - 2, height: fix(pitch - 2), rx: 3, fill: "transparent" }) : null,
          isAbove ? text(4, at - thickness / 2 - 2, short) : text(labelWidth - 6, at + 4, short, "end"),
          svg("rect", { x: fix(from), y: fix(at - thick / 2), width: fix(Math.max(to - from, 0)), height: fix(thick), fill: colour }),
          by > 0 ? svg("path", { d: `M${fix(a)},${fix(at)}H${fix(b)}M${fix(a)},${fix(at - 4)}v8M${fix(b)},${fix(at - 4)}v8`, stroke: theme.ink, "stroke-width": 1.2, fill: "none" }) : null,
          value < 0 ? text(a - 5, at + 4, this.printed(bar), "end") : text(b + 5, at + 4, this.printed(bar)),
        );
      }),
      svg("path", { d: `M${fix(px(0))},4V${bottom}`, stroke: theme.ink }),
    );
  }

  table(): DataTable {
    const groups = this.ordered();
    const hasErrors = groups.some((group) => group.bars.some((bar) => bar.error !== undefined));
    return {
      caption: this.label,
      columns: ["group", "bar", this.bars.yTitle, ...(hasErrors ? [`standard error of ${this.bars.yTitle}`] : [])],
      rows: groups.flatMap((group) => group.bars.map((bar) => [group.label, bar.label, bar.value, ...(hasErrors ? [bar.error ?? ""] : [])])),
    };
  }

  svg(): string {
    return new XMLSerializer().serializeToString(this.draw(720, PRINT, false));
  }
}
