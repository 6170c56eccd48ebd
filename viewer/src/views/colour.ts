/**
 * Colour maps.
 *
 * viridis, cividis, magma, inferno, plasma, twilight and cubehelix are Matplotlib's, RdBu_r is ColorBrewer's as Matplotlib has it;
 * batlow, lapaz, oslo, turku, hawaii, davos, vik, roma, berlin, broc, romaO and vikO are Fabio Crameri's scientific colour maps;
 * mako, rocket and icefire are Seaborn's, phase is cmocean's. LICENCES-maps.txt has their licences.
 */

/** sRGB anchors at equal distances, in hexadecimal: between them, colours are interpolated to within 3/255 of the original table. */
const ANCHORS = {
  viridis: "44015448176a482a7a433d853d4e8a355e8d2e6d8e297b8e23898e1e978b20a5862db37d45c07064cc5e88d548b0dd2ed8e217fee722",
  cividis: "00234e002859012d6900317114366f233b6f2c406d35466c3d4b6c45506c4c556c535a6d595f6e60646f6669706d6e727373747979777f7e788683798d8978948e779c9476a39a75aaa073b2a570b9ab6dc1b26ac8b866d0be61d8c45cdfcb58e9d14df0d948fadf38ffe835",
  magma: "000001100e3133106a5a13817d267fa32f80c83d74eb535ffb7b5bfda973fed294fbfebf",
  inferno: "0000020807211d0d47380964510d6d69176f801f6c982766b0315bc63d4ed94d3de9612bf47919fb9404fcb012f9cd36f0eb68faffa6",
  plasma: "0f078740049d6300a88705a7a62098c03a83d6546ee86f5af68c46fdad31fdd126f0f924",
  mako: "0c03071f13203221423c31604142863b589b3470a03685a6339ca93eb0ae4ec7ac80d8aeb7e5c4ddf5e5",
  rocket: "020519221431451c486a1f56911e5cb91458db2647ef503cf47d54f6a47bf7c8aafaebdd",
  batlow: "031a59103a5f1551622664604871506d7c3b97882ac59136ed995efea994fcbac6fbccfa",
  lapaz: "1b0d642229772741882e58963a6ea04e83a46993a18aa19ca9a893d3bba1f5d9c9fdf3f4",
  oslo: "0102020d1825102840173e642353873c6cae6288c7809bca9aabc9b8c0ccdbdcdfffffff",
  turku: "02020221211e36362e504f3d676648817f53a49863c7a576dfa788f4b4a7fecdcaffe6e6",
  hawaii: "8d047390236093354f964941985c349b71279d881a9aa3228cbb4379ca6d67d7975de4c47befeab5f2ff",
  davos: "00064a0c276b21448833619a4c769e5f859678968f8ea487b1bf8ddee2aff7f7dbfdfdfd",
  cubehelix: "0200001c112d17344f155d4a3977307f7b33be7865d784b1cba8e9bfd3f5d4f1ecfffffd",
  vik: "01126102276e033c7c0351891568993983ab629fbe8dbad0b7d4e2e2e8ebf1ded3e5c2addba88bd08f69c6774abc602ca6410d882504701207590008",
  roma: "7e1900964c12a86f23bb9636d0c567d0e7adade9d36fced73ea6cb2881bb205cab053198",
  berlin: "9fb0ff65aae5358ab2245d781435450f1317240a004212006e2711a05240cd7e75ffadad",
  RdBu_r: "0530621147801d5fa42c74b53887bc4e9bc874b2d495c7dfb0d4e6cde3efdde9f0f0f5f8faf3effae4d7fdd8c2f8bea2f5a885e88a6edc6c55cc4e44be2c35aa1328860c2568001e",
  broc: "2c1a4c2a306327477a326191527ba47495b697b0c8bacbdbe0e7eef0f0e4dfdfbfcdcd9bb2b27793935a75754259592a3e3e15262601",
  icefire: "bde6db97ccd26fb4cd499ccc347fd24560c34a47953938612a283c1e1f22241d1e3e22295e2a36852d43ae3044cf4338e56331f18a49f7af7dffd4ac",
  twilight: "e3dbe4cad2d69cbac87aa1c26684be5f65b65e43a65820854111542e12344712416d1a4f902c50aa4850bc6957c78c6ecead95dcceca",
  romaO: "733856823a3c94502caa742dc3a44ad7d183cde3b4a5d9cd71bbce5193c04f6aa563487c",
  vikO: "4f183c3f2b5b304c804375a175a0bdb2c0cbd7c1b5d8a386c57b54a14b2a79231c5f1427",
  phase: "a9770dbc6a25cc5a3cd84858df337ddd23aad02ed2bb48eb9f5ff47e73f15783e0318ec41d94a60f978b0d9a6c349a426b91168f850c",
  grey: "000000ffffff",
  grey_r: "ffffff000000",
} as const;

/** Name of a colour map. */
export type MapName = keyof typeof ANCHORS;

/** Colour maps of which the last colour continues with the first; their anchors are points of a circle. */
const CYCLIC: ReadonlySet<string> = new Set(["twilight", "romaO", "vikO", "phase"]);

const list = (names: string) => names.split(" ") as MapName[];

/** Colour maps by what they are for. All but those of the last group keep their order for readers with any kind of colour blindness. */
export const MAP_GROUPS: readonly { readonly label: string; readonly names: readonly MapName[] }[] = [
  { label: "Sequential", names: list("viridis cividis magma inferno plasma mako rocket batlow lapaz oslo turku hawaii davos grey grey_r") },
  { label: "Diverging", names: list("vik roma berlin broc icefire RdBu_r") },
  { label: "Cyclic", names: list("twilight romaO vikO") },
  { label: "Not for colour-blind readers", names: list("cubehelix phase") },
];

/** Whether a text is the name of a colour map. */
export function isMapName(name: string): name is MapName {
  return Object.hasOwn(ANCHORS, name);
}

/** The colour map for numbers of a kind, unless another one is chosen. */
export function defaultMap({ signed, cyclic }: { readonly signed: boolean; readonly cyclic: boolean }): MapName {
  return cyclic ? "twilight" : signed ? "vik" : "viridis";
}

/** Name of a colour map for readers. */
export function mapLabel(name: MapName): string {
  return name.replace("_r", " reversed");
}

const tables = new Map<MapName, Uint8ClampedArray>();

/** The 256 colours of a map: red, green, blue and 255 in turn, from the lowest to the highest number. */
export function colourTable(name: MapName): Uint8ClampedArray {
  const known = tables.get(name);
  if (known) {
    return known;
  }
  const text = ANCHORS[name];
  const count = text.length / 6;
  const cyclic = CYCLIC.has(name);
  const channel = (anchor: number, c: number) => parseInt(text.substr((anchor % count) * 6 + 2 * c, 2), 16);
  const table = new Uint8ClampedArray(1024).fill(255);
  for (let k = 0; k < 256; k++) {
    const at = cyclic ? (k / 256) * count : (k / 255) * (count - 1);
    const from = Math.min(Math.floor(at), cyclic ? count - 1 : count - 2);
    for (let c = 0; c < 3; c++) {
      table[4 * k + c] = channel(from, c) + (channel(from + 1, c) - channel(from, c)) * (at - from);
    }
  }
  tables.set(name, table);
  return table;
}
