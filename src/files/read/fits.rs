// Tangled from book/src/read-fits-mrc.md: edit there, or here and run cargo tangle stitch.
//! Data sets read from FITS.

use super::content::Content;
use super::elements::{CellForm, ElementForm, PROVENANCE, bytes_of, table, wrong};
use crate::data::{Attribute, AttributeValue, Coordinate, DataSet, TypedArray, Values, Variable};
use crate::files::fits::BLOCK;
use crate::files::npz::{Kind, Number};
use crate::files::reading::cut_short;
use std::io;

// Decode a FITS file
/// The data set of a FITS file: attributes of the first header, and a variable for each unit with data.
pub(super) fn decode(content: &Content) -> io::Result<DataSet<'static>> {
    if !content.starts_with(b"SIMPLE  =") {
        return Err(wrong("it does not begin as a FITS file"));
    }
    let (mut data, mut at) = (DataSet::default(), 0);
    while at == 0 || content.bytes(at, 8).is_ok_and(|start| *start == *b"XTENSION") {
        let (header, behind) = header(content, at)?;
        let axes: usize = header.whole("NAXIS")?;
        if axes > 999 {
            return Err(wrong(format!("NAXIS = {axes}: expected 999 at most")));
        }
        let shape = (1..=axes).rev().map(|k| header.whole(&format!("NAXIS{k}")));
        let shape = shape.collect::<io::Result<Vec<_>>>()?;
        let bits = header.text("BITPIX").unwrap_or_default().trim_start_matches('-');
        let each = bits.parse::<usize>().unwrap_or(0) / 8;
        let more = header.text("PCOUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
        let bytes = if axes == 0 { 0 } else { bytes_of(&shape, each)?.saturating_add(more) };
        let unit = content.part(behind, bytes as u64);
        let place = data.variables.len();
        let unit = unit.ok_or_else(|| cut_short(&format!("in array {place}")))?;
        if at == 0 {
            data.attributes = header.attributes(&FIRST);
        }
        if axes > 0 {
            data.variables.push(header.variable(shape, &unit)?);
        }
        at = behind.saturating_add(bytes as u64).saturating_add(BLOCK as u64 - 1);
        at -= at % BLOCK as u64;
    }
    for attribute in &mut data.attributes {
        let known = PROVENANCE.iter().find(|name| name.starts_with(&attribute.name));
        attribute.name = known.map_or(attribute.name.clone(), ToString::to_string);
    }
    Ok(data)
}

/// Keys of the first header that are no attributes.
const FIRST: [&str; 6] = ["SIMPLE", "BITPIX", "NAXIS", "EXTEND", "CREATOR", "COMMENT"];
/// Keys of other headers that are no attributes.
const OTHERS: [&str; 9] =
    ["XTENSION", "BITPIX", "NAXIS", "PCOUNT", "GCOUNT", "TFIELDS", "EXTNAME", "BUNIT", "COMMENT"];

// Decode the cards of an image
/// A card: its key, its value, whether that is a text, and its comment.
struct Card {
    key: String,
    value: String,
    is_text: bool,
    comment: String,
}

struct ImageHeader(Vec<Card>);

/// The blocks of a header that begins at this byte, up to the one with its last card.
fn blocks(content: &Content, at: u64) -> io::Result<Vec<u8>> {
    const MOST: u64 = 10_000;
    let mut header = Vec::new();
    for k in 0..MOST {
        let block = content.bytes(at.saturating_add(k * BLOCK as u64), BLOCK);
        header.extend_from_slice(&block.map_err(|_| cut_short("in a header"))?);
        let cards = header[header.len() - BLOCK..].chunks_exact(80);
        if cards.map(|card| &card[..8]).any(|key| key.trim_ascii_end() == b"END") {
            return Ok(header);
        }
    }
    Err(wrong(format!("a header has more than {MOST} blocks")))
}

/// The header that begins at this byte, and where what is behind it begins.
fn header(content: &Content, at: u64) -> io::Result<(ImageHeader, u64)> {
    let (bytes, mut cards) = (blocks(content, at)?, Vec::<Card>::new());
    for bytes_of_card in bytes.chunks_exact(80) {
        let card = String::from_utf8_lossy(bytes_of_card);
        let (key, rest) = (card.get(..8).unwrap_or(&card).trim_end(), card.get(8..).unwrap_or(""));
        match key {
            "END" => break,
            "CONTINUE" => {
                let (more, _, comment) = value(rest);
                if let Some(last) = cards.last_mut().filter(|last| last.value.ends_with('&')) {
                    last.value.pop();
                    last.value += &more;
                    last.comment += &comment;
                }
            }
            "COMMENT" => {
                let (key, value) = (key.into(), rest.trim_end().into());
                cards.push(Card { key, value, is_text: true, comment: String::new() });
            }
            // Decode a card with a value
            "HIERARCH" => {
                if let Some((key, rest)) = rest.split_once('=') {
                    let ((value, is_text, comment), key) = (value(rest), key.trim().into());
                    cards.push(Card { key, value, is_text, comment });
                }
            }
            _ => {
                if let Some(rest) = rest.strip_prefix('=') {
                    let ((value, is_text, comment), key) = (value(rest), key.into());
                    cards.push(Card { key, value, is_text, comment });
                }
            }
        }
    }
    Ok((ImageHeader(cards), at + bytes.len() as u64))
}

// Decode the value of a card
/// The value behind an equals sign, whether it is a text, and the comment behind it.
fn value(rest: &str) -> (String, bool, String) {
    let rest = rest.trim_start();
    let Some(text) = rest.strip_prefix('\'') else {
        let (value, comment) = rest.split_once('/').unwrap_or((rest, ""));
        return (value.trim().into(), false, comment.trim().into());
    };
    let (mut value, mut letters) = (String::new(), text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '\'' if letters.peek() == Some(&'\'') => {
                letters.next();
                value.push('\'');
            }
            '\'' => break,
            letter => value.push(letter),
        }
    }
    (value.trim_end().into(), true, String::new())
}

impl ImageHeader {
    // Values of keys of an image
    fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|card| card.key == key).map(|card| &card.value[..])
    }

    fn whole(&self, key: &str) -> io::Result<usize> {
        let value = self.text(key).unwrap_or("nothing");
        value.parse().map_err(|_| wrong(format!("{key} = {value}: expected a count")))
    }

    // Attributes from other cards
    /// All cards but those of these keys, with numbers behind them or not.
    fn attributes(&self, others: &[&str]) -> Vec<Attribute> {
        let is_other = |key: &str| others.contains(&key.trim_end_matches(|c: char| c.is_numeric()));
        let own = self.0.iter().filter(|card| !is_other(&card.key));
        let attribute = |Card { key, value, is_text, comment }: &Card| {
            let value = match &value[..] {
                text if *is_text => AttributeValue::Text(text.into()),
                "T" => AttributeValue::Flag(true),
                "F" => AttributeValue::Flag(false),
                number => match (number.parse::<i64>(), number.parse::<f64>()) {
                    (Ok(n), _) => AttributeValue::Integer(n),
                    (_, Ok(x)) => AttributeValue::Number(x),
                    _ => AttributeValue::Text(number.into()),
                },
            };
            Attribute { name: key.to_ascii_lowercase(), value, comment: comment.clone() }
        };
        own.map(attribute).collect()
    }
}

// Decode an extension of FITS
/// What a comment says of an image of truth values.
const TRUTH: &str = "1 is true, 0 is false";

impl ImageHeader {
    /// The variable that the header describes.
    fn variable(&self, shape: Vec<usize>, unit_of_data: &Content) -> io::Result<Variable<'static>> {
        let name = self.text("EXTNAME").unwrap_or("primary").to_ascii_lowercase();
        let comments = self.0.iter().filter(|card| card.key == "COMMENT").map(|card| &card.value);
        let comments = comments.cloned().collect::<Vec<_>>();
        let is_truth = comments.iter().any(|comment| comment.trim() == TRUTH);
        let comments = comments.iter().filter(|comment| comment.trim() != TRUTH);
        let long_name = comments.map(|comment| &comment[..]).collect::<String>();
        let values = match self.text("XTENSION") {
            Some("BINTABLE") => self.table(&shape, &unit_of_data.rest(0)?)?,
            _ => Values::Array(self.image(&shape, unit_of_data, is_truth)?),
        };
        let plain = Variable::unnamed(&name, values);
        let unit = self.text("BUNIT").unwrap_or_default().into();
        let dimension = |k: usize| {
            let card = self.0.iter().find(|card| card.key == format!("NAXIS{k}"))?;
            Some(card.comment.clone()).filter(|name| !name.is_empty())
        };
        let names = (1..=shape.len()).rev().map(dimension).collect::<Option<Vec<_>>>();
        let names = names.filter(|_| plain.array().is_some()).unwrap_or_default();
        let dimensions = names.iter().map(|name| Coordinate::index(name)).collect();
        let attributes = match plain.array() {
            Some(_) => self.attributes(&OTHERS),
            None => Vec::new(),
        };
        Ok(Variable { unit, dimensions, long_name: long_name.trim().into(), attributes, ..plain })
    }

    // Decode an image of FITS
    fn image(
        &self,
        shape: &[usize],
        unit_of_data: &Content,
        is_truth: bool,
    ) -> io::Result<TypedArray<'static>> {
        let scaled = [("BSCALE", 1.0), ("BZERO", 0.0)].into_iter().find(|(key, plain)| {
            self.text(key).is_some_and(|value| value.parse::<f64>() != Ok(*plain))
        });
        if let Some((key, plain)) = scaled {
            return Err(wrong(format!(
                "{key} is not {plain}: scaled images are read by read_array"
            )));
        }
        let (kind, bytes_of_each) = match self.text("BITPIX").unwrap_or_default() {
            "8" if is_truth => (Kind::Bool, 1),
            "8" => (Kind::Unsigned, 1),
            "16" => (Kind::Signed, 2),
            "32" => (Kind::Signed, 4),
            "64" => (Kind::Signed, 8),
            "-32" => (Kind::Float, 4),
            "-64" => (Kind::Float, 8),
            other => {
                let expected = "expected 8, 16, 32, 64, -32 or -64";
                return Err(wrong(format!("BITPIX = {other}: {expected}")));
            }
        };
        let number = Number { kind, bytes: bytes_of_each, big_endian: true };
        unit_of_data.array(ElementForm { number, is_complex: false }, 0, (shape, false))
    }

    // Decode a table of FITS
    fn table(&self, shape: &[usize], bytes: &[u8]) -> io::Result<Values<'static>> {
        let [rows, row] = *shape else { return Err(wrong("a table has rows and columns")) };
        let text = |key: &str, k: usize| self.text(&format!("{key}{k}")).unwrap_or_default();
        let fields = self.whole("TFIELDS")?;
        if fields == 1 && text("TFORM", 1).ends_with('B') {
            let end = bytes.get(..row).ok_or_else(|| cut_short("in a text"))?;
            return Ok(Values::Text(String::from_utf8_lossy(end).into()));
        }
        let mut columns = Vec::new();
        for k in 1..=fields.min(1000) {
            let (name, form, unit) = (text("TTYPE", k), text("TFORM", k), text("TUNIT", k));
            let length = form.strip_suffix('A').map(str::parse::<usize>);
            let cells = match (form, length) {
                ("1J" | "J", _) => CellForm::Integer,
                ("1D" | "D", _) => CellForm::Number,
                (_, Some(Ok(length))) => CellForm::Text(length),
                _ => {
                    return Err(wrong(format!(
                        "column {name} has the form {form}: expected 1J, 1D or a text such as 12A"
                    )));
                }
            };
            columns.push((name.to_string(), unit.to_string(), cells, true));
        }
        Ok(Values::Table(table(columns, rows, bytes)?))
    }
}
