import assert from "node:assert/strict";
import "./fixtures/curves.global";
import { browserTest, fixture, STEPS, touch } from "./harness";

const page = () => fixture("curves", ["views/curve.css", "views/bars.css"]);

browserTest("curves move a cursor by keyboard and read it out", page, {}, async ({ page }) => {
  const plot = page.locator(".curve-plot");
  await plot.locator("canvas").waitFor();
  await plot.focus();
  for (const key of ["Home", "ArrowRight", "ArrowRight"]) {
    await page.keyboard.press(key);
  }
  const spoken = await page.locator("[aria-live]").textContent();
  assert.match(spoken ?? "", /^height 20 m; decay 0\.93551 rad2; line 0\.48 rad2; measured 0\.7 ± 0\.1 rad2 at 105; steps 0\.3 rad2$/);
  assert.equal(await page.evaluate(() => window.shown.cursor.at(-1)), 20);
  await page.keyboard.press("End");
  assert.equal(await page.evaluate(() => window.shown.cursor.at(-1)), 1000);
  await page.keyboard.press("Escape");
  assert.equal(await page.evaluate(() => window.shown.cursor.at(-1)), null);
});

browserTest("dragging zooms, undo and a double click return", page, {}, async (opened) => {
  const over = opened.page.locator(".u-over");
  await over.waitFor();
  await opened.drag(over, [0.25, 0.5], [0.5, 0.52]);
  const zoomed = await opened.page.evaluate(() => window.shown.store.get("curve.zoom_x") as number[]);
  assert.ok(Math.abs(zoomed[0] - 220) < 20 && Math.abs(zoomed[1] - 500) < 20, String(zoomed));
  assert.equal(await opened.page.evaluate(() => window.shown.store.get("curve.zoom_y")), undefined);
  const rows = await opened.page.evaluate(() => window.shown.curve.table().rows);
  assert.ok(rows.every(([x]) => (x as number) >= zoomed[0] && (x as number) <= zoomed[1]) && rows.length > 20);
  await opened.page.evaluate(() => window.shown.store.undo());
  assert.equal(await opened.page.evaluate(() => window.shown.store.get("curve.zoom_x")), undefined);
  await opened.drag(over, [0.2, 0.2], [0.7, 0.8]);
  assert.equal((await opened.page.evaluate(() => window.shown.store.get("curve.zoom_y") as number[])).length, 2);
  await over.dblclick();
  assert.equal(await opened.page.evaluate(() => window.shown.store.fragment()), "");
});

browserTest("two fingers zoom about their middle, one moves the cursor and scrolls the page", page, { hasTouch: true, viewport: { width: 500, height: 900 } }, async ({ page }) => {
  const over = page.locator(".u-over");
  await over.waitFor();
  await page.evaluate(() => document.body.style.setProperty("min-height", "3000px"));
  const box = await over.boundingBox();
  assert.ok(box);
  const { x, width } = box;
  const y = box.y + box.height / 2;
  // About a quarter of the axis from 0 m to 1000 m, the distance of the fingers doubles.
  await touch(page, ...STEPS.map((t) => [-1, 1].map((side) => [x + width * (0.25 + side * (0.1 + 0.1 * t)), y] as const)));
  const limits = (await page.evaluate(() => window.shown.store.get("curve.zoom_x") ?? [])) as number[];
  assert.ok(Math.abs(limits[1] - limits[0] - 530) < 10 && Math.abs(limits[0] + (limits[1] - limits[0]) / 4 - 235) < 5, limits.join());
  assert.ok(await page.evaluate(() => window.shown.store.canUndo));
  await page.evaluate(() => window.shown.store.undo());
  assert.equal(await page.evaluate(() => window.shown.store.fragment()), "", "one undo returns to the whole range");
  await touch(page, ...STEPS.map((t) => [[x + width * (0.3 + 0.2 * t), y] as const]));
  assert.equal(await page.evaluate(() => window.shown.cursor.at(-1)), 500);
  assert.equal(await page.evaluate(() => scrollY), 0);
  await touch(page, ...STEPS.map((t) => [[x + width / 2, y - 120 * t] as const]));
  await page.waitForFunction(() => scrollY > 60);
  assert.equal(await page.evaluate(() => window.shown.store.fragment()), "");
});

browserTest("logarithmic axes leave out what they cannot show and say how much", page, {}, async ({ page }) => {
  await page.locator(".u-over").waitFor();
  assert.equal(await page.locator(".curve-note").textContent(), "2 points are not drawn: not a finite number.");
  await page.getByRole("button", { name: "Log y" }).click();
  // The line falls to 0 at 500 m and below it up to 1000 m: 51 samples.
  assert.equal(await page.locator(".curve-note").textContent(), "51 points are not drawn: a logarithmic axis shows positive numbers only. 2 points are not drawn: not a finite number.");
  await page.getByRole("button", { name: "Log x" }).click();
  // At 0 m there are the three sampled series.
  assert.match((await page.locator(".curve-note").textContent()) ?? "", /^54 points are not drawn/);
  assert.equal(await page.getByRole("button", { name: "Log x" }).getAttribute("aria-pressed"), "true");
});

browserTest("the legend hides series by keyboard, and exports leave them out", page, {}, async (opened) => {
  const { page } = opened;
  const button = page.getByRole("button", { name: "line", exact: true });
  await opened.press(button, "Enter");
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  assert.deepEqual(await page.evaluate(() => window.shown.store.get("curve.hidden")), [1]);
  const svg = (await opened.download(page.getByRole("button", { name: "SVG" }).first())).bytes.toString("utf8");
  assert.ok(svg.includes(">decay<") && !svg.includes(">line<") && svg.includes("height [m]") && svg.includes("ground layer"));
  assert.equal(svg.match(/stroke-dasharray="7 4"/), null);
  const csv = await opened.csv(page.getByRole("button", { name: "CSV" }).first());
  assert.deepEqual(csv[0], ["height [m]", "decay [rad2]", "line [rad2]", "measured [rad2]", "standard error of measured [rad2]", "steps [rad2]"]);
  assert.deepEqual(csv.find(([x]) => x === "105"), ["105", "", "", "0.7", "0.1", ""]);
  assert.equal(csv.find(([x]) => x === "200")?.[1], "NaN");
  assert.equal(csv.length, 1 + 101 + 3);
  const png = await opened.download(page.getByRole("button", { name: "PNG" }).first());
  assert.deepEqual([...png.bytes.subarray(1, 4)], [..."PNG"].map((c) => c.charCodeAt(0)));
});

browserTest("bars print signed numbers with errors and can be read by keyboard", page, {}, async (opened) => {
  const { page } = opened;
  const bars = page.locator("[data-bar]");
  await bars.first().waitFor();
  assert.deepEqual(await bars.evaluateAll((all) => all.map((one) => one.getAttribute("aria-label"))), [
    "target 1, tomography: 120.5 ± 2.5 nm", "target 1, cross term: −30 nm", "target 1, unknown: NaN nm",
    "target 2, tomography: 90 nm", "target 2, cross term: 10 nm", "target 2, unknown: ∞ nm",
  ]);
  await opened.press(bars.first(), "ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("aria-label")), "target 1, cross term: −30 nm");
  await page.keyboard.press("End");
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("aria-label")), "target 2, unknown: ∞ nm");
  await page.getByRole("button", { name: "Largest first" }).click();
  assert.match((await bars.first().getAttribute("aria-label")) ?? "", /120\.5/);
  // Lengths of the bars are proportional to the numbers.
  const widths = await bars.evaluateAll((all) => all.map((one) => Number(one.querySelectorAll("rect")[1].getAttribute("width"))));
  assert.ok(Math.abs(widths[0] / widths[1] - 120.5 / 30) < 0.05, String(widths));
  const csv = await opened.csv(page.getByRole("button", { name: "CSV" }).nth(1));
  assert.deepEqual(csv[0], ["group", "bar", "wavefront error [nm]", "standard error of wavefront error [nm]"]);
  assert.deepEqual(csv[2], ["target 1", "cross term", "-30", ""]);
});

for (const [name, options] of Object.entries({ light: {}, dark: { colorScheme: "dark" as const }, phone: { viewport: { width: 360, height: 700 } } })) {
  browserTest(`curves and bars fit the page: ${name}`, page, options, async (opened) => {
    await opened.page.locator(".u-over").waitFor();
    await opened.page.locator("[data-bar]").first().waitFor();
    const [wide, view] = await opened.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= view, `${wide} px in a window of ${view} px`);
    await opened.shot(`curves-${name}`);
  });
}
