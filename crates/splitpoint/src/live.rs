//! The live header: the words that the writer shares with readers and with the next process.

use std::time::Duration;

use crate::atomic::{AtomicU64, Ordering, fence, may_be_killed};
use crate::checksum;
use crate::error::{Error, Result};
use crate::format::{
    FILE_BYTES_MAX, GRANULE_BYTES, HEADER_BYTES, INODE_OFFSET, LIVE_BYTES, LIVE_MAGIC, LIVE_OFFSET,
    LSN_MAX, PID_OFFSET, SegmentHeader, VERSION,
};
use crate::index::line::LineNumber;
use crate::index::shape::Shape;
use crate::piece::PIECE_COUNT_MAX;
use crate::space::{Extent, Space};
use crate::storage::Identity;

/// Number of 8-byte words in the header.
pub(crate) const WORD_COUNT: usize = (LIVE_BYTES / 8) as usize;

/// The live header, at byte 8192 of the file: 512 words that change one at a time.
///
/// An open trusts it after a clean close. After a killed process it does so only if boot, device, inode
/// and birth time are the same, the kernel has kept the pages of the file, and it agrees with the log; after a
/// power loss it never does. Each group of words begins on a cache line.
///
/// ```text
/// offset  size  field
///      0     8  magic: "SPLTLIVE"
///      8     8  format version: 1
///     16    16  boot id of the kernel that ran the writer
///     32     8  device of the file
///     40     8  inode of the file
///     48     8  birth time of the file, in nanoseconds since 1970; 0 if unknown
///     56     4  process id of the writer
///     60     4  when it opened the file, or made its first change after another's turn: second of the
///               monotonic clock
///     64     8  shape: bucket count (bits 0-32), reuse epoch (bits 33-63)
///     72     8  piece epoch: changes when an index extent has gone or moved, before its granules are
///               used again
///    128     8  commit: log sequence number, a multiple of 8, plus the number (0 or 1) of the
///               commit state that belongs to it
///    136     8  durable log sequence number
///    144     8  reserved
///    152     8  1 after a sync has failed: pages may be neither durable nor dirty
///    160     8  segment table: first granule of its segment (bits 0-31), granule count (32-63);
///               0 for none
///    168     8  sequence number of the next segment when the segment table changed last
///    176     8  crc32c of the segment table at a clean close
///    192    64  commit state 0: record count, live bytes, dead bytes, tail offset, offset of the
///               tail segment, 8 bytes each; the same two of the compacted head; 8 reserved
///    256    64  commit state 1
///    320     8  overflow lines allocated so far, free ones included
///    328     8  first free overflow line, 0 for none
///    336     8  free overflow lines
///    384     8  end of the file in granules
///    392     8  sequence number of the next segment
///    400     8  bytes in log segments
///    408     8  bytes in big segments
///    416     8  index extents of the bucket window: their number
///    424     8  index extents of the overflow window: their number
///    432     8  free extents (bits 0-31), crc32c of the end of the file and of them (32-63);
///               0 while they change
///    440     8  unique number of the mount through which the writer opened the file, xor its `f_fsid`
///               times 0x9e3779b97f4a7c15 modulo 2^64; 0 if the kernel reuses such numbers
///    448    32  segments of checkpoints, complete or not: first granule and granule count, 8
///               bytes each, twice; 0 for none
///    512   512  free extents, 8 bytes each: first granule (bits 0-31), granule count (32-63)
///   1024  1536  index extents of the bucket window, 8 bytes each: first granule
///   2560  1536  index extents of the overflow window, 8 bytes each: first granule
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live<'a>(pub(crate) &'a [AtomicU64; WORD_COUNT]);

const MAGIC: usize = 0;
const FORMAT_VERSION: usize = 1;
const BOOT_ID: usize = 2;
const DEVICE: usize = 4;
pub(crate) const INODE: usize = 5;
pub(crate) const BIRTH: usize = 6;
const PID: usize = 7;
const SHAPE: usize = 8;
const PIECE_EPOCH: usize = 9;
const COMMIT: usize = 16;
const DURABLE: usize = 17;
const SYNC_FAILED: usize = 19;
pub(crate) const SEGMENT_TABLE: usize = 20;
const TABLE_SEQUENCE: usize = 21;
pub(crate) const TABLE_CRC: usize = 22;
const COMMIT_STATES: [usize; 2] = [24, 32];
const LINES_USED: usize = 40;
const FREE_LINE: usize = 41;
const FREE_LINE_COUNT: usize = 42;
const END: usize = 48;
const NEXT_SEQUENCE: usize = 49;
const LOG_BYTES: usize = 50;
const BIG_BYTES: usize = 51;
const PIECE_COUNTS: [usize; 2] = [52, 53];
const EXTENT_COUNT: usize = 54;
const MOUNT: usize = 55;
const CHECKPOINTS: usize = 56;
const EXTENTS: usize = 64;
const PIECES: [usize; 2] = [128, 320];

/// Byte offset of the number of overflow lines handed out in the file.
pub(crate) const LINES_USED_OFFSET: u64 = LIVE_OFFSET + LINES_USED as u64 * 8;
/// Byte offset of the free overflow lines in the file.
pub(crate) const FREE_LINES_OFFSET: u64 = LIVE_OFFSET + FREE_LINE as u64 * 8;
/// Byte offset of the end of the file in granules in the file.
pub(crate) const END_OFFSET: u64 = LIVE_OFFSET + END as u64 * 8;
const _: () = assert!(PID_OFFSET == LIVE_OFFSET + PID as u64 * 8);
const _: () = assert!(INODE_OFFSET == LIVE_OFFSET + INODE as u64 * 8);
const _: () = assert!(PIECES[0] + PIECE_COUNT_MAX == PIECES[1]);
const _: () = assert!(PIECES[1] + PIECE_COUNT_MAX == WORD_COUNT);

/// The counts and the log position that a commit publishes together with its log sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitState {
    pub(crate) record_count: u64,
    pub(crate) live_bytes: u64,
    pub(crate) dead_bytes: u64,
    /// Offset of the next record, 0 in an empty log.
    pub(crate) tail_offset: u64,
    /// Offset of the tail segment, 0 in an empty log.
    pub(crate) tail_segment: u64,
    /// The compacted head: where compaction writes the next moved record; 0 before the first one.
    pub(crate) head_offset: u64,
    /// Offset of the segment of the compacted head, or 0.
    pub(crate) head_segment: u64,
}

/// Updates of the counts. They saturate, because the counts of a malicious file need not be
/// consistent; `check` compares them with the index.
impl CommitState {
    /// Counts a put of `bytes`, and the record of `replaced` bytes that it replaces, if the key
    /// existed.
    #[inline]
    pub(crate) fn count_put(&mut self, bytes: u64, replaced: Option<u64>) {
        match replaced {
            Some(replaced) => self.bury(replaced),
            None => self.record_count += 1,
        }
        self.live_bytes += bytes;
    }

    /// Counts a tombstone of `bytes` for a record of `deleted` bytes.
    #[inline]
    pub(crate) fn count_delete(&mut self, bytes: u64, deleted: u64) {
        self.record_count = self.record_count.saturating_sub(1);
        self.bury(deleted);
        self.dead_bytes += bytes;
    }

    fn bury(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.dead_bytes += bytes;
    }
}

/// The two windows of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineWindow {
    Buckets,
    Overflow,
}

impl LineWindow {
    pub(crate) const ALL: [Self; 2] = [Self::Buckets, Self::Overflow];

    pub(crate) fn number(self) -> usize {
        match self {
            Self::Buckets => 0,
            Self::Overflow => 1,
        }
    }
}

impl<'a> Live<'a> {
    fn load(self, word: usize) -> u64 {
        self.0[word].load(Ordering::Acquire)
    }

    /// Stores a word with release ordering. Before and after it, tests may simulate a kill of the
    /// process.
    fn store(self, word: usize, value: u64) {
        may_be_killed();
        self.0[word].store(value, Ordering::Release);
        may_be_killed();
    }

    /// Returns the word with the shape of the table.
    #[inline]
    pub(crate) fn shape(self) -> &'a AtomicU64 {
        &self.0[SHAPE]
    }

    /// Returns the piece epoch, which changes when a piece of the index was removed or moved.
    #[inline]
    pub(crate) fn piece_epoch(self) -> u64 {
        self.load(PIECE_EPOCH)
    }

    /// Advances the piece epoch, so that readers of other processes notice that a piece was removed
    /// or moved.
    pub(crate) fn change_piece_epoch(self) {
        self.store(PIECE_EPOCH, self.load(PIECE_EPOCH).wrapping_add(1));
        // Orders the epoch before all later stores to the granules of the old piece.
        fence(Ordering::SeqCst);
    }

    /// Resets every word, for a table of one bucket without pieces.
    ///
    /// The caller then advances the piece epoch, for readers that have mapped the old pieces.
    pub(crate) fn initialize(self) {
        for (number, word) in self.0.iter().enumerate() {
            // Keep the record of a failed sync: the next process must repair it, even after a kill.
            // Keep the epoch: if it restarted, it might reach a value that a reader has seen.
            if number != SYNC_FAILED && number != PIECE_EPOCH {
                word.store(0, Ordering::Relaxed);
            }
        }
        may_be_killed();
        self.store(MAGIC, LIVE_MAGIC);
        self.store(FORMAT_VERSION, VERSION.into());
        self.store(SHAPE, 1);
        self.set_space(&Space::new(HEADER_BYTES / GRANULE_BYTES, Vec::new()));
        self.store(NEXT_SEQUENCE, 1);
    }

    /// Records the identity of the file, and the boot on which it is written to.
    pub(crate) fn set_identity(self, identity: Identity) {
        let [low, high] = boot_words(identity);
        self.store(BOOT_ID, low);
        self.store(BOOT_ID + 1, high);
        self.store(DEVICE, identity.device);
        self.store(INODE, identity.inode);
        self.store(BIRTH, identity.birth_ns);
        self.store(MOUNT, identity.mount_id);
    }

    /// Erases the boot id that [`set_identity`](Self::set_identity) has stored, because the tables
    /// are incomplete.
    pub(crate) fn clear_identity(self) {
        self.store(BOOT_ID, 0);
        self.store(BOOT_ID + 1, 0);
    }

    /// Records the process id of the writer, and since when it is the writer.
    pub(crate) fn set_pid(self, pid: u32, since_boot: Duration) {
        self.store(PID, since_boot.as_secs() << 32 | u64::from(pid));
    }

    /// Records that there is no writer.
    pub(crate) fn clear_pid(self) {
        self.store(PID, 0);
    }

    /// Returns whether a writer is recorded. That writer may have been killed.
    #[inline]
    pub(crate) fn has_pid(self) -> bool {
        self.load(PID) != 0
    }

    /// Returns whether the header was stored on this boot, for this file, through this mount.
    pub(crate) fn is_of(self, identity: Identity) -> bool {
        identity.mount_id != 0 && self.load(MOUNT) == identity.mount_id && self.is_of_file(identity)
    }

    /// Returns whether the header was stored on this boot, for this file, through any mount.
    ///
    /// This proves that the header is current only while the writer is running, or together with a
    /// [write hint](crate::storage::Storage::has_write_hint).
    pub(crate) fn is_of_file(self, identity: Identity) -> bool {
        identity.boot_id != [0; 16]
            && boot_words(identity) == [self.load(BOOT_ID), self.load(BOOT_ID + 1)]
            && (self.load(DEVICE), self.load(INODE)) == (identity.device, identity.inode)
            && self.load(BIRTH) == identity.birth_ns
    }

    /// Publishes a commit: stores its state into the inactive slot, then switches to it by one
    /// word.
    #[inline]
    pub(crate) fn commit(self, lsn: u64, state: &CommitState) {
        debug_assert!(lsn.is_multiple_of(8));
        debug_assert!(self.0[COMMIT].load(Ordering::Relaxed) & !7 <= lsn, "commits go forward");
        let number = (self.0[COMMIT].load(Ordering::Relaxed) & 1) ^ 1;
        let words = &self.0[COMMIT_STATES[number as usize]..];
        may_be_killed();
        // Seqlock: a reader that loads a word stored below also sees the previous commit word, so
        // its second load of that word differs and it retries.
        fence(Ordering::Release);
        words[0].store(state.record_count, Ordering::Relaxed);
        words[1].store(state.live_bytes, Ordering::Relaxed);
        words[2].store(state.dead_bytes, Ordering::Relaxed);
        words[3].store(state.tail_offset, Ordering::Relaxed);
        words[4].store(state.tail_segment, Ordering::Relaxed);
        words[5].store(state.head_offset, Ordering::Relaxed);
        words[6].store(state.head_segment, Ordering::Relaxed);
        may_be_killed();
        self.0[COMMIT].store(lsn | number, Ordering::Release);
        may_be_killed();
    }

    /// Returns the last commit.
    ///
    /// The loads may mix the words of two commits, so the commit word is loaded again afterwards.
    pub(crate) fn committed(self) -> (u64, CommitState) {
        loop {
            let word = self.load(COMMIT);
            let at = COMMIT_STATES[(word & 1) as usize];
            let state = CommitState {
                record_count: self.load(at),
                live_bytes: self.load(at + 1),
                dead_bytes: self.load(at + 2),
                tail_offset: self.load(at + 3),
                tail_segment: self.load(at + 4),
                head_offset: self.load(at + 5),
                head_segment: self.load(at + 6),
            };
            // One concurrent commit does not touch this state; a second one does. Commits without a
            // record in the log keep the sequence number: moves of records in memory, and emptied
            // segments of a file. Two of these in a row restore the commit word and go unnoticed
            // (an ABA), so the counts may be of different commits. In a file this can affect only
            // the dead bytes; in memory also the record count, where deletes leave no tombstone. No
            // decision depends on these.
            if self.load(COMMIT) == word {
                return (word & !7, state);
            }
            std::hint::spin_loop();
        }
    }

    /// Returns two numbers that both stay the same as long as no key is stored or deleted: the log
    /// sequence number of a recent commit, and the number of records, which decreases even with a
    /// delete for which the log has no space.
    #[inline]
    pub(crate) fn last_change(self) -> (u64, u64) {
        loop {
            let word = self.load(COMMIT);
            let record_count = self.load(COMMIT_STATES[(word & 1) as usize]);
            if self.load(COMMIT) == word {
                return (word & !7, record_count);
            }
            std::hint::spin_loop();
        }
    }

    /// Returns the number of records at some recent commit.
    pub(crate) fn record_count(self) -> u64 {
        self.committed().1.record_count
    }

    pub(crate) fn durable_lsn(self) -> u64 {
        self.load(DURABLE)
    }

    pub(crate) fn set_durable_lsn(self, lsn: u64) {
        self.store(DURABLE, lsn);
    }

    /// Raises the durable LSN to `lsn` unless it is higher already. Atomic, so a handle that is not
    /// the writer may call it.
    pub(crate) fn raise_durable_lsn(self, lsn: u64) {
        may_be_killed();
        self.0[DURABLE].fetch_max(lsn, Ordering::AcqRel);
        may_be_killed();
    }

    /// Returns whether a sync has failed since the tables were built.
    ///
    /// The kernel marks pages whose write-back has failed as clean, so a later sync skips them, and
    /// the page cache may drop them.
    pub(crate) fn has_failed_sync(self) -> bool {
        self.load(SYNC_FAILED) != 0
    }

    /// Records a failed sync, until [`clear_sync_failed`](Self::clear_sync_failed).
    pub(crate) fn set_sync_failed(self) {
        self.store(SYNC_FAILED, 1);
    }

    /// Erases the record of a failed sync, once every page that the file needs has been written
    /// again.
    pub(crate) fn clear_sync_failed(self) {
        self.store(SYNC_FAILED, 0);
    }

    pub(crate) fn log_bytes(self) -> u64 {
        self.load(LOG_BYTES)
    }

    pub(crate) fn set_log_bytes(self, bytes: u64) {
        self.store(LOG_BYTES, bytes);
    }

    pub(crate) fn big_bytes(self) -> u64 {
        self.load(BIG_BYTES)
    }

    pub(crate) fn set_big_bytes(self, bytes: u64) {
        self.store(BIG_BYTES, bytes);
    }

    pub(crate) fn next_sequence(self) -> u64 {
        self.load(NEXT_SEQUENCE)
    }

    pub(crate) fn set_next_sequence(self, sequence: u64) {
        self.store(NEXT_SEQUENCE, sequence);
    }

    /// Returns the extent of the segment table.
    pub(crate) fn segment_table(self) -> Option<Extent> {
        let word = self.load(SEGMENT_TABLE);
        (word != 0).then_some(Extent { granule: word & u64::from(u32::MAX), count: word >> 32 })
    }

    /// Records the extent of the segment table.
    pub(crate) fn set_segment_table(self, extent: Option<Extent>) {
        let word = extent.map_or(0, |extent| extent.count << 32 | extent.granule);
        self.store(SEGMENT_TABLE, word);
    }

    /// Returns the sequence number of the next segment when the segment table changed last.
    pub(crate) fn table_sequence(self) -> u64 {
        self.load(TABLE_SEQUENCE)
    }

    /// Records that the segment table includes every segment begun so far.
    pub(crate) fn note_table_changed(self) {
        self.store(TABLE_SEQUENCE, self.next_sequence());
    }

    /// Returns the checksum of the segment table at a clean close.
    pub(crate) fn table_crc(self) -> u64 {
        self.load(TABLE_CRC)
    }

    pub(crate) fn set_table_crc(self, crc: u32) {
        self.store(TABLE_CRC, crc.into());
    }

    /// Returns the number of overflow lines allocated so far, free ones included.
    pub(crate) fn lines_used(self) -> u64 {
        self.load(LINES_USED)
    }

    pub(crate) fn set_lines_used(self, count: u64) {
        self.store(LINES_USED, count);
    }

    /// Returns the first line of the free list, and the length of the list.
    pub(crate) fn free_lines(self) -> (Option<LineNumber>, u64) {
        let first = self.load(FREE_LINE) as u32;
        ((first != 0).then_some(LineNumber(first)), self.load(FREE_LINE_COUNT))
    }

    /// Replaces the free list.
    ///
    /// The order of the stores is chosen so that a process killed between them leaves a count that
    /// is too low, never one that is too high: a writer that relies on the count must find as many
    /// lines.
    pub(crate) fn set_free_lines(self, first: Option<LineNumber>, count: u64) {
        if count < self.load(FREE_LINE_COUNT) {
            self.store(FREE_LINE_COUNT, count);
        }
        self.store(FREE_LINE, first.map_or(0, |line| line.0.into()));
        self.store(FREE_LINE_COUNT, count);
    }

    /// Returns the number of pieces of a window.
    pub(crate) fn piece_count(self, window: LineWindow) -> usize {
        (self.load(PIECE_COUNTS[window.number()]) as usize).min(PIECE_COUNT_MAX)
    }

    /// Returns the first granule of a piece.
    pub(crate) fn piece(self, window: LineWindow, piece: usize) -> u64 {
        assert!(piece < PIECE_COUNT_MAX);
        self.load(PIECES[window.number()] + piece)
    }

    /// Returns the file offset of the word with the first granule of a piece, for messages.
    pub(crate) fn piece_offset(window: LineWindow, piece: usize) -> u64 {
        LIVE_OFFSET + (PIECES[window.number()] + piece) as u64 * 8
    }

    /// Appends a piece to a window.
    pub(crate) fn add_piece(self, window: LineWindow, granule: u64) {
        let piece = self.piece_count(window);
        assert!(piece < PIECE_COUNT_MAX);
        self.store(PIECES[window.number()] + piece, granule);
        self.store(PIECE_COUNTS[window.number()], piece as u64 + 1);
    }

    /// Records the new place of a piece of a window.
    pub(crate) fn move_piece(self, window: LineWindow, piece: usize, granule: u64) {
        assert!(piece < self.piece_count(window), "a window has the piece");
        self.store(PIECES[window.number()] + piece, granule);
        self.change_piece_epoch();
    }

    /// Removes the last piece of a window. None of its lines may be in use.
    pub(crate) fn remove_piece(self, window: LineWindow) {
        let piece_count = self.piece_count(window);
        assert!(piece_count > 0, "a window has the piece");
        self.store(PIECE_COUNTS[window.number()], piece_count as u64 - 1);
        self.change_piece_epoch();
    }

    /// Returns the free space of the file.
    pub(crate) fn space(self) -> Space {
        let count = (self.load(EXTENT_COUNT) as u32 as usize).min(Space::EXTENT_COUNT_MAX);
        let extent = |i| {
            let word = self.load(EXTENTS + i);
            Extent { granule: word & u64::from(u32::MAX), count: word >> 32 }
        };
        Space::new(self.load(END), (0..count).map(extent).collect())
    }

    /// Stores the free space.
    ///
    /// The list is empty while it changes, so a process killed in between leaks granules, but never
    /// leaves one with two uses.
    pub(crate) fn set_space(self, space: &Space) {
        self.store(EXTENT_COUNT, 0);
        self.store(END, space.end());
        // Extents beyond the capacity of the list are found again by the next open of a compacted
        // store.
        let count = space.free().len().min(Space::EXTENT_COUNT_MAX);
        for (i, extent) in space.free()[..count].iter().enumerate() {
            debug_assert!(extent.granule >> 32 == 0);
            let granule_count = extent.count.min(u32::MAX.into());
            self.store(EXTENTS + i, granule_count << 32 | extent.granule);
        }
        self.store(EXTENT_COUNT, u64::from(self.space_crc(count)) << 32 | count as u64);
    }

    /// Returns the checksum of the end of the file and of the first `count` extents. It exists
    /// because damage there would give granules two uses.
    fn space_crc(self, count: usize) -> u32 {
        let words = [END].into_iter().chain(EXTENTS..EXTENTS + count);
        words.fold(0, |crc, word| checksum::crc32c_append_words(crc, &[], [self.load(word)]))
    }

    /// Returns the segments of checkpoints, complete or not.
    pub(crate) fn checkpoint_extents(self) -> [Option<Extent>; 2] {
        [0, 1].map(|place| {
            let (granule, count) =
                (self.load(CHECKPOINTS + 2 * place), self.load(CHECKPOINTS + 2 * place + 1));
            (count != 0).then_some(Extent { granule, count })
        })
    }

    /// Records the segment of a checkpoint, or that there is none. Callers record a segment before
    /// it is allocated and erase the record after it is freed, so a killed process may leave a
    /// record of free granules, but never an allocated checkpoint without a record.
    pub(crate) fn set_checkpoint_extent(self, place: usize, extent: Option<Extent>) {
        self.store(CHECKPOINTS + 2 * place + 1, 0);
        let Extent { granule, count } = extent.unwrap_or(Extent { granule: 0, count: 0 });
        self.store(CHECKPOINTS + 2 * place, granule);
        self.store(CHECKPOINTS + 2 * place + 1, count);
    }

    /// Returns the checksum that a clean close writes: over all words from the shape on, except the
    /// durable log sequence number, which is stored only after the rest is durable.
    pub(crate) fn crc(self) -> u32 {
        let words = self.0.iter().enumerate().skip(SHAPE).filter(|&(word, _)| word != DURABLE);
        words.fold(0, |crc, (_, word)| {
            checksum::crc32c_append_words(crc, &[], [word.load(Ordering::Relaxed)])
        })
    }

    /// Checks every field against the size of the file, so that no field can lead outside of the
    /// file.
    pub(crate) fn validate(self, file_bytes: u64) -> Result<()> {
        let at = |word: usize| LIVE_OFFSET + word as u64 * 8;
        let check = |is_valid: bool, what, word: usize, expected: u64| {
            if is_valid {
                return Ok(());
            }
            Err(Error::Corrupt { what, offset: at(word), expected, found: self.load(word) })
        };
        check(self.load(MAGIC) == LIVE_MAGIC, "live header magic", MAGIC, LIVE_MAGIC)?;
        let version = self.load(FORMAT_VERSION);
        check(version == VERSION.into(), "live header version", FORMAT_VERSION, VERSION.into())?;
        let end = self.load(END);
        let end_max = file_bytes.min(FILE_BYTES_MAX) / GRANULE_BYTES;
        check((4..=end_max).contains(&end), "end of the file", END, end_max)?;
        for window in LineWindow::ALL {
            let count_word = PIECE_COUNTS[window.number()];
            let most = crate::piece::piece_count_for(1 << 32) as u64;
            check(self.load(count_word) <= most, "index extent count", count_word, most)?;
            for piece in 0..self.piece_count(window) {
                let granules = crate::piece::piece_of(piece).granule_count();
                let first = self.piece(window, piece);
                let is_inside = first >= 4 && first.checked_add(granules).is_some_and(|e| e <= end);
                check(is_inside, "index extent", PIECES[window.number()] + piece, end)?;
            }
        }
        let bucket_count_max = crate::piece::lines_of(self.piece_count(LineWindow::Buckets));
        let word = self.load(SHAPE);
        let geometry = Shape::of_word(word).geometry;
        let is_exact = Shape { geometry, ..Shape::of_word(word) }.word() == word;
        let is_inside = geometry.bucket_count() <= bucket_count_max;
        check(is_exact && is_inside, "bucket count", SHAPE, bucket_count_max)?;
        let lines_max = crate::piece::lines_of(self.piece_count(LineWindow::Overflow));
        check(self.lines_used() <= lines_max, "overflow line count", LINES_USED, lines_max)?;
        check(
            self.load(FREE_LINE) <= self.lines_used(),
            "free overflow line",
            FREE_LINE,
            lines_max,
        )?;
        let extents = self.load(EXTENT_COUNT);
        let count = extents & u64::from(u32::MAX);
        let count_max = Space::EXTENT_COUNT_MAX as u64;
        check(count <= count_max, "free extent count", EXTENT_COUNT, count_max)?;
        let crc = u64::from(self.space_crc(count as usize));
        check(extents == 0 || extents >> 32 == crc, "free extents checksum", EXTENT_COUNT, crc)?;
        for (i, extent) in self.space().free().iter().enumerate() {
            let is_inside = extent.granule >= 4 && extent.granule + extent.count <= end;
            check(is_inside, "free extent", EXTENTS + i, end)?;
        }
        for (place, extent) in self.checkpoint_extents().into_iter().enumerate() {
            let is_inside = extent.is_none_or(|extent| {
                let after = extent.granule.checked_add(extent.count);
                extent.granule >= 4 && after.is_some_and(|after| after <= FILE_BYTES_MAX)
            });
            check(is_inside, "checkpoint segment", CHECKPOINTS + 2 * place, end)?;
        }
        let is_inside = self.segment_table().is_none_or(|extent| {
            extent.granule >= 4 && extent.count > 0 && extent.granule + extent.count <= end
        });
        check(is_inside, "segment table", SEGMENT_TABLE, end)?;
        let (lsn, state) = self.committed();
        check(lsn <= LSN_MAX, "commit sequence number", COMMIT, LSN_MAX)?;
        // Sums of these must not overflow, even in a malicious file.
        let most = end * GRANULE_BYTES;
        let state_at = COMMIT_STATES[(self.load(COMMIT) & 1) as usize];
        for (what, word, most) in [
            ("record count", state_at, most / 8),
            ("live bytes", state_at + 1, most),
            ("dead bytes", state_at + 2, most),
            ("bytes in log segments", LOG_BYTES, most),
            ("bytes in big segments", BIG_BYTES, most),
            ("next segment sequence number", NEXT_SEQUENCE, LSN_MAX),
            ("free overflow line count", FREE_LINE_COUNT, self.lines_used()),
        ] {
            check(self.load(word) <= most, what, word, most)?;
        }
        let tail = COMMIT_STATES[(self.load(COMMIT) & 1) as usize] + 3;
        let is_inside = |offset: u64, segment: u64| {
            let is_segment = HEADER_BYTES <= segment
                && segment.saturating_add(SegmentHeader::BYTES) <= offset
                && segment.is_multiple_of(GRANULE_BYTES);
            (segment == 0 || is_segment)
                && offset <= end * GRANULE_BYTES
                && offset.is_multiple_of(8)
        };
        let file_end = end * GRANULE_BYTES;
        let is_tail = is_inside(state.tail_offset, state.tail_segment);
        check(is_tail, "tail of the log", tail, file_end)?;
        let is_head = is_inside(state.head_offset, state.head_segment);
        check(is_head, "compacted head", tail + 2, file_end)
    }
}

fn boot_words(identity: Identity) -> [u64; 2] {
    let (low, high) = identity.boot_id.split_at(8);
    [crate::format::u64_at(low, 0), crate::format::u64_at(high, 0)]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words() -> [AtomicU64; WORD_COUNT] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    #[test]
    fn a_commit_switches_between_two_states() {
        let words = words();
        let live = Live(&words);
        live.initialize();
        for lsn in [8, 16, 24] {
            let state =
                CommitState { record_count: lsn, tail_offset: 2 * lsn, ..Default::default() };
            live.commit(lsn, &state);
            assert_eq!(live.committed(), (lsn, state));
        }
    }

    #[test]
    fn no_segment_begins_in_the_header() {
        let file_bytes = HEADER_BYTES + 4 * GRANULE_BYTES;
        for (segment, is_valid) in
            [(0, true), (GRANULE_BYTES, false), (LIVE_OFFSET, false), (HEADER_BYTES, true)]
        {
            let tail = CommitState {
                tail_segment: segment,
                tail_offset: segment + SegmentHeader::BYTES,
                ..CommitState::default()
            };
            let head = CommitState {
                head_segment: segment,
                head_offset: segment + SegmentHeader::BYTES,
                ..CommitState::default()
            };
            for state in [tail, head] {
                let words = words();
                let live = Live(&words);
                live.initialize();
                live.add_piece(LineWindow::Buckets, HEADER_BYTES / GRANULE_BYTES);
                live.set_space(&Space::new(file_bytes / GRANULE_BYTES, Vec::new()));
                live.commit(8, &state);
                assert_eq!(live.validate(file_bytes).is_ok(), is_valid, "{state:?}");
            }
        }
    }

    #[test]
    fn the_free_space_survives_the_words() {
        let words = words();
        let live = Live(&words);
        live.initialize();
        let mut space = Space::new(4, Vec::new());
        space.allocate(16, 16);
        space.allocate(512, 512);
        live.set_space(&space);
        assert_eq!(live.space(), space);
    }

    #[test]
    fn only_this_boot_this_mount_and_this_file_are_trusted() {
        let words = words();
        let live = Live(&words);
        live.initialize();
        let identity = Identity { boot_id: [7; 16], mount_id: 9, device: 1, inode: 2, birth_ns: 3 };
        assert!(!live.is_of(identity));
        live.set_identity(identity);
        assert!(live.is_of(identity));
        assert!(!live.is_of(Identity { inode: 3, ..identity }));
        assert!(!live.is_of(Identity { birth_ns: 4, ..identity }));
        assert!(!live.is_of(Identity { boot_id: [8; 16], ..identity }));
        assert!(!live.is_of(Identity { mount_id: 10, ..identity }));
        assert!(live.is_of_file(Identity { mount_id: 10, ..identity }));
        live.clear_identity();
        assert!(!live.is_of(Identity { boot_id: [0; 16], ..identity }));
        live.set_identity(Identity { mount_id: 0, ..identity });
        assert!(!live.is_of(Identity { mount_id: 0, ..identity }), "no number proves nothing");
    }
}
