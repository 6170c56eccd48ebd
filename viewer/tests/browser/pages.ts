/** Writes pages of the viewer as `lenslet view` does, from numbers given in a test. */

import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import type { ArrayEntry, AttributeValue, DimensionEntry, ElementType, FileEntry, Manifest, PartEntry, TableEntry, VariableEntry } from "../../src/manifest";

/** An array to be written. Complex numbers are pairs, real part first. */
export interface ArraySpec {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: ArrayLike<number>;
  readonly type?: ElementType;
  readonly encoding?: ArrayEntry["encoding"];
  /** Of codes of 16 bits. */
  readonly law?: "linear" | "log";
  readonly dimensions?: readonly DimensionEntry[];
  readonly unit?: string;
  readonly longName?: string;
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  readonly reduced?: string;
  readonly originalShape?: readonly number[];
  readonly binning?: readonly number[];
  readonly derivedFrom?: string;
  /** Number of elements in a part; by the writer's rule if not given. */
  readonly partSize?: number;
}

/** A text or a table to be written. */
export interface OtherSpec {
  readonly name: string;
  readonly unit?: string;
  readonly longName?: string;
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  readonly text?: string;
  readonly columns?: TableEntry["columns"];
}

export interface FileSpec {
  readonly name: string;
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  readonly variables: readonly (ArraySpec | OtherSpec)[];
}

const SIZE = { f64: 8, f32: 4, i32: 4, u8: 1, u16: 2 } as const;

/** A page's manifest, and its parts in base64 by id. */
export interface PageContent {
  readonly manifest: Manifest;
  readonly parts: Map<string, string>;
}

/** Encodes files as the writer does. */
export function encodeFiles(files: readonly FileSpec[]): PageContent {
  const parts = new Map<string, string>();
  const entries = files.map((file): FileEntry => ({
    name: file.name,
    attributes: file.attributes ?? {},
    variables: file.variables.map((one): VariableEntry => ({
      name: one.name,
      unit: one.unit ?? "",
      longName: one.longName ?? "",
      attributes: one.attributes ?? {},
      values: "shape" in one ? encodeArray(one, parts) : one.columns !== undefined ? { kind: "table", columns: one.columns } : { kind: "text", text: one.text ?? "" },
    })),
  }));
  return { manifest: { format: 1, program: "lenslet test", files: entries }, parts };
}

/** The HTML of a page with the viewer that is built in dist/. */
export function makePage(files: readonly FileSpec[], { change = (content: PageContent): PageContent => content, title = "Test" } = {}): string {
  const { manifest, parts } = change(encodeFiles(files));
  const dist = (name: string) => readFileSync(new URL(`../../dist/${name}`, import.meta.url), "utf8");
  const json = JSON.stringify(manifest).replaceAll("<", "\\u003c");
  const data = [...parts].map(([id, text]) => `<script type="application/octet-stream;base64" id="${id}">${text}</script>`).join("\n");
  const program = deflateSync(dist("viewer.js")).toString("base64");
  return htmlPage(title, dist("viewer.css"), `<div id="lenslet-viewer"></div>
<script type="application/json" id="lenslet-manifest">${json}</script>
<script type="application/octet-stream;base64" id="lenslet-program">${program}</script>
<script>${dist("start.js")}</script>
${data}`);
}

/** The frame of a page, with the policy that lets nothing be loaded. */
export function htmlPage(title: string, css: string, body: string): string {
  const escaped = title.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; connect-src data: blob:">
<title>${escaped}</title><style>${css}</style></head><body>
${body}
</body></html>`;
}

function encodeArray(spec: ArraySpec, parts: Map<string, string>): ArrayEntry {
  const { shape, values, type = "f64" } = spec;
  const isComplex = type === "c64" || type === "c32";
  const encoding = spec.encoding ?? (type === "bool" ? "u8" : type === "i64" ? "i32" : type === "f32" || type === "c32" ? "f32" : "f64");
  const size = shape.reduce((all, n) => all * n, 1);
  if (values.length !== size * (isComplex ? 2 : 1)) {
    throw new Error(`${spec.name} has ${values.length} numbers in place of ${size * (isComplex ? 2 : 1)}`);
  }
  const each = SIZE[encoding] * (isComplex ? 2 : 1);
  const partSize = spec.partSize ?? elementsOfPart(shape, each);
  const entries: PartEntry[] = [];
  for (let first = 0; first < size; first += partSize) {
    const count = Math.min(partSize, size - first);
    const own = Array.from({ length: count * (isComplex ? 2 : 1) }, (_, k) => values[first * (isComplex ? 2 : 1) + k]);
    const { bytes, more } = encode(own, encoding, spec.law ?? "linear");
    const id = `p${parts.size}`;
    parts.set(id, deflateSync(shuffle(bytes, SIZE[encoding])).toString("base64"));
    entries.push({ id, first, count, ...more });
  }
  const isListed = shape.length === 1 && size <= 4096 && !isComplex;
  return {
    kind: "array", type, shape, encoding, parts: entries,
    originalShape: spec.originalShape ?? shape,
    binning: spec.binning ?? shape.map(() => 1),
    dimensions: spec.dimensions ?? [],
    error: { absolute: 0, relative: 0 },
    reduced: spec.reduced ?? "",
    ...(spec.derivedFrom === undefined ? {} : { derivedFrom: spec.derivedFrom }),
    ...(isListed ? { samples: Array.from(values) } : {}),
  };
}

/** Elements of a part: one plane of at least 64 KiB, else as many planes as make about 256 KiB; a plane above 4 MiB is divided. */
function elementsOfPart(shape: readonly number[], each: number): number {
  const plane = Math.max(shape.slice(-2).reduce((all, n) => all * n, 1), 1);
  if (plane * each > 4 << 20) {
    return Math.floor((4 << 20) / each);
  }
  return plane * each >= 64 << 10 ? plane : plane * Math.max(Math.floor((256 << 10) / (plane * each)), 1);
}

function encode(values: number[], encoding: ArrayEntry["encoding"], law: "linear" | "log"): { bytes: Uint8Array; more: Partial<PartEntry> } {
  if (encoding === "u16") {
    const numbers = values.filter((x) => !Number.isNaN(x) && (law === "linear" || x > 0)).map((x) => (law === "log" ? Math.log(x) : x));
    const [low, high] = [numbers.reduce((a, b) => Math.min(a, b), Infinity), numbers.reduce((a, b) => Math.max(a, b), -Infinity)];
    const offset = numbers.length > 0 ? low : 0;
    const step = numbers.length > 0 && high > low ? (high - low) / 65533 : 1;
    const codes = Uint16Array.from(values, (x) => (Number.isNaN(x) ? 65535 : law === "log" ? (x === 0 ? 65534 : Math.round((Math.log(x) - offset) / step)) : Math.round((x - offset) / step)));
    return { bytes: new Uint8Array(codes.buffer), more: { law, offset, step } };
  }
  const array = { f64: Float64Array, f32: Float32Array, i32: Int32Array, u8: Uint8Array }[encoding].from(values);
  return { bytes: new Uint8Array(array.buffer), more: {} };
}

/** All bytes 0 of the elements, then all bytes 1, … */
function shuffle(bytes: Uint8Array, size: number): Uint8Array {
  const count = bytes.length / size;
  const to = new Uint8Array(bytes.length);
  for (let b = 0; b < size; b++) {
    for (let k = 0; k < count; k++) {
      to[b * count + k] = bytes[k * size + b];
    }
  }
  return to;
}

/** A dimension with positions a step apart. */
export function uniform(name: string, unit: string, offset: number, step: number, navigation = false): DimensionEntry {
  return { name, unit, positions: { kind: "uniform", offset, step }, navigation };
}
