//! `Paged`: what the tables of dbm and sdbm share, pages of pairs and bits that say which were split.

use std::borrow::Cow;

use super::blocks::Blocks;
use super::page::{PAGE_BYTES, PageForm};
use super::{Counts, Footprint, Stored, Visit};

/// Pages of pairs, the bits that lead to them, and what was counted.
#[derive(Debug)]
pub(super) struct Paged {
    pub(super) form: PageForm,
    pub(super) pages: Blocks,
    /// The bitmap of dbm, the trie of sdbm.
    pub(super) bits: Blocks,
    pub(super) record_count: u64,
    /// Bits of the hash that lead to the deepest page.
    pub(super) depth: u32,
    pub(super) counts: Counts,
}

impl Paged {
    /// Returns an empty table, whose bits are in blocks of `bit_block_bytes`.
    ///
    /// # Panics
    ///
    /// If `page_bytes` is not 32 to 32768.
    pub(super) fn new(form: PageForm, page_bytes: usize, bit_block_bytes: usize) -> Self {
        assert!(PAGE_BYTES.contains(&page_bytes), "pages of 32 to 32768");
        Self {
            form,
            pages: Blocks::new(page_bytes),
            bits: Blocks::new(bit_block_bytes),
            record_count: 0,
            depth: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.pages.block_bytes()
    }

    /// Returns a page, without writing it if it is in a hole.
    pub(super) fn page(&self, number: u64) -> &[u8] {
        // Every page of a table is one, if it has none.
        const EMPTY: &[u8] = &[0; 1 << 15];
        self.pages.get(number).unwrap_or(&EMPTY[..self.page_bytes()])
    }

    /// Returns which pair of a page has the key.
    pub(super) fn find(&mut self, page: u64, key: &[u8]) -> Option<usize> {
        let (found, compared) = self.form.find(self.page(page), key);
        self.counts.probes += 1;
        self.counts.comparisons += compared;
        found
    }

    /// Returns the value of a key whose page is `page`.
    pub(super) fn fetch(&mut self, page: u64, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let index = self.find(page, key)?;
        Some(self.form.pair(self.page(page), index).1.into())
    }

    /// Removes a pair from its page, which is not written yet.
    pub(super) fn remove(&mut self, page: u64, index: usize) {
        self.form.remove(self.pages.get_mut(page), index);
    }

    /// Adds a pair to a page that has room, and writes the page.
    pub(super) fn put(&mut self, page: u64, key: &[u8], value: &[u8]) {
        self.form.put(self.pages.get_mut(page), key, value);
        self.counts.page_writes += 1;
    }

    /// Counts the pair that was [`put`](Self::put) last, and returns what became of it.
    pub(super) fn note_stored(&mut self, is_replaced: bool) -> Stored {
        if is_replaced {
            return Stored::Replaced;
        }
        self.record_count += 1;
        Stored::New
    }

    /// Deletes a key whose page is `page`, and returns whether it was there.
    pub(super) fn delete(&mut self, page: u64, key: &[u8]) -> bool {
        let Some(index) = self.find(page, key) else { return false };
        self.remove(page, index);
        self.counts.page_writes += 1;
        self.record_count -= 1;
        true
    }

    /// Writes the halves of a page that was split by the bit above `mask`, of which `bit` says so.
    pub(super) fn write_halves(&mut self, page: u64, mask: u64, bit: u64, halves: [&[u8]; 2]) {
        for (number, half) in [page, page | (mask + 1)].into_iter().zip(halves) {
            self.pages.get_mut(number).copy_from_slice(half);
        }
        self.bits.set(bit);
        self.depth = self.depth.max(mask.count_ones() + 1);
        self.counts.overflow_splits += 1;
        self.counts.page_writes += 2;
    }

    /// Calls `visit` with the pairs of all pages, in the order of the file.
    pub(super) fn walk(&mut self, visit: &mut Visit<'_>) {
        for number in self.pages.numbers() {
            self.counts.probes += 1;
            let page = self.pages.get(number).unwrap_or_default();
            if self.form.pairs(page).any(|(key, value)| visit(key, value).is_break()) {
                return;
            }
        }
    }

    pub(super) fn footprint(&self) -> Footprint {
        let Self { form, pages, bits, depth, .. } = self;
        let numbers = pages.numbers();
        let used = numbers.iter().filter_map(|&number| pages.get(number));
        let used: usize = used.map(|page| form.used_bytes(page)).sum();
        let page_bytes = numbers.len() * pages.block_bytes();
        Footprint {
            place_count: numbers.len() as u64,
            page_bytes: pages.block_bytes() as u64,
            fill: used as f64 / page_bytes.max(1) as f64,
            index_bytes: bits.file_bytes(),
            index_copies: 0,
            depth: *depth,
            file_bytes: pages.file_bytes().saturating_add(bits.file_bytes()),
            hole_bytes: pages.hole_bytes().saturating_add(bits.hole_bytes()),
        }
    }

    /// Returns the files with their suffixes.
    pub(super) fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(".pag", self.pages.file()), (".dir", self.bits.file())]
    }
}
