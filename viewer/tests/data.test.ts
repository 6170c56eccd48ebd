import assert from "node:assert/strict";
import { test } from "node:test";
import { type ArrayVariable, DataError, Dimension, formatNumber, openFiles, type PartSource } from "../src/data";
import type { Manifest } from "../src/manifest";
import { type ArraySpec, encodeFiles, uniform } from "./browser/pages";

function opened(spec: ArraySpec): ArrayVariable {
  const { manifest, parts } = encodeFiles([{ name: "f", variables: [spec] }]);
  const nothing = () => Promise.reject(new Error("no server"));
  const source: PartSource = { text: async (id) => parts.get(id), fetch: nothing, request: nothing };
  return openFiles(manifest, source)[0].array(spec.name) as ArrayVariable;
}

const product = (shape: readonly number[]) => shape.reduce((all, n) => all * n, 1);

for (const [encoding, type, values] of [
  ["f64", "f64", [0, -1.5, Math.PI, 1e-300, NaN, Infinity, -0]],
  ["f32", "f32", [0, -1.5, 3.25, 1e-30, NaN, Infinity, -Infinity]],
  ["i32", "i64", [0, -1, 2147483647, -2147483648, 5, 6, 7]],
  ["u8", "bool", [0, 1, 1, 0, 1, 0, 0]],
] as const) {
  test(`numbers stored as ${encoding} come back as they are`, async () => {
    for (const partSize of [1, 3, 7]) {
      const one = opened({ name: "a", shape: [7], values, type, encoding, partSize });
      const expected = encoding === "f32" ? [...Float32Array.from(values)] : [...values];
      assert.deepEqual([...(await one.all()).re], expected);
      assert.deepEqual([...(await one.range(2, 5)).re], expected.slice(2, 5));
    }
  });
}

test("complex numbers come back as real and imaginary parts", async () => {
  for (const [type, encoding] of [["c64", "f64"], ["c32", "f32"]] as const) {
    for (const partSize of [1, 4, 6]) {
      const one = opened({ name: "a", shape: [2, 3], type, encoding, partSize, values: Array.from({ length: 12 }, (_, k) => (k % 2 === 0 ? k : -k)) });
      const { re, im } = await one.block([1, null]);
      assert.deepEqual([[...re], [...(im ?? [])]], [[6, 8, 10], [-7, -9, -11]]);
      const column = await one.block([null, 2]);
      assert.deepEqual([[...column.re], [...(column.im ?? [])]], [[4, 10], [-5, -11]]);
    }
  }
});

test("codes of 16 bits are linear within half a step, and keep NaN", async () => {
  const values = [-3, 5, NaN, 0.125, 4.9, -2.99];
  const one = opened({ name: "a", shape: [6], values, encoding: "u16", partSize: 6 });
  const { re } = await one.all();
  values.forEach((x, k) => assert.ok(Number.isNaN(x) ? Number.isNaN(re[k]) : Math.abs(re[k] - x) <= 0.5 * (8 / 65533) * 1.01, `${re[k]} for ${x}`));
});

test("logarithmic codes keep 0 and NaN, and have a relative error", async () => {
  const values = [0, 1e-12, 1, NaN, 3e5, 2e-3, 0];
  const one = opened({ name: "a", shape: [7], values, encoding: "u16", law: "log", partSize: 7 });
  const { re } = await one.all();
  const step = Math.log(3e17) / 65533;
  values.forEach((x, k) => {
    assert.ok(Number.isNaN(x) ? Number.isNaN(re[k]) : x === 0 ? re[k] === 0 : Math.abs(re[k] / x - 1) < 0.51 * step + 1e-6, `${re[k]} for ${x}`);
  });
});

test("blocks are those of an index by hand, for every choice of fixed dimensions", async () => {
  for (const shape of [[5], [3, 4], [1, 7, 2], [4, 1, 3], [2, 3, 4, 5], [3, 1, 1, 6], [2, 2, 3, 1, 4]]) {
    for (const partSize of [1, 2, 7, product(shape)]) {
      const one = opened({ name: "a", shape, values: Array.from({ length: product(shape) }, (_, k) => k), partSize });
      for (let mask = 0; mask < 1 << shape.length; mask++) {
        for (const at of [(n: number) => 0 * n, (n: number) => n - 1, (n: number) => n >> 1]) {
          const fixed = shape.map((n, d) => ((mask >> d) & 1 ? at(n) : null));
          const expected: number[] = [];
          for (let k = 0; k < product(shape); k++) {
            const place = shape.map((n, d) => Math.floor(k / product(shape.slice(d + 1))) % n);
            if (place.every((n, d) => fixed[d] === null || fixed[d] === n)) {
              expected.push(k);
            }
          }
          const block = await one.block(fixed);
          assert.deepEqual([...block.re], expected, `${shape} ${JSON.stringify(fixed)} parts of ${partSize}`);
          assert.deepEqual(block.shape, shape.filter((_, d) => fixed[d] === null));
        }
      }
    }
  }
});

test("an empty array and a single number have blocks", async () => {
  assert.deepEqual([...(await opened({ name: "a", shape: [0, 3], values: [] }).all()).re], []);
  assert.deepEqual([...(await opened({ name: "a", shape: [], values: [2.5] }).block([])).re], [2.5]);
});

test("a block of another number of dimensions is refused", async () => {
  await assert.rejects(opened({ name: "a", shape: [2, 2], values: [1, 2, 3, 4] }).block([0]), DataError);
});

test("ranges are fetched from the server in bytes", async () => {
  const { manifest } = encodeFiles([{ name: "f", variables: [{ name: "a", shape: [4, 5], type: "c32", values: new Float64Array(40) }] }]);
  const entry = manifest.files[0].variables[0];
  assert.equal(entry.values.kind, "array");
  const served: Manifest = { ...manifest, server: "", files: [{ ...manifest.files[0], variables: [{ ...entry, values: { ...entry.values, parts: [], served: "0/0" } as typeof entry.values }] }] };
  const raw = Float32Array.from({ length: 40 }, (_, k) => k);
  const asked: [string, number, number][] = [];
  const source: PartSource = {
    text: async () => undefined,
    fetch: async (path, from, to) => {
      asked.push([path, from, to]);
      return raw.buffer.slice(from, to);
    },
    request: async (path) => {
      asked.push([path, 0, 0]);
      return new ArrayBuffer(0);
    },
  };
  const one = openFiles(served, source)[0].array("a") as ArrayVariable;
  const { re, im } = await one.block([2, null]);
  assert.deepEqual([[...re], [...(im ?? [])]], [[20, 22, 24, 26, 28], [21, 23, 25, 27, 29]]);
  assert.deepEqual(asked, [["data/0/0", 80, 120]]);
  await one.request("mean", { prefix: "0", probes: "a-_" });
  assert.deepEqual(asked[1][0], "mean/0/0?prefix=0&probes=a-_");
  const short: PartSource = { ...source, fetch: async () => new ArrayBuffer(8) };
  await assert.rejects((openFiles(served, short)[0].array("a") as ArrayVariable).all(), DataError);
});

test("positions of uniform, listed and labelled samples", () => {
  const even = new Dimension(uniform("x", "m", -1, 0.5), 4);
  assert.deepEqual([...even.positions()], [-1, -0.5, 0, 0.5]);
  assert.equal(even.step, 0.5);
  assert.equal(even.label(2), "x 0 m");
  assert.equal(even.title, "x [m]");
  const listed = new Dimension({ name: "outer_radius", unit: "", navigation: false, positions: { kind: "values", values: [1, 10, 100] } }, 3);
  assert.deepEqual([listed.position(0), listed.position(1.5), listed.position(2), listed.position(2.5)], [1, 55, 100, 145]);
  const single = new Dimension({ name: "z", unit: "", navigation: false, positions: { kind: "values", values: [7] } }, 1);
  assert.equal(single.position(0), 7);
  const labelled = new Dimension({ name: "s", unit: "", navigation: false, positions: { kind: "labels", labels: ["a", "b"] } }, 2);
  assert.deepEqual([labelled.label(1), labelled.measured], ["b", false]);
});

test("numbers are printed with proper signs and powers", () => {
  assert.deepEqual([0, -0, 1.5, -2, 1e-7, -2.5e30, NaN, Infinity, -Infinity, 123456789].map((x) => formatNumber(x)), ["0", "0", "1.5", "−2", "1·10⁻⁷", "−2.5·10³⁰", "NaN", "∞", "−∞", "123457000"]);
});

test("a page of another format is refused", () => {
  const { manifest } = encodeFiles([]);
  assert.throws(() => openFiles({ ...manifest, format: 2 }, { text: async () => undefined, fetch: () => Promise.reject(), request: () => Promise.reject() }), /format 2/);
});
