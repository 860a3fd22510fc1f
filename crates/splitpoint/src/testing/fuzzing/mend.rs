//! Put right the checksums of a file, and what else would be refused before it does harm.

use crate::checkpoint;
use crate::format::{
    GRANULE_BYTES, LIVE_BYTES, LIVE_OFFSET, SEGMENT_MAGIC, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS,
    SegmentHeader, SegmentKind, is_magic, u32_at, u64_at,
};
use crate::hash::{HashFunction, HashId, PROBE_KEY};
use crate::live;
use crate::log::record::{RecordHeader, RecordKind, finish_crc};
use crate::segments::SegmentTable;

const SEGMENT_HEADER_BYTES: usize = SegmentHeader::BYTES as usize;
/// Every segment begins at a multiple of this.
const STEP: usize = GRANULE_BYTES as usize;

/// What to put right, one bit each; those not named are left as they are.
const SUPERBLOCKS: u8 = 1;
const LIVE: u8 = 2;
const SEGMENTS: u8 = 4;
const RECORDS: u8 = 8;
const LINKS: u8 = 16;
const CHECKPOINTS: u8 = 32;
const SEGMENT_TABLE: u8 = 64;

fn put(file: &mut [u8], offset: usize, bytes: &[u8]) {
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Puts right what `what` says: bit 0 the superblocks, 1 the checksum of the live header in them, 2
/// segment headers, 3 records, 4 the salts and sequence numbers by which links name segments, 5
/// checkpoints and what the superblocks call them, 6 the checksum of the segment table.
pub fn mend(file: &mut [u8], what: u8) {
    let is_asked = |bit| what & bit != 0;
    let segments: Vec<usize> = (0..file.len().saturating_sub(SEGMENT_HEADER_BYTES))
        .step_by(STEP)
        .filter(|&at| u32_at(file, at) == SEGMENT_MAGIC)
        .collect();
    if is_asked(LINKS) {
        for &at in &segments {
            mend_links(file, at);
        }
    }
    for &at in &segments {
        if is_asked(SEGMENTS) {
            let crc = crc32c::crc32c(&file[at..at + 60]);
            put(file, at + 60, &crc.to_le_bytes());
        }
        let is_checkpoint = file[at + 4] == SegmentKind::Checkpoint as u8;
        if is_asked(CHECKPOINTS) && is_checkpoint {
            mend_checkpoint(file, at);
        }
        let is_table = file[at + 4] == SegmentKind::Map as u8;
        if is_asked(RECORDS) && !is_checkpoint && !is_table {
            for (offset, header) in records(file, at) {
                mend_record(file, offset, &header, u64_at(file, at + 40));
            }
        }
    }
    if file.len() as u64 >= LIVE_OFFSET + LIVE_BYTES {
        if is_asked(SEGMENT_TABLE) {
            mend_segment_table(file);
        }
        let [a, b] = SUPERBLOCK_OFFSETS.map(|offset| offset as usize);
        let newest = if u64_at(file, a + 16) >= u64_at(file, b + 16) { a } else { b };
        for at in [a, b] {
            // The older one vouches for a live header that is gone.
            let what = if at == newest { what } else { what & !LIVE };
            mend_superblock(file, at, what);
        }
    }
}

/// Returns where the records of the segment at `at` are, and their headers.
fn records(file: &[u8], at: usize) -> Vec<(usize, RecordHeader)> {
    let room = (file.len() - at) as u64;
    let segment_end = at + u64_at(file, at + 16).min(room) as usize;
    let mut offset = at + SEGMENT_HEADER_BYTES;
    let mut records = Vec::new();
    while offset < segment_end {
        let bytes = &file[offset..segment_end];
        let decoded = RecordHeader::decode(bytes, bytes.len() as u64, offset as u64);
        let Ok(header) = decoded else { break };
        records.push((offset, header));
        offset += header.record_bytes() as usize;
    }
    records
}

/// Makes the links of the segment at `at` name what is where they lead to.
fn mend_links(file: &mut [u8], at: usize) {
    for (offset, header) in records(file, at) {
        let is_link = header.kind == RecordKind::Link && header.key_bytes == 0;
        if !is_link || header.value_bytes != 16 {
            continue;
        }
        let value_at = offset + header.header_bytes() as usize;
        let target = u64_at(file, value_at);
        if !target.is_multiple_of(STEP as u64) || target + SegmentHeader::BYTES > file.len() as u64
        {
            continue;
        }
        let target = target as usize;
        let end = (offset - at) as u64 + header.record_bytes() - SegmentHeader::BYTES;
        let lsn = u64_at(file, at + 24).wrapping_add(end);
        let salt = u64_at(file, target + 40);
        put(file, value_at + 8, &salt.to_le_bytes());
        put(file, target + 24, &lsn.to_le_bytes());
    }
}

fn mend_record(file: &mut [u8], offset: usize, header: &RecordHeader, salt: u64) {
    let payload_at = offset + header.header_bytes() as usize;
    let end = offset + header.record_bytes() as usize;
    let payload = crc32c::crc32c(&file[payload_at..end]);
    let crc = finish_crc(payload, &file[offset..payload_at], salt, offset as u64);
    put(file, offset, &crc.to_le_bytes());
}

/// Puts right the checksums of the checkpoint whose segment is at `at`: of its segment table, of its
/// first granule and of its blocks.
fn mend_checkpoint(file: &mut [u8], at: usize) {
    let salt = u64_at(file, at + 40);
    let segment_end = at + u64_at(file, at + 16).min((file.len() - at) as u64) as usize;
    if segment_end < at + STEP {
        return;
    }
    let table_at = at + STEP;
    let table_end = u64_at(file, at + checkpoint::TABLE_WORDS_OFFSET)
        .checked_mul(8)
        .and_then(|bytes| bytes.checked_add(table_at as u64))
        .filter(|&end| end <= segment_end as u64);
    let Some(table_end) = table_end.map(|end| end as usize) else { return };
    let crc = checkpoint::state_crc(&file[table_at..table_end], salt);
    put(file, at + checkpoint::TABLE_CRC_OFFSET, &u64::from(crc).to_le_bytes());
    put(file, at + checkpoint::CRC_OFFSET, &[0; 8]);
    let crc = checkpoint::state_crc(&file[at..at + STEP], salt);
    put(file, at + checkpoint::CRC_OFFSET, &u64::from(crc).to_le_bytes());
    let blocks_at = table_end.next_multiple_of(STEP);
    let mut offset = blocks_at;
    while offset < segment_end {
        let Some(&size) = file[offset + 4..].first_chunk() else { return };
        let bytes = u32::from_le_bytes(size) as usize;
        if bytes >= 8 && bytes <= segment_end - offset {
            let crc = checkpoint::block_crc(&file[offset..offset + bytes], salt, offset as u64);
            put(file, offset, &crc.to_le_bytes());
        }
        offset += checkpoint::block_step(bytes.max(1)) as usize;
    }
}

/// Puts right the checksum of the segment table, which the live header has.
fn mend_segment_table(file: &mut [u8]) {
    let live = LIVE_OFFSET as usize;
    let place = u64_at(file, live + 8 * live::SEGMENT_TABLE);
    let (granule, count) = (place & u64::from(u32::MAX), place >> 32);
    let (start, end) = (granule * GRANULE_BYTES, (granule + count) * GRANULE_BYTES);
    if count == 0 || end > file.len() as u64 {
        return;
    }
    let words = file[start as usize..end as usize][SEGMENT_HEADER_BYTES..].chunks_exact(8);
    let words = words.map(|word| u64_at(word, 0)).collect();
    let crc = SegmentTable::of_words(GRANULE_BYTES, words).crc();
    put(file, live + 8 * live::TABLE_CRC, &u64::from(crc).to_le_bytes());
}

fn mend_superblock(file: &mut [u8], at: usize, what: u8) {
    if !is_magic(&file[at..]) {
        return;
    }
    let is_clean = file[at + 24] & 3 != 0;
    if what & LIVE != 0 && is_clean {
        // As in a large store: an open uses the index, whatever it is.
        file[at + 24] = 1;
        let live = &file[LIVE_OFFSET as usize..][..LIVE_BYTES as usize];
        let crc = crc32c::crc32c_append(crc32c::crc32c(&live[64..136]), &live[144..]);
        put(file, at + 168, &crc.to_le_bytes());
        let file_bytes = u64_at(file, at + 160).min(file.len() as u64);
        put(file, at + 160, &file_bytes.to_le_bytes());
    }
    if what & LINKS != 0 {
        let (segment, record) = (u64_at(file, at + 112), u64_at(file, at + 136));
        let first = segment.saturating_add(SegmentHeader::BYTES);
        if segment != 0 && first < file.len() as u64 {
            let segment = segment as usize;
            let lsn = u64_at(file, segment + 24).wrapping_add(record.wrapping_sub(first));
            let salt = u64_at(file, segment + 40);
            put(file, at + 120, &salt.to_le_bytes());
            put(file, at + 128, &lsn.to_le_bytes());
        }
    }
    let checkpoint_at = u64_at(file, at + 144);
    if what & CHECKPOINTS != 0
        && checkpoint_at != 0
        && checkpoint_at.saturating_add(SegmentHeader::BYTES) <= file.len() as u64
    {
        let header = checkpoint_at as usize;
        for (to, from) in [(152, 16), (192, 24), (200, 40)] {
            let word = u64_at(file, header + from);
            put(file, at + to, &word.to_le_bytes());
        }
    }
    if what & SUPERBLOCKS != 0 {
        if let Some(hash) = HashFunction::by_id(HashId(u32_at(file, at + 48))) {
            let probe = hash.hash(PROBE_KEY, u64_at(file, at + 56));
            put(file, at + 64, &probe.to_le_bytes());
        }
        put(file, at + 12, &[0; 4]);
        let crc = crc32c::crc32c(&file[at..at + SUPERBLOCK_BYTES as usize]);
        put(file, at + 12, &crc.to_le_bytes());
    }
}
