// Tangled from book/src/view-encoding.md: edit there, or here and run cargo tangle stitch.
//! Parts of arrays as text: little-endian, shuffled, compressed by zlib and encoded in base64.

// Imports of the encoder of parts
use crate::data::TypedArray;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytemuck::{Pod, cast_slice};
use flate2::{Compression, write::ZlibEncoder};
use ndarray::{CowArray, IxDyn};
use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

// Encodings of elements
/// How the elements of an array are stored in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    F64,
    F32,
    I32,
    U8,
    /// Codes of 16 bits, from which numbers follow by the [law](Law) of their part.
    U16,
}

impl Encoding {
    // Name and size of an encoding
    /// Its name in the manifest.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U8 => "u8",
            Self::U16 => "u16",
        }
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::U16 => 2,
            Self::U8 => 1,
        }
    }
}

// Elements of an array as real numbers
/// Elements of an array in C order as real numbers, two for each complex number.
pub(crate) enum Elements<'a> {
    F64(Cow<'a, [f64]>),
    F32(Cow<'a, [f32]>),
    I64(Cow<'a, [i64]>),
    Bool(Cow<'a, [bool]>),
}

impl<'a> Elements<'a> {
    pub(crate) fn of(array: &'a TypedArray) -> Self {
        match array {
            TypedArray::F64(array) => Self::F64(in_c_order(array)),
            TypedArray::F32(array) => Self::F32(in_c_order(array)),
            TypedArray::C64(array) => Self::F64(pairs(in_c_order(array))),
            TypedArray::C32(array) => Self::F32(pairs(in_c_order(array))),
            TypedArray::I64(array) => Self::I64(in_c_order(array)),
            TypedArray::Bool(array) => Self::Bool(in_c_order(array)),
        }
    }

    // Numbers of a range of elements
    /// Number of real numbers.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F64(all) => all.len(),
            Self::F32(all) => all.len(),
            Self::I64(all) => all.len(),
            Self::Bool(all) => all.len(),
        }
    }

    /// Numbers of a range in double precision; Boolean values become 0 and 1.
    pub(crate) fn numbers(&self, range: Range<usize>) -> Vec<f64> {
        match self {
            Self::F64(all) => all[range].to_vec(),
            Self::F32(all) => all[range].iter().copied().map(f64::from).collect(),
            Self::I64(all) => all[range].iter().map(|n| *n as f64).collect(),
            Self::Bool(all) => all[range].iter().map(|lit| f64::from(u8::from(*lit))).collect(),
        }
    }

    /// The encoding without loss: for integers, 32 bits if all of them fit, else double precision (exact up to 2⁵³).
    pub(crate) fn exact_encoding(&self) -> Encoding {
        match self {
            Self::F64(_) => Encoding::F64,
            Self::F32(_) => Encoding::F32,
            Self::Bool(_) => Encoding::U8,
            Self::I64(all) => match all.iter().all(|n| i32::try_from(*n).is_ok()) {
                true => Encoding::I32,
                false => Encoding::F64,
            },
        }
    }
}

// Elements in C order
fn in_c_order<'a, T: Clone>(array: &'a CowArray<T, IxDyn>) -> Cow<'a, [T]> {
    match array.as_slice() {
        Some(slice) => Cow::Borrowed(slice),
        None => Cow::Owned(array.iter().cloned().collect()),
    }
}

/// Complex numbers as pairs of real ones.
fn pairs<C: Pod, T: Pod>(complex: Cow<[C]>) -> Cow<[T]> {
    match complex {
        Cow::Borrowed(all) => Cow::Borrowed(cast_slice(all)),
        Cow::Owned(all) => Cow::Owned(cast_slice(&all).to_vec()),
    }
}

// Ranges of the parts of an array
/// Ranges of elements of the parts of an array of this shape, with `each` bytes per element.
pub(crate) fn part_ranges(shape: &[usize], each: usize) -> Vec<Range<usize>> {
    let (size, last) = (shape.iter().product::<usize>(), shape.len().saturating_sub(2));
    let plane = shape[last..].iter().product::<usize>();
    if size == 0 {
        return Vec::new();
    }
    let length = match plane * each {
        bytes if bytes > LARGEST_PART => plane.div_ceil(bytes.div_ceil(LARGEST_PART)),
        bytes if bytes >= LARGE_PLANE => plane,
        bytes => plane * (SHARED_PART / bytes).max(1),
    };
    let whole = plane.max(length); // parts divide planes, or planes make up parts
    let starts = (0..size)
        .step_by(whole)
        .flat_map(|start| (start..start + whole).step_by(length).map(move |k| (k, start + whole)));
    starts.filter(|(k, _)| *k < size).map(|(k, end)| k..(k + length).min(end).min(size)).collect()
}

// Sizes of parts
/// Bytes of the smallest plane that is a part of its own.
const LARGE_PLANE: usize = 64 << 10;
/// Approximate bytes of a part of several planes.
const SHARED_PART: usize = 256 << 10;
/// Bytes above which a plane is divided.
const LARGEST_PART: usize = 4 << 20;

// Bytes of elements in an encoding
/// Bytes of numbers in an encoding; codes get the scale of these numbers.
pub(crate) fn encoded(numbers: &[f64], encoding: Encoding) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * encoding.bytes());
    match encoding {
        Encoding::F64 => numbers.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
        Encoding::F32 => numbers.iter().for_each(|x| bytes.extend((*x as f32).to_le_bytes())),
        Encoding::I32 => numbers.iter().for_each(|x| bytes.extend((*x as i32).to_le_bytes())),
        Encoding::U8 => numbers.iter().for_each(|x| bytes.push(*x as u8)),
        Encoding::U16 => bytes.extend(Codes::of(numbers).encoded(numbers)),
    }
    bytes
}

// Compress the bytes of a part
/// Text of a part: the bytes of its elements (`each` bytes per element), shuffled, compressed and encoded in base64.
///
/// # Errors
/// Errors of the compressor, which writes to memory.
pub(crate) fn packed(bytes: &[u8], each: usize) -> io::Result<String> {
    let count = bytes.len() / each;
    let mut shuffled = vec![0; bytes.len()];
    for (k, plane) in shuffled.chunks_exact_mut(count.max(1)).enumerate() {
        let of_elements = bytes[k..].iter().step_by(each);
        plane.iter_mut().zip(of_elements).for_each(|(to, from)| *to = *from);
    }
    let mut zlib = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::new(LEVEL));
    zlib.write_all(&shuffled)?;
    Ok(STANDARD.encode(zlib.finish()?))
}

/// Level of compression: at higher levels a page takes longer to write and is hardly smaller.
const LEVEL: u32 = 5;

// Codes of sixteen bits
/// Scale of the codes of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Codes {
    pub(crate) law: Law,
    pub(crate) offset: f64,
    pub(crate) step: f64,
}

/// How numbers follow from codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Law {
    /// offset + step · code.
    Linear,
    /// exp(offset + step · code).
    Log,
}

impl Codes {
    // Scale of the codes of numbers
    /// The scale for these numbers, none of which is infinite.
    pub(crate) fn of(numbers: &[f64]) -> Self {
        let (mut least, mut most, mut faintest, mut whole) =
            (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, true);
        for &x in numbers.iter().filter(|x| !x.is_nan()) {
            (least, most) = (least.min(x), most.max(x));
            faintest = if x > 0.0 { faintest.min(x) } else { faintest };
            whole &= x.fract() == 0.0;
        }
        let range = most - least;
        match (whole && range <= LAST_CODE, least >= 0.0 && most > CONTRAST * faintest) {
            _ if least > most => Self { law: Law::Linear, offset: 0.0, step: 0.0 }, // nothing but NaN
            (true, _) => Self { law: Law::Linear, offset: least, step: 1.0 },
            (false, true) => {
                let (offset, end) = (faintest.ln(), most.ln());
                Self { law: Law::Log, offset, step: (end - offset) / (LAST_CODE - 1.0) }
            }
            (false, false) => Self { law: Law::Linear, offset: least, step: range / LAST_CODE },
        }
    }

    // Code of a number and back
    /// Code of a number.
    pub(crate) fn code(&self, x: f64) -> u16 {
        let measured = match self.law {
            _ if x.is_nan() => return NAN_CODE,
            Law::Log if x == 0.0 => return ZERO_CODE,
            Law::Log => x.ln(),
            Law::Linear => x,
        };
        let code =
            if self.step > 0.0 { ((measured - self.offset) / self.step).round() } else { 0.0 };
        code as u16 // saturates
    }

    /// Bytes of the codes of numbers.
    pub(crate) fn encoded(&self, numbers: &[f64]) -> Vec<u8> {
        numbers.iter().flat_map(|x| self.code(*x).to_le_bytes()).collect()
    }

    /// Number that the viewer shows for a code, in single precision.
    pub(crate) fn number(&self, code: u16) -> f32 {
        let linear = self.offset + self.step * f64::from(code);
        match self.law {
            _ if code == NAN_CODE => f32::NAN,
            Law::Log if code == ZERO_CODE => 0.0,
            Law::Log => linear.exp() as f32,
            Law::Linear => linear as f32,
        }
    }
}

// Numbers to codes and back
/// The largest code of a number on a linear scale.
const LAST_CODE: f64 = 65534.0;
/// Ratio of the largest to the smallest positive number above which the scale is logarithmic.
const CONTRAST: f64 = 1000.0;
const NAN_CODE: u16 = u16::MAX;
const ZERO_CODE: u16 = u16::MAX - 1;

// Independent decoder of parts
#[cfg(test)]
pub(crate) mod decoder {
    use super::*;
    use flate2::read::ZlibDecoder;
    use std::io::Read;

    /// Bytes that a base64 text encodes.
    fn letters(text: &str) -> Vec<u8> {
        let value = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{} is not in the alphabet of base64", char::from(c)),
        };
        let bits = text.trim_end_matches('=').bytes().map(|c| u32::from(value(c)));
        let (mut bytes, mut buffer, mut count) = (Vec::new(), 0u32, 0);
        for six in bits {
            (buffer, count) = (buffer << 6 | six, count + 6);
            if count >= 8 {
                count -= 8;
                bytes.push((buffer >> count) as u8);
                buffer &= (1 << count) - 1;
            }
        }
        bytes
    }

    /// Bytes of the elements of a part, with `each` bytes per element.
    pub(crate) fn unpacked(text: &str, each: usize) -> Vec<u8> {
        let mut shuffled = Vec::new();
        ZlibDecoder::new(&letters(text)[..]).read_to_end(&mut shuffled).unwrap();
        let count = shuffled.len() / each;
        (0..shuffled.len()).map(|k| shuffled[k % each * count + k / each]).collect()
    }

    /// Numbers of a part.
    pub(crate) fn decoded(text: &str, encoding: Encoding, codes: Option<Codes>) -> Vec<f64> {
        let bytes = unpacked(text, encoding.bytes());
        let all = bytes.chunks_exact(encoding.bytes());
        let number = |bytes: &[u8]| match (encoding, codes, bytes) {
            (Encoding::F64, _, bytes) => f64::from_le_bytes(bytes.try_into().unwrap()),
            (Encoding::F32, _, bytes) => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
            (Encoding::I32, _, bytes) => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
            (Encoding::U16, Some(Codes { law, offset, step }), &[low, high]) => {
                let code = 256 * u32::from(high) + u32::from(low);
                match (code, law) {
                    (65535, _) => f64::NAN,
                    (65534, Law::Log) => 0.0,
                    (_, Law::Log) => (offset + step * f64::from(code)).exp(),
                    (_, Law::Linear) => offset + step * f64::from(code),
                }
            }
            (_, _, bytes) => bytes[0].into(),
        };
        all.map(number).collect()
    }
}

// Tests of the encoder of parts
#[cfg(test)]
mod tests {
    use super::decoder::{decoded, unpacked};
    use super::*;
    use ndarray::{Array2, array};
    use num_complex::Complex32;

    #[test]
    fn bytes_of_any_length_come_back() {
        for (count, each) in [(0, 8), (1, 8), (1, 1), (7, 4), (1000, 2), (333, 8), (5, 1)] {
            let bytes: Vec<u8> = (0..count * each).map(|k| (k * k / 3 + 7 * k) as u8).collect();
            assert_eq!(unpacked(&packed(&bytes, each).unwrap(), each), bytes, "{count} × {each}");
        }
    }

    #[test]
    fn numbers_come_back_in_each_encoding() {
        let numbers = [0.0, -1.5, 3e38, 1e-40, f64::INFINITY, f64::MIN_POSITIVE, 1.0 / 3.0];
        let back = |numbers: &[f64], encoding: Encoding| {
            decoded(&packed(&encoded(numbers, encoding), encoding.bytes()).unwrap(), encoding, None)
        };
        assert_eq!(back(&numbers, Encoding::F64), numbers);
        assert_eq!(back(&numbers, Encoding::F32), numbers.map(|x| f64::from(x as f32)));
        let whole = [i32::MIN, -3, 0, i32::MAX].map(f64::from);
        assert_eq!(back(&whole, Encoding::I32), whole);
        assert_eq!(back(&[1.0, 0.0], Encoding::U8), [1.0, 0.0]);
        assert!(back(&[f64::NAN], Encoding::F64)[0].is_nan());
    }

    // Elements of arrays in any order
    #[test]
    fn elements_are_in_c_order() {
        let matrix = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let transposed = TypedArray::F64(matrix.t().into_dyn().into());
        assert_eq!(Elements::of(&transposed).numbers(0..6), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let waves =
            Array2::from_shape_fn((2, 2), |(i, j)| Complex32::new(i as f32, 10.0 * j as f32));
        let (plain, turned) = (
            TypedArray::C32(waves.view().into_dyn().into()),
            TypedArray::C32(waves.t().into_dyn().into()),
        );
        assert_eq!(Elements::of(&plain).numbers(2..6), [0.0, 10.0, 1.0, 0.0]);
        assert_eq!(Elements::of(&turned).numbers(2..6), [1.0, 0.0, 0.0, 10.0]);
        let encoding = |numbers: Vec<i64>| {
            Elements::of(&TypedArray::I64(ndarray::Array1::from(numbers).into_dyn().into()))
                .exact_encoding()
        };
        assert_eq!(
            [encoding(vec![7, -1]), encoding(vec![1 << 31])],
            [Encoding::I32, Encoding::F64]
        );
    }

    #[test]
    fn parts_cover_an_array_once_and_keep_to_planes() {
        let lengths = |shape: &[usize], each| {
            let ranges = part_ranges(shape, each);
            let ends: Vec<_> = ranges.iter().map(|range| range.end).collect();
            let starts = std::iter::once(0).chain(ends.iter().copied());
            assert!(
                ranges.iter().zip(starts).all(|(range, start)| range.start == start),
                "{shape:?}"
            );
            assert_eq!(
                ends.last().copied().unwrap_or(0),
                shape.iter().product::<usize>(),
                "{shape:?}"
            );
            ranges.iter().map(Range::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[], 8), [1]);
        assert_eq!(lengths(&[5], 4), [5]);
        assert_eq!(lengths(&[3, 0], 4), [0; 0]);
        assert_eq!(lengths(&[3, 128, 128], 4), [128 * 128; 3]); // 64 KiB
        assert_eq!(lengths(&[10, 100, 100], 4), [60_000, 40_000]); // six planes of 40 kB
        let divided = lengths(&[2, 3000, 3001], 4);
        assert_eq!(divided.len(), 18);
        assert!(divided.iter().all(|length| 4 * length <= 4 << 20));
        assert_eq!(divided[..9].iter().sum::<usize>(), 3000 * 3001);
    }

    // Errors of codes
    #[test]
    fn codes_have_the_error_of_half_a_step() {
        let numbers: Vec<f64> = (0..10_000).map(|k| (0.7 * f64::from(k)).sin() - 0.25).collect();
        let scale = Codes::of(&numbers);
        assert_eq!(scale.law, Law::Linear);
        assert!((scale.step / (2.0 / 65534.0) - 1.0).abs() < 1e-3, "{scale:?}");
        let far = |x: &f64| (f64::from(scale.number(scale.code(*x))) - x).abs();
        let most = numbers.iter().map(far).fold(0.0, f64::max);
        assert!(most < 0.502 * scale.step && most > 0.4 * scale.step, "{most}");
        // Codes on a logarithmic scale
        let numbers: Vec<f64> = (0..10_000)
            .map(|k| (-20.0 * f64::from(k) / 1e4).exp())
            .chain([0.0, f64::NAN])
            .collect();
        let scale = Codes::of(&numbers);
        assert_eq!(scale.law, Law::Log);
        let shown: Vec<_> =
            numbers.iter().map(|x| f64::from(scale.number(scale.code(*x)))).collect();
        assert_eq!((shown[10_000], shown[10_001].is_nan()), (0.0, true));
        let relative = numbers.iter().zip(&shown).take(10_000).map(|(x, y)| (y / x - 1.0).abs());
        let most = relative.fold(0.0, f64::max);
        assert!(most < 0.502 * scale.step && most > 0.4 * scale.step, "{most}");
    }

    #[test]
    fn whole_numbers_and_constants_are_exact() {
        for numbers in [
            vec![-3.0, 60_000.0, 17.0, f64::NAN],
            vec![0.1; 5],
            vec![0.0],
            vec![f64::NAN; 2],
            vec![],
        ] {
            let scale = Codes::of(&numbers);
            for x in &numbers {
                let shown = scale.number(scale.code(*x));
                assert!(
                    shown == *x as f32 || shown.is_nan() && x.is_nan(),
                    "{x} of {numbers:?} is {shown}"
                );
            }
        }
        assert_eq!(Codes::of(&[0.0, 70_000.0, 2.5]).law, Law::Log);
    }
}
