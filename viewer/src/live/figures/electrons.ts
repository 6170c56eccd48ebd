/** Live figures of electron optics and specimens. */

import { formatNumber, uniform } from "../../data";
import { svg } from "../../dom";
import type { LiveFigure } from "../figure";
import {
  aberrationPhase, aberrationTerms, contrastTransfer, debyeWaller, probeIntensity, projectedPotential, scherzerDefocus,
} from "../physics/electrons";
import { electronWavelength } from "../../microscopy/electrons";
import { displacementOf } from "../physics/phonons";
import { byDecades, evenly, inUnits } from "./common";
import { Drawing } from "./drawing";

/** Accelerating voltages as a list of choices. */
const ENERGIES = [60, 80, 100, 200, 300].map((energy) => ({ value: String(energy), label: `${energy} kV` }));

/** Largest distance from the maximum at half of it, along both axes of the image [samples]: mean of both directions. */
function halfWidth(values: Float64Array, samples: number): number {
  const peak = values.reduce((best, value, k) => (value > values[best] ? k : best), 0);
  const [px, py] = [peak % samples, Math.floor(peak / samples)];
  const reach = (dx: number, dy: number) => {
    for (let k = 1; k < samples / 2; k++) {
      const at = (n: number) => values[((py + n * dy + samples) % samples) * samples + ((px + n * dx + samples) % samples)];
      if (at(k) < 0.5 * values[peak]) {
        return k - 1 + (at(k - 1) - 0.5 * values[peak]) / (at(k - 1) - at(k));
      }
    }
    return samples / 2;
  };
  return (reach(1, 0) + reach(-1, 0) + reach(0, 1) + reach(0, -1)) / 2;
}

const electronProbe: LiveFigure = {
  title: "Electron probe and its aberration phase",
  hint: "Find the defocus with the highest peak (about −500 Å for C₃ = 1 mm and 10 mrad), then open the aperture: spherical aberration takes over. Astigmatism draws the probe out to a line on either side of focus, coma gives it a tail.",
  open(stage) {
    const energy = stage.choice("Voltage", ENERGIES, "200");
    const angle = stage.number("Semi-angle α₀", { min: 2, max: 24, step: 0.5, initial: 10, unit: "mrad" });
    const c1 = stage.number("Defocus C₁", { min: -1500, max: 500, step: 10, initial: -610, unit: "Å" });
    const c3 = stage.number("C₃", { min: 0, max: 2, step: 0.05, initial: 1, unit: "mm" });
    const c12 = stage.number("Astigmatism C₁₂", { min: 0, max: 300, step: 5, initial: 0, unit: "Å" });
    const phi12 = stage.number("its azimuth", { min: 0, max: 180, step: 5, initial: 0, unit: "°" });
    const c21 = stage.number("Coma C₂₁", { min: 0, max: 3, step: 0.05, initial: 0, unit: "µm" });
    const phi21 = stage.number("its azimuth", { min: 0, max: 360, step: 5, initial: 0, unit: "°" });
    const image = stage.image("Intensity of the probe");
    const phases = stage.curves("Aberration phase along x");
    const [samples, length, shown] = [256, 40, 128];
    return () => {
      const kilovolts = Number(energy.value);
      const wavelength = electronWavelength(kilovolts);
      const degrees = Math.PI / 180;
      const lens = { c1: c1.value, c3: 1e7 * c3.value, c12: c12.value, phi12: phi12.value * degrees, c21: 1e4 * c21.value, phi21: phi21.value * degrees };
      const intensity = probeIntensity({ energy: kilovolts, semiAngle: angle.value, lens }, samples, length);
      const step = length / samples;
      const from = (samples - shown) / 2;
      const middle = Float64Array.from({ length: shown * shown }, (_, k) => intensity[(from + Math.floor(k / shown)) * samples + from + (k % shown)]);
      const axis = (name: string) => uniform(name, "Å", shown, -(shown / 2) * step, step);
      image.show({ values: middle, nx: shown, ny: shown, x: axis("x"), y: axis("y"), quantity: "intensity", unit: "Å⁻²" });
      const terms = aberrationTerms(lens, wavelength);
      const angles = evenly(0, 1.2 * angle.value, 121);
      phases.show({ x: angles, xTitle: "angle α [mrad]", yTitle: "aberration phase χ [rad]", series: [{ label: "χ", values: angles.map((alpha) => aberrationPhase(terms, wavelength, (1e-3 * alpha) / wavelength, 0)) }] });
      phases.setMarkers([{ x: angle.value, label: "α₀" }]);
      const peak = intensity.reduce((most, value) => Math.max(most, value), 0);
      const width = halfWidth(intensity, samples) * step;
      return `The peak is ${inUnits(peak, "Å⁻²")} and the full width at half maximum ${inUnits(width, "Å")}; a perfect lens has its first dark ring at 0.61 λ/α₀ = ${inUnits((0.61 * wavelength) / (1e-3 * angle.value), "Å")}. The Scherzer defocus of this lens is ${inUnits(scherzerDefocus(lens.c3, wavelength), "Å")}.`;
    };
  },
};

const contrast: LiveFigure = {
  title: "Contrast transfer of a weak specimen",
  hint: "Start from the Scherzer defocus and go further under focus: the first zero moves inwards and the curve oscillates. The focal spread damps the high frequencies, the convergence those where the phase is steep.",
  open(stage) {
    const energy = stage.choice("Voltage", ENERGIES, "200");
    const c1 = stage.number("Defocus C₁", { min: -2500, max: 1000, step: 10, initial: -610, unit: "Å" });
    const c3 = stage.number("C₃", { min: -0.05, max: 3, step: 0.05, initial: 1, unit: "mm", format: (x) => formatNumber(x, 3) });
    const spread = stage.number("Focal spread Δ", { min: 0, max: 150, step: 1, initial: 40, unit: "Å" });
    const convergence = stage.number("Convergence β", { min: 0, max: 1, step: 0.02, initial: 0.3, unit: "mrad" });
    stage.action("Scherzer defocus", () => c1.set(Math.round(scherzerDefocus(1e7 * Math.max(c3.value, 0), electronWavelength(Number(energy.value))))));
    const view = stage.curves("Contrast transfer function");
    const x = evenly(0, 0.8, 641);
    return () => {
      const microscope = { energy: Number(energy.value), c1: c1.value, c3: 1e7 * c3.value, focalSpread: spread.value, convergence: convergence.value };
      const found = [...x].map((q) => contrastTransfer(microscope, q));
      const envelope = found.map(({ temporal, spatial }) => temporal * spatial);
      view.show({
        x, xTitle: "spatial frequency q [1/Å]", yTitle: "sin χ with envelopes",
        series: [
          { label: "coherent", values: Float64Array.from(found, (one) => one.contrast) },
          { label: "partially coherent", values: Float64Array.from(found, (one, k) => one.contrast * envelope[k]) },
          { label: "envelope", values: Float64Array.from(envelope, (value) => -value), style: "dashed" },
        ],
      });
      const zero = firstZero(microscope);
      view.setMarkers(zero === null ? [] : [{ x: zero, label: "first zero" }]);
      const reach = envelope.findIndex((value) => value < Math.exp(-2));
      const limit = reach < 0 ? "beyond the figure" : `at ${inUnits(x[reach], "Å⁻¹")}`;
      return `${zero === null ? "There is no zero in the figure" : `The first zero is at ${inUnits(zero, "Å⁻¹")}, a distance of ${inUnits(1 / zero, "Å")}`}; the envelope falls to e⁻² ${limit}.`;
    };
  },
};

/** The first zero of sin χ above q = 0 [1/Å], where χ passes a multiple of π in magnitude; null beyond 0.8 per Å. */
function firstZero({ energy, c1, c3 }: { energy: number; c1: number; c3: number }): number | null {
  const wavelength = electronWavelength(energy);
  const turns = (q: number) => wavelength * q * q * (c1 + 0.5 * c3 * (wavelength * q) ** 2);
  for (let k = 1, before = 0; k <= 3200; k++) {
    const now = turns(k * 0.00025);
    if (before * now < 0 || Math.trunc(now) !== Math.trunc(before)) {
      return k * 0.00025;
    }
    before = now;
  }
  return null;
}

/** Symbols of the elements in the order of their numbers, with Kirkland's parameters. */
type Table = readonly (readonly [string, readonly number[]])[];

const potential: LiveFigure = {
  title: "Projected potentials of atoms",
  hint: "Compare two elements: close to the nucleus a heavier atom always has the higher potential, but sodium reaches farther than neon, since its outer electron screens the nucleus only from farther away.",
  open(stage) {
    const elements = stage.data("live-kirkland.json") as Table;
    const table = new Map(elements);
    const of = (symbol: string, r: number) => projectedPotential(table.get(symbol) as readonly number[], r);
    const choices = elements.map(([symbol], k) => ({ value: symbol, label: `${symbol} (Z = ${k + 1})` }));
    const first = stage.choice("Element", choices, "Si");
    const second = stage.choice("Compared with", choices, "Au");
    const at = stage.number("Distance r", { min: 0.05, max: 3, step: 0.05, initial: 0.5, unit: "Å" });
    const view = stage.curves("Projected potential");
    const x = byDecades(0.02, 3, 121);
    return () => {
      const chosen = [first.value, second.value];
      view.show({
        x, xTitle: "distance r from the nucleus [Å]", yTitle: "projected potential v [V Å]", logX: true, logY: true,
        series: chosen.map((symbol) => ({ label: symbol, values: x.map((r) => of(symbol, r)) })),
      });
      view.setMarkers([{ x: at.value, label: "r" }]);
      const [a, b] = chosen.map((symbol) => of(symbol, at.value));
      return `At ${inUnits(at.value, "Å")} the potential of ${chosen[0]} is ${inUnits(a, "V Å", 4)} and that of ${chosen[1]} ${inUnits(b, "V Å", 4)}, ${formatNumber(b / a, 3)} times as large.`;
    };
  },
};

/** A cell: its sides [Å] and the positions of its atoms [Å]. */
interface Cell {
  readonly cell: readonly [number, number, number];
  readonly atoms: readonly (readonly [number, number, number])[];
}

const phonons: LiveFigure = {
  title: "Frozen phonons of silicon",
  hint: "Step through the configurations, which are those that the program draws for this seed. Heat the crystal: the discs spread, and the reflections fade, those of the highest frequencies first. At room temperature silicon has u = 0.076 Å.",
  open(stage) {
    const { cell, atoms } = stage.data("live-silicon-cell.json") as Cell;
    const u = stage.number("Displacement u", { min: 0, max: 0.3, step: 0.002, initial: 0.076, unit: "Å" });
    const seed = stage.number("Seed", { min: 0, max: 99, step: 1, initial: 3 });
    const configuration = stage.number("Configuration c", { min: 0, max: 63, step: 1, initial: 0 });
    const scale = stage.number("Drawn larger by", { min: 1, max: 10, step: 1, initial: 5 });
    const all = stage.flag("All configurations up to c", false);
    const drawing = stage.view("The cell, seen along the beam", new Drawing("Atoms of the silicon cell, displaced from their rest positions"));
    const factor = stage.curves("Debye–Waller factor");
    const x = evenly(0, 4, 161);
    return () => {
      const [size, margin] = [320, 24];
      const across = size / cell[0];
      const place = (value: number, side: number) => ((value % side) + side) % side;
      const point = ([px, py]: readonly number[]) => [margin + across * place(px, cell[0]), margin + across * (cell[1] - place(py, cell[1]))];
      const rows: (readonly (number | string)[])[] = [];
      const discs: SVGElement[] = [];
      let square = 0;
      for (let c = all.value ? 0 : configuration.value; c <= configuration.value; c++) {
        atoms.forEach((atom, k) => {
          const shift = displacementOf(seed.value, c, k).map((normal) => u.value * normal);
          square += shift.reduce((sum, one) => sum + one * one, 0);
          const [cx, cy] = point([atom[0] + scale.value * shift[0], atom[1] + scale.value * shift[1]]);
          discs.push(svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: all.value ? 3 : 7, class: "moved", "fill-opacity": all.value ? 0.4 : 0.85 }));
          rows.push([c, k, ...shift]);
        });
      }
      const rest = atoms.map((atom) => {
        const [cx, cy] = point(atom);
        return svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 10, class: "rest" });
      });
      const frame = svg("rect", { x: margin, y: margin, width: across * cell[0], height: across * cell[1], class: "frame" });
      const words = svg("text", { x: margin, y: size + 2 * margin - 8 }, `one cell of silicon, ${formatNumber(cell[0], 4)} Å wide`);
      drawing.show([size + 2 * margin, size + 2 * margin], [frame, ...rest, ...discs, words], {
        caption: "Displacements of the atoms", columns: ["configuration", "atom", "x [Å]", "y [Å]", "z [Å]"], rows,
      });
      factor.show({ x, xTitle: "spatial frequency q [1/Å]", yTitle: "Debye–Waller factor", series: [{ label: `u = ${formatNumber(u.value, 3)} Å`, values: x.map((q) => debyeWaller(q, u.value)) }] });
      factor.setMarkers([]);
      const rms = Math.sqrt(square / (3 * rows.length));
      const b = 8 * Math.PI ** 2 * u.value ** 2;
      return `The displacements shown have ${inUnits(rms, "Å")} rms along an axis. B = 8π²u² is ${inUnits(b, "Å²")}; at q = 2 Å⁻¹ a reflection keeps ${formatNumber(100 * debyeWaller(2, u.value), 3)} % of its amplitude.`;
    };
  },
};

export const electronFigures: Readonly<Record<string, LiveFigure>> = {
  "electron-probe": electronProbe,
  "contrast-transfer": contrast,
  "projected-potential": potential,
  "frozen-phonons": phonons,
};
