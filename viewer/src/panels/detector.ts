/** A virtual annular detector: an image of the scan by the electrons between two angles, which are dragged. */

import { button, checkbox, disposer, range, select } from "../controls";
import { type ArrayVariable, DataFile, type Dimension, formatNumber, type Numbers, uniform } from "../data";
import { eachFrame, h } from "../dom";
import { type RadialSource, binSums, patternRings, radialSources, radialUnit, ringWidth } from "../microscopy/detector-source";
import { type Beam, beamOf, inUnit } from "../microscopy/electrons";
import { annulus, radialCurve, type RadialSums, radialSums, ringAt } from "../microscopy/rings";
import { bitMask, meanPattern } from "../microscopy/scan";
import type { PanelContext, PanelFactory } from "../panel";
import { transposed } from "../planes";
import { Card } from "../view";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import type { Shape } from "../views/image.api";
import { blockAt, group, latest, leading, SeriesChoice } from "./electron-parts";

/** Offers a virtual detector where a file has angular bins, rings or patterns of a scan. */
export const detectorPanels: PanelFactory = (file) => {
  const sources = radialSources(file.arrays());
  const open = (host: HTMLElement, context: PanelContext) => openDetector(file, sources, host, context);
  return sources.length === 0 ? [] : [{ id: "detector", title: "Virtual detector", group: "Electrons", order: 10, open }];
};

/** Detectors by the convergence semi-angle: names, and inner and outer angle in units of it. */
const PRESETS = [
  { name: "BF", words: "Bright field", inner: 0, outer: 1 },
  { name: "ABF", words: "Annular bright field", inner: 0.5, outer: 1 },
  { name: "ADF", words: "Annular dark field", inner: 1, outer: 3 },
  { name: "HAADF", words: "High-angle annular dark field", inner: 3, outer: Infinity },
] as const;

/** Frequencies of the samples of a pattern, in the unit of radii. */
interface PatternAxes {
  readonly first: readonly [number, number];
  readonly steps: readonly [number, number];
  readonly counts: readonly [number, number];
}

function patternAxes(variable: ArrayVariable, unit: string, beam: Beam): PatternAxes {
  const axes = variable.dimensions.slice(-2);
  const factor = inUnit(axes[0], unit, beam) ?? 1;
  const pair = (number: (axis: Dimension) => number) => axes.map(number) as [number, number];
  return { first: pair((axis) => axis.position(0) * factor), steps: pair((axis) => axis.step * factor), counts: pair((axis) => axis.count) };
}

/** A mean pattern by rows, with its axes. */
interface Pattern {
  readonly values: Numbers;
  readonly axes: PatternAxes;
}

/**
 * A picture of the mean pattern that reaches up to `radius`: the recorded pattern where there is one, elsewhere the azimuthal mean of the rings,
 * as electrons in a sample.
 */
export function patternPicture(sums: RadialSums, radius: number, recorded?: Pattern): Pattern {
  const density = radialCurve(sums).map((perWidth, k) => {
    const [low, high] = [sums.edges[k], sums.edges[k + 1]];
    return (perWidth * (high - low)) / (Math.PI * (high * high - low * low));
  });
  const steps: readonly [number, number] = recorded?.axes.steps ?? [radius / 64, radius / 64];
  const first = steps.map((step, k) => {
    const origin = recorded?.axes.first[k] ?? 0;
    return origin - Math.ceil((radius + origin) / step - 1e-6) * step;
  }) as [number, number];
  const counts = steps.map((step, k) => Math.round((radius - first[k]) / step) + 1) as [number, number];
  const [nx, ny] = counts;
  const values = new Float32Array(nx * ny);
  const shift = steps.map((step, k) => (recorded ? Math.round((recorded.axes.first[k] - first[k]) / step) : 0));
  for (let j = 0; j < ny; j++) {
    for (let i = 0; i < nx; i++) {
      const [a, b] = [i - shift[0], j - shift[1]];
      if (recorded && a >= 0 && b >= 0 && a < recorded.axes.counts[0] && b < recorded.axes.counts[1]) {
        values[j * nx + i] = recorded.values[b * recorded.axes.counts[0] + a];
        continue;
      }
      const r = Math.hypot(first[0] + i * steps[0], first[1] + j * steps[1]);
      values[j * nx + i] = r > sums.edges[sums.edges.length - 1] ? NaN : density[ringAt(sums.edges, r)[0]] * Math.abs(steps[0] * steps[1]);
    }
  }
  return { values, axes: { first, steps, counts } };
}

async function openDetector(file: DataFile, all: readonly RadialSource[], host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const beam = await beamOf(file);
  const unit = radialUnit(all[0], beam);
  const radialFactor = (source: RadialSource) => inUnit(source.variable.dimensions[source.variable.shape.length - 1], unit, beam);
  const sources = all.filter((one) => radialFactor(one) !== undefined);
  const imageRank = (one: RadialSource) => (one.kind === "bins" ? 3 : 4);
  const reach = (one: RadialSource) => {
    if (one.kind === "bins") {
      const axis = one.variable.dimensions[one.variable.shape.length - 1];
      return (axis.position(axis.count - 1) + axis.step / 2) * (radialFactor(one) as number);
    }
    const { first, steps, counts } = patternAxes(one.variable, unit, beam);
    return Math.max(...first.map((from, k) => Math.max(-from, from + steps[k] * (counts[k] - 1))));
  };
  const largest = Math.max(...sources.map(reach));
  const alpha = beam.semiAngle !== undefined && unit === "1/Å" ? beam.semiAngle * (beam.perMrad ?? 0) || undefined : beam.semiAngle;

  // State
  const source = scope.cell("source", sources[0].id, (id) => sources.some((one) => one.id === id));
  const radius = (value: number) => value >= 0 && value <= largest * 1.5;
  const startsAt = alpha === undefined ? largest / 2 : largest > 3.3 * alpha ? 3 * alpha : Math.min(alpha, largest / 2);
  const inner = scope.cell("inner", rounded(startsAt), radius);
  const outer = scope.cell("outer", rounded(largest), radius);
  const centre = scope.cell("centre", [0, 0], (at) => at.length === 2 && Math.max(...at.map(Math.abs)) <= largest);
  const picked = scope.cell("probe", [-1, -1], (at) => at.length === 2 && at.every(Number.isInteger));
  const axes = scope.cell("axes", unit, (name) => name === unit || name === "1/Å");
  const perUnit = scope.cell("per-area", false);
  const series = new SeriesChoice(scope, leading(sources.map((one) => [one.variable, imageRank(one)] as const)));
  const current = () => sources.find((one) => one.id === source.value) ?? sources[0];
  const movable = () => current().kind !== "bins";
  const toAxes = () => (axes.value === unit ? 1 : (beam.perMrad ?? 1));

  // Views
  const scan = new ImageView({ scope: scope.child("scan"), label: "Image by the detector" });
  const pattern = new ImageView({ scope: scope.child("pattern"), label: "Mean diffraction pattern with the detector", scale: "log" });
  const curve = new CurveView({ scope: scope.child("curve"), label: "Electrons by angle" });
  const step = largest / 1000;
  const limit = { min: 0, max: rounded(largest), step: step > 0.05 ? 0.1 : Number(step.toPrecision(1)), unit, format: (x: number) => formatNumber(x, 4) };
  const set = (a: number, b: number, live: boolean) => {
    inner.set(rounded(Math.min(Math.max(a, 0), largest)), { live: true });
    outer.set(rounded(Math.min(Math.max(b, 0), largest)), { live });
  };
  const presets = PRESETS.map(({ name, words, inner: a, outer: b }) => {
    const from = (alpha ?? 0) * a;
    const to = b === Infinity ? largest : Math.min((alpha ?? 0) * b, largest);
    const one = button(name, () => set(from, to, false), `${words}: ${formatNumber(rounded(from), 4)} to ${formatNumber(rounded(to), 4)} ${unit}`);
    one.disabled = alpha === undefined || from >= largest;
    return one;
  });
  const recentre = button("Centre at q = 0", () => centre.reset());
  const controls = [
    ...(sources.length > 1 ? [select("Electrons from", source, sources.map((one) => ({ value: one.id, label: one.label })))] : []),
    ...series.controls(),
    group("Detectors by the convergence semi-angle", ...presets),
    range("Inner", inner, limit),
    range("Outer", outer, limit),
  ];
  const patternControls = [
    ...(unit === "mrad" && beam.perMrad !== undefined ? [select("Axes", axes, [{ value: "mrad", label: "mrad" }, { value: "1/Å", label: "1/Å" }])] : []),
    recentre,
  ];
  const cards = {
    scan: new Card("Image", scan, { fileName: "virtual-detector", controls }),
    pattern: new Card("Mean pattern", pattern, { fileName: "mean-pattern", controls: patternControls }),
    curve: new Card("Electrons by angle", curve, { fileName: "electrons-by-angle", controls: [checkbox("per area of the ring", perUnit)] }),
  };
  host.append(h("div", { class: "cards" }, cards.scan.element, cards.pattern.element, cards.curve.element));
  ends.add(...Object.values(cards).map((card) => () => card.destroy()));

  // What is shown
  let sums: RadialSums | undefined;
  let image: Float32Array = new Float32Array(0);
  let pointed: number | undefined;

  const scanAxes = () => current().variable.dimensions.slice(-imageRank(current())).slice(0, 2) as [Dimension, Dimension];

  const drawImage = () => {
    if (sums === undefined) {
      return;
    }
    const [x, y] = scanAxes();
    image = annulus(sums, inner.value, outer.value, image.length === sums.probes ? image : new Float32Array(sums.probes));
    scan.show({ values: image, nx: x.count, ny: y.count, x, y, quantity: "detected electrons", unit: current().variable.unit, signed: false });
    const mrad = `${formatNumber(inner.value, 4)}–${formatNumber(outer.value, 4)} ${unit}`;
    const other = unit === "mrad" && beam.perMrad !== undefined ? ` (${formatNumber(inner.value * beam.perMrad, 3)}–${formatNumber(outer.value * beam.perMrad, 3)} 1/Å)` : "";
    cards.scan.title = `Image, ${mrad}${other}`;
    cards.scan.changed();
    drawDetector();
  };
  const drawDetector = () => {
    const factor = toAxes();
    const [x, y] = movable() ? centre.value : [0, 0];
    const circle = (id: string, r: number, label: string): Shape => ({
      kind: "circle", id, x: x * factor, y: y * factor, r: r * factor, label: `${label} ${formatNumber(r * factor, 4)} ${axes.value}`, drag: movable() ? "both" : "radius",
    });
    const disc: Shape[] = alpha === undefined ? [] : [{ kind: "circle", id: "disc", x: 0, y: 0, r: alpha * factor, label: `α ${formatNumber(alpha * factor, 3)} ${axes.value}`, dashed: true }];
    pattern.setShapes([...disc, circle("inner", inner.value, "inner"), circle("outer", outer.value, "outer")]);
    curve.setMarkers([{ x: inner.value * factor, label: "inner" }, { x: outer.value * factor, label: "outer" }]);
  };
  const drawCurve = () => {
    if (sums === undefined) {
      return;
    }
    const { edges } = sums;
    const factor = toAxes();
    const x = Float64Array.from({ length: edges.length - 1 }, (_, k) => (factor * (edges[k] + edges[k + 1])) / 2);
    const scaled = (values: Float64Array) => values.map((one, k) => one / factor / (perUnit.value ? Math.PI * factor * (edges[k] + edges[k + 1]) : 1));
    const lines = [{ label: "mean of the scan", values: scaled(radialCurve(sums)) }];
    if (pointed !== undefined && pointed < sums.probes) {
      const [nx] = [scanAxes()[0].count];
      lines.push({ label: `probe ${pointed % nx}, ${Math.floor(pointed / nx)}`, values: scaled(radialCurve(sums, pointed)) });
    }
    const share = current().variable.unit || "share";
    curve.show({ x, xTitle: `${axes.value === "mrad" ? "angle" : "frequency"} [${axes.value}]`, yTitle: `electrons [${share} per ${axes.value}${perUnit.value ? "²" : ""}]`, series: lines, logY: true });
    cards.curve.changed();
  };

  // The numbers
  let loaded: { key: string; patterns: Numbers } | undefined;
  const recorded = async (): Promise<Pattern | undefined> => {
    const with4d = sources.find((one) => one.kind !== "bins" && (current().kind === "bins" || one === current()));
    if (with4d === undefined) {
      return undefined;
    }
    const { variable } = with4d;
    const [nx, ny, mx, my] = variable.shape.slice(-4);
    const at = series.of(variable, 4);
    let mean: Numbers;
    if (with4d.kind === "served") {
      const every = Array.from({ length: nx * ny }, (_, k) => k);
      mean = new Float32Array((await variable.request("mean", { prefix: at.join("."), probes: bitMask(every, nx * ny) })) as ArrayBuffer);
    } else {
      mean = meanPattern((await block4d(variable, at)), mx * my, Array.from({ length: nx * ny }, (_, k) => k));
    }
    return { values: transposed(mean, mx, my), axes: patternAxes(variable, unit, beam) };
  };
  const block4d = async (variable: ArrayVariable, at: readonly number[]): Promise<Numbers> => {
    const key = `${variable.name}:${at.join()}`;
    if (loaded?.key !== key) {
      loaded = { key, patterns: (await blockAt(variable, at)).re };
    }
    return loaded.patterns;
  };
  const load = async (outdated: () => boolean): Promise<RadialSums | undefined> => {
    const one = current();
    const at = series.of(one.variable, imageRank(one));
    const factor = radialFactor(one) as number;
    if (one.kind === "bins") {
      return binSums(one.variable, (await blockAt(one.variable, at)).re, factor);
    }
    const [qx, qy] = one.variable.dimensions.slice(-2);
    const shape = one.variable.shape.slice(-4) as unknown as [number, number, number, number];
    const steps = [Math.abs(qx.step), Math.abs(qy.step)] as const;
    const sample = [qx, qy].map((axis, k) => (centre.value[k] / factor - axis.position(0)) / axis.step) as [number, number];
    if (one.kind === "patterns") {
      return patternRings(await block4d(one.variable, at), shape, sample, steps, factor, outdated);
    }
    const answer = new Float32Array((await one.variable.request("rings", { cx: String(sample[0]), cy: String(sample[1]), prefix: at.join(".") })) as ArrayBuffer);
    const count = answer.length / (shape[0] * shape[1]);
    const width = ringWidth(steps) * factor;
    return radialSums(answer, shape[0], shape[1], Float64Array.from({ length: count + 1 }, (_, k) => k * width));
  };

  let background = "";
  const drawPattern = async () => {
    const key = `${source.value} ${series.words} ${axes.value}`;
    if (sums === undefined || key === background) {
      return;
    }
    background = key;
    const factor = toAxes();
    const measured = await recorded();
    const { values, axes: at } = patternPicture(sums, reach(current()), measured);
    const axis = (name: string, k: 0 | 1) => uniform(name, axes.value, at.counts[k], at.first[k] * factor, at.steps[k] * factor);
    pattern.show({ values, nx: at.counts[0], ny: at.counts[1], x: axis("qx", 0), y: axis("qy", 1), quantity: "electrons in a sample", unit: current().variable.unit, signed: false });
    cards.pattern.changed();
    cards.pattern.setNote(
      measured === undefined
        ? "Azimuthal mean: the file has bins by angle, and no patterns."
        : current().kind === "bins" && reach(current()) > reachOf(measured.axes) * 1.01
          ? "Outside the recorded patterns: azimuthal mean of the bins by angle."
          : "",
    );
  };
  const reachOf = ({ first, steps, counts }: PatternAxes) => Math.max(...first.map((from, k) => Math.abs(from + steps[k] * (counts[k] - 1))));

  const renew = latest(context, async (outdated) => {
    const found = await load(outdated);
    if (found === undefined) {
      return;
    }
    sums = found;
    drawImage();
    drawCurve();
    recentre.hidden = !movable();
    cards.scan.setNote(`Of ${movable() ? "rings" : "bins"} that a radius cuts, the share by width is counted.${current().variable.array.reduced ? ` ${current().variable.array.reduced}` : ""}`);
    await drawPattern();
  });

  // Listen
  const frame = eachFrame(drawImage);
  ends.add(
    inner.subscribe(frame),
    outer.subscribe(frame),
    centre.subscribe(renew),
    source.subscribe(renew),
    series.subscribe(renew),
    perUnit.subscribe(drawCurve),
    axes.subscribe(() => {
      drawCurve();
      drawDetector();
      void drawPattern();
    }),
  );
  pattern.onShape(({ id, x, y, r, live }) => {
    const factor = toAxes();
    if (movable() && Math.hypot(x / factor - centre.value[0], y / factor - centre.value[1]) > 1e-9 * largest) {
      centre.set([x / factor, y / factor], { live });
      return;
    }
    const value = rounded(r / factor);
    if (id === "inner") {
      set(Math.min(value, outer.value), outer.value, live);
    } else if (id === "outer") {
      set(inner.value, Math.max(value, inner.value), live);
    }
  });
  curve.onMarker((k, x, live) => {
    const value = x / toAxes();
    k === 0 ? set(Math.min(value, outer.value), outer.value, live) : set(inner.value, Math.max(value, inner.value), live);
  });
  const probeOf = (i: number, j: number) => {
    const [x, y] = scanAxes();
    return i >= 0 && j >= 0 && i < x.count && j < y.count ? j * x.count + i : undefined;
  };
  scan.onCursor((cursor) => {
    pointed = cursor === null ? probeOf(picked.value[0], picked.value[1]) : probeOf(cursor.i, cursor.j);
    drawCurve();
  });
  scan.onPick(({ i, j }) => picked.set(picked.value[0] === i && picked.value[1] === j ? [-1, -1] : [i, j]));
  const mark = () => {
    const [i, j] = picked.value;
    const [x, y] = scanAxes();
    pointed = probeOf(i, j);
    scan.setShapes(pointed === undefined ? [] : [{ kind: "marker", id: "probe", x: x.position(i), y: y.position(j), symbol: "cross", label: "probe of the curve" }]);
    drawCurve();
  };
  ends.add(picked.subscribe(mark));
  mark();
  renew();
  return ends.end;
}

/** A radius to four digits or a thousandth: what a slider or a link holds. */
function rounded(x: number): number {
  return Math.round(x * 1000) / 1000;
}
