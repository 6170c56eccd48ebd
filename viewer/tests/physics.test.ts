import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  aberrationPhase, aberrationTerms, contrastTransfer, debyeWaller, interactionConstant, probeIntensity, projectedPotential, scatteringFactor, scherzerDefocus,
} from "../src/live/physics/electrons";
import { electronWavelength } from "../src/microscopy/electrons";
import { noiseGain, rejection } from "../src/live/physics/loop";
import { displacementOf, philox } from "../src/live/physics/phonons";
import { besselK, gamma, gaussLegendre, sinc } from "../src/live/physics/special";
import { longExposure, pointSpreadCut, strehlRatio, telescopeTransfer, transferCut } from "../src/live/physics/transfer";
import { VonKarman, fittingVariance, gradientCovariances, squareMetres } from "../src/live/physics/turbulence";

/** What the library computes: written by tests/live.rs. */
const reference = JSON.parse(readFileSync(new URL("../../tests/reference/physics.json", import.meta.url), "utf8")) as Reference;

interface Reference {
  specialFunctions: { arguments: number[]; orders: number[]; bessel: number[][] };
  phase: { distances: number[]; cases: { outerScale: number | null; structure: number[]; covariance: (number | null)[]; halfMean: number[]; spectrum: (number | null)[] }[] };
  slopes: { outerScale: number | null; side: number; first: [number, number]; shape: [number, number]; xx: number[]; xy: number[]; yy: number[] }[];
  fitting: { r0: number; wavelength: number; outerScale: number | null; pitch: number; variance: number }[];
  transfers: {
    diameter: number; obstruction: number; r0: number; r0Wavelength: number; outerScale: number | null; wavelength: number; samples: number;
    telescope: number[]; transfer: number[]; strehl: number; angles: number[]; pointSpread: number[];
  }[];
  loops: { frequencies: number[]; cases: { rate: number; gain: number | null; delay: number; rejection: number[]; noiseGain: number | null }[] };
  probes: {
    energies: number[]; wavelengths: number[]; interactions: number[];
    cases: {
      energy: number; semiAngle: number; c1: number; c3: number; c12: number; phi12: number; c21: number; phi21: number;
      frequencies: [number, number][]; phases: number[]; samples: number; length: number; points: [number, number][]; intensity: number[];
    }[];
  };
  contrastTransfers: { energy: number; c1: number; c3: number; focalSpread: number; convergence: number; frequencies: number[]; contrast: number[]; envelope: number[] }[];
  scattering: { frequencies: number[]; distances: number[]; cases: { symbol: string; parameters: number[]; factor: number[]; projected: number[] }[] };
  phonons: { seed: number; configuration: number; normal: [number, number, number][] }[];
}

/** Infinity is null in the file. */
const scale = (outer: number | null) => outer ?? Infinity;

/** Fails where numbers differ by more than 1e-6 of each, or of `least` where they are smaller. */
function close(found: ArrayLike<number>, expected: readonly (number | null)[], what: string, least = 0): void {
  assert.equal(found.length, expected.length, what);
  expected.forEach((value, k) => {
    const [a, b] = [found[k], value ?? Infinity];
    const ok = a === b || Math.abs(a - b) <= 1e-6 * Math.max(Math.abs(b), least);
    assert.ok(ok, `${what}[${k}]: ${a} here, ${b} in the library`);
  });
}

const largest = (values: readonly number[]) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

test("special functions", () => {
  const { arguments: x, orders, bessel } = reference.specialFunctions;
  orders.forEach((order, k) => close(x.map((one) => besselK(order, one)), bessel[k], `K of order ${order}`));
  // Γ(1/2) = √π, Γ(5) = 24 and the reflection Γ(x) Γ(1 − x) = π / sin πx.
  close([gamma(0.5) ** 2, gamma(5), gamma(0.3) * gamma(0.7)], [Math.PI, 24, Math.PI / Math.sin(0.3 * Math.PI)], "gamma");
  const { nodes, weights } = gaussLegendre(7);
  close([0, 12, 13].map((power) => nodes.reduce((sum, node, k) => sum + weights[k] * node ** power, 0)), [2, 2 / 13, 0], "Gauss's rule", 1);
  close([sinc(0), sinc(0.5), sinc(3)], [1, 2 / Math.PI, 0], "sinc", 1);
});

test("phase statistics", () => {
  const { distances, cases } = reference.phase;
  for (const { outerScale, structure, covariance, halfMean, spectrum } of cases) {
    const phase = new VonKarman(scale(outerScale));
    const what = (name: string) => `${name} for L0 = ${outerScale} m`;
    close(distances.map((r) => phase.structureFunction(r)), structure, what("structure function"));
    close(distances.map((r) => phase.covariance(r)), covariance, what("covariance"));
    close(distances.map((r) => phase.halves(r)[1]), halfMean, what("half mean"));
    close(distances.map((f) => phase.powerSpectrum(f * f)), spectrum, what("spectrum"));
  }
});

test("slope covariances by edge integrals", () => {
  for (const { outerScale, side, first, shape, xx, xy, yy } of reference.slopes) {
    const found = gradientCovariances(new VonKarman(scale(outerScale)), side, first, shape);
    const most = largest([...xx, ...xy, ...yy]);
    close(found.xx, xx, "xx", most);
    close(found.xy, xy, "xy", most);
    close(found.yy, yy, "yy", most);
  }
});

test("fitting error", () => {
  const { fitting } = reference;
  close(fitting.map(({ r0, wavelength, outerScale, pitch }) => fittingVariance(r0, wavelength, scale(outerScale), pitch)), fitting.map((one) => one.variance), "variance");
});

test("transfer functions and images of annular telescopes", () => {
  for (const one of reference.transfers) {
    const telescope = telescopeTransfer(one.diameter, one.obstruction, one.samples);
    const phase = new VonKarman(scale(one.outerScale));
    const strength = squareMetres(one.r0, one.r0Wavelength);
    const seen = longExposure(telescope, (rho) => strength * phase.structureFunction(rho), one.wavelength);
    close(transferCut(telescope).values, one.telescope, "telescope", 1e-3);
    close(transferCut(seen).values, one.transfer, "long exposure", 1e-6);
    close([strehlRatio(seen, telescope)], [one.strehl], "Strehl ratio");
    close(pointSpreadCut(seen, telescope, one.wavelength, one.angles), one.pointSpread, "point-spread function");
  }
});

test("control loops", () => {
  const { frequencies, cases } = reference.loops;
  for (const { rate, gain, delay, rejection: expected, noiseGain: noise } of cases) {
    const loop = { rate, gain, delay };
    close(frequencies.map((frequency) => rejection(loop, frequency)), expected, `rejection of ${JSON.stringify(loop)}`);
    close([noiseGain(loop)], [noise], `noise gain of ${JSON.stringify(loop)}`);
  }
});

test("electron beams, aberrations and probes", () => {
  const { energies, wavelengths, interactions, cases } = reference.probes;
  close(energies.map(electronWavelength), wavelengths, "wavelength");
  close(energies.map(interactionConstant), interactions, "interaction constant");
  for (const { energy, semiAngle, frequencies, phases, samples, length, points, intensity, ...lens } of cases) {
    const wavelength = electronWavelength(energy);
    const terms = aberrationTerms(lens, wavelength);
    close(frequencies.map(([x, y]) => aberrationPhase(terms, wavelength, x, y)), phases, "aberration phase");
    const probe = probeIntensity({ energy, semiAngle, lens }, samples, length);
    const at = ([x, y]: [number, number]) => probe[(samples / 2 + y) * samples + samples / 2 + x];
    close(points.map(at), intensity, "probe", 1e-3 * largest(intensity));
    close([probe.reduce((sum, value) => sum + value, 0) * (length / samples) ** 2], [1], "electrons of a probe");
  }
  // Scherzer's defocus is where the phase has its minimum −3π/4, at α² = −C₁/C₃.
  const [c3, wavelength] = [1e7, electronWavelength(200)];
  const c1 = scherzerDefocus(c3, wavelength);
  close([aberrationPhase(aberrationTerms({ c1, c3 }, wavelength), wavelength, Math.sqrt(-c1 / c3) / wavelength, 0)], [-0.75 * Math.PI], "Scherzer's phase");
});

test("contrast transfer functions with envelopes", () => {
  for (const { frequencies, contrast, envelope, ...microscope } of reference.contrastTransfers) {
    const found = frequencies.map((q) => contrastTransfer(microscope, q));
    close(found.map((one) => one.contrast * one.temporal * one.spatial), contrast, "contrast", 1e-6);
    close(found.map((one) => one.temporal * one.spatial), envelope, "envelope", 1e-6);
  }
});

test("scattering factors and projected potentials", () => {
  const { frequencies, distances, cases } = reference.scattering;
  for (const { symbol, parameters, factor, projected } of cases) {
    close(frequencies.map((q) => scatteringFactor(parameters, q)), factor, `factor of ${symbol}`);
    close(distances.map((r) => projectedPotential(parameters, r)), projected, `potential of ${symbol}`);
  }
});

test("frozen phonons are those of the library", () => {
  assert.deepEqual(philox([0, 0, 0, 0], [0, 0]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
  assert.deepEqual(philox([0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff], [0xffffffff, 0xffffffff]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
  for (const { seed, configuration, normal } of reference.phonons) {
    normal.forEach((expected, atom) => close(displacementOf(seed, configuration, atom), expected, `atom ${atom} of seed ${seed}`, 1e-3));
  }
  // The mean of cos 2πqδ over many displacements is the Debye–Waller factor.
  const [q, u, count] = [1.3, 0.1, 20000];
  const mean = Array.from({ length: count }, (_, k) => Math.cos(2 * Math.PI * q * u * displacementOf(5, 0, k)[0])).reduce((a, b) => a + b) / count;
  assert.ok(Math.abs(mean - debyeWaller(q, u)) < 0.01, `${mean}`);
});
