/**
 * What a page of the viewer carries: its manifest, as `lenslet view` writes it (src/view in the Rust library).
 *
 * The manifest is JSON. Arrays are stored elsewhere in the page in parts, each a range of an array's elements in C order.
 */

/** A page: one data set for each file. */
export interface Manifest {
  /** 1; a viewer refuses any other. */
  readonly format: number;
  /** Name and version of the program that wrote the page. */
  readonly program: string;
  readonly files: readonly FileEntry[];
  /** The folder of the server, relative to the page, if arrays are served rather than embedded. */
  readonly server?: string;
}

/** A data set: the variables and attributes of one file or result. */
export interface FileEntry {
  readonly name: string;
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  readonly variables: readonly VariableEntry[];
}

export type AttributeValue = string | number | boolean | readonly number[];

/** A variable of a data set. */
export interface VariableEntry {
  readonly name: string;
  readonly unit: string;
  readonly longName: string;
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  readonly values: ArrayEntry | TextEntry | TableEntry;
}

export interface TextEntry {
  readonly kind: "text";
  readonly text: string;
}

export interface TableEntry {
  readonly kind: "table";
  readonly columns: readonly {
    readonly name: string;
    readonly unit: string;
    readonly values: readonly (number | string | null)[];
  }[];
}

/** Element types of an array, as in the Rust library. */
export type ElementType = "f64" | "f32" | "c64" | "c32" | "i64" | "bool";

/** An array of any number of dimensions. */
export interface ArrayEntry {
  readonly kind: "array";
  readonly type: ElementType;
  /** Shape of what the page holds; where it is binned, smaller than `originalShape`. */
  readonly shape: readonly number[];
  readonly originalShape: readonly number[];
  /** Samples that were averaged along each dimension. */
  readonly binning: readonly number[];
  /** One entry a dimension, with the positions of the stored samples; empty where the file names none. */
  readonly dimensions: readonly DimensionEntry[];
  /** How elements are stored: numbers of a type, or codes of 16 bits. Complex numbers are stored as pairs, real part first. */
  readonly encoding: "f64" | "f32" | "i32" | "u8" | "u16";
  readonly parts: readonly PartEntry[];
  /** Where the server has its elements, relative to `server`: little-endian in `encoding`, for range requests. */
  readonly served?: string;
  /** The numbers themselves, of a real array of one dimension and at most 4096 elements: positions along an axis, among others. */
  readonly samples?: readonly number[];
  /** Largest error of an embedded number, absolute and relative; 0 where it is exact. */
  readonly error: { readonly absolute: number; readonly relative: number };
  /** A sentence for readers where what is stored is not what the file has, else empty. */
  readonly reduced: string;
  /** Name of the variable that this one was computed from, if the file does not hold it. */
  readonly derivedFrom?: string;
}

/** A range of elements: zlib of their bytes, in base64, in the page's element of this id. */
export interface PartEntry {
  readonly id: string;
  /** Number of the first element (of the first of a pair where numbers are complex). */
  readonly first: number;
  /** Number of elements; a complex number counts as one. */
  readonly count: number;
  /**
   * Codes of 16 bits: a code c stands for offset + step c, or exp(offset + step c) where `law` is "log";
   * 65535 stands for NaN and, where `law` is "log", 65534 for 0.
   */
  readonly law?: "linear" | "log";
  readonly offset?: number;
  readonly step?: number;
}

/** One dimension of an array. */
export interface DimensionEntry {
  readonly name: string;
  readonly unit: string;
  readonly positions:
    | { readonly kind: "index" }
    | { readonly kind: "uniform"; readonly offset: number; readonly step: number }
    | { readonly kind: "values"; readonly values: readonly number[] }
    | { readonly kind: "labels"; readonly labels: readonly string[] };
  /** Whether the beam was moved, or a setting varied, along it. */
  readonly navigation: boolean;
  /** Another measure of the same positions: name, unit and factor. */
  readonly second?: { readonly name: string; readonly unit: string; readonly factor: number };
}
