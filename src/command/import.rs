// Tangled from book/src/import-command.md: edit there, or here and run cargo tangle stitch.
//! The command `import`: from a parameter file of TIPTOP, or from telemetry, to a system file.

// Imports of the command import
use super::examples::{self, examples};
use super::summary::{Outcome, align, count, file_json, file_lines};
use super::telemetry::import_telemetry;
use crate::error::Error;
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::spanned_toml::read_text;
use crate::formats::aot::is_telemetry;
use crate::formats::tiptop::{Imported, ImportedKey, KeyStatus};
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::psf::PsfOptions;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

// Arguments of import
#[derive(Debug, Args)]
#[command(after_help = examples(examples::IMPORT))]
pub struct ImportArgs {
    /// Parameter file of TIPTOP (.ini), or telemetry (AOT 2.0, .fits).
    file: PathBuf,
    /// System file (TOML) to write; without it, it is printed.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print what became of each key as JSON.
    #[arg(long, requires = "output")]
    json: bool,
    /// Print no summary.
    #[arg(long, short, requires = "output")]
    quiet: bool,
}

// Import a file into another
/// Imports the file that the arguments name; returns what to print.
pub fn import(args: &ImportArgs) -> Result<Outcome, Error> {
    if is_telemetry(&args.file) {
        let (output, output_form) = (args.output.as_deref(), (args.json, args.quiet));
        return import_telemetry(&args.file, output, output_form);
    }
    let outputs: Vec<_> = args.output.iter().map(|path| ("output", path.as_path())).collect();
    check_files(&[("parameter file", &args.file)], &outputs)?;
    let name = args.file.display().to_string();
    let imported =
        Imported::from_tiptop(&read_text(&args.file, 16 << 20, "a system file")?, &name)?;
    let file = SystemFile::from_toml(&imported.toml, &name)?;
    let options = PsfOptions::from_system_file(&file)?;
    let Some(output) = &args.output else {
        return Ok(Outcome { text: imported.toml.clone(), ..warned(&imported) });
    };
    AtomicFile::holding(output, imported.toml.as_bytes())?.publish()?;
    let text = match (args.json, args.quiet) {
        (true, _) => json_of(args, &imported),
        (false, true) => String::new(),
        (false, false) => lines_of(args, &imported, (&file.system()?, &options))?,
    };
    let all = warned(&imported).warnings;
    Ok(Outcome::from(text).warned(all))
}

/// Warnings of keys that TIPTOP does not document.
fn warned(imported: &Imported) -> Outcome {
    let unknown = imported.keys.iter().filter(|key| key.status == KeyStatus::Unknown);
    let warning = |key: &ImportedKey| {
        format!("line {}: {} = {}: TIPTOP documents no such key", key.line, key.key, key.value)
    };
    let warnings = imported.warnings.iter().cloned().chain(unknown.map(warning));
    Outcome { warnings: warnings.collect(), ..Outcome::default() }
}

// Tell what was imported
fn lines_of(
    args: &ImportArgs,
    imported: &Imported,
    (system, options): (&System, &PsfOptions),
) -> Result<String, Error> {
    let (stars, mirrors) = (system.guide_stars(), options.correction.mirrors.len());
    let mode = options.correction.mode.name();
    let optimisation = system.optimisation().len();
    let mut system = vec![
        count(stars.len(), "guide star"),
        count(system.atmosphere().layers().len(), "layer"),
        format!("{mode} with {}", count(mirrors, "mirror")),
        count(system.targets().len(), "target"),
    ];
    if optimisation > 0 {
        system.push(format!(
            "{} without images that mirrors are for",
            count(optimisation, "direction")
        ));
    }
    let converted = |key: &&ImportedKey| matches!(key.status, KeyStatus::Converted(_));
    let used = imported.keys.iter().filter(converted).count();
    let file = args.file.file_name().unwrap_or_default().to_string_lossy();
    let all = imported.keys.len();
    let mut lines = vec![
        ("system", system.join(", ")),
        ("converted", format!("{used} of {} of {file}", count(all, "key"))),
    ];
    let mut name = "not used";
    for key in &imported.keys {
        let KeyStatus::NotUsed(reason) = &key.status else { continue };
        lines.push((std::mem::take(&mut name), format!("{}: {reason}", key.key)));
    }
    lines.extend(file_lines([("output", args.output.as_deref())]));
    Ok(align(&lines))
}

fn json_of(args: &ImportArgs, imported: &Imported) -> String {
    let keys: Vec<_> = imported
        .keys
        .iter()
        .map(|key| {
            let (status, note) = match &key.status {
                KeyStatus::Converted(to) => ("converted", Some(to)),
                KeyStatus::NotUsed(reason) => ("not used", Some(reason)),
                KeyStatus::Unknown => ("unknown", None),
            };
            json!({ "key": key.key, "line": key.line, "value": key.value, "fate": status, "told": note })
        })
        .collect();
    let (file, output) = (args.file.display().to_string(), file_json(args.output.as_deref()));
    format!("{}\n", json!({ "file": file, "keys": keys, "output": output }))
}
