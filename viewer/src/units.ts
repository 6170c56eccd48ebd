/** Units of angles. */

/** Radians in a second of arc. */
export const ARCSEC = Math.PI / 648_000;
