//! What a killed process has left half made, which the next writer completes: no damage.
//!
//! The tables of a file that was not closed are as after some store of its last writer. Of the keys of a change
//! that it had not committed, the slots hold what was there before or what the change stores. Of a bucket that
//! it was splitting or merging, the lower one may hold slots that the other has too.

use std::ptr;

use super::Check;
use crate::atomic::Ordering;
use crate::format::Addr;
use crate::index::Lines;
use crate::index::line::Line;
use crate::index::lookup::is_held;
use crate::index::shape::Shape;
use crate::index::split::strays_of_last_split;
use crate::options::Access;
use crate::reader::UnfinishedRecord;
use crate::store::Writer;

/// What was left half made.
#[derive(Default)]
pub(super) struct Left<'a> {
    unfinished: Vec<UnfinishedRecord>,
    /// Slots that do not count, by their line and place.
    strays: Vec<(&'a Line, usize)>,
    /// Records that no slot holds any more, though they count until the change is committed, and their
    /// bytes.
    pub(super) taken_count: u64,
    pub(super) taken_bytes: u64,
}

impl Left<'_> {
    /// Returns whether a slot of a line is there twice, or is in the wrong bucket, until the next writer
    /// comes.
    pub(super) fn is_stray(&self, line: &Line, place: usize) -> bool {
        self.strays.iter().any(|&(stray, at)| ptr::eq(stray, line) && at == place)
    }
}

impl Check<'_> {
    /// Finds what a killed process has left half made in a file that this handle only reads.
    pub(super) fn find_left(&mut self, writer: &Writer) {
        let (store, region) = (self.store, &self.store.region);
        let is_beside = store.reader.is_some() && store.access == Access::ReadOnly;
        if !is_beside || writer.superblock.is_clean {
            return;
        }
        let geometry = Shape::of_word(region.windows.shape().load(Ordering::Acquire)).geometry;
        let hash_of = &mut |addr: Addr| Ok(store.hash_of(region.view.pair(addr)?.key));
        // Damage is found by the passes over the log and the index.
        self.left.strays =
            strays_of_last_split(&region.windows, geometry, hash_of).unwrap_or_default();
        self.left.unfinished = store.unfinished_behind(writer.log.position()).unwrap_or_default();
        for record in &self.left.unfinished {
            if let Some(prev) = record.prev.filter(|&addr| !self.is_slot(record.hash, addr)) {
                self.left.taken_count += 1;
                let prev = region.view.version(prev);
                self.left.taken_bytes += prev.map_or(0, |prev| prev.bytes.len() as u64);
            }
        }
    }

    /// Has the records live that the slots of such a change hold, in place of those before it.
    pub(super) fn take_left(&mut self) {
        for UnfinishedRecord { hash, addr, prev } in std::mem::take(&mut self.left.unfinished) {
            if let Some(prev) = prev.filter(|&addr| !self.is_slot(hash, addr)) {
                self.live.set(prev, false);
            }
            if let Some(addr) = addr.filter(|&addr| self.is_slot(hash, addr)) {
                self.live.set(addr, true);
            }
        }
    }

    fn is_slot(&self, hash: u64, addr: Addr) -> bool {
        is_held(&self.store.region.windows, hash, addr).unwrap_or(false)
    }
}
