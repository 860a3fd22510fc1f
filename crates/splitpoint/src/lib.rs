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
mod backup;
mod bitmap;
mod canary;
mod check;
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
mod repair;
mod residency;
mod space;
mod stats;
#[expect(unsafe_code, reason = "memory mappings; listed in ARCHITECTURE.md")]
mod storage;
mod store;
mod syncer;
mod table;

pub use backup::{Backup, BackupProgress, BackupReport, BackupStage, backup};
pub use check::{CheckProgress, CheckReport, CheckStage, Damage};
pub use cursor::Scan;
pub use db::Db;
pub use error::{Error, ErrorKind, Result};
pub use file_kind::FileKind;
pub use options::{
    Create, Durability, FILL_FACTOR_DEFAULT, KEY_BYTES_MAX, Options, RecoveryProgress,
    VALUE_BYTES_MAX,
};
pub use repair::{DamagedRange, RepairProgress, RepairReport, repair, repair_with};
pub use stats::{
    ChainHistogram, ChainRow, Checkpoint, Ideal, Occupancy, Recovery, SegmentBytes, Stats,
};
pub use storage::regular::open_regular;
#[cfg(any(test, feature = "sim"))]
pub use storage::sim::{SimDisk, SimFault};
pub use table::{
    BatchAtomicity, Capabilities, Change, Entries, Entry, Opener, PutMode, ScanGuarantee, Table,
    Value, open, open_with, register,
};
