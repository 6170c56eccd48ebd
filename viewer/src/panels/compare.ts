/** Two files compared: arrays side by side, their difference, ratio and blinking; texts, tables and attributes where they differ. */

import { type Combination, combine, Comparison, compareLines, type ComparedLine } from "../comparison";
import { button, type Choice, disposer, player, range, select } from "../controls";
import { type ArrayVariable, type DataFile, type Dimension, formatNumber, type Numbers, words } from "../data";
import { h } from "../dom";
import { failure } from "../failure";
import type { AttributeValue } from "../manifest";
import type { PanelContext, PanelOffer } from "../panel";
import { type Part, PARTS, partOf, pictureAxes, transposed } from "../planes";
import { Card, type DataTable, htmlTable } from "../view";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import { attributeText } from "./attributes";
import { withExport } from "./texts";

/** Panels of two files or more. */
export function comparePanels(files: readonly DataFile[]): readonly PanelOffer[] {
  if (files.length < 2) {
    return [];
  }
  const panel = (id: string, title: string, order: number, open: OpenPair): PanelOffer => ({
    id, title, order, group: "Compare", open: (host, context) => openFiles(host, context, open),
  });
  return [panel("compare-arrays", "Compare arrays", 5, openArrays), panel("compare-texts", "Compare texts and attributes", 6, openTexts)];
}

type OpenPair = (host: HTMLElement, context: PanelContext, a: DataFile, b: DataFile) => Promise<() => void> | (() => void);

/** The choice of two files, which both panels share, and below it what they show of them. */
async function openFiles(host: HTMLElement, context: PanelContext, open: OpenPair): Promise<() => void> {
  const { files, store } = context;
  const shared = store.scope("compare");
  const isFile = (value: string) => files.some((_, k) => String(k) === value);
  const [a, b] = [shared.cell<string>("a", "0", isFile), shared.cell<string>("b", "1", isFile)];
  const choices = files.map((file, k) => ({ value: String(k), label: files.some((other, m) => m !== k && other.name === file.name) ? `${file.name} (${k + 1})` : file.name }));
  const exchange = () => {
    const before = a.value;
    a.set(b.value, { live: true });
    b.set(before);
  };
  const body = h("div", { class: "compare" });
  host.append(h("div", { class: "controls" }, select("A", a, choices), select("B", b, choices), button("Exchange", exchange)), body);
  const renewal = renewable(body, () => open(body, context, files[Number(a.value)], files[Number(b.value)]));
  const ends = disposer();
  ends.add(a.subscribe(renewal.renew), b.subscribe(renewal.renew), renewal.end);
  await renewal.renew();
  return ends.end;
}

/** Contents of an element that are made anew: what was there ends first, and an error becomes a sentence. */
function renewable(host: HTMLElement, open: () => Promise<() => void> | (() => void)): { renew: () => Promise<void>; end: () => void } {
  let [end, latest]: [() => void, number] = [() => undefined, 0];
  const finish = () => {
    latest++;
    end();
    end = () => undefined;
    host.replaceChildren();
  };
  const renew = async () => {
    finish();
    const mine = latest;
    try {
      const ended = await open();
      if (mine === latest) {
        end = ended;
      } else {
        ended();
      }
    } catch (error) {
      if (mine === latest) {
        host.append(failure(error));
      }
    }
  };
  return { renew, end: finish };
}

// ---- Arrays

interface Pair {
  readonly name: string;
  readonly a: ArrayVariable;
  readonly b: ArrayVariable;
}

const shapeText = (shape: readonly number[]) => (shape.length === 0 ? "a single number" : shape.join(" × "));

/** Arrays of both files with equal shapes, and sentences on the others. */
function commonArrays(a: DataFile, b: DataFile): { readonly pairs: readonly Pair[]; readonly sentences: readonly string[] } {
  const pairs: Pair[] = [];
  const sentences: string[] = [];
  for (const one of a.arrays()) {
    const other = b.array(one.name);
    if (other === undefined) {
      continue;
    }
    if (shapeText(one.shape) === shapeText(other.shape)) {
      pairs.push({ name: one.name, a: one, b: other });
    } else {
      const binned = [one, other].some(({ array }) => array.binning.some((n) => n > 1)) ? " in this page, where one of them is binned" : "";
      sentences.push(`${one.name} is not compared: its shape is ${shapeText(one.shape)} in A and ${shapeText(other.shape)} in B${binned}.`);
    }
  }
  const names = (from: DataFile, to: DataFile) => from.arrays().filter((one) => to.array(one.name) === undefined).map((one) => one.name);
  const [onlyA, onlyB] = [names(a, b), names(b, a)];
  if (onlyA.length > 0) {
    sentences.push(`Only A has ${onlyA.join(", ")}.`);
  }
  if (onlyB.length > 0) {
    sentences.push(`Only B has ${onlyB.join(", ")}.`);
  }
  return { pairs, sentences };
}

async function openArrays(host: HTMLElement, context: PanelContext, a: DataFile, b: DataFile): Promise<() => void> {
  const { pairs, sentences } = commonArrays(a, b);
  const large = pairs.filter((one) => one.a.size > 1);
  const notes = sentences.length > 0 ? h("ul", { class: "compare-notes" }, ...sentences.map((text) => h("li", {}, text))) : null;
  if (large.length === 0) {
    host.append(h("p", {}, "The two files have no array of the same name and shape in common."), ...(notes ? [notes] : []));
    return () => undefined;
  }
  const variable = context.scope.cell<string>("variable", large[0].name, (name) => large.some((one) => one.name === name));
  const body = h("div", {});
  host.append(h("div", { class: "controls" }, select("Array", variable, large.map(({ name }) => ({ value: name, label: name })))), body, ...(notes ? [notes] : []));
  const renewal = renewable(body, () => {
    const pair = large.find((one) => one.name === variable.value) ?? large[0];
    return openArray(body, context, pair, a, b);
  });
  const end = variable.subscribe(() => void renewal.renew());
  await renewal.renew();
  return () => {
    end();
    renewal.end();
  };
}

const MODES: readonly Choice[] = [
  { value: "overlay", label: "overlaid" },
  { value: "side", label: "side by side" },
  { value: "difference", label: "difference A − B" },
  { value: "relative", label: "relative difference (A − B)/|B|" },
  { value: "ratio", label: "ratio A/B" },
  { value: "blink", label: "blink" },
];

/** Largest number of elements of which statistics are computed without being asked for. */
const UNASKED = 4_194_304;
/** Elements that are compared at a time. */
const PIECE = 1_048_576;

/** What is shown of a pair: numbers of both, in the order of the picture. */
interface Shown {
  readonly a: Numbers;
  readonly b: Numbers;
}

/** How a mode draws numbers. */
interface Drawing {
  draw(shown: Shown): void;
  end(): void;
}

async function openArray(host: HTMLElement, context: PanelContext, pair: Pair, fileA: DataFile, fileB: DataFile): Promise<() => void> {
  const ends = disposer();
  const scope = context.scope.child(pair.name);
  const { a, b } = pair;
  const long = a.shape.map((_, k) => k).filter((k) => a.shape[k] > 1);
  const isCurve = long.length === 1;
  const [x, y] = isCurve ? [long[0], -1] : pictureAxes(a);
  const isComplex = a.complex || b.complex;

  const modes = isCurve ? MODES : MODES.filter((one) => one.value !== "overlay");
  const mode = scope.cell<string>("mode", modes[0].value, (value) => modes.some((one) => one.value === value));
  const part = scope.cell<string>("part", "modulus", (value) => (PARTS as readonly string[]).includes(value));
  const fixed = a.shape.map((count, k) => scope.cell<number>(`at-${k}`, 0, (at) => Number.isInteger(at) && at >= 0 && at < count));
  const sliders = a.dimensions.flatMap((one, k) => (k === x || k === y || one.count < 2 ? [] : [player(words(one.name), fixed[k], { count: one.count, label: (at) => one.label(at) })]));
  const extra = h("span", { class: "compare-extra" });
  const body = h("div", { class: "compare-cards" });
  const numbers = h("section", { class: "card wide compare-numbers" });
  host.append(
    h("div", { class: "controls" }, select("Show", mode, modes), isComplex ? select("Part", part, PARTS.map((value) => ({ value, label: value }))) : null, extra, ...sliders),
    body,
    ...differencesOfAxes(a, b),
    numbers,
  );

  // Numbers of both
  const isPhase = () => isComplex && part.value === "phase";
  const chosen = (re: Numbers, im: Numbers | undefined) => (isComplex ? partOf(re, im ?? new Float64Array(re.length), part.value as Part) : re);
  const load = async (variable: ArrayVariable): Promise<Numbers> => {
    const { re, im } = await variable.block(fixed.map((at, k) => (k === x || k === y ? null : at.value)));
    const values = chosen(re, im);
    return isCurve || x > y ? values : transposed(values, a.shape[x], a.shape[y]);
  };

  // The mode's views
  let drawing: Drawing | undefined;
  let shown: Shown | undefined;
  const subject: Subject = { pair, names: [`A: ${fileA.name}`, `B: ${fileB.name}`], x: a.dimensions[x], y: y < 0 ? undefined : a.dimensions[y], unit: () => (isPhase() ? "rad" : a.unit), isPhase };
  const build = () => {
    drawing?.end();
    body.replaceChildren();
    extra.replaceChildren();
    body.classList.toggle("pair", mode.value === "side");
    drawing = mode.value === "blink" ? blink(body, extra, scope, subject) : draws(mode.value, body, scope, subject);
    if (shown !== undefined) {
      drawing.draw(shown);
    }
  };

  // Statistics
  let whole: { readonly part: string; readonly comparison: Comparison } | undefined;
  let latestWhole = 0;
  const state = h("p", { class: "note" });
  const describe = () => {
    if (shown === undefined) {
      return;
    }
    const comparison = new Comparison(isPhase());
    comparison.add(shown.a, shown.b);
    const rows: (readonly [string, Comparison])[] = [[sliders.length > 0 ? "shown" : "whole array", comparison]];
    if (whole !== undefined && whole.part === part.value && sliders.length > 0) {
      rows.push(["whole array", whole.comparison]);
    }
    const isAsked = sliders.length > 0 && rows.length === 1;
    numbers.replaceChildren(
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Statistics of the differences" }, htmlTable(statisticsTable(rows, subject.unit()))),
      ...(isAsked && !isUnasked ? [button("Compare the whole arrays", () => void compareWhole())] : []),
      state,
    );
  };
  const isUnasked = a.size <= UNASKED && !a.isServed && !b.isServed;
  const compareWhole = async () => {
    const mine = ++latestWhole;
    const comparison = new Comparison(isPhase());
    const of = part.value;
    try {
      for (let from = 0; from < a.size; from += PIECE) {
        const to = Math.min(from + PIECE, a.size);
        const [p, q] = await Promise.all([a.range(from, to), b.range(from, to)]);
        if (mine !== latestWhole) {
          return;
        }
        comparison.add(chosen(p.re, p.im), chosen(q.re, q.im));
        state.textContent = to < a.size ? `Comparing: ${Math.round((100 * to) / a.size)} %` : "";
        await new Promise((resolve) => setTimeout(resolve));
      }
      whole = { part: of, comparison };
      describe();
    } catch (error) {
      state.textContent = failure(error).textContent ?? "";
    }
  };

  let latest = 0;
  const renew = async () => {
    const mine = ++latest;
    try {
      const [p, q] = await Promise.all([load(a), load(b)]);
      if (mine === latest) {
        shown = { a: p, b: q };
        drawing?.draw(shown);
        describe();
      }
    } catch (error) {
      if (mine === latest) {
        body.replaceChildren(failure(error));
      }
    }
  };
  const changePart = () => {
    build();
    void renew();
    if (isUnasked) {
      void compareWhole();
    }
  };
  ends.add(mode.subscribe(build), part.subscribe(changePart), ...fixed.map((one) => one.subscribe(() => void renew())), () => {
    latest++;
    latestWhole++;
    drawing?.end();
  });
  build();
  await renew();
  if (isUnasked && sliders.length > 0) {
    void compareWhole();
  }
  return ends.end;
}

/** Sentences on units and positions that differ, and on numbers that the page holds with less than all digits. */
function differencesOfAxes(a: ArrayVariable, b: ArrayVariable): HTMLElement[] {
  const sentences: string[] = [];
  if (a.unit !== b.unit) {
    sentences.push(`Units differ: ${a.unit || "none"} in A, ${b.unit || "none"} in B.`);
  }
  a.dimensions.forEach((one, k) => {
    const other = b.dimensions[k];
    const ends = (of: Dimension) => `${of.label(0)} to ${of.label(Math.max(of.count - 1, 0))}`;
    if (one.count > 0 && ends(one) !== ends(other)) {
      sentences.push(`Samples are compared one by one, but their positions differ: ${ends(one)} in A, ${ends(other)} in B.`);
    }
  });
  if (a.complex !== b.complex) {
    sentences.push(`Only ${a.complex ? "A" : "B"} is complex: the imaginary part of the other is 0.`);
  }
  for (const [of, { array }] of [["A", a], ["B", b]] as const) {
    if (array.reduced !== "") {
      sentences.push(`${of}: ${array.reduced}`);
    }
  }
  return sentences.length > 0 ? [h("ul", { class: "compare-notes" }, ...sentences.map((text) => h("li", {}, text)))] : [];
}

/** One column for each of the comparisons. */
function statisticsTable(columns: readonly (readonly [string, Comparison])[], unit: string): DataTable {
  const withUnit = (name: string) => (unit ? `${name} [${unit}]` : name);
  const row = (name: string, of: (one: Comparison) => string): string[] => [name, ...columns.map(([, one]) => of(one))];
  return {
    caption: "Differences A − B",
    columns: ["statistic", ...columns.map(([name]) => name)],
    rows: [
      row("elements", (one) => String(one.count + one.skipped)),
      row(withUnit("rms difference"), (one) => formatNumber(one.rms, 5)),
      row(withUnit("largest difference"), (one) => (one.count > 0 ? formatNumber(one.largest, 5) : "")),
      row("relative rms", (one) => formatNumber(one.relativeRms, 5)),
      row("correlation", (one) => formatNumber(one.correlation, 9)),
      row("differing elements", (one) => String(one.differing)),
      row("not finite", (one) => String(one.skipped)),
    ],
  };
}

/** What views of a pair are labelled with. */
interface Subject {
  readonly pair: Pair;
  readonly names: readonly [string, string];
  readonly x: Dimension;
  readonly y: Dimension | undefined;
  readonly unit: () => string;
  readonly isPhase: () => boolean;
}

type Scope = PanelContext["scope"];

/** A card with a view of one of the numbers, or of their combination. */
interface Canvas {
  readonly card: Card;
  readonly view: ImageView | CurveView;
  /** `common`: numbers on which the limits of colours rest, too. */
  draw(values: Numbers, quantity: string, unit: string, common?: Numbers): void;
}

/** A card with a picture or a curve, by the dimensions of the subject. */
function canvas(host: HTMLElement, scope: Scope, subject: Subject, title: string, fileName: string, linked?: Canvas): Canvas {
  const { x, y, isPhase } = subject;
  const label = `${words(subject.pair.name)}, ${title}`;
  const inCard = <V extends ImageView | CurveView>(view: V, show: (view: V, values: Numbers, quantity: string, unit: string, common?: Numbers) => void): Canvas => {
    const card = new Card(title, view, { fileName });
    host.append(card.element);
    return {
      card,
      view,
      draw: (values, quantity, unit, common) => {
        show(view, values, quantity, unit, common);
        card.changed();
      },
    };
  };
  if (y === undefined) {
    const positions = x.positions();
    const zoomWith = linked?.view instanceof CurveView ? { zoomWith: linked.view } : {};
    return inCard(new CurveView({ scope, label, ...zoomWith }), (view, values, quantity, unit) =>
      view.show({ x: positions, xTitle: x.title, yTitle: unit ? `${quantity} [${unit}]` : quantity, series: [{ label: title, values }] }));
  }
  const zoomWith = linked?.view instanceof ImageView ? { zoomWith: linked.view } : {};
  return inCard(new ImageView({ scope, label, ...zoomWith }), (view, values, quantity, unit, common) =>
    view.show({ values, nx: x.count, ny: y.count, x, y, quantity, unit, cyclic: isPhase() && unit === "rad", ...(common === undefined ? {} : { common }) }));
}

/** The views of every mode but blinking. */
function draws(mode: string, host: HTMLElement, scope: Scope, subject: Subject): Drawing {
  const { pair, names, x } = subject;
  const quantity = words(pair.name);
  if (mode === "overlay") {
    const view = new CurveView({ scope: scope.child("curves"), label: `${quantity}, A and B` });
    const card = new Card(quantity, view, { fileName: `${pair.name}-compared` });
    host.append(card.element);
    const positions = x.positions();
    return {
      draw: ({ a, b }) => {
        const unit = subject.unit();
        const series = [{ label: names[0], values: a }, { label: names[1], values: b, style: "dashed" as const }];
        view.show({ x: positions, xTitle: x.title, yTitle: unit ? `${quantity} [${unit}]` : quantity, series });
        card.changed();
      },
      end: () => card.destroy(),
    };
  }
  if (mode === "side") {
    const first = canvas(host, scope.child("curves"), subject, names[0], `${pair.name}-a`);
    const second = canvas(host, scope.child("curves"), subject, names[1], `${pair.name}-b`, first);
    if (first.view instanceof CurveView && second.view instanceof CurveView) {
      const [one, other] = [first.view, second.view];
      one.onCursor((at) => other.moveCursor(at));
      other.onCursor((at) => one.moveCursor(at));
    }
    return {
      draw: ({ a, b }) => {
        first.draw(a, quantity, subject.unit(), b);
        second.draw(b, quantity, subject.unit(), a);
      },
      end: () => {
        first.card.destroy();
        second.card.destroy();
      },
    };
  }
  const how = mode as Combination;
  const title = MODES.find((one) => one.value === how)?.label ?? how;
  const only = canvas(host, scope.child(how), subject, title, `${pair.name}-${how}`);
  const formula = { difference: "A − B", relative: "(A − B)/|B|", ratio: "A/B" }[how];
  return {
    draw: ({ a, b }) => only.draw(combine(how, a, b, subject.isPhase()), `${quantity}, ${formula}`, how === "difference" ? subject.unit() : ""),
    end: () => only.card.destroy(),
  };
}

/** A and B in turn, in one view with the same limits. Readers who prefer reduced motion turn them over themselves. */
function blink(host: HTMLElement, controls: HTMLElement, scope: Scope, subject: Subject): Drawing {
  const { pair, names } = subject;
  const quantity = words(pair.name);
  const only = canvas(host, scope.child("curves"), subject, names[0], `${pair.name}-blink`);
  const rate = scope.cell("rate", 2, (value) => value >= 0.5 && value <= 5);
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let [timer, isB, shown]: [number, boolean, Shown | undefined] = [0, false, undefined];
  const other = button("Show B", () => turn());
  const play = h("button", { type: "button", "aria-pressed": "false", click: () => (timer === 0 ? start() : stop()) }, "Blink");
  const draw = () => {
    only.card.title = names[isB ? 1 : 0];
    other.textContent = isB ? "Show A" : "Show B";
    if (shown !== undefined) {
      only.draw(isB ? shown.b : shown.a, quantity, subject.unit(), isB ? shown.a : shown.b);
    }
  };
  const turn = () => {
    isB = !isB;
    draw();
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.setAttribute("aria-pressed", "false");
  };
  const start = () => {
    stop();
    timer = window.setInterval(turn, 1000 / rate.value);
    play.setAttribute("aria-pressed", "true");
  };
  const end = rate.subscribe(() => {
    if (timer !== 0) {
      start();
    }
  });
  controls.append(other);
  if (!isStill) {
    controls.append(play, range("Changes a second", rate, { min: 0.5, max: 5, step: 0.5 }));
    start();
  }
  return {
    draw: (next) => {
      shown = next;
      draw();
    },
    end: () => {
      end();
      stop();
      only.card.destroy();
    },
  };
}

// ---- Texts, tables, attributes and single numbers

async function openTexts(host: HTMLElement, context: PanelContext, a: DataFile, b: DataFile): Promise<() => void> {
  const ends = disposer();
  const numbers = await numbersThatDiffer(a, b);
  const attributes = attributesThatDiffer(a, b);
  for (const { caption, equal, rows } of [numbers, attributes]) {
    const total = rows.length + equal;
    if (total > 0 && rows.length === 0) {
      host.append(h("p", {}, `${caption}: all ${total} are equal.`));
    } else if (total > 0) {
      const columns = caption === numbers.caption ? ["name", "A", "B", "A − B", "(A − B)/|B|"] : ["of", "key", "A", "B"];
      host.append(withExport({ caption: `${caption}: ${rows.length} of ${total} differ`, columns, rows }, caption.toLowerCase().replaceAll(" ", "-")));
    }
  }
  compareTables(host, a, b);
  compareTexts(host, context, a, b, ends.add);
  if (host.childElementCount === 0) {
    host.append(h("p", {}, "The two files have no texts, tables or attributes."));
  }
  return ends.end;
}

interface Differing {
  readonly caption: string;
  readonly equal: number;
  readonly rows: (readonly string[])[];
}

async function numbersThatDiffer(a: DataFile, b: DataFile): Promise<Differing> {
  const rows: (readonly string[])[] = [];
  let equal = 0;
  const single = commonArrays(a, b).pairs.filter((one) => one.a.size === 1);
  for (const pair of single) {
    const [p, q] = await Promise.all([pair.a.all(), pair.b.all()]);
    const text = ({ re, im }: { re: Numbers; im?: Numbers }, unit: string) => `${formatNumber(re[0], 12)}${im === undefined ? "" : ` + ${formatNumber(im[0], 12)} i`}${unit ? ` ${unit}` : ""}`;
    const isEqual = Object.is(p.re[0], q.re[0]) && Object.is(p.im?.[0] ?? 0, q.im?.[0] ?? 0);
    if (isEqual && pair.a.unit === pair.b.unit) {
      equal++;
      continue;
    }
    const d = p.re[0] - q.re[0];
    const isReal = p.im === undefined && q.im === undefined;
    rows.push([pair.name, text(p, pair.a.unit), text(q, pair.b.unit), isReal ? formatNumber(d) : "", isReal ? formatNumber(d / Math.abs(q.re[0])) : ""]);
  }
  return { caption: "Single numbers", equal, rows };
}

function attributesThatDiffer(a: DataFile, b: DataFile): Differing {
  const rows: (readonly string[])[] = [];
  let equal = 0;
  const compare = (of: string, p: Readonly<Record<string, AttributeValue>>, q: Readonly<Record<string, AttributeValue>>) => {
    for (const key of new Set([...Object.keys(p), ...Object.keys(q)])) {
      const text = (all: Readonly<Record<string, AttributeValue>>) => (Object.hasOwn(all, key) ? attributeText(all[key]) : "(none)");
      if (text(p) === text(q)) {
        equal++;
      } else {
        rows.push([of, key, text(p), text(q)]);
      }
    }
  };
  compare("file", a.attributes, b.attributes);
  for (const one of a.entry.variables) {
    const other = b.entry.variables.find((candidate) => candidate.name === one.name);
    if (other !== undefined) {
      compare(one.name, { unit: one.unit, meaning: one.longName, ...one.attributes }, { unit: other.unit, meaning: other.longName, ...other.attributes });
    }
  }
  return { caption: "Attributes", equal, rows };
}

/** Cells of tables that differ. */
function compareTables(host: HTMLElement, a: DataFile, b: DataFile): void {
  for (const one of a.variables) {
    const other = one.kind === "table" ? b.table(one.name) : undefined;
    if (one.kind !== "table" || other === undefined) {
      continue;
    }
    const title = (column: { readonly name: string; readonly unit: string }) => (column.unit ? `${column.name} [${column.unit}]` : column.name);
    const headings = one.columns.map(title);
    if (headings.join("\n") !== other.columns.map(title).join("\n")) {
      host.append(h("p", {}, `${one.name}: the columns of the two tables differ: ${headings.join(", ")} in A, ${other.columns.map(title).join(", ")} in B.`));
      continue;
    }
    const rows = one.columns.flatMap((column, k) => {
      const others = other.columns[k].values;
      const text = (value: number | string | null | undefined) => (value === undefined || value === null ? "(none)" : typeof value === "number" ? formatNumber(value, 12) : value);
      return Array.from({ length: Math.max(column.values.length, others.length) }, (_, n) => n)
        .filter((n) => !Object.is(column.values[n], others[n]))
        .map((n) => [n + 1, headings[k], text(column.values[n]), text(others[n])]);
    });
    host.append(rows.length === 0 ? h("p", {}, `${one.name}: the two tables are equal.`) : withExport({ caption: `${one.name}: cells that differ`, columns: ["row", "column", "A", "B"], rows }, `${one.name}-compared`));
  }
}

/** Equal lines shown before and after one that differs. */
const CONTEXT = 2;

/** Texts line by line. */
function compareTexts(host: HTMLElement, context: PanelContext, a: DataFile, b: DataFile, add: (end: () => void) => void): void {
  const isAll = context.scope.cell("all_lines", false);
  for (const one of a.variables) {
    const other = one.kind === "text" ? b.text(one.name) : undefined;
    if (one.kind !== "text" || other === undefined) {
      continue;
    }
    if (one.text === other) {
      host.append(h("p", {}, `${one.name}: the two texts are equal.`));
      continue;
    }
    const lines = compareLines(one.text.split("\n"), other.split("\n"));
    const removed = lines.filter((line) => line.of === "a").length;
    const added = lines.filter((line) => line.of === "b").length;
    const body = h("tbody");
    const fill = () => body.replaceChildren(...lineRows(lines, isAll.value));
    const all = h("button", { type: "button", "aria-pressed": String(isAll.value), click: () => isAll.set(!isAll.value) }, "All lines");
    add(isAll.subscribe((value) => {
      all.setAttribute("aria-pressed", String(value));
      fill();
    }));
    fill();
    host.append(
      h(
        "section",
        { class: "card wide" },
        h("header", {}, h("h3", {}, `${one.name}: ${count(removed)} of A only, ${count(added)} of B only`), all),
        h(
          "div",
          { class: "scroll", tabindex: 0, role: "region", "aria-label": `Lines of ${one.name}` },
          h("table", { class: "lines" }, h("thead", {}, h("tr", {}, ...["A", "B", "", "line"].map((name) => h("th", { scope: "col" }, name || h("span", { class: "curve-hidden" }, "of"))))), body),
        ),
      ),
    );
  }
}

const count = (n: number) => (n === 1 ? "1 line" : `${n} lines`);

function lineRows(lines: readonly ComparedLine[], isAll: boolean): HTMLTableRowElement[] {
  const isNear = lines.map((_, k) => lines.slice(Math.max(k - CONTEXT, 0), k + CONTEXT + 1).some((line) => line.of !== "both"));
  const rows: HTMLTableRowElement[] = [];
  let skipped = 0;
  const flush = () => {
    if (skipped > 0) {
      rows.push(h("tr", { class: "skipped" }, h("td", { colspan: 4 }, skipped === 1 ? "1 equal line" : `${skipped} equal lines`)));
    }
    skipped = 0;
  };
  lines.forEach((line, k) => {
    if (!isAll && !isNear[k]) {
      skipped++;
      return;
    }
    flush();
    const mark = { both: "", a: "A", b: "B" }[line.of];
    const cell = line.of === "a" ? h("del", {}, line.text) : line.of === "b" ? h("ins", {}, line.text) : line.text;
    const number = (n: number) => h("td", { class: "number" }, n < 0 ? "" : n + 1);
    rows.push(h("tr", { class: `of-${line.of}` }, number(line.a), number(line.b), h("td", { class: "mark" }, mark), h("td", { class: "line" }, cell)));
  });
  flush();
  return rows;
}
