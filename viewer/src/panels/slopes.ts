/** Slopes by frame: arrows on the lenslets of the guide stars, and their rms in every frame. */

import { ARCSEC } from "../units";
import { checkbox, player, select } from "../controls";
import { DataError, type ArrayVariable, type DataFile, uniform } from "../data";
import { mosaic } from "../optics/mosaic";
import { meanOf, slopeOrder, starRms } from "../optics/slope_order";
import type { PanelContext, PanelFactory } from "../panel";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import type { Shape } from "../views/image.api";
import { frameShapes } from "./matrix";
import { choiceCell, Sheet, stem, type Fact } from "./sheet";

/** Panels of slopes (frame, slope). */
export const slopesPanels: PanelFactory = (file) => {
  const array = file.array("slopes");
  return array?.shape.length === 2 && !array.complex
    ? [{ id: "slopes", title: "Slopes", group: "Adaptive optics", order: 35, open: (host, context) => openSlopes(host, context, file, array) }]
    : [];
};

const PER_RADIAN = 1 / ARCSEC;

async function openSlopes(host: HTMLElement, context: PanelContext, file: DataFile, array: ArrayVariable): Promise<() => void> {
  const sheet = new Sheet(host, context);
  const { scope } = context;
  const [frames, n] = array.shape;
  const order = await slopeOrder(file);
  if (order?.count !== n) {
    throw new DataError(`The order of the ${n} slopes is not known: the file has no slope_table of as many rows.`);
  }
  const frame = scope.cell<number>("frame", 0, (k) => Number.isInteger(k) && k >= 0 && k < frames);
  const star = choiceCell(context, "star", ["all", ...order.stars.map(String)]);
  const mean = scope.cell<boolean>("without-mean", false);
  sheet.controls(
    player("Frame", frame, { count: frames, label: (k) => `${k} of ${frames}` }),
    order.stars.length > 1 ? select("Guide star", star, [{ value: "all", label: "all" }, ...order.stars.map((k) => ({ value: String(k), label: `star ${k}` }))]) : undefined,
    checkbox("Remove the mean of each star (tip and tilt)", mean),
  );
  const fileName = `${stem(file.name)}-slopes`;
  const image = new ImageView({ scope: scope.child("map"), label: "Slopes", height: 420 });
  const card = sheet.card("Slopes on the lenslets", image, { fileName, wide: true });
  const curve = new CurveView({ scope: scope.child("frames"), label: "Rms of the slopes by frame", height: 280 });
  const curveCard = sheet.card("Rms of the slopes by frame", curve, { fileName: `${fileName}-frames`, wide: true });
  const print = sheet.facts("Slopes of this frame");
  const read = async (k: number) => (await array.block([k, null])).re;

  // Rms of every frame, whose largest one gives the length of the arrows in all of them.
  let longest = 0;
  await sheet.follow([mean], async (stale) => {
    const rms = order.stars.map(() => new Float64Array(frames));
    for (let k = 0; k < frames; k++) {
      const vector = await read(k);
      order.stars.forEach((one, s) => (rms[s][k] = PER_RADIAN * starRms(vector, order, one, mean.value)));
      if (stale()) {
        return;
      }
    }
    longest = Math.max(...rms.map((one) => one.reduce((most, value) => Math.max(most, value), 0)));
    curve.show({
      x: Float64Array.from({ length: frames }, (_, k) => k),
      xTitle: "frame",
      yTitle: "rms slope [arcsec]",
      series: order.stars.map((one, s) => ({ label: `star ${one}`, values: rms[s], unit: "arcsec" })),
    });
    curveCard.changed();
  });
  await sheet.follow([frame, star, mean], async (stale) => {
    const vector = await read(frame.value);
    if (stale()) {
      return;
    }
    const stars = star.value === "all" ? order.stars : [Number(star.value)];
    const maps = stars.map((one) => {
      const [x, y] = [0, 1].map((axis) => {
        const { from, to } = order.block(one, axis);
        const offset = mean.value ? meanOf(vector, from, to) : 0;
        return order.map(vector, one, axis).map((value) => PER_RADIAN * (value - offset));
      });
      const across = order.across(one);
      return { x, y, across, tile: { values: Float64Array.from(x, (value, k) => Math.hypot(value, y[k])), nx: across, ny: across, label: `star ${one}` } };
    });
    const tiles = mosaic([maps.map(({ tile }) => tile)]);
    image.show({ ...tiles, x: uniform("lenslet", "", tiles.nx, 0, 1), y: uniform("lenslet", "", tiles.ny, 0, 1), quantity: "slope", unit: "arcsec", signed: false });
    // An arrow as long as a lenslet is three times the largest rms.
    const scale = 1 / (3 * longest || 1);
    const arrows = maps.flatMap(({ x, y, across }, s) =>
      Array.from(x, (dx, k) => ({ x: tiles.frames[s].i0 + (k % across), y: tiles.frames[s].j0 + Math.floor(k / across), dx: dx * scale, dy: y[k] * scale })).filter(({ dx }) => Number.isFinite(dx)),
    );
    image.setShapes([...(stars.length > 1 ? frameShapes(tiles.frames) : []), { kind: "arrows", id: "slopes", points: arrows, label: "slopes" } satisfies Shape]);
    card.title = `Slopes on the lenslets, frame ${frame.value}`;
    card.setNote(`Colours: magnitude of the slope. Arrows: an arrow as long as a lenslet stands for ${(3 * longest).toFixed(3)} arcsec.`);
    card.changed();
    print(
      stars.flatMap((one): Fact[] => [
        [`star ${one}, rms`, PER_RADIAN * starRms(vector, order, one, mean.value), "arcsec"],
        ...[0, 1].map((axis): Fact => {
          const { from, to } = order.block(one, axis);
          return [`star ${one}, mean of the ${axis === 0 ? "x" : "y"} slopes`, PER_RADIAN * meanOf(vector, from, to), "arcsec"];
        }),
      ]),
    );
  });
  await sheet.follow([frame], () => curve.setMarkers([{ x: frame.value, label: `frame ${frame.value}` }]));
  return () => sheet.end();
}
