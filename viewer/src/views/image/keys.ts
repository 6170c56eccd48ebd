/** Keyboard of an image. */

import type { ImageCursor } from "./cursor";
import type { ImageTools } from "./tools";
import type { Viewport } from "./viewport";

/** What the keys do, in words. */
export const KEYS = "Arrow keys move the cursor, with Shift by ten samples; Enter picks; plus, minus and 0 zoom; Escape hides the cursor.";

/** Does what a key that is pressed over an image stands for. */
export function pressKey(event: KeyboardEvent, viewport: Viewport, cursor: ImageCursor, tools: ImageTools): void {
  const { image } = viewport;
  if (!image || event.target !== viewport.plot || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const { key } = event;
  const far = event.shiftKey ? 10 : 1;
  const step = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, far], ArrowDown: [0, -far], PageUp: [0, 10], PageDown: [0, -10], Home: [-image.nx, 0], End: [image.nx, 0] }[key];
  if (step) {
    const { x0, x1, y0, y1 } = viewport.window;
    const from = cursor.at ?? { i: Math.floor((x0 + x1) / 2) - step[0], j: Math.floor((y0 + y1) / 2) - step[1] };
    const clamp = (at: number, count: number) => Math.min(Math.max(at, 0), count - 1);
    const [i, j] = [clamp(from.i + step[0], image.nx), clamp(from.j + step[1], image.ny)];
    viewport.reveal(i, j);
    cursor.set({ i, j, keyboard: true });
  } else if (key === "+" || key === "=") {
    viewport.zoomBy(2, cursor.middle);
  } else if (key === "-" || key === "−") {
    viewport.zoomBy(0.5, cursor.middle);
  } else if (key === "0") {
    viewport.zoom.reset();
  } else if (key === "Enter" && cursor.at) {
    enter(cursor.at.i, cursor.at.j, cursor, tools);
  } else if (key === "Backspace" && tools.outline.length > 0) {
    tools.growOutline(tools.outline.slice(0, -1));
  } else if (key === "Escape" && (cursor.at || tools.tool !== "pan")) {
    tools.outline = [];
    tools.choose("pan");
    cursor.set(undefined);
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

/** Enter at the cursor: picks, or adds a corner of the lasso, which one at the same position closes. */
function enter(i: number, j: number, cursor: ImageCursor, tools: ImageTools): void {
  const { x, y } = cursor.sample(i, j);
  const last = tools.outline.at(-1);
  if (tools.tool !== "lasso") {
    cursor.pick(i, j);
  } else if (last && last[0] === x && last[1] === y) {
    tools.closeOutline();
  } else {
    tools.growOutline([...tools.outline, [x, y]]);
    cursor.spoken.textContent = `Corner ${tools.outline.length}; Enter again at the same position closes the outline.`;
  }
}
