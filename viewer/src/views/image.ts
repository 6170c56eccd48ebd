/** Images: numbers of two dimensions in colours, with axes, contrast, zoom, cursor, profile, lasso and shapes. */

import { eachFrame, h, svg, uniqueId } from "../dom";
import type { Scope } from "../store";
import type { DataTable, View } from "../view";
import type { Cursor, ImageData2D, ScaleName, Shape, ShapeChange } from "./image.api";
import { ColourControls, ImageColours } from "./image/colours";
import { ImageCursor } from "./image/cursor";
import { ImageDrawing } from "./image/drawing";
import { imageSvg, imageTable } from "./image/export";
import { ImageGestures } from "./image/gestures";
import { KEYS, pressKey } from "./image/keys";
import { ImageTools, type LassoListener } from "./image/tools";
import { Viewport } from "./image/viewport";
import { zoomByWheel } from "./image/wheel";
import { ShapeLayer } from "./shapes";
import { onResize, onTheme } from "./theme";

export type { Cursor, ImageData2D, ScaleName, Shape, ShapeChange } from "./image.api";

/** How an ImageView begins. */
export interface ImageOptions {
  readonly scope: Scope;
  readonly label: string;
  /** Name of the colour map; by the kind of numbers if not given. */
  readonly map?: string;
  readonly scale?: ScaleName;
  /** Decades that a logarithmic scale spans at most, 6 if not given. */
  readonly decades?: number;
  /** Largest height of the pixels, 420 if not given. */
  readonly height?: number;
  /** Another image whose zoom and cross-hair this one shares. */
  readonly zoomWith?: ImageView;
}

/** Lists of so many finite numbers, or of none. */
const numbers = (count: number) => (value: number[]) => value.length === 0 || (value.length === count && value.every((one) => typeof one === "number" && Number.isFinite(one)));

/** An image of numbers with axes, colour bar, contrast, zoom, cursor, profile and shapes over it. */
export class ImageView implements View {
  readonly element: HTMLElement;
  private readonly label: string;
  private readonly height: number;
  private readonly frame: HTMLElement;
  private readonly viewport: Viewport;
  private readonly colours: ImageColours;
  private readonly controls: ColourControls;
  private readonly drawing: ImageDrawing;
  private readonly cursor: ImageCursor;
  private readonly tools: ImageTools;
  private readonly shapes: ShapeLayer;
  private readonly shapeListeners = new Set<(change: ShapeChange) => void>();
  private readonly ending = new AbortController();
  private settled: ReturnType<typeof setTimeout> | undefined;
  private readonly schedule = eachFrame(() => this.draw());

  constructor({ scope, label, map, scale, decades, height, zoomWith }: ImageOptions) {
    this.label = label;
    this.height = height ?? 420;
    const hint = uniqueId("hint");
    const plot = h("div", { class: "iv-plot", tabindex: 0, role: "application", "aria-roledescription": "image", "aria-label": label, "aria-describedby": hint });
    const zoom = zoomWith?.viewport.zoom ?? scope.cell<number[]>("zoom", [], (value) => numbers(3)(value) && (value.length === 0 || value[2] > 0));
    const viewport = (this.viewport = new Viewport(zoom, plot));
    const colours = (this.colours = new ImageColours(scope, map, scale, decades ?? 6));
    const controls = (this.controls = new ColourControls(label, colours));
    const drawing = (this.drawing = new ImageDrawing(viewport, colours));
    const cursor = (this.cursor = new ImageCursor(viewport, zoomWith?.cursor.linked ?? new Set(), () => colours.summary()));
    const tools = (this.tools = new ImageTools(label, viewport, scope.cell<number[]>("profile", [], numbers(4)), () => this.schedule()));
    const shapes = (this.shapes = new ShapeLayer((change) => this.shapeListeners.forEach((listener) => listener(change)), () => [viewport.x.unit ?? "", viewport.y.unit ?? ""]));

    plot.append(drawing.canvas);
    const clip = uniqueId("clip");
    const overlay = svg(
      "svg",
      { class: "iv-overlay" },
      svg("clipPath", { id: clip }, drawing.clip),
      drawing.axes,
      drawing.barLabels,
      svg("g", { "clip-path": `url(#${clip})` }, drawing.scaleBar, shapes.element, tools.layer.element, cursor.crossHair),
    );
    this.frame = h("div", { class: "iv-frame" }, plot, drawing.bar, overlay);
    const button = (text: string, name: string, click: () => void) => h("button", { type: "button", "aria-label": `${name}, ${label}`, title: name, click }, text);
    const zoomButton = (text: string, name: string, factor: number) => button(text, name, () => viewport.zoomBy(factor, cursor.middle));
    this.element = h(
      "div",
      { class: "iv", role: "group", "aria-label": label },
      h(
        "div",
        { class: "iv-tools" },
        controls.scaleSelect,
        controls.mapSelect,
        h("span", { class: "iv-buttons" }, zoomButton("−", "Zoom out", 0.5), zoomButton("+", "Zoom in", 2), button("Whole", "Whole image", () => zoom.reset())),
        tools.buttons.profile,
        tools.buttons.lasso,
      ),
      this.frame,
      cursor.readOut,
      cursor.spoken,
      h("p", { class: "iv-hidden", id: hint }, KEYS),
      tools.profilePlot.element,
      controls.contrast.element,
    );
    this.listen();
  }

  private listen(): void {
    const { frame, viewport, cursor, tools, ending: { signal } } = this;
    const { plot } = viewport;
    const redraw = () => this.schedule();
    new ImageGestures(frame, viewport, cursor, tools, this.shapes, signal);
    zoomByWheel(viewport, signal);
    plot.addEventListener("keydown", (event) => pressKey(event, viewport, cursor, tools), { signal });
    plot.addEventListener("blur", () => cursor.at?.keyboard && cursor.set(undefined), { signal });
    const ends = [onTheme(redraw), onResize(frame, () => this.layout()), ...[...this.colours.cells, tools.line, viewport.zoom].map((cell) => cell.subscribe(redraw))];
    signal.addEventListener("abort", () => ends.forEach((end) => end()));
  }

  /** Shows an image; its numbers are not copied, and must not change until the next image. */
  show(image: ImageData2D): void {
    if (this.ending.signal.aborted) {
      // What a closed panel was still reading.
      return;
    }
    const hasOtherAxes = this.viewport.show(image);
    this.colours.show(image);
    this.drawing.show(image, hasOtherAxes);
    if (hasOtherAxes) {
      this.layout();
    } else {
      this.schedule();
    }
  }

  /** Draws shapes over the image, in its coordinates; those of a known `id` are moved. */
  setShapes(shapes: readonly Shape[]): void {
    this.shapes.set(shapes);
  }

  /** Calls back when a shape is moved. */
  onShape(listener: (change: ShapeChange) => void): void {
    this.shapeListeners.add(listener);
  }

  /** Calls back when the pointer or the keyboard moves the cursor; null where there is none. */
  onCursor(listener: (cursor: Cursor | null) => void): void {
    this.cursor.onMove(listener);
  }

  /** Calls back when a sample is clicked, or chosen by Enter. */
  onPick(listener: (cursor: Cursor) => void): void {
    this.cursor.onPick(listener);
  }

  /** Offers the lasso tool. The outline is drawn while it grows (`live`); a panel shows the finished one as a shape. */
  setLasso(listener: LassoListener | null): void {
    this.tools.setLasso(listener);
  }

  private layout(): void {
    const { frame, viewport } = this;
    const width = frame.clientWidth;
    if (!viewport.image || width === 0 || this.ending.signal.aborted) {
      return;
    }
    viewport.layout(width, this.height);
    this.drawing.layout();
    frame.style.height = `${viewport.box.y + viewport.box.h + 38}px`;
    this.draw();
  }

  /** Draws what changed. */
  private draw(): void {
    const { viewport, colours, controls, tools } = this;
    if (!viewport.image || this.ending.signal.aborted) {
      return;
    }
    const scale = colours.scale();
    const redrawn = this.drawing.draw(scale);
    if (!redrawn) {
      return;
    }
    this.element.dataset["renderer"] = redrawn.onGpu ? "webgl2" : "2d";
    viewport.plot.style.touchAction = tools.tool !== "pan" || viewport.isZoomed ? "none" : "pan-y";
    if (redrawn.hasMoved) {
      this.shapes.draw(viewport.projection());
    }
    if (redrawn.isRecoloured) {
      controls.contrast.update(colours.contrast(scale), false);
    }
    tools.draw(colours);
    this.cursor.draw();
    controls.update();
    clearTimeout(this.settled);
    this.settled = setTimeout(() => this.settle(), 80);
  }

  /** What may wait until images no longer follow each other: the histogram, and the words for screen readers. */
  private settle(): void {
    const { colours, viewport } = this;
    const { quantity, nx, ny } = viewport.image as ImageData2D;
    this.controls.contrast.update(colours.contrast(), true);
    viewport.plot.setAttribute("aria-label", `${this.label}: ${quantity}, ${nx} by ${ny} samples, ${colours.spokenRange()}`);
    this.cursor.draw();
  }

  /** The visible samples, by rows from the bottom to the top; where there are more than `most`, means of neighbouring ones. */
  table(most = Infinity): DataTable {
    const { label, viewport } = this;
    return viewport.image ? imageTable(label, viewport.image, viewport, most) : { caption: label, columns: [], rows: [] };
  }

  /** The picture with axes, colour bar, shapes and profile, in the colours of print. */
  svg(): string {
    const { label, viewport, tools } = this;
    return viewport.image
      ? imageSvg(label, viewport.image, viewport, this.colours, [...this.shapes.shapes, ...tools.layer.shapes], tools.profile())
      : '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>';
  }

  destroy(): void {
    this.cursor.linked.delete(this.cursor);
    clearTimeout(this.settled);
    this.ending.abort();
    this.drawing.destroy();
    this.element.remove();
  }
}
