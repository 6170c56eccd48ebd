// Says whether the parts in the sidebar are open to those who cannot see it; mdbook's own script opens and closes them.
for (const title of document.querySelectorAll("#mdbook-sidebar .part-title")) {
    const part = title.closest(".part");
    const tell = () => title.setAttribute("aria-expanded", part.classList.contains("expanded"));
    title.addEventListener("click", tell);
    tell();
}

// The button of the sidebar is the label of a box that is not shown: without this the keyboard does not reach it.
{
    const label = document.getElementById("mdbook-sidebar-toggle");
    label.tabIndex = 0;
    label.setAttribute("role", "button");
    label.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        label.click();
    });
}
