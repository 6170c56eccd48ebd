/** Controls bound to cells of the state: sliders, lists, check boxes and a player, all of them usable by keyboard. */

import { formatNumber } from "./data";
import { type Child, h, uniqueId } from "./dom";
import type { Cell } from "./store";

/** Ends what was begun: listeners and timers of a panel. */
export interface Disposer {
  add(...ends: (() => void)[]): void;
  end(): void;
}

export function disposer(): Disposer {
  const all: (() => void)[] = [];
  return { add: (...ends) => void all.push(...ends), end: () => all.splice(0).forEach((end) => end()) };
}

/** Subscriptions of elements, which end when the element has left the page. */
const shown = new Map<() => void, HTMLElement>();

/** Calls back while an element is in the page: its subscription ends at the next change after it was removed, or by `endRemoved`. */
export function whileShown<T>(element: HTMLElement, subscribe: (listener: (value: T) => void) => () => void, listener: (value: T) => void): void {
  const stop = subscribe((value) => (element.isConnected ? listener(value) : end()));
  const end = () => {
    stop();
    shown.delete(end);
  };
  shown.set(end, element);
}

/** Ends the subscriptions of elements that are not in the page: for when another panel opens. */
export function endRemoved(): void {
  shown.forEach((element, end) => element.isConnected || end());
}

function labelled(label: string, control: HTMLElement, ...more: Child[]): HTMLLabelElement {
  return h("label", { class: "control" }, h("span", {}, label), control, ...more);
}

export interface SliderOptions {
  /** Number of samples: the cell goes from 0 to `count` − 1. */
  readonly count: number;
  /** A sample in words. */
  readonly label: (k: number) => string;
}

/** A slider over numbers, with the number in words. */
function rangeControl(label: string, cell: Cell<number>, limits: { readonly min: number; readonly max: number; readonly step: number }, shown: (value: number) => number, inWords: (value: number) => string): HTMLElement {
  const input = h("input", { type: "range", ...limits });
  // The slider itself speaks its value: a second voice would repeat it at every step.
  const output = h("output", { "aria-live": "off" });
  const show = (value: number) => {
    const text = inWords(shown(value));
    input.value = String(shown(value));
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  };
  input.addEventListener("input", () => cell.set(Number(input.value), { live: true }));
  input.addEventListener("change", () => cell.set(Number(input.value)));
  show(cell.value);
  const element = labelled(label, input, output);
  whileShown(element, (listener: (value: number) => void) => cell.subscribe(listener), show);
  return element;
}

/** A slider over samples, with the sample in words. */
export function slider(label: string, cell: Cell<number>, { count, label: inWords }: SliderOptions): HTMLElement {
  const last = Math.max(count - 1, 0);
  return rangeControl(label, cell, { min: 0, max: last, step: 1 }, (k) => Math.min(Math.max(Math.round(k), 0), last), inWords);
}

export interface RangeOptions {
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly unit?: string;
  readonly format?: (x: number) => string;
}

/** A slider over numbers, with the number and its unit. */
export function range(label: string, cell: Cell<number>, { min, max, step, unit = "", format = (x) => formatNumber(x, 4) }: RangeOptions): HTMLElement {
  return rangeControl(label, cell, { min, max, step }, (x) => x, (x) => (unit ? `${format(x)} ${unit}` : format(x)));
}

export interface Choice {
  readonly value: string;
  readonly label: string;
}

/** A list of choices. */
export function select(label: string, cell: Cell<string>, choices: readonly Choice[]): HTMLElement {
  const input = h("select", {}, ...choices.map((one) => h("option", { value: one.value }, one.label)));
  const show = (value: string) => {
    input.value = choices.some((one) => one.value === value) ? value : (choices[0]?.value ?? "");
  };
  input.addEventListener("change", () => cell.set(input.value));
  show(cell.value);
  const element = labelled(label, input);
  whileShown(element, (listener: (value: string) => void) => cell.subscribe(listener), show);
  return element;
}

/** A box to check. */
export function checkbox(label: string, cell: Cell<boolean>): HTMLElement {
  const input = h("input", { type: "checkbox", id: uniqueId("box") });
  const show = (value: boolean) => {
    input.checked = value;
  };
  input.addEventListener("change", () => cell.set(input.checked));
  show(cell.value);
  const element = h("label", { class: "control box" }, input, h("span", {}, label));
  whileShown(element, (listener: (value: boolean) => void) => cell.subscribe(listener), show);
  return element;
}

/** A button. */
export function button(label: string, work: () => void, title?: string): HTMLButtonElement {
  return h("button", { type: "button", title, click: work }, label);
}

/** Frames per second that a player offers. */
const SPEEDS = [1, 2, 5, 10, 25];

/** A slider over samples that plays: the space bar starts and stops it while it has the focus. */
export function player(label: string, cell: Cell<number>, options: SliderOptions): HTMLElement {
  const { count } = options;
  if (count < 2) {
    return slider(label, cell, options);
  }
  let timer = 0;
  const speed = h("select", { "aria-label": `Frames per second of ${label}` }, ...SPEEDS.map((n) => h("option", { value: n }, `${n}/s`)));
  speed.value = "5";
  const play = h("button", { type: "button", class: "play", "aria-pressed": "false", "aria-label": `Play ${label}` }, "▶");
  const stop = () => {
    clearInterval(timer);
    if (timer !== 0) {
      cell.set(cell.value);
    }
    timer = 0;
    play.textContent = "▶";
    play.setAttribute("aria-pressed", "false");
  };
  const start = () => {
    timer = window.setInterval(() => (play.isConnected ? cell.set((cell.value + 1) % count, { live: true }) : stop()), 1000 / Number(speed.value));
    play.textContent = "❚❚";
    play.setAttribute("aria-pressed", "true");
  };
  play.addEventListener("click", () => (timer === 0 ? start() : stop()));
  speed.addEventListener("change", () => {
    if (timer !== 0) {
      stop();
      start();
    }
  });
  const slide = slider(label, cell, options);
  slide.addEventListener("keydown", (event) => {
    if (event.key === " ") {
      event.preventDefault();
      play.click();
    }
  });
  return h("div", { class: "player" }, slide, play, speed);
}
