//! Sync: the order in which changes reach the file.
//!
//! S is the state of the last sync, and T the state to sync. The file has S and nothing else. Then
//! the table:
//!
//! 1. writes the pages that S lacks, which are new buckets and new overflow pages, and the bitmaps,
//!    which mark everything that S or T needs as in use;
//! 2. writes the header. From here on the new buckets are part of the table and have all their
//!    pairs; the old ones still have everything that S has;
//! 3. writes the pages that S has, which removes the moved pairs from the old buckets;
//! 4. writes the bitmaps and the header again, so that the pages that only S needed are free.
//!
//! After each step it syncs the file. Until step 3 a crash leaves S, or S with the new buckets
//! added. In step 3 each old bucket goes from S to T by the write of one page: if several of its
//! pages have changed, the table first copies all of them to new pages, except the page of the
//! bucket itself.
//!
//! Some risks remain. After a crash between 2 and 3 the moved pairs are in two buckets. Lookups do
//! not notice; a scan of the original returns them twice. Meanwhile the header has a mark in bytes
//! that no original reads. By this mark the library skips such pairs, and removes them when it
//! opens the file for changes; until then the pages that only S needed stay in use. If the overflow
//! pages run out, the table writes several pages of a bucket one after another, and a crash between
//! two of them can lose pairs that moved from one to the other. A torn page is lost, and without a
//! checksum nothing detects it.

use std::collections::BTreeMap;

use splitpoint::Result;

use super::addresses::OverflowAddr;
use super::overflow::{Bits, Overflow, Which};
use super::store::{At, Steps, Store};

impl Store {
    /// Syncs every change so far. Does nothing for a table in memory.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.check_usable()?;
        if !self.is_changed || self.pool.disk().is_none() {
            return Ok(());
        }
        let changed = self.pool.changed_pages();
        for (bucket, pages) in changed {
            if pages.len() > 1 && Some(bucket) <= self.synced_max_bucket {
                // A failure here leaves memory in doubt, and the file as it was.
                self.changing(|store| store.make_single(bucket, &pages))?;
            }
        }
        self.write_changes()?;
        self.pool.all_written();
        self.overflow.all_written(&self.shape);
        self.synced_max_bucket = Some(self.shape.max_bucket);
        self.is_changed = false;
        Ok(())
    }

    /// Sees to it that of the pages of `bucket` that the synced state knows, only the bucket's own
    /// is to be written; `changed` are those that have changed. If there are not enough overflow
    /// pages for that, nothing is done.
    fn make_single(&mut self, bucket: u32, changed: &[u64]) -> Result<()> {
        let chain = self.chain(bucket)?;
        let mut known = Vec::with_capacity(chain.len());
        for addr in &chain {
            let number = self.page_number(bucket, At::Overflow(*addr))?;
            let is_known = self.is_known(bucket, number);
            known.push((is_known, is_known && changed.contains(&number)));
        }
        let Some(last) = known.iter().rposition(|(_, is_changed)| *is_changed) else {
            return Ok(());
        };
        let own = changed.contains(&self.page_number(bucket, At::Bucket)?);
        let changed_count = known.iter().filter(|(_, is_changed)| *is_changed).count();
        let copy_count = known[..=last].iter().filter(|(is_known, _)| *is_known).count();
        if changed_count + usize::from(own) < 2
            || copy_count > self.overflow.available(&self.shape) as usize
        {
            return Ok(());
        }
        self.page(bucket, At::Bucket)?.can_change()?;
        let mut before = At::Bucket;
        for (addr, (is_known, _)) in chain[..=last].iter().zip(known) {
            let mut at = At::Overflow(*addr);
            if is_known {
                let bytes = self.page(bucket, at)?.bytes().to_vec();
                let copy = self.new_page(bucket)?;
                at = At::Overflow(copy);
                let number = self.page_number(bucket, at)?;
                self.pool.page_mut(number, bucket)?.copy_from_slice(&bytes);
                self.page_mut(bucket, before)?.set_next(Some(copy));
                self.free_page(bucket, *addr)?;
            }
            before = at;
        }
        Ok(())
    }

    /// Returns whether the synced state has page `number`, which is one of `bucket`.
    fn is_known(&self, bucket: u32, number: u64) -> bool {
        match self.shape.overflow_index_of_page(number) {
            Some(index) => self.overflow.is_synced(index),
            None => Some(bucket) <= self.synced_max_bucket,
        }
    }

    fn write_changes(&mut self) -> Result<()> {
        let (mut new, mut known) = (Vec::new(), Vec::new());
        let changed: BTreeMap<u32, Vec<u64>> = self.pool.changed_pages();
        for (bucket, numbers) in changed {
            for number in numbers {
                let list = if self.is_known(bucket, number) { &mut known } else { &mut new };
                list.push(number);
            }
        }
        new.sort_unstable();
        let has_second_half = self.synced_max_bucket.is_some() || !known.is_empty();
        for number in new {
            self.pool.write_to_disk(number)?;
        }
        self.write_bitmaps(Which::NeededOrSynced)?;
        self.barrier()?;
        self.write_header(has_second_half)?;
        self.barrier()?;
        if !has_second_half {
            return Ok(());
        }
        for number in known {
            self.pool.write_to_disk(number)?;
        }
        self.barrier()?;
        self.write_bitmaps(Which::Needed)?;
        self.write_header(false)
    }

    fn write_bitmaps(&mut self, which: Which) -> Result<()> {
        for page in 0..self.shape.bitmap_count() {
            let addr = OverflowAddr(self.shape.bitmaps[page as usize]);
            let number = self.page_number(0, At::Overflow(addr))?;
            let bytes = self.overflow.encode(&self.shape, self.order, page, which);
            let offset = number * u64::from(self.shape.page_bytes);
            self.pool.disk_mut().expect("a file is synced").write_at(offset, &bytes)?;
        }
        Ok(())
    }

    fn write_header(&mut self, is_interrupted: bool) -> Result<()> {
        let mut header = self.header();
        header.is_interrupted |= is_interrupted;
        self.pool.disk_mut().expect("a file is synced").write_at(0, &header.encode())
    }

    /// Syncs what was written. If that fails, the state of the file is unknown.
    fn barrier(&mut self) -> Result<()> {
        let result = self.pool.disk_mut().expect("a file is synced").sync();
        if let Err(error) = &result {
            self.poison = Some(error.to_string());
        }
        result
    }

    /// Removes the pairs that an interrupted sync left twice, and finds the overflow pages in use.
    /// It does not touch a damaged table.
    pub(super) fn finish_interrupted_sync(&mut self) -> Result<()> {
        let used = self.used_overflow_pages()?;
        self.overflow = Overflow::of_used(&self.shape, used);
        self.is_interrupted = false;
        for bucket in 0..self.bucket_end() {
            let bucket = bucket as u32;
            for (key, _) in self.pairs_of(bucket)? {
                if self.bucket_of(&key) != Some(bucket) {
                    self.remove_from(bucket, &key)?;
                }
            }
        }
        // The header counts changes that never happened.
        self.record_count = None;
        self.len()?;
        self.is_changed = true;
        Ok(())
    }

    /// Returns the overflow pages that the chains have.
    ///
    /// # Errors
    ///
    /// [`splitpoint::Error::Corrupt`] if a chain is damaged or leads to a page that has not been
    /// allocated.
    pub(super) fn used_overflow_pages(&mut self) -> Result<Bits> {
        let mut used = Bits::default();
        let mut steps = Steps { seen: Some(Bits::default()), ..self.steps() };
        for bucket in 0..self.bucket_end() {
            let bucket = bucket as u32;
            steps.left = self.steps().left;
            let mut next = self.page(bucket, At::Bucket)?.next();
            while let Some(addr) = next {
                self.step(&mut steps, bucket, At::Overflow(addr))?;
                let Some(index) = self.shape.overflow_index(addr) else {
                    return Err(splitpoint::Error::Corrupt {
                        what: "overflow address, which has not been allocated",
                        offset: self.shape.bucket_page(bucket) * u64::from(self.shape.page_bytes),
                        expected: self.shape.overflow_count().into(),
                        found: addr.0.into(),
                    });
                };
                used.insert(index);
                next = self.page(bucket, At::Overflow(addr))?.next();
            }
        }
        Ok(used)
    }
}
