//! What the fuzz targets run, for them and for the test that replays their corpus. Not an API: it
//! changes without notice.
//!
//! Each function takes the input of one run and panics if something does not hold. A file made to
//! harm has right checksums, so the inputs say whether they are to be mended before they are used:
//! see `mend`.

mod blocks;
mod mend;
mod open_scan;
mod recovery;
mod source;

pub use blocks::record;
pub use mend::mend;
pub use open_scan::open_scan;
pub use recovery::recovery;
pub use source::{Base, sparse};

use source::Source;

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
