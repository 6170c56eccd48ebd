/** Where the page's numbers are: in its own elements, or at the server that sent it. */

import { DataError, type PartSource } from "./data";

/** Parts embedded in a document, and pieces from the server at an address, if there is one. */
export function partSource(page: Document, server: string | undefined): PartSource {
  const answer = async (path: string, headers: Record<string, string>, statuses: readonly number[]): Promise<ArrayBuffer> => {
    if (server === undefined) {
      throw new DataError("This page has no server: it cannot load more than it holds.");
    }
    let response: Response;
    try {
      response = await fetch(server + path, { headers, cache: "no-store", referrerPolicy: "no-referrer" });
    } catch {
      throw new DataError("The server does not answer: is lenslet view --serve still running?");
    }
    if (!statuses.includes(response.status)) {
      const reason = (await response.text().catch(() => "")).slice(0, 300);
      throw new DataError(`The server refused a request (${response.status})${reason ? `: ${reason}` : "."}`);
    }
    return response.arrayBuffer();
  };
  // An element of a document that is still read is whole when another follows it.
  const whole = (id: string) => {
    const element = page.getElementById(id);
    return element !== null && (element.nextElementSibling !== null || page.readyState !== "loading") ? (element.textContent ?? "") : undefined;
  };
  return {
    text: async (id) => {
      while (whole(id) === undefined && page.readyState === "loading") {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      return whole(id);
    },
    fetch: async (path, from, to) => (to <= from ? new ArrayBuffer(0) : answer(path, { Range: `bytes=${from}-${to - 1}` }, [206])),
    request: (path) => answer(path, {}, [200]),
  };
}
