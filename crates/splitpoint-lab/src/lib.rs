//! The lab: measures hash functions and hash tables on the user's own keys, beside the ideal.
//!
//! ```text
//! keys --> Specimen --> hash --> Reduction --> bucket
//! ```
//!
//! A [`Specimen`] is a hash function with its facts; a [`Reduction`] makes bucket numbers of
//! hashes.
//!
//! # Not here
//!
//! Reading and printing are the command's business.

#![forbid(unsafe_code)]

mod error;
pub mod golden;
pub mod reduction;
pub mod specimen;

pub use error::Error;
pub use reduction::{Reducer, Reduction};
pub use specimen::Specimen;
