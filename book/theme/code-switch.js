// How much code the pages show: all of it, what is not folded, or none. The choice is remembered where the browser allows it.
(() => {
    const KEY = "book-code", page = document.documentElement;
    const choices = [
        ["all", "All code", "open the folded chunks and long comments too"],
        ["key", "Key code", "leave folded chunks and long comments closed"],
        ["none", "No code", "hide the chunks"],
    ];
    const remembered = () => {
        try { return localStorage.getItem(KEY); } catch { return null; }
    };
    const remember = choice => {
        try { localStorage.setItem(KEY, choice); } catch { /* it holds for this page */ }
    };
    const buttons = choices.map(([choice, name, title]) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = name;
        button.title = title;
        button.dataset.choice = choice;
        button.addEventListener("click", () => {
            remember(choice);
            inPlace(() => {
                mark(choice);
                unfold(choice === "all");
            });
        });
        return button;
    });

    const mark = choice => {
        page.dataset.code = choice;
        for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.choice === choice);
    };
    const unfold = open => {
        for (const fold of document.querySelectorAll("details.folded")) fold.open = open;
        showComment(document, open);
    };

    // Changes the page, and leaves what is at the top of the window where it is.
    const inPlace = change => {
        const pieces = [...document.querySelectorAll(".content main > :not(.chunk)")];
        const top = pieces.find(piece => piece.getBoundingClientRect().bottom > 60);
        const before = top?.getBoundingClientRect().top;
        change();
        if (top) scrollBy(0, top.getBoundingClientRect().top - before);
    };

    if (document.querySelector(".chunk")) {
        const group = document.createElement("div");
        group.className = "code-switch";
        group.setAttribute("role", "group");
        group.setAttribute("aria-label", "How much code is shown");
        group.append(...buttons);
        document.querySelector(".menu-bar .right-buttons")?.prepend(group);
    }
    const choice = choices.map(([choice]) => choice).find(choice => choice === remembered()) ?? "key";
    mark(choice);
    if (choice === "all") unfold(true);
})();
