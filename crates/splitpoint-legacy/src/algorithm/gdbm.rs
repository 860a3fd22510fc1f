//! gdbm: extendible hashing, a directory of buckets that doubles.
//!
//! ```text
//! hash --> its top bits --> directory --> bucket --> record: key and value
//!                           0 0 --> L00   depth 2
//!                           0 1 --> L01   depth 2
//!                           1 0 --> L1    depth 1
//!                           1 1 --> L1    the same bucket: a copy
//! ```
//!
//! A bucket of depth `d` is named by all entries of the directory that agree in their first `d`
//! bits. If it is full it is split by one more bit. If its depth is already that of the directory,
//! the directory doubles first, which copies every entry.
//!
//! A record is a run of bytes of any length, and takes no room in its bucket except 24 bytes. The
//! file that [`Algorithm::files`] returns is one of gdbm 1.23 on 64-bit little-endian machines,
//! with the same content; where records lie in it may differ from what the library does.
//!
//! # What differs from the original
//!
//! - The directory is at most 2^24 entries, 128 MiB, where the library's is 2^27.
//! - A key that no such directory can place is refused, and the table stays usable.
//!
//! # Source
//!
//! Fagin and others, "Extendible hashing", TODS 1979, by Seltzer and Yigit 1991, section "gdbm"; the
//! files of GNU gdbm 1.23.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use splitpoint::hash::{self, CharSign};

use super::{Algorithm, Counts, Footprint, Refusal, StoreMode, Stored, Visit};

/// Bits of a hash.
const HASH_BITS: u32 = 31;

/// Most bits of a directory.
pub const DIRECTORY_BITS_MAX: u32 = 24;

/// Bytes of an entry of the directory in the file.
const ADDRESS_BYTES: u64 = 8;

/// Bytes of an element of a bucket in the file.
const ELEMENT_BYTES: usize = 24;

/// Where the elements of a bucket start in the file.
const ELEMENTS_AT: usize = 112;

/// Smallest block.
pub const BLOCK_BYTES_MIN: usize = 512;

/// Largest block.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Bytes by default.
pub const BLOCK_BYTES_DEFAULT: usize = 4096;

/// Lines of a drawing.
const LINES_MAX: usize = 64;

/// The parameters of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a block, which is also a bucket: 512 to 2^20, rounded up to a power of two.
    pub block_bytes: usize,
    /// Bits of the first directory. gdbm fills a block with it from the start, which is `None`; the
    /// paper describes 0.
    pub directory_bits: Option<u32>,
    /// Sign of `char` on the machine, for the hash.
    pub sign: CharSign,
}

impl Default for Options {
    /// Returns those of gdbm on x86-64.
    fn default() -> Self {
        let block_bytes = BLOCK_BYTES_DEFAULT;
        Self { block_bytes, directory_bits: None, sign: CharSign::Signed }
    }
}

/// A table of gdbm.
#[derive(Debug)]
pub struct Gdbm {
    sign: CharSign,
    block_bytes: usize,
    /// Elements of a bucket.
    capacity: usize,
    depth: u32,
    /// Number of the bucket of each entry.
    directory: Vec<u32>,
    directory_at: u64,
    buckets: Vec<Bucket>,
    /// The bytes of the file. Directory and buckets are written into them by `files`.
    image: Vec<u8>,
    /// Unused areas: size and offset.
    free: BTreeSet<(u64, u64)>,
    record_count: u64,
    counts: Counts,
}

#[derive(Debug)]
struct Bucket {
    depth: u32,
    at: u64,
    /// By home slot, with linear probing.
    slots: Vec<Option<Element>>,
    count: usize,
}

/// A record as its bucket has it.
#[derive(Clone, Copy, Debug)]
struct Element {
    hash: u32,
    /// The first bytes of the key, zeros behind.
    key_start: [u8; 4],
    at: u64,
    key_bytes: u32,
    value_bytes: u32,
}

impl Element {
    fn record_bytes(&self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }
}

impl Bucket {
    fn new(capacity: usize, depth: u32, at: u64) -> Self {
        Self { depth, at, slots: vec![None; capacity], count: 0 }
    }

    fn put(&mut self, element: Element) {
        let capacity = self.slots.len();
        let home = element.hash as usize % capacity;
        let free = (0..capacity).map(|step| (home + step) % capacity);
        let free = free.into_iter().find(|&slot| self.slots[slot].is_none());
        self.slots[free.expect("the bucket has a free slot")] = Some(element);
        self.count += 1;
    }

    /// Empties a slot, and moves back the elements behind it that probing would miss.
    fn remove(&mut self, slot: usize) {
        let capacity = self.slots.len();
        self.slots[slot] = None;
        self.count -= 1;
        let mut at = (slot + 1) % capacity;
        while let Some(element) = self.slots[at].take() {
            self.count -= 1;
            self.put(element);
            at = (at + 1) % capacity;
            if at == slot {
                break;
            }
        }
    }
}

/// Refuses a key or a value whose length the file has no room for.
fn check_record(key_bytes: u64, value_bytes: u64) -> Result<(), Refusal> {
    const MOST: u64 = i32::MAX as u64;
    let longer = key_bytes.max(value_bytes);
    if longer > MOST {
        let reason = format!("{longer} bytes are more than {MOST}, the most of a key or a value");
        return Err(splitpoint::Error::Invalid { what: "record", reason }.into());
    }
    Ok(())
}

fn key_start(key: &[u8]) -> [u8; 4] {
    let mut start = [0; 4];
    let bytes = key.len().min(start.len());
    start[..bytes].copy_from_slice(&key[..bytes]);
    start
}

impl Gdbm {
    /// Returns an empty table.
    ///
    /// # Panics
    ///
    /// If [`Options::block_bytes`] or [`Options::directory_bits`] is out of range.
    pub fn new(options: Options) -> Self {
        let is_block = (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&options.block_bytes);
        assert!(is_block, "blocks of 512 to 2^20 bytes");
        let block_bytes = options.block_bytes.next_power_of_two();
        // A directory that fills a block.
        let block_bits = block_bytes.trailing_zeros() - ADDRESS_BYTES.trailing_zeros();
        let depth = options.directory_bits.unwrap_or(block_bits);
        assert!(depth <= block_bits, "the first directory is in one block");
        let capacity = (block_bytes - ELEMENTS_AT) / ELEMENT_BYTES;
        let block = block_bytes as u64;
        Self {
            sign: options.sign,
            block_bytes,
            capacity,
            depth,
            directory: vec![0; 1 << depth],
            directory_at: block,
            buckets: vec![Bucket::new(capacity, 0, 2 * block)],
            image: vec![0; 4 * block_bytes],
            free: BTreeSet::from([(block, 3 * block)]),
            record_count: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the hash of `key`, 31 bits.
    pub fn hash(&self, key: &[u8]) -> u32 {
        hash::gdbm(key, self.sign)
    }

    /// Returns the number of bits that lead into the directory.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the bucket of each entry of the directory, by its number.
    pub fn directory(&self) -> &[u32] {
        &self.directory
    }

    /// Returns the depth of bucket `number`.
    pub fn bucket_depth(&self, number: u32) -> u32 {
        self.buckets[number as usize].depth
    }

    /// Returns how many elements a bucket has room for.
    pub fn bucket_capacity(&self) -> usize {
        self.capacity
    }

    fn entry_of(&self, hash: u32) -> usize {
        top_bits(hash, self.depth) as usize
    }

    fn bucket_of(&self, hash: u32) -> usize {
        self.directory[self.entry_of(hash)] as usize
    }

    /// Looks for `key` in its bucket, and returns the slot of its element.
    fn find(&mut self, hash: u32, key: &[u8]) -> Option<usize> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        self.counts.probes += 1;
        let home = hash as usize % self.capacity;
        for step in 0..self.capacity {
            let slot = (home + step) % self.capacity;
            let element = bucket.slots[slot].as_ref()?;
            // The record is read only if hash, length and first bytes agree.
            if element.hash != hash
                || element.key_bytes as usize != key.len()
                || element.key_start != key_start(key)
            {
                continue;
            }
            self.counts.probes += 1;
            self.counts.comparisons += 1;
            if self.image[element.at as usize..][..key.len()] == *key {
                return Some(slot);
            }
        }
        None
    }

    /// Takes an area of `bytes`: of the unused ones the smallest that suffices, or new blocks.
    fn allocate(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.max(1);
        let unused = self.free.range((bytes, 0)..).next().copied();
        let (size, at) = if let Some(area) = unused {
            self.free.remove(&area);
            area
        } else {
            let size = bytes.next_multiple_of(self.block_bytes as u64);
            let at = self.image.len() as u64;
            self.image.resize((at + size) as usize, 0);
            (size, at)
        };
        self.release(at + bytes, size - bytes);
        at
    }

    fn release(&mut self, at: u64, bytes: u64) {
        // What is too small for any use is lost, as in the original.
        const BYTES_MIN: u64 = 4;
        if bytes > BYTES_MIN {
            self.free.insert((bytes, at));
        }
    }

    /// Returns an error if the keys of a full bucket and `hash` cannot be told apart.
    fn check_room(&self, hash: u32) -> Result<(), Refusal> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        let path = top_bits(hash, DIRECTORY_BITS_MAX);
        let elements = bucket.slots.iter().flatten();
        let same = elements.filter(|element| top_bits(element.hash, DIRECTORY_BITS_MAX) == path);
        let key_count = 1 + same.count() as u64;
        if key_count > self.capacity as u64 {
            return Err(Refusal::DirectoryLimit { key_count, depth_max: DIRECTORY_BITS_MAX });
        }
        Ok(())
    }

    /// Splits the bucket of `hash` by one more bit.
    fn split(&mut self, hash: u32) {
        let number = self.bucket_of(hash);
        let depth = self.buckets[number].depth + 1;
        if depth > self.depth {
            self.double_directory();
        }
        let at = self.allocate(self.block_bytes as u64);
        let first = &mut self.buckets[number];
        let elements = std::mem::replace(&mut first.slots, vec![None; self.capacity]);
        (first.depth, first.count) = (depth, 0);
        let mut second = Bucket::new(self.capacity, depth, at);
        for element in elements.into_iter().flatten() {
            let is_second = top_bits(element.hash, depth) & 1 == 1;
            if is_second { second.put(element) } else { self.buckets[number].put(element) }
        }
        self.buckets.push(second);
        let new = (self.buckets.len() - 1) as u32;
        // The upper half of the entries of the old bucket.
        let span = 1_usize << (self.depth - depth);
        let start = ((top_bits(hash, depth) | 1) as usize) << (self.depth - depth);
        self.directory[start..start + span].fill(new);
        self.counts.overflow_splits += 1;
        self.counts.page_writes += 2;
    }

    fn double_directory(&mut self) {
        self.counts.copied_entries += self.directory.len() as u64;
        self.directory = self.directory.iter().flat_map(|&bucket| [bucket, bucket]).collect();
        self.depth += 1;
        let bytes = self.directory.len() as u64 * ADDRESS_BYTES;
        let old_bytes = (bytes / 2).max(self.block_bytes as u64);
        if bytes > self.block_bytes as u64 {
            let old = self.directory_at;
            self.directory_at = self.allocate(bytes);
            self.release(old, old_bytes);
        }
        self.counts.doublings += 1;
        self.counts.page_writes += bytes.div_ceil(self.block_bytes as u64);
    }

    fn write_record(&mut self, hash: u32, key: &[u8], value: &[u8]) -> Element {
        let at = self.allocate((key.len() + value.len()) as u64);
        let start = at as usize;
        self.image[start..start + key.len()].copy_from_slice(key);
        self.image[start + key.len()..][..value.len()].copy_from_slice(value);
        self.counts.page_writes += 2;
        let (key_bytes, value_bytes) = (key.len() as u32, value.len() as u32);
        Element { hash, key_start: key_start(key), at, key_bytes, value_bytes }
    }

    fn record(&self, element: &Element) -> (&[u8], &[u8]) {
        let record = &self.image[element.at as usize..][..element.record_bytes() as usize];
        record.split_at(element.key_bytes as usize)
    }

    /// Returns the entries of the directory that name another bucket than the one before.
    fn distinct(&self) -> impl Iterator<Item = (usize, u32)> {
        let is_first =
            |entry: &usize| *entry == 0 || self.directory[*entry] != self.directory[*entry - 1];
        (0..self.directory.len()).filter(is_first).map(|entry| (entry, self.directory[entry]))
    }

    fn file(&self) -> Vec<u8> {
        let mut file = self.image.clone();
        for (entry, &bucket) in self.directory.iter().enumerate() {
            let at = self.directory_at as usize + entry * ADDRESS_BYTES as usize;
            file[at..at + 8].copy_from_slice(&self.buckets[bucket as usize].at.to_le_bytes());
        }
        for bucket in &self.buckets {
            self.write_bucket(&mut file[bucket.at as usize..][..self.block_bytes], bucket);
        }
        self.write_header(&mut file);
        file
    }

    fn write_bucket(&self, block: &mut [u8], bucket: &Bucket) {
        block.fill(0);
        block[104..108].copy_from_slice(&bucket.depth.to_le_bytes());
        block[108..112].copy_from_slice(&(bucket.count as u32).to_le_bytes());
        for (slot, at) in bucket.slots.iter().zip((ELEMENTS_AT..).step_by(ELEMENT_BYTES)) {
            let element = &mut block[at..at + ELEMENT_BYTES];
            let Some(it) = slot else {
                element[..4].fill(0xff);
                continue;
            };
            element[..4].copy_from_slice(&it.hash.to_le_bytes());
            element[4..8].copy_from_slice(&it.key_start);
            element[8..16].copy_from_slice(&it.at.to_le_bytes());
            element[16..20].copy_from_slice(&it.key_bytes.to_le_bytes());
            element[20..24].copy_from_slice(&it.value_bytes.to_le_bytes());
        }
        assert!(bucket.slots.len() == self.capacity, "a bucket has all its slots");
    }

    /// Writes the header with as many of the largest unused areas as it has room for.
    fn write_header(&self, file: &mut [u8]) {
        const MAGIC: u32 = 0x1357_9acf;
        const AREAS_AT: usize = 56;
        const AREA_BYTES: usize = 16;
        let directory_bytes = self.directory.len() as u64 * ADDRESS_BYTES;
        let file_bytes = file.len() as u64;
        let block = &mut file[..self.block_bytes];
        block.fill(0);
        let numbers = [MAGIC, self.block_bytes as u32];
        for (number, at) in numbers.into_iter().zip((0..).step_by(4)) {
            block[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        block[8..16].copy_from_slice(&self.directory_at.to_le_bytes());
        let numbers =
            [directory_bytes as u32, self.depth, self.block_bytes as u32, self.capacity as u32];
        for (number, at) in numbers.into_iter().zip((16..).step_by(4)) {
            block[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        block[32..40].copy_from_slice(&file_bytes.to_le_bytes());
        let room = (self.block_bytes - AREAS_AT) / AREA_BYTES;
        let mut areas: Vec<(u64, u64)> = self.free.iter().rev().take(room).copied().collect();
        areas.reverse();
        block[40..44].copy_from_slice(&(room as u32).to_le_bytes());
        block[44..48].copy_from_slice(&(areas.len() as u32).to_le_bytes());
        for ((size, offset), at) in areas.into_iter().zip((AREAS_AT..).step_by(AREA_BYTES)) {
            block[at..at + 4].copy_from_slice(&(size as u32).to_le_bytes());
            block[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
        }
    }
}

/// Returns the `bits` highest bits of a hash.
fn top_bits(hash: u32, bits: u32) -> u32 {
    hash >> (HASH_BITS - bits)
}

impl Algorithm for Gdbm {
    fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<Stored, Refusal> {
        let hash = self.hash(key);
        if let Some(slot) = self.find(hash, key) {
            if mode == StoreMode::Insert {
                return Ok(Stored::Kept);
            }
            check_record(key.len() as u64, value.len() as u64)?;
            let number = self.bucket_of(hash);
            let old = self.buckets[number].slots[slot].expect("the key was found there");
            self.release(old.at, old.record_bytes());
            let new = self.write_record(hash, key, value);
            self.buckets[number].slots[slot] = Some(new);
            return Ok(Stored::Replaced);
        }
        check_record(key.len() as u64, value.len() as u64)?;
        if self.buckets[self.bucket_of(hash)].count == self.capacity {
            self.check_room(hash)?;
        }
        while self.buckets[self.bucket_of(hash)].count == self.capacity {
            self.split(hash);
        }
        let element = self.write_record(hash, key, value);
        let number = self.bucket_of(hash);
        self.buckets[number].put(element);
        self.record_count += 1;
        Ok(Stored::New)
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
        let hash = self.hash(key);
        let Some(slot) = self.find(hash, key) else { return Ok(None) };
        let element = self.buckets[self.bucket_of(hash)].slots[slot].as_ref();
        Ok(element.map(|element| self.record(element).1.into()))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Refusal> {
        let hash = self.hash(key);
        let Some(slot) = self.find(hash, key) else { return Ok(false) };
        let number = self.bucket_of(hash);
        if let Some(element) = self.buckets[number].slots[slot] {
            self.release(element.at, element.record_bytes());
        }
        self.buckets[number].remove(slot);
        self.counts.page_writes += 1;
        self.record_count -= 1;
        Ok(true)
    }

    fn walk(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        let mut probes = 0;
        'walk: for (_, number) in self.distinct() {
            probes += 1;
            for element in self.buckets[number as usize].slots.iter().flatten() {
                probes += 1;
                let (key, value) = self.record(element);
                if visit(key, value).is_break() {
                    break 'walk;
                }
            }
        }
        self.counts.probes += probes;
        Ok(())
    }

    fn len(&self) -> u64 {
        self.record_count
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn footprint(&self) -> Footprint {
        let elements = self.buckets.len() * self.capacity;
        Footprint {
            page_bytes: self.block_bytes as u64,
            place_count: self.buckets.len() as u64,
            fill: self.record_count as f64 / elements as f64,
            index_bytes: self.directory.len() as u64 * ADDRESS_BYTES,
            index_copies: (self.directory.len() - self.buckets.len()) as u64,
            depth: self.buckets.iter().map(|bucket| bucket.depth).max().unwrap_or(0),
            file_bytes: self.image.len() as u64,
            hole_bytes: 0,
        }
    }

    fn show(&self) -> String {
        let mut out = format!(
            "directory of depth {}: {} entries for {} buckets\n",
            self.depth,
            self.directory.len(),
            self.buckets.len()
        );
        for (entry, number) in self.distinct().take(LINES_MAX) {
            let bucket = &self.buckets[number as usize];
            let span = 1_usize << (self.depth - bucket.depth);
            let path = entry >> (self.depth - bucket.depth);
            let path = match bucket.depth as usize {
                0 => String::new(),
                width => format!("{path:0width$b}"),
            };
            let entries = if span == 1 {
                entry.to_string()
            } else {
                format!("{entry} to {}", entry + span - 1)
            };
            let _ = writeln!(
                out,
                "  entry {entries}: L{path}, depth {}, {} of {} elements",
                bucket.depth, bucket.count, self.capacity
            );
        }
        super::cut(out, self.buckets.len(), LINES_MAX)
    }

    fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(".gdbm", self.file())]
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reason;
    use super::*;

    fn small(directory_bits: Option<u32>) -> Gdbm {
        Gdbm::new(Options { block_bytes: 512, directory_bits, ..Options::default() })
    }

    /// Keys whose hashes start with these bits.
    fn keys_of(bits: u32, depth: u32) -> impl Iterator<Item = Vec<u8>> {
        let numbers = (0_u32..1 << 24).map(|number| number.to_string().into_bytes());
        numbers.filter(move |key| top_bits(hash::gdbm(key, CharSign::Signed), depth) == bits)
    }

    /// The directory names a bucket of depth d exactly 2^(n - d) times.
    #[test]
    fn a_bucket_has_as_many_entries_as_its_depth_leaves() {
        let mut table = small(Some(0));
        for number in 0..1000_u32 {
            table.store(&number.to_le_bytes(), b"v", StoreMode::Insert).unwrap();
        }
        for number in 0..table.buckets.len() as u32 {
            let entries = table.directory.iter().filter(|&&bucket| bucket == number).count();
            assert_eq!(entries, 1 << (table.depth - table.bucket_depth(number)));
        }
        assert!(table.counts().doublings as u32 == table.depth && table.depth > 5);
    }

    #[test]
    fn the_directory_doubles_only_if_the_bucket_is_as_deep() {
        let mut table = small(Some(0));
        let full = table.bucket_capacity();
        for key in keys_of(0, 1).take(full).chain(keys_of(1, 1).take(1)) {
            table.store(&key, b"", StoreMode::Insert).unwrap();
        }
        assert_eq!((table.depth(), table.directory()), (1, &[0, 1][..]));
        for key in keys_of(0, 1).take(full + 1) {
            table.store(&key, b"", StoreMode::Insert).unwrap();
        }
        assert_eq!((table.depth(), table.directory().to_vec()), (2, vec![0, 2, 1, 1]));
        assert_eq!(table.footprint().index_copies, 1);
        // L1 splits without a doubling.
        for key in keys_of(1, 1).take(full + 1) {
            table.store(&key, b"", StoreMode::Insert).unwrap();
        }
        assert_eq!((table.depth(), table.counts().doublings), (2, 2));
    }

    /// The file has lengths of 32 bits with a sign.
    #[test]
    fn a_length_that_the_file_cannot_have_is_refused() {
        assert!(check_record(i32::MAX as u64, i32::MAX as u64).is_ok());
        for (key_bytes, value_bytes) in [(1 << 31, 0), (0, 1 << 31)] {
            let refusal = check_record(key_bytes, value_bytes).unwrap_err();
            assert_eq!(refusal.reason(), Reason::Failed);
        }
    }

    #[test]
    fn keys_that_no_directory_tells_apart_are_refused_and_the_table_stays_usable() {
        let mut table = small(None);
        let twins = super::super::twins::of(40);
        let refusals: Vec<Refusal> = twins
            .iter()
            .filter_map(|key| table.store(key, b"v", StoreMode::Insert).err())
            .collect();
        assert_eq!(refusals.len(), 40 - table.bucket_capacity());
        assert_eq!(refusals[0].reason(), Reason::DirectoryLimit);
        assert_eq!(
            refusals[0].to_string(),
            "the directory cannot grow: 17 keys agree in the 24 bits of the hash that it can use"
        );
        assert_eq!((table.len(), table.counts().splits()), (16, 0));
        table.store(b"other", b"v", StoreMode::Insert).unwrap();
        assert!(table.fetch(&twins[3]).unwrap().is_some());
    }
}
