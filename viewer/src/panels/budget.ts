/** Error budgets as bars: by target, or over a field. */

import { select } from "../controls";
import type { DataFile } from "../data";
import { budgetOf, budgetsOfTable, fieldTerms, marechal, percentages, signedRoot, variance, type Budget } from "../optics/budget";
import { factsOf } from "../optics/system";
import type { PanelContext, PanelFactory } from "../panel";
import { BarView } from "../views/bars";
import { choiceCell, Sheet, stem, type Fact } from "./sheet";

/** Panels of error budgets: of the table `budget`, or of `field_error`. */
export const budgetPanels: PanelFactory = (file) =>
  file.table("budget") || file.array("field_error")?.shape.length === 3
    ? [{ id: "budget", title: "Error budget", group: "Adaptive optics", order: 20, open: (host, context) => openBudget(host, context, file) }]
    : [];

/** Budgets of a file: those of targets, and the mean over the field where it has one. */
export async function budgetsOf(file: DataFile): Promise<Budget[]> {
  const table = file.table("budget");
  const budgets = table ? budgetsOfTable(table) : [];
  const error = file.array("field_error");
  if (error?.shape.length !== 3) {
    return budgets;
  }
  const { re, shape } = await error.all();
  const points = shape[1] * shape[2];
  const terms = fieldTerms(file).map((name, k) => {
    let sum = 0;
    for (let at = k * points; at < (k + 1) * points; at++) {
      sum += variance(1e9 * re[at]);
    }
    return { name, rms: signedRoot(sum / points) };
  });
  return [...budgets, budgetOf("mean over the field", terms)];
}

/** Bars of budgets: in nm rms, or in percent of the total's variance. */
export function showBudgets(view: BarView, budgets: readonly Budget[], unit: string): void {
  const percent = unit === "percent";
  const groups = budgets.map((one) => {
    const shares = percentages(one);
    const bars = one.terms.map(({ name, rms }, k) => ({ label: name, value: percent ? shares[k] : rms }));
    return { label: one.label, bars: percent ? bars : [...bars, { label: "total", value: one.total }] };
  });
  view.show({ groups, yTitle: percent ? "share of the variance [%]" : "wavefront error [nm rms]" });
}

/** The choice between nm and percent. */
export const BUDGET_UNITS = [
  { value: "nm", label: "nm rms" },
  { value: "percent", label: "percent of the variance" },
];

async function openBudget(host: HTMLElement, context: PanelContext, file: DataFile): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const budgets = await budgetsOf(file);
  const unit = choiceCell(context, "unit", ["nm", "percent"]);
  const { wavelengths } = factsOf(file);
  sheet.controls(select("Bars", unit, BUDGET_UNITS));
  const view = new BarView({ scope: context.scope.child("bars"), label: "Error budget", height: 340 });
  const card = sheet.card("Error budget", view, { fileName: `${stem(file.name)}-budget`, wide: true });
  const print = sheet.facts("Terms: nm rms, and percent of the variance");
  await sheet.follow([unit], () => {
    showBudgets(view, budgets, unit.value);
    const negative = budgets.some(({ terms }) => terms.some(({ rms }) => rms < 0));
    card.setNote(`Variances add up to that of the total.${negative ? " A negative term is a covariance of others that lowers the total: minus the root of its magnitude." : ""}`);
    card.changed();
    print(
      budgets.flatMap((one): Fact[] => {
        const shares = percentages(one);
        const rows = one.terms.map(({ name, rms }, k): Fact => [`${one.label}, ${name}`, rms, `nm rms, ${shares[k].toFixed(1).replace("-", "−")} %`]);
        const strehl = wavelengths.map((wave): Fact => [`${one.label}, Strehl ratio by Maréchal at ${(1e9 * wave).toFixed(0)} nm`, marechal(one.total, wave)]);
        return [...rows, [`${one.label}, total`, one.total, "nm rms"], ...strehl];
      }),
    );
  });
  return () => sheet.end();
}
