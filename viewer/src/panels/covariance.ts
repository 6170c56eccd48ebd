/** Covariances: of slopes by pair of guide stars and component, of wavefronts and slopes, of wavefronts, and matrices. */

import { checkbox, select, slider } from "../controls";
import { DataError, formatNumber, type ArrayVariable, type DataFile, uniform } from "../data";
import { h } from "../dom";
import { column, isLagged, peak, rings, row, type LagMap } from "../optics/maps";
import { mosaic, tileAt, type Mosaic, type Tile } from "../optics/mosaic";
import { hasSlopeCovariances, slopeCovariances, type SlopeCovariances } from "../optics/slope_covariance";
import { AXES, slopeLabel, slopeOrder, type SlopeOrder } from "../optics/slope_order";
import { factsOf } from "../optics/system";
import type { PanelFactory, PanelOffer } from "../panel";
import type { Cell } from "../store";
import { CurveView } from "../views/curve";
import { ImageView } from "../views/image";
import { frameShapes, matrixCards, plainAxis, slopeAxis, truthAxis, type MatrixAxis, type MatrixChoice } from "./matrix";
import { choiceCell, hide, names, numberCell, numbered, printed, Sheet, stem, type Fact } from "./sheet";

const GROUP = "Adaptive optics";
const COMPONENTS = AXES.flatMap((a) => AXES.map((b) => a + b));

/** Panels of covariances. */
export const covariancePanels: PanelFactory = (file) => {
  const offers: PanelOffer[] = [];
  const offer = (id: string, title: string, order: number, open: (sheet: Sheet) => Promise<void>) => {
    offers.push({
      id,
      title,
      group: GROUP,
      order,
      open: async (host, context) => {
        const sheet = new Sheet(host, context);
        await open(sheet);
        return () => sheet.end();
      },
    });
  };
  if (hasSlopeCovariances(file)) {
    offer("covariance-slopes", "Covariance of slopes", 50, (sheet) => openSlopes(sheet, file));
  }
  const withSlopes = file.arrays().filter(({ name, shape }) => /^wavefront_slope(_dense)?(_\d+)*$/.test(name) && (shape.length === 5 || shape.length === 4));
  if (withSlopes.length > 0) {
    offer("covariance-wavefront-slope", "Covariance of wavefront and slopes", 51, (sheet) => openWavefrontSlope(sheet, file, withSlopes));
  }
  const wavefronts = file.array("wavefront_wavefront");
  if (wavefronts?.shape.length === 4) {
    offer("covariance-wavefronts", "Covariance of wavefronts", 52, (sheet) => openWavefronts(sheet, file, wavefronts));
  }
  const matrices = file.arrays().filter(({ name, shape }) => MATRICES.test(name) && (shape.length === 2 || shape.length === 3));
  if (matrices.length > 0) {
    offer("covariance-matrix", "Covariance matrices", 65, (sheet) => openMatrices(sheet, file, matrices));
  }
  return offers;
};

const MATRICES = /^(slope_slope_dense(_\d+)?|slopes_between_\d+_\d+|c_mm|c_tm|c_tt|error_covariance)$/;

/** A map of a covariance, ready to be drawn. */
interface Shown extends LagMap {
  readonly quantity: string;
  readonly unit: string;
  readonly xName: string;
  readonly yName: string;
  readonly about: string;
  /** Further numbers to be printed. */
  readonly facts: readonly Fact[];
}

/** The cards of one map: image, cuts through its peak or where it was clicked, and the mean over directions. */
class MapCards {
  private readonly image: ImageView;
  private readonly card;
  private readonly cuts: CurveView;
  private readonly cutCard;
  private readonly mean: CurveView;
  private readonly meanCard;
  private readonly print;
  /** Where the cuts are; empty for the peak. */
  readonly cut: Cell<readonly number[]>;

  constructor(sheet: Sheet, title: string, fileName: string, private readonly aboutZero: boolean) {
    const { scope } = sheet.context;
    this.cut = scope.cell<readonly number[]>("cut", [], (at) => at.length === 0 || (at.length === 2 && at.every((k) => Number.isInteger(k) && k >= 0)));
    this.image = new ImageView({ scope: scope.child("map"), label: title, height: 420 });
    const back = h("button", { type: "button", click: () => this.cut.reset() }, "Cuts through the peak");
    this.card = sheet.card(title, this.image, { fileName, controls: [back] });
    this.cuts = new CurveView({ scope: scope.child("cuts"), label: "Cuts along x and y", height: 260 });
    this.cutCard = sheet.card("Cuts along x and y", this.cuts, { fileName: `${fileName}-cuts` });
    this.mean = new CurveView({ scope: scope.child("mean"), label: "Mean over directions", height: 260 });
    this.meanCard = sheet.card("Mean over directions", this.mean, { fileName: `${fileName}-mean` });
    this.print = sheet.facts("Numbers of this covariance");
    this.image.onPick(({ i, j }) => this.cut.set([i, j]));
  }

  show(map: Shown): void {
    const { values, nx, ny, step, origin, quantity, unit } = map;
    const [x, y] = [uniform(map.xName, "m", nx, origin[0], step), uniform(map.yName, "m", ny, origin[1], step)];
    this.image.show({ values, nx, ny, x, y, quantity, unit, signed: true });
    const top = peak(values);
    const [pi, pj] = [top % nx, Math.floor(top / nx)];
    const at = this.cut.value;
    const [ci, cj] = at.length === 2 && at[0] < nx && at[1] < ny ? at : [pi, pj];
    const [cx, cy] = [x.position(ci), y.position(cj)];
    this.image.setShapes([
      { kind: "polygon", id: "cut-x", points: [[x.position(-0.5), cy], [x.position(nx - 0.5), cy]], label: "cut along x", closed: false, dashed: true },
      { kind: "polygon", id: "cut-y", points: [[cx, y.position(-0.5)], [cx, y.position(ny - 0.5)]], label: "cut along y", closed: false, dashed: true },
    ]);
    this.card.setNote(map.about);
    const yTitle = unit ? `${quantity} [${unit}]` : quantity;
    this.cuts.show({
      x: x.positions(),
      xTitle: this.aboutZero ? "displacement [m]" : "position [m]",
      yTitle,
      series: [
        { label: `along x, at y = ${formatNumber(cy, 4)} m`, values: row(map, cj), unit },
        { label: `along y, at x = ${formatNumber(cx, 4)} m`, x: y.positions(), values: column(map, ci), unit, style: "dashed" },
      ],
    });
    // Displacements have their middle at zero; positions have none, so that distances are from the peak.
    const [mi, mj] = this.aboutZero ? [-origin[0] / step, -origin[1] / step] : [ci, cj];
    const { radius, mean } = rings(map, mi, mj);
    this.mean.show({
      x: radius.map((r) => r * step),
      xTitle: this.aboutZero ? "separation [m]" : "distance from the cuts' crossing [m]",
      yTitle,
      series: [{ label: "mean over directions", values: mean, unit }],
    });
    const zero = this.aboutZero && isLagged(map) ? values[Math.round(mj) * nx + Math.round(mi)] : undefined;
    this.print([
      ["peak", values[top], unit],
      ["peak at x", x.position(pi), "m"],
      ["peak at y", y.position(pj), "m"],
      ...(zero === undefined ? [] : [["at zero displacement", zero, unit] as Fact]),
      ...map.facts,
    ]);
    [this.card, this.cutCard, this.meanCard].forEach((card) => card.changed());
  }

  /** Hides or shows cuts, means and numbers; the image stays. */
  set whole(whole: boolean) {
    [this.cutCard, this.meanCard].forEach((card) => hide(card.element, !whole));
  }

  /** Draws several maps at once. */
  tiles(tiles: Mosaic, steps: readonly number[], quantity: string, unit: string, about: string): void {
    const { values, nx, ny, frames } = tiles;
    this.image.show({ values, nx, ny, x: uniform("sample", "", nx, 0, 1), y: uniform("sample", "", ny, 0, 1), quantity, unit, signed: true });
    this.image.setShapes(frameShapes(frames));
    this.card.setNote(`${about} Samples are displacements in steps of ${[...new Set(steps)].map((step) => formatNumber(step, 4)).join(" or ")} m; click one to see it alone.`);
    this.print([]);
    this.card.changed();
  }

  /** Calls back with the sample that was clicked. */
  onPick(listener: (i: number, j: number) => void): void {
    this.image.onPick(({ i, j }) => listener(i, j));
  }
}

const DISPLACED = { xName: "displacement along x", yName: "displacement along y" };

async function openSlopes(sheet: Sheet, file: DataFile): Promise<void> {
  const { context } = sheet;
  const sources = await slopeCovariances(file);
  if (sources.length === 0) {
    throw new DataError("The covariance of slopes has no slope_table, nor lenslets and pitches, that tell the order of its slopes.");
  }
  const stars = Math.max(...sources.map((one) => one.stars));
  const from = numberCell(context, "of", sources.length);
  const [p, q] = [numberCell(context, "p", stars), numberCell(context, "q", stars)];
  const component = choiceCell(context, "component", COMPONENTS);
  const layout = choiceCell(context, "show", ["one", "pairs", "components"]);
  const relative = context.scope.cell<boolean>("correlation", false);
  const layouts = [
    { value: "one", label: "one pair and component" },
    ...(stars > 1 && stars <= 12 ? [{ value: "pairs", label: "all pairs of stars" }] : []),
    { value: "components", label: "all components" },
  ];
  sheet.controls(
    numbered("Covariance", from, sources.map(({ name }) => (name === "c_mm" ? "of measurements, with noise (c_mm)" : "of slopes"))),
    numbered("Star p", p, names("star", stars)),
    numbered("Star q", q, names("star", stars)),
    select("Component", component, COMPONENTS.map((value) => ({ value, label: value }))),
    select("Show", layout, layouts),
    checkbox("Correlation coefficient", relative),
  );
  const cards = new MapCards(sheet, "Covariance of slopes", `${stem(file.name)}-covariance`, true);
  let tiles: Mosaic | undefined;
  cards.onPick((i, j) => {
    const tile = tiles && tileAt(tiles, i, j);
    if (!tile) {
      return;
    }
    if (layout.value === "pairs") {
      p.set(String(tile.row), { live: true });
      q.set(String(tile.column), { live: true });
    } else {
      component.set(tile.label, { live: true });
    }
    cards.cut.set([], { live: true });
    layout.set("one");
  });
  await sheet.follow([from, p, q, component, layout, relative, cards.cut], async (stale) => {
    const source = sources[Number(from.value)];
    const quantity = relative.value ? "correlation coefficient" : "covariance";
    const unit = relative.value ? "" : printed(source.unit);
    const [a, b] = axesOf(component.value);
    const one = layout.value === "one";
    const [sp, sq] = [Number(p.value), Number(q.value)];
    const load = (p: number, q: number, a: number, b: number) => pairOf(source, p, q, a, b, relative.value);
    if (one) {
      const map = await load(sp, sq, a, b);
      if (stale()) {
        return;
      }
      const [vp, vq] = map.variances;
      const top = map.values[peak(map.values)];
      const facts: Fact[] = [
        [`variance of the ${AXES[a]} slopes of star ${sp}`, vp, printed(source.unit)],
        [`variance of the ${AXES[b]} slopes of star ${sq}`, vq, printed(source.unit)],
        ["correlation coefficient at the peak", relative.value ? top : top / Math.sqrt(vp * vq), ""],
      ];
      tiles = undefined;
      cards.whole = true;
      cards.show({ ...map, ...DISPLACED, quantity, unit, facts });
      return;
    }
    const numbers = Array.from({ length: stars }, (_, k) => k);
    const rows = layout.value === "pairs"
      ? numbers.map((p) => numbers.map((q) => ({ at: [p, q, a, b] as const, label: `${p}, ${q}` })))
      : AXES.map((x, a) => AXES.map((y, b) => ({ at: [sp, sq, a, b] as const, label: x + y })));
    const maps = await Promise.all(rows.map((line) => Promise.all(line.map(async ({ at, label }): Promise<Tile & LagMap> => ({ ...(await load(...at)), label })))));
    if (stale()) {
      return;
    }
    tiles = mosaic(maps);
    cards.whole = false;
    const about = layout.value === "pairs" ? `Component ${component.value} of all pairs p, q: p by rows, q by columns.` : `All components of stars ${sp} and ${sq}.`;
    cards.tiles(tiles, maps.flat().map(({ step }) => step), quantity, unit, about);
  });
}

function axesOf(component: string): readonly [number, number] {
  return [component[0] === "y" ? 1 : 0, component[1] === "y" ? 1 : 0];
}

/** A map, divided by the standard deviations of both slopes where it is relative, and the variances of both slopes. */
async function pairOf(source: SlopeCovariances, p: number, q: number, a: number, b: number, relative: boolean) {
  const [map, first, second] = await Promise.all([source.map(p, q, a, b), source.map(p, p, a, a), source.map(q, q, b, b)]);
  // At zero displacement a slope's covariance with its like under the same star is its variance.
  const variances = [first, second].map(({ values, nx, ny }) => values[((ny - 1) / 2) * nx + (nx - 1) / 2]);
  const scale = 1 / Math.sqrt(variances[0] * variances[1]);
  return { ...map, values: relative ? map.values.map((value) => value * scale) : map.values, variances };
}

/** Wavefront and slopes: (target, star, slope, y, x) by displacement, or (target, y, x, slope). */
async function openWavefrontSlope(sheet: Sheet, file: DataFile, arrays: readonly ArrayVariable[]): Promise<void> {
  const { context } = sheet;
  const of = choiceCell(context, "of", arrays.map(({ name }) => name));
  const chosen = () => arrays.find(({ name }) => name === of.value) ?? arrays[0];
  const most = (k: number) => Math.max(...arrays.map(({ shape }) => shape[k]));
  const stars = Math.max(1, ...arrays.filter(({ shape }) => shape.length === 5).map(({ shape }) => shape[1]));
  const [order, step, gammas, sets] = await Promise.all([slopeOrder(file), stepOf(file), file.array("layer_gamma")?.all(), file.array("star_set")?.all()]);
  const points = arrays.filter(({ shape }) => shape.length === 4);
  const slopes = Math.max(1, ...points.map(({ shape }) => shape[3]));
  const target = numberCell(context, "target", most(0));
  const star = numberCell(context, "star", stars);
  const axis = choiceCell(context, "axis", AXES);
  const slope = context.scope.cell<number>("slope", 0, (k) => Number.isInteger(k) && k >= 0 && k < slopes);
  const orderOf = (array: ArrayVariable): SlopeOrder | undefined => {
    const set = /_dense_(\d+)$/.exec(array.name)?.[1];
    const members = set === undefined || !sets ? undefined : [...sets.re.keys()].filter((k) => sets.re[k] === Number(set));
    const all = members && order ? order.of(members) : order;
    return all?.count === array.shape[3] ? all : undefined;
  };
  const slopeName = (k: number) => {
    const one = orderOf(chosen())?.slopes[k];
    return one ? slopeLabel(one) : `slope ${k}`;
  };
  sheet.controls(
    arrays.length > 1 ? select("Covariance", of, arrays.map(({ name }) => ({ value: name, label: name }))) : undefined,
    numbered("Target", target, names("target", most(0))),
    arrays.length > points.length ? numbered("Star", star, names("star", stars)) : undefined,
    arrays.length > points.length ? select("Slope", axis, AXES.map((value) => ({ value, label: value }))) : undefined,
    points.length > 0 ? slider("Slope", slope, { count: slopes, label: slopeName }) : undefined,
  );
  const lattices = new MapCards(sheet, "Covariance of wavefront and slope", `${stem(file.name)}-wavefront-slope`, points.length === 0);
  await sheet.follow([of, target, star, axis, slope, lattices.cut], async (stale) => {
    const array = chosen();
    const [t, facts, quantity, unit] = [Math.min(Number(target.value), array.shape[0] - 1), [], "covariance", printed(array.unit)];
    if (array.shape.length === 5) {
      const { re, shape } = await array.block([t, Math.min(Number(star.value), array.shape[1] - 1), axis.value === "y" ? 1 : 0, null, null]);
      const layer = /_(\d+)$/.exec(array.name)?.[1];
      const own = step * (layer !== undefined && gammas ? (gammas.re[Number(layer)] ?? 1) : 1);
      if (!stale()) {
        const about = "By the displacement of the lenslet's centre from the wavefront's point.";
        lattices.show({ ...centredMap(re, shape, own), ...DISPLACED, quantity, unit, about, facts });
      }
      return;
    }
    const k = Math.min(slope.value, array.shape[3] - 1);
    const { re, shape } = await array.block([t, null, null, k]);
    if (!stale()) {
      const about = `The wavefront at its points with one slope: ${slopeName(k)}.`;
      lattices.show({ ...centredMap(re, shape, step), xName: "x", yName: "y", quantity, unit, about, facts });
    }
  });
}

/** A map by rows whose middle has the coordinates (0, 0). */
function centredMap(values: LagMap["values"], [ny, nx]: readonly number[], step: number): LagMap {
  return { values, nx, ny, step, origin: [-((nx - 1) / 2) * step, -((ny - 1) / 2) * step] };
}

/** Step of the wavefront's points [m]: that of the file, or of its system; 1 where it has none. */
async function stepOf(file: DataFile): Promise<number> {
  return (await file.array("wavefront_step")?.all())?.re[0] ?? factsOf(file).wavefrontStep ?? 1;
}

/** (t, u, y, x) by the displacement of two points. */
async function openWavefronts(sheet: Sheet, file: DataFile, array: ArrayVariable): Promise<void> {
  const { context } = sheet;
  const step = await stepOf(file);
  const targets = array.shape[0];
  const [t, u] = [numberCell(context, "t", targets), numberCell(context, "u", targets)];
  sheet.controls(numbered("Target t", t, names("target", targets)), numbered("Target u", u, names("target", targets)));
  const cards = new MapCards(sheet, "Covariance of wavefronts", `${stem(file.name)}-wavefronts`, true);
  await sheet.follow([t, u, cards.cut], async (stale) => {
    const at = (t: number, u: number) => array.block([t, u, null, null]);
    const [first, second] = [Number(t.value), Number(u.value)];
    const [{ re, shape }, own, other] = await Promise.all([at(first, second), at(first, first), at(second, second)]);
    if (stale()) {
      return;
    }
    const middle = ((shape[0] - 1) / 2) * shape[1] + (shape[1] - 1) / 2;
    const facts: Fact[] = [
      [`rms of the wavefront of target ${first}`, 1e9 * Math.sqrt(own.re[middle]), "nm"],
      [`rms of the wavefront of target ${second}`, 1e9 * Math.sqrt(other.re[middle]), "nm"],
      ["correlation coefficient at zero displacement", re[middle] / Math.sqrt(own.re[middle] * other.re[middle]), ""],
    ];
    cards.show({ ...centredMap(re, shape, step), ...DISPLACED, quantity: "covariance", unit: printed(array.unit), about: "By the displacement of two points.", facts });
  });
}

/** Names of matrices for readers. */
const MATRIX_NAMES: Readonly<Record<string, string>> = {
  slope_slope_dense: "slopes",
  c_mm: "measurements, with noise (C_mm)",
  c_tm: "truth with measurements (C_tm)",
  c_tt: "truth (C_tt)",
  error_covariance: "errors of the reconstructed slopes",
};

async function openMatrices(sheet: Sheet, file: DataFile, matrices: readonly ArrayVariable[]): Promise<void> {
  const { context } = sheet;
  const order = await slopeOrder(file);
  const sets = await file.array("star_set")?.all();
  const of = choiceCell(context, "of", matrices.map(({ name }) => name));
  const targets = Math.max(1, ...matrices.filter(({ shape }) => shape.length === 3).map(({ shape }) => shape[0]));
  const target = numberCell(context, "target", targets);
  const row = context.scope.cell<number>("row", 0, (k) => Number.isInteger(k) && k >= 0);
  sheet.controls(
    matrices.length > 1 ? select("Covariance of", of, matrices.map(({ name }) => ({ value: name, label: MATRIX_NAMES[name] ?? name }))) : undefined,
    numbered("Target", target, names("target", targets)),
  );
  const group = (set: string) => (sets && order ? order.of([...sets.re.keys()].filter((k) => sets.re[k] === Number(set))) : undefined);
  const axis = (name: string, count: number, slopes: SlopeOrder | undefined): MatrixAxis => (slopes?.count === count ? slopeAxis(slopes) : plainAxis(name, count));
  await matrixCards(sheet, `${stem(file.name)}-matrix`, [of, target], row, (): MatrixChoice => {
    const array = matrices.find(({ name }) => name === of.value) ?? matrices[0];
    const { name, shape } = array;
    const [m, n] = shape.slice(-2);
    const fixed = shape.length === 3 ? [Math.min(Number(target.value), shape[0] - 1)] : [];
    const between = /^slopes_between_(\d+)_(\d+)$/.exec(name);
    const dense = /^slope_slope_dense_(\d+)$/.exec(name);
    const [first, second] = between ? [group(between[1]), group(between[2])] : dense ? [group(dense[1]), group(dense[1])] : [order, order];
    const truth = name === "c_tt" || name === "error_covariance";
    const rows = truth || name === "c_tm" ? truthRows(array, m) : axis("slope", m, first);
    const columns = truth ? truthAxis(n) : axis("slope", n, second);
    return { array, fixed, rows, columns, quantity: "covariance" };
  });
}

/** Rows of a truth sensor's slopes: x and y; target by target where there are several. */
function truthRows({ name, shape }: ArrayVariable, m: number): MatrixAxis {
  return name === "c_tm" && shape.length === 2 ? plainAxis("truth slope", m) : truthAxis(m);
}
