//! The lab: measures hash functions and hash tables on the user's own keys, beside the ideal.
//!
//! ```text
//! keys --> Specimen --> hash --> Reduction --> bucket --> PartialStats --> Report
//!                                                           merge
//! ```
//!
//! A [`Specimen`] is a hash function with the facts about it. A [`Reduction`] turns hashes into
//! bucket numbers. A [`Setup`] of both and a table counts keys into [`PartialStats`], which add up
//! over threads and machines. A [`Report`] puts the counts beside those of an ideal hash.
//!
//! [`keys`] reads the keys. [`report`] puts a [`Study`] of them into words, and [`document`]
//! renders it as text, as a page or as Markdown.

#![forbid(unsafe_code)]

pub mod avalanche;
mod bit_counts;
pub mod capture;
pub mod chains;
pub mod chance;
pub mod choose;
pub mod classics;
pub mod compare;
pub mod document;
pub mod drive;
mod error;
pub mod gate;
pub mod golden;
pub mod handles;
pub mod key_positions;
pub mod keys;
pub mod line_load;
pub mod live_kernel;
pub mod live_store;
pub mod lookups;
pub mod measure;
mod memory;
pub mod number;
pub mod occupancy;
pub mod paging;
mod pairs;
pub mod paper;
mod partial;
pub mod probability;
pub mod probing;
mod random;
pub mod reduction;
pub mod replay;
pub mod report;
mod sketch;
pub mod slots;
pub mod specimen;
pub mod study;
pub mod timing;
pub mod zstd;

pub use bit_counts::BitCounts;
pub use chains::LiveTable;
pub use document::Document;
pub use error::Error;
pub use key_positions::{KeyPositions, KeySample};
pub use lookups::Lookups;
pub use measure::{Report, Verdict};
pub use occupancy::Occupancy;
pub use partial::{PartialStats, Setup};
pub use reduction::{Reducer, Reduction};
pub use sketch::KeySketch;
pub use specimen::Specimen;
pub use study::Study;
