import assert from "node:assert/strict";
import { browserTest, uniform, type FileSpec, type TestPage } from "./harness";

const [NX, NY, NT] = [24, 16, 3];
const dimensions = [uniform("frame", "", 0, 1, true), uniform("y", "m", 0, 0.5), uniform("x", "m", 0, 0.5)];
const stack = (f: (t: number, j: number, i: number) => number) =>
  Float64Array.from({ length: NT * NY * NX }, (_, n) => f(Math.floor(n / (NX * NY)), Math.floor(n / NX) % NY, n % NX));
const height = [uniform("height", "m", 0, 100)];

const a: FileSpec = {
  name: "a.npz",
  attributes: { seed: 1, program: "lenslet", only_a: true },
  variables: [
    { name: "wavefront", unit: "m", shape: [NT, NY, NX], dimensions, values: stack((t, j, i) => i + 100 * j + 1000 * t) },
    { name: "profile", unit: "m2", shape: [40], dimensions: height, values: Float64Array.from({ length: 40 }, (_, k) => k) },
    { name: "wave", type: "c64", shape: [NY, NX], dimensions: dimensions.slice(1), values: Float64Array.from({ length: 2 * NX * NY }, (_, k) => (k % 2 === 0 ? -1 : 0.1)) },
    { name: "psf", shape: [8, 8], values: new Float64Array(64) },
    { name: "strehl", shape: [], values: [0.5] },
    { name: "system", text: "[telescope]\ndiameter = 8\nname = \"x\"\n\n[sensor]\ncount = 4\nlast = 1" },
    { name: "budget", columns: [{ name: "term", unit: "", values: ["fitting", "noise"] }, { name: "error", unit: "nm", values: [10, 20] }] },
  ],
};
const b: FileSpec = {
  name: "b.npz",
  attributes: { seed: 2, program: "lenslet" },
  variables: [
    { name: "wavefront", unit: "m", shape: [NT, NY, NX], dimensions, values: stack((t, j, i) => 2 * (i + 100 * j + 1000 * t) + (t === 1 && j === 2 && i === 3 ? 7 : 0)) },
    { name: "profile", unit: "m2", shape: [40], dimensions: height, values: Float64Array.from({ length: 40 }, (_, k) => (k === 5 ? NaN : k + 2)) },
    { name: "wave", type: "c64", shape: [NY, NX], dimensions: dimensions.slice(1), values: Float64Array.from({ length: 2 * NX * NY }, (_, k) => (k % 2 === 0 ? -1 : -0.1)) },
    { name: "psf", shape: [4, 4], values: new Float64Array(16) },
    { name: "strehl", shape: [], values: [0.25] },
    { name: "system", text: "[telescope]\ndiameter = 39\nname = \"x\"\n\n[sensor]\ncount = 4\nextra = 2\nlast = 1" },
    { name: "budget", columns: [{ name: "term", unit: "", values: ["fitting", "noise"] }, { name: "error", unit: "nm", values: [10, 21] }] },
  ],
};

const select = ({ page }: TestPage, label: string) => page.locator("main").getByRole("combobox", { name: label, exact: true });

/** Cells of the statistics, by column: its heading with the number of elements first. */
async function statistics({ page }: TestPage): Promise<string[][]> {
  const rows = await page.locator(".compare-numbers tr").evaluateAll((all) => all.map((row) => [...row.children].slice(1).map((cell) => cell.textContent ?? "")));
  const [headings, elements, ...others] = rows;
  return headings.map((heading, k) => [`${heading}: ${elements[k]}`, ...others.map((row) => row[k])]);
}

browserTest("two files: stacks side by side, difference, ratio, statistics", { files: [a, b] }, {}, async (opened) => {
  const { page } = opened;
  await page.locator(".compare .iv-plot").nth(1).waitFor();
  assert.deepEqual(await page.locator(".compare-cards h3").allTextContents(), ["A: a.npz", "B: b.npz"]);
  await opened.shot("compare-side");

  // Numbers of the shown frame and of the whole array
  const first = Float64Array.from({ length: NX * NY }, (_, n) => (n % NX) + 100 * Math.floor(n / NX));
  const rms = Math.sqrt(first.reduce((sum, x) => sum + x * x, 0) / first.length);
  await page.locator(".compare-numbers th", { hasText: "whole array" }).waitFor();
  assert.deepEqual(await page.locator(".compare-numbers thead th").allTextContents(), ["statistic", "shown", "whole array"]);
  const [shown, whole] = await statistics(opened);
  assert.equal(shown[0], `shown: ${NX * NY}`);
  assert.ok(Math.abs(Number(shown[1]) / rms - 1) < 1e-4, `${shown[1]} in place of ${rms}`);
  assert.equal(shown[2], "1523");
  assert.equal(shown[3], "0.5");
  assert.equal(shown[4], "1");
  assert.equal(shown[5], String(NX * NY - 1));
  assert.equal(whole[0], `whole array: ${NX * NY * NT}`);
  assert.equal(whole[2], "3523");

  // Difference
  await select(opened, "Show").selectOption("difference");
  const csv = async () => (await opened.csv(page.locator(".compare-cards").getByRole("button", { name: "CSV" }))).slice(1).flatMap((row) => row.slice(1).map(Number));
  const difference = await csv();
  assert.equal(difference.length, NX * NY);
  assert.equal(Math.min(...difference), -1523);
  await opened.shot("compare-difference");

  // Ratio and relative difference of another frame
  await page.locator("main").getByRole("slider", { name: "frame" }).fill("1");
  await select(opened, "Show").selectOption("ratio");
  const ratio = await csv();
  assert.equal(ratio.filter((x) => x === 0.5).length, NX * NY - 1);
  assert.ok(Math.abs(Math.min(...ratio) - 1203 / 2413) < 1e-12);
  await select(opened, "Show").selectOption("relative");
  assert.ok(Math.abs(Math.min(...(await csv())) - (1203 - 2413) / 2413) < 1e-12);

  // Undo
  await page.keyboard.press("Control+z");
  assert.equal(await select(opened, "Show").inputValue(), "ratio");
  await page.getByRole("button", { name: "Exchange" }).click();
  await page.locator(".compare-cards h3").first().waitFor();
  assert.ok(Math.abs(Math.max(...(await csv())) - 2413 / 1203) < 1e-12);
  const text = (await page.locator("main").textContent()) ?? "";
  assert.ok(text.includes("psf is not compared: its shape is 4 × 4 in A and 8 × 8 in B."), text);
});

browserTest("two files: blinking, and by hand where motion is reduced", { files: [a, b] }, { reducedMotion: "reduce" }, async (opened) => {
  const { page } = opened;
  await select(opened, "Show").selectOption("blink");
  assert.equal(await page.getByRole("button", { name: "Blink" }).count(), 0);
  const title = page.locator(".compare-cards h3");
  assert.equal(await title.textContent(), "A: a.npz");
  await page.waitForTimeout(1200);
  assert.equal(await title.textContent(), "A: a.npz");
  await page.getByRole("button", { name: "Show B" }).click();
  assert.equal(await title.textContent(), "B: b.npz");
  await page.getByRole("button", { name: "Show A" }).click();
  assert.equal(await title.textContent(), "A: a.npz");
});

browserTest("two files: blinking changes by itself until it is stopped", { files: [a, b] }, {}, async (opened) => {
  const { page } = opened;
  await select(opened, "Show").selectOption("blink");
  const title = page.locator(".compare-cards h3");
  await title.filter({ hasText: "B: b.npz" }).waitFor();
  await title.filter({ hasText: "A: a.npz" }).waitFor();
  const button = page.getByRole("button", { name: "Blink" });
  await button.click();
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  const before = await title.textContent();
  await page.waitForTimeout(1500);
  assert.equal(await title.textContent(), before);
});

browserTest("two files: curves with a linked cursor, and gaps", { files: [a, b] }, {}, async (opened) => {
  const { page } = opened;
  await select(opened, "Array").selectOption("profile");
  await page.locator(".compare .u-over").waitFor();
  const [row] = await statistics(opened);
  assert.deepEqual(row, ["whole array: 40", "2", "2", "0.086066", "1", "40", "1"].map((text, k) => (k === 3 ? row[3] : text)));
  const squares = Array.from({ length: 40 }, (_, k) => (k === 5 ? 0 : (k + 2) ** 2)).reduce((x, y) => x + y, 0);
  assert.ok(Math.abs(Number(row[3]) / Math.sqrt((4 * 39) / squares) - 1) < 1e-4, row[3]);
  const overlaid = await opened.csv(page.locator(".compare-cards").getByRole("button", { name: "CSV" }));
  assert.deepEqual(overlaid[0], ["height [m]", "A: a.npz [m2]", "B: b.npz [m2]"]);
  assert.deepEqual(overlaid[6], ["500", "5", "NaN"]);
  await opened.shot("compare-curves");
  await select(opened, "Show").selectOption("side");
  await page.locator(".curve-plot canvas").nth(1).waitFor();
  await opened.press(page.locator(".curve-plot").first(), "Home", "ArrowRight", "ArrowRight");
  assert.deepEqual(await page.locator(".curve-value").allTextContents(), ["2 m2", "4 m2"]);
  await select(opened, "Show").selectOption("difference");
  const difference = await opened.csv(page.locator(".compare-cards").getByRole("button", { name: "CSV" }));
  assert.deepEqual([difference[1][1], difference[6][1]], ["-2", "NaN"]);
});

browserTest("two files: parts of complex numbers, with phases modulo 2π", { files: [a, b] }, {}, async (opened) => {
  const { page } = opened;
  await select(opened, "Array").selectOption("wave");
  await page.locator(".compare .iv-plot").nth(1).waitFor();
  assert.equal((await statistics(opened))[0][5], "0");
  await select(opened, "Part").selectOption("phase");
  await page.waitForFunction(() => document.querySelector(".compare-numbers tbody tr:nth-child(2) th")?.textContent === "rms difference [rad]");
  // Phases π − ε and −π + ε differ by 2ε, not by almost 2π.
  assert.ok(Math.abs(Number((await statistics(opened))[0][1]) - 2 * Math.atan(0.1)) < 1e-5);
  await select(opened, "Part").selectOption("imaginary");
  await page.waitForFunction(() => document.querySelector(".compare-numbers tbody tr:nth-child(3) td")?.textContent === "0.2");
});

browserTest("two files: attributes, numbers, tables and lines that differ", { files: [a, b] }, {}, async (opened) => {
  const { page } = opened;
  await opened.open("compare-texts");
  const rows = async (caption: string) => page.locator("main table", { has: page.locator("caption", { hasText: caption }) }).locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  await page.locator("table.lines").waitFor();
  assert.deepEqual(await rows("Attributes"), [["file", "seed", "1", "2"], ["file", "only_a", "true", "(none)"]]);
  assert.deepEqual(await rows("Single numbers"), [["strehl", "0.5", "0.25", "0.25", "1"]]);
  assert.deepEqual(await rows("budget"), [["2", "error [nm]", "20", "21"]]);
  const lines = () => page.locator("table.lines tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent ?? "").join("|")));
  assert.deepEqual(await lines(), ["1|1||[telescope]", "2||A|diameter = 8", "|2|B|diameter = 39", "3|3||name = \"x\"", "4|4||", "5|5||[sensor]", "6|6||count = 4", "|7|B|extra = 2", "7|8||last = 1"]);
  await opened.shot("compare-texts");
});

for (const [name, options] of Object.entries({ dark: { colorScheme: "dark" as const }, phone: { viewport: { width: 360, height: 740 } } })) {
  browserTest(`two files fit the page: ${name}`, { files: [a, b] }, options, async (opened) => {
    await opened.page.locator(".compare .iv-plot").nth(1).waitFor();
    const [wide, view] = await opened.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= view, `${wide} px in a window of ${view} px`);
    await opened.shot(`compare-side-${name}`);
    await select(opened, "Array").selectOption("profile");
    await opened.page.locator(".compare .u-over").waitFor();
    await opened.shot(`compare-curves-${name}`);
  });
}
