// Tangled from book/src/mrc.md: edit there, or here and run cargo tangle stitch.
//! The format MRC: images in a stack behind a header of 1024 bytes.

// Imports of files in MRC
use crate::data::{Coordinate, TypedArray, Variable};
use crate::error::{Invalid, accept};
use std::io::{self, Write};

// Lay a variable out in sections
// Sides and volumes of sections
/// Layout of a variable's dimensions in sections.
struct Sections<'s> {
    /// The axes in the order in which they are written, columns last.
    order: Vec<usize>,
    /// Columns, rows, sections of a volume: samples, and the axis if there is one.
    sides: [(usize, Option<&'s Coordinate>); 3],
    /// Samples and dimensions that count the volumes, the fastest first.
    volumes: Vec<(usize, &'s Coordinate)>,
}

impl<'s> Sections<'s> {
    /// # Errors
    /// `Invalid` for a variable with more samples than the format counts.
    fn of(variable: &'s Variable) -> Result<Self, Invalid> {
        let (axes, shape) = (&variable.dimensions, variable.shape());
        let mut order = variable.picture_order();
        let [series, scanned, recorded] = variable.kinds();
        if [scanned, recorded] == [2, 1] {
            order[series..].rotate_right(1);
        }
        let (mut sides, mut volumes) = ([(1, None); 3], Vec::new());
        for (place, &k) in order.iter().rev().enumerate() {
            let quantity = format!("samples of {} along {}", variable.name, axes[k].name);
            accept(shape[k] < 1 << 31, &quantity, shape[k], "fewer than 2147483648")?;
            match sides.get_mut(place) {
                Some(side) => *side = (shape[k], Some(&axes[k])),
                None => volumes.push((shape[k], &axes[k])),
            }
        }
        // Count the sections of a stack
        let quantity = format!("sections of {}", variable.name);
        let counts = volumes.iter().map(|(count, _)| *count);
        let sections = counts.fold(sides[2].0, usize::saturating_mul);
        accept(sections < 1 << 31, &quantity, sections, "fewer than 2147483648")?;
        Ok(Self { order, sides, volumes })
    }
}

// Range of the numbers of a variable
/// Least and largest number, mean and standard deviation.
fn range_of(variable: &Variable) -> Result<[f32; 4], Invalid> {
    let (mut least, mut largest, mut sum, mut count) = (f64::INFINITY, 0.0_f64, 0.0, 0.0);
    let array =
        variable.array().ok_or_else(|| Invalid::new(&variable.name, "no array", "an array"))?;
    let complex = array.is_complex();
    let value = |[x, y]: [f64; 2]| if complex { x.hypot(y) } else { x };
    let mut extreme = 0.0_f64;
    array.for_each(|parts| {
        let x = value(parts);
        (least, largest) = (least.min(x), if count == 0.0 { x } else { largest.max(x) });
        extreme = extreme.max(parts[0].abs()).max(parts[1].abs());
        (sum, count) = (sum + x, count + 1.0);
    });
    let expected = "numbers within single precision, in which MRC holds them";
    accept(extreme <= f64::from(f32::MAX), &variable.name, extreme, expected)?;
    let (mean, mut squares) = (sum / count, 0.0);
    array.for_each(|parts| squares += (value(parts) - mean).powi(2));
    Ok([least, largest, mean, (squares / count).sqrt()].map(|x| x as f32))
}

// First 1024 bytes of a file in MRC
/// Bytes of the header, and letters of each of its labels.
const HEADER: usize = 1024;
const LABEL: usize = 80;

fn header(variable: &Variable, sections: &Sections, range: [f32; 4]) -> Vec<u8> {
    let mut words = [[0_u8; 4]; HEADER / 4];
    let [columns, rows, deep] = sections.sides.map(|(count, _)| count as i32);
    let volumes = sections.volumes.iter().map(|(count, _)| *count as i32).product::<i32>();
    let volume = volumes > 1;
    let mode = if variable.array().is_some_and(TypedArray::is_complex) { 4 } else { 2 };
    let space_group = if volume { 401 } else { 0 };
    let mut whole = |word: usize, values: &[i32]| {
        values.iter().zip(word..).for_each(|(x, word)| words[word - 1] = x.to_le_bytes());
    };
    whole(1, &[columns, rows, deep * volumes, mode]);
    let depth = if volume { deep } else { 1 };
    whole(8, &[columns, rows, depth]);
    whole(17, &[1, 2, 3]);
    whole(23, &[space_group]);
    whole(28, &[20141]);
    // Steps and range of the sections
    let mut real = |word: usize, values: &[f32]| {
        values.iter().zip(word..).for_each(|(x, word)| words[word - 1] = x.to_le_bytes());
    };
    let scale = |k: usize| sections.sides[k].1.map_or(1.0, Coordinate::step);
    let offset = |k: usize| sections.sides[k].1.map_or(0.0, Coordinate::offset) as f32;
    let side = |k: usize, count: i32| (scale(k).abs() * f64::from(count)) as f32;
    real(11, &[side(0, columns), side(1, rows), side(2, depth), 90.0, 90.0, 90.0]);
    real(20, &range[..3]);
    real(50, &[0, 1, 2].map(offset));
    real(55, &range[3..]);
    // Marks and labels in words and letters
    let mut labels = vec![format!("lenslet {}: {}", env!("CARGO_PKG_VERSION"), variable.name)];
    let mut label = |name: &str, count: usize, axis: &Coordinate| {
        let Coordinate { name: of, unit, .. } = axis;
        let (offset, step, values) = (axis.offset(), axis.step(), axis.values());
        labels.push(match axis.is_uniform() {
            true => format!("{name}: {count} of {of} [{unit}] from {offset} by {step}"),
            false => format!("{name}: {count} of {of} [{unit}] at {values:?}"),
        });
    };
    for (name, (count, axis)) in ["columns", "rows", "sections"].into_iter().zip(sections.sides) {
        axis.into_iter().for_each(|axis| label(name, count, axis));
    }
    let all = sections.volumes.iter();
    all.for_each(|(count, axis)| label("volumes", *count, axis));
    labels.truncate(10);
    words[52] = *b"MAP ";
    words[53] = [0x44, 0x44, 0, 0];
    words[55] = (labels.len() as i32).to_le_bytes();
    let mut bytes = words.concat();
    for (label, k) in labels.iter().zip(0..) {
        let ascii = label.replace('Å', "A").into_bytes().into_iter();
        let plain = ascii.map(|c| if (b' '..=b'~').contains(&c) { c } else { b'?' });
        let at = 224 + LABEL * k;
        bytes.splice(at..at + LABEL, plain.chain(std::iter::repeat(b' ')).take(LABEL));
    }
    bytes
}

// Write a variable in MRC
impl Variable<'_> {
    /// Checks that the variable fits into this format.
    ///
    /// # Errors
    /// `Invalid` for more samples than the format counts, or numbers beyond single precision.
    pub(super) fn check_mrc(&self) -> Result<(), Invalid> {
        Sections::of(self).and_then(|_| range_of(self)).map(drop)
    }

    /// Writes the variable behind its header.
    pub(super) fn write_mrc(&self, file: &mut impl Write) -> io::Result<()> {
        let sections = Sections::of(self).map_err(io::Error::other)?;
        let range = range_of(self).map_err(io::Error::other)?;
        file.write_all(&header(self, &sections, range))?;
        if let Some(array) = self.array() {
            array.permuted(&sections.order).write_single(file)?;
        }
        file.flush()
    }
}

// Tests of files in MRC
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSet;
    use crate::files::variables::tests::lopsided;
    use ndarray::{Array1, ArrayD, Dimension, IxDyn};

    fn written(data: &DataSet, title: &str) -> Vec<u8> {
        let variable = data.get(title).unwrap();
        let mut file = Vec::new();
        variable.write_mrc(&mut file).unwrap();
        file
    }

    fn whole(file: &[u8], word: usize) -> i32 {
        i32::from_le_bytes(file[4 * word - 4..4 * word].try_into().unwrap())
    }

    fn real(file: &[u8], word: usize) -> f32 {
        f32::from_bits(whole(file, word).cast_unsigned())
    }

    // Find a stack of patterns in MRC
    #[test]
    fn patterns_are_volumes_of_sections() {
        let file = written(&lopsided(), "four_d");
        assert_eq!(file.len(), 1024 + 4 * 4 * 3 * 7 * 5);
        assert_eq!([1, 2, 3, 4].map(|word| whole(&file, word)), [7, 5, 12, 2]);
        assert_eq!([8, 9, 10, 23, 28].map(|word| whole(&file, word)), [7, 5, 4, 401, 20141]);
        assert_eq!([11, 12, 13, 14].map(|word| real(&file, word)), [1.75, 0.625, 2.0, 90.0]);
        assert_eq!(
            [20, 21, 50, 51, 52].map(|word| real(&file, word)),
            [0.25, 3264.25, -0.75, -0.25, 1.25]
        );
        assert_eq!((&file[208..216], whole(&file, 56)), (&b"MAP \x44\x44\0\0"[..], 5));
        // The pattern of the scan's third place along x and second along y: section 1 · 4 + 2, row q_y = 3, column q_x = 6.
        let at = 1024 + 4 * (((4 + 2) * 5 + 3) * 7 + 6);
        assert_eq!(real(&file, at / 4 + 1), 2163.25);
        let label = String::from_utf8(file[304..384].to_vec()).unwrap();
        assert_eq!(label.trim_end(), "columns: 7 of qx [1/A] from -0.75 by 0.25");
    }

    // Find other shapes in MRC
    #[test]
    fn bins_are_images_of_the_scan() {
        let data = lopsided();
        let file = written(&data, "annular");
        assert_eq!([1, 2, 3, 10, 23].map(|word| whole(&file, word)), [4, 3, 12, 6, 401]);
        assert_eq!([11, 12, 13].map(|word| (10.0 * real(&file, word)).round()), [20.0, 6.0, 90.0]);
        let at = 1024 + 4 * (((6 + 5) * 3 + 2) * 4 + 1);
        assert_eq!(real(&file, at / 4 + 1), (1000.0 + 125.0) / 7.0);
        let label =
            |k: usize| String::from_utf8_lossy(&file[224 + 80 * k..304 + 80 * k]).into_owned();
        assert_eq!(label(4).trim_end(), "volumes: 2 of thickness [A] from 20 by 20");
        let file = written(&data, "probe");
        assert_eq!([1, 2, 3, 4].map(|word| whole(&file, word)), [4, 3, 1, 4]);
        let at = 1024 + 8 * (2 * 4 + 1);
        assert_eq!([1, 2].map(|k| real(&file, at / 4 + k)), [1.5, -2.0]);
        assert_eq!([20, 21].map(|word| real(&file, word)), [0.5, 3.5_f32.hypot(2.0)]);
    }

    // Refuse what MRC cannot hold
    #[test]
    fn more_axes_are_volumes_and_too_large_numbers_are_refused() {
        let axis = |k: usize| Coordinate::signal(&format!("a{k}"), "", 0.0, 1.0).unwrap();
        let shape = IxDyn(&[2, 3, 4, 5, 6]);
        let value = |k: IxDyn| k.slice().iter().fold(0.0, |all, &k| 10.0 * all + k as f64);
        let five = ArrayD::from_shape_fn(shape, value);
        let mut data = DataSet::default();
        let five = Variable::new("five", five, (0..5).map(axis).collect()).unwrap();
        data.insert(five).unwrap();
        let file = written(&data, "five");
        assert_eq!([1, 2, 3, 10, 23, 56].map(|word| whole(&file, word)), [6, 5, 24, 4, 401, 6]);
        let at = 1024 + 4 * ((((3 + 2) * 4 + 3) * 5 + 4) * 6 + 5);
        assert_eq!(real(&file, at / 4 + 1), 12345.0);
        let large = Variable::new("large", Array1::from(vec![1.0, -1e39]), vec![axis(0)]).unwrap();
        assert!(large.check_mrc().unwrap_err().to_string().starts_with("large = 1e39: expected"));
        assert!(matches!(large.array(), Some(TypedArray::F64(_))));
        let low = Variable::new("low", Array1::from(vec![-3.0, -1.0]), vec![axis(0)]).unwrap();
        assert_eq!(range_of(&low), Ok([-3.0, -1.0, -2.0, 1.0]));
    }
}
