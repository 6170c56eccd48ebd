// References to chunks expand where they stand. A click with a modifier, and the arrow beside a reference, go to the chunk's own place.
(() => {
    const expansions = new WeakMap();

    // The code of the chunk with this anchor: on the page, or in a template if its place is on another page.
    const codeAt = anchor =>
        document.getElementById(anchor)?.querySelector("pre > code")
        ?? document.querySelector(`template[data-chunk="${CSS.escape(anchor)}"]`)?.content.firstElementChild;

    // The code of all parts of a chunk, in the order of the program.
    const parts = reference => {
        const anchors = reference.dataset.parts?.split(" ") ?? [decodeURIComponent(reference.hash.slice(1))];
        const codes = anchors.map(codeAt);
        return codes.every(code => code) ? codes : [];
    };

    // Makes the references in a piece of code ready to be clicked.
    const dress = code => {
        for (const home of code.querySelectorAll(".chunk-home")) home.remove();
        for (const reference of code.querySelectorAll(".chunk-reference")) {
            if (!parts(reference).length) continue;
            const home = document.createElement("a");
            home.className = "chunk-home";
            home.href = reference.getAttribute("href");
            home.title = `go to ${reference.textContent}, ${reference.title}`;
            home.setAttribute("aria-label", home.title);
            reference.setAttribute("aria-expanded", "false");
            reference.after(home);
        }
    };

    // Copies code as it is in its own place: with colours, and nothing expanded.
    const copy = code => {
        const whole = code.cloneNode(true);
        for (const expansion of whole.querySelectorAll(".expansion")) expansion.remove();
        whole.normalize();
        if (!code.isConnected && window.hljs) hljs.highlightBlock(whole);
        showComment(whole, document.documentElement.dataset.code === "all");
        dress(whole);
        return whole.childNodes;
    };

    // Puts blanks before every line that is not empty.
    const indent = (code, blanks) => {
        const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
        let fresh = true;
        while (texts.nextNode()) {
            const node = texts.currentNode, text = node.data;
            if (!text) continue;
            node.data = text.replace(/(^|\n)(?=[^\n])/g, (_, end) => end || fresh ? end + blanks : "");
            fresh = text.endsWith("\n");
        }
    };

    // The blanks at the start of the line of a reference.
    const blanksBefore = reference => {
        const before = document.createRange();
        before.setStart(reference.closest("code"), 0);
        before.setEndBefore(reference);
        return before.toString().split("\n").pop().match(/^[ \t]*/)[0];
    };

    // The text after a reference; it starts with the end of the line.
    const textAfter = reference => {
        const texts = document.createTreeWalker(reference.closest("code"), NodeFilter.SHOW_TEXT);
        texts.currentNode = reference;
        let text = texts.nextNode();
        while (text && reference.contains(text)) text = texts.nextNode();
        return text;
    };

    // Shows the code of a chunk below a reference; returns where it is, or nothing if the page does not hold it.
    const expand = reference => {
        if (expansions.has(reference)) return expansions.get(reference);
        const codes = parts(reference), after = textAfter(reference);
        if (!codes.length || !after) return null;
        const expansion = document.createElement("span");
        expansion.className = "expansion";
        for (const code of codes) expansion.append(...copy(code));
        indent(expansion, blanksBefore(reference));
        if (after.length > 1) after.splitText(1);
        after.after(expansion);
        expansions.set(reference, expansion);
        reference.setAttribute("aria-expanded", "true");
        return expansion;
    };

    const collapse = reference => {
        const expansion = expansions.get(reference), around = expansion.parentElement;
        expansion.remove();
        around.normalize();
        expansions.delete(reference);
        reference.setAttribute("aria-expanded", "false");
    };

    const expandAll = code => {
        for (const reference of code.querySelectorAll(".chunk-reference")) {
            const expansion = expand(reference);
            if (expansion) expandAll(expansion);
        }
    };

    const collapseAll = code => {
        for (const reference of code.querySelectorAll(".chunk-reference")) {
            if (reference.isConnected && expansions.has(reference)) collapse(reference);
        }
    };

    document.addEventListener("click", event => {
        if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
        const reference = event.target.closest?.(".chunk-reference");
        if (!reference) return;
        if (expansions.has(reference)) collapse(reference);
        else if (!expand(reference)) return;
        event.preventDefault();
    });

    // The chunk of a file has a button that shows the whole file.
    const addButton = chunk => {
        const code = chunk.querySelector("pre > code");
        if (!code.querySelector(".chunk-home")) return;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "expand-all";
        button.textContent = "expand all";
        button.setAttribute("aria-expanded", "false");
        button.addEventListener("click", event => {
            event.preventDefault();
            const whole = button.getAttribute("aria-expanded") === "false";
            if (chunk.matches("details")) chunk.open = true;
            whole ? expandAll(code) : collapseAll(code);
            button.textContent = whole ? "collapse all" : "expand all";
            button.setAttribute("aria-expanded", whole);
        });
        chunk.querySelector(".chunk-links").append(button);
    };

    for (const code of document.querySelectorAll(".chunk > pre > code")) dress(code);
    for (const chunk of document.querySelectorAll(".chunk.root")) addButton(chunk);
})();
