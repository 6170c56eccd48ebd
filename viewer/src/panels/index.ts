/** All panels, by what the files of a page hold. */

import type { DataFile } from "../data";
import type { PanelFactory, PanelOffer } from "../panel";
import { budgetPanels } from "./budget";
import { covariancePanels } from "./covariance";
import { fieldPanels } from "./field";
import { psfPanels } from "./psf";
import { reconstructorPanels } from "./reconstructor";
import { slopesPanels } from "./slopes";
import { spectrumPanels } from "./spectrum";
import { textPanels } from "./texts";
import { wavefrontPanels } from "./wavefront";

const FACTORIES: readonly PanelFactory[] = [
  psfPanels, budgetPanels, fieldPanels, wavefrontPanels, slopesPanels, covariancePanels, reconstructorPanels, spectrumPanels,
  textPanels,
];

/** Panels of all files, in the order of the list. */
export function offers(files: readonly DataFile[]): PanelOffer[] {
  const all = files.flatMap((file) =>
    FACTORIES.flatMap((factory) => factory(file)).map((offer) => {
      const of = files.length > 1 ? ` (${file.name})` : "";
      return { ...offer, id: `${file.index + 1}-${offer.id}`, title: offer.title + of };
    }),
  );
  const groups = ["Compare", "Adaptive optics", "Electrons"];
  const rank = (offer: PanelOffer) => (groups.includes(offer.group) ? groups.indexOf(offer.group) : groups.length);
  return all.sort((a, b) => rank(a) - rank(b) || a.order - b.order);
}
