/** Live figures of turbulence and correction. */

import { formatNumber, uniform } from "../../data";
import type { LiveFigure } from "../figure";
import { noiseGain, rejection } from "../physics/loop";
import { sinc } from "../physics/special";
import { VonKarman, fittingVariance, gradientCovariances, squareMetres } from "../physics/turbulence";
import { byDecades, evenly, inUnits } from "./common";
import { ARCSEC } from "../../units";

/** The wavelength of all Fried parameters of the book's examples [m]. */
const WAVELENGTH = 500e-9;

const phaseStructure: LiveFigure = {
  title: "Structure function of the phase",
  hint: "Shorten the outer scale: the curve leaves Kolmogorov's power law where the distance is still a small part of it. The Fried parameter only moves both curves up and down.",
  open(stage) {
    const outer = stage.number("Outer scale L₀", { min: 2, max: 200, step: 1, initial: 25, unit: "m" });
    const fried = stage.number("Fried parameter r₀", { min: 0.05, max: 1, step: 0.01, initial: 1, unit: "m" });
    const at = stage.number("Distance r", { min: 0.1, max: 20, step: 0.1, initial: 1, unit: "m" });
    const view = stage.curves("Structure function over distance");
    const x = byDecades(0.01, 100, 121);
    return () => {
      const strength = fried.value ** (-5 / 3);
      const [bounded, kolmogorov] = [new VonKarman(outer.value), new VonKarman(Infinity)];
      const curve = (phase: VonKarman) => x.map((r) => strength * phase.structureFunction(r));
      view.show({
        x, xTitle: "distance r [m]", yTitle: "structure function D(r) [rad²]", logX: true, logY: true,
        series: [
          { label: "Kolmogorov", values: curve(kolmogorov), style: "dashed" },
          { label: `L₀ = ${outer.value} m`, values: curve(bounded) },
        ],
      });
      view.setMarkers([{ x: at.value, label: "r" }]);
      const [found, power] = [bounded, kolmogorov].map((phase) => strength * phase.structureFunction(at.value));
      const limit = 2 * strength * bounded.covariance(0);
      return `D(${inUnits(at.value, "m")}) = ${inUnits(found, "rad²", 4)}, ${formatNumber((100 * found) / power, 3)} % of Kolmogorov's ${inUnits(power, "rad²", 4)}; the limit 2B(0) is ${inUnits(limit, "rad²", 4)}.`;
    };
  },
};

const slopeCovariance: LiveFigure = {
  title: "Slope covariance of two guide stars",
  keepsStill: true,
  hint: "Raise the layer: the peak of the covariance moves off by h Δθ/γ. With a laser guide star at 90 km the footprints shrink as well. A tomograph recognises the height of a layer by this displacement.",
  open(stage) {
    const height = stage.number("Height h of the layer", { min: 0, max: 16, step: 0.25, initial: 8, unit: "km" });
    const separation = stage.number("Separation Δθ", { min: 0, max: 90, step: 1, initial: 50, unit: "″" });
    const side = stage.number("Lenslet d", { min: 0.2, max: 1, step: 0.05, initial: 0.5, unit: "m" });
    const fried = stage.number("Fried parameter r₀", { min: 0.05, max: 0.4, step: 0.01, initial: 0.15, unit: "m" });
    const outer = stage.number("Outer scale L₀", { min: 5, max: 100, step: 1, initial: 25, unit: "m" });
    const component = stage.choice("Component", [
      { value: "xx", label: "x slopes with x slopes" },
      { value: "xy", label: "x slopes with y slopes" },
      { value: "yy", label: "y slopes with y slopes" },
    ]);
    const laser = stage.flag("Laser guide stars at 90 km", false);
    const map = stage.image("Covariance over the displacement ρ");
    const cut = stage.curves("Cut along x");
    const lenslets = 12;
    const count = 2 * lenslets - 1;
    return () => {
      const gamma = laser.value ? 1 - height.value / 90 : 1;
      const d = side.value;
      const footprint = gamma * d;
      const offset = 1e3 * height.value * separation.value * ARCSEC;
      const first = [offset - (lenslets - 1) * footprint, -(lenslets - 1) * footprint] as const;
      const found = gradientCovariances(new VonKarman(outer.value), footprint, first, [count, count]);
      const strength = squareMetres(fried.value, WAVELENGTH) * gamma * gamma;
      const variance = strength * gradientCovariances(new VonKarman(outer.value), footprint, [0, 0], [1, 1]).xx[0];
      const name = component.value as "xx" | "xy" | "yy";
      const values = found[name].map((value) => strength * value);
      const axis = (label: string) => uniform(label, "m", count, -(lenslets - 1) * d, d);
      map.show({ values, nx: count, ny: count, x: axis("displacement ρx"), y: axis("displacement ρy"), quantity: "slope covariance", unit: "rad²", signed: true });
      const x = evenly(-(lenslets - 1) * d, (lenslets - 1) * d, count);
      const row = (lenslets - 1) * count;
      cut.show({ x, xTitle: "displacement ρx [m]", yTitle: "slope covariance [rad²]", series: [{ label: `${name}, ρy = 0`, values: values.slice(row, row + count), unit: "rad²" }] });
      cut.setMarkers([{ x: -offset / gamma, label: "−hΔθ/γ" }]);
      return `The two footprints are displaced by hΔθ = ${inUnits(offset, "m")} on the layer, where a lenslet has a side of ${inUnits(footprint, "m")}: the peak is at ρx = ${inUnits(-offset / gamma, "m")}. The variance of a slope is ${inUnits(variance, "rad²")}.`;
    };
  },
};

const aliasedRipple: LiveFigure = {
  title: "A ripple and its alias on a lenslet array",
  hint: "Raise the frequency of the ripple beyond half a period per lenslet: its values at the lenslet edges, and so its mean slopes, become those of a slower wave. At a whole number of periods the sensor sees nothing.",
  open(stage) {
    const frequency = stage.number("Periods per lenslet", { min: 0.05, max: 2, step: 0.01, initial: 0.75 });
    const shift = stage.number("Phase", { min: 0, max: 360, step: 5, initial: 35, unit: "°" });
    const view = stage.curves("Wavefront over eight lenslets", 260);
    const x = evenly(0, 8, 801);
    const edges = evenly(0, 8, 9);
    return () => {
      const f = frequency.value;
      const phase = (shift.value * Math.PI) / 180;
      const alias = f - Math.round(f);
      const wave = (periods: number) => (at: number) => Math.sin(2 * Math.PI * periods * at + phase);
      view.show({
        x, xTitle: "position [lenslets]", yTitle: "wavefront [amplitude of the ripple]",
        series: [
          { label: "ripple", values: x.map(wave(f)) },
          { label: "slow wave with the same slopes", values: x.map(wave(alias)), style: "dashed" },
          { label: "mean slopes", x: edges, values: edges.map(wave(f)) , style: "line" },
        ],
      });
      view.setMarkers([]);
      const share = Math.abs(sinc(f));
      const seen = Math.abs(alias) < Math.abs(f) - 1e-9 ? `it is taken for a wave of ${formatNumber(Math.abs(alias), 3)} periods per lenslet` : "it is slow enough to be seen as it is";
      return `Averaging over a lenslet keeps ${formatNumber(100 * share, 3)} % of the slope of this ripple, and ${seen}.`;
    };
  },
};

const fittingSpectrum: LiveFigure = {
  title: "Fitting error of a mirror",
  hint: "Halve the pitch: the limit 1/2p doubles, and the error shrinks by a factor of 1.78. The outer scale hardly matters, since it changes the spectrum only far below the limit.",
  open(stage) {
    const pitch = stage.number("Pitch p", { min: 0.1, max: 1.5, step: 0.05, initial: 0.5, unit: "m" });
    const fried = stage.number("Fried parameter r₀", { min: 0.05, max: 0.4, step: 0.01, initial: 0.15, unit: "m" });
    const outer = stage.number("Outer scale L₀", { min: 2, max: 100, step: 1, initial: 25, unit: "m" });
    const band = stage.choice("Image at", [["0.64", "0.64 µm (R)"], ["1.25", "1.25 µm (J)"], ["1.65", "1.65 µm (H)"], ["2.2", "2.2 µm (K)"]].map(([value, label]) => ({ value, label })), "1.65");
    const view = stage.curves("Power spectrum along an axis");
    return () => {
      const limit = 0.5 / pitch.value;
      const phase = new VonKarman(outer.value);
      const scale = 1e18 * squareMetres(fried.value, WAVELENGTH);
      const [below, beyond] = [byDecades(0.01, limit, 161), byDecades(limit, 20, 161)];
      const part = (label: string, at: Float64Array, style: "line" | "dashed") => ({ label, x: at, values: at.map((f) => scale * phase.powerSpectrum(f * f)), style });
      view.show({
        x: below, xTitle: "spatial frequency f [1/m]", yTitle: "power spectrum w [nm² m²]", logX: true, logY: true,
        series: [
          part("corrected", below, "dashed"),
          part("fitting error", beyond, "line"),
        ],
      });
      view.setMarkers([{ x: limit, label: "1/2p" }, { x: 1 / outer.value, label: "1/L₀" }]);
      const rms = 1e9 * Math.sqrt(fittingVariance(fried.value, WAVELENGTH, outer.value, pitch.value));
      const strehl = Math.exp(-(((2 * Math.PI * rms) / (1e3 * Number(band.value))) ** 2));
      return `The fitting error is ${inUnits(rms, "nm", 4)} rms. Alone it leaves a Strehl ratio of ${formatNumber(strehl, 3)} at ${band.value} µm.`;
    };
  },
};

const servoLag: LiveFigure = {
  title: "Residual power behind a control loop",
  hint: "Raise the gain of the closed loop: slow waves are suppressed better, the peak near a tenth of the rate grows, and so does the noise gain, until the loop is unstable. Then lengthen the delay.",
  open(stage) {
    const rate = stage.number("Rate", { min: 100, max: 2000, step: 50, initial: 500, unit: "Hz" });
    const gain = stage.number("Gain g", { min: 0.05, max: 1, step: 0.01, initial: 0.5 });
    const delay = stage.number("Delay δ", { min: 1, max: 5, step: 0.1, initial: 2, unit: "frames" });
    const wind = stage.number("A wave passes at", { min: 1, max: 100, step: 1, initial: 5, unit: "Hz" });
    const view = stage.curves("Residual share of a wave's power");
    return () => {
      const x = byDecades(0.5, rate.value / 2, 301);
      const open = { rate: rate.value, gain: null, delay: delay.value };
      const closed = { ...open, gain: gain.value };
      const noise = noiseGain(closed);
      const stable = Number.isFinite(noise);
      const series = [{ label: "open", values: x.map((f) => rejection(open, f)), style: "dashed" as const }];
      view.show({
        x, xTitle: "temporal frequency ν [Hz]", yTitle: "residual share of the power |E|²", logX: true, logY: true,
        series: stable ? [...series, { label: `closed, gain ${formatNumber(gain.value, 2)}`, values: x.map((f) => rejection(closed, f)) }] : series,
      });
      view.setMarkers([{ x: wind.value, label: `${wind.value} Hz` }]);
      const share = (loop: typeof open | typeof closed) => `${formatNumber(rejection(loop, wind.value), 3)}`;
      return stable
        ? `At ${wind.value} Hz the closed loop leaves ${share(closed)} of the power and the open loop ${share(open)}. The noise gain of the closed loop is ${formatNumber(noise, 3)}.`
        : `With this delay a gain of ${formatNumber(gain.value, 2)} is unstable: the strokes grow without end. The open loop leaves ${share(open)} of the power at ${wind.value} Hz.`;
    };
  },
};

export const atmosphereFigures: Readonly<Record<string, LiveFigure>> = {
  "phase-structure": phaseStructure,
  "slope-covariance": slopeCovariance,
  "aliased-ripple": aliasedRipple,
  "fitting-spectrum": fittingSpectrum,
  "servo-lag": servoLag,
};
