//! Tokens, and a descent through groups, scripts, arguments and environments.

use super::grammar::Grammar;

/// Delimiters after `\left`, `\right`, `\big` and their like.
const DELIMITERS: &str = "( ) [ ] < > / | . ⟨ ⟩ ⌊ ⌋ ⌈ ⌉ \\lparen \\rparen \\lbrack \\rbrack \\{ \
     \\lbrace \\} \\rbrace \\lfloor \\rfloor \\lceil \\rceil \\langle \\rangle \\lt \\gt \\lvert \\rvert \
     \\lVert \\rVert \\lgroup \\rgroup \\lmoustache \\rmoustache \\backslash \\vert \\| \\Vert \
     \\uparrow \\Uparrow \\downarrow \\Downarrow \\updownarrow \\Updownarrow";

/// The first fault of a formula: the byte at which it stands, and what it is.
pub fn fault(formula: &str, grammar: &Grammar) -> Option<(usize, String)> {
    let tokens = match tokens(formula) {
        Ok(tokens) => tokens,
        Err(fault) => return Some(fault),
    };
    let mut parser = Parser { tokens: &tokens, next: 0, end: formula.len(), grammar, depth: 0 };
    if let Err(fault) = parser.expression(Inside::Top) {
        return Some(fault);
    }
    let left = parser.peek()?;
    let what = match left {
        "&" | "\\\\" | "\\cr" => format!("{left} stands outside an environment"),
        "}" => "this } closes nothing".to_string(),
        "\\right" => "\\right without \\left".to_string(),
        "\\end" => "\\end without \\begin".to_string(),
        _ => format!("{left} is out of place"),
    };
    Some((parser.offset(), what))
}

/// A control sequence or a character, and where it starts.
type Token<'a> = (usize, &'a str);

fn tokens(formula: &str) -> Result<Vec<Token<'_>>, (usize, String)> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = formula[at..].chars().next() {
        let rest = &formula[at..];
        let length = match first {
            '\\' => {
                let name = rest[1..].find(|c: char| !c.is_ascii_alphabetic());
                match name.unwrap_or(rest.len() - 1) {
                    0 => match rest[1..].chars().next() {
                        Some(c) => 1 + c.len_utf8(),
                        None => return Err((at, "a lone backslash".to_string())),
                    },
                    letters => 1 + letters,
                }
            }
            '%' => match rest.find('\n') {
                Some(end) => {
                    at += end;
                    continue;
                }
                None => return Err((at, "% starts a comment that has no end".to_string())),
            },
            c => c.len_utf8(),
        };
        tokens.push((at, &rest[..length]));
        at += length;
    }
    Ok(tokens)
}

/// Whether a command is a mere space, which has no scripts and is none.
fn is_space(token: &str) -> bool {
    matches!(token, "\\," | "\\:" | "\\>" | "\\;" | "\\!" | "\\quad" | "\\qquad" | "\\enspace")
}

/// What an expression stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Top,
    Group,
    /// The cell of an environment: `&` and `\\` end it.
    Cell,
    Delimiters,
}

type Parsed<T> = Result<T, (usize, String)>;

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    next: usize,
    end: usize,
    grammar: &'a Grammar,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// The next token that is no blank.
    fn peek(&mut self) -> Option<&'a str> {
        while self.tokens.get(self.next).is_some_and(|(_, token)| token.trim().is_empty()) {
            self.next += 1;
        }
        self.tokens.get(self.next).map(|&(_, token)| token)
    }

    fn take(&mut self) -> Option<&'a str> {
        let token = self.peek()?;
        self.next += 1;
        Some(token)
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |&(at, _)| at)
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err((self.offset(), what.into()))
    }

    /// Atoms until something that ends the expression; that something is left in place.
    fn expression(&mut self, inside: Inside) -> Parsed<()> {
        if self.depth > 60 {
            return self.wrong("nested too deeply");
        }
        let mut infix = false;
        while let Some(token) = self.peek() {
            match token {
                "}" | "&" | "\\end" | "\\right" => break,
                "\\\\" | "\\cr" | "\\newline" if inside == Inside::Cell => break,
                "\\\\" | "\\cr" if inside != Inside::Cell => break,
                "\\middle" if inside != Inside::Delimiters => {
                    return self.wrong("\\middle without \\left");
                }
                "\\over" | "\\atop" | "\\choose" | "\\brace" | "\\brack" if infix => {
                    return self.wrong(format!("a second {token} in one group"));
                }
                "\\over" | "\\atop" | "\\choose" | "\\brace" | "\\brack" => infix = true,
                _ => {}
            }
            self.atom()?;
        }
        Ok(())
    }

    /// One base with its scripts.
    fn atom(&mut self) -> Parsed<()> {
        let base = self.peek();
        if !matches!(base, Some("^" | "_" | "'")) {
            self.base("here")?;
        }
        if let (Some(base), Some(mark @ ("^" | "_"))) = (base, self.peek())
            && is_space(base)
        {
            return self.wrong(format!("{mark} has nothing before it but {base}"));
        }
        let (mut above, mut below) = (false, false);
        loop {
            match self.peek() {
                Some("^") if above => return self.wrong("double superscript"),
                Some("_") if below => return self.wrong("double subscript"),
                Some("'") if above => return self.wrong("double superscript"),
                Some("'") => {
                    while self.peek() == Some("'") {
                        self.next += 1;
                    }
                    above = true;
                    // An exponent may follow the primes.
                    if self.peek() == Some("^") {
                        self.script()?;
                    }
                }
                Some("^") => {
                    above = true;
                    self.script()?;
                }
                Some("_") => {
                    below = true;
                    self.script()?;
                }
                Some("\\limits" | "\\nolimits") => self.next += 1,
                _ => return Ok(()),
            }
        }
    }

    fn script(&mut self) -> Parsed<()> {
        let mark = self.take().unwrap_or("^");
        match self.peek() {
            None | Some("}" | "&" | "^" | "_" | "'" | "\\\\" | "\\end" | "\\right") => {
                self.wrong(format!("nothing follows {mark}"))
            }
            Some(token) => {
                let bare = self.grammar.arguments(token).is_some_and(|a| a.ends_with('!'));
                if bare || token == "\\begin" || is_space(token) {
                    return self.wrong(format!("{token} needs braces after {mark}"));
                }
                self.base(mark)
            }
        }
    }

    /// A group, a character, a command with its arguments, or an environment.
    fn base(&mut self, place: &str) -> Parsed<()> {
        let Some(token) = self.peek() else {
            return self.wrong(format!("nothing follows {place}"));
        };
        match token {
            "{" => self.group(),
            "#" => self.wrong("# stands for an argument: write \\#"),
            "\\begin" => self.environment(),
            "\\left" => self.delimited(),
            _ if token.starts_with('\\') => self.command(token),
            _ => {
                self.next += 1;
                Ok(())
            }
        }
    }

    fn nested(&mut self, inside: Inside) -> Parsed<()> {
        self.depth += 1;
        let result = self.expression(inside);
        self.depth -= 1;
        result
    }

    fn group(&mut self) -> Parsed<()> {
        let start = self.offset();
        self.next += 1;
        self.nested(Inside::Group)?;
        match self.peek() {
            Some("}") => {
                self.next += 1;
                Ok(())
            }
            None => Err((start, "this { is not closed".to_string())),
            Some(other) => self.wrong(format!("{other} stands where }} should close the group")),
        }
    }

    fn command(&mut self, name: &'a str) -> Parsed<()> {
        let Some(arguments) = self.grammar.arguments(name) else {
            return match name {
                "\\ " | "\\\n" | "\\\r" => {
                    self.next += 1;
                    Ok(())
                }
                _ => self.wrong(format!("KaTeX does not know {name}")),
            };
        };
        self.next += 1;
        if matches!(name, "\\operatorname" | "\\tag") && self.peek() == Some("*") {
            self.next += 1;
        }
        if name == "\\substack" {
            return self.rows_in_braces();
        }
        for kind in arguments.chars() {
            match kind {
                '[' => self.optional()?,
                'd' => self.delimiter(name)?,
                'm' => self.argument(name)?,
                't' => self.text(name)?,
                'r' => self.raw(name)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn optional(&mut self) -> Parsed<()> {
        if self.peek() != Some("[") {
            return Ok(());
        }
        while let Some(token) = self.peek() {
            match token {
                "]" => {
                    self.next += 1;
                    return Ok(());
                }
                "}" => break,
                _ => self.base("[")?,
            }
        }
        self.wrong("this [ is not closed")
    }

    fn delimiter(&mut self, name: &str) -> Parsed<()> {
        match self.peek() {
            Some(token) if DELIMITERS.split_whitespace().any(|known| known == token) => {
                self.next += 1;
                Ok(())
            }
            Some(token) => self.wrong(format!("{token} is no delimiter for {name}")),
            None => self.wrong(format!("{name} needs a delimiter")),
        }
    }

    /// An argument is a group or one token.
    fn argument(&mut self, name: &str) -> Parsed<()> {
        match self.peek() {
            Some("{") => self.group(),
            None | Some("}" | "&" | "^" | "_" | "\\\\" | "\\end" | "\\right") => {
                self.wrong(format!("an argument of {name} is missing"))
            }
            Some(token) => {
                let arguments = self.grammar.arguments(token);
                let takes = arguments.is_some_and(|a| !a.trim_end_matches('!').is_empty());
                if takes {
                    return self.wrong(format!("{token} needs braces after {name}"));
                }
                self.base(name)
            }
        }
    }

    /// Braces whose content is skipped, as in `\label{…}`.
    fn raw(&mut self, name: &str) -> Parsed<()> {
        match self.peek() {
            Some("{") => self.skip_braces(|_| true),
            None | Some("}") => self.wrong(format!("an argument of {name} is missing")),
            Some(_) => {
                self.next += 1;
                Ok(())
            }
        }
    }

    /// Words, as in `\text{…}`.
    fn text(&mut self, name: &str) -> Parsed<()> {
        match self.peek() {
            Some("{") => self
                .skip_braces(|token| !matches!(token, "^" | "_" | "&" | "#" | "\\begin" | "\\end")),
            None | Some("}") => self.wrong(format!("an argument of {name} is missing")),
            Some(_) => {
                self.next += 1;
                Ok(())
            }
        }
    }

    fn skip_braces(&mut self, allowed: impl Fn(&str) -> bool) -> Parsed<()> {
        let start = self.offset();
        let (mut depth, mut formula) = (0_usize, false);
        while let Some(token) = self.peek() {
            match token {
                "{" => depth += 1,
                "}" => depth -= 1,
                "$" => formula = !formula,
                _ if !formula && !allowed(token) => {
                    let what = match token.starts_with('\\') {
                        true => format!("{token} stands in text"),
                        false => format!("{token} stands in text: write \\{token}"),
                    };
                    return self.wrong(what);
                }
                _ => {}
            }
            self.next += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err((start, "this { is not closed".to_string()))
    }

    fn delimited(&mut self) -> Parsed<()> {
        let start = self.offset();
        self.next += 1;
        self.delimiter("\\left")?;
        self.nested(Inside::Delimiters)?;
        match self.peek() {
            Some("\\right") => {
                self.next += 1;
                self.delimiter("\\right")
            }
            None => Err((start, "\\left without \\right".to_string())),
            Some(other) => self.wrong(format!("{other} stands between \\left and \\right")),
        }
    }

    fn rows_in_braces(&mut self) -> Parsed<()> {
        let start = self.offset();
        if self.take() != Some("{") {
            return Err((start, "\\substack needs braces".to_string()));
        }
        loop {
            self.nested(Inside::Cell)?;
            match self.take() {
                Some("\\\\" | "\\cr" | "&") => {}
                Some("}") => return Ok(()),
                _ => return Err((start, "this { is not closed".to_string())),
            }
        }
    }

    /// The name in braces after `\begin` or `\end`.
    fn name(&mut self, command: &str) -> Parsed<String> {
        if self.peek() != Some("{") {
            return self.wrong(format!("{command} needs a name in braces"));
        }
        self.next += 1;
        let mut name = String::new();
        while let Some(token) = self.take() {
            match token {
                "}" => return Ok(name),
                _ => name.push_str(token),
            }
        }
        self.wrong(format!("the name after {command} is not closed"))
    }

    fn environment(&mut self) -> Parsed<()> {
        let start = self.offset();
        self.next += 1;
        let name = self.name("\\begin")?;
        if !self.grammar.has_environment(&name) {
            return Err((start, format!("KaTeX does not know the environment {name}")));
        }
        if name.ends_with("matrix*") {
            self.optional()?;
        }
        if matches!(name.as_str(), "array" | "darray" | "subarray" | "alignedat" | "alignat") {
            self.raw(&format!("\\begin{{{name}}}"))?;
        }
        loop {
            self.nested(Inside::Cell)?;
            let end = self.offset();
            match self.take() {
                Some("\\\\" | "\\cr" | "\\newline") => self.optional()?,
                Some("&") => {}
                Some("\\end") => {
                    let closing = self.name("\\end")?;
                    if closing == name {
                        return Ok(());
                    }
                    return Err((end, format!("\\begin{{{name}}} ends with \\end{{{closing}}}")));
                }
                None => return Err((start, format!("\\begin{{{name}}} has no \\end"))),
                Some(other) => return Err((end, format!("{other} closes nothing"))),
            }
        }
    }
}
