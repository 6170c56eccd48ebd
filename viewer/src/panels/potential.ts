/** The projected potential of a specimen, slice by slice or summed over slices. */

import { checkbox, disposer, player, slider } from "../controls";
import { type ArrayVariable, type Dimension, formatNumber, type Numbers } from "../data";
import { h } from "../dom";
import { columnOf, sumOf } from "../microscopy/scan";
import type { PanelContext, PanelFactory } from "../panel";
import { Card } from "../view";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import { latest, ofDimensions } from "./electron-parts";

/** Offers the potential of a file: `potential` (x, y, slice). */
export const potentialPanels: PanelFactory = (file) => {
  const variable = ofDimensions(file.array("potential"), ["x", "y", "slice"]);
  if (variable === undefined || variable.complex || variable.shape.length !== 3) {
    return [];
  }
  return [{ id: "potential", title: "Potential by slice", group: "Electrons", order: 50, open: (host, context) => openPotential(variable, host, context) }];
};

async function openPotential(variable: ArrayVariable, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const [x, y, slices] = variable.dimensions as [Dimension, Dimension, Dimension];
  const count = slices.count;
  const accepts = (k: number) => Number.isInteger(k) && k >= 0 && k < count;
  const summed = scope.cell("sum", false);
  const slice = scope.cell("slice", 0, accepts);
  const first = scope.cell("first", 0, accepts);
  const last = scope.cell("last", count - 1, accepts);
  const depth = (k: number) => formatNumber(slices.position(k), 4);
  const label = (k: number) => (slices.measured ? `${k}: ${depth(k)}–${formatNumber(slices.position(k) + slices.step, 4)} ${slices.unit}` : String(k));
  const view = new ImageView({ scope: scope.child("image"), label: "Projected potential" });
  const curve = new CurveView({ scope: scope.child("depth"), label: "Potential by depth" });
  const one = player("Slice", slice, { count, label });
  const ranged = h("span", { class: "controls" }, slider("From", first, { count, label }), slider("to", last, { count, label }), h("button", { type: "button", click: () => { first.set(0, { live: true }); last.set(count - 1); } }, "All slices"));
  const card = new Card("Projected potential", view, { fileName: "potential", controls: [checkbox("sum over slices", summed), one, ranged], note: variable.array.reduced });
  const depthCard = new Card("Potential by depth", curve, { fileName: "potential-by-depth", note: "Mean over the plane, and at the position under the cursor." });
  host.append(h("div", { class: "cards" }, card.element, depthCard.element));
  ends.add(() => card.destroy(), () => depthCard.destroy());

  let values: Numbers | undefined;
  let means = new Float64Array(0);
  let pointed: readonly [number, number] | undefined;
  const chosen = (): readonly [number, number] => (summed.value ? [Math.min(first.value, last.value), Math.max(first.value, last.value) + 1] : [slice.value, slice.value + 1]);
  const draw = () => {
    one.hidden = summed.value;
    ranged.hidden = !summed.value;
    if (values === undefined) {
      return;
    }
    const [from, to] = chosen();
    const image = summed.value ? sumOf(values, x.count, y.count, count, from, to) : columnOf(values, x.count, y.count, count, from);
    view.show({ values: image, nx: x.count, ny: y.count, x, y, quantity: "projected potential", unit: variable.unit, signed: false });
    const end = slices.measured ? `${depth(from)}–${formatNumber(slices.position(to - 1) + slices.step, 4)} ${slices.unit}` : "";
    card.title = summed.value ? `Projected potential, slices ${from}–${to - 1}${end ? `, depth ${end}` : ""}` : `Projected potential, slice ${from} of ${count}${end ? `, depth ${end}` : ""}`;
    const middle = (k: number) => slices.position(k) + (slices.measured ? slices.step / 2 : 0);
    curve.setMarkers(summed.value ? [{ x: middle(from), label: "from" }, { x: middle(to - 1), label: "to" }] : [{ x: middle(from), label: "slice" }]);
    card.changed();
  };
  const drawDepth = () => {
    if (values === undefined) {
      return;
    }
    const place = Float64Array.from({ length: count }, (_, k) => slices.position(k) + (slices.measured ? slices.step / 2 : 0));
    const series = [{ label: "mean of the plane", values: means, style: "step" as const }];
    if (pointed !== undefined) {
      const at = (pointed[0] * y.count + pointed[1]) * count;
      series.push({ label: `at ${formatNumber(x.position(pointed[0]), 4)}, ${formatNumber(y.position(pointed[1]), 4)} ${x.unit}`, values: Float64Array.from(values.subarray(at, at + count)), style: "step" });
    }
    curve.show({ x: place, xTitle: slices.measured ? `depth [${slices.unit}]` : "slice", yTitle: `potential [${variable.unit || "V Å"}]`, series });
    depthCard.changed();
  };
  view.onCursor((cursor) => {
    pointed = cursor === null ? undefined : [cursor.i, cursor.j];
    drawDepth();
  });
  const load = latest(context, async () => {
    values = (await variable.all()).re;
    means = new Float64Array(count);
    for (let n = 0; n < values.length; n++) {
      means[n % count] += values[n] / (x.count * y.count);
    }
    draw();
    drawDepth();
  });
  ends.add(...[slice, first, last].map((cell) => cell.subscribe(draw)), summed.subscribe(draw));
  draw();
  load();
  return ends.end;
}
