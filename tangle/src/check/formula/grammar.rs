//! The control sequences that KaTeX knows, and the arguments that they take.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// KaTeX's own tables.
const COMMANDS: &str = include_str!("../../../data/katex-commands.txt");

/// What this tool itself adds: labels are numbered and linked before KaTeX sees the formula.
const OURS: &str = "\\label=r! \\eqref=r \\tag=t!";

static TABLES: LazyLock<Grammar> = LazyLock::new(Grammar::katex);

/// The control sequences and environments that may be used.
#[derive(Debug, Clone)]
pub struct Grammar {
    commands: HashMap<String, String>,
    environments: HashSet<String>,
}

impl Grammar {
    fn katex() -> Grammar {
        let mut grammar = Grammar { commands: HashMap::new(), environments: HashSet::new() };
        for line in COMMANDS.lines().chain([OURS]).filter(|line| !line.starts_with('#')) {
            for word in line.split_whitespace() {
                grammar.insert(word);
            }
        }
        grammar
    }

    fn insert(&mut self, word: &str) {
        if !word.starts_with('\\') {
            self.environments.insert(word.to_string());
            return;
        }
        // `\=` is itself a command.
        let split = word.char_indices().skip(2).find(|&(_, c)| c == '=').map(|(at, _)| at);
        let (name, arguments) = match split {
            Some(at) => (&word[..at], &word[at + 1..]),
            None => (word, ""),
        };
        self.commands.insert(name.to_string(), arguments.to_string());
    }

    /// The arguments of a command, a letter each; `None` for a command that KaTeX does not know.
    ///
    /// `m` mathematics, `t` text, `r` raw, `d` a delimiter, `[` optional; a `!` at the end for a
    /// command that cannot itself be an argument without braces.
    pub fn arguments(&self, command: &str) -> Option<&str> {
        self.commands.get(command).map(String::as_str)
    }

    /// Whether KaTeX knows an environment.
    pub fn has_environment(&self, name: &str) -> bool {
        self.environments.contains(name)
    }

    /// KaTeX's tables and the macros of a file in mdbook-katex's format: `\name:{body}` a line.
    pub fn with_macros(macros: &str) -> Grammar {
        let mut grammar = TABLES.clone();
        for line in macros.lines() {
            let Some((name, body)) = line.trim().split_once(':') else { continue };
            if name.starts_with('\\') {
                let count = (1..=9).rev().find(|n| body.contains(&format!("#{n}"))).unwrap_or(0);
                grammar.commands.insert(name.to_string(), "m".repeat(count));
            }
        }
        grammar
    }
}

impl Default for Grammar {
    /// KaTeX's tables alone.
    fn default() -> Grammar {
        TABLES.clone()
    }
}
