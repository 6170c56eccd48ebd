/** Tools of an image: a profile along a line, and a lasso about a region. */

import { h } from "../../dom";
import type { Cell } from "../../store";
import type { Shape, ShapeChange } from "../image.api";
import { interpolate, linePoints, ProfilePlot, type Profile } from "../profile";
import { ShapeLayer } from "../shapes";
import type { ImageColours } from "./colours";
import type { Point, Viewport } from "./viewport";

/** Called with the outline of a lasso in data coordinates, `live` while it grows. */
export type LassoListener = (points: readonly Point[], live: boolean) => void;

/** The tools that have a button. */
type Tool = "profile" | "lasso";

/** The line of a profile and the outline of a lasso, with the buttons that choose between them and panning. */
export class ImageTools {
  readonly buttons: Record<Tool, HTMLButtonElement>;
  /** The line of the profile with its ends, and an outline that grows. */
  readonly layer: ShapeLayer;
  readonly profilePlot: ProfilePlot;
  /** What dragging draws: "pan" for nothing. */
  tool: Tool | "pan" = "pan";
  /** Corners of a lasso that is not closed, in data coordinates. */
  outline: readonly Point[] = [];
  private lasso: LassoListener | null = null;

  /** `line` holds both ends of the profile in data coordinates, or nothing; `changed` is called when a tool or an outline changed. */
  constructor(
    label: string,
    private readonly viewport: Viewport,
    readonly line: Cell<number[]>,
    private readonly changed: () => void,
  ) {
    const button = (tool: Tool, text: string, title: string) => h("button", { type: "button", "aria-pressed": "false", title, click: () => this.toggle(tool) }, text);
    this.buttons = {
      profile: button("profile", "Profile", "Drag a line over the image (or Shift and drag)"),
      lasso: button("lasso", "Lasso", "Draw around a region; by keyboard, Enter adds a corner at the cursor, twice closes the outline"),
    };
    this.buttons.lasso.hidden = true;
    this.profilePlot = new ProfilePlot(label, () => {
      line.reset();
      this.choose("pan");
    });
    this.layer = new ShapeLayer((change) => this.moveEnd(change), () => [viewport.x.unit ?? "", viewport.y.unit ?? ""]);
  }

  /** Offers the lasso, or no longer. */
  setLasso(listener: LassoListener | null): void {
    this.lasso = listener;
    this.buttons.lasso.hidden = listener === null;
    if (listener === null && this.tool === "lasso") {
      this.choose("pan");
    }
  }

  /** Whether dragging draws an outline. */
  get drawsOutline(): boolean {
    return this.tool === "lasso" && this.lasso !== null;
  }

  /** Takes a tool up; "pan" puts it away. */
  choose(tool: Tool | "pan"): void {
    this.tool = tool;
    this.changed();
  }

  /** Turns a tool on or off. The profile's begins with a line across the middle, which the keyboard can move. */
  private toggle(tool: Tool): void {
    const { viewport } = this;
    this.outline = [];
    this.choose(this.tool === tool ? "pan" : tool);
    if (this.tool === "profile" && this.line.value.length === 0 && viewport.image) {
      const { x0, x1, y0, y1 } = viewport.window;
      const middle = Math.floor((y0 + y1) / 2) + 0.5;
      this.line.set([...viewport.toData([Math.ceil(x0) + 0.5, middle]), ...viewport.toData([Math.floor(x1) - 0.5, middle])]);
    }
  }

  private moveEnd({ id, x, y, live }: ShapeChange): void {
    const line = this.line.value;
    if (line.length === 4) {
      const [a, b] = this.viewport.inside(x, y);
      this.line.set(id === "start" ? [a, b, line[2], line[3]] : [line[0], line[1], a, b], { live });
    }
  }

  /** Draws the outline of a lasso so far. */
  growOutline(points: readonly Point[]): void {
    this.outline = points;
    this.lasso?.(points, true);
    this.changed();
  }

  /** Closes the outline of a lasso, and hands it on. */
  closeOutline(): void {
    const points = this.outline;
    this.outline = [];
    this.lasso?.(points, false);
    this.changed();
  }

  /** Gives an outline up that is not closed. */
  dropOutline(): void {
    this.outline = [];
    this.changed();
  }

  /** The profile along the line, if there is one. */
  profile(): Profile | undefined {
    const line = this.line.value;
    const { image, x: xAxis, y: yAxis, alike } = this.viewport;
    if (!image || line.length !== 4) {
      return undefined;
    }
    const points = linePoints(xAxis.index(line[0]), yAxis.index(line[1]), xAxis.index(line[2]), yAxis.index(line[3]));
    const x = Float64Array.from(points, ({ i }) => xAxis.position(i));
    const y = Float64Array.from(points, ({ j }) => yAxis.position(j));
    const unit = alike ? xAxis.unit : undefined;
    const [first] = points;
    return {
      x,
      y,
      length: Float64Array.from(points, ({ i, j }, k) => (unit === undefined ? Math.hypot(i - first.i, j - first.j) : Math.hypot(x[k] - x[0], y[k] - y[0]))),
      values: Float64Array.from(points, ({ i, j }) => interpolate(image.values, image.nx, image.ny, i, j)),
      unit: unit ?? "samples",
      quantity: image.quantity,
      valueUnit: image.unit,
    };
  }

  /** Draws the profile's line with its ends, the outline of a lasso that grows, and the profile's curve on the scale of the colours. */
  draw({ scaleName }: ImageColours): void {
    const { viewport, outline, tool } = this;
    const { box } = viewport;
    const line = this.line.value;
    const shapes: Shape[] = [];
    if (line.length === 4) {
      const [x0, y0, x1, y1] = line;
      shapes.push(
        { kind: "polygon", id: "line", points: [[x0, y0], [x1, y1]], label: "Line of the profile", closed: false },
        { kind: "marker", id: "start", x: x0, y: y0, symbol: "circle", label: "", drag: true },
        { kind: "marker", id: "end", x: x1, y: y1, symbol: "square", label: "", drag: true },
      );
    }
    if (outline.length > 0) {
      shapes.push({ kind: "polygon", id: "lasso", points: outline, label: "Outline", closed: false, dashed: true });
    }
    this.layer.set(shapes);
    this.profilePlot.show(this.profile(), box.x + box.w + 20, { ...box, y: 8, h: 110 }, scaleName, [viewport.x.title, viewport.y.title]);
    this.layer.draw(viewport.projection());
    for (const name of ["profile", "lasso"] as const) {
      this.buttons[name].setAttribute("aria-pressed", String(tool === name));
    }
  }
}
