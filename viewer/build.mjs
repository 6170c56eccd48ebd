// Builds the viewer: `node build.mjs` writes dist/, `--check` fails where dist/ is not what the sources give, `--tests` and `--browser`
// bundle the tests of those folders into build/.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(fileURLToPath(import.meta.url));

/** Options of everything that runs in a browser. */
const browser = {
  absWorkingDir: root,
  bundle: true,
  charset: "utf8",
  format: "iife",
  legalComments: "none",
  logLevel: "warning",
  minify: true,
  target: ["chrome100", "firefox115", "safari16.4"],
  write: false,
};

/** Bytes of the files of dist/, by name. */
async function distribution() {
  const entries = {
    "viewer.js": "src/main.ts", "start.js": "src/start.ts", "viewer.css": "src/style.css",
    "live.js": "src/live/main.ts", "live-image.js": "src/live/image.ts", "live.css": "src/live/live.css",
  };
  const files = {};
  for (const [name, entry] of Object.entries(entries)) {
    const result = await build({ ...browser, entryPoints: [entry] });
    // The book's root has a font of 10 px, for which the views' lengths are not made.
    const text = result.outputFiles[0].text;
    files[name] = Buffer.from(name === "live.css" ? text.replace(/(\d*\.?\d+)rem\b/g, (_, number) => `${Math.round(1600 * Number(number)) / 100}px`) : text);
  }
  const [version, licence] = await Promise.all([
    readFile(join(root, "node_modules/uplot/package.json"), "utf8").then((text) => JSON.parse(text).version),
    readFile(join(root, "node_modules/uplot/LICENSE"), "utf8"),
  ]);
  const vendored = await readFile(join(root, "node_modules/uplot/dist/uPlot.esm.js"));
  const checksum = createHash("sha256").update(vendored).digest("hex");
  files["LICENCES.txt"] = Buffer.from(
    `viewer.js and live.js contain uPlot ${version} (curves).\nuPlot.esm.js, SHA-256 ${checksum}\n\n${licence.trim()}\n`,
  );
  return files;
}

/** Bundles the tests of a folder for Node. */
async function tests(folder, target) {
  const names = (await readdir(join(root, folder))).filter((name) => name.endsWith(".test.ts"));
  await rm(join(root, target), { recursive: true, force: true });
  await build({
    absWorkingDir: root,
    bundle: true,
    entryPoints: names.map((name) => join(folder, name)),
    external: ["playwright-core", "esbuild"],
    format: "esm",
    logLevel: "warning",
    outdir: target,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    sourcemap: "inline",
    target: "node20",
  });
}

const mode = process.argv[2] ?? "";
if (mode === "--tests") {
  await tests("tests", "build/tests");
} else if (mode === "--browser") {
  await tests("tests/browser", "build/browser");
} else {
  const files = await distribution();
  let stale = false;
  await mkdir(join(root, "dist"), { recursive: true });
  for (const [name, bytes] of Object.entries(files)) {
    const path = join(root, "dist", name);
    if (mode === "--check") {
      const committed = await readFile(path).catch(() => Buffer.alloc(0));
      if (!committed.equals(bytes)) {
        console.error(`viewer/dist/${name} is not what the sources give: run npm run build in viewer`);
        stale = true;
      }
    } else {
      await writeFile(path, bytes);
    }
    console.log(`${name} ${bytes.length} bytes`);
  }
  process.exitCode = stale ? 1 : 0;
}
