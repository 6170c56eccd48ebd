/** Eigenvalues of the covariance of the measurements, with the filter that drops the smallest. */

import { formatNumber, type ArrayVariable, type DataFile } from "../data";
import { filterOfMethod, spectrumOf } from "../optics/spectrum";
import { factsOf } from "../optics/system";
import type { PanelContext, PanelFactory } from "../panel";
import { CurveView, type Series } from "../views/curve";
import { printed, Sheet, stem } from "./sheet";

/** Panels of spectra: of the variable `eigenvalues`. */
export const spectrumPanels: PanelFactory = (file) => {
  const array = file.array("eigenvalues");
  return array?.shape.length === 1 && array.size > 0
    ? [{ id: "spectrum", title: "Eigenvalues", group: "Adaptive optics", order: 70, open: (host, context) => openSpectrum(host, context, file, array) }]
    : [];
};

async function openSpectrum(host: HTMLElement, context: PanelContext, file: DataFile, array: ArrayVariable): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const method = file.text("method") ?? Object.entries(file.attributes).find(([name]) => name.toLowerCase() === "method")?.[1] ?? "";
  const filter = filterOfMethod(String(method)) ?? factsOf(file).filter ?? 0;
  const { re } = await array.all();
  const { values, threshold, kept, negative, condition, conditionKept } = spectrumOf(re, filter);
  const unit = printed(array.unit || "rad2");
  const view = new CurveView({ scope: context.scope.child("curve"), label: "Eigenvalues", height: 360 });
  const numbers = Float64Array.from(values.keys(), (k) => k + 1);
  const series: Series[] = [{ label: "kept", x: numbers.slice(0, kept), values: values.slice(0, kept), style: "points", unit }];
  if (kept < values.length) {
    series.push({ label: "dropped", x: numbers.slice(kept), values: values.slice(kept), style: "points", unit });
  }
  // A filter far below all eigenvalues would squeeze them into the top of the axis.
  const least = values.findLast((value) => value > 0) ?? 0;
  const far = threshold < 0.1 * least;
  if (threshold > 0 && !far) {
    series.push({ label: `filter, ${formatNumber(filter, 3)} of the largest`, x: Float64Array.of(1, values.length), values: Float64Array.of(threshold, threshold), style: "dashed", unit });
  }
  view.show({ x: numbers, xTitle: "number, from the largest", yTitle: `eigenvalue [${unit}]`, series, logY: true });
  const card = sheet.card("Eigenvalues of the covariance of the measurements", view, { fileName: `${stem(file.name)}-eigenvalues`, wide: true });
  if (kept < values.length) {
    view.setMarkers([{ x: kept + 0.5, label: `${kept} kept` }]);
  }
  card.setNote(threshold > 0 && far ? "The threshold of the filter lies below the axis." : negative > 0 ? `${negative} eigenvalues are negative or zero by rounding; a logarithmic axis has none of them.` : "");
  sheet.facts("Numbers of this spectrum")([
    ["eigenvalues", values.length],
    ["kept", kept],
    ["largest", values[0], unit],
    ["smallest", values[values.length - 1], unit],
    ["threshold of the filter", threshold, unit],
    ["condition number", condition],
    ["condition number of those kept", conditionKept],
  ]);
  return () => sheet.end();
}
