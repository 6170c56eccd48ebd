//! Just enough Rust to see which paths a file names: no comments, no strings, no unit tests.

/// A token that matters, its line (from 0), and the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub text: &'a str,
    pub line: usize,
    pub at: usize,
}

/// A path below the crate that a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The line that names it, from 0.
    pub line: usize,
    /// `a::b::C`.
    pub path: String,
    /// For a re-export, `pub use a::b::C as D`: the name it gets, `D`, or `inner::D` in a module
    /// inside the file; `*` for all of a module.
    pub shown: Option<String>,
}

/// The paths below the crate that a file names outside of its tests: `a::b::C` for
/// `crate::a::b::C`, for `package::a::b::C` and, in module `a`, for `self::b::C`, and for `b::C`
/// where the file declares `mod b;`.
pub fn paths(source: &str, package: &str, module: &str) -> Vec<Named> {
    let tokens = without_tests(&tokens(source));
    let children: Vec<&str> = declarations(&tokens).collect();
    let mut here: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let file = here.len();
    // The depths of braces at which modules inside the file have opened.
    let (mut depth, mut open) = (0_usize, Vec::new());
    let mut paths = Vec::new();
    let mut next = 0;
    while let Some(token) = tokens.get(next) {
        let text = |back: usize| next.checked_sub(back).map_or("", |at| tokens[at].text);
        let (before, two_before) = (text(1), text(2));
        next += 1;
        match token.text {
            "{" => {
                if two_before == "mod" {
                    here.push(before);
                    open.push(depth);
                }
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                if open.pop_if(|at| *at == depth).is_some() {
                    here.pop();
                }
            }
            _ => {}
        }
        if matches!(before, "::" | ".") || tokens.get(next).is_none_or(|token| token.text != "::") {
            continue;
        }
        let base = match token.text {
            "crate" => Vec::new(),
            "self" => here.clone(),
            "super" => here[..here.len().saturating_sub(1)].to_vec(),
            name if open.is_empty() && children.contains(&name) => [&here[..], &[name]].concat(),
            name if name == package => Vec::new(),
            _ => continue,
        };
        let public = before == "use" && is_public(&tokens[..next - 2]);
        let first = paths.len();
        next = branch(&tokens, next + 1, base, &mut paths);
        for named in &mut paths[first..] {
            let inside = here[file..].iter().copied();
            let name = named.shown.take().filter(|_| public);
            named.shown =
                name.map(|name| inside.chain([name.as_str()]).collect::<Vec<_>>().join("::"));
        }
    }
    paths
}

/// Whether what follows these tokens is public: `pub` or `pub(crate)`.
fn is_public(before: &[Token<'_>]) -> bool {
    let text = |back: usize| before.len().checked_sub(back).map_or("", |at| before[at].text);
    text(1) == "pub"
        || (text(1) == ")" && (2..8).any(|at| text(at) == "(" && text(at + 1) == "pub"))
}

/// The modules that a file declares to stand in files of their own, and whether only for its tests.
pub fn declared(source: &str) -> Vec<(String, bool)> {
    let all = tokens(source);
    let kept = without_tests(&all);
    let kept: Vec<&str> = declarations(&kept).collect();
    declarations(&all).map(|name| (name.to_string(), !kept.contains(&name))).collect()
}

/// The names in `mod name;`.
fn declarations<'a>(tokens: &[Token<'a>]) -> impl Iterator<Item = &'a str> {
    tokens.windows(3).filter_map(|three| match three {
        [Token { text: "mod", .. }, name, Token { text: ";", .. }] => Some(name.text),
        _ => None,
    })
}

/// Follows a path, or a tree of them as in `use`; gives the first token behind it.
fn branch<'a>(
    tokens: &[Token<'a>],
    mut next: usize,
    mut path: Vec<&'a str>,
    paths: &mut Vec<Named>,
) -> usize {
    let mut push = |line: usize, path: &[&str], shown: &str| {
        let shown = Some(shown.to_string());
        paths.push(Named { line, path: path.join("::"), shown });
    };
    // The name behind `as`, and the first token behind that.
    let renamed = |next: usize| match tokens.get(next..next + 2) {
        Some([Token { text: "as", .. }, name]) => (Some(name.text), next + 2),
        _ => (None, next),
    };
    while let Some(token) = tokens.get(next) {
        match token.text {
            "{" => {
                next += 1;
                while let Some(token) = tokens.get(next).filter(|token| token.text != "}") {
                    if token.text == "," {
                        next += 1;
                        continue;
                    }
                    let after = branch(tokens, next, path.clone(), paths);
                    next = after.max(next + 1);
                }
                return next + 1;
            }
            "super" => {
                path.pop();
            }
            "*" => {
                push(token.line, &path, "*");
                return next + 1;
            }
            "self" => {
                let (name, after) = renamed(next + 1);
                push(token.line, &path, name.or(path.last().copied()).unwrap_or(""));
                return after;
            }
            word if is_word(word) => {
                path.push(word);
                if tokens.get(next + 1).is_none_or(|token| token.text != "::") {
                    let (name, after) = renamed(next + 1);
                    push(token.line, &path, name.unwrap_or(word));
                    return after;
                }
            }
            _ => {
                push(token.line, &path, "");
                return next;
            }
        }
        // Over the `::`.
        next += if tokens.get(next + 1).is_some_and(|token| token.text == "::") { 2 } else { 1 };
    }
    next
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Leaves out what stands under `#[cfg(test)]`, or `#[cfg(all(test, …))]`.
fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut next = 0;
    while next < tokens.len() {
        match test_attribute(&tokens[next..]) {
            Some(length) => next = end_of_item(tokens, next + length),
            None => {
                kept.push(tokens[next]);
                next += 1;
            }
        }
    }
    kept
}

/// How many tokens the attribute has that keeps what follows for tests.
fn test_attribute(tokens: &[Token<'_>]) -> Option<usize> {
    const START: [&str; 4] = ["#", "[", "cfg", "("];
    if tokens.len() < START.len()
        || tokens.iter().zip(START).any(|(token, text)| token.text != text)
    {
        return None;
    }
    let end = tokens.iter().position(|token| token.text == "]")?;
    let inside = &tokens[START.len()..end];
    let has = |word: &str| inside.iter().any(|token| token.text == word);
    (has("test") && !has("not") && !has("any")).then_some(end + 1)
}

/// The token behind the item that starts at `next`: behind its `;` or its closing brace.
fn end_of_item(tokens: &[Token<'_>], mut next: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(token) = tokens.get(next) {
        next += 1;
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return next;
                }
            }
            ";" if depth == 0 => return next,
            _ => {}
        }
    }
    next
}

/// Words, `::` and single characters; comments, strings, characters and lifetimes are left out.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 0);
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let (length, shown) = if first.is_whitespace() {
            (first.len_utf8(), false)
        } else if let Some(length) = skipped(rest) {
            (length, false)
        } else if first.is_alphanumeric() || first == '_' {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            (word.unwrap_or(rest.len()), true)
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (first.len_utf8(), true)
        };
        let text = &rest[..length];
        if shown {
            tokens.push(Token { text, line, at });
        }
        line += text.matches('\n').count();
        at += length;
    }
    tokens
}

/// The length of the comment, string, character or lifetime that `rest` starts with.
fn skipped(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    let plain = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let prefix = rest.len() - plain.len();
    if let Some(raw) = plain.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = prefix + 1 + hashes + 1;
            return Some(rest[body..].find(&close).map_or(rest.len(), |e| body + e + close.len()));
        }
    }
    if plain.starts_with('"') {
        return Some(quoted(rest, prefix));
    }
    if let Some(inner) = plain.strip_prefix('\'') {
        let mut letters = inner.chars();
        return match (letters.next(), letters.next()) {
            (Some('\\'), _) => Some(quoted_char(rest, prefix)),
            (Some(c), Some('\'')) => Some(prefix + 2 + c.len_utf8()),
            _ => {
                let name = inner.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                Some(prefix + 1 + name.unwrap_or(inner.len()))
            }
        };
    }
    None
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str, prefix: usize) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(prefix + 1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn quoted_char(rest: &str, prefix: usize) -> usize {
    rest.char_indices()
        .skip(prefix + 3)
        .find(|&(_, c)| c == '\'')
        .map_or(rest.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::{declared, paths};

    fn found(source: &str, module: &str) -> Vec<(usize, String)> {
        paths(source, "lenslet", module).into_iter().map(|named| (named.line, named.path)).collect()
    }

    #[test]
    fn paths_are_found_in_uses_and_in_expressions() {
        let source = "use crate::{error::{Error, Result}, units::*};\n\
                      // crate::comment::X\n\
                      use lenslet::phase::{self, Phase};\n\
                      fn f<'a>(x: &'a str) -> crate::grid::Grid<u8> {\n\
                      let s = \"crate::string::X\"; let c = '\"'; let r = r#\"crate::raw::\"X\"#;\n\
                      super::slope::g(self::inner::h(), other::crate_::x)\n}\n\
                      #[cfg(test)]\nmod tests {\n    use crate::later::X;\n}\n\
                      fn after() { crate::last::f() }\n";
        assert_eq!(
            found(source, "covariance::dense"),
            [
                (0, "error::Error".to_string()),
                (0, "error::Result".to_string()),
                (0, "units".to_string()),
                (2, "phase".to_string()),
                (2, "phase::Phase".to_string()),
                (3, "grid::Grid".to_string()),
                (5, "covariance::slope::g".to_string()),
                (5, "covariance::dense::inner::h".to_string()),
                (11, "last::f".to_string()),
            ]
        );
    }

    #[test]
    fn re_exports_and_children_are_known() {
        let source = "mod slope;\npub(crate) mod gpu;\n#[cfg(all(test, feature = \"x\"))]\nmod late;\n\
                      #[cfg(not(test))]\nmod inline { pub use super::slope::S; fn f() { {} self::g() } }\n\
                      pub use slope::{Slope as Tilt, inner::*, step};\n\
                      pub(super) use self::gpu::Gpu;\nuse slope::hidden as h;\n\
                      fn f() { gpu::run(other.gpu::<u8>(), late::x()) }\n";
        let expected = [("slope", false), ("gpu", false), ("late", true)];
        assert_eq!(declared(source), expected.map(|(name, test)| (name.to_string(), test)));
        let shown: Vec<_> = paths(source, "lenslet", "direct")
            .into_iter()
            .map(|named| (named.path, named.shown.unwrap_or_default()))
            .collect();
        let expected = [
            ("direct::slope::S", "inline::S"),
            ("direct::inline::g", ""),
            ("direct::slope::Slope", "Tilt"),
            ("direct::slope::inner", "*"),
            ("direct::slope::step", "step"),
            ("direct::gpu::Gpu", "Gpu"),
            ("direct::slope::hidden", ""),
            ("direct::gpu::run", ""),
        ];
        assert_eq!(shown, expected.map(|(path, name)| (path.to_string(), name.to_string())));
    }
}
