//! sdbm: a linearised radix trie of bits leads to the page of a key.
//!
//! ```text
//!          A  bit 0                 bit t of the trie is set: this page was split.
//!        /    \                     Its sons are bits 2t+1, for hashes whose next bit is 0,
//!     B  1     E  2                 and 2t+2. At a bit that is not set the walk ends, and the
//!    /   \                          bits of the hash that it used are the number of the page.
//!  C 3   D 4
//! ```
//!
//! A page that is full is split by the next bit of the hash. If all of its pairs go to one side, it
//! is split again, ten times at most.
//!
//! # What differs from the original
//!
//! - A refused replacement keeps the old pair. The original deletes it before it refuses.
//!
//! # Source
//!
//! Seltzer and Yigit 1991, section "sdbm", for the access function; the files of Perl, Ruby and
//! Apache for the limits, the hash function and the order of pairs.

use std::borrow::Cow;
use std::fmt::Write as _;

use splitpoint::hash::{self, CharSign};

use super::page::PageForm;
use super::paged::Paged;
use super::{Algorithm, Counts, Footprint, Refusal, StoreMode, Stored, Visit};
use crate::ByteOrder;

/// Bytes of a page, `PBLKSIZ`.
pub const PAGE_BYTES_DEFAULT: usize = 1024;

/// Bytes of a block of the trie, `DBLKSIZ`.
const DIR_BLOCK_BYTES: usize = 4096;

/// Bytes of a page that no pair may take: `PAIRMAX` is 1008 of 1024.
const PAGE_BYTES_LEFT: usize = 16;

/// Most splits in a row for one pair, `SPLTMAX`.
pub const SPLITS_MAX: u64 = 10;

/// Lines of a drawing.
const LINES_MAX: usize = 64;

/// What tells the variants of sdbm apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a page, 32 to 32768.
    pub page_bytes: usize,
    /// Byte order of the offsets: that of the machine.
    pub byte_order: ByteOrder,
    /// The multiplier of the hash: 65599 in Perl and Apache, 65587 in Ruby.
    pub multiplier: u32,
    /// Sign of `char` on the machine.
    pub sign: CharSign,
}

impl Default for Options {
    /// Returns those of Perl on x86-64.
    fn default() -> Self {
        Self {
            page_bytes: PAGE_BYTES_DEFAULT,
            byte_order: ByteOrder::Little,
            multiplier: 65_599,
            sign: CharSign::Signed,
        }
    }
}

/// A table of sdbm.
#[derive(Debug)]
pub struct Sdbm {
    options: Options,
    /// The bits are the trie.
    paged: Paged,
}

/// Where the walk through the trie ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leaf {
    /// The bit of the trie, which is not set.
    trie_bit: u64,
    /// The bits of the hash that are the number of the page.
    mask: u64,
}

impl Leaf {
    /// Returns the son of this leaf, once its page has been split.
    fn son(self, hash: u64) -> Self {
        let is_right = hash & (self.mask + 1) != 0;
        Self {
            trie_bit: 2 * self.trie_bit + if is_right { 2 } else { 1 },
            mask: self.mask << 1 | 1,
        }
    }
}

impl Sdbm {
    /// Returns an empty table.
    ///
    /// # Panics
    ///
    /// If [`Options::page_bytes`] is not 32 to 32768.
    pub fn new(options: Options) -> Self {
        let form = PageForm { order: options.byte_order, spare_bytes: 0 };
        Self { options, paged: Paged::new(form, options.page_bytes, DIR_BLOCK_BYTES) }
    }

    /// Returns the hash of `key`.
    pub fn hash(&self, key: &[u8]) -> u32 {
        hash::sdbm(key, self.options.multiplier, self.options.sign)
    }

    /// Returns whether a node of the trie is internal: its page was split.
    pub fn is_split(&self, trie_bit: u64) -> bool {
        self.paged.bits.is_set(trie_bit)
    }

    /// Returns the page of a key with `hash`.
    pub fn page_of(&self, hash: u32) -> u64 {
        let hash = u64::from(hash);
        hash & self.leaf_of(hash).mask
    }

    fn leaf_of(&self, hash: u64) -> Leaf {
        let mut leaf = Leaf { trie_bit: 0, mask: 0 };
        while self.paged.bits.is_set(leaf.trie_bit) {
            leaf = leaf.son(hash);
        }
        leaf
    }

    /// Splits the page of `leaf` and its sons until a pair with `hash` has room, and returns its
    /// page.
    fn make_room(&mut self, mut leaf: Leaf, hash: u64, pair_bytes: usize) -> Result<u64, Refusal> {
        let mut split_count = 0;
        // Beyond the bits of a hash a split moves nothing.
        while split_count < SPLITS_MAX && leaf.mask < u64::from(u32::MAX) {
            self.split(leaf, hash & leaf.mask);
            split_count += 1;
            leaf = leaf.son(hash);
            if self.paged.form.has_room(self.paged.page(hash & leaf.mask), pair_bytes) {
                return Ok(hash & leaf.mask);
            }
        }
        let key_count = self.paged.form.pair_count(self.paged.page(hash & leaf.mask)) as u64;
        Err(Refusal::SplitLimit { split_count, depth: leaf.mask.count_ones(), key_count })
    }

    /// Divides a page by the next bit of the hashes of its keys.
    fn split(&mut self, leaf: Leaf, page: u64) {
        let bit = leaf.mask + 1;
        let old = self.paged.page(page).to_vec();
        let (mut lower, mut upper) = (vec![0; old.len()], vec![0; old.len()]);
        for (key, value) in self.paged.form.pairs(&old) {
            let is_upper = u64::from(self.hash(key)) & bit != 0;
            self.paged.form.put(if is_upper { &mut upper } else { &mut lower }, key, value);
        }
        self.paged.write_halves(page, leaf.mask, leaf.trie_bit, [&lower, &upper]);
    }

    fn show_node(&self, out: &mut String, node: Leaf, page: u64, lines: &mut usize) {
        *lines += 1;
        if *lines > LINES_MAX {
            return;
        }
        let depth = node.mask.count_ones() as usize;
        let path: String =
            (0..depth).map(|bit| if page >> bit & 1 == 1 { '1' } else { '0' }).collect();
        let indent = 2 * depth;
        if self.paged.bits.is_set(node.trie_bit) {
            let _ = writeln!(out, "{:indent$}bit {}: internal", "", node.trie_bit);
            for side in [0, node.mask + 1] {
                self.show_node(out, node.son(side), page | side, lines);
            }
            return;
        }
        let keys = self.paged.form.pair_count(self.paged.page(page));
        let used = self.paged.form.used_bytes(self.paged.page(page));
        let _ = writeln!(
            out,
            "{:indent$}bit {}: external, L{path} = page {page}: {keys} keys, {used} of {} bytes",
            "", node.trie_bit, self.options.page_bytes
        );
    }
}

impl Algorithm for Sdbm {
    fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<Stored, Refusal> {
        let pair_bytes = key.len() + value.len();
        let pair_bytes_max = self.options.page_bytes - PAGE_BYTES_LEFT;
        if pair_bytes > pair_bytes_max {
            let (pair_bytes, pair_bytes_max) = (pair_bytes as u64, pair_bytes_max as u64);
            return Err(Refusal::PairExceedsPage { pair_bytes, pair_bytes_max });
        }
        let hash = u64::from(self.hash(key));
        let leaf = self.leaf_of(hash);
        let mut page = hash & leaf.mask;
        let mut earlier = None;
        if let Some(index) = self.paged.find(page, key) {
            if mode == StoreMode::Insert {
                return Ok(Stored::Kept);
            }
            earlier = Some(self.paged.form.pair(self.paged.page(page), index).1.to_vec());
            self.paged.remove(page, index);
        }
        if !self.paged.form.has_room(self.paged.page(page), pair_bytes) {
            page = match self.make_room(leaf, hash, pair_bytes) {
                Ok(page) => page,
                Err(refusal) => {
                    // The original loses the old value here. It has room: its page has lost pairs
                    // since, and got none.
                    if let Some(earlier) = earlier {
                        self.paged.put(self.page_of(hash as u32), key, &earlier);
                    }
                    return Err(refusal);
                }
            };
        }
        self.paged.put(page, key, value);
        Ok(self.paged.note_stored(earlier.is_some()))
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
        let page = self.page_of(self.hash(key));
        Ok(self.paged.fetch(page, key))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Refusal> {
        let page = self.page_of(self.hash(key));
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
        let mut out =
            format!("trie of {} bytes, depth {}\n", self.paged.bits.file_bytes(), self.paged.depth);
        let mut lines = 0;
        self.show_node(&mut out, Leaf { trie_bit: 0, mask: 0 }, 0, &mut lines);
        super::cut(out, lines, LINES_MAX)
    }

    fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        self.paged.files()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a key whose hash agrees with that of `key` in twelve bits.
    fn twin_of(table: &Sdbm, key: &[u8]) -> String {
        let is_twin =
            |twin: &String| (table.hash(twin.as_bytes()) ^ table.hash(key)).trailing_zeros() >= 12;
        (0..1_u32 << 24).map(|number| number.to_string()).find(is_twin).unwrap()
    }

    /// Keys of one byte are their own hashes, so that their bits can be chosen.
    #[test]
    fn a_full_page_is_split_by_the_next_bit_of_the_hash() {
        let mut table = Sdbm::new(Options { page_bytes: 64, ..Options::default() });
        for byte in 0..14 {
            assert_eq!(table.store(&[byte], b"", StoreMode::Insert).unwrap(), Stored::New);
        }
        assert!(table.is_split(0) && !table.is_split(1));
        assert_eq!((table.page_of(4), table.page_of(5)), (0, 1));
        assert_eq!(table.counts().splits(), 1);
    }

    #[test]
    fn ten_splits_in_a_row_are_too_many() {
        let mut table = Sdbm::new(Options { page_bytes: 64, ..Options::default() });
        let value = [0; 40];
        assert!(table.store(b"a", &value, StoreMode::Insert).is_ok());
        let twin = twin_of(&table, b"a");
        let refusal = table.store(twin.as_bytes(), &value, StoreMode::Insert).unwrap_err();
        assert_eq!(refusal.reason(), super::super::Reason::CollidingKeys);
        assert_eq!(
            refusal.to_string(),
            "colliding keys exceed the page: 10 splits in a row made no room: 1 key on the page \
             agrees with it in the lowest 10 bits of the hash"
        );
        assert_eq!(table.fetch(b"a").unwrap().as_deref(), Some(&value[..]));
        assert_eq!(table.len(), 1);
    }

    /// The original deletes the old value first and loses it.
    #[test]
    fn a_refused_replace_keeps_the_old_value() {
        let mut table = Sdbm::new(Options { page_bytes: 64, ..Options::default() });
        let twin = twin_of(&table, b"a");
        table.store(b"a", b"old", StoreMode::Replace).unwrap();
        table.store(twin.as_bytes(), &[7; 20], StoreMode::Replace).unwrap();
        assert!(table.store(b"a", &[0; 40], StoreMode::Replace).is_err());
        assert_eq!(table.fetch(b"a").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(table.len(), 2);
    }
}
