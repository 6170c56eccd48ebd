// Tangled from book/src/telemetry-files.md: edit there, or here and run cargo tangle stitch.
//! Telemetry of adaptive optics in the format AOT 2.0: tables whose rows point at each other and at images.

// Imports of telemetry files
// Modules of telemetry
pub(crate) mod system;
#[cfg(feature = "factorise")]
mod correction;

use crate::data::{DataSet, Values, Variable};
use crate::device::refuse_beyond_memory;
use crate::error::{Error, Invalid};
use crate::files::fits::{BLOCK, Cards, HeaderKeys, read_keys};
use crate::files::npz::{Kind, Number};
use crate::files::provenance::Provenance;
use crate::files::reading::{ArrayHeader, ReadRequest, Unit, cut_short};
use crate::numerics::real::Precision;
use ndarray::ArrayD;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

// Tables and columns of telemetry
/// The version of the format.
pub(crate) const VERSION: &str = "2.0.0";

// Forms of the cells of telemetry
/// What the cells of a column hold.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ColumnKind {
    Text,
    Whole,
    Real,
    List,
}

/// The whole number that stands for an unknown one.
const UNKNOWN: i64 = -32_768;

/// Name, whether it must be there, and columns of each table.
const TABLES: [(&str, bool, &str); 17] = [
    // Tables of the air and of stars
    ("AOT_TIME", true, "UID:A TIMESTAMPS:L:s FRAME_NUMBERS:L:count"),
    (
        "AOT_ATMOSPHERIC_PARAMETERS",
        true,
        "UID:A WAVELENGTH:D:m TIME_UID:A R0:L:m SEEING:L:arcsec TAU0:L:s THETA0:L:rad LAYERS_REL_WEIGHT:A LAYERS_HEIGHT:A \
         LAYERS_LO:A LAYERS_WIND_SPEED:A LAYERS_WIND_DIRECTION:A TRANSFORMATION_MATRIX:A",
    ),
    ("AOT_ABERRATIONS", true, "UID:A MODES:A COEFFICIENTS:A X_OFFSETS:L:rad Y_OFFSETS:L:rad"),
    (
        "AOT_TELESCOPES",
        true,
        "UID:A TYPE:A LATITUDE:D:deg LONGITUDE:D:deg ELEVATION:D:deg AZIMUTH:D:deg PARALLACTIC:D:deg PUPIL_MASK:A \
         PUPIL_ANGLE:D:rad ENCLOSING_D:D:m INSCRIBED_D:D:m OBSTRUCTION_D:D:m SEGMENT_TYPE:A SEGMENT_SIZE:D:m SEGMENTS_X:L:m \
         SEGMENTS_Y:L:m TRANSFORMATION_MATRIX:A ABERRATION_UID:A",
    ),
    (
        "AOT_SOURCES",
        true,
        "UID:A TYPE:A RIGHT_ASCENSION:D:deg DECLINATION:D:deg ELEVATION_OFFSET:D:deg AZIMUTH_OFFSET:D:deg FWHM:D:rad",
    ),
    ("AOT_SOURCES_SODIUM_LGS", false, "UID:A HEIGHT:D:m PROFILE:A ALTITUDES:L:m LLT_UID:A"),
    ("AOT_SOURCES_RAYLEIGH_LGS", false, "UID:A DISTANCE:D:m DEPTH:D:m LLT_UID:A"),
    // Tables of sensors and cameras
    (
        "AOT_DETECTORS",
        true,
        "UID:A TYPE:A SAMPLING_TECHNIQUE:A SHUTTER_TYPE:A FLAT_FIELD:A READOUT_NOISE:D:electron*s^-1*pix^-1 \
         PIXEL_INTENSITIES:A FIELD_CENTRE_X:D:pix FIELD_CENTRE_Y:D:pix INTEGRATION_TIME:D:s COADDS:K:count DARK:A WEIGHT_MAP:A \
         QUANTUM_EFFICIENCY:D PIXEL_SCALE:D:rad*pix^-1 BINNING:K:count BANDWIDTH:D:m TRANSMISSION_WAVELENGTH:L:m \
         TRANSMISSION:L SKY_BACKGROUND:A GAIN:D:electron EXCESS_NOISE:D:electron FILTER:A BAD_PIXEL_MAP:A DYNAMIC_RANGE:D:dB \
         READOUT_RATE:D:pix*s^-1 FRAME_RATE:D:frame*s^-1 TRANSFORMATION_MATRIX:A",
    ),
    (
        "AOT_SCORING_CAMERAS",
        true,
        "UID:A PUPIL_MASK:A WAVELENGTH:D:m TRANSFORMATION_MATRIX:A DETECTOR_UID:A ABERRATION_UID:A",
    ),
    (
        "AOT_WAVEFRONT_SENSORS",
        true,
        "UID:A TYPE:A SOURCE_UID:A DIMENSIONS:K:count N_VALID_SUBAPERTURES:K:count MEASUREMENTS:A REF_MEASUREMENTS:A \
         SUBAPERTURE_MASK:A MASK_X_OFFSETS:L:pix MASK_Y_OFFSETS:L:pix SUBAPERTURE_SIZE:D:pix SUBAPERTURE_INTENSITIES:A \
         WAVELENGTH:D:m OPTICAL_GAIN:A TRANSFORMATION_MATRIX:A DETECTOR_UID:A ABERRATION_UID:A NCPA_UID:A",
    ),
    (
        "AOT_WAVEFRONT_SENSORS_SHACK_HARTMANN",
        false,
        "UID:A CENTROIDING_ALGORITHM:A CENTROID_GAINS:A SPOT_FWHM:A",
    ),
    ("AOT_WAVEFRONT_SENSORS_PYRAMID", false, "UID:A N_SIDES:K:count MODULATION:D:m"),
    // Tables of correctors and loops
    (
        "AOT_WAVEFRONT_CORRECTORS",
        true,
        "UID:A TYPE:A TELESCOPE_UID:A N_VALID_ACTUATORS:K:count PUPIL_MASK:A TFZ_NUM:L TFZ_DEN:L TRANSFORMATION_MATRIX:A \
         ABERRATION_UID:A",
    ),
    (
        "AOT_WAVEFRONT_CORRECTORS_DM",
        false,
        "UID:A ACTUATORS_X:L:m ACTUATORS_Y:L:m INFLUENCE_FUNCTION:A STROKE:D:m",
    ),
    (
        "AOT_LOOPS",
        true,
        "UID:A TYPE:A COMMANDED_UID:A TIME_UID:A STATUS:A COMMANDS:A REF_COMMANDS:A FRAMERATE:D:Hz DELAY:D:frame \
         TIME_FILTER_NUM:A TIME_FILTER_DEN:A",
    ),
    (
        "AOT_LOOPS_CONTROL",
        false,
        "UID:A INPUT_SENSOR_UID:A MODES:A MODAL_COEFFICIENTS:A CONTROL_MATRIX:A MEASUREMENTS_TO_MODES:A \
         MODES_TO_COMMANDS:A INTERACTION_MATRIX:A COMMANDS_TO_MODES:A MODES_TO_MEASUREMENTS:A RESIDUAL_COMMANDS:A",
    ),
    ("AOT_LOOPS_OFFLOAD", false, "UID:A INPUT_CORRECTOR_UID:A OFFLOAD_MATRIX:A"),
];

// Names forms and units of columns
/// Name, form and unit of each column of a table.
fn columns(table: usize) -> impl Iterator<Item = (&'static str, ColumnKind, &'static str)> {
    TABLES[table].2.split_whitespace().map(|column| {
        let mut parts = column.splitn(3, ':');
        let [name, form, unit] = [0; 3].map(|_| parts.next().unwrap_or_default());
        let form = match form {
            "A" => ColumnKind::Text,
            "K" => ColumnKind::Whole,
            "D" => ColumnKind::Real,
            _ => ColumnKind::List,
        };
        (name, form, unit)
    })
}

// Rows of telemetry
/// What a row says in a column.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Text(String),
    /// A number; `None` where it is unknown.
    Number(Option<f64>),
    List(Vec<f64>),
}

// Fill a row of telemetry
/// A row of a table in the making: its cells by the names of their columns.
#[derive(Debug, Default)]
pub(crate) struct AotRow(BTreeMap<&'static str, Cell>);

impl AotRow {
    pub(crate) fn text(&mut self, column: &'static str, text: &str) -> &mut Self {
        self.0.insert(column, Cell::Text(text.into()));
        self
    }

    pub(crate) fn number(&mut self, column: &'static str, number: f64) -> &mut Self {
        self.0.insert(column, Cell::Number(Some(number)));
        self
    }

    pub(crate) fn list(&mut self, column: &'static str, list: Vec<f64>) -> &mut Self {
        self.0.insert(column, Cell::List(list));
        self
    }

    /// Points at a row of another table.
    pub(crate) fn row(&mut self, column: &'static str, uid: &str) -> &mut Self {
        self.text(column, &format!("ROWREF<{uid}>"))
    }

    /// Points at an image.
    pub(crate) fn image(&mut self, column: &'static str, name: &str) -> &mut Self {
        self.text(column, &format!("INTREF<{}>", name.to_ascii_uppercase()))
    }
}

// Telemetry in the making
/// Telemetry that will go into a file: rows of the tables, and the images that they name.
///
/// [`Telemetry::of`] begins it with a system; mirrors, loops and slopes are added to that.
#[derive(Debug)]
pub struct Telemetry<'a> {
    mode: String,
    /// The text that describes the system.
    config: Option<String>,
    tables: [Vec<AotRow>; TABLES.len()],
    pub(crate) images: DataSet<'a>,
}

impl<'a> Telemetry<'a> {
    /// Nothing yet, of a system of this mode: `SCAO`, `SLAO`, `GLAO`, `MOAO`, `LTAO` or `MCAO`.
    pub(crate) fn empty(mode: &str) -> Self {
        let (tables, images) = (std::array::from_fn(|_| Vec::new()), DataSet::default());
        Self { mode: mode.into(), config: None, tables, images }
    }

    // Rows of telemetry's tables
    /// Begins a row of a table of the format.
    pub(crate) fn row(&mut self, table: &str, uid: &str) -> &mut AotRow {
        let number = TABLES.iter().position(|(name, ..)| *name == table);
        let rows = &mut self.tables[number.unwrap_or_else(|| unreachable!("a table {table}"))];
        rows.push(AotRow::default());
        let last = rows.len() - 1;
        rows[last].text("UID", uid);
        &mut rows[last]
    }

    /// A row that there is, to say more in it.
    pub(crate) fn change(&mut self, table: &str, row: usize) -> &mut AotRow {
        let number = TABLES.iter().position(|(name, ..)| *name == table);
        &mut self.tables[number.unwrap_or_else(|| unreachable!("a table {table}"))][row]
    }

    /// How many rows a table has; none, if the format has no such table.
    pub fn rows(&self, table: &str) -> usize {
        let number = TABLES.iter().position(|(name, ..)| *name == table);
        number.map_or(0, |number| self.tables[number].len())
    }

    /// The mode of correction, in place of the first.
    #[cfg(feature = "factorise")]
    pub(crate) fn set_mode(&mut self, mode: &str) {
        self.mode = mode.to_ascii_uppercase();
    }

    // Say where telemetry comes from
    /// The text that describes the system, which `CONFIG` is for. Line ends and letters that FITS does not have are written as Python escapes
    /// them: `config.encode().decode("unicode_escape")` is the text again.
    pub fn config(&mut self, text: &str) {
        let escaped = |c: char| match c {
            '\\' => "\\\\".into(),
            '\n' => "\\n".into(),
            ' '..='~' => c.to_string(),
            _ if u32::from(c) < 0x1_0000 => format!("\\u{:04x}", u32::from(c)),
            _ => format!("\\U{:08x}", u32::from(c)),
        };
        self.config = Some(text.chars().map(escaped).collect());
    }

    /// Notes where the file comes from; the text of the system is its [`config`](Self::config).
    pub fn origin(&mut self, origin: Provenance) {
        origin.note(&mut self.images);
        if let Some(Variable { values: Values::Text(text), .. }) = self.images.variables.pop() {
            self.config(&text);
        }
    }

    // Write telemetry into a file
    /// Writes a file, results in the given precision.
    ///
    /// # Errors
    /// What the operating system says, or that a number is beyond the range of single precision.
    pub fn write(&self, mut file: impl Write, precision: Precision) -> io::Result<()> {
        let mut cards = Cards::first();
        cards.text("AOT-VERS", VERSION);
        cards.text("AO-MODE", &self.mode);
        cards.text("TIMESYS", "UTC");
        self.images.write_attributes(&mut cards);
        if let Some(config) = &self.config {
            cards.long_text("CONFIG", config);
        }
        file.write_all(&cards.finish())?;
        for (table, (rows, (_, always, _))) in self.tables.iter().zip(&TABLES).enumerate() {
            if *always || !rows.is_empty() {
                write_table(table, rows, &mut file)?;
            }
        }
        self.images.write_extensions(&mut file, precision)?;
        file.flush()
    }
}

// Write a table with its heap
/// Writes a table of the format with these rows.
fn write_table(table: usize, rows: &[AotRow], file: &mut impl Write) -> io::Result<()> {
    debug_assert!(
        rows.iter().flat_map(|row| row.0.keys()).all(|key| columns(table).any(|c| c.0 == *key))
    );
    let (mut width, mut forms) = (0, Vec::new());
    for (name, form, unit) in columns(table) {
        let length = |row: &AotRow| match row.0.get(name) {
            Some(Cell::Text(text)) => text.chars().count(),
            Some(Cell::List(list)) => list.len(),
            _ => 0,
        };
        let longest = rows.iter().map(length).max().unwrap_or(0);
        // Bytes and format of a column
        let (bytes, format) = match form {
            ColumnKind::Text => (longest.max(1), format!("{}A", longest.max(1))),
            ColumnKind::Whole => (8, "1K".into()),
            ColumnKind::Real => (8, "1D".into()),
            ColumnKind::List => (16, format!("QD({longest})")),
        };
        width += bytes;
        forms.push((name, form, unit, bytes, format));
    }
    // Lay out the rows of a table
    let (mut bytes, mut heap) = (Vec::with_capacity(width * rows.len()), Vec::new());
    for row in rows {
        for (name, form, _, width, _) in &forms {
            match (form, row.0.get(name)) {
                (ColumnKind::Text, cell) => {
                    let text = if let Some(Cell::Text(text)) = cell { text } else { "" };
                    let ascii =
                        text.chars().map(|c| if (' '..='~').contains(&c) { c as u8 } else { b'?' });
                    bytes.extend(ascii.chain(std::iter::repeat(b' ')).take(*width));
                }
                (ColumnKind::List, cell) => {
                    let list = if let Some(Cell::List(list)) = cell { &list[..] } else { &[] };
                    bytes.extend((list.len() as u64).to_be_bytes());
                    bytes.extend((heap.len() as u64).to_be_bytes());
                    heap.extend(list.iter().flat_map(|x| x.to_be_bytes()));
                }
                (ColumnKind::Real, Some(Cell::Number(Some(x)))) => bytes.extend(x.to_be_bytes()),
                (ColumnKind::Real, _) => bytes.extend(f64::NAN.to_be_bytes()),
                (ColumnKind::Whole, Some(Cell::Number(Some(x)))) => {
                    bytes.extend((*x as i64).to_be_bytes())
                }
                (ColumnKind::Whole, _) => bytes.extend(UNKNOWN.to_be_bytes()),
            }
        }
    }
    // Describe a table and its columns
    let mut header = Cards::default();
    header.text("XTENSION", "BINTABLE");
    header.value("BITPIX", 8, "");
    header.value("NAXIS", 2, "");
    header.value("NAXIS1", width, "bytes of a row");
    header.value("NAXIS2", rows.len(), "rows");
    header.value("PCOUNT", heap.len(), "bytes of lists behind the rows");
    header.value("GCOUNT", 1, "");
    header.value("TFIELDS", forms.len(), "columns");
    header.long_text("EXTNAME", TABLES[table].0);
    for (k, (name, form, unit, _, format)) in forms.iter().enumerate() {
        let key = |word: &str| format!("{word}{}", k + 1);
        header.text(&key("TTYPE"), name);
        header.text(&key("TFORM"), format);
        if !unit.is_empty() {
            header.text(&key("TUNIT"), unit);
        }
        if *form == ColumnKind::Whole {
            header.value(&key("TNULL"), UNKNOWN, "unknown");
        }
    }
    file.write_all(&header.finish())?;
    let length = bytes.len() + heap.len();
    file.write_all(&bytes)?;
    file.write_all(&heap)?;
    file.write_all(&vec![0; length.next_multiple_of(BLOCK) - length])
}

// Telemetry in a file
/// Telemetry in a file: its tables, and where its images are.
///
/// ```
/// use lenslet::formats::{Telemetry, TelemetryFile};
/// use lenslet::{model::System, numerics::Precision};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let path = std::env::temp_dir().join(format!("lenslet-{}.aot.fits", std::process::id()));
/// Telemetry::of(&system).write(std::fs::File::create(&path)?, Precision::F64)?;
/// let file = TelemetryFile::open(&path)?;
/// assert_eq!((file.mode(), file.rows("AOT_SOURCES")), ("MOAO", 5)); // three guide stars, two targets
/// std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TelemetryFile {
    path: PathBuf,
    file: File,
    keywords: BTreeMap<String, String>,
    tables: BTreeMap<String, Vec<BTreeMap<String, Cell>>>,
    images: Vec<Placed>,
}

// Image of a file and its place
/// An image of a file: its name, the keys of its header, and where its data begin.
#[derive(Debug)]
struct Placed {
    name: String,
    keys: BTreeMap<String, String>,
    start: u64,
}

impl TelemetryFile {
    // Open a telemetry file
    /// Opens a file, reads its tables and finds its images.
    ///
    /// # Errors
    /// `Read` where the file cannot be read or is cut short; `Invalid`, with file, unit and key, where it is no telemetry of version 2.0.0, a table
    /// is missing or has columns that make no sense.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Read { path: path.into(), source };
        let file = File::open(path).map_err(unreadable)?;
        let keywords = read_keys(&mut BufReader::new(&file), 0).map_err(unreadable)?;
        let version = keywords.as_ref().and_then(|keys| keys.get("AOT-VERS"));
        let (tables, images) = (BTreeMap::new(), Vec::new());
        let mut opened =
            Self { path: path.into(), file, keywords: BTreeMap::new(), tables, images };
        if version.map(String::as_str) != Some(VERSION) {
            let value = version.map_or("nothing", String::as_str);
            return Err(opened.refuse(
                "AOT-VERS",
                value,
                &format!("{VERSION}, the version of telemetry that is known here"),
            ));
        }
        opened.keywords = keywords.unwrap_or_default();
        opened.read_units()?;
        let missing =
            TABLES.iter().find(|(name, always, _)| *always && !opened.tables.contains_key(*name));
        match missing {
            None => Ok(opened),
            Some((name, ..)) => {
                let there: Vec<&str> = opened.tables.keys().map(String::as_str).collect();
                Err(opened.refuse("tables", there.join(", "), &format!("{name} among them")))
            }
        }
    }

    // Tell the parts of a telemetry file
    /// The name of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The mode of correction, in capitals; empty where the file does not tell it.
    pub fn mode(&self) -> &str {
        self.keywords.get("AO-MODE").map_or("", String::as_str)
    }

    /// How many rows a table has.
    pub fn rows(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, Vec::len)
    }

    /// The rows of a table.
    pub(crate) fn table(&self, table: &'static str) -> impl ExactSizeIterator<Item = RowOf<'_>> {
        let rows = self.tables.get(table).map_or(&[][..], Vec::as_slice);
        rows.iter().enumerate().map(move |(number, cells)| RowOf {
            file: self,
            table,
            number,
            cells,
        })
    }

    /// A complaint about something in the file.
    pub(crate) fn refuse(&self, what: &str, value: impl Display, expected: &str) -> Error {
        Invalid::new(format!("{}: {what}", self.path.display()), value, expected).into()
    }
}

// Read and check telemetry
// Tell telemetry from other files
/// Whether a file is telemetry of whatever version; a pipe, or a file that cannot be read, is not.
pub fn is_telemetry(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let keys = File::open(path).and_then(|file| read_keys(&mut BufReader::new(file), 0));
    keys.is_ok_and(|keys| keys.is_some_and(|keys| keys.contains_key("AOT-VERS")))
}

// Read the units of telemetry
impl TelemetryFile {
    /// Reads all headers behind the first, and the tables.
    fn read_units(&mut self) -> Result<(), Error> {
        let unreadable = |path: &Path, source| Error::Read { path: path.into(), source };
        let (path, handle) = (self.path.clone(), self.file.try_clone());
        let mut file = BufReader::new(handle.map_err(|error| unreadable(&path, error))?);
        let refuse = |source| unreadable(&path, source);
        let end = file.seek(SeekFrom::End(0)).map_err(refuse)?;
        file.rewind().map_err(refuse)?;
        for unit in 0.. {
            let Some(keys) = read_keys(&mut file, unit).map_err(refuse)? else { break };
            let name = keys.get("EXTNAME").cloned().unwrap_or_default().to_ascii_uppercase();
            let place = PathBuf::from(format!(
                "{}[{}]",
                path.display(),
                if name.is_empty() { unit.to_string() } else { name.clone() }
            ));
            let request =
                ReadRequest { path: &place, choice: None, axes: [0; 2], unit: Unit::None };
            let keys = HeaderKeys { keys, request: &request };
            let length = keys.data_bytes(&keys.shape("NAXIS")?)?;
            let start = file.stream_position().map_err(refuse)?;
            if start.saturating_add(length) > end {
                return Err(unreadable(&place, cut_short("in its data")));
            }
            if TABLES.iter().any(|(known, ..)| *known == name) && !self.tables.contains_key(&name) {
                keys.refuse_large_table(length)?;
                let mut bytes = Vec::new();
                file.by_ref().take(length).read_to_end(&mut bytes).map_err(refuse)?;
                self.tables.insert(name, read_table(&keys, &bytes)?);
            } else if keys.keys.get("XTENSION").is_some_and(|kind| kind == "IMAGE") {
                self.images.push(Placed { name, keys: keys.keys, start });
            }
            let blocks = length.div_ceil(BLOCK as u64) * BLOCK as u64;
            file.seek(SeekFrom::Start(start + blocks)).map_err(refuse)?;
        }
        Ok(())
    }
}

// Compare a table with the memory
impl HeaderKeys<'_> {
    /// Bytes that a cell takes in memory, with its name.
    const CELL: u64 = 128;

    /// Rejects a table of so many bytes that does not fit into the memory.
    fn refuse_large_table(&self, length: u64) -> Result<(), Error> {
        let cells = [self.number::<u64>("NAXIS2", Some(0))?, self.number("TFIELDS", Some(0))?];
        let cells = cells[0].min(length).saturating_mul(cells[1].saturating_add(1));
        let needed = length.saturating_add(cells.saturating_mul(Self::CELL));
        refuse_beyond_memory(needed, || format!("{}: the table", self.request.path.display()))
    }
}

// Read a table with its heap
/// The rows of a table with these keys.
fn read_table(keys: &HeaderKeys, bytes: &[u8]) -> Result<Vec<BTreeMap<String, Cell>>, Error> {
    let [width, rows]: [usize; 2] = [keys.number("NAXIS1", None)?, keys.number("NAXIS2", None)?];
    let fields: usize = keys.number("TFIELDS", None)?;
    let heap = keys.number("THEAP", Some(width.saturating_mul(rows)))?;
    let heap = bytes.get(heap..).unwrap_or_default();
    let mut table = vec![BTreeMap::new(); bytes.len().checked_div(width).unwrap_or(0).min(rows)];
    let mut start = 0_usize;
    for field in 1..=fields {
        let key = |word: &str| format!("{word}{field}");
        let form = keys.keys.get(&key("TFORM")).cloned().unwrap_or_default();
        let refuse = || {
            keys.refuse(
                &key("TFORM"),
                &form,
                "a form of FITS, such as 1D, and columns within the row",
            )
        };
        let (count, letter) = split_form(&form).ok_or_else(refuse)?;
        let length = bytes_of_cell(count, letter).ok_or_else(refuse)?;
        let place = start..start.saturating_add(length);
        if place.end > width {
            return Err(refuse());
        }
        start = place.end;
        let name = keys.keys.get(&key("TTYPE")).cloned().unwrap_or_default();
        for (row, cells) in bytes.chunks_exact(width.max(1)).zip(&mut table) {
            let cell = &row[place.clone()];
            // Read a cell of telemetry
            let number = |letter: char, count: usize, bytes: &[u8]| {
                numbers(keys, field, letter, count, bytes).map(|values| values.ok_or_else(refuse))
            };
            let cell = match letter {
                'A' => {
                    let text = String::from_utf8_lossy(cell);
                    Cell::Text(text.split('\0').next().unwrap_or_default().trim_end().into())
                }
                'P' | 'Q' if count == 0 => Cell::List(Vec::new()),
                'P' | 'Q' => {
                    let of = form
                        .split_once(letter)
                        .and_then(|(_, of)| of.chars().next())
                        .ok_or_else(refuse)?;
                    let [count, at] = descriptor(cell);
                    let length = count.saturating_mul(bytes_of(of).ok_or_else(refuse)?);
                    let list = heap.get(at..at.saturating_add(length)).ok_or_else(|| {
                        keys.refuse(
                            &name,
                            format!("{count} numbers at {at}"),
                            &format!("a list on the heap of {} bytes", heap.len()),
                        )
                    })?;
                    Cell::List(number(of, count, list)??)
                }
                'B' | 'I' | 'J' | 'K' | 'E' | 'D' if count == 1 => {
                    Cell::Number(Some(number(letter, 1, cell)??[0]).filter(|x| !x.is_nan()))
                }
                _ => continue,
            };
            cells.insert(name.clone(), cell);
        }
    }
    Ok(table)
}

// Forms of columns in FITS
/// How many of which letter a form such as `12A` or `QD(7)` is.
fn split_form(form: &str) -> Option<(usize, char)> {
    let letter = form.find(|c: char| !c.is_ascii_digit())?;
    let count = if letter == 0 { Some(1) } else { form[..letter].parse().ok() };
    Some((count?, form[letter..].chars().next()?))
}

/// Bytes of one of a letter; nothing for a letter that FITS does not have, and for bits.
fn bytes_of(letter: char) -> Option<usize> {
    let bytes = match letter {
        'L' | 'A' | 'B' => 1,
        'I' => 2,
        'J' | 'E' => 4,
        'K' | 'D' | 'C' | 'P' => 8,
        'M' | 'Q' => 16,
        _ => return None,
    };
    Some(bytes)
}

/// Bytes of a cell with so many of a letter.
fn bytes_of_cell(count: usize, letter: char) -> Option<usize> {
    match letter {
        'X' => Some(count.div_ceil(8)),
        _ => bytes_of(letter).map(|bytes| bytes.saturating_mul(count)),
    }
}

/// Length and place of a list on the heap.
fn descriptor(cell: &[u8]) -> [usize; 2] {
    let half = cell.len() / 2;
    let word =
        |bytes: &[u8]| bytes.iter().fold(0_usize, |word, byte| (word << 8) | usize::from(*byte));
    [word(&cell[..half]), word(&cell[half..])]
}

// Numbers of a cell or a list
/// Numbers of a letter in some bytes, scaled as the keys of the column say; NaN where they are unknown, and nothing for another letter.
fn numbers(
    keys: &HeaderKeys,
    field: usize,
    letter: char,
    count: usize,
    bytes: &[u8],
) -> Result<Option<Vec<f64>>, Error> {
    let kind = match letter {
        'B' => Kind::Unsigned,
        'I' | 'J' | 'K' => Kind::Signed,
        'E' | 'D' => Kind::Float,
        _ => return Ok(None),
    };
    let size = bytes_of(letter).unwrap_or(1);
    let key = |word: &str| format!("{word}{field}");
    let scale = (keys.number(&key("TSCAL"), Some(1.0))?, keys.number(&key("TZERO"), Some(0.0))?);
    let blank = match keys.keys.get(&key("TNULL")) {
        Some(_) if kind != Kind::Float => Some(keys.number(&key("TNULL"), None)?),
        _ => None,
    };
    let number = Number { kind, bytes: size, big_endian: true };
    let header = ArrayHeader {
        shape: vec![count],
        columns_first: false,
        number,
        scale,
        blank,
        unit: String::new(),
    };
    let mut bytes = bytes;
    Ok(header.read_numbers(&mut bytes, 1.0, keys.request.path).ok())
}

// Ask a row of telemetry
/// A row of a table in a file.
#[derive(Clone, Copy)]
pub(crate) struct RowOf<'f> {
    file: &'f TelemetryFile,
    table: &'static str,
    pub(crate) number: usize,
    cells: &'f BTreeMap<String, Cell>,
}

impl<'f> RowOf<'f> {
    // Text, number or list of a column
    /// The text of a column, if it says something.
    pub(crate) fn text(&self, column: &str) -> Result<Option<&'f str>, Error> {
        match self.cells.get(column) {
            None => Ok(None),
            Some(Cell::Text(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(other) => Err(self.refuse(column, cell_text(other), "a text")),
        }
    }

    /// The number of a column, if it is known; finite.
    pub(crate) fn number(&self, column: &str) -> Result<Option<f64>, Error> {
        match self.cells.get(column) {
            None | Some(Cell::Number(None)) => Ok(None),
            Some(Cell::Number(Some(x))) if x.is_finite() => Ok(Some(*x)),
            Some(other) => Err(self.refuse(column, cell_text(other), "a finite number")),
        }
    }

    /// The list of a column, without members that are unknown.
    pub(crate) fn list(&self, column: &str) -> Result<Vec<f64>, Error> {
        let known = |list: &[f64]| list.iter().copied().filter(|x| !x.is_nan()).collect();
        match self.cells.get(column) {
            None | Some(Cell::Number(None)) => Ok(Vec::new()),
            Some(Cell::List(list)) => Ok(known(list)),
            Some(Cell::Number(Some(x))) => Ok(vec![*x]),
            Some(other) => Err(self.refuse(column, cell_text(other), "a list of numbers")),
        }
    }

    // Follow references to rows
    /// The row of another table with the name that stands behind `ROWREF`.
    pub(crate) fn row(
        &self,
        column: &str,
        table: &'static str,
    ) -> Result<Option<RowOf<'f>>, Error> {
        let Some(text) = self.text(column)? else { return Ok(None) };
        let uid = text.strip_prefix("ROWREF<").and_then(|rest| rest.strip_suffix('>'));
        let row = uid.and_then(|uid| self.file.table(table).find(|row| row.uid() == uid));
        let expected = format!("ROWREF<…> with the UID of a row of {table}");
        row.map(Some).ok_or_else(|| self.refuse(column, text, &expected))
    }

    /// The row of the same name in the table that says more of its kind.
    pub(crate) fn more(&self, table: &'static str) -> Option<RowOf<'f>> {
        self.file.table(table).find(|row| row.uid() == self.uid())
    }

    /// A complaint about a cell.
    pub(crate) fn refuse(&self, column: &str, value: impl Display, expected: &str) -> Error {
        self.file.refuse(&format!("{}[{}].{column}", self.table, self.number), value, expected)
    }

    // Name of a row
    /// Its name.
    pub(crate) fn uid(&self) -> &'f str {
        match self.cells.get("UID") {
            Some(Cell::Text(uid)) => uid,
            _ => "",
        }
    }
}

// Follow references to images
/// A cell in a few words.
fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(number) => number.map_or("nothing".into(), |x| format!("{x:?}")),
        Cell::List(list) => format!("a list of {}", list.len()),
    }
}

impl RowOf<'_> {
    /// The image that a column names, if it names one.
    fn placed(&self, column: &str) -> Result<Option<&Placed>, Error> {
        let Some(text) = self.text(column)? else { return Ok(None) };
        let name = text.strip_prefix("INTREF<").and_then(|rest| rest.strip_suffix('>'));
        let name = name.map(str::to_ascii_uppercase);
        let image = self.file.images.iter().find(|image| Some(&image.name) == name.as_ref());
        let expected = "INTREF<…> with the name of an image of this file";
        image.map(Some).ok_or_else(|| self.refuse(column, text, expected))
    }

    /// What a card of that image's header says.
    pub(crate) fn card(&self, column: &str, key: &str) -> Result<Option<String>, Error> {
        Ok(self.placed(column)?.and_then(|image| image.keys.get(key).cloned()))
    }

    /// The array that a column names, if it names one: of one of two numbers of axes, finite, and in our unit; without a unit, in whatever it is in.
    pub(crate) fn array(
        &self,
        column: &str,
        axes: [usize; 2],
        unit: Option<Unit>,
    ) -> Result<Option<ArrayD<f64>>, Error> {
        let Some(image) = self.placed(column)? else { return Ok(None) };
        let place = PathBuf::from(format!("{}[{}]", self.file.path.display(), image.name));
        let request =
            ReadRequest { path: &place, choice: None, axes, unit: unit.unwrap_or(Unit::None) };
        let mut keys = HeaderKeys { keys: image.keys.clone(), request: &request };
        if unit.is_none() {
            keys.keys.remove("BUNIT");
        }
        let mut file = BufReader::new(&self.file.file);
        file.seek(SeekFrom::Start(image.start)).map_err(|source| request.unreadable(source))?;
        let Some(header) = keys.about(0)? else {
            return Err(self.refuse(column, &image.name, "an image with data"));
        };
        keys.read(&header, &mut file).map(Some)
    }
}

// Tests of telemetry files
#[cfg(test)]
mod tests {
    use super::*;
    use fitsio::FitsFile;
    use ndarray::{Array3, array};

    type Checked = Result<(), Box<dyn std::error::Error>>;

    fn telemetry() -> Telemetry<'static> {
        let mut telemetry = Telemetry::empty("GLAO");
        telemetry
            .row("AOT_SOURCES", "one")
            .text("TYPE", "Natural Guide Star")
            .number("AZIMUTH_OFFSET", -2e-3);
        telemetry.row("AOT_SOURCES", "the other").text("TYPE", "Science Star");
        telemetry.row("AOT_TIME", "time").list("TIMESTAMPS", vec![1.5, f64::NAN, 2.5]);
        telemetry.row("AOT_TIME", "other time").list("FRAME_NUMBERS", vec![7.0]);
        let sensor = telemetry.row("AOT_WAVEFRONT_SENSORS", "WFS");
        sensor
            .row("SOURCE_UID", "one")
            .number("N_VALID_SUBAPERTURES", 5.0)
            .image("MEASUREMENTS", "slopes");
        let slopes = Array3::from_shape_fn((2, 2, 5), |(t, a, k)| (10 * t + 5 * a + k) as f64);
        telemetry.images.add_result("slopes", slopes).unit("mrad").attribute("NOISE", "plenty");
        telemetry.config("r0 = 0.1 # 'µm' \\ \n[telescope]");
        telemetry
    }

    fn written() -> std::io::Result<Vec<u8>> {
        let mut file = Vec::new();
        telemetry().write(&mut file, Precision::F64)?;
        Ok(file)
    }

    fn open(bytes: &[u8]) -> Result<TelemetryFile, Error> {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, bytes).unwrap();
        TelemetryFile::open(path.path())
    }

    // Read telemetry back
    #[test]
    fn telemetry_comes_back() -> Checked {
        let file = open(&written()?)?;
        assert_eq!((file.mode(), file.rows("AOT_SOURCES"), file.rows("AOT_LOOPS")), ("GLAO", 2, 0));
        let [one, other]: [_; 2] =
            file.table("AOT_SOURCES").collect::<Vec<_>>().try_into().map_err(|_| "two").unwrap();
        assert_eq!(
            (one.text("TYPE")?, one.number("AZIMUTH_OFFSET")?),
            (Some("Natural Guide Star"), Some(-2e-3))
        );
        assert_eq!(
            (other.uid(), other.number("AZIMUTH_OFFSET")?, other.text("NOTHING")?),
            ("the other", None, None)
        );
        let lists: Vec<_> = file
            .table("AOT_TIME")
            .map(|row| (row.list("TIMESTAMPS"), row.list("FRAME_NUMBERS")))
            .collect();
        assert!(
            matches!(&lists[0], (Ok(times), Ok(frames)) if *times == [1.5, 2.5] && frames.is_empty())
        );
        assert!(
            matches!(&lists[1], (Ok(times), Ok(frames)) if times.is_empty() && *frames == [7.0])
        );
        let sensor = file.table("AOT_WAVEFRONT_SENSORS").next().unwrap();
        assert_eq!(sensor.row("SOURCE_UID", "AOT_SOURCES")?.map(|row| row.uid()), Some("one"));
        assert_eq!(
            (sensor.number("N_VALID_SUBAPERTURES")?, sensor.number("DIMENSIONS")?),
            (Some(5.0), None)
        );
        let slopes = sensor.array("MEASUREMENTS", [3; 2], Some(Unit::Radian))?.unwrap();
        assert!(slopes.shape() == [2, 2, 5] && (slopes[[1, 0, 3]] - 13e-3).abs() < 1e-15);
        assert_eq!(sensor.array("MEASUREMENTS", [3; 2], None)?.unwrap()[[1, 0, 3]], 13.0);
        assert_eq!(sensor.card("MEASUREMENTS", "NOISE")?.as_deref(), Some("plenty"));
        assert!(sensor.array("SUBAPERTURE_MASK", [2; 2], None)?.is_none());
        Ok(())
    }

    // Open telemetry with CFITSIO
    #[test]
    fn cfitsio_finds_rows_and_lists() -> Checked {
        let path = tempfile::Builder::new().suffix(".fits").tempfile()?;
        std::fs::write(&path, written()?)?;
        let mut fits = FitsFile::open(path.path())?;
        let sources = fits.hdu("AOT_SOURCES")?;
        let names: Vec<String> = sources.read_col(&mut fits, "UID")?;
        assert_eq!(names, ["one", "the other"]);
        let offsets: Vec<f64> = sources.read_col(&mut fits, "AZIMUTH_OFFSET")?;
        assert!(offsets[0] == -2e-3 && offsets[1].is_nan());
        let primary = fits.hdu(0)?;
        assert_eq!(primary.read_key::<String>(&mut fits, "AOT-VERS")?, VERSION);
        let config: String = primary.read_key(&mut fits, "CONFIG")?;
        assert_eq!(config, "r0 = 0.1 # '\\u00b5m' \\\\ \\n[telescope]");
        assert!(fits.hdu("AOT_SOURCES_SODIUM_LGS").is_err() && fits.hdu("AOT_LOOPS").is_ok());
        Ok(())
    }

    // Refuse telemetry that is spoilt
    #[test]
    fn spoilt_telemetry_is_refused() -> Checked {
        let whole = written()?;
        let changed = |old: &str, new: &str| {
            assert_eq!(old.len(), new.len());
            let at = whole.windows(old.len()).position(|part| part == old.as_bytes());
            let at = at.unwrap_or_else(|| panic!("no {old}"));
            [&whole[..at], new.as_bytes(), &whole[at + old.len()..]].concat()
        };
        for (bytes, words) in [
            (changed("'2.0.0   '", "'1.0.0   '"), &["AOT-VERS = 1.0.0: expected 2.0.0"][..]),
            (changed("AOT-VERS", "AOT-VORS"), &["AOT-VERS = nothing"]),
            (
                changed("'AOT_LOOPS'", "'AOT_LOUPS'"),
                &["tables = ", "expected AOT_LOOPS among them"],
            ),
            (changed("TFORM2  = 'QD(3)   '", "TFORM2  = '5M      '"), &["[AOT_TIME]: TFORM2 = 5M"]),
            (changed("TFORM2  = 'QD(3)   '", "TFORM2  = '?       '"), &["[AOT_TIME]: TFORM2 = ?"]),
            (whole[..whole.len() - BLOCK].to_vec(), &["[SLOPES]: it is cut short in its data"]),
            (whole[..BLOCK + 100].to_vec(), &["cut short in a header"]),
            (b"a text".to_vec(), &["AOT-VERS = nothing"]),
        ] {
            let said = open(&bytes).unwrap_err().to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        // Refuse cells that are spoilt
        let mut far = whole.clone();
        let at =
            far.windows(16).position(|part| part == [[0, 0, 0, 0, 0, 0, 0, 3], [0; 8]].concat());
        far[at.unwrap() + 8] = 1;
        let said = open(&far).unwrap_err().to_string();
        assert!(
            said.contains("[AOT_TIME]: TIMESTAMPS = 3 numbers at") && said.contains("of 32 bytes"),
            "{said}"
        );
        for (old, new, words) in [
            (
                "ROWREF<one>",
                "ROWREF<two>",
                "AOT_WAVEFRONT_SENSORS[0].SOURCE_UID = ROWREF<two>: expected ROWREF<…> with the UID",
            ),
            (
                "INTREF<SLOPES>",
                "URLREF<SLOPES>",
                "AOT_WAVEFRONT_SENSORS[0].MEASUREMENTS = URLREF<SLOPES>: expected INTREF<…>",
            ),
            ("'mrad    '", "'pixel   '", "[SLOPES]: BUNIT = 'pixel'"),
        ] {
            let file = open(&changed(old, new))?;
            let sensor = file.table("AOT_WAVEFRONT_SENSORS").next().unwrap();
            let source = sensor.row("SOURCE_UID", "AOT_SOURCES").map(drop);
            let slopes = sensor.array("MEASUREMENTS", [3; 2], Some(Unit::Radian)).map(drop);
            let said = source.and(slopes).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        let mut spoilt = telemetry();
        spoilt.images = DataSet::default();
        spoilt.images.add("slopes", array![[[1.0, f64::NAN]]]);
        let mut bytes = Vec::new();
        spoilt.write(&mut bytes, Precision::F64)?;
        let file = open(&bytes)?;
        let sensor = file.table("AOT_WAVEFRONT_SENSORS").next().unwrap();
        let said = sensor.array("MEASUREMENTS", [3; 2], None).unwrap_err().to_string();
        assert!(
            said.contains("[SLOPES]: row 0, index 0, 1 = NaN: expected a finite number"),
            "{said}"
        );
        let said = sensor.array("MEASUREMENTS", [2; 2], None).unwrap_err().to_string();
        assert!(said.contains("[SLOPES]: shape = [1, 1, 2]"), "{said}");
        Ok(())
    }
}
