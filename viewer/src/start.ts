/**
 * Runs the viewer, which a page holds as zlib in base64: a third of its size.
 */

const root = document.getElementById("lenslet-viewer") as HTMLElement;

async function run(): Promise<void> {
  const text = document.getElementById("lenslet-program")?.textContent ?? "";
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const script = document.createElement("script");
  script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  document.body.append(script);
}

run().catch(() => {
  root.textContent = "The page is damaged, or this browser is older than 2023 and cannot decompress it.";
});
