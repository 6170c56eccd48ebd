/** Panels: what the viewer offers to look at in a file. */

import type { DataFile } from "./data";
import type { Scope, Store } from "./store";

/** What a panel is given to work with. */
export interface PanelContext {
  /** All files of the page. */
  readonly files: readonly DataFile[];
  readonly store: Store;
  /** The panel's own state. */
  readonly scope: Scope;
  /** Prints a sentence in the page's status line, which a screen reader reads. */
  readonly say: (sentence: string) => void;
}

/** A panel that a file, or several, offer. */
export interface PanelOffer {
  /** Letters, digits and "-"; unique in the page together with the file: the key of the panel's state. */
  readonly id: string;
  /** In the list of panels: the field's term, as in "Point-spread function". */
  readonly title: string;
  /** Heading of the list under which it stands. */
  readonly group: string;
  /** Panels are listed from small to large; the first is opened. */
  readonly order: number;
  /** Fills the element; what it returns ends its listeners. Errors are shown as a sentence. */
  open(host: HTMLElement, context: PanelContext): Promise<() => void> | (() => void);
}

/** Panels of one file. */
export type PanelFactory = (file: DataFile) => readonly PanelOffer[];
