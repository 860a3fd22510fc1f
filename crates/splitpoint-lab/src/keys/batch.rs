//! Keys, one after another in memory.

use std::ops::Range;

use super::ReadError;

/// Keys in memory, in the order in which they came.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::keys::KeyBatch;
///
/// let mut batch = KeyBatch::default();
/// batch.push(b"one");
/// batch.push(b"");
/// assert_eq!(batch.iter().collect::<Vec<_>>(), [&b"one"[..], b""]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBatch {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

/// Some of the keys of a batch, in order.
#[derive(Clone, Copy, Debug)]
pub struct KeySlice<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
    /// Where the first of the keys starts.
    start: usize,
}

impl KeyBatch {
    /// Adds a key at the end.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Makes room for `key_count` more keys of `key_bytes` bytes together, so that adding them
    /// allocates nothing.
    ///
    /// # Errors
    ///
    /// [`ReadError::NoMemory`]; the keys are unchanged.
    pub fn reserve(&mut self, key_count: usize, key_bytes: usize) -> Result<(), ReadError> {
        let bytes = self.bytes.try_reserve(key_bytes);
        bytes.and_then(|()| self.ends.try_reserve(key_count)).map_err(|_| {
            let needed_bytes =
                self.memory_bytes() + (key_bytes + key_count * size_of::<usize>()) as u64;
            ReadError::NoMemory { needed_bytes }
        })
    }

    /// Adds a key with the bits of `mask` flipped in the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If the key has no such byte.
    pub(crate) fn push_flipped(&mut self, key: &[u8], offset: usize, mask: u8) {
        let start = self.bytes.len();
        self.push(key);
        self.bytes[start..][offset] ^= mask;
    }

    /// Adds all keys of another batch at the end.
    pub(super) fn append(&mut self, other: &Self) -> Result<(), ReadError> {
        self.reserve(other.len(), other.bytes.len())?;
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
        Ok(())
    }

    /// Gives memory back that no key needs.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Adds the key that `write` appends to its argument, or none if `write` fails.
    pub(super) fn push_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        let written = write(&mut self.bytes);
        match written {
            Ok(()) => self.ends.push(self.bytes.len()),
            Err(_) => self.bytes.truncate(start),
        }
        written
    }

    /// Removes the keys whose indexes `is_kept` refuses.
    pub(super) fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        let (mut kept, mut kept_bytes, mut start) = (0, 0, 0);
        for index in 0..self.ends.len() {
            let end = self.ends[index];
            if is_kept(index) {
                if kept < index {
                    self.bytes.copy_within(start..end, kept_bytes);
                }
                kept_bytes += end - start;
                self.ends[kept] = kept_bytes;
                kept += 1;
            }
            start = end;
        }
        self.ends.truncate(kept);
        self.bytes.truncate(kept_bytes);
    }

    /// Removes all keys but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of all keys together.
    pub fn key_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the memory that the batch uses, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()) as u64
    }

    /// Returns the key at `index`.
    ///
    /// # Panics
    ///
    /// If there is no such key.
    pub fn key(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// Returns the keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.slice(0..self.len()).iter()
    }

    /// Returns the keys whose indexes are in `range`.
    ///
    /// # Panics
    ///
    /// If the range ends after the last key.
    pub fn slice(&self, range: Range<usize>) -> KeySlice<'_> {
        let start = if range.start == 0 { 0 } else { self.ends[range.start - 1] };
        KeySlice { bytes: &self.bytes, ends: &self.ends[range], start }
    }
}

impl<'a> KeySlice<'a> {
    /// Returns the number of keys.
    pub fn len(self) -> usize {
        self.ends.len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the keys in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let Self { bytes, ends, start } = self;
        let mut start = start;
        ends.iter().map(move |&end| {
            let key = &bytes[start..end];
            start = end;
            key
        })
    }

    /// Returns part `index` of `count` parts whose lengths differ by one at most.
    pub(crate) fn part(self, index: usize, count: usize) -> Self {
        let at = |part: usize| self.len() * part / count;
        let (from, to) = (at(index), at(index + 1));
        let start = if from == 0 { self.start } else { self.ends[from - 1] };
        Self { ends: &self.ends[from..to], start, ..self }
    }
}
