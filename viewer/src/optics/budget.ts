/** Error budgets: terms in nm rms whose variances add; a negative term lowers the total, as a covariance of others may. */

import type { DataFile, TableVariable } from "../data";

export interface BudgetTerm {
  readonly name: string;
  /** Root of its variance [nm], with the variance's sign. */
  readonly rms: number;
}

/** The budget of one target or direction, without its total. */
export interface Budget {
  readonly label: string;
  readonly terms: readonly BudgetTerm[];
  /** Root of the sum of the variances [nm]: the file's own where it has one. */
  readonly total: number;
}

/** A variance [nm²] of a root with its sign. */
export function variance(rms: number): number {
  return Math.sign(rms) * rms * rms;
}

/** Root of a variance [nm²], with its sign. */
export function signedRoot(variance: number): number {
  return Math.sign(variance) * Math.sqrt(Math.abs(variance));
}

/** A budget of terms; one that is named "total" is the total. */
export function budgetOf(label: string, all: readonly BudgetTerm[]): Budget {
  const terms = all.filter(({ name }) => name !== "total");
  const own = all.find(({ name }) => name === "total");
  return { label, terms, total: own?.rms ?? signedRoot(terms.reduce((sum, { rms }) => sum + variance(rms), 0)) };
}

/** Percentage that each term has of the variance of the total; they add up to 100 where the total is that of the terms. */
export function percentages({ terms, total }: Budget): number[] {
  return terms.map(({ rms }) => (100 * variance(rms)) / variance(total));
}

/** Budgets of a table with columns `target`, `term` and `rms` [nm, or m], one row for each term of each target. */
export function budgetsOfTable(table: TableVariable): Budget[] {
  const column = (name: string) => table.columns.find((one) => one.name === name || one.name.startsWith(`${name}_`));
  const [targets, terms, rms] = [column("target"), column("term"), column("rms")];
  if (!terms || !rms) {
    return [];
  }
  const scale = rms.unit === "m" ? 1e9 : 1;
  const labels = terms.values.map((_, k) => {
    const target = targets?.values[k] ?? 0;
    return typeof target === "number" ? `target ${target}` : target;
  });
  return [...new Set(labels)].map((label) => {
    const rows = labels.flatMap((other, k) => (other === label ? [k] : []));
    return budgetOf(label, rows.map((k) => ({ name: String(terms.values[k]), rms: Number(rms.values[k]) * scale })));
  });
}

/**
 * Names of the terms of `field_error`, the last of which is the total: those that its labels or its long name list, or the file's
 * table of budgets, else numbers.
 */
export function fieldTerms(file: DataFile): string[] {
  const error = file.array("field_error");
  const count = error?.shape[0] ?? 0;
  const listed = (error?.longName ?? "").split(", ");
  const labels = error?.dimensions[0]?.entry.positions;
  if (labels?.kind === "labels" && labels.labels.length === count) {
    return [...labels.labels];
  }
  if (listed.length === count) {
    return listed;
  }
  const table = file.table("budget");
  const named = table ? budgetsOfTable(table)[0]?.terms.map(({ name }) => name) : undefined;
  return named?.length === count - 1 ? [...named, "total"] : Array.from({ length: count }, (_, k) => (k === count - 1 ? "total" : `term ${k + 1}`));
}

/** The Maréchal approximation of the Strehl ratio, exp(−(2π σ/λ)²), of an error [nm rms] at a wavelength [m]. */
export function marechal(rms: number, wavelength: number): number {
  return Math.exp(-(((2 * Math.PI * rms * 1e-9) / wavelength) ** 2));
}
