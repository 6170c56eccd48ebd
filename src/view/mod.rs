// Tangled from book/src/view-page.md: edit there, or here and run cargo tangle stitch.
//! HTML pages that show data sets in a browser, without a network.

pub(crate) mod encode;
pub(crate) mod manifest;
pub(crate) mod page;
pub(crate) mod pattern_sums;
pub(crate) mod pieces;
pub(crate) mod reduce;
pub(crate) mod request;
pub(crate) mod served_page;
pub(crate) mod server;

pub use page::{Page, PageArray, PageOptions};
pub use pieces::Pieces;
pub use server::{Server, Stopper};
