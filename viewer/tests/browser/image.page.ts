/** The page of the tests of images: views of numbers that formulas give. */

import { Dimension, type Numbers } from "../../src/data";
import type { DimensionEntry } from "../../src/manifest";
import { Store } from "../../src/store";
import { Card, rasterise } from "../../src/view";
import { useSoftwareGl } from "../../src/views/gl";
import { ImageView, type Cursor, type ImageData2D, type ShapeChange } from "../../src/views/image";

const dimension = (name: string, unit: string, positions: DimensionEntry["positions"], count: number) => new Dimension({ name, unit, positions, navigation: false }, count);

/** An image on a uniform lattice. */
export function lattice(values: Numbers, nx: number, ny: number, more: Partial<ImageData2D> = {}): ImageData2D {
  return {
    values, nx, ny, quantity: "potential", unit: "V Å",
    x: dimension("x", "Å", { kind: "uniform", offset: -1, step: 0.5 }, nx),
    y: dimension("y", "Å", { kind: "uniform", offset: 2, step: 0.5 }, ny),
    ...more,
  };
}

// Both ways of drawing are tested, with the program that stands in for a graphics processor here.
useSoftwareGl();

const store = new Store();
const main = document.createElement("main");
const views = new Map<string, ImageView>();

const page = {
  store,
  lattice,
  dimension,
  rasterise,
  views,
  cursors: [] as (Cursor | null)[],
  picks: [] as Cursor[],
  changes: [] as ShapeChange[],
  outlines: [] as { readonly count: number; readonly live: boolean }[],
  /** Adds a view in a card. */
  add(name: string, image: ImageData2D, more: { map?: string; height?: number; zoomWith?: string; label?: string } = {}): ImageView {
    const { zoomWith, label, ...rest } = more;
    const other = zoomWith === undefined ? undefined : views.get(zoomWith);
    const view = new ImageView({ scope: store.scope(name), label: label ?? name, ...rest, ...(other ? { zoomWith: other } : {}) });
    views.set(name, view);
    view.element.id = name;
    main.append(new Card(label ?? name, view, { fileName: name }).element);
    view.onCursor((cursor) => page.cursors.push(cursor));
    view.onPick((cursor) => page.picks.push(cursor));
    view.onShape((change) => page.changes.push(change));
    view.show(image);
    return view;
  },
  /** A plane 3 i − 2 j. */
  plane(nx: number, ny: number): Float64Array {
    return Float64Array.from({ length: nx * ny }, (_, k) => 3 * (k % nx) - 2 * Math.floor(k / nx));
  },
  /** Two frames later, when all is drawn. */
  drawn(): Promise<void> {
    return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve())));
  },
  /** Colour of an image at fractions of its width and height from the lower left corner. */
  colour(name: string, u: number, v: number): number[] {
    const canvas = document.querySelector<HTMLCanvasElement>(`#${name} .iv-plot canvas`) as HTMLCanvasElement;
    const [x, y] = [Math.floor(u * canvas.width), Math.floor((1 - v) * canvas.height)];
    return [...(canvas.getContext("2d") as CanvasRenderingContext2D).getImageData(x, y, 1, 1).data.slice(0, 3)];
  },
  /** All pixels of an image in base64. */
  picture(name: string): string {
    return btoa(Array.from(page.pixels(name), (value) => String.fromCharCode(value)).join(""));
  },
  /** All pixels of an image. */
  pixels(name: string): Uint8ClampedArray {
    const canvas = document.querySelector<HTMLCanvasElement>(`#${name} .iv-plot canvas`) as HTMLCanvasElement;
    return (canvas.getContext("2d") as CanvasRenderingContext2D).getImageData(0, 0, canvas.width, canvas.height).data;
  },
};

export type ImagePage = typeof page;

Object.assign(globalThis, { page });
document.body.append(main);
