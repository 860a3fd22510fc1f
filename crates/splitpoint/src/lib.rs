//! A hash table in one crash-safe file, or in memory.
//!
//! Keys and values are any bytes. The table needs no size: it grows and shrinks one bucket at a
//! time (linear hashing over a log of records). A lookup touches two cache lines, readers take no
//! lock, and no committed change is lost when the process is killed.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("capitals.spt");
//! use splitpoint::Db;
//!
//! let db = Db::open(&path)?; // Creates the file if it is missing.
//! db.put("France", "Paris")?;
//! assert_eq!(db.get("France")?.expect("it was stored"), "Paris");
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Contents
//!
//! - [When to use it, and when not](#when-to-use-it-and-when-not)
//! - [Open and close](#open-and-close)
//! - [Put, get, delete](#put-get-delete)
//! - [Read and write in one step](#read-and-write-in-one-step)
//! - [Many keys at once](#many-keys-at-once)
//! - [Batches](#batches)
//! - [Snapshots and transactions](#snapshots-and-transactions)
//! - [Scans](#scans)
//! - [Durability](#durability)
//! - [Threads](#threads)
//! - [Processes](#processes)
//! - [Errors](#errors)
//! - [Limits](#limits)
//! - [Backup, check and repair](#backup-check-and-repair)
//! - [Space](#space)
//! - [Tables in memory](#tables-in-memory)
//! - [Other access methods](#other-access-methods)
//! - [Statistics and hash functions](#statistics-and-hash-functions)
//! - [Cargo features](#cargo-features)
//!
//! # When to use it, and when not
//!
//! Use Splitpoint where a program looks up records by their exact key: caches, indexes, counters,
//! sets of things already seen, tables too large for memory.
//!
//! - **It is not ordered.** There are no range queries and there is no "next key". Use a B-tree for
//!   those.
//! - **One handle writes at a time**: either for as long as it is open, or by turns with others.
//!   Any number may read concurrently, in any process: see [`Options::sharing`].
//! - **A large transaction is written twice**: its changes beyond [`Options::transaction_bytes`]
//!   first spill to an unnamed file. A table in memory refuses such a transaction.
//! - **It is not for network file systems**, nor for disks that acknowledge a flush before it is
//!   done.
//! - **It runs on 64-bit Linux only**, because it maps whole files. It is tested on x86-64, and has
//!   been tried on aarch64.
//!
//! # Open and close
//!
//! [`Db::open`] opens a file with the default options; [`Options`] changes them. The number of
//! records need not be known in advance: a store grows without pausing to rehash.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("a.spt");
//! use splitpoint::{Create, Durability, Options};
//!
//! let db = Options::new().create(Create::New).durability(Durability::Sync).open(&path)?;
//! db.put("key", "value")?;
//! db.close()?;
//!
//! let db = Options::new().read_only().open(&path)?;
//! assert!(db.contains("key")?);
//! # Ok(())
//! # }
//! ```
//!
//! [`Db::close`] reports what a drop cannot: whether the last changes became durable. If a process
//! is killed before it closes the store, nothing is lost. After a power loss the next open rebuilds
//! the index from the last checkpoint and the log after it.
//!
//! Values need no copy because the file is mapped into memory. In return the program must keep a
//! contract while the file is open: see [`Db::open`]. The most important rule: no other program may
//! write to the file or truncate it.
//!
//! # Put, get, delete
//!
//! Keys and values are anything that is `AsRef<[u8]>`: byte strings, `&str`, arrays, vectors. The
//! empty key is valid. [`Db::get`] returns a [`Value`], which borrows the bytes from the mapped
//! file; [`Value::into_vec`] and [`Db::get_into`] copy them.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let db = splitpoint::Db::in_memory()?;
//! db.put("Peru", "Lima")?;
//! db.put(604_u64.to_be_bytes(), vec![0, 1, 2])?;
//! if let Some(value) = db.get("Peru")? {
//!     println!("{}", String::from_utf8_lossy(&value));
//! }
//! assert!(!db.put_new("Peru", "Cuzco")?, "Peru has a value");
//! assert!(db.delete("Peru")?);
//! assert_eq!(db.get("Peru")?, None);
//! # Ok(())
//! # }
//! ```
//!
//! # Read and write in one step
//!
//! [`Db::update`] and [`Db::get_or_insert_with`] keep other writers out between the read and the
//! write. [`Db::retain`] and [`Db::clear`] delete many keys; each single delete is atomic.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let db = splitpoint::Db::in_memory()?;
//! db.update("log", |old| Some([old.unwrap_or_default(), b"one more line\n"].concat()))?;
//! let id = db.get_or_insert_with("id", || "4711")?;
//! assert_eq!(id, "4711");
//! # Ok(())
//! # }
//! ```
//!
//! # Many keys at once
//!
//! In a table larger than the processor's cache, a lookup spends most of its time in cache misses.
//! [`Db::get_many`] and [`Db::put_many`] take any iterator and overlap the misses of several keys,
//! which is several times faster than one call after the other.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let db = splitpoint::Db::in_memory()?;
//! db.put_many((0..1000_u32).map(|i| (i.to_le_bytes(), format!("number {i}"))))?;
//! let values = db.get_many([7_u32, 1007].map(u32::to_le_bytes))?;
//! assert_eq!(values[0].as_ref().expect("it was stored"), "number 7");
//! assert_eq!(values[1], None);
//! # Ok(())
//! # }
//! ```
//!
//! If [`Db::put_many`] cannot store a record, it returns the error; the records before it are
//! stored.
//!
//! # Batches
//!
//! [`Db::apply`] applies all changes of a [`Batch`] or none, even if the process is killed or the
//! power fails halfway.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let db = splitpoint::Db::in_memory()?;
//! use splitpoint::Batch;
//!
//! db.put("alice", "100")?;
//! db.apply(&Batch::new().put("alice", "70").put("bob", "30").delete("carol"))?;
//! assert_eq!(db.get("bob")?.expect("it was stored"), "30");
//! # Ok(())
//! # }
//! ```
//!
//! # Snapshots and transactions
//!
//! [`Db::snapshot`] returns the store as it is now; later changes do not affect it.
//! [`Db::transaction`] runs a function that reads and writes any number of keys. Its changes are
//! applied atomically, as if no other thread or process had changed anything in the meantime (the
//! transaction is serializable). If another one has changed what the function read, the function
//! runs again.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let db = splitpoint::Db::in_memory()?;
//! db.put_many([("alice", "70"), ("bob", "30")])?;
//! let before = db.snapshot()?;
//! db.transaction(|tx| {
//!     let alice = tx.get("alice")?.expect("an account");
//!     let bob = tx.get("bob")?.expect("an account");
//!     tx.put("alice", bob)?;
//!     tx.put("bob", alice)
//! })?;
//! assert_eq!(db.get("bob")?.expect("an account"), "70");
//! assert_eq!(before.get("bob")?.expect("an account"), "30");
//! # Ok(())
//! # }
//! ```
//!
//! [`Db::begin`] begins a [`Transaction`] that the program commits itself, with savepoints.
//! [`Db::compare_and_swap`], [`Db::increment`] and [`Db::update`] change one key atomically.
//!
//! # Scans
//!
//! A loop over `&db`, [`Db::scan`], [`Db::keys`] and [`Db::values`] read the file in order. Each
//! returns every key that existed when it began exactly once, regardless of concurrent changes. A
//! program that deletes each key that a scan returns deletes everything.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let db = splitpoint::Db::in_memory()?;
//! # db.put("France", "Paris")?;
//! for entry in &db {
//!     let entry = entry?;
//!     println!("{:?} has {} bytes", entry.key, entry.value.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! When a call returns, its change is visible to all threads and survives a killed process. The
//! program chooses when it survives a power loss: for a handle with [`Options::durability`], for
//! one change with [`Db::put_with`] and the other methods that end in `_with`.
//!
//! | level | a power loss undoes at most | cost of a change |
//! |---|---|---|
//! | [`Durability::Sync`] | nothing that has returned | one shared flush of the device |
//! | [`Durability::Async`] (default) | the last second, and what a running sync covers | none on a fast device |
//! | [`Durability::Buffered`] | everything since the last [`Db::sync`] | none |
//!
//! After any crash a store holds a prefix of its commits, and all of a batch or none of it. After a
//! failed sync the handle refuses changes with [`ErrorKind::Poisoned`], because the operating
//! system does not say which changes reached the device.
//!
//! # Threads
//!
//! A [`Db`] is `Send`, `Sync` and `Clone`; a clone is another handle to the same store. Readers
//! take no lock and never wait, not even while the table grows. Writers exclude each other; with
//! [`Durability::Sync`], those that wait at the same time share a flush. Closing or dropping the
//! last handle closes the store.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let db = splitpoint::Db::in_memory()?;
//! let writer = db.clone();
//! let thread = std::thread::spawn(move || writer.put("key", "value"));
//! thread.join().expect("it does not panic")?;
//! assert!(db.contains("key")?);
//! # Ok(())
//! # }
//! ```
//!
//! # Processes
//!
//! By default one handle may change a file, for as long as it is open. Any number of handles with
//! [`Options::read_only`] may read the file concurrently, in any process, with or without
//! permission to write to it. They see each change as soon as the writer's own threads do. If the
//! writer is killed, they stay usable, also while the next writer opens the file. Another handle
//! that wants to write gets [`ErrorKind::Locked`], at once or after [`Options::lock_timeout`]. The
//! child of a fork uses [`Db::reopen`].
//!
//! With [`Sharing::Shared`] any number of handles may change a file, in any process: each change
//! waits for its turn and sees all earlier changes. [`Sharing::PerCall`] does the same without a
//! lock between calls.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("a.spt");
//! use splitpoint::{Db, Options};
//!
//! let writer = Db::open(&path)?;
//! let reader = Options::new().read_only().open(&path)?; // As in any other process.
//! writer.put("key", "value")?;
//! assert_eq!(reader.get("key")?.expect("it was stored"), "value");
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! All calls return the same [`Error`] type. Its text says what failed, where and why; match on
//! [`Error::kind`]. A missing key is not an error. After an error the store is as it was before the
//! call; calls that change many keys document what remains. The handle stays usable, unless the
//! kind is [`ErrorKind::Poisoned`].
//!
//! ```
//! use splitpoint::{ErrorKind, Options};
//!
//! let error = Options::new().read_only().open("/no/such/file").unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::NotFound);
//! let text = error.to_string();
//! assert_eq!(text, "cannot open `/no/such/file`: No such file or directory (os error 2)");
//! ```
//!
//! # Limits
//!
//! | | |
//! |---|---|
//! | key, value | 0 to 4 GiB - 1 bytes each: [`KEY_BYTES_MAX`], [`VALUE_BYTES_MAX`] |
//! | file | 8 TiB |
//! | keys | 2^32 buckets, about 19 billion keys |
//! | memory | 16 bytes of index per key, mapped; the rest is page cache |
//! | address space | up to 8 times the file: see [`Options`](Options#address-space) |
//!
//! # Backup, check and repair
//!
//! [`Db::backup`] copies a store while threads write to it; [`backup`](mod@backup) copies a file
//! that another process has open, even for writing. [`Db::check`] verifies every structure against
//! every other. [`repair`](mod@repair) saves what a damaged file still holds into a new store.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let copy = dir.path().join("copy.spt");
//! # let db = splitpoint::Db::in_memory()?;
//! # db.put("key", "value")?;
//! db.backup(&copy)?;
//! let copy = splitpoint::Db::open(&copy)?;
//! assert!(copy.check()?.is_clean());
//! assert_eq!(copy.len(), db.len());
//! # Ok(())
//! # }
//! ```
//!
//! # Space
//!
//! The space of replaced and deleted records is reused, in files and in memory: each change pays
//! for a little *compaction*, which moves live records out of segments that are mostly dead.
//! [`Options::live_share`] sets how much of the log it keeps live. [`Db::maintain`] compacts ahead
//! of need, for when the program is idle. A borrowed value, a snapshot, a scan or a backup keeps
//! the space of everything that it may still read from being reused, so copy a value that you keep
//! for long.
//!
//! # Tables in memory
//!
//! [`Db::in_memory`] is the same engine without a file: any number of threads, no pause to rehash,
//! one memory area instead of an allocation for each record. [`Db::backup`] writes it to a file.
//!
//! # Other access methods
//!
//! [`Table`] is the interface of all access methods; [`open`] opens a table by its URL, and
//! [`TableExt`] gives it the methods of `Db`. `splitpoint-legacy` registers the files of dbm, ndbm,
//! sdbm, gdbm and Berkeley DB. To add an access method, implement the eight required methods of
//! [`Table`] and [`register`] an opener.
//!
//! ```
//! # fn main() -> splitpoint::Result<()> {
//! use splitpoint::{Table, TableExt};
//!
//! let table: Box<dyn Table> = splitpoint::open("mem:")?;
//! table.put("France", "Paris")?;
//! assert_eq!(table.get("France")?.expect("it was stored"), "Paris");
//! # Ok(())
//! # }
//! ```
//!
//! # Statistics and hash functions
//!
//! [`Db::stats`] counts records, bytes and the lengths of all chains, and [`stats`] compares them
//! with those of an ideal hash function, which shows whether a hash function fits the keys.
//! [`hash`] has the functions that a store can use: [`Options::hash`] selects one, and the file
//! records its name. [`rehash`](mod@rehash) moves a store to another function or seed. [`linear`]
//! is the arithmetic of linear hashing, and can be used on its own.
//!
//! # Cargo features
//!
//! No feature is on by default, and programs need none. `sim` adds the simulated disk of the crash
//! tests; `testing` and `fuzzing` add what the tests of the bindings and the fuzz targets call. None
//! of them is part of the API.

#![deny(unsafe_code)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("splitpoint maps whole files: it needs a 64-bit address space");
#[cfg(not(target_os = "linux"))]
compile_error!(
    "splitpoint runs on Linux: it needs locks and mappings that other systems do not have"
);

mod atomic;
mod background;
pub mod backup;
mod batch;
mod births;
mod bitmap;
pub mod check;
mod checkpoint;
#[cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "calls what is compiled for an instruction of the processor; listed in ARCHITECTURE.md"
    )
)]
mod checksum;
mod compaction;
mod cursor;
mod db;
mod error;
mod file_kind;
mod format;
mod graves;
mod growing;
pub mod hash;
mod health;
mod holder;
mod horizons;
mod identify;
mod index;
mod instrument;
mod key_list;
pub mod linear;
mod live;
mod log;
mod memory;
mod moments;
mod options;
mod piece;
mod pins;
mod prefaulter;
mod publisher;
mod reader;
mod recovery;
#[expect(
    unsafe_code,
    reason = "pointers into windows and the read mapping; listed in ARCHITECTURE.md"
)]
mod region;
pub mod rehash;
pub mod repair;
mod residency;
mod segments;
mod snapshot;
mod space;
pub mod stats;
#[expect(unsafe_code, reason = "memory mappings; listed in ARCHITECTURE.md")]
mod storage;
mod store;
mod syncer;
mod table;
mod testing;
mod url;
mod value;

pub use batch::{AsPair, Batch, Change, Changes};
pub use cursor::{Cursor, Scan};
pub use db::{Db, Iter, Keys, Savepoint, Transaction, TransactionScan, Values};
pub use error::{Error, ErrorKind, Result, Unsupported};
pub use file_kind::FileKind;
pub use holder::{Holder, HolderRole};
pub use options::{
    Create, Durability, FILL_FACTOR_DEFAULT, KEY_BYTES_MAX, Options, RecoveryProgress, Sharing,
    VALUE_BYTES_MAX,
};
pub use snapshot::Snapshot;
pub use stats::Recovery;
#[doc(hidden)]
pub use storage::holders::holders;
#[doc(hidden)]
pub use storage::new_file::{mode_like, partial_of};
pub use storage::regular::open_regular;
pub use storage::shared_file::SharedFile;
#[cfg(any(test, feature = "sim"))]
pub use storage::sim::{SimDisk, SimFault};
#[doc(hidden)]
pub use storage::status::Status;
pub use store::Maintenance;
pub use table::{
    BatchAtomicity, Capabilities, Entries, PutMode, ScanGuarantee, Table, TableCheck, TableExt,
};
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use testing::fuzzing;
pub use url::{Opener, Recognizer, is_url, open, open_with, register, register_recognizer};
pub use value::{Entry, Value};

/// Compiles and runs the Rust of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeExamples;
