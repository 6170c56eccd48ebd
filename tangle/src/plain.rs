//! Formulas and Markdown as plain text: in letters that a keyboard has, and as results of the search and definitions of terms show them.

use crate::symbols::GREEK;

/// The Greek letters of [`GREEK`], in the same order.
const SMALL: &str = "αβγδεζηθικλμνξοπρστυφχψω";
const CAPITAL: &str = "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ";

/// Commands that adorn what follows, or only lay it out.
const ADORNMENTS: [&str; 34] = [
    "mathbf",
    "mathrm",
    "mathsf",
    "mathcal",
    "mathbb",
    "mathit",
    "mathtt",
    "mathfrak",
    "boldsymbol",
    "operatorname",
    "text",
    "textrm",
    "textit",
    "rm",
    "bf",
    "sf",
    "it",
    "hat",
    "widehat",
    "bar",
    "overline",
    "tilde",
    "widetilde",
    "vec",
    "dot",
    "breve",
    "check",
    "left",
    "right",
    "bigl",
    "bigr",
    "big",
    "displaystyle",
    "quad",
];

/// Signs that are shown as one character.
const SIGNS: [(&str, &str); 44] = [
    ("times", "×"),
    ("cdot", "·"),
    ("le", "≤"),
    ("leq", "≤"),
    ("ge", "≥"),
    ("geq", "≥"),
    ("ne", "≠"),
    ("neq", "≠"),
    ("in", "∈"),
    ("infty", "∞"),
    ("partial", "∂"),
    ("nabla", "∇"),
    ("pm", "±"),
    ("to", "→"),
    ("ldots", "…"),
    ("dots", "…"),
    ("cdots", "…"),
    ("sum", "∑"),
    ("int", "∫"),
    ("sqrt", "√"),
    ("langle", "⟨"),
    ("rangle", "⟩"),
    ("lvert", "|"),
    ("rvert", "|"),
    ("vert", "|"),
    ("lVert", "‖"),
    ("rVert", "‖"),
    ("lceil", "⌈"),
    ("rceil", "⌉"),
    ("lfloor", "⌊"),
    ("rfloor", "⌋"),
    ("perp", "⊥"),
    ("parallel", "∥"),
    ("star", "⋆"),
    ("ast", "∗"),
    ("prime", "′"),
    ("ell", "ℓ"),
    ("dagger", "†"),
    ("circ", "°"),
    ("approx", "≈"),
    ("sim", "∼"),
    ("ll", "≪"),
    ("gg", "≫"),
    ("otimes", "⊗"),
];

/// A formula as it is typed: `D_phi` for `D_\varphi`, `L_0` for `L_0`, `T` for `\hat T`.
pub fn typed(tex: &str) -> String {
    letters(tex, |greek, capital| match capital {
        true => GREEK[greek][..1].to_uppercase() + &GREEK[greek][1..],
        false => GREEK[greek].to_string(),
    })
    .chars()
    .filter(|c| !c.is_whitespace() && *c != '^')
    .collect()
}

/// A formula as text shows it: `D_φ` for `D_\varphi`, `L₀` for `L_0`, `r²` for `r^2`.
pub fn shown(tex: &str) -> String {
    let text = letters(tex, |greek, capital| {
        (if capital { CAPITAL } else { SMALL })
            .chars()
            .nth(greek)
            .map(String::from)
            .unwrap_or_default()
    });
    let mut result = String::with_capacity(text.len());
    // The digits of an index, raised or lowered, up to the first other character.
    let mut index = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let digits = match c {
            '_' => Some("₀₁₂₃₄₅₆₇₈₉"),
            '^' => Some("⁰¹²³⁴⁵⁶⁷⁸⁹"),
            _ => None,
        };
        if digits.is_some() && rest.peek().is_some_and(char::is_ascii_digit) {
            index = digits;
            continue;
        }
        let digit = c.to_digit(10).and_then(|digit| index?.chars().nth(digit as usize));
        if digit.is_none() {
            index = None;
        }
        result.push(digit.unwrap_or(c));
    }
    result
}

/// A formula without its commands and braces; `greek` writes the Greek letter with this number.
fn letters(tex: &str, greek: impl Fn(usize, bool) -> String) -> String {
    let mut result = String::with_capacity(tex.len());
    let mut rest = tex;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let length = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                let (name, after) = rest.split_at(length);
                if name.is_empty() {
                    let sign = rest.chars().next();
                    result.extend(sign.filter(|sign| matches!(sign, '{' | '}' | '%' | '|')));
                    rest = &rest[sign.map_or(0, char::len_utf8)..];
                    continue;
                }
                rest = after.strip_prefix(' ').unwrap_or(after);
                let lower = name.strip_prefix("var").unwrap_or(name).to_lowercase();
                if let Some(number) = GREEK.iter().position(|greek| *greek == lower) {
                    result.push_str(&greek(number, name.starts_with(|c: char| c.is_uppercase())));
                } else if let Some((_, sign)) = SIGNS.iter().find(|(sign, _)| *sign == name) {
                    result.push_str(sign);
                } else if !ADORNMENTS.contains(&name) {
                    result.push_str(name);
                }
            }
            '{' | '}' => {}
            '~' => result.push(' '),
            c => result.push(c),
        }
    }
    result.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text in Markdown without its markup: the text of links, and formulas as [`shown`].
pub fn plain(markdown: &str) -> String {
    let formulas = markdown.split('$').enumerate();
    let text: String =
        formulas.map(|(at, piece)| if at % 2 == 0 { piece.into() } else { shown(piece) }).collect();
    let mut result = String::with_capacity(text.len());
    push_words(&text, &mut result);
    result.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds a text without formulas, its markup left out.
fn push_words(markdown: &str, result: &mut String) {
    let mut rest = markdown.chars();
    while let Some(c) = rest.next() {
        let link =
            rest.as_str().split_once("](").filter(|(text, _)| c == '[' && !text.contains('['));
        if let Some((text, (_, after))) =
            link.and_then(|(text, to)| Some((text, to.split_once(')')?)))
        {
            push_words(text, result);
            rest = after.chars();
            continue;
        }
        match c {
            '\\' => result.extend(rest.next()),
            '`' | '*' => {}
            c => result.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{plain, shown, typed};

    #[test]
    fn formulas_are_typed_on_a_keyboard_and_shown_in_letters() {
        for (tex, keys, text) in [
            ("L_0", "L_0", "L₀"),
            ("D_\\varphi", "D_phi", "D_φ"),
            ("\\hat T", "T", "T"),
            ("\\Gamma_{12}", "Gamma_12", "Γ₁₂"),
            ("C_n^2", "C_n2", "C_n²"),
            ("\\sigma'_{ee}", "sigma'_ee", "σ'_ee"),
            ("m\\times n", "m×n", "m×n"),
            ("\\boldsymbol{\\rho}\\,x", "rhox", "ρx"),
            ("\\{a\\}", "{a}", "{a}"),
        ] {
            assert_eq!((typed(tex).as_str(), shown(tex).as_str()), (keys, text), "{tex}");
        }
    }

    #[test]
    fn cells_lose_their_markup() {
        assert_eq!(
            plain(" the *outer* scale $L_0$, [m], [see $\\xi$](a.md#b) `a\\|b_c`  [x] "),
            "the outer scale L₀, [m], see ξ a|b_c [x]"
        );
    }
}
