//! The commands of the program and their options, from their declarations for clap in the chapters.

use std::collections::{BTreeMap, BTreeSet};

use crate::expand::{File, Origin, Tangled};
use crate::text::kebab;
use crate::volume::BlockId;

/// A command, or an option of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandWord {
    /// `--errors-only`, `psf`, `bench reconstruct`.
    pub name: String,
    /// `-q`, for an option that has a short form.
    pub short: Option<String>,
    /// The command of an option; `None` for a command, and for an option that several commands have.
    pub command: Option<String>,
    /// What its help says.
    pub help: String,
    /// The chunk that declares an option, or the arguments of a command.
    pub block: BlockId,
}

/// What the program declares.
#[derive(Default)]
struct Declared {
    /// The chunk of each struct.
    structs: BTreeMap<String, BlockId>,
    /// The fields of structs and the variants of enums of commands.
    items: Vec<Declaration>,
}

/// A field of a struct, or a variant of an enum of commands, with what is declared above it.
struct Declaration {
    /// The struct or the enum.
    owner: String,
    is_variant: bool,
    /// The field or the variant, as it is written.
    text: String,
    attributes: String,
    help: String,
    block: BlockId,
}

/// All commands and options: commands, options of several commands, those of one, and those of a command inside another, each by file.
pub fn command_words(tangled: &Tangled) -> Vec<CommandWord> {
    let mut declared = Declared::default();
    for file in tangled.files.values().filter(|file| file.path.starts_with("src/")) {
        declared.read(file);
    }
    let items = declared.items.iter();
    let words = items.filter_map(|item| declared.command(item).or_else(|| declared.option(item)));
    let mut words: Vec<CommandWord> = words.collect();
    words.sort_by_key(|word| word.command.as_ref().map_or(0, |name| name.split(' ').count()));
    words
}

impl Declared {
    /// Adds what a file declares, by the layout that rustfmt gives it.
    fn read(&mut self, file: &File) {
        // The struct or the enum that we are in.
        let mut around: Option<(String, bool)> = None;
        let (mut attributes, mut help, mut open) = (String::new(), String::new(), false);
        for line in file.lines.iter().filter(|line| line.origin == Origin::Code) {
            let text = line.text.trim();
            if open || text.starts_with("#[") {
                attributes.push_str(text);
                open = !text.ends_with(']');
                continue;
            }
            if let Some(words) = text.strip_prefix("///") {
                help.push_str(words);
                continue;
            }
            if text.is_empty() || text.starts_with("//") {
                continue;
            }
            let (attributes, help) = (std::mem::take(&mut attributes), std::mem::take(&mut help));
            let rest = text.strip_prefix("pub ").unwrap_or(text);
            let inside = around.as_ref().filter(|_| line.text.starts_with("    "));
            if let Some((owner, is_variant)) = inside {
                self.items.push(Declaration {
                    owner: owner.clone(),
                    is_variant: *is_variant,
                    text: rest.to_string(),
                    attributes,
                    help: help.trim().to_string(),
                    block: line.block,
                });
                continue;
            }
            around = match (rest.strip_prefix("struct "), rest.strip_prefix("enum ")) {
                (Some(rest), _) => {
                    self.structs.insert(word(rest).to_string(), line.block);
                    Some((word(rest).to_string(), false))
                }
                (_, Some(rest)) if attributes.contains("Subcommand") => {
                    Some((word(rest).to_string(), true))
                }
                _ => None,
            };
        }
    }

    /// The command that a variant declares.
    fn command(&self, variant: &Declaration) -> Option<CommandWord> {
        let name = self.command_name(variant).filter(|_| variant.is_variant)?;
        let arguments = variant.text.split_once('(').map(|(_, arguments)| word(arguments));
        let block = arguments.and_then(|name| self.structs.get(name)).unwrap_or(&variant.block);
        let (help, block) = (variant.help.clone(), *block);
        Some(CommandWord { name, short: None, command: None, help, block })
    }

    /// The name of the command of a variant, after that of the command which it belongs to.
    fn command_name(&self, variant: &Declaration) -> Option<String> {
        let name = kebab(word(&variant.text));
        let holds = |field: &&Declaration| {
            field.attributes.contains("(subcommand)") && mentions(&field.text, &variant.owner)
        };
        let outer = self.command_of(&self.items.iter().find(holds)?.owner);
        Some(outer.map_or(name.clone(), |outer| format!("{outer} {name}")))
    }

    /// The name of the command whose arguments a struct holds, if it is but one.
    fn command_of(&self, arguments: &str) -> Option<String> {
        let variants = self.items.iter().filter(|item| item.is_variant);
        let mut variants = variants.filter(|variant| mentions(&variant.text, arguments));
        if let Some(variant) = variants.next() {
            return self.command_name(variant);
        }
        let fields = self.items.iter().filter(|field| {
            field.attributes.contains("(flatten)") && mentions(&field.text, arguments)
        });
        let commands: BTreeSet<_> = fields.map(|field| self.command_of(&field.owner)).collect();
        if commands.len() == 1 { commands.into_iter().next().flatten() } else { None }
    }

    /// The option that a field declares.
    fn option(&self, field: &Declaration) -> Option<CommandWord> {
        let (_, settings) = field.attributes.split_once("#[arg(")?;
        let settings = settings_of(settings);
        // Whether the attribute has a setting, and its value if it gives one.
        let set = |name: &str| {
            settings.iter().find_map(|setting| match setting.strip_prefix(name)?.trim() {
                "" => Some(None),
                rest => {
                    let value = rest.strip_prefix('=')?.trim();
                    Some(Some(value.trim_matches(['"', '\'']).to_string()))
                }
            })
        };
        let field_name = kebab(word(&field.text));
        if field.is_variant || set("hide").is_some() {
            return None;
        }
        let name = set("long")?.unwrap_or_else(|| field_name.clone());
        let short =
            set("short").map(|letter| letter.unwrap_or_else(|| field_name[..1].to_string()));
        Some(CommandWord {
            name: format!("--{name}"),
            short: short.map(|letter| format!("-{letter}")),
            command: self.command_of(&field.owner),
            help: field.help.clone(),
            block: field.block,
        })
    }
}

/// The settings of an attribute, up to the bracket that closes it.
fn settings_of(text: &str) -> Vec<&str> {
    let (mut settings, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            ')' if depth == 0 => {
                settings.push(text[start..at].trim());
                break;
            }
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                settings.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    settings
}

/// Whether a line has a name in it as a word.
fn mentions(line: &str, name: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::command_words;
    use crate::expand::tangle;
    use crate::volume::Book;

    #[test]
    fn commands_and_options_are_read_as_clap_reads_them() {
        let text = "# A

```rust file=src/a.rs
struct Cli {
    #[command(subcommand)]
    command: Command,
}

enum Other {
    Psf(PsfArgs),
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make images.
    Psf(PsfArgs),
    TimeIt(TimeArgs),
}

struct TimeArgs {
    #[command(subcommand)]
    what: Option<Part>,
    #[command(flatten)]
    own: OwnArgs,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Subcommand)]
enum Part {
    /// The stages.
    Stages(StageArgs),
}

// <<arguments of images>>

struct StageArgs {
    #[arg(value_parser = range(long, short))]
    plain: bool,
    #[arg(short = 'K', long)]
    kind: bool,
}

struct OwnArgs {
    #[arg(long)]
    own: bool,
}

pub struct Shared {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl Shared {
    #[arg(long)]
    let no: bool;
}
```

```rust #arguments of images
pub struct PsfArgs {
    /// A file.
    system: PathBuf,
    /// Compute no image,
    /// only errors.
    #[arg(long)]
    errors_only: bool,
    #[arg(
        long_help = \"no\",
        long = \"deep\",
        short,
        value_name = \"A, long\"
    )]
    depth: f64,
    #[arg(long, hide = true)]
    old: bool,
    longing: f64,
    #[command(flatten)]
    shared: Shared,
}
```
";
        let book = Book::from_sources("- [A](a.md)\n", |_| Ok(text.to_string()));
        let words = command_words(&tangle(&book));
        let found: Vec<_> = words
            .iter()
            .map(|word| {
                let or_none = |text: &Option<String>| text.clone().unwrap_or("none".into());
                [word.name.clone(), or_none(&word.short), or_none(&word.command), word.help.clone()]
            })
            .collect();
        let expected = [
            ["psf", "none", "none", "Make images."],
            ["time-it", "none", "none", ""],
            ["time-it stages", "none", "none", "The stages."],
            ["--json", "none", "none", "Print JSON."],
            ["--errors-only", "none", "psf", "Compute no image, only errors."],
            ["--deep", "-d", "psf", ""],
            ["--own", "none", "time-it", ""],
            ["--kind", "-K", "time-it stages", ""],
        ];
        assert_eq!(found, expected.map(|row| row.map(String::from)));
        // A command leads to its arguments, not to the list of commands.
        let blocks: Vec<usize> = words.iter().map(|word| word.block.block).collect();
        assert_eq!(blocks, [1, 0, 0, 0, 1, 1, 0, 0]);
    }
}
