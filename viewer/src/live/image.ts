/** The view of images, as a script of its own: most pages with live figures show curves alone. */

import { ImageView } from "../views/image";

declare global {
  /** What `live-image.js` gives to `live.js`, which runs after it. */
  var lensletImageView: typeof ImageView | undefined;
}

globalThis.lensletImageView = ImageView;
