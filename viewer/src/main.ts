/** Entry of a page that `lenslet view` writes. */

import { start } from "./app";
import { DataError, openFiles } from "./data";
import { failure } from "./failure";
import type { Manifest } from "./manifest";
import { partSource } from "./source";

const root = document.getElementById("lenslet-viewer") as HTMLElement;
try {
  const text = document.getElementById("lenslet-manifest")?.textContent;
  if (text === null || text === undefined) {
    throw new DataError("The page is cut short: it has no list of its contents.");
  }
  let manifest: Manifest;
  try {
    manifest = JSON.parse(text) as Manifest;
  } catch {
    throw new DataError("The page is damaged: the list of its contents cannot be read.");
  }
  start(root, openFiles(manifest, partSource(document, manifest.server)), manifest.program);
} catch (error) {
  root.append(failure(error));
}
