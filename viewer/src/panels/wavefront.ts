/** Wavefronts by frame and target: over the pupil, with mean and rms of all frames, and what an estimate tells of its solver. */

import { checkbox, player, select } from "../controls";
import { DataError, type ArrayVariable, type DataFile, type Numbers } from "../data";
import { centred } from "../optics/maps";
import { factsOf } from "../optics/system";
import { overPupil, pupilMask, type Removal } from "../optics/wavefront";
import type { PanelContext, PanelFactory } from "../panel";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import { choiceCell, names, numberCell, numbered, Sheet, stem } from "./sheet";

/** Panels of wavefronts (frame, target, y, x). */
export const wavefrontPanels: PanelFactory = (file) => {
  const array = wavefrontOf(file);
  return array === undefined
    ? []
    : [{ id: "wavefront", title: "Wavefronts", group: "Adaptive optics", order: 40, open: (host, context) => openWavefront(host, context, file, array) }];
};

function wavefrontOf(file: DataFile): ArrayVariable | undefined {
  const array = file.array("wavefront");
  return array?.shape.length === 4 && !array.complex ? array : undefined;
}

/** Numbers of an estimate by frame: name of the variable, what is drawn, and whether on a logarithmic axis. */
const SOLVER = [
  ["residual", "relative residual", true],
  ["chi_squared", "χ² over the number of slopes", false],
  ["iterations", "iterations", false],
  ["converged", "converged (1: yes)", false],
] as const;

/** Elements that are read for the curve of all frames, at most, where the server sends them. */
const MOST_SERVED = 1 << 24;

async function openWavefront(host: HTMLElement, context: PanelContext, file: DataFile, array: ArrayVariable): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const [frames, targets, ny, nx] = array.shape;
  const system = factsOf(file);
  const step = (await file.array("wavefront_step")?.all())?.re[0] ?? system.wavefrontStep;
  const binning = array.array.binning[3] ?? 1;
  const mask = step !== undefined && system.diameter !== undefined && nx === ny ? pupilMask(nx, step * binning, system.diameter, system.obstruction) : undefined;
  const lit = mask?.includes(1) ? mask : undefined;
  const others = context.files.filter((other) => other !== file && sameShape(wavefrontOf(other), array));

  const { scope } = context;
  const frame = scope.cell<number>("frame", 0, (k) => Number.isInteger(k) && k >= 0 && k < frames);
  const target = numberCell(context, "target", targets);
  const piston = scope.cell<boolean>("piston", true);
  const tipTilt = scope.cell<boolean>("tip-tilt", false);
  const pupil = scope.cell<boolean>("pupil", lit !== undefined);
  const minus = choiceCell(context, "minus", ["", ...others.map(({ index }) => String(index))]);
  sheet.controls(
    player("Frame", frame, { count: frames, label: (k) => `${k} of ${frames}` }),
    numbered("Target", target, names("target", targets)),
    checkbox("Remove the mean (piston)", piston),
    checkbox("Remove tip and tilt", tipTilt),
    lit && checkbox("Pupil only", pupil),
    others.length > 0
      ? select("Subtract", minus, [{ value: "", label: "nothing" }, ...others.map((one) => ({ value: String(one.index), label: `wavefronts of ${one.name}` }))])
      : undefined,
  );
  const fileName = `${stem(file.name)}-wavefront`;
  const image = new ImageView({ scope: scope.child("map"), label: "Wavefront", height: 420 });
  const card = sheet.card("Wavefront", image, { fileName });
  const curve = new CurveView({ scope: scope.child("frames"), label: "Mean and rms by frame", height: 280 });
  const curveCard = sheet.card("Mean and rms by frame", curve, { fileName: `${fileName}-frames` });
  const print = sheet.facts("Numbers of this frame, over the points that are shown");
  const options = (): Removal => ({ piston: piston.value, tipTilt: tipTilt.value });
  const other = () => wavefrontOf(context.files[Number(minus.value || -1)] ?? file);
  const read = async (k: number): Promise<Numbers> => {
    const at = [k, Number(target.value), null, null];
    const { re } = await array.block(at);
    return minus.value === "" ? re : difference(re, (await (other() as ArrayVariable).block(at)).re);
  };
  const shownMask = () => (pupil.value ? lit : undefined);

  const unit = step === undefined ? "" : "m";
  const x = centred("x", unit, nx, (step ?? 1) * binning);
  const y = centred("y", unit, ny, (step ?? 1) * binning);
  await sheet.follow([frame, target, piston, tipTilt, pupil, minus], async (stale) => {
    const wavefront = await read(frame.value);
    if (stale()) {
      return;
    }
    const shown = overPupil(wavefront, nx, shownMask(), options(), 1e9);
    image.show({ values: shown.values, nx, ny, x, y, quantity: minus.value === "" ? "wavefront" : "difference of wavefronts", unit: "nm", signed: true });
    card.title = `${minus.value === "" ? "Wavefront" : "Difference of wavefronts"}, frame ${frame.value}${targets > 1 ? `, target ${target.value}` : ""}`;
    card.changed();
    print([
      ["mean (piston)", shown.mean, "nm"],
      ["rms", shown.rms, "nm"],
      ["peak to valley", shown.peakToValley, "nm"],
      ...(tipTilt.value ? ([["tip along x, removed", shown.tilt[0] / x.step, unit ? "nm/m" : "nm"], ["tilt along y, removed", shown.tilt[1] / y.step, unit ? "nm/m" : "nm"]] as const) : []),
    ]);
  });

  // Mean and rms of all frames, or of evenly spaced ones where reading all would take long.
  const stride = array.isServed ? Math.max(Math.ceil((frames * nx * ny) / MOST_SERVED), 1) : 1;
  const count = Math.ceil(frames / stride);
  await sheet.follow([target, piston, tipTilt, pupil, minus], async (stale) => {
    const [mean, rms] = [new Float64Array(count), new Float64Array(count)];
    for (let k = 0; k < count; k++) {
      const one = overPupil(await read(k * stride), nx, shownMask(), options(), 1e9);
      [mean[k], rms[k]] = [one.mean, one.rms];
      if (stale()) {
        return;
      }
    }
    const removed = [piston.value && "piston", tipTilt.value && "tip and tilt"].filter(Boolean).join(", ");
    curve.show({
      x: Float64Array.from(mean.keys(), (k) => k * stride),
      xTitle: "frame",
      yTitle: "wavefront [nm]",
      series: [
        { label: removed ? `rms without ${removed}` : "rms", values: rms, unit: "nm" },
        { label: "mean (piston)", values: mean, unit: "nm", style: "dashed" },
      ],
    });
    const overall = Math.sqrt(rms.reduce((sum, one) => sum + one * one, 0) / count);
    curveCard.setNote(`Rms over ${stride === 1 ? "all frames" : `every ${stride}th frame`}: ${overall.toFixed(2)} nm.`);
    curveCard.changed();
  });
  await sheet.follow([frame], () => curve.setMarkers([{ x: frame.value, label: `frame ${frame.value}` }]));
  await solverCards(sheet, file, frames, frame, fileName);
  return () => sheet.end();
}

function sameShape(other: ArrayVariable | undefined, array: ArrayVariable): boolean {
  return other !== undefined && other.shape.every((n, k) => n === array.shape[k]);
}

function difference(a: Numbers, b: Numbers): Float64Array {
  if (a.length !== b.length) {
    throw new DataError("The wavefronts have different numbers of points.");
  }
  return Float64Array.from(a, (value, k) => value - b[k]);
}

/** Iterations, residuals and χ² by frame, where the file has them. */
async function solverCards(sheet: Sheet, file: DataFile, frames: number, frame: { readonly value: number; subscribe(listener: () => void): () => void }, fileName: string): Promise<void> {
  for (const [name, title, logarithmic] of SOLVER) {
    const variable = file.array(name);
    if (variable === undefined || variable.shape.length !== 1 || variable.shape[0] !== frames) {
      continue;
    }
    const { re } = await variable.all();
    if (!re.some(Number.isFinite)) {
      continue;
    }
    const view = new CurveView({ scope: sheet.context.scope.child(name), label: title, height: 180 });
    const card = sheet.card(`${capitals(title)} by frame`, view, { fileName: `${fileName}-${stem(name)}` });
    const failed = name === "converged" ? [...re].filter((one) => one === 0).length : 0;
    const style = name === "converged" ? ("step" as const) : ("line" as const);
    view.show({ x: Float64Array.from(re.keys()), xTitle: "frame", yTitle: title, series: [{ label: title, values: re, style }], logY: logarithmic && re.every((one) => one > 0) });
    card.setNote(name === "converged" ? (failed === 0 ? "The tolerance was met in all frames." : `The tolerance was missed in ${failed} of ${frames} frames.`) : "");
    await sheet.follow([frame], () => view.setMarkers([{ x: frame.value, label: `frame ${frame.value}` }]));
  }
}

/** A title that begins with a capital, unless it begins with a symbol. */
function capitals(title: string): string {
  return /^[a-z]/.test(title) ? title[0].toUpperCase() + title.slice(1) : title;
}
