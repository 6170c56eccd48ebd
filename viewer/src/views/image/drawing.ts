/** Picture of an image: pixels, axes, scale bar and colour bar. */

import { h, svg } from "../../dom";
import { drawAxes, drawColourBar, drawScaleBar, scaleBar, type Box } from "../axes";
import { colourTable } from "../colour";
import { ImageRenderer, type Frame } from "../gl";
import type { ImageData2D } from "../image.api";
import type { Scale } from "../scale";
import type { ImageColours } from "./colours";
import type { Viewport } from "./viewport";

/** The colour bar's box: at the right of an image, or above it where the page is narrow. */
export function colourBarBox({ x, y, w, h }: Box, above: boolean): Box {
  return above ? { x, y: y - 34, w, h: 12 } : { x: x + w + 10, y, w: 14, h };
}

/** Paints the colours of a map into a canvas of 256 pixels, from the bottom to the top or from the left to the right. */
export function paintBar(canvas: HTMLCanvasElement, table: Uint8ClampedArray, across: boolean): void {
  [canvas.width, canvas.height] = across ? [256, 1] : [1, 256];
  const image = new ImageData(canvas.width, canvas.height);
  for (let k = 0; k < 256; k++) {
    image.data.set(table.subarray(4 * k, 4 * k + 4), 4 * (across ? k : 255 - k));
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}

/** Colours of the pixels, so many along x and y, of the visible part in a box so wide. */
export function frameOf(colours: ImageColours, scale: Scale, window: Frame["window"], width: number, height: number, wide: number, dark: boolean): Frame {
  return {
    window, width, height, scale,
    table: colourTable(colours.mapName),
    wrap: colours.isCyclic,
    missing: dark ? [[58, 58, 62], [88, 88, 94]] : [[226, 226, 226], [190, 190, 190]],
    hatch: Math.max(4, Math.round((8 * width) / wide)),
  };
}

/** Draws axes about a box, and the scale bar in it. */
export function drawOverlay(axes: SVGGElement, bar: SVGGElement, { x, y, window, alike }: Viewport, box: Box): void {
  const { x0, x1, y0, y1 } = window;
  const horizontal = x.ticks(x0 - 0.5, x1 - 0.5, Math.max(2, Math.floor(box.w / x.apart)));
  const vertical = y.ticks(y0 - 0.5, y1 - 0.5, Math.max(3, Math.floor(box.h / 36)));
  axes.replaceChildren(drawAxes(box, horizontal, vertical, (i) => box.x + ((i + 0.5 - x0) / (x1 - x0)) * box.w, (j) => box.y + box.h - ((j + 0.5 - y0) / (y1 - y0)) * box.h, box.x));
  const perUnit = box.w / (x1 - x0) / Math.abs(x.step);
  const length = x.unit !== undefined && alike ? scaleBar((box.w / 3) / perUnit, x.unit) : undefined;
  bar.replaceChildren(...(length ? [drawScaleBar(box, length.length * perUnit, length.label)] : []));
}

/** Whether the page is dark: by its own choice, else by that of the system. */
function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** What a picture has that the one before it had not. */
export interface Redrawn {
  /** Drawn by WebGL2, not on the processor. */
  readonly onGpu: boolean;
  /** Other samples are visible, or elsewhere in the page. */
  readonly hasMoved: boolean;
  /** The colours stand for other numbers. */
  readonly isRecoloured: boolean;
}

/** The elements in which an image is drawn, but for what is over it. */
export class ImageDrawing {
  readonly canvas = h("canvas", { "aria-hidden": "true" });
  readonly bar = h("canvas", { class: "iv-bar", "aria-hidden": "true" });
  readonly axes = svg("g");
  readonly barLabels = svg("g");
  readonly scaleBar = svg("g");
  /** The box of the pixels, to clip what is over them. */
  readonly clip = svg("rect");
  private readonly renderer = new ImageRenderer();
  private axesKey = "";
  private barKey = "";

  constructor(
    private readonly viewport: Viewport,
    private readonly colours: ImageColours,
  ) {}

  /** Takes the numbers of another image; `hasOtherAxes`: none of its ticks can stay. */
  show({ values, nx, ny }: ImageData2D, hasOtherAxes: boolean): void {
    this.renderer.set(values, nx, ny, this.colours.stats);
    if (hasOtherAxes) {
      this.axesKey = "";
    }
  }

  /** Puts the elements where the box of the viewport is. */
  layout(): void {
    const { canvas, viewport } = this;
    const { x, y, w, h: high } = viewport.box;
    const place = (element: HTMLElement, at: Box) => Object.assign(element.style, { left: `${at.x}px`, top: `${at.y}px`, width: `${at.w}px`, height: `${at.h}px` });
    place(viewport.plot, viewport.box);
    place(this.bar, colourBarBox(viewport.box, viewport.narrow));
    const sharp = Math.min(devicePixelRatio || 1, 3);
    const [pixelsX, pixelsY] = [Math.round(w * sharp), Math.round(high * sharp)];
    if (canvas.width !== pixelsX || canvas.height !== pixelsY) {
      canvas.width = pixelsX;
      canvas.height = pixelsY;
    }
    for (const [name, value] of Object.entries({ x, y, width: w, height: high })) {
      this.clip.setAttribute(name, String(value));
    }
  }

  /** Draws what changed; nothing before there is an image with a layout. */
  draw(scale: Scale): Redrawn | undefined {
    const { canvas, viewport, colours } = this;
    const { image, box, window } = viewport;
    const context = canvas.getContext("2d");
    if (!image || box.w === 0 || !context) {
      return undefined;
    }
    const frame = frameOf(colours, scale, window, canvas.width, canvas.height, box.w, isDark());
    const onGpu = this.renderer.draw(context, frame);
    const axesKey = JSON.stringify([window, box]);
    const hasMoved = axesKey !== this.axesKey;
    if (hasMoved) {
      this.axesKey = axesKey;
      drawOverlay(this.axes, this.scaleBar, viewport, box);
    }
    const barKey = JSON.stringify([scale.lo, scale.hi, scale.name, colours.mapName, image.quantity, image.unit, box]);
    const isRecoloured = barKey !== this.barKey;
    if (isRecoloured) {
      this.barKey = barKey;
      this.barLabels.replaceChildren(drawColourBar(colourBarBox(box, viewport.narrow), scale, image.quantity, image.unit));
      paintBar(this.bar, frame.table, viewport.narrow);
    }
    return { onGpu, hasMoved, isRecoloured };
  }

  /** Frees what is held of the graphics processor. */
  destroy(): void {
    this.renderer.destroy();
  }
}
