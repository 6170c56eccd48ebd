import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { browserTest, type TestPage } from "./harness";
import { results } from "./fixtures/live";

const root = fileURLToPath(new URL("../../", import.meta.url));

interface Needs {
  readonly results: readonly string[];
  readonly image: boolean;
}

const list = JSON.parse(readFileSync(join(root, "src/live/figures.json"), "utf8")) as Readonly<Record<string, Needs>>;
const names = Object.keys(list);

async function bundle(entry: string): Promise<string> {
  const made = await build({ absWorkingDir: root, entryPoints: [entry], bundle: true, charset: "utf8", format: "iife", write: false, logLevel: "warning" });
  return made.outputFiles[0].text;
}

/** A still picture of one colour. */
const STILL = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='600' height='300'%3E%3Crect width='600' height='300' fill='%23ddd'/%3E%3C/svg%3E";

/** A page as the book's: its root has a font of 10 px, and arrow keys turn the pages. */
async function bookPage(shown: readonly string[], { theme = "light", script = true } = {}): Promise<{ html: string }> {
  const theirs = readFileSync(join(root, "../book/theme/lenslet.css"), "utf8").replace(/@font-face[^}]*\}/g, "");
  const style = `html { font-size: 62.5%; } body { margin: 0; font-size: 1.6rem; background: var(--bg); color: var(--fg); } main { padding: 0 15px; }\n${theirs}\n${await bundle("src/live/live.css")}`;
  const figure = (name: string) => {
    const data = list[name].results.map((file) => `<script type="application/json" class="live-results" data-file="${file}">${JSON.stringify(results[file]).replaceAll("<", "\\u003c")}</script>`);
    return `<figure id="figure-${name}" class="live" data-live="${name}"${list[name].image ? " data-image" : ""}><a href="${STILL}"><img src="${STILL}" alt="still ${name}"></a><figcaption><p>Figure of ${name}.</p></figcaption>${data.join("")}</figure>`;
  };
  const turn = "document.addEventListener('keydown', (event) => { if (/^Arrow|^s$/.test(event.key)) document.title = 'turned'; });";
  const live = script ? `<script>${await bundle("src/live/image.ts")}</script><script>${await bundle("src/live/main.ts")}</script>` : "";
  return {
    html: `<!doctype html><html lang="en" class="${theme} js"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Chapter</title><style>${style.replaceAll("</style", "")}</style></head>` +
      `<body><div class="content"><main>${shown.map(figure).join("")}</main></div><script>${turn}</script>${live.replaceAll("</script", "<\\/script").replaceAll("<\\/script>", "</script>")}</body></html>`,
  };
}

const stageOf = ({ page }: TestPage, name: string) => page.locator(`#figure-${name} .live-stage`);

/** The sentence with the key numbers, when it has become another one. */
async function keyAfter(opened: TestPage, name: string, before: string): Promise<string> {
  const key = stageOf(opened, name).locator(".live-key");
  await opened.page.waitForFunction(([id, old]) => document.querySelector(`#figure-${id} .live-key`)?.textContent !== old, [name, before]);
  return (await key.textContent()) ?? "";
}

test("every figure of the list is known to the script, and no other", async () => {
  const made = await build({ absWorkingDir: root, stdin: { contents: 'import { figures } from "./src/live/figures"; export default Object.keys(figures);', resolveDir: root, loader: "ts" }, bundle: true, format: "esm", platform: "node", write: false });
  const known = (await import(`data:text/javascript;base64,${Buffer.from(made.outputFiles[0].contents).toString("base64")}`)) as { default: string[] };
  assert.deepEqual([...known.default].sort(), [...names].sort());
});

for (const name of names) {
  browserTest(`the live figure ${name} takes the place of its picture, answers every control and can be sent away`, () => bookPage([name]), {}, async (opened) => {
    const { page } = opened;
    const stage = stageOf(opened, name);
    const picture = page.locator(`#figure-${name} > a`);
    const keeps = name === "slope-covariance";
    await stage.locator(".live-key").filter({ hasText: /\d/ }).waitFor();
    assert.equal(await picture.isVisible(), keeps);
    const initial = (await stage.locator(".live-key").textContent()) ?? "";
    assert.doesNotMatch(initial, /NaN|undefined|Infinity/);
    await opened.shot(`live-${name}`);
    // Each slider names its number and unit, moves by keyboard, and changes the sentence or the numbers shown.
    const sliders = await stage.locator("input[type=range]").all();
    for (const slider of sliders) {
      assert.match((await slider.getAttribute("aria-valuetext")) ?? "", /\d/);
      const before = await slider.inputValue();
      await opened.press(slider, before === (await slider.getAttribute("max")) ? "ArrowLeft" : "ArrowRight");
      assert.notEqual(await slider.inputValue(), before);
    }
    for (const select of await stage.locator(".controls select").all()) {
      const last = await select.locator("option").last().getAttribute("value");
      await select.selectOption(last);
    }
    for (const box of await stage.locator(".controls input[type=checkbox]").all()) {
      await opened.press(box, " ");
    }
    const changed = await keyAfter(opened, name, initial);
    assert.doesNotMatch(changed, /NaN|undefined/);
    assert.equal(await page.title(), "Chapter", "keys of controls turn no pages");
    // The numbers as a table, and as CSV.
    await stage.locator("details.numbers summary").last().click();
    await stage.locator(".live-numbers table").first().waitFor();
    const rows = await opened.csv(stage.getByRole("button", { name: "Save as CSV" }).first());
    assert.ok(rows.length > 2 && rows.slice(1).every((row) => row.length === rows[0].length), "a table of numbers");
    // Reset, and the still figure.
    await page.locator(`#figure-${name} .live-bar button`).first().click();
    assert.equal(await keyAfter(opened, name, changed), initial);
    await page.locator(`#figure-${name} .live-swap`).click();
    assert.equal(await picture.isVisible(), true);
    assert.equal(await stage.isVisible(), false);
    await page.locator(`#figure-${name} .live-swap`).click();
    assert.equal(await stage.isVisible(), true);
    await page.emulateMedia({ media: "print" });
    assert.deepEqual([await picture.isVisible(), await stage.isVisible()], [true, false], "paper shows the still figure");
  });
}

browserTest("without its script a page shows the still figures", () => bookPage(names, { script: false }), {}, async ({ page }) => {
  assert.equal(await page.locator("figure.live img:visible").count(), names.length);
  assert.equal(await page.locator(".live-stage").count(), 0);
});

browserTest("live figures fit a phone and a dark theme", () => bookPage(names, { theme: "navy" }), { viewport: { width: 360, height: 740 } }, async (opened) => {
  const { page } = opened;
  for (const name of names) {
    const figure = page.locator(`#figure-${name}`);
    await figure.scrollIntoViewIfNeeded();
    await stageOf(opened, name).locator(".live-key").filter({ hasText: /\d/ }).waitFor();
  }
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360, "nothing is wider than the page");
  const ink = await page.evaluate(() => getComputedStyle(document.querySelector(".live-stage") as Element).color);
  assert.equal(ink, "rgb(213, 211, 205)");
  await opened.shot("live-phone-dark");
});

browserTest("a figure without its results stays as it is", async () => ({ html: (await bookPage(["prism-factor", "phase-structure"])).html.replace(/(class="live-results"[^>]*>)[^<]*/, "$1null") }), { expectedErrors: /live figure prism-factor/ }, async (opened) => {
  await stageOf(opened, "phase-structure").locator(".live-key").waitFor();
  assert.equal(await opened.page.locator("#figure-prism-factor > a").isVisible(), true);
  assert.equal(await opened.page.locator("#figure-prism-factor .live-stage").count(), 0);
  assert.equal(opened.errors.length, 1);
});
