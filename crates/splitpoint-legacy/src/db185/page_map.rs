//! What each page of a table is for, and what the table has done.

use std::collections::BTreeMap;
use std::fmt;

use splitpoint::{Error, Result};

use super::addresses::{OverflowAddr, Shape};
use super::store::{At, Store};
use super::table::Db185;

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageUse {
    /// A part of the header.
    Header,
    /// The first page of this bucket.
    Bucket(u32),
    /// An overflow page of a bucket.
    Overflow {
        /// Its address.
        addr: PageAddr,
        /// The bucket.
        bucket: u32,
    },
    /// An overflow page with a bitmap of the overflow pages.
    Bitmap(PageAddr),
    /// An overflow page that is allocated and not in use.
    Free(PageAddr),
    /// Room for a bucket or an overflow page to come: a hole of the file.
    Hole,
}

/// The address of an overflow page: a split point, and a position there from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageAddr {
    /// The split point: the doubling of the table behind which the page is.
    pub split_point: u32,
    /// The position among the overflow pages there.
    pub position: u32,
}

/// One page of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRow {
    /// What it is for.
    pub what: PageUse,
    /// Ordinary pairs on it.
    pub pair_count: u32,
    /// Bytes in use, of a page with pairs.
    pub used_bytes: u32,
}

/// What a table has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// Pages that lookups, changes and scans came to along the chains of buckets.
    pub chain_pages: u64,
    /// Splits because a pair was given a new overflow page: uncontrolled.
    pub overflow_splits: u64,
    /// Splits because there were more keys per bucket than the fill factor: controlled.
    pub fill_splits: u64,
}

impl PageUse {
    /// Returns whether the page has pairs of a bucket.
    pub fn has_pairs(self) -> bool {
        matches!(self, Self::Bucket(_) | Self::Overflow { .. })
    }
}

impl PageUse {
    /// Returns the address of an overflow page.
    pub fn addr(self) -> Option<PageAddr> {
        match self {
            Self::Overflow { addr, .. } | Self::Bitmap(addr) | Self::Free(addr) => Some(addr),
            Self::Header | Self::Bucket(_) | Self::Hole => None,
        }
    }
}

/// The pages of one bucket in the buffer pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PooledBucket {
    /// The bucket.
    pub bucket: u32,
    /// Its pages in memory, by number.
    pub pages: Vec<PooledPage>,
}

/// A page in the buffer pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PooledPage {
    /// Number of the page.
    pub number: u64,
    /// Whether it was changed since the last sync.
    pub is_changed: bool,
}

impl fmt::Display for PageUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Bucket(bucket) => write!(f, "bucket {bucket}"),
            Self::Overflow { addr, bucket } => write!(f, "overflow {addr} of bucket {bucket}"),
            Self::Bitmap(addr) => write!(f, "overflow {addr}, a bitmap"),
            Self::Free(addr) => write!(f, "overflow {addr}, free"),
            Self::Hole => f.write_str("not yet in use"),
        }
    }
}

impl fmt::Display for PageAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.split_point, self.position)
    }
}

impl From<OverflowAddr> for PageAddr {
    fn from(addr: OverflowAddr) -> Self {
        Self { split_point: addr.split_point(), position: addr.position() }
    }
}

impl Db185 {
    /// Returns what each page of the table is for, in the order of the file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](splitpoint::ErrorKind::Corrupt) if a chain is damaged.
    ///
    /// # Cost
    ///
    /// Reads every page of every bucket.
    pub fn pages(&self) -> Result<Vec<PageRow>> {
        self.store().page_rows()
    }

    /// Returns what is in the buffer pool, the bucket that was used last first.
    pub fn pool(&self) -> Vec<PooledBucket> {
        self.store().pool.buckets()
    }

    /// Returns the number of buckets.
    pub fn bucket_count(&self) -> u64 {
        u64::from(self.store().shape.max_bucket) + 1
    }

    /// Evicts every page from the pool, changed ones to a temporary file.
    pub(crate) fn evict_all(&self) -> Result<()> {
        self.store().pool.evict_all()
    }

    /// Returns what the pages in the pool are for, by their numbers, without moving any.
    pub(crate) fn pages_by_number(&self) -> Result<BTreeMap<u64, PageUse>> {
        self.store().pooled_uses()
    }

    /// Returns what the table has done.
    pub fn work(&self) -> Work {
        self.store().work.get()
    }
}

/// Returns the page of an overflow address, or `None` if no page has it.
pub(crate) fn page_of_overflow(shape: &Shape, addr: u16) -> Option<u64> {
    shape.overflow_page(OverflowAddr(addr))
}

impl Shape {
    /// Returns the number of the page of `bucket`.
    pub(crate) fn bucket_page_number(&self, bucket: u32) -> u64 {
        self.bucket_page(bucket)
    }
}

impl Store {
    /// The pages that the header and the bitmaps tell of are named by their addresses.
    fn pooled_uses(&self) -> Result<BTreeMap<u64, PageUse>> {
        let mut uses = BTreeMap::new();
        for it in self.pool.buckets() {
            uses.insert(self.shape.bucket_page(it.bucket), PageUse::Bucket(it.bucket));
            for index in 0..self.shape.overflow_count() {
                let addr = self.shape.overflow_addr(index);
                let number = self.page_number(it.bucket, At::Overflow(addr))?;
                if it.pages.iter().any(|page| page.number == number) {
                    uses.insert(number, PageUse::Overflow { addr: addr.into(), bucket: it.bucket });
                }
            }
        }
        Ok(uses)
    }

    fn page_rows(&mut self) -> Result<Vec<PageRow>> {
        let work = self.work.get();
        let end = self.shape.page_end().min(self.pool.end().max(1));
        let unused = PageRow { what: PageUse::Hole, pair_count: 0, used_bytes: 0 };
        let mut rows = vec![unused; end as usize];
        rows.iter_mut().take(self.shape.header_pages as usize).for_each(|row| {
            row.what = PageUse::Header;
        });
        for index in 0..self.shape.overflow_count() {
            let addr = self.shape.overflow_addr(index);
            self.note(&mut rows, addr, PageUse::Free(addr.into()))?;
        }
        for number in 0..self.shape.bitmap_count() as usize {
            let addr = OverflowAddr(self.shape.bitmaps[number]);
            self.note(&mut rows, addr, PageUse::Bitmap(addr.into()))?;
        }
        for bucket in 0..self.bucket_end() as u32 {
            self.note_page(&mut rows, bucket, At::Bucket, PageUse::Bucket(bucket))?;
            for addr in self.chain(bucket)? {
                let what = PageUse::Overflow { addr: addr.into(), bucket };
                self.note_page(&mut rows, bucket, At::Overflow(addr), what)?;
            }
        }
        // A picture is no work of the table.
        self.work.set(work);
        Ok(rows)
    }

    fn note(&self, rows: &mut [PageRow], addr: OverflowAddr, what: PageUse) -> Result<()> {
        let number = self.page_number(0, At::Overflow(addr))?;
        if let Some(row) = rows.get_mut(number as usize) {
            row.what = what;
        }
        Ok(())
    }

    fn note_page(
        &mut self,
        rows: &mut [PageRow],
        bucket: u32,
        at: At,
        what: PageUse,
    ) -> Result<()> {
        let number = self.page_number(bucket, at)?;
        let page_bytes = self.shape.page_bytes;
        let end = rows.len() as u64;
        let page = self.page(bucket, at)?;
        let Some(row) = rows.get_mut(number as usize) else {
            let offset = number * u64::from(page_bytes);
            return Err(Error::Corrupt {
                what: "page number",
                offset,
                expected: end,
                found: number,
            });
        };
        row.what = what;
        row.pair_count = page.pair_count() as u32;
        row.used_bytes = page_bytes.saturating_sub(page.free_bytes() as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use splitpoint::TableExt as _;

    use super::super::Options;
    use super::*;

    #[test]
    fn every_page_of_a_new_table_has_a_use() {
        let table = Options::new().page_bytes(512).in_memory().unwrap();
        table.put("key", "value").unwrap();
        let pages = table.pages().unwrap();
        assert_eq!(pages[0].what.to_string(), "header");
        let buckets = pages.iter().filter(|row| matches!(row.what, PageUse::Bucket(_)));
        assert_eq!(buckets.map(|row| row.pair_count).sum::<u32>(), 1);
    }

    #[test]
    fn splits_are_counted_by_their_cause() {
        let table = Options::new().page_bytes(256).fill_factor(4).in_memory().unwrap();
        for number in 0..500 {
            table.put(format!("key {number}"), "value").unwrap();
        }
        let work = table.work();
        assert!(work.fill_splits > 90, "{work:?}");
        let buckets = table.pages().unwrap();
        let buckets = buckets.iter().filter(|row| matches!(row.what, PageUse::Bucket(_))).count();
        assert_eq!(work.fill_splits + work.overflow_splits + 2, buckets as u64);
        // A table whose fill factor is out of reach splits when a page overflows.
        let table = Options::new().page_bytes(256).fill_factor(60_000).in_memory().unwrap();
        for number in 0..500 {
            table.put(format!("key {number}"), "value").unwrap();
        }
        assert_eq!(table.work().fill_splits, 0);
        assert!(table.work().overflow_splits > 10);
    }

    #[test]
    fn a_hit_on_the_first_page_is_one_page() {
        let table = Options::new().page_bytes(4096).in_memory().unwrap();
        table.put("key", "value").unwrap();
        let before = table.work().chain_pages;
        assert!(table.get("key").unwrap().is_some());
        assert_eq!(table.work().chain_pages - before, 1);
    }
}
