// Tangled from book/src/keys-command.md: edit there, or here and run cargo tangle stitch.
//! The command `keys`: all keys of the files that commands read.

// Imports of the command keys
use super::examples::{self, examples};
use crate::electrons::SAMPLE_KEYS;
use crate::error::{Error, Invalid};
use crate::files::spanned_toml::edits;
use crate::files::{KeyDefault, KeyKind, KeyRow, key_rows};
use crate::model::SYSTEM_KEYS;
use clap::Args;
use serde_json::{Value, json};

// Arguments of keys
#[derive(Debug, Args)]
#[command(after_help = examples(examples::KEYS))]
pub struct KeysArgs {
    /// Beginning of the keys to list, such as image or guide_star.sensor; system or sample lists those of one kind of file.
    prefix: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// List the keys
/// Lists the keys that the arguments ask for; returns what to print.
pub fn keys(args: &KeysArgs) -> Result<String, Error> {
    let files = [("system", key_rows(SYSTEM_KEYS)), ("sample", key_rows(SAMPLE_KEYS))];
    let chosen = select(&files, args.prefix.as_deref().unwrap_or_default())?;
    if args.json {
        let all = chosen.iter().flat_map(|(file, rows)| rows.iter().map(|row| key_json(file, row)));
        return Ok(format!("{}\n", json!({ "keys": all.collect::<Vec<_>>() })));
    }
    let mut text = String::new();
    for (file, rows) in &chosen {
        let title = if *file == "system" { "System file" } else { "Sample file" };
        text += &format!("{}{title}\n", if text.is_empty() { "" } else { "\n" });
        for table in rows.chunk_by(|one, other| one.table == other.table) {
            text += &table_text(table, &files);
        }
    }
    Ok(text)
}

// Select keys by their beginning
/// Rows of a kind of file, by its name.
type FileRows = (&'static str, Vec<KeyRow>);

/// The rows whose path begins with `prefix`, or all of the kind of file that it names.
fn select(files: &[FileRows], prefix: &str) -> Result<Vec<FileRows>, Invalid> {
    let typed = prefix.trim().trim_start_matches('[').trim_end_matches(']').to_lowercase();
    let whole = files.iter().find(|(file, _)| *file == typed);
    let matching = |(file, rows): &FileRows| {
        let rows = rows.iter().filter(|row| row.path.to_lowercase().starts_with(&typed));
        (*file, rows.cloned().collect::<Vec<_>>())
    };
    let chosen: Vec<FileRows> = match whole {
        Some(whole) => vec![whole.clone()],
        None => files.iter().map(matching).filter(|(_, rows)| !rows.is_empty()).collect(),
    };
    if chosen.is_empty() {
        let expected = format!("the beginning of a key; {}", nearest(files, &typed));
        return Err(Invalid::new("keys", prefix, expected));
    }
    Ok(chosen)
}

// Suggest the nearest keys
/// What is said of the keys nearest to a prefix that no key begins with.
fn nearest(files: &[FileRows], typed: &str) -> String {
    let rows = || files.iter().flat_map(|(_, rows)| rows);
    let distance = |row: &KeyRow| {
        let name = row.path.rsplit('.').next().unwrap_or_default();
        edits(typed, &row.path).min(edits(typed, name))
    };
    let is_short = typed.len() <= 100;
    let least = rows().filter(|_| is_short).map(distance).min().unwrap_or(usize::MAX);
    if least > typed.chars().count() / 3 {
        let tables = rows().filter(|row| !row.path.contains('.')).map(|row| row.path.as_str());
        return format!("the tables are {}", tables.collect::<Vec<_>>().join(", "));
    }
    let near = rows().filter(|row| distance(row) == least).map(|row| row.path.as_str());
    format!("did you mean {}?", near.take(4).collect::<Vec<_>>().join(" or "))
}

// Lay out the keys of a table
/// Characters of a line.
const WIDTH: usize = 118;

/// The most characters of a cell, unless a word is longer: key, type, unit, default, range, chapter.
const WIDEST: [usize; 6] = [40, 14, 9, 20, 24, 22];

/// The keys of one table of a file, under their heading.
fn table_text(rows: &[KeyRow], files: &[FileRows]) -> String {
    let Some(heading) = rows.first().map(|row| row.table.as_str()) else { return String::new() };
    let mut all = files.iter().flat_map(|(_, rows)| rows);
    let table = all.find(|row| row.key.is_table() && row.table == heading);
    let needed = table.is_some_and(|table| table.key.default == KeyDefault::Required);
    let meaning = table.map_or("", |table| table.key.meaning);
    let mut text = format!("\n{heading}  {meaning}{}\n", if needed { "; required" } else { "" });
    let plain: Vec<&KeyRow> = rows.iter().filter(|row| !row.key.is_table()).collect();
    let titles = ["key", "type", "unit", "default", "range", "chapter"].map(str::to_owned);
    let cells = |row: &&KeyRow| {
        let [kind, unit, default, range, _, chapter] = row.cells();
        [row.path.clone(), kind, unit, default, range, chapter]
    };
    let cells: Vec<_> = std::iter::once(titles).chain(plain.iter().map(cells)).collect();
    if plain.is_empty() {
        return text;
    }
    // Print aligned cells of keys
    let (mut widths, mut words) = (WIDEST, [0; 6]);
    for (k, width) in widths.iter_mut().enumerate() {
        let column = || cells.iter().map(|row| row[k].as_str());
        let longest = column().map(|cell| cell.chars().count()).max().unwrap_or(0);
        let word = column().flat_map(str::split_whitespace).map(|word| word.chars().count()).max();
        words[k] = word.unwrap_or(0);
        *width = longest.min(*width).max(words[k]);
    }
    // Ranges and defaults are wrapped first where a line is too long.
    for column in [4, 3, 1] {
        let line = widths.iter().sum::<usize>() + 2 * widths.len();
        widths[column] -= line.saturating_sub(WIDTH).min(widths[column] - words[column]);
    }
    for (k, row) in cells.iter().enumerate() {
        let wrapped: Vec<Vec<String>> =
            row.iter().zip(widths).map(|(cell, width)| wrap(cell, width)).collect();
        for line in 0..wrapped.iter().map(Vec::len).max().unwrap_or(0) {
            let part = |(lines, width): (&Vec<String>, usize)| {
                format!("{:width$}", lines.get(line).map_or("", String::as_str))
            };
            let parts: Vec<String> = wrapped.iter().zip(widths).map(part).collect();
            text += &format!("  {}\n", parts.join("  ").trim_end());
        }
        let meaning = k.checked_sub(1).and_then(|k| plain.get(k)).map_or("", |row| row.key.meaning);
        wrap(meaning, WIDTH - 6).iter().for_each(|line| text += &format!("      {line}\n"));
    }
    text
}

// Wrap a cell of a table
/// The words of a text on lines of at most so many characters; longer words have a line of their own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

// Describe a key in json
/// All that is declared of a key.
pub(crate) fn key_json(file: &str, row: &KeyRow) -> Value {
    let (key, [kind, _, default, range, ..]) = (row.key, row.cells());
    let limit = |limit: f64| limit.is_finite().then_some(limit);
    let words = match key.kind {
        KeyKind::Word(words) | KeyKind::Words(words) => Some(words),
        _ => None,
    };
    json!({
        "file": file,
        "table": row.table,
        "key": row.path,
        "type": kind,
        "unit": Some(key.unit).filter(|unit| !unit.is_empty()),
        "required": key.default == KeyDefault::Required,
        "default": matches!(key.default, KeyDefault::Value(_)).then_some(&default),
        "otherwise": matches!(key.default, KeyDefault::Words(_)).then_some(&default),
        "range": range,
        "minimum": limit(key.range.low),
        "maximum": limit(key.range.high),
        "excluded": key.range.excluded,
        "infinite": key.range.infinite,
        "words": words,
        "meaning": key.meaning,
        "chapter": format!("{}.md", row.chapter),
    })
}

// Check keys against the parsers
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::sample_file::SampleFile;
    use crate::error::BadLine;
    use crate::files::KeyRange;
    use crate::model::SystemFile;
    use crate::psf::PsfOptions;

    // Files that have every table
    const SYSTEM: &str = "[atmosphere]\nr0 = 0.15\n[[atmosphere.layers]]\naltitude = 0.0\nfraction = 1.0\nouter_scale = 25.0\n\
        [telescope]\ndiameter = 4.0\n[telescope.spiders]\nwidth = 0.05\nangles = [0.0]\n[lenslet_array]\nlenslets = 8\n[[guide_star]]\n\
        [guide_star.sensor]\nphotons = 100.0\nwavelength = 589e-9\npixel = 1.0\n\
        [guide_star.sensor.spot]\nlaunch = [1.0, 0.0]\naltitude = 90e3\nthickness = 1e4\n\
        [[target]]\n[[optimisation]]\n[truth_sensor]\nlenslets = 8\n[phase]\npoints = 9\n[covariance]\n[reconstructor]\n[correction]\n\
        [[mirror]]\nactuators = 9\n[loop]\nkind = 'closed'\nrate = 500.0\n[image]\n[field]\nsize = 10.0\nstep = 5.0\n";

    const SAMPLE: &str = "[sample]\nfile = 'a.cif'\n[potential]\n[phonons]\n[phonons.rms]\n[beam]\nenergy_kev = 100.0\n\
        [[beam.aberrations]]\nm = 2\nn = 2\nmagnitude = 1.0\n[scan]\n[method]\n[detector]\n\
        [[detector.segmented]]\ninner = 1.0\nouter = 2.0\n[detector.four_d]\n[imaging]\n[run]\n";

    /// A file in which a key makes sense.
    fn around(path: &str) -> String {
        let changed = |text: &str, from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        };
        let (loops, wind) =
            ("[loop]\nkind = 'closed'\nrate = 500.0\n", "fraction = 1.0\nwind_speed = 5.0\n");
        let still = changed(SYSTEM, loops, "");
        let of_star = "photons = 100.0\n";
        let magnitude = "magnitude = 5.0\nzero_point = 1e10\nframe_rate = 500.0\n";
        match path {
            "atmosphere.seeing" => changed(&still, "r0 = 0.15\n", "seeing = 0.7\n"),
            "guide_star.noise" => {
                let from = still.find("[guide_star.sensor]").unwrap();
                let to = still.find("[[target]]").unwrap();
                still[..from].to_owned() + &still[to..]
            }
            "guide_star.tip_tilt_variance" => changed(
                &still,
                "[[guide_star]]\n",
                "[[guide_star]]\ntip_tilt = 'unknown'\ntip_tilt_variance = 1e-12\n",
            ),
            "guide_star.sensor.magnitude"
            | "guide_star.sensor.zero_point"
            | "guide_star.sensor.throughput"
            | "guide_star.sensor.frame_rate" => changed(&still, of_star, magnitude),
            "mirror.pitch" => changed(&still, "actuators = 9\n", "pitch = 0.5\n"),
            "sample.crystal" => changed(SAMPLE, "file = 'a.cif'\n", "crystal = '1'\n"),
            path if path.starts_with("loop") || path == "reconstructor.delay" => {
                changed(SYSTEM, "fraction = 1.0\n", wind)
            }
            path if SYSTEM_KEYS.iter().any(|table| path.split('.').next() == Some(table.name)) => {
                still
            }
            _ => SAMPLE.to_owned(),
        }
    }

    // Change a line of a file
    /// A file with this value for a key, or without the key.
    fn with(text: &str, table: &str, name: &str, value: Option<&str>) -> String {
        let (mut lines, mut here) = (Vec::new(), "");
        for line in text.lines() {
            if line.starts_with('[') {
                here = line;
            } else if here == table && line.starts_with(&format!("{name} =")) {
                continue;
            }
            lines.push(line.to_owned());
            lines.extend(value.filter(|_| line == table).map(|value| format!("{name} = {value}")));
        }
        lines.join("\n")
    }

    /// A file without a table, and those inside of it.
    fn without(text: &str, row: &KeyRow) -> String {
        let inside = [format!("{}.", row.path), format!("{}]", row.path)];
        let mut kept = true;
        let mut keep = |line: &&str| {
            if line.starts_with('[') {
                let name = line.trim_start_matches('[');
                kept = !inside.iter().any(|inside| name.starts_with(inside));
            }
            kept
        };
        text.lines().filter(&mut keep).collect::<Vec<_>>().join("\n")
    }

    // Read a file that was changed
    /// What all parsers make of a file of the kind of `path`, or the line that one of them rejects.
    fn read(path: &str, text: &str) -> Result<String, BadLine> {
        let is_system = SYSTEM_KEYS.iter().any(|table| path.split('.').next() == Some(table.name));
        let read = || -> Result<String, Error> {
            if is_system {
                let file = SystemFile::from_toml(text, "s.toml")?;
                let (system, options) = (file.system()?, PsfOptions::from_system_file(&file)?);
                return Ok(format!("{system:?} {options:?}"));
            }
            let file = SampleFile::from_toml(text, "s.toml")?;
            let tables = (&file.sample, &file.potential, &file.phonons, &file.rms, &file.beam);
            Ok(format!(
                "{tables:?} {:?}",
                (&file.scan, &file.method, &file.detector, &file.imaging, &file.run)
            ))
        };
        read().map_err(|error| match error {
            Error::SystemFile(line) => *line,
            other => panic!("{path}: {other}"),
        })
    }

    /// Whether a file is rejected because of a key.
    fn rejects(row: &KeyRow, value: Option<&str>) -> Option<BadLine> {
        let text = with(&around(&row.path), &row.table, row.key.name, value);
        let line = read(&row.path, &text).err()?;
        let mut plain = String::new();
        line.key
            .split('[')
            .for_each(|part| plain += part.split_once(']').map_or(part, |(_, rest)| rest));
        let path = row.path.replace("ELEMENT", row.key.name);
        (plain == path).then_some(line)
    }

    // Write a number as a key has it
    /// A number as the value of a key; none of a key without numbers.
    fn written(kind: KeyKind, x: f64) -> Option<String> {
        let whole = format!("{x:.0}");
        Some(
            match kind {
                KeyKind::Number
                | KeyKind::NumberOrPair
                | KeyKind::NumberOrList
                | KeyKind::NumberOrFile => format!("{x:?}"),
                KeyKind::Whole | KeyKind::WholeOrPair => whole,
                KeyKind::Numbers => format!("[{x:?}]"),
                KeyKind::Tuple(count) => format!("{:?}", vec![x; count]),
                KeyKind::Wholes(counts) => {
                    let count: usize = counts[..1].parse().unwrap();
                    format!("[{}]", vec![whole; count].join(", "))
                }
                KeyKind::Pairs if x < 0.0 => format!("[[{x:?}, 1.0]]"),
                KeyKind::Pairs => format!("[[0.0, {x:?}]]"),
                _ => return None,
            }
            .replace("NaN", "nan"),
        )
    }

    /// Numbers just outside of limits, and those at limits.
    fn limits(range: KeyRange, whole: bool) -> (Vec<f64>, Vec<f64>) {
        let step = |x: f64| if whole { 1.0 } else { (1e-3 * x.abs()).max(1e-15) };
        let ends = [(range.low, range.excluded[0], -1.0), (range.high, range.excluded[1], 1.0)];
        let (mut outside, mut inside) = (Vec::new(), Vec::new());
        for (end, excluded, sign) in ends.into_iter().filter(|(end, ..)| end.is_finite()) {
            outside.push(if excluded { end } else { end + sign * step(end) });
            let slack = if whole { 0.0 } else { 1e-9 * end.abs() };
            inside.extend((!excluded).then_some(end - sign * slack));
        }
        if !whole {
            outside.push(f64::NAN);
            outside
                .extend((!range.infinite && range.low != f64::INFINITY).then_some(f64::INFINITY));
            inside.extend(range.infinite.then_some(f64::INFINITY));
        }
        (outside, inside)
    }

    // Each declaration is that of the parser
    #[test]
    fn each_declared_key_is_read_with_its_default_and_limits() {
        let rows = || [key_rows(SYSTEM_KEYS), key_rows(SAMPLE_KEYS)].into_iter().flatten();
        let mut wrong = Vec::new();
        for row in rows() {
            let (path, key, around) = (&row.path, row.key, around(&row.path));
            if let Err(line) = read(path, &around) {
                panic!("the file around {path} cannot be read: {line}");
            }
            if key.is_table() {
                let unknown =
                    read(path, &with(&around, &row.table, "nonsense", Some("1"))).unwrap_err();
                assert!(unknown.key.ends_with(".nonsense"), "{path}: {unknown}");
                let error = read(path, &without(&around, &row)).err();
                let missed =
                    error.as_ref().is_some_and(|line| line.value.is_none() && line.key == *path);
                // Images need a mirror.
                let needed = key.default == KeyDefault::Required || path == "mirror";
                assert_eq!(missed, needed, "{path}: {error:?}");
                continue;
            }
            assert!(rejects(&row, Some("1979-05-27")).is_some(), "no parser reads {path}");
            match key.default {
                KeyDefault::Required => {
                    let missed = rejects(&row, None).is_some_and(|line| line.value.is_none());
                    assert!(missed, "{path} is declared as required, and is not");
                }
                KeyDefault::Value(value) => {
                    let [left_out, given] = [None, Some(value)].map(|value| {
                        read(path, &with(&around, &row.table, key.name, value)).unwrap()
                    });
                    assert_eq!(left_out, given, "{path} = {value} is not the default");
                }
                KeyDefault::Words(words) => {
                    let missed = rejects(&row, None).is_some_and(|line| line.value.is_none());
                    assert!(!missed || words.contains("required"), "{path} is required");
                }
            }
            wrong.extend(check_values(&row));
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    // Numbers and words are those of the parser
    /// Checks the words of a key, and returns what is wrong with its limits.
    fn check_values(row: &KeyRow) -> Vec<String> {
        let (path, key, mut wrong) = (&row.path, row.key, Vec::new());
        let whole = matches!(key.kind, KeyKind::Whole | KeyKind::Wholes(_) | KeyKind::WholeOrPair);
        let (outside, inside) = limits(key.range, whole);
        for value in outside.into_iter().filter_map(|x| written(key.kind, x)) {
            if rejects(row, Some(&value)).is_none() {
                wrong.push(format!("{path} = {value} is accepted, outside of {}", key.range));
            }
        }
        // Counting the lenslets of the largest array takes long.
        let unbound = key.range.note.is_empty() && key.name != "lenslets";
        for value in inside.into_iter().filter(|_| unbound).filter_map(|x| written(key.kind, x)) {
            if let Some(line) = rejects(row, Some(&value)) {
                wrong.push(format!(
                    "{path} = {value} is rejected, inside of {}: {line:?}",
                    key.range
                ));
            }
        }
        let (words, list) = match key.kind {
            KeyKind::Word(words) => (words, ["", ""]),
            KeyKind::Words(words) => (words, ["[", "]"]),
            _ => return wrong,
        };
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        let of = |word: &str| format!("{}{word}{}", list[0], list[1]);
        let line = rejects(row, Some(&of("\"nonsense\""))).unwrap();
        let expected = line.expected.trim_end_matches(", each once");
        assert_eq!(expected, quoted.join(" or "), "{path}");
        let all = if list[0].is_empty() { quoted } else { vec![quoted.join(", ")] };
        for word in all {
            assert!(rejects(row, Some(&of(&word))).is_none(), "{path} = {word} is rejected");
        }
        wrong
    }

    // Prefixes choose keys
    #[test]
    fn prefixes_choose_keys_and_suggest_others() {
        let list = |prefix: &str| keys(&KeysArgs { prefix: Some(prefix.into()), json: false });
        let all = keys(&KeysArgs { prefix: None, json: false }).unwrap();
        assert!(all.lines().all(|line| line.chars().count() <= 120), "{all}");
        assert!(all.contains("\n[[guide_star]]  ") && all.contains("\n[beam]  "));
        let image = list("image").unwrap();
        assert!(image.contains("image.wavelengths") && !image.contains("field.size"), "{image}");
        assert_eq!(list("[image]").unwrap(), image);
        let sample = list("sample").unwrap();
        assert!(sample.contains("beam.energy_kev") && !sample.contains("System file"));
        let table = list("sample.").unwrap();
        assert!(table.contains("sample.file") && !table.contains("beam.energy_kev"));
        let refused = |prefix: &str| list(prefix).unwrap_err().to_string();
        assert_eq!(
            refused("seeing"),
            "keys = seeing: expected the beginning of a key; did you mean atmosphere.seeing?"
        );
        assert!(refused("atmosphere.sing").ends_with("did you mean atmosphere.seeing?"));
        assert!(refused("tilt").contains("sample.tilt or beam.tilt or imaging.tilt?"));
        assert!(refused("perfectly unlike").contains("the tables are atmosphere, telescope,"));
        assert!(refused(&"x".repeat(1000)).contains("the tables are"));
    }
}
