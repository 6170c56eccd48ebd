/** Images: numbers of two dimensions in colours, with axes, contrast, zoom, cursor, profile, lasso and shapes. */

import type { Cell, Scope } from "../store";
import { eachFrame, h, svg, uniqueId } from "../dom";
import type { DataTable, View } from "../view";
import { Axis, drawAxes, drawColourBar, drawScaleBar, quantity, scaleBar, title, type Box } from "./axes";
import { colourTable, defaultMap, isMapName, MAP_GROUPS, mapLabel, type MapName } from "./colour";
import { drawOnProcessor, ImageRenderer, type Frame, type Window2D } from "./gl";
import { ContrastControl } from "./histogram";
import type { Cursor, ImageData2D, ScaleName, Shape, ShapeChange } from "./image.api";
import { drawProfile, interpolate, linePoints, ProfilePlot, type Profile } from "./profile";
import { automaticLimits, looksSigned, percentiles, Scale, statistics, type Statistics, together } from "./scale";
import { drawShape, ShapeLayer, type Projection } from "./shapes";

export type { Cursor, ImageData2D, ScaleName, Shape, ShapeChange } from "./image.api";

type Point = readonly [number, number];
type LassoListener = (points: readonly Point[], live: boolean) => void;
type Tool = "pan" | "profile" | "lasso";

/** What a pointer that is down does. */
type Gesture =
  | { readonly kind: "pan"; readonly startX: number; readonly startY: number; readonly window: Window2D; moved: boolean }
  | { readonly kind: "pinch"; readonly distance: number; readonly sample: Point; readonly width: number }
  | { readonly kind: "shape"; readonly layer: ShapeLayer; readonly id: string; readonly part: "radius" | "centre" }
  | { readonly kind: "profile"; readonly start: Point; moved: boolean }
  | { readonly kind: "lasso"; points: Point[]; last: Point };

const SCALES: readonly (readonly [ScaleName, string])[] = [["linear", "linear"], ["sqrt", "√"], ["log", "log"]];
const KEYS = "Arrow keys move the cursor, with Shift by ten samples; Enter picks; plus, minus and 0 zoom; Escape hides the cursor.";

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

/** How an ImageView begins. */
export interface ImageOptions {
  readonly scope: Scope;
  readonly label: string;
  /** Name of the colour map; by the kind of numbers if not given. */
  readonly map?: string;
  readonly scale?: ScaleName;
  /** Decades that a logarithmic scale spans at most, 6 if not given. */
  readonly decades?: number;
  readonly height?: number;
  /** Another image whose zoom and cross-hair this one shares. */
  readonly zoomWith?: ImageView;
}

/** An image of numbers with axes, colour bar, contrast, zoom, cursor, profile and shapes over it. */
export class ImageView implements View {
  readonly element: HTMLElement;
  private readonly label: string;
  private readonly height: number;
  private readonly scaleCell: Cell<string>;
  private readonly mapCell: Cell<string>;
  private readonly lo: Cell<number | null>;
  private readonly hi: Cell<number | null>;
  private readonly range: Cell<string>;
  private readonly profileCell: Cell<number[]>;
  private readonly zoomCell: Cell<number[]>;
  /** Images that share zoom and cross-hair. */
  private readonly linked: Set<ImageView>;
  private readonly ends: (() => void)[] = [];

  private readonly canvas = h("canvas", { "aria-hidden": "true" });
  private readonly bar = h("canvas", { class: "iv-bar", "aria-hidden": "true" });
  private readonly plot: HTMLElement;
  private readonly frame: HTMLElement;
  private readonly overlay: SVGSVGElement;
  private readonly axesGroup = svg("g");
  private readonly barGroup = svg("g");
  private readonly scaleBarGroup = svg("g");
  private readonly crossHair = svg("path", { class: "iv-cross", "aria-hidden": "true" });
  private readonly clip = svg("rect");
  private readonly readOut = h("p", { class: "iv-readout" }, "\u00a0");
  private readonly spoken = h("p", { class: "iv-hidden", "aria-live": "polite" });
  private readonly scaleSelect: HTMLSelectElement;
  private readonly mapSelect: HTMLSelectElement;
  private readonly automaticOption = h("option", { value: "" }, "automatic");
  private readonly toolButtons: Record<"profile" | "lasso", HTMLButtonElement>;
  private readonly contrast: ContrastControl;
  private readonly profilePlot: ProfilePlot;
  private readonly shapeLayer: ShapeLayer;
  private readonly ownLayer: ShapeLayer;
  private readonly renderer = new ImageRenderer();

  private image: ImageData2D | undefined;
  private stats: Statistics = { min: NaN, max: NaN, minPositive: Infinity, finite: true };
  private signed = false;
  private x!: Axis;
  private y!: Axis;
  private box: Box = { x: 50, y: 8, w: 0, h: 0 };
  /** Whether the colour bar is above the image. */
  private narrow = false;
  private tool: Tool = "pan";
  private gesture: Gesture | undefined;
  private readonly pointers = new Map<number, Point>();
  private cursor: { i: number; j: number; keyboard: boolean } | undefined;
  private lasso: LassoListener | null = null;
  private lassoPoints: Point[] = [];
  private readonly shapeListeners = new Set<(change: ShapeChange) => void>();
  private readonly cursorListeners = new Set<(cursor: Cursor | null) => void>();
  private readonly pickListeners = new Set<(cursor: Cursor) => void>();
  private axesKey = "";
  private barKey = "";
  private settled: ReturnType<typeof setTimeout> | undefined;
  private wheeled: ReturnType<typeof setTimeout> | undefined;
  private destroyed = false;
  private readonly decades: number;
  private readonly schedule = eachFrame(() => this.draw());

  constructor({ scope, label, map, scale, decades, height, zoomWith }: ImageOptions) {
    this.label = label;
    this.decades = decades ?? 6;
    this.height = height ?? 420;
    const optional = (value: number | null) => value === null || (typeof value === "number" && Number.isFinite(value));
    const numbers = (count: number) => (value: number[]) => value.length === 0 || (value.length === count && value.every((one) => typeof one === "number" && Number.isFinite(one)));
    this.scaleCell = scope.cell<string>("scale", scale ?? "linear", (name) => SCALES.some(([one]) => one === name));
    this.mapCell = scope.cell<string>("map", map && isMapName(map) ? map : "", (name) => name === "" || isMapName(name));
    this.lo = scope.cell<number | null>("lo", null, optional);
    this.hi = scope.cell<number | null>("hi", null, optional);
    this.range = scope.cell<string>("range", "minmax", (name) => name === "minmax" || name === "percentile");
    this.profileCell = scope.cell<number[]>("profile", [], numbers(4));
    this.zoomCell = zoomWith?.zoomCell ?? scope.cell<number[]>("zoom", [], (value) => numbers(3)(value) && (value.length === 0 || value[2] > 0));
    this.linked = zoomWith?.linked ?? new Set();
    this.linked.add(this);

    this.scaleSelect = h("select", { "aria-label": `Scale, ${label}`, change: () => this.setScale() }, ...SCALES.map(([value, text]) => h("option", { value }, text)));
    this.mapSelect = h(
      "select",
      { "aria-label": `Colour map, ${label}`, change: () => this.mapCell.set(this.mapSelect.value) },
      this.automaticOption,
      ...MAP_GROUPS.map(({ label: group, names }) => h("optgroup", { label: group }, ...names.map((name) => h("option", { value: name }, mapLabel(name))))),
    );
    const button = (text: string, name: string, click: () => void) => h("button", { type: "button", "aria-label": `${name}, ${label}`, title: name, click }, text);
    this.toolButtons = {
      profile: h("button", { type: "button", "aria-pressed": "false", title: "Drag a line over the image (or Shift and drag)", click: () => this.toggle("profile") }, "Profile"),
      lasso: h("button", { type: "button", "aria-pressed": "false", hidden: true, title: "Draw around a region; by keyboard, Enter adds a corner at the cursor, twice closes the outline", click: () => this.toggle("lasso") }, "Lasso"),
    };
    this.contrast = new ContrastControl(label, (limit, value, live) => this.setLimit(limit, value, live), (range) => this.setRange(range));
    this.profilePlot = new ProfilePlot(label, () => this.removeProfile());
    this.shapeLayer = new ShapeLayer((change) => this.shapeListeners.forEach((listener) => listener(change)), () => [this.x.unit ?? "", this.y.unit ?? ""]);
    this.ownLayer = new ShapeLayer((change) => this.moveProfile(change), () => [this.x.unit ?? "", this.y.unit ?? ""]);

    const [hint, clip] = [uniqueId("hint"), uniqueId("clip")];
    this.plot = h("div", { class: "iv-plot", tabindex: 0, role: "application", "aria-roledescription": "image", "aria-label": label, "aria-describedby": hint }, this.canvas);
    this.overlay = svg(
      "svg",
      { class: "iv-overlay" },
      svg("clipPath", { id: clip }, this.clip),
      this.axesGroup,
      this.barGroup,
      svg("g", { "clip-path": `url(#${clip})` }, this.scaleBarGroup, this.shapeLayer.element, this.ownLayer.element, this.crossHair),
    );
    this.frame = h("div", { class: "iv-frame" }, this.plot, this.bar, this.overlay);
    this.element = h(
      "div",
      { class: "iv", role: "group", "aria-label": label },
      h(
        "div",
        { class: "iv-tools" },
        this.scaleSelect,
        this.mapSelect,
        h("span", { class: "iv-buttons" }, button("−", "Zoom out", () => this.zoomBy(0.5)), button("+", "Zoom in", () => this.zoomBy(2)), button("Whole", "Whole image", () => this.zoomCell.reset())),
        this.toolButtons.profile,
        this.toolButtons.lasso,
      ),
      this.frame,
      this.readOut,
      this.spoken,
      h("p", { class: "iv-hidden", id: hint }, KEYS),
      this.profilePlot.element,
      this.contrast.element,
    );
    this.listen();
  }

  private listen(): void {
    watchScrolling();
    const on = <E extends Event>(target: EventTarget, name: string, work: (event: E) => void, options?: AddEventListenerOptions) => {
      target.addEventListener(name, work as EventListener, options);
      this.ends.push(() => target.removeEventListener(name, work as EventListener, options));
    };
    on<PointerEvent>(this.frame, "pointerdown", (event) => this.down(event));
    on<PointerEvent>(this.frame, "pointermove", (event) => this.move(event));
    on<PointerEvent>(this.frame, "pointerup", (event) => this.up(event, false));
    on<PointerEvent>(this.frame, "pointercancel", (event) => this.up(event, true));
    on<PointerEvent>(this.frame, "pointerleave", (event) => this.leave(event));
    on<WheelEvent>(this.plot, "wheel", (event) => this.wheel(event), { passive: false });
    on<MouseEvent>(this.frame, "dblclick", (event) => this.doubleClick(event));
    on<KeyboardEvent>(this.plot, "keydown", (event) => this.key(event));
    on(this.plot, "blur", () => this.cursor?.keyboard && this.setCursor(undefined));
    on(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.schedule());
    on(window, "resize", () => this.layout());
    const theme = new MutationObserver(() => this.schedule());
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const size = new ResizeObserver(() => this.layout());
    size.observe(this.frame);
    this.ends.push(() => theme.disconnect(), () => size.disconnect());
    for (const cell of [this.scaleCell, this.mapCell, this.lo, this.hi, this.range, this.profileCell, this.zoomCell]) {
      this.ends.push((cell as Cell<string>).subscribe(() => this.schedule()));
    }
  }

  /** Shows an image; its numbers are not copied, and must not change until the next image. */
  show(image: ImageData2D): void {
    if (this.destroyed) {
      // What a closed panel was still reading.
      return;
    }
    const before = this.image;
    this.image = image;
    this.stats = image.common ? together(statistics(image.values), statistics(image.common)) : statistics(image.values);
    this.signed = !image.cyclic && (image.signed ?? looksSigned(this.stats));
    this.renderer.set(image.values, image.nx, image.ny, this.stats);
    if (!before || before.x.entry !== image.x.entry || before.y.entry !== image.y.entry || before.nx !== image.nx || before.ny !== image.ny) {
      this.x = new Axis(image.x);
      this.y = new Axis(image.y);
      this.axesKey = "";
      this.layout();
    } else {
      this.schedule();
    }
  }

  /** Draws shapes over the image, in its coordinates; those of a known `id` are moved. */
  setShapes(shapes: readonly Shape[]): void {
    this.shapeLayer.set(shapes);
  }

  onShape(listener: (change: ShapeChange) => void): void {
    this.shapeListeners.add(listener);
  }

  onCursor(listener: (cursor: Cursor | null) => void): void {
    this.cursorListeners.add(listener);
  }

  onPick(listener: (cursor: Cursor) => void): void {
    this.pickListeners.add(listener);
  }

  /** Offers the lasso tool. The outline is drawn while it grows (`live`); a panel shows the finished one as a shape. */
  setLasso(listener: LassoListener | null): void {
    this.lasso = listener;
    this.toolButtons.lasso.hidden = listener === null;
    if (listener === null && this.tool === "lasso") {
      this.setTool("pan");
    }
  }

  // Scale, colours, limits.

  private get scaleName(): ScaleName {
    return this.image?.cyclic ? "linear" : (this.scaleCell.value as ScaleName);
  }

  private get mapName(): MapName {
    const chosen = this.mapCell.value;
    return isMapName(chosen) ? chosen : defaultMap({ signed: this.signed, cyclic: this.image?.cyclic === true });
  }

  /** The law between today's limits. */
  private scale(): Scale {
    const image = this.image as ImageData2D;
    if (image.cyclic) {
      return new Scale("linear", -Math.PI, Math.PI);
    }
    const name = this.scaleName;
    let [lo, hi] = automaticLimits(this.stats, name, this.signed, this.decades);
    if (this.range.value === "percentile" && Number.isFinite(this.stats.min)) {
      const shares = [image.values, ...(image.common ? [image.common] : [])].map((values) => percentiles(values, [0.01, 0.99]));
      const [a, b] = [Math.min(...shares.map(([low]) => low)), Math.max(...shares.map(([, high]) => high))];
      const size = Math.max(-a, b);
      const [from, to] = this.signed ? [-size, size] : [name === "log" ? Math.max(a, lo) : a, b];
      [lo, hi] = from < to ? [from, to] : [lo, hi];
    }
    const [from, to] = [this.lo.value ?? lo, this.hi.value ?? hi];
    if (from < to) {
      return new Scale(name, from, to);
    }
    // One limit is set beyond the automatic other one.
    const apart = Math.abs(from) || 1;
    return this.hi.value === null ? new Scale(name, from, from + apart) : this.lo.value === null ? new Scale(name, to - apart, to) : new Scale(name, to, from === to ? from + apart : from);
  }

  private setScale(): void {
    this.scaleCell.set(this.scaleSelect.value);
  }

  /** Sets a limit; limits of signed numbers stay symmetric, so that zero keeps its colour. */
  private setLimit(limit: "lo" | "hi", value: number, live: boolean): void {
    if (this.signed) {
      const { hi } = this.scale();
      const size = Math.max(limit === "hi" ? value : -value, Math.abs(hi) * 1e-6);
      this.lo.set(-size, { live: true });
      this.hi.set(size, { live });
    } else {
      this[limit].set(value, { live });
    }
    // At once, not with the next frame: keys that follow each other fast step from the limit that is set.
    this.contrast.update(this.contrastOf(this.scale()), false);
  }

  private setRange(range: "minmax" | "percentile" | "hold"): void {
    const { lo, hi } = this.scale();
    const live = { live: true };
    if (range !== "hold") {
      this.range.set(range, live);
    }
    this.lo.set(range === "hold" ? lo : null, live);
    this.hi.set(range === "hold" ? hi : null);
  }

  // Layout and zoom.

  /** Size of the whole image in data coordinates, along x and y. */
  private get extent(): Point {
    return [Math.abs(this.x.step) * this.x.count, Math.abs(this.y.step) * this.y.count];
  }

  /** Whether x and y are measured alike, so that a circle is drawn round. */
  private get alike(): boolean {
    return this.x.unit === this.y.unit;
  }

  private layout(): void {
    const width = this.frame.clientWidth;
    if (!this.image || width === 0 || this.destroyed) {
      return;
    }
    const narrow = width < 440;
    this.narrow = narrow;
    const [left, right] = [this.y.margin - (narrow ? 6 : 0), narrow ? 12 : 88];
    const free = Math.max(width - left - right, 60);
    const [wide, high] = this.extent;
    const ratio = high / wide;
    let [w, hh] = [free, Math.min(this.height, Math.max(140, free * 0.62))];
    if (this.alike && ratio > 1 / 6 && ratio < 6) {
      w = Math.min(free, this.height / ratio);
      hh = w * ratio;
    }
    this.box = { x: left, y: narrow ? 52 : 8, w: Math.max(Math.round(w), 20), h: Math.max(Math.round(hh), 20) };
    const { x, y } = this.box;
    [w, hh] = [this.box.w, this.box.h];
    const place = (element: HTMLElement, l: number, t: number, pw: number, ph: number) => Object.assign(element.style, { left: `${l}px`, top: `${t}px`, width: `${pw}px`, height: `${ph}px` });
    place(this.plot, x, y, w, hh);
    const bar = this.barBox(this.box, narrow);
    place(this.bar, bar.x, bar.y, bar.w, bar.h);
    this.frame.style.height = `${y + hh + 38}px`;
    const sharp = Math.min(devicePixelRatio || 1, 3);
    const [pixelsX, pixelsY] = [Math.round(w * sharp), Math.round(hh * sharp)];
    if (this.canvas.width !== pixelsX || this.canvas.height !== pixelsY) {
      this.canvas.width = pixelsX;
      this.canvas.height = pixelsY;
    }
    for (const [name, value] of Object.entries({ x, y, width: w, height: hh })) {
      this.clip.setAttribute(name, String(value));
    }
    this.draw();
  }

  /** The visible part, in samples: sample i covers i … i + 1. */
  private get window(): Window2D {
    const { nx, ny } = this.image as ImageData2D;
    const zoom = this.zoomCell.value;
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

  /** Shows so many samples along x about a position in samples. */
  private setWindow(centreX: number, centreY: number, samples: number, live: boolean): void {
    const nx = (this.image as ImageData2D).nx;
    if (samples >= nx * 0.9999) {
      this.zoomCell.set([], { live });
      return;
    }
    const least = nx / this.largestZoom;
    this.zoomCell.set([this.x.position(centreX - 0.5), this.y.position(centreY - 0.5), Math.max(samples, least) * Math.abs(this.x.step)], { live });
    // What is kept is what is shown: clamped to the image.
    const { x0, x1, y0, y1 } = this.window;
    this.zoomCell.set([this.x.position((x0 + x1 - 1) / 2), this.y.position((y0 + y1 - 1) / 2), (x1 - x0) * Math.abs(this.x.step)], { live });
  }

  /** Zooms about a position in samples, which stays where it is; about the cursor or the middle if none is given. */
  private zoomBy(factor: number, about?: Point, live = false): void {
    if (!this.image) {
      return;
    }
    const { x0, x1, y0, y1 } = this.window;
    const [ax, ay] = about ?? (this.cursor ? [this.cursor.i + 0.5, this.cursor.j + 0.5] : [(x0 + x1) / 2, (y0 + y1) / 2]);
    const limit = Math.min(Math.max(factor, (x1 - x0) / this.image.nx), ((x1 - x0) / this.image.nx) * this.largestZoom);
    this.setWindow(ax + ((x0 + x1) / 2 - ax) / limit, ay + ((y0 + y1) / 2 - ay) / limit, (x1 - x0) / limit, live);
  }

  /** Position of a pointer in samples (sample i covers i … i + 1). */
  private sampleAt(event: { readonly clientX: number; readonly clientY: number }): Point {
    const { left, top, width, height } = this.plot.getBoundingClientRect();
    const { x0, x1, y0, y1 } = this.window;
    return [x0 + ((event.clientX - left) / width) * (x1 - x0), y1 - ((event.clientY - top) / height) * (y1 - y0)];
  }

  /** A position in samples in data coordinates. */
  private toData([a, b]: Point): Point {
    return [this.x.position(a - 0.5), this.y.position(b - 0.5)];
  }

  private projection(window = this.window, box = this.box): Projection {
    const { x0, x1, y0, y1 } = window;
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

  // Drawing.

  private frameOf(scale: Scale, width: number, height: number, window: Window2D, dark: boolean): Frame {
    const missing = dark ? [[58, 58, 62], [88, 88, 94]] : [[226, 226, 226], [190, 190, 190]];
    return {
      window, width, height, scale,
      table: colourTable(this.mapName),
      wrap: this.image?.cyclic === true,
      missing: missing as [number[], number[]],
      hatch: Math.max(4, Math.round((8 * width) / this.box.w)),
    };
  }

  /** Draws what changed. */
  private draw(): void {
    const image = this.image;
    const context = this.canvas.getContext("2d");
    if (!image || this.destroyed || this.box.w === 0 || !context) {
      return;
    }
    const scale = this.scale();
    const window = this.window;
    const dark = isDark();
    const frame = this.frameOf(scale, this.canvas.width, this.canvas.height, window, dark);
    const onGpu = this.renderer.draw(context, frame);
    this.element.dataset["renderer"] = onGpu ? "webgl2" : "2d";
    this.plot.style.touchAction = this.tool !== "pan" || this.zoomCell.value.length > 0 ? "none" : "pan-y";

    const axesKey = JSON.stringify([window, this.box]);
    const projection = this.projection(window);
    if (axesKey !== this.axesKey) {
      this.axesKey = axesKey;
      this.drawOverlay(this.axesGroup, this.scaleBarGroup, window, this.box, this.box.x);
      this.shapeLayer.draw(projection);
    }
    const barKey = JSON.stringify([scale.lo, scale.hi, scale.name, this.mapName, image.quantity, image.unit, this.box]);
    if (barKey !== this.barKey) {
      this.barKey = barKey;
      this.barGroup.replaceChildren(drawColourBar(this.barBox(this.box, this.narrow), scale, image.quantity, image.unit));
      paintBar(this.bar, frame.table, this.narrow);
      this.contrast.update(this.contrastOf(scale), false);
    }
    this.drawOwn();
    this.ownLayer.draw(projection);
    this.drawCursor();
    this.syncControls();
    clearTimeout(this.settled);
    this.settled = setTimeout(() => this.settle(), 80);
  }

  /** The colour bar's box: at the right of an image, or above it where the page is narrow. */
  private barBox({ x, y, w, h }: Box, above: boolean): Box {
    return above ? { x, y: y - 34, w, h: 12 } : { x: x + w + 10, y, w: 14, h };
  }

  private contrastOf(scale: Scale) {
    const { values, quantity, unit } = this.image as ImageData2D;
    return { values, stats: this.stats, scale, quantity, unit };
  }

  /** Axes and scale bar. */
  private drawOverlay(axes: SVGGElement, bar: SVGGElement, { x0, x1, y0, y1 }: Window2D, box: Box, margin: number): void {
    const horizontal = this.x.ticks(x0 - 0.5, x1 - 0.5, Math.max(2, Math.floor(box.w / this.x.apart)));
    const vertical = this.y.ticks(y0 - 0.5, y1 - 0.5, Math.max(3, Math.floor(box.h / 36)));
    axes.replaceChildren(drawAxes(box, horizontal, vertical, (i) => box.x + ((i + 0.5 - x0) / (x1 - x0)) * box.w, (j) => box.y + box.h - ((j + 0.5 - y0) / (y1 - y0)) * box.h, margin));
    const perUnit = box.w / (x1 - x0) / Math.abs(this.x.step);
    const length = this.x.unit !== undefined && this.alike ? scaleBar((box.w / 3) / perUnit, this.x.unit) : undefined;
    bar.replaceChildren(...(length ? [drawScaleBar(box, length.length * perUnit, length.label)] : []));
  }

  /** The profile's line with its ends, the outline of a lasso that grows, and the profile's curve. */
  private drawOwn(): void {
    const line = this.profileCell.value;
    const shapes: Shape[] = [];
    if (line.length === 4) {
      const [x0, y0, x1, y1] = line;
      shapes.push(
        { kind: "polygon", id: "line", points: [[x0, y0], [x1, y1]], label: "Line of the profile", closed: false },
        { kind: "marker", id: "start", x: x0, y: y0, symbol: "circle", label: "", drag: true },
        { kind: "marker", id: "end", x: x1, y: y1, symbol: "square", label: "", drag: true },
      );
    }
    if (this.lassoPoints.length > 0) {
      shapes.push({ kind: "polygon", id: "lasso", points: this.lassoPoints, label: "Outline", closed: false, dashed: true });
    }
    this.ownLayer.set(shapes);
    const { box } = this;
    this.profilePlot.show(this.profile(), box.x + box.w + 20, { ...box, y: 8, h: 110 }, this.scaleName, [this.x.title, this.y.title]);
  }

  /** The profile along the line, if there is one. */
  private profile(): Profile | undefined {
    const line = this.profileCell.value;
    const image = this.image;
    if (!image || line.length !== 4) {
      return undefined;
    }
    const points = linePoints(this.x.index(line[0]), this.y.index(line[1]), this.x.index(line[2]), this.y.index(line[3]));
    const x = Float64Array.from(points, ({ i }) => this.x.position(i));
    const y = Float64Array.from(points, ({ j }) => this.y.position(j));
    const inUnits = this.alike && this.x.unit !== undefined;
    const [first] = points;
    return {
      x,
      y,
      length: Float64Array.from(points, ({ i, j }, k) => (inUnits ? Math.hypot(x[k] - x[0], y[k] - y[0]) : Math.hypot(i - first.i, j - first.j))),
      values: Float64Array.from(points, ({ i, j }) => interpolate(image.values, image.nx, image.ny, i, j)),
      unit: inUnits ? (this.x.unit as string) : "samples",
      quantity: image.quantity,
      valueUnit: image.unit,
    };
  }

  private syncControls(): void {
    const { mapSelect, scaleSelect, image } = this;
    const cyclic = image?.cyclic === true;
    scaleSelect.value = this.scaleName;
    scaleSelect.disabled = cyclic;
    this.contrast.element.hidden = cyclic;
    this.automaticOption.textContent = `automatic (${mapLabel(defaultMap({ signed: this.signed, cyclic }))})`;
    mapSelect.value = this.mapCell.value;
    for (const name of ["profile", "lasso"] as const) {
      this.toolButtons[name].setAttribute("aria-pressed", String(this.tool === name));
    }
  }

  /** What may wait until images no longer follow each other: the histogram, and the words for screen readers. */
  private settle(): void {
    const image = this.image;
    if (!image || this.destroyed) {
      return;
    }
    const scale = this.scale();
    this.contrast.update(this.contrastOf(scale), true);
    const { min, max } = this.stats;
    const span = Number.isNaN(min) ? "no finite numbers" : `from ${quantity(min, image.unit, 4)} to ${quantity(max, image.unit, 4)}`;
    this.plot.setAttribute("aria-label", `${this.label}: ${image.quantity}, ${image.nx} by ${image.ny} samples, ${span}`);
    if (!this.cursor) {
      this.readOut.textContent = this.summary(scale);
    }
  }

  /** A line below the image while there is no cursor. */
  private summary(scale: Scale): string {
    const { unit } = this.image as ImageData2D;
    const { min, max } = this.stats;
    const range = Number.isNaN(min) ? "no finite numbers" : `${quantity(min, "", 4)} … ${quantity(max, unit, 4)}`;
    return scale.core > 0 ? `${range}; logarithmic, linear within ±${quantity(scale.core, unit, 2)}` : range;
  }

  // Cursor.

  /** The sample of the cursor with its position and number. */
  private cursorAt(i: number, j: number): Cursor {
    const { values, nx } = this.image as ImageData2D;
    return { i, j, x: this.x.position(i), y: this.y.position(j), value: values[j * nx + i] };
  }

  private setCursor(cursor: { i: number; j: number; keyboard: boolean } | undefined): void {
    if (!this.image || (cursor?.i === this.cursor?.i && cursor?.j === this.cursor?.j && cursor?.keyboard === this.cursor?.keyboard)) {
      return;
    }
    this.cursor = cursor;
    this.drawCursor();
    const at = cursor && this.cursorAt(cursor.i, cursor.j);
    this.cursorListeners.forEach((listener) => listener(at ?? null));
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
    if (!this.image) {
      return;
    }
    const [i, j] = at ? [Math.round(this.x.index(at.x)), Math.round(this.y.index(at.y))] : [-1, -1];
    const inside = i >= 0 && j >= 0 && i < this.image.nx && j < this.image.ny;
    this.cursor = inside ? { i, j, keyboard: true } : undefined;
    this.drawCursor();
  }

  private drawCursor(): void {
    const { cursor, image, box } = this;
    if (!image) {
      return;
    }
    if (!cursor || cursor.i >= image.nx || cursor.j >= image.ny) {
      this.crossHair.setAttribute("d", "");
      if (cursor === undefined) {
        this.readOut.textContent = this.summary(this.scale());
      }
      return;
    }
    const { i, j, value } = this.cursorAt(cursor.i, cursor.j);
    this.readOut.textContent = `${this.x.label(i)}, ${this.y.label(j)}: ${quantity(value, image.unit)}`;
    const { x0, x1, y0, y1 } = this.window;
    const x = box.x + ((i + 0.5 - x0) / (x1 - x0)) * box.w;
    const y = box.y + box.h - ((j + 0.5 - y0) / (y1 - y0)) * box.h;
    this.crossHair.setAttribute("d", cursor.keyboard ? `M${box.x} ${y}H${x - 5}M${x + 5} ${y}H${box.x + box.w}M${x} ${box.y}V${y - 5}M${x} ${y + 5}V${box.y + box.h}` : "");
  }

  private key(event: KeyboardEvent): void {
    const image = this.image;
    if (!image || event.target !== this.plot || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const { x0, x1, y0, y1 } = this.window;
    const far = event.shiftKey ? 10 : 1;
    const step = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, far], ArrowDown: [0, -far], PageUp: [0, 10], PageDown: [0, -10], Home: [-image.nx, 0], End: [image.nx, 0] }[event.key];
    let used = true;
    if (step) {
      const from = this.cursor ?? { i: Math.floor((x0 + x1) / 2) - step[0], j: Math.floor((y0 + y1) / 2) - step[1] };
      const clamp = (at: number, count: number) => Math.min(Math.max(at, 0), count - 1);
      const [i, j] = [clamp(from.i + step[0], image.nx), clamp(from.j + step[1], image.ny)];
      this.reveal(i, j);
      this.setCursor({ i, j, keyboard: true });
    } else if (event.key === "+" || event.key === "=") {
      this.zoomBy(2);
    } else if (event.key === "-" || event.key === "−") {
      this.zoomBy(0.5);
    } else if (event.key === "0") {
      this.zoomCell.reset();
    } else if (event.key === "Enter" && this.cursor) {
      this.enter(this.cursor.i, this.cursor.j);
    } else if (event.key === "Backspace" && this.lassoPoints.length > 0) {
      this.growLasso(this.lassoPoints.slice(0, -1));
    } else if (event.key === "Escape" && (this.cursor || this.tool !== "pan")) {
      this.lassoPoints = [];
      this.setTool("pan");
      this.setCursor(undefined);
    } else {
      used = false;
    }
    if (used) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  /** Pans so that a sample is visible. */
  private reveal(i: number, j: number): void {
    const { x0, x1, y0, y1 } = this.window;
    const by = (at: number, from: number, to: number) => (at < from ? at - from : at + 1 > to ? at + 1 - to : 0);
    const [dx, dy] = [by(i, x0, x1), by(j, y0, y1)];
    if (dx !== 0 || dy !== 0) {
      this.setWindow((x0 + x1) / 2 + dx, (y0 + y1) / 2 + dy, x1 - x0, true);
    }
  }

  /** Enter at the cursor: picks, or adds a corner of the lasso or an end of the profile. */
  private enter(i: number, j: number): void {
    const { x, y } = this.cursorAt(i, j);
    const last = this.lassoPoints.at(-1);
    if (this.tool === "lasso") {
      if (last && last[0] === x && last[1] === y) {
        this.closeLasso();
      } else {
        this.growLasso([...this.lassoPoints, [x, y]]);
        this.spoken.textContent = `Corner ${this.lassoPoints.length}; Enter again at the same position closes the outline.`;
      }
    } else {
      this.pick(i, j);
    }
  }

  private pick(i: number, j: number): void {
    const at = this.cursorAt(i, j);
    this.pickListeners.forEach((listener) => listener(at));
  }

  // Tools.

  private setTool(tool: Tool): void {
    this.tool = tool;
    this.plot.dataset["tool"] = tool;
    this.schedule();
  }

  /** Turns a tool on or off. The profile's begins with a line across the middle, which the keyboard can move. */
  private toggle(tool: "profile" | "lasso"): void {
    this.lassoPoints = [];
    this.setTool(this.tool === tool ? "pan" : tool);
    if (this.tool === "profile" && this.profileCell.value.length === 0 && this.image) {
      const { x0, x1, y0, y1 } = this.window;
      const middle = Math.floor((y0 + y1) / 2) + 0.5;
      this.profileCell.set([...this.toData([Math.ceil(x0) + 0.5, middle]), ...this.toData([Math.floor(x1) - 0.5, middle])]);
    }
  }

  private moveProfile({ id, x, y, live }: ShapeChange): void {
    const line = this.profileCell.value;
    if (line.length === 4) {
      const [a, b] = this.inside(x, y);
      this.profileCell.set(id === "start" ? [a, b, line[2], line[3]] : [line[0], line[1], a, b], { live });
    }
  }

  /** A position in data coordinates, moved into the image. */
  private inside(x: number, y: number): Point {
    const clamp = (axis: Axis, at: number) => axis.position(Math.min(Math.max(axis.index(at), -0.5), axis.count - 0.5));
    return [clamp(this.x, x), clamp(this.y, y)];
  }

  private removeProfile(): void {
    this.profileCell.reset();
    this.setTool("pan");
  }

  private growLasso(points: Point[]): void {
    this.lassoPoints = points;
    this.lasso?.(points, true);
    this.schedule();
  }

  private closeLasso(): void {
    const points = this.lassoPoints;
    this.lassoPoints = [];
    this.lasso?.(points, false);
    this.schedule();
  }

  // Pointer.

  private down(event: PointerEvent): void {
    const target = event.target as Element;
    const handle = target.closest<SVGElement>("[data-part]");
    if (!this.image || event.button !== 0 || (!handle && !this.plot.contains(target))) {
      return;
    }
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.frame.setPointerCapture(event.pointerId);
    (handle ?? this.plot).focus({ preventScroll: true });
    event.preventDefault();
    const sample = this.sampleAt(event);
    if (this.pointers.size === 2) {
      const { x0, x1 } = this.window;
      const [middle, distance] = this.pinch();
      this.lassoPoints = [];
      this.gesture = { kind: "pinch", distance, sample: this.sampleAt({ clientX: middle[0], clientY: middle[1] }), width: x1 - x0 };
    } else if (handle) {
      this.gesture = {
        kind: "shape",
        layer: this.ownLayer.element.contains(handle) ? this.ownLayer : this.shapeLayer,
        id: handle.dataset["shape"] as string,
        part: handle.dataset["part"] as "radius" | "centre",
      };
    } else if (event.shiftKey || this.tool === "profile") {
      this.gesture = { kind: "profile", start: this.toData(sample), moved: false };
    } else if (this.tool === "lasso" && this.lasso) {
      this.gesture = { kind: "lasso", points: [this.toData(sample)], last: [event.clientX, event.clientY] };
    } else {
      this.gesture = { kind: "pan", startX: event.clientX, startY: event.clientY, window: this.window, moved: false };
    }
  }

  /** Middle and distance of the two pointers that are down. */
  private pinch(): readonly [Point, number] {
    const [a, b] = [...this.pointers.values()];
    return [[(a[0] + b[0]) / 2, (a[1] + b[1]) / 2], Math.max(Math.hypot(a[0] - b[0], a[1] - b[1]), 1)];
  }

  private move(event: PointerEvent): void {
    if (!this.image) {
      return;
    }
    const sample = this.sampleAt(event);
    const { gesture, box } = this;
    if (!gesture) {
      this.hover(event, sample);
      return;
    }
    if (!this.pointers.has(event.pointerId)) {
      return;
    }
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    const data = this.inside(...this.toData(sample));
    switch (gesture.kind) {
      case "pan": {
        const [dx, dy] = [event.clientX - gesture.startX, event.clientY - gesture.startY];
        gesture.moved ||= Math.hypot(dx, dy) > 4;
        const { x0, x1, y0, y1 } = gesture.window;
        if (gesture.moved && this.zoomCell.value.length > 0) {
          this.setWindow((x0 + x1) / 2 - (dx / box.w) * (x1 - x0), (y0 + y1) / 2 + (dy / box.h) * (y1 - y0), x1 - x0, true);
        }
        break;
      }
      case "pinch":
        if (this.pointers.size === 2) {
          const [middle, distance] = this.pinch();
          this.setWindow(...gesture.sample, (gesture.width * gesture.distance) / distance, true);
          // The sample that was between the fingers stays there.
          const [a, b] = this.sampleAt({ clientX: middle[0], clientY: middle[1] });
          const { x0, x1, y0, y1 } = this.window;
          this.setWindow((x0 + x1) / 2 + gesture.sample[0] - a, (y0 + y1) / 2 + gesture.sample[1] - b, x1 - x0, true);
        }
        break;
      case "shape":
        gesture.layer.drag(gesture.id, gesture.part, ...this.toData(sample), true);
        break;
      case "profile":
        gesture.moved = true;
        this.profileCell.set([...gesture.start, ...data], { live: true });
        break;
      case "lasso":
        if (Math.hypot(event.clientX - gesture.last[0], event.clientY - gesture.last[1]) >= 3) {
          gesture.last = [event.clientX, event.clientY];
          gesture.points = [...gesture.points, data];
          this.growLasso(gesture.points);
        }
    }
  }

  private hover(event: PointerEvent, [a, b]: Point): void {
    const { nx, ny } = this.image as ImageData2D;
    const [i, j] = [Math.floor(a), Math.floor(b)];
    const target = event.target as Element;
    const over = this.plot.contains(target) || target.closest("[data-part]") !== null;
    this.setCursor(over && i >= 0 && j >= 0 && i < nx && j < ny ? { i, j, keyboard: false } : undefined);
  }

  private up(event: PointerEvent, cancelled: boolean): void {
    const { gesture } = this;
    this.pointers.delete(event.pointerId);
    if (!gesture || !this.image) {
      return;
    }
    this.gesture = undefined;
    const [a, b] = this.sampleAt(event);
    switch (gesture.kind) {
      case "pan":
        if (gesture.moved) {
          this.zoomCell.set(this.zoomCell.value);
        } else if (!cancelled) {
          this.hover(event, [a, b]);
          if (a >= 0 && b >= 0 && a < this.image.nx && b < this.image.ny) {
            this.pick(Math.floor(a), Math.floor(b));
          }
        }
        break;
      case "pinch":
        this.zoomCell.set(this.zoomCell.value);
        break;
      case "shape":
        gesture.layer.drag(gesture.id, gesture.part, ...this.toData([a, b]), false);
        break;
      case "profile":
        if (gesture.moved) {
          this.profileCell.set(this.profileCell.value);
        }
        break;
      case "lasso":
        if (gesture.points.length > 2 && !cancelled) {
          this.closeLasso();
        } else {
          this.lassoPoints = [];
          this.schedule();
        }
    }
  }

  private leave(event: PointerEvent): void {
    if (event.pointerType !== "touch" && !this.gesture && !this.cursor?.keyboard) {
      this.setCursor(undefined);
    }
  }

  /** Zooms in, or out with Shift. The frame gets the event even over the image, since it captured the pointer. */
  private doubleClick(event: MouseEvent): void {
    const { left, right, top, bottom } = this.plot.getBoundingClientRect();
    const inside = event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
    if (this.image && inside && this.tool === "pan") {
      this.zoomBy(event.shiftKey ? 0.5 : 2, this.sampleAt(event));
    }
  }

  private wheel(event: WheelEvent): void {
    const scrolling = event.timeStamp - pageScrolled < 300;
    if (!this.image || event.deltaY === 0 || (scrolling && !event.ctrlKey)) {
      pageScrolled = scrolling ? event.timeStamp : pageScrolled;
      return;
    }
    if (event.deltaY > 0 && this.zoomCell.value.length === 0 && !event.ctrlKey) {
      return;
    }
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    this.zoomBy(Math.exp(-Math.min(Math.max(event.deltaY * lines, -240), 240) * (event.ctrlKey ? 0.01 : 0.003)), this.sampleAt(event), true);
    clearTimeout(this.wheeled);
    this.wheeled = setTimeout(() => this.zoomCell.set(this.zoomCell.value), 300);
  }

  // Export.

  /** The visible samples, by rows from the bottom to the top; where there are more than `most`, means of neighbouring ones. */
  table(most = Infinity): DataTable {
    const image = this.image;
    if (!image) {
      return { caption: this.label, columns: [], rows: [] };
    }
    const { i0, i1, j0, j1 } = this.visible();
    const each = Math.max(1, Math.ceil(Math.sqrt(((i1 - i0) * (j1 - j0)) / most)));
    const starts = (from: number, to: number) => Array.from({ length: Math.ceil((to - from) / each) }, (_, k) => from + k * each);
    const middle = (axis: Axis, from: number, to: number) => {
      const [first, last] = [axis.position(from), axis.position(Math.min(from + each, to) - 1)];
      // Zero on an axis whose offset is many steps is zero, but for rounding.
      return Math.abs(first + last) < 1e-9 * Math.abs(axis.position(1) - axis.position(0)) ? 0 : (first + last) / 2;
    };
    const mean = (i: number, j: number) => {
      let [sum, count] = [0, 0];
      for (let b = j; b < Math.min(j + each, j1); b++) {
        for (let a = i; a < Math.min(i + each, i1); a++) {
          sum += image.values[b * image.nx + a];
          count++;
        }
      }
      return sum / count;
    };
    const columns = starts(i0, i1);
    const averaged = each > 1 ? `; means over ${each} × ${each} samples` : "";
    return {
      caption: `${this.label}: ${title(image.quantity, image.unit)}; rows ${this.y.title}, columns ${this.x.title}${averaged}`,
      columns: [`${this.y.title} \\ ${this.x.title}`, ...columns.map((i) => String(Number(middle(this.x, i, i1).toPrecision(7))))],
      rows: starts(j0, j1).map((j) => [Number(middle(this.y, j, j1).toPrecision(12)), ...columns.map((i) => mean(i, j))]),
    };
  }

  /** Samples that are visible, at least in part. */
  private visible(): { readonly i0: number; readonly i1: number; readonly j0: number; readonly j1: number } {
    const { x0, x1, y0, y1 } = this.window;
    return { i0: Math.floor(x0 + 1e-6), i1: Math.ceil(x1 - 1e-6), j0: Math.floor(y0 + 1e-6), j1: Math.ceil(y1 - 1e-6) };
  }

  /** The picture with axes, colour bar, shapes and profile, in the colours of print. */
  svg(): string {
    const image = this.image;
    if (!image) {
      return '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>';
    }
    if (this.box.w === 0) {
      this.box = { x: 52, y: 8, w: 400, h: Math.round(this.alike ? Math.min(400 * (this.extent[1] / this.extent[0]), 800) : 250) };
    }
    const scale = this.scale();
    const window = this.window;
    const box = { ...this.box, x: this.y.margin + 8, y: 30 };
    const profile = this.profile();
    const below = box.y + box.h + 44;
    const [width, height] = [box.x + box.w + 110, below + (profile ? 160 : 0)];
    const clip = uniqueId("clip");
    const { i0, i1, j0, j1 } = this.visible();
    const [kx, ky] = [box.w / (window.x1 - window.x0), box.h / (window.y1 - window.y0)];
    const pixels = (count: number) => Math.min(count, 2048);
    const picture = drawOnProcessor(image.values, image.nx, image.ny, this.frameOf(scale, pixels(i1 - i0), pixels(j1 - j0), { x0: i0, y0: j0, x1: i1, y1: j1 }, false));
    const bar = this.barBox(box, false);
    const barCanvas = h("canvas");
    paintBar(barCanvas, colourTable(this.mapName), false);
    const embedded = (href: string, at: Box, more = {}) => svg("image", { href, x: at.x, y: at.y, width: at.w, height: at.h, preserveAspectRatio: "none", style: "image-rendering:pixelated", ...more });
    const at = { x: box.x + (i0 - window.x0) * kx, y: box.y + (window.y1 - j1) * ky, w: (i1 - i0) * kx, h: (j1 - j0) * ky };
    const [axes, scaleBarGroup] = [svg("g"), svg("g")];
    this.drawOverlay(axes, scaleBarGroup, window, box, box.x);
    const projection = this.projection(window, box);
    const taken: Box[] = [];
    const root = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "Helvetica, Arial, sans-serif", "font-size": 11, color: "#111" },
      svg("title", {}, this.label),
      svg("clipPath", { id: clip }, svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h })),
      svg("text", { x: box.x, y: 18, "font-size": 13, "font-weight": "bold", fill: "currentColor" }, this.label),
      svg("g", { "clip-path": `url(#${clip})` }, embedded(pngOf(picture), at), scaleBarGroup, ...[...this.shapeLayer.shapes, ...this.ownLayer.shapes].map((shape) => drawShape(shape, projection, taken))),
      axes,
      embedded(barCanvas.toDataURL(), bar),
      drawColourBar(bar, scale, image.quantity, image.unit),
      profile ? drawProfile({ ...box, y: below + 6, h: 110 }, profile, this.scaleName) : null,
    );
    return new XMLSerializer().serializeToString(root);
  }

  destroy(): void {
    this.destroyed = true;
    this.linked.delete(this);
    clearTimeout(this.settled);
    clearTimeout(this.wheeled);
    this.ends.forEach((end) => end());
    this.renderer.destroy();
    this.element.remove();
  }
}

/** Whether the page is dark: by its own choice, else by that of the system. */
function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Paints the colours of a map into a canvas of 256 pixels, from the bottom to the top or from the left to the right. */
function paintBar(canvas: HTMLCanvasElement, table: Uint8ClampedArray, across: boolean): void {
  [canvas.width, canvas.height] = across ? [256, 1] : [1, 256];
  const image = new ImageData(canvas.width, canvas.height);
  for (let k = 0; k < 256; k++) {
    image.data.set(table.subarray(4 * k, 4 * k + 4), 4 * (across ? k : 255 - k));
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}

/** Pixels as a PNG in a data URL. */
function pngOf(image: ImageData): string {
  const canvas = h("canvas", { width: image.width, height: image.height });
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
