//! The page that dbm, ndbm and sdbm have in common.
//!
//! ```text
//! | n | key 0 | value 0 | key 1 | ...    unused    | value 1 | key 1 | value 0 | key 0 |
//!   ^ n offsets, 16 bits each                      ^ each ends where the one before it starts
//! ```
//!
//! A removed pair leaves its bytes in the unused part, as the originals do. Files of sdbm are tested to
//! equal the originals' byte for byte, those of ndbm in all bytes that are used; of dbm, with pages of
//! 512 bytes, no original file is there to compare.

use std::ops::Range;

use crate::ByteOrder;

/// The smallest page, and the largest whose offsets have 16 bits.
pub(super) const PAGE_BYTES: Range<usize> = 32..(1 << 15) + 1;

/// Bytes of an offset.
const SLOT_BYTES: usize = 2;

/// What the pages of a table have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageForm {
    pub(super) order: ByteOrder,
    /// Bytes that stay unused on a full page: 1 in dbm and ndbm, 0 in sdbm.
    pub(super) spare_bytes: usize,
}

impl PageForm {
    fn slot(self, page: &[u8], slot: usize) -> usize {
        self.order.u16_at(page, slot * SLOT_BYTES).into()
    }

    fn set_slot(self, page: &mut [u8], slot: usize, number: usize) {
        let bytes = self.order.bytes_of_u16(number as u16);
        page[slot * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&bytes);
    }

    fn slot_count(self, page: &[u8]) -> usize {
        self.slot(page, 0)
    }

    /// Returns the number of pairs on `page`.
    pub(super) fn pair_count(self, page: &[u8]) -> usize {
        self.slot_count(page) / 2
    }

    /// Returns where the bytes of the pairs start.
    fn low(self, page: &[u8]) -> usize {
        match self.slot_count(page) {
            0 => page.len(),
            count => self.slot(page, count),
        }
    }

    /// Returns where the key of pair `index` ends.
    fn end_of(self, page: &[u8], index: usize) -> usize {
        if index == 0 { page.len() } else { self.slot(page, 2 * index) }
    }

    /// Returns key and value of pair `index`.
    pub(super) fn pair(self, page: &[u8], index: usize) -> (&[u8], &[u8]) {
        let (key, value) = (self.slot(page, 2 * index + 1), self.slot(page, 2 * index + 2));
        (&page[key..self.end_of(page, index)], &page[value..key])
    }

    /// Returns the pairs in their order.
    pub(super) fn pairs(self, page: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.pair_count(page)).map(move |index| self.pair(page, index))
    }

    /// Returns the number of the pair with `key`, and how many keys were compared.
    pub(super) fn find(self, page: &[u8], key: &[u8]) -> (Option<usize>, u64) {
        let count = self.pair_count(page);
        let found = (0..count).find(|&index| self.pair(page, index).0 == key);
        (found, found.map_or(count, |index| index + 1) as u64)
    }

    /// Returns the bytes that pairs and their offsets take.
    pub(super) fn used_bytes(self, page: &[u8]) -> usize {
        page.len() - self.low(page) + self.slot_count(page) * SLOT_BYTES
    }

    /// Returns whether a pair of `pair_bytes` fits.
    pub(super) fn has_room(self, page: &[u8], pair_bytes: usize) -> bool {
        self.has_room_without(page, None, pair_bytes)
    }

    /// Returns whether a pair of `pair_bytes` fits once pair `replaced` is gone.
    pub(super) fn has_room_without(
        self,
        page: &[u8],
        replaced: Option<usize>,
        pair_bytes: usize,
    ) -> bool {
        let gone = replaced.map_or(0, |index| {
            let (key, value) = self.pair(page, index);
            key.len() + value.len() + 2 * SLOT_BYTES
        });
        let index_end = (self.slot_count(page) + 3) * SLOT_BYTES;
        self.low(page) + gone >= index_end + self.spare_bytes + pair_bytes
    }

    /// Returns the most bytes of a pair that an empty page takes.
    pub(super) fn pair_bytes_max(self, page_bytes: usize) -> usize {
        page_bytes - 3 * SLOT_BYTES - self.spare_bytes
    }

    /// Adds a pair, which must fit, behind the others.
    pub(super) fn put(self, page: &mut [u8], key: &[u8], value: &[u8]) {
        assert!(self.has_room(page, key.len() + value.len()), "the page has room for the pair");
        let count = self.slot_count(page);
        let key_start = self.low(page) - key.len();
        let value_start = key_start - value.len();
        page[key_start..][..key.len()].copy_from_slice(key);
        page[value_start..][..value.len()].copy_from_slice(value);
        self.set_slot(page, count + 1, key_start);
        self.set_slot(page, count + 2, value_start);
        self.set_slot(page, 0, count + 2);
    }

    /// Removes pair `index`. Pairs behind it move up.
    pub(super) fn remove(self, page: &mut [u8], index: usize) {
        let (count, low) = (self.slot_count(page), self.low(page));
        let (end, start) = (self.end_of(page, index), self.slot(page, 2 * index + 2));
        let pair_bytes = end - start;
        page.copy_within(low..start, low + pair_bytes);
        for slot in 2 * index + 1..=count - 2 {
            let moved = self.slot(page, slot + 2) + pair_bytes;
            self.set_slot(page, slot, moved);
        }
        self.set_slot(page, 0, count - 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: PageForm = PageForm { order: ByteOrder::Little, spare_bytes: 0 };

    #[test]
    fn pairs_fill_the_page_from_its_end() {
        let mut page = [0; 32];
        FORM.put(&mut page, b"ab", b"c");
        FORM.put(&mut page, b"d", b"");
        assert_eq!(&page[..10], [4, 0, 30, 0, 29, 0, 28, 0, 28, 0]);
        assert_eq!(&page[28..], b"dcab");
        assert_eq!(
            FORM.pairs(&page).collect::<Vec<_>>(),
            [(&b"ab"[..], &b"c"[..]), (&b"d"[..], &b""[..])]
        );
        assert_eq!(FORM.find(&page, b"d"), (Some(1), 2));
        assert_eq!(FORM.find(&page, b"x"), (None, 2));
    }

    #[test]
    fn a_removed_pair_leaves_the_others_in_order() {
        let mut page = [0; 64];
        for key in [&b"one"[..], b"two", b"three"] {
            FORM.put(&mut page, key, b"v");
        }
        FORM.remove(&mut page, 1);
        let keys: Vec<&[u8]> = FORM.pairs(&page).map(|(key, _)| key).collect();
        assert_eq!(keys, [&b"one"[..], b"three"]);
        FORM.remove(&mut page, 0);
        FORM.remove(&mut page, 0);
        assert_eq!((FORM.pair_count(&page), FORM.used_bytes(&page)), (0, 0));
    }

    #[test]
    fn a_page_takes_the_pairs_that_its_original_takes() {
        let ndbm = PageForm { spare_bytes: 1, ..FORM };
        assert_eq!((ndbm.pair_bytes_max(1024), FORM.pair_bytes_max(1024)), (1017, 1018));
        let page = [0; 1024];
        assert!(ndbm.has_room(&page, 1017) && !ndbm.has_room(&page, 1018));
    }
}
