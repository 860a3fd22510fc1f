//! Superblocks: each write goes to the copy that may be lost, so a torn write leaves the other copy
//! intact.
//!
//! The copy that may be lost is the older one, with two exceptions: a failed write has torn the
//! newer copy, or the newer copy is marked as one whose loss loses nothing (`may_be_lost`).
//!
//! The newer copy may not be durable: another handle may have written it without waiting, perhaps
//! because its process was killed. So before a handle overwrites the older copy, it syncs the newer
//! one, unless it knows that the newer one is durable.

use std::ops::Range;
use std::path::Path;

use super::Region;
use crate::atomic::Ordering;
use crate::checksum;
use crate::error::{Error, Result, Unsupported};
use crate::file_kind::FileKind;
use crate::format::{
    GRANULE_BYTES, HEADER_BYTES, LogStart, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock,
    SuperblockFault, Superblocks, newest,
};
use crate::index::line::LINE_BYTES;
use crate::live::LineWindow;
use crate::options::Access;
use crate::piece::piece_of;
use crate::storage::Storage;
use crate::testing::mutant::{self, Mutant};

/// The largest file whose close computes a checksum of the index. The next open computes it again,
/// and after a power loss it may have to read the whole log.
const SMALL_FILE_BYTES: u64 = 1 << 20;

impl Region {
    /// Writes the superblock and syncs it.
    pub(crate) fn write_superblock(
        &self,
        superblock: &mut Superblock,
        is_clean: bool,
    ) -> Result<()> {
        let next = self.place_superblock(superblock, is_clean)?;
        self.sync_range(next.offset(), SUPERBLOCK_BYTES)?;
        *superblock = next;
        Ok(())
    }

    /// Writes a superblock with the same content without syncing it: "not clean", or, at a close,
    /// clean with the checksum of the index. Until it is durable, a power loss may leave the
    /// previous superblock.
    pub(crate) fn write_unsynced(
        &self,
        superblock: &mut Superblock,
        index_crc: Option<u32>,
    ) -> Result<()> {
        *superblock = self.place(superblock, |next| {
            next.is_clean = index_crc.is_some();
            next.index_crc = index_crc;
            next.may_be_lost = true;
        })?;
        Ok(())
    }

    /// Records that the superblock of this generation is durable, or that its loss would lose
    /// nothing.
    pub(crate) fn note_durable_generation(&self, generation: u64) {
        self.durable_generation.fetch_max(generation, Ordering::Relaxed);
    }

    /// Returns the highest generation of the superblocks within a range of the file; 0 if there is
    /// none.
    pub(super) fn newest_generation_in(&self, range: Range<u64>) -> u64 {
        let is_inside =
            |&offset: &u64| range.start <= offset && offset + SUPERBLOCK_BYTES <= range.end;
        if self.storage().is_volatile() {
            return 0;
        }
        let blocks = SUPERBLOCK_OFFSETS.into_iter().filter(is_inside);
        let found = blocks.filter_map(|offset| self.superblock_at(offset));
        found.map(|superblock| superblock.generation).max().unwrap_or(0)
    }

    fn superblock_at(&self, offset: u64) -> Option<Superblock> {
        Superblock::decode(&self.storage().read(offset, SUPERBLOCK_BYTES)).ok()
    }

    /// Notes that this handle has created the store, and that nothing of it is durable.
    pub(crate) fn note_created(&self) {
        self.is_unsynced_creation.store(true, Ordering::Relaxed);
    }

    /// Notes that another handle has had a turn, so it may have made the empty store durable.
    pub(crate) fn note_shared_creation(&self) {
        self.is_unsynced_creation.store(false, Ordering::Relaxed);
    }

    /// Returns whether there is nothing yet that a torn write of both superblocks could lose.
    pub(crate) fn is_unsynced_creation(&self) -> bool {
        self.is_unsynced_creation.load(Ordering::Relaxed)
    }

    /// Writes the superblock to both copies, "not clean", and returns it as written. If there is something to
    /// lose, one copy is durable at every moment; else neither needs to be.
    pub(crate) fn place_both_superblocks(
        &self,
        superblock: &Superblock,
        has_nothing_to_lose: bool,
    ) -> Result<Superblock> {
        if has_nothing_to_lose {
            self.note_durable_generation(superblock.generation);
        }
        let first = self.place_superblock(superblock, false)?;
        if has_nothing_to_lose {
            self.note_durable_generation(first.generation);
        }
        self.place_superblock(&first, false)
    }

    /// Writes the superblock, and returns it as written. The caller syncs it.
    pub(crate) fn place_superblock(
        &self,
        superblock: &Superblock,
        is_clean: bool,
    ) -> Result<Superblock> {
        self.place(superblock, |next| {
            next.is_clean = is_clean;
            next.index_crc = None;
            next.may_be_lost = false;
        })
    }

    fn place(
        &self,
        superblock: &Superblock,
        set: impl FnOnce(&mut Superblock),
    ) -> Result<Superblock> {
        let mut next = superblock.clone();
        set(&mut next);
        let newest = self.newest_of(superblock);
        next.generation +=
            if self.goes_over_same_copy(superblock, newest.as_ref())? { 2 } else { 1 };
        // After a power loss, the older "not clean" copy with the same content would serve as well.
        // So this copy is marked as one that may be lost, and the next session overwrites it rather
        // than the other.
        next.may_be_lost |= next.is_clean
            && newest.is_some_and(|newest| !newest.is_clean && newest.has_content_of(&next));
        next.live_crc = if next.is_clean { self.live().crc() } else { 0 };
        next.file_bytes = self.view.file_bytes();
        if !self.storage().is_volatile() {
            let action = "write the superblock of";
            self.write(action, |storage| storage.write_at(next.offset(), &next.encode()))?;
        }
        Ok(next)
    }

    /// Returns the newest superblock as the file has it, without the changes that the caller has
    /// made in memory; `None` if that copy is not valid in the file.
    fn newest_of(&self, superblock: &Superblock) -> Option<Superblock> {
        if self.storage().is_volatile() {
            return None;
        }
        let found = self.superblock_at(superblock.offset());
        found.filter(|found| found.generation == superblock.generation)
    }

    /// Returns whether the next superblock overwrites the same copy as this one, because the other
    /// copy must survive. If neither may be overwritten, first syncs the newest.
    ///
    /// A power loss, damage or a failed write may have left only one valid copy. That copy must
    /// survive even if it is marked as one that may be lost.
    fn goes_over_same_copy(
        &self,
        superblock: &Superblock,
        newest: Option<&Superblock>,
    ) -> Result<bool> {
        if mutant::is_made(Mutant::LosesBothSuperblocks) || self.storage().is_volatile() {
            return Ok(false);
        }
        let own = superblock.offset();
        let has_to_stay = newest.is_some() && !superblock.may_be_lost;
        let durable_generation = self.durable_generation.load(Ordering::Relaxed);
        let is_durable = superblock.generation <= durable_generation
            || durable_generation > 0 && mutant::is_made(Mutant::TakesNewestForDurable);
        if has_to_stay && is_durable {
            return Ok(false);
        }
        let mut others = SUPERBLOCK_OFFSETS.into_iter().filter(|&offset| offset != own);
        if !has_to_stay && others.any(|offset| self.superblock_at(offset).is_some()) {
            return Ok(true);
        }
        if newest.is_some() {
            // The newest is the only valid copy, or the only one with its content, so it must be
            // durable before the other copy is overwritten.
            if self.live().has_failed_sync() {
                self.write_again(own, SUPERBLOCK_BYTES)?;
            }
            self.sync_range(own, SUPERBLOCK_BYTES)?;
        }
        Ok(false)
    }

    /// Returns the checksum of the index with which a close can mark the store clean without
    /// syncing the index. `None` unless the file is so small that replaying its log is cheap, and
    /// the rest of the tail segment is zero.
    pub(crate) fn index_crc_to_close_with(&self, superblock: &Superblock) -> Option<u32> {
        if self.storage().is_volatile() {
            return None;
        }
        // A replay of the complete log must give the same store, so nothing may depend on copies
        // that compaction made or on a checkpoint.
        let has_copies = superblock.is_compacted || self.live().committed().1.head_segment != 0;
        let has_log = superblock.log_start != LogStart::default();
        let is_replayed = has_log && !has_copies && superblock.checkpoint.is_none();
        let is_small = is_replayed && self.view.file_bytes() <= SMALL_FILE_BYTES;
        let index_crc =
            if is_small && self.is_blank_behind_log() { self.index_crc() } else { None };
        index_crc.filter(|_| self.storage().vouch_for_reads().is_ok())
    }

    /// Returns whether the tables are still those of the close that wrote this superblock and, for
    /// a writer, whether the rest of the tail segment is still zero. Another handle may be changing
    /// them, so `false` holds only for this call.
    ///
    /// The caller has validated the live header.
    pub(crate) fn is_as_closed(&self, superblock: &Superblock, access: Access) -> bool {
        assert!(superblock.is_clean, "only a close has checksums");
        if self.live().crc() != superblock.live_crc {
            return false;
        }
        let Some(index_crc) = superblock.index_crc else { return true };
        let is_index =
            || self.index_crc() == Some(index_crc) || mutant::is_made(Mutant::TrustsIndexUnread);
        // Only a writer appends there, so a read-only handle leaves this check to the next writer.
        let is_log = || {
            access == Access::ReadOnly
                || self.is_blank_behind_log()
                || mutant::is_made(Mutant::TrustsLogUnread)
        };
        is_index() && is_log() && self.storage().vouch_for_reads().is_ok()
    }

    /// Returns whether all bytes of the tail segment after the last record are zero. Otherwise they
    /// may be a record of a lost later session, of which a power loss has left a part. If the next
    /// record happened to have the size of the first lost one, a scan of the log could take the
    /// remains for its successor.
    fn is_blank_behind_log(&self) -> bool {
        let (_, state) = self.live().committed();
        if state.tail_segment == 0 {
            return true;
        }
        let Ok(header) = self.view.segment(state.tail_segment) else { return false };
        let end = state.tail_segment + header.segment_bytes;
        let Some(bytes) = end.checked_sub(state.tail_offset) else { return false };
        let mut is_blank = true;
        // OR all bytes instead of stopping at the first: compared one by one, 64 KiB take 35 us.
        let look = |bytes: &[u8]| is_blank &= bytes.iter().fold(0, |all, byte| all | byte) == 0;
        self.read_small(state.tail_offset, bytes, look).is_some() && is_blank
    }

    /// Returns the checksum of all buckets and of the overflow lines in use.
    fn index_crc(&self) -> Option<u32> {
        let live = self.live();
        let used = [
            (LineWindow::Buckets, self.windows.bucket_count()),
            (LineWindow::Overflow, live.lines_used()),
        ];
        let mut crc = 0;
        for (window, line_count) in used {
            for number in 0..live.piece_count(window) {
                let piece = piece_of(number);
                let lines = line_count.saturating_sub(piece.first_line).min(piece.line_count);
                let offset = live.piece(window, number) * GRANULE_BYTES;
                self.read_small(offset, lines * LINE_BYTES, |bytes| {
                    crc = checksum::crc32c_append(crc, bytes);
                })?;
            }
        }
        Some(crc)
    }

    /// Passes a range of a small file to `look`, chunk by chunk. The caller must discard the result
    /// unless the storage then vouches for its reads.
    fn read_small(&self, offset: u64, bytes: u64, mut look: impl FnMut(&[u8])) -> Option<()> {
        if bytes > SMALL_FILE_BYTES {
            return None;
        }
        let end = offset + bytes;
        let mut piece = [0; 4 * GRANULE_BYTES as usize];
        for at in (offset..end).step_by(piece.len()) {
            let piece = &mut piece[..(end - at).min(4 * GRANULE_BYTES) as usize];
            self.storage().read_scattered(at, piece).ok()?;
            look(piece);
        }
        Some(())
    }
}

/// Returns the first `bytes` of a storage, fewer if it is shorter.
fn head(storage: &dyn Storage, bytes: u64) -> Vec<u8> {
    let len = storage.file_bytes().min(bytes);
    storage.read(0, len)
}

/// Returns the newest valid superblock.
pub(crate) fn read_superblock(storage: &dyn Storage) -> Result<Superblock> {
    let path = storage.path().to_path_buf();
    let file_bytes = storage.file_bytes();
    let bytes = head(storage, HEADER_BYTES);
    if bytes.len() < 8 || bytes.len() < HEADER_BYTES as usize && !crate::format::is_magic(&bytes) {
        return Err(Error::NotAStore { path, found: FileKind::of_content(&bytes, file_bytes) });
    }
    if bytes.len() < HEADER_BYTES as usize {
        return Err(Error::Corrupt {
            what: "file size",
            offset: file_bytes,
            expected: HEADER_BYTES,
            found: file_bytes,
        });
    }
    let copies = SUPERBLOCK_OFFSETS.map(|offset| {
        let start = offset as usize;
        Superblock::decode(&bytes[start..start + SUPERBLOCK_BYTES as usize])
    });
    refuse_newer(&path, &copies)?;
    if let Some(newest) = newest(&copies) {
        return Ok(newest.clone());
    }
    // If one copy has its magic, report its fault: it says more than that the other copy has no
    // magic.
    let fields = SUPERBLOCK_OFFSETS.into_iter().zip(&copies).find_map(|(start, copy)| match copy {
        Err(SuperblockFault::Field { what, offset, expected, found }) => {
            Some((*what, start + offset, *expected, *found))
        }
        _ => None,
    });
    Err(match fields {
        Some((what, offset, expected, found)) => Error::Corrupt { what, offset, expected, found },
        None => Error::NotAStore { path, found: FileKind::of_content(&bytes, file_bytes) },
    })
}

/// Refuses a store that a newer version has written. A copy of a newer version counts even if the
/// other copy is valid for this version.
///
/// # Errors
///
/// [`Error::Version`] for another format, [`Error::Unsupported`] for features that this version lacks.
pub(crate) fn refuse_newer(path: &Path, copies: &Superblocks) -> Result<()> {
    let faults = || copies.iter().filter_map(|copy| copy.as_ref().err());
    for fault in faults() {
        if let SuperblockFault::Version(found) = *fault {
            let expected = crate::format::VERSION;
            return Err(Error::Version { path: path.to_path_buf(), expected, found });
        }
    }
    match faults().find(|fault| matches!(fault, SuperblockFault::Features(_))) {
        Some(_) => Err(unknown_features(path)),
        None => Ok(()),
    }
}

pub(crate) fn unknown_features(path: &Path) -> Error {
    let reason = "it was written by a newer version, whose features this one lacks".to_string();
    Error::Unsupported { path: path.to_path_buf(), feature: Unsupported::Other, reason }
}
