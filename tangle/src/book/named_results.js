// What is called by the words that are sought comes before what the full-text search finds.
(() => {
    const { names, places } = window.search.named, called = new Map(Object.entries(names));
    const MOST = 5;
    // As `names::folded` of the renderer does it.
    const folded = words => words.normalize("NFKD").toLowerCase().replace(/[^\p{Alphabetic}\p{N}]+/gu, "");

    // What has this name; where nothing has, what has names that begin so.
    const lookUp = words => {
        const short = folded(words);
        const exact = [words, words.toLowerCase(), short].flatMap(name => called.get(name) ?? []);
        if (exact.length || short.length < 3) return exact;
        const longer = [...called.keys()].filter(name => name.startsWith(short));
        return longer.sort((one, other) => one.length - other.length).flatMap(name => called.get(name));
    };

    const first = window.search.doc_urls.length;
    window.search.doc_urls.push(...places.map(([address]) => address));
    const load = elasticlunr.Index.load;
    elasticlunr.Index.load = saved => {
        const index = load.call(elasticlunr.Index, saved);
        const fullText = index.search;
        index.search = (words, ...options) => {
            const found = [...new Set(lookUp(words.trim()))].slice(0, MOST).map(place => {
                const [, breadcrumbs, body] = places[place];
                return { ref: first + place, doc: { breadcrumbs, body } };
            });
            return [...found, ...fullText.call(index, words, ...options)];
        };
        return index;
    };
})();
