// Tangled from book/src/help-examples.md: edit there, or here and run cargo tangle stitch.
//! Examples at the end of the help of each command.

// Ends of the help
/// Two examples as the end of a help.
pub fn examples(two: [&str; 2]) -> String {
    format!("Examples:\n  {}\n  {}", two[0], two[1])
}

/// Words and then two examples as the end of a help.
pub fn words_and_examples(words: &str, two: [&str; 2]) -> String {
    format!("{words}\n\n{}", examples(two))
}

// Examples of commands
pub const LENSLET: [&str; 2] = [
    "lenslet psf book/systems/small-moao.toml -o out/psf.fits",
    "lenslet stem book/systems/silicon-stem.toml --plan",
];

pub const KEYS: [&str; 2] = ["lenslet keys guide_star.sensor", "lenslet keys sample --json"];

pub const NEW: [&str; 2] = [
    "lenslet new system --like ltao -o out/ltao.toml",
    "lenslet new sample --like hrtem -o out/hrtem.toml",
];

pub const COVARIANCE: [&str; 2] = [
    "lenslet covariance book/systems/keck-lgs.toml -o out/covariance.npz --plot out/covariance.svg",
    "lenslet covariance book/systems/keck-lgs.toml --form dense --plan",
];

pub const ESTIMATE: [&str; 2] = [
    "lenslet estimate book/systems/keck-lgs.toml --slopes book/systems/keck-lgs-slopes.npy -o out/wavefront.npz",
    "lenslet estimate book/systems/elt.toml --plan",
];

pub const RECONSTRUCT: [&str; 2] = [
    "lenslet reconstruct book/systems/small-moao.toml -o out/reconstructor.npz --plot out/error.svg",
    "lenslet reconstruct book/systems/small-moao.toml -o out/errors.fits --errors-only --json",
];

pub const PSF: [&str; 2] = [
    "lenslet psf book/systems/small-moao.toml -o out/psf.fits --plot out/psf.svg --csv out/psf.csv",
    "lenslet psf book/systems/mosaic-field.toml --plan",
];

pub const IMPORT: [&str; 2] = [
    "lenslet import book/systems/tiptop/MUSE_LTAO.ini -o out/muse.toml",
    "lenslet import book/systems/tiptop/MAVIS.ini -o out/mavis.toml --json",
];

pub const VIEW: [&str; 2] = [
    "lenslet view book/systems/keck-lgs-slopes.npy -o out/slopes.html",
    "lenslet view out/psf.fits -o out/psf.html --limit 100",
];

pub const LEARN: [&str; 2] = [
    "lenslet learn book/systems/small.toml --slopes book/systems/small-slopes.npy --fit strengths -o out/learned.toml",
    "lenslet learn book/systems/keck-lgs.toml --fit strengths,altitudes,shifts --plan",
];

pub const SIMULATE: [&str; 2] = [
    "lenslet simulate book/systems/small-moao.toml --frames 10 -o out/slopes.npz",
    "lenslet simulate book/systems/keck-lgs.toml -o out/slopes.fits --wavefront out/wavefront.fits",
];

pub const STEM: [&str; 2] = [
    "lenslet stem book/systems/silicon-stem.toml -o out/silicon.emd --plot out/silicon.svg",
    "lenslet stem --prismatic \"-i book/systems/SI100.XYZ -a p -f 4\" --write-sample out/prism.toml",
];

pub const INFO: [&str; 2] = ["lenslet info", "lenslet info book/systems/elt.toml"];

// Examples of benchmarks
pub const BENCH: [&str; 2] =
    ["lenslet bench --lenslets 8,16 --repeat 3", "lenslet bench calibrate"];

pub const BENCH_COVARIANCE: [&str; 2] = [
    "lenslet bench covariance book/systems/small.toml --repeat 3",
    "lenslet bench covariance book/systems/keck-lgs.toml --plan",
];

pub const BENCH_RECONSTRUCT: [&str; 2] = [
    "lenslet bench reconstruct book/systems/small-moao.toml --repeat 3",
    "lenslet bench reconstruct book/systems/small-moao.toml --errors-only --json",
];

pub const BENCH_IMAGE: [&str; 2] = [
    "lenslet bench image book/systems/small-moao.toml --repeat 3",
    "lenslet bench image book/systems/mosaic.toml --repeat 1 --json",
];

pub const BENCH_FRAMES: [&str; 2] = [
    "lenslet bench frames --slopes 2400 --rows 1681 --frames 256",
    "lenslet bench frames --precision f32 --json",
];

pub const BENCH_STEM: [&str; 2] =
    ["lenslet bench stem --repeat 1", "lenslet bench stem --precision f64 --json"];

pub const BENCH_CALIBRATE: [&str; 2] =
    ["lenslet bench calibrate", "lenslet bench calibrate --precision f32 --json"];

// Tests of the examples
#[cfg(test)]
mod tests {
    use crate::command::Cli;
    use clap::{Command, CommandFactory, Parser};

    /// The helps of a command and of all commands below it.
    fn helps(command: &Command, all: &mut Vec<String>) {
        all.push(command.clone().render_long_help().to_string());
        command.get_subcommands().for_each(|below| helps(below, all));
    }

    /// Words of a line, in which quotation marks hold words together.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('"').enumerate();
        let words = parts.flat_map(|(k, part)| match k % 2 {
            0 => part.split_whitespace().map(String::from).collect(),
            _ => vec![part.to_string()],
        });
        words.collect()
    }

    #[test]
    fn every_help_ends_with_two_examples_that_are_commands() {
        let mut all = Vec::new();
        helps(&Cli::command(), &mut all);
        assert!(all.len() > 14, "{}", all.len());
        for help in &all {
            let end: Vec<&str> = help.trim_end().lines().rev().take(3).collect();
            let [second, first, title] = end[..] else { panic!("{help}") };
            assert_eq!(title, "Examples:", "{help}");
            for line in [first, second] {
                assert!(line.starts_with("  lenslet "), "{help}");
                let parsed = Cli::try_parse_from(words(line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                let files = words(line).into_iter().filter(|word| word.starts_with("book/"));
                files.for_each(|file| assert!(std::path::Path::new(&file).exists(), "{file}"));
            }
        }
        assert!(all[0].contains("electron micros"), "{}", all[0]);
    }

    #[test]
    fn every_device_option_lists_cuda() {
        let mut commands = vec![Cli::command()];
        let mut files = 0;
        while let Some(command) = commands.pop() {
            let options = command.get_arguments().filter(|option| option.get_id() == "device");
            for option in options {
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                let words = ["cpu", "cuda", "cuda:K"].map(|word| help.contains(word));
                assert_eq!(words, [true; 3], "{}: {help}", command.get_name());
                files += 1;
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(files >= 9, "{files}");
    }
}
