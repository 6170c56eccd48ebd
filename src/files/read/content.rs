// Tangled from book/src/located-arrays.md: edit there, or here and run cargo tangle stitch.
//! Bytes of files, in memory or on disk, and where the elements of large arrays are.

// Imports of contents of files
use super::elements::{ElementForm, bytes_of, whole, wrong};
use crate::data::{DataSet, Element, TypedArray};
use crate::device::refuse_beyond_memory;
use crate::files::npz::{Kind, Number};
use crate::files::reading::{cut_short, damaged_member};
use crate::files::zarr::unravel;
use ndarray::{ArrayViewD, IxDyn, ShapeBuilder};
use num_complex::{Complex32, Complex64};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zip::CompressionMethod;
use zip::read::ZipFile;

// Bytes of files on disk
// Stretch of a file
/// Consecutive bytes of an open file.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    file: Arc<File>,
    from: u64,
    length: u64,
}

impl Stretch {
    /// All bytes of a file.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), from: 0, length })
    }

    /// So many bytes of the stretch from one of its bytes on; `None` where it has fewer.
    pub(crate) fn part(&self, from: u64, length: u64) -> Option<Self> {
        let fits = from.checked_add(length).is_some_and(|end| end <= self.length);
        fits.then(|| Self { file: Arc::clone(&self.file), from: self.from + from, length })
    }

    /// Fills a buffer with the bytes from this one on.
    fn fill(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.length) {
            return Err(cut_short(&format!("at byte {at}")));
        }
        read_at(&self.file, self.from + at, buffer)
    }
}

// Read at a position of a file
#[cfg(unix)]
fn read_at(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut at: u64, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => (at, buffer) = (at + read as u64, &mut buffer[read..]),
        }
    }
    Ok(())
}

// Bytes for a decoder
// Contents of files
/// The bytes that a decoder reads: those of a file or of a member of it.
pub(crate) enum Content<'c> {
    Memory(&'c [u8]),
    /// On disk; the arrays of variables are located where they are large.
    Disk(Stretch, &'c Locator),
}

/// What an archive is read from.
pub(super) trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

impl<'c> Content<'c> {
    fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(stretch, _) => stretch.length,
        }
    }

    /// So many bytes from this one on.
    pub fn bytes(&self, from: u64, length: usize) -> io::Result<Cow<'c, [u8]>> {
        let missing = || cut_short(&format!("in {length} bytes at {from}"));
        match self {
            Self::Memory(bytes) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX);
                let part = bytes.get(from..).and_then(|rest| rest.get(..length));
                part.map(Cow::Borrowed).ok_or_else(missing)
            }
            Self::Disk(stretch, _) => {
                let part = stretch.part(from, length as u64).ok_or_else(missing)?;
                let what = || format!("{length} bytes of a file");
                refuse_beyond_memory(length as u64, what).map_err(io::Error::other)?;
                let mut bytes = vec![0; length];
                part.fill(0, &mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

// Parts of a content
impl<'c> Content<'c> {
    /// So many bytes from this one on, as a content; `None` where there are fewer.
    pub fn part(&self, from: u64, length: u64) -> Option<Content<'c>> {
        match self {
            Self::Memory(bytes) => {
                let from = usize::try_from(from).ok()?;
                let part = bytes.get(from..)?.get(..usize::try_from(length).ok()?)?;
                Some(Self::Memory(part))
            }
            Self::Disk(stretch, locator) => Some(Self::Disk(stretch.part(from, length)?, locator)),
        }
    }

    /// All bytes from this one on.
    pub fn rest(&self, from: u64) -> io::Result<Cow<'c, [u8]>> {
        let length = self.length().saturating_sub(from);
        self.bytes(from, usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// The first bytes, so many at most.
    pub fn start(&self, most: usize) -> Cow<'c, [u8]> {
        let length = usize::try_from(self.length()).unwrap_or(usize::MAX).min(most);
        self.bytes(0, length).unwrap_or_default()
    }

    pub fn starts_with(&self, start: &[u8]) -> bool {
        self.bytes(0, start.len()).is_ok_and(|bytes| *bytes == *start)
    }

    // Ways into a content
    /// A reader of all bytes.
    pub(super) fn reader(&self) -> Box<dyn ReadSeek + 'c> {
        match self {
            Self::Memory(bytes) => Box::new(Cursor::new(*bytes)),
            Self::Disk(stretch, _) => {
                Box::new(io::BufReader::new(StretchReader { stretch: stretch.clone(), at: 0 }))
            }
        }
    }

    /// The stretch on disk, and who notes large arrays.
    pub fn disk(&self) -> Option<(Stretch, &'c Locator)> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(stretch, locator) => Some((stretch.clone(), locator)),
        }
    }

    /// Record of large arrays, if they are only to be located.
    pub fn locator(&self) -> Option<&'c Locator> {
        self.disk().map(|(_, locator)| locator)
    }

    /// The stretch on disk, and who notes it, where an array of so many bytes is to be located.
    pub fn locate(&self, bytes: usize) -> Option<(Stretch, &'c Locator)> {
        self.disk().filter(|(_, locator)| locator.is_large(bytes))
    }
}

// Read a stretch in order
/// Reads the bytes of a stretch in their order.
struct StretchReader {
    stretch: Stretch,
    at: u64,
}

impl Read for StretchReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.stretch.length.saturating_sub(self.at);
        let length = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.stretch.fill(self.at, &mut buffer[..length])?;
        self.at += length as u64;
        Ok(length)
    }
}

impl Seek for StretchReader {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let place = match to {
            io::SeekFrom::Start(place) => Some(place),
            io::SeekFrom::Current(by) => self.at.checked_add_signed(by),
            io::SeekFrom::End(by) => self.stretch.length.checked_add_signed(by),
        };
        self.at = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

// Members of archives as contents
/// The content of a member of an archive.
pub(super) enum Member<'c> {
    Bytes(Vec<u8>),
    Disk(Stretch, &'c Locator),
}

impl Member<'_> {
    pub fn content(&self) -> Content<'_> {
        match self {
            Self::Bytes(bytes) => Content::Memory(bytes),
            Self::Disk(stretch, locator) => Content::Disk(stretch.clone(), locator),
        }
    }
}

impl<'c> Content<'c> {
    /// A member of the archive with this content: where it is if it is large, else its bytes.
    pub(super) fn member<R: Read>(&self, mut member: ZipFile<'_, R>) -> io::Result<Member<'c>> {
        let size = usize::try_from(member.size()).unwrap_or(usize::MAX);
        let Some((archive, locator)) = self.locate(size) else {
            return whole(member).map(Member::Bytes);
        };
        if member.compression() == CompressionMethod::Stored {
            let stretch = member.data_start().and_then(|at| archive.part(at, member.size()));
            let stretch = stretch.ok_or_else(|| cut_short("in a member"))?;
            return Ok(Member::Disk(stretch, locator));
        }
        let (name, size) = (member.name().map(String::from).unwrap_or_default(), member.size());
        let mut copy = tempfile::tempfile()?;
        // One byte more than there is: at the end, the archive compares the checksum.
        let read = io::copy(&mut member.by_ref().take(size.saturating_add(1)), &mut copy);
        let length = read.map_err(|error| damaged_member(&name, error))?;
        if length > size {
            return Err(wrong(format!("{name} is longer than the archive says")));
        }
        locator.note(format!("{name} is compressed: it was decompressed into a temporary file"));
        Ok(Member::Disk(Stretch { file: Arc::new(copy), from: 0, length }, locator))
    }
}

// Arrays of a content
impl Content<'_> {
    /// The array of a variable, whose elements begin at this byte; `columns_first` where the first index runs fastest. If it is large, it may be
    /// located only.
    pub fn array(
        &self,
        form: ElementForm,
        from: u64,
        (shape, columns_first): (&[usize], bool),
    ) -> io::Result<TypedArray<'static>> {
        let length = bytes_of(shape, form.number.bytes)?;
        let there = self.length().saturating_sub(from).min(length as u64);
        let read = || form.array(&self.bytes(from, there as usize)?, (shape, columns_first));
        let Some((stretch, locator)) = self.locate(length) else { return read() };
        let stretch = stretch.part(from, length as u64).ok_or_else(|| {
            let count: usize = shape.iter().product();
            cut_short(&format!("after {} of {count} numbers", there / form.number.bytes as u64))
        })?;
        if columns_first {
            let needed = 2 * (length as u64);
            refuse_beyond_memory(needed, || format!("an array of shape {shape:?}"))
                .map_err(io::Error::other)?;
            let mut bytes = Vec::with_capacity(length);
            let array = read()?;
            array.write(&mut bytes)?;
            return locator.spill(ElementForm::of_array(&array), shape, &bytes);
        }
        let storage = Storage::Whole(stretch);
        locator.add(Located::new(form, shape, storage))
    }
}

// Notes of located arrays
// Array whose elements are located
/// Where the elements of an array are.
#[derive(Debug)]
pub(crate) struct Located {
    form: ElementForm,
    /// The shape in the file.
    stored: Vec<usize>,
    /// The dimension in the file of each dimension of the variable.
    order: Vec<usize>,
    storage: Storage,
}

impl Located {
    /// An array with the dimensions of the file.
    pub(super) fn new(form: ElementForm, stored: &[usize], storage: Storage) -> Self {
        Self { form, stored: stored.to_vec(), order: (0..stored.len()).collect(), storage }
    }

    /// The shape of the variable.
    fn shape(&self) -> Vec<usize> {
        self.order.iter().map(|k| self.stored[*k]).collect()
    }
}

// Elements in order or in chunks
/// How the elements of an array lie on disk.
#[derive(Debug)]
pub(super) enum Storage {
    /// In the order of their indices, the last the fastest.
    Whole(Stretch),
    /// In chunks of a shape, which are ordered by their indices; the elements of each are in the order of theirs.
    Chunks { chunk: Vec<usize>, chunks: Chunks },
}

/// Where chunks are.
#[derive(Debug)]
pub(super) enum Chunks {
    /// One behind the other.
    Consecutive(Stretch),
    Members(Vec<Stretch>),
    Files(Vec<PathBuf>),
}

// Find a chunk on disk
impl Chunks {
    /// The chunk of this number, which has so many bytes.
    fn stretch(&self, number: usize, length: usize) -> io::Result<Stretch> {
        let found = match self {
            Self::Consecutive(all) => {
                let from = (number as u64).checked_mul(length as u64);
                from.and_then(|from| all.part(from, length as u64))
            }
            Self::Members(all) => all.get(number).cloned(),
            Self::Files(all) => all.get(number).map(|path| Stretch::of_file(path)).transpose()?,
        };
        found.filter(|it| it.length == length as u64).ok_or_else(|| cut_short("in a chunk"))
    }
}

// Note where arrays are
/// Notes where the arrays of more than so many bytes are.
#[derive(Debug)]
pub(crate) struct Locator {
    above: usize,
    arrays: RefCell<Vec<Located>>,
    notes: RefCell<Vec<String>>,
}

impl Locator {
    pub(super) fn new(above: usize) -> Self {
        Self { above, arrays: RefCell::default(), notes: RefCell::default() }
    }

    /// Whether an array of so many bytes is to be located only.
    pub(super) fn is_large(&self, bytes: usize) -> bool {
        bytes > self.above
    }

    /// How many arrays are noted, and forgets those beyond so many.
    pub(super) fn count(&self) -> usize {
        self.arrays.borrow().len()
    }

    pub(super) fn forget_beyond(&self, count: usize) {
        self.arrays.borrow_mut().truncate(count);
    }

    fn note(&self, sentence: String) {
        self.notes.borrow_mut().push(sentence);
    }

    // Note an array and go on
    /// Notes an array; returns one of its type and shape, without memory.
    pub(super) fn add(&self, array: Located) -> io::Result<TypedArray<'static>> {
        let empty = array.form.placeholder(&array.stored)?;
        self.arrays.borrow_mut().push(array);
        Ok(empty)
    }

    /// Notes an array whose bytes, in the order of its indices, are kept in a temporary file.
    pub(super) fn spill(
        &self,
        form: ElementForm,
        shape: &[usize],
        bytes: &[u8],
    ) -> io::Result<TypedArray<'static>> {
        let mut copy = tempfile::tempfile()?;
        copy.write_all(bytes)?;
        self.note(format!("an array of shape {shape:?} was put in order in a temporary file"));
        let stretch = Stretch { file: Arc::new(copy), from: 0, length: bytes.len() as u64 };
        self.add(Located::new(form, shape, Storage::Whole(stretch)))
    }

    // Reorder the dimensions of an array
    /// The array with its dimensions in another order; of a located one the elements stay where they are.
    pub(super) fn permuted(
        locator: Option<&Self>,
        array: TypedArray<'static>,
        order: &[usize],
    ) -> TypedArray<'static> {
        let Some(locator) = locator.filter(|_| is_placeholder(&array)) else {
            return array.permuted(order).into_owned();
        };
        if let Some(last) = locator.arrays.borrow_mut().last_mut() {
            last.order = order.to_vec();
        }
        array.into_permuted(order)
    }
}

// Give arrays back to their variables
/// A data set whose large arrays are located, not read: without memory, all their elements are 0.
#[derive(Debug)]
pub(crate) struct LocatedData {
    pub(crate) data: DataSet<'static>,
    /// The number of a variable, and where its elements are.
    pub(crate) arrays: Vec<(usize, Located)>,
    /// Sentences about arrays that had to be copied.
    pub(crate) notes: Vec<String>,
}

impl Locator {
    /// The data set with its located arrays: they were noted in the order of the variables.
    pub(super) fn finish(self, data: DataSet<'static>) -> io::Result<LocatedData> {
        let variables = data.variables.iter().enumerate();
        let large = variables.filter(|(_, variable)| variable.array().is_some_and(is_placeholder));
        let large: Vec<usize> = large.map(|(k, _)| k).collect();
        let found = self.arrays.into_inner();
        let shapes = large.iter().map(|k| data.variables[*k].shape());
        if !shapes.eq(found.iter().map(Located::shape)) {
            return Err(wrong("its arrays are in another order than its variables"));
        }
        let arrays = large.into_iter().zip(found).collect();
        Ok(LocatedData { data, arrays, notes: self.notes.into_inner() })
    }
}

// Arrays without memory
/// Whether all of several elements of an array are one in memory.
fn is_placeholder(array: &TypedArray) -> bool {
    let several = array.shape().iter().product::<usize>() > 1;
    let same = |strides: &[isize]| several && strides.iter().all(|step| *step == 0);
    match array {
        TypedArray::F64(x) => same(x.strides()),
        TypedArray::F32(x) => same(x.strides()),
        TypedArray::C64(x) => same(x.strides()),
        TypedArray::C32(x) => same(x.strides()),
        TypedArray::I64(x) => same(x.strides()),
        TypedArray::Bool(x) => same(x.strides()),
    }
}

/// An array of this shape, all of whose elements are one in memory.
fn repeated<T: Element>(shape: &[usize], one: &'static [T; 1]) -> io::Result<TypedArray<'static>> {
    let steps = IxDyn(&vec![0; shape.len()]);
    let view = ArrayViewD::from_shape(IxDyn(shape).strides(steps), one);
    view.map(|view| T::typed(view.into())).map_err(|error| wrong(error.to_string()))
}

// Form and placeholder of an array
impl ElementForm {
    /// The form in which an array is written.
    fn of_array(array: &TypedArray) -> Self {
        let is_complex = array.is_complex();
        let kind = match array {
            TypedArray::I64(_) => Kind::Signed,
            TypedArray::Bool(_) => Kind::Bool,
            _ => Kind::Float,
        };
        let number = Number { kind, bytes: array.bytes(), big_endian: false };
        Self { number, is_complex }
    }

    /// An array of this shape, all 0, without memory.
    fn placeholder(self, shape: &[usize]) -> io::Result<TypedArray<'static>> {
        match (self.number.kind, self.number.bytes, self.is_complex) {
            (Kind::Float, 16, true) => repeated(shape, &[Complex64::ZERO]),
            (Kind::Float, 8, true) => repeated(shape, &[Complex32::ZERO]),
            (Kind::Float, 8, false) => repeated(shape, &[0.0_f64]),
            (Kind::Float, ..) => repeated(shape, &[0.0_f32]),
            (Kind::Bool, ..) => repeated(shape, &[false]),
            (Kind::Signed | Kind::Unsigned, ..) => repeated(shape, &[0_i64]),
        }
    }
}

// Pieces of located arrays
// Read a range of a located array
/// Bytes of several runs that are read at once, at most, and bytes between two of them that are read although they are not needed.
const SPAN: usize = 1 << 23;
const GAP: usize = 1 << 14;

// Number and kind of located elements
impl Located {
    /// Number of elements.
    pub(crate) fn count(&self) -> usize {
        self.stored.iter().product()
    }

    /// Whether its numbers are integers that 32 bits hold, whichever they are.
    pub(crate) fn fits_i32(&self) -> bool {
        let Number { kind, bytes, .. } = self.form.number;
        (kind == Kind::Signed && bytes <= 4) || (kind == Kind::Unsigned && bytes <= 2)
    }

    /// Whether its bytes are those of its numbers in memory, least significant first.
    pub(crate) fn is_plain(&self) -> bool {
        self.form.number.kind == Kind::Float && !self.form.number.big_endian
    }

    /// The elements of this range, in the order of the indices of the variable.
    pub(crate) fn range(&self, range: Range<usize>) -> io::Result<TypedArray<'static>> {
        let length = range.len();
        self.form.array(&self.bytes(range)?, (&[length], false))
    }

    // Bytes of a range of elements
    /// The bytes of the elements of this range, as the file has them.
    pub(crate) fn bytes(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        let (each, count) = (self.form.number.bytes, self.count());
        if range.start > range.end || range.end > count {
            return Err(wrong(format!("elements {range:?} are not among {count}")));
        }
        let mut bytes = vec![0; range.len() * each];
        match &self.storage {
            Storage::Whole(stretch) if self.order.is_sorted() => {
                stretch.fill((range.start * each) as u64, &mut bytes)?;
            }
            Storage::Whole(stretch) => {
                gather(stretch, &self.runs(&self.stored, &range), &mut bytes)?;
            }
            Storage::Chunks { chunk, chunks } => {
                let length = bytes_of(chunk, each)?;
                let runs = self.runs(chunk, &range);
                for group in runs.chunk_by(|one, other| one.chunk == other.chunk) {
                    let stretch = chunks.stretch(group[0].chunk, length)?;
                    gather(&stretch, group, &mut bytes)?;
                }
            }
        }
        Ok(bytes)
    }
}

// Run of consecutive elements
/// Elements that are consecutive both in a chunk and in the range that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    chunk: usize,
    /// The first byte in the chunk, and in what is read.
    from: usize,
    to: usize,
    length: usize,
}

// Divide a range into runs
impl Located {
    /// The runs of a range, chunk by chunk.
    fn runs(&self, chunk: &[usize], range: &Range<usize>) -> Vec<Run> {
        let (each, shape, last) = (self.form.number.bytes, self.shape(), self.order.len() - 1);
        let counts: Vec<_> =
            self.stored.iter().zip(chunk).map(|(all, one)| all.div_ceil(*one)).collect();
        let inner = self.order[last]; // the dimension of the file along which elements are read
        let is_last = inner == last;
        let (mut runs, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let own = unravel(at, &shape);
            let mut index = vec![0; own.len()];
            own.iter().zip(&self.order).for_each(|(k, stored)| index[*stored] = *k);
            let row = (shape[last] - own[last]).min(range.end - at);
            let in_chunk = chunk[inner] - index[inner] % chunk[inner];
            let length = in_chunk.min(row);
            let sides = index.iter().zip(chunk);
            let number = sides.clone().zip(&counts).fold(0, |n, ((k, one), all)| n * all + k / one);
            let from = each * sides.fold(0, |n, (k, one)| n * one + k % one);
            let to = each * (at - range.start);
            if is_last {
                runs.push(Run { chunk: number, from, to, length: each * length });
            } else {
                let step = each * chunk[inner + 1..].iter().product::<usize>();
                let elements = (0..length).map(|k| (from + k * step, to + k * each));
                runs.extend(elements.map(|(from, to)| Run {
                    chunk: number,
                    from,
                    to,
                    length: each,
                }));
            }
            at += length;
        }
        runs.sort_unstable();
        runs
    }
}

// Read the runs of a chunk
/// Reads the runs of one chunk; those that are near each other in one piece.
fn gather(stretch: &Stretch, runs: &[Run], bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = runs;
    while let Some(first) = rest.first() {
        let mut end = first.from + first.length;
        let is_near = |run: &&Run| {
            let near = run.from <= end + GAP && run.from + run.length - first.from <= SPAN;
            end = end.max(run.from + run.length);
            near
        };
        let count = 1 + rest[1..].iter().take_while(is_near).count();
        let near;
        (near, rest) = rest.split_at(count);
        let last = near.iter().map(|run| run.from + run.length).max().unwrap_or(first.from);
        let mut span = vec![0; last - first.from];
        stretch.fill(first.from as u64, &mut span)?;
        for run in near {
            let from = run.from - first.from;
            bytes[run.to..run.to + run.length].copy_from_slice(&span[from..from + run.length]);
        }
    }
    Ok(())
}

// Tests of located arrays
#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(bytes: &[u8]) -> Stretch {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before").unwrap();
        file.write_all(bytes).unwrap();
        let all = Stretch { file: Arc::new(file), from: 0, length: 6 + bytes.len() as u64 };
        all.part(6, bytes.len() as u64).unwrap()
    }

    // Elements by their indices
    /// The number of an element: its indices as digits.
    fn value(index: &[usize]) -> i64 {
        index.iter().fold(1, |value, k| 20 * value + *k as i64)
    }

    /// An array whose elements are in chunks, also beyond its edges, in 16 bits with the most significant byte first.
    fn chunked(stored: &[usize], chunk: &[usize], order: &[usize]) -> Located {
        let counts: Vec<_> = stored.iter().zip(chunk).map(|(n, one)| n.div_ceil(*one)).collect();
        let (chunks, inside): (usize, usize) = (counts.iter().product(), chunk.iter().product());
        let mut bytes = Vec::new();
        for (number, k) in (0..chunks).flat_map(|n| (0..inside).map(move |k| (n, k))) {
            let (grid, within) = (unravel(number, &counts), unravel(k, chunk));
            let index: Vec<_> = (0..chunk.len()).map(|d| grid[d] * chunk[d] + within[d]).collect();
            bytes.extend((value(&index) as i32).to_be_bytes());
        }
        let number = Number { kind: Kind::Signed, bytes: 4, big_endian: true };
        let form = ElementForm { number, is_complex: false };
        let chunks = Chunks::Consecutive(temporary(&bytes));
        let storage = Storage::Chunks { chunk: chunk.to_vec(), chunks };
        Located { order: order.to_vec(), ..Located::new(form, stored, storage) }
    }

    #[test]
    fn ranges_of_chunks_have_the_elements_of_their_indices() {
        let orders: [&[usize]; 5] =
            [&[0, 1, 2, 3], &[1, 0, 3, 2], &[3, 2, 1, 0], &[2, 0, 1, 3], &[0, 3, 1, 2]];
        let chunks: [&[usize]; 4] = [&[1, 1, 4, 5], &[2, 3, 3, 2], &[3, 2, 4, 5], &[2, 2, 1, 4]];
        for (order, chunk) in orders.iter().flat_map(|order| chunks.map(|chunk| (order, chunk))) {
            let located = chunked(&[3, 2, 4, 5], chunk, order);
            let shape = located.shape();
            let expected = |at: usize| {
                let own = unravel(at, &shape);
                let mut index = vec![0; 4];
                own.iter().zip(*order).for_each(|(k, stored)| index[*stored] = *k);
                value(&index)
            };
            for range in [0..120, 0..0, 119..120, 7..31, 38..39, 60..101] {
                let read = located.range(range.clone()).unwrap();
                let read: Vec<i64> = i64::copy(&read).unwrap().into_iter().collect();
                let expected: Vec<_> = range.clone().map(expected).collect();
                assert_eq!(read, expected, "{order:?} {chunk:?} {range:?}");
            }
            #[allow(clippy::reversed_empty_ranges)]
            for range in [0..121, 5..4, usize::MAX..usize::MAX] {
                assert!(located.range(range).is_err());
            }
        }
    }

    // Runs that are far apart
    #[test]
    fn runs_that_are_far_apart_are_read_one_by_one() {
        let bytes: Vec<u8> = (0..3 * GAP).map(|k| (k % 251) as u8).collect();
        let stretch = temporary(&bytes);
        let run = |from: usize, to: usize, length| Run { chunk: 0, from, to, length };
        let runs = [run(3, 2, 2), run(4, 6, 3), run(GAP - 5, 4, 1), run(3 * GAP - 2, 0, 2)];
        let mut read = vec![0; 9];
        gather(&stretch, &runs, &mut read).unwrap();
        let at = |k: usize| bytes[k];
        let expected = [at(3 * GAP - 2), at(3 * GAP - 1), 3, 4, at(GAP - 5), 0, 4, 5, 6];
        assert_eq!(read, expected);
        assert!(gather(&stretch, &[run(3 * GAP - 2, 0, 3)], &mut read).is_err());
    }

    // Placeholders without memory
    #[test]
    fn a_placeholder_takes_no_memory() {
        let form = ElementForm::of_numpy("<c16").unwrap();
        let huge = form.placeholder(&[1 << 20, 1 << 20, 3]).unwrap();
        assert_eq!((huge.shape(), huge.element()), (&[1 << 20, 1 << 20, 3][..], "Complex64"));
        assert!(is_placeholder(&huge) && is_placeholder(&huge.into_permuted(&[2, 0, 1])));
        let real = TypedArray::F64(ndarray::ArrayD::zeros(IxDyn(&[1, 3])).into());
        assert!(!is_placeholder(&real));
        assert!(!is_placeholder(&TypedArray::F64(ndarray::ArrayD::zeros(IxDyn(&[0, 3])).into())));
    }
}
