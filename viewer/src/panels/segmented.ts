/** Segmented detectors: single sectors, sums, differences, and the differential phase contrast of all. */

import { disposer, range, select } from "../controls";
import { type ArrayVariable, DataFile, type Dimension, type Numbers, words } from "../data";
import { h, svg } from "../dom";
import { combined, direction, dpc, magnitude } from "../microscopy/fields";
import { columnOf } from "../microscopy/scan";
import type { PanelContext, PanelFactory } from "../panel";
import { Card } from "../view";
import { ImageView } from "../views/image";
import { blockAt, latest, leading, ofDimensions, Readout, reading, SeriesChoice } from "./electron-parts";

/** Offers the segmented detectors of a file: arrays (…, x, y, sector). */
export const segmentedPanels: PanelFactory = (file) => {
  const all = file.arrays().filter((one) => !one.complex && !one.name.startsWith("standard_error") && ofDimensions(one, ["x", "y", "sector"]));
  const open = (host: HTMLElement, context: PanelContext) => openSegmented(file, all, host, context);
  return all.length === 0 ? [] : [{ id: "segmented", title: "Segmented detector", group: "Electrons", order: 20, open }];
};

/** Rotations [degrees] of the segmented detectors of a sample file, in their order; 0 where the file gives none. */
export function rotations(system: string): number[] {
  const inline = /\bsegmented\s*=\s*\[([\s\S]*?)\]/.exec(system)?.[1];
  const tables = inline === undefined ? system.split(/^\s*\[\[detector\.segmented\]\]/m).slice(1).map((text) => text.split(/^\s*\[/m)[0]) : (inline.match(/\{[^}]*\}/g) ?? []);
  return tables.map((text) => Number(/\brotation_deg\s*=\s*([-+\d.eE]+)/.exec(text)?.[1] ?? 0));
}

const WEIGHTS = ["0", "+", "−"] as const;
const SHARE = "share of all sectors";

/** A drawing of the sectors whose weights a click or the space bar changes. */
function sectorWheel(count: number, rotation: () => number, weights: () => readonly number[], turn: (k: number) => void): { readonly element: HTMLElement; renew(): void } {
  const element = h("div", { class: "sectors" });
  const point = (r: number, azimuth: number) => `${(r * Math.cos(azimuth)).toFixed(2)},${(-r * Math.sin(azimuth)).toFixed(2)}`;
  const paths = Array.from({ length: count }, (_, k) => {
    const press = (event: Event) => {
      event.preventDefault();
      turn(k);
    };
    return svg("path", {
      tabindex: 0,
      role: "button",
      stroke: "currentColor",
      click: press,
      keydown: (event: KeyboardEvent) => {
        if (event.key === " " || event.key === "Enter") {
          press(event);
        }
      },
    });
  });
  const texts = paths.map(() => svg("text", { "text-anchor": "middle", "dominant-baseline": "central", "font-size": 9, "pointer-events": "none", fill: "currentColor" }));
  element.append(svg("svg", { viewBox: "-42 -42 84 84", width: 120, height: 120, role: "group", "aria-label": "Sectors and their signs" }, ...paths, ...texts));
  const renew = () => {
    paths.forEach((path, k) => {
      const [a, b] = [0, 1].map((end) => rotation() + (2 * Math.PI * (k + end)) / count);
      const wide = 2 * Math.PI > Math.PI * count ? 1 : 0;
      const whole = count === 1 ? `M40,0A40,40 0 1 0 -40,0A40,40 0 1 0 40,0M12,0A12,12 0 1 1 -12,0A12,12 0 1 1 12,0Z` : undefined;
      path.setAttribute("d", whole ?? `M${point(12, a)}L${point(40, a)}A40,40 0 ${wide} 0 ${point(40, b)}L${point(12, b)}A12,12 0 ${wide} 1 ${point(12, a)}Z`);
      const weight = weights()[k];
      path.setAttribute("fill", weight > 0 ? "#3b7dd8" : weight < 0 ? "#d8803b" : "transparent");
      path.setAttribute("fill-opacity", "0.55");
      path.setAttribute("aria-label", `sector ${k}: ${weight > 0 ? "added" : weight < 0 ? "subtracted" : "left out"}`);
      const [x, y] = point(27, (a + b) / 2).split(",");
      texts[k].setAttribute("x", x);
      texts[k].setAttribute("y", y);
      texts[k].textContent = `${WEIGHTS[weight > 0 ? 1 : weight < 0 ? 2 : 0].replace("0", "")}${k}`;
    });
  };
  return { element, renew };
}

async function openSegmented(file: DataFile, all: readonly ArrayVariable[], host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const chosen = scope.cell("detector", all[0].name, (name) => all.some((one) => one.name === name));
  const variable = () => all.find((one) => one.name === chosen.value) ?? all[0];
  const series = new SeriesChoice(scope, leading(all.map((one) => [one, 3] as const)));
  const errorsOf = (one: ArrayVariable) => ofDimensions(file.array(`standard_error_${one.name}`), ["x", "y", "sector"]);
  const area = h("div", { class: "cards" });
  const top = [
    ...(all.length > 1 ? [select("Detector", chosen, all.map((one) => ({ value: one.name, label: words(one.name) })))] : []),
    ...series.controls(),
  ];
  host.append(...(top.length > 0 ? [h("div", { class: "controls" }, ...top)] : []), area);

  let endInner: () => void = () => undefined;
  const build = () => {
    endInner();
    const inner = disposer();
    const one = variable();
    const [x, y, sector] = one.dimensions.slice(-3) as [Dimension, Dimension, Dimension];
    const count = sector.count;
    const turned = rotations(file.text("system") ?? "")[all.indexOf(one)] ?? 0;
    const here = scope.child(one.name);
    const rotation = here.cell("rotation", turned, (degrees) => Math.abs(degrees) <= 360);
    const weights = here.cell("weights", Array.from({ length: count }, () => 1), (signs) => signs.length === count && signs.every((sign) => [-1, 0, 1].includes(sign)));
    const modes = [
      { value: "weights", label: "sectors with signs" },
      ...["DPC x", "DPC y", "DPC magnitude", "DPC direction"].map((label) => ({ value: label, label })),
      ...(count % 2 === 0 && count <= 32 ? Array.from({ length: count / 2 }, (_, k) => ({ value: `pair-${k}`, label: `sector ${k} − sector ${k + count / 2}` })) : []),
    ];
    const accepts = (mode: string) => modes.some((choice) => choice.value === mode);
    const cellOf = (key: string, initial: string) => here.cell(key, initial, accepts);
    const wheel = sectorWheel(count <= 32 ? count : 0, () => (rotation.value * Math.PI) / 180, () => weights.value, (k) =>
      weights.set(weights.value.map((sign, n) => (n === k ? (sign === 1 ? -1 : sign === -1 ? 0 : 1) : sign))),
    );
    const only = (k: number) => weights.set(weights.value.map((_, n) => (n === k ? 1 : 0)));
    const readout = new Readout();
    const views = (["left", "right"] as const).map((side, k) => {
      const cell = cellOf(side, k === 0 ? "weights" : "DPC x");
      return { cell, view: new ImageView({ scope: here.child(side), label: k === 0 ? "Segmented detector" : "Differential phase contrast" }) };
    });
    const sectorList = h("select", { change: () => only(Number(sectorList.value)) }, h("option", { value: "" }, "only…"), ...Array.from({ length: count }, (_, k) => h("option", { value: k }, `sector ${k}`)));
    const cards = views.map(({ cell, view }, k) =>
      new Card(k === 0 ? "Image" : "Second image", view, {
        fileName: `${one.name}-${k === 0 ? "image" : "second"}`,
        controls: k === 0 ? [select("Show", cell, modes), h("label", { class: "control" }, h("span", {}, "Sectors"), sectorList), wheel.element] : [select("Show", cell, modes), range("First sector begins at", rotation, { min: -180, max: 180, step: 1, unit: "°" })],
      }),
    );
    views[0].view.element.after(readout.element);
    area.replaceChildren(...cards.map((card) => card.element));
    inner.add(...cards.map((card) => () => card.destroy()));

    let sectors: Numbers[] = [];
    let errors: Numbers[] = [];
    const show = (k: number) => {
      if (sectors.length === 0) {
        return;
      }
      const { cell, view } = views[k];
      const mode = cell.value;
      const angle = (rotation.value * Math.PI) / 180;
      const field = () => [dpc(sectors, angle, 0), dpc(sectors, angle, 1)] as const;
      const pair = mode.startsWith("pair-") ? Number(mode.slice(5)) : -1;
      const signs = weights.value;
      const values =
        mode === "weights" ? combined(sectors, signs)
        : pair >= 0 ? combined(sectors, signs.map((_, n) => (n === pair ? 1 : n === pair + count / 2 ? -1 : 0)))
        : mode === "DPC x" ? field()[0]
        : mode === "DPC y" ? field()[1]
        : mode === "DPC magnitude" ? magnitude(...field())
        : direction(...field());
      const isDirection = mode === "DPC direction";
      const isShare = mode.startsWith("DPC") && !isDirection;
      const isDifference = pair >= 0 || mode === "DPC x" || mode === "DPC y" || (mode === "weights" && signs.includes(-1));
      view.show({
        values, nx: x.count, ny: y.count, x, y,
        quantity: mode === "weights" ? "detected electrons" : (modes.find((choice) => choice.value === mode)?.label ?? mode),
        unit: isDirection ? "rad" : isShare ? SHARE : one.unit,
        cyclic: isDirection,
        ...(isDirection ? {} : { signed: isDifference }),
      });
      const plus = signs.flatMap((sign, n) => (sign > 0 ? [n] : []));
      const minus = signs.flatMap((sign, n) => (sign < 0 ? [n] : []));
      const list = (numbers: readonly number[]) => (numbers.length > 8 ? `${numbers.length} sectors` : numbers.join(" + "));
      const name = plus.length === count ? "Sum of all sectors" : `Sectors ${list(plus) || "none"}${minus.length > 0 ? ` − (${list(minus)})` : ""}`;
      cards[k].title = mode === "weights" ? name : (modes.find((choice) => choice.value === mode)?.label ?? mode);
      cards[k].changed();
    };
    const draw = () => {
      wheel.renew();
      show(0);
      show(1);
    };
    const load = latest(context, async () => {
      const split = async (from: ArrayVariable) => {
        const { re } = await blockAt(from, series.of(from, 3));
        return Array.from({ length: count }, (_, k) => columnOf(re, x.count, y.count, count, k));
      };
      sectors = await split(one);
      const error = errorsOf(one);
      errors = error === undefined ? [] : await split(error);
      draw();
    });
    views[0].view.onCursor((cursor) => {
      const at = cursor === null ? -1 : cursor.j * x.count + cursor.i;
      const listed = sectors.slice(0, 8).map((values, k) => `${k}: ${reading(values[at], "", errors[k]?.[at])}`);
      readout.set(cursor === null ? "" : `${x.label(cursor.i)}, ${y.label(cursor.j)}; sectors ${listed.join(", ")}${count > 8 ? ", …" : ""}`);
    });
    inner.add(weights.subscribe(draw), rotation.subscribe(draw), ...views.map(({ cell }, k) => cell.subscribe(() => show(k))), series.subscribe(load));
    endInner = inner.end;
    load();
  };
  ends.add(chosen.subscribe(build), () => endInner());
  build();
  return ends.end;
}
