// Tangled from book/src/read-fits-mrc.md: edit there, or here and run cargo tangle stitch.
//! Variables read from MRC.

use super::content::Content;
use super::elements::{ElementForm, wrong};
use crate::data::{Coordinate, Positions, Values, Variable};
use crate::files::npz::{Kind, Number};
use crate::files::reading::cut_short;
use std::io;

// Decode a file in MRC
/// The array of a file in MRC, its sections first.
pub(super) fn decode(content: &Content) -> io::Result<Variable<'static>> {
    let header = content.bytes(0, 1024).map_err(|_| cut_short("in its header"))?;
    if &header[208..212] != b"MAP " || header[212] != 0x44 {
        return Err(wrong(
            "it does not begin as a file in MRC with the least significant byte first",
        ));
    }
    let word = |k: usize| {
        let at = 4 * (k - 1);
        i32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let count = |k: usize| {
        let expected = || wrong(format!("word {k} of its header is {}: expected a count", word(k)));
        usize::try_from(word(k)).map_err(|_| expected())
    };
    let (bytes, is_complex) = match word(4) {
        2 => (4, false),
        4 => (8, true),
        mode => {
            return Err(wrong(format!("it is of mode {mode}: expected 2 or 4, single precision")));
        }
    };
    let sides = [count(3)?, count(2)?, count(1)?];
    let labels = (0..count(56)?.min(10)).map(|k| &header[224 + 80 * k..304 + 80 * k]);
    let labels: Vec<_> = labels.map(|label| String::from_utf8_lossy(label)).collect();
    let name = labels.first().and_then(|label| label.trim_end().rsplit_once(": "));
    let name = name.map_or("image", |(_, name)| name).to_string();
    let described = labels.iter().skip(1).map(|label| described(label.trim_end()));
    let described = described.collect::<Option<Vec<_>>>().unwrap_or_default();
    let (mut shape, mut dimensions): (Vec<_>, Vec<_>) = described.into_iter().rev().unzip();
    let product = |shape: &[usize]| shape.iter().try_fold(1_usize, |all, n| all.checked_mul(*n));
    if shape.is_empty() || product(&shape) != product(&sides) {
        let names = ["section", "row", "column"];
        (shape, dimensions) = (sides.to_vec(), names.map(Coordinate::index).to_vec());
    }
    let number = Number { kind: Kind::Float, bytes, big_endian: false };
    let start = u64::try_from(word(24)).unwrap_or(0) + 1024;
    content.part(start, 0).ok_or_else(|| cut_short("in its header"))?;
    let array = content.array(ElementForm { number, is_complex }, start, (&shape, false))?;
    Ok(Variable { dimensions, ..Variable::unnamed(&name, Values::Array(array)) })
}

// Decode a label of MRC
/// Length and coordinate of a label such as `rows: 5 of qy [1/A] from -0.25 by 0.125`.
fn described(label: &str) -> Option<(usize, Coordinate)> {
    let (_, rest) = label.split_once(": ")?;
    let (count, rest) = rest.split_once(" of ")?;
    let (name, rest) = rest.split_once(" [")?;
    let (unit, rest) = rest.split_once("] ")?;
    let positions = match rest.strip_prefix("from ") {
        Some(uniform) => {
            let (offset, step) = uniform.split_once(" by ")?;
            Positions::Uniform { offset: offset.parse().ok()?, step: step.parse().ok()? }
        }
        None => {
            let values = rest.strip_prefix("at [")?.strip_suffix(']')?.split(", ");
            Positions::Values(values.map(|x| x.parse().ok()).collect::<Option<Vec<f64>>>()?)
        }
    };
    let unit = unit.replace('A', "Å");
    Some((count.parse().ok()?, Coordinate { unit, positions, ..Coordinate::index(name) }))
}
