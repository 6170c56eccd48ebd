/** All live figures of the book, by the names of `figures.json`. */

import { atmosphereFigures } from "./figures/atmosphere";
import { electronFigures } from "./figures/electrons";
import { imageFigures } from "./figures/images";
import { resultFigures } from "./figures/results";
import type { LiveFigure } from "./figure";

export const figures: Readonly<Record<string, LiveFigure | undefined>> = { ...atmosphereFigures, ...imageFigures, ...electronFigures, ...resultFigures };
