// Tangled from book/src/the-system.md: edit there, or here and run cargo tangle stitch.
//! Physical model: atmosphere, sources, sensors and their noise, and the system file that describes them.

// Modules of model
pub(crate) mod atmosphere;
pub use atmosphere::{Atmosphere, Layer};
pub(crate) mod source;
pub use source::{ConeGradient, Source};
pub(crate) mod lenslet_array;
pub use lenslet_array::{LensletArray, Pupil, SlopeArrangement, SlopeOrder, Validity};
pub(crate) mod sensor;
pub use sensor::{Footprint, Groups, Sensor};
pub(crate) mod removed_modes;
pub use removed_modes::{Focus, RemovedModes, TipTilt};
pub(crate) mod noise;
pub use noise::{GuideStar, Noise, SlopeNoise};
pub(crate) mod light;
pub use light::{Brightness, LaserSpot, Light};
pub(crate) mod system;
pub use system::{SlopeModel, System, SystemBuilder};
pub(crate) mod wavefront_grid;
pub use wavefront_grid::PhaseGrid;
#[cfg(feature = "files")]
pub(crate) mod system_file;
#[cfg(feature = "files")]
pub use system_file::{SystemFile, SystemFileBuilder};
pub(crate) mod mirror;
pub use mirror::{ActuatorLayout, MeasuredInfluence, MirrorDesign, Spacing};
pub(crate) mod control;
pub use control::{ControlLoop, LoopKind};
#[cfg(feature = "files")]
pub(crate) mod system_keys;
#[cfg(feature = "files")]
pub use system_keys::SYSTEM_KEYS;
