/** Reads NumPy's archives as Lenslet writes them, for pages of tests. */

import { readFileSync } from "node:fs";
import { inflateRawSync } from "node:zlib";
import type { ArraySpec, FileSpec, OtherSpec } from "./browser/pages";

/** The variables of an archive, as `lenslet view` takes them. */
export function readNpz(path: string, name = path.replace(/^.*\//, "")): FileSpec {
  const bytes = readFileSync(path);
  const end = bytes.lastIndexOf(Buffer.from("PK\x05\x06", "latin1"));
  const variables: (ArraySpec | OtherSpec)[] = [];
  for (let at = bytes.readUInt32LE(end + 16), k = 0; k < bytes.readUInt16LE(end + 10); k++) {
    const [method, size, letters, extra, comment] = [bytes.readUInt16LE(at + 10), bytes.readUInt32LE(at + 20), bytes.readUInt16LE(at + 28), bytes.readUInt16LE(at + 30), bytes.readUInt16LE(at + 32)];
    const local = bytes.readUInt32LE(at + 42);
    const from = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28);
    const packed = bytes.subarray(from, from + size);
    variables.push(readNpy(bytes.toString("utf8", at + 46, at + 46 + letters).replace(/\.npy$/, ""), method === 0 ? packed : inflateRawSync(packed)));
    at += 46 + letters + extra + comment;
  }
  return { name, variables };
}

/** One array, text or table. */
function readNpy(name: string, bytes: Buffer): ArraySpec | OtherSpec {
  const start = bytes[6] === 1 ? 10 + bytes.readUInt16LE(8) : 12 + bytes.readUInt32LE(8);
  const header = bytes.toString("latin1", 10, start);
  const shape = (/'shape': \(([^)]*)\)/.exec(header)?.[1] ?? "").split(",").map((n) => n.trim()).filter((n) => n !== "").map(Number);
  const count = shape.reduce((all, n) => all * n, 1);
  const fields = [...header.matchAll(/\('(\w+)', '([<|]\w+)'\)/g)].map(([, field, type]) => ({ field, type }));
  if (fields.length > 0) {
    const row = fields.reduce((sum, { type }) => sum + Number(type.slice(2)), 0);
    let offset = 0;
    const columns = fields.map(({ field, type }) => {
      const first = offset;
      offset += Number(type.slice(2));
      return { name: field, unit: type === "<f8" ? "m" : "", values: Array.from({ length: count }, (_, k) => (type.startsWith("|S") ? textAt(bytes, start + k * row + first, Number(type.slice(2))) : numberAt(bytes, start + k * row + first, type))) };
    });
    return { name, columns };
  }
  const type = /'descr': '([<|]\w+)'/.exec(header)?.[1] ?? "";
  if (type.startsWith("<U")) {
    const codes = Array.from({ length: Number(type.slice(2)) }, (_, k) => bytes.readUInt32LE(start + 4 * k));
    return { name, text: String.fromCodePoint(...codes.filter((code) => code !== 0)) };
  }
  const size = Number(type.slice(2));
  if (type.startsWith("<c")) {
    // Pairs, real part first
    const half = `<f${size / 2}`;
    return { name, shape, values: Float64Array.from({ length: 2 * count }, (_, k) => numberAt(bytes, start + (k * size) / 2, half)), type: size === 8 ? "c32" : "c64" };
  }
  const values = Float64Array.from({ length: count }, (_, k) => numberAt(bytes, start + k * size, type));
  return { name, shape, values, type: type === "|b1" ? "bool" : type.startsWith("<i") ? "i64" : type === "<f4" ? "f32" : "f64" };
}

/** A text of so many bytes, filled up by zeros. */
function textAt(bytes: Buffer, at: number, size: number): string {
  return bytes.toString("utf8", at, at + size).replace(/\0+$/, "");
}

function numberAt(bytes: Buffer, at: number, type: string): number {
  switch (type) {
    case "<f8": return bytes.readDoubleLE(at);
    case "<f4": return bytes.readFloatLE(at);
    case "<i4": return bytes.readInt32LE(at);
    case "<i8": return Number(bytes.readBigInt64LE(at));
    case "|b1": return bytes[at];
    default: throw new Error(`${type} of NumPy is not known`);
  }
}
