// Tangled from book/src/telemetry-files.md: edit there, or here and run cargo tangle stitch.
//! Files of other programs and telemetry, mapped to the types of this library and back.

// Modules of formats
pub(crate) mod aot;
pub use aot::system::{TelemetrySystem, read_slopes};
pub use aot::{Telemetry, TelemetryFile, is_telemetry};
pub(crate) mod slopes;
pub use slopes::{ReadSlopes, SlopeFormat, SlopeUnit};
pub(crate) mod reconstructor;
pub(crate) mod scopesim;
pub use scopesim::FieldImages;
pub(crate) mod tiptop;
pub use tiptop::{Imported, ImportedKey, KeyStatus};
pub(crate) mod crystal_files;
pub use crystal_files::CrystalFile;
pub(crate) mod cif;
