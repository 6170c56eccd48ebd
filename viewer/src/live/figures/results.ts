/** Live figures that choose among results which the program has computed. */

import { formatNumber, uniform } from "../../data";
import type { LiveFigure } from "../figure";
import { evenly, inUnits } from "./common";

/** Images of a star for each set of terms of an error budget; see `book/examples/image.rs`. */
interface BudgetResults {
  /** Names of the terms, with their rms [nm]. */
  readonly terms: readonly { readonly name: string; readonly rms: number }[];
  /** Pixel of the images [mas], and pixels along a side of the quarter of the sky that begins at the star. */
  readonly pixel: number;
  readonly side: number;
  /** By sets of terms, term k being bit k: total rms [nm], Strehl ratio, and log₁₀ of the light in thousandths, (side, side). */
  readonly images: readonly { readonly total: number; readonly strehl: number; readonly light: readonly number[] }[];
}

const errorBudget: LiveFigure = {
  title: "Image of a star by error terms",
  hint: "Switch terms on and off. The jitter widens the core and leaves no halo; the fitting error keeps the core and makes a halo beyond the dark square of the mirror. Variances add, so the largest term decides.",
  open(stage) {
    const { terms, pixel, side, images } = stage.data("live-error-budget.json") as BudgetResults;
    const chosen = terms.map(({ name, rms }) => stage.flag(`${name}, ${formatNumber(rms, 3)} nm`, true));
    const image = stage.image("Image of the star");
    const cut = stage.curves("Cut along x");
    const pixels = 2 * side - 1;
    const row = (set: number) => Float64Array.from(images[set].light.slice(0, side), (code) => 10 ** (code / 1000));
    return () => {
      const set = chosen.reduce((sum, flag, k) => sum + (flag.value ? 1 << k : 0), 0);
      const { total, strehl, light } = images[set];
      const at = (k: number) => Math.abs(k - side + 1);
      const values = Float64Array.from({ length: pixels * pixels }, (_, k) => light[at(Math.floor(k / pixels)) * side + at(k % pixels)] / 1000);
      const axis = (name: string) => uniform(name, "mas", pixels, (1 - side) * pixel, pixel);
      image.show({ values, nx: pixels, ny: pixels, x: axis("x"), y: axis("y"), quantity: "log₁₀ of the light", unit: "", signed: false });
      cut.show({
        x: evenly(0, (side - 1) * pixel, side), xTitle: "angle [mas]", yTitle: "light [maximum of the perfect image]", logY: true,
        series: [
          { label: "with the chosen terms", values: row(set) },
          { label: "perfect", values: row(0), style: "dashed" },
        ],
      });
      return `The chosen terms have ${inUnits(total, "nm", 4)} rms together, and the Strehl ratio is ${formatNumber(strehl, 3)} at 1.65 µm.`;
    };
  },
};

/** Share of the electrons in rings; see `book/examples/electron-scans.rs`. */
interface RingResults {
  /** Step of the scan [Å] and its positions along x and y. */
  readonly step: number;
  readonly counts: readonly [number, number];
  /** Width of a ring [mrad]. */
  readonly width: number;
  /** By position (x, y): the share in each ring, in millionths. */
  readonly rings: readonly (readonly number[])[];
}

const annularDetector: LiveFigure = {
  title: "Annular detectors on one scan",
  hint: "Begin with an annular bright field, from 9 to 21 mrad: columns are dark. Move both angles beyond the cone of 20 mrad, and the contrast reverses. Far outside only electrons that passed close to a nucleus are left, and the columns stand alone.",
  open(stage) {
    const { step, counts, width, rings } = stage.data("live-silicon-rings.json") as RingResults;
    const last = rings[0].length * width;
    const inner = stage.number("Inner angle a₁", { min: 0, max: last - width, step: width, initial: 60, unit: "mrad" });
    const outer = stage.number("Outer angle a₂", { min: width, max: last, step: width, initial: 90, unit: "mrad" });
    const cells = stage.flag("Two by two cells", false);
    const image = stage.image("Share of the electrons on the detector");
    const angles = stage.curves("Share by angle");
    const [nx, ny] = counts;
    const outside = rings.map((ring) => ring.slice(Math.round(60 / width)).reduce((sum, share) => sum + share, 0));
    const on = outside.indexOf(Math.max(...outside));
    const off = outside.indexOf(Math.min(...outside));
    return () => {
      const [a, b] = [Math.round(inner.value / width), Math.round(outer.value / width)];
      const times = cells.value ? 2 : 1;
      const sum = (k: number) => 1e-4 * rings[k].slice(Math.min(a, b), Math.max(a, b)).reduce((all, share) => all + share, 0);
      const shares = rings.map((_, k) => sum(k));
      const values = Float64Array.from({ length: nx * ny * times * times }, (_, k) => shares[((k % (nx * times)) % nx) * ny + (Math.floor(k / (nx * times)) % ny)]);
      const axis = (name: string, count: number) => uniform(name, "Å", count * times, 0, step);
      image.show({ values, nx: nx * times, ny: ny * times, x: axis("x", nx), y: axis("y", ny), quantity: "share of the electrons", unit: "%" });
      const middles = evenly(0.5 * width, last - 0.5 * width, rings[0].length);
      const curve = (k: number) => Float64Array.from(rings[k], (share) => Math.max(1e-4 * share, 1e-5) / width);
      angles.show({
        x: middles, xTitle: "angle α [mrad]", yTitle: "share of the electrons [% per mrad]", logY: true,
        series: [{ label: "probe on a column", values: curve(on) }, { label: "probe between columns", values: curve(off), style: "dashed" }],
      });
      angles.setMarkers([{ x: inner.value, label: "a₁" }, { x: outer.value, label: "a₂" }]);
      const [least, most] = [Math.min(...shares), Math.max(...shares)];
      return a >= b
        ? "The inner angle has to be smaller than the outer one: the detector is empty."
        : `The detector from ${inUnits(inner.value, "mrad")} to ${inUnits(outer.value, "mrad")} receives from ${formatNumber(least, 3)} % to ${formatNumber(most, 3)} % of the electrons; the contrast, (max − min)/(max + min), is ${formatNumber((most - least) / (most + least), 3)}.`;
    };
  },
};

/** Images by PRISM; see `book/examples/electron-scans.rs`. */
interface PrismResults {
  readonly step: number;
  readonly counts: readonly [number, number];
  readonly detectors: readonly string[];
  readonly factors: readonly number[];
  /** By detector: the mean of the multislice image (share of the electrons), and that image in ten-thousandths of the mean, (x, y). */
  readonly means: readonly number[];
  readonly multislice: readonly (readonly number[])[];
  /** By factor and detector: the image by PRISM less that by multislice, in hundredths of a per cent of the mean. */
  readonly differences: readonly (readonly (readonly number[])[])[];
  /** By factor and detector: rms error in per cent of the mean. */
  readonly errors: readonly (readonly number[])[];
  /** By factor: the number of beams. */
  readonly beams: readonly number[];
}

const prismFactor: LiveFigure = {
  title: "Images by PRISM and their error by interpolation factor",
  hint: "Raise the factor: the number of beams falls with its square, and the image comes to depend on what the window cuts off. The error is not the same for all detectors, nor does it grow steadily.",
  open(stage) {
    const { step, counts, detectors, factors, means, multislice, differences, errors, beams } = stage.data("live-prism-factor.json") as PrismResults;
    const factor = stage.choice("Factor f", factors.map((f, k) => ({ value: String(k), label: `f = ${f}` })), "1");
    const detector = stage.choice("Detector", detectors.map((label, k) => ({ value: String(k), label })), String(detectors.length - 1));
    const shown = stage.choice("Show", [
      { value: "prism", label: "image by PRISM" },
      { value: "multislice", label: "image by multislice" },
      { value: "difference", label: "difference" },
    ]);
    const image = stage.image("Scan of one cell");
    const curve = stage.curves("Rms error over the scan");
    const [nx, ny] = counts;
    return () => {
      const [k, d] = [Number(factor.value), Number(detector.value)];
      const difference = differences[k][d];
      const percent = (x: number) => ({ prism: 0.01 * (multislice[d][x] + difference[x]), multislice: 0.01 * multislice[d][x], difference: 0.01 * difference[x] })[shown.value as "prism"];
      const values = Float64Array.from({ length: nx * ny }, (_, at) => percent((at % nx) * ny + Math.floor(at / nx)));
      const signed = shown.value === "difference";
      image.show({ values, nx, ny, x: uniform("x", "Å", nx, 0, step), y: uniform("y", "Å", ny, 0, step), quantity: signed ? "difference, of the mean" : "signal, of the mean", unit: "%", signed });
      curve.show({
        x: Float64Array.from(factors), xTitle: "interpolation factor f", yTitle: "rms error [% of the mean]", logY: true,
        series: detectors.map((label, at) => ({ label, values: Float64Array.from(errors, (row) => Math.max(row[at], 1e-5)), style: at === d ? "line" as const : "dashed" as const })),
      });
      curve.setMarkers([{ x: factors[k], label: `f = ${factors[k]}` }]);
      return `With f = ${factors[k]} the S-matrix has ${beams[k]} beams instead of ${beams[0]}, and the error of the detector ${detectors[d]} is ${formatNumber(errors[k][d], 2)} % rms of its mean, ${formatNumber(100 * means[d], 3)} % of the electrons.`;
    };
  },
};

export const resultFigures: Readonly<Record<string, LiveFigure>> = {
  "error-budget": errorBudget,
  "annular-detector": annularDetector,
  "prism-factor": prismFactor,
};
