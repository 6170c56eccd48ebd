/** Zoom of an image by the wheel, and by pinching on a touchpad. */

import type { Viewport } from "./viewport";

let pageScrolled = -Infinity;
let watching = false;

/** Remembers when the wheel scrolled the page, so that a scroll that passes over an image goes on. */
function watchScrolling(): void {
  if (!watching) {
    watching = true;
    addEventListener("wheel", (event) => {
      if (!(event.target instanceof Element && event.target.closest(".iv-plot"))) {
        pageScrolled = event.timeStamp;
      }
    }, { capture: true, passive: true });
  }
}

/** Lets the wheel zoom about the pointer, until the signal; a whole image is left to the scrolling page where the wheel would zoom out. */
export function zoomByWheel(viewport: Viewport, signal: AbortSignal): void {
  let resting: ReturnType<typeof setTimeout> | undefined;
  watchScrolling();
  signal.addEventListener("abort", () => clearTimeout(resting));
  viewport.plot.addEventListener("wheel", (event) => {
    const { ctrlKey, deltaMode, deltaY, timeStamp } = event;
    const scrolling = timeStamp - pageScrolled < 300;
    if (!viewport.image || deltaY === 0 || (scrolling && !ctrlKey)) {
      pageScrolled = scrolling ? timeStamp : pageScrolled;
      return;
    }
    if (deltaY > 0 && !viewport.isZoomed && !ctrlKey) {
      return;
    }
    event.preventDefault();
    const lines = deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    viewport.zoomBy(Math.exp(-Math.min(Math.max(deltaY * lines, -240), 240) * (ctrlKey ? 0.01 : 0.003)), viewport.sampleAt(event), true);
    clearTimeout(resting);
    resting = setTimeout(() => viewport.commit(), 300);
  }, { passive: false, signal });
}
