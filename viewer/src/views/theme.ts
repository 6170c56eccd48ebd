/** Colours of views: those of the page, and a palette of series for colour-blind readers. */

/** Colours of the page about an element. */
export interface Theme {
  readonly ink: string;
  readonly paper: string;
  readonly muted: string;
  readonly accent: string;
  readonly line: string;
  readonly font: string;
  /** Whether the page is dark. */
  readonly dark: boolean;
  /** Colours of series, in their order. */
  readonly series: readonly string[];
}

/** Okabe and Ito's palette in an order of falling contrast with white; yellow is darkened and grey takes the place of black. */
const ON_LIGHT = ["#0072b2", "#d55e00", "#008a64", "#b3558a", "#9a6a00", "#2b8cc4", "#5f5f5f", "#857a00"];
/** The same hues, for a dark page. */
const ON_DARK = ["#56b4e9", "#ff8c3a", "#1fc79a", "#e39ac4", "#e69f00", "#8fd0f5", "#b8b8b8", "#f0e442"];

/** Colours of print. */
export const PRINT: Theme = {
  ink: "#111", paper: "#fff", muted: "#555", accent: "#0072b2", line: "#bbb",
  font: "system-ui, sans-serif", dark: false, series: ON_LIGHT,
};

/** Colours of the page about an element, from its CSS variables. */
export function themeOf(element: Element): Theme {
  const probe = document.createElement("span");
  element.append(probe);
  const colour = (name: string, otherwise: string): string => {
    probe.style.color = `var(--${name}, ${otherwise})`;
    return getComputedStyle(probe).color;
  };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const paper = colour("paper", dark ? "#16181c" : "#fff");
  const isDark = luminance(paper) < 0.5;
  const theme: Theme = {
    ink: colour("ink", isDark ? "#eee" : "#111"),
    paper,
    muted: colour("muted", isDark ? "#aaa" : "#555"),
    accent: colour("accent", isDark ? "#56b4e9" : "#0072b2"),
    line: colour("line", isDark ? "#444" : "#ccc"),
    font: getComputedStyle(probe).fontFamily,
    dark: isDark,
    series: isDark ? ON_DARK : ON_LIGHT,
  };
  probe.remove();
  return theme;
}

/** Lightness of a colour of CSS, from 0 to 1. */
function luminance(colour: string): number {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d");
  if (context === null) {
    return 1;
  }
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [r, g, b] = context.getImageData(0, 0, 1, 1).data;
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}

/** Calls back when the page turns dark or light; returns what ends that. */
export function onTheme(listener: () => void): () => void {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(listener);
  query.addEventListener("change", listener);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["class", "data-theme", "style"] });
  return () => {
    query.removeEventListener("change", listener);
    observer.disconnect();
  };
}

/** Calls back when an element has another size, and when the page is laid out for print; returns what ends that. */
export function onResize(element: Element, listener: () => void): () => void {
  const observer = new ResizeObserver(listener);
  observer.observe(element);
  addEventListener("resize", listener);
  return () => {
    observer.disconnect();
    removeEventListener("resize", listener);
  };
}

/** Outlines of the symbols that tell series apart, about the origin, as paths of SVG of radius r. */
export function symbolPath(series: number, r: number): string {
  const polygon = (...points: readonly (readonly [number, number])[]) => `M${points.map(([x, y]) => `${fix(x * r)},${fix(y * r)}`).join("L")}Z`;
  switch (series % 6) {
    case 0:
      return `M${-r},0a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`;
    case 1:
      return polygon([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]);
    case 2:
      return polygon([0, -1.2], [1.1, 0.8], [-1.1, 0.8]);
    case 3:
      return polygon([0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]);
    case 4:
      return polygon([0, 1.2], [1.1, -0.8], [-1.1, -0.8]);
    default:
      return polygon([-1.2, -0.4], [-0.4, -0.4], [-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4]);
  }
}

/** A length in a drawing, to a hundredth. */
export function fix(x: number): string {
  return String(Math.round(x * 100) / 100);
}
