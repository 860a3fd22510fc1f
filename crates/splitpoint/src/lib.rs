//! A crash-safe hash table in one file or in memory: linear hashing over a record log.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("capitals.spt");
//! let db = splitpoint::Db::open(&path)?;
//! db.put(b"France", b"Paris")?;
//! assert_eq!(db.get(b"France")?.as_deref(), Some(&b"Paris"[..]));
//! db.close()?;
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod check;
mod db;
mod error;
mod format;
pub mod hash;
pub mod linear;
mod options;
mod stats;
mod table;

pub use check::{CheckReport, Damage};
pub use db::{Db, Scan};
pub use error::{Error, ErrorKind, Result};
pub use options::{
    Create, Durability, FILL_FACTOR_DEFAULT, KEY_BYTES_MAX, Options, VALUE_BYTES_MAX,
};
pub use stats::{ChainHistogram, ChainRow, Occupancy, Recovery, SegmentBytes, Stats};
pub use table::{
    BatchAtomicity, Capabilities, Change, Entries, Entry, PutMode, ScanGuarantee, Table, Value,
    open, open_with,
};
