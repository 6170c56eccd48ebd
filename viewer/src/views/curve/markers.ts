/** Vertical lines over curves, with labels, and with handles where they can be dragged. */

import type uPlot from "uplot";
import { h, plainNumber } from "../../dom";
import { atFraction, fraction } from "../axis";
import type { Theme } from "../theme";
import { isDrawable, type CurveModel } from "./model";

/** A vertical line at x. */
export interface CurveMarker {
  readonly x: number;
  readonly label: string;
}

/** Where a marker and its label are drawn, pixels from the upper left corner of the plot; `isLeft`: the label is at the line's left. */
export interface PlacedMarker {
  readonly x: number;
  readonly y: number;
  readonly label: string;
  readonly isLeft: boolean;
}

/** Called with a marker's number and where it is moved to. */
export type MarkerListener = (k: number, x: number, live: boolean) => void;

const clamp = (share: number) => Math.min(Math.max(share, 0), 1);

/** The markers of curves. */
export class CurveMarkers {
  markers: readonly CurveMarker[] = [];
  /** Makes the markers draggable. */
  listener: MarkerListener | undefined;
  private readonly handles: HTMLElement[] = [];

  constructor(private readonly model: CurveModel) {}

  /** Places in a plot of a width: labels that would overlap are below one another. */
  placed(width: number): PlacedMarker[] {
    const { isLogX } = this.model;
    const limits = this.model.limitsX();
    const ends: number[] = [];
    return this.markers
      .filter(({ x }) => isDrawable(x, isLogX) && x >= limits[0] && x <= limits[1])
      .map(({ x, label }) => ({ x: fraction(x, limits, isLogX) * width, label }))
      .sort((a, b) => a.x - b.x)
      .map(({ x, label }) => {
        const long = label.length * 6.2 + 8;
        const isLeft = x + long > width && x > long;
        const [from, to] = isLeft ? [x - long, x] : [x, x + long];
        const free = ends.findIndex((end) => end <= from);
        const row = free < 0 ? ends.length : free;
        ends[row] = to;
        return { x, label, isLeft, y: 3 + 14 * row };
      });
  }

  /** Draws lines and labels on a chart, with their handles. */
  draw(u: uPlot, { muted, font }: Theme): void {
    const context = u.ctx;
    const ratio = devicePixelRatio;
    const { left, top, width, height } = u.bbox;
    context.save();
    context.translate(left, top);
    context.scale(ratio, ratio);
    context.strokeStyle = context.fillStyle = muted;
    context.font = `11px ${font}`;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.textBaseline = "top";
    for (const { x, y, label, isLeft } of this.placed(width / ratio)) {
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height / ratio);
      context.stroke();
      context.textAlign = isLeft ? "right" : "left";
      context.fillText(label, x + (isLeft ? -4 : 4), y);
    }
    context.restore();
    this.placeHandles(u);
  }

  /** Puts a handle on each line of a chart, at the edge where it is outside. */
  placeHandles(u: uPlot): void {
    if (this.listener === undefined) {
      return;
    }
    const { handles, markers, model } = this;
    handles.splice(markers.length).forEach((one) => one.remove());
    markers.forEach(({ x, label }, k) => {
      const handle = (handles[k] ??= this.makeHandle(k));
      if (handle.parentElement !== u.over) {
        u.over.append(handle);
      }
      const at = fraction(x, model.limitsX(), model.isLogX);
      handle.style.left = `${100 * clamp(Number.isFinite(at) ? at : 0)}%`;
      handle.setAttribute("aria-label", label);
      handle.setAttribute("aria-valuenow", plainNumber(x));
      handle.setAttribute("aria-valuetext", model.describeX(x));
    });
  }

  /** The handle that has the focus, which a chart that is built anew gives back. */
  get focused(): HTMLElement | undefined {
    return this.handles.find((one) => one === document.activeElement);
  }

  private makeHandle(k: number): HTMLElement {
    const { model } = this;
    const move = (share: number, live: boolean) => this.listener?.(k, atFraction(clamp(share), model.limitsX(), model.isLogX), live);
    const shareAt = (event: PointerEvent) => {
      const { left, width } = (handle.parentElement as Element).getBoundingClientRect();
      return (event.clientX - left) / width;
    };
    let held = false;
    const release = (event: PointerEvent) => {
      if (held) {
        held = false;
        if (event.type === "pointerup") {
          move(shareAt(event), false);
        } else {
          this.listener?.(k, this.markers[k].x, false);
        }
      }
    };
    const handle = h("div", {
      class: "curve-handle", role: "slider", tabindex: 0,
      // The plot would begin to select a range.
      mousedown: (event: MouseEvent) => event.stopPropagation(),
      pointerdown: (event: PointerEvent) => {
        event.stopPropagation();
        handle.setPointerCapture(event.pointerId);
        held = true;
      },
      pointermove: (event: PointerEvent) => held && move(shareAt(event), true),
      pointerup: release,
      pointercancel: release,
      keydown: (event: KeyboardEvent) => {
        const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (by !== 0) {
          event.preventDefault();
          event.stopPropagation();
          move(fraction(this.markers[k].x, model.limitsX(), model.isLogX) + (event.shiftKey ? 0.05 : 0.005) * by, false);
        }
      },
    });
    return handle;
  }
}
