/** Shapes over an image: circles, polygons, markers and arrows, moved by pointer or by keyboard. */

import { formatNumber } from "../data";
import { plainNumber, svg } from "../dom";
import { textWidth, type Box } from "./axes";
import type { Shape, ShapeChange } from "./image.api";

/** Where data coordinates lie in a drawing, pixels; y of the drawing points downwards. */
export interface Projection {
  px(x: number): number;
  py(y: number): number;
  /** Size of a sample in data coordinates, and pixels to a unit of them. */
  readonly stepX: number;
  readonly stepY: number;
  readonly perX: number;
  readonly perY: number;
  /** Where the image is: labels stay inside. */
  readonly box: Box;
}

type Part = "radius" | "centre";

const HALO = { stroke: "#000", "stroke-opacity": 0.55, "stroke-width": 4, fill: "none", "stroke-linejoin": "round" };
const LINE = { stroke: "#fff", "stroke-width": 1.75, fill: "none", "stroke-linejoin": "round" };

/** The outline of a marker of about 14 pixels. */
function symbolPath(symbol: Extract<Shape, { kind: "marker" }>["symbol"]): string {
  switch (symbol) {
    case "star":
      return `M${Array.from({ length: 10 }, (_, k) => {
        const [r, a] = [k % 2 === 0 ? 8 : 3.4, (k * Math.PI) / 5];
        return `${(r * Math.sin(a)).toFixed(2)} ${(-r * Math.cos(a)).toFixed(2)}`;
      }).join("L")}Z`;
    case "cross":
      return "M-7 0H7M0-7V7";
    case "circle":
      return "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0-6 0Z";
    case "square":
      return "M-6-6H6V6H-6Z";
    case "triangle":
      return "M0-7L7 5H-7Z";
  }
}

/** Directions from the middle of a circle in which its label may be, in the order of preference, degrees. */
const DIRECTIONS = [45, 30, 60, 15, 75, 135, 150, 120, 165, 105, 225, 315, 0, 90, 180, 270];

/** The picture of a shape without its handles. Texts that would overlap those of `taken`, to which it adds, are left out. */
export function drawShape(shape: Shape, to: Projection, taken: Box[]): SVGGElement {
  const group = svg("g");
  const { box } = to;
  const both = (d: string, dashed = false, transform?: string) => {
    const more = { d, transform: transform ?? null, "stroke-dasharray": dashed ? "6 4" : null };
    group.append(svg("path", { ...HALO, ...more }), svg("path", { ...LINE, ...more }));
  };
  const wide = textWidth(shape.label ?? "");
  const fits = (x: number, y: number) => x >= box.x + 2 && x + wide <= box.x + box.w - 2 && y >= box.y + 11 && y <= box.y + box.h - 4;
  const write = (x: number, y: number) =>
    group.append(svg("text", { x, y, fill: "#fff", stroke: "#000", "stroke-opacity": 0.7, "stroke-width": 3, "paint-order": "stroke" }, shape.label ?? ""));
  /** Writes the label from one of some places on, moved into the image if the point that it names is in it: where no other text is. */
  const label = (px: number, py: number, ...places: readonly (readonly [number, number])[]) => {
    if (!shape.label || px < box.x - 1 || px > box.x + box.w + 1 || py < box.y - 1 || py > box.y + box.h + 1) {
      return;
    }
    const all = places.map(([x, y]) => ({ x: Math.max(Math.min(x, box.x + box.w - wide - 3), box.x + 3), y: Math.max(Math.min(y, box.y + box.h - 5), box.y + 12) - 10, w: wide, h: 12 }));
    const free = all.find((own) => taken.every((one) => own.x + own.w + 3 < one.x || one.x + one.w + 3 < own.x || own.y + own.h < one.y || one.y + one.h < own.y));
    // Names of regions are left out where there is no room, those of markers are not.
    const own = shape.kind !== "text" ? (free ?? all[0]) : wide <= box.w ? free : undefined;
    if (own) {
      taken.push(own);
      write(own.x, own.y + 10);
    }
  };
  switch (shape.kind) {
    case "circle": {
      const [x, y, a, b] = [to.px(shape.x), to.py(shape.y), shape.r * to.perX, shape.r * to.perY];
      both(`M${x - a} ${y}A${a} ${b} 0 1 0 ${x + a} ${y}A${a} ${b} 0 1 0 ${x - a} ${y}Z`, shape.dashed);
      const places = DIRECTIONS.map((degrees): readonly [number, number] => {
        const [c, s] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
        return [x + (a + 5) * c - (c < -0.01 ? wide : c < 0.01 ? wide / 2 : 0), y - (b + 4) * s + (s < -0.01 ? 10 : s < 0.01 ? 4 : 0)];
      });
      const place = shape.label ? places.find(([px, py]) => fits(px, py)) : undefined;
      if (place) {
        taken.push({ x: place[0], y: place[1] - 10, w: wide, h: 12 });
        write(...place);
      } else {
        // Outside is no room: inside, below the top.
        label(x, y, [x - wide / 2, y - b + 14]);
      }
      break;
    }
    case "polygon":
      if (shape.points.length > 0) {
        both(`M${shape.points.map(([x, y]) => `${to.px(x).toFixed(1)} ${to.py(y).toFixed(1)}`).join("L")}${shape.closed ? "Z" : ""}`, shape.dashed);
      }
      break;
    case "marker": {
      const [px, py] = [to.px(shape.x), to.py(shape.y)];
      both(symbolPath(shape.symbol), false, `translate(${px} ${py})`);
      label(px, py, [px + 10, py - 6], [px + 10, py + 14], [px - 10 - wide, py - 6], [px - 10 - wide, py + 14]);
      break;
    }
    case "text":
      label(to.px(shape.x), to.py(shape.y), [to.px(shape.x) + (shape.middle ? -wide / 2 : 4), to.py(shape.y) + 13]);
      break;
    case "arrows":
      both(shape.points.map(({ x, y, dx, dy }) => arrow(to.px(x), to.py(y), dx * to.perX, -dy * to.perY)).join(""));
  }
  return group;
}

function arrow(x: number, y: number, dx: number, dy: number): string {
  const length = Math.hypot(dx, dy);
  if (!(length > 0.5)) {
    return "";
  }
  const [tx, ty, head] = [x + dx, y + dy, Math.min(6, length / 2) / length];
  const wing = (side: number) => `${(tx - head * (dx - side * 0.6 * dy)).toFixed(1)} ${(ty - head * (dy + side * 0.6 * dx)).toFixed(1)}`;
  return `M${x.toFixed(1)} ${y.toFixed(1)}L${tx.toFixed(1)} ${ty.toFixed(1)}M${wing(1)}L${tx.toFixed(1)} ${ty.toFixed(1)}L${wing(-1)}`;
}

/** The parts of a shape that can be dragged. */
function parts(shape: Shape): Part[] {
  if (shape.kind === "circle") {
    return shape.drag === "both" ? ["radius", "centre"] : shape.drag ? [shape.drag] : [];
  }
  return shape.kind === "marker" && shape.drag ? ["centre"] : [];
}

interface Drawn {
  shape: Shape;
  readonly group: SVGGElement;
  picture: SVGGElement;
  readonly handles: readonly { readonly part: Part; readonly element: SVGElement }[];
}

/** Shapes with their handles, which keep the focus while shapes are renewed. */
export class ShapeLayer {
  readonly element = svg("g");
  private drawn: readonly Drawn[] = [];
  private projection: Projection | undefined;

  /** `units` are those of x and y, for the words of handles. */
  constructor(
    private readonly listener: (change: ShapeChange) => void,
    private readonly units: () => readonly [string, string],
  ) {}

  get shapes(): readonly Shape[] {
    return this.drawn.map(({ shape }) => shape);
  }

  set(shapes: readonly Shape[]): void {
    const kind = (shape: Shape) => `${shape.id} ${shape.kind} ${parts(shape).join()}`;
    const before = new Map(this.drawn.map((one) => [kind(one.shape), one]));
    this.drawn = shapes.map((shape) => {
      const known = before.get(kind(shape));
      if (known) {
        known.shape = shape;
        before.delete(kind(shape));
        return known;
      }
      return this.make(shape);
    });
    before.forEach(({ group }) => group.remove());
    this.drawn.forEach(({ group }, k) => {
      if (this.element.children[k] !== group) {
        this.element.insertBefore(group, this.element.children[k] ?? null);
      }
    });
    this.draw();
  }

  /** Draws all shapes where the projection has them. */
  draw(projection = this.projection): void {
    this.projection = projection;
    if (projection) {
      const taken: Box[] = [];
      this.drawn.forEach((one) => this.place(one, projection, taken));
    }
  }

  private make(shape: Shape): Drawn {
    const picture = svg("g");
    const handles = parts(shape).map((part) => {
      const element = svg(part === "radius" ? "ellipse" : "circle", {
        class: `iv-handle iv-${part}`, tabindex: 0, role: "slider", "data-shape": shape.id, "data-part": part,
        keydown: (event: KeyboardEvent) => this.key(shape.id, part, event),
      });
      return { part, element };
    });
    const group = svg("g", handles.length > 0 ? {} : { role: "img", "aria-label": shape.label || shape.kind }, picture, ...handles.map(({ element }) => element));
    return { shape, group, picture, handles };
  }

  private place(one: Drawn, to: Projection, taken: Box[]): void {
    const { shape, group, handles } = one;
    const picture = drawShape(shape, to, taken);
    one.picture.replaceWith(picture);
    one.picture = picture;
    if (handles.length === 0) {
      group.setAttribute("aria-label", shape.label || shape.kind);
    }
    if (shape.kind !== "circle" && shape.kind !== "marker") {
      return;
    }
    const [ux, uy] = this.units();
    const with_ = (value: number, unit: string) => `${formatNumber(value, 4)}${unit ? ` ${unit}` : ""}`;
    for (const { part, element } of handles) {
      const set = (attributes: Readonly<Record<string, string | number>>) => Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, String(value)));
      const centre = { cx: to.px(shape.x), cy: to.py(shape.y) };
      if (part === "radius" && shape.kind === "circle") {
        set({ ...centre, rx: shape.r * to.perX, ry: shape.r * to.perY, "aria-label": `${shape.label || shape.id}, radius`, "aria-valuemin": 0, "aria-valuenow": plainNumber(shape.r), "aria-valuetext": with_(shape.r, ux) });
      } else {
        set({ ...centre, r: 12, "aria-label": `${shape.label || shape.id}, position`, "aria-valuenow": plainNumber(shape.x), "aria-valuetext": `x ${with_(shape.x, ux)}, y ${with_(shape.y, uy)}` });
      }
    }
  }

  /** Moves a part of a shape to a position in data coordinates. */
  drag(id: string, part: Part, x: number, y: number, live: boolean): void {
    const shape = this.drawn.find((one) => one.shape.id === id)?.shape;
    if (shape?.kind === "circle") {
      this.change(part === "radius" ? { ...shape, r: Math.hypot(x - shape.x, y - shape.y) } : { ...shape, x, y }, live);
    } else if (shape?.kind === "marker") {
      this.change({ ...shape, x, y }, live);
    }
  }

  private key(id: string, part: Part, event: KeyboardEvent): void {
    const shape = this.drawn.find((one) => one.shape.id === id)?.shape;
    const [right, up] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [0, 0];
    if ((right === 0 && up === 0) || !this.projection || event.altKey || event.metaKey) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    const factor = event.shiftKey ? 10 : event.ctrlKey ? 0.1 : 1;
    const { stepX, stepY } = this.projection;
    if (shape?.kind === "circle" && part === "radius") {
      this.change({ ...shape, r: Math.max(0, shape.r + (right + up) * factor * stepX) }, false);
    } else if (shape?.kind === "circle" || shape?.kind === "marker") {
      this.change({ ...shape, x: shape.x + right * factor * stepX, y: shape.y + up * factor * stepY }, false);
    }
  }

  private change(shape: Extract<Shape, { kind: "circle" | "marker" }>, live: boolean): void {
    const one = this.drawn.find(({ shape: { id } }) => id === shape.id) as Drawn;
    one.shape = shape;
    this.draw();
    this.listener({ id: shape.id, x: shape.x, y: shape.y, r: shape.kind === "circle" ? shape.r : 0, live });
  }
}
