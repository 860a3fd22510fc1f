//! Options with which a store is created and opened: the parameters of db 1.85, and newer ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::APPLICATION_BYTES;
use crate::hash::HashFunction;
use crate::holder::Holder;

/// Largest key in bytes: 4 GiB - 1.
pub const KEY_BYTES_MAX: u64 = u32::MAX as u64;
/// Largest value in bytes: 4 GiB - 1.
pub const VALUE_BYTES_MAX: u64 = u32::MAX as u64;
/// Fill factor of a new store, in keys per bucket, unless [`Options::fill_factor`] sets it.
pub const FILL_FACTOR_DEFAULT: f64 = 4.5;

/// Default of [`Options::live_share`]. Chosen by simulating workload W7: 0.75 writes an eighth less
/// there, and takes 3.5 % more memory.
const LIVE_SHARE_DEFAULT: f64 = 0.78;
const TRANSACTION_BYTES_DEFAULT: u64 = 64 << 20;
/// Bytes by which the log must grow before the writer starts a checkpoint.
const CHECKPOINT_BYTES_MIN: u64 = 64 << 20;

/// Default of [`Options::async_age_max`].
const ASYNC_AGE_MAX_DEFAULT: Duration = Duration::from_secs(1);

/// When a change becomes durable, that is, safe from a power loss.
///
/// | level | survives a killed process | survives a power loss |
/// |---|---|---|
/// | `Buffered` | yes | up to the last [`Db::sync`](crate::Db::sync) or `close` |
/// | `Async` | yes | yes, except those of the last second and those that the running sync covers |
/// | `Sync` | yes | yes, when the call returns |
///
/// `docs/durability.md` says what each level guarantees in each kind of crash, and why.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("a.spt");
/// use splitpoint::{Durability, Options};
///
/// let db = Options::new().durability(Durability::Buffered).open(&path)?;
/// db.put("cached", "1")?; // A power loss may undo it until `sync` or `close`.
/// db.put_with("paid", "1", Durability::Sync)?; // Durable when it returns, and so is "cached".
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Durability {
    /// Durable after the next [`Db::sync`](crate::Db::sync), or after
    /// [`Db::close`](crate::Db::close) unless the handle takes turns ([`Sharing::Shared`]). No
    /// background thread syncs it.
    Buffered,
    /// Visible at once. A background thread makes it durable within the bound of
    /// [`Options::async_age_max`]; so does [`Db::close`](crate::Db::close).
    Async,
    /// Durable before the call returns. Threads that wait at the same time share one flush.
    Sync,
}

impl Durability {
    /// Returns the durability for one of many changes, if the call waits once at the end for all of
    /// them.
    pub(crate) fn deferred(self) -> Self {
        match self {
            Self::Sync => Self::Buffered,
            Self::Async | Self::Buffered => self,
        }
    }

    /// Returns whether a call must sync at the end of many [`deferred`](Self::deferred) changes.
    pub(crate) fn is_synced_at_end(self) -> bool {
        self == Self::Sync
    }
}

/// Whether [`Options::open`] creates the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Create {
    /// Open the file, and create it if it is missing.
    IfMissing,
    /// Create the file; return an error if it exists, and leave it as it is.
    New,
    /// Open an existing file; return an error if it is missing.
    Never,
}

/// How handles share the file of a store; [`Options::sharing`] sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharing {
    /// One handle may change the store, for as long as it is open, and any number may read it, in
    /// this process and in others.
    #[default]
    OneWriter,
    /// No other handle may have the file open. If this handle is read-only, others may read too,
    /// but none may change the store.
    Exclusive,
    /// Any number of handles may change the store by turns, in this process and in others, and any
    /// number may read it.
    ///
    /// Each change waits for its turn, and sees every earlier change: if several processes
    /// [`increment`](crate::Db::increment) one counter, no increment is lost. If a process is
    /// killed during its turn, no committed change is lost, and the next process continues. Values
    /// that were returned stay valid while others change the store.
    ///
    /// [`close`](crate::Db::close) syncs only what the durability requires; with
    /// [`Durability::Buffered`] it syncs nothing. The next open uses the index in the file, as
    /// after a killed process.
    ///
    /// [`apply`](crate::Db::apply), [`update`](crate::Db::update) and the commit of a
    /// [`Transaction`](crate::Transaction) are one turn each. [`maintain`](crate::Db::maintain) takes turns
    /// of a few megabytes, and does not shorten the file.
    Shared,
    /// As [`Shared`](Self::Shared), but a handle holds no lock between calls. For a program that
    /// locks the file itself, or that keeps it open for long and uses it rarely.
    ///
    /// A lookup returns a copy of the value. It takes no lock unless another handle is changing the
    /// file; then, and always on a read-only handle, it locks bytes of the file for a few
    /// microseconds. A [`Scan`](crate::cursor::Scan), a [`Snapshot`](crate::Snapshot), and a
    /// [`Transaction`](crate::Transaction) after its first read hold such a lock until they end.
    ///
    /// A handle with another kind of sharing may open the file between two calls. While that handle
    /// excludes this one, a call returns [`ErrorKind::Locked`](crate::ErrorKind::Locked) after
    /// [`Options::lock_timeout`].
    ///
    /// A background thread of the handle may sync its changes between calls. It locks bytes of the
    /// file only while it reads the log, as a lookup does.
    ///
    /// A read-only handle that has to build an index of its own, as after a power loss, keeps
    /// writers out as with [`Exclusive`](Self::Exclusive).
    PerCall,
}

impl Sharing {
    /// Returns whether handles of this kind change a file by turns.
    pub(crate) fn takes_turns(self) -> bool {
        matches!(self, Self::Shared | Self::PerCall)
    }
}

/// Whether a handle may change the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

/// Options of a store. Set them, then [`open`](Self::open) a file or create a table
/// [`in_memory`](Self::in_memory).
///
/// Every option has a default. `expected_records`, `fill_factor`, `cache_bytes` and `hash` are the
/// `nelem`, `ffactor`, `cachesize` and `hash` of db 1.85.
///
/// # Address space
///
/// An open file takes address space of up to 8 times its size, and up to a third more if it has
/// grown since the open, because values that were returned earlier must stay mapped at their
/// addresses. A small file takes 4.2 MiB and 4 to 6 mappings, a small table in memory 0.3 MiB, so a
/// process can open ten thousand of either. A file of more than about 2,000 records takes at least
/// 6.2 MiB. If a limit (`ulimit -v`) forbids that much, an open takes only as much as the file is
/// long. If even that is too much, an open or a change returns
/// [`ErrorKind::Full`](crate::ErrorKind::Full), and the store is unchanged.
///
/// # Examples
///
/// ```
/// use splitpoint::{Durability, Options};
///
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("words.spt");
/// let db = Options::new().expected_records(10_000).durability(Durability::Sync).open(&path)?;
/// db.put(b"key", b"value")?;
/// db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Options {
    pub(crate) expected_records: u64,
    pub(crate) fill_factor: f64,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) hash: Option<HashFunction>,
    pub(crate) seed: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) async_age_max: Option<Duration>,
    pub(crate) access: Access,
    pub(crate) sharing: Sharing,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) create: Create,
    pub(crate) file_mode: u32,
    pub(crate) has_gdbm_mark: bool,
    pub(crate) application_data: [u8; APPLICATION_BYTES],
    pub(crate) segment_bytes_min: u64,
    pub(crate) checkpoint_bytes_min: u64,
    pub(crate) live_share: Option<f64>,
    pub(crate) max_snapshot_pin: Option<u64>,
    pub(crate) transaction_bytes: u64,
    pub(crate) is_freed_poisoned: bool,
    pub(crate) rebuild_index: bool,
    pub(crate) instrument: bool,
    pub(crate) on_recovery: Option<OnRecovery>,
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) stop_waiting: Option<StopWaiting>,
}

/// The function of [`Options::on_recovery`].
#[derive(Clone)]
pub(crate) struct OnRecovery(pub(crate) Arc<dyn Fn(RecoveryProgress) + Send + Sync>);

// A panic in the function unwinds the open, which leaves no state behind that a caller can observe.
impl std::panic::UnwindSafe for OnRecovery {}
impl std::panic::RefUnwindSafe for OnRecovery {}

impl fmt::Debug for OnRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRecovery")
    }
}

/// The function of [`Options::on_wait`].
#[derive(Clone)]
pub(crate) struct OnWait(Arc<TellHolders>);

type TellHolders = dyn Fn(&[Holder]) + Send + Sync;

impl OnWait {
    pub(crate) fn tell(&self, holders: &[Holder]) {
        (self.0)(holders);
    }
}

// A panic in the function unwinds the wait, before anything has changed.
impl std::panic::UnwindSafe for OnWait {}
impl std::panic::RefUnwindSafe for OnWait {}

impl fmt::Debug for OnWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWait")
    }
}

/// The function of [`Options::stop_waiting`].
#[derive(Clone)]
pub(crate) struct StopWaiting(Arc<dyn Fn() -> bool + Send + Sync>);

impl StopWaiting {
    fn is_due(&self) -> bool {
        (self.0)()
    }
}

// For the reason of `OnWait`.
impl std::panic::UnwindSafe for StopWaiting {}
impl std::panic::RefUnwindSafe for StopWaiting {}

impl fmt::Debug for StopWaiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopWaiting")
    }
}

/// Progress of a recovery that rebuilds the index, as [`Options::on_recovery`] reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryProgress {
    /// Reading the log to find its end. The total is not known in advance.
    ReadLog {
        /// Bytes read.
        bytes: u64,
    },
    /// Loading the index from the checkpoint.
    LoadCheckpoint {
        /// Bytes read.
        bytes: u64,
        /// Bytes of the checkpoint.
        bytes_total: u64,
    },
    /// Applying the records of the log after the checkpoint, or all records if there is no
    /// checkpoint.
    ApplyLog {
        /// Records applied.
        records: u64,
        /// Records read from the log.
        records_total: u64,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Creates the default options.
    ///
    /// They are: read and write, create the file if it is missing, [`Durability::Async`], rapidhash
    /// v3 with a random seed, 4.5 keys per bucket, no bound on the cache.
    pub fn new() -> Self {
        Self {
            expected_records: 0,
            fill_factor: FILL_FACTOR_DEFAULT,
            cache_bytes: None,
            hash: None,
            seed: None,
            durability: Durability::Async,
            async_age_max: Some(ASYNC_AGE_MAX_DEFAULT),
            access: Access::ReadWrite,
            sharing: Sharing::OneWriter,
            lock_timeout: None,
            create: Create::IfMissing,
            file_mode: 0o666,
            has_gdbm_mark: false,
            application_data: [0; APPLICATION_BYTES],
            segment_bytes_min: crate::format::LOG_SEGMENT_BYTES_MIN,
            checkpoint_bytes_min: CHECKPOINT_BYTES_MIN,
            live_share: Some(LIVE_SHARE_DEFAULT),
            max_snapshot_pin: None,
            transaction_bytes: TRANSACTION_BYTES_DEFAULT,
            is_freed_poisoned: false,
            rebuild_index: false,
            instrument: false,
            on_recovery: None,
            on_wait: None,
            stop_waiting: None,
        }
    }

    /// Sets the number of records for which a new store is sized; 0 by default.
    ///
    /// Up to that number no bucket needs to be split. The store still grows beyond it. An existing
    /// store ignores this option.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().expected_records(1_000_000).in_memory()?;
    /// assert!(db.stats()?.geometry.bucket_count() >= 1_000_000 / 7);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn expected_records(mut self, records: u64) -> Self {
        self.expected_records = records;
        self
    }

    /// Sets the fill factor of a new store: the keys per bucket, on average, above which a put
    /// splits a bucket.
    ///
    /// The range is 1 to 7, the default 4.5; an existing store keeps its own. Fewer keys per bucket
    /// give shorter chains and a larger index. This is `ffactor` of `dbopen(3)`, and not the load
    /// factor, which is a ratio.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().fill_factor(3.0).in_memory()?;
    /// db.put_many((0..3000_u32).map(|i| (i.to_le_bytes(), "")))?;
    /// assert!(db.stats()?.geometry.bucket_count() >= 1000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fill_factor(mut self, keys_per_bucket: f64) -> Self {
        self.fill_factor = keys_per_bucket;
        self
    }

    /// Bounds the bytes of the log that this handle keeps mapped and resident; by default the kernel
    /// decides. The page cache may hold more.
    ///
    /// The bound does not cover the index, about 16 bytes per key. A table in memory ignores it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// let db = splitpoint::Options::new().cache_bytes(64 << 20).open(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Sets the hash function of a new store, and requires an existing store to use it.
    ///
    /// By default a new store uses rapidhash v3, and an existing store the function that its header
    /// names.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// use splitpoint::{ErrorKind, Options, hash::HashFunction};
    ///
    /// // A keyed hash function, for keys that strangers choose.
    /// Options::new().hash(HashFunction::siphash_1_3()).open(&path)?.close()?;
    /// let error = Options::new().hash(HashFunction::rapidhash_v3()).open(&path).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::HashMismatch);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hash(mut self, function: HashFunction) -> Self {
        self.hash = Some(function);
        self
    }

    /// Sets the seed of the hash function of a new store; random by default.
    ///
    /// Set it to get the same table in every run. A seed that an attacker can guess gives no
    /// protection against keys that are chosen to collide.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Bounds how old a [`Durability::Async`] change may become before it is durable; 1 s by
    /// default.
    ///
    /// A background sync begins after three quarters of `age`. If the device cannot keep up,
    /// changes wait: none returns while a change that the running sync does not cover is older than
    /// `age`, and a sync covers no more bytes than the device writes in a quarter of `age`. So a
    /// power loss undoes at most the changes of the last `age` and those that the running sync
    /// covers.
    ///
    /// With `None`, a sync begins 0.75 s after the first change, and changes never wait, so on a
    /// slow device a power loss may undo many seconds of changes. Use it, or
    /// [`Durability::Buffered`], if speed matters most.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use std::time::Duration;
    ///
    /// let options = splitpoint::Options::new().async_age_max(Some(Duration::from_millis(200)));
    /// let db = options.open(dir.path().join("a.spt"))?;
    /// db.put(b"key", b"value")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn async_age_max(mut self, age: Option<Duration>) -> Self {
        self.async_age_max = age;
        self
    }

    /// Sets when changes become durable, unless a call overrides it for its own change;
    /// [`Durability::Async`] by default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Opens the file for reading only. The file must exist, and the store in it is not changed.
    ///
    /// Any number of handles in any processes may read a file, also while one writes. Each sees a
    /// change as soon as the writer's own threads do. To keep the writer from reusing space that it
    /// is reading, a reader registers in the reader table of the file, or locks bytes of the file
    /// if it may not write to it. If the index in the file cannot be trusted, as after a power
    /// loss, the handle builds an index of its own, and keeps writers out as long as it is open.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// # splitpoint::Db::open(&path)?.close()?;
    /// use splitpoint::{ErrorKind, Options};
    ///
    /// let db = Options::new().read_only().open(&path)?;
    /// assert_eq!(db.put("key", "value").unwrap_err().kind(), ErrorKind::ReadOnly);
    /// let also = Options::new().read_only().open(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.access = Access::ReadOnly;
        self.create = Create::Never;
        self
    }

    /// Sets how handles share the file; [`Sharing::OneWriter`] by default.
    ///
    /// On a system without open file description locks (Linux has them), every handle that writes
    /// is exclusive.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// use splitpoint::{ErrorKind, Options, Sharing};
    ///
    /// let db = Options::new().open(&path)?;
    /// let reader = Options::new().read_only().open(&path)?;
    /// db.put("key", "value")?;
    /// assert_eq!(reader.get("key")?.expect("it was stored"), "value");
    /// drop(reader);
    /// db.close()?;
    ///
    /// let alone = Options::new().sharing(Sharing::Exclusive).open(&path)?;
    /// let error = Options::new().read_only().open(&path).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Locked);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Sets how long an open waits for others to close the file before it fails with
    /// [`ErrorKind::Locked`](crate::ErrorKind::Locked); by default it does not wait. The timeout
    /// covers all waits of an open together. Locks that others hold only for a moment are retried
    /// for up to a second, whatever the timeout. [`open_with`](crate::open_with) waits as long for
    /// the tables of other access methods.
    ///
    /// On a handle that takes turns ([`Sharing::Shared`], [`Sharing::PerCall`]) it also bounds how
    /// long each change waits for its turn, and the default is 10 seconds. With `PerCall` it bounds
    /// each lookup too, because another handle may have locked the file between two calls.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// use std::time::Duration;
    ///
    /// let db = splitpoint::Db::open(&path)?;
    /// let waiting = std::thread::spawn({
    ///     let path = path.clone();
    ///     move || splitpoint::Options::new().lock_timeout(Duration::from_secs(600)).open(path)
    /// });
    /// db.put("key", "value")?;
    /// db.close()?;
    /// assert_eq!(waiting.join().expect("no panic")?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }

    /// Sets a function that can cancel an open that waits for others: the open calls it at least
    /// every 10 ms while it waits, and fails with [`Locked`](crate::ErrorKind::Locked) once it
    /// returns `true`.
    ///
    /// A program that must react to signals checks for them in this function. It is called on the
    /// thread that opens, and must not open the same file. [`Db::check`](crate::Db::check) of a
    /// read-only handle calls it too while it waits. A change that waits for its turn does not.
    ///
    /// The handle keeps the function and everything that it captures, and
    /// [`Db::reopen`](crate::Db::reopen) calls it again, perhaps in the child of a fork. So a
    /// function that compares the time with a fixed deadline may cancel the wait of `reopen` at
    /// once.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// use splitpoint::{ErrorKind, Options, Sharing};
    ///
    /// let alone = splitpoint::Db::open(&path)?;
    /// let per_call = Options::new().sharing(Sharing::PerCall);
    /// let refused = per_call.stop_waiting(|| true).open(&path).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Locked); // At once instead of after 10 seconds.
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stop_waiting(mut self, function: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop_waiting = Some(StopWaiting(Arc::new(function)));
        self
    }

    /// Sets whether [`open`](Self::open) creates the file; [`Create::IfMissing`] by default.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a.spt");
    /// use splitpoint::{Create, ErrorKind, Options};
    ///
    /// let error = Options::new().create(Create::Never).open(&path).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// Options::new().create(Create::New).open(&path)?.close()?;
    /// let error = Options::new().create(Create::New).open(&path).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Exists);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// Sets the permissions of a new file, before the umask; 0o666 by default.
    ///
    /// The file is created with these permissions, so it is never accessible with wider ones. An
    /// existing file keeps its own. A new file of an old format, such as `db185:`, ignores this
    /// option: only the umask counts.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.spt");
    /// use std::os::unix::fs::MetadataExt as _;
    ///
    /// splitpoint::Options::new().file_mode(0o600).open(&path)?.close()?;
    /// assert_eq!(std::fs::metadata(&path)?.mode() & 0o777, 0o600);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn file_mode(mut self, mode: u32) -> Self {
        self.file_mode = mode;
        self
    }

    /// Makes a new store begin with the magic number of a gdbm file, four bytes; off by default.
    ///
    /// Some programs choose a library by these bytes: Python's `dbm.whichdb` then returns
    /// `dbm.gnu`. The drop-in for gdbm sets this option. Nothing else depends on it, and gdbm
    /// itself refuses the file. An existing store ignores it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.gdbm");
    /// splitpoint::Options::new().gdbm_mark(true).open(&path)?.close()?;
    /// assert!(std::fs::read(&path)?.starts_with(&0x1357_9acf_u32.to_le_bytes()));
    /// assert!(splitpoint::Db::open(&path)?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn gdbm_mark(mut self, is_marked: bool) -> Self {
        self.has_gdbm_mark = is_marked;
        self
    }

    /// Sets 16 bytes of the header of a new store that belong to the program; all zero by default.
    ///
    /// [`Db::application_data`](crate::Db::application_data) returns them, and
    /// [`Db::set_application_data`](crate::Db::set_application_data) replaces them. An existing store
    /// keeps its own.
    #[must_use]
    pub fn application_data(mut self, data: [u8; 16]) -> Self {
        self.application_data = data;
        self
    }

    /// Sets the share of the log that compaction keeps live, from 0.5 to 0.9; 0.78 by default.
    ///
    /// Replaced and deleted records take space until compaction moves the live records out of their
    /// segments. A larger share takes less space and makes each change more expensive: where keys
    /// are overwritten at random, each byte that the program stores costs 1.98 bytes written at
    /// 0.7, 2.73 at 0.78, 4.12 at 0.85 and 5.35 at 0.9. The deletes of a handle may bring the share
    /// down to six sevenths of the value that is set here; later puts, another handle, or
    /// [`maintain`](crate::Db::maintain) bring it back.
    ///
    /// The option applies to this handle; the file does not record it. Splitpoint begins to compact
    /// a file only once that saves space. From then on the file has a checkpoint whenever it is
    /// closed, and versions of the library from before 2026-11-23 refuse it. An emptied segment
    /// becomes free with the next checkpoint; until then the file takes more space than the share
    /// implies.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().live_share(0.9).in_memory()?;
    /// for round in 0..100_u32 {
    ///     db.put_many((0..1000_u32).map(|i| (i.to_le_bytes(), round.to_le_bytes())))?;
    /// }
    /// let stats = db.stats()?;
    /// assert!(stats.segments.log < 10 * stats.live_bytes);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn live_share(mut self, share: f64) -> Self {
        self.live_share = Some(share);
        self
    }

    /// Sets how many bytes of space a [`Snapshot`](crate::Snapshot) may keep from being reused; by
    /// default as many as are live when it is taken, and at least 64 MiB.
    ///
    /// Records that are replaced or deleted while a snapshot is open stay in the store for it, so a
    /// snapshot that is never dropped would make the store grow without bound. When the space that
    /// waits only for the oldest snapshot exceeds the bound, the store gives that snapshot up: its
    /// next read returns [`ErrorKind::SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld).
    ///
    /// The bound counts entire segments, and also copies that compaction has made and moved again
    /// since: together up to three times the bytes of the replaced records. So with the default, a
    /// snapshot of a large store may be given up before every record that was live has been
    /// replaced once.
    ///
    /// A [`scan`](crate::Db::scan) of a `Db` may hold three times as much, by default three times
    /// the log as it is when the scan begins, so that a program can delete every key that the scan
    /// returns. The store never gives up a backup, a [`retain`](crate::Db::retain) or a
    /// [`clear`](crate::Db::clear).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().max_snapshot_pin(1 << 30).in_memory()?;
    /// # db.snapshot()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_snapshot_pin(mut self, bytes: u64) -> Self {
        self.max_snapshot_pin = Some(bytes);
        self
    }

    /// Sets how many bytes of memory the changes of a [`Transaction`](crate::Transaction) may take
    /// before they spill to disk; 64 MiB by default.
    ///
    /// Beyond the bound the changes go to unnamed files: in the directory of the store or, if none
    /// can be created there, in the directory for temporary files. The commit copies them to the
    /// log, so they take disk space twice until the transaction ends. The commit takes four bytes
    /// of memory per bucket; an open after a crash that directly follows the commit takes at least
    /// 88 bytes of memory per change.
    ///
    /// A table in memory does not spill: a change beyond the bound returns
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge).
    ///
    /// The bound also applies to the list of keys that a transaction has read. A transaction whose
    /// list would exceed it conflicts with every other commit, as if it had read all keys.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().transaction_bytes(1000).in_memory()?;
    /// let mut large = db.begin()?;
    /// assert!(large.put("key", [0; 2000]).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn transaction_bytes(mut self, bytes: u64) -> Self {
        self.transaction_bytes = bytes;
        self
    }

    /// Rebuilds the index instead of trusting the one in the file: for files of unknown origin.
    ///
    /// If the store was never compacted, its log is enough. If it was, the index comes from its
    /// checkpoint and the log after it, both of which have checksums; without a valid checkpoint
    /// the open fails.
    ///
    /// # Cost
    ///
    /// One pass over the log, or over the checkpoint and the log after it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("download.spt");
    /// # splitpoint::Db::open(&path)?.close()?;
    /// let db = splitpoint::Options::new().rebuild_index().read_only().open(&path)?;
    /// assert!(db.check()?.is_clean());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rebuild_index(mut self) -> Self {
        self.rebuild_index = true;
        self
    }

    /// Counts what the lookups of the handle cost; [`Db::lookups`](crate::Db::lookups) returns the
    /// counts. Off by default.
    ///
    /// Each lookup then adds to four counters in a cache line of its own thread; the threads of a
    /// process beyond the first 63 share one line. That adds 10 to 12 ns to a lookup in the
    /// processor's cache, and a fifth to one whose cache misses overlap with others
    /// (`record/2026-11-23-xeon-106-2core`). Without the option, a lookup tests one pointer.
    ///
    /// If other handles may have the file open, a thread publishes the counts ten times a second.
    /// Other processes see them with [`Db::sample`](crate::Db::sample), `splitpoint stat --watch`
    /// and `splitpoint lab live`. A read-only handle publishes them once it has a place in the
    /// reader table; a handle without permission to write to the file publishes none.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Options::new().instrument(true).in_memory()?;
    /// db.put("France", "Paris")?;
    /// db.get("France")?;
    /// let lookups = db.lookups().expect("the instrument is on");
    /// println!("{} records compared a lookup", lookups.compared_per_lookup());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn instrument(mut self, is_on: bool) -> Self {
        self.instrument = is_on;
        self
    }

    /// Calls `function` periodically while [`open`](Self::open) rebuilds the index, for a progress
    /// bar.
    ///
    /// An open that rebuilds nothing never calls it. It is called on the thread that opens the
    /// store.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("words.spt");
    /// # splitpoint::Db::open(&path)?.put(b"key", b"value")?;
    /// use splitpoint::{Options, RecoveryProgress};
    ///
    /// let options = Options::new().on_recovery(|progress| {
    ///     if let RecoveryProgress::ApplyLog { records, records_total } = progress {
    ///         eprintln!("{records} of {records_total} records");
    ///     }
    /// });
    /// let db = options.open(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_recovery(
        mut self,
        function: impl Fn(RecoveryProgress) + Send + Sync + 'static,
    ) -> Self {
        self.on_recovery = Some(OnRecovery(Arc::new(function)));
        self
    }

    /// Calls `function` with the list of the handles or programs that an open, a check or a change waits
    /// for, once it has waited for a second, and again whenever the first of the list changes.
    ///
    /// It is called on the thread that waits, and its time counts towards
    /// [`lock_timeout`](Self::lock_timeout). The function must not use the table.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::{Holder, Options, Sharing};
    ///
    /// let options = Options::new().sharing(Sharing::Shared).on_wait(|holders| {
    ///     eprintln!("waiting for {}", Holder::list(holders));
    /// });
    /// ```
    #[must_use]
    pub fn on_wait(mut self, function: impl Fn(&[Holder]) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(OnWait(Arc::new(function)));
        self
    }

    /// Returns whether to open a table for reading only.
    ///
    /// This and the following getters are for access methods that [`register`](crate::register())
    /// adds. An access method ignores options that do not apply to it.
    pub fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Returns what [`create`](Self::create) has set: whether to create the file.
    pub fn creation(&self) -> Create {
        self.create
    }

    /// Returns the mode of a new file, before the umask.
    pub fn mode_of_file(&self) -> u32 {
        self.file_mode
    }

    /// Returns the hash function that [`hash`](Self::hash) has set.
    pub fn chosen_hash(&self) -> Option<&HashFunction> {
        self.hash.as_ref()
    }

    /// Returns the bound in bytes that [`cache_bytes`](Self::cache_bytes) has set.
    pub fn cache_bytes_max(&self) -> Option<u64> {
        self.cache_bytes
    }

    /// Returns the number of records that [`expected_records`](Self::expected_records) has set.
    pub fn record_count_expected(&self) -> u64 {
        self.expected_records
    }

    /// Sets the size of the log segments of a small file, a power of two from 4 KiB to 2 MiB; for
    /// tests that need many segments.
    #[doc(hidden)]
    #[must_use]
    pub fn segment_bytes_min(mut self, bytes: u64) -> Self {
        self.segment_bytes_min = bytes;
        self
    }

    /// Sets by how many bytes the log must grow before the writer starts a checkpoint, 64 MiB by
    /// default; for tests that need many checkpoints.
    #[doc(hidden)]
    #[must_use]
    pub fn checkpoint_bytes_min(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes_min = bytes;
        self
    }

    /// Turns compaction off, so that a test can compare a store with one that keeps all dead
    /// records.
    #[doc(hidden)]
    #[must_use]
    pub fn keep_dead_records(mut self) -> Self {
        self.live_share = None;
        self
    }

    /// Makes compaction overwrite the space that it frees, so that a test fails if a reader still
    /// uses it.
    #[doc(hidden)]
    #[must_use]
    pub fn poison_freed(mut self) -> Self {
        self.is_freed_poisoned = true;
        self
    }

    /// Returns whether the handle is read-only and tolerates a writer.
    pub(crate) fn reads_beside_writers(&self) -> bool {
        self.access == Access::ReadOnly && self.sharing != Sharing::Exclusive
    }

    /// Returns whether [`stop_waiting`](Self::stop_waiting) cancels the wait of an open.
    pub(crate) fn stops_waiting(&self) -> bool {
        self.stop_waiting.as_ref().is_some_and(StopWaiting::is_due)
    }

    /// Returns options that say the same about waiting, and nothing else.
    pub(crate) fn only_waits(&self) -> Self {
        let Self { lock_timeout, on_wait, stop_waiting, .. } = self.clone();
        Self { lock_timeout, on_wait, stop_waiting, ..Self::new() }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if !(1.0..=7.0).contains(&self.fill_factor) {
            let reason = format!("expected 1 to 7 keys per bucket, found {}", self.fill_factor);
            return Err(Error::Invalid { what: "fill factor", reason });
        }
        if let Some(share) = self.live_share
            && !(0.5..=0.9).contains(&share)
        {
            let reason = format!("expected a live share from 0.5 to 0.9, found {share}");
            return Err(Error::Invalid { what: "live share", reason });
        }
        Ok(())
    }
}
