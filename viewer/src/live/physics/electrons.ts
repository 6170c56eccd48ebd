/** Electron optics: the chapters "Electron probe and aberrations", "HRTEM imaging" and "Electron scattering factors". */

import { CHARGE, electronWavelength, LIGHT, MASS } from "../../microscopy/electrons";
import { inverseTransform } from "./fft";
import { besselK } from "./special";

/** Interaction constant σ [rad/(V Å)] of electrons of an energy [keV]. */
export function interactionConstant(energy: number): number {
  const [kinetic, rest] = [1e3 * energy * CHARGE, MASS * LIGHT * LIGHT];
  return ((2 * Math.PI) / (electronWavelength(energy) * 1e3 * energy)) * ((rest + kinetic) / (2 * rest + kinetic));
}

/** A term of the aberration phase: `magnitude` [rad] (λq)^order cos fold (θ − angle [rad]). */
export interface AberrationTerm {
  readonly order: number;
  readonly fold: number;
  readonly magnitude: number;
  readonly angle: number;
}

/** Aberrations [Å] in abTEM's and the book's signs: `c1` (positive is overfocus), `c3`, and the magnitudes [Å] and azimuths [rad] of astigmatism C₁₂ and coma C₂₁. */
export interface Lens {
  readonly c1?: number;
  readonly c3?: number;
  readonly c12?: number;
  readonly phi12?: number;
  readonly c21?: number;
  readonly phi21?: number;
}

/** The terms of a lens at a wavelength [Å]. */
export function aberrationTerms({ c1 = 0, c3 = 0, c12 = 0, phi12 = 0, c21 = 0, phi21 = 0 }: Lens, wavelength: number): AberrationTerm[] {
  const unit = (2 * Math.PI) / wavelength;
  return [
    { order: 2, fold: 0, magnitude: (unit * c1) / 2, angle: 0 },
    { order: 4, fold: 0, magnitude: (unit * c3) / 4, angle: 0 },
    { order: 2, fold: 2, magnitude: (unit * c12) / 2, angle: phi12 },
    { order: 3, fold: 1, magnitude: (unit * c21) / 3, angle: phi21 },
  ];
}

/** The phase χ [rad] at a frequency (x, y) [1/Å]; a wave is multiplied by exp(−iχ). */
export function aberrationPhase(terms: readonly AberrationTerm[], wavelength: number, x: number, y: number): number {
  const [sine, theta] = [wavelength * Math.hypot(x, y), Math.atan2(y, x)];
  return terms.reduce((sum, { order, fold, magnitude, angle }) => sum + magnitude * sine ** order * Math.cos(fold * (theta - angle)), 0);
}

/** Defocus of Scherzer [Å] for a C₃ [Å] and a wavelength [Å]: −√(1.5 C₃ λ). */
export function scherzerDefocus(c3: number, wavelength: number): number {
  return -Math.sqrt(1.5 * c3 * wavelength);
}

/** A microscope that images a weak phase. Energy in keV, lengths in Å, convergence (rms) in mrad. */
export interface Microscope {
  readonly energy: number;
  readonly c1: number;
  readonly c3: number;
  readonly focalSpread: number;
  readonly convergence: number;
}

/** sin χ and the envelopes of temporal and spatial coherence at a frequency q [1/Å]. */
export function contrastTransfer({ energy, c1, c3, focalSpread, convergence }: Microscope, q: number): { contrast: number; temporal: number; spatial: number } {
  const wavelength = electronWavelength(energy);
  const phase = Math.PI * wavelength * q * q * (c1 + 0.5 * c3 * (wavelength * q) ** 2);
  const slope = 2 * Math.PI * wavelength * q * (c1 + c3 * (wavelength * q) ** 2);
  const temporal = Math.exp(-0.5 * (Math.PI * wavelength * focalSpread * q * q) ** 2);
  const spatial = Math.exp(-0.5 * (((1e-3 * convergence) / wavelength) * slope) ** 2);
  return { contrast: Math.sin(phase), temporal, spatial };
}

/** Transmission of an aperture of radius `radius` [1/Å] at a frequency, on a grid of cells `step` [1/Å]: its edge is as soft as a cell. */
export function softAperture(radius: number, x: number, y: number, step: number): number {
  const length = Math.hypot(x, y);
  return length === 0 ? 1 : Math.min(1, Math.max(0, (radius - length) / step + 0.5));
}

/** A probe: energy [keV], convergence semi-angle [mrad], lens. */
export interface Probe {
  readonly energy: number;
  readonly semiAngle: number;
  readonly lens: Lens;
}

/**
 * Intensity [1/Å²] of a probe on `samples`² points (a power of 2) of a periodic cell of the side `length` [Å], the probe in the middle
 * (point samples/2); as the library's waves, it has the frequencies of half of the band, and its integral is 1.
 */
export function probeIntensity({ energy, semiAngle, lens }: Probe, samples: number, length: number): Float64Array {
  const wavelength = electronWavelength(energy);
  const terms = aberrationTerms(lens, wavelength);
  const [step, radius, quarter] = [1 / length, (1e-3 * semiAngle) / wavelength, samples / 4];
  const [re, im] = [new Float64Array(samples * samples), new Float64Array(samples * samples)];
  let norm = 0;
  for (let l = -quarter; l < quarter; l++) {
    for (let k = -quarter; k < quarter; k++) {
      const [x, y] = [k * step, l * step];
      const through = softAperture(radius, x, y, step);
      if (through > 0) {
        norm += through * through;
        // The factor (−1)^(k + l) moves the probe from the corner to the middle.
        const phase = -aberrationPhase(terms, wavelength, x, y) + Math.PI * (k + l);
        const at = ((l + samples) % samples) * samples + ((k + samples) % samples);
        re[at] = through * Math.cos(phase);
        im[at] = through * Math.sin(phase);
      }
    }
  }
  inverseTransform(re, im, samples);
  return re.map((a, k) => (a * a + im[k] * im[k]) / (norm * length * length));
}

/** 2π e a₀ [V Å²], from scattering factors [Å] to potentials. */
const VOLTS = 2 * Math.PI * 14.4 * 0.5292;

/** The twelve parameters a₁, b₁, a₂, b₂, a₃, b₃, c₁, d₁, c₂, d₂, c₃, d₃ of an element in Kirkland's table. */
export type Kirkland = readonly number[];

/** Scattering factor fₑ [Å] at a frequency q [1/Å]. */
export function scatteringFactor(parameters: Kirkland, q: number): number {
  return [0, 2, 4].reduce((sum, k) => sum + parameters[k] / (q * q + parameters[k + 1]) + parameters[k + 6] * Math.exp(-parameters[k + 7] * q * q), 0);
}

/** Potential integrated along a line at a distance r > 0 [Å] from the nucleus [V Å]. */
export function projectedPotential(parameters: Kirkland, r: number): number {
  const sum = [0, 2, 4].reduce((sum, k) => {
    const pole = 2 * Math.PI * parameters[k] * besselK(0, 2 * Math.PI * Math.sqrt(parameters[k + 1]) * r);
    const gaussian = ((Math.PI * parameters[k + 6]) / parameters[k + 7]) * Math.exp((-Math.PI * Math.PI * r * r) / parameters[k + 7]);
    return sum + pole + gaussian;
  }, 0);
  return VOLTS * sum;
}

/** Debye–Waller factor exp(−2π²q²u²) of a reflection's amplitude at q [1/Å] for displacements of u rms along each axis [Å]. */
export function debyeWaller(q: number, displacement: number): number {
  return Math.exp(-2 * (Math.PI * q * displacement) ** 2);
}
