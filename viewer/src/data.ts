/** Data sets of a page: variables whose numbers are decoded, or fetched from the server, when they are needed. */

import { dimensionsByName } from "./conventions";
import type { ArrayEntry, AttributeValue, DimensionEntry, FileEntry, Manifest, PartEntry, TableEntry, VariableEntry } from "./manifest";

export type Numbers = Float64Array | Float32Array;

/** Numbers in C order; `im` where they are complex. */
export interface Block {
  readonly shape: readonly number[];
  readonly re: Numbers;
  readonly im?: Numbers;
}

/** One dimension of an array: its name, its unit and where its samples lie. */
export class Dimension {
  constructor(
    readonly entry: DimensionEntry,
    readonly count: number,
  ) {}

  get name(): string {
    return this.entry.name;
  }

  get unit(): string {
    return this.entry.unit;
  }

  /** Whether samples have positions on a line. */
  get measured(): boolean {
    return this.entry.positions.kind === "uniform" || this.entry.positions.kind === "values";
  }

  /** Position of a sample; its number where there is none. Numbers between samples are interpolated. */
  position(index: number): number {
    const at = this.entry.positions;
    if (at.kind === "uniform") {
      return at.offset + at.step * index;
    }
    if (at.kind === "values") {
      const k = Math.min(Math.max(Math.floor(index), 0), Math.max(at.values.length - 2, 0));
      const [a, b] = [at.values[k], at.values[Math.min(k + 1, at.values.length - 1)]];
      return a + (b - a) * (index - k);
    }
    return index;
  }

  /** Positions of all samples. */
  positions(): Float64Array {
    return Float64Array.from({ length: this.count }, (_, k) => this.position(k));
  }

  /** Mean distance of neighbouring samples. */
  get step(): number {
    return this.count > 1 ? (this.position(this.count - 1) - this.position(0)) / (this.count - 1) : 1;
  }

  /** A sample in words: "defocus 50 Å", "sector 2", "x". */
  label(index: number): string {
    const value = this.value(index);
    return this.entry.positions.kind === "labels" ? value : `${words(this.name)} ${value}`;
  }

  /** Position of a sample with its unit, or its label: "50 Å", "2", "x". */
  value(index: number): string {
    const at = this.entry.positions;
    return at.kind === "labels" ? at.labels[index] : `${formatNumber(this.position(index))}${this.unit ? ` ${this.unit}` : ""}`;
  }

  /** Name and unit, as on an axis. */
  get title(): string {
    return this.unit ? `${words(this.name)} [${this.unit}]` : words(this.name);
  }
}

/** A dimension with equidistant samples. */
export function uniform(name: string, unit: string, count: number, offset: number, step: number): Dimension {
  return new Dimension({ name, unit, positions: { kind: "uniform", offset, step }, navigation: false }, count);
}

/** A name as words: underscores become spaces. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

/** A number in at most `digits` significant digits, with a proper minus sign. */
export function formatNumber(x: number, digits = 6): string {
  if (!Number.isFinite(x)) {
    return Number.isNaN(x) ? "NaN" : x > 0 ? "∞" : "−∞";
  }
  const [mantissa, exponent] = Number(x.toPrecision(digits)).toString().split("e");
  const signed = (text: string) => text.replace("-", "−").replace("+", "");
  return exponent === undefined ? signed(mantissa) : `${signed(mantissa)}·10${superscript(signed(exponent))}`;
}

const RAISED: Record<string, string> = {
  "−": "⁻", "0": "⁰", "1": "¹", "2": "²", "3": "³", "4": "⁴", "5": "⁵", "6": "⁶", "7": "⁷", "8": "⁸", "9": "⁹",
};

function superscript(text: string): string {
  return [...text].map((c) => RAISED[c] ?? c).join("");
}

/** An error whose message is a sentence for readers. */
export class DataError extends Error {}

/** Where the bytes of parts come from. */
export interface PartSource {
  /** Text in base64 of a part of this id, as soon as the page has it; undefined where it has none. */
  text(id: string): Promise<string | undefined>;
  /** Bytes from `from` up to `to` of what the server has at `path`. */
  fetch(path: string, from: number, to: number): Promise<ArrayBuffer>;
  /** What the server computes: the answer to a request of this path. */
  request(path: string): Promise<ArrayBuffer>;
}

const BYTES = { f64: 8, f32: 4, i32: 4, u8: 1, u16: 2 } as const;

/** An array of numbers with dimensions and a unit. */
export class ArrayVariable {
  readonly kind = "array";
  readonly dimensions: readonly Dimension[];
  readonly unit: string;
  readonly longName: string;
  private readonly decoded = new Map<number, Promise<{ re: Numbers; im?: Numbers }>>();

  constructor(
    readonly entry: VariableEntry,
    readonly array: ArrayEntry,
    private readonly source: PartSource,
    file: FileEntry,
  ) {
    const named = dimensionsByName(entry, array, file);
    this.dimensions = named.dimensions.map((one, k) => new Dimension(one, array.shape[k]));
    this.unit = entry.unit || named.unit;
    this.longName = entry.longName || named.longName;
  }

  get name(): string {
    return this.entry.name;
  }

  get attributes(): Readonly<Record<string, AttributeValue>> {
    return this.entry.attributes;
  }

  get shape(): readonly number[] {
    return this.array.shape;
  }

  get complex(): boolean {
    return this.array.type === "c64" || this.array.type === "c32";
  }

  /** Number of elements. */
  get size(): number {
    return this.shape.reduce((all, n) => all * n, 1);
  }

  /** Number of the dimension of this name; −1 where there is none. */
  axis(name: string): number {
    return this.dimensions.findIndex((one) => one.name === name);
  }

  /** Elements `from` up to `to` in C order. */
  async range(from: number, to: number): Promise<{ re: Numbers; im?: Numbers }> {
    if (this.array.served !== undefined) {
      return this.fetched(from, to);
    }
    const parts = this.array.parts;
    const touched = parts.map((_, k) => k).filter((k) => parts[k].first < to && parts[k].first + parts[k].count > from);
    const pieces = await Promise.all(touched.map((k) => this.part(k)));
    const only = touched.length === 1 ? parts[touched[0]] : undefined;
    if (only !== undefined) {
      const [a, b] = [from - only.first, to - only.first];
      const { re, im } = pieces[0];
      return im ? { re: re.subarray(a, b), im: im.subarray(a, b) } : { re: re.subarray(a, b) };
    }
    const isDouble = pieces.length === 0 || pieces[0].re instanceof Float64Array;
    const make = () => (isDouble ? new Float64Array(to - from) : new Float32Array(to - from));
    const re = make();
    const im = this.complex ? make() : undefined;
    touched.forEach((k, n) => {
      const { first, count } = parts[k];
      const [a, b] = [Math.max(from, first), Math.min(to, first + count)];
      re.set(pieces[n].re.subarray(a - first, b - first), a - from);
      im?.set((pieces[n].im as Numbers).subarray(a - first, b - first), a - from);
    });
    return im ? { re, im } : { re };
  }

  /** All elements. */
  async all(): Promise<Block> {
    return { shape: this.shape, ...(await this.range(0, this.size)) };
  }

  /**
   * The block of the array where some dimensions have a fixed sample, and others (null) are whole, in their order.
   *
   * Only what is needed is decoded or fetched: cheapest where the whole dimensions are the last ones.
   */
  async block(fixed: readonly (number | null)[]): Promise<Block> {
    const shape = this.shape;
    if (fixed.length !== shape.length) {
      throw new DataError(`${this.name} has ${shape.length} dimensions, not ${fixed.length}`);
    }
    const strides = shape.map((_, k) => shape.slice(k + 1).reduce((all, n) => all * n, 1));
    const whole = fixed.map((_, k) => k).filter((k) => fixed[k] === null);
    const base = fixed.reduce<number>((sum, at, k) => sum + (at ?? 0) * strides[k], 0);
    const out = whole.map((k) => shape[k]);
    const count = out.reduce((all, n) => all * n, 1);
    // The last dimensions are whole: one range.
    if (whole.every((k, n) => k === shape.length - whole.length + n)) {
      return { shape: out, ...(await this.range(base, base + count)) };
    }
    const last = fixed.map((at, k) => (at === null ? (shape[k] - 1) * strides[k] : 0)).reduce((sum, n) => sum + n, 0);
    const all = await this.range(base, base + last + 1);
    const pick = (values: Numbers): Numbers => {
      const to = values instanceof Float64Array ? new Float64Array(count) : new Float32Array(count);
      const at = new Array<number>(whole.length).fill(0);
      for (let n = 0, place = 0; n < count; n++) {
        to[n] = values[place];
        for (let d = whole.length - 1; d >= 0; d--) {
          place += strides[whole[d]];
          if (++at[d] < out[d]) {
            break;
          }
          place -= out[d] * strides[whole[d]];
          at[d] = 0;
        }
      }
      return to;
    };
    return all.im ? { shape: out, re: pick(all.re), im: pick(all.im) } : { shape: out, re: pick(all.re) };
  }

  /** What the server computes of this variable; `undefined` where there is no server. */
  request(what: string, parameters: Readonly<Record<string, string>>): Promise<ArrayBuffer> | undefined {
    return this.array.served === undefined
      ? undefined
      : this.source.request(`${what}/${this.array.served}?${new URLSearchParams(parameters)}`);
  }

  get isServed(): boolean {
    return this.array.served !== undefined;
  }

  private async fetched(from: number, to: number): Promise<{ re: Numbers; im?: Numbers }> {
    const each = BYTES[this.array.encoding] * (this.complex ? 2 : 1);
    const bytes = await this.source.fetch(`data/${this.array.served as string}`, from * each, to * each);
    if (bytes.byteLength !== (to - from) * each) {
      throw new DataError(`The server sent ${bytes.byteLength} bytes of ${this.name} in place of ${(to - from) * each}.`);
    }
    return this.numbers(new Uint8Array(bytes), { id: "", first: from, count: to - from });
  }

  private part(k: number): Promise<{ re: Numbers; im?: Numbers }> {
    let decoded = this.decoded.get(k);
    if (decoded === undefined) {
      decoded = this.decode(this.array.parts[k]);
      this.decoded.set(k, decoded);
      if (this.decoded.size > 256) {
        this.decoded.delete(this.decoded.keys().next().value as number);
      }
    }
    return decoded;
  }

  private async decode(part: PartEntry): Promise<{ re: Numbers; im?: Numbers }> {
    const text = await this.source.text(part.id);
    if (text === undefined) {
      throw new DataError(`The page is cut short: a part of ${this.name} is missing.`);
    }
    try {
      const size = BYTES[this.array.encoding];
      return this.numbers(unshuffle(await inflate(base64(text)), size), part);
    } catch (error) {
      throw error instanceof DataError ? error : new DataError(`The page is damaged: a part of ${this.name} cannot be decoded.`);
    }
  }

  /** Numbers of bytes in their encoding. */
  private numbers(bytes: Uint8Array, part: PartEntry): { re: Numbers; im?: Numbers } {
    const { encoding } = this.array;
    const expected = part.count * BYTES[encoding] * (this.complex ? 2 : 1);
    if (bytes.byteLength !== expected) {
      throw new DataError(`The page is damaged: a part of ${this.name} has ${bytes.byteLength} bytes in place of ${expected}.`);
    }
    const buffer = bytes.byteOffset % 8 === 0 ? bytes.buffer : bytes.slice().buffer;
    const offset = bytes.byteOffset % 8 === 0 ? bytes.byteOffset : 0;
    const count = expected / BYTES[encoding];
    let flat: Numbers;
    if (encoding === "f64") {
      flat = new Float64Array(buffer, offset, count);
    } else if (encoding === "f32") {
      flat = new Float32Array(buffer, offset, count);
    } else if (encoding === "i32") {
      flat = Float64Array.from(new Int32Array(buffer, offset, count));
    } else if (encoding === "u8") {
      flat = Float32Array.from(new Uint8Array(buffer, offset, count));
    } else {
      flat = fromCodes(new Uint16Array(buffer, offset, count), part);
    }
    if (!this.complex) {
      return { re: flat };
    }
    const make = () => (flat instanceof Float64Array ? new Float64Array(part.count) : new Float32Array(part.count));
    const [re, im] = [make(), make()];
    for (let k = 0; k < part.count; k++) {
      re[k] = flat[2 * k];
      im[k] = flat[2 * k + 1];
    }
    return { re, im };
  }
}

/** Numbers of codes of 16 bits. */
function fromCodes(codes: Uint16Array, { law, offset = 0, step = 1 }: PartEntry): Float32Array {
  const values = new Float32Array(codes.length);
  if (law === "log") {
    for (let k = 0; k < codes.length; k++) {
      values[k] = codes[k] === 65535 ? NaN : codes[k] === 65534 ? 0 : Math.exp(offset + step * codes[k]);
    }
  } else {
    for (let k = 0; k < codes.length; k++) {
      values[k] = codes[k] === 65535 ? NaN : offset + step * codes[k];
    }
  }
  return values;
}

/** Bytes of a text in base64. */
function base64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let k = 0; k < binary.length; k++) {
    bytes[k] = binary.charCodeAt(k);
  }
  return bytes;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Puts bytes of one significance after another back to elements of so many bytes. */
function unshuffle(bytes: Uint8Array, size: number): Uint8Array {
  if (size === 1) {
    return bytes;
  }
  const count = Math.floor(bytes.length / size);
  const to = new Uint8Array(count * size);
  for (let b = 0; b < size; b++) {
    const from = b * count;
    for (let k = 0, at = b; k < count; k++, at += size) {
      to[at] = bytes[from + k];
    }
  }
  return to;
}

export interface TextVariable {
  readonly kind: "text";
  readonly name: string;
  readonly longName: string;
  readonly text: string;
}

export interface TableVariable {
  readonly kind: "table";
  readonly name: string;
  readonly longName: string;
  readonly columns: TableEntry["columns"];
}

export type Variable = ArrayVariable | TextVariable | TableVariable;

/** The data set of one file. */
export class DataFile {
  readonly variables: readonly Variable[];

  constructor(
    readonly entry: FileEntry,
    readonly index: number,
    source: PartSource,
  ) {
    this.variables = entry.variables.map((one): Variable => {
      const { name, longName, values } = one;
      if (values.kind === "array") {
        return new ArrayVariable(one, values, source, entry);
      }
      return values.kind === "text" ? { kind: "text", name, longName, text: values.text } : { kind: "table", name, longName, columns: values.columns };
    });
  }

  get name(): string {
    return this.entry.name;
  }

  get attributes(): Readonly<Record<string, AttributeValue>> {
    return this.entry.attributes;
  }

  /** The array of this name, if there is one. */
  array(name: string): ArrayVariable | undefined {
    return this.arrays().find((one) => one.name === name);
  }

  arrays(): ArrayVariable[] {
    return this.variables.filter((one): one is ArrayVariable => one.kind === "array");
  }

  /** The text of this name, if there is one. */
  text(name: string): string | undefined {
    const found = this.variables.find((one) => one.name === name && one.kind === "text");
    return found?.kind === "text" ? found.text : undefined;
  }

  /** The table of this name, if there is one. */
  table(name: string): TableVariable | undefined {
    return this.variables.find((one): one is TableVariable => one.name === name && one.kind === "table");
  }
}

/** The data sets of a page. */
export function openFiles(manifest: Manifest, source: PartSource): DataFile[] {
  if (manifest.format !== 1) {
    throw new DataError(`The page has format ${manifest.format}, which this viewer does not know: it knows 1.`);
  }
  return manifest.files.map((entry, k) => new DataFile(entry, k, source));
}
