/** Images of a microscope, by focus and thickness, with their power spectra; and the exit waves behind them. */

import { checkbox, disposer, select } from "../controls";
import { type ArrayVariable, DataFile, type Dimension, type Numbers, words, uniform } from "../data";
import { h } from "../dom";
import { beamOf, inUnit } from "../microscopy/electrons";
import { fft2, frequencies, shifted } from "../microscopy/fft";
import { radial } from "../microscopy/profiles";
import type { PanelContext, PanelFactory } from "../panel";
import { type Part, partOf, PARTS, transposed } from "../planes";
import { Card } from "../view";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import { blockAt, byDetector, latest, leading, ofDimensions, Readout, reading, SeriesChoice, total } from "./electron-parts";

/** Names that other panels show. */
const ELSEWHERE = /^(probe|smatrix|potential|compared_.*|standard_error.*)$/;

/** Offers images (…, x, y), real or complex. */
export const imagePanels: PanelFactory = (file) => {
  const all = file.arrays().filter((one) => !ELSEWHERE.test(one.name) && ofDimensions(one, ["x", "y"]) && one.shape.slice(-2).every((n) => n > 1));
  const isMicrograph = all.some((one) => one.name === "image" || one.name === "wave");
  const sorted = [...all].sort(byDetector);
  const open = (host: HTMLElement, context: PanelContext) => openImages(file, sorted, host, context);
  return all.length === 0 ? [] : [{ id: "images", title: isMicrograph ? "Images and exit wave" : "Images", group: "Electrons", order: 15, open }];
};

/** A Hann window of n samples. */
function hann(n: number): Float64Array {
  return Float64Array.from({ length: n }, (_, k) => 0.5 - 0.5 * Math.cos((2 * Math.PI * (k + 0.5)) / n));
}

async function openImages(file: DataFile, all: readonly ArrayVariable[], host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const beam = await beamOf(file);
  const chosen = scope.cell("variable", all[0].name, (name) => all.some((one) => one.name === name));
  const variable = () => all.find((one) => one.name === chosen.value) ?? all[0];
  const series = new SeriesChoice(scope, leading(all.map((one) => [one, 2] as const)));
  const part = scope.cell("part", "intensity", (name) => (PARTS as readonly string[]).includes(name));
  const windowed = scope.cell("window", false);
  const axes = scope.cell("axes", "1/Å", (name) => name === "1/Å" || name === "mrad");
  const view = new ImageView({ scope: scope.child("image"), label: "Image" });
  const power = new ImageView({ scope: scope.child("spectrum"), label: "Power spectrum", scale: "log" });
  const curve = new CurveView({ scope: scope.child("radial"), label: "Power spectrum by frequency" });
  const readout = new Readout();
  const parts = select("Part", part, PARTS.map((value) => ({ value, label: value })));
  const card = new Card("Image", view, {
    fileName: "image",
    controls: [...(all.length > 1 ? [select("Image", chosen, all.map((one) => ({ value: one.name, label: words(one.name) })))] : []), ...series.controls(), ...(all.some((one) => one.complex) ? [parts] : [])],
  });
  const powerCard = new Card("Power spectrum", power, {
    fileName: "power-spectrum",
    controls: [checkbox("Hann window", windowed), ...(beam.perMrad !== undefined ? [select("Axes", axes, [{ value: "1/Å", label: "1/Å" }, { value: "mrad", label: "mrad" }])] : [])],
  });
  const curveCard = new Card("Power spectrum by frequency", curve, { fileName: "power-spectrum-radial" });
  view.element.after(readout.element);
  host.append(h("div", { class: "cards" }, card.element, powerCard.element, curveCard.element));
  ends.add(...[card, powerCard, curveCard].map((one) => () => one.destroy()));

  let block: { re: Numbers; im?: Numbers } | undefined;
  let error: Numbers | undefined;
  const sides = () => variable().dimensions.slice(-2) as [Dimension, Dimension];
  const drawImage = () => {
    if (block === undefined) {
      return;
    }
    const [x, y] = sides();
    const one = variable();
    const shown = part.value as Part;
    parts.hidden = !one.complex;
    const isPhase = one.complex && shown === "phase";
    const quantity = one.complex ? `${words(one.name)}, ${shown}` : words(one.name);
    view.show({ values: partOf(block.re, block.im, shown), nx: x.count, ny: y.count, x, y, quantity, unit: isPhase ? "rad" : one.unit, cyclic: isPhase });
    card.title = [`${quantity[0].toUpperCase()}${quantity.slice(1)}`, series.wordsOf(one)].filter((text) => text !== "").join(", ");
    card.changed();
  };
  const drawPower = () => {
    if (block === undefined) {
      return;
    }
    const [x, y] = sides();
    const [nx, ny] = [x.count, y.count];
    // The mean would outshine all else; of a wave it is the undeflected beam.
    const mean = block.im ? 0 : total(block.re) / (nx * ny);
    const [wx, wy] = windowed.value ? [hann(nx), hann(ny)] : [undefined, undefined];
    const weighted = (values: Numbers, level: number) => Float64Array.from(values, (value, n) => (value - level) * (wx ? wx[n % nx] : 1) * (wy ? wy[Math.floor(n / nx)] : 1));
    const transform = fft2(weighted(block.re, mean), block.im && weighted(block.im, 0), nx, ny);
    const values = shifted(partOf(transform.re, transform.im, "intensity"), nx, ny).map((one) => one / (nx * ny) ** 2);
    const own = x.unit === "Å" ? "1/Å" : x.unit ? `1/${x.unit}` : "1/sample";
    const isAngle = axes.value === "mrad" && own === "1/Å" && beam.perMrad !== undefined;
    const unit = isAngle ? "mrad" : own;
    const steps = [x, y].map((one) => (one.measured ? Math.abs(one.step) : 1));
    const [qx, qy] = [x, y].map((one, k) => {
      const { first, step } = frequencies(one.count, steps[k]);
      const plain = uniform(k === 0 ? "qx" : "qy", own, one.count, first, step);
      const factor = inUnit(plain, unit, beam) ?? 1;
      return uniform(plain.name, unit, one.count, first * factor, step * factor);
    });
    power.show({ values, nx, ny, x: qx, y: qy, quantity: "power", unit: "", signed: false });
    const profile = radial(values, { nx, ny, first: [qx.position(0), qy.position(0)], steps: [qx.step, qy.step] }, [0, 0]);
    const limit = Math.min(nx * qx.step, ny * qy.step) / 2;
    const kept = profile.radius.filter((r) => r <= limit).length;
    curve.show({ x: profile.radius.slice(0, kept), xTitle: `${isAngle ? "angle" : "frequency"} [${unit}]`, yTitle: "mean power", series: [{ label: words(variable().name), values: profile.mean.slice(0, kept) }], logY: true });
    powerCard.setNote(block.im ? "Squared modulus of the wave's Fourier transform, as a share of all electrons." : "Squared modulus of the image's Fourier transform, without its mean.");
    powerCard.changed();
    curveCard.changed();
  };
  const load = latest(context, async () => {
    const one = variable();
    const [x, y] = sides();
    const rows = async (from: ArrayVariable) => {
      const { re, im } = await blockAt(from, series.of(from, 2));
      return im ? { re: transposed(re, x.count, y.count), im: transposed(im, x.count, y.count) } : { re: transposed(re, x.count, y.count) };
    };
    const errors = ofDimensions(file.array(`standard_error_${one.name}`), ["x", "y"]);
    const [found, uncertain] = await Promise.all([rows(one), errors && rows(errors)]);
    block = found;
    error = uncertain?.re;
    drawImage();
    drawPower();
  });
  view.onCursor((cursor) => {
    const [x, y] = sides();
    readout.set(cursor === null ? "" : `${x.label(cursor.i)}, ${y.label(cursor.j)}: ${reading(cursor.value, variable().complex && part.value === "phase" ? "rad" : variable().unit, error?.[cursor.j * x.count + cursor.i])}`);
  });
  ends.add(part.subscribe(drawImage), windowed.subscribe(drawPower), axes.subscribe(drawPower), chosen.subscribe(load), series.subscribe(load));
  load();
  return ends.end;
}
