// Tangled from book/src/compiling-kernels.md: edit there, or here and run cargo tangle stitch.
//! Compiling kernels for a device with NVRTC, and keeping what was compiled.
#![allow(unsafe_code)]

use super::probe::{Library, require};
use crate::device::cache;
use crate::device::gpu::{Header, KernelSource};
use crate::error::Error;
use cudarc::nvrtc::{result as nvrtc, sys};
use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{fs, ptr};

// Compile a source for a device
/// The image of a source for a compute capability, newly compiled, and what the compiler had to say.
///
/// # Errors
/// `Device` where NVRTC is missing, `Cuda` with the compiler's words where it refuses.
pub(crate) fn compile(
    source: &KernelSource,
    options: &[String],
    capability: (i32, i32),
) -> Result<(Vec<u8>, String), Error> {
    let device = format!("compute capability {}.{}", capability.0, capability.1);
    require(Library::Nvrtc)
        .map_err(|none| Error::Device { device: device.clone(), reason: none.to_string() })?;
    let failed = |call: &'static str, reason: String| {
        let device = device.clone();
        Error::Cuda { call, device, reason: format!("{}: {reason}", source.name) }
    };
    let all = all_options(options, capability);
    // Run the compiler on the source
    let program = create_program(source).map_err(|(call, reason)| failed(call, reason))?;
    // SAFETY: `program` was created above, and is destroyed only below.
    let image = unsafe { nvrtc::compile_program(program, &all) }
        .map_err(|error| ("nvrtcCompileProgram", error))
        .and_then(|()| take_image(program, &all).map_err(|error| ("nvrtcGetCUBIN", error)))
        .map(|image| (image, log_of(program)))
        .map_err(|(call, error)| failed(call, format!("{:?}\n{}", error.0, log_of(program))));
    // SAFETY: as above; nothing uses `program` afterwards.
    let _ = unsafe { nvrtc::destroy_program(program) };
    image
}

// Make a program of a source
/// The compiler's object for a source with its headers.
fn create_program(source: &KernelSource) -> Result<sys::nvrtcProgram, (&'static str, String)> {
    let text = |text: &str| CString::new(text).map_err(|error| ("CString", error.to_string()));
    let (code, name) = (text(source.text)?, text(source.name)?);
    let texts = |of: fn(&Header) -> &str| -> Result<Vec<CString>, _> {
        source.headers.iter().map(|header| text(of(header))).collect()
    };
    let (names, headers) = (texts(|header| header.name)?, texts(|header| header.text)?);
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    let (names, headers, mut program) = (pointers(&names), pointers(&headers), ptr::null_mut());
    // Hand the texts to the compiler
    // SAFETY: all pointers are to texts that end with a zero and live until the call is over, which copies them.
    let created = unsafe {
        sys::nvrtcCreateProgram(
            &mut program,
            code.as_ptr(),
            name.as_ptr(),
            headers.len() as i32,
            headers.as_ptr(),
            names.as_ptr(),
        )
    };
    let failed = |error: nvrtc::NvrtcError| ("nvrtcCreateProgram", format!("{:?}", error.0));
    created.result().map(|()| program).map_err(failed)
}

// Choose the compiler's options
/// Options that hold for every kernel.
const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=true", "--device-as-default-execution-space"];

/// All options for a source on a device.
fn all_options(options: &[String], (major, minor): (i32, i32)) -> Vec<String> {
    let device = 10 * major + minor;
    let newest = supported().into_iter().filter(|&known| known <= device).max();
    let target = match newest {
        Some(known) if known < device => format!("compute_{known}"),
        _ => format!("sm_{device}"),
    };
    let common = OPTIONS.into_iter().map(String::from);
    let target = std::iter::once(format!("--gpu-architecture={target}"));
    common.chain(target).chain(options.iter().cloned()).collect()
}

// Ask which generations the compiler knows
/// The compiler's version; (0, 0) if it does not say.
#[cfg(test)]
pub(crate) fn version() -> (i32, i32) {
    let mut version = (0, 0);
    // SAFETY: writes two integers through valid pointers; should it fail, they are zero.
    let _ = unsafe { sys::nvrtcVersion(&mut version.0, &mut version.1) };
    version
}

/// The generations that the compiler makes machine code for, as 90 for (9, 0).
fn supported() -> Vec<i32> {
    let mut count = 0;
    // SAFETY: writes one integer through a valid pointer.
    if unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result().is_err() {
        return Vec::new();
    }
    let mut known = vec![0; count.max(0) as usize];
    // SAFETY: writes as many integers as were just counted.
    let status = unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result();
    status.map_or_else(|_| Vec::new(), |()| known)
}

// Take the image from the compiler
fn take_image(
    program: sys::nvrtcProgram,
    options: &[String],
) -> Result<Vec<u8>, nvrtc::NvrtcError> {
    if options.iter().any(|option| option.contains("compute_")) {
        // SAFETY: `program` has been compiled, to PTX.
        let ptx = unsafe { nvrtc::get_ptx(program)? };
        return Ok(ptx.into_iter().map(|byte| byte as u8).collect());
    }
    let mut size = 0;
    // SAFETY: `program` has been compiled, to machine code, and `size` is valid.
    unsafe { sys::nvrtcGetCUBINSize(program, &mut size) }.result()?;
    let mut image = vec![0u8; size];
    // SAFETY: `image` has the size that was just asked for.
    unsafe { sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()) }.result()?;
    Ok(image)
}

/// What the compiler had to say.
fn log_of(program: sys::nvrtcProgram) -> String {
    // SAFETY: `program` exists; its log may be empty.
    let log = unsafe { nvrtc::get_program_log(program) }.unwrap_or_default();
    let bytes: Vec<u8> = log.into_iter().map(|byte| byte as u8).filter(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_string()
}

// Keep compiled images in a folder
/// The image of a source for a device, from the cache or newly compiled; `driver` is the driver's version.
///
/// # Errors
/// Those of [`compile`].
pub(crate) fn image(
    source: &KernelSource,
    options: &[String],
    capability: (i32, i32),
    driver: (i32, i32),
) -> Result<Vec<u8>, Error> {
    let key = key_of(source, options, capability, driver);
    let file = cache::folder().map(|folder| folder.join(file_name(source, &key)));
    if let Some(image) = file.as_deref().and_then(|file| kept(file, &key)) {
        return Ok(image);
    }
    let (image, _) = compile(source, options, capability)?;
    let _ = file.map(|file| keep(&file, &key, &image));
    Ok(image)
}

// Put all that matters into a key
pub(crate) fn key_of(
    source: &KernelSource,
    options: &[String],
    capability: (i32, i32),
    driver: (i32, i32),
) -> String {
    let made_by = (env!("CARGO_PKG_VERSION"), OPTIONS, options, capability, driver);
    let headers = source.headers.iter().map(|header| (header.name, header.text));
    let texts = std::iter::once((source.name, source.text)).chain(headers);
    let texts: String = texts.map(|(name, text)| format!("\n{name}\n{text}")).collect();
    format!("{made_by:?}{texts}")
}

// Name the file of an image
pub(crate) fn file_name(source: &KernelSource, key: &str) -> String {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    format!("{}-{:016x}.image", source.name, hasher.finish())
}

// Read and write a kept image
/// The image in a file, if it is that of the key, and whole.
pub(crate) fn kept(file: &Path, key: &str) -> Option<Vec<u8>> {
    let content = fs::read(file).ok()?;
    let (lengths, rest) = content.split_at_checked(16)?;
    let (of_key, of_image) = lengths.split_at(8);
    let length = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?) as usize);
    let (known, image) = rest.split_at_checked(length(of_key)?)?;
    (known == key.as_bytes() && length(of_image)? == image.len()).then(|| image.to_vec())
}

pub(crate) fn keep(file: &Path, key: &str, image: &[u8]) -> std::io::Result<()> {
    let lengths = [key.len(), image.len()].map(|length| (length as u64).to_le_bytes());
    cache::keep(file, &[lengths.as_flattened(), key.as_bytes(), image])
}

// Tests of compiling and keeping
#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    // Tell keys apart
    #[test]
    fn keys_hold_all_that_an_image_depends_on() {
        const A: Header = Header { name: "a.cuh", text: "A" };
        const B: Header = Header { name: "a.cuh", text: "B" };
        let source = |text, headers| KernelSource { name: "k.cu", text, headers };
        let key = |source: KernelSource, option: &str, capability| {
            key_of(&source, &[option.to_string()], capability, (13, 0))
        };
        let keys = [
            key(source("K", &[]), "-DN=1", (9, 0)),
            key(source("K", &[A]), "-DN=1", (9, 0)),
            key(source("K", &[B]), "-DN=1", (9, 0)),
            key(source("L", &[B]), "-DN=1", (9, 0)),
            key(source("L", &[B]), "-DN=2", (9, 0)),
            key(source("L", &[B]), "-DN=2", (8, 0)),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn kept_images_are_those_of_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deeper/a.image");
        keep(&file, "key", &[1, 2, 3]).unwrap();
        assert_eq!(kept(&file, "key"), Some(vec![1, 2, 3]));
        assert_eq!(kept(&file, "kez"), None);
        assert_eq!(kept(&folder.path().join("b.image"), "key"), None);
        let content = fs::read(&file).unwrap();
        for length in 0..content.len() {
            fs::write(&file, &content[..length]).unwrap();
            assert_eq!(kept(&file, "key"), None, "{length} bytes");
        }
    }

    // Check the compiler on this machine
    #[test]
    fn the_compiler_takes_options_and_names_mistakes() {
        if let Err(reason) = require(Library::Nvrtc) {
            return eprintln!("skipped: {reason}");
        }
        let text =
            "extern \"C\" __global__ void set(REAL *y) { y[threadIdx.x] = (REAL)rsqrt(2.0); }";
        let source = KernelSource { name: "set.cu", text, headers: &[] };
        for capability in [(7, 5), (8, 0), (9, 0), (12, 0), (99, 0)] {
            let (image, _) = compile(&source, &["-DREAL=float".into()], capability).unwrap();
            let is_ptx = image.starts_with(b"//");
            assert_eq!(is_ptx, capability == (99, 0), "{capability:?}");
        }
        let error = compile(&source, &[], (9, 0)).unwrap_err().to_string();
        assert!(error.contains("set.cu(1)") && error.contains("REAL"), "{error}");
    }

    // Include texts once on this machine
    #[test]
    fn headers_are_included_once() {
        if let Err(reason) = require(Library::Nvrtc) {
            return eprintln!("skipped: {reason}");
        }
        const TEXT: &str = "#include \"deep/outer.cuh\"\n#include \"inner.cuh\"\n\
                            extern \"C\" __global__ void set(int *y) { *y = ANSWER + 1; }";
        const INNER: Header =
            Header { name: "inner.cuh", text: "#pragma once\nconstexpr int ANSWER = 41;\n" };
        const OUTER: Header =
            Header { name: "deep/outer.cuh", text: "#pragma once\n#include \"inner.cuh\"\n" };
        let with = |headers| KernelSource { name: "set.cu", text: TEXT, headers };
        compile(&with(&[OUTER, INNER]), &[], (9, 0)).unwrap();
        let error = compile(&with(&[OUTER]), &[], (9, 0)).unwrap_err().to_string();
        assert!(error.contains("inner.cuh"), "{error}");
    }
}
