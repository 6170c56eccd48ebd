/** Live figures of the image of a star. */

import { formatNumber } from "../../data";
import type { LiveFigure } from "../figure";
import { longExposure, pointSpreadCut, strehlRatio, telescopeTransfer, transferCut } from "../physics/transfer";
import { VonKarman, squareMetres } from "../physics/turbulence";
import { evenly, inUnits } from "./common";
import { ARCSEC } from "../../units";

const opticalTransfer: LiveFigure = {
  title: "Optical transfer function and image of a star",
  hint: "Enlarge the obstruction: the middle frequencies lose contrast and the rings of the image grow. A residual error that is independent between actuators scales the whole transfer function but for the shortest baselines; without correction only baselines of some r₀ remain.",
  open(stage) {
    const diameter = stage.number("Diameter D", { min: 1, max: 12, step: 0.5, initial: 8, unit: "m" });
    const obstruction = stage.number("Central obstruction", { min: 0, max: 0.6, step: 0.02, initial: 0.14, unit: "of D" });
    const wavelength = stage.number("Wavelength λ", { min: 0.5, max: 5, step: 0.05, initial: 1.65, unit: "µm" });
    const fried = stage.number("r₀ at 0.5 µm", { min: 0.05, max: 0.4, step: 0.01, initial: 0.15, unit: "m" });
    const outer = stage.number("Outer scale L₀", { min: 5, max: 100, step: 1, initial: 25, unit: "m" });
    const residual = stage.number("Residual error", { min: 0, max: 400, step: 1, initial: 104, unit: "nm" });
    const transfers = stage.curves("Transfer function", 280);
    const image = stage.curves("Image of a star", 280);
    return () => {
      const metres = 1e-6 * wavelength.value;
      const telescope = telescopeTransfer(diameter.value, obstruction.value, 64);
      const phase = new VonKarman(outer.value);
      const scale = squareMetres(fried.value, 500e-9);
      const corrected = longExposure(telescope, () => 2 * (1e-9 * residual.value) ** 2, metres);
      const seen = longExposure(telescope, (rho) => scale * phase.structureFunction(rho), metres);
      const all = [["perfect", telescope], [`residual of ${residual.value} nm`, corrected], ["without correction", seen]] as const;
      const cuts = all.map(([label, transfer]) => ({ label, values: transferCut(transfer).values }));
      transfers.show({ x: transferCut(telescope).rho, xTitle: "displacement ρ [m]", yTitle: "optical transfer function", series: cuts });
      const reach = Math.min(0.45 * (metres / telescope.step), 12 * (metres / diameter.value));
      const angles = evenly(0, reach, 161);
      image.show({
        x: angles.map((angle) => (1e3 * angle) / ARCSEC), xTitle: "angle [mas]", yTitle: "light [maximum of the perfect image]", logY: true,
        series: all.map(([label, transfer]) => ({ label, values: Float64Array.from(pointSpreadCut(transfer, telescope, metres, [...angles]), (value) => Math.max(value, 1e-7)) })),
      });
      const [strehl, bare] = [corrected, seen].map((transfer) => strehlRatio(transfer, telescope));
      const unit = (1e3 * metres) / diameter.value / ARCSEC;
      return `The Strehl ratio is ${formatNumber(strehl, 3)} with the residual error and ${formatNumber(bare, 3)} without correction; λ/D is ${inUnits(unit, "mas")}.`;
    };
  },
};

export const imageFigures: Readonly<Record<string, LiveFigure>> = { "optical-transfer": opticalTransfer };
