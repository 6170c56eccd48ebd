/** The probe of a scan in real and reciprocal space: its intensity and phase, its width, and the current within a radius. */

import { disposer, select } from "../controls";
import { type ArrayVariable, DataFile, formatNumber, uniform } from "../data";
import { h } from "../dom";
import { type Beam, beamOf } from "../microscopy/electrons";
import { brightest, fwhm, radial, radiusWithin } from "../microscopy/profiles";
import { brightestPlace, centred, intensity, reciprocal, type Wave, waveOf } from "../microscopy/waves";
import type { PanelContext, PanelFactory } from "../panel";
import { type Part, partOf, PARTS } from "../planes";
import { Card } from "../view";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import type { ImageData2D } from "../views/image.api";
import { blockAt, latest, leading, ofDimensions, SeriesChoice } from "./electron-parts";

/** Offers the probe of a file: `probe` (defocus, x, y), complex. */
export const probePanels: PanelFactory = (file) => {
  const variable = ofDimensions(file.array("probe"), ["x", "y"]);
  if (variable === undefined || !variable.complex) {
    return [];
  }
  return [{ id: "probe", title: "Probe", group: "Electrons", order: 60, open: (host, context) => openProbe(file, variable, host, context) }];
};

/** A part of a wave as an image; in reciprocal space by 1/Å or mrad. */
export function pictureOf(wave: Wave, part: Part, names: readonly [string, string], unit: string, quantity: string): ImageData2D {
  const isPhase = part === "phase";
  const axis = (k: 0 | 1) => uniform(names[k], unit, [wave.nx, wave.ny][k], wave.first[k], wave.steps[k]);
  return { values: partOf(wave.re, wave.im, part), nx: wave.nx, ny: wave.ny, x: axis(0), y: axis(1), quantity: `${quantity}, ${part}`, unit: isPhase ? "rad" : "", cyclic: isPhase };
}

/** A wave in reciprocal space with its axes in mrad. */
export function inMrad(wave: Wave, beam: Beam): Wave {
  const factor = 1 / (beam.perMrad ?? 1);
  const scaled = ([a, b]: readonly [number, number]) => [a * factor, b * factor] as const;
  return { ...wave, first: scaled(wave.first), steps: scaled(wave.steps) };
}

/** Where the scan of a file begins; undefined where the file has none. */
export function firstProbe(file: DataFile): readonly [number, number] | undefined {
  const scan = file.arrays().find((one) => /^(annular|annulus_\d+|four_d|centre_of_mass|segmented_\d+)$/.test(one.name) && one.axis("x") >= 0 && one.axis("y") >= 0);
  return scan && [scan.dimensions[scan.axis("x")].position(0), scan.dimensions[scan.axis("y")].position(0)];
}

async function openProbe(file: DataFile, variable: ArrayVariable, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  const { scope } = context;
  const beam = await beamOf(file);
  const series = new SeriesChoice(scope, leading([[variable, 2]]));
  const isPart = (name: string) => (PARTS as readonly string[]).includes(name);
  const [here, there] = [scope.cell("part", "intensity", isPart), scope.cell("part-reciprocal", "phase", isPart)];
  const axes = scope.cell("axes", beam.perMrad === undefined ? "1/Å" : "mrad", (name) => name === "1/Å" || (name === "mrad" && beam.perMrad !== undefined));
  const real = new ImageView({ scope: scope.child("real"), label: "Probe" });
  const inverse = new ImageView({ scope: scope.child("reciprocal"), label: "Probe in reciprocal space" });
  const profile = new CurveView({ scope: scope.child("profile"), label: "Radial profile of the probe" });
  const current = new CurveView({ scope: scope.child("current"), label: "Current within a radius" });
  const parts = PARTS.map((value) => ({ value, label: value }));
  const cards = {
    real: new Card("Probe", real, { fileName: "probe", controls: [select("Part", here, parts), ...series.controls()] }),
    inverse: new Card("Probe in reciprocal space", inverse, {
      fileName: "probe-reciprocal",
      controls: [select("Part", there, parts), ...(beam.perMrad === undefined ? [] : [select("Axes", axes, [{ value: "mrad", label: "mrad" }, { value: "1/Å", label: "1/Å" }])])],
    }),
    profile: new Card("Radial profile", profile, { fileName: "probe-profile" }),
    current: new Card("Current within a radius", current, { fileName: "probe-current" }),
  };
  host.append(h("div", { class: "cards" }, ...Object.values(cards).map((card) => card.element)));
  ends.add(...Object.values(cards).map((card) => () => card.destroy()));

  const [x, y] = variable.dimensions.slice(-2);
  const start = firstProbe(file);
  let shown: { wave: Wave; transform: Wave } | undefined;
  const drawReal = () => {
    if (shown !== undefined) {
      real.show(pictureOf(shown.wave, here.value as Part, ["x", "y"], x.unit || "Å", "probe"));
      cards.real.changed();
    }
  };
  const drawInverse = () => {
    if (shown !== undefined) {
      const isAngle = axes.value === "mrad";
      // A phase of what is dark is noise.
      const { re, im } = shown.transform;
      const values = intensity(shown.transform);
      const floor = values[brightest(values)] * 1e-9;
      const dark = there.value === "phase" ? { ...shown.transform, re: Float64Array.from(re, (one, k) => (values[k] < floor ? NaN : one)), im } : shown.transform;
      inverse.show(pictureOf(isAngle ? inMrad(dark, beam) : dark, there.value as Part, ["qx", "qy"], isAngle ? "mrad" : "1/Å", "aperture"));
      const alpha = beam.semiAngle;
      const radius = alpha === undefined || (!isAngle && beam.perMrad === undefined) ? undefined : isAngle ? alpha : alpha * (beam.perMrad as number);
      inverse.setShapes(radius === undefined ? [] : [{ kind: "circle", id: "disc", x: 0, y: 0, r: radius, label: `α ${formatNumber(radius, 3)} ${axes.value}`, dashed: true }]);
      cards.inverse.changed();
    }
  };
  const waveAt = async (first: readonly number[]): Promise<Wave> => {
    const { re, im } = await blockAt(variable, first);
    const wave = waveOf(re, im as Float64Array, x, y);
    return centred(wave, start ?? brightestPlace(wave));
  };
  const load = latest(context, async () => {
    const wave = await waveAt(series.of(variable, 2));
    shown = { wave, transform: reciprocal(wave) };
    drawReal();
    drawInverse();
  });
  // Curves of all foci
  const loadCurves = latest(context, async () => {
    const foci = variable.shape.length > 2 ? variable.dimensions[0] : undefined;
    const count = Math.min(foci?.count ?? 1, 8);
    const curves = [];
    for (let k = 0; k < count; k++) {
      const wave = await waveAt(variable.shape.slice(0, -2).map((_, n) => (n === 0 ? k : 0)));
      const values = intensity(wave);
      const top = brightest(values);
      const [i, j] = [top % wave.nx, Math.floor(top / wave.nx)];
      const rings = radial(values, wave, [0, 0], true);
      const all = rings.within[rings.within.length - 1];
      const widths = [fwhm(values.slice(j * wave.nx, (j + 1) * wave.nx), wave.steps[0], true), fwhm(Float64Array.from({ length: wave.ny }, (_, n) => values[n * wave.nx + i]), wave.steps[1], true)];
      const label = foci?.label(k) ?? "probe";
      const text = (value: number) => `${formatNumber(value, 3)} ${x.unit || "Å"}`;
      curves.push({ label, rings, share: rings.within.map((sum) => sum / all), note: `${label}: FWHM ${text(widths[0])} along x, ${text(widths[1])} along y; d50 ${text(2 * radiusWithin(rings, 0.5))}, d80 ${text(2 * radiusWithin(rings, 0.8))}.` });
    }
    const area = Math.abs(x.step * y.step);
    profile.show({ x: curves[0].rings.radius, xTitle: `radius [${x.unit || "Å"}]`, yTitle: `intensity [share per ${x.unit || "Å"}²]`, series: curves.map(({ label, rings }) => ({ label, values: rings.mean.map((one) => one / area) })) });
    current.show({ x: curves[0].rings.edge, xTitle: `radius [${x.unit || "Å"}]`, yTitle: "share of the current within", series: curves.map(({ label, share }) => ({ label, values: share })) });
    cards.current.setNote(curves.map((one) => one.note).join(" "));
    cards.profile.changed();
    cards.current.changed();
  });
  ends.add(here.subscribe(drawReal), there.subscribe(drawInverse), axes.subscribe(drawInverse), series.subscribe(load));
  load();
  loadCurves();
  return ends.end;
}
