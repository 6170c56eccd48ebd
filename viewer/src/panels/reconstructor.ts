/** Reconstructors as blocks of sensors, and maps of the residual wavefront error. */

import { checkbox, slider } from "../controls";
import { type ArrayVariable, type DataFile } from "../data";
import { centred, statistics } from "../optics/maps";
import { slopeOrder } from "../optics/slope_order";
import { factsOf } from "../optics/system";
import type { PanelContext, PanelFactory, PanelOffer } from "../panel";
import { ImageView } from "../views/image";
import { matrixCards, plainAxis, slopeAxis, truthAxis, type MatrixAxis } from "./matrix";
import { Sheet, stem } from "./sheet";

const GROUP = "Adaptive optics";

/** Panels of reconstructors (target, row, slope), and of `error_map`. */
export const reconstructorPanels: PanelFactory = (file) => {
  const [matrix, error] = [file.array("reconstructor"), file.array("error_map")];
  const offers: PanelOffer[] = [];
  if (matrix?.shape.length === 3) {
    offers.push({ id: "reconstructor", title: "Reconstructor", group: GROUP, order: 60, open: (host, context) => openReconstructor(host, context, file, matrix) });
  }
  if (error?.shape.length === 3) {
    offers.push({ id: "error-map", title: "Residual wavefront error", group: GROUP, order: 61, open: (host, context) => openErrors(host, context, file, error) });
  }
  return offers;
};

/** What a reconstructor gives: "slopes", "wavefront" or "actuators". */
function quantityOf(file: DataFile, matrix: ArrayVariable): string {
  const attribute = file.attributes["to"];
  const told = file.text("to") ?? (typeof attribute === "string" ? attribute : undefined);
  return told ?? (file.array("actuator_mirror") ? "actuators" : matrix.entry.unit === "m/rad" ? "wavefront" : "slopes");
}

async function rowsOf(file: DataFile, matrix: ArrayVariable): Promise<MatrixAxis> {
  const m = matrix.shape[1];
  const quantity = quantityOf(file, matrix);
  if (quantity === "actuators") {
    const mirrors = Array.from((await file.array("actuator_mirror")?.all())?.re ?? []);
    const counts = [...new Set(mirrors)].map((mirror) => [`mirror ${mirror}`, mirrors.filter((one) => one === mirror).length] as const);
    return plainAxis("actuator", m, counts);
  }
  if (quantity === "wavefront") {
    const across = Math.round(Math.sqrt(m));
    return { ...plainAxis("point", m), label: (k) => (across * across === m ? `point (${Math.floor(k / across)}, ${k % across})` : `point ${k}`) };
  }
  const valid = await file.array("truth_valid")?.all();
  const lenslets = valid ? [...valid.re.keys()].filter((k) => valid.re[k] !== 0) : [];
  const axis = truthAxis(m);
  if (!valid || 2 * lenslets.length !== m) {
    return axis;
  }
  const label = (k: number) => {
    const at = lenslets[k % lenslets.length];
    return `truth, ${k < lenslets.length ? "x" : "y"}, lenslet (${Math.floor(at / valid.shape[1])}, ${at % valid.shape[1]})`;
  };
  return { ...axis, label };
}

async function openReconstructor(host: HTMLElement, context: PanelContext, file: DataFile, matrix: ArrayVariable): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const [count, m, n] = matrix.shape;
  const [order, rows] = await Promise.all([slopeOrder(file), rowsOf(file, matrix)]);
  const columns = order?.count === n ? slopeAxis(order) : plainAxis("slope", n);
  const shared = rows.name === "actuator" && count === 1;
  const target = context.scope.cell<number>("target", 0, (k) => Number.isInteger(k) && k >= 0 && k < count);
  const row = context.scope.cell<number>("row", 0, (k) => Number.isInteger(k) && k >= 0 && k < m);
  sheet.controls(
    count > 1 ? slider("Target", target, { count, label: (k) => `${k} of ${count}` }) : undefined,
    slider("Row", row, { count: m, label: (k) => `${k}: ${rows.label(k)}` }),
  );
  const quantity = rows.name === "truth slope" ? "slope of the truth sensor per slope" : rows.name === "actuator" ? "stroke per slope" : "wavefront per slope";
  const unit = rows.name === "truth slope" ? "" : "m/rad";
  await matrixCards(sheet, `${stem(file.name)}-reconstructor`, [target], row, () => ({ array: matrix, fixed: [shared ? 0 : target.value], rows, columns, quantity, unit }));
  return () => sheet.end();
}

/** Variances [m²] by target as maps of the rms error. */
async function openErrors(host: HTMLElement, context: PanelContext, file: DataFile, map: ArrayVariable): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const [targets, ny, nx] = map.shape;
  const without = file.array("error_map_without_tilt");
  const rms = await file.array("error_rms")?.all();
  const system = factsOf(file);
  const truth = file.array("truth_valid");
  const own = (await file.array("wavefront_step")?.all())?.re[0] ?? system.wavefrontStep;
  // At the corners of the truth sensor's lenslets, else at the points of the wavefront.
  const step = truth && truth.shape[1] + 1 === nx && system.diameter !== undefined ? system.diameter / truth.shape[1] : own;
  const target = context.scope.cell<number>("target", 0, (k) => Number.isInteger(k) && k >= 0 && k < targets);
  const tilt = context.scope.cell<boolean>("without-tilt", false);
  sheet.controls(
    targets > 1 ? slider("Target", target, { count: targets, label: (k) => `${k} of ${targets}` }) : undefined,
    without ? checkbox("Without tip and tilt", tilt) : undefined,
  );
  const view = new ImageView({ scope: context.scope.child("map"), label: "Residual wavefront error", height: 420 });
  const card = sheet.card("Residual wavefront error", view, { fileName: `${stem(file.name)}-error-map` });
  const print = sheet.facts("Residual wavefront error of this target");
  await sheet.follow([target, tilt], async (stale) => {
    const { re } = await ((tilt.value && without) || map).block([target.value, null, null]);
    if (stale()) {
      return;
    }
    const values = Float64Array.from(re, (variance) => 1e9 * Math.sqrt(variance));
    const [x, y] = [centred("x", step ? "m" : "", nx, step ?? 1), centred("y", step ? "m" : "", ny, step ?? 1)];
    view.show({ values, nx, ny, x, y, quantity: "rms error", unit: "nm", signed: false });
    const all = statistics(values);
    const told = rms?.shape.length === 2 ? [0, 1].map((k) => 1e9 * rms.re[2 * target.value + k]) : [];
    card.setNote("At each point the root of the error's variance over time.");
    print([
      ...(told.length === 2 ? ([["rms over the pupil, with tip and tilt", told[0], "nm"], ["rms over the pupil, without tip and tilt", told[1], "nm"]] as const) : []),
      ["rms over the points of this map", all.rms, "nm"],
      ["smallest", all.min, "nm"],
      ["largest", all.max, "nm"],
    ]);
    card.changed();
  });
  return () => sheet.end();
}
