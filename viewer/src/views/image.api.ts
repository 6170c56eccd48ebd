/** The interface of ImageView (views/image.ts). */

import type { Dimension, Numbers } from "../data";

export type ScaleName = "linear" | "sqrt" | "log";

/** An image to be shown. */
export interface ImageData2D {
  /** Numbers by rows: values[j * nx + i] at x sample i and y sample j; row 0 is drawn at the bottom. */
  readonly values: Numbers;
  readonly nx: number;
  readonly ny: number;
  readonly x: Dimension;
  readonly y: Dimension;
  /** What the numbers are and their unit: "Strehl ratio", "rad2". */
  readonly quantity: string;
  readonly unit: string;
  /** Colours on both sides of zero (covariances, phases): limits are symmetric. Default: true where there are numbers of both signs of similar size. */
  readonly signed?: boolean;
  /** Numbers are angles in rad, of period 2π: a cyclic colour map and fixed limits. */
  readonly cyclic?: boolean;
  /** Numbers of an image next to it: automatic limits of the colours are those of both. */
  readonly common?: Numbers;
}

/** Something drawn over an image, in its coordinates. */
export type Shape =
  | { readonly kind: "circle"; readonly id: string; readonly x: number; readonly y: number; readonly r: number; readonly label: string; readonly drag?: "radius" | "centre" | "both"; readonly dashed?: boolean }
  | { readonly kind: "polygon"; readonly id: string; readonly points: readonly (readonly [number, number])[]; readonly label: string; readonly closed: boolean; readonly dashed?: boolean }
  | { readonly kind: "marker"; readonly id: string; readonly x: number; readonly y: number; readonly symbol: "star" | "cross" | "circle" | "square" | "triangle"; readonly label: string; readonly drag?: boolean }
  /** A name to the right of and below a position, or centred below it. */
  | { readonly kind: "text"; readonly id: string; readonly x: number; readonly y: number; readonly label: string; readonly middle?: boolean }
  | { readonly kind: "arrows"; readonly id: string; readonly points: readonly { readonly x: number; readonly y: number; readonly dx: number; readonly dy: number }[]; readonly label: string };

/** A shape that was moved; `live` while it is dragged. */
export interface ShapeChange {
  readonly id: string;
  readonly x: number;
  readonly y: number;
  readonly r: number;
  readonly live: boolean;
}

export interface Cursor {
  readonly i: number;
  readonly j: number;
  readonly x: number;
  readonly y: number;
  readonly value: number;
}
