//! The handle of an open table, and its face as a [`Table`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use splitpoint::linear::{BucketIndex, Geometry};
use splitpoint::{
    Capabilities, Durability, Entries, Error, Occupancy, PutMode, Result, ScanGuarantee, Stats,
    Table, Value,
};

use super::page::{INDEX_BYTES, PAGE_META_BYTES};
use super::scan::Scan;
use super::store::Store;
use crate::ByteOrder;

/// A hash table of the 1991 package, in a file.
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

/// What a file of the 1991 package says of itself.
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

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the header says.
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

impl Table for Db185 {
    fn capabilities(&self) -> Capabilities {
        let store = self.store();
        let bytes_max = u64::from(u32::MAX);
        let mut capabilities = Capabilities::of_limits(bytes_max, bytes_max);
        capabilities.is_read_only = store.is_read_only;
        capabilities.scan = ScanGuarantee::ExactlyOnce;
        if store.pool.disk().is_some() {
            capabilities.durability = vec![Durability::Buffered];
        }
        capabilities
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        let mut store = self.store();
        store.check_usable()?;
        Ok(store.get(key)?.map(Value::owned))
    }

    fn put(&self, _key: &[u8], _value: &[u8], _mode: PutMode) -> Result<bool> {
        Err(Error::ReadOnly)
    }

    fn delete(&self, _key: &[u8]) -> Result<bool> {
        Err(Error::ReadOnly)
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
        Ok(())
    }

    fn stats(&self) -> Result<Stats> {
        let mut store = self.store();
        store.check_usable()?;
        store.stats()
    }
}

/// Buckets without a page in the file that a table may have and be counted.
const UNWRITTEN_MAX: u64 = 1 << 24;

impl Store {
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
        for bucket in 0..=self.shape.max_bucket {
            let keys = self.keys_per_page(bucket)?;
            occupancy.add_chain(BucketIndex(bucket.into()), &keys);
        }
        let mut stats = Stats::of_chains(&occupancy);
        stats.path = self.pool.disk().map(|disk| disk.path().to_path_buf());
        stats.fill_factor = self.fill_factor().map_or(0.0, f64::from);
        stats.file_bytes = self.pool.end() * u64::from(self.shape.page_bytes);
        stats.hash_name = self.hash.as_ref().map_or("unknown", |hash| hash.name()).to_string();
        Ok(stats)
    }
}
