//! `KeyList`: keys in insertion order, with lookup by hash.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use crate::error::Result;
use crate::memory;

/// Keys, each with a value or none, in the order in which they were added. Their bytes lie one behind the
/// other, so an entry costs no allocation of its own.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    kept: Kept,
    newest: Newest,
    /// Entries added so far, with those that were forgotten.
    added_count: u64,
}

/// The entries and their bytes.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

thread_local! {
    /// Room of lists that this thread has dropped, for its next ones: each allocation costs a short
    /// transaction a twentieth of its time.
    static SPARE: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

impl Kept {
    /// Returns room for a list that begins.
    fn with_room() -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
        spare.ok().flatten().unwrap_or_else(|| Self {
            bytes: Vec::with_capacity(BYTES_AT_FIRST),
            entries: Vec::with_capacity(ENTRIES_AT_FIRST),
        })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (bytes, entries) = (self.bytes.capacity(), self.entries.capacity());
        if entries == 0 || bytes > SPARE_BYTES_MAX || entries > SPARE_ENTRIES_MAX {
            return;
        }
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                self.bytes.clear();
                self.entries.clear();
                spare.push(std::mem::take(self));
            }
        });
    }
}

/// Lists whose room a thread keeps: those of what a transaction has read and of what it changes.
const SPARE_MAX: usize = 2;
/// The most room of each: for a thousand changes.
const SPARE_BYTES_MAX: usize = 256 << 10;
const SPARE_ENTRIES_MAX: usize = 2048;
/// Room for bytes and entries that a list begins with: one of a few keys allocates once for each.
const BYTES_AT_FIRST: usize = 512;
const ENTRIES_AT_FIRST: usize = 8;
/// Entries that are searched from the end; more have a table.
const SEARCHED_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    /// From 1 on, in the order of adding; never given twice.
    serial: u64,
    /// Where the key begins; the value follows it.
    start: usize,
    key_bytes: u32,
    value_bytes: u32,
    has_value: bool,
    /// The entry before this one with the same hash, if the table was there.
    earlier: Option<Place>,
}

impl KeyList {
    /// Returns an empty list, whose serial numbers go on behind `added_count`.
    pub(crate) fn after(added_count: u64) -> Self {
        Self { added_count, ..Self::default() }
    }

    /// Returns the last serial number that was given.
    pub(crate) fn added_count(&self) -> u64 {
        self.added_count
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.entries.len()
    }

    /// Returns about how many bytes of memory the list takes with one more entry of `entry_bytes`
    /// bytes.
    #[inline]
    pub(crate) fn bytes_with(&self, entry_bytes: usize) -> u64 {
        // A quarter of the table is full at least.
        const ENTRY_BYTES: usize = size_of::<Entry>() + 4 * size_of::<Option<Place>>();
        (self.kept.bytes.len() + entry_bytes + (self.len() + 1) * ENTRY_BYTES) as u64
    }

    /// Returns every entry in order: its hash, its key and its value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8], Option<&[u8]>)> {
        self.kept.entries.iter().map(|entry| {
            let (key, value) = self.parts(entry);
            (entry.hash, key, value)
        })
    }

    #[inline]
    fn parts(&self, entry: &Entry) -> (&[u8], Option<&[u8]>) {
        let bytes = &self.kept.bytes[entry.start..];
        let (key, rest) = bytes.split_at(entry.key_bytes as usize);
        (key, entry.has_value.then(|| &rest[..entry.value_bytes as usize]))
    }

    /// Returns the value of the last entry with a key.
    #[expect(
        clippy::option_option,
        reason = "whether it has the key, and whether that has a value"
    )]
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64) -> Option<Option<&[u8]>> {
        if self.newest.is_empty() {
            let found = self.kept.entries.iter().rev().filter(|entry| entry.hash == hash);
            return found.map(|entry| self.parts(entry)).find(|it| it.0 == key).map(|it| it.1);
        }
        let mut at = self.newest.find(hash, |i| self.kept.entries[i].hash == hash);
        while let Some(place) = at {
            let entry = &self.kept.entries[place.index()];
            let (found, value) = self.parts(entry);
            if found == key {
                return Some(value);
            }
            at = entry.earlier;
        }
        None
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if there is no memory; the list has the same entries as before.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>, hash: u64) -> Result<()> {
        let given = value.unwrap_or_default();
        if self.kept.entries.capacity() == 0 {
            self.kept = Kept::with_room();
        }
        // All memory first.
        memory::reserve(&mut self.kept.bytes, key.len() + given.len())?;
        memory::reserve(&mut self.kept.entries, 1)?;
        let len = self.len() + 1;
        let is_noted = !self.newest.is_empty() && !self.newest.is_full_with(len);
        let larger = (!is_noted && len > SEARCHED_MAX).then(|| Newest::with_room_for(len));
        let larger = larger.transpose()?;
        let start = self.kept.bytes.len();
        self.kept.bytes.extend_from_slice(key);
        self.kept.bytes.extend_from_slice(given);
        self.added_count += 1;
        let length = |bytes: usize| u32::try_from(bytes).expect("keys and values have a limit");
        self.kept.entries.push(Entry {
            hash,
            serial: self.added_count,
            start,
            key_bytes: length(key.len()),
            value_bytes: length(given.len()),
            has_value: value.is_some(),
            earlier: None,
        });
        if is_noted {
            self.note(len - 1);
        } else if let Some(larger) = larger {
            self.newest = larger;
            (0..len).for_each(|i| self.note(i));
        }
        Ok(())
    }

    fn note(&mut self, i: usize) {
        let hash = self.kept.entries[i].hash;
        let earlier =
            self.newest.replace(hash, Some(Place::of(i)), |i| self.kept.entries[i].hash == hash);
        self.kept.entries[i].earlier = earlier;
    }

    /// Returns the serial number of the last of the first `len` entries, 0 for none of them. No other list
    /// of entries since this one began has the same.
    pub(crate) fn serial_of_last(&self, len: usize) -> u64 {
        len.checked_sub(1).map_or(0, |last| self.kept.entries[last].serial)
    }

    /// Forgets all but the first entries.
    pub(crate) fn truncate(&mut self, len: usize) {
        while let Some(&Entry { hash, earlier, start, .. }) = self.kept.entries.last()
            && self.len() > len
        {
            // The table is whole whenever it is there.
            if !self.newest.is_empty() {
                self.newest.replace(hash, earlier, |i| self.kept.entries[i].hash == hash);
            }
            self.kept.entries.pop();
            self.kept.bytes.truncate(start);
        }
    }
}

/// The place of an entry in its list, counted from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(NonZeroUsize);

impl Place {
    #[inline]
    fn of(i: usize) -> Self {
        Self(NonZeroUsize::MIN.saturating_add(i))
    }

    #[inline]
    fn index(self) -> usize {
        self.0.get() - 1
    }
}

/// A table with the last entry of each hash: open addressing with linear probing. The entry that was added
/// last is taken out first, and nothing was put behind it, so a hole that it leaves cuts nobody off.
#[derive(Debug, Default)]
struct Newest {
    /// A power of two of them, or none.
    places: Vec<Option<Place>>,
}

impl Newest {
    fn with_room_for(len: usize) -> Result<Self> {
        Ok(Self { places: memory::filled(None, (2 * len).next_power_of_two())? })
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns whether the table is too small for `len` entries: half of it stays empty.
    #[inline]
    fn is_full_with(&self, len: usize) -> bool {
        2 * len > self.places.len()
    }

    /// Returns where a hash is, or the place where it is to be put.
    #[inline]
    fn at(&self, hash: u64, is_of_hash: impl Fn(usize) -> bool) -> usize {
        let mask = self.places.len() - 1;
        // Keys of one bucket have the same last bits, and a function of 32 bits has no first ones.
        let mut at = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while let Some(place) = self.places[at]
            && !is_of_hash(place.index())
        {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    fn find(&self, hash: u64, is_of_hash: impl Fn(usize) -> bool) -> Option<Place> {
        self.places[self.at(hash, is_of_hash)]
    }

    /// Puts an entry in the place of the last one of its hash, which it returns; none takes it out.
    #[inline]
    fn replace(
        &mut self,
        hash: u64,
        place: Option<Place>,
        is_of_hash: impl Fn(usize) -> bool,
    ) -> Option<Place> {
        let at = self.at(hash, is_of_hash);
        std::mem::replace(&mut self.places[at], place)
    }
}

/// Returns which of `count` keys come again later, in their order. `is_same` says whether two are equal.
///
/// # Errors
///
/// [`Error::Full`](crate::Error::Full) if there is no memory.
pub(crate) fn repeated(
    count: usize,
    hash_of: impl Fn(usize) -> u64,
    is_same: impl Fn(usize, usize) -> bool,
) -> Result<Vec<usize>> {
    let is_equal = |i: usize, other: usize| hash_of(i) == hash_of(other) && is_same(i, other);
    if count <= SEARCHED_MAX {
        let comes_again = |&i: &usize| (i + 1..count).any(|later| is_equal(i, later));
        return Ok((0..count).filter(comes_again).collect());
    }
    let mut newest = Newest::with_room_for(count)?;
    let put = |i| newest.replace(hash_of(i), Some(Place::of(i)), |earlier| is_equal(i, earlier));
    let mut repeated = memory::collected((0..count).filter_map(put).map(Place::index))?;
    repeated.sort_unstable();
    Ok(repeated)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_that_come_again_are_those_with_an_equal_one_later(
            keys in prop::collection::vec(0..24_u64, 0..80),
        ) {
            // Hashes of which several keys share each.
            let hash_of = |i: usize| keys[i] % 5;
            let expected: Vec<usize> =
                (0..keys.len()).filter(|&i| keys[i + 1..].contains(&keys[i])).collect();
            prop_assert_eq!(repeated(keys.len(), hash_of, |i, j| keys[i] == keys[j]).unwrap(), expected);
        }

        #[test]
        fn it_finds_the_last_value_of_each_key_and_forgets_the_newest(
            steps in prop::collection::vec((0..24_u8, prop::option::of(any::<u8>())), 0..80),
            kept in prop::collection::vec(0..80_usize, 0..4),
        ) {
            // Hashes of which several keys share each.
            let hash = |key: u8| u64::from(key % 5) << 60;
            let mut list = KeyList::default();
            let mut model: Vec<(u8, Option<u8>)> = Vec::new();
            let mut lens = kept.into_iter();
            for chunk in steps.chunks(20) {
                for &(key, value) in chunk {
                    list.add(&[key], value.as_ref().map(std::slice::from_ref), hash(key)).unwrap();
                    model.push((key, value));
                }
                if let Some(len) = lens.next() {
                    list.truncate(len);
                    model.truncate(len);
                }
                prop_assert_eq!(list.len(), model.len());
                for key in 0..24 {
                    let expected = model.iter().rev().find(|it| it.0 == key).map(|it| it.1);
                    let found = list.find(&[key], hash(key));
                    prop_assert_eq!(found.map(|it| it.map(|it| it[0])), expected);
                }
                let all: Vec<_> = list.iter().map(|(_, key, it)| (key[0], it.map(|it| it[0]))).collect();
                prop_assert_eq!(&all, &model);
            }
        }
    }
}
