/**
 * Pages that the command `lenslet view` writes of files that the program itself wrote: their numbers are compared with those of the same
 * results in NumPy's format, which this test reads by itself.
 *
 * The program is what LENSLET names, else that of a debug build. Where there is none, the tests are skipped, or fail where CI is set.
 */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Manifest } from "../../src/manifest";
import { readNpz } from "../npz";
import { browserTest, type ArraySpec, type TestPage } from "./harness";

const viewer = fileURLToPath(new URL("../../", import.meta.url));
const program = resolve(viewer, process.env.LENSLET ?? "../target/debug/lenslet");
const folder = mkdtempSync(join(tmpdir(), "lenslet-command-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the program in the tests' folder. */
function run(...args: string[]): { readonly code: number | null; readonly text: string } {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd: folder, encoding: "utf8" });
  return { code: status, text: stdout + stderr };
}

/** Runs the program, which must succeed. */
function lenslet(...args: string[]): void {
  const { code, text } = run(...args);
  assert.equal(code, 0, `lenslet ${args.join(" ")}: ${text}`);
}

const SAMPLE = `# A comment </script><script>window.ran = 1</script>
[sample]
crystal = """
lopsided </script><script>window.ran = 1</script>
  5.43  4.20  3.60
  14  0.3000  0.7000  0.0000  1.0  0.076
  29  4.0725  0.9575  1.7150  1.0  0.06
  -1
"""
tile = [1, 2, 1]
[potential]
grid = [32, 48]
slice_thickness = 1.8
[beam]
energy_kev = 80.0
semi_angle = 21.0
defocus = [0.0, 60.0]
[scan]
window = [[0.4, 5.0], [0.2, 3.4]]
step = [0.7, 0.8]
[method]
algorithm = "prism"
interpolation = [1, 2]
interpolation_check = "warn"
[detector]
bin = 2.0
annuli = [[30.0, 55.0]]
centre_of_mass = true
four_d = { crop = 40.0 }
`;

/** The same crystal by multislice, with so many patterns that a page of 1 MB has to average them. */
const LARGE = SAMPLE.replace("tile = [1, 2, 1]", "tile = [2, 3, 1]")
  .replace("grid = [32, 48]", "grid = [96, 128]")
  .replace("step = [0.7, 0.8]", "step = [0.15, 0.15]")
  .replace(/algorithm[^]*?"warn"/, 'algorithm = "multislice"')
  .replace("crop = 40.0", "crop = 60.0");

const SYSTEM = `# </script><script>window.ran = 1</script>
[atmosphere]
r0 = 0.15
wavelength = 500e-9
outer_scale = 25.0
layers = [{ altitude = 0.0, fraction = 0.6, wind_speed = 8.0, wind_direction = 30.0 }, { altitude = 6000.0, fraction = 0.4, wind_speed = 20.0, wind_direction = 80.0 }]
[telescope]
diameter = 4.0
obstruction = 0.25
[lenslet_array]
lenslets = 5
[truth_sensor]
lenslets = 5
[[guide_star]]
zenith = 25.0
azimuth = 37.0
noise = 2e-14
[[guide_star]]
zenith = 40.0
azimuth = 160.0
noise = 1e-14
[[target]]
zenith = 12.0
azimuth = 203.0
[correction]
mode = "moao"
[[mirror]]
actuators = 6
coupling = 0.2
filter = 0.05
[loop]
kind = "open"
rate = 500.0
delay = 2.0
[image]
wavelengths = [1.65e-6, 2.2e-6]
pixel = 25.0
pixels = 49
ensquared = [150.0]
[field]
size = 60.0
step = 20.0
[phase]
points = 11
oversampling = 2
`;

const made = new Set<string>();

/** A result in the tests' folder, written once: a scan (scan.EXTENSION), a large one, images, covariances, or slopes. */
function result(name: string): string {
  if (!made.has(name)) {
    made.add(name);
    writeFileSync(join(folder, "sample.toml"), SAMPLE);
    writeFileSync(join(folder, "large.toml"), LARGE);
    writeFileSync(join(folder, "system.toml"), SYSTEM);
    if (name.startsWith("scan.")) {
      lenslet("stem", "sample.toml", "-o", name, ...(name.endsWith(".mrc") ? ["--signal", "annulus_0"] : ["--compare", "2", "--save", "potential,probe"]));
    } else if (name.startsWith("large.")) {
      lenslet("stem", "large.toml", "-o", name);
    } else if (name.startsWith("slopes.")) {
      lenslet("simulate", "system.toml", "--frames", "3", "-o", name);
    } else {
      lenslet(name.startsWith("psf.") ? "psf" : "covariance", "system.toml", "-o", name);
    }
  }
  return name;
}

/** The page of some results. */
function pageOf(names: readonly string[], ...more: string[]): { path: string } {
  const page = `${names.join("-")}${more.join("")}.html`;
  lenslet("view", ...names.map(result), "-o", page, ...more);
  return { path: join(folder, page) };
}

/** An array of a result in NumPy's format. */
function numpy(name: string, variable: string): ArraySpec {
  const found = readNpz(join(folder, result(name))).variables.find((one) => one.name === variable);
  assert.ok(found && "shape" in found, `${name} has ${variable}`);
  return found;
}

/** A number of an array. */
function at({ shape, values }: ArraySpec, ...place: number[]): number {
  return values[place.reduce((sum, k, d) => sum * shape[d] + k, 0)];
}

/** What shows that a panel with pictures, curves or bars is drawn. */
const DRAWN = "main section.card .iv-readout, main section.card .u-over, main section.card svg";

/** Opens the panel of a title or identifier, with a state. */
async function open({ page }: TestPage, title: string | RegExp, state: Readonly<Record<string, unknown>> = {}, drawn = DRAWN): Promise<void> {
  const options = await page.locator("select.panels option").evaluateAll((all) => all.map((one) => [(one as HTMLOptionElement).value, one.textContent ?? ""] as const));
  const id = options.find(([value, text]) => (typeof title === "string" ? [value, text].includes(title) : title.test(text)))?.[0];
  assert.ok(id, `${title} is not among ${options.map(([, text]) => text).join(", ")}`);
  const fragment = encodeURIComponent(JSON.stringify({ "page.panel": id, ...Object.fromEntries(Object.entries(state).map(([key, value]) => [`${id}.${key}`, value])) }));
  const address = page.url().split("#")[0];
  await page.goto("about:blank");
  await page.goto(`${address}#${fragment}`);
  await page.locator(drawn).first().waitFor();
  assert.equal(await page.locator(".failure").count(), 0, `${title} fails`);
}

/** The picture of a card: the headings of its axes, positions, and numbers by rows of y. */
async function picture(opened: TestPage, k = 0): Promise<{ readonly axes: string; readonly x: number[]; readonly y: number[]; readonly rows: number[][] }> {
  const card = opened.page.locator("main section.card").filter({ has: opened.page.locator(".iv-plot") }).nth(k);
  const [head, ...rows] = await opened.csv(card.getByRole("button", { name: "CSV" }));
  return { axes: head[0], x: head.slice(1).map(Number), y: rows.map((row) => Number(row[0])), rows: rows.map((row) => row.slice(1).map(Number)) };
}

function near(found: readonly number[], wanted: ArrayLike<number>, tolerance: number, what: string): void {
  assert.equal(found.length, wanted.length, what);
  const scale = Math.max(...Array.from(wanted, Math.abs));
  found.forEach((one, k) => assert.ok(Math.abs(one - wanted[k]) <= tolerance * scale, `${what}, ${k}: ${one} in place of ${wanted[k]}`));
}

/** The numbers of a picture are those of `wanted(i, j)`, i along x and j along y. */
function shows({ rows }: { readonly rows: readonly (readonly number[])[] }, nx: number, ny: number, wanted: (i: number, j: number) => number, tolerance: number, what: string): void {
  assert.deepEqual([rows.length, rows[0].length], [ny, nx], what);
  near(rows.flat(), Array.from({ length: nx * ny }, (_, n) => wanted(n % nx, Math.floor(n / nx))), tolerance, what);
}

/** A number of a panel's table, by its row. */
async function printed({ page }: TestPage, name: string): Promise<number> {
  const text = await page.getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) }).locator("td").first().innerText();
  return Number(text.replace("−", "-"));
}

function commandTests(): void {
  for (const extension of ["npz", "emd", "h5", "hspy", "zspy", "zarr", "zarr.zip", "mrc"]) {
    browserTest(`the page of a scan in .${extension} has NumPy's numbers, positions and units`, () => pageOf([`scan.${extension}`]), {}, async (opened) => {
      const image = numpy("scan.npz", "annulus_0");
      const [x, y] = ["x", "y"].map((name) => numpy("scan.npz", name).values);
      await open(opened, "annulus_0", { "at-0": 1 });
      const found = await picture(opened);
      assert.equal(found.axes, "y [Å] \\ x [Å]");
      near(found.x, x, 1e-6, "x");
      near(found.y, y, 1e-6, "y");
      shows(found, x.length, y.length, (i, j) => at(image, 1, i, j), 0, "annulus_0");
      assert.match((await opened.page.locator("main .controls").first().textContent()) ?? "", /60 Å/);
      if (extension === "mrc") {
        return;
      }
      const patterns = numpy("scan.npz", "four_d");
      const [qx, qy] = ["qx", "qy"].map((name) => numpy("scan.npz", name).values);
      await open(opened, "four_d", { "at-0": 1, "at-1": 4, "at-2": 2 });
      const pattern = await picture(opened);
      assert.equal(pattern.axes, "qy [1/Å] \\ qx [1/Å]");
      near(pattern.x, qx, 1e-6, "qx");
      near(pattern.y, qy, 1e-6, "qy");
      shows(pattern, qx.length, qy.length, (i, j) => at(patterns, 1, 4, 2, i, j), 0, "four_d");
    });
  }

  browserTest("the page of slopes in .npy has NumPy's numbers", () => pageOf(["slopes.npy"]), {}, async (opened) => {
    const slopes = numpy("slopes.npz", "slopes");
    await open(opened, /slopes/);
    shows(await picture(opened), slopes.shape[1], slopes.shape[0], (i, j) => at(slopes, j, i), 0, "slopes");
  });

  browserTest("panels of a PSF in FITS have NumPy's numbers", () => pageOf(["psf.fits"]), {}, async (opened) => {
    const [psf, strehl, error, offsets] = ["psf", "field_strehl", "field_error", "field_offsets"].map((name) => numpy("psf.npz", name));
    const n = psf.shape[3];
    await open(opened, "Point-spread functions", { wavelength: "1" });
    const image = await picture(opened);
    assert.equal(image.axes, "y [mas] \\ x [mas]");
    near(image.x, Float64Array.from({ length: n }, (_, k) => 25 * (k - Math.floor(n / 2))), 1e-9, "positions");
    shows(image, n, n, (i, j) => at(psf, 1, 0, j, i), 1e-12, "psf");
    let sum = 0;
    for (let k = 0; k < n * n; k++) {
      sum += at(psf, 1, 0, Math.floor(k / n), k % n);
    }
    near([await printed(opened, "share of the light in the image")], [sum], 1e-4, "light");
    near([await printed(opened, "direction x of the target")], [12 * Math.cos((203 * Math.PI) / 180)], 1e-4, "direction");
    await open(opened, "Maps over the field", { at: [2, 0] });
    const map = await picture(opened);
    near(map.x, offsets.values, 1e-9, "offsets");
    shows(map, strehl.shape[2], strehl.shape[1], (i, j) => at(strehl, 0, j, i), 1e-12, "Strehl ratios");
    const last = error.shape[0] - 1;
    near([await printed(opened, "wavefront error, total"), await printed(opened, "Strehl ratio, 2200 nm")], [1e9 * at(error, last, 0, 2), at(strehl, 1, 0, 2)], 1e-4, "the direction that was picked");
    await open(opened, "Error budget");
    const bars = await opened.csv(opened.page.getByRole("button", { name: "CSV" }).first());
    const points = error.shape[1] * error.shape[2];
    let total = 0;
    for (let k = 0; k < points; k++) {
      total += error.values[last * points + k] ** 2 / points;
    }
    const bar = bars.find(([group, name]) => group === "mean over the field" && name === "total");
    near([Number(bar?.[2])], [1e9 * Math.sqrt(total)], 1e-9, "mean over the field");
  });

  browserTest("panels of covariances in FITS have NumPy's numbers", () => pageOf(["covariance.fits"]), {}, async (opened) => {
    const slopes = numpy("covariance.npz", "slope_slope");
    const n = slopes.shape[5];
    await open(opened, "Covariance of slopes", { p: "0", q: "1", component: "xy" });
    const map = await picture(opened);
    assert.equal(map.axes, "displacement along y [m] \\ displacement along x [m]");
    near(map.x, Float64Array.from({ length: n }, (_, k) => 0.8 * (k - (n - 1) / 2)), 1e-9, "displacements");
    shows(map, n, n, (i, j) => at(slopes, 0, 1, 0, 1, j, i), 1e-12, "slope_slope");
    const wavefront = numpy("covariance.npz", "wavefront_slope");
    await open(opened, "Covariance of wavefront and slopes", { star: "1", axis: "y" });
    shows(await picture(opened), wavefront.shape[4], wavefront.shape[3], (i, j) => at(wavefront, 0, 1, 1, j, i), 1e-12, "wavefront_slope");
  });

  browserTest("the probe analyser of a real comparison has NumPy's numbers", () => pageOf(["scan.npz"]), {}, async (opened) => {
    const [prism, multislice] = ["compared_prism", "compared_multislice"].map((name) => numpy("scan.npz", name));
    const [nx, ny] = prism.shape.slice(-2);
    const power = ({ values }: ArraySpec) => Float64Array.from({ length: nx * ny }, (_, k) => values[2 * (3 * nx * ny + k)] ** 2 + values[2 * (3 * nx * ny + k) + 1] ** 2);
    const [a, b] = [power(prism), power(multislice)];
    const mean = (values: Float64Array) => values.reduce((all, one) => all + one, 0) / values.length;
    const product = (u: Float64Array, v: Float64Array) => u.reduce((all, one, k) => all + (one - mean(u)) * (v[k] - mean(v)), 0);
    const correlation = product(a, b) / Math.sqrt(product(a, a) * product(b, b));
    const factor = a.reduce((all, one, k) => all + Math.abs(one - b[k]), 0) / b.reduce((all, one) => all + one, 0);
    await open(opened, "Probe analyser", { defocus: 1, probe: 1, centred: false });
    const heading = opened.page.getByText(/Real space: correlation/);
    await heading.waitFor();
    const [, r, percent] = /coefficient ([\d.]+), R-factor ([\d.]+) %/.exec((await heading.textContent()) ?? "") ?? [];
    near([Number(r)], [correlation], 1e-5, "correlation coefficient");
    near([Number(percent)], [100 * factor], 1e-2, "R-factor");
    const card = opened.page.locator("section.card", { has: opened.page.getByRole("heading", { name: "Multislice, real space", exact: true }) });
    const rows = (await opened.csv(card.getByRole("button", { name: "CSV" }))).slice(1).map((row) => row.slice(1).map(Number));
    shows({ rows }, nx, ny, (i, j) => b[i * ny + j], 1e-12, "multislice");
  });

  browserTest("a page of two files has the arrays of both", () => pageOf(["scan.npz", "scan.emd"]), {}, async (opened) => {
    const image = numpy("scan.npz", "annulus_0");
    await opened.page.locator(".compare .iv-plot").nth(1).waitFor();
    assert.deepEqual(await opened.page.locator(".compare-cards h3").allTextContents(), ["A: scan.npz", "B: scan.emd"]);
    const [, nx, ny] = image.shape;
    const ids = await opened.page.locator("select.panels option").evaluateAll((all) => all.filter((one) => one.textContent === "annulus_0").map((one) => (one as HTMLOptionElement).value));
    assert.equal(ids.length, 2);
    for (const id of ids) {
      await open(opened, id);
      shows(await picture(opened), nx, ny, (i, j) => at(image, 0, i, j), 0, id);
    }
  });

  browserTest("a page below its limit averages patterns, keeps the rings, and states the error", () => pageOf(["large.npz"], "--limit", "1"), {}, async (opened) => {
    const manifest = JSON.parse((await opened.page.locator("#lenslet-manifest").textContent()) ?? "") as Manifest;
    const stored = (name: string) => {
      const found = manifest.files[0].variables.find((one) => one.name === name)?.values;
      assert.ok(found?.kind === "array", name);
      return found;
    };
    const patterns = numpy("large.npz", "four_d");
    const [mean, rings] = [stored("four_d"), stored("four_d_rings")];
    const [, bx, by, bqx, bqy] = mean.binning;
    assert.ok(bqx * bqy > 1 && mean.reduced.includes("averaged over"), mean.reduced);
    const [, nx, ny, mx, my] = patterns.shape;
    // Means of the patterns' samples, within the error that is stated, and the digits of single precision
    const place = [5, 3];
    await open(opened, "four_d", { "at-0": 1, "at-1": place[0], "at-2": place[1] });
    const found = await picture(opened);
    const block = (first: number, by: number, count: number) => Array.from({ length: Math.min(by, count - first * by) }, (_, k) => first * by + k);
    const average = (i: number, j: number) => {
      const all = block(place[0], bx, nx).flatMap((p) => block(place[1], by, ny).flatMap((q) => block(i, bqx, mx).flatMap((a) => block(j, bqy, my).map((b) => at(patterns, 1, p, q, a, b)))));
      return all.reduce((sum, one) => sum + one, 0) / all.length;
    };
    found.rows.forEach((row, j) => row.forEach((value, i) => {
      const allowed = 1.01 * mean.error.absolute + 1e-6 * Math.abs(average(i, j));
      assert.ok(Math.abs(value - average(i, j)) <= allowed, `(${i}, ${j}): ${value} in place of ${average(i, j)}, ± ${allowed}`);
    }));
    // Sums over rings of the patterns as they were
    const [qx, qy] = ["qx", "qy"].map((name) => numpy("large.npz", name).values);
    const ring = rings.dimensions[4 - 1].positions;
    assert.ok(ring.kind === "uniform");
    const k = 6;
    const inside = (a: number, b: number) => Math.floor(Math.hypot(qx[a], qy[b]) / ring.step + 1e-9) === k;
    await open(opened, "four_d_rings", { "at-0": 0, "at-3": k });
    assert.deepEqual([rings.binning[1], rings.binning[2]], [bx, by]);
    const sums = await picture(opened);
    const total = (i: number, j: number) => {
      const probes = block(i, bx, nx).flatMap((p) => block(j, by, ny).map((q) => [p, q] as const));
      let sum = 0;
      for (const [p, q] of probes) {
        for (let a = 0; a < mx; a++) {
          for (let b = 0; b < my; b++) {
            sum += inside(a, b) ? at(patterns, 0, p, q, a, b) : 0;
          }
        }
      }
      return sum / probes.length;
    };
    assert.ok(total(0, 0) > 0);
    shows(sums, rings.shape[1], rings.shape[2], total, 2e-6, "rings");
    assert.match((await opened.page.locator("footer .notes").textContent()) ?? "", /four_d: /);
  });

  browserTest("a large array is rounded to 16 bits within the stated error", () => {
    const [ny, nx] = [700, 500];
    const values = Float64Array.from({ length: nx * ny }, (_, k) => Math.sin(k / 300) * Math.exp(-k / 1e5));
    writeFileSync(join(folder, "wide.npy"), npy([ny, nx], values));
    made.add("wide.npy");
    return pageOf(["wide.npy"], "--limit", "1");
  }, {}, async (opened) => {
    const manifest = JSON.parse((await opened.page.locator("#lenslet-manifest").textContent()) ?? "") as Manifest;
    const array = manifest.files[0].variables[0].values;
    assert.ok(array.kind === "array" && array.encoding === "u16" && array.error.absolute > 0 && array.reduced !== "");
    await open(opened, manifest.files[0].variables[0].name);
    const { rows } = await picture(opened);
    rows.forEach((row, j) => row.forEach((value, i) => {
      const k = j * 500 + i;
      const wanted = Math.sin(k / 300) * Math.exp(-k / 1e5);
      assert.ok(Math.abs(value - wanted) <= 1.01 * array.error.absolute, `${k}: ${value} in place of ${wanted}, ± ${array.error.absolute}`);
    }));
    assert.deepEqual([rows.length, rows[0].length], [700, 500]);
  });

  browserTest("comments and names with markup in a sample file stay text", () => pageOf(["scan.zarr"]), {}, async (opened) => {
    await open(opened, /^(Texts|system)/i, {}, "main pre, main .card");
    assert.equal(await opened.page.evaluate(() => "ran" in window), false);
    assert.equal(await opened.page.locator("#lenslet-viewer script").count(), 0);
    assert.ok(((await opened.page.locator("body").textContent()) ?? "").includes("lopsided </script><script>"));
  });

  test("files that are damaged, cut short, foreign or missing give a sentence and exit code 2, and write nothing", () => {
    const bytes = (name: string) => readFileSync(join(folder, result(name)));
    const damaged = bytes("scan.npz").map((byte, k) => (k > 200 && k < 4000 ? byte ^ 0x5a : byte));
    const cases: Record<string, Uint8Array | undefined> = {
      "missing.npz": undefined,
      "empty.npz": Buffer.alloc(0),
      "short.npz": bytes("scan.npz").subarray(0, 2000),
      "damaged.npz": damaged,
      "short.emd": bytes("scan.emd").subarray(0, 20_000),
      "short.fits": bytes("psf.fits").subarray(0, 10_000),
      "short.mrc": bytes("scan.mrc").subarray(0, 1100),
      "short.npy": bytes("slopes.npy").subarray(0, 200),
      "foreign.npz": Buffer.from("hello"),
      "foreign.fits": Buffer.from("hello"),
      "foreign.txt": Buffer.from("hello"),
      "foreign.zarr.zip": Buffer.from("hello"),
    };
    for (const [name, content] of Object.entries(cases)) {
      if (content !== undefined) {
        writeFileSync(join(folder, name), content);
      }
      const before = readdirSync(folder).length;
      const { code, text } = run("view", name);
      assert.equal(code, 2, `${name}: ${text}`);
      assert.match(text, new RegExp(`^error: .*${name.replaceAll(".", "\\.")}`), name);
      assert.ok(!/panicked|\bat src\//.test(text), text);
      assert.equal(readdirSync(folder).length, before, `${name} leaves no file`);
    }
  });

  test("a page has the name of its first file unless another is given, which must end in .html", () => {
    for (const [file, page] of [["scan.npz", "scan.html"], ["scan.zarr", "scan.html"], ["scan.zarr.zip", "scan.html"]]) {
      rmSync(join(folder, page), { force: true });
      lenslet("view", result(file));
      assert.match(readFileSync(join(folder, page), "utf8"), /^<!doctype html>[^]*<\/html>\s*$/);
    }
    const { code, text } = run("view", "scan.npz", "-o", "page.txt");
    assert.equal(code, 2, text);
    assert.ok(!existsSync(join(folder, "page.txt")));
  });
}

/** An array of double precision in NumPy's format. */
function npy(shape: readonly number[], values: Float64Array): Buffer {
  const text = `{'descr': '<f8', 'fortran_order': False, 'shape': (${shape.join(", ")}), }`;
  const header = Buffer.from(text.padEnd(117) + "\n", "latin1");
  const start = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  return Buffer.concat([start, header, Buffer.from(values.buffer)]);
}

if (existsSync(program)) {
  commandTests();
} else if (process.env.CI) {
  test("lenslet view", () => assert.fail(`${program} does not exist: cargo build, or name the program in LENSLET`));
} else {
  test("lenslet view", { skip: `${program} does not exist: cargo build, or name the program in LENSLET` }, () => undefined);
}
