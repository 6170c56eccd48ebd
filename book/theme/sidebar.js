// Says whether the parts in the sidebar are open to those who cannot see it; mdbook's own script opens and closes them.
for (const title of document.querySelectorAll("#mdbook-sidebar .part-title")) {
    const part = title.closest(".part");
    const tell = () => title.setAttribute("aria-expanded", part.classList.contains("expanded"));
    title.addEventListener("click", tell);
    tell();
}
