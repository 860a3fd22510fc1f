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

#[cfg(not(target_pointer_width = "64"))]
compile_error!("splitpoint maps whole files: it needs a 64-bit address space");

mod atomic;
mod background;
pub mod backup;
mod batch;
mod bitmap;
mod canary;
pub mod check;
mod checkpoint;
mod cursor;
mod db;
mod error;
mod file_kind;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod growing;
pub mod hash;
mod health;
mod identify;
mod index;
pub mod linear;
mod live;
mod log;
mod options;
mod piece;
mod prefaulter;
mod recovery;
#[expect(unsafe_code, reason = "pointers into windows and the view; listed in ARCHITECTURE.md")]
mod region;
pub mod rehash;
pub mod repair;
mod residency;
mod space;
pub mod stats;
#[expect(unsafe_code, reason = "memory mappings; listed in ARCHITECTURE.md")]
mod storage;
mod store;
mod syncer;
mod table;
mod url;
mod value;

pub use batch::{AsPair, Batch, Change, Changes};
pub use cursor::Scan;
pub use db::{Db, Iter, Keys, Values};
pub use error::{Error, ErrorKind, Result};
pub use file_kind::FileKind;
pub use options::{
    Create, Durability, FILL_FACTOR_DEFAULT, KEY_BYTES_MAX, Options, RecoveryProgress,
    VALUE_BYTES_MAX,
};
pub use stats::Recovery;
pub use storage::regular::open_regular;
#[cfg(any(test, feature = "sim"))]
pub use storage::sim::{SimDisk, SimFault};
pub use table::{
    BatchAtomicity, Capabilities, Entries, PutMode, ScanGuarantee, Table, TableCheck, TableExt,
};
pub use url::{Opener, open, open_with, register};
pub use value::{Entry, Value};
