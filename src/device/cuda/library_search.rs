// Tangled from book/src/library-search.md: edit there, or here and run cargo tangle stitch.
//! Search for NVIDIA's libraries: by the system's loader, in packages for Python, in the CUDA toolkit.
#![allow(unsafe_code)]

// Imports of the library search
use libloading::Library;
use std::error::Error as _;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, io};

// Libraries of CUDA's releases
/// A library of NVIDIA's: its sonames, and the folders of its packages for Python.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NvidiaLibrary {
    /// Its name between `lib` and `.so`.
    pub stem: &'static str,
    /// The number behind `.so.` in CUDA 12 and in CUDA 13.
    numbers: [i32; 2],
    /// Its folder below `site-packages/nvidia` in packages of CUDA 12 and of CUDA 13.
    folders: [&'static str; 2],
    /// Libraries that it opens by their names when it is loaded or later.
    needs: &'static [&'static NvidiaLibrary],
}

/// Releases of CUDA whose libraries are used, the newest first.
pub(super) const RELEASES: [i32; 2] = [13, 12];

// The libraries that we open
const fn nvidia(
    stem: &'static str,
    numbers: [i32; 2],
    folder: &'static str,
    needs: &'static [&'static NvidiaLibrary],
) -> NvidiaLibrary {
    NvidiaLibrary { stem, numbers, folders: [folder, "cu13/lib"], needs }
}

static BUILTINS: NvidiaLibrary = nvidia("nvrtc-builtins", [12, 13], "cuda_nvrtc/lib", &[]);
static JIT_LINK: NvidiaLibrary = nvidia("nvJitLink", [12, 13], "nvjitlink/lib", &[]);
static CUDART: NvidiaLibrary = nvidia("cudart", [12, 13], "cuda_runtime/lib", &[]);
static CUBLAS_LT: NvidiaLibrary = nvidia("cublasLt", [12, 13], "cublas/lib", &[]);
static CUSPARSE: NvidiaLibrary = nvidia("cusparse", [12, 12], "cusparse/lib", &[&JIT_LINK]);
static CUBLASMP: NvidiaLibrary = NvidiaLibrary {
    folders: ["cublasmp/cu12/lib", "cublasmp/cu13/lib"],
    ..nvidia("cublasmp", [0, 0], "", &[])
};

/// The compiler of kernels.
pub(super) static NVRTC: NvidiaLibrary = nvidia("nvrtc", [12, 13], "cuda_nvrtc/lib", &[&BUILTINS]);
/// Fourier transforms.
pub(super) static CUFFT: NvidiaLibrary = nvidia("cufft", [11, 12], "cufft/lib", &[&JIT_LINK]);
/// Products of matrices.
pub(super) static CUBLAS: NvidiaLibrary = nvidia("cublas", [12, 13], "cublas/lib", &[&CUBLAS_LT]);
/// Factorisations.
pub(super) static CUSOLVER: NvidiaLibrary =
    nvidia("cusolver", [11, 12], "cusolver/lib", &[&JIT_LINK, &CUSPARSE, &CUBLAS_LT, &CUBLAS]);
/// Sums and copies between devices.
pub(super) static NCCL: NvidiaLibrary =
    NvidiaLibrary { folders: ["nccl/lib"; 2], ..nvidia("nccl", [2, 2], "", &[]) };
/// Factorisations by several devices.
pub(super) static CUSOLVERMP: NvidiaLibrary =
    nvidia("cusolverMp", [0, 0], "cu12/lib", &[&CUDART, &CUBLASMP]);

// Releases that fit a driver
/// Releases whose libraries a driver of this release runs, the newest first; all of them if there is no driver.
fn fitting(driver: Option<i32>) -> Vec<i32> {
    RELEASES.into_iter().filter(|&release| driver.is_none_or(|driver| release <= driver)).collect()
}

impl NvidiaLibrary {
    /// Its soname in a release.
    pub(super) fn soname(&self, release: i32) -> String {
        format!("lib{}.so.{}", self.stem, self.numbers[usize::from(release >= RELEASES[0])])
    }

    /// The release that a file belongs to, by the number in its name: `libcufft.so.12.0.0.61` is of CUDA 13.
    fn release(&self, file: &Path) -> Option<i32> {
        let name = file.file_name()?.to_str()?;
        let number = name.split_once(".so.")?.1.split('.').next()?.parse::<i32>().ok()?;
        let known = if number < self.numbers[1] { RELEASES[1] } else { RELEASES[0] };
        Some(known + self.beyond(number))
    }
}

// Count releases beyond the known ones
impl NvidiaLibrary {
    /// By how many releases a number lies before CUDA 12, which is negative, or after CUDA 13.
    fn beyond(&self, number: i32) -> i32 {
        let [first, last] = self.numbers;
        (number - first).min(0) + (number - last).max(0)
    }
}

// Folders handed over by callers
/// Folders that were handed over.
static ADDED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Adds a folder, such as the `site-packages` of a Python, whose packages of NVIDIA's libraries are used: its folder `nvidia` is searched.
///
/// Folders are searched in the order of their addition, after the folders of the system's loader and before all others. A library
/// that has been found stays in use.
///
/// ```
/// lenslet::device::add_library_folder("/opt/science/lib/python3.12/site-packages");
/// ```
pub fn add_library_folder(folder: impl Into<PathBuf>) {
    let (mut added, folder) = (ADDED.lock().unwrap_or_else(PoisonError::into_inner), folder.into());
    if !added.contains(&folder) {
        added.push(folder);
    }
}

// Places of libraries
/// A folder in which libraries may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The packages of a Python, each of which has folders of its own.
    Packages(PathBuf),
    /// A folder that contains the libraries themselves.
    Libraries(PathBuf),
}

/// Places where a library may be that the loader does not find, in the order of the search.
fn places(
    added: &[PathBuf],
    variable: &dyn Fn(&str) -> Option<PathBuf>,
    program: Option<PathBuf>,
) -> Vec<Place> {
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let own = program.and_then(|program| Some(program.parent()?.parent()?.to_path_buf()));
    let on_path = variable("PATH").map(|path| roots_of_python(path.as_os_str()));
    let user = variable("HOME").map(|home| home.join(".local"));
    let roots = active.chain(own).chain(on_path.into_iter().flatten()).chain(user);
    let added = added.iter().cloned().map(Place::Packages);
    // Places of roots and toolkits
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable);
    let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda")]);
    let toolkits = toolkits.map(|root| Place::Libraries(root.join("lib64")));
    let mut places: Vec<Place> = Vec::new();
    for place in added.chain(roots.flat_map(|root| places_of(&root))).chain(toolkits) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

// Find folders of Python's packages
/// Folders above those of the programs `python3` on a path, and `local` beside them.
fn roots_of_python(path: &OsStr) -> Vec<PathBuf> {
    let folders = env::split_paths(path).filter(|folder| folder.join("python3").exists());
    let above = |folder: PathBuf| folder.parent().map(Path::to_path_buf);
    folders.filter_map(above).flat_map(|root| [root.join("local"), root]).collect()
}

/// Places below the root of an environment or of a system: packages of each Python, the newest first, and the folder `lib`.
fn places_of(root: &Path) -> Vec<Place> {
    let lib = root.join("lib");
    let names = fs::read_dir(&lib).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let minor = |name: &OsStr| {
        name.to_str()?.strip_prefix("python3")?.trim_start_matches('.').parse::<u32>().ok()
    };
    let mut pythons: Vec<_> = names
        .filter_map(|name| Some((minor(&name).or((name == "python3").then_some(0))?, name)))
        .collect();
    pythons.sort_unstable_by(|a, b| b.cmp(a));
    let kinds = ["site-packages", "dist-packages"];
    let packages =
        pythons.iter().flat_map(|(_, python)| kinds.map(|kind| lib.join(python).join(kind)));
    packages.map(Place::Packages).chain([Place::Libraries(lib.clone())]).collect()
}

// The file of a library at a place
impl Place {
    /// The file of a library of a release, if there is one.
    fn file(&self, library: &NvidiaLibrary, release: i32) -> Option<PathBuf> {
        let of_package = library.folders[usize::from(release >= RELEASES[0])];
        let folder = match self {
            Self::Packages(packages) => packages.join("nvidia").join(of_package),
            Self::Libraries(folder) => folder.clone(),
        };
        let soname = library.soname(release);
        let file = folder.join(&soname);
        if file.exists() {
            return Some(file);
        }
        let longer = format!("{soname}.");
        let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
        let named =
            files.filter(|name| name.to_str().is_some_and(|name| name.starts_with(&longer)));
        named.min().map(|name| file.with_file_name(name))
    }
}

// Open a library from its places
/// Opens a library from the first place that has it in one of the releases; or the first file that did not load, and why.
fn open_from(
    places: &[Place],
    library: &NvidiaLibrary,
    releases: &[i32],
) -> Result<Opened, Option<(PathBuf, String)>> {
    let mut failed = None;
    for (place, &release) in
        places.iter().flat_map(|place| releases.iter().map(move |r| (place, r)))
    {
        let Some(file) = place.file(library, release) else { continue };
        open_needs(place, library, release);
        match open_file(&file) {
            Ok(library) => return Ok(Opened { library, file, release }),
            Err(reason) => failed = failed.or(Some((file, reason))),
        }
    }
    Err(failed)
}

// Open what a library needs
/// A library that was opened from a file.
struct Opened {
    library: Library,
    file: PathBuf,
    release: i32,
}

/// Opens the libraries that a library needs, as far as they are at the same place.
fn open_needs(place: &Place, library: &NvidiaLibrary, release: i32) {
    for need in library.needs {
        open_needs(place, need, release);
        if let Some(Ok(opened)) = place.file(need, release).map(|file| open_file(&file)) {
            std::mem::forget(opened);
        }
    }
}

// Open the file of a library
/// Opens a library from a file, or by its name, and looks up all that it needs now, so that nothing is missing later.
#[cfg(unix)]
fn open_file(file: &Path) -> Result<Library, String> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: NVIDIA's libraries may be loaded at any time.
    unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.map(Into::into).map_err(reason_of)
}

#[cfg(not(unix))]
fn open_file(file: &Path) -> Result<Library, String> {
    // SAFETY: as above.
    unsafe { Library::new(file) }.map_err(reason_of)
}

/// What the loader says of a library that does not load.
fn reason_of(error: libloading::Error) -> String {
    error.source().map_or(error.to_string(), ToString::to_string)
}

// Open a library outside the toolkit
/// Opens a library of a release that `cudarc` does not know, from a place where its companion is as well, by the loader, or from any place.
pub(super) fn open(
    library: &NvidiaLibrary,
    companion: Option<&NvidiaLibrary>,
    release: i32,
) -> Result<Library, String> {
    let places = places_here();
    let together = |place: &&Place| {
        matches!(place, Place::Packages(_))
            && companion.is_some_and(|other| place.file(other, release).is_some())
    };
    let shared: Vec<Place> = places.iter().filter(together).cloned().collect();
    if let Ok(opened) = open_from(&shared, library, &[release]) {
        return Ok(opened.library);
    }
    open_file(Path::new(&library.soname(release))).or_else(|reason| {
        let opened = open_from(&places, library, &[release]).map(|opened| opened.library);
        opened.map_err(|failed| failed.map_or(reason, |(_, reason)| reason))
    })
}

// Make a library known by another name
/// The bytes of a shared library that is called `soname` and consists of what is in another file.
fn alias(soname: &str, file: &Path, machine: u16) -> Vec<u8> {
    let names =
        [b"\0", soname.as_bytes(), b"\0", file.as_os_str().as_encoded_bytes(), b"\0"].concat();
    let file_at = 2 + soname.len() as u64;
    let (table, symbols) = (HEADER + 3 * SEGMENT, HEADER + 3 * SEGMENT + 7 * ENTRY);
    let (texts, bytes) = (symbols + SYMBOL, names.len() as u64);
    // Needed file, soname, positions of names and symbols, bytes of all names and of a symbol, end.
    let entries =
        [[1, file_at], [14, 1], [5, texts], [6, symbols], [10, bytes], [11, SYMBOL], [0, 0]];
    let segments = [
        segment(1, [0, texts + bytes], 1 << 16),
        segment(2, [table, 7 * ENTRY], 8),
        segment(0x6474_e551, [0, 0], 16),
    ];
    let (segments, entries) = (segments.concat(), words(entries.as_flattened()));
    [header(machine), segments, entries, vec![0; SYMBOL as usize], names].concat()
}

// Parts of an alias
// Bytes of the header, of the description of a segment, of an entry of the table and of a symbol.
const HEADER: u64 = 64;
const SEGMENT: u64 = 56;
const ENTRY: u64 = 16;
const SYMBOL: u64 = 24;

/// The header of a shared library for a processor, with three segments.
fn header(machine: u16) -> Vec<u8> {
    let magic = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let kind = halves(&[3, machine, 1, 0]);
    let positions = words(&[0, HEADER, 0]);
    let sizes = halves(&[0, 0, HEADER as u16, SEGMENT as u16, 3, 0, 0, 0]);
    [magic, kind, positions, sizes].concat()
}

/// The description of a segment of a kind: its position and its bytes.
fn segment(kind: u32, [from, bytes]: [u64; 2], alignment: u64) -> Vec<u8> {
    let read_and_write = 6;
    let kind = halves(&[kind as u16, (kind >> 16) as u16, read_and_write, 0]);
    [kind, words(&[from, from, from, bytes, bytes, alignment])].concat()
}

fn halves(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

// Open a file under a name
/// Opens an alias, so that the loader finds a file under a name from now on.
fn open_alias(soname: &str, file: &Path) -> io::Result<()> {
    let mut start = [0; 20];
    io::Read::read_exact(&mut fs::File::open(file)?, &mut start)?;
    let machine = u16::from_le_bytes([start[18], start[19]]);
    let written = tempfile::Builder::new().suffix(".so").tempfile()?;
    fs::write(written.path(), alias(soname, &std::path::absolute(file)?, machine))?;
    std::mem::forget(open_file(written.path()).map_err(io::Error::other)?);
    Ok(())
}

// The file that contains an address
/// The file from which an address of this process comes, where the system reports it.
fn file_at(address: usize) -> Option<PathBuf> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    maps.lines().find_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16));
        let path = PathBuf::from(&line[line.find('/')?..]);
        (from.ok()?..to.ok()?).contains(&address).then_some(path)
    })
}

/// The library that the loader finds under the names that `cudarc` tries, and the file that contains one of its functions.
fn by_loader(library: &NvidiaLibrary, function: &str) -> Option<(Library, Option<PathBuf>)> {
    let names = cudarc::get_lib_name_candidates(library.stem);
    // SAFETY: opens NVIDIA's library by its well-known name; a symbol is looked up and not called.
    let opened = names.iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
    let address = unsafe { opened.get::<unsafe extern "C" fn()>(function.as_bytes()) };
    let address = address.map(|function| *function as *const () as usize).ok();
    let file = address.and_then(file_at);
    Some((opened, file))
}

// Locate a library of the toolkit
// A located library and the reasons against
/// A library that `cudarc` will open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    /// Its file, where it is known.
    pub file: Option<PathBuf>,
    /// The major version of CUDA that it belongs to, where it is known.
    pub release: Option<i32>,
}

/// Why there is no library to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotLocated {
    /// There is none.
    Missing,
    /// The one that the loader finds needs a newer driver.
    TooNew { file: PathBuf, release: i32 },
    /// A file does not load, for a reason of the loader's.
    DoesNotLoad { file: PathBuf, reason: String },
}

/// Locates a library for a driver of this release, and makes sure that `cudarc` opens the same; `function` is one of its functions.
pub(super) fn locate(
    library: &'static NvidiaLibrary,
    function: &str,
    driver: Option<i32>,
) -> Result<Located, NotLocated> {
    static LOCATED: Mutex<Vec<(&str, Located)>> = Mutex::new(Vec::new());
    let mut located = LOCATED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = located.iter().find(|(stem, _)| *stem == library.stem) {
        return Ok(known.clone());
    }
    let found = search(library, function, driver)?;
    located.push((library.stem, found.clone()));
    Ok(found)
}

// Search the loader and the places
fn search(
    library: &NvidiaLibrary,
    function: &str,
    driver: Option<i32>,
) -> Result<Located, NotLocated> {
    let (first, file) = by_loader(library, function).unzip();
    let file = file.flatten();
    let release = file.as_deref().and_then(|file| library.release(file));
    let too_new = release.zip(driver).is_some_and(|(release, driver)| release > driver);
    let too_old = release.is_some_and(|release| release < RELEASES[1]);
    if let Some(first) = first.filter(|_| !too_new && !too_old) {
        std::mem::forget(first);
        return Ok(Located { file, release });
    }
    match (open_from(&places_here(), library, &fitting(driver)), file.zip(release)) {
        (Ok(opened), _) => use_file(library, opened),
        (Err(_), Some((file, release))) if too_new => Err(NotLocated::TooNew { file, release }),
        (Err(_), Some((file, release))) => Ok(Located { file: Some(file), release: Some(release) }),
        (Err(Some((file, reason))), None) => Err(NotLocated::DoesNotLoad { file, reason }),
        (Err(None), None) => Err(NotLocated::Missing),
    }
}

// Use the file that was chosen
/// Makes a file the library that `cudarc` opens; it stays open.
fn use_file(library: &NvidiaLibrary, opened: Opened) -> Result<Located, NotLocated> {
    let Opened { library: handle, file, release } = opened;
    let does_not_load = |error: io::Error| NotLocated::DoesNotLoad {
        file: file.clone(),
        reason: error.to_string(),
    };
    open_alias(&format!("lib{}.so", library.stem), &file).map_err(does_not_load)?;
    std::mem::forget(handle);
    Ok(Located { file: Some(file), release: Some(release) })
}

/// The places of this process; none on systems for which there are no such packages.
fn places_here() -> Vec<Place> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let variable =
        |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    places(&added, &variable, env::current_exe().ok())
}

// Make libraries for tests
/// Compiles a library for a test; whether there is a compiler.
#[cfg(test)]
pub(in crate::device) fn compiled(file: &Path, source: &str, options: &[&str]) -> bool {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let code = file.with_extension("c");
    fs::write(&code, source).unwrap();
    let mut command = std::process::Command::new(compiler);
    command.args(["-shared", "-fPIC", "-w", "-o"]).args([file, &code]).args(options);
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            assert!(env::var_os("LENSLET_REQUIRE_EMULATOR").is_none(), "no C compiler: {error}");
            eprintln!("skipped without a C compiler: {error}");
            false
        }
    }
}

// Tests of the library search
#[cfg(test)]
mod tests {
    use super::*;

    // Check the order of places
    /// An empty file and the folders above it.
    fn touch(file: &Path) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    #[test]
    fn places_are_searched_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for file in [
            "venv/lib/python3.9/x",
            "venv/lib/python3.12/x",
            "venv/lib/pythonic/x",
            "system/bin/python3",
        ] {
            touch(&root.join(file));
        }
        let variable = |name: &str| {
            let found = |file: &str| Some(root.join(file));
            match name {
                "VIRTUAL_ENV" => found("venv"),
                "PATH" => found("system/bin"),
                "HOME" => found("home"),
                "CUDA_HOME" => found("toolkit"),
                _ => None,
            }
        };
        let found = places(&[root.join("handed")], &variable, Some(root.join("venv/bin/lenslet")));
        let packages = |file: &str| Place::Packages(root.join(file));
        let libraries = |file: &str| Place::Libraries(root.join(file));
        let expected = [
            packages("handed"),
            packages("venv/lib/python3.12/site-packages"),
            packages("venv/lib/python3.12/dist-packages"),
            packages("venv/lib/python3.9/site-packages"),
            packages("venv/lib/python3.9/dist-packages"),
            libraries("venv/lib"),
            libraries("system/local/lib"),
            libraries("system/lib"),
            libraries("home/.local/lib"),
            libraries("toolkit/lib64"),
            Place::Libraries("/usr/local/cuda/lib64".into()),
        ];
        assert_eq!(found, expected);
    }

    // Check releases by their numbers
    #[test]
    fn releases_follow_from_names_of_files() {
        let release = |library: &NvidiaLibrary, name: &str| library.release(Path::new(name));
        assert_eq!(release(&CUBLAS, "/usr/lib/libcublas.so.12.9.1.4"), Some(12));
        assert_eq!(release(&CUBLAS, "libcublas.so.11"), Some(11));
        assert_eq!(release(&CUFFT, "libcufft.so.12.0.0.61"), Some(13));
        assert_eq!(release(&CUFFT, "libcufft.so.11"), Some(12));
        assert_eq!(release(&CUSOLVER, "libcusolver.so.13"), Some(14));
        assert_eq!(release(&NVRTC, "libnvrtc.so"), None);
        assert_eq!(
            [None, Some(14), Some(13), Some(12)].map(|driver| fitting(driver).len()),
            [2, 2, 2, 1]
        );
        assert_eq!((fitting(Some(12)), fitting(Some(11))), (vec![12], vec![]));
    }

    #[test]
    fn files_lie_where_packages_of_each_release_have_them() {
        let folder = tempfile::tempdir().unwrap();
        let nvidia = folder.path().join("nvidia");
        let files = [
            "cusolver/lib/libcusolver.so.11",
            "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9",
            "nccl/lib/libnccl.so.2",
        ];
        let newer = [
            "cu13/lib/libcusolver.so.12",
            "cu13/lib/libnvrtc-builtins.so.13.0",
            "nccl/lib/libnccl.so.2",
        ];
        files.iter().chain(&newer).for_each(|file| touch(&nvidia.join(file)));
        let place = Place::Packages(folder.path().into());
        for (release, files) in [(12, files), (13, newer)] {
            let found = [&CUSOLVER, &BUILTINS, &NCCL].map(|library| place.file(library, release));
            assert_eq!(found, files.map(|file| Some(nvidia.join(file))));
        }
        assert_eq!(place.file(&CUBLAS, 13), None);
        // Without files there is nothing that could fail to load; an empty file does.
        let failed = |library| open_from(std::slice::from_ref(&place), library, &[13, 12]).err();
        assert_eq!(failed(&CUBLAS), Some(None));
        let (file, reason) = failed(&CUSOLVER).flatten().unwrap();
        assert_eq!(file, nvidia.join(newer[0]));
        assert!(reason.contains("file too short"), "{reason}");
    }

    // Check aliases and needed libraries
    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_without_a_soname_is_found_by_its_alias() {
        static FAR: NvidiaLibrary = nvidia("lenslet-far", [1, 2], "far/lib", &[]);
        static NEAR: NvidiaLibrary = nvidia("lenslet-near", [1, 2], "near/lib", &[&FAR]);
        let folder = tempfile::tempdir().unwrap();
        let lib = folder.path().join("nvidia/cu13/lib");
        let [far, near] =
            ["liblenslet-far.so.2", "liblenslet-near.so.2"].map(|name| lib.join(name));
        if !compiled(&far, "int far() { return 40; }", &["-Wl,-soname,liblenslet-far.so.2"]) {
            return;
        }
        compiled(&near, "int far(); int near() { return far() + 2; }", &[far.to_str().unwrap()]);
        let alone = open_file(&near).err().unwrap();
        assert!(alone.contains("liblenslet-far.so.2"), "{alone}");
        let places =
            [Place::Libraries("/no-such-folder".into()), Place::Packages(folder.path().into())];
        let opened = open_from(&places, &NEAR, &[13]).unwrap_or_else(|failed| panic!("{failed:?}"));
        assert_eq!((&opened.file, opened.release), (&near, 13));
        let name = Path::new("liblenslet-near.so");
        assert!(open_file(name).is_err());
        open_alias("liblenslet-near.so", &opened.file).unwrap();
        let (library, file) = by_loader(&NEAR, "near").unwrap();
        // SAFETY: the function was compiled above, and takes nothing.
        let number = unsafe { library.get::<unsafe extern "C" fn() -> i32>(b"near").unwrap()() };
        assert_eq!((number, file), (42, Some(near.canonicalize().unwrap())));
    }
}
