//! `View`: the read mapping of the whole file, and the records in it.
//!
//! # Invariants
//!
//! - Slices are created only of bytes before the end of the file, which are mapped.
//! - No thread stores to the bytes of a slice. A published record never changes; neither does the
//!   header of a segment that a record, a superblock or another header names, nor a checkpoint that
//!   a superblock names. Their granules are not freed while a reader may use them. A malicious file
//!   can break this: see `ARCHITECTURE.md`, "Modules with `unsafe`".

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::{Addr, CheckpointName, GRANULE_BYTES, SegmentHeader};
use crate::growing::Growing;
use crate::log::record::{Pair, Record, RecordHeader, RecordKind, ShortPut};
use crate::residency::Residency;
use crate::storage::{Storage, prefetch};

/// Largest record, in words, that is copied to the stack instead of the heap.
const COPIED_WORDS_FEW: usize = 32;

/// The bytes of a file that this handle may read.
#[derive(Debug)]
pub(crate) struct View {
    /// The mapping, and the size of the file.
    mapping: Growing<u8>,
    residency: OnceLock<Residency>,
    /// Keeps the mapping.
    storage: Arc<dyn Storage>,
}

impl View {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        let mapping = Growing::new(storage.view().base, storage.file_bytes());
        Self { mapping, residency: OnceLock::new(), storage }
    }

    /// Bounds the resident bytes, once.
    pub(crate) fn set_cache_bytes(&self, cache_bytes: u64) {
        self.residency.get_or_init(|| Residency::new(cache_bytes));
    }

    /// Publishes a larger size, and the base of the mapping, which may have moved.
    pub(super) fn grow(&self, file_bytes: u64) {
        self.mapping.grow(self.storage.view().base, file_bytes);
    }

    /// Publishes the size of a file that another process changes.
    pub(super) fn see(&self, file_bytes: u64) {
        self.mapping.set(self.storage.view().base, file_bytes);
    }

    /// Publishes a smaller size, unless the size is smaller already.
    pub(super) fn cut(&self, file_bytes: u64) {
        self.mapping.cut(file_bytes);
    }

    #[inline]
    fn touch(&self, offset: u64, bytes: u64) {
        if let Some(residency) = self.residency.get() {
            residency.touch(offset, bytes, |at, bytes| self.storage.drop_resident(at, bytes));
        }
    }

    /// Returns the size of the part of the file that this handle may read, in bytes.
    #[inline]
    pub(crate) fn file_bytes(&self) -> u64 {
        self.mapping.count()
    }

    /// Returns bytes of the file.
    ///
    /// # Safety
    ///
    /// No thread stores to them while they are borrowed.
    #[inline]
    unsafe fn bytes(&self, what: &'static str, offset: u64, bytes: u64) -> Result<&[u8]> {
        let end = self.file_bytes();
        if offset.checked_add(bytes).is_none_or(|needed| needed > end) {
            return Err(outside(what, offset, end, bytes));
        }
        self.touch(offset, bytes);
        // SAFETY: the range ends before the end of the file, which was loaded before the base, so
        // the mapping at that base covers it (see `growing`).
        let start = unsafe { self.mapping.base().add(offset as usize) };
        // SAFETY: the range is mapped, as above; the caller promised that no thread stores to it
        // while it is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(start, bytes as usize) })
    }

    /// Returns bytes of log segments or big ones, before the end of the log.
    pub(crate) fn log_bytes(&self, range: Range<u64>) -> Result<&[u8]> {
        // SAFETY: the appender, the only one that stores to log segments, never stores to bytes
        // before the end of the log again; the caller keeps their space from being reused, by a
        // pin, a horizon or a lock.
        unsafe { self.bytes("log segment", range.start, range.end.saturating_sub(range.start)) }
    }

    /// Returns `bytes` of the checkpoint `name` from `at` on.
    pub(crate) fn checkpoint_bytes(
        &self,
        what: &'static str,
        name: CheckpointName,
        at: u64,
        bytes: u64,
    ) -> Result<&[u8]> {
        // SAFETY: `name` is from a superblock, which names a checkpoint only when it is complete;
        // its segment is not stored to again before no superblock names it.
        unsafe { self.bytes(what, name.offset + at, bytes) }
    }

    /// Returns the record at `addr`, which a slot or another record names. Its bytes are untrusted,
    /// but lie within the file.
    #[inline]
    pub(crate) fn record(&self, addr: Addr) -> Result<Record<'_>> {
        self.record_before(addr.offset(), self.file_bytes())
    }

    /// Returns the record at `offset`, which must end at or before `end`.
    #[inline]
    pub(crate) fn record_before(&self, offset: u64, end: u64) -> Result<Record<'_>> {
        // SAFETY: here and below: a record that a slot or another record names is published, and
        // the writer never changes a published record; the caller keeps its space from being
        // reused, by a pin, a horizon or a lock.
        let first = unsafe { self.bytes("record address", offset, 8) }?;
        let head_bytes = RecordHeader::bytes_of_first(crate::format::u64_at(first, 0));
        let head = if head_bytes == 8 {
            first
        } else {
            // SAFETY: as above.
            unsafe { self.bytes("record header", offset, head_bytes) }?
        };
        let header = RecordHeader::decode(head, end.saturating_sub(offset), offset)?;
        // SAFETY: as above.
        let bytes = unsafe { self.bytes("record size", offset, header.record_bytes()) }?;
        Ok(Record { header, bytes, offset })
    }

    /// Returns the key and value of the record that a slot names.
    #[inline(always)]
    pub(crate) fn pair(&self, addr: Addr) -> Result<Pair<'_>> {
        match self.short_pair_before(addr.offset(), u64::MAX) {
            Some((pair, _)) => Ok(pair),
            None => self.long_pair(addr),
        }
    }

    /// Returns the key and value of the record at `offset`, and the size of the record, if it is
    /// short and ends before `end` and the end of the file.
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "offsets of records are multiples of 8")]
    pub(crate) fn short_pair_before(&self, offset: u64, end: u64) -> Option<(Pair<'_>, u64)> {
        let end = end.min(self.file_bytes());
        if offset + 8 > end {
            return None;
        }
        self.touch(offset, 8);
        let at = self.mapping.base().cast_const().wrapping_add(offset as usize);
        // SAFETY: the word ends before the end of the file, which was loaded before the base, so it
        // is mapped; offsets of records are multiples of 8, so it is aligned. A malicious slot may
        // lead to bytes that the writer is storing, so this first load is atomic.
        let first = unsafe { &*at.cast::<AtomicU64>() }.load(Ordering::Relaxed);
        let short = ShortPut::of_first(u64::from_le(first))?;
        let record_bytes = short.record_bytes();
        if offset + record_bytes > end {
            return None;
        }
        let at = at.wrapping_add(short.header_bytes as usize);
        // SAFETY: the record ends before the end of the file, so it is mapped; the writer never
        // changes a published record.
        let key = unsafe { std::slice::from_raw_parts(at, short.key_bytes as usize) };
        let at = at.wrapping_add(key.len());
        // SAFETY: as above.
        let value = unsafe { std::slice::from_raw_parts(at, short.value_bytes as usize) };
        Some((Pair { key, value }, record_bytes))
    }

    /// Calls `take` with a copy of the record that a slot names, although its bytes may be overwritten
    /// meanwhile: what was copied counts only if the caller finds afterwards that nobody has changed the file.
    /// `None` if it is not short or not before the end of the file.
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "offsets of records are multiples of 8")]
    pub(crate) fn with_copy_of_pair<T>(
        &self,
        addr: Addr,
        take: impl FnOnce(Pair<'_>) -> T,
    ) -> Option<T> {
        let (offset, end) = (addr.offset(), self.file_bytes());
        if offset + 8 > end {
            return None;
        }
        self.touch(offset, 8);
        let at = self.mapping.base().cast_const().wrapping_add(offset as usize).cast::<AtomicU64>();
        let word = |i: usize| {
            // SAFETY: the word ends before the end of the file, which was loaded before the base,
            // so it is mapped; offsets of records are multiples of 8, so it is aligned. Another
            // process may store to it, so the load is atomic.
            unsafe { &*at.wrapping_add(i) }.load(Ordering::Relaxed)
        };
        let short = ShortPut::of_first(u64::from_le(word(0)))?;
        let record_bytes = short.record_bytes();
        if offset + record_bytes > end {
            return None;
        }
        let word_count = (record_bytes / 8) as usize;
        let mut few = [[0; 8]; COPIED_WORDS_FEW];
        let mut many = Vec::new();
        let words = if let Some(words) = few.get_mut(..word_count) {
            words
        } else {
            many.resize(word_count, [0; 8]);
            &mut many[..]
        };
        for (i, copied) in words.iter_mut().enumerate() {
            *copied = u64::from_le(word(i)).to_le_bytes();
        }
        let bytes = &words.as_flattened()[short.header_bytes as usize..];
        let (key, rest) = bytes.split_at(short.key_bytes as usize);
        Some(take(Pair { key, value: &rest[..short.value_bytes as usize] }))
    }

    #[cold]
    fn long_pair(&self, addr: Addr) -> Result<Pair<'_>> {
        let record = self.version(addr)?;
        Ok(Pair { key: record.key(), value: record.value() })
    }

    /// Returns the record that a slot or the `prev` of another names: one with a key and a value.
    pub(crate) fn version(&self, addr: Addr) -> Result<Record<'_>> {
        let record = self.record(addr)?;
        if matches!(record.header.kind, RecordKind::Put | RecordKind::Big) {
            return Ok(record);
        }
        Err(Error::Corrupt {
            what: "record kind",
            offset: record.offset + 4,
            expected: RecordKind::Put as u64,
            found: record.header.kind as u64,
        })
    }

    /// Returns the header of the segment at `offset`.
    pub(crate) fn segment(&self, offset: u64) -> Result<SegmentHeader> {
        if offset < crate::format::HEADER_BYTES || !offset.is_multiple_of(GRANULE_BYTES) {
            let expected = offset / GRANULE_BYTES * GRANULE_BYTES;
            return Err(Error::Corrupt { what: "segment offset", offset, expected, found: offset });
        }
        // SAFETY: the writer writes a segment header before anything names the segment, and not
        // again while something does.
        let bytes = unsafe { self.bytes("segment offset", offset, SegmentHeader::BYTES) }?;
        SegmentHeader::decode(bytes, offset, self.file_bytes())
    }

    /// Prefetches the first cache line of a record.
    #[inline]
    pub(crate) fn prefetch_record(&self, addr: Addr) {
        prefetch(self.mapping.base().wrapping_add(addr.offset() as usize));
    }

    /// Prefetches the first cache lines of a range of the log.
    #[inline]
    pub(crate) fn prefetch_range(&self, offset: u64, bytes: u64) {
        let at = self.mapping.base().wrapping_add(offset as usize);
        prefetch(at);
        if bytes > 64 {
            prefetch(at.wrapping_add(64));
        }
    }
}

#[cold]
fn outside(what: &'static str, offset: u64, end: u64, bytes: u64) -> Error {
    Error::Corrupt { what, offset, expected: end, found: offset.saturating_add(bytes) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    /// Reads a file of 48 MiB at random under a bound of 8 MiB, then asks the kernel how much of
    /// it this process has mapped.
    #[test]
    #[cfg(not(miri))]
    fn cache_bytes_bounds_what_the_kernel_has_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bounded.spt");
        let options = crate::Options::new().cache_bytes(8 << 20);
        let db = options.open(&path).unwrap();
        let value = vec![7; 1000];
        for i in 0..48_000_u64 {
            db.put(&i.to_le_bytes(), &value).unwrap();
        }
        db.close().unwrap();
        let db = options.open(&path).unwrap();
        for i in 0..48_000_u64 {
            let key = (i * 7919 % 48_000).to_le_bytes();
            assert_eq!(db.get(&key).unwrap().as_deref(), Some(&value[..]));
        }
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_view = false;
        let mut resident_kb = 0;
        for line in maps.lines() {
            if line.contains('-') && line.split(' ').nth(1).is_some_and(|flags| flags.len() == 4) {
                is_view = line.contains("bounded.spt") && line.contains("r--s");
            } else if let Some(kb) = line.strip_prefix("Rss:").filter(|_| is_view) {
                resident_kb += kb.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        assert!(resident_kb <= 10 << 10, "{resident_kb} kB of the view are resident");
        assert!(resident_kb > 0);
    }
}
