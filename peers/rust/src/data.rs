//! Which keys and values there are.

use std::io::{BufRead as _, BufReader};

use crate::{Config, Outcome};

pub(crate) fn splitmix64(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns the record that the j-th random operation is about.
pub(crate) fn pick(j: u64, record_count: u64) -> u64 {
    splitmix64(j ^ 0xabcd) % record_count
}

/// Sums up what was asked and answered, in any order of calls.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| splitmix64(hash ^ prefix(chunk)))
}

/// The first eight bytes of a key as a number, which is cheap enough to add up during a scan.
#[inline]
pub(crate) fn prefix(key: &[u8]) -> u64 {
    if let Some(word) = key.first_chunk() {
        return u64::from_le_bytes(*word);
    }
    key.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The keys and values of a workload.
pub(crate) struct Data {
    key_bytes: usize,
    value_bytes: usize,
    words: Vec<String>,
    expected: Vec<u8>,
}

impl Data {
    pub(crate) fn new(config: &Config, words: Option<&str>) -> Outcome<Self> {
        let words = match (config.key_bytes, words) {
            (0, Some(path)) => read_words(path, config.record_count as usize)?,
            (0, None) => return Err("a word list is needed: --words FILE".into()),
            _ => Vec::new(),
        };
        let Config { key_bytes, value_bytes, .. } = *config;
        Ok(Self { key_bytes, value_bytes, words, expected: Vec::new() })
    }

    pub(crate) fn is_words(&self) -> bool {
        self.key_bytes == 0
    }

    /// Appends key `i`: a word, or `splitmix64(i)`, in hex digits where there is room for them.
    pub(crate) fn append_key(&self, i: u64, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        if self.is_words() {
            out.extend_from_slice(self.words[i as usize].as_bytes());
            return;
        }
        let bits = splitmix64(i);
        if self.key_bytes == 8 {
            out.extend_from_slice(&bits.to_le_bytes());
            return;
        }
        let digit = |digit| DIGITS[(bits >> (60 - 4 * digit) & 15) as usize];
        out.extend((0..self.key_bytes).map(digit));
    }

    /// Appends the value of record `i` after `version` changes: incompressible bytes, or the
    /// number of the word.
    pub(crate) fn append_value(&self, i: u64, version: u64, out: &mut Vec<u8>) {
        if self.is_words() {
            out.extend_from_slice((i + 1).to_string().as_bytes());
            return;
        }
        let seed = splitmix64(i ^ version << 48 ^ 0x5555);
        for at in (0..self.value_bytes).step_by(8) {
            let bits = splitmix64(seed.wrapping_add(at as u64 / 8));
            let len = (self.value_bytes - at).min(8);
            out.extend_from_slice(&bits.to_le_bytes()[..len]);
        }
    }

    pub(crate) fn value_bytes(&self, i: u64) -> usize {
        if self.is_words() { (i + 1).to_string().len() } else { self.value_bytes }
    }

    pub(crate) fn is_value(&mut self, i: u64, version: u64, value: &[u8]) -> bool {
        let mut expected = std::mem::take(&mut self.expected);
        expected.clear();
        self.append_value(i, version, &mut expected);
        let is_equal = expected == value;
        self.expected = expected;
        is_equal
    }
}

fn read_words(path: &str, count: usize) -> Outcome<Vec<String>> {
    let lines = BufReader::new(std::fs::File::open(path)?).lines();
    let mut words = Vec::with_capacity(count);
    for line in lines {
        let line = line?;
        if words.len() == count {
            break;
        }
        if !line.is_empty() {
            words.push(line);
        }
    }
    if words.len() == count { Ok(words) } else { Err("the word list is too short".into()) }
}

/// Keys and values of some operations, one after the other in memory.
#[derive(Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where one key and value are.
struct Place {
    start: usize,
    middle: usize,
    end: usize,
    index: u64,
}

/// One operation: a key, perhaps with its value, and which record it is.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) index: u64,
}

/// Some operations in a row.
pub(crate) struct Items<'a> {
    bytes: &'a [u8],
    places: &'a [Place],
}

impl Block {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    pub(crate) fn add(&mut self, data: &Data, index: u64, version: u64, has_value: bool) {
        let start = self.bytes.len();
        data.append_key(index, &mut self.bytes);
        let middle = self.bytes.len();
        if has_value {
            data.append_value(index, version, &mut self.bytes);
        }
        self.places.push(Place { start, middle, end: self.bytes.len(), index });
    }

    pub(crate) fn all(&self) -> Items<'_> {
        Items { bytes: &self.bytes, places: &self.places }
    }

    pub(crate) fn groups(&self, count: usize) -> impl Iterator<Item = Items<'_>> {
        self.places.chunks(count).map(|places| Items { bytes: &self.bytes, places })
    }

    pub(crate) fn checksum(&self) -> u64 {
        let both =
            |item: Item<'_>| digest(item.key).wrapping_add(digest(item.value).wrapping_mul(3));
        self.all().items().map(both).fold(0, u64::wrapping_add)
    }
}

impl<'a> Items<'a> {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let bytes = self.bytes;
        self.places.iter().map(move |place| Item {
            key: &bytes[place.start..place.middle],
            value: &bytes[place.middle..place.end],
            index: place.index,
        })
    }
}
