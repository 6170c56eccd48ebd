// Long comments in open code show their first sentence, and a button beside it shows the rest. Nothing is remembered.
const showComment = (() => {
    // Buttons and rests alternate in a piece of code.
    const pairs = code => {
        const rests = [...code.querySelectorAll(".comment-rest")];
        return [...code.querySelectorAll(".comment-more")].map((more, at) => [more, rests[at]]);
    };
    const show = (more, rest, shown) => {
        rest.hidden = shown ? false : "until-found";
        more.setAttribute("aria-expanded", shown);
    };

    document.addEventListener("click", event => {
        const more = event.target.closest?.(".comment-more");
        const [, rest] = more ? pairs(more.closest("code")).find(pair => pair[0] === more) : [];
        if (rest) show(more, rest, Boolean(rest.hidden));
    });
    // The browser's own search has found a word in it.
    document.addEventListener("beforematch", event => {
        const pair = pairs(event.target.closest("code")).find(pair => pair[1] === event.target);
        if (pair) show(...pair, true);
    });

    // Shows or hides the rest of the comments below an element, those that a test lets pass.
    return (around, shown, which = () => true) => {
        for (const [more, rest] of pairs(around)) if (which(rest)) show(more, rest, shown);
    };
})();
