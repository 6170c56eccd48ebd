//! Just enough Rust to see which paths a file names: no comments, no strings, no unit tests.

/// A token that matters, its line (from 0), and the bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub text: &'a str,
    pub line: usize,
    pub at: usize,
}

/// The paths below the crate that a file names, each with its line (from 0): `a::b::C` for
/// `crate::a::b::C`, for `package::a::b::C` and, in module `a`, for `self::b::C`.
pub fn paths(source: &str, package: &str, module: &str) -> Vec<(usize, String)> {
    let tokens = without_tests(&tokens(source));
    let here: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut paths = Vec::new();
    let mut next = 0;
    while let Some(token) = tokens.get(next) {
        let inner = next > 0 && tokens[next - 1].text == "::";
        next += 1;
        if inner || tokens.get(next).is_none_or(|token| token.text != "::") {
            continue;
        }
        let base = match token.text {
            "crate" => Vec::new(),
            "self" => here.clone(),
            "super" => here[..here.len().saturating_sub(1)].to_vec(),
            name if name == package => Vec::new(),
            _ => continue,
        };
        next = branch(&tokens, next + 1, base, &mut paths);
    }
    paths
}

/// Follows a path, or a tree of them as in `use`; gives the first token behind it.
fn branch<'a>(
    tokens: &[Token<'a>],
    mut next: usize,
    mut path: Vec<&'a str>,
    paths: &mut Vec<(usize, String)>,
) -> usize {
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
            "self" | "*" => {
                paths.push((token.line, path.join("::")));
                return next + 1;
            }
            word if is_word(word) => {
                path.push(word);
                if tokens.get(next + 1).is_none_or(|token| token.text != "::") {
                    paths.push((token.line, path.join("::")));
                    return next + 1;
                }
            }
            _ => {
                paths.push((token.line, path.join("::")));
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

/// Leaves out what stands under `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut next = 0;
    while next < tokens.len() {
        let is_test = tokens.len() - next >= TEST.len()
            && tokens[next..].iter().zip(TEST).all(|(token, text)| token.text == text);
        if is_test {
            next = end_of_item(tokens, next + TEST.len());
        } else {
            kept.push(tokens[next]);
            next += 1;
        }
    }
    kept
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
    use super::paths;

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
            paths(source, "lenslet", "covariance::dense"),
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
}
