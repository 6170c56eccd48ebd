/** Attributes of files and variables in words and numbers. */

import type { DataFile } from "../data";
import type { AttributeValue } from "../manifest";

export type AttributeLike = AttributeValue;

/** An attribute in words. */
export function attributeText(value: AttributeValue): string {
  return typeof value === "object" ? value.join(", ") : String(value);
}

/** A number of a file: its attribute of this name, or the one element of the variable of this name; undefined where it has neither. */
export async function numberOf(file: DataFile, name: string): Promise<number | undefined> {
  const stored = file.attributes[name];
  if (typeof stored === "number") {
    return stored;
  }
  const variable = file.array(name);
  return variable?.size === 1 ? (await variable.all()).re[0] : undefined;
}
