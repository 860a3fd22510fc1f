//! Superblocks: each is written over the older copy, so a torn write leaves the other.

use std::path::Path;

use super::Region;
use crate::error::{Error, Result, Unsupported};
use crate::file_kind::FileKind;
use crate::format::{
    HEADER_BYTES, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, SuperblockFault, Superblocks,
    newest,
};
use crate::storage::Storage;

impl Region {
    /// Writes the superblock over the older copy, and waits until it is durable.
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

    /// Writes the superblock over both copies, "not clean", and returns it as written. Neither need be durable.
    ///
    /// Only for a store in which nothing is durable yet, where a torn write loses nothing.
    pub(crate) fn place_both_superblocks(&self, superblock: &Superblock) -> Result<Superblock> {
        let first = self.place_superblock(superblock, false)?;
        self.place_superblock(&first, false)
    }

    /// Writes the superblock over the older copy, and returns it as written.
    pub(crate) fn place_superblock(
        &self,
        superblock: &Superblock,
        is_clean: bool,
    ) -> Result<Superblock> {
        let next = Superblock {
            generation: superblock.generation + 1,
            is_clean,
            live_crc: if is_clean { self.live().crc() } else { 0 },
            file_bytes: self.view.file_bytes(),
            ..superblock.clone()
        };
        if !self.storage().is_volatile() {
            let action = "write the superblock of";
            self.write(action, |storage| storage.write_at(next.offset(), &next.encode()))?;
        }
        Ok(next)
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
    // What is wrong with a copy that has its magic says more than that the other has none.
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

/// Refuses a store that a newer version has written: a copy that says so counts more than an older one
/// of this version.
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
