/** Centres of mass of a scan's patterns: components, size, direction, divergence, and the integrated phase where the file has it. */

import { checkbox, disposer, select } from "../controls";
import { type ArrayVariable, DataFile, type Dimension, type Numbers } from "../data";
import { h } from "../dom";
import { beamOf } from "../microscopy/electrons";
import { curl, direction, divergence, magnitude } from "../microscopy/fields";
import { columnOf } from "../microscopy/scan";
import type { PanelContext, PanelFactory } from "../panel";
import { transposed } from "../planes";
import { Card } from "../view";
import { ImageView } from "../views/image";
import type { Shape } from "../views/image.api";
import { blockAt, latest, leading, ofDimensions, Readout, reading, SeriesChoice, total } from "./electron-parts";

/** Offers the centres of mass of a file: `centre_of_mass` (…, x, y, axis). */
export const centrePanels: PanelFactory = (file) => {
  const variable = ofDimensions(file.array("centre_of_mass"), ["x", "y", "axis"]);
  if (variable === undefined || variable.complex || variable.shape[variable.shape.length - 1] !== 2) {
    return [];
  }
  const open = (host: HTMLElement, context: PanelContext) => openCentre(file, variable, host, context);
  return [{ id: "centre-of-mass", title: "Centre of mass", group: "Electrons", order: 30, open }];
};

const QUANTITIES = ["x", "y", "magnitude", "direction", "divergence", "curl"] as const;

/** Most arrows along a side. */
const ARROWS = 24;

async function openCentre(file: DataFile, variable: ArrayVariable, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const beam = await beamOf(file);
  const idpc = ofDimensions(file.array("idpc"), ["x", "y"]);
  const error = ofDimensions(file.array("standard_error_centre_of_mass"), ["x", "y", "axis"]);
  const series = new SeriesChoice(scope, leading([[variable, 3], [idpc, 2]]));
  const [x, y] = variable.dimensions.slice(-3, -1) as [Dimension, Dimension];
  const own = variable.unit || "1/Å";
  const names: readonly string[] = idpc ? [...QUANTITIES, "idpc"] : QUANTITIES;
  const labels: Record<string, string> = { x: "x component", y: "y component", magnitude: "magnitude", direction: "direction", divergence: "divergence", curl: "curl", idpc: "integrated phase (idpc)" };
  const choices = names.map((value) => ({ value, label: labels[value] }));
  const unit = scope.cell("unit", own, (name) => name === own || name === "mrad");
  const levelled = scope.cell("subtract-mean", false);
  const arrows = scope.cell("arrows", true);
  const sides = [scope.cell("left", "magnitude", (name) => names.includes(name)), scope.cell("right", "direction", (name) => names.includes(name))];
  const left = new ImageView({ scope: scope.child("image"), label: "Centre of mass" });
  const right = new ImageView({ scope: scope.child("second"), label: "Centre of mass, second image", zoomWith: left });
  const views = [left, right];
  const readout = new Readout();
  const controls = [
    ...series.controls(),
    ...(own === "1/Å" && beam.perMrad !== undefined ? [select("Unit", unit, [{ value: own, label: own }, { value: "mrad", label: "mrad" }])] : []),
    checkbox("subtract the mean", levelled),
    checkbox("arrows", arrows),
  ];
  const cards = views.map((view, k) => new Card("", view, { fileName: k === 0 ? "centre-of-mass" : "centre-of-mass-second", controls: [select("Show", sides[k], choices), ...(k === 0 ? controls : [])] }));
  left.element.after(readout.element);
  host.append(h("div", { class: "cards" }, ...cards.map((card) => card.element)));
  ends.add(...cards.map((card) => () => card.destroy()));

  let raw: readonly [Numbers, Numbers] | undefined;
  let errors: readonly [Numbers, Numbers] | undefined;
  let phase: Numbers | undefined;
  const factor = () => (unit.value === "mrad" && own === "1/Å" ? 1 / (beam.perMrad ?? 1) : 1);
  const field = (): readonly [Float64Array, Float64Array] => {
    const level = (values: Numbers) => {
      const mean = levelled.value ? total(values) / values.length : 0;
      return Float64Array.from(values, (one) => (one - mean) * factor());
    };
    const [a, b] = raw as readonly [Numbers, Numbers];
    return [level(a), level(b)];
  };
  const show = (k: number) => {
    if (raw === undefined) {
      return;
    }
    const name = sides[k].value;
    const [u, v] = field();
    const steps: readonly [number, number] = [x.step, y.step];
    const make: Record<string, () => Numbers> = {
      x: () => u,
      y: () => v,
      magnitude: () => magnitude(u, v),
      direction: () => direction(u, v),
      divergence: () => divergence(u, v, x.count, y.count, steps),
      curl: () => curl(u, v, x.count, y.count, steps),
      idpc: () => phase ?? u,
    };
    const isDerivative = name === "divergence" || name === "curl";
    const units = name === "direction" ? "rad" : name === "idpc" ? (idpc?.unit ?? "") : isDerivative ? (unit.value === "1/Å" ? "1/Å²" : `${unit.value}/${x.unit || "sample"}`) : unit.value;
    const signed = name === "direction" ? {} : { signed: name !== "magnitude" && name !== "idpc" };
    views[k].show({ values: make[name](), nx: x.count, ny: y.count, x, y, quantity: labels[name], unit: units, cyclic: name === "direction", ...signed });
    views[k].setShapes(arrows.value && k === 0 ? [fieldArrows(u, v)] : []);
    cards[k].title = `Centre of mass: ${labels[name]}`;
    cards[k].changed();
  };
  const fieldArrows = (u: Float64Array, v: Float64Array): Shape => {
    const stride = Math.max(Math.ceil(Math.max(x.count, y.count) / ARROWS), 1);
    const longest = Math.max(...magnitude(u, v), 1e-300);
    const scale = (stride * Math.min(Math.abs(x.step), Math.abs(y.step)) * 0.95) / longest;
    const points = [];
    for (let j = Math.floor(stride / 2); j < y.count; j += stride) {
      for (let i = Math.floor(stride / 2); i < x.count; i += stride) {
        const n = j * x.count + i;
        points.push({ x: x.position(i), y: y.position(j), dx: u[n] * scale, dy: v[n] * scale });
      }
    }
    return { kind: "arrows", id: "field", points, label: "centre of mass" };
  };
  const draw = () => {
    show(0);
    show(1);
  };
  const load = latest(context, async () => {
    const pair = async (one: ArrayVariable) => {
      const { re } = await blockAt(one, series.of(one, 3));
      return [columnOf(re, x.count, y.count, 2, 0), columnOf(re, x.count, y.count, 2, 1)] as const;
    };
    [raw, errors, phase] = await Promise.all([
      pair(variable),
      error && pair(error),
      idpc && blockAt(idpc, series.of(idpc, 2)).then(({ re }) => transposed(re, x.count, y.count)),
    ]);
    draw();
  });
  const point = (cursor: { readonly i: number; readonly j: number } | null) => {
    if (cursor === null || raw === undefined) {
      readout.set("");
      return;
    }
    const n = cursor.j * x.count + cursor.i;
    const [u, v] = field();
    const sizes = [u[n], v[n]].map((value, k) => `${"xy"[k]} ${reading(value, unit.value, errors && errors[k][n] * factor())}`);
    const angle = (Math.atan2(v[n], u[n]) * 180) / Math.PI;
    readout.set(`${x.label(cursor.i)}, ${y.label(cursor.j)}: ${sizes.join(", ")}, direction ${reading(angle, "°")}`);
  };
  views.forEach((view) => view.onCursor(point));
  ends.add(...sides.map((cell, k) => cell.subscribe(() => show(k))), ...[unit, levelled, arrows].map((cell) => cell.subscribe(draw)), series.subscribe(load));
  load();
  return ends.end;
}
