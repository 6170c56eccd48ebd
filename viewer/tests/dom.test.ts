import assert from "node:assert/strict";
import { test } from "node:test";
import { plainNumber } from "../src/dom";

test("numbers for screen readers have no power of ten", () => {
  const expected: readonly (readonly [number, string])[] = [[0, "0"], [-2.5, "-2.5"], [1e-7, "0.0000001"], [-6.5e-13, "-0.00000000000065"], [1.25e-12, "0.00000000000125"], [1e21, "1000000000000000000000"]];
  for (const [x, text] of expected) {
    assert.equal(plainNumber(x), text);
  }
  assert.match(plainNumber(-1e300), /^-\d{301}$/);
  assert.equal(Number(plainNumber(-5e-324)), -5e-324);
});
