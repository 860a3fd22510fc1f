//! Finds every valid record of a log segment, including those after damage.
//!
//! The start of a record follows from the length of the previous one, so a damaged record hides
//! where the next begins. But all records begin at multiples of 8 bytes, so after damage every such
//! offset is tried. The cost of a trial does not depend on the length that the bytes there claim:
//! the checksum of any range is computed from those of two prefixes. So the cost of a malicious
//! segment is bounded by its size.

use std::ops::Range;

use super::record::{HEADER_BYTES_MAX, Record, RecordHeader, RecordKind, finish_crc};
use super::segment::Segment;
use crate::checksum;
use crate::format::{SegmentHeader, u32_at, u64_at};

/// Size in bytes of the unit that a device writes atomically.
const SECTOR_BYTES: u64 = 512;

/// The valid contents of a log segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentScan {
    /// Valid records, as ascending ranges of file offsets. Within a range the records are
    /// contiguous.
    pub(crate) runs: Vec<Range<u64>>,
    /// The valid links, ascending.
    pub(crate) links: Vec<Link>,
    /// End of the last nonzero byte, whether or not it belongs to a record.
    pub(crate) last_used: u64,
    /// Whether the writer stopped at the end of the first run.
    pub(crate) tail: Tail,
    /// Whether there are records of batches.
    pub(crate) has_batches: bool,
}

/// A LINK record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Offset of the LINK record.
    pub(crate) offset: u64,
    /// Offset of the segment that it names.
    pub(crate) target: u64,
    /// The salt of that segment.
    pub(crate) salt: u64,
}

/// Whether a segment ends like the last segment of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nonzero bytes follow the first run.
    #[default]
    No,
    /// Only zeros follow, from the middle of a sector on. Only a writer stops there.
    Yes,
    /// Only zeros follow, from a sector boundary on. The sector may have been lost.
    Perhaps,
}

impl SegmentScan {
    /// Returns the end of the undamaged records directly after the header.
    pub(crate) fn solid_end(&self, segment: &Segment) -> u64 {
        match self.runs.first() {
            Some(run) if run.start == segment.first() => run.end,
            _ => segment.first(),
        }
    }

    /// Returns the link before which nothing is damaged: the valid end of the segment.
    pub(crate) fn solid_link(&self, segment: &Segment) -> Option<Link> {
        self.links.first().filter(|link| link.offset < self.solid_end(segment)).copied()
    }

    /// Returns the end of the last valid record.
    pub(crate) fn end(&self, segment: &Segment) -> u64 {
        self.runs.last().map_or(segment.first(), |run| run.end)
    }

    /// Drops everything from `end` on, and returns the bytes of records dropped.
    pub(crate) fn truncate(&mut self, end: u64) -> u64 {
        let bytes = |runs: &[Range<u64>]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
        let before = bytes(&self.runs);
        for run in &mut self.runs {
            run.end = run.end.min(end);
        }
        self.runs.retain(|run| run.start < run.end);
        self.links.retain(|link| link.offset < end);
        debug_assert!(self.runs.last().is_none_or(|run| run.end <= end));
        let after = bytes(&self.runs);
        assert!(after <= before, "a cut adds nothing");
        before - after
    }
}

/// Finds the valid records in `bytes`, the bytes of `segment` as far as the file has them.
pub(crate) fn scan(bytes: &[u8], segment: &Segment, powers: &mut Powers) -> SegmentScan {
    assert!(bytes.len() as u64 <= segment.bytes, "they are bytes of this segment");
    let mut scan = SegmentScan::default();
    let mut trial = Trial { bytes, segment, prefixes: None };
    let mut at = SegmentHeader::BYTES as usize;
    let mut run_start = at;
    let mut is_solid = true;
    while at + 8 <= bytes.len() {
        if let Some(record) = trial.record_at(at, powers) {
            at += record.bytes.len();
            scan.has_batches |= record.header.is_in_transaction;
            if let Some(link) = link_of(&record) {
                scan.links.push(link);
                // The log continued in another segment; the bytes after the link are not part of
                // it.
                if is_solid {
                    break;
                }
            }
            continue;
        }
        scan.push_run(run_start..at, segment);
        if is_solid && bytes[at..].iter().all(|&byte| byte == 0) {
            let is_border = (segment.offset + at as u64).is_multiple_of(SECTOR_BYTES);
            scan.tail = if is_border { Tail::Perhaps } else { Tail::Yes };
            break;
        }
        is_solid = false;
        at += 8;
        run_start = at;
    }
    scan.push_run(run_start..at, segment);
    let used_bytes = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
    scan.last_used = segment.offset + used_bytes.max(SegmentHeader::BYTES);
    debug_assert!(
        scan.end(segment) <= segment.offset + SegmentHeader::BYTES.max(bytes.len() as u64)
    );
    scan
}

impl SegmentScan {
    fn push_run(&mut self, run: Range<usize>, segment: &Segment) {
        let run = segment.offset + run.start as u64..segment.offset + run.end as u64;
        if !run.is_empty() && self.runs.last() != Some(&run) {
            assert!(self.end(segment) <= run.start, "runs are ascending and apart");
            self.runs.push(run);
        }
    }
}

/// Returns the records of a run that a scan has found, from the bytes of its segment.
pub(crate) fn records_of<'a>(
    bytes: &'a [u8],
    segment: &Segment,
    run: &Range<u64>,
) -> impl Iterator<Item = Record<'a>> + use<'a> {
    let base = segment.offset;
    assert!(segment.first() <= run.start && run.end <= segment.end(), "the run is of this segment");
    let (mut at, end) = ((run.start - base) as usize, (run.end - base) as usize);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        // The record was valid when it was scanned. If the file has changed since, the run ends
        // here.
        let record = decode_at(bytes, base, at)?;
        at += record.bytes.len();
        Some(record)
    })
}

/// Decodes the record at `at` in the bytes of the segment at `base`, without verifying its
/// checksum.
pub(crate) fn decode_at(bytes: &[u8], base: u64, at: usize) -> Option<Record<'_>> {
    let rest = bytes.get(at..)?;
    let offset = base + at as u64;
    let head = &rest[..rest.len().min(HEADER_BYTES_MAX)];
    let header = RecordHeader::decode(head, rest.len() as u64, offset).ok()?;
    let bytes = rest.get(..header.record_bytes() as usize)?;
    Some(Record { header, bytes, offset })
}

fn link_of(record: &Record<'_>) -> Option<Link> {
    let is_link = record.header.kind == RecordKind::Link
        && record.header.key_bytes == 0
        && record.header.value_bytes == 16;
    let value = is_link.then(|| record.value())?;
    Some(Link { offset: record.offset, target: u64_at(value, 0), salt: u64_at(value, 8) })
}

/// Tests offsets of a segment for valid records.
struct Trial<'a> {
    bytes: &'a [u8],
    segment: &'a Segment,
    /// Checksums of the bytes up to each multiple of 8, computed at the first damaged record.
    prefixes: Option<Vec<u32>>,
}

impl<'a> Trial<'a> {
    /// Returns the record at `at`, a multiple of 8, if there is a valid one.
    fn record_at(&mut self, at: usize, powers: &mut Powers) -> Option<Record<'a>> {
        debug_assert!(at.is_multiple_of(8), "a record begins at a multiple of 8");
        // Skip zeros quickly: nearly always they are the rest of the tail segment.
        if u64_at(self.bytes, at) == 0 {
            return None;
        }
        let record = decode_at(self.bytes, self.segment.offset, at)?;
        let Some(prefixes) = &self.prefixes else {
            if record.verify(self.segment.salt).is_ok() {
                return Some(record);
            }
            self.prefixes = Some(prefixes_of(self.bytes));
            return None;
        };
        let head_bytes = record.header.header_bytes() as usize;
        let (from, to) = ((at + head_bytes) / 8, (at + record.bytes.len()) / 8);
        let payload = powers.crc_between(prefixes[from], prefixes[to], to - from);
        let (head, salt) = (&record.bytes[..head_bytes], self.segment.salt);
        let expected = finish_crc(payload, head, salt, record.offset);
        (expected == u32_at(record.bytes, 0)).then_some(record)
    }
}

/// Returns the checksum of the first `8 * i` bytes for each `i`.
fn prefixes_of(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(8);
    std::iter::once(0)
        .chain(words.scan(0, |crc, word| {
            *crc = checksum::crc32c_append(*crc, word);
            Some(*crc)
        }))
        .collect()
}

/// Powers of x^64 modulo the polynomial of CRC-32C. Multiplying by x^64 has the effect of 8 more
/// zero bytes on a checksum.
///
/// Source: `crc32_combine` of zlib (Adler 2018), with the table that a fixed unit allows.
#[derive(Clone, Debug)]
pub(crate) struct Powers(Vec<u32>);

/// CRC-32C (Castagnoli), reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x^0 in the reflected representation.
const ONE: u32 = 1 << 31;

impl Powers {
    pub(crate) fn new() -> Self {
        Self(vec![ONE])
    }

    /// Returns the checksum of the `word_count` 8-byte words between two prefixes with these
    /// checksums.
    fn crc_between(&mut self, from: u32, to: u32, word_count: usize) -> u32 {
        debug_assert!(self.0[0] == ONE && (word_count > 0 || from == to));
        while self.0.len() <= word_count {
            // Multiply by x^64, one bit at a time.
            let last = self.0[self.0.len() - 1];
            self.0.push((0..64).fold(last, |power, _| times_x(power)));
        }
        multiply(self.0[word_count], from) ^ to
    }
}

fn times_x(a: u32) -> u32 {
    if a & 1 == 1 { a >> 1 ^ POLYNOMIAL } else { a >> 1 }
}

/// Returns the product of two polynomials modulo the polynomial of the checksum.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        // Without a branch: the bits are as good as random.
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = times_x(b);
    }
    product
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::Addr;
    use crate::log::record::payload_crc;

    const BASE: u64 = 65536;
    const SALT: u64 = 0x1234_5678_9abc_def0;

    fn segment() -> Segment {
        Segment {
            offset: BASE,
            bytes: 4096,
            base_lsn: 0,
            sequence: 1,
            previous_offset: 0,
            salt: SALT,
        }
    }

    /// Appends a record as the log does.
    fn push(bytes: &mut Vec<u8>, header: RecordHeader, key: &[u8], value: &[u8]) {
        let mut head = [0; HEADER_BYTES_MAX];
        let len = header.encode(&mut head);
        let pad = header.record_bytes() as usize - len - key.len() - value.len();
        let offset = BASE + bytes.len() as u64;
        let crc = finish_crc(payload_crc(key, value), &head[..len], SALT, offset);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&head[..len]);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len() + pad, 0);
    }

    /// Returns a segment of records and where they begin, the end included.
    fn written(link: bool) -> (Vec<u8>, Vec<u64>) {
        let mut bytes = vec![1; 64];
        let mut starts = vec![BASE + 64];
        for i in 0..20_u8 {
            let value = vec![i; usize::from(i) * 7];
            let prev = (i % 3 == 0).then_some(Addr(9));
            let header =
                RecordHeader { prev, ..RecordHeader::new(RecordKind::Put, 1, value.len() as u64) };
            push(&mut bytes, header, &[i], &value);
            starts.push(BASE + bytes.len() as u64);
        }
        if link {
            let value = [77_u64.to_le_bytes(), 78_u64.to_le_bytes()].concat();
            push(&mut bytes, RecordHeader::new(RecordKind::Link, 0, 16), &[], &value);
            starts.push(BASE + bytes.len() as u64);
        }
        bytes.resize(4096, 0);
        (bytes, starts)
    }

    fn scanned(bytes: &[u8]) -> SegmentScan {
        scan(bytes, &segment(), &mut Powers::new())
    }

    #[test]
    fn a_whole_segment_is_one_run_up_to_its_link_or_its_tail() {
        let (bytes, starts) = written(false);
        let found = scanned(&bytes);
        assert_eq!(found.runs, std::slice::from_ref(&(starts[0]..starts[20])));
        assert_eq!((found.links.len(), found.tail), (0, Tail::Yes));
        let records = records_of(&bytes, &segment(), &found.runs[0]);
        assert!(records.map(|record| record.offset).eq(starts[..20].iter().copied()));

        let (mut bytes, starts) = written(true);
        bytes[4000..].fill(9);
        let found = scanned(&bytes);
        assert_eq!(found.runs, std::slice::from_ref(&(starts[0]..starts[21])));
        assert_eq!(found.links, [Link { offset: starts[20], target: 77, salt: 78 }]);
        assert_eq!(found.tail, Tail::No);
    }

    #[test]
    fn any_flipped_byte_costs_the_one_record_that_has_it() {
        let (bytes, starts) = written(true);
        for offset in starts[0]..starts[21] {
            let mut flipped = bytes.clone();
            flipped[(offset - BASE) as usize] ^= 0x40;
            let hit = starts.partition_point(|&start| start <= offset) - 1;
            let expected: Vec<Range<u64>> = [starts[0]..starts[hit], starts[hit + 1]..starts[21]]
                .into_iter()
                .filter(|run| !run.is_empty())
                .collect();
            assert_eq!(scanned(&flipped).runs, expected, "byte {offset}");
        }
    }

    #[test]
    fn truncating_forgets_what_is_behind() {
        let (mut bytes, starts) = written(true);
        bytes[(starts[5] - BASE) as usize] ^= 1;
        let mut found = scanned(&bytes);
        assert_eq!(found.truncate(starts[3]), starts[21] - starts[6] + starts[5] - starts[3]);
        assert_eq!(found.runs, std::slice::from_ref(&(starts[0]..starts[3])));
        assert!(found.links.is_empty());
    }

    #[test]
    fn the_checksum_between_two_prefixes_is_that_of_the_bytes_between() {
        let bytes: Vec<u8> = (0..4096_u32).map(|i| ((i * i) >> 3) as u8).collect();
        let prefixes = prefixes_of(&bytes);
        let mut powers = Powers::new();
        for (from, to) in [(0, 0), (0, 512), (1, 2), (7, 400), (511, 512), (3, 3)] {
            let crc = powers.crc_between(prefixes[from], prefixes[to], to - from);
            assert_eq!(crc, checksum::crc32c(&bytes[from * 8..to * 8]), "{from}..{to}");
        }
    }
}
