//! `libsplitpoint`: the store for C, and for every language that calls C.
//!
//! The doc comments of the functions are the comments of `splitpoint.h`, which `cargo xtask stage`
//! makes from this crate. So they speak of C.
//!
//! # Invariants
//!
//! - Every function takes null for every pointer, and answers with an error instead of a crash. A
//!   pointer that is not null is what the header says: a handle that the library returned and nobody
//!   released, a place for a result, or as many bytes as the size beside it. The `SAFETY` comments
//!   call these the rules of the header.
//! - No panic leaves the library: the call fails with [`SP_ERR_PANIC`], and the
//!   handle refuses changes from then on.
//! - Memory that the program frees comes from malloc(3).
//! - No other name than those that begin with `sp_` is visible in the library.

#![expect(non_camel_case_types, reason = "the types have their names in C")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the rules for pointers are the same for all functions; the header begins with them"
)]
#![expect(clippy::doc_markdown, reason = "the docs of what C sees are comments of C")]

mod batch;
mod code;
mod failure;
mod handle;
mod moment;
mod options;
mod read;
mod scan;
mod stats;
mod write;

pub use batch::*;
pub use code::*;
pub use handle::*;
pub use moment::*;
pub use options::*;
pub use read::*;
pub use scan::*;
pub use stats::*;
pub use write::*;
