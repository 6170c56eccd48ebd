/** Electrons of a microscope: wavelength, angles and what a file says about its beam. */

import type { DataFile, Dimension } from "../data";

const PLANCK = 6.62607e-34;
export const MASS = 9.109383e-31;
export const CHARGE = 1.602177e-19;
export const LIGHT = 299792458;

/** Relativistic wavelength [Å] of electrons of an energy [keV]. */
export function electronWavelength(energy: number): number {
  const joule = CHARGE * energy * 1e3;
  return (1e10 * PLANCK) / Math.sqrt(2 * MASS * joule * (1 + joule / (2 * MASS * LIGHT ** 2)));
}

/** The beam of a file. */
export interface Beam {
  /** Energy [keV]; undefined where the file does not tell. */
  readonly energy: number | undefined;
  /** Convergence semi-angle [mrad]; undefined where the file does not tell, or the wave is plane. */
  readonly semiAngle: number | undefined;
  /** Frequency [1/Å] of an angle of 1 mrad; undefined where neither the energy nor an axis tells. */
  readonly perMrad: number | undefined;
}

/** A number among the attributes of a file, or its variable with a single element. */
export async function fact(file: DataFile, name: string): Promise<number | undefined> {
  const attribute = file.attributes[name];
  if (typeof attribute === "number") {
    return attribute;
  }
  const variable = file.array(name);
  return variable?.size === 1 && !variable.complex ? (variable.array.samples?.[0] ?? (await variable.all()).re[0]) : undefined;
}

/** The beam of a file, of its attributes `beam_energy` (keV; numbers above 5000 are eV) and `convergence_angle` (mrad). */
export async function beamOf(file: DataFile): Promise<Beam> {
  const [given, angle] = await Promise.all([fact(file, "beam_energy"), fact(file, "convergence_angle")]);
  const energy = given !== undefined && given > 0 ? (given > 5000 ? given / 1000 : given) : undefined;
  const second = file.array("annular")?.dimensions.at(-1)?.entry.second;
  const perMrad = energy !== undefined ? 1e-3 / electronWavelength(energy) : second?.unit === "1/Å" ? second.factor : undefined;
  return { energy, semiAngle: angle !== undefined && angle > 0 ? angle : undefined, perMrad };
}

/** How many of `unit` (mrad or 1/Å) one of a dimension's own unit is; undefined where it cannot be told. */
export function inUnit(dimension: Dimension, unit: string, beam: Beam): number | undefined {
  if (dimension.unit === unit) {
    return 1;
  }
  if (beam.perMrad !== undefined && dimension.unit === "1/Å" && unit === "mrad") {
    return 1 / beam.perMrad;
  }
  return beam.perMrad !== undefined && dimension.unit === "mrad" && unit === "1/Å" ? beam.perMrad : undefined;
}
