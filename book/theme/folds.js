// Folded chunks open for whoever comes by a link to them, or by a search for words that they hold.
(() => {
    const reveal = () => {
        const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
        const fold = target?.closest("details.folded");
        if (fold && !fold.open) {
            fold.open = true;
            target.scrollIntoView();
        }
    };
    const sought = new URLSearchParams(location.search).get("highlight");
    const words = (sought ?? "").toLowerCase().split(/\s+/).filter(word => word);
    for (const fold of words.length ? document.querySelectorAll("details.folded") : []) {
        const text = fold.textContent.toLowerCase();
        if (words.some(word => text.includes(word))) fold.open = true;
    }
    addEventListener("hashchange", reveal);
    // A second click on the same link changes no address.
    document.addEventListener("click", event => {
        if (!event.defaultPrevented && event.target.closest?.("a[href*='#']")) setTimeout(reveal);
    });
    reveal();
})();
