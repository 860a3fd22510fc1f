//! Transactions: they read the store as of one moment, and their changes take effect together or
//! not at all.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Db;
use super::draft::{Draft, Mark, OwnChanges};
use crate::cursor::Scan;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Access, Durability};
use crate::store::{Hold, Reads, Store, Versions, check_sizes, run_locked};
use crate::value::{Entry, Value};

/// How often [`Db::transaction`] tries optimistically, before it runs the function under the
/// writer's lock.
const TRIES_WITHOUT_LOCK: u32 = 2;

/// A transaction: it reads the store as of one moment, and its changes take effect together when it
/// commits.
///
/// [`Db::transaction`] runs one; [`Db::begin`] begins one by hand.
///
/// - It sees the store as it was at its first read, and its own changes.
/// - Nobody else sees its changes before it commits. Dropping it discards them.
/// - It is *serializable*: [`commit`](Self::commit) succeeds only if everything that the
///   transaction has read is still current; otherwise it returns [`ErrorKind::Conflict`] and
///   changes nothing. The commit of a transaction without changes always succeeds.
///
/// A transaction holds no lock between its calls before its commit, so nobody waits for it, except
/// for the last try of [`Db::transaction`](crate::Db::transaction). Its first read may wait for a
/// change in progress. A change of a key that the transaction has not read is a blind
/// write, and conflicts with nothing.
///
/// Changes beyond [`Options::transaction_bytes`](crate::Options::transaction_bytes) spill to
/// unnamed files.
///
/// Like a [`Snapshot`](crate::Snapshot), it keeps the records that it may still read from being
/// overwritten until it ends: see [`Options::max_snapshot_pin`](crate::Options::max_snapshot_pin).
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let db = splitpoint::Db::in_memory()?;
/// db.put("stock", "3")?;
/// let mut order = db.begin()?;
/// assert_eq!(order.get("stock")?.expect("it was stored"), "3");
/// order.put("stock", "2")?;
/// order.put("order 17", "alice")?;
/// assert!(!db.contains("order 17")?, "not before the commit");
/// order.commit()?;
/// assert_eq!(db.get("stock")?.expect("it was stored"), "2");
/// # Ok(())
/// # }
/// ```
pub struct Transaction<'db> {
    db: &'db Db,
    /// The versions that the transaction reads; `None` before its first read.
    versions: Option<Arc<Versions<'db>>>,
    reads: Reads,
    /// Its changes, in their order. A key without a value is a delete.
    draft: Draft,
    /// Identifies the transaction in its savepoints; 0 before the first savepoint. A `Cell`,
    /// because there is no reason to share a transaction between threads.
    number: Cell<u64>,
}

/// A point in the changes of a [`Transaction`], to which [`rollback_to`](Transaction::rollback_to)
/// returns.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    /// The number of the transaction.
    transaction: u64,
    mark: Mark,
}

/// Number of transactions that have had savepoints, in this process.
static NUMBERED: AtomicU64 = AtomicU64::new(0);

impl<'db> Transaction<'db> {
    /// Returns the value of `key`: the one that the transaction itself has put or, without a change
    /// of its own, the one at the moment of its first read.
    ///
    /// # Errors
    ///
    /// As [`Db::get`], and [`ErrorKind::SnapshotTooOld`] if the transaction has kept too much space
    /// from being reused.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value<'db>>> {
        let key = key.as_ref();
        let hash = self.db.store.hash_of(key);
        if let Some(own) = self.draft.find(key, hash)? {
            return Ok(own.map(Value::owned));
        }
        self.reads.add(key, hash, self.db.store.transaction_bytes)?;
        self.versions()?.get_hashed(key, hash)
    }

    /// Returns whether `key` exists, after the transaction's own changes.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        match self.draft.find(key, self.db.store.hash_of(key))? {
            Some(own) => Ok(own.is_some()),
            None => Ok(self.get(key)?.is_some()),
        }
    }

    /// Returns the number of keys, after the transaction's own changes.
    ///
    /// The transaction then conflicts with every commit that changes the number.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) for each key that the transaction has changed.
    pub fn len(&mut self) -> Result<u64> {
        let versions = self.versions()?.clone();
        self.reads.add_count();
        let mut count = versions.record_count;
        let (store, reads) = (&self.db.store, &mut self.reads);
        self.draft.for_each_key(|key, is_put| {
            reads.add(key, store.hash_of(key), store.transaction_bytes)?;
            let was_there = versions.get(key)?.is_some();
            count = count - u64::from(was_there) + u64::from(is_put);
            Ok(())
        })?;
        Ok(count)
    }

    /// Returns whether there are no keys, after the transaction's own changes.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns an iterator over every key with its value, after the transaction's own changes so far.
    ///
    /// The transaction then conflicts with every other commit. If nothing that it writes depends on
    /// the scan, scan a [`Snapshot`](crate::Snapshot) instead.
    ///
    /// # Errors
    ///
    /// As [`Db::scan`].
    ///
    /// # Cost
    ///
    /// As [`Db::scan`], and a copy of the transaction's own changes.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("a", "1"), ("b", "2")])?;
    /// db.transaction(|tx| {
    ///     for entry in tx.scan()? {
    ///         let entry = entry?;
    ///         tx.put(&entry.key, [&entry.value[..], b"0"].concat())?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(db.get("b")?.expect("it was stored"), "20");
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&mut self) -> Result<TransactionScan<'db>> {
        let versions = self.versions()?.clone();
        let own = OwnChanges::of(&self.draft)?;
        let places = versions.places()?;
        let scan = Scan::of(versions, places)?;
        self.reads.add_all();
        Ok(TransactionScan { store: &self.db.store, scan, own })
    }

    /// Stores `value` under `key` when the transaction commits.
    ///
    /// # Errors
    ///
    /// After an error the transaction is as before the call.
    ///
    /// - [`ErrorKind::TooLarge`] if the key or the value exceeds its limit or, for a table in
    ///   memory, if all changes together exceed
    ///   [`Options::transaction_bytes`](crate::Options::transaction_bytes).
    /// - [`ErrorKind::Io`] if the disk has no space for the changes that spill.
    /// - [`ErrorKind::Full`] if the process gets no memory for the change.
    /// - [`ErrorKind::ReadOnly`] on a handle opened for reading only.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.change(key.as_ref(), Some(value.as_ref()))
    }

    /// Deletes `key` when the transaction commits, if the key exists then.
    ///
    /// This does not count as a read: call [`contains`](Self::contains) first if the transaction
    /// depends on whether the key exists.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.change(key.as_ref(), None)
    }

    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let store = &self.db.store;
        if store.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        check_sizes(key, value.unwrap_or_default())?;
        self.draft.add(store, key, value)
    }

    /// Returns a savepoint after the changes so far, for [`rollback_to`](Self::rollback_to).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.transaction(|tx| {
    ///     tx.put("kept", "1")?;
    ///     let before = tx.savepoint();
    ///     tx.put("tried", "2")?;
    ///     tx.rollback_to(before);
    ///     Ok(())
    /// })?;
    /// assert!(db.contains("kept")? && !db.contains("tried")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        if self.number.get() == 0 {
            self.number.set(NUMBERED.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Savepoint { transaction: self.number.get(), mark: self.draft.mark() }
    }

    /// Discards the changes since `savepoint`.
    ///
    /// Reads since then can still conflict. A scan that began before the rollback returns
    /// [`ErrorKind::Invalid`] if the discarded changes had spilled to disk.
    ///
    /// If spilled changes cannot be read back, each later call returns an error, and the
    /// transaction cannot be committed.
    ///
    /// The call has no effect if a rollback to an earlier savepoint has already discarded changes
    /// from before `savepoint`, or if `savepoint` belongs to another transaction.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        // A transaction without savepoints has no number.
        let is_own = savepoint.transaction != 0 && savepoint.transaction == self.number.get();
        if is_own {
            self.draft.rollback_to(savepoint.mark);
        }
    }

    /// Discards all changes so far. Reads so far can still conflict.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// let is_paid = db.transaction(|tx| {
    ///     tx.put("order 17", "alice")?;
    ///     if !tx.contains("balance of alice")? {
    ///         tx.rollback();
    ///         return Ok(false);
    ///     }
    ///     Ok(true)
    /// })?;
    /// assert!(!is_paid && db.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn rollback(&mut self) {
        self.draft.truncate(0);
    }

    /// Applies all changes atomically, or none.
    ///
    /// # Errors
    ///
    /// After an error no change has taken effect, with one exception: if the commit waited for the
    /// device and the sync failed, the changes are visible, it is unknown whether they survive a
    /// power loss, and from then on the handle returns [`ErrorKind::Poisoned`].
    ///
    /// - [`ErrorKind::Conflict`] if something that the transaction has read has changed. Run it again
    ///   from the beginning.
    /// - [`ErrorKind::SnapshotTooOld`] if the transaction has kept too much space from being reused
    ///   and was given up, so that its reads can no longer be validated.
    /// - The errors of [`Db::apply`].
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`](crate::Options::durability). The call waits
    /// for the device once, for all changes.
    ///
    /// # Cost
    ///
    /// The cost of [`Db::apply`]. If anything was committed since the first read, also a lookup of
    /// each key that was read.
    pub fn commit(self) -> Result<()> {
        let durability = self.db.store.durability;
        self.commit_with(durability)
    }

    /// Commits like [`commit`](Self::commit), with `durability` for these changes.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let Self { db, versions, reads, draft, .. } = self;
        if draft.is_empty() {
            return Ok(());
        }
        let mut writer = db.store.lock_for_change()?;
        if let Some(versions) = versions
            && !Store::is_unchanged(&writer, &versions, &reads)?
        {
            return Err(Error::Conflict);
        }
        draft.apply(&db.store, &mut writer, durability)?;
        db.finish_apply(writer, durability)
    }

    /// Returns the versions that the transaction reads; the first call takes those of the present
    /// moment.
    fn versions(&mut self) -> Result<&Arc<Versions<'db>>> {
        let versions = match self.versions.take() {
            Some(versions) => versions,
            None => Versions::now(&self.db.store, Hold::Snapshot)?,
        };
        Ok(self.versions.insert(versions))
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("change_count", &self.draft.len())
            .finish_non_exhaustive()
    }
}

/// Iterator over every key that a [`Transaction`] sees; [`Transaction::scan`] returns it.
pub struct TransactionScan<'db> {
    store: &'db Store,
    scan: Scan<'db>,
    own: OwnChanges,
}

impl<'db> Iterator for TransactionScan<'db> {
    type Item = Result<Entry<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        for entry in self.scan.by_ref() {
            let Ok(Entry { key, .. }) = &entry else { return Some(entry) };
            match self.own.has(key, self.store.hash_of(key)) {
                Ok(true) => {}
                Ok(false) => return Some(entry),
                Err(error) => return Some(Err(error)),
            }
        }
        let own = self.own.next_put().transpose()?;
        Some(own.map(|(key, value)| Entry { key: Value::owned(key), value: Value::owned(value) }))
    }
}

impl fmt::Debug for TransactionScan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionScan").field("scan", &self.scan).finish_non_exhaustive()
    }
}

impl std::iter::FusedIterator for TransactionScan<'_> {}

impl Db {
    /// Begins a [`Transaction`], which the program commits itself.
    /// [`transaction`](Self::transaction) commits for you, and retries after a conflict.
    ///
    /// # Errors
    ///
    /// None in this version.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// use splitpoint::ErrorKind;
    ///
    /// db.put("counter", "1")?;
    /// let mut late = db.begin()?;
    /// late.get("counter")?;
    /// late.put("counter", "2")?;
    /// db.put("counter", "5")?;
    /// assert_eq!(late.commit().unwrap_err().kind(), ErrorKind::Conflict);
    /// assert_eq!(db.get("counter")?.expect("it was stored"), "5");
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self) -> Result<Transaction<'_>> {
        Ok(self.new_transaction(None))
    }

    fn new_transaction<'db>(&'db self, versions: Option<Arc<Versions<'db>>>) -> Transaction<'db> {
        let (reads, draft) = (Reads::default(), Draft::default());
        Transaction { db: self, versions, reads, draft, number: Cell::new(0) }
    }

    /// Runs `what` in a [`Transaction`], commits it, and returns the result of `what`.
    ///
    /// If the transaction conflicts with another thread or process, `what` runs again. The third
    /// run holds the writer's lock, so it cannot conflict. Because `what` may run up to three
    /// times, its other side effects must be safe to repeat. If `what` returns an error, nothing is
    /// changed. To abandon the changes without an error, call [`Transaction::rollback`].
    ///
    /// `what` must change the store only through the transaction. In the run that holds the
    /// writer's lock, other calls that take it return [`ErrorKind::Invalid`]; [`get`](Self::get),
    /// [`contains`](Self::contains) and [`len`](Self::len) do not take it.
    ///
    /// # Errors
    ///
    /// The errors of `what`, and those of [`Transaction::commit`] except [`ErrorKind::Conflict`].
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`](crate::Options::durability).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// # db.put_many([("alice", 100_u64.to_le_bytes()), ("bob", 0_u64.to_le_bytes())])?;
    /// let number = |value: &[u8]| u64::from_le_bytes(value.try_into().expect("8 bytes"));
    /// let is_paid = db.transaction(|tx| {
    ///     let alice = number(&tx.get("alice")?.expect("an account"));
    ///     let bob = number(&tx.get("bob")?.expect("an account"));
    ///     if alice < 30 {
    ///         return Ok(false);
    ///     }
    ///     tx.put("alice", (alice - 30).to_le_bytes())?;
    ///     tx.put("bob", (bob + 30).to_le_bytes())?;
    ///     Ok(true)
    /// })?;
    /// assert!(is_paid);
    /// assert_eq!(number(&db.get("bob")?.expect("an account")), 30);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction<T>(
        &self,
        mut what: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..TRIES_WITHOUT_LOCK {
            let mut transaction = self.begin()?;
            let done = what(&mut transaction).and_then(|result| {
                transaction.commit()?;
                Ok(result)
            });
            match done {
                Err(error) if is_passing(&error) => {}
                done => return done,
            }
        }
        self.transaction_with_lock(what)
    }

    /// Runs a transaction under the writer's lock, so that nothing can conflict with it.
    #[cold]
    fn transaction_with_lock<T>(
        &self,
        mut what: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let (store, durability) = (&self.store, self.store.durability);
        let mut writer = store.lock_for_change()?;
        let versions = Versions::of(store, &writer, Hold::Unbounded);
        // Ignore an error here: a scan of the transaction would meet it again and return it.
        let _ = versions.find_places(&mut writer);
        let mut transaction = self.new_transaction(Some(versions));
        let (mut writer, result) = run_locked(store, writer, |_| what(&mut transaction));
        let (result, Transaction { draft, versions, .. }) = (result?, transaction);
        // End the read view first, so that the transaction's own deletes need no graves.
        drop(versions);
        if !draft.is_empty() {
            if let Err(error) = draft.apply(store, &mut writer, durability) {
                // Unlock before `result` is dropped: its type is the program's, and its destructor
                // may use the store.
                drop(writer);
                return Err(error);
            }
            self.finish_apply(writer, durability)?;
        }
        Ok(result)
    }
}

/// Returns whether a transaction that failed with this error may succeed when it is retried.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::SnapshotTooOld)
}
