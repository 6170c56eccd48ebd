/** Elements made from code: texts of files become text nodes, never markup. */

export type Child = Node | string | number | null | undefined | false;

type Attributes = Readonly<Record<string, string | number | boolean | null | undefined | ((event: never) => void)>>;

/**
 * An element with attributes and children. Attributes whose value is a function are listeners ("click"); true stands for an
 * attribute without a value; false, null and undefined for none.
 */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

/** As `h`, of SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: readonly Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name, value as (event: Event) => void);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((one) => one !== null && one !== undefined && one !== false).map((one) => (one instanceof Node ? one : String(one))));
  return element;
}

/** Calls `work` at most once a frame, with the latest arguments. */
export function eachFrame<A extends unknown[]>(work: (...args: A) => void): (...args: A) => void {
  let pending: A | undefined;
  return (...args) => {
    if (pending === undefined) {
      requestAnimationFrame(() => {
        const latest = pending as A;
        pending = undefined;
        work(...latest);
      });
    }
    pending = args;
  };
}

/** A number without a power of ten, as attributes for screen readers must have it. */
export function plainNumber(x: number): string {
  const [mantissa, exponent] = String(x).split("e");
  if (exponent === undefined || !(Number(exponent) < 0)) {
    return exponent === undefined ? mantissa : BigInt(x).toString();
  }
  return `${x < 0 ? "-" : ""}0.${"0".repeat(-Number(exponent) - 1)}${mantissa.replace(/[-.]/g, "")}`;
}

let numbers = 0;

/** An identifier that no other element of the page has. */
export function uniqueId(stem: string): string {
  return `${stem}-${++numbers}`;
}
