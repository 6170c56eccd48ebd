// Tangled from book/src/sample-file.md: edit there, or here and run cargo tangle stitch.
//! The file that describes a simulation of electrons.

// Imports of the sample file
use crate::device::refuse_beyond_memory;
use crate::electrons::beam::Beam;
use crate::electrons::hrtem::optics::ImageSamples;
use crate::electrons::potential::{PotentialModel, PotentialOptions};
use crate::electrons::sample_keys::SAMPLE_KEYS;
use crate::error::{BadLine, Error, Invalid, accept, finite, positive};
use crate::files::spanned_toml::{Decode, Document, Table, read_text};
use crate::formats::CrystalFile;
use crate::numerics::Precision;
use crate::plausible::{self, DETECTOR_ANGLE, Plausible};
use crate::specimen::atoms::SYMBOLS;
use crate::specimen::{
    self, Atom, Crystal, Cut, Element, Factors, Phonons, Specimen, TiledSpecimen, zone_of_four,
};
use std::{collections::BTreeMap, fmt::Debug, path::Path, path::PathBuf, sync::Arc};

// What a sample file says
/// What a sample file says, table by table, and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleFile {
    /// `[sample]`: the specimen.
    pub sample: SampleTable,
    /// `[potential]`: how its potential is computed.
    pub potential: PotentialTable,
    /// `[phonons]`: frozen phonons.
    pub phonons: Phonons,
    /// `phonons.rms`: one-dimensional rms displacements of elements \[Å\], in place of the crystal's.
    pub rms: BTreeMap<Element, f64>,
    /// `[beam]`: the electrons.
    pub beam: BeamTable,
    /// `[scan]`: where the probe goes.
    pub scan: ScanTable,
    /// `[method]`: how the wave is computed.
    pub method: MethodTable,
    /// `[detector]`: what is recorded.
    pub detector: DetectorTable,
    /// `[imaging]`: the lens behind the specimen, for a plane wave.
    pub imaging: ImagingTable,
    /// `[run]`: how it is run.
    pub run: RunTable,
    document: Arc<Document>,
}

// Read a sample file
impl SampleFile {
    /// Reads the text of a sample file; `name` stands for the file in errors, and its folder is where crystals are looked for.
    ///
    /// # Errors
    /// [`Error::SystemFile`] with the first line that makes no sense.
    ///
    /// ```
    /// use lenslet::electrons::sample_file::SampleFile;
    /// let text = "sample = { file = 'SI100.XYZ' }\nbeam.energy_kev = 100.0\n[potential]\nslice_thickness = -2.0\n";
    /// let refused = SampleFile::from_toml(text, "si.toml").unwrap_err().to_string();
    /// assert_eq!(refused, "si.toml:4: potential.slice_thickness = -2.0: expected a finite number greater than 0");
    /// let file = SampleFile::from_toml(&text.replace("-2.0", "1.3575"), "book/systems/si.toml")?;
    /// assert_eq!((file.potential.options.bound, file.specimen()?.atoms().len()), (3.0, 8));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn from_toml(text: &str, name: &str) -> Result<Self, Error> {
        Self::from_document(Document::parse(name, text)?)
    }

    // Read the tables of a document
    /// Reads the tables of a document.
    pub(crate) fn from_document(document: Document) -> Result<Self, Error> {
        let document = Arc::new(document);
        let root = document.root(SAMPLE_KEYS)?;
        let file = Self {
            sample: SampleTable::read(&root)?,
            potential: PotentialTable::read(&root)?,
            phonons: read_phonons(&root)?,
            rms: read_rms(&root)?,
            beam: BeamTable::read(&root)?,
            scan: ScanTable::read(&root)?,
            method: MethodTable::read(&root)?,
            detector: DetectorTable::read(&root)?,
            imaging: ImagingTable::read(&root)?,
            run: RunTable::read(&root)?,
            document: Arc::clone(&document),
        };
        root.check(file.check_angles())?;
        Ok(file)
    }

    // Reject detector angles in radians
    /// Refuses angles of detectors that were probably meant in radians: below half a milliradian, and below half of the semi-angle.
    fn check_angles(&self) -> Result<(), Invalid> {
        let low = DETECTOR_ANGLE.accepted[0].min(0.5 * self.beam.semi_angle);
        let accepted = [low, DETECTOR_ANGLE.accepted[1]];
        let annulus = Plausible { accepted, ..DETECTOR_ANGLE };
        for (k, annuli) in self.detector.annuli.iter().enumerate() {
            annulus.check_pair(&format!("detector.annuli[{k}]"), *annuli)?;
        }
        let angle = Plausible { accepted, ..plausible::CROP };
        for (k, segmented) in self.detector.segmented.iter().enumerate() {
            angle.check(&format!("detector.segmented[{k}].outer"), segmented.outer)?;
        }
        let crop = self.detector.four_d.and_then(|four_d| four_d.crop);
        crop.map_or(Ok(0.0), |crop| angle.check("detector.four_d.crop", crop)).map(drop)
    }

    // A sample file by its path
    /// Reads a sample file.
    ///
    /// # Errors
    /// [`Error::Read`] for a file that cannot be read, and as [`from_toml`](Self::from_toml).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::from_toml(&read_text(path, 16 << 20, "a sample file")?, &path.display().to_string())
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        self.document.text()
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        self.document.name()
    }

    /// A complaint about a key of `table`, at the line of the value.
    pub fn refuse(&self, table: &'static str, invalid: Invalid) -> Error {
        let quantity = format!("{table}.{}", invalid.quantity);
        let root = self.document.root(SAMPLE_KEYS);
        root.map_or_else(Error::from, |root| root.refuse(Invalid { quantity, ..invalid }).into())
    }
}

// The table of the sample
/// Where the crystal of a sample file is.
#[derive(Debug, Clone, PartialEq)]
pub enum CrystalSource {
    /// In this file.
    File(PathBuf),
    /// In the sample file, which has as many lines before it.
    Text {
        /// Text of a CIF or XYZ file.
        text: String,
        /// Lines of the sample file before the first line of the text.
        before: usize,
    },
}

impl CrystalSource {
    /// The file, unless the crystal is in the sample file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text { .. } => None,
        }
    }
}
/// The table `[sample]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleTable {
    /// Where the crystal is.
    pub crystal: CrystalSource,
    /// Cells along the specimen's x, y and z.
    pub tile: [usize; 3],
    /// Lengths of the sides of the file's cell \[Å\], in place of its own.
    pub cell: Option<[f64; 3]>,
    /// The lattice vector along which a cell is cut.
    pub zone_axis: Option<[i64; 3]>,
    /// The largest cosine between two sides of the cut.
    pub strain: f64,
    /// The way the electrons fly through the cell.
    pub beam: specimen::BeamDirection,
    /// Whether occupancies of the file are heeded; else every atom is there. True unless said.
    pub occupancy: bool,
    /// Tilt of the specimen in a straight beam, x and y \[mrad\].
    pub tilt: [f64; 2],
}

// Read the table of the sample
impl SampleTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let table = root.required_table("sample")?;
        let tile = numbers(&table, "tile", "three whole numbers, [x, y, z]", |n: usize| n > 0)?;
        let sides = "three lengths in Å, [a, b, c]";
        let cell = numbers(&table, "cell", sides, |side: f64| (1e-3..=1e7).contains(&side))?;
        check_all(&table, "cell", &plausible::CELL, cell.as_ref().map(|cell| &cell[..]))?;
        let strain = table.optional("strain", "a cosine from 0 to 0.1")?.unwrap_or(Cut::EXACT);
        table.check(accept(
            (0.0..=0.1).contains(&strain),
            "strain",
            strain,
            "a cosine from 0 to 0.1",
        ))?;
        Ok(Self {
            crystal: crystal_source(&table)?,
            tile: tile.unwrap_or([1; 3]),
            cell,
            zone_axis: zone_axis(&table)?,
            strain,
            beam: table.choice("beam", &specimen::BeamDirection::NAMES)?.unwrap_or_default(),
            occupancy: table.optional("occupancy", "true or false")?.unwrap_or(true),
            tilt: tilt(&table)?,
        })
    }
}

// Read where the crystal is
/// Where the crystal is: in a file, or in the table.
fn crystal_source(table: &Table) -> Result<CrystalSource, BadLine> {
    let file: Option<&str> = table.optional("file", "the name of a CIF or XYZ file")?;
    let text: Option<&str> = table.optional("crystal", "the text of a CIF or XYZ file")?;
    match (file, text) {
        (Some(file), None) => Ok(CrystalSource::File(table.folder().join(file))),
        (None, Some(text)) => {
            let before = table.lines_before("crystal");
            Ok(CrystalSource::Text { text: text.to_owned(), before })
        }
        (Some(_), Some(_)) => {
            let expected = "either file or crystal, not both: remove one of them";
            Err(table.refuse(Invalid::new("crystal", "", expected)))
        }
        (None, None) => {
            let expected = "the name of a CIF or XYZ file, or crystal with the text of one";
            Err(table.missing("file", expected))
        }
    }
}

// Read a zone axis
/// The zone axis of a table, of three indices or four.
fn zone_axis(table: &Table) -> Result<Option<[i64; 3]>, BadLine> {
    let expected = "three whole numbers up to 1000, or four for a hexagonal crystal, not all zero";
    let Some(list) = table.optional::<Vec<f64>>("zone_axis", expected)? else { return Ok(None) };
    let refused = || table.refuse(Invalid::new("zone_axis", format!("{list:?}"), expected));
    let whole = |x: &f64| x.fract() == 0.0 && x.abs() <= 1000.0;
    let indices: Vec<i64> = list.iter().filter(|x| whole(x)).map(|x| *x as i64).collect();
    let zone = match (indices[..].len() == list.len(), &indices[..]) {
        (true, &[u, v, w]) => [u, v, w],
        (true, &[u, v, t, w]) => table.check(zone_of_four([u, v, t, w]))?,
        _ => return Err(refused()),
    };
    if zone == [0; 3] { Err(refused()) } else { Ok(Some(zone)) }
}

// The specimen of a sample file
/// The specimen of a sample file, and what is reported of it.
#[derive(Debug, Clone)]
pub struct PreparedSpecimen {
    /// The specimen, at rest.
    pub specimen: TiledSpecimen,
    /// Atoms of the crystal that a [cut](Crystal::cut) merged, if one was made.
    pub merged: Option<usize>,
    /// What may be wrong with it.
    pub warnings: Vec<String>,
}

impl SampleFile {
    /// The specimen that the file describes, at rest, with all its atoms.
    ///
    /// # Errors
    /// [`Error::Read`] where the crystal's file cannot be read, and [`Error::SystemFile`] with the line, of the one file or the other, that makes no sense.
    pub fn specimen(&self) -> Result<Specimen, Error> {
        let tiled = self.prepared_specimen()?.specimen;
        refuse_beyond_memory(tiled.bytes(), || "the specimen".into())?;
        Ok(tiled.specimen().clone())
    }

    // Prepare the specimen of a file
    /// The specimen that the file describes, at rest, whose atoms are made when they are needed, and what is reported of it.
    ///
    /// # Errors
    /// As [`specimen`](Self::specimen).
    pub fn prepared_specimen(&self) -> Result<PreparedSpecimen, Error> {
        let table = &self.sample;
        let refuse = |invalid| self.refuse("sample", invalid);
        // Read the crystal of a file
        let mut file = match &table.crystal {
            CrystalSource::File(path) => CrystalFile::read(path, table.cell)?,
            CrystalSource::Text { text, before } => {
                CrystalFile::parse_inside(text, self.name(), *before, table.cell)?
            }
        };
        let warnings = file.notes().iter().cloned().chain(file.warning()).collect();
        // Occupy all sites of the crystal
        if !table.occupancy {
            let whole = file.crystal.atoms().iter().map(|atom| Atom { occupancy: 1.0, ..*atom });
            file.crystal = Crystal::new(file.crystal.lattice(), whole.collect())?;
            file.refuse_overfull()?;
        }
        self.check_elements(&file)?;
        let crystal = self.displaceable(&file.crystal)?;
        // Cut the crystal along its zone axis
        let (crystal, merged) = match table.zone_axis {
            Some(zone) => {
                let cut = crystal.cut(zone, table.strain).map_err(refuse)?;
                (cut.crystal, Some(cut.merged))
            }
            None => (crystal, None),
        };
        let specimen = crystal.tiled(table.beam, table.tile).map_err(refuse)?;
        Ok(PreparedSpecimen { specimen, merged, warnings })
    }

    // Check elements and displacements of a crystal
    // Reject elements without scattering factors
    /// Refuses an element that the table of scattering factors lacks, at its line.
    fn check_elements(&self, file: &CrystalFile) -> Result<(), BadLine> {
        let factors = self.potential.options.factors;
        for (k, atom) in file.crystal.atoms().iter().enumerate() {
            if let Err(lacking) = factors.of(atom.element) {
                return Err(file.bad_atom(k, "element", lacking.value, &lacking.expected));
            }
        }
        Ok(())
    }

    // Replace the displacements of a crystal
    /// The crystal with the displacements of `phonons.rms` in place of its own.
    fn displaceable(&self, crystal: &Crystal) -> Result<Crystal, Error> {
        let mut elements = BTreeMap::new();
        for atom in crystal.atoms() {
            let lacks = atom.displacement == 0.0 && !self.rms.contains_key(&atom.element);
            *elements.entry(atom.element).or_insert(0) +=
                usize::from(lacks && atom.occupancy > 0.0);
        }
        let names = |some: &mut dyn Iterator<Item = Element>| {
            some.map(Element::symbol).collect::<Vec<_>>().join(", ")
        };
        // Reject displacements of absent elements
        for (element, rms) in &self.rms {
            let expected =
                format!("an element of the crystal: {}", names(&mut elements.keys().copied()));
            let key = format!("rms.{}", element.symbol());
            accept(elements.contains_key(element), &key, rms, &expected)
                .map_err(|invalid| self.refuse("phonons", invalid))?;
        }
        // Reject phonons without displacements
        let lacking = elements.iter().filter(|(_, atoms)| **atoms > 0);
        let lacking = names(&mut lacking.map(|(element, _)| *element));
        let count = self.phonons.configurations;
        accept(count == 0 || lacking.is_empty(), "configurations", count, &without_rms(&lacking))
            .map_err(|invalid| self.refuse("phonons", invalid))?;
        let own = |atom: &Atom| {
            let displacement = self.rms.get(&atom.element).copied().unwrap_or(atom.displacement);
            Atom { displacement, ..*atom }
        };
        Ok(Crystal::new(crystal.lattice(), crystal.atoms().iter().map(own).collect())?)
    }
}

// Where displacements are given
/// Where displacements of elements that lack them can be given.
fn without_rms(elements: &str) -> String {
    let first = elements.split(',').next().unwrap_or_default();
    format!(
        "displacements, which the crystal file does not give for every atom of {elements}: as [phonons] rms = {{ {first} = 0.08 }} (one-dimensional rms \
         in Å of each element; 0 keeps it at rest), as the sixth column of Kirkland's XYZ, as a column displacement of an extended XYZ, or as \
         _atom_site_U_iso_or_equiv or _atom_site_B_iso_or_equiv of a CIF; or configurations = 0 for atoms at rest"
    )
}

// The table of the potential
/// How finely waves are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WaveSampling {
    /// By so many points along x and y.
    Points([usize; 2]),
    /// By pixels with sides near these, along x and y \[Å\].
    Pixel([f64; 2]),
    /// By pixels near 0.1 Å, or smaller ones where detectors or the beam need larger angles.
    Automatic,
}
/// The table `[potential]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PotentialTable {
    /// The model, whose scattering factors, and how far an atom's potential reaches where it is cut off.
    pub options: PotentialOptions,
    /// How finely waves are sampled.
    pub sampling: WaveSampling,
    /// Thickness of a slice \[Å\]; 2 unless said.
    pub slice_thickness: f64,
}

// Read the table of the potential
impl PotentialTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let Some(table) = root.table("potential")? else { return Ok(Self::default()) };
        let models = [
            ("lookup", PotentialModel::Lookup),
            ("projected", PotentialModel::Projected),
            ("sliced", PotentialModel::Sliced),
            ("sampled", PotentialModel::Sampled),
        ];
        let factors = [
            ("kirkland", Factors::Kirkland),
            ("kirkland-rounded", Factors::KirklandRounded),
            ("lobato", Factors::Lobato),
        ];
        let points = "two multiples of 4 from 4 to 32768, [x, y]";
        let fit = |n: usize| (4..=32_768).contains(&n) && n.is_multiple_of(4);
        let grid = numbers(&table, "grid", points, fit)?.map(WaveSampling::Points);
        let pixel = one_or_two(&table, "pixel", "a length in Å, or two, [x, y]", |x: f64| {
            (1e-4..=1e3).contains(&x)
        })?;
        check_all(&table, "pixel", &plausible::WAVE_PIXEL, pixel.as_ref().map(|pixel| &pixel[..]))?;
        if let (Some(_), Some(pixel)) = (grid, pixel) {
            return Err(table.refuse(Invalid::new(
                "pixel",
                format!("{pixel:?}"),
                "either grid or pixel, not both",
            )));
        }
        let default = Self::default();
        let expected = "a whole number from 1 to 10000";
        let planes = table.optional("planes", expected)?.unwrap_or(default.options.planes);
        table.check(accept((1..=10_000).contains(&planes), "planes", planes, expected))?;
        let options = PotentialOptions {
            model: table.choice("model", &models)?.unwrap_or_default(),
            factors: table.choice("factors", &factors)?.unwrap_or_default(),
            bound: length(&table, "bound", &plausible::BOUND)?.unwrap_or(default.options.bound),
            planes,
        };
        Ok(Self {
            options,
            sampling: grid.or(pixel.map(WaveSampling::Pixel)).unwrap_or(default.sampling),
            slice_thickness: length(&table, "slice_thickness", &plausible::SLICE)?
                .unwrap_or(default.slice_thickness),
        })
    }
}

// Defaults of the potential
impl Default for PotentialTable {
    fn default() -> Self {
        Self {
            options: PotentialOptions::default(),
            sampling: WaveSampling::Automatic,
            slice_thickness: 2.0,
        }
    }
}

/// The displacements of the table `[phonons]`.
fn read_rms(root: &Table) -> Result<BTreeMap<Element, f64>, BadLine> {
    let table = root.table("phonons")?;
    let table = table.map(|table| table.table("rms")).transpose()?.flatten();
    let (Some(table), mut by_element) = (table, BTreeMap::new()) else {
        return Ok(BTreeMap::new());
    };
    for symbol in SYMBOLS {
        let expected = "a one-dimensional rms displacement from 0 to 2 Å";
        if let Some(rms) = table.optional(symbol, expected)? {
            table.check(plausible::DISPLACEMENT.check(symbol, rms))?;
            by_element.insert(table.check(Element::of_symbol(symbol))?, rms);
        }
    }
    Ok(by_element)
}

/// The table `[phonons]`: none unless said.
fn read_phonons(root: &Table) -> Result<Phonons, BadLine> {
    let Some(table) = root.table("phonons")? else { return Ok(Phonons::default()) };
    let configurations =
        table.optional("configurations", "a whole number, 0 for atoms at rest")?.unwrap_or(0);
    table.check(accept(
        configurations <= 1_000_000,
        "configurations",
        configurations,
        "at most a million",
    ))?;
    let seed: Option<usize> = table.optional("seed", "a whole number, not negative")?;
    Ok(Phonons { configurations, seed: seed.unwrap_or(0) as u64 })
}

// The table of the beam
/// The table `[beam]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BeamTable {
    /// Kinetic energy of an electron \[keV\].
    pub energy_kev: f64,
    /// Half of the angle of the probe's cone \[mrad\]; 20 unless said.
    pub semi_angle: f64,
    /// Defocus \[Å\], one for each run of a series; one of 0 unless said.
    pub defocus: Vec<f64>,
    /// Spherical aberration of third order \[Å\].
    pub c3: f64,
    /// Spherical aberration of fifth order \[Å\].
    pub c5: f64,
    /// Other aberrations.
    pub aberrations: Vec<AberrationTable>,
    /// Tilt of the beam along x and y \[mrad\].
    pub tilt: [f64; 2],
}

/// One of `beam.aberrations`: magnitude (λq)^m cos n(θ − angle).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AberrationTable {
    /// Power of the angle of scattering.
    pub m: usize,
    /// Number of its maxima around the axis.
    pub n: usize,
    /// Magnitude \[rad\].
    pub magnitude: f64,
    /// Direction of a maximum \[degrees\].
    pub angle_deg: f64,
}

// Read the table of the beam
impl BeamTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let table = root.required_table("beam")?;
        let energy_kev = table.required("energy_kev", "an energy in keV")?;
        table.check(Beam::new(energy_kev))?;
        let semi_angle = table.optional("semi_angle", "an angle in mrad")?.unwrap_or(20.0);
        table.check(plausible::SEMI_ANGLE.check("semi_angle", semi_angle))?;
        let number = |key: &str, plausible: &Plausible| {
            let x = plain(&table, key, "a length in Å")?;
            table.check(plausible.check(key, x))
        };
        Ok(Self {
            energy_kev,
            semi_angle,
            defocus: defocus(&table)?,
            c3: number("c3", &plausible::C3)?,
            c5: number("c5", &plausible::C5)?,
            aberrations: aberrations(&table)?,
            tilt: tilt(&table)?,
        })
    }
}

// Read defocus and aberrations
/// One defocus or a list.
fn defocus(table: &Table) -> Result<Vec<f64>, BadLine> {
    let expected = "a length in Å, or a list of lengths";
    let list = match table.optional::<f64>("defocus", expected) {
        Ok(one) => vec![one.unwrap_or(0.0)],
        Err(_) => table.required("defocus", expected)?,
    };
    let good = !list.is_empty() && list.iter().all(|x: &f64| x.abs() <= 1e7);
    let list = table.check(accept(good, "defocus", list, "lengths up to 1e7 Å, at least one"))?;
    check_all(table, "defocus", &plausible::DEFOCUS, Some(&list)).map(|()| list)
}

/// The list of aberrations.
fn aberrations(table: &Table) -> Result<Vec<AberrationTable>, BadLine> {
    let read = |table: &Table| {
        let m = table.required("m", "a power of the angle, from 1 to 20")?;
        let n = table.required("n", "a number of maxima, from 0 to m")?;
        table.check(accept((1..=20).contains(&m), "m", m, "a power of the angle, from 1 to 20"))?;
        table.check(accept(n <= m, "n", n, "a number of maxima, from 0 to m"))?;
        let magnitude = table.required("magnitude", "a phase in radians")?;
        table.check(finite("magnitude", magnitude))?;
        Ok(AberrationTable {
            m,
            n,
            magnitude,
            angle_deg: plain(table, "angle_deg", "an angle in degrees")?,
        })
    };
    table.tables("aberrations")?.iter().map(read).collect()
}

// The table of the scan
/// The table `[scan]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanTable {
    /// First and last place along x and y \[Å\]; `None` for the whole cell.
    pub window: Option<[[f64; 2]; 2]>,
    /// Step along x and y \[Å\]; 0.25 unless said.
    pub step: [f64; 2],
    /// Radius of the source's image along each axis, rms \[Å\]; 0 unless said.
    pub source_size: f64,
}

impl ScanTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let Some(table) = root.table("scan")? else {
            return Ok(Self { window: None, step: [0.25; 2], source_size: 0.0 });
        };
        let expected = "[[from, to], [from, to]] in Å, x before y, and each from below its to";
        let window = numbers(&table, "window", expected, |[from, to]: [f64; 2]| {
            from < to && from.is_finite() && to.is_finite()
        })?;
        let step = one_or_two(
            &table,
            "step",
            "a length in Å greater than 0, or two, [x, y]",
            |x: f64| x > 0.0 && x.is_finite(),
        )?;
        check_all(&table, "step", &plausible::SCAN_STEP, step.as_ref().map(|step| &step[..]))?;
        let source_size =
            within(&table, "source_size", &plausible::SOURCE_SIZE, "a length in Å, 0 to 1000")?;
        Ok(Self {
            window,
            step: step.unwrap_or([0.25; 2]),
            source_size: source_size.unwrap_or(0.0),
        })
    }
}

// The tables of method and run
// Algorithms of a simulation
/// How the wave is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// Each probe through all slices.
    #[default]
    Multislice,
    /// Plane waves through all slices, and probes from those.
    Prism,
    /// One plane wave, which is imaged by a lens.
    Hrtem,
}

/// The table `[method]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodTable {
    /// How the wave is computed.
    pub algorithm: Algorithm,
    /// Interpolation of PRISM along x and y; if not said, the largest up to 4 that leaves enough beams in windows that hold the probe.
    pub interpolation: Option<[usize; 2]>,
    /// Whether too large an interpolation is a warning rather than an error.
    pub lenient: bool,
    /// How far PRISM's beams reach beyond the semi-angle \[mrad\]; 2.5 unless said, and without interpolation as far as the probe's soft edge.
    pub margin: Option<f64>,
    /// How far PRISM's waves, or the exit wave of a plane wave, are taken back behind the specimen \[Å\]; 0 unless said.
    pub refocus: f64,
    /// Thicknesses \[Å\] behind which waves are read, too, besides that of the whole specimen.
    pub thicknesses: Vec<f64>,
}

/// The table `[run]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTable {
    /// The precision of waves; single unless said.
    pub precision: Precision,
}

// Read the table of the method
impl MethodTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let Some(table) = root.table("method")? else { return Ok(Self::default()) };
        let names = [
            ("multislice", Algorithm::Multislice),
            ("prism", Algorithm::Prism),
            ("hrtem", Algorithm::Hrtem),
        ];
        let expected = "a whole number from 1 to 1000, or two, [x, y]";
        let interpolation =
            one_or_two(&table, "interpolation", expected, |f: usize| (1..=1000).contains(&f))?;
        let expected = "a length in Å, up to 1e7 either way";
        let refocus = within(&table, "refocus", &plausible::DEFOCUS, expected)?;
        let thicknesses: Vec<f64> =
            table.optional("thicknesses", "a list of lengths in Å")?.unwrap_or_default();
        for (k, thickness) in thicknesses.iter().enumerate() {
            let key = format!("thicknesses[{k}]");
            table.check(positive(&key, *thickness))?;
            table.check(plausible::DEPTH.check(&key, *thickness))?;
        }
        let default = Self::default();
        Ok(Self {
            algorithm: table.choice("algorithm", &names)?.unwrap_or_default(),
            interpolation,
            lenient: table
                .choice("interpolation_check", &[("reject", false), ("warn", true)])?
                .unwrap_or(false),
            margin: margin(&table)?,
            refocus: refocus.unwrap_or(default.refocus),
            thicknesses,
        })
    }
}

// Read the table of the run
impl Default for MethodTable {
    fn default() -> Self {
        let (algorithm, interpolation, lenient) = (Algorithm::default(), None, false);
        Self { algorithm, interpolation, lenient, margin: None, refocus: 0.0, thicknesses: vec![] }
    }
}

/// How far PRISM's beams reach beyond the semi-angle, if it is said.
fn margin(table: &Table) -> Result<Option<f64>, BadLine> {
    let expected = "an angle from 0 to 500 mrad";
    within(table, "margin", &plausible::MARGIN, expected)
}

impl RunTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let Some(table) = root.table("run")? else {
            return Ok(Self { precision: Precision::F32 });
        };
        let names = [Precision::F32, Precision::F64].map(|precision| (precision.name(), precision));
        Ok(Self { precision: table.choice("precision", &names)?.unwrap_or(Precision::F32) })
    }
}

// The table of the detectors
/// The table `[detector]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectorTable {
    /// Width of an annular bin \[mrad\]; 1 unless said.
    pub bin: f64,
    /// Number of annular bins; `None` for as many as are complete on the grid.
    pub bins: Option<usize>,
    /// Inner and outer angles of annuli \[mrad\].
    pub annuli: Vec<[f64; 2]>,
    /// Detectors in sectors.
    pub segmented: Vec<SegmentedTable>,
    /// Whether the centre of mass is recorded.
    pub centre_of_mass: bool,
    /// Whether it is integrated over the scan; then it is recorded, too.
    pub integrated_centre: bool,
    /// Whole patterns.
    pub four_d: Option<PatternTable>,
    /// Electrons for each place of the probe; `None` for shares of the beam without noise.
    pub dose: Option<f64>,
    /// What the noise of the dose is drawn from.
    pub dose_seed: u64,
}

/// One of `detector.segmented`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SegmentedTable {
    /// Inner angle \[mrad\].
    pub inner: f64,
    /// Outer angle \[mrad\].
    pub outer: f64,
    /// Number of sectors; 4 unless said.
    pub sectors: usize,
    /// Direction where the first begins \[degrees\].
    pub rotation_deg: f64,
}

/// `detector.four_d`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PatternTable {
    /// Patterns are cut to this angle \[mrad\]; `None` for all that the grid keeps.
    pub crop: Option<f64>,
    /// Pixels that are summed along either side; 1 unless said.
    pub bin: usize,
}

// Read the table of the detectors
impl DetectorTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let Some(table) = root.table("detector")? else { return Ok(Self::default()) };
        let annuli: Vec<[f64; 2]> =
            table.optional("annuli", "a list of [inner, outer] in mrad")?.unwrap_or_default();
        for (k, &[inner, outer]) in annuli.iter().enumerate() {
            check_annulus(&table, &format!("annuli[{k}]"), inner, outer)?;
        }
        let segmented = table.tables("segmented")?;
        let expected = "a whole number from 1 to a million";
        let bins = table.optional("bins", expected)?;
        let good = bins.is_none_or(|bins| (1..=1_000_000).contains(&bins));
        table.check(accept(good, "bins", bins.unwrap_or_default(), expected))?;
        let seed: Option<usize> = table.optional("dose_seed", "a whole number, not negative")?;
        let yes = |key: &str| Ok(table.optional(key, "true or false")?.unwrap_or(false));
        Ok(Self {
            bin: length(&table, "bin", &plausible::BIN)?.unwrap_or(1.0),
            bins,
            annuli,
            segmented: segmented.iter().map(read_segmented).collect::<Result<_, _>>()?,
            centre_of_mass: yes("centre_of_mass")?,
            integrated_centre: yes("integrated_centre")?,
            four_d: read_pattern(&table)?,
            dose: dose(&table)?,
            dose_seed: seed.unwrap_or(0) as u64,
        })
    }
}

// Defaults of the detectors
impl Default for DetectorTable {
    fn default() -> Self {
        Self {
            bin: 1.0,
            bins: None,
            annuli: vec![],
            segmented: vec![],
            centre_of_mass: false,
            integrated_centre: false,
            four_d: None,
            dose: None,
            dose_seed: 0,
        }
    }
}

/// The electrons of a place, if they are given.
fn dose(table: &Table) -> Result<Option<f64>, BadLine> {
    let expected = "a number of electrons above 0 and up to 1e15";
    let dose = table.optional("dose", expected)?;
    let good = |x: f64| x > 0.0 && x <= 1e15;
    dose.map(|x| table.check(accept(good(x), "dose", x, expected))).transpose()
}

/// Refuses an annulus whose inner angle is not below its outer.
fn check_annulus(table: &Table, key: &str, inner: f64, outer: f64) -> Result<(), BadLine> {
    let good = 0.0 <= inner && inner < outer && outer <= 2000.0;
    let expected = "an inner angle from 0 and a larger outer one up to 2000 mrad";
    table.check(accept(good, key, [inner, outer], expected)).map(|_| ())
}

// Read segments and patterns
/// One of `detector.segmented`.
fn read_segmented(table: &Table) -> Result<SegmentedTable, BadLine> {
    let [inner, outer] = [
        table.required("inner", "an angle in mrad")?,
        table.required("outer", "an angle in mrad")?,
    ];
    let angle = "an angle from 0 to 2000 mrad";
    table.check(accept((0.0..=2000.0).contains(&inner), "inner", inner, angle))?;
    check_annulus(table, "outer", inner, outer)?;
    let sectors = table.optional("sectors", "a whole number from 1 to 1000")?.unwrap_or(4);
    table.check(accept(
        (1..=1000).contains(&sectors),
        "sectors",
        sectors,
        "a whole number from 1 to 1000",
    ))?;
    Ok(SegmentedTable {
        inner,
        outer,
        sectors,
        rotation_deg: plain(table, "rotation_deg", "an angle in degrees")?,
    })
}

/// `detector.four_d`, if it is there.
fn read_pattern(table: &Table) -> Result<Option<PatternTable>, BadLine> {
    let Some(table) = table.table("four_d")? else { return Ok(None) };
    let bin = table.optional("bin", "a whole number from 1 to 4096")?.unwrap_or(1);
    table.check(accept((1..=4096).contains(&bin), "bin", bin, "a whole number from 1 to 4096"))?;
    let crop = table.optional("crop", "a number greater than 0")?;
    let crop = crop.map(|crop| table.check(positive("crop", crop))).transpose()?;
    Ok(Some(PatternTable { crop, bin }))
}

// The table of the imaging lens
/// The table `[imaging]`: a lens behind the specimen.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ImagingTable {
    /// Semi-angle of the objective aperture \[mrad\]; `None` for none.
    pub aperture: Option<f64>,
    /// Tilt of the beam against the axis of the lens, x and y \[mrad\].
    pub tilt: [f64; 2],
    /// Spread of the focus, rms \[Å\].
    pub focal_spread: f64,
    /// Angle of the illumination along each axis, rms \[mrad\].
    pub convergence: f64,
    /// Samples of images; those of the grid unless said.
    pub samples: ImageSamples,
}
impl ImagingTable {
    fn read(root: &Table) -> Result<Self, BadLine> {
        let samples = [("grid", ImageSamples::Grid), ("mask", ImageSamples::Mask)];
        let Some(table) = root.table("imaging")? else { return Ok(Self::default()) };
        let expected = "a length in Å, 0 to 1e6";
        let spread = within(&table, "focal_spread", &plausible::FOCAL_SPREAD, expected)?;
        let expected = "an angle from 0 to 500 mrad";
        let angle = within(&table, "convergence", &plausible::CONVERGENCE, expected)?;
        Ok(Self {
            aperture: length(&table, "aperture", &plausible::APERTURE)?,
            tilt: tilt(&table)?,
            focal_spread: spread.unwrap_or(0.0),
            convergence: angle.unwrap_or(0.0),
            samples: table.choice("samples", &samples)?.unwrap_or_default(),
        })
    }
}

// Numbers of a table
/// The number of `key`, if it is given and plausible.
fn within(
    table: &Table,
    key: &str,
    plausible: &Plausible,
    expected: &str,
) -> Result<Option<f64>, BadLine> {
    let number = table.optional(key, expected)?;
    number.map(|x| table.check(plausible.check(key, x))).transpose()
}

/// Refuses numbers of `key` of which one is not plausible, if they are given.
fn check_all(
    table: &Table,
    key: &str,
    plausible: &Plausible,
    numbers: Option<&[f64]>,
) -> Result<(), BadLine> {
    let check = |x: &f64| plausible.check(key, *x).map(drop);
    table.check(numbers.unwrap_or_default().iter().try_for_each(check))
}
// Lists of numbers of a table
/// The list of `N` numbers that `key` has, if it does, each of them `good`.
fn numbers<'d, T: Decode<'d> + Copy + Debug, const N: usize>(
    table: &Table<'d>,
    key: &str,
    expected: &str,
    good: impl Fn(T) -> bool,
) -> Result<Option<[T; N]>, BadLine> {
    let Some(list) = table.optional::<Vec<T>>(key, expected)? else { return Ok(None) };
    let refused = || table.refuse(Invalid::new(key, format!("{list:?}"), expected));
    let fits = list.iter().all(|x| good(*x));
    <[T; N]>::try_from(list.clone()).ok().filter(|_| fits).ok_or_else(refused).map(Some)
}

/// The number of `key` twice, or its list of two, each of them `good`.
fn one_or_two<'d, T: Decode<'d> + Copy + Debug>(
    table: &Table<'d>,
    key: &str,
    expected: &str,
    good: impl Fn(T) -> bool,
) -> Result<Option<[T; 2]>, BadLine> {
    match table.optional::<T>(key, expected) {
        Ok(None) => Ok(None),
        Ok(Some(one)) if good(one) => Ok(Some([one; 2])),
        Ok(Some(one)) => Err(table.refuse(Invalid::new(key, format!("{one:?}"), expected))),
        Err(_) => numbers(table, key, expected, good),
    }
}

/// The angles \[mrad\] of the key `tilt`, or 0.
fn tilt(table: &Table) -> Result<[f64; 2], BadLine> {
    let tilt = numbers(table, "tilt", "two angles in mrad, [x, y]", |x: f64| x.abs() <= 500.0)?;
    Ok(tilt.unwrap_or_default())
}

/// The number of `key`, positive and plausible, if it is given.
fn length(table: &Table, key: &str, plausible: &Plausible) -> Result<Option<f64>, BadLine> {
    let number = table.optional(key, "a number greater than 0")?;
    number.map(|x| table.check(positive(key, x).and_then(|x| plausible.check(key, x)))).transpose()
}

/// The number of `key`, finite, or 0.
fn plain(table: &Table, key: &str, expected: &str) -> Result<f64, BadLine> {
    table.check(finite(key, table.optional(key, expected)?.unwrap_or(0.0)))
}

// Tests of the sample file
#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"[sample]
file = "SI100.XYZ"
tile = [4, 4, 10]
cell = [5.43, 5.43, 5.43]
beam = "-z"
[potential]
model = "projected"
factors = "kirkland"
grid = [256, 256]
slice_thickness = 1.3575
bound = 3.0
[phonons]
configurations = 8
seed = 1
[beam]
energy_kev = 100.0
semi_angle = 20.0
defocus = 0.0
aberrations = [{ m = 2, n = 2, magnitude = 1.0, angle_deg = 30.0 }]
tilt = [0.0, 0.0]
[scan]
window = [[0.0, 5.43], [0.0, 5.43]]
step = 0.34
[method]
algorithm = "multislice"
interpolation = [4, 4]
[detector]
bin = 1.0
annuli = [[60.0, 100.0]]
centre_of_mass = true
four_d = { crop = 60.0, bin = 1 }
[run]
precision = "f32"
"#;

    // Keys that few sample files have
    /// Keys that few files have, beside those.
    const MORE: &str = r#"sample = { file = "a.cif", tilt = [3.0, -4.0] }
    beam.energy_kev = 80
    [scan]
    source_size = 0.4
    [method]
    algorithm = "hrtem"
    refocus = -20.0
    thicknesses = [50.0, 100]
    [detector]
    integrated_centre = true
    dose = 1e4
    dose_seed = 9
    bins = 104
    [imaging]
    aperture = 12.5
    tilt = [1.0, -2.0]
    focal_spread = 30.0
    convergence = 0.2
    samples = "mask"
    [potential]
    model = "sampled"
    factors = "kirkland-rounded"
    planes = 8
    "#;

    // A full and an empty sample file
    #[test]
    fn a_full_file_and_an_empty_one_are_read() {
        let file = SampleFile::from_toml(FULL, "book/systems/si.toml").unwrap();
        assert_eq!(file.sample.crystal.file(), Some(Path::new("book/systems/SI100.XYZ")));
        assert_eq!(
            (file.sample.tile, file.sample.beam),
            ([4, 4, 10], specimen::BeamDirection::MinusZ)
        );
        assert_eq!(file.potential.sampling, WaveSampling::Points([256, 256]));
        assert_eq!(file.phonons, Phonons { configurations: 8, seed: 1 });
        assert_eq!(
            file.beam.aberrations[0],
            AberrationTable { m: 2, n: 2, magnitude: 1.0, angle_deg: 30.0 }
        );
        assert_eq!((file.scan.window, file.scan.step), (Some([[0.0, 5.43]; 2]), [0.34; 2]));
        assert_eq!(file.detector.four_d, Some(PatternTable { crop: Some(60.0), bin: 1 }));
        let least =
            SampleFile::from_toml("sample.file = 'a.cif'\nbeam.energy_kev = 80", "s.toml").unwrap();
        assert_eq!(
            (least.sample.tile, least.beam.defocus, least.phonons.configurations),
            ([1; 3], vec![0.0], 0)
        );
        assert_eq!(
            (least.potential, least.run.precision),
            (PotentialTable::default(), Precision::F32)
        );
        let more = FULL
            .replace("grid = [256, 256]", "pixel = [0.1, 0.2]")
            .replace("defocus = 0.0", "defocus = [0, 50]");
        let more = SampleFile::from_toml(
            &more.replace("beam = \"-z\"", "zone_axis = [0, 1, -1, 2]"),
            "s.toml",
        )
        .unwrap();
        assert_eq!(
            (more.potential.sampling, &more.beam.defocus),
            (WaveSampling::Pixel([0.1, 0.2]), &vec![0.0, 50.0])
        );
        assert_eq!(more.sample.zone_axis, Some([1, 2, 2]));
        assert!(file.sample.occupancy && least.sample.occupancy);
        let refused = more.refuse("beam", Invalid::new("semi_angle", 20.0, "less")).to_string();
        assert_eq!(refused, "s.toml:17: beam.semi_angle = 20.0: expected less");
        assert!(matches!(more.specimen(), Err(Error::Read { .. })));
    }

    // Occupancies that are not heeded
    #[test]
    fn occupancies_need_not_be_heeded() {
        let folder = tempfile::tempdir().unwrap();
        let cell = "half of an atom\n4 5 6\n14 1 1 1 0.5 0.1\n79 2 3 5 1.0 0.1\n-1\n";
        std::fs::write(folder.path().join("half.xyz"), cell).unwrap();
        let name = folder.path().join("s.toml");
        let of = |more: &str| {
            let text = format!("beam.energy_kev = 80\n[sample]\nfile = 'half.xyz'\n{more}");
            let file = SampleFile::from_toml(&text, &name.display().to_string()).unwrap();
            let atoms = file.specimen().unwrap().atoms().to_vec();
            (atoms.iter().map(|atom| atom.occupancy).collect::<Vec<_>>(), atoms[1].position)
        };
        assert_eq!(of(""), (vec![0.5, 1.0], [2.0, 3.0, 5.0]));
        assert_eq!(of("occupancy = false"), (vec![1.0, 1.0], [2.0, 3.0, 5.0]));
    }

    // Displacements of a sample file
    /// What becomes of a crystal under `[phonons]` that say `more`: the displacements of its atoms, or the complaint.
    fn displacements(crystal: (&str, &str), more: &str) -> Result<Vec<f64>, String> {
        let folder = tempfile::tempdir().unwrap();
        let (file, text) = crystal;
        std::fs::write(folder.path().join(file), text).unwrap();
        let name = folder.path().join("s.toml").display().to_string();
        let text = format!("beam.energy_kev = 80\nsample.file = '{file}'\n[phonons]\n{more}");
        let specimen = SampleFile::from_toml(&text, &name).and_then(|file| file.specimen());
        let complaint =
            |error: Error| error.to_string().rsplit_once("s.toml:").unwrap().1.to_owned();
        let specimen = specimen.map_err(complaint)?;
        Ok(specimen.atoms().iter().map(|atom| atom.displacement).collect())
    }

    #[test]
    fn phonons_need_a_displacement_of_every_element() {
        let rest = ("a.xyz", "at rest\n4 5 6\n14 1 1 1\n8 2 3 5\n14 2 2 2 1.0 0.0\n-1\n");
        let eight = "configurations = 8\n";
        let refused = displacements(rest, eight).unwrap_err();
        for words in [
            "4: phonons.configurations = 8: expected displacements",
            "every atom of O, Si: as [phonons] rms = { O = 0.08 }",
            "sixth column of Kirkland's XYZ",
            "column displacement of an extended XYZ",
            "_atom_site_U_iso_or_equiv or _atom_site_B_iso_or_equiv",
        ] {
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!(displacements(rest, "configurations = 0").unwrap(), [0.0; 3]);
        let both = format!("{eight}rms = {{ Si = 0.076, O = 0.0 }}");
        assert_eq!(displacements(rest, &both).unwrap(), [0.076, 0.0, 0.076]);
        let one = displacements(rest, &format!("{eight}rms = {{ Si = 0.076 }}")).unwrap_err();
        assert!(one.contains("every atom of O: as"), "{one}");
        // One atom without a displacement is enough, and the sample file's displacement wins
        let some = ("b.xyz", "some\n4 5 6\n14 1 1 1 1 0.1\n14 2 2 2 1 0\n-1\n");
        assert!(displacements(some, eight).unwrap_err().contains("every atom of Si"));
        assert_eq!(displacements(some, &format!("{eight}rms.Si = 0.05")).unwrap(), [0.05; 2]);
        let extended = ("c.xyz", "1\nLattice=\"4 0 0 0 5 0 0 0 6\"\nAu 0 1 2\n");
        assert!(displacements(extended, eight).unwrap_err().contains("every atom of Au"));
        // Elements that are not there, or none at all
        for (rms, expected) in [
            (
                "{ Si = 0.1, O = 0.1, Au = 0.1 }",
                "5: phonons.rms.Au = 0.1: expected an element of the crystal: O, Si",
            ),
            ("{ Si = 0.1, Xx = 0.1 }", "5: phonons.rms.Xx = 0.1: expected one of the keys H, He"),
            ("{ Si = -0.1 }", "5: phonons.rms.Si = -0.1: expected a one-dimensional rms"),
            ("{ Si = 7.6 }", "5: phonons.rms.Si = 7.6: expected a one-dimensional rms"),
            ("{ Si = nan }", "5: phonons.rms.Si = nan: expected a one-dimensional rms"),
            ("0.076", "5: phonons.rms = 0.076: expected a table [rms]"),
        ] {
            let refused = displacements(rest, &format!("{eight}rms = {rms}")).unwrap_err();
            assert!(refused.starts_with(expected), "{refused}");
        }
    }

    // Faults named by lines of the crystal
    #[test]
    fn elements_without_factors_and_shared_positions_name_lines_of_the_crystal() {
        let folder = tempfile::tempdir().unwrap();
        let complaint = |crystal: &str, more: &str| {
            std::fs::write(folder.path().join("a.xyz"), crystal).unwrap();
            let name = folder.path().join("s.toml").display().to_string();
            let text = format!("beam.energy_kev = 80\n[sample]\nfile = 'a.xyz'\n{more}");
            let file = SampleFile::from_toml(&text, &name).unwrap();
            file.specimen()
                .err()
                .map(|error| error.to_string().rsplit_once("a.xyz:").unwrap().1.to_owned())
        };
        let lawrencium = complaint("x\n4 5 6\n14 1 1 1\n103 2 3 5\n-1\n", "").unwrap();
        let expected = "4: element = Lr: expected an element of the table of Kirkland, 1 to";
        assert!(lawrencium.starts_with(expected), "{lawrencium}");
        let shared = "x\n4 5 6\n14 1 1 1 0.5\n32 1 1 1 0.5\n-1\n";
        assert_eq!(complaint(shared, ""), None);
        let whole = complaint(shared, "occupancy = false").unwrap();
        assert!(whole.starts_with("4: atom = 0.0000 Å from the atom on line 3"), "{whole}");
    }

    // Bad sample files are refused
    /// Replaces each first text by the second and expects a complaint that begins with the third.
    fn refused(cases: &[(&str, &str, &str)]) {
        for (from, to, expected) in cases {
            let bad = FULL.replacen(from, to, 1);
            let refused = SampleFile::from_toml(&bad, "s.toml").unwrap_err().to_string();
            assert!(refused.starts_with(&format!("s.toml:{expected}")), "{refused}");
        }
    }

    #[test]
    fn bad_samples_are_refused_by_line() {
        let tile = "3: sample.tile = [4, 0, 10]: expected three whole numbers";
        let beam = "beam = \"-z\"";
        refused(&[
            (
                "file =",
                "files =",
                "2: sample.files = \"SI100.XYZ\": expected a known key; did you mean file?",
            ),
            ("[4, 4, 10]", "[4, 0, 10]", tile),
            ("[4, 4, 10]", "[4, 4]", "3: sample.tile = [4, 4]: expected three"),
            ("[4, 4, 10]", "[4, 4, 1.5]", "3: sample.tile = [4, 4, 1.5]: expected three"),
            ("5.43, 5.43, 5.43", "5.43, 5.43, -1", "4: sample.cell = [5.43, 5.43, -1.0]: expected"),
            (beam, "beam = \"z\"", "5: sample.beam = \"z\": expected \"+x\" or"),
            (
                beam,
                "zone_axis = [0, 0, 0]",
                "5: sample.zone_axis = [0.0, 0.0, 0.0]: expected three",
            ),
            (beam, "zone_axis = [1, 1, 1, 0]", "5: sample.zone_axis = [1, 1, 1, 0]: expected four"),
            (beam, "occupancy = 1", "5: sample.occupancy = 1: expected true or false"),
            (beam, "strain = 0.2", "5: sample.strain = 0.2: expected a cosine"),
        ]);
    }

    // Bad tables next to the sample are rejected
    #[test]
    fn bad_tables_are_refused_by_line() {
        refused(&[
            ("\"projected\"", "\"3d\"", "7: potential.model = \"3d\": expected \"lookup\" or"),
            ("[256, 256]", "[256, 255]", "9: potential.grid = [256, 255]: expected two multiples"),
            ("bound = 3.0", "pixel = 0.1", "11: potential.pixel"),
            ("1.3575", "0", "10: potential.slice_thickness = 0: expected a finite number greater"),
            ("seed = 1", "seed = -1", "14: phonons.seed = -1: expected a whole number"),
            ("100.0\n", "nan\n", "16: beam.energy_kev = nan: expected an energy between"),
            ("energy_kev = 100.0\n", "", "15: beam.energy_kev is missing: expected an energy"),
            ("n = 2", "n = 3", "19: beam.aberrations[0].n = 3: expected a number of maxima"),
            (
                "[0.0, 5.43], [",
                "[6.0, 5.43], [",
                "22: scan.window = [[6.0, 5.43], [0.0, 5.43]]: ex",
            ),
            ("step = 0.34", "step = 0", "23: scan.step = 0: expected a length in Å greater than 0"),
            ("[4, 4]\n", "[4, 0]\n", "26: method.interpolation = [4, 0]: expected a whole"),
            ("[4, 4]\n", "4\nmargin = -1\n", "27: method.margin = -1: expected an angle"),
            ("[60.0, 100.0]", "[100.0, 60.0]", "29: detector.annuli[0] = [100.0, 60.0]: expected"),
            ("bin = 1 }", "bin = 0 }", "31: detector.four_d.bin = 0: expected a whole number"),
            ("\"f32\"", "\"f16\"", "33: run.precision = \"f16\": expected \"f32\" or \"f64\""),
        ]);
    }

    // A file with keys that few have
    #[test]
    fn keys_that_few_files_have_are_read_or_refused() {
        let file = SampleFile::from_toml(MORE, "s.toml").unwrap();
        let method = MethodTable {
            margin: None,
            algorithm: Algorithm::Hrtem,
            interpolation: None,
            lenient: false,
            refocus: -20.0,
            thicknesses: vec![50.0, 100.0],
        };
        assert_eq!((file.scan.source_size, &file.method), (0.4, &method));
        let detector = &file.detector;
        assert_eq!(
            (
                detector.integrated_centre,
                detector.centre_of_mass,
                detector.dose,
                detector.dose_seed
            ),
            (true, false, Some(1e4), 9)
        );
        let tilt = [1.0, -2.0];
        let samples = ImageSamples::Mask;
        let aperture = Some(12.5);
        let lens = ImagingTable { aperture, tilt, focal_spread: 30.0, convergence: 0.2, samples };
        assert_eq!(file.imaging, lens);
        assert_eq!((file.sample.tilt, detector.bins), ([3.0, -4.0], Some(104)));
        let (model, factors) = (PotentialModel::Sampled, Factors::KirklandRounded);
        let options = PotentialOptions { model, factors, bound: 3.0, planes: 8 };
        assert_eq!(file.potential.options, options);
        for (from, to, expected) in [
            ("0.4", "-0.4", "4: scan.source_size = -0.4: expected a length in Å, 0 to 1000"),
            ("\"hrtem\"", "\"tem\"", "6: method.algorithm = \"tem\": expected \"multislice\" or"),
            ("-20.0", "nan", "7: method.refocus = nan: expected a length in Å"),
            ("100]", "-1]", "8: method.thicknesses[1] = -1: expected a finite number greater"),
            ("[50.0, 100]", "50.0", "8: method.thicknesses = 50.0: expected a list of lengths"),
            ("integrated_centre = true", "integrated_centre = 1", "10: detector.integrated_centre"),
            ("1e4", "0", "11: detector.dose = 0: expected a number of electrons above 0"),
            ("= 9", "= -9", "12: detector.dose_seed = -9: expected a whole number"),
            ("104", "0", "13: detector.bins = 0: expected a whole number from 1"),
            ("12.5", "0", "15: imaging.aperture = 0: expected a finite number greater"),
            ("[1.0, -2.0]", "[1.0]", "16: imaging.tilt = [1.0]: expected two angles"),
            ("30.0", "-1", "17: imaging.focal_spread = -1: expected a length in Å"),
            ("0.2", "inf", "18: imaging.convergence = inf: expected an angle"),
            ("\"mask\"", "\"all\"", "19: imaging.samples = \"all\": expected \"grid\" or \"mask\""),
            ("planes = 8", "planes = 0", "23: potential.planes = 0: expected a whole number"),
            ("[3.0, -4.0]", "[3.0, 900]", "1: sample.tilt = [3.0, 900.0]: expected two angles"),
            ("aperture", "apperture", "15: imaging.apperture = 12.5: expected a known key; did"),
        ] {
            assert!(MORE.contains(from));
            let bad = MORE.replacen(from, to, 1);
            let refused = SampleFile::from_toml(&bad, "s.toml").unwrap_err().to_string();
            assert!(refused.starts_with(&format!("s.toml:{expected}")), "{refused}");
        }
    }
}
