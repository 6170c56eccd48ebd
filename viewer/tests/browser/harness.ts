/**
 * Tests of the viewer in Chromium: every page must work without a single request and without an error on the console.
 *
 * Chromium is /usr/bin/chromium or what LENSLET_CHROMIUM names.
 */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { chromium, type Browser, type BrowserContextOptions, type Locator, type Page } from "playwright-core";
import { htmlPage, makePage, type FileSpec } from "./pages";

export { makePage, uniform, type ArraySpec, type FileSpec, type PageContent } from "./pages";

const root = fileURLToPath(new URL("../../", import.meta.url));
let browser: Promise<Browser> | undefined;
let folder: string | undefined;
let pages = 0;

after(async () => {
  await (await browser)?.close();
  if (folder !== undefined) {
    rmSync(folder, { recursive: true, force: true });
  }
});

function launch(): Promise<Browser> {
  browser ??= chromium.launch({
    executablePath: process.env.LENSLET_CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
      "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    ],
    timeout: 120_000,
  });
  return browser;
}

/** What a test opens: files for a page of the viewer, HTML, the path of a page, or an address on the loopback interface. */
export type Source = { readonly files: readonly FileSpec[] } | { readonly html: string } | { readonly path: string } | { readonly url: string };

/** How a test's page is opened. */
export interface PageOptions extends BrowserContextOptions {
  /** Fragment of the address, without "#". */
  readonly fragment?: string;
  /** Errors that the test expects on the console. */
  readonly expectedErrors?: RegExp;
  /** Code that runs in the page before any of its own. */
  readonly before?: () => void;
}

/** A page under test. */
export class TestPage {
  readonly errors: string[] = [];
  readonly requests: string[] = [];

  constructor(
    readonly page: Page,
    /** Address of the page, without a fragment. */
    readonly address: string,
  ) {
    page.on("console", (message) => {
      if (message.type() === "error" || /content security policy/i.test(message.text())) {
        this.errors.push(message.text());
      }
    });
    page.on("pageerror", (error) => this.errors.push(error.stack ?? error.message));
    page.on("dialog", (dialog) => {
      this.errors.push(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("request", (request) => {
      const url = request.url();
      const isOwn = url.split("#")[0] === this.address || /^(data|blob):/.test(url);
      if (!isOwn && !this.isServed(url)) {
        this.requests.push(url);
      }
    });
    page.on("websocket", (socket) => this.requests.push(socket.url()));
  }

  /** Whether an address is on the server of the page, below the page's own folder. */
  private isServed(url: string): boolean {
    return this.address.startsWith("http://127.0.0.1:") && url.startsWith(this.address.slice(0, this.address.lastIndexOf("/") + 1));
  }

  /** Drags within an element, from one point to another, given as fractions of its width and height from its upper left corner. */
  async drag(element: Locator, from: readonly [number, number], to: readonly [number, number], steps = 8): Promise<void> {
    await element.scrollIntoViewIfNeeded();
    const box = await element.boundingBox();
    assert.ok(box, "the element to be dragged is not visible");
    const at = ([x, y]: readonly [number, number]) => [box.x + x * box.width, box.y + y * box.height] as const;
    await this.page.mouse.move(...at(from));
    await this.page.mouse.down();
    await this.page.mouse.move(...at(to), { steps });
    await this.page.mouse.up();
  }

  /** Opens the panel of this id, from the list or, on a phone, from the choice. */
  async open(panel: string): Promise<void> {
    const choice = this.page.locator("select.panels");
    await choice.waitFor({ state: "attached" });
    if (await choice.isVisible()) {
      await choice.selectOption(panel);
    } else {
      await this.page.locator(`nav button[data-panel="${panel}"]`).click();
    }
  }

  /** Gives an element the focus and presses keys, one after another. */
  async press(element: Locator, ...keys: string[]): Promise<void> {
    await element.focus();
    for (const key of keys) {
      await this.page.keyboard.press(key);
    }
  }

  /** The file that a click saves. */
  async download(button: Locator): Promise<{ readonly name: string; readonly bytes: Buffer }> {
    const [saved] = await Promise.all([this.page.waitForEvent("download"), button.click()]);
    return { name: saved.suggestedFilename(), bytes: readFileSync(await saved.path()) };
  }

  /** The rows of a CSV file that a click saves, its heading first. */
  async csv(button: Locator): Promise<string[][]> {
    const { bytes } = await this.download(button);
    return bytes.toString("utf8").trimEnd().split("\r\n").map(csvFields);
  }

  /** A picture of the page in the folder that LENSLET_SHOTS names, if it is set: for looking at. */
  async shot(name: string): Promise<void> {
    if (process.env.LENSLET_SHOTS !== undefined) {
      await this.page.screenshot({ path: join(process.env.LENSLET_SHOTS, `${name}.png`), fullPage: true });
    }
  }

  /** Waits until the page has drawn and has written its state into the address, by timers of the page itself, which a busy machine delays alike. */
  async settle(milliseconds = 400): Promise<void> {
    await this.page.evaluate(async (most) => {
      for (let frame = 0; frame < 2; frame++) {
        await new Promise((resume) => requestAnimationFrame(resume));
      }
      await new Promise((resume) => setTimeout(resume, most));
    }, milliseconds);
  }

  /** The state that the address holds, once it is settled. */
  async state(): Promise<unknown> {
    await this.settle();
    const fragment = (await this.page.evaluate(() => location.hash)).slice(1);
    return fragment === "" ? {} : JSON.parse(decodeURIComponent(fragment));
  }
}

function csvFields(line: string): string[] {
  return [...line.matchAll(/(?:^|,)("(?:[^"]|"")*"|[^,]*)/g)].map(([, field]) => (field.startsWith('"') ? field.slice(1, -1).replaceAll('""', '"') : field));
}

/** A test of a page, which fails too where the page prints an error, opens a dialog, or requests anything but itself. */
export function browserTest(name: string, source: Source | (() => Source | Promise<Source>), options: PageOptions, work: (opened: TestPage) => Promise<void>): void {
  test(name, { timeout: 300_000 }, async () => {
    const { fragment, expectedErrors, before, ...contextOptions } = options;
    const chosen = typeof source === "function" ? await source() : source;
    const isServed = "url" in chosen;
    const address = isServed ? chosen.url : pathToFileURL("path" in chosen ? chosen.path : written("html" in chosen ? chosen.html : makePage(chosen.files))).href;
    const context = await (await launch()).newContext({ acceptDownloads: true, viewport: { width: 1280, height: 900 }, ...contextOptions, offline: !isServed });
    try {
      context.setDefaultTimeout(60_000);
      const page = await context.newPage();
      if (before !== undefined) {
        await page.addInitScript(before);
      }
      const opened = new TestPage(page, address);
      await page.goto(fragment === undefined ? address : `${address}#${fragment}`, { timeout: 120_000 });
      await work(opened);
      const unexpected = opened.errors.filter((text) => expectedErrors === undefined || !expectedErrors.test(text));
      assert.deepEqual(unexpected, [], "errors on the console");
      assert.deepEqual(opened.requests, [], "requests that leave the page");
    } finally {
      await context.close();
    }
  });
}

/** Shares of the way of a finger. */
export const STEPS = [0, 0.25, 0.5, 0.75, 1];

/** Moves fingers over the screen of a page that has touch: each step has the position of every finger, pixels of the window; fingers are lifted after the last. */
export async function touch(page: Page, ...steps: readonly (readonly (readonly [number, number])[])[]): Promise<void> {
  const session = await page.context().newCDPSession(page);
  let fingers = 0;
  for (const points of steps) {
    await session.send("Input.dispatchTouchEvent", { type: points.length > fingers ? "touchStart" : "touchMove", touchPoints: points.map(([x, y], id) => ({ x, y, id })) });
    fingers = points.length;
  }
  await session.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
}

/** The path of a new file with this HTML. */
export function written(html: string): string {
  folder ??= mkdtempSync(join(tmpdir(), "lenslet-viewer-"));
  const path = join(folder, `${++pages}.html`);
  writeFileSync(path, html);
  return path;
}

/** A page that runs one TypeScript file of fixtures/ with style sheets of src/: for a view by itself. */
export async function fixture(name: string, styles: readonly string[]): Promise<{ html: string }> {
  const bundle = async (entry: string) => {
    const result = await build({ absWorkingDir: root, entryPoints: [entry], bundle: true, charset: "utf8", format: "iife", write: false, logLevel: "warning" });
    return result.outputFiles[0].text;
  };
  const script = await bundle(`tests/browser/fixtures/${name}.ts`);
  const css = (await Promise.all(styles.map((path) => bundle(`src/${path}`)))).join("\n");
  return { html: htmlPage(name, css, `<main id="host"></main><script>${script.replaceAll("</script", "<\\/script")}</script>`) };
}
