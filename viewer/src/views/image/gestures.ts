/** Pointers over an image: a mouse, a pen, one finger or two. */

import type { Window2D } from "../gl";
import type { ShapeLayer } from "../shapes";
import type { ImageCursor } from "./cursor";
import type { ImageTools } from "./tools";
import type { ClientPosition, Point, Viewport } from "./viewport";

/** What a pointer that is down does. */
type Gesture =
  | { readonly kind: "pan"; readonly start: ClientPosition; readonly window: Window2D; moved: boolean }
  | { readonly kind: "pinch"; readonly distance: number; readonly sample: Point; readonly width: number }
  | { readonly kind: "shape"; readonly layer: ShapeLayer; readonly id: string; readonly part: "radius" | "centre" }
  | { readonly kind: "profile"; readonly start: Point; moved: boolean }
  | { readonly kind: "lasso"; points: readonly Point[]; last: ClientPosition };

/** Distance of two positions in the page, pixels. */
const apart = (a: ClientPosition, b: ClientPosition) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);

/** Pans, zooms, picks, drags shapes, and draws with the tools. */
export class ImageGestures {
  private gesture: Gesture | undefined;
  private readonly pointers = new Map<number, ClientPosition>();

  /** Listens to the pointers over a frame, which holds the plot and the shapes over it, until the signal. */
  constructor(
    private readonly frame: HTMLElement,
    private readonly viewport: Viewport,
    private readonly cursor: ImageCursor,
    private readonly tools: ImageTools,
    private readonly shapes: ShapeLayer,
    signal: AbortSignal,
  ) {
    const on = <K extends keyof HTMLElementEventMap>(name: K, work: (event: HTMLElementEventMap[K]) => void) =>
      frame.addEventListener(name, (event) => viewport.image && work(event), { signal });
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.move(event));
    on("pointerup", (event) => this.up(event, false));
    on("pointercancel", (event) => this.up(event, true));
    on("pointerleave", (event) => event.pointerType !== "touch" && !this.gesture && !cursor.at?.keyboard && cursor.set(undefined));
    on("dblclick", (event) => this.doubleClick(event));
  }

  private down(event: PointerEvent): void {
    const { frame, viewport, tools, pointers } = this;
    const target = event.target as Element;
    const handle = target.closest<SVGElement>("[data-part]");
    if (event.button !== 0 || (!handle && !viewport.plot.contains(target))) {
      return;
    }
    pointers.set(event.pointerId, event);
    frame.setPointerCapture(event.pointerId);
    (handle ?? viewport.plot).focus({ preventScroll: true });
    event.preventDefault();
    const sample = viewport.sampleAt(event);
    if (pointers.size === 2) {
      const { x0, x1 } = viewport.window;
      const [middle, distance] = this.pinch();
      tools.outline = [];
      this.gesture = { kind: "pinch", distance, sample: viewport.sampleAt(middle), width: x1 - x0 };
    } else if (handle) {
      this.gesture = {
        kind: "shape",
        layer: tools.layer.element.contains(handle) ? tools.layer : this.shapes,
        id: handle.dataset["shape"] as string,
        part: handle.dataset["part"] as "radius" | "centre",
      };
    } else if (event.shiftKey || tools.tool === "profile") {
      this.gesture = { kind: "profile", start: viewport.toData(sample), moved: false };
    } else if (tools.drawsOutline) {
      this.gesture = { kind: "lasso", points: [viewport.toData(sample)], last: event };
    } else {
      this.gesture = { kind: "pan", start: event, window: viewport.window, moved: false };
    }
  }

  /** Middle and distance of the two pointers that are down. */
  private pinch(): readonly [ClientPosition, number] {
    const [a, b] = [...this.pointers.values()];
    return [{ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 }, Math.max(apart(a, b), 1)];
  }

  private move(event: PointerEvent): void {
    const { gesture, viewport, tools, pointers } = this;
    const sample = viewport.sampleAt(event);
    if (!gesture) {
      this.hover(event, sample);
      return;
    }
    if (!pointers.has(event.pointerId)) {
      return;
    }
    pointers.set(event.pointerId, event);
    const data = viewport.toData(sample);
    switch (gesture.kind) {
      case "pan": {
        const { start, window } = gesture;
        gesture.moved ||= apart(event, start) > 4;
        if (gesture.moved && viewport.isZoomed) {
          const { x0, x1, y0, y1 } = window;
          const { w, h } = viewport.box;
          viewport.pan(((start.clientX - event.clientX) / w) * (x1 - x0), ((event.clientY - start.clientY) / h) * (y1 - y0), window);
        }
        break;
      }
      case "pinch":
        if (pointers.size === 2) {
          const [middle, distance] = this.pinch();
          viewport.setWindow(...gesture.sample, (gesture.width * gesture.distance) / distance, true);
          // The sample that was between the fingers stays there.
          const [a, b] = viewport.sampleAt(middle);
          viewport.pan(gesture.sample[0] - a, gesture.sample[1] - b);
        }
        break;
      case "shape":
        gesture.layer.drag(gesture.id, gesture.part, ...data, true);
        break;
      case "profile":
        gesture.moved = true;
        tools.line.set([...gesture.start, ...viewport.inside(...data)], { live: true });
        break;
      case "lasso":
        if (apart(event, gesture.last) >= 3) {
          gesture.last = event;
          gesture.points = [...gesture.points, viewport.inside(...data)];
          tools.growOutline(gesture.points);
        }
    }
  }

  private hover(event: PointerEvent, sample: Point): void {
    const target = event.target as Element;
    const isOver = this.viewport.plot.contains(target) || target.closest("[data-part]") !== null;
    this.cursor.set(isOver && this.viewport.contains(sample) ? { i: Math.floor(sample[0]), j: Math.floor(sample[1]), keyboard: false } : undefined);
  }

  private up(event: PointerEvent, cancelled: boolean): void {
    const { gesture, viewport, tools } = this;
    this.pointers.delete(event.pointerId);
    if (!gesture) {
      return;
    }
    this.gesture = undefined;
    const sample = viewport.sampleAt(event);
    switch (gesture.kind) {
      case "pan":
        if (gesture.moved) {
          viewport.commit();
        } else if (!cancelled) {
          this.hover(event, sample);
          if (viewport.contains(sample)) {
            this.cursor.pick(Math.floor(sample[0]), Math.floor(sample[1]));
          }
        }
        break;
      case "pinch":
        viewport.commit();
        break;
      case "shape":
        gesture.layer.drag(gesture.id, gesture.part, ...viewport.toData(sample), false);
        break;
      case "profile":
        if (gesture.moved) {
          tools.line.set(tools.line.value);
        }
        break;
      case "lasso":
        if (gesture.points.length > 2 && !cancelled) {
          tools.closeOutline();
        } else {
          tools.dropOutline();
        }
    }
  }

  /** Zooms in, or out with Shift. The frame gets the event even over the image, since it captured the pointer. */
  private doubleClick(event: MouseEvent): void {
    const { viewport } = this;
    const { left, right, top, bottom } = viewport.plot.getBoundingClientRect();
    const inside = event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
    if (inside && this.tools.tool === "pan") {
      viewport.zoomBy(event.shiftKey ? 0.5 : 2, viewport.sampleAt(event));
    }
  }
}
