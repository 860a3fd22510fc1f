//! `KeyList`: keys in the order in which they were added, each found again by its hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Keys, each with a value or none, in the order in which they were added. Their bytes lie one behind the
/// other, so an entry costs no allocation of its own.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The last entry with each hash; empty if there were few all the time, which are searched instead.
    last_of_hash: HashMap<u64, usize, BuildHasherDefault<Same>>,
    /// Entries added so far, with those that were forgotten.
    added_count: u64,
}

/// Room for bytes and entries that a list begins with: one of a few keys allocates once for each.
const BYTES_AT_FIRST: usize = 512;
const ENTRIES_AT_FIRST: usize = 16;
/// Entries that are searched from the end; more have a map.
const SEARCHED_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    /// From 1 on, in the order of adding; never given twice.
    serial: u64,
    /// Where the key begins; the value follows it.
    start: usize,
    key_bytes: usize,
    value_bytes: Option<usize>,
    /// The entry before this one with the same hash, if the map was there.
    earlier: Option<usize>,
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
        self.entries.len()
    }

    /// Returns about how many bytes of memory it takes with another entry of so many.
    pub(crate) fn bytes_with(&self, entry_bytes: usize) -> u64 {
        // A word of the map has the hash and the place.
        const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * size_of::<u64>();
        (self.bytes.len() + entry_bytes + (self.len() + 1) * ENTRY_BYTES) as u64
    }

    /// Returns every entry in order: its hash, its key and its value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8], Option<&[u8]>)> {
        self.entries.iter().map(|entry| {
            let (key, value) = self.parts(entry);
            (entry.hash, key, value)
        })
    }

    fn parts(&self, entry: &Entry) -> (&[u8], Option<&[u8]>) {
        let value_start = entry.start + entry.key_bytes;
        let value = entry.value_bytes.map(|bytes| &self.bytes[value_start..value_start + bytes]);
        (&self.bytes[entry.start..value_start], value)
    }

    /// Returns the value of the last entry with a key.
    #[expect(
        clippy::option_option,
        reason = "whether it has the key, and whether that has a value"
    )]
    pub(crate) fn find(&self, key: &[u8], hash: u64) -> Option<Option<&[u8]>> {
        if self.last_of_hash.is_empty() {
            let found = self.entries.iter().rev().filter(|entry| entry.hash == hash);
            return found.map(|entry| self.parts(entry)).find(|it| it.0 == key).map(|it| it.1);
        }
        let mut at = self.last_of_hash.get(&hash).copied();
        while let Some(i) = at {
            let (found, value) = self.parts(&self.entries[i]);
            if found == key {
                return Some(value);
            }
            at = self.entries[i].earlier;
        }
        None
    }

    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>, hash: u64) {
        if self.entries.capacity() == 0 {
            let bytes = key.len() + value.map_or(0, <[u8]>::len);
            self.bytes.reserve(bytes.max(BYTES_AT_FIRST));
            self.entries.reserve(ENTRIES_AT_FIRST);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let (key_bytes, value_bytes) = (key.len(), value.map(<[u8]>::len));
        self.added_count += 1;
        let serial = self.added_count;
        self.entries.push(Entry { hash, serial, start, key_bytes, value_bytes, earlier: None });
        let len = self.len();
        if !self.last_of_hash.is_empty() {
            self.note(len - 1);
        } else if len > SEARCHED_MAX {
            (0..len).for_each(|i| self.note(i));
        }
    }

    fn note(&mut self, i: usize) {
        let entry = &mut self.entries[i];
        entry.earlier = self.last_of_hash.insert(entry.hash, i);
    }

    /// Returns the serial number of the last of the first `len` entries, 0 for none of them. No other list
    /// of entries since this one began has the same.
    pub(crate) fn serial_of_last(&self, len: usize) -> u64 {
        len.checked_sub(1).map_or(0, |last| self.entries[last].serial)
    }

    /// Forgets all but the first entries.
    pub(crate) fn truncate(&mut self, len: usize) {
        while self.len() > len
            && let Some(last) = self.entries.pop()
        {
            // The map is whole whenever it is not empty.
            if !self.last_of_hash.is_empty() {
                match last.earlier {
                    Some(earlier) => self.last_of_hash.insert(last.hash, earlier),
                    None => self.last_of_hash.remove(&last.hash),
                };
            }
            self.bytes.truncate(last.start);
        }
    }
}

/// Takes a hash as it is.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        // The map looks at the last bits and the first seven, of which a function of 32 bits has none.
        self.0 = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
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
                    list.add(&[key], value.as_ref().map(std::slice::from_ref), hash(key));
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
