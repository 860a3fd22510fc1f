//! Superblocks: each is written over the older copy, so a torn write leaves the other.

use super::Region;
use crate::error::Result;
use crate::format::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock};

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

    /// Does the same as [`write_superblock`](Self::write_superblock), "not clean", for both copies
    /// at once.
    ///
    /// Only for a store in which nothing is durable yet, where a torn write loses nothing.
    pub(crate) fn write_both_superblocks(&self, superblock: &mut Superblock) -> Result<()> {
        let first = self.place_superblock(superblock, false)?;
        let second = self.place_superblock(&first, false)?;
        self.sync_range(0, SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_BYTES)?;
        *superblock = second;
        Ok(())
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
