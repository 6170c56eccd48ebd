// Tangled from book/src/hdf5.md: edit there, or here and run cargo tangle stitch.
//! The format HDF5, as far as a file needs it that is written once and whole.

// Imports of files in HDF5
use crate::data::{AttributeValue, TypedArray};
use std::io::{self, Seek, SeekFrom, Write};

// A file in HDF5 in the making
/// A file in HDF5 that is being written, leaves first.
pub(super) struct Hdf5<W> {
    file: W,
    /// Bytes written so far.
    length: u64,
    heaps: Vec<Heap>,
}

/// Where an object lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Address(u64);

/// Bytes of the superblock.
const SUPERBLOCK: usize = 48;

/// The address that stands for none.
const NOWHERE: u64 = u64::MAX;

// Begin and finish a file in HDF5
impl<W: Write + Seek> Hdf5<W> {
    pub fn begin(file: W) -> io::Result<Self> {
        let mut begun = Self { file, length: 0, heaps: Vec::new() };
        begun.put(&[0; SUPERBLOCK])?;
        Ok(begun)
    }

    /// Writes the heaps and the superblock.
    pub fn finish(mut self, root: Address) -> io::Result<()> {
        for heap in std::mem::take(&mut self.heaps) {
            self.file.seek(SeekFrom::Start(heap.address))?;
            self.file.write_all(&heap.finish())?;
        }
        let mut block = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
        for address in [0, NOWHERE, self.length, root.0] {
            block.extend(address.to_le_bytes());
        }
        block.extend(checksum(&block).to_le_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&block)?;
        self.file.flush()
    }

    // Put bytes at the end of HDF5
    /// Appends bytes and fills up to a multiple of eight; returns where they begin.
    fn put(&mut self, bytes: &[u8]) -> io::Result<Address> {
        let address = Address(self.length);
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        self.fill_up()?;
        Ok(address)
    }

    fn fill_up(&mut self) -> io::Result<()> {
        let missing = self.length.next_multiple_of(8) - self.length;
        self.file.write_all(&[0; 8][..missing as usize])?;
        self.length += missing;
        Ok(())
    }
}

// Describe an object by messages
/// What is said about an object.
#[derive(Default)]
struct ObjectHeader(Vec<u8>);

impl ObjectHeader {
    /// Adds a message of this kind.
    fn message(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let long = |_| io::Error::other("a message of HDF5 is longer than 65535 bytes");
        let length = u16::try_from(body.len()).map_err(long)?;
        self.0.push(kind);
        self.0.extend(length.to_le_bytes());
        self.0.push(0);
        self.0.extend(body);
        Ok(())
    }

    // Finish an object with its checksum
    /// The header as it stands in the file.
    fn finish(self) -> io::Result<Vec<u8>> {
        let long = |_| io::Error::other("a group of HDF5 has too many entries");
        let length = u32::try_from(self.0.len()).map_err(long)?;
        let mut bytes = b"OHDR\x02\x02".to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(self.0);
        bytes.extend(checksum(&bytes).to_le_bytes());
        Ok(bytes)
    }
}

// Say where the numbers of an array lie
/// The message of kind 1: a shape.
fn dataspace(shape: &[usize]) -> Vec<u8> {
    let rank = shape.len() as u8; // ndarray has far fewer than 256 axes
    let mut body = vec![2, rank, 0, u8::from(rank > 0)];
    shape.iter().for_each(|&count| body.extend((count as u64).to_le_bytes()));
    body
}

/// The message of kind 8: `bytes` in one piece.
fn layout(address: Address, bytes: u64) -> Vec<u8> {
    let mut body = vec![3, 1];
    body.extend(address.0.to_le_bytes());
    body.extend(bytes.to_le_bytes());
    body
}

// Layout of numbers in chunks
/// The message of kind 8: numbers in chunks of a shape, each of which follows the one before it.
fn layout_in_chunks(address: Address, chunk: &[usize], bytes: usize) -> Vec<u8> {
    let largest = chunk.iter().copied().fold(bytes, usize::max);
    let width = (usize::BITS - largest.leading_zeros()).div_ceil(8) as usize; // bytes of each side, no more than needed
    let mut body = vec![4, 2, 0, chunk.len() as u8 + 1, width as u8];
    let sides = chunk.iter().chain([&bytes]);
    sides.for_each(|&side| body.extend(&(side as u64).to_le_bytes()[..width]));
    body.push(2); // no index: the chunks are in order
    body.extend(address.0.to_le_bytes());
    body
}

/// The message of kind 5: room is made late, or early for chunks in order, and nothing is filled in.
const UNFILLED: [u8; 2] = [3, 0x0a];
const UNFILLED_CHUNKS: [u8; 2] = [3, 0x09];

// Numbers and texts of an array
// Types of numbers and texts in HDF5
// Kinds of values in HDF5
/// What the values of an array or an attribute are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Type {
    Integer,
    Float { bytes: usize },
    Complex { part: usize },
    Text,
    Flag,
}

impl Type {
    // Type of an array in HDF5
    /// The type of the elements of an array.
    fn of(array: &TypedArray) -> Self {
        let bytes = array.part_bytes();
        match array {
            TypedArray::I64(_) => Self::Integer,
            TypedArray::Bool(_) => Self::Flag,
            _ if array.is_complex() => Self::Complex { part: bytes },
            _ => Self::Float { bytes },
        }
    }

    /// The message of kind 3.
    fn describe(self) -> Vec<u8> {
        let start = |class: u8, details: [u8; 3], size: usize| {
            let mut body = vec![class];
            body.extend(details);
            body.extend((size as u32).to_le_bytes());
            body
        };
        match self {
            Self::Integer => [start(0x10, [8, 0, 0], 8), vec![0, 0, 64, 0]].concat(),
            // Types of floating-point numbers in HDF5
            Self::Float { bytes: 4 } => {
                let fields = [0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];
                [start(0x11, [0x20, 31, 0], 4), fields.to_vec()].concat()
            }
            Self::Float { .. } => {
                let fields = [0, 0, 64, 0, 52, 11, 0, 52, 0xff, 3, 0, 0];
                [start(0x11, [0x20, 63, 0], 8), fields.to_vec()].concat()
            }
            // Types of complex numbers and texts in HDF5
            Self::Complex { part } => {
                let mut body = start(0x36, [2, 0, 0], 2 * part);
                for (name, offset) in [(b'r', 0), (b'i', part as u8)] {
                    body.extend([name, 0, offset]);
                    body.extend(Self::Float { bytes: part }.describe());
                }
                body
            }
            Self::Text => {
                let byte = [start(0x10, [0; 3], 1), vec![0, 0, 8, 0]].concat();
                [start(0x19, [1, 1, 0], 16), byte].concat()
            }
            Self::Flag => {
                let byte = [start(0x10, [8, 0, 0], 1), vec![0, 0, 8, 0]].concat();
                [start(0x38, [2, 0, 0], 1), byte, b"FALSE\0TRUE\0\0\x01".to_vec()].concat()
            }
        }
    }
}

// Texts in a heap
// Block of texts in HDF5
/// A block of texts.
struct Heap {
    address: u64,
    bytes: usize,
    texts: Vec<u8>,
    count: u32,
}

/// Bytes before the texts of a heap, and before each text.
const HEAD: usize = 16;

impl Heap {
    /// Bytes of a text in the heap.
    fn stored_bytes(text: &str) -> usize {
        HEAD + text.len().next_multiple_of(8)
    }

    /// Whether another text fits; the free space at the end needs a head of its own.
    fn takes(&self, text: &str) -> bool {
        2 * HEAD + self.texts.len() + Self::stored_bytes(text) <= self.bytes && self.count < 0xffff
    }

    // Put a text into its heap
    /// Adds a text; returns its number.
    fn add(&mut self, text: &str) -> u32 {
        self.count += 1;
        self.texts.extend((self.count as u16).to_le_bytes());
        self.texts.extend([0; 6]);
        self.texts.extend((text.len() as u64).to_le_bytes());
        self.texts.extend(text.as_bytes());
        self.texts.resize(self.texts.len().next_multiple_of(8), 0);
        self.count
    }

    // Write the heap of texts
    fn finish(self) -> Vec<u8> {
        let mut bytes = b"GCOL\x01\0\0\0".to_vec();
        bytes.extend((self.bytes as u64).to_le_bytes());
        bytes.extend(self.texts);
        let left = self.bytes - bytes.len();
        bytes.extend([0; 8]);
        bytes.extend((left as u64).to_le_bytes());
        bytes.resize(self.bytes, 0);
        bytes
    }
}

// Put texts where they are found
impl<W: Write + Seek> Hdf5<W> {
    /// Puts a text into a heap; returns the reference to it.
    fn text(&mut self, text: &str) -> io::Result<Vec<u8>> {
        if text.is_empty() {
            return Ok(vec![0; 16]);
        }
        if !self.heaps.last().is_some_and(|heap| heap.takes(text)) {
            let bytes = (2 * HEAD + Heap::stored_bytes(text)).max(4096);
            let Address(address) = self.put(&vec![0; bytes])?;
            self.heaps.push(Heap { address, bytes, texts: Vec::new(), count: 0 });
        }
        let mut reference = (text.len() as u32).to_le_bytes().to_vec();
        if let Some(heap) = self.heaps.last_mut() {
            reference.extend(heap.address.to_le_bytes());
            reference.extend(heap.add(text).to_le_bytes());
        }
        Ok(reference)
    }
}

// Cut an array evenly
/// The shape of chunks of so many bytes at most, 1 along the first axes and whole along the last, which divide an array.
fn even_chunks(shape: &[usize], bytes: usize, most: usize) -> Vec<usize> {
    let (mut chunk, mut inner) = (vec![1; shape.len()], bytes);
    for (side, &all) in chunk.iter_mut().zip(shape).rev() {
        let fits = (most / inner).clamp(1, all);
        *side = (1..=fits).rev().find(|side| all % side == 0).unwrap_or(1);
        if *side < all {
            break;
        }
        inner *= all;
    }
    chunk
}

// Write an array into HDF5
/// Attributes of an object.
pub(super) type Attributes<'n> = [(&'n str, AttributeValue)];

impl<W: Write + Seek> Hdf5<W> {
    // Type, shape and bytes of an attribute
    /// Type, shape and bytes of a fact.
    fn value(&mut self, fact: &AttributeValue) -> io::Result<(Type, Vec<usize>, Vec<u8>)> {
        Ok(match fact {
            AttributeValue::Text(text) => (Type::Text, vec![], self.text(text)?),
            AttributeValue::Number(x) => {
                (Type::Float { bytes: 8 }, vec![], x.to_le_bytes().to_vec())
            }
            AttributeValue::Integer(n) => (Type::Integer, vec![], n.to_le_bytes().to_vec()),
            AttributeValue::Flag(is) => (Type::Flag, vec![], vec![u8::from(*is)]),
            AttributeValue::Numbers(all) => {
                let bytes = all.iter().flat_map(|x| x.to_le_bytes()).collect();
                (Type::Float { bytes: 8 }, vec![all.len()], bytes)
            }
        })
    }

    fn attributes(&mut self, header: &mut ObjectHeader, attributes: &Attributes) -> io::Result<()> {
        for (name, fact) in attributes {
            let (kind, shape, value) = self.value(fact)?;
            let (kind, shape) = (kind.describe(), dataspace(&shape));
            let mut body = vec![3, 0];
            for length in [name.len() + 1, kind.len(), shape.len()] {
                body.extend((length as u16).to_le_bytes());
            }
            body.extend([1]); // names in UTF-8
            body.extend([name.as_bytes(), &[0], &kind, &shape, &value].concat());
            header.message(12, &body)?;
        }
        Ok(())
    }

    // Numbers of an array and what they are
    fn dataset(
        &mut self,
        kind: Type,
        (shape, chunk): (&[usize], Option<&[usize]>),
        attributes: &Attributes,
        write: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> io::Result<Address> {
        let described = kind.describe();
        let size = u32::from_le_bytes([described[4], described[5], described[6], described[7]]);
        let bytes = shape.iter().fold(u64::from(size), |bytes, &count| bytes * count as u64);
        let address = Address(self.length);
        write(&mut self.file)?;
        self.length += bytes;
        self.fill_up()?;
        let mut header = ObjectHeader::default();
        header.message(1, &dataspace(shape))?;
        header.message(3, &described)?;
        // Position and fill value of an array
        let (filled, placed) = match chunk {
            None => (UNFILLED, layout(address, bytes)),
            Some(chunk) => (UNFILLED_CHUNKS, layout_in_chunks(address, chunk, size as usize)),
        };
        header.message(5, &filled)?;
        header.message(8, &placed)?;
        self.attributes(&mut header, attributes)?;
        self.put(&header.finish()?)
    }

    // Arrays of numbers or of texts
    /// Writes the numbers of a variable.
    pub fn samples(
        &mut self,
        samples: &TypedArray,
        attributes: &Attributes,
    ) -> io::Result<Address> {
        let kind = Type::of(samples);
        self.dataset(kind, (samples.shape(), None), attributes, |file| samples.write(file))
    }

    /// Writes the numbers of a variable in chunks of so many bytes at most, or of one sample.
    pub fn chunked_samples(&mut self, samples: &TypedArray, most: usize) -> io::Result<Address> {
        let kind = Type::of(samples);
        let chunk = even_chunks(samples.shape(), samples.bytes(), most);
        self.dataset(kind, (samples.shape(), Some(&chunk)), &[], |file| samples.write(file))
    }

    /// Writes a list of numbers.
    pub fn numbers(&mut self, numbers: &[f64], attributes: &Attributes) -> io::Result<Address> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let kind = Type::Float { bytes: 8 };
        self.dataset(kind, (&[numbers.len()], None), attributes, |file| file.write_all(&bytes))
    }

    /// Writes a fact as an array; one number or text has no axes.
    pub fn fact(&mut self, fact: &AttributeValue, attributes: &Attributes) -> io::Result<Address> {
        let (kind, shape, bytes) = self.value(fact)?;
        self.dataset(kind, (&shape, None), attributes, |file| file.write_all(&bytes))
    }

    /// Writes a list of texts.
    pub fn texts(&mut self, texts: &[String], attributes: &Attributes) -> io::Result<Address> {
        let references =
            texts.iter().map(|text| self.text(text)).collect::<io::Result<Vec<_>>>()?;
        let bytes = references.concat();
        self.dataset(Type::Text, (&[texts.len()], None), attributes, |file| file.write_all(&bytes))
    }
}

// Write a group into HDF5
// Links of a group
/// What a name in a group stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Link<'n> {
    Hard(Address),
    /// The name of another link in the same group.
    Soft(&'n str),
}

impl<W: Write + Seek> Hdf5<W> {
    /// Writes a group.
    pub fn group(
        &mut self,
        links: &[(&str, Link)],
        attributes: &Attributes,
    ) -> io::Result<Address> {
        let mut header = ObjectHeader::default();
        header.message(2, &[[0; 2].as_slice(), &[0xff; 16]].concat())?;
        header.message(10, &[0; 2])?;
        for (name, link) in links {
            header.message(6, &link.describe(name))?;
        }
        self.attributes(&mut header, attributes)?;
        self.put(&header.finish()?)
    }
}

// Describe a link to HDF5
impl Link<'_> {
    /// The message of kind 6; names have fewer than 256 bytes.
    fn describe(self, name: &str) -> Vec<u8> {
        let length = name.len() as u8;
        match self {
            Self::Hard(Address(address)) => {
                [&[1, 0, length], name.as_bytes(), &address.to_le_bytes()].concat()
            }
            Self::Soft(path) => {
                let bytes = (path.len() as u16).to_le_bytes();
                [&[1, 8, 1, length], name.as_bytes(), &bytes, path.as_bytes()].concat()
            }
        }
    }
}

// Checksum of an object
/// Jenkins' lookup3 of these bytes, begun with 0.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut state = [0xdead_beef_u32.wrapping_add(bytes.len() as u32); 3];
    let mut blocks = bytes.chunks(12).peekable();
    while let Some(block) = blocks.next() {
        for (k, &byte) in block.iter().enumerate() {
            let word = &mut state[k / 4];
            *word = word.wrapping_add(u32::from(byte) << (8 * (k % 4)));
        }
        let last = blocks.peek().is_none();
        if last { finish_stirring(&mut state) } else { stir(&mut state) }
    }
    state[2]
}

// Stir three words
fn stir(words: &mut [u32; 3]) {
    for (step, turn) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let [a, b, c] = [step % 3, (step + 1) % 3, (step + 2) % 3];
        words[a] = words[a].wrapping_sub(words[c]) ^ words[c].rotate_left(turn);
        words[c] = words[c].wrapping_add(words[b]);
    }
}

fn finish_stirring(words: &mut [u32; 3]) {
    for (step, turn) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (to, from) = ((step + 2) % 3, (step + 1) % 3);
        words[to] = (words[to] ^ words[from]).wrapping_sub(words[from].rotate_left(turn));
    }
}

// Tests of files in HDF5
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::data::Element;
    use ndarray::Array2;
    use num_complex::Complex32;

    #[test]
    fn checksums_are_those_of_lookup3() {
        assert_eq!(checksum(b""), 0xdead_beef);
        assert_eq!(checksum(b"Four score and seven years ago"), 0x1777_0551);
    }

    // A small reader of HDF5
    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Kinds and bodies of the messages of the object at an address.
    pub fn messages(file: &[u8], address: u64) -> Vec<(u8, &[u8])> {
        let object = &file[address as usize..];
        assert_eq!(&object[..6], b"OHDR\x02\x02");
        let length = number(&object[6..10]) as usize;
        let stored = number(&object[10 + length..14 + length]);
        assert_eq!(stored, u64::from(checksum(&object[..10 + length])));
        let (mut rest, mut all) = (&object[10..10 + length], Vec::new());
        while !rest.is_empty() {
            let end = 4 + number(&rest[1..3]) as usize;
            all.push((rest[0], &rest[4..end]));
            rest = &rest[end..];
        }
        all
    }

    /// The address of the object with this path.
    pub fn find(file: &[u8], path: &str) -> Option<u64> {
        assert_eq!(number(&file[28..36]), file.len() as u64);
        assert_eq!(number(&file[44..48]), u64::from(checksum(&file[..44])));
        path.split('/').try_fold(number(&file[36..44]), |address, name| {
            messages(file, address).into_iter().find_map(|(kind, body)| {
                let hard = kind == 6 && body[1] == 0 && &body[3..body.len() - 8] == name.as_bytes();
                hard.then(|| number(&body[body.len() - 8..]))
            })
        })
    }

    /// Shape, bytes of the type's description and bytes of an array.
    pub fn dataset<'f>(file: &'f [u8], path: &str) -> (Vec<u64>, &'f [u8], &'f [u8]) {
        let all = messages(file, find(file, path).unwrap());
        let one = |kind| all.iter().find(|message| message.0 == kind).unwrap().1;
        let shape = one(1)[4..].chunks(8).map(number).collect();
        let [address, length] = [2, 10].map(|at| number(&one(8)[at..at + 8]) as usize);
        (shape, one(3), &file[address..address + length])
    }

    // Find a tree in HDF5
    #[test]
    fn a_tree_is_found_again() -> io::Result<()> {
        let mut bytes = io::Cursor::new(Vec::new());
        let mut file = Hdf5::begin(&mut bytes)?;
        let long = "å".repeat(3000);
        let wave =
            Array2::from_shape_fn((2, 3), |(j, i)| Complex32::new(j as f32, i as f32)).into_dyn();
        let samples = Complex32::typed(wave.into());
        let facts =
            [("long", AttributeValue::Text(long.clone())), ("n", AttributeValue::Integer(-3))];
        let wave = file.samples(&samples, &facts)?;
        let numbers = file.numbers(&[0.5, 2.5, 4.5], &[("none", "".into())])?;
        let links = [
            ("wave", Link::Hard(wave)),
            ("numbers", Link::Hard(numbers)),
            ("same", Link::Soft("wave")),
        ];
        let inner = file.group(&links, &[("t", [1.0, 2.0].as_slice().into())])?;
        let root = file.group(
            &[("inner", Link::Hard(inner))],
            &[("more", AttributeValue::Text(long.clone()))],
        )?;
        file.finish(root)?;
        let file = bytes.into_inner();
        assert_eq!(&file[..9], b"\x89HDF\r\n\x1a\n\x02");
        // Check the tree in HDF5
        let (shape, _, found) = dataset(&file, "inner/numbers");
        let expected: Vec<u8> = [0.5_f64, 2.5, 4.5].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!((shape, found), (vec![3], &expected[..]));
        let (shape, kind, found) = dataset(&file, "inner/wave");
        assert_eq!((shape, kind[0], kind[4], found.len()), (vec![2, 3], 0x36, 8, 48));
        assert_eq!(number(&found[44..]), u64::from(2.0_f32.to_bits()));
        let inner = messages(&file, find(&file, "inner").unwrap());
        assert!(
            inner.iter().any(|(kind, body)| *kind == 6 && body.ends_with(b"\x04same\x04\0wave"))
        );
        let attributes = messages(&file, find(&file, "inner/wave").unwrap());
        let text = attributes
            .iter()
            .find(|(kind, body)| *kind == 12 && body[9..].starts_with(b"long\0"))
            .unwrap();
        let reference = &text.1[text.1.len() - 16..];
        let heap = &file[number(&reference[4..12]) as usize..];
        assert_eq!((&heap[..4], number(&reference[12..])), (&b"GCOL"[..], 1));
        assert_eq!(number(&heap[8..16]), (2 * HEAD + Heap::stored_bytes(&long)) as u64);
        assert_eq!(&heap[32..32 + long.len()], long.as_bytes());
        Ok(())
    }

    // Fill heaps to the last byte
    #[test]
    fn heaps_hold_all_texts() -> io::Result<()> {
        for length in 3900..4100 {
            let mut bytes = io::Cursor::new(Vec::new());
            let mut file = Hdf5::begin(&mut bytes)?;
            let texts = ["x".repeat(length), String::new(), "y".repeat(30), "z".repeat(8)];
            let all = file.texts(&texts, &[])?;
            let root = file.group(&[("all", Link::Hard(all))], &[])?;
            file.finish(root)?;
            let file = bytes.into_inner();
            let (shape, _, references) = dataset(&file, "all");
            assert_eq!(shape, [4]);
            for (text, reference) in texts.iter().zip(references.chunks(16)) {
                assert_eq!(number(&reference[..4]) as usize, text.len());
                let found = heaped(&file, number(&reference[4..12]), number(&reference[12..]));
                assert_eq!(found, text.as_bytes(), "{length}");
            }
        }
        Ok(())
    }

    /// The text of this number in the heap at an address; none is at 0.
    fn heaped(file: &[u8], address: u64, index: u64) -> &[u8] {
        if address == 0 {
            return &[];
        }
        let heap = &file[address as usize..];
        let mut rest = &heap[HEAD..number(&heap[8..16]) as usize];
        loop {
            let length = number(&rest[8..16]) as usize;
            if number(&rest[..2]) == index {
                return &rest[HEAD..HEAD + length];
            }
            assert!(number(&rest[..2]) > 0, "the end of the heap");
            rest = &rest[HEAD + length.next_multiple_of(8)..];
        }
    }

    // Cut an array into equal chunks
    #[test]
    fn chunks_have_equal_sides() {
        let expected: [(usize, [usize; 3]); 7] = [
            (1, [1, 1, 1]),
            (16, [1, 1, 4]),
            (17, [1, 1, 4]),
            (47, [1, 2, 4]),
            (96, [1, 6, 4]),
            (300, [3, 6, 4]),
            (4096, [9, 6, 4]),
        ];
        for (most, chunk) in expected {
            assert_eq!(even_chunks(&[9, 6, 4], 4, most), chunk, "{most}");
        }
        assert_eq!(even_chunks(&[9, 6, 4], 4, 60), [1, 3, 4]);
        assert_eq!(even_chunks(&[7], 8, 50), [1]);
        let body = layout_in_chunks(Address(2048), &[2, 3], 4);
        assert_eq!(body, [4, 2, 0, 3, 1, 2, 3, 4, 2, 0, 8, 0, 0, 0, 0, 0, 0]);
        let widths =
            [255, 256, 65_535, 65_536].map(|side| layout_in_chunks(Address(0), &[side], 8)[4]);
        assert_eq!(widths, [1, 2, 2, 3]);
    }
}
