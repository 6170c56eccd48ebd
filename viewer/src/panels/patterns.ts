/** Diffraction patterns of a scan: of the probe under the cursor, and their mean over a lasso. */

import { checkbox, disposer, range, select } from "../controls";
import { type ArrayVariable, DataFile, type Dimension, formatNumber, type Numbers, words, uniform } from "../data";
import { h } from "../dom";
import { beamOf, inUnit } from "../microscopy/electrons";
import { bitMask, meanPattern, probesInside, sumOf } from "../microscopy/scan";
import type { PanelContext, PanelFactory } from "../panel";
import { transposed } from "../planes";
import { Card } from "../view";
import { ImageView } from "../views/image";
import { blockAt, byDetector, latest, leading, ofDimensions, Readout, reading, SeriesChoice } from "./electron-parts";

/** Offers the patterns of a file that has arrays (…, x, y, qx, qy). */
export const patternPanels: PanelFactory = (file) => {
  const all = file.arrays().filter((one) => !one.complex && !one.name.startsWith("standard_error") && ofDimensions(one, ["x", "y", "qx", "qy"]));
  const open = (host: HTMLElement, context: PanelContext) => openPatterns(file, all, host, context);
  return all.length === 0 ? [] : [{ id: "patterns", title: "Diffraction patterns", group: "Electrons", order: 40, open }];
};

type Point = readonly [number, number];

/** Where the picture of the scan comes from: an image of the file, the sum of its angular bins, or of the patterns themselves. */
function scanImages(file: DataFile, patterns: ArrayVariable): { readonly id: string; readonly label: string; readonly variable: ArrayVariable; readonly inner: number }[] {
  const [x, y] = patterns.dimensions.slice(-4);
  const same = (variable: ArrayVariable, inner: number) => {
    const [a, b] = variable.dimensions.slice(-inner);
    return a?.name === "x" && b?.name === "y" && a.count === x.count && b.count === y.count;
  };
  const real = file.arrays().filter((one) => !one.complex && !one.name.startsWith("standard_error"));
  const images = real.filter((one) => same(one, 2)).sort(byDetector).map((variable) => ({ id: variable.name, label: words(variable.name), variable, inner: 2 }));
  const bins = real.filter((one) => one.name === "annular" && same(one, 3)).map((variable) => ({ id: variable.name, label: "all electrons by angle", variable, inner: 3 }));
  return [...images, ...bins, { id: patterns.name, label: "all electrons of the patterns", variable: patterns, inner: 4 }];
}

async function openPatterns(file: DataFile, all: readonly ArrayVariable[], host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const beam = await beamOf(file);
  const chosen = scope.cell("patterns", all[0].name, (name) => all.some((one) => one.name === name));
  const variable = () => all.find((one) => one.name === chosen.value) ?? all[0];
  const images = scanImages(file, all[0]);
  const scanChoice = scope.cell("scan-image", images[0].id, (id) => images.some((one) => one.id === id));
  const series = new SeriesChoice(scope, leading([...all.map((one) => [one, 4] as const), ...images.map((one) => [one.variable, one.inner] as const)]));
  const scanAxes = () => variable().dimensions.slice(-4, -2) as [Dimension, Dimension];
  const [sx, sy] = scanAxes();
  const probe = scope.cell("probe", [Math.floor(sx.count / 2), Math.floor(sy.count / 2)], ([i, j, ...more]) => {
    const isOn = (k: number, count: number) => Number.isInteger(k) && k >= 0 && k < count;
    return more.length === 0 && isOn(i, sx.count) && isOn(j, sy.count);
  });
  const lasso = scope.cell<number[][]>("lasso", [], (points) => points.length < 10_000 && points.every((at) => at.length === 2 && at.every(Number.isFinite)));
  const follow = scope.cell("follow", true);
  const axes = scope.cell("axes", all[0].dimensions.at(-1)?.unit ?? "", (unit) => ["1/Å", "mrad"].includes(unit));
  const masked = scope.cell("mask", false);
  const disc = beam.semiAngle;
  const qFactor = (unit: string) => inUnit(variable().dimensions[variable().shape.length - 1], unit, beam) ?? 1;
  const reach = () => Math.max(...variable().dimensions.slice(-2).map((one) => Math.abs(one.position(one.count - 1)))) * qFactor("mrad");
  const maskRadius = scope.cell("mask-radius", Math.round(Math.min(disc ?? reach() / 5, reach()) * 10) / 10, (r) => r >= 0 && r < 1e4);

  const scan = new ImageView({ scope: scope.child("scan"), label: "Scan" });
  const single = new ImageView({ scope: scope.child("pattern"), label: "Diffraction pattern of a probe", scale: "log" });
  const mean = new ImageView({ scope: scope.child("mean"), label: "Mean diffraction pattern", zoomWith: single, scale: "log" });
  const readout = new Readout();
  const clear = h("button", { type: "button", click: () => lasso.reset() }, "Mean of the whole scan");
  const controls = [
    ...(all.length > 1 ? [select("Patterns", chosen, all.map((one) => ({ value: one.name, label: words(one.name) })))] : []),
    ...series.controls(),
    ...(images.length > 1 ? [select("Scan by", scanChoice, images.map((one) => ({ value: one.id, label: one.label })))] : []),
    checkbox("pattern under the cursor", follow),
    clear,
  ];
  const cards = {
    scan: new Card("Scan", scan, { fileName: "scan", controls, note: "Pick a probe by a click or Enter; draw a lasso for the mean of its probes." }),
    single: new Card("Pattern", single, {
      fileName: "pattern",
      controls: [
        ...(beam.perMrad === undefined ? [] : [select("Axes", axes, [{ value: "1/Å", label: "1/Å" }, { value: "mrad", label: "mrad" }])]),
        checkbox("hide the central disc", masked),
        range("within", maskRadius, { min: 0, max: Math.ceil(reach()), step: 0.1, unit: beam.perMrad === undefined ? "1/Å" : "mrad" }),
      ],
    }),
    mean: new Card("Mean pattern", mean, { fileName: "mean-pattern" }),
  };
  single.element.after(readout.element);
  host.append(h("div", { class: "cards" }, cards.scan.element, cards.single.element, cards.mean.element));
  ends.add(...Object.values(cards).map((card) => () => card.destroy()));

  // Patterns
  let whole: { key: string; values: Numbers } | undefined;
  const patterns = async (): Promise<Numbers> => {
    const at = series.of(variable(), 4);
    const key = `${variable().name} ${at.join()}`;
    if (whole?.key !== key) {
      whole = { key, values: (await blockAt(variable(), at)).re };
    }
    return whole.values;
  };
  const patternOf = async (i: number, j: number, of = variable()): Promise<Numbers> => {
    const [, , mx, my] = of.shape.slice(-4);
    if (of.isServed || of !== variable()) {
      return transposed((await blockAt(of, [...series.of(of, 4), i, j])).re, mx, my);
    }
    const first = (i * sy.count + j) * mx * my;
    return transposed((await patterns()).subarray(first, first + mx * my), mx, my);
  };
  const meanOf = async (probes: readonly number[]): Promise<Numbers> => {
    const [mx, my] = variable().shape.slice(-2);
    const answer = variable().request("mean", { prefix: series.of(variable(), 4).join("."), probes: bitMask(probes, sx.count * sy.count) });
    return transposed(answer === undefined ? meanPattern(await patterns(), mx * my, probes) : new Float32Array(await answer), mx, my);
  };
  const show = (view: ImageView, values: Numbers) => {
    const [qx, qy] = variable().dimensions.slice(-2);
    const factor = qFactor(axes.value);
    const axis = (one: Dimension) => (factor === 1 ? one : uniform(one.name, axes.value, one.count, one.position(0) * factor, one.step * factor));
    let shown = values;
    if (masked.value) {
      const radius = maskRadius.value / qFactor(beam.perMrad === undefined ? qx.unit : "mrad");
      shown = values.slice();
      for (let b = 0; b < qy.count; b++) {
        for (let a = 0; a < qx.count; a++) {
          if (Math.hypot(qx.position(a), qy.position(b)) <= radius) {
            shown[b * qx.count + a] = NaN;
          }
        }
      }
    }
    view.show({ values: shown, nx: qx.count, ny: qy.count, x: axis(qx), y: axis(qy), quantity: "electrons", unit: variable().unit, signed: false });
    const circle = disc !== undefined && beam.perMrad !== undefined ? disc * (axes.value === "mrad" ? 1 : beam.perMrad) : undefined;
    view.setShapes(circle === undefined ? [] : [{ kind: "circle", id: "disc", x: 0, y: 0, r: circle, label: `α ${formatNumber(circle, 3)} ${axes.value}`, dashed: true }]);
  };

  // What is shown
  let at: Point = [probe.value[0], probe.value[1]];
  const error = ofDimensions(file.array(`standard_error_${all[0].name}`), ["x", "y", "qx", "qy"]);
  let errors: Numbers | undefined;
  const drawSingle = latest(context, async () => {
    const [i, j] = at;
    show(single, await patternOf(i, j));
    errors = error && variable() === all[0] ? await patternOf(i, j, error) : undefined;
    cards.single.title = `Pattern at ${words(sx.name)} ${formatNumber(sx.position(i), 4)}, ${words(sy.name)} ${formatNumber(sy.position(j), 4)} ${sx.unit}`;
    cards.single.changed();
  });
  const chosenProbes = () => {
    const found = lasso.value.length > 2 ? probesInside(lasso.value as unknown as Point[], sx.positions(), sy.positions()) : [];
    return found.length > 0 ? found : Array.from({ length: sx.count * sy.count }, (_, k) => k);
  };
  const drawMean = latest(context, async () => {
    const probes = chosenProbes();
    const isAll = probes.length === sx.count * sy.count;
    show(mean, await meanOf(probes));
    cards.mean.title = isAll ? "Mean pattern of the scan" : `Mean pattern of ${probes.length} of ${sx.count * sy.count} probes`;
    clear.disabled = isAll;
    cards.mean.changed();
  });
  const drawScan = latest(context, async () => {
    const one = images.find((image) => image.id === scanChoice.value) ?? images[0];
    const first = series.of(one.variable, one.inner);
    let values: Numbers;
    if (one.inner === 4 && one.variable.isServed) {
      const answer = new Float32Array((await one.variable.request("rings", { cx: "0", cy: "0", prefix: first.join(".") })) as ArrayBuffer);
      const count = answer.length / (sx.count * sy.count);
      values = sumOf(answer, sx.count, sy.count, count, 0, count);
    } else {
      const { re } = await blockAt(one.variable, first);
      const parts = re.length / (sx.count * sy.count);
      values = sumOf(re, sx.count, sy.count, parts, 0, parts);
    }
    scan.show({ values, nx: sx.count, ny: sy.count, x: sx, y: sy, quantity: one.label, unit: one.variable.unit });
    cards.scan.changed();
  });
  const drawShapes = () => {
    const [i, j] = probe.value;
    const points = lasso.value as unknown as Point[];
    scan.setShapes([
      ...(points.length > 2 ? [{ kind: "polygon", id: "lasso", points, label: "mean pattern of these probes", closed: true } as const] : []),
      { kind: "marker", id: "probe", x: sx.position(i), y: sy.position(j), symbol: "cross", label: "probe", drag: true },
    ]);
  };

  scan.onCursor((cursor) => {
    const next: Point = cursor !== null && follow.value ? [cursor.i, cursor.j] : [probe.value[0], probe.value[1]];
    if (next[0] !== at[0] || next[1] !== at[1]) {
      at = next;
      drawSingle();
    }
  });
  scan.onPick(({ i, j }) => probe.set([i, j]));
  scan.onShape(({ id, x, y, live }) => {
    if (id === "probe") {
      const near = (axis: Dimension, value: number) => Math.min(Math.max(Math.round((value - axis.position(0)) / axis.step), 0), axis.count - 1);
      probe.set([near(sx, x), near(sy, y)], { live });
    }
  });
  scan.setLasso((points, live) => lasso.set(points.map(([x, y]) => [x, y]), { live }));
  single.onCursor((cursor) => {
    const [qx, qy] = variable().dimensions.slice(-2);
    const mrad = cursor === null || beam.perMrad === undefined ? "" : ` (${formatNumber((Math.hypot(qx.position(cursor.i), qy.position(cursor.j)) * qFactor("mrad")), 4)} mrad)`;
    readout.set(cursor === null ? "" : `${qx.label(cursor.i)}, ${qy.label(cursor.j)}${mrad}: ${reading(cursor.value, variable().unit, errors?.[cursor.j * qx.count + cursor.i])}`);
  });
  const both = () => {
    drawSingle();
    drawMean();
  };
  ends.add(
    probe.subscribe(([i, j]) => {
      at = [i, j];
      drawShapes();
      drawSingle();
    }),
    lasso.subscribe(() => {
      drawShapes();
      drawMean();
    }),
    ...[axes, masked, maskRadius, chosen].map((cell) => cell.subscribe(both)),
    scanChoice.subscribe(drawScan),
    series.subscribe(() => {
      drawScan();
      both();
    }),
  );
  drawShapes();
  drawScan();
  both();
  return ends.end;
}
