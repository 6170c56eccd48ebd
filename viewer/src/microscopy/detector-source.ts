/** Where the electrons of an annular detector come from: bins by angle, rings of patterns, or the server. */

import type { ArrayVariable, Numbers } from "../data";
import { inUnit, type Beam } from "./electrons";
import { edgesOf, radialSums, ringMap, ringSums, type RadialSums } from "./rings";

/** A variable by which annular detectors can be computed. */
export interface RadialSource {
  /** Key of the choice. */
  readonly id: string;
  /** In words, for readers. */
  readonly label: string;
  readonly kind: "bins" | "patterns" | "served";
  readonly variable: ArrayVariable;
}

/** All sources among the variables of a file: (…, x, y, angle), (…, x, y, ring) and (…, x, y, qx, qy), the best first. */
export function radialSources(arrays: readonly ArrayVariable[]): RadialSource[] {
  const last = (one: ArrayVariable) => one.dimensions.map((dimension) => dimension.name.replace("_", ""));
  const mean = arrays.filter((one) => !one.complex && !one.name.startsWith("standard_error") && !one.array.derivedFrom?.startsWith("standard_error"));
  const bins = (name: string) => mean.filter((one) => last(one).slice(-3).join() === `x,y,${name}`);
  const patterns = mean.filter((one) => last(one).slice(-4).join() === "x,y,qx,qy");
  return [
    ...bins("angle").map((variable): RadialSource => ({ id: variable.name, label: `angular bins (${variable.name})`, kind: "bins", variable })),
    ...bins("ring").map((variable): RadialSource => ({ id: variable.name, label: `rings of one pixel (${variable.name})`, kind: "bins", variable })),
    ...patterns.map((variable): RadialSource => ({
      id: variable.name,
      label: `patterns (${variable.name}), centre movable`,
      kind: variable.isServed ? "served" : "patterns",
      variable,
    })),
  ];
}

/** Unit of radii of a source: mrad where that can be told, else that of its axis. */
export function radialUnit(source: RadialSource, beam: Beam): string {
  const axis = source.variable.dimensions[source.variable.shape.length - 1];
  return inUnit(axis, "mrad", beam) !== undefined ? "mrad" : axis.unit;
}

/** Ring sums of patterns (x, y, qx, qy) about a centre in samples, in short pieces of work; undefined where a newer request came. */
export async function patternRings(
  patterns: Numbers,
  shape: readonly [number, number, number, number],
  centre: readonly [number, number],
  steps: readonly [number, number],
  factor: number,
  outdated: () => boolean,
): Promise<RadialSums | undefined> {
  const [nx, ny, mx, my] = shape;
  const width = ringWidth(steps);
  const map = ringMap(mx, my, centre[0], centre[1], steps[0], steps[1], width);
  const sums = new Float64Array(nx * ny * map.count);
  const piece = Math.max(Math.floor(2e6 / (mx * my)), 1);
  for (let p = 0; p < nx * ny; p += piece) {
    ringSums(patterns, map, p, Math.min(p + piece, nx * ny), sums);
    if (p + piece < nx * ny) {
      await new Promise((resume) => setTimeout(resume, 0));
      if (outdated()) {
        return undefined;
      }
    }
  }
  return radialSums(sums, nx, ny, Float64Array.from({ length: map.count + 1 }, (_, k) => k * width * factor));
}

/** Width of rings of one pixel: the larger of both steps, so that no ring is empty. */
export function ringWidth(steps: readonly [number, number]): number {
  return Math.max(Math.abs(steps[0]), Math.abs(steps[1]));
}

/** Running sums of bins (x, y, bin); radii are those of the variable's last axis times a factor. */
export function binSums(variable: ArrayVariable, bins: Numbers, factor: number): RadialSums {
  const [x, y, radius] = variable.dimensions.slice(-3);
  const edges = edgesOf(radius.positions()).map((edge) => edge * factor);
  return radialSums(bins, x.count, y.count, edges);
}
