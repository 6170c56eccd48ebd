import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

/** What turns a text into markup or into code. */
const FORBIDDEN = /\b(innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|parseFromString|setHTMLUnsafe|srcdoc)\b|document\.write|\beval\s*\(|new Function\b|set(?:Timeout|Interval)\(\s*["'`]|javascript:/;

test("no source turns texts into markup or code", () => {
  const root = fileURLToPath(new URL("../../src/", import.meta.url));
  const names = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  assert.ok(names.length > 50 && names.includes("dom.ts"), `${names.length} sources`);
  const found = names.flatMap((name) => readFileSync(root + name, "utf8").split("\n").flatMap((line, k) => (FORBIDDEN.test(line) ? [`${name}:${k + 1}: ${line.trim()}`] : [])));
  assert.deepEqual(found, []);
  assert.ok(FORBIDDEN.test("element.innerHTML = text") && FORBIDDEN.test("eval (text)"));
});
