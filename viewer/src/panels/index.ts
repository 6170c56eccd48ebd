/** All panels, by what the files of a page hold. */

import type { DataFile } from "../data";
import type { PanelFactory, PanelOffer } from "../panel";
import { analyserPanels } from "./analyser";
import { arrayPanels } from "./arrays";
import { budgetPanels } from "./budget";
import { centrePanels } from "./centre";
import { comparePanels } from "./compare";
import { covariancePanels } from "./covariance";
import { detectorPanels } from "./detector";
import { fieldPanels } from "./field";
import { imagePanels } from "./images";
import { patternPanels } from "./patterns";
import { potentialPanels } from "./potential";
import { probePanels } from "./probe";
import { psfPanels } from "./psf";
import { reconstructorPanels } from "./reconstructor";
import { segmentedPanels } from "./segmented";
import { slopesPanels } from "./slopes";
import { smatrixPanels } from "./smatrix";
import { spectrumPanels } from "./spectrum";
import { textPanels } from "./texts";
import { wavefrontPanels } from "./wavefront";

/** Results of adaptive optics. */
const ADAPTIVE_OPTICS: readonly PanelFactory[] = [
  psfPanels, budgetPanels, fieldPanels, wavefrontPanels, slopesPanels, covariancePanels, reconstructorPanels, spectrumPanels,
];

/** Results of scanning and imaging electron microscopes. */
const ELECTRONS: readonly PanelFactory[] = [
  detectorPanels, imagePanels, segmentedPanels, centrePanels, patternPanels, potentialPanels, probePanels, smatrixPanels, analyserPanels,
];

const FACTORIES: readonly PanelFactory[] = [...ADAPTIVE_OPTICS, ...ELECTRONS, arrayPanels, textPanels];

/** Groups of the list, in their order; the variables of each file come last. */
const GROUPS = ["Compare", "Adaptive optics", "Electrons"];

/** Panels of all files, in the order of the list. */
export function offers(files: readonly DataFile[]): PanelOffer[] {
  const several = files.length > 1;
  const of = (file: DataFile) => (offer: PanelOffer) => {
    const id = `${file.index + 1}-${offer.id}`;
    if (!several) {
      return { ...offer, id };
    }
    const shared = GROUPS.includes(offer.group);
    return { ...offer, id, ...(shared ? { title: `${offer.title} (${file.name})` } : { group: `${offer.group} of ${file.name}`, order: offer.order + 1000 * file.index }) };
  };
  const all = files.flatMap((file) => FACTORIES.flatMap((factory) => factory(file)).map(of(file)));
  const rank = ({ group }: PanelOffer) => (GROUPS.includes(group) ? GROUPS.indexOf(group) : GROUPS.length);
  return [...comparePanels(files), ...all].sort((a, b) => rank(a) - rank(b) || a.order - b.order);
}
