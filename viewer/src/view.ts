/** Views: pictures and curves of numbers, with what every one of them has: export, and a table for screen readers. */

import { h, uniqueId } from "./dom";

/** Numbers of what a view shows, by row: for a table in the page, and for CSV. */
export interface DataTable {
  readonly caption: string;
  /** Headings with units, as in "x [Å]". */
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (number | string)[])[];
}

/** What is drawn in a card. */
export interface View {
  /** What is drawn, without a heading. */
  readonly element: HTMLElement;
  /** The numbers that are visible; of an image that has more than `cells`, means of neighbouring ones. */
  table(cells?: number): DataTable;
  /** The picture as SVG, with its axes, in the colours of print. */
  svg(): string;
  /** Ends listeners and frees what the view holds of the graphics processor. */
  destroy(): void;
}

/** What a card offers to do with its view. */
export interface CardOptions {
  /** Stem of the names of exported files. */
  readonly fileName: string;
  /** Buttons and controls above the picture. */
  readonly controls?: readonly HTMLElement[];
  /** A sentence below the picture. */
  readonly note?: string;
  /** Takes the whole width of the page. */
  readonly wide?: boolean;
}

/** Largest number of rows that a table in the page has. */
const ROWS = 400;

/** Largest number of cells that the table of an image has in the page. */
const CELLS = 3600;

/** A view with its heading, its controls, buttons of export, and its numbers as a table that is made when it is opened. */
export class Card {
  readonly element: HTMLElement;
  private readonly heading: HTMLHeadingElement;
  private readonly note: HTMLParagraphElement;
  private readonly details: HTMLDetailsElement;
  private box: HTMLDivElement | undefined;

  constructor(
    title: string,
    readonly view: View,
    private readonly options: CardOptions,
  ) {
    const id = uniqueId("card");
    this.heading = h("h3", { id }, title);
    this.note = h("p", { class: "note" }, options.note ?? "");
    const summary = h("summary", {}, "Numbers as a table");
    this.details = h("details", { class: "numbers", toggle: () => this.fillTable() }, summary);
    const button = (label: string, work: () => void | Promise<void>) => h("button", { type: "button", class: "export", click: work }, label);
    this.element = h(
      "section",
      { class: options.wide ? "card wide" : "card", "aria-labelledby": id },
      h(
        "header",
        {},
        this.heading,
        h("div", { class: "exports", role: "group", "aria-label": `Export ${title}` },
          button("PNG", () => this.exportPng()),
          button("SVG", () => download(`${options.fileName}.svg`, new Blob([view.svg()], { type: "image/svg+xml" }))),
          button("CSV", () => download(`${options.fileName}.csv`, new Blob([csv(view.table())], { type: "text/csv" }))),
        ),
      ),
      options.controls?.length ? h("div", { class: "controls" }, ...options.controls) : null,
      view.element,
      this.note,
      this.details,
    );
    this.setNote(options.note ?? "");
  }

  set title(text: string) {
    this.heading.textContent = text;
  }

  setNote(text: string): void {
    this.note.textContent = text;
    this.note.hidden = text === "";
  }

  /** To be called when the view shows something else: renews the table if it is open. */
  changed(): void {
    if (this.details.open) {
      this.fillTable();
    }
  }

  private fillTable(): void {
    if (!this.details.open) {
      this.box?.remove();
      this.box = undefined;
      return;
    }
    // Renewed in place, so that it keeps the focus and its scroll position.
    this.box ??= this.details.appendChild(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Numbers of ${this.heading.textContent}` }));
    this.box.replaceChildren(htmlTable(this.view.table(CELLS)));
  }

  private async exportPng(): Promise<void> {
    download(`${this.options.fileName}.png`, await rasterise(this.view.svg(), 2));
  }

  destroy(): void {
    this.view.destroy();
    this.element.remove();
  }
}

/** A table of the page; rows beyond a limit are counted in its caption. */
export function htmlTable({ caption, columns, rows }: DataTable): HTMLTableElement {
  const shown = rows.slice(0, ROWS);
  const more = rows.length > shown.length ? ` (the first ${shown.length} of ${rows.length} rows; CSV has all)` : "";
  const cell = (value: number | string) => (typeof value === "number" ? String(Number(value.toPrecision(7))).replace("-", "−") : value);
  return h(
    "table",
    {},
    h("caption", {}, caption + more),
    h("thead", {}, h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...shown.map((row) => h("tr", {}, ...row.map((value, k) => (k === 0 ? h("th", { scope: "row" }, cell(value)) : h("td", {}, cell(value))))))),
  );
}

/** A negative number, as the heading of a column of an image. */
const NUMBER = /^-\d+(\.\d+)?(e[+-]?\d+)?$/;

/**
 * A table as comma-separated values, with all digits; texts that a spreadsheet could take for a formula, unless they are numbers, are
 * quoted behind an apostrophe.
 */
export function csv({ columns, rows }: DataTable): string {
  const field = (value: number | string) => {
    if (typeof value === "number") {
      return String(value);
    }
    const safe = /^[=+\-@\t\r]/.test(value) && !NUMBER.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/** Saves a file by the browser. */
export function download(name: string, blob: Blob): void {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A picture in PNG of SVG, so many pixels to a unit. */
export async function rasterise(svg: string, scale: number): Promise<Blob> {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = h("canvas", { width: Math.round(image.naturalWidth * scale), height: Math.round(image.naturalHeight * scale) });
    const context = canvas.getContext("2d") as CanvasRenderingContext2D;
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture cannot be encoded"))), "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}
