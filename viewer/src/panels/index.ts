/** All panels, by what the files of a page hold. */

import type { DataFile } from "../data";
import type { PanelFactory, PanelOffer } from "../panel";
import { arrayPanels } from "./arrays";
import { textPanels } from "./texts";

const FACTORIES: readonly PanelFactory[] = [arrayPanels, textPanels];

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
  return all.sort((a, b) => rank(a) - rank(b) || a.order - b.order);
}
