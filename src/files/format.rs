// Tangled from book/src/array-formats.md: edit there, or here and run cargo tangle stitch.
//! Formats of files of data sets.

use crate::error::Invalid;
use std::path::Path;

// Formats and precisions
/// In which format data sets are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// NumPy's archive of arrays: `.npz`.
    Npz,
    /// NumPy's file of one array by itself: `.npy`.
    Npy,
    /// FITS, with an image for each array: `.fits`, `.fit`, `.fts`.
    Fits,
    // Formats of microscopists
    /// HDF5, in the trees of EMD 1.0, which py4DSTEM reads, and of Prismatic: `.emd`, `.h5`, `.hdf5`.
    Hdf5,
    /// HDF5 as HyperSpy saves it: `.hspy`.
    Hspy,
    /// Zarr in an archive, as HyperSpy saves it: `.zspy`.
    Zspy,
    /// Zarr in a folder, a group for each variable: `.zarr`.
    Zarr,
    /// Zarr in an archive, a group for each variable: `.zarr.zip`.
    ZarrZip,
    /// One variable as a stack of images: `.mrc`.
    Mrc,
}

impl Format {
    // Lists of formats
    /// All formats.
    pub const ALL: [Self; 9] = [
        Self::Npz,
        Self::Npy,
        Self::Fits,
        Self::Hdf5,
        Self::Hspy,
        Self::Zspy,
        Self::Zarr,
        Self::ZarrZip,
        Self::Mrc,
    ];
    /// The formats for one array without coordinates.
    pub const OF_ARRAY: [Self; 3] = [Self::Npz, Self::Npy, Self::Fits];
    /// The formats for several arrays without coordinates.
    pub const OF_ARRAYS: [Self; 2] = [Self::Npz, Self::Fits];
    /// The formats for variables with coordinates.
    pub const WITH_COORDINATES: [Self; 7] =
        [Self::Hdf5, Self::Hspy, Self::Zspy, Self::Zarr, Self::ZarrZip, Self::Mrc, Self::Npz];

    // Find the format of a file's name
    /// The format of the file of a `role`, such as `output`: what its name ends in, or, where no array format has that ending, what was
    /// requested; it must be one of those that fit.
    ///
    /// # Errors
    /// `Invalid`, with the endings that fit, for any other ending or none, or one that contradicts the request.
    ///
    /// ```
    /// use lenslet::files::Format;
    /// let of = |name: &str, requested| Format::of(("output", name.as_ref()), &Format::OF_ARRAYS, requested);
    /// assert_eq!(of("cov.FITS", None), Ok(Format::Fits));
    /// assert_eq!(of("cov.tmp", Some(Format::Npz)), Ok(Format::Npz));
    /// assert!(of("cov.tmp", None).is_err() && of("cov.fits", Some(Format::Npz)).is_err());
    /// ```
    pub fn of(
        (role, path): (&str, &Path),
        fitting: &[Self],
        requested: Option<Self>,
    ) -> Result<Self, Invalid> {
        let known = Self::ALL.into_iter().find(|format| format.is_ending_of(path));
        let known = known.filter(|it| requested.is_none() || Self::OF_ARRAY.contains(it));
        let fits = |it: &Self| fitting.contains(it) && requested.is_none_or(|format| format == *it);
        known.or(requested).filter(fits).ok_or_else(|| {
            // Name the endings that fit
            let formats = requested.as_ref().map_or(fitting, std::slice::from_ref);
            let endings: Vec<_> = formats.iter().flat_map(|format| format.endings()).collect();
            let endings = endings.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>();
            let expected = match endings.split_last() {
                Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                _ => endings.concat(),
            };
            Invalid::new(role, path.display(), format!("a file name that ends in {expected}"))
        })
    }
}

// Endings of the formats
impl Format {
    /// Its name, which is the first of its endings.
    pub fn name(self) -> &'static str {
        self.endings()[0]
    }

    /// What names of such files end in, behind a point.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Npz => &["npz"],
            Self::Npy => &["npy"],
            Self::Fits => &["fits", "fit", "fts"],
            Self::Hdf5 => &["h5", "hdf5", "emd"],
            Self::Hspy => &["hspy"],
            Self::Zspy => &["zspy"],
            Self::Zarr => &["zarr"],
            Self::ZarrZip => &["zarr.zip"],
            Self::Mrc => &["mrc"],
        }
    }

    /// Whether the name of a file has one of its endings behind a name.
    fn is_ending_of(self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        self.endings().iter().any(|ending| {
            let rest = name.strip_suffix(ending).and_then(|rest| rest.strip_suffix('.'));
            rest.is_some_and(|stem| !stem.is_empty())
        })
    }
}
