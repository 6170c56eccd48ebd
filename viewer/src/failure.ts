/** Errors as sentences of the page. */

import { DataError } from "./data";
import { h } from "./dom";

/** An error as a sentence of the page. */
export function failure(error: unknown): HTMLElement {
  const sentence = error instanceof DataError ? error.message : `This cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
  return h("p", { class: "failure", role: "alert" }, sentence);
}
