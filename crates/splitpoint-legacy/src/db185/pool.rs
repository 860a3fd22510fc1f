//! The buffer pool: pages in memory, evicted least recently used first.
//!
//! The unit of eviction is a bucket with all of its overflow pages in memory, because they are
//! useless without each other.
//!
//! # Invariants
//!
//! - Eviction never writes the file. It moves a changed page to a temporary file, from where the
//!   page returns as changed; the file stays as it was last synced.
//! - The pool never holds more pages than its bound, or six if that is less.
//!
//! # Source
//!
//! Seltzer and Yigit 1991, section "Buffer management".

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use splitpoint::Result;

use super::disk::{Disk, Spill};
use super::page_map::{PooledBucket, PooledPage};

/// Contents and work of the cache of a table, to choose its size by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Bytes of pages in memory.
    pub bytes: usize,
    /// Pages read from the file.
    pub reads: u64,
    /// Pages written to the file, which only a sync does; without its bitmaps and its header.
    pub writes: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Changed pages that came back from the temporary file.
    pub temporary_reads: u64,
    /// Changed pages that went to the temporary file.
    pub temporary_writes: u64,
    /// Pages for which memory was taken: new ones, and each that was read.
    pub allocations: u64,
}

/// Fewest pages of a pool.
const PAGES_MIN: usize = 6;

#[derive(Debug)]
struct Frame {
    bytes: Box<[u8]>,
    bucket: u32,
    is_changed: bool,
    /// Whether the page was checked to be fit for changes. Changes keep it fit.
    is_checked: bool,
}

/// The pages of one bucket that are in memory, and its neighbors in the order of use.
#[derive(Debug)]
struct Group {
    pages: BTreeSet<u64>,
    newer: Option<u32>,
    older: Option<u32>,
}

/// A changed page that is in the temporary file.
#[derive(Clone, Copy, Debug)]
struct Spilled {
    slot: u64,
    bucket: u32,
}

/// Pages of one table, by their numbers.
#[derive(Debug)]
pub(super) struct Pool {
    disk: Option<Box<dyn Disk>>,
    page_bytes: usize,
    pages_max: usize,
    frames: HashMap<u64, Frame, FixedState>,
    groups: HashMap<u32, Group, FixedState>,
    newest: Option<u32>,
    oldest: Option<u32>,
    spill: Option<Spill>,
    spilled: HashMap<u64, Spilled>,
    /// Pages from this on have never been written.
    end: u64,
    counts: CacheCounts,
}

impl Pool {
    /// Returns a pool of at most `cache_bytes` over `disk`, or in memory without it.
    pub(super) fn new(disk: Option<Box<dyn Disk>>, page_bytes: usize, cache_bytes: usize) -> Self {
        let file_bytes = disk.as_ref().map_or(0, |disk| disk.file_bytes());
        Self {
            disk,
            page_bytes,
            pages_max: (cache_bytes / page_bytes).max(PAGES_MIN),
            frames: HashMap::default(),
            groups: HashMap::default(),
            newest: None,
            oldest: None,
            spill: None,
            spilled: HashMap::new(),
            end: file_bytes.div_ceil(page_bytes as u64),
            counts: CacheCounts::default(),
        }
    }

    pub(super) fn disk(&self) -> Option<&dyn Disk> {
        self.disk.as_deref()
    }

    pub(super) fn disk_mut(&mut self) -> Option<&mut Box<dyn Disk>> {
        self.disk.as_mut()
    }

    /// Returns the number of the first page behind all that have been written.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the contents and the work of the cache.
    pub(super) fn cache(&self) -> CacheCounts {
        CacheCounts { bytes: self.frames.len() * self.page_bytes, ..self.counts }
    }

    /// Returns what is in memory, the bucket that was used last first.
    pub(super) fn buckets(&self) -> Vec<PooledBucket> {
        let older = |bucket: &u32| self.groups[bucket].older;
        let page =
            |&number: &u64| PooledPage { number, is_changed: self.frames[&number].is_changed };
        let of = |bucket: u32| PooledBucket {
            bucket,
            pages: self.groups[&bucket].pages.iter().map(page).collect(),
        };
        std::iter::successors(self.newest, older).map(of).collect()
    }

    /// Evicts every page.
    pub(super) fn evict_all(&mut self) -> Result<()> {
        let numbers: Vec<u64> = self.frames.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.evict(number))
    }

    /// Returns page `number`, which belongs to `bucket`.
    pub(super) fn page(&mut self, number: u64, bucket: u32) -> Result<&[u8]> {
        self.load(number, bucket, Source::Anywhere)?;
        Ok(&self.frames[&number].bytes)
    }

    /// Returns page `number`, which belongs to `bucket`, to change it.
    pub(super) fn page_mut(&mut self, number: u64, bucket: u32) -> Result<&mut [u8]> {
        self.load(number, bucket, Source::Anywhere)?;
        Ok(self.changed(number))
    }

    /// Returns page `number` without its old content, for reuse in `bucket`.
    pub(super) fn new_page(&mut self, number: u64, bucket: u32) -> Result<&mut [u8]> {
        self.forget(number);
        self.load(number, bucket, Source::Zeros)?;
        self.end = self.end.max(number + 1);
        Ok(self.changed(number))
    }

    fn changed(&mut self, number: u64) -> &mut [u8] {
        let frame = self.frames.get_mut(&number).expect("the page was loaded");
        frame.is_changed = true;
        self.end = self.end.max(number + 1);
        &mut frame.bytes
    }

    /// Returns whether page `number` is in memory and was found to be fit for changes.
    pub(super) fn is_checked(&self, number: u64) -> bool {
        self.frames.get(&number).is_some_and(|frame| frame.is_checked)
    }

    /// Records that page `number`, if it is in memory, is fit for changes.
    pub(super) fn set_checked(&mut self, number: u64) {
        if let Some(frame) = self.frames.get_mut(&number) {
            frame.is_checked = true;
        }
    }

    /// Drops page `number` with all changes, because nothing needs it any more.
    pub(super) fn forget(&mut self, number: u64) {
        if let Some(frame) = self.frames.remove(&number) {
            self.leave_group(number, frame.bucket);
        }
        if let (Some(spilled), Some(spill)) = (self.spilled.remove(&number), &mut self.spill) {
            spill.release(spilled.slot);
        }
    }

    /// Returns the changed pages of each bucket.
    pub(super) fn changed_pages(&self) -> BTreeMap<u32, Vec<u64>> {
        let in_memory = self.frames.iter().filter(|(_, frame)| frame.is_changed);
        let in_memory = in_memory.map(|(&number, frame)| (frame.bucket, number));
        let spilled = self.spilled.iter().map(|(&number, page)| (page.bucket, number));
        let mut changed: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (bucket, number) in in_memory.chain(spilled) {
            changed.entry(bucket).or_default().push(number);
        }
        for numbers in changed.values_mut() {
            numbers.sort_unstable();
        }
        changed
    }

    /// Writes changed page `number` to the file. It stays changed, for the case that the sync that
    /// this is part of fails.
    pub(super) fn write_to_disk(&mut self, number: u64) -> Result<()> {
        let disk = self.disk.as_mut().expect("only a table in a file is synced");
        let offset = number * self.page_bytes as u64;
        self.counts.writes += 1;
        if let Some(frame) = self.frames.get(&number) {
            return disk.write_at(offset, &frame.bytes);
        }
        let spilled = self.spilled[&number];
        let mut bytes = vec![0; self.page_bytes];
        self.spill.as_ref().expect("a page was spilled").read(spilled.slot, &mut bytes)?;
        self.counts.temporary_reads += 1;
        disk.write_at(offset, &bytes)
    }

    /// Records that the file has every change.
    pub(super) fn all_written(&mut self) {
        self.frames.values_mut().for_each(|frame| frame.is_changed = false);
        self.spilled.clear();
        self.spill = None;
    }

    /// Brings page `number` into memory, and its bucket to the front.
    fn load(&mut self, number: u64, bucket: u32, source: Source) -> Result<()> {
        if let Some(frame) = self.frames.get_mut(&number) {
            let earlier = std::mem::replace(&mut frame.bucket, bucket);
            if earlier != bucket {
                // Only in a damaged file do two buckets have one page.
                self.leave_group(number, earlier);
                self.enter_group(number, bucket);
            }
            self.touch(bucket);
            return Ok(());
        }
        self.make_room(bucket)?;
        let mut bytes = vec![0; self.page_bytes].into_boxed_slice();
        let mut is_changed = false;
        if let (Some(spilled), Source::Anywhere) = (self.spilled.get(&number), source) {
            let slot = spilled.slot;
            let spill = self.spill.as_mut().expect("a page was spilled");
            spill.read(slot, &mut bytes)?;
            spill.release(slot);
            self.spilled.remove(&number);
            self.counts.temporary_reads += 1;
            is_changed = true;
        } else if let (Some(disk), Source::Anywhere) = (&self.disk, source)
            && number < self.end
        {
            disk.read_at(number * self.page_bytes as u64, &mut bytes)?;
            self.counts.reads += 1;
        }
        self.counts.allocations += 1;
        self.frames.insert(number, Frame { bytes, bucket, is_changed, is_checked: false });
        self.enter_group(number, bucket);
        self.touch(bucket);
        Ok(())
    }

    /// Evicts until there is room for one more page, which will belong to `bucket`.
    fn make_room(&mut self, bucket: u32) -> Result<()> {
        while self.frames.len() >= self.pages_max {
            let oldest = self.oldest.expect("pages in memory have buckets");
            // A bucket larger than the cache gives up its own pages, one by one.
            let count = if oldest == bucket { 1 } else { usize::MAX };
            let pages = &self.groups[&oldest].pages;
            let pages: Vec<u64> = pages.iter().copied().take(count).collect();
            for number in pages {
                self.evict(number)?;
            }
        }
        Ok(())
    }

    fn evict(&mut self, number: u64) -> Result<()> {
        let frame = &self.frames[&number];
        let bucket = frame.bucket;
        if frame.is_changed {
            let spill = match &mut self.spill {
                Some(spill) => spill,
                none => {
                    let path = self.disk.as_ref().and_then(|disk| disk.path().parent());
                    none.insert(Spill::new(path, self.page_bytes)?)
                }
            };
            let slot = spill.put(&frame.bytes)?;
            self.counts.temporary_writes += 1;
            self.spilled.insert(number, Spilled { slot, bucket });
        }
        self.frames.remove(&number);
        self.leave_group(number, bucket);
        self.counts.evictions += 1;
        Ok(())
    }

    fn enter_group(&mut self, number: u64, bucket: u32) {
        if let Some(group) = self.groups.get_mut(&bucket) {
            group.pages.insert(number);
            return;
        }
        let group = Group { pages: BTreeSet::from([number]), newer: None, older: self.newest };
        self.groups.insert(bucket, group);
        self.set_newer(self.newest, Some(bucket));
        self.newest = Some(bucket);
    }

    fn leave_group(&mut self, number: u64, bucket: u32) {
        let group = self.groups.get_mut(&bucket).expect("a page in memory has a bucket");
        group.pages.remove(&number);
        if group.pages.is_empty() {
            self.unlink(bucket);
            self.groups.remove(&bucket);
        }
    }

    /// Makes `bucket` the most recently used.
    fn touch(&mut self, bucket: u32) {
        if self.newest == Some(bucket) {
            return;
        }
        self.unlink(bucket);
        let newest = self.newest;
        let group = self.groups.get_mut(&bucket).expect("the bucket has a page in memory");
        (group.newer, group.older) = (None, newest);
        self.set_newer(newest, Some(bucket));
        self.newest = Some(bucket);
    }

    /// Takes `bucket` out of the order of use.
    fn unlink(&mut self, bucket: u32) {
        let (newer, older) = (self.groups[&bucket].newer, self.groups[&bucket].older);
        self.set_newer(older, newer);
        match newer {
            Some(newer) => self.groups.get_mut(&newer).expect("a neighbor").older = older,
            None => self.newest = older,
        }
    }

    /// Makes `newer` the newer neighbor of `bucket`; without a bucket, the oldest of all.
    fn set_newer(&mut self, bucket: Option<u32>, newer: Option<u32>) {
        match bucket {
            Some(bucket) => self.groups.get_mut(&bucket).expect("a neighbor").newer = newer,
            None => self.oldest = newer,
        }
    }
}

/// Where a page that is not in memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Anywhere,
    Zeros,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: usize = 64;

    fn pool(pages: usize) -> Pool {
        Pool::new(None, PAGE_BYTES, pages * PAGE_BYTES)
    }

    #[test]
    fn pages_come_back_from_the_temporary_file() {
        let mut pool = pool(7);
        for number in 0..100_u64 {
            pool.new_page(number, number as u32 / 3).unwrap()[0] = number as u8;
            assert!(pool.cache().bytes <= 7 * PAGE_BYTES);
        }
        for round in 0..3 {
            for number in 0..100_u64 {
                let page = pool.page_mut(number, number as u32 / 3).unwrap();
                assert_eq!(page[0], number as u8 + round);
                page[0] += 1;
            }
        }
        assert_eq!(pool.changed_pages().values().map(Vec::len).sum::<usize>(), 100);
        let counts = pool.cache();
        assert!(counts.evictions > 300);
        // All are in the temporary file but those in memory, and were there before.
        assert_eq!(counts.temporary_writes, counts.evictions);
        assert_eq!(counts.temporary_writes - counts.temporary_reads, 100 - 7);
        assert_eq!(counts.allocations, 100 + counts.temporary_reads);
        assert_eq!((counts.reads, counts.writes), (0, 0));
        pool.forget(5);
        assert_eq!(pool.page(5, 1).unwrap()[0], 0);
    }

    #[test]
    fn the_longest_unused_bucket_goes_with_all_its_pages() {
        let mut pool = pool(8);
        for number in 0..8_u64 {
            pool.new_page(number, number as u32 / 2).unwrap();
        }
        pool.page(0, 0).unwrap(); // Bucket 1 is now the oldest.
        pool.new_page(8, 4).unwrap();
        assert_eq!(pool.cache().evictions, 2);
        assert!(!pool.frames.contains_key(&2) && !pool.frames.contains_key(&3));
        for number in [0, 1, 4, 5, 6, 7, 8] {
            assert!(pool.frames.contains_key(&number), "{number}");
        }
    }

    #[test]
    fn one_bucket_can_be_larger_than_the_cache() {
        let mut pool = pool(6);
        for number in 0..50_u64 {
            pool.new_page(number, 9).unwrap()[1] = number as u8;
        }
        for number in 0..50_u64 {
            assert_eq!(pool.page(number, 9).unwrap()[1], number as u8);
            assert!(pool.cache().bytes <= 6 * PAGE_BYTES);
        }
    }
}
