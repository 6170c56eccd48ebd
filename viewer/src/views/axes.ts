/** Axes of an image: positions of samples, ticks and their labels, the colour bar, the scale bar. */

import { formatNumber, words, type Dimension } from "../data";
import { svg } from "../dom";
import type { Scale } from "./scale";

/** Positions along one dimension and back: sample numbers may be fractions, and lie outside. */
export class Axis {
  private readonly kind: "uniform" | "values" | "index";
  private readonly offset: number;
  readonly step: number;
  private readonly values: readonly number[];

  constructor(readonly dimension: Dimension) {
    const at = dimension.entry.positions;
    [this.kind, this.offset, this.step, this.values] = ["index", 0, 1, []];
    if (at.kind === "uniform" && Number.isFinite(at.offset) && Number.isFinite(at.step) && at.step !== 0) {
      [this.kind, this.offset, this.step] = ["uniform", at.offset, at.step];
    } else if (at.kind === "values" && at.values.length > 1) {
      const up = at.values[1] > at.values[0];
      if (at.values.every((v, k) => Number.isFinite(v) && (k === 0 || (up ? v > at.values[k - 1] : v < at.values[k - 1])))) {
        [this.kind, this.step, this.values] = ["values", dimension.step, at.values];
      }
    }
  }

  get count(): number {
    return this.dimension.count;
  }

  /** Unit of positions; undefined where samples are only numbered. */
  get unit(): string | undefined {
    return this.kind === "index" ? undefined : this.dimension.unit;
  }

  /** Position of a sample. */
  position(index: number): number {
    if (this.kind !== "values") {
      return this.offset + this.step * index;
    }
    const k = Math.min(Math.max(Math.floor(index), 0), this.values.length - 2);
    return this.values[k] + (this.values[k + 1] - this.values[k]) * (index - k);
  }

  /** Sample number, with its fraction, of a position. */
  index(position: number): number {
    if (this.kind !== "values") {
      return (position - this.offset) / this.step;
    }
    let [from, to] = [0, this.values.length - 1];
    const up = this.values[1] > this.values[0];
    while (to - from > 1) {
      const middle = (from + to) >> 1;
      if (this.values[middle] <= position === up) {
        from = middle;
      } else {
        to = middle;
      }
    }
    return from + (position - this.values[from]) / (this.values[to] - this.values[from]);
  }

  /** Space that labels and title need at the left of an image, pixels. */
  get margin(): number {
    const at = this.dimension.entry.positions;
    return at.kind === "labels" ? Math.max(52, 30 + 6.4 * Math.min(LONGEST, Math.max(...at.labels.map(({ length }) => length)))) : 52;
  }

  /** Least distance of labels next to each other, pixels. */
  get apart(): number {
    return this.dimension.entry.positions.kind === "labels" ? 84 : 48;
  }

  /** A position in words. */
  label(index: number): string {
    return this.kind === "index" ? this.dimension.label(Math.round(index)) : `${words(this.dimension.name)} ${quantity(this.position(index), this.dimension.unit)}`;
  }

  /** Name and unit of positions. */
  get title(): string {
    return title(words(this.dimension.name), this.unit ?? "");
  }

  /** Ticks between two sample numbers, at most so many; `where` is a sample number. */
  ticks(from: number, to: number, most: number): AxisTicks {
    const { entry } = this.dimension;
    if (this.kind !== "uniform") {
      const labels = entry.positions.kind === "labels" ? entry.positions.labels : undefined;
      const [first, last] = [Math.max(0, Math.ceil(from)), Math.min(this.count - 1, Math.floor(to))];
      const every = Math.max(1, niceStep((last - first + 1) / most));
      const ticks = [];
      for (let k = Math.ceil(first / every) * every; k <= last; k += every) {
        ticks.push({ where: k, label: labels ? shorten(labels[k]) : formatNumber(this.position(k), 4) });
      }
      return { ticks, title: this.title };
    }
    const [a, b] = [this.position(from), this.position(to)];
    const { values, exponent, digits } = niceTicks(Math.min(a, b), Math.max(a, b), most);
    return {
      ticks: values.map((value) => ({ where: this.index(value), label: fixed(value / 10 ** exponent, digits) })),
      title: title(words(this.dimension.name), this.dimension.unit, exponent),
    };
  }
}

/** Longest label of a tick, characters. */
const LONGEST = 12;

function shorten(label: string): string {
  return label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label;
}

export interface AxisTicks {
  readonly ticks: readonly { readonly where: number; readonly label: string }[];
  readonly title: string;
}

/** A unit with raised powers: "rad2" becomes "rad²". */
export function printedUnit(unit: string): string {
  return unit.replace(/(?<=\p{L})-?\d+(?![\p{L}\d.])/gu, (power) => raised(Number(power)));
}

/** A number with its unit. */
export function quantity(value: number, unit: string, digits = 5): string {
  return unit ? `${formatNumber(value, digits)} ${printedUnit(unit)}` : formatNumber(value, digits);
}

/** A name with a unit in brackets, and the power of ten that labels leave out. */
export function title(name: string, unit: string, exponent = 0): string {
  const power = exponent === 0 ? "" : `10${raised(exponent)}`;
  const inside = [power, printedUnit(unit)].filter(Boolean).join(" ");
  return inside ? `${name} [${inside}]` : name;
}

/** An exponent in raised digits. */
export function raised(exponent: number): string {
  return [...String(exponent)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)])).join("");
}

/** A digit times a power of ten, such as 10⁻⁶ or 3·10⁵; in full where that is short. */
function scientific(value: number): string {
  const exponent = Math.floor(Math.log10(Math.abs(value)) + 1e-9);
  if (value === 0 || (exponent >= -2 && exponent < 5)) {
    return formatNumber(value, 3);
  }
  const digit = Math.round(Math.abs(value) / 10 ** exponent);
  return `${value < 0 ? "−" : ""}${digit === 1 ? "" : `${digit}·`}10${raised(exponent)}`;
}

function fixed(value: number, digits: number): string {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** The smallest of 1, 2, 5 times a power of ten that is not below a number. */
export function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 5, 10].find((one) => one * power >= least * (1 - 1e-9)) ?? 10;
  return factor * power;
}

/** Round numbers in a range, at most so many; labels are value / 10^exponent with so many decimals. */
export function niceTicks(lo: number, hi: number, most: number): { readonly values: number[]; readonly exponent: number; readonly digits: number } {
  const size = Math.max(Math.abs(lo), Math.abs(hi));
  if (!(hi > lo) || !Number.isFinite(hi - lo)) {
    return { values: Number.isFinite(lo) ? [lo] : [], exponent: 0, digits: 3 };
  }
  const step = niceStep((hi - lo) / Math.max(most, 1));
  // Numbers at the end of what there is have no round parts.
  if (!(step > 1e-307)) {
    return { values: [lo], exponent: 0, digits: 3 };
  }
  const first = Math.ceil(lo / step - 1e-9);
  const count = Math.min(Math.floor(hi / step + 1e-9) - first, 100);
  const values = Array.from({ length: count + 1 }, (_, k) => (first + k) * step);
  const magnitude = Math.floor(Math.log10(size));
  const exponent = magnitude >= 5 || magnitude < -3 ? magnitude : 0;
  return { values, exponent, digits: Math.min(Math.max(0, exponent - Math.floor(Math.log10(step) + 1e-9)), 12) };
}

/** Ticks of a scale by fraction (0 … 1), not closer than `apart`, and the power of ten that labels leave out. */
export function scaleTicks(scale: Scale, apart: number): { readonly ticks: readonly { readonly at: number; readonly label: string }[]; readonly exponent: number } {
  const { lo, hi } = scale;
  const linear = niceTicks(lo, hi, Math.max(1, Math.floor(1 / apart)));
  if (scale.law !== "linear") {
    const size = Math.max(Math.abs(lo), Math.abs(hi));
    const top = Math.floor(Math.log10(size));
    const bottom = Math.floor(Math.log10(scale.law === "log" ? lo : scale.law === "symlog" ? scale.core : size / 1000));
    const candidates = [0];
    for (const factor of [1, 5, 2, 3, 7]) {
      for (let power = top; power >= bottom && power > top - 40; power--) {
        const value = Number(`${factor}e${power}`);
        candidates.push(value, -value);
      }
    }
    const chosen: { at: number; value: number }[] = [];
    for (const value of candidates.filter((one) => one >= lo * (1 - 1e-12) - 1e-300 && one <= hi * (1 + 1e-12))) {
      const at = scale.fraction(value);
      if (Number.isFinite(at) && chosen.every((other) => Math.abs(other.at - at) >= apart)) {
        chosen.push({ at, value });
      }
    }
    if (chosen.length > 2) {
      return { ticks: chosen.map(({ at, value }) => ({ at, label: scientific(value) })), exponent: 0 };
    }
  }
  const { values, exponent, digits } = linear;
  const ticks = values.map((value) => ({ at: scale.fraction(value), label: fixed(value / 10 ** exponent, digits) }));
  return { ticks: ticks.filter(({ at }) => Number.isFinite(at)), exponent };
}

/** Units of lengths, angles and frequencies that take a scale bar, with what long or short bars are given in: factor and unit. */
const BARS: Readonly<Record<string, readonly (readonly [number, string])[]>> = {
  "Å": [[1, "Å"]], nm: [[1, "nm"]], "µm": [[1, "µm"]], mm: [[1, "mm"]], km: [[1, "km"]],
  m: [[1, "m"], [1e3, "mm"], [1e6, "µm"], [1e9, "nm"]],
  rad: [[1, "rad"], [180 * 3600 / Math.PI, "arcsec"], [180 * 3600e3 / Math.PI, "mas"]],
  mrad: [[1, "mrad"]], "µrad": [[1, "µrad"]], deg: [[1, "°"]], arcmin: [[1, "arcmin"]],
  arcsec: [[1, "arcsec"], [1e3, "mas"]], mas: [[1, "mas"]],
  "1/Å": [[1, "1/Å"]], "1/nm": [[1, "1/nm"]], "1/m": [[1, "1/m"]], "1/rad": [[1, "1/rad"]], "rad/m": [[1, "rad/m"]],
};

/** A round length for a scale bar of at most `longest`, in the dimension's unit, and its label; undefined where the unit takes none. */
export function scaleBar(longest: number, unit: string): { readonly length: number; readonly label: string } | undefined {
  const units = BARS[unit];
  if (!units || !(longest > 0) || !Number.isFinite(longest)) {
    return undefined;
  }
  const [factor, name] = units.find(([one]) => longest * one >= (unit === "rad" && one === 1 ? 0.02 : 0.1)) ?? units[units.length - 1];
  const round = niceStep((longest * factor) / 2.5 / (1 + 1e-9));
  return { length: round / factor, label: `${formatNumber(round)} ${name}` };
}

/** A rectangle of a drawing, pixels; y downwards. */
export interface Box {
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
}

/** Width of a text of 11 pixels, about: raised digits are narrow. */
export function textWidth(content: string): number {
  return [...content].reduce((sum, c) => sum + (/[⁻⁰¹²³⁴-⁹·.,|il ]/u.test(c) ? 4.2 : 6.4), 0);
}

/** A title that is not wider than so many pixels: the name is cut, not the unit. */
export function fitting(content: string, pixels: number): string {
  if (textWidth(content) <= pixels) {
    return content;
  }
  const [, name, unit] = /^(.*?)( \[[^\]]*\])?$/s.exec(content) as RegExpExecArray;
  const most = Math.max(Math.floor((pixels - textWidth(unit ?? "")) / 6.4) - 1, 3);
  return name.length > most + 1 ? `${name.slice(0, most)}…${unit ?? ""}` : content;
}

const line = (x1: number, y1: number, x2: number, y2: number) => svg("line", { x1, y1, x2, y2, stroke: "currentColor" });
const text = (x: number, y: number, anchor: string, content: string, more: Readonly<Record<string, string | number>> = {}) =>
  svg("text", { x, y, "text-anchor": anchor, fill: "currentColor", ...more }, content);

/** Ticks and titles at the left and lower edges of a box, with so much space for those at the left. */
export function drawAxes(box: Box, horizontal: AxisTicks, vertical: AxisTicks, x: (sample: number) => number, y: (sample: number) => number, margin = 52): SVGGElement {
  const group = svg("g", { "aria-hidden": "true" }, svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h, fill: "none", stroke: "currentColor" }));
  const bottom = box.y + box.h;
  for (const { where, label } of horizontal.ticks) {
    group.append(line(x(where), bottom, x(where), bottom + 4), text(x(where), bottom + 15, "middle", label));
  }
  for (const { where, label } of vertical.ticks) {
    group.append(line(box.x - 4, y(where), box.x, y(where)), text(box.x - 6, y(where) + 4, "end", label));
  }
  const [middle, left] = [box.y + box.h / 2, box.x - margin + 14];
  group.append(
    text(box.x + box.w / 2, bottom + 30, "middle", fitting(horizontal.title, box.w + margin)),
    text(left, middle, "middle", fitting(vertical.title, box.h + 24), { transform: `rotate(-90 ${left} ${middle})` }),
  );
  return group;
}

/** The frame, ticks and title of a colour bar, which rises or, if it is wider than high, runs to the right; its colours are drawn elsewhere. */
export function drawColourBar(box: Box, scale: Scale, name: string, unit: string): SVGGElement {
  const across = box.w > box.h;
  const { ticks, exponent } = scaleTicks(scale, across ? 52 / box.w : 28 / box.h);
  const [right, bottom, heading] = [box.x + box.w, box.y + box.h, fitting(title(name, unit, exponent), across ? box.w : box.h + 24)];
  const group = svg("g", { "aria-hidden": "true" }, svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h, fill: "none", stroke: "currentColor" }));
  for (const { at, label } of ticks) {
    const [x, y] = [box.x + box.w * at, bottom - box.h * at];
    group.append(...(across ? [line(x, bottom, x, bottom + 4), text(x, bottom + 14, "middle", label)] : [line(right, y, right + 4, y), text(right + 6, y + 4, "start", label)]));
  }
  const x = right + Math.min(20 + Math.max(0, ...ticks.map(({ label }) => textWidth(label))), 61);
  const y = box.y + box.h / 2;
  group.append(across ? text(box.x + box.w / 2, box.y - 5, "middle", heading) : text(x, y, "middle", heading, { transform: `rotate(-90 ${x} ${y})` }));
  return group;
}

/** A scale bar at the lower left corner of a box: black with a white halo, to be seen on any colour. */
export function drawScaleBar(box: Box, pixels: number, label: string): SVGGElement {
  const [x, y] = [box.x + 10, box.y + box.h - 10];
  const halo = { stroke: "#fff", "stroke-width": 3, "stroke-linejoin": "round", "paint-order": "stroke" };
  return svg(
    "g",
    { role: "img", "aria-label": `Scale bar: ${label}` },
    svg("rect", { x, y: y - 4, width: pixels, height: 4, fill: "#000", ...halo }),
    svg("text", { x: x + pixels / 2, y: y - 8, "text-anchor": "middle", fill: "#000", ...halo }, label),
  );
}
