/** What a result's `system` text (TOML, as Lenslet writes it into every file) tells of the telescope, its stars and its camera. */

import { ARCSEC } from "../units";
import type { DataFile } from "../data";

/** A direction on the sky [arcsec]. */
export interface Direction {
  readonly x: number;
  readonly y: number;
}

/** What panels need of a system; what the text does not have is undefined. */
export interface SystemFacts {
  /** Diameter of the telescope [m]. */
  readonly diameter: number | undefined;
  /** Diameter of the central obstruction over that of the telescope. */
  readonly obstruction: number;
  /** Side of a lenslet on the pupil [m]. */
  readonly pitch: number | undefined;
  /** Step of the wavefront's points [m]. */
  readonly wavefrontStep: number | undefined;
  readonly guideStars: readonly Direction[];
  readonly targets: readonly Direction[];
  /** Wavelengths of the images [m]. */
  readonly wavelengths: readonly number[];
  /** Side of a pixel of the images [mas]. */
  readonly pixel: number | undefined;
  /** Sides of the boxes of ensquared energy [mas]. */
  readonly ensquared: readonly number[];
  /** Share of the largest eigenvalue below which the reconstructor drops them. */
  readonly filter: number | undefined;
}

type Value = number | string | readonly number[];
interface Table {
  readonly name: string;
  readonly entries: Map<string, Value>;
}

/**
 * Tables of a TOML text with their numbers, texts and lists of numbers; `[[name]]` gives a table each time.
 *
 * Lines that it does not understand are skipped, as are inline tables: it never fails.
 */
export function tomlTables(text: string): Table[] {
  const tables: Table[] = [{ name: "", entries: new Map() }];
  for (const raw of joinLists(text.split(/\r?\n/).map(withoutComment))) {
    const line = raw.trim();
    const heading = /^\[{1,2}\s*([^[\]]+?)\s*\]{1,2}$/.exec(line);
    const entry = /^([\w.-]+|"[^"]*")\s*=\s*(.+)$/.exec(line);
    if (heading) {
      tables.push({ name: heading[1], entries: new Map() });
    } else if (entry) {
      const value = parseValue(entry[2].trim());
      if (value !== undefined) {
        tables[tables.length - 1].entries.set(entry[1].replaceAll('"', ""), value);
      }
    }
  }
  return tables;
}

function withoutComment(line: string): string {
  return /^(?:[^"'#]|"(?:[^"\\]|\\.)*"|'[^']*')*/.exec(line)?.[0] ?? "";
}

/** Lines of which a list over several lines is one. */
function joinLists(lines: readonly string[]): string[] {
  const joined: string[] = [];
  let depth = 0;
  for (const line of lines) {
    if (depth > 0) {
      joined[joined.length - 1] += ` ${line}`;
    } else {
      joined.push(line);
    }
    const bare = line.replace(/"(?:[^"\\]|\\.)*"|'[^']*'/g, "");
    if (depth > 0 || bare.includes("=")) {
      depth = Math.max(depth + bare.split("[").length - bare.split("]").length, 0);
    }
  }
  return joined;
}

function parseValue(text: string): Value | undefined {
  const quoted = /^"([^"]*)"$|^'([^']*)'$/.exec(text);
  if (quoted) {
    return quoted[1] ?? quoted[2];
  }
  const list = /^\[([^[\]{}]*)\]$/.exec(text);
  if (list) {
    const items = list[1].split(",").map((item) => item.trim()).filter((item) => item !== "").map(parseNumber);
    return items.every((item) => item !== undefined) ? items : undefined;
  }
  return parseNumber(text);
}

function parseNumber(text: string): number | undefined {
  if (/^[+-]?inf$/.test(text)) {
    return text.startsWith("-") ? -Infinity : Infinity;
  }
  return /^[+-]?(\d[\d_]*)(\.\d[\d_]*)?([eE][+-]?\d+)?$/.test(text) ? Number(text.replaceAll("_", "")) : undefined;
}


/** Facts of the text of a system. */
export function systemFacts(text: string): SystemFacts {
  const tables = tomlTables(text);
  const number = (table: string, key: string): number | undefined => {
    const found = tables.find((one) => one.name === table)?.entries.get(key);
    return typeof found === "number" && Number.isFinite(found) ? found : undefined;
  };
  const directions = (name: string) => tables.filter((one) => one.name === name).map(directionOf);
  const diameter = number("telescope", "diameter");
  const lenslets = number("lenslet_array", "lenslets");
  const across = number("lenslet_array", "diameter") ?? diameter;
  const pitch = number("lenslet_array", "pitch") ?? (across !== undefined && lenslets ? across / lenslets : undefined);
  const oversampling = number("phase", "oversampling");
  const list = (table: string, key: string): readonly number[] => {
    const found = tables.find((one) => one.name === table)?.entries.get(key);
    return Array.isArray(found) ? (found as readonly number[]) : [];
  };
  return {
    diameter,
    obstruction: number("telescope", "obstruction") ?? 0,
    pitch,
    wavefrontStep: pitch !== undefined && oversampling ? pitch / oversampling : undefined,
    guideStars: directions("guide_star"),
    targets: directions("target"),
    wavelengths: list("image", "wavelengths"),
    ensquared: list("image", "ensquared"),
    pixel: number("image", "pixel"),
    filter: number("reconstructor", "filter"),
  };
}

/** Direction of a star or target, given by its zenith angle [arcsec] and azimuth [degrees], from x to y. */
function directionOf({ entries }: Table): Direction {
  const number = (key: string) => {
    const value = entries.get(key);
    return typeof value === "number" ? value : 0;
  };
  const [zenith, azimuth] = [number("zenith"), (number("azimuth") * Math.PI) / 180];
  return { x: zenith * Math.cos(azimuth), y: zenith * Math.sin(azimuth) };
}

/** Facts of the system of a file; those of an empty text where it has none. */
export function factsOf(file: DataFile): SystemFacts {
  const attribute = file.attributes["system"];
  return systemFacts(file.text("system") ?? (typeof attribute === "string" ? attribute : ""));
}

/**
 * Directions [arcsec] of guide stars or targets: those of an array (star, component) [rad] of the file, by the first of the names that it
 * has, else those of the system's text.
 */
export async function directionsOf(file: DataFile, names: readonly string[], fallback: readonly Direction[]): Promise<readonly Direction[]> {
  const found = names.map((name) => file.array(name)).find((one) => one !== undefined && one.shape.length === 2 && one.shape[1] === 2);
  if (found === undefined) {
    return fallback;
  }
  const { re } = await found.all();
  return Array.from({ length: found.shape[0] }, (_, k) => ({ x: re[2 * k] / ARCSEC, y: re[2 * k + 1] / ARCSEC }));
}
