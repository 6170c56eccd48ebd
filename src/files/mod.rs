// Tangled from book/src/files-and-formats.md: edit there, or here and run cargo tangle stitch.
//! Files: arrays in NumPy's and in the astronomers' format, tables with places.

// Modules of files
pub(crate) mod atomic_file;
pub use atomic_file::{AtomicFile, AtomicFolder, check_distinct, check_files, check_length};
pub use atomic_file::{check_names, check_outside};
pub(crate) mod format;
pub use format::Format;
pub(crate) mod npz;
pub(crate) mod npz_notes;
pub(crate) mod reading;
pub use reading::{Unit, read_array, read_array2};
pub(crate) mod fits;
pub(crate) mod provenance;
pub use provenance::Provenance;
pub(crate) mod variables;
pub use variables::Instrument;
pub(crate) mod hdf5;
pub(crate) mod emd;
pub(crate) mod zarr;
pub(crate) mod hyperspy;
pub(crate) mod mrc;
pub(crate) mod write;
pub(crate) mod read;
pub(crate) mod keys;
pub use keys::{Key, KeyDefault, KeyKind, KeyRange, KeyRow, Keys, key_markdown, key_rows};
pub(crate) mod spanned_toml;
