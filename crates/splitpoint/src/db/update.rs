//! Atomic read-modify-write operations on single keys, and deletes of many keys.

use super::Db;
use crate::error::{Error, Result};
use crate::store::{Hold, Writer, run_locked};
use crate::table::PutMode;
use crate::value::Value;

impl Db {
    /// Replaces the value of `key` with the result of `change`, and returns the new value.
    ///
    /// `change` receives the value, or `None` for a missing key; if it returns `None`, the key is
    /// deleted. No other thread or process changes the store between the read and the write, so no
    /// update is lost. For an atomic change of several keys, use a
    /// [`transaction`](Self::transaction).
    ///
    /// `change` must not write to the store, nor call [`scan`](Self::scan), [`stats`](Self::stats),
    /// [`check`](Self::check), [`sync`](Self::sync) or [`backup`](Self::backup): the calling thread
    /// holds the writer's lock, so these calls return
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid). [`get`](Self::get),
    /// [`contains`](Self::contains) and [`len`](Self::len) take no lock and are allowed. If
    /// `change` panics, the store is unchanged and stays usable.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`](crate::Options::durability).
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) and a [`put`](Self::put). Other writers wait while `change` runs.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// let add_one = |old: Option<&[u8]>| {
    ///     let count = old.map_or(0, |it| u64::from_le_bytes(it.try_into().expect("8 bytes")));
    ///     Some((count + 1).to_le_bytes())
    /// };
    /// db.update("visits", add_one)?;
    /// assert_eq!(db.update("visits", add_one)?, Some(2_u64.to_le_bytes()));
    ///
    /// db.update("visits", |_| None::<&str>)?;
    /// assert!(!db.contains("visits")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<V>> {
        let (key, durability) = (key.as_ref(), self.store.durability);
        let writer = self.store.lock_for_change()?;
        let old = self.store.find(key)?;
        let (writer, new) = run_locked(&self.store, writer, move |_| change(old.as_deref()));
        let bytes_of = |_: &mut Writer| new.as_ref().map(AsRef::as_ref);
        let (mut writer, value) = run_locked(&self.store, writer, bytes_of);
        let changed = if let Some(value) = value {
            let put = self.store.put_at_once(&mut writer, key, value, PutMode::Replace, durability);
            put.map(drop)
        } else {
            let hash = self.store.hash_of(key);
            self.store.delete_locked(&mut writer, key, hash, durability).map(drop)
        };
        if let Err(error) = changed {
            // Unlock first: the destructor of the value is the program's, and may use the store.
            drop(writer);
            return Err(error);
        }
        self.finish(writer, durability)?;
        Ok(new)
    }

    /// Replaces the value of `key` with `new` if it is `expected`, and returns whether it was.
    ///
    /// `None` stands for a missing key: as `expected` it requires that the key is missing, as `new`
    /// it deletes the key.
    ///
    /// The test and the change are one atomic step.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`](crate::Options::durability), for a change that this call makes.
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) under the writer's lock, and a [`put`](Self::put) or
    /// [`delete`](Self::delete) if the value is the expected one.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// assert!(db.compare_and_swap("leader", None, Some(b"alice"))?);
    /// assert!(!db.compare_and_swap("leader", None, Some(b"bob"))?);
    /// assert!(db.compare_and_swap("leader", Some(b"alice"), None)?);
    /// assert!(!db.contains("leader")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let (key, durability) = (key.as_ref(), self.store.durability);
        let hash = self.store.hash_of(key);
        let mut writer = self.store.lock_for_change()?;
        if self.store.find_hashed(key, hash)?.as_deref() != expected {
            return Ok(false);
        }
        match new {
            Some(value) => {
                self.store.put_at_once(&mut writer, key, value, PutMode::Replace, durability)?;
            }
            None => drop(self.store.delete_locked(&mut writer, key, hash, durability)?),
        }
        self.finish(writer, durability)?;
        Ok(true)
    }

    /// Adds `by` to the counter under `key`, and returns its new value.
    ///
    /// A counter is a value of 8 bytes: a signed little-endian integer. A missing key counts as 0.
    /// The read and the write are one atomic step.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the value is not 8 bytes long, or the
    ///   sum overflows. The value is unchanged.
    /// - As [`put`](Self::put).
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`](crate::Options::durability).
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) and a [`put`](Self::put).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// assert_eq!(db.increment("visits", 1)?, 1);
    /// assert_eq!(db.increment("visits", -3)?, -2);
    /// assert_eq!(db.get("visits")?.expect("it was stored"), (-2_i64).to_le_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64> {
        let (key, durability) = (key.as_ref(), self.store.durability);
        let mut writer = self.store.lock_for_change()?;
        let old = match self.store.find(key)?.as_deref() {
            Some(value) => i64::from_le_bytes(value.try_into().map_err(|_| Error::Invalid {
                what: "counter",
                reason: format!("expected a value of 8 bytes, found {}", value.len()),
            })?),
            None => 0,
        };
        let new = old.checked_add(by).ok_or_else(|| Error::Invalid {
            what: "counter",
            reason: format!("the sum of {old} and {by} does not fit in 8 bytes"),
        })?;
        let value = new.to_le_bytes();
        self.store.put_at_once(&mut writer, key, &value, PutMode::Replace, durability)?;
        self.finish(writer, durability)?;
        Ok(new)
    }

    /// Returns the value of `key`; if the key is missing, first stores the result of `make` as its
    /// value.
    ///
    /// If several threads ask for the same missing key, one calls `make` and all return its value.
    /// `make` must not write to the store: see [`update`](Self::update).
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put) for a missing key, and as [`get`](Self::get) for one that exists.
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`](crate::Options::durability), for a value that this call
    /// stores. A value that another thread stored may not be durable yet.
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) for a key that exists. For a missing key, two more and a
    /// [`put`](Self::put); other writers wait while `make` runs.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// assert_eq!(db.get_or_insert_with("key", || "made")?, "made");
    /// assert_eq!(db.get_or_insert_with("key", || "made again")?, "made");
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::missing_panics_doc, reason = "the key was stored under the same lock")]
    pub fn get_or_insert_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        make: impl FnOnce() -> V,
    ) -> Result<Value<'_>> {
        let (key, durability) = (key.as_ref(), self.store.durability);
        if let Some(value) = self.get(key)? {
            return Ok(value);
        }
        let writer = self.store.lock_for_change()?;
        if let Some(value) = self.store.find(key)? {
            return Ok(value);
        }
        let (writer, value) = run_locked(&self.store, writer, |_| make());
        let (mut writer, value_bytes) = run_locked(&self.store, writer, |_| value.as_ref());
        let stored =
            self.store.put_at_once(&mut writer, key, value_bytes, PutMode::New, durability);
        if let Err(error) = stored {
            // Unlock first: the destructor of the value is the program's, and may use the store.
            drop(writer);
            return Err(error);
        }
        let stored = self.store.find(key)?.expect("the lock is held since it was stored");
        self.finish(writer, durability)?;
        Ok(stored)
    }

    /// Deletes every key for which `keep` returns `false`, and returns the number of keys it
    /// deleted.
    ///
    /// Each delete is atomic; the call as a whole is not. A key is deleted only if it still has the
    /// value for which `keep` returned `false`; if another thread has changed the value, `keep` is
    /// called again with the new one. Keys that are stored after the call has begun are skipped. No
    /// lock is held while `keep` runs, so it may use the store.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan) and [`delete`](Self::delete). The keys deleted before the error stay
    /// deleted.
    ///
    /// # Durability
    ///
    /// As set by [`Options::durability`](crate::Options::durability). With
    /// [`Durability::Sync`](crate::Durability::Sync) all deletes share one wait at the end, even
    /// after an error. If `keep` panics, the deletes so far may not be durable.
    ///
    /// # Cost
    ///
    /// A [`scan`](Self::scan), and a [`delete`](Self::delete) for each key that it deletes.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("a", "old"), ("b", "new"), ("c", "old")])?;
    /// assert_eq!(db.retain(|_key, value| value != b"old")?, 2);
    /// assert_eq!(db.get("b")?.expect("it was kept"), "new");
    /// # Ok(())
    /// # }
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) -> Result<u64> {
        let mut deleted_count = 0;
        let outcome = self.retain_unsynced(&mut keep, &mut deleted_count);
        self.sync_deletes(outcome)?;
        Ok(deleted_count)
    }

    fn retain_unsynced(
        &self,
        keep: &mut impl FnMut(&[u8], &[u8]) -> bool,
        deleted_count: &mut u64,
    ) -> Result<()> {
        for entry in self.scan_with(Hold::Unbounded)? {
            let entry = entry?;
            let mut value = Some(entry.value);
            while let Some(old) = value.take() {
                if keep(&entry.key, &old) {
                    break;
                }
                match self.delete_if_equal(&entry.key, &old)? {
                    ConditionalDelete::Deleted => *deleted_count += 1,
                    ConditionalDelete::Missing => {}
                    ConditionalDelete::Other(newer) => value = Some(newer),
                }
            }
        }
        Ok(())
    }

    /// Deletes every key, and returns the number of keys it deleted.
    ///
    /// Each delete is atomic; the call as a whole is not: a reader, or the next open after a crash,
    /// may find some keys deleted and others not. A key that another thread stores during the call
    /// may stay.
    ///
    /// # Errors
    ///
    /// As [`retain`](Self::retain).
    ///
    /// # Durability
    ///
    /// As [`retain`](Self::retain).
    ///
    /// # Cost
    ///
    /// As [`retain`](Self::retain). To drop a large store, delete its file.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("a", "1"), ("b", "2")])?;
    /// assert_eq!(db.clear()?, 2);
    /// assert!(db.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear(&self) -> Result<u64> {
        let mut deleted_count = 0;
        let outcome = self.clear_unsynced(&mut deleted_count);
        self.sync_deletes(outcome)?;
        Ok(deleted_count)
    }

    fn clear_unsynced(&self, deleted_count: &mut u64) -> Result<()> {
        let durability = self.store.durability.deferred();
        for entry in self.scan_with(Hold::Unbounded)? {
            *deleted_count += u64::from(self.remove(&entry?.key, durability)?);
        }
        Ok(())
    }

    /// Deletes `key` if its value is still `old`.
    fn delete_if_equal(&self, key: &[u8], old: &[u8]) -> Result<ConditionalDelete<'_>> {
        let hash = self.store.hash_of(key);
        let durability = self.store.durability.deferred();
        let mut writer = self.store.lock_for_change()?;
        let Some(value) = self.store.find_hashed(key, hash)? else {
            return Ok(ConditionalDelete::Missing);
        };
        // Compare the addresses first, which is cheap. They may differ for the same record: the
        // read mapping may have moved since `old` was read.
        if !std::ptr::eq(value.as_ref(), old) && value != *old {
            return Ok(ConditionalDelete::Other(value));
        }
        self.store.delete_locked(&mut writer, key, hash, durability)?;
        self.finish(writer, durability)?;
        Ok(ConditionalDelete::Deleted)
    }

    /// Syncs the deletes of a call if the handle's durability requires it. Also after an error,
    /// because the keys that were deleted before the error stay deleted.
    fn sync_deletes(&self, outcome: Result<()>) -> Result<()> {
        let synced = if self.store.durability.is_synced_at_end() { self.sync() } else { Ok(()) };
        outcome.and(synced)
    }
}

/// The result of [`Db::delete_if_equal`].
enum ConditionalDelete<'db> {
    Deleted,
    Missing,
    /// The key has another value now.
    Other(Value<'db>),
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::{Create, Durability, Options, SimDisk};

    const KEYS: u32 = 1000;

    /// Lets `delete_all` meet a full disk on a new store of [`KEYS`] keys. After the error a power loss must
    /// bring no deleted key back.
    fn assert_deletes_survive_an_error(delete_all: impl Fn(&Db) -> Result<u64>) {
        let options = Options::new().segment_bytes_min(4096).seed(7).durability(Durability::Sync);
        let disk = SimDisk::new();
        let db = disk.open(&options).expect("nothing fails");
        db.put_many((0..KEYS).map(|i| (i.to_le_bytes(), b"value"))).expect("nothing fails");
        // A store this small has no reserve for deletes.
        disk.limit_to(disk.file().len() as u64);
        assert!(delete_all(&db).is_err(), "the disk is full");
        let left = db.len();
        assert!((1..u64::from(KEYS)).contains(&left), "{left}");
        disk.limit_to(u64::MAX);
        let after = disk.lose_power(0).open(&Options::new().create(Create::Never));
        assert_eq!(after.expect("it recovers").len(), left);
    }

    #[test]
    fn keys_that_retain_deletes_before_an_error_are_durable() {
        assert_deletes_survive_an_error(|db| db.retain(|_, _| false));
    }

    #[test]
    fn keys_that_clear_deletes_before_an_error_are_durable() {
        assert_deletes_survive_an_error(Db::clear);
    }
}
