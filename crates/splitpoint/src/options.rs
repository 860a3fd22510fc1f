//! How a store is made and opened: the 1991 package's parameters and what came after.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::hash::HashFunction;

/// Largest key in bytes: 4 GiB - 1.
pub const KEY_BYTES_MAX: u64 = u32::MAX as u64;
/// Largest value in bytes: 4 GiB - 1.
pub const VALUE_BYTES_MAX: u64 = u32::MAX as u64;
/// Mean number of keys per bucket above which one bucket is split, when nothing else is asked.
pub const FILL_FACTOR_DEFAULT: f64 = 4.5;

/// Bytes that the log must grow by before there is a checkpoint.
const CHECKPOINT_BYTES_MIN: u64 = 64 << 20;

/// How old a change with `Async` may become before it is safe, when nothing else is asked.
const ASYNC_AGE_MAX_DEFAULT: Duration = Duration::from_secs(1);

/// When a change is safe.
///
/// | level | survives a killed process | survives a power loss |
/// |---|---|---|
/// | `Buffered` | yes | only what [`Db::sync`](crate::Db::sync) or [`Db::close`](crate::Db::close) made durable |
/// | `Async` | yes | yes, but for those of the last second and of the sync under way |
/// | `Sync` | yes | yes, when the call returns |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing is synced until [`Db::sync`](crate::Db::sync) or [`Db::close`](crate::Db::close).
    Buffered,
    /// Visible at once; synced in the background within the bound of
    /// [`Options::async_age_max`], and by [`Db::close`](crate::Db::close).
    Async,
    /// Durable before the call returns. Threads that wait at the same time share one flush.
    Sync,
}

/// What to do with a file that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Create {
    /// Open the file, or make a new one where there is none.
    IfMissing,
    /// Make a new file; an existing one is an error and is not touched.
    New,
    /// Open an existing file only.
    Never,
}

/// Whether a handle may change the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

/// Parameters of a store; build them, then [`open`](Self::open) a file or make a table
/// [`in_memory`](Self::in_memory).
///
/// Nothing has to be set. `expected_records`, `fill_factor`, `cache_bytes` and `hash` are the
/// `nelem`, `ffactor`, `cachesize` and `hash` of the 1991 package.
///
/// # Address space
///
/// An open file takes address space for up to 8 times its size, and for a third of that more where it
/// has grown since: values that were returned earlier lie there. A small file takes 4.2 MiB and 4 to 6
/// mappings, a small table in memory 0.3 MiB; so ten thousand of either fit into a process. Where a
/// limit (`ulimit -v`) forbids that much, a file makes do with its size. A change or an open for which
/// there is not even that returns [`ErrorKind::Full`](crate::ErrorKind::Full), and nothing has changed.
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
pub struct Options {
    pub(crate) expected_records: u64,
    pub(crate) fill_factor: f64,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) hash: Option<HashFunction>,
    pub(crate) seed: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) async_age_max: Option<Duration>,
    pub(crate) access: Access,
    pub(crate) create: Create,
    pub(crate) segment_bytes_min: u64,
    pub(crate) checkpoint_bytes_min: u64,
    pub(crate) rebuild_index: bool,
    pub(crate) on_recovery: Option<OnRecovery>,
}

/// What is told of a recovery; see [`Options::on_recovery`].
#[derive(Clone)]
pub(crate) struct OnRecovery(pub(crate) Arc<dyn Fn(RecoveryProgress) + Send + Sync>);

// A panic in the function ends the opening, which leaves nothing half done behind.
impl std::panic::UnwindSafe for OnRecovery {}
impl std::panic::RefUnwindSafe for OnRecovery {}

impl fmt::Debug for OnRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRecovery")
    }
}

/// How far the recovery of a store is that was not closed before a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryProgress {
    /// The log is read to its end, which is not known before.
    ReadLog {
        /// Bytes read.
        bytes: u64,
    },
    /// The index is filled from the checkpoint.
    LoadCheckpoint {
        /// Bytes read.
        bytes: u64,
        /// Bytes of the checkpoint.
        bytes_total: u64,
    },
    /// What the log did after the checkpoint, or since the store was made, is done again.
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
    /// Returns the defaults: read and write, create if missing, [`Durability::Async`],
    /// rapidhash v3 with a random seed, 4.5 keys per bucket, no bound on the cache.
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
            create: Create::IfMissing,
            segment_bytes_min: crate::format::LOG_SEGMENT_BYTES_MIN,
            checkpoint_bytes_min: CHECKPOINT_BYTES_MIN,
            rebuild_index: false,
            on_recovery: None,
        }
    }

    /// Sets the number of records to make room for in a new store; 0, the default, is fine.
    ///
    /// It saves the splits on the way there; the store grows beyond it all the same.
    #[must_use]
    pub fn expected_records(mut self, records: u64) -> Self {
        self.expected_records = records;
        self
    }

    /// Sets the mean number of keys per bucket above which one bucket is split: 1 to 7, default
    /// 4.5. Only a new store takes it; an existing one keeps its own.
    ///
    /// This is `ffactor` of `dbopen(3)`. It is not the load factor, which is a ratio.
    #[must_use]
    pub fn fill_factor(mut self, keys_per_bucket: f64) -> Self {
        self.fill_factor = keys_per_bucket;
        self
    }

    /// Bounds the resident bytes of the record log that this handle keeps mapped; by default the
    /// kernel decides. The index, about 16 bytes a key, is not counted. No effect in memory.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Sets the hash function of a new store, and the one an existing store must have been made
    /// with. Without it a new store takes rapidhash v3 and an existing one what it names.
    #[must_use]
    pub fn hash(mut self, function: HashFunction) -> Self {
        self.hash = Some(function);
        self
    }

    /// Sets the seed of the hash function of a new store; random by default.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Bounds how old a change with [`Durability::Async`] may become before it is safe; 1 s by default.
    ///
    /// A sync in the background begins after three quarters of `age`. When the device cannot keep up,
    /// changes wait for it: then none returns while one that the sync under way does not cover is
    /// older than `age`, and a sync has no more bytes than the device writes in a quarter of `age`. So a power loss
    /// takes back at most the changes of the last `age` and of the sync under way.
    ///
    /// With `None` a sync begins 0.75 s after the first change, and changes never wait: on a slow device
    /// a power loss may take back many seconds of them. A program that wants speed above all
    /// takes that, or [`Durability::Buffered`].
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

    /// Sets when changes are safe, unless a call says otherwise.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Opens for reading only: the file is not written and must exist.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.access = Access::ReadOnly;
        self.create = Create::Never;
        self
    }

    /// Sets what to do with a file that exists or does not.
    #[must_use]
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// Does not trust the index in the file and builds a new one from the log, which costs a pass
    /// over the log: for files of unknown origin.
    #[must_use]
    pub fn rebuild_index(mut self) -> Self {
        self.rebuild_index = true;
        self
    }

    /// Calls `function` now and then while opening rebuilds the index after a power loss, on the
    /// thread that opens: for a progress bar. It is not called when there is nothing to rebuild.
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

    /// Returns whether a table is to be opened for reading only.
    ///
    /// This and the next ones are for access methods that [`register`](crate::register()) adds, which
    /// take of the options what they have.
    pub fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Returns what to do with a file that exists or does not.
    pub fn creation(&self) -> Create {
        self.create
    }

    /// Returns the hash function that was [set](Self::hash).
    pub fn chosen_hash(&self) -> Option<&HashFunction> {
        self.hash.as_ref()
    }

    /// Returns the bound on the cache that was [set](Self::cache_bytes), in bytes.
    pub fn cache_bytes_max(&self) -> Option<u64> {
        self.cache_bytes
    }

    /// Returns the number of [records to make room for](Self::expected_records).
    pub fn record_count_expected(&self) -> u64 {
        self.expected_records
    }

    /// Sets the size of the log segments of a small file, for tests that want many; a power of two from
    /// 4 KiB to 2 MiB.
    #[doc(hidden)]
    #[must_use]
    pub fn segment_bytes_min(mut self, bytes: u64) -> Self {
        self.segment_bytes_min = bytes;
        self
    }

    /// Sets by how many bytes the log must grow before there is a checkpoint, for tests that want
    /// many; 64 MiB otherwise.
    #[doc(hidden)]
    #[must_use]
    pub fn checkpoint_bytes_min(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes_min = bytes;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if !(1.0..=7.0).contains(&self.fill_factor) {
            let reason = format!("{} is not within 1 to 7 keys per bucket", self.fill_factor);
            return Err(Error::Invalid { what: "fill factor", reason });
        }
        Ok(())
    }
}
