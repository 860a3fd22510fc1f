//! The handle of an open table, and its face as a [`Table`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use splitpoint::linear::{BucketIndex, Geometry};
use splitpoint::stats::{Occupancy, Stats};
use splitpoint::{
    Capabilities, Durability, Entries, Error, PutMode, Result, ScanGuarantee, Table, TableCheck,
    Value,
};

use super::change::PAIR_BYTES_MAX;
use super::check::CheckReport;
use super::page::{INDEX_BYTES, PAGE_META_BYTES};
use super::pool::CacheCounts;
use super::scan::Scan;
use super::store::Store;
use crate::ByteOrder;

/// A db 1.85 hash table, in a file or in memory.
///
/// One mutex protects all of it, so threads take turns.
///
/// # Durability
///
/// The table writes the file only in [`sync`](Table::sync), [`close`](Self::close), a change with
/// [`Durability::Sync`], or the drop of the handle; a change with [`Durability::Async`] waits for one
/// of these. A process that is killed before leaves the file as it was last synced. At every moment
/// of a `sync`, the file has every pair of the sync before, or what replaced it. Because the format
/// has no log, these risks remain:
///
/// - A crash in the middle of a sync leaves some of the later changes made and others not.
/// - If pages were written when the power failed and one was torn, that page is lost.
/// - If the format has no overflow pages left, a crash in the middle of a sync can lose pairs of
///   buckets of which several pages have changed.
/// - After a crash in the middle of a sync, programs with the original library may see a pair twice
///   in a scan, and should not be the first to write. This library returns each pair once, and
///   repairs the file when it opens it for changes.
///
/// # Examples
///
/// ```no_run
/// use splitpoint::Table;
/// use splitpoint_legacy::db185::Options;
///
/// # fn main() -> splitpoint::Result<()> {
/// let table = Options::new().read_only().open("aliases.db")?;
/// for entry in table.scan()? {
///     let entry = entry?;
///     println!("{:?} has {} bytes", entry.key, entry.value.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Db185 {
    store: Mutex<Store>,
}

/// The parameters in the header of a db 1.85 file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameters {
    /// Bytes of a page: `bsize`.
    pub page_bytes: u32,
    /// Byte order of the pages: `lorder`.
    pub byte_order: ByteOrder,
    /// Keys per bucket above which a bucket is split: `ffactor`; `None` if it is to be decided
    /// when the first bucket overflows.
    pub fill_factor: Option<u32>,
    /// Hash of the probe key: `h_charkey`.
    pub probe_hash: u32,
    /// Number of keys as the header has it, which may be too low.
    pub header_record_count: u32,
    /// Overflow pages that have been allocated, bitmaps and free ones included.
    pub overflow_pages: u32,
    /// Overflow pages with bitmaps.
    pub bitmap_pages: u32,
}

impl Db185 {
    pub(super) fn new(store: Store) -> Self {
        Self { store: Mutex::new(store) }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store, which nobody else has meanwhile.
    pub(super) fn store_mut(&mut self) -> &mut Store {
        self.store.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs and closes the table.
    ///
    /// Dropping a handle does the same, but ignores failures.
    ///
    /// # Errors
    ///
    /// As [`Table::sync`].
    pub fn close(self) -> Result<()> {
        let mut store = self.store();
        let result = store.sync();
        // Once is enough, also if it has failed.
        store.is_changed = false;
        result
    }

    /// Closes the table without writing what was not synced: the file stays as it was last synced. For a program
    /// that has lost the file, and for the child of one that has it.
    pub fn abandon(self) {
        self.store().is_changed = false;
    }

    /// Verifies every page without changing anything.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](splitpoint::ErrorKind::Io) if the file cannot be read. Damage is not an
    /// error; it is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        self.store().check()
    }

    /// Returns the contents and the work of the cache.
    pub fn cache(&self) -> CacheCounts {
        self.store().pool.cache()
    }

    /// Returns the parameters in the header.
    pub fn parameters(&self) -> Parameters {
        let store = self.store();
        Parameters {
            page_bytes: store.shape.page_bytes,
            byte_order: store.order,
            fill_factor: store.fill_factor(),
            probe_hash: store.probe_hash,
            header_record_count: store.key_estimate,
            overflow_pages: store.shape.overflow_count(),
            bitmap_pages: store.shape.bitmap_count(),
        }
    }
}

impl Drop for Db185 {
    fn drop(&mut self) {
        let _ = self.store_mut().sync();
    }
}

impl Table for Db185 {
    fn capabilities(&self) -> Capabilities {
        let store = self.store();
        let mut capabilities = Capabilities::of_limits(PAIR_BYTES_MAX, PAIR_BYTES_MAX);
        capabilities.is_read_only = store.is_read_only;
        capabilities.scan = ScanGuarantee::ExactlyOnce;
        if store.pool.disk().is_some() {
            capabilities.durability = vec![Durability::Buffered, Durability::Sync];
        }
        capabilities
    }

    fn get_bytes(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        let mut store = self.store();
        store.check_usable()?;
        Ok(store.get(key)?.map(Value::owned))
    }

    fn put_bytes(
        &self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Option<Durability>,
    ) -> Result<bool> {
        let mut store = self.store();
        let is_stored = store.put(key, value, mode)?;
        store.sync_for(durability)?;
        Ok(is_stored)
    }

    fn delete_bytes(&self, key: &[u8], durability: Option<Durability>) -> Result<bool> {
        let mut store = self.store();
        let is_deleted = store.delete(key)?;
        store.sync_for(durability)?;
        Ok(is_deleted)
    }

    fn scan(&self) -> Result<Entries<'_>> {
        Ok(Box::new(Scan::new(&self.store)?))
    }

    fn len(&self) -> Result<u64> {
        let mut store = self.store();
        store.check_usable()?;
        store.len()
    }

    fn sync(&self) -> Result<()> {
        self.store().sync()
    }

    fn stats(&self) -> Result<Stats> {
        let mut store = self.store();
        store.check_usable()?;
        store.stats()
    }

    fn check(&self) -> Result<TableCheck> {
        let report = Self::check(self)?;
        let mut check = TableCheck::new(report.record_count);
        report.damages.iter().for_each(|damage| check.note(damage));
        check.damage_count = report.damage_count;
        Ok(check)
    }

    fn close(self: Box<Self>) -> Result<bool> {
        Self::close(*self).map(|()| true)
    }
}

/// Buckets without a page in the file that a table may have and be counted.
pub(super) const UNWRITTEN_MAX: u64 = 1 << 24;

impl Store {
    /// Makes a change durable that asks for it: the format has no log, so this writes every changed
    /// page. `Async` is a promise that nothing keeps here, so it is `Buffered`.
    fn sync_for(&mut self, durability: Option<Durability>) -> Result<()> {
        match durability {
            Some(Durability::Sync) => self.sync(),
            Some(Durability::Async | Durability::Buffered) | None => Ok(()),
        }
    }

    /// Returns counts and occupancy; walks every chain.
    fn stats(&mut self) -> Result<Stats> {
        let geometry = Geometry::with_bucket_count(u64::from(self.shape.max_bucket) + 1);
        let pairs_max = (self.page_bytes() - PAGE_META_BYTES) / INDEX_BYTES;
        let mut occupancy = Occupancy::new(geometry, pairs_max as u64);
        let unwritten = geometry.bucket_count() - self.bucket_end();
        if unwritten > UNWRITTEN_MAX {
            let (what, expected) = ("highest bucket", self.bucket_end());
            let found = self.shape.max_bucket.into();
            return Err(Error::Corrupt { what, offset: 40, expected, found });
        }
        let mut steps = self.steps_of_all();
        for bucket in 0..=self.shape.max_bucket {
            steps.left = self.steps().left;
            let keys = self.keys_per_page(bucket, &mut steps)?;
            occupancy.add_chain(BucketIndex(bucket.into()), &keys);
        }
        let mut stats = Stats::of_chains(&occupancy);
        stats.path = self.pool.disk().map(|disk| disk.path().to_path_buf());
        stats.fill_factor = self.fill_factor().map_or(0.0, f64::from);
        stats.overflow_line_free_count = self.overflow.free_count().into();
        stats.file_bytes = self.pool.end() * u64::from(self.shape.page_bytes);
        stats.hash_name = self.hash.as_ref().map_or("unknown", |hash| hash.name()).to_string();
        Ok(stats)
    }
}
