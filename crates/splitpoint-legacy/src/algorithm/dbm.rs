//! dbm and ndbm: a bitmap leads to the page of a key.
//!
//! ```text
//! bit 0        is set: page 0 was split by bit 0 of the hash, into pages 0 and 1
//! bits 1-2     pages 0 and 1, of hashes of which one bit is looked at
//! bits 3-6     pages 0 to 3, two bits
//! bits 7-14    pages 0 to 7, three bits
//! ```
//!
//! The bit of page `hash & mask` is number `(hash & mask) + mask`. A page that is full is split by
//! the next bit of the hash, again and again until the pair has room.
//!
//! # What differs from the original
//!
//! - Keys that collide in all bits of their hashes and exceed a page are refused. The dbm of 4.3BSD
//!   splits for ever.
//! - A refused replacement keeps the old pair. The original deletes it before it refuses.
//!
//! # Source
//!
//! Seltzer and Yigit 1991, section "dbm and ndbm", after Ken Thompson's dbm of the seventh edition.

use std::borrow::Cow;
use std::fmt::Write as _;

use splitpoint::hash;

use super::page::PageForm;
use super::paged::Paged;
use super::{Algorithm, Counts, Footprint, Refusal, StoreMode, Stored, Visit};
use crate::ByteOrder;

/// Bits of a hash.
const HASH_BITS: u32 = 32;

/// Lines of each half of a drawing.
const LINES_MAX: usize = 32;

/// What tells dbm and ndbm apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a page, `PBLKSIZ`, 32 to 32768.
    pub page_bytes: usize,
    /// Bytes of a block of the bitmap, `DBLKSIZ`.
    pub bitmap_block_bytes: usize,
    /// Byte order of the offsets: that of the machine.
    pub byte_order: ByteOrder,
}

impl Options {
    /// Returns those of the seventh edition: pages of 512 bytes.
    pub fn dbm() -> Self {
        Self { page_bytes: 512, bitmap_block_bytes: 8192, byte_order: ByteOrder::Little }
    }

    /// Returns those of 4.3BSD: pages of 1024 bytes.
    pub fn ndbm() -> Self {
        Self { page_bytes: 1024, bitmap_block_bytes: 4096, byte_order: ByteOrder::Little }
    }
}

/// A table of dbm or ndbm.
#[derive(Debug)]
pub struct Dbm {
    options: Options,
    /// The bits are the bitmap.
    paged: Paged,
}

/// Returns the bit of the bitmap for page `page`, if `mask` has the bits of the hash that lead there:
/// the paper's `(hash & mask) + mask`.
pub fn bit_of(page: u64, mask: u64) -> u64 {
    page + mask
}

impl Dbm {
    /// Returns an empty table.
    ///
    /// # Panics
    ///
    /// If [`Options::page_bytes`] is not 32 to 32768, or the blocks of the bitmap have no bytes.
    pub fn new(options: Options) -> Self {
        assert!(options.bitmap_block_bytes > 0, "the bitmap has blocks");
        let form = PageForm { order: options.byte_order, spare_bytes: 1 };
        let paged = Paged::new(form, options.page_bytes, options.bitmap_block_bytes);
        Self { options, paged }
    }

    /// Returns whether bit `bit` of the bitmap is set: its page was split.
    pub fn is_split(&self, bit: u64) -> bool {
        self.paged.bits.is_set(bit)
    }

    /// Returns the page of a key with `hash`.
    pub fn page_of(&self, hash: u32) -> u64 {
        u64::from(hash) & self.mask_of(hash)
    }

    /// Returns the bits of `hash` that are the number of its page.
    fn mask_of(&self, hash: u32) -> u64 {
        let (hash, mut mask) = (u64::from(hash), 0);
        while self.paged.bits.is_set(bit_of(hash & mask, mask)) {
            mask = mask << 1 | 1;
        }
        mask
    }

    /// Refuses a pair that no split can make room for: it and the pairs with the same hash exceed
    /// a page. `replaced` is the pair that it replaces.
    fn check_room(
        &self,
        hash: u32,
        pair_bytes: usize,
        page: u64,
        replaced: Option<usize>,
    ) -> Result<(), Refusal> {
        let page_bytes = self.options.page_bytes;
        let pair_bytes_max = self.paged.form.pair_bytes_max(page_bytes);
        if pair_bytes > pair_bytes_max {
            let (pair_bytes, pair_bytes_max) = (pair_bytes as u64, pair_bytes_max as u64);
            return Err(Refusal::PairExceedsPage { pair_bytes, pair_bytes_max });
        }
        // A page with room has room for every key of it.
        if self.paged.form.has_room_without(self.paged.page(page), replaced, pair_bytes) {
            return Ok(());
        }
        let pairs = self.paged.form.pairs(self.paged.page(page)).enumerate();
        let colliding = pairs
            .filter(|(index, (key, _))| Some(*index) != replaced && hash::dbm(key) == hash)
            .map(|(_, (key, value))| key.len() + value.len());
        let (count, bytes) =
            colliding.fold((1, pair_bytes), |(count, bytes), more| (count + 1, bytes + more));
        // Beyond the first pair, each has two offsets more.
        if bytes + 4 * (count - 1) <= pair_bytes_max {
            return Ok(());
        }
        let (key_count, page_bytes) = (count as u64, page_bytes as u64);
        Err(Refusal::CollidingKeys { key_count, hash, page_bytes })
    }

    /// Divides page `page` by the next bit of the hashes of its keys.
    fn split(&mut self, page: u64, mask: u64) {
        let (bit, form) = (mask + 1, self.paged.form);
        let mut lower = self.paged.page(page).to_vec();
        let mut upper = vec![0; lower.len()];
        let mut index = 0;
        while index < form.pair_count(&lower) {
            let (key, value) = form.pair(&lower, index);
            if u64::from(hash::dbm(key)) & bit == 0 {
                index += 1;
                continue;
            }
            form.put(&mut upper, key, value);
            form.remove(&mut lower, index);
        }
        self.paged.write_halves(page, mask, bit_of(page, mask), [&lower, &upper]);
    }

    fn show_bitmap(&self, out: &mut String) {
        for depth in 0..=self.paged.depth {
            let mask = (1_u64 << depth) - 1;
            let shown = (mask + 1).min(64);
            let bits: String = (0..shown)
                .map(|page| if self.is_split(bit_of(page, mask)) { '1' } else { '0' })
                .collect();
            let more = if shown <= mask { "..." } else { "" };
            let _ = writeln!(
                out,
                "  {depth} bits of the hash: bits {} to {}: {bits}{more}",
                bit_of(0, mask),
                bit_of(mask, mask)
            );
        }
    }
}

impl Algorithm for Dbm {
    fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<Stored, Refusal> {
        let pair_bytes = key.len() + value.len();
        let hash = hash::dbm(key);
        let mut mask = self.mask_of(hash);
        let mut page = u64::from(hash) & mask;
        let found = self.paged.find(page, key);
        if found.is_some() && mode == StoreMode::Insert {
            return Ok(Stored::Kept);
        }
        self.check_room(hash, pair_bytes, page, found)?;
        if let Some(index) = found {
            self.paged.remove(page, index);
        }
        while !self.paged.form.has_room(self.paged.page(page), pair_bytes) {
            assert!(mask.count_ones() < HASH_BITS, "keys with other hashes leave the page");
            self.split(page, mask);
            mask = mask << 1 | 1;
            page = u64::from(hash) & mask;
        }
        self.paged.put(page, key, value);
        Ok(self.paged.note_stored(found.is_some()))
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
        let page = self.page_of(hash::dbm(key));
        Ok(self.paged.fetch(page, key))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Refusal> {
        let page = self.page_of(hash::dbm(key));
        Ok(self.paged.delete(page, key))
    }

    fn walk(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        self.paged.walk(visit);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.paged.record_count
    }

    fn counts(&self) -> Counts {
        self.paged.counts
    }

    fn footprint(&self) -> Footprint {
        self.paged.footprint()
    }

    fn show(&self) -> String {
        let mut out = format!("bitmap of {} bytes\n", self.paged.bits.file_bytes());
        self.show_bitmap(&mut out);
        out.push_str("pages\n");
        let numbers = self.paged.pages.numbers();
        for &number in numbers.iter().take(LINES_MAX) {
            let page = self.paged.page(number);
            let _ = writeln!(
                out,
                "  page {number}: {} keys, {} of {} bytes",
                self.paged.form.pair_count(page),
                self.paged.form.used_bytes(page),
                self.options.page_bytes
            );
        }
        super::cut(out, numbers.len(), LINES_MAX)
    }

    fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        self.paged.files()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reason;
    use super::*;

    /// The bitmap of the paper: bit 0, then two bits, then four.
    #[test]
    fn the_bits_of_each_depth_follow_those_of_the_depth_before() {
        let mut next = 0;
        for depth in 0..16 {
            let mask = (1 << depth) - 1;
            for page in 0..=mask {
                assert_eq!(bit_of(page, mask), next);
                next += 1;
            }
        }
    }

    #[test]
    fn the_access_function_is_that_of_the_reader_of_old_files() {
        let mut table = Dbm::new(Options { page_bytes: 64, ..Options::dbm() });
        for number in 0..2000_u32 {
            table.store(number.to_string().as_bytes(), b"value", StoreMode::Insert).unwrap();
        }
        let bitmap = table.paged.bits.file();
        for hash in (0..100_000_u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
            let (page, depth) = crate::dbm::leaf_of(&bitmap, hash.into());
            assert_eq!((table.page_of(hash), table.mask_of(hash).count_ones()), (page, depth));
        }
    }

    #[test]
    fn a_pair_as_large_as_a_page_is_refused_and_one_byte_less_is_stored() {
        let mut table = Dbm::new(Options::ndbm());
        assert!(table.store(b"k", &[0; 1016], StoreMode::Insert).is_ok());
        let refusal = table.store(b"l", &[0; 1017], StoreMode::Insert).unwrap_err();
        assert_eq!(refusal.reason(), Reason::PairExceedsPage);
        assert_eq!(
            refusal.to_string(),
            "the pair exceeds the page: it has 1018 bytes, at most 1017 fit"
        );
    }

    #[test]
    fn keys_with_one_hash_are_refused_once_they_exceed_the_page() {
        let twins = super::super::twins::of(3);
        let mut table = Dbm::new(Options::dbm());
        table.store(&twins[0], &[1; 20], StoreMode::Insert).unwrap();
        table.store(&twins[1], &[2; 20], StoreMode::Insert).unwrap();
        let refusal = table.store(&twins[2], &[3; 20], StoreMode::Insert).unwrap_err();
        assert!(matches!(refusal, Refusal::CollidingKeys { key_count: 3, page_bytes: 512, .. }));
        // Nothing was split for it.
        assert_eq!(table.counts().splits(), 0);
        assert_eq!(table.fetch(&twins[1]).unwrap().as_deref(), Some(&[2; 20][..]));
        assert_eq!(table.len(), 2);
    }
}
