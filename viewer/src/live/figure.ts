/** A live figure: controls and views in the place of a still one, which a button brings back and which is printed. */

import { checkbox, range, select, type Choice } from "../controls";
import { eachFrame, h, uniqueId } from "../dom";
import { type Cell, type Scope, Store } from "../store";
import { csv, download, htmlTable, type View } from "../view";
import { CurveView } from "../views/curve";
import type { ImageView } from "../views/image";

/** A control of numbers: a slider from `min` to `max`, which begins at `initial`. */
export interface NumberControl {
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly initial: number;
  readonly unit?: string;
  readonly format?: (x: number) => string;
}

/** What a live figure is: `draw` is called whenever a control has changed, and returns the sentence with the key numbers. */
export interface LiveFigure {
  /** The name of the figure for screen readers, a noun phrase. */
  readonly title: string;
  /** What to try, in a sentence or two. */
  readonly hint: string;
  /** Whether the still figure stays above the controls: drawings that explain the geometry. */
  readonly keepsStill?: boolean;
  /** Adds controls and views to the stage, and returns what draws them. */
  open(stage: Stage): () => string;
}

/** Where a live figure has its controls and views. */
export class Stage {
  readonly scope: Scope;
  readonly controls = h("div", { class: "controls" });
  readonly views = h("div", { class: "live-views" });
  readonly shown: { readonly label: string; readonly view: View }[] = [];
  private readonly cells: Cell<never>[] = [];

  constructor(
    readonly store: Store,
    private readonly results: ReadonlyMap<string, unknown>,
  ) {
    this.scope = store.scope("figure");
  }

  private keep<T extends number | string | boolean>(cell: Cell<T>, control: HTMLElement): Cell<T> {
    this.cells.push(cell as unknown as Cell<never>);
    this.controls.append(control);
    return cell;
  }

  /** A slider. */
  number(label: string, { initial, ...options }: NumberControl): Cell<number> {
    const cell = this.scope.cell(`c${this.cells.length}`, initial);
    return this.keep(cell, range(label, cell, options));
  }

  /** A list of choices, of which the first is chosen unless `initial` says another one. */
  choice(label: string, choices: readonly Choice[], initial = choices[0].value): Cell<string> {
    const cell = this.scope.cell(`c${this.cells.length}`, initial);
    return this.keep(cell, select(label, cell, choices));
  }

  /** A box to check. */
  flag(label: string, initial: boolean): Cell<boolean> {
    const cell = this.scope.cell(`c${this.cells.length}`, initial);
    return this.keep(cell, checkbox(label, cell));
  }

  /** Adds a button beside the controls. */
  action(label: string, work: () => void): void {
    this.controls.append(h("button", { type: "button", click: work }, label));
  }

  /** Adds a view with its heading. */
  view<V extends View>(label: string, view: V): V {
    this.shown.push({ label, view });
    this.views.append(h("div", { class: "live-view" }, h("p", { class: "live-label" }, label), view.element));
    return view;
  }

  /** Adds curves with their heading. */
  curves(label: string, height = 300): CurveView {
    return this.view(label, new CurveView({ scope: this.scope.child(`v${this.shown.length}`), label, height }));
  }

  /** Adds an image with its heading. */
  image(label: string, height = 300): ImageView {
    const Image = globalThis.lensletImageView;
    if (Image === undefined) {
      throw new Error("the page lacks live-image.js, which draws images");
    }
    const view = this.view(label, new Image({ scope: this.scope.child(`v${this.shown.length}`), label, height }));
    view.element.querySelectorAll("details").forEach((details) => (details.open = false));
    return view;
  }

  /** Computed results of the page, by the name of their file. */
  data(file: string): unknown {
    return this.results.get(file);
  }

  /** Returns all controls to where they were. */
  reset(): void {
    this.cells.forEach((cell) => cell.reset());
  }
}

/** Replaces the still picture of a figure by a live one. */
export function bring(element: HTMLElement, figure: LiveFigure, results: ReadonlyMap<string, unknown>): void {
  const still = element.querySelector("a");
  const store = new Store();
  const stage = new Stage(store, results);
  const draw = figure.open(stage);
  const key = h("p", { class: "live-key", role: "status", "aria-live": "polite" });
  const numbers = h("div", { class: "live-numbers" });
  const details = h("details", { class: "numbers", toggle: () => fillNumbers() }, h("summary", {}, "Numbers as a table"), numbers);
  const hintId = uniqueId("hint");
  const live = h("div", { class: "live-stage", role: "group", "aria-label": `${figure.title}, live figure`, "aria-describedby": hintId },
    h("p", { class: "live-hint", id: hintId }, figure.hint), stage.controls, stage.views, key, details);
  const swap = h("button", { type: "button", class: "live-swap", click: () => show(!on) });
  const again = h("button", { type: "button", click: () => stage.reset() }, "Reset");
  const bar = h("div", { class: "live-bar" }, again, swap);
  let on = true;

  function fillNumbers(): void {
    numbers.replaceChildren();
    if (details.open) {
      for (const { label, view } of stage.shown) {
        const table = view.table();
        const save = () => download(`${element.dataset.live}.csv`, new Blob([csv(table)], { type: "text/csv" }));
        numbers.append(
          h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, htmlTable(table)),
          h("button", { type: "button", click: save }, "Save as CSV"),
        );
      }
    }
  }

  function show(value: boolean): void {
    on = value;
    element.classList.toggle("live-on", on);
    element.classList.toggle("live-keeps", figure.keepsStill === true);
    live.hidden = again.hidden = !on;
    swap.textContent = on ? (figure.keepsStill ? "Hide live figure" : "Still figure") : "Live figure";
  }

  const redraw = eachFrame(() => {
    key.textContent = draw();
    fillNumbers();
  });
  // Arrow keys of a control do not turn the pages of the book, and letters do not open its search.
  live.addEventListener("keydown", (event) => event.stopPropagation());
  bar.addEventListener("keydown", (event) => event.stopPropagation());
  store.subscribeAll(redraw);
  (still ?? element).after(bar, live);
  show(true);
  key.textContent = draw();
}
