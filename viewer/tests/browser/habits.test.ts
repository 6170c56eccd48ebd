/** Habits of the whole page: keyboard, undo, links, frames of notebooks, print, phone, and arrays that are at the edge of what there is. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { ElementHandle, Locator } from "playwright-core";
import { browserTest, makePage, uniform, type FileSpec, type TestPage } from "./harness";

const wave = (count: number, a: number) => Float64Array.from({ length: count }, (_, k) => Math.sin(a * k));
const scan = [uniform("x", "Å", 0, 0.5, true), uniform("y", "Å", 0, 0.5, true)];

/** One file with a stack, curves, an image of a scan and bars. */
const ORDINARY: FileSpec = {
  name: "ordinary.npz",
  variables: [
    { name: "stack", shape: [6, 24, 32], values: wave(6 * 24 * 32, 0.11), unit: "nm", dimensions: [uniform("frame", "", 0, 1, true), uniform("y", "m", 0, 1), uniform("x", "m", 0, 1)] },
    { name: "curve", shape: [60], values: Float64Array.from({ length: 60 }, (_, k) => 10 ** (-k / 8)), unit: "rad2", dimensions: [uniform("height", "m", 0, 100)] },
    { name: "annular", shape: [8, 9, 30], values: wave(8 * 9 * 30, 0.3).map((one) => 1 + one), dimensions: [...scan, uniform("detector_angle", "rad", 0.0005, 0.001)] },
    { name: "budget", columns: [
      { name: "target", unit: "", values: [0, 0, 0] },
      { name: "term", unit: "", values: ["tomography", "an unusually long name of a term of the budget", "fitting"] },
      { name: "rms", unit: "nm", values: [100, 30, 60] },
    ] },
  ],
};

async function panels({ page }: TestPage): Promise<string[]> {
  return page.locator("select.panels option").evaluateAll((all) => all.map((one) => (one as HTMLOptionElement).value));
}

/** Opens a panel by its button, and waits until it is drawn. */
async function open(opened: TestPage, panel: string): Promise<void> {
  const { page } = opened;
  await page.locator("select.panels").evaluate((list, value) => {
    (list as HTMLSelectElement).value = value;
    list.dispatchEvent(new Event("change"));
  }, panel);
  await page.locator("main > :not(h2)").first().waitFor();
  await opened.settle(120);
}

const isFocused = (locator: Locator) => locator.evaluate((one) => one === document.activeElement);

browserTest("keys step through panels and move the focus to the heading, but not from fields, lists or dialogs", { files: [ORDINARY] }, {}, async (opened) => {
  const { page } = opened;
  await page.locator("main h2").waitFor();
  const title = () => page.locator("main > h2").textContent();
  const first = await title();
  await page.keyboard.press("]");
  assert.notEqual(await title(), first);
  assert.ok(await isFocused(page.locator("main > h2")));
  await page.keyboard.press("[");
  assert.equal(await title(), first);
  const theme = () => page.locator("html").getAttribute("data-theme");
  const before = await theme();
  // A dialog keeps its keys.
  await page.keyboard.press("?");
  assert.ok(await page.locator("dialog").isVisible());
  for (const key of ["]", "t", "?"]) {
    await page.keyboard.press(key);
  }
  assert.deepEqual([await title(), await theme()], [first, before]);
  await page.getByRole("button", { name: "Close" }).click();
  assert.ok(!(await page.locator("dialog").isVisible()));
  // Fields and lists too.
  await open(opened, "1-array-0");
  const shown = await title();
  for (const place of [page.locator("main input[type=number]").first(), page.locator("main select").first()]) {
    await opened.press(place, "]", "t");
  }
  assert.deepEqual([await title(), await theme()], [shown, before]);
  await opened.press(page.locator("main input[type=range]").first(), "t");
  assert.notEqual(await theme(), before);
  // Undoing the change of a panel moves the focus from what is gone.
  await page.keyboard.press("Control+z");
  await page.keyboard.press("Control+z");
  assert.equal(await title(), first);
  assert.ok(await isFocused(page.locator("main > h2")));
});

browserTest("every control of every panel keeps the focus when it is used", { files: [ORDINARY] }, {}, async (opened) => {
  const { page } = opened;
  let used = 0;
  for (const panel of await panels(opened)) {
    await open(opened, panel);
    const all = (await page.locator("main :is(button, select, input, [tabindex='0'])").elementHandles()) as ElementHandle<HTMLElement>[];
    for (const one of all) {
      const key = await one.evaluate((element) => {
        const usable = element.isConnected && element.getClientRects().length > 0 && !(element as HTMLButtonElement).disabled && !element.classList.contains("export");
        element.focus();
        const kind = element.getAttribute("role") ?? (element as HTMLInputElement).type ?? "";
        return !usable ? "" : document.activeElement !== element ? "?" : /slider|range|application/.test(kind) ? "ArrowRight" : element.tagName === "SELECT" ? "ArrowDown" : element.tagName === "BUTTON" ? "Enter" : kind === "checkbox" ? " " : "";
      });
      assert.notEqual(key, "?", `${panel}: ${await one.evaluate((element) => element.outerHTML.slice(0, 200))} takes no focus`);
      if (key !== "") {
        await page.keyboard.press(key);
        await page.waitForTimeout(30);
        const after = await one.evaluate((element) => element === document.activeElement || (element.isConnected && element.getClientRects().length === 0));
        assert.ok(after, `${panel}: ${await one.evaluate((element) => element.outerHTML.slice(0, 200))} lost the focus`);
        used++;
      }
    }
  }
  assert.ok(used > 40, `${used} controls`);
});

browserTest("one drag is one step, undo shows what was shown, and a link restores it", { files: [ORDINARY] }, {}, async (opened) => {
  const { page } = opened;
  await open(opened, "1-array-0");
  const csv = () => opened.csv(page.getByRole("button", { name: "CSV", exact: true }));
  const whole = await csv();
  const slider = page.locator("main input[type=range]:visible").first();
  const undo = page.getByRole("button", { name: "Undo" });
  await opened.press(slider, "ArrowRight", "ArrowRight");
  const third = await csv();
  assert.notDeepEqual(third, whole);
  await page.locator(".iv-plot").focus();
  await page.keyboard.press("+");
  await page.locator("main select").filter({ hasText: "√" }).selectOption("sqrt");
  await opened.drag(page.locator(".iv-histogram"), [0.99, 0.5], [0.6, 0.5]);
  await opened.settle();
  const zoomed = await csv();
  assert.ok(zoomed.length < third.length);
  const state = await opened.state();
  const link = await page.evaluate(() => location.href);
  assert.ok(!(await undo.isDisabled()));
  // The same link in another page.
  const other = await page.context().newPage();
  await other.goto(link);
  await other.locator(".iv-plot canvas").waitFor();
  await other.waitForTimeout(200);
  const [saved] = await Promise.all([other.waitForEvent("download"), other.getByRole("button", { name: "CSV", exact: true }).click()]);
  const [heading, ...rows] = readFileSync(await saved.path(), "utf8").trimEnd().split("\r\n");
  assert.equal(rows.length, zoomed.length - 1);
  assert.equal(rows.at(-1), zoomed.at(-1)?.join(","));
  assert.ok(heading.includes("x [m]") && heading.includes("y [m]"), heading);
  assert.equal(await other.locator("main select").filter({ hasText: "√" }).inputValue(), "sqrt");
  await other.close();
  // A drag, a scale, a zoom, two steps of a slider, a panel.
  await undo.click();
  await undo.click();
  await undo.click();
  assert.deepEqual(await csv(), third);
  await undo.click();
  await undo.click();
  assert.deepEqual(await csv(), whole);
  for (let k = 0; k < 5; k++) {
    await page.keyboard.press("Control+Shift+z");
  }
  assert.deepEqual(await opened.state(), state);
  assert.ok((await page.evaluate(() => history.length)) < 4, "the history of the browser is left alone");
});

browserTest("the frame of a notebook works: state, help, downloads", {
  html: `<!doctype html><html lang="en"><title>frame</title><iframe title="view" sandbox="allow-scripts allow-downloads" style="width:1000px;height:700px" srcdoc="${makePage([ORDINARY]).replaceAll("&", "&amp;").replaceAll('"', "&quot;")}"></iframe>`,
}, {}, async (opened) => {
  const { page } = opened;
  const frame = page.frameLocator("iframe");
  await frame.locator("main h3").first().waitFor();
  const first = await frame.locator("main > h2").textContent();
  await frame.locator("main > h2").click();
  await page.keyboard.press("]");
  assert.notEqual(await frame.locator("main > h2").textContent(), first);
  await page.waitForTimeout(250);
  await frame.getByRole("button", { name: "Undo" }).click();
  assert.equal(await frame.locator("main > h2").textContent(), first);
  assert.equal(await frame.getByRole("button", { name: "Print" }).count(), 0);
  await frame.getByRole("button", { name: "Keys" }).click();
  await frame.getByRole("button", { name: "Close" }).click();
  assert.ok(!(await frame.locator("dialog").isVisible()));
  for (const kind of ["CSV", "SVG", "PNG"]) {
    const { bytes } = await opened.download(frame.getByRole("button", { name: kind, exact: true }).first());
    assert.ok(bytes.length > 100, kind);
  }
});

browserTest("pages are printed light, without controls, as wide as paper", { files: [ORDINARY] }, { colorScheme: "dark" }, async (opened) => {
  const { page } = opened;
  for (const panel of ["1-array-0", "1-array-1"]) {
    await open(opened, panel);
    assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
    await page.emulateMedia({ media: "print" });
    const printed = await page.evaluate(async () => {
      dispatchEvent(new Event("beforeprint"));
      // Microtasks only: what a browser runs before it takes the picture.
      for (let k = 0; k < 20; k++) {
        await null;
      }
      const box = (document.querySelector("main .card") as Element).getBoundingClientRect();
      const shown = (name: string) => [...document.querySelectorAll(name)].some((one) => one.getClientRects().length > 0);
      const wide = [...document.querySelectorAll("main canvas, main svg")].filter((one) => one.getBoundingClientRect().right > box.right + 1).length;
      return { theme: document.documentElement.dataset["theme"], width: box.right, nav: shown("nav, .tools, .iv-tools, .iv-contrast, input[type=range], button:not(.curve-series)"), wide };
    });
    assert.equal(printed.theme, "light");
    assert.ok(printed.width <= 690, `${printed.width} pixels`);
    assert.equal(printed.nav, false, "controls are printed");
    assert.equal(printed.wide, 0, "pictures are cut");
    await page.emulateMedia({ media: "screen" });
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
    assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
  }
  assert.ok((await page.pdf({ format: "A4" })).length > 5000);
});

browserTest("a telephone: nothing is wider than the screen, targets are large, names of bars are whole", { files: [ORDINARY] }, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true }, async (opened) => {
  const { page } = opened;
  for (const panel of await panels(opened)) {
    await open(opened, panel);
    const found = await page.evaluate(() => ({
      over: document.documentElement.scrollWidth - innerWidth,
      small: [...document.querySelectorAll("button, select, summary, input[type=number]")].flatMap((one) => {
        const { width, height } = one.getBoundingClientRect();
        return width > 0 && (height < 23.9 || width < 23.9) ? [`${one.textContent} ${width} × ${height}`] : [];
      }),
    }));
    assert.deepEqual(found, { over: 0, small: [] }, panel);
  }
  await open(opened, (await panels(opened)).find((one) => one.includes("budget")) as string);
  const texts = await page.locator(".bars text").evaluateAll((all) => all.map((one) => {
    const [own, box] = [one, one.closest("svg") as Element].map((element) => element.getBoundingClientRect());
    return { text: one.textContent, inside: own.left >= box.left && own.right <= box.right + 0.5 };
  }));
  assert.ok(texts.some(({ text }) => text === "tomography"));
  assert.deepEqual(texts.filter(({ inside }) => !inside), []);
});

const EDGES: readonly (readonly [string, readonly number[], (k: number) => number])[] = [
  ["not a number", [4, 5], () => NaN],
  ["infinite", [4, 5], (k) => (k % 2 === 0 ? Infinity : -Infinity)],
  ["constant", [4, 5], () => 3.25],
  ["zero", [4, 5], () => 0],
  ["single", [1, 1], () => 7],
  ["row", [1, 9], (k) => k],
  ["column", [9, 1], (k) => k],
  ["empty", [0, 5], () => 0],
  ["empty curve", [0], () => 0],
  ["seven", [2, 1, 2, 2, 1, 3, 4], (k) => k],
  ["huge", [4, 5], (k) => (k % 2 === 0 ? 1 : -1) * 1e300 * (k + 1)],
  ["tiny", [4, 5], (k) => 5e-324 * k],
  ["wide", [3, 3], (k) => [1e-300, 1e300, 1, -1, 0, NaN, 1e-5, 1e5, 2][k]],
  ["huge curve", [5], (k) => (k - 2) * 8e307],
  ["tiny curve", [5], (k) => k * 1e-320],
  ["lost curve", [3], () => NaN],
  [`${"very ".repeat(40)}long`, [4, 5], (k) => k],
];

browserTest("arrays at the edge are shown on every scale, and exported", {
  files: [{ name: `${"n".repeat(200)}.npz`, variables: EDGES.map(([name, shape, value]) => ({ name, shape, unit: "nm", values: Float64Array.from({ length: shape.reduce((all, n) => all * n, 1) }, (_, k) => value(k)) })) }],
}, {}, async (opened) => {
  const { page } = opened;
  const all = await panels(opened);
  // Single numbers and empty arrays share a panel.
  assert.equal(all.length, EDGES.length - 2);
  for (const panel of all) {
    await open(opened, panel);
    const name = `${panel} ${await page.locator("main h2").textContent()}`;
    for (const scale of (await page.locator(".iv-tools").count()) > 0 ? ["log", "sqrt", "linear"] : []) {
      await page.locator(".iv-tools select").first().selectOption(scale);
      await page.waitForTimeout(30);
    }
    for (const log of await page.locator(".curve-button:has-text('Log')").all()) {
      await log.click();
      await page.waitForTimeout(30);
    }
    const bad = await page.evaluate(() => [...document.querySelectorAll("main svg *")].filter((one) => [...one.attributes].some(({ name: key, value }) => /^(d|x|y|x1|x2|y1|y2|cx|cy|width|height|transform|points)$/.test(key) && /NaN|Infinity|undefined/.test(value))).map((one) => one.outerHTML.slice(0, 150)));
    assert.deepEqual(bad, [], name);
    if ((await page.locator("main .card button.export").count()) > 0) {
      const { bytes } = await opened.download(page.getByRole("button", { name: "SVG", exact: true }).first());
      const errors = await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelectorAll("parsererror").length, bytes.toString("utf8"));
      assert.equal(errors, 0, name);
      assert.ok(!/="[^"]*(NaN|Infinity)[^"]*"/.test(bytes.toString("utf8")), name);
    }
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${name} is wider than the page`);
  }
});

browserTest("a hundred changes of the panel leave nothing behind", { files: [ORDINARY] }, {
  before: () => {
    // Counts listeners of the window and of media queries, which outlive what added them.
    const counts = { listeners: 0 };
    (window as unknown as { counts: typeof counts }).counts = counts;
    for (const target of [window, MediaQueryList.prototype]) {
      const [add, remove] = [target.addEventListener, target.removeEventListener];
      target.addEventListener = function (this: EventTarget, ...all: Parameters<typeof add>) {
        counts.listeners++;
        return add.apply(this, all);
      } as typeof add;
      target.removeEventListener = function (this: EventTarget, ...all: Parameters<typeof remove>) {
        counts.listeners--;
        return remove.apply(this, all);
      } as typeof remove;
    }
  },
}, async (opened) => {
  const { page } = opened;
  const all = await panels(opened);
  const session = await page.context().newCDPSession(page);
  const cycle = async (times: number) => {
    await page.evaluate(async ({ ids, count }) => {
      const list = document.querySelector("select.panels") as HTMLSelectElement;
      for (let k = 0; k < count; k++) {
        list.value = ids[k % ids.length];
        list.dispatchEvent(new Event("change"));
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
    }, { ids: all, count: times });
    await open(opened, all[0]);
    await session.send("HeapProfiler.collectGarbage");
    const { nodes, jsEventListeners } = await session.send("Memory.getDOMCounters");
    return { nodes, jsEventListeners, listeners: await page.evaluate(() => (window as unknown as { counts: { listeners: number } }).counts.listeners) };
  };
  const before = await cycle(all.length);
  const after = await cycle(100);
  assert.equal(after.listeners, before.listeners);
  assert.ok(after.nodes < before.nodes * 1.5 + 300, `${before.nodes} nodes before, ${after.nodes} after`);
  assert.ok(after.jsEventListeners < before.jsEventListeners * 1.5 + 50, `${before.jsEventListeners} listeners before, ${after.jsEventListeners} after`);
});
