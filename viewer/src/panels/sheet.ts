/** What panels are made of: controls, cards, printed numbers, and work that follows the state. */

import { select } from "../controls";
import { formatNumber } from "../data";
import { h } from "../dom";
import type { PanelContext } from "../panel";
import type { Cell } from "../store";
import { Card, htmlTable, type CardOptions, type View } from "../view";

/** A number that a panel prints: what it is, its value, its unit. */
export type Fact = readonly [name: string, value: number | string, unit?: string];

/** Where work subscribes to changes. */
interface Changing {
  subscribe(listener: () => void): () => void;
}

/** The content of an open panel. */
export class Sheet {
  private readonly ends: (() => void)[] = [];
  private readonly cards = h("div", { class: "cards" });
  private ended = false;

  constructor(
    host: HTMLElement,
    readonly context: PanelContext,
  ) {
    host.append(this.cards);
  }

  /** Controls above the cards. */
  controls(...elements: (HTMLElement | undefined)[]): void {
    const shown = elements.filter((one) => one !== undefined);
    if (shown.length > 0) {
      this.cards.before(h("div", { class: "controls" }, ...shown));
    }
  }

  /** Adds a card with a view. */
  card<V extends View>(title: string, view: V, options: CardOptions): Card {
    const card = new Card(title, view, options);
    this.cards.append(card.element);
    this.ends.push(() => card.destroy());
    return card;
  }

  /** Adds a table of numbers; what it returns renews them. */
  facts(caption: string): (facts: readonly Fact[]) => void {
    const box = h("section", { class: "card facts" });
    this.cards.append(box);
    return (facts) => {
      const rows = facts.map(([name, value, unit]) => [name, typeof value === "number" ? formatNumber(value, 5) : value, unit ?? ""]);
      hide(box, facts.length === 0);
      box.replaceChildren(htmlTable({ caption, columns: ["quantity", "value", "unit"], rows }));
    };
  }

  /**
   * Does work now and whenever one of the cells changes. While it goes on, later changes wait, so that only the latest is followed; `stale`
   * tells whether there is one, or the panel was closed. Fails where the first work fails; later failures are printed in the status line.
   */
  async follow(cells: readonly Changing[], work: (stale: () => boolean) => void | Promise<void>): Promise<void> {
    let [wanted, done, busy] = [1, 0, false];
    const stale = () => this.ended || wanted !== done;
    const run = async () => {
      if (busy) {
        return;
      }
      busy = true;
      try {
        while (wanted !== done && !this.ended) {
          done = wanted;
          await work(stale);
        }
      } finally {
        busy = false;
      }
    };
    const changed = () => {
      wanted++;
      run().catch((error: unknown) => this.context.say(error instanceof Error ? error.message : String(error)));
    };
    cells.forEach((cell) => this.ends.push(cell.subscribe(changed)));
    await run();
  }

  /** Calls back when the panel is closed. */
  atEnd(end: () => void): void {
    this.ends.push(end);
  }

  /** Ends the panel. */
  end(): void {
    this.ended = true;
    this.ends.splice(0).forEach((end) => end());
  }
}

/** A selection among numbered things ("star 0" …); undefined, so that there is no control, where there is but one. */
export function numbered(label: string, cell: Cell<string>, names: readonly string[]): HTMLElement | undefined {
  return names.length > 1 ? select(label, cell, names.map((name, k) => ({ value: String(k), label: name }))) : undefined;
}

/** A cell for one of `count` numbered things. */
export function numberCell(context: PanelContext, key: string, count: number, initial = 0): Cell<string> {
  return context.scope.cell(key, String(initial), (value) => /^\d+$/.test(value) && Number(value) < count);
}

/** A cell for one of some values. */
export function choiceCell(context: PanelContext, key: string, values: readonly string[], initial = values[0]): Cell<string> {
  return context.scope.cell(key, initial, (value) => values.includes(value));
}

/** The names "star 0", "star 1" … */
export function names(what: string, count: number): string[] {
  return Array.from({ length: count }, (_, k) => `${what} ${k}`);
}

/** Hides an element, or shows it, whatever its own layout. */
export function hide(element: HTMLElement | undefined, hidden: boolean): void {
  if (element) {
    element.style.display = hidden ? "none" : "";
  }
}

/** A unit as it is printed: "rad2" as rad², "m rad" with a narrow space. */
export function printed(unit: string): string {
  return unit.replace(/(?<=[A-Za-zÅ])2\b/g, "²").replace(/(?<=[A-Za-zÅ]) (?=[A-Za-zÅ])/g, "\u202f");
}

/** A name as part of an identifier or of a file's name. */
export function stem(name: string): string {
  return name.replace(/[^A-Za-z0-9]+/g, "-");
}
