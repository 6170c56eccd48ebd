/** Colours of an image: its scale, its colour map and the limits of its contrast, with their controls. */

import { h } from "../../dom";
import type { Cell, Scope } from "../../store";
import { quantity } from "../axes";
import { defaultMap, isMapName, MAP_GROUPS, mapLabel, type MapName } from "../colour";
import { ContrastControl, type Contrast, type Limit } from "../histogram";
import type { ImageData2D, ScaleName } from "../image.api";
import { automaticLimits, looksSigned, percentiles, Scale, statistics, together, type Statistics } from "../scale";

const SCALES: readonly (readonly [ScaleName, string])[] = [["linear", "linear"], ["sqrt", "√"], ["log", "log"]];

/** Scale, colour map and limits of an image: those that the reader chose, else by its numbers. */
export class ImageColours {
  /** Name of the scale; that of the colour map, "" for one by the kind of numbers; limits, null where they are automatic. */
  readonly scaleCell: Cell<string>;
  readonly mapCell: Cell<string>;
  private readonly lo: Cell<number | null>;
  private readonly hi: Cell<number | null>;
  private readonly range: Cell<string>;
  private image: ImageData2D | undefined;
  /** What is known of the numbers; with those of an image next to it, where limits are common. */
  stats: Statistics = { min: NaN, max: NaN, minPositive: Infinity, finite: true };
  private signed = false;

  /** `decades`: what a logarithmic scale spans at most. */
  constructor(
    scope: Scope,
    map: string | undefined,
    scale: ScaleName | undefined,
    private readonly decades: number,
  ) {
    const optional = (value: number | null) => value === null || (typeof value === "number" && Number.isFinite(value));
    this.scaleCell = scope.cell<string>("scale", scale ?? "linear", (name) => SCALES.some(([one]) => one === name));
    this.mapCell = scope.cell<string>("map", map && isMapName(map) ? map : "", (name) => name === "" || isMapName(name));
    this.lo = scope.cell<number | null>("lo", null, optional);
    this.hi = scope.cell<number | null>("hi", null, optional);
    this.range = scope.cell<string>("range", "minmax", (name) => name === "minmax" || name === "percentile");
  }

  /** The state that the picture depends on. */
  get cells(): readonly { subscribe(listener: () => void): () => void }[] {
    return [this.scaleCell, this.mapCell, this.lo, this.hi, this.range];
  }

  /** Takes another image. */
  show(image: ImageData2D): void {
    this.image = image;
    this.stats = image.common ? together(statistics(image.values), statistics(image.common)) : statistics(image.values);
    this.signed = !image.cyclic && (image.signed ?? looksSigned(this.stats));
  }

  /** Whether the numbers are angles, whose scale and limits are fixed. */
  get isCyclic(): boolean {
    return this.image?.cyclic === true;
  }

  /** The scale in use. */
  get scaleName(): ScaleName {
    return this.isCyclic ? "linear" : (this.scaleCell.value as ScaleName);
  }

  /** The colour map by the kind of numbers. */
  get automaticMap(): MapName {
    return defaultMap({ signed: this.signed, cyclic: this.isCyclic });
  }

  /** The colour map in use. */
  get mapName(): MapName {
    const chosen = this.mapCell.value;
    return isMapName(chosen) ? chosen : this.automaticMap;
  }

  /** The law between today's limits. */
  scale(): Scale {
    const image = this.image as ImageData2D;
    if (image.cyclic) {
      return new Scale("linear", -Math.PI, Math.PI);
    }
    const name = this.scaleName;
    let [lo, hi] = automaticLimits(this.stats, name, this.signed, this.decades);
    if (this.range.value === "percentile" && Number.isFinite(this.stats.min)) {
      const shares = [image.values, ...(image.common ? [image.common] : [])].map((values) => percentiles(values, [0.01, 0.99]));
      const [a, b] = [Math.min(...shares.map(([low]) => low)), Math.max(...shares.map(([, high]) => high))];
      const size = Math.max(-a, b);
      const [from, to] = this.signed ? [-size, size] : [name === "log" ? Math.max(a, lo) : a, b];
      [lo, hi] = from < to ? [from, to] : [lo, hi];
    }
    const [from, to] = [this.lo.value ?? lo, this.hi.value ?? hi];
    if (from < to) {
      return new Scale(name, from, to);
    }
    // One limit is set beyond the automatic other one.
    const apart = Math.abs(from) || 1;
    return this.hi.value === null ? new Scale(name, from, from + apart) : this.lo.value === null ? new Scale(name, to - apart, to) : new Scale(name, to, from === to ? from + apart : from);
  }

  /** Sets a limit; limits of signed numbers stay symmetric, so that zero keeps its colour. */
  setLimit(limit: Limit, value: number, live: boolean): void {
    if (this.signed) {
      const { hi } = this.scale();
      const size = Math.max(limit === "hi" ? value : -value, Math.abs(hi) * 1e-6);
      this.lo.set(-size, { live: true });
      this.hi.set(size, { live });
    } else {
      this[limit].set(value, { live });
    }
  }

  /** Makes the limits automatic, or holds those of today. */
  setRange(range: "minmax" | "percentile" | "hold"): void {
    const { lo, hi } = this.scale();
    const live = { live: true };
    if (range !== "hold") {
      this.range.set(range, live);
    }
    this.lo.set(range === "hold" ? lo : null, live);
    this.hi.set(range === "hold" ? hi : null);
  }

  /** What the histogram shows. */
  contrast(scale = this.scale()): Contrast {
    const { values, quantity, unit } = this.image as ImageData2D;
    return { values, stats: this.stats, scale, quantity, unit };
  }

  /** Smallest and largest number, and the law where it is not evident. */
  summary(): string {
    const { unit } = this.image as ImageData2D;
    const { min, max } = this.stats;
    const { core } = this.scale();
    const range = Number.isNaN(min) ? "no finite numbers" : `${quantity(min, "", 4)} … ${quantity(max, unit, 4)}`;
    return core > 0 ? `${range}; logarithmic, linear within ±${quantity(core, unit, 2)}` : range;
  }

  /** As `summary`, for screen readers. */
  spokenRange(): string {
    const { unit } = this.image as ImageData2D;
    const { min, max } = this.stats;
    return Number.isNaN(min) ? "no finite numbers" : `from ${quantity(min, unit, 4)} to ${quantity(max, unit, 4)}`;
  }
}

/** Choices of the scale and of the colour map, and the histogram with the limits. */
export class ColourControls {
  readonly scaleSelect: HTMLSelectElement;
  readonly mapSelect: HTMLSelectElement;
  readonly contrast: ContrastControl;
  private readonly automatic = h("option", { value: "" }, "automatic");

  constructor(
    label: string,
    private readonly colours: ImageColours,
  ) {
    const { scaleCell, mapCell } = colours;
    const scaleSelect = h("select", { "aria-label": `Scale, ${label}`, change: () => scaleCell.set(scaleSelect.value) }, ...SCALES.map(([value, text]) => h("option", { value }, text)));
    const mapSelect = h(
      "select",
      { "aria-label": `Colour map, ${label}`, change: () => mapCell.set(mapSelect.value) },
      this.automatic,
      ...MAP_GROUPS.map(({ label: group, names }) => h("optgroup", { label: group }, ...names.map((name) => h("option", { value: name }, mapLabel(name))))),
    );
    [this.scaleSelect, this.mapSelect] = [scaleSelect, mapSelect];
    this.contrast = new ContrastControl(
      label,
      (limit, value, live) => {
        colours.setLimit(limit, value, live);
        // At once, not with the next frame: keys that follow each other fast step from the limit that is set.
        this.contrast.update(colours.contrast(), false);
      },
      (range) => colours.setRange(range),
    );
  }

  /** Shows the state of the colours, but for the histogram. */
  update(): void {
    const { colours, scaleSelect } = this;
    scaleSelect.value = colours.scaleName;
    scaleSelect.disabled = this.contrast.element.hidden = colours.isCyclic;
    this.automatic.textContent = `automatic (${mapLabel(colours.automaticMap)})`;
    this.mapSelect.value = colours.mapCell.value;
  }
}
