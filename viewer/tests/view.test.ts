import assert from "node:assert/strict";
import { test } from "node:test";
import { csv } from "../src/view";

test("fields of CSV are quoted where they must be", () => {
  const text = csv({ caption: "", columns: ["x [Å]", "a,b", "say \"x\""], rows: [["line\nbreak", 1.5, "plain"], ["", -2, " "]] });
  assert.equal(text, "x [Å],\"a,b\",\"say \"\"x\"\"\"\r\n\"line\nbreak\",1.5,plain\r\n,-2, \r\n");
});

test("texts that a spreadsheet could take for a formula are marked, numbers are not", () => {
  assert.equal(csv({ caption: "", columns: ["y \\ x", "-0.5", "-1e-7", "0"], rows: [] }), "y \\ x,-0.5,-1e-7,0\r\n", "negative positions of an image's columns");
  const cells = ["=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "a=1"];
  const text = csv({ caption: "", columns: ["=cmd|' /C calc'!A0"], rows: [...cells.map((one) => [one]), [-1], [1e-300], [NaN], [0.1 + 0.2]] });
  assert.equal(text, ["'=cmd|' /C calc'!A0", "'=1+1", "'+1", "'-1+2", "'@SUM(A1)", "'\t=1", "\"'\r=1\"", "a=1", "-1", "1e-300", "NaN", "0.30000000000000004", ""].join("\r\n"));
});
