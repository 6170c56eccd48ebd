/** The compact S-matrix of PRISM, beam by beam. */

import { disposer, player, select } from "../controls";
import { type ArrayVariable, DataFile, formatNumber, type Numbers, uniform } from "../data";
import { h } from "../dom";
import { beamOf } from "../microscopy/electrons";
import { intensity, reciprocal, waveOf } from "../microscopy/waves";
import type { PanelContext, PanelFactory } from "../panel";
import { type Part, partOf, PARTS } from "../planes";
import { Card } from "../view";
import { ImageView } from "../views/image";
import { blockAt, latest, ofDimensions, total } from "./electron-parts";
import { pictureOf } from "./probe";

/** Offers the S-matrix of a file: `smatrix` (beam, x, y), complex, with the frequencies `smatrix_beams` (beam, axis) of its beams. */
export const smatrixPanels: PanelFactory = (file) => {
  const variable = ofDimensions(file.array("smatrix"), ["beam", "x", "y"]);
  if (variable === undefined || !variable.complex || variable.shape.length !== 3) {
    return [];
  }
  return [{ id: "smatrix", title: "S-matrix by beam", group: "Electrons", order: 65, open: (host, context) => openMatrix(file, variable, host, context) }];
};

/** Largest number of elements of which the intensity of each beam is summed. */
const MOST = 3e7;

/** Ascending values, of which those that differ by rounding only are one. */
function distinct(values: readonly number[]): number[] {
  const sorted = [...values].sort((a, b) => a - b);
  const close = 1e-6 * Math.max(...values.map(Math.abs), 1e-30);
  return sorted.filter((value, k) => k === 0 || value - sorted[k - 1] > close);
}

async function openMatrix(file: DataFile, variable: ArrayVariable, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const beam = await beamOf(file);
  const [along, x, y] = variable.dimensions;
  const listed = file.array("smatrix_beams");
  const isListed = listed !== undefined && listed.shape.length === 2 && listed.shape[0] === along.count && listed.shape[1] === 2;
  const beams = isListed ? (await listed.all()).re : undefined;
  const chosen = scope.cell("beam", 0, (k) => Number.isInteger(k) && k >= 0 && k < along.count);
  const part = scope.cell("part", "intensity", (name) => (PARTS as readonly string[]).includes(name));
  const frequency = (k: number) => {
    if (beams === undefined) {
      return "";
    }
    const [qx, qy] = [beams[2 * k], beams[2 * k + 1]];
    const angle = beam.perMrad === undefined ? "" : `, ${formatNumber(Math.hypot(qx, qy) / beam.perMrad, 3)} mrad`;
    return `q = (${formatNumber(qx, 3)}, ${formatNumber(qy, 3)}) 1/Å${angle}`;
  };
  const view = new ImageView({ scope: scope.child("image"), label: "Plane of the S-matrix" });
  const inverse = new ImageView({ scope: scope.child("reciprocal"), label: "Plane of the S-matrix in reciprocal space", scale: "log" });
  const map = beams === undefined ? undefined : new ImageView({ scope: scope.child("map"), label: "Beams" });
  const card = new Card("Beam", view, { fileName: "smatrix-beam", controls: [player("Beam", chosen, { count: along.count, label: (k) => `${k}` }), select("Part", part, PARTS.map((value) => ({ value, label: value })))] });
  const inverseCard = new Card("Beam in reciprocal space", inverse, { fileName: "smatrix-beam-reciprocal" });
  const mapCard = map && new Card("Beams", map, { fileName: "smatrix-beams" });
  host.append(h("div", { class: "cards" }, card.element, ...(mapCard ? [mapCard.element] : []), inverseCard.element));
  ends.add(() => card.destroy(), () => inverseCard.destroy(), () => mapCard?.destroy());

  const draw = latest(context, async () => {
    const { re, im } = await blockAt(variable, [chosen.value]);
    const wave = waveOf(re, im as Numbers, x, y);
    view.show(pictureOf(wave, part.value as Part, ["x", "y"], x.unit || "Å", "S-matrix"));
    const transform = reciprocal(wave);
    const power = intensity(transform);
    const axis = (k: 0 | 1) => uniform(k === 0 ? "qx" : "qy", "1/Å", [wave.nx, wave.ny][k], transform.first[k], transform.steps[k]);
    inverse.show({ values: power, nx: wave.nx, ny: wave.ny, x: axis(0), y: axis(1), quantity: "intensity", unit: "", signed: false });
    card.title = `Beam ${chosen.value} of ${along.count}${beams ? `, ${frequency(chosen.value)}` : ""}`;
    card.setNote(`Mean intensity ${formatNumber(total(intensity(wave)) / (wave.nx * wave.ny), 5)}.`);
    card.changed();
    inverseCard.changed();
  });

  // The map of beams
  const [columns, rows] = beams === undefined ? [[], []] : [0, 1].map((axis) => distinct(Array.from({ length: along.count }, (_, k) => beams[2 * k + axis])));
  const stepOf = (values: readonly number[]) => (values.length > 1 ? Math.min(...values.slice(1).map((value, k) => value - values[k])) : 1);
  const [stepX, stepY] = [stepOf(columns), stepOf(rows)];
  const count = (values: readonly number[], step: number) => Math.round((values[values.length - 1] - values[0]) / step) + 1;
  const cellOf = (k: number) => [Math.round(((beams as Numbers)[2 * k] - columns[0]) / stepX), Math.round(((beams as Numbers)[2 * k + 1] - rows[0]) / stepY)] as const;
  const drawMap = latest(context, async () => {
    if (map === undefined || mapCard === undefined) {
      return;
    }
    const [nx, ny] = [count(columns, stepX), count(rows, stepY)];
    const values = new Float64Array(nx * ny).fill(NaN);
    const isSummed = variable.size <= MOST;
    for (let k = 0; k < along.count; k++) {
      const [i, j] = cellOf(k);
      const plane = isSummed ? await blockAt(variable, [k]) : undefined;
      values[j * nx + i] = plane ? total(partOf(plane.re, plane.im, "intensity")) / plane.re.length : 1;
    }
    map.show({ values, nx, ny, x: uniform("qx", "1/Å", nx, columns[0], stepX), y: uniform("qy", "1/Å", ny, rows[0], stepY), quantity: isSummed ? "mean intensity of a beam" : "beam", unit: "", signed: false });
    mapCard.setNote("A click, or Enter, picks a beam.");
    mapCard.changed();
  });
  const mark = () => {
    if (beams !== undefined) {
      map?.setShapes([{ kind: "marker", id: "beam", x: beams[2 * chosen.value], y: beams[2 * chosen.value + 1], symbol: "circle", label: `beam ${chosen.value}` }]);
    }
  };
  map?.onPick(({ i, j }) => {
    const found = Array.from({ length: along.count }, (_, k) => k).find((k) => cellOf(k)[0] === i && cellOf(k)[1] === j);
    if (found !== undefined) {
      chosen.set(found);
    }
  });
  ends.add(
    chosen.subscribe(() => {
      mark();
      draw();
    }),
    part.subscribe(draw),
  );
  mark();
  draw();
  drawMap();
  return ends.end;
}
