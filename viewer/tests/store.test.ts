import assert from "node:assert/strict";
import { test } from "node:test";
import { Store } from "../src/store";

test("undo and redo go back and forth between settled states", () => {
  const store = new Store();
  const cell = store.scope("panel").cell("k", 0);
  cell.set(1);
  cell.set(2);
  assert.equal(cell.value, 2);
  store.undo();
  assert.equal(cell.value, 1);
  store.undo();
  assert.equal(cell.value, 0);
  assert.equal(store.canUndo, false);
  store.redo();
  store.redo();
  assert.equal(cell.value, 2);
  assert.equal(store.canRedo, false);
  store.undo();
  cell.set(7);
  assert.equal(store.canRedo, false);
});

test("the end of a drag is told, though it changes no value", () => {
  const store = new Store();
  const cell = store.scope("panel").cell("r", 10);
  const heard: boolean[] = [];
  store.subscribeAll(() => heard.push(store.canUndo));
  cell.set(11, { live: true });
  cell.set(11);
  cell.set(11);
  assert.deepEqual(heard, [false, true]);
});

test("a link opened in the page can be undone, a drag in progress is kept by redo", () => {
  const store = new Store();
  const cell = store.scope("panel").cell("r", 10);
  cell.set(11);
  store.restore(encodeURIComponent(JSON.stringify({ "panel.r": 30 })), { undoable: true });
  assert.equal(cell.value, 30);
  store.undo();
  assert.equal(cell.value, 11);
  cell.set(12, { live: true });
  store.redo();
  assert.equal(cell.value, 12);
  store.undo();
  assert.equal(cell.value, 11);
});

test("a drag is undone as a whole", () => {
  const store = new Store();
  const cell = store.scope("panel").cell("r", 10);
  for (const r of [11, 12, 13]) {
    cell.set(r, { live: true });
  }
  assert.equal(store.canUndo, false);
  cell.set(14);
  store.undo();
  assert.equal(cell.value, 10);
  // A drag that is not settled yet is undone too.
  cell.set(20, { live: true });
  store.undo();
  assert.equal(cell.value, 10);
});

test("two hundred steps are kept", () => {
  const store = new Store();
  const cell = store.scope("panel").cell("k", 0);
  for (let k = 1; k <= 300; k++) {
    cell.set(k);
  }
  let steps = 0;
  for (; store.canUndo; steps++) {
    store.undo();
  }
  assert.equal(steps, 200);
  assert.equal(cell.value, 100);
});

test("listeners hear changes of their own path, once, and none after they end", () => {
  const store = new Store();
  const [a, b] = [store.scope("p").cell("a", 0), store.scope("p").cell("b", "x")];
  const heard: unknown[] = [];
  const end = a.subscribe((value) => heard.push(value));
  let all = 0;
  store.subscribeAll(() => all++);
  a.set(1);
  a.set(1);
  b.set("y");
  store.undo();
  store.undo();
  end();
  a.set(5);
  assert.deepEqual(heard, [1, 0]);
  assert.equal(all, 5);
});

test("a fragment restores the state, and initial values take no part of it", () => {
  const store = new Store();
  const scope = store.scope("1-psf").child("image");
  const [scale, limits, label] = [scope.cell("scale", 1), scope.cell<number[]>("limits", []), scope.cell("label", "")];
  assert.equal(store.fragment(), "");
  scale.set(2.5);
  limits.set([1e-7, 3]);
  label.set("Å % # & ü \u{1f52d} \" <script>");
  const fragment = store.fragment();
  assert.ok(/^[\w.!~*'()%-]+$/.test(fragment), fragment);
  const other = new Store();
  other.restore(fragment);
  const copy = other.scope("1-psf").child("image");
  assert.equal(copy.cell("scale", 1).value, 2.5);
  assert.deepEqual(copy.cell<number[]>("limits", []).value, [1e-7, 3]);
  assert.equal(copy.cell("label", "").value, label.value);
  assert.equal(other.canUndo, false);
  scale.set(1);
  limits.set([]);
  label.reset();
  assert.equal(store.fragment(), "");
});

test("fragments that are not of the viewer change nothing", () => {
  const store = new Store();
  const cell = store.scope("p").cell("k", 3);
  cell.set(4);
  for (const fragment of ["%", "{", "null", "[1]", "12", "%22x%22", "undefined", "%E0%A4%A"]) {
    store.restore(fragment);
    assert.equal(cell.value, 4, fragment);
  }
});

test("values of another kind, and those that a cell rejects, leave the initial value", () => {
  const store = new Store();
  const scope = store.scope("p");
  const number = scope.cell("n", 5, (n) => n >= 0 && n < 10);
  const list = scope.cell<number[]>("l", [1, 2]);
  const text = scope.cell<string>("t", "a", (t) => ["a", "b"].includes(t));
  for (const hostile of [{ "p.n": "5", "p.l": [1, "x"], "p.t": "toString" }, { "p.n": 11, "p.l": { length: 2 }, "p.t": ["a"] }, { "p.n": null, "p.l": null, "p.t": null }, { "p.n": [], "p.l": 3, "p.t": {} }, { "p.n": -1, "p.l": [[1]], "p.t": true }]) {
    store.restore(encodeURIComponent(JSON.stringify(hostile)));
    assert.deepEqual([number.value, list.value, text.value], [5, [1, 2], "a"], JSON.stringify(hostile));
  }
  store.restore(encodeURIComponent("{\"p.n\":1e999}"));
  assert.equal(number.value, 5);
});

test("keys of Object's prototype in a link are keys like others", () => {
  const store = new Store();
  store.restore(encodeURIComponent("{\"__proto__\":{\"polluted\":1},\"constructor\":{\"prototype\":{\"polluted\":1}},\"p.k\":2}"));
  assert.equal(({} as Record<string, unknown>)["polluted"], undefined);
  const state = store.scope("p").cell("k", 0);
  assert.equal(state.value, 2);
  state.set(3);
  assert.equal(({} as Record<string, unknown>)["polluted"], undefined);
  assert.equal(store.get("toString"), undefined);
  assert.equal(new Store().get("toString"), undefined);
  assert.equal(new Store().get("__proto__"), undefined);
});
