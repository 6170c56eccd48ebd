/**
 * Images as pixels: numbers in a texture of 32-bit floats, scale and colours in the fragment shader of WebGL2, or the same
 * arithmetic on the processor where there is no WebGL2.
 *
 * One WebGL2 context serves all images of a page, because browsers allow only a few; each image is copied to its own canvas.
 */

import type { Numbers } from "../data";
import { h } from "../dom";
import { LAWS, Scale, type Statistics } from "./scale";

/** The visible part of an image in samples: sample i covers i … i + 1; y0 is at the bottom. */
export interface Window2D {
  readonly x0: number;
  readonly y0: number;
  readonly x1: number;
  readonly y1: number;
}

/** How an image is drawn. */
export interface Frame {
  readonly window: Window2D;
  /** Pixels of the canvas. */
  readonly width: number;
  readonly height: number;
  readonly scale: Scale;
  /** 256 colours, as `colourTable` gives them. */
  readonly table: Uint8ClampedArray;
  /** Numbers beyond the limits are wrapped (angles), not clamped. */
  readonly wrap: boolean;
  /** Two colours, 0 … 255, of the hatching where there is no number. */
  readonly missing: readonly [readonly number[], readonly number[]];
  /** Period of the hatching, pixels. */
  readonly hatch: number;
}

/** Numbers of the texture that stand for NaN and for ±infinity; all others are at most 1 in size. */
const MISSING = 1e30;
const INFINITE = 1e20;
/** Largest number of samples along an axis that are averaged in a pixel. */
const SAMPLES = 8;

const VERTEX = `#version 300 es
out vec2 at;
void main() {
  at = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0;
  gl_Position = vec4(at * 2.0 - 1.0, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
precision highp sampler2D;
uniform sampler2D values, table;
uniform vec4 area;
uniform vec2 size;
uniform vec4 scale;
uniform int law;
uniform bool wrap;
uniform vec3 missing[2];
uniform float hatch;
in vec2 at;
out vec4 colour;
float f(float v) {
  if (law == 1) return sign(v) * sqrt(abs(v));
  if (law == 2) return log(max(v, scale.z));
  if (law == 3) return sign(v) * log(1.0 + abs(v) / scale.w);
  return v;
}
void main() {
  vec2 place = mix(area.xy, area.zw, at);
  vec2 each = (area.zw - area.xy) / size;
  ivec2 last = textureSize(values, 0) - 1;
  ivec2 count = ivec2(clamp(ceil(each - 0.01), 1.0, ${SAMPLES}.0));
  float sum = 0.0, known = 0.0;
  for (int b = 0; b < count.y; b++) for (int a = 0; a < count.x; a++) {
    vec2 sub = (vec2(a, b) + 0.5) / vec2(count) - 0.5;
    float v = texelFetch(values, clamp(ivec2(floor(place + sub * each)), ivec2(0), last), 0).r;
    if (v < 1e25) { sum += v; known += 1.0; }
  }
  if (known == 0.0) {
    colour = vec4(missing[mod(gl_FragCoord.x + gl_FragCoord.y, hatch) < hatch * 0.25 ? 1 : 0], 1.0);
    return;
  }
  float t = f(sum / known) * scale.x + scale.y;
  t = wrap ? fract(t) : clamp(t, 0.0, 1.0);
  colour = texelFetch(table, ivec2(min(int(t * 256.0), 255), 0), 0);
}`;

const UNIFORMS = ["values", "table", "area", "size", "scale", "law", "wrap", "missing", "hatch"] as const;

/** Names of programs that stand in for a graphics processor: slower than drawing on the processor, because each picture is copied back. */
const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;

let usesSoftware = false;

/** Lets WebGL2 draw also where a program stands in for the graphics processor, as it does where browsers are tested. */
export function useSoftwareGl(): void {
  usesSoftware = true;
}

/** The page's WebGL2 context with its program. */
class Device {
  readonly largest: number;
  private readonly isSoftware: boolean;
  private readonly at: Record<(typeof UNIFORMS)[number], WebGLUniformLocation | null>;
  private readonly colours: WebGLTexture;
  private table: Uint8ClampedArray | undefined;

  private constructor(
    readonly canvas: HTMLCanvasElement,
    readonly gl: WebGL2RenderingContext,
    program: WebGLProgram,
  ) {
    this.largest = gl.getParameter(gl.MAX_TEXTURE_SIZE) as number;
    const names = gl.getExtension("WEBGL_debug_renderer_info");
    this.isSoftware = SOFTWARE.test(String(gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER)));
    this.at = Object.fromEntries(UNIFORMS.map((name) => [name, gl.getUniformLocation(program, name)])) as Device["at"];
    this.colours = this.texture();
    gl.useProgram(program);
    gl.uniform1i(this.at.values, 0);
    gl.uniform1i(this.at.table, 1);
  }

  private static current: Device | null | undefined;

  /** The page's context; null where the browser has none, lost it, or has no graphics processor. */
  static get(): Device | null {
    if (Device.current === undefined) {
      Device.current = Device.make();
    }
    const device = Device.current;
    return device === null || device.gl.isContextLost() || (device.isSoftware && !usesSoftware) ? null : device;
  }

  private static make(): Device | null {
    const canvas = h("canvas", { width: 512, height: 512 });
    const gl = canvas.getContext("webgl2", { alpha: false, antialias: false, depth: false, powerPreference: "low-power" });
    const program = gl?.createProgram();
    if (!gl || !program) {
      return null;
    }
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]] as const) {
      const shader = gl.createShader(kind);
      if (!shader) {
        return null;
      }
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
      return null;
    }
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => (Device.current = undefined));
    return new Device(canvas, gl, program);
  }

  texture(): WebGLTexture {
    const { gl } = this;
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) {
      gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
    }
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) {
      gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
    }
    return texture as WebGLTexture;
  }

  /** Draws numbers of a texture, which were multiplied by `gain`, into a canvas. */
  draw(target: CanvasRenderingContext2D, values: WebGLTexture, gain: number, frame: Frame): void {
    const { gl, at, canvas } = this;
    const { width, height, window } = frame;
    if (canvas.width < width || canvas.height < height) {
      canvas.width = Math.max(canvas.width, width);
      canvas.height = Math.max(canvas.height, height);
    }
    gl.viewport(0, 0, width, height);
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, this.colours);
    if (this.table !== frame.table) {
      this.table = frame.table;
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(frame.table.buffer));
    }
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, values);
    const scale = new Scale(frame.scale.name, frame.scale.lo * gain, frame.scale.hi * gain);
    const { factor, offset } = scale.line;
    gl.uniform4f(at.area, window.x0, window.y0, window.x1, window.y1);
    gl.uniform2f(at.size, width, height);
    gl.uniform4f(at.scale, factor, offset, scale.lo / 2, scale.core);
    gl.uniform1i(at.law, LAWS[scale.law]);
    gl.uniform1i(at.wrap, frame.wrap ? 1 : 0);
    gl.uniform3fv(at.missing, frame.missing.flat().map((c) => c / 255));
    gl.uniform1f(at.hatch, frame.hatch);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    target.drawImage(canvas, 0, canvas.height - height, width, height, 0, 0, width, height);
  }
}

/** One image: its numbers, and its texture where there is WebGL2. */
export class ImageRenderer {
  private values: Numbers = new Float32Array(0);
  private nx = 0;
  private ny = 0;
  private stats: Statistics | undefined;
  private uploaded: { device: Device; texture: WebGLTexture; nx: number; ny: number; gain: number; fresh: boolean } | undefined;

  /** Takes other numbers, by rows from the bottom to the top. */
  set(values: Numbers, nx: number, ny: number, stats: Statistics): void {
    this.values = values;
    this.nx = nx;
    this.ny = ny;
    this.stats = stats;
    if (this.uploaded) {
      this.uploaded.fresh = false;
    }
  }

  /** Draws the frame; returns whether WebGL2 did it. */
  draw(target: CanvasRenderingContext2D, frame: Frame): boolean {
    const device = Device.get();
    if (device && Math.max(this.nx, this.ny) <= device.largest && Math.max(frame.width, frame.height) <= device.largest) {
      const { texture, gain } = this.upload(device);
      device.draw(target, texture, gain, frame);
      return true;
    }
    target.putImageData(drawOnProcessor(this.values, this.nx, this.ny, frame), 0, 0);
    return false;
  }

  /** The texture with the numbers of today: only what changed is sent. */
  private upload(device: Device): { texture: WebGLTexture; gain: number } {
    let up = this.uploaded;
    if (up?.device !== device) {
      up = { device, texture: device.texture(), nx: 0, ny: 0, gain: 1, fresh: false };
      this.uploaded = up;
    }
    if (!up.fresh) {
      const { gl } = device;
      const numbers = textureNumbers(this.values, this.stats as Statistics);
      gl.activeTexture(gl.TEXTURE0);
      gl.bindTexture(gl.TEXTURE_2D, up.texture);
      if (up.nx === this.nx && up.ny === this.ny) {
        gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, this.nx, this.ny, gl.RED, gl.FLOAT, numbers.values);
      } else {
        gl.texImage2D(gl.TEXTURE_2D, 0, gl.R32F, this.nx, this.ny, 0, gl.RED, gl.FLOAT, numbers.values);
      }
      Object.assign(up, { nx: this.nx, ny: this.ny, gain: numbers.gain, fresh: true });
    }
    return up;
  }

  destroy(): void {
    if (this.uploaded) {
      this.uploaded.device.gl.deleteTexture(this.uploaded.texture);
      this.uploaded = undefined;
    }
  }
}

/** Numbers for the texture, multiplied by a power of 2 where they are not of ordinary size, with stand-ins for NaN and infinity. */
export function textureNumbers(values: Numbers, stats: Statistics): { readonly values: Float32Array; readonly gain: number } {
  const size = Math.max(Math.abs(stats.min), Math.abs(stats.max));
  const ordinary = !(size > 1e15) && !(size > 0 && size < 1e-15);
  const gain = ordinary ? 1 : 2 ** -Math.max(-1000, Math.ceil(Math.log2(size)));
  if (ordinary && stats.finite) {
    return { values: values instanceof Float32Array ? values : Float32Array.from(values), gain };
  }
  const to = new Float32Array(values.length);
  for (let k = 0; k < to.length; k++) {
    const v = values[k];
    to[k] = v - v === 0 ? v * gain : v === Infinity ? INFINITE : v === -Infinity ? -INFINITE : MISSING;
  }
  return { values: to, gain };
}

/** What the shader does, pixel by pixel. */
export function drawOnProcessor(values: Numbers, nx: number, ny: number, frame: Frame): ImageData {
  const { width, height, window, scale, table, wrap, missing, hatch } = frame;
  const image = new ImageData(width, height);
  const to = new Uint32Array(image.data.buffer);
  const colours = new Uint32Array(table.buffer);
  const [empty, line] = missing.map((c) => new Uint32Array(Uint8Array.from([...c, 255]).buffer)[0]);
  const xs = subsamples(window.x0, window.x1, width, nx);
  const ys = subsamples(window.y0, window.y1, height, ny);
  const { factor, offset } = scale.line;
  const floor = scale.lo / 2;
  const number = (v: number) => {
    const t = scale.apply(scale.law === "log" ? Math.max(v, floor) : v) * factor + offset;
    return colours[Math.min((wrap ? t - Math.floor(t) : Math.min(Math.max(t, 0), 1)) * 256, 255) | 0];
  };
  if (xs.each * ys.each === 1) {
    enlarge(to, values, nx, { xs: xs.index, ys: ys.index, number, missing: (column, up) => ((column + up + 1) % hatch < hatch / 4 ? line : empty) });
    return image;
  }
  const mean = (column: number, up: number) => {
    let [sum, known] = [0, 0];
    for (let b = up * ys.each; b < (up + 1) * ys.each; b++) {
      for (let a = column * xs.each; a < (column + 1) * xs.each; a++) {
        const v = values[ys.index[b] * nx + xs.index[a]];
        if (!Number.isNaN(v)) {
          sum += Math.min(Math.max(v, -1e300), 1e300);
          known++;
        }
      }
    }
    return sum / known;
  };
  for (let row = 0, at = 0; row < height; row++) {
    const up = height - 1 - row;
    for (let column = 0; column < width; column++, at++) {
      const v = mean(column, up);
      to[at] = Number.isNaN(v) ? ((column + up + 1) % hatch < hatch / 4 ? line : empty) : number(v);
    }
  }
  return image;
}

/** Fills pixels of which each shows one sample: the colour of a sample is found once for its whole run of columns, and rows of one sample are copied. */
function enlarge(
  to: Uint32Array,
  values: Numbers,
  nx: number,
  { xs, ys, number, missing }: { readonly xs: Int32Array; readonly ys: Int32Array; readonly number: (v: number) => number; readonly missing: (column: number, up: number) => number },
): void {
  const [width, height] = [xs.length, ys.length];
  let hatched = true;
  for (let row = 0; row < height; row++) {
    const up = height - 1 - row;
    const start = row * width;
    if (!hatched && ys[up] === ys[up + 1]) {
      to.copyWithin(start, start - width, start);
      continue;
    }
    hatched = false;
    for (let column = 0, colour = 0; column < width; column++) {
      const v = values[ys[up] * nx + xs[column]];
      if (Number.isNaN(v)) {
        hatched = true;
        to[start + column] = missing(column, up);
        continue;
      }
      if (column === 0 || xs[column] !== xs[column - 1]) {
        colour = number(v);
      }
      to[start + column] = colour;
    }
  }
}

/** The samples that each pixel averages, along one axis: `each` of them a pixel. */
function subsamples(from: number, to: number, pixels: number, count: number): { readonly each: number; readonly index: Int32Array } {
  const step = (to - from) / pixels;
  const each = Math.min(Math.max(Math.ceil(step - 0.01), 1), SAMPLES);
  const index = Int32Array.from({ length: pixels * each }, (_, k) => {
    const centre = from + (Math.floor(k / each) + 0.5) * step;
    return Math.min(Math.max(Math.floor(centre + (((k % each) + 0.5) / each - 0.5) * step), 0), count - 1);
  });
  return { each, index };
}
