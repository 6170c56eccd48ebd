// Tangled from book/src/fits-reading.md: edit there, or here and run cargo tangle stitch.
//! The astronomers' format FITS: images with headers of cards, written and read.

use super::npz::{Kind, Number};
use super::reading::{ArrayHeader, ListedArray, ReadRequest, cut_short, unknown_format};
use crate::data::{Attribute, AttributeValue, Coordinate, DataSet};
use crate::data::{TypedArray, Values, Variable};
use crate::error::Error;
use crate::numerics::real::Precision;
use ndarray::ArrayD;
use std::io::{self, Read, Seek, Write};
use std::{collections::BTreeMap, fmt::Display, str::FromStr};

// Write the arrays as images
/// Bytes of a block: headers and data of a FITS file are filled up to a multiple of it.
pub(crate) const BLOCK: usize = 2880;

impl DataSet<'_> {
    pub(super) fn write_fits(&self, mut file: impl Write, precision: Precision) -> io::Result<()> {
        let mut cards = Cards::first();
        self.write_attributes(&mut cards);
        file.write_all(&cards.finish())?;
        self.write_extensions(&mut file, precision)?;
        file.flush()
    }

    // Write attributes and extensions of FITS
    /// Adds the attributes to the cards of the first header.
    pub(crate) fn write_attributes(&self, cards: &mut Cards) {
        self.attributes.iter().for_each(|attribute| cards.attribute(attribute));
    }

    /// Writes each variable as an extension.
    pub(crate) fn write_extensions(
        &self,
        file: &mut impl Write,
        precision: Precision,
    ) -> io::Result<()> {
        for variable in &self.variables {
            variable.refuse_complex()?;
            // Write one extension
            let number = variable.number(precision, true);
            let shape = if variable.shape().is_empty() { &[1] } else { variable.shape() };
            let header = match &variable.values {
                Values::Table(table) => {
                    table_header(variable, [number.bytes, shape[0]], table.forms())
                }
                Values::Text(text) => {
                    let form = format!("{}B", text.len());
                    let column = ["text".into(), form, String::new()];
                    table_header(variable, [number.bytes, 1], std::iter::once(column))
                }
                Values::Array(_) => image_header(variable, number, shape),
            };
            file.write_all(&header)?;
            number.write(&variable.values, file)?;
            let partial = shape.iter().fold(number.bytes, |rest, n| rest * (n % BLOCK) % BLOCK);
            file.write_all(&vec![0; (BLOCK - partial) % BLOCK])?;
        }
        Ok(())
    }
}

// Refuse complex numbers in FITS
impl Variable<'_> {
    fn refuse_complex(&self) -> io::Result<()> {
        if !self.array().is_some_and(TypedArray::is_complex) {
            return Ok(());
        }
        let reason = format!("{} is complex, and an image in FITS is not", self.name);
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
    }
}

// Cards of a FITS file
/// The cards of a FITS file, one after the other.
#[derive(Default)]
pub(crate) struct Cards(Vec<u8>);

impl Cards {
    /// Those that begin a file.
    pub(crate) fn first() -> Self {
        let mut cards = Self::default();
        cards.value("SIMPLE", 'T', "this is a FITS file");
        cards.value("BITPIX", 8, "");
        cards.value("NAXIS", 0, "all arrays are in the extensions");
        cards.value("EXTEND", 'T', "");
        cards.text("CREATOR", concat!("lenslet ", env!("CARGO_PKG_VERSION")));
        cards
    }

    // Write a card of FITS
    fn push(&mut self, card: &str) {
        let ascii = card.chars().map(|c| if (' '..='~').contains(&c) { c as u8 } else { b'?' });
        self.0.extend(ascii.chain(std::iter::repeat(b' ')).take(80));
    }

    pub(crate) fn value(&mut self, key: &str, value: impl Display, comment: &str) {
        let separator = if comment.is_empty() { "" } else { " / " };
        self.push(&format!("{key:<8}= {value:>20}{separator}{comment}"));
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        let short: String = text.chars().take(32).collect();
        self.push(&format!("{key:<8}= '{:<8}'", short.replace('\'', "''")));
    }

    // Attributes of any length
    fn attribute(&mut self, Attribute { name, value, comment }: &Attribute) {
        let key: String = name.to_ascii_uppercase().chars().take(8).collect();
        let mut number = |x: &f64| self.value(&key, format_args!("{x:E}"), comment);
        match value {
            AttributeValue::Number(x) => number(x),
            AttributeValue::Numbers(all) => all.iter().for_each(number),
            AttributeValue::Text(text) => self.long_text(&key, text),
            AttributeValue::Integer(n) => self.value(&key, n, comment),
            AttributeValue::Flag(is) => self.value(&key, logical(*is), comment),
        }
    }

    // Text over several cards
    pub(crate) fn long_text(&mut self, key: &str, text: &str) {
        let (mut parts, mut length) = (vec![String::new()], 0);
        for c in text.chars() {
            let doubled = if c == '\'' { "''".to_string() } else { c.to_string() };
            length += doubled.len().min(2);
            if length > 67 {
                parts.push(String::new());
                length = doubled.len().min(2);
            }
            let last = parts.len() - 1;
            parts[last] += &doubled;
        }
        for (k, part) in parts.iter().enumerate() {
            let start = if k == 0 { format!("{key:<8}= ") } else { "CONTINUE  ".to_string() };
            let more = if k + 1 < parts.len() { "&" } else { "" };
            self.push(&format!("{start}'{:<8}'", format!("{part}{more}")));
        }
    }

    // Write the cards of a variable
    /// The cards of the attributes of a variable.
    fn own(&mut self, variable: &Variable) {
        for Attribute { name: key, value, .. } in &variable.attributes {
            let long = key.len() > 8;
            let key = match long {
                true => format!("HIERARCH {key}"),
                false => format!("{:<8}", key.to_ascii_uppercase()),
            };
            let mut number = |x: &f64| self.push(&format!("{key}= {:>20}", format!("{x:E}")));
            match value {
                AttributeValue::Number(x) => number(x),
                AttributeValue::Numbers(all) => all.iter().for_each(number),
                AttributeValue::Text(text) if !long => self.long_text(&key, text),
                AttributeValue::Text(text) => {
                    self.push(&format!("{key} = '{}'", text.replace('\'', "''")));
                }
                AttributeValue::Integer(n) => self.push(&format!("{key}= {n:>20}")),
                AttributeValue::Flag(is) => self.push(&format!("{key}= {:>20}", logical(*is))),
            }
        }
    }

    // Remarks and the last card
    fn remark(&mut self, text: &str) {
        let characters: Vec<char> = text.chars().collect();
        for line in characters.chunks(72) {
            self.push(&format!("COMMENT {}", line.iter().collect::<String>()));
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.push("END");
        self.0.resize(self.0.len().next_multiple_of(BLOCK), b' ');
        self.0
    }
}

// Describe an array to FITS
/// A truth value of a card.
fn logical(is: bool) -> char {
    if is { 'T' } else { 'F' }
}

fn image_header(variable: &Variable, number: Number, shape: &[usize]) -> Vec<u8> {
    let sign = if number.kind == Kind::Float { "-" } else { "" };
    let mut cards = Cards::default();
    cards.text("XTENSION", "IMAGE");
    cards.value("BITPIX", format!("{sign}{}", 8 * number.bytes), "bits of a number");
    cards.value("NAXIS", shape.len(), "");
    let mut names = variable.dimensions.iter().rev().map(Coordinate::name);
    for (k, length) in shape.iter().rev().enumerate() {
        cards.value(&format!("NAXIS{}", k + 1), length, names.next().unwrap_or_default());
    }
    cards.value("PCOUNT", 0, "");
    cards.value("GCOUNT", 1, "");
    cards.long_text("EXTNAME", &variable.name.to_ascii_uppercase());
    // Cards for people to read
    if !variable.unit.is_empty() {
        cards.text("BUNIT", &variable.unit);
    }
    cards.remark(&variable.long_name);
    if number.kind == Kind::Bool {
        cards.remark("1 is true, 0 is false");
    }
    cards.own(variable);
    cards.finish()
}

// Describe a table to FITS
fn table_header(
    variable: &Variable,
    [row, rows]: [usize; 2],
    columns: impl ExactSizeIterator<Item = [String; 3]>,
) -> Vec<u8> {
    let mut cards = Cards::default();
    cards.text("XTENSION", "BINTABLE");
    cards.value("BITPIX", 8, "");
    cards.value("NAXIS", 2, "");
    cards.value("NAXIS1", row, "bytes of a row");
    cards.value("NAXIS2", rows, "rows");
    cards.value("PCOUNT", 0, "");
    cards.value("GCOUNT", 1, "");
    cards.value("TFIELDS", columns.len(), "columns");
    cards.text("EXTNAME", &variable.name.to_ascii_uppercase());
    for (k, [name, form, unit]) in columns.enumerate() {
        cards.text(&format!("TTYPE{}", k + 1), &name);
        cards.text(&format!("TFORM{}", k + 1), &form);
        if !unit.is_empty() {
            cards.text(&format!("TUNIT{}", k + 1), &unit);
        }
    }
    cards.remark(&variable.long_name);
    cards.finish()
}

// Read the image that is wanted
impl ReadRequest<'_> {
    /// Reads the only image of a FITS file, or the one that was chosen.
    pub(super) fn read_image(&self, file: &mut impl Read) -> Result<ArrayD<f64>, Error> {
        let refuse = |source| self.unreadable(source);
        let (mut images, mut first) = (Vec::new(), None);
        for number in 0.. {
            let Some(keys) = read_keys(file, number).map_err(refuse)? else { break };
            let keys = HeaderKeys { keys, request: self };
            let blocks = keys.data_bytes(&keys.shape("NAXIS")?)?.div_ceil(BLOCK as u64);
            let mut data = file.by_ref().take(blocks.saturating_mul(BLOCK as u64));
            // Take the image that was chosen
            if let Some(image) = keys.about(number)? {
                if self.choice.is_some_and(|choice| image.is_called(choice)) {
                    return keys.read(&image, &mut data);
                }
                if first.is_none() {
                    let read = keys.read(&image, &mut data);
                    if matches!(read, Err(Error::Memory { .. })) {
                        return read;
                    }
                    first = Some(read);
                }
                images.push(image);
            }
            io::copy(&mut data, &mut io::sink()).map_err(refuse)?;
        }
        // Settle which image is meant
        match (first, self.choice, &images[..]) {
            (None, ..) => Err(refuse(unknown_format("there is no image in this one"))),
            (Some(only), None, [_]) => only,
            _ => {
                let all: Vec<_> = images.iter().map(Image::description).collect();
                let named =
                    images.iter().find(|image| !image.name.is_empty()).map(|it| it.name.clone());
                let examples = named.into_iter().chain([images[0].number.to_string()]);
                Err(self.refuse_choice("images", &all, &examples.collect::<Vec<_>>()))
            }
        }
    }
}

// List the images of a file
impl ReadRequest<'_> {
    /// All images of a file, without their numbers.
    pub(super) fn list_images(
        &self,
        file: &mut (impl Read + Seek),
    ) -> Result<Vec<ListedArray>, Error> {
        let refuse = |source| self.unreadable(source);
        let mut images = Vec::new();
        for number in 0.. {
            let Some(keys) = read_keys(file, number).map_err(refuse)? else { break };
            let keys = HeaderKeys { keys, request: self };
            let blocks = keys.data_bytes(&keys.shape("NAXIS")?)?.div_ceil(BLOCK as u64);
            if let Some(Image { number, name, shape, .. }) = keys.about(number)? {
                let unit = keys.keys.get("BUNIT").cloned().unwrap_or_default();
                images.push(ListedArray { number: Some(number), name, shape, unit });
            }
            let bytes = i64::try_from(blocks.saturating_mul(BLOCK as u64)).unwrap_or(i64::MAX);
            file.seek(io::SeekFrom::Current(bytes)).map_err(refuse)?;
        }
        Ok(images)
    }
}

// Image in a file and its names
/// An image as its header introduces it.
pub(crate) struct Image {
    /// Its place in the file, from 0.
    number: usize,
    /// Its `EXTNAME`, or nothing.
    name: String,
    shape: Vec<usize>,
    /// How its tiles are compressed, if they are.
    compression: Option<String>,
}

// Name and description of an image
impl Image {
    pub(super) fn is_called(&self, choice: &str) -> bool {
        choice.parse() == Ok(self.number) || choice.eq_ignore_ascii_case(&self.name)
    }

    /// Number, name and shape, for a list.
    fn description(&self) -> String {
        let Self { number, name, shape, .. } = self;
        if name.is_empty() {
            format!("{number} {shape:?}")
        } else {
            format!("{number} {name} {shape:?}")
        }
    }
}

// Read the keys from cards
/// Cards of a header at most.
const MOST_CARDS: usize = 1_000_000;

/// The keys of the header of a unit and their values; nothing at the end of the file.
pub(crate) fn read_keys(
    file: &mut impl Read,
    unit: usize,
) -> io::Result<Option<BTreeMap<String, String>>> {
    let (mut keys, mut cards) = (BTreeMap::new(), 0);
    let mut block = Vec::with_capacity(BLOCK);
    loop {
        block.clear();
        let length = file.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
        let begins = if unit == 0 { b"SIMPLE".as_slice() } else { b"XTENSION" };
        if keys.is_empty() && !block.starts_with(begins) {
            return Ok(None);
        }
        if length < BLOCK {
            return Err(cut_short("in a header"));
        }
        // Refuse cards without an end
        cards += BLOCK / 80;
        if cards > MOST_CARDS {
            let reason = format!("the header of unit {unit} has no END in {MOST_CARDS} cards");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        // Take the keys of a block
        for card in block.chunks(80) {
            let (key, rest) = card.split_at(8);
            let key = String::from_utf8_lossy(key).trim_end().to_string();
            if key == "END" {
                return Ok(Some(keys));
            }
            // Take the value of a card
            let rest = String::from_utf8_lossy(rest);
            if let Some(value) = rest.strip_prefix('=').map(str::trim_start) {
                let value = match value.strip_prefix('\'') {
                    Some(text) => text.split('\'').next(),
                    None => value.split('/').next(),
                };
                keys.entry(key).or_insert_with(|| value.unwrap_or_default().trim().to_string());
            }
        }
    }
}

// Understand the keys of cards
/// The keys of a header, and what is wanted of the file that it is from.
pub(crate) struct HeaderKeys<'a> {
    pub(crate) keys: BTreeMap<String, String>,
    pub(crate) request: &'a ReadRequest<'a>,
}

impl HeaderKeys<'_> {
    pub(crate) fn number<T: FromStr>(&self, key: &str, default: Option<T>) -> Result<T, Error> {
        let text = self.keys.get(key).map(|text| text.replace('D', "E"));
        let number = text.as_ref().map_or(default, |text| text.parse().ok());
        number.ok_or_else(|| self.refuse(key, text.as_deref().unwrap_or("nothing"), "a number"))
    }

    pub(crate) fn refuse(&self, key: &str, value: impl Display, expected: &str) -> Error {
        self.request.refuse(key, value, expected)
    }

    // Image that some keys introduce
    /// The image that follows, if one does.
    pub(crate) fn about(&self, number: usize) -> Result<Option<Image>, Error> {
        let text = |key: &str| self.keys.get(key).cloned().unwrap_or_default();
        let compression = (text("ZIMAGE") == "T").then(|| text("ZCMPTYPE"));
        let shape = self.shape(if compression.is_some() { "ZNAXIS" } else { "NAXIS" })?;
        let is_image = ["", "IMAGE"].contains(&text("XTENSION").as_str()) || compression.is_some();
        let image = Image { number, name: text("EXTNAME"), shape, compression };
        Ok((is_image && !image.shape.is_empty()).then_some(image))
    }

    // Shape and length of the data
    /// The lengths of the axes that these keys number, the fastest last.
    pub(crate) fn shape(&self, keys: &str) -> Result<Vec<usize>, Error> {
        let axes: usize = self.number(keys, None)?;
        (1..=axes).rev().map(|k| self.number(&format!("{keys}{k}"), None)).collect()
    }

    /// Bytes of the data after this header, without what fills up the last block.
    pub(crate) fn data_bytes(&self, shape: &[usize]) -> Result<u64, Error> {
        if shape.is_empty() {
            return Ok(0);
        }
        let bits: i64 = self.number("BITPIX", None)?;
        let numbers = shape.iter().fold(1, |count: u64, n| count.saturating_mul(*n as u64));
        let numbers = numbers.saturating_add(self.number("PCOUNT", Some(0))?);
        let bytes = (bits.unsigned_abs() / 8).saturating_mul(self.number("GCOUNT", Some(1))?);
        Ok(numbers.saturating_mul(bytes))
    }

    // Read an image that is found
    pub(crate) fn read(&self, image: &Image, data: &mut impl Read) -> Result<ArrayD<f64>, Error> {
        if let Some(compression) = &image.compression {
            let reason = format!(
                "the image {} is compressed by tiles ({compression}): unpack the file with funpack",
                image.description()
            );
            return Err(self.request.unreadable(io::Error::other(reason)));
        }
        self.request.take(&self.image(image.shape.clone())?, data)
    }

    // Form of the image
    fn image(&self, shape: Vec<usize>) -> Result<ArrayHeader, Error> {
        let (kind, bytes) = match self.number("BITPIX", None)? {
            8 => (Kind::Unsigned, 1),
            16 => (Kind::Signed, 2),
            32 => (Kind::Signed, 4),
            64 => (Kind::Signed, 8),
            -32 => (Kind::Float, 4),
            -64 => (Kind::Float, 8),
            other => return Err(self.refuse("BITPIX", other, "8, 16, 32, 64, -32 or -64")),
        };
        let number = Number { kind, bytes, big_endian: true };
        let scale = (self.number("BSCALE", Some(1.0))?, self.number("BZERO", Some(0.0))?);
        let blank = match self.keys.get("BLANK") {
            Some(_) if kind != Kind::Float => Some(self.number("BLANK", None)?),
            _ => None,
        };
        let unit = self.keys.get("BUNIT").cloned().unwrap_or_default();
        Ok(ArrayHeader { shape, columns_first: false, number, scale, blank, unit })
    }
}

// Tests of cards in FITS
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Format;

    /// The file of a lopsided matrix.
    fn written() -> io::Result<Vec<u8>> {
        let matrix = ndarray::array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]];
        let mut data = DataSet::default();
        let entry = data.add("matrix", matrix.view());
        entry.unit("m rad").dimensions("y, x").long_name("it's a test");
        let mut file = io::Cursor::new(Vec::new());
        data.write(&mut file, Format::Fits, Precision::F64)?;
        Ok(file.into_inner())
    }

    // Compare cards letter by letter
    #[test]
    fn headers_follow_the_standard() -> io::Result<()> {
        let file = written()?;
        assert_eq!(file.len() % BLOCK, 0);
        let cards = |block: usize| file[BLOCK * block..].chunks(80).map(String::from_utf8_lossy);
        for (block, expected) in [(0, expected_cards(0)), (1, expected_cards(1))] {
            for (card, expected) in cards(block).zip(expected) {
                assert_eq!(card, format!("{expected:<80}"));
            }
        }
        assert!(file[2 * BLOCK + 48..3 * BLOCK].iter().all(|byte| *byte == 0));
        let mut cards = Cards::default();
        cards.text("EXTNAME", &"'é".repeat(50));
        assert_eq!(cards.finish().len(), BLOCK);
        Ok(())
    }

    // Cards as the standard wants them
    fn expected_cards(block: usize) -> Vec<String> {
        let image = [
            "XTENSION= 'IMAGE   '",
            "BITPIX  =                  -64 / bits of a number",
            "NAXIS   =                    2",
            "NAXIS1  =                    2 / x",
            "NAXIS2  =                    3 / y",
            "PCOUNT  =                    0",
            "GCOUNT  =                    1",
            "EXTNAME = 'MATRIX  '",
            "BUNIT   = 'm rad   '",
            "COMMENT it's a test",
            "END",
        ];
        let first = [
            "SIMPLE  =                    T / this is a FITS file",
            "BITPIX  =                    8",
            "NAXIS   =                    0 / all arrays are in the extensions",
            "EXTEND  =                    T",
            concat!("CREATOR = 'lenslet ", env!("CARGO_PKG_VERSION"), "'"),
            "END",
        ];
        let cards = if block == 0 { &first[..] } else { &image[..] };
        cards.iter().map(|card| (*card).to_string()).collect()
    }
}
