/** What a file tells of its point-spread functions beside their numbers: by TIPTOP's cards, or by the system's text. */

import type { ArrayVariable, DataFile } from "../data";
import type { AttributeValue } from "../manifest";
import { factsOf } from "./system";

/** An attribute by its name in capitals or not: FITS has them in capitals, as "WL_NM", other formats as they were given. */
function attribute(array: ArrayVariable, name: string): AttributeValue | undefined {
  const found = Object.keys(array.attributes).find((key) => key.toUpperCase() === name);
  return found === undefined ? undefined : array.attributes[found];
}

function numberOf(value: AttributeValue | undefined): number | undefined {
  const number = typeof value === "number" ? value : typeof value === "string" && value.trim() !== "" ? Number(value) : NaN;
  return Number.isFinite(number) ? number : undefined;
}

/** What the file tells of the images, beside their numbers. */
export interface PsfFacts {
  /** Wavelengths [m]; undefined where the file does not tell them. */
  readonly wavelengths: readonly (number | undefined)[];
  /** Side of a pixel [mas]. */
  readonly pixel: number | undefined;
  /** Direction of a target [arcsec]. */
  direction(target: number): readonly [number, number] | undefined;
  /** Numbers that the file has of a target at a wavelength: Strehl ratio, full width at half maximum [mas], residual [nm]. */
  strehl(target: number, wave: number): number | undefined;
  fwhm(target: number, wave: number): number | undefined;
  residual(target: number): number | undefined;
  /** Side of the box [mas], where the file tells it, and the share of the light in it. */
  ensquared(target: number, wave: number): readonly [side: number | undefined, share: number] | undefined;
}

/** Facts by TIPTOP's cards, else by the system's text. */
export function psfFacts(file: DataFile, array: ArrayVariable, waves: number): PsfFacts {
  const system = factsOf(file);
  const card = (name: string) => numberOf(attribute(array, name));
  const digits = (k: number, count: number) => String(k).padStart(count, "0");
  const of = (one: string, several: string, t: number, w: number) => (waves === 1 ? card(`${one}${digits(t, 4)}`) : card(`${several}${digits(t, 2)}W${digits(w, 2)}`));
  const wavelength = (w: number) => {
    const nm = waves === 1 ? card("WL_NM") : card(`WL_NM${digits(w, 3)}`);
    return nm === undefined ? system.wavelengths[w] : nm * 1e-9;
  };
  return {
    wavelengths: Array.from({ length: waves }, (_, w) => wavelength(w)),
    pixel: card("PIX_MAS") ?? system.pixel,
    direction: (t) => {
      const [x, y] = [card(`CCX${digits(t, 4)}`), card(`CCY${digits(t, 4)}`)];
      const other = system.targets[t];
      return x !== undefined && y !== undefined ? [x, y] : other && [other.x, other.y];
    },
    strehl: (t, w) => of("SR", "SR", t, w),
    fwhm: (t, w) => of("FWHM", "FW", t, w),
    residual: (t) => card(`RESH${digits(t, 4)}`),
    ensquared: (t, w) => {
      if (waves > 1) {
        const share = card(`EE${digits(t, 2)}W${digits(w, 2)}`);
        return share === undefined ? undefined : [undefined, share];
      }
      // "EE" with half the side in mas, then the number of the target in four digits.
      const key = Object.keys(array.attributes).find((name) => new RegExp(`^EE\\d+${digits(t, 4)}$`, "i").test(name));
      const share = key && numberOf(array.attributes[key]);
      return key && typeof share === "number" ? [2 * Number(key.slice(2, -4)), share] : undefined;
    },
  };
}
