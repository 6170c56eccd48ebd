/** The script of the book's pages with live figures. */

import { bring } from "./figure";
import { figures } from "./figures";

/** Computed results of a figure, which the page holds as JSON, by the names of their files. */
function resultsOf(element: HTMLElement): ReadonlyMap<string, unknown> {
  const scripts = [...element.querySelectorAll<HTMLScriptElement>("script.live-results")];
  return new Map(scripts.map((script) => [script.dataset.file ?? "", JSON.parse(script.textContent ?? "null") as unknown]));
}

for (const element of document.querySelectorAll<HTMLElement>("figure[data-live]")) {
  const figure = figures[element.dataset.live ?? ""];
  if (figure !== undefined) {
    const begin = () => {
      try {
        bring(element, figure, resultsOf(element));
      } catch (error) {
        // The still figure stays.
        console.error(`live figure ${element.dataset.live}:`, error);
      }
    };
    // A page may have several: each begins when it comes near.
    const watcher = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) {
        watcher.disconnect();
        begin();
      }
    }, { rootMargin: "50% 0px" });
    watcher.observe(element);
  }
}
