/** Panels of adaptive optics: each is drawn, used, and exported; numbers are those of NumPy (expected/optics.py). */

import assert from "node:assert/strict";
import expected from "../expected/optics.json";
import { browserTest, type FileSpec, type PageOptions, type TestPage } from "./harness";

const wave = (count: number, a: number, b: number) => Array.from({ length: count }, (_, k) => Math.sin(a * k + b * Math.cos(k)));
const { page: wanted } = expected;

const LENSLETS = [0, 1, 2, 3, 5, 6, 7, 8].map((k) => ({ row: Math.floor(k / 3), column: k % 3 }));
const SLOPES = 2 * LENSLETS.length;
const dense = wave(SLOPES ** 2, 0.37, 1.9);
const image = wave(256, 1.1, 0.4).map((one, k) => {
  const [u, v] = [(k % 16) - 8, Math.floor(k / 16) - 8];
  return 0.02 * Math.exp(-0.5 * (((u * 0.8 + v * 0.6) / 2.3) ** 2 + ((v * 0.8 - u * 0.6) / 1.6) ** 2)) + 1e-4 * one ** 2;
});
const errors = wave(18, 0.9, 0.3).map((one) => 1e-7 * (2 + one));

/** One file with everything that a panel of adaptive optics looks at. */
const FILE: FileSpec = {
  name: "everything <script>alert(1)</script>.npz",
  variables: [
    { name: "psf", shape: [2, 16, 16], values: [...image, ...image.map((one) => 0.5 * one)], attributes: { WL_NM: "1650", PIX_MAS: "15", SR0000: 0.7, FWHM0001: 90 } },
    { name: "diffraction", shape: [16, 16], values: image.map((one) => 2 * one) },
    {
      name: "budget",
      columns: [
        { name: "target", unit: "", values: [0, 0, 0] },
        { name: "term", unit: "", values: ["tomography", "covariance", "<script>alert(2)</script>"] },
        { name: "rms", unit: "nm", values: [100, -30, 60] },
      ],
    },
    { name: "field_strehl", shape: [1, 3, 3], values: wave(9, 1.3, 0.7).map((one) => 0.5 + 0.3 * one) },
    { name: "field_error", shape: [3, 3, 3], values: [...errors, ...errors.slice(0, 9).map((one, k) => Math.hypot(one, errors[9 + k]))], longName: "tomography, fitting, total" },
    { name: "field_offsets", shape: [3], values: [-20, 0, 20] },
    { name: "wavefront", shape: [3, 1, 12, 12], values: wave(432, 0.31, 2.1).map((one) => 1e-7 * one) },
    { name: "slopes", shape: [3, SLOPES], values: wave(3 * SLOPES, 0.8, 0.2).map((one) => 1e-6 * one) },
    { name: "slope_slope_dense", shape: [SLOPES, SLOPES], values: dense.map((_, k) => Array.from({ length: SLOPES }, (_, l) => dense[Math.floor(k / SLOPES) * SLOPES + l] * dense[(k % SLOPES) * SLOPES + l]).reduce((a, b) => a + b, 0)) },
    { name: "wavefront_slope_dense", shape: [1, 4, 4, SLOPES], values: wave(16 * SLOPES, 0.2, 0.7) },
    { name: "wavefront_wavefront", shape: [1, 1, 5, 5], values: wave(25, 0.1, 0.1).map((one) => 1e-14 * (2 + one)) },
    { name: "reconstructor", shape: [1, 4, SLOPES], values: wave(4 * SLOPES, 0.5, 0.9) },
    { name: "error_map", shape: [1, 4, 4], values: wave(16, 0.4, 0.1).map((one) => 1e-14 * (2 + one)) },
    { name: "eigenvalues", shape: [8], values: wave(8, 0.6, 1.2).map((one) => 1e-13 * Math.exp(5 * one)) },
    {
      name: "slope_table",
      columns: (["star", "axis", "row", "column", "x", "y"] as const).map((name) => ({
        name, unit: "",
        values: [0, 1].flatMap((axis) => LENSLETS.map(({ row, column }) => ({ star: 0, axis, row, column, x: (column - 1) * 0.5, y: (row - 1) * 0.5 })[name])),
      })),
    },
    {
      name: "system",
      text: "[telescope]\ndiameter = 3.0\nobstruction = 0.25\n[lenslet_array]\nlenslets = 6\n[phase]\noversampling = 2\n[reconstructor]\nfilter = 0.01\n[[guide_star]]\nzenith = 15.0\n[[target]]\n[image]\nwavelengths = [1.65e-6]\n",
    },
  ],
};

const at = (panel: string, state: Readonly<Record<string, unknown>> = {}, more: PageOptions = {}): PageOptions => {
  const own = Object.fromEntries(Object.entries(state).map(([key, value]) => [`1-${panel}.${key}`, value]));
  return { ...more, fragment: encodeURIComponent(JSON.stringify({ "page.panel": `1-${panel}`, ...own })) };
};
const card = ({ page }: TestPage, title: string | RegExp) => page.locator("section.card", { has: page.getByRole("heading", { level: 3, name: title }) });
const exported = (opened: TestPage, title: string | RegExp) => opened.csv(card(opened, title).getByRole("button", { name: "CSV" }));

/** A number that a panel prints. */
async function printed({ page }: TestPage, name: string): Promise<number> {
  const text = await page.getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) }).locator("td").first().innerText();
  const [mantissa, power = "0"] = text.replaceAll("−", "-").split("·10");
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  return Number(mantissa) * 10 ** Number([...power].map((c) => (c === "⁻" ? "-" : digits.includes(c) ? digits.indexOf(c) : c)).join(""));
}

function near(found: readonly number[], numbers: readonly number[], tolerance: number): void {
  assert.equal(found.length, numbers.length);
  numbers.forEach((one, k) => assert.ok(Math.abs(found[k] - one) <= tolerance * Math.max(Math.abs(one), 1e-3), `${k}: ${found[k]} in place of ${one}`));
}

/** Numbers of a column of a table, without its heading. */
const column = (rows: readonly (readonly string[])[], k: number) => rows.slice(1).map((row) => Number(row[k])).filter((_, n) => rows[n + 1][k] !== "");

/** The sample (i, j) of an image of nx × ny is picked by the keyboard. */
async function pick(opened: TestPage, title: string | RegExp, [fx, fy]: readonly [number, number]): Promise<void> {
  const frame = card(opened, title).locator(".iv-frame");
  const box = await frame.boundingBox();
  assert.ok(box);
  await frame.click({ position: { x: fx * box.width, y: fy * box.height } });
}

browserTest("a point-spread function is exported with its energy, and targets can be chosen", { files: [FILE] }, at("psf"), async (opened) => {
  await card(opened, /^Point-spread function/).waitFor();
  // NumPy divides each pixel into 200 × 200 parts, which decides the light of the smallest circle to 4e-4.
  near(column(await exported(opened, "Encircled and ensquared energy"), 1).slice(0, 8), wanted.encircled, 1e-3);
  near(column(await exported(opened, "Cuts along x and y"), 1), wanted.cut_x, 1e-9);
  assert.equal(await printed(opened, "Strehl ratio"), 0.7);
  await opened.page.getByRole("combobox", { name: /^Target/ }).selectOption("1");
  await opened.page.getByText("Strehl ratio, computed").waitFor();
  near([await printed(opened, "full width at half maximum")], [90], 1e-9);
  await opened.shot("ao-psf");
});

browserTest("covariances of a dense matrix are mapped by displacement", { files: [FILE] }, at("covariance-slopes", { component: "xy" }), async (opened) => {
  await card(opened, "Covariance of slopes").waitFor();
  const rows = await exported(opened, "Covariance of slopes");
  const numbers = rows.slice(1).flatMap((row) => row.slice(1).map(Number));
  // By columns x, y, value, or as a grid with y in the first column.
  const values = rows[0].length === 3 ? rows.slice(1).map((row) => Number(row[2])) : numbers;
  near([...values].sort((a, b) => a - b), [...wanted.covariance_xy].sort((a, b) => a - b), 1e-9);
  await pick(opened, "Covariance of slopes", [0.3, 0.3]);
  await opened.page.waitForFunction(() => decodeURIComponent(location.hash).includes("covariance-slopes.cut"));
  await opened.page.getByRole("button", { name: "Cuts through the peak" }).click();
  await opened.page.getByLabel("Show").selectOption("components");
  await opened.page.getByText("All components of stars 0 and 0").waitFor();
  await opened.shot("ao-covariance");
});

browserTest("wavefronts have the mean and rms of every frame, and play", { files: [FILE] }, at("wavefront"), async (opened) => {
  await card(opened, "Mean and rms by frame").locator("text=/Rms over all frames/").waitFor();
  const rows = await exported(opened, "Mean and rms by frame");
  near(column(rows, 1), wanted.rms, 1e-9);
  near(column(rows, 2), wanted.mean, 1e-9);
  const slider = opened.page.getByRole("slider", { name: "Frame" }).first();
  await opened.press(slider, "ArrowRight", "ArrowRight");
  await card(opened, "Wavefront, frame 2").waitFor();
  near([await printed(opened, "rms")], [wanted.rms[2]], 1e-4);
  await opened.page.keyboard.press("Control+z");
  await card(opened, "Wavefront, frame 1").waitFor();
  await opened.shot("ao-wavefront");
});

browserTest("a map over the field shows stars, and a direction that is picked has its budget", { files: [FILE] }, at("field", { at: [0, 2], lines: true }), async (opened) => {
  await card(opened, "Strehl ratio").waitFor();
  near([await printed(opened, "smallest"), await printed(opened, "mean"), await printed(opened, "largest")], wanted.strehl, 1e-4);
  near([await printed(opened, "Strehl ratio"), await printed(opened, "x"), await printed(opened, "y")], [wanted.strehl_picked, -20, 20], 1e-4);
  assert.equal((await exported(opened, "Error budget of this direction")).length, 4);
  await opened.page.getByLabel("Map of").selectOption("field_error");
  await card(opened, "Wavefront error, total").waitFor();
  await pick(opened, "Wavefront error, total", [0.3, 0.5]);
  await opened.page.waitForFunction(() => !decodeURIComponent(location.hash).includes("field.at\":[0,2]"));
  await opened.shot("ao-field");
});

browserTest("an error budget has bars of targets and of the field, and percentages", { files: [FILE] }, at("budget"), async (opened) => {
  await card(opened, "Error budget").waitFor();
  near([await printed(opened, "target 0, total")], [Math.sqrt(100 ** 2 - 30 ** 2 + 60 ** 2)], 1e-4);
  near([await printed(opened, "mean over the field, total")], [wanted.field_total], 1e-4);
  await opened.page.getByLabel("Bars").selectOption("percent");
  const rows = await exported(opened, "Error budget");
  assert.ok(rows.flat().some((cell) => Math.abs(Number(cell) - (100 * 100 ** 2) / (100 ** 2 - 30 ** 2 + 60 ** 2)) < 1e-6), rows.join("\n"));
  await opened.shot("ao-budget");
});

browserTest("a reconstructor shows a row on the lenslets", { files: [FILE] }, at("reconstructor", { row: 2 }), async (opened) => {
  await card(opened, /^Row 2/).waitFor();
  const rows = await exported(opened, /^Row 2/);
  const numbers = rows.slice(1).flatMap((row) => row.map(Number));
  assert.ok(wanted.row.every((one) => numbers.some((found) => Math.abs(found - one) < 1e-9)), "numbers of the row");
  await pick(opened, "Matrix", [0.4, 0.1]);
  await card(opened, /^Row [013]/).waitFor();
  await opened.shot("ao-reconstructor");
});

browserTest("slopes, errors, eigenvalues and other covariances are drawn and exported", { files: [FILE] }, at("slopes"), async (opened) => {
  await card(opened, "Rms of the slopes by frame").waitFor();
  near(column(await exported(opened, "Rms of the slopes by frame"), 1), wanted.slopes_rms, 1e-9);
  await opened.shot("ao-slopes");
  const panel = (name: string) => opened.page.getByRole("navigation").getByRole("button", { name, exact: true }).click();
  await panel("Residual wavefront error");
  await opened.page.getByText("rms over the points of this map").waitFor();
  near([await printed(opened, "rms over the points of this map")], [wanted.error_rms], 1e-4);
  await panel("Eigenvalues");
  await opened.page.getByText("condition number of those kept").waitFor();
  near([await printed(opened, "condition number"), await printed(opened, "kept")], [wanted.condition, wanted.kept], 1e-4);
  for (const name of ["Covariance of wavefront and slopes", "Covariance of wavefronts", "Covariance matrices"]) {
    await panel(name);
    await opened.page.locator("section.card .iv-frame").first().waitFor();
    assert.equal(await opened.page.locator(".failure").count(), 0, name);
  }
});

for (const [width, colorScheme] of [[360, "light"], [360, "dark"], [1280, "dark"]] as const) {
  browserTest(`no panel of adaptive optics is wider than a page of ${width} pixels, ${colorScheme}`, { files: [FILE] }, at("psf", {}, { viewport: { width, height: 780 }, colorScheme }), async (opened) => {
    for (const panel of ["psf", "budget", "field", "wavefront", "slopes", "covariance-slopes", "covariance-matrix", "reconstructor", "error-map", "spectrum"]) {
      await opened.page.evaluate((id) => { location.hash = encodeURIComponent(JSON.stringify({ "page.panel": `1-${id}` })); }, panel);
      await opened.page.locator("section.card").first().waitFor();
      await opened.settle();
      assert.ok(await opened.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), panel);
      assert.equal(await opened.page.locator(".failure").count(), 0, panel);
      await opened.shot(`ao-${panel}-${width}-${colorScheme}`);
    }
  });
}
