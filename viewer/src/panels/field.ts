/** Maps over the field: Strehl ratio, width, ensquared energy and errors by direction, with guide stars and targets. */

import { checkbox, select } from "../controls";
import { formatNumber, type ArrayVariable, type DataFile, uniform } from "../data";
import { budgetOf, fieldTerms } from "../optics/budget";
import { isoLines, statistics } from "../optics/maps";
import { directionsOf, factsOf, type Direction } from "../optics/system";
import type { PanelContext, PanelFactory } from "../panel";
import { BarView } from "../views/bars";
import { ImageView } from "../views/image";
import type { Shape } from "../views/image.api";
import { BUDGET_UNITS, showBudgets } from "./budget";
import { choiceCell, hide, numberCell, names, Sheet, stem, type Fact } from "./sheet";

/** Panels of fields: of the variables `field_strehl`, `field_fwhm`, `field_ensquared_0` … and `field_error`. */
export const fieldPanels: PanelFactory = (file) =>
  mapsOf(file).length > 0 ? [{ id: "field", title: "Maps over the field", group: "Adaptive optics", order: 30, open: (host, context) => openField(host, context, file) }] : [];

/** One quantity over the field: an array (wavelength or term, y, x). */
interface FieldMap {
  readonly array: ArrayVariable;
  readonly title: string;
  readonly unit: string;
  /** From the file's unit to this one. */
  readonly factor: number;
  readonly byTerm: boolean;
}

function mapsOf(file: DataFile): FieldMap[] {
  const boxes = factsOf(file).ensquared;
  return file.arrays().flatMap((array): FieldMap[] => {
    if (array.shape.length !== 3 || !array.name.startsWith("field_")) {
      return [];
    }
    const plain = { array, unit: "", factor: 1, byTerm: false };
    const box = /^field_ensquared_(\d+)$/.exec(array.name);
    if (box) {
      const side = / in ([0-9.]+) mas$/.exec(array.longName)?.[1] ?? boxes[Number(box[1])];
      return [{ ...plain, title: side === undefined ? `ensquared energy, box ${box[1]}` : `ensquared energy in ${side} mas` }];
    }
    switch (array.name) {
      case "field_strehl": return [{ ...plain, title: "Strehl ratio" }];
      case "field_fwhm": return [{ ...plain, title: "full width at half maximum", unit: "mas" }];
      case "field_error": return [{ ...plain, title: "wavefront error", unit: "nm", factor: 1e9, byTerm: true }];
      default: return [];
    }
  });
}

async function openField(host: HTMLElement, context: PanelContext, file: DataFile): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const { scope } = context;
  const maps = mapsOf(file);
  const system = factsOf(file);
  const [ny, nx] = maps[0].array.shape.slice(1);
  const offsets = (await file.array("field_offsets")?.all())?.re;
  const known = offsets?.length === nx && nx > 1;
  const step = known ? (offsets[nx - 1] - offsets[0]) / (nx - 1) : 1;
  const axis = (name: string, count: number) => uniform(name, known ? "arcsec" : "", count, known ? offsets[0] : 0, step);
  const [x, y] = [axis("x", nx), axis("y", ny)];
  const [stars, targets] = await Promise.all([
    directionsOf(file, ["guide_star_directions", "directions"], system.guideStars),
    directionsOf(file, ["target_directions"], system.targets),
  ]);
  const terms = fieldTerms(file);
  const waves = Math.max(1, ...maps.filter(({ byTerm }) => !byTerm).map(({ array }) => array.shape[0]));
  const waveName = (w: number) => (system.wavelengths[w] === undefined ? `wavelength ${w}` : `${formatNumber(1e9 * system.wavelengths[w], 5)} nm`);

  const of = choiceCell(context, "of", maps.map(({ array }) => array.name));
  const wave = numberCell(context, "wavelength", waves);
  const term = choiceCell(context, "term", terms.length > 0 ? terms : [""], terms.at(-1) ?? "");
  const lines = scope.cell<boolean>("lines", false);
  const sources = scope.cell<boolean>("sources", true);
  const unit = choiceCell(context, "unit", ["nm", "percent"]);
  const middle = [Math.floor(nx / 2), Math.floor(ny / 2)];
  const at = scope.cell<readonly number[]>("at", middle, (k) => k.length === 2 && k.every(Number.isInteger) && k[0] >= 0 && k[0] < nx && k[1] >= 0 && k[1] < ny);
  const waveSelect = waves > 1 ? select("Wavelength", wave, names("", waves).map((_, w) => ({ value: String(w), label: waveName(w) }))) : undefined;
  const termSelect = terms.length > 1 ? select("Term", term, terms.map((value) => ({ value, label: value }))) : undefined;
  sheet.controls(
    select("Map of", of, maps.map(({ array, title }) => ({ value: array.name, label: title }))),
    waveSelect,
    termSelect,
    checkbox("Iso-lines", lines),
    stars.length + targets.length > 0 ? checkbox("Guide stars and targets", sources) : undefined,
  );
  const fileName = `${stem(file.name)}-field`;
  const image = new ImageView({ scope: scope.child("map"), label: "Map over the field", height: 460 });
  const card = sheet.card("Map over the field", image, { fileName });
  const print = sheet.facts("This map");
  const printPoint = sheet.facts("At the direction that was picked");
  const bars = new BarView({ scope: scope.child("bars"), label: "Error budget of this direction", height: 300 });
  const barCard = sheet.card("Error budget of this direction", bars, { fileName: `${fileName}-budget`, controls: [select("Bars", unit, BUDGET_UNITS)] });
  hide(barCard.element, terms.length === 0);
  image.onPick(({ i, j }) => at.set([i, j]));

  await sheet.follow([of, wave, term, lines, sources, at], async (stale) => {
    const map = maps.find(({ array }) => array.name === of.value) ?? maps[0];
    const k = map.byTerm ? Math.max(terms.indexOf(term.value), 0) : Math.min(Number(wave.value), map.array.shape[0] - 1);
    const { re } = await map.array.block([k, null, null]);
    if (stale()) {
      return;
    }
    hide(waveSelect, map.byTerm);
    hide(termSelect, !map.byTerm);
    const values = Float64Array.from(re, (value) => value * map.factor);
    const title = map.byTerm ? `${map.title}, ${terms[k]}` : waves > 1 ? `${map.title}, ${waveName(k)}` : map.title;
    image.show({ values, nx, ny, x, y, quantity: title, unit: map.unit });
    const shown = sources.value ? [...markers(targets, "cross", "target"), ...markers(stars, "star", "guide star")] : [];
    const [pi, pj] = at.value;
    const picked: Shape = { kind: "marker", id: "picked", x: x.position(pi), y: y.position(pj), symbol: "square", label: "" };
    const all = statistics(values);
    image.setShapes([...(lines.value ? contours({ values, nx, ny }, all.min, all.max, x.position.bind(x), y.position.bind(y)) : []), ...shown, picked]);
    card.title = title[0].toUpperCase() + title.slice(1);
    card.setNote(`Click a direction, or press Enter on it, to see all its numbers. ${shown.length > 0 ? "Stars: guide stars; crosses: targets." : ""}`);
    card.changed();
    const where = (value: number) => {
      const place = values.indexOf(value);
      return `${map.unit} at (${formatNumber(x.position(place % nx), 4)}, ${formatNumber(y.position(Math.floor(place / nx)), 4)}) ${x.unit}`.trim();
    };
    print([
      ["smallest", all.min, where(all.min)],
      ["mean", all.mean, map.unit],
      ["largest", all.max, where(all.max)],
      ["standard deviation", all.deviation, map.unit],
    ]);
  });
  await sheet.follow([at, unit], async (stale) => {
    const [i, j] = at.value;
    const columns = await Promise.all(maps.map(async (map) => ({ map, values: (await map.array.block([null, j, i])).re })));
    if (stale()) {
      return;
    }
    const facts = columns.flatMap(({ map, values }) =>
      Array.from(values, (value, k): Fact => [map.byTerm ? `${map.title}, ${terms[k]}` : waves > 1 ? `${map.title}, ${waveName(k)}` : map.title, value * map.factor, map.unit]),
    );
    printPoint([["x", x.position(i), x.unit], ["y", y.position(j), y.unit], ...facts]);
    const error = columns.find(({ map }) => map.byTerm);
    if (error) {
      const label = `(${formatNumber(x.position(i), 4)}, ${formatNumber(y.position(j), 4)}) ${x.unit}`;
      showBudgets(bars, [budgetOf(label, terms.map((name, k) => ({ name, rms: 1e9 * error.values[k] })))], unit.value);
      barCard.changed();
    }
  });
  return () => sheet.end();
}

function markers(directions: readonly Direction[], symbol: "star" | "cross", name: string): Shape[] {
  return directions.map(({ x, y }, k): Shape => ({ kind: "marker", id: `${symbol}-${k}`, x, y, symbol, label: `${name} ${k}` }));
}

/** Iso-lines at four levels between the smallest and the largest number. */
function contours(map: Parameters<typeof isoLines>[0], min: number, max: number, x: (i: number) => number, y: (j: number) => number): Shape[] {
  if (!(max > min)) {
    return [];
  }
  return [0.2, 0.4, 0.6, 0.8].flatMap((part) => {
    const level = min + part * (max - min);
    const label = formatNumber(level, 3);
    return isoLines(map, level).flatMap((line, k): Shape[] => {
      const points = line.map(([i, j]) => [x(i), y(j)] as const);
      const [tx, ty] = points[Math.floor(points.length / 3)];
      return [
        { kind: "polygon", id: `line-${part}-${k}`, points, label, closed: false },
        { kind: "text", id: `level-${part}-${k}`, x: tx, y: ty, label },
      ];
    });
  });
}
