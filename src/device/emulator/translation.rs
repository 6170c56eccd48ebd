// Tangled from book/src/kernel-translation.md: edit there, or here and run cargo tangle stitch.
//! The text of kernels made into C++, and compiled to a library for the processor.

// Imports of the translation
use crate::device::gpu::{Header, KernelSource};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

// Kernel text made into C++
/// Headers that make a kernel C++: the keywords of CUDA, and its mathematical functions.
const WORDS: &str = concat!(
    include_str!("../../../kernels/device/processor.h"),
    include_str!("../../../kernels/device/mathematics.h"),
);

/// The code that runs kernels.
const PROCESSOR: &str = concat!(
    include_str!("../../../kernels/device/processor.h"),
    include_str!("../../../kernels/device/processor.cpp"),
);

/// The C++ form of a source.
fn translated(source: &KernelSource) -> String {
    let text = with_dynamic_memory(source.text);
    let entry = |name: &String| format!("KERNEL_ON_PROCESSOR({name})\n");
    let entries: String = kernel_names(&text).iter().map(entry).collect();
    format!("{WORDS}\n#line 1 \"{}\"\n{text}\n{entries}", source.name)
}

// Names of the kernels
fn kernel_names(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().filter_map(|line| line.split("//").next()).collect();
    let code = code.join("\n");
    let kernels = code.split("extern \"C\" __global__").skip(1);
    let name = |rest: &str| {
        let after = rest.split_once("void")?.1.trim_start();
        let after = after.strip_prefix("__launch_bounds__").map_or(after, behind_brackets);
        Some(after.split_once('(')?.0.trim().to_string())
    };
    kernels.filter_map(name).collect()
}

/// The text after the brackets that it begins with.
fn behind_brackets(text: &str) -> &str {
    let mut open = 0;
    let end = text.find(|c: char| {
        open += i32::from(c == '(') - i32::from(c == ')');
        c == ')' && open == 0
    });
    end.map_or("", |end| &text[end + 1..])
}

// Dynamic shared memory made a pointer
/// The text, with `T* name = …` for each `extern __shared__ T name[]`.
fn with_dynamic_memory(text: &str) -> String {
    let mut parts = text.split("extern __shared__");
    let mut all = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (declared, rest) = part.split_once("[]").unwrap_or((part, ""));
        let words = declared.split_whitespace().filter(|word| !word.starts_with("__align__"));
        let words: Vec<&str> = words.collect();
        let (name, kind) = words.split_last().unwrap_or((&"", &[]));
        let kind = kind.join(" ");
        all += &format!("{kind}* {name} = ({kind}*)processor::dynamic_shared{rest}");
    }
    all
}

// Compile kernels to a library
/// The C++ compiler with its version, or the reason why there is none.
pub(super) fn compiler() -> Result<&'static (String, String), String> {
    static FOUND: OnceLock<Result<(String, String), String>> = OnceLock::new();
    let find = || {
        if !cfg!(target_os = "linux") {
            return Err("kernels run on the processor under Linux only".to_string());
        }
        let name = env::var("CXX").unwrap_or_else(|_| "c++".into());
        let output = Command::new(&name).arg("--version").output();
        let version =
            output.map_err(|error| format!("the compiler {name} does not run: {error}"))?;
        Ok((name, String::from_utf8_lossy(&version.stdout).into_owned()))
    };
    FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
}

// Options of the compiler
const OPTIONS: [&str; 9] = [
    "-x",
    "c++",
    "-std=c++17",
    "-w",
    "-fPIC",
    "-fno-exceptions",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-U_FORTIFY_SOURCE",
];

/// Options for kernels with and without a check of every access; compiling them takes longer than running them.
const KERNELS: [&[&str]; 2] = [&["-O1", "-fsanitize=thread"], &["-O1"]];

/// Option for the code that runs them.
const OPTIMISED: &str = "-O2";

/// Options of the linker: a library depends on the C library alone.
const LINKED: [&str; 4] = ["-shared", "-nodefaultlibs", "-lm", "-lc"];

// Cache compiled files of kernels
/// A cached file of the compiler; where it is missing, `make` makes it in a folder of its own, under the name `made`.
fn kept(
    name: &str,
    key: impl Hash,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    (compiler()?, OPTIONS, KERNELS, OPTIMISED, LINKED, key).hash(&mut hasher);
    let text = |error: std::io::Error| error.to_string();
    let program = env::current_exe().map_err(text)?;
    let folder = program.with_file_name("kernels-on-processor");
    let file = folder.join(format!("{:016x}-{name}", hasher.finish()));
    if file.exists() {
        return Ok(file);
    }
    fs::create_dir_all(&folder).map_err(text)?;
    let draft = tempfile::tempdir_in(&folder).map_err(text)?;
    make(draft.path())?;
    fs::rename(draft.path().join("made"), &file).map_err(text)?;
    Ok(file)
}

// Run the compiler in a folder
fn run(folder: &Path, options: &[&[&str]]) -> Result<(), String> {
    let mut command = Command::new(&compiler()?.0);
    let done = command.args(options.concat()).current_dir(folder).output();
    let done = done.map_err(|error| error.to_string())?;
    let said = || String::from_utf8_lossy(&done.stderr).into_owned();
    done.status.success().then_some(()).ok_or_else(said)
}

// Build a library once
/// The library with the kernels of a source.
pub(super) fn library(source: &KernelSource, options: &[String]) -> Result<PathBuf, String> {
    let (text, processor) = (translated(source), processor()?);
    let key = (options, &text, source.headers, PROCESSOR);
    kept(&format!("{}.so", source.name), key, |folder| {
        write(folder, &text, source.headers).map_err(|error| error.to_string())?;
        compile(folder, options)?;
        run(folder, &[&["-o", "made", "kernels.o", &processor.to_string_lossy()], &LINKED])
    })
}

/// The object file of the code that runs kernels.
fn processor() -> Result<&'static Path, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let make = |folder: &Path| {
        write(folder, PROCESSOR, &[]).map_err(|error| error.to_string())?;
        run(folder, &[&OPTIONS, &[OPTIMISED, "-c", "-o", "made", "kernels.cpp"]])
    };
    let made = MADE.get_or_init(|| kept("processor.o", PROCESSOR, make));
    made.as_deref().map_err(Clone::clone)
}

// Write kernels and their included texts
/// Writes a text as `kernels.cpp`, and headers under their names.
fn write(folder: &Path, text: &str, headers: &[Header]) -> std::io::Result<()> {
    fs::write(folder.join("kernels.cpp"), text)?;
    headers.iter().try_for_each(|header| {
        let file = folder.join(header.name);
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(file, with_dynamic_memory(header.text))
    })
}

// Compile one file
/// Makes `kernels.o` of `kernels.cpp`.
fn compile(folder: &Path, options: &[String]) -> Result<(), String> {
    let options = options.iter().map(String::as_str);
    let definitions: Vec<_> = options.filter(|option| option.starts_with("-D")).collect();
    let compile = |kernels: &[&str]| {
        run(folder, &[&OPTIONS, kernels, &definitions, &["-I.", "-c", "kernels.cpp"]])
    };
    compile(KERNELS[0]).or_else(|_| compile(KERNELS[1]))
}

// Tests of the translation
#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// Like extern \"C\" __global__ void none(int n), with two numbers.
extern \"C\" __global__ void __launch_bounds__(min(64, 32), 1) first(float *x) {
    extern __shared__ __align__(16) unsigned char memory[];
}
extern \"C\" __global__ void second() {}
";

    #[test]
    fn kernels_are_found_and_shared_memory_is_a_pointer() {
        let cpp = translated(&KernelSource { name: "two.cu", text: TEXT, headers: &[] });
        assert!(cpp.contains("\n#line 1 \"two.cu\"\n// Like extern"));
        assert!(cpp.ends_with("\nKERNEL_ON_PROCESSOR(first)\nKERNEL_ON_PROCESSOR(second)\n"));
        let pointer = "unsigned char* memory = (unsigned char*)processor::dynamic_shared;";
        assert!(cpp.contains(&format!("{{\n    {pointer}\n}}")), "{cpp}");
    }
}
