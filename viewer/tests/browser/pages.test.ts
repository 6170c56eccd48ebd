import assert from "node:assert/strict";
import { browserTest, makePage, uniform, type FileSpec, type PageContent, type TestPage } from "./harness";

/** Texts that would run, or become elements, if one of them were taken for markup. */
const HOSTILE = [
  "<script>window.ran = 1</script>",
  "<img src=x onerror=\"window.ran = 1\">",
  "</script><script>window.ran = 1</script>",
  "--><svg onload=window.ran=1>",
  "javascript:window.ran=1",
  "</title></style><iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
  "<a href=\"https://example.org/\">link</a>",
  "\" autofocus onfocus=\"window.ran=1",
  "{{constructor.constructor('window.ran=1')()}}",
  "<!--<script>",
];

function hostileFile(k: number): FileSpec {
  let n = k;
  const text = () => HOSTILE[n++ % HOSTILE.length];
  const dimension = (count: number) => ({
    name: text(), unit: text(), navigation: false,
    positions: { kind: "labels" as const, labels: Array.from({ length: count }, text) },
    second: { name: text(), unit: text(), factor: 2 },
  });
  const attributes = () => ({ [text()]: text(), [text()]: text(), __proto__x: text() });
  const values = (count: number) => Float64Array.from({ length: count }, (_, m) => Math.sin(m + k));
  return {
    name: text(),
    attributes: attributes(),
    variables: [
      ...HOSTILE.map((name) => ({ name, unit: text(), longName: text(), attributes: attributes(), shape: [6, 5], values: values(30), dimensions: [dimension(6), dimension(5)], reduced: text(), derivedFrom: text() })),
      { name: `curve ${HOSTILE[k]}`, unit: text(), longName: text(), shape: [7], values: values(7), dimensions: [dimension(7)] },
      { name: `number ${HOSTILE[k]}`, unit: text(), shape: [], values: [k], dimensions: [] },
      { name: `stack ${HOSTILE[k]}`, unit: text(), shape: [3, 4, 5], values: values(60), dimensions: [dimension(3), dimension(4), dimension(5)], type: "f64" as const },
      { name: `text ${HOSTILE[k]}`, longName: text(), text: HOSTILE.slice(k).join("\n") },
      { name: `table ${HOSTILE[k]}`, longName: text(), columns: HOSTILE.map((name) => ({ name, unit: text(), values: [text(), 1, null, text()] })) },
      // Names that the panels of results know.
      ...["psf", "potential", "slope_slope_0", "error_map", "four_d", "system", "targets"].map((name) => ({ name, unit: text(), longName: text(), attributes: attributes(), text: text() })),
    ],
  };
}

/** Opens every panel of the page, one after another. */
async function everyPanel(opened: TestPage, visit: () => Promise<void>): Promise<number> {
  const { page } = opened;
  const ids = await page.locator("select.panels option").evaluateAll((all) => all.map((one) => (one as HTMLOptionElement).value));
  for (const id of ids) {
    await opened.open(id);
    await page.locator("main > :not(h2)").first().waitFor();
    await visit();
  }
  return ids.length;
}

/** Fails where text of a file became an element, a link or an attribute that runs. */
async function assertHarmless({ page }: TestPage): Promise<void> {
  const found = await page.evaluate(() => {
    const bad = [...document.querySelectorAll("#lenslet-viewer script, #lenslet-viewer iframe, #lenslet-viewer img, #lenslet-viewer object, #lenslet-viewer embed, #lenslet-viewer style, #lenslet-viewer base, #lenslet-viewer meta, #lenslet-viewer form:not([method=dialog])")].map((one) => one.outerHTML);
    for (const one of document.querySelectorAll("#lenslet-viewer *")) {
      for (const { name, value } of one.attributes) {
        if (name.startsWith("on") || name === "srcdoc" || (/^(xlink:)?(href|src|action|formaction)$/.test(name) && !/^(#|blob:)/.test(value))) {
          bad.push(`${one.tagName} ${name}="${value}"`);
        }
      }
    }
    return { bad, ran: "ran" in window, scripts: document.scripts.length };
  });
  assert.deepEqual(found.bad, []);
  assert.equal(found.ran, false, "text of a file ran");
}

for (const k of [0, 3, 7]) {
  browserTest(`texts of files never become markup, nor run (${k})`, { files: [hostileFile(k), hostileFile(k + 1)] }, {}, async (opened) => {
    const { page } = opened;
    await page.locator("select.panels").waitFor({ state: "attached" });
    await assertHarmless(opened);
    const scripts = await page.evaluate(() => document.scripts.length);
    const count = await everyPanel(opened, async () => {
      for (const summary of await page.locator("main details > summary").all()) {
        await summary.click();
      }
      await assertHarmless(opened);
    });
    assert.ok(count >= 20, `${count} panels`);
    assert.equal(await page.evaluate(() => document.scripts.length), scripts);
    assert.ok((await page.locator("body").textContent())?.includes(HOSTILE[0]), "the texts are shown as they are");
    await assertHarmless(opened);
  });
}

browserTest("exported pictures and tables hold texts as texts", { files: [{ name: "a.npz", variables: [{ name: HOSTILE[0], unit: HOSTILE[1], longName: HOSTILE[5], shape: [3], values: [1, 2, 4], dimensions: [{ name: "=cmd|' /C calc'!A0", unit: HOSTILE[2], positions: { kind: "index" }, navigation: false }] }] }] }, {}, async (opened) => {
  const { page } = opened;
  const svg = (await opened.download(page.getByRole("button", { name: "SVG" }))).bytes.toString("utf8");
  assert.ok(!svg.includes("<script") && !svg.includes("<img") && svg.includes("&lt;script&gt;"));
  const parsed = await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelectorAll("parsererror, script, img").length, svg);
  assert.equal(parsed, 0);
  const csv = (await opened.download(page.getByRole("button", { name: "CSV" }))).bytes.toString("utf8");
  assert.ok(csv.startsWith("'=cmd") || csv.startsWith("\"'=cmd"), csv);
  await opened.download(page.getByRole("button", { name: "PNG" }));
});

const ordinary: FileSpec = {
  name: "psf.npz",
  variables: [
    { name: "curve", shape: [50], values: Float64Array.from({ length: 50 }, (_, k) => k * k), dimensions: [uniform("height", "m", 0, 10)] },
    { name: "picture", shape: [3, 20, 30], values: Float64Array.from({ length: 1800 }, (_, k) => k), dimensions: [uniform("frame", "", 0, 1, true), uniform("y", "m", 0, 1), uniform("x", "m", 0, 1)] },
  ],
};

const RUBBISH = [
  "%", "%E0%A4%A", "{", "null", "[1,2]", "\"x\"", "12", encodeURIComponent("{\"__proto__\":{\"polluted\":1}}"),
  encodeURIComponent("{\"page.panel\":\"<script>window.ran=1</script>\",\"page.theme\":{\"a\":1}}"),
  encodeURIComponent("{\"page.panel\":\"constructor\",\"1-array-1.at-0\":1e9,\"1-array-1.axes\":[7,7],\"1-array-1.image.zoom\":[null,\"a\",-1],\"1-array-1.image.lo\":\"x\",\"1-array-1.image.map\":\"constructor\"}"),
  encodeURIComponent("{\"1-array-0.curve.zoom_x\":[2,1],\"1-array-0.curve.zoom_y\":[\"a\",null],\"1-array-0.curve.hidden\":[-1,0.5,\"x\"],\"1-array-0.curve.log_x\":\"<img>\"}"),
  encodeURIComponent("{\"1-array-1.at-0\":-1,\"1-array-1.part\":\"toString\",\"page.panel\":\"1-array-1\"}"),
  "<script>window.ran=1</script>", "x".repeat(5000),
];

browserTest("rubbish in the address changes nothing", { files: [ordinary] }, {}, async (opened) => {
  const { page } = opened;
  await page.locator(".u-over").first().waitFor();
  for (const fragment of RUBBISH) {
    for (const panel of ["1-array-0", "1-array-1"]) {
      // As a link opens it, and as an address that is typed into the open page.
      await page.goto("about:blank");
      await page.goto(`${opened.address}#${fragment}`);
      await opened.open(panel);
      await page.locator(panel === "1-array-0" ? ".u-over" : ".iv-plot").first().waitFor();
      await page.evaluate((text) => {
        location.hash = text;
      }, fragment);
      await page.locator("main .card").first().waitFor();
      assert.equal(await page.locator(".failure").count(), 0, fragment);
    }
    assert.deepEqual(await page.evaluate(() => [({} as Record<string, unknown>)["polluted"], "ran" in window]), [undefined, false]);
  }
});

browserTest("a link restores the panel and its state", { files: [ordinary] }, { fragment: encodeURIComponent(JSON.stringify({ "page.panel": "1-array-0", "1-array-0.curve.log_y": "log", "1-array-0.curve.zoom_x": [100, 200] })) }, async (opened) => {
  const { page } = opened;
  await page.locator(".u-over").waitFor();
  assert.equal(await page.getByRole("button", { name: "Log y" }).getAttribute("aria-pressed"), "true");
  const csv = await opened.csv(page.getByRole("button", { name: "CSV" }));
  assert.deepEqual([csv[1][0], csv.at(-1)?.[0]], ["100", "200"]);
  await page.getByRole("button", { name: "Whole range" }).click();
  assert.equal((await opened.csv(page.getByRole("button", { name: "CSV" }))).length, 51);
  await page.keyboard.press("Control+z");
  assert.equal((await opened.csv(page.getByRole("button", { name: "CSV" }))).length, 12);
});

/** A page whose parts are changed. */
const damaged = (change: (text: string, id: string) => string | undefined, of: readonly FileSpec[] = [ordinary]) => () => ({
  html: makePage(of, {
    change: ({ manifest, parts }: PageContent) => ({
      manifest,
      parts: new Map([...parts].flatMap(([id, text]) => {
        const changed = change(text, id);
        return changed === undefined ? [] : [[id, changed] as const];
      })),
    }),
  }),
});

for (const [name, change, sentence] of [
  ["has bytes that are not zlib", (text: string) => btoa("not zlib at all").padEnd(text.length % 4, "="), /damaged: a part of curve cannot be decoded/],
  ["is not base64", () => "&&&&", /damaged: a part of curve cannot be decoded/],
  ["is cut short", (text: string) => text.slice(0, 40), /damaged: a part of curve cannot be decoded/],
  ["is missing", () => undefined, /cut short: a part of curve is missing/],
  ["is that of another array", () => "eJwDAAAAAAE=", /damaged: a part of curve has 0 bytes in place of 400/],
] as const) {
  browserTest(`a page whose part ${name} shows a sentence`, damaged((text, id) => (id === "p0" ? change(text) : text)), {}, async (opened) => {
    const { page } = opened;
    assert.match((await page.locator(".failure").first().textContent()) ?? "", sentence);
    // The rest of the page works.
    await opened.open("1-array-1");
    await page.locator(".iv-plot").waitFor();
    assert.equal(await page.locator(".failure").count(), 0);
  });
}

for (const [name, change, sentence] of [
  ["without a list of contents", (html: string) => html.replace(/<script type="application\/json"[^]*?<\/script>/, ""), /cut short: it has no list of its contents/],
  ["with a damaged list of contents", (html: string) => html.replace(/id="lenslet-manifest">/, "id=\"lenslet-manifest\">{{"), /damaged: the list of its contents cannot be read/],
  ["of a format to come", (html: string) => html.replace("\"format\":1", "\"format\":9"), /format 9/],
  ["without files", (html: string) => html.replace(/"files":\[[^]*?\]\}<\/script>/, "\"files\":[]}</script>"), /nothing to look at/],
] as const) {
  browserTest(`a page ${name} shows a sentence`, () => ({ html: change(makePage([ordinary])) }), {}, async ({ page }) => {
    assert.match((await page.locator(".failure").textContent()) ?? "", sentence);
  });
}
