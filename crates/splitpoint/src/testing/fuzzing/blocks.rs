//! The decoders, each on bytes that nothing has vouched for.

use std::ops::Range;

use super::Source;
use crate::atomic::AtomicU64;
use crate::checkpoint::{self, CheckpointState};
use crate::file_kind::FileKind;
use crate::format::{
    Addr, CheckpointName, FILE_BYTES_MAX, GRANULE_BYTES, LIVE_MAGIC, LIVE_OFFSET, MAGIC,
    SUPERBLOCK_BYTES, SegmentHeader, Superblock, VERSION, u64_at,
};
use crate::live::{LineWindow, Live, WORD_COUNT};
use crate::log::record::{
    HEADER_BYTES_MAX, Record, RecordHeader, RecordKind, ShortPut, finish_crc,
};
use crate::log::relocation::{MOVED_MAX, Moved, Relocation};
use crate::segments::SegmentTable;

/// Decodes what follows the first byte of `input` as the first one says: records, the header of a
/// segment, a superblock, the live header, a file that is no store, a segment table, or the head of a
/// checkpoint.
///
/// What is decoded must lie inside its bytes and be the same after it is encoded and decoded again.
///
/// # Panics
///
/// If any of this does not hold.
pub fn record(input: &[u8]) {
    let mut source = Source::new(input);
    match source.byte() % 8 {
        0 => decode_records(&mut source),
        1 => decode_segment(&mut source),
        2 => decode_superblock(&mut source),
        3 => decode_live(&mut source),
        5 => decode_segment_table(&mut source),
        6 => decode_checkpoint(&mut source),
        7 => decode_relocation(&mut source),
        _ => {
            let file_bytes = source.u64();
            let kind = FileKind::of_content(source.rest(), file_bytes);
            assert!(!kind.to_string().is_empty());
        }
    }
}

/// Walks over bytes as over the records of a segment.
fn decode_records(source: &mut Source<'_>) {
    let (salt, base) = (source.u64(), source.u64() >> 30 & !7);
    let mut bytes = source.rest().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let room = (bytes.len() - at) as u64;
        let offset = base + at as u64;
        let Ok(header) = RecordHeader::decode(&bytes[at..], room, offset) else { return };
        let record_bytes = header.record_bytes();
        assert!((8..=room).contains(&record_bytes) && record_bytes.is_multiple_of(8));
        check_header(&header, u64_at(&bytes, at));
        let end = at + record_bytes as usize;
        let record = Record { header, bytes: &bytes[at..end], offset };
        assert_eq!(record.key().len() as u64, header.key_bytes);
        assert_eq!(record.value().len() as u64, header.value_bytes);
        let was_right = record.verify(salt).is_ok();
        let payload_at = at + header.header_bytes() as usize;
        let payload = crc32c::crc32c(&bytes[payload_at..end]);
        let crc = finish_crc(payload, &bytes[at..payload_at], salt, offset).to_le_bytes();
        assert_eq!(was_right, bytes[at..at + 4] == crc);
        bytes[at..at + 4].copy_from_slice(&crc);
        let record = Record { header, bytes: &bytes[at..end], offset };
        assert!(record.verify(salt).is_ok(), "the checksum was mended");
        assert!(record.verify(salt ^ 1).is_err(), "the salt counts");
        at = end;
    }
}

/// Checks that the ways to read a header, which begins with the word `first`, agree.
fn check_header(header: &RecordHeader, first: u64) {
    assert_eq!(RecordHeader::bytes_of_first(first), header.header_bytes());
    if let Some(short) = ShortPut::of_first(first) {
        assert_eq!(short.header_bytes, header.header_bytes());
        assert_eq!((short.key_bytes, short.value_bytes), (header.key_bytes, header.value_bytes));
        assert_eq!(short.record_bytes(), header.record_bytes());
    }
    let mut head = [0; HEADER_BYTES_MAX];
    let len = header.encode(&mut head);
    assert_eq!(len as u64, header.header_bytes());
    let again = RecordHeader::decode(&head[..len], header.record_bytes(), 0);
    assert_eq!(again.expect("what is encoded decodes"), *header);
}

fn decode_segment(source: &mut Source<'_>) {
    // A header is decoded only where the file has one.
    let file_bytes = source.u64() % (FILE_BYTES_MAX + 1);
    let offset = source.u64() % (file_bytes + 1);
    let mut bytes = [0; SegmentHeader::BYTES as usize];
    let given = source.bytes(bytes.len());
    bytes[..given.len()].copy_from_slice(given);
    for is_mended in [false, true] {
        if is_mended {
            bytes[..4].copy_from_slice(b"SEGM");
            let crc = crc32c::crc32c(&bytes[..60]);
            bytes[60..].copy_from_slice(&crc.to_le_bytes());
        }
        let Ok(header) = SegmentHeader::decode(&bytes, offset, file_bytes) else { continue };
        assert!(offset.checked_add(header.segment_bytes).is_some_and(|end| end <= file_bytes));
        let again = SegmentHeader::decode(&header.encode(), offset, file_bytes);
        assert_eq!(again.expect("what is encoded decodes"), header);
    }
}

fn decode_superblock(source: &mut Source<'_>) {
    let mut block = vec![0; SUPERBLOCK_BYTES as usize];
    let given = source.bytes(block.len());
    block[..given.len()].copy_from_slice(given);
    for is_mended in [false, true] {
        if is_mended {
            block[..8].copy_from_slice(&MAGIC);
            block[8..12].copy_from_slice(&VERSION.to_le_bytes());
            block[12..16].fill(0);
            let crc = crc32c::crc32c(&block);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        let Ok(superblock) = Superblock::decode(&block) else { continue };
        let again = Superblock::decode(&superblock.encode());
        assert_eq!(again.expect("what is encoded decodes"), superblock);
    }
}

/// Validates a live header made of a few words, and uses what is valid as an open store does.
fn decode_live(source: &mut Source<'_>) {
    let mut words = vec![0; WORD_COUNT];
    (words[0], words[1]) = (LIVE_MAGIC, VERSION.into());
    let file_bytes = source.u64() >> 16;
    while !source.is_empty() {
        let at = usize::from(source.u16()) % WORD_COUNT;
        words[at] = source.u64();
    }
    let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
    let live = Live(words.first_chunk().expect("a word for each"));
    if let Err(error) = live.validate(file_bytes) {
        assert!(error.to_string().contains(" at byte "), "{error}");
        return;
    }
    let mut space = live.space();
    assert!(space.end() * 4096 <= file_bytes && space.end() * 4096 >= LIVE_OFFSET);
    for window in LineWindow::ALL {
        for piece in 0..live.piece_count(window) {
            let granules = crate::piece::piece_of(piece).granule_count();
            assert!(live.piece(window, piece) + granules <= space.end());
        }
    }
    let (lsn, state) = live.committed();
    assert!(lsn.is_multiple_of(8) && state.tail_segment <= state.tail_offset);
    live.commit(lsn + 8, &state);
    assert_eq!(live.committed(), (lsn + 8, state));
    let granule = space.allocate(3, 2);
    assert!(granule.is_multiple_of(2) && granule + 3 <= space.end());
    space.add_free(granule, 3);
    live.set_space(&space);
    let _ = (live.crc(), live.free_lines(), live.lines_used(), live.record_count());
}

/// Mends a segment table of any words, and uses what is left as a store does.
fn decode_segment_table(source: &mut Source<'_>) {
    let unit_bytes = GRANULE_BYTES << (source.byte() % 5);
    let file_bytes = u64::from(source.u16()) * GRANULE_BYTES;
    let mut words = Vec::new();
    while !source.is_empty() && words.len() < 512 {
        words.push(source.u64());
    }
    words.resize(words.len().next_multiple_of(2), 0);
    let mut table = SegmentTable::of_words(unit_bytes, words);
    table.mend(file_bytes);
    let mended = table.to_words();
    table.mend(file_bytes);
    assert_eq!(table.to_words(), mended, "what is mended needs no mending");
    let mut used: Vec<Range<u64>> =
        table.used().map(|extent| extent.granule..extent.granule + extent.count).collect();
    used.sort_by_key(|extent| extent.start);
    assert!(used.iter().all(|extent| extent.end * GRANULE_BYTES <= file_bytes), "{used:?}");
    assert!(used.windows(2).all(|pair| pair[0].end <= pair[1].start), "{used:?}");
    for extent in &used {
        table.remove_live(extent.start * GRANULE_BYTES, 8);
        table.add_live(extent.start * GRANULE_BYTES, 16);
    }
    table.end_all_emptied();
    assert!(table.emptied().is_empty());
}

/// Decodes the first granule of a checkpoint.
fn decode_checkpoint(source: &mut Source<'_>) {
    let file_bytes = source.u64() % (FILE_BYTES_MAX + 1);
    let mut block = vec![0; GRANULE_BYTES as usize];
    let given = source.bytes(block.len());
    block[..given.len()].copy_from_slice(given);
    for is_mended in [false, true] {
        let [bytes, lsn, salt] = [16, 24, 40].map(|at| u64_at(&block, at));
        let name = CheckpointName { offset: 0, bytes, lsn, salt };
        if is_mended {
            block[..5].copy_from_slice(b"SEGM\x07");
            let crc = crc32c::crc32c(&block[..60]);
            block[60..64].copy_from_slice(&crc.to_le_bytes());
            block[checkpoint::CRC_OFFSET..][..8].fill(0);
            let crc = u64::from(checkpoint::state_crc(&block, salt));
            block[checkpoint::CRC_OFFSET..][..8].copy_from_slice(&crc.to_le_bytes());
        }
        let Ok((state, table_bytes, _)) = CheckpointState::decode(&block, name, file_bytes) else {
            continue;
        };
        assert!(table_bytes <= bytes && table_bytes.is_multiple_of(SegmentTable::ENTRY_BYTES));
        assert!(state.commit.record_count <= file_bytes && state.log_bytes <= file_bytes);
        assert_eq!(state.replay_start.lsn, lsn);
    }
}

/// Decodes the value of a record that names moved ones: one with the checksum over the copies, and one as
/// earlier builds have written it.
fn decode_relocation(source: &mut Source<'_>) {
    let value = source.rest();
    let new = RecordHeader::new(RecordKind::Relocate, 0, value.len() as u64);
    let copies_crc = u64::from(crc32c::crc32c(value));
    for salt in [None, Some(copies_crc)] {
        decode_relocation_of(RecordHeader { salt, ..new }, value);
    }
}

fn decode_relocation_of(header: RecordHeader, value: &[u8]) {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let len = header.encode(&mut bytes);
    let mut bytes = bytes[..len].to_vec();
    bytes.extend_from_slice(value);
    bytes.resize(header.record_bytes() as usize, 0);
    let record = Record { header, bytes: &bytes, offset: 4096 };
    let Ok(relocation) = Relocation::decode(&record) else { return };
    let moved: Vec<Moved> = relocation.moved().collect();
    let Relocation { segment_offset, salt, first, .. } = relocation;
    assert!(moved.iter().all(|moved| moved.from.0 >> Addr::BITS == 0));
    if moved.len() <= MOVED_MAX {
        let mut encoded = Vec::new();
        let moved = moved.into_iter();
        Relocation::encode(segment_offset, salt, first, moved, &mut encoded);
        assert_eq!(encoded, value);
    }
}
