//! hash: the package itself, whose tables are those of [`db185`](crate::db185).
//!
//! A split is *uncontrolled* when a pair was given a new overflow page, and *controlled* when the
//! table has more keys per bucket than the fill factor. Either way the next bucket in order is
//! divided: linear hashing.
//!
//! # Source
//!
//! Seltzer and Yigit 1991, section "The New Implementation".

use std::borrow::Cow;
use std::fmt::Write as _;

use splitpoint::{PutMode, Table as _, TableExt as _};

use super::addresses::ceil_log2;
use super::{Algorithm, Counts, Footprint, Refusal, StoreMode, Stored, Visit};
use crate::db185::{Db185, Options, PageRow, PageUse};

/// Bytes of a page by default, in the paper.
pub const PAGE_BYTES_DEFAULT: u32 = 256;

/// Fill factor by default, in the paper.
pub const FILL_FACTOR_DEFAULT: u32 = 8;

/// Bytes of the pool by default, in the paper. Here the pool keeps all pages, since a table in memory
/// has nowhere else to put them.
pub const CACHE_BYTES_DEFAULT: u32 = 64 << 10;

/// Lines of a drawing.
const LINES_MAX: usize = 64;

/// A table of the package, in memory.
#[derive(Debug)]
pub struct Hash {
    table: Db185,
    record_count: u64,
}

impl Hash {
    /// Returns an empty table with these parameters.
    ///
    /// # Errors
    ///
    /// [`splitpoint::Error::Invalid`] if a parameter is out of range.
    pub fn new(options: Options) -> splitpoint::Result<Self> {
        let table = options.cache_bytes(usize::MAX).in_memory()?;
        Ok(Self { table, record_count: 0 })
    }

    /// Returns the table.
    pub fn table(&self) -> &Db185 {
        &self.table
    }

    /// Returns the pages of the table, none if it is damaged: a table in memory is not.
    fn pages(&self) -> Vec<PageRow> {
        self.table.pages().unwrap_or_default()
    }
}

impl Algorithm for Hash {
    fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<Stored, Refusal> {
        // One call tells whether the key is new; a replacement needs another.
        if self.table.put_bytes(key, value, PutMode::New, None)? {
            self.record_count += 1;
            return Ok(Stored::New);
        }
        if mode == StoreMode::Insert {
            return Ok(Stored::Kept);
        }
        self.table.put(key, value)?;
        Ok(Stored::Replaced)
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
        let value = self.table.get(key)?;
        Ok(value.map(|value| Cow::Owned(value.to_vec())))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Refusal> {
        let is_deleted = self.table.delete(key)?;
        self.record_count -= u64::from(is_deleted);
        Ok(is_deleted)
    }

    fn walk(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        for entry in self.table.scan()? {
            let entry = entry?;
            if visit(&entry.key, &entry.value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.record_count
    }

    fn counts(&self) -> Counts {
        let work = self.table.work();
        Counts {
            probes: work.chain_pages,
            overflow_splits: work.overflow_splits,
            fill_splits: work.fill_splits,
            ..Counts::default()
        }
    }

    fn footprint(&self) -> Footprint {
        let pages = self.pages();
        let page_bytes = self.table.parameters().page_bytes;
        let buckets = pages.iter().filter(|page| matches!(page.what, PageUse::Bucket(_))).count();
        let with_pairs = pages.iter().filter(|page| page.what.has_pairs());
        let (mut used, mut room) = (0_u64, 0_u64);
        for page in with_pairs {
            used += u64::from(page.used_bytes);
            room += u64::from(page_bytes);
        }
        let holes = pages.iter().filter(|page| page.what == PageUse::Hole).count();
        let bitmaps = pages.iter().filter(|page| matches!(page.what, PageUse::Bitmap(_))).count();
        let file_bytes = pages.len() as u64 * u64::from(page_bytes);
        Footprint {
            place_count: buckets as u64,
            page_bytes: u64::from(page_bytes),
            fill: used as f64 / room.max(1) as f64,
            index_bytes: bitmaps as u64 * u64::from(page_bytes),
            index_copies: 0,
            depth: ceil_log2(buckets as u64),
            file_bytes,
            hole_bytes: holes as u64 * u64::from(page_bytes),
        }
    }

    fn show(&self) -> String {
        let pages = self.pages();
        let mut out = format!("{} pages\n", pages.len());
        for (number, page) in pages.iter().enumerate().take(LINES_MAX) {
            let _ = write!(out, "  page {number}: {}", page.what);
            if page.what.has_pairs() {
                let _ = write!(out, ", {} keys, {} bytes", page.pair_count, page.used_bytes);
            }
            out.push('\n');
        }
        super::cut(out, pages.len(), LINES_MAX)
    }

    fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        Vec::new()
    }
}
