/** Point-spread functions: the image on a logarithmic scale, encircled and ensquared energy, cuts, Strehl ratio and width. */

import { checkbox, select } from "../controls";
import { formatNumber, type ArrayVariable, type DataFile, type Numbers, uniform } from "../data";
import { column, rings, row } from "../optics/maps";
import { airyRadius, encircled, ensquared, fwhm, type PsfImage } from "../optics/psf";
import { psfFacts, type PsfFacts } from "../optics/psf_facts";
import { factsOf } from "../optics/system";
import type { PanelContext, PanelFactory } from "../panel";
import { CurveView, type Series } from "../views/curve";
import { ImageView } from "../views/image";
import type { Shape } from "../views/image.api";
import { choiceCell, names, numberCell, numbered, Sheet, stem, type Fact } from "./sheet";

/** Panels of point-spread functions: `psf`, (target, y, x) or (wavelength, target, y, x). */
export const psfPanels: PanelFactory = (file) => {
  const array = file.array("psf");
  const square = array && !array.complex && array.shape.length >= 2 && array.shape.length <= 4 && array.shape.at(-1) === array.shape.at(-2);
  return array && square
    ? [{ id: "psf", title: "Point-spread functions", group: "Adaptive optics", order: 10, open: (host, context) => openPsf(host, context, file, array) }]
    : [];
};

async function openPsf(host: HTMLElement, context: PanelContext, file: DataFile, array: ArrayVariable): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const { scope } = context;
  const rank = array.shape.length;
  const n = array.shape[rank - 1];
  const [waves, targets] = [rank === 4 ? array.shape[0] : 1, rank >= 3 ? array.shape[rank - 3] : 1];
  const facts = psfFacts(file, array, waves);
  const system = factsOf(file);
  const binning = array.array.binning[rank - 1] ?? 1;
  const full = array.array.originalShape[rank - 1];
  // The star is on the middle pixel, floor(n/2) of the whole image; binned pixels have theirs between.
  const middle = (Math.floor(full / 2) - (binning - 1) / 2) / binning;
  const centre = Math.round(middle);
  const pixel = (facts.pixel ?? 1) * binning;
  const unit = facts.pixel === undefined ? "pixel" : "mas";
  const wave = numberCell(context, "wavelength", waves);
  const target = numberCell(context, "target", targets);
  const boxes = choiceCell(context, "energy", ["both", "encircled", "ensquared"]);
  const compare = scope.cell<boolean>("compare", true);
  const airy = scope.cell<boolean>("airy", true);
  const targetName = (t: number) => {
    const at = facts.direction(t);
    return at ? `target ${t} at (${formatNumber(at[0], 3)}, ${formatNumber(at[1], 3)}) arcsec` : `target ${t}`;
  };
  const waveName = (w: number) => (facts.wavelengths[w] === undefined ? `wavelength ${w}` : `${formatNumber(1e9 * (facts.wavelengths[w] as number), 5)} nm`);
  const references = (["diffraction", "open_loop"] as const).flatMap((name) => {
    const one = file.array(name);
    return one?.shape.length === 2 && one.shape[0] === n && one.shape[1] === n ? [{ label: name === "diffraction" ? "diffraction limit" : "open loop", array: one, name }] : [];
  });
  sheet.controls(
    numbered("Target", target, names("", targets).map((_, t) => targetName(t))),
    numbered("Wavelength", wave, names("", waves).map((_, w) => waveName(w))),
    system.diameter !== undefined && facts.wavelengths[0] !== undefined && unit === "mas" ? checkbox("First dark ring (1.22 λ/D)", airy) : undefined,
    references.length > 0 ? checkbox("Compare with the diffraction limit and open loop", compare) : undefined,
    select("Energy", boxes, [{ value: "both", label: "encircled and ensquared" }, { value: "encircled", label: "encircled" }, { value: "ensquared", label: "ensquared" }]),
  );
  const fileName = `${stem(file.name)}-psf`;
  const image = new ImageView({ scope: scope.child("image"), label: "Point-spread function", scale: "log", decades: 5, height: 460 });
  const card = sheet.card("Point-spread function", image, { fileName });
  const print = sheet.facts("Numbers of this image");
  const curve = (key: string, label: string) => {
    const view = new CurveView({ scope: scope.child(key), label, height: 280 });
    return { view, card: sheet.card(label, view, { fileName: `${fileName}-${key}` }) };
  };
  const [profile, cuts, energy] = [curve("profile", "Mean over directions"), curve("cuts", "Cuts along x and y"), curve("energy", "Encircled and ensquared energy")];
  const x = uniform("x", unit, n, -middle * pixel, pixel);
  const y = uniform("y", unit, n, -middle * pixel, pixel);
  const radii = Array.from({ length: Math.floor(n / 2) }, (_, k) => k + 0.5);

  await sheet.follow([wave, target, compare, airy, boxes], async (stale) => {
    const [w, t] = [Number(wave.value), Number(target.value)];
    const fixed = [...(rank === 4 ? [w] : []), ...(rank >= 3 ? [t] : []), null, null];
    const { re } = await array.block(fixed);
    const shown = compare.value ? await Promise.all(references.map(async (one) => ({ ...one, values: (await one.array.all()).re }))) : [];
    const limit = await file.array("diffraction")?.all();
    if (stale()) {
      return;
    }
    const psf: PsfImage = { values: re, n, centre };
    const ring = system.diameter !== undefined && facts.wavelengths[w] !== undefined && unit === "mas" ? airyRadius(facts.wavelengths[w] as number, system.diameter) : undefined;
    image.show({ values: re, nx: n, ny: n, x, y, quantity: "share of the light on a pixel", unit: "", signed: false });
    image.setShapes(ring !== undefined && airy.value ? [{ kind: "circle", id: "airy", x: 0, y: 0, r: ring, label: `first dark ring of Airy's pattern, ${formatNumber(ring, 4)} mas`, dashed: true } satisfies Shape] : []);
    card.title = `Point-spread function${targets > 1 ? `, target ${t}` : ""}, ${waveName(w)}`;
    card.changed();
    const markers = ring !== undefined && airy.value ? [{ x: ring, label: "1.22 λ/D" }] : [];
    // Mean over directions
    const all = [{ label: targetName(t), values: re as Numbers, dashed: false }, ...shown.map((one) => ({ label: comparison(one.label, w, waves, waveName), values: one.values, dashed: true }))];
    const means = all.map(({ label, values, dashed }): Series => {
      const { radius, mean } = rings({ values, nx: n, ny: n }, middle, middle, n / 2);
      return { label, x: radius.map((r) => r * pixel), values: mean, style: dashed ? "dashed" : "line" };
    });
    profile.view.show({ x: means[0].x as Numbers, xTitle: `radius [${unit}]`, yTitle: "share of the light on a pixel", series: means, logY: true });
    profile.view.setMarkers(markers);
    profile.card.changed();
    // Cuts
    const map = { values: re, nx: n, ny: n };
    cuts.view.show({
      x: x.positions(),
      xTitle: `position [${unit}]`,
      yTitle: "share of the light on a pixel",
      series: [
        { label: "along x", values: row(map, centre) },
        { label: "along y", values: column(map, centre) },
        ...shown.map((one): Series => ({ label: `${comparison(one.label, w, waves, waveName)}, along x`, values: row({ values: one.values, nx: n }, centre), style: "dashed" })),
      ],
      logY: true,
    });
    cuts.view.setMarkers(markers.flatMap((one) => [one, { ...one, x: -one.x }]));
    cuts.card.changed();
    // Energy
    const kinds = boxes.value === "both" ? ["encircled", "ensquared"] : [boxes.value];
    const of = (kind: string, values: Numbers) => (kind === "encircled" ? encircled({ ...psf, values }, radii) : ensquared({ ...psf, values }, radii.map((r) => 2 * r)));
    energy.view.show({
      x: Float64Array.from(radii, (r) => r * pixel),
      xTitle: `radius, or half the side of the box [${unit}]`,
      yTitle: "share of the light",
      series: all.flatMap(({ label, values, dashed }) => kinds.map((kind): Series => ({ label: `${kind}, ${label}`, values: of(kind, values), style: dashed ? "dashed" : "line" }))),
    });
    energy.view.setMarkers(markers);
    energy.card.setNote("Pixels count by the part of their area inside the circle or box around the star.");
    energy.card.changed();
    print(psfNumbers(facts, psf, t, w, { pixel, unit, ring, limit: limit?.re, at: facts.direction(t), reduced: binning > 1 }));
  });
  return () => sheet.end();
}

/** A reference image in words; the file has it at the first wavelength only. */
function comparison(label: string, w: number, waves: number, waveName: (w: number) => string): string {
  return waves > 1 && w > 0 ? `${label} at ${waveName(0)}` : label;
}

interface PsfSetting {
  readonly pixel: number;
  readonly unit: string;
  readonly ring: number | undefined;
  /** The image of the diffraction limit at the first wavelength. */
  readonly limit: Numbers | undefined;
  readonly at: readonly [number, number] | undefined;
  readonly reduced: boolean;
}

/** Numbers of one image: those of the file, and others that are computed from its pixels, which is said. */
function psfNumbers(facts: PsfFacts, psf: PsfImage, t: number, w: number, { pixel, unit, ring, limit, at, reduced }: PsfSetting): Fact[] {
  const star = psf.centre * (psf.n + 1);
  const all: Fact[] = [];
  const strehl = facts.strehl(t, w);
  if (strehl !== undefined) {
    all.push(["Strehl ratio", strehl]);
  } else if (limit && w === 0 && !reduced) {
    all.push(["Strehl ratio, computed: image over diffraction limit at the star", psf.values[star] / limit[star]]);
  }
  const width = facts.fwhm(t, w);
  const computed = fwhm(psf);
  if (width !== undefined) {
    all.push(["full width at half maximum", width, "mas"]);
  } else {
    all.push(["full width at half maximum, computed from the pixels", computed ? computed.mean * pixel : "wider than half the image", computed ? unit : ""]);
  }
  if (computed) {
    const longer = `${formatNumber(computed.major * pixel, 4)} × ${formatNumber(computed.minor * pixel, 4)}`;
    all.push(["ellipse at half maximum, computed from the pixels", longer, unit], ["direction of its longer axis, from x to y", (computed.angle * 180) / Math.PI, "°"]);
  }
  const box = facts.ensquared(t, w);
  if (box) {
    all.push([box[0] === undefined ? "ensquared energy in the first box of the system" : `ensquared energy in a box of ${box[0]} mas`, box[1]]);
  }
  const residual = facts.residual(t);
  all.push(...(residual === undefined ? [] : [["residual wavefront error", residual, "nm rms"] as Fact]));
  let sum = 0;
  for (const value of psf.values) {
    sum += Number.isFinite(value) ? value : 0;
  }
  all.push(["share of the light in the image", sum], ["light on the pixel of the star", psf.values[star]], ["side of a pixel", pixel, unit]);
  all.push(...(ring === undefined ? [] : [["first dark ring, 1.22 λ/D", ring, "mas"] as Fact]));
  all.push(...(at === undefined ? [] : [["direction x of the target", at[0], "arcsec"] as Fact, ["direction y of the target", at[1], "arcsec"] as Fact]));
  return all;
}
