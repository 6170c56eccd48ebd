/** Any array: curves of one dimension, and pictures of more, with sliders for the others. */

import { disposer, player, select } from "../controls";
import { type ArrayVariable, formatNumber, words } from "../data";
import { h } from "../dom";
import { failure } from "../failure";
import type { PanelContext, PanelFactory, PanelOffer } from "../panel";
import { PARTS, type Part, partOf, pictureAxes, plane } from "../planes";
import { type DataTable, Card, htmlTable } from "../view";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";

const GROUP = "All variables";

/** Panels of all arrays, and one of all single numbers and empty arrays. */
export const arrayPanels: PanelFactory = (file) => {
  const arrays = file.arrays();
  const single = arrays.filter((one) => one.size <= 1);
  const offers: PanelOffer[] = arrays.flatMap((variable, k) => {
    if (variable.size <= 1) {
      return [];
    }
    const open = (host: HTMLElement, context: PanelContext) => (significant(variable).length === 1 ? openCurve(variable, host, context) : openPicture(variable, host, context));
    return [{ id: `array-${k}`, title: variable.name, group: GROUP, order: 900 + k / 1000, open }];
  });
  if (single.length > 0) {
    const open = async (host: HTMLElement) => {
      host.append(h("div", { class: "card" }, htmlTable(await numbers(single))));
      return () => undefined;
    };
    const title = single.some((one) => one.size === 0) ? "Single numbers and empty arrays" : "Single numbers";
    offers.push({ id: "numbers", title, group: GROUP, order: 940, open });
  }
  return offers;
};

/** Dimensions with more than one sample. */
function significant(variable: ArrayVariable): number[] {
  return variable.shape.map((_, k) => k).filter((k) => variable.shape[k] > 1);
}

async function numbers(all: readonly ArrayVariable[]): Promise<DataTable> {
  const rows = await Promise.all(
    all.map(async (one) => {
      if (one.size === 0) {
        return [one.name, `empty: ${one.shape.join(" × ")}`, one.unit, one.longName];
      }
      const { re, im } = await one.all();
      const value = im === undefined ? formatNumber(re[0], 15) : `${formatNumber(re[0], 15)} + ${formatNumber(im[0], 15)} i`;
      return [one.name, value, one.unit, one.longName];
    }),
  );
  return { caption: "Numbers of the file", columns: ["name", "value", "unit", "meaning"], rows };
}

/** What the numbers are, as an axis says it. */
function titleOf(variable: ArrayVariable, part?: Part): string {
  const name = words(variable.name) + (part === undefined ? "" : `, ${part}`);
  const unit = part === "phase" ? "rad" : variable.unit;
  return unit ? `${name} [${unit}]` : name;
}

/** The choice of a part of complex numbers. */
function parts(context: PanelContext) {
  const cell = context.scope.cell("part", "modulus", (value) => (PARTS as readonly string[]).includes(value));
  return { cell, control: select("Part", cell, PARTS.map((value) => ({ value, label: value }))) };
}

async function openCurve(variable: ArrayVariable, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const part = parts(context);
  const view = new CurveView({ scope: context.scope.child("curve"), label: variable.name });
  const card = new Card(variable.longName || words(variable.name), view, { fileName: variable.name, wide: true, controls: variable.complex ? [part.control] : [] });
  host.append(card.element);
  const { re, im } = await variable.all();
  const along = variable.dimensions[significant(variable)[0]];
  const show = () => {
    const shown = variable.complex ? (part.cell.value as Part) : undefined;
    const values = partOf(re, im, shown ?? "real");
    view.show({ x: along.positions(), xTitle: along.title, yTitle: titleOf(variable, shown), series: [{ label: words(variable.name), values }] });
    card.changed();
  };
  ends.add(part.cell.subscribe(show), () => card.destroy());
  show();
  return ends.end;
}

async function openPicture(variable: ArrayVariable, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const rank = variable.shape.length;
  const axis = (k: number) => Number.isInteger(k) && k >= 0 && k < rank;
  const [x, y] = pictureAxes(variable);
  const axes = scope.cell("axes", [x, y], (value) => value.length === 2 && value.every(axis) && value[0] !== value[1]);
  const fixed = variable.shape.map((count, k) => scope.cell(`at-${k}`, 0, (at) => Number.isInteger(at) && at >= 0 && at < count));
  const part = parts(context);
  const view = new ImageView({ scope: scope.child("image"), label: variable.name });

  // Choose the axes
  const choices = variable.dimensions.map((one, k) => ({ value: String(k), label: words(one.name) }));
  const axisList = (label: string, which: 0 | 1) => {
    const list = h("select", {}, ...choices.map((one) => h("option", { value: one.value }, one.label)));
    const renew = () => {
      list.value = String(axes.value[which]);
    };
    list.addEventListener("change", () => {
      const [a, b] = axes.value;
      const chosen = Number(list.value);
      const other = which === 0 ? b : a;
      const kept = chosen === other ? axes.value[which] : other;
      axes.set(which === 0 ? [chosen, kept] : [kept, chosen]);
    });
    ends.add(axes.subscribe(renew));
    renew();
    return h("label", { class: "control" }, h("span", {}, label), list);
  };
  const sliders = variable.dimensions.map((one, k) => player(words(one.name), fixed[k], { count: one.count, label: (at) => one.value(at) }));
  const controls = [
    ...(rank > 2 ? [axisList("Horizontal", 0), axisList("Vertical", 1)] : []),
    ...(variable.complex ? [part.control] : []),
    ...sliders,
  ];
  const note = [variable.longName, variable.array.reduced].filter((text) => text !== "").join(". ");
  const card = new Card(words(variable.name), view, { fileName: variable.name, controls, note, wide: true });
  host.append(card.element);

  let latest = 0;
  let problem: HTMLElement | undefined;
  const show = async () => {
    const mine = ++latest;
    const [i, j] = axes.value;
    sliders.forEach((one, k) => {
      one.hidden = k === i || k === j || variable.shape[k] === 1;
    });
    const shown = part.cell.value as Part;
    try {
      const found = await plane(variable, fixed.map((one) => one.value), [i, j], shown);
      if (mine !== latest) {
        return;
      }
      const cyclic = variable.complex && shown === "phase";
      const unit = cyclic ? "rad" : variable.unit;
      problem?.remove();
      view.show({ ...found, x: variable.dimensions[i], y: variable.dimensions[j], quantity: words(variable.name), unit, cyclic });
      card.changed();
    } catch (error) {
      problem?.remove();
      problem = card.element.appendChild(failure(error));
    }
  };
  for (const cell of [axes, part.cell, ...fixed]) {
    ends.add(cell.subscribe(() => void show()));
  }
  ends.add(() => card.destroy());
  await show();
  return ends.end;
}
