import assert from "node:assert/strict";
import { test } from "node:test";
import { colourTable, defaultMap, isMapName, MAP_GROUPS, type MapName } from "../src/views/colour";

/** Colours 0, 37, 90, 128, 171, 222 and 255 of the original tables of 256. */
const ORIGINALS: Readonly<Record<string, string>> = {
  viridis: "44015446337f2e6d8e21918c37b878a8db34fde725",
  cividis: "00224e233c6e5c616e7d7c78a69c74dcc859fee838",
  magma: "000004241253792282b73779f2625dfec185fcfdbf",
  inferno: "000004290b55801f6cbc3754ee6a24f9c72ffcffa4",
  plasma: "0d08875502a4a21d9acc4778ed7a52fdc229f0f921",
  mako: "0b04052f1f3d3e4f94357ba339abac94dcb5def5e5",
  rocket: "03051a37193f8c1d5bcb1b4ff16244f6b995faebdd",
  batlow: "011959124861447052828231d49445fdb3b1faccfa",
  lapaz: "1a0c64253782396c9e5c8ca395a398e8ccb7fef2f3",
  oslo: "0101010f2135225183507bbc8aa1caccd0d6ffffff",
  turku: "0000002d2d27646447938c5bd0a67cfac2bcffe6e6",
  hawaii: "8c02739333519a682c9c961c7fc66164e8d1b3f2fd",
  davos: "00054a18387d48749d6c8e939aae88eeefc9fefefe",
  cubehelix: "0000001a2543357435a1794ad391c9c9e5f0ffffff",
  vik: "001261044c8680b2caece5e0d39572963107590008",
  roma: "7e1700a1611cccbe62c0eac35bbfd3236cb2033198",
  berlin: "9eb0ff4698c8173a4b190c09521804ba6b5fffadad",
  broc: "2c1a4c2b538597b0c8ebeeecc3c38c5f5f2f262600",
  icefire: "bde7db53a2cd3e3c701f1e1e7b2d40ec783bffd4ac",
  twilight: "e2d9e288acc45c389d301437902e50cca186e2d9e2",
  romaO: "7339578f4930c9af57cbe1b372b9cd575b94723959",
  vikO: "4f1a3d35437683a7c1d5beb3c479546e1c2050193c",
  phase: "a8780dd34f4dc937db7d73f01d94a6569526a8780d",
  RdBu_r: "053061307ab6b3d6e8f7f6f6f7b596bd2d3567001f",
};
const PLACES = [0, 37, 90, 128, 171, 222, 255];

const all = MAP_GROUPS.flatMap(({ names }) => names);

function colour(name: MapName, k: number): number[] {
  return [...colourTable(name).slice(4 * k, 4 * k + 3)];
}

/** CIE lightness of a colour in sRGB, 0 … 100. */
function lightness(rgb: readonly number[]): number {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y;
}

test("colour maps agree with the original tables to 3/255, and rounding", () => {
  for (const [name, text] of Object.entries(ORIGINALS)) {
    assert.ok(isMapName(name), name);
    PLACES.forEach((place, n) => {
      const original = [0, 1, 2].map((c) => parseInt(text.slice(6 * n + 2 * c, 6 * n + 2 * c + 2), 16));
      const off = Math.max(...colour(name, place).map((c, k) => Math.abs(c - original[k])));
      assert.ok(off <= 3.5, `${name} differs by ${off} at ${place}`);
    });
  }
});

test("every colour map is offered once, and has 256 opaque colours", () => {
  assert.equal(new Set(all).size, all.length);
  assert.ok(all.length >= 20);
  assert.deepEqual([...Object.keys(ORIGINALS), "grey", "grey_r"].sort(), [...all].sort());
  for (const name of all) {
    const table = colourTable(name);
    assert.equal(table.length, 1024);
    assert.ok(table.every((value, k) => k % 4 !== 3 || value === 255));
  }
  assert.ok(!isMapName("constructor"));
});

test("lightness of sequential maps never turns back", () => {
  for (const name of MAP_GROUPS[0].names) {
    const values = Array.from({ length: 256 }, (_, k) => lightness(colour(name, k)));
    const direction = Math.sign(values[255] - values[0]);
    for (let k = 8; k < 256; k++) {
      assert.ok(direction * (values[k] - values[k - 8]) > -0.6, `${name} at ${k}`);
    }
  }
});

test("the last colour of a cyclic map continues with the first", () => {
  for (const name of [...MAP_GROUPS[2].names, "phase" as const]) {
    const off = Math.max(...colour(name, 0).map((c, k) => Math.abs(c - colour(name, 255)[k])));
    assert.ok(off <= 8, `${name} jumps by ${off}`);
  }
});

test("the kind of numbers chooses the colour map", () => {
  assert.equal(defaultMap({ signed: false, cyclic: false }), "viridis");
  assert.equal(defaultMap({ signed: true, cyclic: false }), "vik");
  assert.equal(defaultMap({ signed: false, cyclic: true }), "twilight");
});
