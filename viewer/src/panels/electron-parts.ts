/** What panels of electron microscopy share: sliders of foci and depths, readings under the cursor, computations whose newest request counts. */

import { slider } from "../controls";
import { type ArrayVariable, type Block, Dimension, formatNumber, type Numbers, words } from "../data";
import { h } from "../dom";
import type { PanelContext } from "../panel";
import type { Cell, Scope } from "../store";

/** Choice of a focus and a depth, for all variables of a panel. */
export class SeriesChoice {
  private readonly all: readonly { readonly dimension: Dimension; readonly cell: Cell<number> }[];

  /** `leading` are the dimensions of a series, of one or several variables; equal names are one choice. */
  constructor(scope: Scope, leading: readonly Dimension[]) {
    const first = leading.filter((one, k) => leading.findIndex((other) => other.name === one.name) === k);
    this.all = first.map((dimension) => ({
      dimension,
      cell: scope.cell(dimension.name, 0, (k) => Number.isInteger(k) && k >= 0 && k < dimension.count),
    }));
  }

  /** A slider for each dimension of more than one sample. */
  controls(): HTMLElement[] {
    return this.all
      .filter(({ dimension }) => dimension.count > 1)
      .map(({ dimension, cell }) => {
        const label = (k: number) => (dimension.measured ? reading(dimension.position(k), dimension.unit, undefined, 6) : dimension.label(k));
        return slider(words(dimension.name), cell, { count: dimension.count, label });
      });
  }

  /** Numbers of the chosen samples along the first dimensions of a variable, of which the last `inner` are not of a series. */
  of(variable: ArrayVariable, inner: number): number[] {
    return variable.dimensions.slice(0, variable.shape.length - inner).map((one) => {
      const chosen = this.all.find(({ dimension }) => dimension.name === one.name)?.cell.value ?? 0;
      return Math.min(chosen, one.count - 1);
    });
  }

  /** The chosen samples in words, "defocus 50 Å, thickness 15 Å"; empty where there is no series. */
  get words(): string {
    return this.all.filter(({ dimension }) => dimension.count > 1).map(({ dimension, cell }) => dimension.label(cell.value)).join(", ");
  }

  /** The same of the dimensions that a variable has. */
  wordsOf(variable: ArrayVariable): string {
    return this.all
      .filter(({ dimension }) => dimension.count > 1 && variable.axis(dimension.name) >= 0)
      .map(({ dimension, cell }) => dimension.label(cell.value))
      .join(", ");
  }

  /** Calls back when another sample is chosen. */
  subscribe(listener: () => void): () => void {
    const ends = this.all.map(({ cell }) => cell.subscribe(listener));
    return () => ends.forEach((end) => end());
  }
}

/** Dimensions of a series of variables, of each of which the last `inner` dimensions are not of the series. */
export function leading(variables: readonly (readonly [ArrayVariable | undefined, number])[]): Dimension[] {
  return variables.flatMap(([variable, inner]) => variable?.dimensions.slice(0, variable.shape.length - inner) ?? []);
}

/** The block of a variable whose first dimensions have the given samples, and whose others are whole. */
export function blockAt(variable: ArrayVariable, first: readonly number[]): Promise<Block> {
  return variable.block(variable.shape.map((_, k) => first[k] ?? null));
}

/**
 * Runs `work` at once, or after the run in progress where there is one; requests meanwhile are one. The work is told whether a newer request waits.
 * Errors are printed as a sentence.
 */
export function latest(context: PanelContext, work: (outdated: () => boolean) => Promise<void>): () => void {
  let [running, again] = [false, false];
  const run = async () => {
    running = true;
    do {
      again = false;
      try {
        await work(() => again);
      } catch (error) {
        context.say(error instanceof Error ? error.message : String(error));
      }
    } while (again);
    running = false;
  };
  return () => {
    if (running) {
      again = true;
    } else {
      void run();
    }
  };
}

/** A line of text that is renewed: readings under the cursor. */
export class Readout {
  readonly element = h("p", { class: "readout" }, "\u00a0");

  set(text: string): void {
    this.element.textContent = text === "" ? "\u00a0" : text;
  }
}

/** A value with its unit, and its standard error where there is one. */
export function reading(value: number, unit: string, error?: number, digits = 4): string {
  const number = formatNumber(value, digits);
  const tail = unit === "" ? "" : ` ${unit}`;
  return error === undefined ? `${number}${tail}` : `${number} ± ${formatNumber(error, 2)}${tail}`;
}

/** A group of buttons. */
export function group(label: string, ...buttons: HTMLElement[]): HTMLElement {
  return h("div", { class: "buttons", role: "group", "aria-label": label }, ...buttons);
}

/** The variable of a scan or image with this name, if its last dimensions are of these names. */
export function ofDimensions(variable: ArrayVariable | undefined, names: readonly string[]): ArrayVariable | undefined {
  const last = variable?.dimensions.slice(-names.length).map((one) => one.name.replace("_", ""));
  return last !== undefined && last.length === names.length && last.every((name, k) => name === names[k].replace("_", "")) ? variable : undefined;
}

/** Images of a scan in the order in which one looks at them: annular detectors first, an integrated phase last. */
export function byDetector(a: ArrayVariable, b: ArrayVariable): number {
  const rank = ({ name }: ArrayVariable) => (/^(image$|annulus)/.test(name) ? 0 : name === "wave" ? 1 : name === "idpc" ? 3 : 2);
  return rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true });
}

/** Sum of numbers. */
export function total(values: Numbers): number {
  let sum = 0;
  for (let k = 0; k < values.length; k++) {
    sum += values[k];
  }
  return sum;
}
