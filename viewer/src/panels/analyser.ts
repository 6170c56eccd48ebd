/** Probe analyser: exit waves of single probes by PRISM, compared with multislice in real and reciprocal space. */

import { checkbox, disposer, select, slider } from "../controls";
import { type ArrayVariable, DataFile, type Dimension, formatNumber, type Numbers, uniform } from "../data";
import { h } from "../dom";
import { beamOf } from "../microscopy/electrons";
import { correlation, radial, rFactor } from "../microscopy/profiles";
import { sumOf } from "../microscopy/scan";
import { centred, intensity, reciprocal, type Wave, waveOf } from "../microscopy/waves";
import type { PanelContext, PanelFactory } from "../panel";
import { Card } from "../view";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import { blockAt, byDetector, latest, leading, ofDimensions, SeriesChoice } from "./electron-parts";
import { inMrad } from "./probe";

const NAMES = ["compared_prism", "compared_multislice"] as const;

/** Offers the compared probes of a file: `compared_prism` and `compared_multislice` (…, probe, x, y), complex. */
export const analyserPanels: PanelFactory = (file) => {
  const [prism, multislice] = NAMES.map((name) => ofDimensions(file.array(name), ["probe", "x", "y"]));
  const isPair = prism !== undefined && multislice !== undefined && prism.complex && multislice.complex && prism.shape.join() === multislice.shape.join();
  if (!isPair) {
    return [];
  }
  return [{ id: "probe-analyser", title: "Probe analyser", group: "Electrons", order: 70, open: (host, context) => openAnalyser(file, prism, multislice, host, context) }];
};

/** Positions of the compared probes, in the unit of the scan: `compared_places` (probe, axis). */
async function places(file: DataFile, count: number): Promise<(readonly [number, number])[]> {
  const found = file.array("compared_places");
  if (found === undefined || found.shape.length !== 2 || found.shape[0] !== count || found.shape[1] !== 2) {
    return [];
  }
  const { re } = await found.all();
  return Array.from({ length: count }, (_, k) => [re[2 * k], re[2 * k + 1]]);
}

async function openAnalyser(file: DataFile, prism: ArrayVariable, multislice: ArrayVariable, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const beam = await beamOf(file);
  const [along, x, y] = prism.dimensions.slice(-3) as [Dimension, Dimension, Dimension];
  const at = await places(file, along.count);
  const series = new SeriesChoice(scope, leading([[prism, 3]]));
  const probe = scope.cell("probe", 0, (k) => Number.isInteger(k) && k >= 0 && k < along.count);
  const axes = scope.cell("axes", beam.perMrad === undefined ? "1/Å" : "mrad", (name) => name === "1/Å" || (name === "mrad" && beam.perMrad !== undefined));
  const moved = scope.cell("centred", at.length > 0);
  const relative = scope.cell("relative", false);
  const unit = x.unit || "Å";
  const labelOf = (k: number) => (at.length > 0 ? `${k}: x ${formatNumber(at[k][0], 4)}, y ${formatNumber(at[k][1], 4)} ${unit}` : `probe ${k}`);

  // Views: both spaces, and PRISM, multislice and their difference in each
  const spaces = [
    { key: "real", title: "real space", names: ["x", "y"] as const },
    { key: "reciprocal", title: "reciprocal space", names: ["qx", "qy"] as const },
  ].map((space) => {
    const child = scope.child(space.key);
    const initial = space.key === "real" ? "linear" : "log";
    const first = new ImageView({ scope: child.child("prism"), label: `PRISM, ${space.title}`, scale: initial });
    const rest = ["multislice", "difference"].map((name) => new ImageView({ scope: child.child(name), label: `${name}, ${space.title}`, zoomWith: first, scale: name === "difference" ? "linear" : initial }));
    const views = [first, ...rest];
    const cards = views.map((view, k) => new Card(`${["PRISM", "Multislice", "PRISM − multislice"][k]}, ${space.title}`, view, { fileName: `probe-${["prism", "multislice", "difference"][k]}-${space.key}` }));
    const curve = new CurveView({ scope: child.child("curve"), label: `Radial profiles, ${space.title}` });
    const curveCard = new Card(`Radial profiles, ${space.title}`, curve, { fileName: `probe-profiles-${space.key}` });
    return { ...space, views, cards, curve, curveCard };
  });
  const scan = scanOf(file);
  const scanView = scan && at.length > 0 ? new ImageView({ scope: scope.child("scan"), label: "Compared probes on the scan" }) : undefined;
  const scanCard = scanView && new Card("Compared probes", scanView, { fileName: "compared-probes", note: "A click, or Enter, picks the nearest of the compared probes." });
  const agreement = h("p", { class: "readout", role: "status" });
  const controls = h(
    "div",
    { class: "controls" },
    slider("Probe", probe, { count: along.count, label: labelOf }),
    ...series.controls(),
    ...(at.length > 0 ? [checkbox("centre on the probe", moved)] : []),
    checkbox("difference in shares of the maximum", relative),
    ...(beam.perMrad === undefined ? [] : [select("Axes", axes, [{ value: "mrad", label: "mrad" }, { value: "1/Å", label: "1/Å" }])]),
  );
  host.append(controls, agreement);
  // Rows of their own, so that PRISM and multislice are side by side
  const rows = [...(scanCard ? [[scanCard.element]] : []), ...spaces.map(({ cards, curveCard }) => [...cards, curveCard].map((card) => card.element))];
  host.append(...rows.map((row) => h("div", { class: "cards" }, ...row)));
  ends.add(...spaces.flatMap(({ cards, curveCard }) => [...cards, curveCard].map((card) => () => card.destroy())));
  if (scanCard) {
    ends.add(() => scanCard.destroy());
  }

  let waves: readonly Wave[] = [];
  const draw = () => {
    if (waves.length === 0) {
      return;
    }
    const place = at[probe.value];
    const real = waves.map((wave) => (moved.value && place !== undefined ? centred(wave, place) : wave));
    const isAngle = axes.value === "mrad";
    const inverse = real.map((wave) => (isAngle ? inMrad(reciprocal(wave), beam) : reciprocal(wave)));
    const sentences: string[] = [];
    spaces.forEach(({ names, title, views, cards, curve, curveCard }, s) => {
      const pair = s === 0 ? real : inverse;
      const [a, b] = pair.map(intensity);
      const [wave] = pair;
      const units = s === 0 ? unit : axes.value;
      const axis = (k: 0 | 1) => uniform(names[k], units, [wave.nx, wave.ny][k], wave.first[k], wave.steps[k]);
      const top = relative.value ? 1 / b.reduce((most, one) => Math.max(most, one), 0) : 1;
      const difference = a.map((one, k) => (one - b[k]) * top);
      [a, b, difference].forEach((values, k) => {
        const quantity = k < 2 ? "intensity" : relative.value ? "difference, share of the maximum" : "difference";
        views[k].show({ values, nx: wave.nx, ny: wave.ny, x: axis(0), y: axis(1), quantity, unit: "", signed: k === 2 });
        cards[k].changed();
      });
      const profiles = [a, b].map((values) => radial(values, wave, s === 0 && place !== undefined && !moved.value ? place : [0, 0], s === 0));
      const xTitle = s === 0 ? `radius [${units}]` : `${isAngle ? "angle" : "frequency"} [${units}]`;
      curve.show({ x: profiles[0].radius, xTitle, yTitle: "mean intensity", series: [{ label: "PRISM", values: profiles[0].mean }, { label: "multislice", values: profiles[1].mean, style: "dashed" }], logY: s === 1 });
      curveCard.changed();
      sentences.push(`${title[0].toUpperCase()}${title.slice(1)}: correlation coefficient ${formatNumber(correlation(a, b), 6)}, R-factor ${formatNumber(100 * rFactor(a, b), 3)} %.`);
    });
    agreement.textContent = sentences.join(" ");
  };
  const load = latest(context, async () => {
    const of = async (one: ArrayVariable) => {
      const { re, im } = await blockAt(one, [...series.of(one, 3), probe.value]);
      return waveOf(re, im as Numbers, x, y);
    };
    waves = await Promise.all([of(prism), of(multislice)]);
    draw();
  });
  const drawScan = latest(context, async () => {
    if (scan === undefined || scanView === undefined) {
      return;
    }
    const { re } = await blockAt(scan.variable, series.of(scan.variable, scan.inner));
    const [sx, sy] = scan.variable.dimensions.slice(-scan.inner);
    const parts = re.length / (sx.count * sy.count);
    scanView.show({ values: sumOf(re, sx.count, sy.count, parts, 0, parts), nx: sx.count, ny: sy.count, x: sx, y: sy, quantity: "detected electrons", unit: scan.variable.unit });
    scanCard?.changed();
  });
  const mark = () =>
    scanView?.setShapes(at.map(([px, py], k) => ({ kind: "marker", id: `probe-${k}`, x: px, y: py, symbol: k === probe.value ? "star" : "circle", label: labelOf(k) })));
  scanView?.onPick((cursor) => {
    const distance = ([px, py]: readonly [number, number]) => Math.hypot(px - cursor.x, py - cursor.y);
    probe.set(at.reduce((best, place, k) => (distance(place) < distance(at[best]) ? k : best), 0));
  });
  ends.add(
    probe.subscribe(() => {
      mark();
      load();
    }),
    series.subscribe(() => {
      load();
      drawScan();
    }),
    ...[moved, relative].map((cell) => cell.subscribe(draw)),
    axes.subscribe(draw),
  );
  mark();
  drawScan();
  load();
  return ends.end;
}

/** An image of the scan: an annulus, else the sum of the angular bins. */
function scanOf(file: DataFile): { readonly variable: ArrayVariable; readonly inner: number } | undefined {
  const [annulus] = file.arrays().filter((one) => one.name.startsWith("annulus") && ofDimensions(one, ["x", "y"])).sort(byDetector);
  const bins = ofDimensions(file.array("annular"), ["x", "y", "angle"]);
  return annulus ? { variable: annulus, inner: 2 } : bins && { variable: bins, inner: 3 };
}
