//! What a power loss leaves, and what recovery makes of it.

use crate::state::{Checkpoint, SEGMENTS, State};

/// The content of a segment of which only a part reached the disk.
const TORN: u8 = u8::MAX;

impl State {
    /// Returns whether recovery finds what was promised, whatever a power loss now leaves: of each segment
    /// that was stored to since its sync, all or a part; and one superblock may be damaged.
    pub(crate) fn survives_power_loss(&self) -> bool {
        let is_dirty = |segment: &usize| self.file.content[*segment] != self.disk.content[*segment];
        let dirty: Vec<usize> = (0..SEGMENTS).filter(is_dirty).collect();
        // What the cache has of a superblock may be on the disk, or not yet.
        let mut checkpoints = [self.disk.superblocks, self.file.superblocks].concat();
        checkpoints.sort_unstable();
        checkpoints.dedup();
        if !checkpoints.iter().all(|&checkpoint| self.file.has_durable_image(checkpoint)) {
            return false;
        }
        (0..1_u32 << dirty.len()).all(|written| {
            let mut image = self.disk.content;
            for (i, &segment) in dirty.iter().enumerate() {
                let is_written = written >> i & 1 == 1;
                image[segment] = if is_written { self.file.content[segment] } else { TORN };
            }
            // The newer one is read, or the other where it is damaged.
            checkpoints.iter().all(|&checkpoint| self.is_found(image, checkpoint))
        })
    }

    /// Returns whether recovery from a checkpoint finds at least the version that was promised
    /// (`recovery::replay`): it applies the log until a record is not there.
    fn is_found(&self, image: [u8; SEGMENTS], checkpoint: Checkpoint) -> bool {
        let is_there = |segment: u8, record: u8| image[usize::from(segment)] == record;
        let log = &self.file.log[usize::from(checkpoint.lsn)..usize::from(self.file.log_end)];
        let applied = log.iter().take_while(|next| is_there(next.segment, next.record));
        let found = applied.last().copied().unwrap_or(checkpoint.slot);
        is_there(found.segment, found.record) && found.version >= self.ghost.promised
    }
}
