/** What is saved of an image: its visible samples as a table, and its picture as SVG. */

import { h, svg, uniqueId } from "../../dom";
import type { DataTable } from "../../view";
import { drawColourBar, title, type Axis, type Box } from "../axes";
import { colourTable } from "../colour";
import { drawOnProcessor } from "../gl";
import type { ImageData2D, Shape } from "../image.api";
import { drawProfile, type Profile } from "../profile";
import { drawShape } from "../shapes";
import type { ImageColours } from "./colours";
import { colourBarBox, drawOverlay, frameOf, paintBar } from "./drawing";
import type { Viewport } from "./viewport";

/** The visible samples, by rows from the bottom to the top; where there are more than `most`, means of neighbouring ones. */
export function imageTable(label: string, image: ImageData2D, { x, y, visible }: Viewport, most: number): DataTable {
  const { i0, i1, j0, j1 } = visible;
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
    caption: `${label}: ${title(image.quantity, image.unit)}; rows ${y.title}, columns ${x.title}${averaged}`,
    columns: [`${y.title} \\ ${x.title}`, ...columns.map((i) => String(Number(middle(x, i, i1).toPrecision(7))))],
    rows: starts(j0, j1).map((j) => [Number(middle(y, j, j1).toPrecision(12)), ...columns.map((i) => mean(i, j))]),
  };
}

/** The picture with axes, colour bar, shapes and profile, in the colours of print. */
export function imageSvg(label: string, image: ImageData2D, viewport: Viewport, colours: ImageColours, shapes: readonly Shape[], profile: Profile | undefined): string {
  viewport.layoutForPrint();
  const scale = colours.scale();
  const { window } = viewport;
  const box = { ...viewport.box, x: viewport.y.margin + 8, y: 30 };
  const below = box.y + box.h + 44;
  const [width, height] = [box.x + box.w + 110, below + (profile ? 160 : 0)];
  const clip = uniqueId("clip");
  const { i0, i1, j0, j1 } = viewport.visible;
  const [kx, ky] = [box.w / (window.x1 - window.x0), box.h / (window.y1 - window.y0)];
  const pixels = (count: number) => Math.min(count, 2048);
  const picture = drawOnProcessor(image.values, image.nx, image.ny, frameOf(colours, scale, { x0: i0, y0: j0, x1: i1, y1: j1 }, pixels(i1 - i0), pixels(j1 - j0), box.w, false));
  const bar = colourBarBox(box, false);
  const barCanvas = h("canvas");
  paintBar(barCanvas, colourTable(colours.mapName), false);
  const embedded = (href: string, at: Box) => svg("image", { href, x: at.x, y: at.y, width: at.w, height: at.h, preserveAspectRatio: "none", style: "image-rendering:pixelated" });
  const at = { x: box.x + (i0 - window.x0) * kx, y: box.y + (window.y1 - j1) * ky, w: (i1 - i0) * kx, h: (j1 - j0) * ky };
  const [axes, scaleBar] = [svg("g"), svg("g")];
  drawOverlay(axes, scaleBar, viewport, box);
  const projection = viewport.projection(box);
  const taken: Box[] = [];
  const root = svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "Helvetica, Arial, sans-serif", "font-size": 11, color: "#111" },
    svg("title", {}, label),
    svg("clipPath", { id: clip }, svg("rect", { x: box.x, y: box.y, width: box.w, height: box.h })),
    svg("text", { x: box.x, y: 18, "font-size": 13, "font-weight": "bold", fill: "currentColor" }, label),
    svg("g", { "clip-path": `url(#${clip})` }, embedded(pngOf(picture), at), scaleBar, ...shapes.map((shape) => drawShape(shape, projection, taken))),
    axes,
    embedded(barCanvas.toDataURL(), bar),
    drawColourBar(bar, scale, image.quantity, image.unit),
    profile ? drawProfile({ ...box, y: below + 6, h: 110 }, profile, colours.scaleName) : null,
  );
  return new XMLSerializer().serializeToString(root);
}

/** Pixels as a PNG in a data URL. */
function pngOf(image: ImageData): string {
  const canvas = h("canvas", { width: image.width, height: image.height });
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
