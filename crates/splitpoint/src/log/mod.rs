//! The record log: an append-only sequence of records, cut into segments.
//!
//! ```text
//! segment              segment              segment (tail)
//! | record | LINK |    | record | LINK |    | record | free ...
//!              `--------^          `---------^       ^ next Lsn
//! ```
//!
//! The log is both the data and the write-ahead log. It is authoritative; the index is only a cache
//! of it.
//!
//! # Invariants
//!
//! - A record never crosses a segment boundary and never changes once it is published.
//! - A full log segment ends with a LINK record that names its successor, so replay follows the
//!   chain and never searches the file.
//! - The first record of the chain whose checksum is wrong is the end of the log.
//!
//! # Not here
//!
//! Which record of a key is live: that is in `index`.

pub(crate) mod append;
pub(crate) mod batch;
pub(crate) mod durable;
mod pages_ahead;
pub(crate) mod record;
pub(crate) mod relocation;
pub(crate) mod resync;
pub(crate) mod runs;
pub(crate) mod scan;
pub(crate) mod segment;
