/** Profiles: numbers of an image along a line, between samples by bilinear interpolation. */

import type { Numbers } from "../data";
import { h, svg, uniqueId } from "../dom";
import { download, csv, type DataTable } from "../view";
import { drawAxes, niceTicks, scaleTicks, title, type Box } from "./axes";
import type { ScaleName } from "./image.api";
import { automaticLimits, Scale, statistics } from "./scale";

/** A profile with the positions of its points. */
export interface Profile {
  /** Distance from the first end, in `unit`. */
  readonly length: Float64Array;
  readonly x: Float64Array;
  readonly y: Float64Array;
  readonly values: Float64Array;
  readonly unit: string;
  readonly quantity: string;
  readonly valueUnit: string;
}

/** The number at fractional sample numbers, by bilinear interpolation; NaN outside the image, which ends half a sample beyond its outermost samples. */
export function interpolate(values: Numbers, nx: number, ny: number, i: number, j: number): number {
  if (!(i >= -0.5 && j >= -0.5 && i <= nx - 0.5 && j <= ny - 0.5)) {
    return NaN;
  }
  const clamp = (at: number, count: number) => Math.min(Math.max(at, 0), count - 1);
  const [a, b] = [clamp(i, nx), clamp(j, ny)];
  const [i0, j0] = [Math.min(Math.floor(a), Math.max(nx - 2, 0)), Math.min(Math.floor(b), Math.max(ny - 2, 0))];
  const [u, v] = [a - i0, b - j0];
  // A neighbour without weight does not count, so that its NaN does not spread.
  const mix = (p: number, q: number, t: number) => (t === 0 ? p : t === 1 ? q : p + (q - p) * t);
  const row = (j: number) => mix(values[j * nx + i0], values[j * nx + Math.min(i0 + 1, nx - 1)], u);
  return v === 0 ? row(j0) : v === 1 ? row(Math.min(j0 + 1, ny - 1)) : mix(row(j0), row(Math.min(j0 + 1, ny - 1)), v);
}

/** Points along a line between two positions in samples, about one a sample, at least 2 and at most 2000; t runs from 0 to 1. */
export function linePoints(i0: number, j0: number, i1: number, j1: number): { readonly t: number; readonly i: number; readonly j: number }[] {
  const count = Math.min(Math.max(Math.ceil(Math.hypot(i1 - i0, j1 - j0) - 1e-9) + 1, 2), 2000);
  return Array.from({ length: count }, (_, k) => {
    const t = k / (count - 1);
    return { t, i: i0 + (i1 - i0) * t, j: j0 + (j1 - j0) * t };
  });
}

/** The curve of a profile with axes, in a box; numbers on the scale of the image. */
export function drawProfile(box: Box, profile: Profile, name: ScaleName): SVGGElement {
  const stats = statistics(profile.values);
  const [lo, hi] = automaticLimits(stats, name, stats.min < 0 && name !== "linear");
  const scale = new Scale(name, lo, hi);
  const longest = profile.length[profile.length.length - 1];
  const px = (length: number) => box.x + (longest > 0 ? (length / longest) * box.w : 0);
  const py = (fraction: number) => box.y + box.h * (1 - fraction);
  const along = niceTicks(0, longest, Math.max(2, Math.floor(box.w / 70)));
  const across = scaleTicks(scale, 22 / box.h);
  const group = drawAxes(
    box,
    {
      ticks: along.values.map((value) => ({ where: value, label: (value / 10 ** along.exponent).toFixed(along.digits) })),
      title: title("length", profile.unit, along.exponent),
    },
    { ticks: across.ticks.map(({ at, label }) => ({ where: at, label })), title: title(profile.quantity, profile.valueUnit, across.exponent) },
    px,
    py,
    Math.min(box.x, 52),
  );
  let [d, broken] = ["", true];
  profile.values.forEach((value, k) => {
    const fraction = scale.fraction(value);
    if (Number.isFinite(fraction)) {
      d += `${broken ? "M" : "L"}${px(profile.length[k]).toFixed(1)} ${py(Math.min(Math.max(fraction, 0), 1)).toFixed(1)}`;
    }
    broken = !Number.isFinite(fraction);
  });
  group.append(svg("path", { class: "iv-curve", d, fill: "none", stroke: "currentColor", "stroke-width": 1.75, "stroke-linejoin": "round" }));
  return group;
}

/** The numbers of a profile as a table. */
export function profileTable({ length, x, y, values, unit, quantity, valueUnit }: Profile, xTitle: string, yTitle: string): DataTable {
  return {
    caption: `Profile of ${quantity}`,
    columns: [title("length", unit), xTitle, yTitle, title(quantity, valueUnit)],
    rows: Array.from(values, (value, k) => [length[k], x[k], y[k], value]),
  };
}

/** A profile below its image, with a button that exports its numbers. */
export class ProfilePlot {
  readonly element: HTMLElement;
  private readonly picture: SVGSVGElement;
  private table: DataTable | undefined;

  constructor(label: string, remove: () => void) {
    const id = uniqueId("profile");
    this.picture = svg("svg", { role: "img", "aria-labelledby": id });
    this.element = h(
      "figure",
      { class: "iv-profile", hidden: true },
      this.picture,
      h(
        "figcaption",
        {},
        h("span", { id }, `Profile of ${label}`),
        h("button", { type: "button", click: () => this.table && download("profile.csv", new Blob([csv(this.table)], { type: "text/csv" })) }, "CSV of the profile"),
        h("button", { type: "button", click: remove }, "Remove"),
      ),
    );
  }

  /** Draws a profile so many pixels wide; none hides the plot. */
  show(profile: Profile | undefined, width: number, box: Box, scale: ScaleName, titles: readonly [string, string]): void {
    this.element.hidden = profile === undefined;
    this.table = profile && profileTable(profile, ...titles);
    if (profile) {
      this.picture.setAttribute("width", String(width));
      this.picture.setAttribute("height", String(box.y + box.h + 40));
      this.picture.replaceChildren(drawProfile(box, profile, scale));
    }
  }
}
