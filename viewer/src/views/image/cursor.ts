/** Cursor of an image: the sample that is read out, with a cross-hair that linked images share. */

import { h, svg } from "../../dom";
import { quantity } from "../axes";
import type { Cursor, ImageData2D } from "../image.api";
import type { Point, Viewport } from "./viewport";

/** The sample of a cursor; that of the keyboard has a cross-hair. */
export interface CursorSample {
  readonly i: number;
  readonly j: number;
  readonly keyboard: boolean;
}

/** The cursor of an image with its read-out. */
export class ImageCursor {
  readonly crossHair = svg("path", { class: "iv-cross", "aria-hidden": "true" });
  /** The position and the number under the cursor; for screen readers only where the keyboard moved it. */
  readonly readOut = h("p", { class: "iv-readout" }, "\u00a0");
  readonly spoken = h("p", { class: "iv-hidden", "aria-live": "polite" });
  /** The sample under the pointer, or of the keyboard. */
  at: CursorSample | undefined;
  private readonly moveListeners = new Set<(cursor: Cursor | null) => void>();
  private readonly pickListeners = new Set<(cursor: Cursor) => void>();

  /** `linked`: cursors that follow one another; `summary`: what is read out while there is no cursor. */
  constructor(
    private readonly viewport: Viewport,
    readonly linked: Set<ImageCursor>,
    private readonly summary: () => string,
  ) {
    linked.add(this);
  }

  /** Calls back when this image's own cursor moves; null where it is removed. */
  onMove(listener: (cursor: Cursor | null) => void): void {
    this.moveListeners.add(listener);
  }

  /** Calls back when a sample is chosen. */
  onPick(listener: (cursor: Cursor) => void): void {
    this.pickListeners.add(listener);
  }

  /** Calls back with a sample that is chosen. */
  pick(i: number, j: number): void {
    const at = this.sample(i, j);
    this.pickListeners.forEach((listener) => listener(at));
  }

  /** The middle of the cursor's sample, in samples. */
  get middle(): Point | undefined {
    return this.at && [this.at.i + 0.5, this.at.j + 0.5];
  }

  /** A sample with its position and number. */
  sample(i: number, j: number): Cursor {
    const { image, x, y } = this.viewport;
    const { values, nx } = image as ImageData2D;
    return { i, j, x: x.position(i), y: y.position(j), value: values[j * nx + i] };
  }

  /** Moves the cursor, or removes it. */
  set(cursor: CursorSample | undefined): void {
    const { at: before } = this;
    if (!this.viewport.image || (cursor?.i === before?.i && cursor?.j === before?.j && cursor?.keyboard === before?.keyboard)) {
      return;
    }
    this.at = cursor;
    this.draw();
    const at = cursor && this.sample(cursor.i, cursor.j);
    this.moveListeners.forEach((listener) => listener(at ?? null));
    for (const other of this.linked) {
      if (other !== this) {
        other.follow(at);
      }
    }
    if (cursor?.keyboard) {
      this.spoken.textContent = this.readOut.textContent;
    }
  }

  /** Shows the cross-hair of a linked image at the same position. */
  private follow(at: Cursor | undefined): void {
    const { image, x, y } = this.viewport;
    if (!image) {
      return;
    }
    const [i, j] = at ? [Math.round(x.index(at.x)), Math.round(y.index(at.y))] : [-1, -1];
    this.at = this.viewport.contains([i, j]) ? { i, j, keyboard: true } : undefined;
    this.draw();
  }

  /** Draws the cross-hair and prints the number under it, or the summary. */
  draw(): void {
    const { at: cursor, viewport, readOut } = this;
    const { image, box } = viewport;
    if (!image) {
      return;
    }
    let cross = "";
    if (!cursor) {
      readOut.textContent = this.summary();
    } else if (cursor.i < image.nx && cursor.j < image.ny) {
      const { i, j, value } = this.sample(cursor.i, cursor.j);
      readOut.textContent = `${viewport.x.label(i)}, ${viewport.y.label(j)}: ${quantity(value, image.unit)}`;
      const { x0, x1, y0, y1 } = viewport.window;
      const x = box.x + ((i + 0.5 - x0) / (x1 - x0)) * box.w;
      const y = box.y + box.h - ((j + 0.5 - y0) / (y1 - y0)) * box.h;
      cross = cursor.keyboard ? `M${box.x} ${y}H${x - 5}M${x + 5} ${y}H${box.x + box.w}M${x} ${box.y}V${y - 5}M${x} ${y + 5}V${box.y + box.h}` : "";
    }
    this.crossHair.setAttribute("d", cross);
  }
}
