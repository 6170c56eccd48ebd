// Folded chunks open at a link to them, and with long comments at a search for words that they hold.
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
    const holds = element => {
        const text = element.textContent.toLowerCase();
        return words.some(word => text.includes(word));
    };
    if (words.length) {
        for (const fold of document.querySelectorAll("details.folded")) if (holds(fold)) fold.open = true;
        showComment(document, true, holds);
    }
    addEventListener("hashchange", reveal);
    // A second click on the same link changes no address.
    document.addEventListener("click", event => {
        if (!event.defaultPrevented && event.target.closest?.("a[href*='#']")) setTimeout(reveal);
    });
    reveal();
})();
