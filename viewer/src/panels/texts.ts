/** Texts, tables and attributes of a file. */

import { type AttributeLike, attributeText } from "./attributes";
import type { DataFile, TableVariable } from "../data";
import { h } from "../dom";
import type { PanelFactory, PanelOffer } from "../panel";
import { csv, type DataTable, download, htmlTable } from "../view";

/** Columns of a table as rows. */
export function tableOf({ name, longName, columns }: TableVariable): DataTable {
  const count = Math.max(0, ...columns.map((one) => one.values.length));
  return {
    caption: longName || name,
    columns: columns.map((one) => (one.unit ? `${one.name} [${one.unit}]` : one.name)),
    rows: Array.from({ length: count }, (_, k) => columns.map((one) => one.values[k] ?? "")),
  };
}

/** Attributes of a file and of its variables as rows. */
function attributesOf(file: DataFile): DataTable {
  const rows = (of: string, all: Readonly<Record<string, AttributeLike>>) => Object.entries(all).map(([key, value]) => [of, key, attributeText(value)]);
  const variables = file.entry.variables.flatMap((one) => rows(one.name, one.attributes));
  return { caption: `Attributes of ${file.name}`, columns: ["of", "key", "value"], rows: [...rows("file", file.attributes), ...variables] };
}

/** A table with a button for CSV. */
export function withExport(table: DataTable, fileName: string): HTMLElement {
  const save = () => download(`${fileName}.csv`, new Blob([csv(table)], { type: "text/csv" }));
  return h(
    "section",
    { class: "card wide" },
    h("header", {}, h("h3", {}, table.caption), h("button", { type: "button", class: "export", click: save }, "CSV")),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.caption }, htmlTable(table)),
  );
}

/** Panels of texts, tables and attributes. */
export const textPanels: PanelFactory = (file) => {
  const group = "All variables";
  const offers: PanelOffer[] = [];
  for (const [k, one] of file.variables.entries()) {
    if (one.kind === "table") {
      offers.push({ id: `table-${k}`, title: one.name, group, order: 950 + k / 1000, open: (host) => (host.append(withExport(tableOf(one), one.name)), () => undefined) });
    }
    if (one.kind === "text") {
      offers.push({
        id: `text-${k}`,
        title: one.name,
        group,
        order: 960 + k / 1000,
        open: (host) => (host.append(h("pre", { class: "text", tabindex: 0 }, one.text)), () => undefined),
      });
    }
  }
  const attributes = attributesOf(file);
  if (attributes.rows.length > 0) {
    offers.push({ id: "attributes", title: "Attributes", group, order: 990, open: (host) => (host.append(withExport(attributes, "attributes")), () => undefined) });
  }
  return offers;
};
