/** A drawing of shapes, as a view. */

import { h, svg } from "../../dom";
import type { DataTable, View } from "../../view";

/** Shapes with the numbers that they stand for. */
export class Drawing implements View {
  readonly element: HTMLElement;
  private readonly picture: SVGSVGElement;
  private numbers: DataTable = { caption: "", columns: [], rows: [] };

  constructor(label: string) {
    this.picture = svg("svg", { class: "drawing", role: "img", "aria-label": label });
    this.element = h("div", {}, this.picture);
  }

  /** Shows shapes in a field of this width and height, and their numbers. */
  show([width, height]: readonly [number, number], shapes: readonly SVGElement[], numbers: DataTable): void {
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...shapes);
    this.numbers = numbers;
  }

  table(): DataTable {
    return this.numbers;
  }

  svg(): string {
    const copy = this.picture.cloneNode(true) as SVGSVGElement;
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    return new XMLSerializer().serializeToString(copy);
  }

  destroy(): void {
    this.element.remove();
  }
}
