//! The pages of buckets and the overflow pages: the layout, both directions and both byte orders.
//!
//! ```text
//! 0   2        2n      2n+2   2n+4          lowest                     page end
//! | n | 1 .. n | free | lowest | free bytes | .. value 2 key 2 | value 1 key 1 |
//! ```
//!
//! Slots are numbers of 16 bits. Slot 0 is the number of index slots in use, which come in twos:
//! where a key starts and where its value starts. Pairs fill the page from its end downward, key
//! above value, so a key ends where the value before it starts. A value starts at 4 or more: 0 to
//! 3 in its slot are markers.
//!
//! | marker | what the page is, or the two slots |
//! |---|---|
//! | 0 | the overflow address of the next page of the bucket; always the last two slots |
//! | 1 | a part of a big key, which goes on at the next page |
//! | 2 | the last part of a big key; or a part of a big value that is not the last |
//! | 3 | the last part of a big key, with the first part of its value; or the last part of a value |
//!
//! # Invariants
//!
//! - No function panics, whatever the bytes, because a [`Page`] has a slot count that fits.
//! - The number of free bytes follows from the index. Slot n+1 has it too, but the original leaves
//!   it wrong after deleting a big pair. Only on the last page of a big key does that slot matter:
//!   it shows whether the value ends there.
//!
//! # Source
//!
//! Seltzer and Yigit, "A new hashing package for UNIX", USENIX Winter 1991.

use std::ops::Range;

use splitpoint::{Error, Result};

use super::addresses::OverflowAddr;
use crate::ByteOrder;

/// Values in the slot of a value that are no offset.
pub(super) mod marker {
    pub(crate) const NEXT_PAGE: usize = 0;
    pub(crate) const PARTIAL_KEY: usize = 1;
    pub(crate) const FULL_KEY: usize = 2;
    pub(crate) const FULL_KEY_VALUE: usize = 3;
}

/// Lowest offset that a value can have.
const VALUE_START_MIN: usize = 4;

/// Index bytes of one pair or one link.
pub(super) const INDEX_BYTES: usize = 4;

/// Bytes of the page itself: slot count, free bytes, lowest offset.
pub(super) const PAGE_META_BYTES: usize = 6;

/// Key or value bytes that a page of a big pair holds: four index slots are taken.
pub(super) const fn part_bytes_max(page_bytes: usize) -> usize {
    page_bytes - PAGE_META_BYTES - 2 * INDEX_BYTES
}

/// Returns whether a pair of these sizes does not fit even an empty page.
pub(super) const fn is_big(page_bytes: usize, key_bytes: usize, value_bytes: usize) -> bool {
    key_bytes.saturating_add(value_bytes) > part_bytes_max(page_bytes)
}

/// Where a page and a value on it are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The first of the two slots.
    pub(super) slot: usize,
    pub(super) value: Range<usize>,
}

/// One page of a big pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    pub(super) after: After,
    /// The next page of the bucket, which is also the next of the pair if it goes on.
    pub(super) next: Option<OverflowAddr>,
}

/// What follows a page of a big pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Key,
    Value,
    Nothing,
}

/// The kind of a page of a big pair, as far as the page alone shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BigRole {
    /// A part of the key, which goes on.
    Key,
    /// The last part of the key without any of the value, or a part of the value that goes on.
    KeyEndOrValue,
    /// The last part of the key, with the value or its first part.
    KeyEnd { goes_on: bool },
    /// The last part of the value.
    ValueEnd,
}

/// A page of a bucket whose slot count has been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    offset: u64,
    slot_count: usize,
}

impl<'a> Page<'a> {
    /// Checks the slot count of the page at `offset` in the file.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is odd or leaves no room for what follows.
    #[inline]
    pub(super) fn validate(bytes: &'a [u8], order: ByteOrder, offset: u64) -> Result<Self> {
        let slot_count = usize::from(order.u16([bytes[0], bytes[1]]));
        let slot_count_max = (bytes.len() - PAGE_META_BYTES) / 2;
        if slot_count > slot_count_max || !slot_count.is_multiple_of(2) {
            return Err(Error::Corrupt {
                what: "slot count of a page",
                offset,
                expected: slot_count_max as u64,
                found: slot_count as u64,
            });
        }
        Ok(Self { bytes, order, offset, slot_count })
    }

    #[inline]
    fn slot(self, slot: usize) -> usize {
        usize::from(self.order.u16([self.bytes[2 * slot], self.bytes[2 * slot + 1]]))
    }

    fn corrupt<T>(self, what: &'static str, slot: usize, expected: usize) -> Result<T> {
        Err(Error::Corrupt {
            what,
            offset: self.offset + 2 * slot as u64,
            expected: expected as u64,
            found: self.slot(slot) as u64,
        })
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the unused bytes, as the page states them.
    pub(super) fn free_bytes(self) -> usize {
        self.slot(self.slot_count + 1)
    }

    pub(super) fn is_empty(self) -> bool {
        self.slot_count == 0
    }

    /// Returns whether this page is of a big pair: of an ordinary one if it is read out of turn.
    #[inline]
    pub(super) fn is_big(self) -> bool {
        self.slot_count >= 2 && (1..VALUE_START_MIN).contains(&self.slot(2))
    }

    /// Returns the next page of the bucket.
    #[inline]
    pub(super) fn next(self) -> Option<OverflowAddr> {
        let count = self.slot_count;
        let has_next = if self.is_big() {
            count >= 4
        } else {
            count >= 2 && self.slot(count) == marker::NEXT_PAGE
        };
        has_next.then(|| OverflowAddr(self.slot(count - 1) as u16))
    }

    /// Returns whether the bucket can end at this page. It cannot if the page belongs to a big pair
    /// and needs a next page to show that the pair ends here.
    pub(super) fn can_be_last(self) -> bool {
        !self.is_big()
            || self.slot(2) == marker::FULL_KEY_VALUE
                && (self.slot_count == 2 || self.slot(4) == marker::NEXT_PAGE)
    }

    /// Returns the number of slots that pairs have, on a page of ordinary pairs.
    #[inline]
    fn pair_slots(self) -> usize {
        if self.next().is_some() { self.slot_count - 2 } else { self.slot_count }
    }

    pub(super) fn pair_count(self) -> usize {
        if self.is_big() { 0 } else { self.pair_slots() / 2 }
    }

    /// Returns key and value at slots `slot` and `slot + 1`; the key ends at `end`.
    #[inline]
    fn pair(self, slot: usize, end: usize) -> Result<(Range<usize>, Range<usize>)> {
        let (key, value) = (self.slot(slot), self.slot(slot + 1));
        if value < VALUE_START_MIN || value > key {
            return self.corrupt("offset of a value", slot + 1, key);
        }
        if key > end {
            return self.corrupt("offset of a key", slot, end);
        }
        Ok((key..end, value..key))
    }

    /// Returns the place of `key` among the ordinary pairs.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the offsets do not fall, or if they lead outside.
    #[inline]
    pub(super) fn find(self, key: &[u8]) -> Result<Option<Found>> {
        let (slots, mut end) = (self.pair_slots(), self.bytes.len());
        for slot in (1..slots).step_by(2) {
            let (found, value) = self.pair(slot, end)?;
            end = value.start;
            if found.len() == key.len() && self.bytes[found] == *key {
                return Ok(Some(Found { slot, value }));
            }
        }
        Ok(None)
    }

    /// Returns the places of the ordinary pairs with `wanted` keys, in order.
    pub(super) fn find_all(self, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        let mut end = self.bytes.len();
        for slot in (1..self.pair_slots()).step_by(2) {
            let (key, value) = self.pair(slot, end)?;
            end = value.start;
            if wanted(&self.bytes[key]) {
                all.push(Found { slot, value });
            }
        }
        Ok(all)
    }

    /// Returns the ordinary pairs, each with its first slot, in their order.
    pub(super) fn pairs(self) -> impl Iterator<Item = Result<(usize, &'a [u8], &'a [u8])>> {
        let slots = if self.is_big() { 0 } else { self.pair_slots() };
        let mut end = self.bytes.len();
        (1..slots).step_by(2).map(move |slot| {
            let (key, value) = self.pair(slot, end)?;
            end = value.start;
            Ok((slot, &self.bytes[key], &self.bytes[value]))
        })
    }

    /// Returns what is on a page of a big pair, whose earlier pages left `due` to come.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is no such page.
    pub(super) fn part(self, due: After) -> Result<Part> {
        let end = self.bytes.len();
        if !self.is_big() {
            return self.corrupt("page of a big pair", 0, 4);
        }
        let start = self.slot(1);
        if start > end {
            return self.corrupt("offset of a big pair", 1, end);
        }
        let next = self.next();
        let found = self.slot(2);
        let (none, all) = (end..end, start..end);
        let part = match (due, found) {
            (After::Key, marker::PARTIAL_KEY) => {
                Part { key: all, value: none, after: After::Key, next }
            }
            (After::Key, marker::FULL_KEY) => {
                Part { key: all, value: none, after: After::Value, next }
            }
            (After::Key, _) if self.slot_count >= 4 => {
                let value = self.slot(self.slot_count);
                if value > start {
                    return self.corrupt("offset of a big value", self.slot_count, start);
                }
                let is_whole = self.slot(self.slot_count + 1) != 0;
                let after = if is_whole { After::Nothing } else { After::Value };
                Part { key: all, value: value..start, after, next }
            }
            (After::Value, marker::FULL_KEY) => {
                Part { key: none, value: all, after: After::Value, next }
            }
            (After::Value, marker::FULL_KEY_VALUE) => {
                Part { key: none, value: all, after: After::Nothing, next }
            }
            _ => return self.corrupt("kind of a page of a big pair", 2, marker::FULL_KEY_VALUE),
        };
        if part.after != After::Nothing && part.next.is_none() {
            return self.corrupt("slot count of a page of a big pair", 0, 4);
        }
        Ok(part)
    }

    /// Returns what a page of a big pair is by itself, or `None` for one of ordinary pairs.
    pub(super) fn big_role(self) -> Option<BigRole> {
        if !self.is_big() {
            return None;
        }
        Some(match self.slot(2) {
            marker::PARTIAL_KEY => BigRole::Key,
            marker::FULL_KEY => BigRole::KeyEndOrValue,
            _ if self.slot_count >= 4 && self.slot(self.slot_count) != marker::NEXT_PAGE => {
                BigRole::KeyEnd { goes_on: self.slot(self.slot_count + 1) == 0 }
            }
            _ => BigRole::ValueEnd,
        })
    }

    /// Returns whether the page is well-formed: its offsets fall, and its free bytes agree with
    /// them.
    pub(super) fn is_well_formed(self) -> bool {
        if self.is_big() {
            return matches!(self.slot_count, 2 | 4) && self.slot(1) <= self.bytes.len();
        }
        let index_end = 2 * self.slot_count + PAGE_META_BYTES;
        let lowest = self.slot(self.slot_count + 2);
        lowest == self.lowest()
            && lowest.checked_sub(index_end) == Some(self.slot(self.slot_count + 1))
            && self.pairs().all(|pair| pair.is_ok())
    }

    /// Returns the lowest byte that pairs use, on a page of ordinary pairs.
    fn lowest(self) -> usize {
        match self.pair_slots() {
            0 => self.bytes.len(),
            slots => self.slot(slots).min(self.bytes.len()),
        }
    }

    /// Returns whether a pair of `pair_bytes` can be put on this page of ordinary pairs, so that a
    /// link can be added after it.
    #[inline]
    pub(super) fn has_room(self, pair_bytes: usize) -> bool {
        if self.is_big() {
            return false;
        }
        let spare = if self.next().is_some() { 0 } else { INDEX_BYTES };
        let index_end = 2 * self.slot_count + PAGE_META_BYTES;
        self.lowest().saturating_sub(index_end) >= INDEX_BYTES + pair_bytes + spare
    }

    /// Returns an error unless the page can be changed: it has ordinary pairs, all of them behind
    /// the index, and room for a link to a next page.
    pub(super) fn can_change(self) -> Result<()> {
        let spare = if self.next().is_some() { 0 } else { INDEX_BYTES };
        let index_end = 2 * self.slot_count + PAGE_META_BYTES;
        if self.is_big() {
            return self.corrupt("kind of a page", 2, marker::NEXT_PAGE);
        }
        if self.lowest() < index_end + spare {
            return self.corrupt("offset of a value", self.pair_slots(), index_end + spare);
        }
        // The last offset is the lowest only if all before it fall.
        self.pairs().try_for_each(|pair| pair.map(drop))
    }

    /// Returns whether a pair would have room if the one at `found` were not there.
    pub(super) fn has_room_without(self, found: &Found, pair_bytes: usize) -> bool {
        let spare = if self.next().is_some() { 0 } else { INDEX_BYTES };
        let index_end = 2 * self.slot_count + PAGE_META_BYTES;
        let end = self.end_of(found.slot);
        let free = self.lowest().saturating_sub(index_end);
        free + end.saturating_sub(found.value.start) >= pair_bytes + spare
    }

    /// Returns the end of the key at `slot`.
    fn end_of(self, slot: usize) -> usize {
        if slot == 1 { self.bytes.len() } else { self.slot(slot - 1) }
    }

    /// Returns what is not as it should be, for `check`: the first slot of it and what was
    /// expected.
    pub(super) fn flaw(self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let lowest = if self.is_big() {
            let slot = if self.slot_count == 4 && self.slot(4) != 0 { 4 } else { 1 };
            self.slot(slot)
        } else {
            self.lowest()
        };
        let index_end = 2 * self.slot_count + PAGE_META_BYTES;
        if lowest < index_end {
            return self.corrupt("lowest byte of a page", self.slot_count + 2, index_end);
        }
        if self.slot(self.slot_count + 1) != lowest - index_end {
            return self.corrupt("free bytes of a page", self.slot_count + 1, lowest - index_end);
        }
        if self.slot(self.slot_count + 2) != lowest {
            return self.corrupt("lowest byte of a page", self.slot_count + 2, lowest);
        }
        Ok(())
    }
}

/// A page to change, with a checked slot count.
///
/// The caller has checked the preconditions of a change on the [`Page`]; they are asserted here.
#[derive(Debug)]
pub(super) struct PageMut<'a> {
    bytes: &'a mut [u8],
    order: ByteOrder,
}

impl<'a> PageMut<'a> {
    /// Takes a page that [`Page::validate`] has passed.
    pub(super) fn new(bytes: &'a mut [u8], order: ByteOrder) -> Self {
        Self { bytes, order }
    }

    fn as_page(&self) -> Page<'_> {
        Page::validate(self.bytes, self.order, 0).expect("the page has been validated")
    }

    fn set_slot(&mut self, slot: usize, value: usize) {
        let value = u16::try_from(value).expect("a page has at most 32,768 bytes");
        self.bytes[2 * slot..2 * slot + 2].copy_from_slice(&self.order.bytes_of_u16(value));
    }

    /// Sets slot count, free bytes and lowest offset.
    fn set_meta(&mut self, slot_count: usize, lowest: usize) {
        self.set_slot(0, slot_count);
        // Only on a damaged page is a pair within the index.
        self.set_slot(slot_count + 1, lowest.saturating_sub(2 * slot_count + PAGE_META_BYTES));
        self.set_slot(slot_count + 2, lowest);
    }

    /// Turns this into an empty page.
    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
        self.set_meta(0, self.bytes.len());
    }

    /// Adds a pair, for which there must be room.
    pub(super) fn add_pair(&mut self, key: &[u8], value: &[u8]) {
        let page = self.as_page();
        assert!(page.has_room(key.len() + value.len()), "the pair fits this page");
        let (slots, next) = (page.pair_slots(), page.next());
        let key_start = page.lowest() - key.len();
        let value_start = key_start - value.len();
        self.bytes[key_start..key_start + key.len()].copy_from_slice(key);
        self.bytes[value_start..key_start].copy_from_slice(value);
        self.set_slot(slots + 1, key_start);
        self.set_slot(slots + 2, value_start);
        self.set_end(slots + 2, next, value_start);
    }

    /// Ends the index after `slots` slots of pairs with `next`, if there is one.
    fn set_end(&mut self, slots: usize, next: Option<OverflowAddr>, lowest: usize) {
        let Some(next) = next else { return self.set_meta(slots, lowest) };
        self.set_slot(slots + 1, next.0.into());
        self.set_slot(slots + 2, marker::NEXT_PAGE);
        self.set_meta(slots + 2, lowest);
    }

    /// Removes the pair at `found`.
    pub(super) fn remove_pair(&mut self, found: &Found) {
        let page = self.as_page();
        let (slots, next, lowest) = (page.pair_slots(), page.next(), page.lowest());
        let end = page.end_of(found.slot);
        let gap = end - found.value.start;
        // Only a damaged page has a value below the lowest.
        let moved = lowest.min(found.value.start)..found.value.start;
        self.bytes.copy_within(moved.clone(), moved.start + gap);
        for slot in found.slot + 2..=slots {
            let at = 2 * slot;
            let offset = usize::from(self.order.u16([self.bytes[at], self.bytes[at + 1]]));
            self.set_slot(slot - 2, (offset + gap).min(self.bytes.len()));
        }
        self.set_end(slots - 2, next, moved.start + gap);
    }

    /// Sets the next page of the bucket, or turns this into the last page.
    pub(super) fn set_next(&mut self, next: Option<OverflowAddr>) {
        let page = self.as_page();
        if !page.is_big() {
            let (slots, lowest) = (page.pair_slots(), page.lowest());
            return self.set_end(slots, next, lowest);
        }
        let start = page.slot(1);
        let slot_count = page.slot_count;
        match next {
            // The value that begins on this page may have the slot of the marker.
            Some(next) if slot_count >= 4 => self.set_slot(slot_count - 1, next.0.into()),
            Some(next) => {
                self.set_slot(3, next.0.into());
                self.set_slot(4, marker::NEXT_PAGE);
                self.set_meta(4, start);
            }
            None => {
                assert!(page.can_be_last(), "the pair goes on");
                self.set_meta(2, start);
            }
        }
    }

    /// Makes this a page of a big pair that begins with a part of its key. Of its value, `value` is
    /// here; the page is [`After::Nothing`] if that is the end of it.
    pub(super) fn set_key_part(
        &mut self,
        after: After,
        key: &[u8],
        value: &[u8],
        next: OverflowAddr,
    ) {
        self.clear();
        let end = self.bytes.len();
        let free = part_bytes_max(end).checked_sub(key.len() + value.len());
        let free = free.expect("the part fits a page");
        let (key_start, value_start) = (end - key.len(), end - key.len() - value.len());
        let (kind, value_slot) = match after {
            After::Key => (marker::PARTIAL_KEY, marker::NEXT_PAGE),
            After::Value if value.is_empty() => (marker::FULL_KEY, marker::NEXT_PAGE),
            // Only the free bytes show whether the value ends here.
            After::Value | After::Nothing => (marker::FULL_KEY_VALUE, value_start),
        };
        assert_eq!(kind == marker::FULL_KEY_VALUE && free > 0, after == After::Nothing);
        self.bytes[key_start..].copy_from_slice(key);
        self.bytes[value_start..key_start].copy_from_slice(value);
        self.set_slot(1, key_start);
        self.set_slot(2, kind);
        self.set_slot(3, next.0.into());
        self.set_slot(4, value_slot);
        self.set_meta(4, value_start);
    }

    /// Makes this a page of a big pair with nothing but a part of its value.
    pub(super) fn set_value_part(
        &mut self,
        value: &[u8],
        after: After,
        next: Option<OverflowAddr>,
    ) {
        self.clear();
        assert!(value.len() <= part_bytes_max(self.bytes.len()));
        assert!(after == After::Nothing || next.is_some(), "the value goes on at the next page");
        let start = self.bytes.len() - value.len();
        let kind = match after {
            After::Nothing => marker::FULL_KEY_VALUE,
            _ => marker::FULL_KEY,
        };
        self.bytes[start..].copy_from_slice(value);
        self.set_slot(1, start);
        self.set_slot(2, kind);
        self.set_meta(2, start);
        if next.is_some() {
            self.set_next(next);
        }
    }
}
