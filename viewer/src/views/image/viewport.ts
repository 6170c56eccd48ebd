/** Zoom of an image: which of its samples are visible, and where they lie in the page. */

import type { Cell } from "../../store";
import { Axis, type Box } from "../axes";
import type { Window2D } from "../gl";
import type { ImageData2D } from "../image.api";
import type { Projection } from "../shapes";

/** A position: in data coordinates, in samples, or in pixels. */
export type Point = readonly [number, number];

/** A position in the page, as pointers have it. */
export type ClientPosition = Pick<MouseEvent, "clientX" | "clientY">;

/** Samples that are visible, at least in part: i0 … i1 − 1 along x and j0 … j1 − 1 along y. */
export interface VisibleSamples {
  readonly i0: number;
  readonly i1: number;
  readonly j0: number;
  readonly j1: number;
}

/** An image with its axes, the part of it that is visible, and the box of the page in which that is drawn. */
export class Viewport {
  /** What is shown, once there is something. */
  image: ImageData2D | undefined;
  /** Axes of the image. */
  x!: Axis;
  y!: Axis;
  /** Where the visible part is drawn, pixels from the upper left corner of the frame; of no size until it is laid out. */
  box: Box = { x: 50, y: 8, w: 0, h: 0 };
  /** Whether the frame is narrow, so that the colour bar is above the image. */
  narrow = false;

  /** `zoom` holds the middle of the visible part and its width in data coordinates; nothing for the whole image. `plot` holds the pixels. */
  constructor(
    readonly zoom: Cell<number[]>,
    readonly plot: HTMLElement,
  ) {}

  /** Takes another image; returns whether its axes are others. */
  show(image: ImageData2D): boolean {
    const before = this.image;
    this.image = image;
    const isOther = !before || before.x.entry !== image.x.entry || before.y.entry !== image.y.entry || before.nx !== image.nx || before.ny !== image.ny;
    if (isOther) {
      this.x = new Axis(image.x);
      this.y = new Axis(image.y);
    }
    return isOther;
  }

  /** Size of the whole image in data coordinates, along x and y. */
  get extent(): Point {
    return [Math.abs(this.x.step) * this.x.count, Math.abs(this.y.step) * this.y.count];
  }

  /** Whether x and y are measured alike, so that a circle is drawn round. */
  get alike(): boolean {
    return this.x.unit === this.y.unit;
  }

  /** Lays the box out in a frame of a width, at most so high, pixels. */
  layout(width: number, height: number): void {
    const narrow = width < 440;
    this.narrow = narrow;
    const [left, right] = [this.y.margin - (narrow ? 6 : 0), narrow ? 12 : 88];
    const free = Math.max(width - left - right, 60);
    const [wide, high] = this.extent;
    const ratio = high / wide;
    let [w, h] = [free, Math.min(height, Math.max(140, free * 0.62))];
    if (this.alike && ratio > 1 / 6 && ratio < 6) {
      w = Math.min(free, height / ratio);
      h = w * ratio;
    }
    this.box = { x: left, y: narrow ? 52 : 8, w: Math.max(Math.round(w), 20), h: Math.max(Math.round(h), 20) };
  }

  /** Gives a view that was never laid out a box of its own. */
  layoutForPrint(): void {
    if (this.box.w === 0) {
      this.box = { x: 52, y: 8, w: 400, h: Math.round(this.alike ? Math.min(400 * (this.extent[1] / this.extent[0]), 800) : 250) };
    }
  }

  /** The visible part, in samples: sample i covers i … i + 1. */
  get window(): Window2D {
    const { nx, ny } = this.image as ImageData2D;
    const zoom = this.zoom.value;
    if (zoom.length === 0) {
      return { x0: 0, y0: 0, x1: nx, y1: ny };
    }
    const factor = Math.min(Math.max(this.extent[0] / zoom[2], 1), this.largestZoom);
    const span = (centre: number, count: number) => {
      const half = count / factor / 2;
      const middle = Math.min(Math.max(centre + 0.5, half), count - half);
      return [middle - half, middle + half];
    };
    const [x0, x1] = span(this.x.index(zoom[0]), nx);
    const [y0, y1] = span(this.y.index(zoom[1]), ny);
    return { x0, y0, x1, y1 };
  }

  private get largestZoom(): number {
    return Math.max(1, Math.max(this.x.count, this.y.count) / 4);
  }

  /** Whether only a part of the image is visible. */
  get isZoomed(): boolean {
    return this.zoom.value.length > 0;
  }

  /** Shows so many samples along x about a position in samples. */
  setWindow(centreX: number, centreY: number, samples: number, live: boolean): void {
    const nx = (this.image as ImageData2D).nx;
    if (samples >= nx * 0.9999) {
      this.zoom.set([], { live });
      return;
    }
    const least = nx / this.largestZoom;
    this.zoom.set([this.x.position(centreX - 0.5), this.y.position(centreY - 0.5), Math.max(samples, least) * Math.abs(this.x.step)], { live });
    // What is kept is what is shown: clamped to the image.
    const { x0, x1, y0, y1 } = this.window;
    this.zoom.set([this.x.position((x0 + x1 - 1) / 2), this.y.position((y0 + y1 - 1) / 2), (x1 - x0) * Math.abs(this.x.step)], { live });
  }

  /** Moves what is visible, from where it is or was, by so many samples. */
  pan(dx: number, dy: number, { x0, x1, y0, y1 } = this.window): void {
    this.setWindow((x0 + x1) / 2 + dx, (y0 + y1) / 2 + dy, x1 - x0, true);
  }

  /** Zooms about a position in samples, which stays where it is; about the middle if none is given. */
  zoomBy(factor: number, about?: Point, live = false): void {
    if (!this.image) {
      return;
    }
    const { x0, x1, y0, y1 } = this.window;
    const [ax, ay] = about ?? [(x0 + x1) / 2, (y0 + y1) / 2];
    const limit = Math.min(Math.max(factor, (x1 - x0) / this.image.nx), ((x1 - x0) / this.image.nx) * this.largestZoom);
    this.setWindow(ax + ((x0 + x1) / 2 - ax) / limit, ay + ((y0 + y1) / 2 - ay) / limit, (x1 - x0) / limit, live);
  }

  /** Ends a gesture that zoomed, so that it can be undone. */
  commit(): void {
    this.zoom.set(this.zoom.value);
  }

  /** Pans so that a sample is visible. */
  reveal(i: number, j: number): void {
    const { x0, x1, y0, y1 } = this.window;
    const by = (at: number, from: number, to: number) => (at < from ? at - from : at + 1 > to ? at + 1 - to : 0);
    const [dx, dy] = [by(i, x0, x1), by(j, y0, y1)];
    if (dx !== 0 || dy !== 0) {
      this.pan(dx, dy);
    }
  }

  /** Position of a pointer in samples (sample i covers i … i + 1). */
  sampleAt({ clientX, clientY }: ClientPosition): Point {
    const { left, top, width, height } = this.plot.getBoundingClientRect();
    const { x0, x1, y0, y1 } = this.window;
    return [x0 + ((clientX - left) / width) * (x1 - x0), y1 - ((clientY - top) / height) * (y1 - y0)];
  }

  /** Whether a position in samples is in the image. */
  contains([a, b]: Point): boolean {
    const { nx, ny } = this.image as ImageData2D;
    return a >= 0 && b >= 0 && a < nx && b < ny;
  }

  /** A position in samples in data coordinates. */
  toData([a, b]: Point): Point {
    return [this.x.position(a - 0.5), this.y.position(b - 0.5)];
  }

  /** A position in data coordinates, moved into the image. */
  inside(x: number, y: number): Point {
    const clamp = (axis: Axis, at: number) => axis.position(Math.min(Math.max(axis.index(at), -0.5), axis.count - 0.5));
    return [clamp(this.x, x), clamp(this.y, y)];
  }

  /** Where data coordinates lie in a box that shows the visible part. */
  projection(box = this.box): Projection {
    const { x0, x1, y0, y1 } = this.window;
    const [kx, ky] = [box.w / (x1 - x0), box.h / (y1 - y0)];
    const [stepX, stepY] = [Math.abs(this.x.step), Math.abs(this.y.step)];
    return {
      px: (x) => box.x + (this.x.index(x) + 0.5 - x0) * kx,
      py: (y) => box.y + box.h - (this.y.index(y) + 0.5 - y0) * ky,
      stepX,
      stepY,
      perX: kx / stepX,
      perY: ky / stepY,
      box,
    };
  }

  /** Samples that are visible, at least in part. */
  get visible(): VisibleSamples {
    const { x0, x1, y0, y1 } = this.window;
    return { i0: Math.floor(x0 + 1e-6), i1: Math.ceil(x1 - 1e-6), j0: Math.floor(y0 + 1e-6), j1: Math.ceil(y1 - 1e-6) };
  }
}
