/** The page: its header, the list of panels, and the panel that is open. */

import { button, disposer, endRemoved } from "./controls";
import type { DataFile } from "./data";
import { h } from "./dom";
import { failure } from "./failure";
import type { PanelContext, PanelOffer } from "./panel";
import { offers } from "./panels";
import { Store } from "./store";

/** Keys of the page, for the help. */
const KEYS: readonly (readonly [string, string])[] = [
  ["[ and ]", "previous and next panel"],
  ["Ctrl Z, Ctrl Shift Z or Ctrl Y", "undo, redo"],
  ["T", "light or dark"],
  ["?", "this list"],
  ["Tab", "to the next control, picture, handle or shape"],
  ["arrows", "move the cursor of a picture, a handle, a slider or a shape; with Shift ten times as far"],
  ["+ − 0", "zoom a picture in, out, and back to the whole"],
  ["Enter", "pick what is under the cursor of a picture"],
  ["space", "play or stop, on the slider of a series"],
];

/** Builds the page into an element. */
export function start(root: HTMLElement, files: readonly DataFile[], program: string): void {
  const store = new Store();
  store.restore(location.hash.slice(1));
  const all = offers(files);
  const page = store.scope("page");
  const open = page.cell("panel", all[0]?.id ?? "", (id) => all.some((one) => one.id === id));
  const theme = page.cell("theme", "");
  const status = h("p", { class: "status", role: "status", "aria-live": "polite" });
  const say = (sentence: string) => {
    status.textContent = sentence;
  };

  let host = h("main", { id: "panel", tabindex: -1 });
  const list = h("nav", { "aria-label": "Panels" });
  const choice = h("select", { class: "panels", "aria-label": "Panel", change: () => open.set(choice.value) });
  for (const group of new Set(all.map((one) => one.group))) {
    const members = all.filter((one) => one.group === group);
    list.append(
      h("h2", {}, group),
      h("ul", {}, ...members.map((one) => h("li", {}, h("button", { type: "button", "data-panel": one.id, click: () => open.set(one.id) }, one.title)))),
    );
    choice.append(h("optgroup", { label: group }, ...members.map((one) => h("option", { value: one.id }, one.title))));
  }

  // The panel that is open
  let end: () => void = () => undefined;
  let opened = 0;
  let byKey = false;
  const show = async () => {
    const offer = all.find((one) => one.id === open.value);
    const takesFocus = byKey || host.contains(document.activeElement);
    byKey = false;
    end();
    end = () => undefined;
    // A new element: a panel that is still loading fills one that is no longer in the page.
    const before = host;
    host = h("main", { id: "panel", tabindex: -1 });
    before.replaceWith(host);
    endRemoved();
    for (const item of list.querySelectorAll("button")) {
      item.setAttribute("aria-current", item.dataset["panel"] === offer?.id ? "page" : "false");
    }
    if (offer === undefined) {
      host.append(h("p", { class: "failure" }, "There is nothing to look at: no file of this page has an array, a text or a table."));
      return;
    }
    choice.value = offer.id;
    document.title = `${offer.title}: ${files.map((file) => file.name).join(", ")}`;
    const mine = ++opened;
    const heading = h("h2", { class: "panel", tabindex: -1 }, offer.title);
    host.append(heading);
    if (takesFocus) {
      heading.focus();
    }
    const ended = await openPanel(offer, host, { files, store, scope: store.scope(offer.id), say });
    if (mine === opened) {
      end = ended;
    } else {
      ended();
    }
  };
  open.subscribe(() => void show());

  // State in the address
  const address = () => {
    const fragment = store.fragment();
    if (location.hash.slice(1) !== fragment) {
      try {
        history.replaceState(null, "", fragment === "" ? location.pathname + location.search : `#${fragment}`);
      } catch {
        // A page in a frame without an address of its own keeps its state to itself.
      }
    }
    undo.disabled = !store.canUndo;
    redo.disabled = !store.canRedo;
  };
  let later = 0;
  const undo = button("Undo", () => store.undo(), "Ctrl Z");
  const redo = button("Redo", () => store.redo(), "Ctrl Shift Z");
  store.subscribeAll(() => {
    clearTimeout(later);
    later = window.setTimeout(address, 150);
    undo.disabled = !store.canUndo;
    redo.disabled = !store.canRedo;
  });
  // The address of the event, since that of the page may be written anew before it comes.
  addEventListener("hashchange", (event) => store.restore(new URL(event.newURL).hash.slice(1), { undoable: true }));

  // Light and dark
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () => !printing && (theme.value === "" ? dark.matches : theme.value === "dark");
  const paint = () => {
    document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  };
  const turn = () => theme.set(isDark() ? "light" : "dark");
  theme.subscribe(paint);
  dark.addEventListener("change", paint);
  paint();

  // Print: light, as wide as a page of paper; views are drawn anew for that width before the browser takes its picture.
  const layOut = (forPrint: boolean) => () => {
    printing = forPrint;
    document.documentElement.classList.toggle("printing", forPrint);
    paint();
    dispatchEvent(new Event("resize"));
  };
  addEventListener("beforeprint", layOut(true));
  addEventListener("afterprint", layOut(false));

  // Help and keys
  const help = h(
    "dialog",
    { class: "help", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h("dl", {}, ...KEYS.flatMap(([keys, what]) => [h("dt", {}, keys), h("dd", {}, what)])),
    // Not a form: frames of notebooks allow none.
    button("Close", () => help.close()),
  );
  const step = (by: number) => {
    const at = all.findIndex((one) => one.id === open.value);
    const next = all[(at + by + all.length) % all.length];
    if (next !== undefined) {
      byKey = true;
      open.set(next.id);
      byKey = false;
    }
  };
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLElement && event.target.matches("input:not([type=range]):not([type=checkbox]), select, textarea");
    // On some keyboards the brackets need AltGr, which counts as Ctrl and Alt.
    const altGraph = event.getModifierState("AltGraph");
    const command = (event.ctrlKey || event.metaKey) && !altGraph;
    if (help.open || event.defaultPrevented || event.isComposing) {
      return;
    }
    if (command && event.key.toLowerCase() === "z" && !typing) {
      event.preventDefault();
      event.shiftKey ? store.redo() : store.undo();
    } else if (command && event.key.toLowerCase() === "y" && !typing) {
      event.preventDefault();
      store.redo();
    } else if (!command && !typing) {
      const act: Record<string, () => void> = { "[": () => step(-1), "]": () => step(1), "?": () => help.showModal(), ...(event.altKey ? {} : { t: turn, T: turn }) };
      if (Object.hasOwn(act, event.key)) {
        act[event.key]();
      }
    }
  });

  // A frame of a notebook cannot print.
  const isFramed = window.parent !== window && window.origin === "null";
  root.append(
    h("a", { class: "skip", href: "#panel", click: (event: Event) => { event.preventDefault(); host.focus(); } }, "Skip to the panel"),
    h(
      "header",
      { class: "page" },
      h("h1", {}, files.map((file) => file.name).join(", ")),
      choice,
      h("div", { class: "tools", role: "toolbar", "aria-label": "Page" }, undo, redo, button("Light/dark", turn, "T"), isFramed ? null : button("Print", () => print()), button("Keys", () => help.showModal(), "?")),
    ),
    list,
    host,
    h("footer", {}, status, ...notes(files), h("p", {}, `Written by ${program}.`)),
    help,
  );
  address();
  void show();
}

/** Opens a panel; where that fails, a sentence takes its place. */
async function openPanel(offer: PanelOffer, host: HTMLElement, context: PanelContext): Promise<() => void> {
  const ends = disposer();
  try {
    ends.add(await offer.open(host, context));
  } catch (error) {
    host.append(failure(error));
  }
  return ends.end;
}

/** What is reduced in the page, by array, with the error as the page's writer states it. */
function notes(files: readonly DataFile[]): HTMLElement[] {
  const all = files.flatMap((file) => file.arrays().filter((one) => one.array.reduced !== "").map((one) => `${files.length > 1 ? `${file.name}, ` : ""}${one.name}: ${one.array.reduced}`));
  return all.length === 0 ? [] : [h("details", { class: "notes" }, h("summary", {}, "What is reduced in this page"), h("ul", {}, ...all.map((text) => h("li", {}, text))))];
}
